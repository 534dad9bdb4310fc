"""XPU devices, which are not there (``weft.compat.absent``)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from weft.compat import absent

globals().update(absent.functions("xpu"))
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


class device(absent.absent_device):
    """A ``with`` block on an XPU device; without one only for a negative number or None."""

    namespace = "xpu"


def stream(stream: Any) -> contextlib.AbstractContextManager:
    """A ``with`` block on a stream: None is the only one there can be."""
    return contextlib.nullcontext()
