"""Batch norm of small matrices: step by step what the reference does, so with the same bits."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.native.codegen.compiler import Ptr, T, i64, sqrt
from weft.native.codegen.jit import kernel
from weft.native.codegen.whole import EntrySpec

ndarray = np.ndarray
MOST = 511  # elements; from there on the kernels of ``batchnorm`` take over


@kernel
def _norm(
    x: Ptr[T],
    weight: Ptr[T],
    bias: Ptr[T],
    y: Ptr[T],
    mean: Ptr[T],
    var: Ptr[T],
    n: i64,
    c: i64,
    eps: T,
    weighted: i64,
    lo: i64,
    hi: i64,
) -> None:
    for k in range(lo, hi):
        total = x[k] + 0.0
        for r in range(1, n):
            total = total + x[r * c + k]
        m = total / T(n)
        square = T(0.0)
        for r in range(n):
            gap = x[r * c + k] - m
            y[r * c + k] = gap
            square = square + gap * gap
        v = square / T(n)
        scale = 1.0 / sqrt(v + eps)
        for r in range(n):
            out = y[r * c + k] * scale
            if weighted:
                out = out * weight[k] + bias[k]
            y[r * c + k] = out
        mean[k] = m
        var[k] = v


@kernel
def _norm_back(
    g: Ptr[T],
    x: Ptr[T],
    mean: Ptr[T],
    rstd: Ptr[T],
    g_mean: Ptr[T],
    g_var: Ptr[T],
    weight: Ptr[T],
    gx: Ptr[T],
    along: Ptr[T],
    total: Ptr[T],
    n: i64,
    c: i64,
    weighted: i64,
    lo: i64,
    hi: i64,
) -> None:
    for k in range(lo, hi):
        m = mean[k]
        product = g[k] * (x[k] - m) + 0.0
        whole = g[k] + 0.0
        for r in range(1, n):
            product = product + g[r * c + k] * (x[r * c + k] - m)
            whole = whole + g[r * c + k]
        product = product * rstd[k]
        scale = rstd[k] * weight[k] if weighted else rstd[k]
        shift = (g_mean[k] - scale * whole) / T(n)
        slope = (2.0 * g_var[k] - scale * rstd[k] * product) / T(n)
        for r in range(n):
            at = r * c + k
            gx[at] = g[at] * scale + (x[at] - m) * slope + shift
        along[k] = product
        total[k] = whole


@functools.cache
def _ways(weighted: bool) -> tuple[Any, Any]:
    """Both passes, with weight and bias or without, as one call each."""
    given = ("take 1", "take 2") if weighted else ("take 0", "take 0")
    sizes = ("first", "last")
    forward = EntrySpec(
        ("f32", *("f32 row",) * (2 * weighted), "number"),
        ("f32 like 0", "f32 rest", "f32 rest"),
        ("take 0", *given, "give 0", "give 1", "give 2", *sizes, f"take {1 + 2 * weighted}"),
        *("last", "first"),
        most=MOST,
        returns=(0, 1, 2),
    )
    backward = EntrySpec(
        ("f32", "f32 like", *("f32 row",) * (4 + weighted)),
        ("f32 like 0", "f32 rest", "f32 rest"),
        (
            *(f"take {k}" for k in range(6)),
            f"take {6 * weighted}",
            *("give 0", "give 1", "give 2"),
            *sizes,
        ),
        *("last", "first"),
        most=MOST,
        returns=(0, 1, 2),
    )
    run = _norm.whole(forward, "f32", weighted=weighted)
    return run, _norm_back.whole(backward, "f32", weighted=weighted)


def _is_matrix(x: ndarray) -> bool:
    """Whether NumPy sums an array's columns row by row: a single column is a row to it."""
    return x.ndim == 2 and x.shape[1] > 1


def batch_norm(x: ndarray, weight: Any, bias: Any, eps: float) -> tuple[ndarray, ...] | None:
    """Each column shifted and scaled by its own mean and variance; and these."""
    if not _is_matrix(x) or (weight is None) != (bias is None):
        return None
    run = _ways(weight is not None)[0]
    return run(x, eps) if weight is None else run(x, weight, bias, eps)


def batch_norm_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, ...] | None:
    """The gradients of ``batch_norm``, as needed."""
    if not _is_matrix(x):
        return None
    rstd = (var + eps) ** -0.5  # by NumPy, whose power has bits of its own
    few = () if weight is None else (weight,)
    found = _ways(weight is not None)[1](g[0], x, mean, rstd, *g[1:], *few)
    if found is None:
        return None
    return tuple(part if need else None for part, need in zip(found, needs, strict=True))
