"""The graph behind a tensor: autograd's own nodes, seen as a graph."""

from __future__ import annotations

import sys
import weakref
from itertools import chain, compress, count, repeat
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

import numpy as np

from weft.core import errors
from weft.core.frames import caller
from weft.core.inference import version_of
from weft.core.node import FREED, NOWHERE, AccumulateGrad, GraphNode, OpNode, Output
from weft.core.scopes import MARK
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
            if kind is not OpNode:
                if kind in _ENDS:
                    continue
                if kind is Output:
                    edge = edge.node
                elif not isinstance(edge, OpNode):
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

    Of a compiled function or module it is the work of its program, after the compiler's passes.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> [node.name for node in weft.graph.of((x * x).sum())]
    ['x', 'mul', 'sum']
    """
    if len(tensors) == 1 and hasattr(tensors[0], "__weft_graph__"):
        return tensors[0].__weft_graph__()
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
    columns = Columns(nodes, frame)
    modules = columns.name(nodes, frame, {} if model is None else _names_in(model), of_caller=True)
    outputs = tuple(Ref(columns.values[node].node, index) for node, index in places)
    columns.values = {}
    if model is not None:
        modules.update((n, type(m).__name__) for n, m in model.named_modules() if n)
    live = tuple(weakref.ref(node) for node, _ in places)
    return Graph()._fill(columns, outputs, modules=modules, live=live)


def _names_in(model: Any) -> dict[int, str]:
    return {id(p): name for name, p in model.named_parameters()}


def graph_of_nodes(
    nodes: list[Any], details: bool = True, names: dict[int, str] | None = None
) -> Graph:
    """The graph of some nodes; without details it holds no tensor, not even weakly."""
    columns = Columns(nodes, None)
    columns.name(nodes, None, {}, names)
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


class Columns:
    """The nodes behind a tensor, by what is known of them: the records are made when asked for.

    Everything that may change or die later is taken down at once: what nodes read, tensors (held
    weakly) with their names. Autograd's nodes themselves, which hold memory, are not kept.
    """

    def __init__(self, nodes: list[Any], frame: Any) -> None:
        self.values: dict[Any, Ref] = {}  # of nodes and leaves, their (first) result
        self.alone = [n for n in nodes if n.__class__ is AccumulateGrad]  # asked about themselves
        if self.alone:
            nodes = [n for n in nodes if n.__class__ is not AccumulateGrad]
        # Of each node: plan, attributes, shape, dtype, module path, code, instruction.
        self.rows = list(map(_ROW, nodes))
        # Each with the path as it is shown.
        self.paths: dict[str, str] = dict.fromkeys(map(_PATH, self.rows), "")
        self.models = Models()
        tags = {path.partition(".")[0] for path in self.paths if path[:1] == MARK}
        for tag in dict.fromkeys(p.partition(".")[0] for p in self.paths) if tags else ():
            self.models.meet(tag, frame)

    def name(
        self, nodes: list[Any], frame: Any, given: dict[int, str],
        others: dict[int, str] | None = None, of_caller: bool = False,
    ) -> dict[str, str]:  # fmt: skip
        """Find what nodes read, and names for tensors; the classes of modules by path."""
        shown, known = self.models.shown, all(p[:1] == MARK for p in self.paths if p)
        self.paths = {path: shown(path) for path in self.paths}
        tensors, modules = self.models.parts()
        names = dict(others or {})
        if of_caller:
            names.update(variables(frame))
            names.update({} if known else in_modules(frame))
        if self.alone:
            nodes = [n for n in nodes if n.__class__ is not AccumulateGrad]
        self._read(nodes, {**names, **tensors, **given} if names or given else tensors)
        return modules

    def __len__(self) -> int:
        return len(self.rows) + len(self.leaves)

    def _read(self, nodes: list[Any], names: dict[int, str]) -> None:
        """Number nodes and leaves, and find the values that each node reads."""
        inputs = list(map(_INPUTS, nodes))
        self.counts = list(map(len, inputs))
        flat = list(chain.from_iterable(inputs))
        kinds = list(map(type, flat))
        others = {k for k in set(kinds) if not issubclass(k, (OpNode, *_NUMBERS))}
        positions = list(compress(count(), map(others.__contains__, kinds)))
        rare = [flat[k] for k in positions]
        starts = np.cumsum([0, *self.counts])
        leaves = _Leaves(names, self.paths)
        owners = []  # for each leaf the number of the node that reads it first
        for leaf in self.alone:
            leaves.gradient(leaf, None)
            owners.append(0)
        found, values, made, known_leaves = [], self.values, leaves.found, leaves.numbers
        for k, edge, owner in zip(
            positions, rare, (np.searchsorted(starts, positions, "right") - 1).tolist(), strict=True
        ):
            if edge.__class__ is AccumulateGrad and edge is not NOWHERE:
                if edge not in known_leaves:
                    leaves.gradient(edge, nodes[owner])
                    owners.append(owner)
                continue
            flat[k] = None
            known = len(made)
            found.append((k, leaves.other(nodes[owner], k - int(starts[owner]), edge)))
            if len(made) > known:
                owners.append(owner)
        # A leaf comes just before the first node that reads it.
        at = np.asarray(owners, np.int64)
        self.leaves, self.leaf_ids = made, (at + np.arange(len(at))).tolist()
        before = np.cumsum(np.bincount(at, minlength=len(nodes)))
        self.ids = (np.arange(len(nodes)) + before[: len(nodes)]).tolist()
        for edge, number in leaves.numbers.items():
            values[edge] = Ref(self.leaf_ids[number])
        refs = map(tuple.__new__, repeat(Ref), zip(self.ids, repeat(0)))
        values.update(zip(nodes, refs, strict=True))
        self.args = list(map(values.get, flat, flat))
        for k, value in found:
            if value.__class__ is _Made:
                value = Ref(self.leaf_ids[value.number])
            elif value.__class__ is Output:
                value = Ref(values[value.node].node, value.index)
            self.args[k] = value

    def same_as(self, other: Columns) -> bool:
        """Whether the records would be equal, but for tensors at the ends and lines."""
        return (
            self.paths == other.paths
            and self.ids == other.ids
            and self.leaf_ids == other.leaf_ids
            and self.counts == other.counts
            and self.rows == other.rows
            and self.args == other.args
            and list(map(type, self.args)) == list(map(type, other.args))
            and [leaf[:4] for leaf in self.leaves] == [leaf[:4] for leaf in other.leaves]
            and all(
                x is y or list(map(repr, x.values())) == list(map(repr, y.values()))
                for x, y in zip(map(_ATTRS, self.rows), map(_ATTRS, other.rows), strict=True)
                if x
            )
        )

    def ends_as(self, other: Columns) -> bool:
        """Whether the tensors at the ends are the very same ones."""
        pairs = zip(self.leaves, other.leaves, strict=False)
        return len(self.leaves) == len(other.leaves) and all(x[4] is y[4] for x, y in pairs)

    def specs(self) -> dict[int, Spec]:
        """The records, in order."""
        specs: dict[int, Spec] = {}
        args, paths, start = self.args, self.paths, 0
        leaves = zip(self.leaf_ids, self.leaves, strict=True)
        at, leaf = next(leaves, (-1, ()))
        for id, (plan, attrs, shape, dtype, path, code, instruction), many in zip(
            self.ids, self.rows, self.counts, strict=True
        ):
            while 0 <= at < id:
                specs[at] = _leaf_spec(at, leaf)
                at, leaf = next(leaves, (-1, ()))
            end = start + many
            specs[id] = Spec(
                id,
                FORWARD,
                plan.op,
                tuple(args[start:end]),
                attrs,
                shape,
                dtype,
                code,
                instruction,
                paths[path],
            )
            start = end
        if at >= 0:
            specs[at] = _leaf_spec(at, leaf)
        specs.update((k, _leaf_spec(k, leaf)) for k, leaf in leaves)
        return specs


_INPUTS, _ATTRS, _PATH = attrgetter("inputs"), itemgetter(1), itemgetter(4)
_ROW = attrgetter("plan", "attrs", "shape", "dtype", "scope", "code", "instruction")
_NUMBERS = (float, int, type(None))


class _Made(NamedTuple):
    """A leaf, by the order in which it was met."""

    number: int


class _Leaves:
    """The ends of a graph: kind, shape, dtype, label, and the tensor with what is known of it."""

    def __init__(self, names: dict[int, str], paths: dict[str, str]) -> None:
        self.names, self.paths = names, paths
        self.numbers: dict[AccumulateGrad, int] = {}
        self.found: list[tuple[Any, ...]] = []
        self.constants: dict[int, _Made] = {}

    def gradient(self, node: AccumulateGrad, user: OpNode | None) -> None:
        """A leaf that wants a gradient."""
        tensor = node.ref()
        self.numbers[node] = len(self.found)
        if tensor is None:
            self.found.append((PARAMETER, None, None, "", None, 0, False))
            return
        label = self.names.get(id(tensor), "")
        if not label and user is not None and isinstance(tensor, Parameter) and user.scope:
            # Read in a module that is not known any more: no name may be made up for it.
            label = f"{self.paths[user.scope]}.parameter"
        array = tensor._a
        dtype = array.dtype if tensor._x is None else node.dtype
        version, wants = version_of(tensor), tensor._node is not None
        self.found.append((PARAMETER, array.shape, dtype, label, node.ref, version, wants))

    def other(self, node: OpNode, i: int, edge: Any) -> Any:
        """What else a node reads: a constant, one of several results, or a setting."""
        if edge is NOWHERE:
            return self._lost(node, i)
        if isinstance(edge, weakref.ref):
            return self._constant(node, i, edge(), edge)
        if isinstance(edge, Tensor):
            return self._constant(node, i, edge, edge)
        return edge

    def _add(self, *leaf: Any) -> _Made:
        self.found.append(leaf)
        return _Made(len(self.found) - 1)

    def _constant(self, node: OpNode, i: int, tensor: Tensor | None, hold: Any) -> Any:
        if tensor is None:
            return self._lost(node, i)
        held = self.constants.get(id(tensor))
        if held is None:
            label, array = self.names.get(id(tensor), ""), tensor._a
            held = self.constants[id(tensor)] = self._add(
                *(INPUT if label else CONSTANT, array.shape, array.dtype, label, hold),
                *(version_of(tensor), tensor._node is not None),
            )
        return held

    def _lost(self, node: OpNode, i: int) -> _Made:
        """A constant that the program dropped; backward may have saved its value."""
        saved = _saved(node, i)
        if saved is None:
            return self._add(CONSTANT, None, None, "", None, 0, False)
        return self._add(CONSTANT, saved.shape, saved.dtype, "", wrap(saved), 0, False)


def _leaf_spec(id: int, leaf: tuple[Any, ...]) -> Spec:
    kind, shape, dtype, label, hold, version, wants = leaf
    held = object.__new__(Leaf)
    held.live = None
    held._hold, held.version, held.grad = hold, version, wants
    scope = label.rpartition(".")[0] if kind == PARAMETER else ""
    return Spec(id, kind, kind, (), {}, shape, dtype, label=label, scope=scope, leaf=held)


def _saved(node: OpNode, i: int) -> np.ndarray | None:
    names = node.op.names
    if node.saved is FREED or i >= len(names) or names[i] not in node.plan.slots:
        return None
    value = node.saved[node.plan.slots.index(names[i])]
    return value if isinstance(value, np.ndarray) else None
