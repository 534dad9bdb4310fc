"""Convolutions that only max pooling reads, and their gradients, for compiled programs.

With few channels 2x2 pooling is fused into the convolution: only the maxima of its result are
written.

Gradients are computed from those that the pooling passes on. Elements that were not selected have
none: three quarters of them with 2x2 windows. So nothing is scattered and read back, and nothing
multiplied by zero. Zero times a non-finite number would be NaN: if the other factor of such a
gradient is not finite, the result is discarded, and the caller computes every product.

Results are bit-identical for any number of threads.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from weft.native import threads
from weft.native.codegen.source import GRAIN, PaddedSource
from weft.native.conv import windowed
from weft.native.conv.convolutions import require_finite
from weft.native.conv.windowed import fits
from weft.native.conv.winograd import ChannelsLast
from weft.native.gemm.blocks import block, has_fma
from weft.native.gemm.packed import ceil_div
from weft.native.loops import convolve
from weft.native.loops import pooled as loops
from weft.native.loops.pooled_rows import VECTORS, pooled_rows_kernel
from weft.native.memory import buffers
from weft.native.memory.layout import is_last, plain

Array = np.ndarray
Ints = tuple[int, ...]
F32 = np.dtype(np.float32)
I64 = np.dtype(np.int64)

PLANS = 128  # that are kept
SPLIT = 16  # pieces of the samples, for which a weight's gradient is summed
PARTIAL = 1 << 20  # elements of these sums, for which there are fewer pieces
CHANNELS = 32  # for more of them, products that read each element for many others are faster
SPARSE = 2  # places for each value at least
TAPS, IMAGE = 9, 1 << 14  # of a window, and elements of an image that stay in a cache
FEW = 8  # channels of a convolution that is done together with its pooling
LINES = 4096  # elements of an image that values taken together see, so that they stay in a cache


class Pooled(NamedTuple):
    """A convolution under max pooling: all shapes that its gradients depend on."""

    x: Ints
    w: Ints
    y: Ints  # of its result
    pooled: Ints
    stride: Ints
    padding: Ints


@dataclass
class PooledPlan:
    """How values meet the windows of an image."""

    image: ChannelsLast
    rows: int  # of a block of a window
    vectors: int
    at: Array  # where the window of each place begins in the image
    starts: Array  # where in a window each of its blocks does
    elements: Array  # where in its blocks each element of a row of the weight is
    info: Array


def takes(case: Pooled, dilation: Ints, groups: int) -> bool:
    """Whether there are loops for such a convolution."""
    window = (case.stride, case.padding, dilation)
    if len(case.x) != 4 or groups != 1 or not fits(case.x, case.w, case.y, 1, window):
        return False
    return max(dilation) == 1 and min(case.pooled) > 0 and has_fma()


def pays(case: Pooled, dilation: Ints, groups: int, of_weight: bool) -> bool:
    """Whether one of the gradients is faster so than by all products."""
    if not takes(case, dilation, groups):
        return False
    channels, (high, wide) = case.x[1], case.x[2:]
    if channels > CHANNELS or SPARSE * prod(case.pooled[2:]) > prod(case.y[2:]):
        return False
    return of_weight or (prod(case.w[2:]) <= TAPS and channels * high * wide <= IMAGE)


def pays_in_squares(case: Pooled, dilation: Ints, groups: int) -> bool:
    """Whether a convolution under pooling of two by two is faster in one pass.

    So for few channels, of which each element is read for many others, and lines that fill vectors.
    """
    if not takes(case, dilation, groups) or case.x[1] > FEW:
        return False
    wide, lanes = case.pooled[3], block()[0]
    inside = all(2 * n <= m for n, m in zip(case.pooled[2:], case.y[2:], strict=True))
    return inside and 2 * wide > ceil_div(wide, lanes) * lanes


def weight_grad(g: Array, places: Array, x: Array, case: Pooled) -> Array | None:
    """The gradient of the weight, or None."""
    if not _fit(g, places, case) or x.shape != case.x or x.dtype != F32:
        return None
    g, places, x = map(plain, (g, places, x))
    plan = weight_plan(case)
    info, lanes = plan.info, block()[0]
    pieces, rows, window = (int(info[i]) for i in (loops.PIECES, loops.ROWS, loops.WINDOW))
    workers = min(pieces, max(1, threads.count()))
    buffers.constant(plan.at, plan.image.places, plan.starts, plan.elements, info)
    parts = buffers.empty(pieces * rows * window, F32)
    scratch = buffers.empty(workers * int(info[loops.SCRATCH]), F32)
    bad, to = buffers.zeros(1, I64), buffers.empty(case.w, F32)
    few = case.x[1] if case.x[1] < lanes else 0
    loops.sums_kernel(plan.rows, plan.vectors).get(few=few, lanes=lanes)(
        *(x, g, places, plan.at, plan.image.places, plan.starts, parts, info, scratch, bad),
        *(workers, workers, workers),
    )
    size = prod(case.w[1:])
    loops.gather_sums.get()(
        *(parts, to, plan.elements, pieces, rows, window, size, rows),
        threads.how_many(rows, max(1, GRAIN // (size * pieces))),
    )
    return None if buffers.wrong(bad) else to


def transposed(g: Array, places: Array, w: Array, case: Pooled) -> Array | None:
    """The gradient of the input, or None."""
    if not _fit(g, places, case) or w.shape != case.w or w.dtype != F32:
        return None
    if not (g.flags.c_contiguous and places.flags.c_contiguous):
        return None  # a result of a different layout
    if not require_finite(w):
        return None
    w = plain(w)
    plan = transposed_plan(case)
    info, lanes = plan.info, block()[0]
    rows, window = (int(info[i]) for i in (loops.ROWS, loops.WINDOW))
    workers = min(case.x[0], max(1, threads.count()))
    buffers.constant(plan.at, plan.image.places, plan.starts, plan.elements, info)
    packed = buffers.empty(rows * window, F32)
    size = prod(case.w[1:])
    loops.place_windows.get()(w, packed, plan.elements, window, size, rows, 1)
    scratch = buffers.empty(workers * int(info[loops.SCRATCH]), F32)
    to = buffers.empty(case.x, F32)
    loops.spread_kernel(plan.rows, plan.vectors).get(lanes=lanes)(
        *(g, places, plan.at, plan.image.places, plan.starts, packed, to, info, scratch),
        *(workers, workers, workers),
    )
    return to


def _fit(g: Array, places: Array, case: Pooled) -> bool:
    """Whether values and places are those of a case."""
    return g.shape == places.shape == case.pooled and g.dtype == F32 and places.dtype == I64


def _blocks(rows: int, vectors: int) -> tuple[int, int, int]:
    """The rows and vectors of a block of a window, and how many blocks a row is cut into."""
    most = 24 if block()[0] == 16 else 12  # of all registers
    # None reaches beyond a row: zero times what is not finite would be added to the next pixels.
    each = _divisor(vectors, most)
    return _divisor(rows, max(1, most // each)), each, vectors // each


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above another one."""
    return next(n for n in range(min(number, most), 0, -1) if not number % n)


def _plan(case: Pooled, channels: int) -> PooledPlan:
    """The plan of either gradient, for images of which a place has so many channels."""
    lanes = block()[0]
    down, across = case.w[2:]
    by, first = case.stride, case.padding
    held = tuple((n - 1) * s + k for n, s, k in zip(case.y[2:], by, case.w[2:], strict=True))
    image = ChannelsLast(channels, case.x[2:], first, held)
    rows, vectors, cuts = _blocks(down, ceil_div(across * channels, lanes))
    line, place = image.steps
    at = np.add.outer(np.arange(case.y[2]) * by[0] * line, np.arange(case.y[3]) * by[1] * place)
    part = vectors * lanes
    starts = np.add.outer(np.arange(0, down, rows) * line, np.arange(cuts) * part)
    # In a block the rows follow each other.
    c, i, j = np.ogrid[: case.w[1], :down, :across]
    along = j * channels + c
    elements = ((i // rows * cuts + along // part) * rows + i % rows) * part + along % part
    info = np.zeros(loops.SIZE, I64)
    window = down * cuts * part
    size = image.held[0] * line + cuts * part
    info[loops.SAMPLES], info[loops.CHANNELS] = case.x[0], case.x[1]
    info[loops.PLANE], info[loops.IMAGE], info[loops.LINE] = prod(case.x[2:]), size, line
    info[loops.WIDE] = case.x[3]
    info[loops.ROWS], info[loops.VALUES] = case.w[0], prod(case.pooled[2:])
    info[loops.BLOCKS], info[loops.WINDOW] = starts.size, window
    info[loops.BLOCK], info[loops.SPAN] = rows * part, info[loops.VALUES]
    info[loops.IMAGE] = info[loops.SCRATCH] = ceil_div(size, lanes) * lanes
    return PooledPlan(image, rows, vectors, at.ravel(), starts.ravel(), elements.ravel(), info)


@functools.lru_cache(PLANS)
def weight_plan(case: Pooled) -> PooledPlan:
    """The plan of the gradient of a weight."""
    plan = _plan(case, case.x[1])
    info = plan.info
    info[loops.PIECES] = min(case.x[0], SPLIT, max(1, PARTIAL // (case.w[0] * info[loops.WINDOW])))
    line = int(info[loops.LINE]) * case.stride[0] * case.y[2]
    info[loops.SPAN] = max(64, int(info[loops.VALUES]) * LINES // line)
    return plan


@functools.lru_cache(PLANS)
def transposed_plan(case: Pooled) -> PooledPlan:
    """The plan of the gradient of an input, of which a place has whole vectors of channels."""
    lanes = block()[0]
    return _plan(case, ceil_div(case.x[1], lanes) * lanes)


@dataclass(frozen=True, slots=True)
class SquaresPlan:
    """A convolution of which the largest value of each square of two by two is wanted."""

    source: PaddedSource
    taps: Array  # offsets into the source
    first: Array  # of the weight's elements
    elements: Array
    height: int  # rows of the result that are done at a time


def largest(
    x: Array, w: Array, bias: Array | None, case: Pooled, rectified: bool = False
) -> tuple[Array, Array] | None:
    """The pooled result, or its relu, and the indices; or None."""
    if x.shape != case.x or w.shape != case.w or not windowed.takes(x, w, bias):
        return None
    if x.dtype != F32 or is_last(x) or (bias is not None and bias.shape != case.w[:1]):
        return None
    plan, lanes = squares_plan(case), block()[0]
    rows, size = case.w[0], prod(case.w[1:])
    sheets = ceil_div(rows, plan.height)
    buffers.constant(plan.taps, plan.first, plan.elements)
    packed = buffers.empty(sheets * plan.height * size, F32)
    convolve.pack_rows.get("f32", height=plan.height)(
        *(plain(w), packed, plan.first, plan.elements, 1, size, rows, size, 0, sheets, 1)
    )
    added = buffers.empty(sheets * plan.height, F32)
    buffers.move(added[:rows], 0.0 if bias is None else bias)
    buffers.move(added[rows:], 0.0)
    source = plan.source.copied(x, VECTORS * lanes)
    y, places = buffers.empty(case.pooled, F32), buffers.empty(case.pooled, I64)
    (high, wide), lines = case.pooled[2:], case.pooled[0] * case.pooled[2]
    pooled_rows_kernel(plan.height, rectified).get(height=plan.height, lanes=lanes)(
        *(source, packed, added, y, places, plan.taps, plan.source.steps[0], plan.source.steps[3]),
        *(size, rows, high, wide, case.y[3], lines),
        threads.how_many(lines, max(1, GRAIN // (rows * size * wide))),
    )
    return y, places


@functools.lru_cache(PLANS)
def squares_plan(case: Pooled) -> SquaresPlan:
    """The plan of a convolution under pooling of two by two."""
    x, w, y = (windowed.solid(shape) for shape in (case.x, case.w, case.y))
    window = windowed.three(case.stride, 1), windowed.three(case.padding, 0), (1, 1, 1)
    source = windowed.seen_source(x, w, y, *window)
    taps = [
        c * source.steps[1] + source.offset((0, *tap))
        for c in range(case.w[1])
        for tap in np.ndindex(*case.w[2:])
    ]
    most = (6, 5, 4) if block()[0] == 16 else (2,)  # so many sums stay in registers
    height = min(most, key=lambda h: ceil_div(case.w[0], h) * h)
    return SquaresPlan(source, np.array(taps, I64), np.zeros(1, I64), np.arange(len(taps)), height)
