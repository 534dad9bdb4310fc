"""Convolutions of one to three dimensions by compiled loops, for any processor.

All three directions are one task: a sum over *taps* of a weight times the source at the address of
a *position* plus the tap's offset. The gradient of the input is a convolution of the gradient for
each phase of the stride, with the taps that meet that phase; a transposed convolution is the same
thing.

Tests hold the error of an element below 8 eps times the sum of the absolute values of its products.
Results are bit-identical for any number of threads.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import SIZES
from weft.native.codegen.jit import pointer
from weft.native.codegen.source import GRAIN, PaddedSource
from weft.native.gemm import packed
from weft.native.gemm.blocks import block
from weft.native.gemm.packed import ceil_div
from weft.native.loops import convolve as loops
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

Array = np.ndarray
Ints = tuple[int, ...]
I64 = np.dtype(np.int64)

FEW = 8  # rows of a group up to which reading the source in place is faster than packing
FEW_WEIGHTS = 4  # the same for the gradient of the weight
WORK = 1 << 17  # products that are worth a thread
PLACES = 8  # fewer are not worth packing a weight for
PHASES = 27  # of a transpose, that are done one by one
PLANS = 128  # that are kept
SPLIT = 16  # tasks wanted, for which the places of a weight's gradient are cut
LONGEST = 2048  # places that are not cut


def convolution(
    x: Array,
    w: Array,
    bias: Array | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    extent: Ints | None = None,
) -> Array | None:
    """A convolution, possibly cropped to ``extent``; None for unsupported inputs."""
    if extent is None:
        axes = zip(x.shape[2:], w.shape[2:], stride, padding, dilation, strict=False)
        extent = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)
    shape = (x.shape[0], w.shape[0], *extent)
    window = (stride, padding, dilation)
    if not takes(x, w, bias) or not fits(x.shape, w.shape, shape, groups, window):
        return None
    shapes = (solid(s) for s in (x.shape, w.shape, shape))
    plan = forward_plan(*shapes, *_window(*window), groups)
    if not plan.few and shape[0] * prod(extent) < PLACES:
        return None
    return run(plan, x, w, bias, shape, groups)


def transposed(
    g: Array,
    w: Array,
    bias: Array | None,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array | None:
    """The transpose of a convolution of that input shape, or None."""
    window = (stride, padding, dilation)
    if not takes(g, w, bias) or not fits(shape, w.shape, g.shape, groups, window):
        return None
    if prod(stride) > PHASES:
        return None
    shapes = (solid(s) for s in (g.shape, w.shape, shape))
    plan = backward_plan(*shapes, *_window(*window), groups)
    if not plan.few and g.shape[0] * prod(g.shape[2:]) < PLACES:
        return None
    return run(plan, g, w, bias, shape, groups)


def weight_grad(
    g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """The gradient of the weight of a convolution, or None."""
    window = (stride, padding, dilation)
    if not takes(g, x) or not fits(x.shape, shape, g.shape, groups, window):
        return None
    shapes = (solid(s) for s in (x.shape, shape, g.shape))
    plan = weight_plan(*shapes, *_window(*window), groups)
    key = (FLOATS[g.dtype], threads.count())
    job = plan.jobs.get(key)
    if job is None:
        make = _few_weights_job if plan.few else _dense_weights_job
        job = plan.jobs[key] = make(plan, key[0])
    to = buffers.empty(shape, g.dtype)
    (_few_weights if plan.few else _dense_weights)(plan, job, plain(g), x, to)
    return to


def takes(a: Array, b: Array, bias: Array | None = None) -> bool:
    """Whether arrays are of one type that there are loops for."""
    if a.dtype not in FLOATS or b.dtype != a.dtype:
        return False
    return bias is None or (bias.dtype == a.dtype and bias.ndim == 1)


def fits(x: Ints, w: Ints, y: Ints, groups: int, window: tuple[Ints, Ints, Ints]) -> bool:
    """Whether sizes go together, and are not zero; the reference raises the error."""
    if not 3 <= len(x) == len(w) == len(y) <= 5 or min(*x, *w, *y) < 1 or groups < 1:
        return False
    if x[0] != y[0] or x[1] != w[1] * groups or y[1] != w[0] or w[0] % groups:
        return False
    axes = zip(x[2:], w[2:], y[2:], *window, strict=True)
    return all((m - 1) * s + d * (k - 1) < n + 2 * p for n, k, m, s, p, d in axes)


def _window(stride: Ints, padding: Ints, dilation: Ints) -> tuple[Ints, Ints, Ints]:
    return three(stride, 1), three(padding, 0), three(dilation, 1)


def three(sizes: Ints, missing: int) -> Ints:
    """Sizes as those of three dimensions."""
    return (missing,) * (3 - len(sizes)) + tuple(sizes)


def solid(shape: Ints) -> Ints:
    """The shape of an (N, C, ...) array with three dimensions of places."""
    return (*shape[:2], *three(shape[2:], 1))


@dataclass
class Sum:
    """Places, the taps that are summed at each, and where the results go."""

    places: Ints  # of a sample
    outs: Ints  # steps of the results of a sample and in three dimensions
    start: int  # the first result
    taps: Array  # offsets into the source
    weights: Array  # offsets into a row of the weight


@dataclass
class WindowedConvolution:
    """A convolution of arrays of given shapes."""

    source: PaddedSource
    sums: list[Sum]
    rows: int  # of a group
    row_step: int
    weight_step: int  # from one row of the weight to the next
    weight_group: int
    whole: bool  # whether every place of the result has a sum
    jobs: dict[tuple[str, bool, int], list[WindowedCall]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.few = self.rows <= FEW
        self.in_place = not self.few and self.source.is_plain()
        self.beyond = loops.VECTORS * block("f32")[0]  # what is read behind the copy's end


@dataclass(frozen=True, slots=True)
class WindowedCall:
    """The calls that work out a sum: addresses and numbers that its arrays don't change."""

    code: Callable
    taps: int
    info: int
    numbers: Ints
    start: int  # bytes
    scratch: int
    pack: Callable
    pack_numbers: Ints
    packed: int
    held: tuple[Array, ...]  # keeps alive what the addresses are of


@functools.lru_cache(PLANS)
def forward_plan(
    x: Ints, w: Ints, y: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> WindowedConvolution:
    """The plan of a convolution, from shapes with three dimensions of places."""
    source = seen_source(x, w, y, stride, padding, dilation)
    channel, each = source.steps[1], w[1]
    taps = [
        c * channel + source.offset(tuple(t * d for t, d in zip(tap, dilation, strict=True)))
        for c in range(each)
        for tap in np.ndindex(*w[2:])
    ]
    plane = prod(y[2:])
    outs = (y[1] * plane, y[3] * y[4], y[4], 1)
    one = Sum(y[2:], outs, 0, np.array(taps, I64), np.arange(len(taps)))
    rows = w[0] // groups
    return WindowedConvolution(source, [one], rows, plane, len(taps), rows * len(taps), True)


def seen_source(
    x: Ints, w: Ints, y: Ints, stride: Ints, padding: Ints, dilation: Ints
) -> PaddedSource:
    """The copy of a convolution's input."""
    phases, held = [], []
    for i in range(3):
        reach = dilation[i] * (w[2 + i] - 1)
        met = {t * dilation[i] % stride[i] for t in range(w[2 + i])}
        phases.append(tuple(sorted(met)))
        held.append(y[2 + i] + reach // stride[i])
        if stride[i] == 1 and not padding[i]:
            held[i] = x[2 + i]  # as it is, even if its end is not seen
    return PaddedSource(x[1], x[2:], padding, stride, tuple(phases), tuple(held))


@dataclass
class InputPhase:
    """One phase of a dimension of an input, and the taps that apply to it."""

    first: int  # place in the input
    count: int
    taps: list[int]
    seen: list[int]  # where the first place sees the gradient through each tap


def _phases(size: int, taps: int, stride: int, padding: int, dilation: int) -> list[InputPhase]:
    found = []
    for phase in range(stride):
        start = ceil_div(padding - phase, stride)
        stop = ceil_div(size + padding - phase, stride)
        met = [t for t in range(taps) if t * dilation % stride == phase]
        seen = [start - t * dilation // stride for t in met]
        found.append(InputPhase(stride * start + phase - padding, max(stop - start, 0), met, seen))
    return found


@functools.lru_cache(PLANS)
def backward_plan(
    g: Ints, w: Ints, x: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> WindowedConvolution:
    """The plan of the transpose, from shapes with three dimensions of places."""
    axes = [_phases(x[2 + i], w[2 + i], stride[i], padding[i], dilation[i]) for i in range(3)]
    before, held = [], []
    for i, axis in enumerate(axes):
        used = [p for p in axis if p.count and p.taps]
        least = min((min(p.seen) for p in used), default=0)
        most = max((max(p.seen) + p.count for p in used), default=0)
        before.append(max(0, -least))
        held.append(before[i] + max(g[2 + i], most))
    source = PaddedSource(g[1], g[2:], tuple(before), (1, 1, 1), ((0,),) * 3, tuple(held))
    sums, whole = [], True
    for phases in itertools.product(*axes):
        if not prod(p.count for p in phases):
            continue
        if not prod(len(p.taps) for p in phases):
            whole = False
            continue
        sums.append(_sum_of_phase(phases, source, w, x, stride, groups))
    taps = prod(w[2:])
    rows = w[0] // groups
    return WindowedConvolution(source, sums, w[1], prod(x[2:]), taps, rows * w[1] * taps, whole)


def _sum_of_phase(
    phases: tuple[InputPhase, ...],
    source: PaddedSource,
    w: Ints,
    x: Ints,
    stride: Ints,
    groups: int,
) -> Sum:
    here = [
        source.offset(tuple(s + b for s, b in zip(seen, source.before, strict=True)))
        for seen in itertools.product(*(p.seen for p in phases))
    ]
    theirs = [(a * w[3] + b) * w[4] + c for a, b, c in itertools.product(*(p.taps for p in phases))]
    rows = np.arange(w[0] // groups)[:, None]
    lines = (x[3] * x[4], x[4], 1)
    return Sum(
        tuple(p.count for p in phases),
        (x[1] * prod(x[2:]), *(s * n for s, n in zip(stride, lines, strict=True))),
        sum(p.first * n for p, n in zip(phases, lines, strict=True)),
        (rows * source.steps[1] + np.array(here, I64)).ravel(),
        (rows * (w[1] * prod(w[2:])) + np.array(theirs, I64)).ravel(),
    )


def run(
    plan: WindowedConvolution, x: Array, w: Array, bias: Array | None, shape: Ints, groups: int
) -> Array:
    """Work a plan out into a new array."""
    key = (FLOATS[x.dtype], bias is not None, threads.count())
    jobs = plan.jobs.get(key)
    if jobs is None:
        jobs = plan.jobs[key] = [_job(plan, one, shape[0], groups, *key[:2]) for one in plan.sums]
    w = plain(w)
    source = plain(x) if plan.in_place else plan.source.copied(x, plan.beyond)
    given = w if bias is None else plain(bias)
    y = buffers.empty(shape, x.dtype) if plan.whole else _filled(shape, given, bias is not None)
    for job in jobs:
        buffers.constant(*job.held)
        packed = buffers.empty(job.packed, x.dtype)
        job.pack(pointer(w), pointer(packed), *job.pack_numbers)
        scratch = buffers.empty(job.scratch, x.dtype)
        job.code(
            *(pointer(source), pointer(packed), pointer(given), pointer(y) + job.start),
            *(job.taps, job.info, pointer(scratch)),
            *job.numbers,
        )
    return y


def _filled(shape: Ints, bias: Array, biased: bool) -> Array:
    """The values at positions without a tap."""
    if not biased:
        return buffers.zeros(shape, bias.dtype)
    y = buffers.empty(shape, bias.dtype)
    buffers.move(y, bias.reshape(-1, *(1,) * (len(shape) - 2)))
    return y


def _job(
    plan: WindowedConvolution, one: Sum, samples: int, groups: int, kind: str, biased: bool
) -> WindowedCall:
    """All that can be known of a sum before its arrays."""
    height = 1 if plan.few else block(kind)[1]
    k_size, sheets = one.weights.size, groups * ceil_div(plan.rows, height)
    info = _table(plan, one, samples, groups)
    code, numbers, scratch = (_few_job if plan.few else _dense_job)(info, samples, biased, kind)
    tables = (info, one.taps, one.weights, np.zeros(1, I64))
    return WindowedCall(
        code=code,
        taps=pointer(one.taps),
        info=pointer(info),
        numbers=numbers,
        start=one.start * SIZES[kind],
        scratch=scratch,
        pack=loops.pack_rows.get(kind, height=height),
        pack_numbers=(
            *(pointer(tables[3]), pointer(one.weights), 1, k_size),
            *(plan.rows, plan.weight_step, plan.weight_group),
            *(sheets, threads.how_many(sheets, max(1, GRAIN // (height * k_size)))),
        ),
        packed=sheets * height * k_size,
        held=tables,
    )


def _table(plan: WindowedConvolution, one: Sum, samples: int, groups: int) -> Array:
    info = np.zeros(loops.SIZE, I64)
    steps = plan.source.steps
    sizes, ins, outs = one.places, (steps[0], *steps[2:]), one.outs
    if not plan.few:
        sizes, ins, outs = merged(sizes, ins, outs)
    info[loops.WIDE : loops.LONG + 1] = sizes[::-1]
    info[loops.IN_N : loops.IN_X + 1] = ins
    info[loops.OUT_N : loops.OUT_X + 1] = outs
    info[loops.COUNT] = samples * prod(sizes)
    info[loops.ROWS], info[loops.ROW_STEP] = plan.rows, plan.row_step
    info[loops.TAPS] = one.taps.size
    info[loops.GROUPS], info[loops.GROUP_IN] = groups, steps[0] // groups
    info[loops.READABLE] = samples * steps[0] + (0 if plan.in_place else plan.beyond)
    info[loops.REACH] = one.taps.max()
    return info


def merged(sizes: Ints, ins: Ints, outs: Ints) -> tuple[Ints, Ints, Ints]:
    """Dimensions that follow each other without a gap in both arrays as one."""
    (a, b, c), (n, i, j, k), (m, p, q, r) = sizes, ins, outs
    if j == c * k and q == c * r:
        b, c = 1, b * c
        if i == c * k and p == c * r:
            a, c = 1, a * c
        j, q = c * k, c * r
        if a == 1:
            i, p = j, q
    return (a, b, c), (n, i, j, k), (m, p, q, r)


def _dense_job(info: Array, samples: int, biased: bool, kind: str) -> tuple[Callable, Ints, int]:
    _, height, width = block(kind)
    rows, k_size, groups = (int(info[i]) for i in (loops.ROWS, loops.TAPS, loops.GROUPS))
    places = int(info[loops.COUNT])
    count = max(1, threads.how_many(places * rows * groups, max(1, WORK // k_size)))
    # Pieces that can be shared out evenly; rows are cut only where there are too few places.
    panels = ceil_div(places, width)
    pieces = ceil_div(panels * groups, count * loops.PANELS) * count
    span = min(loops.PANELS, max(1, ceil_div(panels * groups, pieces))) * width
    blocks = ceil_div(places, span)
    cuts = 1 if blocks * groups >= count else ceil_div(count, blocks * groups)
    part = ceil_div(ceil_div(rows, cuts), height) * height
    cuts = ceil_div(rows, part)
    tasks = blocks * groups * cuts
    count = min(count, tasks)
    scratch_each = (span + 1) * min(k_size, packed.K_BLOCK) + 2 * width
    info[loops.TASKS :] = (tasks, blocks, cuts, span, part, scratch_each)
    consts = {"biased": int(biased), "height": height, "width": width}
    return loops.dense.get(kind, **consts), (count, count, count), scratch_each * count


def _few_job(info: Array, samples: int, biased: bool, kind: str) -> tuple[Callable, Ints, int]:
    strip = loops.VECTORS * block(kind)[0]
    wide, high, long = (int(n) for n in info[loops.WIDE : loops.LONG + 1])
    length = (long - 1) * int(info[loops.IN_Z]) + (high - 1) * int(info[loops.IN_Y]) + wide
    span = strip * 16
    blocks = ceil_div(length, span)
    tasks = blocks * int(info[loops.GROUPS]) * samples
    work = min(length, span) * int(info[loops.TAPS]) * int(info[loops.ROWS])
    info[loops.BLOCKS], info[loops.SPAN] = blocks, span
    code = loops.few.get(kind, biased=int(biased), block=strip)
    return code, (tasks, threads.how_many(tasks, max(1, WORK // work))), 0


@dataclass
class WeightGradient:
    """The gradient of a weight for arrays of given shapes."""

    source: PaddedSource
    shape: Ints  # of the weight, with three dimensions of places
    places: Ints
    samples: int
    groups: int
    taps: Array  # where the first place finds each tap, in a plane of the source
    jobs: dict[tuple[str, int], WeightGradientCall] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rows, self.each = self.shape[0] // self.groups, self.shape[1]
        self.columns = self.each * self.taps.size
        self.few = self.rows <= FEW_WEIGHTS

    def table(self) -> Array:
        """What the loops of both kinds need to know."""
        info = np.zeros(loops.SIZE, I64)
        plane, (_, high, wide) = prod(self.places), self.places
        info[loops.WIDE : loops.LONG + 1] = self.places[::-1]
        info[loops.OUT_N : loops.OUT_X + 1] = (self.shape[0] * plane, high * wide, wide, 1)
        info[loops.COUNT] = self.samples * plane
        info[loops.ROWS], info[loops.ROW_STEP] = self.rows, plane
        info[loops.TAPS], info[loops.GROUPS] = self.columns, self.groups
        info[loops.READABLE] = 1 << 62  # there is memory behind the copy
        return info


@dataclass(frozen=True, slots=True)
class WeightGradientCall:
    """Tables and numbers that the arrays don't change."""

    info: Array
    offsets: Array
    workers: int
    tasks: int = 0
    cuts: int = 1
    scratch: int = 0
    outer: Array | None = None
    inner: Array | None = None


@functools.lru_cache(PLANS)
def weight_plan(
    x: Ints, w: Ints, y: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> WeightGradient:
    """The plan of a weight's gradient, from shapes with three dimensions of places."""
    source = seen_source(x, w, y, stride, padding, dilation)
    taps = [
        source.offset(tuple(t * d for t, d in zip(tap, dilation, strict=True)))
        for tap in np.ndindex(*w[2:])
    ]
    return WeightGradient(source, w, y[2:], y[0], groups, np.array(taps, I64))


def _few_weights_job(plan: WeightGradient, kind: str) -> WeightGradientCall:
    info, steps = plan.table(), plan.source.steps
    info[loops.IN_N : loops.IN_X + 1] = (steps[0], *steps[2:])
    info[loops.GROUP_IN] = steps[1] * plan.each
    offsets = (np.arange(plan.each)[:, None] * steps[1] + plan.taps).ravel()
    bunches = ceil_div(offsets.size, loops.DOTS)
    offsets = np.resize(offsets, bunches * loops.DOTS)  # the last bunch computes some unused taps
    tasks = plan.shape[0] * bunches
    work = plan.samples * prod(plan.places) * loops.DOTS
    return WeightGradientCall(
        info, offsets, threads.how_many(tasks, max(1, WORK // work)), tasks=tasks
    )


def _few_weights(
    plan: WeightGradient, job: WeightGradientCall, g: Array, x: Array, to: Array
) -> None:
    kind = FLOATS[g.dtype]
    buffers.constant(job.offsets, job.info)
    seen = plain(x) if plan.source.is_plain() else plan.source.copied(x, 0)
    loops.few_weights.get(kind, lanes=block(kind)[0])(
        *map(pointer, (seen, g, to, job.offsets, job.info)), len(g), job.tasks, job.workers
    )


def _dense_weights_job(plan: WeightGradient, kind: str) -> WeightGradientCall:
    width = block(kind)[2]
    info, steps, channels = plan.table(), plan.source.steps, plan.source.channels
    info[loops.IN_N] = steps[0]
    info[loops.IN_Z : loops.IN_X + 1] = [s * channels for s in steps[2:]]
    info[loops.GROUP_IN] = plan.each
    offsets = (plan.taps[:, None] * channels + np.arange(plan.each)).ravel()
    plane = prod(plan.places)
    places = plan.samples * plane
    span = min(loops.PANELS, ceil_div(plan.columns, width)) * width
    blocks = ceil_div(plan.columns, span)
    # Few columns: the places are cut too, in a way that does not depend on the threads.
    cuts = min(ceil_div(SPLIT, blocks * plan.groups), ceil_div(places, LONGEST))
    part = ceil_div(places, cuts)
    cuts = ceil_div(places, part)
    tasks = blocks * plan.groups * cuts
    workers = min(max(1, threads.how_many(places * prod(plan.shape), WORK)), tasks)
    scratch_each = (span + 1) * min(part, packed.K_BLOCK) + 2 * width
    info[loops.TASKS :] = (tasks, blocks, cuts, span, part, scratch_each)
    outer = np.arange(plan.samples) * (plan.shape[0] * plane)
    return WeightGradientCall(
        info, offsets, workers, tasks, cuts, scratch_each * workers, outer, np.arange(plane)
    )


def _dense_weights(
    plan: WeightGradient, job: WeightGradientCall, g: Array, x: Array, to: Array
) -> None:
    kind = FLOATS[g.dtype]
    _, height, width = block(kind)
    buffers.constant(job.offsets, job.info, job.outer, job.inner)
    seen = plan.source.copied(x, width, last=True)
    left = _packed_grad(plan, job, g, height)
    scratch = buffers.empty(job.scratch, g.dtype)
    parts = buffers.empty(job.cuts * to.size, g.dtype)
    loops.dense_weights.get(kind, height=height, width=width)(
        *map(pointer, (seen, left, parts, job.offsets, job.info, scratch)), *(job.workers,) * 3
    )
    loops.gather_weights.get(kind)(
        *map(pointer, (parts, to)),
        *(job.cuts, to.size, plan.each, plan.taps.size, len(to)),
        threads.how_many(len(to), max(1, GRAIN // plan.columns)),
    )


def _packed_grad(plan: WeightGradient, job: WeightGradientCall, g: Array, height: int) -> Array:
    """The gradient as the left side of a product: rows of channels over all places."""
    assert job.outer is not None and job.inner is not None
    samples, plane = job.outer.size, job.inner.size
    sheets = plan.groups * ceil_div(plan.rows, height)
    to = buffers.empty(sheets * height * samples * plane, g.dtype)
    loops.pack_rows.get(FLOATS[g.dtype], height=height)(
        *map(pointer, (g, to, job.outer, job.inner)),
        *(samples, plane, plan.rows, plane, plan.rows * plane, sheets * samples),
        threads.how_many(sheets * samples, max(1, GRAIN // (height * plane))),
    )
    return to
