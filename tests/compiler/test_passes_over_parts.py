"""Backward passes over a part of what a compiled region has computed: errors are eager mode's."""

from __future__ import annotations

from typing import Any

import pytest

import weft as torch
from weft.compiler import Compiled

F = torch.nn.functional
CALLS = 4


def used_layer(ask: Any) -> Any:
    x = torch.linspace(0.5, 1.5, 9, dtype=torch.float64).view(3, 3).requires_grad_()
    y = F.rms_norm(x, (3,))
    first, second = y.transpose(0, -1), -0.5 - y
    second.register_hook(lambda g: g.clone())  # the region ends: each result has its node
    first.sum().clone().backward()
    return ask(x, y, second.sum())


def changed_leaf(ask: Any) -> Any:
    a, b, c = (torch.full((3,), float(k + 1)).requires_grad_() for k in range(3))
    loss = (a * b).sum() + c.exp().sum()
    loss.register_hook(lambda g: g.clone())
    with torch.no_grad():
        a.mul_(2)
    return ask(a, b, c, loss)


OF_USED = {
    "backward at the layer": lambda x, y, end: end.backward(inputs=[y]),
    "backward behind the layer": lambda x, y, end: end.backward(inputs=[x]),
    "gradient at the layer": lambda x, y, end: torch.autograd.grad(end, [y]),
    "gradient behind the layer": lambda x, y, end: torch.autograd.grad(end, [x]),
    "at the layer twice": lambda x, y, end: (
        end.backward(inputs=[y], retain_graph=True),
        end.backward(inputs=[y]),
    ),
}
OF_CHANGED = {
    "not read": lambda a, b, c, loss: torch.autograd.grad(loss, [c]),
    "read": lambda a, b, c, loss: torch.autograd.grad(loss, [b]),
    "read beside another": lambda a, b, c, loss: torch.autograd.grad(loss, [c, b]),
    "the result itself": lambda a, b, c, loss: loss.backward(inputs=[loss]),
    "everything": lambda a, b, c, loss: loss.backward(),
}
CASES = [(used_layer, ask) for ask in OF_USED.values()]
CASES += [(changed_leaf, ask) for ask in OF_CHANGED.values()]


def outcome(run: Any, ask: Any) -> Any:
    """What a program gives, or the beginning of its error."""
    try:
        return run(ask)
    except RuntimeError as error:
        return str(error)[:60]


@pytest.mark.parametrize(
    ("program", "ask"), CASES, ids=[*OF_USED, *(f"changed: {name}" for name in OF_CHANGED)]
)
def test_errors_of_a_pass_are_those_of_the_calls_it_goes_through(program, ask):
    expected = outcome(program, ask)
    compiled = Compiled(program)
    for _ in range(CALLS):
        assert str(outcome(compiled, ask)) == str(expected)


READING_THEIR_RESULT = {
    "exp": lambda x: (x * 2).exp(),
    "reciprocal": lambda x: (x * 2).reciprocal(),
    "dot and reciprocal": lambda x: torch.dot(x.detach(), x * 1).reciprocal(),
    "softmax": lambda x: (x * 2).softmax(0),
    "sort": lambda x: (x * 2).sort()[0],
    "norm": lambda x: (x * 2).norm(),
    "in place": lambda x: (x * 2).exp_(),
}


@pytest.mark.parametrize("name", READING_THEIR_RESULT)
def test_second_derivatives_lead_to_the_result_that_the_first_read(name):
    def program(weights: Any) -> Any:
        x = torch.tensor([0.3, 0.5, 0.7], dtype=torch.float64).requires_grad_()
        y = READING_THEIR_RESULT[name](x)
        (first,) = torch.autograd.grad((y * weights[: y.numel()]).sum(), [x], create_graph=True)
        again = {"allow_unused": True, "retain_graph": True}
        found = []
        if first.requires_grad:
            found += torch.autograd.grad((first * weights).sum(), [y], **again)
            found += torch.autograd.grad((first * weights).sum(), [x], allow_unused=True)
            found.append(outcome(lambda ask: ask(), lambda: first.sum().backward()))
        return found, x.grad

    weights = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    expected = str(program(weights))
    compiled = Compiled(program)
    for _ in range(CALLS):
        assert str(compiled(weights)) == expected


def test_a_changed_value_is_named_with_the_call_that_saved_it():
    message = ""
    compiled = Compiled(changed_leaf)
    for _ in range(CALLS):
        message = ""
        try:
            compiled(OF_CHANGED["read"])
        except RuntimeError as error:
            message = str(error)
    assert ": mul" in message
    assert "test_passes_over_parts.py" in message


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("mul (MulBackward0)", lambda w, x: (w * x).tanh()),
        ("pow (PowBackward0)", lambda w, x: w**3),
        ("pow (PowBackward1)", lambda w, x: (x.detach().abs() + 1) ** w),
        ("div (DivBackward0)", lambda w, x: (w / x).exp()),
        ("mv (MvBackward0)", lambda w, x: x.expand(2, 3) @ w),
    ],
)
def test_a_changed_value_is_named_with_its_node_as_eagerly(name, function):
    def messages(function):
        found = []
        for _ in range(CALLS):
            w, x = torch.full((3,), 2.0, requires_grad=True), torch.full((3,), 3.0)
            loss = function(w, x).sum()
            with torch.no_grad():
                w.add_(1)
                x.add_(1)
            try:
                loss.backward()
                found.append("")
            except RuntimeError as error:
                found.append(str(error).partition(", and it was")[0])
        return found

    expected = messages(function)
    assert name in expected[0]
    assert messages(Compiled(function)) == expected
