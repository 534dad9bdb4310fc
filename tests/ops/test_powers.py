"""Powers by a number: those that need no power have PyTorch's bits, whatever code computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft.core import selection

torch = pytest.importorskip("torch")
# PyTorch's root of a whole vector is not rounded correctly, so that 0.5 is compared with NumPy's.
EXACT = (1, 2, 3, -0.5, -1, -2, 2.0, 3.0, -1.0)
SIZES = (1, 7, 700, 1500, 50_000)  # by the reference, by compiled calls, by loops


def values(n: int) -> np.ndarray:
    found = np.random.default_rng(n).standard_normal(n) * 3
    found[:5] = np.array([-0.0, 0.0, np.inf, -np.inf, np.nan])[:n]
    return found


def ways(x: Any, e: float, lib: Any) -> dict[str, Any]:
    with lib.no_grad():
        unrecorded = x**e
    return {
        "operator": x**e,
        "unrecorded": unrecorded,
        "function": lib.pow(x, e),
        "recorded": (x.clone().requires_grad_() ** e).detach(),
        "in place": x.clone().pow_(e),
        "out": lib.pow(x, e, out=lib.empty_like(x)),
        "columns": lib.stack([x, x], 1)[:, 0] ** e,
    }


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", SIZES)
def test_bits(n: int, dtype: str, native: bool) -> None:
    if native:
        selection.start()
    x, y = (lib.tensor(values(n)).to(getattr(lib, dtype)) for lib in (weft, torch))
    for e in (*EXACT, 0.5):
        with np.errstate(invalid="ignore"):
            want = np.sqrt(y.numpy()) if e == 0.5 else (y**e).numpy()
        for name, found in ways(x, e, weft).items():
            np.testing.assert_array_equal(found.numpy(), want, err_msg=f"{name}, {e}")
            signs = np.signbit(found.numpy()) == np.signbit(want)
            assert (signs | np.isnan(want)).all(), f"{name}, {e}"


@pytest.mark.parametrize("n", [7, 3000])
def test_gradients(n: int) -> None:
    for e in (*EXACT, 0.5, 0, 4, 2.5):
        grads = []
        for lib in (weft, torch):
            x = lib.tensor(np.abs(values(n)[5 if n > 5 else 0 :]) + 0.1).requires_grad_()
            (x**e).backward(lib.ones_like(x))
            grads.append(x.grad.numpy())
        np.testing.assert_allclose(*grads, rtol=1e-14)


@pytest.mark.parametrize("n", SIZES)
def test_a_number_as_the_base(n: int) -> None:
    data = np.random.default_rng(n).uniform(-2, 2, n)
    for base in (2, 3, 0.5, 1, 2.0, 1.5):
        found = []
        for lib in (weft, torch):
            x = lib.tensor(data).requires_grad_()
            y = base**x
            y.sum().backward()
            found.append((y.detach().numpy(), x.grad.numpy()))
        for mine, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-14)


def test_an_exponent_that_changes() -> None:
    @weft.compile
    def power(x: Any, e: float) -> Any:
        return (x**e).sum()

    x = weft.tensor(np.abs(values(3000)[5:]) + 0.5)
    for e in (2, 2, 2, 3, 2.5, 2.5, 2.25, 2, -1, 3, 2.0, 1.75, 0.5):
        found = power(x, e).item()
        np.testing.assert_allclose(found, (x.numpy() ** e).sum(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_types(dtype: str) -> None:
    for n in (7, 3000):
        x, y = (lib.tensor(values(n)).to(getattr(lib, dtype)) for lib in (weft, torch))
        for e in (1, 2, 3, -1, -2, 0.5):
            first, *rest = (w.float().numpy() for w in ways(x, e, weft).values())
            for other in rest:
                np.testing.assert_array_equal(first, other)
            want = (y**e).float().numpy()
            exact = dtype == "float16" or e in (1, 2, -1)  # PyTorch rounds bfloat16 at each step
            np.testing.assert_allclose(first[5:], want[5:], rtol=0 if exact and e != 0.5 else 0.02)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_edges_at_every_size(dtype: str) -> None:
    """A root of -inf is NaN, and no power of it; of -0.0 it is -0.0."""
    for n in (7, 3000):
        for e in (0.5, -0.5, 1.5, -1, 3):
            found = []
            for lib in (weft, torch):
                x = lib.tensor(values(n)).to(getattr(lib, dtype)).requires_grad_()
                y = x**e
                y.backward(lib.ones_like(y))
                found.append([v.detach().double().numpy()[:5] for v in (y, x.grad)])
            for mine, theirs in zip(*found, strict=True):
                np.testing.assert_array_equal(mine, theirs, err_msg=f"{n}, {e}")
                assert (np.signbit(mine) == np.signbit(theirs))[~np.isnan(theirs)].all()
