"""Recording all that a block does: forward, backward and optimizer."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from operator import itemgetter
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import copy_of, dtype_beside, host
from weft.core.dispatch import Op
from weft.core.frames import caller
from weft.core.gate import span_of
from weft.core.inference import version_of
from weft.core.modes import INFERRING, MODES
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor, shares, wrap
from weft.graph.choosing import Choice, Stopped
from weft.graph.derive import derive
from weft.graph.draws import Draw, Heard
from weft.graph.gradient import ACCUMULATE, ONES, Gradient, kinds_of
from weft.graph.graph import Graph, Pass
from weft.graph.listen import Listener
from weft.graph.results import held_outside, new_since, variables
from weft.graph.selecting import Select
from weft.graph.spec import (
    BACKWARD,
    CONSTANT,
    FORWARD,
    OPTIMIZER,
    PARAMETER,
    STATE,
    Call,
    Ref,
    Spec,
    StateOf,
    pair_ref,
)
from weft.graph.steps import RULES, Step, Taken
from weft.graph.values import ArrayState, MemoryState, Values

getframe, ref = sys._getframe, weakref.ref
# The parts of a backward pass whose work is inside its nodes.
LONG = 5000  # nodes of a block so long that garbage is collected in it after all
UNHEARD = ("call_hooks", "post_hooks", "notice", "add", "deliver", "accumulate")


class Recorder(Values, Listener):
    """Turns events into the records of a graph."""

    def __init__(self, *, values: Any, profile: bool, home: Any, stop: Any = None) -> None:
        super().__init__(home)
        self.graph = Graph()
        self.choice = Choice(values, stop)
        self.values, self.profile = self.choice.any, profile
        self.grads: dict[int, Any] = {}
        self.passes: list[Pass] = []
        self.pending: tuple[Any, Ref] | None = None
        self.clock = 0.0
        self.waits = False  # whether the garbage collector waits for the end of the block
        self.steps_taken: list[Any] = []
        self.calls_made: list[tuple[Any, ...]] = []
        self.given: set[Ref] = set()  # gradients that autograd.grad handed out
        self.filled: list[int] = []  # leaves whose .grad a pass filled
        self.drawn: dict[int, ArrayState] = {}  # what random draws gave, by node
        self.arrived: dict[Ref, list[Any]] = {}  # gradients of the last pass, by value
        self.back_from: Any = None  # where the last pass was asked for
        self.watched: dict[int, tuple[Any, float]] = {}
        self.before_it: dict[int, Any] = {}  # the variables at home when the block began
        self.stuck = ""  # why the step can't be repeated, if it can't
        self.reseeded = ""  # where a generator was seeded, which a repeated step does not do
        self.new_generators: list[Any] = []
        # Tensors of whose values Python made constants, with their place in the record if they
        # have one, and the line.
        self.taken: list[tuple[Tensor, Ref | None, str]] = []

    def __enter__(self) -> Graph:
        super().__enter__()
        self._collect_later()
        INFERRING.append(None)  # so that new tensors say that they are
        self.before_it = variables(self.home)
        return self.graph

    def __exit__(self, *exc: object) -> bool:  # type: ignore[override]
        super().__exit__()
        self._collect_again()
        INFERRING.pop()
        stopped = isinstance(exc[1], Stopped) and exc[1].recorder is self if exc else False
        last = self.choice.last
        outputs = tuple(last.results()) if stopped and last is not None else self._outputs()
        self._name_models()
        self.home = None
        self.graph._fill(
            {spec.id: spec for spec in self.specs},
            outputs,
            live=tuple(node for node, value in self.nodes.values() if value in outputs),
            kept=self.kept,
            grads=self.grads,
            passes=tuple(self.passes),
            updates=self.updates,
            gradients=self._gradients_at_end(),
            frozen=self._frozen(),
            modules=self.modules,
        )
        self.places, self.nodes, self.watched, self.before_it = {}, {}, {}, {}
        self.cells, self.numbers = {}, []
        return stopped

    def _collect_later(self) -> None:
        """Let the garbage collector wait: nodes are many objects, and none of them garbage."""
        self.waits = gc.isenabled()
        if self.waits:
            gc.disable()

    def _collect_again(self) -> None:
        if self.waits:
            self.waits = False
            gc.enable()

    def _gradients_at_end(self) -> dict[int, Ref | None]:
        """What the ``.grad`` of each leaf is when the block ends, if a pass of it filled any."""
        found: dict[int, Ref | None] = {}
        for leaf in dict.fromkeys(self.filled):
            held = self.specs[leaf].leaf
            tensor = None if held is None else held.tensor
            if tensor is None:
                continue
            place = None if tensor._grad is None else self._held(tensor._grad._a)
            if tensor._grad is None or place is not None:
                found[leaf] = None if place is None else self._value_at_end(place)
        return found

    def _frozen(self) -> str:
        """Why a repeated step would differ from the program's, if so.

        Numbers that no op read as they were drawn: what came of them is a constant of the record.
        So is what Python made of a count that the step itself changes.
        """
        self.stuck = self.stuck or self._counted() or self.reseeded or self._overlapping()
        if self.stuck or not self.drawn:
            return self.stuck
        read = {r.node for spec in self.specs for r in spec.refs()}
        read |= {r.node for r in self.updates.values()}
        for spec in self.specs:
            if isinstance(spec.op, Draw) and spec.id not in read:
                place = self.drawn.get(spec.id)
                if place is None or place.root.loose:
                    return (
                        "random numbers were drawn and changed outside of ops, so the old ones "
                        f"would be used again: {spec.op_name} at {spec.line()}"
                    )
        return ""

    def _overlapping(self) -> str:
        """Which leaves show the same memory, if one is written: the other changes unseen."""
        leaves = [(span_of(s.leaf.lasting), s) for s in self.specs if s.leaf is not None]
        bounds = [(*span, spec) for span, spec in leaves if span is not None]
        furthest: tuple[int, Any] = (0, None)  # of all that begin before, the one that ends last
        furthest_written = furthest
        for start, end, spec in sorted(bounds, key=itemgetter(0)):
            written = spec.id in self.updates
            reached, other = furthest if written else furthest_written
            if start < reached:
                names = [self.models.shown(s.label) for s in (other, spec)]
                return f"{names[0]!r} and {names[1]!r} show the same memory, and it is written to"
            furthest = max(furthest, (end, spec), key=itemgetter(0))
            if written:
                furthest_written = max(furthest_written, (end, spec), key=itemgetter(0))
        return ""

    def _counted(self) -> str:
        """Where Python read a count of steps, whose next value a repeat would not see."""
        for array, value, code, instruction in self.numbers:
            if value is None and (place := self._held(array())) is not None:
                value = None if place.root.leaf is None else Ref(place.root.leaf)
            counter = None if value is None else self._counter_behind(value)
            if counter is not None:
                name = self.models.shown(self.specs[counter].label)
                line = errors.describe_position(code, instruction)
                return (
                    f"the program read {name!r} as a number, and every step changes it, so the old "
                    f"number would be used again\n  at {line}"
                )
        return ""

    def _counter_behind(self, value: Ref) -> int | None:
        """A count that the block changes, if a value was computed from such counts alone."""
        found, seen, stack = None, {value.node}, [value.node]
        while stack:
            spec = self.specs[stack.pop()]
            if spec.leaf is not None:
                if "state" not in spec.attrs or spec.dtype.kind not in "iu":
                    return None
                found = spec.id if spec.id in self.updates else found
            elif not spec.refs():
                return None
            for r in spec.refs():
                if r.node not in seen:
                    seen.add(r.node)
                    stack.append(r.node)
        return found

    def _outputs(self) -> tuple[Ref, ...]:
        """The outputs of the block: the roots of backward, and the final results that the program
        references.

        A result is what an op of the block made, or wrote into a tensor that is new since the
        block began. It is held if the program can still reach it when the block ends: by a
        variable, in a list, as an attribute. References from weft itself (a view to its whole,
        autograd's nodes, kept values) do not count. A held result is an end, and an output,
        if nothing else that is held or that backward began at was computed from it: the loss,
        not the logits. If all of that gives nothing, the output is what the last op gave.
        """
        roots = [r for p in self.passes if p.fills for r, _ in p.roots if r is not None]
        results = self._results()
        # A view of a tensor that was written is derived again, and takes nothing from its whole.
        later = [r for r in results if r.node not in self.implied]
        behind = self._behind([*roots, *later])
        ends = [r for r in results if r not in behind]
        if not ends and not roots:
            ends = self._last()
        return tuple(sorted({*roots, *ends}))

    def _results(self) -> list[Ref]:
        """The values of the tensors that the program holds, oldest first."""
        alive = [node for held, _ in self.nodes.values() if (node := held()) is not None]
        places = [place for place in self.places.values() if self._may_be_result(place)]
        tensors = [t for place in places for t in place.tensors]
        nodes = {id(getattr(n, "node", n)): n for n in alive}.values()
        held = held_outside(tensors, nodes, self._leaves())
        new = new_since(self.before_it, self.home)
        found = set()
        for place in places:
            mine = {id(t()) for t in place.tensors} & held
            leaf = place.root.leaf
            if leaf is not None and not place.chain and not mine & new:
                continue
            if mine:
                found.add(self._value_at_end(place))
        return sorted(r for r in found if self.specs[r.node].kind == FORWARD or r in self.given)

    def _leaves(self) -> list[Tensor]:
        """The tensors that no op of the block made."""
        leaves = (spec.leaf for spec in self.specs if spec.leaf is not None)
        return [t for leaf in leaves if (t := leaf.tensor) is not None]

    def _may_be_result(self, place: ArrayState) -> bool:
        """Whether a tensor can be a result: a parameter or a state is none, written or not."""
        leaf = place.root.leaf
        if leaf is None or place.chain:
            return True
        spec = self.specs[leaf]
        return spec.kind != PARAMETER and "state" not in spec.attrs

    def _value_at_end(self, place: ArrayState) -> Ref:
        root = place.root
        if place.version == root.version:
            return place.value
        known = len(self.specs)
        value = self._update(place)
        self.implied.update(range(known, len(self.specs)))
        return value

    def _behind(self, roots: list[Ref]) -> set[Ref]:
        """All values that some others were computed from."""
        seen: set[Ref] = set()
        stack = [r for root in roots for r in self.specs[root.node].refs()]
        while stack:
            r = stack.pop()
            if r not in seen:
                seen.add(r)
                stack.extend(self.specs[r.node].refs())
        return seen

    def _last(self) -> list[Ref]:
        """What the last op gave, of those that nobody read and that wrote to nothing older."""
        buffers = {
            r.node for leaf, r in self.updates.items()
            if "state" in self.specs[leaf].attrs and self.specs[leaf].kind != PARAMETER
        }  # fmt: skip
        forward = (s for s in self.specs if s.kind == FORWARD and s.id not in buffers)
        read = {r.node for s in forward for r in s.refs()}
        read |= {r.node for r in self.updates.values()} | self.implied
        ends = (s for s in reversed(self.specs) if s.kind == FORWARD and s.id not in read)
        last = next(ends, None)
        # Further results may be such that the program never saw, as a norm's statistics.
        return [] if last is None else [Ref(last.id)]

    # --- what is heard: ops ------------------------------------------------------------

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        if self.profile:
            self.clock = time.perf_counter()

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        spent = time.perf_counter() - self.clock if self.profile else None
        if self.waits and len(self.specs) > LONG:
            self._collect_again()
        refs, attrs = self._inputs(args, attrs)
        kind = FORWARD if MODES.now.backward is None else BACKWARD
        if op.multiple:
            shape: Any = tuple([r._a.shape for r in results])
            dtype: Any = tuple([r._a.dtype for r in results])
        else:
            shape, dtype = results[0]._a.shape, results[0]._a.dtype
        spec = self._add(kind, op, refs, attrs, shape, dtype)
        spec.time = spent
        source = self.places[id(args[0]._a)] if op.view else None
        keeps = self._choose(spec)
        for k, t in enumerate(results):
            value = pair_ref((spec.id, k))
            if source is not None and shares(t._a, args[0]._a):
                chain = (*source.chain, (op, args[1:], attrs, k))
                place = self._put(t, source.root, chain, value)
            else:
                place = self._put(t, MemoryState(value, t), (), value)
            if t._node is not None:
                self._meet(t._node, place)
            if keeps:
                place.root.kept.append(value)
        if keeps:
            self.kept[spec.id] = tuple(map(_alias, results))
        self._end_at(spec)

    def _choose(self, spec: Spec) -> bool:
        """Whether a node's value is kept; by name only if that was asked for."""
        if self.choice.by_name:
            self.choice.look(self.graph, spec, self.models)
        return self.choice.keeps(spec)

    def chosen(self) -> bool:
        return self.choice.keep is not None

    def _end_at(self, spec: Spec) -> None:
        if self.choice.last is spec:
            raise Stopped(self, spec)

    def calling(self, function: Any, args: tuple[Any, ...]) -> None:
        # Before the call, since it may write to what it is given.
        refs = tuple([self.ref(x) if isinstance(x, Tensor) else x for x in args])
        self.calls_made.append(refs)

    def called(self, function: Any, args: tuple[Any, ...], out: Any) -> None:
        many = isinstance(out, tuple)
        outs = out if many else (out,)
        refs = self.calls_made.pop()
        shapes = tuple(x._a.shape if isinstance(x, Tensor) else None for x in outs)
        dtypes = tuple(x._a.dtype if isinstance(x, Tensor) else None for x in outs)
        dirty = [k for k, x in enumerate(args) if any(x is o for o in outs)]
        constant = [k for k, x in enumerate(outs) if not isinstance(x, Tensor) or x._node is None]
        call = Call(function.__name__, _on_copies(function.apply, dirty), many, constant)
        kind = (shapes, dtypes) if many else (shapes[0], dtypes[0])
        spec = self._add(FORWARD, call, refs, {}, *kind)
        for k, t in enumerate(outs):
            if not isinstance(t, Tensor):
                continue
            value = Ref(spec.id, k)
            if any(t is x for x in args):
                place = self.places[id(t._a)]
                place.root.count = version_of(t)
                self._written(place, value, t)
            else:
                self._put(t, MemoryState(value, t), (), value)
            if t._node is not None:
                self._meet(t._node, self._place(t))
        if self._choose(spec):
            self.kept[spec.id] = tuple(map(_alias, outs))
        self._end_at(spec)

    # --- what is heard: writes ---------------------------------------------------------

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        self.before(op, args, attrs)

    def changing(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        spent = time.perf_counter() - self.clock if self.profile else None
        refs, attrs = self._inputs(args, attrs)
        target = args[0]
        # The shape and dtype of the result are known when it is written.
        kind = FORWARD if MODES.now.backward is None else BACKWARD
        spec = self._add(kind, op, refs, attrs, target._a.shape, target._a.dtype)
        spec.time = spent
        self.pending = (target, Ref(spec.id))

    def writing(self, target: Tensor, result: Any) -> None:
        place = self._place(target)
        pending, self.pending = self.pending, None
        if pending is not None and pending[0] is target:
            value = pending[1]
            self.specs[value.node].shape = result.shape
            self.specs[value.node].dtype = result.dtype
            if self._choose(self.specs[value.node]):
                self.kept[value.node] = (wrap(copy_of(result, "C")),)
        else:
            held = self._held(result)
            value = self._leaf(wrap(result)).value if held is None else self._update(held)
        self._preserve(place.root)
        self._written(place, self._cast(value, target), target)
        place.root.count = max(place.root.count, version_of(target) + 1)
        if pending is not None:
            self._end_at(self.specs[pending[1].node])

    # --- what is heard: backward -------------------------------------------------------

    def goes_back(self, work: Any, roots: Any) -> None:
        for leaf in [] if work.records or not work.sink else self.leaves:
            self._meet_gradient(leaf)
        if work.depth > 1 and work.sink:
            self._stop_repeats("a backward pass ran inside of another one, as that of checkpoint()"
                               " with use_reentrant=True does")  # fmt: skip
        if work.records:
            return
        # What hooks do is inside their nodes, and so is what rules do on tensors.
        for name in UNHEARD:
            setattr(work, name, self._unheard(getattr(work, name)))
        step, unheard = work.step, self._unheard(work.step)
        work.step = lambda node: (unheard if isinstance(node.op, Op) else step)(node)
        if self.profile or self.values:
            work.seen, step = True, work.step

            def seen(node: Any) -> None:
                if self.values:
                    self._keep_gradient(node, work.passing)
                start = time.perf_counter()
                step(node)
                if self.profile:
                    self.watched[id(node)] = (node, time.perf_counter() - start)

            work.step = seen

    def _unheard(self, function: Any) -> Any:
        def run(*args: Any) -> Any:
            with self.deaf():
                return function(*args)

        return run

    def _stop_repeats(self, reason: str) -> None:
        """Note why ``run(update=True)`` could not do what the program does."""
        self.stuck = self.stuck or f"{reason}\n  recorded at {errors.here()}"

    def repeats(self) -> Any:
        """A second run of the same code, as in a checkpoint, is not part of the record."""
        return self.deaf

    def _meet_gradient(self, leaf: int) -> None:
        """A gradient that was there before the block is a value that the pass adds to."""
        spec = self.specs[leaf]
        tensor = None if spec.leaf is None else spec.leaf.tensor
        grad = None if tensor is None else tensor._grad
        if grad is None or self._held(grad._a) is not None:
            return
        self._add_leaf(CONSTANT, grad, {"grad_of": leaf}, spec.scope, f"{spec.label}.grad")

    def _keep_gradient(self, node: Any, g: Any) -> None:
        value = self._of_node(node)
        if value is None or not isinstance(g, (np.ndarray, Tensor)):
            return
        if self.choice.keeps(self.specs[value.node]):
            held = self.grads.get(value.node)
            with self.deaf():
                new = g if isinstance(g, Tensor) else wrap(g)
                self.grads[value.node] = new if held is None else held + new

    def went_back(self, work: Any, roots: Any) -> None:
        for name in (*UNHEARD, "step"):  # which hold the pass itself, and this recorder
            vars(work).pop(name, None)
        number = len(self.passes)
        self.back_from = self._whereabouts(getframe(1))
        seeded = [(self._of_node(node), _seed(g)) for node, g in roots]
        self.passes.append(Pass(tuple(seeded), work.sink))
        self.arrived = {}
        if work.records:
            return
        begins = [(self._of_node(node), self._seed_of(g)) for node, g in roots]
        towards = None
        if work.targets is not None:
            towards = {r for node in work.targets if (r := self._of_node(node)) is not None}
        known = len(self.specs)
        self.arrived = derive(
            self.specs,
            self.flows,
            [(value, g) for value, g in begins if value is not None],
            lambda op, args, outs, forward: self._add_back(op, args, outs, forward, number),
            towards=towards,
            hooks=self._hooks_at,
            around=self._put_around,
        )
        self._note_times(known)
        for value, terms in list(self.arrived.items()):
            place = self.at.get(value)
            node = None if place is None else place()
            if node is None or (towards is not None and value not in towards):
                continue
            tensor = node.ref() if node.__class__ is AccumulateGrad else None
            if tensor is not None and work.sink and _acts_later(node):
                name = self.models.shown(self.specs[value.node].label) or "a leaf"
                self._stop_repeats(f"a hook acted on {name!r} after its gradient had arrived")
            if tensor is not None and work.sink and tensor._grad is not None:
                self._grad_arrives(value, tensor, tensor._grad, terms, number)
                if self.values and self.choice.keep is None:
                    self.grads[value.node] = wrap(copy_of(tensor._grad._a))
            elif node.extras is not None:
                for held in node.extras.retained:
                    if (kept := held()) is not None and kept._grad is not None:
                        self._grad_arrives(value, kept, kept._grad, terms, number)
        self.watched = {}

    def _seed_of(self, g: Any) -> Any:
        """The gradient that a pass began with, as a backward node reads it."""
        held = self._held(getattr(g, "_a", g))
        if held is not None:
            return self._update(held)
        seed = _seed(g)
        return ONES if seed is None else seed

    def _add_back(
        self, op: Any, args: tuple[Any, ...], outs: tuple[int, ...], forward: Spec, number: int
    ) -> Spec:
        kind = kinds_of(op, forward, outs, self.specs)
        spec = Spec(
            len(self.specs), BACKWARD, op, args, {"outs": outs, "pass": number}, *kind,
            forward.code, forward.instruction, forward.scope, forward.id,
        )  # fmt: skip
        if op.__class__ is Gradient:  # no gradient reaches what it gives
            self.specs.append(spec)
        else:
            self._append(spec)
        return spec

    def _hooks_at(self, value: Ref) -> list[Call]:
        """What the program has put in the way of a value's gradient."""
        place = self.at.get(value)
        node = None if place is None else place()
        if node is None or node.extras is None:
            return []
        hooks = [*node.extras.pre.values()]
        if node.__class__ is AccumulateGrad:
            hooks += node.extras.before.values()
        return [Call("hook", _as_function(hook)) for hook in hooks]

    def _put_around(self, forward: Spec, gradient: Gradient) -> None:
        """Hooks of a node see what comes to its backward and what it gives."""
        for value in forward.results():
            place = self.at.get(value)
            node = None if place is None else place()
            extras = getattr(getattr(node, "node", node), "extras", None)
            if extras is not None:
                gradient.before = tuple(extras.before.values())
                gradient.post = tuple(extras.post.values())
                return

    def _note_times(self, known: int) -> None:
        spent: dict[int, float] = {}
        for node, seconds in self.watched.values():
            made = self._of_node(node) or self._of_outputs(node)
            if made is not None:
                spent[made.node] = seconds
        for spec in self.specs[known:]:
            spec.time = spent.get(spec.forward)  # type: ignore[arg-type]

    def _grad_arrives(
        self, target: Ref, tensor: Tensor, grad: Tensor, terms: list[Any], number: int
    ) -> None:
        """A gradient that the program can read is a value like any other."""
        held = self._held(grad._a)
        attrs: dict[str, Any] = {"pass": number, "of": target.node, "index": target.index}
        args = tuple(terms)
        if held is not None:
            # What was there before is part of the sum.
            args, attrs["held"] = (*terms, self._update(held)), True
        here = self.back_from
        spec = self._add_at(here, BACKWARD, ACCUMULATE, args, attrs, grad._a.shape, grad._a.dtype)
        spec.forward, spec.scope = target.node, self.specs[target.node].scope
        leaf = self.places[id(tensor._a)].root.leaf if id(tensor._a) in self.places else None
        if leaf is not None and self.passes[number].fills:
            self.filled.append(leaf)
        value = pair_ref((spec.id, 0))
        if held is not None:
            root = held.root
            root.value, root.version, root.count = value, root.version + 1, version_of(grad)
            held.value, held.version = value, root.version
        else:
            self._put(grad, MemoryState(value, grad), (), value)

    def gave(self, wanted: Any, results: Any) -> None:
        """``autograd.grad`` has answered with gradients."""
        for tensor, grad in zip(wanted, results, strict=True):
            if grad is not None and grad._node is None and self._held(grad._a) is None:
                self.back_from = self._whereabouts(getframe(1))
                target = self._of_node(tensor._node) or self.ref(tensor)
                terms = self.arrived.get(target, [])
                self._grad_arrives(target, tensor, grad, terms, len(self.passes) - 1)
                self.given.add(self.places[id(grad._a)].value)

    def _of_outputs(self, node: Any) -> Ref | None:
        for held in getattr(node, "outs", {}).values():
            found = self._of_node(held())
            if found is not None:
                return found
        return None

    # --- what is heard: the optimizer --------------------------------------------------

    def step_begins(self, optimizer: Any) -> None:
        every = [(p, group) for group in optimizer.param_groups for p in group["params"]]
        moving = [(p, group) for p, group in every if p._grad is not None] or every
        taken = []
        rule = _is_rule(optimizer)
        for p, group in moving:
            grad = None if p._grad is None else self.ref(p._grad)
            own = optimizer.state.get(p, {})
            value = self.ref(p)
            if self.specs[value.node].leaf is not None:
                self._keep_leaf(value.node)
            owner = self._owner(p, value)
            names = _names(optimizer, p, group) if rule else ()
            states = {n: self._state(owner, n, own[n], optimizer, p) for n in names if n in own}
            taken.append((p, group, value, version_of(p), grad, owner, states))
        self.steps_taken.append(taken)

    def _state(self, owner: int, name: str, state: Tensor, optimizer: Any, p: Tensor) -> Ref:
        """The value of an optimizer's state, which is a leaf when it is met first."""
        if self._held(state._a) is not None:
            return self.ref(state)
        base = self.specs[owner]
        label = f"{base.label}.{name}"
        number = self._add_leaf(STATE, state, {"state": True}, base.scope, label)
        self.specs[number].leaf.follow(StateOf(optimizer, p, name))  # type: ignore[union-attr]
        return pair_ref((number, 0))

    def _owner(self, p: Tensor, value: Ref) -> int:
        """The node that a parameter is: its leaf, or what made it."""
        leaf = self.places[id(p._a)].root.leaf
        return value.node if leaf is None else leaf

    def step_ended(self, optimizer: Any) -> None:
        kind, rule = type(optimizer), _is_rule(optimizer)
        # With a closure it is not known how often it would be asked.
        whole = None if self.by_closure or rule else Taken(optimizer)
        here = self._whereabouts(getframe(1))
        groups = {
            id(group): ({k: v for k, v in group.items() if k not in ("params", "param_names")},
                        Step(kind, optimizer, group) if rule else None)
            for group in optimizer.param_groups
        }  # fmt: skip
        for p, group, value, version, grad, owner, before in self.steps_taken.pop():
            if version_of(p) == version:
                continue
            settings, step = groups[id(group)]
            names = _names(optimizer, p, group) if rule else ()
            own = optimizer.state.get(p, {})
            known = rule and grad is not None and all(n in own for n in names)
            if not known:
                args = (value,) if grad is None else (value, grad)
                op, kinds = whole or kind.__name__, (p._a.shape, p._a.dtype)
                spec = self._add_at(here, OPTIMIZER, op, args, settings, *kinds)
                if whole is not None:
                    whole.members[spec.id] = p
            else:
                tensors = [own[n] for n in names]
                states = [
                    before.get(n) or self._state(owner, n, t, optimizer, p)
                    for n, t in zip(names, tensors, strict=True)
                ]
                spec = self._add_at(
                    here, OPTIMIZER, step, (value, grad, *states), settings,
                    (p._a.shape, *[t._a.shape for t in tensors]),
                    (p._a.dtype, *[t._a.dtype for t in tensors]),
                )  # fmt: skip
                for k, (t, state) in enumerate(zip(tensors, states, strict=True), 1):
                    self._stepped(t, pair_ref((spec.id, k)), self._leaf_behind(state))
            spec.forward, spec.scope = owner, self.specs[owner].scope
            self._stepped(p, pair_ref((spec.id, 0)), self.places[id(p._a)].root.leaf)
            if p._node is not None:
                self._meet(p._node, self.places[id(p._a)])

    def _leaf_behind(self, value: Ref) -> int | None:
        """The leaf that a state was before the first step of the block."""
        while (spec := self.specs[value.node]).leaf is None:
            value = spec.args[value.index + 1]  # a step gives what it reads, but for the gradient
        return value.node

    def _stepped(self, t: Tensor, value: Ref, leaf: int | None) -> None:
        """A tensor has a new value by an optimizer, which may have moved it to other memory."""
        place = self._held(t._a)
        if place is None:
            place = self._put(t, MemoryState(value, t, leaf), (), value)
        root = place.root
        root.value, root.version, root.count = value, root.version + 1, version_of(t)
        place.value, place.version, place.cut = value, root.version, None
        if leaf is not None:
            self.updates[leaf] = value

    def writes(self) -> dict[int, int]:
        """How often the memory of each leaf in ``updates`` was written to so far."""
        roots = [place.root for place in self.places.values()]
        return {root.leaf: root.version for root in roots if root.leaf in self.updates}

    # --- what is heard: random draws ----------------------------------------------------

    def takes(self, tensor: Tensor) -> None:
        """Note the value if it is known, and the line."""
        place = self._held(tensor._a)
        value = None if place is None else self._update(place)
        self.taken.append((tensor, value, errors.here()))

    def meets(self, tensor: Tensor) -> None:
        """Give the tensor a place, by which its array is known."""
        self._place(tensor)

    def exchanges(self, tensor: Tensor) -> None:
        """Note that a repeated step would go on with the memory from before."""
        if id(tensor._vc) not in self.cells:
            self._stop_repeats("a tensor from before the block was given other memory (`.data = `)")

    def source(self, generator: Any) -> Any:
        """The generator, whose draws become nodes."""
        return Heard(generator, self._drew)

    def seeded(self, generator: Any, new: bool) -> None:
        """Note that a repeated step would draw other numbers: it does not seed."""
        if new:
            self.new_generators.append(generator)
        elif not any(g is generator for g in self.new_generators):
            self.reseeded = self.reseeded or f"a generator is seeded, at {errors.here()}"

    def _drew(
        self, op: Draw, args: Any, settings: dict[str, Any], drawn: Any, spent: float
    ) -> None:
        if any(g is op.generator for g in self.new_generators):
            self.reseeded = f"a generator is made and drawn from, at {errors.here()}"
        refs = tuple(self._drawn_from(x) for x in args)
        spec = self._add(FORWARD, op, refs, settings, drawn.shape, drawn.dtype)
        spec.grad, spec.time = False, spent if self.profile else None
        t = wrap(drawn)
        place = self.drawn[spec.id] = self._put(t, MemoryState(Ref(spec.id), t), (), Ref(spec.id))
        place.root.loose = True

    def puts(self, array: Any, made: Any) -> None:
        """Numbers that were drawn for a device are known by the array that they have there."""
        held = self._held(array)
        if held is not None and held.root.loose:
            node = held.value.node
            self.specs[node].dtype = made.dtype
            t = wrap(made)
            place = self.drawn[node] = self._put(t, MemoryState(held.value, t), (), held.value)
            place.root.loose = True

    def _drawn_from(self, x: Any) -> Any:
        held = self._held(x) if x.__class__ is np.ndarray else None
        return x if held is None else self._update(held)

    def _inputs(self, args: Any, attrs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What an op reads; numbers that were drawn for it are an input like any other."""
        refs = tuple([self.ref(x) if isinstance(x, Tensor) else x for x in args])
        held = self._held(attrs["values"]) if "values" in attrs else None
        if held is None:
            return refs, attrs
        drawn = self.specs[held.value.node]
        drawn.dtype = dtype_beside(args[0]._a, drawn.dtype)
        return (*refs, held.value), {k: v for k, v in attrs.items() if k != "values"}


def _is_rule(optimizer: Any) -> bool:
    """Whether an optimizer's step is its rule, and nothing besides."""
    kind = type(optimizer)
    return RULES.get(kind.__name__) is kind


def _names(optimizer: Any, p: Tensor, group: dict[str, Any]) -> tuple[str, ...]:
    """The state of a parameter that a rule reads: arrays, then counters."""
    return (*optimizer._names_of(p, group), *optimizer._scalars)


def _alias(x: Any) -> Any:
    """Another tensor on the same array: one that is kept must not seem to be the program's."""
    if not isinstance(x, Tensor):
        return x
    made = wrap(x._a, x._node)
    made._vc = x._vc
    return made


def _on_copies(apply: Any, which: list[int]) -> Any:
    """A function that writes to some arguments, made to write to copies of them."""
    if not which:
        return apply

    def run(*args: Any) -> Any:
        given = [
            x.clone() if k in which and isinstance(x, Tensor) else x for k, x in enumerate(args)
        ]
        return apply(*given)

    return run


def _as_function(hook: Any) -> Any:
    """A hook as a function of a gradient, which it may leave as it is."""

    def run(g: Tensor) -> Tensor:
        found = hook((g,))
        return g if found is None else found[0] if isinstance(found, tuple) else found

    return run


def _acts_later(leaf: AccumulateGrad) -> bool:
    """Whether hooks act once a leaf's gradient is there."""
    return bool(leaf.post_accumulate or (leaf.extras is not None and leaf.extras.post))


def _seed(g: Any) -> Any:
    """The gradient that a pass began with; None for the one of a scalar loss."""
    array = host(g)
    return None if not array.ndim and array == 1 else np.array(array)


def record(
    *,
    values: bool | str | list[str] | Select = False,
    profile: bool = False,
    stop: str | list[str] | Select | None = None,
) -> Recorder:
    """A block whose work becomes a graph, also without gradients, with backward and optimizer.

    ``values`` keeps every result and gradient, or those of the nodes that it names, as in
    ``values="*.relu"``; ``profile`` takes the time of every op. ``stop`` names a node after which
    the block ends: the rest of it does not run, and the node is the graph's output. Python's
    garbage collector waits for the end of the block, unless that has thousands of nodes.

    >>> import weft
    >>> x = weft.tensor([1.0, -2.0])
    >>> with weft.graph.record() as g:
    ...     y = (x.relu() * 3).sum()
    >>> [node.name for node in g]
    ['x', 'relu', 'mul', 'sum']
    """
    return Recorder(values=values, profile=profile, stop=stop, home=caller(getframe(1)))


__all__ = ["Recorder", "record"]
