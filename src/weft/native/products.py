"""Matrix products: oneDNN for float32, NumPy's BLAS on all threads for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.native import gemm, onednn, threads

Array = np.ndarray
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
TURNED = 1 << 25  # multiplications from which a transposed left matrix is copied
WIDE = 1 << 21  # multiplications from which several threads of BLAS pay


def rows(a: Array) -> Array:
    """All but the last dimension as one."""
    return a if a.ndim == 2 else a.reshape(-1, a.shape[-1])


def mm(a: Array, b: Array) -> Array | None:
    """``a @ b`` with any rank on the left."""
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[0] or not a.size:
        return None
    left = rows(a)
    if a.dtype is F32 and b.dtype is F32:
        y = _mm32(left, b)
    else:
        y = _by_blas(left, b)
    return y if y is None or a.ndim == 2 else y.reshape(*a.shape[:-1], b.shape[1])


def _mm32(a: Array, b: Array) -> Array | None:
    """A product of two float32 matrices by whoever is faster."""
    # oneDNN reads a transposed left matrix in place, which costs more than copying it.
    turned = a.strides[0] == 4 and a.strides[1] != 4 and min(*a.shape, b.shape[1]) >= 128
    if turned and a.size * b.shape[1] >= TURNED and gemm.takes(a, b):
        return gemm.matmul(a, b, np.empty((len(a), b.shape[1]), F32))
    y = onednn.matmul(a, b)
    if y is None and not onednn.available() and gemm.takes(a, b):
        return gemm.matmul(a, b, np.empty((len(a), b.shape[1]), F32))
    return y


def bmm(a: Array, b: Array) -> Array | None:
    """Products of stacks of matrices."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None
    if a.dtype is F32 and b.dtype is F32:
        return onednn.matmul(a, b)
    return _by_blas(a, b)


def linear(x: Array, weight: Array) -> Array | None:
    """``x @ weight.T``."""
    if x.dtype is F32 and weight.dtype is F32:
        return onednn.linear(x, weight)
    return mm(x, weight.T) if weight.ndim == 2 else None


def linear_with_bias(x: Array, weight: Array, bias: Array) -> Array | None:
    """``x @ weight.T + bias``."""
    if x.dtype is F32 and weight.dtype is F32 and bias.dtype is F32:
        return onednn.linear(x, weight, bias)
    if bias.dtype != x.dtype:
        return None
    y: Any = linear(x, weight)
    if y is not None:
        y += bias
    return y


def _by_blas(a: Array, b: Array) -> Array | None:
    if a.dtype is not b.dtype or a.dtype.kind not in "fc" or a.dtype.itemsize < 8:
        return None
    if a.size * b.shape[-1] < WIDE:
        return None
    with threads.wide_blas():
        return np.matmul(a, b)
