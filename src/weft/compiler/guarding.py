"""Guards that a built-in function checks: whether objects are where they were.

A step assumes that dicts, lists and slots contain certain objects. Python code that compares them
takes longer than a small step; compiled code reads them one by one. It succeeds only if each is the
identical object; otherwise Python code checks again.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import CellType
from typing import Any

from weft.native.codegen import entry, jit
from weft.native.codegen.emit import (
    BYTES,
    HEAD,
    LIST_ITEMS,
    NULL,
    Emitter,
    LLVMValue,
    address_table,
)
from weft.native.codegen.records import Slots, Unsupported
from weft.native.once import once

# The offset of a list's length, of a dict's number of entries, and of a cell's content.
_SIZE = HEAD


class GuardCheck(Emitter):
    """``holds(words, items, entries, kept)``: whether everything matches the rows of three tables.

    The tables are bytes: words (address, content), items of lists (list, where among its items,
    object), and entries of dicts (dict, key, value). Words come first, since the lengths of lists
    are among them.
    """

    def __init__(self, name: str, places: dict[str, int]) -> None:
        super().__init__(name, places)
        with self.rows(0, "ptr", "ptr") as (address, content):
            self.same(self.load(address), content)
        with self.rows(1, "ptr", "i64", "ptr") as (holder, place, item):
            self.same(self.load(self.load(holder, LIST_ITEMS), place), item)
        with self.rows(2, "ptr", "ptr", "ptr") as (table, key, value):
            found = self.call("PyDict_GetItem", table, key)
            absent, none = self.test("eq", found, NULL), self.known("None")
            self.same(self.value("ptr", f"select i1 {absent}, ptr {none}, ptr {found}"), value)
        self.give(self.hold(self.known("True")))
        self.here("changed")
        self.give(self.hold(self.known("False")))

    @contextmanager
    def rows(self, number: int, *kinds: str) -> Iterator[list[LLVMValue]]:
        """Emit a loop over the rows of an argument; the body is generated inside the block."""
        table, width = self.argument(number), 8 * len(kinds)
        words = self.at(table, BYTES)
        with self.each(self.arithmetic("sdiv", self.size(table), width)) as i:
            row = self.at(words, self.arithmetic("mul", i, width))
            yield [self.load(row, 8 * k, kind) for k, kind in enumerate(kinds)]

    def same(self, now: LLVMValue, before: LLVMValue) -> None:
        self.leave_unless(self.test("eq", now, before), "changed")


@once
def _check() -> Callable | None:
    """The built-in function, or None for unsupported object layouts."""
    word = ctypes.c_size_t.from_address
    probe, table, cell = [object(), object(), object()], {1: 2, 3: 4}, CellType(_SIZE)
    items = word(id(probe) + LIST_ITEMS).value
    fits = word(id(probe) + _SIZE).value == 3 and word(items + 16).value == id(probe[2])
    fits = fits and word(id(table) + _SIZE).value == 2
    if not fits or word(id(cell) + _SIZE).value != id(_SIZE) or jit.INTERPRETED:
        return None  # pragma: no cover - another Python
    objects = {"None": None, "True": True, "False": False}
    known, places = address_table(objects, ("PyDict_GetItem", "Py_IncRef"))
    name = "guard_holds"
    (address,) = jit.engine().load(name, GuardCheck(name, places).text(), [name], pipeline=jit.GLUE)
    return entry.bound(name, address, (known,))


@functools.cache
def _offset(kind: type, name: str) -> int:
    return Slots(kind, name)[name]


class ObjectGuard:
    """Guarded objects: entries and sizes of dicts, the contents of lists, and slots."""

    def __init__(self) -> None:
        self._words: list[int] = []
        self._items: list[int] = []
        self._entries: list[int] = []
        self._kept: list[Any] = []  # whose addresses are noted

    def entry(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """An entry of a dict; None also means that there is no entry."""
        self._kept += (table, key, value)
        self._entries += (id(table), id(key), id(value))

    def items(self, holder: list[Any], now: Iterable[Any]) -> None:
        """All of a list."""
        if type(holder) is not list:
            raise Unsupported("a list subclass")
        held = list(now)
        self._kept += (holder, held)
        self._words += (id(holder) + _SIZE, len(held))
        for k, item in enumerate(held):
            self._items += (id(holder), 8 * k, id(item))

    def variable(self, cell: CellType, value: Any) -> None:
        """A variable of an outer function."""
        self._kept += (cell, value)
        self._words += (id(cell) + _SIZE, id(value))

    def slot(self, holder: Any, name: str, value: Any) -> None:
        """A slot of an object."""
        kind: Any = type(holder)
        self._kept += (holder, value)
        self._words += (id(holder) + _offset(kind, name), id(value))

    def size(self, table: dict[Any, Any], length: int) -> None:
        """How many entries a dict has."""
        self._kept.append(table)
        self._words += (id(table) + _SIZE, length)

    def made(self) -> Callable[[], Any] | None:
        """A function that checks all guards; None if it is not supported here."""
        check = _check()
        if check is None:
            return None
        rows = (self._words, self._items, self._entries)
        tables = [struct.pack(f"{len(words)}Q", *words) for words in rows]
        return functools.partial(check, *tables, self._kept)
