"""Functions of one number, applied to every element."""

from __future__ import annotations

import numpy as np

from weft.ops import api
from weft.ops.build import elementwise

exp_op = elementwise("exp", np.exp, lambda t, y: t * y, promote="float")
log_op = elementwise("log", np.log, lambda t, x: t / x, promote="float", domain=(0.1, 3.0))
sqrt_op = elementwise(
    "sqrt", np.sqrt, lambda t, y: t / (2.0 * y), promote="float", domain=(0.1, 3.0)
)
sin_op = elementwise("sin", np.sin, lambda t, x: t * cos_op(x), promote="float")
cos_op = elementwise("cos", np.cos, lambda t, x: -t * sin_op(x), promote="float")
tanh_op = elementwise("tanh", np.tanh, lambda t, y: t * (1.0 - y * y), promote="float")


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.zeros((), x.dtype))


def _relu_rule(t, y):  # type: ignore[no-untyped-def]
    # A select, not a product: an infinite gradient must not become NaN where y is 0.
    from weft.ops.arithmetic import where_op

    return where_op(y > 0, t, 0.0)


relu_op = elementwise("relu", _relu, _relu_rule, domain=(-2.0, 2.0))
