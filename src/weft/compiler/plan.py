"""From a path of the trace to programs: one for the values, one for their backward pass.

An ``ExecutionPlan`` serves one path and one set of results that the program still references when
values are needed. It knows how to compute these, what to write to leaves, and which ``grad_fn``
results get: a result that requires a gradient has a node whose backward is one program, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.compiler import history, native_matching
from weft.compiler.ir import CannotLower
from weft.compiler.trace import (
    ASSIGN,
    BACKWARD,
    CALL,
    DETACH,
    INPLACE,
    LEAF,
    NUMBER,
    RESULT,
    STEP,
    LeafSlot,
    Root,
    Token,
)
from weft.core.dispatch import apply
from weft.core.errors import describe_position
from weft.core.gate import LISTENERS
from weft.core.modes import MODES, set_grad_enabled
from weft.core.tensor import Tensor
from weft.graph.collecting import no_collection
from weft.graph.derive import derive
from weft.graph.gradient import ACCUMULATE, ONES, Gradient, flows_through, kinds_of
from weft.graph.spec import BACKWARD as BACK
from weft.graph.spec import DETACH as CUT
from weft.graph.spec import FORWARD, INPUT, OPTIMIZER, Leaf, Ref, Spec

if TYPE_CHECKING:
    from weft.compiler.following import Region

ndarray = np.ndarray


# What a program raises for invalid values.
BY_VALUE = (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError)


class Impossible(Exception):
    """Not supported by programs; the region runs such calls eagerly."""


def lower(*given: Any, memory: Any = None) -> Any:
    """The program for some nodes: native, or interpreted if requested."""
    if os.environ.get("WEFT_COMPILE") == "interpret":
        from weft.compiler.interpret import Interpreted

        return Interpreted(*given)
    from weft.compiler import program

    try:
        return program.lower(*given, memory=memory)
    except CannotLower as error:
        raise Impossible(str(error)) from None


def needed_for(
    path: Sequence[Token], wanted: Collection[int], known: Collection[int] = ()
) -> list[Token]:
    """The calls that some results depend on, apart from those that are known."""
    numbers, needed = set(wanted), []
    for token in reversed(path):
        mine = range(token.first, token.first + len(token.kinds))
        if any(k in numbers and k not in known for k in mine):
            needed.append(token)
            numbers.update(what for kind, what in token.slots if kind == RESULT)
    return needed


class Builder:
    """The nodes of a path, as records of a graph."""

    def __init__(
        self, path: Sequence[Token], ends: Collection[int] = (), passes: bool = True
    ) -> None:
        self.ends = ends  # results at which gradients stop, as at leaves
        self.with_passes = passes  # or gradients are inputs
        self.number_of: dict[Ref, int] = {}  # of results
        self.inner: dict[Ref, int] = {}  # those results as leaves, with their numbers
        self.specs: list[Spec] = []
        self.flows: set[Ref] = set()
        self.values: list[Ref] = []  # by the number of the result
        self.leaves: dict[int, Ref] = {}  # by number
        self.numbers: list[tuple[int, int]] = []  # operands that are passed in each run
        # For each backward pass: how many calls came before it, and its nodes.
        self.passes: list[tuple[int, range]] = []
        self.consumed: set[Ref] = set()  # the nodes that these passes have visited
        self.made: dict[Token, int] = {}  # the nodes of calls
        for self.at, token in enumerate(path):
            self.take(token)

    def add(self, kind: str, op: Any, args: tuple[Any, ...], attrs: Any, shape: Any, dtype: Any,
            **more: Any) -> Spec:  # fmt: skip
        spec = Spec(len(self.specs), kind, op, args, attrs, shape, dtype, **more)
        self.specs.append(spec)
        self.flows.update(flows_through(spec, self.flows))
        return spec

    def leaf(self, shape: Any, dtype: Any, grad: bool) -> Ref:
        """A value that is an input."""
        held = object.__new__(Leaf)
        held._hold, held.version, held.grad, held.live = None, 0, grad, None
        return Ref(self.add(INPUT, INPUT, (), {}, shape, dtype, leaf=held).id)

    def take(self, token: Token) -> None:
        for slot in token.leaves:
            like = slot.kind
            self.leaves[slot.number] = self.leaf(like.shape, like.dtype, like.requires)
        if token.kind == BACKWARD:
            self.go_back(token)
            return
        if token.kind == STEP:
            self.step(token)
            return
        kinds = token.kinds
        several = token.kind == CALL and token.op.multiple
        shape: Any = tuple(k.shape for k in kinds) if several else kinds[0].shape
        dtype: Any = tuple(k.dtype for k in kinds) if several else kinds[0].dtype
        op = CUT if token.kind in (ASSIGN, DETACH) else token.op
        id = self.made[token] = len(self.specs)
        args = []
        for i, (kind, what) in enumerate(token.slots):
            if kind == NUMBER:
                self.numbers.append((id, i))
                args.append(what(1))  # its class is part of the trace, its value is not
            else:
                args.append(self.argument(kind, what))
        if token.kind == ASSIGN:  # the old value of the target does not matter
            del args[0]
        spec = self.add(
            *(FORWARD, op, tuple(args), token.attrs, shape, dtype),
            code=token.code, instruction=token.instruction, scope=token.scope, grad=token.grad,
        )  # fmt: skip
        for ref in spec.results():
            number = len(self.values)
            self.number_of[ref] = number
            if number in self.ends and ref in self.flows:
                like = token.kinds[ref.index]
                ref = self.leaf(like.shape, like.dtype, True)
                self.inner[ref] = self.number_of[ref] = number
            self.values.append(ref)

    def argument(self, kind: int, what: Any) -> Any:
        if kind == RESULT:
            return self.values[what]
        return self.leaves[what.number] if kind == LEAF else what

    def step(self, token: Token) -> None:
        """An optimizer's step: one node for each parameter."""
        made = token.step
        values: dict[int, Ref] = {}
        for member in made.members:
            places = (member.param, member.gradient, *member.states)
            args = tuple(self.argument(*token.slots[place]) for place in places)
            kinds = [self.specs[r.node].kind_of(r.index) for r in (args[0], *args[2:])]
            settings = made.groups[member.group].settings
            spec = self.add(
                *(OPTIMIZER, made.ops[member.group], args),
                {k: v for k, v in settings.items() if k != "params"},
                *(tuple(shape for shape, _ in kinds), tuple(dtype for _, dtype in kinds)),
                code=token.code, instruction=token.instruction, scope=token.scope, grad=False,
            )  # fmt: skip
            values.update(zip((member.param, *member.states), spec.results(), strict=True))
        for place in made.written:
            self.number_of[values[place]] = len(self.values)
            self.values.append(values[place])

    def go_back(self, token: Token) -> None:
        """A backward pass; its gradients are accumulated into existing ones."""
        if not self.with_passes:
            for kind in token.kinds:
                ref = self.leaf(kind.shape, kind.dtype, False)
                self.number_of[ref] = len(self.values)
                self.values.append(ref)
            return
        first = len(self.specs)
        arrived = self.derive([(self.values[token.slots[0][1]], ONES)])
        self.consumed |= set(arrived)
        self.passes.append((self.at, range(first, len(self.specs))))
        for slot, place in zip(token.targets, token.held, strict=True):
            leaf = self.leaves[slot.number]
            found = self.accumulated(leaf, arrived)
            if place:
                before = self.argument(*token.slots[place])
                found = self.accumulated(leaf, {leaf: [before, found]})
            self.number_of[found] = len(self.values)
            self.values.append(found)

    def derive(self, roots: Any) -> dict[Ref, list[Any]]:
        """Append the backward pass from some roots."""
        specs = self.specs

        def add(op: Any, args: tuple[Any, ...], outs: tuple[int, ...], forward: Spec) -> Spec:
            shape, dtype = kinds_of(op, forward, outs, specs)
            more = {"forward": forward.id, "code": forward.code, "scope": forward.scope}
            return self.add(BACK, op, args, {"outs": outs}, shape, dtype, **more)

        return derive(specs, self.flows, roots, add)

    def imagined(self, root: int) -> tuple[list[int], list[Spec]]:
        """The leaves that a backward pass from a result would reach, by number, and its nodes."""
        made: list[Spec] = []

        def add(op: Any, args: tuple[Any, ...], outs: tuple[int, ...], forward: Spec) -> Spec:
            id = len(self.specs) + len(made)
            made.append(Spec(id, BACK, op, args, {"outs": outs}, None, None, forward=forward.id))
            return made[-1]

        if self.values[root] not in self.flows:
            return [], []
        arrived = derive(self.specs, self.flows, [(self.values[root], ONES)], add)
        return [k for k, ref in sorted(self.leaves.items()) if ref in arrived], made

    def accumulated(self, leaf: Ref, arrived: dict[Ref, list[Any]]) -> Ref:
        """The gradient of a leaf: the sum of the gradients that arrived there."""
        spec = self.specs[leaf.node]
        attrs = {"of": leaf.node, "index": leaf.index}
        terms = tuple(arrived[leaf])
        made = self.add(BACK, ACCUMULATE, terms, attrs, spec.shape, spec.dtype, forward=spec.id)
        return Ref(made.id)

    def without_cuts(self, specs: Sequence[Spec]) -> list[Spec]:
        """The nodes without ``detach``, whose result is the value itself."""
        cuts: dict[Ref, Ref] = {}
        for spec in self.specs:
            if spec.op is CUT:
                source = spec.args[0]
                cuts[Ref(spec.id)] = cuts.get(source, source)
        self.cuts = cuts
        if not cuts:
            return list(specs)
        return [
            spec.but(args=tuple(cuts.get(x, x) if x.__class__ is Ref else x for x in spec.args))
            for spec in specs
            if spec.op is not CUT
        ]


def reached(path: Sequence[Token], root: int) -> list[LeafSlot]:
    """The leaves that a backward pass from a result reaches."""
    slots = {slot.number: slot for token in path for slot in token.leaves}
    return [slots[k] for k in Builder(path).imagined(root)[0]]


class ExecutionPlan:
    """How one path is computed, for one set of results that are still referenced."""

    def __init__(
        self,
        path: Sequence[Token],
        arrays: Sequence[ndarray],
        held: int,
        numbers: Sequence[float],
        memory: Any = None,
        late: bool = False,
    ) -> None:
        self.path = tuple(path)
        with no_collection():
            self._make(path, arrays, held, numbers, memory)
        # Views that have not been read so far: see ``deferred_views``.
        self.late = self._only_views(held) if late and not self.tapes else set()
        # Whether a run calls no op, so that active modes do not matter.
        self.native = self.program.is_native and self.late.issuperset(self.views)

    def _make(
        self,
        path: Sequence[Token],
        arrays: Sequence[ndarray],
        held: int,
        numbers: Sequence[float],
        memory: Any,
    ) -> None:
        built = Builder(path)
        specs = built.specs
        kinds = [kind for token in path for kind in token.kinds]
        roots = [root for token in path for root in token.roots]
        self.views = [k for k in range(len(kinds)) if held >> k & 1 and roots[k] != Root(RESULT, k)]
        bases = {roots[k].number for k in self.views if roots[k].where == RESULT}
        own = {k for k in range(len(kinds)) if held >> k & 1} - set(self.views)
        self.wanted = sorted(own | bases)  # results that own their memory
        changed = self._changed(path)
        self.wanted = [k for k in self.wanted if k not in changed.values()]
        self.changed = changed  # leaves by number, with the result that is written to them
        self.seen = {*self.wanted, *changed.values()}  # in memory that the program could change
        live = [k for k in self.wanted if kinds[k].requires]
        self.origin = {k: self._maker(path, k) for k in self.views}
        self.order = sorted({*self.wanted, *self.views})
        self.kinds, self.roots = kinds, roots
        self.tapes: dict[int, history.ResultBackward] = {}
        self.freed: dict[int, Any] = {}  # with the leaves that they depend on
        saved: dict[int, None] = {}  # results that backward passes read
        # Gradients stop at every result that the program can reference, as at a separate node.
        ends = {k for k in (*live, *self.views) if kinds[k].requires}
        for k in live:
            behind = used_up(path, built, k) if built.passes else None
            if behind is not None:
                leaves, keeper = behind
                self.freed[k] = leaves, history.freed_plan(len(leaves), keeper)
                continue
            tape = history.ResultBackward(Builder(path, ends - {k}, False), k, kinds[k])
            saved.update(dict.fromkeys(tape.saved))
            self.tapes[k] = tape
        for before, nodes in built.passes:
            refuse_overwritten(path[:before], built, nodes)
        for tape in self.tapes.values():
            refuse_overwritten(path, tape.built)
        self.saved = [k for k in saved if k not in self.wanted]
        # The leaves that results with a ``grad_fn`` depend on: they live as long as it does.
        tokens = needed_for(path, list(self.tapes))
        self.read = {w.number for t in tokens for kind, w in t.slots if kind == LEAF}
        forward = built.without_cuts(specs)
        wanted = [built.values[k] for k in (*self.wanted, *self.saved)]
        wanted = [built.cuts.get(r, r) for r in wanted]
        self.leaves = {ref.node: number for number, ref in built.leaves.items()}
        writes = {
            built.leaves[number].node: built.cuts.get(built.values[k], built.values[k])
            for number, k in changed.items()
        }
        examples = {node: arrays[number] for node, number in self.leaves.items()}
        forward = with_numbers(forward, built.numbers, numbers)
        self.program = lower(forward, examples, wanted, writes, built.numbers, memory=memory)
        self.pick = picking([self.leaves[k] for k in self.program.leaves])
        self.runs = self.last = 0  # how often it ran, and when, counted in runs of all programs
        made = native_matching.functions()
        self.hand_over = None if made is None else made.function("hand_over")
        self.places = native_matching.words(self.wanted)

    @staticmethod
    def _changed(path: Sequence[Token]) -> dict[int, int]:
        """The leaves that are changed in place, with the number of their last value."""
        owner: dict[int, int] = {}  # results that are a leaf's new value
        for token in path:
            for k, (kind, what) in changes(token):
                if kind == LEAF:
                    owner[k] = what.number
                elif what in owner:
                    owner[k] = owner.pop(what)
        return {number: k for k, number in owner.items()}

    @staticmethod
    def _maker(path: Sequence[Token], number: int) -> tuple[Token, int]:
        for token in reversed(path):
            if token.first <= number:
                return token, number - token.first
        raise AssertionError("a result that no recorded call returned")

    def begins_at(self) -> str:
        """The line of the program's first op."""
        token = self.path[0]
        return describe_position(token.code, token.instruction)

    def explain(self) -> list[str]:
        """What the programs do, line by line."""
        lines = list(self.program.explain())
        for tape in self.tapes.values():
            if tape.program:
                lines += [f"backward: {line}" for line in tape.program.explain()]
        return lines

    def run(self, region: Region) -> bool:
        """Compute, and set the values of all referenced results; False with nothing changed."""
        given = list(self.pick(region.arrays))
        try:
            # The region itself need not be notified of its own writes.
            found = self.program.run(given, region.numbers, len(LISTENERS) == 1, True)
        except BaseException as error:
            found = self.program.rescued()
            if found is not None:
                region.interruptions.append(error)
            elif not isinstance(error, BY_VALUE):
                raise  # else eager mode raises the same error, with its line
        self.program.kept = None
        if found is None:
            region.learned.note(
                region.learned.refused, "a compiled program does not support these values"
            )
            return False
        try:
            self._deliver(region, found, self.hand_over)
        except BaseException as error:  # raised by a signal handler: computed values are not lost
            region.interruptions.append(error)
            self._deliver(region, found, None)
        region.path = []  # from here on there is nothing to compute
        return True

    def _deliver(self, region: Region, found: Sequence[ndarray], hand_over: Any) -> None:
        """Set the values of all referenced results; repeated if a signal has interrupted it."""
        self.runs += 1
        region.learned.runs = self.last = region.learned.runs + 1
        if region.hidden or region.bumped:
            region.show_hidden()
        handles = region.handles
        if not self.tapes:
            self._give(region, found, hand_over)
            made: dict[Any, Any] = {}
            for k in self.views:
                if k in self.late:
                    region.defer_view(self, k)
                else:
                    self._view(region, k, made)
            return
        values = dict(zip((*self.wanted, *self.saved), found, strict=True))
        run = history.RegionRun(region, self.read)
        made = {}
        for k in self.order:  # a ``grad_fn`` leads to those of earlier results
            if k in self.origin:
                self._view(region, k, made)
            elif handles[k] is not None:
                realise(handles[k], values[k])
                if k in self.freed:
                    leaves, plan = self.freed[k]
                    history.attach_freed(region, k, leaves, plan, self.kinds[k])
            if handles[k] is not None and self.kinds[k].requires:
                if k in self.tapes:
                    self.tapes[k].attach(region, values, self.seen, self.roots, run)
                run.ends[k] = handles[k].alias_of()

    def _only_views(self, held: int) -> set[int]:
        """Views that are the only references to the memory of a result, recreated by each run."""
        shown = [self.roots[k] for k in self.views]
        changed = self.changed.values()
        return {
            k
            for k, root in zip(self.views, shown, strict=True)
            if root.where == RESULT
            and shown.count(root) == 1
            and not held >> root.number & 1
            and root.number not in changed
        }

    def make_at_once(self, view: int) -> None:
        """Called when a view was read."""
        self.late.discard(view)
        self.native = False

    def _give(self, region: Region, found: Sequence[ndarray], hand_over: Any) -> None:
        """Give results that own their memory their values; none has a history to go back."""
        handles = region.handles
        if hand_over is not None:
            hand_over(region, found, self.places)
        else:
            for k, array in zip(self.wanted, found, strict=False):
                handle = handles[k]
                if handle is not None:
                    realise(handle, array)
        for k, (leaves, plan) in self.freed.items():
            if handles[k] is not None:
                history.attach_freed(region, k, leaves, plan, self.kinds[k])

    def _made(self, region: Region, token: Token, made: dict[Any, Any]) -> Any:
        """The views that a call returns, created once: there may be very many."""
        if token not in made:
            if MODES.now.grad is not token.grad:
                with set_grad_enabled(token.grad):
                    return self._made(region, token, made)
            kind, what = token.slots[0]
            source = region.leaves[what.number] if kind == LEAF else self._view(region, what, made)
            if token.kind == DETACH:
                made[token] = source.detach()
            else:
                rest = [w for _, w in token.slots[1:]]
                made[token] = apply(token.op, (source, *rest), token.attrs)
        return made[token]

    def _view(self, region: Region, number: int, made: dict[Any, Any]) -> Tensor:
        """A view, recreated from the tensor whose memory it shows."""
        if number in made:
            return made[number]
        token, k = self.origin.get(number) or self._maker(self.path, number)
        handle = region.handles[number]
        if token.roots[k] == Root(RESULT, number):
            return handle
        result = self._made(region, token, made)
        result = result[k] if token.kind != DETACH and token.op.multiple else result
        if handle is not None:
            become(handle, result)
            result = handle
            if number in region.apart:
                result._base = result._view = None
        made[number] = result
        return result


def picking(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """A function that picks the items at some places."""
    if len(places) < 2:  # for which ``itemgetter`` would return the item itself
        return lambda items: [items[k] for k in places]
    return itemgetter(*places)


def changes(token: Token) -> list[tuple[int, tuple[int, Any]]]:
    """What a call changes in place: the numbers of new values, with those of the old ones."""
    if token.kind in (ASSIGN, INPLACE):
        return [(token.first, token.slots[0])]
    if token.kind == STEP:
        places = enumerate(token.step.written, token.first)
        return [(k, token.slots[place]) for k, place in places]
    places = enumerate(token.held, token.first)  # of a backward pass
    return [(k, token.slots[place]) for k, place in places if place]


def used_up(path: Sequence[Token], built: Builder, number: int) -> tuple[list[int], Token] | None:
    """The leaves of a result whose graph backward passes have freed; None if they have not.

    With them the newest call whose saved values are gone.

    A graph that saves nothing for its derivatives is never freed. If only a part of it is, or if
    the result depends on gradients, eager mode takes over.
    """
    if any(token.kind in (BACKWARD, STEP) for token in needed_for(path, [number])):
        raise Impossible("results with a grad_fn that depend on gradients")
    leaves, made = built.imagined(number)
    kept = [s.forward for s in made if s.op.plan.holds]
    gone = [
        k for k in kept
        if k is not None and any(r in built.consumed for r in built.specs[k].results())
    ]  # fmt: skip
    if not gone:
        return None
    if built.values[number] not in built.consumed:
        raise Impossible("results with a grad_fn after a backward pass")
    return leaves, next(token for token, id in built.made.items() if id == gone[0])


def refuse_overwritten(path: Sequence[Token], built: Builder, nodes: range | None = None) -> None:
    """Leave backward passes that read values modified in place since to eager mode, which raises.

    An in-place op saves a copy of its target if its own derivative needs it.
    """
    changed = {
        built.argument(*slot): built.made.get(token) for token in path for _, slot in changes(token)
    }
    specs = built.specs if nodes is None else [built.specs[k] for k in nodes]
    for spec in specs if changed else ():
        if not isinstance(spec.op, Gradient):
            continue
        read = iter(spec.args[len(spec.attrs["outs"]) :])
        for kind, k in spec.op.sources:
            if kind not in ("input", "output", "rest"):
                continue
            found = [next(read)] if kind != "rest" else list(read)
            for x in found:
                own = kind == "input" and k == 0 and changed.get(x) == spec.forward
                if x in changed and not own:
                    raise Impossible("a backward pass reads a tensor that was modified in place")


def with_numbers(specs: list[Spec], places: Any, numbers: Sequence[float]) -> list[Spec]:
    """The nodes with the number operands of the present run, as examples."""
    given: dict[int, dict[int, float]] = {}
    for (id, i), number in zip(places, numbers, strict=True):
        given.setdefault(id, {})[i] = number
    return [
        spec.but(args=tuple(given[spec.id].get(i, x) for i, x in enumerate(spec.args)))
        if spec.id in given
        else spec
        for spec in specs
    ]


def realise(handle: Tensor, array: ndarray) -> None:
    """Set the values of a pending tensor; its ``grad_fn`` comes later."""
    handle._node = handle._base = handle._view = None
    handle._a = array
    forget_stamp(handle)


def forget_stamp(tensor: Tensor) -> None:
    """Clear the mark of a pending tensor, if an interruption prevented that before."""
    if hasattr(tensor, "_stamp"):
        del tensor._stamp


def become(handle: Tensor, real: Tensor) -> None:
    """Turn a pending tensor into the one that eager mode has created for it."""
    handle._a, handle._node, handle._vc = real._a, real._node, real._vc
    handle._base, handle._view = real._base, real._view
    if real._base is not None:
        handle._stamp = real._stamp
    else:
        forget_stamp(handle)
    handle._x = real._x
    if real._grad is not None:
        handle._grad = real._grad
