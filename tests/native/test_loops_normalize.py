"""Layer norm and RMS norm kernels against float64."""

import itertools

import numpy as np
import pytest

from weft.native import threads
from weft.native.codegen import jit
from weft.native.loops import normalize as loops
from weft.operators.normalization import layer_norm_op, rms_norm_op

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

CASES = [((5,), 1), ((3, 7), 1), ((40, 768), 1), ((2000, 33), 1), ((2, 3, 4, 5), 2)]
CASES += [((4, 5, 1), 1), ((1, 3000), 1), ((6, 10, 9), 3), ((3, 70, 31), 1)]
LOOSE = {np.float32: 2e-6, np.float64: 2e-14}
EPS = 1e-5


@pytest.fixture(autouse=True)
def restore():
    before = threads.count()
    with np.errstate(all="ignore"):
        yield
    threads.set_count(before)


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def turned(x):
    """The same values in another layout."""
    return x if x is None else np.asfortranarray(np.repeat(x, 2, -1))[..., ::2]


def wide(x):
    return x if x is None else x.astype(np.float64)


def parts_of(shape, rank, dtype):
    last = shape[len(shape) - rank :]
    weight, bias = numbers(last, dtype, 1) + 1, numbers(last, dtype, 2)
    return [(weight, bias), (weight, None), (None, bias), (None, None)]


def close(got, exact, dtype, size=1.0):
    assert got.dtype == dtype and got.shape == exact.shape
    scale = np.maximum(np.abs(exact), 1.0) * size
    assert (np.abs(got - exact) <= LOOSE[dtype] * scale).all(), np.abs(got - exact).max()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm(dtype):
    for shape, rank in CASES:
        x = numbers(shape, dtype) * 3 + 2
        for weight, bias in parts_of(shape, rank, dtype):
            exact = layer_norm_op.reference(wide(x), wide(weight), wide(bias), rank, EPS)
            for change in (lambda a: a, turned):
                got = loops.layer_norm(change(x), change(weight), change(bias), rank, EPS)
                for a, b in zip(got, exact, strict=True):
                    close(a, b, dtype, 5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rms_norm(dtype):
    for shape, rank in CASES:
        x = numbers(shape, dtype) * 3 + 2
        for weight in (parts_of(shape, rank, dtype)[0][0], None):
            exact = rms_norm_op.reference(wide(x), wide(weight), rank, EPS)
            got = loops.rms_norm(turned(x), turned(weight), rank, EPS)
            for a, b in zip(got, exact, strict=True):
                close(a, b, dtype, 5)


def unbroadcast(g, shape):
    return g if g is None else g.reshape(-1, *shape).sum(0)


@pytest.mark.parametrize("with_statistics", ["none", "zeros", "some"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_layer_norm_back(dtype, with_statistics):
    for (shape, rank), needs in itertools.product(CASES, itertools.product([0, 1], repeat=3)):
        x, gy = numbers(shape, dtype) * 3 + 2, numbers(shape, dtype, 3)
        last = shape[len(shape) - rank :]
        for weight in (numbers(last, dtype, 1), None):
            _, mean, rstd = layer_norm_op.reference(x, weight, None, rank, EPS)
            given = {"none": (None, None), "zeros": (mean * 0, rstd * 0)}.get(
                with_statistics, (numbers(mean.shape, dtype, 5), numbers(rstd.shape, dtype, 6))
            )
            full = tuple(np.zeros_like(mean) if s is None else s for s in given)
            g = tuple(wide(a) for a in (gy, *full))
            exact = layer_norm_op.joint(
                g, wide(x), wide(weight), wide(mean), wide(rstd), needs, rank
            )
            if weight is None and needs[1]:
                continue  # no weight, no gradient
            got = loops.layer_norm_back(
                (turned(gy), *given), turned(x), turned(weight), mean, rstd, needs, rank
            )
            shapes = (shape, last, last)
            for k in range(3):
                if not needs[k]:
                    assert got[k] is None
                    continue
                want = exact[k] if k == 0 else unbroadcast(exact[k], last)
                rows = x.size // max(1, np.prod(last))
                assert got[k].shape == shapes[k]
                close(got[k], want, dtype, 10 * (max(1.0, rstd.max()) if k == 0 else rows**0.5))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rms_norm_back(dtype):
    for (shape, rank), needs in itertools.product(CASES, itertools.product([0, 1], repeat=2)):
        x, gy = numbers(shape, dtype) * 3 + 2, numbers(shape, dtype, 3)
        last = shape[len(shape) - rank :]
        weight = numbers(last, dtype, 1)
        _, rstd = rms_norm_op.reference(x, weight, rank, EPS)
        g_rstd = numbers(rstd.shape, dtype, 6)
        g = (wide(gy), wide(g_rstd))
        exact = rms_norm_op.joint(g, wide(x), wide(weight), wide(rstd), needs, rank)
        got = loops.rms_norm_back((gy, g_rstd), x, weight, rstd, needs, rank)
        assert len(got) == 2
        rows = x.size // max(1, np.prod(last))
        for k in range(2):
            if not needs[k]:
                assert got[k] is None
                continue
            want = exact[k] if k == 0 else unbroadcast(exact[k], last)
            close(got[k], want, dtype, 10 * (max(1.0, rstd.max()) if k == 0 else rows**0.5))


def test_nan_and_infinity_spoil_their_own_row_only():
    x = numbers((4, 100))
    x[1, 3], x[2, 5] = np.nan, np.inf
    y, mean, rstd = loops.layer_norm(x, None, None, 1, EPS)
    want = layer_norm_op.reference(x, None, None, 1, EPS)
    for got, exact in zip((y, mean, rstd), want, strict=True):
        np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-6)
    assert np.isnan(y[1:3]).all() and np.isfinite(y[[0, 3]]).all()


def test_a_far_mean_leaves_the_variance():
    x = numbers((10, 500)) * np.float32(0.1) + np.float32(1000)
    exact = layer_norm_op.reference(wide(x), None, None, 1, EPS)
    np.testing.assert_allclose(loops.layer_norm(x, None, None, 1, EPS)[2], exact[2], rtol=1e-5)


def test_any_number_of_threads_gives_the_same_bits():
    for shape in ((2000, 33), (40, 768)):
        x, g, weight = numbers(shape), numbers(shape, seed=1), numbers(shape[1:], seed=2)
        results = []
        for count in (1, 2, 3):
            threads.set_count(count)
            y, mean, rstd = loops.layer_norm(x, weight, weight, 1, EPS)
            back = loops.layer_norm_back((g, None, None), x, weight, mean, rstd, (1, 1, 1), 1)
            results.append(b"".join(a.tobytes() for a in (y, mean, rstd, *back)))
        assert results[0] == results[1] == results[2]


def test_what_is_left_to_numpy():
    x = numbers((0, 5))
    assert loops.layer_norm(x, None, None, 1, EPS) is None
    assert loops.layer_norm(numbers((3, 0)), None, None, 1, EPS) is None
    assert loops.layer_norm(numbers((3, 4)), numbers(4, np.float64), None, 1, EPS) is None
    assert loops.rms_norm(numbers((3, 4)).astype(np.float16), None, 1, EPS) is None
