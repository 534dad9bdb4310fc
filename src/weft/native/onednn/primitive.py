"""oneDNN primitives on NumPy memory: made once, run by any number of threads at a time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.jit import pointer
from weft.native.memory import buffers
from weft.native.once import LOCK
from weft.native.onednn import binding

Ints = tuple[int, ...]

SRC, DST, WEIGHTS, BIAS, SCRATCHPAD = 1, 17, 33, 41, 80
DIFF_SRC, DIFF_DST, DIFF_WEIGHTS = 129, 145, 161
FLOAT32, ANY, USER_SCRATCHPAD, DEFAULT_STREAM = 3, 1, 1, 1
_NAME_QUERY, _SCRATCHPAD_QUERY, _ARGUMENT_QUERY = 8, 136, 255
_ALIGN = 64  # a cache line
_AVX512 = 0x20  # this bit of the instruction set's number

_library = binding.library()
if _library is None:
    raise ImportError(binding.why_not())
FFI, LIB, ENGINE = _library.ffi, _library.functions, _library.engine


def address_of(name: str) -> int:
    """The address of one of the library's functions."""
    return int(FFI.cast("uintptr_t", FFI.addressof(LIB, name)))


_execute, _set_handle = LIB.dnnl_primitive_execute, LIB.dnnl_memory_set_data_handle


class OneDNNRefused(Exception):
    """oneDNN can't do it, has no memory for it, or would do it by its slow reference code."""


def _made(create: Callable[..., int], destroy: Any, *args: Any) -> Any:
    """The object that a create function returns, destroyed when it is no longer referenced."""
    place = FFI.new("void **")
    if create(place, *args):
        raise OneDNNRefused
    return FFI.gc(place[0], destroy)


def dims(values: Sequence[int]) -> Any:
    """A list of sizes for oneDNN."""
    if len(values) > 12:
        raise OneDNNRefused
    return FFI.new("dnnl_dims_t", list(values))


def describe(shape: Ints, strides: Ints) -> Any:
    """A float32 array with strides counted in elements."""
    return _made(
        LIB.dnnl_memory_desc_create_with_strides,
        LIB.dnnl_memory_desc_destroy,
        len(shape),
        dims(shape),
        FLOAT32,
        dims(strides),
    )


def row_major(shape: Ints) -> Ints:
    """The strides of memory in C order, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    return tuple(strides)


def any_layout(shape: Ints) -> Any:
    """A float32 array in whatever layout the primitive likes best."""
    return _made(
        LIB.dnnl_memory_desc_create_with_tag,
        LIB.dnnl_memory_desc_destroy,
        len(shape),
        dims(shape),
        FLOAT32,
        ANY,
    )


def _attributes() -> Any:
    """Primitives get their scratch memory from us, so that it is reused and never shared."""
    place = FFI.new("void **")
    if LIB.dnnl_primitive_attr_create(place):
        raise OneDNNRefused
    LIB.dnnl_primitive_attr_set_scratchpad_mode(place[0], USER_SCRATCHPAD)
    return place[0]


ATTRIBUTES = _attributes()


def primitive_desc(operation: str, *args: Any, slow: bool = False) -> Any:
    """The description of a primitive that oneDNN has fast code for, unless slow code will do."""
    create = getattr(LIB, f"dnnl_{operation}_primitive_desc_create")
    desc = _made(create, LIB.dnnl_primitive_desc_destroy, *args)
    if not slow and implementation(desc).startswith("ref"):
        raise OneDNNRefused
    return desc


def implementation(desc: Any) -> str:
    """The name of the code that a primitive will run."""
    text = FFI.new("char **")
    LIB.dnnl_primitive_desc_query(desc, _NAME_QUERY, 0, text)
    return FFI.string(text[0]).decode()


def argument(desc: Any, which: int) -> Any:
    """The layout that a primitive wants for an argument; it lives as long as the description."""
    return LIB.dnnl_primitive_desc_query_md(desc, _ARGUMENT_QUERY, which)


def wide_vectors() -> bool:
    """Whether the code that oneDNN runs here uses AVX-512."""
    return bool(LIB.dnnl_get_effective_cpu_isa() & _AVX512)


def same(left: Any, right: Any) -> bool:
    """Whether two layouts are equal."""
    return bool(LIB.dnnl_memory_desc_equal(left, right))


class Arena:
    """A block of memory for what lives only during one call."""

    __slots__ = ("base", "block", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.block = np.empty(size + _ALIGN, np.uint8)
        self.base = -(-self.block.ctypes.data // _ALIGN) * _ALIGN


_ARENAS: list[Arena] = []
_KEPT_ARENA = 1 << 27  # larger ones go back to the system


def _take_arena(size: int) -> Arena:
    try:
        arena = _ARENAS.pop()  # one step for the interpreter: two threads never get the same
    except IndexError:
        return Arena(size)
    return arena if arena.size >= size else Arena(size)


class _Runner:
    """One thread's memory objects for a program; a program shared by threads has several."""

    __slots__ = ("base", "keep", "outer", "staged", "steps", "stream")

    def __init__(self, program: PrimitiveSequence) -> None:
        memories = [
            _made(LIB.dnnl_memory_create, LIB.dnnl_memory_destroy, desc, ENGINE, 0)
            for desc in program.slots
        ]
        self.outer = memories[: program.outer]
        self.staged = [(memories[slot], offset) for slot, offset in program.places.items()]
        self.base = -1
        self.stream = _made(LIB.dnnl_stream_create, LIB.dnnl_stream_destroy, ENGINE, DEFAULT_STREAM)
        self.steps = []
        for primitive, binds in program.steps:
            args = FFI.new("dnnl_exec_arg_t[]", len(binds))
            for entry, (which, slot) in zip(args, binds, strict=True):
                entry.arg, entry.memory = which, memories[slot]
            self.steps.append((primitive, len(binds), args))
        self.keep = memories


class PrimitiveSequence:
    """Primitives in a row; outer slots are the caller's arrays, the others live in an arena."""

    def __init__(self, *outer: Any) -> None:
        self.slots: list[Any] = list(outer)
        self.outer = len(outer)
        self.places: dict[int, int] = {}
        self.steps: list[tuple[Any, list[tuple[int, int]]]] = []
        self.size = 0
        self._scratch = 0
        self._scratch_slots: list[int] = []
        self._free: list[_Runner] = []
        self._keep: list[Any] = []

    def stage(self, desc: Any) -> int:
        """A new slot in the arena."""
        self.slots.append(desc)
        slot = len(self.slots) - 1
        self.places[slot] = self.size
        self.size += _rounded(LIB.dnnl_memory_desc_get_size(desc))
        return slot

    def add(self, desc: Any, binds: dict[int, int]) -> None:
        """Run a primitive with slots as its arguments."""
        primitive = _made(LIB.dnnl_primitive_create, LIB.dnnl_primitive_destroy, desc)
        self._keep.append(desc)
        scratch = LIB.dnnl_primitive_desc_query_md(desc, _SCRATCHPAD_QUERY, 0)
        needed = LIB.dnnl_memory_desc_get_size(scratch) if scratch else 0
        pairs = list(binds.items())
        if needed:
            self.slots.append(scratch)
            self._scratch_slots.append(len(self.slots) - 1)
            pairs.append((SCRATCHPAD, len(self.slots) - 1))
            self._scratch = max(self._scratch, _rounded(needed))
        self.steps.append((primitive, pairs))

    def bring(self, slot: int, wanted: Any) -> int:
        """The slot in the wanted layout: itself, or a copy that is made on each run."""
        if same(self.slots[slot], wanted):
            return slot
        staged = self.stage(wanted)
        self.reorder(slot, staged)
        return staged

    def reorder(self, source: int, target: int) -> None:
        """Copy one slot to another of a different layout."""
        descs = self.slots[source], ENGINE, self.slots[target], ENGINE
        desc = _made(
            LIB.dnnl_reorder_primitive_desc_create,
            LIB.dnnl_primitive_desc_destroy,
            *descs,
            ATTRIBUTES,
        )
        self.add(desc, {SRC: source, DST: target})

    def finish(self) -> PrimitiveSequence:
        """Fix the places in the arena; steps run one after another, so they share scratch."""
        for slot in self._scratch_slots:
            self.places[slot] = self.size
        self.size += self._scratch
        self._free.append(_Runner(self))
        return self

    def _runner(self) -> _Runner:
        try:
            return self._free.pop()  # as for arenas, never the same for two threads
        except IndexError:
            with LOCK:
                return _Runner(self)

    def run(self, *pointers: int) -> bool:
        """Run on the caller's arrays, given by address in the order of the outer slots.

        False where the library failed, for want of memory as a rule.
        """
        if buffers.PLANNERS and (plan := buffers.planner()) is not None:
            return self._planned(plan, *pointers)
        try:
            runner = self._runner()
        except OneDNNRefused:
            return False
        for memory, address in zip(runner.outer, pointers, strict=True):
            _set_handle(memory, address)
        arena = _take_arena(self.size) if self.size else None
        if arena is not None and arena.base != runner.base:
            runner.base = arena.base
            for memory, offset in runner.staged:
                _set_handle(memory, arena.base + offset)
        status, stream = 0, runner.stream
        for primitive, count, args in runner.steps:
            status = status or _execute(primitive, stream, count, args)
        if arena is not None and arena.size <= _KEPT_ARENA:
            _ARENAS.append(arena)
        self._free.append(runner)
        return not status

    def _planned(self, plan: buffers.Planner, *pointers: int) -> bool:
        """Record a run in a plan, with its own memory objects."""
        runner = _Runner(self)
        word = lambda handle: int(FFI.cast("uintptr_t", handle))
        arena = pointer(buffers.empty(self.size, np.uint8)) if self.size else 0
        places = [*zip(runner.outer, pointers, strict=True)]
        places += [(memory, arena + offset) for memory, offset in runner.staged]
        plan.keep(runner)
        flag = buffers.zeros(1, np.int64)
        setter, execute = map(address_of, ("dnnl_memory_set_data_handle", "dnnl_primitive_execute"))
        for memory, address in places:
            plan.raw("handle", setter, word(memory), plan.place(address))
        for primitive, count, args in runner.steps:
            words = word(primitive), word(runner.stream), count, word(args)
            plan.raw("execute", execute, *words, plan.place(flag))
        plan.checked(flag)
        return True


def _rounded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _built(
    build: Callable[..., PrimitiveSequence], args: tuple[Any, ...]
) -> PrimitiveSequence | None:
    try:
        return build(*args).finish()
    except OneDNNRefused:
        return None


class Programs:
    """Programs by key. At least the most recently used half of them is kept."""

    def __init__(self, limit: int = binding.KEPT) -> None:
        self._half = limit // 2
        self.young: dict[Hashable, PrimitiveSequence | None] = {}
        self._old: dict[Hashable, PrimitiveSequence | None] = {}
        # A primitive divides its work among threads when it is made.
        threads.ON_CHANGE.append(self.clear)

    def find(
        self, key: Hashable, build: Callable[..., PrimitiveSequence], *args: Any
    ) -> PrimitiveSequence | None:
        """The program of a key, or None if oneDNN can't run it."""
        binding.obey()
        try:
            return self.young[key]
        except KeyError:
            pass
        with LOCK:
            if key not in self.young:  # another thread may have been first
                program = self._old[key] if key in self._old else _built(build, args)
                if len(self.young) >= self._half:
                    self._old, self.young = self.young, {}
                self.young[key] = program
            return self.young[key]

    def __len__(self) -> int:
        return len(self.young.keys() | self._old.keys())

    def clear(self) -> None:
        """Forget all programs."""
        with LOCK:
            self.young, self._old = {}, {}
