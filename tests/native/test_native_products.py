"""Products in packed panels, and the switches of the native side."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import doctor
from weft.backends import native
from weft.native import contract, threads
from weft.native.codegen import jit
from weft.native.gemm import packed, products
from weft.native.memory import buffers

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

# The error of a sum in another order, against the sum of absolute products in float64.
ACCURACY = 4 * 2.0**-23


def laid(rng: np.random.Generator, rows: int, columns: int, how: int) -> np.ndarray:
    """A matrix by rows, by columns, as part of a larger one, backwards, or off its alignment."""
    x = rng.standard_normal((rows, columns)).astype("f4")
    if how == 1:
        return np.asfortranarray(x)
    if how == 2:
        wide = np.zeros((rows, columns * 2 + 3), "f4")
        wide[:, 1 : 1 + 2 * columns : 2] = x
        return wide[:, 1 : 1 + 2 * columns : 2]
    if how == 3:
        return x[::-1, ::-1]
    if how == 4:
        raw = np.zeros(x.nbytes + 4, np.uint8)[4:].view("f4").reshape(x.shape)
        raw[...] = x
        return raw
    return x


@settings(max_examples=80, deadline=None)
@given(
    *(st.integers(1, 150) for _ in range(3)),
    st.integers(0, 4),
    st.integers(0, 4),
    st.booleans(),
    st.integers(1, 4),
)
def test_packed_products(m: int, k: int, n: int, a: int, b: int, add: bool, count: int) -> None:
    rng = np.random.default_rng(m * 1000 + k + n)
    left, right = laid(rng, m, k, a), laid(rng, k, n, b)
    out = rng.standard_normal((m, n + 5)).astype("f4")[:, :n]
    want = left.astype("f8") @ right + (out if add else 0)
    bound = np.abs(left).astype("f8") @ np.abs(right) + np.abs(out)
    before = threads.count()
    try:
        threads.set_count(count)
        packed.matmul(left, right, out, add)
    finally:
        threads.set_count(before)
    assert (np.abs(out - want) <= ACCURACY * bound).all()


def test_packed_products_longer_than_a_stretch() -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((70, 1000)).astype("f4"),
        rng.standard_normal((1000, 33)).astype("f4"),
    )
    out = packed.matmul(a, b, np.full((70, 33), np.nan, "f4"))
    assert np.allclose(out, a.astype("f8") @ b, rtol=0, atol=2e-4)


def on_threads(count: int, work: Callable[[], np.ndarray]) -> np.ndarray:
    before = threads.count()
    try:
        threads.set_count(count)
        return work()
    finally:
        threads.set_count(before)


# Tall and wide ones, with rests in every dimension, shorter and longer than a stretch.
SIZES = [(1, 1, 1), (7, 9, 17), (131, 33, 40), (300, 321, 65), (65, 700, 300), (1030, 257, 530)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("b", range(5))
@pytest.mark.parametrize("a", range(5))
def test_bits_do_not_depend_on_the_threads(a: int, b: int, sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(m)
    left, right = laid(rng, m, k, a), laid(rng, k, n, b)
    bias = rng.standard_normal(n).astype("f4")

    def work() -> np.ndarray:
        return packed.matmul(left, right, np.full((m, n), np.nan, "f4"), bias=bias)

    alone = on_threads(1, work)
    for count in (2, 3):
        assert np.array_equal(on_threads(count, work), alone)
    want = left.astype("f8") @ right + bias
    bound = np.abs(left).astype("f8") @ np.abs(right) + np.abs(bias)
    assert (np.abs(alone - want) <= ACCURACY * bound).all()


STACKS = [((3,), (3,)), ((2, 1), (3,)), ((), (4,)), ((5,), ()), ((2, 3), (2, 3)), ((1,), (2, 1))]


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(STACKS),
    *(st.integers(1, 300) for _ in range(3)),
    *(st.integers(0, 3) for _ in range(2)),
)
def test_packed_stacks(
    stacks: tuple[tuple[int, ...], tuple[int, ...]], m: int, k: int, n: int, a: int, b: int
) -> None:
    rng = np.random.default_rng(m + k + n)

    def stack(shape: tuple[int, ...], rows: int, columns: int, how: int) -> np.ndarray:
        if how == 3:  # as the heads of attention lie
            return rng.standard_normal((*shape[:-1], rows, *shape[-1:], columns), "f4").swapaxes(
                -2, -3 if shape else -2
            )
        made = [laid(rng, rows, columns, how) for _ in range(int(np.prod(shape)))]
        return np.stack(made).reshape(*shape, rows, columns)

    left, right = stack(stacks[0], m, k, a), stack(stacks[1], k, n, b)
    left = left.swapaxes(-1, -2).copy().swapaxes(-1, -2) if a == 1 else left
    right = right.swapaxes(-1, -2).copy().swapaxes(-1, -2) if b == 1 else right
    want = np.matmul(left.astype("f8"), right)
    bound = np.matmul(np.abs(left).astype("f8"), np.abs(right))
    both = [
        on_threads(count, lambda: packed.stacked(left, right, np.full(want.shape, np.nan, "f4")))
        for count in (1, 2)
    ]
    assert np.array_equal(*both)
    assert (np.abs(both[0] - want) <= ACCURACY * bound).all()


def test_nothing_to_sum_over() -> None:
    a, b, bias = np.ones((3, 0), "f4"), np.ones((0, 4), "f4"), np.arange(4, dtype="f4")
    out = np.full((3, 4), 2, "f4")
    assert (packed.matmul(a, b, out, add=True) == 2).all()
    assert (packed.matmul(a, b, out, bias=bias) == bias).all()
    assert (packed.matmul(a, b, out) == 0).all()
    assert (packed.stacked(a[None], b[None], out[None] + 1) == 0).all()
    assert packed.stacked(np.ones((0, 3, 2), "f4"), np.ones((2, 4), "f4"), out[:0, None]).size == 0


def test_large_layers_and_their_gradients() -> None:
    """All directions of a layer that is large enough for our own products, and one that is not."""
    for rows in (20, 520):
        rng = np.random.default_rng(rows)
        x, w, g = (
            rng.standard_normal(shape, "f4")
            for shape in ((2, rows, 260), (250, 260), (2, rows, 250))
        )
        bias = rng.standard_normal(500).astype("f4")
        flat, back = x.reshape(-1, 260).astype("f8"), g.reshape(-1, 250).astype("f8")
        want = (flat @ w.T).reshape(g.shape)
        for found, expected in (
            (products.linear(x, w), want),
            (products.linear_with_bias(x, w, bias[:250]), want + bias[:250]),
            (products.linear_with_bias(x, w, bias[::2].copy()), want + bias[::2]),
            (products.mm(g, w), (back @ w).reshape(x.shape)),
            (products.mm(g.reshape(-1, 250).T, x.reshape(-1, 260)), back.T @ flat),
        ):
            assert found is not None and np.allclose(found, expected, rtol=1e-4, atol=1e-3)
    assert products.linear_with_bias(x, w, bias) is None
    assert products.linear(x, w[:, :9]) is None


def test_other_processors() -> None:
    """Blocks of the result as they are with shorter and longer vectors."""
    code = (
        "import sys, numpy as np\n"
        "from weft.native.gemm import blocks, packed\n"
        "shape = tuple(map(int, sys.argv[1:]))\n"
        "blocks.block = lambda kind='f32': shape\n"
        "rng = np.random.default_rng(0)\n"
        "for m, k, n in ((37, 50, 90), (90, 350, 37)):\n"
        "    a, b = rng.standard_normal((m, k), 'f4'), rng.standard_normal((k, n), 'f4')\n"
        "    for x in (a, a.T.copy().T):\n"
        "        for y in (b, b.T.copy().T):\n"
        "            out = packed.matmul(x, y, np.empty((m, n), 'f4'))\n"
        "            assert np.allclose(out, a.astype('f8') @ b, atol=1e-3), (m, k, n)\n"
        "            out = packed.stacked(x[None], y[None], np.empty((1, m, n), 'f4'))\n"
        "            assert np.allclose(out[0], a.astype('f8') @ b, atol=1e-3), (m, k, n)\n"
    )
    for shape in (("4", "6", "8"), ("16", "12", "32")):
        subprocess.run([sys.executable, "-c", code, *shape], timeout=240, check=True)


@pytest.mark.parametrize("leads", [False, True])
def test_any_choice_of_kernels_gives_the_product(
    leads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large products with both matrices in both orders, as they are chosen on either processor."""
    monkeypatch.setattr(products, "_onednn_leads", lambda: leads)
    rng = np.random.default_rng(0)
    for m, k, n in ((1024, 512, 96), (300, 384, 310)):
        a, b = rng.standard_normal((m, k), "f4"), rng.standard_normal((k, n), "f4")
        bias = rng.standard_normal(n, "f4")
        want, bound = a.astype("f8") @ b, np.abs(a).astype("f8") @ np.abs(b)
        for left in (a, np.asfortranarray(a)):
            for right in (b, np.asfortranarray(b)):
                found = products.mm(left, right)
                assert found is not None
                assert (np.abs(found - want) <= ACCURACY * bound).all()
                found = products.linear_with_bias(left, right.T, bias)
                assert found is not None
                assert (np.abs(found - want - bias) <= ACCURACY * (bound + np.abs(bias))).all()


@pytest.mark.parametrize("sizes", [(40, 30, 20), (300, 384, 310), (1024, 512, 96)])
def test_planned_products_are_written_where_they_belong(sizes: tuple[int, int, int]) -> None:
    m, k, n = sizes
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((m, k), "f4"), rng.standard_normal((k, n), "f4")
    for extra in (0, 3):  # rows that follow each other, and rows with something between them

        def product(a: np.ndarray, b: np.ndarray, extra: int = extra) -> np.ndarray:
            out = buffers.empty((m, n + extra), "f4")[:, :n]
            products.into(a, b, out)
            return out

        job = contract.plan(product, (a, b))
        assert extra or not any("assign" in call.name for call in job.calls)
        bound = np.abs(a).astype("f8") @ np.abs(b)
        assert (np.abs(job(a, b) - a.astype("f8") @ b) <= ACCURACY * bound).all()


def test_nan_and_infinity_stay_in_their_rows() -> None:
    a, b = np.ones((20, 300), "f4"), np.ones((300, 40), "f4")
    a[3, 7], a[5, 0], b[9, 11] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = a @ b
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b), b[:, :10]):
            n = right.shape[1]
            found = packed.matmul(left, right, np.empty((20, n), "f4"))
            assert np.array_equal(found, want[:, :n], equal_nan=True)
            found = packed.stacked(left[None], right[None], np.empty((1, 20, n), "f4"))
            assert np.array_equal(found[0], want[:, :n], equal_nan=True)


def test_a_wide_type_goes_to_blas() -> None:
    a = np.random.default_rng(0).standard_normal((200, 200))
    assert np.allclose(products.mm(a, a), a @ a)
    assert products.mm(a.astype("i8"), a.astype("i8")) is None
    assert products.mm(a, a[:3]) is None


def test_without_onednn_products_still_come_from_native_code() -> None:
    code = (
        "import weft, numpy as np\n"
        "a = weft.randn(300, 300)\n"
        "assert np.allclose((a @ a).numpy(), a.numpy().astype('f8') @ a.numpy(), atol=1e-3)\n"
        "b = weft.randn(4, 90, 90); c = (b @ b.mT).numpy()\n"
        "assert np.allclose(c, b.numpy().astype('f8') @ b.mT.numpy(), atol=1e-3)\n"
        "c = weft.nn.Conv2d(3, 4, 3)(weft.randn(2, 3, 40, 40)); c.sum().backward()\n"
        "assert not weft.backends.mkldnn.is_available()\n"
        "assert any('missing' in line and 'oneDNN' in line for line in weft.doctor.lines())\n"
    )
    env = {**os.environ, "WEFT_ONEDNN": "off"}
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True, env=env)


def test_numpy_alone_needs_no_native_code() -> None:
    code = (
        "import sys, weft\n"
        "a = weft.randn(300, 300, requires_grad=True); (a @ a).tanh().sum().backward()\n"
        "assert 'llvmlite' not in sys.modules\n"
        "assert weft.backends.native.get() == 'numpy'\n"
    )
    env = {**os.environ, "WEFT_KERNELS": "numpy"}
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True, env=env)


def test_small_programs_do_not_load_it() -> None:
    code = (
        "import sys, weft\n"
        "net = weft.nn.Linear(4, 3); net(weft.randn(8, 4)).softmax(1).sum().backward()\n"
        "assert 'llvmlite' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True)


def test_the_switch_says_what_it_takes() -> None:
    assert native.get() == "native"
    native.set("numpy")
    try:
        assert native.get() == "numpy"
    finally:
        native.set("native")
    with pytest.raises(ValueError, match="'native' or 'numpy'"):
        native.set("cuda")


def test_the_doctor_reports() -> None:
    report = "\n".join(doctor.lines())
    for word in ("weft", "LLVM kernels", "oneDNN", "threads", "memory pool", "kernel cache"):
        assert word in report


def test_show_wants_graphs() -> None:
    with pytest.raises(TypeError, match="tensors and graphs"):
        weft.graph.show(3, open=False)
