"""Norms of half values: computed in float32 and rounded once, also with float32 parameters."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.nn import functional as F

NORMS = {
    "group": lambda x, w, b: F.group_norm(x, 2, w, b),
    "layer": lambda x, w, b: F.layer_norm(x.mT, w.shape, w, b),
    "rms": lambda x, w, b: F.rms_norm(x.mT, w.shape, w),
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "instance": lambda x, w, b: F.instance_norm(x, None, None, w, b),
}


def results(name, x, w, b, g, dtypes):
    x, w, b = (
        weft.from_numpy(v).to(d).requires_grad_() for v, d in zip((x, w, b), dtypes, strict=True)
    )
    y = NORMS[name](x, w, b)
    y.backward(weft.from_numpy(g).to(y.dtype).reshape(y.shape))
    return y, x.grad, w.grad, b.grad


@pytest.mark.parametrize("size", [5, 40])
@pytest.mark.parametrize("half", [weft.float16, weft.bfloat16])
@pytest.mark.parametrize("name", NORMS)
def test_half_values_with_float32_parameters(name, half, size):
    rng = np.random.default_rng(3)
    x, g = rng.normal(1, 2, (4, 6, size)), rng.normal(size=(4, 6, size))
    x, g = (weft.from_numpy(v).to(half).double().numpy() for v in (x, g))
    w, b = rng.normal(size=6).astype("f"), rng.normal(size=6).astype("f")
    exact = results(name, x, w, b, g, (weft.float64,) * 3)
    found = results(name, x, w, b, g, (half, weft.float32, weft.float32))
    assert [t.dtype for t in found if t is not None] == [
        d
        for t, d in zip(found, (half, half, weft.float32, weft.float32), strict=True)
        if t is not None
    ]
    for t, e, d in zip(found, exact, (half, half, weft.float32, weft.float32), strict=True):
        if e is not None:
            error = (t.double() - e).abs().max() / e.abs().max()
            assert error.item() < (weft.finfo(d).eps if d is half else 2e-6)


@pytest.mark.parametrize("parameters", [weft.bfloat16, weft.float32, weft.float64])
@pytest.mark.parametrize("dtype", [weft.float16, weft.float32, weft.float64])
def test_rms_norm_has_the_dtype_of_its_input(dtype, parameters):
    x = weft.ones(2, 3, dtype=dtype)
    assert F.rms_norm(x, (3,), weft.ones(3, dtype=parameters)).dtype is dtype


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_instance_norm_of_half_values_with_float32_statistics(half, training):
    torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")

    def run(lib):
        m = lib.nn.InstanceNorm1d(3, affine=True, track_running_stats=True).train(training)
        x = (lib.arange(24, dtype=lib.float32).reshape(2, 3, 4) / 5).to(getattr(lib, half))
        y = m(x.requires_grad_())
        y.float().pow(3).sum().backward()
        return [y, m.running_mean, m.running_var, m.weight.grad, m.bias.grad]

    for mine, theirs in zip(run(weft), run(torch), strict=True):
        assert str(mine.dtype) == str(theirs.dtype)
        error = 1e-2 if mine.dtype.itemsize == 2 else 1e-3
        np.testing.assert_allclose(mine.tolist(), theirs.tolist(), rtol=error, atol=error)


@pytest.mark.parametrize("n", (3, 20_000))
def test_the_gradient_of_a_tiny_norm_is_finite(n: int) -> None:
    """One divided by it overflows, while an element divided by it does not."""
    x = weft.zeros(n, dtype=weft.float16)
    x[:3] = weft.tensor([3e-6, -4e-6, 0.0])
    x.requires_grad_()
    weft.linalg.vector_norm(x).backward()
    assert x.grad[:3].tolist() == pytest.approx([0.6, -0.8, 0.0], abs=0.02)
