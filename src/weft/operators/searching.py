"""Finding and counting: positions, distinct values, bins."""

from __future__ import annotations

import functools
import math
from typing import Any, NoReturn

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, foreign
from weft.core.devices import host
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api
from weft.operators.along import numpy_names, refuse, result_type
from weft.operators.arithmetic import fits_half
from weft.operators.build import constant, general, refusing
from weft.operators.outputs import C_NAMES

# --- positions -------------------------------------------------------------------------

nonzero_op = constant("nonzero", lambda x: np.argwhere(x.astype(bool, copy=False)))


@api.both
def nonzero(input: Tensor, *, out: Any = None, as_tuple: bool = False) -> Any:
    """The positions of elements that are not zero: rows of indices, or one tensor per dim."""
    if as_tuple and out is not None:
        raise RuntimeError(
            "nonzero does not support the out kwarg when as_tuple is True; leave one of them\n"
            f"  at {errors.here()}"
        )
    if as_tuple:
        return nonzero_op(input if input._a.ndim else input.reshape(1)).unbind(1)
    found = nonzero_op(input)
    return found if out is None else api.into(out, found, "nonzero", input)


@api.both(out=True)
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """The first ``size`` positions of elements that are not zero, filled up if there are fewer."""
    if size < 0:
        raise RuntimeError(
            f"nonzero_static: 'size' must be an non-negative integer, not {size}\n"
            f"  at {errors.here()}"
        )
    return nonzero_static_op(input, size=size, fill_value=fill_value)


def _nonzero_static(x: np.ndarray, size: int, fill_value: int) -> np.ndarray:
    found = np.argwhere(x.astype(bool, copy=False))[:size]
    out = np.full((size, x.ndim), fill_value, np.int64)
    out[: len(found)] = found
    return out


nonzero_static_op = constant(
    "nonzero_static", _nonzero_static, shape=lambda x, size: ShapeDtype((size, x.ndim), dt.I64)
)


@api.both
def argwhere(input: Tensor) -> Tensor:
    """The positions of elements that are not zero, as rows of indices."""
    return nonzero_op(input)


def _isin(elements: np.ndarray, test: np.ndarray, invert: bool, assume_unique: bool) -> Any:
    return np.isin(elements, test, assume_unique=assume_unique, invert=invert)


def _check_isin(args: Any) -> None:
    for d in (getattr(x, "dtype", type(x)) for x in args):
        if d in (bool, complex) or getattr(d, "kind", "") == "c":
            raise RuntimeError(f"Unsupported input type encountered for isin(): {d}")


isin_op = constant(
    "isin",
    _isin,
    names=("elements", "test"),
    promote="compare",
    check=_check_isin,
    shape=lambda elements: elements.of(np.bool_),
)


@api.top(out=True)
def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """For each element, whether it is among the test elements."""
    foreign.refuse(elements, test_elements)
    return isin_op(elements, test_elements, invert=invert, assume_unique=assume_unique)


# --- distinct values -------------------------------------------------------------------


def _starts(x: np.ndarray, dim: int) -> np.ndarray:
    """Along a dimension, where a slice differs from the one before it."""
    rows = np.moveaxis(x, dim, 0)
    starts = np.ones(len(rows), bool)
    changed = rows[1:] != rows[:-1]
    starts[1:] = changed.reshape(len(changed), -1).any(1) if changed.size else False
    return starts


def _runs(
    x: np.ndarray, dim: int, slices: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first slices of runs of equal ones, the run of each slice, the runs' lengths."""
    starts = _starts(x, dim)
    first = np.flatnonzero(starts)
    counts = np.diff(np.append(first, len(starts)))
    return np.take(x, first, dim), np.cumsum(starts) - 1, counts


def _sorted_beside_nan(rows: np.ndarray) -> np.ndarray:
    """The order of rows, where at a NaN neither of two is less and the columns after it decide."""

    def compare(i: int, j: int) -> int:
        for a, b in zip(listed[i], listed[j], strict=True):
            if a < b:
                return -1
            if a > b:
                return 1
        return 0

    listed = rows.tolist()
    if len(rows) > 16:
        return np.array(sorted(range(len(rows)), key=functools.cmp_to_key(compare)))
    # Such an order is none: what comes out depends on the steps. These are the C++ library's.
    order: list[int] = []
    for i in range(len(rows)):
        at = len(order)
        if order and compare(i, order[0]) < 0:
            at = 0
        while at and compare(i, order[at - 1]) < 0:
            at -= 1
        order.insert(at, i)
    return np.array(order)


def _unique(
    x: np.ndarray, dim: int, slices: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = np.moveaxis(x, dim, 0)
    rows = rows.reshape(len(rows), math.prod(rows.shape[1:]))
    if rows.dtype.kind == "V":
        rows = rows.astype(np.float32)  # NumPy sorts NaN of its own types only
    if rows.shape[1] == 1 and not slices:
        order = np.argsort(rows[:, 0], kind="stable")
    elif rows.size and rows.dtype.kind == "f" and np.isnan(rows).any():
        order = _sorted_beside_nan(rows)
    elif rows.size:
        order = np.lexsort(rows.T[::-1])
    else:
        order = np.arange(len(rows))
    values, run, counts = _runs(np.take(x, order, dim), dim)
    inverse = np.empty(len(order), np.int64)
    inverse[order] = run
    return values, inverse, counts


_DISTINCT: dict[str, Any] = {
    "outputs": ("values", "inverse", "counts"),
    "constant_outputs": (1, 2),
    "samples": None,
}
unique_op = general("unique_dim", _unique, refusing("unique_dim"), **_DISTINCT)
unique_consecutive_op = general(
    "unique_consecutive", _runs, refusing("unique_consecutive"), **_DISTINCT
)


def _distinct(op: Any, input: Tensor, inverse: bool, counts: bool, dim: Any) -> Any:
    refuse("c", input, op.name)
    x = input
    if dim is None:
        found = op(x.reshape(-1), dim=0)
    else:
        d = api.wrap_dim(dim, x._a.ndim)
        if any(not n for k, n in enumerate(x._a.shape) if k != d):
            raise RuntimeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                f"applied\n  at {errors.here()}"
            )
        found = op(x, dim=d, slices=True)
    places = found[1].reshape(x._a.shape) if dim is None else found[1]
    wanted = [found[0]] + [places] * bool(inverse) + [found[2]] * bool(counts)
    return wanted[0] if len(wanted) == 1 else tuple(wanted)


@api.both
@numpy_names
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: Any = None,
) -> Any:
    """The distinct elements in order, or the distinct slices along a dimension.

    >>> torch.unique(torch.tensor([3, 1, 3, 2]))
    tensor([1, 2, 3])
    >>> torch.unique(torch.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    return _distinct(unique_op, input, return_inverse, return_counts, dim)


@api.both
@numpy_names
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    """The first of each run of equal elements, or of equal slices along a dimension."""
    return _distinct(unique_consecutive_op, input, return_inverse, return_counts, dim)


# --- places in sorted sequences --------------------------------------------------------


def _searchsorted(boundaries: np.ndarray, values: np.ndarray, right: bool) -> np.ndarray:
    side: Any = "right" if right else "left"
    if boundaries.ndim == 1:
        return np.asarray(np.searchsorted(boundaries, values, side))
    if not boundaries.size or not values.size:
        return np.zeros(values.shape, np.int64)
    rows = boundaries.reshape(-1, boundaries.shape[-1])
    wanted = values.reshape(len(rows), -1)
    out = np.empty(wanted.shape, np.int64)
    for row, value, place in zip(rows, wanted, out, strict=True):
        place[...] = np.searchsorted(row, value, side)
    return out.reshape(values.shape)


searchsorted_op = constant(
    "searchsorted",
    _searchsorted,
    names=("boundaries", "values"),
    promote="compare",
    shape=lambda values: values.of(dt.I64),
)


def _check_search(sequence: Tensor, values: Tensor, right: bool, side: Any, name: str) -> bool:
    if side is not None and side not in ("left", "right"):
        raise RuntimeError(
            f"{name}(): side can only be 'left' or 'right' but got {side}\n  at {errors.here()}"
        )
    if side == "left" and right:
        raise RuntimeError(
            f"{name}(): side and right can't be set to opposites, got side of left while right "
            f"was True\n  at {errors.here()}"
        )
    lead = sequence._a.shape[:-1]
    if sequence._a.ndim != 1 and values._a.shape[:-1] != lead:
        raise RuntimeError(
            f"{name}(): boundaries tensor should be 1 dimension or the first N-1 dimensions of "
            f"boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(sequence._a.shape)} and input value tensor {list(values._a.shape)}\n"
            f"  at {errors.here()}"
        )
    return right or side == "right"


@api.top(out=True)
def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Tensor:
    """Where values would go in sorted rows so that these stay sorted."""
    foreign.refuse(input)
    values = input if isinstance(input, Tensor) else wrap(np.asarray(input))
    at_right = _check_search(sorted_sequence, values, right, side, "searchsorted")
    for what, given in (("input value", values), ("boundary", sorted_sequence)):
        if not given._a.flags.c_contiguous:
            errors.warn_once(
                f"torch.searchsorted(): {what} tensor is non-contiguous, which costs a copy; call "
                "contiguous() on it before many searches"
            )
    if sorter is not None:
        sorted_sequence = sorted_sequence.gather(-1, sorter)
    if sorted_sequence._a.dtype != values._a.dtype:
        common = dt.of_numpy(dt.result_dtype((sorted_sequence._a, values._a)))
        sorted_sequence, values = sorted_sequence.to(common), values.to(common)
    found = searchsorted_op(sorted_sequence, values, right=at_right)
    return found.to(dt.int32) if out_int32 else found


@api.top(out=True)
def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The number of the bucket of each value, by the buckets' boundaries."""
    if boundaries._a.ndim != 1:
        raise RuntimeError(
            f"bucketize(): boundaries tensor must be 1 dimension, but got dim("
            f"{boundaries._a.ndim})\n  at {errors.here()}"
        )
    return searchsorted(boundaries, input, out_int32=out_int32, right=right)


# --- counting in bins ------------------------------------------------------------------


@api.both
def bincount(input: Tensor, weights: Any = None, minlength: int = 0) -> Tensor:
    """How often each non-negative integer occurs, or the sum of its weights."""
    x = input._a
    refuse("bfcV", input, "bincount_cpu")
    if x.ndim != 1 or (x.size and host(input).min() < 0):
        raise RuntimeError(
            "bincount only supports 1-d non-negative integral inputs. This one is "
            f"{errors.describe(input)}\n  at {errors.here()}"
        )
    if minlength < 0:
        raise RuntimeError(f"minlength should be >= 0, not {minlength}\n  at {errors.here()}")
    if weights is None:
        return bincount_op(input, minlength=minlength)
    if weights._a.shape != x.shape:
        raise RuntimeError(
            f"weights should be 1-d and have the same length as input\n  at {errors.here()}"
        )
    return bincount_op(input, weights.detach(), minlength=minlength)


def _bincount(x: np.ndarray, weights: Any = None, minlength: int = 0) -> np.ndarray:
    if x.size and x.dtype.kind in "iu" and int(x.max()) >= 2**62:
        # NumPy adds one to the largest, and corrupts its memory where that overflows.
        raise ValueError(f"no memory for the counts of numbers up to {int(x.max())}")
    counts = np.bincount(x, weights, minlength)
    return counts if weights is None or weights.dtype != dt.F32 else counts.astype(dt.F32)


bincount_op = constant("bincount", _bincount, names=("x", "weights"))


def _limits(
    x: np.ndarray, low: float, high: float, dim: int | None, margin: float = 0.5
) -> tuple[float, float]:
    """The range of a histogram: as given, or that of the data; never of no width."""
    if low == high and x.size:
        low, high = float(x.min()), float(x.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        start = "torch.histc: range of" if dim is None else "torch.histogramdd: "
        start += "" if dim is None else f"dimension {dim}'s range"
        raise RuntimeError(f"{start} [{low}, {high}] is not finite")
    if low > high:
        raise RuntimeError(f"max must be larger than min, not {high} < {low}")
    return (low - margin, high + margin) if low == high else (low, high)


def _histc(x: np.ndarray, bins: int, low: float, high: float) -> np.ndarray:
    flat = x.reshape(-1)
    if low == high or not (math.isfinite(low) and math.isfinite(high)):
        low, high = _limits(flat, low, high, None, margin=0)
    kind = x.dtype.type
    start, stop = kind(low), kind(high)
    if low == high:
        # A step of one, or the distance to the next representable number where that is larger.
        one, far = kind(1), kind(math.inf)
        start = min(start - one, np.nextafter(start, -far))
        stop = max(stop + one, np.nextafter(stop, far))
    width = stop - start
    if not np.isfinite(width):
        return np.zeros(bins, x.dtype)
    inside = flat[(flat >= start) & (flat <= stop)]
    places = ((inside - start) * kind(bins) / width).astype(np.int64)
    # Where the product overflows, or limits are equal in this dtype, the conversion gives the
    # least integer.
    counts = np.bincount(np.clip(places, 0, bins - 1), minlength=bins)
    return counts.astype(x.dtype)


# Half types are not widened: the bin of a value on a boundary depends on the rounding.
histc_op = constant("histc", _histc, shape=lambda x, bins: (bins,))


@api.both(out=True)
def histc(input: Tensor, bins: int = 100, min: Any = 0, max: Any = 0) -> Tensor:
    """Counts in bins of equal width between two limits."""
    refuse("iubc", input, "histogram_cpu")
    if bins <= 0:
        raise RuntimeError(f"bins must be > 0, but got {bins} for histc\n  at {errors.here()}")
    if min > max:
        raise RuntimeError(f"histc: max must be larger than min\n  at {errors.here()}")
    if input._a.dtype in dt.HALF:
        fits_half(input._a.dtype, min)
        fits_half(input._a.dtype, max)
    return histc_op(input, bins=bins, low=min, high=max)


def _edges(low: float, high: float, bins: int, d: np.dtype) -> np.ndarray:
    """Boundaries of equal bins, built from both ends so that they are symmetric."""
    step = (d.type(high) - d.type(low)) / d.type(bins)
    index = np.arange(bins + 1)
    rising = d.type(low) + step * index.astype(d)
    falling = d.type(high) - step * (bins - index).astype(d)
    return np.where(index < (bins + 1) // 2, rising, falling).astype(d)


def _histogram(x: np.ndarray, weight: Any, *edges: np.ndarray, density: bool) -> np.ndarray:
    """Counts (or sums of weights) of points, one row each, in a grid of bins."""
    points = x
    sizes = tuple(len(e) - 1 for e in edges)
    inside = np.ones(len(points), bool)
    places = []
    for k, edge in enumerate(edges):
        column = points[:, k]
        place = np.searchsorted(edge, column, "right") - 1
        place[column == edge[-1]] = sizes[k] - 1
        inside &= (column >= edge[0]) & (column <= edge[-1])
        places.append(place)
    flat = np.ravel_multi_index([p[inside] for p in places], sizes)
    weights = None if weight is None else weight.reshape(-1)[inside].astype(np.float64)
    counts = np.bincount(flat, weights, int(np.prod(sizes))).reshape(sizes).astype(x.dtype)
    if density:
        counts = counts / counts.sum()
        for k, edge in enumerate(edges):
            shape = [1] * len(edges)
            shape[k] = -1
            counts = counts / np.diff(edge).reshape(shape)
    return counts


histogram_op = general(
    "histogram",
    _histogram,
    joint=refusing("histogram"),
    names=("x", "weight"),
    samples=None,
    shape=lambda x, rest: tuple(edge.shape[0] - 1 for edge in rest),
)
_histogram_result = result_type("histogram", "hist", "bin_edges")
_histogramdd_result = result_type("histogramdd", "hist", "bin_edges")


def _check_histogram(input: Tensor, bins: Any, range: Any, weight: Any) -> None:
    """What PyTorch refuses; the input has a row for each point."""
    count = len(bins)

    def fail(message: str) -> NoReturn:
        raise RuntimeError(f"torch.histogramdd: {message}\n  at {errors.here()}")

    for k, given in enumerate(bins):
        if not isinstance(given, Tensor):
            if api.whole(given, "histogram", "bins") <= 0:
                raise RuntimeError(
                    f"torch.histogram(): bins must be > 0, but got {given} for dimension {k}\n"
                    f"  at {errors.here()}"
                )
            continue
        if given._a.dtype != input._a.dtype:
            fail(
                "input tensor and bins tensors should have the same dtype, but got input with "
                f"dtype {C_NAMES[input.dtype.name]} and bins for dimension {k} with dtype "
                f"{C_NAMES.get(given.dtype.name, given.dtype)}"
            )
        if given._a.ndim != 1:
            fail(
                f"bins tensor should have one dimension, but got {given._a.ndim} dimensions in "
                f"the bins tensor for dimension {k}"
            )
        if not given._a.size:
            fail(
                "bins tensor should have at least 1 element, but got 0 elements in the bins "
                f"tensor for dimension {k}"
            )
    if weight is not None:
        if weight._a.dtype != input._a.dtype:
            fail(
                "if weight tensor is provided, input tensor and weight tensor should have the "
                f"same dtype, but got input({input.dtype}), and weight({weight.dtype})"
            )
        if weight._a.size != input._a.shape[0]:
            fail(
                "if weight tensor is provided it should have the same shape as the input tensor "
                "excluding its innermost dimension, but got input with shape "
                f"{list(input._a.shape)} and weight with shape {list(weight._a.shape)}"
            )
    if range is None:
        return
    if len(range) != 2 * count:
        fail(
            f"for a {count}-dimensional histogram range should have {2 * count} elements, but "
            f"got {len(range)}"
        )
    for k, (low, high) in enumerate(zip(range[::2], range[1::2], strict=True)):
        if not (math.isfinite(low) and math.isfinite(high)):
            fail(f"dimension {k}'s range [{low}, {high}] is not finite")
        if low > high:
            fail(f"min should not exceed max, but got min {low} max {high} for dimension {k}")


def _bin_edges(input: Tensor, bins: Any, range: Any) -> list[Tensor]:
    """Boundaries for each column of the points, from counts, from tensors, or by range."""
    points = host(input)
    edges = []
    for k, given in enumerate(bins):
        if isinstance(given, Tensor):
            edges.append(given.clone())  # they are part of the result
            continue
        if range is None:
            empty = not len(points)
            low, high = (0.0, 1.0) if empty else _limits(points[:, k], 0.0, 0.0, k)
        else:
            low, high = _limits(points[:0, k], range[2 * k], range[2 * k + 1], k)
        edges.append(beside(input, _edges(low, high, int(given), input.dtype.np)))
    return edges


@api.both
def histogram(
    input: Tensor,
    bins: Any = 100,
    *,
    range: Any = None,
    weight: Any = None,
    density: bool = False,
    out: Any = None,
) -> Any:
    """Counts of all elements in bins, and the bins' boundaries."""
    refuse("iubc", input, "histogram")
    if isinstance(bins, Tensor) and range is not None:
        raise TypeError(
            "histogram() received an invalid combination of arguments: a range goes with a number "
            f"of bins, not with their edges\n  at {errors.here()}"
        )
    flat = input.reshape((-1, 1))
    _check_histogram(flat, (bins,), range, weight)
    (edges,) = _bin_edges(flat, (bins,), range)
    found = _histogram_result(histogram_op(flat, weight, edges, density=density), edges)
    return found if out is None else api.into(out, found, "histogram", input)


@api.top
def histogramdd(
    input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    """Counts of points (the last dimension) in a grid of bins, and the bins' boundaries."""
    refuse("iubc", input, "histogramdd")
    if input._a.ndim < 2:
        raise RuntimeError(
            f"torch.histogramdd: input tensor should have at least 2 dimensions\n"
            f"  at {errors.here()}"
        )
    columns = input._a.shape[-1]
    many = (bins,) * columns if isinstance(bins, int) else tuple(bins)
    if len(many) != columns:
        raise RuntimeError(
            "histogramdd: The size of bins must be equal to the innermost dimension of the input, "
            f"{columns}, not {len(many)}\n  at {errors.here()}"
        )
    points = input.reshape((math.prod(input._a.shape[:-1]), columns))
    _check_histogram(points, many, range, weight)
    if not columns:
        empty = wrap(np.asarray(np.nan if density else 0.0, input._a.dtype))
        return _histogramdd_result(empty, ())
    edges = _bin_edges(points, many, range)
    counts = histogram_op(points, weight, *edges, density=density)
    # As in PyTorch: given boundaries are returned unchanged, unlike those of ``histogram``.
    given = (b if isinstance(b, Tensor) else e for b, e in zip(many, edges, strict=True))
    return _histogramdd_result(counts, tuple(given))
