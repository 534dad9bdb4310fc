"""Convolutions by compiled loops against the reference in float64, over all that they take."""

from __future__ import annotations

import ctypes
import mmap
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from loops_common import layouts, over_threads
from weft.native import onednn
from weft.native.codegen import jit
from weft.native.conv import convolutions, windowed
from weft.references import convolution as reference

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

# Errors in units of the type's eps, against the sum of the absolute values of all products.
# Sums are taken in stretches of 256 products, of which the longest here has a few thousand.
ACCURACY = 8.0

Ints = tuple[int, ...]


def within(found: Any, wanted: np.ndarray, scale: np.ndarray, dtype: Any) -> None:
    assert found is not None and found.shape == wanted.shape and found.dtype == dtype
    assert found.flags.c_contiguous
    limit = ACCURACY * np.finfo(dtype).eps * scale
    assert (np.abs(found - wanted) <= limit).all()


@st.composite
def cases(draw: Any) -> tuple[Any, ...]:
    """Shapes and settings of a convolution of one to three dimensions."""
    rank = draw(st.integers(1, 3))

    def ints(low: int, high: int) -> Ints:
        return tuple(draw(st.integers(low, high)) for _ in range(rank))

    kernel, stride, padding, dilation = ints(1, 4), ints(1, 3), ints(0, 3), ints(1, 3)
    extra = ints(1, {1: 70, 2: 20, 3: 8}[rank])
    size = tuple(
        max(1, e + d * (k - 1) - 2 * p)
        for e, k, p, d in zip(extra, kernel, padding, dilation, strict=True)
    )
    groups = draw(st.sampled_from((1, 1, 2, 3, 5)))
    before = draw(st.sampled_from((1, 2, 3, 8, 17)))
    after = draw(st.sampled_from((1, 2, 4, 5, 6, 9, 13, 20)))
    samples = draw(st.integers(1, 3))
    x, w = (samples, before * groups, *size), (after * groups, before, *kernel)
    return x, w, stride, padding, dilation, groups


def made(seed: int, dtype: Any, *shapes: Ints) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in shapes]


def absolute(function: Any, a: np.ndarray, b: np.ndarray, *rest: Any) -> np.ndarray:
    return function(np.abs(a).astype("f8"), np.abs(b).astype("f8"), *rest)


@settings(max_examples=120, deadline=None)
@given(cases(), st.sampled_from(("f4", "f8")), st.booleans(), st.integers(0, 3))
def test_all_directions(case: Any, dtype: str, biased: bool, how: int) -> None:
    xs, ws, *window, groups = case
    rest = (*window, groups)
    x, w, bias = made(0, dtype, xs, ws, ws[:1])
    want = reference.convolution(x.astype("f8"), w.astype("f8"), *rest)
    if want.shape[0] * np.prod(want.shape[2:]) < windowed.PLACES:
        return  # left to the reference
    scale = absolute(reference.convolution, x, w, *rest)
    column = bias.reshape(-1, *(1,) * (x.ndim - 2))
    x = list(layouts(x))[how % len(list(layouts(x)))]
    found = windowed.convolution(x, w, bias if biased else None, *rest)
    if biased:
        want, scale = want + column, scale + np.abs(column)
    within(found, want, scale, x.dtype)

    (g,) = made(1, dtype, want.shape)
    wide = (g.astype("f8"), w.astype("f8"))
    found = windowed.transposed(list(layouts(g))[how % 3], w, None, xs, *rest)
    want = reference.convolution_input_grad(*wide, xs, *rest)
    scale = absolute(reference.convolution_input_grad, g, w, xs, *rest)
    within(found, want, scale, x.dtype)

    found = windowed.weight_grad(g, x, ws, *rest)
    want = reference.convolution_weight_grad(g.astype("f8"), x.astype("f8"), ws, *rest)
    scale = absolute(reference.convolution_weight_grad, g, x, ws, *rest)
    within(found, want, scale, x.dtype)


LARGE = {
    "dense": ((2, 70, 17, 19), (75, 70, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    "strided": ((3, 40, 21, 18), (20, 40, 3, 3), (2, 2), (1, 1), (1, 1), 1),
    "planes": ((2, 30, 33, 31), (30, 1, 5, 5), (1, 1), (2, 2), (1, 1), 30),
    "strided, with gaps": ((3, 40, 21, 18), (20, 40, 1, 1), (2, 3), (0, 0), (1, 1), 1),
    "strided planes": ((2, 30, 33, 31), (60, 1, 3, 3), (2, 1), (1, 0), (1, 2), 30),
    "line": ((2, 20, 5000), (30, 20, 9), (1,), (4,), (1,), 1),
    "points": ((3, 50, 20, 21), (33, 50, 1, 1), (1, 1), (0, 0), (1, 1), 1),
    "space": ((2, 12, 9, 10, 11), (14, 12, 3, 2, 3), (1, 2, 1), (1, 0, 1), (2, 1, 1), 1),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_the_number_of_threads_does_not_change_a_bit(name: str, dtype: str) -> None:
    xs, ws, *rest = LARGE[name]
    x, w = made(0, dtype, xs, ws)
    y = over_threads(lambda: windowed.convolution(x, w, None, *rest))
    within(
        y,
        reference.convolution(x.astype("f8"), w.astype("f8"), *rest),
        absolute(reference.convolution, x, w, *rest),
        x.dtype,
    )
    (g,) = made(1, dtype, y.shape)
    over_threads(lambda: windowed.transposed(g, w, None, xs, *rest))
    gw = over_threads(lambda: windowed.weight_grad(g, x, ws, *rest))
    within(
        gw,
        reference.convolution_weight_grad(g.astype("f8"), x.astype("f8"), ws, *rest),
        absolute(reference.convolution_weight_grad, g, x, ws, *rest),
        x.dtype,
    )


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_and_infinity_stay_where_they_are_seen(name: str, dtype: str) -> None:
    xs, ws, *rest = LARGE[name]
    x, w = made(2, dtype, xs, ws)
    (g,) = made(3, dtype, reference.convolution(x, w, *rest).shape)
    for a in (x, g):
        flat = a.reshape(-1)
        flat[7], flat[a.size // 2], flat[-1] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        pairs = [
            (windowed.convolution(x, w, None, *rest), reference.convolution(x, w, *rest)),
            (
                windowed.transposed(g, w, None, xs, *rest),
                reference.convolution_input_grad(g, w, xs, *rest),
            ),
            (
                windowed.weight_grad(g, x, ws, *rest),
                reference.convolution_weight_grad(g, x, ws, *rest),
            ),
        ]
    for found, want in pairs:
        assert found is not None
        for question in (np.isnan, np.isposinf, np.isneginf):
            assert np.array_equal(question(found), question(want))


def test_what_no_window_sees_is_bias_or_zero() -> None:
    g, w, bias = made(0, "f4", (2, 5, 4, 4), (5, 3, 2, 2), (3,))
    window = ((3, 3), (0, 0), (1, 1), 1)
    for added in (None, bias):
        found = windowed.transposed(g, w, added, (2, 3, 13, 12), *window)
        want = reference.convolution_input_grad(g, w, (2, 3, 13, 12), *window)
        if added is not None:
            want = want + bias.reshape(-1, 1, 1)
        assert np.allclose(found, want, atol=1e-5)
        rest = found[:, :, 2::3]
        assert np.array_equal(rest, np.broadcast_to(want[:, :, 2::3], rest.shape))


@pytest.mark.skipif(os.name != "posix", reason="pages are protected by POSIX means")
def test_the_end_of_an_array_is_not_passed() -> None:
    """An input that is read in place ends where readable memory ends."""
    size = mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, 2 * size), np.uint8)
    end = ctypes.c_void_p(memory.ctypes.data + size)
    protect = ctypes.CDLL(None).mprotect
    assert protect(end, size, 0) == 0
    try:
        x = memory[size - 4 * 9 * 7 * 13 : size].view("f4").reshape(1, 9, 7, 13)
        x[...] = np.random.default_rng(0).standard_normal(x.shape)
        for kernel in ((1, 1), (3, 2)):
            (w,) = made(1, "f4", (12, 9, *kernel))
            rest = ((1, 1), (0, 0), (1, 1), 1)
            found = windowed.convolution(x, w, None, *rest)
            assert np.allclose(found, reference.convolution(x, w, *rest), atol=1e-4)
    finally:
        protect(end, size, mmap.PROT_READ | mmap.PROT_WRITE)


def test_the_last_places_may_be_left_out() -> None:
    x, w = made(0, "f8", (2, 3, 15, 11), (10, 3, 3, 3))
    rest = ((2, 2), (1, 1), (1, 1), 1)
    want = reference.convolution(x, w, *rest)
    for extent in ((8, 6), (7, 6), (5, 2)):
        found = windowed.convolution(x, w, None, *rest, extent)
        assert np.allclose(found, want[:, :, : extent[0], : extent[1]])
    assert windowed.convolution(x, w, None, *rest, (9, 6)) is None


def test_what_is_not_taken() -> None:
    x, w = made(0, "f4", (2, 4, 8, 8), (6, 4, 3, 3))
    rest = ((1, 1), (1, 1), (1, 1), 1)
    assert windowed.convolution(x, w, None, *rest) is not None
    assert windowed.convolution(x.astype("f2"), w.astype("f2"), None, *rest) is None
    assert windowed.convolution(x, w.astype("f8"), None, *rest) is None
    assert windowed.convolution(x[:0], w, None, *rest) is None
    assert windowed.convolution(x[:, :3], w, None, *rest) is None
    assert windowed.convolution(x[:, :, :0], w, None, (1, 1), (1, 1), (1, 1), 1) is None
    assert windowed.transposed(x, w, None, (2, 4, 99, 8), *rest) is None
    assert windowed.weight_grad(x, x, (6, 4, 3, 3), *rest) is None


def test_who_comes_first() -> None:
    thin, planes, broad = (64, 4, 3, 3), (64, 1, 3, 3), (128, 128, 3, 3)
    assert convolutions._thin(thin, 16) and not convolutions._thin(planes, 64)
    assert convolutions._thin((64, 1, 9), 64) and not convolutions._thin(broad, 1)
    a = np.zeros((1, 1, 1, 1), "f4")
    faster = convolutions._loops_are_faster
    assert faster(a, a, broad, (2, 2), 1) and faster(a, a, (64, 32, 3, 3), (1, 1), 1)
    assert faster(a, a, (64, 1, 5, 5), (1, 1), 64)
    assert not faster(a, a, (64, 64, 3, 3), (2, 2), 1)
    assert not faster(a, a, (64, 3, 3, 3), (1, 1), 1)


@pytest.mark.parametrize("groups", [16, 8])
def test_thin_groups_agree_with_the_library(groups: int) -> None:
    x, w = made(0, "f4", (2, 32, 12, 13), (32, 32 // groups, 3, 3))
    rest = ((1, 1), (1, 1), (1, 1), groups)
    found = convolutions.convolution(x, w, None, *rest)
    want = onednn.convolution(x, w, None, *rest)
    if want is None:
        pytest.skip("oneDNN is not here")
    assert np.allclose(found, want, atol=1e-5)


PROGRAM = """
import numpy as np, weft
from weft.backends import native
nn = weft.nn
def grads(dtype):
    weft.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1, groups=2),
        nn.Conv2d(32, 32, 3, padding=1, groups=32), nn.ConvTranspose2d(32, 8, 4, 2, 1),
    ).to(dtype)
    x = weft.randn(8, 3, 20, 22).to(dtype).requires_grad_()
    y = net(x)
    (y * y).sum().backward()
    return [y, x.grad, *(p.grad for p in net.parameters())]
assert not weft.backends.mkldnn.is_available()
for dtype in (weft.float32, weft.float64):
    found = grads(dtype)
    native.set("numpy")
    wanted = grads(dtype)
    native.set("native")
    eps = np.finfo(found[0].detach().numpy().dtype).eps
    for a, b in zip(found, wanted):
        a, b = a.detach().numpy(), b.detach().numpy()
        assert np.abs(a - b).max() <= 64 * eps * np.abs(b).max(), (dtype, a.shape)
from weft.native.conv import windowed
assert windowed.forward_plan.cache_info().currsize == 4  # the last layer's gradient is one
"""


def test_a_network_without_onednn() -> None:
    env = {**os.environ, "WEFT_ONEDNN": "off"}
    subprocess.run([sys.executable, "-c", PROGRAM], timeout=200, check=True, env=env)


def test_a_forked_child_computes_too() -> None:
    x, w = made(0, "f8", (2, 8, 20, 20), (16, 8, 3, 3))
    rest = ((1, 1), (1, 1), (1, 1), 1)
    want = windowed.convolution(x, w, None, *rest)
    child = os.fork()
    if not child:
        same = np.array_equal(windowed.convolution(x, w, None, *rest), want)
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_float64_layers_use_the_loops() -> None:
    layer = weft.nn.Conv2d(4, 8, 3).double()
    windowed.forward_plan.cache_clear()
    layer(weft.randn(2, 4, 40, 40).double())
    assert windowed.forward_plan.cache_info().currsize == 1


@pytest.mark.parametrize("wide", [8, 40])
def test_arrays_of_another_type_with_the_same_strides_in_bytes(wide: int) -> None:
    """A plan serves all types, and what it knows of strides is counted in elements."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((16, 16, 3, 3))
    double = rng.standard_normal((2, 16, 8, wide))
    single = np.empty((2, 16, 8, wide, 2), np.float32)[..., 0]
    single[...] = double
    assert single.strides == double.strides
    window = (1, 1), (1, 1), (1, 1), 1
    expected = reference.convolution(double, w, *window)
    for x in (single, double):
        found = windowed.convolution(x, w.astype(x.dtype), None, *window, None)
        assert found is not None
        np.testing.assert_allclose(found, expected, atol=1e-4)
