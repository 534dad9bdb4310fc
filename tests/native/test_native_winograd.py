"""Convolutions that multiply less, against the reference in float64."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import weft
from loops_common import layouts, over_threads
from weft.native.codegen import jit
from weft.native.conv import convolutions, winograd
from weft.references import convolution as reference

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

# Errors in units of eps, against the sum of products of the largest values near and in a window.
ACCURACY = 8.0
EPS = np.finfo("f4").eps
WINDOWS = ((2, 1), (3, 1), (4, 2), (6, 2), (6, 3), (9, 3))  # size and stride

Ints = tuple[int, ...]


def nearby(a: np.ndarray, reach: int, around: Ints = (0, 0)) -> np.ndarray:
    """The largest absolute values of each image within so many places, and of places around it."""
    a = np.pad(np.abs(a).astype("f8"), [(0, 0), (0, 0), *((n, n) for n in around)])
    for axis in (2, 3):
        wide = np.pad(a, [(reach, reach) if i == axis else (0, 0) for i in range(4)])
        size = a.shape[axis]
        a = np.max([np.take(wide, range(k, k + size), axis) for k in range(2 * reach + 1)], 0)
    return a


def seen_back(
    g: np.ndarray, w: np.ndarray, xs: Ints, by: Ints, padding: Ints, around: int
) -> np.ndarray:
    """The transpose of a convolution, for a gradient with so many places around it."""
    size = [(n - 1) * s + k for n, s, k in zip(g.shape[2:], by, w.shape[2:], strict=True)]
    first = [around * s + p for s, p in zip(by, padding, strict=True)]
    size = [max(n, f + m) for n, f, m in zip(size, first, xs[2:], strict=True)]
    whole = reference.convolution_input_grad(g, w, (*xs[:2], *size), by, (0, 0), (1, 1), 1)
    return whole[:, :, first[0] : first[0] + xs[2], first[1] : first[1] + xs[3]]


def made(seed: int, *shapes: Ints) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype("f4") for s in shapes]


def within(found: Any, want: np.ndarray, scale: np.ndarray) -> None:
    assert found is not None and found.shape == want.shape and found.dtype == np.float32
    assert found.flags.c_contiguous
    assert (np.abs(found - want) <= ACCURACY * EPS * scale).all()


@st.composite
def cases(draw: Any) -> tuple[Ints, Ints, Ints, Ints]:
    """Shapes of input and weight, stride and padding."""
    size, by = draw(st.sampled_from(WINDOWS))
    padding = tuple(draw(st.integers(0, size)) for _ in range(2))
    image = tuple(max(1, draw(st.integers(1, 23)) + size - 1 - 2 * p) for p in padding)
    before, after = (draw(st.sampled_from((1, 2, 5, 7, 16, 17, 33))) for _ in range(2))
    samples = draw(st.integers(1, 4))
    return (samples, before, *image), (after, before, size, size), (by, by), padding


@pytest.fixture(params=(2, 4))
def side(request: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """The side of a tile's results, whatever the processor."""
    monkeypatch.setattr(winograd, "_side", lambda *_: request.param)
    return request.param


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(case=cases(), biased=st.booleans(), how=st.integers(0, 3))
def test_all_directions(side: int, case: Any, biased: bool, how: int) -> None:
    xs, ws, by, padding = case
    rest = (by, padding, (1, 1), 1)
    reach = max(ws[2], (side - 1) * by[0])  # to the end of a tile
    x, w, bias, over = made(0, xs, ws, ws[:1], xs[1:2])
    want = reference.convolution(x.astype("f8"), w.astype("f8"), *rest)
    most = np.abs(w).astype("f8").max((2, 3), keepdims=True) + 0.0 * w
    scale = reference.convolution(nearby(x, reach, padding), most, by, (0, 0), (1, 1), 1)
    added, flat = (bias, bias.reshape(-1, 1, 1)) if biased else (None, 0.0)
    other = list(layouts(x))
    found = winograd.convolution(other[how % len(other)], w, added, by, padding, None)
    within(found, want + flat, scale + np.abs(flat))

    (g,) = made(1, want.shape)
    wide = g.astype("f8"), w.astype("f8")
    want = reference.convolution_input_grad(*wide, xs, *rest)
    scale = seen_back(nearby(g, reach, (reach, reach)), most, xs, by, padding, reach)
    added, flat = (over, over.reshape(-1, 1, 1)) if biased else (None, 0.0)
    found = winograd.transposed(g, w, added, xs, by, padding)
    within(found, want + flat, scale + np.abs(flat))

    want = reference.convolution_weight_grad(wide[0], x.astype("f8"), ws, *rest)
    found = winograd.weight_grad(g, x, ws, by, padding)
    if side == 4:  # all places of a tile count, also those beyond the result
        g = np.pad(g, [(0, 0), (0, 0), *((0, -n % side) for n in g.shape[2:])])
        x = np.pad(x, [(0, 0), (0, 0), *((0, side * by[0]) for _ in range(2))])
    near = nearby(g, side), nearby(x, reach, padding)
    scale = reference.convolution_weight_grad(*near, ws, by, (0, 0), (1, 1), 1)
    scale = scale.max((2, 3), keepdims=True)
    within(found, want, scale + 0 * want)


LARGE = {
    "side by side": ((4, 70, 17, 19), (75, 70, 3, 3), (1, 1), (1, 1)),
    "stride 2": ((3, 66, 34, 32), (70, 66, 4, 4), (2, 2), (1, 1)),
    "deep": ((16, 300, 4, 4), (310, 300, 3, 3), (1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", LARGE)
def test_the_number_of_threads_does_not_change_a_bit(name: str) -> None:
    xs, ws, *window = LARGE[name]
    x, w = made(0, xs, ws)
    y = over_threads(lambda: winograd.convolution(x, w, None, *window, None))
    want = reference.convolution(x.astype("f8"), w.astype("f8"), *window, (1, 1), 1)
    assert np.abs(y - want).max() <= 4e-6 * np.abs(want).max()
    (g,) = made(1, y.shape)
    over_threads(lambda: winograd.transposed(g, w, None, xs, *window))
    over_threads(lambda: winograd.weight_grad(g, x, ws, *window))


@pytest.mark.parametrize("window", WINDOWS)
def test_what_scratch_memory_held_does_not_matter(
    side: int, window: Ints, monkeypatch: pytest.MonkeyPatch
) -> None:
    size, by = window
    x, w = made(0, (3, 21, 11, 18), (19, 21, size, size))
    rest = (by, by), (1, 1)
    wide = x.astype("f8"), w.astype("f8")
    want = reference.convolution(*wide, *rest, (1, 1), 1)
    (g,) = made(1, want.shape)
    empty = "weft.native.memory.buffers.empty"
    monkeypatch.setattr(empty, lambda shape, dtype: np.full(shape, np.nan, dtype))
    found = winograd.convolution(x, w, None, *rest, None)
    assert np.allclose(found, want, atol=1e-3)
    found = winograd.transposed(g, w, None, x.shape, *rest)
    want = reference.convolution_input_grad(g, wide[1], x.shape, *rest, (1, 1), 1)
    assert np.allclose(found, want, atol=1e-3)
    found = winograd.weight_grad(g, x, w.shape, *rest)
    want = reference.convolution_weight_grad(g, wide[0], w.shape, *rest, (1, 1), 1)
    assert np.allclose(found, want, atol=1e-2)


def every_way(x: np.ndarray, w: np.ndarray, g: np.ndarray, *rest: Any) -> list[Any]:
    return [
        convolutions.convolution(x, w, None, *rest),
        convolutions.transposed(g, w, None, x.shape, *rest),
        convolutions.weight_grad(g, x, w.shape, *rest),
    ]


@contextmanager
def every_product() -> Iterator[None]:
    """Convolutions that multiply all."""
    weft.backends.native.set_winograd(False)
    try:
        yield
    finally:
        weft.backends.native.set_winograd(True)


@pytest.mark.parametrize("name", LARGE)
def test_nan_and_infinity_stay_where_they_are_seen(name: str) -> None:
    xs, ws, *window = LARGE[name]
    rest = (*window, (1, 1), 1)
    x, w = made(2, xs, ws)
    (g,) = made(3, reference.convolution(x, w, *rest).shape)
    for a in (x, g):
        flat = a.reshape(-1)
        flat[7], flat[a.size // 2], flat[-1] = np.nan, np.inf, -np.inf
    assert convolutions._tiled(x, ws, window[0], (1, 1), 1, g.shape[2:])
    assert winograd.convolution(x, w, None, *window, None) is None
    assert winograd.transposed(g, w, None, xs, *window) is None
    assert winograd.weight_grad(g, x, ws, *window) is None
    with every_product():
        wanted = every_way(x, w, g, *rest)
    assert all(np.isnan(want).any() and not np.isnan(want).all() for want in wanted)
    for found, want in zip(every_way(x, w, g, *rest), wanted, strict=True):
        for question in (np.isnan, np.isposinf, np.isneginf):
            assert np.array_equal(question(found), question(want))


def test_sums_that_overflow_in_a_tile_only() -> None:
    xs, ws, *window = LARGE["side by side"]
    x, w = (np.zeros(s, "f4") for s in (xs, ws))
    x[:, 0], w[:, 0, 1, 1] = 3e38, 1.0  # the difference of neighbours is fine, their sum is not
    rest = (*window, (1, 1), 1)
    assert winograd.convolution(x, w, None, *window, None) is None
    assert np.array_equal(every_way(x, w, x[:, :1].repeat(75, 1) * 0, *rest)[0][:, 0], x[:, 0])


def test_the_switch() -> None:
    xs, ws, *window = LARGE["stride 2"]
    rest = (*window, (1, 1), 1)
    x, w = made(0, xs, ws)
    (g,) = made(1, reference.convolution(x, w, *rest).shape)
    assert weft.backends.native.winograd()
    less = every_way(x, w, g, *rest)
    with every_product():
        assert not weft.backends.native.winograd()
        whole = every_way(x, w, g, *rest)
    for a, b in zip(less, whole, strict=True):
        assert not np.array_equal(a, b)
        assert np.abs(a - b).max() <= 4e-6 * np.abs(b).max()


@pytest.mark.parametrize("fused", [False, True])
def test_who_is_taken(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolutions, "has_fma", lambda: fused)
    x, y = np.zeros((64, 64, 16, 16), "f4"), (8, 8)

    def taken(w: Ints, by: int = 1, x: np.ndarray = x, groups: int = 1, dilation: int = 1) -> bool:
        return convolutions._tiled(x, w, (by, by), (dilation, dilation), groups, y)

    assert taken((64, 64, 3, 3)) and taken((64, 64, 2, 2)) and taken((64, 64, 4, 4), 2)
    assert not taken((64, 64, 3, 3), 2) and not taken((64, 64, 1, 1)) and not taken((64, 64, 5, 5))
    assert taken((32, 32, 3, 3))
    assert taken((64, 16, 3, 3)) == taken((32, 64, 4, 4), 2) == fused
    assert not taken((64, 15, 3, 3)) and not taken((64, 31, 4, 4), 2)
    assert not taken((64, 8, 3, 3)) and not taken((64, 64, 3, 3), groups=2)
    assert not taken((64, 64, 3, 3), dilation=2) and not taken((64, 64, 3, 2))
    assert not taken((64, 64, 3, 3), x=x.astype("f8"))
    assert not taken((64, 64, 3, 3), x=x.transpose(0, 1, 3, 2))
    assert not taken((64, 64, 3, 3), x=x[:1])
    w = np.zeros((64, 64, 3, 3), "f4")
    assert winograd.convolution(x, w[:, :5], None, (1, 1), (1, 1), None) is None
    assert winograd.convolution(x, w, None, (1, 1), (1, 1), (30, 4)) is None
    assert winograd.weight_grad(x, x, (64, 64, 3, 3), (1, 1), (0, 0)) is None


@pytest.mark.parametrize(("window", "by"), [((3, 3), 2), ((3, 2), 1), ((4, 4), 1), ((5, 5), 2)])
def test_other_windows_are_declined(window: Ints, by: int) -> None:
    x, w = made(0, (2, 16, 24, 24), (16, 16, *window))
    y = reference.convolution(x, w, (by, by), (1, 1), (1, 1), 1)
    rest = (by, by), (1, 1)
    assert winograd.convolution(x, w, None, *rest, None) is None
    assert winograd.transposed(y, w, None, x.shape, *rest) is None
    assert winograd.weight_grad(y, x, w.shape, *rest) is None


def test_tiles_are_larger_with_fma_and_where_there_are_many_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sides = {(32, 3): 4, (8, 3): 4, (4, 3): 2, (16, 2): 4, (4, 2): 2}  # places, window: results
    for (size, window), side in sides.items():
        monkeypatch.setattr(winograd, "has_fma", lambda: True)
        assert winograd._side(32, (size, size), window) == side
        monkeypatch.setattr(winograd, "has_fma", lambda: False)
        assert winograd._side(32, (size, size), window) == 2


def test_last_places_left_out_or_beyond_the_windows() -> None:
    x, w = made(0, (4, 40, 15, 12), (40, 40, 3, 3))
    want = reference.convolution(x, w, (1, 1), (1, 1), (1, 1), 1)
    for extent in ((15, 12), (14, 7), (1, 1)):
        found = winograd.convolution(x, w, None, (1, 1), (1, 1), extent)
        assert np.allclose(found, want[:, :, : extent[0], : extent[1]], atol=1e-4)
    g, w = made(1, (2, 33, 7, 8), (33, 34, 4, 4))
    for shape in ((2, 34, 14, 16), (2, 34, 15, 17)):  # the latter has a line that no window sees
        found = winograd.transposed(g, w, None, shape, (2, 2), (1, 1))
        want = reference.convolution_input_grad(g, w, shape, (2, 2), (1, 1), (1, 1), 1)
        assert np.allclose(found, want, atol=1e-4)


@pytest.mark.skipif(os.name != "posix", reason="pages are protected by POSIX means")
def test_the_end_of_an_array_is_not_passed() -> None:
    size = mmap.PAGESIZE
    pages = 10 * size
    memory = np.frombuffer(mmap.mmap(-1, pages + size), np.uint8)
    end = ctypes.c_void_p(memory.ctypes.data + pages)
    protect = ctypes.CDLL(None).mprotect
    assert protect(end, size, 0) == 0

    def last(seed: int, *shape: int) -> np.ndarray:
        """Values that end where memory does."""
        (values,) = made(seed, shape)
        at_end = memory[pages - values.nbytes : pages].view("f4").reshape(shape)
        at_end[...] = values
        return at_end

    window = (1, 1), (1, 1)
    try:
        for channels, *places in ((9, 5, 7), (9, 29, 31), (17, 4, 5), (32, 3, 3)):
            shape, square = (1, channels, *places), (channels, channels, 3, 3)
            x, (w,) = last(0, *shape), made(1, square)
            want = reference.convolution(x, w, *window, (1, 1), 1)
            found = winograd.convolution(x, w, None, *window, None)
            assert np.allclose(found, want, atol=1e-4)
            want = reference.convolution_weight_grad(x, x, w.shape, *window, (1, 1), 1)
            found = winograd.weight_grad(x, x, w.shape, *window)
            assert np.allclose(found, want, atol=1e-3)
            (g,) = made(2, shape)
            w = last(1, *square)
            want = reference.convolution(g, w, *window, (1, 1), 1)
            assert np.allclose(winograd.convolution(g, w, None, *window, None), want, atol=1e-4)
            want = reference.convolution_input_grad(g, w, shape, *window, (1, 1), 1)
            assert np.allclose(winograd.transposed(g, w, None, shape, *window), want, atol=1e-4)
    finally:
        protect(end, size, mmap.PROT_READ | mmap.PROT_WRITE)


def test_layers_train_as_without() -> None:
    """A step of a small network, with and without."""
    losses = []
    for how in (nullcontext, every_product):
        with how():
            weft.manual_seed(0)
            nn = weft.nn
            model = nn.Sequential(
                *(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1), nn.ReLU()),
                *(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.Conv2d(64, 32, 3, padding=1)),
            )
            optimizer = weft.optim.Adam(model.parameters(), lr=1e-3)
            x = weft.randn(4, 3, 32, 32)
            for _ in range(3):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
