"""Exporting graphs: the page's document, JSON, Mermaid, Graphviz, HTML."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from weft.graph.spec import LEAVES, Spec, show_kind
from weft.graph.summary import Summary, frame, node_rows
from weft.graph.writing import document, document_text, step

__all__ = ["Exporting", "document", "document_text", "step"]

if TYPE_CHECKING:
    from weft.graph.graph import Graph


class Exporting:
    """The export methods of a graph."""

    def to_json(self, title: str = "weft graph", indent: int | None = None) -> str:
        """The graph as JSON text (nodes, shapes, costs, statistics), to look at and not to run."""
        text = document_text(self, title)
        return text if indent is None else json.dumps(json.loads(text), indent=indent)

    def to_html(self, title: str = "weft graph") -> str:
        """A page of its own that draws the graph in any browser."""
        return importlib.import_module("weft.graph.page").wrapped(document_text(self, title), title)

    def summary(self, depth: int | None = None) -> Summary:
        """The graph by module: parameters, FLOPs, bytes and, if profiled, time.

        >>> import weft
        >>> net = weft.nn.Sequential(weft.nn.Linear(4, 2), weft.nn.ReLU())
        >>> with weft.graph.record() as g:
        ...     y = net(weft.ones(3, 4))
        >>> [(row["module"], row["parameters"], row["flops"]) for row in g.summary().rows]
        [('', 10, 54), ('0', 10, 48), ('1', 0, 6)]
        """
        return Summary(self, depth)  # type: ignore[arg-type]

    def to_pandas(self) -> Any:
        """The nodes as a pandas ``DataFrame``, one row each, indexed by name."""
        return frame(node_rows(self), "Graph.to_pandas").set_index("name")  # type: ignore[arg-type]

    def to_mermaid(self, backward: bool = False) -> str:
        """The graph as a Mermaid flowchart, with a box around each module."""
        graph: Graph = self  # type: ignore[assignment]
        specs, names = _shown(graph, backward), graph._names()
        lines = ["flowchart TD"]
        inside: dict[str, list[Spec]] = {}
        for spec in specs.values():
            inside.setdefault(spec.scope if spec.kind not in LEAVES else "", []).append(spec)
        for path, members in sorted(inside.items()):
            if path:
                lines.append(f'  subgraph "{_quoted(path)}"')
            for spec in members:
                text = f"{_quoted(names[spec.id])}<br/>{_quoted(_kinds(spec))}"
                left, right = ('(["', '"])') if spec.kind in LEAVES else ('["', '"]')
                lines.append(f"    n{spec.id}{left}{text}{right}")
            if path:
                lines.append("  end")
        lines += [f"  n{x.node} --> n{s.id}" for s in specs.values() for x in s.refs()
                  if x.node in specs]  # fmt: skip
        return "\n".join(lines)

    def to_dot(self, backward: bool = False) -> str:
        """The graph in Graphviz's language, with nested clusters for modules."""
        graph: Graph = self  # type: ignore[assignment]
        specs, names = _shown(graph, backward), graph._names()
        colours = {"backward": "lightpink", "optimizer": "lightgoldenrod", "forward": "lightblue"}
        tree: dict[str, Any] = {}
        for spec in specs.values():
            at = tree
            for part in spec.scope.split(".") if spec.scope and spec.kind not in LEAVES else ():
                at = at.setdefault(part, {})
            at.setdefault("", []).append(spec)
        lines = ["digraph weft {", "  node [shape=box, style=filled, fillcolor=white];"]

        def write(at: dict[str, Any], path: str, indent: str) -> None:
            for spec in at.get("", ()):
                label = f"{_escaped(names[spec.id])}\\n{_escaped(_kinds(spec))}"
                colour = colours.get(spec.kind, "white")
                lines.append(f'{indent}n{spec.id} [label="{label}", fillcolor={colour}];')
            for part, inner in at.items():
                if part:
                    full = f"{path}.{part}" if path else part
                    lines.append(f'{indent}subgraph "cluster_{_escaped(full)}" {{')
                    lines.append(f'{indent}  label="{_escaped(full)}";')
                    write(inner, full, indent + "  ")
                    lines.append(indent + "}")

        write(tree, "", "  ")
        lines += [f"  n{x.node} -> n{s.id};" for s in specs.values() for x in s.refs()
                  if x.node in specs]  # fmt: skip
        return "\n".join([*lines, "}"])


def _shown(graph: Graph, backward: bool) -> dict[int, Spec]:
    kinds = (*LEAVES, "forward")
    return {k: s for k, s in graph._specs.items() if backward or s.kind in kinds}


def _kinds(spec: Spec) -> str:
    return ", ".join(show_kind(s, d) for s, d in spec.kinds())


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
