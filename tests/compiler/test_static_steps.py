"""Static steps against eager ones, while the program changes between them what is guarded.

``static=True`` is a promise that Python does nothing else inside of the step. What happens between
the calls is no part of it: rates, weights, states, modes, gradients and inputs may change there.
Everything that can be seen is compared after every call, and where the generators stand.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler.static import StaticStep

F = nn.functional
CASES: dict[str, Any] = {}
CALLS = 9


def case(make: Any) -> Any:
    """Register ``make()``: a step, arguments for a call, what happens after it, what is seen."""
    CASES[make.__name__] = make
    return make


def network(opt: str = "Adam", *extra: nn.Module, **settings: Any) -> Any:
    m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), *extra, nn.Linear(8, 2)).double()
    o = getattr(torch.optim, opt)(m.parameters(), **({"lr": 0.1} | settings))
    return m, o


def data(k: int, rows: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(k)
    x, y = rng.standard_normal((rows, 4)), rng.standard_normal((rows, 2))
    return torch.tensor(x), torch.tensor(y)


def trained(m: Any, o: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        m.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        o.step()
        return loss

    return step


def nothing(k: int) -> None:
    """Nothing happens between the calls."""


def seen(*things: Any) -> Any:
    """What can be seen of models and optimizers."""

    def look() -> list[Any]:
        found: list[Any] = []
        for thing in things:
            if isinstance(thing, nn.Module):
                params = list(thing.parameters())
                found += [*params, *thing.buffers(), *(p.grad for p in params)]
                found += [p._version for p in params]
            elif isinstance(thing, torch.optim.Optimizer):
                found += [v for own in thing.state.values() for v in own.values()]
            else:
                found.append(thing)
        return found

    return look


def kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone().numpy()
    return [kept(v) for v in value] if isinstance(value, (list, tuple)) else value


def course(make: Any, static: bool) -> list[Any]:
    torch.manual_seed(0)
    step, given, between, look = make()
    run = torch.compile(step, static=True) if static else step
    found = []
    for k in range(CALLS):
        try:
            out = run(*given(k))
        except Exception as error:
            out = f"{type(error).__name__}: {str(error).partition(':')[0]}"
        found.append(kept([out, look()]))
        between(k)
    return [*found, torch.rand(2).tolist()]


def agree(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(agree, a, b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True)
    return a == b


@case
def plain() -> Any:
    m, o = network()
    return trained(m, o), data, nothing, seen(m, o)


@case
def momentum() -> Any:
    m, o = network("SGD", momentum=0.9, nesterov=True, weight_decay=0.1)
    return trained(m, o), data, nothing, seen(m, o)


@case
def a_schedule_outside() -> Any:
    m, o = network()
    schedule = torch.optim.lr_scheduler.StepLR(o, 2, 0.5)
    return trained(m, o), data, lambda k: schedule.step(), seen(m, o)


@case
def other_settings() -> Any:
    m, o = network("SGD", momentum=0.9)

    def between(k: int) -> None:
        o.param_groups[0]["momentum"] = 0.9 - 0.1 * (k % 3)
        o.param_groups[0]["weight_decay"] = 0.1 * (k == 5)
        o.param_groups[0]["maximize"] = k == 6

    return trained(m, o), data, between, seen(m, o)


@case
def weights_loaded() -> Any:
    m, o = network()
    first = copy.deepcopy(m.state_dict())
    return trained(m, o), data, lambda k: k == 5 and m.load_state_dict(first), seen(m, o)


@case
def states_loaded() -> Any:
    m, o = network()
    held: list[Any] = []

    def between(k: int) -> None:
        if k == 3:
            held.append(copy.deepcopy(o.state_dict()))
        if k == 5:
            o.load_state_dict(held[0])

    return trained(m, o), data, between, seen(m, o)


@case
def weights_written() -> Any:
    m, o = network()

    def between(k: int) -> None:
        with torch.no_grad():
            if k == 3:
                m[0].weight.mul_(0.5)
            if k == 5:
                m[0].weight.data = m[0].weight.data * 2
            if k == 6:
                m[0].bias.detach().numpy()[:] = 1

    return trained(m, o), data, between, seen(m, o)


@case
def a_parameter_replaced() -> Any:
    m, o = network("SGD")

    def between(k: int) -> None:
        if k == 4:
            m[0].weight = nn.Parameter(torch.ones(8, 4).double())

    return trained(m, o), data, between, seen(m, o)


@case
def a_layer_frozen() -> Any:
    m, o = network()
    return trained(m, o), data, lambda k: m[0].requires_grad_(k not in (3, 4)), seen(m, o)


@case
def a_layer_replaced() -> Any:
    m, o = network()

    def between(k: int) -> None:
        if k == 4:
            m[1] = nn.ReLU()

    return trained(m, o), data, between, seen(m, o)


@case
def a_parameter_added() -> Any:
    m, o = network()

    def between(k: int) -> None:
        if k == 4:
            m[2].register_parameter("bias", nn.Parameter(torch.ones(2).double()))
            o.add_param_group({"params": [m[2].bias]})

    return trained(m, o), data, between, seen(m, o)


@case
def dropout() -> Any:
    m, o = network("Adam", nn.Dropout(0.5))
    return trained(m, o), data, nothing, seen(m, o)


@case
def dropout_switched() -> Any:
    m, o = network("Adam", nn.Dropout(0.5))
    return trained(m, o), data, lambda k: m.train(k % 4 != 2), seen(m, o)


@case
def dropout_reseeded() -> Any:
    m, o = network("Adam", nn.Dropout(0.5))
    return trained(m, o), data, lambda k: k == 5 and torch.manual_seed(7), seen(m, o)


@case
def batch_norm() -> Any:
    m, o = network("Adam", nn.BatchNorm1d(8))
    return trained(m, o), data, lambda k: m.train(k != 4), seen(m, o)


@case
def batch_norm_reset() -> Any:
    m, o = network("Adam", nn.BatchNorm1d(8))
    return trained(m, o), data, lambda k: k == 4 and m[2].reset_running_stats(), seen(m, o)


@case
def drawn_inside() -> Any:
    m, o = network()
    inner = trained(m, o)
    return (
        lambda x, y: inner(x + torch.randn(5, 4).double() * 0.1, y),
        *(data, nothing, seen(m, o)),
    )


@case
def a_generator_inside() -> Any:
    m, o = network()
    inner, own = trained(m, o), torch.Generator().manual_seed(3)
    return (
        lambda x, y: inner(x + torch.randn(5, 4, generator=own).double() * 0.1, y),
        *(data, nothing, seen(m, o)),
    )


@case
def other_sizes() -> Any:
    m, o = network()
    return trained(m, o), lambda k: data(k, 3 + k % 2), nothing, seen(m, o)


@case
def other_layouts() -> Any:
    m, o = network()

    def given(k: int) -> Any:
        x, y = data(k)
        return (x.t().contiguous().t() if k % 2 else x), y

    return trained(m, o), given, nothing, seen(m, o)


@case
def one_tensor_twice() -> Any:
    m, o = network()

    def step(x: Any, y: Any) -> Any:
        o.zero_grad()
        loss = (m(x).sum(1) * y.sum(1)).mean()
        loss.backward()
        o.step()
        return loss

    def given(k: int) -> Any:
        x, _ = data(k)
        return x, x if k % 2 else x + 1

    return step, given, nothing, seen(m, o)


@case
def gradients_by_hand() -> Any:
    """No ``zero_grad`` in the step: what is there is added to, or not there."""
    m, o = network()

    def step(x: Any, y: Any) -> Any:
        loss = F.mse_loss(m(x), y)
        loss.backward()
        o.step()
        return loss

    return step, data, lambda k: k % 3 == 2 and o.zero_grad(), seen(m, o)


@case
def clipped() -> Any:
    m, o = network()

    def step(x: Any, y: Any) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        o.step()
        return loss, norm

    return step, data, nothing, seen(m, o)


@case
def two_steps_of_one_model() -> Any:
    m, o = network()
    one, other = trained(m, o), torch.compile(trained(m, o), static=True)
    return one, data, lambda k: other(*data(100 + k)), seen(m, o)


@case
def nothing_is_recorded() -> Any:
    m, _ = network("Adam", nn.Dropout(0.3))

    def given(k: int) -> Any:
        m.train(k % 3 != 1)
        return (data(k)[0],)

    def step(x: Any) -> Any:
        with torch.no_grad():
            return m(x).softmax(1)

    return step, given, nothing, seen(m)


@case
def results_are_kept() -> Any:
    """A result of one call is not overwritten by the next."""
    m, o = network()
    inner, held = trained(m, o), []

    def step(x: Any, y: Any) -> Any:
        loss = inner(x, y)
        return loss, loss * 2

    def given(k: int) -> Any:
        return data(k)

    def between(k: int) -> None:
        held.append([p.grad for p in m.parameters()])

    return step, given, between, lambda: [*seen(m, o)(), [list(h) for h in held]]


@case
def a_wrong_target() -> Any:
    """A call that fails leaves everything as eager mode does."""
    m, o = network()

    def step(x: Any, y: Any) -> Any:
        o.zero_grad()
        loss = F.nll_loss(m(x).log_softmax(1), y)
        loss.backward()
        o.step()
        return loss

    def given(k: int) -> Any:
        return data(k)[0], torch.full((5,), 7 if k == 6 else k % 2)

    return step, given, nothing, seen(m, o)


@case
def not_a_number() -> Any:
    m, o = network()

    def given(k: int) -> Any:
        x, y = data(k)
        return (x / 0 if k == 5 else x), y

    return trained(m, o), given, nothing, seen(m, o)


@case
def number_arguments() -> Any:
    m, o = network()

    def step(x: Any, y: Any, scale: float) -> Any:
        o.zero_grad()
        loss = F.mse_loss(m(x), y) * scale
        loss.backward()
        o.step()
        return loss

    return step, lambda k: (*data(k), 0.5 if k % 2 else 1), nothing, seen(m, o)


@case
def inside_of_no_grad_now_and_then() -> Any:
    m, _ = network()

    def step(x: Any) -> Any:
        return m(x).sum()

    def run(x: Any) -> Any:
        return step(x).detach()

    def given(k: int) -> Any:
        torch.set_grad_enabled(k % 2 == 0)
        return (data(k)[0],)

    return run, given, lambda k: torch.set_grad_enabled(True), seen(m)


@case
def frozen_by_the_optimizer() -> Any:
    m, o = network()

    def between(k: int) -> None:
        if k == 4:
            o.param_groups[0]["params"].pop()

    return trained(m, o), data, between, seen(m, o)


@case
def two_groups() -> Any:
    m, _ = network()
    groups = [{"params": [*m[0].parameters()], "lr": 0.01}, {"params": [*m[2].parameters()]}]
    o = torch.optim.AdamW(groups, lr=0.1)

    def between(k: int) -> None:
        o.param_groups[k % 2]["lr"] *= 0.5

    return trained(m, o), data, between, seen(m, o)


@case
def tied_weights() -> Any:
    m, o = network("SGD")
    m[2].weight = nn.Parameter(m[0].weight[:2].detach().repeat(1, 2))
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m.append(nn.Linear(2, 8).double())
    m[3].weight = nn.Parameter(torch.zeros(8, 2).double())
    m.append(m[2])
    return trained(m, o), data, nothing, seen(m, o)


@case
def global_values() -> Any:
    """Buffers of a module, written between the calls."""
    m, o = network()
    m.register_buffer("scale", torch.ones(()).double())
    inner = F.mse_loss

    def step(x: Any, y: Any) -> Any:
        o.zero_grad()
        loss = inner(m(x) * m.scale, y)
        loss.backward()
        o.step()
        return loss

    return step, data, lambda k: m.scale.add_(0.1), seen(m, o)


@case
def a_model_copied() -> Any:
    m, o = network()
    copies: list[Any] = []

    def between(k: int) -> None:
        copies.append(list(copy.deepcopy(m).parameters()))

    return trained(m, o), data, between, seen(m, o, copies)


@case
def a_group_added() -> Any:
    m, _ = network()
    o = torch.optim.SGD(m[0].parameters(), lr=0.1)

    def between(k: int) -> None:
        if k == 4:
            o.add_param_group({"params": [*m[2].parameters()]})

    return trained(m, o), data, between, seen(m, o)


@case
def other_parameters_in_the_group() -> Any:
    m, _ = network()
    o = torch.optim.SGD(m[0].parameters(), lr=0.1)

    def between(k: int) -> None:
        if k == 4:
            o.param_groups[0]["params"][:] = m[2].parameters()

    return trained(m, o), data, between, seen(m, o)


@case
def a_hook_on_the_optimizer() -> Any:
    m, o = network()
    calls: list[int] = []

    def between(k: int) -> None:
        if k == 4:
            o.register_step_pre_hook(lambda *args: calls.append(1))

    return trained(m, o), data, between, seen(m, o, calls)


@case
def a_hook_on_a_module() -> Any:
    m, o = network()

    def between(k: int) -> None:
        if k == 4:
            m[0].register_forward_hook(lambda module, x, y: y * 0.5)

    return trained(m, o), data, between, seen(m, o)


@case
def a_hook_on_all_modules() -> Any:
    m, o = network()
    held: list[Any] = []

    def between(k: int) -> None:
        if k == 4:
            hook = lambda module, x, y: y * 0.5 if isinstance(module, nn.Tanh) else None
            held.append(nn.modules.module.register_module_forward_hook(hook))
        if k == CALLS - 1:
            held[0].remove()

    return trained(m, o), data, between, seen(m, o)


@case
def a_forward_of_its_own() -> Any:
    m, o = network()

    def between(k: int) -> None:
        if k == 4:
            m[1].forward = lambda x: x.relu()

    return trained(m, o), data, between, seen(m, o)


@case
def a_setting_of_a_module() -> Any:
    m, o = network("Adam", nn.LeakyReLU(0.1))

    def between(k: int) -> None:
        m[2].negative_slope = 0.3 if k > 3 else 0.1

    return trained(m, o), data, between, seen(m, o)


@case
def a_rate_of_dropout() -> Any:
    m, o = network("Adam", nn.Dropout(0.5))

    def between(k: int) -> None:
        m[2].p = 0.1 if k > 3 else 0.5

    return trained(m, o), data, between, seen(m, o)


@case
def anomaly_mode() -> Any:
    m, o = network()
    held: list[Any] = []

    def between(k: int) -> None:
        torch.autograd.set_detect_anomaly(k == 4)

    return trained(m, o), data, between, seen(m, o, held)


@pytest.mark.parametrize("name", CASES)
def test_static_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    eager = course(CASES[name], static=False)
    runs: list[bool] = []
    run = StaticStep.run
    monkeypatch.setattr(
        StaticStep, "run", lambda self, inputs: runs.append(True) or run(self, inputs)
    )
    static = course(CASES[name], static=True)
    wrong = [k for k, (a, b) in enumerate(zip(eager, static, strict=True)) if not agree(a, b)]
    assert not wrong, f"other results from call {wrong[0]} on"
    assert runs or name == "gradients_by_hand", "no program ran"
