"""Regions of images: non-maximum suppression, and sampling boxes on a regular grid."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

ndarray = np.ndarray


def largest_not_above(threshold: float, dtype: np.dtype) -> np.floating:
    """The largest number of a type up to a threshold: what to compare numbers of the type with."""
    found = dtype.type(threshold)
    return found if float(found) <= threshold else np.nextafter(found, dtype.type(-np.inf))


def check_boxes(boxes: ndarray, scores: ndarray) -> None:
    """Refuse what is not a list of boxes with a score each."""
    if boxes.ndim != 2 or boxes.shape[1] != 4:
        raise ValueError(f"boxes should be of shape (N, 4), got {tuple(boxes.shape)}")
    if scores.ndim != 1 or len(scores) != len(boxes):
        raise ValueError(
            f"scores should be of shape ({len(boxes)},), one for each box, got "
            f"{tuple(scores.shape)}"
        )


def by_score(scores: ndarray) -> ndarray:
    """Places by falling score, NaN first, equal ones in their order."""
    flipped = np.argsort(scores[::-1], kind="stable")
    return len(scores) - 1 - flipped[::-1]


def nms(boxes: ndarray, scores: ndarray, iou_threshold: float) -> ndarray:
    """The places of boxes that no kept box of a higher score overlaps by more."""
    check_boxes(boxes, scores)
    order = by_score(scores)
    x1, y1, x2, y2 = boxes[order].T
    areas = (x2 - x1) * (y2 - y1)
    limit = largest_not_above(iou_threshold, boxes.dtype)
    zero = boxes.dtype.type(0)
    gone = np.zeros(len(order), np.bool_)
    for i in range(len(order)):
        if gone[i]:
            continue
        rest = slice(i + 1, None)
        width = np.minimum(x2[i], x2[rest]) - np.maximum(x1[i], x1[rest])
        height = np.minimum(y2[i], y2[rest]) - np.maximum(y1[i], y1[rest])
        shared = np.maximum(width, zero) * np.maximum(height, zero)
        with np.errstate(all="ignore"):
            gone[rest] |= shared / (areas[i] + areas[rest] - shared) > limit
    return order[~gone]


# --- averages at points between pixels ----------------------------------------------------


class Taps(NamedTuple):
    """Along one axis: for each box and sample the two pixels around it and their weights.

    A sample outside the image has -1 for its lower pixel; ``counts`` says how many samples of a bin
    are used.
    """

    low: ndarray
    high: ndarray
    low_weight: ndarray
    high_weight: ndarray
    counts: ndarray


def align_taps(
    start: ndarray, stop: ndarray, size: int, bins: int, ratio: int, aligned: bool
) -> Taps:
    """The positions of the samples of bins along an axis, from the edges of boxes in pixels."""
    kind = start.dtype.type
    if aligned:
        start, stop = start - kind(0.5), stop - kind(0.5)
    length = stop - start
    if not aligned:
        length = np.maximum(length, kind(1))
    step = length / kind(bins)
    if ratio > 0:
        counts = np.full(len(start), ratio, np.int64)
    else:
        wanted = np.nan_to_num(np.ceil(step), nan=0.0, posinf=0.0, neginf=0.0)
        counts = np.maximum(wanted, 0).astype(np.int64)
    most = int(counts.max(initial=1)) or 1
    fine = (np.arange(most, dtype=start.dtype) + kind(0.5)) * step[:, None]
    with np.errstate(all="ignore"):
        fine = fine / counts.astype(start.dtype)[:, None]
    coarse = np.arange(bins, dtype=start.dtype) * step[:, None]
    at = (start[:, None] + coarse)[:, :, None] + fine[:, None, :]
    outside = ~((at >= -1) & (at <= size))
    at = np.where(outside, kind(0), np.maximum(at, kind(0)))
    low = np.minimum(at.astype(np.int64), size - 1)
    high = np.minimum(low + 1, size - 1)
    share = np.where(low >= size - 1, kind(0), at - low.astype(start.dtype))
    low[outside] = -1
    flat = len(start), bins * most
    first, second, weight, other = (
        np.ascontiguousarray(part.reshape(flat)) for part in (low, high, kind(1) - share, share)
    )
    return Taps(first, second, weight, other, counts)


def check_rois(x_shape: tuple[int, ...], boxes: ndarray) -> ndarray:
    """The image of each box, after a check that there is one."""
    if boxes.ndim != 2 or boxes.shape[1] != 5:
        raise ValueError(f"boxes should be of shape (K, 5), got {tuple(boxes.shape)}")
    if len(x_shape) != 4:
        raise ValueError(f"the input should be of shape (N, C, H, W), got {tuple(x_shape)}")
    with np.errstate(all="ignore"):
        batch = boxes[:, 0].astype(np.int64)
    if len(batch) and not (batch.min() >= 0 and batch.max() < x_shape[0]):
        raise ValueError(
            f"a box belongs to image {int(batch.min())} or {int(batch.max())}, and there are "
            f"{x_shape[0]} images: the first column of boxes counts images from 0"
        )
    if len(batch) and 0 in x_shape[2:]:
        raise ValueError(f"boxes in images without pixels, of shape {tuple(x_shape)}")
    return batch


def all_align_taps(
    shape: tuple[int, ...],
    boxes: ndarray,
    size: tuple[int, int],
    scale: float,
    ratio: int,
    aligned: bool,
) -> tuple[ndarray, Taps, Taps]:
    """For boxes (K, 5) the image of each, and the samples along the rows and the columns."""
    batch = check_rois(shape, boxes)
    edges = boxes[:, 1:] * boxes.dtype.type(scale)
    rows = align_taps(edges[:, 1], edges[:, 3], shape[2], size[0], ratio, aligned)
    columns = align_taps(edges[:, 0], edges[:, 2], shape[3], size[1], ratio, aligned)
    return batch, rows, columns


def _dense(taps: Taps, size: int, bins: int, r: int) -> ndarray:
    """The taps of one box as a matrix (bins, pixels), summed over the samples of a bin."""
    most = taps.low.shape[1] // bins
    matrix = np.zeros((bins, size), taps.low_weight.dtype)
    for b in range(bins):
        for s in range(b * most, b * most + int(taps.counts[r])):
            if taps.low[r, s] >= 0:
                matrix[b, taps.low[r, s]] += taps.low_weight[r, s]
                matrix[b, taps.high[r, s]] += taps.high_weight[r, s]
    return matrix


def _per_box(batch: ndarray, rows: Taps, columns: Taps) -> ndarray:
    return np.maximum(rows.counts * columns.counts, 1).astype(rows.low_weight.dtype)


def roi_align(
    x: ndarray,
    boxes: ndarray,
    size: tuple[int, int],
    scale: float,
    ratio: int,
    aligned: bool,
) -> ndarray:
    """For each box (image, x1, y1, x2, y2) the means of interpolated samples in bins."""
    boxes = boxes.astype(x.dtype, copy=False)
    batch, rows, columns = all_align_taps(x.shape, boxes, size, scale, ratio, aligned)
    y = np.empty((len(boxes), x.shape[1], *size), x.dtype)
    parts = _per_box(batch, rows, columns)
    for r in range(len(boxes)):
        down = _dense(rows, x.shape[2], size[0], r)
        across = _dense(columns, x.shape[3], size[1], r)
        used = np.ix_(np.arange(x.shape[1]), down.any(0).nonzero()[0], across.any(0).nonzero()[0])
        down, across = down[:, down.any(0)], across[:, across.any(0)]
        y[r] = down @ x[batch[r]][used] @ across.T / parts[r]
    return y


def roi_align_grad(
    g: ndarray,
    boxes: ndarray,
    shape: tuple[int, ...],
    size: tuple[int, int],
    scale: float,
    ratio: int,
    aligned: bool,
) -> ndarray:
    """The transpose of ``roi_align``."""
    boxes = boxes.astype(g.dtype, copy=False)
    batch, rows, columns = all_align_taps(shape, boxes, size, scale, ratio, aligned)
    if g.shape != (len(boxes), shape[1], *size):
        raise ValueError(f"the gradient's shape {g.shape} does not fit {len(boxes)} boxes")
    gx = np.zeros(shape, g.dtype)
    parts = _per_box(batch, rows, columns)
    for r in range(len(boxes)):
        down = _dense(rows, shape[2], size[0], r)
        across = _dense(columns, shape[3], size[1], r)
        gx[batch[r]] += down.T @ (g[r] / parts[r]) @ across
    return gx


# --- the largest pixel --------------------------------------------------------------------


def _rounded(x: ndarray) -> ndarray:
    """Rounded to integers, halves away from zero."""
    with np.errstate(all="ignore"):
        return (np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)).astype(np.int64)


def pool_bins(
    start: ndarray, stop: ndarray, size: int, bins: int, scale: float
) -> tuple[ndarray, ndarray]:
    """The first pixel of each bin and the one after its last, for each box along an axis."""
    kind = start.dtype.type
    first, last = _rounded(start * kind(scale)), _rounded(stop * kind(scale))
    step = np.maximum(last - first + 1, 1).astype(start.dtype) / kind(bins)
    places = np.arange(bins, dtype=start.dtype)
    low = np.floor(places * step[:, None]).astype(np.int64) + first[:, None]
    high = np.ceil((places + kind(1)) * step[:, None]).astype(np.int64) + first[:, None]
    return np.clip(low, 0, size), np.clip(high, 0, size)


def all_pool_bins(
    shape: tuple[int, ...], boxes: ndarray, size: tuple[int, int], scale: float
) -> tuple[ndarray, ...]:
    """For boxes (K, 5) the image of each, and the bins along the rows and the columns."""
    batch = check_rois(shape, boxes)
    rows = pool_bins(boxes[:, 2], boxes[:, 4], shape[2], size[0], scale)
    columns = pool_bins(boxes[:, 1], boxes[:, 3], shape[3], size[1], scale)
    return batch, *rows, *columns


def roi_pool(
    x: ndarray, boxes: ndarray, size: tuple[int, int], scale: float
) -> tuple[ndarray, ndarray]:
    """For each box the largest values in bins, and their places in the plane (-1: an empty bin)."""
    boxes = boxes.astype(x.dtype, copy=False)
    batch, top, bottom, left, right = all_pool_bins(x.shape, boxes, size, scale)
    shape = (len(boxes), x.shape[1], *size)
    y, where = np.zeros(shape, x.dtype), np.full(shape, -1, np.int64)
    channels = np.arange(x.shape[1])
    for r, i, j in np.ndindex(len(boxes), *size):
        part = x[batch[r], :, top[r, i] : bottom[r, i], left[r, j] : right[r, j]]
        if not part.size:
            continue
        flat = np.where(np.isnan(part), -np.inf, part).reshape(len(part), -1)
        found = flat.argmax(1)
        height, width = np.divmod(found, part.shape[2])
        place = (top[r, i] + height) * x.shape[3] + left[r, j] + width
        usable = flat[channels, found] > -np.inf  # else nothing is larger than the start value
        y[r, :, i, j] = np.where(usable, flat[channels, found], np.finfo(x.dtype).min)
        where[r, :, i, j] = np.where(usable, place, -1)
    return y, where


def check_places(g: ndarray, places: ndarray, boxes: ndarray, shape: tuple[int, ...]) -> ndarray:
    """The image of each box, after a check that places point into planes of a shape."""
    batch = check_rois(shape, boxes)
    fits = g.shape == places.shape and g.ndim == 4 and g.shape[:2] == (len(boxes), shape[1])
    if not fits or places.dtype.kind != "i":
        raise ValueError(f"values {g.shape} and places {places.shape} do not fit {shape}")
    if places.size and not (places.min() >= -1 and places.max() < shape[2] * shape[3]):
        raise ValueError("a place lies outside of its plane")
    return batch


def roi_pool_grad(g: ndarray, places: ndarray, boxes: ndarray, shape: tuple[int, ...]) -> ndarray:
    """Values put back to the places that they were read from."""
    batch = check_places(g, places, boxes, shape)
    gx = np.zeros((shape[0], shape[1], shape[2] * shape[3] + 1), g.dtype)
    channels = np.arange(shape[1])[None, :, None, None]
    np.add.at(gx, (batch[:, None, None, None], channels, places), g)
    return gx[:, :, :-1].reshape(shape)


def roi_pool_gather(x: ndarray, places: ndarray, boxes: ndarray) -> ndarray:
    """The values at places: the transpose of ``roi_pool_grad``."""
    batch = check_rois(x.shape, boxes)
    flat = x.reshape(*x.shape[:2], -1)
    channels = np.arange(x.shape[1])[None, :, None, None]
    found = flat[batch[:, None, None, None], channels, np.maximum(places, 0)]
    return np.where(places < 0, x.dtype.type(0), found)
