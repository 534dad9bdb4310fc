"""Convolutions of the places that pooling reads: the same numbers, and not where somebody looks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_passes import nodes_of
from test_program import leaves_of, like

import weft
from weft.compiler import passes
from weft.compiler.ir import WorkNode
from weft.compiler.ops import OpWork
from weft.compiler.passes.cropping import CroppedGradient, cropped
from weft.compiler.program import lower
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()
F = weft.nn.functional
TOLERANCE = {weft.float32: 1e-4, weft.float64: 1e-11}


def recorded(x: Any, w: Any, bias: Any, conv: dict, pool: dict, relu: bool = True) -> Any:
    """The graph of a convolution under pooling, with its gradients, and what is wanted of it."""
    with weft.graph.record() as graph:
        y = F.conv2d(x, w, bias, **conv)
        z = F.max_pool2d(y.relu() if relu else y, **pool)
        weight = (weft.arange(z.numel()) % 7 - 3.0).reshape(z.shape).to(z.dtype)
        (z * weight).sum().backward()
    return graph, [r for r in graph._gradients.values() if r is not None]


def left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "cropped", lambda nodes, ends: list(nodes))


def both(graph: Any, wanted: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Results with the pass and without; None where a run was given up."""
    specs, leaves = list(graph._specs.values()), leaves_of(graph)
    with_pass = lower(specs, leaves, wanted)
    with monkeypatch.context() as patch:
        left_out(patch)
        without = lower(specs, leaves, wanted)
    found = [p.run([like(leaves[id]) for id in p.leaves]) for p in (with_pass, without)]
    return found[0], found[1]


def nodes_after(graph: Any) -> list[WorkNode]:
    expansion, ends = nodes_of(graph)
    nodes = passes.pooled_first(*passes.without_repeats(expansion.nodes, ends))
    return cropped(nodes, ends)


def extents(graph: Any) -> list[tuple[int, ...]]:
    """The places that each convolution of a graph computes after the pass."""
    return [n.results[0].shape[2:] for n in nodes_after(graph) if n.work.name == "convolution"]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_left_out_changes_nothing(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))
    size = (draw(9, 14), draw(9, 14))
    channels, dtype = draw(1, 20), data.draw(st.sampled_from(list(TOLERANCE)))
    conv = {"stride": draw(1, 2), "padding": draw(0, 1)}
    pool = {"kernel_size": draw(1, 3), "stride": draw(1, 4), "ceil_mode": data.draw(st.booleans())}
    if pool["kernel_size"] > 1:
        pool |= {"padding": draw(0, 1), "dilation": draw(1, 2)}
    k = draw(1, 3)
    relu, last = data.draw(st.booleans()), data.draw(st.booleans())
    try:
        weft.manual_seed(draw(0, 99))
        x = weft.randn(3, channels, *size, dtype=dtype)
        x = x.to(memory_format=weft.channels_last) if last else x
        w = weft.randn(18, channels, k, k, dtype=dtype).requires_grad_()
        bias = weft.randn(18, dtype=dtype).requires_grad_()
        graph, wanted = recorded(x.requires_grad_(), w, bias, conv, pool, relu)
    except RuntimeError:  # windows larger than what is left of the image
        return
    with pytest.MonkeyPatch.context() as patch:
        first, second = both(graph, wanted, patch)
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        near = TOLERANCE[dtype] * max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=near)


@pytest.mark.parametrize(
    ("pool", "extent"),
    [
        ({"kernel_size": 2}, (12, 10)),
        ({"kernel_size": 3}, (12, 9)),
        ({"kernel_size": 2, "stride": 3}, (11, 11)),
        ({"kernel_size": 2, "dilation": 2}, (13, 11)),
        ({"kernel_size": 2, "ceil_mode": True}, (13, 11)),
        ({"kernel_size": 3, "padding": 1}, (13, 11)),
    ],
)
def test_windows_say_what_is_computed(pool: Any, extent: Any) -> None:
    x, w = weft.randn(2, 3, 15, 13), weft.randn(4, 3, 3, 3).requires_grad_()
    graph, _ = recorded(x, w, None, {}, pool)
    assert extents(graph) == [extent]


def test_who_looks_at_all_places_sees_them() -> None:
    x, w = weft.randn(2, 3, 15, 15).requires_grad_(), weft.randn(4, 3, 3, 3).requires_grad_()
    with weft.graph.record() as graph:
        y = F.conv2d(x, w)
        z = F.max_pool2d(y, 2).sum() + y.sum()
    assert extents(graph) == [(13, 13)]
    with weft.graph.record() as graph:
        z, places = F.max_pool2d(F.conv2d(x, w), 2, return_indices=True)
    assert extents(graph) == [(13, 13)]
    with weft.graph.record() as graph:
        y = F.conv2d(x, w)
        (seen,) = weft.autograd.grad(F.max_pool2d(y, 2).sum(), [y])
    assert extents(graph) == [(13, 13)]
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w), 2)
    assert extents(graph) == [(12, 12)]
    del z, places, seen


@pytest.mark.parametrize("channels", [3, 32])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["x", "w"])
def test_where_zero_would_meet_what_is_not_finite_a_run_is_given_up(
    channels: int, value: float, where: str
) -> None:
    x = weft.randn(2, channels, 15, 15).requires_grad_()
    w = weft.randn(32, channels, 3, 3).requires_grad_()
    graph, wanted = recorded(x, w, None, {}, {"kernel_size": 2})
    made = lower(list(graph._specs.values()), leaves_of(graph), wanted)
    given = [like(leaves_of(graph)[id]) for id in made.leaves]
    assert made.run(given) is not None
    changed, place = (x, (1, 1, 14, 5)) if where == "x" else (w, (3, 1, 1, 1))
    for leaf in given:
        if leaf.shape == changed.shape:
            leaf[place] = value  # of the image: what only windows read that are left out
    assert made.run(given) is None


def test_a_step_on_what_is_not_finite_is_as_in_eager_mode() -> None:
    weft.manual_seed(0)
    x, w = weft.randn(2, 3, 15, 15), weft.randn(4, 3, 3, 3).requires_grad_()

    def step(x: Any) -> None:
        w.grad = None
        F.max_pool2d(F.conv2d(x, w).relu(), 2).sum().backward()

    compiled = weft.compile(step)
    for _ in range(4):
        compiled(x)
    infinite = x.clone()
    infinite[1, 1, 14, 5] = float("inf")
    compiled(infinite)
    found = w.grad
    step(infinite)
    assert found is not None and w.grad is not None and w.grad.isnan().any()
    np.testing.assert_allclose(found.numpy(), w.grad.numpy(), rtol=1e-4, atol=1e-4)


def test_python_computes_the_same_gradients() -> None:
    rng = np.random.default_rng(0)
    g, x = rng.normal(size=(2, 4, 6, 5)), rng.normal(size=(2, 3, 9, 9))
    attrs = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    whole = OpWork(REGISTRY["conv_weight"], {**attrs, "shape": (4, 3, 3, 3)})
    (found,) = CroppedGradient(whole, (7, 7)).python(g, x)
    (wanted,) = whole.python(g, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    x[0, 1, 8, 8] = np.inf
    assert np.isnan(CroppedGradient(whole, (7, 7)).python(g, x)[0][:, 1, 2, 2]).all()
