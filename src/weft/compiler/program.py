"""A list of graph records as one native call.

``lower`` expands records into work (``expand``), rewrites it (``passes``), and runs each piece of
work once, watched, on example values: what is left is a list of native calls
(``weft.native.contract``), whose results and scratch lie in one arena. Work that no kernel does is
done by Python between two stretches of native calls.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.compiler import arena
from weft.compiler.expand import Expansion
from weft.compiler.ir import CannotLower, FunctionWork, Node, Number, Value
from weft.compiler.passes import optimized
from weft.core import quiet, selection
from weft.graph.spec import Ref, Spec
from weft.native import contract, threads
from weft.native.codegen.jit import pointer
from weft.native.contract import Address, NativeCall, Unplannable
from weft.native.memory import buffers

__all__ = ["CannotLower", "Program", "lower"]

ndarray = np.ndarray
LEAF, TEMPORARY, RESULT, FOREIGN, NUMBER = "leaf", "temporary", "result", "foreign", "number"


def lower(
    specs: Sequence[Spec],
    leaves: Mapping[int, ndarray | float | int],
    wanted: Sequence[Ref],
    writes: Mapping[int, Ref] = {},  # noqa: B006 - never changed
    numbers: Collection[tuple[int, int]] = (),
) -> Program:
    """A program that computes values of a graph and writes some of them over leaves.

    ``leaves`` are examples of all leaves: their shapes, dtypes and strides are the program's.
    ``wanted`` are the values that each run gives, in new memory; ``writes`` says which leaf takes
    on which value when all else is done. ``numbers`` are operands, by record and position, that are
    given anew for each run.
    """
    numbers = list(numbers)
    expansion = Expansion(specs, leaves, numbers)
    nodes, ends = optimized(
        expansion.nodes, [expansion.read(r) for r in (*wanted, *writes.values())]
    )
    building = _Building(expansion, leaves, len(numbers))
    for node in nodes:
        building.run(node)
    count = len(wanted)
    for value in ends[:count]:
        building.want(value)
    for leaf, value in zip(writes, ends[count:], strict=True):
        building.write(leaf, value)
    return building.finished()


@dataclass(eq=False)
class Buffer:
    """A piece of memory: a leaf's, the arena's, a result's own, or what Python made."""

    kind: str
    size: int
    key: Any = None  # the leaf, or the number, or the position of a result
    first: int = 0
    last: int = 0
    offset: int = 0  # in the arena


@dataclass
class Place:
    """Where a value lies, and its example."""

    buffer: Buffer
    offset: int
    array: ndarray

    @property
    def kind(self) -> tuple[Any, ...]:
        a = self.array
        return a.shape, a.strides, a.dtype


@dataclass
class Calls:
    """Native calls one after another, whose words are numbers or places in buffers."""

    calls: list[tuple[str, int, list[int | tuple[Buffer, int]]]] = field(default_factory=list)
    origins: list[str] = field(default_factory=list)


@dataclass
class PythonCall:
    """Work that Python does between native calls."""

    name: str
    function: Any
    args: list[Any]  # places, numbers' indices as ``Number``, and constants
    results: list[Buffer]
    kinds: list[tuple[Any, ...]]
    reason: str
    generator: Any = None


class _Building:
    """A program while it is put together."""

    def __init__(self, expansion: Expansion, leaves: Mapping[int, Any], numbers: int) -> None:
        self.expansion, self.count = expansion, numbers
        self.places: dict[Value, Place] = {}
        self.steps: list[Calls | PythonCall] = []
        self.writes: list[Calls | PythonCall] = []
        self.buffers: list[Buffer] = []
        self.flags: list[tuple[Buffer, int, int]] = []  # where, and after which step
        self.results: list[Place] = []
        self.keep: list[Any] = []
        self.leaves: dict[int, Buffer] = {}
        self.slots: dict[Any, Buffer] = {}
        self.notes: list[str] = []
        self.clock = 0
        self.examples = _apart({k: v for k, v in leaves.items() if isinstance(v, ndarray)})
        self.scalars = {k: v for k, v in leaves.items() if not isinstance(v, ndarray)}

    # --- places ---

    def buffer(self, kind: str, size: int, key: Any = None) -> Buffer:
        made = Buffer(kind, size, key, self.clock, self.clock)
        self.buffers.append(made)
        return made

    def place(self, value: Value) -> Place:
        found = self.places.get(value)
        if found is None:
            found = self.places[value] = self._source(value)
        found.buffer.last = self.clock
        return found

    def _source(self, value: Value) -> Place:
        """The place of a value that no node makes."""
        if isinstance(value, Number):
            key = value.index, value.dtype
            if key not in self.slots:
                self.slots[key] = self.buffer(NUMBER, 8, key)
            return Place(self.slots[key], 0, np.ones((), value.dtype))
        if value.constant is not None:
            self.keep.append(value.constant)
            made = self.buffer(FOREIGN, value.constant.nbytes, pointer(value.constant))
            return Place(made, 0, value.constant)
        if value.leaf is not None:
            made = self.leaf(value.leaf)
            example = self.examples.get(value.leaf)
            if example is None:
                example = np.array(self.scalars[value.leaf])
            return Place(made, 0, example)
        raise CannotLower("a value that nothing makes")

    def leaf(self, id: int) -> Buffer:
        if id not in self.leaves:
            self.leaves[id] = self.buffer(LEAF, 0, id)
        return self.leaves[id]

    # --- work ---

    def run(self, node: Node) -> None:
        """Plan a node on its examples, or have Python run it."""
        self.clock += 1
        inputs = list(dict.fromkeys(node.inputs()))
        places = [self.place(v) for v in inputs]
        if any(n == 0 for v in node.results for n in v.shape) and all(
            0 in v.shape for v in node.results
        ):
            self._empty(node, places, inputs)
            return
        try:
            self._plan(node, inputs, places)
        except (Unplannable, NotImplementedError) as error:
            self._fall_back(node, inputs, str(error))

    def _empty(self, node: Node, places: list[Place], inputs: list[Value]) -> None:
        """Results without elements are just there."""
        token = quiet.enter()
        try:
            found = node.work.python(*self._filled(node, inputs, [p.array for p in places]))
        finally:
            quiet.leave(token)
        for value, array in zip(node.results, found, strict=True):
            array = np.asarray(array)
            self._fits(node, value, array)
            self.places[value] = Place(self.buffer(TEMPORARY, 1), 0, array)

    def _filled(self, node: Node, inputs: list[Value], arrays: Sequence[ndarray]) -> list[Any]:
        by = dict(zip(map(id, inputs), arrays, strict=True))
        return [by[id(x)] if isinstance(x, Value) else x for x in node.args]

    def _plan(self, node: Node, inputs: list[Value], places: list[Place]) -> None:
        found: list[Any] = []

        def kernel(*arrays: ndarray) -> Any:
            found[:] = map(np.asanyarray, node.work.native(*self._filled(node, inputs, arrays)))
            return tuple(a for a in found if a.size)

        token = quiet.enter()
        try:
            job = contract.plan(kernel, tuple(p.array for p in places))
        except (TypeError, ValueError, IndexError, RuntimeError, AttributeError) as error:
            raise Unplannable(f"{type(error).__name__}: {error}") from None
        finally:
            quiet.leave(token)
        self._check_kinds(node, found)
        made = [self.buffer(TEMPORARY, size) for size in job.results]
        scratch = self.buffer(TEMPORARY, job.scratch) if job.scratch else None

        def at(place: Address) -> tuple[Buffer, int]:
            if place.buffer < job.inputs:
                home = places[place.buffer]
                return home.buffer, home.offset + place.offset
            k = place.buffer - job.inputs
            if k < len(made):
                return made[k], place.offset
            assert scratch is not None
            return scratch, place.offset

        self._add(job.calls, at, node.work.name)
        self.keep += job.keep
        for flag in job.flags:
            self.flags.append((*at(flag), len(self.steps)))
        views = iter(job.outputs)
        for value, array in zip(node.results, found, strict=True):
            if array.size:
                self.places[value] = Place(*at(next(views).place), array)
            else:
                self.places[value] = Place(self.buffer(TEMPORARY, 1), 0, array)

    def _add(self, calls: list[NativeCall], at: Any, origin: str, steps: Any = None) -> None:
        steps = self.steps if steps is None else steps
        if not calls:
            return
        if not steps or not isinstance(steps[-1], Calls):
            steps.append(Calls())
        block: Calls = steps[-1]
        for call in calls:
            words = [at(w) if isinstance(w, Address) else w for w in call.words]
            for w in words:
                if isinstance(w, tuple):
                    w[0].last = self.clock
            block.calls.append((call.name, call.address, words))
            block.origins.append(origin)

    def _check_kinds(self, node: Node, found: list[Any]) -> None:
        if len(found) != len(node.results):
            raise Unplannable("another number of results than was recorded")
        for value, array in zip(node.results, found, strict=True):
            if array.shape != value.shape or array.dtype != value.dtype:
                raise Unplannable(
                    f"a kernel gives {array.dtype}{list(array.shape)} in the place of {value}"
                )

    def _fits(self, node: Node, value: Value, array: ndarray) -> None:
        if array.shape != value.shape or array.dtype != value.dtype:
            raise CannotLower(
                f"{node.work.name} gives {array.dtype}{list(array.shape)}, not {value}"
            )

    def _fall_back(self, node: Node, inputs: list[Value], reason: str) -> None:
        places = {id(v): self.places[v] for v in inputs}
        arrays = [places[id(v)].array for v in inputs]
        generator = getattr(node.work, "generator", None)
        state = None if generator is None else generator.get_state()
        token = quiet.enter()
        try:
            out = node.work.python(*self._filled(node, inputs, arrays))
        finally:
            quiet.leave(token)
            if generator is not None:
                generator.set_state(state)
        found = [np.asarray(a) for a in out]
        args = [
            (x if isinstance(x, Number) else places[id(x)]) if isinstance(x, Value) else x
            for x in node.args
        ]
        results = []
        for value, array in zip(node.results, found, strict=True):
            self._fits(node, value, array)
            made = self.buffer(FOREIGN, array.nbytes)
            results.append(made)
            self.places[value] = Place(made, 0, _apart_from(array, arrays))
        kinds = [(a.shape, a.strides, a.dtype) for a in found]
        self.steps.append(
            PythonCall(node.work.name, node.work.python, args, results, kinds, reason, generator)
        )
        where = node.spec.position() if isinstance(node.spec, Spec) else None
        self.notes.append(f"{node.work.name} is run by Python: {reason}" + (
            f" (from {where})" if where else ""))  # fmt: skip

    # --- ends ---

    def want(self, value: Any) -> None:
        """Give a value to the caller, in memory that is its own."""
        if not isinstance(value, Value):
            raise CannotLower("a wanted value that is not an array")
        self.clock += 1
        place = self.place(value)
        array = place.array
        taken = any(p.buffer is place.buffer for p in self.results)
        whole = place.offset == 0 and place.buffer.size == array.nbytes
        if place.buffer.kind != TEMPORARY or taken or not whole or not array.size:
            place = self._copy(place)
        place.buffer.kind, place.buffer.key = RESULT, len(self.results)
        self.results.append(place)

    def _copy(self, place: Place) -> Place:
        """The same value in new memory, laid out as it was where that leaves no gaps."""
        array = place.array
        made = np.empty_like(array)  # keeps the order of dimensions
        target = Place(self.buffer(TEMPORARY, made.nbytes), 0, made)
        self._move(target, place, self.steps)
        return target

    def _move(self, to: Place, source: Place, steps: list[Any]) -> None:
        if not to.array.size:
            return
        a, b = to.array, source.array
        # Places are told from each other by address: what lies inside the target is another's.
        example = b if not np.may_share_memory(a, b) else b.copy()
        if example.strides != b.strides:
            example = _like(b)

        def kernel(to: ndarray, source: ndarray) -> Any:
            buffers.move(to, source)
            return (to,)

        try:
            job = contract.plan(kernel, (_like(a) if to.buffer.kind == LEAF else a, example))
        except Unplannable as error:
            function = _copied
            steps.append(PythonCall("copy", function, [to, source], [], [], str(error)))
            to.buffer.last = source.buffer.last = self.clock
            return
        pair = to, source
        at = lambda w: (pair[w.buffer].buffer, pair[w.buffer].offset + w.offset)
        self._add(job.calls, at, "copy", steps)
        self.keep += job.keep

    def write(self, leaf: int, value: Any) -> None:
        """Put a value over a leaf's memory, when all else is done."""
        if not isinstance(value, Value):
            raise CannotLower("a written value that is not an array")
        if value.leaf == leaf:
            return
        if leaf not in self.examples:
            raise CannotLower("a leaf that has no memory is written")
        self.clock += 1
        place = self.place(value)
        if place.buffer.kind == LEAF:
            place = self._copy(place)  # that leaf may be written too
        target = Place(self.leaf(leaf), 0, self.examples[leaf])
        if (target.array.shape, target.array.dtype) != (place.array.shape, place.array.dtype):
            raise CannotLower("a leaf is written with a value of another shape or dtype")
        self._move(target, place, self.writes)

    def finished(self) -> Program:
        self.clock += 1
        for buffer, *_ in self.flags:
            buffer.last = self.clock
        end = self.clock
        written = {id(w[0]) for block in self.writes for w in _places_of(block)}
        for buffer in self.buffers:
            if id(buffer) in written:
                buffer.last = end
        inside = [b for b in self.buffers if b.kind == TEMPORARY]
        offsets, size = arena.plan([arena.Lifetime(b.size, b.first, b.last) for b in inside])
        for buffer, offset in zip(inside, offsets, strict=True):
            buffer.offset = offset
        return Program(self, size)


def _places_of(block: Calls | PythonCall) -> list[tuple[Buffer, int]]:
    if isinstance(block, PythonCall):
        return [(x.buffer, 0) for x in block.args if isinstance(x, Place)]
    return [w for _, _, words in block.calls for w in words if isinstance(w, tuple)]


def _copied(to: ndarray, source: ndarray) -> tuple[()]:
    np.copyto(to, source)
    return ()


def _like(x: ndarray) -> ndarray:
    """Other memory with the same shape and strides."""
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = np.zeros(high - low, np.uint8)
    made = np.ndarray(x.shape, x.dtype, memory, pointer(x) - low, x.strides)
    return made


def _copy_of(x: ndarray) -> ndarray:
    made = _like(x)
    if x.size:
        made[...] = x
    return made


def _apart(arrays: dict[int, ndarray]) -> dict[int, ndarray]:
    """Examples of leaves, of which no two share memory: a plan tells them by address."""
    found: dict[int, ndarray] = {}
    spans: list[tuple[int, int]] = []
    for id, a in sorted(arrays.items(), key=lambda item: np.lib.array_utils.byte_bounds(item[1])):
        low, high = np.lib.array_utils.byte_bounds(a)
        if spans and low < max(h for _, h in spans[-1:]) and a.size:
            a = _copy_of(a)
        else:
            spans.append((low, max(high, spans[-1][1] if spans else high)))
        found[id] = a
    return found


def _apart_from(array: ndarray, others: list[ndarray]) -> ndarray:
    if any(np.may_share_memory(array, a) for a in others):
        return _copy_of(array)
    return array


class Stretch:
    """Native calls of a program, as the driver takes them."""

    def __init__(self, block: Calls, number: dict[int, int]) -> None:
        words: list[int] = []
        moves: list[int] = []
        table: list[int] = []
        fixed: list[tuple[int, int]] = []  # words that are places in the arena
        for _, address, given in block.calls:
            table += [address, len(words)]
            for word in given:
                if isinstance(word, tuple):
                    buffer, offset = word
                    if buffer.kind == TEMPORARY:
                        fixed.append((len(words), buffer.offset + offset))
                    else:
                        moves += [len(words), number[id(buffer)], offset]
                    word = 0
                words.append(word)
        self.names = [name for name, _, _ in block.calls]
        self.origins = block.origins
        self.words = np.array(words, np.uint64).view(np.int64)
        self.moves = np.array(moves, np.int64)
        self.table = np.array(table, np.uint64).view(np.int64)
        self.fixed = np.array(fixed, np.int64).reshape(-1, 2)

    def ready(self, base: int) -> ndarray:
        """The words for an arena at an address."""
        words = self.words.copy()
        words[self.fixed[:, 0]] = self.fixed[:, 1] + base
        return words


class _Block:
    """The memory of one run: an arena, the words of calls, and the addresses of buffers."""

    def __init__(self, program: Program) -> None:
        self.memory = np.empty(program.arena_bytes + arena.ALIGN, np.uint8)
        self.base = -(-pointer(self.memory) // arena.ALIGN) * arena.ALIGN
        self.words = [
            s.ready(self.base) if isinstance(s, Stretch) else None
            for s in (*program.steps, *program.writes)
        ]
        self.bases = np.zeros(max(program.outside, 1), np.uint64)
        self.held: list[Any] = []
        self.slots = np.zeros(max(len(program.slots), 1), np.float64)


class Program:
    """What ``lower`` makes: see there."""

    def __init__(self, built: _Building, arena_bytes: int) -> None:
        self.arena_bytes = arena_bytes
        outside = [b for b in built.buffers if b.kind != TEMPORARY]
        self._number = {id(b): k for k, b in enumerate(outside)}
        self.outside = len(outside)
        self.leaves: tuple[int, ...] = tuple(built.leaves)
        self._leaf_at = [self._number[id(b)] for b in built.leaves.values()]
        self._fixed = [
            (self._number[id(b)], b.key) for b in outside if b.kind == FOREIGN and b.key is not None
        ]
        self.slots = [(k, self._number[id(b)], *b.key) for k, b in enumerate(built.slots.values())]
        self.steps = [self._made(s) for s in built.steps]
        self.writes = [self._made(s) for s in built.writes]
        self.results = [
            (self._number[id(p.buffer)], *p.kind, _dense(p.array)) for p in built.results
        ]
        self.flags = built.flags
        self.notes = built.notes
        self.numbers = built.count
        self._keep = built.keep, built.buffers
        self._blocks: list[_Block] = []
        self._lock = threading.Lock()
        self._generators = [s.generator for s in self.steps if isinstance(s, PythonCall)]
        self._generators = [g for g in self._generators if g is not None]
        self._examples = {
            id: (v.shape, v.strides, v.dtype) for id, v in built.examples.items()
        }  # fmt: skip

    def _made(self, step: Calls | PythonCall) -> Stretch | PythonCall:
        return Stretch(step, self._number) if isinstance(step, Calls) else step

    # --- running ---

    def run(self, arrays: Sequence[Any], numbers: Sequence[float] = ()) -> list[ndarray] | None:
        """The wanted values, from leaves in the order of ``leaves``; None if they can't be used."""
        selection.ready()
        try:
            block = self._blocks.pop()  # one step for the interpreter: never shared by threads
        except IndexError:
            block = _Block(self)
        states = [(g, g.get_state()) for g in self._generators]
        done = False
        try:
            found = self._run(block, arrays, numbers)
            done = found is not None
            return found
        finally:
            if not done:
                for generator, state in states:
                    generator.set_state(state)
            block.held.clear()
            self._blocks.append(block)

    def _run(self, block: _Block, arrays: Sequence[Any], numbers: Any) -> list[ndarray] | None:
        bases = block.bases
        held = block.held
        for at, array in zip(self._leaf_at, arrays, strict=True):
            if array.__class__ is not ndarray:
                array = np.asarray(array)
            held.append(array)
            bases[at] = pointer(array)
        given: dict[int, ndarray] = dict(zip(self._leaf_at, held, strict=True))
        for at, address in self._fixed:
            bases[at] = address
        for k, at, index, dtype in self.slots:
            slot = block.slots[k : k + 1].view(dtype)[:1]
            slot[0] = numbers[index]
            bases[at] = pointer(slot)
        results = []
        for at, shape, strides, dtype, dense in self.results:
            made = np.ndarray(shape, dtype, strides=strides if dense else None)
            bases[at] = pointer(made)
            results.append(made)
            given[at] = made
        if not self._steps(block, given, numbers, self.steps, 0):
            return None
        if self.flags and self._flagged(block, len(self.steps)):
            return None
        self._steps(block, given, numbers, self.writes, len(self.steps))
        return results

    def _steps(self, block: _Block, given: Any, numbers: Any, steps: Any, first: int) -> bool:
        drive = contract._drive()
        for k, step in enumerate(steps, first):
            if isinstance(step, Stretch):
                drive(
                    *(pointer(step.moves), len(step.moves) // 3, pointer(block.bases)),
                    *(pointer(block.words[k]), pointer(step.table), len(step.names)),
                )
            elif self._flagged(block, k) or not self._python(block, given, numbers, step):
                return False
        return True

    def _python(self, block: _Block, given: Any, numbers: Any, step: PythonCall) -> bool:
        args = [
            self._array(block, given, x) if isinstance(x, Place)
            else numbers[x.index] if isinstance(x, Number) else x
            for x in step.args
        ]  # fmt: skip
        token = quiet.enter()
        try:
            out = [np.asarray(x) for x in step.function(*args)]
        finally:
            quiet.leave(token)
        for buffer, kind, array in zip(step.results, step.kinds, out, strict=True):
            if (array.shape, array.dtype) != (kind[0], kind[2]):
                return False  # its size depends on values
            if array.strides != kind[1] or _shared(array, args):
                made = np.ndarray(kind[0], kind[2], np.empty(_span(*kind), np.uint8), 0, kind[1])
                made[...] = array
                array = made
            at = self._number[id(buffer)]
            block.held.append(array)
            block.bases[at] = pointer(array)
            given[at] = array
        return True

    def _array(self, block: _Block, given: Any, place: Place) -> ndarray:
        """The array at a place of this run."""
        shape, strides, dtype = place.kind
        buffer = place.buffer
        if buffer.kind == TEMPORARY:
            start = block.base - pointer(block.memory) + buffer.offset + place.offset
            return np.ndarray(shape, dtype, block.memory, start, strides)
        whole = given.get(self._number[id(buffer)])
        if whole is not None and whole.strides == strides and whole.shape == shape:
            if whole.dtype == dtype and not place.offset:
                return whole
        address = int(block.bases[self._number[id(buffer)]]) + place.offset
        if buffer.kind == NUMBER or not place.array.size:
            return place.array
        low, high = np.lib.array_utils.byte_bounds(place.array)
        before = pointer(place.array) - low
        memory = (ctypes.c_char * (high - low)).from_address(address - before)
        return np.ndarray(shape, dtype, memory, before, strides)

    def _flagged(self, block: _Block, steps: int) -> bool:
        """Whether one of the first steps has said that its results can't be used."""
        read = ctypes.c_int64.from_address
        for buffer, offset, step in self.flags:
            if step > steps:
                continue
            if buffer.kind == TEMPORARY:
                address = block.base + buffer.offset + offset
            else:
                address = int(block.bases[self._number[id(buffer)]]) + offset
            if read(address).value:
                return True
        return False

    # --- looking into it ---

    def explain(self) -> list[str]:
        """What the program does, line by line."""
        calls = [s for s in (*self.steps, *self.writes) if isinstance(s, Stretch)]
        count = sum(len(s.names) for s in calls)
        lines = [
            f"{count} native calls in {len(calls)} stretches, arena of {self.arena_bytes} bytes, "
            f"{len(self.results)} results, {len(self.leaves)} leaves"
        ]
        return lines + self.notes

    def kernels(self) -> list[str]:
        """The names of the native calls in order, each with what it is a part of."""
        found = []
        for step in (*self.steps, *self.writes):
            if isinstance(step, Stretch):
                found += [f"{o}: {n}" for n, o in zip(step.names, step.origins, strict=True)]
            else:
                found.append(f"{step.name}: Python")
        return found

    def timed(
        self, arrays: Sequence[Any], numbers: Sequence[float] = ()
    ) -> list[tuple[str, float]]:
        """The seconds that each call takes, by name, in one run. What is written is written."""
        raise NotImplementedError


def _span(shape: Any, strides: Any, dtype: Any) -> int:
    return dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _shared(array: ndarray, args: list[Any]) -> bool:
    """Whether what Python gives is memory of its arguments, which may be another's soon."""
    return any(isinstance(a, ndarray) and np.may_share_memory(array, a) for a in args)


def _dense(x: ndarray) -> bool:
    return bool(x.size)
