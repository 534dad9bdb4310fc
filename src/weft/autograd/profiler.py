"""The profiler under its older name; it is loaded when it is first asked for."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("weft.profiler.legacy"), name)
