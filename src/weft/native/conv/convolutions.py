"""The three convolution ops, with the arguments that the ops have: by oneDNN or by loops.

Images with many channels and filters of two or three times the stride use Winograd convolutions
(``winograd``). Of the others, loops handle what oneDNN does not support (float64, or everything if
the library is missing), and take precedence where they were measured to be faster: groups of few
channels, gradients of wide weights, and transposes of strided 1x1 convolutions with AVX-512.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from weft.native import onednn, threads
from weft.native.codegen.source import GRAIN
from weft.native.gemm.blocks import block, has_fma
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, channels_last, is_last, plain
from weft.native.once import module, once
from weft.references.convolution import check_bias, check_fit, output_extent

Array = np.ndarray
Ints = tuple[int, ...]
FEW = 4  # channels of a group in which loops are faster than oneDNN
DENSE = 32  # channels from which a weight's gradient is, for windows side by side
BROAD = 128  # and for others
WEIGHTS = 1 << 17  # elements of such a weight at least
# From where on multiplying less pays: channels on both sides for windows of two and of three times
# the stride (more where tiles stay small for lack of FMA), tiles of two by two places, and products
# of channels and tiles.
MANY, MANY_UNFUSED = {2: 32, 3: 16}, {2: 64, 3: 32}
TILES = 32
TILED = 1 << 20
WIDE = 16  # lanes of AVX-512

_allowed = True


def winograd_allowed() -> bool:
    """Whether Winograd convolutions may be used; their rounding errors are relative to a tile."""
    return _allowed


def allow_winograd(on: bool) -> None:
    """Allow Winograd convolutions, or have every product computed directly."""
    global _allowed
    _allowed = bool(on)


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
    """A convolution, possibly cropped to ``extent``."""
    out = output_extent(x.shape[2:], w.shape[2:], stride, padding, dilation)
    places = out if extent is None else extent
    check_fit((len(x), len(w), *places), x.shape, w.shape, stride, padding, dilation, groups)
    check_bias(bias, len(w))

    def tiled() -> Any:
        return _winograd().convolution(x, w, bias, stride, padding, extent)

    def by_library() -> Any:
        return onednn.convolution(x, w, bias, stride, padding, dilation, groups, extent)

    def by_loops() -> Any:
        return _loops().convolution(x, w, bias, stride, padding, dilation, groups, extent)

    loops_first = _thin(w.shape, groups) and x.flags.c_contiguous
    less = _tiled(x, w.shape, stride, dilation, groups, extent)
    return _first(tiled if less else None, by_loops, by_library, loops_first)


def transposed(
    x: Array,
    w: Array,
    bias: Array | None,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Array | None:
    """The transpose of a convolution of that input shape."""
    check_fit(x.shape, tuple(shape), w.shape, stride, padding, dilation, groups)
    check_bias(bias, shape[1])

    def tiled() -> Any:
        return _winograd().transposed(x, w, bias, tuple(shape), stride, padding)

    def by_library() -> Any:
        return onednn.convolution_input_grad(x, w, shape, stride, padding, dilation, groups, bias)

    def by_loops() -> Any:
        return _loops().transposed(x, w, bias, tuple(shape), stride, padding, dilation, groups)

    loops_first = x.flags.c_contiguous and (
        _thin(w.shape, groups) or _has_gaps(w.shape, stride, groups)
    )
    less = _tiled(x, w.shape, stride, dilation, groups, x.shape[2:])
    return _first(tiled if less else None, by_loops, by_library, loops_first)


def weight_grad(
    g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """The gradient of a convolution's weight."""
    check_fit(g.shape, x.shape, tuple(shape), stride, padding, dilation, groups)

    def tiled() -> Any:
        return _winograd().weight_grad(g, x, tuple(shape), stride, padding)

    def by_library() -> Any:
        return onednn.convolution_weight_grad(g, x, shape, stride, padding, dilation, groups)

    def by_loops() -> Any:
        return _loops().weight_grad(g, x, tuple(shape), stride, padding, dilation, groups)

    loops_first = _loops_are_faster(g, x, shape, stride, groups)
    less = _tiled(x, shape, stride, dilation, groups, g.shape[2:]) and g.flags.c_contiguous
    return _first(tiled if less else None, by_loops, by_library, loops_first)


def require_finite(a: Array) -> bool:
    """Whether an array holds no infinity or NaN; a plan gives its run up where it does."""
    a = channels_last(a) if is_last(a) else plain(a)
    bad = buffers.zeros(1, np.dtype(np.int64))
    look = _loops().loops.find_not_finite.get(FLOATS[a.dtype])
    look(a, bad, a.size, threads.how_many(a.size, GRAIN))
    return not buffers.wrong(bad)


def _first(
    tiled: Callable | None, by_loops: Callable, by_library: Callable, loops_first: bool
) -> Array | None:
    """The result of whichever takes the case, in the order of their speed."""
    others = (by_loops, by_library) if loops_first else (by_library, by_loops)
    for implementation in others if tiled is None else (tiled, *others):
        y = implementation()
        if y is not None:
            return y
    return None


@once
def _loops() -> ModuleType:
    return module("weft.native.conv.windowed")  # not where oneDNN does it all


@once
def _winograd() -> ModuleType:
    return module("weft.native.conv.winograd")


def _tiled(
    x: Array, w: Ints, stride: Ints, dilation: Ints, groups: int, places: Ints | None
) -> bool:
    """Whether a convolution is of a kind that multiplying less makes faster."""
    if len(w) != 4 or groups != 1 or x.dtype != np.float32 or not _allowed:
        return False
    many = MANY if has_fma() else MANY_UNFUSED
    by, least = stride[0], many.get(w[2] // stride[0], w[1] + 1)
    if stride[1] != by or w[2] != w[3] or w[2] % by or max(dilation) > 1 or min(w[:2]) < least:
        return False
    high, wide = (n // by for n in x.shape[2:]) if places is None else places
    tiles = len(x) * ((high + 1) // 2) * ((wide + 1) // 2)
    return tiles >= TILES and tiles * w[0] * w[1] * by * by >= TILED and x.flags.c_contiguous


def _thin(shape: Ints, groups: int) -> bool:
    """Whether groups are of few channels; single planes of images oneDNN does well."""
    if groups <= 1 or max(shape[1], shape[0] // groups) > FEW:
        return False
    return len(shape) != 4 or shape[0] > groups or shape[1] > 1


def _has_gaps(shape: Ints, stride: Ints, groups: int) -> bool:
    """Whether windows are single elements with gaps between them: oneDNN's code for such
    transposes takes twice the time with AVX-512 that it takes with AVX2.
    """
    single = groups == 1 and prod(shape[2:]) == 1 and max(stride) > 1
    return single and block()[0] == WIDE


def _loops_are_faster(g: Array, x: Array, shape: Ints, stride: Ints, groups: int) -> bool:
    if not (g.flags.c_contiguous and x.flags.c_contiguous):
        return False
    if groups > 1:
        planes = shape[0] == groups and shape[1] == 1
        return _thin(shape, groups) or (planes and prod(shape[2:]) > 9)
    channels = min(shape[:2])
    broad = channels >= BROAD and prod(shape) >= WEIGHTS
    dense = channels >= DENSE and max(stride) == 1
    return prod(shape[2:]) > 1 and (broad or dense or len(shape) == 5)
