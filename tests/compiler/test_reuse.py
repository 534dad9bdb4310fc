"""Planning again: the same work on arrays that lie the same is planned once, anything else anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_program import leaves_of, like, moved, random_graph

import weft
from weft import nn
from weft.compiler import building, expand
from weft.compiler.program import lower
from weft.core import selection
from weft.graph.spec import LEAVES
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "JOBS", {})
    monkeypatch.setattr(expand, "TEMPLATES", {})


def step_of(batch: int, layers: int = 2) -> Any:
    weft.manual_seed(0)
    parts: list[Any] = [nn.Linear(6, 8)]
    for _ in range(layers):
        parts += [nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8)]
    model = nn.Sequential(*parts)
    x = weft.randn(batch, 6)
    with weft.graph.record() as graph:
        model(x).square().mean().backward()
    ends = {graph._specs[leaf].leaf.tensor: r for leaf, r in graph._gradients.items()}
    return list(graph._specs.values()), leaves_of(graph), list(ends.values()), list(ends)


@pytest.mark.parametrize("seed", range(30))
def test_jobs_of_another_program_give_the_same(seed: int) -> None:
    """A program made of known jobs, and one made of its own."""
    graph = random_graph(seed)
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    every = [r for s in specs if s.kind not in LEAVES and s.kind == "forward" for r in s.results()]
    rng = np.random.default_rng(seed)
    chosen = [every[int(k)] for k in rng.integers(0, len(every), 1 + len(every) // 4)]
    for other in range(30, 60):  # what other programs leave behind must not matter
        before = random_graph(other)
        given = list(before._specs.values())
        ends = [r for s in given if s.kind == "forward" for r in s.results()][-2:]
        lower(given, leaves_of(before), ends)
    known = lower(specs, leaves, chosen)
    building.JOBS.clear()
    expand.TEMPLATES.clear()
    own = lower(specs, leaves, chosen)
    assert known.kernels() == own.kernels()
    values = {id: moved(a, rng) for id, a in leaves.items()}
    first = known.run([like(values[id]) for id in known.leaves])
    second = own.run([like(values[id]) for id in own.leaves])
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_equal_layers_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    true = building.plan

    def plan(node: Any, *rest: Any) -> Any:
        planned.append(node.work.name)
        return true(node, *rest)

    monkeypatch.setattr(building, "plan", plan)
    specs, leaves, wanted, _ = step_of(5)
    lower(specs, leaves, wanted)
    few = len(planned)
    planned.clear()
    specs, leaves, wanted, _ = step_of(5, layers=6)
    lower(specs, leaves, wanted)
    assert not planned or len(planned) < few / 3, planned  # the first and last layers differ
    planned.clear()
    lower(specs, leaves, wanted)
    assert not planned


def test_a_new_batch_size_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    specs, leaves, wanted, _ = step_of(5)
    lower(specs, leaves, wanted)
    loaded: list[Any] = []
    engine = jit.engine()
    true = engine.load

    def load(*given: Any) -> Any:
        loaded.append(given[0])
        return true(*given)

    monkeypatch.setattr(engine, "load", load)
    for batch in (7, 12, 33):
        specs, leaves, wanted, parameters = step_of(batch)
        loaded.clear()  # what eager mode has compiled
        made = lower(specs, leaves, wanted)
        assert not loaded
        found = made.run([leaves[id] for id in made.leaves])
        assert found is not None
        for array, p in zip(found, parameters, strict=True):
            np.testing.assert_allclose(array, p.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_operands_that_are_equal_but_not_the_same() -> None:
    x = weft.tensor([1.0, -2.0, 3.0])
    for exponent in (2, 2.0, -2, 0, 0.5):
        with weft.graph.record() as graph:
            y = x**exponent
        made = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
        (found,) = made.run([x._a for _ in made.leaves]) or ()
        np.testing.assert_array_equal(found, y.numpy())
    for value in (0.0, -0.0):
        with weft.graph.record() as graph:
            y = weft.copysign(x, value)
        made = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
        (found,) = made.run([x._a for _ in made.leaves]) or ()
        np.testing.assert_array_equal(np.signbit(found), np.signbit(y.numpy()))


def test_settings_are_part_of_what_is_known() -> None:
    """A job that was planned under another setting is not taken."""
    x, w = weft.randn(8, 64, 16, 16), weft.randn(64, 64, 3, 3)
    with weft.graph.record() as graph:
        y = nn.functional.conv2d(x, w)
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    kernels = []
    for on in (True, False, True):
        weft.backends.native.set_winograd(on)
        try:
            kernels.append(lower(specs, leaves, graph._outputs).kernels())
        finally:
            weft.backends.native.set_winograd(True)
    assert kernels[0] == kernels[2] != kernels[1]
    del y
