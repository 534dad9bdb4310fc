"""Max pooling inside of convolutions: the same numbers, and not where somebody sees all places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_chosen_pass import recorded
from test_passes import nodes_of
from test_program import leaves_of, like

import weft
from weft.compiler import passes
from weft.compiler.passes.squares import PooledConvolution
from weft.compiler.program import lower
from weft.core import selection
from weft.native.codegen import jit
from weft.native.gemm.blocks import has_fma

pytestmark = pytest.mark.skipif(
    jit.why_not() is not None or not has_fma(), reason="no code that multiplies and adds"
)
selection.start()
F = weft.nn.functional


def results(graph: Any, wanted: Any, with_pass: bool) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if not with_pass:
            patch.setattr(passes, "squares", lambda nodes, ends: list(nodes))
        made = lower(list(graph._specs.values()), leaves_of(graph), wanted)
    return made.run([like(leaves_of(graph)[id]) for id in made.leaves])


def joined(graph: Any) -> int:
    """How many convolutions pool."""
    return len(names(graph))


def names(graph: Any) -> list[str]:
    """What convolutions that pool consist of."""
    expansion, ends = nodes_of(graph)
    nodes, _ = passes.optimized(expansion.nodes, ends)
    return [n.work.name for n in nodes if isinstance(n.work, PooledConvolution)]


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_pooling_at_once_changes_nothing(data: st.DataObject) -> None:
    draw = lambda low, high: data.draw(st.integers(low, high))
    size, k = (draw(8, 40), draw(8, 40)), draw(1, 5)
    channels = data.draw(st.sampled_from((1, 3, 8, 9)))
    conv = {"stride": draw(1, 2), "padding": draw(0, 2), "dilation": draw(1, 2)}
    conv["groups"] = data.draw(st.sampled_from((1, 1, channels)))
    pool = {"kernel_size": draw(2, 3), "stride": 2, "ceil_mode": data.draw(st.booleans())}
    pool |= {"padding": draw(0, 1), "dilation": draw(1, 2)} if draw(0, 3) == 0 else {}
    relu, last = data.draw(st.booleans()), data.draw(st.booleans())
    try:
        weft.manual_seed(draw(0, 99))
        x = weft.randint(-3, 4, (3, channels, *size)).float()  # exact sums, many of them equal
        x = x.to(memory_format=weft.channels_last) if last else x
        w = weft.randint(-3, 4, (2 * channels, channels // conv["groups"], k, k)).float()
        bias = weft.randint(-3, 4, (2 * channels,)).float().requires_grad_()
        graph, wanted = recorded(x, w.requires_grad_(), bias, conv, pool, relu)
    except RuntimeError:  # windows larger than what is left of the image
        return
    wanted += graph._outputs
    first, second = (results(graph, wanted, on) for on in (True, False))
    assert first is not None and second is not None
    for a, b in zip(first, second, strict=True):
        assert a.strides == b.strides
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * max(1.0, float(np.abs(b).max())))


def test_who_looks_at_all_places_sees_them() -> None:
    x, w = weft.randn(2, 3, 34, 34), weft.randn(8, 3, 3, 3).requires_grad_()
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w), 2)
    assert joined(graph) == 1
    with weft.graph.record() as graph:
        y = F.conv2d(x, w)
        z = F.max_pool2d(y, 2).sum() + y.sum()
    assert joined(graph) == 0
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w), 2)
    specs = list(graph._specs.values())
    found = lower(specs, leaves_of(graph), [r for s in specs for r in s.results()])
    assert not any(text.startswith("convolution+") for text in found.kernels())
    with weft.graph.record() as graph:
        z, places = F.max_pool2d(F.conv2d(x, w), 2, return_indices=True)
    assert joined(graph) == 1
    first, second = (results(graph, list(graph._outputs), on) for on in (True, False))
    np.testing.assert_array_equal(first[1], second[1])
    del z, places, y


def test_who_looks_at_values_that_are_not_rectified_sees_them() -> None:
    x, w = weft.randn(2, 3, 34, 34), weft.randn(8, 3, 3, 3)
    pooled = "convolution+max_pool_with_indices"
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w), 2).relu()
    assert names(graph) == [f"{pooled}+relu"]
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w).relu(), 2)  # exchanged before
    assert names(graph) == [f"{pooled}+relu"]
    with weft.graph.record() as graph:
        y = F.max_pool2d(F.conv2d(x, w), 2)
        z = y.relu() + y
    assert names(graph) == [pooled]
    first, second = (results(graph, list(graph._outputs), on) for on in (True, False))
    np.testing.assert_allclose(first[-1], second[-1], rtol=1e-4, atol=1e-4)
    with weft.graph.record() as graph:
        y = F.max_pool2d(F.conv2d(x, w), 2)
        z = y.relu()
    specs = list(graph._specs.values())
    found = lower(specs, leaves_of(graph), [specs[-2].results()[0], specs[-1].results()[0]])
    assert not any("+relu" in text for text in found.kernels())
    del y, z


@pytest.mark.parametrize(
    "pool", [{"kernel_size": 3, "stride": 2}, {"kernel_size": 2, "stride": 1}, {"kernel_size": 4}]
)
def test_other_windows_are_pooled_on_their_own(pool: Any) -> None:
    x, w = weft.randn(2, 3, 34, 34), weft.randn(8, 3, 3, 3).requires_grad_()
    assert joined(recorded(x, w, None, {}, {"kernel_size": 2})[0]) == 1
    assert joined(recorded(x, w, None, {}, pool)[0]) == 0
    wide = weft.randn(8, 9, 3, 3).requires_grad_()
    assert joined(recorded(weft.randn(2, 9, 34, 34), wide, None, {}, {"kernel_size": 2})[0]) == 0


def test_what_is_not_finite_is_where_it_was() -> None:
    x, w = weft.randn(2, 3, 34, 34), weft.randn(8, 3, 3, 3)
    x[1, 2, 5, 6], x[0, 0, 9, 9] = float("nan"), float("inf")
    with weft.graph.record() as graph:
        z = F.max_pool2d(F.conv2d(x, w).relu(), 2)
    first, second = (results(graph, list(graph._outputs), on) for on in (True, False))
    np.testing.assert_allclose(first[0], second[0], rtol=1e-4, atol=1e-4)
    assert np.isnan(first[0]).any() and z.isnan().any()
