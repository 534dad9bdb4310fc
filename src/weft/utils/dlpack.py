"""Memory shared with other array libraries."""

from __future__ import annotations

from weft.operators.creation import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
