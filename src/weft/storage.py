"""The memory behind tensors."""

from __future__ import annotations

from weft.core.storage import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]
