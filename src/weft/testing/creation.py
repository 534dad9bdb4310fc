"""Random tensors for tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators.casting import in_format
from weft.operators.creation import finish, sizes
from weft.operators.random import default_generator


def _range(d: dt.dtype, low: float | None, high: float | None) -> tuple[float, float]:
    """The bounds asked for, within what the dtype holds."""
    defaults: tuple[float, float]
    limits: tuple[float, float]
    if d.category == dt.dtype.BOOL:
        defaults, limits = (0, 2), (0, 2)
    elif d.category == dt.dtype.INTEGER:
        info = dt.iinfo(d)
        # The upper limit is exclusive; that of int64 would not fit an int64 itself.
        end = info.max if d is dt.int64 else info.max + 1
        defaults, limits = (0 if info.min == 0 else -9, 10), (info.min, end)
    else:
        real = dt.finfo(d)
        defaults, limits = (-9, 9), (real.min, real.max)
    low = defaults[0] if low is None else low
    high = defaults[1] if high is None else high
    if math.isnan(low) or math.isnan(high):
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and d.category >= dt.dtype.FLOAT:
        errors.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is "
            "deprecated since 2.1 and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < limits[0] or low >= limits[1]:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), but {d} only "
            f"supports [{limits[0]}, {limits[1]})"
        )
    first, last = limits
    return min(max(low, first), last), min(max(high, first), last)


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
        array = default_generator.randint(drawn, math.ceil(low), math.ceil(high), d)
    elif high - low >= dt.finfo(dtype).max:  # the width itself would overflow
        array = default_generator.uniform(drawn, d, low / 2, high / 2) * d.type(2)
    else:
        array = default_generator.uniform(drawn, d, low, high)
    if exclude_zero:
        tiny = 1 if dtype.category < dt.dtype.FLOAT else dt.finfo(dtype).tiny
        array = np.where(array == 0, np.asarray(tiny, d), array)
    if spread:
        array = array[..., 1::2]
    if memory_format is not None:
        array = in_format(array, memory_format)
    return finish(array, device, requires_grad)
