"""The three convolution ops by oneDNN, with the arguments that the ops have."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.native import gemm, onednn

Array = np.ndarray
Ints = tuple[int, ...]


# With so few places in the result, and so large a weight, one product is faster than oneDNN.
PLACES, WEIGHTS = 768, 1 << 19


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
    y: Any = onednn.convolution(x, w, bias, stride, padding, dilation, groups)
    if y is None or extent is None or y.shape[2:] == extent:
        return y
    return np.ascontiguousarray(y[(..., *(slice(n) for n in extent))])


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
    return onednn.convolution_input_grad(x, w, shape, stride, padding, dilation, groups, bias)


def weight_grad(
    g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array | None:
    """The gradient of a convolution's weight."""
    if _few_places(g, x, shape, groups):
        return _by_rows(g, x, shape, stride, padding, dilation)
    return onednn.convolution_weight_grad(g, x, shape, stride, padding, dilation, groups)


def _few_places(g: Array, x: Array, shape: Ints, groups: int) -> bool:
    return (
        g.ndim == 4
        and groups == 1
        and g.dtype is gemm.F32
        and x.dtype is gemm.F32
        and 0 < g.size // max(g.shape[1], 1) <= PLACES
        and prod(shape) >= WEIGHTS
        and prod(shape[2:]) > 1
    )


def _by_rows(g: Array, x: Array, shape: Ints, stride: Ints, padding: Ints, dilation: Ints) -> Array:
    """The same as a product with the windows laid out as rows."""
    from weft.native.loops import windows

    seen = windows.rows(x, shape[2:], stride, padding, dilation, g.shape[2:])
    left = g.transpose(1, 0, 2, 3).reshape(g.shape[1], -1)
    return gemm.matmul(left, seen, np.empty((shape[0], seen.shape[1]), gemm.F32)).reshape(shape)
