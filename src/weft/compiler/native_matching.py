"""Comparing calls with tokens by compiled code: ``matching`` as built-in functions.

An expected call, on leaves in the same memory as last time, is confirmed by comparing addresses:
the functions generated here read the objects themselves (``codegen.emit``). They return None for
unsupported cases, before anything is recorded, and the Python code of ``matching``, which is the
specification, decides.

New objects are created first, since an allocation can start the garbage collector and with it any
code; from the comparisons to the last record nothing else runs.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.compiler.segment import Segment
from weft.compiler.trace import BACKWARD, CALL, LEAF, NUMBER, RESULT, LeafSlot, Point, Token
from weft.core import dtype as dt
from weft.core import pending, selection
from weft.core.gate import EXPORTS
from weft.core.modes import MODES, State
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor, read_unset
from weft.native.codegen import emit, entry, jit, pending_slot, records
from weft.native.codegen.emit import BYTES, HEAD, LIST_ITEMS, NULL, Emitter, LLVMValue
from weft.native.codegen.entry import DATA, DESCR, FLAGS, RANK, SHAPE, STRIDES
from weft.native.codegen.records import BASE, Slots, Unsupported
from weft.native.once import lazy, once

# How an argument is compared: with a result, with a leaf that was met, with an argument before it,
# with the leaf of last time, by its class, by its identity.
OF_RESULT, OF_LEAF, OF_ARGUMENT, NEW_LEAF, OF_CLASS, OF_IDENTITY = range(6)

# The items of a function's ``self``, after the table.
TOKEN, AFTER, ATTRS, RECIPE, OBJECTS, KINDS, NUMBERS, HOME = range(1, 9)
REGION, FALLBACK, SETTINGS = range(1, 4)
PARAMS, LEAVES, GRADIENTS, STATES, REFERENCES, STATE, OWNERS, OWNED, SIZES, NAMES, VALUES, SEEN = (
    range(1, 13)
)
GROUPS, SETTINGS_OF, COUNTS, SETTING_NAMES, SETTING_VALUES, LISTS, IDLE, LENGTHS, LISTED = range(
    13, 22
)

_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyList_New", "PyList_SetItem", "PyList_Append", "PyTuple_New"),
    *("PyLong_FromVoidPtr", "PySet_Add", "PyDict_Size", "PyDict_Next", "PyType_GenericAlloc"),
    *("PyDict_GetItem", "PyObject_GetAttr", "PyObject_Vectorcall", "_PyLong_FromByteArray"),
    *("PyLong_AsLongLong", "PyLong_FromLongLong", "PyList_SetSlice", "PyFloat_FromDouble"),
)
_OBJECTS = {
    "Tensor": Tensor, "AccumulateGrad": AccumulateGrad, "EXPORTS": EXPORTS, "None": None,
    "True": True, "False": False, "0": 0, "tuple": tuple, "dict": dict, "float": float,
    "ref": weakref.ref, "CALL": CALL, "MODES": MODES, "'now'": sys.intern("now"),
    "'_default'": sys.intern("_default"), "list": list, "ndarray": np.ndarray,
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
}  # fmt: skip
OWNS = 4  # of an array's flags: it owns its memory
WEAK_REFERENCES = np.ndarray.__weakrefoffset__
EXACT = 2.0**24  # counters below this count by one in every float type


class MatchingLayout:
    """The offsets of the fields that are read and written in compared objects."""

    def __init__(self) -> None:
        self.tensor = Slots(Tensor, *records.TENSOR)
        self.leaf = Slots(LeafSlot, "cls", "last", "lies", "node", "outside", "seen")
        self.node = Slots(AccumulateGrad, "extras", "post_accumulate")
        self.region = Slots(Segment, *Segment.__slots__)
        self.state = Slots(State, "backward", "grad", "unusual")
        self.token = Slots(Token, "grad", "kind", "op", "quick")
        self.point = Slots(Point, "next", "tried", "whole")
        probe = Segment.__new__(Segment)
        reference = weakref.ref(probe)
        if ctypes.c_size_t.from_address(id(reference) + HEAD).value != id(probe):
            raise Unsupported("unsupported layout of weak references")

    def __repr__(self) -> str:
        return repr(vars(self))


class Confirming(Emitter):
    """The common base of these functions; labels ``decline`` and ``fail`` end them early."""

    def __init__(self, name: str, places: dict[str, int], layout: MatchingLayout) -> None:
        super().__init__(name, places)
        self.layout, self.own = layout, LLVMValue("%self")
        self.region = self.item(self.own, REGION) if self.bound else self.argument(0)
        self.made = self.empty()  # references released if the function ends early
        self.write()
        self.here("decline")
        self.drop(self.load(self.made))
        self.give(self.declined())
        self.here("fail")
        self.drop(self.load(self.made))
        self.give(NULL)

    bound = False  # whether the function belongs to a region, or is given one

    def declined(self) -> LLVMValue:
        return self.hold(self.known("None"))

    def write(self) -> None:
        raise NotImplementedError

    def of_region(self, name: str) -> LLVMValue:
        return self.load(self.region, self.layout.region[name])

    def need(self, value: LLVMValue) -> LLVMValue:
        """Leave with the raised error if there is no value."""
        self.leave_if(self.test("eq", value, NULL), "fail")
        return value

    def element(self, items: LLVMValue, i: LLVMValue) -> LLVMValue:
        """An item of a list (a borrowed reference); the call is declined if there is none."""
        self.leave_unless(self.test("slt", i, self.size(items)), "decline")
        return self.load(self.load(items, LIST_ITEMS), self.scaled(i))

    def append(self, items: LLVMValue, value: LLVMValue) -> None:
        failed = self.call("PyList_Append", items, value, kind="i32")
        self.leave_unless(self.test("eq", failed, 0), "fail")

    def make_pending(self) -> LLVMValue:
        """A tuple of pending tensors for the kinds of a token, which ``made`` owns."""
        kinds, numbers = self.item(self.own, KINDS), self.item(self.own, NUMBERS)
        results = self.need(self.call("PyTuple_New", self.size(kinds)))
        self.store(results, self.made)
        with self.each(self.size(kinds)) as k:
            self.put_pending(results, k, self.item(numbers, k), self.item(kinds, k))
        # Any code may have run meanwhile, also in other threads: the region must still exist.
        for name, known in (("at", self.item(self.own, HOME)), ("busy", self.known("False"))):
            self.leave_unless(self.test("eq", self.of_region(name), known), "decline")
        return results

    def put_pending(
        self, results: LLVMValue, k: LLVMValue, number: LLVMValue, kind: LLVMValue
    ) -> None:
        """Put a new pending tensor into a tuple: the result of that number, and its kind."""
        slots = self.layout.tensor
        t = self.call("PyType_GenericAlloc", self.known("Tensor"), self.constant(0))
        self.put(self.need(t), results, k)
        cell = self.need(self.call("PyList_New", self.constant(1)))
        self.store(cell, t, slots["_vc"])
        zero = self.hold(self.known("0"))
        self.call("PyList_SetItem", cell, self.constant(0), zero, kind="i32")
        self.store(self.hold(self.known("None")), t, slots["_grad"])
        self.store(self.hold(self.known("None")), t, slots["_x"])
        stamp = self.need(self.call("PyTuple_New", self.constant(3)))
        self.put(self.hold(self.region), stamp, 0)
        self.put(self.hold(number), stamp, 1)
        self.put(self.hold(kind), stamp, 2)
        self.store(stamp, t, slots["_stamp"])

    def compare_memory(
        self, x: LLVMValue, array: LLVMValue, slot: LLVMValue, otherwise: str
    ) -> None:
        """Continue only with a tensor that can be a leaf, as far as this code can tell.

        It is in the same memory as the leaf last time, or in memory of its own without other
        references, of the same layout: the same answer as ``LeafSlot.fits``.
        """
        leaf, tensor = self.layout.leaf, self.layout.tensor
        new, done, none = self.label(), self.label(), self.known("None")
        last = self.load(slot, leaf["last"])
        self.leave_unless(self.is_a(last, "ref"), otherwise)
        for one, other, label in (
            (self.load(x, tensor["_node"]), self.load(slot, leaf["node"]), otherwise),
            (self.load(x, tensor["_base"]), none, otherwise),
            (array, self.load(last, HEAD), new),
            (self.first_of(self.known("EXPORTS")), self.load(slot, leaf["seen"]), otherwise),
        ):
            self.leave_unless(self.test("eq", one, other), label)
        self.go(done)
        self.here(new)
        self.leave_unless(self.is_a(array, "ndarray"), otherwise)
        self.leave_unless(self.test("eq", self.load(x, tensor["_x"]), none), otherwise)
        owner = self.variable("ptr", array)
        base = self.load(array, BASE)
        with self.otherwise(self.test("eq", base, NULL)):
            self.store(base, owner)
        holder = self.load(owner)
        self.leave_unless(self.is_a(holder, "ndarray"), otherwise)
        known = self.load(holder, WEAK_REFERENCES)  # a flag's would be one
        self.leave_unless(self.test("eq", known, NULL), otherwise)
        owns = self.arithmetic("and", self.load(holder, FLAGS, "i32"), LLVMValue(str(OWNS), "i32"))
        self.leave_if(self.test("eq", owns, 0), otherwise)
        lies = self.at(self.load(slot, leaf["lies"]), BYTES)
        kind = self.value("i64", f"ptrtoint ptr {self.load(array, DESCR)} to i64")
        rank = self.value("i64", f"sext i32 {self.load(array, RANK, 'i32')} to i64")
        for value, place in ((kind, 0), (rank, 8)):
            self.leave_unless(self.test("eq", value, self.load(lies, place, "i64")), otherwise)
        for held, first in ((SHAPE, 2), (STRIDES, self.arithmetic("add", rank, 2))):
            sizes = self.load(array, held)
            with self.each(rank) as k:
                wanted = self.load(lies, self.scaled(self.arithmetic("add", k, first)), "i64")
                now = self.load(sizes, self.scaled(k), "i64")
                self.leave_unless(self.test("eq", now, wanted), otherwise)
        self.go(done)
        self.here(done)

    def advance(self) -> None:
        """Record the token, and go to the point after it."""
        self.append(self.of_region("path"), self.item(self.own, TOKEN))
        before = self.of_region("at")
        self.store(self.hold(self.item(self.own, AFTER)), self.region, self.layout.region["at"])
        self.drop(before)


class Before(Confirming):
    """``before(op, args, attrs)`` of a region: what ``Region.before`` does if a call is expected
    and compiled code confirms it. All other cases are left to that method.
    """

    bound = True

    def write(self) -> None:
        op, layout = self.argument(0), self.layout
        self.leave_unless(self.test("eq", self.length, 3), "decline")
        now = self.need(self.call("PyObject_GetAttr", self.known("MODES"), self.known("'now'")))
        self.store(now, self.made)
        default = self.call(
            "PyDict_GetItem", self.item(self.own, SETTINGS), self.known("'_default'")
        )
        no, none = self.known("False"), self.known("None")
        for one, other in (
            (self.of_region("learning"), no),
            (self.of_region("busy"), no),
            (self.load(now, layout.state["unusual"]), no),
            (self.load(now, layout.state["backward"]), none),
            (self.of_region("default"), default),
        ):
            self.leave_unless(self.test("eq", one, other), "decline")
        longest = self.load(self.of_region("room"), BYTES, "i64")
        path = self.of_region("path")
        self.leave_unless(self.test("slt", self.size(path), longest), "decline")
        point = self.of_region("at")
        following = self.load(point, layout.point["next"])
        given = self.stack(4)
        self.store(self.region, given, 8)
        for place in (1, 2):
            self.store(self.argument(place), given, 8 + 8 * place)
        flags = LLVMValue(str(3 - (1 << 63)), "i64")  # the slot before the arguments may be used
        with self.each(self.size(following)) as k:
            token = self.element(following, k)
            quick = self.load(token, layout.token["quick"])
            fits = self.test("ne", quick, none)
            for name, wanted in (
                ("op", op),
                ("kind", self.known("CALL")),
                ("grad", self.load(now, layout.state["grad"])),
            ):
                same = self.test("eq", self.load(token, layout.token[name]), wanted)
                fits = self.both(fits, same)
            with self.when(fits):
                made = self.call("PyObject_Vectorcall", quick, self.at(given, 8), flags, NULL)
                self.need(made)
                with self.when(self.test("ne", made, none)):
                    self.drop(now)
                    self.give(made)
                    self.here(self.label())
                self.drop(made)
                self.leave_unless(self.test("eq", self.of_region("at"), point), "decline")
        self.go("decline")

    def declined(self) -> LLVMValue:
        given, fallback = self.given, self.item(self.own, FALLBACK)
        return self.call("PyObject_Vectorcall", fallback, given, self.length, NULL)


class Follow(Confirming):
    """``follow(region, args, attrs)``: the pending results of the expected call."""

    several = False  # whether results are returned as a tuple

    def write(self) -> None:
        self.args, self.attrs = self.argument(1), self.argument(2)
        self.recipe = self.at(self.item(self.own, RECIPE), BYTES)
        self.objects = self.item(self.own, OBJECTS)
        count = self.size(self.objects)
        self.leave_unless(self.is_a(self.args, "tuple"), "decline")
        self.leave_unless(self.test("eq", self.size(self.args), count), "decline")
        results = self.make_pending()
        self.compare_attributes()
        with self.each(count) as i:
            self.compare(i)
        with self.each(count) as i:
            self.note(i)
        with self.each(self.size(results)) as k:
            self.append(self.of_region("handles"), self.item(results, k))
        self.advance()
        if self.several:
            self.give(results)
        else:
            only = self.hold(self.item(results, 0))
            self.drop(results)
            self.give(only)

    def compare_attributes(self) -> None:
        """By identity, name by name in one order; others are left to Python."""
        known, attrs = self.item(self.own, ATTRS), self.attrs
        done, head = self.label(), self.label()
        self.leave_if(self.test("eq", known, attrs), done)
        self.leave_unless(self.is_a(attrs, "dict"), "decline")
        sizes = [self.call("PyDict_Size", d, kind="i64") for d in (known, attrs)]
        self.leave_unless(self.test("eq", sizes[0], sizes[1]), "decline")
        places = [self.variable("i64", 0) for _ in range(2)]
        entries = [self.stack(2) for _ in range(2)]
        self.go(head)
        self.here(head)
        for table, place, entry_at in zip((known, attrs), places, entries, strict=True):
            more = self.call(
                "PyDict_Next", table, place, entry_at, self.at(entry_at, 8), kind="i32"
            )
            self.leave_if(self.test("eq", more, 0), done)
        for offset in (0, 8):
            pair = [self.load(entry_at, offset) for entry_at in entries]
            self.leave_unless(self.test("eq", pair[0], pair[1]), "decline")
        self.go(head)
        self.here(done)

    def asked(self, i: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue, LLVMValue]:
        """How an argument is compared, with which number and object; and the argument."""
        place = self.arithmetic("mul", LLVMValue(i, "i64"), 16)
        way, number = (self.load(self.at(self.recipe, place), k, "i64") for k in (0, 8))
        return way, number, self.item(self.objects, i), self.item(self.args, i)

    def compare(self, i: LLVMValue) -> None:
        way, number, wanted, x = self.asked(i)
        for code, found in (
            (OF_RESULT, lambda: self.element(self.of_region("handles"), number)),
            (OF_LEAF, lambda: self.element(self.of_region("leaves"), number)),
            (OF_ARGUMENT, lambda: self.item(self.args, number)),
            (OF_IDENTITY, lambda: wanted),
        ):
            with self.when(self.test("eq", way, code)):
                self.leave_unless(self.test("eq", found(), x), "decline")
        with self.when(self.test("eq", way, OF_CLASS)):
            self.leave_unless(self.test("eq", self.type_of(x), wanted), "decline")
        with self.when(self.test("eq", way, NEW_LEAF)):
            self.compare_leaf(i, x, wanted)

    def compare_leaf(self, i: LLVMValue, x: LLVMValue, slot: LLVMValue) -> None:
        """Whether a tensor is the same leaf as last time, in the same memory, and not met yet."""
        leaf, tensor = self.layout.leaf, self.layout.tensor
        same = self.test("eq", self.type_of(x), self.load(slot, leaf["cls"]))
        self.leave_unless(same, "decline")
        array = self.load(x, tensor["_a"])
        self.leave_if(self.test("eq", array, NULL), "decline")  # pending
        self.compare_memory(x, array, slot, "decline")
        leaves = self.of_region("leaves")
        with self.each(self.size(leaves)) as k:
            self.leave_if(self.test("eq", self.element(leaves, k), x), "decline")
        with self.each(i) as k:
            self.leave_if(self.test("eq", self.item(self.args, k), x), "decline")

    def note(self, i: LLVMValue) -> None:
        way, _, _, x = self.asked(i)
        with self.when(self.test("eq", way, OF_CLASS)):
            self.append(self.of_region("numbers"), x)
        with self.when(self.test("eq", way, NEW_LEAF)):
            self.append(self.of_region("leaves"), x)
            self.append(self.of_region("arrays"), self.load(x, self.layout.tensor["_a"]))
            self.append(self.of_region("nodes"), self.load(x, self.layout.tensor["_node"]))
            identity = self.need(self.call("PyLong_FromVoidPtr", x))
            failed = self.call("PySet_Add", self.of_region("met"), identity, kind="i32")
            self.drop(identity)
            self.leave_unless(self.test("eq", failed, 0), "fail")


class FollowSeveral(Follow):
    several = True


class Backward(Confirming):
    """``backward(region, root)``: put pending gradients into leaves, if these take them; or None.

    The root's number is passed instead of attributes.
    """

    def write(self) -> None:
        root = self.load(self.at(self.item(self.own, ATTRS), BYTES), 0, "i64")
        same = self.test("eq", self.element(self.of_region("handles"), root), self.argument(1))
        self.leave_unless(same, "decline")
        numbers = self.at(self.item(self.own, RECIPE), BYTES)
        grads = self.make_pending()
        tensor, node = self.layout.tensor, self.layout.node
        leaves = self.of_region("leaves")
        with self.each(self.size(grads)) as k:
            t = self.element(leaves, self.load(numbers, self.scaled(k), "i64"))
            for slot in ("_grad", "_x"):
                self.leave_unless(self.is_known(self.load(t, tensor[slot]), "None"), "decline")
            behind = self.load(t, tensor["_node"])
            self.leave_if(self.test("eq", behind, NULL), "decline")
            self.leave_unless(self.is_a(behind, "AccumulateGrad"), "decline")
            for slot in ("extras", "post_accumulate"):
                self.leave_unless(self.is_known(self.load(behind, node[slot]), "None"), "decline")
        with self.each(self.size(grads)) as k:
            t = self.element(leaves, self.load(numbers, self.scaled(k), "i64"))
            grad = self.item(grads, k)
            self.append(self.of_region("handles"), grad)
            before = self.load(t, tensor["_grad"])
            self.store(self.hold(grad), t, tensor["_grad"])
            self.drop(before)
        self.advance()
        self.drop(grads)
        self.give(self.hold(self.known("True")))


class ConfirmStep(Confirming):
    """``step(region)``: record an optimizer's states as leaves, if all is unchanged; or None.

    Compared are its parameters with leaves, their gradients with results, its state and its groups
    entry by entry, and the memory of the states with that of last time: see ``stepping.Usual``.
    """

    def write(self) -> None:
        params, states, references = (self.item(self.own, k) for k in (PARAMS, STATES, REFERENCES))
        leaves, tensor = self.of_region("leaves"), self.layout.tensor
        seen = self.first_of(self.known("EXPORTS"))
        self.leave_unless(self.test("eq", seen, self.item(self.own, SEEN)), "decline")
        places = [self.at(self.item(self.own, k), BYTES) for k in (LEAVES, GRADIENTS)]
        with self.each(self.size(params)) as k:
            p = self.item(params, k)
            numbers = [self.load(place, self.scaled(k), "i64") for place in places]
            self.leave_unless(self.test("eq", self.element(leaves, numbers[0]), p), "decline")
            result = self.element(self.of_region("handles"), numbers[1])
            grad = self.load(p, tensor["_grad"])
            self.leave_unless(self.test("eq", grad, result), "decline")
        self.compare_state()
        self.compare_groups()
        with self.each(self.size(states)) as k:
            array = self.load(self.item(states, k), tensor["_a"])
            self.leave_if(self.test("eq", array, NULL), "decline")
            last = self.load(self.item(references, k), HEAD)
            self.leave_unless(self.test("eq", array, last), "decline")
        with self.each(self.size(states)) as k:
            t = self.item(states, k)
            self.append(leaves, t)
            self.append(self.of_region("arrays"), self.load(t, tensor["_a"]))
            self.append(self.of_region("nodes"), self.known("None"))
        self.give(self.hold(self.known("True")))

    def compare_state(self) -> None:
        owned, names = self.item(self.own, OWNED), self.item(self.own, NAMES)
        values, sizes = self.item(self.own, VALUES), self.at(self.item(self.own, SIZES), BYTES)
        owners = self.item(self.own, OWNERS)
        place = self.variable("i64", 0)
        self.compare_entries(self.item(self.own, STATE), self.size(owners), owners, owned, place)
        self.store(self.constant(0), place)
        with self.each(self.size(owned)) as k:
            size = self.load(sizes, self.scaled(k), "i64")
            self.compare_entries(self.item(owned, k), size, names, values, place)

    def compare_groups(self) -> None:
        """Whether groups, their settings and parameters are unchanged, and no other parameter
        moves.
        """
        groups, settings = self.item(self.own, GROUPS), self.item(self.own, SETTINGS_OF)
        names, values = (self.item(self.own, k) for k in (SETTING_NAMES, SETTING_VALUES))
        counts, lengths = (self.at(self.item(self.own, k), BYTES) for k in (COUNTS, LENGTHS))
        place, listed = self.variable("i64", 0), self.variable("i64", 0)
        same = self.test("eq", self.size(groups), self.size(settings))
        self.leave_unless(same, "decline")
        with self.each(self.size(settings)) as k:
            group = self.item(settings, k)
            same = self.test("eq", self.element(groups, k), group)
            self.leave_unless(same, "decline")
            count = self.load(counts, self.scaled(k), "i64")
            self.compare_entries(group, count, names, values, place)
            params = self.item(self.item(self.own, LISTS), k)
            length = self.load(lengths, self.scaled(k), "i64")
            self.leave_unless(self.test("eq", self.size(params), length), "decline")
            with self.each(length) as i:
                at = self.load(listed, 0, "i64")
                known = self.item(self.item(self.own, LISTED), at)
                self.leave_unless(self.test("eq", self.element(params, i), known), "decline")
                self.store(self.arithmetic("add", at, 1), listed)
        idle = self.item(self.own, IDLE)
        with self.each(self.size(idle)) as k:
            gradient = self.load(self.item(idle, k), self.layout.tensor["_grad"])
            self.leave_unless(self.is_known(gradient, "None"), "decline")

    def compare_entries(
        self,
        table: LLVMValue,
        size: LLVMValue,
        keys: LLVMValue,
        values: LLVMValue,
        place: LLVMValue,
    ) -> None:
        """Whether a dict has exactly the entries listed from a position on, which advances.

        ``float`` as a value stands for any number of that class.
        """
        now = self.call("PyDict_Size", table, kind="i64")
        self.leave_unless(self.test("eq", now, size), "decline")
        at, found = self.stack(1), self.stack(2)
        self.store(self.constant(0), at)
        with self.each(size):
            more = self.call("PyDict_Next", table, at, found, self.at(found, 8), kind="i32")
            self.leave_if(self.test("eq", more, 0), "decline")
            k = self.load(place, 0, "i64")
            same = self.test("eq", self.item(keys, k), self.load(found))
            self.leave_unless(same, "decline")
            wanted, value = self.item(values, k), self.load(found, 8)
            with self.otherwise(self.test("eq", wanted, value)):
                self.leave_unless(self.is_known(wanted, "float"), "decline")
                self.leave_unless(self.is_a(value, "float"), "decline")
            self.store(self.arithmetic("add", k, 1), place)


class HandOver(Confirming):
    """``hand_over(region, arrays, numbers)``: set the values of pending results.

    ``numbers`` are those of the results, as words; None instead of a result is skipped.
    """

    def write(self) -> None:
        arrays, numbers = self.argument(1), self.at(self.argument(2), BYTES)
        slots, count = self.layout.tensor, self.size(self.argument(2))
        with self.each(self.arithmetic("sdiv", count, 8)) as k:
            t = self.element(self.of_region("handles"), self.load(numbers, self.scaled(k), "i64"))
            array = self.element(arrays, k)
            with self.otherwise(self.is_known(t, "None")):
                self.store(self.hold(array), t, slots["_a"])
                for name in ("_node", "_base", "_view"):
                    self.store(self.hold(self.known("None")), t, slots[name])
                stamp = self.load(t, slots["_stamp"])
                self.store(NULL, t, slots["_stamp"])
                self.drop(stamp)
        self.give(self.hold(self.known("True")))


class HeldResults(Confirming):
    """``held(region, numbers)``: the results with other references, as bits; None for many.

    ``numbers`` are those of the results to check, as words, in order.
    """

    LIMIT = 8192  # the number of results whose bits fit

    def write(self) -> None:
        numbers, count = self.argument(1), self.size(self.argument(1))
        words = self.at(numbers, BYTES)
        self.leave_unless(self.test("slt", count, 8 * self.LIMIT), "decline")
        handles = self.of_region("handles")
        self.leave_unless(self.test("slt", self.size(handles), self.LIMIT), "decline")
        bits = self.stack(self.LIMIT // 64)
        size = self.arithmetic("add", self.arithmetic("sdiv", self.size(handles), 64), 1)
        with self.each(size) as k:
            self.store(self.constant(0), bits, self.scaled(k))
        with self.each(self.arithmetic("sdiv", count, 8)) as k:
            number = self.load(words, self.scaled(k), "i64")
            t = self.element(handles, number)
            others = self.test("sgt", self.load(t, 0, "i64"), 1)  # its reference count
            with self.when(self.both(others, self.test("ne", t, self.known("None")))):
                at = self.scaled(self.arithmetic("sdiv", number, 64))
                one = self.value("i64", f"shl i64 1, {self.arithmetic('srem', number, 64)}")
                word = self.arithmetic("or", self.load(bits, at, "i64"), one)
                self.store(word, bits, at)
        little, unsigned = LLVMValue("1", "i32"), LLVMValue("0", "i32")
        self.give(self.call("_PyLong_FromByteArray", bits, self.scaled(size), little, unsigned))


class NoteChanges(Confirming):
    """``note_changes(tensors, mark)``: record one change of many tensors by one op.

    What ``inplace.note_changes`` does with their version cells.
    """

    LAST = (1 << 63) - 1

    def write(self) -> None:
        tensors, mark = self.argument(0), self.argument(1)
        with self.each(self.size(tensors)) as k:
            cell = self.load(self.item(tensors, k), self.layout.tensor["_vc"])
            with self.when(self.is_a(cell, "list")):  # or it has no versions
                version = self.call("PyLong_AsLongLong", self.first_of(cell), kind="i64")
                later = self.call("PyLong_FromLongLong", self.arithmetic("add", version, 1))
                self.call("PyList_SetItem", cell, self.constant(0), self.need(later), kind="i32")
                marked = self.test("eq", self.size(cell), 2)
                with self.when(marked):
                    only = self.hold(self.item(mark, 0))
                    self.call("PyList_SetItem", cell, self.constant(1), only, kind="i32")
                with self.otherwise(marked):
                    ends = self.constant(1), self.constant(self.LAST)
                    failed = self.call("PyList_SetSlice", cell, *ends, mark, kind="i32")
                    self.leave_unless(self.test("eq", failed, 0), "fail")
        self.give(self.hold(self.known("True")))


class NextAge(Confirming):
    """``next_age(arrays, places)``: one more than the number that all of some arrays hold; or None.

    None also in cases that are left to ``updates.Update``.
    """

    def write(self) -> None:
        arrays, places = self.argument(0), self.argument(1)
        age = self.variable("double", "0.0")
        with self.each(self.arithmetic("sdiv", self.size(places), 8)) as k:
            place = self.load(self.at(places, BYTES), self.scaled(k), "i64")
            now = self.number(self.element(arrays, place))
            with self.when(self.test("eq", k, 0)):
                self.store(now, age)
            first = self.load(age, 0, "double")
            same = self.value("i1", f"fcmp oeq double {now}, {first}")
            self.leave_unless(same, "decline")
        found = self.load(age, 0, "double")
        exact = self.value("i1", f"fcmp olt double {found}, {EXACT!r}")
        self.leave_unless(exact, "decline")
        later = self.value("double", f"fadd double {found}, 1.0")
        self.give(self.call("PyFloat_FromDouble", later))

    def number(self, array: LLVMValue) -> LLVMValue:
        """The number in an array without dimensions."""
        self.leave_unless(self.is_a(array, "ndarray"), "decline")
        rank = self.load(array, RANK, "i32")
        self.leave_unless(self.test("eq", rank, 0), "decline")
        dtype, data = self.load(array, DESCR), self.load(array, DATA)
        found = self.variable("double", "0.0")
        narrow = self.is_known(dtype, "f32")
        with self.when(narrow):
            value = self.load(data, 0, "float")
            self.store(self.value("double", f"fpext float {value} to double"), found)
        with self.otherwise(narrow):
            self.leave_unless(self.is_known(dtype, "f64"), "decline")
            self.store(self.load(data, 0, "double"), found)
        return self.load(found, 0, "double")


SORTS: dict[str, type[Confirming]] = {
    "before": Before, "follow": Follow, "follow_several": FollowSeveral, "backward": Backward,
    "step": ConfirmStep, "hand_over": HandOver, "held": HeldResults,
    "note_changes": NoteChanges, "next_age": NextAge,
}  # fmt: skip


class MatchingFunctions:
    """The compiled functions of a process."""

    def __init__(self) -> None:
        api = ctypes.pythonapi
        addresses = {name: id(value) for name, value in _OBJECTS.items()}
        for name in _FUNCTIONS:
            addresses[name] = ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0
        places = {name: k for k, name in enumerate(addresses)}
        self.table = struct.pack(f"{len(addresses)}Q", *addresses.values())
        records.check_layouts()
        layout = MatchingLayout()

        def text() -> str:
            return "".join(sort(name, places, layout).text() for name, sort in SORTS.items())

        recipe = emit.recipe((layout, places), __file__)
        given = ("confirming", text if recipe else text(), list(SORTS), recipe, jit.GLUE)
        self.code = jit.engine().ahead(*given)

    @lazy
    def addresses(self) -> dict[str, int]:
        return dict(zip(SORTS, self.code.addresses, strict=True))

    @lazy
    def held(self) -> Callable:
        return self.function("held")

    @lazy
    def note_changes(self) -> Callable:
        return self.function("note_changes")

    @lazy
    def next_age(self) -> Callable:
        return self.function("next_age")

    def function(self, sort: str, *own: Any) -> Callable:
        return entry.bound(sort, self.addresses[sort], (self.table, *own))


@once
def prepared() -> MatchingFunctions | None:
    """The compiled functions, which may still be being compiled."""
    try:
        return MatchingFunctions()
    except Unsupported:
        return None


@once
def _functions() -> MatchingFunctions | None:
    made = prepared()
    if made is None:
        return None
    try:
        get = pending_slot.getter(Tensor, read_unset, pending.METADATA)
    except Unsupported:
        return None
    if get is not None:
        type.__setattr__(Tensor, "__getattr__", get)
    return made


def functions() -> MatchingFunctions | None:
    """The compiled functions, or None for unsupported object layouts."""
    return _functions() if selection.ready() else None


def _compared(token: Token) -> tuple[bytes, tuple[Any, ...]] | None:
    """How the arguments of a call are compared; None if that is left to Python."""
    new = {slot.number for slot in token.leaves}
    first: dict[int, int] = {}
    ways: list[int] = []
    objects: list[Any] = []
    for k, (kind, wanted) in enumerate(token.slots):
        number = 0
        if kind == RESULT:
            way, number, wanted = OF_RESULT, wanted, None
        elif kind == NUMBER:
            way = OF_CLASS
        elif kind != LEAF:
            way = OF_IDENTITY
        elif wanted.number in first:
            way, number = OF_ARGUMENT, first[wanted.number]
        elif wanted.number not in new:
            way, number = OF_LEAF, wanted.number
        elif wanted.outside or not wanted.plain:
            return None
        else:
            way, first[wanted.number] = NEW_LEAF, k
        ways += (way, number)
        objects.append(wanted)
    return words(ways), tuple(objects)


def words(numbers: Any) -> bytes:
    """Numbers as compiled code reads them."""
    return struct.pack(f"{len(numbers)}q", *numbers)


def before(region: Any) -> Any:
    """A region's method ``before``: compiled code that falls back to Python."""
    made, python = functions(), region.before
    if made is None:
        return python
    return made.function("before", region, python, vars(dt))


def equip(token: Token) -> None:
    """Give a token its compiled function, if it is supported."""
    if token.step is not None and token.step.usual is not None:
        token.step.usual.equip()
    if token.quick is not None or token.kind not in (CALL, BACKWARD) or any(token.held):
        return  # passes that accumulate into existing gradients are compared by Python
    made = functions()
    if made is None:
        return
    numbers = tuple(range(token.first, token.first + len(token.kinds)))
    rest = (token.kinds, numbers, token.home)
    if token.kind == BACKWARD:
        targets = words([slot.number for slot in token.targets])
        root = words([token.slots[0][1]])
        token.quick = made.function("backward", token, token.after, root, targets, (), *rest)
        return
    found = _compared(token)
    if found is not None:
        sort = "follow_several" if token.op.multiple else "follow"
        own = (token, token.after, token.attrs, *found, *rest)
        token.quick = made.function(sort, *own)
