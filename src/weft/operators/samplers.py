"""Draws that carry a gradient with respect to their parameters: gamma and Dirichlet.

A draw x of a law with parameter a keeps its level F(x; a) when a moves. The derivative of the
quantile at that level is the implicit gradient of the draw (Figurnov et al., 2018). Quantiles are
smooth in the parameter and SciPy has them to full precision, so a difference of fourth order
gives the derivative to about ten digits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core.devices import drawn_from
from weft.core.shapes import broadcast
from weft.core.tensor import Tensor
from weft.operators import api, shape_rules
from weft.operators.build import general, refusing
from weft.operators.random import _floats_only, source
from weft.operators.reductions import sum_op

# Step of the differences, relative to the parameter.
_STEP = 1e-3
# Below this the first term of the series around zero is exact to double precision.
_NEAR_ZERO = 1e-15


@functools.cache
def _scipy() -> Any:
    # Imported at the first use: it takes longer than all of weft.
    import scipy.special

    return scipy.special


def _slope(quantile: Callable, at: np.ndarray) -> np.ndarray:
    h = _STEP * at
    near = quantile(at + h) - quantile(at - h)
    far = quantile(at + 2.0 * h) - quantile(at - 2.0 * h)
    return (8.0 * near - far) / (12.0 * h)


def _gamma_slope(x: np.ndarray, value: np.ndarray) -> np.ndarray:
    """The derivative of a standard gamma draw with respect to its concentration."""
    s = _scipy()
    a, v = x.astype(np.float64), value.astype(np.float64)
    lower, upper = s.gammainc(a, v), s.gammaincc(a, v)

    def log_quantile(a: np.ndarray) -> np.ndarray:
        # From the nearer end, where the level has all its digits.
        return np.log(np.where(lower < 0.5, s.gammaincinv(a, lower), s.gammainccinv(a, upper)))

    with np.errstate(all="ignore"):
        slope = _slope(log_quantile, a)
        limit = (s.psi(a + 1.0) - np.log(v)) / a
        slope = np.where((v < _NEAR_ZERO) | ~np.isfinite(slope), limit, slope)
        return (v * slope).astype(x.dtype)


def _beta_slope(x: np.ndarray, alpha: np.ndarray, total: np.ndarray) -> np.ndarray:
    """The derivative of a Beta(alpha, total - alpha) draw x by alpha, over 1 - x."""
    s = _scipy()
    v, a, t = (np.asarray(k, np.float64) for k in (x, alpha, total))
    b = t - a
    # The half of the interval in which small numbers are exact; u is the draw seen from there.
    swap = v > 0.5
    u = np.where(swap, 1.0 - v, v)
    first, second = np.where(swap, b, a), np.where(swap, a, b)
    lower, upper = s.betainc(first, second, u), s.betaincc(first, second, u)

    def logit_quantile(moved: np.ndarray) -> np.ndarray:
        one, two = np.where(swap, b, moved), np.where(swap, moved, b)
        q = np.where(lower < 0.5, s.betaincinv(one, two, lower), s.betainccinv(one, two, upper))
        return np.log(q) - np.log1p(-q)

    with np.errstate(all="ignore"):
        slope = _slope(logit_quantile, a)
        joint = s.psi(t)
        limit = (
            np.where(swap, s.psi(a) - joint, 1.0 / first - np.log(u) + s.psi(first) - joint) / first
        )
        slope = np.where((u < _NEAR_ZERO) | ~np.isfinite(slope), limit, slope)
        # The logit of 1 - x is minus that of x; the logit's derivative is 1 / (x (1 - x)).
        return (v * np.where(swap, -slope, slope)).astype(x.dtype)


gamma_slope_op = general(
    "_standard_gamma_grad",
    _gamma_slope,
    refusing("_standard_gamma_grad"),
    refusing("_standard_gamma_grad"),
    names=("x", "value"),
    promote="same",
    samples=None,
    shape=lambda x, value: broadcast(x.shape, value.shape),
)
beta_slope_op = general(
    "_dirichlet_grad",
    _beta_slope,
    *(refusing("_dirichlet_grad"),) * 3,
    names=("x", "alpha", "total"),
    promote="same",
    samples=None,
    shape=lambda x, alpha, total: broadcast(x.shape, alpha.shape, total.shape),
)


def _dirichlet_rule(g: Any, x: Any, y: Any) -> Any:
    total = sum_op(x, dim=(-1,), keepdim=True) + 0.0 * x
    return beta_slope_op(y, x, total) * (g - sum_op(y * g, dim=(-1,), keepdim=True))


standard_gamma_op = general(
    "_standard_gamma",
    lambda x, values: values,
    lambda g, x, y: g * gamma_slope_op(x, y),
    jvp=(lambda t, x, y: t * gamma_slope_op(x, y),),
    samples=None,
    shape=shape_rules.drawn,
)
dirichlet_op = general(
    "_sample_dirichlet",
    lambda x, values: values,
    _dirichlet_rule,
    samples=None,
    shape=shape_rules.drawn,
)


@api.top
def _standard_gamma(input: Tensor, generator: Any = None) -> Tensor:
    """A draw of the gamma law with rate 1 for each concentration, differentiable by it."""
    _floats_only(input._a.dtype, "gamma_cpu")
    return standard_gamma_op(input, values=source(generator).standard_gamma(drawn_from(input)))


@api.top
def _sample_dirichlet(input: Tensor, generator: Any = None) -> Tensor:
    """A point of the simplex for each vector of concentrations, differentiable by it."""
    _floats_only(input._a.dtype, "dirichlet")
    return dirichlet_op(input, values=source(generator).dirichlet(drawn_from(input)))


@api.top
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivative of draws of ``_standard_gamma`` with respect to their concentrations."""
    return gamma_slope_op(input, output)


@api.top
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of Beta(alpha, total - alpha) draws with respect to alpha, over 1 - x."""
    return beta_slope_op(x, alpha, total)
