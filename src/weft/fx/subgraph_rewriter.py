"""Finding a pattern in a graph and putting something else in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from weft.fx._symbolic_trace import symbolic_trace
from weft.fx.graph import Graph
from weft.fx.graph_module import GraphModule, _assign, _find
from weft.fx.node import Node, nodes_in
from weft.nn.module import Module

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


class Match(NamedTuple):
    """Where a pattern was found: its last node, and the node of the graph for each of its own."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A match, and the nodes that were put in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


def replace_pattern(gm: GraphModule, pattern: Any, replacement: Any) -> list[Match]:
    """Replace every place in a module's graph that does what ``pattern`` does.

    >>> import weft
    >>> traced = weft.fx.symbolic_trace(lambda x, y: weft.relu(x + y))
    >>> _ = weft.fx.replace_pattern(
    ...     traced, lambda a, b: weft.relu(a + b), lambda a, b: weft.tanh(a - b)
    ... )
    >>> [node.name for node in traced.graph.nodes]
    ['x', 'y', 'sub', 'tanh', 'output']
    """
    made = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(found.anchor, found.nodes_map) for found in made]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable] | None = None,
    ignore_literals: bool = False,
) -> list[ReplacedPatterns]:
    """``replace_pattern`` where every filter says yes to a match, the graph and the pattern."""
    wanted, new = _graph_of(pattern), _graph_of(replacement)
    matches = _Matcher(wanted, ignore_literals).find(gm.graph)
    matches = [m for m in matches if all(f(m, gm.graph, wanted) for f in match_filters or [])]
    results: list[ReplacedPatterns] = []
    changed: dict[Node, Node] = {}
    for found in matches:
        results.append(_replace(gm, wanted, new, found, changed))
    if matches and not isinstance(replacement, Graph):
        _copy_modules(gm, replacement)
    gm.recompile()
    return results


def _graph_of(value: Any) -> Graph:
    if isinstance(value, Graph):
        return value
    return value.graph if isinstance(value, GraphModule) else symbolic_trace(value).graph


class _Matcher:
    def __init__(self, pattern: Graph, ignore_literals: bool) -> None:
        self.pattern, self.ignore_literals = pattern, ignore_literals
        self.inputs = [n for n in pattern.nodes if n.op == "placeholder"]
        self.results = nodes_in(pattern.output_node().args[0])
        for node in self.inputs:
            if node.args:
                raise AssertionError("a pattern's inputs must not have default values")

    def find(self, graph: Graph) -> list[Match]:
        """Places that match and do not overlap, the later ones first come last."""
        anchors = list(self.results)
        found: list[Match] = []
        taken: set[Node] = set()
        for node in graph.nodes:
            nodes_map: dict[Node, Node] = {}
            if not self._same(anchors[-1], node, nodes_map):
                continue
            if not all(a in nodes_map for a in anchors) or not self._closed(nodes_map):
                continue
            inner = {g for p, g in nodes_map.items() if p.op != "placeholder"}
            if inner & taken:
                continue
            taken |= inner
            found.append(Match(node, nodes_map))
        return found

    def _closed(self, nodes_map: dict[Node, Node]) -> bool:
        """Whether no other node uses a value that the replacement will not have."""
        inner = set(nodes_map.values())
        for mine, other in nodes_map.items():
            if mine.op in ("placeholder", "get_attr") or mine in self.results:
                continue
            if any(user not in inner for user in other.users):
                return False
        return True

    def _same(self, mine: Node, other: Any, nodes_map: dict[Node, Node]) -> bool:
        if mine in nodes_map:
            return nodes_map[mine] is other
        if not isinstance(other, Node):
            return False
        if mine.op == "placeholder":
            nodes_map[mine] = other
            return True
        if mine.op != other.op or not _same_target(mine, other):
            return False
        if other in nodes_map.values():
            return False
        nodes_map[mine] = other
        same = self._same_argument(mine.args, other.args, nodes_map)
        if same and self._same_argument(mine.kwargs, other.kwargs, nodes_map):
            return True
        del nodes_map[mine]
        return False

    def _same_argument(self, mine: Any, other: Any, nodes_map: dict[Node, Node]) -> bool:
        if isinstance(mine, Node):
            return self._same(mine, other, nodes_map)
        if isinstance(mine, (list, tuple)) and isinstance(other, (list, tuple)):
            pairs = list(zip(mine, other, strict=False))
            return len(mine) == len(other) and all(
                self._same_argument(a, b, nodes_map) for a, b in pairs
            )
        if isinstance(mine, dict) and isinstance(other, dict):
            return mine.keys() == other.keys() and all(
                self._same_argument(mine[key], other[key], nodes_map) for key in mine
            )
        if isinstance(other, Node):
            return False
        return self.ignore_literals or (type(mine) is type(other) and mine == other)


def _same_target(mine: Node, other: Node) -> bool:
    if mine.op == "call_module":
        owners = mine.graph.owning_module, other.graph.owning_module
        if all(owner is not None for owner in owners):
            found = [_find(o, str(n.target)) for o, n in zip(owners, (mine, other), strict=True)]
            if all(isinstance(module, Module) for module in found):
                return type(found[0]) is type(found[1])
    return mine.target == other.target


def _replace(
    gm: GraphModule, wanted: Graph, new: Graph, found: Match, changed: dict[Node, Node]
) -> ReplacedPatterns:
    graph = gm.graph
    mine = [n for n in wanted.nodes if n.op == "placeholder"]
    theirs = [n for n in new.nodes if n.op == "placeholder"]
    if len(mine) != len(theirs):
        raise AssertionError(
            f"the pattern has {len(mine)} inputs and its replacement {len(theirs)}"
        )
    values: dict[Node, Any] = {}
    for p, r in zip(mine, theirs, strict=True):
        at = found.nodes_map[p]
        while at in changed:  # an earlier replacement took the node's place
            at = changed[at]
        values[r] = at
    inner = [
        n for n in graph.nodes if any(n is g for p, g in found.nodes_map.items() if p not in mine)
    ]
    before = set(graph.nodes)
    old = [found.nodes_map[p] for p in nodes_in(wanted.output_node().args[0])]
    users = {user for node in old for user in node.users}
    first = next((n for n in graph.nodes if n in users), inner[-1].next)
    with graph.inserting_before(first):
        result = graph.graph_copy(new, values)
    made = [n for n in graph.nodes if n not in before]
    for node, instead in zip(old, nodes_in(result), strict=True):
        node.replace_all_uses_with(instead)
        changed[node] = instead
    for node in reversed(inner):
        if not node.users:
            graph.erase_node(node)
    return ReplacedPatterns(found.anchor, found.nodes_map, made)


def _copy_modules(gm: GraphModule, replacement: Any) -> None:
    """Let a module have the submodules and parameters that the replacement refers to."""
    source = replacement if isinstance(replacement, Module) else None
    gm.delete_all_unused_submodules()
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr") and _find(gm, str(node.target)) is None:
            value = None if source is None else _find(source, str(node.target))
            if value is None:
                raise RuntimeError(
                    f'Attempted to create a "{node.op}" node during subgraph rewriting with target '
                    f"{node.target}, but the referenced attribute does not exist in the "
                    "replacement GraphModule"
                )
            _assign(copy.deepcopy(value), gm, str(node.target))
    gm.graph.lint()
