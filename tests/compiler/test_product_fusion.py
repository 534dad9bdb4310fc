"""Fusion into products: relu behind a layer is part of the product, and changes no bit."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_program import leaves_of, like

import weft
from weft import nn
from weft.compiler import passes
from weft.compiler.expand import Expansion
from weft.compiler.passes.products import FusedReluWork, rectified
from weft.compiler.program import Program, lower
from weft.core import selection
from weft.native import threads
from weft.native.codegen import jit
from weft.native.gemm import direct

F = nn.functional
pytestmark = pytest.mark.skipif(
    jit.why_not() is not None or not direct.available(), reason="no code that reads through masks"
)
selection.start()
SIZES = st.one_of(st.integers(1, 20), st.integers(1, 140))
ODD = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42)


@pytest.fixture(autouse=True)
def same_number_of_threads() -> Iterator[None]:
    before = threads.count()
    yield
    threads.set_count(before)


def recorded(function: Callable, *arrays: Any) -> Any:
    with weft.graph.record() as graph:
        kept = function(*arrays)
    assert kept is not None
    return graph


def program_of(graph: Any, also: str = "") -> Program:
    """A program that gives the results of a graph, and that of ops of a name as well."""
    specs = list(graph._specs.values())
    wanted = [r for s in specs if s.op_name == also for r in s.results()]
    return lower(specs, leaves_of(graph), [*graph._outputs, *wanted])


def both(graph: Any) -> tuple[Program, Program]:
    """The program, and the one without this fusion."""
    with pytest.MonkeyPatch.context() as m:
        m.setattr(passes, "rectified", lambda nodes, ends: list(nodes))
        alone = program_of(graph)
    return program_of(graph), alone


def results(program: Program, graph: Any) -> list[np.ndarray]:
    leaves = leaves_of(graph)
    with np.errstate(all="ignore"):
        found = program.run([like(leaves[id]) for id in program.leaves])
    assert found is not None
    return found


def assert_same_bits(graph: Any) -> Program:
    together, alone = both(graph)
    for x, y in zip(results(together, graph), results(alone, graph), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape and x.strides == y.strides
        assert np.array_equal(np.isnan(x), np.isnan(y))
        there = ~np.isnan(x)
        assert np.array_equal(np.signbit(x[there]), np.signbit(y[there]))
        np.testing.assert_array_equal(x, y)
    return together


def fused(program: Program) -> int:
    """How many products rectify."""
    products = {"direct", "by_dots"}
    titles = [title.split(": ") for title in program.kernels()]
    return sum(work.endswith("+relu") and name in products for work, name in titles)


def is_joined(graph: Any) -> bool:
    """Whether the pass joins anything, whatever the product says to it later."""
    expansion = Expansion(list(graph._specs.values()), leaves_of(graph))
    nodes = rectified(expansion.nodes, [expansion.read(r) for r in graph._outputs])
    return any(isinstance(node.work, FusedReluWork) for node in nodes)


def laid(rng: np.random.Generator, rows: int, columns: int, how: int) -> Any:
    """A matrix by rows, by columns, in part of a larger one, with gaps, or of one repeated row."""
    made = weft.from_numpy(rng.standard_normal((2 * rows, 2 * columns)).astype("f4")).clone()
    if how == 1:
        return made[:rows, :columns].T.clone().T
    if how == 2:
        return made[1 : rows + 1, :columns]
    if how == 3:
        return made[::2, ::2]
    if how == 4:
        return made[:1, :columns].expand(rows, columns)
    return made[:rows, :columns].clone()


@settings(max_examples=120, deadline=None)
@given(
    SIZES, SIZES, SIZES, *[st.integers(0, 4)] * 2, st.booleans(), st.booleans(), st.integers(1, 3)
)
def test_bits_are_those_of_the_two_ops(
    m: int, n: int, k: int, how: int, weight: int, biased: bool, odd: bool, count: int
) -> None:
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    x, w = laid(rng, m, k, how), laid(rng, n, k, weight)
    b = weft.from_numpy(rng.standard_normal(n).astype("f4")).clone() if biased else None
    if odd:
        x[m // 2, k // 2] = float(rng.choice(ODD))
        w[n // 2, :] = float(rng.choice(ODD))
    threads.set_count(count)
    graph = recorded(lambda x, w: F.relu(F.linear(x, w, b)), x, w)
    together = assert_same_bits(graph)
    assert fused(together) == (m * n * k <= direct.most())


@pytest.mark.parametrize("shape", [(2, 3, 8), (1, 1, 8), (2, 1, 3, 8), (8,), (0, 8), (2, 0, 8)])
def test_any_rank(shape: tuple[int, ...]) -> None:
    x, w, b = weft.randn(*shape), weft.randn(6, 8), weft.randn(6)
    together = assert_same_bits(recorded(lambda x, w, b: F.linear(x, w, b).relu(), x, w, b))
    assert fused(together) == (len(shape) > 1 and 0 not in shape)
    apart = weft.randn(8, *shape).movedim(0, -1)[..., 0, :]
    assert_same_bits(recorded(lambda x, w, b: F.linear(x, w, b).relu(), apart, w, b))


@pytest.mark.parametrize("sizes", [(5, 0, 4), (5, 3, 0), (0, 3, 4)])
def test_nothing_to_multiply(sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    x, w, b = weft.randn(m, k), weft.randn(n, k), weft.randn(n)
    together = assert_same_bits(recorded(lambda x, w, b: F.linear(x, w, b).relu(), x, w, b))
    assert fused(together) == 0


@pytest.mark.parametrize("dtype", [weft.float64, weft.float16, weft.bfloat16])
def test_other_types_are_left_alone(dtype: Any) -> None:
    x, w, b = (weft.randn(*s).to(dtype) for s in ((9, 8), (6, 8), (6,)))
    graph = recorded(lambda x, w, b: F.linear(x, w, b).relu(), x, w, b)
    program = program_of(graph)
    assert fused(program) == 0 and not is_joined(graph)
    (found,) = results(program, graph)
    want = F.linear(x, w, b).relu().float().numpy()
    np.testing.assert_allclose(found.astype("f4"), want, rtol=2e-2, atol=2e-2)


X, W, B = weft.randn(30, 8), weft.randn(6, 8), weft.randn(6)


@pytest.mark.parametrize(
    ("function", "also", "count"),
    [
        (lambda x, w, b: F.linear(x, w, b).relu(), "", 1),
        (lambda x, w, b: F.linear(x, w).relu(), "", 1),
        (lambda x, w, b: F.linear(x, w, b).relu() + 1.0, "relu", 1),
        # Others read the sums: who runs the program, or a second node.
        (lambda x, w, b: F.linear(x, w, b).relu(), "linear_with_bias", 0),
        (lambda x, w, b: (y := F.linear(x, w, b)).relu() + y.exp(), "", 0),
        (lambda x, w, b: (y := F.linear(x, w, b)).relu().sum() + y.amax(), "", 0),
        # Something is between, or is not relu.
        (lambda x, w, b: (F.linear(x, w, b) * 2.0).relu(), "", 0),
        (lambda x, w, b: F.linear(x, w, b).exp(), "", 0),
        # Two products, one after another.
        (lambda x, w, b: F.linear(F.linear(x, w, b).relu(), w.T).relu(), "", 2),
        # A bias that is not in one piece is added by another product.
        (lambda x, w, b: F.linear(x, w, w[:, 3]).relu(), "", 0),
        (lambda x, w, b: F.linear(x, w, b[:1].expand(6)).relu(), "", 0),
    ],
)
def test_what_is_fused(function: Callable, also: str, count: int) -> None:
    graph = recorded(function, X, W, B)
    program = program_of(graph, also)
    assert fused(program) == count
    specs = list(graph._specs.values())
    wanted = [r for s in specs if s.op_name == also for r in s.results()]
    assert bool(wanted) == bool(also)
    assert len(results(program, graph)) == len(graph._outputs) + len(wanted)
    assert_same_bits(graph)


def test_large_layers_stay_apart() -> None:
    """Their products can't rectify, so masks are made where relu is."""
    many = direct.most() // 64 + 1
    x, w = weft.randn(many, 8), weft.randn(8, 8)
    graph = recorded(lambda x, w: F.linear(x, w).relu(), x, w)
    assert not is_joined(graph)
    assert_same_bits(graph)


@pytest.mark.parametrize("sizes", [(2, 10, 1), (32, 64, 64, 10), (4, 128, 128, 2)])
def test_steps_have_the_bits_of_those_without_fusion(sizes: tuple[int, ...]) -> None:
    """Training, with masks that are made again from rectified values in the backward pass."""

    def trained(fuse: bool) -> tuple[list[float], list[np.ndarray]]:
        weft.manual_seed(0)
        layers: list[Any] = []
        for n, m in itertools.pairwise(sizes):
            layers += [nn.Linear(n, m), nn.ReLU()]
        model = nn.Sequential(*layers[:-1])
        optimizer = weft.optim.SGD(model.parameters(), 0.05)
        x, y = weft.randn(50, sizes[0]), weft.randn(50, sizes[-1])
        x[3, 0] = -0.0

        @weft.compile
        def step() -> Any:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        with pytest.MonkeyPatch.context() as m:
            if not fuse:
                m.setattr(passes, "rectified", lambda nodes, ends: list(nodes))
            losses = [step().item() for _ in range(6)]
        return losses, [p.detach().numpy() for p in model.parameters()]

    (first, mine), (second, theirs) = trained(True), trained(False)
    assert first == second and first[-1] < first[0]
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_nan_passes_the_gradient_on() -> None:
    x, w, b = weft.randn(5, 8), weft.randn(6, 8), weft.randn(6)
    x[2, 1] = float("nan")

    def step(x: Any, w: Any, b: Any) -> Any:
        w = w.detach().requires_grad_()
        F.linear(x, w, b).relu().sum().backward()
        return w.grad

    compiled = weft.compile(step)
    for _ in range(4):
        found = compiled(x, w, b)
    np.testing.assert_allclose(found.numpy(), step(x, w, b).numpy(), rtol=1e-6)
