"""Random programs give the same compiled as eagerly; the deep run has more of them."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import compiled_programs


@pytest.mark.parametrize("first", range(0, 60, 6))
def test_random_programs(first):
    reports = [compiled_programs.check(900_000_000 + first + k) for k in range(6)]
    assert not [r for r in reports if r is not None]


@pytest.mark.deep
def test_many_random_programs():
    reports = [compiled_programs.check(910_000_000 + k) for k in range(3000)]
    assert not [r for r in reports if r is not None]
