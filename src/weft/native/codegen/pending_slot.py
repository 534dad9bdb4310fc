"""Attribute reads of pending tensors that need no values, by compiled code.

Python calls ``__getattr__`` for them, which checks which code reads the tensor's slot. For code
that was checked before, this is done here; all other cases are left to the class's own method,
which is the specification. This module does not import weft's classes: they are passed to it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any

from weft.native.codegen import emit, entry, jit, records
from weft.native.codegen.emit import NULL, Emitter, LLVMValue
from weft.native.codegen.frame_layout import FrameLayout, frame_layout
from weft.native.codegen.records import Slots

_FUNCTIONS = (*("PyDict_GetItem", "PyObject_GetAttr", "PyObject_Vectorcall", "PyThreadState_Get"),)
_OBJECTS = {
    "tuple": tuple,
    "True": True,
    **{f"'{name}'": sys.intern(name) for name in ("_a", "outline")},
}

# The items of a function's ``self``, behind the table.
FALLBACK, CODES = 1, 2


class PendingSlot(Emitter):
    """``get(tensor, name)``; the label ``decline`` leaves it to the function in Python."""

    def __init__(
        self, name: str, places: dict[str, int], tensor: Slots, frames: FrameLayout
    ) -> None:
        super().__init__(name, places)
        self.tensor, self.frames = tensor, frames
        self.own, self.object, self.wanted = LLVMValue("%self"), self.argument(0), self.argument(1)
        self.leave_unless(self.test("eq", self.length, 2), "decline")
        self.write()
        self.here("decline")
        fallback = self.item(self.own, FALLBACK)
        self.give(self.call("PyObject_Vectorcall", fallback, self.given, self.length, NULL))

    def write(self) -> None:
        at = self.frames
        self.leave_unless(self.is_known(self.wanted, "'_a'"), "decline")
        stamp = self.load(self.object, self.tensor["_stamp"])
        self.leave_if(self.test("eq", stamp, NULL), "decline")
        self.leave_unless(self.is_a(stamp, "tuple"), "decline")
        frame = at.current(self)
        self.leave_if(self.test("eq", frame, NULL), "decline")
        found = self.call("PyDict_GetItem", self.item(self.own, CODES), self.load(frame, at.code))
        self.leave_if(self.test("eq", found, NULL), "decline")
        self.leave_unless(self.is_known(found, "True"), "decline")
        self.give(self.call("PyObject_GetAttr", self.item(stamp, 2), self.known("'outline'")))


def getter(tensor: type, python: Callable, codes: dict[Any, bool]) -> Any:
    """A method instead of ``__getattr__``; None where objects are not what is expected here.

    ``codes`` says of which code it is known that it reads no values.
    """
    frames = frame_layout()
    if frames is None:
        return None
    records.check_layouts()
    layout = Slots(tensor, *records.TENSOR)
    table, places = emit.address_table(_OBJECTS, _FUNCTIONS)
    name = "pending_slot"
    text = lambda: PendingSlot(name, places, layout, frames).text()
    recipe = emit.recipe((layout, frames, places), __file__, *records.SOURCES)
    (address,) = jit.engine().load(name, text if recipe else text(), [name], recipe, jit.GLUE)
    new = ctypes.pythonapi.PyInstanceMethod_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.py_object,)
    return new(entry.bound("__getattr__", address, (table, python, codes)))
