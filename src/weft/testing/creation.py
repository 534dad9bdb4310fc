"""Random tensors for tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.tensor import Tensor
from weft.ops.casting import in_format
from weft.ops.creation import finish, sizes
from weft.ops.random import default_generator


def _range(d: dt.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds asked for, within what the dtype holds."""
    defaults: tuple[float, float]
    limits: tuple[float, float]
    if d.category == dt.dtype.BOOL:
        defaults, limits = (0, 2), (0, 2)
    elif d.category == dt.dtype.INTEGER:
        info = dt.iinfo(d)
        defaults, limits = (0 if info.min == 0 else -9, 10), (info.min, info.max)
    else:
        real = dt.finfo(d)
        defaults, limits = (-9, 9), (real.min, real.max)
    low = defaults[0] if low is None else low
    high = defaults[1] if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    return max(low, limits[0]), min(high, limits[1])


def make_tensor(
    *shape: Any,
    dtype: dt.dtype,
    device: Any = "cpu",
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """A tensor of uniform values in [low, high), from the default generator."""
    size = sizes(shape, "make_tensor")
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive"
        )
    low, high = _range(dtype, low, high)
    spread = noncontiguous and size and math.prod(size) > 1
    drawn = (*size[:-1], 2 * size[-1]) if spread else size
    d = dtype.np
    if dtype.category < dt.dtype.FLOAT:
        array = default_generator.randint(drawn, math.floor(low), math.ceil(high), d)
    else:
        array = default_generator.uniform(drawn, d, low, high)
    if exclude_zero:
        tiny = 1 if dtype.category < dt.dtype.FLOAT else dt.finfo(dtype).tiny
        array = np.where(array == 0, np.asarray(tiny, d), array)
    if spread:
        array = array[..., ::2]
    if memory_format is not None:
        array = in_format(array, memory_format)
    return finish(array, device, requires_grad)
