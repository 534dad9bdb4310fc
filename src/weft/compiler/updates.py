"""Optimizer steps of one rule as one native call, in place, when all else has succeeded.

The coefficients of a rule (learning rate, bias corrections) are computed anew for every run from
the optimizer's settings and the step counters, which are state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler.expand import StepWork
from weft.compiler.ir import Node, Value
from weft.native import threads
from weft.native.codegen import updates
from weft.native.memory.layout import FLOATS

ndarray = np.ndarray


def is_plain(node: Node, leaves: Mapping[int, Any], writes: Mapping[int, Any]) -> bool:
    """Whether a step can update its parameter where it lies: all it makes is written over leaves.

    ``writes`` are the values that leaves take on.
    """
    work = node.work
    if not isinstance(work, StepWork) or not hasattr(work.step.rule, "next_coefficients"):
        return False
    value, _, *state = node.args
    for old, new in zip((value, *state), node.results, strict=True):
        if not isinstance(old, Value) or old.leaf is None or writes.get(old.leaf) is not new:
            return False
    arrays = [leaves[x.leaf] for x in (value, *state[: work.states])]
    return value.dtype in FLOATS and all(
        isinstance(a, ndarray)
        and a.dtype == value.dtype
        and a.shape == value.shape
        and a.flags.c_contiguous
        for a in arrays
    )


def grouped(nodes: Sequence[Node], leaves: Mapping[int, Any]) -> list[list[Node]]:
    """Steps that one call takes: of one rule, group of parameters, type and age."""
    found: dict[Any, list[Node]] = {}
    for node in nodes:
        work: Any = node.work
        counters = tuple(np.asarray(leaves[x.leaf]).item() for x in node.args[2 + work.states :])
        settings = id(work.step.group) if work.step.group is not None else repr(work.settings)
        key = work.step.rule, settings, node.results[0].dtype, work.states, counters
        found.setdefault(key, []).append(node)
    return list(found.values())


class Update:
    """The steps of a group of parameters, in a program.

    ``places`` are those of value, gradient, states and counters of each parameter.
    """

    def __init__(self, nodes: Sequence[Node], places: list[list[Any]]) -> None:
        work: Any = nodes[0].work
        self.places = places  # of value, gradient, states and counters
        self.step, self.settings = work.step, work.settings
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

    def numbered(self, number: Mapping[int, int], base: int) -> None:
        """Be told the numbers of buffers outside of the arena, and where the arena begins."""
        rows, offsets = [], []
        for places in self.places:
            mine = places[: self.states + 2]
            rows.append([number.get(id(p.buffer), -1) + 1 for p in mine])
            inside = [base + p.buffer.offset if id(p.buffer) not in number else 0 for p in mine]
            offsets.append([start + p.offset for start, p in zip(inside, mine, strict=True)])
        self.rows = np.array(rows, np.int64)
        self.offsets = np.array(offsets, np.int64)
        self.table = np.zeros(self.rows.shape, np.int64)
        self.counters = [
            [number[id(p.buffer)] for p in places[self.states + 2 :]] for places in self.places
        ]

    def run(self, bases: ndarray, given: Mapping[int, ndarray]) -> bool:
        """Update all parameters; False, before anything is written, if one call can't.

        ``bases`` are the addresses of buffers, behind a zero for those in the arena.
        """
        counters = [[given[at] for at in mine] for mine in self.counters]
        first = [np.array(x) for x in counters[0]]
        for mine in counters[1:]:
            if any(a.item() != b.item() for a, b in zip(mine, first, strict=True)):
                return False
        rule = self.step.rule
        group = self.settings if self.step.group is None else self.step.group
        flags, values = rule.next_coefficients(group, first)
        code = updates._compiled(rule.rule, flags, self.states, len(values), self.kind)
        if code is None:
            return False
        np.add(bases[self.rows], self.offsets, out=self.table)
        code(
            *(self.table, self.sizes, self.which, self.start),
            *[float(c) for c in values],
            *(len(self.which), threads.how_many(len(self.which), self.grain)),
        )
        for mine in counters:
            for array, new in zip(mine, first, strict=True):
                array[...] = new
        return True

    def one_by_one(self, read: Any) -> None:
        """The same for each parameter alone; ``read`` gives the array at a place."""
        found: list[tuple[ndarray, ndarray]] = []
        for work, places in zip(self.works, self.places, strict=True):
            arrays = [read(place) for place in places]
            new = work.python(*arrays)
            found += zip((arrays[0], *arrays[2:]), new, strict=True)
        for array, new in found:
            array[...] = new
