"""Sine and cosine of float32 arrays, and their gradients.

The functions of kernels are accurate up to ``SINE_LIMIT``; arrays with larger values fall back to
NumPy. In double precision they are those of the C library, which NumPy's are faster than: loops of
float64 are for plans alone.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import KernelFunction, Ptr, T, i64, inline
from weft.native.codegen.jit import Kernel, kernel
from weft.native.loops.math import SINE_LIMIT
from weft.native.loops.math import cos as cosine
from weft.native.loops.math import sin as sine
from weft.native.loops.reduce import repeats
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)

# The fewest elements that pay, and a part of the work.
SMALL = 4096
BLOCK = 4096


@inline
def _sine_slope(x: T) -> T:
    return cosine(x)


@inline
def _cosine_slope(x: T) -> T:
    return -sine(x)


# What this name means in the kernels below, unless a kernel is made with another.
function = sine


@kernel(reassociate=True)
def _loop(
    t: Ptr[T], x: Ptr[T], y: Ptr[T], far: Ptr[i64], limit: T, n: i64, times: i64, lo: i64, hi: i64
) -> None:
    for block in range(lo, hi):
        beyond = T(0.0)
        for i in range(block * BLOCK, min(n, (block + 1) * BLOCK)):
            y[i] = t[i] * function(x[i]) if times else function(x[i])
            beyond += T(1.0) if abs(x[i]) > limit else T(0.0)
        if beyond > 0.0:
            far[0] = 1


def _made(function: KernelFunction) -> Kernel:
    """The kernel with another function."""
    made = copy.copy(_loop.function)
    made.scope = {**made.scope, "function": function}
    return Kernel(made)


def _run(loop: Kernel, *arrays: ndarray) -> ndarray | None:
    """The loop over arrays of one shape, or None if it is not for them."""
    shape, d = arrays[-1].shape, arrays[-1].dtype
    wide = d == F64 and buffers.PLANNERS and buffers.planner() is not None
    if not (d == F32 or wide) or any(
        a.dtype != d or a.shape != shape or repeats(a) for a in arrays
    ):
        return None
    n = arrays[-1].size
    if buffers.small(n, SMALL):
        return None
    held = [plain(a) for a in arrays]
    blocks = -(-n // BLOCK)
    out, far = buffers.empty(shape, d), buffers.zeros(1, np.int64)
    many = threads.how_many(blocks, 2)
    limit = np.inf if wide else SINE_LIMIT
    first = () if len(held) > 1 else (None,)
    loop.get(FLOATS[d], times=not first)(*first, *held, out, far, limit, n, blocks, many)
    return None if buffers.wrong(far) else out


def _derivative(slope: KernelFunction) -> Callable[..., ndarray | None]:
    """A gradient ``t`` times the slope at ``x``, for which rules ask by these names."""
    loop = _made(slope)
    return lambda t, x: _run(loop, t, x)


# Of every element of an array; and for gradients.
sin, cos = (functools.partial(_run, _made(f)) for f in (sine, cosine))
sin_back, cos_back = map(_derivative, (_sine_slope, _cosine_slope))
