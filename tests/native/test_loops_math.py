"""The elementary functions of kernels against float64, in units in the last place."""

import math

import numpy as np
import pytest
from scipy import special

from weft.native.codegen import jit
from weft.native.codegen.compiler import KernelFunction
from weft.native.loops import math as functions

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

# The reference in float64 and the largest error in units in the last place, for each function.
UNARY = {
    "exp": (np.exp, 1.0),
    "exp2": (np.exp2, 1.0),
    "expm1": (np.expm1, 1.5),
    "log": (np.log, 1.0),
    "log2": (np.log2, 1.1),
    "log1p": (np.log1p, 1.5),
    "sigmoid": (special.expit, 2.5),
    "tanh": (np.tanh, 1.5),
    "erf": (special.erf, 1.2),
    "erfinv": (special.erfinv, 0.51),
    "sin": (np.sin, 1.7),
    "cos": (np.cos, 1.7),
    "atan": (np.arctan, 1.5),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1.5),
    "softplus": (lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), 2.5),
}
# What is a product with a share of one is measured by the size of the argument.
SHARES = {
    "silu": (lambda x: x * special.expit(x), 3.0),
    "gelu": (lambda x: x * special.ndtr(x), 3.0),
    "gelu_tanh": (
        lambda x: x * special.expit(np.sqrt(8 / np.pi) * (x + 0.044715 * x**3)),
        3.0,
    ),
}
EDGES = np.array(
    [
        *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -0.99999994, np.inf, -np.inf, np.nan),
        *(1e-45, -1e-45, 1e-40, -1e-40, 3.4e38, -3.4e38),
        *(88.72, 88.73, -87.4, -103.9, -104.1, 128.0, -149.0, -151.0),
    ],
    np.float32,
)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def loop(name, arguments=1):
    """A kernel that applies one function to every element."""
    given = ["x", "w"][:arguments]
    pointers = "".join(f"{g}: Ptr[T], " for g in given)
    source = (
        f"def try_{name}({pointers}y: Ptr[T], lo: i64, hi: i64):\n"
        "    for i in range(lo, hi):\n"
        f"        y[i] = {name}({', '.join(f'{g}[i]' for g in given)})\n"
    )
    kernel = jit.Kernel(KernelFunction(source, vars(functions)))

    def run(*arrays):
        y = np.empty_like(arrays[0])
        kernel(*arrays, y, over=y.size, grain=4096)
        return y

    return run


def units(y, exact):
    """The errors of float32 results in units in the last place; inf and NaN have to be the same."""
    near = exact.astype(np.float32)
    error = np.abs(y.astype(np.float64) - exact) / np.spacing(np.abs(near)).astype(np.float64)
    same = (y == near) | (np.isnan(y) & np.isnan(near))
    return np.where(same & ~np.isfinite(near), 0.0, np.where(np.isnan(error), np.inf, error))


def all_floats(step, limit=None):
    """Blocks of float32 numbers, every ``step``-th of all."""
    for start in range(0, 1 << 32, 1 << 26):
        bits = np.arange(start + start % step, start + (1 << 26), step, np.uint64)
        x = bits.astype(np.uint32).view(np.float32)
        x = x if limit is None else x[np.abs(x) <= limit]
        if x.size:
            yield np.ascontiguousarray(x)


def check_unary(name, step):
    reference, most = UNARY[name]
    run, limit = loop(name), functions.SINE_LIMIT if name in ("sin", "cos") else None
    for x in all_floats(step, limit):
        y, exact = run(x), reference(x.astype(np.float64))
        error = units(y, exact)
        worst = error.argmax()
        assert error[worst] <= most, (name, x[worst], y[worst], exact[worst])


@pytest.mark.parametrize("name", UNARY)
def test_units(name):
    check_unary(name, 60013)


def remainder_cases(kind, count):
    """Random bit patterns, pairs of like size, subnormal ones, edges, multiples and neighbours."""
    draw = np.random.default_rng(8)
    word = f"u{np.dtype(kind).itemsize}"
    top = np.iinfo(word).max
    x, w = draw.integers(0, top, (2, count), word, endpoint=True).view(kind)
    near = (x.view(word) + draw.integers(0, 99, count).astype(word)).view(kind)
    tiny = draw.integers(0, 5000, (2, count)).astype(word).view(kind)
    multiple = w * draw.integers(1, 1 << 40, count).astype(kind)
    edges = np.array(np.meshgrid(EDGES, EDGES)).reshape(2, -1).astype(kind)
    pairs = [(x, w), (x, near), (near, x), (x, tiny[0]), tuple(tiny), (multiple, w), tuple(edges)]
    pairs += [(np.nextafter(multiple, side * np.inf), w) for side in (1, -1)]
    return [np.concatenate(part) for part in zip(*pairs, strict=True)]


def same_bits(y, exact):
    return (y.tobytes() == exact.tobytes()) or (
        np.array_equal(y, exact, equal_nan=True)
        and np.array_equal(np.signbit(y)[y == y], np.signbit(exact)[y == y])
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_fmod_is_exact(kind):
    x, w = remainder_cases(kind, 20_000)
    fine = np.isfinite(x) & (w != 0) & (w == w)
    exact = np.full_like(x, np.nan)
    exact[fine] = [math.fmod(a, b) for a, b in zip(x[fine].tolist(), w[fine].tolist(), strict=True)]
    assert same_bits(loop("fmod", 2)(x, w), exact)


def test_hypot():
    rng = np.random.default_rng(0)
    x, w = (
        np.concatenate([rng.standard_normal(50_000) * 10.0 ** rng.uniform(-44, 38, 50_000), edges])
        .astype(np.float32)
        for edges in (np.repeat(EDGES, EDGES.size), np.tile(EDGES, EDGES.size))
    )  # fmt: skip
    assert units(loop("hypot", 2)(x, w), np.hypot(*map(np.float64, (x, w)))).max() <= 0.51


def test_erfinv_in_float64():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-1, 1, 50_000), 1 - 10.0 ** rng.uniform(-16, 0, 50_000)])
    y = loop("erfinv")(x)
    back = np.where(np.abs(x) < 0.5, special.erf(y) - x, special.erfc(np.abs(y)) - (1 - np.abs(x)))
    slope = np.exp(-y * y) * 2 / np.sqrt(np.pi)
    assert np.abs(back / slope / y)[np.isfinite(y) & (y != 0)].max() < 4e-15


@pytest.mark.deep
@pytest.mark.parametrize("name", UNARY)
def test_units_of_many_floats(name):
    check_unary(name, 101)


@pytest.mark.parametrize("name", UNARY)
def test_edges(name):
    reference, most = UNARY[name]
    limit = functions.SINE_LIMIT if name in ("sin", "cos") else np.inf
    x = EDGES[~(np.abs(EDGES) > limit) | ~np.isfinite(EDGES)]
    y, exact = loop(name)(x), reference(x.astype(np.float64))
    assert (units(y, exact) <= most).all(), (x, y, exact)
    known = ~np.isnan(exact) & (exact.astype(np.float32) != 0)
    assert (np.signbit(y) == np.signbit(exact))[known].all()


@pytest.mark.parametrize("name", ["expm1", "log1p", "tanh", "erf", "sin", "atan", "silu", "gelu"])
def test_the_sign_of_zero_stays(name):
    y = loop(name)(np.array([0.0, -0.0], np.float32))
    assert y.tolist() == [0.0, 0.0] and np.signbit(y).tolist() == [False, True]


@pytest.mark.parametrize("name", SHARES)
def test_shares(name):
    reference, most = SHARES[name]
    x = np.linspace(-20, 20, 400_001).astype(np.float32)
    x = np.concatenate([x, x * np.float32(1e-3), x * np.float32(1e4)])
    y, exact = loop(name)(x), reference(x.astype(np.float64))
    assert (np.abs(y - exact) / np.spacing(np.abs(x)) <= most).all()


def test_the_share_below():
    x = np.linspace(-20, 20, 400_001).astype(np.float32)
    exact = special.ndtr(x.astype(np.float64))
    assert np.abs(loop("normal_cdf")(x) - exact).max() <= 1.2e-7


def _gelu_slope(x):
    return special.ndtr(x) + x * np.exp(x * x / -2) / np.sqrt(2 * np.pi)


def _gelu_tanh_slope(x):
    v = np.sqrt(8 / np.pi) * (x + 0.044715 * x**3)
    slope = np.sqrt(8 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return special.expit(v) + x * special.expit(v) * special.expit(-v) * slope


@pytest.mark.parametrize(
    ("name", "exact", "most"),
    [("gelu_slope", _gelu_slope, 1.8e-7), ("gelu_tanh_slope", _gelu_tanh_slope, 2.5e-7)],
)
def test_slopes(name, exact, most):
    x = np.linspace(-20, 20, 400_001)
    narrow = x.astype(np.float32)
    assert np.abs(loop(name)(narrow) - exact(narrow.astype(float))).max() <= most
    assert np.abs(loop(name)(x) - exact(x)).max() <= 1e-15
    far = np.array([np.inf, -np.inf, np.nan, 1e18, -1e18, 1e-45, -0.0], np.float32)
    ends = np.array([np.nan, np.nan, np.nan, 1, 0, 0.5, 0.5], np.float32)
    np.testing.assert_array_equal(loop(name)(far), ends)


def test_flushed_exponentials():
    x = np.concatenate([np.linspace(-200, 88, 1_000_001), [-np.inf, -1e30]]).astype(np.float32)
    y, exact = loop("exp_flush")(x), np.exp(x.astype(np.float64))
    normal = exact >= 2.0**-126
    assert (units(y, exact)[normal] <= 1.0).all()
    assert (y[exact < 2.0**-127] == 0).all()
    assert np.isnan(loop("exp_flush")(np.array([np.nan], np.float32))).all()


POWERS = np.concatenate([EDGES, [3, -3, 0.3, 16777215, -8388607, 33554432]]).astype(np.float32)


def power_cases(count):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, count, np.uint64).astype(np.uint32).view(np.float32)
    w = (rng.standard_normal(count) * rng.choice([0.1, 1, 10, 100], count)).astype(np.float32)
    w = np.where(rng.random(count) < 0.3, np.rint(w), w)
    return np.where(rng.random(count) < 0.5, np.exp(w[::-1] / 10), x).astype(np.float32), w


@pytest.mark.parametrize("count", [200_000, pytest.param(20_000_000, marks=pytest.mark.deep)])
def test_powers(count):
    pairs = [(a.ravel(), b.ravel()) for a, b in [np.meshgrid(POWERS, POWERS)]]
    for x, w in [*pairs, power_cases(count)]:
        x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
        y = loop("pow", 2)(x, w)
        exact = np.power(x.astype(np.float64), w.astype(np.float64))
        error = units(y, exact)
        worst = error.argmax()
        assert error[worst] <= 1.0, (x[worst], w[worst], y[worst], exact[worst])
        known = ~np.isnan(exact)
        assert (np.signbit(y) == np.signbit(exact))[known].all()


@pytest.mark.parametrize("name", ["exp", "tanh", "sigmoid"])
def test_units_of_float64(name):
    wide, most = np.longdouble, UNARY[name][1]
    if np.finfo(wide).nmant < 63:
        pytest.skip("nothing here is more precise than float64")
    draw = np.random.default_rng(4)
    parts = [draw.uniform(-760, 720, 100_000), draw.uniform(-45, 45, 100_000)]
    parts += [draw.standard_normal(200_000), np.exp(draw.uniform(-300, 3, 50_000))]
    x = np.concatenate([*parts, EDGES, [1e308, -1e308, 709.78, 709.79, -745.1, -745.2, 5e-324]])
    exact = {
        "exp": np.exp,
        "tanh": np.tanh,
        "sigmoid": lambda v: np.where(v < 0, np.exp(v), 1) / (1 + np.exp(-np.abs(v))),
    }[name](x.astype(wide))
    y, near = loop(name)(x), exact.astype(np.float64)
    error = np.abs(y - exact) / np.spacing(np.abs(near))
    known = np.isfinite(near)
    assert error[known].max() <= most
    assert np.array_equal(y[~known], near[~known], equal_nan=True)
    assert (np.signbit(y) == np.signbit(near))[~np.isnan(near)].all()


@pytest.mark.parametrize("name", [*UNARY, *SHARES, "normal_cdf"])
def test_float64_is_near_the_c_library(name):
    reference = {**UNARY, **SHARES, "normal_cdf": (special.ndtr, 0)}[name][0]
    x = np.linspace(-5, 5, 1001)
    np.testing.assert_allclose(loop(name)(x), reference(x), rtol=1e-13, atol=1e-300)


def test_float64_powers():
    x, w = np.abs(np.random.default_rng(0).standard_normal((2, 1000)))
    np.testing.assert_allclose(loop("pow", 2)(x, w), np.power(x, w), rtol=1e-14)
