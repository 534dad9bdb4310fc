"""Relu after pooling: fewer elements, the same bits; and not where somebody would see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_passes import nodes_of
from test_program import leaves_of, like, moved

import weft
from weft.compiler import program
from weft.compiler.passes.common import without_repeats
from weft.compiler.passes.pooling import pooled_first
from weft.compiler.program import lower
from weft.core import selection
from weft.graph.spec import Ref
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()
F = weft.nn.functional

WINDOWS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": 3, "stride": 1},
    {"kernel_size": 2, "stride": 2, "ceil_mode": True},
]


def names_after(graph: Any) -> list[str]:
    expansion, ends = nodes_of(graph)
    nodes, ends = without_repeats(expansion.nodes, ends)
    return [n.work.name for n in pooled_first(nodes, ends)]


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("special", [False, True])
def test_the_exchange_changes_no_bit(
    window: Any, special: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = weft.randn(2, 3, 9, 9)
    bias = weft.randn(3, 1, 1)
    if special:
        x[0, 0] = -1.0  # whole windows without gradient
        x[0, 1, 2, 2:4] = float("nan")
        x[1, 1] = weft.randint(-1, 2, (9, 9)).float()  # ties
        x[1, 2] = float("inf")
    x, bias = x.requires_grad_(), bias.requires_grad_()
    with weft.graph.record() as graph:
        y = F.max_pool2d((x + bias).relu(), **window)
        weight = weft.arange(y.numel()).reshape(y.shape) - 20.0
        (y * weight).sum().backward()
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    wanted = [r for r in graph._gradients.values() if r is not None]
    pool = next(s for s in specs if s.op_name == "max_pool_with_indices")
    wanted.append(Ref(pool.id))
    together = lower(specs, leaves, wanted)
    order = together.kernels()
    assert "relu" not in " ".join(order[: _first(order, "max_pool")])
    monkeypatch.setattr(program, "optimized", lambda nodes, ends: (list(nodes), list(ends)))
    alone = lower(specs, leaves, wanted)
    order = alone.kernels()
    assert "relu" in " ".join(order[: _first(order, "max_pool")])
    rng = np.random.default_rng(0)
    given = leaves if special else {id: moved(a, rng) for id, a in leaves.items()}
    first = together.run([like(given[id]) for id in together.leaves])
    second = alone.run([like(given[id]) for id in alone.leaves])
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        if a.shape == (3, 1, 1):  # a sum, in another order
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)
        else:
            np.testing.assert_array_equal(a, b)


def _first(kernels: list[str], name: str) -> int:
    return next(k for k, text in enumerate(kernels) if text.startswith(name))


def test_who_looks_at_rectified_values_or_places_sees_them() -> None:
    x = weft.randn(1, 2, 4, 4).requires_grad_()
    with weft.graph.record() as graph:
        y = x.relu()
        z = F.max_pool2d(y, 2).sum() + y.sum()
    names = names_after(graph)
    assert names.index("relu") < names.index("max_pool_with_indices")
    with weft.graph.record() as graph:
        z, places = F.max_pool2d(x.relu(), 2, return_indices=True)
    names = names_after(graph)
    assert names.index("relu") < names.index("max_pool_with_indices")
    with weft.graph.record() as graph:
        z = F.max_pool2d(x.relu(), 2)
    names = names_after(graph)
    assert names.index("relu") > names.index("max_pool_with_indices")
    del z, places


def test_a_sum_of_scattered_values_is_their_sum() -> None:
    x, bias = weft.randn(2, 3, 8, 8), weft.randn(3, 1, 1).requires_grad_()
    with weft.graph.record() as graph:
        F.max_pool2d(x + bias, 2).exp().sum().backward()
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    (wanted,) = [r for r in graph._gradients.values() if r is not None]
    made = lower(specs, leaves, [wanted])
    assert not any(text.startswith("plane_scatter") for text in made.kernels())
    (found,) = made.run([leaves[id] for id in made.leaves]) or ()
    assert bias.grad is not None
    np.testing.assert_allclose(found, bias.grad.numpy(), rtol=1e-5)
