"""Running a graph again: from its leaves, from given inputs, or from the values it kept."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autograd import engine
from weft.core import errors
from weft.core.dispatch import Op, apply
from weft.core.inference import version_of
from weft.core.modes import MODES, enable_grad, no_grad
from weft.core.node import FREED, Node, Output
from weft.core.tensor import Tensor, wrap
from weft.graph.spec import DETACH, LEAVES, OPTIMIZER, Call, Ref, Spec, dtype_name, listening

if TYPE_CHECKING:
    from weft.graph.graph import Graph

ACCUMULATE = "AccumulateGrad"


class GraphError(ValueError):
    """A graph can't be run or edited as asked; the message says why and where."""


def needs(graph: Graph, spec: Spec, passes: Any = None) -> Iterator[Ref]:
    """The values that must be there before a node can run again."""
    if spec.op == ACCUMULATE:
        # A gradient is not replayed rule by rule: autograd finds it from the replayed roots.
        yield Ref(spec.attrs["of"])
        for root, _ in (passes or graph._passes)[spec.attrs["pass"]].roots:
            if root is None:
                raise GraphError(
                    f"{graph._names()[spec.id]!r} can't be computed again: its forward pass was "
                    "not recorded"
                )
            yield root
        yield from earlier(graph, spec)
    elif spec.kind == OPTIMIZER:
        if spec.forward is not None:
            yield Ref(spec.forward)
    else:
        yield from spec.refs()


def sources(graph: Graph, spec: Spec) -> Iterator[Ref]:
    """What a node reads, and for a gradient also what it is computed from."""
    yield from spec.refs()
    if spec.op == ACCUMULATE:
        yield Ref(spec.attrs["of"])
        yield from (r for r, _ in graph._passes[spec.attrs["pass"]].roots if r is not None)


def earlier(graph: Graph, spec: Spec) -> Iterator[Ref]:
    """What a gradient held before a pass added to it."""
    for r in spec.refs():
        held = graph._specs.get(r.node)
        if held is not None and (held.op == ACCUMULATE or held.op.__class__ is not str):
            yield r


class Execution:
    """One run of a part of a graph."""

    def __init__(self, graph: Graph, given: dict[int, Any], reuse: bool = True) -> None:
        self.graph, self.given = graph, given
        self.values: dict[int, tuple[Any, ...]] = {}
        self.kept = self._usable() if reuse and graph._kept else {}

    def _usable(self) -> dict[int, tuple[Any, ...]]:
        """Kept results that nothing has made out of date, and whose history is whole."""
        stale: set[int] = set()
        wants: set[int] = set()  # what has a gradient history, or should have
        usable: dict[int, tuple[Any, ...]] = {}
        for spec in self.graph._specs.values():
            if spec.kind in LEAVES:
                held = None if spec.leaf is None else spec.leaf.tensor
                moved = held is None or version_of(held) != spec.leaf.version  # type: ignore[union-attr]
                if moved or spec.id in self.given:
                    stale.add(spec.id)
                if held is not None and held._node is not None:
                    wants.add(spec.id)
                continue
            if spec.grad and spec.op is not DETACH and getattr(spec.op, "differentiable", True):
                if any(r.node in wants for r in spec.refs()):
                    wants.add(spec.id)
            kept = self.graph._kept.get(spec.id)
            lost = kept is not None and MODES.now.grad and any(map(used_up, kept))
            if kept is not None and MODES.now.grad and spec.id in wants:
                lost = lost or all(t._node is None for t in kept if isinstance(t, Tensor))
            if lost or spec.id in self.given or any(r.node in stale for r in spec.refs()):
                stale.add(spec.id)
            elif kept is not None:
                usable[spec.id] = kept
        return usable

    def run(self, wanted: Iterable[Ref]) -> list[Any]:
        """The wanted values; what is not needed any more is dropped on the way."""
        wanted = list(wanted)
        order, uses = self._plan(wanted)
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, MODES.now, "scope", MODES.now.scope)
            for spec in order:
                self.values[spec.id] = self._compute(spec)
                if spec.id in self.given or spec.id in self.kept:
                    continue
                for r in set(needs(self.graph, spec)):
                    uses[r.node] -= 1
                    if not uses[r.node]:
                        del self.values[r.node]
        return [self.values[r.node][r.index] for r in wanted]

    def _plan(self, wanted: list[Ref]) -> tuple[list[Spec], Counter[int]]:
        graph, specs = self.graph, self.graph._specs
        seen = {r.node for r in wanted}
        stack = list(seen)
        uses: Counter[int] = Counter(r.node for r in wanted)
        while stack:
            id = stack.pop()
            if id in self.given or id in self.kept:
                continue
            for r in set(needs(graph, specs[id])):
                uses[r.node] += 1
                if r.node not in seen:
                    seen.add(r.node)
                    stack.append(r.node)
        return [spec for id, spec in specs.items() if id in seen], uses

    def _compute(self, spec: Spec) -> tuple[Any, ...]:
        if spec.id in self.given:
            return (self.given[spec.id],)
        if spec.id in self.kept:
            return self.kept[spec.id]
        if spec.kind in LEAVES:
            return (self._leaf(spec),)
        if spec.kind == OPTIMIZER:
            # Parameters are read as they are now; a replay does not train.
            return self.values[spec.forward]  # type: ignore[index]
        if spec.op == ACCUMULATE:
            return (self._gradient(spec),)
        if spec.op.__class__ is str:
            raise GraphError(
                f"{self._name(spec)!r} is a step of a backward pass and does not run by itself; "
                "ask for .grad of its forward node"
            )
        args = [self.values[x.node][x.index] if x.__class__ is Ref else x for x in spec.args]
        MODES.now.scope = spec.scope
        try:
            with contextlib.nullcontext() if spec.grad else no_grad():
                out = spec.op(*args) if isinstance(spec.op, Call) else run_op(spec, args)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            where = f" from {spec.line()}" if spec.line() else ""
            error.add_note(f"  in node {self._name(spec)!r} of the graph{where}")
            raise
        return tuple(out) if spec.several else (out,)

    def _leaf(self, spec: Spec) -> Tensor:
        tensor = None if spec.leaf is None else spec.leaf.tensor
        if tensor is None:
            name = self._name(spec)
            if spec.leaf is None:
                way = f"run({name}=...)" if name.isidentifier() else f"run({{{name!r}: ...}})"
                raise GraphError(f"the input {name!r} was not given: {way}\n  at {errors.here()}")
            raise GraphError(
                f"the value of {name!r} is gone: the program has dropped it. Keep it, give "
                f"run({{{name!r}: ...}}), or use weft.graph.record(), which holds its leaves"
                f"\n  at {errors.here()}"
            )
        return tensor

    def _gradient(self, spec: Spec) -> Tensor:
        graph = self.graph
        roots = graph._passes[spec.attrs["pass"]].roots
        tensors = [self.values[r.node][r.index] for r, _ in roots]  # type: ignore[union-attr]
        seeds = [
            wrap(np.ones(t._a.shape, t._a.dtype) if seed is None else seed)
            for t, (_, seed) in zip(tensors, roots, strict=True)
        ]
        target = self.values[spec.attrs["of"]][0]
        with listening():
            grad = engine.grad(tensors, [target], seeds, retain_graph=True, allow_unused=True)[0]
        total = wrap(np.zeros(target._a.shape, target._a.dtype)) if grad is None else grad
        for r in earlier(graph, spec):
            total = total + self.values[r.node][r.index]
        return total

    def _name(self, spec: Spec) -> str:
        return self.graph._names()[spec.id]


def run_op(spec: Spec, args: list[Any]) -> Any:
    """Run a node's op on tensors and constants."""
    op: Op = spec.op
    op.check_arity(args, spec.attrs)
    return apply(op, tuple(args), spec.attrs)


def used_up(tensor: Any) -> bool:
    """Whether what a kept tensor's node saved for backward was freed or overwritten since."""
    node = tensor._node if isinstance(tensor, Tensor) else None
    if isinstance(node, Output):
        node = node.node
    if not isinstance(node, Node):
        return False
    guard = node.guard
    return node.saved is FREED or bool(guard and guard[0] != sum(cell[0] for cell in guard[1:]))


class Running:
    """How a graph computes."""

    _order: list[str] | None = None

    def run(self, inputs: dict[str, Any] | None = None, /, *, update: bool = False,
            **named: Any) -> Any:  # fmt: skip
        """Compute the outputs again: one tensor, or a tuple, with a gradient history.

        Leaves that are not given are read as they are now, so parameters have their present
        values. Any node may be given, by name; what lies before it is not run then. Where the
        graph kept its values, only what changed is run. ``update=True`` also writes what the
        block had written into the modules' own state, such as running statistics.
        """
        graph: Graph = self  # type: ignore[assignment]
        graph._check_whole()
        given = {
            graph._id(k): _as_input(graph, graph._id(k), v)
            for k, v in {**(inputs or {}), **named}.items()
        }
        moved = {
            leaf: r for leaf, r in graph._updates.items()
            if update and "state" in graph._specs[leaf].attrs
            and graph._specs[leaf].kind != "parameter"
        }  # fmt: skip
        found = Execution(graph, given).run([*graph._outputs, *moved.values()])
        outs, states = found[: len(graph._outputs)], found[len(graph._outputs) :]
        with no_grad():
            for leaf, value in zip(moved, states, strict=True):
                graph._specs[leaf].leaf.tensor.copy_(value)  # type: ignore[union-attr]
        return outs[0] if len(outs) == 1 else tuple(outs)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run on inputs given in order (for a subgraph the order in which they were named)."""
        graph: Graph = self  # type: ignore[assignment]
        names = self._order or [node.name for node in graph.inputs]
        if len(args) > len(names):
            raise TypeError(
                f"the graph has {len(names)} inputs ({', '.join(names)}), not {len(args)}"
                f"\n  at {errors.here()}"
            )
        return self.run(dict(zip(names, args, strict=False)), **named)

    def value(self, node: Any) -> Any:
        """A node's result: as kept, or computed again from the leaves; a tuple of several."""
        graph: Graph = self  # type: ignore[assignment]
        spec = graph._specs[graph._id(node)]
        kept = graph._kept.get(spec.id)
        if kept is None and spec.leaf is not None:
            kept = (Execution(graph, {})._leaf(spec),)
        if kept is None:
            kept = tuple(graph._compute(spec.results()))
        found = tuple(t.detach() if isinstance(t, Tensor) else t for t in kept)
        return found if spec.several else found[0]

    def _compute(self, wanted: Iterable[Ref]) -> list[Any]:
        """Some results, from what was kept and else from the leaves, in one run."""
        graph: Graph = self  # type: ignore[assignment]
        wanted = list(wanted)
        again = any(graph._specs[k].op == ACCUMULATE for k in graph._behind(r.node for r in wanted))
        work = Execution(graph, {}, reuse=False)
        work.kept = {} if again else graph._kept  # whatever happened to the leaves since
        with listening(), enable_grad() if again else no_grad():
            return work.run(wanted)

    def grad(self, node: Any) -> Any:
        """The gradient by a node of what backward began at.

        Without a backward pass: of the sum of the outputs that no other was computed from.
        """
        graph: Graph = self  # type: ignore[assignment]
        spec = graph._specs[graph._id(node)]
        held = graph._grads.get(spec.id)
        if held is None and spec.leaf is not None and spec.leaf.tensor is not None:
            held = spec.leaf.tensor._grad
        if held is not None:
            return held
        roots = [(r, g) for p in graph._passes for r, g in p.roots
                 if r is not None and r.node in graph._specs]  # fmt: skip
        roots = roots or [(r, None) for r in graph._ends()]
        with listening(), enable_grad():
            *tensors, target = Execution(graph, {}, reuse=False).run(
                [*(r for r, _ in roots), Ref(spec.id)]
            )
            live = [
                (t, seed) for t, (_, seed) in zip(tensors, roots, strict=True) if t.requires_grad
            ]
            if not target.requires_grad or not live:
                return None
            seeds = [wrap(np.ones_like(t._a) if seed is None else seed) for t, seed in live]
            return engine.grad([t for t, _ in live], [target], seeds, allow_unused=True)[0]


def _as_input(graph: Graph, id: int, value: Any) -> Tensor:
    spec = graph._specs[id]
    if not isinstance(value, Tensor):
        value = wrap(np.asarray(value, spec.kinds()[0][1]))
    wanted = spec.kinds()[0][1]
    if wanted is not None and value._a.dtype != wanted:
        raise GraphError(
            f"the input {graph._names()[id]!r} is {dtype_name(wanted)} in this graph, not "
            f"{dtype_name(value._a.dtype)}; convert it with .to(...)\n  at {errors.here()}"
        )
    return value
