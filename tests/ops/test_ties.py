"""Which of equal elements ``topk`` chooses, and where its gradient goes."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from side_by_side import needs_torch, torch


@needs_torch
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "uint8", "bfloat16"])
def test_topk_chooses_among_equal_elements_as_torch_does(dtype: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(120):
        size = int(rng.choice([1, 2, 4, 7, 20, 40, 100, 300]))
        k = int(rng.integers(1, size + 1)) if rng.random() < 0.7 else max(1, size // 70)
        values = rng.integers(0, int(rng.choice([1, 2, 3, 10, 200])), (2, size)).astype(float)
        if dtype == "float64":
            values[rng.random(values.shape) < 0.2] = np.nan
        given = [lib.tensor(values.tolist(), dtype=getattr(lib, dtype)) for lib in (weft, torch)]
        dim, largest = int(rng.integers(2)), bool(rng.integers(2))
        given = [t.t() if dim == 0 else t for t in given]
        ours, theirs = (t.topk(k, dim=dim, largest=largest).indices.tolist() for t in given)
        assert ours == theirs, (values, k, dim, largest)


def test_gradients_of_topk_go_where_torch_chose() -> None:
    x = weft.tensor([1.0, 1.0, 1.0, 0.0], requires_grad=True)
    x.topk(2).values.sum().backward()
    assert x.grad.tolist() == [0, 1, 1, 0]
