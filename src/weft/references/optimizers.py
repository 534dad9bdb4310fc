"""Parts of the optimizers that look at whole matrices: Adafactor and Muon."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

Array = np.ndarray
Arrays = tuple[Array, ...]
add, subtract, multiply, divide = np.add, np.subtract, np.multiply, np.divide
sqrt, maximum, copyto = np.sqrt, np.maximum, np.copyto


def _blend(average: Array, value: Array, weight: Array, s: Array) -> None:
    """average += weight * (value - average)"""
    subtract(value, average, s)
    multiply(s, weight, s)
    add(average, s, average)


def root_mean_square(x: Array) -> float:
    """The root of the mean of the squares of all elements."""
    flat = x.ravel()
    return math.sqrt(float(np.dot(flat, flat)) / max(flat.size, 1))


def mean_square(x: Array, axis: int, work: Array, out: Array) -> Array:
    """The mean of the squares along an axis, which stays with length one."""
    multiply(x, x, work)
    return np.mean(work, axis=axis, keepdims=True, out=out)


def adafactor(
    p: Array,
    g: Array,
    rows: Array | None,
    columns: Array | None,
    variance: Array | None,
    work: Arrays,
    means: Arrays,
    *,
    weight: float,
    rho: float,
    shrink: float,
    eps1: float,
    eps2: float,
    clip: float,
    maximize: bool,
) -> None:
    """Adafactor: the second moment of a matrix is kept as a row and a column."""
    s, u = work
    size = max(eps2, root_mean_square(p)) * rho
    if shrink != 1.0:
        multiply(p, p.dtype.type(shrink), p)
    if rows is not None and columns is not None:
        row_mean, column_mean, total = means
        _blend(rows, mean_square(g, -1, s, row_mean), rows.dtype.type(weight), row_mean)
        _blend(columns, mean_square(g, -2, s, column_mean), columns.dtype.type(weight), column_mean)
        multiply(rows, columns, s)
        np.mean(rows, axis=-2, keepdims=True, out=total)
        maximum(total, total.dtype.type(eps1), out=total)
        divide(s, total, s)
    else:
        assert variance is not None
        multiply(g, g, s)
        _blend(variance, s, variance.dtype.type(weight), s)
        copyto(s, variance)
    maximum(s, s.dtype.type(eps1 * eps1), out=s)
    sqrt(s, s)
    divide(g, s, u)
    scale = size / max(1.0, root_mean_square(u) / clip)
    multiply(u, u.dtype.type(-scale if not maximize else scale), u)
    add(p, u, p)


def _rounded(x: Array) -> Array:
    """Through bfloat16, in which Muon's iteration is defined, and back to float32."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def orthogonalized(
    x: Array, coefficients: tuple[float, float, float], steps: int, eps: float
) -> Array:
    """Newton and Schulz's iteration for the nearest orthogonal matrix, in bfloat16."""
    a, b, c = coefficients
    tall = x.shape[0] > x.shape[1]
    y = _rounded(x.T if tall else x)
    norm = float(_rounded(np.sqrt(np.sum(y * y, dtype=np.float32), dtype=np.float32)))
    y = _rounded(y / np.float32(max(norm, eps)))
    for _ in range(steps):
        gram = _rounded(y @ y.T)
        update = _rounded(np.float32(b) * gram + np.float32(c) * (gram @ gram))
        y = _rounded(np.float32(a) * y + update @ y)
    return y.T if tall else y
