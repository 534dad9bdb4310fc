"""Elementwise fusion: neighbouring elementwise nodes become one loop."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.compiler.fused import FusedWork, is_elementwise, kind_of
from weft.compiler.ir import Value, WorkNode

LARGEST = 32  # ops in one loop
ARRAYS = 16  # arrays that one loop reads and writes, at most
SEARCHED = 64  # groups that are searched for one between two others


class _Group:
    """Nodes that run as one loop."""

    def __init__(self, index: int, node: WorkNode) -> None:
        self.members = [(index, node)]
        self.elementwise = is_elementwise(node) and 0 not in node.results[0].shape
        self.kind = kind_of(node) if self.elementwise else None
        self.shape = node.results[0].shape if self.elementwise else None
        self.first = self.last = index

    def takes(self, other: _Group) -> bool:
        """Whether another group has the same shape and dtype, and both fit into one loop."""
        return (
            self.elementwise
            and other.elementwise
            and self.shape == other.shape
            and (self.kind is None or other.kind is None or self.kind == other.kind)
            and len(self.members) + len(other.members) <= LARGEST
            and self._arrays(other) <= ARRAYS
        )

    def _arrays(self, other: _Group) -> int:
        nodes = [n for _, n in (*self.members, *other.members)]
        made = {r for n in nodes for r in n.results}
        return len({x for n in nodes for x in n.inputs()} - made)


def fused(nodes: Sequence[WorkNode], ends: Iterable[Any]) -> list[WorkNode]:
    """The nodes, with neighbours joined unless a node between them prevents it."""
    groups: dict[int, _Group] = {}  # by identity
    maker: dict[Value, _Group] = {}
    spans = _Spans(len(nodes))
    for index, node in enumerate(nodes):
        group = _Group(index, node)
        groups[id(group)] = group
        if group.elementwise:
            for x in dict.fromkeys(node.inputs()):
                other = maker.get(x)
                if other is None or other is group or not other.takes(group):
                    continue
                if not _between(other, group, maker, spans):
                    group = _joined(other, group, maker, groups)
                    spans.cover(group.first, group.last)
        for r in node.results:
            maker[r] = group
    return _in_order(list(groups.values()), maker, ends)


def _joined(
    into: _Group, group: _Group, maker: dict[Value, _Group], groups: dict[int, _Group]
) -> _Group:
    into.members = sorted(into.members + group.members, key=lambda member: member[0])
    into.kind = into.kind or group.kind
    into.first, into.last = min(into.first, group.first), max(into.last, group.last)
    del groups[id(group)]
    for _, node in group.members:
        for r in node.results:
            if maker.get(r) is group:
                maker[r] = into
    return into


class _Spans:
    """The positions of nodes, merged where a group spans them.

    A group reads from groups that begin before its end. So a group that ends before a merged span
    of positions does not depend on that span.
    """

    def __init__(self, count: int) -> None:
        self._before = list(range(count))

    def first(self, place: int) -> int:
        """The first position of the span that a position belongs to."""
        before = self._before
        while before[place] != place:
            before[place] = place = before[before[place]]
        return place

    def cover(self, first: int, last: int) -> None:
        """Merge the positions from the first to the last."""
        place = self.first(last)
        while place > first:
            self._before[place] = place - 1
            place = self.first(place)


def _between(early: _Group, late: _Group, maker: dict[Value, _Group], spans: _Spans) -> bool:
    """Whether the later group depends on the earlier one through a third one.

    If the search takes too long, as between the two ends of a large graph, the answer is yes.
    """
    stack = [g for g in _sources(late, maker) if g is not early]
    seen = set(map(id, stack))
    first = spans.first(early.first)
    while stack:
        group = stack.pop()
        for source in _sources(group, maker):
            if source is early or len(seen) > SEARCHED:
                return True
            if id(source) not in seen and source.last >= first:
                seen.add(id(source))
                stack.append(source)
    return False


def _sources(group: _Group, maker: dict[Value, _Group]) -> list[_Group]:
    """The groups that a group reads from."""
    found: dict[int, _Group] = {}
    for _, node in group.members:
        for x in node.inputs():
            source = maker.get(x)
            if source is not None and source is not group:
                found[id(source)] = source
    return list(found.values())


def _in_order(
    groups: list[_Group], maker: dict[Value, _Group], ends: Iterable[Any]
) -> list[WorkNode]:
    """The groups as nodes, each after what it reads."""
    wanted = {x for x in ends if isinstance(x, Value)}
    readers: dict[Value, set[int]] = {}
    for group in groups:
        for _, node in group.members:
            for x in node.inputs():
                readers.setdefault(x, set()).add(id(group))
    done: set[int] = set()
    found: list[WorkNode] = []
    sources = {id(group): _sources(group, maker) for group in groups}
    for start in sorted(groups, key=lambda group: group.last):
        stack = [start]
        while stack:
            group = stack[-1]
            if id(group) in done:
                stack.pop()
            elif waits := [g for g in sources[id(group)] if id(g) not in done]:
                stack += waits
            else:
                stack.pop()
                done.add(id(group))
                found.append(_node(group, wanted, readers))
    return found


def _node(group: _Group, wanted: set[Value], readers: dict[Value, set[int]]) -> WorkNode:
    nodes = [node for _, node in group.members]
    if not group.elementwise:
        return nodes[0]
    made = [r for node in nodes for r in node.results]
    inside = set(made)
    inputs = list(dict.fromkeys(x for n in nodes for x in n.inputs() if x not in inside))
    results = [r for r in made if r in wanted or readers.get(r, set()) - {id(group)}]
    return WorkNode(FusedWork(nodes, inputs, results), inputs, results, nodes[-1].spec)
