"""The windows of a convolution as the rows of a matrix."""

from __future__ import annotations

import numpy as np

from weft.native import threads
from weft.native.compiler import Ptr, T, i64
from weft.native.jit import kernel, pointer
from weft.native.layout import FLOATS, plain

Ints = tuple[int, ...]
GRAIN = 16384  # elements that are worth a thread


@kernel
def unfold(
    x: Ptr[T],
    to: Ptr[T],
    channels: i64,
    height: i64,
    width: i64,
    kh: i64,
    kw: i64,
    sh: i64,
    sw: i64,
    ph: i64,
    pw: i64,
    dh: i64,
    dw: i64,
    oh: i64,
    ow: i64,
    lo: i64,
    hi: i64,
):
    for row in range(lo, hi):
        left = (row % ow) * sw - pw
        top = (row // ow % oh) * sh - ph
        sample = x + (row // (ow * oh)) * channels * height * width
        out = to + row * channels * kh * kw
        for c in range(channels):
            for i in range(kh):
                y = top + i * dh
                line = sample + (c * height + y) * width
                for j in range(kw):
                    z = left + j * dw
                    place = (c * kh + i) * kw + j
                    if y >= 0 and y < height and z >= 0 and z < width:
                        out[place] = line[z]
                    else:
                        out[place] = 0.0


def rows(
    x: np.ndarray, size: Ints, stride: Ints, padding: Ints, dilation: Ints, extent: Ints
) -> np.ndarray:
    """For each place of the result one row with what its window sees, all channels in turn."""
    n, channels, height, width = x.shape
    x = plain(x)
    count, length = n * extent[0] * extent[1], channels * size[0] * size[1]
    to = np.empty((count, length), x.dtype)
    numbers = (channels, height, width, *size, *stride, *padding, *dilation, *extent)
    share = threads.how_many(count, max(1, GRAIN // max(length, 1)))
    unfold.get(FLOATS[x.dtype])(pointer(x), pointer(to), *numbers, count, share)
    return to
