"""The ops of all libraries, as ``torch.ops.namespace.op``; ``weft.library`` registers them."""

from __future__ import annotations

from typing import Any

from weft import library as _library
from weft.library import load_library, loaded_libraries

__all__ = ["load_library", "loaded_libraries"]


def __getattr__(name: str) -> Any:
    return _library.namespace(name)
