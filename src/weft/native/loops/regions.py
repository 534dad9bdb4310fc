"""Regions of interest in images: non-maximum suppression, ROI align and ROI pooling.

The positions of samples along each axis are found first; the loops read and add. Where their
number does not depend on the boxes, a kernel finds them, otherwise the references do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, i64, inline, maximum, minimum
from weft.native.codegen.jit import kernel
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain
from weft.references import regions as reference

ndarray = np.ndarray
Ints = tuple[int, ...]
INT64 = np.dtype(np.int64)
T = Any  # the type of the arrays in a call

# Elements read that are worth a thread.
GRAIN = 16384


@kernel
def suppress(
    x1: Ptr[T], y1: Ptr[T], x2: Ptr[T], y2: Ptr[T], areas: Ptr[T], gone: Ptr[T], limit: T,
    n: i64, lo: i64, hi: i64,
):  # fmt: skip
    for i in range(n):
        if gone[i] == 0.0:
            for j in range(i + 1, n):
                width = maximum(minimum(x2[i], x2[j]) - maximum(x1[i], x1[j]), 0.0)
                height = maximum(minimum(y2[i], y2[j]) - maximum(y1[i], y1[j]), 0.0)
                shared = width * height
                over = shared / (areas[i] + areas[j] - shared)
                gone[j] = 1.0 if over > limit else gone[j]


def nms(boxes: ndarray, scores: ndarray, iou_threshold: float) -> ndarray | None:
    """The indices of boxes that no kept box of a higher score overlaps by more."""
    if boxes.dtype not in FLOATS or boxes.ndim != 2 or boxes.shape[1] != 4 or not len(boxes):
        return None
    if scores.shape != (len(boxes),) or np.isnan(boxes).any():
        return None
    order = reference.by_score(scores)
    x1, y1, x2, y2 = sides = plain(boxes[order].T)
    with np.errstate(all="ignore"):
        areas = (x2 - x1) * (y2 - y1)
    gone = np.zeros(len(order), boxes.dtype)
    limit = float(reference.largest_not_above(iou_threshold, boxes.dtype))
    run = suppress.get(FLOATS[boxes.dtype])
    run(*(plain(side) for side in sides), areas, gone, limit, len(order), 1, 1)
    return order[gone == 0]


# --- averages at points between pixels ----------------------------------------------------


@kernel
def align_boxes(
    x: Ptr[T], y: Ptr[T], batch: Ptr[i64], parts: Ptr[T],
    top: Ptr[i64], bottom: Ptr[i64], top_weight: Ptr[T], bottom_weight: Ptr[T], tall: Ptr[i64],
    left: Ptr[i64], right: Ptr[i64], left_weight: Ptr[T], right_weight: Ptr[T], wide: Ptr[i64],
    c: i64, h: i64, w: i64, oh: i64, ow: i64, most_rows: i64, most_columns: i64, lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        r = u // c
        plane = x + (batch[r] * c + u % c) * h * w
        out = y + u * oh * ow
        for i in range(oh):
            for j in range(ow):
                total = parts[r] - parts[r]
                for a in range(tall[r]):
                    s = (r * oh + i) * most_rows + a
                    if top[s] >= 0:
                        upper = plane + top[s] * w
                        lower = plane + bottom[s] * w
                        for b in range(wide[r]):
                            t = (r * ow + j) * most_columns + b
                            if left[t] >= 0:
                                first = top_weight[s] * left_weight[t] * upper[left[t]]
                                first += top_weight[s] * right_weight[t] * upper[right[t]]
                                first += bottom_weight[s] * left_weight[t] * lower[left[t]]
                                first += bottom_weight[s] * right_weight[t] * lower[right[t]]
                                total += first
                out[i * ow + j] = total / parts[r]


@kernel
def spread_boxes(
    g: Ptr[T], gx: Ptr[T], batch: Ptr[i64], parts: Ptr[T],
    top: Ptr[i64], bottom: Ptr[i64], top_weight: Ptr[T], bottom_weight: Ptr[T], tall: Ptr[i64],
    left: Ptr[i64], right: Ptr[i64], left_weight: Ptr[T], right_weight: Ptr[T], wide: Ptr[i64],
    c: i64, h: i64, w: i64, oh: i64, ow: i64, most_rows: i64, most_columns: i64, boxes: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        plane = gx + u * h * w
        for r in range(boxes):
            if batch[r] == u // c:
                grad = g + (r * c + u % c) * oh * ow
                for i in range(oh):
                    for j in range(ow):
                        part = grad[i * ow + j] / parts[r]
                        for a in range(tall[r]):
                            s = (r * oh + i) * most_rows + a
                            if top[s] >= 0:
                                upper = plane + top[s] * w
                                lower = plane + bottom[s] * w
                                for b in range(wide[r]):
                                    t = (r * ow + j) * most_columns + b
                                    if left[t] >= 0:
                                        upper[left[t]] += part * top_weight[s] * left_weight[t]
                                        upper[right[t]] += part * top_weight[s] * right_weight[t]
                                        lower[left[t]] += part * bottom_weight[s] * left_weight[t]
                                        lower[right[t]] += part * bottom_weight[s] * right_weight[t]


@kernel
def align_table(
    boxes: Ptr[T], low: Ptr[i64], high: Ptr[i64], low_weight: Ptr[T], high_weight: Ptr[T],
    counts: Ptr[i64], scale: T, shift: T, shortest: T, side: i64, size: i64, bins: i64, ratio: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for r in range(lo, hi):
        start = boxes[r * 5 + side] * scale - shift
        stop = boxes[r * 5 + side + 2] * scale - shift
        step = maximum(stop - start, shortest) / T(bins)
        counts[r] = ratio
        for b in range(bins):
            for s in range(ratio):
                at = (start + T(b) * step) + (T(s) + 0.5) * step / T(ratio)
                inside = at >= -1.0 and at <= T(size)
                at = maximum(at, 0.0) if inside else T(0.0)
                pixel = min(i64(at), size - 1)
                share = T(0.0) if pixel >= size - 1 else at - T(pixel)
                k = (r * bins + b) * ratio + s
                low[k] = pixel if inside else -1
                high[k] = min(pixel + 1, size - 1)
                low_weight[k] = 1.0 - share
                high_weight[k] = share


@kernel
def images_of(
    boxes: Ptr[T], batch: Ptr[i64], parts: Ptr[T], bad: Ptr[i64], images: i64, samples: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for r in range(lo, hi):
        image = boxes[r * 5]
        exists = image > -1.0 and image < T(images)
        batch[r] = i64(image if exists else T(0.0))
        parts[r] = T(samples)
        if not exists:
            bad[0] = 1


def _known_taps(
    shape: Ints, boxes: ndarray, size: Ints, scale: float, ratio: int, aligned: bool
) -> list[ndarray] | None:
    """What ``_align_arrays`` gives, with so many samples in each bin; None if an image is none."""
    dtype, count, d = boxes.dtype, len(boxes), FLOATS[boxes.dtype]
    boxes, empty = plain(boxes), buffers.empty
    batch, parts, bad = empty(count, INT64), empty(count, dtype), buffers.zeros(1, INT64)
    images_of.get(d)(boxes, batch, parts, bad, shape[0], ratio * ratio, count, 1)
    if buffers.wrong(bad):
        return None
    arrays = [batch, parts]
    for side, length, bins in ((2, shape[2], size[0]), (1, shape[3], size[1])):
        kinds = (INT64, INT64, dtype, dtype)
        table = [*(empty((count, bins * ratio), kind) for kind in kinds), empty(count, INT64)]
        shift, shortest = (0.5, -np.inf) if aligned else (0.0, 1.0)
        numbers = scale, shift, shortest, side, length, bins, ratio
        align_table.get(d)(boxes, *table, *numbers, count, 1)
        arrays += table
    return arrays


def _fits(shape: Ints, boxes: ndarray, size: Ints, ratio: int = 0) -> bool:
    if buffers.planner() is not None and ratio <= 0:
        return False  # what is read and written depends on the values of boxes
    known = len(shape) == 4 and 0 not in shape and len(size) == 2 and min(size) > 0
    return known and boxes.ndim == 2 and boxes.shape[1] == 5 and len(boxes) > 0


def _align_arrays(
    shape: Ints, boxes: ndarray, size: Ints, scale: float, ratio: int, aligned: bool
) -> tuple[list[ndarray], list[int], int] | None:
    """What both loops read, their sizes, and the work of one box in one channel."""
    if ratio > 0:
        found = _known_taps(shape, boxes, size, scale, ratio, aligned)
        work = ratio * ratio * size[0] * size[1]
        return None if found is None else (found, [*shape[1:], *size, ratio, ratio], work)
    how = (tuple(size), scale, ratio, aligned)
    batch, rows, columns = reference.all_align_taps(tuple(shape), boxes, *how)
    parts = np.maximum(rows.counts * columns.counts, 1).astype(boxes.dtype)
    arrays = [batch, parts, *rows, *columns]
    most = rows.low.shape[1] // size[0], columns.low.shape[1] // size[1]
    sizes = [*shape[1:], *size, *most]
    return arrays, sizes, int(rows.low.shape[1] * columns.low.shape[1])


def roi_align(
    x: ndarray, boxes: ndarray, size: Ints, scale: float, ratio: int, aligned: bool
) -> ndarray | None:
    """For each box (image, x1, y1, x2, y2) the means of interpolated samples in bins."""
    if x.dtype not in FLOATS or boxes.dtype != x.dtype or not _fits(x.shape, boxes, size, ratio):
        return None
    found = _align_arrays(x.shape, boxes, size, scale, ratio, aligned)
    if found is None:
        return None
    arrays, sizes, work = found
    y = buffers.empty((len(boxes), x.shape[1], *size), x.dtype)
    units = len(boxes) * x.shape[1]
    count = threads.how_many(units, max(1, GRAIN // work))
    align_boxes.get(FLOATS[x.dtype])(plain(x), y, *arrays, *sizes, units, count)
    return y


def roi_align_back(
    g: ndarray, boxes: ndarray, shape: Ints, size: Ints, scale: float, ratio: int, aligned: bool
) -> ndarray | None:
    """The transpose of ``roi_align``."""
    if g.dtype not in FLOATS or boxes.dtype != g.dtype or not _fits(shape, boxes, size, ratio):
        return None
    if g.shape != (len(boxes), shape[1], *size):
        return None
    found = _align_arrays(shape, boxes, size, scale, ratio, aligned)
    if found is None:
        return None
    arrays, sizes, work = found
    gx = buffers.zeros(tuple(shape), g.dtype)
    units = shape[0] * shape[1]
    count = threads.how_many(units, max(1, GRAIN // (work * len(boxes))))
    spread_boxes.get(FLOATS[g.dtype])(plain(g), gx, *arrays, *sizes, len(boxes), units, count)
    return gx


# --- the largest pixel --------------------------------------------------------------------


@inline
def largest(plane, y, where, w, top, bottom, left, right, least):
    best = least
    place = i64(-1)
    for p in range(top, bottom):
        for q in range(left, right):
            v = plane[p * w + q]
            better = v > best
            best = v if better else best
            place = p * w + q if better else place
    empty = bottom <= top or right <= left
    y[0] = 0.0 if empty else best
    where[0] = place


@kernel
def pool_boxes(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], batch: Ptr[i64], top: Ptr[i64], bottom: Ptr[i64],
    left: Ptr[i64], right: Ptr[i64], c: i64, h: i64, w: i64, oh: i64, ow: i64, least: T,
    lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        r = u // c
        plane = x + (batch[r] * c + u % c) * h * w
        for i in range(oh):
            for j in range(ow):
                o = (u * oh + i) * ow + j
                s = r * oh + i
                t = r * ow + j
                largest(plane, y + o, where + o, w, top[s], bottom[s], left[t], right[t], least)


def roi_pool(
    x: ndarray, boxes: ndarray, size: Ints, scale: float
) -> tuple[ndarray, ndarray] | None:
    """For each box the maxima in bins, and their indices."""
    if x.dtype not in FLOATS or boxes.dtype != x.dtype or not _fits(x.shape, boxes, size):
        return None
    bins = reference.all_pool_bins(x.shape, boxes, tuple(size), scale)
    shape = (len(boxes), x.shape[1], *size)
    y, where = buffers.empty(shape, x.dtype), buffers.empty(shape, np.int64)
    units = shape[0] * shape[1]
    run = pool_boxes.get(FLOATS[x.dtype])
    arrays = (plain(x), y, where, *(plain(part) for part in bins))
    work = max(1, x.shape[2] * x.shape[3] // 4)
    least = float(np.finfo(x.dtype).min)
    run(*arrays, *x.shape[1:], *size, least, units, threads.how_many(units, GRAIN // work or 1))
    return y, where


@kernel
def put_back(
    g: Ptr[T], gx: Ptr[T], places: Ptr[i64], batch: Ptr[i64], c: i64, plane: i64, bins: i64,
    boxes: i64, lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        for r in range(boxes):
            if batch[r] == u // c:
                start = (r * c + u % c) * bins
                for k in range(bins):
                    if places[start + k] >= 0:
                        gx[u * plane + places[start + k]] += g[start + k]


def roi_pool_back(g: ndarray, places: ndarray, boxes: ndarray, shape: Ints) -> ndarray | None:
    """Values put back to the places that they were read from."""
    if g.dtype not in FLOATS or places.dtype != INT64 or g.ndim != 4:
        return None
    if not _fits(shape, boxes, g.shape[2:]):
        return None
    batch = reference.check_places(g, places, boxes, tuple(shape))
    gx = buffers.zeros(tuple(shape), g.dtype)
    units, bins = shape[0] * shape[1], g.shape[2] * g.shape[3]
    count = threads.how_many(units, max(1, GRAIN // (bins * len(boxes))))
    sizes = shape[1], shape[2] * shape[3], bins, len(boxes)
    put_back.get(FLOATS[g.dtype])(plain(g), gx, plain(places), batch, *sizes, units, count)
    return gx
