"""Interpolation of sequences and images: along each axis a few taps with weights for each result.

The taps and weights come from the references, so all modes are one loop here, and the gradient is
the same loop with the transposed taps.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, i64
from weft.native.codegen.jit import kernel
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, in_layout, is_last, made_like
from weft.references import resampling as reference

ndarray = np.ndarray
Ints = tuple[int, ...]
T = Any  # the type of the arrays in a call

# The longest line of an input that is kept at hand.
LONGEST = 8192
# Below so many elements of input and result NumPy is as fast.
SMALL = 2048
# Elements that are worth a thread.
GRAIN = 8192


@kernel
def pick_planes(
    x: Ptr[T], y: Ptr[T], rows: Ptr[i64], columns: Ptr[i64], h: i64, w: i64, oh: i64, ow: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        line = x + (u // oh * h + rows[u % oh]) * w
        out = y + u * ow
        for p in range(ow):
            out[p] = line[columns[p]]


@kernel
def resize_planes(
    x: Ptr[T], y: Ptr[T], rows: Ptr[i64], row_weights: Ptr[T], columns: Ptr[i64],
    column_weights: Ptr[T], h: i64, w: i64, oh: i64, ow: i64, depth: i64, wide: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    mixed = array(T, LONGEST)  # noqa: F821
    for u in range(lo, hi):
        plane = x + u // oh * h * w
        o = u % oh
        line = plane + rows[o] * w
        weight = row_weights[o]
        for i in range(w):
            mixed[i] = line[i] * weight
        for tap in range(1, depth):
            also = plane + rows[tap * oh + o] * w
            part = row_weights[tap * oh + o]
            for i in range(w):
                mixed[i] += also[i] * part
        out = y + u * ow
        if wide == 2:
            for p in range(ow):
                left = mixed[columns[p]] * column_weights[p]
                out[p] = left + mixed[columns[ow + p]] * column_weights[ow + p]
        else:
            for p in range(ow):
                out[p] = mixed[columns[p]] * column_weights[p]
            for tap in range(1, wide):
                for p in range(ow):
                    out[p] += mixed[columns[tap * ow + p]] * column_weights[tap * ow + p]


@kernel(unswitched=True)
def resize_rows(
    x: Ptr[T], y: Ptr[T], rows: Ptr[i64], row_weights: Ptr[T], columns: Ptr[i64],
    column_weights: Ptr[T], h: i64, w: i64, oh: i64, ow: i64, depth: i64, wide: i64, c: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        sample = x + u // oh * h * w * c
        o = u % oh
        for p in range(ow):
            out = y + (u * ow + p) * c
            if depth == 2 and wide == 2:
                top = sample + rows[o] * w * c
                low = sample + rows[oh + o] * w * c
                left = columns[p] * c
                right = columns[ow + p] * c
                w0 = row_weights[o] * column_weights[p]
                w1 = row_weights[o] * column_weights[ow + p]
                w2 = row_weights[oh + o] * column_weights[p]
                w3 = row_weights[oh + o] * column_weights[ow + p]
                for k in range(c):
                    first = top[left + k] * w0 + top[right + k] * w1
                    out[k] = first + low[left + k] * w2 + low[right + k] * w3
            else:
                for a in range(depth):
                    for b in range(wide):
                        weight = row_weights[a * oh + o] * column_weights[b * ow + p]
                        pixel = sample + (rows[a * oh + o] * w + columns[b * ow + p]) * c
                        if a + b == 0:
                            for k in range(c):
                                out[k] = pixel[k] * weight
                        else:
                            for k in range(c):
                                out[k] += pixel[k] * weight


class _Taps:
    """Places and weights along both axes, ready for the loops."""

    def __init__(self, taps: list[Any]) -> None:
        if len(taps) == 1:  # a sequence is an image of one line
            one = np.zeros((1, 1), np.int64), np.ones((1, 1), taps[0][1].dtype)
            taps = [one, *taps]
        self.arrays = [np.ascontiguousarray(part) for tap in taps for part in tap]
        self.depth, self.wide = len(self.arrays[0]), len(self.arrays[2])
        self.single = self.depth == self.wide == 1 and all(
            (a == 1).all() for a in self.arrays[1::2]
        )


@functools.lru_cache(256)
def _taps(spatial: Ints, size: Ints, dtype: np.dtype, back: bool, *options: Any) -> _Taps:
    found = reference.all_taps(spatial, size, dtype, *options)
    if back:
        pairs = zip(found, spatial, strict=True)
        found = [reference.transpose_taps(taps, n) for taps, n in pairs]
    return _Taps(found)


def _resized(x: ndarray, out: Ints, taps: _Taps) -> ndarray:
    kind = FLOATS[x.dtype]
    last = is_last(x)
    x = in_layout(x, last)
    n, c = x.shape[:2]
    y = made_like(x, (n, c, *out), last)
    (h, w), (oh, ow) = ((1,) * (2 - len(s)) + tuple(s) for s in (x.shape[2:], out))
    arrays = (x, y, *taps.arrays)
    buffers.constant(*taps.arrays)
    if last:
        units, work = n * oh, ow * c * taps.depth * taps.wide
        run, rest = resize_rows.get(kind), (taps.depth, taps.wide, c)
    elif taps.single:
        units, work = n * c * oh, ow
        run, rest = pick_planes.get(kind), ()
        arrays = (x, y, taps.arrays[0], taps.arrays[2])
    else:
        units, work = n * c * oh, w * taps.depth + ow * taps.wide
        run, rest = resize_planes.get(kind), (taps.depth, taps.wide)
    count = threads.how_many(units, max(1, GRAIN // work))
    run(*arrays, h, w, oh, ow, *rest, units, count)
    return y


def _by_taps(
    x: ndarray, spatial: Ints, size: Ints, back: bool, mode: str, align: bool, scales: Any,
    antialias: bool,
) -> ndarray | None:  # fmt: skip
    """An input resized from ``spatial`` to ``size``, or a gradient in the opposite direction."""
    out = spatial if back else size
    total = x.size + prod((*x.shape[:2], *out))
    if x.dtype not in FLOATS or x.ndim not in (3, 4) or buffers.small(total, SMALL):
        return None
    if not x.size or not prod(out) or x.shape[-1] > LONGEST:
        return None
    scales = None if scales is None else tuple(scales)
    return _resized(x, out, _taps(spatial, size, x.dtype, back, mode, align, scales, antialias))


def upsample(
    x: ndarray, size: Ints, mode: str, align_corners: bool, scales: Any, antialias: bool
) -> ndarray | None:
    """The spatial axes of (N, C, ...) resized."""
    how = mode, align_corners, scales, antialias
    return _by_taps(x, x.shape[2:], tuple(size), False, *how)


def upsample_back(
    x: ndarray, shape: Ints, mode: str, align_corners: bool, scales: Any, antialias: bool
) -> ndarray | None:
    """The transpose of ``upsample``, for a gradient and the shape of the input."""
    how = mode, align_corners, scales, antialias
    same = x.shape[:2] == tuple(shape[:2])
    return _by_taps(x, tuple(shape[2:]), x.shape[2:], True, *how) if same else None
