"""Reading attributes that objects keep in their own tables (parameters, buffers), by compiled code.

Python calls ``__getattr__`` when an ordinary lookup has failed, which takes most of a microsecond:
the failure creates an exception that is discarded. A class whose ``__getattr__`` looks into tables
by name (modules with their parameters, buffers and submodules) gets a compiled function in its
``tp_getattro`` slot. It looks where Python would, then into the tables. Names in none of them are
left to ``__getattr__``, which is the specification.

Assigning ``__getattr__`` or ``__getattribute__`` to a class, or changing its bases, makes CPython
update that slot, for its subclasses as well. So a class has this function only while its attribute
lookup is unchanged. This module does not import weft's classes.
"""

from __future__ import annotations

import ctypes
import sys
from types import FunctionType, GetSetDescriptorType

from weft.native.codegen import emit, entry, jit
from weft.native.codegen.emit import BYTES, NULL, Emitter, LLVMValue
from weft.native.codegen.entry import TUPLE
from weft.native.codegen.records import Unsupported
from weft.native.once import once

READS = 144  # offset of ``tp_getattro``; verified by ``probe``
OWN = "@read_part.own"
FALLBACK = 1  # behind the table, among the items of what the function knows
_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyErr_Occurred", "PyDict_GetItemWithError"),
    *("PyObject_Vectorcall", "_PyObject_GenericGetAttrWithDict", "_PyObject_GetDictPtr"),
)

word = ctypes.c_size_t.from_address


class ReadPart(Emitter):
    """``read_part(object, name)``, as CPython calls it."""

    def __init__(self, name: str, places: dict[str, int], tables: tuple[str, ...]) -> None:
        super().__init__(name, places)
        of, wanted = LLVMValue("%object"), LLVMValue("%name")
        suppressed = LLVMValue("1", "i32")  # the error of what is not there is not made
        found = self.call("_PyObject_GenericGetAttrWithDict", of, wanted, NULL, suppressed)
        with self.otherwise(self.test("eq", found, NULL)):
            self.give(found)
            self.here(self.label())
        self.stop_on_error()
        place = self.call("_PyObject_GetDictPtr", of)
        self.leave_if(self.test("eq", place, NULL), "decline")
        own = self.load(place)
        self.leave_if(self.test("eq", own, NULL), "decline")
        for table in tables:
            kept = self.call("PyDict_GetItemWithError", own, self.known(f"'{table}'"))
            self.leave_if(self.test("eq", kept, NULL), "decline")
            self.leave_unless(self.is_a(kept, "dict"), "decline")
            self.hold(kept)  # comparing keys may run any code
            part = self.call("PyDict_GetItemWithError", kept, wanted)
            with self.otherwise(self.test("eq", part, NULL)):
                self.hold(part)
                self.drop(kept)
                self.give(part)
                self.here(self.label())
            self.drop(kept)
            self.stop_on_error()
        self.go("decline")
        self.here("decline")
        self.stop_on_error()
        given = self.stack(3)
        self.store(of, given, 8)
        self.store(wanted, given, 16)
        flags = LLVMValue(str(2 - (1 << 63)), "i64")  # the slot before the arguments may be used
        fallback = self.item(LLVMValue("%self"), FALLBACK)
        self.give(self.call("PyObject_Vectorcall", fallback, self.at(given, 8), flags, NULL))

    def stop_on_error(self) -> None:
        with self.otherwise(self.test("eq", self.call("PyErr_Occurred"), NULL)):
            self.give(NULL)
            self.here(self.label())

    def text(self) -> str:
        """The function as LLVM IR, and one that tells it what it knows: its own ``self``."""
        begin = (
            f"{OWN} = internal global ptr null",
            "define ptr @read_part_begin(ptr %self, ptr %given, i64 %count) {",
            f"  store ptr %self, ptr {OWN}",
            f"  %list = getelementptr i8, ptr %self, i64 {TUPLE}",
            "  %table = load ptr, ptr %list",
            f"  %words = getelementptr i8, ptr %table, i64 {BYTES}",
            f"  %hold = getelementptr ptr, ptr %words, i64 {self.places['Py_IncRef']}",
            "  %function = load ptr, ptr %hold",
            "  call void %function(ptr %self)",
            "  ret ptr %self",
            "}",
        )
        head = f"define ptr @{self.name}(ptr %object, ptr %name) {{\nentry:"
        own = f"  %self = load ptr, ptr {OWN}"
        body = (head, own, *self.variables, *self.lines, "}")
        return "\n".join((*begin, *body)) + "\n"


class PartReads:
    """The function of one base class, for that class and its subclasses."""

    def __init__(self, base: type, tables: tuple[str, ...]) -> None:
        self.base, self.python = base, vars(base)["__getattr__"]
        self.usual = probe()
        objects = {"dict": dict, **{f"'{t}'": sys.intern(t) for t in tables}}
        table, places = emit.address_table(objects, _FUNCTIONS)
        symbols = ["read_part_begin", "read_part"]
        text = lambda: ReadPart("read_part", places, tables).text()
        recipe = emit.recipe((places, tables), __file__)
        given = ("read_part", text if recipe else text(), symbols, recipe, jit.GLUE)
        begin, self.address = jit.engine().load(*given)
        self.own = (table, self.python, objects)
        # Classes read attributes so until Python ends, and the code's global holds nothing itself.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.own))
        entry.bound("begin", begin, self.own)()

    def adopt(self, cls: type) -> bool:
        """Let a class read attributes so, if it reads them as the base class does."""
        slot = word(id(cls) + READS)
        if slot.value == self.usual and self.is_alike(cls):
            slot.value = self.address
        return slot.value == self.address

    def is_alike(self, cls: type) -> bool:
        wanted = {
            "__getattr__": lambda x: x is self.python,
            "__getattribute__": lambda x: x is object.__getattribute__,
            "__dict__": lambda x: x.__class__ is GetSetDescriptorType,
        }
        own = [vars(c) for c in cls.__mro__]
        return issubclass(cls, self.base) and all(
            fits(next(names[name] for names in own if name in names))
            for name, fits in wanted.items()
        )


def probe() -> int:
    """CPython's usual function in the slot of a class with ``__getattr__``, once the slot is
    verified.
    """
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        raise Unsupported("unsupported attribute lookup of classes")

    class Usual:
        def __getattr__(self, name: str) -> str:
            return name

    class Plain:
        pass

    class Inner(Usual):
        pass

    generic = ctypes.cast(ctypes.pythonapi.PyObject_GenericGetAttr, ctypes.c_void_p).value
    slots = [word(id(cls) + READS) for cls in (Usual, Inner, Plain, object)]
    first, second, plain, root = (slot.value for slot in slots)
    if first != second or first == plain or plain != generic or root != generic:
        raise Unsupported("unsupported class layout")
    Plain.__getattr__ = Usual.__getattr__  # type: ignore[attr-defined]
    slots[1].value = plain
    Usual.__getattr__ = lambda self, name: name  # type: ignore[assignment]
    if slots[2].value != first or slots[1].value != first:
        raise Unsupported("class slots are not updated on assignment")
    return first


@once
def make(base: type, tables: tuple[str, ...]) -> PartReads | None:
    """The function for a class, or None where Python is not what it knows."""
    try:
        if vars(base)["__getattr__"].__class__ is not FunctionType:
            return None
        return PartReads(base, tables)
    except (AttributeError, Unsupported):
        return None
