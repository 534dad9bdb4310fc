"""Guards that a built-in function checks: whether objects are where they were.

What a step rests on is which objects stand in dicts, lists and slots. Python code that compares
them takes longer than a small step; compiled code reads them one by one. It says yes only if each
is the very object that it was: whoever gets a no looks again, in Python.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from weft.native.codegen import entry, jit
from weft.native.codegen.emit import LIST_ITEMS
from weft.native.codegen.jit import pointer
from weft.native.codegen.records import Slots, Unsupported
from weft.native.once import once

_SIZE = object.__basicsize__  # where a list keeps how long it is, and a dict its number of entries

# A record: the address of PyDict_GetItem, then a count and an address each for entries of dicts
# (dict, key, value), places in lists (list, place, object; place -1 is the length), and words
# (address, content). The function gives its argument back if all is as recorded, else None.
_CODE = f"""
define private i1 @entries(ptr %get, i64 %count, ptr %rows, ptr %none) {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %fine
one:
  %k = mul i64 %i, 3
  %row = getelementptr ptr, ptr %rows, i64 %k
  %pk = getelementptr ptr, ptr %row, i64 1
  %pv = getelementptr ptr, ptr %row, i64 2
  %table = load ptr, ptr %row
  %key = load ptr, ptr %pk
  %value = load ptr, ptr %pv
  %there = call ptr %get(ptr %table, ptr %key)
  %missing = icmp eq ptr %there, null
  %now = select i1 %missing, ptr %none, ptr %there
  %same = icmp eq ptr %now, %value
  %i1 = add i64 %i, 1
  br i1 %same, label %next, label %other
other:
  ret i1 false
fine:
  ret i1 true
}}
define private i1 @places(i64 %count, ptr %rows) {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %compare ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %fine
one:
  %k = mul i64 %i, 3
  %row = getelementptr i64, ptr %rows, i64 %k
  %pk = getelementptr i64, ptr %row, i64 1
  %pv = getelementptr i64, ptr %row, i64 2
  %list = load ptr, ptr %row
  %place = load i64, ptr %pk
  %value = load i64, ptr %pv
  %whole = icmp slt i64 %place, 0
  br i1 %whole, label %length, label %item
length:
  %pl = getelementptr i8, ptr %list, i64 {_SIZE}
  br label %compare
item:
  %pi = getelementptr i8, ptr %list, i64 {LIST_ITEMS}
  %items = load ptr, ptr %pi
  %pe = getelementptr i64, ptr %items, i64 %place
  br label %compare
compare:
  %at = phi ptr [ %pl, %length ], [ %pe, %item ]
  %now = load i64, ptr %at
  %same = icmp eq i64 %now, %value
  %i1 = add i64 %i, 1
  br i1 %same, label %next, label %other
other:
  ret i1 false
fine:
  ret i1 true
}}
define private i1 @words(i64 %count, ptr %rows) {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i1, %one ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %one, label %fine
one:
  %k = mul i64 %i, 2
  %row = getelementptr i64, ptr %rows, i64 %k
  %pv = getelementptr i64, ptr %row, i64 1
  %at = load ptr, ptr %row
  %value = load i64, ptr %pv
  %now = load i64, ptr %at
  %same = icmp eq i64 %now, %value
  %i1 = add i64 %i, 1
  br i1 %same, label %next, label %other
other:
  ret i1 false
fine:
  ret i1 true
}}
define private ptr @field(ptr %record, i64 %k) {{
  %p = getelementptr ptr, ptr %record, i64 %k
  %v = load ptr, ptr %p
  ret ptr %v
}}
define ptr @guard_holds(ptr %self, ptr %given, i64 %count) {{
entry:
  %object = load ptr, ptr %given
  %number = call i64 @integer(ptr %self, ptr %object)
  %record = inttoptr i64 %number to ptr
  %get = call ptr @field(ptr %record, i64 0)
  %n1 = call ptr @field(ptr %record, i64 1)
  %r1 = call ptr @field(ptr %record, i64 2)
  %n2 = call ptr @field(ptr %record, i64 3)
  %r2 = call ptr @field(ptr %record, i64 4)
  %n3 = call ptr @field(ptr %record, i64 5)
  %r3 = call ptr @field(ptr %record, i64 6)
  %c1 = ptrtoint ptr %n1 to i64
  %c2 = ptrtoint ptr %n2 to i64
  %c3 = ptrtoint ptr %n3 to i64
  %none = call ptr @known(ptr %self, i64 {entry.PLACES["None"]})
  %w = call i1 @words(i64 %c3, ptr %r3)
  br i1 %w, label %lists, label %no
lists:
  %p = call i1 @places(i64 %c2, ptr %r2)
  br i1 %p, label %dicts, label %no
dicts:
  %e = call i1 @entries(ptr %get, i64 %c1, ptr %r1, ptr %none)
  br i1 %e, label %yes, label %no
yes:
  %hold = call ptr @known(ptr %self, i64 {entry.PLACES["Py_IncRef"]})
  call void %hold(ptr %object)
  ret ptr %object
no:
  %other = call ptr @none(ptr %self)
  ret ptr %other
}}
"""


@once
def _check() -> Callable | None:
    """The built-in function, or None where objects lie otherwise than it expects."""
    word = ctypes.c_size_t.from_address
    probe, table = [object(), object(), object()], {1: 2, 3: 4}
    items = word(id(probe) + LIST_ITEMS).value
    fits = word(id(probe) + _SIZE).value == 3 and word(items + 16).value == id(probe[2])
    if not fits or word(id(table) + _SIZE).value != 2 or jit.INTERPRETED:
        return None  # pragma: no cover - another Python
    (address,) = jit.engine().load("weft_guard", entry.HELPERS + _CODE, ["guard_holds"])
    return entry.function("guard_holds", address)


@functools.cache
def _offset(kind: type, name: str) -> int:
    return Slots(kind, name)[name]


class ObjectGuard:
    """Objects in their places: entries of dicts, the contents of lists, slots, and empty dicts."""

    def __init__(self) -> None:
        self._entries: list[int] = []
        self._places: list[int] = []
        self._words: list[int] = []
        self._kept: list[Any] = []  # whose addresses are noted

    def entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """An entry of a dict; None stands for no entry as well."""
        self._kept += (table, key, value)
        self._entries += (id(table), id(key), id(value))

    def items(self, holder: list[Any], now: Iterable[Any]) -> None:
        """All of a list."""
        if type(holder) is not list:
            raise Unsupported("a list of another class")
        held = list(now)
        self._kept += (holder, held)
        self._places += (id(holder), -1, len(held))
        for k, item in enumerate(held):
            self._places += (id(holder), k, id(item))

    def slot(self, holder: Any, name: str, value: Any) -> None:
        """A slot of an object."""
        kind: Any = type(holder)
        self._kept += (holder, value)
        self._words += (id(holder) + _offset(kind, name), id(value))

    def empty(self, table: dict[Any, Any]) -> None:
        """A dict without entries."""
        self._kept.append(table)
        self._words += (id(table) + _SIZE, 0)

    def made(self) -> Callable[[], Any] | None:
        """A function that tells whether all is as noted; None if there can't be one here."""
        check = _check()
        if check is None:
            return None
        get = ctypes.cast(ctypes.pythonapi.PyDict_GetItem, ctypes.c_void_p).value
        tables = [np.array(x, np.int64) for x in (self._entries, self._places, self._words)]
        counts = [len(t) // size for t, size in zip(tables, (3, 3, 2), strict=True)]
        words = [w for n, t in zip(counts, tables, strict=True) for w in (n, pointer(t))]
        record = np.array([get, *words], np.int64)
        return _Held(check, pointer(record), (record, tables, self._kept)).holds


class _Held:
    """The function with its argument, and what must stay alive for it."""

    __slots__ = ("check", "kept", "record")

    def __init__(self, check: Callable, record: int, kept: Any) -> None:
        self.check, self.record, self.kept = check, record, kept

    def holds(self) -> bool:
        return self.check(self.record) is not None
