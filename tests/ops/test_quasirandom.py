"""Sobol sequences: PyTorch's numbers, with and without scrambling."""

from __future__ import annotations

from typing import Any

import pytest

import weft
from side_by_side import needs_torch, torch
from weft.quasirandom import SobolEngine


def engines(*args: Any, **kwargs: Any) -> list[Any]:
    return [lib.quasirandom.SobolEngine(*args, **kwargs) for lib in (torch, weft)]


@needs_torch
@pytest.mark.parametrize("scramble", [False, True])
@pytest.mark.parametrize("dimension", [1, 3, 1111])
def test_points_are_torchs(dimension: int, scramble: bool) -> None:
    theirs, ours = engines(dimension, scramble=scramble, seed=123456 if scramble else None)
    assert repr(ours) == repr(theirs)
    for dtype in ("float32", "float64"):
        theirs.reset(), ours.reset()
        for n in (1, 2, 5, 9):
            expected = theirs.draw(n, dtype=getattr(torch, dtype))
            assert ours.draw(n, dtype=getattr(weft, dtype)).tolist() == expected.tolist()
    assert ours.num_generated == theirs.num_generated == 17
    assert ours.fast_forward(6).draw(2).tolist() == theirs.fast_forward(6).draw(2).tolist()
    assert ours.reset().fast_forward(5).draw(2).tolist() == (
        theirs.reset().fast_forward(5).draw(2).tolist()
    )


@needs_torch
def test_the_last_dimension_is_torchs() -> None:
    theirs, ours = engines(SobolEngine.MAXDIM)
    assert (ours.sobolstate._a == theirs.sobolstate.numpy()).all()
    assert ours.draw(3)[:, -5:].tolist() == theirs.draw(3)[:, -5:].tolist()


@needs_torch
def test_scrambling_without_a_seed_draws_from_the_default_generator() -> None:
    torch.manual_seed(5), weft.manual_seed(5)
    theirs, ours = engines(4, scramble=True)
    assert ours.draw(4).tolist() == theirs.draw(4).tolist()


def test_powers_of_two() -> None:
    engine = SobolEngine(2)
    assert engine.draw_base2(2).tolist() == [[0, 0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    assert engine.draw_base2(2).shape == (4, 2)
    with pytest.raises(ValueError, match="require n to be a power of 2"):
        engine.draw_base2(2)


def test_out_and_bounds() -> None:
    out = weft.empty(1, dtype=weft.float64)
    assert SobolEngine(3).draw(4, out=out) is out and out.shape == (4, 3)
    assert out.dtype is weft.float64
    for dimension in (0, SobolEngine.MAXDIM + 1):
        with pytest.raises(ValueError, match="Supported range of dimensionality"):
            SobolEngine(dimension)
