"""Softmax, its logarithm and their gradients along any dimension."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, T, array, f64, i64, inline, maximum
from weft.native.codegen.jit import Kernel, kernel
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.math import exp_flush, log
from weft.native.loops.reduce import (
    BLOCK,
    LOWEST,
    SHORT,
    TOGETHER,
    made,
    max_of,
    one_step,
    put_back,
    repeats,
    turn,
    valid,
)
from weft.native.loops.sums import LEAF, leaf
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray

# Elements that are worth a thread.
GRAIN = 8192
# Most columns at a time, elements of a tile that stay close, rows summed in their own type.
TILE = 256
NEAR = 32768
ROWS = 128


# --- along rows --------------------------------------------------------------------------


@inline(reassociate=True)
def exponentials(x: Ptr[T], y: Ptr[T], top: T, n: i64) -> f64:
    """Fill y with exp(x - top) and give the sum."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        p = x + b
        q = y + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            e = exp_flush(p[i] - top)
            q[i] = e
            part += e
        total += f64(part)
    return total


@inline(reassociate=True)
def dot_of(x: Ptr[T], y: Ptr[T], n: i64) -> f64:
    """The sum of products."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        p = x + b
        q = y + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            part += p[i] * q[i]
        total += f64(part)
    return total


@inline(reassociate=True)
def sum_of_exponentials(x: Ptr[T], top: T, n: i64) -> f64:
    """The sum of exp(x - top), where top is the largest x."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        p = x + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            part += exp_flush(p[i] - top)
        total += f64(part)
    return total


@kernel
def _softmax_rows(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        scale = T(1.0 / exponentials(p, q, max_of(p, n), n))
        for i in range(n):
            q[i] = q[i] * scale


@kernel
def _log_softmax_rows(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        top = max_of(p, n)
        shift = log(T(sum_of_exponentials(p, top, n)))
        for i in range(n):
            q[i] = p[i] - top - shift


@kernel
def _logsumexp_rows(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        top = max_of(p, n)
        y[row] = _onto(top, T(sum_of_exponentials(p, top, n)))


@inline
def _onto(top: T, total: T) -> T:
    """top + log(total), or top itself if it is infinite or NaN."""
    return log(total) + top if top - top == 0.0 else top


@inline(reassociate=True)
def _product(g: T, y: T) -> T:
    return g * y


@inline
def _first(g: T, y: T) -> T:
    return g


@inline
def _softmax_share(g: T, y: T, total: T) -> T:
    return y * (g - total)


@inline
def _log_softmax_share(g: T, y: T, total: T) -> T:
    return g - exp_flush(y) * total  # y is a logarithm of a share


# What these names mean in the kernels below, unless a kernel is made with others.
term, share = _product, _softmax_share


@kernel(reassociate=True)
def _softmax_rows_back(g: Ptr[T], y: Ptr[T], out: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = g + row * n
        q = y + row * n
        o = out + row * n
        total = f64(0.0)
        for b in range(0, n, BLOCK):
            p0 = p + b
            q0 = q + b
            part = T(0.0)
            for i in range(min(BLOCK, n - b)):
                part += term(p0[i], q0[i])
            total += f64(part)
        along = T(total)
        for i in range(n):
            o[i] = share(p[i], q[i], along)


# --- of scores ---------------------------------------------------------------------------


@kernel
def _scaled_rows(
    x: Ptr[T], y: Ptr[T], n: i64, height: i64, scale: T, causal: i64, lo: i64, hi: i64
) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        count = min(n, row % height + 1) if causal else n
        for i in range(count):
            q[i] = p[i] * scale
        total = T(1.0 / exponentials(q, q, max_of(q, count), count))
        for i in range(count):
            q[i] = q[i] * total
        for i in range(count, n):
            q[i] = T(0.0)


@kernel(reassociate=True)
def _scaled_rows_back(
    g: Ptr[T], y: Ptr[T], out: Ptr[T], n: i64, height: i64, scale: T, causal: i64, lo: i64, hi: i64
) -> None:
    for row in range(lo, hi):
        p = g + row * n
        q = y + row * n
        o = out + row * n
        count = min(n, row % height + 1) if causal else n
        along = T(dot_of(p, q, count))
        for i in range(count):
            o[i] = q[i] * (p[i] - along) * scale
        for i in range(count, n):
            o[i] = T(0.0)


# --- along columns -----------------------------------------------------------------------


@inline
def _column_tops(x: Ptr[T], top: Ptr[T], r: i64, k: i64, width: i64) -> None:
    """The largest of each column."""
    for c in range(width):
        top[c] = T(LOWEST)
    for i in range(r):
        p = x + i * k
        for c in range(width):
            top[c] = maximum(top[c], p[c])


@inline
def _column_exponentials(
    x: Ptr[T], y: Ptr[T], top: Ptr[T], total: Ptr[f64], r: i64, k: i64, step: i64, width: i64
) -> None:
    """The sums of exp(x - top) over r rows, which are left in y, so many elements apart."""
    part = array(T, TILE)
    for c in range(width):
        total[c] = 0.0
    for b in range(0, r, ROWS):
        for c in range(width):
            part[c] = T(0.0)
        for i in range(b, min(b + ROWS, r)):
            p = x + i * k
            q = y + i * step
            for c in range(width):
                e = exp_flush(p[c] - top[c])
                q[c] = e
                part[c] += e
        for c in range(width):
            total[c] += part[c]


@kernel
def _softmax_columns(
    x: Ptr[T], y: Ptr[T], r: i64, k: i64, tile: i64, tiles: i64, lo: i64, hi: i64
) -> None:
    top = array(T, TILE)
    total = array(f64, TILE)
    for item in range(lo, hi):
        left = (item % tiles) * tile
        width = min(tile, k - left)
        p = x + (item // tiles * r * k + left)
        q = y + (item // tiles * r * k + left)
        _column_tops(p, top, r, k, width)
        _column_exponentials(p, q, top, total, r, k, k, width)
        for c in range(width):
            top[c] = 1.0 / total[c]
        for i in range(r):
            q0 = q + i * k
            for c in range(width):
                q0[c] = q0[c] * top[c]


@kernel
def _log_softmax_columns(
    x: Ptr[T], y: Ptr[T], r: i64, k: i64, tile: i64, tiles: i64, lo: i64, hi: i64
) -> None:
    top = array(T, TILE)
    total = array(f64, TILE)
    other = array(T, TILE)
    for item in range(lo, hi):
        left = (item % tiles) * tile
        width = min(tile, k - left)
        p = x + (item // tiles * r * k + left)
        q = y + (item // tiles * r * k + left)
        _column_tops(p, top, r, k, width)
        _column_exponentials(p, other, top, total, r, k, 0, width)
        for c in range(width):
            other[c] = log(T(total[c]))
        for i in range(r):
            p0 = p + i * k
            q0 = q + i * k
            for c in range(width):
                q0[c] = p0[c] - top[c] - other[c]


@kernel
def _logsumexp_columns(
    x: Ptr[T], y: Ptr[T], r: i64, k: i64, tile: i64, tiles: i64, lo: i64, hi: i64
) -> None:
    top = array(T, TILE)
    total = array(f64, TILE)
    other = array(T, TILE)
    for item in range(lo, hi):
        left = (item % tiles) * tile
        width = min(tile, k - left)
        p = x + (item // tiles * r * k + left)
        q = y + (item // tiles * k + left)
        _column_tops(p, top, r, k, width)
        _column_exponentials(p, other, top, total, r, k, 0, width)
        for c in range(width):
            q[c] = _onto(top[c], T(total[c]))


# --- along short rows, which are turned into columns --------------------------------------


@inline
def _turn_back(columns: Ptr[T], y: Ptr[T], n: i64, count: i64) -> None:
    for j in range(count):
        for i in range(n):
            y[j * n + i] = columns[i * TOGETHER + j]


@kernel
def _softmax_short(x: Ptr[T], y: Ptr[T], n: i64, rows: i64, lo: i64, hi: i64) -> None:
    columns = array(T, SHORT * TOGETHER)
    top = array(T, TILE)
    total = array(f64, TILE)
    for item in range(lo, hi):
        first = item * TOGETHER
        count = min(TOGETHER, rows - first)
        turn(x + first * n, columns, n, count)
        _column_tops(columns, top, n, TOGETHER, count)
        _column_exponentials(columns, columns, top, total, n, TOGETHER, TOGETHER, count)
        for c in range(count):
            top[c] = 1.0 / total[c]
        for i in range(n):
            q = columns + i * TOGETHER
            for c in range(count):
                q[c] = q[c] * top[c]
        _turn_back(columns, y + first * n, n, count)


@kernel
def _log_softmax_short(x: Ptr[T], y: Ptr[T], n: i64, rows: i64, lo: i64, hi: i64) -> None:
    columns = array(T, SHORT * TOGETHER)
    top = array(T, TILE)
    other = array(T, TILE)
    total = array(f64, TILE)
    for item in range(lo, hi):
        first = item * TOGETHER
        count = min(TOGETHER, rows - first)
        turn(x + first * n, columns, n, count)
        _column_tops(columns, top, n, TOGETHER, count)
        _column_exponentials(columns, other, top, total, n, TOGETHER, 0, count)
        for c in range(count):
            other[c] = log(T(total[c]))
        for i in range(n):
            w = columns + i * TOGETHER
            for c in range(count):
                w[c] = w[c] - top[c] - other[c]
        _turn_back(columns, y + first * n, n, count)


@kernel
def _logsumexp_short(x: Ptr[T], y: Ptr[T], n: i64, rows: i64, lo: i64, hi: i64) -> None:
    columns = array(T, SHORT * TOGETHER)
    top = array(T, TILE)
    other = array(T, TILE)
    total = array(f64, TILE)
    for item in range(lo, hi):
        first = item * TOGETHER
        count = min(TOGETHER, rows - first)
        turn(x + first * n, columns, n, count)
        _column_tops(columns, top, n, TOGETHER, count)
        _column_exponentials(columns, other, top, total, n, TOGETHER, 0, count)
        for c in range(count):
            y[first + c] = _onto(top[c], T(total[c]))


# --- gradients along columns -------------------------------------------------------------


@kernel(reassociate=True)
def _softmax_columns_back(
    g: Ptr[T], y: Ptr[T], out: Ptr[T], r: i64, k: i64, tile: i64, tiles: i64, lo: i64, hi: i64
) -> None:
    part = array(T, TILE)
    total = array(f64, TILE)
    for item in range(lo, hi):
        left = (item % tiles) * tile
        width = min(tile, k - left)
        p = g + (item // tiles * r * k + left)
        q = y + (item // tiles * r * k + left)
        o = out + (item // tiles * r * k + left)
        for c in range(width):
            total[c] = 0.0
        for b in range(0, r, ROWS):
            for c in range(width):
                part[c] = T(0.0)
            for i in range(b, min(b + ROWS, r)):
                p0 = p + i * k
                q0 = q + i * k
                for c in range(width):
                    part[c] += term(p0[c], q0[c])
            for c in range(width):
                total[c] += part[c]
        for c in range(width):
            part[c] = total[c]
        for i in range(r):
            p0 = p + i * k
            q0 = q + i * k
            o0 = o + i * k
            for c in range(width):
                o0[c] = share(p0[c], q0[c], part[c])


_log_softmax_rows_back = made(_softmax_rows_back, term=_first, share=_log_softmax_share)
_log_softmax_columns_back = made(_softmax_columns_back, term=_first, share=_log_softmax_share)


# --- the ops -----------------------------------------------------------------------------

Kernels = tuple[Kernel, Kernel, Kernel | None]  # along rows, along columns, along short rows
SOFTMAX: Kernels = (_softmax_rows, _softmax_columns, _softmax_short)
LOG_SOFTMAX: Kernels = (_log_softmax_rows, _log_softmax_columns, _log_softmax_short)
SOFTMAX_BACK: Kernels = (_softmax_rows_back, _softmax_columns_back, None)
LOG_SOFTMAX_BACK: Kernels = (_log_softmax_rows_back, _log_softmax_columns_back, None)
LOGSUMEXP: Kernels = (_logsumexp_rows, _logsumexp_columns, _logsumexp_short)


def _runner(kernels: Kernels, d: str, outer: int, n: int, k: int) -> Callable[..., None]:
    """What runs on the addresses of (outer, n, inner) arrays."""
    rows, columns, short = kernels
    many = threads.how_many
    if k > 1:
        tile = min(TILE, max(32, NEAR // n // 16 * 16))
        tiles = -(-k // tile)
        over, grain = outer * tiles, -(-GRAIN // (n * min(k, tile)))
        wide = columns.get(d)
        return lambda *at: wide(*at, n, k, tile, tiles, over, many(over, grain))
    if short is not None and 1 < n <= SHORT and outer >= 16:
        over, grain = -(-outer // TOGETHER), -(-GRAIN // (n * TOGETHER))
        few = short.get(d)
        return lambda *at: few(*at, n, outer, over, many(over, grain))
    grain, plainly = -(-GRAIN // n), rows.get(d)
    return lambda *at: plainly(*at, n, outer, many(outer, grain))


@functools.lru_cache(512)
def _plan(
    kernels: Kernels, dtype: np.dtype, shape: tuple[int, ...], dim: int
) -> Callable[..., None] | None:
    """What runs along a dimension of arrays of a shape, if anything does."""
    d = FLOATS.get(dtype)
    if d is None or not 0 <= dim < len(shape) or not prod(shape):
        return None
    return _runner(kernels, d, prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :]))


@functools.cache
def _last(kernels: Kernels) -> Callable[..., ndarray | None]:
    """Along the last dimension, as one call; many short rows are better done together."""
    rows, _, short = kernels
    takes, gives = ("f32", "f32 like")[: len(rows.parameters) - 2], ("f32 like 0",)
    passes = (*(f"take {k}" for k in range(len(takes))), "give 0", "last")
    narrow = (0, 0) if short is None else (SHORT, 16)
    return rows.whole(EntrySpec(takes, gives, passes, "lead", "last", GRAIN, narrow=narrow), "f32")


def _forward(kernels: Kernels, x: ndarray, dim: int) -> ndarray | None:
    if dim == x.ndim - 1:
        out = _last(kernels)(x)
        if out is not None:
            return out
    run = _plan(kernels, x.dtype, x.shape, dim)
    if run is None:
        return None
    x, out = plain(x), buffers.empty(x.shape, x.dtype)
    run(x, out)
    return out


def _backward(kernels: Kernels, g: ndarray, y: ndarray, dim: int) -> ndarray | None:
    if dim == y.ndim - 1:
        out = _last(kernels)(g, y)
        if out is not None:
            return out
    run = _plan(kernels, y.dtype, y.shape, dim)
    if run is None or g.dtype != y.dtype or g.shape != y.shape:
        return None
    g, y, out = plain(g), plain(y), buffers.empty(y.shape, y.dtype)
    run(g, y, out)
    return out


def softmax(x: ndarray, dim: int) -> ndarray | None:
    """Exponentials along a dimension, scaled to sum to one."""
    return _forward(SOFTMAX, x, dim)


def log_softmax(x: ndarray, dim: int) -> ndarray | None:
    """The logarithm of softmax."""
    return _forward(LOG_SOFTMAX, x, dim)


# --- a few elements, with NumPy's bits ---------------------------------------------------
#
# NumPy's exponential and logarithm have bits of their own, so they are asked for by name; all else
# is exact, or summed in NumPy's order.


@kernel
def _less_top(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        top = p[0]
        for i in range(1, n):
            top = maximum(top, p[i])
        for i in range(n):
            q[i] = p[i] - top


@kernel
def _by_sum(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        total = leaf(p, n)
        for i in range(n):
            q[i] = p[i] / total


@kernel
def _totals(x: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        y[row] = leaf(x + row * n, n)


@kernel
def _less_each(x: Ptr[T], by: Ptr[T], y: Ptr[T], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        for i in range(n):
            y[row * n + i] = x[row * n + i] - by[row]


@functools.cache
def _few() -> tuple[Callable, Callable, Callable, Callable]:
    """The steps along the last dimension of up to ``LEAF`` elements, as one call each."""
    alike = EntrySpec(
        ("f32",), ("f32 like 0",), ("take 0", "give 0", "last"), "lead", "last", most=LEAF
    )
    sums = EntrySpec(
        ("f32",), ("f32 kept",), ("take 0", "give 0", "last"), "lead", "last", most=LEAF
    )
    passes = ("take 0", "take 1", "give 0", "last")
    less = EntrySpec(("f32", "f32 kept"), ("f32 like 0",), passes, "lead", "last", most=LEAF)
    return (
        _less_top.whole(alike, "f32"),
        _by_sum.whole(alike, "f32"),
        _totals.whole(sums, "f32"),
        _less_each.whole(less, "f32"),
    )


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


def softmax_back(g_in: ndarray, y: ndarray, dim: int) -> ndarray | None:
    """The gradient of softmax from its result."""
    return _backward(SOFTMAX_BACK, g_in, y, dim)


def log_softmax_back(g_in: ndarray, y: ndarray, dim: int) -> ndarray | None:
    """The gradient of the logarithm of softmax from its result."""
    return _backward(LOG_SOFTMAX_BACK, g_in, y, dim)


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
    run.get(kind, causal=causal)(*map(plain, arrays), out, n, height, scale, rows, many)
    return out


def scaled_softmax(x: ndarray, scale: float, causal: bool) -> ndarray | None:
    """Softmax of scaled rows; with ``causal`` up to the diagonal."""
    return _scores(_scaled_rows, (x,), scale, causal)


def scaled_softmax_back(g_in: ndarray, y: ndarray, scale: float, causal: bool) -> ndarray | None:
    """The gradient of the scores from the weights."""
    return _scores(_scaled_rows_back, (g_in, y), scale, causal)


def logsumexp(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The logarithm of the sum of exponentials over some dimensions."""
    d = FLOATS.get(x.dtype)
    if d is None or not x.size or not dim or repeats(x) or not valid(dim, x.ndim):
        return None
    transposed, sizes, back = one_step(x, dim)
    out = buffers.empty(sizes[0] * sizes[2], x.dtype)
    _runner(LOGSUMEXP, d, *sizes)(transposed, out)
    return put_back(out, x.shape, dim, keepdim, back)
