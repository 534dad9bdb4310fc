"""Products in packed panels, and the switches of the native side."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import doctor
from weft.backends import native
from weft.native import gemm, jit, products, threads

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
        gemm.matmul(left, right, out, add)
    finally:
        threads.set_count(before)
    assert (np.abs(out - want) <= ACCURACY * bound).all()


def test_packed_products_longer_than_a_stretch() -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.standard_normal((70, 1000)).astype("f4"),
        rng.standard_normal((1000, 33)).astype("f4"),
    )
    out = gemm.matmul(a, b, np.full((70, 33), np.nan, "f4"))
    assert np.allclose(out, a.astype("f8") @ b, rtol=0, atol=2e-4)


def test_nan_and_infinity_stay_in_their_rows() -> None:
    a, b = np.ones((20, 300), "f4"), np.ones((300, 40), "f4")
    a[3, 7], a[5, 0], b[9, 11] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = a @ b
    found = gemm.matmul(a, b, np.empty((20, 40), "f4"))
    assert np.array_equal(found, want, equal_nan=True)


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
