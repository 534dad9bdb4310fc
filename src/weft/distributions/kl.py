"""Divergences of Kullback and Leibler, by the pair of families."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.distributions.bernoulli import Bernoulli
from weft.distributions.beta import Beta
from weft.distributions.binomial import Binomial
from weft.distributions.categorical import Categorical
from weft.distributions.cauchy import Cauchy
from weft.distributions.continuous_bernoulli import ContinuousBernoulli
from weft.distributions.dirichlet import Dirichlet
from weft.distributions.distribution import Distribution
from weft.distributions.exp_family import ExponentialFamily
from weft.distributions.exponential import Exponential
from weft.distributions.gamma import Gamma
from weft.distributions.geometric import Geometric
from weft.distributions.gumbel import Gumbel
from weft.distributions.half_normal import HalfNormal
from weft.distributions.independent import Independent
from weft.distributions.laplace import Laplace
from weft.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_mahalanobis,
)
from weft.distributions.multivariate_normal import (
    MultivariateNormal,
    _batch_mahalanobis,
    half_log_det,
)
from weft.distributions.normal import Normal
from weft.distributions.one_hot_categorical import OneHotCategorical
from weft.distributions.pareto import Pareto
from weft.distributions.poisson import Poisson
from weft.distributions.transformed_distribution import TransformedDistribution
from weft.distributions.uniform import Uniform
from weft.distributions.utils import euler_constant, refuse, sum_rightmost

__all__ = ["kl_divergence", "register_kl"]

_KL_REGISTRY: dict[tuple[type, type], Callable] = {}
_LOG_2PI = math.log(2 * math.pi)


def register_kl(type_p: type, type_q: type) -> Callable:
    """Decorator: the function gives the divergence for this pair of families."""
    for name, kind in (("type_p", type_p), ("type_q", type_q)):
        # Libraries have families of their own, which need not derive from Distribution.
        if not isinstance(kind, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {kind}")

    def decorator(function: Callable) -> Callable:
        _KL_REGISTRY[type_p, type_q] = function
        _dispatch_kl.cache_clear()
        return function

    return decorator


@functools.cache
def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The function for the nearest pair of base classes, or NotImplemented."""
    matches = [
        pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])
    ]
    if not matches:
        return NotImplemented
    p_order, q_order = type_p.__mro__.index, type_q.__mro__.index
    left = min(matches, key=lambda pair: (p_order(pair[0]), q_order(pair[1])))
    right = min(matches, key=lambda pair: (q_order(pair[1]), p_order(pair[0])))
    if left != right:
        warnings.warn(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please "
            f"register_kl({left[0].__name__}, {right[1].__name__})",
            RuntimeWarning,
            stacklevel=3,
        )
    return _KL_REGISTRY[left]


def kl_divergence(p: Distribution, q: Distribution) -> Tensor:
    """The divergence KL(p || q) of two distributions.

    >>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0))
    tensor(0.5000)
    """
    kinds: Any = type(p), type(q)
    function = _dispatch_kl(*kinds)
    if function is NotImplemented:
        refuse(
            f"No KL(p || q) is implemented for p type {type(p).__name__} and q type "
            f"{type(q).__name__}",
            NotImplementedError,
        )
    return function(p, q)


# --- within one family -----------------------------------------------------------------


@register_kl(Bernoulli, Bernoulli)
def _bernoulli_bernoulli(p: Bernoulli, q: Bernoulli) -> Tensor:
    success = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    success = weft.where(q.probs == 0, weft.inf, success)
    success = weft.where(p.probs == 0, 0.0, success)
    failure = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    failure = weft.where(q.probs == 1, weft.inf, failure)
    return success + weft.where(p.probs == 1, 0.0, failure)


@register_kl(Beta, Beta)
def _beta_beta(p: Beta, q: Beta) -> Tensor:
    return _dirichlet_dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Binomial, Binomial)
def _binomial_binomial(p: Binomial, q: Binomial) -> Tensor:
    if (p.total_count < q.total_count).any():
        refuse(
            "KL between Binomials where q.total_count > p.total_count is not implemented",
            NotImplementedError,
        )
    one = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return weft.where(p.total_count > q.total_count, weft.inf, p.total_count * one)


@register_kl(Categorical, Categorical)
def _categorical_categorical(p: Categorical, q: Categorical) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t = weft.where(q.probs == 0, weft.inf, t)
    return weft.where(p.probs == 0, 0.0, t).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _onehot_onehot(p: OneHotCategorical, q: OneHotCategorical) -> Tensor:
    return _categorical_categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_continuous(p: ContinuousBernoulli, q: ContinuousBernoulli) -> Tensor:
    return _to_continuous_bernoulli(p, q)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet_dirichlet(p: Dirichlet, q: Dirichlet) -> Tensor:
    a, b = p.concentration, q.concentration
    total = a.sum(-1)
    normaliser = total.lgamma() - b.sum(-1).lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return normaliser + ((a - b) * (a.digamma() - total.digamma().unsqueeze(-1))).sum(-1)


@register_kl(Exponential, Exponential)
def _exponential_exponential(p: Exponential, q: Exponential) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1


@register_kl(ExponentialFamily, ExponentialFamily)
def _family_family(p: ExponentialFamily, q: ExponentialFamily) -> Tensor:
    if type(p) is not type(q):
        refuse(
            "The cross KL-divergence between different exponential families cannot be computed "
            "using Bregman divergences",
            NotImplementedError,
        )
    p_natural = [n.detach().requires_grad_() for n in p._natural_params]
    q_natural = q._natural_params
    normaliser = p._log_normalizer(*p_natural)
    slopes = weft.autograd.grad(normaliser.sum(), p_natural, create_graph=True)
    result = q._log_normalizer(*q_natural) - normaliser
    for a, b, slope in zip(p_natural, q_natural, slopes, strict=True):
        result = result - sum_rightmost((b - a) * slope, len(q.event_shape))
    return result


@register_kl(Gamma, Gamma)
def _gamma_gamma(p: Gamma, q: Gamma) -> Tensor:
    return (
        q.concentration * (p.rate / q.rate).log()
        + q.concentration.lgamma()
        - p.concentration.lgamma()
        + (p.concentration - q.concentration) * p.concentration.digamma()
        + (q.rate - p.rate) * (p.concentration / p.rate)
    )


@register_kl(Gumbel, Gumbel)
def _gumbel_gumbel(p: Gumbel, q: Gumbel) -> Tensor:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    decay = weft.exp((1 + ratio).lgamma() - shift)
    return shift - ratio.log() + ratio * euler_constant + decay - (1 + euler_constant)


@register_kl(Geometric, Geometric)
def _geometric_geometric(p: Geometric, q: Geometric) -> Tensor:
    return -p.entropy() - weft.log1p(-q.probs) / p.probs - q.logits


@register_kl(HalfNormal, HalfNormal)
def _halfnormal_halfnormal(p: HalfNormal, q: HalfNormal) -> Tensor:
    return _normal_normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace_laplace(p: Laplace, q: Laplace) -> Tensor:
    ratio, distance = p.scale / q.scale, (p.loc - q.loc).abs()
    return distance / q.scale + ratio * weft.exp(-distance / p.scale) - ratio.log() - 1


@register_kl(Normal, Normal)
def _normal_normal(p: Normal, q: Normal) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())


@register_kl(Pareto, Pareto)
def _pareto_pareto(p: Pareto, q: Pareto) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return weft.where(p.scale < q.scale, weft.inf, result)


@register_kl(Poisson, Poisson)
def _poisson_poisson(p: Poisson, q: Poisson) -> Tensor:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Uniform, Uniform)
def _uniform_uniform(p: Uniform, q: Uniform) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return weft.where((q.low > p.low) | (q.high < p.high), weft.inf, result)


@register_kl(Cauchy, Cauchy)
def _cauchy_cauchy(p: Cauchy, q: Cauchy) -> Tensor:
    both = (p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)
    return both.log() - (4 * p.scale * q.scale).log()


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed_transformed(p: TransformedDistribution, q: TransformedDistribution) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError
    extra = len(p.event_shape) - len(p.base_dist.event_shape)
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), extra)


@register_kl(Independent, Independent)
def _independent_independent(p: Independent, q: Independent) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError
    return sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


# --- normal laws of vectors ------------------------------------------------------------


def _check_sizes(p: Distribution, q: Distribution) -> None:
    if p.event_shape != q.event_shape:
        refuse(
            "KL-divergence between two Multivariate Normals with different event shapes cannot "
            "be computed"
        )


def _trace(inverse_of: Tensor, *roots: Tensor) -> Tensor:
    """``tr(M^-1 S)`` for M = LL' given by L, where S is a sum of squares of the roots."""
    return sum(
        weft.linalg.solve_triangular(inverse_of, root, upper=False).pow(2).sum((-2, -1))
        for root in roots
    )


def _roots(p: Any) -> tuple[Tensor, ...]:
    """Matrices R with ``sum(R R')`` = the covariance."""
    if isinstance(p, MultivariateNormal):
        return (p._unbroadcasted_scale_tril,)
    return p._unbroadcasted_cov_factor, p._unbroadcasted_cov_diag.sqrt().diag_embed()


def _log_det(p: Any) -> Tensor:
    if isinstance(p, MultivariateNormal):
        return 2 * half_log_det(p._unbroadcasted_scale_tril)
    return p._log_det()


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _normals_full(p: Any, q: MultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    factor = q._unbroadcasted_scale_tril
    distance = _batch_mahalanobis(factor, q.loc - p.loc)
    trace = _spread_trace(factor, _roots(p))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + distance - p.event_shape[0])


def _spread_trace(factor: Tensor, roots: tuple[Tensor, ...]) -> Tensor:
    batch = weft.broadcast_shapes(factor.shape[:-2], *(r.shape[:-2] for r in roots))
    spread = [m.expand(Size(batch) + m.shape[-2:]) for m in (factor, *roots)]
    return _trace(*spread)


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _normals_lowrank(p: Any, q: LowRankMultivariateNormal) -> Tensor:
    _check_sizes(p, q)
    w, d, capacitance = (
        q._unbroadcasted_cov_factor,
        q._unbroadcasted_cov_diag,
        q._capacitance_tril,
    )
    distance = _batch_lowrank_mahalanobis(w, d, q.loc - p.loc, capacitance)
    # Woodbury: the inverse is D^-1 minus a part of low rank.
    diagonal = sum((root.pow(2) / d.unsqueeze(-1)).sum((-2, -1)) for root in _roots(p))
    scaled = w.mT / d.unsqueeze(-2)
    low = _spread_trace(capacitance, tuple(scaled @ root for root in _roots(p)))
    return 0.5 * (_log_det(q) - _log_det(p) + diagonal - low + distance - p.event_shape[0])


# --- from one family to another --------------------------------------------------------

# Where q gives no probability to values that p takes.
_INFINITE: dict[type, tuple[type, ...]] = {
    Beta: (Pareto,),
    ContinuousBernoulli: (Pareto,),
    Exponential: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gamma: (Beta, ContinuousBernoulli, Pareto, Uniform),
    Gumbel: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Laplace: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Normal: (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform),
    Pareto: (Beta, ContinuousBernoulli, Uniform),
    Poisson: (Bernoulli, Binomial),
}


def _infinite(p: Any, q: Any) -> Tensor:
    return weft.full(p.batch_shape, weft.inf, dtype=p.mean.dtype)


for _p, _qs in _INFINITE.items():
    for _q in _qs:
        register_kl(_p, _q)(_infinite)


def _x_log_x(x: Tensor) -> Tensor:
    return weft.xlogy(x, x)


def _mean_log(p: Any) -> Tensor:
    """The mean of log(x)."""
    if isinstance(p, Beta):
        total = p.concentration1 + p.concentration0
        return p.concentration1.digamma() - total.digamma()
    if isinstance(p, Exponential):
        return -p.rate.log() - euler_constant
    if isinstance(p, Pareto):
        return p.scale.log() + p.alpha.reciprocal()
    return (_x_log_x(p.high) - _x_log_x(p.low)) / (p.high - p.low) - 1


def _mean_decay(p: Any, scale: Tensor) -> Tensor:
    """The mean of exp(-x / scale)."""
    if isinstance(p, Exponential):
        return p.rate * scale / (p.rate * scale + 1)
    if isinstance(p, Gamma):
        return (1 + (p.rate * scale).reciprocal()).pow(-p.concentration)
    if isinstance(p, Normal):
        return weft.exp(-p.loc / scale + 0.5 * (p.scale / scale).pow(2))
    decay = weft.exp(-p.low / scale) - weft.exp(-p.high / scale)
    return scale * decay / (p.high - p.low)


@register_kl(Beta, Normal)
@register_kl(ContinuousBernoulli, Normal)
@register_kl(Exponential, Normal)
@register_kl(Gamma, Normal)
@register_kl(Gumbel, Normal)
@register_kl(Laplace, Normal)
@register_kl(Pareto, Normal)
@register_kl(Uniform, Normal)
def _to_normal(p: Any, q: Normal) -> Tensor:
    spread = (p.variance + (p.mean - q.loc).pow(2)) / (2 * q.scale.pow(2))
    return spread + q.scale.log() + 0.5 * _LOG_2PI - p.entropy()


@register_kl(Beta, Exponential)
@register_kl(ContinuousBernoulli, Exponential)
@register_kl(Gamma, Exponential)
@register_kl(Pareto, Exponential)
def _to_exponential(p: Any, q: Exponential) -> Tensor:
    return q.rate * p.mean - q.rate.log() - p.entropy()


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Uniform, q: Exponential) -> Tensor:
    return weft.where(p.low < 0, weft.inf, _to_exponential(p, q))


@register_kl(Beta, Gamma)
@register_kl(Exponential, Gamma)
@register_kl(Pareto, Gamma)
def _to_gamma(p: Any, q: Gamma) -> Tensor:
    normaliser = q.concentration.lgamma() - q.concentration * q.rate.log()
    return normaliser - (q.concentration - 1) * _mean_log(p) + q.rate * p.mean - p.entropy()


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Uniform, q: Gamma) -> Tensor:
    return weft.where(p.low < 0, weft.inf, _to_gamma(p, q))


@register_kl(Exponential, Gumbel)
@register_kl(Gamma, Gumbel)
@register_kl(Normal, Gumbel)
@register_kl(Uniform, Gumbel)
def _to_gumbel(p: Any, q: Gumbel) -> Tensor:
    decay = weft.exp(q.loc / q.scale) * _mean_decay(p, q.scale)
    return (p.mean - q.loc) / q.scale + decay + q.scale.log() - p.entropy()


@register_kl(Normal, Laplace)
def _normal_laplace(p: Normal, q: Laplace) -> Tensor:
    distance = p.loc - q.loc
    standard = distance / p.scale
    mean_size = math.sqrt(2 / math.pi) * p.scale * weft.exp(-0.5 * standard.pow(2))
    mean_size = mean_size + distance * weft.erf(math.sqrt(0.5) * standard)
    return mean_size / q.scale + (2 * q.scale).log() - p.entropy()


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Bernoulli, q: Poisson) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)


@register_kl(Beta, ContinuousBernoulli)
def _to_continuous_bernoulli(p: Any, q: ContinuousBernoulli) -> Tensor:
    return -p.entropy() - p.mean * q.logits - weft.log1p(-q.probs) - q._cont_bern_log_norm()


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous(p: Uniform, q: ContinuousBernoulli) -> Tensor:
    # As in PyTorch, an end that coincides with that of the support counts as outside.
    outside = (p.high >= 1) | (p.low <= 0)
    return weft.where(outside, weft.inf, _to_continuous_bernoulli(p, q))


@register_kl(Beta, Uniform)
def _beta_uniform(p: Beta, q: Uniform) -> Tensor:
    result = -p.entropy() + (q.high - q.low).log()
    return weft.where((q.low > 0) | (q.high < 1), weft.inf, result)


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_uniform(p: ContinuousBernoulli, q: Uniform) -> Tensor:
    result = -p.entropy() + (q.high - q.low).log()
    return weft.where((q.low >= 0) | (q.high <= 1), weft.inf, result)


@register_kl(Uniform, Beta)
def _uniform_beta(p: Uniform, q: Beta) -> Tensor:
    width = p.high - p.low
    log_rest = (_x_log_x(1 - p.low) - _x_log_x(1 - p.high)) / width - 1
    a, b = q.concentration1, q.concentration0
    normaliser = a.lgamma() + b.lgamma() - (a + b).lgamma()
    result = normaliser - (a - 1) * _mean_log(p) - (b - 1) * log_rest - width.log()
    return weft.where((p.high > 1) | (p.low < 0), weft.inf, result)


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Uniform, q: Pareto) -> Tensor:
    density = q.alpha.log() + q.alpha * q.scale.log() - (q.alpha + 1) * _mean_log(p)
    return weft.where(p.low < q.scale, weft.inf, -(p.high - p.low).log() - density)
