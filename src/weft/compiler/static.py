"""Static steps: programs that run without Python, on the promise that only their inputs change.

``torch.compile(fn, static=True)`` records a call as a graph and from then on runs the graph's
program: forward, backward and optimizer as one native call. Guarded are the arguments (which
tensors are inputs, their shapes, dtypes and strides; numbers, strings and containers of these by
value, other objects by identity), the modules and optimizers that the function can reach (which
parameters, buffers and states they have, the groups of optimizers, hooks, ``training`` flags and
other settings of modules), grad mode and default dtype. Settings of optimizers are read in every
step. Everything else that Python does is skipped: that is the promise, and ``explain()`` lists it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import IOBase
from operator import attrgetter, is_
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from weft.compiler.guarding import ObjectGuard, Unsupported
from weft.compiler.ir import CannotLower
from weft.compiler.program import lower
from weft.core import dtype as dt
from weft.core import selection
from weft.core.device import device
from weft.core.devices import cpu_array
from weft.core.modes import MODES
from weft.core.size import Size
from weft.core.tensor import Parameter, Tensor, storage_array, wrap
from weft.graph.draws import Draw
from weft.graph.recording import Recorder
from weft.graph.run import _lasts
from weft.graph.spec import LEAVES, STATE, Ref
from weft.graph.steps import Step
from weft.nn._hooks import EVERYWHERE, everywhere, register_module_forward_pre_hook
from weft.nn.module import Module
from weft.operators.outputs import tensors_in
from weft.optim.lr_scheduler import LRScheduler
from weft.optim.optimizer import (
    Optimizer,
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)

ARRAY, NODE = attrgetter("_a"), attrgetter("_node")
PLAIN = (bool, int, float, str)
NUMBERS = (bool, int, float, complex)
WARM_UP = 2  # eager calls before one is recorded: the first creates the states of optimizers
WATCHED = 8  # times that guarded objects are updated when equal objects replace them
ARGUMENT_KINDS = 16  # kinds of arguments for which programs are compiled


class Static:
    """A function that runs as one program for each kind of arguments."""

    def __init__(self, function: Callable) -> None:
        functools.update_wrapper(self, function, updated=())
        self.function = function
        self.steps: dict[Any, StaticStep] = {}
        self.filled: dict[int, Tensor] = {}  # leaves that have gradients before some calls
        self.seen: dict[Any, int] = {}
        self.refused: dict[str, int] = {}
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = MODES.now
        if now.recorders or now.unusual or now.autocast or not selection.enabled():
            return self.function(*args, **kwargs)
        self.calls += 1
        inputs: list[Tensor] = []
        given = _key((args, kwargs), inputs) if args or kwargs else None
        key = (given, now.grad, dt.get_default_dtype())
        step = self.steps.get(key)
        if step is not None:
            if not step.holds():
                self._forget(key)
            elif not step.is_apart(inputs):
                pass
            elif step.begins_clean():
                done, out = step.run(inputs)
                if done:
                    return out
            elif not self.filled.keys() >= {id(t) for t in step.clean}:
                # Recording again may show that the step clears them.
                self.filled.update((id(t), t) for t in step.clean)
                self._forget(key)
            return self.function(*args, **kwargs)
        return self._learn(key, inputs, args, kwargs)

    def _forget(self, key: Any) -> None:
        """Let the next call with arguments of a kind be recorded."""
        del self.steps[key]
        self.seen[key] = WARM_UP - 1

    def _learn(self, key: Any, inputs: list[Tensor], args: Any, kwargs: Any) -> Any:
        count = self.seen[key] = self.seen.get(key, 0) + 1
        if count != WARM_UP or len(self.steps) >= ARGUMENT_KINDS:
            return self.function(*args, **kwargs)
        roots = (self.function, args, kwargs)
        leaves = (*_parameters(roots), *self.filled.values())
        before = {id(t) for t in leaves if t._grad is not None}
        state = PythonState(_holders(roots))
        recorder = Recorder(values=False, profile=False, home=sys._getframe())
        called: list[Module] = []
        handle = register_module_forward_pre_hook(lambda module, _: called.append(module))
        try:
            with recorder:
                out = self.function(*args, **kwargs)
                ends = [recorder.ref(t) for t in tensors_in(out)]
                read = bool(recorder.numbers)
                times = recorder.writes()
        finally:
            handle.remove()
        try:
            _check_taken(recorder, inputs)
            _check_passes(recorder)
            if any(isinstance(v, Iterator) and not isinstance(v, IOBase) for v in _walk(roots)):
                raise CannotLower(
                    "it can come to an iterator, which gives something else each time"
                )
            if state.is_changed():
                raise CannotLower(
                    "it sets attributes, settings or variables, or changes lists or dicts"
                )
            _check_result(out, read)
            found = (*roots, called, _stepped(recorder.graph._specs))
            self.steps[key] = StaticStep(recorder.graph, times, before, ends, out, inputs, found)
        except CannotLower as error:
            self.refused[str(error)] = self.refused.get(str(error), 0) + 1
        return out

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    @contextlib.contextmanager
    def timing(self) -> Iterator[list[list[tuple[str, float]]]]:
        """Inside the block, each run of a program is recorded: its native calls, and the seconds of
        each.
        """
        runs: list[list[tuple[str, float]]] = []
        programs = [step.program for step in self.steps.values()]
        for program in programs:
            program.watch(runs)
        try:
            yield runs
        finally:
            for program in programs:
                program.watch(None)

    def explain(self) -> str:
        """A report of what runs without Python, and of what is assumed not to change."""
        lines = [f"{self.function!r}: {self.calls} calls, {len(self.steps)} programs"]
        lines += [f"  run eagerly: {why} ({n} times)" for why, n in self.refused.items()]
        for step in self.steps.values():
            lines += [f"  {line}" for line in step.explain()]
        return "\n".join(lines)


def _stepped(specs: Any) -> list[Optimizer]:
    """The optimizers that made a step."""
    made = (s.op.optimizer for s in specs.values() if isinstance(s.op, Step))
    return list({id(optimizer): optimizer for optimizer in made}.values())


def _check_taken(recorder: Recorder, inputs: list[Tensor]) -> None:
    """Refuse a call in which Python turned values that vary between calls into constants."""
    specs, changing = recorder.graph._specs, set(recorder.graph._updates)
    given = set(map(id, inputs))
    changing |= {s.id for s in specs.values() if s.leaf is not None and id(s.leaf.lasting) in given}
    for tensor, value, line in recorder.taken:
        seen = set() if value is None else {value.node}
        stack = list(seen)
        while stack:
            fresh = {r.node for r in specs[stack.pop()].refs()} - seen
            seen |= fresh
            stack += fresh
        if id(tensor) in given or not seen.isdisjoint(changing):
            raise CannotLower(f"Python code reads values that change from call to call, at {line}")


def _check_passes(recorder: Recorder) -> None:
    """Refuse backward passes that continue into the graph of tensors from outside."""
    specs, flows = recorder.graph._specs, recorder.flows
    roots = [root for made in recorder.graph._passes for root, _ in made.roots if root is not None]
    seen, stack = set(roots), roots
    while stack:
        spec = specs[stack.pop().node]
        if spec.leaf is not None and not spec.leaf.lasting.is_leaf:
            raise CannotLower("a backward pass that continues into the graph of an outside tensor")
        found = {r for r in spec.refs() if r in flows} - seen
        seen |= found
        stack += found


def _check_result(value: Any, read: bool) -> None:
    """Refuse a result that can't be reproduced; if ``read``, also numbers, since Python read
    values.
    """
    kind = value.__class__
    if kind in (list, dict, tuple) or (isinstance(value, tuple) and hasattr(kind, "_make")):
        for part in value.values() if kind is dict else value:
            _check_result(part, read)
    elif kind in NUMBERS and read:
        raise CannotLower("a result is a number, and Python code has read values of tensors")
    elif kind not in (Tensor, Size, dt.dtype, device, str, bytes, type(None), *NUMBERS):
        raise CannotLower(
            f"a result of class {kind.__name__}: only tensors in tuples, lists and dicts work"
        )


def _check_ends(specs: Any, ends: list[Ref], out: Any, has_gradients: bool) -> None:
    """Refuse results that a program can't return again as what they are."""
    results = list(tensors_in(out))
    if any(specs[r.node].kind in LEAVES for r in ends) or any(t._base is not None for t in results):
        raise CannotLower(
            "a result that is an argument, a view, or a tensor from outside the function"
        )
    own = {id(t): id(storage_array(t._a)) for t in results}
    if len(set(own.values())) < len(own):
        raise CannotLower("results that share memory")
    if any(t._node is not None for t in results) and not has_gradients:
        raise CannotLower("a result with a grad_fn whose graph no backward pass has freed")


class StaticStep:
    """The program of one recorded call."""

    def __init__(self, graph: Any, times: dict[int, int], before: set[int], ends: list[Ref],
                 out: Any, inputs: list[Tensor], roots: Any) -> None:  # fmt: skip
        if graph._frozen:
            raise CannotLower(graph._frozen)
        specs = graph._specs
        examples = self._note_leaves(specs, inputs)
        writes, grads = self._note_writes(graph, times)
        _check_ends(specs, ends, out, bool(graph._gradients))
        self.ends, self.out = len(ends), out
        draws = [Ref(s.id) for s in specs.values() if isinstance(s.op, Draw)]
        wanted = [*ends, *(r for r in grads.values() if r is not None), *draws]
        self.program = lower(list(specs.values()), examples, wanted, writes)
        leaves = self.program.leaves
        self.leaves = [None if k in self.given else self.held[k] for k in leaves]
        self.places = [(at, self.given[k]) for at, k in enumerate(leaves) if k in self.given]
        self.tensors = list(self.held.values())
        self.arrays = list(map(ARRAY, self.tensors))
        self.nodes = list(map(NODE, self.tensors))
        self._note_objects(roots)
        self._note_optimizers(specs, roots)
        self._note_gradients(specs, before)
        constants = [t for t in self.tensors if not isinstance(t, Parameter)]
        self.unchanged: Callable[[], bool] | None = None
        self.known: list[Any] = []  # the arrays of leaves, while nothing has changed
        self.owners: set[int] = set()  # of written memory, while arrays are known
        self.watched = 0
        self.assumed = f"{len(constants)} tensors from outside, all numbers, branches and loops"

    def _note_leaves(self, specs: Any, inputs: list[Tensor]) -> dict[int, Any]:
        """Tell the leaves that are arguments from those that are always the same tensors.

        Returns their arrays.
        """
        place = {id(t): k for k, t in enumerate(inputs)}
        self.given: dict[int, int] = {}  # leaves that are arguments, with their number
        self.held: dict[int, Tensor] = {}  # leaves that are the same tensors in each call
        examples: dict[int, Any] = {}
        for spec in specs.values():
            if spec.kind not in LEAVES:
                continue
            if "grad_of" in spec.attrs:
                raise CannotLower("gradients that existed before the step")
            tensor = spec.leaf.lasting
            if not tensor.is_cpu:
                raise CannotLower(f"a tensor is on {tensor.device}: programs run on the CPU")
            if id(tensor) in place:
                self.given[spec.id] = place[id(tensor)]
            else:
                self.held[spec.id] = tensor
            examples[spec.id] = cpu_array(tensor)
        given = [cpu_array(t) for t in inputs]
        if any(np.may_share_memory(examples[k], a) for k in self.held for a in given):
            raise CannotLower("a tensor that shares memory with an argument")
        return examples

    def _note_writes(self, graph: Any, times: dict[int, int]) -> Any:
        """Find out what the step writes: leaves, with their new values, and new gradients."""
        specs = graph._specs
        writes = {
            leaf: r for leaf, r in graph._updates.items() if _lasts(specs[leaf], leaf in self.given)
        }
        # Gradients that are set to zero and added to remain the tensors that they are.
        grads, self.steady = dict(graph._gradients), list[tuple[Tensor, Tensor]]()
        place_of = {id(specs[leaf].leaf.lasting): leaf for leaf in writes}
        for leaf, r in graph._gradients.items():
            t = specs[leaf].leaf.tensor
            if r is not None and t is not None and id(t._grad) in place_of:
                writes[place_of[id(t._grad)]] = grads.pop(leaf)
                self.steady.append((t, t._grad))
        self.written = [specs[leaf].leaf.lasting for leaf in writes]
        self.cells = [(specs[leaf].leaf.lasting._vc, times.get(leaf, 1)) for leaf in writes]
        if any(leaf in self.given for leaf in graph._updates):
            raise CannotLower("an argument that is modified in place")
        if any(leaf in self.given for leaf in graph._gradients):
            raise CannotLower("an argument that receives a gradient")
        self.grads = [specs[leaf].leaf.tensor for leaf, r in grads.items() if r is not None]
        self.cleared = [specs[leaf].leaf.tensor for leaf, r in grads.items() if r is None]
        return writes, grads

    def _note_objects(self, roots: Any) -> None:
        """Note what the function can reach, as it is now."""
        self.guards = list(_guards(roots))
        self.variables = list(_variables(roots))
        self.lists = [(items, items.copy()) for items in _lists(roots)]
        if not all(isinstance(table, dict) for table, _, _ in self.guards):
            raise CannotLower("a module or optimizer that does not keep its attributes in dicts")
        self.tables, self.names, self.values = [[g[k] for g in self.guards] for k in range(3)]
        self.sizes = [(table, len(table)) for table in _tables(roots)]
        self.everywhere = everywhere()
        self.objects = list(_objects(roots[1:]))  # kept alive, since calls go by their identity

    def _note_optimizers(self, specs: Any, roots: Any) -> None:
        """Note the optimizers that the function can reach, with their states and settings."""
        self.optimizers = [o for o in reached(roots) if isinstance(o, Optimizer)]
        known = {id(t) for o in self.optimizers for own in o.state.values() for t in own.values()}
        if any(s.kind == STATE and id(s.leaf.lasting) not in known for s in specs.values()):
            raise CannotLower("optimizer state that the step itself creates")
        # Settings such as a momentum ask for states of their own.
        rules = [o for o in self.optimizers if hasattr(o, "_state_names")]
        groups = [(o._state_names, group) for o in rules for group in o.param_groups]
        self.states = [(names_of, group, names_of(group)) for names_of, group in groups]
        self.moved = [_moved_by(o) for o in self.optimizers]  # compared by identity
        self.hooks = [_global_optimizer_pre_hooks, _global_optimizer_post_hooks]
        for o in self.optimizers:
            self.hooks += [o._optimizer_step_pre_hooks, o._optimizer_step_post_hooks]
        if any(self.hooks):
            raise CannotLower("hooks on an optimizer step")

    def _note_gradients(self, specs: Any, before: set[int]) -> None:
        """Find out which leaves may have a gradient before a step because it clears them.

        The others must have none: the step would accumulate into it, or read it.
        """
        stepped = {id(s.op.optimizer) for s in specs.values() if isinstance(s.op, Step)}
        moved = [p for o in self.optimizers if id(o) in stepped for p in _parameters_of(o)]
        kept = (t for t, _ in self.steady)
        reached = {id(t): t for t in (*self.grads, *self.cleared, *kept)}
        idle = [p for p in moved if id(p) not in reached]
        self.cleared += [p for p in idle if id(p) in before and p._grad is None]
        self.clean = [t for t in (*reached.values(), *idle) if id(t) not in before]

    def is_apart(self, inputs: list[Tensor]) -> bool:
        """Whether no argument shows memory that the step writes to."""
        owners = self.owners if self.unchanged is not None else set(map(_owner, self.written))
        for t in inputs:
            array = ARRAY(t)
            if id(array if array.base is None else array.base) in owners:
                return False
        return True

    def begins_clean(self) -> bool:
        """Whether no leaf has a gradient that had none when the step was recorded."""
        return not self.clean or all(t._grad is None for t in self.clean)

    def holds(self) -> bool:
        """Whether everything is unchanged since the step was recorded."""
        for names_of, group, names in self.states:
            if names_of(group) != names:
                return False
        if self.unchanged is not None and self.unchanged():
            return self._has_same_hooks()
        if not self._holds():
            return False
        # Different objects that are equivalent for the step, or the first call.
        self.unchanged = self._watching() if self.watched < WATCHED else None
        self.watched += 1
        return True

    def _watching(self) -> Callable[[], bool] | None:
        """A function that checks in one call whether everything that ``_holds`` compares is
        unchanged.
        """
        guard = ObjectGuard()
        try:
            for table, name, value in zip(self.tables, self.names, self.values, strict=True):
                guard.entry(table, name, value)
            for table, length in self.sizes:
                guard.size(table, length)
            for table in self.hooks:
                guard.size(table, 0)
            for cell, value in self.variables:
                guard.variable(cell, value)
            for items, before in self.lists:
                guard.items(items, before)
            for optimizer in self.optimizers:
                guard.entry(vars(optimizer), "param_groups", optimizer.param_groups)
                guard.items(optimizer.param_groups, optimizer.param_groups)
                for group in optimizer.param_groups:
                    guard.entry(group, "params", group["params"])
                    guard.items(group["params"], group["params"])
            for tensor, node in zip(self.tensors, self.nodes, strict=True):
                guard.slot(tensor, "_a", ARRAY(tensor))
                guard.slot(tensor, "_node", node)
            for tensor, grad in self.steady:
                guard.slot(tensor, "_grad", grad)
            for node in self._accumulating():
                guard.slot(node, "extras", None)
                guard.slot(node, "post_accumulate", node.post_accumulate)
                if node.post_accumulate is not None:
                    guard.size(node.post_accumulate, 0)
        except (Unsupported, AttributeError, StopIteration):
            return None
        self.known = self._arrays()
        self.owners = set(map(_owner, self.written))
        return guard.made()

    def _holds(self) -> bool:
        """The same, by comparing one after another."""
        if any(len(table) != length for table, length in self.sizes):
            return False
        if not all(map(is_, map(dict.get, self.tables, self.names), self.values)):
            if not self._is_equal():
                return False
        if not self._reaches_the_same() or not self._has_same_hooks() or any(self.hooks):
            return False
        for optimizer, before in zip(self.optimizers, self.moved, strict=True):
            now = _moved_by(optimizer)
            if len(now) != len(before) or not all(map(is_, now, before)):
                return False
        arrays = list(map(ARRAY, self.tensors))
        if not all(map(is_, arrays, self.arrays)) and any(
            a.shape != b.shape or a.strides != b.strides or a.dtype != b.dtype
            for a, b in zip(arrays, self.arrays, strict=True)
        ):
            return False
        if not all(map(is_, map(NODE, self.tensors), self.nodes)):
            return False
        if any(t._grad is not grad for t, grad in self.steady):
            return False
        return not any(n.extras is not None or n.post_accumulate for n in self._accumulating())

    def _accumulating(self) -> list[Any]:
        """The nodes of the leaves that get gradients."""
        leaves = (*self.grads, *(t for t, _ in self.steady))
        return list({id(t._node): t._node for t in leaves if t._node is not None}.values())

    def _has_same_hooks(self) -> bool:
        """Whether the hooks of all modules are the same."""
        return not (EVERYWHERE.active or self.everywhere) or everywhere() == self.everywhere

    def _reaches_the_same(self) -> bool:
        """Whether variables and lists hold the same modules and optimizers."""
        for cell, value in self.variables:
            if not _filled_cell(cell) or cell.cell_contents is not value:
                return False
        return all(
            len(items) == len(before) and all(map(is_, items, before))
            for items, before in self.lists
        )

    def _is_equal(self) -> bool:
        """Whether the entries that are different objects by now are equal numbers or strings."""
        for k, (table, name, value) in enumerate(
            zip(self.tables, self.names, self.values, strict=True)
        ):
            now = table.get(name)
            if now is not value:
                same = now.__class__ is value.__class__ and now.__class__ in PLAIN
                if not same or repr(now) != repr(value):
                    return False
                self.values[k] = now
        return True

    def _arrays(self) -> list[Any]:
        """The arrays of leaves that are the same tensors in each call, None for the others."""
        return [None if t is None else ARRAY(t) for t in self.leaves]

    def run(self, inputs: list[Tensor]) -> tuple[bool, Any]:
        """Run the program; False with nothing changed if it can't be used."""
        # Guards have just verified every array; otherwise arrays are looked up.
        known = self.known if self.unchanged is not None else self._arrays()
        if self.places:
            known = known.copy()
            for at, k in self.places:
                known[at] = ARRAY(inputs[k])
        late = None
        try:
            found = self.program.run(known, keep=True)
        except BaseException as error:
            late, found = error, self.program.rescued()
            if found is None:
                raise
        self.program.kept = None
        if found is None:
            return False, None
        for cell, times in self.cells:
            cell[0] += times
        for t, array in zip(self.grads, found[self.ends :], strict=False):
            t._grad = wrap(array)
        for t in self.cleared:
            t._grad = None
        if late is not None:
            raise late
        left = iter(found)
        return True, _filled(self.out, left, {})

    def explain(self) -> list[str]:
        """What the program does, and what it assumes."""
        guards = f"guarded: arguments, {len(self.guards)} entries of modules and optimizers"
        return [*self.program.explain(), guards, f"assumed: {self.assumed}"]


def _owner(tensor: Tensor) -> int:
    """The array that owns the memory of a tensor, by its identity."""
    array = ARRAY(tensor)
    return id(array) if array.base is None else id(array.base)


def _key(value: Any, inputs: list[Tensor]) -> Any:
    """The lookup key of arguments: tensors by kind and identity pattern, others by value."""
    if isinstance(value, Tensor):
        for k, other in enumerate(inputs):
            if other is value:
                return "input", k
        inputs.append(value)
        a = value._a
        return value.__class__, a.shape, a.strides, a.dtype, value._node is None
    if isinstance(value, (tuple, list)):
        return value.__class__, tuple([_key(v, inputs) for v in value])
    if isinstance(value, dict):
        return dict, tuple([(k, _key(v, inputs)) for k, v in value.items()])
    if isinstance(value, (float, complex)):
        return value.__class__, repr(value)  # zeros are signed
    if isinstance(value, (bool, int, str, bytes, type(None))):
        return value.__class__, value
    return "object", id(value)


def _objects(value: Any) -> Iterator[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _objects(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from _objects(v)
    elif not isinstance(value, Tensor):
        yield value


def _filled(value: Any, arrays: Iterator[Any], made: dict[int, Tensor]) -> Any:
    """A result like the recorded one, with new values."""
    if isinstance(value, Tensor):
        array = next(arrays)
        if id(value) not in made:  # a tensor may occur twice
            made[id(value)] = wrap(array)
        return made[id(value)]
    if isinstance(value, (tuple, list)):
        parts = [_filled(v, arrays, made) for v in value]
        return getattr(value, "_make", type(value))(parts)
    if isinstance(value, dict):
        return {k: _filled(v, arrays, made) for k, v in value.items()}
    return value


def _guards(roots: Any) -> Iterator[tuple[dict[Any, Any], Any, Any]]:
    """Entries of dicts that must stay as they are: of modules, and of optimizers' states."""
    for found in reached(roots):
        if isinstance(found, Module):
            for module in found.modules():
                yield from _attributes(module)
                for table in _parts_of(module):
                    for name, value in table.items():
                        yield table, name, value
        else:
            yield vars(found), "state", found.state
            for p, own in found.state.items():
                yield found.state, p, own
                for name, value in own.items():
                    yield own, name, value
    for value in _walk(roots):
        names: Iterable[Any] = value if value.__class__ is dict else ()
        if isinstance(value, FunctionType) and _is_users(value):
            value, names = value.__globals__, _names(value.__code__)
        for name in names:
            if _acts(value.get(name)):
                yield value, name, value[name]


def _variables(roots: Any) -> Iterator[tuple[Any, Any]]:
    """The variables of outer functions that are modules and optimizers, which may become others."""
    for value in _walk(roots):
        for cell in (isinstance(value, FunctionType) and value.__closure__) or ():
            if _filled_cell(cell) and _acts(cell.cell_contents):
                yield cell, cell.cell_contents


def _acts(value: Any) -> bool:
    return isinstance(value, (Module, Optimizer))


def _tables(roots: Any) -> Iterator[dict[str, Any]]:
    """The tables of modules, which may grow."""
    for found in reached(roots):
        if isinstance(found, Module):
            for module in found.modules():
                yield from _parts_of(module)
                own = vars(module)
                yield from (own[n] for n in _settings(module) if own[n].__class__ is dict)


def _parts_of(module: Module) -> Iterator[dict[Any, Any]]:
    """A module's parameters, buffers and children, and its hooks once it has had one."""
    yield from (module._parameters, module._buffers, module._modules)  # type: ignore[misc]
    if module._hooked:
        yield from (vars(module)[name] for name in HOOKS)


def _lists(roots: Any) -> Iterator[list[Any]]:
    """Lists that are settings of modules, or have modules and optimizers in them."""
    for value in _walk(roots):
        if isinstance(value, Module):
            own = vars(value)
            yield from (own[n] for n in _settings(value) if own[n].__class__ is list)
        elif value.__class__ is list and any(map(_acts, value)):
            yield value


def _attributes(module: Module) -> Iterator[tuple[dict[Any, Any], Any, Any]]:
    """A module's settings, whether it has had hooks, and a ``forward`` of its own if it has one."""
    own = vars(module)
    for name in ("forward", "_hooked", *_settings(module)):
        yield own, name, own.get(name)
        if own.get(name).__class__ is dict:
            yield from ((own[name], key, value) for key, value in own[name].items())


def _settings(module: Module) -> list[str]:
    """The attributes that a module has besides its parts; of weft's own modules the public ones."""
    kept = (n for n in vars(module) if n not in NO_SETTINGS)
    return [n for n in kept if n[:1] != "_" or _is_users(module.__class__)]


def _parameters(roots: Any) -> Iterator[Tensor]:
    """The parameters of modules and optimizers."""
    for found in reached(roots):
        yield from found.parameters() if isinstance(found, Module) else _parameters_of(found)


def _parameters_of(optimizer: Optimizer) -> Iterator[Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _moved_by(optimizer: Optimizer) -> list[Any]:
    """The parameters of an optimizer's groups, with the groups between them."""
    found: list[Any] = []
    for group in optimizer.param_groups:
        found.append(group)
        found += group["params"]
    return found


def reached(roots: Any) -> list[Any]:
    """The modules and optimizers that a function can reach."""
    found = list(filter(_acts, _walk(roots)))
    inside = {id(m) for v in found if isinstance(v, Module) for m in v.modules() if m is not v}
    return [v for v in found if id(v) not in inside]


OWN = frozenset(vars(Module())) - {"_parameters", "_buffers", "_modules", "training"}
HOOKS = [
    name
    for name in OWN
    if name.endswith(("forward_hooks", "forward_pre_hooks", "backward_hooks", "backward_pre_hooks"))
]
NO_SETTINGS = {*vars(Module()), "forward", "_hooked", "_scope_name", "_scope_places", "_model_tag"}
NO_SETTINGS.remove("training")
LIBRARIES = {"weft", "numpy", *sys.stdlib_module_names}


class PythonState:
    """The contents of attributes, lists and dicts, before a call that may change them."""

    def __init__(self, holders: Iterable[Any]) -> None:
        self.seen = [(holder, _contents(holder)) for holder in holders]

    def is_changed(self) -> bool:
        """Whether the contents have changed."""
        return not all(_same(_contents(holder), before) for holder, before in self.seen)


def _contents(holder: Any) -> list[Any]:
    if isinstance(holder, FunctionType):
        return _named_by(holder)
    if isinstance(holder, Module):
        holder = {name: x for name, x in vars(holder).items() if name not in OWN}
    return [y for x in holder.items() for y in x] if isinstance(holder, dict) else list(holder)


def _same(now: Any, before: Any) -> bool:
    """Whether values are the same objects, or equal numbers and strings."""
    if now is before:
        return True
    if now.__class__ is not before.__class__:
        return False
    if isinstance(now, (list, tuple)):
        return len(now) == len(before) and all(map(_same, now, before))
    return now.__class__ in PLAIN and repr(now) == repr(before)


def _holders(roots: Any) -> list[Any]:
    """The mutable objects that a function can reach: lists, dicts, objects, functions' cells."""
    kinds = (list, dict, set, deque, Module, FunctionType)
    return [value for value in _walk(roots) if isinstance(value, kinds)]


def _walk(roots: Any) -> Iterator[Any]:
    """What a function can name, and what that refers to."""
    seen: dict[int, Any] = {}  # keeps what is made on the way, so that no identity comes twice
    stack = [roots]
    while stack:
        value = stack.pop()
        if id(value) not in seen and not isinstance(value, (*PLAIN, Tensor, ModuleType)):
            seen[id(value)] = value
            yield value
            stack += _parts(value)


def _parts(value: Any) -> Iterable[Any]:
    """What an object refers to, where the program's code can come to it."""
    if isinstance(value, (tuple, list, set, frozenset, deque)):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(value.values())
    if isinstance(value, (FunctionType, MethodType)):
        return _named_by(value)
    if isinstance(value, functools.partial):
        return value.func, value.args, value.keywords
    if isinstance(value, (staticmethod, classmethod)):
        return (value.__func__,)
    if isinstance(value, property):
        return value.fget, value.fset
    if isinstance(value, type):
        return tuple(vars(value).values()) + value.__bases__ if _is_users(value) else ()
    if isinstance(value, Optimizer):
        return value.__class__, value.param_groups, value.state
    own = getattr(value, "__dict__", None)
    if isinstance(value, (Module, LRScheduler)) or _is_users(value.__class__):
        slots = [getattr(value, n, None) for c in type(value).__mro__ for n in _slots(c)]
        held = vars(value).values() if isinstance(value, Module) else (own,)
        return value.__class__, *slots, *held
    if own is None or not _is_wefts(value.__class__):
        return (own,)
    # What a compiled function has learned is nothing that the program can come to.
    return (own["__wrapped__"],) if "__wrapped__" in own else filter(_acts, own.values())


def _slots(kind: type) -> Iterable[str]:
    names = vars(kind).get("__slots__", ()) if _is_users(kind) else ()
    return (names,) if isinstance(names, str) else names


def _is_wefts(made: Any) -> bool:
    """Whether a function or class is one of weft's own."""
    return str(made.__module__).startswith("weft.")


def _is_users(made: Any) -> bool:
    """Whether a function or class may name modules and optimizers: those of libraries do not."""
    return str(made.__module__).partition(".")[0] not in LIBRARIES


def _named_by(value: FunctionType | MethodType) -> list[Any]:
    """The objects that a function's code can reach: its cells and globals, and its ``self``."""
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    found = [c.cell_contents for c in value.__closure__ or () if _filled_cell(c)]
    if _is_users(value):
        known = value.__globals__
        found += [known[n] for n in _names(value.__code__) if n in known]
        found += [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
        found += vars(value).values()
    return found


def _names(code: CodeType) -> Iterator[str]:
    """The names that code reads, with those in its lambdas, comprehensions and functions."""
    yield from code.co_names
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _names(part)


def _filled_cell(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False
