"""The half-Cauchy law."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.cauchy import Cauchy
from weft.distributions.transformed_distribution import TransformedDistribution
from weft.distributions.transforms import AbsTransform

__all__ = ["HalfCauchy"]


class HalfCauchy(TransformedDistribution):
    """The law of the size of a Cauchy value with location 0."""

    arg_constraints = {"scale": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    base_dist: Cauchy
    _shaped = {}

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        base = Cauchy(0, scale, validate_args=False)
        super().__init__(base, AbsTransform(), validate_args=validate_args)

    @property
    def scale(self) -> Tensor:
        """The scale of the Cauchy law."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return weft.full(self._extended_shape(), weft.inf, dtype=self.scale.dtype)

    @property
    def mode(self) -> Tensor:
        return weft.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        value = weft.as_tensor(value, dtype=self.scale.dtype)
        log_prob = self.base_dist.log_prob(value) + math.log(2)
        return weft.where(value >= 0, log_prob, -weft.inf)

    def cdf(self, value: Tensor) -> Tensor:
        self._checked(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, value: Tensor) -> Tensor:
        return self.base_dist.icdf((value + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)
