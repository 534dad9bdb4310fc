"""Checks of arguments that the functions of networks share."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.generator import ArrayGenerator
from weft.core.tensor import Tensor


def refuse(message: str, kind: type[Exception] = RuntimeError) -> NoReturn:
    """Raise an error that ends with the user's own line."""
    raise kind(f"{message}\n  at {errors.here()}")


def scalar_name(d: dt.dtype) -> str:
    """A dtype's name as PyTorch's messages write it."""
    return dt.TYPE_NAMES[d.name]


def need_float(input: Tensor, kernel: str) -> None:
    """Refuse integers, booleans and complex numbers as PyTorch does."""
    if input._a.dtype.kind in "iubc":
        refuse(
            f"\"{kernel}\" not implemented for '{scalar_name(input.dtype)}'. Convert the tensor "
            "with .float() first",
            NotImplementedError,
        )


def ints(value: Any, count: int, name: str) -> tuple[int, ...]:
    """One int for each dimension from an int or a sequence of one or ``count`` ints."""
    if isinstance(value, (int, np.integer)):
        return (int(value),) * count
    given = tuple(int(v) for v in value)
    if len(given) == 1:
        return given * count
    if len(given) != count:
        refuse(
            f"expected {name} to be a single integer value or a list of {count} values to match "
            f"the dimensions, but got {name}={list(given)}"
        )
    return given


def probability(p: float) -> None:
    """Raise for values that are not probabilities."""
    if p < 0.0 or p > 1.0:
        refuse(f"dropout probability has to be between 0 and 1, but got {p}", ValueError)


def generator() -> ArrayGenerator:
    """The generator that functions draw from which are given none."""
    from weft.operators import random

    return random.source(None)
