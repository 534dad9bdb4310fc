"""Guards in compiled code: they hold for as long as every object is where it was, and only so."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.compiler.guarding import ObjectGuard, Unsupported
from weft.core import selection
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


class World:
    """Something of every kind that guards watch."""

    def __init__(self) -> None:
        self.table: dict[Any, Any] = {"a": 1.5, "b": object(), "gone": 3, 7: "x"}
        self.of_tensors = defaultdict(dict)
        self.key = torch.ones(2)
        self.of_tensors[self.key] = {"step": 1}
        self.hooks: OrderedDict[int, Any] = OrderedDict()
        self.items = [object() for _ in range(5)]
        self.nothing: list[Any] = []
        self.tensor = torch.ones(3, requires_grad=True)

    def watched(self) -> Callable[[], bool]:
        guard = ObjectGuard()
        for key, value in (*self.table.items(), ("absent", None)):
            guard.entry(self.table, key, value)
        guard.entry(self.of_tensors, self.key, self.of_tensors[self.key])
        guard.size(self.hooks, 0)
        for held in (self.items, self.nothing):
            guard.items(held, held)
        guard.slot(self.tensor, "_a", self.tensor._a)
        guard.slot(self.tensor, "_node", self.tensor._node)
        made = guard.made()
        assert made is not None
        return made


CHANGES: dict[str, Callable[[World], Any]] = {
    "another value": lambda w: w.table.update(a=2.5),
    "an equal value that is another object": lambda w: w.table.update(a=float("1.5")),
    "a value for a number": lambda w: w.table.update({7: "y"}),
    "an entry less": lambda w: w.table.pop("gone"),
    "an entry that was absent": lambda w: w.table.update(absent=0),
    "no entries": lambda w: w.table.clear(),
    "the state of a tensor": lambda w: w.of_tensors.update({w.key: {"step": 1}}),
    "a hook": lambda w: w.hooks.update({1: print}),
    "an item": lambda w: w.items.__setitem__(3, object()),
    "an item more": lambda w: w.items.append(object()),
    "an item less": lambda w: w.items.pop(),
    "two items exchanged": lambda w: w.items.reverse(),
    "a list that was empty": lambda w: w.nothing.append(1),
    "a list that has moved": lambda w: w.items.extend(range(1000)),
    "another array": lambda w: setattr(w.tensor, "_a", np.ones(3, np.float32)),
    "an array that is not there": lambda w: delattr(w.tensor, "_a"),
    "another node": lambda w: setattr(w.tensor, "_node", None),
}
HARMLESS: dict[str, Callable[[World], Any]] = {
    "nothing": lambda w: None,
    "another entry": lambda w: w.table.update(other=1),
    "an absent entry that is None": lambda w: w.table.update(absent=None),
    "a dict that has grown": lambda w: w.table.update({k: k for k in range(100, 1000)}),
    "an entry that is put again": lambda w: w.table.update(a=w.table.pop("a")),
    "an item that is put again": lambda w: w.items.append(w.items.pop()),
    "a hook that is taken off": lambda w: (w.hooks.update({1: print}), w.hooks.clear()),
    "values in place": lambda w: w.tensor._a.fill(5),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str) -> None:
    world = World()
    holds = world.watched()
    assert holds()
    CHANGES[name](world)
    assert not holds()
    assert not holds()


@pytest.mark.parametrize("name", HARMLESS)
def test_what_leaves_all_in_place_is_not_a_change(name: str) -> None:
    world = World()
    holds = world.watched()
    HARMLESS[name](world)
    gc.collect()
    assert holds()


def test_everything_that_is_watched_stays_alive() -> None:
    def watched() -> Callable[[], bool]:
        return World().watched()

    holds = watched()
    gc.collect()
    assert holds()


def test_what_lies_otherwise_is_refused() -> None:
    class Items(list):  # type: ignore[type-arg]
        pass

    class Plain:
        value = 1

    with pytest.raises(Unsupported):
        ObjectGuard().items(Items([1]), [1])
    with pytest.raises(Unsupported):
        ObjectGuard().slot(Plain(), "value", 1)


def test_references_are_kept_in_balance() -> None:
    import sys

    world = World()
    holds = world.watched()
    before = [sys.getrefcount(x) for x in (world.table, world.key, world.tensor, None)]
    for _ in range(1000):
        holds()
    after = [sys.getrefcount(x) for x in (world.table, world.key, world.tensor, None)]
    assert after[:3] == before[:3] and abs(after[3] - before[3]) < 100


def test_a_static_step_is_guarded_so_and_looks_again_where_objects_are_equal() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Dropout(0.0))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(5, 3)

    @torch.compile(static=True)
    def step() -> Any:
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(4):
        step()
    (made,) = step.steps.values()
    first = made.unchanged
    assert first is not None and first()
    model[1].p = float("0.0")
    assert not first()
    step()
    assert step.steps and next(iter(step.steps.values())) is made  # the same number to the step
    assert made.unchanged is not first and made.unchanged()
    model[1].p = 0.5
    step()
    assert made not in step.steps.values()
    for k in range(12):  # noted anew for a while, then compared in Python, and right all the time
        step()
        model[1].p = float(f"{0.5}")
        assert step.calls == 7 + k
