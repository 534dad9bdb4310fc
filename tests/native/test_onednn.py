"""oneDNN against the NumPy kernels in float64, over sizes, layouts, threads and forks.

Accuracy: an element may be off by four roundings of float32 (4 x 2**-23) of the sum of the
absolute values of the products that it is made of.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.native import onednn
from weft.references import convolution as reference

EPS = 2.0**-23
needs_library = pytest.mark.skipif(not onednn.available(), reason=onednn.why_not())


def normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def to_last(rank):
    return (0, *range(2, rank), 1)


def from_last(rank):
    return (0, rank - 1, *range(1, rank - 1))


def is_last(a):
    return a.transpose(to_last(a.ndim)).flags.c_contiguous


def laid_out(a, how):
    """The same values over memory of another kind."""
    if how == "plain":
        return np.ascontiguousarray(a)
    if how == "last":
        return a.transpose(to_last(a.ndim)).copy("C").transpose(from_last(a.ndim))
    if how == "fortran":
        return np.asfortranarray(a)
    if how == "reversed":
        return np.ascontiguousarray(a[..., ::-1])[..., ::-1]
    if how == "sliced":
        wide = np.full((*a.shape[:-1], 2 * a.shape[-1] + 1), np.nan, a.dtype)
        wide[..., 1::2] = a
        return wide[..., 1::2]
    if how == "last sliced":
        wide = np.full((a.shape[0], *a.shape[2:], a.shape[1] + 2), np.nan, a.dtype)
        wide[..., 1:-1] = a.transpose(to_last(a.ndim))
        return wide[..., 1:-1].transpose(from_last(a.ndim))
    if how == "unaligned":
        raw = np.zeros(a.nbytes + 1, np.uint8)
        view = raw[1:].view(a.dtype).reshape(a.shape)
        view[...] = a
        assert not view.flags.aligned
        return view
    assert how == "read-only"
    copy = a.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS = (
    "plain",
    "last",
    "fortran",
    "reversed",
    "sliced",
    "last sliced",
    "unaligned",
    "read-only",
)


def assert_close(found, function, *arrays):
    """Compare with a multilinear function of float64 arrays."""
    assert found is not None
    assert found.dtype == np.float32
    wide = [a.astype(np.float64) for a in arrays]
    expected, scale = function(*wide), function(*map(abs, wide))
    assert found.shape == expected.shape
    off = abs(found - expected) > 4 * EPS * scale
    assert not off.any(), f"{off.sum()} of {off.size}, by {abs(found - expected).max():.3g}"


class Case:
    """One convolution: sizes, arrays, and its three results by both ways."""

    def __init__(self, rng, n, c, o, spatial, kernel, stride, padding, dilation, groups, less=0):
        self.window = (stride, padding, dilation, groups)
        self.x = normal(rng, n, c, *spatial)
        self.w = normal(rng, o, c // groups, *kernel)
        self.bias = normal(rng, o)
        self.x_bias = normal(rng, c)
        out = reference.output_extent(spatial, kernel, stride, padding, dilation)
        out = tuple(max(1, size - less) for size in out)
        self.g = normal(rng, n, o, *out)

    def forward(self, x, w, bias=None):
        return onednn.convolution(x, w, bias, *self.window)

    def check_forward(self, x, w):
        assert_close(
            self.forward(x, w), lambda x, w: reference.convolution(x, w, *self.window), x, w
        )

    def check_bias(self, x, w):
        def plus(x, w, b):
            column = b.reshape(-1, *[1] * (x.ndim - 2))
            return reference.convolution(x, w, *self.window) + column

        assert_close(self.forward(x, w, self.bias), plus, x, w, self.bias)

    def input_grad(self, g, w):
        return reference.convolution_input_grad(g, w, self.x.shape, *self.window)

    def check_input_grad(self, g, w):
        found = onednn.convolution_input_grad(g, w, self.x.shape, *self.window)
        assert_close(found, self.input_grad, g, w)

    def check_input_grad_bias(self, g, w):
        def plus(g, w, b):
            return self.input_grad(g, w) + b.reshape(-1, *[1] * (g.ndim - 2))

        found = onednn.convolution_input_grad(g, w, self.x.shape, *self.window, self.x_bias)
        assert_close(found, plus, g, w, self.x_bias)

    def check_weight_grad(self, g, x):
        found = onednn.convolution_weight_grad(g, x, self.w.shape, *self.window)
        assert_close(
            found,
            lambda g, x: reference.convolution_weight_grad(g, x, self.w.shape, *self.window),
            g,
            x,
        )

    def check_all(self, x_layout="plain", w_layout="plain", g_layout="plain"):
        x, w, g = laid_out(self.x, x_layout), laid_out(self.w, w_layout), laid_out(self.g, g_layout)
        full = reference.output_extent(x.shape[2:], w.shape[2:], *self.window[:3])
        if full == g.shape[2:]:
            self.check_forward(x, w)
            self.check_bias(x, w)
        self.check_input_grad(g, w)
        self.check_input_grad_bias(g, w)
        self.check_weight_grad(g, x)


@st.composite
def cases(draw):
    rank = draw(st.integers(1, 3))

    def each(low, high):
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    groups = draw(st.sampled_from((1, 1, 2, 3, 8)))
    c, o = draw(st.integers(1, 18)) * groups, draw(st.integers(1, 18)) * groups
    if draw(st.booleans()) and groups > 1:
        c = o = groups
    kernel, stride, padding, dilation = each(1, 4), each(1, 3), each(0, 3), each(1, 2)
    axes = zip(kernel, padding, dilation, strict=True)
    least = [max(1, d * (k - 1) + 1 - 2 * p) for k, p, d in axes]
    spatial = tuple(draw(st.integers(size, size + (9 if rank < 3 else 4))) for size in least)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n = draw(st.integers(1, 3))
    return Case(rng, n, c, o, spatial, kernel, stride, padding, dilation, groups)


@needs_library
@settings(max_examples=120, deadline=None)
@given(case=cases(), layouts=st.tuples(*[st.sampled_from(LAYOUTS)] * 3))
def test_convolution_of_any_sizes_and_memory(case, layouts):
    case.check_all(*layouts)


@needs_library
@pytest.mark.parametrize("layout", ("plain", "last"))
@pytest.mark.parametrize(
    "sizes",
    (
        ((4, 3, 32, 32), (32, 3, 3, 3), 1, 1, 1, 1),
        ((2, 1, 28, 28), (16, 1, 5, 5), 1, 2, 1, 1),
        ((4, 64, 16, 16), (64, 64, 3, 3), 1, 1, 1, 1),
        ((2, 64, 48, 48), (64, 64, 3, 3), 1, 1, 1, 1),
        ((4, 64, 17, 17), (96, 64, 3, 3), 2, 1, 1, 1),
        ((4, 160, 8, 8), (48, 160, 1, 1), 1, 0, 1, 1),
        ((4, 32, 9, 9), (48, 32, 1, 1), 2, 0, 1, 1),
        ((3, 32, 9, 9), (32, 32, 1, 1), 1, 1, 1, 1),
        ((2, 40, 12, 12), (40, 1, 3, 3), 1, 1, 1, 40),
        ((2, 32, 12, 12), (64, 8, 3, 3), 1, 1, 1, 4),
        ((2, 48, 15, 15), (32, 48, 3, 3), 1, 4, 4, 1),
        ((2, 64, 4, 4), (128, 64, 4, 4), 1, 0, 1, 1),
        ((3, 16, 100), (24, 16, 7), 2, 3, 1, 1),
        ((2, 16, 8, 9, 10), (24, 16, 3, 3, 3), 1, 1, 1, 1),
        ((1, 8, 5, 5), (8, 8, 3, 3), 1, 7, 1, 1),
    ),
)
@pytest.mark.parametrize("wide", (False, True))
def test_every_way_of_computing_a_convolution(sizes, layout, wide, monkeypatch):
    from weft.native.onednn import conv, conv_program
    from weft.native.onednn.primitive import Programs

    # The choice among ways depends on the machine; each is right on all of them.
    monkeypatch.setattr(conv_program, "wide_vectors", lambda: wide)
    monkeypatch.setattr(conv, "_programs", Programs())
    (n, c, *spatial), (o, _, *kernel), *window, groups = sizes
    window = [(value,) * len(spatial) for value in window]
    rng = np.random.default_rng(0)
    case = Case(rng, n, c, o, tuple(spatial), tuple(kernel), *window, groups)
    case.check_all(layout, layout, layout)


@needs_library
@pytest.mark.parametrize("layout", ("plain", "last"))
def test_results_follow_the_layout_of_the_input(layout):
    case = Case(np.random.default_rng(0), 2, 6, 10, (7, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    x, g = laid_out(case.x, layout), laid_out(case.g, layout)
    for w in (case.w, laid_out(case.w, "last")):
        y = case.forward(x, w)
        gx = onednn.convolution_input_grad(g, w, x.shape, *case.window)
        for result in (y, gx):
            assert result.flags.c_contiguous == (layout == "plain")
            assert is_last(result) == (layout == "last")
        assert onednn.convolution_weight_grad(g, x, w.shape, *case.window).flags.c_contiguous


@needs_library
@pytest.mark.parametrize(("c", "size"), ((1, 8), (6, 1)))
def test_the_strides_tell_the_layout_of_one_channel_or_one_place(c, size):
    rng = np.random.default_rng(0)
    case = Case(rng, 2, c, 4, (size, size), (3, 3), (1, 1), (2, 2), (1, 1), 1)
    assert case.forward(case.x, case.w).flags.c_contiguous
    assert is_last(case.forward(laid_out(case.x, "last"), case.w))
    case.check_all("last", "plain", "last")


@needs_library
@pytest.mark.parametrize("layout", ("plain", "last"))
@pytest.mark.parametrize(
    ("extra", "stride", "dilation"), ((1, 2, 1), (2, 3, 1), (1, 1, 2), (3, 2, 4), (1, 3, 2))
)
def test_places_after_the_last_window(extra, stride, dilation, layout):
    rng = np.random.default_rng(extra)
    g, w = laid_out(normal(rng, 2, 6, 5, 4), layout), normal(rng, 6, 9, 3, 3)
    window = ((stride,) * 2, (1, 1), (dilation,) * 2)
    spatial = reference.transposed_extent((5, 4), (3, 3), *window, (extra,) * 2)
    shape = (2, 9, *spatial)
    x = laid_out(normal(rng, *shape), layout)
    found = onednn.convolution_input_grad(g, w, shape, *window, 1)
    if found is None:  # more places than a stride: not a convolution for oneDNN
        assert extra >= stride
        assert onednn.convolution_weight_grad(g, x, w.shape, *window, 1) is None
        return
    assert_close(
        found, lambda g, w: reference.convolution_input_grad(g, w, shape, *window, 1), g, w
    )
    assert_close(
        onednn.convolution_weight_grad(g, x, w.shape, *window, 1),
        lambda g, x: reference.convolution_weight_grad(g, x, w.shape, *window, 1),
        g,
        x,
    )


@needs_library
@pytest.mark.parametrize("layout", ("plain", "last"))
@pytest.mark.parametrize("channels", (3, 8, 20, 32))
@pytest.mark.parametrize("kernel", (1, 3))
def test_nan_and_infinity_reach_what_they_touch_and_nothing_else(kernel, channels, layout):
    rng = np.random.default_rng(channels)
    pad = kernel // 2
    sizes = (2, channels, 33, (9, 9), (kernel,) * 2, (1, 1), (pad, pad), (1, 1), 1)
    case = Case(rng, *sizes)
    x, g = case.x, case.g
    x[0, 1, 2, 3], x[1, 0, 0, 8], x[1, 2, 8, 0] = np.nan, np.inf, -np.inf
    # Not at the border: infinity times padding is NaN for the reference, and nothing for oneDNN.
    g[0, 1, 2, 3], g[1, 0, 1, 7], g[1, 2, 7, 1] = np.nan, np.inf, -np.inf
    x, g = laid_out(x, layout), laid_out(g, layout)
    wide = [a.astype(np.float64) for a in (x, g, case.w)]
    with np.errstate(invalid="ignore"):
        expected = (
            reference.convolution(wide[0], wide[2], *case.window),
            reference.convolution_input_grad(wide[1], wide[2], x.shape, *case.window),
            reference.convolution_weight_grad(wide[1], wide[0], case.w.shape, *case.window),
        )
    found = (
        case.forward(x, case.w),
        onednn.convolution_input_grad(g, case.w, x.shape, *case.window),
        onednn.convolution_weight_grad(g, x, case.w.shape, *case.window),
    )
    for ours, theirs in zip(found, expected, strict=True):
        special = ~np.isfinite(theirs)
        assert special.any()
        np.testing.assert_array_equal(np.isfinite(ours), ~special)
        np.testing.assert_array_equal(ours[special], theirs[special].astype(np.float32))


@needs_library
def test_what_is_not_a_convolution_is_left_to_the_reference():
    rng = np.random.default_rng(0)
    x, w, one = normal(rng, 2, 4, 6, 6), normal(rng, 8, 4, 3, 3), ((1, 1), (0, 0), (1, 1), 1)
    assert onednn.convolution(x, w, None, *one) is not None
    assert onednn.convolution(x.astype(np.float64), w, None, *one) is None
    assert onednn.convolution(x, w.astype(np.float16), None, *one) is None
    assert onednn.convolution(x.astype(">f4"), w, None, *one) is None
    assert onednn.convolution(x, w, np.zeros(8), *one) is None
    assert onednn.convolution(x, w, np.zeros(7, np.float32), *one) is None
    assert onednn.convolution(x[:, :3], w, None, *one) is None
    assert onednn.convolution(x[:0], w, None, *one) is None
    assert onednn.convolution(x, w[:0], None, *one) is None
    assert onednn.convolution(x[:, :0], w[:, :0], None, *one) is None
    assert onednn.convolution(x[..., :2], w, None, *one) is None
    assert onednn.convolution(x, w, None, *one[:3], 3) is None
    g = normal(rng, 2, 8, 4, 4)
    assert onednn.convolution_input_grad(g, w, (2, 4, 6, 7), *one) is None
    assert onednn.convolution_input_grad(g[:1], w, (2, 4, 6, 6), *one) is None
    assert onednn.convolution_input_grad(g, w, (2, 5, 6, 6), *one) is None
    assert onednn.convolution_weight_grad(g, x, (8, 4, 2, 3), *one) is None
    assert onednn.convolution_weight_grad(g, x, (8, 4, 0, 3), *one) is None


def stretched(a, how):
    """A matrix or stack of matrices over memory of another kind."""
    if how == "transposed":
        return np.ascontiguousarray(a.swapaxes(-1, -2)).swapaxes(-1, -2)
    if how == "block":
        wide = np.full((*a.shape[:-2], a.shape[-2] + 3, a.shape[-1] + 5), np.nan, a.dtype)
        wide[..., 2:-1, 1:-4] = a
        return wide[..., 2:-1, 1:-4]
    if how == "transposed block":
        return stretched(a.swapaxes(-1, -2), "block").swapaxes(-1, -2)
    if how == "heads" and a.ndim > 2:  # (..., H, T, D) over memory in the order (..., T, H, D)
        return np.ascontiguousarray(a.swapaxes(-3, -2)).swapaxes(-3, -2)
    if how == "upside down":
        return np.ascontiguousarray(a[..., ::-1, :])[..., ::-1, :]
    return laid_out(a, how if how in ("sliced", "unaligned", "read-only") else "plain")


MATRICES = (
    "plain",
    "transposed",
    "block",
    "transposed block",
    "heads",
    "upside down",
    "sliced",
    "unaligned",
    "read-only",
)
PRODUCTS = (
    ((64, 784), (784, 256)),
    ((128, 128), (128, 128)),
    ((65, 67), (67, 71)),
    ((1, 1024), (1024, 1024)),
    ((1024, 1024), (1024, 1)),
    ((700, 1), (1, 700)),
    ((64, 70), (70, 1024)),
    ((100, 60), (60, 512)),
    ((520, 10), (10, 512)),
    ((3, 70, 40), (3, 40, 50)),
    ((2, 5, 64, 30), (2, 5, 30, 41)),
    ((4, 33, 70), (70, 50)),
    ((90, 70), (4, 70, 33)),
    ((2, 1, 64, 30), (1, 5, 30, 41)),
    ((1, 64, 65), (2, 3, 65, 66)),
    ((300, 1, 40), (300, 40, 40)),
)


@needs_library
@pytest.mark.parametrize("shapes", PRODUCTS, ids=str)
def test_matmul_over_any_memory(shapes):
    rng = np.random.default_rng(0)
    first, second = (normal(rng, *shape) for shape in shapes)
    pairs = {*product(MATRICES, ("plain", "transposed")), *product(("plain", "block"), MATRICES)}
    for left, right in sorted(pairs):
        a, b = stretched(first, left), stretched(second, right)
        assert_close(onednn.matmul(a, b), np.matmul, a, b)


@needs_library
def test_matmul_of_repeated_matrices():
    rng = np.random.default_rng(0)
    a, b = normal(rng, 64, 70), normal(rng, 70, 66)
    stack = np.broadcast_to(a, (5, 64, 70))
    assert_close(onednn.matmul(stack, b), np.matmul, stack, b)
    assert_close(onednn.matmul(stack, np.stack([b] * 5)), np.matmul, stack, b)
    both = onednn.matmul(stack, np.broadcast_to(b, (5, 70, 66)))
    assert_close(both, np.matmul, stack, b)
    row = np.broadcast_to(a[:1], (64, 70))
    assert_close(onednn.matmul(row, b), np.matmul, row, b)
    column = np.broadcast_to(b[:, :1], (70, 66))
    assert_close(onednn.matmul(a, column), np.matmul, a, column)


@needs_library
@settings(max_examples=100, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 90)] * 3),
    stack=st.sampled_from(((), (), (2,), (3, 2))),
    seed=st.integers(0, 2**32),
    how=st.tuples(*[st.sampled_from(MATRICES)] * 2),
)
def test_matmul_of_any_sizes(sizes, stack, seed, how):
    rng = np.random.default_rng(seed)
    m, k, n = sizes
    a, b = (
        stretched(normal(rng, *stack, m, k), how[0]),
        stretched(normal(rng, *stack, k, n), how[1]),
    )
    found = onednn.matmul(a, b)
    if prod(stack) * m * k * n > 1 << 18:
        assert found is not None
    if found is not None:
        assert_close(found, np.matmul, a, b)


@needs_library
def test_matmul_into_an_array():
    rng = np.random.default_rng(0)
    a, b = normal(rng, 80, 80), normal(rng, 80, 80)
    out = np.full((80, 80), np.nan, np.float32)
    assert onednn.matmul(a, b, out) is out
    assert_close(out, np.matmul, a, b)
    stack = np.full((2, 80, 80), np.nan, np.float32)
    pair = np.stack([a, b])
    assert onednn.matmul(pair, pair, stack) is stack
    assert_close(stack, np.matmul, pair, pair)
    assert onednn.matmul(pair, b, stack) is stack
    assert_close(stack, np.matmul, pair, b)


@needs_library
def test_matmul_leaves_unfit_targets_alone():
    rng = np.random.default_rng(0)
    a, b = normal(rng, 80, 80), normal(rng, 80, 80)
    kept = a.copy()
    frozen = np.zeros((80, 80), np.float32)
    frozen.flags.writeable = False
    big = np.zeros((80, 160), np.float32)
    for out in (a, a[::-1], frozen, big[:, ::2], np.zeros((80, 80)), np.zeros((1, 80), np.float32)):
        assert onednn.matmul(a, b, out) is None
    np.testing.assert_array_equal(a, kept)
    assert not frozen.any()


@needs_library
def test_matmul_of_nothing_and_of_other_things():
    empty = np.zeros((2000, 0), np.float32)
    assert onednn.matmul(empty, empty.T) is None  # NumPy makes the zeros
    one = np.ones((80, 80), np.float32)
    assert onednn.matmul(one, one) is not None
    assert onednn.matmul(one.astype(np.float64), one) is None
    assert onednn.matmul(one, one[:79]) is None
    assert onednn.matmul(one, one[0]) is None
    assert onednn.matmul(np.stack([one] * 2), np.stack([one] * 3)) is None
    assert onednn.matmul(one[:4, :4], one[:4, :4]) is None  # too small to be worth a call


@needs_library
def test_matmul_and_linear_pass_nan_and_infinity_on():
    rng = np.random.default_rng(0)
    a, b, bias = normal(rng, 90, 80), normal(rng, 80, 70), normal(rng, 70)
    a[3, 4], a[5, 6], b[7, 8] = np.nan, np.inf, -np.inf
    bias[9] = np.nan
    with np.errstate(invalid="ignore"):
        expected = a.astype(np.float64) @ b
    for found, wanted in (
        (onednn.matmul(a, b), expected),
        (onednn.matmul(np.stack([a, a]), np.stack([b, b]))[1], expected),
        (onednn.linear(a, b.T, bias), expected + bias),
    ):
        special = ~np.isfinite(wanted)
        assert special.any() and not special.all()
        np.testing.assert_array_equal(np.isfinite(found), ~special)
        np.testing.assert_array_equal(found[special], wanted[special].astype(np.float32))


@needs_library
@pytest.mark.parametrize("shape", ((64, 300), (700, 100), (3, 50, 120), (2, 3, 40, 110), (3000,)))
@pytest.mark.parametrize("how", ("plain", "transposed", "sliced", "unaligned"))
@pytest.mark.parametrize("biased", (False, True))
@pytest.mark.parametrize("width", (100, 700))
def test_linear(shape, how, biased, width):
    rng = np.random.default_rng(0)
    x, w = normal(rng, *shape), normal(rng, width, shape[-1])
    if len(shape) > 1:
        x, w = stretched(x, how), stretched(w, how)
    bias = normal(rng, 2 * width)[::2] if biased else np.zeros(width, np.float32)
    found = onednn.linear(x, w, bias if biased else None)
    assert_close(found, lambda x, w, b: x @ w.T + b, x, w, bias)


@needs_library
def test_linear_of_other_things():
    x, w = np.ones((80, 90), np.float32), np.ones((70, 90), np.float32)
    assert onednn.linear(x, w) is not None
    assert onednn.linear(x, w[:, :80]) is None
    assert onednn.linear(x, w, np.ones(80, np.float32)) is None
    assert onednn.linear(x, w, np.ones(70)) is None
    assert onednn.linear(x[:0], w) is None
    assert onednn.linear(x[:, :0], w[:, :0]) is None


@needs_library
def test_threads_do_not_disturb_one_another():
    """Four threads run the same primitives on different data, and make new ones meanwhile."""
    window = ((1, 1), (1, 1), (1, 1), 1)
    failures = []
    start = threading.Barrier(4)

    def work(seed):
        rng = np.random.default_rng(seed)
        case = Case(rng, 2, 20, 24, (12, 12), (3, 3), *window)
        a, b = normal(rng, 4, 60, 50), normal(rng, 4, 50, 60)
        x, w, bias = normal(rng, 600, 80), normal(rng, 500, 80), normal(rng, 500)
        start.wait()
        for step in range(6):
            case.check_all()
            assert_close(onednn.matmul(a, b), np.matmul, a, b)
            assert_close(onednn.linear(x, w, bias), lambda x, w, b: x @ w.T + b, x, w, bias)
            size = 8 + 4 * (step % 5)
            Case(rng, 1, size, seed + 3, (6, 6), (3, 3), *window).check_forward(
                normal(rng, 1, size, 6, 6), normal(rng, seed + 3, size, 3, 3)
            )

    def guarded(seed):
        try:
            work(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@needs_library
def test_the_cache_forgets_what_was_not_used_and_remembers_refusals():
    from weft.native.onednn.primitive import OneDNNRefused, PrimitiveSequence, Programs

    programs, made = Programs(limit=4), []

    def build(key):
        made.append(key)
        if key < 0:
            raise OneDNNRefused
        return PrimitiveSequence()

    kept = programs.find(1, build, 1)
    for key in (2, 3, 4, 5, 6, 7):
        programs.find(key, build, key)
        assert programs.find(1, build, 1) is kept
    assert made == [1, 2, 3, 4, 5, 6, 7]
    assert len(programs) <= 4
    programs.find(2, build, 2)
    assert made[-1] == 2
    assert programs.find(-1, build, -1) is None
    assert programs.find(-1, build, -1) is None
    assert made.count(-1) == 1
    programs.clear()
    assert programs.find(1, build, 1) is not kept


def run_python(code, timeout=120, **environment):
    """What a fresh interpreter prints."""
    source = Path(__file__).resolve().parents[2] / "src"
    variables = {**os.environ, "PYTHONPATH": str(source), **environment}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


FORKING = """
    import os, signal, sys, threading
    import numpy as np
    from weft.native import onednn

    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 32, 16, 16), dtype=np.float32)
    w = rng.standard_normal((32, 32, 3, 3), dtype=np.float32)
    a = rng.standard_normal((512, 512), dtype=np.float32)

    def compute():
        y = onednn.convolution(x, w, None, (1, 1), (1, 1), (1, 1), 1)
        new = onednn.convolution(x[:4], w, None, (1, 1), (1, 1), (1, 1), 1)
        return y, new, onednn.matmul(a, a), onednn.matmul(a.reshape(4, 128, 512), a.T)

    def same(results):
        return all(np.allclose(r, e, atol=1e-3) for r, e in zip(results, expected))

    def in_child(work):
        pid = os.fork()
        if not pid:
            signal.alarm(30)
            os._exit(0 if work() else 1)
        return os.waitpid(pid, 0)[1]
"""


@needs_library
@pytest.mark.parametrize("pausing", (True, False))
def test_a_forked_child_computes_and_so_does_its_parent(pausing):
    without = (
        ""
        if pausing
        else (
            "from weft.native.onednn import binding; real = binding.OneDNNLibrary.optional; "
            "binding.OneDNNLibrary.optional = lambda self, name: "
            "None if 'pause' in name else real(self, name)"
        )
    )
    code = f"""
    {without}
    expected = compute()
    print(in_child(lambda: same(compute())))
    print(same(compute()))
    print(in_child(lambda: in_child(lambda: same(compute())) == 0 and same(compute())))
    print(same(compute()))
    """
    assert run_python(FORKING + code) == ["0", "True", "0", "True"]


@needs_library
def test_forks_while_other_threads_compute():
    code = """
    expected = compute()
    stop = threading.Event()
    def busy():
        size = 1
        while not stop.is_set():
            size = size % 40 + 1
            onednn.convolution(x[:, :size], w[:, :size], None, (1, 1), (1, 1), (1, 1), 1)
            compute()
    threads = [threading.Thread(target=busy) for _ in range(2)]
    [t.start() for t in threads]
    print([in_child(lambda: same(compute())) for _ in range(10)])
    stop.set()
    [t.join() for t in threads]
    print(same(compute()))
    """
    assert run_python(FORKING + code) == [str([0] * 10), "True"]


@needs_library
def test_a_process_pool_may_fork():
    code = """
    import multiprocessing
    expected = compute()
    def task(_):
        return bool(same(compute()))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map_async(task, range(6)).get(60))
    """
    assert run_python(FORKING + code) == [str([True] * 6)]


@needs_library
def test_the_number_of_threads_holds_in_every_thread():
    code = """
    import threading
    import numpy as np
    from weft.native import onednn, threads
    from weft.native.onednn import binding
    a = np.random.default_rng(0).standard_normal((300, 300), dtype=np.float32)
    before = onednn.matmul(a, a)
    count = binding.library().functions.omp_get_max_threads
    threads.set_count(3)
    print(threads.count())
    seen = []
    def look():
        onednn.matmul(a, a)
        seen.append(count())
    look()
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    print(seen, np.allclose(onednn.matmul(a, a), before, atol=1e-3))
    try:
        threads.set_count(0)
    except ValueError as error:
        print(error)
    """
    found = run_python(code)
    assert found == [
        "3",
        "[3, 3] True",
        "set_num_threads expects a positive integer, but got 0",
    ]


@pytest.mark.parametrize(
    ("wish", "word"), (("off", "WEFT_ONEDNN"), ("/nowhere/libdnnl.so", "/nowhere/libdnnl.so"))
)
def test_without_the_library_every_function_declines(wish, word):
    code = """
    import numpy as np
    from weft.native import onednn, threads
    one = np.ones((90, 90), np.float32)
    print(onednn.available(), onednn.version())
    print(onednn.why_not())
    print(onednn.matmul(one, one), onednn.linear(one, one, one[0]))
    threads.set_count(2)
    image, window = one.reshape(1, 1, 90, 90), ((1, 1), (0, 0), (1, 1), 1)
    print(onednn.convolution(image, image, None, *window))
    print(onednn.convolution_input_grad(image, image, image.shape, *window))
    print(onednn.convolution_weight_grad(image, image, image.shape, *window))
    """
    found = run_python(code, WEFT_ONEDNN=wish)
    assert found[0] == "False None"
    assert word in found[1]
    assert found[2:] == ["None None", "None", "None", "None"]


@needs_library
def test_the_library_that_is_named_is_used():
    from weft.native.onednn import binding

    path = binding.library().path
    code = """
    from weft.native import onednn
    from weft.native.onednn import binding
    print(onednn.available(), repr(onednn.why_not()), binding.library().path, onednn.version())
    """
    assert run_python(code, WEFT_ONEDNN=path) == [f"True '' {path} {onednn.version()}"]


def test_importing_the_package_loads_nothing():
    code = """
    import sys
    from weft.native import onednn
    print([name for name in sys.modules if "cffi" in name or "onednn." in name])
    try:
        onednn.nonsense
    except AttributeError as error:
        print(error)
    """
    assert run_python(code) == [
        "[]",
        "module 'weft.native.onednn' has no attribute 'nonsense'",
    ]


def test_the_generated_declarations_are_current():
    pytest.importorskip("pycparser")
    from weft.native.onednn import declarations

    def without_version(text):
        return [line for line in text.splitlines() if "_version" not in line]

    path = Path(declarations.__file__).with_name("_abi.py")
    assert without_version(path.read_text()) == without_version(declarations.generate())
