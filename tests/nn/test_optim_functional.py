"""The functional forms of the optimizers do what PyTorch's do, on the state that is given."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest

import weft

# Names of the lists after the gradients (with their start values), and two sets of settings.
CASES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "adadelta": (
        {"square_avgs": 0.0, "acc_deltas": 0.0},
        [
            {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": d, "maximize": False}
            for d in (0, 1)
        ],
    ),
    "adagrad": (
        {"state_sums": 0.1},
        [
            {"lr": 0.1, "weight_decay": d, "lr_decay": d, "eps": 1e-8, "maximize": True}
            for d in (0, 0.1)
        ],
    ),
    "adam": (
        {"exp_avgs": 0.0, "exp_avg_sqs": 0.0, "max_exp_avg_sqs": 0.0},
        [
            {
                "amsgrad": a,
                "beta1": 0.9,
                "beta2": 0.99,
                "lr": 0.1,
                "weight_decay": 0.1,
                "eps": 1e-8,
                "maximize": a,
            }
            for a in (False, True)
        ],
    ),
    "adamw": (
        {"exp_avgs": 0.0, "exp_avg_sqs": 0.0, "max_exp_avg_sqs": 0.0},
        [
            {
                "amsgrad": a,
                "beta1": 0.9,
                "beta2": 0.99,
                "lr": 0.1,
                "weight_decay": 0.1,
                "eps": 1e-8,
                "maximize": a,
            }
            for a in (False, True)
        ],
    ),
    "adamax": (
        {"exp_avgs": 0.0, "exp_infs": 0.0},
        [
            {"eps": 1e-8, "beta1": 0.9, "beta2": 0.99, "lr": 0.1, "weight_decay": d}
            for d in (0, 0.1)
        ],
    ),
    "asgd": (
        {"axs": 0.0, "mus": "one", "etas": "one"},
        [{"lambd": 1e-4, "lr": 0.1, "t0": 1.0, "alpha": 0.75, "weight_decay": d} for d in (0, 0.1)],
    ),
    "nadam": (
        {"exp_avgs": 0.0, "exp_avg_sqs": 0.0, "mu_products": "one"},
        [
            {
                "beta1": 0.9,
                "beta2": 0.99,
                "lr": 0.1,
                "weight_decay": 0.1,
                "momentum_decay": 4e-3,
                "eps": 1e-8,
                "decoupled_weight_decay": d,
            }
            for d in (False, True)
        ],
    ),
    "radam": (
        {"exp_avgs": 0.0, "exp_avg_sqs": 0.0},
        [
            {
                "beta1": 0.9,
                "beta2": 0.9,
                "lr": 0.1,
                "weight_decay": 0.1,
                "eps": 1e-8,
                "decoupled_weight_decay": d,
            }
            for d in (False, True)
        ],
    ),
    "rmsprop": (
        {"square_avgs": 0.0, "grad_avgs": 0.0, "momentum_buffer_list": 0.0},
        [
            {
                "lr": 0.1,
                "alpha": 0.9,
                "eps": 1e-8,
                "weight_decay": 0.1,
                "momentum": m,
                "centered": bool(m),
            }
            for m in (0, 0.9)
        ],
    ),
    "rprop": (
        {"prevs": 0.0, "step_sizes": 0.1},
        [
            {
                "step_size_min": 1e-6,
                "step_size_max": 50,
                "etaminus": 0.5,
                "etaplus": 1.2,
                "maximize": m,
            }
            for m in (False, True)
        ],
    ),
    "sgd": (
        {"momentum_buffer_list": None},
        [
            {
                "weight_decay": 0.1,
                "momentum": m,
                "lr": 0.1,
                "dampening": 0,
                "nesterov": bool(m),
                "maximize": False,
            }
            for m in (0, 0.9)
        ],
    ),
}
SHAPES = [(3, 4), (5,), ()]


def function(library: Any, name: str) -> Any:
    return getattr(importlib.import_module(f"{library.__name__}.optim.{name}"), name)


def run(library: Any, name: str, settings: dict[str, Any]) -> list[Any]:
    rng = np.random.default_rng(0)
    lists = CASES[name][0]
    params = [library.tensor(rng.standard_normal(s)) for s in SHAPES]
    state: list[list[Any]] = []
    for start in lists.values():
        if start is None:
            state.append([None] * len(SHAPES))
        elif start == "one":
            state.append([library.tensor(1.0) for _ in SHAPES])
        else:
            state.append([library.full_like(p, start) for p in params])
    steps = [library.tensor(0.0) for _ in SHAPES]
    found: list[Any] = []
    for _ in range(4):
        grads = [library.tensor(rng.standard_normal(s)) for s in SHAPES]
        more = [] if name == "sgd" else [steps]
        function(library, name)(params, grads, *state, *more, **settings)
        found += [p.tolist() for p in params]
    for values in state:
        found += [None if t is None else t.tolist() for t in values]
    return [*found, [] if name == "sgd" else [t.item() for t in steps]]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_steps_are_those_of_pytorch(name: str, which: int) -> None:
    torch = pytest.importorskip("torch")
    settings = CASES[name][1][which]
    ours, theirs = run(weft, name, settings), run(torch, name, settings)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_signatures_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")

    def outline(f: Any) -> list[Any]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(f).parameters.values()]

    assert outline(function(weft, name)) == outline(function(torch, name))


def test_the_gradient_field_is_left_alone_and_the_version_moves() -> None:
    p = weft.ones(2, requires_grad=True)
    p.grad = weft.full((2,), 5.0)
    version = p._version
    weft.optim.sgd.sgd(
        [p], [weft.ones(2)], [None], weight_decay=0, momentum=0, lr=0.5, dampening=0,
        nesterov=False, maximize=False,
    )  # fmt: skip
    assert p.tolist() == [0.5, 0.5] and p.grad.tolist() == [5, 5] and p._version > version


def test_differentiable_steps() -> None:
    rate = weft.tensor([2.0], requires_grad=True)
    p = weft.ones(1) * 1.0
    state = [[weft.zeros(1)] for _ in range(3)]
    weft.optim.adam.adam(
        [p], [rate * 3], *state, [weft.tensor(0.0)], differentiable=True, amsgrad=False,
        beta1=0.9, beta2=0.99, lr=0.1, weight_decay=0, eps=1.0, maximize=False,
    )  # fmt: skip
    assert p.requires_grad
    p.sum().backward()
    assert rate.grad is not None and rate.grad.item() == pytest.approx(-0.1 * 3 / 49)
