"""Softmax kernels against float64, over shapes, dimensions, layouts, special values and threads."""

import numpy as np
import pytest

from weft.core.dispatch import REGISTRY
from weft.native import threads
from weft.native.codegen import jit
from weft.native.loops import softmax as loops
from weft.operators.reductions import logsumexp_op
from weft.operators.softmax import log_softmax_back_op, log_softmax_op, softmax_back_op, softmax_op

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

SHAPES = [(1,), (7,), (5000,), (3, 10), (64, 1000), (2, 3, 5), (4, 300, 49), (3, 21, 700)]
SHAPES += [(1000, 10), (33, 32), (2, 2000, 3), (1, 5, 1, 4), (5, 1, 9)]
FORWARD = {"softmax": softmax_op, "log_softmax": log_softmax_op}
BACKWARD = {"softmax": softmax_back_op, "log_softmax": log_softmax_back_op}
RELATIVE = {np.float32: 1e-6, np.float64: 1e-14}


@pytest.fixture(autouse=True)
def quiet():
    before = threads.count()
    with np.errstate(all="ignore"):
        yield
    threads.set_count(before)


def numbers(shape, dtype=np.float32, scale=3.0, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def layouts(x):
    """The same values as rows, turned, with gaps, and at odd addresses."""
    yield x
    yield np.asfortranarray(x)
    yield np.repeat(x, 2, -1)[..., ::2]
    odd = np.empty(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    odd[...] = x
    yield odd


def cases():
    return [(s, d) for s in SHAPES for d in range(len(s))]


def wide(x):
    return x.astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORWARD)
def test_forward(name, dtype):
    for shape, dim in cases():
        x = numbers(shape, dtype)
        exact = FORWARD[name].reference(x.astype(np.longdouble), dim)
        for other in layouts(x):
            got = getattr(loops, name)(other, dim)
            assert got.dtype == dtype and got.shape == shape and got.flags.c_contiguous
            far = 1.0 if name == "softmax" else 10.0
            bound = RELATIVE[dtype] * (np.abs(exact) if name == "softmax" else far)
            assert (np.abs(got - exact) <= bound + RELATIVE[dtype] * 1e-3).all(), (shape, dim)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", FORWARD)
def test_backward(name, dtype):
    for shape, dim in cases():
        g, x = numbers(shape, dtype, 1.0, 1), numbers(shape, dtype)
        y = FORWARD[name].reference(x, dim)
        exact = BACKWARD[name].reference(wide(g), wide(y), dim)
        size = np.abs(wide(g)).sum(dim, keepdims=True)
        for g_other, y_other in zip(layouts(g), layouts(y), strict=True):
            got = getattr(loops, f"{name}_back")(g_other, y_other, dim)
            assert got.dtype == dtype and got.shape == shape
            assert (np.abs(got - exact) <= RELATIVE[dtype] * (size + np.abs(wide(g)))).all()


SPECIAL = np.array(
    [
        [1.0, 2.0, np.nan, 3.0, -np.inf],
        [np.inf, 1.0, 2.0, -np.inf, 0.0],
        [-np.inf] * 5,
        [np.inf, np.inf, 1.0, 2.0, 3.0],
        [-np.inf, 1.0, 2.0, 3.0, 4.0],
        [3e38, -3e38, 1.0, 2.0, 3e38],
        [-1e38, -1e38, -1e38, -2e38, -np.inf],
        [-np.nan, np.inf, 1.0, 1.0, 1.0],
    ],
    np.float32,
)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("turned", [False, True])
def test_special_values(turned, dtype):
    x = SPECIAL.astype(dtype)
    x, dim = (np.ascontiguousarray(x.T), 0) if turned else (x, 1)
    for name, op in FORWARD.items():
        got, want = getattr(loops, name)(x, dim), op.reference(x, dim)
        np.testing.assert_allclose(got, want, rtol=1e-6)
    got = loops.logsumexp(x, (dim,), False)
    np.testing.assert_allclose(got, logsumexp_op.reference(x, (dim,), False), rtol=1e-6)


SCORES = [(1, 1), (3, 5), (5, 3), (7, 40), (2, 3, 64, 64), (4, 130, 70), (300, 300)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_scores(causal, dtype):
    forward, backward = (REGISTRY[f"scaled_softmax{end}"] for end in ("", "_backward"))
    for shape in SCORES:
        x, g = numbers(shape, dtype), numbers(shape, dtype, 1.0, 1)
        exact = forward.reference(x.astype(np.longdouble), 0.3, causal)
        for other in layouts(x):
            got = loops.scaled_softmax(other, 0.3, causal)
            assert got.dtype == dtype and got.shape == shape and got.flags.c_contiguous
            assert (np.abs(got - exact) <= RELATIVE[dtype] * (np.abs(exact) + 1e-3)).all(), shape
        y = exact.astype(dtype)
        exact = backward.reference(wide(g), wide(y), 0.3, causal)
        for g_other, y_other in zip(layouts(g), layouts(y), strict=True):
            got = loops.scaled_softmax_back(g_other, y_other, 0.3, causal)
            size = np.abs(wide(g)).sum(-1, keepdims=True) + np.abs(wide(g))
            assert (np.abs(got - exact) <= RELATIVE[dtype] * size).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [0.5, -2.0, 0.0])
def test_special_scores(causal, scale):
    op = REGISTRY["scaled_softmax"]
    with np.errstate(all="ignore"):
        wanted = op.reference(SPECIAL, scale, causal)
    np.testing.assert_allclose(loops.scaled_softmax(SPECIAL, scale, causal), wanted, rtol=1e-6)
    assert loops.scaled_softmax(SPECIAL[:, :0], scale, causal) is None
    # What lies beyond the diagonal has no part in anything, whatever it is.
    y = np.tril(np.full((4, 4), 0.25, np.float32))
    g = np.where(np.tri(4, dtype=bool), np.float32(1), np.float32(np.nan))
    got = loops.scaled_softmax_back(g, y, scale, True)
    np.testing.assert_allclose(
        got, REGISTRY["scaled_softmax_backward"].reference(g, y, scale, True)
    )
    assert np.isfinite(got).all()


def test_shares_sum_to_one_in_long_rows():
    x = numbers((2, 300_000), scale=0.1)
    assert np.abs(wide(loops.softmax(x, 1)).sum(1) - 1).max() < 1e-6
    assert np.abs(wide(loops.softmax(np.ascontiguousarray(x.T), 0)).sum(0) - 1).max() < 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logsumexp(dtype):
    for shape in [(50,), (3, 10), (1000, 9), (64, 1000), (4, 30, 49), (3, 5, 7, 11), (5, 1, 9)]:
        rank = len(shape)
        dims = {(0,), (rank - 1,), tuple(range(rank)), tuple(range(0, rank, 2))}
        for dim in dims:
            x = numbers(shape, dtype)
            exact = logsumexp_op.reference(wide(x), dim, False)
            for other in layouts(x):
                got = loops.logsumexp(other, dim, False)
                assert got.shape == exact.shape and got.dtype == dtype
                assert (np.abs(got - exact) <= RELATIVE[dtype] * 10).all()
                assert loops.logsumexp(other, dim, True).shape == x.sum(dim, keepdims=True).shape


def test_any_number_of_threads_gives_the_same_bits():
    for shape, dim in cases():
        x, g = numbers(shape), numbers(shape, seed=5)
        results = []
        for count in (1, 2, 3):
            threads.set_count(count)
            y = loops.softmax(x, dim)
            results.append(
                b"".join(
                    a.tobytes()
                    for a in (
                        y,
                        loops.log_softmax(x, dim),
                        loops.softmax_back(g, y, dim),
                        loops.log_softmax_back(g, y, dim),
                        loops.logsumexp(x, (dim,), True),
                    )
                )
            )
        assert results[0] == results[1] == results[2]


def test_what_is_left_to_numpy():
    assert loops.softmax(np.float32(1).reshape(()), 0) is None
    assert loops.softmax(numbers((0, 3)), 1) is None
    assert loops.softmax(numbers((2, 3)).astype(np.float16), 1) is None
    assert loops.softmax_back(numbers((3,), np.float64), numbers((3,)), 0) is None
    assert loops.logsumexp(numbers((3, 0)), (0,), False) is None
