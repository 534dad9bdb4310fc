"""Where a NaN or an infinity came from, in a forward pass or in a backward pass."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.autograd.anomaly import EXPLAIN, badness
from weft.core import errors
from weft.core.devices import host, visible
from weft.core.frames import caller
from weft.core.modes import MODES, no_grad
from weft.core.node import OpNode
from weft.core.saved import is_intact
from weft.core.tensor import Tensor, wrap
from weft.graph.build import behind, graph_of_nodes
from weft.graph.explaining import ends_of, graph_behind, hint_for
from weft.graph.graph import Graph
from weft.graph.graph import Node as GraphNode
from weft.graph.naming import variables
from weft.graph.run import Execution, GraphError
from weft.graph.spec import FORWARD, Ref, Spec, listening, show_kind
from weft.graph.stats import describe

_LOST = "value no longer kept"


class Bad:
    """The node that made the first NaN or infinity, with what it read."""

    def __init__(
        self, node: GraphNode, what: str, inputs: list[tuple[str, str]], backward: bool = False
    ) -> None:
        self.node, self.what, self.inputs, self.backward = node, what, inputs, backward
        self.given = False  # whether it received a gradient that was bad already

    def __repr__(self) -> str:
        who = f"the backward of {self.node.name}" if self.backward else self.node.name
        lines = [f"{who} made the first {self.what}"]
        if self.given:
            lines = [f"{who} received a {self.what}: backward() was given it, or a hook made it"]
        if self.node.source:
            lines.append(f"  at {self.node.source}")
        lines += [f"  {name}: {text}" for name, text in self.inputs]
        return "\n".join(lines)


def first_bad(loss: Tensor | Graph) -> Bad | None:
    """The first node that produced the NaN or infinity in a loss; None if the loss is finite.

    Values that were kept, or that backward has saved, are read; others are recomputed. An intended
    infinity (a mask), or one that a later node removed, is not reported.
    """
    if isinstance(loss, Tensor) and not badness((loss,)):
        return None
    graph = graph_behind(loss)
    known = {}
    if isinstance(loss, Tensor) and loss.grad_fn is not None:
        known = saved_values(graph, behind([loss.grad_fn]))
    walk = Walk(graph, ends_of(graph), known)
    bad = walk.first() or walk.likely()
    if bad is None and walk.reasons:
        raise GraphError(f"first_bad can't run {walk.lost!r} again: {walk.reasons[0]}")
    return bad


class Walk:
    """The values that lead to some nodes, oldest first, and the nodes that produced bad ones."""

    def __init__(self, graph: Graph, ends: Iterable[int], known: dict[Ref, Tensor]) -> None:
        self.graph, self.ends, self.known = graph, set(ends), known
        self.lost = ""  # the first node whose value can't be had any more
        self.run = Execution(graph, {}, reuse=False)
        self.sources: dict[int, int | None] = {}  # of what is not finite: the node that made it so
        self.found: dict[int, Bad] = {}
        self.reasons: list[str] = []  # why some values can't be had any more
        self._go()

    def first(self, ends: Iterable[int] | None = None) -> Bad | None:
        """The first node that made what is not finite at the ends, or at some of them."""
        chosen = self.ends if ends is None else ends
        guilty = {self.sources[k] for k in chosen if k in self.sources}
        return next((bad for k, bad in self.found.items() if k in guilty), None)

    def likely(self) -> Bad | None:
        """The first node that made a bad value from which only lost values lead to the ends."""
        users = self.graph._users()
        for start, bad in self.found.items():
            seen, stack = {start}, [start]
            while stack:
                id = stack.pop()
                if id in self.ends:
                    return bad
                for k in users.get(id, ()):
                    held = self.run.values.get(k, ())
                    if k not in seen and (k in self.sources or any(v is None for v in held)):
                        seen.add(k)
                        stack.append(k)
        return None

    def value(self, ref: Ref) -> Tensor | None:
        """A value, if it is known."""
        return self.run.values[ref.node][ref.index] if ref.node in self.run.values else None

    def show(self, x: Any) -> tuple[str, str]:
        """What a node read, in words: its name, and what its values look like."""
        if x.__class__ is not Ref:
            return "constant", repr(x)
        value, name = self.value(x), self.graph._names()[x.node]
        if value is None:
            return name, f"{show_kind(*self.graph._specs[x.node].kind_of(x.index))}, {_LOST}"
        return name, f"{errors.describe(value)}, {describe(visible(value))}"

    def _go(self) -> None:
        order: dict[int, int] = {}
        wanted = self._needed()
        with listening(), no_grad(), contextlib.ExitStack() as stack:
            stack.callback(setattr, MODES.now, "scope", MODES.now.scope)
            for spec in self.graph._specs.values():
                if spec.id not in wanted:
                    continue
                self.run.values[spec.id] = self._compute(spec)
                what = badness(self.run.values[spec.id])
                if not what:
                    continue
                before = [self.sources[r.node] for r in spec.refs() if r.node in self.sources]
                made = [k for k in before if k is not None]
                if made:
                    self.sources[spec.id] = min(made, key=order.__getitem__)
                elif _meant(spec, what) or (before and what == "infinity"):
                    self.sources[spec.id] = None
                else:
                    self.sources[spec.id] = spec.id
                    order[spec.id] = len(order)
                    inputs = [self.show(x) for x in spec.args if x is not None]
                    self.found[spec.id] = Bad(self.graph._node(spec.id), what, inputs)

    def _needed(self) -> set[int]:
        """What has to be looked at: nothing that lies behind a value known to be whole."""
        known = {*self.graph._kept, *(r.node for r in self.known)}
        whole = {
            id for id in known
            if (values := self._kept(id)) and None not in values and not badness(values)
        }  # fmt: skip
        return self.graph._behind(self.ends, stop=whole)

    def _kept(self, id: int) -> tuple[Any, ...] | None:
        kept = self.graph._kept.get(id)
        if kept is None and self.known:
            count = len(self.graph._specs[id].kinds())
            kept = tuple(self.known.get(Ref(id, k)) for k in range(count))
        return kept if kept and any(v is not None for v in kept) else None

    def _compute(self, spec: Spec) -> tuple[Any, ...]:
        """A node's results: as kept, or computed again; None for those that can't be."""
        kept = self._kept(spec.id)
        if kept is not None and None not in kept:
            if spec.id not in self.graph._kept:
                self._check(spec, kept)
            return kept
        lost = kept or (None,) * len(spec.kinds())
        if any(self.value(r) is None for r in spec.refs()):
            return lost
        try:
            return self.run._compute(spec)
        except GraphError as error:
            self.reasons.append(_first_line(error))
        except Exception as error:
            self.reasons.append(f"{spec.title} can't be run again: {_first_line(error)}")
        self.lost = self.lost or self.graph._names()[spec.id]
        return lost

    def _check(self, spec: Spec, saved: tuple[Any, ...]) -> None:
        """Drop what was computed again if it can't be what a saved result was computed from."""
        again = {r for r in spec.refs() if r.node in self.run.values and r not in self.known}
        again = {r for r in again if self.graph._specs[r.node].kind == FORWARD}
        if not again or any(self.value(r) is None for r in spec.refs()):
            return
        with contextlib.suppress(Exception):
            if all(map(_close, self.run._compute(spec), saved)):
                return
        self.reasons.append(f"what {self.graph._names()[spec.id]} read was changed in place since")
        for r in again:
            self.run.values[r.node] = (None,) * len(self.graph._specs[r.node].kinds())
            self.sources.pop(r.node, None)
            self.found.pop(r.node, None)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _close(a: Any, b: Any) -> bool:
    first, second = (np.asarray(host(t)).astype(np.complex128) for t in (a, b))
    return np.allclose(first, second, rtol=1e-3, atol=1e-6, equal_nan=True)


def saved_values(graph: Graph, nodes: list[Any]) -> dict[Ref, Tensor]:
    """What backward has saved of a live graph's values, where nothing was written over it."""
    known: dict[Ref, Tensor] = {}
    specs = (s for s in graph._specs.values() if s.kind == FORWARD)
    for node, spec in zip([n for n in nodes if isinstance(n, OpNode)], specs, strict=True):
        op = node.op
        if not is_intact(node):
            continue
        for slot, value in zip(node.plan.slots, node.saved, strict=False):
            place: Any = None
            if slot in op.names:
                place = spec.args[op.names.index(slot)]
            elif slot in op.outputs:
                place = Ref(spec.id, op.outputs.index(slot))
            if place.__class__ is Ref and isinstance(value, np.ndarray):
                if graph._specs[place.node].kind_of(place.index) == (value.shape, value.dtype):
                    known[place] = wrap(value)
    return known


def _meant(spec: Spec, what: str) -> bool:
    """Whether the infinity was put there on purpose, as masks are."""
    if what == "NaN":
        return False
    given = [x for x in (*spec.args, *spec.attrs.values()) if isinstance(x, float)]
    return spec.kind == "constant" or any(math.isinf(x) for x in given)


# --- backward --------------------------------------------------------------------------


def explain_backward(
    node: OpNode, incoming: list[np.ndarray], infinite: list[tuple[OpNode, list[np.ndarray]]]
) -> str:
    """A description of the node that produced the first bad value of a backward pass with a NaN.

    ``incoming`` is what the node received; ``infinite`` are the nodes before it that made an
    infinity of a gradient that was finite, oldest first, with what they received.
    """
    what = "NaN"
    if badness(incoming) == "infinity":
        for earlier, received in infinite:
            if node in set(behind([earlier])):
                node, incoming, what = earlier, received, "infinity"
                break
    try:
        return _in_lines(_behind_backward(node, incoming, what))
    except Exception as error:  # the error that is being told of matters more than this one
        return f"  where it came from can't be said: {_first_line(error)}"


def _in_lines(parts: list[Any]) -> str:
    return "\n".join(f"  {line}" for part in parts for line in str(part).splitlines())


def _behind_backward(node: OpNode, incoming: list[np.ndarray], what: str) -> list[Any]:
    nodes = behind([node])
    graph = graph_of_nodes(nodes, names=variables(caller(sys._getframe(1))))
    spec = next(s for s in reversed(graph._specs.values()) if s.kind == FORWARD)
    inputs = {r.node for r in spec.refs()}
    walk = Walk(graph, {spec.id, *inputs}, saved_values(graph, nodes))
    reasons = [f"not all values are kept: {reason}" for reason in dict.fromkeys(walk.reasons)]
    bad = walk.first(inputs)
    if bad is not None:
        return [f"in the forward pass {bad!r}", *reasons]
    read = [("gradient", f"{errors.describe(g)}, {describe(g)}") for g in incoming]
    read += [walk.show(x) for x in spec.args if x is not None]
    read += [("result", walk.show(Ref(spec.id, k))[1]) for k in range(len(spec.kinds()))]
    made = Bad(graph._node(spec.id), what, read, backward=True)
    made.given = badness(incoming) == "NaN"
    hint = "" if made.given else hint_for(spec.op_name)
    return [made, *([hint] if hint else []), *reasons]


EXPLAIN.append(explain_backward)

__all__ = ["Bad", "Walk", "explain_backward", "first_bad", "saved_values"]
