"""The binomial law."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import ProbsOrLogits
from weft.distributions.utils import (
    broadcast_all,
    lazy_property,
    logits_to_probs,
    one_of_probs_and_logits,
    probs_to_logits,
    refuse,
)

__all__ = ["Binomial"]


class Binomial(ProbsOrLogits):
    """The number of successes in ``total_count`` trials."""

    arg_constraints = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support = True
    _shaped = {"total_count": 0, "probs": 0, "logits": 0}

    def __init__(
        self,
        total_count: Any = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        one_of_probs_and_logits(probs, logits)
        self.total_count, given = broadcast_all(total_count, logits if probs is None else probs)
        self.total_count = self.total_count.type_as(given)
        self._take(*((None, given) if probs is None else (given, None)))
        super().__init__(given.shape, validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with weft.no_grad():
            return weft.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        ways = (
            weft.lgamma(self.total_count + 1)
            - weft.lgamma(value + 1)
            - weft.lgamma(self.total_count - value + 1)
        )
        # n log(1 + exp(logits)), written so that nothing overflows for large logits.
        positive = (self.logits + self.logits.abs()) / 2
        normaliser = self.total_count * (positive + weft.log1p(weft.exp(-self.logits.abs())))
        return value * self.logits + ways - normaliser

    def _one_count(self, function: str) -> int:
        count = int(self.total_count.max())
        if self.total_count.min() != count:
            refuse(f"Inhomogeneous total count not supported by `{function}`.", NotImplementedError)
        return count

    def entropy(self) -> Tensor:
        self._one_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(weft.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        count = self._one_count("enumerate_support")
        values = weft.arange(1 + count, dtype=self._param.dtype)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
