"""A graph as an object to look at: its nodes, their names, and the table that printing gives."""

from __future__ import annotations

import fnmatch
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.core import dtype as dt
from weft.core import errors
from weft.core import node as core
from weft.core.size import Size
from weft.core.tensor import Tensor
from weft.graph import cost, table
from weft.graph.collecting import no_collection
from weft.graph.editing import Editing
from weft.graph.export import Exporting
from weft.graph.gradient import all_flows
from weft.graph.run import GraphError, NoSuchNode, Running
from weft.graph.selecting import Select, in_module
from weft.graph.spec import BACKWARD, FORWARD, INNER, OPTIMIZER, Ref, Spec, show_kind

if TYPE_CHECKING:
    from weft.graph.units import Unit


class Pass(NamedTuple):
    """A backward pass: the values it began at, each with its gradient (None: one)."""

    roots: tuple[tuple[Ref | None, Any], ...]
    fills: bool = True  # whether leaves' .grad was filled, as backward() does


class Node:
    """A node of a graph. It never changes; edits of the graph make new ones."""

    __slots__ = ("graph", "spec")

    def __init__(self, graph: Graph, spec: Spec) -> None:
        self.graph, self.spec = graph, spec

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and self.spec is other.spec and self.graph is other.graph

    def __hash__(self) -> int:
        return hash((id(self.graph), self.spec.id))

    @property
    def id(self) -> int:
        """The node's number, which edits of other nodes leave alone."""
        return self.spec.id

    @property
    def name(self) -> str:
        """The name in the graph, such as ``encoder.layers.0.relu`` or ``fc1.linear:2``."""
        return self.graph._names()[self.spec.id]

    @property
    def op(self) -> str:
        """The name of the op; for leaves what kind of leaf it is."""
        return self.spec.op_name

    @property
    def kind(self) -> str:
        """``input``, ``parameter``, ``constant``, ``state`` (of an optimizer), ``forward``,
        ``backward`` or ``optimizer``.
        """
        return self.spec.kind

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the node reads, in order: nodes, and constants as they are."""
        return tuple(self.graph._node(x.node) if x.__class__ is Ref else x for x in self.spec.args)

    @property
    def users(self) -> tuple[Node, ...]:
        """The nodes that read this one, oldest first."""
        return tuple(self.graph._node(k) for k in self.graph._users().get(self.spec.id, ()))

    @property
    def attrs(self) -> dict[str, Any]:
        """The settings of the op, as a copy."""
        return {k: v for k, v in self.spec.attrs.items() if k not in INNER}

    @property
    def shape(self) -> Any:
        """The shape of the result; a tuple of shapes where there are several."""
        if self.spec.several:
            return tuple(None if s is None else Size(s) for s in self.spec.shape)
        return None if self.spec.shape is None else Size(self.spec.shape)

    @property
    def dtype(self) -> Any:
        """The dtype of the result; a tuple where there are several."""
        found = tuple(dt.OF_NUMPY.get(d) for _, d in self.spec.kinds())
        return found if self.spec.several else found[0]

    @property
    def module(self) -> str:
        """The path of the module in which the op ran, such as ``encoder.layers.0``."""
        return self.spec.scope

    @property
    def source(self) -> str:
        """The user's line that made the node, as ``file.py:12: text``."""
        return self.spec.line()

    @property
    def bytes(self) -> int:
        """Bytes of the results; none for views, which have no memory of their own."""
        return self.spec.nbytes()

    @property
    def flops(self) -> int:
        """Arithmetic operations, as far as the shapes tell."""
        return cost.flops(self.spec, self.graph._specs)

    @property
    def time(self) -> float | None:
        """Seconds that the op took, if the block was recorded with ``profile=True``."""
        return self.spec.time

    @property
    def forward(self) -> Node | None:
        """The forward node (or leaf) that a backward or optimizer node belongs to."""
        found = self.spec.forward
        return None if found is None or found not in self.graph._specs else self.graph._node(found)

    @property
    def backward(self) -> tuple[Node, ...]:
        """The backward nodes that belong to a forward node or leaf."""
        return self._belonging(BACKWARD)

    @property
    def optimizer(self) -> tuple[Node, ...]:
        """The updates of a parameter."""
        return self._belonging(OPTIMIZER)

    def _belonging(self, kind: str) -> tuple[Node, ...]:
        specs = self.graph._specs
        mine = self.graph._partners().get(self.spec.id, ())
        return tuple(self.graph._node(k) for k in mine if specs[k].kind == kind)

    @property
    def ops(self) -> Graph:
        """The ops inside a backward or optimizer node, as a graph of its own."""
        from weft.graph.opening import opened

        return opened(self.graph, self.spec)

    @property
    def value(self) -> Any:
        """The result: as kept, or computed again from the leaves."""
        return self.graph.value(self)

    @property
    def grad(self) -> Any:
        """The gradient of the loss by this node: as kept, a leaf's own, or computed."""
        return self.graph.grad(self)

    def __repr__(self) -> str:
        kinds = ", ".join(show_kind(s, d) for s, d in self.spec.kinds())
        return f"<{self.name} {kinds}>"


class Graph(Running, Editing, Exporting):
    """What was recorded, oldest first. Printing it gives a table."""

    def __init__(self) -> None:
        self._fill({}, ())

    def _fill(
        self,
        specs: Any,
        outputs: tuple[Ref, ...],
        *,
        kept: dict[int, tuple[Any, ...]] | None = None,
        grads: dict[int, Tensor] | None = None,
        passes: tuple[Pass, ...] = (),
        updates: dict[int, Ref] | None = None,
        gradients: dict[int, Ref | None] | None = None,
        frozen: str = "",
        modules: dict[str, str] | None = None,
        parent: Graph | None = None,
        change: str = "",
        live: tuple[Any, ...] = (),
    ) -> Graph:
        self._records, self._outputs = specs, outputs  # a dict, or what makes it when asked for
        self._kept, self._grads = kept or {}, grads or {}
        self._passes, self._updates = passes, updates or {}
        self._gradients = gradients or {}  # what leaves' .grad is at the end, by leaf
        self._frozen = frozen  # where random numbers were drawn that a replay can't draw again
        self.modules = modules or {}
        self._parent, self._change = parent, change
        self._live = live  # weak references to autograd's nodes behind the outputs
        self._cache: dict[str, Any] = {}
        self._released = False
        return self

    @property
    def _specs(self) -> dict[int, Spec]:
        """The records by number, oldest first."""
        found = self._records
        if found.__class__ is not dict:
            with no_collection():
                found = self._records = found.specs()
        return found

    # --- nodes by name -----------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Node]:
        return (Node(self, spec) for spec in self._specs.values())

    def __bool__(self) -> bool:
        return True

    def __contains__(self, node: Any) -> bool:
        if isinstance(node, str):
            return node in self._ids()
        return isinstance(node, Node) and self._specs.get(node.id) is node.spec

    def __getitem__(self, name: str) -> Node:
        return self._node(self._id(name))

    @property
    def outputs(self) -> tuple[Node, ...]:
        """The nodes whose results ``run`` gives."""
        return tuple(self._node(k) for k in dict.fromkeys(r.node for r in self._outputs))

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The leaves that are neither parameters nor constants."""
        return tuple(self.find(kind="input"))

    @property
    def parameters(self) -> tuple[Node, ...]:
        """The leaves that want a gradient."""
        return tuple(self.find(kind="parameter"))

    def _node(self, id: int) -> Node:
        return Node(self, self._specs[id])

    def _id(self, node: Any) -> int:
        """The number of a node, which may be given by name or come from another version."""
        if isinstance(node, Node):
            if self._specs.get(node.id) is node.spec or (
                node.id in self._specs and self._is_kin(node.graph)
            ):
                return node.id
            raise NoSuchNode(f"{node.name!r} is not a node of this graph\n  at {errors.here()}")
        if isinstance(node, str):
            self._check_whole()
            found = self._ids().get(node)
            if found is not None:
                return found
            near = [n for n in self._ids() if node.split(":")[0].rpartition(".")[2] in n][:8]
            hint = f"; close to it: {near}" if near else f"; it has {list(self._ids())[:12]}"
            raise NoSuchNode(f"the graph has no node {node!r}{hint}\n  at {errors.here()}")
        raise TypeError(
            f"a node is given as a Node or by its name, not as {type(node).__name__}\n"
            f"  at {errors.here()}"
        )

    def _is_kin(self, other: Graph) -> bool:
        """Whether two graphs are versions of one: numbers mean the same in both."""
        return self._eldest() is other._eldest()

    def _eldest(self) -> Graph:
        graph = self
        while graph._parent is not None:
            graph = graph._parent
        return graph

    def find(
        self,
        op: str | Select | None = None,
        module: str | None = None,
        where: Callable[[Node], bool] | None = None,
        kind: str | None = None,
        name: str | None = None,
    ) -> list[Node]:
        """The nodes that fit, oldest first; ``*`` stands for anything in names.

        A module stands for all that is in it as well. ``weft.graph.select`` makes selectors that
        combine.
        """
        if isinstance(op, Select):
            chosen: Select = op
            op, where = None, chosen if where is None else chosen & Select(where, "where")
        found = []
        for spec in self._specs.values():
            if kind is not None and spec.kind != kind:
                continue
            if op is not None and not is_op(spec, op):
                continue
            if module is not None and not in_module(spec.scope, module):
                continue
            node = Node(self, spec)
            if name is not None and not fnmatch.fnmatchcase(node.name, name):
                continue
            if where is None or where(node):
                found.append(node)
        return found

    def module(self, path: str) -> Unit:
        """All that a module did, as a unit to look at, cut out, replace or remove."""
        from weft.graph.units import Unit

        self._check_whole()
        return Unit(self, path)

    def to_module(self) -> Any:
        """The graph as an ``nn.Module``, with the parameters that the recorded model has."""
        self._check_whole()
        return importlib.import_module("weft.nn.graph_module").RecordedModule(self)

    @property
    def code(self) -> str:
        """Python that rebuilds the graph as a module, op by op."""
        from weft.graph.source import code

        return code(self)

    # --- what follows from the records, worked out when asked --------------------------

    def _cached(self, name: str, make: Callable[[], Any]) -> Any:
        found = self._cache.get(name)
        if found is None:
            found = self._cache[name] = make()
        return found

    def _names(self) -> dict[int, str]:
        return self._cached("names", lambda: named(self._specs))

    def _ids(self) -> dict[str, int]:
        return self._cached("ids", lambda: {v: k for k, v in self._names().items()})

    def _users(self) -> dict[int, list[int]]:
        def make() -> dict[int, list[int]]:
            users: dict[int, list[int]] = {}
            for id, spec in self._specs.items():
                for x in spec.args:
                    if x.__class__ is Ref:
                        mine = users.get(x[0])
                        if mine is None:
                            users[x[0]] = [id]
                        elif mine[-1] != id:  # a node that reads a value twice is one user
                            mine.append(id)
            return users

        return self._cached("users", make)

    def _flows(self) -> set[Ref]:
        """The values that a gradient can reach."""
        return self._cached("flows", lambda: all_flows(self._specs.values()))

    def _partners(self) -> dict[int, list[int]]:
        def make() -> dict[int, list[int]]:
            partners: dict[int, list[int]] = {}
            for spec in self._specs.values():
                if spec.forward is not None:
                    partners.setdefault(spec.forward, []).append(spec.id)
            return partners

        return self._cached("partners", make)

    # --- cuts --------------------------------------------------------------------------

    def ancestors(self, node: Any) -> list[Node]:
        """All that a node was computed from, oldest first."""
        found = self._behind([self._id(node)]) - {self._id(node)}
        return [self._node(k) for k in self._specs if k in found]

    def descendants(self, node: Any) -> list[Node]:
        """All that was computed from a node, oldest first."""
        found = self._after([self._id(node)]) - {self._id(node)}
        return [self._node(k) for k in self._specs if k in found]

    def _behind(self, ids: Iterable[int], stop: Iterable[int] = ()) -> set[int]:
        seen, specs = set(ids), self._specs
        stack, ends = list(seen), set(stop)
        while stack:
            id = stack.pop()
            if id in ends:
                continue
            spec = specs[id]
            for x in spec.args:
                if x.__class__ is Ref and x[0] not in seen:
                    seen.add(x[0])
                    stack.append(x[0])
            if spec.forward is not None and "outs" in spec.attrs and spec.forward not in seen:
                seen.add(spec.forward)
                stack.append(spec.forward)
        return seen

    def _after(self, ids: Iterable[int]) -> set[int]:
        users, seen = self._users(), set(ids)
        stack = list(seen)
        while stack:
            for k in users.get(stack.pop(), ()):
                if k not in seen:
                    seen.add(k)
                    stack.append(k)
        return seen

    def _ends(self) -> list[Ref]:
        """The outputs that no other output was computed from: the loss, and not the logits."""
        specs = [self._specs[id] for id in {r.node for r in self._outputs}]
        behind = self._behind({r.node for spec in specs for r in spec.refs()})
        return [r for r in self._outputs if r.node not in behind]

    def slice_to(self, *nodes: Any) -> Graph:
        """The graph of what these nodes were computed from; they are its outputs."""
        ids = [self._id(node) for node in nodes]
        return self._part(self._behind(ids), ids)

    def subgraph(self, inputs: Any, outputs: Any) -> Graph:
        """The part between some nodes and others, as a graph that can be called.

        What ``inputs`` name become its inputs, in that order; parameters and constants that the
        part reads come along.
        """
        starts = [self._id(n) for n in as_list(inputs)]
        ends = [self._id(n) for n in as_list(outputs)]
        inside = self._behind(ends, stop=starts)
        given = {id: self._read_of(id, inside - set(starts)) for id in starts}
        loose = [
            self._names()[k] for k in inside if self._specs[k].kind == "input" and k not in starts
        ]
        if loose:
            raise ValueError(
                f"subgraph: its outputs also depend on {sorted(loose)}, which the inputs "
                f"{[self._names()[k] for k in starts]} do not cut off; add them to the inputs"
                f"\n  at {errors.here()}"
            )
        part = self._part(inside | set(starts), ends)
        names = self._names()
        for id, index in given.items():
            kind = part._specs[id].kind_of(index)
            part._specs[id] = Spec(id, "input", "input", (), {}, *kind, label=names[id])
        for id in part._specs if any(given.values()) else ():
            spec = part._specs[id]
            args = tuple(Ref(x.node) if x.__class__ is Ref and x.node in given else x
                         for x in spec.args)  # fmt: skip
            part._specs[id] = spec.but(args=args)
        part._order = [names[id] for id in starts]
        return part

    def _read_of(self, id: int, readers: set[int]) -> int:
        """Which result of a node others read: an input has but one."""
        refs = (r for k in readers for r in self._specs[k].refs())
        read = {r.index for r in refs if r.node == id}
        if len(read) > 1:
            raise ValueError(
                f"subgraph: the results {sorted(read)} of {self._names()[id]!r} are read, and an "
                f"input is one tensor; start after it\n  at {errors.here()}"
            )
        return read.pop() if read else 0

    def _part(self, ids: set[int], outputs: list[int]) -> Graph:
        specs = {k: spec for k, spec in self._specs.items() if k in ids}
        part = Graph()._fill(
            specs,
            tuple(r for id in outputs for r in self._specs[id].results()),
            kept={k: v for k, v in self._kept.items() if k in ids},
            grads={k: v for k, v in self._grads.items() if k in ids},
            passes=passes_within(self._passes, specs),
            modules=self.modules,
        )
        part._cache["names"] = {k: v for k, v in self._names().items() if k in ids}
        return part

    def release(self) -> None:
        """Destroy the graph: all that it keeps alive is given back at once.

        Values, gradients and leaves go, also those of the graphs it was edited from, and with
        them what autograd saved behind its results: no backward() can pass there any more.
        """
        graph: Graph | None = self
        while graph is not None:
            roots = [t._node for held in graph._kept.values() for t in held if _is_tensor(t)]
            free_history([*roots, *(node() for node in graph._live)])
            before = graph._parent
            graph._fill({}, ())
            graph._released = True
            graph = before

    def _check_whole(self) -> None:
        if self._released:
            raise GraphError(
                f"the graph was released and can no longer be used\n  at {errors.here()}"
            )

    def save(self, path: Any, values: bool = False) -> None:
        """Write the graph and its leaves' values to one file; ``values`` also what was kept."""
        from weft.graph.files import save

        self._check_whole()
        save(self, path, values)

    # --- for people --------------------------------------------------------------------

    def __repr__(self) -> str:
        return table.render(self, most=table.MOST)

    def _repr_html_(self) -> str:
        from weft.graph.notebook import graph_html

        return graph_html(self)

    def table(
        self, depth: int | None = None, backward: bool = True, width: int | None = None
    ) -> str:
        """A table of all rows; modules deeper than ``depth`` are folded into one row each.

        Lines are as long as the terminal is wide, or ``width``; 0 cuts nothing off.
        """
        return table.render(self, depth, backward, width=width)


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def passes_within(passes: tuple[Pass, ...], specs: dict[int, Spec]) -> tuple[Pass, ...]:
    """Backward passes as a part of a graph knows them: whole or not, under their old numbers."""
    return tuple(
        p if all(r is None or r.node in specs for r, _ in p.roots) else Pass((), p.fills)
        for p in passes
    )


def free_history(roots: list[Any]) -> None:
    """Give up what some nodes, and all behind them, saved for backward."""
    seen: set[Any] = set(roots)
    stack = list(seen)
    while stack:
        node = stack.pop()
        if isinstance(node, core.Output):
            node = node.node
        if not isinstance(node, core.OpNode):
            continue
        if node.plan.holds or getattr(node.plan, "keeper", None) is not None:  # a compiled region's
            node.saved = core.FREED
        for edge in node.inputs:
            if isinstance(edge, core.GraphNode) and edge not in seen:
                seen.add(edge)
                stack.append(edge)


def is_op(spec: Spec, op: str) -> bool:
    """Whether a node's op goes by a name; the name may have stars."""
    return fnmatch.fnmatchcase(spec.op_name, op) or fnmatch.fnmatchcase(spec.title, op)


def as_list(value: Any) -> list[Any]:
    """One thing, or several, as a list."""
    return list(value) if isinstance(value, (list, tuple)) else [value]


def named(specs: dict[int, Spec]) -> dict[int, str]:
    """Names for all nodes: module path and op, with a number from the second use on."""
    counts: dict[str, int] = {}
    names: dict[int, str] = {}
    taken: set[str] = set()
    bases: dict[Any, str] = {}  # of forward nodes, by module path and op
    for spec in specs.values():
        if spec.kind != FORWARD or spec.label:
            base = base_name(spec, names, specs)
        else:
            key = spec.scope, spec.op
            found = bases.get(key)
            base = bases[key] = base_name(spec, names, specs) if found is None else found
        count = counts.get(base, 0) + 1
        name = base if count == 1 else f"{base}:{count}"
        while name in taken:
            count += 1
            name = f"{base}:{count}"
        counts[base] = count
        taken.add(name)
        names[spec.id] = name
    return names


def base_name(spec: Spec, names: dict[int, str], specs: dict[int, Spec]) -> str:
    """A node's name without a number."""
    if spec.label:
        return spec.label
    if spec.kind in (BACKWARD, OPTIMIZER) and spec.forward in names:
        partner = names[spec.forward]  # type: ignore[index]
        if spec.kind == OPTIMIZER:
            return f"{partner}.{spec.op_name.lower()}"
        return f"{partner}.{'grad' if spec.op_name == 'AccumulateGrad' else 'backward'}"
    return f"{spec.scope}.{spec.title}" if spec.scope else spec.title
