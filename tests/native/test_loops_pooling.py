"""Native pooling against the NumPy kernels, which are the reference."""

import numpy as np
import pytest

from loops_common import channels_last, close, layouts, over_threads
from weft.native.codegen import jit
from weft.native.loops import pooling
from weft.references import pooling as reference

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

# Shape, kernel, stride, padding, dilation, ceil_mode.
WINDOWS = [
    ((2, 5, 13), (2,), (2,), (0,), (1,), False),
    ((2, 5, 6), (3,), (2,), (1,), (2,), True),
    ((2, 3, 40), (30,), (3,), (15,), (1,), True),
    ((2, 3, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 5, 37, 41), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 5, 37, 41), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((2, 70, 9, 8), (3, 3), (2, 2), (1, 1), (1, 1), True),
    ((1, 3, 9, 23), (3, 2), (1, 3), (1, 0), (2, 3), False),
    ((1, 2, 1, 19), (1, 5), (1, 1), (0, 2), (1, 1), False),
    *(((2, 3, 4, n), (3, 3), (1, 1), (1, 1), (1, 1), False) for n in (5, 6, 9, 10, 11, 17, 18)),
    ((2, 3, 4, 23), (4, 4), (2, 2), (1, 1), (1, 1), False),
    ((2, 20, 11, 13), (4, 4), (2, 1), (2, 1), (1, 1), True),
    ((2, 3, 12, 14), (5, 5), (1, 2), (2, 2), (1, 1), False),
    ((2, 3, 17, 15), (7, 6), (3, 2), (3, 3), (1, 1), True),
    ((1, 2, 3, 4), (3, 4), (1, 1), (1, 2), (1, 1), False),
    ((2, 3, 5, 6, 7), (2, 3, 2), (2, 1, 2), (1, 1, 0), (1, 2, 1), True),
    ((1, 2, 9, 8, 7), (3, 4, 3), (2, 2, 2), (1, 2, 1), (1, 1, 1), False),
]
NAMES = [f"{w[0]}-{w[1]}" for w in WINDOWS]


@pytest.fixture(autouse=True)
def many_threads(monkeypatch):
    monkeypatch.setattr(pooling, "GRAIN", 1)


def values(shape, what, dtype=np.float32):
    """Few different numbers, so that equal ones meet in a window."""
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-4, 4, shape).astype(dtype)
    if what == "nan":
        x[rng.random(shape) < 0.1] = np.nan
    elif what == "infinite":
        x[rng.random(shape) < 0.7] = -np.inf
        x[rng.random(shape) < 0.1] = np.inf
    return x


@pytest.mark.parametrize("what", ["numbers", "nan", "infinite"])
@pytest.mark.parametrize("window", WINDOWS, ids=NAMES)
def test_max(window, what):
    shape, *rest = window
    plain = values(shape, what)
    wanted, places = reference.max_pool(plain, *rest)
    for x in layouts(plain):
        y, found = over_threads(lambda x=x: pooling.max_pool(x, *rest))
        assert np.array_equal(y, wanted, equal_nan=True)
        assert np.array_equal(found, places) and found.dtype == np.int64
        assert pooling.is_last(y) == pooling.is_last(x) or y.flags.c_contiguous


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wide", [2, 3, 7, 8, 9, 16, 17, 30, 32, 33, 67])
def test_squares(wide, dtype):
    rest = ((2, 2), (2, 2), (0, 0), (1, 1))
    for high, what in ((2, "numbers"), (5, "nan"), (8, "infinite")):
        x = values((3, 2, high, wide), what, dtype)
        wanted, places = reference.max_pool(x, *rest)
        y, found = over_threads(lambda x=x: pooling.max_pool(x, *rest))
        assert np.array_equal(y, wanted, equal_nan=True) and y.dtype == dtype
        assert np.array_equal(found, places)


def test_max_in_float64():
    x = values((2, 3, 20, 20), "nan", np.float64)
    arguments = ((3, 3), (2, 2), (1, 1), (1, 1))
    for a, b in zip(
        pooling.max_pool(x, *arguments), reference.max_pool(x, *arguments), strict=True
    ):
        assert np.array_equal(a, b, equal_nan=True) and a.dtype == b.dtype


def test_window_without_a_place_inside():
    assert pooling.max_pool(np.zeros((1, 1, 1), np.float32), (2,), (1,), (1,), (2,)) is None


@pytest.mark.parametrize("window", WINDOWS, ids=NAMES)
def test_scatter_and_gather(window):
    shape, *rest = window
    x = values(shape, "numbers")
    _, places = reference.max_pool(x, *rest)
    g = np.random.default_rng(0).integers(-9, 9, places.shape).astype(np.float32)
    wanted = reference.max_pool_scatter(g, places, shape)
    for a, where in zip(layouts(g), layouts(places), strict=True):
        found = over_threads(lambda a=a, where=where: pooling.plane_scatter(a, where, shape))
        assert np.array_equal(found, wanted)
    for a, where in zip(layouts(x), [places] * 4, strict=False):
        found = over_threads(lambda a=a, where=where: pooling.plane_gather(a, where))
        assert np.array_equal(found, reference.gather_plane(x, places))


@pytest.mark.parametrize("wrong", [-1, 30, 2**40])
def test_places_outside(wrong):
    places = np.zeros((2, 70, 3, 2), np.int64)
    places[1, 69, 2, 1] = wrong
    g = np.ones(places.shape, np.float32)
    x = np.ones((2, 70, 5, 6), np.float32)
    assert pooling.plane_scatter(g, places, x.shape) is None
    assert pooling.plane_scatter(channels_last(g), places, x.shape) is None
    assert pooling.plane_gather(x, places) is None


COUNTS = [(True, None), (False, None), (True, 7)]


@pytest.mark.parametrize("count", COUNTS, ids=["padded", "inside", "override"])
@pytest.mark.parametrize("window", WINDOWS, ids=NAMES)
def test_mean(window, count):
    shape, kernel, stride, padding, _, ceil = window
    padding = tuple(min(p, k // 2) for p, k in zip(padding, kernel, strict=True))
    rng = np.random.default_rng(3)
    plain = rng.standard_normal(shape)
    arguments = (kernel, stride, padding, ceil, *count)
    wanted = reference.avg_pool(plain, *arguments)
    size = reference.avg_pool(np.abs(plain), *arguments)
    g = rng.standard_normal(wanted.shape)
    back = reference.avg_pool_grad(g, shape, *arguments)
    back_size = reference.avg_pool_grad(np.abs(g), shape, *arguments)
    for dtype in (np.float32, np.float64):
        for x in layouts(plain.astype(dtype)):
            y = over_threads(lambda x=x: pooling.avg_pool(x, *arguments))
            close(y, wanted, size + 1e-30, 8)
        for a in layouts(g.astype(dtype)):
            gx = over_threads(lambda a=a: pooling.avg_pool_back(a, shape, *arguments))
            close(gx, back, back_size + 1e-30, 8)


EVEN = [
    ((2, 5, 13), (1,)),
    ((2, 5, 13), (5,)),
    ((3, 70, 7, 7), (1, 1)),
    ((3, 70, 7, 7), (5, 3)),
    ((2, 3, 12, 8), (4, 4)),
    ((2, 3, 3, 4), (5, 9)),
    ((2, 3, 4, 5, 6), (2, 1, 4)),
    ((2, 3, 4, 5, 6), (1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "size"), EVEN, ids=str)
def test_even_windows(shape, size):
    rng = np.random.default_rng(4)
    plain = rng.standard_normal(shape)
    wanted = reference.adaptive_avg_pool(plain, size)
    bound = reference.adaptive_avg_pool(np.abs(plain), size)
    g = rng.standard_normal(wanted.shape)
    back = reference.adaptive_avg_pool_grad(g, shape)
    back_bound = reference.adaptive_avg_pool_grad(np.abs(g), shape)
    for dtype in (np.float32, np.float64):
        for x in layouts(plain.astype(dtype)):
            y = over_threads(lambda x=x: pooling.adaptive_avg_pool(x, size))
            close(y, wanted, bound, 8)
        for a in layouts(g.astype(dtype)):
            gx = over_threads(lambda a=a: pooling.adaptive_avg_pool_back(a, shape))
            close(gx, back, back_bound, 8)


def test_even_maximum():
    x = values((2, 3, 12, 8), "nan")
    for size in ((4, 4), (1, 1)):
        found, wanted = pooling.adaptive_max_pool(x, size), reference.adaptive_max_pool(x, size)
        assert np.array_equal(found[0], wanted[0], equal_nan=True)
        assert np.array_equal(found[1], wanted[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ["nan", "ties"])
def test_uneven_maximum(kind, dtype):
    for shape, sizes in (
        ((2, 3, 12, 8), ((5, 4), (7, 7), (12, 3), (20, 30))),
        ((3, 2, 50), ((7,), (49,), (60,))),
        ((2, 2, 5, 6, 7), ((3, 4, 5), (1, 1, 2), (9, 5, 8))),
    ):
        x = (
            values(shape, "nan")
            if kind == "nan"
            else np.random.default_rng(0).integers(-3, 3, shape)
        )
        x = x.astype(dtype)
        x.reshape(-1)[:40] = -np.inf
        for size in sizes:
            wanted = reference.adaptive_max_pool(x, size)
            for given in (x, np.asfortranarray(x)):
                found = over_threads(lambda a=given, s=size: pooling.adaptive_max_pool(a, s))
                assert np.array_equal(found[0], wanted[0], equal_nan=True)
                assert np.array_equal(found[1], wanted[1])
    assert pooling.adaptive_max_pool(x, (5, 4)) is None
    assert pooling.adaptive_max_pool(x, (5, 4, 0)) is None


def test_long_mean_keeps_its_digits():
    x = np.random.default_rng(5).random((2, 20, 120, 130)).astype(np.float32) + 100
    wanted = x.mean((2, 3), dtype=np.float64)[..., None, None]
    for a in (x, channels_last(x)):
        close(pooling.adaptive_avg_pool(a, (1, 1)), wanted, np.abs(wanted), 12)


def test_what_is_not_taken():
    x = np.zeros((2, 3, 4, 4), np.float32)
    one = (1, 1)
    assert pooling.max_pool(x.astype(np.int64), (2, 2), one, (0, 0), one) is None
    assert pooling.max_pool(x[:0], (2, 2), one, (0, 0), one) is None
    assert pooling.max_pool(x, (5, 5), one, (0, 0), one) is None  # an error for the reference
    assert pooling.avg_pool(x, (2, 2), one, (0, 0), divisor_override=-3) is None
    assert pooling.adaptive_avg_pool(x, (0, 2)) is None
