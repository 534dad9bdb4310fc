"""Convolution and its two adjoints by oneDNN, for float32 arrays of one to three dimensions.

An array is *plain* (NCHW in C order) or *last* (the same shape over memory in NHWC order), and the
result follows its input. Every function gives None for what oneDNN can't do.
"""

from __future__ import annotations

import numpy as np

from weft.native.codegen.jit import pointer
from weft.native.memory.layout import channels_last, in_layout, made_like, plain
from weft.native.onednn.conv_program import FORWARD, INPUT, LAST, PLAIN, WEIGHT, Case, build
from weft.native.onednn.primitive import Ints, Programs

Array = np.ndarray

_FLOAT32 = np.dtype(np.float32)

_programs = Programs()


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
    """Cross-correlate (N, C, *S) with (O, C/groups, *K), and add a bias; ``extent`` may leave out
    the last places.
    """
    if extent is None:
        extent = _extent(x.shape, w.shape, stride, padding, dilation)
    y_shape = (x.shape[0], w.shape[0], *extent)
    if not _fits(x, w, x.shape, w.shape, y_shape, groups) or not _adds(bias, w.shape[0]):
        return None
    layout, w_layout = _layout(x), _layout(w)
    window = (stride, padding, dilation, groups)
    case = Case(FORWARD, x.shape, w.shape, y_shape, layout, w_layout, bias is not None, *window)
    return _run(case, y_shape, in_layout(x, layout == LAST), in_layout(w, w_layout == LAST), bias)


def convolution_input_grad(
    g: Array,
    w: Array,
    input_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    bias: Array | None = None,
) -> Array | None:
    """Apply the transpose of the convolution as a map of its input, and add a bias."""
    x_shape = tuple(input_shape)
    if not _fits(g, w, x_shape, w.shape, g.shape, groups) or not _adds(bias, x_shape[1]):
        return None
    layout, w_layout = _layout(g), _layout(w)
    window = (stride, padding, dilation, groups)
    case = Case(INPUT, x_shape, w.shape, g.shape, layout, w_layout, bias is not None, *window)
    return _run(case, x_shape, in_layout(g, layout == LAST), in_layout(w, w_layout == LAST), bias)


def convolution_weight_grad(
    g: Array,
    x: Array,
    weight_shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array | None:
    """Apply the transpose of the convolution as a map of its weight, which is plain."""
    w_shape = tuple(weight_shape)
    if not _fits(g, x, x.shape, w_shape, g.shape, groups):
        return None
    layout = LAST if LAST in (_layout(g), _layout(x)) else PLAIN
    window = (stride, padding, dilation, groups)
    case = Case(WEIGHT, x.shape, w_shape, g.shape, layout, PLAIN, False, *window)
    return _run(case, w_shape, in_layout(g, layout == LAST), in_layout(x, layout == LAST), None)


def _run(case: Case, shape: Ints, first: Array, second: Array, bias: Array | None) -> Array | None:
    program = _programs.find(case, build, case)
    if program is None:
        return None
    layout = case.w_layout if case.kind == WEIGHT else case.layout
    out = made_like(first, shape, layout == LAST)
    arrays = (first, second, out) if bias is None else (first, second, out, plain(bias))
    return out if program.run(*map(pointer, arrays)) else None


def _extent(x: Ints, w: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Ints:
    axes = zip(x[2:], w[2:], stride, padding, dilation, strict=False)
    return tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in axes)


def _fits(a: Array, b: Array, x: Ints, w: Ints, y: Ints, groups: int) -> bool:
    """Whether arrays and sizes are supported; the reference raises the errors for others."""
    return (
        a.dtype == _FLOAT32
        and b.dtype == _FLOAT32
        and 3 <= len(x) <= 5
        and len(x) == len(w) == len(y)
        and x[0] == y[0]
        and x[1] == w[1] * groups
        and y[1] == w[0]
        and w[0] % groups == 0
        and min(*x, *w, *y) > 0
    )


def _adds(bias: Array | None, channels: int) -> bool:
    return bias is None or (bias.dtype == _FLOAT32 and bias.shape == (channels,))


def _layout(a: Array) -> str:
    """The layout that an array has, or is nearest to."""
    row_major, last, steps = a.flags.c_contiguous, channels_last(a).flags.c_contiguous, a.strides
    if row_major and last:  # one channel or one pixel: only the strides show the layout
        return LAST if steps[1] < max(steps[2:]) else PLAIN
    if row_major or last:
        return LAST if last else PLAIN
    spatial = [step for size, step in zip(a.shape[2:], steps[2:], strict=True) if size > 1]
    return LAST if 0 < steps[1] < min(spatial, default=0) else PLAIN
