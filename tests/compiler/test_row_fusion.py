"""Row fusion: what a reduction, softmax or norm reads is computed inside of its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_program import leaves_of, like, moved

import weft
from weft import nn
from weft.compiler import passes
from weft.compiler.program import lower
from weft.compiler.row_fused import RowFusedWork
from weft.core import selection
from weft.native.codegen import jit

F = nn.functional
pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()

ROWS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(),
    "sum -1": lambda x: x.sum(-1),
    "sum 0": lambda x: x.sum(0),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "amax": lambda x: x.amax(-1),
    "amin 0": lambda x: x.amin(0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "softmax": lambda x: x.softmax(-1),
    "softmax 0": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "std": lambda x: x.std(-1),
    "norm": lambda x: x.norm(dim=-1),
    "argmax": lambda x: x.argmax(-1),
    "max": lambda x: x.max(0).values,
}
# One for each schedule: rows, short rows, parts of long ones, columns, tiles and parts of these.
SHAPES = [(20, 100), (70, 10), (2, 40_000), (1, 70_001), (300, 7), (2000, 3), (5, 3000), (1, 1)]
CHEAP = [
    lambda a, b, n: a * b,
    lambda a, b, n: a * n + b,
    lambda a, b, n: (a - b) * a,
    lambda a, b, n: a + 0.75,
    lambda a, b, n: (a / (b * b + 1.5)) * n,
    lambda a, b, n: -(a * 0.3 - b).abs(),
]
COSTLY = [lambda a, b, n: (a * b).exp(), lambda a, b, n: (a - b) ** 2, lambda a, b, n: a.tanh() * n]


def random_arrays(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> tuple[Any, ...]:
    a, b = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    if rng.integers(3) == 0:  # another order of dimensions, the same for both
        a, b = (np.asfortranarray(x) for x in (a, b))
    return a, b, np.asarray(rng.uniform(0.5, 2.0), dtype)


def fused_in(graph: Any, also: str) -> list[str]:
    """The loops of a program that gives the results of a graph, and that of a node as well."""
    specs = list(graph._specs.values())
    wanted = [r for s in specs if s.op_name == also for r in s.results()]
    told = lower(specs, leaves_of(graph), [*graph._outputs, *wanted]).explain()
    return [line.split(" in one loop")[0].strip() for line in told if "loop" in line]


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("shape", SHAPES)
def test_bits_are_those_of_the_ops_alone(
    row: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if row == "std" and shape[1] == 1:
        pytest.skip("the spread of one element is undefined")
    rng = np.random.default_rng(sum(map(ord, row)) + sum(shape))
    joined = 0
    for dtype in (np.float32, np.float64):
        for before in (*CHEAP, *COSTLY):
            arrays = tuple(weft.from_numpy(x).clone() for x in random_arrays(rng, shape, dtype))
            with weft.graph.record() as graph, weft.no_grad():
                out = ROWS[row](before(*arrays))
            specs, leaves, wanted = list(graph._specs.values()), leaves_of(graph), graph._outputs
            together = lower(specs, leaves, wanted)
            with monkeypatch.context() as m:
                m.setattr(passes, "rows_fused", lambda nodes, ends: list(nodes))
                alone = lower(specs, leaves, wanted)
            joined += len(together.kernels()) < len(alone.kernels())
            given = {id: moved(a, rng) for id, a in leaves.items()}
            first = together.run([like(given[id]) for id in together.leaves])
            second = alone.run([like(given[id]) for id in alone.leaves])
            assert first is not None and second is not None
            for x, y in zip(first, second, strict=True):
                np.testing.assert_array_equal(x, y)
            del out
    # A matrix in the other order can be one that is copied first; most are not. Norms look at
    # their values, and a reduction over one element is a copy.
    assert joined >= 4 or row == "norm" or (shape[0] == 1 and (row.endswith("0") or shape[1] == 1))


def recorded(function: Callable, *arrays: Any) -> Any:
    with weft.graph.record() as graph:
        kept = function(*arrays)
    assert kept is not None
    return graph


X, Y, ROW = weft.randn(30, 50), weft.randn(30, 50), weft.randn(50)


@pytest.mark.parametrize(
    ("function", "also", "found"),
    [
        (lambda x, y, r: (x * y).sum(-1), "", ["mul+sum"]),
        (lambda x, y, r: ((x - y) ** 2).mean(), "", ["sub+pow+mean"]),
        (lambda x, y, r: (x * 0.5).softmax(-1), "", ["mul+softmax"]),
        # Others read the value: who runs the program, or a second node.
        (lambda x, y, r: (x * y).sum(-1), "mul", []),
        (lambda x, y, r: (z := x * y).sum(-1) + z.amax(-1), "", []),
        # What the other result needs stays outside; the rest is done inside.
        (lambda x, y, r: ((z := x - y) * z * 2.0).sum(-1), "sub", ["mul+mul+sum"]),
        # Repeated operands, and work that is too much for several passes.
        (lambda x, y, r: (x * r).sum(-1), "", []),
        (lambda x, y, r: (x * y).exp().softmax(-1), "", ["mul+exp"]),
    ],
)
def test_what_is_fused(function: Callable, also: str, found: list[str]) -> None:
    assert [n for n in fused_in(recorded(function, X, Y, ROW), also) if "+" in n] == found


def test_a_number_and_an_array_in_one_place_are_two_kernels() -> None:
    for scale in (weft.tensor(3.0), Y, weft.tensor(-2.0)):
        graph = recorded(lambda x, s: (x * s).sum(-1), X, scale)
        program = lower(list(graph._specs.values()), leaves_of(graph), graph._outputs)
        (out,) = program.run([leaves_of(graph)[id] for id in program.leaves]) or ()
        np.testing.assert_allclose(out, (X * scale).sum(-1).numpy(), rtol=1e-5, atol=1e-5)


def test_gradients_pass() -> None:
    @weft.compile
    def step(x: Any, w: Any) -> Any:
        normed = x * weft.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w
        loss = ((normed - 0.5) ** 2).mean() + (normed * 0.1).softmax(-1).amax(-1).sum()
        loss.backward()
        return loss

    results = []
    for compiled in (False, True):
        x, w = X.clone().requires_grad_(), ROW.clone().requires_grad_()
        for _ in range(4):
            x.grad = w.grad = None
            loss = step(x, w) if compiled else step.function(x, w)
        results.append((loss.detach(), x.grad, w.grad))
    assert step.learned.diverged == 1
    for a, b in zip(*results, strict=True):
        assert weft.allclose(a, b, rtol=1e-5, atol=1e-7)


def test_the_pass_gives_a_work_with_its_parts() -> None:
    from test_passes import nodes_of

    graph = recorded(lambda x, y: (x * y).sum(-1), X, Y)
    expansion, ends = nodes_of(graph)
    nodes, _ = passes.optimized(expansion.nodes, ends)
    (node,) = nodes
    assert isinstance(node.work, RowFusedWork)
    assert [n.work.name for n in node.work.members] == ["mul", "sum"]
    assert [n.work.name for n in node.work.parts()] == ["mul", "sum"]
