"""Helpers for tests: comparison of tensors and random sample tensors."""

from __future__ import annotations

from weft.testing.comparison import assert_close
from weft.testing.creation import make_tensor

__all__ = ["assert_close", "make_tensor"]
