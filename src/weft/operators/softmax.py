"""Softmax and its relatives."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft.core.dispatch import REGISTRY, Op, apply_one
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arguments import need_float
from weft.operators.build import Sample, general
from weft.operators.casting import contiguous_format
from weft.operators.creation import empty_like
from weft.operators.pointwise import exp_op
from weft.operators.reductions import sum_op


def _shifted(x: np.ndarray, dim: int) -> np.ndarray:
    return x - np.maximum.reduce(x, axis=dim, keepdims=True)


def _softmax(x: np.ndarray, dim: int) -> np.ndarray:
    if not x.ndim or not x.size:
        return np.exp(x - x)
    y = _shifted(x, dim)
    np.exp(y, y)
    return np.divide(y, np.add.reduce(y, axis=dim, keepdims=True), y)


def _log_softmax(x: np.ndarray, dim: int) -> np.ndarray:
    if not x.ndim or not x.size:
        return x - x
    y = _shifted(x, dim)
    total = np.add.reduce(np.exp(y), axis=dim, keepdims=True)
    return np.subtract(y, np.log(total, total), y)


def _sum(x: Any, dim: int) -> Any:
    return sum_op(x, dim=(dim,) if len(x.shape) else (), keepdim=True)


def _samples(m: Any) -> list[Sample]:
    return [
        Sample((m.real(2, 3),), {"dim": 1}),
        Sample((m.real(3, 2, 2),), {"dim": 0}),
        Sample((m.real(),), {"dim": 0}),
        Sample((m.real(0, 3),), {"dim": 1}),
    ]


# Backward has ops of its own, which use memory once; their rules give the higher orders.


def _softmax_back(g_in: np.ndarray, y: np.ndarray, dim: int) -> np.ndarray:
    if not y.ndim:
        return g_in - g_in
    out = g_in * y
    out -= y * np.add.reduce(out, axis=dim, keepdims=True)
    return out


def _log_softmax_back(g_in: np.ndarray, y: np.ndarray, dim: int) -> np.ndarray:
    if not y.ndim:
        return g_in - g_in
    out = np.exp(y)
    out *= np.add.reduce(g_in, axis=dim, keepdims=True)
    return np.subtract(g_in, out, out=out)


def _pairs(m: Any) -> list[Sample]:
    return [
        Sample((m.real(2, 3), m.real(2, 3)), {"dim": 1}),
        Sample((m.real(3, 2, 2), m.real(3, 2, 2)), {"dim": 0}),
    ]


softmax_back_op: Op = general(
    "softmax_backward_data",
    _softmax_back,
    lambda g, y, dim: softmax_back_op(g, y, dim=dim),
    lambda g, g_in, y, dim: g * (g_in - _sum(g_in * y, dim)) - g_in * _sum(g * y, dim),
    names=("g_in", "y"),
    outputs=("out",),
    promote="same",
    samples=_pairs,
    shape=lambda g_in, y: shape_rules.arranged(g_in.shape, g_in, y),
    batch=batch_rules.along,
)
log_softmax_back_op = general(
    "log_softmax_backward_data",
    _log_softmax_back,
    lambda g, y, dim: g - _sum(exp_op(y) * g, dim),
    lambda g, g_in, y, dim: -g * exp_op(y) * _sum(g_in, dim),
    names=("g_in", "y"),
    outputs=("out",),
    promote="same",
    samples=_pairs,
    shape=lambda g_in, y: shape_rules.arranged(g_in.shape, g_in, y),
    batch=batch_rules.along,
)
# The Jacobian of softmax is symmetric, so its jvp is its vjp.
softmax_op = general(
    "softmax",
    _softmax,
    lambda g, y, dim: softmax_back_op(g, y, dim=dim),
    jvp=(lambda t, y, dim: softmax_back_op(t, y, dim=dim),),
    promote="same",
    samples=_samples,
    layout="rows",
    shape=shape_rules.in_rows,
    batch=batch_rules.along,
)
log_softmax_op = general(
    "log_softmax",
    _log_softmax,
    lambda g, y, dim: log_softmax_back_op(g, y, dim=dim),
    jvp=(lambda t, y, dim: t - _sum(exp_op(y) * t, dim),),
    promote="same",
    samples=_samples,
    layout="rows",
    shape=shape_rules.in_rows,
    batch=batch_rules.along,
)


# --- of scores -------------------------------------------------------------------------


def _scaled_softmax(x: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    if not x.size:
        return x.copy()
    y = x * x.dtype.type(scale)
    if not causal:
        return _softmax(y, x.ndim - 1)
    seen = np.tri(*x.shape[-2:], dtype=np.bool_)
    y = _softmax(np.where(seen, y, x.dtype.type(-np.inf)), x.ndim - 1)
    return np.where(seen, y, x.dtype.type(0))


def _scaled_softmax_back(g_in: np.ndarray, y: np.ndarray, scale: float, causal: bool) -> np.ndarray:
    if causal:
        g_in, y = np.tril(g_in), np.tril(y)
    return _softmax_back(g_in, y, y.ndim - 1) * y.dtype.type(scale)


def _score_samples(count: int) -> Any:
    return lambda m: [
        Sample(tuple(m.real(*shape) for _ in range(count)), {"scale": 0.5, "causal": causal})
        for shape in ((3, 4), (2, 4, 3))
        for causal in (False, True)
    ]


def _scaled_share_rule(g: Any, g_in: Any, y: Any, scale: float, causal: bool) -> Any:
    if causal:
        g, g_in, y = (REGISTRY["tril"](v, diagonal=0) for v in (g, g_in, y))
    last = len(y.shape) - 1
    return (g * (g_in - _sum(g_in * y, last)) - g_in * _sum(g * y, last)) * scale


scaled_softmax_back_op: Op = general(
    "scaled_softmax_backward",
    _scaled_softmax_back,
    lambda g, y, scale, causal: scaled_softmax_back_op(g, y, scale=scale, causal=causal),
    _scaled_share_rule,
    names=("g_in", "y"),
    outputs=("out",),
    promote="same",
    samples=_score_samples(2),
    shape=lambda g_in: g_in.shape,
    batch=batch_rules.leading,
)
# Over the last dimension; ``causal`` leaves out what is beyond the diagonal of each matrix.
scaled_softmax_op = general(
    "scaled_softmax",
    _scaled_softmax,
    lambda g, y, scale, causal: scaled_softmax_back_op(g, y, scale=scale, causal=causal),
    jvp=(lambda t, y, scale, causal: scaled_softmax_back_op(t, y, scale=scale, causal=causal),),
    promote="same",
    samples=_score_samples(1),
    layout="rows or last",
    shape=shape_rules.same,
    batch=batch_rules.leading,
)


@api.both(out=True)
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one.

    >>> x = torch.tensor([[1.0, 1.0], [0.0, 2.0]])
    >>> torch.softmax(x, dim=1)
    tensor([[0.5000, 0.5000],
            [0.1192, 0.8808]])
    >>> x.softmax(dim=0)
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """
    if dtype is not None:
        input = input.to(dtype)
    need_float(input, "softmax_kernel_impl")
    return apply_one(softmax_op, input, {"dim": api.wrap_dim(dim, input._a.ndim)})


@api.both(out=True)
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
    if dtype is not None:
        input = input.to(dtype)
    need_float(input, "log_softmax_kernel_impl")
    return apply_one(log_softmax_op, input, {"dim": api.wrap_dim(dim, input._a.ndim)})


api.under("special", softmax)
api.under("special", log_softmax)


def _implicit_dim(name: str, input: Tensor, dim: int | None) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include "
        "dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if input.ndim in (0, 1, 3) else 1


@api.under("nn.functional", name="softmax")
def functional_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one.

    >>> F.softmax(torch.tensor([[1.0, 2.0, 3.0]]), dim=-1)
    tensor([[0.0900, 0.2447, 0.6652]])
    """
    return softmax(input, _implicit_dim("softmax", input, dim), dtype)


@api.under("nn.functional", name="log_softmax")
def functional_log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """The logarithm of softmax, computed without overflow.

    >>> F.log_softmax(torch.tensor([[1.0, 2.0, 3.0]]), dim=1)
    tensor([[-2.4076, -1.4076, -0.4076]])
    """
    return log_softmax(input, _implicit_dim("log_softmax", input, dim), dtype)


@api.under("nn.functional")
def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None
) -> Tensor:
    """Softmax of the negated input."""
    return softmax(-input, _implicit_dim("softmin", input, dim), dtype)


@api.under("nn.functional")
def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """A random, differentiable choice along a dimension; ``hard`` makes it one-hot."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = -empty_like(logits, memory_format=contiguous_format).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    place = soft.detach().max(dim, keepdim=True)[1]
    chosen = (soft.detach() * 0.0).scatter_(dim, place, 1.0)
    # The value of the choice with the gradient of the soft one.
    return chosen - soft.detach() + soft
