"""Order along a dimension: sorts, the greatest few, medians, modes, quantiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import host
from weft.core.dispatch import apply
from weft.core.tensor import Tensor, beside
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import (
    dropped_shape,
    kept_shape,
    numpy_names,
    put_along_op,
    refuse,
    result_type,
    take_along_op,
    taken,
)
from weft.operators.build import Sample, general
from weft.operators.reductions import pick_samples, refuse_empty, row_pick, whole_pick
from weft.references import selecting

new_tuple = tuple.__new__

# --- sort ------------------------------------------------------------------------------


def order_of(x: np.ndarray, dim: int, descending: bool = False) -> np.ndarray:
    """The indices that sort rows, equal elements in their old order; NaN is the greatest."""
    if not descending:
        return x.argsort(dim, "stable")
    # Sorting the reversed row and reversing again keeps the old order of equal elements.
    reverse = (*(slice(None),) * dim, slice(None, None, -1))
    backward = x[reverse].argsort(dim, "stable")[reverse]
    return x.shape[dim] - 1 - backward


def _sort(x: np.ndarray, dim: int, descending: bool) -> tuple[np.ndarray, np.ndarray]:
    if not x.ndim:
        return x.copy(), np.zeros((), np.int64)
    order = order_of(x, dim, descending)
    return taken(x, order, dim), order


def _places_rule(g: Any, indices: Any, x_shape: Any, dim: int) -> Any:
    return put_along_op(g[0], indices, dim=dim, shape=x_shape, unique=True)


def _places_jvp(t: Any, indices: Any, dim: int) -> Any:
    return take_along_op(t, indices, dim=dim, unique=True), None


sort_op = general(
    "sort",
    _sort,
    _places_rule,
    jvp=(_places_jvp,),
    outputs=("values", "indices"),
    constant_outputs=(1,),
    promote="same",
    layout="operands",
    samples=lambda m: [
        Sample((m.real(2, 3),), {"dim": 1, "descending": False}),
        Sample((m.real(3, 2),), {"dim": 0, "descending": True}),
        Sample((m.real(),), {"dim": 0, "descending": False}),
        Sample((m.real(0, 3),), {"dim": 0, "descending": False}),
    ],
    shape=lambda x: [x.of(x.dtype), x.of(dt.I64)],
    batch=batch_rules.along,
)
_sort_result = result_type("sort", "values", "indices")


@api.both(out=True)
@numpy_names
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """Sorted rows, and where their elements were. Always stable; NaN counts as greatest."""
    refuse("c", input, "sort")
    d = api.wrap_dim(dim, input._a.ndim)
    attrs = {"dim": d, "descending": bool(descending)}
    return _sort_result(*apply(sort_op, (input,), attrs))


@api.both
@numpy_names
def argsort(
    input: Tensor, dim: int = -1, descending: bool = False, *, stable: bool = False
) -> Tensor:
    """The indices that sort rows."""
    return sort(input.detach(), dim, descending).indices


@api.both(out=True)
def msort(input: Tensor) -> Tensor:
    """Sorted along the first dimension."""
    return sort(input, 0).values


# --- the greatest or smallest few ------------------------------------------------------

# Up to so many elements of rows with ties the index of a tie is PyTorch's, found step by step.
TIED = 1 << 16


def _topk(
    x: np.ndarray, k: int, dim: int, largest: bool, sorted: bool
) -> tuple[np.ndarray, np.ndarray]:
    if not x.ndim:
        return x.copy(), np.zeros((), np.int64)
    n = x.shape[dim]
    front = (slice(None),) * dim
    if 0 < k * 8 < n:
        # Only the chosen few need to be put in order.
        chosen = np.argpartition(x, n - k if largest else k - 1, axis=dim)
        chosen = chosen[(*front, slice(n - k, n) if largest else slice(k))]
        chosen = np.sort(chosen, axis=dim)
        order = order_of(taken(x, chosen, dim), dim, largest)
        index = taken(chosen, order, dim)
    else:
        index = order_of(x, dim, largest)[(*front, slice(k))]
        index = np.ascontiguousarray(index)
    values = taken(x, index, dim)
    rows = np.argwhere(selecting.tied(x, values, dim)) if k else ()
    if 0 < len(rows) * n <= TIED:
        every, found = np.moveaxis(x, dim, -1), np.moveaxis(index, dim, -1)
        for row in map(tuple, rows):
            found[row] = selecting.top(every[row], k, largest)
        values = taken(x, index, dim)  # zeros of either sign are equal too
    return values, index


topk_op = general(
    "topk",
    _topk,
    _places_rule,
    jvp=(_places_jvp,),
    outputs=("values", "indices"),
    constant_outputs=(1,),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 4),), {"k": 2, "dim": 1, "largest": True, "sorted": True}),
        Sample((m.real(20, 2),), {"k": 2, "dim": 0, "largest": False, "sorted": True}),
        Sample((m.real(),), {"k": 1, "dim": 0, "largest": True, "sorted": True}),
    ],
    shape=lambda x, k, dim: shape_rules.with_indices(shape_rules.replaced(x.shape, dim, k), x),
    batch=batch_rules.along,
)
_topk_result = result_type("topk", "values", "indices")


@api.both(out=True)
@numpy_names
def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The ``k`` greatest (or smallest) elements of each row, and their indices.

    >>> values, indices = torch.topk(torch.tensor([0.1, 0.7, 0.2]), k=2)
    >>> values
    tensor([0.7000, 0.2000])
    >>> indices
    tensor([1, 2])
    """
    refuse("bc", input, "topk")
    if isinstance(dim, bool):
        raise TypeError(f"topk(): argument 'dim' must be int, not bool\n  at {errors.here()}")
    d, k = api.wrap_dim(dim, input._a.ndim), api.whole(k, "topk", "k")
    if not 0 <= k <= (input._a.shape[d] if input._a.ndim else 1):
        raise RuntimeError(
            f"topk: selected index k out of range: k is {k}, the shape is "
            f"{list(input._a.shape)} and the dimension {d}\n  at {errors.here()}"
        )
    attrs = {"k": k, "dim": d, "largest": bool(largest), "sorted": bool(sorted)}
    return new_tuple(_topk_result, apply(topk_op, (input,), attrs))


def _kth_index(x: np.ndarray, dim: int, k: int) -> np.ndarray:
    index = order_of(x, dim)[(slice(None),) * dim + (slice(k - 1, k),)]
    if not index.size:
        return index
    same = x == taken(x, index, dim)
    tied = np.moveaxis(np.add.reduce(same, axis=dim, dtype=np.int64, keepdims=True), dim, -1) != 1
    rows = np.argwhere(tied[..., 0])
    if len(rows):
        index = np.array(index)
        values, found = np.moveaxis(x, dim, -1), np.moveaxis(index, dim, -1)
        for row in map(tuple, rows):
            found[row] = _quickselect(values[row].tolist(), k - 1)
    return index


def _quickselect(row: list[Any], k: int) -> int:
    """The index of what comes to rank k by Hoare's partitions about medians of three."""

    def after(a: Any, b: Any) -> bool:
        return (a != a and b == b) or a > b  # NaN comes last

    def swap(i: int, j: int) -> None:
        row[i], row[j], places[i], places[j] = row[j], row[i], places[j], places[i]

    places = list(range(len(row)))
    low, high = 0, len(row) - 1
    while high > low:
        if high == low + 1:
            if after(row[low], row[high]):
                swap(low, high)
            break
        swap(low + (high - low) // 2, low + 1)
        for i, j in ((low + 1, high), (low, high), (low + 1, low)):
            if after(row[i], row[j]):
                swap(i, j)
        i, j, pivot = low + 1, high, row[low]
        while True:
            i += 1
            while after(pivot, row[i]):
                i += 1
            j -= 1
            while after(row[j], pivot):
                j -= 1
            if j < i:
                break
            swap(i, j)
        swap(low, j)
        low, high = i if j <= k else low, j - 1 if j >= k else high
    return places[k]


kthvalue_op = row_pick(
    "kthvalue", _kth_index, "KthvalueBackward", samples=lambda m: pick_samples(m, k=1)
)
_kthvalue_result = result_type("kthvalue", "values", "indices")


@api.both(out=True)
@numpy_names
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """The ``k``-th smallest element of each row, and its index."""
    refuse("cb", input, "kthvalue")
    d, k = api.wrap_dim(dim, input._a.ndim), api.whole(k, "kthvalue", "k")
    refuse_empty(input, (d,), "kthvalue")
    if not 1 <= k <= (input._a.shape[d] if input._a.ndim else 1):
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {d}: {k}\n"
            f"  at {errors.here()}"
        )
    return _kthvalue_result(*kthvalue_op(input, k=k, dim=d, keepdim=keepdim))


# --- median and mode -------------------------------------------------------------------


def _is_nan(x: np.ndarray) -> np.ndarray:
    return x != x  # true of NaN only, in every dtype


def _median_index(x: np.ndarray, dim: int) -> np.ndarray:
    middle = (slice(None),) * dim + (slice((x.shape[dim] - 1) // 2, (x.shape[dim] + 1) // 2),)
    index = order_of(x, dim)[middle]
    missing = _is_nan(x)
    if missing.any():
        first = np.argmax(missing, dim, keepdims=True)
        index = np.where(missing.any(axis=dim, keepdims=True), first, index)
    return index


def _nanmedian_index(x: np.ndarray, dim: int) -> np.ndarray:
    present = x.shape[dim] - np.add.reduce(_is_nan(x), axis=dim, keepdims=True)
    return taken(order_of(x, dim), np.maximum(present - 1, 0) // 2, dim)


def _whole(index_of: Any, ignores_nan: bool) -> Any:
    def reference(x: np.ndarray) -> np.ndarray:
        if not x.size:
            return np.asarray(np.nan if x.dtype.kind == "f" else np.iinfo(x.dtype).min, x.dtype)
        flat = x.reshape(-1)
        if x.dtype.kind not in "fiu":  # types that NumPy has no partition for
            return flat[index_of(flat, 0)[0]]
        missing = int(np.count_nonzero(_is_nan(flat)))
        if missing and (not ignores_nan or missing == flat.size):
            return flat[np.argmax(_is_nan(flat))]
        middle = (flat.size - missing - 1) // 2
        return np.partition(flat, middle)[middle]  # where NaN comes last

    return reference


median_op = whole_pick("median", _whole(_median_index, False), "MedianBackward")
median_dim_op = row_pick("median_dim", _median_index, "MedianBackward", 1)
nanmedian_op = whole_pick("nanmedian", _whole(_nanmedian_index, True), "NanmedianBackward")
nanmedian_dim_op = row_pick("nanmedian_dim", _nanmedian_index, "NanmedianBackward", 1)


def _public_median(name: str, whole: Any, rows: Any, text: str) -> Any:
    result = result_type(name, "values", "indices")

    def function(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
        refuse("cb", input, name)
        if dim is None:
            return whole(input)
        d = api.wrap_dim(dim, input._a.ndim)
        refuse_empty(input, (d,), name)
        return result(*rows(input, dim=d, keepdim=keepdim))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return api.both(numpy_names(function), out=True)


median = _public_median(
    "median", median_op, median_dim_op, "The lower median of all elements, or of each row."
)
nanmedian = _public_median(
    "nanmedian", nanmedian_op, nanmedian_dim_op, "The lower median of what is not NaN."
)


def _mode_index(x: np.ndarray, dim: int) -> np.ndarray:
    order = np.moveaxis(order_of(x, dim), dim, -1)
    if not order.size:
        return np.zeros((*x.shape[:dim], 1, *x.shape[dim + 1 :]), np.int64)
    rows = taken(np.moveaxis(x, dim, -1), order, -1)
    positions = np.arange(rows.shape[-1])
    starts = np.ones(rows.shape, bool)
    starts[..., 1:] = rows[..., 1:] != rows[..., :-1]
    lengths = positions - np.maximum.accumulate(np.where(starts, positions, 0), -1)
    # The first place at which the greatest length is reached ends the run of the mode.
    last = np.argmax(lengths, -1, keepdims=True)
    index = taken(order, last, -1)
    missing = _is_nan(rows[..., -1])
    if missing.any() and rows.shape[-1] <= 16:
        lines = np.moveaxis(x, dim, -1)
        for row in map(tuple, np.argwhere(missing)):
            index[row] = _mode_beside_nan(lines[row].tolist())
    return np.moveaxis(index, -1, dim)


def _mode_beside_nan(row: list[Any]) -> int:
    """NaN has no place in an order; this is where C++'s sort of few elements leaves it."""
    order: list[int] = []
    for i, value in enumerate(row):
        at = 0 if order and value < row[order[0]] else len(order)
        while at and value < row[order[at - 1]]:
            at -= 1
        order.insert(at, i)
    best = length = most = 0
    for n, i in enumerate(order):
        length += 1
        if n == len(order) - 1 or row[i] != row[order[n + 1]]:
            if length > most:
                best, most = i, length
            length = 0
    return best


mode_op = row_pick("mode", _mode_index, "ModeBackward")
_mode_result = result_type("mode", "values", "indices")


@api.both(out=True)
@numpy_names
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value of each row (the least of several), and an index of it."""
    refuse("c", input, "mode")
    d = api.wrap_dim(dim, input._a.ndim)
    refuse_empty(input, (d,), "mode")
    return _mode_result(*mode_op(input, dim=d, keepdim=keepdim))


# --- quantiles -------------------------------------------------------------------------

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(input: Tensor, q: Any, interpolation: str, name: str) -> Tensor:
    if input._a.dtype not in (np.float32, np.float64):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype, not {input.dtype}\n"
            f"  at {errors.here()}"
        )
    if not input._a.size:
        raise RuntimeError(f"{name}() input tensor must be non-empty\n  at {errors.here()}")
    if interpolation not in INTERPOLATIONS:
        raise RuntimeError(
            f"{name}() interpolation must be one of {', '.join(INTERPOLATIONS)}, but got "
            f"{interpolation}\n  at {errors.here()}"
        )
    if not isinstance(q, Tensor):
        if not 0 <= q <= 1:
            raise RuntimeError(
                f"{name}() q must be in the range [0, 1] but got {q}\n  at {errors.here()}"
            )
        return beside(input, np.asarray(q, input.dtype.np))
    if q._a.ndim > 1 or q._a.dtype != input._a.dtype:
        raise RuntimeError(
            f"{name}() q must be a scalar or 1D tensor of the input's dtype, not "
            f"{errors.describe(q)}\n  at {errors.here()}"
        )
    if q._a.size and not q.is_meta and not (np.all(host(q) >= 0) and np.all(host(q) <= 1)):
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]\n  at {errors.here()}")
    return q


def _quantile(
    input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Tensor:
    name = "nanquantile" if ignore_nan else "quantile"
    q = _check_quantile(input, q, interpolation, name)
    rank, shape = input._a.ndim, input._a.shape
    d = None if dim is None else api.wrap_dim(dim, rank)
    rows = input.reshape(-1) if d is None or not rank else input.movedim(d, -1)
    n = rows._a.shape[-1]
    rows = sort(rows, -1).values
    missing = rows != rows  # the NaNs
    if ignore_nan:
        last = (n - 1 - missing.sum(-1, keepdim=True)).clamp(min=0)
        ranks = q.reshape(-1) * last.to(input.dtype)
    else:
        # A row with a NaN ends with one, and gives it.
        ranks = (q * (n - 1)).reshape(-1)
        ranks = ranks.masked_fill(missing.any(-1, keepdim=True), n - 1)
    out = _between(rows, ranks, interpolation).movedim(-1, 0)
    if keepdim:
        lead = (1,) * rank if d is None else kept_shape(shape, (d,))
    else:
        lead = () if d is None else dropped_shape(shape, d)
    return out.reshape((*q._a.shape, *lead))


def _between(rows: Tensor, ranks: Tensor, interpolation: str) -> Tensor:
    """The values of sorted rows at fractional ranks."""
    ranks = ranks.expand((*rows._a.shape[:-1], ranks._a.shape[-1]))
    if interpolation == "lower":
        ranks = ranks.floor()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    elif interpolation == "nearest":
        ranks = ranks.round()
    below = ranks.detach().long()
    low = take_along_op(rows, below, dim=rows._a.ndim - 1, unique=False)
    if interpolation not in ("linear", "midpoint"):
        return low
    above = ranks.detach().ceil().long()
    high = take_along_op(rows, above, dim=rows._a.ndim - 1, unique=False)
    weight = 0.5 if interpolation == "midpoint" else ranks - below.to(ranks.dtype)
    return low.lerp(high, weight)


@api.both(out=True)
@numpy_names
@api.no_view
def quantile(
    input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The ``q``-th quantile of each row, ``q`` between 0 and 1."""
    return _quantile(input, q, dim, keepdim, interpolation, False)


@api.both(out=True)
@numpy_names
@api.no_view
def nanquantile(
    input: Tensor, q: Any, dim: Any = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """The ``q``-th quantile of each row, ignoring NaN."""
    return _quantile(input, q, dim, keepdim, interpolation, True)
