"""Elements picked and placed by index tensors and masks along a dimension."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.dispatch import apply
from weft.core.tensor import Tensor, wrap
from weft.ops import api
from weft.ops.arithmetic import conj_op, where_op
from weft.ops.build import Sample, constant, general, linear
from weft.ops.casting import number_for, to_op
from weft.ops.indexing import index_back_op, index_put_op
from weft.ops.views import place_op, reshape_op, slice_op, zeros_of

# --- checks ----------------------------------------------------------------------------


def _fail(kind: type[Exception], message: str) -> Exception:
    return kind(f"{message}\n  at {errors.here()}")


def _outside(index: np.ndarray, size: int) -> bool:
    # Seen as unsigned, a negative index is a huge one: one pass finds both kinds.
    unsigned = np.uint64 if index.itemsize == 8 else np.uint32
    return index.size > 0 and int(index.view(unsigned).max()) >= size


def _in_bounds(index: np.ndarray, size: int, dim: int) -> None:
    if _outside(index, size):
        bad = index[(index < 0) | (index >= size)].reshape(-1)[0]
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def _check_index_dtype(index: Tensor, name: str) -> None:
    if index._a.dtype != np.int64 and index._a.dtype != np.int32 and index._a.size:
        raise _fail(RuntimeError, f"{name}(): Expected dtype int32/int64 for index")


def _check_gather(input: Tensor, dim: int, index: Tensor) -> None:
    have, want = input._a.shape or (1,), index._a.shape or (1,)
    if not index._a.size:
        return
    if len(have) != len(want):
        raise _fail(
            RuntimeError,
            "Index tensor must have the same number of dimensions as input tensor: shapes "
            f"{list(index._a.shape)} and {list(input._a.shape)}",
        )
    for d, (n, size) in enumerate(zip(want, have, strict=True)):
        if d != dim and n > size:
            raise _fail(
                RuntimeError,
                f"Size does not match at dimension {d} expected index {list(want)} to be no "
                f"larger than self {list(have)} apart from dimension {dim}",
            )


def _check_scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> None:
    _check_index_dtype(index, "scatter")
    if isinstance(src, Tensor) and src._a.dtype != input._a.dtype:
        raise _fail(RuntimeError, "scatter(): Expected self.dtype to be equal to src.dtype")
    if not index._a.size:
        return
    have, want = input._a.shape or (1,), index._a.shape or (1,)
    given = (src._a.shape or (1,)) if isinstance(src, Tensor) else want
    if len(have) != len(want) or len(given) != len(want):
        raise _fail(
            RuntimeError,
            "Index tensor must have the same number of dimensions as self tensor and src: shapes "
            f"{list(want)}, {list(have)} and {list(given)}",
        )
    for d, (n, size, source) in enumerate(zip(want, have, given, strict=True)):
        if (d != dim and n > size) or n > source:
            raise _fail(
                RuntimeError,
                f"Expected index {list(want)} to be no larger than self {list(have)} apart from "
                f"dimension {dim} and to be no larger size than src {list(given)}",
            )


# --- gather and scatter ----------------------------------------------------------------


@functools.lru_cache(256)
def _grid(shape: tuple[int, ...], dim: int) -> tuple[list[Any], list[Any]]:
    """Counters along every dimension but one, shaped to broadcast."""
    rank = len(shape)
    counters = [
        np.arange(n).reshape((1,) * d + (n,) + (1,) * (rank - d - 1)) if d != dim else None
        for d, n in enumerate(shape)
    ]
    return counters[:dim], counters[dim + 1 :]


def _places(index: np.ndarray, dim: int) -> tuple[Any, ...]:
    before, after = _grid(index.shape, dim)
    return (*before, index, *after)


def _gather(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    if not index.size:
        return np.empty(index.shape, x.dtype)
    if not x.ndim:
        _in_bounds(index, 1, dim)
        return np.broadcast_to(x, index.shape).copy()
    _in_bounds(index, x.shape[dim], dim)
    found = x[_places(index if index.ndim else index.reshape(1), dim)]
    return found if index.ndim else found.reshape(())


def _scatter_into(
    x: np.ndarray, index: np.ndarray, src: np.ndarray, dim: int, put: Any
) -> np.ndarray:
    """A copy of ``x``, changed by ``put(array, places, values)``."""
    out = np.array(x)
    if not index.size:
        return out
    _in_bounds(index, x.shape[dim] if x.ndim else 1, dim)
    flat = out if out.ndim else out.reshape(1)
    index = index if index.ndim else index.reshape(1)
    if src.ndim:
        src = src[tuple(slice(n) for n in index.shape)]
    put(flat, _places(index, dim), src)
    return out


def _assign(out: np.ndarray, places: Any, values: np.ndarray) -> None:
    out[places] = values


def _add(out: np.ndarray, places: Any, values: np.ndarray) -> None:
    if out.ndim > 1:
        # One dimension is the only case that NumPy adds up quickly.
        flat = places[0]
        for size, place in zip(out.shape[1:], places[1:], strict=True):
            flat = flat * size + place
        out, places = out.reshape(-1), flat.reshape(-1)
        values = np.broadcast_to(values, flat.shape).reshape(-1)
    np.add.at(out, places, values)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(dt.F32) if x.dtype in dt.HALF else x


def _scatter_add(x: np.ndarray, index: np.ndarray, src: np.ndarray, dim: int) -> np.ndarray:
    wide = np.ascontiguousarray(_wide(x)).reshape(x.shape)
    out = _scatter_into(wide, index, _wide(src), dim, _add)
    return out.astype(x.dtype, copy=False)


gather_op = linear(
    "gather",
    _gather,
    lambda g, x_shape, index, dim: gather_back_op(g, index, shape=x_shape, dim=dim),
    names=("x", "index"),
    samples=lambda m: [
        Sample((m.real(4, 3), m.integers(2, 3, high=4)), {"dim": 0}),
        Sample((m.real(4, 3), m.integers(2, 5, high=3)), {"dim": 1}),
        Sample((m.real(), m.integers(2, high=1)), {"dim": 0}),
        Sample((m.real(2, 3), m.integers(0, 3, high=1)), {"dim": 0}),
    ],
)
gather_back_op = linear(
    "gather_backward",
    lambda g, index, shape, dim: _scatter_add(np.zeros(shape, g.dtype), index, g, dim),
    lambda g, index, dim: gather_op(g, index, dim=dim),
    names=("g", "index"),
    samples=lambda m: [
        Sample((m.real(2, 3), m.integers(2, 3, high=4)), {"shape": (4, 3), "dim": 0})
    ],
)


@api.both(out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Elements along a dimension, by an index for each element of the result."""
    d = api.wrap_dim(dim, input._a.ndim)
    if index._a.dtype is not dt.I64:
        _check_index_dtype(index, "gather")
    _check_gather(input, d, index)
    return apply(gather_op, (input, index), {"dim": d})


def _pad_to(g: Any, shape: tuple[int, ...]) -> Any:
    """Zeros behind the end of each dimension: the part of a source that was not used."""
    if g.shape == shape:
        return g
    if not shape:
        return reshape_op(g, shape=())
    return place_op(g, shape=shape, index=tuple(slice(n) for n in g.shape))


def _src_rule(g: Any, index: Any, src_shape: Any, dim: int) -> Any:
    found = gather_op(g, index, dim=dim)
    # A zero-dim source was a single value for all places; the engine sums.
    return found if not src_shape else _pad_to(found, src_shape)


def _zero_at(g: Any, index: Any, dim: int) -> Any:
    return scatter_op(g, zeros_of(g, ()), index, dim=dim)


scatter_op = linear(
    "scatter",
    lambda x, src, index, dim: _scatter_into(
        x, index, np.asarray(src).astype(x.dtype, copy=False), dim, _assign
    ),
    _zero_at,
    _src_rule,
    names=("x", "src", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(2, 3), np.array([[0, 3, 1], [2, 0, 3]])), {"dim": 0}),
        Sample((m.real(4, 3), m.real(3, 4), np.array([[2, 0], [1, 0]])), {"dim": 1}),
        Sample((m.real(3), m.real(), np.array([2, 0])), {"dim": 0}),
        Sample((m.real(), m.real(), np.array(0)), {"dim": 0}),
    ],
)
scatter_add_op = linear(
    "scatter_add",
    lambda x, src, index, dim: _scatter_add(x, index, src, dim),
    lambda g: g,
    _src_rule,
    names=("x", "src", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(2, 3), np.array([[0, 3, 1], [0, 3, 3]])), {"dim": 0}),
        Sample((m.real(2, 3), m.real(2, 5), np.array([[0, 0, 2], [1, 1, 1]])), {"dim": 1}),
    ],
)


@api.both(out=True)
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Any = None,
    *,
    value: Any = None,
    reduce: str | None = None,
) -> Tensor:
    """A copy with values (or one value) placed along a dimension by index."""
    src = value if src is None else src
    d = api.wrap_dim(dim, input._a.ndim)
    if not isinstance(src, Tensor):
        src = wrap(number_for(src, input._a.dtype))
        _check_scatter(input, d, index, None)
    else:
        _check_scatter(input, d, index, src)
    if reduce is None:
        return scatter_op(input, src, index, dim=d)
    if reduce not in ("add", "multiply"):
        raise _fail(RuntimeError, "reduce argument must be either add or multiply.")
    src = src if src._a.ndim else src.expand(index._a.shape)
    if reduce == "add":
        return scatter_add_op(input, src, index, dim=d)
    return scatter_reduce_op(input, src, index, dim=d, reduce="prod", include_self=True)


@api.both(out=True)
def scatter_add(input: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """A copy with values added along a dimension by index; repeated places add up."""
    d = api.wrap_dim(dim, input._a.ndim)
    _check_scatter(input, d, index, src)
    return scatter_add_op(input, src, index, dim=d)


# --- scatter with a reduction ----------------------------------------------------------


def _lowest(d: np.dtype) -> Any:
    if d.kind == "b":
        return False
    return np.iinfo(d).min if d.kind in "iu" else -np.inf


def _highest(d: np.dtype) -> Any:
    if d.kind == "b":
        return True
    return np.iinfo(d).max if d.kind in "iu" else np.inf


def _neutral(reduce: str, d: np.dtype) -> Any:
    if reduce == "amax":
        return _lowest(d)
    return _highest(d) if reduce == "amin" else (1 if reduce == "prod" else 0)


UFUNCS = {"sum": np.add, "mean": np.add, "prod": np.multiply, "amax": np.maximum}
UFUNCS["amin"] = np.minimum


def _scatter_reduce(
    x: np.ndarray, src: np.ndarray, index: np.ndarray, dim: int, reduce: str, include_self: bool
) -> np.ndarray:
    if not include_self and index.size:
        start = np.asarray(_neutral(reduce, x.dtype)).astype(x.dtype)
        x = _scatter_into(x, index, start, dim, _assign)
    ufunc = UFUNCS[reduce]
    if ufunc is np.add:
        out = _scatter_add(x, index, src, dim)
    else:
        out = _scatter_into(x, index, src, dim, ufunc.at)
    if reduce == "mean":
        count = _mean_counts(x.shape, index, dim, include_self).astype(x.real.dtype)
        out = out / count if x.dtype.kind in "fc" else np.floor_divide(out, count)
    return out


def _mean_counts(shape: Any, index: np.ndarray, dim: int, include_self: bool) -> np.ndarray:
    start = np.full(shape, int(include_self), np.int64)
    counts = _scatter_add(start, index, np.ones(index.shape, np.int64), dim)
    return np.maximum(counts, 1)


# How many values went into each element of a mean.
counts_op = constant(
    "scatter_counts",
    lambda index, shape, dim, include_self: _mean_counts(shape, index, dim, include_self),
    names=("index",),
)


def _scatter_reduce_rule(
    g: Any, needs: Any, x: Any, src: Any, index: Any, y: Any, dim: int, reduce: str,
    include_self: bool,
) -> tuple[Any, ...]:  # fmt: skip
    if not getattr(index, "_a", index).size:
        return (g if needs[0] else None, zeros_of(g, src.shape) if needs[1] else None, None)
    at = {"dim": dim}
    # Only the part of the source that the indices cover takes part.
    used = _used(src, index)
    if reduce == "mean":
        counts = counts_op(index, shape=x.shape, dim=dim, include_self=include_self)
        gx = g / to_op(counts, dtype=_dtype(g))
        gs = gather_op(gx, index, **at) if needs[1] else None
    elif reduce == "sum":
        gx, gs = g, gather_op(g, index, **at) if needs[1] else None
    elif reduce == "prod":
        gx, gs = _prod_grads(g, x, used, index, y, dim, include_self)
    else:
        gx, gs = _extreme_grads(g, x, used, index, y, dim)
    if needs[0] and not include_self:
        gx = _zero_at(gx, index, dim)
    return (gx if needs[0] else None, _pad_to(gs, src.shape) if needs[1] else None, None)


def _dtype(x: Any) -> np.dtype:
    return getattr(x, "_a", x).dtype


def _used(src: Any, index: Any) -> Any:
    if src.shape == index.shape:
        return src
    if not index.shape or not src.shape:
        return reshape_op(src, shape=index.shape)
    return slice_op(src, index=tuple(slice(n) for n in index.shape))


def _extreme_grads(g: Any, x: Any, src: Any, index: Any, y: Any, dim: int) -> tuple[Any, Any]:
    """Equal extremes share the gradient."""
    d = _dtype(g)
    mine = to_op(x == y, dtype=d)
    theirs = to_op(src == gather_op(y, index, dim=dim), dtype=d)
    shares = scatter_add_op(mine, theirs, index, dim=dim)
    part = g / shares
    return mine * part, theirs * gather_op(part, index, dim=dim)


def _prod_grads(
    g: Any, x: Any, src: Any, index: Any, y: Any, dim: int, include_self: bool
) -> tuple[Any, Any]:
    """Products of all the others, found by division except where a factor is zero."""
    more = {"dim": dim, "reduce": "prod", "include_self": include_self}
    one = 1.0
    without_zero = where_op(x == 0, one, x)
    others = scatter_reduce_op(without_zero, src, index, **more)
    gx = g * _conj(others / without_zero)
    zero = src == 0
    zeros = scatter_add_op(
        zeros_of(x, x.shape), to_op(zero, dtype=_dtype(x)), index, dim=dim
    )
    single = zero & (gather_op(zeros, index, dim=dim) == 1)
    filled = where_op(single, one, src)
    rest = gather_op(g * _conj(scatter_reduce_op(x, filled, index, **more)), index, dim=dim)
    divided = gather_op(g * _conj(y), index, dim=dim) / _conj(where_op(zero, one, src))
    return gx, where_op(single, rest, divided)


def _conj(x: Any) -> Any:
    return conj_op(x) if _dtype(x).kind == "c" else x


scatter_reduce_op = general(
    "scatter_reduce",
    _scatter_reduce,
    joint=_scatter_reduce_rule,
    names=("x", "src", "index"),
    promote="same",
    promote_args=(0, 1),
    samples=lambda m: [
        Sample(
            (m.real(4, 3), m.real(3, 3), np.array([[0, 3, 1], [0, 3, 3]])),
            {"dim": 0, "reduce": reduce, "include_self": include},
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    ],
)


@api.both(out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
    d = api.wrap_dim(dim, input._a.ndim)
    if reduce not in UFUNCS:
        raise _fail(
            RuntimeError,
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}",
        )
    _check_scatter(input, d, index, src)
    return scatter_reduce_op(input, src, index, dim=d, reduce=reduce, include_self=include_self)


for _function in (scatter, scatter_add, scatter_reduce):
    api.inplace(f"{_function.__name__}_", _function)

# --- whole slices by a vector of indices -----------------------------------------------


def _rows(x: np.ndarray) -> np.ndarray:
    return x if x.ndim else x.reshape(1)


def _index_select(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    size = x.shape[dim] if x.ndim else 1
    if _outside(index, size):
        raise IndexError(f"index out of range in self: an index is not in [0, {size})")
    if not x.ndim:
        return x.copy()
    return x.take(index if index.ndim else index.reshape(1), dim)


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
        raise _fail(RuntimeError, "index_select(): Expected dtype int32 or int64 for index")
    rank = input._a.ndim
    if index._a.ndim > 1:
        raise _fail(IndexError, "index_select(): Index is supposed to be a vector")
    if not rank and index._a.size != 1:
        raise _fail(
            RuntimeError,
            "index_select(): Index to scalar can have only 1 value, got "
            f"{index._a.size} value(s)",
        )
    if not 0 <= dim < rank:
        dim = api.wrap_dim(dim, rank)
    return apply(index_select_op, (input, index), {"dim": dim})


def _slices(
    name: str, input: Tensor, dim: int, index: Tensor, source: Tensor | None, kind: type[Exception]
) -> tuple[int, Tensor]:
    """The arguments of an index_* function, checked; the index as a vector."""
    d = api.wrap_dim(dim, input._a.ndim)
    if index._a.ndim > 1:
        raise _fail(
            IndexError, f"{name}_(): Index is supposed to be a vector, but got dim: {index._a.ndim}"
        )
    if index._a.dtype != np.int64 and (name == "index_copy" or index._a.dtype != np.int32):
        wanted = IndexError if name in ("index_fill", "index_copy") else RuntimeError
        raise _fail(wanted, f"{name}_(): Expected dtype int64 for index.")
    size = input._a.shape[d] if input._a.ndim else 1
    array = index._a
    low = -size if name == "index_fill" else 0
    if array.size and (int(array.max()) >= size or int(array.min()) < low):
        bad = array[(array >= size) | (array < low)].reshape(-1)[0]
        raise _fail(
            kind, f"{name}_(): index {bad} is out of bounds for dimension {d} with size {size}"
        )
    if source is not None:
        _check_slices(name, input, d, index, source)
    return d, index if array.ndim else index.reshape(1)


def _check_slices(name: str, input: Tensor, d: int, index: Tensor, source: Tensor) -> None:
    if source._a.dtype != input._a.dtype:
        raise _fail(
            RuntimeError,
            f"{name}_(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.name} and (source) {source.dtype.name}",
        )
    have, given = input._a.shape, source._a.shape
    count = given[d] if given and d < len(given) else 1
    if count != index._a.size:
        raise _fail(
            IndexError if name == "index_copy" else RuntimeError,
            f"{name}_(): Number of indices ({index._a.size}) should be equal to "
            f"source.size(dim): ({count}), for dim: {d}",
        )
    if len(have) > 1 or len(given) > 1:
        if len(have) != len(given) or have[:d] + have[d + 1 :] != given[:d] + given[d + 1 :]:
            raise _fail(
                RuntimeError,
                "source tensor shape must match self tensor shape, excluding the specified "
                f"dimension. Got self.shape = {list(have)} source.shape = {list(given)}",
            )


def _put_slices(x: np.ndarray, source: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    out = np.array(x)
    _rows(out)[(slice(None),) * dim + (index,)] = source
    return out


def _add_slices(
    x: np.ndarray, source: np.ndarray, index: np.ndarray, dim: int, alpha: Any
) -> np.ndarray:
    source = source if alpha == 1 else source * np.asarray(alpha).astype(x.dtype)
    if x.dtype.kind == "b":
        out = np.array(x)
        np.logical_or.at(_rows(out), (slice(None),) * dim + (index,), source)
        return out
    out = index_put_op.reference(
        _rows(x), _rows(source), index, where=(dim,), accumulate=True
    )
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
)
index_fill_op = linear(
    "index_fill",
    lambda x, value, index, dim: _put_slices(x, value.astype(x.dtype, copy=False), index, dim),
    lambda g, index, dim: index_fill_op(g, zeros_of(g, ()), index, dim=dim),
    lambda g, index, dim: where_op(_filled_places(g.shape, index, dim), g, 0.0),
    names=("x", "value", "index"),
    together=True,
    samples=lambda m: [
        Sample((m.real(4, 3), m.real(), np.array([2, 0])), {"dim": 0}),
        Sample((m.real(4, 3), m.real(), np.array([-1])), {"dim": 1}),
    ],
)


def _filled_places(shape: Any, index: Any, dim: int) -> np.ndarray:
    # Each place counts once, however often the indices name it.
    return _put_slices(np.zeros(shape, bool), np.array(True), getattr(index, "_a", index), dim)


@api.both(out=True)
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Tensor:
    """A copy with slices of a source added by a vector of indices."""
    d, index = _slices("index_add", input, dim, index, source, RuntimeError)
    return index_add_op(input, source, index, dim=d, alpha=alpha)


@api.both(out=True)
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """A copy with slices replaced by those of a source."""
    d, index = _slices("index_copy", input, dim, index, source, IndexError)
    return index_copy_op(input, source, index, dim=d)


@api.both
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """A copy with slices filled with one value."""
    d, index = _slices("index_fill", input, dim, index, None, IndexError)
    return index_fill_op(input, _zero_dim(value, input, "index_fill"), index, dim=d)


def _zero_dim(value: Any, like: Tensor, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        try:
            return wrap(number_for(value, like._a.dtype))
        except RuntimeError as error:
            raise _fail(RuntimeError, str(error)) from None
    if value._a.ndim:
        raise _fail(
            RuntimeError,
            f"{name}_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value._a.ndim} dimension(s).",
        )
    return value if value._a.dtype == like._a.dtype else value.to(like.dtype)


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
        raise _fail(
            RuntimeError,
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}.",
        )
    d, index = _slices("index_reduce", input, dim, index, source, RuntimeError)
    if input._a.ndim:
        lined = index.reshape((1,) * d + (-1,) + (1,) * (input._a.ndim - d - 1))
        index = lined.expand(source._a.shape or (1,))
    elif not source._a.ndim:
        index = index.reshape(())
    return scatter_reduce_op(
        input, source, index, dim=d, reduce=reduce, include_self=bool(include_self)
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
)


@api.both(out=True)
def take(input: Tensor, index: Tensor) -> Tensor:
    """Elements by their positions in the flattened tensor."""
    if index._a.dtype != np.int64:
        raise _fail(
            RuntimeError, f"take(): Expected a long tensor for index, but got {index.dtype.name}"
        )
    return take_op(input, index)


@api.both
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with elements replaced (or added to) at flat positions."""
    if index._a.dtype != np.int64:
        raise _fail(
            RuntimeError, f"put_(): Expected a long tensor for index, but got {index.dtype.name}"
        )
    if source._a.dtype != input._a.dtype:
        raise _fail(
            RuntimeError,
            "put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{input.dtype.name} and source.dtype = {source.dtype.name}",
        )
    if source._a.size != index._a.size:
        raise _fail(
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
        raise _fail(
            RuntimeError,
            "torch.take_along_dim(): input and indices should have the same number of "
            f"dimensions, but got {rank} dimensions for input, and {indices._a.ndim} dimensions "
            "for indices",
        )
    d = api.wrap_dim(dim, rank)
    shape = list(np.broadcast_shapes(_but(input, d), _but(indices, d)))
    size = input._a.shape[d]
    whole, places = shape.copy(), shape.copy()
    whole[d], places[d] = size, indices._a.shape[d]
    wrapped = indices._a
    if wrapped.size and int(wrapped.min()) < 0:
        indices = wrap(np.where(wrapped < 0, wrapped + size, wrapped))
    return gather(input.expand(whole), d, indices.expand(places))


def _but(x: Tensor, dim: int) -> tuple[int, ...]:
    return (*x._a.shape[:dim], 1, *x._a.shape[dim + 1 :])


def _check_long(index: Tensor, name: str) -> None:
    if index._a.dtype != np.int64:
        raise _fail(
            RuntimeError,
            f"torch.{name}(): dtype of indices should be Long but got {index.dtype.name}",
        )


# --- masks -----------------------------------------------------------------------------


def _check_mask(mask: Tensor, name: str) -> None:
    if mask._a.dtype is not dt.BOOL and mask._a.dtype != bool:
        raise _fail(
            RuntimeError, f"{name}: expected BoolTensor for mask, but got {mask.dtype.name}"
        )


masked_fill_op = linear(
    "masked_fill",
    lambda x, value, mask: np.where(mask, value, x),
    lambda g, mask: masked_fill_op(g, zeros_of(g, ()), mask),
    lambda g, mask: where_op(mask, g, 0.0),
    names=("x", "value", "mask"),
    together=True,
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(), m.mask(2, 3))),
        Sample((m.real(2, 3), m.real(), m.mask(3))),
        Sample((m.real(3), m.real(), m.mask(2, 1))),
    ],
)


@api.both
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with one value where the mask is true."""
    if mask._a.dtype is not dt.BOOL and mask._a.dtype != bool:
        raise _fail(
            RuntimeError,
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.name}",
        )
    if value.__class__ is float and input._a.dtype is dt.F32 and -3e38 < value < 3e38:
        value = wrap(np.asarray(value, dt.F32))
    else:
        value = _zero_dim(value, input, "masked_fill")
    return apply(masked_fill_op, (input, value, mask), {})


api.inplace("masked_fill_", masked_fill)


def _masked_place(g: np.ndarray, mask: np.ndarray) -> np.ndarray:
    out = np.zeros(mask.shape, g.dtype)
    out[mask] = g
    return out


masked_select_op = linear(
    "masked_select",
    lambda x, mask: x[mask],
    lambda g, mask: masked_place_op(g, mask),
    names=("x", "mask"),
    samples=lambda m: [Sample((m.real(2, 3), m.mask(2, 3))), Sample((m.real(), np.array(True)))],
)
masked_place_op = linear(
    "masked_place",
    _masked_place,
    lambda g, mask: masked_select_op(g, mask),
    names=("g", "mask"),
    grad_name="MaskedScatterBackward",
    samples=lambda m: [Sample((m.real(2), np.array([[True, False], [False, True]])))],
)


@api.both(out=True)
def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where the mask is true, as a vector."""
    _check_mask(mask, "masked_select")
    if mask._a.shape != input._a.shape:
        input, mask = _broadcast(input, mask)
    return masked_select_op(input, mask)


def _broadcast(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    try:
        shape = np.broadcast_shapes(a._a.shape, b._a.shape)
    except ValueError:
        raise _fail(
            RuntimeError,
            f"The size of tensor a {list(a._a.shape)} must match the size of tensor b "
            f"{list(b._a.shape)} at non-singleton dimensions",
        ) from None
    return a.expand(shape), b.expand(shape)


def _masked_scatter(x: np.ndarray, source: np.ndarray, mask: np.ndarray) -> np.ndarray:
    count = int(np.count_nonzero(mask))
    if source.size < count:
        raise RuntimeError(
            f"Number of elements of source < number of ones in mask: {source.size} < {count}"
        )
    out = np.array(x)
    out[mask] = source.reshape(-1)[:count]
    return out


def _masked_source(g: Any, mask: Any, source_shape: Any) -> Any:
    count = int(np.prod(source_shape, dtype=np.int64))
    return reshape_op(_pad_to(masked_select_op(g, mask), (count,)), shape=source_shape)


masked_scatter_op = linear(
    "masked_scatter",
    _masked_scatter,
    lambda g, mask: masked_fill_op(g, zeros_of(g, ()), mask),
    _masked_source,
    names=("x", "source", "mask"),
    together=True,
    samples=lambda m: [Sample((m.real(2, 3), m.real(2, 4), m.mask(2, 3)))],
)


@api.both
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where the mask is true taken from a source, in order."""
    if source._a.dtype != input._a.dtype:
        raise _fail(
            RuntimeError,
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype.name} and {source.dtype.name}",
        )
    _check_mask(mask, "masked_scatter")
    if mask._a.shape != input._a.shape:
        input, mask = _broadcast(input, mask)
    return masked_scatter_op(input, source, mask)


api.inplace("masked_scatter_", masked_scatter)
