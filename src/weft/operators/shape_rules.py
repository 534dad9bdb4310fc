"""Shape rules that several ops share: see ``weft.core.shapes``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.shapes import Shape, ShapeDtype, broadcast
from weft.core.symbols import Dim, Undecided, differ, is_symbolic, largest, product
from weft.native.memory.layout import (
    in_order,
    is_dense,
    last_of,
    order_of,
    rows_of,
    strides_of_result,
    suggests_last,
)
from weft.references.convolution import output_extent
from weft.references.pooling import pool_extent

I64, I32 = dt.I64, np.dtype(np.int32)
Result = ShapeDtype | Shape


def same(x: ShapeDtype) -> Shape:
    """The shape and dtype of the first input."""
    return x.shape


def in_rows(x: ShapeDtype) -> ShapeDtype:
    """The shape of the first input, in row-major order whatever order that has."""
    return ShapeDtype(x.shape, x.dtype, None if is_symbolic(x.shape) else rows_of(x.shape))


def shape_attribute(shape: Any) -> Shape:
    """The shape that an attribute says."""
    return tuple(shape)


def preserved(x: ShapeDtype, dtype: Any = None) -> ShapeDtype:
    """The shape of an input and, without gaps, the order of its dimensions in memory."""
    steps = x.steps
    if steps is not None and not is_symbolic(x.shape) and not is_dense(x.shape, steps, 1):
        steps = in_order(x.shape, order_of(x.shape, (steps,)))
    return ShapeDtype(x.shape, x.dtype if dtype is None else dtype, steps)


def arranged(shape: Shape, *inputs: ShapeDtype, dtype: Any = None) -> ShapeDtype:
    """A result in the order in memory that elementwise arithmetic on inputs gives it."""
    steps = None
    if all(x.steps is not None for x in inputs) and not is_symbolic(shape) and 0 not in shape:
        given = tuple((x.shape, x.steps) for x in inputs)
        rows = all(x.steps == rows_of(x.shape) for x in inputs)
        steps = None if rows or len(shape) < 2 else strides_of_result(shape, given)
    return ShapeDtype(shape, inputs[0].dtype if dtype is None else dtype, steps)


def in_order_of(x: ShapeDtype, shape: Shape, dtype: Any = None) -> ShapeDtype:
    """A shape with as many dimensions as an input, in the order that those have in memory."""
    d = x.dtype if dtype is None else dtype
    if x.steps is None or is_symbolic((*shape, *x.shape)) or x.steps == rows_of(x.shape):
        return ShapeDtype(shape, d)
    steps = x.steps
    return ShapeDtype(shape, d, in_order(shape, sorted(range(x.ndim), key=lambda i: -steps[i])))


def drawn(values: Any) -> ShapeDtype:
    """What was drawn before, for ops that stand for a draw."""
    return ShapeDtype(values.shape, dt.OF_NUMPY[values.dtype].np)


def expanded(x: ShapeDtype, shape: Shape, dtype: Any = None) -> ShapeDtype:
    """What is repeated to a shape, which it must fit."""
    if broadcast(x.shape, shape) != tuple(shape):
        raise RuntimeError(
            f"The size of tensor a {list(shape)} must match the size of tensor b "
            f"{list(x.shape)}: it can't be broadcast into it"
        )
    return ShapeDtype(shape, x.dtype if dtype is None else dtype)


def real(dtype: np.dtype) -> np.dtype:
    """The dtype of absolute values."""
    return dt.OF_NUMPY[dtype].to_real().np


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype of the same precision."""
    return dt.OF_NUMPY[dtype].to_complex().np


def smaller(a: Any, b: Any) -> Any:
    """The lesser of two sizes."""
    return a if a == b else a + b - largest(a, b)


# --- reductions ------------------------------------------------------------------------


def reduced(x: ShapeDtype, dim: Any, keepdim: bool = False, dtype: Any = None) -> ShapeDtype:
    """A result without the given dimensions, or with one element along them."""
    dims = {d % len(x.shape) for d in dim} if x.shape else set()
    shape = [1 if i in dims else n for i, n in enumerate(x.shape) if keepdim or i not in dims]
    return ShapeDtype(shape, x.dtype if dtype is None else dtype)


def summed(x: ShapeDtype, dim: Any, keepdim: bool) -> ShapeDtype:
    """A sum: truth values are counted."""
    counted = x.dtype.kind == "b" and x.ndim
    return reduced(x, dim, keepdim, I64 if counted else x.dtype)


def truth(x: ShapeDtype, dim: Any, keepdim: bool) -> ShapeDtype:
    """A truth value, which bytes have of their own type."""
    return reduced(x, dim, keepdim, x.dtype if x.dtype == np.uint8 else np.bool_)


def absolute(x: ShapeDtype, dim: Any, keepdim: bool) -> ShapeDtype:
    """A norm or a variance, which is real."""
    return reduced(x, dim, keepdim, real(x.dtype))


def picked(x: ShapeDtype, dim: int, keepdim: bool) -> list[ShapeDtype]:
    """One element of each row, and its index."""
    return [reduced(x, (dim,), keepdim), reduced(x, (dim,), keepdim, I64)]


def index_of_one(x: ShapeDtype, dim: int | None, keepdim: bool) -> ShapeDtype:
    """The index of an extreme, along a dimension or of all elements."""
    return reduced(x, range(x.ndim) if dim is None else (dim,), keepdim, I64)


def by_reduction(x: ShapeDtype, shape: Shape, reduction: str) -> ShapeDtype:
    """A loss for each element of a shape, or one for all."""
    return ShapeDtype(shape if reduction == "none" else (), x.dtype)


def difference(a: ShapeDtype, b: ShapeDtype, reduction: str) -> ShapeDtype:
    """A loss that compares element by element."""
    if reduction != "none":
        return ShapeDtype((), a.dtype)
    return arranged(broadcast(a.shape, b.shape), a, b)


# --- views -----------------------------------------------------------------------------


def reshaped(x: ShapeDtype, shape: Any) -> Shape:
    """As many elements in another shape."""
    if not is_symbolic((*x.shape, *shape)) and product(shape) != x.size:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {x.size}")
    return tuple(shape)


def without(shape: Shape, dim: int) -> Shape:
    """A shape without one of its dimensions."""
    return (*shape[:dim], *shape[dim + 1 :])


def replaced(shape: Shape, dim: int, size: Any) -> Shape:
    """A shape with another size for one of its dimensions."""
    return (*shape[:dim], size, *shape[dim + 1 :]) if shape else ()


def transposed(x: ShapeDtype, dim0: int, dim1: int) -> Shape:
    """A shape with two dimensions exchanged."""
    shape = list(x.shape)
    if shape:
        shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
    return tuple(shape)


def sliced(x: ShapeDtype, index: tuple[Any, ...]) -> Shape:
    """What an index of ints, slices, None and Ellipsis leaves of a shape."""
    taken = sum(p is not None and p is not Ellipsis for p in index)
    if taken > x.ndim:
        raise IndexError(f"too many indices for tensor of dimension {x.ndim}")
    parts = list(index if any(p is Ellipsis for p in index) else (*index, ...))
    left, result = list(x.shape), []
    for part in parts:
        if part is None:
            result.append(1)
        elif part is Ellipsis:
            whole = x.ndim - taken
            result += left[:whole]
            left = left[whole:]
        elif isinstance(part, slice):
            result.append(_length(part, left.pop(0)))
        else:
            _check_index(part, left.pop(0))
    return tuple(result) + tuple(left)


def _length(part: slice, size: Any) -> Any:
    """How many elements a slice takes of a dimension."""
    if not isinstance(size, Dim):
        return len(range(*part.indices(size)))
    start, stop, step = part.start or 0, part.stop, 1 if part.step is None else part.step
    if part == slice(None, None, -1):
        return size
    stop = size if stop is None else size + stop if stop < 0 else smaller(stop, size)
    start = size + start if start < 0 else start
    if step < 1:
        raise Undecided(f"a slice {part} of the size {size}, which is not known yet")
    return largest((stop - start + step - 1) // step, 0)


def _check_index(index: Any, size: Any) -> None:
    if not isinstance(size, Dim) and not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension with size {size}")


def diagonal(x: ShapeDtype, offset: int, dim1: int, dim2: int) -> Shape:
    """A diagonal of the matrices in two dimensions, as a last dimension."""
    rows, columns = x.shape[dim1], x.shape[dim2]
    length = smaller(rows, columns - offset) if offset >= 0 else smaller(rows + offset, columns)
    kept = [n for i, n in enumerate(x.shape) if i not in (dim1, dim2)]
    return (*kept, largest(length, 0))


def unfolded(x: ShapeDtype, dim: int, size: int, step: int) -> Shape:
    """Windows along a dimension, as a last dimension."""
    if not x.shape:
        return (size,)
    return (*replaced(x.shape, dim, (x.shape[dim] - size) // step + 1), size)


# --- several inputs --------------------------------------------------------------------


def joined(inputs: list[ShapeDtype], dim: int) -> ShapeDtype:
    """Inputs one after another along a dimension; empty vectors don't count."""
    first = inputs[0]
    parts = [x for x in inputs if x.shape != (0,)] or [first]
    if all(x.ndim == first.ndim for x in inputs):
        parts = inputs
    shape = parts[0].shape
    for x in parts[1:]:
        others = zip(without(x.shape, dim), without(shape, dim), strict=False)
        if x.ndim != len(shape) or any(differ(m, n) for m, n in others):
            raise RuntimeError(
                f"Sizes of tensors must match except in dimension {dim}. Got {list(shape)} and "
                f"{list(x.shape)}"
            )
    total: Any = 0
    for x in parts:
        total = total + x.shape[dim]
    return ShapeDtype(replaced(shape, dim, total), first.dtype)


def stacked(inputs: list[ShapeDtype], dim: int) -> ShapeDtype:
    """Inputs of one shape along a new dimension; what has the channels innermost keeps them so."""
    shape, count = inputs[0].shape, len(inputs)
    if any(x.ndim != len(shape) or any(map(differ, x.shape, shape)) for x in inputs):
        raise RuntimeError(f"stack expects each tensor to be equal size, but got {inputs}")
    steps = None
    if dim < len(shape) and not is_symbolic(shape) and 0 not in shape:
        if all(x.steps is not None and suggests_last(shape, x.steps) for x in inputs):
            joined = last_of((*shape[:dim], count * shape[dim], *shape[dim + 1 :]))
            steps = (*joined[:dim], joined[dim] * shape[dim], *joined[dim:])
    return ShapeDtype((*shape[:dim], count, *shape[dim:]), inputs[0].dtype, steps)


def indexed(x: ShapeDtype, rest: list[ShapeDtype], where: tuple[int, ...]) -> ShapeDtype:
    """An array indexed by arrays in some of its dimensions."""
    if not where:
        return ShapeDtype(x.shape, x.dtype)
    chosen = broadcast(*(i.shape for i in rest))
    others = [n for d, n in enumerate(x.shape) if d not in where]
    together = list(where) == list(range(where[0], where[0] + len(where)))
    at = where[0] if together else 0
    return ShapeDtype((*others[:at], *chosen, *others[at:]), x.dtype)


def put_into(shape: Shape, value: Shape) -> Shape:
    """A shape that a value broadcasts into without making it larger."""
    if len(value) > len(shape) or broadcast(shape, value) != shape:
        raise RuntimeError(f"{list(value)} does not broadcast to {list(shape)}")
    return shape


def indexed_put(
    x: ShapeDtype, values: ShapeDtype, rest: list[ShapeDtype], where: tuple[int, ...]
) -> Shape:
    """The first input, some of whose elements are replaced."""
    put_into(indexed(x, rest, where).shape, values.shape)
    return x.shape


def matrices(a: ShapeDtype, b: ShapeDtype) -> None:
    """Refuse products of different dtypes, as the references do."""
    if a.dtype != b.dtype:
        names = " != ".join(dt.OF_NUMPY[x.dtype].name for x in (a, b))
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {names}; convert one with .to()"
        )
    if a.dtype.kind == "b":
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Bool'; convert with .long()")


def _same_length(m: Any, n: Any, a: ShapeDtype, b: ShapeDtype) -> None:
    if differ(m, n):
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and "
            f"{'x'.join(map(str, b.shape))})"
        )


def matmul(a: ShapeDtype, b: ShapeDtype) -> Shape:
    """Rows of any rank times a matrix."""
    matrices(a, b)
    _same_length(a.shape[-1], b.shape[0], a, b)
    return (*a.shape[:-1], *b.shape[1:])


def batched_matmul(a: ShapeDtype, b: ShapeDtype) -> Shape:
    """Matrices times matrices, with broadcast leading dimensions."""
    matrices(a, b)
    _same_length(a.shape[-1], b.shape[-2], a, b)
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    return (*lead, *a.shape[-2:-1], b.shape[-1])


def affine(x: ShapeDtype, weight: ShapeDtype) -> Shape:
    """Rows of any rank times a transposed matrix."""
    matrices(x, weight)
    _same_length(x.shape[-1], weight.shape[-1], x, weight)
    return (*x.shape[:-1], *weight.shape[:-1])


def affine_with_bias(x: ShapeDtype, weight: ShapeDtype, bias: ShapeDtype) -> Shape:
    """The same, with something added that broadcasts to it."""
    shape = affine(x, weight)
    return put_into(shape, bias.shape)


# --- windows ---------------------------------------------------------------------------


def convolved(
    x: ShapeDtype, w: ShapeDtype, stride: Any, padding: Any, dilation: Any, groups: int,
    extent: Any = None,
) -> Shape:  # fmt: skip
    """(N, O, ...) of an (N, C, ...) input and an (O, C / groups, ...) weight."""
    if differ(x.shape[1], w.shape[1] * groups):
        raise RuntimeError(
            f"Given groups={groups}, weight of size {list(w.shape)}, expected input"
            f"{list(x.shape)} to have {w.shape[1] * groups} channels, but got {x.shape[1]} "
            "channels instead"
        )
    spatial, kernel = x.shape[2:], w.shape[2:]
    if extent is not None:
        return (x.shape[0], w.shape[0], *extent)
    if not is_symbolic((*spatial, *kernel)):
        return (x.shape[0], w.shape[0], *output_extent(spatial, kernel, stride, padding, dilation))
    windows = zip(spatial, kernel, stride, padding, dilation, strict=True)
    sizes = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in windows)
    return (x.shape[0], w.shape[0], *sizes)


def pooled(
    x: ShapeDtype, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, dilation: Any = None
) -> Shape:
    """(N, C, ...) with a size for the windows of each dimension."""
    spatial, spread = x.shape[2:], dilation or (1,) * len(kernel)
    if not is_symbolic(spatial):
        found = pool_extent(spatial, kernel, stride, padding, spread, ceil_mode)
        return (*x.shape[:2], *found)
    if ceil_mode:
        raise Undecided("how many windows ceil_mode leaves depends on the size")
    windows = zip(spatial, kernel, stride, padding, spread, strict=True)
    sizes = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in windows)
    return (*x.shape[:2], *sizes)


def with_indices(y: Result, x: ShapeDtype) -> list[ShapeDtype]:
    """Values of an input and where they are from."""
    shape = y.shape if isinstance(y, ShapeDtype) else y
    return [ShapeDtype(shape, x.dtype), ShapeDtype(shape, I64)]


def resized(x: ShapeDtype, size: Any) -> Shape:
    """(N, C, ...) with other sizes behind."""
    return (*x.shape[:2], *size)


# --- matrices --------------------------------------------------------------------------


def batch(x: ShapeDtype) -> Shape:
    """The leading dimensions of matrices."""
    return x.shape[:-2]


def columns(x: ShapeDtype) -> ShapeDtype:
    """A matrix like another one, with its columns one after another in memory."""
    if is_symbolic(x.shape):
        return x.of(x.dtype)
    order = [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2]
    return ShapeDtype(x.shape, x.dtype, in_order(x.shape, order))


def solved(a: ShapeDtype, b: ShapeDtype) -> Shape:
    """Solutions, for broadcast batches of matrices and right sides."""
    return (*broadcast(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])


def with_info(x: ShapeDtype, shape: Shape | None = None) -> list[ShapeDtype]:
    """A factor like its matrix, and a number for each that says how it went."""
    return [x.of(x.dtype), ShapeDtype(batch(x), I32)]


def qr(x: ShapeDtype, mode: str) -> list[ShapeDtype]:
    """The two factors."""
    *lead, m, n = x.shape
    k = smaller(m, n)
    if mode == "r":
        return [ShapeDtype((0,), x.dtype), ShapeDtype((*lead, k, n), x.dtype)]
    inner = m if mode == "complete" else k
    return [ShapeDtype((*lead, m, inner), x.dtype), ShapeDtype((*lead, inner, n), x.dtype)]


def svd(x: ShapeDtype, full_matrices: bool) -> list[ShapeDtype]:
    """Singular vectors and values."""
    *lead, m, n = x.shape
    k = smaller(m, n)
    u, v = (m, n) if full_matrices else (k, k)
    return [
        ShapeDtype((*lead, m, u), x.dtype),
        ShapeDtype((*lead, k), real(x.dtype)),
        ShapeDtype((*lead, v, n), x.dtype),
    ]


def pivoted(x: ShapeDtype) -> list[ShapeDtype]:
    """A factor, the rows that changed places, and how it went."""
    *lead, m, n = x.shape
    return [columns(x), ShapeDtype((*lead, smaller(m, n)), I32), ShapeDtype(lead, I32)]
