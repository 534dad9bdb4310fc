"""A graph in the making: what an edit does to it, and the checks before it is a graph again."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import errors, meta, quiet
from weft.core.devices import copy_of
from weft.core.dispatch import REGISTRY, Op
from weft.core.modes import enable_grad
from weft.core.tensor import Tensor, wrap
from weft.graph.collecting import no_collection
from weft.graph.derive import derive
from weft.graph.gradient import ACCUMULATE, ONES, Gradient, all_flows, kinds_of
from weft.graph.run import GraphError
from weft.graph.spec import (
    BACKWARD,
    CONSTANT,
    INPUT,
    LEAVES,
    OPTIMIZER,
    PARAMETER,
    Call,
    Leaf,
    Ref,
    Spec,
    listening,
    pair_ref,
    show_kind,
    show_value,
)
from weft.graph.steps import Taken
from weft.operators import api

if TYPE_CHECKING:
    from weft.graph.graph import Graph

# Ops whose results have shapes that follow from values.
_BY_VALUE = {"nonzero", "masked_select", "unique_consecutive", "unique_dim", "bincount"}


def function_of(given: Any) -> Callable:
    """What an edit is to run: a function, an op, or the name of either."""
    if isinstance(given, str):
        for names in (api.NAMESPACES.get("nn.functional", {}), api.FUNCTIONS, REGISTRY):
            if given in names:
                return names[given]
        raise GraphError(f"no function or op is called {given!r}\n  at {errors.here()}")
    if not callable(given):
        raise TypeError(
            f"an edit takes a function, an op or its name, not {type(given).__name__}"
            f"\n  at {errors.here()}"
        )
    return given


def is_module(function: Any) -> bool:
    """Whether a function has parameters of its own."""
    return hasattr(function, "_parameters") and hasattr(function, "forward")


def data_of(graph: Graph, spec: Spec) -> list[Ref]:
    """What a node reads that is data: neither a parameter or buffer, nor computed from those."""

    def is_data(leaf: Spec) -> bool:
        return leaf.kind in LEAVES and leaf.kind != PARAMETER and "state" not in leaf.attrs

    refs = list(spec.refs())
    behind = {r.node: graph._behind([r.node]) for r in refs}
    data = [r for r in refs if any(is_data(graph._specs[k]) for k in behind[r.node])]
    return data or refs


class Traced:
    """What a function did to some tensors, as records that a graph can take in."""

    def __init__(self, function: Callable, tensors: list[Tensor]) -> None:
        from weft.graph.recording import Recorder

        given = [_movable(t) for t in tensors]
        recorder = Recorder(values=False, profile=False, home=sys._getframe(2))
        with listening(), enable_grad():
            with recorder:
                self.inputs = [recorder.ref(t).node for t in given]
                out = function(*given)
                self.several = isinstance(out, (tuple, list))
                outs = list(out) if self.several else [out]
                for o in outs:
                    if not isinstance(o, Tensor):
                        raise GraphError(
                            f"{called(function)} gave a {type(o).__name__}, where the graph "
                            f"needs a tensor\n  at {errors.here()}"
                        )
                self.results = [recorder.ref(o) for o in outs]
        self.specs = recorder.specs
        self.modules = recorder.modules

    @functools.cached_property
    def placeholders(self) -> dict[int, int]:
        """Which argument of the function a record stands for, once ``inputs`` is settled."""
        return {id: k for k, id in enumerate(self.inputs) if id is not None}

    @functools.cached_property
    def needed(self) -> list[Spec]:
        """The records that the results need, in order."""
        seen = {r.node for r in self.results}
        stack = list(seen)
        while stack:
            for r in self.specs[stack.pop()].refs():
                if r.node not in seen:
                    seen.add(r.node)
                    stack.append(r.node)
        return [spec for spec in self.specs if spec.id in seen]


def runs_on_kinds(function: Callable, kinds: list[Any], arguments: list[Any]) -> bool:
    """Whether a function runs on tensors without values: then it does not depend on them."""
    try:
        given = [
            wrap(meta.empty(*kind)) if x.__class__ is Ref else x
            for x, kind in zip(arguments, kinds, strict=True)
        ]
        with listening(), enable_grad():
            function(*given)
    except Exception:
        return False
    return True


def moved(x: Any, place: dict[int, Any]) -> Any:
    if x.__class__ is not Ref or x.node not in place:
        return x
    found = place[x.node]
    if found.__class__ is Ref and not found.index:
        return pair_ref((found[0], x[1]))
    return found


def _movable(t: Tensor) -> Tensor:
    """A tensor that a traced function may do anything to, and whose gradient can be cut off."""
    copy = wrap(copy_of(t._a))
    if copy._a.dtype.kind not in "fcV":
        return copy
    return copy.requires_grad_() * 1


def called(function: Any) -> str:
    return getattr(function, "__name__", None) or type(function).__name__


class Edit:
    """A graph in the making: changed freely here, checked as a whole by ``done``."""

    def __init__(self, graph: Graph, change: str) -> None:
        self.graph, self.change_text = graph, change
        # Steps of backward passes are derived again from the edited forward nodes.
        self.specs: dict[int, Spec] = {
            k: s if s.kind != BACKWARD else _waiting(s)
            for k, s in graph._specs.items()
            if s.kind != BACKWARD or not is_step(s)
        }
        self.outputs = list(graph._outputs)
        self.updates = dict(graph._updates)
        self.passes = graph._passes
        self.changed: set[int] = set()
        self.modules = dict(graph.modules)
        self.fresh: set[int] = set()
        self.after: dict[int, list[int]] = {}  # fresh nodes by the old one they stand beside
        self.met: dict[int, list[Any]] = {}  # dtypes that nodes of another graph used to read
        self._known: dict[Ref, Any] = {}
        self.cut: set[int] = set()  # nodes that stay only if others still read them
        self._tried: set[Ref] = set()  # values that were asked for once, known or not
        self._calls: dict[Any, Traced | None] = {}  # functions that mind the kinds of values alone
        self.awaited: list[Ref] = []  # values that functions will meet, if they look at them
        self._leaves = {
            id(tensor): Ref(spec.id)
            for spec in self.specs.values()
            if spec.leaf is not None and (tensor := spec.leaf.tensor) is not None
        }
        self._next = graph._eldest()._cache.setdefault("next", [max(graph._specs, default=0) + 1])
        self._next[0] = max(self._next[0], max(graph._specs, default=0) + 1)

    def refused(self, reason: str) -> GraphError:
        return GraphError(f"{self.change_text}: {reason}\n  at {errors.here()}")

    def number(self) -> int:
        self._next[0] += 1
        return self._next[0] - 1

    @functools.cached_property
    def _readers(self) -> dict[int, dict[int, None]]:
        """The nodes that read each node; kept up to date from the first time it is asked for."""
        readers: dict[int, dict[int, None]] = {}
        for spec in self.specs.values():
            for r in spec.refs():
                readers.setdefault(r.node, {})[spec.id] = None
        return readers

    def _note_reader(self, spec: Spec) -> None:
        if "_readers" in self.__dict__:
            for r in spec.refs():
                self._readers.setdefault(r.node, {})[spec.id] = None

    def add(self, spec: Spec) -> Ref:
        self.specs[spec.id] = spec
        self.fresh.add(spec.id)
        self._note_reader(spec)
        return pair_ref((spec.id, 0))

    def take_in(
        self, specs: Iterable[Spec], place: dict[int, Any], near: Spec | None = None
    ) -> list[int]:
        """Add nodes of another graph under numbers of this one; ``place`` says where each went.

        Replacement nodes are placed where the replaced node was.
        """
        made = []
        for spec in specs:
            if spec.id in place:
                continue
            tensor = None if spec.leaf is None else spec.leaf.tensor
            if tensor is not None and id(tensor) in self._leaves:
                place[spec.id] = self._leaves[id(tensor)]
                continue
            copy = spec.reading(tuple([moved(x, place) for x in spec.args]))
            copy.id = self.number()
            if near is not None and spec.kind not in LEAVES:
                _put_beside(copy, near)
            new = place[spec.id] = self.add(copy)
            if tensor is not None:
                self._leaves[id(tensor)] = new
            made.append(new.node)
        return made

    def leaf(self, tensor: Tensor) -> Ref:
        """A tensor of the program as a leaf."""
        if id(tensor) in self._leaves:
            return self._leaves[id(tensor)]
        kind = PARAMETER if tensor.requires_grad and tensor.is_leaf else CONSTANT
        spec = Spec(
            self.number(), kind, kind, (), {}, tensor._a.shape, tensor._a.dtype, leaf=Leaf(tensor)
        )
        found = self._leaves[id(tensor)] = self.add(spec)
        return found

    def change(self, spec: Spec) -> None:
        self.specs[spec.id] = spec
        self.changed.add(spec.id)
        self._note_reader(spec)

    def set_input(self, spec: Spec, k: int, value: Any) -> None:
        args = list(self.specs[spec.id].args)
        args[k] = value
        self.change(self.specs[spec.id].reading(tuple(args)))

    def call_often(self, function: Callable, arguments: list[Any], near: Spec) -> list[Any]:
        """The same as ``call``, for a function that is called in many places.

        One that runs without looking at values does the same on all values of the same kind.
        """
        kinds = tuple([self._kind(x) if x.__class__ is Ref else repr(x) for x in arguments])
        if kinds not in self._calls:
            self._calls[kinds] = None
            if runs_on_kinds(function, [
                self._kind(x) if x.__class__ is Ref else x for x in arguments
            ], arguments):  # fmt: skip
                self._calls[kinds] = self._traced(function, arguments, by_kind=True)
        traced = self._calls[kinds]
        if traced is None:
            self.know(self.awaited)
            return self.call(function, arguments, near)
        return self._taken_in(traced, arguments, near)

    def call(self, function: Callable, arguments: list[Any], near: Spec) -> list[Any]:
        """Let a function act on values of the graph; what it does becomes part of it."""
        return self._taken_in(self._traced(function, arguments), arguments, near)

    def _taken_in(self, traced: Traced, arguments: list[Any], near: Spec) -> list[Any]:
        refs = [x for x in arguments if x.__class__ is Ref]
        place: dict[int, Any] = dict(zip(traced.inputs, refs, strict=True))
        made = self.take_in(traced.needed, place, near)
        self.after.setdefault(near.id, []).extend(made)
        self.modules.update(traced.modules)
        return [moved(r, place) for r in traced.results]

    def _traced(self, function: Callable, arguments: list[Any], by_kind: bool = False) -> Traced:
        refs = [x for x in arguments if x.__class__ is Ref]
        if by_kind and all(None not in self._kind(r) for r in refs):
            tensors = {r: wrap(stand_in(*self._kind(r))) for r in refs}
        else:
            tensors = dict(zip(refs, self._values(refs), strict=True))
        positions = [k for k, x in enumerate(arguments) if x.__class__ is Ref]

        def act(*given: Tensor) -> Any:
            full = list(arguments)
            for k, t in zip(positions, given, strict=True):
                full[k] = t
            return function(*full)

        act.__name__ = called(function)
        try:
            return Traced(act, [tensors[r] for r in refs])
        except GraphError:
            raise
        except Exception as error:
            shown = ", ".join(
                show_kind(*self._kind(x)) if x.__class__ is Ref else show_value(x)
                for x in arguments
            )
            reason = f"{called(function)} does not take {shown}: {error}"
            raise self.refused(reason) from error

    def check_settings(self, function: Callable, spec: Spec) -> None:
        """Refuse a function that would take what a node reads for one of its own settings."""
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        names = getattr(spec.op, "names", ())
        for k, (x, into) in enumerate(zip(spec.args, parameters, strict=False)):
            if into.kind not in (into.POSITIONAL_ONLY, into.POSITIONAL_OR_KEYWORD):
                return
            optional = into.default is not into.empty and into.name not in names[k : k + 1]
            if x is None or not optional or (x.__class__ is Ref and into.default is None):
                continue
            what = show_kind(*self._kind(x)) if x.__class__ is Ref else show_value(x)
            raise self.refused(
                f"{called(function)} would take {what}, which {spec.op_name} reads as its input "
                f"{k}, for its setting {into.name!r}; say what is meant with a function, such as "
                f"lambda x, *_: {called(function)}(x)"
            )

    def _kind(self, r: Ref) -> tuple[Any, Any]:
        return self.specs[r.node].kind_of(r.index)

    def know(self, refs: Iterable[Ref]) -> None:
        """Compute values that functions will meet, all in one run."""
        wanted = [r for r in dict.fromkeys(refs)
                  if r not in self._tried and r.node in self.graph._specs]  # fmt: skip
        if not wanted:
            return
        self._tried.update(wanted)
        with contextlib.suppress(GraphError, RuntimeError, KeyError):
            self._known.update(zip(wanted, self.graph._compute(wanted), strict=True))

    def _values(self, refs: list[Ref]) -> list[Tensor]:
        """The values that a function will meet, or stand-ins of their kind."""
        self.know(refs)
        for r in refs:
            if r not in self._known and None in self._kind(r):
                raise self.refused(f"the value of {self._name(r.node)!r} is gone")
        return [
            self._known[r].detach() if r in self._known else wrap(stand_in(*self._kind(r)))
            for r in refs
        ]

    def redirect(self, old: Ref, new: Any) -> None:
        """Let all that read one value read another; what the edit brought in reads on."""
        if new == old:
            return
        for id in self._readers.get(old.node, ()):
            spec = self.specs[id]
            if id not in self.fresh and old in spec.args:
                self.change(spec.reading(tuple([new if x == old else x for x in spec.args])))
        self._redirect_ends({old: new})

    def redirect_all(self, moved: dict[Ref, Any]) -> None:
        """The same for many values at once; what nothing needs any more is left as it is."""
        self._redirect_ends(moved)
        roots = {r.node for p in self.passes for r, _ in p.roots if r is not None}
        for id in self._behind(self._kept() | roots, moved):
            spec = self.specs[id]
            if id not in self.fresh and not moved.keys().isdisjoint(spec.refs()):
                self.change(spec.reading(_exchanged(spec.args, moved)))

    def _redirect_ends(self, moved: dict[Ref, Any]) -> None:
        ends = (*self.outputs, *(r for p in self.passes for r, _ in p.roots))
        if any(r in moved and moved[r].__class__ is not Ref for r in ends):
            raise self.refused("an output of the graph can't be a constant")
        if moved.keys().isdisjoint((*ends, *self.updates.values())):
            return
        self.outputs = [moved.get(r, r) for r in self.outputs]
        self.updates = {k: moved.get(r, r) for k, r in self.updates.items()}
        self.passes = tuple(
            p._replace(roots=tuple((r and moved.get(r, r), g) for r, g in p.roots))
            for p in self.passes
        )

    def done(self) -> Graph:
        """The new graph, if it holds together."""
        with no_collection():
            return self._done()

    def _done(self) -> Graph:
        from weft.graph.graph import Graph, passes_within

        derived = any(s.kind == BACKWARD and s.op == ACCUMULATE for s in self.specs.values())
        alive: Collection[int] = self.specs if derived else self._alive()
        order = self._sorted(alive)
        self._check_kinds(order)
        if derived:
            self._derive(order)
            alive = self._alive()
            order = self._sorted(alive)
        specs = {k: self.specs[k] for k in order if k in alive}
        made = Graph()._fill(
            specs,
            tuple(self.outputs),
            passes=passes_within(self.passes, specs),
            updates={k: r for k, r in self.updates.items() if r.node in specs and k in specs},
            gradients={
                k: r
                for k, r in self.graph._gradients.items()
                if k in specs and (r is None or r.node in specs)
            },
            frozen=self.graph._frozen,
            modules=self.modules,
            parent=self.graph,
            change=self.change_text,
        )
        if self.graph._kept:
            stale = made._after(k for k in (*self.changed, *self.fresh) if k in specs)
            kept = self.graph._kept.items()
            made._kept = {k: v for k, v in kept if k in specs and k not in stale}
        made._order = self.graph._order
        return made

    def _sorted(self, alive: Collection[int]) -> list[int]:
        """The nodes that stay, each after what it reads; otherwise as they stood."""
        placed = {k for ids in self.after.values() for k in ids}
        starts = [
            k
            for old in self.specs
            if old not in placed
            for k in ((old, *self.after[old]) if old in self.after else (old,))
            if k in alive
        ]
        done: set[int] = set()
        order: list[int] = []
        for start in starts:
            if start in done:
                continue
            if done.issuperset([r[0] for r in self._needs(start)]):
                done.add(start)
                order.append(start)
                continue
            stack = [(start, False)]
            open_: set[int] = set()
            while stack:
                id, ready = stack.pop()
                if ready:
                    open_.discard(id)
                    done.add(id)
                    order.append(id)
                elif id not in done:
                    if id in open_:
                        raise self.refused(f"{self._name(id)!r} would read its own result")
                    open_.add(id)
                    stack.append((id, True))
                    for r in reversed(self._needs(id)):
                        if r.node in open_:
                            raise self.refused(
                                f"{self._name(r.node)!r} would read its own result, by way of "
                                f"{self._name(id)!r}"
                            )
                        if r.node not in done:
                            stack.append((r.node, False))
        return order

    def _derive(self, order: list[int]) -> None:
        """The backward passes of the new forward nodes, up to the gradients of the old ones."""
        rank = {id: k for k, id in enumerate(order)}
        flows = all_flows(self.specs[id] for id in order)
        sinks: dict[Any, dict[Ref, Spec]] = {}
        for spec in self.specs.values():
            if spec.op == ACCUMULATE:
                target = Ref(spec.attrs["of"], spec.attrs["index"])
                sinks.setdefault(spec.attrs["pass"], {})[target] = spec
        for number, mine in sinks.items():
            arrived = derive(
                self.specs,
                flows,
                self._begins(number),
                lambda *made, number=number: self._add_back(*made, number=number),
                rank=rank.__getitem__,
                towards=None if self.passes[number].fills else set(mine),
                hooks=lambda r, number=number: _hooks_of(self.graph, number, r),
                around=lambda spec, made, number=number: _keep_hooks(
                    self.graph, number, spec, made
                ),
            )
            for target, spec in mine.items():
                terms = tuple(arrived.get(target, ()))
                if not terms and self._read_as_value(spec):
                    terms = (0.0,)
                self.change(spec.but(args=(*terms, *spec.args)))
            fresh = [r for r in arrived if r not in mine and r.node in self.fresh]
            for r in fresh if self.passes[number].fills else ():
                if self.specs[r.node].leaf is not None:
                    self._new_gradient(r, arrived[r], number)

    def _begins(self, number: int) -> list[tuple[Ref, Any]]:
        """Where a pass of the old graph began, and with what; it is the same in the new one."""
        olds = [s for s in self.graph._specs.values() if is_step(s) and s.attrs["pass"] == number]
        seeds: dict[Any, Any] = {}  # the first gradient that reaches a root is what it began with
        for s in olds:
            for g, k in zip(s.args, s.attrs["outs"], strict=False):
                seeds.setdefault((s.forward, k), g)
        found: list[tuple[Ref, Any]] = []
        for (root, seed), (old, _) in zip(
            self.passes[number].roots, self.graph._passes[number].roots, strict=True
        ):
            if root is not None and root.node in self.specs:
                given = seeds.get(old, seed)
                if given.__class__ is Ref and given.node not in self.specs:
                    given = seed
                found.append((root, ONES if given is None else given))
        return found

    def _add_back(
        self, op: Any, args: tuple[Any, ...], outs: tuple[int, ...], forward: Spec, number: int
    ) -> Spec:
        shape, dtype = kinds_of(op, forward, outs, self.specs)
        spec = Spec(
            self.number(), BACKWARD, op, args, {"outs": outs, "pass": number}, shape, dtype,
            forward.code, forward.instruction, forward.scope, forward.id, source=forward.source,
        )  # fmt: skip
        self.add(spec)
        return spec

    def _read_as_value(self, spec: Spec) -> bool:
        """Whether something else than an optimizer reads a gradient."""
        readers = self._readers.get(spec.id, ())
        return any(k in self.specs and self.specs[k].kind != OPTIMIZER for k in readers)

    def _new_gradient(self, target: Ref, terms: list[Any], number: int) -> None:
        leaf = self.specs[target.node]
        attrs = {"pass": number, "of": target.node, "index": target.index}
        spec = Spec(
            self.number(), BACKWARD, ACCUMULATE, tuple(terms), attrs, leaf.shape, leaf.dtype,
            scope=leaf.scope, forward=leaf.id,
        )  # fmt: skip
        self.add(spec)

    def _needs(self, id: int) -> list[Ref]:
        spec = self.specs[id]
        return list(spec.needs()) if "outs" in spec.attrs else spec.refs()

    def _name(self, id: int) -> str:
        spec = self.specs[id]
        return self.graph._names().get(id) or ".".join(filter(None, (spec.scope, spec.title)))

    def _check_kinds(self, order: list[int]) -> None:
        """Carry changed shapes and dtypes forward; refuse where an op does not take them."""
        old = self.graph._specs
        moved: set[int] = set()
        for id in order:
            spec = self.specs[id]
            if spec.kind in LEAVES or isinstance(spec.op, (str, Gradient, Taken)):
                continue
            if id not in self.changed and (
                not moved or moved.isdisjoint([r.node for r in spec.refs()])
            ):
                continue
            if self._reads_the_same_kinds(spec, old.get(id)):
                continue
            kinds = self._inferred(spec, old.get(id))
            if kinds is not None and kinds != spec.kinds():
                shapes, dtypes = zip(*kinds, strict=True)
                kind = (shapes, dtypes) if spec.several else (shapes[0], dtypes[0])
                self.specs[id] = spec.but(shape=kind[0], dtype=kind[1])
                moved.add(id)

    def _reads_the_same_kinds(self, spec: Spec, before: Spec | None) -> bool:
        """Whether a node does what it did, on values of the same kinds: its results are as well."""
        if before is None or spec.op is not before.op or spec.attrs is not before.attrs:
            return False
        olds, specs = self.graph._specs, self.specs
        return len(spec.args) == len(before.args) and all(
            x.__class__ is y.__class__
            and (
                specs[x.node].kind_of(x.index) == olds[y.node].kind_of(y.index)
                if x.__class__ is Ref
                else x is y
            )
            for x, y in zip(spec.args, before.args, strict=True)
        )

    def _inferred(self, spec: Spec, before: Spec | None) -> Any:
        args = [self._kind(x) if x.__class__ is Ref else x for x in spec.args]
        kinds = [a for a in args if isinstance(a, tuple)]
        if any(shape is None for shape, _ in kinds):
            return None
        self._check_dtypes(spec, before, [d for _, d in kinds])
        if spec.op_name in _BY_VALUE or (
            spec.op_name == "index" and any(d.kind == "b" for _, d in kinds)
        ):
            return None
        try:
            return infer(spec.op, args, spec.attrs)
        except Exception as error:
            shown = ", ".join(show_kind(*a) if isinstance(a, tuple) else repr(a) for a in args)
            where = f" ({spec.line()})" if spec.line() else ""
            raise self.refused(
                f"{self._name(spec.id)!r}{where} does not take {shown}: "
                f"{str(error).splitlines()[0] if str(error) else type(error).__name__}"
            ) from error

    def _check_dtypes(self, spec: Spec, before: Spec | None, dtypes: list[Any]) -> None:
        """An op that does not convert its inputs keeps wanting what it was given at first."""
        if not isinstance(spec.op, Op) or spec.op.promote is not None:
            return
        olds = self.met.get(spec.id) or _dtypes_read(before, self.graph)
        for had, has in zip(olds, dtypes, strict=False):
            if had is not None and had != has and olds.count(had) > 1:
                raise self.refused(
                    f"{self._name(spec.id)!r} reads {show_kind((), has)[:-2]} beside "
                    f"{show_kind((), had)[:-2]}, and {spec.op_name} does not mix dtypes"
                )

    def _alive(self) -> set[int]:
        """Nodes that an output, an update or a former dead end needs; leaves of the program stay.

        Nodes that nobody read before the edit stay as well: only what the edit cut off goes.
        """
        seen = self._behind(self._kept())
        kinds = (INPUT, PARAMETER)
        return seen | {k for k, s in self.specs.items() if s.kind in kinds and k not in self.fresh}

    def _kept(self) -> set[int]:
        """Nodes that stay for their own sake: ends of the new graph and dead ends of the old."""
        ends = {r.node for r in (*self.outputs, *self.updates.values())}
        # The edit took the place of an end that is none any more.
        replaced = {r.node for r in (*self.graph._outputs, *self.graph._updates.values())} - ends
        read = {x[0] for s in self.graph._specs.values() for x in s.args if x.__class__ is Ref}
        gone = read | self.cut | replaced
        return ends | {k for k in self.graph._specs if k not in gone and k in self.specs}

    def _behind(self, ends: set[int], moved: dict[Ref, Any] | None = None) -> set[int]:
        """Nodes and all that they need, with some values replaced by others."""
        seen, stack = set(ends), list(ends)
        while stack:
            for r in self._needs(stack.pop()):
                if moved and r in moved:
                    r = moved[r]
                    if r.__class__ is not Ref:
                        continue
                if r[0] not in seen:
                    seen.add(r[0])
                    stack.append(r[0])
        return seen


def _exchanged(args: tuple[Any, ...], moved: dict[Ref, Any]) -> tuple[Any, ...]:
    """Inputs of a node with some values replaced by others."""
    return tuple([moved.get(x, x) if x.__class__ is Ref else x for x in args])


def _dtypes_read(spec: Spec | None, graph: Graph) -> list[Any]:
    """The dtypes of what a node of a graph reads."""
    refs = () if spec is None else spec.refs()
    return [graph._specs[r.node].kind_of(r.index)[1] for r in refs if r.node in graph._specs]


def _put_beside(spec: Spec, near: Spec) -> None:
    """Let a traced node stand in the module, and if need be on the line, of an old one."""
    if near.scope:
        spec.scope = f"{near.scope}.{spec.scope}" if spec.scope else near.scope
    if spec.code is None:
        spec.code, spec.instruction, spec.source = near.code, near.instruction, near.source


def is_step(spec: Spec) -> bool:
    """Whether a node is a derived step of a backward pass."""
    return spec.kind == BACKWARD and "outs" in spec.attrs


def _waiting(spec: Spec) -> Spec:
    """A gradient without the terms that are to be derived; other nodes as they are."""
    if spec.op != ACCUMULATE:
        return spec
    return spec.but(args=spec.args[-1:] if spec.attrs.get("held") else ())


def _hooks_of(graph: Graph, number: int, value: Ref) -> list[Call]:
    """The hooks that acted on a value's gradient in a pass."""
    return [
        s.op
        for k in graph._partners().get(value.node, ())
        if isinstance((s := graph._specs[k]).op, Call)
        and s.attrs.get("pass") == number
        and s.attrs["outs"][0] == value.index
    ]


def _keep_hooks(graph: Graph, number: int, forward: Spec, made: Gradient) -> None:
    """Give a backward that was derived again the hooks of the node's old one."""
    for k in graph._partners().get(forward.id, ()):
        old = graph._specs[k]
        if isinstance(old.op, Gradient) and old.attrs.get("pass") == number:
            made.before, made.post = old.op.before, old.op.post


def stand_in(shape: Any, dtype: Any, name: str = "") -> np.ndarray:
    """Values of a kind, where only the kind is known: ones, or zeros for whole numbers."""
    if dtype.kind in "iub":
        return np.zeros(shape, dtype)
    array = np.ones(shape, dtype)
    if name.startswith("linalg") and len(shape) >= 2:
        array[...] = np.eye(shape[-2], shape[-1], dtype=dtype)
    return array


def infer(op: Any, args: list[Any], attrs: dict[str, Any]) -> tuple[tuple[Any, Any], ...]:
    """The kinds of an op's results, from the kinds of its inputs."""
    if isinstance(op, Call):
        tensors = [wrap(stand_in(*a)) if isinstance(a, tuple) else a for a in args]
        with listening():
            out = op(*tensors)
        outs = out if op.multiple else (out,)
        return tuple((o._a.shape, o._a.dtype) for o in outs)
    if op.shape is not None:
        return op.infer(*args, **attrs)
    arrays = [stand_in(a[0], a[1], op.name) if isinstance(a, tuple) else a for a in args]
    token = quiet.enter()
    try:
        out = op.compute(arrays, attrs)
    finally:
        quiet.leave(token)
    outs = [np.asarray(o) for o in (out if op.multiple else (out,))]
    return tuple((o.shape, o.dtype) for o in outs)


__all__ = [
    *("Edit", "GraphError", "Traced", "called", "data_of", "function_of", "infer", "is_module"),
    *("moved", "stand_in"),
]
