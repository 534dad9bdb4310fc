"""Winograd convolutions of images, with filters of two or three times the stride.

That is 3x3 filters of stride 1, 4x4 filters of stride 2 and similar ones, in float32. The input is
a stack of images, one for each phase of the stride, convolved with filters of 2x2 or 3x3 elements,
for which ``loops.winograd`` has products. A transposed convolution is one such task for each phase
of its result.

Sums and differences are taken over a tile of three or four elements in each dimension, or of five
or six where that is less work. So the error of an element is relative to the largest values in and
near its window: tests keep it below 8 eps times the sum over channels of the products of those. A
non-finite value would spread over a tile: then the result is discarded, and the caller computes
every product. Results are bit-identical for any number of threads.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from weft.native import threads
from weft.native.codegen.source import GRAIN
from weft.native.conv.windowed import fits, takes
from weft.native.gemm.blocks import block, has_fma, tile
from weft.native.gemm.packed import ceil_div
from weft.native.loops import winograd as loops
from weft.native.memory import buffers
from weft.native.memory.layout import plain

Array = np.ndarray
Ints = tuple[int, ...]
F32 = np.dtype(np.float32)
I64 = np.dtype(np.int64)

PLANS = 128  # that are kept
SPLIT = 4  # tasks wanted of a weight's gradient
PARTIAL = 1 << 21  # elements of sums of pieces, for which it is cut into fewer
WINDOWS = 64  # tiles that take as long as the transform of the windows
CACHE = 1 << 17  # elements of transformed tiles that stay in a cache
FEWEST, MOST = 32, 96  # tiles that are multiplied at a time
LONG = 128  # and summed, for a weight's gradient


def convolution(
    x: Array, w: Array, bias: Array | None, stride: Ints, padding: Ints, extent: Ints | None
) -> Array | None:
    """A convolution, possibly cropped to ``extent``; None if unsupported."""
    if extent is None:
        axes = zip(x.shape[2:], w.shape[2:], stride, padding, strict=True)
        extent = tuple((n + 2 * p - k) // s + 1 for n, k, s, p in axes)
    shape = (len(x), len(w), *extent)
    if not _steps_over(w.shape, stride) or not takes(x, w, bias):
        return None
    if not fits(x.shape, w.shape, shape, 1, (stride, padding, (1, 1))):
        return None
    m = _side(len(x), extent, w.shape[2] // stride[0])
    return _run(forward_plan(x.shape, w.shape, shape, stride[0], padding, m), x, w, bias, shape)


def transposed(
    g: Array, w: Array, bias: Array | None, shape: Ints, stride: Ints, padding: Ints
) -> Array | None:
    """The transpose of a convolution of that input shape, or None."""
    if not _steps_over(w.shape, stride) or not takes(g, w, bias):
        return None
    if not fits(shape, w.shape, g.shape, 1, (stride, padding, (1, 1))):
        return None
    by = stride[0]
    m = _side(len(g), tuple(ceil_div(size, by) for size in shape[2:]), w.shape[2] // by)
    return _run(backward_plan(g.shape, w.shape, shape, by, padding, m), g, w, bias, shape)


def weight_grad(g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints) -> Array | None:
    """The gradient of a convolution's weight, or None."""
    if not _steps_over(shape, stride) or not takes(g, x):
        return None
    if not fits(x.shape, shape, g.shape, 1, (stride, padding, (1, 1))):
        return None
    m = _side(len(x), g.shape[2:], shape[2] // stride[0])
    return _run_weights(weight_plan(x.shape, shape, g.shape, stride[0], padding, m), g, x)


def _steps_over(weight: Ints, stride: Ints) -> bool:
    """Whether windows are squares of two or three times the stride."""
    high, wide = weight[2:]
    return high == wide and stride[0] == stride[1] and high in (2 * stride[0], 3 * stride[0])


def _side(samples: int, places: Ints, k: int) -> int:
    """The side of a tile's results: four where that is less to do."""
    if not has_fma():  # each of their multiplications would be a call
        return 2

    def work(m: int) -> int:
        tiles = samples * prod(ceil_div(size, m) for size in places)
        return (tiles + WINDOWS) * (k + m - 1) ** 2

    return 4 if work(4) < work(2) else 2


@dataclass
class ChannelsLast:
    """How an image is copied: with its channels innermost, and with zeros around it."""

    channels: int
    size: Ints  # of an image
    before: Ints  # zeros
    held: Ints  # places of a copy
    steps: Ints = field(init=False)  # of lines and of places

    def __post_init__(self) -> None:
        self.held = tuple(map(max, self.held, map(sum, zip(self.size, self.before, strict=True))))
        self.steps = (self.held[1] * self.channels, self.channels)
        lines, places = (np.arange(n) + b for n, b in zip(self.size, self.before, strict=True))
        self.places = np.add.outer(lines * self.steps[0], places * self.steps[1]).ravel()
        # With a vector beyond the end, which is read with the last channels.
        self.elements = self.held[0] * self.steps[0] + block()[0]

    def offset(self, y: int, x: int) -> int:
        """Where a place of the padded image is, from the first."""
        return y * self.steps[0] + x * self.steps[1]


@dataclass
class Part:
    """Results that are worked out together: all, or a phase of them."""

    taps: Array  # where the first tile finds each of its elements, by phase
    info: Array
    start: int  # of the results


@dataclass
class WinogradConvolution:
    """A convolution of arrays of given shapes."""

    source: ChannelsLast
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


def _panel(size: int) -> int:
    """The rows of a panel: whole vectors, of which all panels have nearly equal numbers."""
    lanes, _, width = tile()
    vectors = ceil_div(size, lanes)
    return ceil_div(vectors, ceil_div(vectors * lanes, width)) * lanes


def _taps(source: ChannelsLast, n: int, by: int, first: Ints, phases: Iterable[Ints]) -> Array:
    """Where a tile finds its elements, by phase."""
    y, x = first
    taps = [source.offset(y + i * by + a, x + j * by + b) for a, b in phases for i, j in square(n)]
    return np.array(taps, I64)


@functools.lru_cache(PLANS)
def forward_plan(x: Ints, w: Ints, y: Ints, by: int, padding: Ints, m: int) -> WinogradConvolution:
    """The plan of a convolution, of which a tile gives m x m results."""
    k = w[2] // by
    n, step = k + m - 1, m * by
    held = tuple((ceil_div(size, m) - 1) * step + n * by for size in y[2:])
    source = ChannelsLast(x[1], x[2:], padding, held)
    phases = list(square(by))
    weights = [(i * by + a) * w[3] + j * by + b for a, b in phases for i, j in square(k)]
    plane, window = y[2] * y[3], w[2] * w[3]
    info = _info(source, y[2:], step, x[0], m)
    info[loops.TOP], info[loops.STEP], info[loops.REACH] = 0, step, n * by
    info[loops.OUT_N], info[loops.OUT_Y] = y[1] * plane, y[3]
    info[loops.PHASES], info[loops.ROWS], info[loops.ROW_STEP] = len(phases), w[0], plane
    return WinogradConvolution(
        *(source, n, m, w[0], w[1] * len(phases), np.array(weights, I64)),
        *(w[1] * window, window, 1, [Part(_taps(source, n, by, (0, 0), phases), info, 0)]),
    )


def _info(source: ChannelsLast, places: Ints, step: int, samples: int, m: int) -> Array:
    """What both directions say of their tiles, which are ``step`` apart in the source."""
    info = np.zeros(loops.SIZE, I64)
    high, wide = (ceil_div(size, m) for size in places)
    info[loops.WIDE], info[loops.HIGH], info[loops.LINES] = wide, high, samples * high
    info[loops.IN_Y], info[loops.IN_X] = (step * s for s in source.steps)
    info[loops.HEIGHT], info[loops.WIDTH], info[loops.IMAGE] = *source.size, source.elements
    info[loops.LINE], info[loops.ABOVE] = source.steps[0], source.before[0]
    info[loops.SEEN_Y], info[loops.SEEN_X] = places
    info[loops.CHANNELS] = source.channels
    return info


@dataclass
class ResultPhase:
    """One phase of a dimension of a transpose's result."""

    first: int
    count: int
    tap: int  # the last element of a window that meets them
    seen: int  # where the first place sees the source through it


@functools.lru_cache(PLANS)
def backward_plan(g: Ints, w: Ints, x: Ints, by: int, padding: Ints, m: int) -> WinogradConvolution:
    """The plan of the transpose: a convolution of g for each phase of the result."""
    size, plane = w[2], x[2] * x[3]
    k = size // by
    n = k + m - 1
    axes = [_phases(length, size, by, p) for length, p in zip(x[2:], padding, strict=True)]
    before = [max(0, -min(p.seen for p in axis)) for axis in axes]
    held = [
        max(b + p.seen + (ceil_div(p.count, m) - 1) * m + n for p in axis)
        for axis, b in zip(axes, before, strict=True)
    ]
    source = ChannelsLast(g[1], g[2:], tuple(before), tuple(held))
    parts, weights = [], []
    for down, across in itertools.product(*axes):
        taps = _taps(source, n, 1, (before[0] + down.seen, before[1] + across.seen), [(0, 0)])
        weights += [(down.tap - i * by) * size + across.tap - j * by for i, j in square(k)]
        info = _info(source, (down.count, across.count), m, x[0], m)
        info[loops.TOP], info[loops.STEP], info[loops.REACH] = before[0] + down.seen, m, n
        info[loops.OUT_N], info[loops.OUT_Y] = x[1] * plane, by * x[3]
        info[loops.PHASES], info[loops.ROWS], info[loops.ROW_STEP] = 1, w[1], plane
        parts.append(Part(taps, info, down.first * x[3] + across.first))
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


def _together(points: int, elements: int, other: int, most: int = MOST) -> int:
    """How many tiles, of so many elements at each point, are multiplied at a time.

    So many as stay in a cache, or as many as can be if the other matrix does not stay there.
    """
    height = tile()[1]
    count = min(max(CACHE // (points * elements), FEWEST), most) if other <= 2 * CACHE else most
    return ceil_div(count, height) * height


def _jobs(plan: WinogradConvolution) -> list[WinogradCall]:
    """The parts, cut so that their tasks can be shared out evenly."""
    lanes, height, _ = tile()
    jobs, count, points = [], threads.count(), plan.n**2
    full = _panel(plan.rows)
    panels = ceil_div(plan.rows, full)
    for part in plan.parts:
        info = part.info.copy()
        lines, wide = int(info[loops.LINES]), int(info[loops.WIDE])
        most = max(1, _together(points, plan.columns, points * plan.columns * plan.rows) // wide)
        span = ceil_div(lines, ceil_div(lines, most * count) * count)
        blocks = ceil_div(lines, span)
        cuts = 1 if blocks >= count else min(panels, ceil_div(count, blocks))
        some = ceil_div(panels, cuts)
        cuts = ceil_div(panels, some)
        tiles = ceil_div(span * wide, height) * height
        apart = ceil_div(plan.columns, lanes) * lanes
        group = min(some, max(1, CACHE // (points * tiles * full)))
        scratch = points * (tiles * (apart + group * full) + (1 + group) * loops.GAP) + lanes
        scratch += plan.source.elements + plan.m * int(info[loops.SEEN_X]) * lanes
        info[loops.FULL], info[loops.GROUP] = full, group
        info[loops.TASKS : loops.SCRATCH + 1] = blocks * cuts, cuts, span, some, scratch
        jobs.append(WinogradCall(part, info, min(count, blocks * cuts), scratch))
    return jobs


def _run(
    plan: WinogradConvolution, x: Array, w: Array, bias: Array | None, shape: Ints
) -> Array | None:
    """Work a plan out into a new array; None where it isn't finite."""
    lanes, height, width = tile()
    jobs = plan.jobs.get(threads.count())
    if jobs is None:
        jobs = plan.jobs[threads.count()] = _jobs(plan)
    image, windows = plain(x), _windows(plan, plain(w))
    y, bad = buffers.empty(shape, F32), buffers.zeros(threads.count(), I64)
    results, added = y.reshape(-1), y if bias is None else plain(bias)
    code = loops.products.get(
        n=plan.n, m=plan.m, by=plan.by, lanes=lanes, height=height, width=width
    )
    for job, packed in zip(jobs, windows, strict=True):
        scratch = buffers.empty(job.scratch * job.workers, F32)
        code(
            *(image, packed, added, results[job.part.start :], plan.source.places, job.part.taps),
            *(job.info, scratch, bad, job.workers, int(bias is not None), job.workers, job.workers),
        )
    return None if buffers.wrong(bad) else y


def _windows(plan: WinogradConvolution, w: Array) -> Array:
    """The transformed windows of every part, in panels."""
    lanes, _, width = tile()
    parts, points, full = len(plan.parts), plan.n**2, _panel(plan.rows)
    panels, k = ceil_div(plan.rows, full), plan.n - plan.m + 1
    phases, window = plan.weights.size // k**2, w.shape[2] * w.shape[3]
    sheet = width * plan.columns + loops.GAP
    packed = buffers.empty((parts, points * panels * sheet), F32)
    # Phases are columns of one part, or parts of their own.
    channels = plan.columns * parts // phases
    phase_to = packed.shape[1] if parts > 1 else channels * width
    held = ceil_div(window, lanes) * lanes
    loops.windows.get(window=window, held=held, n=plan.n, m=plan.m, lanes=lanes, width=width)(
        *(w, packed, plan.weights, w.size, plan.rows, channels, phases, plan.row_step),
        *(plan.channel_step, phase_to, panels * sheet, sheet, full, panels),
        threads.how_many(panels, max(1, GRAIN // (full * plan.columns * points))),
    )
    return packed


@dataclass
class WeightPlan:
    """The gradient of a weight for arrays of given shapes."""

    forward: WinogradConvolution
    grads: ChannelsLast
    shape: Ints
    grad_taps: Array
    info: Array
    grad_info: Array
    pieces: int
    columns: int
    jobs: dict[int, WeightCall] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WeightCall:
    """A weight's gradient, cut into tasks for a number of threads."""

    info: Array
    workers: int
    scratch: int


@functools.lru_cache(PLANS)
def weight_plan(x: Ints, w: Ints, y: Ints, by: int, padding: Ints, m: int) -> WeightPlan:
    """The plan of a weight's gradient: tiles of both arrays, with the channels innermost."""
    forward = forward_plan(x, w, y, by, padding, m)
    info = forward.parts[0].info.copy()
    lines, high, wide = (int(info[i]) for i in (loops.LINES, loops.HIGH, loops.WIDE))
    grads = ChannelsLast(y[1], y[2:], (0, 0), (m * high, m * wide))
    full, points = _panel(x[1]), forward.n**2
    columns = ceil_div(x[1], full) * full * by * by
    elements = points * w[0] * columns
    together = _together(points, w[0] + columns, elements, LONG)
    # The tiles are cut in a way that does not depend on the threads.
    pieces = min(SPLIT, max(1, PARTIAL // elements), ceil_div(lines * wide, together))
    span = ceil_div(lines, pieces)
    together = ceil_div(span, ceil_div(span, max(1, together // wide)))
    info[loops.FULL], info[loops.SPAN], info[loops.TOGETHER] = full, span, together
    taps, grad_info = _taps(grads, m, 1, (0, 0), [(0, 0)]), _info(grads, y[2:], m, y[0], m)
    return WeightPlan(forward, grads, w, taps, info, grad_info, ceil_div(lines, span), columns)


def _weight_job(plan: WeightPlan) -> WeightCall:
    """The tasks of a weight's gradient: pieces, and where these are too few, parts of columns."""
    lanes, _, width = tile()
    info, count = plan.info.copy(), threads.count()
    panels = plan.columns // int(info[loops.FULL])
    part = ceil_div(panels, ceil_div(count, plan.pieces))
    cuts = ceil_div(panels, part)
    tiles = int(info[loops.TOGETHER] * info[loops.WIDE])
    rows = ceil_div(plan.shape[0], lanes) * lanes
    scratch = plan.forward.n**2 * ((rows + part * width) * tiles + 2 * loops.GAP) + lanes
    scratch += plan.forward.source.elements + plan.grads.elements
    tasks = plan.pieces * cuts
    info[loops.TASKS], info[loops.CUTS], info[loops.PART] = tasks, cuts, part
    info[loops.SCRATCH] = scratch
    return WeightCall(info, min(count, tasks), scratch)


def _run_weights(plan: WeightPlan, g: Array, x: Array) -> Array | None:
    """Work a plan out into a new weight; None where it isn't finite."""
    lanes, height, width = tile()
    n, m = plan.forward.n, plan.forward.m
    job = plan.jobs.get(threads.count())
    if job is None:
        job = plan.jobs[threads.count()] = _weight_job(plan)
    (rows, channels), window = plan.shape[:2], plan.shape[2] * plan.shape[3]
    size = ceil_div(rows, height) * height * plan.columns
    source, grads = plan.forward.source, plan.grads
    parts = buffers.empty(plan.pieces * n * n * size, F32)
    scratch = buffers.empty(job.workers * job.scratch, F32)
    loops.weight_products.get(n=n, m=m, lanes=lanes, height=height, width=width)(
        *(plain(x), plain(g), parts, source.places, grads.places, plan.forward.parts[0].taps),
        *(plan.grad_taps, job.info, plan.grad_info, scratch, *(job.workers,) * 3),
    )
    to, bad = buffers.empty(plan.shape, F32), buffers.zeros(1, I64)
    loops.weight_results.get(n=n, m=m, lanes=lanes)(
        *(parts, to, plan.forward.weights, bad, plan.pieces, channels),
        *(int(job.info[loops.PHASES]), size, plan.columns, window, rows),
        threads.how_many(rows, max(1, GRAIN // (plan.columns * n * n))),
    )
    return None if buffers.wrong(bad) else to
