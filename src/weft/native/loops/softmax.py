"""Softmax, its logarithm and their gradients along any dimension, as row programs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.jit import Kernel, entry_points
from weft.native.codegen.row_programs import (
    GRAIN,
    NEVER,
    Along,
    Each,
    Number,
    RowProgram,
    exp_flush,
    if_finite,
    kept,
    largest,
    log,
    row_program,
    total,
)
from weft.native.loops.reduce import one_step, put_back, repeats, valid
from weft.native.loops.short_rows import SHORT
from weft.native.loops.sums import LEAF
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray


@row_program
def _softmax(x: Along) -> Any:
    e = kept(exp_flush(x - largest(x)))
    return e * (1.0 / total(e))


@row_program
def _log_softmax(x: Along) -> Any:
    top = largest(x)
    return x - top - log(total(exp_flush(x - top)))


@row_program
def _logsumexp(x: Along) -> Any:
    top = largest(x)
    return if_finite(top, log(total(exp_flush(x - top))) + top, top)


@row_program(together=NEVER)
def _softmax_back(g: Along, y: Along) -> Any:
    return y * (g - total(g * y))


@row_program(together=NEVER)
def _log_softmax_back(g: Along, y: Along) -> Any:
    return g - exp_flush(y) * total(g)  # y is a logarithm of a share


@row_program
def scaled(x: Along, scale: Number) -> Any:
    v = x * scale
    e = kept(exp_flush(v - largest(v)))
    return e * (1.0 / total(e))


@row_program
def scaled_back(g: Along, y: Along, scale: Number) -> Any:
    return y * (g - total(g * y)) * scale


# --- the ops -----------------------------------------------------------------------------


@functools.lru_cache(512)
def _plan(
    program: RowProgram, dtype: np.dtype, shape: tuple[int, ...], dim: int
) -> Callable[..., None] | None:
    """What runs along a dimension of arrays of a shape, if anything does."""
    d = FLOATS.get(dtype)
    if d is None or not 0 <= dim < len(shape) or not prod(shape):
        return None
    return program.whole.runner(d, prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :]))


@entry_points
def _last(program: RowProgram) -> Callable[..., ndarray | None]:
    """Along the last dimension, as one call; many short rows are better done together."""
    narrow = (SHORT, program.together)
    return program.whole.entry(program.whole.rows, grain=GRAIN, narrow=narrow)


def _is_one_call(program: RowProgram, x: ndarray, dim: int) -> bool:
    """Whether ``_last`` is for an array; else it need not be compiled."""
    if dim != x.ndim - 1 or buffers.PLANNERS:
        return False
    n = x.shape[dim]
    return n > SHORT or x.size < n * program.together


def _forward(program: RowProgram, x: ndarray, dim: int) -> ndarray | None:
    if _is_one_call(program, x, dim):
        out = _last(program)(x)
        if out is not None:
            return out
    run = _plan(program, x.dtype, x.shape, dim)
    if run is None:
        return None
    x, out = plain(x), buffers.empty(x.shape, x.dtype)
    run(x, out)
    return out


def _backward(program: RowProgram, g: ndarray, y: ndarray, dim: int) -> ndarray | None:
    if _is_one_call(program, y, dim):
        out = _last(program)(g, y)
        if out is not None:
            return out
    run = _plan(program, y.dtype, y.shape, dim)
    if run is None or g.dtype != y.dtype or g.shape != y.shape:
        return None
    g, y, out = plain(g), plain(y), buffers.empty(y.shape, y.dtype)
    run(g, y, out)
    return out


# Exponentials along a dimension, scaled to sum to one, or their logarithms; and from these and the
# gradient of the result that of x.
softmax, log_softmax = (
    functools.partial(_forward, _softmax),
    functools.partial(_forward, _log_softmax),
)
softmax_back = functools.partial(_backward, _softmax_back)
log_softmax_back = functools.partial(_backward, _log_softmax_back)


# --- a few elements, with NumPy's bits ---------------------------------------------------
#
# NumPy's exponential and logarithm have bits of their own, so they are asked for by name; all else
# is exact, or summed in NumPy's order.


@row_program
def _less_top(x: Along) -> Any:
    return x - largest(x)


@row_program
def _by_sum(x: Along) -> Any:
    return x / total(x)


@row_program
def _totals(x: Along) -> Any:
    return total(x)


@row_program
def _less_each(x: Along, by: Each) -> Any:
    return x - by


@entry_points
def _few() -> tuple[Callable, ...]:
    """The steps along the last dimension of up to ``LEAF`` elements, as one call each."""
    steps = (program.whole for program in (_less_top, _by_sum, _totals, _less_each))
    return tuple(step.entry(step.reference, most=LEAF) for step in steps)


def softmax_small(x: ndarray, dim: int) -> ndarray | None:
    """Softmax of a few elements along the last dimension, with the bits of the reference."""
    if dim != x.ndim - 1:
        return None
    less_top, by_sum, _, _ = _few()
    y = less_top(x)
    return None if y is None else by_sum(np.exp(y, y))


def log_softmax_small(x: ndarray, dim: int) -> ndarray | None:
    """The same for its logarithm."""
    if dim != x.ndim - 1:
        return None
    less_top, _, totals, less = _few()
    y = less_top(x)
    if y is None:
        return None
    total = totals(np.exp(y))
    return less(y, np.log(total, total))


def _scores(run: Kernel, arrays: tuple[ndarray, ...], scale: float, causal: bool) -> ndarray | None:
    like = arrays[-1]
    kind = FLOATS.get(like.dtype)
    if (
        kind is None
        or not like.size
        or any(a.dtype != like.dtype or a.shape != like.shape for a in arrays)
    ):
        return None
    out = buffers.empty(like.shape, like.dtype)
    height, n = like.shape[-2:]
    rows = like.size // n
    many = threads.how_many(rows, -(-GRAIN // n))
    run.get(kind, causal=causal)(*map(plain, arrays), out, scale, n, height, rows, many)
    return out


def scaled_softmax(x: ndarray, scale: float, causal: bool) -> ndarray | None:
    """Softmax of scaled rows; with ``causal`` up to the diagonal."""
    return _scores(scaled.whole.causal, (x,), scale, causal)


def scaled_softmax_back(g_in: ndarray, y: ndarray, scale: float, causal: bool) -> ndarray | None:
    """The gradient of the scores from the weights."""
    return _scores(scaled_back.whole.causal, (g_in, y), scale, causal)


def logsumexp(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The logarithm of the sum of exponentials over some dimensions."""
    d = FLOATS.get(x.dtype)
    if d is None or not x.size or not dim or repeats(x) or not valid(dim, x.ndim):
        return None
    transposed, sizes, back = one_step(x, dim)
    out = buffers.empty(sizes[0] * sizes[2], x.dtype)
    run = _plan(_logsumexp, x.dtype, sizes, 1)
    assert run is not None
    run(transposed, out)
    return put_back(out, x.shape, dim, keepdim, back)
