"""Planning work: each node becomes native calls on operands in memory, or a Python call."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weft.compiler import arena, driver
from weft.compiler.expand import Expansion
from weft.compiler.ir import CannotLower, Number, Value, WorkNode
from weft.compiler.row_fused import RowFusedWork
from weft.compiler.updates import Update
from weft.core import dtype as dt
from weft.core import meta, planning, quiet
from weft.native import onednn, threads
from weft.native.codegen.jit import Symbol, pointer
from weft.native.contract import Address, Job
from weft.native.conv.convolutions import winograd_allowed
from weft.native.loops import indexing
from weft.native.memory import buffers
from weft.native.memory.buffers import Unplannable

ndarray = np.ndarray
LEAF, TEMPORARY, RESULT, FOREIGN, NUMBER, STATUS = (
    *("leaf", "temporary", "result", "foreign", "number", "status"),
)
NEVER = 1 << 60


class Geometry(NamedTuple):
    """The layout of an array."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def bounds(self) -> tuple[int, int]:
        """The bytes it occupies before and after the address of its first element."""
        low, high = 0, self.dtype.itemsize
        for n, s in zip(self.shape, self.strides, strict=True):
            if s < 0:
                low -= (n - 1) * s
            else:
                high += (n - 1) * s
        return low, high

    def model(self) -> ndarray:
        """An array of this layout; its elements are never read."""
        if not self.size:
            return np.empty(self.shape, self.dtype)
        one = np.zeros(1, self.dtype)
        return np.lib.stride_tricks.as_strided(one, self.shape, self.strides, writeable=False)


def geometry(a: Any) -> Geometry:
    """The layout of an array."""
    return Geometry(a.shape, a.strides, np.dtype(a.dtype))


@dataclass(eq=False)
class BufferAllocation:
    """A piece of memory: of a leaf, of the arena, of a result, or allocated by Python code."""

    kind: str
    size: int
    key: Any = None  # a constant's address, or the index of a number
    first: int = 0
    last: int = 0
    offset: int = 0  # in the arena
    over: BufferAllocation | None = None  # the one whose memory this reuses

    def root(self) -> BufferAllocation:
        """The buffer that owns this memory."""
        found = self
        while found.over is not None:
            found = found.over
        return found


class BufferSlice(NamedTuple):
    """The memory of a value: a buffer and an offset in bytes."""

    buffer: BufferAllocation
    offset: int
    lies: Geometry


Word = int | tuple[BufferAllocation, int]


class ProgramCall(NamedTuple):
    """One native call: its name, its origin, and its words, which are numbers or buffer slices."""

    name: str
    address: int | Symbol
    words: list[Word]
    origin: Any  # the name of the work, or an update whose counters it writes


@dataclass
class PythonCall:
    """Work that Python does between native calls."""

    name: str
    function: Callable
    args: list[Any]  # buffer slices, numbers, and constants
    results: list[BufferSlice]
    reason: str
    generator: Any = None


class Planned(NamedTuple):
    """The job of a node, and the layouts of its results."""

    job: Job
    results: list[Geometry]


# Jobs by work and layouts of arrays: work that repeats in a program or between programs is planned
# once.
JOBS: dict[Any, Planned] = {}
MOST_JOBS = 4096


def plan(node: WorkNode, inputs: list[Value], lies: list[Geometry]) -> Planned:
    """Plan the work of a node on arrays of these layouts."""
    if isinstance(node.work, RowFusedWork):
        return _planned_row(node.work, inputs, lies)
    found: list[Any] = []

    def work(*arrays: Any) -> Any:
        by = dict(zip(map(id, inputs), arrays, strict=True))
        given = [by[id(x)] if isinstance(x, Value) else x for x in node.args]
        found[:] = [planning.bare(np.asanyarray(a)) for a in node.work.native(*given)]
        return tuple(a for a in found if a.size)

    token = quiet.enter()
    try:
        arrays = [planning.array_of_layout(*x) for x in lies]
        job = planning.job_on(arrays, work, arrays)
    finally:
        quiet.leave(token)
    _check_kinds(node, found)
    return Planned(job, [geometry(a) for a in found])


def _planned_row(work: RowFusedWork, inputs: list[Value], lies: list[Geometry]) -> Planned:
    """The job of a row program, with the elementwise work before it inside its loops."""
    places = dict(zip(inputs, lies, strict=True))
    value = work.value
    strides = tuple(s * value.dtype.itemsize for s in work.strides(places))
    places[value] = Geometry(value.shape, strides, value.dtype)
    given = list(dict.fromkeys(work.row.inputs()))
    alone = planned(work.row, given, [places[v] for v in given])
    return alone._replace(job=work.spliced(alone.job, given, inputs))


def settings() -> tuple[Any, ...]:
    """The settings that a plan depends on besides its arrays."""
    return threads.count(), onednn.available(), winograd_allowed(), dt.get_default_dtype()


def planned(
    node: WorkNode,
    inputs: list[Value],
    lies: list[Geometry],
    own: dict[Any, Planned] | None = None,
    under: tuple[Any, ...] | None = None,
) -> Planned:
    """The job of a node: an earlier one if the same work was planned for these layouts.

    ``own`` are the jobs of one program, ``under`` the current settings.
    """
    key = node.key({v: (k, lies[k]) for k, v in enumerate(inputs)})
    if key is None:
        return plan(node, inputs, lies)
    key = key, under or settings()
    found = JOBS.get(key) or (own.get(key) if own else None)
    if found is None:
        found = plan(node, inputs, lies)
        if own is not None:
            own[key] = found
        # oneDNN's memory objects belong to a job, and so to one program, whose runs are serialised.
        if all(call.name != "execute" for call in found.job.calls):
            if len(JOBS) >= MOST_JOBS:
                JOBS.clear()
            JOBS[key] = found
    return found


class NotInPlace(Exception):
    """A step whose parameters are read, or are read by work that may fail, after the update."""


@dataclass
class Building:
    """A program under construction.

    ``steps`` change nothing that the caller can see; ``writes`` run when all of them have
    succeeded, and can't fail: updates of parameters, computations that depend on these, and copies
    to leaves. ``late`` says which of the two is being added to. Rows of leaves whose old values are
    not read are written by ``steps``, and ``undo`` restores the old ones.
    """

    expansion: Expansion
    leaves: Mapping[int, Any]
    places: dict[Value, BufferSlice] = field(default_factory=dict)
    steps: list[ProgramCall | PythonCall | Update] = field(default_factory=list)
    writes: list[ProgramCall | PythonCall | Update] = field(default_factory=list)
    undo: list[ProgramCall] = field(default_factory=list)  # if a run fails after its steps
    buffers: list[BufferAllocation] = field(default_factory=list)
    results: list[BufferSlice] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    used: dict[int, BufferAllocation] = field(default_factory=dict)
    slots: dict[Any, BufferAllocation] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    status: BufferAllocation | None = None
    clock: int = 0
    late: bool = False
    checked: int = NEVER  # once nothing can fail any more
    reuses: list[tuple[BufferAllocation, BufferAllocation, int]] = field(default_factory=list)
    saved: dict[int, BufferSlice] = field(default_factory=dict)
    updated: set[int] = field(default_factory=set)  # leaves that have new values by now
    fresh: set[Value] = field(default_factory=set)  # values that may be read from there
    jobs: dict[Any, Planned] = field(default_factory=dict)
    settings: tuple[Any, ...] = field(default_factory=settings)

    # --- places ---

    def buffer(self, kind: str, size: int, key: Any = None) -> BufferAllocation:
        """A new piece of memory, live from now on."""
        made = BufferAllocation(kind, size, key, self.clock, self.clock)
        self.buffers.append(made)
        return made

    def place(self, value: Value) -> BufferSlice:
        """The memory of a value that is read now."""
        found = self.places.get(value)
        if found is None:
            found = self.places[value] = self._source(value)
        found.buffer.last = max(found.buffer.last, self.clock)
        return found

    def _source(self, value: Value) -> BufferSlice:
        """The memory of a value that no node computes."""
        if isinstance(value, Number):
            key = value.index, value.dtype
            if key not in self.slots:
                self.slots[key] = self.buffer(NUMBER, 8, key)
            return BufferSlice(self.slots[key], 0, Geometry((), (), value.dtype))
        if value.constant is not None:
            self.keep.append(value.constant)
            made = self.buffer(FOREIGN, value.constant.nbytes, pointer(value.constant))
            return BufferSlice(made, 0, geometry(value.constant))
        if value.leaf is not None:
            return BufferSlice(
                self.leaf(value.leaf), 0, geometry(np.asarray(self.leaves[value.leaf]))
            )
        raise CannotLower("a value that nothing computes")

    def leaf(self, id: int) -> BufferAllocation:
        if id not in self.used:
            self.used[id] = self.buffer(LEAF, 0, id)
        return self.used[id]

    # --- work ---

    def run(self, node: WorkNode) -> None:
        """Plan a node, or run it in Python."""
        self.clock += 1
        inputs = list(dict.fromkeys(node.inputs()))
        places = [self.place(v) for v in inputs]
        if self.late:
            self._check_late(node, places, inputs)
        if all(0 in v.shape for v in node.results):
            for value in node.results:  # nothing to do
                lies = geometry(np.empty(value.shape, value.dtype))
                self.places[value] = BufferSlice(self.buffer(TEMPORARY, 1), 0, lies)
            return
        try:
            self._plan(node, inputs, places)
        except (Unplannable, NotImplementedError) as error:
            parts = node.work.parts()
            if parts:
                for part in parts:
                    self.run(part)
                return
            if self.late:
                raise NotInPlace from error
            self._fall_back(node, inputs, str(error))

    def _check_late(self, node: WorkNode, places: list[BufferSlice], inputs: list[Value]) -> None:
        """Refuse nodes that read a parameter's value before its update."""
        for value, place in zip(inputs, places, strict=True):
            if place.buffer.kind == LEAF and place.buffer.key in self.updated:
                if value not in self.fresh:
                    raise NotInPlace
        self.fresh.update(node.results)

    def update(self, nodes: list[WorkNode]) -> None:
        """Optimizer steps in one call, in place; everything after them is late."""
        self.clock += 1
        places = []
        for node in nodes:
            mine = [self.place(x) for x in node.args]
            if mine[1].lies != mine[0].lies:
                raise NotInPlace  # a gradient of a different layout
            mine[1].buffer.last = self.clock
            places.append(mine)
            for value, place in zip(node.results, (mine[0], *mine[2:]), strict=True):
                self.places[value] = place
                self.updated.add(place.buffer.key)
                self.fresh.add(value)
        self.late, self.checked = True, min(self.checked, self.clock)
        update = Update(nodes, places)
        if not update.plan(self.leaves):
            raise NotInPlace
        self.writes.append(update)
        for address, words in update.counts():
            self.writes.append(ProgramCall("count", address, words, update))
        self.notes.append(f"{update.name} in one call, in place")

    def exchange_rows(self, node: WorkNode) -> None:
        """Write rows to a leaf, which is then the node's result; keep the old rows."""
        self.clock += 1
        value, rows, index = (self.place(x) for x in node.args)
        dim = node.work.attrs["dim"]  # type: ignore[attr-defined]

        def exchange(*arrays: Any) -> Any:
            return (indexing.exchange_rows(*map(planning.bare, arrays), dim=dim),)

        def restore(*arrays: Any) -> Any:
            indexing.restore_rows(*map(planning.bare, arrays), dim=dim)
            return ()

        first = len(self.buffers)
        try:
            job = planning.job(exchange, [p.lies.model() for p in (value, rows, index)])
        except Unplannable:
            self.run(node)
            return
        at = self.take(job, [value, rows, index], node.work.name)
        (view,) = job.outputs
        assert view is not None
        home, offset = at(view.place)
        kept = BufferSlice(home, offset, Geometry(view.shape, view.strides, view.dtype))
        back = planning.job(restore, [p.lies.model() for p in (value, kept, index)])
        undo: list[Any] = []
        self.take(back, [value, kept, index], f"{node.work.name}, undone", undo)
        self.undo = undo + self.undo
        # Values that undoing reads stay alive to the end.
        for buffer in (*self.buffers[first:], index.buffer):
            buffer.last = NEVER
        self.places[node.results[0]] = value
        self.notes.append(f"{node.work.name} in place")

    def check_apart(self, changed: Collection[int]) -> None:
        """Fail if a leaf whose rows are swapped shares memory with another leaf."""
        assert self.status is not None
        words: list[Word] = []
        others = [leaf for leaf in self.used if leaf not in changed]
        for leaf in (*changed, *others):
            low, high = geometry(np.asarray(self.leaves[leaf])).bounds()
            words += [(self.used[leaf], -low), (self.used[leaf], high)]
        head: list[Word] = [(self.status, 0), len(changed), len(self.used)]
        self.steps.append(ProgramCall("apart", driver.apart(), head + words, "index_copy"))

    def _plan(self, node: WorkNode, inputs: list[Value], places: list[BufferSlice]) -> None:
        planned = self._planned(node, inputs, places)
        at = self.take(planned.job, places, node.work.name)
        self._note_aliases(planned.job, places, at)
        if len(node.work.members) > 1:
            self.notes.append(f"{node.work.name} in one loop")
        views = iter(planned.job.outputs)
        for value, lies in zip(node.results, planned.results, strict=True):
            view = next(views) if lies.size else None
            home, offset = (self.buffer(TEMPORARY, 1), 0) if view is None else at(view.place)
            self.places[value] = BufferSlice(home, offset, lies)

    def _planned(self, node: WorkNode, inputs: list[Value], places: list[BufferSlice]) -> Planned:
        return planned(node, inputs, [p.lies for p in places], self.jobs, self.settings)

    def _note_aliases(self, job: Job, places: list[BufferSlice], at: Any) -> None:
        """Record which results may be written over which inputs, if these end here."""
        for output, source in job.aliases:
            view, place = job.outputs[output], places[source]
            if view is None or place.offset:
                continue
            home, offset = at(view.place)
            others = [p for p in places if p.buffer is place.buffer and p is not place]
            same = all(p.offset == place.offset and p.lies == place.lies for p in others)
            if same and not offset and home.size == place.lies.nbytes:
                self.reuses.append((home, place.buffer, self.clock))

    def take(
        self, job: Job, places: list[BufferSlice], origin: str, steps: list[Any] | None = None
    ) -> Any:
        """Add the calls of a job; returns the function that maps its operands to the program's
        memory.
        """
        made = [self.buffer(TEMPORARY, size) for size in job.results]
        if job.scratch:
            made.append(self.buffer(TEMPORARY, job.scratch))

        def at(place: Address) -> tuple[BufferAllocation, int]:
            if place.buffer < job.inputs:
                home = places[place.buffer]
                return home.buffer, home.offset + place.offset
            return made[place.buffer - job.inputs], place.offset

        if self.late and job.flags:
            raise NotInPlace
        if steps is None:
            steps = self.writes if self.late else self.steps
        for call in job.calls:
            words = [at(w) if isinstance(w, Address) else w for w in call.words]
            steps.append(ProgramCall(call.name, call.address, words, origin))
        for flag in job.flags:
            if self.status is None:
                self.status = self.buffer(STATUS, 8)
            words = [at(flag), (self.status, 0)]
            steps.append(ProgramCall("note", driver.note(), words, origin))
        self.keep += job.keep
        return at

    def _fall_back(self, node: WorkNode, inputs: list[Value], reason: str) -> None:
        places = {id(v): self.places[v] for v in inputs}
        args = [
            (x if isinstance(x, Number) else places[id(x)]) if isinstance(x, Value) else x
            for x in node.args
        ]
        results = []
        for value, lies in zip(node.results, _geometries(node, places), strict=True):
            self.places[value] = BufferSlice(self.buffer(FOREIGN, lies.nbytes), 0, lies)
            results.append(self.places[value])
        generator = getattr(node.work, "generator", None)
        work = node.work
        self.steps.append(PythonCall(work.name, work.python, args, results, reason, generator))
        where = node.spec.position()
        at = f" (from {where})" if where else ""
        self.notes.append(f"{node.work.name} runs in Python: {reason}{at}")

    # --- ends ---

    def want(self, value: Any) -> BufferSlice:
        """Return a value to the caller, in memory of its own."""
        if not isinstance(value, Value):
            raise CannotLower("a requested value that is not an array")
        self.clock += 1
        place = self.place(value)
        whole = place.offset == 0 and place.buffer.size == place.lies.nbytes
        taken = place.buffer.kind != TEMPORARY
        if taken or not whole or not place.lies.size or min(place.lies.strides, default=0) < 0:
            place = self.copy(place)
        place.buffer.kind = RESULT
        return place

    def copy(self, place: BufferSlice) -> BufferSlice:
        """The same value in new memory, with the same layout if that leaves no gaps."""
        lies = geometry(np.empty_like(place.lies.model()))  # keeps the order of dimensions
        target = BufferSlice(self.buffer(TEMPORARY, lies.nbytes), 0, lies)
        self.move(target, place)
        return target

    def move(self, to: BufferSlice, source: BufferSlice) -> None:
        """Copy a value to the memory of another."""
        if not to.lies.size:
            return

        def assign(to: Any, source: Any) -> Any:
            buffers.move(planning.bare(to), planning.bare(source))
            return (to,)

        try:
            job = planning.job(assign, [to.lies.model(), source.lies.model()])
        except Unplannable as error:
            steps = self.writes if self.late else self.steps
            steps.append(PythonCall("move", _copied, [to, source], [], str(error)))
            return
        self.take(job, [to, source], "move")

    def prepare(self, leaf: int, value: Any) -> None:
        """Before anything is written: copy values whose memory belongs to leaves, which may be
        written.
        """
        if not isinstance(value, Value):
            raise CannotLower("a written value that is not an array")
        if value.leaf == leaf:
            return
        self.clock += 1
        place = self.place(value)
        if self._is_there(place, leaf):
            return
        if place.buffer.kind == LEAF:
            self.saved[leaf] = self.copy(place)
            place = self.saved[leaf]
        place.buffer.last = NEVER

    def write(self, leaf: int, value: Any) -> None:
        """Write a value to a leaf's memory, after everything else."""
        if value.leaf == leaf:
            return
        example = self.leaves.get(leaf)
        if not isinstance(example, ndarray):
            raise CannotLower("a write to a leaf without memory")
        self.clock += 1
        place = self.saved.get(leaf) or self.place(value)
        if self._is_there(place, leaf):
            return
        if place.buffer.kind == LEAF:
            place = self.copy(place)  # that leaf may be written, too
        if (example.shape, example.dtype) != (place.lies.shape, place.lies.dtype):
            raise CannotLower("a write to a leaf of a different shape or dtype")
        target = BufferSlice(self.leaf(leaf), 0, geometry(example))
        if not self._made_there(place, target):
            place.buffer.last = NEVER
            self.move(target, place)

    def _is_there(self, place: BufferSlice, leaf: int) -> bool:
        """Whether a leaf has its value already: rows were swapped in place."""
        whole = BufferSlice(self.leaf(leaf), 0, geometry(np.asarray(self.leaves[leaf])))
        return place == whole

    def _made_there(self, place: BufferSlice, target: BufferSlice) -> bool:
        """Compute values that come after all checks directly where they will be written.

        The old value may not be read after that, except by an elementwise producer.
        """
        made, leaf = place.buffer, target.buffer
        if made.kind != TEMPORARY or made.first <= self.checked or place.offset:
            return False
        if place.lies != target.lies or made.size != place.lies.nbytes:
            return False
        over = any(a is made and b is leaf for a, b, _ in self.reuses)
        if leaf.last > made.first or (leaf.last == made.first and not over):
            return False
        made.kind, made.over = LEAF, leaf
        return True

    def finished(self) -> int:
        """Assign arena offsets to all temporaries; returns its size."""
        _join(self.reuses)
        inside = [b for b in self.buffers if b.kind == TEMPORARY and b.over is None]
        offsets, size = arena.plan([arena.Lifetime(b.size, b.first, b.last) for b in inside])
        for buffer, offset in zip(inside, offsets, strict=True):
            buffer.offset = offset
        for buffer in self.buffers:
            if buffer.over is not None and buffer.kind == TEMPORARY:
                buffer.offset = buffer.root().offset
        return size


def _join(reuses: list[tuple[BufferAllocation, BufferAllocation, int]]) -> None:
    """Let results reuse the memory of inputs whose last reader computes them."""
    for result, source, clock in reuses:
        root = source.root()
        if result.size != source.size or result.over is not None:
            continue
        if result.kind == source.kind == TEMPORARY and root.last == clock:
            result.over = root
            root.last = max(root.last, result.last)


def _copied(to: ndarray, source: ndarray) -> tuple[()]:
    np.copyto(to, source)
    return ()


def _check_kinds(node: WorkNode, found: list[Any]) -> None:
    if len(found) != len(node.results):
        raise Unplannable("the number of results differs from the recording")
    for value, array in zip(node.results, found, strict=True):
        if array.shape != value.shape or array.dtype != value.dtype:
            given = f"{array.dtype}{list(array.shape)}"
            raise Unplannable(f"a kernel returns {given} instead of {value}")


def _geometries(node: WorkNode, places: dict[int, BufferSlice]) -> list[Geometry]:
    """The layouts of Python results: found by running on arrays without values, or row-major."""
    rows = [geometry(np.empty(v.shape, v.dtype)) for v in node.results]
    if not node.work.pure:
        return rows  # a trial run would have side effects: a draw would advance its generator
    try:
        args = [
            meta.like(places[id(x)].lies.model()) if isinstance(x, Value) else x for x in node.args
        ]
        found = [geometry(a) for a in node.work.python(*args)]
        found = [f._replace(dtype=meta.plain(f.dtype)) for f in found]
        kinds = [(v.shape, v.dtype) for v in node.results]
        if [(f.shape, f.dtype) for f in found] == kinds:
            return [geometry(np.empty_like(f.model())) for f in found]
    except Exception:  # code that reads values may do anything without them
        pass
    return rows
