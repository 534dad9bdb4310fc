"""Learning while a program runs eagerly: each op becomes a token of the trace."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from weft.compiler import stepping, trace
from weft.compiler.plan import reached
from weft.compiler.resizing import RARE, Resizing, is_ruled
from weft.compiler.scouting import look_ahead
from weft.compiler.segment import is_view, takes_gradient
from weft.compiler.trace import (
    ASSIGN,
    BACKWARD,
    CALL,
    CONSTANT,
    DETACH,
    INPLACE,
    LEAF,
    NUMBER,
    NUMBERS,
    RESULT,
    STEP,
    Kind,
    LeafSlot,
    Point,
    Root,
    Token,
)
from weft.core import errors, frames
from weft.core.devices import cpu_array
from weft.core.dispatch import Op
from weft.core.gate import is_flagged, reclaims
from weft.core.modes import MODES
from weft.core.node import AccumulateGrad
from weft.core.selection import is_special
from weft.core.tensor import Parameter, Tensor, shares
from weft.graph.spec import listening

FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}


class Learning(Resizing):
    """The part of a region that learns."""

    checks_rules = True  # whether the shape rules of ops are compared with eager results

    def diverge(self, why: str) -> None:
        """The program diverges: run the pending ops eagerly, and learn from here on."""
        learned = self.learned
        strict = learned.fullgraph or self.stance == "fail_on_recompile"
        if strict and learned.calls > 1 and self.settled:
            self.run_eagerly()
            how = "with fullgraph=True" if learned.fullgraph else "under fail_on_recompile"
            raise RuntimeError(
                f"{learned.name} was compiled {how}, but took a different execution path: {why}"
                f"\n  at {errors.here()}"
            )
        learned.diverged += 1
        learned.note(learned.divergences, why)
        self.run_eagerly()
        if self.stance == "eager_on_recompile":
            self.at = Point()  # this path is not recorded
        # Where several paths are known, others can be compared with them.
        self.checks_rules = len(self.at.next) < RARE
        self.make_room()
        self.learning = True
        self.look_often()
        self.ids = {id(t): (RESULT, k) for k, t in enumerate(self.handles) if t is not None}
        slots = {slot.number: slot for token in self.path for slot in token.leaves}
        for k, t in enumerate(self.leaves):
            self.ids.setdefault(id(t), (LEAF, slots[k]))

    def slots_of(
        self, op: Any, args: Any
    ) -> tuple[tuple[tuple[int, Any], ...], list[LeafSlot]] | None:
        """The slots of a call's arguments; None if a trace can't represent one of them."""
        if not all(map(self.is_representable, args)):
            return None  # before a leaf is recorded, which would shift all others
        slots: list[tuple[int, Any]] = []
        met: list[LeafSlot] = []
        for x in args:
            if isinstance(x, Tensor):
                slot = self.ids.get(id(x))
                if slot is None or (slot[0] == LEAF and slot[1].outside):
                    leaf = LeafSlot(len(self.leaves), x)
                    self.leaves.append(x)
                    self.met.add(id(x))
                    self.arrays.append(cpu_array(x))
                    self.nodes.append(x._node)
                    met.append(leaf)
                    slot = self.ids[id(x)] = (LEAF, leaf)
                slots.append(slot)
            elif x.__class__ in NUMBERS and varies(op, args):
                slots.append((NUMBER, x.__class__))
            else:
                slots.append((CONSTANT, x))
        return tuple(slots), met

    def is_representable(self, x: Any) -> bool:
        """Whether a trace can represent an argument: a result, possible leaf, or plain value."""
        if not isinstance(x, Tensor):
            return trace.plain_attributes(x)
        slot = self.ids.get(id(x))
        if slot is not None and not (slot[0] == LEAF and slot[1].outside):
            return True
        return x.__class__ in (Tensor, Parameter) and trace.known_leaf(x)

    def add(
        self, kind: int, op: Any, args: Any, attrs: dict[str, Any], kinds: Any, roots: Any
    ) -> Token | None:
        """Append a call to the trace; None, after a cut, if the trace can't represent it."""
        found = self.slots_of(op, args) if trace.plain_attributes(attrs) else None
        if found is None:
            self.at.opaque.add(op)
            name = getattr(op, "name", None) or (op if kind != STEP else type(op).__name__)
            self.note_device(args)
            self.cut(f"{name} with arguments that a trace can't represent")
            return None
        slots, met = found
        first = len(self.handles)
        token = Token(kind, op, slots, attrs, MODES.now.grad, kinds, roots(slots, first), first)
        token.leaves = tuple(met)
        token.scope = MODES.now.scope
        frame = frames.caller(sys._getframe(2))
        if frame is not None:
            token.code, token.instruction = frame.f_code, frame.f_lasti
        self.append(token)
        self.path.append(token)
        self.at = token.after
        return token

    def note_device(self, args: Any) -> None:
        """Report it if tensors are unsupported because of their device."""
        for x in args:
            if isinstance(x, Tensor) and not x.is_cpu and not x.is_meta:
                why, reasons = (
                    f"a tensor is on {x.device}: programs run on the CPU",
                    self.learned.reasons,
                )
                reasons[why] = reasons.get(why, 0) + 1
                return

    def keep(self, token: Token, results: Any) -> None:
        """Remember the tensors that a call returned, to recognise them in later calls."""
        for k, t in enumerate(results):
            self.ids[id(t)] = (RESULT, token.first + k)
            self.handles.append(t)

    def root_of(self, slot: tuple[int, Any]) -> Root:
        kind, what = slot
        if kind == LEAF:
            return Root(LEAF, what.number)
        for token in reversed(self.path):
            if token.first <= what:
                return token.roots[what - token.first]
        raise AssertionError("a result that no recorded call returned")

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        if not self.learning or MODES.now.backward is not None or self.refuses(op):
            return
        kinds = tuple(Kind(t._a, t._node is not None) for t in results)

        def roots(slots: Any, first: int) -> tuple[Root, ...]:
            alike = op.view and isinstance(args[0], Tensor)
            return tuple(
                self.root_of(slots[0])
                if alike and shares(t._a, args[0]._a)
                else Root(RESULT, first + k)
                for k, t in enumerate(results)
            )

        token = self.add(CALL, op, args, attrs, kinds, roots)
        if token is not None:
            token.ruled = self.checks_rules and is_ruled(op, args, attrs, results)
            self.keep(token, results)
            if results[0]._node is not None:
                look_ahead(results[0]._node)

    def prepare(self, args: Any) -> None:
        """A call that is about to run while its trace is learned."""
        self.changing_now = self.going_back = None
        # A parameter that was modified is the same leaf, which a later backward has to reach.
        if self.updated and MODES.now.grad and any(id(x) in self.updated for x in args):
            self.cut("a parameter was modified and is used again")
        if self.learned.fullgraph:
            return  # the next array may have other references, which would be a different path
        for x in args:  # before the op keeps references to their arrays, for its derivative
            if isinstance(x, Tensor) and id(x) not in self.ids and is_flagged(x):
                reclaims(x)

    def learn_change(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        """An in-place op is about to run; if a trace can represent it, it is learned when it
        writes.
        """
        self.prepare(args)
        if not self.learning:
            return
        if self.may_change(args[0]):
            self.changing_now = (INPLACE, op, args, attrs)
        else:
            self.refuse_change(op, f"{op.name}_ on a view, or on a tensor that has views")

    def refuse_change(self, op: Any, why: str) -> None:
        """Run an in-place op immediately, at this point and once nothing is pending any more."""
        self.at.opaque.add(op)
        self.cut(why)
        self.at.opaque.add(op)

    def learn_assignment(self, target: Tensor, result: Tensor, name: str) -> None:
        """A tensor is about to take the result of a function, as ``change_by`` does."""
        self.prepare((target, result))
        known = self.ids.get(id(result), (LEAF,))[0] == RESULT
        if not self.learning or not known or result._node is not None:
            return
        if result._a.strides == target._a.strides and self.may_change(target):
            self.changing_now = (ASSIGN, sys.intern(name), (target, result), {})

    changing_now: Any = None  # the in-place change in progress

    def writing(self, target: Tensor, result: Any) -> None:
        if MODES.now.backward is not None:
            return
        call, self.changing_now = self.changing_now, None
        whole = call is not None and call[2][0] is target
        if not whole or result.dtype != target._a.dtype or result.shape != target._a.shape:
            self.cut("a tensor was modified in place")
            return
        kind, op, args, attrs = call
        flows = kind == INPLACE and MODES.now.grad and op.differentiable
        requires = flows and any(isinstance(x, Tensor) and x._node is not None for x in args)
        slot = self.ids.get(id(target))
        ours = slot is not None and slot[0] == RESULT and id(target) not in self.met
        if requires and not ours:
            self.refuse_change(op, "an in-place change makes an input require grad")
            return
        if (
            target._node is not None
            and not requires
            and (ours or not isinstance(target._node, AccumulateGrad))
        ):
            self.refuse_change(
                op, "a tensor with a grad_fn is modified without autograd recording it"
            )
            return
        kinds = (Kind(target._a, requires or target._node is not None),)
        roots = lambda slots, first: (Root(RESULT, first),)
        token = self.add(kind, op, args, attrs, kinds, roots)
        if token is not None:
            kind, what = token.slots[0]
            if kind == RESULT:
                self.handles[what] = None
            self.keep(token, (target,))
            if isinstance(target._node, AccumulateGrad):
                self.updated.add(id(target))

    def may_change(self, target: Tensor) -> bool:
        slot = self.ids.get(id(target))
        if target._base is not None:
            return False
        if isinstance(target._node, AccumulateGrad) and MODES.now.grad:
            return False
        if slot is None:
            return True
        root = self.root_of(slot)
        views = (t.roots[k] for t in self.path for k in range(len(t.kinds)) if is_view(t, k))
        return all(other != root for other in views)

    def learn_detach(self, tensor: Tensor) -> Any:
        """A tensor is about to be detached; returns the detached tensor of a region's result."""
        slot = self.ids.get(id(tensor))
        if slot is None or slot[0] != RESULT:
            return None
        with listening():
            made = tensor.detach()
        kinds = (Kind(made._a, False),)
        token = self.add(DETACH, "detach", (tensor,), {}, kinds, lambda s, n: (self.root_of(s[0]),))
        if token is not None:
            self.keep(token, (made,))
        return made

    def learn_backward(self, root: Tensor | None) -> None:
        """A backward pass that is about to run."""
        slot = None if root is None else self.ids.get(id(root))
        if slot is None or slot[0] != RESULT:
            self.cut("backward")
            return
        targets = reached(self.path, slot[1])
        tensors = [self.leaves[slot.number] for slot in targets]
        held = [t._grad for t in tensors]
        own = [g for g in held if g is not None]
        once = all(len({id(t) for t in found}) == len(found) for found in (tensors, own))
        if not (once and all(map(takes_gradient, tensors)) and all(map(self.may_grow, own))):
            self.cut("backward into gradients with views or a grad_fn, or with hooks registered")
            return
        self.going_back = (root, targets, held)

    def may_grow(self, gradient: Tensor) -> bool:
        """Whether gradients can be accumulated into an existing one."""
        plain = gradient.__class__ is Tensor and gradient._node is None
        return plain and trace.known_leaf(gradient) and self.may_change(gradient)

    going_back: Any = None

    def went_back(self, work: Any, roots: Any) -> None:
        found, self.going_back = self.going_back, None
        if found is None:
            return
        root, targets, held = found
        grads = [self.leaves[slot.number]._grad for slot in targets]
        if any(g is None or (old is not None and old is not g)
               for g, old in zip(grads, held, strict=True)):  # fmt: skip
            self.cut("backward")
            return
        own = [g for g in held if g is not None]
        places = iter(range(1, len(own) + 1))
        kinds = tuple(Kind(g._a, False) for g in grads)
        roots_of = lambda slots, first: tuple(Root(RESULT, first + k) for k in range(len(grads)))
        token = self.add(BACKWARD, "backward", (root, *own), {}, kinds, roots_of)
        if token is not None:
            token.targets = tuple(targets)
            token.held = tuple(0 if g is None else next(places) for g in held)
            for kind, what in token.slots[1:]:
                if kind == RESULT:
                    self.handles[what] = None
            self.keep(token, grads)

    def learn_step(self, step: Any, optimizer: Any) -> Any:
        """Run an optimizer's step, and learn it if it does nothing but apply its rule."""
        self.prepare(())
        if not stepping.is_plain(optimizer):
            self.cut("an optimizer's step")
        with listening():
            out = step(optimizer)
        if not self.learning or not self.path:
            return out
        # Only now, since the first step creates the states.
        known = stepping.learned(optimizer)
        if known is None:
            self.cut("an optimizer's step")
            return out
        args, made = known
        targets = [args[place] for place in made.written]
        kinds = tuple(Kind(t._a, t._node is not None) for t in targets)
        roots = lambda slots, first: tuple(Root(RESULT, first + k) for k in range(len(targets)))
        token = self.add(STEP, optimizer, args, {}, kinds, roots)
        if token is not None:
            token.step = made
            made.settle(token, args)
            self.cut("an optimizer's step")
        return out


def varies(op: Any, args: Any) -> bool:
    """Whether numbers among the operands may vary from run to run of one program."""
    if getattr(op, "special", None) and any(is_special(op, x, False) for x in args[1:]):
        return False
    kinds = {x._a.dtype for x in args if isinstance(x, Tensor)}
    return getattr(op, "traced", False) and len(kinds) == 1 and kinds <= FLOATS
