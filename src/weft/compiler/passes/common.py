"""Common subexpressions: equal work on equal values is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.ir import Value, WorkNode


def without_repeats(
    nodes: Sequence[WorkNode], ends: Sequence[Any]
) -> tuple[list[WorkNode], list[Any]]:
    """The nodes without duplicates, and the values that replace some values."""
    known: dict[Any, WorkNode] = {}
    instead: dict[Value, Value] = {}
    kept = []
    for node in nodes:
        made = node
        if not instead.keys().isdisjoint(node.inputs()):
            args = [instead.get(x, x) if isinstance(x, Value) else x for x in node.args]
            made = WorkNode(node.work, args, node.results, node.spec)
        key = made.key() if node.work.pure else None
        same = known.get(key) if key is not None else None
        if same is not None:
            instead.update(zip(node.results, same.results, strict=True))
            continue
        if key is not None:
            known[key] = made
        kept.append(made)
    return kept, [instead.get(x, x) if isinstance(x, Value) else x for x in ends]
