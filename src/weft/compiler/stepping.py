"""An optimizer's step as the last token of a segment: what it reads and writes.

A step is a function of values (``optim/rules.py``): of parameters, gradients, states and counters.
When the program calls ``step()``, everything pending is computed together with it, in one native
call, so that parameters and states have their new values when it returns, as in eager mode.
"""

from __future__ import annotations

import weakref
from itertools import chain
from operator import is_
from typing import Any, NamedTuple

from weft.compiler import native_matching
from weft.compiler.native_matching import words
from weft.compiler.trace import LEAF, RESULT
from weft.core.gate import EXPORTS, is_exported
from weft.core.tensor import Parameter, Tensor, storage_array
from weft.graph.steps import RULES, Step
from weft.native.memory.layout import FLOATS
from weft.optim import optimizer as hooks
from weft.optim.elementwise import NUMBERS, Elementwise

array_of = Tensor.__dict__["_a"].__get__  # fails for a pending tensor
gradient_of = Tensor.__dict__["_grad"].__get__
values_of, referent = dict.values, weakref.ref.__call__


class Group(NamedTuple):
    """A group of an optimizer as it was when its step was learned."""

    settings: dict[str, Any]  # the live ones, with the parameters
    listed: list[Any]
    params: tuple[Any, ...]
    moving: tuple[Any, ...]  # the parameters with a gradient
    names: tuple[str, ...]  # of states and counters


class Member(NamedTuple):
    """One parameter of a step: the positions of its tensors among the arguments of the token."""

    param: int
    gradient: int
    states: range
    group: int


class Stepping:
    """The step of an optimizer in a trace.

    The arguments of its token are all updated parameters, then their gradients, then their states
    and counters. It writes to all but the gradients, in the order of ``written``.
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
        self.params = [p for group in self.groups for p in group.moving]
        self.count = len(self.params)
        self.members: list[Member] = []
        at = 2 * self.count
        for k, group in enumerate(self.groups):
            for _ in group.moving:
                number, size = len(self.members), len(group.names)
                self.members.append(Member(number, self.count + number, range(at, at + size), k))
                at += size
        self.written = [*range(self.count), *range(2 * self.count, at)]
        self.nothing = [None] * len(
            self.written
        )  # instead of handles, which a step does not return
        self.usual: Usual | None = None
        made = native_matching.functions()
        self.note_changes = None if made is None else made.note_changes

    def same_groups(self) -> bool:
        """Whether the optimizer has the same groups, of which the same parameters are updated."""
        optimizer = self.optimizer
        scalars, given = optimizer._scalars, optimizer.param_groups
        if len(given) != len(self.groups):
            return False
        for now, (settings, listed, known, moving, names) in zip(given, self.groups, strict=True):
            if now is not settings or now["params"] is not listed or len(listed) != len(known):
                return False
            if not all(map(is_, listed, known)):
                return False
            if names != (*optimizer._state_names(now), *scalars):
                return False
            if len(moving) < len(known):
                still = {id(p) for p in moving}
                if any(p._grad is not None and id(p) not in still for p in known):
                    return False
        return True

    def arguments(self) -> list[Any] | None:
        """The tensors of a step that is about to run; None if it is not this one."""
        if not self.same_groups():
            return None
        states = self.optimizer.state
        kept: list[Any] = []
        for group in self.groups:
            for own in map(states.get, group.moving) if group.names else ():
                if not own:
                    return None
                kept += map(own.get, group.names)
        return [*self.params, *[p._grad for p in self.params], *kept]

    def settle(self, token: Any, args: list[Any]) -> None:
        """Find out whether the step can be compared as a whole: see ``Usual``."""
        leaves, results = token.slots[: self.count], token.slots[self.count : 2 * self.count]
        new = tuple(leaf.number for leaf in token.leaves)
        states = token.slots[2 * self.count :]
        self.usual = None
        if (
            all(kind == LEAF and slot.number not in new for kind, slot in leaves)
            and all(kind == RESULT for kind, _ in results)
            and all(kind == LEAF for kind, _ in states)
            and tuple(slot.number for _, slot in states) == new
            and all(own.__class__ is dict for own in self.optimizer.state.values())
        ):
            numbers = [slot.number for _, slot in leaves]
            self.usual = Usual(self, numbers, [k for _, k in results], args[2 * self.count :])
            if token.after.plans:
                self.usual.equip()


class Usual:
    """A step on parameters that the path has met, with gradients that it computed, on known states.

    The optimizer's state is compared as a whole, by identity, in bulk: who owns what, under which
    names, in which memory. Compiled code also compares the groups and their settings, so that
    nothing else has to be checked while these are unchanged, except learning rates.
    """

    def __init__(
        self, step: Stepping, params: list[int], gradients: list[int], states: list[Any]
    ) -> None:
        self.step, self.leaves, self.gradients, self.states = step, params, gradients, states
        self.written = (*step.params, *states)
        self.ids = frozenset(map(id, states))
        self.kind, self.table = type(step.optimizer), step.optimizer.state
        self.owners, self.owned = list(self.table), list(self.table.values())
        self.sizes = list(map(len, self.owned))
        self.names = list(chain.from_iterable(self.owned))
        self.values = list(chain.from_iterable(map(dict.values, self.owned)))
        self.nodes = [None] * len(states)
        self.quick: Any = None  # compiled code for ``compare`` and for the groups
        # The memory of the states, which is usually the same in the next step.
        self.seen = EXPORTS[0]
        self.arrays = list(map(weakref.ref, map(array_of, states)))

    def is_kept(self) -> bool:
        """Whether the optimizer's state consists of the same tensors in the same roles."""
        table, owned = self.table, self.owned
        return (
            len(table) == len(owned)
            and all(map(is_, table, self.owners))
            and all(map(is_, table.values(), owned))
            and list(map(len, owned)) == self.sizes
            and all(map(is_, chain.from_iterable(owned), self.names))
            and all(map(is_, chain.from_iterable(map(values_of, owned)), self.values))
        )

    def is_the_last(self, region: Any) -> bool:
        """Whether a step that is about to run is this one, with the same settings.

        Then its leaves are recorded; if not, ``matches`` may still match.
        """
        optimizer = self.step.optimizer
        # The segment ends here, so it need not record that it has met these leaves.
        return (
            self.quick is not None
            and optimizer.state is self.table
            and optimizer.__class__ is self.kind
            and optimizer.param_groups is self.listed
            and not is_hooked(optimizer)
            and region.met.isdisjoint(self.ids)
            and self.quick(region) is not None
        )

    def matches(self, region: Any) -> bool:
        """Whether a step that is about to run is this one; then its leaves are recorded."""
        step = self.step
        if (
            step.optimizer.state is not self.table
            or not step.same_groups()
            or not region.met.isdisjoint(self.ids)
            or not self.compare(region)
        ):
            return False
        region.met |= self.ids
        if self.quick is not None:
            self.equip()  # with the settings as they are now
        return True

    def compare(self, region: Any) -> bool:
        """The part that compiled code can do, and its specification."""
        handles, leaves, params = region.handles, region.leaves, self.step.params
        if not (
            all(map(is_, params, map(leaves.__getitem__, self.leaves)))
            and all(map(is_, map(gradient_of, params), map(handles.__getitem__, self.gradients)))
            and self.is_kept()
            and self.seen == EXPORTS[0]
        ):
            return False
        try:
            arrays = list(map(array_of, self.states))
        except AttributeError:
            return False
        if not all(map(is_, arrays, map(referent, self.arrays))):
            return False
        leaves += self.states
        region.arrays += arrays
        region.nodes += self.nodes
        return True

    def equip(self) -> None:
        """Use compiled code for comparing, if available."""
        made = native_matching.functions()
        groups = self.step.groups
        self.listed = self.step.optimizer.param_groups
        settings = [group.settings for group in groups]
        lists = (self.listed, *(group.listed for group in groups))
        if (
            made is None
            or any(x.__class__ is not list for x in lists)
            or any(x.__class__ is not dict for x in (*settings, *self.owned))
        ):
            self.quick = None
            return
        moving = set(map(id, self.step.params))
        idle = [p for group in groups for p in group.params if id(p) not in moving]
        self.quick = made.function(
            *("step", tuple(self.step.params), words(self.leaves), words(self.gradients)),
            *(tuple(self.states), tuple(self.arrays), self.table, tuple(self.owners)),
            *(tuple(self.owned), words(self.sizes), tuple(self.names), tuple(self.values)),
            *(self.seen, self.listed, tuple(settings), words(list(map(len, settings)))),
            tuple(chain.from_iterable(settings)),
            tuple(_compared(name, x) for group in settings for name, x in group.items()),
            *(tuple(group.listed for group in groups), tuple(idle)),
            words([len(group.params) for group in groups]),
            tuple(chain.from_iterable(group.params for group in groups)),
        )


def _compared(name: str, setting: Any) -> Any:
    """The value that a setting is compared with: itself, but for a learning rate only its class."""
    return float if name == "lr" and setting.__class__ is float else setting


def of_numbers(group: dict[str, Any]) -> bool:
    """Whether the settings of a group are numbers, and need nothing but the rule."""
    if group.get("capturable") or group.get("differentiable"):
        return False
    settings = (group["lr"], group.get("weight_decay"), *group.get("betas", ()))
    return NUMBERS.issuperset(map(type, settings)) or not any(
        isinstance(x, Tensor) for x in settings
    )


def is_hooked(optimizer: Any) -> bool:
    """Whether user code runs around a step."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or hooks._global_optimizer_pre_hooks
        or hooks._global_optimizer_post_hooks
    )


def is_plain(optimizer: Any) -> bool:
    """Whether an optimizer's step only applies its rule."""
    kind = type(optimizer)
    if not isinstance(optimizer, Elementwise) or RULES.get(kind.__name__) is not kind:
        return False
    if is_hooked(optimizer):
        return False
    for group in optimizer.param_groups:  # noqa: SIM110 - as short as it can be
        if not of_numbers(group):
            return False
    return True


def learned(optimizer: Any) -> tuple[list[Any], Stepping] | None:
    """The tensors that the last step has read and written; None if a program could not run it."""
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
        if is_exported(t._a) or not t._a.flags.c_contiguous:
            return None
    if len({id(storage_array(p._a)) for p in args[: made.count]}) != made.count:
        return None  # one after another, if they share memory
    return args, made
