"""The functions that networks are made of."""

from __future__ import annotations

import importlib as _importlib
from typing import Any

from weft.operators import api as _api

globals().update(_api.NAMESPACES.get("nn.functional", {}))


def __getattr__(name: str) -> Any:
    if name == "grad":  # seldom wanted, so loaded when it is
        return _importlib.import_module("weft.nn.grad")
    return _api.missing("nn.functional", name)
