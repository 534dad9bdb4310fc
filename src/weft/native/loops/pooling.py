"""Max and average pooling in one to three dimensions, and their gradients.

All loops have three spatial dimensions; missing ones have size one. Arrays come as planes (N, C,
...) or with their channels innermost, and results have the layout of their inputs. Small windows'
sizes are constants of the compiled code; means of other windows, and all means with the channels
innermost, read where windows start and stop from tables.
"""

from __future__ import annotations

import copy
import functools
from math import prod
from operator import index
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, constexpr, f32, i32, i64, inline
from weft.native.codegen.jit import Kernel, kernel
from weft.native.gemm import direct
from weft.native.gemm.blocks import block
from weft.native.loops import indexing
from weft.native.loops.reduce import MEAN, step
from weft.native.loops.squares import square_line
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, in_layout, is_last, made_like, plain

ndarray = np.ndarray
Ints = tuple[int, ...]
INT64 = np.dtype(np.int64)
T = Any  # the type of the arrays in a call

# Windows of more places are not unrolled: means; largest values of planes, and of rows of channels.
# What LLVM unrolls only in part it does not vectorize.
UNROLLED, UNROLLED_PLANES, UNROLLED_ROWS = 25, 16, 12
# Windows of planes with fewer places are one loop along a line; of others, a few are done together.
SINGLE = 8
# Channels that are done at a time where they are innermost.
TILE = 64
# Elements read that are worth a thread.
GRAIN = 16384

# The numbers of a geometry, as kernels read them.
D, H, W, OD, OH, OW, SD, SH, SW, PD, PH, PW, DD, DH, DW, KD, KH, KW = range(18)
# Windows from LEFT to RIGHT are inside along the last dimension.
LEFT, RIGHT = 18, 19
# What a mean divides by: all of the padded window, the part inside, or another number itself.
PADDED, INSIDE = 0, -1
# Offsets of tables: for each output along an axis where its window starts, where it stops and what
# it counts in a mean.
OUT_Z, OUT_Y, OUT_X = 20, 21, 22


@inline
def first_inside(start, step):
    return (max(-start, 0) + step - 1) // step


@inline
def last_inside(start, step, count, size):
    return min(count - 1, (size - 1 - start) // step)


@inline
def taps_inside(geo, axis: constexpr, o, count):
    """Where a window begins along an axis, and the first and the last of its taps inside."""
    start = o * geo[SD + axis] - geo[PD + axis]
    step = geo[DD + axis]
    return start, first_inside(start, step), last_inside(start, step, count, geo[D + axis])


# --- the largest value -----------------------------------------------------------------

# A place outside is replaced by the nearest one inside, which is read twice and changes nothing.


@kernel
def max_windows(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], geo: Ptr[i64], c: i64, planes: i64, kd: i64, kh: i64,
    kw: i64, sw: i64, dw: i64, together: i64, lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        source = x + u // (geo[OD] * geo[OH]) * (geo[D] * geo[H] * geo[W] * c)
        z0, zf, zl = taps_inside(geo, 0, u // geo[OH] % geo[OD], kd)
        y0, yf, yl = taps_inside(geo, 1, u % geo[OH], kh)
        top = ((z0 + zf * geo[DD]) * geo[H] + y0 + yf * geo[DH]) * geo[W]
        # Of a plane, windows that begin before a line, that are inside, and that end behind it. Of
        # those inside so many are done together, the last of which may have been done before.
        for part in (0, 1, 2) if planes else (0,):
            left = geo[LEFT] if planes else geo[OW]
            start = 0 if part == 0 else left if part == 1 else geo[RIGHT]
            stop = left if part == 0 else geo[RIGHT] if part == 1 else geo[OW]
            for next in range(start, stop, together if part == 1 else 1):
                for j in range(together if part == 1 else 1):
                    o = min(next, stop - together) + j if part == 1 else next
                    x0 = o * sw - geo[PW]
                    xf = 0 if part == 1 else first_inside(x0, dw)
                    xl = kw - 1 if part == 1 else last_inside(x0, dw, kw, geo[W])
                    # What differs between neighbours of a vector is added when the place is known.
                    apart = x0 if planes else 0
                    shared = x0 - apart
                    first = top + xf * dw + shared
                    out = y + (u * geo[OW] + o) * c
                    to = where + (u * geo[OW] + o) * c
                    for k in range(c):
                        best = source[(first + apart) * c + k]
                        place = i32(first)
                        for kz in range(kd):
                            z = z0 + min(max(kz, zf), zl) * geo[DD]
                            for ky in range(kh):
                                line = (z * geo[H] + y0 + min(max(ky, yf), yl) * geo[DH]) * geo[W]
                                for kx in range(kw):
                                    if kz + ky + kx > 0:
                                        at = line + min(max(kx, xf), xl) * dw + shared
                                        v = source[(at + apart) * c + k]
                                        better = v > best or v != v
                                        best = v if better else best
                                        place = i32(at) if better else place
                        out[k] = best
                        to[k] = i64(place) + apart


@inline
def max_square(x: Ptr[T], y: Ptr[T], where: Ptr[i64], first: i64, w: i64, o: i64):
    best = x[2 * o]
    place = i32(0)
    for k in range(1, 4):
        at = k // 2 * w + k % 2
        v = x[at + 2 * o]
        better = v > best or v != v
        best = v if better else best
        place = i32(at) if better else place
    y[o] = best
    where[o] = i64(place) + (first + 2 * o)


@kernel
def max_squares(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], h: i64, w: i64, oh: i64, ow: i64, step: i64, lo: i64,
    hi: i64,
):  # fmt: skip
    """Windows of two by two, side by side: the usual case, ``step`` at a time."""
    for u in range(lo, hi):
        first = u % oh * 2 * w
        lines = x + (u // oh * h * w + first)
        for b in range(0, ow, step):
            start = min(b, ow - step)  # the last ones may have been done in part
            for j in range(step):
                max_square(lines, y + u * ow, where + u * ow, first, w, start + j)


@kernel
def max_square_lines(
    x: Ptr[f32], y: Ptr[f32], where: Ptr[i64], h: i64, w: i64, oh: i64, ow: i64, lanes: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    """The same by whole vectors, through masks."""
    row = lo % oh  # counted, since a division takes as long as a vector
    plane = lo // oh * h * w
    for u in range(lo, hi):
        first = row * 2 * w
        for o in range(0, ow, lanes):
            at = u * ow + o
            square_line(x + (plane + first + 2 * o), y + at, where + at, w, first + 2 * o, ow - o)
        row += 1
        if row == oh:
            row = 0
            plane += h * w


@inline
def max_update(x, y, where, place, step, start, stop, stride):
    # One place of many windows: ``stride`` apart in x, side by side in y.
    for o in range(start, stop):
        v = x[o * stride]
        better = v > y[o] or v != v
        y[o] = v if better else y[o]
        where[o] = place + o * step if better else where[o]


@kernel
def max_windows_large(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], geo: Ptr[i64], c: i64, planes: i64, lo: i64, hi: i64
):
    """One tap at a time: of all windows of a line, or of all channels of one window."""
    for u in range(lo, hi):
        line = u if planes else u // geo[OW]
        source = x + line // (geo[OD] * geo[OH]) * (geo[D] * geo[H] * geo[W] * c)
        z0, zf, zl = taps_inside(geo, 0, line // geo[OH] % geo[OD], geo[KD])
        y0, yf, yl = taps_inside(geo, 1, line % geo[OH], geo[KH])
        x0, xf, xl = taps_inside(geo, 2, 0 if planes else u % geo[OW], geo[KW])
        many = geo[OW] if planes else c
        step = geo[SW] if planes else 0  # between the windows
        out = y + u * many
        to = where + u * many
        first = ((z0 + zf * geo[DD]) * geo[H] + y0 + yf * geo[DH]) * geo[W] + x0
        for o in range(many):
            at = first + o * step + first_inside(x0 + o * step, geo[DW]) * geo[DW]
            out[o] = source[at if planes else at * c + o]
            to[o] = at
        for kz in range(zf, zl + 1):
            for ky in range(yf, yl + 1):
                row = ((z0 + kz * geo[DD]) * geo[H] + y0 + ky * geo[DH]) * geo[W] + x0
                for kx in range(0 if planes else xf, geo[KW] if planes else xl + 1):
                    at = row + kx * geo[DW]
                    if planes:
                        shift = x0 + kx * geo[DW]
                        start = (max(-shift, 0) + step - 1) // step
                        stop = min(many, (max(geo[W] - shift, 0) + step - 1) // step)
                        max_update(source + at, out, to, at, step, start, stop, step)
                    else:
                        max_update(source + at * c, out, to, at, 0, 0, c, 1)


# --- the mean value --------------------------------------------------------------------


@inline
def lines_of(geo, u):
    """The planes and lines that row u of windows sees, and how many lines a mean counts."""
    at_z = geo + (geo[OUT_Z] + u // geo[OH])
    at_y = geo + (geo[OUT_Y] + u % geo[OH])
    lines = at_z[2 * geo[OD]] * at_y[2 * geo[OH]]
    return at_z[0], at_z[geo[OD]], at_y[0], at_y[geo[OH]], lines


@inline
def mean_border(x, y, geo, za, zb, ya, yb, start, stop, zero, lines):
    for o in range(start, stop):
        at_x = geo + (geo[OUT_X] + o)
        total = zero
        for z in range(za, zb):
            for r in range(ya, yb):
                line = x + (z * geo[H] + r) * geo[W]
                for i in range(at_x[0], at_x[geo[OW]]):
                    total += line[i]
        y[o] = total / (zero + lines * at_x[2 * geo[OW]])


@kernel
def mean_planes(
    x: Ptr[T], y: Ptr[T], geo: Ptr[i64], kd: i64, kh: i64, kw: i64, sw: i64, unrolled: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        plane = x + u // (geo[OD] * geo[OH]) * (geo[D] * geo[H] * geo[W])
        za, zb, ya, yb, lines = lines_of(geo, u % (geo[OD] * geo[OH]))
        out = y + u * geo[OW]
        left = geo[LEFT]
        right = geo[RIGHT]
        divisor = T(lines * geo[geo[OUT_X] + 2 * geo[OW] + min(left, geo[OW] - 1)])
        mean_border(plane, out, geo, za, zb, ya, yb, 0, left, T(0.0), lines)
        full = zb - za == kd and yb - ya == kh
        if unrolled:
            if full:
                for o in range(left, right):
                    total = T(0.0)
                    for kz in range(kd):
                        for ky in range(kh):
                            line = ((za + kz) * geo[H] + ya + ky) * geo[W] - geo[PW]
                            for kx in range(kw):
                                total += plane[line + o * sw + kx]
                    out[o] = total / divisor
        if not (full and unrolled):
            for o in range(left, right):
                out[o] = T(0.0)
            for z in range(za, zb):
                for r in range(ya, yb):
                    line = plane + ((z * geo[H] + r) * geo[W] - geo[PW])
                    for kx in range(kw):
                        for o in range(left, right):
                            out[o] += line[o * sw + kx]
            for o in range(left, right):
                out[o] = out[o] / divisor
        mean_border(plane, out, geo, za, zb, ya, yb, right, geo[OW], T(0.0), lines)


@kernel(unswitched=True)
def mean_back_planes(
    g: Ptr[T], gx: Ptr[T], geo: Ptr[i64], apart: i64, kw: i64, sw: i64, lo: i64, hi: i64
):
    values = array(T, TILE)  # noqa: F821
    for u in range(lo, hi):
        plane = gx + u * (geo[D] * geo[H] * geo[W])
        for i in range(geo[D] * geo[H] * geo[W]):
            plane[i] = T(0.0)
        for line in range(geo[OD] * geo[OH]):
            za, zb, ya, yb, lines = lines_of(geo, line)
            for first in range(0, geo[OW], TILE):
                source = g + (u * geo[OD] * geo[OH] + line) * geo[OW] + first
                counts = geo + (geo[OUT_X] + 2 * geo[OW] + first)
                many = min(TILE, geo[OW] - first)
                x0 = first * sw - geo[PW]
                for o in range(many):
                    values[o] = source[o] / T(i32(lines * counts[o]))
                for z in range(za, zb):
                    for r in range(ya, yb):
                        to = plane + (z * geo[H] + r) * geo[W]
                        for kx in range(kw):
                            start = (max(-x0 - kx, 0) + sw - 1) // sw
                            stop = min(many, (max(geo[W] - x0 - kx, 0) + sw - 1) // sw)
                            for o in range(start, stop):
                                if apart:
                                    to[o * sw + x0 + kx] = values[o]
                                else:
                                    to[o * sw + x0 + kx] += values[o]


# --- windows from tables ---------------------------------------------------------------


@kernel
def whole_back_planes(g: Ptr[T], gx: Ptr[T], size: i64, lo: i64, hi: i64):
    for u in range(lo, hi):
        plane = gx + u * size
        value = g[u] / T(size)
        for i in range(size):
            plane[i] = value


@kernel(reassociate=True)
def window_planes(x: Ptr[T], y: Ptr[T], geo: Ptr[i64], lo: i64, hi: i64):
    for u in range(lo, hi):
        plane = x + u // (geo[OD] * geo[OH]) * (geo[D] * geo[H] * geo[W])
        za, zb, ya, yb, lines = lines_of(geo, u % (geo[OD] * geo[OH]))
        for o in range(geo[OW]):
            at_x = geo + (geo[OUT_X] + o)
            total = T(0.0)
            for z in range(za, zb):
                for r in range(ya, yb):
                    line = plane + (z * geo[H] + r) * geo[W]
                    for i in range(at_x[0], at_x[geo[OW]]):
                        total += line[i]
            y[u * geo[OW] + o] = total / T(lines * at_x[2 * geo[OW]])


@kernel
def window_rows(x: Ptr[T], y: Ptr[T], geo: Ptr[i64], c: i64, long: i64, lo: i64, hi: i64):
    part = array(T, TILE)  # noqa: F821
    for u in range(lo, hi):
        sample = x + u // (geo[OD] * geo[OH]) * (geo[D] * geo[H] * geo[W] * c)
        za, zb, ya, yb, lines = lines_of(geo, u % (geo[OD] * geo[OH]))
        tile = TILE if long else c
        for o in range(geo[OW]):
            at_x = geo + (geo[OUT_X] + o)
            xa = at_x[0]
            xb = at_x[geo[OW]]
            divisor = T(lines * at_x[2 * geo[OW]])
            for at in range(0, c, tile):
                width = min(tile, c - at)
                out = y + (u * geo[OW] + o) * c + at
                for k in range(width):
                    out[k] = T(0.0)
                for z in range(za, zb):
                    for r in range(ya, yb):
                        row = sample + (z * geo[H] + r) * geo[W] * c + at
                        if long:  # line by line, so that long sums stay exact enough
                            for k in range(width):
                                part[k] = T(0.0)
                            for i in range(xa, xb):
                                for k in range(width):
                                    part[k] += row[i * c + k]
                            for k in range(width):
                                out[k] += part[k]
                        else:
                            # Two pixels at a time, the first alone if they are odd.
                            odd = xa + (xb - xa) % 2
                            for i in range(xa, odd):
                                for k in range(width):
                                    out[k] += row[i * c + k]
                            for i in range(odd, xb, 2):
                                for k in range(width):
                                    out[k] += row[i * c + k] + row[(i + 1) * c + k]
                for k in range(width):
                    out[k] = out[k] / divisor


@kernel(unswitched=True)
def window_back_planes(g: Ptr[T], gx: Ptr[T], geo: Ptr[i64], lo: i64, hi: i64):
    size = geo[D] * geo[H] * geo[W]
    for u in range(lo, hi):
        plane = gx + u * size
        for i in range(size):
            plane[i] = T(0.0)
        for line in range(geo[OD] * geo[OH]):
            za, zb, ya, yb, lines = lines_of(geo, line)
            source = g + (u * (geo[OD] * geo[OH]) + line) * geo[OW]
            for o in range(geo[OW]):
                at_x = geo + (geo[OUT_X] + o)
                value = source[o] / T(lines * at_x[2 * geo[OW]])
                for z in range(za, zb):
                    for r in range(ya, yb):
                        row = plane + (z * geo[H] + r) * geo[W]
                        for i in range(at_x[0], at_x[geo[OW]]):
                            row[i] += value


@kernel
def window_back_rows(g: Ptr[T], gx: Ptr[T], geo: Ptr[i64], c: i64, lo: i64, hi: i64):
    tiles = (c + TILE - 1) // TILE
    size = geo[D] * geo[H] * geo[W]
    for u in range(lo, hi):
        first = u % tiles * TILE
        width = min(TILE, c - first)
        sample = gx + u // tiles * size * c + first
        source = g + u // tiles * (geo[OD] * geo[OH] * geo[OW]) * c + first
        for i in range(size):
            for k in range(width):
                sample[i * c + k] = T(0.0)
        for line in range(geo[OD] * geo[OH]):
            za, zb, ya, yb, lines = lines_of(geo, line)
            for o in range(geo[OW]):
                at_x = geo + (geo[OUT_X] + o)
                divisor = T(lines * at_x[2 * geo[OW]])
                value = source + (line * geo[OW] + o) * c
                for z in range(za, zb):
                    for r in range(ya, yb):
                        row = sample + (z * geo[H] + r) * geo[W] * c
                        for i in range(at_x[0], at_x[geo[OW]]):
                            for k in range(width):
                                row[i * c + k] += value[k] / divisor


# --- geometries ------------------------------------------------------------------------


class _Windows:
    """The geometry of one kind of call, worked out once."""

    __slots__ = ("apart", "inside", "numbers", "out", "square", "tables", "taps", "together")

    def __init__(
        self, spatial: Ints, out: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints
    ) -> None:
        self.out = out
        self.inside = all(
            _any_inside(*axis)
            for axis in zip(spatial, out, kernel, stride, padding, dilation, strict=True)
        )
        self.apart = all(s >= k for s, k in zip(stride, kernel, strict=True))
        self.taps = prod(kernel)
        # Windows of two by two, side by side and within the plane.
        self.square = (
            kernel == stride == (2, 2)
            and padding == (0, 0)
            and dilation == (1, 1)
            and all(2 * n <= size for n, size in zip(out, spatial, strict=True))
        )
        extra = 3 - len(spatial)
        ones, zeros = (1,) * extra, (0,) * extra
        left = min(-(-padding[-1] // stride[-1]), out[-1])
        reach = spatial[-1] + padding[-1] - dilation[-1] * (kernel[-1] - 1) - 1
        right = max(left, min(reach // stride[-1] + 1, out[-1]))
        lanes = block()[0]  # twice as many registers, which have to hold the values of the places
        few = (lanes // 2, 4) if SINGLE <= self.taps < 2 * lanes else ()
        self.together = next((n for n in few if n <= right - left), 1)
        parts = (*ones, *spatial, *ones, *out, *ones, *stride, *zeros, *padding)
        rest = (*ones, *dilation, *ones, *kernel, left, right)
        self.numbers = np.array((*parts, *rest), np.int64)
        self.tables = self.numbers

    def with_tables(self, axes: list[tuple[ndarray, ...]]) -> _Windows:
        """A copy with the tables of each axis: starts, stops and counts."""
        made = copy.copy(self)
        axes = [_table(1, 1, 1, 1, 0, PADDED)] * (3 - len(axes)) + axes
        offsets = np.cumsum([OUT_X + 1, *(3 * len(axis[0]) for axis in axes[:-1])])
        made.tables = np.concatenate([self.numbers, offsets, *(t for axis in axes for t in axis)])
        return made


def _table(size: int, n: int, k: int, s: int, p: int, count: int) -> tuple[ndarray, ...]:
    """The tables of windows along an axis."""
    start = np.arange(n) * s - p
    # Padding may count, but what rounding up adds behind it never does.
    padded = np.minimum(start + k, size + p) - start
    first, stop = np.maximum(start, 0), np.minimum(start + k, size)
    counts = {PADDED: padded, INSIDE: stop - first}
    return first, stop, counts[count]


def _even_table(size: int, n: int) -> tuple[ndarray, ...]:
    """The same for windows spread evenly."""
    at = np.arange(n)
    start, stop = at * size // n, -(-(at + 1) * size // n)
    return start, stop, stop - start


def _any_inside(size: int, n: int, k: int, s: int, p: int, d: int) -> bool:
    """Whether every window along an axis overlaps the array."""
    if d == 1:  # no gap that the input could fall into
        return size > 0
    return all(any(0 <= o * s - p + tap * d < size for tap in range(k)) for o in range(n))


@functools.lru_cache(512)
def _windows(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool,
    out: Ints | None = None,
) -> _Windows | None:  # fmt: skip
    """The geometry of a pooling; None for arguments that the reference rejects.

    ``out`` is the shape of a gradient, which has to be that of the results.
    """
    extent = []
    for size, k, s, p, d in zip(spatial, kernel, stride, padding, dilation, strict=True):
        k, s, p, d = map(index, (k, s, p, d))
        if min(k, s, d) < 1 or p < 0 or 2 * p > d * (k - 1) + 1:
            return None
        n = (size + 2 * p - d * (k - 1) - 1 + (s - 1 if ceil_mode else 0)) // s + 1
        # Rounding up must not leave a window that starts inside the right padding.
        extent.append(n - 1 if ceil_mode and (n - 1) * s >= size + p else n)
    fits = out is None or out == tuple(extent)
    if not fits or not 0 < len(spatial) <= 3 or min(extent) < 1 or prod(spatial) >= 1 << 31:
        return None
    return _Windows(spatial, tuple(extent), kernel, stride, padding, dilation)


@functools.lru_cache(512)
def _mean_windows(
    spatial: Ints, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool, out: Ints | None,
    count: int,
) -> _Windows | None:  # fmt: skip
    """The same for means, with tables."""
    f = _windows(spatial, kernel, stride, padding, (1,) * len(kernel), ceil_mode, out)
    if f is None:
        return None
    shapes = zip(spatial, f.out, kernel, stride, padding, strict=True)
    axes = [_table(*axis, min(count, PADDED)) for axis in shapes]
    if count > 0:  # one number for all: the first axis has it, and the others count one
        for k, (start, stop, counts) in enumerate(axes):
            axes[k] = start, stop, np.full_like(counts, 1 if k else count)
    return f.with_tables(axes)


def _kind(*arrays: ndarray) -> str | None:
    kind = FLOATS.get(arrays[0].dtype)
    if kind is None or not 3 <= arrays[0].ndim <= 5 or not arrays[0].size:
        return None
    return kind


def _shares(units: int, work: int) -> tuple[int, int]:
    """The range to divide, and the threads for units of so much work."""
    return units, threads.how_many(units, max(1, GRAIN // max(work, 1)))


# --- calls -----------------------------------------------------------------------------


def max_pool(
    x: ndarray, kernel: Ints, stride: Ints, padding: Ints, dilation: Ints, ceil_mode: bool = False
) -> tuple[ndarray, ndarray] | None:
    """The maximum of every window and its flat index in the plane."""
    kind = _kind(x)
    shape = x.shape
    f = _windows(shape[2:], kernel, stride, padding, dilation, ceil_mode) if kind else None
    if f is None or not f.inside:
        return None
    last = is_last(x)
    x = in_layout(x, last)
    y = made_like(x, (*shape[:2], *f.out), last)
    where = made_like(x, y.shape, last, INT64)
    arrays = x, y, where, f.numbers
    n, c = shape[:2]
    steps = {"sw": stride[-1], "dw": dilation[-1]}
    if last:
        if f.taps <= UNROLLED_ROWS:
            shares = _shares(n * prod(f.out[:-1]), f.taps * c * f.out[-1])
            _unrolled(max_windows, kind, kernel, planes=0, together=1, **steps)(*arrays, c, *shares)
        else:
            shares = _shares(n * prod(f.out), f.taps * c)
            max_windows_large.get(kind, planes=0)(*arrays, c, *shares)
        return y, where
    shares = _shares(n * c * prod(f.out[:-1]), f.taps * f.out[-1])
    if f.square and kind == "f32" and direct.available():
        lines = max_square_lines.get(lanes=block()[0])
        lines(x, y, where, *shape[2:], *f.out, *shares)
    elif f.square and f.out[1] >= 4:
        step = 8 if f.out[1] >= 8 else 4
        max_squares.get(kind, step=step)(x, y, where, *shape[2:], *f.out, *shares)
    elif f.taps <= UNROLLED_PLANES:
        steps |= {"planes": 1, "c": 1, "together": f.together}
        _unrolled(max_windows, kind, kernel, **steps)(*arrays, *shares)
    else:
        max_windows_large.get(kind, planes=1, c=1)(*arrays, *shares)
    return y, where


@functools.lru_cache(512)
def _unrolled(loop: Kernel, kind: str, kernel: Ints, **more: int) -> Any:
    """The loop for windows whose size is a constant of its code."""
    kd, kh, kw = (1,) * (3 - len(kernel)) + kernel
    return loop.get(kind, kd=kd, kh=kh, kw=kw, **more)


@kernel
def uneven_max_planes(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], a: i64, b: i64, c: i64, oa: i64, ob: i64, oc: i64,
    lo: i64, hi: i64,
) -> None:  # fmt: skip
    """Windows spread evenly over planes, of different sizes; rows of results are divided."""
    for u in range(lo, hi):
        plane = x + u // (oa * ob) * (a * b * c)
        i = u // ob % oa
        j = u % ob
        i0 = i * a // oa
        j0 = j * b // ob
        for k in range(oc):
            k0 = k * c // oc
            at = (i0 * b + j0) * c + k0
            best = plane[at]
            for p in range(i0, ((i + 1) * a + oa - 1) // oa):
                for q in range(j0, ((j + 1) * b + ob - 1) // ob):
                    for r in range(k0, ((k + 1) * c + oc - 1) // oc):
                        v = plane[(p * b + q) * c + r]
                        take = v > best or v != v  # the last NaN is what counts
                        best = v if take else best
                        at = (p * b + q) * c + r if take else at
            y[u * oc + k] = best
            where[u * oc + k] = at


def adaptive_max_pool(x: ndarray, size: Ints) -> tuple[ndarray, ndarray] | None:
    """The largest value of windows spread evenly."""
    spatial, kind = x.shape[2:], _kind(x)
    if kind is None or len(size) != len(spatial) or min(size) < 1:
        return None
    if not any(have % n for have, n in zip(spatial, size, strict=True)):
        kernel = tuple(have // n for have, n in zip(spatial, size, strict=True))
        return max_pool(x, kernel, kernel, (0,) * len(size), (1,) * len(size))
    shape = (*x.shape[:2], *size)
    y, where = buffers.empty(shape, x.dtype), buffers.empty(shape, np.int64)
    ones = (1,) * (3 - len(size))
    shares = _shares(prod(shape[:-1]), prod(spatial[:-1]) * spatial[-1] // prod(size[:-1]))
    uneven_max_planes.get(kind)(plain(x), y, where, *ones, *spatial, *ones, *size, *shares)
    return y, where


def plane_scatter(x: ndarray, indices: ndarray, shape: Ints) -> ndarray | None:
    """Every value of ``x`` added to the element of its plane at ``indices``."""
    kind = _kind(x)
    if kind is None or indices.dtype != np.int64 or not prod(shape):
        return None
    if indices.shape != x.shape or x.shape[:2] != tuple(shape[:2]):
        return None
    last = is_last(x)
    x, indices = in_layout(x, last), in_layout(indices, last)
    n, c = shape[:2]
    outer, inner = (n, c) if last else (n * c, 1)
    sizes = outer, prod(shape[2:]), prod(x.shape[2:]), inner
    out = made_like(x, shape, last)
    return indexing.placed(None, x, indices, out, sizes, False, True, 1, -1, 0, True, True)


def plane_gather(x: ndarray, indices: ndarray) -> ndarray | None:
    """The elements of every plane at ``indices``."""
    kind = _kind(x)
    if kind is None or indices.dtype != np.int64 or not indices.size:
        return None
    if x.shape[:2] != indices.shape[:2]:
        return None
    out = buffers.empty(indices.shape, x.dtype)
    sizes = prod(x.shape[:2]), prod(x.shape[2:]), prod(indices.shape[2:]), 1
    return indexing.picked(plain(x), plain(indices), out, kind, sizes, False, 0, True)


def _count(count_include_pad: bool, divisor_override: int | None) -> int | None:
    """What a mean divides by, as geometries say it; None if they can't."""
    if divisor_override is None:
        return PADDED if count_include_pad else INSIDE
    return int(divisor_override) if divisor_override > 0 else None


def avg_pool(
    x: ndarray, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> ndarray | None:  # fmt: skip
    """The mean of every window."""
    kind, count = _kind(x), _count(count_include_pad, divisor_override)
    if kind is None or count is None:
        return None
    f = _mean_windows(x.shape[2:], kernel, stride, padding, ceil_mode, None, count)
    if f is None:
        return None
    last = is_last(x)
    x = in_layout(x, last)
    y = made_like(x, (*x.shape[:2], *f.out), last)
    n, c = x.shape[:2]
    if last:
        shares = _shares(n * prod(f.out[:-1]), f.taps * c * f.out[-1])
        window_rows.get(kind, long=False)(x, y, f.tables, c, *shares)
        return y
    shares = _shares(n * c * prod(f.out[:-1]), f.taps * f.out[-1])
    if f.taps <= UNROLLED:
        run = _unrolled(mean_planes, kind, kernel, sw=stride[-1], unrolled=True)
        run(x, y, f.tables, *shares)
    else:
        run = mean_planes.get(kind, sw=stride[-1], unrolled=False)
        run(x, y, f.tables, *f.numbers[KD : KW + 1].tolist(), *shares)
    return y


def avg_pool_back(
    x: ndarray, shape: Ints, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> ndarray | None:  # fmt: skip
    """The transpose of ``avg_pool``, for the gradient ``x`` and the shape of the input."""
    kind, count = _kind(x), _count(count_include_pad, divisor_override)
    if kind is None or count is None or not prod(shape) or x.shape[:2] != tuple(shape[:2]):
        return None
    f = _mean_windows(tuple(shape[2:]), kernel, stride, padding, ceil_mode, x.shape[2:], count)
    if f is None:
        return None
    last = is_last(x)
    x = in_layout(x, last)
    gx = made_like(x, shape, last)
    n, c = shape[:2]
    size = prod(shape[2:])
    if last:
        shares = _shares(n * -(-c // TILE), size * TILE)
        window_back_rows.get(kind)(x, gx, f.tables, c, *shares)
        return gx
    flags = {"apart": f.apart, "sw": stride[-1]}
    small = f.taps <= UNROLLED
    run = mean_back_planes.get(kind, **flags, **({"kw": kernel[-1]} if small else {}))
    run(x, gx, f.tables, *(() if small else kernel[-1:]), *_shares(n * c, size))
    return gx


@functools.lru_cache(512)
def _even(spatial: Ints, out: Ints) -> _Windows | None:
    """The geometry of windows spread evenly."""
    if len(spatial) > 3 or not prod(out) or not prod(spatial):
        return None
    ones = (1,) * len(spatial)
    f = _Windows(spatial, out, ones, ones, (0,) * len(spatial), ones)
    return f.with_tables([_even_table(*axis) for axis in zip(spatial, out, strict=True)])


def adaptive_avg_pool(x: ndarray, size: Ints) -> ndarray | None:
    """The means of windows spread evenly over every axis."""
    kind = _kind(x)
    f = _even(x.shape[2:], tuple(size)) if kind else None
    if f is None:
        return None
    last = is_last(x)
    x = in_layout(x, last)
    y = made_like(x, (*x.shape[:2], *size), last)
    n, c = x.shape[:2]
    work = x.size // (n * c * prod(f.out))
    arrays = x, y
    if last:
        shares = _shares(n * prod(f.out[:-1]), work * c * f.out[-1])
        window_rows.get(kind, long=True)(*arrays, f.tables, c, *shares)
    elif prod(f.out) == 1:
        step(MEAN, kind, (n * c, work, 1))(*arrays, float(work))
    else:
        shares = _shares(n * c * prod(f.out[:-1]), work * f.out[-1])
        window_planes.get(kind)(*arrays, f.tables, *shares)
    return y


def adaptive_avg_pool_back(x: ndarray, shape: Ints) -> ndarray | None:
    """The transpose of ``adaptive_avg_pool``, for a gradient and the shape of the input."""
    kind = _kind(x)
    spatial = tuple(shape[2:])
    f = _even(spatial, x.shape[2:]) if kind and x.shape[:2] == tuple(shape[:2]) else None
    if f is None:
        return None
    last = is_last(x)
    x = in_layout(x, last)
    gx = made_like(x, shape, last)
    n, c = shape[:2]
    arrays = x, gx
    if last:
        shares = _shares(n * -(-c // TILE), prod(spatial) * TILE)
        window_back_rows.get(kind)(*arrays, f.tables, c, *shares)
    elif prod(f.out) == 1:
        size = prod(spatial)
        whole_back_planes.get(kind)(*arrays, size, *_shares(n * c, size))
    else:
        window_back_planes.get(kind, c=1, planes=1)(
            *arrays, f.tables, *_shares(n * c, prod(spatial))
        )
    return gx
