"""Optimizers that treat every element alone, run on as few and as long arrays as possible.

A step over many small parameters would spend its time in calls: so small parameters of one dtype
and one age form a unit whose state lies in one array (the tensors in ``Optimizer.state`` are views
of it), and one call of the rule serves them all. Large parameters are units of their own and are
worked on in place, in chunks that fit into the cache. All units share their scratch arrays, so a
step allocates nothing once the units exist.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from operator import is_
from typing import Any, ClassVar

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, quiet, selection
from weft.core.devices import DEVICES, cpu_array, host
from weft.core.frames import caller
from weft.core.gate import LISTENERS, announce
from weft.core.inplace import bump, cells_of, note_changes
from weft.core.meta import filled
from weft.core.modes import enable_grad, no_grad
from weft.core.tensor import Tensor, storage_array, wrap
from weft.graph import steps
from weft.native.once import module
from weft.operators.strided import view_as_complex, view_as_real
from weft.optim.optimizer import (
    Optimizer,
    check_gradients,
    count_step,
    number,
    refuse_gradient,
    run_closure,
    scalar,
)

CHUNK = 32768  # elements that a rule works on at once, in NumPy
TOGETHER = 16384  # elements in all from which one native call serves all parameters
SMALL = 4096  # parameters of up to so many elements share a unit
ONE = np.array(1.0, np.float32)
CAPTURABLE_DEVICES = ["cuda", "xpu", "hpu", "privateuseone", "xla"]
concatenate = np.concatenate


def flat_real(array: np.ndarray) -> np.ndarray:
    """One dimension, and complex numbers as pairs; shares memory if the layout allows it."""
    flat = array.reshape(-1)
    if flat.dtype.kind != "c":
        return flat
    return np.ascontiguousarray(flat).view(flat.real.dtype)


class Scratch:
    """Arrays for passing use, which all units of an optimizer share."""

    def __init__(self) -> None:
        self.arrays: dict[Any, np.ndarray] = {}

    def take(self, role: str, dtype: np.dtype, size: int) -> np.ndarray:
        """The first elements of the array that all users of this role share."""
        found = self.arrays.get((role, dtype))
        if found is None or found.size < size:
            found = self.arrays[role, dtype] = np.empty(max(size, SMALL), dtype)
        return found[:size]


class UpdateUnit:
    """Parameters that one call of a rule updates."""

    __slots__ = (
        *("arrays", "cells", "chunks", "contiguous", "direct", "dtype", "flats", "fresh", "gather"),
        *("gradient", "grads", "members", "own", "pairs", "params", "scalars", "scatter", "size"),
        *("states", "table", "value", "work"),
    )
    grads: list[np.ndarray] | None
    gradient: Any
    scatter: list[tuple[np.ndarray, np.ndarray]]

    def __init__(self, params: list[Tensor], owners: list[Any], fresh: bool) -> None:
        self.params, self.own, self.fresh = params, owners, fresh
        self.arrays = list(map(cpu_array, params))
        first = self.arrays[0].dtype
        real = first.type(0).real.dtype if first.kind == "c" else first
        self.dtype = np.dtype(np.float32) if real in dt.HALF else real
        self.contiguous = all(a.flags.c_contiguous for a in self.arrays)
        self.direct = len(params) == 1 and self.contiguous and real == self.dtype
        self.pairs = first.kind == "c"
        self.size = sum(a.size for a in self.arrays) * (1 + self.pairs)
        self.flats = [flat_real(a) for a in self.arrays] if self.contiguous else []
        self.grads = None
        self.table: Any = None  # for native code; False if that can't take the parameters

    def place(self, names: tuple[str, ...], scalars: tuple[str, ...], pool: Scratch) -> None:
        """Bring the state into arrays of one piece, and find the scratch to work in."""
        checks: list[list[Any]] = [[] for _ in self.params]
        self.scalars = tuple(self._place_scalars(name, checks) for name in scalars)
        self.states = tuple(self._place_state(name, checks) for name in names)
        # What must still be so at the next step: see ``collect``.
        self.members: list[tuple[Any, ...]] = [
            (p, array, own, tuple(check))
            for p, array, own, check in zip(self.params, self.arrays, self.own, checks, strict=True)
        ]
        kept = [tensor for check in checks for _, tensor, _ in check]
        self.cells = cells_of((*self.params, *kept))
        size, dtype = self.size, self.dtype
        self.work: Any = ()
        states = self.states
        if any(state.dtype != dtype for state in states):
            states = tuple(pool.take(f"state {i}", dtype, size) for i in range(len(states)))
            self.work = tuple(zip(states, self.states, strict=True))
        if self.direct:
            self.value, self.gradient, self.scatter = self.flats[0], None, []
        else:
            # Value and gradient stand side by side, so that one call gathers both.
            self.gather = pool.take("value and gradient", dtype, 2 * size)
            self.value, self.gradient = self.gather[:size], self.gather[size:]
            self.scatter = self._scatter()
        self.chunks = [
            (
                slice(i, i + CHUNK),
                self.value[i : i + CHUNK],
                tuple(state[i : i + CHUNK] for state in states),
            )
            for i in range(0, max(size, 1), CHUNK)
        ]

    def _scatter(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Pairs of where a new value goes and where it stands."""
        pairs, start = [], 0
        for array in self.arrays:
            end = start + array.size * (1 + self.pairs)
            piece = self.value[start:end]
            if self.pairs:
                piece = piece.view(array.dtype)
            pairs.append((array, piece.reshape(array.shape)))
            start = end
        return pairs

    def _place_scalars(self, name: str, checks: list[list[Any]]) -> np.ndarray:
        tensors = [own[name] for own in self.own]
        if len(tensors) == 1:
            shared = cpu_array(tensors[0])
            checks[0].append((name, tensors[0], shared))
            return shared
        shared = np.array([t.item() for t in tensors], tensors[0]._a.dtype)
        for i, (tensor, check) in enumerate(zip(tensors, checks, strict=True)):
            piece = shared[i : i + 1].reshape(tensor._a.shape)
            tensor._a = piece
            check.append((name, tensor, piece))
        return shared

    def _place_state(self, name: str, checks: list[list[Any]]) -> np.ndarray:
        tensors = [own[name] for own in self.own]
        kind = self.arrays[0].dtype
        if len(tensors) == 1:
            array = cpu_array(tensors[0])
            if array.dtype != kind or not array.flags.c_contiguous:
                array = tensors[0]._a = array.astype(kind, order="C")
            checks[0].append((name, tensors[0], array))
            return flat_real(array)
        flat = np.empty(sum(a.size for a in self.arrays), kind)
        start = 0
        for tensor, array, check in zip(tensors, self.arrays, checks, strict=True):
            piece = flat[start : start + array.size].reshape(array.shape)
            piece[...] = cpu_array(tensor)
            tensor._a = piece
            check.append((name, tensor, piece))
            start += array.size
        return flat_real(flat)

    def collect(self, states: Any) -> bool | None:
        """Look up the gradients; None if one is missing, False if the unit is out of date."""
        grads: list[Any] = []
        for p, array, own, checks in self.members:
            grad = p._grad
            if grad is None:
                self.grads = None
                return None
            if p._a is not array or (own is not None and states.get(p) is not own):
                return False
            given = cpu_array(grad)
            if given.shape != array.shape:
                refuse_gradient(p)
            for name, tensor, view in checks:
                if own.get(name) is not tensor or tensor._a is not view:  # type: ignore[union-attr]
                    return False
            grads.append(given)
        self.grads = grads
        return True

    def same_age(self) -> bool:
        """Whether the counters of all members are equal, which only the user may change."""
        if len(self.params) > 1:
            for values in self.scalars:
                listed = values.tolist()
                if listed.count(listed[0]) != len(listed):
                    return False
        return True

    def run_native(self, rule: Callable, values: Any, flags: Any, names: Any) -> bool:
        """Update the parameters in one native call; False if it can't. The bits are NumPy's."""
        if self.table is None:
            same = self.contiguous and all(flat.dtype == self.dtype for flat in self.flats)
            self.table = same and module("weft.native.codegen.updates").Table(self.parts(names))
        grads = self.grads
        if not self.table or grads is None or not fits(grads, self.arrays):
            return False
        if not self.table.run(rule, flags, values, grads):
            self.table = False
        return bool(self.table)

    def run(self, rule: Callable, c: Any, flags: Any, pool: Scratch) -> None:
        """Update the parameters by their gradients, in NumPy."""
        grads = self.grads
        assert grads is not None
        if self.direct:
            gradient: Any = grads[0]
            if not gradient.flags.c_contiguous or gradient.dtype != self.arrays[0].dtype:
                copy = pool.take("gradient", self.dtype, self.size)
                shaped = copy.view(self.arrays[0].dtype).reshape(gradient.shape)
                np.copyto(shaped, gradient, casting="unsafe")
                gradient = copy
            else:
                gradient = flat_real(gradient)
        else:
            gradient = self.gradient
            flats = self.flats or [flat_real(a) for a in self.arrays]
            if self.pairs:
                grads = [flat_real(g) for g in grads]
            else:
                grads = [g.ravel() for g in grads]
            concatenate(flats + grads, out=self.gather, casting="unsafe")
        for wide, narrow in self.work:
            wide[...] = narrow
        for part, value, states in self.chunks:
            new, changed = rule(value, gradient[part], states, c, flags)
            value[...] = new
            for state, result in zip(states, changed, strict=True):
                state[...] = result
        for wide, narrow in self.work:
            narrow[...] = wide
        for target, source in self.scatter:
            target[...] = source

    def parts(self, names: tuple[str, ...]) -> list[tuple[np.ndarray, ...]]:
        """Value and states of each parameter, flat."""
        return [
            (flat_real(array), *(flat_real(cpu_array(own[name])) for name in names))
            for array, own in zip(self.arrays, self.own, strict=True)
        ]

    def announce(self) -> None:
        """Tell the gate of all that an update writes."""
        for p, array in zip(self.params, self.arrays, strict=True):
            announce(array, p)
        for array in (*self.scalars, *self.states):
            announce(array)

    def changed(self, mark: Any) -> None:
        """Note in the parameters and their states that they have new values."""
        note_changes(self.cells, *mark)
        self.grads = None
        self.fresh = False


class GroupPlan:
    """The units of a group, and what they were made from."""

    __slots__ = (
        *("known", "loose", "members", "names", "params", "table", "units", "waiting"),
        "without_values",
    )

    def __init__(
        self, params: list[Tensor], names: tuple[str, ...], before: GroupPlan | None
    ) -> None:
        self.params, self.members, self.names = params, list(params), names
        # Parameters that had a gradient once, and those that don't always have it together.
        ids = set(map(id, params)) if before else set()
        self.known: set[int] = ids & before.known if before else ids
        self.loose: set[int] = ids & before.loose if before else ids.copy()
        self.units: list[UpdateUnit] = []
        self.waiting: list[Tensor] = []
        self.without_values: list[Tensor] = []  # on the meta device: only their steps are counted
        self.table: Any = None  # all parameters for one native call; False if that can't be

    def is_of(self, params: list[Tensor], names: tuple[str, ...]) -> bool:
        """Whether a group still has these parameters, which a program may exchange in its list."""
        members = self.members
        return (
            self.params is params
            and len(members) == len(params)
            and all(map(is_, members, params))
            and self.names == names
        )

    def make_table(self) -> None:
        """Put all parameters in one table if native code can take them."""
        self.table = False
        units = self.units
        if not units or any(not u.contiguous or u.dtype != units[0].dtype for u in units):
            return
        if any(flat.dtype != u.dtype for u in units for flat in u.flats):
            return
        arrays = [a for u in units for a in u.arrays]
        if sum(u.size for u in units) < TOGETHER:
            return
        if len({id(storage_array(a)) for a in arrays}) < len(arrays):
            return  # one after another, where they share memory
        table = module("weft.native.codegen.updates").Table
        self.table = table([part for u in units for part in u.parts(self.names)])

    def gradients(self) -> list[np.ndarray] | None:
        """The gradients in the table's order, or None if they don't fit it."""
        found: list[np.ndarray] = []
        for unit in self.units:
            if unit.grads is None:
                return None
            if not fits(unit.grads, unit.arrays):
                return None
            found += unit.grads
        return found


class Elementwise(Optimizer):
    """An optimizer that is a rule, the names of its state, and its coefficients."""

    rule: ClassVar[Callable]
    _plans: dict[int, GroupPlan]
    _pool: Scratch
    _constants: dict[Any, tuple[np.ndarray, tuple[np.ndarray, ...]]]
    _scalars: tuple[str, ...] = ("step",)
    # Whether the coefficients depend on the step alone, so that units can share them.
    _by_step_alone = True

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith("weft."):
            steps.RULES[cls.__name__] = cls

    @classmethod
    def updated(
        cls, group: dict[str, Any], p: Any, g: Any, states: list[Any], counters: list[Any]
    ) -> list[Any]:
        """One step of one parameter as a function of values: parameter, states and counters.

        They are arrays, or tensors where those are elsewhere than on the CPU.
        """
        counters = [np.array(host(x)) for x in counters]
        flags, values = cls.next_coefficients(group, counters)
        if isinstance(p, Tensor):
            with no_grad():
                new = on_real(cls.rule, p, g, states, values, flags)
            return [*new, *counters]
        real = p.dtype.type(0).real.dtype if p.dtype.kind == "c" else p.dtype
        wide = np.dtype(np.float32) if real in dt.HALF else real
        flats = [flat_real(np.ascontiguousarray(x)).astype(wide) for x in (p, g, *states)]
        c = tuple(np.array(v, wide) for v in values)
        token = quiet.enter()
        try:
            new, changed = cls.rule(flats[0], flats[1], tuple(flats[2:]), c, flags)
        finally:
            quiet.leave(token)
        shaped = [x.astype(real).view(p.dtype).reshape(p.shape) for x in (new, *changed)]
        return [*shaped, *counters]

    @classmethod
    def next_coefficients(
        cls, group: dict[str, Any], counters: list[np.ndarray]
    ) -> tuple[Any, tuple[float, ...]]:
        """Flags and coefficients of the rule for the step after some counters, which move on."""
        step: Any = False
        if counters:
            np.add(counters[0], ONE, counters[0])
            step = counters[0].item()
        found: Any = cls.__new__(cls)._coefficients(with_numbers(group), step, tuple(counters))
        return found

    @classmethod
    def coefficients(cls, group: dict[str, Any]) -> tuple[Any, tuple[float, ...]]:
        """Flags and coefficients of the rule for a first step, for those who look inside it."""
        counters = tuple(np.ones(1, np.float32) for _ in cls._scalars)
        step: Any = 1.0 if cls._scalars else False
        found: Any = cls.__new__(cls)._coefficients(with_numbers(group), step, counters)
        return found

    def _state_names(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the arrays that the rule keeps for each parameter, in its order."""
        raise NotImplementedError

    def _names_of(self, p: Tensor, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the arrays that are kept for one parameter."""
        return self._state_names(group)

    def _coefficients(
        self, group: dict[str, Any], step: float, scalars: tuple[np.ndarray, ...]
    ) -> tuple[Any, tuple[float, ...]]:
        """The flags and the coefficients of the rule for one step, from numbers or tensors.

        Scalars beside the step count are brought up to date in place.
        """
        raise NotImplementedError

    def _by_ops(
        self, p: Tensor, g: Tensor, states: tuple[Tensor, ...], c: Any, flags: Any, step: Any
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The rule on tensors, for ``differentiable=True``."""
        return type(self).rule(p, g, states, c, flags)

    def _new_state(self, p: Tensor, group: dict[str, Any]) -> dict[str, Tensor]:
        """The state of a parameter before its first step, in PyTorch's order."""
        made = {name: scalar(0.0, group.get("fused")) for name in self._scalars}
        made.update({name: zeros_like(p) for name in self._state_names(group)})
        return made

    def _state_of(self, p: Tensor, group: dict[str, Any]) -> tuple[dict[str, Any], bool]:
        """The state of a parameter, and whether it was made just now."""
        own = self.state[p]
        if own:
            return own, False
        if group.get("fused") and not p.is_floating_point():
            raise RuntimeError(
                "`fused=True` requires all the params to be floating point Tensors of supported "
                f"devices, but got {p.dtype} on {p.device.type}\n  at {errors.here()}"
            )
        own.update(self._new_state(p, group))
        return own, True

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.pop("_plans", None)
        super().__setstate__(state)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters once; a closure recomputes the loss, which is returned.

        >>> w = torch.tensor([1.0], requires_grad=True)
        >>> optimizer = torch.optim.SGD([w], lr=0.1)
        >>> (w * w).sum().backward()
        >>> optimizer.step()
        >>> w
        tensor([0.8000], requires_grad=True)
        """
        loss = None if closure is None else run_closure(closure)
        if len(self.param_groups) > 1:
            check_gradients(self.param_groups)  # before the first group has changed
        for index, group in enumerate(self.param_groups):
            if group.get("capturable"):
                self._refuse_capturable(group)
            if group.get("differentiable"):
                with enable_grad() if self.defaults.get("differentiable") else no_grad():
                    self._step_by_ops(group)
            elif DEVICES and not all(p.is_cpu or p.is_meta for p in group["params"]):
                with no_grad():
                    self._step_by_ops(with_numbers(group) | {"params": group["params"]})
            else:
                self._step_group(index, group)
        return loss

    @staticmethod
    def _refuse_capturable(group: dict[str, Any]) -> None:
        if any(p._grad is not None for p in group["params"]):
            raise AssertionError(
                "If capturable=True, params and state_steps must be on supported devices: "
                f"{CAPTURABLE_DEVICES}.\n  at {errors.here()}"
            )

    def _step_group(self, index: int, group: dict[str, Any]) -> None:
        try:
            plans, pool = self._plans, self._pool
        except AttributeError:
            plans = self._plans = {}
            pool = self._pool = Scratch()
            self._constants = {}
        plan = self._current_plan(plans, index, group)
        rule, group = type(self).rule, with_numbers(group)
        frame = caller(sys._getframe(1))
        mark = (type(self).__name__, frame.f_code, frame.f_lasti)
        if plan.without_values:
            self._count_steps(plan.without_values)
        if self._step_together(plan, rule, group, mark):
            return
        filled: dict[Any, Any] = {}
        flags: Any = ()
        values: Any = ()
        native = selection.pays()
        token = quiet.enter()
        try:
            for unit in plan.units:
                if unit.grads is None:
                    continue
                if LISTENERS:
                    unit.announce()
                step: Any = unit.fresh
                if unit.scalars:
                    np.add(unit.scalars[0], ONE, unit.scalars[0])
                    step = unit.scalars[0].item(0)
                dtype = unit.dtype
                if filled.get(dtype) != step or not self._by_step_alone:
                    flags, values = self._coefficients(group, step, unit.scalars)
                    filled = {dtype: step}
                if not (native and unit.run_native(rule, values, flags, plan.names)):
                    unit.run(rule, self._constants_of(dtype, values), flags, pool)
                unit.changed(mark)
        finally:
            quiet.leave(token)

    def _count_steps(self, params: list[Tensor]) -> None:
        """A step of parameters that have no values."""
        for p in params:
            if p._grad is not None:
                bump(p, type(self).__name__)
                for name in self._scalars[:1]:
                    count_step(self.state[p][name])

    def _step_together(self, plan: GroupPlan, rule: Callable, group: Any, mark: Any) -> bool:
        """Update all parameters in one native call, if they are of one age and it pays."""
        if not self._by_step_alone or not selection.enabled():
            return False
        if plan.table is None and selection.ready():
            plan.make_table()
        if not plan.table:
            return False
        grads = plan.gradients()
        units = plan.units
        if grads is None:
            return False
        step: Any = units[0].fresh
        if units[0].scalars:
            step = units[0].scalars[0].item(0)
            if any(u.scalars[0].item(0) != step for u in units):
                return False
            step += 1
        elif any(u.fresh != step for u in units):
            return False
        if LISTENERS:
            for unit in units:
                unit.announce()
        flags, values = self._coefficients(group, step, units[0].scalars)
        if not plan.table.run(rule, flags, values, grads):
            plan.table = False
            return False
        for unit in units:
            if unit.scalars:
                np.add(unit.scalars[0], ONE, unit.scalars[0])
            unit.changed(mark)
        return True

    def _constants_of(self, dtype: np.dtype, values: tuple[float, ...]) -> Any:
        """Coefficients as zero-dim arrays, with which NumPy is faster than with numbers."""
        found = self._constants.get(dtype)
        if found is None:
            array = np.empty(len(values), dtype)
            views = tuple(array[i : i + 1].reshape(()) for i in range(len(values)))
            found = self._constants[dtype] = array, views
        found[0][:] = values
        return found[1]

    def _current_plan(
        self, plans: dict[int, GroupPlan], index: int, group: dict[str, Any]
    ) -> GroupPlan:
        """The group's units with the gradients of this step, recreated where they must be."""
        params, names = group["params"], self._state_names(group)
        plan = plans.get(index)
        if plan is not None and not plan.is_of(params, names):
            plan = None
        if plan is None or not self._is_current(plan):
            plan = plans[index] = self._make_plan(group, names, plans.get(index))
            if not self._is_current(plan):  # pragma: no cover - units are made to fit
                raise RuntimeError("the state of the optimizer changed during its step")
        return plan

    def _is_current(self, plan: GroupPlan) -> bool:
        """Collect the gradients of all units; False if some unit does not fit any more."""
        for p in plan.waiting:
            if p._grad is not None:
                return False
        states = self.state
        for unit in plan.units:
            found = unit.collect(states)
            if found is None:
                if len(unit.params) > 1 and any(p._grad is not None for p in unit.params):
                    # Some members have no gradient this time: from now on they go alone.
                    plan.loose.update(map(id, unit.params))
                    return False
            elif not found or not unit.same_age():
                return False
        return True

    def _make_plan(
        self, group: dict[str, Any], names: tuple[str, ...], before: GroupPlan | None
    ) -> GroupPlan:
        check_gradients((group,))
        plan = GroupPlan(group["params"], names, before)
        alone = self._must_go_alone(plan.params) | plan.loose
        bundles: dict[Any, list[list[Any]]] = {}
        for p in plan.params:
            if p._grad is None and id(p) not in plan.known:
                plan.waiting.append(p)
                continue
            plan.known.add(id(p))
            own, fresh = self._state_of(p, group) if names or self._scalars else (None, False)
            if p.is_meta:
                plan.without_values.append(p)
                continue
            if p._a.size > SMALL or id(p) in alone:
                plan.units.append(UpdateUnit([p], [own], fresh))
                continue
            ages = tuple(own[name].item() for name in self._scalars) if own else ()
            parts = bundles.setdefault((p._a.dtype, ages, fresh, p._grad is None), [])
            if not parts or parts[-1][0] + p._a.size > CHUNK:
                parts.append([0, [], []])
            parts[-1][0] += p._a.size
            parts[-1][1].append(p)
            parts[-1][2].append(own)
        for (_, _, fresh, _), parts in bundles.items():
            plan.units += [UpdateUnit(params, owners, fresh) for _, params, owners in parts]
        for unit in plan.units:
            unit.place(names, self._scalars, self._pool)
        return plan

    @staticmethod
    def _must_go_alone(params: list[Tensor]) -> set[int]:
        """Parameters that stand twice in the list or share memory: one after another, then."""
        seen: dict[int, Tensor] = {}
        found: set[int] = set()
        for p in params:
            owner = id(storage_array(p._a))
            if owner in seen:
                found |= {id(p), id(seen[owner])}
            seen.setdefault(owner, p)
        return found

    def _step_by_ops(self, group: dict[str, Any]) -> None:
        check_gradients((group,))
        for p in group["params"]:
            if p._grad is None:
                continue
            own, fresh = self._state_of(p, group)
            step: Any = fresh
            if self._scalars:
                count_step(own["step"])
                step = own["step"].item()
            names = self._state_names(group)
            originals = [p, *(own[name] for name in names)]
            grad = p._grad
            # Copies are read and the originals written, so that nothing saved is overwritten.
            value, *states = [t.clone() for t in originals]
            scalars = tuple(own[name] for name in self._scalars)
            flags, c = self._coefficients(group, step, scalars)
            rule = functools.partial(self._by_ops, step=step)
            new = on_real(rule, value, grad, states, c, flags)
            for target, result in zip(originals, new, strict=True):
                target.copy_(result)


def on_real(
    rule: Callable, p: Tensor, g: Tensor, states: Iterable[Tensor], c: Any, flags: Any
) -> list[Tensor]:
    """What a rule makes of tensors: parameter and states. It sees complex numbers as pairs."""
    if not p.is_complex():
        new, changed = rule(p, g, tuple(states), c, flags)
        return [new, *changed]
    p, g, *states = map(view_as_real, (p, g, *states))
    new, changed = rule(p, g, tuple(states), c, flags)
    return [view_as_complex(x) for x in (new, *changed)]


def fits(grads: list[np.ndarray], arrays: list[np.ndarray]) -> bool:
    """Whether native code can read gradients beside the parameters that they belong to."""
    for grad, array in zip(grads, arrays, strict=True):
        if grad.dtype is not array.dtype or not grad.flags.c_contiguous:
            return False
    return True


def zeros_like(p: Tensor) -> Tensor:
    """Zeros for the state of a parameter."""
    return wrap(filled(np.zeros, p._a.shape, p._a.dtype))


NUMBERS = frozenset((float, int, type(None)))


def with_numbers(group: dict[str, Any]) -> dict[str, Any]:
    """The settings of a group, with Python numbers instead of tensors."""
    settings = (group["lr"], group.get("weight_decay"), *group.get("betas", ()))
    if settings[0].__class__ is float and (
        NUMBERS.issuperset(map(type, settings)) or not any(isinstance(x, Tensor) for x in settings)
    ):
        return group
    found: dict[str, Any] = {k: number(v) for k, v in group.items() if k != "params"}
    if "betas" in found:
        found["betas"] = tuple(map(number, found["betas"]))
    return found
