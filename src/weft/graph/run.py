"""Running a graph again: from its leaves, from given inputs, or from the values it kept."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autograd import engine
from weft.core import errors, quiet
from weft.core.devices import bare, host, on_device_of, ones_like
from weft.core.dispatch import Op, apply
from weft.core.inference import version_of
from weft.core.meta import filled
from weft.core.modes import MODES, enable_grad, no_grad
from weft.core.node import FREED, OpNode, Output
from weft.core.tensor import Tensor, beside, wrap
from weft.graph.draws import Draw
from weft.graph.gradient import (
    ACCUMULATE,
    Gradient,
    added,
    moved,
    receiving,
    shown_after,
    shown_before,
)
from weft.graph.spec import (
    BACKWARD,
    CALLS,
    DETACH,
    LEAVES,
    OPTIMIZER,
    PARAMETER,
    Call,
    Ref,
    Spec,
    dtype_name,
    listening,
    show_kind,
)
from weft.graph.steps import Step, Taken
from weft.operators.random import default_generator

if TYPE_CHECKING:
    from weft.graph.graph import Graph


class GraphError(ValueError):
    """A graph can't be run or edited as asked; the message says why and where."""


class NoSuchNode(KeyError):
    """A name that nothing has; unlike a plain KeyError it shows its message as it is."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def told_where(error: Exception, text: str) -> None:
    """Let an error's own message say where it arose."""
    message = error.args[0] if error.args else ""
    if isinstance(message, str):
        error.args = (f"{message}\n  {text}" if message else text, *error.args[1:])
    else:
        error.add_note(f"  {text}")


class Execution:
    """One run of a part of a graph."""

    def __init__(
        self, graph: Graph, given: dict[int, Any], reuse: bool = True, live: bool = False
    ) -> None:
        self.graph, self.given = graph, given
        self.live = live  # whether random numbers come from the program's own generators
        self.values: dict[int, tuple[Any, ...]] = {}
        self.kinds: dict[int, list[Any]] = {}  # shapes and dtypes of what was computed
        self.ran: set[int] = set()  # nodes that were computed in this run
        self.functions: dict[int, Any] = {}  # autograd's nodes of custom functions
        self.steps: dict[Taken, dict[int, np.ndarray]] = {}  # of optimizers that are programs
        self.undo: list[Any] = []  # what takes back their changes of state
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
        values, kinds, given, kept = self.values, self.kinds, self.given, self.kept
        goes_back = any(spec.kind == BACKWARD for spec in order)  # which asks for kinds
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, MODES.now, "scope", MODES.now.scope)
            for spec in order:
                id = spec.id
                found = values[id] = self._compute(spec)
                if goes_back:
                    kinds[id] = [kind_of(x) for x in found]
                if not uses[id]:
                    del values[id]  # it was run for the shapes of its results
                if id in given or id in kept:
                    continue
                for k in {x[0] for x in spec.args if x.__class__ is Ref}:
                    uses[k] -= 1
                    if not uses[k]:
                        del values[k]
        return [values[r.node][r.index] for r in wanted]

    def _plan(self, wanted: list[Ref]) -> tuple[list[Spec], Counter[int]]:
        specs = self.graph._specs
        seen = {r.node for r in wanted}
        stack = list(seen)
        # Of each value: how many of those that are run read it.
        uses: Counter[int] = Counter(r.node for r in wanted)
        while stack:
            id = stack.pop()
            if id in self.given or id in self.kept:
                continue
            spec = specs[id]
            for k in {x[0] for x in spec.args if x.__class__ is Ref}:
                uses[k] += 1
            for r in spec.needs():
                if r.node not in seen:
                    seen.add(r.node)
                    stack.append(r.node)
        return [spec for id, spec in specs.items() if id in seen], uses

    def _compute(self, spec: Spec) -> tuple[Any, ...]:
        if spec.id in self.given:
            return (self.given[spec.id],)
        if spec.id in self.kept:
            return self.kept[spec.id]
        if spec.op.__class__ is Op and spec.grad:
            return self._run_op(spec)
        if "grad_of" in spec.attrs:
            return (self._earlier_gradient(spec),)
        if spec.kind in LEAVES:
            return (self._leaf(spec),)
        if isinstance(spec.op, Step):
            return self._step(spec)
        if isinstance(spec.op, Taken) and self.live:
            return self._taken(spec)
        if spec.kind == OPTIMIZER:
            raise GraphError(
                f"{self._name(spec)!r} can't run again: {spec.op_name} is not an optimizer whose "
                "rule is a function of the gradient and its own state, or it asked a closure"
                f"\n  recorded at {spec.line()}\n  at {errors.here()}"
            )
        if isinstance(spec.op, Draw):
            return self._draw(spec)
        if spec.kind == BACKWARD and not isinstance(spec.op, Op):
            return self._go_back(spec)
        args = [self.values[x.node][x.index] if x.__class__ is Ref else x for x in spec.args]
        MODES.now.scope = spec.scope
        try:
            with contextlib.nullcontext() if spec.grad else no_grad():
                out = self._call(spec, args) if isinstance(spec.op, Call) else run_op(spec, args)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            self._note(spec, error)
            raise
        self.ran.add(spec.id)
        return tuple(out) if spec.several else (out,)

    def _run_op(self, spec: Spec) -> tuple[Any, ...]:
        """The common case: an op on tensors, recorded if that is switched on."""
        values = self.values
        args = [values[x[0]][x[1]] if x.__class__ is Ref else x for x in spec.args]
        MODES.now.scope = spec.scope
        try:
            out = run_op(spec, args)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            self._note(spec, error)
            raise
        self.ran.add(spec.id)
        return tuple(out) if spec.several else (out,)

    def _draw(self, spec: Spec) -> tuple[Any, ...]:
        args = [host(self.values[x.node][x.index]) if x.__class__ is Ref else x for x in spec.args]
        drawn = spec.op.run(args, spec.attrs, self.live)
        return (wrap(on_device_of(spec.dtype, drawn)),)

    def _step(self, spec: Spec) -> tuple[Any, ...]:
        """What an optimizer makes of a parameter; as a leaf it is the same one."""
        read = [self.values[x.node][x.index] for x in spec.args]
        counters = len(spec.op.rule._scalars)
        states, group = len(read) - 2 - counters, spec.op.group
        if group is not None and not spec.op.keeps(states, group):
            raise GraphError(
                f"the settings of {spec.op.name} ask for other states than when its step was "
                "recorded (as momentum does): record it again"
            )
        found = spec.op.run(list(map(bare, read)), states, spec.attrs)
        results = [
            x if isinstance(x, Tensor) else beside(old, np.asarray(x))
            for x, old in zip(found, (read[0], *read[2:]), strict=True)
        ]
        results[0]._node = read[0]._node
        return tuple(results)

    def _taken(self, spec: Spec) -> tuple[Any, ...]:
        """What an optimizer made of a parameter, which took its step for all of them at once."""
        event: Taken = spec.op
        if event not in self.steps:
            specs, given = self.graph._specs, {}
            for id in event.members:
                if id in specs:
                    read = [self.values[x.node][x.index] for x in specs[id].args]
                    given[id] = (read[0], read[1] if len(read) > 1 else None)
            try:
                self.steps[event], undo = event.run(given)
            except Exception as error:
                self._note(spec, error)
                raise
            self.undo.append(undo)
        tensor = wrap(self.steps[event][spec.id])
        tensor._node = self.values[spec.args[0].node][spec.args[0].index]._node
        return (tensor,)

    def _earlier_gradient(self, spec: Spec) -> Tensor | None:
        """What a leaf's ``.grad`` is before the step."""
        owner = self.graph._specs[spec.attrs["grad_of"]].leaf
        return None if owner is None or owner.tensor is None else owner.tensor._grad

    def _leaf(self, spec: Spec) -> Tensor:
        tensor: Any = None
        if spec.leaf is not None:
            tensor = spec.leaf.lasting if self.live else spec.leaf.tensor
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

    def _call(self, spec: Spec, args: list[Any]) -> Any:
        """Run a Python function; one with a backward of its own must see what wants a gradient."""
        if spec.op in CALLS.values() or MODES.now.grad or not spec.grad:
            out = spec.op(*args)
        else:
            flows = self.graph._flows()
            given = [
                x.detach().requires_grad_() if r in flows else x
                for x, r in zip(args, spec.args, strict=True)
            ]
            with enable_grad():
                out = spec.op(*given)
        outs = out if spec.several else (out,)
        nodes = [t.grad_fn for t in outs if isinstance(t, Tensor) and t.grad_fn is not None]
        if nodes:
            self.functions[spec.id] = nodes[0]
        return out

    def _go_back(self, spec: Spec) -> tuple[Any, ...]:
        """A step of a backward pass, on bare arrays as the engine does it."""
        outs = spec.attrs.get("outs", ())
        read = [self.values[x.node][x.index] if x.__class__ is Ref else x for x in spec.args]
        token = quiet.enter()
        try:
            if spec.op == ACCUMULATE:
                return (self._accumulated(spec, read),)
            count = len(outs)
            result = lambda k: Ref(spec.forward, k)  # type: ignore[arg-type]
            sums = {k: added(self._term(result(k), g) for g, at in zip(read, outs, strict=False)
                             if at == k) for k in dict.fromkeys(outs)}  # fmt: skip
            if isinstance(spec.op, Call):
                g = sums[outs[0]]
                return (None if g is None else spec.op(engine.as_tensor(g)),)
            return self._rules(spec, sums, read[count:])
        except GraphError:
            raise
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            self._note(spec, error)
            raise
        finally:
            quiet.leave(token)

    def _term(self, of: Ref, g: Any) -> Any:
        """One of the gradients of a value, as an array."""
        if isinstance(g, float):
            shape, dtype = self._kind_at(of)
            return bare(wrap(filled(lambda s, d: np.full(s, g, d), shape, dtype)))
        if isinstance(g, np.ndarray):  # what the pass began with
            return bare(wrap(on_device_of(self._kind_at(of)[1], g)))
        return bare(g)

    def _kind_at(self, value: Ref) -> tuple[Any, Any]:
        """Shape and dtype of a value in this run, or as they were recorded."""
        found = self.kinds.get(value.node)
        if found is not None:
            return found[value.index]
        return self.graph._specs[value.node].kind_of(value.index)

    def _rules(self, spec: Spec, sums: dict[int, Any], saved: list[Any]) -> tuple[Any, ...]:
        gradient: Gradient = spec.op
        forward = self.graph._specs[spec.forward]  # type: ignore[index]
        nothing = all(g is None for g in sums.values())
        if nothing and not getattr(gradient.op, "takes_none", False):
            return (None,) * len(gradient.targets)
        results = [self._kind_at(r) for r in forward.results()]
        grads = [sums.get(k) for k in range(len(results))]
        if gradient.before:
            grads = shown_before(gradient, grads, results)
        self._check_gradients(spec, forward, grads, results)
        arrived = [grads[k] for k in receiving(gradient.op, results)] if gradient.post else ()
        if gradient.plan is None:
            node = self.functions[forward.id]
            given = node(*map(engine.as_tensor, grads))
            given = given if isinstance(given, tuple) else (given,)
            if gradient.post:
                # As in a backward pass: a place for each tensor, and none for other arguments.
                seen = [i for i, x in enumerate(forward.args) if isinstance(x, Ref)]
                shown = dict(enumerate(given[i] for i in seen))
                shown = shown_after(gradient, shown, len(seen), arrived)
                changed = list(given)
                for i, new in zip(seen, shown.values(), strict=True):
                    changed[i] = engine.as_tensor(new)
                given = tuple(changed)
            return tuple(given[i] for i in gradient.targets)
        inputs = [self._kind_at(x) if x.__class__ is Ref else kind_of(x) for x in forward.args]
        g: Any = grads[0]
        if gradient.op.multiple:
            g = tuple(grads)
            if not gradient.op.takes_none:
                shapes, dtypes = zip(*results, strict=True)
                g = engine.with_zeros(grads, shapes, dtypes, gradient.op.constant_outputs)
        values = gradient.values(saved, inputs)
        found = moved(gradient, g, values, forward.attrs, inputs, arrived)
        return tuple(map(engine.as_tensor, found))

    def _check_gradients(self, spec: Spec, forward: Spec, grads: Any, results: list[Any]) -> None:
        """Native rules read memory as the forward node left it: nothing else may come in."""
        for k, g in enumerate(grads):
            if g is None:
                continue
            array = getattr(g, "_a", g)
            if (array.shape, array.dtype) != results[k]:
                raise GraphError(
                    f"{self._name(spec)!r} gets a gradient of "
                    f"{show_kind(array.shape, array.dtype)} for "
                    f"a result of {show_kind(*results[k])}"
                )
        if forward.id in self.ran:
            return
        inputs = [self._kind_at(x) if x.__class__ is Ref else x for x in forward.args]
        if not isinstance(forward.op, Op) or forward.op.shape is None:
            raise GraphError(
                f"{self._name(spec)!r} can't run: {self._name(forward)!r} was given as an input "
                "and not run"
            )
        if list(forward.op.infer(*inputs, **forward.attrs)) != results:
            raise GraphError(
                f"{self._name(spec)!r} can't run: the result of {self._name(forward)!r} does not "
                "fit what it reads"
            )

    def _accumulated(self, spec: Spec, read: list[Any]) -> Tensor | None:
        """What a gradient comes to: the terms, and what was there before."""
        of = Ref(spec.attrs["of"], spec.attrs["index"])
        before = read.pop() if spec.attrs.get("held") else None
        total = added(self._term(of, g) for g in read)
        if total is None:
            return before
        if before is not None:
            return engine.as_tensor(added((bare(before), total)))
        like = self.values.get(of.node)
        array = engine.as_tensor(total)._a if like is None else like[of.index]._a
        if isinstance(total, Tensor):
            return engine.copied(total, array)
        return wrap(engine.own(total, False, array))

    def _note(self, spec: Spec, error: Exception) -> None:
        where = f" from {spec.line()}" if spec.line() else ""
        told_where(error, f"in node {self._name(spec)!r} of the graph{where}")

    def _name(self, spec: Spec) -> str:
        return self.graph._names()[spec.id]


def kind_of(x: Any) -> tuple[Any, Any]:
    """Shape and NumPy dtype of a value; a number has no dtype of its own."""
    return (x._a.shape, x._a.dtype) if isinstance(x, Tensor) else (np.shape(x), None)


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
    if not isinstance(node, OpNode):
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
        graph kept its values, only what changed is run. Random numbers are those that were drawn
        when the graph was recorded.

        ``update=True`` repeats the step as the program would take it next: random numbers come
        from the live generators, and what the block had written is written: parameters and the
        optimizer's state, gradients, and the modules' own state, such as running statistics. The
        results have no history then. If anything fails, nothing is written.
        """
        graph: Graph = self  # type: ignore[assignment]
        graph._check_whole()
        if inputs is not None and not isinstance(inputs, Mapping):
            raise TypeError(
                f"run takes inputs by name, as run(x=...) or run({{'x': ...}}), not "
                f"{type(inputs).__name__}; the graph's inputs are "
                f"{[n.name for n in graph.inputs]}\n  at {errors.here()}"
            )
        given = {
            graph._id(k): _as_input(graph, graph._id(k), v)
            for k, v in {**(inputs or {}), **named}.items()
        }
        if update:
            outs = _repeat(graph, given)
        else:
            outs = Execution(graph, given).run(graph._outputs)
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
        work = Execution(graph, {}, reuse=False)
        work.kept = graph._kept  # whatever happened to the leaves since
        with listening(), no_grad():
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
            seeds = [wrap(ones_like(t._a)) if seed is None else beside(t, seed) for t, seed in live]
            return engine.grad([t for t, _ in live], [target], seeds, allow_unused=True)[0]


def _repeat(graph: Graph, given: dict[int, Any]) -> list[Any]:
    """Run a step and write what it writes; all of it is computed before the first byte."""
    specs = graph._specs
    moved = {leaf: r for leaf, r in graph._updates.items() if _lasts(specs[leaf], leaf in given)}
    grads = {leaf: r for leaf, r in graph._gradients.items() if r is not None}
    if graph._frozen:
        raise GraphError(f"the step can't be repeated: {graph._frozen}\n  at {errors.here()}")
    count, held = len(graph._outputs), len(graph._outputs) + len(moved)
    # The program draws what it does not use as well, and so moves its generator on.
    draws = [Ref(spec.id) for spec in specs.values() if isinstance(spec.op, Draw)]
    wanted = [*graph._outputs, *moved.values(), *grads.values(), *draws]
    with listening(), no_grad():
        work = Execution(graph, given, reuse=False, live=True)
        drawn_from = {id(g): (g, g.get_state()) for g in _generators(graph)}
        try:
            found = work.run(wanted)
        except BaseException:
            for undo in reversed(work.undo):
                undo()
            for generator, state in drawn_from.values():
                generator.set_state(state)
            raise
        for leaf, value in zip(moved, found[count:held], strict=True):
            specs[leaf].leaf.lasting.copy_(value)  # type: ignore[union-attr]
        for leaf, value in zip(grads, found[held:], strict=False):
            tensor: Any = specs[leaf].leaf.tensor  # type: ignore[union-attr]
            if value is not None and tensor._grad is not None:
                tensor._grad.copy_(value)
            elif value is not None:
                tensor._grad = value.clone()
        for leaf, r in graph._gradients.items():
            if r is None:
                specs[leaf].leaf.tensor._grad = None  # type: ignore[union-attr]
    return found[:count]


def _lasts(spec: Spec, given: bool) -> bool:
    """Whether what a step writes to a leaf is there for the next step."""
    if spec.kind == PARAMETER or "state" in spec.attrs:
        return True
    return spec.leaf is not None and spec.leaf.live is not None and not given


def _generators(graph: Graph) -> list[Any]:
    """The generators that a repeated step may draw from; functions draw from the default one."""
    ops = [s.op for s in graph._specs.values() if isinstance(s.op, (Draw, Call, Taken))]
    named = [op.generator for op in ops if isinstance(op, Draw)]
    return [*named, default_generator] if ops else []


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
