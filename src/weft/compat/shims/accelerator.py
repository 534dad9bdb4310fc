"""The machine's accelerator: there is none (``weft.compat.absent``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.compat import absent

globals().update(absent.functions("accelerator"))
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
