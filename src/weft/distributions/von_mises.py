"""The von Mises law."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, lazy_property

__all__ = ["VonMises"]


class VonMises(Distribution):
    """A law of angles: normal, wound around the circle."""

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    _shaped = {"loc": 0, "concentration": 0}

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, validate_args=validate_args)

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        k = self.concentration
        log_bessel = k + weft.special.i0e(k).log()
        return k * weft.cos(value - self.loc) - math.log(2 * math.pi) - log_bessel

    @lazy_property
    def _proposal_r(self) -> Tensor:
        """The parameter of the wrapped Cauchy law that draws are proposed by."""
        k = self.concentration.double()
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        # For small concentrations the difference above has no digits left.
        return weft.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        """Draw by rejection (Best and Fisher, 1979), in double precision."""
        shape = self._extended_shape(sample_shape)
        with weft.no_grad():
            loc, k = self.loc.double(), self.concentration.double().expand(shape)
            r = self._proposal_r.detach().expand(shape)
            x = weft.zeros(shape, dtype=weft.float64)
            done = weft.zeros(shape, dtype=weft.bool)
            while not done.all():
                u1, u2, u3 = weft.rand((3, *shape), dtype=weft.float64).unbind()
                z = weft.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                x = weft.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                done = done | accept
            return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Tensor:
        """The mean of the angle."""
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        """The circular variance."""
        return 1 - weft.special.i1e(self.concentration) / weft.special.i0e(self.concentration)
