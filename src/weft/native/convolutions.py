"""The three convolution ops by oneDNN, with the arguments that the ops have."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.native import onednn

Array = np.ndarray
Ints = tuple[int, ...]


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
    return onednn.convolution_weight_grad(g, x, shape, stride, padding, dilation, groups)
