"""A model's graph for TensorBoard, from the living graph of one run of it."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.graph.cost import flops
from weft.graph.graph import Graph
from weft.graph.recording import Recorder
from weft.graph.spec import FORWARD, INNER, PARAMETER, Ref, Spec, show_value
from weft.utils import _pytree
from weft.utils.tensorboard import _wire as wire
from weft.utils.tensorboard.summary import shape_proto

_PRODUCER = 22  # the version of the format


def graph_of(model: Any, inputs: Any, verbose: bool = False) -> tuple[bytes, bytes]:
    """A ``GraphDef`` of what ran, whatever branches were taken, and the times of its nodes."""
    args = tuple(inputs) if isinstance(inputs, (list, tuple)) else (inputs,)
    recorder = Recorder(values=False, profile=True, home=None)
    with _evaluating(model), recorder:
        result = model(*args) if inputs is not None else model()
        found = [x for x in _pytree.tree_leaves(result) if isinstance(x, Tensor)]
        outputs = [recorder.ref(x) for x in found]
        known = {recorder.ref(x).node: k for k, x in enumerate(_tensors(args))}
    if not outputs:
        raise RuntimeError(
            f"add_graph: {type(model).__name__} returned no tensor, so there is no graph to show"
            f"\n  at {errors.here()}"
        )
    graph = recorder.graph
    if verbose:
        print(graph)
    writer = _GraphDefWriter(graph, type(model).__name__, known)
    return writer.nodes(outputs), writer.times()


def _tensors(args: Any) -> list[Tensor]:
    return [x for x in _pytree.tree_leaves(args) if isinstance(x, Tensor)]


@contextlib.contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode, module by module, since a model may have frozen parts."""
    modules = list(model.modules()) if hasattr(model, "modules") else []
    before = [m.training for m in modules]
    for m in modules:
        m.training = False
    try:
        yield
    finally:
        for m, training in zip(modules, before, strict=True):
            m.training = training


class _GraphDefWriter:
    """Names nodes by the modules that they ran in, as ``Net/Linear[fc]/addmm``."""

    def __init__(self, graph: Graph, root: str, inputs: dict[int, int]) -> None:
        self.graph, self.root, self.inputs = graph, root, inputs
        self.specs = {k: s for k, s in graph._specs.items() if s.kind not in ("backward",)}
        self.used: Counter[str] = Counter()
        self.names = {k: self._name(s) for k, s in self.specs.items()}

    def _name(self, spec: Spec) -> str:
        if spec.id in self.inputs:
            return f"input/{spec.label or f'input.{self.inputs[spec.id] + 1}'}"
        last = spec.label.rpartition(".")[2] if spec.label else spec.op_name
        path = self._path(spec)
        name = "/".join([self.root, *path, _word(last)])
        self.used[name] += 1
        count = self.used[name]
        return name if count == 1 else f"{name}_{count - 1}"

    def _path(self, spec: Spec) -> list[str]:
        parts, at = [], ""
        for part in spec.scope.split(".") if spec.scope else ():
            at = f"{at}.{part}" if at else part
            kind = self.graph.modules.get(at, "")
            parts.append(f"{kind}[{part}]" if kind else _word(part))
        return parts

    def nodes(self, outputs: list[Ref]) -> bytes:
        """The graph."""
        parts = [self._node(spec) for spec in self.specs.values()]
        for k, ref in enumerate(outputs, 1):
            shape, _ = self.specs[ref.node].kind_of(ref.index)
            parts.append(_node(f"output/output.{k}", "IO Node", [self._source(ref)], [shape], ""))
        return b"".join(parts) + wire.message(4, wire.integer(1, _PRODUCER))

    def _node(self, spec: Spec) -> bytes:
        inputs = [self._source(r) for r in spec.refs() if r.node in self.specs]
        shapes = [shape for shape, _ in spec.kinds()]
        if spec.id in self.inputs:
            op = "IO Node"
        elif spec.kind == FORWARD:
            op = f"aten::{spec.op_name}"
        else:
            op = "Parameter" if spec.kind == PARAMETER else "Constant"
        told = {k: show_value(v) for k, v in spec.attrs.items() if k not in INNER and k != "state"}
        if spec.kind == FORWARD and spec.position():
            told["source"] = spec.position() or ""
        count = flops(spec, self.graph._specs)
        if count:
            told["flops"] = f"{count:,}"
        words = ", ".join(f"{k}: {v}" for k, v in told.items())
        return _node(self.names[spec.id], op, inputs, shapes, words)

    def _source(self, ref: Ref) -> str:
        name = self.names[ref.node]
        return f"{name}:{ref.index}" if ref.index else name

    def times(self) -> bytes:
        """How long each node took and how much memory its results have."""
        nodes, clock = [], 0
        for spec in self.specs.values():
            if spec.kind != FORWARD:
                continue
            took = max(1, round(1e6 * (spec.time or 0.0)))
            memory = wire.data(1, "cpu") + wire.integer(2, spec.nbytes())
            nodes.append(
                wire.message(
                    2,
                    wire.data(1, self.names[spec.id]),
                    wire.integer(2, clock),
                    wire.integer(4, took),
                    wire.integer(5, took),
                    wire.message(6, memory),
                )
            )
            clock += took
        device = wire.message(1, wire.data(1, "/device:CPU:0"), *nodes)
        return wire.message(1, device)


def _node(name: str, op: str, inputs: list[str], shapes: list[Any], words: str) -> bytes:
    listed = wire.message(1, *(wire.message(7, shape_proto(s or ())) for s in shapes))
    attrs = [wire.message(5, wire.data(1, "_output_shapes"), wire.message(2, listed))]
    if words:
        said = wire.message(2, wire.data(2, words))
        attrs.append(wire.message(5, wire.data(1, "attr"), said))
    sources = (wire.data(3, source) for source in inputs)
    return wire.message(1, wire.data(1, name), wire.data(2, op), *sources, *attrs)


def _word(text: str) -> str:
    """A part of a name: no slash, which would divide it, and no colon, which numbers results."""
    return text.replace("/", "_").replace(":", "_") or "_"
