"""The law of a choice among several."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import ProbsOrLogits
from weft.distributions.utils import (
    lazy_property,
    logits_to_probs,
    one_of_probs_and_logits,
    probs_to_logits,
    refuse,
)

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """An index, drawn in proportion to ``probs`` (or to the exponentials of ``logits``).

    >>> Categorical(weft.tensor([0.25, 0.75])).log_prob(weft.tensor(1)).exp()
    tensor(0.7500)
    """

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _shaped = {"probs": 1, "logits": 1}
    _binary = False

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of_probs_and_logits(probs, logits)
        given, name = (logits, "logits") if probs is None else (probs, "probs")
        if given.dim() < 1:
            refuse(f"`{name}` parameter must be at least one-dimensional.")
        if probs is None:
            self._take(None, logits - logits.logsumexp(dim=-1, keepdim=True))
        else:
            self._take(probs / probs.sum(-1, keepdim=True), None)
        self._num_events = given.shape[-1]
        super().__init__(given.shape[:-1], validate_args=validate_args)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new._num_events = self._num_events
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @lazy_property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return probs_to_logits(self.probs)

    @lazy_property
    def probs(self) -> Tensor:
        """The probabilities."""
        return logits_to_probs(self.logits)

    @property
    def mean(self) -> Tensor:
        return weft.full(self._extended_shape(), weft.nan, dtype=self.probs.dtype)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return weft.full(self._extended_shape(), weft.nan, dtype=self.probs.dtype)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        rows = self.probs.reshape(-1, self._num_events).detach()
        drawn = weft.multinomial(rows, Size(sample_shape).numel(), True)
        return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        value, logits = weft.broadcast_tensors(value.long().unsqueeze(-1), self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        # Minus infinity times a probability of zero is to count as zero.
        logits = self.logits.clamp(min=weft.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = weft.arange(self._num_events, dtype=weft.int64)
        values = values.view((-1,) + (1,) * len(self._batch_shape))
        return values.expand((-1, *self._batch_shape)) if expand else values
