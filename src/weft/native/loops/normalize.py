"""Layer norm and RMS norm over the last dimensions, and their gradients.

Sums are taken in float64. For small arrays layer norm has kernels that do step by step what the
reference does, with the same bits.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, T, array, f64, i64, sqrt
from weft.native.codegen.jit import kernel
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.reduce import BLOCK, SUM, gap, squares_of, step, sum_of
from weft.native.loops.sums import LEAF, leaf
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray

# Elements that are worth a thread.
GRAIN = 16384


@kernel
def _normalize(
    x: Ptr[T],
    weight: Ptr[T],
    bias: Ptr[T],
    y: Ptr[T],
    mean: Ptr[T],
    rstd: Ptr[T],
    n: i64,
    eps: f64,
    weighted: i64,
    biased: i64,
    centred: i64,
    lo: i64,
    hi: i64,
) -> None:
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        m = T(0.0)
        if centred:
            m = T(sum_of(p, n) / f64(n))
            mean[row] = m
        squares = squares_of(p, m, n)
        r = T(1.0 / sqrt(squares / f64(n) + eps))
        if centred:
            r = r + T(squares - squares)  # NaN where the squares overflow, as in PyTorch
        rstd[row] = r
        for i in range(n):
            v = (p[i] - m) * r
            if weighted:
                v = v * weight[i]
            if biased:
                v = v + bias[i]
            q[i] = v


@kernel(reassociate=True)
def _normalize_back(
    g: Ptr[T],
    x: Ptr[T],
    weight: Ptr[T],
    mean: Ptr[T],
    rstd: Ptr[T],
    g_mean: Ptr[T],
    g_rstd: Ptr[T],
    gx: Ptr[T],
    gw: Ptr[T],
    gb: Ptr[T],
    rows: i64,
    n: i64,
    size: i64,
    weighted: i64,
    centred: i64,
    want_x: i64,
    want_w: i64,
    want_b: i64,
    lo: i64,
    hi: i64,
) -> None:
    for block in range(lo, hi):
        w = gw + block * n
        b = gb + block * n
        for i in range(n if want_w else 0):
            w[i] = T(0.0)
        for i in range(n if want_b else 0):
            b[i] = T(0.0)
        for row in range(block * size, min(rows, (block + 1) * size)):
            p = x + row * n
            q = g + row * n
            o = gx + row * n
            m = T(0.0)
            if centred:
                m = mean[row]
            r = rstd[row]
            if want_w:
                for i in range(n):
                    w[i] += q[i] * (gap(p[i], m) * r)
                    if want_b:
                        b[i] += q[i]
            else:
                for i in range(n if want_b else 0):
                    b[i] += q[i]
            if want_x:
                total = f64(0.0)
                along = f64(0.0)
                for start in range(0, n, BLOCK):
                    p0 = p + start
                    q0 = q + start
                    w0 = weight + start
                    s = T(0.0)
                    t = T(0.0)
                    for i in range(min(BLOCK, n - start)):
                        v = q0[i]
                        if weighted:
                            v = v * w0[i]
                        s += v
                        t += v * gap(p0[i], m)
                    total += f64(s)
                    along += f64(t)
                scale = f64(r)
                slope = T((along + f64(g_rstd[row])) * scale * scale / f64(n))
                shift = T(0.0)
                if centred:
                    shift = T((f64(g_mean[row]) - scale * total) / f64(n))
                for i in range(n):
                    v = q[i]
                    if weighted:
                        v = v * weight[i]
                    o[i] = v * r + shift - gap(p[i], m) * r * slope


@functools.lru_cache(512)
def _sizes(shape: tuple[int, ...], rank: int) -> tuple[int, int, Any, Any]:
    """The length and number of rows, the shape of weights and that of statistics."""
    lead, last = shape[: len(shape) - rank], shape[len(shape) - rank :]
    return prod(last), prod(lead), last, lead + (1,) * rank


def _fits(part: Any, x: ndarray, shape: tuple[int, ...]) -> bool:
    """Whether a part is missing, or an array of a shape and of the type of x."""
    return part is None or (part.shape == shape and part.dtype == x.dtype)


@functools.cache
def _last_rows() -> Any:
    """Layer norm over the last dimension, with weights, as one call."""
    spec = EntrySpec(
        ("f32", "f32 row", "f32 row", "number"),
        ("f32 like 0", "f32 kept", "f32 kept"),
        ("take 0", "take 1", "take 2", "give 0", "give 1", "give 2", "last", "take 3"),
        *("lead", "last"),
        returns=(0, 1, 2),
    )
    return _normalize.whole(spec, "f32", weighted=True, biased=True, centred=True)


def _forward(
    x: ndarray, weight: Any, bias: Any, rank: int, eps: float, centred: bool
) -> tuple[ndarray, ...] | None:
    if rank == 1 and centred:
        out = _last_rows()(x, weight, bias, eps)
        if out is not None:
            return out
    if x.dtype not in FLOATS or not x.size:
        return None
    n, rows, last, few = _sizes(x.shape, rank)
    if not (_fits(weight, x, last) and _fits(bias, x, last)):
        return None
    x = plain(x)
    y, rstd = buffers.empty(x.shape, x.dtype), buffers.empty(few, x.dtype)
    mean = buffers.empty(few, x.dtype) if centred else rstd
    scale = x if weight is None else plain(weight)
    offset = x if bias is None else plain(bias)
    run = _normalize.get(
        FLOATS[x.dtype],
        weighted=weight is not None,
        biased=bias is not None,
        centred=centred,
    )
    run(
        x,
        scale,
        offset,
        y,
        mean,
        rstd,
        n,
        eps,
        rows,
        threads.how_many(rows, -(-GRAIN // n)),
    )
    return (y, mean, rstd) if centred else (y, rstd)


def _backward(
    gy: ndarray,
    g_mean: Any,
    g_rstd: Any,
    x: ndarray,
    weight: Any,
    mean: Any,
    rstd: ndarray,
    needs: Any,
    rank: int,
) -> tuple[Any, ...] | None:
    if x.dtype not in FLOATS or not x.size:
        return None
    n, rows, last, few = _sizes(x.shape, rank)
    centred = mean is not None
    if not (_fits(gy, x, x.shape) and _fits(weight, x, last) and _fits(rstd, x, few)):
        return None
    if not (_fits(mean, x, few) and _fits(g_mean, x, few) and _fits(g_rstd, x, few)):
        return None
    x, gy, rstd = plain(x), plain(gy), plain(rstd)
    scale, mean = (x if weight is None else plain(weight)), plain(mean) if centred else rstd
    if g_mean is None or g_rstd is None:
        zeros = buffers.zeros(rows, x.dtype)
        g_mean, g_rstd = (zeros if p is None else p for p in (g_mean, g_rstd))
    g_mean, g_rstd = plain(g_mean), plain(g_rstd)
    want_x, want_w, want_b = bool(needs[0]), bool(needs[1]), len(needs) > 2 and bool(needs[2])
    size = rows if rows * n <= GRAIN and rows <= 256 else 32 if rows >= 1024 else 8
    blocks = -(-rows // size)
    gx = buffers.empty(x.shape, x.dtype) if want_x else None
    parts = last if blocks == 1 else (blocks, *last)
    gw = buffers.empty(parts, x.dtype) if want_w else None
    gb = buffers.empty(parts, x.dtype) if want_b else None
    run = _normalize_back.get(
        FLOATS[x.dtype],
        weighted=weight is not None,
        centred=centred,
        want_x=want_x,
        want_w=want_w,
        want_b=want_b,
    )
    read = (gy, x, scale, mean, rstd, g_mean, g_rstd)
    # An array that is not wanted is not written either: any address will do.
    written = (gx if want_x else x, gw if want_w else x, gb if want_b else x)
    many = threads.how_many(blocks, -(-GRAIN // (size * n)))
    run(*read, *written, rows, n, size, blocks, many)
    return (gx, gw, gb) if blocks == 1 else (gx, _total(gw), _total(gb))


def _total(parts: ndarray | None) -> ndarray | None:
    """The sum of the blocks' parts."""
    if parts is None:
        return None
    out = buffers.empty(parts.shape[1:], parts.dtype)
    step(SUM, FLOATS[parts.dtype], (1, len(parts), out.size))(parts, parts, out)
    return out


# --- small arrays ------------------------------------------------------------------------


@kernel
def _layer_norm_few(
    x: Ptr[T],
    weight: Ptr[T],
    bias: Ptr[T],
    y: Ptr[T],
    mean: Ptr[T],
    rstd: Ptr[T],
    n: i64,
    eps: T,
    weighted: i64,
    lo: i64,
    hi: i64,
) -> None:
    squares = array(T, LEAF)
    for row in range(lo, hi):
        p = x + row * n
        q = y + row * n
        m = (leaf(p, n) + 0.0) / T(n)
        for i in range(n):
            q[i] = p[i] - m
            squares[i] = q[i] * q[i]
        total = leaf(squares, n) + 0.0
        r = 1.0 / sqrt(total / T(n) + eps) + (total - total)
        for i in range(n):
            v = q[i] * r
            if weighted:
                v = v * weight[i] + bias[i]
            q[i] = v
        mean[row] = m
        rstd[row] = r


@kernel
def _layer_norm_few_back(
    g: Ptr[T],
    x: Ptr[T],
    mean: Ptr[T],
    rstd: Ptr[T],
    g_mean: Ptr[T],
    g_rstd: Ptr[T],
    weight: Ptr[T],
    gx: Ptr[T],
    gw: Ptr[T],
    n: i64,
    weighted: i64,
    lo: i64,
    hi: i64,
) -> None:
    inner = array(T, LEAF)
    normal = array(T, LEAF)
    products = array(T, LEAF)
    for row in range(lo, hi):
        p = x + row * n
        q = g + row * n
        r = rstd[row]
        for i in range(n):
            normal[i] = (p[i] - mean[row]) * r
            inner[i] = q[i] * weight[i] if weighted else q[i]
            products[i] = inner[i] * normal[i]
            gw[row * n + i] = q[i] * normal[i]
        shift = (g_mean[row] - r * (leaf(inner, n) + 0.0)) / T(n)
        along = (r * (leaf(products, n) + 0.0) + g_rstd[row] * r * r) / T(n)
        for i in range(n):
            gx[row * n + i] = inner[i] * r + shift - normal[i] * along


@functools.cache
def _few_rows(weighted: bool) -> tuple[Any, Any]:
    """Both passes over the last dimension, with weight and bias or without, as one call each."""
    last, rows = ("take 1", "take 2") if weighted else ("take 0", "take 0"), ("lead", "last")
    forward = EntrySpec(
        ("f32", *("f32 row",) * (2 * weighted), "number"),
        ("f32 like 0", "f32 kept", "f32 kept"),
        ("take 0", *last, "give 0", "give 1", "give 2", "last", f"take {1 + 2 * weighted}"),
        *rows,
        most=LEAF,
        returns=(0, 1, 2),
    )
    backward = EntrySpec(
        ("f32", "f32 like", *("f32 kept",) * 4, *("f32 row",) * weighted),
        ("f32 like 0", "f32 like 0"),
        (*(f"take {k}" for k in range(6)), f"take {6 * weighted}", "give 0", "give 1", "last"),
        *rows,
        most=LEAF,
        returns=(0, 1),
    )
    made = _layer_norm_few.whole(forward, "f32", weighted=weighted)
    return made, _layer_norm_few_back.whole(backward, "f32", weighted=weighted)


def layer_norm_small(
    x: ndarray, weight: Any, bias: Any, rank: int, eps: float
) -> tuple[ndarray, ...] | None:
    """Layer norm of a small array, with the bits of the reference."""
    if rank != 1 or (weight is None) != (bias is None):
        return None
    run = _few_rows(weight is not None)[0]
    return run(x, eps) if weight is None else run(x, weight, bias, eps)


def layer_norm_small_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """Its gradients; those of weight and bias for each row."""
    if rank != 1:
        return None
    few = () if weight is None else (weight,)
    found = _few_rows(weight is not None)[1](g[0], x, mean, rstd, *g[1:], *few)
    if found is None:
        return None
    gx, gw = found
    return gx if needs[0] else None, gw if needs[1] else None, g[0] if needs[2] else None


# --- the ops -----------------------------------------------------------------------------


def layer_norm(
    x: ndarray, weight: Any, bias: Any, rank: int, eps: float
) -> tuple[ndarray, ...] | None:
    """The last dimensions with mean zero and variance one; the means and reciprocal deviations."""
    return _forward(x, weight, bias, rank, eps, True)


def layer_norm_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """The gradients of layer norm, those of weight and bias in their own shapes."""
    return _backward(g[0], g[1], g[2], x, weight, mean, rstd, needs, rank)


def rms_norm(x: ndarray, weight: Any, rank: int, eps: float) -> tuple[ndarray, ...] | None:
    """The last dimensions with mean square one, and the reciprocal roots."""
    return _forward(x, weight, None, rank, eps, False)


def rms_norm_back(
    g: Any, x: ndarray, weight: Any, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """The gradients of RMS norm, that of weight in its own shape."""
    found = _backward(g[0], None, g[1], x, weight, None, rstd, needs, rank)
    return None if found is None else found[:2]
