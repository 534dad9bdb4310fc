"""Gradients from the places that a pooling chose: the same numbers, and from no other places."""

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
from weft.compiler.ir import Value, WorkNode
from weft.compiler.ops import OpWork
from weft.compiler.passes.chosen import ChosenGradient, chosen
from weft.compiler.program import lower
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.gemm.blocks import has_fma

pytestmark = pytest.mark.skipif(
    jit.why_not() is not None or not has_fma(), reason="no code that multiplies and adds"
)
selection.start()
F = weft.nn.functional


def recorded(x: Any, w: Any, bias: Any, conv: dict, pool: dict, relu: bool = True) -> Any:
    """The graph of a convolution under pooling, with its gradients, and what is wanted of it."""
    with weft.graph.record() as graph:
        y = F.conv2d(x, w, bias, **conv)
        z = F.max_pool2d(y.relu() if relu else y, **pool)
        weight = (weft.arange(z.numel()) % 7 - 3.0).reshape(z.shape)
        (z * weight).sum().backward()
    return graph, [r for r in graph._gradients.values() if r is not None]


def program(graph: Any, wanted: Any, with_pass: bool = True) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if not with_pass:
            patch.setattr(passes, "chosen", lambda nodes, ends: list(nodes))
        return lower(list(graph._specs.values()), leaves_of(graph), wanted)


def ran(made: Any, graph: Any) -> Any:
    return made.run([like(leaves_of(graph)[id]) for id in made.leaves])


def joined(graph: Any) -> list[bool]:
    """Of the gradients that read chosen places: whether each is that of a weight."""
    expansion, ends = nodes_of(graph)
    nodes, ends = passes.without_repeats(expansion.nodes, ends)
    nodes = chosen(passes.cropped(passes.pooled_first(nodes, ends), ends), ends)
    return [n.work.of_weight for n in nodes if isinstance(n.work, ChosenGradient)]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_is_not_scattered_changes_nothing(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))
    size, k = (draw(9, 14), draw(9, 14)), draw(1, 3)
    channels = data.draw(st.sampled_from((1, 3, 20, 33)))
    conv = {"stride": draw(1, 2), "padding": draw(0, 1), "dilation": draw(1, 2)}
    conv["groups"] = data.draw(st.sampled_from((1, 1, channels)))
    pool = {"kernel_size": draw(1, 3), "stride": draw(1, 3), "ceil_mode": data.draw(st.booleans())}
    if pool["kernel_size"] > 1:
        pool |= {"padding": draw(0, 1), "dilation": draw(1, 2)}
    relu, last = data.draw(st.booleans()), data.draw(st.booleans())
    try:
        weft.manual_seed(draw(0, 99))
        x = weft.randn(3, channels, *size)
        x = x.to(memory_format=weft.channels_last) if last else x
        w = weft.randn(channels, channels // conv["groups"], k, k).requires_grad_()
        bias = weft.randn(channels).requires_grad_()
        graph, wanted = recorded(x.requires_grad_(), w, bias, conv, pool, relu)
    except RuntimeError:  # windows larger than what is left of the image
        return
    first, second = (ran(program(graph, wanted, on), graph) for on in (True, False))
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        assert a.strides == b.strides
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * max(1.0, float(np.abs(b).max())))


@pytest.mark.parametrize("pool", [{"kernel_size": 2}, {"kernel_size": 3, "stride": 2}])
def test_neither_values_nor_zeros_are_scattered(pool: Any) -> None:
    x, w = weft.randn(2, 3, 15, 15).requires_grad_(), weft.randn(8, 3, 3, 3).requires_grad_()
    graph, wanted = recorded(x, w, None, {}, pool)
    assert sorted(joined(graph)) == [False, True]
    kernels = program(graph, wanted).kernels()
    assert not any(text.startswith("plane_scatter:") for text in kernels)
    assert any(
        text.startswith("plane_scatter:") for text in program(graph, wanted, False).kernels()
    )


def test_where_all_products_are_as_fast_they_are_taken() -> None:
    for before, pool, conv in (
        (64, {"kernel_size": 2}, {}),
        (3, {"kernel_size": 2, "stride": 1}, {}),
        (4, {"kernel_size": 2}, {"groups": 2}),
        (3, {"kernel_size": 2}, {"dilation": 2}),
    ):
        x = weft.randn(2, before, 15, 15)
        w = weft.randn(8, before // conv.get("groups", 1), 3, 3).requires_grad_()
        assert joined(recorded(x, w, None, conv, pool)[0]) == []


def test_who_looks_at_scattered_values_sees_them() -> None:
    x, w = weft.randn(2, 3, 15, 15), weft.randn(8, 3, 3, 3).requires_grad_()
    with weft.graph.record() as graph:
        y = F.conv2d(x, w)
        seen, found = weft.autograd.grad(F.max_pool2d(y, 2).exp().sum(), [y, w])
    specs = list(graph._specs.values())
    assert joined(graph) == [True]
    made = lower(specs, leaves_of(graph), list(graph._outputs))
    for a, b in zip(ran(made, graph), (seen, found), strict=False):
        np.testing.assert_allclose(a, b.numpy(), rtol=1e-4, atol=1e-4)


def scattered(places: Value, maker: list[WorkNode], y: tuple[int, ...]) -> list[WorkNode]:
    """The gradient of a weight from values that are scattered to some places."""
    g, planes = Value(places.shape, "f4"), Value(y, "f4")
    x, result = Value((2, 3, 9, 9), "f4"), Value((4, 3, 3, 3), "f4")
    attrs = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1}
    scatter = OpWork(REGISTRY["plane_scatter"], {"shape": y})
    weight = OpWork(REGISTRY["conv_weight"], {**attrs, "shape": result.shape})
    nodes = [
        WorkNode(scatter, (g, places), (planes,), None),
        WorkNode(weight, (planes, x), (result,), None),
    ]  # type: ignore[arg-type]
    return [n for n in chosen([*maker, *nodes], [result]) if isinstance(n.work, ChosenGradient)]


def test_places_are_those_of_a_pooling_of_such_a_plane() -> None:
    def pooling(plane: tuple[int, ...]) -> tuple[Value, list[WorkNode]]:
        values, places = Value((2, 4, 3, 3), "f4"), Value((2, 4, 3, 3), "i8")
        window = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "dilation": (1, 1)}
        work = OpWork(REGISTRY["max_pool_with_indices"], {**window, "ceil_mode": False})
        return places, [WorkNode(work, (Value(plane, "f4"),), (values, places), None)]  # type: ignore[arg-type]

    places, maker = pooling((2, 4, 7, 7))
    assert len(scattered(places, maker, (2, 4, 7, 7))) == 1
    assert scattered(places, [], (2, 4, 7, 7)) == []  # any numbers
    places, maker = pooling((2, 4, 7, 6))
    assert scattered(places, maker, (2, 4, 7, 7)) == []


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["x", "w"])
def test_where_zero_would_meet_what_is_not_finite_a_run_is_given_up(
    value: float, where: str
) -> None:
    x, w = weft.randn(2, 3, 14, 14).requires_grad_(), weft.randn(8, 3, 3, 3).requires_grad_()
    graph, wanted = recorded(x, w, None, {}, {"kernel_size": 2})
    made = program(graph, wanted)
    given = [like(leaves_of(graph)[id]) for id in made.leaves]
    assert made.run(given) is not None
    shape = x.shape if where == "x" else w.shape
    next(leaf for leaf in given if leaf.shape == shape)[1, 2, 1, 1] = value
    assert made.run(given) is None


def test_a_step_on_what_is_not_finite_is_as_in_eager_mode() -> None:
    weft.manual_seed(0)
    x, w = weft.randn(2, 3, 14, 14), weft.randn(4, 3, 3, 3).requires_grad_()

    def step(x: Any) -> None:
        w.grad = None
        F.max_pool2d(F.conv2d(x, w).relu(), 2).sum().backward()

    compiled = weft.compile(step)
    for _ in range(4):
        compiled(x)
    infinite = x.clone()
    infinite[1, 1, 4, 5] = float("inf")
    compiled(infinite)
    found = w.grad
    step(infinite)
    assert found is not None and w.grad is not None and w.grad.isnan().any()
    np.testing.assert_allclose(found.numpy(), w.grad.numpy(), rtol=1e-4, atol=1e-4)
