"""A pool for the memory of large arrays.

Fresh memory costs a page fault for every 4 kB, which takes longer than most kernels need for it.
NumPy lets a program provide the allocator, so all arrays of a process that uses native kernels come
from here, whatever code allocates them. Freed blocks are cached in lists by size class (eight for
each doubling) and reused, also for somewhat smaller requests; blocks below ``SMALL`` are left to
NumPy's own cache.

From ``MAPPED`` bytes on a block is a separate mapping and not part of the heap. Among the many
small, long-lived objects there (Python's objects, oneDNN's programs), blocks of changing sizes
would leave gaps that nothing fits into, so the heap would only grow. From ``HUGE`` bytes on it asks
for huge pages, which cost fewer faults and fewer misses of the TLB.

The cache is bounded: a new block is only allocated from the system while used and cached memory
together stay within the peak of used memory plus a margin; beyond that cached blocks of other sizes
are released first.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys

import numpy as np

from weft.native.once import LOCK as MAKING
from weft.native.once import once

SMALL = 1 << 15
SLACK = 40  # per cent of the most in use that may be kept beyond it
REACH = 4  # how many sizes larger a kept block may be than what it is given out for: half as much
MAPPED, PAGE = 1 << 17, 1 << 12
HUGE = 1 << 22  # bytes from which huge pages are asked for, as NumPy's own allocator does
HEAD = 64  # bytes before a block: ..., where it begins, what was mapped (or 0), class, mark
MARK = 0x77EF_7B10_C4ED_5A11  # with the address, the mark of a block that was made here

# The layout of the pool's state, shared by Python and compiled code.
LOCK, KEPT, USED, PEAK, HITS, MISSES, RETURNED, LIMIT = range(8)
DEFAULT = 8  # NumPy's own context, malloc, calloc, realloc, free
CLASSES = 16
WORDS = CLASSES + 512
STATISTICS = {
    "used_bytes": USED,
    "kept_bytes": KEPT,
    "peak_used_bytes": PEAK,
    "hits": HITS,
    "misses": MISSES,
    "returned_bytes": RETURNED,
    "limit_bytes": LIMIT,
}


def _by_numpy(which: int, call: str, given: str) -> str:
    """LLVM IR that calls a function of NumPy's own allocator with its context."""
    return f"""  %ctxp = call ptr @word(ptr %c, i64 {DEFAULT})
  %ctx = load ptr, ptr %ctxp
  %fnp = call ptr @word(ptr %c, i64 {DEFAULT + which})
  %fn = load ptr, ptr %fnp
  {call} %fn(ptr %ctx, {given})"""


CODE = f"""
declare i32 @posix_memalign(ptr, i64, i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.ctlz.i64(i64, i1)
declare {{i64, i1}} @llvm.umul.with.overflow.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define private ptr @word(ptr %c, i64 %i) alwaysinline {{
  %p = getelementptr i64, ptr %c, i64 %i
  ret ptr %p
}}
define private void @lock(ptr %c) {{
entry:
  br label %try
try:
  %old = atomicrmw xchg ptr %c, i64 1 acquire
  %taken = icmp ne i64 %old, 0
  br i1 %taken, label %try, label %done
done:
  ret void
}}
define private void @unlock(ptr %c) alwaysinline {{
  store atomic i64 0, ptr %c release, align 8
  ret void
}}
define private void @add(ptr %c, i64 %i, i64 %by) alwaysinline {{
  %p = call ptr @word(ptr %c, i64 %i)
  %v = load i64, ptr %p
  %n = add i64 %v, %by
  store i64 %n, ptr %p
  ret void
}}
; the class of a size, and the size of a class
define private i64 @class_of(i64 %size) alwaysinline {{
  %less = sub i64 %size, 1
  %lead = call i64 @llvm.ctlz.i64(i64 %less, i1 false)
  %e = sub i64 63, %lead
  %shift = sub i64 %e, 3
  %part = lshr i64 %less, %shift
  %base = mul i64 %e, 8
  %sum = add i64 %base, %part
  %class = sub i64 %sum, 7
  ret i64 %class
}}
define private i64 @size_of(i64 %class) alwaysinline {{
  %e = lshr i64 %class, 3
  %part = and i64 %class, 7
  %eight = add i64 %part, 8
  %shift = sub i64 %e, 3
  %size = shl i64 %eight, %shift
  ret i64 %size
}}
; give kept blocks back to the system, largest first, until %want bytes are free of them
define i64 @weft_pool_trim(ptr %c, i64 %want) {{
entry:
  call void @lock(ptr %c)
  br label %classes
classes:
  %class = phi i64 [ 495, %entry ], [ %next, %following ]
  %freed0 = phi i64 [ 0, %entry ], [ %freed, %following ]
  %at = add i64 %class, {CLASSES}
  %head = call ptr @word(ptr %c, i64 %at)
  %size = call i64 @size_of(i64 %class)
  br label %blocks
blocks:
  %freed = phi i64 [ %freed0, %classes ], [ %more, %give ]
  %enough = icmp sge i64 %freed, %want
  br i1 %enough, label %done, label %look
look:
  %block = load ptr, ptr %head
  %none = icmp eq ptr %block, null
  br i1 %none, label %following, label %give
give:
  %after = load ptr, ptr %block
  store ptr %after, ptr %head
  call void @discard(ptr %block)
  %more = add i64 %freed, %size
  br label %blocks
following:
  %next = sub i64 %class, 1
  %last = icmp eq i64 %next, 0
  br i1 %last, label %done, label %classes
done:
  %total = phi i64 [ %freed, %blocks ], [ %freed, %following ]
  %minus = sub i64 0, %total
  call void @add(ptr %c, i64 {KEPT}, i64 %minus)
  call void @add(ptr %c, i64 {RETURNED}, i64 %total)
  call void @unlock(ptr %c)
  ret i64 %total
}}
; count what is taken, and give the most that ever was
define private i64 @count(ptr %c, i64 %size) {{
  call void @add(ptr %c, i64 {USED}, i64 %size)
  %peak = call i64 @peak(ptr %c)
  %peakp = call ptr @word(ptr %c, i64 {PEAK})
  store i64 %peak, ptr %peakp
  ret i64 %peak
}}
define private i64 @peak(ptr %c) {{
  %usedp = call ptr @word(ptr %c, i64 {USED})
  %used = load i64, ptr %usedp
  %peakp = call ptr @word(ptr %c, i64 {PEAK})
  %peak0 = load i64, ptr %peakp
  %higher = icmp sgt i64 %used, %peak0
  %peak = select i1 %higher, i64 %used, i64 %peak0
  ret i64 %peak
}}
define private ptr @take(ptr %c, i64 %wanted) {{
entry:
  %class = call i64 @class_of(i64 %wanted)
  %size = call i64 @size_of(i64 %class)
  call void @lock(ptr %c)
  br label %look
look:
  %further = phi i64 [ 0, %entry ], [ %further1, %next ]
  %near = add i64 %class, %further
  %at = add i64 %near, {CLASSES}
  %head = call ptr @word(ptr %c, i64 %at)
  %block = load ptr, ptr %head
  %none = icmp eq ptr %block, null
  br i1 %none, label %next, label %hit
next:
  %further1 = add i64 %further, 1
  %more = icmp sle i64 %further1, {REACH}
  br i1 %more, label %look, label %miss
hit:
  %after = load ptr, ptr %block
  store ptr %after, ptr %head
  %held = call i64 @size_of(i64 %near)
  %minus = sub i64 0, %held
  call void @add(ptr %c, i64 {KEPT}, i64 %minus)
  call void @add(ptr %c, i64 {HITS}, i64 1)
  %most0 = call i64 @count(ptr %c, i64 %held)
  call void @unlock(ptr %c)
  ret ptr %block
miss:
  call void @add(ptr %c, i64 {MISSES}, i64 1)
  call void @add(ptr %c, i64 {USED}, i64 %size)
  %peak = call i64 @peak(ptr %c)
  %usedp = call ptr @word(ptr %c, i64 {USED})
  %used = load i64, ptr %usedp
  %keptp = call ptr @word(ptr %c, i64 {KEPT})
  %kept = load i64, ptr %keptp
  call void @unlock(ptr %c)
  %all = add i64 %used, %kept
  %parts = mul i64 %peak, {SLACK}
  %slack = sdiv i64 %parts, 100
  %most = add i64 %peak, %slack
  %over = icmp sgt i64 %all, %most
  br i1 %over, label %shrink, label %fresh
shrink:
  %back = call i64 @weft_pool_trim(ptr %c, i64 %size)
  br label %fresh
fresh:
  %new = call ptr @system(ptr %c, i64 %class)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %undo, label %good
undo:
  call void @lock(ptr %c)
  %lessused = sub i64 0, %size
  call void @add(ptr %c, i64 {USED}, i64 %lessused)
  call void @unlock(ptr %c)
  ret ptr null
good: ; only what was there counts as the most that ever was
  call void @lock(ptr %c)
  %most1 = call i64 @count(ptr %c, i64 0)
  call void @unlock(ptr %c)
  ret ptr %new
}}
; the words before a block: -1 its mark, -2 its class, -3 what was mapped for it, or 0, -4 where
; that or its piece of the heap begins. No block begins a page: so the mark of one that does,
; which another allocator made, is not looked for where no memory may be.
define private i64 @mark(ptr %block) alwaysinline {{
  %address = ptrtoint ptr %block to i64
  %mark = xor i64 %address, {MARK}
  ret i64 %mark
}}
define private i1 @ours(ptr %block) alwaysinline {{
entry:
  %address = ptrtoint ptr %block to i64
  %off = and i64 %address, {PAGE - 1}
  %begins = icmp eq i64 %off, 0
  br i1 %begins, label %other, label %look
other:
  ret i1 0
look:
  %at = call ptr @word(ptr %block, i64 -1)
  %found = load i64, ptr %at
  %mark = call i64 @mark(ptr %block)
  %ours = icmp eq i64 %found, %mark
  ret i1 %ours
}}
define private i64 @class_held(ptr %block) alwaysinline {{
  %at = call ptr @word(ptr %block, i64 -2)
  %class = load i64, ptr %at
  ret i64 %class
}}
define private ptr @made(ptr %base, i64 %class, i64 %mapped) {{
  %start = ptrtoint ptr %base to i64
  %next = add i64 %start, {HEAD}
  %off = and i64 %next, {PAGE - 1}
  %begins = icmp eq i64 %off, 0
  %head = select i1 %begins, i64 {2 * HEAD}, i64 {HEAD}
  %block = getelementptr i8, ptr %base, i64 %head
  %at1 = call ptr @word(ptr %block, i64 -1)
  %at2 = call ptr @word(ptr %block, i64 -2)
  %at3 = call ptr @word(ptr %block, i64 -3)
  %at4 = call ptr @word(ptr %block, i64 -4)
  store ptr %base, ptr %at4
  %mark = call i64 @mark(ptr %block)
  store i64 %mark, ptr %at1
  store i64 %class, ptr %at2
  store i64 %mapped, ptr %at3
  ret ptr %block
}}
define private ptr @ask(i64 %class) {{
entry:
  %size = call i64 @size_of(i64 %class)
  %length = add i64 %size, {PAGE}
  %large = icmp uge i64 %size, {MAPPED}
  br i1 %large, label %map, label %heap
map:
  %fresh = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %address = ptrtoint ptr %fresh to i64
  %refused = icmp eq i64 %address, -1 ; too many mappings, as a rule
  br i1 %refused, label %heap, label %mapped
mapped:
  %huge = icmp uge i64 %size, {HUGE}
  br i1 %huge, label %advise, label %take
advise:
  %advised = call i32 @madvise(ptr %fresh, i64 %length, i32 14) ; where refused, pages stay small
  br label %take
take:
  %block = call ptr @made(ptr %fresh, i64 %class, i64 %length)
  ret ptr %block
heap:
  %out = alloca ptr
  %padded = add i64 %size, {2 * HEAD}
  %status = call i32 @posix_memalign(ptr %out, i64 64, i64 %padded)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %fail, label %piece
piece:
  %base = load ptr, ptr %out
  %block2 = call ptr @made(ptr %base, i64 %class, i64 0)
  ret ptr %block2
fail:
  ret ptr null
}}
define private ptr @system(ptr %c, i64 %class) {{
  %first = call ptr @ask(i64 %class)
  %bad = icmp eq ptr %first, null
  br i1 %bad, label %again, label %done
again:
  %all = call i64 @weft_pool_trim(ptr %c, i64 9223372036854775807)
  %second = call ptr @ask(i64 %class)
  ret ptr %second
done:
  ret ptr %first
}}
; the end of a block; its mark goes with it
define private void @discard(ptr %block) {{
entry:
  %at4 = call ptr @word(ptr %block, i64 -4)
  %base = load ptr, ptr %at4
  %at1 = call ptr @word(ptr %block, i64 -1)
  store i64 0, ptr %at1
  %at3 = call ptr @word(ptr %block, i64 -3)
  %length = load i64, ptr %at3
  %piece = icmp eq i64 %length, 0
  br i1 %piece, label %heap, label %mapped
heap:
  call void @free(ptr %base)
  ret void
mapped:
  %status = call i32 @munmap(ptr %base, i64 %length)
  %bad = icmp ne i32 %status, 0 ; a hole would be one mapping too many
  br i1 %bad, label %empty, label %done
empty:
  %status2 = call i32 @madvise(ptr %base, i64 %length, i32 4)
  br label %done
done:
  ret void
}}
define ptr @weft_pool_malloc(ptr %c, i64 %size) {{
  %small = icmp ult i64 %size, {SMALL}
  br i1 %small, label %plain, label %large
plain:
{_by_numpy(1, "%r = call ptr", "i64 %size")}
  ret ptr %r
large:
  %b = call ptr @take(ptr %c, i64 %size)
  ret ptr %b
}}
define ptr @weft_pool_calloc(ptr %c, i64 %count, i64 %each) {{
  %both = call {{i64, i1}} @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %size = extractvalue {{i64, i1}} %both, 0
  %beyond = extractvalue {{i64, i1}} %both, 1
  br i1 %beyond, label %never, label %choose
never:
  ret ptr null
choose:
  %small = icmp ult i64 %size, {SMALL}
  br i1 %small, label %plain, label %large
plain:
{_by_numpy(2, "%r = call ptr", "i64 %count, i64 %each")}
  ret ptr %r
large:
  %b = call ptr @take(ptr %c, i64 %size)
  %bad = icmp eq ptr %b, null
  br i1 %bad, label %done, label %clear
clear:
  call void @llvm.memset.p0.i64(ptr %b, i8 0, i64 %size, i1 false)
  br label %done
done:
  ret ptr %b
}}
; what NumPy's own allocator made stays there, also if it grows
define ptr @weft_pool_realloc(ptr %c, ptr %old, i64 %size) {{
entry:
  %nothing = icmp eq ptr %old, null
  br i1 %nothing, label %make, label %look
make:
  %first = call ptr @weft_pool_malloc(ptr %c, i64 %size)
  ret ptr %first
look:
  %ours = call i1 @ours(ptr %old)
  br i1 %ours, label %measure, label %plain
plain:
{_by_numpy(3, "%r = call ptr", "ptr %old, i64 %size")}
  ret ptr %r
measure:
  %class = call i64 @class_held(ptr %old)
  %held = call i64 @size_of(i64 %class)
  %small = icmp ult i64 %size, {SMALL}
  br i1 %small, label %move, label %compare
compare:
  %wanted = call i64 @class_of(i64 %size)
  %same = icmp eq i64 %wanted, %class
  br i1 %same, label %keep, label %move
keep:
  ret ptr %old
move:
  %new = call ptr @weft_pool_malloc(ptr %c, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %fail, label %copy
fail:
  ret ptr null
copy:
  %less = icmp ult i64 %size, %held
  %count = select i1 %less, i64 %size, i64 %held
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %count, i1 false)
  call void @weft_pool_free(ptr %c, ptr %old, i64 %held)
  ret ptr %new
}}
define void @weft_pool_free(ptr %c, ptr %block, i64 %size) {{
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %some
some:
  %small = icmp ult i64 %size, {SMALL}
  br i1 %small, label %plain, label %look
look:
  %ours = call i1 @ours(ptr %block)
  br i1 %ours, label %large, label %plain
plain:
{_by_numpy(4, "call void", "ptr %block, i64 %size")}
  br label %done
large:
  %class = call i64 @class_held(ptr %block)
  %rounded = call i64 @size_of(i64 %class)
  %at = add i64 %class, {CLASSES}
  %head = call ptr @word(ptr %c, i64 %at)
  call void @lock(ptr %c)
  %minus = sub i64 0, %rounded
  call void @add(ptr %c, i64 {USED}, i64 %minus)
  %keptp = call ptr @word(ptr %c, i64 {KEPT})
  %kept = load i64, ptr %keptp
  %limitp = call ptr @word(ptr %c, i64 {LIMIT})
  %limit = load i64, ptr %limitp
  %then = add i64 %kept, %rounded
  %full = icmp sgt i64 %then, %limit
  br i1 %full, label %return, label %keep
keep:
  store i64 %then, ptr %keptp
  %next = load ptr, ptr %head
  store ptr %next, ptr %block
  store ptr %block, ptr %head
  call void @unlock(ptr %c)
  br label %done
return:
  call void @add(ptr %c, i64 {RETURNED}, i64 %rounded)
  call void @unlock(ptr %c)
  call void @discard(ptr %block)
  br label %done
done:
  ret void
}}
"""


class _Allocator(ctypes.Structure):
    _fields_ = [
        ("ctx", ctypes.c_void_p),
        ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p),
        ("realloc", ctypes.c_void_p),
        ("free", ctypes.c_void_p),
    ]


class _MemoryHandler(ctypes.Structure):
    """NumPy's struct of a memory handler (NEP 49)."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", _Allocator),
    ]


def memory_limit() -> int:
    """Half of the memory that this process may use."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        total = 4 << 30
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(name) as file:
                total = min(total, int(file.read()))
        except (OSError, ValueError):
            continue
    return total // 2


class Pool:
    """The pool of this process."""

    def __init__(self) -> None:
        from weft.native.codegen.jit import engine

        self.words = (ctypes.c_int64 * WORDS)()
        api = ctypes.pythonapi
        get = api.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        table = get(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
        functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        self.set_handler = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(functions[304])
        default = ctypes.cast(functions[306], ctypes.POINTER(ctypes.py_object))[0]
        self.default = default
        given = ctypes.cast(get(default, b"mem_handler"), ctypes.POINTER(_MemoryHandler))[
            0
        ].allocator
        for k, part in enumerate(
            (given.ctx, given.malloc, given.calloc, given.realloc, given.free)
        ):
            self.words[DEFAULT + k] = part or 0
        self.words[LIMIT] = memory_limit()
        names = ("malloc", "calloc", "realloc", "free", "trim")
        code = engine().load("weft_pool", CODE, [f"weft_pool_{n}" for n in names])
        self.handler = _MemoryHandler(b"weft_pool", 1)
        self.handler.allocator = _Allocator(ctypes.addressof(self.words), *code[:4])
        self._trim = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(code[4])
        new = api.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        self.capsule = new(ctypes.addressof(self.handler), b"mem_handler", None)
        os.register_at_fork(after_in_child=self._unlock)
        # NumPy calls the pool for arrays that are freed when Python has taken this module apart,
        # with the address of ``words``: what it needs then must outlive all of Python.
        for needed in (self, engine()):
            api.Py_IncRef(ctypes.py_object(needed))

    def _unlock(self) -> None:
        # A thread that held the lock at the fork does not exist here.
        self.words[LOCK] = 0

    def enter(self) -> None:
        """Let this thread's arrays come from the pool."""
        self.set_handler(self.capsule)

    def leave(self) -> None:
        """Let this thread's new arrays come from NumPy's own allocator again."""
        self.set_handler(self.default)

    def trim(self) -> int:
        """Release all cached blocks to the system; returns their size in bytes."""
        freed = self.give_back((1 << 63) - 1)
        with contextlib.suppress(AttributeError):  # glibc has it
            ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))
        return freed

    def give_back(self, size: int) -> int:
        """Release cached blocks, the largest first, up to a size; returns the bytes released."""
        with MAKING:  # a child must not inherit half-emptied lists
            return self._trim(ctypes.addressof(self.words), size)

    def stats(self) -> dict[str, int]:
        """Bytes in use and cached, and how often a cached block was reused."""
        return {name: self.words[place] for name, place in STATISTICS.items()}

    def set_limit(self, most: int) -> None:
        """Keep at most so many bytes."""
        with MAKING:
            self.words[LIMIT] = most
            extra = self.words[KEPT] - most
            if extra > 0:
                self.give_back(extra)


@once
def pool() -> Pool | None:
    """The pool, or None where it can't be set up."""
    if os.environ.get("WEFT_POOL") == "off" or sys.platform != "linux":
        return None
    try:
        made = Pool()
    except (OSError, AttributeError, ValueError, RuntimeError):
        return None
    return made


def current() -> Pool | None:
    """The pool if it is in use."""
    return pool() if pool.cache_info().currsize else None


def any_stats() -> dict[str, int]:
    """The statistics, all zero before the pool exists."""
    found = current()
    return dict.fromkeys(STATISTICS, 0) if found is None else found.stats()
