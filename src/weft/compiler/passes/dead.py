"""Dead code: nodes whose results are never read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.ir import Value, WorkNode


def without_dead(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes that some values need, and those with side effects."""
    needed = {x for x in ends if isinstance(x, Value)}
    kept = []
    for node in reversed(nodes):
        if not node.work.pure or not needed.isdisjoint(node.results):
            needed.update(node.inputs())
            kept.append(node)
    return kept[::-1]
