"""Matrix products: our own or oneDNN for float32, NumPy's BLAS on all threads for the rest.

Small float32 products are NumPy's in eager mode, and in a plan direct ones (``direct``).
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.native import onednn, threads
from weft.native.codegen import jit
from weft.native.codegen.trace import Loop
from weft.native.gemm import direct, packed
from weft.native.memory import buffers
from weft.native.once import once

Array = np.ndarray
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
LARGE = 1 << 25  # multiplications from which our own products are the faster ones
THIN = 64  # but no dimension may be smaller than this
LAYERS = range(16, 513)  # rows of a left matrix for which our own products lead in layers
STACK = 256  # matrices in a stack that a plan takes one by one
PAGE = 4096  # bytes between rows that share the sets of a cache
WIDE = 1 << 21  # multiplications from which several threads of BLAS pay


def rows(a: Array) -> Array:
    """All but the last dimension as one."""
    return a if a.ndim == 2 else a.reshape(-1, a.shape[-1])


def mm(a: Array, b: Array) -> Array | None:
    """``a @ b`` with any rank on the left; that of a vector is NumPy's in eager mode."""
    if a.ndim == 1 and buffers.planner() is not None:
        row = mm(a.reshape(1, -1), b)
        return None if row is None else row.reshape(-1)
    if a.ndim < 2 or b.ndim != 2 or a.shape[-1] != b.shape[0] or not a.size:
        return None
    left = rows(a)
    if a.dtype is F32 and b.dtype is F32:
        y = _mm32(left, b)
    else:
        y = _by_blas(left, b)
    return y if y is None or a.ndim == 2 else y.reshape(*a.shape[:-1], b.shape[1])


def _mm32(a: Array, b: Array, out: Array | None = None) -> Array | None:
    """A product of two float32 matrices by the faster implementation, in new memory or in that of
    out.
    """
    if _planned_small(a, b):
        matmul: Any = direct.matmul
    elif _own(a, b, False):
        matmul = packed.matmul
    else:
        return onednn.matmul(a, b, out)
    return matmul(a, b, buffers.empty((len(a), b.shape[1]), F32) if out is None else out)


def _planned_small(a: Array, b: Array) -> bool:
    """Whether a plan uses the direct product of two matrices, which needs no packing."""
    if buffers.planner() is None or a.ndim != 2 or b.ndim != 2 or a.shape[1] != len(b):
        return False
    return a.size * b.shape[1] <= direct.most() and direct.takes(a, b)


def _worth(multiplications: int) -> bool:
    """Whether there is enough work for our own products to be faster."""
    if onednn.available():
        return multiplications >= LARGE
    return not buffers.small(multiplications, packed.WORTH)


def _own(a: Array, b: Array, biased: bool) -> bool:
    """Whether to use the packed product for two matrices: it is best for large and tall ones."""
    if not packed.takes(a, b):
        return False
    m, n, transposed = len(a), b.shape[1], a.strides[1] != 4
    if _wide_vectors() and m in LAYERS and n >= packed.NARROW and _is_layers(a, b):
        return True
    if not _worth(a.size * b.shape[1]):
        return False
    # oneDNN reads a transposed left matrix slowly, and is slower with a bias than without.
    if _onednn_leads():
        best = biased or (transposed and n <= m and not a.strides[1] % PAGE)
    else:
        best = biased or transposed or n < m
    return (best and min(m, n, len(b)) >= THIN) or not onednn.available()


def _is_layers(a: Array, b: Array) -> bool:
    """Whether matrices have the layout of a layer, whose weight is read transposed."""
    return a.strides[1] == b.strides[0] == 4 and b.strides[1] != 4


@once
def _wide_vectors() -> bool:
    """Whether there is AVX-512, for which oneDNN has products that do not let threads share the
    weight of a layer with few rows: two threads take as long as one.
    """
    return "+avx512f" in jit.engine().features


@once
def _onednn_leads() -> bool:
    """Whether oneDNN is closer to peak performance than packed products: on Intel processors with
    AVX-512.

    There only rows of a transposed left matrix that share cache sets make it slow.
    """
    return _wide_vectors() and not jit.engine().cpu.startswith("znver")


def bmm(a: Array, b: Array) -> Array | None:
    """Products of stacks of matrices."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None
    if a.dtype is F32 and b.dtype is F32:
        return _stacked(a, b)
    return _by_blas(a, b)


def _stacked(a: Array, b: Array) -> Array | None:
    """Products of stacks of float32 matrices: oneDNN is the faster one, where it is."""
    if onednn.available() or a.ndim + b.ndim == 4 or not packed.takes(a, b):
        return onednn.matmul(a, b)
    try:
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return None
    return packed.stacked(a, b, buffers.empty((*stack, a.shape[-2], b.shape[-1]), F32))


def linear(x: Array, weight: Array) -> Array | None:
    """``x @ weight.T``."""
    if x.dtype is F32 and weight.dtype is F32:
        y = _linear32(x, weight)
        return onednn.linear(x, weight) if y is None else y
    return mm(x, weight.T) if weight.ndim == 2 else None


def _is_layer(x: Array, weight: Array, bias: Array | None) -> bool:
    """Whether shapes are those of a layer, and our own products can add the bias."""
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        return False
    return bias is None or (bias.shape == weight.shape[:1] and bias.strides == (4,))


def _linear32(x: Array, weight: Array, bias: Array | None = None) -> Array | None:
    """A layer of float32 by our own product, if that is the faster one."""
    if not _is_layer(x, weight, bias):
        return None
    # A plan can't copy rows that are apart as one matrix.
    if (x.ndim == 2 or x.flags.c_contiguous) and _planned_small(rows(x), weight.T):
        matmul: Any = direct.matmul
    elif _own(rows(x), weight.T, bias is not None):
        matmul = packed.matmul
    else:
        return None
    left = rows(x)
    y = matmul(left, weight.T, buffers.empty((len(left), len(weight)), F32), bias=bias)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], len(weight))


def relu_of_linear(x: Array, weight: Array, bias: Array | None = None) -> Array | None:
    """``relu(x @ weight.T + bias)`` in one call, as a step of a plan; None if unsupported.

    The result has the bits of the two ops: relu acts on the finished sums.
    """
    if any(a is not None and a.dtype is not F32 for a in (x, weight, bias)):
        return None
    if not _is_layer(x, weight, bias) or not (x.ndim == 2 or x.flags.c_contiguous):
        return None
    if not _planned_small(rows(x), weight.T):
        return None
    left, out = rows(x), buffers.empty((prod(x.shape[:-1]), len(weight)), F32)
    y = direct.matmul(left, weight.T, out, bias, rectified=True)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], len(weight))


def supports_fused_relu(x: tuple[int, ...], weight: tuple[int, ...]) -> bool:
    """Whether ``relu_of_linear`` supports arrays of these shapes, given a suitable layout."""
    return direct.available() and len(weight) == 2 and 0 < prod(x) * weight[0] <= direct.most()


def linear_with_bias(x: Array, weight: Array, bias: Array) -> Array | None:
    """``x @ weight.T + bias``."""
    if x.dtype is F32 and weight.dtype is F32 and bias.dtype is F32:
        made = _linear32(x, weight, bias)
        return onednn.linear(x, weight, bias) if made is None else made
    if bias.dtype != x.dtype:
        return None
    y: Any = linear(x, weight)
    if y is not None and buffers.planner() is not None:
        return _biased()(y, bias)
    if y is not None:
        y += bias
    return y


@once
def _biased() -> Loop:
    return Loop("add_bias", np.add)


def into(a: Array, b: Array, out: Array) -> None:
    """``out = a @ b`` for matrices, as a step of a plan."""
    if a.dtype is F32 and b.dtype is F32:
        found = _mm32(a, b, out if out.flags.c_contiguous else None)
    else:
        found = _by_blas(a, b)
    if found is None:
        raise buffers.Unplannable(f"a product of {a.dtype} and {b.dtype} matrices")
    if found is not out:
        buffers.move(out, found)


def _by_blas(a: Array, b: Array) -> Array | None:
    plan = buffers.planner()
    if plan is not None:
        return _planned(plan, a, b) if a.dtype is F64 and b.dtype is F64 else None
    if a.dtype is not b.dtype or a.dtype.kind not in "fc" or a.dtype.itemsize < 8:
        return None
    if a.size * b.shape[-1] < WIDE:
        return None
    with threads.wide_blas():
        return np.matmul(a, b)


def _planned(plan: buffers.Planner, a: Array, b: Array) -> Array | None:
    """Products of float64 matrices as calls of BLAS."""
    try:
        stack = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        return None
    code, count = threads.dgemm(), prod(stack)
    if not code or count > STACK:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    out = buffers.empty((*stack, m, n), F64)
    left = np.broadcast_to(a, (*stack, m, k))
    right = np.broadcast_to(b, (*stack, k, n))
    for at in np.ndindex(stack):
        (order_a, step_a, one), (order_b, step_b, other) = (
            _blas_layout(left[at]),
            _blas_layout(right[at]),
        )
        numbers = (_ROW_MAJOR, order_a, order_b, m, n, k, 1.0, plan.place(one), step_a)
        plan.raw("dgemm", code, *numbers, plan.place(other), step_b, 0.0, plan.place(out[at]), n)
    return out


_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112  # CBLAS's enum values


def _blas_layout(a: Array) -> tuple[int, int, Array]:
    """The layout of a matrix, as BLAS expects it."""
    (rows, columns), (down, across) = a.shape, a.strides
    if not (down | across) & 7:
        if across == 8 and (down >= 8 * columns or rows == 1):
            return _PLAIN, max(down >> 3, columns), a
        if down == 8 and across >= 8 * rows:
            return _TRANSPOSED, across >> 3, a
    return _PLAIN, columns, buffers.copied(a)
