"""The generalised Pareto law."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, uniform

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Distribution):
    """The law of what exceeds a threshold; a concentration of 0 gives the exponential law."""

    arg_constraints = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample = True
    _shaped = {"loc": 0, "scale": 0, "concentration": 0}

    def __init__(
        self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None
    ) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        end = self.loc - self.scale / self.concentration
        return constraints.interval(self.loc, weft.where(self.concentration < 0, end, weft.inf))

    def _z(self, x: Tensor) -> Tensor:
        return (x - self.loc) / self.scale

    def _split(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is zero, and the concentration with 1 in these places."""
        flat = weft.isclose(self.concentration, weft.zeros_like(self.concentration))
        return flat, weft.where(flat, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        return self.icdf(uniform(self._extended_shape(sample_shape), self.loc))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        z = self._z(value)
        flat, c = self._split()
        power = 1 / c + 1
        tail = weft.where(power == 0, 0.0, power * weft.log1p(c * z))
        return -self.scale.log() - weft.where(flat, z, tail)

    def log_survival_function(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a larger draw."""
        self._checked(value)
        z = self._z(value)
        flat, c = self._split()
        return weft.where(flat, -z, -weft.log1p(c * z) / c)

    def log_cdf(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a draw up to a value."""
        return weft.log1p(-weft.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return weft.exp(self.log_cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        flat, c = self._split()
        above = weft.log1p(-value)
        return self.loc + self.scale * weft.where(flat, -above, weft.expm1(-c * above) / c)

    @property
    def mean(self) -> Tensor:
        finite = self.concentration < 1
        c = weft.where(finite, self.concentration, 0.5)
        return weft.where(finite, self.loc + self.scale / (1 - c), weft.inf)

    @property
    def variance(self) -> Tensor:
        finite = self.concentration < 0.5
        c = weft.where(finite, self.concentration, 0.25)
        spread = self.scale**2 / ((1 - c) ** 2 * (1 - 2 * c))
        return weft.where(finite, spread, weft.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    def entropy(self) -> Tensor:
        return weft.log(self.scale) + self.concentration + 1
