"""weft and torch must agree on random programs of views, in-place ops and backward."""

from __future__ import annotations

import warnings

import pytest

import programs
import weft

torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")


@pytest.mark.parametrize("block", range(8))
def test_random_programs_agree_with_torch(block: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(block * 60, block * 60 + 60):
            assert programs.check(seed, weft, torch) is None


@pytest.mark.deep
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_random_programs_agree_with_torch(block: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(block * 100, block * 100 + 100):
            assert programs.check(seed, weft, torch) is None
