"""The graph behind a tensor, as an object to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from weft.core import errors
from weft.core.dtype import OF_NUMPY
from weft.core.node import NOWHERE, AccumulateGrad, GraphNode, Node, Output
from weft.core.tensor import Tensor

__all__ = ["Graph", "GraphEntry", "of"]


class GraphEntry:
    """A node of a graph under the name it has there."""

    def __init__(self, name: str, node: GraphNode, inputs: tuple[str, ...]) -> None:
        self.name = name
        self.node = node
        self.inputs = inputs

    @property
    def op(self) -> str:
        """The name of the op, or ``leaf``."""
        return self.node.op.name if isinstance(self.node, Node) else "leaf"

    @property
    def shape(self) -> Any:
        """The shape of the result; a tuple of shapes where there are several."""
        return self.node.shape

    @property
    def dtype(self) -> str:
        """The dtype of the result."""
        found = self.node.dtype
        if isinstance(found, tuple):
            return ", ".join(OF_NUMPY[d].name for d in found)
        return "?" if found is None else OF_NUMPY[found].name

    @property
    def module(self) -> str:
        """The path of the module in which the op ran, such as ``encoder.layers.0``."""
        return self.node.scope if isinstance(self.node, Node) else ""

    @property
    def source(self) -> str:
        """The user's line that made the node."""
        return self.node.source if isinstance(self.node, Node) else ""

    def __repr__(self) -> str:
        return f"<{self.name} {self.dtype}{_shape(self.shape)}>"


class Graph:
    """What was recorded, oldest first. Printing it gives a table."""

    def __init__(self, entries: list[GraphEntry]) -> None:
        self.entries = entries
        self._by_name = {e.name: e for e in entries}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[GraphEntry]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> GraphEntry:
        if name not in self._by_name:
            raise KeyError(f"the graph has no node {name!r}; its names: {list(self._by_name)[:20]}")
        return self._by_name[name]

    def __repr__(self) -> str:
        rows = [("name", "result", "from", "module", "line")]
        rows += [
            (e.name, f"{e.dtype}{_shape(e.shape)}", ", ".join(e.inputs), e.module, e.source)
            for e in self.entries
        ]
        if not any(e.module for e in self.entries):
            rows = [(*r[:3], r[4]) for r in rows]  # type: ignore[misc]
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        return "\n".join(
            "  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows
        )


def _shape(shape: Any) -> str:
    if shape is None:
        return "[gone]"
    if shape and isinstance(shape[0], tuple):
        return " ".join(str(list(s)) for s in shape)
    return str(list(shape))


def _behind(root: GraphNode) -> list[GraphNode]:
    """All nodes and leaves behind a node, leaves first, then oldest first."""
    seen: dict[GraphNode, None] = {root: None}
    stack = [root]
    while stack:
        for edge in stack.pop().inputs:
            edge = edge.node if isinstance(edge, Output) else edge
            if isinstance(edge, GraphNode) and edge is not NOWHERE and edge not in seen:
                seen[edge] = None
                stack.append(edge)
    return sorted(seen, key=lambda n: n.seq)


def of(tensor: Tensor) -> Graph:
    """The graph behind a tensor.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> [entry.name for entry in weft.graph.of((x * x).sum())]
    ['leaf', 'mul', 'sum']
    """
    root = tensor.grad_fn or tensor._node
    if root is None:
        raise RuntimeError(
            "graph.of: this tensor was not recorded: nothing it was computed from requires a "
            f"gradient, or it was made inside no_grad\n  at {errors.here()}"
        )
    counts: Counter[str] = Counter()
    names: dict[GraphNode, str] = {}
    entries = []
    for node in _behind(root):
        base = node.op.name if isinstance(node, Node) else _leaf_name(node)
        counts[base] += 1
        names[node] = base if counts[base] == 1 else f"{base}:{counts[base]}"
        inputs = []
        for edge in getattr(node, "inputs", ()):
            made = edge.node if isinstance(edge, Output) else edge
            if isinstance(made, GraphNode) and made in names:
                inputs.append(names[made])
            elif isinstance(edge, (int, float, complex)):
                inputs.append(repr(edge))
            else:
                inputs.append("constant")
        entries.append(GraphEntry(names[node], node, tuple(inputs)))
    return Graph(entries)


def _leaf_name(node: Any) -> str:
    tensor = node.variable if isinstance(node, AccumulateGrad) else None
    return getattr(tensor, "name", None) or "leaf" if tensor is not None else "leaf"
