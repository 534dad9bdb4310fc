"""Special functions on tensors."""

from __future__ import annotations

from typing import Any

from weft.ops import api as _api

globals().update(_api.NAMESPACES.get("special", {}))


def __getattr__(name: str) -> Any:
    return _api.missing("special", name)
