"""Watching a training: when and where the graph of a step differs from that of the previous
step.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.autograd.engine import WATCHERS
from weft.core.frames import caller
from weft.core.node import AccumulateGrad, GraphNode, OpNode, Output
from weft.core.scopes import split
from weft.graph.build import behind, graph_of_nodes
from weft.graph.comparing import Diff, diff
from weft.graph.graph import Graph

_PLACES = 64  # of a program, from which backward() is called
_KNOWN = 16  # structures that are remembered, so that their return costs nothing


class StepChange:
    """A step whose structure differs from the one before, and how."""

    def __init__(self, step: int, before: int, difference: Diff | None) -> None:
        self.step, self.before, self.difference = step, before, difference

    def __repr__(self) -> str:
        told = "" if self.difference is None else f"\n{self.difference}"
        return f"step {self.step} is not like step {self.before}{told}"


class Watch:
    """Reports when the structure of the steps changes. A step is a backward pass of this thread."""

    def __init__(self, tell: Callable[[StepChange], Any] | None = None, keep: int = 100) -> None:
        self.tell, self.keep = tell, keep
        self.steps = 0
        self.changes: list[StepChange] = []
        self._thread = threading.get_ident()
        self._entered = 0
        # The structure of the last step of each backward() in the program, and its number.
        self._last: OrderedDict[Any, tuple[int, int]] = OrderedDict()
        self._known: OrderedDict[int, tuple[Graph, int]] = OrderedDict()

    def __enter__(self) -> Watch:
        self._thread = threading.get_ident()
        self._entered += 1
        if self not in WATCHERS:
            WATCHERS.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        self._entered = max(0, self._entered - 1)
        if not self._entered:
            self.stop()

    def start(self) -> Watch:
        """Start watching, until ``stop``."""
        return self.__enter__()

    def stop(self) -> None:
        """Stop watching; the findings are kept."""
        self._entered = 0
        if self in WATCHERS:
            WATCHERS.remove(self)

    def goes_back(self, work: Any, roots: Any) -> None:
        """A backward pass begins: its nodes still have all that they had."""
        if threading.get_ident() == self._thread and work.ends_step:
            self.look([node for node, _ in roots])

    def went_back(self, work: Any, roots: Any) -> None:
        """Nothing to do: the structure was seen before."""

    def look(self, roots: list[GraphNode]) -> None:
        """Compare the graph behind some nodes with that of the step before.

        That is the last one whose ``backward()`` was called by the same line: a program that
        trains two losses in turn has two kinds of steps.
        """
        frame = caller(sys._getframe(1))
        place = (frame.f_code, frame.f_lasti)
        step, self.steps = self.steps, self.steps + 1
        nodes = behind([r.node if isinstance(r, Output) else r for r in roots])
        now = structure(nodes)
        before, number = self._last.get(place, (None, step))
        self._last[place] = now, step
        self._last.move_to_end(place)
        while len(self._last) > _PLACES:
            self._last.popitem(last=False)
        if now not in self._known:
            self._known[now] = (graph_of_nodes(nodes, details=False), step)
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(now)
        if before is None or before == now:
            return
        old = self._known.get(before)
        found = None if old is None else diff(old[0], self._known[now][0], values=False)
        change = StepChange(step, number, found)
        self.changes.append(change)
        del self.changes[: -self.keep]
        if self.tell is not None:
            self.tell(change)

    def __repr__(self) -> str:
        head = f"{self.steps} steps, {len(self.changes)} changes"
        return "\n".join([head, *(repr(c) for c in self.changes[-5:])])


def structure(nodes: list[Any]) -> int:
    """One number for the structure of a graph: ops, wiring, shapes, modules and lines."""
    numbers: dict[Any, int] = {}
    parts: list[Any] = []
    paths: dict[str, Any] = {}  # a model is known by its place among the models here
    models: dict[str, int] = {}
    for k, node in enumerate(nodes):
        numbers[node] = k
        if not isinstance(node, OpNode):
            parts.append(0)
            continue
        edges: list[Any] = []
        for edge in node.inputs:
            if edge.__class__ is Output:
                edges.append((numbers[edge.node], edge.index))
            elif isinstance(edge, AccumulateGrad):
                edges.append(edge.shape)
            elif isinstance(edge, GraphNode):
                edges.append(numbers[edge])
            else:
                edges.append(edge.__class__)  # the value of a number is not structure
        path = paths.get(node.scope)
        if path is None:
            tag, rest = split(node.scope)
            path = paths[node.scope] = (models.setdefault(tag, len(models)), rest)
        parts.append(
            (node.plan.op.name, tuple(edges), node.shape, node.code, node.instruction, path)
        )
        if node.attrs:
            parts.append(tuple([v for v in node.attrs.values() if _is_structure(v)]))
    return hash(tuple(parts))


def _is_structure(value: Any) -> bool:
    kind = value.__class__
    if kind is tuple:
        return all(map(_is_structure, value))
    return kind is int or kind is bool or kind is str or value is None


def watch(tell: Callable[[StepChange], Any] | None = None, keep: int = 100) -> Watch:
    """Follow the training in a block: a structural hash a step, details only of changes.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.graph.watch() as w:
    ...     for k in range(4):
    ...         (x.exp() if k == 2 else x.sin()).sum().backward()
    >>> [change.step for change in w.changes]
    [2, 3]
    """
    return Watch(tell, keep)


__all__ = ["StepChange", "Watch", "watch"]
