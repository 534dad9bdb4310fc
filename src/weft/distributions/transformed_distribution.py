"""Distributions of transformed values."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.distribution import Distribution
from weft.distributions.independent import Independent
from weft.distributions.transforms import ComposeTransform, Transform
from weft.distributions.utils import refuse, sum_rightmost

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The law of ``transforms(x)`` where x follows ``base_distribution``."""

    arg_constraints: dict[str, Any] = {}

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = _as_list(transforms)
        composed = ComposeTransform(self.transforms)
        base_shape = base_distribution.batch_shape + base_distribution.event_shape
        base_event = len(base_distribution.event_shape)
        wanted = composed.domain.event_dim
        if len(base_shape) < wanted:
            refuse(
                f"base_distribution needs to have shape with size at least {wanted}, but got "
                f"{base_shape}."
            )
        shape = Size(composed.forward_shape(base_shape))
        needed = Size(composed.inverse_shape(shape))
        if base_shape != needed:
            base_distribution = base_distribution.expand(needed[: len(needed) - base_event])
        if wanted > base_event:
            base_distribution = Independent(base_distribution, wanted - base_event)
        self.base_dist = base_distribution
        change = composed.codomain.event_dim - wanted
        event = max(composed.codomain.event_dim, base_event + change)
        cut = len(shape) - event
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        new = self._expanded(batch_shape, _instance)
        shape = batch_shape + self.event_shape
        for transform in reversed(self.transforms):
            shape = transform.inverse_shape(shape)
        base_batch = shape[: len(shape) - len(self.base_dist.event_shape)]
        new.base_dist = self.base_dist.expand(base_batch)
        new.transforms = self.transforms
        return new

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        codomain = self.transforms[-1].codomain
        extra = len(self.event_shape) - codomain.event_dim
        return constraints.independent(codomain, extra) if extra > 0 else codomain

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with weft.no_grad():
            x = self.base_dist.sample(sample_shape)
            for transform in self.transforms:
                x = transform(x)
            return x

    def rsample(self, sample_shape: Any = Size()) -> Tensor:
        x = self.base_dist.rsample(sample_shape)
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        event_dim = len(self.event_shape)
        result: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            stretch = transform.log_abs_det_jacobian(x, y)
            result = result - sum_rightmost(stretch, event_dim - transform.domain.event_dim)
            y = x
        base = self.base_dist.log_prob(y)
        return result + sum_rightmost(base, event_dim - len(self.base_dist.event_shape))

    def _mirrored(self, level: Tensor) -> Tensor:
        """A level seen through falling maps is counted from the other end."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, int) and sign == 1:
            return level
        return sign * (level - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        return self._mirrored(self.base_dist.cdf(self._checked_base(value)))

    def _checked_base(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return value

    def icdf(self, value: Tensor) -> Tensor:
        value = self.base_dist.icdf(self._mirrored(value))
        for transform in self.transforms:
            value = transform(value)
        return value


def _as_list(transforms: Any) -> list[Transform]:
    if isinstance(transforms, Transform):
        return [transforms]
    if not isinstance(transforms, list):
        refuse(f"transforms must be a Transform or list, but was {transforms}")
    if not all(isinstance(t, Transform) for t in transforms):
        refuse("transforms must be a Transform or a list of Transforms")
    return transforms
