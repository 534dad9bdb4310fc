"""The LKJ law of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.beta import Beta
from weft.distributions.distribution import Distribution
from weft.distributions.utils import refuse

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Factors of correlation matrices M with a density in proportion to ``det(M)**(c - 1)``."""

    arg_constraints = {"concentration": constraints.positive}
    support = constraints.corr_cholesky
    _shaped = {"concentration": 0}

    def __init__(
        self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None
    ) -> None:
        if dim < 2:
            refuse(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self.concentration = weft.as_tensor(concentration)
        dtype = self.concentration.dtype
        # The onion method: the length of each row below the diagonal follows a beta law.
        offset = weft.cat([weft.zeros(1, dtype=dtype), weft.arange(dim - 1, dtype=dtype)])
        marginal = self.concentration + 0.5 * (dim - 2)
        self._beta = Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)
        super().__init__(self.concentration.shape, (dim, dim), validate_args)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new.dim = self.dim
        new._beta = self._beta.expand((*batch_shape, self.dim))
        return new

    def sample(self, sample_shape: Any = Size()) -> Tensor:
        with weft.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape, dtype = self._extended_shape(sample_shape), y.dtype
            normal = weft.randn(shape, dtype=dtype).tril(-1)
            direction = normal / normal.norm(dim=-1, keepdim=True)
            direction[..., 0, :] = 0.0  # the first row has nothing below the diagonal
            w = weft.sqrt(y) * direction
            left = (1 - (w**2).sum(-1)).clamp(min=weft.finfo(dtype).tiny)
            return w + weft.diag_embed(left.sqrt())

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = weft.arange(2, self.dim + 1, dtype=self.concentration.dtype)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        rest = self.dim - 1
        alpha = self.concentration + 0.5 * rest
        normaliser = (
            0.5 * rest * math.log(math.pi)
            + weft.mvlgamma(alpha - 0.5, p=rest)
            - weft.lgamma(alpha) * rest
        )
        return (order * diagonal.log()).sum(-1) - normaliser
