"""Steps that the handler of a signal interrupts: made as a whole or not at all, never twice."""

from __future__ import annotations

import copy
import random
import signal
import time
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import whole_calls
from weft.compiler.trace import walk

ROUNDS = 60


class Stopped(BaseException):
    """What the handler raises, as that of Ctrl-C raises ``KeyboardInterrupt``."""


def trainer() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 32)).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, stepping(model, optimizer)


def stepping(model: Any, optimizer: Any) -> Any:
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def state(model: Any, optimizer: Any) -> list[Any]:
    buffers = [optimizer.state[p]["momentum_buffer"] for p in model.parameters()]
    return [t.detach().clone() for t in (*model.parameters(), *buffers)]


def after_a_step(model: Any, optimizer: Any, x: Any, y: Any) -> list[Any]:
    twin = copy.deepcopy(model)
    rule = torch.optim.SGD(twin.parameters(), lr=0.01, momentum=0.9)
    rule.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    stepping(twin, rule)(x, y)
    return state(twin, rule)


def same(found: list[Any], expected: list[Any]) -> bool:
    return all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(found, expected, strict=True))


def timed(function: Any, *args: Any) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
@pytest.mark.parametrize("static", [False, True])
def test_a_step_that_is_interrupted_is_made_once_or_not_at_all(static: bool) -> None:
    def handler(*args: Any) -> None:
        if waiting:
            waiting.clear()
            raise Stopped

    waiting: list[int] = []
    model, optimizer, step = trainer()
    compiled = torch.compile(step, static=static)
    x = torch.randn(64, 128, dtype=torch.float64)
    y = torch.randn(64, 32, dtype=torch.float64)
    for _ in range(4):
        compiled(x, y)
    took = min(timed(compiled, x, y) for _ in range(20))
    stopped = 0
    before_all = signal.signal(signal.SIGALRM, handler)
    try:
        for k in range(ROUNDS):
            torch.set_grad_enabled(True)  # a block of no_grad() may not have come to its end
            before, after = state(model, optimizer), after_a_step(model, optimizer, x, y)
            try:
                waiting.append(k)
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.1, 1.0) * took)
                compiled(x, y)
                waiting.clear()
            except Stopped:
                stopped += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            found = state(model, optimizer)
            assert same(found, before) or same(found, after)
            for p in model.parameters():
                assert p.grad is None or (p.grad.shape == p.shape and p.grad.isfinite().all())
    finally:
        signal.signal(signal.SIGALRM, before_all)
    assert stopped > ROUNDS // 4
    expected = after_a_step(model, optimizer, x, y)
    compiled(x, y)
    assert same(state(model, optimizer), expected)


def confirms() -> bool:
    """Whether calls of functions are confirmed as a whole."""
    compiled = torch.compile(lambda x: nn.functional.softplus(x) * 2)
    for _ in range(8):
        compiled(torch.ones(3))
    return any(p.whole for root in compiled.learned.roots.values() for p in walk(root))


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_functions_are_confirmed_after_interruptions() -> None:
    """The hook by which functions start is let go of, wherever the handler has raised."""
    if whole_calls.compiled() is None:
        pytest.skip("functions run as ever")

    def handler(*args: Any) -> None:
        if waiting:
            waiting.clear()
            raise Stopped

    waiting: list[int] = []
    model = nn.Linear(2, 2)
    compiled = torch.compile(lambda x: nn.functional.relu(model(x)) * 2)
    x = torch.ones(3, 2)
    for _ in range(8):
        compiled(x)
    before_all = signal.signal(signal.SIGALRM, handler)
    try:
        for k in range(10 * ROUNDS):
            try:
                waiting.append(k)
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 6e-5))
                for _ in range(20):
                    compiled(x)
                waiting.clear()
            except Stopped:
                pass
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                torch.set_grad_enabled(True)
            if k % ROUNDS == 0:
                assert confirms()
    finally:
        signal.signal(signal.SIGALRM, before_all)
    assert confirms()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers")
def test_automatic_compiling_goes_on_after_interruptions() -> None:
    """No half of a call stays behind, which would be read in the next one."""

    def handler(*args: Any) -> None:
        if waiting:
            waiting.clear()
            raise Stopped

    def trained(steps: int) -> tuple[Any, Any, list[float]]:
        model, _, step = trainer()
        torch.manual_seed(1)
        x = torch.randn(8, 128, dtype=torch.float64)
        y = torch.randn(8, 32, dtype=torch.float64)
        return model, lambda: step(x, y), [step(x, y).item() for _ in range(steps)]

    waiting: list[int] = []
    _, _, expected = trained(8)
    before_all = signal.signal(signal.SIGALRM, handler)
    try:
        with torch.compiler.auto():
            model, again, _ = trained(30)
            for k in range(5 * ROUNDS):
                try:
                    waiting.append(k)
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-3))
                    for _ in range(3):
                        again().item()
                    waiting.clear()
                except Stopped:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                    torch.set_grad_enabled(True)
                if k % ROUNDS == ROUNDS - 1:
                    assert all(p.isfinite().all() for p in model.parameters())
                    np.testing.assert_allclose(trained(8)[2], expected, rtol=1e-9)
    finally:
        signal.signal(signal.SIGALRM, before_all)
