"""Matrix products of float32 arrays by oneDNN; None where NumPy does as well or better."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.native.codegen.jit import pointer
from weft.native.memory import buffers
from weft.native.memory.layout import plain
from weft.native.onednn.binding import obey
from weft.native.onednn.primitive import (
    ATTRIBUTES,
    BIAS,
    DST,
    ENGINE,
    FFI,
    LIB,
    SRC,
    WEIGHTS,
    Ints,
    OneDNNRefused,
    PrimitiveSequence,
    Programs,
    address_of,
    describe,
    primitive_desc,
    row_major,
    wide_vectors,
)

_FLOAT32 = np.dtype(np.float32)
# Up to here NumPy's BLAS runs on one core, and is done as soon. Beyond, its threads would keep
# spinning for a while, and take the cores from whatever comes next.
_SMALL = 1 << 18
# Up to this size the bias is laid out under the product at no cost that can be measured.
_SMALL_BIAS = 1 << 18
_APART = 16  # a cache line, in elements
_IN_PLACE = 1 << 18
_WIDE = wide_vectors()

_programs = Programs()
_sgemm = LIB.dnnl_sgemm


def matmul(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray | None:
    """``a @ b`` for matrices and stacks of matrices, into ``out`` if that is given."""
    if a.dtype != _FLOAT32 or b.dtype != _FLOAT32:
        return None
    if a.ndim != 2 or b.ndim != 2:
        return _stacked(a, b, out)
    m, k = a.shape
    depth, n = b.shape
    if k != depth or buffers.small(m * n * k, _SMALL + 1):
        return None
    if out is None:
        out = buffers.empty((m, n), _FLOAT32)
    elif not _writable(out, (m, n), a, b):
        return None
    return _product(a, b, out, 0.0)


def linear(x: np.ndarray, w: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray | None:
    """``x @ w.T + bias`` for x (..., K), w (N, K) and a bias (N,)."""
    if x.dtype != _FLOAT32 or w.dtype != _FLOAT32 or w.ndim != 2 or not x.ndim:
        return None
    (n, k), size = w.shape, x.size
    if x.shape[-1] != k or buffers.small(size * n, _SMALL + 1):
        return None
    if bias is not None and (bias.dtype != _FLOAT32 or bias.shape != (n,)):
        return None
    rows = x if x.ndim == 2 else x.reshape(size // k, k)
    if bias is not None and len(rows) * n > _SMALL_BIAS:
        y = _biased(rows, w, bias)
    else:
        y = buffers.empty((len(rows), n), _FLOAT32)
        if bias is not None:
            buffers.move(y, bias)
        y = _product(rows, w.T, y, 0.0 if bias is None else 1.0)
    return y if y is None or x.ndim == 2 else y.reshape(*x.shape[:-1], n)


def _product(a: np.ndarray, b: np.ndarray, out: np.ndarray, beta: float) -> np.ndarray | None:
    obey()
    order_a, step_a, a = _matrix(a)
    order_b, step_b, b = _matrix(b)
    (m, k), n = a.shape, b.shape[1]
    if not step_b & 511 and order_b == b"N" and _collide(order_a, step_b, m, n):
        b, step_b = _spread(b), n + _APART
    if not step_a & 511 and order_a == b"T" and n >= 48 and m * n <= _IN_PLACE and not _WIDE:
        a, step_a = _spread(a.T).T, m + _APART
    data_a, data_b, data_out = pointer(a), pointer(b), pointer(out)
    operands = data_a, step_a, data_b, step_b, beta, data_out, n
    if buffers.PLANNERS and (plan := buffers.planner()) is not None:
        _plan_product(plan, order_a, order_b, m, n, k, *operands)
        return out
    return None if _sgemm(order_a, order_b, m, n, k, 1.0, *operands) else out


def _plan_product(
    plan: buffers.Planner, order_a: bytes, order_b: bytes, m: int, n: int, k: int, *operands: Any
) -> None:
    a, step_a, b, step_b, beta, out, step = operands
    flag = buffers.zeros(1, np.int64)
    numbers = (order_a[0], order_b[0], m, n, k, 1.0)
    matrices = (plan.place(a), step_a, plan.place(b), step_b, beta, plan.place(out), step)
    plan.raw("sgemm", address_of("dnnl_sgemm"), *numbers, *matrices, plan.place(flag))
    plan.checked(flag)


def _collide(order_a: bytes, step_b: int, m: int, n: int) -> bool:
    """Whether rows that share cache lines make a product slower than spreading them would.

    Without AVX-512 products of this size read their matrices in place, at down to half the speed
    where rows are a multiple of 2 kB apart.
    """
    least = 96 if order_a == b"T" and step_b != 512 else 48
    return not _WIDE and m >= least and (m <= 256 or m * n <= _IN_PLACE)


def _spread(b: np.ndarray) -> np.ndarray:
    rows, columns = b.shape
    spread = buffers.empty((rows, columns + _APART), _FLOAT32)[:, :columns]
    buffers.move(spread, b)
    return spread


def _matrix(a: np.ndarray) -> tuple[bytes, int, np.ndarray]:
    """A matrix's memory layout: row- or column-major, and the leading dimension."""
    (rows, columns), (down, across) = a.shape, a.strides
    if a.flags.aligned and not (down | across) & 3:
        if columns == 1 and down == 4:  # a column is a row too, and a row is read faster
            return b"T", rows, a
        if across == 4 and (down >= 4 * columns or rows == 1):
            return b"N", max(down >> 2, columns), a
        if down == 4 and across >= 4 * rows:
            return b"T", across >> 2, a
    a = buffers.copied(a)
    return b"N", columns, a


def _biased(x: np.ndarray, w: np.ndarray, bias: np.ndarray) -> np.ndarray | None:
    x, w, bias = plain(x), plain(w), plain(bias)
    program = _programs.find((x.shape, w.shape), _build_biased, x.shape, w.shape)
    if program is None:
        return None
    y = buffers.empty((len(x), len(w)), _FLOAT32)
    return y if program.run(pointer(x), pointer(w), pointer(y), pointer(bias)) else None


def _build_biased(x: Ints, w: Ints) -> PrimitiveSequence:
    (m, k), n = x, w[0]
    rows, columns = describe((m, k), (k, 1)), describe((k, n), (1, k))
    return _build(rows, columns, describe((m, n), (n, 1)), describe((1, n), (n, 1)))


def _build(a: Any, b: Any, out: Any, bias: Any) -> PrimitiveSequence:
    desc = primitive_desc("matmul", ENGINE, a, b, bias, out, ATTRIBUTES)
    program = (
        PrimitiveSequence(a, b, out) if bias == FFI.NULL else PrimitiveSequence(a, b, out, bias)
    )
    binds = {SRC: 0, WEIGHTS: 1, DST: 2}
    program.add(desc, binds if bias == FFI.NULL else {**binds, BIAS: 3})
    return program


def _stacked(a: np.ndarray, b: np.ndarray, out: np.ndarray | None) -> np.ndarray | None:
    """The product of stacks of matrices, which broadcast."""
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        return None
    stack = a.shape[:-2]
    if stack != b.shape[:-2]:
        try:
            stack = np.broadcast_shapes(stack, b.shape[:-2])
        except ValueError:
            return None
    shape = (*stack, a.shape[-2], b.shape[-1])
    if buffers.small(prod(shape) * a.shape[-1], _SMALL + 1):
        return None
    if out is None:
        out = buffers.empty(shape, _FLOAT32)
    elif not _writable(out, shape, a, b):
        return None
    if b.ndim == 2 and a.flags.c_contiguous:
        rows = a.reshape(-1, a.shape[-1])
        done = _product(rows, b, out.reshape(len(rows), -1), 0.0)
        return None if done is None else out
    return _run_stacked(a, b, out)


def _run_stacked(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> np.ndarray | None:
    a = a if a.flags.aligned else buffers.copied(a)
    b = b if b.flags.aligned else buffers.copied(b)
    program = _find_stacked(a, b, out.shape)
    if program is None and not (a.flags.c_contiguous and b.flags.c_contiguous):
        a, b = plain(a), plain(b)
        program = _find_stacked(a, b, out.shape)
    if program is None or not program.run(pointer(a), pointer(b), pointer(out)):
        return None
    return out


def _find_stacked(a: np.ndarray, b: np.ndarray, shape: Ints) -> PrimitiveSequence | None:
    key = (a.shape, a.strides, b.shape, b.strides)
    return _programs.find(key, _build_stacked, key, shape)


def _build_stacked(key: tuple[Ints, Ints, Ints, Ints], shape: Ints) -> PrimitiveSequence:
    a_shape, a_strides, b_shape, b_strides = key
    a, b = _stack(a_shape, a_strides, len(shape)), _stack(b_shape, b_strides, len(shape))
    return _build(a, b, describe(shape, row_major(shape)), FFI.NULL)


def _stack(shape: Ints, strides: Ints, rank: int) -> Any:
    """A stack of matrices whose memory oneDNN reads as it is; a repeated matrix counts once."""
    if any(step & 3 for step in strides):
        raise OneDNNRefused
    sizes, steps = [1] * (rank - len(shape)), [1] * (rank - len(shape))
    for size, step in zip(shape[:-2], strides[:-2], strict=True):
        repeated = size == 1 or step == 0
        sizes.append(1 if repeated else size)
        steps.append(1 if repeated else step >> 2)
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    by_rows = across == 4 and (down >= 4 * columns or rows == 1)
    by_columns = down == 4 and (across >= 4 * rows or columns == 1)
    if min(steps, default=1) < 1 or not (by_rows or by_columns):
        raise OneDNNRefused
    return describe((*sizes, rows, columns), (*steps, max(down >> 2, 1), max(across >> 2, 1)))


def _writable(out: np.ndarray, shape: Ints, *inputs: np.ndarray) -> bool:
    """Whether a result can go straight to ``out``: plain memory, apart from the inputs."""
    return (
        out.shape == shape
        and out.dtype == _FLOAT32
        and out.flags.c_contiguous
        and out.flags.aligned
        # To NumPy the memory of a plan is read-only: what is written there is a call of the plan.
        and (out.flags.writeable or buffers.planner() is not None)
        and not any(np.may_share_memory(out, array) for array in inputs)
    )
