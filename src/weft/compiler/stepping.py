"""An optimizer's step as the last token of a stretch: what it reads and writes.

A step is a function of values (``optim/rules.py``): of parameters, gradients, states and counters.
When the program calls ``step()``, all that is pending is computed together with it, in one native
call, so that parameters and states have their new values when it returns, as in eager mode.
"""

from __future__ import annotations

import weakref
from operator import is_
from typing import Any, NamedTuple

from weft.compiler.trace import LEAF, RESULT
from weft.core.gate import LET_OUT, is_outside
from weft.core.tensor import Parameter, Tensor, storage_array
from weft.graph.steps import RULES, Step
from weft.native.memory.layout import FLOATS
from weft.optim import optimizer as hooks
from weft.optim.elementwise import Elementwise

array_of = Tensor.__dict__["_a"].__get__  # fails where a tensor is pending


class Group(NamedTuple):
    """A group of an optimizer as it was when its step was learned."""

    settings: dict[str, Any]  # the live ones, with the parameters
    listed: list[Any]
    params: tuple[Any, ...]
    moving: tuple[Any, ...]  # the parameters with a gradient
    names: tuple[str, ...]  # of states and counters


class Member(NamedTuple):
    """One parameter of a step: where its tensors stand among the arguments of the token."""

    param: int
    gradient: int
    states: range
    group: int


class Stepping:
    """The step of an optimizer in a trace.

    The arguments of its token are all parameters that move, then their gradients, then their
    states and counters. It writes to all but the gradients, in the order of ``written``.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.groups: list[Group] = []
        for group in optimizer.param_groups:
            moving = tuple(p for p in group["params"] if p._grad is not None)
            names = (*optimizer._state_names(group), *optimizer._scalars)
            params = tuple(group["params"])
            self.groups.append(Group(group, group["params"], params, moving, names))
        self.ops = [Step(type(optimizer), optimizer, group.settings) for group in self.groups]
        self.count = sum(len(group.moving) for group in self.groups)
        self.members: list[Member] = []
        at = 2 * self.count
        for k, group in enumerate(self.groups):
            for _ in group.moving:
                number, size = len(self.members), len(group.names)
                self.members.append(Member(number, self.count + number, range(at, at + size), k))
                at += size
        self.written = [*range(self.count), *range(2 * self.count, at)]
        self.usual: Usual | None = None

    def arguments(self) -> list[Any] | None:
        """The tensors of a step that is about to be made; None if it is not this one."""
        optimizer = self.optimizer
        states, scalars, given = optimizer.state, optimizer._scalars, optimizer.param_groups
        if len(given) != len(self.groups):
            return None
        params: list[Any] = []
        kept: list[Any] = []
        for now, (settings, listed, known, moving, names) in zip(given, self.groups, strict=True):
            if now is not settings or now["params"] is not listed or len(listed) != len(known):
                return None
            if not all(map(is_, listed, known)):
                return None
            if names != (*optimizer._state_names(now), *scalars):
                return None
            if len(moving) < len(known):
                still = {id(p) for p in moving}
                if any(p._grad is not None and id(p) not in still for p in known):
                    return None
            params += moving
            for own in map(states.get, moving) if names else ():
                if not own:
                    return None
                kept += map(own.get, names)
        return [*params, *[p._grad for p in params], *kept]

    def settle(self, token: Any, args: list[Any]) -> None:
        """Find out whether the step can be compared as a whole: see ``Usual``."""
        leaves, results = token.slots[: self.count], token.slots[self.count : 2 * self.count]
        new = tuple(leaf.number for leaf in token.leaves)
        states = token.slots[2 * self.count :]
        if (
            all(kind == LEAF and slot.number not in new for kind, slot in leaves)
            and all(kind == RESULT for kind, _ in results)
            and all(kind == LEAF for kind, _ in states)
            and tuple(slot.number for _, slot in states) == new
        ):
            numbers = [slot.number for _, slot in leaves]
            self.usual = Usual(numbers, [k for _, k in results], args[2 * self.count :])


class Usual:
    """A step on parameters that the path has met, by gradients that it gave, on known states."""

    def __init__(self, params: list[int], gradients: list[int], states: list[Any]) -> None:
        self.params, self.gradients, self.states = params, gradients, states
        self.ids = frozenset(map(id, states))
        self.remember(list(map(array_of, states)))

    def remember(self, arrays: list[Any]) -> None:
        """Note the memory of the states, which is mostly the same in the next step."""
        self.seen = LET_OUT[0]
        self.arrays = list(map(weakref.ref, arrays))

    def matches(self, region: Any, count: int, args: list[Any]) -> bool:
        """Whether arguments are these, in the memory that they had; then leaves are noted."""
        handles, leaves = region.handles, region.leaves
        states = args[2 * count :]
        if not (
            all(map(is_, args, map(leaves.__getitem__, self.params)))
            and all(map(is_, args[count:], map(handles.__getitem__, self.gradients)))
            and all(map(is_, states, self.states))
        ):
            return False
        try:
            arrays = list(map(array_of, states))
        except AttributeError:
            return False
        if not all(map(is_, arrays, [known() for known in self.arrays])):
            return False
        if self.seen != LET_OUT[0] or not region.met.isdisjoint(self.ids):
            return False
        leaves += states
        region.met |= self.ids
        region.arrays += arrays
        region.nodes += [None] * len(states)
        return True


def of_numbers(group: dict[str, Any]) -> bool:
    """Whether the settings of a group are numbers, and ask for nothing but the rule."""
    if group.get("capturable") or group.get("differentiable"):
        return False
    for x in (group["lr"], group.get("weight_decay"), *group.get("betas", ())):
        if x.__class__ is not float and isinstance(x, Tensor):
            return False
    return True


def is_hooked(optimizer: Any) -> bool:
    """Whether something of the user's runs around the step."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or hooks._global_optimizer_pre_hooks
        or hooks._global_optimizer_post_hooks
    )


def is_plain(optimizer: Any) -> bool:
    """Whether an optimizer's rule is all that its step does."""
    kind = type(optimizer)
    if not isinstance(optimizer, Elementwise) or RULES.get(kind.__name__) is not kind:
        return False
    return not is_hooked(optimizer) and all(map(of_numbers, optimizer.param_groups))


def learned(optimizer: Any) -> tuple[list[Any], Stepping] | None:
    """What a step that was just made has acted on; None if a program could not do it."""
    made = Stepping(optimizer)
    args = made.arguments()
    if not args:
        return None
    for p, gradient in zip(args, args[made.count : 2 * made.count], strict=False):
        if p.__class__ not in (Tensor, Parameter) or gradient.__class__ is not Tensor:
            return None
        if p._a.dtype not in FLOATS or gradient._a.dtype != p._a.dtype:
            return None
    for place in made.written:
        t = args[place]
        if not isinstance(t, Tensor) or t._base is not None or (place >= made.count and t._node):
            return None
        if is_outside(t._a) or not t._a.flags.c_contiguous:
            return None
    if len({id(storage_array(p._a)) for p in args[: made.count]}) != made.count:
        return None  # one after another, where they share memory
    return args, made
