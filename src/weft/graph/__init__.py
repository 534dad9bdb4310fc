"""The living graph: look at it, cut it, edit it, compare it, ask it why, keep it."""

from __future__ import annotations

import importlib
from typing import Any

from weft.graph.build import of
from weft.graph.checking import assert_unchanged
from weft.graph.comparing import Diff, diff
from weft.graph.explaining import why
from weft.graph.export import document
from weft.graph.faults import first_bad
from weft.graph.files import load
from weft.graph.graph import Graph, Node
from weft.graph.owners import owners
from weft.graph.recording import record
from weft.graph.ruling import Rules, rules
from weft.graph.run import GraphError
from weft.graph.selecting import Select, select
from weft.graph.source import ops
from weft.graph.watching import Watch, watch

# What lives in a layer above, or is seldom needed: found when it is first asked for.
_LATE = {
    "resize": "weft.nn.resize",
    "serve": "weft.graph.serving",
    "show": "weft.graph.showing",
}

__all__ = [
    "Diff",
    "Graph",
    "GraphError",
    "Node",
    "Rules",
    "Select",
    "Watch",
    "assert_unchanged",
    "diff",
    "document",
    "first_bad",
    "load",
    "of",
    "ops",
    "owners",
    "record",
    "resize",
    "rules",
    "select",
    "serve",
    "show",
    "watch",
    "why",
]


def __getattr__(name: str) -> Any:
    if name in _LATE:
        found = getattr(importlib.import_module(_LATE[name]), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module 'weft.graph' has no attribute {name!r}")
