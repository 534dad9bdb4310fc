"""The Cauchy law."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all

__all__ = ["Cauchy"]


class Cauchy(Distribution):
    """The Cauchy law: the ratio of two independent normals."""

    arg_constraints = {"loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _shaped = {"loc": 0, "scale": 0}

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return weft.full(self._extended_shape(), weft.nan, dtype=self.loc.dtype)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return weft.full(self._extended_shape(), weft.inf, dtype=self.loc.dtype)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        drawn = weft.empty(self._extended_shape(sample_shape), dtype=self.loc.dtype)
        return self.loc + drawn.cauchy_() * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        spread = ((value - self.loc) / self.scale) ** 2
        return -math.log(math.pi) - self.scale.log() - spread.log1p()

    def cdf(self, value: Tensor) -> Tensor:
        self._checked(value)
        return weft.atan((value - self.loc) / self.scale) / math.pi + 0.5

    def icdf(self, value: Tensor) -> Tensor:
        return weft.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Tensor:
        return math.log(4 * math.pi) + self.scale.log()
