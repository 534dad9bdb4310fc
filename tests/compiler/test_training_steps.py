"""Training steps that a compiler could get wrong: each runs compiled and eagerly, step by step.

Everything that can be seen is compared after every call: the loss, parameters, gradients, the
optimizer's state and versions. In double precision, so that rounding does not decide.
"""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import native_matching
from weft.compiler.updates import Update
from weft.core.errors import describe_position

F = nn.functional
CASES: dict[str, Any] = {}


def case(make: Any, calls: int = 10, name: str = "") -> Any:
    """Register a step: ``make()`` gives a function of the call's number, and what can be seen."""
    CASES[name or make.__name__] = (make, calls)
    return make


def network(opt: str = "Adam", **settings: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    o = getattr(torch.optim, opt)(m.parameters(), **({"lr": 0.1} | settings))
    return m, o, torch.randn(5, 4).double(), torch.randn(5, 2).double()


def seen(m: Any, o: Any) -> Any:
    """What can be seen of a model and its optimizer."""

    def look() -> list[Any]:
        params = list(m.parameters())
        grads = [None if p.grad is None else p.grad for p in params]
        states = [v for own in o.state.values() for v in own.values()]
        return [*params, *grads, *states, [p._version for p in params]]

    return look


def kept(value: Any) -> Any:
    """A copy of what was seen, as arrays and numbers."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().numpy()  # so that none of the program's memory is let out
    return [kept(v) for v in value] if isinstance(value, (list, tuple)) else value


def course(make: Any, calls: int, how: str) -> list[Any]:
    torch.manual_seed(0)
    function, look = make()
    run = torch.compile(function) if how == "compiled" else function
    found = []
    with torch.compiler.auto(how == "automatic"):
        for k in range(calls):
            try:
                out = run(k)
            except Exception as error:
                out = f"{type(error).__name__}: {str(error).partition(':')[0]}"
            found.append(kept([out, look()]))
    return found


@pytest.mark.parametrize(
    ("opt", "settings"),
    [
        ("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("Adam", {"maximize": True}),
        ("SGD", {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("AdamW", {}), ("NAdam", {}),
        ("RAdam", {}), ("Adagrad", {}), ("RMSprop", {"momentum": 0.9, "centered": True}),
        ("Adadelta", {}), ("Adamax", {}), ("ASGD", {}), ("Rprop", {}), ("Adafactor", {}),
    ],
)  # fmt: skip
def test_every_rule(opt: str, settings: dict[str, Any]) -> None:
    def make() -> Any:
        m, o, x, y = network(opt, **settings)
        return lambda k: step(m, o, x, y), seen(m, o)

    compare(make, 7)


def step(m: Any, o: Any, x: Any, y: Any) -> Any:
    o.zero_grad()
    loss = F.mse_loss(m(x), y)
    loss.backward()
    o.step()
    return loss


@case
def scheduler_inside() -> Any:
    m, o, x, y = network()
    schedule = torch.optim.lr_scheduler.StepLR(o, 2, 0.5)

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        schedule.step()
        return loss

    return run, seen(m, o)


@case
def rate_changed_after_the_step() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        o.param_groups[0]["lr"] = 0.1 / (k + 1)
        return loss

    return run, seen(m, o)


@case
def rate_as_a_tensor() -> Any:
    m, o, x, y = network(lr=torch.tensor(0.1))

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        o.param_groups[0]["lr"] = torch.tensor(0.1 / (k + 1))
        return loss

    return run, seen(m, o)


@case
def parameters_exchanged_in_the_list() -> Any:
    m, _, x, y = network()
    o = torch.optim.SGD(m[0].parameters(), lr=0.1)

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        if k == 5:
            o.param_groups[0]["params"][:] = m[2].parameters()
        return loss

    return run, seen(m, o)


@case
def points_added_and_taken_away() -> Any:
    """As when a scene of points is learned: parameters and states are exchanged for longer ones."""
    first = {name: nn.Parameter(torch.randn(4, n).double()) for name, n in (("xyz", 3), ("rgb", 2))}
    o = torch.optim.Adam([{"params": [p], "lr": 0.1} for p in first.values()])

    def changed(change: Any) -> None:
        for group in o.param_groups:
            (old,) = group["params"]
            own = o.state.pop(old)
            for name in ("exp_avg", "exp_avg_sq"):
                own[name] = change(own[name])
            group["params"][0] = nn.Parameter(change(old.detach()).requires_grad_())
            o.state[group["params"][0]] = own

    def run(k: int) -> Any:
        o.zero_grad()
        loss = sum((group["params"][0] ** 2).sum() for group in o.param_groups)
        loss.backward()
        o.step()
        if k % 4 == 2:
            changed(lambda t: torch.cat([t, torch.zeros(2, t.shape[1]).double()]))
        if k % 4 == 3:
            changed(lambda t: t[: t.shape[0] - 2])
        return loss

    def look() -> list[Any]:
        params = [p for group in o.param_groups for p in group["params"]]
        return [*params, *(v for p in params for v in o.state[p].values())]

    return run, look


@case
def gradients_cleared_after_the_step() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = F.mse_loss(m(x), y)
        loss.backward()
        o.step()
        o.zero_grad()
        return loss

    return run, seen(m, o)


@case
def another_tensor_on_a_parameters_memory() -> Any:
    m, o, x, y = network()
    w, d = m[0].weight.detach(), m[2].weight.data
    return lambda k: step(m, o, x, y) + w.sum() + d.sum(), seen(m, o)


@case
def two_steps_in_one_call() -> Any:
    m, o, x, y = network()
    return lambda k: step(m, o, x, y) + step(m, o, x, y), seen(m, o)


@case
def clipped() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        o.step()
        return loss

    return run, seen(m, o)


@case
def gradients_that_add_up() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = F.mse_loss(m(x), y)
        loss.backward()
        if k % 2:
            o.step()
            o.zero_grad()
        return loss

    return run, seen(m, o)


@case
def frozen_midway() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        m[0].weight.requires_grad_(k < 3)
        return step(m, o, x, y)

    return run, seen(m, o)


@case
def a_group_is_added() -> Any:
    m, o, x, y = network()
    scale = nn.Parameter(torch.ones(2).double())
    m.register_parameter("scale", scale)

    def run(k: int) -> Any:
        if k == 3:
            o.add_param_group({"params": [scale]})
        return step(lambda x: m(x) * scale, o, x, y)

    return run, seen(m, o)


@case
def optimizer_state_is_loaded() -> Any:
    m, o, x, y = network()
    saved: dict[str, Any] = {}

    def run(k: int) -> Any:
        if k == 2:
            saved.update(copy.deepcopy(o.state_dict()))
        if k == 5:
            o.load_state_dict(saved)
        return step(m, o, x, y)

    return run, seen(m, o)


@case
def a_hook_on_the_step() -> Any:
    m, o, x, y = network()
    log: list[int] = []

    def run(k: int) -> Any:
        if k == 3:
            o.register_step_post_hook(lambda *args: log.append(k))
        return step(m, o, x, y)

    look = seen(m, o)
    return run, lambda: [look(), list(log)]


@case
def moving_averages() -> Any:
    m, o, x, y = network()
    averages = [p.detach().clone() for p in m.parameters()]

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        with torch.no_grad():
            for a, p in zip(averages, m.parameters(), strict=True):
                a.mul_(0.9).add_(p, alpha=0.1)
        return loss

    look = seen(m, o)
    return run, lambda: [look(), averages]


def between(change: Any) -> Any:
    """A parameter gets other values between two uses."""

    def make() -> Any:
        m, o, x, _ = network()
        given = change(m)

        def run(k: int) -> Any:
            first = m(x).sum()
            if k > 1:
                given(k)
            return first + m(x).sum()

        return run, seen(m, o)

    return make


def set_data(m: Any) -> Any:
    def given(k: int) -> None:
        m[0].weight.data = torch.ones(8, 4).double() * k

    return given


def written_from_numpy(m: Any) -> Any:
    memory = m[0].weight.detach().numpy()
    return lambda k: memory.fill(k)


def loads(m: Any) -> Any:
    state = {k: torch.randn_like(v) for k, v in m.state_dict().items()}
    return lambda k: m.load_state_dict(state)


case(between(set_data), name="data replaced")
case(between(written_from_numpy), name="written by NumPy")
case(between(loads), name="weights loaded")
case(
    between(lambda m: lambda k: m[0].weight.data.copy_(torch.ones(8, 4).double() * k)),
    name="written by way of data",
)
case(between(lambda m: lambda k: m[0].weight.detach().numpy().fill(k)), name="handed out to NumPy")
case(between(lambda m: lambda k: m[0].weight.untyped_storage().fill_(k)), name="storage filled")


@case
def two_networks() -> Any:
    g, d = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))
    both = nn.ModuleList([g, d]).double()
    of_g, of_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    real = torch.randn(5, 4).double()

    def run(k: int) -> Any:
        of_d.zero_grad()
        fake = g(torch.randn(5, 3).double())
        loss_d = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
        loss_d.backward()
        of_d.step()
        of_g.zero_grad()
        loss_g = F.softplus(-d(fake)).mean()
        loss_g.backward()
        of_g.step()
        return loss_d + loss_g

    return run, lambda: list(both.parameters())


@case
def a_step_is_left_out() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x) * (float("nan") if k == 3 else 1.0), y)
        loss.backward()
        if torch.isfinite(loss):
            o.step()
        return loss

    return run, seen(m, o)


@case
def an_error_after_the_step() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        if k == 3:
            raise ValueError("stopped")
        return loss

    return run, seen(m, o)


@case
def gradients_replaced() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        m[0].weight.grad = m[0].weight.grad * 2
        m[0].bias.grad = None
        o.step()
        return loss

    return run, seen(m, o)


@case
def batches_of_several_sizes() -> Any:
    m, o, _, _ = network()
    batches = [torch.randn(n, 4).double() for n in (5, 5, 3, 5, 3, 7, 3, 5, 3, 7)]
    return lambda k: step(m, o, batches[k], torch.zeros(len(batches[k]), 2).double()), seen(m, o)


@case
def a_closure() -> Any:
    m, _, x, y = network()
    o = torch.optim.LBFGS(m.parameters(), lr=0.5, max_iter=3)

    def closure() -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        return loss

    return lambda k: o.step(closure), lambda: list(m.parameters())


@case
def a_state_is_replaced_and_read() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = step(m, o, x, y)
        own = o.state[m[0].weight]
        if k == 3:
            own["exp_avg"] = own["exp_avg"].clone().zero_()
        return loss + own["exp_avg"].sum() + own["step"]

    return run, seen(m, o)


@case
def tied_weights() -> Any:
    m, _, x, y = network()
    other = nn.Linear(4, 8).double()
    other.weight = m[0].weight
    params = {id(p): p for p in (*m.parameters(), *other.parameters())}
    o = torch.optim.Adam(params.values())
    return lambda k: step(lambda x: m(x) + other(x).mean(), o, x, y), seen(m, o)


@case
def parameters_changed_around_the_step() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        with torch.no_grad():
            m[0].weight.mul_(0.99)
        o.step()
        with torch.no_grad():
            m[0].weight.clamp_(-1, 1)
        return loss

    return run, seen(m, o)


@case
def activations_kept() -> Any:
    m, o, x, y = network()
    found: list[Any] = []

    def run(k: int) -> Any:
        o.zero_grad()
        found.append(m[0](x))
        loss = F.mse_loss(m[2](m[1](found[-1])), y)
        loss.backward()
        o.step()
        return loss

    look = seen(m, o)
    return run, lambda: [look(), found]


@case
def backward_again_after_the_step() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward(retain_graph=True)
        o.step()
        loss.backward()
        return loss

    return run, seen(m, o)


@case
def a_parameter_changed_before_backward() -> Any:
    m, o, x, y = network()

    def run(k: int) -> Any:
        loss = F.mse_loss(m(x), y)
        with torch.no_grad():
            m[2].weight.add_(1)
        loss.backward()
        return loss

    return run, seen(m, o)


def compare(make: Any, calls: int, how: str = "compiled") -> None:
    eager, compiled = (course(make, calls, way) for way in ("eagerly", how))
    for k, (a, b) in enumerate(zip(eager, compiled, strict=True)):
        agree(a, b, f"call {k}")


def agree(a: Any, b: Any, where: str) -> None:
    if isinstance(a, list):
        assert len(a) == len(b), where
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            agree(x, y, f"{where}, {k}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-12, err_msg=where)
    else:
        assert a == b, where


@pytest.mark.parametrize("how", ["compiled", "automatic"])
@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_are_eager_steps(name: str, how: str) -> None:
    make, calls = CASES[name]
    compare(make, calls, how)


def test_a_whole_step_is_one_program() -> None:
    m, o, x, y = network()
    run = torch.compile(lambda: step(m, o, x, y))
    for _ in range(4):
        run()
    assert run.learned.reasons == {"an optimizer's step": 3}
    assert "Adam of 4 parameters in one call" in run.explain()


def test_a_gradient_past_a_changed_parameter_is_an_error() -> None:
    def function(w: Any, x: Any) -> Any:
        y = (w * x * w).sum()
        with torch.no_grad():
            w.add_(1)
        return y

    compiled = torch.compile(function)
    for _ in range(4):
        w = nn.Parameter(torch.ones(3))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            compiled(w, torch.ones(3)).backward()


def changes_of(tensor: Any) -> list[Any]:
    """The version of a tensor, and what its last changes were and on which lines they were made."""
    marks = [(name, describe_position(code, at)) for _, name, code, at, _ in tensor._vc[1:]]
    return [tensor._version, *marks]


@pytest.mark.parametrize("opt", ("SGD", "Adam"))
def test_steps_are_counted_as_in_eager_mode(opt: str) -> None:
    """In the versions of parameters and states, whatever has changed these before."""
    torch.manual_seed(0)
    first, _, x, y = network()
    model, twin = copy.deepcopy(first), copy.deepcopy(first)
    settings = {"lr": 0.1} | ({"momentum": 0.9} if opt == "SGD" else {})
    optimizer, other = (
        getattr(torch.optim, opt)(m.parameters(), **settings) for m in (model, twin)
    )

    def stepping(model: Any, optimizer: Any) -> Any:
        def step() -> Any:
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()

        return step

    compiled, eager = torch.compile(stepping(model, optimizer)), stepping(twin, other)
    for k in range(9):
        if k in (4, 6, 7):
            for m in (model, twin):
                with torch.no_grad():
                    for _ in range(k - 3):
                        m[0].weight.mul_(0.5)
        compiled()
        eager()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.allclose(p, q)
            assert changes_of(p) == changes_of(q)
            for name, state in optimizer.state[p].items():
                assert changes_of(state) == changes_of(other.state[q][name])


def test_the_next_age_of_parameters_is_that_of_the_python_code() -> None:
    """Compiled code reads counters of one age; all else is left to Python."""
    made = native_matching.functions()
    if made is None:
        pytest.skip("unsupported object layout")
    update: Any = Update.__new__(Update)
    ages = (0.0, 1.0, 7.0, 2.0**24 - 1, 2.0**24, 1e30, float("nan"), float("inf"))
    chosen = random.Random(0)
    given = 0
    for _ in range(400):
        age, count = chosen.choice(ages), chosen.randrange(1, 5)
        dtype = chosen.choice((np.float32, np.float64))
        arrays: list[Any] = [np.array(age, dtype) for _ in range(count)]
        if chosen.random() < 0.3:
            arrays[chosen.randrange(count)] = chosen.choice(
                (np.array(3.0, np.float32), np.array([age], dtype), np.array(3), np.float32(age))
            )
        update.ages = chosen.sample(range(count), chosen.randrange(1, count + 1))
        expected = update.age_of(arrays)
        found = made.next_age(arrays, native_matching.words(update.ages))
        assert found is None or found == expected
        given += found is not None
        plain = all(a.__class__ is np.ndarray and not a.shape for a in arrays)
        if plain and all(a.dtype.kind == "f" for a in arrays):
            assert found == expected
    assert given > 100
