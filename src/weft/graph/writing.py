"""A graph as plain data, for the page and for ``to_json``.

A graph may have a hundred thousand nodes, most of them alike. So each node is written as JSON text
right away, and what nodes share (a line, a shape, a call stack) is worked out once.
"""

from __future__ import annotations

import json
import linecache
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import errors
from weft.core.devices import visible
from weft.core.tensor import Tensor
from weft.graph import cost
from weft.graph.categories import category
from weft.graph.spec import INNER, Ref, Spec, dtype_name, show_value
from weft.graph.stats import number, summary

if TYPE_CHECKING:
    from weft.graph.graph import Graph

FORMAT = 1
AROUND = 3  # lines of source that are told before and after a node's own


def document(graphs: Any, title: str = "weft graph", first_step: int = 0) -> dict[str, Any]:
    """One graph, or one for each step, as plain data, for the page and for ``to_json``."""
    return json.loads(document_text(graphs, title, first_step))


def document_text(graphs: Any, title: str = "weft graph", first_step: int = 0) -> str:
    """The same as JSON text; everything in it is a finite number or a string."""
    listed = list(graphs) if isinstance(graphs, (list, tuple)) else [graphs]
    steps = ",".join(step_text(graph, first_step + k) for k, graph in enumerate(listed))
    return f'{{"weft_graph":{FORMAT},"title":{quoted(title)},"steps":[{steps}]}}'


def step(graph: Graph, number: int = 0) -> dict[str, Any]:
    """The nodes of one graph as plain data."""
    return json.loads(step_text(graph, number))


def step_text(graph: Graph, number: int = 0) -> str:
    """The same as JSON text."""
    graph._check_whole()
    writer = _DocumentWriter(graph)
    nodes = ",".join([writer.node(spec) for spec in graph._specs.values()])
    rest = {
        "outputs": list(dict.fromkeys(r.node for r in graph._outputs)),
        "modules": _modules(graph),
        "stacks": writer.stacks,
        "lines": writer.lines(),
    }
    return f'{{"step":{number},"nodes":[{nodes}],{_compact(rest)[1:]}'


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _shown(value: Any) -> str:
    """A setting, as a quoted string."""
    if value.__class__ is int or value.__class__ is float:
        return f'"{value!r}"'
    return quoted(show_value(value))


def _modules(graph: Graph) -> dict[str, str]:
    """Every path that nodes have, and the paths around them, with their classes if known."""
    found: dict[str, str] = {}
    for path in dict.fromkeys(spec.scope for spec in graph._specs.values()):
        while path and path not in found:
            found[path] = graph.modules.get(path, "")
            path = path.rpartition(".")[0]
    return dict(sorted(found.items()))


class _DocumentWriter:
    """Writes the nodes of one graph down, and remembers what many of them share."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.specs, self.names = graph, graph._specs, graph._names()
        self.heads: dict[Any, str] = {}
        self.kinds: dict[Any, str] = {}
        self.spots: dict[Any, str] = {}
        self.places: dict[Any, str | None] = {}
        self.texts: dict[str, dict[int, str]] = {}
        self.stacks: list[list[str]] = []

    def node(self, spec: Spec) -> str:
        """One node as JSON text."""
        specs, partner = self.specs, spec.forward
        inputs = ",".join(
            [f"[{x[0]},{x[1]}]" for x in spec.args if x.__class__ is Ref and x[0] in specs]
        )
        time = "null" if spec.time is None else repr(float(spec.time))
        return (
            f'{{"id":{spec.id},"name":{quoted(self.names[spec.id])},{self._head(spec)},'
            f'{self._kind(spec)},"flops":{cost.flops(spec, specs)},"time":{time},'
            f'{self._spot(spec)},"inputs":[{inputs}],'
            f'"forward":{partner if partner in specs else "null"},'
            f'"attrs":{{{self._attrs(spec)}}},{self._values(spec)}}}'
        )

    def _head(self, spec: Spec) -> str:
        """What the node is and where it belongs."""
        partner = self.specs.get(spec.forward) if spec.forward is not None else None
        key = (spec.op, spec.kind, spec.scope, None if partner is None else partner.op)
        found = self.heads.get(key)
        if found is None:
            sort = category(spec, self.specs)
            pairs = zip(
                ("op", "kind", "module", "category"),
                (spec.op_name, spec.kind, spec.scope, sort),
                strict=True,
            )
            found = ",".join([f'"{name}":{quoted(text)}' for name, text in pairs])
            self.heads[key] = found
        return found

    def _kind(self, spec: Spec) -> str:
        """Shape, dtype and bytes."""
        key = (spec.shape, spec.dtype, getattr(spec.op, "view", False))
        found = self.kinds.get(key)
        if found is None:
            shapes = [[] if s is None else [int(n) for n in s] for s, _ in spec.kinds()]
            dtypes = dict.fromkeys(dtype_name(d) for _, d in spec.kinds())
            shape = _compact(shapes if spec.several else shapes[0])
            found = f'"shape":{shape},"dtype":{quoted(", ".join(dtypes))},"bytes":{spec.nbytes()}'
            self.kinds[key] = found
        return found

    def _attrs(self, spec: Spec) -> str:
        """The settings of the op, and inputs that are not tensors."""
        shown = {k: v for k, v in spec.attrs.items() if k not in INNER} if spec.attrs else {}
        for i, x in enumerate(spec.args):
            if x.__class__ is not Ref and x is not None:
                names = getattr(spec.op, "names", ())
                shown[names[i] if i < len(names) else f"input {i}"] = x
        return ",".join([f"{quoted(k)}:{_shown(x)}" for k, x in shown.items()]) if shown else ""

    # --- values ---

    def _values(self, spec: Spec) -> str:
        graph = self.graph
        held, grad = graph._kept.get(spec.id), graph._grads.get(spec.id)
        if held is None and grad is None and spec.leaf is None:
            return '"stats":null,"grad_norm":null'
        value = held[0] if held else None
        tensor = None if spec.leaf is None else spec.leaf.tensor
        if tensor is not None:
            value = tensor if value is None else value
            grad = tensor._grad if grad is None else grad
        stats = summary(visible(value)) if isinstance(value, Tensor) else None
        norm = None if grad is None else _norm(visible(grad))
        return f'"stats":{_compact(stats)},"grad_norm":{_compact(norm)}'

    # --- places in the program ---

    def _source(self, spec: Spec) -> str | None:
        if spec.source is not None:
            place = spec.position()
            if place is not None:
                file, _, line = place.rpartition(":")
                text = spec.source[len(place) + 2 :]
                if text and line.isdecimal():
                    self.texts.setdefault(file, {})[int(line)] = text
            return place
        return self._place(spec.code, spec.instruction)

    def _spot(self, spec: Spec) -> str:
        """The line, and the number of the call stack in the list of all stacks."""
        key = (spec.code, spec.instruction, spec.source, spec.stack)
        found = self.spots.get(key)
        if found is None:
            source, stack = self._source(spec), "null"
            if spec.stack:
                places = [source, *(self._place(*one) for one in spec.stack)]
                stack = str(len(self.stacks))
                self.stacks.append([place for place in places if place])
            found = f'"source":{"null" if source is None else quoted(source)},"stack":{stack}'
            self.spots[key] = found
        return found

    def _place(self, code: Any, instruction: int) -> str | None:
        """``file.py:12``; the lines around it are kept."""
        if code is None:
            return None
        try:
            return self.places[code, instruction]
        except KeyError:
            pass
        found = errors.position(code, instruction)
        place = None
        if found is not None:
            file = errors.shown_file(found[0])
            place = f"{file}:{found[1]}"
            lines = self.texts.setdefault(file, {})
            for k in range(max(1, found[1] - AROUND), found[1] + AROUND + 1):
                if k not in lines and (text := linecache.getline(found[0], k)):
                    lines[k] = text.rstrip("\n")[:200]
        self.places[code, instruction] = place
        return place

    def lines(self) -> dict[str, dict[str, str]]:
        """The text of the lines that nodes come from, with some around, by file."""
        return {
            file: {str(k): text for k, text in sorted(lines.items())}
            for file, lines in self.texts.items()
            if lines
        }


def _norm(array: np.ndarray) -> float | None:
    values = array if array.dtype.kind in "fc" else array.astype(np.float32)
    with np.errstate(all="ignore"):
        return number(float(np.linalg.norm(values.ravel())))
