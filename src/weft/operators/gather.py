"""Elements picked and placed by index tensors and masks along a dimension."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import foreign, selection
from weft.core.dispatch import Op, apply
from weft.core.modes import MODES
from weft.core.shapes import ShapeDtype, broadcast
from weft.core.tensor import Tensor, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import places
from weft.operators.arithmetic import conj_op, where_op
from weft.operators.build import Sample, constant, general, linear
from weft.operators.casting import number_for, to_op
from weft.operators.views import fail, place_op, reshape_op, slice_op, zeros_of

# --- checks ----------------------------------------------------------------------------

U32, U64 = np.dtype(np.uint32), np.dtype(np.uint64)


def outside(index: np.ndarray, size: int) -> bool:
    """Whether an index is negative or too large."""
    # Seen as unsigned, a negative index is a huge one: one pass finds both kinds.
    unsigned = U64 if index.itemsize == 8 else U32
    return index.size > 0 and int(np.maximum.reduce(index.view(unsigned), None)) >= size


def _in_bounds(index: np.ndarray, size: int, dim: int) -> None:
    if outside(index, size):
        bad = index[(index < 0) | (index >= size)].reshape(-1)[0]
        raise RuntimeError(f"index {bad} is out of bounds for dimension {dim} with size {size}")


def _check_index_dtype(index: Tensor, name: str) -> None:
    if index._a.dtype != np.int64 and index._a.dtype != np.int32 and index._a.size:
        raise fail(RuntimeError, f"{name}(): Expected dtype int32/int64 for index")


def _check_gather(input: Tensor, dim: int, index: Tensor) -> None:
    if not index._a.size:
        return
    have, want = input._a.shape or (1,), index._a.shape or (1,)
    if have == want:
        return
    if len(have) != len(want):
        raise fail(
            RuntimeError,
            "Index tensor must have the same number of dimensions as input tensor: shapes "
            f"{list(index._a.shape)} and {list(input._a.shape)}",
        )
    for d, n in enumerate(want):
        if n > have[d] and d != dim:
            raise fail(
                RuntimeError,
                f"Size does not match at dimension {d} expected index {list(want)} to be no "
                f"larger than self {list(have)} apart from dimension {dim}",
            )


def _check_scatter(input: Tensor, dim: int, index: Tensor, src: Any) -> None:
    _check_index_dtype(index, "scatter")
    if isinstance(src, Tensor) and src._a.dtype != input._a.dtype:
        raise fail(RuntimeError, "scatter(): Expected self.dtype to be equal to src.dtype")
    if not index._a.size:
        return
    have, want = input._a.shape or (1,), index._a.shape or (1,)
    given = (src._a.shape or (1,)) if isinstance(src, Tensor) else want
    if len(have) != len(want) or len(given) != len(want):
        raise fail(
            RuntimeError,
            "Index tensor must have the same number of dimensions as self tensor and src: shapes "
            f"{list(want)}, {list(have)} and {list(given)}",
        )
    for d, (n, size, source) in enumerate(zip(want, have, given, strict=True)):
        if (d != dim and n > size) or n > source:
            raise fail(
                RuntimeError,
                f"Expected index {list(want)} to be no larger than self {list(have)} apart from "
                f"dimension {dim} and to be no larger size than src {list(given)}",
            )


def zero_dim(value: Any, like: Tensor, name: str) -> Tensor:
    """A fill value as a zero-dim tensor of the dtype of another."""
    if not isinstance(value, Tensor):
        return wrap(number_for(value, like._a.dtype))
    if value._a.ndim:
        raise fail(
            RuntimeError,
            f"{name}_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value._a.ndim} dimension(s).",
        )
    if value._a.dtype == like._a.dtype:
        return value
    number_for(value.item(), like._a.dtype)  # refuses what does not fit
    return value.to(like.dtype)


# --- gather and scatter ----------------------------------------------------------------


def _gather(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    if not index.size:
        return np.empty(index.shape, x.dtype)
    if not x.ndim:
        _in_bounds(index, 1, dim)
        return np.broadcast_to(x, index.shape).copy()
    _in_bounds(index, x.shape[dim], dim)
    if not index.ndim:
        return x[index.reshape(1)].reshape(())
    return x[places(index, dim, index.shape)]


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
    put(flat, places(index, dim, index.shape), src)
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
    return selection.cast(x, dt.F32) if x.dtype in dt.HALF else x


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
    layout="rows or last",
    shape=lambda x, index: ShapeDtype(index.shape, x.dtype),
    batch=batch_rules.along,
)
gather_back_op: Op = linear(
    "gather_backward",
    lambda g, index, shape, dim: _scatter_add(np.zeros(shape, g.dtype), index, g, dim),
    lambda g, index, dim: gather_op(g, index, dim=dim),
    names=("g", "index"),
    samples=lambda m: [
        Sample((m.real(2, 3), m.integers(2, 3, high=4)), {"shape": (4, 3), "dim": 0})
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.along,
)


@api.both(out=True)
def gather(input: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    """Elements along a dimension, by an index for each element of the result.

    >>> scores = torch.tensor([[1, 2, 3], [4, 5, 6]])
    >>> actions = torch.tensor([[2], [0]])
    >>> scores.gather(1, actions)
    tensor([[3],
            [4]])
    """
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
    rows=True,
    shape=shape_rules.same,
    batch=batch_rules.along,
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
    shape=shape_rules.same,
    batch=batch_rules.along,
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
    """A copy with values (or one value) placed along a dimension by index.

    >>> classes = torch.tensor([[2], [0]])
    >>> torch.zeros(2, 3).scatter_(1, classes, 1.0)
    tensor([[0., 0., 1.],
            [1., 0., 0.]])
    """
    src = value if src is None else src
    d = api.wrap_dim(dim, input._a.ndim)
    if not isinstance(src, Tensor):
        foreign.refuse(src)
        src = wrap(number_for(src, input._a.dtype))
        _check_scatter(input, d, index, None)
    else:
        _check_scatter(input, d, index, src)
    if reduce is None:
        return scatter_op(input, src, index, dim=d)
    if reduce not in ("add", "multiply"):
        raise fail(RuntimeError, "reduce argument must be either add or multiply.")
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
    x: np.ndarray,
    src: np.ndarray,
    index: np.ndarray,
    dim: int,
    reduce: str,
    include_self: bool,
    stepwise: bool = False,
) -> np.ndarray:
    """``stepwise`` rounds half types after every step, and not once at the end."""
    half = x.dtype if x.dtype in dt.HALF and not stepwise else None
    if half is not None:
        x, src = x.astype(np.float32), src.astype(np.float32)
    if not include_self and index.size:
        start = np.asarray(_neutral(reduce, x.dtype)).astype(x.dtype)
        x = _scatter_into(x, index, start, dim, _assign)
    ufunc = UFUNCS[reduce]
    if ufunc is np.add and x.dtype not in dt.HALF:
        out = _scatter_add(x, index, src, dim)
    else:
        out = _scatter_into(x, index, src, dim, ufunc.at)
    if half is not None:
        out = out.astype(half)
    if reduce == "mean":
        count = _mean_counts(x.shape, index, dim, include_self).astype(out.real.dtype)
        out = out / count if out.dtype.kind in "fcV" else np.floor_divide(out, count)
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
    shape=lambda shape: ShapeDtype(shape, dt.I64),
    batch=batch_rules.along,
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
    """Products of all the others, found by division except where a factor is zero.

    With two zeros every such product is zero, but its derivative by the other zero is not: the
    other is written as the sum of both without this one. With three, that vanishes as well.
    """
    more = {"dim": dim, "reduce": "prod", "include_self": include_self}
    one = 1.0
    without_zero = where_op(x == 0, one, x)
    others = scatter_reduce_op(without_zero, src, index, **more)
    gx = g * _conj(others / without_zero)
    zero = src == 0
    zeros = scatter_add_op(zeros_of(x, x.shape), to_op(zero, dtype=_dtype(x)), index, dim=dim)
    count = gather_op(zeros, index, dim=dim)
    filled = where_op(zero, one, src)
    rest = gather_op(g * _conj(scatter_reduce_op(x, filled, index, **more)), index, dim=dim)
    alone = where_op(zero, src, 0.0)
    both = scatter_add_op(zeros_of(x, x.shape), alone, index, dim=dim)
    other = gather_op(both, index, dim=dim) - alone
    divided = gather_op(g * _conj(y), index, dim=dim) / _conj(filled)
    divided = where_op(zero & (count == 2), rest * _conj(other), divided)
    return gx, where_op(zero & (count == 1), rest, divided)


def _conj(x: Any) -> Any:
    return conj_op(x) if _dtype(x).kind == "c" else x


scatter_reduce_op = general(
    "scatter_reduce",
    _scatter_reduce,
    joint=_scatter_reduce_rule,
    names=("x", "src", "index"),
    promote="same",
    promote_args=(0, 1),
    narrow=True,
    samples=lambda m: [
        Sample(
            (m.real(4, 3), m.real(3, 3), np.array([[0, 3, 1], [0, 3, 3]])),
            {"dim": 0, "reduce": reduce, "include_self": include},
        )
        for reduce in ("sum", "prod", "mean", "amax", "amin")
        for include in (True, False)
    ],
    layout="rows or last",
    shape=shape_rules.same,
    batch=batch_rules.along,
)
scatter_reduce_op.edges = ("x", "src")


@api.both(out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
    d = api.wrap_dim(dim, input._a.ndim)
    if reduce not in UFUNCS:
        raise fail(
            RuntimeError,
            f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}",
        )
    _check_scatter(input, d, index, src)
    return scatter_reduce_op(input, src, index, dim=d, reduce=reduce, include_self=include_self)


for _function in (scatter, scatter_add, scatter_reduce):
    api.inplace(f"{_function.__name__}_", _function)

# --- masks -----------------------------------------------------------------------------


def _check_mask(mask: Tensor, name: str) -> None:
    if mask._a.dtype is not dt.BOOL and mask._a.dtype != bool:
        raise fail(RuntimeError, f"{name}: expected BoolTensor for mask, but got {mask.dtype.name}")


masked_fill_op: Op = linear(
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
    rows=True,
    shape=lambda x, value, mask: ShapeDtype(broadcast(x.shape, mask.shape), x.dtype),
    batch=batch_rules.elementwise,
)
masked_fill_op.edges = ("x", "value?")


@api.both
def masked_fill(input: Tensor, mask: Tensor, value: Any) -> Tensor:
    """A copy with one value where the mask is true.

    >>> scores = torch.tensor([1.0, 2.0, 3.0])
    >>> scores.masked_fill(torch.tensor([False, True, False]), float("-inf"))
    tensor([1., -inf, 3.])
    """
    if mask._a.dtype is not dt.BOOL and mask._a.dtype != bool:
        raise fail(
            RuntimeError,
            f"masked_fill_ only supports boolean masks, but got mask with dtype {mask.dtype.name}",
        )
    if value.__class__ is float and input._a.dtype is dt.F32 and -3e38 < value < 3e38:
        value = wrap(np.asarray(value, dt.F32))
    else:
        value = zero_dim(value, input, "masked_fill")
    return apply(masked_fill_op, (input, value, mask), {})


def _one_fill(self: Tensor, mask: Any, value: Any) -> Any:
    """``masked_fill_`` as an op, where the tensor has a history and all else is plain."""
    plain = isinstance(mask, Tensor) and mask.dtype is dt.bool_ and not isinstance(value, Tensor)
    if not (plain and MODES.now.grad and api.is_tracked(self)) or 0 in self.stride():
        return None
    return masked_fill_op, (self, zero_dim(value, self, "masked_fill"), mask), {}


api.inplace("masked_fill_", masked_fill, _one_fill)


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
masked_place_op: Op = linear(
    "masked_place",
    _masked_place,
    lambda g, mask: masked_select_op(g, mask),
    names=("g", "mask"),
    grad_name="MaskedScatterBackward",
    samples=lambda m: [Sample((m.real(2), np.array([[True, False], [False, True]])))],
    shape=lambda mask: mask.shape,
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
        raise fail(
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
    out = np.array(x, order="C")
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
    shape=shape_rules.same,
)


@api.both
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where the mask is true taken from a source, in order."""
    if source._a.dtype != input._a.dtype:
        raise fail(
            RuntimeError,
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype.name} and {source.dtype.name}",
        )
    _check_mask(mask, "masked_scatter")
    if mask._a.shape != input._a.shape:
        input, mask = _broadcast(input, mask)
    return masked_scatter_op(input, source, mask)


api.inplace("masked_scatter_", masked_scatter)
