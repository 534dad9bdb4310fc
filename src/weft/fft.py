"""Fourier transforms of tensors."""

from __future__ import annotations

from typing import Any

from weft.operators import api as _api

globals().update(_api.NAMESPACES.get("fft", {}))
__all__ = list(_api.NAMESPACES.get("fft", {}))


def __getattr__(name: str) -> Any:
    return _api.missing("fft", name)
