"""Small helpers for the arguments of layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.core.tensor import Parameter, Tensor
from weft.operators import api


def ntuple(n: int) -> Callable[[Any], tuple[Any, ...]]:
    """A function that repeats a number n times, and leaves several as they are."""

    def parse(x: Any) -> tuple[Any, ...]:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    return parse


single, pair, triple, quadruple = ntuple(1), ntuple(2), ntuple(3), ntuple(4)
sextuple = ntuple(6)
TUPLES = {1: single, 2: pair, 3: triple}


def empty(shape: Any, device: Any = None, dtype: Any = None) -> Tensor:
    """Memory for a parameter or buffer."""
    return api.FUNCTIONS["empty"](shape, device=device, dtype=dtype)


def parameter(shape: Any, device: Any = None, dtype: Any = None) -> Parameter:
    """A parameter without values yet."""
    return Parameter(empty(shape, device, dtype))


def shown(module: Any, *names: str) -> str:
    """``name=value`` for each of a module's attributes."""
    return ", ".join(f"{name}={getattr(module, name)}" for name in names)
