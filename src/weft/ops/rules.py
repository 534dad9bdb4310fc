"""Shape rules that several ops share: see ``weft.core.shapes``."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.shapes import Shape, ShapeDtype, broadcast
from weft.core.symbols import Dim, floor_divide, is_symbolic, product
from weft.native.layout import in_order, is_dense, order_of


def same(x: ShapeDtype) -> Shape:
    """The shape and dtype of the first input."""
    return x.shape


def preserved(x: ShapeDtype, dtype: Any = None) -> ShapeDtype:
    """The shape of an input and, without gaps, the order of its dimensions in memory."""
    steps = x.steps
    if steps is not None and not is_symbolic(x.shape) and not is_dense(x.shape, steps, 1):
        steps = in_order(x.shape, order_of(x.shape, (steps,)))
    return ShapeDtype(x.shape, x.dtype if dtype is None else dtype, steps)


def expanded(x: ShapeDtype, shape: Shape, dtype: Any = None) -> ShapeDtype:
    """What is repeated to a shape, which it must fit."""
    if broadcast(x.shape, shape) != tuple(shape):
        raise RuntimeError(
            f"The size of tensor a {list(shape)} must match the size of tensor b "
            f"{list(x.shape)}: it can't be broadcast into it"
        )
    return ShapeDtype(shape, x.dtype if dtype is None else dtype)
