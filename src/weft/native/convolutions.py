"""The three convolution ops, with the arguments that the ops have: by oneDNN or by loops.

Loops do what oneDNN does not take (float64, or all where there is no library), and come first where
they were measured to be faster: groups of few channels, and gradients of broad weights.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from types import ModuleType
from typing import Any

import numpy as np

from weft.native import onednn

Array = np.ndarray
Ints = tuple[int, ...]
FEW = 4  # channels of a group in which loops are faster than oneDNN
DENSE = 32  # channels from which a weight's gradient is, for windows side by side
BROAD = 128  # and for others
WEIGHTS = 1 << 17  # elements of such a weight at least


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
    """Convolution, of which ``extent`` may leave out the last places."""

    def by_library() -> Any:
        y: Any = onednn.convolution(x, w, bias, stride, padding, dilation, groups)
        if y is None or extent is None or y.shape[2:] == extent:
            return y
        return np.ascontiguousarray(y[(..., *(slice(n) for n in extent))])

    def by_loops() -> Any:
        return _loops().convolution(x, w, bias, stride, padding, dilation, groups, extent)

    return _first(_thin(w.shape, groups) and x.flags.c_contiguous, by_loops, by_library)


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

    def by_library() -> Any:
        return onednn.convolution_input_grad(x, w, shape, stride, padding, dilation, groups, bias)

    def by_loops() -> Any:
        return _loops().transposed(x, w, bias, tuple(shape), stride, padding, dilation, groups)

    return _first(_thin(w.shape, groups) and x.flags.c_contiguous, by_loops, by_library)


def weight_grad(
    g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """The gradient of a convolution's weight."""

    def by_library() -> Any:
        return onednn.convolution_weight_grad(g, x, shape, stride, padding, dilation, groups)

    def by_loops() -> Any:
        return _loops().weight_grad(g, x, tuple(shape), stride, padding, dilation, groups)

    return _first(_loops_are_faster(g, x, shape, stride, groups), by_loops, by_library)


def _first(loops_first: bool, by_loops: Callable, by_library: Callable) -> Array | None:
    """The result of whichever takes the case, in the order of their speed."""
    one, other = (by_loops, by_library) if loops_first else (by_library, by_loops)
    y = one()
    return other() if y is None else y


def _loops() -> ModuleType:
    from weft.native import windowed  # not where oneDNN does it all

    return windowed


def _thin(shape: Ints, groups: int) -> bool:
    """Whether groups are of few channels; single planes of images oneDNN does well."""
    if groups <= 1 or max(shape[1], shape[0] // groups) > FEW:
        return False
    return len(shape) != 4 or shape[0] > groups or shape[1] > 1


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
