"""Products with vectors in compiled programs."""

from __future__ import annotations

from typing import Any

import pytest

import weft as torch
from weft.compiler import Compiled
from weft.core import planning


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 8), (1, 1), (1, 3), (70, 90), (200, 130)])
def test_products_with_vectors_are_native(dtype: Any, shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    n, m = shape
    leaves = [torch.rand(*s).to(dtype).requires_grad_() for s in ((n, m), (m,), (n,))]

    def step(a: Any, v: Any, u: Any) -> Any:
        loss = (u + 1).dot((a * 2).mv(v)) + a.t().mv(u).sum() + (v * 2) @ v
        loss.backward()
        return loss.detach()

    def outcome(run: Any) -> list[Any]:
        for leaf in leaves:
            leaf.grad = None
        return [run(*leaves), *(leaf.grad for leaf in leaves)]

    compiled = Compiled(step)
    for _ in range(4):
        for found, expected in zip(outcome(compiled), outcome(step), strict=True):
            torch.testing.assert_close(found, expected)
    large = dtype is torch.float64 and n * m > planning.MOST_WIDE
    assert ("runs in Python" in compiled.explain()) is large
