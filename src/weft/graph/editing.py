"""The edits that a graph offers: each gives a new, checked graph and leaves the old one whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import errors
from weft.core.tensor import Tensor, wrap
from weft.graph.edit import Edit, called, data_of, function_of, is_module, moved
from weft.graph.run import GraphError
from weft.graph.spec import BACKWARD, LEAVES, OPTIMIZER, Ref, Spec

if TYPE_CHECKING:
    from weft.graph.graph import Graph


class Editing:
    """How a graph is changed into another."""

    def replace(self, node: Any, function: Any) -> Graph:
        """Another function (or op, or the name of one) instead of a node.

        It gets what the node reads, and its result goes to the node's users. A module has
        parameters of its own, so it gets the data alone: a Linear can replace a Linear.
        """
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "replace")
        function = function_of(function)
        edit = Edit(graph, f"replace {graph._names()[spec.id]} by {called(function)}")
        arguments: list[Any] = list(spec.args)
        if is_module(function):
            arguments = list(data_of(graph, spec))
        else:
            edit.check_settings(function, spec)
        results = edit.call(function, arguments, spec)
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
        old = _result(edit, spec, index)
        edit.redirect(old, _only(edit, edit.call(function, [old], spec)))
        return edit.done()

    def insert_before(self, node: Any, function: Any, input: int | str = 0) -> Graph:
        """A function between one input of a node and the node."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "insert_before")
        function = function_of(function)
        k = _input_number(graph, spec, input)
        edit = Edit(graph, f"insert {called(function)} before {graph._names()[spec.id]}")
        edit.set_input(spec, k, _only(edit, edit.call(function, [spec.args[k]], spec)))
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
        # Of several results with names, as a norm's, the first is meant; others are statistics.
        named = len(getattr(spec.op, "outputs", ())) > 1
        for i in range(1 if named else len(spec.kinds())):
            edit.redirect(Ref(spec.id, i), spec.args[k])
        return edit.done()

    def rewire(self, node: Any, input: int | str, to: Any, index: int = 0) -> Graph:
        """Let an input of a node read another node, or a constant (a tensor or a number)."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "rewire")
        k = _input_number(graph, spec, input)
        edit = Edit(graph, f"rewire input {input} of {graph._names()[spec.id]}")
        if isinstance(to, (Tensor, np.ndarray)):
            value: Any = edit.leaf(to if isinstance(to, Tensor) else wrap(to))
        elif isinstance(to, (int, float, complex)):
            value = to
        else:
            target = graph._specs[graph._id(to)]
            _check_forward(graph, target, "rewire")
            value = _result(edit, target, index)
        edit.set_input(spec, k, value)
        return edit.done()

    def set_attrs(self, node: Any, **attrs: Any) -> Graph:
        """Other settings for a node's op."""
        graph: Graph = self  # type: ignore[assignment]
        spec = _inner(graph, node, "set_attrs")
        if not attrs:
            raise TypeError(f"set_attrs: give settings, such as dim=0\n  at {errors.here()}")
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
        if not isinstance(subgraph, Editing):
            raise TypeError(
                f"splice takes a graph, not {type(subgraph).__name__}\n  at {errors.here()}"
            )
        edit = Edit(graph, f"splice in a graph of {len(subgraph)} nodes")
        place = _joined(edit, subgraph, inputs)
        made = [s for s in subgraph._specs.values() if s.kind not in (BACKWARD, OPTIMIZER)]
        edit.take_in(made, place)
        _mark_seams(edit, subgraph, made, place)
        for old, new in outputs.items():
            was, now = graph._specs[graph._id(old)], subgraph._specs[subgraph._id(new)]
            for spec, owner in ((was, graph), (now, subgraph)):
                _check_forward(owner, spec, "splice")
            if len(was.kinds()) != len(now.kinds()):
                raise edit.refused(
                    f"{old!r} has {len(was.kinds())} results and {new!r} has {len(now.kinds())}"
                )
            for before, after in zip(was.results(), now.results(), strict=True):
                edit.redirect(before, moved(after, place))
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


def _joined(edit: Edit, subgraph: Graph, inputs: dict[str, Any]) -> dict[int, Any]:
    """Which values of a graph the inputs of another read."""
    place: dict[int, Any] = {}
    for name, node in inputs.items():
        spec = edit.graph._specs[edit.graph._id(node)]
        _check_forward(edit.graph, spec, "splice")
        place[subgraph._id(name)] = _result(edit, spec, 0)
    missing = [n.name for n in subgraph.inputs if n.id not in place and n.spec.leaf is None]
    if missing:
        raise edit.refused(f"its inputs {missing} are not given")
    return place


def _mark_seams(edit: Edit, subgraph: Graph, made: list[Spec], place: dict[int, Any]) -> None:
    """Let the nodes that read another kind of value than in their own graph be checked."""
    for spec in made:
        id = place[spec.id].node
        olds = [subgraph._specs[r.node].kind_of(r.index) for r in spec.refs()]
        news = [edit.specs[r.node].kind_of(r.index) for r in edit.specs[id].refs()]
        edit.met[id] = [d for _, d in olds]
        if olds != news:
            edit.changed.add(id)


def _result(edit: Edit, spec: Spec, index: int) -> Ref:
    """One of a node's results, if there is such a one."""
    count = len(spec.kinds())
    if not isinstance(index, int) or not 0 <= index < count:
        name = edit.graph._names()[spec.id]
        raise edit.refused(f"{name!r} has {count} results, and none with the number {index!r}")
    return Ref(spec.id, index)


def _only(edit: Edit, results: list[Any]) -> Any:
    if len(results) != 1:
        raise edit.refused(f"the function gives {len(results)} results, and one is needed")
    return results[0]


def _check_forward(graph: Graph, spec: Spec, what: str) -> None:
    if spec.kind in (BACKWARD, OPTIMIZER):
        raise GraphError(
            f"{what}: {graph._names()[spec.id]!r} is a {spec.kind} node; edit the forward node it "
            f"belongs to, and run backward() on what the new graph gives\n  at {errors.here()}"
        )


def _inner(graph: Graph, node: Any, what: str) -> Spec:
    """A forward node that is not a leaf."""
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
