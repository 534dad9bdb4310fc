"""Loss kernels against the references in float64."""

import itertools

import numpy as np
import pytest

from weft.core import selection
from weft.native import threads
from weft.native.codegen import jit
from weft.native.loops import losses as loops
from weft.operators.entropy import bce_with_logits_op, nll_loss_back_op, nll_loss_op
from weft.operators.losses import huber_loss_op, mse_loss_op, smooth_l1_loss_op

pytestmark = pytest.mark.skipif(bool(jit.why_not()), reason=str(jit.why_not()))

REDUCTIONS = ("none", "sum", "mean")
LOOSE = {np.float32: 2e-6, np.float64: 1e-14}


@pytest.fixture(autouse=True)
def restore():
    before = threads.count()
    with np.errstate(all="ignore"):
        yield
    threads.set_count(before)


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def wide(x):
    return x if x is None else x.astype(np.float64)


def turned(x):
    """The same values in another layout."""
    return np.asfortranarray(np.repeat(x, 2, -1))[..., ::2] if x is not None and x.ndim else x


def close(got, exact, dtype, size=1.0):
    exact = np.asarray(exact)
    assert got.dtype == dtype and got.shape == exact.shape
    np.testing.assert_allclose(got, exact, rtol=LOOSE[dtype] * size, atol=LOOSE[dtype] * size)


# --- class numbers -----------------------------------------------------------------------

CLASSES = [(5,), (1, 1), (7, 10), (3000, 3), (2, 4, 5), (3, 6, 50, 41), (4, 1, 9)]


def targets(shape, ignored, kind=np.int64, seed=4):
    classes = shape[1] if len(shape) > 1 else shape[0]
    rows = shape[:1] + shape[2:] if len(shape) > 1 else ()
    found = np.random.default_rng(seed).integers(0, classes, rows)
    if ignored is not None:
        found = np.where(np.random.default_rng(1).random(rows) < 0.3, ignored, found)
    return np.asarray(found, kind)


@pytest.mark.parametrize("ignored", [None, -100, 1, 255])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_numbers(dtype, weighted, ignored):
    kinds = (np.int64, np.uint8) if ignored != -100 else (np.int64, np.int32)
    for shape, reduction, kind in itertools.product(CLASSES, REDUCTIONS, kinds):
        x, target = numbers(shape, dtype), targets(shape, ignored, kind)
        classes = shape[1] if len(shape) > 1 else shape[0]
        weight = np.abs(numbers((classes,), dtype, 2)) if weighted else None
        attrs = {"reduction": reduction, "ignore_index": -100 if ignored is None else ignored}
        exact = nll_loss_op.reference(wide(x), target, wide(weight), **attrs)
        for change in (lambda a: a, turned):
            got = loops.nll_loss(change(x), change(target), change(weight), **attrs)
            close(got, exact, dtype, 1 if reduction != "sum" else 1 + target.size**0.5)
        g = numbers(target.shape if reduction == "none" else (), dtype, 7)
        g = np.asarray(g, dtype)
        exact = nll_loss_back_op.reference(wide(g), target, wide(weight), shape, **attrs)
        got = loops.nll_loss_back(turned(g), turned(target), weight, shape, **attrs)
        close(got, exact, dtype)


def test_a_class_out_of_range_is_left_to_the_reference():
    x, attrs = numbers((2000, 4)), {"reduction": "mean", "ignore_index": -100}
    for wrong in (4, -1, 2**40, -(2**40)):
        target = targets((2000, 4), None)
        target[1777] = wrong
        assert loops.nll_loss(x, target, None, **attrs) is None
        g = np.float32(1).reshape(())
        assert loops.nll_loss_back(g, target, None, (2000, 4), **attrs) is None


def test_what_is_ignored_may_be_infinite():
    x = numbers((4, 3))
    x[1] = np.inf
    x[2] = np.nan
    target = np.array([0, -100, -100, 2])
    for reduction in REDUCTIONS:
        got = loops.nll_loss(x, target, None, reduction, -100)
        np.testing.assert_allclose(got, nll_loss_op.reference(x, target, None, reduction, -100))
        assert np.isfinite(got).all()
    none = loops.nll_loss(x, np.full(4, -100), None, "mean", -100)
    assert np.isnan(none)
    assert not loops.nll_loss_back(none * 0 + 1, np.full(4, -100), None, (4, 3), "mean", -100).any()


# --- pairs -------------------------------------------------------------------------------

PAIRS = {"mse_loss": mse_loss_op, "smooth_l1_loss": smooth_l1_loss_op, "huber_loss": huber_loss_op}


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs(dtype, name, reduction):
    op = PAIRS[name]
    for shape, width in itertools.product([(512,), (1031,), (30, 40, 7), (100_003,)], (1.0, 0.3)):
        a, b = numbers(shape, dtype), numbers(shape, dtype, 1)
        a[..., :5] = b[..., :5]  # no difference
        exact = op.reference(wide(a), wide(b), reduction, width)
        got = getattr(loops, name)(turned(a), b, reduction, width)
        close(got, exact, dtype, 1 if reduction != "sum" else a.size**0.5)
        g = np.asarray(numbers(shape if reduction == "none" else (), dtype, 2), dtype)
        for k, letter in enumerate("ab"):
            exact = op.rules[k](wide(g), wide(a), wide(b), reduction, width)
            got = getattr(loops, f"{name}_back_{letter}")(turned(g), a, turned(b), reduction, width)
            close(got, exact, dtype, 2)


def test_a_width_of_zero_is_the_absolute_difference():
    a, b = numbers((700,)), numbers((700,), seed=1)
    got = loops.smooth_l1_loss(a, b, "none", 0.0)
    np.testing.assert_array_equal(got, np.abs(a - b))
    g = np.float32(2).reshape(())
    got = loops.smooth_l1_loss_back_a(g, a, b, "sum", 0.0)
    np.testing.assert_array_equal(got, 2 * np.sign(a - b))


@pytest.mark.parametrize("name", PAIRS)
def test_special_differences(name):
    a = np.zeros(600, np.float32)
    a[:4] = np.nan, np.inf, -np.inf, 3e38
    b = np.zeros_like(a)
    got = getattr(loops, name)(a, b, "none", 1.0)
    np.testing.assert_array_equal(got, PAIRS[name].reference(a, b, "none", 1.0))
    g = np.ones_like(a)
    got = getattr(loops, f"{name}_back_a")(g, a, b, "none", 1.0)
    np.testing.assert_array_equal(got, PAIRS[name].rules[0](g, a, b, "none", 1.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_classes(dtype):
    a, b = numbers((2000, 3), dtype) * 20, np.abs(numbers((2000, 3), dtype, 1)) % 1
    a[0] = np.inf, -np.inf, np.nan
    t = numbers((2000, 3), dtype, 2)
    found = selection.forward(bce_with_logits_op, (turned(a), b), {})
    close(found, bce_with_logits_op.reference(wide(a), wide(b)), dtype)
    exact = bce_with_logits_op.rules[0](wide(t), wide(a), wide(b))
    plan = bce_with_logits_op.plan_for(1, 3, 2, False)
    saved, _ = plan.pack((a, turned(b)), (found,), ([0], [0]), ([0],))
    close(plan.large(t, saved, {}, None)[0], exact, dtype)


def test_any_number_of_threads_gives_the_same_bits():
    a, b = numbers((100_003,)), numbers((100_003,), seed=1)
    x, target = numbers((40_000, 5)), targets((40_000, 5), -100)
    g, results = np.float32(1).reshape(()), []
    for count in (1, 2, 3):
        threads.set_count(count)
        found = (
            loops.mse_loss(a, b, "mean", 0.0),
            loops.mse_loss_back_a(g, a, b, "mean", 0.0),
            loops.nll_loss(x, target, None, "mean", -100),
            loops.nll_loss_back(g, target, None, x.shape, "mean", -100),
        )
        results.append(b"".join(r.tobytes() for r in found))
    assert results[0] == results[1] == results[2]


def test_what_is_left_to_numpy():
    a = numbers((1000,))
    assert loops.mse_loss(a[:5], a[:5], "mean", 0.0) is None
    assert loops.mse_loss(a, a.reshape(10, 100), "mean", 0.0) is None
    assert loops.mse_loss(a, a.astype(np.float64), "mean", 0.0) is None
    assert loops.nll_loss(numbers((0, 3)), np.zeros(0, np.int64), None, "mean", -100) is None
