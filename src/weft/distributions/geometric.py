"""The geometric law."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
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

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits):
    """The number of failures before the first success."""

    arg_constraints = {"probs": constraints.unit_interval, "logits": constraints.real}
    support = constraints.nonnegative_integer
    _shaped = {"probs": 0, "logits": 0}

    def __init__(
        self, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        one_of_probs_and_logits(probs, logits)
        (given,) = broadcast_all(logits if probs is None else probs)
        self._take(*((None, given) if probs is None else (given, None)))
        super().__init__(given.shape, validate_args=validate_args)
        if self._validate_args and probs is not None and not (self.probs > 0).all():
            invalid = self.probs[~(self.probs > 0)]
            refuse(
                f"Expected parameter probs ({type(self.probs).__name__} of shape "
                f"{tuple(self.probs.shape)}) of distribution {self!r} to be positive but found "
                f"invalid values:\n{invalid}"
            )

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return weft.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    @lazy_property
    def logits(self) -> Tensor:
        """The log-odds of a success."""
        return probs_to_logits(self.probs, is_binary=True)

    @lazy_property
    def probs(self) -> Tensor:
        """The probability of a success."""
        return logits_to_probs(self.logits, is_binary=True)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        shape, tiny = self._extended_shape(sample_shape), weft.finfo(self.probs.dtype).tiny
        with weft.no_grad():
            u = weft.empty(shape, dtype=self.probs.dtype).uniform_(tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        value, probs = broadcast_all(value, self.probs)
        # With certain success the only value is 0, where 0 * log(0) is to count as 0.
        probs = weft.where((probs == 1) & (value == 0), 0.0, probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        flip = F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")
        return flip / self.probs
