"""The graph behind a tensor: autograd's own nodes, seen as a graph."""

from __future__ import annotations

import sys
import weakref
from itertools import chain, repeat
from operator import attrgetter
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.frames import caller
from weft.core.inference import version_of
from weft.core.node import FREED, NOWHERE, AccumulateGrad, GraphNode, Node, Output
from weft.core.tensor import Parameter, Tensor, wrap
from weft.graph.collecting import no_collection
from weft.graph.graph import Graph
from weft.graph.naming import Models, in_modules, variables
from weft.graph.spec import CONSTANT, FORWARD, INPUT, PARAMETER, Leaf, Ref, Spec, show_value


def behind(roots: list[GraphNode]) -> list[GraphNode]:
    """All nodes behind some nodes, oldest first."""
    seen: set[Any] = set(roots)
    stack: list[Any] = list(seen)
    order: list[Any] = list(seen)
    add, push, pop, keep = seen.add, stack.append, stack.pop, order.append
    while stack:
        for edge in pop().inputs:
            kind = edge.__class__
            if kind is not Node:
                if kind in _ENDS:
                    continue
                if kind is Output:
                    edge = edge.node
                elif not isinstance(edge, Node):
                    continue
            if edge not in seen:
                add(edge)
                push(edge)
                keep(edge)
    order.sort(key=attrgetter("seq"))
    return order


# What nodes read most often besides other nodes.
_ENDS = frozenset((float, int, type(None), AccumulateGrad, weakref.ref))


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
    scopes = list(map(_scope_of, nodes))
    models = _models_of(scopes, frame)
    names = {} if model is None else {id(p): name for name, p in model.named_parameters()}
    held = {} if models.met_all(scopes) else in_modules(frame)
    tensors, modules = models.parts()
    columns = Columns(nodes, scopes, {**variables(frame), **held, **tensors, **names}, models)
    outputs = tuple(Ref(columns.values[node].node, index) for node, index in places)
    columns.values = {}
    if model is not None:
        modules.update((n, type(m).__name__) for n, m in model.named_modules() if n)
    live = tuple(weakref.ref(node) for node, _ in places)
    return Graph()._fill(columns, outputs, modules=modules, live=live)


def graph_of_nodes(
    nodes: list[Any], details: bool = True, names: dict[int, str] | None = None
) -> Graph:
    """The graph of some nodes; without details it holds no tensor, not even weakly."""
    scopes = list(map(_scope_of, nodes))
    models = _models_of(scopes, None)
    columns = Columns(nodes, scopes, {**(names or {}), **models.parts()[0]}, models)
    outputs = (columns.values[nodes[-1]],)
    columns.values = {}
    if details:
        return Graph()._fill(columns, outputs)
    specs = columns.specs()
    return Graph()._fill(
        {
            k: s.but(leaf=None, attrs={k: show_value(v) for k, v in s.attrs.items()})
            for k, s in specs.items()
        },
        outputs,
    )


def _scope_of(node: Any) -> str:
    return node.scope if isinstance(node, Node) else ""


def _models_of(paths: list[str], frame: Any) -> Models:
    """The models whose modules made some nodes."""
    models = Models()
    for scope in dict.fromkeys(paths):
        models.meet(scope, frame)
    return models


class Columns:
    """The nodes behind a tensor, by what is known of them: the records are made when asked for.

    Everything that may change or die later is taken down at once: what nodes read, tensors (held
    weakly) with their names. Autograd's nodes themselves, which hold memory, are not kept.
    """

    def __init__(
        self, nodes: list[Any], scopes: list[str], names: dict[int, str], models: Models
    ) -> None:
        self.names, self.models = names, models
        self.shown = {scope: models.shown(scope) for scope in dict.fromkeys(scopes)}
        # Of leaves, in the order in which they are met: kind, shape, dtype, label, scope, leaf.
        self.leaves: list[tuple[Any, ...]] = []
        self.leaf_ids: list[int] = []
        self.constants: dict[int, Ref] = {}
        self.values: dict[Any, Ref] = {}  # of nodes and leaves, their (first) result
        alone = [n for n in nodes if n.__class__ is AccumulateGrad]  # asked about themselves
        for leaf in alone:
            self._leaf(leaf, 0)
        if alone:
            kept = [k for k, n in enumerate(nodes) if n.__class__ is not AccumulateGrad]
            nodes, scopes = [nodes[k] for k in kept], [scopes[k] for k in kept]
        inputs = list(map(_INPUTS, nodes))
        self.counts = list(map(len, inputs))
        self.scopes = scopes
        self.plans = list(map(_PLAN, nodes))
        self.attrs = list(map(_ATTRS, nodes))
        self.shapes = list(map(_SHAPE, nodes))
        self.dtypes = list(map(_DTYPE, nodes))
        self.codes = list(map(_CODE, nodes))
        self.instructions = list(map(_INSTRUCTION, nodes))
        self._read(nodes, inputs, len(alone))

    def __len__(self) -> int:
        return len(self.plans) + len(self.leaves)

    def _read(self, nodes: list[Any], inputs: list[Any], first: int) -> None:
        """Number nodes and leaves, and find the values that each node reads."""
        flat = list(chain.from_iterable(inputs))
        kinds = list(map(type, flat))
        others = {k for k in set(kinds) if not issubclass(k, (Node, *_NUMBERS))}
        rare = [k for k, kind in enumerate(kinds) if kind in others] if others else []
        starts = np.cumsum([0, *self.counts])
        owners = (np.searchsorted(starts, rare, "right") - 1).tolist()
        # A leaf comes just before the first node that reads it.
        found, late = [], []
        made = np.zeros(len(nodes), np.int64)
        for k, owner in zip(rare, owners, strict=True):
            edge, known = flat[k], len(self.leaves)
            if edge.__class__ is Output:
                late.append((k, edge))
            else:
                node = nodes[owner]
                found.append((k, self._argument(node, k - starts[owner], edge, owner)))
                if len(self.leaves) > known:
                    made[owner] += 1
            flat[k] = None
        self.ids = (np.arange(first, first + len(nodes)) + np.cumsum(made)).tolist()
        refs = map(tuple.__new__, repeat(Ref), zip(self.ids, repeat(0)))
        self.values.update(zip(nodes, refs, strict=True))
        self.args = list(map(self.values.get, flat, flat))
        for k, value in found:
            self.args[k] = value
        for k, edge in late:
            self.args[k] = Ref(self.values[edge.node].node, edge.index)

    def ops(self) -> list[Any]:
        """The op of each node."""
        return list(map(_OP, self.plans))

    def paths(self) -> list[str]:
        """The module of each node, as it is shown."""
        return list(map(self.shown.__getitem__, self.scopes))

    def specs(self) -> dict[int, Spec]:
        """The records, in order."""
        specs: dict[int, Spec] = {}
        args, start = self.args, 0
        leaves = zip(self.leaf_ids, self.leaves, strict=True)
        at, leaf = next(leaves, (-1, ()))
        for id, op, attrs, shape, dtype, code, instruction, path, count in zip(
            *(self.ids, self.ops(), self.attrs, self.shapes, self.dtypes, self.codes),
            *(self.instructions, self.paths(), self.counts),
            strict=True,
        ):
            while 0 <= at < id:
                specs[at] = _leaf_spec(at, leaf)
                at, leaf = next(leaves, (-1, ()))
            end = start + count
            read = tuple(args[start:end])
            specs[id] = Spec(id, FORWARD, op, read, attrs, shape, dtype, code, instruction, path)
            start = end
        if at >= 0:
            specs[at] = _leaf_spec(at, leaf)
        specs.update((k, _leaf_spec(k, leaf)) for k, leaf in leaves)
        return specs

    # --- leaves ---

    def _add(self, owner: int, *leaf: Any) -> Ref:
        id = owner + len(self.leaves)
        self.leaf_ids.append(id)
        self.leaves.append(leaf)
        return Ref(id)

    def _argument(self, node: Node, i: int, edge: Any, owner: int) -> Any:
        kind = edge.__class__
        if kind is AccumulateGrad:
            if edge is NOWHERE:
                return self._lost(node, i, owner)
            return self.values.get(edge) or self._leaf(edge, owner, node)
        if isinstance(edge, weakref.ref):
            return self._constant(node, i, edge(), owner)
        if isinstance(edge, Tensor):
            return self._constant(node, i, edge, owner, strong=True)
        return edge

    def _leaf(self, node: AccumulateGrad, owner: int, user: Node | None = None) -> Ref:
        tensor = node.ref()
        if tensor is None:
            found = self._add(owner, PARAMETER, None, None, "", "", _GONE)
        else:
            label = self.names.get(id(tensor), "")
            if not label and user is not None and isinstance(tensor, Parameter) and user.scope:
                # Read in a module that is not known any more: no name may be made up for it.
                label = f"{self.models.shown(user.scope)}.parameter"
            leaf = node.ref, version_of(tensor), tensor._node is not None
            found = self._add(
                owner, PARAMETER, tensor._a.shape, node.dtype, label, label.rpartition(".")[0], leaf
            )
        self.values[node] = found
        return found

    def _constant(
        self, node: Node, i: int, tensor: Tensor | None, owner: int, strong: bool = False
    ) -> Ref:
        if tensor is None:
            return self._lost(node, i, owner)
        held = self.constants.get(id(tensor))
        if held is not None:
            return held
        label = self.names.get(id(tensor), "")
        kind = INPUT if label else CONSTANT
        hold = tensor if strong else weakref.ref(tensor)
        leaf = hold, version_of(tensor), tensor._node is not None
        found = self._add(owner, kind, tensor._a.shape, tensor._a.dtype, label, "", leaf)
        self.constants[id(tensor)] = found
        return found

    def _lost(self, node: Node, i: int, owner: int) -> Ref:
        """A constant that the program dropped; backward may have saved its value."""
        saved = _saved(node, i)
        if saved is None:
            return self._add(owner, CONSTANT, None, None, "", "", _GONE)
        return self._add(owner, CONSTANT, saved.shape, saved.dtype, "", "", (wrap(saved), 0, False))


_INPUTS, _PLAN, _ATTRS, _SHAPE = map(attrgetter, ("inputs", "plan", "attrs", "shape"))
_DTYPE, _CODE, _INSTRUCTION, _OP = map(attrgetter, ("dtype", "code", "instruction", "op"))
_NUMBERS = (float, int, type(None))
_GONE = (None, 0, False)  # a leaf whose tensor is no more


def _leaf_spec(id: int, leaf: tuple[Any, ...]) -> Spec:
    kind, shape, dtype, label, scope, (hold, version, grad) = leaf
    held = object.__new__(Leaf)
    held._hold, held.version, held.grad = hold, version, grad
    return Spec(id, kind, kind, (), {}, shape, dtype, label=label, scope=scope, leaf=held)


def _saved(node: Node, i: int) -> np.ndarray | None:
    names = node.op.names
    if node.saved is FREED or i >= len(names) or names[i] not in node.plan.slots:
        return None
    value = node.saved[node.plan.slots.index(names[i])]
    return value if isinstance(value, np.ndarray) else None
