"""Spread and size: variances, standard deviations, norms, covariances."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import host
from weft.core.dispatch import apply_one
from weft.core.tensor import Tensor, beside
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import kept, numpy_names
from weft.operators.arithmetic import where_op
from weft.operators.build import Make, Sample, general
from weft.operators.outputs import put_into
from weft.operators.pointwise import abs_op, sgn_op
from weft.operators.reductions import axes, count_of, mean_op, reduced_dims, sum_op
from weft.operators.reductions import spread as spread_over

# --- variance and standard deviation ---------------------------------------------------


def _var(
    x: np.ndarray, dim: tuple[int, ...], keepdim: bool, correction: float
) -> tuple[np.ndarray, np.dtype]:
    """The variance in double precision, and the type it is wanted in."""
    # In double precision, as PyTorch does it: squares of float32 overflow and underflow early.
    kind = x.dtype
    if kind == np.float32 or kind == np.complex64:
        x = x.astype(np.float64 if kind == np.float32 else np.complex128)
    dims, count = axes(x, dim), count_of(x.shape, dim)
    centred = x - np.add.reduce(x, axis=dims, keepdims=True) / x.dtype.type(count)
    squares = centred * centred if x.dtype.kind != "c" else centred.real**2 + centred.imag**2
    total = np.add.reduce(squares, axis=dims, keepdims=keepdim)
    return total / squares.dtype.type(max(count - correction, 0)), kind


def _variance(x: np.ndarray, **attrs: Any) -> np.ndarray:
    out, kind = _var(x, **attrs)
    return out.astype(dt.of_numpy(kind).to_real().np)


def _deviation(x: np.ndarray, **attrs: Any) -> np.ndarray:
    out, kind = _var(x, **attrs)
    return np.sqrt(out).astype(dt.of_numpy(kind).to_real().np)


def _var_rule(g: Any, x: Any, dim: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    freedom = count_of(x.shape, dim) - correction
    centred = x - mean_op(x, dim=dim, keepdim=True)
    return kept(g, x.shape, dim, keepdim) * centred * (2.0 / freedom if freedom else math.inf)


def _std_rule(
    g: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool, correction: float
) -> Any:
    g = where_op(y == 0, 0.0, g / (2.0 * y))
    return _var_rule(g, x, dim, keepdim, correction)


def _spread_samples(m: Make) -> list[Sample]:
    return [
        Sample((m.real(2, 3, 2),), {"dim": (0, 2), "keepdim": False, "correction": 1}),
        Sample((m.real(2, 3),), {"dim": (1,), "keepdim": True, "correction": 0}),
        Sample((m.real(3, 0),), {"dim": (0,), "keepdim": False, "correction": 1}),
    ]


var_op = general(
    "var",
    _variance,
    _var_rule,
    promote="same",
    samples=_spread_samples,
    rows=True,
    shape=shape_rules.absolute,
    batch=batch_rules.along,
)
std_op = general(
    "std",
    _deviation,
    _std_rule,
    promote="same",
    samples=_spread_samples,
    rows=True,
    shape=shape_rules.absolute,
    batch=batch_rules.along,
)


def _spread_attributes(
    name: str, input: Tensor, dim: Any, unbiased: Any, keepdim: bool, correction: Any
) -> dict[str, Any]:
    """One form for the overloads: ``(dim, unbiased, keepdim)``, ``(unbiased)``, ``correction=``."""
    if input._a.dtype.kind in "iub":
        raise RuntimeError(
            "std and var only support floating point and complex dtypes, not "
            f"{input.dtype}; use .float()\n  at {errors.here()}"
        )
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    array = input._a
    dims = reduced_dims(dim, array.ndim)
    count = array.size if dim is None else count_of(array.shape, dims)
    if count <= correction or not array.size:
        warnings.warn(
            f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the "
            "reduction factor (input numel divided by output numel).",
            stacklevel=4,
        )
    return {"dim": dims, "keepdim": bool(keepdim), "correction": correction}


@api.both(out=True)
@numpy_names
def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The variance, by default with Bessel's correction (``correction=1``).

    >>> torch.var(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    tensor(1.6667)
    >>> torch.var(torch.tensor([[1.0, 3.0], [2.0, 6.0]]), dim=1)
    tensor([2., 8.])
    """
    attrs = _spread_attributes("var", input, dim, unbiased, keepdim, correction)
    return apply_one(var_op, input, attrs)


@api.both(out=True)
@numpy_names
def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> Tensor:
    """The standard deviation, by default with Bessel's correction (``correction=1``).

    >>> torch.tensor([1.0, 2.0, 3.0, 4.0]).std()
    tensor(1.2910)
    >>> torch.tensor([1.0, 2.0, 3.0, 4.0]).std(correction=0)
    tensor(1.1180)
    """
    attrs = _spread_attributes("std", input, dim, unbiased, keepdim, correction)
    return apply_one(std_op, input, attrs)


def _with_mean(name: str, op: Any, rule: Any) -> Any:
    """An op that gives a measure of spread and the mean at once."""

    def both(x: Any, dim: tuple[int, ...], keepdim: bool, correction: float) -> Any:
        spread = op(x, dim=dim, keepdim=keepdim, correction=correction)
        return spread, mean_op(x, dim=dim, keepdim=keepdim, variant=1)

    return general(
        name,
        both,
        rule,
        outputs=("y", "mean"),
        promote="same",
        samples=_spread_samples,
        rows=True,
        takes_none=True,
        shape=lambda x, dim, keepdim: [
            shape_rules.absolute(x, dim, keepdim),
            shape_rules.reduced(x, dim, keepdim),
        ],
        batch=batch_rules.along,
    )


def _with_mean_rule(spread: Any, g: Any, x: Any, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The gradient through the variance, which may be None, and that through the mean."""
    if g is None:
        return spread
    mean = spread_over(g / (count_of(x.shape, dim) or 1), x.shape, dim, keepdim)
    return mean if spread is None else spread + mean


def _var_mean_rule(g: Any, x: Any, dim: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    spread = None if g[0] is None else _var_rule(g[0], x, dim, keepdim, correction)
    return _with_mean_rule(spread, g[1], x, dim, keepdim)


def _std_mean_rule(
    g: Any, x: Any, y: Any, dim: tuple[int, ...], keepdim: bool, correction: float
) -> Any:
    spread = None if g[0] is None else _std_rule(g[0], x, y, dim, keepdim, correction)
    return _with_mean_rule(spread, g[1], x, dim, keepdim)


var_mean_op = _with_mean("var_mean", var_op, _var_mean_rule)
std_mean_op = _with_mean("std_mean", std_op, _std_mean_rule)


@api.top
@numpy_names
def var_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
    return var_mean_op(
        input, **_spread_attributes("var_mean", input, dim, unbiased, keepdim, correction)
    )


@api.top
@numpy_names
def std_mean(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    keepdim: bool = False,
    *,
    correction: Any = None,
) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
    return std_mean_op(
        input, **_spread_attributes("std_mean", input, dim, unbiased, keepdim, correction)
    )


# --- norms -----------------------------------------------------------------------------


def _norm(x: np.ndarray, ord: float, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    if ord and count_of(x.shape, dim) == 1:  # no power of a single element can overflow
        return np.add.reduce(np.abs(x), axis=axes(x, dim), keepdims=keepdim)
    if ord == 2 and x.dtype.kind != "c":
        return np.sqrt(np.add.reduce(x * x, axis=axes(x, dim), keepdims=keepdim))

    def total(values: np.ndarray) -> np.ndarray:
        return np.add.reduce(values, axis=axes(x, dim), keepdims=keepdim)

    if ord == 2:
        return np.sqrt(total(x.real**2 + x.imag**2))
    size = np.abs(x)
    if ord in (math.inf, -math.inf):
        ufunc = np.maximum if ord > 0 else np.minimum
        return ufunc.reduce(size, axis=axes(x, dim), keepdims=keepdim)
    if ord == 0:
        return total(x != 0).astype(size.dtype)
    if ord == 1:
        return total(size)
    return total(size ** size.dtype.type(ord)) ** size.dtype.type(1.0 / ord)


def _norm_rule(g: Any, x: Any, y: Any, ord: float, dim: tuple[int, ...], keepdim: bool) -> Any:
    shape = x.shape
    g, y = kept(g, shape, dim, keepdim), kept(y, shape, dim, keepdim)
    if ord == 0:
        return None  # as in PyTorch: no gradient, rather than zeros
    if ord == 1:
        return g * sgn_op(x)
    if ord == 2:
        return g * where_op(y == 0, 0.0, x / y)
    size = abs_op(x)
    if ord in (math.inf, -math.inf):
        reached = (size == y) | ((size != size) & (y != y))  # or both are NaN
        return sgn_op(x) * (g * reached / sum_op(reached, dim=dim, keepdim=True))
    if ord < 1:
        slope = sgn_op(x) * where_op(x == 0, 0.0, size ** (ord - 1))
        return slope * (g * y ** (1 - ord))
    slope = sgn_op(x) * size ** (ord - 1) if ord < 2 else x * size ** (ord - 2)
    return slope * where_op(y == 0, 0.0, g / y ** (ord - 1))


# The norm of the elements over any dimensions as one vector; linalg.vector_norm is this too.
norm_op = general(
    "norm",
    _norm,
    _norm_rule,
    promote="float",
    grad_name="LinalgVectorNormBackward",
    samples=lambda m: (
        [
            Sample((m.real(2, 3),), {"ord": ord, "dim": (1,), "keepdim": keepdim})
            for ord, keepdim in (
                (2, False),
                (1, True),
                (math.inf, False),
                (-math.inf, True),
                (3, False),
                (0.5, True),
                (1.5, False),
            )
        ]
        + [Sample((m.real(2, 3),), {"ord": 2, "dim": (0, 1), "keepdim": False})]
    ),
    shape=shape_rules.absolute,
    batch=batch_rules.along,
    rows=True,
)


@api.both
@numpy_names
def norm(
    input: Tensor,
    p: Any = "fro",
    dim: Any = None,
    keepdim: bool = False,
    out: Any = None,
    dtype: Any = None,
) -> Tensor:
    """The p-norm of all elements, or over some dimensions; ``'nuc'`` of matrices.

    >>> x = torch.tensor([[3.0, 4.0], [6.0, 8.0]])
    >>> x.norm()
    tensor(11.1803)
    >>> torch.norm(x, dim=1)
    tensor([ 5., 10.])
    >>> x.norm(p=1, dim=0)
    tensor([ 9., 12.])
    """
    if out is not None:
        return put_into(out, norm, (input, p, dim, keepdim), "norm", dtype=dtype)
    if dtype is not None:
        input = input.to(dtype)
    if input._a.dtype.kind in "iub":
        raise RuntimeError(
            "linalg.vector_norm: Expected a floating point or complex tensor as input. Got "
            f"{input.dtype}; use .float()\n  at {errors.here()}"
        )
    if p == "nuc":
        if dim is None:  # all dimensions: refused if there are more than two
            dim = tuple(range(input._a.ndim)) if input._a.ndim > 2 else (-2, -1)
        return api.NAMESPACES["linalg"]["matrix_norm"](input, "nuc", dim, keepdim)
    if isinstance(p, str) and p != "fro":
        raise RuntimeError(
            f"norm(): only 'fro', 'nuc' and numbers are norms, not {p!r}\n  at {errors.here()}"
        )
    ord = 2 if p == "fro" or p is None else p
    dims = reduced_dims(dim, input._a.ndim)
    if (ord < 0 or ord == math.inf) and not count_of(input._a.shape, dims):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {ord} norm on an empty dimension because the "
            f"operation does not have an identity\n  at {errors.here()}"
        )
    return apply_one(norm_op, input, {"ord": ord, "dim": dims, "keepdim": bool(keepdim)})


@api.both(out=True)
def dist(input: Tensor, other: Tensor, p: Any = 2) -> Tensor:
    """The p-norm of the difference."""
    api.need_tensors("dist", input=input, other=other)
    return norm(input - other, p)


@api.both(out=True)
def renorm(input: Tensor, p: Any, dim: int, maxnorm: Any) -> Tensor:
    """Slices along a dimension scaled down where their norm exceeds ``maxnorm``."""
    if input._a.ndim < 2:
        raise RuntimeError(
            f"renorm: input needs at least 2 dimensions, got {input._a.ndim} dimensions\n"
            f"  at {errors.here()}"
        )
    if input._a.dtype.kind in "iub":
        raise RuntimeError(
            "renorm: linalg.vector_norm: Expected a floating point or complex tensor as input. "
            f"Got {input.dtype}\n  at {errors.here()}"
        )
    if not p > 0:
        raise RuntimeError(f"renorm: non-positive-norm not supported: {p}\n  at {errors.here()}")
    if not maxnorm >= 0:
        raise RuntimeError(
            f"renorm: expected maxnorm to be >= 0 but got {maxnorm}\n  at {errors.here()}"
        )
    d = api.wrap_dim(dim, input._a.ndim)
    others = tuple(i for i in range(input._a.ndim) if i != d)
    half = input._a.dtype in dt.HALF  # whose norms may be too large for the type
    size = norm_op(input.to(dt.float32) if half else input, ord=p, dim=others, keepdim=True)
    factor = where_op(size > maxnorm, maxnorm / (size + 1e-7), 1.0)
    # PyTorch gives rows, whatever the order of the input.
    return input.contiguous() * (factor.to(input.dtype) if half else factor)


api.inplace("renorm_", renorm)

# --- covariance ------------------------------------------------------------------------


def _weights(weights: Any, count: int, name: str) -> None:
    if weights._a.ndim > 1 or weights._a.size != count:
        raise RuntimeError(
            f"cov(): expected {name} to have one value for each of the {count} observations, but "
            f"got shape {list(weights._a.shape)}\n  at {errors.here()}"
        )
    wanted, kinds = ("integral", "iu") if name == "fweights" else ("floating point", "fV")
    if weights._a.dtype.kind not in kinds:
        raise RuntimeError(
            f"cov(): expected {name} to have {wanted} dtype but got {name} with {weights.dtype} "
            f"dtype\n  at {errors.here()}"
        )
    if not weights.is_meta and (host(weights) < 0).any():
        raise RuntimeError(f"cov(): {name} cannot be negative\n  at {errors.here()}")


@api.both
def cov(
    input: Tensor, *, correction: int = 1, fweights: Any = None, aweights: Any = None
) -> Tensor:
    """The covariance matrix of variables in rows, observed in columns."""
    if input._a.ndim > 2:
        raise RuntimeError(
            f"cov(): expected input to have two or fewer dimensions but got an input with "
            f"{input._a.ndim} dimensions\n  at {errors.here()}"
        )
    if input._a.dtype.kind == "b":
        raise RuntimeError(f"cov(): bool dtype is not supported for input\n  at {errors.here()}")
    x = input.reshape((1, -1)) if input._a.ndim < 2 else input
    if x._a.dtype.kind in "iu":
        x = x.to(dt.get_default_dtype())
    count = x._a.shape[1]
    for weights, name in ((fweights, "fweights"), (aweights, "aweights")):
        if weights is not None:
            _weights(weights, count, name)
    w = fweights
    if aweights is not None:
        w = aweights if fweights is None else fweights * aweights
    total = beside(x, np.asarray(count, x.dtype.to_real().np)) if w is None else w.sum()
    average = (x if w is None else x * w).sum(1, keepdim=True) / total
    if w is not None and aweights is not None and correction:
        factor = total - correction * (w * aweights).sum() / total
    else:
        factor = total - correction
    if not factor.is_meta and host(factor) <= 0:
        errors.warn(
            "cov(): degrees of freedom is <= 0. Correction should be strictly less than the number "
            "of observations."
        )
    centred = x - average
    weighted = centred if w is None else centred * w
    out = weighted @ centred.t().conj() / factor.clamp(min=0)
    return out.squeeze()


@api.both
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of variables in rows, observed in columns."""
    c = cov(input)
    if not c._a.ndim:
        return c / c
    scale = c.diagonal().real.sqrt() if c.is_complex() else c.diagonal().sqrt()
    c = c / scale.unsqueeze(1) / scale
    if c.is_complex():
        return c
    return c.clamp(-1, 1)
