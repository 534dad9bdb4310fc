"""Elements in another order or place: flips, repeats, triangles, diagonals, stacks, splits."""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import BatchedCall, aligned, each, values_of
from weft.core.devices import host, taken
from weft.core.dispatch import Op, apply
from weft.core.meta import filled, lacks_values, no_values
from weft.core.shapes import ShapeDtype
from weft.core.size import Size
from weft.core.tensor import Tensor, beside, wrap
from weft.core.viewing import follow
from weft.operators import api, batch_rules, shape_rules
from weft.operators import strided as st
from weft.operators import views as v
from weft.operators.build import Sample, constant, linear
from weft.operators.casting import clone_op, contiguous_format
from weft.operators.gather import outside
from weft.operators.padding import pad as pad  # other families find it here
from weft.operators.reductions import sum_op
from weft.operators.views import fail, reshape_op, slice_op, zeros_of

FULL = slice(None)


# --- flip, roll, rot90 -----------------------------------------------------------------

flip_op: Op = linear(
    "flip",
    lambda x, dims: np.flip(x, dims).copy(),
    lambda g, dims: flip_op(g, dims=dims),
    layout="operands",
    samples=lambda m: [
        Sample((m.real(2, 3, 2),), {"dims": (0, 2)}),
        Sample((m.real(),), {"dims": ()}),
    ],
    shape=shape_rules.same,
    batch=batch_rules.along,
)


@api.method
def flip(input: Tensor, *axes: Any, dims: Any = None) -> Tensor:
    """The order of elements reversed along some dimensions."""
    if not axes and dims is None:
        raise fail(TypeError, 'flip() missing 1 required positional arguments: "dims"')
    found = api.dims(api.shape_argument(axes if dims is None else (dims,)), input._a.ndim)
    return flip_op(input, dims=found if input._a.ndim else ())


@api.top(name="flip")
def _flip(input: Tensor, dims: Any) -> Tensor:
    """The order of elements reversed along some dimensions."""
    if not isinstance(dims, (tuple, list)):
        kind = type(dims).__name__
        raise fail(
            TypeError, f"flip(): argument 'dims' (position 2) must be tuple of ints, not {kind}"
        )
    return flip(input, tuple(dims))


@api.both
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order."""
    if input._a.ndim < 2:
        raise fail(RuntimeError, "Input must be >= 2-d.")
    return flip_op(input, dims=(1,))


@api.both
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order."""
    if input._a.ndim < 1:
        raise fail(RuntimeError, "Input must be >= 1-d.")
    return flip_op(input, dims=(0,))


roll_op: Op = linear(
    "roll",
    lambda x, shifts, dims: np.roll(x, shifts, dims) if dims else np.roll(x, shifts[0]),
    lambda g, shifts, dims: roll_op(g, shifts=tuple(-s for s in shifts), dims=dims),
    samples=lambda m: [
        Sample((m.real(4, 3),), {"shifts": (1, -5), "dims": (0, 1)}),
        Sample((m.real(0, 3),), {"shifts": (1,), "dims": (0,)}),
        Sample((m.real(2, 3),), {"shifts": (1,), "dims": ()}),
    ],
    layout="rows or last",
    shape=shape_rules.same,
    # Without dimensions all elements go round as one row.
    batch=lambda b: batch_rules.along(b) if b.attrs["dims"] else each(b),
)


def _ints(value: Any, function: str, argument: str) -> tuple[int, ...]:
    given = value if isinstance(value, (tuple, list)) else (value,)
    return tuple(api.whole(i, function, argument) for i in given)


@api.both
def roll(input: Tensor, shifts: Any, dims: Any = None) -> Tensor:
    """Elements moved along dimensions; those that leave at one end enter at the other."""
    moves = _ints(shifts, "roll", "shifts")
    if dims is None or api.no_dims(dims):
        if len(moves) != 1:
            raise fail(
                RuntimeError, f"shifts and dimensions must align. shifts: {len(moves)}, dims:0"
            )
        return roll_op(input, shifts=moves, dims=())
    given = _ints(dims, "roll", "dims")
    if len(moves) != len(given):
        raise fail(
            RuntimeError,
            f"shifts and dimensions must align. shifts: {len(moves)}, dims:{len(given)}",
        )
    rank = input._a.ndim
    if not rank:
        raise fail(IndexError, "Dimension specified as 0 but tensor has no dimensions")
    return roll_op(input, shifts=moves, dims=tuple(api.wrap_dim(d, rank) for d in given))


@api.both
def rot90(input: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Quarter turns in the plane of two dimensions."""
    rank = input._a.ndim
    if len(dims) != 2:
        raise fail(RuntimeError, f"expected total rotation dims == 2, but got dims = {len(dims)}")
    if rank < 2:
        raise fail(RuntimeError, f"expected total dims >= 2, but got total dims = {rank}")
    first, second = (api.wrap_dim(d, rank) for d in dims)
    if first == second:
        raise fail(RuntimeError, f"expected rotation dims to be different, but got {dims}")
    turns = k % 4
    if turns == 0:
        return clone_op(input, memory_format=None)
    if turns == 2:
        return flip_op(input, dims=(first, second))
    if turns == 1:
        return flip_op(input, dims=(second,)).transpose(first, second).clone()
    return flip_op(input, dims=(first,)).transpose(first, second).clone()


# --- repeats ---------------------------------------------------------------------------


def _repeat_back(g: Any, x_shape: Any, repeats: Any) -> Any:
    lead = len(repeats) - len(x_shape)
    shape: tuple[int, ...] = tuple(repeats[:lead])
    summed = list(range(lead))
    for times, n in zip(repeats[lead:], x_shape, strict=True):
        summed.append(len(shape))
        shape += (times, n)
    if not summed:
        return g
    return sum_op(reshape_op(g, shape=shape), dim=tuple(summed), keepdim=False)


def _repeat(x: np.ndarray, repeats: tuple[int, ...]) -> np.ndarray:
    out = np.tile(x, repeats)
    return out.copy() if out.base is not None or out is x else out


def _repeated_shape(x: ShapeDtype, repeats: tuple[int, ...]) -> Any:
    rank = max(x.ndim, len(repeats))
    sizes = (*(1,) * (rank - x.ndim), *x.shape)
    return tuple(
        n * r for n, r in zip(sizes, (*(1,) * (rank - len(repeats)), *repeats), strict=True)
    )


def _repeat_batch(b: BatchedCall) -> Any:
    repeats = b.attrs["repeats"]
    return b.run(aligned(b.args[0], len(repeats)), repeats=(1, *repeats))


repeat_op = linear(
    "repeat",
    _repeat,
    _repeat_back,
    samples=lambda m: [
        Sample((m.real(2, 3),), {"repeats": (2, 1, 3)}),
        Sample((m.real(2),), {"repeats": (0,)}),
        Sample((m.real(),), {"repeats": ()}),
    ],
    shape=_repeated_shape,
    batch=_repeat_batch,
)


@api.method
def repeat(self: Tensor, *repeats: Any) -> Tensor:
    """Copies side by side, so many along each dimension.

    >>> torch.tensor([1, 2]).repeat(2, 2)
    tensor([[1, 2, 1, 2],
            [1, 2, 1, 2]])
    """
    times = api.shape_argument(repeats)
    if len(times) < self._a.ndim:
        raise fail(
            RuntimeError,
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor: {len(times)} < {self._a.ndim}",
        )
    if any(t < 0 for t in times):
        raise fail(RuntimeError, f"repeat: negative counts are not allowed, got {list(times)}")
    return repeat_op(self, repeats=times)


@api.top(name="tile")
def _tile(input: Tensor, dims: Any) -> Tensor:
    """Copies side by side; missing counts in front are one."""
    return tile(input, *_ints(dims, "tile", "dims"))


@api.method
def tile(self: Tensor, *dims: Any) -> Tensor:
    """Copies side by side; missing counts in front are one."""
    times = api.shape_argument(dims)
    return repeat(self, (1,) * (self._a.ndim - len(times)) + times)


@api.both
def repeat_interleave(
    input: Any, repeats: Any = None, dim: int | None = None, *, output_size: int | None = None
) -> Tensor:
    """Each element (or slice along a dimension) repeated in place.

    >>> torch.tensor([1, 2]).repeat_interleave(2)
    tensor([1, 1, 2, 2])
    >>> torch.repeat_interleave(torch.tensor([1, 2]), torch.tensor([1, 3]))
    tensor([1, 2, 2, 2])
    """
    if repeats is None:
        _check_repeats(input, 1)
        if lacks_values(input):
            raise no_values("repeat_interleave")
        each = taken(input)
        return beside(input, np.repeat(np.arange(each.size), each).astype(each.dtype))
    if dim is None:
        input, dim = reshape_op(input, shape=(input._a.size,)), 0
    d = api.wrap_dim(dim, input._a.ndim)
    size = input._a.shape[d] if input._a.ndim else 1
    if isinstance(repeats, Tensor):
        _check_repeats(repeats, None)
        counts: Any = repeats if lacks_values(repeats) else taken(repeats).reshape(-1)
        given = repeats._a.size
        if given not in (1, size):
            raise fail(
                RuntimeError,
                f"repeats must have the same size as input along dim, but got repeats.size(0) = "
                f"{given} and input.size({d}) = {size}",
            )
    else:
        counts = np.asarray(api.whole(repeats, "repeat_interleave", "repeats"))
        if counts < 0:
            raise fail(RuntimeError, "Repeats must be non-negative")
    source = input if input._a.ndim else reshape_op(input, shape=(1,))
    if lacks_values(counts):
        if output_size is None:
            raise no_values("repeat_interleave")
        return source.index_select(d, beside(source, np.empty(output_size, np.int64)))
    rows = np.repeat(np.arange(size), counts)
    if output_size is not None and output_size != rows.size:
        raise fail(
            RuntimeError,
            f"repeat_interleave: output_size {output_size} does not match the sum of repeats "
            f"{rows.size}",
        )
    return source.index_select(d, beside(source, rows))


def _check_repeats(repeats: Tensor, rank: int | None) -> None:
    array = repeats._a
    if array.dtype not in (np.int64, np.int32):
        raise fail(RuntimeError, "repeats has to be Long or Int tensor")
    if array.ndim > 1 or (rank is not None and array.ndim != rank):
        raise fail(
            RuntimeError, "repeat_interleave only accept 1D vector or 0-dim tensor as repeat"
        )
    if array.size and not lacks_values(array) and int(host(repeats).min()) < 0:
        raise fail(RuntimeError, "repeats can not be negative")


# --- triangles and diagonals -----------------------------------------------------------


def _triangle(name: str, function: Any, doc: str) -> None:
    op = linear(
        name,
        lambda x, diagonal: function(x, diagonal),
        lambda g, diagonal: op(g, diagonal=diagonal),
        samples=lambda m: [
            Sample((m.real(2, 3, 4),), {"diagonal": 1}),
            Sample((m.real(3, 2),), {"diagonal": -1}),
        ],
        rows=True,
        shape=shape_rules.same,
        batch=batch_rules.leading,
    )

    def triangle(input: Tensor, diagonal: int = 0) -> Tensor:
        if input._a.ndim < 2:
            raise fail(RuntimeError, f"{name}: input tensor must have at least 2 dimensions")
        return op(input, diagonal=int(diagonal))

    triangle.__name__ = triangle.__qualname__ = name
    triangle.__doc__ = inspect.cleandoc(doc)
    api.both(triangle, out=True)
    api.inplace(name + "_", triangle)


_triangle(
    "tril",
    np.tril,
    """The lower triangle; zeros elsewhere.

    >>> torch.tril(torch.ones(3, 3))
    tensor([[1., 0., 0.],
            [1., 1., 0.],
            [1., 1., 1.]])
    """,
)
_triangle(
    "triu",
    np.triu,
    """The upper triangle; zeros elsewhere.

    >>> torch.triu(torch.ones(3, 3), diagonal=1)
    tensor([[0., 1., 1.],
            [0., 0., 1.],
            [0., 0., 0.]])
    """,
)


@api.both
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension spread over a diagonal of two new ones."""
    rank = input._a.ndim + 1
    first, second = api.wrap_dim(dim1, rank), api.wrap_dim(dim2, rank)
    if first == second:
        raise fail(RuntimeError, f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    size = input._a.shape[-1] + abs(int(offset))
    shape = list(input._a.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    return v.diagonal_place_op(
        input, shape=tuple(shape), offset=int(offset), dim1=first, dim2=second
    )


@api.both(out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A matrix with a vector on its diagonal, or the diagonal of a matrix."""
    rank = input._a.ndim
    if rank == 1:
        return diag_embed(input, diagonal)
    if rank != 2:
        raise fail(RuntimeError, f"diag(): Supports 1D or 2D tensors. Got {rank}D")
    return v.diagonal(input, diagonal).clone()


@api.both
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with the flattened tensor on its diagonal."""
    return diag_embed(input.reshape(-1), offset)


def _corners(shapes: Any) -> list[tuple[int, int]]:
    found, row, column = [], 0, 0
    for rows, columns in shapes:
        found.append((row, column))
        row, column = row + rows, column + columns
    return found


def _block_diag(*blocks: np.ndarray) -> np.ndarray:
    shapes = [b.shape for b in blocks]
    out = np.zeros((sum(s[0] for s in shapes), sum(s[1] for s in shapes)), blocks[0].dtype)
    for block, (i, j) in zip(blocks, _corners(shapes), strict=True):
        out[i : i + block.shape[0], j : j + block.shape[1]] = block
    return out


def _block_diag_rule(g: Any, needs: Any, shapes: Any) -> tuple[Any, ...]:
    return tuple(
        slice_op(g, index=(slice(i, i + m), slice(j, j + n))) if need else None
        for need, (m, n), (i, j) in zip(needs, shapes, _corners(shapes), strict=True)
    )


block_diag_op = linear(
    "block_diag",
    _block_diag,
    joint=_block_diag_rule,
    names=(),
    promote="same",
    variadic=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(1, 1), m.real(0, 2), m.real(2, 1)))],
    shape=lambda inputs: tuple(sum(x.shape[d] for x in inputs) for d in (0, 1)),
)


@api.top
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one."""
    blocks = []
    for k, block in enumerate(tensors):
        if block._a.ndim > 2:
            raise fail(
                RuntimeError,
                "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input "
                f"{k} has {block._a.ndim} dimensions",
            )
        missing = (1,) * (2 - block._a.ndim)
        blocks.append(reshape_op(block, shape=missing + block._a.shape) if missing else block)
    return block_diag_op(*blocks) if blocks else wrap(np.zeros((1, 0), dt.get_default_dtype().np))


# --- grids and products ----------------------------------------------------------------


def _tensors(given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """``f(a, b)`` and ``f([a, b])`` alike."""
    if len(given) == 1 and isinstance(given[0], (tuple, list)):
        return tuple(given[0])
    return given


@api.top
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of all combinations of the elements of some vectors.

    >>> rows, columns = torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij")
    >>> rows
    tensor([[0, 0, 0],
            [1, 1, 1]])
    >>> columns
    tensor([[0, 1, 2],
            [0, 1, 2]])
    """
    given = _tensors(tensors)
    if not given:
        raise fail(RuntimeError, "meshgrid expects a non-empty TensorList")
    if any(t._a.ndim > 1 for t in given):
        raise fail(RuntimeError, "torch.meshgrid: expected scalar or 1D tensors")
    if any(t._a.dtype != given[0]._a.dtype for t in given):
        raise fail(RuntimeError, "torch.meshgrid expects all tensors to have the same dtype")
    if indexing not in (None, "ij", "xy"):
        raise fail(
            RuntimeError,
            'torch.meshgrid: indexing must be one of "xy" or "ij", but received: ' + str(indexing),
        )
    if indexing is None:
        errors.warn_once(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument; say indexing='ij' for what you get now."
        )
    swap = indexing == "xy" and len(given) > 1
    if swap:
        given = (given[1], given[0], *given[2:])
    shape = tuple(t._a.size for t in given)
    rank = len(shape)
    grids = [
        v.view(t, (1,) * d + (t._a.size,) + (1,) * (rank - d - 1)).expand(shape)
        for d, t in enumerate(given)
    ]
    if swap:
        grids[0], grids[1] = grids[1], grids[0]
    return tuple(grids)


@api.top
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of some vectors, one in each row."""
    if any(t._a.ndim != 1 for t in tensors):
        raise fail(RuntimeError, "Expect a 1D vector")
    if len(tensors) == 1:
        return tensors[0]
    grids = meshgrid(*tensors, indexing="ij")
    return v.stack([g.reshape(-1) for g in grids], 1)


@api.both
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, one in each row."""
    if input._a.ndim != 1:
        raise fail(RuntimeError, f"Expect a 1D vector, but got shape {list(input._a.shape)}")
    if r < 0:
        raise fail(RuntimeError, f"Expect a non-negative number, but got {r}")
    if r == 0:
        return wrap(filled(np.empty, (0,), input._a.dtype))
    size = input._a.size
    count = math.comb(max(size + r - 1, 0), r) if with_replacement else math.comb(size, r)
    try:
        rows = np.empty((count, r), np.int64)
    except (ValueError, MemoryError):
        raise fail(
            RuntimeError,
            f"combinations: {count} choices of {r} of {size} elements do not fit into memory",
        ) from None
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    numbers = itertools.chain.from_iterable(choose(range(size), r))
    rows.reshape(-1)[:] = np.fromiter(numbers, np.int64, count * r)
    return input[wrap(rows)]


# --- broadcasting and ranks ------------------------------------------------------------


@api.top
def broadcast_shapes(*shapes: Any) -> Size:
    """The shape that some shapes broadcast to."""
    for s in shapes:
        if not isinstance(s, (int, np.integer, tuple, list)):
            raise fail(
                RuntimeError,
                "Input shapes should be of type ints, a tuple of ints, or a list of ints, got "
                f"{s!r}",
            )
    given = [tuple(s) if isinstance(s, (tuple, list)) else (s,) for s in shapes]
    if any(n < 0 for s in given for n in s):
        raise fail(ValueError, f"Attempting to broadcast a dimension with negative length: {given}")
    try:
        return Size(np.broadcast_shapes(*given))
    except ValueError:
        raise fail(
            RuntimeError,
            "Shape mismatch: objects cannot be broadcast to a single shape: "
            + ", ".join(str(list(s)) for s in given),
        ) from None


@api.top
def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
    given = _tensors(tensors)
    shape = broadcast_shapes(*(t._a.shape for t in given))
    return tuple(v.expand(t, shape) for t in given)


def _at_least(name: str, raise_rank: Any) -> Any:
    def at_least(*tensors: Any) -> Any:
        if len(tensors) == 1 and isinstance(tensors[0], Tensor):
            return raise_rank(tensors[0])
        return tuple(raise_rank(t) for t in _tensors(tensors))

    at_least.__name__ = at_least.__qualname__ = name
    at_least.__doc__ = f"Tensors with dimensions of length one added up to {name[-2:]}."
    return api.top(at_least)


atleast_1d = _at_least("atleast_1d", lambda x: x if x._a.ndim else v.view(x, 1))


def _two(x: Tensor) -> Tensor:
    if x._a.ndim >= 2:
        return x
    return x.unsqueeze(0) if x._a.ndim else v.view(x, 1, 1)


def _three(x: Tensor) -> Tensor:
    return x if x._a.ndim >= 3 else _two(x).unsqueeze(-1)


atleast_2d = _at_least("atleast_2d", _two)
atleast_3d = _at_least("atleast_3d", _three)


def _stacker(name: str, prepare: Any, dim: Any) -> Any:
    def stacker(tensors: Any) -> Tensor:
        v.need_several(name, tensors)
        parts = [prepare(t) for t in tensors]
        if not parts:
            raise fail(RuntimeError, f"{name} expects a non-empty TensorList")
        return v.cat(parts, dim(parts))

    stacker.__name__ = stacker.__qualname__ = name
    stacker.__doc__ = f"Tensors joined as ``{name}`` does in NumPy."
    return api.top(stacker, out=True)


def _column(x: Tensor) -> Tensor:
    return x if x._a.ndim > 1 else reshape_op(x, shape=(x._a.size, 1))


hstack = _stacker(
    "hstack",
    lambda x: x if x._a.ndim else v.view(x, 1),
    lambda parts: 0 if parts[0]._a.ndim == 1 else 1,
)
vstack = _stacker("vstack", _two, lambda parts: 0)
dstack = _stacker("dstack", _three, lambda parts: 2)
column_stack = _stacker("column_stack", _column, lambda parts: 1)
api.alias("vstack", "row_stack")

# --- splits ----------------------------------------------------------------------------


@api.both
def tensor_split(
    input: Tensor,
    indices_or_sections: Any = None,
    dim: int = 0,
    *,
    sections: Any = None,
    indices: Any = None,
    tensor_indices_or_sections: Any = None,
) -> tuple[Tensor, ...]:
    """Parts along a dimension: so many, or cut at the indices given."""
    cuts = indices_or_sections
    for other in (sections, indices, tensor_indices_or_sections):
        cuts = other if cuts is None else cuts
    if not input._a.ndim:
        raise fail(
            RuntimeError,
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
        )
    d = api.wrap_dim(dim, input._a.ndim)
    size = input._a.shape[d]
    if isinstance(cuts, Tensor):
        problem = ""
        if cuts._a.ndim > 1:
            problem = "be a zero-dimensional or one-dimensional tensor, but got a tensor with "
            problem += f"{cuts._a.ndim} dims"
        elif cuts._a.dtype != np.int64:
            problem = f"have dtype of long, but got {dt.TYPE_NAMES[cuts.dtype.name]}"
        if problem:
            raise fail(
                RuntimeError, f"tensor_split expected tensor_indices_or_sections to {problem}"
            )
        cuts = taken(cuts).tolist()
    if isinstance(cuts, str):
        raise fail(TypeError, "tensor_split(): sections or indices must be ints, not str")
    if isinstance(cuts, (int, np.integer)):
        if cuts <= 0:
            raise fail(RuntimeError, f"number of sections must be larger than 0, got {cuts}")
        short, longer = divmod(size, int(cuts))
        cuts = [k * short + min(k, longer) for k in range(1, int(cuts))]
    at = [0, *(slice(int(c)).indices(size)[1] for c in cuts)]
    ends = [*at[1:], size]
    lead = (FULL,) * d
    return tuple(
        slice_op(input, index=(*lead, slice(a, max(a, b)))) for a, b in zip(at, ends, strict=True)
    )


def _splitter(name: str, rank: int, dim: Any) -> Any:
    def splitter(
        input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None
    ) -> tuple[Tensor, ...]:
        cuts = indices_or_sections
        for other in (indices, sections):
            cuts = other if cuts is None else cuts
        if input._a.ndim < rank:
            raise fail(
                RuntimeError,
                f"torch.{name} requires a tensor with at least {rank} dimension, but got a "
                f"tensor with {input._a.ndim} dimensions!",
            )
        if isinstance(cuts, str):
            raise fail(
                TypeError, f"torch.{name} cuts at an int or a sequence of ints, not {cuts!r}"
            )
        d = dim(input._a.ndim)
        if isinstance(cuts, int) and (cuts <= 0 or input._a.shape[d] % cuts):
            raise fail(
                RuntimeError,
                f"torch.{name} attempted to split along dimension {d}, but the size of the "
                f"dimension {input._a.shape[d]} is not divisible by the split_size {cuts}!",
            )
        return tensor_split(input, cuts, d)

    splitter.__name__ = splitter.__qualname__ = name
    splitter.__doc__ = f"Parts along a dimension, as ``{name}`` does in NumPy."
    return api.both(splitter)


hsplit = _splitter("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
vsplit = _splitter("vsplit", 2, lambda rank: 0)
dsplit = _splitter("dsplit", 3, lambda rank: 2)


def _copied_parts(name: str, kind: str, view_op: Op) -> Op:
    """An op that copies all views which another one gives: one node, as in PyTorch."""
    return linear(
        name,
        lambda x, **attrs: tuple(np.array(p, order="C") for p in view_op.reference(x, **attrs)),
        view_op.rules[0],  # type: ignore[index]
        names=("x",),
        multiple=True,
        variant=lambda attrs, inputs: kind,
        samples=view_op.samples,
        shape=view_op.shape,
        batch=batch_rules.along,
    )


split_copy_op = _copied_parts("split_copy", "SplitBackward0_copy", v.split_op)
unbind_copy_op = _copied_parts("unbind_copy", "UnbindBackward0_copy", v.unbind_op)
unsafe_split_op = _copied_parts("unsafe_split", "UnsafeSplitBackward0", v.split_op)


@api.both
def unsafe_split(tensor: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As ``split``, with parts that may be changed in place: here they are copies."""
    return apply(unsafe_split_op, (tensor,), v.split_attributes(tensor, split_size, dim))


@api.both
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """As ``split_with_sizes``, with parts that may be changed in place."""
    return apply(unsafe_split_op, (input,), v.split_attributes(input, tuple(split_sizes), dim))


@api.both
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As ``chunk``, with parts that may be changed in place."""
    return apply(unsafe_split_op, (input,), v.chunk_attributes(input, chunks, dim))


# --- copies of views, and views put back -----------------------------------------------


def _copy_of(name: str, function: Any) -> None:
    def copied(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return clone_op(function(input, *args, **kwargs), memory_format=contiguous_format)

    copied.__name__ = copied.__qualname__ = f"{name}_copy"
    copied.__doc__ = f"``{name}``, as a copy."
    api.top(copied, out=True)


def _slice(
    input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    d = api.wrap_dim(dim, input._a.ndim)
    return slice_op(input, index=(*(FULL,) * d, slice(start, end, step)))


def _view(input: Tensor, *size: Any) -> Tensor:
    """A copy need not be a view: any shape will do."""
    return (v.view if isinstance(size[0], dt.dtype) else v.reshape)(input, *size)


for _name, _function in (
    *(
        ("alias", lambda input: v.view_as(input, input)),
        ("detach", Tensor.detach),
        ("slice", _slice),
    ),
    *(("as_strided", st.as_strided), ("diagonal", v.diagonal), ("expand", v.expand)),
    *(("permute", v.permute), ("select", v.select), ("squeeze", v.squeeze), ("t", v.t)),
    *(("transpose", v.transpose), ("unfold", v.unfold), ("unsqueeze", v.unsqueeze)),
    ("view", _view),
    *(("view_as_real", lambda input: st.view_as_real_op(input)),),
    *(("view_as_complex", lambda input: st.view_as_complex_op(input)),),
):
    _copy_of(_name, _function)


@api.top(out=True)
def split_copy(input: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """``split``, as copies."""
    return apply(split_copy_op, (input,), v.split_attributes(input, split_size, dim))


@api.top(out=True)
def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """``split_with_sizes``, as copies."""
    return apply(split_copy_op, (input,), v.split_attributes(input, tuple(split_sizes), dim))


@api.top(out=True)
def unbind_copy(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """``unbind``, as copies."""
    attributes = v.unbind_attributes(input, dim)
    return () if attributes is None else apply(unbind_copy_op, (input,), attributes)


@api.both(out=True)
def narrow_copy(input: Tensor, dim: int, start: int, length: int) -> Tensor:
    """``narrow``, as a copy."""
    if isinstance(dim, int) and dim >= input._a.ndim:
        raise fail(RuntimeError, f"Expected dim < {input._a.ndim}, but got {dim}")
    return clone_op(v.narrow(input, dim, start, length), memory_format=contiguous_format)


def _placing(name: str) -> Any:
    """An op that copies its first input and writes a source to a view of the copy."""

    def place(x: np.ndarray, src: np.ndarray, chain: Any) -> np.ndarray:
        return v.copy_slices_op.reference(x, src, chain=chain)

    op = linear(
        name,
        place,
        lambda g, src_shape, chain: op(g, zeros_of(g, src_shape), chain=chain),
        lambda g, chain: follow(g, chain),
        names=("x", "src"),
        together=True,
        samples=lambda m: [Sample((m.real(4, 3), m.real(3)), {"chain": _SAMPLE_CHAIN})],
        shape=shape_rules.preserved,
    )
    return op


_SAMPLE_CHAIN = (v.select_op, (), {"dim": 0, "index": 1}, 0, None, True)
select_scatter_op = _placing("select_scatter")
slice_scatter_op = _placing("slice_scatter")
diagonal_scatter_op = _placing("diagonal_scatter")


def _chain(view: Any, **attrs: Any) -> tuple[Any, ...]:
    return (view, (), attrs, 0, None, True)


def _placed(op: Any, input: Tensor, src: Tensor, chain: Any) -> Tensor:
    seen = follow(input.detach(), chain)
    if seen.shape != src._a.shape:
        raise fail(
            RuntimeError,
            f"{op.name}: expected src to have a size equal to the slice of self. src size = "
            f"{list(src._a.shape)}, slice size = {list(seen.shape)}",
        )
    return op(input, src if src._a.dtype == input._a.dtype else src.to(input.dtype), chain=chain)


@api.both
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one slice along a dimension replaced."""
    v.select(input, dim, index)  # its checks
    d = api.wrap_dim(dim, input._a.ndim)
    chain = _chain(v.select_op, dim=d, index=int(index) % input._a.shape[d])
    return _placed(select_scatter_op, input, src, chain)


@api.both(out=True)
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Tensor:
    """A copy with a slice along a dimension replaced."""
    d = api.wrap_dim(dim, input._a.ndim)
    part = slice(start, end, step)
    return _placed(slice_scatter_op, input, src, _chain(slice_op, index=(*(FULL,) * d, part)))


@api.both
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with a diagonal replaced."""
    rank = input._a.ndim
    dims = {"dim1": api.wrap_dim(dim1, rank), "dim2": api.wrap_dim(dim2, rank)}
    return _placed(diagonal_scatter_op, input, src, _chain(v.diagonal_op, offset=offset, **dims))


@api.both
def as_strided_scatter(
    input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None
) -> Tensor:
    """A copy with the elements of a strided view replaced."""
    seen = st.as_strided(input, size, stride, storage_offset)
    if seen._a.shape != src._a.shape:
        raise fail(
            RuntimeError,
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src._a.shape)}, slice size = {list(seen._a.shape)}",
        )
    places = st.strided_places(seen._a.shape, seen.stride(), seen.storage_offset())
    own = st.strided_places(input._a.shape, input.stride(), input.storage_offset())
    span = int(max(places.max(initial=-1), own.max(initial=-1))) + 1
    writer = np.full(span, -1, np.int64)
    writer[places.reshape(-1)] = np.arange(places.size)
    taken = writer[own]
    from_src = st.take_flat_op(src.to(input.dtype), places=taken)
    return from_src.where(beside(input, taken >= 0), input)


# --- indices as values -----------------------------------------------------------------


def _one_hot(x: np.ndarray, num_classes: int) -> np.ndarray:
    if outside(x, num_classes):
        negative = int(x.min()) < 0
        wanted = "non-negative" if negative else "smaller than num_classes"
        raise RuntimeError(f"Class values must be {wanted}.")
    return (x[..., None] == np.arange(num_classes)).astype(np.int64)


one_hot_op = constant(
    "one_hot",
    _one_hot,
    shape=lambda x, num_classes: ShapeDtype((*x.shape, num_classes), dt.I64),
    batch=batch_rules.leading,
)


@api.under("nn.functional")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """For each index a vector of zeros with a one at its place."""
    if tensor._a.dtype != np.int64:
        raise fail(RuntimeError, "one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes > 0:
        return one_hot_op(tensor, num_classes=num_classes)  # which looks at the values
    array = values_of(tensor)
    if not array.size:
        raise fail(RuntimeError, "Can not infer total number of classes from empty tensor.")
    if num_classes == -1 and (highest := int(array.max())) >= 0:
        return one_hot_op(tensor, num_classes=highest + 1)
    if int(array.min()) < 0:
        raise fail(RuntimeError, "Class values must be non-negative.")
    raise fail(RuntimeError, "num_classes should be positive")


@api.top
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one index for each dimension of a shape."""
    if not isinstance(indices, Tensor):
        raise fail(TypeError, "torch.unravel_index() expects 'indices' to be a Tensor")
    if indices._a.dtype.kind not in "iu":
        raise fail(TypeError, f"expected 'indices' to be integer dtype, but got {indices.dtype!r}")
    if not isinstance(shape, (tuple, list, int, np.integer)):
        raise fail(
            TypeError,
            f"expected 'shape' to be int or sequence of ints, but got {type(shape)}",
        )
    for size in shape if isinstance(shape, (tuple, list)) else ():
        if not isinstance(size, (int, np.integer)):
            raise fail(
                TypeError, f"expected 'shape' sequence to only contain ints, but got {type(size)}"
            )
    sizes = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(s) for s in shape)
    if any(s < 0 for s in sizes):
        raise fail(ValueError, f"'shape' cannot have negative values, but got {sizes}")
    found, rest = [], indices.to(dt.int64)
    for size in reversed(sizes):
        found.append(rest % size)
        rest = rest.div(size, rounding_mode="floor")
    # As the columns of one tensor, like PyTorch's.
    return v.stack(found[::-1], -1).unbind(-1) if found else ()
