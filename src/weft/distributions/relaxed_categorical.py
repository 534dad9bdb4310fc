"""The relaxed law of a choice, which is differentiable."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.categorical import Categorical
from weft.distributions.distribution import Distribution
from weft.distributions.transformed_distribution import TransformedDistribution
from weft.distributions.transforms import ExpTransform
from weft.distributions.utils import broadcast_all, clamp_probs, uniform

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a relaxed choice (Maddison et al., 2017; Jang et al., 2017)."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    # The exponentials form a point of the simplex; only that they are real is checked.
    support = constraints.real_vector
    has_rsample = True

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(ExpRelaxedCategorical, _instance)
        new.temperature = self.temperature
        new._categorical = self._categorical.expand(batch_shape)
        new._batch_shape, new._event_shape = Size(batch_shape), self._event_shape
        new._validate_args = self._validate_args
        return new

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        u = clamp_probs(uniform(self._extended_shape(sample_shape), self.logits))
        scores = (self.logits - (-(u.log())).log()) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._categorical._num_events
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = weft.as_tensor(self.temperature)
        scale = weft.full_like(temperature, float(k)).lgamma() + temperature.log().mul(k - 1)
        score = logits - value.mul(temperature)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + scale


class RelaxedOneHotCategorical(TransformedDistribution):
    """A differentiable relaxation of a one-hot sample, sharper for lower temperatures."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support = constraints.simplex
    has_rsample = True
    base_dist: ExpRelaxedCategorical
    _shaped = {}

    def __init__(
        self,
        temperature: Any,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Tensor:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self.base_dist.probs
