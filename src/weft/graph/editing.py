"""The edits that a graph offers: each gives a new, checked graph and leaves the old one whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.graph.edit import Edit, called, function_of, moved
from weft.graph.run import GraphError
from weft.graph.spec import BACKWARD, LEAVES, OPTIMIZER, Ref, Spec

if TYPE_CHECKING:
    from weft.graph.graph import Graph


class Editing:
    """How a graph is changed into another."""

    def replace(self, node: Any, function: Any) -> Graph:
        """Another function (or op, or the name of one) in the place of a node.

        It gets what the node reads, and its result goes to the node's users.
        """
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "replace")
        function = function_of(function)
        edit = Edit(graph, f"replace {graph._names()[spec.id]} by {called(function)}")
        results = edit.call(function, list(spec.args), spec)
        if len(results) != len(spec.kinds()):
            raise edit.refused(
                f"it has {len(spec.kinds())} results and the function gives {len(results)}"
            )
        for k, found in enumerate(results):
            edit.redirect(Ref(spec.id, k), found)
        return edit.done()

    def insert_after(self, node: Any, function: Any, index: int = 0) -> Graph:
        """A function between a node's result and all that reads it."""
        graph: Graph = self  # type: ignore[assignment]
        spec = graph._specs[graph._id(node)]
        _check_forward(graph, spec, "insert_after")
        function = function_of(function)
        edit = Edit(graph, f"insert {called(function)} after {graph._names()[spec.id]}")
        old = Ref(spec.id, index)
        users = [s for s in edit.specs.values() if old in s.args]
        edit.redirect(old, edit.call(function, [old], spec)[0], users)
        return edit.done()

    def insert_before(self, node: Any, function: Any, input: int | str = 0) -> Graph:
        """A function between one input of a node and the node."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "insert_before")
        function = function_of(function)
        k = _input_number(graph, spec, input)
        edit = Edit(graph, f"insert {called(function)} before {graph._names()[spec.id]}")
        edit.set_input(spec, k, edit.call(function, [spec.args[k]], spec)[0])
        return edit.done()

    def remove(self, node: Any, input: int | str | None = None) -> Graph:
        """Take a node out: its users read its first input (or the one named) instead."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "remove")
        edit = Edit(graph, f"remove {graph._names()[spec.id]}")
        refs = [k for k, x in enumerate(spec.args) if x.__class__ is Ref]
        if not refs:
            raise edit.refused("it reads nothing that could take its place")
        k = refs[0] if input is None else _input_number(graph, spec, input)
        for i in range(len(spec.kinds())):
            edit.redirect(Ref(spec.id, i), spec.args[k])
        return edit.done()

    def rewire(self, node: Any, input: int | str, to: Any, index: int = 0) -> Graph:
        """Let an input of a node read another node, or a constant (a tensor or a number)."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "rewire")
        k = _input_number(graph, spec, input)
        edit = Edit(graph, f"rewire input {input} of {graph._names()[spec.id]}")
        if isinstance(to, Tensor):
            value: Any = edit.leaf(to)
        elif isinstance(to, (int, float, complex)):
            value = to
        else:
            value = Ref(graph._id(to), index)
        edit.set_input(spec, k, value)
        return edit.done()

    def set_attrs(self, node: Any, **attrs: Any) -> Graph:
        """Other settings for a node's op."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "set_attrs")
        edit = Edit(graph, f"set {', '.join(attrs)} of {graph._names()[spec.id]}")
        unknown = [name for name in attrs if name not in spec.attrs]
        if unknown:
            raise edit.refused(
                f"{spec.op_name} has no setting {unknown[0]!r}; it has {list(spec.attrs)}"
            )
        edit.change(spec.but(attrs={**spec.attrs, **attrs}))
        return edit.done()

    def splice(self, subgraph: Graph, inputs: dict[str, Any], outputs: dict[Any, Any]) -> Graph:
        """Take in another graph.

        ``inputs`` says which of this graph's nodes each input of the other reads; ``outputs`` says
        which of this graph's nodes is replaced by which node of the other.
        """
        graph: Graph = self  # type: ignore[assignment]
        edit = Edit(graph, f"splice in a graph of {len(subgraph)} nodes")
        place: dict[int, Any] = {
            subgraph._id(name): Ref(graph._id(node)) for name, node in inputs.items()
        }
        missing = [n.name for n in subgraph.inputs if n.id not in place and n.spec.leaf is None]
        if missing:
            raise edit.refused(f"its inputs {missing} are not given")
        for spec in subgraph._specs.values():
            if spec.id in place or spec.kind in (BACKWARD, OPTIMIZER):
                continue
            id = edit.number()
            args = tuple(moved(x, place) for x in spec.args)
            edit.add(spec.but(id=id, args=args))
            place[spec.id] = Ref(id)
        for old, new in outputs.items():
            source = moved(Ref(subgraph._id(new)), place)
            edit.redirect(Ref(graph._id(old)), source)
        return edit.done()

    def rewrite(self, pattern: Callable, replacement: Callable) -> Graph:
        """Put ``replacement`` wherever the graph does what ``pattern`` does.

        Both are ordinary functions over placeholders; what a placeholder stood for in the graph
        is what the replacement gets by the same name.
        """
        from weft.graph.pattern import rewrite

        return rewrite(self, pattern, replacement)  # type: ignore[arg-type]

    def undo(self) -> Graph:
        """The graph before the last edit."""
        graph: Graph = self  # type: ignore[assignment]
        if graph._parent is None:
            raise GraphError(f"undo: nothing was edited\n  at {errors.here()}")
        return graph._parent

    @property
    def history(self) -> list[str]:
        """The edits that led here, oldest first."""
        found: list[str] = []
        graph: Any = self
        while graph._parent is not None:
            found.append(graph._change)
            graph = graph._parent
        return found[::-1]


def _check_forward(graph: Graph, spec: Spec, what: str) -> None:
    if spec.kind in (BACKWARD, OPTIMIZER):
        raise GraphError(
            f"{what}: {graph._names()[spec.id]!r} is a {spec.kind} node; edit the forward node it "
            f"belongs to, and run backward() on what the new graph gives\n  at {errors.here()}"
        )


def _inner(graph: Graph, node: Any, what: str) -> Spec:
    """A forward node that is no leaf."""
    spec = graph._specs[graph._id(node)]
    _check_forward(graph, spec, what)
    if spec.kind in LEAVES:
        raise GraphError(
            f"{what}: {graph._names()[spec.id]!r} is a leaf; give run() another value for it, or "
            f"use insert_after\n  at {errors.here()}"
        )
    return spec


def _input_number(graph: Graph, spec: Spec, input: int | str) -> int:
    names = getattr(spec.op, "names", ())
    if isinstance(input, str) and input in names[: len(spec.args)]:
        return names.index(input)
    if isinstance(input, int) and -len(spec.args) <= input < len(spec.args):
        return input % len(spec.args)
    raise GraphError(
        f"{graph._names()[spec.id]!r} has no input {input!r}; it has {len(spec.args)}"
        f"{f' ({names})' if names else ''}\n  at {errors.here()}"
    )
