"""Whole calls of public functions, confirmed by compiled code before any Python code runs.

While a region is followed, Python starts functions through ``hook`` (PEP 523). If one of weft's
functions is called with the same arguments as last time at this point of the trace, its results are
recreated as pending tensors, its tokens are recorded, and the function does not run: see
``whole_calls`` for which calls may be confirmed. All other functions run as usual.

As in ``native_matching``, new objects are created first, and from the comparisons to the last
record nothing else runs. Python code that has to decide something (a different array for a leaf) is
called before everything is compared once more.
"""

from __future__ import annotations

import ctypes
import dis
import struct
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.compiler import native_matching, whole_modules
from weft.compiler.native_matching import Confirming, MatchingLayout
from weft.compiler.trace import BACKWARD
from weft.core import dtype as dt
from weft.core import selection
from weft.core.gate import EXPORTS
from weft.core.inplace import tick
from weft.core.modes import State
from weft.core.tensor import Parameter, Tensor
from weft.native.codegen import emit, entry, jit, records
from weft.native.codegen.emit import BYTES, HEAD, LIST_ITEMS, NULL, TYPE, Emitter, LLVMValue
from weft.native.codegen.frame_layout import FRAME_OF, FrameLayout, frame_layout
from weft.native.codegen.records import BASE, Slots, Unsupported
from weft.native.once import lazy, once

# How an argument is compared: with a result, with a leaf that was met, with an argument before it,
# as a leaf that is met here, by its value, by its address.
OF_RESULT, OF_LEAF, OF_ARGUMENT, NEW_LEAF, OF_VALUE, OF_ADDRESS = range(6)
FLAT = 64  # arguments, items of lists and tensors of a module counted, that are compared
SINGLE = -1  # instead of a length: an argument that is not a list
DEEP = 1 << 18  # bytes of the stack; calls nested deeper run without the hook

# The items of a call's tuple, after the table: see ``whole_calls.Whole``.
CODE, LENGTHS, SEQUENCES, RECIPE, OBJECTS, TOKENS, AFTER, KINDS, NUMBERS, HOME = range(1, 11)
GRAD, GIVEN, MEETING, SLOTS, RESULTS, SORT, CHANGE, SAME, TAKE, WAITS = range(11, 21)
GUARDS, TENSORS, MODULE, GLOBALS, OUTERMOST = range(21, 26)
# Of the in-place change with which a call ends: see ``whole_calls.change_items``.
TOKEN, BEHIND, OF_LEAF_NUMBER, NUMBER, FIRST, KIND, NAME, LINES, INSTRUCTION = range(9)
# Prepared objects: entries of ``hidden`` and ``bumped``, the stamp, the mark.
ENTRY, BUMP, STAMP, MARK = range(4)
KEPT_CHANGES = 9  # of the length of a version cell, as in ``inplace.note_change``
# The hook's: functions that learn, the module with the default dtype, the code of
# ``Tensor.backward``, and the listeners to backward passes.
BEGIN, END, DEFAULTS, BACKWARD_CODE, WATCHERS = range(1, 6)
# The words of the hook's memory.
THREAD, REGION, OWN, STACK, BUSY, NOW = range(0, 48, 8)

STATE = "@follow.state"
# A mark on a code object: one more than the number of arguments, whether a result is put on the
# stack, and where the return instruction is.
PUSHES, EXIT = 1 << 16, 17
_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyList_New", "PyList_SetItem", "PyList_Append", "PyTuple_New"),
    *("PyLong_FromVoidPtr", "PySet_Add", "PyDict_Size", "PyType_GenericAlloc", "PyDict_GetItem"),
    *("PyObject_Vectorcall", "PyObject_RichCompareBool", "PyErr_Fetch", "PyErr_Restore"),
    *("PyThreadState_Get", "PyInterpreterState_Get", "_PyInterpreterState_GetEvalFrameFunc"),
    *("_PyInterpreterState_SetEvalFrameFunc", "_PyEval_EvalFrameDefault", "PyDict_SetItem"),
    *("PyLong_AsLongLong", "PyLong_FromLongLong", "PyList_SetSlice"),
)
_OBJECTS = {
    "Tensor": Tensor, "EXPORTS": EXPORTS, "None": None, "True": True, "False": False, "0": 0,
    "tuple": tuple, "list": list, "dict": dict, "slice": slice, "float": float, "int": int,
    "ref": weakref.ref, "'_default'": sys.intern("_default"), "Parameter": Parameter,
    "ndarray": np.ndarray, "tick": tick, "''": "", "BACKWARD": BACKWARD,
}  # fmt: skip


class Same(Emitter):
    """``same(a, b)``: whether two plain values are equal, and of one class; or null.

    Null also in cases that are left to ``trace.same``, the specification.
    """

    def __init__(self, name: str, places: dict[str, int]) -> None:
        super().__init__(name, places)
        a, b = self.argument(0), self.argument(1)
        self.leave_if(self.test("eq", a, b), "yes")
        self.leave_unless(self.test("eq", self.type_of(a), self.type_of(b)), "no")
        with self.when(self.is_a(a, "float")):
            bits = [self.load(x, HEAD, "i64") for x in (a, b)]
            self.branch(self.test("eq", *bits), "yes", "no")
            self.here(self.label())
        with self.when(self.is_a(a, "int")):
            equal = self.call("PyObject_RichCompareBool", a, b, LLVMValue("2", "i32"), kind="i32")
            self.branch(self.test("eq", equal, 1), "yes", "no")
            self.here(self.label())
        for name_of, items in (("tuple", None), ("list", LIST_ITEMS)):
            with self.when(self.is_a(a, name_of)):
                sizes = [self.size(x) for x in (a, b)]
                self.leave_unless(self.test("eq", *sizes), "no")
                with self.each(sizes[0]) as k:
                    pair = [
                        self.item(x, k)
                        if items is None
                        else self.load(self.load(x, items), self.scaled(k))
                        for x in (a, b)
                    ]
                    self.need_same(*pair)
                self.go("yes")
                self.here(self.label())
        with self.when(self.is_a(a, "slice")):
            for place in range(HEAD, HEAD + 24, 8):
                self.need_same(*(self.load(x, place) for x in (a, b)))
            self.go("yes")
            self.here(self.label())
        with self.when(self.is_a(a, "dict")):
            sizes = [self.call("PyDict_Size", x, kind="i64") for x in (a, b)]
            empty = self.both(self.test("eq", sizes[0], 0), self.test("eq", sizes[1], 0))
            self.branch(empty, "yes", "no")
            self.here(self.label())
        self.go("no")
        self.here("yes")
        self.give(LLVMValue("%self"))  # anything but null
        self.here("no")
        self.give(NULL)

    def need_same(self, a: LLVMValue, b: LLVMValue) -> None:
        given = self.stack(2)
        self.store(a, given)
        self.store(b, given, 8)
        found = self.value("ptr", f"call ptr @{self.name}(ptr %self, ptr {given}, i64 2)")
        self.leave_if(self.test("eq", found, NULL), "no")


class WholeCall(Confirming):
    """``whole_call(region, locals)``: the results of a call, if it is the expected one; or None."""

    def write(self) -> None:
        self.locals, self.flat = self.argument(1), self.stack(FLAT)
        self.slots = self.item(self.own, SLOTS)
        self.check_module()
        self.flatten()
        results = self.make_results()
        self.take_copies(results)
        self.prepare_change(results)
        left, which = self.variable("i64", self.size(self.slots)), self.variable("i64", 0)
        self.go("again")
        self.here("again")
        for name, known in (("at", self.item(self.own, HOME)), ("busy", self.known("False"))):
            self.leave_unless(self.test("eq", self.of_region(name), known), "decline")
        self.check_module()
        with self.each(self.size(self.item(self.own, OBJECTS))) as i:
            self.compare(i)
        with self.each(self.size(self.slots)) as k:
            self.store(k, which)
            self.compare_leaf(k)
        self.note(results)
        self.count_call()
        with self.when(self.changes()):
            self.change(results)
        self.give_results(results)
        self.here("soften")
        self.soften(left, self.load(which, 0, "i64"))

    def words(self, place: int) -> LLVMValue:
        return self.at(self.item(self.own, place), BYTES)

    def word(self, address: LLVMValue, i: Any) -> LLVMValue:
        return self.load(address, self.scaled(i), "i64")

    def argument_at(self, i: Any) -> LLVMValue:
        return self.load(self.flat, self.scaled(i))

    def python(self, function: LLVMValue, *args: LLVMValue) -> LLVMValue:
        """Call a Python function; a new reference."""
        given = self.stack(len(args) + 1)
        for k, x in enumerate(args):
            self.store(x, given, 8 + 8 * k)
        flags = LLVMValue(str(len(args) - (1 << 63)), "i64")  # the slot before them may be used
        return self.need(self.call("PyObject_Vectorcall", function, self.at(given, 8), flags, NULL))

    def need_true(self, answer: LLVMValue) -> None:
        self.drop(answer)  # True and False are immortal here
        self.leave_unless(self.is_known(answer, "True"), "decline")

    def check_module(self) -> None:
        """Whether the called module, if it is one, is unmodified: see ``whole_modules``."""
        module = self.item(self.own, MODULE)
        with self.otherwise(self.is_known(module, "None")):
            known = self.load(self.words(RECIPE), 8)  # its address
            self.leave_unless(self.test("eq", self.load(self.locals), known), "decline")
        guards, count = self.words(GUARDS), self.count_words(GUARDS, 3)
        with self.each(count) as i:
            guard = self.at(guards, self.arithmetic("mul", i, 24))
            way, number = (self.load(guard, k, "i64") for k in (0, 16))
            address = self.load(guard, 8)
            found = self.variable("i64", 0)
            for code, state in (
                (whole_modules.CLASS_OF, lambda: self.load(address, TYPE, "i64")),
                (whole_modules.ATTRIBUTES, lambda: self.dict_version(self.attributes(address))),
                (whole_modules.DICTIONARY, lambda: self.dict_version(address)),
                (whole_modules.CLASS, lambda: self.class_version(address)),
                (whole_modules.WORD, lambda: self.load(address, 0, "i64")),
            ):
                with self.when(self.test("eq", way, code)):
                    self.store(state(), found)
            same = self.test("eq", self.load(found, 0, "i64"), number)
            self.leave_unless(same, "decline")

    def count_call(self) -> None:
        """Count the outermost call of a module: ``Module.__call__``."""
        with self.when(self.is_known(self.item(self.own, OUTERMOST), "True")):
            now, state = self.load(LLVMValue(STATE), NOW), self.layout.state
            with self.when(self.is_known(self.load(now, state["scope"]), "''")):
                before = self.load(now, state["calls"])
                one = self.call("PyLong_AsLongLong", before, kind="i64")
                later = self.call("PyLong_FromLongLong", self.arithmetic("add", one, 1))
                self.store(self.need(later), now, state["calls"])
                self.drop(before)

    def attributes(self, address: LLVMValue) -> LLVMValue:
        """The dictionary of an object; the call is declined if there is none."""
        found = self.load(address, whole_modules.MANAGED)
        self.leave_if(self.test("eq", found, NULL), "decline")
        return found

    def dict_version(self, address: LLVMValue) -> LLVMValue:
        return self.load(address, whole_modules.DICT_VERSION, "i64")

    def class_version(self, address: LLVMValue) -> LLVMValue:
        narrow = self.load(address, whole_modules.CLASS_VERSION, "i32")
        return self.value("i64", f"zext i32 {narrow} to i64")

    def count_words(self, place: int, each: int = 1) -> LLVMValue:
        return self.arithmetic("sdiv", self.size(self.item(self.own, place)), 8 * each)

    def flatten(self) -> None:
        """The arguments, the items of those that are lists, and the tensors of a module."""
        lengths, classes = self.words(LENGTHS), self.item(self.own, SEQUENCES)
        at = self.variable("i64", 0)

        def push(x: LLVMValue) -> None:
            k = self.load(at, 0, "i64")
            self.store(x, self.flat, self.scaled(k))
            self.store(self.arithmetic("add", k, 1), at)

        with self.each(self.size(classes)) as i:
            x = self.load(self.locals, self.scaled(i))
            self.leave_if(self.test("eq", x, NULL), "decline")
            length = self.word(lengths, i)
            single = self.test("eq", length, SINGLE)
            with self.when(single):
                push(x)
            with self.otherwise(single):
                cls = self.item(classes, i)
                self.leave_unless(self.test("eq", self.type_of(x), cls), "decline")
                self.leave_unless(self.test("eq", self.size(x), length), "decline")
                with self.each(length) as k:
                    items = self.variable("ptr", self.at(x, entry.TUPLE))
                    with self.when(self.is_known(cls, "list")):
                        self.store(self.load(x, LIST_ITEMS), items)
                    push(self.load(self.load(items), self.scaled(k)))
        with self.each(self.count_words(TENSORS)) as i:
            push(self.load(self.words(TENSORS), self.scaled(i)))

    def make_results(self) -> LLVMValue:
        """A tuple that ``made`` owns: pending tensors, and slots for a list of copies of memory and
        for the objects that record an in-place change.
        """
        kinds, numbers = self.item(self.own, KINDS), self.item(self.own, NUMBERS)
        count = self.size(kinds)
        results = self.need(self.call("PyTuple_New", self.arithmetic("add", count, 2)))
        self.store(results, self.made)
        with self.each(count) as k:
            kind = self.item(kinds, k)
            nobodys = self.is_known(kind, "None")  # results that the function does not return
            with self.when(nobodys):
                self.put(self.hold(kind), results, k)
            with self.otherwise(nobodys):
                self.put_pending(results, k, self.item(numbers, k), kind)
        return results

    def copies(self, results: LLVMValue) -> LLVMValue:
        return self.item(results, self.size(self.item(self.own, KINDS)))

    def take_copies(self, results: LLVMValue) -> None:
        """Copy memory from outside, which may change before values are computed."""
        take = self.item(self.own, TAKE)
        with self.otherwise(self.is_known(take, "None")):
            place = self.size(self.item(self.own, KINDS))
            self.put(self.need(self.call("PyList_New", self.constant(0))), results, place)
            with self.each(self.size(self.slots)) as k:
                outside, copies = self.is_exported(k), self.copies(results)
                with self.otherwise(outside):
                    self.append(copies, self.known("None"))
                with self.when(outside):
                    x = self.argument_at(self.word(self.words(MEETING), k))
                    copy = self.python(take, self.item(self.slots, k), x)
                    failed = self.call("PyList_Append", copies, copy, kind="i32")
                    self.drop(copy)
                    self.leave_unless(self.test("eq", failed, 0), "fail")
                    self.leave_if(self.is_known(copy, "None"), "decline")

    def is_exported(self, k: LLVMValue) -> LLVMValue:
        outside = self.load(self.item(self.slots, k), self.layout.leaf["outside"])
        return self.is_known(outside, "True")

    def changes(self) -> LLVMValue:
        """Whether the call ends with an in-place change."""
        return self.negated(self.is_known(self.item(self.own, CHANGE), "None"))

    def of_change(self, place: int) -> LLVMValue:
        return self.item(self.item(self.own, CHANGE), place)

    def prepare_change(self, results: LLVMValue) -> None:
        """Create the objects that record an in-place change, and find out whether it can be
        deferred.
        """
        with self.when(self.changes()):
            x, region = self.load(self.flat), self.region
            made = self.need(self.call("PyTuple_New", self.constant(4)))
            place = self.arithmetic("add", self.size(self.item(self.own, KINDS)), 1)
            self.put(made, results, place)
            for k, items in (
                (ENTRY, (x, self.of_change(NUMBER))),
                (BUMP, (x, self.known("True"))),
                (STAMP, (region, self.of_change(FIRST), self.of_change(KIND))),
                (MARK, (None, *map(self.of_change, (NAME, LINES, INSTRUCTION)), None)),
            ):
                noted = self.need(self.call("PyTuple_New", self.constant(len(items))))
                self.put(noted, made, k)
                for i, item in enumerate(items):
                    if item is not None:
                        self.put(self.hold(item), noted, i)
            self.leave_unless(self.is_a(x, "Tensor", "Parameter"), "decline")
            cell = self.load(x, self.layout.tensor["_vc"])
            self.leave_unless(
                self.is_a(cell, "list"), "decline"
            )  # or its version is counted differently
            self.require_deferrable(x)

    def require_deferrable(self, x: LLVMValue) -> None:
        """Continue only if a change can be deferred: as ``Region.can_defer``, which is called if
        unsure.

        References that Python code itself holds while it counts are subtracted.
        """
        ask, done = self.label(), self.label()
        number = self.load(self.at(self.of_change(OF_LEAF_NUMBER), BYTES), 0, "i64")
        self.leave_if(self.test("slt", number, 0), done)  # a result
        array = self.load(x, self.layout.tensor["_a"])
        self.leave_if(self.test("eq", array, NULL), ask)
        self.leave_unless(self.is_a(array, "ndarray"), ask)
        arrays, holders = self.of_region("arrays"), self.variable("i64", 1)
        with self.when(self.test("slt", number, self.size(arrays))):
            self.leave_unless(self.test("eq", self.element(arrays, number), array), ask)
            self.store(self.constant(2), holders)
        most = self.load(holders, 0, "i64")
        self.leave_if(self.test("sgt", self.load(array, 0, "i64"), most), ask)
        owner = self.load(array, BASE)
        self.leave_if(self.test("eq", owner, NULL), done)
        self.leave_unless(self.is_a(owner, "ndarray"), ask)
        self.leave_unless(self.test("eq", self.load(owner, BASE), NULL), ask)
        self.branch(self.test("eq", self.load(owner, 0, "i64"), 1), done, ask)
        self.here(ask)
        waits = self.item(self.own, WAITS)
        self.need_true(self.python(waits, self.region, self.of_change(TOKEN), x))
        self.go(done)
        self.here(done)

    def compare(self, i: LLVMValue) -> None:
        recipe = self.at(self.words(RECIPE), self.arithmetic("mul", LLVMValue(i, "i64"), 16))
        way, number = (self.load(recipe, k, "i64") for k in (0, 8))
        x = self.argument_at(i)
        for code, found in (
            (OF_RESULT, lambda: self.element(self.of_region("handles"), number)),
            (OF_LEAF, lambda: self.element(self.of_region("leaves"), number)),
            (OF_ARGUMENT, lambda: self.argument_at(number)),
        ):
            with self.when(self.test("eq", way, code)):
                self.leave_unless(self.test("eq", found(), x), "decline")
        with self.when(self.test("eq", way, OF_VALUE)):
            wanted = self.item(self.item(self.own, OBJECTS), i)
            with self.otherwise(self.test("eq", x, wanted)):
                self.compare_values(x, wanted)

    def compare_values(self, x: LLVMValue, wanted: LLVMValue) -> None:
        given = self.stack(2)
        self.store(x, given)
        self.store(wanted, given, 8)
        found = self.value("ptr", f"call ptr @same(ptr %self, ptr {given}, i64 2)")
        with self.when(self.test("eq", found, NULL)):
            self.need_true(self.python(self.item(self.own, SAME), x, wanted))

    def compare_leaf(self, k: LLVMValue) -> None:
        """Whether an argument is the same leaf as last time, in the same memory, not met yet."""
        index = self.word(self.words(MEETING), k)
        x, slot = self.argument_at(index), self.item(self.slots, k)
        leaf, tensor = self.layout.leaf, self.layout.tensor
        same = self.test("eq", self.type_of(x), self.load(slot, leaf["cls"]))
        self.leave_unless(same, "decline")
        array = self.load(x, tensor["_a"])
        self.leave_if(self.test("eq", array, NULL), "decline")  # pending
        with self.otherwise(self.is_exported(k)):
            self.compare_memory(x, array, slot, "soften")
            leaves = self.of_region("leaves")
            with self.each(self.size(leaves)) as j:
                self.leave_if(self.test("eq", self.element(leaves, j), x), "decline")
            with self.each(k) as j:
                other = self.argument_at(self.word(self.words(MEETING), j))
                self.leave_if(self.test("eq", other, x), "decline")

    def soften(self, left: LLVMValue, k: LLVMValue) -> None:
        """Ask Python whether a different tensor, or one in different memory, can be the leaf."""
        tries = self.load(left, 0, "i64")
        self.leave_if(self.test("eq", tries, 0), "decline")
        self.store(self.arithmetic("sub", tries, 1), left)
        x = self.argument_at(self.word(self.words(MEETING), k))
        self.need_true(self.python(self.known("fits"), self.item(self.slots, k), x))
        self.go("again")

    def note(self, results: LLVMValue) -> None:
        tensor = self.layout.tensor
        with self.each(self.size(self.slots)) as k:
            x = self.argument_at(self.word(self.words(MEETING), k))
            self.append(self.of_region("leaves"), x)
            array = self.variable("ptr", self.load(x, tensor["_a"]))
            with self.when(self.is_exported(k)):
                self.store(self.element(self.copies(results), k), array)
            self.append(self.of_region("arrays"), self.load(array))
            self.append(self.of_region("nodes"), self.load(x, tensor["_node"]))
            identity = self.need(self.call("PyLong_FromVoidPtr", x))
            failed = self.call("PySet_Add", self.of_region("met"), identity, kind="i32")
            self.drop(identity)
            self.leave_unless(self.test("eq", failed, 0), "fail")
        for place, items in ((GIVEN, "numbers"), (TOKENS, "path")):
            noted = self.item(self.own, place)
            with self.each(self.size(noted)) as k:
                self.append(self.of_region(items), self.item(noted, k))
        with self.each(self.size(self.item(self.own, KINDS))) as k:
            self.append(self.of_region("handles"), self.item(results, k))
        before = self.of_region("at")
        self.store(self.hold(self.item(self.own, AFTER)), self.region, self.layout.region["at"])
        self.drop(before)

    def change(self, results: LLVMValue) -> None:
        """Record the in-place change with which the call ends: ``Region.change_later``."""
        x, slots = self.load(self.flat), self.layout.tensor
        made = self.item(results, self.arithmetic("add", self.size(self.item(self.own, KINDS)), 1))
        handles, hidden = self.of_region("handles"), self.of_region("hidden")
        number = self.load(self.at(self.of_change(OF_LEAF_NUMBER), BYTES), 0, "i64")
        identity = self.need(self.call("PyLong_FromVoidPtr", x))
        of_result = self.test("slt", number, 0)
        with self.when(of_result):
            place, none = self.arithmetic("xor", number, -1), self.hold(self.known("None"))
            self.call("PyList_SetItem", handles, place, none, kind="i32")
        with self.otherwise(of_result):
            self.call("PyDict_SetItem", hidden, identity, self.item(made, ENTRY), kind="i32")
            array = self.load(x, slots["_a"])
            self.store(NULL, x, slots["_a"])
            self.drop(array)  # the region has it
        before = self.load(x, slots["_stamp"])
        self.store(self.hold(self.item(made, STAMP)), x, slots["_stamp"])
        self.drop(before)
        self.append(handles, x)
        found = self.call("PyDict_GetItem", hidden, identity)
        self.drop(identity)
        with self.when(self.test("ne", found, NULL)):
            self.append(self.of_region("bumped"), self.item(made, BUMP))
        self.count_change(self.load(x, slots["_vc"]), self.item(made, MARK))
        self.go_behind(self.of_change(TOKEN), self.of_change(BEHIND))

    def count_change(self, cell: LLVMValue, mark: LLVMValue) -> None:
        """Count a change in a version cell: ``inplace.note_change``."""
        one = self.call("PyLong_AsLongLong", self.first_of(cell), kind="i64")
        version = self.call("PyLong_FromLongLong", self.arithmetic("add", one, 1))
        self.need(version)
        self.put(self.hold(version), mark, 0)
        self.put(self.python(self.known("tick")), mark, 4)
        self.call("PyList_SetItem", cell, self.constant(0), version, kind="i32")
        self.append(cell, mark)
        with self.when(self.test("sgt", self.size(cell), KEPT_CHANGES)):
            ends = self.constant(1), self.constant(2)
            self.call("PyList_SetSlice", cell, *ends, NULL, kind="i32")

    def go_behind(self, token: LLVMValue, after: LLVMValue) -> None:
        self.append(self.of_region("path"), token)
        before = self.of_region("at")
        self.store(self.hold(after), self.region, self.layout.region["at"])
        self.drop(before)

    def give_results(self, results: LLVMValue) -> None:
        sort, asked = self.item(self.own, SORT), self.words(RESULTS)

        def result(k: Any) -> LLVMValue:
            number = self.word(asked, k)
            found = self.variable("ptr", "null")
            given = self.test("slt", number, 0)
            with self.when(given):
                self.store(self.argument_at(self.arithmetic("xor", number, -1)), found)
            with self.otherwise(given):
                self.store(self.item(results, number), found)
            return self.hold(self.load(found))

        with self.when(self.is_known(sort, "None")):
            only = result(0)
            self.drop(results)
            self.give(only)
            self.here(self.label())
        count = self.count_words(RESULTS)
        several = self.need(self.call("PyTuple_New", count))
        with self.each(count) as k:
            self.put(result(k), several, k)
        self.drop(results)
        self.store(several, self.made)
        with self.when(self.is_known(sort, "tuple")):
            self.give(several)
            self.here(self.label())
        made = self.python(sort, several)
        self.drop(several)
        self.give(made)


class Hook(Emitter):
    """``hook(thread, frame, flag)``: the frame evaluation function."""

    def __init__(
        self, name: str, places: dict[str, int], layout: MatchingLayout, frames: FrameLayout,
        code: int, extra: int,
    ) -> None:  # fmt: skip
        super().__init__(name, places)
        self.layout, self.frames, self.own = layout, frames, LLVMValue("%self")
        state, frame, thread = LLVMValue(STATE), LLVMValue("%frame"), LLVMValue("%thread")
        function = self.function = self.load(frame, frames.code)
        about = self.load(function, code)
        self.leave_if(self.test("eq", about, NULL), "run")
        marks = self.load(about, 0, "i64")
        self.leave_unless(self.test("slt", self.constant(extra), marks), "run")
        mark = self.mark = self.load(about, 8 + 8 * extra, "i64")
        self.leave_if(self.test("eq", mark, 0), "run")  # not one of weft's functions
        count = self.arithmetic("sub", self.arithmetic("and", mark, PUSHES - 1), 1)
        self.leave_unless(self.test("eq", self.load(state, THREAD), thread), "run")
        self.leave_unless(self.value("i1", "icmp eq i32 %flag, 0"), "run")
        for tracing in self.watchers(thread):
            self.leave_unless(self.test("eq", tracing, 0), "run")
        region, now = self.load(state, REGION), self.load(state, NOW)
        self.check(region, now)
        point = self.load(region, layout.region["at"])
        grad = self.load(now, layout.state["grad"])
        with self.when(self.test("eq", function, self.item(self.own, BACKWARD_CODE))):
            self.go_back(region, point, grad, self.at(frame, frames.locals))
            self.go("run")
            self.here(self.label())
        known = self.load(point, layout.point["whole"])
        given = self.stack(2)
        self.store(region, given)
        self.store(self.at(frame, frames.locals), given, 8)
        with self.each(self.size(known)) as k:
            call = self.load(self.load(known, LIST_ITEMS), self.scaled(k))
            same = self.test("eq", self.item(call, CODE), function)
            same = self.both(same, self.test("eq", self.item(call, GRAD), grad))
            with self.when(same):
                made = self.value("ptr", f"call ptr @whole_call(ptr {call}, ptr {given}, i64 2)")
                with self.otherwise(self.is_known(made, "None")):
                    self.finish(made)
                    self.here(self.label())
                self.drop(made)
                still = self.test("eq", self.load(region, layout.region["at"]), point)
                self.leave_unless(still, "run")
                same_list = self.load(point, layout.point["whole"])
                self.leave_unless(self.test("eq", same_list, known), "run")
        self.learn(state, region, function, count, frame)
        self.here("run")
        self.run_further_in(state, frame)

    def check(self, region: LLVMValue, now: LLVMValue) -> None:
        """Continue only if no mode is active that regions do not support."""
        layout = self.layout
        no, none = self.known("False"), self.known("None")
        default = self.call(
            "PyDict_GetItem", self.item(self.own, DEFAULTS), self.known("'_default'")
        )
        recorders = self.load(now, layout.state["recorders"])
        for one, other in (
            (self.load(region, layout.region["learning"]), no),
            (self.load(region, layout.region["busy"]), no),
            (self.load(now, layout.state["unusual"]), no),
            (self.load(now, layout.state["backward"]), none),
            (self.load(now, layout.state["autocast"]), none),
            (self.load(region, layout.region["default"]), default),
            (self.size(recorders), self.constant(1)),
        ):
            self.leave_unless(self.test("eq", one, other), "run")
        self.leave_unless(self.test("eq", self.item(recorders, 0), region), "run")
        longest = self.load(self.load(region, layout.region["room"]), BYTES, "i64")
        path = self.load(region, layout.region["path"])
        self.leave_unless(self.test("slt", self.size(path), longest), "run")

    def go_back(
        self, region: LLVMValue, point: LLVMValue, grad: LLVMValue, given: LLVMValue
    ) -> None:
        """Confirm ``root.backward()``, as ``Region.confirms_pass`` does later.

        A pass with arguments, or with listeners, runs.
        """
        layout, none = self.layout, self.known("None")
        watched = self.size(self.item(self.own, WATCHERS))
        self.leave_unless(self.test("eq", watched, 0), "run")
        for i, usual in enumerate((none, none, self.known("False"), none), 1):
            self.leave_unless(self.test("eq", self.load(given, 8 * i), usual), "run")
        following = self.load(point, layout.point["next"])
        with self.each(self.size(following)) as k:
            token = self.load(self.load(following, LIST_ITEMS), self.scaled(k))
            quick = self.load(token, layout.token["quick"])
            fits = self.test("ne", quick, none)
            for name, wanted in (("kind", self.known("BACKWARD")), ("grad", grad)):
                same = self.test("eq", self.load(token, layout.token[name]), wanted)
                fits = self.both(fits, same)
            with self.when(fits):
                done = self.python(quick, region, self.load(given))
                self.leave_if(self.test("eq", done, NULL), "fail")
                self.drop(done)  # True and None are immortal here
                with self.when(self.is_known(done, "True")):
                    self.finish(self.hold(none))
                    self.here(self.label())
                still = self.test("eq", self.load(region, layout.region["at"]), point)
                self.leave_unless(still, "run")

    def learn(
        self,
        state: LLVMValue,
        region: LLVMValue,
        function: LLVMValue,
        count: LLVMValue,
        frame: LLVMValue,
    ) -> None:
        """Run the function and observe it, if it was not given up at this point."""
        self.leave_unless(self.test("eq", self.load(state, BUSY, "i64"), 0), "run")
        point = self.load(region, self.layout.region["at"])
        tried = self.load(point, self.layout.point["tried"])
        with self.each(self.size(tried)) as k:
            item = self.load(self.load(tried, LIST_ITEMS), self.scaled(k))
            self.leave_if(self.test("eq", item, function), "run")
        args = self.call("PyTuple_New", count)
        self.leave_if(self.test("eq", args, NULL), "fail")
        with self.each(count) as k:
            x = self.load(self.at(frame, self.frames.locals), self.scaled(k))
            found = self.variable("ptr", x)
            with self.when(self.test("eq", x, NULL)):
                self.store(self.known("None"), found)
            self.put(self.hold(self.load(found)), args, k)
        self.store(self.constant(1), state, BUSY)
        begun = self.python(self.item(self.own, BEGIN), region, function, args)
        self.drop(args)
        with self.when(self.is_known(begun, "False")):
            self.drop(begun)
            self.store(self.constant(0), state, BUSY)
            self.go("run")
            self.here(self.label())
        result = self.variable("ptr", "null")
        with self.when(self.test("ne", begun, NULL)):
            self.drop(begun)
            self.store(self.default(frame), result)
            self.end(result)
        self.store(self.constant(0), state, BUSY)
        self.give(self.load(result))
        self.here("fail")
        self.give(NULL if self.frames.stack is None else self.default(frame, "1"))

    def watchers(self, thread: LLVMValue) -> list[LLVMValue]:
        """What is zero unless a tracer or profiler is on."""
        if self.frames.traced:
            return [self.load(thread, offset, "i64") for offset in self.frames.traced]
        return [self.byte(self.load(thread, self.frames.running[0]), 0)]

    def finish(self, result: LLVMValue) -> None:
        """Give what the function would have given.

        From Python 3.12 on, who runs a frame also ends it. So the frame goes on at one of the
        function's own return instructions, with the result on its stack.
        """
        frames, frame = self.frames, LLVMValue("%frame")
        if frames.stack is None:
            self.give(result)
            return
        place = self.arithmetic("lshr", self.mark, EXIT)
        place = self.arithmetic("add", place, frames.first - frames.ahead)
        self.store(self.at(self.function, place), frame, frames.instruction)
        pushes = self.test("ne", self.arithmetic("and", self.mark, PUSHES), 0)
        with self.when(pushes):
            height = self.load(frame, frames.stack, "i32")
            index = self.value("i64", f"sext i32 {height} to i64")
            self.store(result, self.at(frame, frames.locals), self.scaled(index))
            self.store(self.arithmetic("add", height, 1), frame, frames.stack)
        with self.otherwise(pushes):
            self.drop(result)  # None, which the instruction itself gives
        self.give(self.default(frame))

    def end(self, result: LLVMValue) -> None:
        """Report the function's result, or None with the error kept aside."""
        error = self.stack(3)
        places = [self.at(error, 8 * k) for k in range(3)]
        self.call("PyErr_Fetch", *places, kind="void")
        found = self.variable("ptr", self.load(result))
        with self.when(self.test("eq", self.load(result), NULL)):
            self.store(self.known("None"), found)
        told = self.python(self.item(self.own, END), self.load(found))
        failed = self.test("eq", told, NULL)
        with self.when(failed):
            self.drop(self.load(result))
            self.store(NULL, result)
            for place in places:
                self.drop(self.load(place))
        with self.otherwise(failed):
            self.drop(told)
            self.call("PyErr_Restore", *(self.load(p) for p in places), kind="void")

    def python(self, function: LLVMValue, *args: LLVMValue) -> LLVMValue:
        given = self.stack(len(args) + 1)
        for k, x in enumerate(args):
            self.store(x, given, 8 + 8 * k)
        flags = LLVMValue(str(len(args) - (1 << 63)), "i64")
        return self.call("PyObject_Vectorcall", function, self.at(given, 8), flags, NULL)

    def default(self, frame: LLVMValue, flag: str = "%flag") -> LLVMValue:
        run = self.known("_PyEval_EvalFrameDefault")
        return self.value("ptr", f"call ptr {run}(ptr %thread, ptr {frame}, i32 {flag})")

    def run_further_in(self, state: LLVMValue, frame: LLVMValue) -> None:
        """Run the function. In deep recursion, Python runs functions without consuming the C
        stack.
        """
        here = self.value("i64", f"ptrtoint ptr {self.stack(1)} to i64")
        used = self.arithmetic("sub", self.load(state, STACK, "i64"), here)
        ours = self.test("eq", self.load(state, THREAD), LLVMValue("%thread"))
        with self.when(self.both(ours, self.test("sgt", used, DEEP))):
            self.set_function(self.known("_PyEval_EvalFrameDefault"))
            result = self.default(frame)
            with self.when(self.test("ne", self.load(state, THREAD), NULL)):
                self.set_function(LLVMValue("@hook"))
            self.give(result)
            self.here(self.label())
        self.give(self.default(frame))

    def set_function(self, function: LLVMValue) -> None:
        interpreter = self.call("PyInterpreterState_Get")
        self.call("_PyInterpreterState_SetEvalFrameFunc", interpreter, function, kind="void")

    def text(self) -> str:
        """The function as LLVM IR, with the hook's memory."""
        memory = f"{STATE} = internal global [6 x i64] zeroinitializer\n"
        head = f"define ptr @{self.name}(ptr %thread, ptr %frame, i32 %flag) {{\nentry:"
        own = f"  %self = load ptr, ptr getelementptr (i8, ptr {STATE}, i64 {OWN})"
        body = (head, own, *self.variables, *self.lines, "}")
        return memory + "\n".join(body) + "\n"


class Switch(Emitter):
    """``switch(region, now)``: install the hook; False if another one is installed."""

    def __init__(self, name: str, places: dict[str, int]) -> None:
        super().__init__(name, places)
        state = LLVMValue(STATE)
        interpreter = self.call("PyInterpreterState_Get")
        function = self.call("_PyInterpreterState_GetEvalFrameFunc", interpreter)
        taken = self.test("ne", self.load(state, THREAD), NULL)
        usual = self.is_known(function, "_PyEval_EvalFrameDefault")
        self.leave_if(self.either(taken, self.negated(usual)), "no")
        stack = self.value("i64", f"ptrtoint ptr {self.stack(1)} to i64")
        for what, place in (
            (self.call("PyThreadState_Get"), THREAD), (self.argument(0), REGION),
            (LLVMValue("%self"), OWN), (stack, STACK), (self.constant(0), BUSY),
            (self.argument(1), NOW),
        ):  # fmt: skip
            self.store(what, state, place)
        self.call(
            "_PyInterpreterState_SetEvalFrameFunc", interpreter, LLVMValue("@hook"), kind="void"
        )
        self.give(self.hold(self.known("True")))
        self.here("no")
        self.give(self.hold(self.known("False")))


class SwitchOff(Emitter):
    """``switch_off()``: remove the hook."""

    def __init__(self, name: str, places: dict[str, int]) -> None:
        super().__init__(name, places)
        self.store(NULL, LLVMValue(STATE), THREAD)
        interpreter = self.call("PyInterpreterState_Get")
        function = self.call("_PyInterpreterState_GetEvalFrameFunc", interpreter)
        with self.when(self.test("eq", function, LLVMValue("@hook"))):
            usual = self.known("_PyEval_EvalFrameDefault")
            self.call("_PyInterpreterState_SetEvalFrameFunc", interpreter, usual, kind="void")
        self.give(self.hold(self.known("None")))


class CodeMarks:
    """Marks on code objects: which functions may be confirmed, with their number of arguments."""

    def __init__(self) -> None:
        api = ctypes.pythonapi
        names = ("_PyEval_RequestCodeExtraIndex", "_PyCode_SetExtra")
        if sys.version_info >= (3, 12):
            names = ("PyUnstable_Eval_RequestCodeExtraIndex", "PyUnstable_Code_SetExtra")
        ask, self.set = (getattr(api, name) for name in names)
        ask.argtypes, ask.restype = (ctypes.c_void_p,), ctypes.c_ssize_t
        self.set.argtypes = (ctypes.py_object, ctypes.c_ssize_t, ctypes.c_void_p)
        self.index = ask(None)
        if self.index < 0:
            raise Unsupported("code objects have no free co_extra slot")
        # Where a code object stores them is found with a code object of our own.
        probe = compile("0", "<probe>", "eval")
        word = ctypes.c_size_t.from_address
        size = types.CodeType.__basicsize__
        before = [word(id(probe) + at).value for at in range(0, size, 8)]
        self.put(probe, 0xABCDE)
        after = [word(id(probe) + at).value for at in range(0, size, 8)]
        changed = [8 * k for k, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
        if len(changed) != 1 or before[changed[0] // 8]:
            raise Unsupported("unsupported layout of co_extra")
        self.place = changed[0]
        block = word(id(probe) + self.place).value
        if word(block).value <= self.index or word(block + 8 + 8 * self.index).value != 0xABCDE:
            raise Unsupported("unsupported layout of co_extra")

    def add(self, code: types.CodeType, arguments: int) -> None:
        """Mark the code of a function with so many arguments, if the hook can end its frames."""
        leaves = way_out(code) if sys.version_info >= (3, 12) else 0
        if leaves is not None:
            self.put(code, leaves | (arguments + 1))

    def put(self, code: types.CodeType, mark: int) -> None:
        if self.set(code, self.index, mark):
            raise Unsupported("co_extra can't be set")


def way_out(code: types.CodeType) -> int | None:
    """Where a function's frame can be ended: the part of its mark above the arguments."""
    for step in dis.get_instructions(code):
        wide = step.arg is not None and step.arg > 255
        if step.opname == "RETURN_VALUE":
            return step.offset << EXIT | PUSHES
        if step.opname == "RETURN_CONST" and step.argval is None and not wide:
            return step.offset << EXIT
    return None


def probe() -> FrameLayout:
    """Where frames store code and arguments, verified on a running one."""
    layout = frame_layout()
    if layout is None:
        raise Unsupported("unsupported frame layout")

    def inside(first: Any, *rest: Any, third: Any) -> bool:
        word = ctypes.c_size_t.from_address
        frame = word(id(sys._getframe()) + FRAME_OF).value
        found = [word(frame + layout.locals + 8 * k).value for k in range(3)]
        return found == [id(first), id(third), id(rest)]

    if not inside(object(), object(), third=object()):
        raise Unsupported("unsupported frame layout: arguments")
    return layout


class HookFunctions:
    """The compiled functions of a process."""

    def __init__(self, begin: Callable, end: Callable, fits: Callable, back: Any) -> None:
        if native_matching.prepared() is None:
            raise Unsupported("unsupported object layout")
        self.marks, frames, layout = CodeMarks(), probe(), WholeLayout()
        objects = {**_OBJECTS, "fits": fits}
        self.held = (objects, begin, end)
        addresses = {name: id(value) for name, value in objects.items()}
        for name in _FUNCTIONS:
            found = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
            addresses[name] = found or 0
        places = {name: k for k, name in enumerate(addresses)}
        self.table = struct.pack(f"{len(addresses)}Q", *addresses.values())

        def text() -> str:
            made = (
                Hook("hook", places, layout, frames, self.marks.place, self.marks.index),
                Same("same", places),
                WholeCall("whole_call", places, layout),
                Switch("switch", places),
                SwitchOff("switch_off", places),
            )
            return "".join(function.text() for function in made)

        facts = (layout, frames, self.marks.place, self.marks.index, places)
        sources = (*records.SOURCES, __file__, whole_modules.__file__, native_matching.__file__)
        recipe = emit.recipe(facts, *sources)
        names = ["switch", "switch_off"]
        given = ("whole_calls", text if recipe else text(), names, recipe, jit.GLUE)
        self.code = jit.engine().ahead(*given)
        self.own = (self.table, begin, end, vars(dt), back.__code__, engine.WATCHERS)

    @lazy
    def switch(self) -> Callable:
        return entry.bound("switch", self.code.addresses[0], self.own)

    @lazy
    def switch_off(self) -> Callable:
        return entry.bound("switch_off", self.code.addresses[1], self.own)


class WholeLayout(MatchingLayout):
    """``MatchingLayout``, and the offsets that the hook reads."""

    def __init__(self) -> None:
        super().__init__()
        names = ("autocast", "backward", "calls", "grad", "recorders", "scope", "unusual")
        self.state = Slots(State, *names)


@once
def make(begin: Callable, end: Callable, fits: Callable, back: Any) -> HookFunctions | None:
    """The compiled functions, or None on an unsupported Python."""
    try:
        return HookFunctions(begin, end, fits, back)
    except (AttributeError, Unsupported):
        return None


def functions(*given: Any) -> HookFunctions | None:
    """The same, once kernels may be compiled."""
    return make(*given) if selection.ready() else None
