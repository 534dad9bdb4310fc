"""Optimizer steps of one rule as one native call, in place, after everything else has succeeded.

The coefficients of a rule (learning rate, bias corrections) are recomputed for every run from the
optimizer's settings and the step counters, which are state.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from operator import methodcaller
from typing import Any

import numpy as np

from weft.compiler import driver, native_matching
from weft.compiler.expand import StepWork
from weft.compiler.ir import Value, WorkNode
from weft.compiler.native_matching import EXACT
from weft.native import contract, threads
from weft.native.codegen import updates
from weft.native.codegen.jit import Symbol
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS
from weft.optim.elementwise import with_numbers

ndarray = np.ndarray
ITEM = methodcaller("item")


def is_plain(node: WorkNode, leaves: Mapping[int, Any], writes: Mapping[int, Any]) -> bool:
    """Whether a step can update its parameter in place: all its results are written to leaves.

    ``writes`` are the values that leaves take.
    """
    work = node.work
    if not isinstance(work, StepWork) or not hasattr(work.step.rule, "next_coefficients"):
        return False
    value, _, *state = node.args
    for old, new in zip((value, *state), node.results, strict=True):
        if not isinstance(old, Value) or old.leaf is None or writes.get(old.leaf) is not new:
            return False
    arrays = [leaves[x.leaf] for x in (value, *state[: work.states])]
    if any(x.dtype not in FLOATS or x.shape not in ((), (1,)) for x in state[work.states :]):
        return False
    return value.dtype in FLOATS and all(
        isinstance(a, ndarray)
        and a.dtype == value.dtype
        and a.shape == value.shape
        and a.flags.c_contiguous
        for a in arrays
    )


def grouped(nodes: Sequence[WorkNode], leaves: Mapping[int, Any]) -> list[list[WorkNode]]:
    """Steps that are made by one call: of one rule, parameter group, dtype and step count."""
    found: dict[Any, list[WorkNode]] = {}
    for node in nodes:
        work: Any = node.work
        counters = tuple(np.asarray(leaves[x.leaf]).item() for x in node.args[2 + work.states :])
        settings = id(work.step.group) if work.step.group is not None else repr(work.settings)
        key = work.step.rule, settings, node.results[0].dtype, work.states, counters
        found.setdefault(key, []).append(node)
    return list(found.values())


class Update:
    """The steps of a group of parameters, in a program.

    ``places`` are the operands of each parameter: value, gradient, states and counters.
    """

    def __init__(self, nodes: Sequence[WorkNode], places: list[list[Any]]) -> None:
        work: Any = nodes[0].work
        self.places = places  # of value, gradient, states and counters
        self.step, self.settings = work.step, work.settings
        self.rule: Any = work.step.rule.__new__(work.step.rule)
        self.settled: tuple[Any, Any] = (self, self)  # settings that are numbers; none yet
        self.works = [node.work for node in nodes]
        self.kind = FLOATS[nodes[0].results[0].dtype]
        self.states = work.states
        sizes = [int(np.prod(node.results[0].shape)) for node in nodes]
        self.sizes = np.array(sizes, np.int64)
        pieces = [(k, s) for k, n in enumerate(sizes) for s in range(0, n, updates.CHUNK)]
        self.which = np.array([k for k, _ in pieces], np.int64)
        self.start = np.array([s for _, s in pieces], np.int64)
        self.grain = max(1, len(pieces) * updates.GRAIN // max(sum(sizes), 1))
        self.name = f"{work.name} of {len(nodes)} parameters"
        self.counters: list[list[int]] = []  # as positions among a program's leaves
        self.ages: list[int] | None = None  # those of one counter each, if no more is needed
        self.next_age: Any = None  # compiled code that reads these
        self.stored: list[ndarray] = []  # the words with the counters' new values
        self.row = 0  # positions of the addresses among a program's words

    def plan(self, leaves: Mapping[int, Any]) -> bool:
        """Find the loop of the rule for the current settings; False if there is none."""
        first = [np.array(leaves[p.buffer.key]) for p in self.places[0][self.states + 2 :]]
        group = self.settings if self.step.group is None else self.step.group
        self.flags, values = self.step.rule.next_coefficients(group, first)
        self.count = len(values)
        code = self._code()
        if code is None:
            return False
        self.address, self.words = code
        return True

    def _code(self) -> tuple[int | Symbol, list[Any]] | None:
        """The address of the loop, and the words it takes; coefficients and rows come later."""
        rule = self.step.rule.rule
        code = updates._compiled(rule, self.flags, self.states, self.count, self.kind)
        if code is None:
            return None
        size, many = len(self.which), threads.how_many(len(self.which), self.grain)

        def kernel(rows: ndarray) -> Any:
            arrays = self.sizes, self.which, self.start
            buffers.constant(*arrays)
            code(rows, *arrays, *[0.0] * self.count, size, many)
            return ()

        (call,) = contract.plan(kernel, (np.zeros(1, np.int64),)).calls
        return call.address, list(call.words)

    def settle(self, words: ndarray, first: int) -> None:
        """Set the positions of the coefficients among a program's words."""
        narrow = self.kind == "f32"
        self.coefficients: Any = words.view(np.uint8)[8 * first :].data
        self.packing = struct.Struct(("f4x" if narrow else "d") * self.count)

    def counts(self) -> list[Any]:
        """The calls that write the counters, as address and words; the first word is the number."""
        found = []
        for k in range(self.states + 2, len(self.places[0])):
            mine = [places[k] for places in self.places]
            words = [0, len(mine), *((p.buffer, p.offset) for p in mine)]
            found.append((driver.store(mine[0].lies.dtype.itemsize), words))
        return found

    def prepared(self, arrays: Sequence[Any]) -> bool:
        """Set the coefficients for a run on leaves, and the counters after it.

        False if the parameters' step counts differ by now, or the settings need a different loop.
        """
        live = self.step.group
        group = self.settings if live is None else live
        step = None if self.next_age is None else self.next_age(arrays, self.age_words)
        if step is None:
            step = self._age(arrays)
        if step is not None:
            flags, values = self.rule._coefficients(self._numbers(group), step, ())
            counters: Any = (step,)
        else:
            counters = [np.array(arrays[at]) for at in self.counters[0]]
            for k, counter in enumerate(counters):
                now = counter.item()
                for mine in self.counters:
                    if arrays[mine[k]].item() != now:
                        return False
            flags, values = self.step.rule.next_coefficients(group, counters)
        if flags != self.flags:
            return False
        try:
            self.packing.pack_into(self.coefficients, 0, *values)
        except OverflowError:  # a number that overflows in this dtype
            with np.errstate(over="ignore"):
                narrowed = np.array(values, np.float32).tolist()
            self.packing.pack_into(self.coefficients, 0, *narrowed)
        for word, counter in zip(self.stored, counters, strict=True):
            word[0] = counter
        return True

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        """The settings of a group as numbers; recomputed only if they have changed."""
        rate, betas, decay = group["lr"], group.get("betas"), group.get("weight_decay")
        known = self.settled
        if rate.__class__ is not float or betas is not known[0] or decay is not known[1]:
            numbers = with_numbers(group)
            if numbers is not group or betas.__class__ not in (tuple, type(None)):
                return numbers
            self.settled = betas, decay
        return group

    def _age(self, arrays: Sequence[Any]) -> float | None:
        """The number of the next step, if all parameters have the same and nothing else is
        counted.
        """
        if self.ages is None:
            alone = len(self.counters[0]) == 1 and self.step.rule._by_step_alone
            self.ages = [mine[0] for mine in self.counters] if alone else []
            made = native_matching.functions()
            if self.ages and made is not None:
                self.next_age, self.age_words = made.next_age, native_matching.words(self.ages)
        return self.age_of(arrays)

    def age_of(self, arrays: Sequence[Any]) -> float | None:
        """The same in Python, and its specification."""
        ages = set(map(ITEM, map(arrays.__getitem__, self.ages or ())))
        if len(ages) != 1:
            return None
        (age,) = ages
        return age + 1.0 if age < EXACT else None

    def one_by_one(self, read: Any) -> None:
        """The same for each parameter separately; ``read`` returns the array of an operand."""
        found: list[tuple[ndarray, ndarray]] = []
        for work, places in zip(self.works, self.places, strict=True):
            arrays = [read(place) for place in places]
            new = work.python(*arrays)
            found += zip((arrays[0], *arrays[2:]), new, strict=True)
        for array, new in found:
            array[...] = new
