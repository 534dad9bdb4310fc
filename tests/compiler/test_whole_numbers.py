"""Elementwise functions of whole numbers in compiled programs: NumPy's numbers, without NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft as torch
from weft.compiler import Compiled

LEAST, MOST = -(2**63), 2**63 - 1
A = [LEAST, LEAST, LEAST, -7, -6, -1, 0, 1, 6, 7, MOST, MOST, 5, -5]
B = [-1, 3, -3, 3, -3, -1, 5, -2, 3, -2, -1, 2, 7, 7]
FUNCTIONS: dict[str, Callable] = {
    "remainder": lambda x, y: x % y,
    "remainder_by_number": lambda x, y: (x % 3) + (x % -3),
    "floor_divide": lambda x, y: x // y,
    "floor_divide_by_number": lambda x, y: (x // 3) ^ (x // -2),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "fmod": torch.fmod,
    "bits": lambda x, y: (x & y) - (x | 5) + (y ^ -3) + ~x,
    "clamp": lambda x, y: x.clamp(-3, 3) + y.clamp(max=2),
    "clamp_by_tensors": lambda x, y: x.clamp(y, y + 2),
    "maximum": lambda x, y: torch.maximum(x, y) + torch.minimum(x, y),
    "logical_not": lambda x, y: x.logical_not(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_at_the_edges(name: str) -> None:
    x, y = torch.tensor(A), torch.tensor(B)
    compiled = Compiled(lambda x, y: FUNCTIONS[name](x + 0, y + 0))
    for _ in range(4):
        assert np.array_equal(compiled(x, y).numpy(), compiled.function(x, y).numpy())
    assert "runs in Python" not in compiled.explain()


@pytest.mark.parametrize("function", [lambda x, y: x % y, lambda x, y: x // y, torch.fmod])
def test_division_by_zero_is_refused(function: Callable) -> None:
    compiled = Compiled(lambda x, y: function(x + 0, y + 0))

    def outcome(run: Callable, k: int) -> Any:
        try:
            return run(torch.tensor([5, 6]), torch.tensor([k, 2])).tolist()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    for k in (1, 2, 3, 0, 4, 0):
        assert outcome(compiled, k) == outcome(compiled.function, k)
