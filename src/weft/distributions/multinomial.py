"""The multinomial law."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.binomial import Binomial
from weft.distributions.categorical import Categorical
from weft.distributions.distribution import Distribution
from weft.distributions.utils import broadcast_all, refuse

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """How often each of several outcomes comes up in ``total_count`` trials."""

    arg_constraints = {"probs": constraints.simplex, "logits": constraints.real_vector}
    total_count: int

    def __init__(
        self,
        total_count: int = 1,
        probs: Any = None,
        logits: Any = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            refuse("inhomogeneous total_count is not supported", NotImplementedError)
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        shape = self._categorical.param_shape
        super().__init__(self._categorical.batch_shape, shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._get_checked_instance(Multinomial, _instance)
        batch_shape = Size(batch_shape)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        new._binomial = Binomial(total_count=new.total_count, probs=new.probs)
        new._batch_shape, new._event_shape = batch_shape, self._event_shape
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def logits(self) -> Tensor:
        """The logarithms of the probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """The probabilities."""
        return self._categorical.probs

    @property
    def param_shape(self) -> Size:
        """The shape of the parameter that was given."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        drawn = self._categorical.sample(Size((self.total_count,)) + Size(sample_shape))
        drawn = drawn.permute(*range(1, drawn.dim()), 0)
        counts = weft.zeros(shape, dtype=weft.int64)
        return counts.scatter_add(-1, drawn, weft.ones_like(drawn)).type_as(self.probs)

    def entropy(self) -> Tensor:
        n = weft.tensor(float(self.total_count), dtype=self.probs.dtype)
        support = self._binomial.enumerate_support(expand=False)[1:]
        levels = weft.exp(self._binomial.log_prob(support))
        surplus = (levels * weft.lgamma(support + 1)).sum([0, -1])
        return n * self._categorical.entropy() - weft.lgamma(n + 1) + surplus

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        ways = weft.lgamma(value.sum(-1) + 1) - weft.lgamma(value + 1).sum(-1)
        # What never happens and did not happen has no part in it.
        logits = logits.masked_fill((value == 0) & (logits == -weft.inf), 0)
        return ways + (logits * value).sum(-1)
