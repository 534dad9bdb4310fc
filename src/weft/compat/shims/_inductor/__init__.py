"""Switches of PyTorch's compiler, for programs that set them; nothing reads them."""

from __future__ import annotations

from types import SimpleNamespace

config = SimpleNamespace()
