"""The graph behind a tensor: autograd's own nodes, seen as a graph."""

from __future__ import annotations

import sys
import weakref
from operator import attrgetter
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.frames import caller
from weft.core.node import FREED, NOWHERE, AccumulateGrad, GraphNode, Node, Output
from weft.core.tensor import Parameter, Tensor, wrap
from weft.graph.collecting import no_collection
from weft.graph.graph import Graph
from weft.graph.naming import Models, in_modules, variables
from weft.graph.spec import CONSTANT, FORWARD, INPUT, PARAMETER, Leaf, Ref, Spec, show_value


def behind(roots: list[GraphNode]) -> list[GraphNode]:
    """All nodes behind some nodes, oldest first."""
    seen: set[Any] = set(roots)
    stack: list[Any] = list(roots)
    while stack:
        for edge in stack.pop().inputs:
            kind = edge.__class__
            if kind is Output:
                edge = edge.node
            elif kind is not Node and not isinstance(edge, Node):
                continue
            if edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return sorted(seen, key=attrgetter("seq"))


def of(*tensors: Tensor, model: Any = None) -> Graph:
    """The graph behind a tensor (or several). Parameters get their names from ``model``, if given.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> [node.name for node in weft.graph.of((x * x).sum())]
    ['x', 'mul', 'sum']
    """
    places: list[tuple[GraphNode, int]] = []
    if not tensors or not all(isinstance(t, Tensor) for t in tensors):
        raise TypeError(
            f"graph.of takes tensors, not {[type(t).__name__ for t in tensors]}"
            f"\n  at {errors.here()}"
        )
    for tensor in tensors:
        root = tensor.grad_fn or tensor._node
        if root is None:
            raise RuntimeError(
                "graph.of: this tensor was not recorded: nothing it was computed from requires a "
                "gradient, or it was made inside no_grad. weft.graph.record() sees such "
                f"computations too\n  at {errors.here()}"
            )
        places.append((root, tensor.output_nr))
    with no_collection():
        return _graph_of(places, caller(sys._getframe(1)), model)


def _graph_of(places: list[tuple[GraphNode, int]], frame: Any, model: Any) -> Graph:
    nodes = behind([node for node, _ in places])
    models = _models_of(nodes, frame)
    names = {} if model is None else {id(p): name for name, p in model.named_parameters()}
    held = {} if all(models.met(n) for n in nodes) else in_modules(frame)
    build = _Builder(variables(frame) | held | models.tensors() | names, models)
    build.add_all(nodes)
    outputs = tuple(Ref(build.values[node].node, index) for node, index in places)
    modules = models.classes()
    if model is not None:
        modules.update((n, type(m).__name__) for n, m in model.named_modules() if n)
    live = tuple(weakref.ref(node) for node, _ in places)
    return Graph()._fill({s.id: s for s in build.specs}, outputs, modules=modules, live=live)


def graph_of_nodes(
    nodes: list[Any], details: bool = True, names: dict[int, str] | None = None
) -> Graph:
    """The graph of some nodes; without details it holds no tensor, not even weakly."""
    models = _models_of(nodes, None)
    build = _Builder((names or {}) | models.tensors(), models)
    build.add_all(nodes)
    specs = build.specs
    if not details:
        specs = [
            s.but(leaf=None, attrs={k: show_value(v) for k, v in s.attrs.items()}) for s in specs
        ]
    return Graph()._fill({s.id: s for s in specs}, (build.values[nodes[-1]],))


def _models_of(nodes: list[Any], frame: Any) -> Models:
    """The models whose modules made some nodes."""
    models = Models()
    for scope in dict.fromkeys([node.scope for node in nodes if isinstance(node, Node)]):
        models.meet(scope, frame)
    return models


class _Builder:
    """Turns autograd's nodes into the records of a graph."""

    def __init__(self, names: dict[int, str], models: Models) -> None:
        self.names, self.models = names, models
        self.scopes: dict[str, str] = {}  # paths as they are shown
        self.specs: list[Spec] = []
        self.values: dict[Any, Ref] = {}  # of nodes and leaves, their (first) result
        self.constants: dict[int, Ref] = {}

    def add_all(self, nodes: list[Any]) -> None:
        """Take in nodes, oldest first, so that the inputs of each are there already."""
        specs, values, argument, known = self.specs, self.values, self._argument, self.scopes
        for node in nodes:
            if not isinstance(node, Node):
                self._leaf(node)  # the tensor asked about is a leaf itself
                continue
            args = []
            for edge in node.inputs:
                kind = edge.__class__
                # The usual cases first: a graph may have very many nodes.
                if kind is Node:
                    args.append(values[edge])
                elif kind is float or kind is int:
                    args.append(edge)
                else:
                    args.append(argument(node, len(args), edge))
            id = len(specs)
            scope = known.get(node.scope)
            if scope is None:
                scope = known[node.scope] = self.models.shown(node.scope)
            values[node] = Ref(id)
            specs.append(
                Spec(
                    id,
                    FORWARD,
                    node.plan.op,
                    tuple(args),
                    node.attrs,
                    node.shape,
                    node.dtype,
                    node.code,
                    node.instruction,
                    scope,
                )
            )

    def _leaf(self, node: AccumulateGrad, user: Node | None = None, i: int = 0) -> Ref:
        id = len(self.specs)
        found = self.values[node] = Ref(id)
        tensor = node.variable
        label = "" if tensor is None else self.names.get(identity(tensor), "")
        if not label and user is not None and isinstance(tensor, Parameter) and user.scope:
            # Read in a module that is not known any more: no name may be made up for it.
            label = f"{self.models.shown(user.scope)}.parameter"
        spec = Spec(
            id, PARAMETER, PARAMETER, (), {}, node.shape, node.dtype, label=label,
            scope=label.rpartition(".")[0],
            leaf=_Gone() if tensor is None else Leaf(tensor, strong=False),
        )  # fmt: skip
        self.specs.append(spec)
        return found

    def _argument(self, node: Node, i: int, edge: Any) -> Any:
        if edge.__class__ is Output:
            return Ref(self.values[edge.node].node, edge.index)
        if isinstance(edge, Node):
            return self.values[edge]
        if isinstance(edge, AccumulateGrad):
            if edge is NOWHERE:
                return self._lost(node, i)
            return self.values.get(edge) or self._leaf(edge, node, i)
        if isinstance(edge, weakref.ref):
            return self._constant(node, i, edge())
        if isinstance(edge, Tensor):
            return self._constant(node, i, edge, strong=True)
        return edge

    def _constant(self, node: Node, i: int, tensor: Tensor | None, strong: bool = False) -> Ref:
        if tensor is None:
            return self._lost(node, i)
        held = self.constants.get(identity(tensor))
        if held is not None:
            return held
        label = self.names.get(identity(tensor), "")
        kind = INPUT if label else CONSTANT
        spec = Spec(
            len(self.specs), kind, kind, (), {}, tensor._a.shape, tensor._a.dtype, label=label,
            leaf=Leaf(tensor, strong=strong),
        )  # fmt: skip
        self.specs.append(spec)
        found = self.constants[identity(tensor)] = Ref(spec.id)
        return found

    def _lost(self, node: Node, i: int) -> Ref:
        """A constant that the program dropped; backward may have saved its value."""
        saved = _saved(node, i)
        id = len(self.specs)
        if saved is None:
            spec = Spec(id, CONSTANT, CONSTANT, (), {}, None, None, leaf=_Gone())
        else:
            leaf = Leaf(wrap(saved))
            spec = Spec(id, CONSTANT, CONSTANT, (), {}, saved.shape, saved.dtype, leaf=leaf)
        self.specs.append(spec)
        return Ref(id)


class _Gone(Leaf):
    """A leaf whose tensor is no more."""

    def __init__(self) -> None:
        self._hold, self.version, self.grad = None, 0, False


def _saved(node: Node, i: int) -> np.ndarray | None:
    names = node.op.names
    if node.saved is FREED or i >= len(names) or names[i] not in node.plan.slots:
        return None
    value = node.saved[node.plan.slots.index(names[i])]
    return value if isinstance(value, np.ndarray) else None


identity = id
