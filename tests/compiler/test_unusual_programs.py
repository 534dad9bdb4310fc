"""Compiled programs that do what programs rarely do, against the same programs run eagerly."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import Compiled

CALLS = 6


@pytest.mark.parametrize("automatic", [False, True])
def test_leaves_of_a_call_that_no_trace_can_say_do_not_shift_others(automatic: bool) -> None:
    def function(x: Any, first: Any, second: Any) -> Any:
        x * np.int64(3)  # a number of a class that tokens do not know
        doubled = first * 2
        return doubled, second * 3 + x

    compiled = function if automatic else Compiled(function)
    with torch.compiler.auto(automatic):
        for k in range(CALLS):
            tensors = [torch.full((2,), float(k + n)) for n in range(3)]
            a, b = compiled(*tensors)
            assert a.tolist() == [2 * (k + 1)] * 2
            assert b.tolist() == [3 * (k + 2) + k] * 2


def test_automatic_compiling_holds_nothing_of_calls_that_it_can_not_learn() -> None:
    with torch.compiler.auto() as automatic:
        for _ in range(20):
            (torch.ones(3) * np.int64(2)).tolist()
            assert len(automatic.region.leaves) < 3


@pytest.mark.parametrize(
    "read", [lambda t: t.sum().item(), lambda t: t.detach().numpy(), lambda t: bool(t.sum() > 0)]
)
def test_a_loop_that_reads_values_is_learned_once_and_holds_one_round(read: Any) -> None:
    with torch.compiler.auto() as automatic:
        for k in range(12):
            read(torch.ones(3) * k + 1)
            assert len(automatic.region.handles) < 8
        assert automatic.region.learned.runs > 5


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(2, 2), 3.0

    def forward(self, x: Any) -> Any:
        return self.layer(x) * self.scale


def test_hooks_of_a_compiled_module_are_called() -> None:
    compiled, seen = torch.compile(Scaled()), []
    compiled.register_forward_pre_hook(lambda *_: seen.append("before"))
    handle = compiled.register_forward_hook(lambda *_: seen.append("after"))
    compiled.register_full_backward_hook(lambda *_: seen.append("backward"))
    for _ in range(CALLS):
        seen.clear()
        compiled(torch.ones(1, 2, requires_grad=True)).sum().backward()
        assert seen == ["before", "after", "backward"]
    handle.remove()
    seen.clear()
    compiled(torch.ones(1, 2))
    assert seen == ["before"]


def test_attributes_of_a_compiled_module_are_those_of_the_module() -> None:
    model = Scaled()
    compiled = torch.compile(model)
    model.eval()
    assert not compiled.training
    compiled.train()
    assert model.training and model.layer.training
    compiled.training = False
    assert not model.training and model.layer.training
    compiled.scale = 5.0
    assert model.scale == 5.0 and "scale" in dir(compiled)
    del compiled.scale
    assert not hasattr(model, "scale")
    assert compiled and not torch.compile(nn.Sequential())
    assert len(torch.compile(nn.Sequential(nn.ReLU(), nn.ReLU()))) == 2


@torch.compile
def doubled(x: Any) -> Any:
    return x * 2


def test_decorated_functions_are_pickled_by_name() -> None:
    assert pickle.loads(pickle.dumps(doubled)) is doubled
    by_parts = pickle.loads(pickle.dumps(Compiled(pickle.dumps, fullgraph=True)))
    assert by_parts.function is pickle.dumps and by_parts.fullgraph


def losses_of_one_trunk(w: Any, v: Any) -> Any:
    hidden = (w * v).tanh()
    return hidden.sum(), hidden.pow(2).sum()


def passes(compiled: Any, go_back: Any) -> list[Any]:
    """What backward passes over two losses give, call by call: gradients, and the errors."""
    torch.manual_seed(0)
    w, v = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    found: list[Any] = []
    for _ in range(CALLS):
        w.grad = v.grad = None
        try:
            found.append(go_back(*compiled(w, v), w, v))
        except RuntimeError as error:
            found.append(str(error))
        sums = [0.0 if t.grad is None else t.grad.sum().item() for t in (w, v)]
        found.append([round(x, 12) for x in sums])
    return found


def test_what_two_results_share_is_used_up_by_the_first_pass() -> None:
    def one_after_the_other(a: Any, b: Any, w: Any, v: Any) -> None:
        a.backward()
        b.backward()

    expected = passes(losses_of_one_trunk, one_after_the_other)
    assert passes(Compiled(losses_of_one_trunk), one_after_the_other) == expected
    assert "tanh saved" in expected[0]


@pytest.mark.parametrize(
    "go_back",
    [
        lambda a, b, w, v: (a + b).backward(),
        lambda a, b, w, v: a.backward(retain_graph=True) or b.backward(),
        lambda a, b, w, v: torch.autograd.backward([a, b]),
        lambda a, b, w, v: (torch.autograd.grad(a, [w])[0] + b).sum().item(),
    ],
)
def test_what_two_results_share_serves_all_of_one_pass_and_what_is_retained(go_back: Any) -> None:
    expected = passes(losses_of_one_trunk, go_back)
    found = passes(Compiled(losses_of_one_trunk), go_back)
    assert not any(isinstance(x, str) for x in expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours is None or np.allclose(ours, theirs, rtol=1e-12)


def test_a_pass_to_some_leaves_uses_up_only_what_leads_there() -> None:
    def function(w: Any, v: Any) -> Any:
        return (w.exp() + v.tanh()).sum()

    def go_back(loss: Any, w: Any, v: Any) -> Any:
        (first,) = torch.autograd.grad(loss, [w])
        (second,) = torch.autograd.grad(loss, [v])
        return first.tolist() + second.tolist()

    w, v = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    compiled = Compiled(lambda w, v: (function(w, v), function(w, v) * 2))
    for _ in range(CALLS):
        expected = go_back(function(w, v), w, v)
        assert go_back(compiled(w, v)[0], w, v) == pytest.approx(expected)


def test_results_of_one_op_are_used_up_together() -> None:
    compiled = Compiled(lambda x: x.sin().aminmax())
    for _ in range(CALLS):
        low, high = compiled(torch.arange(3.0, requires_grad=True))
        low.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            high.backward()


def test_a_pass_that_ends_at_a_result_needs_nothing_behind_it() -> None:
    compiled = Compiled(lambda w: w.exp().sum())
    for _ in range(CALLS):
        w = torch.ones(2, requires_grad=True)
        loss = compiled(w)
        loss.backward()
        (gradient,) = torch.autograd.grad((loss * 3).sum(), [loss])
        (loss * 2).backward(inputs=[loss])
        assert gradient.item() == 3 and loss.grad.item() == 2


def asked_behind_a_view(x: Any) -> Any:
    view = x[1:]
    x.requires_grad_()
    return view, x


def frozen_behind_a_view(x: Any) -> Any:
    parameter = nn.Parameter(x)
    first = parameter.view(2, 2)
    parameter.requires_grad = False
    return first, parameter.view(2, 2), parameter


def detached_behind_a_view(x: Any) -> Any:
    y = x.requires_grad_() * 2
    y.tolist()
    parts = y.split(2)
    y.detach_()
    return (*parts, y, y * 3)


def detached_twice(x: Any) -> Any:
    y = x.requires_grad_() * 2
    other = y.detach()
    view = other[1:]
    other.requires_grad_()
    return y, other, view


def asked_between_two_views(x: Any) -> Any:
    first = x.view(4)
    x.requires_grad_()
    second = x.view(4)
    (first * second).sum().backward()
    return first, second, x, x.grad


@pytest.mark.parametrize(
    "function",
    [
        asked_behind_a_view,
        frozen_behind_a_view,
        detached_behind_a_view,
        detached_twice,
        asked_between_two_views,
    ],
)
def test_views_have_the_history_that_their_tensor_had_then(function: Any) -> None:
    def seen(t: Any) -> Any:
        return t.tolist(), t.requires_grad, t.is_leaf, t._is_view()

    compiled = Compiled(function)
    for k in range(CALLS):
        expected = list(map(seen, function(torch.arange(4.0) + k)))
        assert list(map(seen, compiled(torch.arange(4.0) + k))) == expected


def raised_behind(x: Any) -> Any:
    found = (x > 0).sum() / 3, torch.arange(3) / 2
    torch.set_default_dtype(torch.float64)
    return found


def raised_between(x: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    found = torch.arange(3) / 2, torch.ones(2) * 3
    torch.set_default_dtype(torch.float32)
    return found


def raised_before_a_derivative(x: Any) -> Any:
    y = ((x > 0).sum() / 3 * x.requires_grad_()).sin().sum()
    torch.set_default_dtype(torch.float64)
    (gradient,) = torch.autograd.grad(y, [x], create_graph=True)
    (second,) = torch.autograd.grad(gradient.sum(), [x])
    return y, gradient, second


@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("function", [raised_behind, raised_between, raised_before_a_derivative])
def test_the_default_dtype_is_that_of_the_call(function: Any, automatic: bool) -> None:
    def run(function: Any) -> Any:
        found = []
        for k in range(2 * CALLS):
            torch.set_default_dtype(torch.float32)
            try:
                results = function(torch.ones(3) + k)
                found += [(t.dtype, pytest.approx(t.tolist(), rel=1e-5)) for t in results]
            finally:
                torch.set_default_dtype(torch.float32)
        return found

    expected = run(function)
    with torch.compiler.auto(automatic):
        found = run(function if automatic else Compiled(function))
    assert [kind for kind, _ in found] == [kind for kind, _ in expected]
    assert [values.expected for _, values in found] == [values for _, values in expected]


@pytest.mark.parametrize("automatic", [False, True])
def test_a_pass_that_failed_is_not_taken_for_a_later_one(automatic: bool) -> None:
    def function(x: Any, w: Any) -> Any:
        loss = (w * x).sin().sum()
        loss.backward()
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()
        found = [loss.item()]
        (gradient,) = torch.autograd.grad((w * x).pow(3).sum(), [w])
        return found + gradient.tolist() + w.grad.tolist()

    def run(function: Any) -> list[float]:
        calls = [torch.arange(3.0) + k for k in range(2 * CALLS)]
        return [y for x in calls for y in function(x, torch.ones(3, requires_grad=True))]

    expected = run(function)
    with torch.compiler.auto(automatic):
        found = run(function if automatic else Compiled(function))
    assert found == pytest.approx(expected, rel=1e-5)
