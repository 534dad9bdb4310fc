"""Reduction kernels against NumPy in float64, over shapes, layouts, special values and threads."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.native import threads
from weft.native.codegen import jit
from weft.native.loops import reduce as loops

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

SHAPES = [
    (8192,),
    (100_003,),
    (37, 251),
    (900, 10),
    (4099, 3),
    (70_001, 2),
    (20_000, 65),
    (3, 40_001),
    (2, 1, 3000, 5),
    (31, 2, 33, 17),
    (5, 1100, 7),
    (6, 300, 1030),
]
EPS = {np.float32: 2.0**-23, np.float64: 2.0**-52}


@pytest.fixture(autouse=True)
def quiet():
    before = threads.count()
    with np.errstate(all="ignore"):
        yield
    threads.set_count(before)


def axes_of(rank):
    every = range(1, rank + 1)
    return [a for n in every for a in itertools.combinations(range(rank), n)]


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def layouts(x):
    """The same values as rows, turned, with gaps, backwards, and at odd addresses."""
    yield x
    yield np.asfortranarray(x)
    yield np.repeat(x, 2, -1)[..., ::2]
    yield np.ascontiguousarray(x[::-1])[::-1]
    raw = np.empty(x.nbytes + 1, np.uint8)
    odd = raw[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield odd


def cases():
    for shape in SHAPES:
        for axes in axes_of(len(shape)):
            yield shape, axes


SUMS = {
    "sum_over": lambda x, a, k: x.sum(a, keepdims=k),
    "mean_over": lambda x, a, k: x.mean(a, keepdims=k),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", SUMS)
def test_sums(name, dtype):
    for shape, axes in cases():
        x = numbers(shape, dtype)
        count = np.prod([shape[a] for a in axes])
        got = getattr(loops, name)(x, axes, False)
        if count == 1:
            assert got is None
            continue
        exact = SUMS[name](x.astype(np.longdouble), axes, False)
        # As good as adding in pairs: the sum of sizes times a few roundings.
        bound = 40 * EPS[dtype] * SUMS[name](np.abs(x).astype(np.longdouble), axes, False)
        assert got.dtype == dtype and got.shape == exact.shape
        assert (np.abs(got - exact) <= bound).all(), (shape, axes)
        assert getattr(loops, name)(x, axes, True).shape == x.sum(axes, keepdims=True).shape


def test_long_sums_stay_exact():
    x = np.full(20_000_000, 0.1, np.float32)
    assert abs(float(loops.sum_over(x, (0,), False)) / (2e7 * float(np.float32(0.1))) - 1) < 1e-6
    tall = np.full((1_000_000, 3), 0.1, np.float32)
    np.testing.assert_allclose(loops.mean_over(tall, (0,), False), 0.1, rtol=1e-6)


EXACT = {
    "amax": np.max,
    "amin": np.min,
    "any_over": lambda x, axis, keepdims: np.any(x, axis, keepdims=keepdims),
    "all_over": lambda x, axis, keepdims: np.all(x, axis, keepdims=keepdims),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products(dtype):
    for shape in SHAPES:
        x = np.exp(0.01 * numbers(shape, dtype)) * np.sign(numbers(shape, dtype, 1))
        for y in (*layouts(x), np.where(numbers(shape, dtype, 2) > 3, 0, x)):
            for axes in axes_of(x.ndim):
                found = loops.product_over(y, axes, False)
                if len(axes) not in (1, x.ndim) or all(shape[a] == 1 for a in axes):
                    assert found is None
                    continue
                exact = np.multiply.reduce(y.astype(np.longdouble), axis=axes)
                assert found.shape == exact.shape and found.dtype == dtype
                # Each factor may round by half a unit of float64, and the result by its own.
                many = x.size // max(exact.size, 1) * 2.0**-53 + EPS[dtype] / 2
                assert (np.abs(found - exact) <= many * 1.01 * np.abs(exact)).all()


def test_products_of_parts_may_be_beyond_the_type():
    draw = np.random.default_rng(0)
    for shape, dim in (((16384,), 0), ((40_000, 1), 0), ((1000, 70), 0), ((1000, 5), 0)):
        half = np.full(shape[dim] // 2, 2.0 ** (6 if shape[dim] < 5000 else 3), np.float32)
        x = draw.permutation(np.concatenate([half, 1 / half]))
        assert np.ptp(np.cumsum(np.log2(x))) > 160
        x = np.repeat(x[:, None], shape[1], 1) if len(shape) > 1 else x
        assert (loops.product_over(np.tile(x, 2) if x.ndim > 1 else x, (dim,), False) == 1).all()
    x = np.tile(np.float32([2.0**100] * 3 + [2.0**-100] * 3), (3000, 1))
    assert (loops.product_over(x, (1,), False) == 1).all()


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, -0.0])
def test_special_factors(special):
    x = np.ones((90, 200), np.float32)
    x[3, 5] = special
    x[7, 8:10] = special, -2
    for dim in (0, 1):
        exact = np.multiply.reduce(x, axis=dim)
        found = loops.product_over(x, (dim,), False)
        np.testing.assert_array_equal(found, exact)
        assert (np.signbit(found) == np.signbit(exact))[~np.isnan(exact)].all()


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_exact_ones(name, special):
    for shape, axes in cases():
        x = np.rint(numbers(shape, seed=1) * (0.5 if name == "any_over" else 3))
        if special:
            flat = x.reshape(-1)
            flat[:: flat.size // 7] = [np.nan, np.inf, -np.inf, 0, np.nan, -np.nan, 1, 2][
                : len(flat[:: flat.size // 7])
            ]
        got = getattr(loops, name)(x, axes, True)
        if got is None:
            assert np.prod([shape[a] for a in axes]) == 1
            continue
        want = EXACT[name](x, axis=axes, keepdims=True)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want, err_msg=f"{shape} {axes}")


@pytest.mark.parametrize("name", ["sum_over", "amax", "mean_over"])
def test_layouts(name):
    for shape in [(31, 2, 33, 17), (300, 70)]:
        for axes in axes_of(len(shape)):
            x = numbers(shape)
            want = getattr(loops, name)(x, axes, False)
            for other in layouts(x):
                got = getattr(loops, name)(other, axes, False)
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-4)
                assert got.shape == want.shape


def test_infinities_and_nan_go_through_sums():
    x = numbers((4, 30_000))
    x[0, 5], x[1, 7], x[2, 9], x[2, 10] = np.inf, np.nan, np.inf, -np.inf
    got = loops.sum_over(x, (1,), False)
    assert got[0] == np.inf and np.isnan(got[1]) and np.isnan(got[2]) and np.isfinite(got[3])
    assert np.isnan(loops.sum_over(x, (0,), False)[[7]]).all()


def test_any_number_of_threads_gives_the_same_bits():
    for shape, axes in cases():
        x = numbers(shape)
        results = []
        for count in (1, 2, 3, 5):
            threads.set_count(count)
            results.append(
                [
                    loops.sum_over(x, axes, False),
                    loops.mean_over(x, axes, False),
                    loops.var(x, axes, False, 1),
                    loops.vector_norm(x, 2.0, axes, False),
                ]
            )
        for other in results[1:]:
            for a, b in zip(results[0], other, strict=True):
                assert (a is None and b is None) or a.tobytes() == b.tobytes()


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_spread(offset):
    for shape, axes in cases():
        count = np.prod([shape[a] for a in axes])
        given = numbers(shape) + np.float32(offset)
        for x in layouts(given) if given.size < 50_000 else [given]:
            got = loops.var(x, axes, True, 1)
            if count == 1:
                assert got is None
                continue
            exact = x.astype(np.float64).var(axes, ddof=1, keepdims=True)
            np.testing.assert_allclose(got, exact, rtol=1e-5, atol=0)
            np.testing.assert_allclose(loops.std(x, axes, True, 1), np.sqrt(exact), rtol=1e-5)
            assert loops.var(x, axes, False, 0).shape == x.sum(axes).shape


def test_spread_of_equal_numbers_is_zero():
    for shape, axes in (((100, 1000), (1,)), ((1000, 100), (0,)), ((100_000,), (0,))):
        assert (loops.var(np.full(shape, 0.1, np.float32), axes, False, 1) < 1e-16).all()


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_norms(p):
    for shape, axes in cases():
        x = numbers(shape)
        got = loops.vector_norm(x, p, axes, False)
        if got is not None:
            exact = (np.abs(x.astype(np.float64)) ** p).sum(axes) ** (1 / p)
            np.testing.assert_allclose(got, exact, rtol=3e-6)
    assert loops.vector_norm(numbers(10_000), 3.0, (0,), False) is None


@pytest.mark.parametrize("special", [0, 1, 2])
@pytest.mark.parametrize("name", ["max", "min"])
def test_places(name, special):
    for shape in SHAPES:
        x = np.rint(numbers(shape, seed=2) * 2)  # many ties
        if special == 1:
            x.reshape(-1)[5 :: max(1, x.size // 40)] = np.nan
        if special == 2:
            x[...] = -np.inf if name == "max" else np.inf
        whole = getattr(loops, f"arg{name}")(x, None, False)
        assert whole.shape == () and whole == getattr(np, f"arg{name}")(x)
        assert getattr(loops, f"arg{name}")(x, None, True).shape == (1,) * x.ndim
        for dim in range(len(shape)):
            want = getattr(np, f"arg{name}")(x, dim, keepdims=True)
            for other in layouts(x):
                values, places = getattr(loops, f"{name}_dim")(other, dim, True)
                np.testing.assert_array_equal(places, want)
                np.testing.assert_array_equal(values, np.take_along_axis(x, want, dim))
            assert getattr(loops, f"arg{name}")(x, dim, False).shape == want.squeeze(dim).shape


@pytest.mark.parametrize("shape", [(20_000,), (1,), (64, 200), (1, 200), (64, 1), (200,), ()])
def test_back_to_a_shape(shape):
    x = numbers((100, 64, 200) if shape != (20_000,) else (7, 20_000))
    got = loops.sum_to(x, shape)
    exact = x.astype(np.float64)
    lead = x.ndim - len(shape)
    dims = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1))
    np.testing.assert_allclose(got, exact.sum(dims, keepdims=True).reshape(shape), atol=2e-3)
    assert got.shape == shape


def test_calls_from_several_threads_at_once():
    arrays = [numbers((50, 3000), seed=k) for k in range(8)]

    def work(x):
        return [loops.sum_over(x, (1,), False), loops.mean_over(x, (0,), False)]

    alone = [work(x) for x in arrays]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for one, other in zip(alone, pool.map(work, arrays), strict=True):
                assert all(a.tobytes() == b.tobytes() for a, b in zip(one, other, strict=True))


def test_repeated_elements_take_no_memory():
    huge = np.broadcast_to(np.float32(0.5), (1 << 20, 1 << 20))
    assert loops.sum_over(huge, (0, 1), False) == 2.0**39
    assert loops.mean_over(huge, (0, 1), True).shape == (1, 1)
    assert loops.amax(huge, (0,), False) is None and loops.var(huge, (1,), False, 1) is None
    assert loops.max_dim(huge, 0, False) is None and loops.sum_over(huge, (1,), False) is None
    rows = numbers((30, 500))
    x = np.broadcast_to(rows[:, None], (30, 40, 500))
    exact = x.astype(np.float64)
    for axes in axes_of(3):
        for name, reference in SUMS.items():
            got = getattr(loops, name)(x, axes, False)
            if 1 in axes:
                np.testing.assert_allclose(got, reference(exact, axes, False), atol=5e-3, rtol=1e-5)
            else:
                assert got is None


def test_what_is_left_to_numpy():
    assert loops.sum_over(numbers((0, 5)), (0,), False) is None
    assert loops.sum_over(np.arange(100_000), (0,), False) is None
    assert loops.sum_over(numbers((50_000,)), (), False) is None
    assert loops.amax(numbers((100, 0, 1000)), (0,), False) is None
    assert loops.argmax(numbers((3,), np.float64), 0, False) is None
