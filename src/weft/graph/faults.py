"""Where a NaN or an infinity came from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.graph.explaining import ends_of, graph_behind
from weft.graph.graph import Graph
from weft.graph.graph import Node as GraphNode
from weft.graph.run import Execution, GraphError
from weft.graph.spec import Ref, Spec, listening
from weft.graph.stats import describe


class Bad:
    """The node that made the first NaN or infinity, with what it read."""

    def __init__(self, node: GraphNode, what: str, inputs: list[tuple[str, str]]) -> None:
        self.node, self.what, self.inputs = node, what, inputs

    def __repr__(self) -> str:
        lines = [f"{self.node.name} made the first {self.what}"]
        if self.node.source:
            lines.append(f"  at {self.node.source}")
        lines += [f"  {name}: {text}" for name, text in self.inputs]
        return "\n".join(lines)


def first_bad(loss: Tensor | Graph) -> Bad | None:
    """The first node that made the NaN or infinity that a loss has; None if the loss is finite.

    Of a recorded graph the kept values are read; otherwise what the loss was computed from is run
    again. An infinity that was put there on purpose, or that a later node swallowed, is no answer.
    """
    if isinstance(loss, Tensor) and not _badness((loss,)):
        return None
    graph = graph_behind(loss)
    ends = ends_of(graph)
    wanted = graph._behind(ends)
    run = Execution(graph, {}, reuse=False)
    sources: dict[int, int | None] = {}  # of what is not finite: the node that made it so
    found: dict[int, Bad] = {}
    with listening(), no_grad():
        for spec in graph._specs.values():
            if spec.id not in wanted:
                continue
            run.values[spec.id] = _again(graph, run, spec)
            what = _badness(run.values[spec.id])
            if not what:
                continue
            before = [sources[r.node] for r in spec.refs() if r.node in sources]
            made = [k for k in before if k is not None]
            if made:
                sources[spec.id] = min(made, key=list(found).index)
            elif _meant(spec, what) or (before and what == "infinity"):
                sources[spec.id] = None
            else:
                sources[spec.id] = spec.id
                found[spec.id] = _bad(graph, spec, what, run)
    guilty = {sources[k] for k in ends if k in sources}
    return next((bad for k, bad in found.items() if k in guilty), None)


def _again(graph: Graph, run: Execution, spec: Spec) -> Any:
    kept = graph._kept.get(spec.id)
    try:
        return run._compute(spec) if kept is None else kept
    except GraphError as error:
        name = graph._names()[spec.id]
        raise GraphError(f"first_bad can't run {name!r} again: {error}") from None


def _badness(values: Any) -> str:
    arrays = [t._a for t in values if isinstance(t, Tensor) and t._a.dtype.kind in "fcV"]
    arrays = [a.astype(np.float32) if a.dtype.kind == "V" else a for a in arrays]
    if any(np.isnan(a).any() for a in arrays):
        return "NaN"
    return "infinity" if any(np.isinf(a).any() for a in arrays) else ""


def _meant(spec: Spec, what: str) -> bool:
    """Whether the infinity was put there on purpose, as masks are."""
    if what == "NaN":
        return False
    given = [x for x in (*spec.args, *spec.attrs.values()) if isinstance(x, float)]
    return spec.kind == "constant" or any(math.isinf(x) for x in given)


def _bad(graph: Graph, spec: Spec, what: str, run: Execution) -> Bad:
    names, inputs = graph._names(), []
    for x in spec.args:
        if x.__class__ is Ref:
            value = run.values[x.node][x.index]
            text = f"{errors.describe(value)}, {describe(value._a)}"
            inputs.append((names[x.node], text))
        elif x is not None:
            inputs.append(("constant", repr(x)))
    return Bad(graph._node(spec.id), what, inputs)


__all__ = ["Bad", "first_bad"]
