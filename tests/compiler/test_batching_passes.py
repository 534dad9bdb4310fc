"""Sums of products as one product, and independent products with one weight as one product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_program import leaves_of

import weft
from weft.compiler.expand import Expansion
from weft.compiler.passes import batching, sums
from weft.compiler.passes.dead import without_dead
from weft.core import selection
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()
functional = weft.nn.functional


def lowered(run: Callable[[], Any]) -> tuple[list[Any], list[Any]]:
    """The work of what a function records, and what is wanted of it: results and gradients."""
    with weft.graph.record() as graph:
        out = run()
    wanted = [*graph._outputs, *(r for r in graph._gradients.values() if r is not None)]
    expansion = Expansion(list(graph._specs.values()), leaves_of(graph))
    del out
    return expansion.nodes, [expansion.read(r) for r in wanted]


def counts(nodes: list[Any], name: str) -> int:
    return sum(node.work.name == name for node in nodes)


def summed(run: Callable[[], Any]) -> int:
    """How many products are left of those that a function makes."""
    nodes, ends = lowered(run)
    left = without_dead(sums.products_joined(nodes, ends), ends)
    return counts(left, "mm")


def parameters() -> tuple[Any, Any]:
    return weft.randn(8, 6).requires_grad_(), weft.randn(8).requires_grad_()


def test_the_gradient_of_a_weight_is_one_product() -> None:
    weight, bias = parameters()
    inputs = [weft.randn(2, 6) for _ in range(7)]
    loss = lambda: sum(functional.linear(x, weight, bias).exp().sum() for x in inputs).backward()
    nodes, ends = lowered(loss)
    left = without_dead(sums.products_joined(nodes, ends), ends)
    assert counts(nodes, "mm") == 7 and counts(left, "mm") == 1
    assert counts(nodes, "sum") - counts(left, "sum") == 6  # the bias: one sum in place of seven


@pytest.mark.parametrize("layer", [True, False])
def test_few_terms_and_large_ones_stay(layer: bool) -> None:
    weight, bias = parameters()

    def run(count: int, rows: int) -> int:
        inputs = [weft.randn(rows, 6) for _ in range(count)]
        forward = count * (not layer)
        product = (lambda x: functional.linear(x, weight, bias)) if layer else (
            lambda x: x @ weight.T
        )  # fmt: skip
        return summed(lambda: sum(product(x).exp().sum() for x in inputs).backward()) - forward

    assert run(4, 2) == 1
    assert run(3, 2) == 3
    assert run(5, 6) == 5  # 6 * (6 + 8) elements to copy, where a product has 6 * 8


def test_what_others_read_stays() -> None:
    weight = weft.randn(8, 6)
    pairs = [(weft.randn(2, 8), weft.randn(2, 6)) for _ in range(6)]

    def run(keep: int) -> tuple[Any, ...]:
        products = [g.T @ x for g, x in pairs]
        total = products[0]
        partial = []
        for p in products[1:]:
            total = total + p
            partial.append(total)
        return (total * weight, products[2] * weight) if keep == 1 else (
            (total * weight, partial[2] * weight) if keep == 2 else (total * weight,)
        )  # fmt: skip

    assert summed(lambda: run(0)) == 1
    assert summed(lambda: run(1)) == 2  # the product that is read, and one for the others
    assert summed(lambda: run(2)) == 3  # four together, whose sum is read, and two alone


def test_rows_are_kept_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "ROWS", 6)
    weight, _ = parameters()
    inputs = [weft.randn(2, 6) for _ in range(12)]
    layer = lambda x: functional.linear(x, weight).exp().sum()
    assert summed(lambda: sum(map(layer, inputs)).backward()) == 4


def test_inputs_of_a_cell_are_read_by_one_product() -> None:
    read, recur = weft.nn.Linear(8, 8), weft.nn.Linear(8, 8)
    inputs = list(weft.randn(6, 2, 8))

    def run() -> Any:
        h = weft.zeros(2, 8)
        for x in inputs:
            h = (read(x) + recur(h)).tanh()
        return h

    with weft.no_grad():
        nodes, ends = lowered(run)
    left = without_dead(batching.batched(nodes), ends)
    assert counts(nodes, "linear_with_bias") == 12
    assert counts(left, "linear_with_bias") == 7  # one for all inputs, and six in turn


def test_a_tree_is_joined_level_by_level() -> None:
    layer = weft.nn.Linear(8, 4)

    def join(values: Any) -> Any:
        if len(values) == 1:
            return values[0]
        half = len(values) // 2
        return layer(weft.cat((join(values[:half]), join(values[half:])))).tanh()

    leaves = weft.randn(32, 4)
    with weft.no_grad():
        nodes, ends = lowered(lambda: join(leaves))
    left = without_dead(batching.batched(nodes), ends)
    assert counts(nodes, "linear_with_bias") == 31
    assert counts(left, "linear_with_bias") == 6  # 16, 8 and 4 together; two and one alone


# --- values ----------------------------------------------------------------------------------


KINDS = ("layer", "layer", "layer", "doubled", "plain", "add", "drop", "vector")


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    """Steps that apply few layers to earlier values, in any order, with draws in between."""
    steps = []
    for k in range(draw(st.integers(4, 24))):
        kind = draw(st.sampled_from(KINDS))
        first, second = draw(st.integers(0, k)), draw(st.integers(0, k))
        steps.append((kind, draw(st.integers(0, 2)), first, second))
    return steps


def interpreted(steps: list[tuple[Any, ...]], layers: list[Any], x: Any) -> Any:
    values = [x]
    for kind, which, a, b in steps:
        weight, bias = layers[which]
        if kind == "layer":
            y = functional.linear(values[a], weight, bias).tanh()
        elif kind == "doubled":
            y = functional.linear(values[a], weight, bias + bias).tanh()
        elif kind == "plain":
            y = values[a] @ weight
        elif kind == "add":
            y = values[a] * 0.5 + values[b]
        elif kind == "drop":
            y = functional.dropout(values[a], 0.25)
        else:
            row = functional.linear(values[a][0], weight, bias)
            y = values[b] + row
        values.append(y)
    # A program without layers has a gradient all the same.
    return sum((v * v).mean() for v in values[-6:]) + layers[0][1].mean()


def test_a_term_that_is_added_twice_counts_twice() -> None:
    """A bias that is doubled in each application gets the same sum of rows two times from each."""
    weight, bias = parameters()
    inputs = [weft.randn(2, 6) for _ in range(6)]

    def step() -> Any:
        bias.grad = weight.grad = None
        outs = (functional.linear(x, weight, bias + bias).tanh() for x in inputs)
        sum(out.sum() for out in outs).backward()
        return bias.grad.clone()

    expected, compiled = step().numpy(), weft.compile(step)
    for _ in range(3):
        np.testing.assert_allclose(compiled().numpy(), expected, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 1000))
def test_any_program_gives_the_values_of_eager_mode(steps: list[Any], seed: int) -> None:
    """A batch of products of which one needs another, or draws in another order, would differ."""
    weft.manual_seed(seed)
    layers = [
        (weft.randn(5, 5, dtype=weft.float64).requires_grad_(),
         weft.randn(5, dtype=weft.float64).requires_grad_())
        for _ in range(3)
    ]  # fmt: skip
    x = weft.randn(2, 5, dtype=weft.float64)
    leaves = [t for pair in layers for t in pair]

    def step() -> Any:
        for t in leaves:
            t.grad = None
        loss = interpreted(steps, layers, x)
        loss.backward()
        return loss

    def outcome(run: Callable) -> list[Any]:
        weft.manual_seed(seed + 1)
        loss = run()
        gradients = [None if t.grad is None else t.grad.numpy().copy() for t in leaves]
        return [loss.item(), *gradients, weft.rand(1).item()]

    expected, compiled = outcome(step), weft.compile(step)
    for _ in range(3):
        found = outcome(compiled)
        for a, b in zip(found, expected, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_draws_keep_their_order() -> None:
    """The inputs of a batch are made before it; other draws in between must not be made later."""
    weight = weft.randn(5, 5)

    def run(x: Any) -> Any:
        values = []
        for _ in range(6):
            values.append(functional.linear(functional.dropout(x, 0.25), weight).tanh())
            values.append(functional.dropout(x, 0.5) * 0.5)
        return sum((v * v).sum() for v in values)

    static, x = weft.compile(run, static=True), weft.randn(2, 5)
    for seed in range(5):
        weft.manual_seed(seed)
        expected = run(x).item()
        weft.manual_seed(seed)
        assert static(x).item() == pytest.approx(expected, rel=1e-5)


def test_a_product_that_needs_another_is_not_in_its_batch() -> None:
    layer = weft.nn.Linear(6, 6)

    def run() -> Any:
        x = weft.ones(2, 6)
        for _ in range(6):
            x = layer(x)
        return x

    with weft.no_grad():
        nodes, ends = lowered(run)
    assert counts(without_dead(batching.batched(nodes), ends), "linear_with_bias") == 6
