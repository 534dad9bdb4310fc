"""Memory for all of NumPy's arrays that ends, or begins, at an unreadable page.

``install()`` gives every new array of this thread such memory, also those that kernels make for
their results, so that any access beyond an array ends the process. The pool must be off
(``WEFT_POOL=off``), since it hands out memory of its own.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
HEAD = 24  # bytes that say what a block is: its mapping, the length of that, the size asked for
FRESH = 0xA5 - 256  # fills memory that nobody has written to: an index read from it is far outside
SET_HANDLER = 304  # the number of PyDataMem_SetHandler in NumPy's table of functions

# Compiled code, since a callback into Python would lose an error that is on its way.
# ``%ctx`` is 0 for arrays that end at an unreadable page, and 1 for those that begin behind one;
# the head of the latter lies on a page before the unreadable one.
CODE = f"""
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @mprotect(ptr, i64, i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define private ptr @head(ptr %ctx, ptr %block) {{
  %behind = ptrtoint ptr %ctx to i64
  %before = icmp eq i64 %behind, 0
  %step = select i1 %before, i64 -{HEAD}, i64 -{2 * PAGE}
  %at = getelementptr i8, ptr %block, i64 %step
  ret ptr %at
}}
define private ptr @take(ptr %ctx, i64 %asked) {{
  %none = icmp eq i64 %asked, 0
  %size = select i1 %none, i64 1, i64 %asked
  %more = add i64 %size, {HEAD + PAGE - 1}
  %pages = udiv i64 %more, {PAGE}
  %inside = mul i64 %pages, {PAGE}
  %length = add i64 %inside, {2 * PAGE}
  %map = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %number = ptrtoint ptr %map to i64
  %failed = icmp eq i64 %number, -1
  br i1 %failed, label %no, label %yes
no:
  ret ptr null
yes:
  %behind = ptrtoint ptr %ctx to i64
  %before = icmp eq i64 %behind, 0
  %wall = select i1 %before, i64 %inside, i64 {PAGE}
  %guard = getelementptr i8, ptr %map, i64 %wall
  %unused = call i32 @mprotect(ptr %guard, i64 {PAGE}, i32 0)
  %last = sub i64 %inside, %size
  %offset = select i1 %before, i64 %last, i64 {2 * PAGE}
  %block = getelementptr i8, ptr %map, i64 %offset
  %at = call ptr @head(ptr %ctx, ptr %block)
  store ptr %map, ptr %at, align 1
  %at1 = getelementptr i8, ptr %at, i64 8
  store i64 %length, ptr %at1, align 1
  %at2 = getelementptr i8, ptr %at, i64 16
  store i64 %size, ptr %at2, align 1
  ret ptr %block
}}
define ptr @guarded_memory_malloc(ptr %ctx, i64 %size) {{
  %block = call ptr @take(ptr %ctx, i64 %size)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %done, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr %block, i8 {FRESH}, i64 %size, i1 false)
  br label %done
done:
  ret ptr %block
}}
define ptr @guarded_memory_calloc(ptr %ctx, i64 %count, i64 %each) {{
  %size = mul i64 %count, %each
  %block = call ptr @take(ptr %ctx, i64 %size)
  ret ptr %block
}}
define void @guarded_memory_free(ptr %ctx, ptr %block, i64 %size) {{
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %give
give:
  %at = call ptr @head(ptr %ctx, ptr %block)
  %map = load ptr, ptr %at, align 1
  %at1 = getelementptr i8, ptr %at, i64 8
  %length = load i64, ptr %at1, align 1
  %unused = call i32 @munmap(ptr %map, i64 %length)
  br label %done
done:
  ret void
}}
define ptr @guarded_memory_realloc(ptr %ctx, ptr %block, i64 %size) {{
  %made = call ptr @guarded_memory_malloc(ptr %ctx, i64 %size)
  %nothing = icmp eq ptr %block, null
  %failed = icmp eq ptr %made, null
  %either = or i1 %nothing, %failed
  br i1 %either, label %done, label %move
move:
  %at = call ptr @head(ptr %ctx, ptr %block)
  %at2 = getelementptr i8, ptr %at, i64 16
  %old = load i64, ptr %at2, align 1
  %less = icmp ult i64 %old, %size
  %count = select i1 %less, i64 %old, i64 %size
  call void @llvm.memcpy.p0.p0.i64(ptr %made, ptr %block, i64 %count, i1 false)
  call void @guarded_memory_free(ptr %ctx, ptr %block, i64 %old)
  br label %done
done:
  ret ptr %made
}}
"""

_pointer = ctypes.c_void_p


class _Allocator(ctypes.Structure):
    _fields_ = [(name, _pointer) for name in ("ctx", "malloc", "calloc", "realloc", "free")]


class _Handler(ctypes.Structure):
    """NumPy's own form of a handler of array memory (NEP 49)."""

    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("allocator", _Allocator),
    ]


_held: list[Any] = []


def install(at_end: bool = True) -> None:
    """Let each new array of this thread end (or begin) at an unreadable page."""
    from weft.native.codegen.jit import engine

    names = [f"guarded_memory_{n}" for n in ("malloc", "calloc", "realloc", "free")]
    addresses = engine().load("guarded_memory", CODE, names)
    handler = _Handler(b"guarded_memory", 1, _Allocator(int(not at_end), *addresses))
    api = ctypes.pythonapi
    get, new = api.PyCapsule_GetPointer, api.PyCapsule_New
    get.restype, get.argtypes = _pointer, (ctypes.py_object, ctypes.c_char_p)
    new.restype, new.argtypes = ctypes.py_object, (_pointer, ctypes.c_char_p, _pointer)
    functions = get(np._core._multiarray_umath._ARRAY_API, None)  # type: ignore[attr-defined]
    table = ctypes.cast(functions, ctypes.POINTER(_pointer))
    capsule = new(ctypes.addressof(handler), b"mem_handler", None)
    _held.append((handler, capsule))  # arrays refer to it for as long as they live
    ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[SET_HANDLER])(capsule)
