"""The continuous Bernoulli law."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as F
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import ProbsOrLogits
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of_probs_and_logits,
    probs_to_logits,
    refuse,
    uniform,
)

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """The law on [0, 1] with a density in proportion to ``p**x * (1 - p)**(1 - x)``.

    Near p = 1/2, between ``lims``, where the closed forms divide zero by zero, Taylor series are
    used.
    """

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _shaped = {"probs": 0, "logits": 0}

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        one_of_probs_and_logits(probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        if probs is None:
            self._take(None, given)
        else:
            if validate_args is not None and not self.arg_constraints["probs"].check(given).all():
                refuse("The parameter probs has invalid values")
            self._take(clamp_probs(given), None)
        self._lims = lims
        super().__init__(given.shape, validate_args=validate_args)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new._lims = self._lims
        return new

    def _outside_unstable_region(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _by_region(self, closed: Any, series: Any) -> Tensor:
        """A closed form of the probability, or a series in its distance from one half."""
        outside = self._outside_unstable_region()
        safe = weft.where(outside, self.probs, self._lims[0])
        return weft.where(outside, closed(safe), series(self.probs - 0.5))

    def _cont_bern_log_norm(self) -> Tensor:
        """The logarithm of what the density has to be multiplied by."""
        return self._by_region(
            lambda p: weft.log(weft.abs(weft.log1p(-p) - p.log())) - (1 - 2 * p).abs().log(),
            lambda x: math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x**2) * x**2,
        )

    @property
    def mean(self) -> Tensor:
        return self._by_region(
            lambda p: p / (2 * p - 1) + 1 / (weft.log1p(-p) - p.log()),
            lambda x: 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x**2) * x,
        )

    @property
    def variance(self) -> Tensor:
        return self._by_region(
            lambda p: p * (p - 1) / (1 - 2 * p) ** 2 + 1 / (weft.log1p(-p) - p.log()) ** 2,
            lambda x: 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x**2) * x**2,
        )

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter p."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        return self.icdf(uniform(self._extended_shape(sample_shape), self.probs))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        cross = F.binary_cross_entropy_with_logits(logits, value, reduction="none")
        return self._cont_bern_log_norm() - cross

    def cdf(self, value: Tensor) -> Tensor:
        self._checked(value)
        level = self._by_region(
            lambda p: (p**value * (1 - p) ** (1 - value) + p - 1) / (2 * p - 1),
            lambda x: value,
        )
        level = weft.where(value <= 0.0, 0.0, level)
        return weft.where(value >= 1.0, 1.0, level)

    def icdf(self, value: Tensor) -> Tensor:
        def closed(p: Tensor) -> Tensor:
            log_fail = weft.log1p(-p)
            return (weft.log1p(-p + value * (2 * p - 1)) - log_fail) / (p.log() - log_fail)

        return self._by_region(closed, lambda x: value)

    def entropy(self) -> Tensor:
        log_fail = weft.log1p(-self.probs)
        slope = log_fail - self.probs.log()
        return self.mean * slope - self._cont_bern_log_norm() - log_fail

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        low, high = self._lims[0] - 0.5, self._lims[1] - 0.5
        outside = (x <= low) | (x > high)
        safe = weft.where(outside, x, low)
        closed = weft.log(weft.abs(weft.exp(safe) - 1)) - weft.log(weft.abs(safe))
        series = 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0
        return weft.where(outside, closed, series)
