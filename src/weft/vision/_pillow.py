"""Pillow, which reads and draws images, where it is installed."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any


@functools.cache
def pillow(name: str = "Image") -> ModuleType:
    """A module of Pillow; without it the error names the extra."""
    try:
        return importlib.import_module(f"PIL.{name}")
    except ModuleNotFoundError as error:
        if error.name not in ("PIL", f"PIL.{name}"):
            raise
        raise ModuleNotFoundError(
            "weft.vision reads, draws and transforms images by Pillow, which is not installed: "
            "pip install 'weft[vision]'",
            name="PIL",
        ) from None


def is_pillow(image: Any) -> bool:
    """Whether something is a Pillow image; needs no Pillow to say no."""
    kind = type(image)
    if not any(base.__module__.startswith("PIL.") for base in kind.__mro__):
        return False
    return isinstance(image, pillow().Image)
