"""Convolutions of images by fewer multiplications: windows of two or three times the stride.

So 3x3 windows side by side, 4x4 ones of stride 2 and their like, in float32. The input is a stack
of images, one for each phase of the stride, seen through windows of 2x2 or 3x3 elements, for which
``loops.winograd`` has products. A transposed convolution is one such task for each phase of its
result.

Sums and differences are taken over a tile of three or four elements each way, or with AVX-512 of
five or six, where that is less to do. So the error of an element is measured by the largest values
in and near its window: tests hold it below 8 eps times the sum over channels of the products of
those. What isn't finite would spread over a tile: then the result is given up, and the caller takes
every product. The number of threads does not change a bit of a result.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from weft.native import threads
from weft.native.codegen.source import GRAIN, PaddedSource
from weft.native.conv.windowed import fits, takes
from weft.native.gemm.blocks import block
from weft.native.gemm.packed import ceil_div
from weft.native.loops import convolve as table
from weft.native.loops import winograd as loops
from weft.native.memory import buffers
from weft.native.memory.layout import plain

Array = np.ndarray
Ints = tuple[int, ...]
F32 = np.dtype(np.float32)
I64 = np.dtype(np.int64)

PLANS = 128  # that are kept
SPLIT = 4  # tasks wanted of a weight's gradient
TOGETHER = 16  # channels of which windows are transformed phase by phase
COLUMNS = 128  # that such a task has at most
WIDE = 16  # lanes of a vector from which tiles may have four by four results
WINDOWS = 2  # panels of tiles that take as long as the transform of the windows
CACHE = 5 << 16  # elements of a piece that stay in a cache of their own, with vectors so wide


def convolution(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, extent: Ints | None
) -> Array | None:
    """A convolution, of which ``extent`` may leave out the last places; None: not ours."""
    if extent is None:
        axes = zip(x.shape[2:], w.shape[2:], stride, padding, strict=True)
        extent = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in axes)
    shape = (len(x), len(w), *extent)
    if not takes(x, w, bias) or not fits(x.shape, w.shape, shape, 1, (stride, padding, (1, 1))):
        return None
    m = _side(len(x), extent, w.shape[2] // stride[0])
    return _run(forward_plan(x.shape, w.shape, shape, stride[0], padding, m), x, w, bias, shape)


def transposed(
    g: Array, w: Array, bias: Array | None, shape: Ints, stride: Ints, padding: Ints
) -> Array | None:
    """The transpose of a convolution of that input shape, or None."""
    if not takes(g, w, bias) or not fits(shape, w.shape, g.shape, 1, (stride, padding, (1, 1))):
        return None
    by = stride[0]
    m = _side(len(g), tuple(ceil_div(size, by) for size in shape[2:]), w.shape[2] // by)
    return _run(backward_plan(g.shape, w.shape, shape, by, padding, m), g, w, bias, shape)


def weight_grad(g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints) -> Array | None:
    """The gradient of a convolution's weight, or None."""
    if not takes(g, x) or not fits(x.shape, shape, g.shape, 1, (stride, padding, (1, 1))):
        return None
    m = _side(len(x), g.shape[2:], shape[2] // stride[0])
    return _run_weights(weight_plan(x.shape, shape, g.shape, stride[0], padding, m), g, x)


def _side(samples: int, places: Ints, k: int) -> int:
    """The side of a tile's results: four where that is less to do."""
    lanes, _, width = block()
    if lanes < WIDE:
        return 2

    def work(m: int) -> int:
        tiles = samples * prod(ceil_div(size, m) for size in places)
        return (ceil_div(tiles, width) + WINDOWS) * (k + m - 1) ** 2

    return 4 if work(4) < work(2) else 2


@dataclass
class Part:
    """Results that are worked out together: all, or a phase of them."""

    taps: Array  # where the first tile finds each of its elements, by phase
    info: Array
    start: int  # of the results


@dataclass
class WinogradConvolution:
    """A convolution of arrays of given shapes."""

    source: PaddedSource
    n: int  # the side of a tile
    m: int  # and of its results
    rows: int
    columns: int
    weights: Array  # where a row finds each element of its windows, by phase
    row_step: int  # of the weight
    channel_step: int
    by: int  # step between neighbours of the result
    parts: list[Part]
    jobs: dict[int, list[WinogradCall]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WinogradCall:
    """A part, cut into tasks for a number of threads."""

    part: Part
    info: Array
    workers: int
    scratch: int


def square(n: int) -> Iterable[tuple[int, int]]:
    """All places of a square, row by row."""
    return itertools.product(range(n), range(n))


@functools.lru_cache(PLANS)
def forward_plan(x: Ints, w: Ints, y: Ints, by: int, padding: Ints, m: int) -> WinogradConvolution:
    """The plan of a convolution, of which a tile gives m x m results."""
    k = w[2] // by
    n, tiles = k + m - 1, [ceil_div(size, m) for size in y[2:]]
    every = tuple(range(m * by))
    source = PaddedSource(
        channels=x[1],
        size=(1, *x[2:]),
        before=(0, *padding),
        stride=(1, m * by, m * by),
        phases=((0,), every, every),
        held=(1, tiles[0] + 1, tiles[1] + 1),
    )
    phases = list(square(by))
    taps = [source.offset((0, i * by + a, j * by + b)) for a, b in phases for i, j in square(n)]
    weights = [(i * by + a) * w[3] + j * by + b for a, b in phases for i, j in square(k)]
    plane, window = y[2] * y[3], w[2] * w[3]
    info = _info(source, y[2:], (y[1] * plane, m * y[3], m), y[0], m)
    info[loops.PHASES], info[table.ROWS], info[table.ROW_STEP] = len(phases), w[0], plane
    return WinogradConvolution(
        *(source, n, m, w[0], w[1] * len(phases), np.array(weights, I64)),
        *(w[1] * window, window, 1, [Part(np.array(taps, I64), info, 0)]),
    )


def _info(source: PaddedSource, places: Ints, outs: Ints, samples: int, m: int) -> Array:
    """What both directions say of their tiles."""
    info = np.zeros(loops.SIZE, I64)
    high, wide = (ceil_div(size, m) for size in places)
    info[table.WIDE : table.LONG + 1] = wide, high, 1
    info[table.COUNT] = samples * high * wide
    info[table.IN_N : table.IN_X + 1] = source.steps[0], 0, *source.steps[3:]
    info[table.OUT_N : table.OUT_X + 1] = outs[0], 0, *outs[1:]
    info[loops.SEEN_Y], info[loops.SEEN_X] = places
    info[loops.CHANNELS], info[loops.CHANNEL] = source.channels, source.steps[1]
    return info


@dataclass
class ResultPhase:
    """Every so many places of one dimension of a transpose's result."""

    first: int
    count: int
    tap: int  # the last element of a window that meets them
    seen: int  # where the first place sees the source through it


@functools.lru_cache(PLANS)
def backward_plan(g: Ints, w: Ints, x: Ints, by: int, padding: Ints, m: int) -> WinogradConvolution:
    """The plan of the transpose: a convolution of g for each phase of the result."""
    size, plane = w[2], x[2] * x[3]
    k = size // by
    n, every = k + m - 1, tuple(range(m))
    axes = [_phases(m, size, by, p) for m, p in zip(x[2:], padding, strict=True)]
    before = [max(0, -min(p.seen for p in axis)) for axis in axes]
    held = [
        max(b + p.seen + n + m * ceil_div(p.count, m) for p in axis) // m
        for axis, b in zip(axes, before, strict=True)
    ]
    source = PaddedSource(
        channels=g[1],
        size=(1, *g[2:]),
        before=(0, *before),
        stride=(1, m, m),
        phases=((0,), every, every),
        held=(1, *held),
    )
    parts, weights = [], []
    for down, across in itertools.product(*axes):
        at = (before[0] + down.seen, before[1] + across.seen)
        taps = [source.offset((0, at[0] + i, at[1] + j)) for i, j in square(n)]
        weights += [(down.tap - i * by) * size + across.tap - j * by for i, j in square(k)]
        places, outs = (down.count, across.count), (x[1] * plane, m * by * x[3], m * by)
        info = _info(source, places, outs, x[0], m)
        info[loops.PHASES], info[table.ROWS], info[table.ROW_STEP] = 1, w[1], plane
        parts.append(Part(np.array(taps, I64), info, down.first * x[3] + across.first))
    window = size * size
    return WinogradConvolution(
        *(source, n, m, w[1], w[0], np.array(weights, I64)),
        *(window, w[1] * window, by, parts),
    )


def _phases(size: int, window: int, by: int, padding: int) -> list[ResultPhase]:
    found = []
    for first in range(min(by, size)):
        tap = window - by + (first + padding) % by
        count = len(range(first, size, by))
        found.append(ResultPhase(first, count, tap, (first + padding - tap) // by))
    return found


def _jobs(plan: WinogradConvolution) -> list[WinogradCall]:
    """The parts, cut so that their tasks can be shared out evenly."""
    lanes, height, width = block()
    jobs, count = [], threads.count()
    near = CACHE // (plan.n**2 * (plan.columns + plan.rows) * width)
    most = min(near, loops.PANELS) if lanes >= WIDE and near else loops.PANELS
    for part in plan.parts:
        info = part.info.copy()
        panels = ceil_div(int(info[table.COUNT]), width)
        pieces = ceil_div(panels, most * count) * count
        span = ceil_div(panels, pieces)
        blocks = ceil_div(panels, span)
        cuts = 1 if blocks >= count else ceil_div(count, blocks)
        rows = ceil_div(ceil_div(plan.rows, cuts), height) * height
        cuts = ceil_div(plan.rows, rows)
        scratch = plan.n**2 * span * ((plan.columns + rows) * width + loops.GAP)
        info[table.TASKS : table.SCRATCH + 1] = (
            blocks * cuts,
            blocks,
            cuts,
            span * width,
            rows,
            scratch,
        )
        jobs.append(WinogradCall(part, info, min(count, blocks * cuts), scratch))
    return jobs


def _run(
    plan: WinogradConvolution, x: Array, w: Array, bias: Array | None, shape: Ints
) -> Array | None:
    """Work a plan out into a new array; None where it isn't finite."""
    _, height, width = block()
    jobs = plan.jobs.get(threads.count())
    if jobs is None:
        jobs = plan.jobs[threads.count()] = _jobs(plan)
    seen, windows = plan.source.copied(x, 2 * width), _windows(plan, plain(w))
    y, bad = buffers.empty(shape, F32), buffers.zeros(threads.count(), I64)
    results, added = y.reshape(-1), y if bias is None else plain(bias)
    code = loops.products.get(
        n=plan.n,
        m=plan.m,
        biased=int(bias is not None),
        by=plan.by,
        height=height,
        width=width,
    )
    for job, packed in zip(jobs, windows, strict=True):
        scratch = buffers.empty(job.scratch * job.workers, F32)
        code(
            *(seen, packed, added, results[job.part.start :], job.part.taps, job.info),
            *(scratch, bad, job.workers, job.workers, job.workers),
        )
    return None if buffers.wrong(bad) else y


def _windows(plan: WinogradConvolution, w: Array) -> Array:
    """The transformed windows of every part, in panels."""
    _, height, _ = block()
    sheets, parts = ceil_div(plan.rows, height), len(plan.parts)
    phases = plan.weights.size // (plan.n - plan.m + 1) ** 2
    sheet = height * plan.columns + loops.GAP
    packed = buffers.empty((parts, plan.n**2 * sheets * sheet), F32)
    # Phases are columns of one part, or parts of their own.
    steps = (height, phases * height) if parts == 1 else (packed.shape[1], height)
    together = 1 if parts == 1 else TOGETHER
    loops.windows.get(n=plan.n, m=plan.m, height=height, lanes=_lanes())(
        *(w, packed, plan.weights, plan.rows, plan.columns * parts // phases, phases),
        *(plan.row_step, plan.channel_step, *steps, sheet, together, sheets),
        threads.how_many(sheets, max(1, GRAIN // (height * plan.columns * plan.n**2))),
    )
    return packed


def _lanes() -> int:
    """Whole vectors that hold a panel's rows."""
    lanes, height, _ = block()
    return ceil_div(height, lanes) * lanes


@dataclass
class WeightPlan:
    """The gradient of a weight for arrays of given shapes."""

    forward: WinogradConvolution
    grads: PaddedSource
    shape: Ints
    taps: Array
    grad_taps: Array
    info: Array
    pieces: int
    columns: int
    scratch: int


@functools.lru_cache(PLANS)
def weight_plan(x: Ints, w: Ints, y: Ints, by: int, padding: Ints, m: int) -> WeightPlan:
    """The plan of a weight's gradient: tiles of both arrays, with the channels innermost."""
    _, height, width = block()
    forward, every = forward_plan(x, w, y, by, padding, m), tuple(range(m))
    info = forward.parts[0].info.copy()
    tiles, high, wide = (int(info[i]) for i in (table.COUNT, table.HIGH, table.WIDE))
    grads = PaddedSource(
        channels=y[1],
        size=(1, *y[2:]),
        before=(0, 0, 0),
        stride=(1, m, m),
        phases=((0,), every, every),
        held=(1, high, wide),
    )
    grad_taps = np.array([grads.offset((0, i, j)) for i, j in square(m)], I64)
    info[table.IN_Y : table.IN_X + 1] *= x[1]
    info[table.OUT_N] = grads.steps[0]
    info[table.OUT_Y], info[table.OUT_X] = (step * y[1] for step in grads.steps[3:])
    panels = ceil_div(x[1], width) * by * by
    part = min(panels, COLUMNS // width)
    cuts = ceil_div(panels, part)
    # Few columns: the tiles are cut too, in a way that does not depend on the threads.
    pieces = min(ceil_div(SPLIT, cuts), ceil_div(tiles, loops.TOGETHER))
    span = ceil_div(tiles, pieces)
    pieces = ceil_div(tiles, span)
    rows = ceil_div(w[0], height) * height
    scratch = forward.n**2 * ((rows + part * width) * loops.TOGETHER + 2 * loops.GAP)
    info[table.TASKS : table.SCRATCH + 1] = (pieces * cuts, pieces, cuts, span, part, scratch)
    return WeightPlan(
        *(forward, grads, w, forward.parts[0].taps * x[1], grad_taps * y[1]),
        *(info, pieces, panels * width, scratch),
    )


def _run_weights(plan: WeightPlan, g: Array, x: Array) -> Array | None:
    """Work a plan out into a new weight; None where it isn't finite."""
    _, height, width = block()
    n, m, info = plan.forward.n, plan.forward.m, plan.info
    (rows, channels), window = plan.shape[:2], plan.shape[2] * plan.shape[3]
    size = ceil_div(rows, height) * height * plan.columns
    seen = plan.forward.source.copied(x, 2 * width, last=True)
    grads = plan.grads.copied(g, 2 * width, last=True)
    parts = buffers.empty(plan.pieces * n * n * size, F32)
    workers = min(threads.count(), int(info[table.TASKS]))
    scratch = buffers.empty(workers * plan.scratch, F32)
    loops.weight_products.get(n=n, m=m, height=height, lanes=_lanes(), width=width)(
        *(seen, grads, parts, plan.taps, plan.grad_taps, info, scratch),
        *(workers, workers, workers),
    )
    to, bad = buffers.empty(plan.shape, F32), buffers.zeros(1, I64)
    loops.weight_results.get(n=n, m=m, width=width)(
        *(parts, to, plan.forward.weights, bad, plan.pieces, channels),
        *(int(info[loops.PHASES]), size, plan.columns, window, rows),
        threads.how_many(rows, max(1, GRAIN // (plan.columns * n * n))),
    )
    return None if buffers.wrong(bad) else to
