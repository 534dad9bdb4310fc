"""Running pending ops one by one, as eager mode would have run them."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.autograd import engine
from weft.compiler.plan import become, changes, needed_for
from weft.compiler.segment import Segment
from weft.compiler.trace import (
    ASSIGN,
    BACKWARD,
    DETACH,
    INPLACE,
    LEAF,
    NUMBER,
    RESULT,
    STEP,
    Token,
)
from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import cpu_array
from weft.core.dispatch import apply
from weft.core.inplace import apply_inplace, write
from weft.core.modes import MODES, set_grad_enabled
from weft.core.node import OpNode, Output
from weft.core.pending import region_of
from weft.core.tensor import wrap
from weft.graph.spec import listening


class EagerFallback(Segment):
    """The part of a region that falls back to eager mode."""

    def run_eagerly(self) -> None:
        """Run pending ops one by one, as eager mode would have."""
        if self.learning:
            return
        path, before, self.busy = self.path, self.busy, True
        values: list[Any] = []
        numbers, left = iter(self.numbers), path[::-1]
        try:
            self.show_hidden(self.bumped)
            with ordinary(self.default):
                while left:
                    self.redo(left[-1], values, numbers)
                    left.pop()
            if self.interruptions:
                raise self.interruptions.pop()
        except BaseException as error:
            self.undo(left[::-1], values, error)
            self.go_on(self.at)  # failed ops are not tried again
            raise
        finally:
            self.busy = before

    def undo(self, tokens: list[Token], values: list[Any], error: BaseException) -> None:
        """Undo what the program did after a failed call, which eager mode would not have reached.

        Tensors that were modified since are restored, new gradients are removed, and all others
        raise an error that says why they have no value.
        """
        before = {k: slot for token in tokens for k, slot in changes(token)}
        for token in tokens[:1]:
            locate(token, error)
        dead = NotComputed(error)
        for token in tokens:
            for k, kind in enumerate(token.kinds, token.first):
                handle, slot = self.handles[k], (RESULT, k)
                while slot[0] == RESULT and slot[1] in before:
                    slot = before[slot[1]]
                if handle is None or slot[0] == LEAF:
                    continue
                if slot[1] < len(values):
                    if handle is not values[slot[1]]:
                        become(handle, values[slot[1]])
                else:
                    handle._stamp = (dead, k, kind)
            for target in token.targets:
                leaf = self.leaves[target.number]
                if region_of(leaf._grad) is dead:
                    leaf._grad = None

    def redo(self, token: Token, values: list[Any], numbers: Any) -> None:
        if token.kind == STEP:
            with set_grad_enabled(token.grad):
                type(token.op).step.__wrapped__(token.op)
            return
        views = getattr(token.op, "view", False)
        args = [self.argument(slot, values, numbers, views) for slot in token.slots]
        if token.kind == BACKWARD:
            self.redo_backward(token, args, values)
            return
        with set_grad_enabled(token.grad):
            if token.kind == INPLACE:
                results: Any = (apply_inplace(token.op, args, token.attrs),)
            elif token.kind == ASSIGN:
                write(args[0], args[1]._a, token.op)
                results = (args[0],)
            else:
                results = self.performed(token, args)
        for k, result in enumerate(results):
            handle = self.handles[token.first + k]
            if handle is not None and handle is not result:
                become(handle, result)
                result = handle
            if token.first + k in self.apart:
                result._base = result._view = None
            values.append(result)
            place(token, result)
        if token.kind in (ASSIGN, INPLACE):
            date(token, args[0]._vc)

    def performed(self, token: Token, args: Any) -> Any:
        """The results of a call, even if a signal interrupts it: for the program it was made."""
        try:
            return perform(token, args)
        except Exception:
            raise
        except BaseException as error:
            self.interruptions.append(error)
            return perform(token, args)

    def redo_backward(self, token: Token, args: list[Any], values: list[Any]) -> None:
        tensors = [self.leaves[slot.number] for slot in token.targets]
        since = [t._grad for t in tensors]  # as the program has changed them
        nodes = [(t._node, t._node.extras, t._node.post_accumulate) for t in tensors]
        for t, place in zip(tensors, token.held, strict=True):
            t._grad = args[place] if place else None
            t._node.extras = t._node.post_accumulate = None  # hooks were registered since
        engine.backward(args[0])
        for node, extras, hooks in nodes:
            node.extras, node.post_accumulate = extras, hooks
        for k, t in enumerate(tensors):
            handle, found = self.handles[token.first + k], t._grad
            t._grad = since[k]
            if handle is not None and found is not None and handle is not found:
                become(handle, found)
                found = handle
            values.append(found)

    def argument(self, slot: tuple[int, Any], values: list[Any], numbers: Any, views: bool) -> Any:
        kind, what = slot
        if kind == RESULT:
            return values[what]
        if kind == LEAF:
            t = self.leaves[what.number]
            array = self.arrays[what.number]
            # A view shows the leaf's memory. All other ops read the leaf as it was then: the
            # program may have replaced its array since, or other code may have written to it.
            if t._a is array or views:
                return t
            as_it_was = wrap(array, self.nodes[what.number])
            as_it_was._vc = t._vc  # a change of the leaf also changes what was saved of it
            return as_it_was
        return next(numbers) if kind == NUMBER else what


class NotComputed:
    """Replaces the region of tensors whose calls come after a failed one."""

    is_late_view = False

    def __init__(self, error: BaseException) -> None:
        self.reason = f"{type(error).__name__}: {error}"

    def read(self, frame: Any) -> None:
        raise RuntimeError(
            f"a value was never computed, since an op before it failed: {self.reason}"
        )

    def may_share(self, view: Any, target: Any) -> bool:
        return False


class ordinary(listening):
    """A block with the modes that were active when the calls that it runs were made."""

    SWITCHES = ("anomaly", "autocast", "batches", "dual_level", "inference",
                "saved_hooks")  # fmt: skip
    USUAL = (False, None, (), -1, False, ())

    def __init__(self, default: Any) -> None:
        super().__init__()
        self.default = default  # the default dtype then

    def __enter__(self) -> None:
        self.default, dt._default = dt._default, self.default
        now = MODES.now
        self.before = [getattr(now, name) for name in self.SWITCHES]
        for name, value in zip(self.SWITCHES, self.USUAL, strict=True):
            setattr(now, name, value)
        super().__enter__()

    def __exit__(self, *exc: object) -> None:
        for name, value in zip(self.SWITCHES, self.before, strict=True):
            setattr(MODES.now, name, value)
        dt._default = self.default
        super().__exit__(*exc)


def place(token: Token, result: Any) -> None:
    """Record in the node of a result which line of the program it comes from."""
    node = result._node
    node = node.node if isinstance(node, Output) else node
    if isinstance(node, OpNode) and token.code is not None:
        node.code, node.instruction, node.scope = token.code, token.instruction, token.scope


def locate(token: Token, error: BaseException) -> None:
    """Put the line of the program into the message of an error."""
    head, at, _ = str(error).rpartition("\n  at ")
    if at and token.code is not None:
        place = errors.describe_position(token.code, token.instruction)
        error.args = (f"{head}{at}{place}", *error.args[1:])


def date(token: Token, cell: Any) -> None:
    """Record in the last change of a tensor which line of the program it comes from."""
    if cell.__class__ is list and len(cell) > 1 and token.code is not None:
        cell[-1] = (cell[0], token.name, token.code, token.instruction, cell[-1][4])


def perform(token: Token, args: Any) -> Any:
    """The results of a call; for an in-place change only the new value."""
    if token.kind in (ASSIGN, DETACH):
        return (args[-1].detach(),)
    out = apply(token.op, tuple(args), token.attrs)
    return out if token.op.multiple else (out,)


def rerun(
    path: Any, leaves: Any, numbers: Any, known: dict[int, Any], wanted: int, saved: Any
) -> Any:
    """A result of a path's calls by ordinary ops, with a ``grad_fn``; nothing is written to.

    ``known`` are results that already have a ``grad_fn``. Calls that the result does not depend on
    are not run, so their leaves need not exist any more. ``saved`` are values as they were in the
    first run: leaves that no derivative reads may have changed since.
    """
    needed = set(needed_for(path, [wanted], known))
    values: list[Any] = []
    left = iter(numbers)
    for token in path:
        given = [next(left) if kind == NUMBER else None for kind, _ in token.slots]
        if token not in needed:
            values += [known.get(token.first + k) for k in range(len(token.kinds))]
            continue
        args = [
            values[what] if kind == RESULT else leaves[what.number] if kind == LEAF
            else number if kind == NUMBER else what
            for (kind, what), number in zip(token.slots, given, strict=True)
        ]  # fmt: skip
        with set_grad_enabled(token.grad):
            values += perform(token, args)
        for k in range(token.first, len(values)):
            if k in known:
                values[k] = known[k]
            elif k in saved:
                restore(cpu_array(values[k]), saved[k], leaves)
    return values[wanted]


def restore(array: Any, value: Any, leaves: Any) -> None:
    """Restore a value that derivatives read, unless it is a view of a leaf's memory."""
    if not any(t is not None and np.may_share_memory(array, cpu_array(t)) for t in leaves):
        array.flags.writeable = True  # also of values broadcast from one element
        array[...] = value
