"""Special functions on tensors."""

from __future__ import annotations

from typing import Any

from weft.operators import api as _api

globals().update(_api.NAMESPACES.get("special", {}))
__all__ = list(_api.NAMESPACES.get("special", {}))
# Functions of other families that torch.special offers under the same names.
for _name in ("softmax", "log_softmax", "logsumexp"):
    if _name not in globals():
        globals()[_name] = _api.FUNCTIONS[_name]


def __getattr__(name: str) -> Any:
    return _api.missing("special", name)
