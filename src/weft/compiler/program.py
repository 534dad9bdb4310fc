"""A list of graph records as one native call.

``lower`` expands records into work (``expand``), rewrites it (``passes``) and plans each piece of
it (``building``): the result is a list of native calls whose results and scratch memory are in one
arena. Work without a kernel is done by Python between two segments of native calls.
"""

from __future__ import annotations

import ctypes
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from weft.compiler import arena, driver
from weft.compiler.building import (
    FOREIGN,
    LEAF,
    TEMPORARY,
    BufferAllocation,
    BufferSlice,
    Building,
    Geometry,
    NotInPlace,
    ProgramCall,
    PythonCall,
    geometry,
)
from weft.compiler.expand import Expansion
from weft.compiler.ir import CannotLower, Number, WorkNode
from weft.compiler.passes import optimized
from weft.compiler.row_writes import written_rows
from weft.compiler.updates import Update, grouped, is_plain
from weft.core import quiet, selection
from weft.core.gate import LISTENERS, announce
from weft.graph.collecting import no_collection
from weft.graph.spec import Ref, Spec
from weft.native import threads
from weft.native.codegen.jit import pointer

__all__ = ["CannotLower", "Program", "lower"]

ndarray = np.ndarray
empty = np.empty
LONGEST = 12  # kernels whose times are reported


def needed_for(specs: Sequence[Spec], leaves: Any, ends: Any, writes: Any) -> set[int]:
    """The nodes that some values depend on, by number. A backward node needs only the values that
    it reads of its forward node, so the forward node itself may not run.
    """
    needed = {r.node for r in ends} | set(writes)
    for spec in reversed(specs):
        if spec.id in needed and spec.id not in leaves:
            needed.update(r.node for r in spec.refs())
    return needed


def lower(
    specs: Sequence[Spec],
    leaves: Mapping[int, ndarray | float | int],
    wanted: Sequence[Ref],
    writes: Mapping[int, Ref] = {},
    numbers: Collection[tuple[int, int]] = (),
    memory: arena.Memory | None = None,
) -> Program:
    """A program that computes values of a graph and writes some of them to leaves.

    ``leaves`` are examples of all leaves: the program requires their shapes, dtypes and strides.
    ``wanted`` are the values that each run returns, in new memory; ``writes`` maps leaves to the
    values that they take at the end. ``numbers`` are operands, by record and position, that are
    passed to each run. ``memory`` is shared with other programs, which do not run concurrently.
    """
    if not selection.ready():
        raise CannotLower("native code is off")
    with no_collection():
        building = _lowered(specs, leaves, wanted, writes, numbers)
        program = Program(building, building.finished(), memory)
    models = {id: _model(x) for id, x in leaves.items()}
    program.written = [k for k, leaf in enumerate(program.leaves) if leaf in writes]
    program.source = specs, models, wanted, writes, numbers
    program._again = lambda: lower(*program.source, memory)
    return program


def _lowered(specs: Any, leaves: Any, wanted: Any, writes: Any, numbers: Any) -> Building:
    needed = needed_for(specs, leaves, (*wanted, *writes.values()), writes)
    expansion = Expansion(specs, leaves, list(numbers), needed)
    ends = [expansion.read(r) for r in (*wanted, *writes.values())]
    nodes, ends = optimized(expansion.nodes, ends)
    written = dict(zip(writes, ends[len(wanted) :], strict=True))
    rows = written_rows(nodes, ends[: len(wanted)], written, leaves)
    attempts: list[Any] = [(True, rows), (True, {}), (False, {})]
    for in_place, placed in attempts if rows else attempts[1:]:
        try:
            building = Building(expansion, leaves)
            _build(building, nodes, ends[: len(wanted)], written, in_place, placed)
            break
        except NotInPlace:
            continue
    return building


def _model(x: Any) -> Any:
    """The properties of a leaf that a program depends on: its layout, and the values of
    counters.
    """
    if not isinstance(x, ndarray) or x.size <= 1:
        return np.array(x) if isinstance(x, ndarray) else x
    return geometry(x).model()


def _build(
    building: Building,
    nodes: list[WorkNode],
    wanted: list[Any],
    writes: dict[int, Any],
    in_place: bool,
    rows: dict[WorkNode, int],
) -> None:
    """Plan all work: pure computations, the updates of parameters, and nodes that read these.

    ``rows`` are nodes that write rows to leaves.
    """
    leaves = building.leaves
    steps = [n for n in nodes if in_place and is_plain(n, leaves, writes)]
    new = {value for node in steps for value in node.results}
    done_last = set(steps)
    later: list[WorkNode] = []
    for node in nodes:
        if node in done_last:
            continue
        if not new.isdisjoint(node.inputs()):
            later.append(node)
            new.update(node.results)
        elif node in rows:
            building.exchange_rows(node)
        else:
            building.run(node)
    found = {k: building.want(value) for k, value in enumerate(wanted) if value not in new}
    done = {x.leaf for node in steps for x in node.inputs() if x is not node.args[1]}
    rest = {leaf: value for leaf, value in writes.items() if leaf not in done}
    for leaf, value in rest.items():
        if value not in new:
            building.prepare(leaf, value)
    for group in grouped(steps, leaves):
        building.update(group)
    if building.undo:
        if any(isinstance(step, PythonCall) for step in building.steps):
            raise NotInPlace  # Python code may fail after rows were written
        building.check_apart(set(rows.values()))
    building.late = True
    for node in later:
        building.run(node)
    found |= {k: building.want(value) for k, value in enumerate(wanted) if value in new}
    for leaf, value in rest.items():
        building.write(leaf, value)
    building.results = [found[k] for k in range(len(wanted))]


class CallSequence:
    """A sequence of native calls, as the driver expects it."""

    def __init__(
        self, calls: Sequence[ProgramCall | Update], number: dict[int, int], base: int = 0
    ) -> None:
        words: list[Any] = []
        table: list[int] = []
        tables: list[tuple[int, Update]] = []
        counters: list[tuple[int, Update]] = []
        for call in calls:
            table += [int(call.address), len(words)]
            if isinstance(call, Update):
                tables.append((len(words), call))
                call.stored.clear()
            elif isinstance(call.origin, Update):
                counters.append((len(words), call.origin))
            words += call.words
        for first, update in tables:
            words[first] = None  # the address of the rows, which are words too
            update.row = len(words)
            for places in update.places:
                words += [(p.buffer, p.offset) for p in places[: update.states + 2]]
        moves: list[int] = []
        for k, word in enumerate(words):
            if isinstance(word, tuple):
                buffer, offset = word
                if buffer.kind == TEMPORARY:
                    words[k] = base + buffer.offset + offset
                else:
                    moves += [k, number[id(buffer)], offset]
                    words[k] = 0
        self.calls = calls
        self.words = np.array([w or 0 for w in words], np.uint64).view(np.int64)
        for first, update in tables:
            self.words[first] = pointer(self.words) + 8 * update.row
            update.settle(self.words, first + 4)
        for first, update in counters:
            dtype = update.places[0][update.states + 2 + len(update.stored)].lies.dtype
            update.stored.append(self.words[first : first + 1].view(dtype)[:1])
        self.moves = np.array(moves, np.int64)
        self.table = np.array(table, np.uint64).view(np.int64)
        self.given = (
            *(pointer(self.moves), len(moves) // 3),
            *(pointer(self.words), pointer(self.table), len(calls)),
        )

    def run(self, drive: Any, bases: int) -> None:
        moves, count, words, table, calls = self.given
        drive(moves, count, bases, words, table, calls)

    def timed(self, drive: Any, bases: int) -> list[tuple[str, float]]:
        """The same call by call, with the seconds each takes."""
        found = []
        moves, count, words, table, _ = self.given
        drive(moves, count, bases, words, table, 0)
        idle = min(_seconds(drive, 0, 0, bases, words, table, 0) for _ in range(5))
        for k, call in enumerate(self.calls):
            taken = _seconds(drive, 0, 0, bases, words, table + 16 * k, 1)
            found.append((_title(call), max(taken - idle, 0.0)))
        return found


def _seconds(function: Any, *args: Any) -> float:
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def _title(call: ProgramCall | Update) -> str:
    if isinstance(call, Update):
        return call.name
    return f"{getattr(call.origin, 'name', call.origin)}: {call.name}"


def _segments(
    steps: Sequence[ProgramCall | PythonCall | Update], number: dict[int, int], base: int
) -> list[CallSequence | PythonCall]:
    """Consecutive native calls form one segment."""
    found: list[CallSequence | PythonCall] = []
    calls: list[ProgramCall | Update] = []
    for step in (*steps, None):
        if step is not None and not isinstance(step, PythonCall):
            calls.append(step)
            continue
        if calls:
            found.append(CallSequence(calls, number, base))
            calls = []
        if step is not None:
            found.append(step)
    return found


NOT_RUN = 3  # the status before a native call


class Program:
    """The result of ``lower``: see there. Only one run is active at a time; others wait for it."""

    written: Sequence[int] = ()  # which leaves are written to
    kept: list[ndarray] | None = None  # the results of a run, until its caller has taken them

    def __init__(
        self, built: Building, arena_bytes: int, memory: arena.Memory | None = None
    ) -> None:
        self.arena_bytes = arena_bytes
        if memory is None or any(isinstance(s, PythonCall) for s in (*built.steps, *built.writes)):
            memory = arena.Memory()  # Python code in between may run other programs
        self._turn = memory.turn
        self._memory, self._base = memory.room(arena_bytes)
        outside = [b for b in built.buffers if b.kind != TEMPORARY and b.over is None]
        self._number = number = {id(b): k for k, b in enumerate(outside)}
        number |= {id(b): number[id(b.over)] for b in built.buffers if b.kind == LEAF and b.over}
        self._bases = np.zeros(len(outside) + 1, np.int64)
        self._status = np.zeros(1, np.int64)
        self._told = self._status.data  # faster to read
        self.leaves: tuple[int, ...] = tuple(built.used)
        self._leaf_at = np.array([number[id(b)] for b in built.used.values()], np.int64)
        self._place_of = {int(at): k for k, at in enumerate(self._leaf_at)}
        self._fill_bases(built, outside)
        self.steps = _segments(built.steps, number, self._base)
        self._updates = [s for s in built.writes if isinstance(s, Update)]
        for update in self._updates:
            counters = [places[update.states + 2 :] for places in update.places]
            update.counters = [[self._place_of[number[id(p.buffer)]] for p in c] for c in counters]
        self._later = [
            s
            for s in built.writes
            if not isinstance(s, Update) and not isinstance(getattr(s, "origin", None), Update)
        ]
        self.writes = _segments(built.writes, number, self._base)
        self.undo = _segments(built.undo, number, self._base)
        self._result_at = np.array([number[id(p.buffer)] for p in built.results], np.int64)
        self._shapes = [(*p.lies, _plain(p.lies)) for p in built.results]
        # The same in columns, if strides need not be specified.
        every = all(plain for *_, plain in self._shapes)
        columns = [[s[k] for s in self._shapes] for k in (0, 2)]
        self._all_plain = columns if every else None
        self._kept = built.keep, built.buffers
        self._notes = built.notes
        self._threads = threads.count()
        self.source: tuple[Any, ...] = ()  # the arguments of ``lower``
        self._again: Any = None  # rebuilds the program for a different number of threads
        self._python_calls = [
            s for s in (*self.steps, *self.writes) if isinstance(s, PythonCall)
        ]  # fmt: skip
        self._generators = [c.generator for c in self._python_calls if c.generator is not None]
        self._given: dict[int, ndarray] = {}  # of a run: the arrays of buffers outside the arena
        self._drive = driver.run()
        # Of the current run, of the last timed one, and of all watched runs.
        self._times: list[tuple[str, float]] | None = None
        self._measured: list[tuple[str, float]] | None = None
        self._watched: list[list[tuple[str, float]]] | None = None
        self._call, self._record = None, 0
        if not self._python_calls:
            self._call = driver.call()
            self._record_words = self._recorded()
            self._record = pointer(self._record_words)

    def _fill_bases(self, built: Building, outside: list[BufferAllocation]) -> None:
        """The addresses that are the same in every run."""
        if built.status is not None:
            self._bases[self._number[id(built.status)]] = pointer(self._status)
        self._slots = np.zeros(max(len(built.slots), 1), np.float64)
        self._numbers = []
        for k, ((index, dtype), buffer) in enumerate(built.slots.items()):
            slot = self._slots[k : k + 1].view(dtype)[:1]
            self._bases[self._number[id(buffer)]] = pointer(slot)
            self._numbers.append((slot, index))
        for b in outside:
            if b.kind == FOREIGN and b.key is not None:
                self._bases[self._number[id(b)]] = b.key

    def _recorded(self) -> ndarray:
        """The record that the built-in function reads: see ``driver``."""
        nothing = (0,) * 5
        stretches = [s[0].given if s else nothing for s in (self.steps, self.writes, self.undo)]  # type: ignore[union-attr]
        return np.array(
            [
                *(len(self._leaf_at), pointer(self._leaf_at)),
                *(len(self._result_at), pointer(self._result_at)),
                *(pointer(self._bases), pointer(self._status)),
                *(word for given in stretches for word in given),
            ],
            np.int64,
        )

    # --- running ---

    def run(
        self, arrays: Sequence[Any], numbers: Sequence[float] = (), announced: bool = False,
        keep: bool = False,
    ) -> list[ndarray] | None:  # fmt: skip
        """The requested values, from leaves in the order of ``leaves``; None if they can't be used.

        Then, as after an error, nothing has been written. ``announced`` says that all listeners
        know of the writes. If a signal handler raises, it does so when the native call has ended:
        ``rescued`` returns results that were kept for that case.
        """
        if arrays.__class__ is not list:
            arrays = list(arrays)
        if len(arrays) != len(self.leaves):
            raise ValueError(f"the program has {len(self.leaves)} leaves, not {len(arrays)}")
        if LISTENERS and not announced:
            for k in self.written:
                announce(arrays[k])
        with self._turn:
            if threads.CELL.value != self._threads:
                turn = self._turn
                self.__dict__.update(self._again().__dict__)
                self._turn = turn
            for slot, index in self._numbers:
                slot[0] = numbers[index]
            columns = self._all_plain
            results = list(map(empty, *columns)) if columns else self._new_results()
            together = True
            for update in self._updates:
                together = together and update.prepared(arrays)
            if self._watched is not None:
                self._times = []
                self._watched.append(self._times)
            if self._call is not None and together and self._times is None:
                self._told[0] = NOT_RUN
                self.kept = results if keep else None
                self._call(arrays, results, self._record)
                status = self._told[0]
                if not status:
                    return results
                if status != 2:
                    return None
            try:
                return self._slowly(arrays, results, numbers, together)
            finally:
                self._measured, self._times = self._times or self._measured, None

    def rescued(self) -> list[ndarray] | None:
        """The results of the last run, if it finished and only its caller was interrupted."""
        found, self.kept = self.kept, None
        return None if self._told[0] else found

    def _new_results(self) -> list[ndarray]:
        """Memory for the results of a run."""
        return [
            empty(shape, dtype) if plain else ndarray(shape, dtype, strides=strides)
            for shape, strides, dtype, plain in self._shapes
        ]

    def _slowly(
        self, arrays: list[Any], results: list[ndarray], numbers: Any, together: bool
    ) -> list[ndarray] | None:
        """A run step by step, with Python calls in between; updates together or one by one."""
        states = [(g, g.get_state()) for g in self._generators]
        given, done, ran = self._given, False, False
        try:
            arrays = [np.asarray(a) for a in arrays]
            for at, array in zip((*self._leaf_at, *self._result_at), (*arrays, *results),
                                 strict=True):  # fmt: skip
                given[int(at)] = array
                self._bases[at] = pointer(array)
            self._status[0] = 0
            ran = self._go(self.steps, numbers)
            if not ran or self._status[0]:
                return None
            if together:
                self._go(self.writes, numbers)
            else:
                for update in self._updates:
                    update.one_by_one(self._array)
                self._go(_segments(self._later, self._number, self._base), numbers)
            done = True
            return results
        finally:
            if ran and not done:
                self._go(self.undo, numbers)
            given.clear()
            if not done:
                for generator, state in states:
                    generator.set_state(state)

    def _go(self, steps: Sequence[CallSequence | PythonCall], numbers: Sequence[float]) -> bool:
        bases = pointer(self._bases)
        for step in steps:
            if isinstance(step, PythonCall):
                if self._status[0] or not self._python(step, numbers):
                    return False
            elif self._times is None:
                step.run(self._drive, bases)
            else:
                self._times += step.timed(self._drive, bases)
        return True

    def _python(self, step: PythonCall, numbers: Sequence[float]) -> bool:
        args = [
            self._array(x)
            if isinstance(x, BufferSlice)
            else numbers[x.index]
            if isinstance(x, Number)
            else x
            for x in step.args
        ]
        start = time.perf_counter()
        token = quiet.enter()
        try:
            given = tuple(step.function(*args))
        finally:
            quiet.leave(token)
        if any(x is None for x in given):
            return False  # a rule that returned no gradient after all
        out = [np.asarray(x) for x in given]
        for place, array in zip(step.results, out, strict=True):
            lies = place.lies
            if (array.shape, array.dtype) != (lies.shape, lies.dtype):
                return False  # its size depends on values
            if array.strides != lies.strides or _shared(array, args):
                made = np.ndarray(lies.shape, lies.dtype, strides=lies.strides)
                made[...] = array
                array = made
            at = self._number[id(place.buffer)]
            self._bases[at] = pointer(array)
            self._given[at] = array
        if self._times is not None:
            self._times.append((f"{step.name}: Python", time.perf_counter() - start))
        return True

    def _array(self, place: BufferSlice) -> ndarray:
        """The array of a buffer slice in this run."""
        shape, strides, dtype = lies = place.lies
        buffer = place.buffer
        if not lies.size:
            return np.empty(shape, dtype)
        if buffer.kind == TEMPORARY:
            start = self._base - pointer(self._memory) + buffer.offset + place.offset
            return np.ndarray(shape, dtype, self._memory, start, strides)
        at = self._number[id(buffer)]
        whole = self._given.get(at)
        if whole is not None and not place.offset:
            if (whole.shape, whole.strides, whole.dtype) == lies:
                return whole
        low, high = lies.bounds()
        first = int(self._bases[at]) + place.offset - low
        memory: Any = (ctypes.c_char * (low + high)).from_address(first)
        return np.ndarray(shape, dtype, memory, low, strides)

    # --- looking into it ---

    @property
    def is_native(self) -> bool:
        """Whether no work is done by Python."""
        return not self._python_calls

    def explain(self) -> list[str]:
        """A report on the program, line by line: its size, what was fused, what runs in Python and
        why, how memory is shared; and the slowest calls, if a run was timed.
        """
        calls = [s for s in (*self.steps, *self.writes) if isinstance(s, CallSequence)]
        count = sum(len(s.calls) for s in calls)
        counts = f"{count} native calls in {len(calls)} segments"
        rest = f"{len(self._shapes)} results, {len(self.leaves)} leaves"
        notes = [
            f"{n} times: {text}" if n > 1 else text for text, n in Counter(self._notes).items()
        ]
        lines = [f"{counts}, an arena of {self.arena_bytes} bytes, {rest}", *notes]
        passing = [b for b in self._kept[1] if b.kind == TEMPORARY]
        over, size = sum(b.over is not None for b in passing), sum(b.size for b in passing)
        lines.append(
            f"{len(passing)} values of {size} bytes pass through the arena, "
            f"{over} of them written over one of their inputs"
        )
        return [*lines, *self._longest()]

    def _longest(self) -> list[str]:
        """The slowest calls of the last timed run."""
        if not self._measured:
            return []
        total = sum(seconds for _, seconds in self._measured)
        times: dict[str, list[float]] = {}
        for title, seconds in self._measured:
            times.setdefault(title, []).append(seconds)
        longest = sorted(times.items(), key=lambda item: -sum(item[1]))[:LONGEST]
        return [
            f"{1e6 * sum(each):.0f} us ({100 * sum(each) / max(total, 1e-9):.0f}%) in "
            f"{len(each)} calls: {title}"
            for title, each in longest
        ]

    def kernels(self) -> list[str]:
        """The calls in order: the work that each is a part of, and its name."""
        found: list[str] = []
        for step in (*self.steps, *self.writes):
            if isinstance(step, CallSequence):
                found += map(_title, step.calls)
            else:
                found.append(f"{step.name}: Python")
        return found

    def timed(self, arrays: Sequence[Any], numbers: Any = ()) -> list[tuple[str, float]]:
        """A run, with the seconds that each call takes. Its writes take effect."""
        runs: list[list[tuple[str, float]]] = []
        self.watch(runs)
        try:
            self.run(arrays, numbers)
        finally:
            self.watch(None)
        return runs[-1]

    def watch(self, runs: list[list[tuple[str, float]]] | None) -> None:
        """Time the calls of each run from now on, and append the times to a list; None ends it."""
        self._watched = runs


def _plain(lies: Geometry) -> bool:
    """Whether NumPy's default layout has these strides."""
    return not lies.size or empty(lies.shape, np.uint8).strides == tuple(
        s // lies.dtype.itemsize for s in lies.strides
    )


def _shared(array: ndarray, args: list[Any]) -> bool:
    """Whether Python results share memory of their arguments, which may be reused soon."""
    return any(isinstance(a, ndarray) and np.may_share_memory(array, a) for a in args)
