"""Graphs for other eyes: the document of the page, JSON, Mermaid, Graphviz, HTML."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.tensor import Tensor
from weft.graph import cost
from weft.graph.spec import INNER, LEAVES, Ref, Spec, dtype_name, show_kind, show_value
from weft.graph.stats import number, summary

if TYPE_CHECKING:
    from weft.graph.graph import Graph

FORMAT = 1


def document(graphs: Any, title: str = "weft graph", first_step: int = 0) -> dict[str, Any]:
    """One graph, or one for each step, as plain data: what the page draws and ``to_json`` gives."""
    listed = list(graphs) if isinstance(graphs, (list, tuple)) else [graphs]
    steps = [step(graph, first_step + k) for k, graph in enumerate(listed)]
    return {"weft_graph": FORMAT, "title": title, "steps": steps}


def step(graph: Graph, number: int = 0) -> dict[str, Any]:
    """The nodes of one graph as plain data."""
    graph._check_whole()
    names, specs = graph._names(), graph._specs
    return {
        "step": number,
        "nodes": [_node(graph, spec, names[spec.id]) for spec in specs.values()],
        "outputs": list(dict.fromkeys(r.node for r in graph._outputs)),
        "modules": _modules(graph),
    }


def _modules(graph: Graph) -> dict[str, str]:
    """Every path that nodes have, and the paths around them, with their classes if known."""
    found: dict[str, str] = {}
    for spec in graph._specs.values():
        path = spec.scope
        while path and path not in found:
            found[path] = graph.modules.get(path, "")
            path = path.rpartition(".")[0]
    return dict(sorted(found.items()))


def _node(graph: Graph, spec: Spec, name: str) -> dict[str, Any]:
    value, grad = _known_value(graph, spec), _known_grad(graph, spec)
    shape = [_plain_shape(s) for s, _ in spec.kinds()]
    dtypes = list(dict.fromkeys(dtype_name(d) for _, d in spec.kinds()))
    return {
        "id": spec.id,
        "name": name,
        "op": spec.op_name,
        "kind": spec.kind,
        "module": spec.scope,
        "shape": shape if spec.several else shape[0],
        "dtype": ", ".join(dtypes),
        "bytes": spec.nbytes(),
        "flops": cost.flops(spec, graph._specs),
        "time": spec.time,
        "source": spec.position(),
        "inputs": [[x.node, x.index] for x in spec.refs() if x.node in graph._specs],
        "forward": spec.forward if spec.forward in graph._specs else None,
        "attrs": _attrs(spec),
        "stats": None if value is None else summary(value),
        "grad_norm": None if grad is None else _norm(grad),
    }


def _plain_shape(shape: Any) -> list[int]:
    return [] if shape is None else [int(n) for n in shape]


def _attrs(spec: Spec) -> dict[str, str]:
    shown = {k: show_value(v) for k, v in spec.attrs.items() if k not in INNER}
    for i, x in enumerate(spec.args):
        if x.__class__ is not Ref and x is not None:
            names = getattr(spec.op, "names", ())
            shown[names[i] if i < len(names) else f"input {i}"] = show_value(x)
    return shown


def _known_value(graph: Graph, spec: Spec) -> np.ndarray | None:
    held = graph._kept.get(spec.id)
    found: Any = held[0] if held else None
    if found is None and spec.leaf is not None:
        found = spec.leaf.tensor
    return found._a if isinstance(found, Tensor) else None


def _known_grad(graph: Graph, spec: Spec) -> np.ndarray | None:
    found = graph._grads.get(spec.id)
    if found is None and spec.leaf is not None:
        tensor = spec.leaf.tensor
        found = None if tensor is None else tensor._grad
    return None if found is None else found._a


def _norm(array: np.ndarray) -> float | None:
    values = array if array.dtype.kind in "fc" else array.astype(np.float32)
    with np.errstate(all="ignore"):
        return number(float(np.linalg.norm(values.ravel())))


class Exporting:
    """How a graph writes itself down."""

    def to_json(self, title: str = "weft graph", indent: int | None = None) -> str:
        """The graph as JSON text (nodes, shapes, costs, statistics), to look at and not to run."""
        return json.dumps(document(self, title), indent=indent)

    def to_html(self, title: str = "weft graph") -> str:
        """A page of its own that draws the graph in any browser."""
        return importlib.import_module("weft.graph.page").html(document(self, title))

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
