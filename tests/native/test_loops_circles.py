"""Sine and cosine of arrays against float64."""

import numpy as np
import pytest

from weft.native import contract, threads
from weft.native.codegen import jit
from weft.native.loops import circles

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))


def numbers(count=10_007, scale=100.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(count) * scale).astype(np.float32)


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 20_000.0])
def test_values_and_slopes(name, scale):
    x, t = numbers(scale=scale), numbers(seed=1, scale=1.0)
    wide = x.astype(np.float64)
    exact = getattr(np, name)(wide)
    slope = np.cos(wide) if name == "sin" else -np.sin(wide)
    for other in (x, x[::-1], np.repeat(x, 2)[::2]):
        order = slice(None, None, -1) if other.strides[0] < 0 else slice(None)
        got = getattr(circles, name)(other)[order]
        assert (np.abs(got - exact) <= 1.7 * np.spacing(np.abs(exact).astype(np.float32))).all()
    got, exact = getattr(circles, f"{name}_back")(t, x), t * slope
    assert (np.abs(got - exact) <= 2.5 * np.spacing(np.abs(exact).astype(np.float32))).all()


@pytest.mark.parametrize("name", ["sin", "cos"])
@pytest.mark.parametrize("wrong", [1.1e5, -1e30, np.inf, -np.inf])
def test_far_arguments_are_left_to_numpy(name, wrong):
    x = numbers()
    x[-1] = wrong
    assert getattr(circles, name)(x) is None
    assert getattr(circles, f"{name}_back")(x, x) is None
    x[-1] = np.nan
    assert np.isnan(getattr(circles, name)(x)[-1])


def test_threads_and_types():
    x = numbers(200_000).reshape(100, 2000)
    before = threads.count()
    results = []
    for count in (1, 3):
        threads.set_count(count)
        results.append(circles.sin(x).tobytes())
    threads.set_count(before)
    assert results[0] == results[1]
    assert circles.sin(x.astype(np.float64)) is None
    assert circles.sin(x[:1, :5]) is None
    assert circles.sin_back(x[0], x) is None
    assert circles.sin(np.broadcast_to(np.float32(1), (1 << 20, 1 << 20))) is None


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_plans_in_double_precision(name):
    """At any size and of any argument: there the functions are those of the C library."""
    x = np.array(
        [0.0, -0.0, 1.5, -3e5, 1e30, np.nan, np.inf, -np.inf] + [0.1 * i for i in range(99)]
    )
    t = np.cos(np.arange(x.size))
    with np.errstate(all="ignore"):
        values = getattr(np, name)(x)
        slopes = np.cos(x) if name == "sin" else -np.sin(x)
        for job, given, exact in (
            (contract.plan(getattr(circles, name), (x,)), (x,), values),
            (contract.plan(getattr(circles, f"{name}_back"), (t, x)), (t, x), t * slopes),
        ):
            found = job(*given)
            np.testing.assert_allclose(found, exact, rtol=4e-16, atol=1e-300)
            np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(exact[:2]))
