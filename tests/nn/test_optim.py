"""Optimizers take the same course as PyTorch's, and keep the same contract."""

from __future__ import annotations

import copy
import math
import pickle
import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest

import weft
from weft.optim import lr_scheduler as schedules
from weft.optim.elementwise import CHUNK, SMALL

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

# The largest difference after 20 steps, by dtype: both round, in different orders.
TOLERANCE = {"float64": 1e-12, "float32": 2e-5, "complex128": 1e-12}
SHAPES = [(4, 3), (3,), (), (2, 0), (5, 2, 3)]

SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.05, "momentum": 0.9}),
    ("SGD", {"lr": 0.05, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "maximize": True}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    ("Adam", {"lr": 0.05, "amsgrad": True, "maximize": True, "foreach": False}),
    ("Adam", {"lr": 0.0, "decoupled_weight_decay": True, "weight_decay": 0.2}),
    ("AdamW", {"lr": 0.05}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.3, "amsgrad": True, "fused": False}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.05, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "momentum_decay": 0.01}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.95), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}),
    ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 0.3, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.02, "alpha": 0.9, "momentum": 0.8, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.02, "centered": True, "maximize": True}),
    ("RMSprop", {"lr": 0.02, "centered": True, "momentum": 0.5}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.05, "etas": (0.4, 1.3), "step_sizes": (0.01, 0.1), "maximize": True}),
    ("ASGD", {}),
    ("ASGD", {"lr": 0.05, "lambd": 0.01, "t0": 3, "weight_decay": 0.1}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1, "d": 2.0, "eps": (1e-3, 1e-2)}),
    ("Adafactor", {"lr": 0.1, "beta2_decay": -0.5, "maximize": True}),
]
IDS = [f"{name}-{i}" for i, (name, _) in enumerate(SETTINGS)]
REAL_ONLY = ("Adafactor", "Muon")


def arrays(dtype: str, shapes: Any = SHAPES, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for shape in shapes:
        x = rng.normal(size=shape)
        made.append(np.asarray(x + 1j * rng.normal(size=shape) if "complex" in dtype else x, dtype))
    return made


def parameters(T: Any, values: list[np.ndarray]) -> list[Any]:
    make = T.from_numpy
    return [T.nn.Parameter(make(np.array(v))) for v in values]


def set_grads(T: Any, params: list[Any], step: int, skip: Any = ()) -> None:
    """The gradient of a bowl with a wave on it, so that steps are never the same."""
    for i, p in enumerate(params):
        x = p.detach().numpy()
        wave = np.sin(3.0 * x.real + step + i)
        if x.dtype.kind == "c":
            wave = wave + 1j * np.sin(2.0 * x.imag - step)
        g = np.asarray(0.3 * x + wave, x.dtype)
        p.grad = None if i in skip else T.from_numpy(g.reshape(x.shape).copy())


def values(params: list[Any]) -> list[np.ndarray]:
    return [p.detach().numpy() for p in params]


def assert_same(ours: list[Any], theirs: list[Any], tolerance: float) -> None:
    for a, b in zip(values(ours), values(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def converted(x: Any, T: Any) -> Any:
    """A state dict with the tensors of the other library, which share no memory."""
    if isinstance(x, (torch.Tensor, weft.Tensor)):
        return T.from_numpy(np.array(x.detach().numpy()))
    if isinstance(x, dict):
        return {k: converted(v, T) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return type(x)(converted(v, T) for v in x)
    return x


def pair(name: str, kwargs: dict[str, Any], starts: list[np.ndarray]) -> tuple[Any, ...]:
    ours, theirs = parameters(weft, starts), parameters(torch, starts)
    return (
        ours,
        theirs,
        getattr(weft.optim, name)(ours, **kwargs),
        getattr(torch.optim, name)(theirs, **kwargs),
    )


def assert_same_layout(a: Any, b: Any) -> None:
    if isinstance(b, (torch.Tensor, weft.Tensor)):
        assert isinstance(a, (torch.Tensor, weft.Tensor))
        assert str(a.dtype) == str(b.dtype)
        assert tuple(a.shape) == tuple(b.shape)
    elif isinstance(b, dict):
        assert list(a) == list(b)
        for key in b:
            assert_same_layout(a[key], b[key])
    elif isinstance(b, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same_layout(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(("name", "kwargs"), SETTINGS, ids=IDS)
def test_same_course(name: str, kwargs: dict[str, Any], dtype: str) -> None:
    if name in REAL_ONLY and "complex" in dtype:
        pytest.skip("real parameters only")
    shapes = [s for s in SHAPES if name != "Adafactor" or 0 not in s]
    ours, theirs, mine, other = pair(name, kwargs, arrays(dtype, shapes))
    for step in range(20):
        set_grads(weft, ours, step)
        set_grads(torch, theirs, step)
        mine.step()
        other.step()
    assert_same(ours, theirs, TOLERANCE[dtype])
    assert_same_layout(mine.state_dict(), other.state_dict())
    assert repr(mine) == repr(other)


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS, ids=IDS)
def test_state_dicts_are_exchanged(name: str, kwargs: dict[str, Any]) -> None:
    shapes = [s for s in SHAPES if 0 not in s]
    ours, theirs, mine, other = pair(name, kwargs, arrays("float64", shapes))
    for step in range(7):
        for T, params, optimizer in ((weft, ours, mine), (torch, theirs, other)):
            set_grads(T, params, step)
            optimizer.step()
    swapped = pair(name, kwargs, values(ours))
    swapped[2].load_state_dict(converted(other.state_dict(), weft))
    swapped[3].load_state_dict(converted(mine.state_dict(), torch))
    for step in range(7, 20):
        for T, params, optimizer in (
            (weft, ours, mine),
            (torch, theirs, other),
            (weft, swapped[0], swapped[2]),
            (torch, swapped[1], swapped[3]),
        ):
            set_grads(T, params, step)
            optimizer.step()
    assert_same(ours, theirs, 1e-11)
    assert_same(swapped[0], swapped[1], 1e-11)
    # Loading brings counters other than "step" to the type of the parameter, here float64.
    assert_same(swapped[0], ours, 1e-7 if name in ("NAdam", "ASGD") else 1e-11)


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS, ids=IDS)
def test_large_and_odd_parameters(name: str, kwargs: dict[str, Any]) -> None:
    """Several chunks, many small ones, transposed memory, and gradients that come and go."""
    shapes = [(CHUNK + 5,), (SMALL + 1,), (7,), (3, 4), (6,), (30, 200)]
    starts = arrays("float64", shapes)
    ours, theirs = parameters(weft, starts), parameters(torch, starts)
    for T, params in ((weft, ours), (torch, theirs)):
        params.append(T.nn.Parameter(T.from_numpy(starts[3].copy()).t()))
    mine, other = (
        getattr(weft.optim, name)(ours, **kwargs),
        getattr(torch.optim, name)(theirs, **kwargs),
    )
    for step in range(8):
        skip = {3: (2,), 4: (0, 4), 5: (2, 3)}.get(step, ())
        for T, params, optimizer in ((weft, ours, mine), (torch, theirs, other)):
            set_grads(T, params, step, skip)
            optimizer.step()
    assert_same(ours, theirs, 1e-11)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adafactor"])
def test_half_types(name: str, dtype: str) -> None:
    kwargs = {"lr": 0.05, **({"eps": 1e-4} if name in ("Adam", "RMSprop") else {})}
    starts = arrays("float32", [(4, 3), (5,)])
    ours = [weft.nn.Parameter(weft.from_numpy(v).to(getattr(weft, dtype))) for v in starts]
    theirs = [torch.nn.Parameter(torch.from_numpy(v).to(getattr(torch, dtype))) for v in starts]
    mine, other = (
        getattr(weft.optim, name)(ours, **kwargs),
        getattr(torch.optim, name)(theirs, **kwargs),
    )
    for step in range(5):
        for T, params, optimizer in ((weft, ours, mine), (torch, theirs, other)):
            for p in params:
                p.grad = (p.detach() * 0.5 + math.sin(step)).to(getattr(T, dtype))
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            a.detach().float().numpy(), b.detach().float().numpy(), atol=0.03
        )
    assert_same_layout(mine.state_dict(), other.state_dict())


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"lr": 0.02, "nesterov": False, "weight_decay": 0.0},
        {"lr": 0.02, "adjust_lr_fn": "match_rms_adamw"},
    ],
)
def test_muon(kwargs: dict[str, Any]) -> None:
    # The iteration is in bfloat16: a step may be off by its last places.
    ours, theirs, mine, other = pair("Muon", kwargs, arrays("float64", [(4, 6), (7, 3)]))
    for step in range(5):
        set_grads(weft, ours, step)
        set_grads(torch, theirs, step)
        mine.step()
        other.step()
    assert_same(ours, theirs, 5 * 0.02 * kwargs.get("lr", 1e-3) * 2)
    assert_same_layout(mine.state_dict(), other.state_dict())
    with pytest.raises(ValueError, match="only supports 2D"):
        weft.optim.Muon(parameters(weft, arrays("float64", [(3,)])))


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("lr", [1, 0.3])
def test_lbfgs(search: str | None, lr: float) -> None:
    starts = arrays("float64", [(3,), (2, 2)])
    kwargs = {"lr": lr, "line_search_fn": search, "history_size": 4, "max_iter": 6}
    ours, theirs, mine, other = pair("LBFGS", kwargs, starts)

    def loss_of(params: list[Any]) -> Any:
        x = params[0].reshape(-1)
        y = params[1].reshape(-1)
        return ((1 - x) ** 2).sum() + 10 * ((x[1:] - x[:-1] ** 2) ** 2).sum() + (y**4 + y**2).sum()

    def run(params: list[Any], optimizer: Any) -> float:
        def closure() -> Any:
            optimizer.zero_grad()
            loss = loss_of(params)
            loss.backward()
            return loss

        return optimizer.step(closure).item()

    for step in range(6):
        if step == 3:
            fresh = pair("LBFGS", kwargs, values(ours))
            fresh[2].load_state_dict(converted(other.state_dict(), weft))
            ours, mine = fresh[0], fresh[2]
        assert run(ours, mine) == pytest.approx(run(theirs, other), rel=1e-7, abs=1e-9)
    assert_same(ours, theirs, 1e-6)
    assert mine.state_dict()["state"].keys() == other.state_dict()["state"].keys()
    assert mine.state_dict()["state"][0].keys() == other.state_dict()["state"][0].keys()


def through_steps(T: Any, name: str, kwargs: dict[str, Any], start: Any, **more: Any) -> Any:
    """Where three steps lead from a start on which the gradients depend too."""
    p = start.clone() if more else T.nn.Parameter(start.detach().clone())
    options = {k: v for k, v in kwargs.items() if k != "fused"}
    optimizer = getattr(T.optim, name)([p], **options, **more)
    for step in range(3):
        grad = (p * 0.3 + start.sin()) * (1 + 0.1 * step)
        p.grad = grad if more else grad.detach()
        optimizer.step()
    return p


DIFFERENTIABLE = [c for c in SETTINGS if c[0] not in ("Adafactor", "SGD")]


@pytest.mark.parametrize(
    ("name", "kwargs"), DIFFERENTIABLE, ids=[f"{n}-{i}" for i, (n, _) in enumerate(DIFFERENTIABLE)]
)
def test_differentiable(name: str, kwargs: dict[str, Any]) -> None:
    """The same course as the kernels', and derivatives as finite differences have them."""
    start = weft.tensor([0.5, -1.5, 2.0], dtype=weft.float64, requires_grad=True)
    p = through_steps(weft, name, kwargs, start, differentiable=True)
    plain = through_steps(weft, name, kwargs, start)
    np.testing.assert_allclose(p.detach().numpy(), plain.detach().numpy(), rtol=1e-12)
    (p * p).sum().backward()
    h = 1e-6
    for i in range(3):
        ends = []
        for sign in (1, -1):
            moved = start.detach().clone()
            moved[i] += sign * h
            ends.append((through_steps(weft, name, kwargs, moved) ** 2).sum().item())
        assert start.grad[i].item() == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)


@pytest.mark.parametrize("kwargs", [k for n, k in SETTINGS if n == "SGD"])
def test_differentiable_descent(kwargs: dict[str, Any]) -> None:
    results = []
    for T in (weft, torch):
        start = T.tensor([0.5, -1.5, 2.0], dtype=T.float64, requires_grad=True)
        p = through_steps(T, "SGD", kwargs, start, differentiable=True)
        (p * p).sum().backward()
        results.append((p.detach().numpy(), start.grad.numpy()))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-12)


def test_differentiable_products_of_momenta() -> None:
    """Every part of NAdam's state has a gradient, by finite differences."""
    weft.manual_seed(0)
    parts = [weft.rand(3, dtype=weft.float64).requires_grad_() for _ in range(4)]
    product = weft.tensor(0.8, dtype=weft.float64, requires_grad=True)

    def stepped(value: Any, grad: Any, mean: Any, square: Any, product: Any) -> Any:
        p = value.clone()
        p.grad = grad
        optimizer = weft.optim.NAdam([p], lr=0.9, differentiable=True)
        state = {"exp_avg": mean.clone(), "exp_avg_sq": square.clone()}
        step = weft.tensor(3.0, dtype=weft.float64)
        optimizer.state[p].update(step=step, mu_product=product.clone(), **state)
        optimizer.step()
        return p

    assert weft.autograd.gradcheck(stepped, (*parts, product))


def test_differentiable_learning_rate() -> None:
    results = []
    for T in (weft, torch):
        lr = T.tensor(0.1, dtype=T.float64, requires_grad=True)
        p = T.tensor([1.0, 2.0], dtype=T.float64, requires_grad=True).clone()
        p.grad = T.tensor([0.3, 0.4], dtype=T.float64)
        optimizer = T.optim.SGD([p], lr=lr, differentiable=True)
        optimizer.step()
        (p**2).sum().backward()
        results.append(lr.grad.item())
    assert results[0] == pytest.approx(results[1])


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "ASGD", "Rprop", "NAdam"])
def test_lr_as_tensor(name: str) -> None:
    starts = arrays("float64")
    ours, theirs = parameters(weft, starts), parameters(torch, starts)
    mine = getattr(weft.optim, name)(ours, lr=weft.tensor(0.25))
    other = getattr(torch.optim, name)(theirs, lr=torch.tensor(0.25))
    first = schedules.ExponentialLR(mine, 0.5)
    second = torch.optim.lr_scheduler.ExponentialLR(other, 0.5)
    for step in range(4):
        set_grads(weft, ours, step)
        set_grads(torch, theirs, step)
        mine.step()
        other.step()
        first.step()
        second.step()
    assert isinstance(mine.param_groups[0]["lr"], weft.Tensor)
    assert_same(ours, theirs, 1e-6)


# --- the contract of the base class ---


def one(T: Any, *shape: int) -> Any:
    p = T.nn.Parameter(T.ones(*(shape or (2,))))
    p.grad = T.ones(*(shape or (2,)))
    return p


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -1.0}),
        ("SGD", {"weight_decay": -1.0}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"fused": True, "foreach": True}),
        ("Adam", {"lr": -1.0}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"betas": (0.9, 1.5)}),
        ("Adam", {"betas": (0.9, 0)}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"fused": True, "differentiable": True}),
        ("NAdam", {"momentum_decay": -0.2}),
        ("Adagrad", {"lr_decay": -0.5}),
        ("Adadelta", {"rho": 1.1}),
        ("RMSprop", {"momentum": -1.0}),
        ("Rprop", {"etas": (1.0, 0.5)}),
        ("Adafactor", {"d": 0.0}),
        ("SparseAdam", {"lr": 0.0}),
        ("LBFGS", {"lr": -0.1}),
    ],
)
def test_bad_settings(name: str, kwargs: dict[str, Any]) -> None:
    with pytest.raises(Exception) as theirs:
        getattr(torch.optim, name)([one(torch)], **kwargs)
    with pytest.raises(type(theirs.value)) as ours:
        getattr(weft.optim, name)([one(weft)], **kwargs)
    assert str(ours.value).startswith(str(theirs.value))


def bad_parameters(T: Any) -> list[Any]:
    p, q = one(T), one(T)
    return [
        one(T),
        [],
        [1],
        [{"params": {p}}],
        [{"params": [p]}, {"params": [p]}],
        [("a", p), q],
        [{"params": [("a", p)]}, {"params": [q]}],
        [p * 2],
    ]


@pytest.mark.parametrize("case", range(8))
def test_bad_parameters(case: int) -> None:
    with pytest.raises(Exception) as theirs:
        torch.optim.SGD(bad_parameters(torch)[case])
    with pytest.raises(type(theirs.value)) as ours:
        weft.optim.SGD(bad_parameters(weft)[case])
    assert str(ours.value).startswith(str(theirs.value))


def test_named_parameters_and_groups() -> None:
    results = []
    for T in (weft, torch):
        p, q, r = one(T), one(T), one(T)
        optimizer = T.optim.SGD([("p", p), ("q", q)], lr=0.5, momentum=0.9)
        optimizer.add_param_group({"params": [("r", r)], "lr": 0.1})
        optimizer.step()
        state = optimizer.state_dict()
        results.append((p.tolist(), r.tolist(), converted(state, torch), repr(optimizer)))
    assert results[0][:2] == results[1][:2]
    assert results[0][3] == results[1][3]
    assert_same_layout(results[0][2], results[1][2])


def test_duplicates_and_shared_memory() -> None:
    results = []
    for T in (weft, torch):
        p = one(T)
        twin = T.nn.Parameter(p.detach())
        twin.grad = T.ones(2)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            optimizer = T.optim.SGD([p, p, twin], lr=0.1)
        optimizer.step()
        results.append((p.tolist(), [str(w.message) for w in caught]))
    assert results[0] == results[1]


def test_closure_and_zero_grad() -> None:
    p = one(weft)
    optimizer = weft.optim.Adam([p])

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with weft.no_grad():
        assert optimizer.step(closure).item() == 2.0
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_hooks() -> None:
    called = []
    p = one(weft)
    optimizer = weft.optim.SGD([p], lr=0.1)
    from weft.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    handles = [
        register_optimizer_step_pre_hook(lambda o, a, k: called.append("global before")),
        register_optimizer_step_post_hook(lambda o, a, k: called.append("global after")),
        optimizer.register_step_pre_hook(lambda o, a, k: called.append("before")),
        optimizer.register_step_post_hook(lambda o, a, k: called.append("after")),
        optimizer.register_state_dict_pre_hook(lambda o: called.append("save")),
        optimizer.register_state_dict_post_hook(lambda o, s: {**s, "more": 1}),
        optimizer.register_load_state_dict_pre_hook(lambda o, s: called.append("load")),
        optimizer.register_load_state_dict_post_hook(lambda o: called.append("loaded")),
        optimizer.register_load_state_dict_post_hook(
            lambda o: called.append("first"), prepend=True
        ),
    ]
    optimizer.step()
    state = optimizer.state_dict()
    assert state.pop("more") == 1
    optimizer.load_state_dict(state)
    expected = ["global before", "before", "after", "global after", "save", "load", "first"]
    assert called == [*expected, "loaded"]
    for handle in handles:
        handle.remove()
    called.clear()
    optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert not called


def test_pickle_and_deepcopy() -> None:
    p = one(weft, 3)
    optimizer = weft.optim.Adam([p], lr=0.1)
    optimizer.step()
    for twin in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        q = twin.param_groups[0]["params"][0]
        assert q is not p
        q.grad = weft.ones(3)
        twin.step()
        assert twin.state[q]["step"].item() == 2.0
    assert optimizer.state[p]["step"].item() == 1.0


def test_bad_state_dicts() -> None:
    first, second = weft.optim.SGD([one(weft)]), weft.optim.SGD([one(weft), one(weft)])
    with pytest.raises(ValueError, match="doesn't match the size"):
        first.load_state_dict(second.state_dict())
    second.add_param_group({"params": [one(weft)]})
    with pytest.raises(ValueError, match="different number of parameter groups"):
        first.load_state_dict(second.state_dict())


def test_autograd_notices_a_step() -> None:
    p = one(weft)
    loss = (p * p).sum()
    weft.optim.SGD([p], lr=0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("name, kwargs", [*SETTINGS, ("Muon", {})])
@pytest.mark.parametrize("way", ["eager", "small", "compiled"])
def test_autograd_notices_that_states_change(name: str, kwargs: dict[str, Any], way: str) -> None:
    """A loss that was computed from a state has no gradient any more once a step has changed it."""
    native = weft.backends.native.get()
    params = [weft.ones(2, 2, requires_grad=True) for _ in range(3)]
    optimizer = getattr(weft.optim, name)(params, **kwargs)

    def step() -> None:
        optimizer.zero_grad()
        sum((p**3).sum() for p in params).backward()
        optimizer.step()

    if way == "compiled":
        step = weft.compile(step)
    try:
        if way == "small":
            weft.backends.native.set("numpy")
        for _ in range(4):
            step()
        w = weft.ones(2, 2, requires_grad=True)
        for p in params:
            for state in optimizer.state[p].values():
                if not isinstance(state, weft.Tensor):
                    continue
                loss, before = (w * state).sum(), state.clone()
                step()
                if not weft.equal(state, before):
                    with pytest.raises(RuntimeError, match=f"overwritten by (step|{name})_"):
                        loss.backward()
    finally:
        weft.backends.native.set(native)


def test_state_may_be_changed_from_outside() -> None:
    """Each of these must count at the next step, although the state lies in one array."""

    def change(T: Any, optimizer: Any, params: list[Any], how: int) -> None:
        own = optimizer.state[params[0]]
        if how == 0:
            own["step"].fill_(0.0)
        elif how == 1:
            own["exp_avg"] = T.ones(2)
        elif how == 2:
            optimizer.state[params[0]] = {}
        elif how == 3:
            optimizer.state.clear()
        elif how == 4:
            params[0].data = T.zeros(2)
        elif how == 5:
            own["exp_avg"].zero_()
        elif how == 6:
            optimizer.param_groups[0]["lr"] = 0.01
        elif how == 7:
            optimizer.param_groups[0]["params"] = params[1:]

    for how in range(8):
        results = []
        for T in (weft, torch):
            params = [one(T), one(T), one(T)]
            optimizer = T.optim.Adam(params, lr=0.1)
            for step in range(4):
                if step == 2:
                    change(T, optimizer, params, how)
                for p in params:
                    p.grad = p.detach() * 0.5
                optimizer.step()
            results.append([p.tolist() for p in params])
        np.testing.assert_allclose(results[0], results[1], rtol=1e-5, err_msg=str(how))


def exchange(T: Any, optimizer: Any, params: list[Any], how: str) -> None:
    """What programs do to the lists of parameters, as when points are added to a scene."""
    listed, fresh = optimizer.param_groups[0]["params"], one(T)
    if how == "one for another":
        listed[0] = params[0] = fresh
    elif how == "with its state":
        own = optimizer.state.pop(listed[0], None)
        if own is not None:
            optimizer.state[fresh] = own
        listed[0] = params[0] = fresh
    elif how == "turned around":
        listed.reverse()
    elif how == "one less":
        listed.pop()
    elif how == "one more":
        listed.append(fresh)
        params.append(fresh)
    elif how == "others":
        listed[:] = params[:] = [one(T), one(T), one(T)]


@pytest.mark.parametrize(
    "how",
    ["one for another", "with its state", "turned around", "one less", "one more", "others"],
)
@pytest.mark.parametrize(("name", "kwargs"), SETTINGS, ids=IDS)
def test_parameters_may_be_exchanged_in_their_list(
    name: str, kwargs: dict[str, Any], how: str
) -> None:
    results = []
    for T in (weft, torch):
        params = [one(T), one(T), one(T)]
        optimizer = getattr(T.optim, name)(params[:], **kwargs)
        for step in range(5):
            if step == 2:
                exchange(T, optimizer, params, how)
            for k, p in enumerate(params):
                p.grad = p.detach() * 0.5 + 0.1 * k
            optimizer.step()
        results.append([p.tolist() for p in params])
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-7)


def test_alternating_gradients_keep_their_units() -> None:
    params = [one(weft) for _ in range(6)]
    optimizer = weft.optim.SGD(params, lr=0.1)
    plans = []
    for step in range(12):
        for i, p in enumerate(params):
            p.grad = weft.ones(2) if i % 3 == step % 3 else None
        optimizer.step()
        plans.append(optimizer._plans[0])
    assert plans[-1] is plans[-2] is plans[-3] is plans[-4]
    np.testing.assert_allclose([p.tolist() for p in params], [[0.6, 0.6]] * 6, rtol=1e-6)


@pytest.mark.parametrize(("name", "kwargs"), SETTINGS, ids=IDS)
def test_second_step_allocates_nothing(name: str, kwargs: dict[str, Any]) -> None:
    params = [weft.nn.Parameter(weft.ones(*s)) for s in [(300, 400), (400,), (50, 50), (3,)]]
    for p in params:
        p.grad = weft.ones(*p.shape)
    optimizer = getattr(weft.optim, name)(params, **kwargs)
    optimizer.step()
    optimizer.step()
    tracemalloc.start()
    try:
        optimizer.step()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The largest parameter alone has 480,000 bytes; NumPy's broadcasting has buffers of its own.
    assert peak < (100_000 if name == "Adafactor" else 20_000)


def test_capturable_and_sparse_refuse() -> None:
    optimizer = weft.optim.Adam([one(weft)], capturable=True)
    with pytest.raises(AssertionError, match="If capturable=True"):
        optimizer.step()
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        weft.optim.SparseAdam([one(weft)]).step()


def test_swapped_in_state() -> None:
    p, q = one(weft), one(weft)
    optimizer = weft.optim.Adam([p], lr=0.1)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    before = p.tolist()
    with weft.optim.swap_in_optimizer_params_and_state(optimizer, {"q": q}, state):
        optimizer.step()
    assert p.tolist() == before
    assert q.tolist() != [1.0, 1.0]
    assert optimizer.state[p]["step"].item() == 1.0
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 2.0


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_complex_lbfgs(search: str | None) -> None:
    """A complex parameter counts as two real ones; one without a gradient stays where it is."""
    start = arrays("complex128", [(3,)])[0]
    results = []
    for T in (weft, torch):
        p, q = parameters(T, [start, np.ones(2)])
        optimizer = T.optim.LBFGS([p, q], lr=0.5, line_search_fn=search, max_iter=5)

        def closure(p: Any = p, optimizer: Any = optimizer) -> Any:
            optimizer.zero_grad()
            loss = ((p - 1).abs() ** 4).sum()
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)
        assert q.tolist() == [1.0, 1.0]
        results.append(p.detach().numpy())
    np.testing.assert_allclose(results[0], results[1], rtol=1e-8)


def test_differentiable_complex() -> None:
    start = arrays("complex128", [(3,)])[0]
    results = []
    for T in (weft, torch):
        x = T.from_numpy(start.copy()).requires_grad_()
        p = x.clone()
        optimizer = T.optim.RMSprop([p], differentiable=True)
        p.grad = x * 2
        optimizer.step()
        (p.abs() ** 2).sum().backward()
        results.append((x.grad.numpy(), p.detach().numpy()))
    np.testing.assert_allclose(results[0], results[1], rtol=1e-9)


def test_models_learn() -> None:
    """A network trained by Adam has the same losses as PyTorch's, for 20 steps."""
    rng = np.random.default_rng(3)
    data = rng.normal(size=(16, 5)).astype(np.float32)
    results = []
    for T in (weft, torch):
        model = T.nn.Sequential(T.nn.Linear(5, 8), T.nn.Tanh(), T.nn.Linear(8, 1))
        fixed = np.random.default_rng(4)
        with T.no_grad():
            for p in model.parameters():
                p.copy_(T.from_numpy(fixed.normal(size=tuple(p.shape)).astype(np.float32)))
        optimizer = T.optim.AdamW(model.named_parameters(), lr=0.01)
        x = T.from_numpy(data)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        results.append(losses)
    assert results[0] == pytest.approx(results[1], rel=1e-4)
    assert results[0][-1] < results[0][0]


@pytest.mark.parametrize("options", ({}, {"foreach": False}, {"differentiable": True}))
@pytest.mark.parametrize("size", (3, 20_000))
@pytest.mark.parametrize("steps", (0, 2))
@pytest.mark.parametrize(
    "name", ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "RAdam", "Rprop", "Adafactor")
)
def test_a_step_that_fails_changes_nothing(
    name: str, steps: int, size: int, options: dict[str, bool]
) -> None:
    if "differentiable" in options and (steps or name == "Adafactor"):
        pytest.skip("only the first step of a leaf")
    params = [weft.nn.Parameter(weft.ones(n, 2)) for n in (size, size, 4)]
    made = getattr(weft.optim, name)
    groups = [{"params": params[:1]}, {"params": params[1:]}]
    optimizer = made(groups, lr=0.1, **({} if name == "Adafactor" else options))
    for _ in range(steps):
        for p in params:
            p.grad = weft.full(p.shape, 0.5)
        optimizer.step()

    def seen() -> list[Any]:
        held = [optimizer.state.get(p, {}) for p in params]
        states = [{k: np.array(v).tolist() for k, v in own.items()} for own in held]
        return [[p.tolist() for p in params], states]

    before = seen()
    for p in params:
        p.grad = weft.full(p.shape, 0.5)
    params[1].data = weft.ones(size, 3)
    before[0][1] = params[1].tolist()
    with pytest.raises(RuntimeError, match="must match the size"):
        optimizer.step()
    assert seen() == before


@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor", "RMSprop"])
def test_elements_that_share_memory_are_not_updated(name: str) -> None:
    x = weft.ones(1, 2).expand(2, 2).requires_grad_()
    (x * x).sum().backward()
    with pytest.raises(RuntimeError, match="single memory location"):
        getattr(weft.optim, name)([x], lr=0.1).step()
    assert x.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_rprop_leaves_a_parameter_whose_gradient_is_nan():
    # As PyTorch: the sign of a NaN is zero, and neither the step size nor the parameter moves.
    p = weft.nn.Parameter(weft.tensor([1.0, 2.0, 3.0]))
    optimizer = weft.optim.Rprop([p])
    for _ in range(3):
        p.grad = weft.tensor([1.0, float("nan"), -1.0])
        optimizer.step()
    assert np.allclose(p.detach().numpy(), [0.9636, 2.0, 3.0364])
    assert np.allclose(optimizer.state[p]["step_size"].numpy(), [0.0144, 0.01, 0.0144])
