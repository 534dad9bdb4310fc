"""Batch norm: each channel by its own statistics, or by given ones.

Arrays come as planes, (N, C, S) with a plane of S elements for each channel of a sample, or as
rows, (R, C) with the channels innermost. Statistics are taken over blocks of fixed size, in the
type of the array, and combined in float64 in order, so that results don't depend on threads.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, f64, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.codegen.row_programs import (
    Along,
    Each,
    Length,
    Number,
    Program,
    if_finite,
    rounded,
    row_program,
    sqrt,
    total,
)
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, in_layout, is_last, made_like, plain

ndarray = np.ndarray
T = Any  # the type of the arrays in a call

# Elements of one channel that are summed in the array's own type.
BLOCK = 8192
# Elements of a block of rows, which is read twice and should stay in the cache.
ROW_BLOCK = 16384
# With so few channels the planes are divided, not the channels.
FEW = 8
# Channels that are done at a time where they are innermost.
TILE = 64
# Rows of at most so many elements in all are done in one call, channels divided.
ONE_PASS = 131072
# Elements that are worth a thread.
GRAIN = 16384

# --- programs: one channel is a row --------------------------------------------------------


@row_program
def _norm(x: Along, weight: Each, bias: Each, eps: Number, n: Length) -> Any:
    rough = rounded(total(x) / n)
    gap = x - rough
    # What the rounded mean is off by is in the sum of the distances from it.
    rest = total(gap) / n
    mean = if_finite(rest, rough + rest, rough)
    var = rounded(total(gap * gap) / n - rest * rest)
    scale = rounded(1.0 / sqrt(var + eps))
    scale = scale if weight is None else scale * weight
    y = (x - mean) * scale
    return y if bias is None else y + bias, mean, var


@row_program
def _fixed(x: Along, weight: Each, bias: Each, mean: Each, var: Each, eps: Number) -> Any:
    scale = rounded(1.0 / sqrt(var + eps))
    y = (x - mean) * (scale if weight is None else scale * weight)
    return y if bias is None else y + bias


@row_program
def norm_back(
    g: Along,
    x: Along,
    weight: Each,
    mean: Each,
    var: Each,
    rstd: Each,
    g_mean: Each,
    g_var: Each,
    eps: Number,
    n: Length,
) -> Any:
    gap = x - mean
    rstd = 1.0 / sqrt(var + eps) if rstd is None else rstd
    along, whole = total(g * gap) * rstd, total(g)
    scale = rstd if weight is None else rstd * weight
    shift = ((0.0 if g_mean is None else g_mean) - scale * whole) / n
    slope = ((0.0 if g_var is None else 2.0 * g_var) - scale * rstd * along) / n
    return g * scale + gap * slope + shift, along, whole


@row_program
def _fixed_back(g: Along, x: Along, weight: Each, mean: Each, var: Each, eps: Number) -> Any:
    rstd = 1.0 / sqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    return g * scale, total(g * (x - mean)), total(g)


# --- planes ----------------------------------------------------------------------------


@inline(reassociate=True)
def plane_moments(x, moments, zero, size, n, step, length):
    """The sum, then the sum and the sum of squares of the distances from the mean."""
    total = zero
    for r in range(n):
        row = x + r * step
        for i in range(length):
            total += row[i]
    mean = total / size
    rest = zero
    squares = zero
    for r in range(n):
        row = x + r * step
        for i in range(length):
            d = row[i] - mean
            rest += d
            squares += d * d
    moments[0] = total
    moments[1] = rest
    moments[2] = squares


@inline
def exact_sum(total, rest, mean, size):
    # What the rounded mean is off by is in the sum of the distances from it.
    exact = mean * size + rest
    return exact if exact == exact else total


@inline
def joined_squares(squares, total, count, part, mean, more):
    # What the parts' distance from their common mean adds to the sums of squares.
    far = mean - total / count
    return squares + part + far * far * (count * more / (count + more))


@kernel
def plane_blocks(
    x: Ptr[T],
    part: Ptr[f64],
    square: Ptr[f64],
    n: i64,
    c: i64,
    s: i64,
    rows: i64,
    chunk: i64,
    across: i64,
    blocks: i64,
    lo: i64,
    hi: i64,
):
    moments = array(T, 3)  # noqa: F821
    for u in range(lo, hi):
        k = u // blocks
        r = u % blocks // across * rows
        at = u % blocks % across * chunk
        many = min(rows, n - r)
        length = min(chunk, s - at)
        size = T(many * length)
        plane_moments(x + (r * c + k) * s + at, moments, T(0.0), size, many, c * s, length)
        own = f64(moments[0] / size)
        part[u] = exact_sum(f64(moments[0]), f64(moments[1]), own, f64(size))
        square[u] = f64(moments[2]) - f64(moments[1]) * f64(moments[1]) / f64(size)


@kernel
def join_plane_blocks(
    part: Ptr[f64],
    square: Ptr[f64],
    mean: Ptr[T],
    var: Ptr[T],
    n: i64,
    s: i64,
    rows: i64,
    chunk: i64,
    across: i64,
    blocks: i64,
    lo: i64,
    hi: i64,
):
    for k in range(lo, hi):
        total: f64 = 0.0
        squares: f64 = 0.0
        count: f64 = 0.0
        for u in range(blocks):
            size = min(rows, n - u // across * rows) * min(chunk, s - u % across * chunk)
            more = f64(size)
            own = part[k * blocks + u]
            square_ = square[k * blocks + u]
            if count > 0.0:
                squares = joined_squares(squares, total, count, square_, own / more, more)
            else:
                squares = square_
            total += own
            count += more
        mean[k] = T(total / count)
        var[k] = T(squares / count)


# --- rows ------------------------------------------------------------------------------


@inline(reassociate=True)
def column_sums(x, total, zero, n, c, width):
    for k in range(width):
        total[k] = zero
    four = n // 4 * 4
    for r in range(0, four, 4):
        row = x + r * c
        for k in range(width):
            total[k] += (row[k] + row[c + k]) + (row[2 * c + k] + row[3 * c + k])
    for r in range(four, n):
        row = x + r * c
        for k in range(width):
            total[k] += row[k]


@inline(reassociate=True)
def column_squares(x, mean, rest, total, zero, n, c, width):
    for k in range(width):
        rest[k] = zero
        total[k] = zero
    four = n // 4 * 4
    for r in range(0, four, 4):
        row = x + r * c
        for k in range(width):
            own = mean[k]
            d0 = row[k] - own
            d1 = row[c + k] - own
            d2 = row[2 * c + k] - own
            d3 = row[3 * c + k] - own
            rest[k] += (d0 + d1) + (d2 + d3)
            total[k] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3)
    for r in range(four, n):
        row = x + r * c
        for k in range(width):
            d0 = row[k] - mean[k]
            rest[k] += d0
            total[k] += d0 * d0


@inline(reassociate=True)
def column_products(g, x, mean, total, product, zero, n, c, width):
    for k in range(width):
        total[k] = zero
        product[k] = zero
    two = n // 2 * 2
    for r in range(0, two, 2):
        a = g + r * c
        b = x + r * c
        for k in range(width):
            g0 = a[k]
            g1 = a[c + k]
            total[k] += g0 + g1
            product[k] += g0 * (b[k] - mean[k]) + g1 * (b[c + k] - mean[k])
    for r in range(two, n):
        a = g + r * c
        b = x + r * c
        for k in range(width):
            total[k] += a[k]
            product[k] += a[k] * (b[k] - mean[k])


@inline
def gradient_row(g, x, mean, scale, slope, shift, y, width):
    for k in range(width):
        y[k] = g[k] * scale[k] + (x[k] - mean[k]) * slope[k] + shift[k]


@kernel
def row_blocks(
    x: Ptr[T], part: Ptr[f64], square: Ptr[f64], n: i64, c: i64, rows: i64, lo: i64, hi: i64
):
    middle = array(T, TILE)  # noqa: F821
    sums = array(T, TILE)  # noqa: F821
    rest = array(T, TILE)  # noqa: F821
    squares = array(T, TILE)  # noqa: F821
    for u in range(lo, hi):
        many = min(rows, n - u * rows)
        for at in range(0, c, TILE):
            width = min(TILE, c - at)
            block = x + u * rows * c + at
            column_sums(block, sums, T(0.0), many, c, width)
            for k in range(width):
                middle[k] = sums[k] / T(many)
            column_squares(block, middle, rest, squares, T(0.0), many, c, width)
            to = part + u * c + at
            also = square + u * c + at
            size = f64(many)
            for k in range(width):
                off = f64(rest[k])
                to[k] = exact_sum(f64(sums[k]), off, f64(middle[k]), size)
                also[k] = f64(squares[k]) - off * off / size


@kernel
def join_row_blocks(
    part: Ptr[f64],
    square: Ptr[f64],
    mean: Ptr[T],
    var: Ptr[T],
    n: i64,
    c: i64,
    rows: i64,
    blocks: i64,
    lo: i64,
    hi: i64,
):
    total = array(f64, TILE)  # noqa: F821
    squares = array(f64, TILE)  # noqa: F821
    for tile in range(lo, hi):
        at = tile * TILE
        width = min(TILE, c - at)
        for k in range(width):
            total[k] = part[at + k]
            squares[k] = square[at + k]
        for u in range(1, blocks):
            before = f64(u * rows)
            more = f64(min(rows, n - u * rows))
            both = before * more / (before + more)
            old = 1.0 / before
            new = 1.0 / more
            sums = part + u * c + at
            own = square + u * c + at
            for k in range(width):
                far = sums[k] * new - total[k] * old
                squares[k] += own[k] + far * far * both
                total[k] += sums[k]
        for k in range(width):
            mean[at + k] = T(total[k] / f64(n))
            var[at + k] = T(squares[k] / f64(n))


@kernel
def fixed_rows(
    x: Ptr[T],
    b: Ptr[T],
    mean: Ptr[T],
    scale: Ptr[T],
    y: Ptr[T],
    c: i64,
    has_b: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        row = x + r * c
        out = y + r * c
        for k in range(c):
            value = (row[k] - mean[k]) * scale[k]
            if has_b:
                value = value + b[k]
            out[k] = value


@kernel
def scales(w: Ptr[T], var: Ptr[T], scale: Ptr[T], eps: f64, has_w: i64, lo: i64, hi: i64):
    for k in range(lo, hi):
        value = T(1.0 / sqrt(f64(var[k]) + eps))
        if has_w:
            value = value * w[k]
        scale[k] = value


@kernel
def back_row_blocks(
    g: Ptr[T],
    x: Ptr[T],
    mean: Ptr[T],
    part: Ptr[T],
    product: Ptr[T],
    n: i64,
    c: i64,
    rows: i64,
    lo: i64,
    hi: i64,
):
    for u in range(lo, hi):
        many = min(rows, n - u * rows)
        for at in range(0, c, TILE):
            start = u * rows * c + at
            to = u * c + at
            width = min(TILE, c - at)
            column_products(
                g + start, x + start, mean + at, part + to, product + to, T(0.0), many, c, width
            )


@kernel
def join_sums(
    part: Ptr[T],
    product: Ptr[T],
    total: Ptr[T],
    along: Ptr[T],
    c: i64,
    blocks: i64,
    lo: i64,
    hi: i64,
):
    sums = array(f64, TILE)  # noqa: F821
    products = array(f64, TILE)  # noqa: F821
    for tile in range(lo, hi):
        at = tile * TILE
        width = min(TILE, c - at)
        for k in range(width):
            sums[k] = 0.0
            products[k] = 0.0
        for u in range(blocks):
            a = part + u * c + at
            b = product + u * c + at
            for k in range(width):
                sums[k] += f64(a[k])
                products[k] += f64(b[k])
        for k in range(width):
            total[at + k] = T(sums[k])
            along[at + k] = T(products[k])


@kernel
def gradient_factors(
    total: Ptr[T],
    along: Ptr[T],
    w: Ptr[T],
    var: Ptr[T],
    g_mean: Ptr[T],
    g_var: Ptr[T],
    scale: Ptr[T],
    slope: Ptr[T],
    shift: Ptr[T],
    n: i64,
    eps: f64,
    has_w: i64,
    lo: i64,
    hi: i64,
):
    for k in range(lo, hi):
        rstd = 1.0 / sqrt(f64(var[k]) + eps)
        factor = rstd
        if has_w:
            factor = rstd * f64(w[k])
        product = f64(along[k])
        scale[k] = T(factor)
        shift[k] = T((f64(g_mean[k]) - factor * f64(total[k])) / f64(n))
        slope[k] = T((2.0 * f64(g_var[k]) - factor * rstd * rstd * product) / f64(n))
        along[k] = T(product * rstd)


@kernel
def gradient_rows(
    g: Ptr[T],
    x: Ptr[T],
    mean: Ptr[T],
    scale: Ptr[T],
    slope: Ptr[T],
    shift: Ptr[T],
    gx: Ptr[T],
    c: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        gradient_row(g + r * c, x + r * c, mean, scale, slope, shift, gx + r * c, c)


@kernel
def scaled_rows(g: Ptr[T], scale: Ptr[T], gx: Ptr[T], c: i64, lo: i64, hi: i64):
    for r in range(lo, hi):
        a = g + r * c
        out = gx + r * c
        for k in range(c):
            out[k] = a[k] * scale[k]


# --- calls -----------------------------------------------------------------------------


class _Form:
    """The geometry of one kind of call: planes or rows, and how they are cut into blocks."""

    __slots__ = ("blocks", "c", "chunk", "columns", "n", "planes", "rows", "s", "tiles")

    def __init__(self, shape: tuple[int, ...], last: bool) -> None:
        n, c, s = shape[0], shape[1], prod(shape[2:])
        self.planes = not last and s > 1
        if not self.planes:
            n, s = n * s, 1
            self.chunk = 1
            self.rows = min(max(32, ROW_BLOCK // c), 512)
            self.blocks = -(-n // self.rows)
        else:
            self.chunk = min(s, BLOCK)
            self.rows = max(1, BLOCK // self.chunk)
            self.blocks = -(-n // self.rows) * -(-s // self.chunk)
        self.n, self.c, self.s = n, c, s
        self.tiles = -(-c // TILE)
        # Few rows: one thread does all for its channels.
        few = n <= 2048 and (n * c <= ONE_PASS or c >= FEW * TILE)
        self.columns = not self.planes and few

    def grain(self, elements: int) -> int:
        """How many units of so many elements are worth a thread."""
        return max(1, GRAIN // elements)


_form = functools.lru_cache(512)(_Form)


@functools.lru_cache(512)
def _runner(
    program: Program, f: _Form, kind: str, there: tuple[bool, ...], wanted: Any = None
) -> Any:
    """What runs a program on arrays of a form, a channel being a row.

    ``there`` says which of the inputs with a number for each channel are there.
    """
    names = [p for p, about in program.parameters.items() if about == "Each"]
    absent = [name for name, here in zip(names, there, strict=True) if not here]
    absent += ["eps"] * ("var" in absent)
    variant = program.variant(frozenset(absent), wanted)
    if not f.planes:
        return variant.runner(kind, 1, f.n, f.c, TILE)
    if wanted is None and program is _fixed:
        run, over, grain = variant.cyclic.get(kind), f.n * f.c, f.grain(f.s)
        return lambda *given: run(*given, f.s, f.c, over, threads.how_many(over, grain))
    run, grain = variant.planes.get(kind), f.grain(f.n * f.s)
    sizes = (f.n, f.c, f.s, f.rows, f.chunk, f.c)
    return lambda *given: run(*given, *sizes, threads.how_many(f.c, grain))


def _given(*arrays: Any) -> list[ndarray]:
    """The arrays that are there."""
    return [a for a in arrays if a is not None]


def _kind(x: ndarray, *vectors: Any) -> str | None:
    """The type of an array and of vectors with a number for each of its channels.

    None if there are no loops for it, or if a vector does not fit.
    """
    kind = FLOATS.get(x.dtype)
    if kind is None or x.ndim < 2 or not x.size:
        return None
    channels = x.shape[1:2]
    for v in vectors:
        if v is not None and (v.dtype != x.dtype or v.shape != channels):
            return None
    return kind


def _alike(g: ndarray, x: ndarray) -> bool:
    return g.dtype == x.dtype and g.shape == x.shape


def _vector(v: ndarray | None) -> ndarray | None:
    return None if v is None else plain(v)


def batch_norm(
    x: ndarray, weight: Any, bias: Any, eps: float
) -> tuple[ndarray, ndarray, ndarray] | None:
    """Each channel shifted and scaled by its own mean and variance; and these."""
    kind = _kind(x, weight, bias)
    if kind is None:
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    weight, bias = _vector(weight), _vector(bias)
    y, mean, var = (
        made_like(x, x.shape, last),
        buffers.empty(f.c, x.dtype),
        buffers.empty(f.c, x.dtype),
    )
    if f.columns or (f.planes and (f.c >= FEW or f.n * f.s <= BLOCK)):
        run = _runner(_norm, f, kind, (weight is not None, bias is not None))
        run(*_given(x, weight, bias), y, mean, var, eps)
        return y, mean, var
    _statistics(f, x, mean, var)
    _scale_by(f, kind, x, weight, bias, mean, var, eps, y)
    return y, mean, var


def _statistics(f: _Form, x: ndarray, mean: ndarray, var: ndarray) -> None:
    part, square = buffers.empty((2, f.c * f.blocks))
    if f.planes:
        across = -(-f.s // f.chunk)
        plane_blocks(
            *(x, part, square, f.n, f.c, f.s, f.rows, f.chunk, across, f.blocks),
            over=f.c * f.blocks,
            grain=2,
        )
        join_plane_blocks(
            *(part, square, mean, var, f.n, f.s, f.rows, f.chunk, across, f.blocks),
            over=f.c,
            grain=f.grain(f.blocks),
        )
        return
    row_blocks(x, part, square, f.n, f.c, f.rows, over=f.blocks, grain=2)
    join_row_blocks(
        *(part, square, mean, var, f.n, f.c, f.rows, f.blocks),
        over=f.tiles,
        grain=f.grain(f.blocks * TILE),
    )


def _scale_by(
    f: _Form, kind: str, x: ndarray, weight: Any, bias: Any, mean: ndarray, var: ndarray,
    eps: float, y: ndarray,
) -> None:  # fmt: skip
    if f.planes:
        run = _runner(_fixed, f, kind, (weight is not None, bias is not None, True, True))
        run(*_given(x, weight, bias, mean, var), y, eps)
        return
    scale = _scales(f, kind, weight, var, eps)
    fixed_rows.get(kind, has_b=bias is not None)(
        *(x, bias, mean, scale, y, f.c),
        *(f.n, threads.how_many(f.n, f.grain(f.c))),
    )


def _scales(f: _Form, kind: str, weight: Any, var: ndarray, eps: float) -> ndarray:
    scale = buffers.empty_like(var)
    scales.get(kind, has_w=weight is not None)(weight, var, scale, eps, f.c, 1)
    return scale


def batch_norm_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, Any, Any] | None:
    """The gradients of ``batch_norm`` for its input, weight and bias, as needed."""
    gy, g_mean, g_var = g
    kind = _kind(x, weight, mean, var, g_mean, g_var)
    if kind is None or gy is None or not _alike(gy, x):
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    gy, weight, mean, var = in_layout(gy, last), _vector(weight), plain(mean), plain(var)
    g_mean, g_var = _vector(g_mean), _vector(g_var)
    gx = made_like(x, x.shape, last) if needs[0] else None
    along, whole = buffers.empty(f.c, x.dtype), buffers.empty(f.c, x.dtype)
    if f.planes or f.columns:
        there = (weight is not None, True, True, False, g_mean is not None, g_var is not None)
        run = _runner(norm_back, f, kind, there, (gx is not None, True, True))
        run(*_given(gy, x, weight, mean, var, g_mean, g_var, gx, along, whole), eps)
    else:
        zeros = buffers.zeros(f.c, x.dtype)
        g_mean, g_var = (zeros if v is None else v for v in (g_mean, g_var))
        _row_sums(f, x, gy, mean, whole, along)
        scale, slope, shift = buffers.empty((3, f.c), gy.dtype)
        gradient_factors.get(kind, has_w=weight is not None)(
            *(whole, along, weight, var, g_mean),
            *(g_var, scale, slope, shift, f.n, eps, f.c, 1),
        )
        if gx is not None:
            gradient_rows(
                *(gy, x, mean, scale, slope, shift, gx, f.c), over=f.n, grain=f.grain(f.c)
            )
    return gx, along if needs[1] else None, whole if needs[2] else None


def _row_sums(
    f: _Form, x: ndarray, g: ndarray, mean: ndarray, whole: ndarray, along: ndarray
) -> None:
    """For each channel the sum of ``g``, and that of ``g`` times the distance from the mean."""
    part, product = buffers.empty((2, f.c * f.blocks), g.dtype)
    back_row_blocks(g, x, mean, part, product, f.n, f.c, f.rows, over=f.blocks, grain=2)
    grain = f.grain(f.blocks * TILE)
    join_sums(part, product, whole, along, f.c, f.blocks, over=f.tiles, grain=grain)


def batch_norm_fixed(
    x: ndarray, weight: Any, bias: Any, mean: ndarray, var: ndarray, eps: float
) -> ndarray | None:
    """Each channel shifted and scaled by a given mean and variance."""
    kind = _kind(x, weight, bias, mean, var)
    if kind is None:
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    y = made_like(x, x.shape, last)
    _scale_by(f, kind, x, _vector(weight), _vector(bias), plain(mean), plain(var), eps, y)
    return y


def batch_norm_fixed_back(
    g: ndarray, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, ...] | None:
    """The gradients of ``batch_norm_fixed`` for all its inputs, as needed."""
    kind = _kind(x, weight, mean, var)
    if kind is None or not _alike(g, x):
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    g, weight, mean, var = in_layout(g, last), _vector(weight), plain(mean), plain(var)
    gx = made_like(x, x.shape, last) if needs[0] else None
    along, whole = buffers.empty(f.c, x.dtype), buffers.empty(f.c, x.dtype)
    want = bool(needs[1] or needs[4])
    if f.planes:
        there = (weight is not None, True, True)
        run = _runner(_fixed_back, f, kind, there, (gx is not None, want, True))
        run(*_given(g, x, weight, mean, var, gx, along if want else None, whole), eps)
    else:
        _row_sums(f, x, g, mean, whole, along)
        if gx is not None:
            scale = _scales(f, kind, weight, var, eps)
            scaled_rows(g, scale, gx, f.c, over=f.n, grain=f.grain(f.c))
    rstd = (var + eps) ** -0.5
    scale = rstd if weight is None else rstd * weight
    gw = gv = gm = None
    if want:
        gw = along * rstd
        gv = along * scale * rstd * rstd * -0.5
    if needs[3]:
        gm = whole * -scale
    return gx, gw, whole, gm, gv
