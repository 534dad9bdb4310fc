"""What programs ask of PyTorch's graph capture; nothing is captured, so little is left to say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from weft.compiler import OptimizedModule, allow_in_graph, disable, is_compiling, reset

__all__ = ["OptimizedModule", "allow_in_graph", "config", "disable", "is_compiling", "reset"]

# Programs set switches here, such as suppress_errors; nothing reads them.
config = SimpleNamespace(suppress_errors=False, verbose=False, cache_size_limit=8)


def graph_break(msg: str = "") -> None:
    """For programs that mark where a graph ends."""


def mark_dynamic(t: Any, index: Any, **bounds: Any) -> None:
    """For programs that mark a size as changing; every size may change here."""


mark_static = maybe_mark_dynamic = mark_dynamic
