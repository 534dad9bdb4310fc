"""Mixtures of one family."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.categorical import Categorical
from weft.distributions.constraints import MixtureSameFamilyConstraint
from weft.distributions.distribution import Distribution
from weft.distributions.utils import refuse

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A component is drawn, and then a value of it; components are the last batch dimension."""

    arg_constraints: dict[str, Any] = {}
    has_rsample = False

    def __init__(
        self,
        mixture_distribution: Categorical,
        component_distribution: Distribution,
        validate_args: bool | None = None,
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            refuse(
                " The Mixture distribution needs to be an  instance of "
                "torch.distributions.Categorical"
            )
        if not isinstance(component_distribution, Distribution):
            refuse(
                "The Component distribution needs to be an instance of "
                "torch.distributions.Distribution"
            )
        self._check_shapes()
        self._num_component = mixture_distribution.logits.shape[-1]
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        batch_shape = component_distribution.batch_shape[:-1]
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def _check_shapes(self) -> None:
        mixture = self._mixture_distribution.batch_shape
        components = self._component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixture), reversed(components), strict=False):
            if a != 1 and b != 1 and a != b:
                refuse(
                    f"`mixture_distribution.batch_shape` ({mixture}) is not compatible with "
                    f"`component_distribution.batch_shape`({components})"
                )
        count = self._mixture_distribution.logits.shape[-1]
        last = self._component_distribution.batch_shape[-1]
        if count != last:
            refuse(
                f"`mixture_distribution component` ({count}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({last})"
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        components = self._component_distribution.expand((*batch_shape, self._num_component))
        new._component_distribution = components
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component, new._event_ndims = self._num_component, self._event_ndims
        new._batch_shape, new._event_shape = batch_shape, components.event_shape
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The law of the component's index."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The laws of the components."""
        return self._component_distribution

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _weighted(self, values: Tensor) -> Tensor:
        """The sum over the components by their probabilities."""
        probs = self._mixture_distribution.probs
        return (probs.reshape(probs.shape + (1,) * self._event_ndims) * values).sum(
            dim=-1 - self._event_ndims
        )

    @property
    def mean(self) -> Tensor:
        return self._weighted(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        within = self._weighted(self._component_distribution.variance)
        between = (self._component_distribution.mean - self._pad(self.mean)).pow(2.0)
        return within + self._weighted(between)

    def cdf(self, x: Tensor) -> Tensor:  # type: ignore[override]
        levels = self._component_distribution.cdf(self._pad(x))
        return (levels * self._mixture_distribution.probs).sum(dim=-1)

    def log_prob(self, x: Tensor) -> Tensor:  # type: ignore[override]
        self._checked(x)
        each = self._component_distribution.log_prob(self._pad(x))
        weights = weft.log_softmax(self._mixture_distribution.logits, dim=-1)
        return weft.logsumexp(each + weights, dim=-1)

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with weft.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self._mixture_distribution.sample(sample_shape)
            drawn = self._component_distribution.sample(sample_shape)
            chosen = chosen.reshape(chosen.shape + (1,) * (self._event_ndims + 1))
            chosen = chosen.expand((*drawn.shape[:dim], 1, *self.event_shape))
            return weft.gather(drawn, dim, chosen).squeeze(dim)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(\n  {self.mixture_distribution!r},\n"
            f"  {self.component_distribution!r})"
        )
