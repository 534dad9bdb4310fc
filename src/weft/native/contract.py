"""The contract of kernels: ``plan(kernel, arrays, attrs) -> Job``, which never allocates.

A kernel is an ordinary function of arrays. It asks ``weft.native.memory.buffers`` for memory and
calls compiled loops and oneDNN; it reads no values. So recording one run shows everything that it
does to arrays of these shapes, dtypes and strides: a list of native calls whose arguments are
numbers or offsets in the inputs, the results, and scratch memory. That list is a ``Job``. It runs
on any addresses, in one native call, without Python.

A kernel that does something else with values (a NumPy function, a branch) is detected: memory that
is neither an input nor allocated here has no offset, and the plan is refused. The tests run the job
of every kernel on values that differ from those it was planned with.
"""

from __future__ import annotations

import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from weft.native.codegen import entry, jit
from weft.native.codegen.jit import pointer
from weft.native.memory import buffers
from weft.native.memory.buffers import Unplannable
from weft.native.once import once

ndarray = np.ndarray
ALIGN = 64  # a cache line
_WORDS = {"f32": "<fxxxx", "f64": "<d", "i32": "<q", "i64": "<q"}


class Address(NamedTuple):
    """An address: so many bytes into a buffer."""

    buffer: int
    offset: int


class ResultView(NamedTuple):
    """A result: its offset and its layout."""

    place: Address
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype


@dataclass
class NativeCall:
    """One native call: the address of a function of one pointer, and the words it points at.

    The address may be a symbol that is still being compiled: ``int`` waits for it.
    """

    name: str
    address: int | jit.Symbol
    words: list[int | Address]


@dataclass
class Job:
    """The native calls of a kernel for arrays of certain shapes, dtypes and strides, on any
    addresses.

    Buffers are numbered: first the inputs (the address of each is that of its first element), then
    the memory of results (``results`` of them, with their sizes in bytes), then the scratch memory,
    which is one block. The caller of a job chooses all addresses; those of results and of the
    scratch are multiples of ``ALIGN``. A result may be a view of an input. An output that is None
    is a gradient that is not needed.
    """

    inputs: int
    results: tuple[int, ...]
    scratch: int
    outputs: tuple[ResultView | None, ...]
    single: bool
    calls: list[NativeCall]
    flags: tuple[Address, ...]  # words that are nonzero after a run whose results are invalid
    # Pairs of an output and an input that may share memory: the output is written over the input.
    aliases: tuple[tuple[int, int], ...] = ()
    keep: list[Any] = field(default_factory=list)  # constants that calls point at
    _blocks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ready = False
        # The memory objects of oneDNN belong to the job: one run at a time sets their addresses.
        shared = any(call.name == "execute" for call in self.calls)
        self._turn = threading.Lock() if shared else contextlib.nullcontext()

    def _prepare(self) -> None:
        """Prepare what a run needs; other users of the calls do without."""
        words: list[int] = []
        moves: list[int] = []
        table: list[int] = []
        for call in self.calls:
            table += [int(call.address), len(words)]
            for word in call.words:
                if isinstance(word, Address):
                    moves += [len(words), word.buffer, word.offset]
                    word = 0
                words.append(word)
        self._words = np.array(words, np.uint64).view(np.int64)
        self._moves = np.array(moves, np.int64)
        self._table = np.array(table, np.uint64).view(np.int64)
        self._ready = True

    def run(self, pointers: list[int]) -> bool:
        """Run on the addresses of all buffers; False if a flag says that results are wrong."""
        with self._turn:
            self._run(pointers)
        read = ctypes.c_int64.from_address
        return not any(read(pointers[b] + offset).value for b, offset in self.flags)

    def _run(self, pointers: list[int]) -> None:
        if not self._ready:
            self._prepare()
        try:
            words = self._blocks.pop()  # one step for the interpreter: never shared by threads
        except IndexError:
            words = self._words.copy()
        bases = np.array(pointers, np.uint64)
        _drive()(
            *(pointer(self._moves), len(self._moves) // 3, pointer(bases), pointer(words)),
            *(pointer(self._table), len(self.calls)),
        )
        self._blocks.append(words)

    def __call__(self, *arrays: ndarray | None) -> Any:
        """Run the kernel on arrays like those that it was planned for, in new memory."""
        held = [np.empty(max(n, 1) + ALIGN, np.uint8) for n in (*self.results, self.scratch)]
        pointers = [0 if a is None else pointer(a) for a in arrays]
        pointers += [-(-pointer(h) // ALIGN) * ALIGN for h in held]
        if not self.run(pointers):
            return None
        memory = (*arrays, *held)
        found = [None if v is None else _seen(v, pointers, memory) for v in self.outputs]
        return found[0] if self.single else tuple(found)


class _Memory:
    """An array's memory, to be viewed as another array."""

    def __init__(self, address: int, view: ResultView, holder: Any) -> None:
        self.holder = holder
        self.__array_interface__ = {
            "data": (address, False),
            "shape": view.shape,
            "strides": view.strides,
            "typestr": f"|V{view.dtype.itemsize}",
            "version": 3,
        }


def _seen(view: ResultView, pointers: list[int], memory: Any) -> ndarray:
    if not all(view.shape):
        return np.empty(view.shape, view.dtype)
    buffer, offset = view.place
    raw = np.asarray(_Memory(pointers[buffer] + offset, view, memory[buffer]))
    return raw.view(view.dtype)


def _bounds(a: ndarray) -> tuple[int, int]:
    """The first byte of an array and the one behind its last."""
    low = pointer(a)
    if a.flags.c_contiguous:
        return low, low + a.nbytes
    high = low
    for n, step in zip(a.shape, a.strides, strict=True):
        if step > 0:
            high += (n - 1) * step
        else:
            low += (n - 1) * step
    return low, high + a.itemsize


class _Recording:
    """The recording of a kernel's run: calls are recorded instead of executed."""

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self.inputs = len(arrays)
        # Buffers as (first address, address behind the last, array); the array keeps it alive.
        self.spans: list[tuple[int, int, ndarray | None]] = []
        # Addresses of inputs are those of their first elements.
        self.origins: list[int] = []
        for a in arrays:
            low, high = (0, 0) if a is None else _bounds(a)
            self.spans.append((low, high, a))
            self.origins.append(0 if a is None else pointer(a))
        self.constants: dict[int, ndarray] = {}
        self.kept: list[Any] = []
        self.calls: list[NativeCall] = []
        self.flags: list[Address] = []
        self.aliases: list[tuple[Any, Any]] = []
        self.fault = ""

    # --- memory ---

    def allocated(self, array: ndarray, zeroed: bool) -> None:
        start = pointer(array)
        self.spans.append((start, start + array.nbytes, array))
        self.origins.append(start)
        if zeroed and array.nbytes:
            words = [self.place(array), 0, array.nbytes]
            self.calls.append(NativeCall("fill", _helper("fill"), words))

    def constant(self, array: ndarray) -> None:
        if array.dtype == np.int64 and array.size:
            low, high = min(s[0] for s in self.spans), max(s[1] for s in self.spans)
            if np.any((array >= max(low, 1 << 32)) & (array < high)):
                raise Unplannable("a table of addresses")
        self.constants[pointer(array)] = array

    def moved(self, to: ndarray, source: Any) -> None:
        from weft.native.loops.movement import assign

        if not assign(to, source):
            raise Unplannable(f"a copy of {getattr(source, 'dtype', type(source))} to {to.dtype}")

    def checked(self, flag: ndarray) -> None:
        place = self.place(flag)
        if not isinstance(place, Address):
            raise Unplannable("a flag in memory that the kernel did not allocate")
        self.flags += [Address(place.buffer, place.offset + 8 * k) for k in range(flag.size)]

    def place(self, value: Any) -> int | Address:
        """The target of an array or an address: an offset in a buffer, or a constant's address."""
        if value is None:
            return 0
        address = pointer(value) if isinstance(value, ndarray) else int(value)
        if isinstance(value, ndarray) and not value.size:
            return 0
        for number in range(len(self.spans) - 1, -1, -1):
            low, high, _ = self.spans[number]
            if low <= address < high:
                return Address(number, address - self.origins[number])
            if low == address == high and low:
                return 0  # memory of no size
        if isinstance(value, ndarray) and value.dtype.kind in "iu":
            self.constant(value)  # an index table: kernels compute those from sizes alone
        for start, array in self.constants.items():
            if start <= address < start + array.nbytes:
                return address
        raise Unplannable("memory that is neither an input nor allocated by the kernel")

    def holds(self, array: ndarray) -> bool:
        """Whether an array is in memory that was given or allocated by the plan."""
        address = pointer(array)
        return bool(array.size) and any(low <= address < high for low, high, _ in self.spans)

    def number(self, kind: str, value: Any) -> int | Address:
        """A number as a word; kernels that find the types of arrays later get addresses so."""
        if kind == "i64" and value > 1 << 32:
            for n in range(len(self.spans)):
                low, high, _ = self.spans[n]
                if low <= value < high:
                    return Address(n, value - self.origins[n])
        return word(kind, value)

    # --- calls ---

    def told(self, key: int, arguments: list[Any]) -> None:
        if self.fault:
            return
        symbol = jit.SYMBOLS[key]
        try:
            words = [
                self.place(value) if kind.endswith("*") else self.number(kind, value)
                for kind, value in zip(symbol.kinds, arguments, strict=True)
            ]
        except Unplannable as error:
            self.fault = f"{symbol.name}: {error}"
            return
        self.calls.append(NativeCall(symbol.name, symbol, words))

    def raw(self, name: str, function: int, *words: Any) -> None:
        """A call of a function of another library by a helper: see ``HELPERS``."""
        kind = "f64" if name == "dgemm" else "f32"
        plain = [word(kind, w) if isinstance(w, float) else w for w in words]
        self.calls.append(NativeCall(name, _helper(name), [function, *plain]))

    def keep(self, value: Any) -> None:
        self.kept.append(value)

    def may_alias(self, result: ndarray, source: ndarray) -> None:
        self.aliases.append((self.place(result), self.place(source)))


def word(kind: str, value: Any) -> int:
    """A number as the word that compiled code finds in memory."""
    if kind in ("f32", "f64"):
        value = float(np.float32(value)) if kind == "f32" else float(value)
        return int.from_bytes(struct.pack(_WORDS[kind], value), "little")
    return int(value) & (1 << 64) - 1


def plan(kernel: Callable, arrays: tuple[Any, ...], attrs: dict[str, Any] | None = None) -> Job:
    """The job of a kernel for arrays like these; raises ``Unplannable`` where there is none.

    Nothing is computed and no array is read. Threads can plan at the same time.
    """
    if jit.INTERPRETED:
        raise Unplannable("kernels run in Python")
    found, thread = _Recording(arrays), get_ident()
    if thread in buffers.PLANNERS:
        raise Unplannable("a plan inside another plan")
    buffers.PLANNERS[thread], entry.LISTENERS[thread] = found, found.told
    with _COUNTING:
        entry.WATCHED.value += 1
    try:
        results = kernel(*arrays, **(attrs or {}))
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise Unplannable("memory that NumPy writes to") from None
    finally:
        with _COUNTING:
            entry.WATCHED.value -= 1
        del buffers.PLANNERS[thread], entry.LISTENERS[thread]
    if found.fault:
        raise Unplannable(found.fault)
    if results is None:
        raise Unplannable("the kernel declines these arrays")
    return _finished(found, results)


_COUNTING = threading.Lock()


def _finished(found: _Recording, results: Any) -> Job:
    single = isinstance(results, ndarray)
    views: list[ResultView | None] = []
    for result in (results,) if single else results:
        if result is None:
            views.append(None)
            continue
        place = found.place(result) if result.size else Address(0, 0)
        if not isinstance(place, Address):
            raise Unplannable("a result that does not own its memory")
        views.append(ResultView(place, result.shape, result.strides, result.dtype))
    # Buffers are renumbered: inputs, results, and all others as offsets in one block of scratch.
    inputs, scratch = found.inputs, 0
    sizes: list[int] = []
    moved: dict[int, Address] = {k: Address(k, 0) for k in range(inputs)}
    held = {v.place.buffer for v in views if v is not None and v.place.buffer >= inputs}
    for number in sorted(held):
        moved[number] = Address(inputs + len(sizes), 0)
        sizes.append(found.spans[number][1] - found.spans[number][0])
    last = inputs + len(sizes)
    for number in range(inputs, len(found.spans)):
        if number not in held:
            low, high, _ = found.spans[number]
            moved[number] = Address(last, scratch)
            scratch += -(-(high - low) // ALIGN) * ALIGN

    def at(place: int | Address) -> Any:
        if not isinstance(place, Address):
            return place
        buffer, offset = moved[place.buffer]
        return Address(buffer, offset + place.offset)

    calls = [NativeCall(c.name, c.address, [at(w) for w in c.words]) for c in found.calls]
    outputs = tuple(None if v is None else v._replace(place=at(v.place)) for v in views)
    flags = tuple(at(f) for f in found.flags)
    keep = [*found.constants.values(), *found.kept]
    aliases = _aliases(found, views) if len(calls) == 1 else ()
    return Job(inputs, tuple(sizes), scratch, outputs, single, calls, flags, aliases, keep)


def _aliases(found: _Recording, views: list[ResultView | None]) -> tuple[tuple[int, int], ...]:
    """Which outputs may alias which inputs, if the job is a single call."""
    outputs = {view.place: k for k, view in enumerate(views) if view is not None}
    pairs = [(outputs.get(result), source) for result, source in found.aliases]
    return tuple(
        (k, source.buffer)
        for k, source in pairs
        if k is not None and isinstance(source, Address) and source.buffer < found.inputs
    )


# --- native helpers ----------------------------------------------------------------------


def driving(name: str) -> str:
    """LLVM IR of a function that puts addresses into the words of calls and makes the calls.

    Moves are triples (word, buffer, offset), calls are pairs (function, first word).
    """
    return f"""
define void @{name}(ptr %moves, i64 %count, ptr %bases, ptr %words, ptr %table, i64 %calls) {{
entry:
  br label %patch
patch:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %begin
one:
  %k = mul i64 %i, 3
  %pw = getelementptr i64, ptr %moves, i64 %k
  %word = load i64, ptr %pw
  %pb = getelementptr i64, ptr %pw, i64 1
  %buffer = load i64, ptr %pb
  %po = getelementptr i64, ptr %pw, i64 2
  %offset = load i64, ptr %po
  %base = getelementptr i64, ptr %bases, i64 %buffer
  %start = load i64, ptr %base
  %address = add i64 %start, %offset
  %to = getelementptr i64, ptr %words, i64 %word
  store i64 %address, ptr %to
  %i1 = add i64 %i, 1
  br label %patch
begin:
  br label %next
next:
  %c = phi i64 [ 0, %begin ], [ %c1, %call ]
  %left = icmp slt i64 %c, %calls
  br i1 %left, label %call, label %done
call:
  %t = mul i64 %c, 2
  %pf = getelementptr i64, ptr %table, i64 %t
  %function = load ptr, ptr %pf
  %pa = getelementptr i64, ptr %pf, i64 1
  %first = load i64, ptr %pa
  %args = getelementptr i64, ptr %words, i64 %first
  call void %function(ptr %args)
  %c1 = add i64 %c, 1
  br label %next
done:
  ret void
}}
"""


# ``drive`` makes the calls of a job; ``fill`` is memset; the others call what is given by address,
# and take their arguments from words, as kernels do.
HELPERS = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @weft_fill(ptr %args) {
  %to = load ptr, ptr %args
  %pb = getelementptr i64, ptr %args, i64 1
  %byte = load i8, ptr %pb
  %pn = getelementptr i64, ptr %args, i64 2
  %n = load i64, ptr %pn
  call void @llvm.memset.p0.i64(ptr %to, i8 %byte, i64 %n, i1 false)
  ret void
}
"""


def _forwarding(name: str, result: str, *kinds: str) -> str:
    """LLVM IR that calls a function with words as arguments; the last word is where to put what it
    returns, unless that is nothing or zero.
    """
    lines = [f"define void @weft_{name}(ptr %args) {{", "entry:", "  %f = load ptr, ptr %args"]
    given = []
    for i, kind in enumerate(kinds, 1):
        lines.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}")
        lines.append(f"  %a{i} = load {kind}, ptr %p{i}")
        given.append(f"{kind} %a{i}")
    if result == "void":
        return "\n".join([*lines, f"  call void %f({', '.join(given)})", "  ret void", "}", ""])
    lines += [
        f"  %pr = getelementptr i64, ptr %args, i64 {len(kinds) + 1}",
        "  %flag = load ptr, ptr %pr",
        f"  %status = call i32 %f({', '.join(given)})",
        "  %fine = icmp eq i32 %status, 0",
        "  br i1 %fine, label %done, label %failed",
        "failed:",
        "  store i64 1, ptr %flag",
        "  br label %done",
        "done:",
        "  ret void",
        "}",
        "",
    ]
    return "\n".join(lines)


_SIZES = ("i64",) * 3
HELPERS += driving("weft_drive")
HELPERS += _forwarding(
    *("sgemm", "i32", "i8", "i8", *_SIZES, "float", "ptr", "i64", "ptr", "i64", "float"),
    *("ptr", "i64"),
)
HELPERS += _forwarding(
    *("dgemm", "void", "i32", "i32", "i32", *_SIZES, "double", "ptr", "i64", "ptr", "i64"),
    *("double", "ptr", "i64"),
)
HELPERS += _forwarding("handle", "void", "ptr", "ptr")
HELPERS += _forwarding("execute", "i32", "ptr", "ptr", "i32", "ptr")


_NAMES = ["drive", "fill", "sgemm", "dgemm", "handle", "execute"]


@once
def helpers() -> jit.CodeUnit:
    """The compiled helpers."""
    names = [f"weft_{name}" for name in _NAMES]
    return jit.engine().ahead("weft_helpers", HELPERS, names, pipeline=jit.GLUE)


def _helper(name: str) -> int:
    return helpers().addresses[_NAMES.index(name)]


@once
def _drive() -> Callable:
    words = (ctypes.c_void_p, ctypes.c_int64, *(ctypes.c_void_p,) * 3, ctypes.c_int64)
    return ctypes.CFUNCTYPE(None, *words)(_helper("drive"))
