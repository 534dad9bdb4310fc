"""Running sums and products, differences, and integrals by the trapezoid rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.dispatch import Op, apply_one
from weft.core.meta import lacks_values
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import numpy_names, put_along_op, refuse, result_type, take_along_op
from weft.operators.arithmetic import conj_op, where_op
from weft.operators.build import Make, Sample, constant, general, linear
from weft.operators.pairwise import complex_logaddexp
from weft.operators.pointwise import exp_op
from weft.operators.views import cat_op, reshape_op, slice_op, zeros_of


def along(dim: int, start: Any = None, stop: Any = None, step: Any = None) -> tuple[Any, ...]:
    """A basic index that selects a range of one dimension."""
    return (slice(None),) * dim + (slice(start, stop, step),)


def flipped(x: Any, dim: int) -> Any:
    """The elements along a dimension in the opposite order."""
    return slice_op(x, index=along(dim, step=-1))


def shifted(x: Any, dim: int, first: float) -> Any:
    """Each element replaced by the one before it; the first by a constant."""
    shape = (*x.shape[:dim], 1, *x.shape[dim + 1 :])
    return cat_op(zeros_of(x, shape) + first, slice_op(x, index=along(dim, stop=-1)), dim=dim)


def _with_dim(function: Any) -> Any:
    """Lift a function along a dimension to zero-dim arrays."""

    def lifted(*arrays: np.ndarray, **attrs: Any) -> Any:
        if arrays[0].ndim:
            return function(*arrays, **attrs)
        out = function(*(a.reshape(1) for a in arrays), **attrs)
        return tuple(o.reshape(()) for o in out) if isinstance(out, tuple) else out.reshape(())

    return lifted


def _scan_samples(m: Make) -> list[Sample]:
    return [
        Sample((m.real(2, 3),), {"dim": 1}),
        Sample((m.real(3, 2),), {"dim": 0}),
        Sample((m.real(0, 2),), {"dim": 0}),
        Sample((m.real(),), {"dim": 0}),
    ]


def _accumulating(input: Tensor, dtype: Any, name: str) -> Tensor:
    """The input in the type that sums and products are formed in."""
    if dtype is not None:
        input = input.to(dtype)
        refuse("b", input, f"{name}_out_cpu")
        return input
    return input.to(dt.int64) if input._a.dtype.kind in "iub" else input


# --- sums ------------------------------------------------------------------------------


# What running sums and products of a type are formed in.
_WIDER = {dt.F16: dt.F32, dt.BF16: dt.F32, dt.F32: dt.F64, dt.C64: dt.C128}


def _accumulated(ufunc: np.ufunc, x: np.ndarray, dim: int) -> np.ndarray:
    """Running results in the type of the input: NumPy would widen small integers."""
    wide = _WIDER.get(x.dtype)
    if wide is None:
        return ufunc.accumulate(x, dim, x.dtype)
    return ufunc.accumulate(x, dim, wide).astype(x.dtype)


@_with_dim
def _cumsum(x: np.ndarray, dim: int, reverse: bool) -> np.ndarray:
    if reverse:
        return np.flip(_accumulated(np.add, np.flip(x, dim), dim), dim)
    return _accumulated(np.add, x, dim)


cumsum_op: Op = linear(
    "cumsum",
    _cumsum,
    lambda g, dim, reverse: cumsum_op(g, dim=dim, reverse=not reverse),
    promote="same",
    narrow=True,
    samples=lambda m: [
        Sample((m.real(2, 3),), {"dim": 1, "reverse": False}),
        Sample((m.real(3, 2),), {"dim": 0, "reverse": True}),
        Sample((m.real(),), {"dim": 0, "reverse": False}),
        Sample((m.real(0, 2),), {"dim": 1, "reverse": False}),
    ],
    rows=True,
    shape=shape_rules.same,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along a dimension."""
    d = api.wrap_dim(dim, input._a.ndim)
    if dtype is not None or input._a.dtype.kind in "iub":
        input = _accumulating(input, dtype, "cumsum")
    return apply_one(cumsum_op, input, {"dim": d, "reverse": False})


# --- linear recurrences: what derivatives of running products are made of ---------------


@_with_dim
def _recurrence(a: np.ndarray, b: np.ndarray, dim: int) -> np.ndarray:
    out = np.array(b)
    rows, factors = np.moveaxis(out, dim, 0), np.moveaxis(a, dim, 0)
    for i in range(1, len(rows)):
        rows[i] += factors[i] * rows[i - 1]
    return out


def _recurrence_back(g: Any, a: Any, dim: int) -> Any:
    """The gradient of ``b``: the same recurrence, run from the end."""
    factors = flipped(conj_op(a), dim)
    return flipped(recurrence_op(shifted(factors, dim, 0.0), flipped(g, dim), dim=dim), dim)


# y[i] = a[i] * y[i - 1] + b[i], where a[0] is not used. Its derivatives are of its own kind.
recurrence_op = general(
    "recurrence",
    _recurrence,
    lambda g, a, y, dim: _recurrence_back(g, a, dim) * conj_op(shifted(y, dim, 0.0)),
    lambda g, a, dim: _recurrence_back(g, a, dim),
    names=("a", "b"),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 4), m.real(2, 4)), {"dim": 1}),
        Sample((m.real(3, 2), m.real(3, 2)), {"dim": 0}),
    ],
    shape=lambda b: shape_rules.preserved(b),
    batch=batch_rules.along,
)

# --- products --------------------------------------------------------------------------

has_zero_op = constant(
    "has_zero", lambda x: np.asarray(np.any(x == 0)), shape=lambda: ShapeDtype((), np.bool_)
)


def _cumprod_rule(g: Any, x: Any, y: Any, dim: int) -> Any:
    if not x.shape or x.shape[dim] == 1 or 0 in x.shape:
        return g
    if not lacks_values(x) and not has_zero_op(x):
        return cumsum_op(g * conj_op(y), dim=dim, reverse=True) / conj_op(x)
    return _recurrence_back(g, x, dim) * conj_op(shifted(y, dim, 1.0))


cumprod_op = general(
    "cumprod",
    _with_dim(lambda x, dim: _accumulated(np.multiply, x, dim)),
    _cumprod_rule,
    promote="same",
    narrow=True,
    samples=lambda m: [
        *_scan_samples(m),
        Sample((np.array([[1.5, 0.0, 2.0, -1.0], [0.0, 0.5, 0.0, 2.0]]),), {"dim": 1}),
    ],
    rows=True,
    shape=shape_rules.same,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along a dimension."""
    return cumprod_op(_accumulating(input, dtype, "cumprod"), dim=api.wrap_dim(dim, input._a.ndim))


api.inplace("cumsum_", cumsum)
api.inplace("cumprod_", cumprod)


def products_of_others(x: Any, dim: tuple[int, ...]) -> Any:
    """For each element the product of all others along the dimensions; zeros do no harm."""
    if len(dim) != 1 or not x.shape:
        flat = reshape_op(x, shape=(int(np.prod(x.shape)),))
        return reshape_op(products_of_others(flat, (0,)), shape=x.shape)
    (d,) = dim
    before = cumprod_op(shifted(x, d, 1.0), dim=d)
    after = flipped(cumprod_op(shifted(flipped(x, d), d, 1.0), dim=d), d)
    return before * after


# --- running extremes ------------------------------------------------------------------


def _running(ufunc: Any) -> Any:
    @_with_dim
    def reference(x: np.ndarray, dim: int) -> tuple[np.ndarray, np.ndarray]:
        values = ufunc.accumulate(x, dim)
        shape = [1] * x.ndim
        shape[dim] = x.shape[dim]
        positions = np.arange(x.shape[dim]).reshape(shape)
        reached = (x == values) | (x != x)  # a NaN is a new extreme
        return values, np.maximum.accumulate(np.where(reached, positions, 0), dim)

    return reference


def _running_extreme(name: str, ufunc: Any) -> Op:
    return general(
        name,
        _running(ufunc),
        lambda g, indices, x_shape, dim: put_along_op(
            g[0], indices, dim=dim, shape=x_shape, unique=False
        ),
        jvp=(lambda t, indices, dim: (take_along_op(t, indices, dim=dim, unique=False), None),),
        outputs=("values", "indices"),
        constant_outputs=(1,),
        promote="same",
        samples=_scan_samples,
        rows=True,
        shape=lambda x: [x.of(x.dtype), x.of(dt.I64)],
        batch=batch_rules.along,
    )


cummax_op = _running_extreme("cummax", np.maximum)
cummin_op = _running_extreme("cummin", np.minimum)
_cummax_result = result_type("cummax", "values", "indices")
_cummin_result = result_type("cummin", "values", "indices")


@api.both(out=True)
@numpy_names
def cummax(input: Tensor, dim: int) -> Any:
    """The greatest element so far along a dimension, and its index."""
    refuse("c", input, "cummax")
    return _cummax_result(*cummax_op(input, dim=api.wrap_dim(dim, input._a.ndim)))


@api.both(out=True)
@numpy_names
def cummin(input: Tensor, dim: int) -> Any:
    """The smallest element so far along a dimension, and its index."""
    refuse("c", input, "cummin")
    return _cummin_result(*cummin_op(input, dim=api.wrap_dim(dim, input._a.ndim)))


# --- log of running sums of exponentials -----------------------------------------------


@_with_dim
def _logcumsumexp(x: np.ndarray, dim: int) -> np.ndarray:
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(x, dim)
    out = np.array(x)
    rows = np.moveaxis(out, dim, 0)
    before: Any = np.asarray(complex(-np.inf, 0), x.dtype)
    for i in range(len(rows)):
        rows[i] = before = complex_logaddexp(rows[i], before)
    return out


def _logcumsumexp_rule(g: Any, x: Any, y: Any, dim: int) -> Any:
    # The sum over i >= j of g[i] exp(x[j] - y[i]), by steps whose factors can't overflow.
    if not x.shape:
        return g
    before = shifted(y, dim, 0.0)
    none_yet = before == -np.inf
    step = where_op(none_yet | (before == y), 0.0, before - y)  # infinite sums stay what they are
    factors = where_op(none_yet, 0.0, exp_op(step))
    return _recurrence_back(g, factors, dim) * conj_op(exp_op(x - y))


logcumsumexp_op = general(
    "logcumsumexp",
    _logcumsumexp,
    _logcumsumexp_rule,
    promote="float",
    samples=_scan_samples,
    rows=True,
    shape=shape_rules.same,
    batch=batch_rules.along,
)


@api.both(out=True)
@numpy_names
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of running sums of exponentials along a dimension."""
    refuse("iub", input, "logcumsumexp")
    return logcumsumexp_op(input, dim=api.wrap_dim(dim, input._a.ndim))


# --- differences and integrals ---------------------------------------------------------


@api.both(out=True)
@numpy_names
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
) -> Tensor:
    """Differences of neighbours along a dimension, ``n`` times over."""
    if not input._a.ndim:
        raise RuntimeError(
            f"diff expects input to be at least one-dimensional\n  at {errors.here()}"
        )
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}\n  at {errors.here()}")
    if not n:
        api.whole(dim, "diff", "dim")  # which may be out of range here
        return input.clone()
    d = api.wrap_dim(dim, input._a.ndim)
    parts = [p for p in (prepend, input, append) if p is not None]
    for part in parts:
        _check_border(input._a.shape, part._a.shape, d)
    x = cat_op(*parts, dim=d) if len(parts) > 1 else input
    for _ in range(min(n, x._a.shape[d])):
        late, early = slice_op(x, index=along(d, 1)), slice_op(x, index=along(d, 0, -1))
        x = late ^ early if x._a.dtype.kind == "b" else late - early
    return x


def _check_border(shape: tuple[int, ...], border: tuple[int, ...], dim: int) -> None:
    """Refuse to prepend or append to ``diff`` what does not fit the input."""
    if len(border) != len(shape):
        raise RuntimeError(
            "diff expects prepend or append to be the same dimension as input: they have "
            f"{len(border)} and {len(shape)} dimensions\n  at {errors.here()}"
        )
    for k, (size, other) in enumerate(zip(shape, border, strict=True)):
        if k != dim and size != other:
            raise RuntimeError(
                "diff expects the shape of tensor to prepend or append to match that of input "
                f"except along the differencing dimension; input.size({k}) = {size}, but got "
                f"tensor.size({k}) = {other}\n  at {errors.here()}"
            )


def _spacings(y: Tensor, x: Any, dx: Any, dim: int) -> Any:
    """The widths of the intervals: a number, or a tensor that broadcasts along ``dim``."""
    if x is None:
        return dx
    if x._a.ndim == 1:
        if x._a.shape[0] != y._a.shape[dim]:
            raise RuntimeError(
                "trapezoid(): There must be one `x` value for each sample point, but got "
                f"{x._a.shape[0]} for {y._a.shape[dim]}\n  at {errors.here()}"
            )
        return diff(x).reshape((-1,) + (1,) * (y._a.ndim - dim - 1))
    missing = y._a.ndim - x._a.ndim
    if missing > 0:
        x = x.reshape((1,) * missing + x._a.shape)
    return diff(x, dim=dim)


def _trapezoids(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, int]:
    if x is not None and dx is not None:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: both `x` and `dx`\n"
            f"  at {errors.here()}"
        )
    dx = 1.0 if dx is None else dx
    if isinstance(dx, complex):
        raise RuntimeError(
            f"{name}: Currently, we only support dx as a real number.\n  at {errors.here()}"
        )
    if not y._a.ndim:
        raise IndexError(f"{name} needs at least one dimension\n  at {errors.here()}")
    for name, values in (("y", y), ("x", x)):
        if isinstance(values, Tensor) and values._a.dtype.kind == "b":
            raise RuntimeError(
                f"{name}: received a bool input for `{name}`, but bool is not supported\n"
                f"  at {errors.here()}"
            )
    d = api.wrap_dim(dim, y._a.ndim)
    late, early = slice_op(y, index=along(d, 1)), slice_op(y, index=along(d, 0, -1))
    areas = (early + late) * _spacings(y, x, dx, d) / 2.0
    return areas, d


@api.top
@numpy_names
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of samples along a dimension, by the trapezoid rule."""
    areas, d = _trapezoids("trapezoid", y, x, dx, dim)
    if x is None and y._a.shape[d]:
        # Between equal steps only the ends count half.
        ends = slice_op(y, index=along(d, 0, 1)) + slice_op(y, index=along(d, -1))
        return (y.sum(d) - ends.squeeze(d) * 0.5) * (1.0 if dx is None else dx)
    return areas.sum(d)


api.alias("trapezoid", "trapz")


@api.top
@numpy_names
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The running integral of samples along a dimension, by the trapezoid rule."""
    areas, d = _trapezoids("cumulative_trapezoid", y, x, dx, dim)
    return cumsum(areas, d)


def _slope(x: Tensor, spacing: Any, dim: int, edge_order: int) -> Tensor:
    """Second-order differences inside, one-sided ones at both ends."""
    size = x._a.shape[dim]
    if size <= edge_order:
        raise RuntimeError(
            "torch.gradient expected each dimension size to be at least edge_order+1\n"
            f"  at {errors.here()}"
        )

    def part(start: Any, stop: Any = None) -> Tensor:
        return slice_op(x, index=along(dim, start, stop))

    if isinstance(spacing, Tensor) and spacing._a.ndim:
        h = diff(spacing).reshape((-1,) + (1,) * (x._a.ndim - dim - 1))
        left, right = h[:-1], h[1:]
        first, second, last, before = h[:1], h[1:2], h[-1:], h[-2:-1]
        middle = (
            part(0, -2) * (-right / (left * (left + right)))
            + part(1, -1) * ((right - left) / (left * right))
            + part(2) * (left / (right * (left + right)))
        )
    else:
        first = second = last = before = spacing
        middle = (part(2) - part(0, -2)) / (2.0 * spacing)
    if edge_order == 1:
        head = (part(1, 2) - part(0, 1)) / first
        tail = (part(-1) - part(-2, -1)) / last
    else:
        head = _edge(part(0, 1), part(1, 2), part(2, 3), first, second)
        tail = -_edge(part(-1), part(-2, -1), part(-3, -2), last, before)
    return cat_op(head, middle, tail, dim=dim)


def _edge(a: Tensor, b: Tensor, c: Tensor, near: Any, far: Any) -> Tensor:
    """The one-sided second-order slope at ``a``."""
    both = near + far
    return (
        a * (-(near + both) / (near * both)) + b * (both / (near * far)) - c * (near / (far * both))
    )


@api.top
@numpy_names
def gradient(
    input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Estimates of the partial derivatives of a function given by its samples."""
    if input._a.dtype == np.uint8:
        raise RuntimeError(f"torch.gradient does not support uint8 input.\n  at {errors.here()}")
    dims = api.dims(dim, input._a.ndim)
    if isinstance(spacing, (list, tuple)):
        spacings = list(spacing)
    else:
        spacings = [1 if spacing is None else spacing] * len(dims)
    if len(spacings) != len(dims):
        raise RuntimeError(
            "torch.gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"{len(dims)}, but got a list of length {len(spacings)}\n  at {errors.here()}"
        )
    if edge_order not in (1, 2):
        raise RuntimeError(
            f"torch.gradient only supports edge_order=1 and edge_order=2.\n  at {errors.here()}"
        )
    pairs = zip(spacings, dims, strict=True)
    return tuple(_slope(input, space, d, edge_order) for space, d in pairs)
