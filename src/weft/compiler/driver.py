"""The native side of a program: what puts addresses into calls, makes them, and notes failures."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from weft.native.codegen import jit
from weft.native.once import once

# ``run`` puts addresses into the words of calls (moves are triples: word, buffer, offset) and makes
# the calls (pairs: function, first word); ``note`` keeps in mind that a flag was set.
HELPERS = """
define void @program_run(ptr %moves, i64 %count, ptr %bases, ptr %words, ptr %table, i64 %calls) {
entry:
  %any = icmp sgt i64 %count, 0
  br i1 %any, label %patch, label %begin
patch:
  %i = phi i64 [ 0, %entry ], [ %i1, %patch ]
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
  %more = icmp slt i64 %i1, %count
  br i1 %more, label %patch, label %begin
begin:
  %some = icmp sgt i64 %calls, 0
  br i1 %some, label %call, label %done
call:
  %c = phi i64 [ 0, %begin ], [ %c1, %call ]
  %t = mul i64 %c, 2
  %pf = getelementptr i64, ptr %table, i64 %t
  %function = load ptr, ptr %pf
  %pa = getelementptr i64, ptr %pf, i64 1
  %first = load i64, ptr %pa
  %args = getelementptr i64, ptr %words, i64 %first
  call void %function(ptr %args)
  %c1 = add i64 %c, 1
  %left = icmp slt i64 %c1, %calls
  br i1 %left, label %call, label %done
done:
  ret void
}
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


@once
def _addresses() -> list[int]:
    return jit.engine().load("weft_program", HELPERS, ["program_run", "program_note"])


@once
def run() -> Callable:
    """The driver, as a function of addresses; it runs without the interpreter's lock."""
    words = (ctypes.c_void_p, ctypes.c_int64, *(ctypes.c_void_p,) * 3, ctypes.c_int64)
    return ctypes.CFUNCTYPE(None, *words)(_addresses()[0])


def note() -> int:
    """The address of the function that notes a flag."""
    return _addresses()[1]
