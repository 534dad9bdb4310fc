"""Student's t law."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.chi2 import Chi2
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, unit_normal

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's law with ``df`` degrees of freedom."""

    arg_constraints = {
        "df": constraints.positive,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.real
    has_rsample = True
    _shaped = {"df": 0, "loc": 0, "scale": 0}

    def __init__(
        self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.shape, validate_args=validate_args)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return weft.where(self.df <= 1, weft.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        finite = self.scale.pow(2) * self.df / (self.df - 2)
        return weft.where(self.df <= 1, weft.nan, weft.where(self.df > 2, finite, weft.inf))

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        x = unit_normal(self._extended_shape(sample_shape), self.df)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * (x * weft.rsqrt(z / self.df))

    def _log_normaliser(self) -> Tensor:
        return (
            0.5 * self.df.log()
            + 0.5 * math.log(math.pi)
            + weft.lgamma(0.5 * self.df)
            - weft.lgamma(0.5 * (self.df + 1.0))
        )

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        y = (value - self.loc) / self.scale
        tail = 0.5 * (self.df + 1.0) * weft.log1p(y**2.0 / self.df)
        return -tail - self.scale.log() - self._log_normaliser()

    def entropy(self) -> Tensor:
        half = 0.5 * (self.df + 1)
        return (
            self.scale.log()
            + half * (weft.digamma(half) - weft.digamma(0.5 * self.df))
            + self._log_normaliser()
        )
