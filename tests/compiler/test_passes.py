"""Passes: each leaves the values as they were, and does what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_program import leaves_of, like, moved, random_graph

import weft
from weft.compiler import passes, program
from weft.compiler.expand import Expansion
from weft.compiler.fused import FusedWork
from weft.compiler.passes import fusion
from weft.compiler.passes.common import without_repeats
from weft.compiler.passes.dead import without_dead
from weft.compiler.passes.fusion import fused
from weft.compiler.program import lower
from weft.core import selection
from weft.graph.spec import LEAVES, Ref
from weft.native import onednn
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


def nodes_of(graph: Any) -> tuple[Any, list[Any]]:
    expansion = Expansion(list(graph._specs.values()), leaves_of(graph))
    return expansion, [expansion.read(r) for r in graph._outputs]


def test_dead_code() -> None:
    x = weft.randn(3)
    with weft.graph.record() as graph:
        y = x + 1
        x * 2
        z = y.exp()
    del z
    expansion, _ = nodes_of(graph)
    ends = [expansion.values[Ref(s.id)] for s in graph._specs.values() if s.op_name == "exp"]
    assert [n.work.name for n in without_dead(expansion.nodes, ends)] == ["add", "exp"]


def test_constants() -> None:
    x = weft.randn(3, 4).requires_grad_()
    with weft.graph.record() as graph:
        (x.mean() * 3).backward()
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    wanted = [r for r in graph._gradients.values() if r is not None]
    found = lower(specs, leaves, wanted)
    assert len(found.kernels()) <= 2 and not found.leaves  # the gradient is one number
    (gradient,) = found.run([]) or ()
    np.testing.assert_allclose(gradient, np.full((3, 4), 0.25), rtol=1e-6)


def test_equal_work_is_done_once() -> None:
    x = weft.randn(3)
    with weft.graph.record() as graph:
        y = (x * 2.0).exp() + (x * 2.0).exp() + (x * 2).exp() + (x * -0.0) + (x * 0.0)
    del y
    expansion, ends = nodes_of(graph)
    left, (end,) = without_repeats(expansion.nodes, ends)
    names = [n.work.name for n in left]
    # 2 and 2.0 are not the same operand, nor are 0.0 and -0.0.
    assert names.count("mul") == 4 and names.count("exp") == 2
    assert end in left[-1].results


def test_neighbours_become_one_loop() -> None:
    x, row = weft.randn(4, 5), weft.randn(5)
    with weft.graph.record() as graph:
        y = ((x * row + 1).tanh() - x).relu()
        z = y.sum(0) * row
    del z
    expansion, ends = nodes_of(graph)
    nodes = fused(expansion.nodes, ends)
    groups = [n.work for n in nodes if isinstance(n.work, FusedWork)]
    assert [len(g.members) for g in groups] == [5, 1]
    assert len(groups[0].results) == 1
    told = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs).explain()
    assert "mul+add+tanh+sub+relu in one loop" in told


def test_what_stands_between_is_not_passed() -> None:
    x = weft.randn(6, 6)
    with weft.graph.record() as graph:
        y = x.exp()
        z = y * (y @ x)  # depends on y through a product: two loops
    del z
    expansion, ends = nodes_of(graph)
    nodes = fused(expansion.nodes, ends)
    kinds = [n.work.name for n in nodes]
    assert kinds == ["exp", "mm", "mul"] or kinds == ["exp", "matmul", "mul"]


@pytest.mark.parametrize("seed", range(40))
def test_fusion_changes_no_bit(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same program with loops of single ops, in separate memory."""
    graph = random_graph(seed)
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    rng = np.random.default_rng(seed)
    every = [r for s in specs if s.kind not in LEAVES and s.kind == "forward" for r in s.results()]
    chosen = [every[int(k)] for k in rng.integers(0, len(every), 1 + len(every) // 4)]
    together = lower(specs, leaves, chosen)
    monkeypatch.setattr(program, "optimized", lambda nodes, ends: (list(nodes), list(ends)))
    alone = lower(specs, leaves, chosen)
    assert len(alone.kernels()) >= len(together.kernels())
    given = {id: moved(a, rng) for id, a in leaves.items()}
    first = together.run([like(given[id]) for id in together.leaves])
    second = alone.run([like(given[id]) for id in alone.leaves])
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.strides == b.strides


def test_a_transposed_reader_keeps_its_memory() -> None:
    """A result must not be written over an input that is read at other places as well."""
    x = weft.randn(16, 16)
    with weft.graph.record() as graph:
        y = x.exp()
        z = (y * 2 + y.t() * y) @ x
    del z
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    found = lower(specs, leaves, graph._outputs).run(list(leaves.values()))
    a = leaves[0]
    e = np.exp(a)
    np.testing.assert_allclose(found[0], (e * 2 + e.T * e) @ a, rtol=1e-3, atol=1e-3)  # type: ignore[index]


def test_passes_are_all_there_is() -> None:
    assert passes.optimized([], []) == ([], [])


def test_groups_do_not_wait_for_each_other() -> None:
    """Two loops, of which each would read what the other makes, through products before both."""

    @weft.compile
    def step(x: Any, y: Any, w: Any) -> Any:
        early = x.exp()  # with ``late`` it would be one loop
        twice = (early @ w) @ w  # ends before the other loop begins
        other = y.exp()
        late = early + other @ w
        return late.sum() + (other * twice).sum()

    x, y, w = weft.randn(6, 5), weft.randn(6, 5), weft.randn(5, 5)
    with weft.no_grad():
        expected = step.function(x, y, w)
        for _ in range(4):
            found = step(x, y, w)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-5)
    assert step.learned.compiled


def looks(depth: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often fusion asks what a group reads from, in a step of a network over a binary tree."""
    layer = weft.nn.Linear(8, 4)

    def join(values: Any) -> Any:
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return layer(weft.cat((join(values[:half]), join(values[half:])))).tanh()

    with weft.graph.record() as graph:
        ((join(weft.randn(2**depth, 4)) - 1) ** 2).mean().backward()
    wanted = [r for r in graph._gradients.values() if r is not None]
    expansion = Expansion(list(graph._specs.values()), leaves_of(graph))
    counted = []
    whole = fusion._sources
    with monkeypatch.context() as patch:
        patch.setattr(fusion, "_sources", lambda *args: counted.append(0) or whole(*args))
        fused(expansion.nodes, [expansion.read(r) for r in wanted])
    return len(counted)


def test_fusion_of_large_graphs_takes_time_in_proportion(monkeypatch: pytest.MonkeyPatch) -> None:
    small, large = looks(5, monkeypatch), looks(8, monkeypatch)
    assert large < 12 * small  # eight times as many nodes


@pytest.mark.skipif(not onednn.available(), reason="oneDNN makes the product")
def test_a_vector_times_a_matrix_is_native() -> None:
    layer, x = weft.nn.Linear(32, 64), weft.randn(32, requires_grad=True)
    with weft.graph.record() as graph:
        layer(x).tanh().sum().backward()
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    wanted = [r for r in graph._gradients.values() if r is not None]
    made = lower(specs, leaves, wanted)
    assert not [line for line in made.explain() if "runs in Python" in line]
    np.testing.assert_allclose(
        sorted(float(np.abs(a).sum()) for a in made.run([leaves[i] for i in made.leaves]) or ()),
        sorted(p.grad.abs().sum().item() for p in (x, *layer.parameters())),
        rtol=1e-5,
    )
