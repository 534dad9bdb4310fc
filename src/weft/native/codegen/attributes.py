"""Frequently read attributes of tensors, by compiled code.

Python calls a property's function even if it only reads a slot. A built-in function replaces it for
plain tensors on NumPy's arrays; all other cases (subclasses, pending tensors, other devices, views
whose place in the graph may be out of date) are left to the property's own function, which is the
specification. This module does not import weft's classes: they are passed to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft.native.codegen import emit, entry, jit, records
from weft.native.codegen.emit import NULL, Emitter, LLVMValue
from weft.native.codegen.entry import DESCR, RANK, SHAPE
from weft.native.codegen.records import Slots

_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyDict_GetItem", "PyLong_FromLongLong", "PyObject_Vectorcall"),
    "PyType_GenericAlloc",
)
FALLBACK = 1  # the item of a function's ``self`` behind the table


@dataclass(frozen=True)
class Known:
    """The objects of the layer above."""

    tensor: type
    parameter: type
    size: type  # of shapes: a tuple
    dtypes: dict[Any, Any]  # by those of NumPy
    cpu: Any


class AttributeRead(Emitter):
    """``get(tensor)``; the label ``decline`` leaves it to the property's function in Python."""

    def __init__(self, name: str, places: dict[str, int], tensor: Slots) -> None:
        super().__init__(name, places)
        self.tensor, self.object = tensor, self.argument(0)
        self.leave_unless(self.test("eq", self.length, 1), "decline")
        self.leave_unless(self.is_a(self.object, "Tensor", "Parameter"), "decline")
        getattr(self, name)()
        self.here("decline")
        fallback = self.item(LLVMValue("%self"), FALLBACK)
        self.give(self.call("PyObject_Vectorcall", fallback, self.given, self.length, NULL))

    def slot(self, name: str) -> LLVMValue:
        """What a slot holds (a borrowed reference); those of pending tensors are empty."""
        value = self.load(self.object, self.tensor[name])
        self.leave_if(self.test("eq", value, NULL), "decline")
        return value

    def array(self) -> LLVMValue:
        a = self.slot("_a")
        self.leave_unless(self.is_a(a, "ndarray"), "decline")
        return a

    def shape(self) -> None:
        a = self.array()
        rank = self.value("i64", f"sext i32 {self.load(a, RANK, 'i32')} to i64")
        sizes = self.load(a, SHAPE)
        fails = self.label()
        made = self.call("PyType_GenericAlloc", self.known("Size"), rank)
        self.leave_if(self.test("eq", made, NULL), fails)
        with self.each(rank) as i:
            size = self.call("PyLong_FromLongLong", self.load(sizes, self.scaled(i), "i64"))
            self.leave_if(self.test("eq", size, NULL), fails)
            self.put(size, made, i)
        self.give(made)
        self.here(fails)
        self.drop(made)
        self.give(NULL)

    def dtype(self) -> None:
        found = self.call("PyDict_GetItem", self.known("dtypes"), self.load(self.array(), DESCR))
        self.leave_if(self.test("eq", found, NULL), "decline")
        self.give(self.hold(found))

    def device(self) -> None:
        self.array()
        self.give(self.hold(self.known("cpu")))

    def requires_grad(self) -> None:
        self.leave_unless(self.is_known(self.slot("_base"), "None"), "decline")
        free = self.is_known(self.slot("_node"), "None")
        yes, no = self.known("True"), self.known("False")
        self.give(self.hold(self.value("ptr", f"select i1 {free}, ptr {no}, ptr {yes}")))


NAMES = ("shape", "dtype", "device", "requires_grad")


def getters(known: Known, python: dict[str, Callable]) -> dict[str, Callable]:
    """Built-in functions that read attributes of tensors; ``python`` has those they stand for."""
    records.check_layouts()
    layout = Slots(known.tensor, *records.TENSOR)
    objects = {
        "Tensor": known.tensor,
        "Parameter": known.parameter,
        "Size": known.size,
        "dtypes": known.dtypes,
        "cpu": known.cpu,
        "ndarray": np.ndarray,
        "None": None,
        "True": True,
        "False": False,
    }
    table, places = emit.address_table(objects, _FUNCTIONS)

    def text() -> str:
        return "\n".join(AttributeRead(name, places, layout).text() for name in NAMES)

    recipe = emit.recipe((layout, places), __file__, *records.SOURCES)
    given = ("attributes", text if recipe else text(), list(NAMES), recipe, jit.GLUE)
    addresses = jit.engine().load(*given)
    return {
        # The objects are held beside their addresses.
        name: entry.bound(name, address, (table, python[name], tuple(objects.values())))
        for name, address in zip(NAMES, addresses, strict=True)
    }
