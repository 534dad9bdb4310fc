"""Attention in one pass against the reference in float64, and through the layers above."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from loops_common import over_threads
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.layers import attention

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

selection.start()
OP = REGISTRY["scaled_dot_product_attention"]
ACCURACY = 16 * np.finfo("f4").eps


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray, causal: bool, dtype: str = "f8"
) -> list:
    """Results and gradients, step by step in float64."""
    q, k, v, g = (x.astype(dtype) for x in (q, k, v, g))
    scores = q @ k.swapaxes(-2, -1) * q.dtype.type(0.3)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    w = e / e.sum(-1, keepdims=True)
    gw = g @ v.swapaxes(-2, -1)
    gs = w * (gw - (gw * w).sum(-1, keepdims=True)) * q.dtype.type(0.3)
    turned = gs.swapaxes(-2, -1), w.swapaxes(-2, -1)
    return [w @ v, w, gs @ k, turned[0] @ q, turned[1] @ g]


def made(shapes: list[tuple[int, ...]], turned: bool, seed: int = 0) -> list[np.ndarray]:
    """Arrays as they are after heads were split off, or plain ones."""
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(s).astype("f4") for s in shapes]
    if not turned:
        return arrays
    return [np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2) for a in arrays]


def both(q: Any, k: Any, v: Any, g: Any, causal: bool) -> list[Any]:
    found = attention.attention(q, k, v, 0.3, causal)
    assert found is not None
    back = attention.attention_back((g, None), q, k, v, found[1], (True,) * 3, 0.3, causal)
    assert back is not None
    return [*found, *back]


sizes = st.sampled_from((1, 2, 5, 6, 7, 16, 17, 31, 48, 100))


@settings(max_examples=80, deadline=None)
@given(sizes, sizes, sizes, sizes, st.booleans(), st.booleans())
def test_both_directions(
    queries: int, keys: int, deep: int, wide: int, causal: bool, turned: bool
) -> None:
    heads = 4 + attention.WORK // (4 * queries * keys * deep)
    if heads > 4000:
        return
    shapes = [
        (4, heads, *s) for s in ((queries, deep), (keys, deep), (keys, wide), (queries, wide))
    ]
    q, k, v, g = made(shapes, turned)
    wanted = reference(q, k, v, g, causal)
    # Large scores magnify the rounding of their sums, in the same steps in float32 as well.
    steps = reference(q, k, v, g, causal, "f4")
    for found, want, step in zip(both(q, k, v, g, causal), wanted, steps, strict=True):
        assert found.shape == want.shape and found.dtype == np.float32
        bound = max(ACCURACY * max(np.abs(want).max(), 1.0), 2 * np.abs(step - want).max())
        assert np.abs(found - want).max() <= bound
    if causal and keys > 1:
        assert not both(q, k, v, g, causal)[1][..., 0, 1:].any()


def test_the_number_of_threads_does_not_change_a_bit() -> None:
    q, k, v, g = made([(3, 5, 130, 24)] * 4, True)
    for causal in (False, True):
        for which in range(5):
            over_threads(lambda c=causal, i=which: both(q, k, v, g, c)[i])


def test_results_lie_as_queries_do() -> None:
    q, k, v, g = made([(4, 8, 64, 32)] * 4, True)
    y, _, gq, *_ = both(q, k, v, g, True)
    assert y.swapaxes(1, 2).flags.c_contiguous and gq.strides == q.strides


def test_what_is_not_taken() -> None:
    q, k, v, g = made([(4, 8, 64, 32)] * 4, False)
    take = lambda *a: attention.attention(*a, 0.3, False)
    assert take(q, k, v) is not None
    assert take(*(x.astype("f8") for x in (q, k, v))) is None
    assert take(q[:1, :2], k[:1, :2], v[:1, :2]) is None and take(q[0, 0], k[0, 0], v[0, 0]) is None
    assert take(q, k[:, :1], v[:, :1]) is None and take(q, k[:, :, :0], v[:, :, :0]) is None
    assert take(q[..., ::2], k[..., ::2], v) is not None  # copied
    w = np.ones((4, 8, 64, 64), "f4")
    needs = (True, False, True)
    gq, gk, gv = attention.attention_back((g, None), q, k, v, w, needs, 0.3, False)  # type: ignore[misc]
    assert gq is not None and gk is None and gv is not None
    assert attention.attention_back((g, w), q, k, v, w, needs, 0.3, False) is None


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (4, 8, 64, 32), (70, 9)])
def test_the_function_against_steps(shape: tuple[int, ...], causal: bool) -> None:
    """In float32 by native code, in float64 by the reference, with second derivatives."""
    f = weft.nn.functional.scaled_dot_product_attention
    for kind, limit in ((weft.float32, 2e-5), (weft.float64, 1e-12)):
        weft.manual_seed(0)
        q, k, v = (weft.randn(shape, dtype=kind, requires_grad=True) for _ in range(3))
        mask = weft.ones(shape[-2], shape[-2], dtype=weft.bool).tril() if causal else None
        results = []
        for y in (f(q, k, v, is_causal=causal), f(q, k, v, attn_mask=mask) if causal else None):
            if y is None:
                scores = q @ k.transpose(-2, -1) / shape[-1] ** 0.5
                y = scores.softmax(-1) @ v
            grads = weft.autograd.grad(y.square().sum(), (q, k, v), create_graph=True)
            second = weft.autograd.grad(sum(g.square().sum() for g in grads), (q, k, v))
            results.append((y.detach(), *(g.detach() for g in grads), *second))
        for a, b in zip(*results, strict=True):
            assert (a - b).abs().max() <= limit * max(1.0, float(b.abs().max()))


def test_infinities_and_nan() -> None:
    q, k, v, _ = made([(4, 8, 64, 32)] * 4, False)
    q[0, 0, 3, 1], v[1, 2, 60, 5] = np.nan, np.inf
    found = attention.attention(q, k, v, 0.3, True)
    assert found is not None
    y, weights = found
    assert np.isnan(y[0, 0, 3]).all() and np.isnan(weights[0, 0, 3, :4]).all()
    assert np.isfinite(np.delete(y[0, 0], 3, 0)).all()
    assert np.isposinf(y[1, 2, 60:, 5]).all() and np.isfinite(y[1, 2, :60]).all()


def test_one_node_stands_for_it() -> None:
    q = weft.randn(2, 4, 16, 8, requires_grad=True)
    y = weft.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert y.grad_fn.name().startswith("ScaledDotProductAttention")
    with weft.no_grad():
        assert OP.name in REGISTRY
