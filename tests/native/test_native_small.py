"""Kernels for small arrays give the bits of the references, and take only what they should."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from loops_common import over_threads
from weft.core import selection
from weft.core.dispatch import REGISTRY
from weft.native.codegen import jit
from weft.native.loops import batchnorm, indexing, losses, normalize, scans, softmax

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason="no compiler here")
SPECIAL = np.array([0.0, -0.0, 1.0, np.nan, np.inf, -np.inf], np.float32)


@pytest.fixture(autouse=True)
def loaded() -> Iterator[None]:
    """Native code at hand; NumPy's warnings about special values off."""
    assert selection.ready()
    with np.errstate(all="ignore"):
        yield


def values(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Mostly normal numbers; now and then special ones, or all alike."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.choice(SPECIAL, shape)
    if kind == 1:
        return rng.choice(SPECIAL[:2], shape)
    if kind == 2:
        return np.full(shape, 3, np.float32)
    return rng.standard_normal(shape).astype(np.float32)


def same(found: Any, wanted: Any) -> bool:
    """Whether arrays are equal in every bit, but for what kind of NaN they hold."""
    if wanted is None or found is None:
        return wanted is found
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return False
    bits = np.dtype(f"u{found.itemsize}")
    alike = found.view(bits) == wanted.view(bits)
    return bool((alike | (np.isnan(found) & np.isnan(wanted))).all())


def all_same(found: Any, wanted: Any) -> bool:
    return len(found) == len(wanted) and all(map(same, found, wanted))


def by_reference(rule: Any, *args: Any, **attrs: Any) -> Any:
    """What a derivative rule gives where there is no native code."""
    selection.enable(False)
    try:
        return rule(*args, **attrs)
    finally:
        selection.enable(True)


@pytest.mark.parametrize("weighted", [False, True])
def test_layer_norm(weighted: bool) -> None:
    rng, op, taken = np.random.default_rng(0), REGISTRY["native_layer_norm"], 0
    for _ in range(400):
        rows, n = int(rng.integers(1, 12)), int(rng.integers(1, 40))
        if rows * n >= 64:
            continue
        shape = [(rows, n), (rows, 1, n), (n,)][rng.integers(3)]
        x, weight, bias = values(rng, *shape), None, None
        if weighted:
            weight, bias = values(rng, n), values(rng, n)
        found = normalize.layer_norm_small(x, weight, bias, 1, 1e-5)
        wanted = op.reference(x, weight, bias, 1, 1e-5)
        assert found is not None and all_same(found, wanted)
        g = (values(rng, *shape), values(rng, *wanted[1].shape), values(rng, *wanted[1].shape))
        needs = tuple(map(bool, rng.integers(2, size=3)))
        given = (g, x, weight, *wanted[1:], needs, 1)
        back = normalize.layer_norm_small_back(*given)
        assert back is not None
        assert all_same(back, by_reference(op.joint, *given))
        taken += 1
    assert taken > 100


@pytest.mark.parametrize("weighted", [False, True])
def test_batch_norm(weighted: bool) -> None:
    rng, op, taken = np.random.default_rng(1), REGISTRY["native_batch_norm"], 0
    for _ in range(300):
        n, c = (int(k) for k in rng.integers(2, 40, 2))
        if n * c >= 512:
            continue
        x, weight, bias = values(rng, n, c), None, None
        if weighted:
            weight, bias = values(rng, c), values(rng, c)
        found = batchnorm.batch_norm_small(x, weight, bias, 1e-3)
        wanted = op.reference(x, weight, bias, 1e-3)
        assert found is not None and all_same(found, wanted)
        needs = tuple(map(bool, rng.integers(2, size=3)))
        given = ((values(rng, n, c), values(rng, c), values(rng, c)), x, weight, *wanted[1:])
        back = batchnorm.batch_norm_small_back(*given, needs, 1e-3)
        assert back is not None
        assert all_same(back, by_reference(op.joint, *given, needs, 1e-3))
        taken += 1
    assert taken > 100


def small_shapes(rng: np.random.Generator, count: int) -> Iterator[tuple[int, ...]]:
    """Shapes of up to three dimensions with less than 64 elements."""
    for k in range(count):
        if k % 3:
            shape = tuple(int(n) for n in rng.integers(1, 8, rng.integers(1, 4)))
        else:
            shape = (int(rng.integers(1, 64)),)
        if np.prod(shape) < 64:
            yield shape


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str) -> None:
    rng, op, kernel = np.random.default_rng(3), REGISTRY[name], getattr(softmax, f"{name}_small")
    for shape in small_shapes(rng, 1500):
        x = values(rng, *shape)
        found = kernel(x, x.ndim - 1)
        assert found is not None
        assert same(found, op.reference(x, dim=x.ndim - 1))
        if x.ndim > 1:
            assert kernel(x, 0) is None
        assert kernel(x.astype(np.float64), x.ndim - 1) is None


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [0, 1, 2.5, 100])
def test_variances(name: str, correction: float) -> None:
    rng, op, kernel = np.random.default_rng(4), REGISTRY[name], getattr(scans, f"{name}_small")
    for shape in small_shapes(rng, 600):
        x = values(rng, *shape) * np.float32(10.0 ** rng.integers(-3, 4))
        for dim in (tuple(range(x.ndim)), (x.ndim - 1,)):
            attrs = {"dim": dim, "keepdim": False, "correction": correction}
            found = kernel(x, **attrs)
            assert found is not None
            assert same(found, op.reference(x, **attrs))
        assert kernel(x, dim, True, correction) is None


@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(reverse: bool) -> None:
    rng, op = np.random.default_rng(5), REGISTRY["cumsum"]
    for shape in (*small_shapes(rng, 600), (4, 200)):
        x = values(rng, *shape)
        attrs = {"dim": x.ndim - 1, "reverse": reverse}
        found = scans.cumsum(x, **attrs)
        assert found is not None
        assert same(found, op.reference(x, **attrs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_along_any_dimension(reverse: bool, dtype: type) -> None:
    op = REGISTRY["cumsum"]
    for shape in ((6000,), (3, 2000), (2000, 3), (4, 70, 300), (1, 5000), (5000, 1), (2, 3, 1, 5)):
        x = np.random.default_rng(7).standard_normal(shape).astype(dtype)
        x.reshape(-1)[::29] = -0.0
        x.reshape(-1)[0] = -0.0
        for special in (None, np.inf, np.nan):
            if special is not None:
                x.reshape(-1)[x.size // 2] = special
            for dim in range(x.ndim):
                found = over_threads(lambda x=x, dim=dim: scans.cumsum(x, dim, reverse))
                assert same(found, np.ascontiguousarray(op.reference(x, dim, reverse)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["cumprod", "cummax", "cummin"])
def test_running_products_and_extremes(name: str, dtype: type) -> None:
    op, kernel, rng = REGISTRY[name], getattr(scans, name), np.random.default_rng(8)
    shapes = (*small_shapes(rng, 200), (6000,), (3, 2000), (2000, 3), (4, 70, 300), (2, 3, 1, 5))
    for shape in shapes:
        for many in (False, True):  # many equal elements, zeros of both signs among them
            x = values(rng, *shape).astype(dtype)
            x = np.rint(2 * x) * dtype(0.5) if many else x
            for dim in range(x.ndim):
                found = over_threads(lambda x=x, dim=dim: kernel(x, dim))
                wanted = op.reference(x, dim)
                if name == "cumprod":
                    found, wanted = (found,), (wanted,)
                assert all_same(found, wanted), (shape, dim)
    assert kernel(x.T, 0) is None and kernel(x[:0], 0) is None
    assert kernel(x.astype(np.int64), 0) is None


def test_running_sums_that_are_left_to_numpy() -> None:
    x = np.ones((30, 40), np.float32)
    assert scans.cumsum(x.T, 0, False) is None and scans.cumsum(x[:, ::2], 1, False) is None
    assert (
        scans.cumsum(x[:0], 0, False) is None and scans.cumsum(x.astype(np.int64), 0, False) is None
    )


@pytest.mark.parametrize("largest", [False, True])
def test_the_greatest_few(largest: bool) -> None:
    rng, op, taken = np.random.default_rng(6), REGISTRY["topk"], 0
    for shape in (*small_shapes(rng, 1500), (3, 100)):
        x = values(rng, *shape)
        k = int(rng.integers(0, x.shape[-1] + 1))
        attrs = {"k": k, "dim": x.ndim - 1, "largest": largest, "sorted": True}
        found, wanted = scans.topk(x, **attrs), op.reference(x, **attrs)
        if found is None:  # of few among many NumPy chooses, of equal ones the reference
            rows = x.reshape(-1, x.shape[-1])
            tied = any(np.unique(row).size < row.size for row in rows)
            assert tied or k * 8 <= x.shape[-1]
            continue
        taken += 1
        assert same(found[0], wanted[0])
        np.testing.assert_array_equal(found[1], wanted[1])
        assert found[1].dtype == np.int64
    assert taken > 500
    assert scans.topk(np.ones((4, 4), np.float32).T, 2, 1, largest, True) is None


def test_a_single_column_is_left_to_numpy() -> None:
    column = np.ones((9, 1), np.float32)
    assert batchnorm.batch_norm_small(column, None, None, 1e-5) is None
    assert batchnorm.batch_norm_small(np.ones((3, 2, 2), np.float32), None, None, 1e-5) is None


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_class_losses(reduction: str) -> None:
    rng, attrs = np.random.default_rng(2), {"reduction": reduction, "ignore_index": -100}
    forward, backward = REGISTRY["nll_loss"], REGISTRY["nll_loss_backward"]
    for _ in range(300):
        rows, classes = (int(k) for k in rng.integers(1, 8, 2))
        x, target = values(rng, rows, classes), rng.integers(0, classes, rows)
        found = losses.nll_loss_small(x, target, None, **attrs)
        assert same(found, forward.reference(x, target, None, **attrs))
        g, shape = values(rng), x.shape
        found = losses.nll_loss_small_back(g, target, None, shape, **attrs)
        assert same(found, backward.reference(g, target, None, shape, **attrs))


def test_class_losses_that_are_left_to_the_reference() -> None:
    x, target = np.ones((3, 4), np.float32), np.array([0, 3, 1])
    run = losses.nll_loss_small
    assert run(x, target, None, "mean", -100) is not None
    assert run(x, np.array([0, 4, 1]), None, "mean", -100) is None  # no such class
    assert run(x, np.array([0, -100, 1]), None, "mean", -100) is None
    assert run(x, target, None, "mean", 3) is None  # one that is ignored
    assert run(x, target, None, "none", -100) is None
    assert run(x, target, np.ones(4, np.float32), "mean", -100) is None
    assert run(x, target[:2], None, "mean", -100) is None


def test_rows_added_by_index() -> None:
    rng, op, taken = np.random.default_rng(3), REGISTRY["index_add"], 0
    back = REGISTRY["index_backward"]
    for _ in range(600):
        n, inner, count = (int(k) for k in rng.integers(1, 10, 3))
        shape = [(n, inner), (n, 1, inner), (n,)][rng.integers(3)]
        index = rng.integers(-n, n, count)
        x, source = values(rng, *shape), values(rng, count, *shape[1:])
        inside = index % n
        found = indexing.index_add_small(x, source, inside, 0, 1)
        assert found is None or same(found, op.reference(x, source, inside, dim=0, alpha=1))
        taken += found is not None
        found = indexing.index_back_small(source, index, shape=shape, where=(0,))
        wanted = back.reference(source, index, shape=shape, where=(0,))
        assert found is None or same(found, wanted)
    assert taken > 550


def test_elements_added_by_index() -> None:
    rng, op, back = np.random.default_rng(4), REGISTRY["scatter_add"], REGISTRY["gather_backward"]
    for _ in range(300):
        rows, n, count = (int(k) for k in rng.integers(1, 8, 3))
        x, source = values(rng, rows, n), values(rng, rows, count)
        index = rng.integers(0, n, (rows, count))
        found = indexing.scatter_add_small(x, source, index, 1)
        assert same(found, op.reference(x, source, index, dim=1))
        found = indexing.gather_back_small(source, index, (rows, n), 1)
        assert same(found, back.reference(source, index, shape=(rows, n), dim=1))


def test_what_has_another_shape_is_refused() -> None:
    f = lambda *shape: np.ones(shape, np.float32)
    few = np.array([0, 1])
    assert indexing.index_add_small(f(4, 3), f(2, 3), few, 0, 1) is not None
    for source in (f(3, 3), f(2, 4), f(2, 3, 1), f(6), f(2, 6)[:, ::2], f(2, 3).astype(float)):
        assert indexing.index_add_small(f(4, 3), source, few, 0, 1) is None
    for bad in (np.array([0, 4]), np.array([0, -1])):
        assert indexing.index_add_small(f(4, 3), f(2, 3), bad, 0, 1) is None
    assert indexing.index_add_small(f(4, 3), f(2, 3), few, 0, 2) is None
    assert indexing.index_add_small(f(4, 3), f(70, 3), np.zeros(70, int), 0, 1) is None

    places = np.zeros((4, 2), int)
    assert indexing.scatter_add_small(f(4, 3), f(4, 2), places, 1) is not None
    for source in (f(4, 3), f(3, 2), f(8)):
        assert indexing.scatter_add_small(f(4, 3), source, places, 1) is None
    assert indexing.scatter_add_small(f(4, 3), f(4, 2), places + 3, 1) is None

    x, one = f(3, 4), f(3, 1)
    back = normalize.layer_norm_small_back
    assert back((x, one, one), x, None, one, one, (1, 1, 1), 1) is not None
    for wrong in (f(1, 1), f(3, 4), f(3), f(4, 1)):
        assert back((x, wrong, one), x, None, one, one, (1, 1, 1), 1) is None
    assert back((x, one, one), x, f(3), one, one, (1, 1, 1), 1) is None


def steps() -> list[bytes]:
    """Forward and backward of ops with small kernels, and the gradients of their inputs."""
    weft.manual_seed(0)
    found = []
    x = weft.randn(4, 5, requires_grad=True)
    weight, bias = weft.randn(5, requires_grad=True), weft.randn(5, requires_grad=True)
    mean, var = weft.zeros(5), weft.ones(5)
    few, target = weft.tensor([0, 2, 2]), weft.tensor([0, 4, 2, 2])
    f = weft.nn.functional
    for y in (
        f.layer_norm(x, (5,), weight, bias),
        f.layer_norm(x, (5,)),
        f.batch_norm(x, mean, var, weight, bias, True),
        f.nll_loss(x, target),
        x.index_select(0, few),
        x[few],
        x.gather(1, target.reshape(4, 1)),
    ):
        (y * y).sum().backward()
        found.append(y.detach().numpy().tobytes())
        found += [t.grad.numpy().tobytes() for t in (x, weight, bias) if t.grad is not None]
    return found


def test_training_has_the_bits_of_numpy() -> None:
    ours = steps()
    assert ours == by_reference(steps)


def test_errors_are_those_of_the_reference() -> None:
    x = weft.randn(4, 5, requires_grad=True)
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        weft.nn.functional.nll_loss(x, weft.tensor([0, 1, 7, 2]))
    with pytest.raises((IndexError, RuntimeError), match="out of"):
        weft.zeros(3, 2).index_add(0, weft.tensor([0, 5]), weft.ones(2, 2))


def test_few_small_ops_load_no_compiler() -> None:
    code = (
        "import sys, weft\n"
        "x = weft.ones(4, 5, requires_grad=True)\n"
        "weft.nn.functional.layer_norm(x, (5,)).sum().backward()\n"
        "x.index_select(0, weft.tensor([0, 0])).sum().backward()\n"
        "assert not weft.core.selection._begun\n"
        "weft.nn.functional.layer_norm(weft.ones(16, 8), (8,))\n"
        "assert weft.core.selection._begun\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_running_statistics_that_are_changed_in_place() -> None:
    f = weft.nn.functional
    x = weft.tensor([[1.0, 2.0], [3.0, 6.0]])
    for make in (lambda: weft.zeros(2), lambda: weft.zeros(2, 2)[:, 0], lambda: weft.zeros(3)[1:]):
        mean, var = make(), weft.ones(2)
        f.batch_norm(x, mean, var, training=True, momentum=0.5)
        assert mean.tolist() == [1.0, 2.0] and var.tolist() == [1.5, 4.5]
        assert mean._version == var._version == 1
    wide = weft.zeros(2, dtype=weft.float64)
    f.batch_norm(x.double(), wide, None, training=True, momentum=0.5)
    assert wide.tolist() == [1.0, 2.0]
    leaf = weft.zeros(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        f.batch_norm(x, leaf, None, training=True)
    locked = weft.zeros(2)
    locked._a.flags.writeable = False
    with pytest.raises((RuntimeError, ValueError)):
        f.batch_norm(x, locked, None, training=True)
    saved = weft.zeros(2)
    product = saved * weft.ones(2, requires_grad=True)
    f.batch_norm(x, saved, None, training=True)
    with pytest.raises(RuntimeError, match="running_step_"):
        product.sum().backward()
