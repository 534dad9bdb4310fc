"""Convolutions under max pooling, and their gradients from the chosen places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loops_common import over_threads
from weft.native.codegen import jit
from weft.native.conv import pooled
from weft.native.conv.pooled import Pooled
from weft.native.gemm.blocks import has_fma
from weft.native.loops.pooling import max_pool
from weft.references import convolution as reference

pytestmark = pytest.mark.skipif(
    jit.why_not() is not None or not has_fma(), reason="no code that multiplies and adds"
)
# Errors in units of eps, against the sum of the products of absolute values.
ACCURACY = 8.0
EPS = np.finfo("f4").eps
ONE = (1, 1)


@st.composite
def cases(draw: Any) -> Pooled:
    """Shapes of a convolution and of what pooling chose of its result."""
    samples, after = draw(st.integers(1, 20)), draw(st.integers(1, 9))
    before = draw(st.sampled_from((1, 3, 17, 40)))
    size = tuple(draw(st.sampled_from((1, 2, 3, 5))) for _ in range(2))
    by, padding = (tuple(draw(st.integers(low, 3)) for _ in range(2)) for low in (1, 0))
    y = tuple(draw(st.integers(1, 11)) for _ in range(2))
    # Places may be left out at the end, as cropping does it.
    x = tuple(
        max(1, (n - 1) * s + k - 2 * p + draw(st.integers(0, 4)))
        for n, s, k, p in zip(y, by, size, padding, strict=True)
    )
    values = tuple(draw(st.integers(1, 6)) for _ in range(2))
    ends = (samples, after)
    return Pooled(
        (samples, before, *x), (after, before, *size), (*ends, *y), (*ends, *values), by, padding
    )


def arrays(case: Pooled, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Values, their places, the image, the weight."""
    rng = np.random.default_rng(seed)
    g, x, w = (rng.standard_normal(s).astype("f4") for s in (case.pooled, case.x, case.w))
    return g, rng.integers(0, case.y[2] * case.y[3], case.pooled), x, w


def scattered(g: np.ndarray, places: np.ndarray, case: Pooled) -> np.ndarray:
    planes = np.zeros((*case.y[:2], case.y[2] * case.y[3]))
    where = np.ogrid[: case.y[0], : case.y[1], :1]
    flat = (*case.y[:2], -1)
    np.add.at(planes, (where[0], where[1], places.reshape(flat)), g.reshape(flat).astype("f8"))
    return planes.reshape(case.y)


def wanted(g: np.ndarray, places: np.ndarray, x: Any, w: Any, case: Pooled) -> list[np.ndarray]:
    """The gradients of weight and input."""
    dense, window = scattered(g, places, case), (case.stride, case.padding, ONE, 1)
    return [
        reference.convolution_weight_grad(dense, x.astype("f8"), case.w, *window),
        reference.convolution_input_grad(dense, w.astype("f8"), case.x, *window),
    ]


def within(found: Any, want: np.ndarray, scale: np.ndarray) -> None:
    assert found is not None and found.shape == want.shape and found.dtype == np.float32
    assert found.flags.c_contiguous
    assert (np.abs(found - want) <= ACCURACY * EPS * scale + 1e-30).all()


@settings(max_examples=100, deadline=None)
@given(cases())
def test_both_gradients(case: Pooled) -> None:
    assert pooled.takes(case, ONE, 1)
    g, places, x, w = arrays(case)
    want = wanted(g, places, x, w, case)
    scale = wanted(np.abs(g), places, np.abs(x), np.abs(w), case)
    within(over_threads(lambda: pooled.weight_grad(g, places, x, case)), want[0], scale[0])
    within(over_threads(lambda: pooled.transposed(g, places, w, case)), want[1], scale[1])


SOME = Pooled((3, 5, 9, 8), (20, 5, 3, 3), (3, 20, 7, 6), (3, 20, 3, 3), ONE, (0, 0))
LONG = Pooled((2, 40, 5, 11), (3, 40, 3, 9), (2, 3, 3, 3), (2, 3, 1, 1), ONE, (0, 0))


@pytest.mark.parametrize("case", [SOME, LONG])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_spoils_what_it_meets(case: Pooled, value: float) -> None:
    g, places, x, w = arrays(case)
    g[1, 2, 0, 0] = value
    x[0, 0, 0, 0] = 0.0
    with np.errstate(invalid="ignore"):
        want = wanted(g, places, x, w, case)
    found = pooled.weight_grad(g, places, x, case), pooled.transposed(g, places, w, case)
    for a, b in zip(found, want, strict=True):
        assert a is not None
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        np.testing.assert_array_equal(np.isinf(a), np.isinf(b))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_zero_times_what_is_not_finite_is_given_up(value: float) -> None:
    g, places, x, w = arrays(SOME)
    x[2, 4, 8, 7], w[19, 4, 2, 2] = value, value
    assert pooled.weight_grad(g, places, x, SOME) is None
    assert pooled.transposed(g, places, w, SOME) is None


def test_arrays_in_any_memory_layout() -> None:
    g, places, x, w = arrays(SOME)
    last = [
        np.ascontiguousarray(a.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) for a in (g, places, x)
    ]
    found = pooled.weight_grad(*last, SOME)
    np.testing.assert_array_equal(found, pooled.weight_grad(g, places, x, SOME))
    assert pooled.transposed(*last[:2], w, SOME) is None
    turned = np.ascontiguousarray(w.transpose(2, 3, 1, 0)).transpose(3, 2, 0, 1)
    found = pooled.transposed(g, places, turned, SOME)
    np.testing.assert_array_equal(found, pooled.transposed(g, places, w, SOME))


def test_what_is_declined() -> None:
    g, places, x, w = arrays(SOME)
    assert pooled.weight_grad(g.astype("f8"), places, x, SOME) is None
    assert pooled.weight_grad(g, places.astype("i4"), x, SOME) is None
    assert pooled.weight_grad(g, places, x[:, :, :-1], SOME) is None
    assert pooled.weight_grad(g[:2], places[:2], x, SOME) is None
    assert pooled.transposed(g, places, w[:-1], SOME) is None
    assert not pooled.takes(SOME, (2, 1), 1)
    assert not pooled.takes(SOME, ONE, 5)
    assert not pooled.takes(SOME._replace(x=(0, 5, 9, 8), y=(0, 20, 7, 6)), ONE, 1)
    assert not pooled.takes(SOME._replace(y=(3, 20, 8, 6)), ONE, 1)  # more places than there are


@st.composite
def squared(draw: Any) -> Pooled:
    """Shapes of a convolution under pooling of two by two."""
    samples, after = draw(st.integers(1, 4)), draw(st.integers(1, 14))
    before = draw(st.sampled_from((1, 3, 8)))
    size = tuple(draw(st.integers(1, 7)) for _ in range(2))
    by, padding = (tuple(draw(st.integers(low, 3)) for _ in range(2)) for low in (1, 0))
    pooled = draw(st.integers(1, 9)), draw(st.sampled_from((1, 7, 8, 9, 15, 16, 17, 33)))
    y = tuple(2 * n + draw(st.integers(0, 1)) for n in pooled)
    x = tuple(
        max(1, (n - 1) * s + k - 2 * p + draw(st.integers(0, 4)))
        for n, s, k, p in zip(y, by, size, padding, strict=True)
    )
    first = (samples, after)
    weight = (after, before, *size)
    return Pooled((samples, before, *x), weight, (*first, *y), (*first, *pooled), by, padding)


@settings(max_examples=80, deadline=None)
@given(
    squared(), st.booleans(), st.sampled_from((0.0, np.nan, np.inf, -np.inf)), st.integers(0, 99)
)
def test_the_largest_of_squares(case: Pooled, biased: bool, odd: float, seed: int) -> None:
    # Whole numbers, so that sums are exact and many are equal.
    rng = np.random.default_rng(seed)
    x, w = (rng.integers(-3, 4, s).astype("f4") for s in (case.x, case.w))
    bias = rng.integers(-9, 9, len(w)).astype("f4") if biased else None
    if odd:
        x[-1, -1, x.shape[2] // 2, x.shape[3] // 2] = odd
    with np.errstate(invalid="ignore"):
        y = reference.convolution(x, w, case.stride, case.padding, ONE, 1)
    y = y[:, :, : case.y[2], : case.y[3]] + (0.0 if bias is None else bias.reshape(-1, 1, 1))
    want = max_pool(np.ascontiguousarray(y, "f4"), (2, 2), (2, 2), (0, 0), ONE)
    assert want is not None
    found = [over_threads(lambda k=k: pooled.largest(x, w, bias, case)[k]) for k in (0, 1)]
    for a, b in zip(found, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)
    rectified, places = pooled.largest(x, w, bias, case, True) or (None, None)
    np.testing.assert_array_equal(rectified, np.maximum(want[0], 0.0))
    np.testing.assert_array_equal(places, want[1])


def test_squares_of_any_numbers() -> None:
    case = Pooled((3, 3, 32, 30), (20, 3, 5, 3), (3, 20, 28, 28), (3, 20, 14, 14), ONE, (0, 0))
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("f4") for s in (case.x, case.w))
    bias = rng.standard_normal(20).astype("f4")
    y = reference.convolution(x.astype("f8"), w.astype("f8"), ONE, (0, 0), ONE, 1)
    y = (y + bias.reshape(-1, 1, 1)).reshape(3, 20, -1)
    scale = reference.convolution(np.abs(x), np.abs(w), ONE, (0, 0), ONE, 1).max() + 4.0
    for source in (x, np.asfortranarray(x), np.repeat(x, 2, 3)[..., ::2]):
        found, places = pooled.largest(source, w, bias, case) or (None, None)
        assert found is not None and places is not None
        there = np.take_along_axis(y, places.reshape(3, 20, -1), 2).reshape(found.shape)
        assert (np.abs(found - there) <= ACCURACY * EPS * scale).all()
        most = y.reshape(3, 20, 14, 2, 14, 2).max((3, 5))
        assert (np.abs(found - most) <= ACCURACY * EPS * scale).all()


def test_which_squares_are_declined() -> None:
    case = Pooled((3, 3, 32, 30), (20, 3, 5, 3), (3, 20, 28, 28), (3, 20, 14, 14), ONE, (0, 0))
    x, w = np.ones(case.x, "f4"), np.ones(case.w, "f4")
    assert pooled.largest(x, w, None, case) is not None
    assert pooled.largest(x[:2], w, None, case) is None
    assert pooled.largest(x, w[1:], None, case) is None
    assert pooled.largest(x.astype("f8"), w.astype("f8"), None, case) is None
    assert pooled.largest(x, w, np.ones(19, "f4"), case) is None
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    assert pooled.largest(last, w, None, case) is None
    assert pooled.pays_in_squares(case, ONE, 1)
    assert not pooled.pays_in_squares(case, (2, 2), 1)
    assert not pooled.pays_in_squares(case, ONE, 3)
    assert not pooled.pays_in_squares(case._replace(y=(3, 20, 27, 28)), ONE, 1)
