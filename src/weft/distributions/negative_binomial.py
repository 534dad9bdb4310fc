"""The negative binomial law."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import ProbsOrLogits
from weft.distributions.gamma import Gamma
from weft.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    one_of_probs_and_logits,
    probs_to_logits,
)

__all__ = ["NegativeBinomial"]


class NegativeBinomial(ProbsOrLogits):
    """The number of successes before ``total_count`` failures."""

    arg_constraints = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support = constraints.nonnegative_integer
    _shaped = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of_probs_and_logits(probs, logits)
        self.total_count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.type_as(given)
        self._take(*((None, given) if probs is None else (given, None)))
        super().__init__(given.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.total_count * weft.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / weft.sigmoid(-self.logits)

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    @lazy_property
    def _gamma(self) -> Gamma:
        # A Poisson law whose rate follows this law is negative binomial.
        rate = weft.exp(-self.logits)
        return Gamma(concentration=self.total_count, rate=rate, validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with weft.no_grad():
            return weft.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        unnormalised = self.total_count * F.logsigmoid(-self.logits)
        unnormalised = unnormalised + value * F.logsigmoid(self.logits)
        total = self.total_count + value
        normaliser = weft.lgamma(1.0 + value) + weft.lgamma(self.total_count) - weft.lgamma(total)
        # Without failures to wait for, 0 is certain.
        return unnormalised - normaliser.masked_fill(total == 0.0, 0.0)
