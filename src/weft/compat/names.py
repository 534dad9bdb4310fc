"""Which of PyTorch's names weft has."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any


class Missing(Exception):
    """Says the shortest part of a dotted name that weft lacks."""


def look_up(name: str) -> Any:
    """What weft has under a name such as ``torch.nn.Linear``; raises Missing.

    >>> look_up("torch.nn.functional.relu").__name__
    'relu'
    """
    parts = name.split(".")
    found: Any = importlib.import_module("weft")
    for i in range(1, len(parts)):
        if not isinstance(found, (ModuleType, type)):
            # Attributes of values can't be told without running the program.
            return found
        found = _member(found, parts[i])
        if found is _ABSENT:
            raise Missing(".".join(parts[: i + 1]))
    return found


_ABSENT = object()


def _member(owner: Any, name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        pass
    if isinstance(owner, ModuleType):
        try:
            return importlib.import_module(f"{owner.__name__}.{name}")
        except ModuleNotFoundError:
            pass
    return _ABSENT
