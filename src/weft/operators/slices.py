"""Whole slices by a vector of indices, and elements by flat positions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.batching import BatchedCall, each
from weft.core.devices import host
from weft.core.dispatch import Op, apply
from weft.core.meta import lacks_values
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, beside
from weft.operators import api, shape_rules
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, linear, zeros_of
from weft.operators.gather import gather, outside, scatter_reduce_op, zero_dim
from weft.operators.indexing import index_back_op, index_put_op
from weft.operators.views import fail, reshape_op

# --- whole slices by a vector of indices -----------------------------------------------


def _rows(x: np.ndarray) -> np.ndarray:
    return x if x.ndim else x.reshape(1)


def _index_select(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    size = x.shape[dim] if x.ndim else 1
    if outside(index, size):
        raise IndexError(f"index out of range in self: an index is not in [0, {size})")
    if not x.ndim:
        return x.copy()
    return x.take(index if index.ndim else index.reshape(1), dim)


def _slices_batch(b: BatchedCall) -> Any:
    """One index for all examples, shifted by the batch dimension."""
    shared = not b.on[-1] and b.size and b.logical[0]._a.ndim
    operands = (b.lead(k) for k in range(len(b.args) - 1))
    attrs = {**b.attrs, "dim": b.attrs["dim"] + 1}
    return b.run(*operands, b.args[-1], **attrs) if shared else each(b)


index_select_op = linear(
    "index_select",
    _index_select,
    lambda g, x_shape, index, dim: _index_select_back(g, x_shape, index, dim),
    names=("x", "index"),
    samples=lambda m: [
        Sample((m.real(4, 3), np.array([2, 0, 2])), {"dim": 0}),
        Sample((m.real(4, 3), np.array([2, 0, 2, 1])), {"dim": 1}),
        Sample((m.real(), np.array([0])), {"dim": 0}),
    ],
    shape=lambda x, index, dim: shape_rules.replaced(x.shape, dim, index.size),
    batch=_slices_batch,
)


def _index_select_back(g: Any, x_shape: Any, index: Any, dim: int) -> Any:
    if not x_shape:
        return g
    if not index.shape:
        index = reshape_op(index, shape=(1,))
    return index_back_op(g, index, shape=x_shape, where=(dim,))


@api.both(out=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """Slices along a dimension, by a vector of indices."""
    d = index._a.dtype
    if d is not dt.I64 and d != np.int64 and d != np.int32:
        raise fail(RuntimeError, "index_select(): Expected dtype int32 or int64 for index")
    rank = input._a.ndim
    if index._a.ndim > 1:
        raise fail(IndexError, "index_select(): Index is supposed to be a vector")
    if not rank and index._a.size != 1:
        raise fail(
            RuntimeError,
            f"index_select(): Index to scalar can have only 1 value, got {index._a.size} value(s)",
        )
    if not 0 <= dim < rank:
        dim = api.wrap_dim(dim, rank)
    if rank > 1 and not input._a.size and outside(host(index), input._a.shape[dim]):
        raise fail(
            RuntimeError,
            f"index_select(): INDICES element is out of DATA bounds, axis_dim="
            f"{input._a.shape[dim]}: self indexing axis dim should be positive, and greater than "
            f"every index, in shape {list(input._a.shape)}",
        )
    return apply(index_select_op, (input, index), {"dim": dim})


def _slices(
    name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None
) -> tuple[int, Tensor]:
    """The arguments of an index_* function, checked; the index as a vector.

    The values of the index are checked by the ops, which may run later.
    """
    d = api.wrap_dim(dim, input._a.ndim)
    if index._a.ndim > 1:
        raise fail(
            IndexError, f"{name}_(): Index is supposed to be a vector, but got dim: {index._a.ndim}"
        )
    narrow = name in ("index_add", "index_reduce") and index._a.dtype == np.int32
    if index._a.dtype != np.int64 and not narrow:
        wanted = IndexError if name in ("index_fill", "index_copy") else RuntimeError
        raise fail(wanted, f"{name}_(): Expected dtype int64 for index.")
    if source is not None:
        _check_slices(name, input, d, index, source)
    return d, index if index._a.ndim else index.reshape(1)


def _bad_index(index: np.ndarray, shape: Any, dim: int, low: int = 0) -> str | None:
    """What is wrong with an index that is not in ``[low, size)``: the ops ask when they run."""
    size = shape[dim] if shape else 1
    if not (outside(index, size) if not low else outside(index - low, size - low)):
        return None
    bad = index[(index >= size) | (index < low)].reshape(-1)[0]
    return f"index {bad} is out of bounds for dimension {dim} with size {size}"


def _check_slices(name: str, input: Tensor, d: int, index: Tensor, source: Tensor) -> None:
    if source._a.dtype != input._a.dtype:
        raise fail(
            RuntimeError,
            f"{name}_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.name} and (source) {source.dtype.name}",
        )
    have, given = input._a.shape, source._a.shape
    count = given[d] if given and d < len(given) else 1
    if count != index._a.size:
        raise fail(
            IndexError if name == "index_copy" else RuntimeError,
            f"{name}_(): Number of indices ({index._a.size}) should be equal to "
            f"source.size(dim): ({count}), for dim: {d}",
        )
    if len(have) > 1 or len(given) > 1 or (name != "index_copy" and len(have) != len(given)):
        if len(have) != len(given) or have[:d] + have[d + 1 :] != given[:d] + given[d + 1 :]:
            raise fail(
                RuntimeError,
                "source tensor shape must match self tensor shape, excluding the specified "
                f"dimension. Got self.shape = {list(have)} source.shape = {list(given)}",
            )


def _put_slices(
    x: np.ndarray, source: np.ndarray, index: np.ndarray, dim: int, low: int = 0
) -> np.ndarray:
    if wrong := _bad_index(index, x.shape, dim, low):
        raise IndexError(wrong)
    out = np.array(x)
    _rows(out)[(slice(None),) * dim + (index,)] = source
    return out


def _fill_slices(x: np.ndarray, value: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    size = x.shape[dim] if x.ndim else 1
    return _put_slices(x, value.astype(x.dtype, copy=False), index, dim, -size)


def _add_slices(
    x: np.ndarray, source: np.ndarray, index: np.ndarray, dim: int, alpha: Any
) -> np.ndarray:
    if wrong := _bad_index(index, x.shape, dim):
        raise RuntimeError(wrong)
    source = source if alpha == 1 else source * np.asarray(alpha).astype(x.dtype)
    if x.dtype.kind == "b":
        out = np.array(x)
        places: Any = (*(slice(None),) * dim, index)
        np.logical_or.at(_rows(out), places, source)
        return out
    out = index_put_op.reference(_rows(x), _rows(source), index, where=(dim,), accumulate=True)
    return out.reshape(x.shape)


def _select_source(g: Any, index: Any, dim: int, source_shape: Any) -> Any:
    found = index_select_op(g, index, dim=dim)
    return reshape_op(found, shape=source_shape) if found.shape != source_shape else found


index_add_op = linear(
    "index_add",
    _add_slices,
    lambda g: g,
    lambda g, index, source_shape, dim, alpha: _scaled(
        _select_source(g, index, dim, source_shape), alpha
    ),
    names=("x", "source", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(3, 3), np.array([2, 0, 2])), {"dim": 0, "alpha": 1}),
        Sample((m.real(4, 3), m.real(4, 2), np.array([2, 2])), {"dim": 1, "alpha": 2.5}),
    ],
    shape=shape_rules.same,
    batch=_slices_batch,
)


def _scaled(g: Any, alpha: Any) -> Any:
    if alpha == 1:
        return g
    return g * (alpha.conjugate() if isinstance(alpha, complex) else alpha)


index_copy_op = linear(
    "index_copy",
    _put_slices,
    lambda g, index, dim: index_fill_op(g, zeros_of(g, ()), index, dim=dim),
    lambda g, index, source_shape, dim: _select_source(g, index, dim, source_shape),
    names=("x", "source", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(2, 3), np.array([2, 0])), {"dim": 0}),
        Sample((m.real(4, 3), m.real(4, 2), np.array([2, 1])), {"dim": 1}),
    ],
    rows=True,
    shape=shape_rules.same,
    batch=_slices_batch,
)
index_fill_op: Op = linear(
    "index_fill",
    lambda x, value, index, dim: _fill_slices(x, value, index, dim),
    lambda g, index, dim: index_fill_op(g, zeros_of(g, ()), index, dim=dim),
    lambda g, index, dim: where_op(_filled_places(g.shape, index, dim), g, 0.0),
    names=("x", "value", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(), np.array([2, 0])), {"dim": 0}),
        Sample((m.real(4, 3), m.real(), np.array([-1])), {"dim": 1}),
    ],
    shape=shape_rules.preserved,
)


def _filled_places(shape: Any, index: Any, dim: int) -> np.ndarray:
    # Each place counts once, however often the indices name it.
    return _fill_slices(np.zeros(shape, bool), np.array(True), host(index), dim)


@api.both(out=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy with slices of a source added by a vector of indices."""
    d, index = _slices("index_add", input, dim, index, source)
    return index_add_op(input, source, index, dim=d, alpha=alpha)


@api.both(out=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices replaced by those of a source."""
    api.need_tensors("index_copy", source=source)
    d, index = _slices("index_copy", input, dim, index, source)
    return index_copy_op(input, source, index, dim=d)


@api.both
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with slices filled with one value."""
    d, index = _slices("index_fill", input, dim, index, None)
    if value.is_complex() if isinstance(value, Tensor) else isinstance(value, complex):
        if not input.is_complex():
            raise fail(
                RuntimeError,
                "index_fill(): Converting complex Scalar to non-complex type is not supported",
            )
    return index_fill_op(input, zero_dim(value, input, "index_fill"), index, dim=d)


@api.both(out=True)
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> Tensor:
    """A copy with slices of a source combined by index: prod, mean, amax, amin."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise fail(
            RuntimeError,
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}.",
        )
    d, index = _slices("index_reduce", input, dim, index, source)
    if not source._a.size and not lacks_values(index):  # the op would not read the index
        wrong = _bad_index(host(index), input._a.shape, d)
        if wrong is not None:
            raise fail(RuntimeError, f"index_reduce_(): {wrong}")
    if input._a.ndim:
        lined = index.reshape((1,) * d + (-1,) + (1,) * (input._a.ndim - d - 1))
        index = lined.expand(source._a.shape or (1,))
    elif not source._a.ndim:
        index = index.reshape(())
    return scatter_reduce_op(
        input,
        source,
        index,
        dim=d,
        reduce=reduce,
        include_self=bool(include_self),
        stepwise=True,
    )


for _function in (index_add, index_copy, index_fill, index_reduce):
    api.inplace(f"{_function.__name__}_", _function)

# --- flat positions --------------------------------------------------------------------


def _take(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    try:
        return x.reshape(-1)[index] if index.ndim else np.asarray(x.reshape(-1)[index])
    except IndexError:
        bad = index[(index >= x.size) | (index < -x.size)].reshape(-1)[0]
        raise IndexError(
            f"out of range: tried to access index {bad} on a tensor of {x.size} elements."
        ) from None


def _take_back(g: Any, x_shape: Any, index: Any) -> Any:
    count = int(np.prod(x_shape, dtype=np.int64))
    return reshape_op(index_back_op(g, index, shape=(count,), where=(0,)), shape=x_shape)


take_op = linear(
    "take",
    _take,
    _take_back,
    names=("x", "index"),
    samples=lambda m: [
        Sample((m.real(2, 3), np.array([[0, 5], [-1, 2]]))),
        Sample((m.real(2, 3), np.array(4))),
    ],
    shape=lambda x, index: ShapeDtype(index.shape, x.dtype),
)


@api.both(out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their positions in the flattened tensor."""
    if index._a.dtype != np.int64:
        raise fail(
            RuntimeError, f"take(): Expected a long tensor for index, but got {index.dtype.name}"
        )
    return take_op(input, index)


@api.both
@api.no_view
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with elements replaced (or added to) at flat positions."""
    if index._a.dtype != np.int64:
        raise fail(
            RuntimeError, f"put_(): Expected a long tensor for index, but got {index.dtype.name}"
        )
    if source._a.dtype != input._a.dtype:
        raise fail(
            RuntimeError,
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype.name} and source.dtype = {source.dtype.name}",
        )
    if source._a.size != index._a.size:
        raise fail(
            IndexError,
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source._a.size}, index.numel() = {index._a.size}",
        )
    flat = reshape_op(input, shape=(input._a.size,))
    values, places = source.reshape(-1), index.reshape(-1)
    changed = index_put_op(flat, values, places, where=(0,), accumulate=bool(accumulate))
    return reshape_op(changed, shape=input._a.shape)


api.inplace("put_", put)


@api.both(out=True)
def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """Elements along a dimension by indices of the same rank, which broadcast."""
    _check_long(indices, "take_along_dim")
    if dim is None:
        input, indices, dim = input.reshape(-1), indices.reshape(-1), 0
    rank = input._a.ndim
    if rank != indices._a.ndim:
        raise fail(
            RuntimeError,
            "torch.take_along_dim(): input and indices should have the same number of "
            f"dimensions, but got {rank} dimensions for input, and {indices._a.ndim} dimensions "
            "for indices",
        )
    d = api.wrap_dim(dim, rank)
    shape = list(np.broadcast_shapes(*_alike(_but(input, d), _but(indices, d))))
    size = input._a.shape[d]
    whole, places = shape.copy(), shape.copy()
    whole[d], places[d] = size, indices._a.shape[d]
    if indices._a.size and not lacks_values(indices) and int((wrapped := host(indices)).min()) < 0:
        indices = beside(indices, np.where(wrapped < 0, wrapped + size, wrapped))
    return gather(input.expand(whole), d, indices.expand(places))


def _alike(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Two shapes that can be broadcast to one another."""
    for dim, (m, n) in enumerate(zip(a, b, strict=True)):
        if m != n and 1 not in (m, n):
            raise fail(
                RuntimeError,
                f"torch.take_along_dim(): The size of tensor a ({m}) must match the size of tensor "
                f"b ({n}) at non-singleton dimension {dim}",
            )
    return a, b


def _but(x: Tensor, dim: int) -> tuple[int, ...]:
    return (*x._a.shape[:dim], 1, *x._a.shape[dim + 1 :])


def _check_long(index: Tensor, name: str) -> None:
    if index._a.dtype != np.int64:
        raise fail(
            RuntimeError,
            f"torch.{name}(): dtype of indices should be Long but got {index.dtype.name}",
        )
