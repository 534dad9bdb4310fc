"""Views: the same memory seen with another shape. Their derivatives are views too."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import errors
from weft.core.dispatch import follow
from weft.core.tensor import Tensor, strided, wrap
from weft.ops import api
from weft.ops.build import Sample, linear, zeros_of

# --- permute, transpose ----------------------------------------------------------------


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(order))


permute_op = linear(
    "permute",
    lambda x, dims: x.transpose(dims),
    lambda g, dims: permute_op(g, dims=_inverse(dims)),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3, 4),), {"dims": (2, 0, 1)})],
)


@api.both
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dimensions in another order."""
    if not dims:
        raise TypeError(f'permute() missing 1 required argument: "dims"\n  at {errors.here()}')
    order = api.dims(api.shape_argument(dims), input.ndim)
    if len(order) != input.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {input.ndim} is not "
            f"equal to len(dims) = {len(order)}\n  at {errors.here()}"
        )
    return permute_op(input, dims=order)


transpose_op = linear(
    "transpose",
    lambda x, dim0, dim1: x.swapaxes(dim0, dim1) if x.ndim else x[...],
    lambda g, dim0, dim1: transpose_op(g, dim0=dim0, dim1=dim1),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3, 4),), {"dim0": 0, "dim1": 2})],
)


@api.both
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    rank = input.ndim
    return transpose_op(input, dim0=api.wrap_dim(dim0, rank), dim1=api.wrap_dim(dim1, rank))


api.alias("transpose", "swapaxes", "swapdims")

t_op = linear(
    "t",
    lambda x: x.T,
    lambda g: t_op(g),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3),)), Sample((m.real(3),))],
)


@api.both
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(
            f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D; use "
            f"transpose() or mT\n  at {errors.here()}"
        )
    return t_op(input)


def _reversed(x: Tensor) -> Tensor:
    return permute_op(x, dims=tuple(range(x.ndim))[::-1])


Tensor.T = property(_reversed)  # type: ignore[attr-defined]
Tensor.mT = property(lambda x: transpose(x, -2, -1))  # type: ignore[attr-defined]
Tensor.H = property(lambda x: transpose(x, 0, 1).conj())  # type: ignore[attr-defined]
Tensor.mH = property(lambda x: transpose(x, -2, -1).conj())  # type: ignore[attr-defined]
api.both(lambda input: transpose(input, -2, -1).conj(), name="adjoint")


@api.both
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move dimensions to other places, keeping the order of the rest."""
    rank = input.ndim
    froms, tos = api.dims(source, rank), api.dims(destination, rank)
    if len(froms) != len(tos):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({source} dims) should contain "
            f"the same number of dims as destination ({destination} dims)\n  at {errors.here()}"
        )
    order = [d for d in range(rank) if d not in froms]
    for to, fro in sorted(zip(tos, froms, strict=True)):
        order.insert(to, fro)
    return permute_op(input, dims=tuple(order))


api.alias("movedim", "moveaxis")

# --- view, reshape ---------------------------------------------------------------------

# On a gradient's own layout the reshape may have to copy; callers check when it must not.
view_op = linear(
    "view",
    lambda x, shape: x.reshape(shape),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    samples=lambda m: [
        Sample((m.real(2, 3, 4),), {"shape": (6, 4)}),
        Sample((m.real(0, 3),), {"shape": (3, 0, 2)}),
    ],
)
reshape_op = linear(
    "reshape",
    lambda x, shape: x.reshape(shape),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    grad_name="ViewBackward",
    samples=lambda m: [Sample((m.real(2, 3, 4).transpose(2, 0, 1),), {"shape": (6, 4)})],
)


def resolve_shape(shape: tuple[int, ...], count: int, name: str) -> tuple[int, ...]:
    """Fill in a -1; refuse shapes that don't hold ``count`` elements."""
    known = 1
    for size in shape:
        if size < -1:
            raise RuntimeError(f"{name}: invalid shape dimension {size}\n  at {errors.here()}")
        known *= size if size != -1 else 1
    unknown = shape.count(-1)
    if unknown > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred\n  at {errors.here()}")
    if unknown:
        if known == 0 and count == 0:
            raise RuntimeError(
                f"{name}: cannot reshape tensor of 0 elements into shape {list(shape)} because "
                f"the unspecified dimension size -1 can be any value and is ambiguous\n"
                f"  at {errors.here()}"
            )
        if known and count % known == 0:
            return tuple(count // known if s == -1 else s for s in shape)
    elif known == count:
        return shape
    raise RuntimeError(
        f"{name}: shape '{list(shape)}' is invalid for input of size {count}\n"
        f"  at {errors.here()}"
    )


@api.both
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape; a view where the layout allows it."""
    wanted = resolve_shape(api.shape_argument(shape), input._a.size, "reshape")
    return reshape_op(input, shape=wanted)


@api.method
def view(self: Tensor, *shape: Any, dtype: Any = None) -> Tensor:
    """The same memory in another shape, or as another dtype."""
    from_dtype = dtype or (shape[0] if len(shape) == 1 and hasattr(shape[0], "np") else None)
    if from_dtype is not None:
        return _view_as_dtype(self, from_dtype)
    wanted = resolve_shape(api.shape_argument(shape), self._a.size, "view")
    if not self._a.flags.c_contiguous and not _viewable(self._a, wanted):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead: shape "
            f"{list(self._a.shape)}, strides {self.stride()}, wanted {list(wanted)}\n"
            f"  at {errors.here()}"
        )
    return view_op(self, shape=wanted)


def _viewable(array: np.ndarray, shape: tuple[int, ...]) -> bool:
    try:
        np.reshape(array, shape, copy=False)
    except ValueError:
        return False
    return True


def _view_as_dtype(x: Tensor, d: Any) -> Tensor:
    if d.np == x._a.dtype:
        return view_op(x, shape=x._a.shape)
    made = wrap(x._a.view(d.np))
    made._vc = x._vc
    return made


@api.method
def view_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the other's shape."""
    return view(self, other._a.shape)


@api.method
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """This tensor in the other's shape, copied if need be."""
    return reshape(self, other._a.shape)


@api.both
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Several neighbouring dimensions as one."""
    rank = input.ndim
    start, end = api.wrap_dim(start_dim, rank), api.wrap_dim(end_dim, rank)
    if start > end:
        raise RuntimeError(
            f"flatten() has invalid args: start_dim cannot come after end_dim\n"
            f"  at {errors.here()}"
        )
    if not rank:
        return reshape_op(input, shape=(1,))
    if start == end:
        return input
    shape = input._a.shape
    merged = int(np.prod(shape[start : end + 1], dtype=np.int64))
    return reshape_op(input, shape=(*shape[:start], merged, *shape[end + 1 :]))


@api.both
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape_op(input, shape=(input._a.size,))


@api.both
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """One dimension as several."""
    d = api.wrap_dim(dim, input.ndim)
    shape = input._a.shape
    inner = resolve_shape(api.shape_argument((sizes,)), shape[d], "unflatten")
    return view(input, (*shape[:d], *inner, *shape[d + 1 :]))


# --- squeeze, unsqueeze, expand --------------------------------------------------------

unsqueeze_op = linear(
    "unsqueeze",
    lambda x, dim: np.expand_dims(x, dim),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    samples=lambda m: [Sample((m.real(2, 3),), {"dim": 1})],
)


@api.both
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of length one."""
    return unsqueeze_op(input, dim=api.wrap_dim(dim, input.ndim + 1))


squeeze_op = linear(
    "squeeze",
    lambda x, dims: x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in dims)),
    lambda g, x_shape: reshape_op(g, shape=x_shape),
    view=True,
    samples=lambda m: [Sample((m.real(2, 1, 3, 1),), {"dims": (1, 3)})],
)


@api.both
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without the dimensions of length one."""
    shape = input._a.shape
    chosen = api.dims(dim, len(shape))
    return squeeze_op(input, dims=tuple(d for d in chosen if shape and shape[d] == 1))


def _expand(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    lead = len(shape) - x.ndim
    strides = (0,) * lead + tuple(
        0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)
    )
    return strided(x, shape, strides)


expand_op = linear(
    "expand",
    _expand,
    lambda g: g,  # the engine sums a gradient down to its input's shape
    view=True,
    samples=lambda m: [Sample((m.real(2, 1),), {"shape": (3, 2, 4)})],
)


@api.method
def expand(self: Tensor, *sizes: Any, implicit: bool = False) -> Tensor:
    """Repeat along dimensions of length one, without copying."""
    wanted = list(api.shape_argument(sizes))
    shape = self._a.shape
    lead = len(wanted) - len(shape)
    if lead < 0:
        raise RuntimeError(
            f"expand(torch.{self.dtype.name}{{{list(shape)}}}, size={wanted}): the number of sizes "
            f"provided ({len(wanted)}) must be greater or equal to the number of dimensions in "
            f"the tensor ({len(shape)})\n  at {errors.here()}"
        )
    for i, size in enumerate(wanted):
        have = shape[i - lead] if i >= lead else None
        if size == -1:
            if have is None:
                raise RuntimeError(
                    f"expand: The expanded size of the tensor (-1) isn't allowed in a leading, "
                    f"non-existing dimension {i}\n  at {errors.here()}"
                )
            wanted[i] = have
        elif have is not None and have != size and have != 1:
            raise RuntimeError(
                f"expand: The expanded size of the tensor ({size}) must match the existing size "
                f"({have}) at non-singleton dimension {i}.  Target sizes: {wanted}.  Tensor "
                f"sizes: {list(shape)}\n  at {errors.here()}"
            )
    return expand_op(self, shape=tuple(wanted))


@api.method
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    """Repeat to the other's shape, without copying."""
    return expand(self, other._a.shape)


@api.both
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """Repeat to a shape, without copying."""
    return expand(input, size)


# --- slices and parts ------------------------------------------------------------------



def _placed(g: np.ndarray, shape: tuple[int, ...], index: Any) -> np.ndarray:
    out = np.zeros(shape, g.dtype)
    out[index] = g
    return out


# Basic indexing with ints, slices, None and Ellipsis: always a view.
slice_op = linear(
    "slice",
    lambda x, index: x[index] if ... in index else x[(*index, ...)],
    lambda g, x_shape, index: place_op(g, shape=x_shape, index=index),
    view=True,
    samples=lambda m: [
        Sample((m.real(4, 3),), {"index": (slice(1, 4, 2),)}),
        Sample((m.real(4, 3),), {"index": (2, slice(0, 2))}),
        Sample((m.real(4, 3),), {"index": (None, 3, 1)}),
    ],
)
place_op = linear(
    "place",
    _placed,
    lambda g, index: slice_op(g, index=index),
    grad_name="SliceScatterBackward",
    samples=lambda m: [Sample((m.real(2, 3),), {"shape": (4, 3), "index": (slice(1, 4, 2),)})],
)
select_op = linear(
    "select",
    lambda x, dim, index: x[(slice(None),) * dim + (index, ...)],
    lambda g, x_shape, dim, index: place_op(
        g, shape=x_shape, index=(slice(None),) * dim + (index,)
    ),
    view=True,
    samples=lambda m: [Sample((m.real(4, 3),), {"dim": 1, "index": 2})],
)


@api.both
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One slice along a dimension."""
    if not input.ndim:
        raise IndexError(f"select() cannot be applied to a 0-dim tensor.\n  at {errors.here()}")
    d, index = api.wrap_dim(dim, input.ndim), int(index)
    size = input._a.shape[d]
    if not -size <= index < size:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(input._a.shape)} at "
            f"dimension {d}\n  at {errors.here()}"
        )
    return select_op(input, dim=d, index=index % size)


@api.both
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """A stretch along a dimension."""
    if not input._a.ndim:
        raise RuntimeError(f"narrow() cannot be applied to a 0-dim tensor.\n  at {errors.here()}")
    d, start, length = api.wrap_dim(dim, input.ndim), int(start), int(length)
    size = input._a.shape[d]
    first = start + size if start < 0 else start
    if length < 0 or not 0 <= first <= size or first + length > size:
        raise RuntimeError(
            f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({size}).\n"
            f"  at {errors.here()}"
        )
    return slice_op(input, index=(slice(None),) * d + (slice(first, first + length),))


def _split(x: np.ndarray, sizes: tuple[int, ...], dim: int) -> tuple[np.ndarray, ...]:
    parts, start = [], 0
    for size in sizes:
        parts.append(x[(slice(None),) * dim + (slice(start, start + size),)])
        start += size
    return tuple(parts)


split_op = linear(
    "split",
    _split,
    lambda g, dim: cat_op(*g, dim=dim),
    view=True,
    multiple=True,
    samples=lambda m: [Sample((m.real(5, 3),), {"sizes": (2, 2, 1), "dim": 0})],
)


@api.both
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts along a dimension: of one size, or of the sizes given."""
    if not tensor._a.ndim:
        raise RuntimeError(
            f"split expects at least a 1-dimensional tensor\n  at {errors.here()}"
        )
    d = api.wrap_dim(dim, tensor.ndim)
    size = tensor._a.shape[d]
    if isinstance(split_size_or_sections, (int, np.integer)):
        step = int(split_size_or_sections)
        if step < 0 or (step == 0 and size):
            raise RuntimeError(
                f"split expects split_size be non-negative, but got split_size={step}\n"
                f"  at {errors.here()}"
            )
        sizes = (
            tuple(min(step, size - i) for i in range(0, size, step)) if size else (0,)
        )
    else:
        sizes = tuple(int(s) for s in split_size_or_sections)
        if sum(sizes) != size or any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's "
                f"size at dimension {d}), but got split_sizes={list(sizes)}\n  at {errors.here()}"
            )
    return split_op(tensor, sizes=sizes, dim=d)


@api.both
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given."""
    return split(input, tuple(split_sizes), dim)


@api.both
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most so many parts of equal size along a dimension."""
    if chunks <= 0:
        raise RuntimeError(
            f"chunk expects `chunks` to be greater than 0, got: {chunks}\n  at {errors.here()}"
        )
    if not input._a.ndim:
        raise RuntimeError(
            f"chunk expects at least a 1-dimensional tensor\n  at {errors.here()}"
        )
    size = input.size(dim)
    step = -(-size // chunks)
    if not step:
        return split_op(input, sizes=(0,) * chunks, dim=api.wrap_dim(dim, input.ndim))
    return split(input, step, dim)


unbind_op = linear(
    "unbind",
    lambda x, dim: tuple(x[(slice(None),) * dim + (i, ...)] for i in range(x.shape[dim])),
    lambda g, dim: stack_op(*g, dim=dim),
    view=True,
    multiple=True,
    samples=lambda m: [Sample((m.real(3, 2),), {"dim": 1})],
)


@api.both
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """All slices along a dimension."""
    if not input.ndim:
        raise IndexError(f"unbind: Dimension specified as {dim} but tensor has no dimensions\n"
                           f"  at {errors.here()}")
    d = api.wrap_dim(dim, input.ndim)
    if not input._a.shape[d]:
        return ()
    return unbind_op(input, dim=d)


# --- cat and stack, the transposes of split and unbind ---------------------------------


def _cat_rule(g: Any, needs: Any, shapes: Any, dim: int) -> tuple[Any, ...]:
    parts, start = [], 0
    for need, shape in zip(needs, shapes, strict=True):
        if shape == (0,) and len(g.shape) != 1:
            parts.append(zeros_of(g, shape) if need else None)  # PyTorch skips such inputs
            continue
        end = start + shape[dim]
        part = (slice(None),) * dim + (slice(start, end),)
        parts.append(slice_op(g, index=part) if need else None)
        start = end
    return tuple(parts)


def _cat(*parts: np.ndarray, dim: int) -> np.ndarray:
    if any(p.ndim != parts[0].ndim for p in parts):
        parts = tuple(p for p in parts if p.shape != (0,)) or parts[:1]
    return np.concatenate(parts, dim)


cat_op = linear(
    "cat",
    _cat,
    joint=_cat_rule,
    names=(),
    promote="same",
    variadic=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(1, 3), m.real(0, 3)), {"dim": 0})],
)


@api.top(out=True)
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors joined along a dimension that they have."""
    parts = tuple(tensors)
    if not parts:
        raise RuntimeError(f"cat: expected a non-empty list of Tensors\n  at {errors.here()}")
    for k, part in enumerate(parts):
        if not isinstance(part, Tensor):
            raise TypeError(
                f"cat: expected Tensor as element {k} in argument 0, but got "
                f"{type(part).__name__}\n  at {errors.here()}"
            )
    rank = max(p.ndim for p in parts)
    if any(not p.ndim for p in parts):
        raise RuntimeError(
            f"cat: zero-dimensional tensor (at position "
            f"{next(k for k, p in enumerate(parts) if not p.ndim)}) cannot be concatenated; use "
            f"stack()\n  at {errors.here()}"
        )
    return cat_op(*parts, dim=api.wrap_dim(dim, rank))


api.alias("cat", "concat", "concatenate")

stack_op = linear(
    "stack",
    lambda *parts, dim: np.stack(parts, dim),
    joint=lambda g, needs, dim: tuple(
        select_op(g, dim=dim, index=i) if need else None for i, need in enumerate(needs)
    ),
    names=(),
    promote="same",
    variadic=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(2, 3)), {"dim": 1})],
)


@api.top(out=True)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
    parts = tuple(tensors)
    if not parts:
        raise RuntimeError(f"stack expects a non-empty TensorList\n  at {errors.here()}")
    first = parts[0].shape
    for k, part in enumerate(parts):
        if part.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(first)} at entry 0 "
                f"and {list(part.shape)} at entry {k}\n  at {errors.here()}"
            )
    return stack_op(*parts, dim=api.wrap_dim(dim, len(first) + 1))


# --- diagonal, unfold, as_strided, real and imaginary parts ----------------------------


def _diagonal_place(g: np.ndarray, shape: Any, offset: int, dim1: int, dim2: int) -> np.ndarray:
    out = np.zeros(shape, g.dtype)
    _writable(out.diagonal(offset, dim1, dim2))[...] = g
    return out


def _writable(x: np.ndarray) -> np.ndarray:
    if not x.flags.writeable:
        x.flags.writeable = True
    return x


diagonal_op = linear(
    "diagonal",
    lambda x, offset, dim1, dim2: _writable_like(x, x.diagonal(offset, dim1, dim2)),
    lambda g, x_shape, offset, dim1, dim2: diagonal_place_op(
        g, shape=x_shape, offset=offset, dim1=dim1, dim2=dim2
    ),
    view=True,
    samples=lambda m: [Sample((m.real(3, 4, 2),), {"offset": 1, "dim1": 0, "dim2": 1})],
)
diagonal_place_op = linear(
    "diagonal_place",
    _diagonal_place,
    lambda g, offset, dim1, dim2: diagonal_op(g, offset=offset, dim1=dim1, dim2=dim2),
    grad_name="DiagEmbedBackward",
    samples=lambda m: [
        Sample((m.real(2, 3),), {"shape": (3, 4, 2), "offset": 1, "dim1": 0, "dim2": 1})
    ],
)


def _writable_like(owner: np.ndarray, x: np.ndarray) -> np.ndarray:
    return _writable(x) if owner.flags.writeable else x


@api.both
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of the matrices in two dimensions, as a last dimension."""
    rank = input.ndim
    first, second = api.wrap_dim(dim1, rank), api.wrap_dim(dim2, rank)
    if first == second:
        raise RuntimeError(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}\n  at {errors.here()}"
        )
    return diagonal_op(input, offset=offset, dim1=first, dim2=second)


def _unfold(x: np.ndarray, dim: int, size: int, step: int) -> np.ndarray:
    if not x.ndim:
        return strided(x, (size,), (x.itemsize,))
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return strided(x, shape, strides)


def _unfold_back(g: np.ndarray, shape: Any, dim: int, size: int, step: int) -> np.ndarray:
    out = np.zeros(shape, g.dtype)
    if not shape:
        return out + g.sum()
    windows = _unfold(out, dim, size, step)
    for k in range(size):  # windows overlap: add one position of all of them at a time
        windows[..., k] += g[..., k]
    return out


unfold_op = linear(
    "unfold",
    _unfold,
    lambda g, x_shape, dim, size, step: unfold_back_op(
        g, shape=x_shape, dim=dim, size=size, step=step
    ),
    view=True,
    samples=lambda m: [Sample((m.real(5, 2),), {"dim": 0, "size": 3, "step": 1})],
)
unfold_back_op = linear(
    "unfold_backward",
    _unfold_back,
    lambda g, dim, size, step: unfold_op(g, dim=dim, size=size, step=step),
    samples=lambda m: [
        Sample((m.real(3, 2, 3),), {"shape": (5, 2), "dim": 0, "size": 3, "step": 1})
    ],
)


@api.method
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along a dimension, as a last dimension; overlapping ones share memory."""
    d = api.wrap_dim(dimension, self.ndim)
    length = self._a.shape[d] if self.ndim else 1
    if size > length or size < 0 or step <= 0:
        raise RuntimeError(
            f"unfold: maximum size for tensor at dimension {d} is {length} but size is {size}, "
            f"step is {step}\n  at {errors.here()}"
        )
    return unfold_op(self, dim=d, size=size, step=step)


def _as_strided(x: np.ndarray, size: Any, stride: Any, storage_offset: int | None) -> np.ndarray:
    owner = x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    start = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    if storage_offset is not None:
        start = storage_offset * x.itemsize
    last = start + sum((n - 1) * s * x.itemsize for n, s in zip(size, stride, strict=True))
    if 0 not in size and last + x.itemsize > owner.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset "
            f"{start // x.itemsize} are out of bounds for storage of size {owner.nbytes}"
        )
    flat = np.lib.stride_tricks.as_strided(owner, (owner.nbytes // x.itemsize,), (x.itemsize,))
    begin = flat.view(x.dtype)[start // x.itemsize :] if owner.dtype != x.dtype else (
        flat[start // x.itemsize :]
    )
    return np.lib.stride_tricks.as_strided(begin, size, tuple(s * x.itemsize for s in stride))


def strided_places(size: Any, stride: Any, offset: int) -> np.ndarray:
    """For each element of a strided view, its place in memory."""
    places = np.full(size, offset, np.int64)
    for dim, (n, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * s).reshape((n,) + (1,) * (len(size) - dim - 1))
    return places


def _as_strided_back(
    g: np.ndarray, shape: Any, layout: Any, size: Any, stride: Any, offset: int
) -> np.ndarray:
    places = strided_places(size, stride, offset)
    own = strided_places(shape, layout, 0)
    span = int(max(places.max(initial=-1), own.max(initial=-1))) + 1
    memory = np.zeros(span, g.dtype)
    np.add.at(memory, places.ravel(), g.ravel())
    # An input that itself overlaps shares each place's gradient among its elements.
    counts = np.zeros(span, np.int64)
    np.add.at(counts, own.ravel(), 1)
    return (memory[own] / counts[own]).astype(g.dtype) if own.size else np.zeros(shape, g.dtype)


as_strided_op = linear(
    "as_strided",
    lambda x, size, stride, storage_offset, layout: _as_strided(x, size, stride, storage_offset),
    lambda g, x_shape, size, stride, storage_offset, layout: as_strided_back_op(
        g, shape=x_shape, layout=layout[0], size=size, stride=stride,
        offset=(layout[1] if storage_offset is None else storage_offset) - layout[1],
    ),
    view=True,
    samples=lambda m: [
        Sample(
            (m.real(4, 3),),
            {"size": (2, 2), "stride": (3, 2), "storage_offset": 1, "layout": ((3, 1), 0)},
        )
    ],
)


def _as_strided_again(g: Any, shape: Any, layout: Any, size: Any, stride: Any, offset: int) -> Any:
    places = strided_places(size, stride, offset)
    own = strided_places(shape, layout, 0)
    span = int(max(places.max(initial=-1), own.max(initial=-1))) + 1
    flat = np.full(span, -1, np.int64)
    flat[own.ravel()] = np.arange(own.size)
    return take_flat_op(g, places=flat[places])


as_strided_back_op = linear(
    "as_strided_backward",
    _as_strided_back,
    _as_strided_again,
    samples=lambda m: [
        Sample(
            (m.real(2, 2),),
            {"shape": (4, 3), "layout": (3, 1), "size": (2, 2), "stride": (3, 2), "offset": 1},
        )
    ],
)


def _take_flat(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    taken = x.reshape(-1)[places]
    return np.where(places < 0, np.zeros((), x.dtype), taken)


def _put_flat(g: np.ndarray, shape: Any, places: np.ndarray) -> np.ndarray:
    out = np.zeros(int(np.prod(shape)), g.dtype)
    seen = places >= 0
    np.add.at(out, places[seen], g[seen])
    return out.reshape(shape)


take_flat_op = linear(
    "take_flat",
    _take_flat,
    lambda g, x_shape, places: put_flat_op(g, shape=x_shape, places=places),
    grad_name="TakeBackward",
    samples=lambda m: [Sample((m.real(2, 3),), {"places": np.array([[0, 5], [-1, 5]])})],
)
put_flat_op = linear(
    "put_flat",
    _put_flat,
    lambda g, places: take_flat_op(g, places=places),
    grad_name="PutBackward",
    samples=lambda m: [
        Sample((m.real(2, 2),), {"shape": (2, 3), "places": np.array([[0, 5], [-1, 5]])})
    ],
)


@api.both
def as_strided(
    input: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """A view by explicit sizes and strides into the storage."""
    layout = (input.stride(), input.storage_offset())
    return as_strided_op(
        input, size=api.shape_argument((size,)), stride=api.shape_argument((stride,)),
        storage_offset=storage_offset, layout=layout,
    )


real_op = linear(
    "real",
    lambda x: x.real,
    lambda g, x_dtype: _to_complex(g, x_dtype),
    view=True,
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),))],
)
imag_op = linear(
    "imag",
    lambda x: x.imag,
    lambda g, x_dtype: _to_complex(g, x_dtype, 1j),
    view=True,
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),))],
)


def _to_complex(g: Any, wanted: np.dtype, unit: complex = 1.0) -> Any:
    if isinstance(g, Tensor):
        return g * wrap(np.asarray(unit, wanted))
    return (g * wanted.type(unit)).astype(wanted)


@api.top
def real(input: Tensor) -> Tensor:
    """The real part, as a view."""
    return real_op(input) if input.is_complex() else input


@api.top
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
    if not input.is_complex():
        raise RuntimeError(
            f"imag is not implemented for tensors with non-complex dtypes ({input.dtype}).\n"
            f"  at {errors.here()}"
        )
    return imag_op(input)


def _set_part(part: Any) -> Any:
    def setter(self: Tensor, value: Any) -> None:
        part(self).copy_(value if isinstance(value, Tensor) else wrap(np.asarray(value)))

    return setter


Tensor.real = property(real, _set_part(real))  # type: ignore[attr-defined]
Tensor.imag = property(imag, _set_part(imag))  # type: ignore[attr-defined]

view_as_real_op = linear(
    "view_as_real",
    lambda x: x.view(x.real.dtype).reshape(*x.shape, 2) if x.flags.c_contiguous else np.stack(
        (x.real, x.imag), -1
    ),
    lambda g: view_as_complex_op(g),
    view=True,
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),))],
)


def _view_as_complex(x: np.ndarray) -> np.ndarray:
    if x.strides[-1] != x.itemsize or any(s % (2 * x.itemsize) for s in x.strides[:-1]):
        x = np.ascontiguousarray(x)
    kind = np.complex64 if x.dtype == np.float32 else np.complex128
    return np.lib.stride_tricks.as_strided(x.view(kind) if x.flags.c_contiguous else x.view(kind),
                                           x.shape[:-1], x.strides[:-1])


view_as_complex_op = linear(
    "view_as_complex",
    _view_as_complex,
    lambda g: view_as_real_op(g),
    view=True,
    samples=lambda m: [Sample((m.real(3, 2),))],
)
api.top(lambda input: view_as_real_op(input), name="view_as_real")
api.top(lambda input: view_as_complex_op(input), name="view_as_complex")

# --- the base of a view that was changed in place --------------------------------------


def empty_in_layout(shape: Any, d: np.dtype, strides: Any) -> np.ndarray:
    """A new array whose dimensions lie in memory in the order that the strides say."""
    order = sorted(range(len(shape)), key=lambda i: (-abs(strides[i]), i))
    made = np.empty([shape[i] for i in order], d)
    return made.transpose(np.argsort(order)) if order else made


def _copy_slices(base: np.ndarray, part: Any, chain: Any, strides: Any = None) -> np.ndarray:
    out = empty_in_layout(base.shape, base.dtype, strides or base.strides)
    out[...] = base
    follow(out, chain)[...] = part
    return out


copy_slices_op = linear(
    "copy_slices",
    _copy_slices,
    lambda g, part_shape, chain: copy_slices_op(g, zeros_of(g, part_shape), chain=chain),
    lambda g, chain: follow(g, chain),
    names=("base", "part"),
    grad_name="CopySlices",
    single_use=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(3)), {"chain": (select_op, (), {"dim": 0, "index": 1}, 0,
                                                     None, True)})
    ],
)

# --- in place: another shape for the same tensor ---------------------------------------


def _in_place_view(name: str, function: Any) -> None:
    def change(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen = function(self, *args, **kwargs)
        if not isinstance(self._node, type(None)) and self.is_leaf:
            raise RuntimeError(
                f"{name}: a leaf Variable that requires grad is being used in an in-place "
                f"operation.\n  at {errors.here()}"
            )
        self._a, self._node = seen._a, seen._node
        self._vc[0] += 1
        if self._base is not None:
            self._view, self._stamp = seen._view, self._vc[0]
        return self

    change.__name__ = name
    setattr(Tensor, name, change)


for _name, _function in (
    ("squeeze_", squeeze), ("unsqueeze_", unsqueeze), ("transpose_", transpose), ("t_", t),
    ("swapaxes_", transpose), ("swapdims_", transpose),
):
    _in_place_view(_name, _function)


@api.method
def as_strided_(self: Tensor, size: Any, stride: Any, storage_offset: Any = None) -> Tensor:
    """Take another geometry on the same storage."""
    self._a = as_strided(self, size, stride, storage_offset)._a
    return self
