"""Compiling without marking anything."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft import nn
from weft.compiler import native_calls, whole_calls, whole_modules
from weft.compiler.trace import walk

SCRIPT = """\
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(16, 3)
y = x.sum(1, keepdim=True)
for step in range(30):
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"{loss.item():.5f}")
"""


def train(steps: int) -> tuple[list[float], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(16, 3)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - 1).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def test_a_loop_is_found_and_becomes_one_program() -> None:
    expected, _ = train(12)
    with torch.compiler.auto() as automatic:
        losses, _ = train(12)
    assert losses == pytest.approx(expected, rel=1e-5)
    learned = automatic.region.learned
    assert learned.reasons["an optimizer's step"] >= 6
    assert "Adam of 4 parameters in one call" in automatic.explain()


def test_it_can_be_switched_on_and_off() -> None:
    assert torch.compiler.automatic.listening_here() is None
    with torch.compiler.auto() as outer:
        with torch.compiler.auto() as inner:
            assert inner.region is outer.region
        assert torch.compiler.automatic.listening_here() is outer.region
        with torch.compiler.auto(False):
            assert torch.compiler.automatic.listening_here() is None
        assert torch.compiler.automatic.listening_here() is outer.region
    assert torch.compiler.automatic.listening_here() is None
    torch.compiler.auto()
    torch.compiler.auto(False)
    assert torch.compiler.automatic.listening_here() is None


def test_nothing_is_pending_when_it_ends() -> None:
    with torch.compiler.auto():
        for _ in range(8):
            y = torch.ones(3) * 2 + 1
    assert y._a.tolist() == [3.0, 3.0, 3.0]


def test_a_loop_that_reads_nothing_does_not_grow() -> None:
    x = torch.ones(2)
    with torch.compiler.auto() as automatic:
        for _ in range(3 * automatic.region.longest):
            x = x * 1.0
        assert len(automatic.region.path) <= automatic.region.longest
    assert x.tolist() == [1.0, 1.0]


def test_code_that_never_repeats_is_given_up() -> None:
    with torch.compiler.auto() as automatic:
        for k in range(60):
            y = torch.ones(k + 1) * 2
            assert y.sum().item() == 2 * (k + 1)
    assert "were given up" in automatic.explain()
    assert automatic.region.learned.tokens < 400


@pytest.mark.skipif(whole_calls.compiled() is None, reason="no hook for this version of Python")
def test_calls_are_confirmed_as_a_whole_in_what_repeats_and_only_there() -> None:
    expected, _ = train(16)
    with torch.compiler.auto() as found:
        losses, _ = train(16)
        points = [p for root in found.region.learned.roots.values() for p in walk(root)]
        names = {own[native_calls.CODE].co_qualname for p in points for own in p.whole}
        assert found.region.hooked is None, "nothing is pending"
    assert losses == pytest.approx(expected, rel=1e-5)
    modules = any(name.endswith((".forward", "Module.__call__")) for name in names)
    assert names
    assert modules or not whole_modules.are_compared()


def test_other_threads_and_forks() -> None:
    found: list[Any] = []
    with torch.compiler.auto():
        for _ in range(6):
            y = torch.ones(4) * 3
            thread = threading.Thread(target=lambda y=y: found.append(y.sum().item()))
            thread.start()
            thread.join()
        z = torch.ones(4) * 5
        child = os.fork()
        if child == 0:
            fine = z.tolist() == [5.0] * 4 and torch.compiler.automatic.listening_here() is None
            os._exit(0 if fine else 1)
        _, status = os.waitpid(child, 0)
    assert found == [12.0] * 6 and status == 0


def test_a_script_gives_the_same_numbers(tmp_path: Any) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    printed = []
    for options in ([], ["--compile"]):
        command = [sys.executable, "-m", "weft", "run", *options, str(script)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        printed.append(done.stdout)
    assert printed[0] == printed[1] and len(printed[0].split()) == 3


@pytest.mark.parametrize("automatic", [False, True])
def test_what_is_pending_holds_a_bounded_amount_of_memory(
    automatic: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.compiler.segment.MOST_BYTES", 1 << 20)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    def total(count: int) -> Any:
        sums = torch.zeros(())
        for k in range(count):
            x = torch.full((10_000,), float(k))
            alive.add(x)
            sums = sums + (x * x).sum()
            most.append(len(alive))
        return sums

    function = total if automatic else torch.compile(total)
    with torch.compiler.auto(automatic):
        for _ in range(4):
            most: list[int] = []
            found = function(500).item()
            assert found == pytest.approx(1e4 * sum(k * k for k in range(500)), rel=1e-5)
            assert max(most) < 150  # of 500: 1 MB are 26, and memory is looked at now and then


def test_leaves_that_the_program_lets_go_of_do_not_pile_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weft.compiler.segment.MOST_BYTES", 1 << 20)
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    @torch.compile
    def total(held: list[Any] | None) -> Any:
        sums = torch.zeros(())
        for k in range(500):
            x = torch.from_numpy(np.full(10_000, k, np.float32))
            alive.add(x)
            if held is not None:
                held.append(x)
            sums = sums + x.sum()
            most.append(len(alive))
        return sums

    for held in ([], [], None, None):  # learned while the program itself holds all of them
        most: list[int] = []
        assert total(held).item() == pytest.approx(1e4 * sum(range(500)), rel=1e-5)
        if held:
            held.clear()
    assert max(most) < 150
