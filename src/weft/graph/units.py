"""A module of the program as one unit of a graph: to inspect, extract, replace or remove."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.core import errors
from weft.graph.edit import Edit, called, function_of
from weft.graph.run import GraphError, NoSuchNode
from weft.graph.selecting import in_module
from weft.graph.spec import FORWARD, LEAVES, PARAMETER, Ref, Spec

if TYPE_CHECKING:
    from weft.graph.graph import Graph, Node


class ModuleCall:
    """One call of a module: its inputs from outside, and its results that others read."""

    def __init__(self, graph: Graph, specs: list[Spec]) -> None:
        self.specs = specs
        inside = {s.id for s in specs}
        known = graph._specs
        reads = dict.fromkeys(r for s in specs for r in s.refs() if r.node not in inside)
        self.inputs = [r for r in reads if not _is_own(known[r.node])]
        ends = set(graph._outputs) | {r for p in graph._passes for r, _ in p.roots if r is not None}
        for spec in known.values():
            if spec.kind == FORWARD and spec.id not in inside:
                ends.update(spec.refs())
        self.outputs = [r for s in specs for r in s.results() if r in ends]


def _is_own(spec: Spec) -> bool:
    """Whether a leaf is a parameter, or a buffer of a module."""
    return spec.kind == PARAMETER or (spec.kind in LEAVES and "state" in spec.attrs)


class Unit:
    """All that a module did in a graph. Edits give a new graph, as those of nodes do."""

    def __init__(self, graph: Graph, path: str) -> None:
        self.graph, self.path = graph, path
        inside = [
            s for s in graph._specs.values() if s.kind == FORWARD and in_module(s.scope, path)
        ]
        if not inside:
            known = sorted({s.scope for s in graph._specs.values() if s.scope})
            near = [m for m in known if path.rpartition(".")[2] in m][:8] or known[:12]
            raise NoSuchNode(
                f"no module {path!r} ran in the graph; there are {near}\n  at {errors.here()}"
            )
        self.calls = [ModuleCall(graph, specs) for specs in _runs(graph, inside)]

    @property
    def nodes(self) -> list[Node]:
        """The forward nodes, oldest first."""
        return [self.graph._node(s.id) for call in self.calls for s in call.specs]

    @property
    def inputs(self) -> list[Node]:
        """The nodes outside, parameters aside, that the module reads."""
        return self._nodes("inputs")

    @property
    def outputs(self) -> list[Node]:
        """The nodes whose results others read, or the graph gives."""
        return self._nodes("outputs")

    def _nodes(self, side: str) -> list[Node]:
        ids = dict.fromkeys(r.node for call in self.calls for r in getattr(call, side))
        return [self.graph._node(id) for id in ids]

    @property
    def parameters(self) -> list[Node]:
        """The module's parameters that were used."""
        return [
            self.graph._node(s.id)
            for s in self.graph._specs.values()
            if s.kind == PARAMETER and in_module(s.scope, self.path)
        ]

    def subgraph(self) -> Graph:
        """The module as a graph of its own, which can be called on its inputs."""
        if len(self.calls) > 1:
            raise GraphError(
                f"{self.path!r} was called {len(self.calls)} times; give the nodes of one call to "
                f"subgraph(inputs, outputs)\n  at {errors.here()}"
            )
        call = self.calls[0]
        nodes = self.graph._node
        part = self.graph.subgraph(
            [nodes(k) for k in dict.fromkeys(r.node for r in call.inputs)],
            [nodes(k) for k in dict.fromkeys(r.node for r in call.outputs)],
        )
        part._outputs = tuple(call.outputs)  # of an op's results those that are read
        return part

    def replace(self, function: Any) -> Graph:
        """Another function or module instead of this one, on the same inputs."""
        function = function_of(function)
        edit = Edit(self.graph, f"replace {self.path} by {called(function)}")
        for call in self.calls:
            results = edit.call(function, list(call.inputs), call.specs[-1])
            if len(results) != len(call.outputs):
                raise edit.refused(
                    f"it has {len(call.outputs)} results and the function gives {len(results)}"
                )
            self._put(edit, call, results)
        return edit.done()

    def remove(self) -> Graph:
        """The graph without the module: its input goes to the readers of its result."""
        edit = Edit(self.graph, f"remove {self.path}")
        for call in self.calls:
            if len(call.outputs) != 1 or not call.inputs:
                raise edit.refused(
                    f"it has {len(call.inputs)} inputs and {len(call.outputs)} results, so no "
                    "input can stand in for what it gives; use replace"
                )
            self._put(edit, call, [call.inputs[0]])
        return edit.done()

    def _put(self, edit: Edit, call: ModuleCall, results: list[Any]) -> None:
        """Let others read new results; what the module wrote down for itself goes with it."""
        inside = {s.id for s in call.specs}
        edit.cut |= inside
        edit.updates = {k: r for k, r in edit.updates.items() if r.node not in inside}
        for old, new in zip(call.outputs, results, strict=True):
            edit.redirect(old, new)

    def __repr__(self) -> str:
        kind = self.graph.modules.get(self.path, "module")
        lines = [f"{self.path}: {kind}, {len(self.nodes)} nodes in {len(self.calls)} calls"]
        for title in ("inputs", "outputs", "parameters"):
            lines.append(f"  {title}: {', '.join(map(repr, getattr(self, title))) or 'none'}")
        return "\n".join(lines)


def _runs(graph: Graph, inside: list[Spec]) -> list[list[Spec]]:
    """The calls of a module: stretches of its nodes without others between them."""
    chosen = {s.id for s in inside}
    found: list[list[Spec]] = []
    open_ = False
    for spec in graph._specs.values():
        if spec.id in chosen:
            if not open_:
                found.append([])
            found[-1].append(spec)
            open_ = True
        elif spec.kind == FORWARD:
            open_ = False
    return found


__all__ = ["Ref", "Unit"]
