"""Functions that only programs have loops for: NumPy's numbers but for the last bits."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft.compiler import Compiled

NAMES = ("sinh", "cosh", "asin", "acos", "asinh", "acosh", "atanh")
SPECIAL = [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 1e-30, -1e-30, 3e38, -3e38, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name: str) -> None:
    spread = np.concatenate([np.exp(np.linspace(-20, 4.5, 400)), np.linspace(-0.999, 0.999, 201)])
    values = np.concatenate([SPECIAL, spread, -spread]).astype(np.float32)
    x = torch.from_numpy(values).requires_grad_()

    def step(x: torch.Tensor) -> torch.Tensor:
        made = getattr(x * 1, name)()
        made.sum().backward()
        return made.detach()

    compiled = Compiled(step)
    for _ in range(4):
        x.grad = None
        found, gradient = compiled(x).numpy(), x.grad.numpy()
    x.grad = None
    expected = step(x).numpy()
    few_ulps = {"rtol": 5e-7, "atol": 0.0}
    np.testing.assert_allclose(found, expected, **few_ulps)
    zeros = expected == 0
    assert np.array_equal(np.signbit(found[zeros]), np.signbit(expected[zeros]))
    np.testing.assert_allclose(gradient, x.grad.numpy(), **few_ulps)
    assert "runs in Python" not in compiled.explain()
