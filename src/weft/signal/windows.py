"""Window functions."""

from __future__ import annotations

from typing import Any

from weft.operators import api as _api

globals().update(_api.NAMESPACES["signal.windows"])


def __getattr__(name: str) -> Any:
    return _api.missing("signal.windows", name)
