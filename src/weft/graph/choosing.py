"""What a recorder is to keep, and where it is to stop: nodes by name, while they are made."""

from __future__ import annotations

from collections import Counter
from typing import Any

from weft.graph.graph import Node
from weft.graph.naming import Models
from weft.graph.selecting import Select, as_select
from weft.graph.spec import Spec


class Stopped(BaseException):
    """Ends a block whose recorder has seen all that was asked for; nobody is to catch it."""

    def __init__(self, recorder: Any, spec: Spec) -> None:
        super().__init__("the block was stopped by record(stop=...)")
        self.recorder, self.spec = recorder, spec


class _Passing(Node):
    """A node that was just made; its name is the one it will have, as far as that is known."""

    __slots__ = ("_name", "_path")

    @property
    def name(self) -> str:
        return self._name

    @property
    def module(self) -> str:
        return self._path


class Choice:
    """Which nodes a recorder keeps, and which one ends its block."""

    def __init__(self, values: Any, stop: Any) -> None:
        self.any = values is not False
        self.keep: Select | None = None if values in (True, False) else as_select(values)
        self.stop: Select | None = None if stop is None else as_select(stop)
        self.by_name = self.keep is not None or self.stop is not None
        self.counts: Counter[str] = Counter()
        self.kept: set[int] = set()
        self.last: Spec | None = None  # the node that ends the block

    def look(self, graph: Any, spec: Spec, models: Models) -> None:
        """Note what is to happen with a node."""
        node = _Passing(graph, spec)
        node._path = models.shown(spec.scope)
        base = f"{node._path}.{spec.title}" if node._path else spec.title
        self.counts[base] += 1
        count = self.counts[base]
        node._name = base if count == 1 else f"{base}:{count}"
        if self.keep is not None and self.keep(node):
            self.kept.add(spec.id)
        if self.stop is not None and self.last is None and self.stop(node):
            self.last = spec

    def keeps(self, spec: Spec) -> bool:
        """Whether the value of a node is kept."""
        return self.any and (self.keep is None or spec.id in self.kept)
