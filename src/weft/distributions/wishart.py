"""The Wishart law of covariance matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

import weft
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions import constraints
from weft.distributions.chi2 import Chi2
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.multivariate_normal import factor_of, half_log_det, one_matrix
from weft.distributions.utils import lazy_property, refuse

__all__ = ["Wishart"]


def _mvdigamma(x: Tensor, p: int) -> Tensor:
    """The derivative of the gamma function of p dimensions, over the function."""
    steps = weft.arange(p, dtype=x.dtype) / 2
    return weft.digamma(x.unsqueeze(-1) - steps).sum(-1)


class Wishart(ExponentialFamily):
    """The law of the scatter of ``df`` normal vectors."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0
    _shaped = {"df": 0, "covariance_matrix": 2, "precision_matrix": 2, "scale_tril": 2}

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        given = (covariance_matrix, precision_matrix, scale_tril)
        assert sum(matrix is not None for matrix in given) == 1, (
            "Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified."
        )
        name, matrix = one_matrix(*given)
        if matrix.dim() < 2:
            refuse(
                "scale_tril must be at least two-dimensional, with optional leading batch "
                "dimensions"
            )
        df = weft.as_tensor(df, dtype=matrix.dtype)
        batch_shape = Size(weft.broadcast_shapes(matrix.shape[:-2], df.shape))
        size = matrix.shape[-1]
        self.df = df.expand(batch_shape)
        if self.df.le(size - 1).any():
            refuse(f"Value of df={df} expected to be greater than ndim - 1 = {size - 1}.")
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        super().__init__(batch_shape, matrix.shape[-2:], validate_args=validate_args)
        if self.df.lt(size).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for "
                "ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        self._unbroadcasted_scale_tril = factor_of(name, matrix)
        self._dist_chi2 = self._chi2()

    def _chi2(self) -> Chi2:
        falling = weft.arange(self._event_shape[-1], dtype=self.df.dtype)
        return Chi2(df=self.df.unsqueeze(-1) - falling)

    def _expanded(self, batch_shape: Size, instance: Any = None) -> Any:
        new = super()._expanded(batch_shape, instance)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new._dist_chi2 = new._chi2()
        return new

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self.event_shape[-1] - 1),
        }

    def _matrix(self, matrix: Tensor) -> Tensor:
        return matrix.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return self._matrix(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance of the vectors."""
        factor = self._unbroadcasted_scale_tril
        return self._matrix(factor @ factor.mT)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._matrix(weft.cholesky_inverse(self._unbroadcasted_scale_tril))

    def _by_matrix(self, values: Tensor) -> Tensor:
        return values.view((*self._batch_shape, 1, 1))

    @property
    def mean(self) -> Tensor:
        return self._by_matrix(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = factor.masked_fill(factor <= 0, weft.nan)
        return self._by_matrix(factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        products = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self._by_matrix(self.df) * (v.pow(2) + products)

    def _bartlett_sampling(self, sample_shape: Any = Size()) -> Tensor:
        """Draw by Bartlett's decomposition: chi on the diagonal, normals below it."""
        p = self._event_shape[-1]
        noise = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed(dim1=-2, dim2=-1)
        rows, columns = weft.tril_indices(p, p, offset=-1)
        shape = Size(sample_shape) + self._batch_shape + (p * (p - 1) // 2,)
        noise[..., rows, columns] = weft.randn(shape, dtype=noise.dtype)
        factor = self._unbroadcasted_scale_tril @ noise
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = Size(), max_try_correction: int | None = None) -> Tensor:
        shape = self._extended_shape(sample_shape)
        sample = self._bartlett_sampling(sample_shape)
        sample = sample.reshape((-1, *self._batch_shape, *self._event_shape))
        # PyTorch 2.13 takes its test for singular matrices the wrong way round in the first
        # place, and so draws valid ones a second time. A seed is to give the same here.
        again = self._some_of_batch(self.support.check(sample.detach()))
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not again.any():
                return sample.reshape(shape)
            new = self._bartlett_sampling((int(again.sum()),))
            sample = sample.index_put((again,), new)
            singular = self._some_of_batch(~self.support.check(new.detach()))
            again = again.masked_scatter(again, singular)
        if again.any():
            warnings.warn("Singular sample detected.", stacklevel=2)
        return sample.reshape(shape)

    @staticmethod
    def _some_of_batch(flags: Tensor) -> Tensor:
        """Whether a flag is up for some member of the batch, by sample."""
        return flags.flatten(1).any(-1) if flags.dim() > 1 else flags

    def log_prob(self, value: Tensor) -> Tensor:
        self._checked(value)
        p, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        trace = weft.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        return (
            -self.df * (p * math.log(2.0) / 2 + half_log_det(factor))
            - weft.mvlgamma(self.df / 2, p=p)
            + (self.df - p - 1) / 2 * weft.linalg.slogdet(value).logabsdet
            - trace / 2
        )

    def entropy(self) -> Tensor:
        p, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        return (
            (p + 1) * (p * math.log(2.0) / 2 + half_log_det(factor))
            + weft.mvlgamma(self.df / 2, p=p)
            - (self.df - p - 1) / 2 * _mvdigamma(self.df / 2, p=p)
            + self.df * p / 2
        )

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        p = self._event_shape[-1]
        return -self.precision_matrix / 2, (self.df - p - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (p * math.log(2.0) - weft.linalg.slogdet(-2 * x).logabsdet) + weft.mvlgamma(
            half, p=p
        )
