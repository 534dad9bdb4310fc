"""Activation functions of networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.ops import api
from weft.ops.arithmetic import where_op
from weft.ops.build import elementwise


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.zeros((), x.dtype))


# A select, not a product: an infinite gradient must not become NaN where y is 0.
relu_op = elementwise("relu", _relu, lambda t, y: where_op(y > 0, t, 0.0))
