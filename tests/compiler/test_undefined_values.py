"""Plans are made on arrays without values: nothing that a function reads of them is a constant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.core import planning, selection
from weft.native.codegen import jit
from weft.native.memory.buffers import Unplannable

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
selection.start()


def by_rows(a: Any, b: Any) -> Any:
    """A recurrence in memory of NumPy's own, row by row."""
    out = np.array(b)
    for i in range(1, len(out)):
        out[i] += a[i] * out[i - 1]
    return out


@pytest.mark.parametrize("shape", [(4,), (4, 1), (4, 3), (4, 1, 1), (1, 4)])
def test_elements_of_arrays_that_nobody_asked_for_are_no_constants(shape: tuple[int, ...]) -> None:
    def used(a: Any, b: Any) -> Any:
        return by_rows(a, b) * a

    a = np.ones(shape)
    with pytest.raises(Unplannable):
        planning.job(used, [a, a])


def test_numbers_beside_arrays_are_constants() -> None:
    job = planning.job(lambda a: a * np.asarray(3.0) + np.float64(1), [np.ones((4, 1))])
    assert (job(np.full((4, 1), 2.0)) == 7).all()


@pytest.mark.parametrize("shape", [(2, 1), (3, 1), (5,), (1, 1), (2, 3)])
@pytest.mark.parametrize("function", ["logcumsumexp", "cumprod", "cumsum"])
def test_gradients_of_scans_over_single_columns(shape: tuple[int, ...], function: str) -> None:
    def step(x: torch.Tensor) -> Any:
        y = getattr(x * 1.0, function)(0)
        y.backward(torch.ones_like(y))
        return x.grad

    compiled = torch.compile(step)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(*shape, dtype=torch.float64)
        want = step(x.clone().requires_grad_())
        found = compiled(x.clone().requires_grad_())
        assert torch.allclose(found, want), f"call {seed}"
