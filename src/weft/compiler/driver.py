"""The native side of a program: it patches addresses into calls, makes them, and records
failures.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from weft.native.codegen import entry, jit
from weft.native.contract import driving
from weft.native.once import once

_ITEMS = object.__basicsize__ + 8  # offset of the pointer to a list's items

# ``run`` makes the calls of a segment, as jobs do; ``note`` records that a flag was set.
HELPERS = driving("program_run")
HELPERS += """
define void @program_note(ptr %args) {
  %flag = load ptr, ptr %args
  %ps = getelementptr i64, ptr %args, i64 1
  %status = load ptr, ptr %ps
  %set = load i64, ptr %flag
  %before = load i64, ptr %status
  %now = or i64 %set, %before
  store i64 %now, ptr %status
  ret void
}
"""
# ``apart``: sets the status (the first word) if one of the first intervals of addresses overlaps
# any other. How many the first are, and all of them, are words too; then come their bounds.
HELPERS += """
define void @program_apart(ptr %args) {
entry:
  %status = load ptr, ptr %args
  %pf = getelementptr i64, ptr %args, i64 1
  %first = load i64, ptr %pf
  %pa = getelementptr i64, ptr %args, i64 2
  %all = load i64, ptr %pa
  %bounds = getelementptr i64, ptr %args, i64 3
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i1, %outer.end ]
  %more.i = icmp slt i64 %i, %first
  br i1 %more.i, label %one, label %done
one:
  %at.i = shl i64 %i, 1
  %pl.i = getelementptr i64, ptr %bounds, i64 %at.i
  %low.i = load i64, ptr %pl.i
  %ph.i = getelementptr i64, ptr %pl.i, i64 1
  %high.i = load i64, ptr %ph.i
  %i1 = add i64 %i, 1
  br label %inner
inner:
  %j = phi i64 [ %i1, %one ], [ %j1, %two ]
  %more.j = icmp slt i64 %j, %all
  br i1 %more.j, label %two, label %outer.end
two:
  %at.j = shl i64 %j, 1
  %pl.j = getelementptr i64, ptr %bounds, i64 %at.j
  %low.j = load i64, ptr %pl.j
  %ph.j = getelementptr i64, ptr %pl.j, i64 1
  %high.j = load i64, ptr %ph.j
  %before = icmp ule i64 %high.i, %low.j
  %behind = icmp ule i64 %high.j, %low.i
  %apart = or i1 %before, %behind
  %j1 = add i64 %j, 1
  br i1 %apart, label %inner, label %overlap
overlap:
  store i64 1, ptr %status
  ret void
outer.end:
  br label %outer
done:
  ret void
}
"""

# ``store``: one number (the first word) at so many addresses (the second, and those behind it).
_STORE = """
define void @program_store{bits}(ptr %args) {{
entry:
  %value = load i{bits}, ptr %args
  %pn = getelementptr i64, ptr %args, i64 1
  %n = load i64, ptr %pn
  %last = add i64 %n, 2
  br label %next
next:
  %i = phi i64 [ 2, %entry ], [ %i1, %one ]
  %more = icmp slt i64 %i, %last
  br i1 %more, label %one, label %done
one:
  %pa = getelementptr i64, ptr %args, i64 %i
  %to = load ptr, ptr %pa
  store i{bits} %value, ptr %to
  %i1 = add i64 %i, 1
  br label %next
done:
  ret void
}}
"""
HELPERS += "".join(_STORE.format(bits=bits) for bits in (32, 64))


# A whole run as a built-in function of two lists of arrays (leaves, and memory for results) and the
# address of a record: how many arrays and the numbers of their buffers, the same for results, the
# addresses of buffers, the status, then three times what ``run`` takes: what computes, what writes
# if nothing has failed, and what undoes changes if something has. A status of two says that
# something among the leaves is not an array.
CALL = f"""
define private i64 @gather(ptr %self, ptr %list, i64 %count, ptr %numbers, ptr %bases) {{
entry:
  %pi = getelementptr i8, ptr %list, i64 {_ITEMS}
  %items = load ptr, ptr %pi
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %take ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %done
look:
  %po = getelementptr ptr, ptr %items, i64 %i
  %object = load ptr, ptr %po
  %array = call i1 @is(ptr %self, ptr %object, i64 {entry.PLACES["ndarray"]})
  br i1 %array, label %take, label %fail
take:
  %pd = getelementptr i8, ptr %object, i64 {entry.DATA}
  %data = load i64, ptr %pd
  %pn = getelementptr i64, ptr %numbers, i64 %i
  %number = load i64, ptr %pn
  %to = getelementptr i64, ptr %bases, i64 %number
  store i64 %data, ptr %to
  %i1 = add i64 %i, 1
  br label %next
fail:
  ret i64 2
done:
  ret i64 0
}}
define private i64 @field(ptr %record, i64 %k) alwaysinline {{
  %p = getelementptr i64, ptr %record, i64 %k
  %v = load i64, ptr %p
  ret i64 %v
}}
define private ptr @pointed(ptr %record, i64 %k) alwaysinline {{
  %p = getelementptr ptr, ptr %record, i64 %k
  %v = load ptr, ptr %p
  ret ptr %v
}}
define private void @segment(ptr %record, i64 %first, ptr %bases) {{
  %k1 = add i64 %first, 1
  %k2 = add i64 %first, 2
  %k3 = add i64 %first, 3
  %k4 = add i64 %first, 4
  %moves = call ptr @pointed(ptr %record, i64 %first)
  %count = call i64 @field(ptr %record, i64 %k1)
  %words = call ptr @pointed(ptr %record, i64 %k2)
  %table = call ptr @pointed(ptr %record, i64 %k3)
  %calls = call i64 @field(ptr %record, i64 %k4)
  call void @program_run(ptr %moves, i64 %count, ptr %bases, ptr %words, ptr %table, i64 %calls)
  ret void
}}
define ptr @program_call(ptr %self, ptr %given, i64 %count) {{
entry:
  %leaves = load ptr, ptr %given
  %pr = getelementptr ptr, ptr %given, i64 1
  %results = load ptr, ptr %pr
  %pa = getelementptr ptr, ptr %given, i64 2
  %address = load ptr, ptr %pa
  %number = call i64 @integer(ptr %self, ptr %address)
  %record = inttoptr i64 %number to ptr
  %n = call i64 @field(ptr %record, i64 0)
  %at = call ptr @pointed(ptr %record, i64 1)
  %m = call i64 @field(ptr %record, i64 2)
  %to = call ptr @pointed(ptr %record, i64 3)
  %bases = call ptr @pointed(ptr %record, i64 4)
  %status = call ptr @pointed(ptr %record, i64 5)
  %a = call i64 @gather(ptr %self, ptr %leaves, i64 %n, ptr %at, ptr %bases)
  %b = call i64 @gather(ptr %self, ptr %results, i64 %m, ptr %to, ptr %bases)
  %bad = or i64 %a, %b
  store i64 %bad, ptr %status
  %fine = icmp eq i64 %bad, 0
  br i1 %fine, label %compute, label %end
compute:
  %state = call ptr @leave(ptr %self)
  call void @segment(ptr %record, i64 6, ptr %bases)
  %failed = load i64, ptr %status
  %good = icmp eq i64 %failed, 0
  br i1 %good, label %write, label %undo
write:
  call void @segment(ptr %record, i64 11, ptr %bases)
  br label %back
undo:
  call void @segment(ptr %record, i64 16, ptr %bases)
  br label %back
back:
  call void @come_back(ptr %self, ptr %state)
  br label %end
end:
  %none = call ptr @none(ptr %self)
  ret ptr %none
}}
"""


@once
def call() -> Callable | None:
    """The built-in function, or None for an unsupported list layout."""
    code = call_code()
    return None if code is None else entry.function("program_call", *code.addresses)


@once
def call_code() -> jit.CodeUnit | None:
    """Its code."""
    probe = [object(), np.empty(1)]
    word = ctypes.c_size_t.from_address
    items = word(id(probe) + _ITEMS).value
    if [word(items).value, word(items + 8).value] != [id(x) for x in probe]:
        return None  # pragma: no cover - another Python
    text = entry.INLINED + HELPERS + CALL
    return jit.engine().ahead("weft_program_call", text, ["program_call"], pipeline=jit.GLUE)


@once
def code() -> jit.CodeUnit:
    """The functions above."""
    names = [f"program_{name}" for name in ("run", "note", "store32", "store64", "apart")]
    return jit.engine().ahead("weft_program", HELPERS, names, pipeline=jit.GLUE)


@once
def run() -> Callable:
    """The driver, as a function of addresses; it runs without the interpreter's lock."""
    words = (ctypes.c_void_p, ctypes.c_int64, *(ctypes.c_void_p,) * 3, ctypes.c_int64)
    return ctypes.CFUNCTYPE(None, *words)(code().addresses[0])


def note() -> int:
    """The address of the function that records a flag."""
    return code().addresses[1]


def store(size: int) -> int:
    """The address of the function that stores a number of so many bytes at many places."""
    return code().addresses[2 if size == 4 else 3]


def apart() -> int:
    """The address of the function that compares intervals of addresses."""
    return code().addresses[4]
