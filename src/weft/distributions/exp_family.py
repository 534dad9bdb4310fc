"""Exponential families, whose entropy follows from the normaliser."""

from __future__ import annotations

from typing import Any

import weft
from weft.core.tensor import Tensor
from weft.distributions.distribution import Distribution

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Laws with density ``h(x) exp(<t(x), eta> - F(eta))``.

    A class gives eta as ``_natural_params``, F as ``_log_normalizer``, and the mean of ``log h``
    as ``_mean_carrier_measure``.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Any) -> Tensor:
        raise NotImplementedError

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        """The entropy by the divergence of Bregman: F(eta) - <eta, F'(eta)> - E[log h]."""
        eta = [p.detach().requires_grad_() for p in self._natural_params]
        normaliser = self._log_normalizer(*eta)
        slopes = weft.autograd.grad(normaliser.sum(), eta, create_graph=True)
        result = normaliser - self._mean_carrier_measure
        for parameter, slope in zip(eta, slopes, strict=True):
            product = parameter * slope
            result = result - product.reshape((*self._batch_shape, -1)).sum(-1)
        return result
