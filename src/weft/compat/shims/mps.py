"""MPS devices, which are not there (``weft.compat.absent``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.compat import absent

globals().update(absent.functions("mps"))
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
