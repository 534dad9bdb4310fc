"""The gamma law."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import broadcast_all

__all__ = ["Gamma"]


class Gamma(ExponentialFamily):
    """The gamma law with a concentration and a rate; draws are differentiable by both."""

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0
    _shaped = {"concentration": 0, "rate": 0}

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = weft._standard_gamma(self.concentration.expand(shape))
        value = drawn / self.rate.expand(shape)
        # Keeps draws off zero, where the density may be infinite, without touching the gradient.
        value.detach().clamp_(min=weft.finfo(value.dtype).tiny)
        return value

    def log_prob(self, value: Tensor) -> Tensor:
        value = weft.as_tensor(value, dtype=self.rate.dtype)
        self._checked(value)
        return (
            weft.xlogy(self.concentration, self.rate)
            + weft.xlogy(self.concentration - 1, value)
            - self.rate * value
            - weft.lgamma(self.concentration)
        )

    def entropy(self) -> Tensor:
        return (
            self.concentration
            - weft.log(self.rate)
            + weft.lgamma(self.concentration)
            + (1.0 - self.concentration) * weft.digamma(self.concentration)
        )

    def cdf(self, value: Tensor) -> Tensor:
        self._checked(value)
        return weft.special.gammainc(self.concentration, self.rate * value)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return weft.lgamma(x + 1) + (x + 1) * weft.log(-y.reciprocal())
