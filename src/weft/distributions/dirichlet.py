"""The Dirichlet law."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.utils import refuse

__all__ = ["Dirichlet"]


class Dirichlet(ExponentialFamily):
    """A law on the simplex; draws are differentiable by the concentration."""

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True
    _shaped = {"concentration": 1}

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            refuse("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        shape = concentration.shape
        super().__init__(shape[:-1], shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return weft._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        return (
            weft.xlogy(self.concentration - 1.0, value).sum(-1)
            + weft.lgamma(self.concentration.sum(-1))
            - weft.lgamma(self.concentration).sum(-1)
        )

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        # Where no concentration exceeds 1 the density is highest at a corner.
        corners = (self.concentration < 1).all(dim=-1).unsqueeze(-1)
        hot = weft.nn.functional.one_hot(mode.argmax(dim=-1), above.shape[-1]).to(mode)
        return weft.where(corners, hot, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        k, total = self.concentration.shape[-1], self.concentration.sum(-1)
        return (
            weft.lgamma(self.concentration).sum(-1)
            - weft.lgamma(total)
            - (k - total) * weft.digamma(total)
            - ((self.concentration - 1.0) * weft.digamma(self.concentration)).sum(-1)
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.lgamma().sum(-1) - weft.lgamma(x.sum(-1))
