"""The relaxed law of a coin, which is differentiable."""

from __future__ import annotations

from typing import Any

from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import ProbsOrLogits
from weft.distributions.transformed_distribution import TransformedDistribution
from weft.distributions.transforms import SigmoidTransform
from weft.distributions.utils import (
    broadcast_all,
    clamp_probs,
    lazy_property,
    logits_to_probs,
    one_of_probs_and_logits,
    probs_to_logits,
    uniform,
)

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits):
    """The log-odds of a relaxed Bernoulli draw (Maddison et al., 2017; Jang et al., 2017)."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.real
    has_rsample = True
    _shaped = {"probs": 0, "logits": 0}

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self.temperature = temperature
        one_of_probs_and_logits(probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        self._take(*((None, given) if probs is None else (given, None)))
        super().__init__(given.shape, validate_args=validate_args)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new.temperature = self.temperature
        return new

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of 1."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return logits_to_probs(self.logits, is_binary=True)

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        u = clamp_probs(uniform(shape, probs))
        return (u.log() - (-u).log1p() + probs.log() - (-probs).log1p()) / self.temperature

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        difference = logits - value.mul(self.temperature)
        return self.temperature.log() + difference - 2 * difference.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A differentiable relaxation of a Bernoulli sample, sharper for lower temperatures."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.unit_interval
    has_rsample = True
    base_dist: LogitRelaxedBernoulli
    _shaped = {}

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = LogitRelaxedBernoulli(temperature, probs, logits)
        super().__init__(base, SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The log-odds of 1."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probability of 1."""
        return self.base_dist.probs
