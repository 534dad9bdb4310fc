"""Every type to every other, in programs: what no kernel converts is left to Python in each run."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch

TYPES = (
    *("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "bool"),
    *("uint8", "int8", "int16", "int32", "int64"),
)


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_conversions(source: str) -> None:
    rng = np.random.default_rng(0)
    batches = [torch.tensor(rng.integers(0, 100, (2, 3))).to(getattr(torch, source))
               for _ in range(5)]  # fmt: skip
    for target in TYPES:
        dtype = getattr(torch, target)

        def convert(x: torch.Tensor, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.stack([x, x.flip(0)]).to(dtype).flip(1)

        compiled = torch.compile(convert)
        for k, x in enumerate(batches):
            found, expected = compiled(x), convert(x)
            assert found.dtype is dtype
            assert torch.equal(found, expected), f"{source} to {target}, call {k}"
