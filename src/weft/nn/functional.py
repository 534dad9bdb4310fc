"""The functions that networks are made of."""

from __future__ import annotations

from typing import Any

from weft.ops import api as _api

globals().update(_api.NAMESPACES.get("nn.functional", {}))


def __getattr__(name: str) -> Any:
    return _api.missing("nn.functional", name)
