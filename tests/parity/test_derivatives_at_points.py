"""Derivatives up to the third at points where formulas divide by zero, against torch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")

POINTS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, 6.0, -3.0, 20.0, 100.0)
ORDERS = 3
RANDOM = ("bernoulli", "poisson", "normal")
# Of one element the variance is 0/0; what follows from it is anything.
UNDEFINED = {"var", "std", "cov", "corrcoef"}
FEWEST = 150  # functions that have to be found and to have a derivative


def functions() -> list[tuple[str, str]]:
    """The names below ``torch`` and ``torch.special`` that may be functions of one tensor."""
    found = []
    for space in ("", "special"):
        module = getattr(torch, space) if space else torch
        for name in dir(module):
            plain = not name.startswith("_") and not name.endswith("_") and name not in UNDEFINED
            random = "rand" in name or "dropout" in name or name in RANDOM
            if plain and not random and hasattr(module, name):
                found.append((space, name))
    return found


def derivatives(lib: Any, space: str, name: str, at: float) -> list[float] | None:
    """The value of a function at a point, and its derivatives; None if it has none."""
    function = getattr(getattr(lib, space) if space else lib, name, None)
    if not callable(function) or isinstance(function, type):
        return None
    x = lib.tensor([at], dtype=lib.float64, requires_grad=True)
    y = function(x)
    if not isinstance(y, lib.Tensor) or not y.is_floating_point() or not y.requires_grad:
        return None
    found = [y.sum()]
    for _ in range(ORDERS):
        if not found[-1].requires_grad:
            found.append(lib.zeros((), dtype=lib.float64))
            continue
        g = lib.autograd.grad(found[-1], x, create_graph=True, allow_unused=True)[0]
        found.append(lib.zeros((), dtype=lib.float64) if g is None else g.sum())
    return [v.item() for v in found]


def test_as_torch() -> None:
    compared, wrong = 0, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for space, name in functions():
            for at in POINTS:
                try:
                    theirs = derivatives(torch, space, name, at)
                except Exception:  # not a function of one tensor, or not differentiable so often
                    break
                if theirs is None:
                    break
                if not np.isfinite(theirs[0]):
                    continue  # a pole
                mine = derivatives(weft, space, name, at)
                compared += 1
                if not np.allclose(mine, theirs, rtol=1e-5, atol=1e-8, equal_nan=True):
                    wrong.append(f"{space or 'torch'}.{name} at {at}: {mine}, torch {theirs}")
    assert not wrong, "\n".join(wrong)
    assert compared > FEWEST * len(POINTS) // 2
