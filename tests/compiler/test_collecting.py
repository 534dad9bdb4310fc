"""Passes of the cyclic garbage collector wait while a long step is followed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import weft as torch
from weft.compiler.following import MANY
from weft.graph.collecting import WAITING

USUAL = 700


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(USUAL, 10, 10)
    yield
    gc.set_threshold(*before)
    gc.enable()


def long_step(within: Callable = lambda: None, count: int = 4 * MANY) -> Any:
    x = torch.ones(2)

    @torch.compile
    def step() -> Any:
        kept = [x]
        for _ in range(count):
            kept.append(kept[-1] * 2 - kept[-1])
        within()
        return kept[-1]

    return step


def test_no_pass_looks_at_what_is_pending() -> None:
    passes: list[int] = []
    step = long_step()
    for _ in range(4):
        step()
    gc.callbacks.append(lambda phase, info: passes.append(info["generation"]))
    try:
        for _ in range(10):
            assert step().tolist() == [1.0, 1.0]
    finally:
        gc.callbacks.pop()
    assert len(passes) <= 2 * 10  # a pass is told of twice; there were several in each step
    assert gc.get_threshold() == (USUAL, 10, 10)


def test_short_steps_leave_the_collector_alone() -> None:
    seen: list[Any] = []
    step = long_step(lambda: seen.append(gc.get_threshold()), MANY // 8)
    for _ in range(4):
        step()
    assert seen == [(USUAL, 10, 10)] * 4


def test_garbage_that_a_step_leaves_is_found() -> None:
    class Owner:
        pass

    def leave() -> None:
        owner = Owner()
        owner.itself = owner  # type: ignore[attr-defined]
        left.append(weakref.ref(owner))

    left: list[Any] = []
    step = long_step(leave)
    for _ in range(6):
        step()
    kept = [[] for _ in range(3 * USUAL)]  # new objects, after which a pass is due
    assert not any(owner() for owner in left)
    assert len(kept) == 3 * USUAL
    gc.disable()
    step()
    gc.enable()
    assert left[-1]() is not None


def test_much_garbage_does_not_wait_for_the_end_of_a_step() -> None:
    passes: list[str] = []

    def litter() -> None:
        for _ in range(2 * WAITING):
            cycle: list[Any] = []
            cycle.append(cycle)

    step = long_step(litter)
    for _ in range(3):
        step()
    gc.callbacks.append(lambda phase, info: passes.append(phase))
    try:
        step()
    finally:
        gc.callbacks.pop()
    assert passes


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda: gc.set_threshold(900, 5, 5), (900, 5, 5)),
        (lambda: gc.set_threshold(0), (0, 10, 10)),
        (lambda: gc.set_threshold(WAITING + 1), (WAITING + 1, 10, 10)),
        (gc.disable, (USUAL, 10, 10)),
    ],
)
def test_what_the_program_decides_stands(change: Callable, expected: Any) -> None:
    decided: list[None] = []

    def decide() -> None:
        if decided:
            change()

    step = long_step(decide)
    for _ in range(4):
        step()
    decided.append(None)
    on = change is not gc.disable
    step()
    assert (gc.isenabled(), gc.get_threshold()) == (on, expected)
    decided.clear()
    step()
    assert (gc.isenabled(), gc.get_threshold()) == (on, expected)


def test_a_step_that_fails_lets_the_collector_go_on() -> None:
    class Stop(Exception):
        pass

    def stop() -> None:
        if stops:
            raise Stop

    stops: list[None] = []
    step = long_step(stop)
    for _ in range(4):
        step()
    stops.append(None)
    with pytest.raises(Stop):
        step()
    assert gc.get_threshold() == (USUAL, 10, 10)
    stops.clear()
    step()
    assert gc.get_threshold() == (USUAL, 10, 10)


def test_thresholds_that_an_interruption_has_left_are_put_right() -> None:
    step = long_step()
    for _ in range(4):
        step()
    gc.set_threshold(WAITING)  # as after a signal's handler has raised before the step began
    step()
    assert gc.get_threshold() == (USUAL, 10, 10)
