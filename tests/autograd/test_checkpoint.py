"""``utils.checkpoint`` against PyTorch: what runs again, when, and what is refused."""

from __future__ import annotations

import gc
import importlib
import math
import weakref

import pytest

import weft
from agreement import agree, double, trial

SCENARIOS = []


def scenario(function):
    SCENARIOS.append(function)
    return function


def tools(T):
    return importlib.import_module(f"{'weft' if T is weft else 'torch'}.utils.checkpoint")


@scenario
def under_autocast(T):
    cp, found = tools(T), []
    for enabled in (True, False):
        for reentrant in (True, False):
            seen = []

            def part(x, y, seen=seen):
                z = x @ y
                seen.append(str(z.dtype)[-8:])
                return z @ y

            x = T.arange(6.0).reshape(2, 3).requires_grad_()
            y = (T.arange(9.0).reshape(3, 3) / 8).requires_grad_()
            with T.autocast("cpu", T.bfloat16, enabled):
                out = cp.checkpoint(part, x, y, use_reentrant=reentrant).sum()
            out.backward()
            found.append((seen, x.grad, y.grad))
    return found


@scenario
def what_runs_again(T):
    cp, found = tools(T), []

    def part(x):
        calls.append("begin")
        y = x.sin().exp()
        calls.append("middle")
        y = y + 1
        calls.append("end")
        return y

    for early in (True, False):
        for context in (None, True, False):
            calls, x = [], double(T, 1.0, 2.0)
            if context is None:
                y = cp.checkpoint(part, x, use_reentrant=False, early_stop=early)
            else:
                with cp.set_checkpoint_early_stop(context):
                    y = cp.checkpoint(part, x, use_reentrant=False, early_stop=early)
            y.sum().backward(retain_graph=True)
            y.sum().backward()
            found.append((calls, x.grad))
    return found


@scenario
def saved_tensors_are_given_once(T):
    cp = tools(T)

    class Saves(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            seen.append(trial(T, lambda: ctx.saved_tensors, message="already unpacked once"))
            return 2 * x * g

    seen, x = [], double(T, 1.0, 2.0)
    y = cp.checkpoint(lambda x: Saves.apply(x.sin()), x, use_reentrant=False).sum()
    y.backward(retain_graph=True)
    y.backward()
    return seen, x.grad


@scenario
def groups_of_passes(T):
    cp = tools(T)

    def part(x):
        calls.append(1)
        return x.sin(), x.cos()

    calls, x = [], double(T, 1.0, 2.0)
    a, b = cp.checkpoint(part, x, use_reentrant=False)
    with cp.GraphExecGroup():
        nested = trial(T, lambda: cp.GraphExecGroup().__enter__(), message="cannot be nested")
        a.sum().backward()
        b.sum().backward()
    grouped = len(calls)
    a, b = cp.checkpoint(part, x, use_reentrant=False)
    a.sum().backward()
    b.sum().backward()
    c, _ = cp.checkpoint(part, x, use_reentrant=False)
    with cp.GraphExecGroup():
        c.sum().backward(retain_graph=True)
        overlap = trial(T, lambda: c.sum().backward(), message="two backward calls that overlap")
    return nested, grouped, len(calls), overlap, x.grad


@scenario
def nested_and_inside(T):
    cp, calls = tools(T), []

    def inner(x):
        calls.append("inner")
        return x.sin().cos()

    def outer(x):
        calls.append("outer")
        y = cp.checkpoint(inner, x.exp(), use_reentrant=False)
        (g,) = T.autograd.grad((x * x).sin().sum(), x, create_graph=True)
        return y * g

    x = double(T, 0.1, 0.2)
    y = cp.checkpoint(outer, x, use_reentrant=False)
    y.sum().backward()
    return y, x.grad, sorted(set(calls))


@scenario
def reentrant_is_refused_for_some_inputs(T):
    cp = tools(T)
    x = double(T, 1.0)
    y = cp.checkpoint(T.exp, x, use_reentrant=True)
    message = "torch.utils.checkpoint is incompatible"
    return (
        trial(T, lambda: T.autograd.grad(y, x), message=message),
        trial(T, lambda: cp.checkpoint(T.exp, x, use_reentrant=True).backward(inputs=(x,)),
              message=message),
        cp.checkpoint(T.exp, x, use_reentrant=True).backward(),
        x.grad,
    )  # fmt: skip


@scenario
def runs_that_differ(T):
    cp, x = tools(T), double(T, 1.0, 2.0)

    def changing(*choices):
        left = list(choices)
        return lambda x: left.pop(0)(x)

    def one(x):
        return x.sin()

    def two(x):
        return x.sin().sin()

    def other(x):
        return x.sum().sin().expand(2)

    return [
        trial(
            T,
            lambda parts=parts, early=early: (
                cp.checkpoint(changing(*parts), x, use_reentrant=False, early_stop=early)
                .sum()
                .backward()
            ),
            message=message,
        )
        for early in (True, False)
        for parts, message in (
            ((two, one), "A different number of tensors was saved"),
            ((one, other), "have different metadata"),
        )
    ]


def test_values_made_again_are_freed_with_the_graph():
    made = []

    def part(x):
        y = x.sin()
        made.append(weakref.ref(y._a.base if y._a.base is not None else y))
        return y.exp()

    gc.disable()
    try:
        x = weft.ones(3, requires_grad=True)
        out = weft.utils.checkpoint.checkpoint(part, x, use_reentrant=False).sum()
        assert made[0]() is None
        out.backward()
        assert made[1]() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("run", SCENARIOS, ids=lambda run: run.__name__)
def test_same_as_torch(run):
    agree(run)


def test_arguments_inside_another_checkpoint_are_made_again() -> None:
    held = []

    def inner(x: weft.Tensor) -> weft.Tensor:
        argument = x.exp()
        held.append(weakref.ref(argument))
        return tools(weft).checkpoint(lambda a: a.sin() * a, argument, use_reentrant=False)

    x = weft.ones(3, requires_grad=True)
    y = tools(weft).checkpoint(inner, x, use_reentrant=False)
    assert held[0]() is None
    y.sum().backward()
    e = math.e
    assert x.grad is not None
    assert x.grad.tolist() == pytest.approx([e * (math.sin(e) + e * math.cos(e))] * 3)
