"""torch.distributions: every distribution and every pair of families against PyTorch.

Each case builds one distribution with either library; the tests go through all of them.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from typing import Any

import numpy as np
import pytest

import weft
import weft.distributions

torch = pytest.importorskip("torch")

# The gradients of gamma and Dirichlet draws are rational approximations in PyTorch.
APPROXIMATE = 3e-3


class Library:
    """One of the two libraries, with a maker of parameters that it remembers."""

    def __init__(self, T: Any, dtype: str = "float64") -> None:
        self.T, self.D, self.dtype = T, T.distributions, getattr(T, dtype)
        self.leaves: list[Any] = []

    def t(self, *values: Any, grad: bool = True) -> Any:
        value = values[0] if len(values) == 1 else list(values)
        made = self.T.tensor(value, dtype=self.dtype)
        if grad:
            made.requires_grad_()
            self.leaves.append(made)
        return made

    def matrix(self, n: int = 3, seed: int = 0) -> Any:
        m = np.random.default_rng(seed).standard_normal((n, n))
        return self.t((m @ m.T + n * np.eye(n)).tolist())

    def array(self, *shape: int, seed: int = 1, low: float = -1.0, high: float = 1.0) -> Any:
        return self.t(np.random.default_rng(seed).uniform(low, high, shape).tolist())


def tril(lib: Library) -> Any:
    return lib.t([[1.0, 0.0, 0.0], [0.5, 2.0, 0.0], [-0.3, 0.7, 1.5]])


def mixture(lib: Library) -> Any:
    weights = lib.D.Categorical(lib.t([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]]))
    return lib.D.MixtureSameFamily(weights, lib.D.Normal(lib.array(2, 3), lib.t(1.0, 2.0, 0.5)))


def vector_mixture(lib: Library) -> Any:
    weights = lib.D.Categorical(logits=lib.t(0.1, -0.4))
    components = lib.D.Independent(lib.D.Normal(lib.array(2, 3), lib.t(1.0, 2.0, 0.5)), 1)
    return lib.D.MixtureSameFamily(weights, components)


def transformed(lib: Library) -> Any:
    base = lib.D.Normal(lib.t(0.3, -0.2), lib.t(1.0, 2.0))
    affine = lib.D.AffineTransform(lib.t(1.0, 2.0), lib.t(-2.0, 0.5))
    return lib.D.TransformedDistribution(base, [affine, lib.D.SigmoidTransform()])


def generalized_pareto(lib: Library) -> Any:
    single = Library(lib.T, "float32")  # PyTorch's fails in any other dtype
    single.leaves = lib.leaves
    t = single.t
    return lib.D.GeneralizedPareto(t(0.3, 0.0, 1.0), t(1.0, 2.0, 0.5), t(0.3, 0.0, -0.4))


CASES = {
    "Bernoulli": lambda b: b.D.Bernoulli(b.t([[0.2, 0.9], [0.5, 0.4]])),
    "Bernoulli-logits": lambda b: b.D.Bernoulli(logits=b.t(-1.3, 0.4, 2.0)),
    "Bernoulli-number": lambda b: b.D.Bernoulli(0.3),
    "Beta": lambda b: b.D.Beta(b.t(0.5, 2.0, 7.0), b.t(1.5)),
    "Beta-number": lambda b: b.D.Beta(2.0, 3.0),
    "Binomial": lambda b: b.D.Binomial(6, b.t(0.2, 0.5, 0.9)),
    "Binomial-logits": lambda b: b.D.Binomial(b.t(9.0, grad=False), logits=b.t(0.2, -1.0)),
    "Categorical": lambda b: b.D.Categorical(b.t([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])),
    "Categorical-logits": lambda b: b.D.Categorical(logits=b.t(0.3, -0.2, 1.0)),
    "Cauchy": lambda b: b.D.Cauchy(b.t(0.0, 2.0), b.t(1.0, 0.5)),
    "Chi2": lambda b: b.D.Chi2(b.t(0.7, 3.0, 9.0)),
    "ContinuousBernoulli": lambda b: b.D.ContinuousBernoulli(b.t(0.2, 0.4995, 0.8)),
    "ContinuousBernoulli-logits": lambda b: b.D.ContinuousBernoulli(logits=b.t(-1.0, 0.9)),
    "Dirichlet": lambda b: b.D.Dirichlet(b.t([[0.5, 2.0, 4.0], [1.5, 1.0, 3.0]])),
    "Exponential": lambda b: b.D.Exponential(b.t(0.5, 2.0)),
    "FisherSnedecor": lambda b: b.D.FisherSnedecor(b.t(3.0, 6.0), b.t(5.0, 9.0)),
    "Gamma": lambda b: b.D.Gamma(b.t(0.4, 2.0, 12.0), b.t(1.5)),
    "GeneralizedPareto": generalized_pareto,
    "Geometric": lambda b: b.D.Geometric(b.t(0.2, 0.7)),
    "Geometric-logits": lambda b: b.D.Geometric(logits=b.t(0.2, -0.7)),
    "Gumbel": lambda b: b.D.Gumbel(b.t(0.0, 2.0), b.t(1.0, 0.5)),
    "Gumbel-number": lambda b: b.D.Gumbel(0.0, 2.0),
    "HalfCauchy": lambda b: b.D.HalfCauchy(b.t(1.0, 0.5)),
    "HalfNormal": lambda b: b.D.HalfNormal(b.t(1.0, 0.5)),
    "Independent": lambda b: b.D.Independent(b.D.Normal(b.array(2, 3), b.t(1.0, 2.0, 3.0)), 1),
    "Independent-0": lambda b: b.D.Independent(b.D.Bernoulli(b.t(0.3, 0.4)), 0),
    "InverseGamma": lambda b: b.D.InverseGamma(b.t(2.5, 4.0), b.t(1.5)),
    "Kumaraswamy": lambda b: b.D.Kumaraswamy(b.t(1.5, 3.0), b.t(2.5)),
    "LKJCholesky": lambda b: b.D.LKJCholesky(3, b.t(0.7, 2.0)),
    "Laplace": lambda b: b.D.Laplace(b.t(0.0, 2.0), b.t(1.0, 0.5)),
    "LogNormal": lambda b: b.D.LogNormal(b.t(0.0, 0.5), b.t(1.0, 0.5)),
    "LogisticNormal": lambda b: b.D.LogisticNormal(b.array(2, 3), b.t(1.0, 0.5, 2.0)),
    "LowRankMultivariateNormal": lambda b: b.D.LowRankMultivariateNormal(
        b.array(2, 3), b.array(3, 2, seed=5), b.t(1.0, 0.5, 2.0)
    ),
    "MixtureSameFamily": mixture,
    "MixtureSameFamily-vectors": vector_mixture,
    "Multinomial": lambda b: b.D.Multinomial(5, b.t([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])),
    "Multinomial-logits": lambda b: b.D.Multinomial(4, logits=b.t(0.1, 0.2, -0.7)),
    "MultivariateNormal": lambda b: b.D.MultivariateNormal(b.array(2, 3), b.matrix()),
    "MultivariateNormal-precision": lambda b: b.D.MultivariateNormal(
        b.t(0.1, 0.2, 0.3), precision_matrix=b.matrix()
    ),
    "MultivariateNormal-tril": lambda b: b.D.MultivariateNormal(
        b.t(0.1, 0.2, 0.3), scale_tril=tril(b)
    ),
    "NegativeBinomial": lambda b: b.D.NegativeBinomial(b.t(3.0, 5.0), b.t(0.3, 0.6)),
    "NegativeBinomial-logits": lambda b: b.D.NegativeBinomial(4, logits=b.t(0.3, -0.6)),
    "Normal": lambda b: b.D.Normal(b.t([[0.0], [2.0]]), b.t(1.0, 0.5, 3.0)),
    "Normal-number": lambda b: b.D.Normal(0.5, 2.0),
    "Normal-mixed": lambda b: b.D.Normal(b.t(0.5, 1.0), 2),
    "OneHotCategorical": lambda b: b.D.OneHotCategorical(b.t([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])),
    "OneHotCategoricalStraightThrough": lambda b: b.D.OneHotCategoricalStraightThrough(
        logits=b.t(0.1, 0.2, -0.7)
    ),
    "Pareto": lambda b: b.D.Pareto(b.t(1.0, 0.5), b.t(2.5, 3.0)),
    "Poisson": lambda b: b.D.Poisson(b.t(0.3, 4.0, 30.0)),
    "RelaxedBernoulli": lambda b: b.D.RelaxedBernoulli(b.t(0.7), b.t(0.2, 0.7)),
    "RelaxedBernoulli-logits": lambda b: b.D.RelaxedBernoulli(b.t(0.7), logits=b.t(0.2, -0.7)),
    "RelaxedOneHotCategorical": lambda b: b.D.RelaxedOneHotCategorical(
        b.t(0.7), b.t([[0.1, 0.2, 0.7], [0.4, 0.4, 0.2]])
    ),
    "StudentT": lambda b: b.D.StudentT(b.t(0.7, 1.5, 4.0), b.t(0.3), b.t(2.0)),
    "TransformedDistribution": transformed,
    "Uniform": lambda b: b.D.Uniform(b.t(-1.0, 0.0), b.t(1.0, 3.0)),
    "VonMises": lambda b: b.D.VonMises(b.t(0.3, -1.0, 2.0), b.t(1e-6, 1.0, 20.0)),
    "Weibull": lambda b: b.D.Weibull(b.t(1.0, 2.0), b.t(0.8, 2.5)),
    "Wishart": lambda b: b.D.Wishart(b.t(4.5, 6.0), b.matrix()),
    "Wishart-tril": lambda b: b.D.Wishart(b.t(4.5), scale_tril=tril(b)),
}
NAMES = sorted(CASES)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def both(name: str, dtype: str = "float64") -> tuple[Any, Any, Library, Library]:
    ours, theirs = Library(weft, dtype), Library(torch, dtype)
    return CASES[name](ours), CASES[name](theirs), ours, theirs


def array(x: Any) -> np.ndarray:
    return np.asarray(x.detach().numpy())


def close(found: Any, expected: Any, rtol: float = 1e-7, atol: float = 1e-9) -> None:
    assert tuple(found.shape) == tuple(expected.shape)
    assert str(found.dtype) == str(expected.dtype)
    if str(expected.dtype) == "torch.float32":
        rtol, atol = max(rtol, 2e-5), max(atol, 2e-5)
    np.testing.assert_allclose(array(found), array(expected), rtol=rtol, atol=atol)


def outcome(call: Any) -> Any:
    """A tensor, or the name of an error."""
    try:
        return call()
    except (NotImplementedError, ValueError) as error:
        return type(error).__name__


def same_outcome(found: Any, expected: Any, **tolerances: float) -> None:
    if isinstance(expected, str):
        assert found == expected
    else:
        assert not isinstance(found, str), found
        close(found, expected, **tolerances)


def drawn(d: Any, T: Any, shape: Any = (), method: str = "sample") -> Any:
    T.manual_seed(17)
    return getattr(d, method)(shape)


@pytest.mark.parametrize("name", NAMES)
def test_draws_are_those_of_the_seed(name: str) -> None:
    for dtype, shape in itertools.product(("float64", "float32"), ((), (5,), (3, 2))):
        ours, theirs, *_ = both(name, dtype)
        found, expected = drawn(ours, weft, shape), drawn(theirs, torch, shape)
        assert not found.requires_grad
        close(found, expected, rtol=1e-9 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_shapes_flags_and_names(name: str) -> None:
    ours, theirs, *_ = both(name)
    assert type(ours).__name__ == type(theirs).__name__
    assert repr(ours) == repr(theirs)
    assert repr(ours.batch_shape) == repr(theirs.batch_shape)
    assert repr(ours.event_shape) == repr(theirs.event_shape)
    assert ours.has_rsample == theirs.has_rsample
    assert ours.has_enumerate_support == theirs.has_enumerate_support
    assert repr(ours.arg_constraints) == repr(theirs.arg_constraints)
    assert repr(ours.support) == repr(theirs.support)


@pytest.mark.parametrize("name", NAMES)
def test_log_prob_with_gradient(name: str) -> None:
    ours, theirs, a, b = both(name)
    value = drawn(theirs, torch, (4,))
    mine = weft.tensor(value.numpy())
    value = value.requires_grad_() if value.is_floating_point() else value
    mine = mine.requires_grad_() if mine.is_floating_point() else mine
    found, expected = ours.log_prob(mine), theirs.log_prob(value)
    close(found, expected, rtol=1e-6)
    if a.leaves:
        found.sum().backward()
        expected.sum().backward()
        for x, y in zip([*a.leaves, mine], [*b.leaves, value], strict=True):
            assert (x.grad is None) == (y.grad is None)
            if y.grad is not None and "tril" in name and y.dim() > 1:
                # PyTorch gives a gradient also to what stands above the diagonal.
                close(x.grad.tril(), y.grad.tril(), rtol=1e-5)
            elif y.grad is not None:
                close(x.grad, y.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("what", ["mean", "mode", "variance", "stddev", "entropy", "perplexity"])
def test_moments(name: str, what: str) -> None:
    if what == "mode" and name == "Kumaraswamy":
        pytest.skip("PyTorch's formula takes the logarithm of a negative number")
    ours, theirs, *_ = both(name)
    results = []
    for d in (ours, theirs):
        results.append(
            outcome(
                lambda d=d: (
                    getattr(d, what)() if what in ("entropy", "perplexity") else getattr(d, what)
                )
            )
        )
    same_outcome(*results, rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_levels(name: str) -> None:
    ours, theirs, *_ = both(name)
    value = drawn(theirs, torch, (4,))
    mine = weft.tensor(value.numpy())
    same_outcome(outcome(lambda: ours.cdf(mine)), outcome(lambda: theirs.cdf(value)), rtol=1e-6)
    level = np.linspace(0.1, 0.9, 4).reshape(-1, *(1,) * len(theirs.batch_shape))
    same_outcome(
        outcome(lambda: ours.icdf(weft.tensor(level))),
        outcome(lambda: theirs.icdf(torch.tensor(level))),
        rtol=1e-6,
    )


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_draws(name: str) -> None:
    ours, theirs, a, b = both(name)
    if not theirs.has_rsample:
        assert outcome(lambda: drawn(ours, weft, (), "rsample")) == "NotImplementedError"
        return
    found, expected = drawn(ours, weft, (3,), "rsample"), drawn(theirs, torch, (3,), "rsample")
    close(found, expected, rtol=1e-9)
    assert found.requires_grad == expected.requires_grad
    if a.leaves and "Wishart" not in name:  # PyTorch's own backward fails there
        weights = np.random.default_rng(3).standard_normal(tuple(expected.shape))
        (found * weft.tensor(weights)).sum().backward()
        (expected * torch.tensor(weights)).sum().backward()
        for x, y in zip(a.leaves, b.leaves, strict=True):
            close(x.grad, y.grad, rtol=APPROXIMATE, atol=APPROXIMATE)


@pytest.mark.parametrize("name", NAMES)
def test_expand(name: str) -> None:
    ours, theirs, *_ = both(name)
    shape = (2, 3, *theirs.batch_shape)
    wide, expected = ours.expand(shape), theirs.expand(shape)
    assert tuple(wide.batch_shape) == shape and repr(wide) == repr(expected)
    assert wide.event_shape == ours.event_shape
    close(drawn(wide, weft, (2,)), drawn(expected, torch, (2,)), rtol=1e-9)
    value = drawn(theirs, torch)
    close(wide.log_prob(weft.tensor(value.numpy())), expected.log_prob(value), rtol=1e-6)
    for what in ("mean", "variance"):
        same_outcome(
            outcome(lambda w=what: getattr(wide, w)),
            outcome(lambda w=what: getattr(expected, w)),
            rtol=1e-5,
        )


@pytest.mark.parametrize("name", NAMES)
def test_support_can_be_enumerated(name: str) -> None:
    ours, theirs, *_ = both(name)
    for expand in (True, False):
        same_outcome(
            outcome(lambda e=expand: ours.enumerate_support(expand=e)),
            outcome(lambda e=expand: theirs.enumerate_support(expand=e)),
        )


@pytest.mark.parametrize("name", NAMES)
def test_support_checks_draws_and_maps_onto_itself(name: str) -> None:
    ours, theirs, *_ = both(name)
    value = drawn(theirs, torch, (3,))
    mine = weft.tensor(value.numpy())
    np.testing.assert_array_equal(
        array(ours.support.check(mine)), array(theirs.support.check(value))
    )
    for registry in ("biject_to", "transform_to"):
        results = []
        for d, T in ((ours, weft), (theirs, torch)):
            to = getattr(T.distributions, registry)
            results.append(outcome(lambda d=d, to=to: to(d.support)))
        if isinstance(results[1], str):
            assert results[0] == results[1]
            continue
        assert repr(results[0]) == repr(results[1])
        x, y = results[0].inv(mine), results[1].inv(value)
        close(x, y, rtol=1e-6)
        close(results[0](x), results[1](y), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_distributions_can_be_copied_and_pickled(name: str) -> None:
    ours, *_ = both(name)
    for again in (pickle.loads(pickle.dumps(ours)), copy.copy(ours)):
        found, expected = drawn(again, weft, (2,)), drawn(ours, weft, (2,))
        np.testing.assert_array_equal(array(found), array(expected))


# --- divergences -----------------------------------------------------------------------

FOR_KL = {
    "Bernoulli": ["Bernoulli", lambda b: b.D.Bernoulli(b.t([[0.0, 0.7], [0.3, 1.0]]))],
    "Beta": ["Beta"],
    "Binomial": ["Binomial", lambda b: b.D.Binomial(6, b.t(0.3))],
    "Categorical": ["Categorical", lambda b: b.D.Categorical(b.t(0.0, 0.4, 0.6))],
    "Cauchy": ["Cauchy", lambda b: b.D.Cauchy(b.t(0.4), b.t(0.9))],
    "ContinuousBernoulli": ["ContinuousBernoulli", "ContinuousBernoulli-logits"],
    "Dirichlet": ["Dirichlet", lambda b: b.D.Dirichlet(b.t(1.0, 0.4, 0.6))],
    "Exponential": ["Exponential", lambda b: b.D.Exponential(b.t(3.0))],
    "Gamma": ["Gamma", lambda b: b.D.Gamma(b.t(3.0), b.t(0.5))],
    "Geometric": ["Geometric", "Geometric-logits"],
    "Gumbel": ["Gumbel", lambda b: b.D.Gumbel(b.t(-0.4), b.t(0.9))],
    "HalfNormal": ["HalfNormal", lambda b: b.D.HalfNormal(b.t(3.0))],
    "Independent": ["Independent"],
    "Laplace": ["Laplace", lambda b: b.D.Laplace(b.t(-0.4), b.t(0.9))],
    "LowRankMultivariateNormal": [
        "LowRankMultivariateNormal",
        lambda b: b.D.LowRankMultivariateNormal(
            b.t(1.0, 2.0, 3.0), b.array(2, 3, 1, seed=8), b.t(2.0, 1.0, 0.3)
        ),
    ],
    "MultivariateNormal": ["MultivariateNormal", "MultivariateNormal-precision"],
    "Normal": ["Normal-mixed", lambda b: b.D.Normal(b.t(-0.4), b.t(0.9))],
    "OneHotCategorical": ["OneHotCategorical", "OneHotCategoricalStraightThrough"],
    "Pareto": ["Pareto", lambda b: b.D.Pareto(b.t(0.1), b.t(2.2))],
    "Poisson": ["Poisson", lambda b: b.D.Poisson(b.t(0.9))],
    "TransformedDistribution": ["LogNormal", lambda b: b.D.LogNormal(b.t(-0.4), b.t(0.9))],
    "Uniform": [
        lambda b: b.D.Uniform(b.t(-1.0, 0.1), b.t(1.0, 3.0)),
        lambda b: b.D.Uniform(b.t(0.2, 0.3), b.t(0.4, 0.9)),
    ],
}
PAIRS = sorted(
    (p.__name__, q.__name__)
    for p, q in torch.distributions.kl._KL_REGISTRY
    if p is not torch.distributions.ExponentialFamily
)


def test_all_pairs_of_families_are_registered() -> None:
    names = lambda D: {(p.__name__, q.__name__) for p, q in D.kl._KL_REGISTRY}
    assert names(weft.distributions) == names(torch.distributions)


def made(key: Any, lib: Library) -> Any:
    return (CASES[key] if isinstance(key, str) else key)(lib)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_divergence_with_gradient(pair: tuple[str, str]) -> None:
    for p, q in itertools.product(FOR_KL[pair[0]], FOR_KL[pair[1]]):
        results = []
        for T in (weft, torch):
            lib = Library(T)
            try:
                kl = T.distributions.kl_divergence(made(p, lib), made(q, lib))
            except (NotImplementedError, RuntimeError) as error:  # or shapes that don't broadcast
                results.append(type(error).__name__)
                continue
            if kl.requires_grad and bool(T.isfinite(kl).all()):
                kl.sum().backward()
            results.append([kl, *(x.grad for x in lib.leaves)])
        found, expected = results
        if isinstance(expected, str):
            assert found == expected
            continue
        close(found[0], expected[0], rtol=1e-6)
        for x, y in zip(found[1:], expected[1:], strict=True):
            # Families without a shared parameter may leave its gradient out or at zero.
            if x is None or y is None:
                assert all(g is None or not array(g).any() for g in (x, y))
            else:
                close(x, y, rtol=1e-5, atol=1e-7)


def test_divergence_finds_the_nearest_pair() -> None:
    class Special(weft.distributions.Normal):
        pass

    p, q = Special(0.0, 1.0), weft.distributions.Normal(1.0, 1.0)
    assert float(weft.distributions.kl_divergence(p, q)) == 0.5

    @weft.distributions.register_kl(Special, weft.distributions.Normal)
    def special(p: Any, q: Any) -> Any:
        return weft.tensor(7.0)

    assert float(weft.distributions.kl_divergence(p, q)) == 7.0
    with pytest.raises(NotImplementedError, match="No KL"):
        weft.distributions.kl_divergence(q, weft.distributions.LKJCholesky(3))
    with pytest.raises(TypeError):
        weft.distributions.register_kl(3, 4)  # type: ignore[arg-type]


def test_divergences_between_families_that_are_no_distributions() -> None:
    class Foreign:
        pass

    class Point(Foreign, weft.distributions.Normal):
        pass

    @weft.distributions.register_kl(Point, Foreign)
    def both_foreign(p: Any, q: Any) -> Any:
        return "by the foreign rule"

    point = Point(0.0, 1.0)
    assert weft.distributions.kl_divergence(point, point) == "by the foreign rule"


def test_divergence_of_exponential_families() -> None:
    results = []
    for T in (weft, torch):
        lib = Library(T)
        p = T.distributions.Wishart(lib.t(4.5), lib.matrix())
        q = T.distributions.Wishart(lib.t(5.5), lib.matrix(seed=4))
        kl = T.distributions.kl_divergence(p, q)
        with pytest.raises(NotImplementedError):
            T.distributions.kl_divergence(p, T.distributions.Poisson(1.0))
        results.append(kl)
    close(*results)


# --- errors ----------------------------------------------------------------------------

INVALID = [
    "D.Normal(t([0., 1]), t([-1., 1]))",
    "D.Normal('a', 1.)",
    "D.Normal(0., 1.).log_prob('a')",
    "D.Normal(t([0., 1]), t([1., 1])).log_prob(T.zeros(3))",
    "D.Exponential(1.).log_prob(t(-1.))",
    "D.Categorical()",
    "D.Bernoulli(probs=t(.3), logits=t(.3))",
    "D.Categorical(probs=t(.3))",
    "D.Categorical(logits=t(.3))",
    "D.Categorical(t([.5, .5])).log_prob(t(2))",
    "D.Categorical(logits=t([.5, float('nan')]))",
    "D.Uniform(1., 0.)",
    "D.Uniform(0., 1.).log_prob(t(2.))",
    "D.Multinomial(2.5, T.ones(3))",
    "D.Multinomial(3, T.ones(3)).log_prob(T.ones(2))",
    "D.Multinomial(3, T.ones(3)).log_prob(t([1., 1, 2]))",
    "D.MultivariateNormal(t(1.), T.eye(2))",
    "D.MultivariateNormal(T.zeros(2))",
    "D.MultivariateNormal(T.zeros(2), T.zeros(2))",
    "D.MultivariateNormal(T.zeros(2), -T.eye(2))",
    "D.MultivariateNormal(T.zeros(2), scale_tril=T.ones(2, 2))",
    "D.MultivariateNormal(T.zeros(2), precision_matrix=T.zeros(2))",
    "D.MultivariateNormal(T.zeros(2), scale_tril=T.zeros(2))",
    "D.LowRankMultivariateNormal(t(1.), t(1.), t(1.))",
    "D.LowRankMultivariateNormal(T.zeros(2), T.zeros(2), t(1.))",
    "D.LowRankMultivariateNormal(T.zeros(2), T.zeros(2, 1), t(1.))",
    "D.LowRankMultivariateNormal(T.zeros(2), T.zeros(3, 1), T.ones(2))",
    "D.Independent(D.Normal(0., 1.), 1)",
    "D.Dirichlet(t(1.))",
    "D.Dirichlet(t([1., -1.]))",
    "D.LKJCholesky(1)",
    "D.Wishart(t(1.), T.eye(2))",
    "D.Wishart(t([1.]), T.eye(2))",
    "D.Wishart(t([3.]), T.eye(2), scale_tril=T.eye(2))",
    "D.Wishart(t([3.]), T.ones(2))",
    "D.MixtureSameFamily(1, 2)",
    "D.MixtureSameFamily(D.Categorical(T.ones(3)), 2)",
    "D.MixtureSameFamily(D.Categorical(T.ones(3)), D.Normal(T.zeros(2), 1))",
    "D.MixtureSameFamily(D.Categorical(T.ones(2, 3)), D.Normal(T.zeros(4, 3), 1))",
    "D.Normal(0., 1.).enumerate_support()",
    "D.Poisson(1.).rsample()",
    "D.Poisson(1.).log_prob(t(.5))",
    "D.Distribution(validate_args=False).mean",
    "D.Distribution(validate_args=False).mode",
    "D.Geometric(t([0., 1]))",
    "D.Binomial(t([2, 3]), t([.2, .3])).enumerate_support()",
    "D.Binomial(2, t(.3)).log_prob(t(3.))",
    "D.TransformedDistribution(D.Normal(0., 1.), 3)",
    "D.TransformedDistribution(D.Normal(0., 1.), [3])",
    "D.TransformedDistribution(D.Normal(0., 1.), D.StickBreakingTransform())",
    "D.TransformedDistribution(D.Normal(0., 1.), D.AbsTransform()).cdf(t(1.))",
    "D.TransformedDistribution(D.Normal(0., 1.), D.AbsTransform()).log_prob(t(1.))",
    "D.Transform(3)",
    "D.AbsTransform().sign",
    "D.CorrCholeskyTransform().event_dim",
    "D.ReshapeTransform((2,), (3,))",
    "D.ReshapeTransform((2,), (2, 1)).forward_shape((3,))",
    "D.constraints.dependent.check(t(1.))",
    "D.constraints.cat([1])",
    "D.biject_to(3)",
    "D.biject_to(D.constraints.boolean)",
    "D.biject_to.register(3, 4)",
    "D.Distribution.set_default_validate_args(3)",
    "D.VonMises(0., -1.)",
    "D.NegativeBinomial(2., probs=t(1.))",
    "D.RelaxedBernoulli(t(1.), probs=t(.2)).log_prob(t(2.))",
    "D.utils.tril_matrix_to_vec(T.eye(2), 3)",
    "D.utils.vec_to_tril_matrix(T.ones(2))",
]


@pytest.mark.parametrize("code", INVALID)
def test_errors(code: str) -> None:
    results = []
    for T in (weft, torch):
        try:
            eval(code, {"T": T, "D": T.distributions, "t": T.tensor})
        except Exception as error:
            results.append((type(error).__name__, str(error).replace("weft.", "torch.")))
        else:
            results.append(("no error", ""))
    found, expected = results
    assert expected[0] != "no error" and found[0] == expected[0]
    # Ours goes on to name the user's line.
    assert found[1].startswith(expected[1]), found[1]


def test_validation_can_be_switched_off() -> None:
    D = weft.distributions
    d = D.Normal(0.0, -1.0, validate_args=False)
    assert bool(weft.isnan(d.log_prob(weft.tensor(1.0))))
    D.Distribution.set_default_validate_args(False)
    try:
        D.Normal(0.0, -1.0)
        assert float(D.Uniform(0.0, 1.0).log_prob(weft.tensor(2.0))) == -weft.inf
    finally:
        D.Distribution.set_default_validate_args(True)
    with pytest.raises(ValueError):
        D.Normal(0.0, -1.0)


def test_what_a_class_of_the_user_lacks() -> None:
    class Own(weft.distributions.Distribution):
        pass

    class Longer(weft.distributions.Normal):
        def __init__(self, x: Any) -> None:
            super().__init__(x, 1.0)

    with pytest.warns(UserWarning, match="arg_constraints"):
        Own()
    with pytest.raises(NotImplementedError, match=r"custom \.expand"):
        Longer(0.0).expand((2,))
    with pytest.warns(UserWarning, match="sample_n"):
        assert weft.distributions.Normal(0.0, 1.0).sample_n(3).shape == (3,)


# --- transforms ------------------------------------------------------------------------

TRANSFORMS = [
    "D.ExpTransform()",
    "D.ExpTransform().inv",
    "D.AbsTransform()",
    "D.AffineTransform(t(1., 2., 3.), t(-2., 0.5, 1.))",
    "D.AffineTransform(1.5, -2.)",
    "D.AffineTransform(t(1., 2., 3.), 2., event_dim=1)",
    "D.PowerTransform(t(2., 0.5, -1.))",
    "D.SigmoidTransform()",
    "D.SoftplusTransform()",
    "D.TanhTransform()",
    "D.SoftmaxTransform()",
    "D.StickBreakingTransform()",
    "D.CorrCholeskyTransform()",
    "D.LowerCholeskyTransform()",
    "D.PositiveDefiniteTransform()",
    "D.ComposeTransform([D.ExpTransform(), D.AffineTransform(1., 2.)])",
    "D.ComposeTransform([D.AffineTransform(1., 2.), D.StickBreakingTransform()])",
    "D.ComposeTransform([D.AffineTransform(1., 2.), D.StickBreakingTransform()]).inv",
    "D.identity_transform",
    "D.IndependentTransform(D.ExpTransform(), 1)",
    "D.ReshapeTransform((3,), (3, 1))",
    "D.CatTransform([D.ExpTransform(), D.AffineTransform(1., 2.)], dim=-1, lengths=[1, 2])",
    "D.CatTransform([D.ExpTransform(), D.identity_transform], dim=0)",
    "D.StackTransform([D.ExpTransform(), D.TanhTransform(), D.AffineTransform(0., 2.)], dim=-1)",
    "D.CumulativeDistributionTransform(D.Normal(t(0.3), t(1.2)))",
]


def facts_of_transform(T: Any, code: str, x: np.ndarray) -> Any:
    lib = Library(T)
    transform = eval(code, {"T": T, "D": T.distributions, "t": lib.t})
    value = lib.t(x.tolist())
    if code.endswith("StickBreakingTransform()]).inv"):
        value = (value / value.sum(-1, keepdim=True)).detach().requires_grad_()
    y = transform(value)
    stretch = outcome(lambda: transform.log_abs_det_jacobian(value, y))
    back = transform.inv(y)
    total = y.sum() + back.pow(2).sum() + (0 if isinstance(stretch, str) else stretch.sum())
    grads = [g for g in T.autograd.grad(total, lib.leaves, allow_unused=True) if g is not None]
    facts = [
        repr(transform),
        transform.bijective,
        tuple(transform.forward_shape(value.shape)),
        tuple(transform.inverse_shape(y.shape)),
        repr(transform.domain),
        repr(transform.codomain),
        repr(outcome(lambda: transform.event_dim)),
        repr(outcome(lambda: transform.sign)),
        transform.inv.inv == transform,
        type(transform.with_cache()).__name__,
    ]
    return facts, [y, back, *grads], stretch


@pytest.mark.parametrize("code", TRANSFORMS)
def test_transforms(code: str) -> None:
    square = ("Cholesky" in code and "Corr" not in code) or "PositiveDef" in code
    x = np.random.default_rng(2).uniform(0.1, 0.9, (2, 3, 3) if square else (2, 3))
    results = [facts_of_transform(T, code, x) for T in (weft, torch)]
    (facts, values, stretch), (facts_expected, values_expected, stretch_expected) = results
    assert facts == facts_expected
    for a, b in zip(values, values_expected, strict=True):
        close(a, b, rtol=1e-6)
    same_outcome(stretch, stretch_expected)


def test_transforms_keep_their_last_value() -> None:
    t = weft.distributions.TanhTransform(cache_size=1)
    x = weft.tensor([30.0])
    y = t(x)
    assert t.inv(y) is x and t(x) is y
    assert weft.distributions.TanhTransform() == weft.distributions.TanhTransform()
    assert weft.distributions.ExpTransform() != weft.distributions.TanhTransform()


# --- gradients of draws, by what defines them ------------------------------------------


@pytest.mark.parametrize("a", [0.02, 0.3, 1.0, 4.0, 60.0, 2000.0])
def test_gamma_draws_keep_their_level(a: float) -> None:
    special = pytest.importorskip("scipy.special")
    concentration = weft.full((50,), a, dtype=weft.float64, requires_grad=True)
    weft.manual_seed(1)
    draws = weft._standard_gamma(concentration)
    draws.sum().backward()
    level = special.gammainc(a, array(draws))
    usable = (level > 1e-3) & (level < 0.999)
    h = 1e-4 * a
    slope = (special.gammaincinv(a + h, level) - special.gammaincinv(a - h, level)) / (2 * h)
    np.testing.assert_allclose(array(concentration.grad)[usable], slope[usable], rtol=1e-4)


@pytest.mark.parametrize(("a", "b"), [(0.3, 0.2), (1.0, 1.0), (5.0, 0.5), (30.0, 400.0)])
def test_beta_draws_keep_their_level(a: float, b: float) -> None:
    special = pytest.importorskip("scipy.special")
    first = weft.full((50,), a, dtype=weft.float64, requires_grad=True)
    second = weft.full((50,), b, dtype=weft.float64, requires_grad=True)
    weft.manual_seed(1)
    draws = weft.distributions.Beta(first, second).rsample()
    draws.sum().backward()
    level = special.betainc(a, b, array(draws))
    usable = (level > 1e-3) & (level < 0.999)
    for leaf, step in ((first, (1e-4 * a, 0.0)), (second, (0.0, 1e-4 * b))):
        above = special.betaincinv(a + step[0], b + step[1], level)
        below = special.betaincinv(a - step[0], b - step[1], level)
        slope = (above - below) / (2 * sum(step))
        np.testing.assert_allclose(array(leaf.grad)[usable], slope[usable], rtol=1e-4, atol=1e-9)


def test_second_derivatives_of_draws_are_refused() -> None:
    x = weft.ones(3, requires_grad=True)
    (g,) = weft.autograd.grad(weft._standard_gamma(x).sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="_standard_gamma_grad"):
        g.sum().backward()


def test_no_entropy_by_the_family_where_the_carrier_is_unknown():
    """That of Beta is not constant: by way of its natural parameters the entropy would be wrong."""
    beta = weft.distributions.Beta(weft.tensor(1.5), weft.tensor(0.7))
    with pytest.raises(NotImplementedError):
        weft.distributions.ExponentialFamily.entropy(beta)
