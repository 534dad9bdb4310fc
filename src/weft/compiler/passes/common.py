"""Common subexpressions: equal work on equal values is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.compiler.ir import Node, Value


def without_repeats(nodes: Sequence[Node], ends: Sequence[Any]) -> tuple[list[Node], list[Any]]:
    """The nodes without those that repeat another, and what some values are then."""
    known: dict[Any, Node] = {}
    instead: dict[Value, Value] = {}
    kept = []
    for node in nodes:
        args = tuple(instead.get(x, x) if isinstance(x, Value) else x for x in node.args)
        key = _key(node, args)
        same = known.get(key) if key is not None else None
        if same is not None:
            instead.update(zip(node.results, same.results, strict=True))
            continue
        made = Node(node.work, args, node.results, node.spec)
        if key is not None:
            known[key] = made
        kept.append(made)
    return kept, [instead.get(x, x) if isinstance(x, Value) else x for x in ends]


def _key(node: Node, args: tuple[Any, ...]) -> Any:
    own = node.work.key() if node.work.pure else None
    if own is None:
        return None
    try:
        # By type too: 1, 1.0 and True are equal but not the same operand; so are 0.0 and -0.0.
        given = tuple((x.__class__, x if isinstance(x, Value) else repr(x)) for x in args)
        key = (own, repr(own), given)
        hash(key)
    except TypeError:
        return None
    return key
