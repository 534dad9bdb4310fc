"""Native batch norm against formulas in long doubles."""

import numpy as np
import pytest

from loops_common import channels_last, close, layouts, over_threads
from weft.native.codegen import jit
from weft.native.loops import batchnorm

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

# Matrices with few and many rows (also in blocks, the last one smaller), planes small and larger
# than a block, few and many channels.
SHAPES = [
    *((4, 3), (1, 5), (300, 70), (2000, 9), (40, 600), (2501, 70), (5003, 3), (2100, 1)),
    *((2, 3, 4), (1, 9, 5), (8, 16, 7, 7), (3, 2, 100, 100), (40, 17, 20, 21)),
    *((2, 9, 3, 4, 5), (1, 5, 20000), (5, 11, 1, 1)),
]
EPS = 1e-5


@pytest.fixture(autouse=True)
def many_threads(monkeypatch):
    monkeypatch.setattr(batchnorm, "GRAIN", 1)


def along(v, rank):
    return v.reshape(1, -1, *(1,) * (rank - 2))


def wide(*arrays):
    return [None if a is None else a.astype(np.longdouble) for a in arrays]


def statistics(x):
    axes = (0, *range(2, x.ndim))
    return x.mean(axes), x.var(axes)


def make(shape, dtype, seed=0, shift=3.0):
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal(shape) * 2 + shift).astype(dtype)
    w, b = rng.standard_normal((2, shape[1])).astype(dtype)
    return x, w, b


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training(shape, dtype):
    plain, w, b = make(shape, dtype)
    for x in layouts(plain):
        y, mean, var = over_threads(lambda x=x: batchnorm.batch_norm(x, w, b, EPS))
        x64, w64, b64 = wide(x, w, b)
        m64, v64 = statistics(x64)
        size = np.abs(x64).mean((0, *range(2, x.ndim)))
        close(mean, m64, size, 8)
        close(var, v64, v64 + size**2 * 0.1, 16)
        scale = along(np.abs(w64) / np.sqrt(v64 + EPS), x.ndim)
        wanted = (x64 - along(m64, x.ndim)) / np.sqrt(along(v64, x.ndim) + EPS)
        wanted = wanted * along(w64, x.ndim) + along(b64, x.ndim)
        close(y, wanted, scale * (np.abs(x64) + along(size, x.ndim)) + 1, 16)
        last = x.ndim > 2 and x.strides[1] == x.itemsize and not x.flags.c_contiguous
        assert y.strides == (x.strides if last else plain.strides)


def test_without_weight_or_bias():
    x, w, b = make((6, 10, 9, 9), np.float32)
    for weight, bias in ((None, None), (w, None), (None, b)):
        y, mean, var = batchnorm.batch_norm(x, weight, bias, EPS)
        one = np.ones_like(w) if weight is None else weight
        zero = np.zeros_like(b) if bias is None else bias
        full = batchnorm.batch_norm(x, one, zero, EPS)
        assert (y == full[0]).all() and (mean == full[1]).all() and (var == full[2]).all()


@pytest.mark.parametrize("last", [False, True])
def test_large_mean_keeps_the_variance(last):
    # Sums of squares would lose all digits here.
    x, w, b = make((16, 12, 30, 30), np.float32, shift=3000.0)
    x = channels_last(x) if last else x
    _, mean, var = batchnorm.batch_norm(x, w, b, EPS)
    m64, v64 = statistics(x.astype(np.longdouble))
    assert np.abs(mean / m64 - 1).max() < 3e-7
    assert np.abs(var / v64 - 1).max() < 1e-6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", [(40, 5), (4, 3, 50, 50)], ids=str)
def test_values_that_are_no_numbers(value, shape):
    x, w, b = make(shape, np.float32)
    x[0, 1] = value
    with np.errstate(invalid="ignore"):
        m64, _ = statistics(x.astype(np.longdouble))
    y, mean, var = batchnorm.batch_norm(x, w, b, EPS)
    assert np.isnan(y[:, 1]).all() and np.isfinite(np.delete(y, 1, 1)).all()
    assert np.array_equal(mean[1], m64[1].astype(np.float32), equal_nan=True)
    assert np.isnan(var[1]) and np.isfinite(np.delete(var, 1)).all()


def back64(gy, g_mean, g_var, x, w, mean, var):
    gy, g_mean, g_var, x, w, mean, var = wide(gy, g_mean, g_var, x, w, mean, var)
    axes, count = (0, *range(2, x.ndim)), x.size // x.shape[1]
    rstd = 1 / np.sqrt(var + EPS)
    centred = x - along(mean, x.ndim)
    products = (gy * centred).sum(axes)
    total = gy.sum(axes)
    gx = gy * along(w * rstd, x.ndim)
    gx += along((g_mean - w * rstd * total) / count, x.ndim)
    gx += centred * along((2 * g_var - w * rstd**3 * products) / count, x.ndim)
    return gx, products * rstd, total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_training_backward(shape, dtype):
    plain, w, b = make(shape, dtype)
    rng = np.random.default_rng(1)
    g = rng.standard_normal(shape).astype(dtype)
    g_mean, g_var = rng.standard_normal((2, shape[1])).astype(dtype)
    _, mean, var = batchnorm.batch_norm(plain, w, b, EPS)
    wanted = back64(g, g_mean, g_var, plain, w, mean, var)
    axes = (0, *range(2, plain.ndim))
    rstd = 1 / np.sqrt(var.astype(np.longdouble) + EPS)
    weights = np.abs(g.astype(np.longdouble) * (plain - along(mean, plain.ndim))).sum(axes) * rstd
    totals = np.abs(g).sum(axes, dtype=np.longdouble)
    for x, gy in zip(layouts(plain), reversed(list(layouts(g))), strict=True):
        gx, gw, gb = over_threads(
            lambda x=x, gy=gy: batchnorm.batch_norm_back(
                (gy, g_mean, g_var), x, w, mean, var, (True,) * 3, EPS
            )
        )
        close(gw, wanted[1], weights, 12)
        close(gb, wanted[2], totals, 12)
        close(gx, wanted[0], np.abs(wanted[0]) + np.abs(w).max() * rstd.max() * 4, 32)


def test_backward_gives_what_is_needed():
    x, w, _ = make((4, 10, 6, 6), np.float32)
    g = np.ones_like(x)
    zero = np.zeros_like(w)
    for last in (False, True):
        a = channels_last(x) if last else x
        _, mean, var = batchnorm.batch_norm(a, w, None, EPS)
        full = batchnorm.batch_norm_back((g, zero, zero), a, w, mean, var, (True,) * 3, EPS)
        for needs in ((True, False, False), (False, True, True), (False, False, True)):
            part = batchnorm.batch_norm_back((g, None, None), a, w, mean, var, needs, EPS)
            for need, p, f in zip(needs, part, full, strict=True):
                assert (p is not None) == need
                assert p is None or (p == f).all()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_fixed_statistics(shape):
    plain, w, b = make(shape, np.float32)
    rng = np.random.default_rng(2)
    g = rng.standard_normal(shape).astype(np.float32)
    mean, var = rng.random((2, shape[1])).astype(np.float32)
    x64, g64, w64, b64, m64, v64 = wide(plain, g, w, b, mean, var)
    rstd = 1 / np.sqrt(v64 + EPS)
    centred, axes = x64 - along(m64, plain.ndim), (0, *range(2, plain.ndim))
    wanted = centred * along(rstd * w64, plain.ndim) + along(b64, plain.ndim)
    products, total = (g64 * centred).sum(axes), g64.sum(axes)
    back = (
        g64 * along(rstd * w64, plain.ndim),
        products * rstd,
        total,
        total * -rstd * w64,
        products * w64 * rstd**3 * -0.5,
    )
    weights, totals = np.abs(g64 * centred).sum(axes), np.abs(g64).sum(axes)
    big = np.abs(w64).max() + 1
    scales = (
        np.abs(back[0]),
        weights * rstd,
        totals,
        totals * rstd * big,
        weights * rstd**3 * big,
    )
    for x, gy in zip(layouts(plain), layouts(g), strict=True):
        y = over_threads(lambda x=x: batchnorm.batch_norm_fixed(x, w, b, mean, var, EPS))
        close(y, wanted, np.abs(centred) * along(np.abs(w64) * rstd, x.ndim) + 1, 8)
        found = over_threads(
            lambda x=x, gy=gy: batchnorm.batch_norm_fixed_back(
                gy, x, w, mean, var, (True,) * 5, EPS
            )
        )
        for a, b_, scale in zip(found, back, scales, strict=True):
            close(a, b_, scale + 1e-30, 16)


def test_what_is_not_taken():
    x, w, b = make((4, 3, 5), np.float32)
    assert batchnorm.batch_norm(x.astype(np.float16), w, b, EPS) is None
    assert batchnorm.batch_norm(x, w.astype(np.float64), b, EPS) is None
    assert batchnorm.batch_norm(x[:0], w, b, EPS) is None
    assert batchnorm.batch_norm(x[0, 0], w, b, EPS) is None
