"""LLVM IR of functions on Python objects, written as Python: values, calls, branches, loops.

``Emitter`` writes one function in Python's calling convention for built-ins. It gets the addresses
of Python's functions from a table (see ``weft.native.codegen.entry``), which is the first item of
the function's ``self``, a tuple. Values that live across branches and loops are kept in variables,
which LLVM turns into registers.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weft.native.codegen import entry
from weft.native.codegen.entry import TUPLE

HEAD = object.__basicsize__  # then an object's own fields begin; the last before is its type
TYPE = HEAD - 8
BYTES = bytes.__basicsize__ - 1  # where the content of a bytes object begins
LIST_ITEMS = HEAD + 8  # behind the length: where a list keeps the address of its items


class LLVMValue(str):
    """The name of an LLVM value, with its type."""

    type: str

    def __new__(cls, name: str, kind: str = "ptr") -> LLVMValue:
        made = super().__new__(cls, name)
        made.type = kind
        return made


NULL = LLVMValue("null")


def address_table(
    objects: dict[str, Any], functions: Iterable[str], others: dict[str, int] | None = None
) -> tuple[bytes, dict[str, int]]:
    """A table of what a function uses of Python, by address, and the place of each in it.

    ``functions`` are those of the C interface, ``others`` have their addresses with them. Whoever
    has the table keeps the objects alive.
    """
    known = {name: id(value) for name, value in objects.items()} | (others or {})
    for name in functions:
        known[name] = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    table = struct.pack(f"{len(known)}Q", *known.values())
    return table, {name: k for k, name in enumerate(known)}


def recipe(facts: Any, *files: str) -> str:
    """All that code is made from: facts, and the sources that write it (this one among them).

    To write the code of large functions takes ten times as long as to read it from the cache.
    Nothing where the sources can't be read.
    """
    versions = (sys.version, np.__version__, object.__basicsize__, tuple.__basicsize__)
    digest = hashlib.sha256(repr((versions, facts)).encode())
    try:
        for file in (*files, __file__, entry.__file__):
            digest.update(Path(file).read_bytes())
    except OSError:
        return ""
    return digest.hexdigest()


class Emitter:
    """One function: ``name(self, given, count)``; ``places`` says where in the table things are."""

    def __init__(self, name: str, places: dict[str, int]) -> None:
        self.name, self.places = name, places
        self.lines: list[str] = []
        self.variables: list[str] = []
        self.count = 0
        self.given, self.length = LLVMValue("%given"), LLVMValue("%count", "i64")
        self.table = self.at(self.load(LLVMValue("%self"), TUPLE), BYTES)

    # --- values ------------------------------------------------------------------------

    def fresh(self, kind: str = "ptr") -> LLVMValue:
        self.count += 1
        return LLVMValue(f"%v{self.count}", kind)

    def value(self, kind: str, text: str) -> LLVMValue:
        """The result of one instruction."""
        made = self.fresh(kind)
        self.lines.append(f"  {made} = {text}")
        return made

    def at(self, address: LLVMValue, offset: int | LLVMValue) -> LLVMValue:
        """An address so many bytes behind another."""
        return self.value("ptr", f"getelementptr i8, ptr {address}, i64 {offset}")

    def load(self, address: LLVMValue, offset: int | LLVMValue = 0, kind: str = "ptr") -> LLVMValue:
        return self.value(kind, f"load {kind}, ptr {self.at(address, offset)}")

    def store(self, what: LLVMValue, address: LLVMValue, offset: int | LLVMValue = 0) -> None:
        self.lines.append(f"  store {what.type} {what}, ptr {self.at(address, offset)}")

    def constant(self, number: int) -> LLVMValue:
        return LLVMValue(str(number), "i64")

    def arithmetic(self, what: str, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        return self.value(a.type, f"{what} {a.type} {a}, {b}")

    def test(self, what: str, a: LLVMValue, b: LLVMValue | int) -> LLVMValue:
        """A comparison: ``eq``, ``ne``, ``slt``."""
        return self.value("i1", f"icmp {what} {a.type} {a}, {b}")

    def both(self, a: LLVMValue, b: LLVMValue) -> LLVMValue:
        return self.value("i1", f"and i1 {a}, {b}")

    def either(self, *tests: LLVMValue) -> LLVMValue:
        found = tests[0]
        for test in tests[1:]:
            found = self.value("i1", f"or i1 {found}, {test}")
        return found

    def negated(self, a: LLVMValue) -> LLVMValue:
        return self.value("i1", f"xor i1 {a}, true")

    def byte(self, address: LLVMValue, offset: int | LLVMValue) -> LLVMValue:
        """A byte in memory as a number."""
        return self.value("i64", f"zext i8 {self.load(address, offset, 'i8')} to i64")

    def variable(self, kind: str, start: LLVMValue | int | str) -> LLVMValue:
        """A place for a value that changes."""
        self.count += 1
        place = LLVMValue(f"%x{self.count}")
        self.variables.append(f"  {place} = alloca {kind}")
        self.lines.append(f"  store {kind} {start}, ptr {place}")
        return place

    def empty(self) -> LLVMValue:
        """A variable that is null from the start of the function, also if that ends early."""
        place = self.stack(1)
        self.variables.append(f"  store ptr null, ptr {place}")
        return place

    def stack(self, words: int) -> LLVMValue:
        """Memory for some addresses, for the length of the call."""
        self.count += 1
        place = LLVMValue(f"%x{self.count}")
        self.variables.append(f"  {place} = alloca ptr, i32 {words}")
        return place

    # --- branches ----------------------------------------------------------------------

    def label(self) -> str:
        self.count += 1
        return f"l{self.count}"

    def here(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def go(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch(self, test: LLVMValue, yes: str, no: str) -> None:
        self.lines.append(f"  br i1 {test}, label %{yes}, label %{no}")

    def leave_if(self, test: LLVMValue, label: str) -> None:
        """Go to a label of the whole function if a test holds."""
        follows = self.label()
        self.branch(test, label, follows)
        self.here(follows)

    def leave_unless(self, test: LLVMValue, label: str) -> None:
        follows = self.label()
        self.branch(test, follows, label)
        self.here(follows)

    @contextmanager
    def when(self, test: LLVMValue) -> Iterator[None]:
        """What is written inside is done if a test holds."""
        inside, behind = self.label(), self.label()
        self.branch(test, inside, behind)
        self.here(inside)
        yield
        self.go(behind)
        self.here(behind)

    @contextmanager
    def otherwise(self, test: LLVMValue) -> Iterator[None]:
        with self.when(self.negated(test)):
            yield

    @contextmanager
    def each(self, count: LLVMValue, first: int = 0) -> Iterator[LLVMValue]:
        """What is written inside is done for every number below one."""
        counter = self.variable("i64", first)
        head, inside, behind = self.label(), self.label(), self.label()
        self.go(head)
        self.here(head)
        i = self.load(counter, 0, "i64")
        self.branch(self.test("slt", i, count), inside, behind)
        self.here(inside)
        yield i
        self.store(self.arithmetic("add", i, 1), counter)
        self.go(head)
        self.here(behind)

    # --- Python ------------------------------------------------------------------------

    def known(self, name: str) -> LLVMValue:
        """An object or a function of the table."""
        return self.load(self.table, 8 * self.places[name])

    def is_known(self, value: LLVMValue, name: str) -> LLVMValue:
        return self.test("eq", value, self.known(name))

    def call(self, name: str, *args: LLVMValue, kind: str = "ptr") -> LLVMValue:
        """Call a function of Python's C interface."""
        function = self.known(name)
        given = ", ".join(f"{a.type} {a}" for a in args)
        if kind == "void":
            self.lines.append(f"  call void {function}({given})")
            return NULL
        return self.value(kind, f"call {kind} {function}({given})")

    def hold(self, value: LLVMValue) -> LLVMValue:
        """One more reference to an object."""
        self.call("Py_IncRef", value, kind="void")
        return value

    def drop(self, value: LLVMValue) -> None:
        """One reference less; nothing for a null pointer."""
        self.call("Py_DecRef", value, kind="void")

    def type_of(self, value: LLVMValue) -> LLVMValue:
        return self.load(value, TYPE)

    def is_a(self, value: LLVMValue, *types: str) -> LLVMValue:
        """Whether an object is of exactly one of some types."""
        kind = self.type_of(value)
        return self.either(*(self.is_known(kind, name) for name in types))

    def argument(self, i: int | LLVMValue, first: int = 0) -> LLVMValue:
        """An argument of the call (a borrowed reference)."""
        if isinstance(i, int):
            return self.load(self.given, 8 * (i + first))
        place = self.arithmetic("mul", self.arithmetic("add", LLVMValue(i, "i64"), first), 8)
        return self.load(self.given, place)

    def item(self, items: LLVMValue, i: int | LLVMValue) -> LLVMValue:
        """An item of a tuple (a borrowed reference)."""
        if isinstance(i, int):
            return self.load(items, TUPLE + 8 * i)
        return self.load(items, self.arithmetic("add", self.scaled(i), TUPLE))

    def scaled(self, i: Any) -> LLVMValue:
        return self.arithmetic("mul", LLVMValue(i, "i64"), 8)

    def put(self, value: LLVMValue, items: LLVMValue, i: int | LLVMValue) -> None:
        """Place an item in a new tuple, which takes over the reference."""
        if isinstance(i, int):
            self.store(value, items, TUPLE + 8 * i)
        else:
            self.store(value, items, self.arithmetic("add", self.scaled(i), TUPLE))

    def size(self, items: LLVMValue) -> LLVMValue:
        """The length of a tuple, list or bytes object."""
        return self.load(items, HEAD, "i64")

    def first_of(self, items: LLVMValue) -> LLVMValue:
        """The first item of a list that is known not to be empty (a borrowed reference)."""
        return self.load(self.load(items, LIST_ITEMS))

    def give(self, value: LLVMValue) -> None:
        self.lines.append(f"  ret ptr {value}")

    def text(self) -> str:
        """The function as LLVM IR."""
        head = f"define ptr @{self.name}(ptr %self, ptr %given, i64 %count) {{\nentry:"
        return "\n".join((head, *self.variables, *self.lines, "}")) + "\n"
