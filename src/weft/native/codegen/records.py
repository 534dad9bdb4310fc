"""Tensors and graph nodes constructed by compiled code: the last part of every small op.

Wrapping a result and recording it takes Python about thirty attribute stores. Here the same is one
call of a built-in function: it checks the inputs, creates the tensor, and, where a gradient can
flow, the node with its edges, saved values, guard and source position. It returns None for any call
that it declines, before it has changed anything, and the caller's Python code, which is the
specification, does the work.

This module does not import weft's classes: they are passed in ``Classes``, and the offsets of their
slots are read from Python's own descriptors and verified before any code is generated.

References: an object is owned by the caller's result from its creation on (the tensor owns its
node, the node its tuples), so that a failure has one object to release. A value read from an object
is referenced before anything else is allocated, since an allocation can start the garbage collector
and with it any code.
"""

from __future__ import annotations

import _thread
import ctypes
import struct
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from weft.native.codegen import emit, entry
from weft.native.codegen import frame_layout as frames
from weft.native.codegen.emit import BYTES, HEAD, LIST_ITEMS, NULL, TYPE, Emitter, LLVMValue
from weft.native.codegen.entry import DESCR, FLAGS, RANK, SHAPE, TUPLE
from weft.native.codegen.frame_layout import FrameLayout, frame_layout
from weft.native.once import LOCK

BASE = HEAD + 32  # where an array keeps what its memory belongs to
MOST = 16  # inputs of which a pattern is made
_OBJECT = 16  # the kind of a slot that holds an object, in Python's description of members

FLOATS = ("f32", "f64")
HALVES = {"f16": "entry_float16", "bf16": "entry_bfloat16"}  # with the native code for them

# A plan's encoding of saved values (``Recipe``): pairs of one of these and a number.
INPUT, OUTPUT, INPUT_SHAPE, INPUT_DTYPE, SHAPES, REST = range(6)

_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyErr_Clear", "PyTuple_New", "PyList_New", "PyList_SetItem"),
    *("PyLong_FromLongLong", "PyLong_AsLongLong", "PyLong_AsLongLongAndOverflow"),
    *("PyDict_New", "PyDict_SetItem"),
    *("PyDict_GetItem", "PyIter_Next", "PyWeakref_NewRef", "PyObject_Vectorcall"),
    *("PyObject_RichCompareBool", "PyNumber_Add", "PyFrame_GetCode", "PyFrame_GetLasti"),
    *("PyObject_VectorcallDict", "PyObject_GetAttr", "PyErr_ExceptionMatches", "PyDict_Size"),
    *("PyContextVar_Set", "PyContextVar_Reset", "PyErr_Fetch", "PyErr_Restore"),
    *("PyThreadState_Get", "PyThreadState_GetID", "PyType_GenericAlloc"),
)
_ATTRIBUTES = (
    *("now", "limit", "entry", "entry_with_number", "entry_with_row"),
    *("entry_float16", "entry_bfloat16"),
)


@dataclass(frozen=True)
class Classes:
    """The objects of the layer above: classes with slots, and what is needed to construct them."""

    tensor: type
    parameter: type
    node: type
    output: type
    state: type
    plan: type
    plain: Any  # the mode in which ops are recorded, and the one in which nothing is done here
    special: Any
    nowhere: Any  # the node of views that were made unrecorded
    last_caller: list[Any]
    caller: Callable
    own_files: dict[str, bool]  # which files are weft's own code rather than a program's
    inferring: list[Any]  # not empty: nothing is done here
    enabled: list[bool]
    counter: Any  # the iterator that numbers nodes
    forward: Callable  # gives the results of an op, arrays and attributes by a kernel, or None
    modes: Any  # whose ``now`` is the state of the thread
    warnings: Any  # NumPy's variable that says what to warn of, and what stands for nothing
    silent: Any


class Slots:
    """Where objects of a class keep their slots."""

    def __init__(self, kind: type, *names: str) -> None:
        self.at = {name: _offset(kind, name) for name in names}

    def __getitem__(self, name: str) -> int:
        return self.at[name]

    def __repr__(self) -> str:
        return repr(self.at)


class Unsupported(Exception):
    """Unsupported Python ABI: objects are laid out differently than this module expects."""


def _offset(kind: type, name: str) -> int:
    """The offset of a slot, as the class's descriptor has it."""
    descriptor = next(c.__dict__[name] for c in kind.__mro__ if name in c.__dict__)
    if type(descriptor) is not types.MemberDescriptorType:
        raise Unsupported(f"{kind.__name__}.{name} is not a slot")
    word = ctypes.c_size_t.from_address
    member = word(id(descriptor) + HEAD + 24).value  # behind its class, name and qualified name
    if ctypes.c_char_p.from_address(member).value != name.encode():
        raise Unsupported("unsupported descriptor layout")
    if ctypes.c_int.from_address(member + 8).value != _OBJECT:
        raise Unsupported(f"{kind.__name__}.{name} is not an object slot")
    offset = word(member + 16).value
    # The proof: a mark that Python puts there is found there.
    probe: Any = object.__new__(kind)
    mark = object()
    if not HEAD <= offset <= kind.__basicsize__ - 8 or word(id(probe) + offset).value:
        raise Unsupported(f"{kind.__name__}.{name} does not start empty")
    descriptor.__set__(probe, mark)
    if word(id(probe) + offset).value != id(mark):
        raise Unsupported(f"{kind.__name__}.{name} is not at the expected offset")
    return offset


def check_layouts() -> None:
    """Verify the assumed layouts of Python's and NumPy's own objects."""
    word = ctypes.c_size_t.from_address
    first, second = object(), object()
    array = np.empty((3, 5))
    view, pair, items, text = array[1:], (first, second), [second, first], b"abc"
    facts = (
        word(id(pair) + TUPLE + 8).value == id(second),
        word(id(pair) + HEAD).value == 2,
        word(word(id(items) + LIST_ITEMS).value).value == id(second),
        word(id(items) + HEAD).value == 2,
        ctypes.string_at(id(text) + BYTES, 3) == text,
        word(id(first) + TYPE).value == id(object),
        word(id(view) + BASE).value == id(array),
        word(id(array) + BASE).value == 0,
        ctypes.c_int.from_address(id(array) + RANK).value == 2,
        ctypes.c_ssize_t.from_address(word(id(view) + SHAPE).value + 8).value == 5,
        word(id(array) + DESCR).value == id(array.dtype),
    )
    if not all(facts):
        raise Unsupported(f"unsupported object layout: {facts}")


# What the code of this module is written by, apart from ``emit``.
SOURCES = (__file__, frames.__file__)


class _AddressTable:
    """What the code uses, by address; ``held`` keeps it alive."""

    def __init__(self, classes: Classes) -> None:
        api = ctypes.pythonapi
        self.held: dict[str, Any] = {
            "Tensor": classes.tensor,
            "Parameter": classes.parameter,
            "Node": classes.node,
            "Output": classes.output,
            "State": classes.state,
            "Plan": classes.plan,
            "PLAIN": classes.plain,
            "SPECIAL": classes.special,
            "NOWHERE": classes.nowhere,
            "last_caller": classes.last_caller,
            "caller": classes.caller,
            "own_files": classes.own_files,
            "INFERRING": classes.inferring,
            "enabled": classes.enabled,
            "counter": classes.counter,
            "modes": classes.modes,
            "forward": classes.forward,
            "warnings": classes.warnings,
            "silent": classes.silent,
            "asarray": np.asanyarray,
            "Exception": Exception,
            **{f"'{name}'": sys.intern(name) for name in _ATTRIBUTES},
            "getframe": sys._getframe,
            "frame": types.FrameType,
            "ndarray": np.ndarray,
            "f32": np.dtype(np.float32),
            "f64": np.dtype(np.float64),
            "i64": np.dtype(np.int64),
            "b1": np.dtype(np.bool_),
            "f16": np.dtype(np.float16),
            "bf16": np.dtype(ml_dtypes.bfloat16),
            "None": None,
            "NoneType": type(None),
            "True": True,
            "False": False,
            "float": float,
            "int": int,
            "bool": bool,
            "bytes": bytes,
            "tuple": tuple,
            "list": list,
            "0": 0,
            "()": (),
        }
        addresses = {name: id(value) for name, value in self.held.items()}
        for name in _FUNCTIONS:
            addresses[name] = ctypes.cast(getattr(api, name), ctypes.c_void_p).value or 0
        if not all(addresses.values()):
            raise Unsupported("a function of Python's C API is missing")
        self.places = {name: k for k, name in enumerate(addresses)}
        self.content = struct.pack(f"{len(addresses)}Q", *addresses.values())


# The slots that are filled.
TENSOR = ("_a", "_base", "_grad", "_node", "_stamp", "_vc", "_view", "_x")
OUTPUT_NODE = ("dtype", "index", "node", "seq", "shape", "extras")
NODE = (
    *("attrs", "code", "dtype", "guard", "inputs", "instruction", "plan", "saved"),
    *("outs", "scope", "seq", "shape", "extras"),
)

# The items of a function's ``self``.
TABLE, OP, PLANS, FACTS, REFERENCE, LAYOUT = range(6)


@dataclass(frozen=True)
class Facts:
    """What of an op is fixed, as compiled code reads it."""

    differentiable: bool
    variadic: bool
    promotes: bool  # its inputs must be of one type, or some of them
    promoted: tuple[int, ...] | None
    kinds: int  # which types those may be: a sum of FLOATING, INTEGRAL and BOOLEAN
    numbers: int  # 1: the second of two may be a number, 2: any but the first
    loud: int  # NumPy need not be told not to warn: 1 with one or two bare operands, 2 ever
    keeps_rows: bool  # the layout of results need not be asked if all arrays are in row-major order
    nones: bool  # None may be passed instead of an operand
    halves: bool  # native code takes arrays of one half type; its reference does not
    # Of each of several results whether it has a gradient; none if there may be any number.
    outputs: tuple[bool, ...] = ()

    def content(self) -> bytes:
        chosen = range(8) if self.promoted is None else self.promoted
        mask = sum(1 << i for i in chosen) & 255 if self.promotes else 0
        all_of = self.promotes and self.promoted is None
        flags = (self.differentiable, self.variadic, mask, all_of, self.kinds, self.numbers)
        return bytes((*flags, self.loud, self.keeps_rows, self.nones, self.halves, *self.outputs))


DIFFERENTIABLE, VARIADIC, MASK, ALL, KINDS, NUMBERS, LOUD, ROWS, NONES, HALF, OUTPUTS = range(11)
FLOATING, INTEGRAL, BOOLEAN = 1, 2, 4


# Where ``TensorEmitter.state_of_thread`` keeps what it found last.
LAST_STATE = "@last_thread = internal global i64 0\n@last_state = internal global ptr null\n"


class TensorEmitter(Emitter):
    """A function on tensors of the layer above: their slots, the modes, the user's frame.

    It has the labels ``decline``, where it returns None, and ``fail``, where it raises.
    """

    def __init__(self, name: str, places: dict[str, int], layout: RecordLayout) -> None:
        super().__init__(name, places)
        self.tensor, self.state = layout.tensor, layout.state
        self.frames, self.by_thread = layout.frames, layout.by_thread
        # What is let go of in the end: and, should it fail, the result.
        self.root = self.empty()
        self.owned: list[LLVMValue] = []

    def none_in(self, owner: LLVMValue, *offsets: int) -> None:
        none = self.known("None")
        for offset in offsets:
            self.store(self.hold(none), owner, offset)

    def own(self, value: LLVMValue, owner: LLVMValue, offset: int) -> LLVMValue:
        """Put a new reference where its owner keeps it; leave if there is none."""
        self.leave_if(self.test("eq", value, NULL), "fail")
        self.store(value, owner, offset)
        return value

    def lend(self, value: LLVMValue, owner: LLVMValue, offset: int) -> None:
        self.store(self.hold(value), owner, offset)

    def make(self, kind: str) -> LLVMValue:
        """A new object with empty slots; if it has a ``__dict__``, that is made when first used."""
        return self.call("PyType_GenericAlloc", self.known(kind), self.constant(0))

    def is_tensor(self, value: LLVMValue) -> LLVMValue:
        return self.is_a(value, "Tensor", "Parameter")

    def version(self, cell: LLVMValue) -> LLVMValue:
        """The version in a cell (a borrowed reference)."""
        return self.first_of(cell)

    def owner(self) -> LLVMValue:
        """A variable for a reference that is let go of in the end."""
        made = self.empty()
        self.owned.append(made)
        return made

    def release(self) -> None:
        for variable in self.owned:
            self.drop(self.load(variable))

    def state_of_thread(self) -> LLVMValue:
        """The modes of this thread, which are one object for as long as it lives.

        Those of the thread that asked last are held in two words of memory; numbers of threads are
        never used again.
        """
        thread = self.call("PyThreadState_Get")
        number = self.call("PyThreadState_GetID", thread, kind="i64")
        last, held = LLVMValue("@last_thread"), LLVMValue("@last_state")
        known = self.test("eq", self.load(last, 0, "i64"), number)
        if not self.by_thread:  # something else may run in turns in one thread
            known = LLVMValue("false", "i1")
        with self.otherwise(known):
            now = self.call("PyObject_GetAttr", self.known("modes"), self.known("'now'"))
            self.leave_if(self.test("eq", now, NULL), "fail")
            before = self.load(held)
            self.store(number, last)
            self.store(now, held)
            self.drop(before)
        # It outlives the call: whoever takes its place runs in another thread, which has its own.
        state, mine = self.load(held), self.owner()
        self.store(self.hold(state), mine)
        return state

    def elements(self, array: LLVMValue) -> LLVMValue:
        """How many elements an array has."""
        rank = self.value("i64", f"sext i32 {self.load(array, RANK, 'i32')} to i64")
        sizes, total = self.load(array, SHAPE), self.variable("i64", 1)
        with self.each(rank) as d:
            size = self.load(sizes, self.scaled(d), "i64")
            self.store(self.arithmetic("mul", self.load(total, 0, "i64"), size), total)
        return self.load(total, 0, "i64")

    def is_contiguous(self, array: LLVMValue) -> LLVMValue:
        flags = self.load(array, FLAGS, "i32")
        return self.test("ne", self.arithmetic("and", flags, 1), 0)

    def fill_fresh(self, t: LLVMValue) -> None:
        """What a tensor on memory of its own has."""
        slots = self.tensor
        self.none_in(t, slots["_base"], slots["_view"], slots["_node"])
        cell = self.own(self.call("PyList_New", self.constant(1)), t, slots["_vc"])
        zero = self.hold(self.known("0"))
        self.call("PyList_SetItem", cell, self.constant(0), zero, kind="i32")

    def is_idle(self, now: LLVMValue) -> LLVMValue:
        """Decline where something unusual is on; whether ops are recorded."""
        self.leave_unless(self.is_known(self.first_of(self.known("enabled")), "True"), "decline")
        self.leave_unless(self.test("eq", self.size(self.known("INFERRING")), 0), "decline")
        self.leave_unless(self.is_a(now, "State"), "decline")
        mode = self.load(now, self.state["mode"])
        self.leave_if(self.is_known(mode, "SPECIAL"), "decline")
        return self.is_known(mode, "PLAIN")

    def user_frame(
        self, at: FrameLayout, depth: LLVMValue, unknown: str
    ) -> tuple[LLVMValue, LLVMValue]:
        """What ``caller`` finds, without making objects of frames: code and instruction.

        It goes to ``unknown`` where it meets code of a file that it has not met before.
        """
        head, found = self.label(), self.label()
        last = self.first_of(self.known("last_caller"))
        step = self.variable("ptr", at.current(self))
        with self.each(depth):
            here = self.load(step)
            self.leave_if(self.test("eq", here, NULL), unknown)
            self.store(at.caller(self, here), step)
        self.go(head)
        self.here(head)
        inner = self.load(step)
        self.leave_if(self.test("eq", inner, NULL), unknown)
        code = self.load(inner, at.code)
        self.leave_if(self.test("eq", code, last), found)
        own = self.call("PyDict_GetItem", self.known("own_files"), self.load(code, at.filename))
        self.leave_if(self.test("eq", own, NULL), unknown)
        with self.when(self.is_known(own, "True")):
            self.store(at.caller(self, inner), step)
            self.go(head)
            self.here(self.label())
        place = self.known("last_caller")
        self.call("PyList_SetItem", place, self.constant(0), self.hold(code), kind="i32")
        self.go(found)
        self.here(found)
        inner = self.load(step)
        code = self.load(inner, at.code)
        here = self.value("i64", f"ptrtoint ptr {self.load(inner, at.instruction)} to i64")
        start = self.value("i64", f"ptrtoint ptr {self.at(code, at.first)} to i64")
        return code, self.arithmetic("sub", here, start)


class Finish(TensorEmitter):
    """The function ``finish(y, attrs, now, depth, *inputs)`` of ops with one result.

    ``view`` for ops whose result shows the memory of their one input. For those with ``several``
    results it is ``finish(ys, attrs, now, depth, shown, *inputs)``. ``depth`` is how far up the
    stack the user's frame is expected, counted from the function that makes the call.

    With ``computes`` it is a whole op, ``call(attrs, depth, *inputs)``, or with ``shown`` behind
    the depth: the arrays of the inputs, which must be of one type that needs no conversion, go to
    the op's native code or its reference, and what that gives is finished.
    """

    def __init__(
        self,
        name: str,
        places: dict[str, int],
        layout: RecordLayout,
        view: bool,
        several: bool,
        computes: bool,
    ) -> None:
        super().__init__(name, places, layout)
        self.view, self.several, self.computes = view, several, computes
        self.first = (2 if computes else 4) + several  # of the inputs
        self.node, self.output, self.plan = layout.node, layout.output, layout.plan
        self.write()

    # --- parts -------------------------------------------------------------------------

    def shape_tuple(self, array: LLVMValue) -> LLVMValue:
        """The shape of an array as a new tuple; null if that fails."""
        rank = self.value("i64", f"sext i32 {self.load(array, RANK, 'i32')} to i64")
        sizes = self.load(array, SHAPE)
        made = self.variable("ptr", "null")
        fails, done = self.label(), self.label()
        items = self.call("PyTuple_New", rank)
        self.leave_if(self.test("eq", items, NULL), done)
        with self.each(rank) as i:
            size = self.call("PyLong_FromLongLong", self.load(sizes, self.scaled(i), "i64"))
            self.leave_if(self.test("eq", size, NULL), fails)
            self.put(size, items, i)
        self.store(items, made)
        self.go(done)
        self.here(fails)
        self.drop(items)
        self.go(done)
        self.here(done)
        return self.load(made)

    def is_float(self, array: LLVMValue) -> LLVMValue:
        kind = self.load(array, DESCR)
        return self.either(*(self.is_known(kind, name) for name in (*FLOATS, *HALVES)))

    def input(self, i: LLVMValue | int) -> LLVMValue:
        return self.argument(i, self.first)

    # --- the function ------------------------------------------------------------------

    def write(self) -> None:
        self.inputs = self.arithmetic("sub", self.length, self.first)
        self.leave_if(self.test("slt", self.inputs, 1), "decline")
        own = LLVMValue("%self")
        self.op = self.item(own, OP)
        self.plans = self.item(own, PLANS)
        self.facts = self.at(self.item(own, FACTS), BYTES)
        self.apart = self.owner()  # a node that no result holds yet
        if self.computes:
            self.attrs, self.depth = self.argument(0), self.argument(1)
        else:
            self.attrs, self.now, self.depth = (self.argument(i) for i in (1, 2, 3))
        self.check_modes()
        if self.computes:
            self.compute()
        else:
            self.y = self.argument(0)
        self.check_results()
        self.check_inputs()
        self.find_plan()
        self.make_results()
        self.make_node()
        self.finish_results()
        self.here("decline")
        self.release()
        self.give(self.hold(self.known("None")))
        self.here("fail")
        self.drop(self.load(self.root))
        self.release()
        self.give(NULL)

    def check_modes(self) -> None:
        self.leave_unless(self.is_a(self.depth, "int"), "decline")
        if self.computes:
            self.now = self.state_of_thread()
        self.is_plain = self.is_idle(self.now)
        self.records = self.both(self.is_plain, self.fact(DIFFERENTIABLE))

    # --- computing ---------------------------------------------------------------------

    def attribute(self, name: str) -> LLVMValue:
        """An attribute of the op, as a new reference."""
        value = self.call("PyObject_GetAttr", self.op, self.known(f"'{name}'"))
        self.leave_if(self.test("eq", value, NULL), "fail")
        return value

    def fact(self, which: int) -> LLVMValue:
        return self.test("ne", self.byte(self.facts, which), 0)

    def compute(self) -> None:
        arrays, result = self.owner(), self.owner()
        self.leave_unless(self.test("sle", self.inputs, MOST), "decline")
        held = self.attribute("limit")
        limit = self.call("PyLong_AsLongLong", held, kind="i64")
        self.drop(held)
        given = self.call("PyTuple_New", self.inputs)
        self.leave_if(self.test("eq", given, NULL), "fail")
        self.store(given, arrays)
        self.common, self.large = self.variable("ptr", "null"), self.variable("i1", "false")
        self.in_rows, self.number = self.variable("i1", "true"), self.variable("i1", "false")
        with self.each(self.inputs) as i:
            self.take(i, given, limit)
        # Nothing but numbers, where a type is to be found among arrays.
        promotes = self.test("ne", self.byte(self.facts, MASK), 0)
        untyped = self.test("eq", self.load(self.common), NULL)
        self.leave_if(self.both(promotes, untyped), "decline")
        if self.several:  # the order of memory of several results is asked for one by one
            free = self.is_known(self.item(LLVMValue("%self"), LAYOUT), "None")
            self.leave_unless(self.either(free, self.load(self.in_rows, 0, "i1")), "decline")
        places = self.at(given, TUPLE)
        self.bare = self.call("PyDict_Size", self.attrs, kind="i64")
        self.leave_if(self.test("slt", self.bare, 0), "fail")
        for name, entry_name in HALVES.items():
            with self.when(self.is_known(self.load(self.common), name)):
                # The reference would do its steps in that type: Python's code widens first.
                self.leave_unless(self.test("eq", self.bare, 0), "decline")
                self.try_entry(entry_name, places, result)
                self.leave_if(self.test("eq", self.load(result), NULL), "decline")
        whole = self.either(  # which entry points do not take
            *(self.is_known(self.load(self.common), name) for name in ("i64", *HALVES))
        )
        with self.when(self.both(self.test("eq", self.bare, 0), self.negated(whole))):
            self.try_entrys(places, result)
        with self.when(self.test("eq", self.load(result), NULL)):
            with self.when(self.load(self.large, 0, "i1")):
                self.try_native(given, result)
        with self.when(self.test("eq", self.load(result), NULL)):
            reference = self.item(LLVMValue("%self"), REFERENCE)
            with self.silence():
                y = self.call("PyObject_VectorcallDict", reference, places, self.inputs, self.attrs)
                self.store(y, result)
            self.stop_if_failed(self.load(result))
        if not self.several:
            self.lay_out(given, result)
        self.y = self.load(result)

    def try_native(self, given: LLVMValue, result: LLVMValue) -> None:
        """The op's kernel, where there is one that takes such arrays."""
        words = self.stack(3)
        for k, value in enumerate((self.op, given, self.attrs)):
            self.store(value, words, 8 * k)
        y = self.call("PyObject_Vectorcall", self.known("forward"), words, self.constant(3), NULL)
        self.stop_if_failed(y)
        none = self.is_known(y, "None")
        with self.when(none):
            self.drop(y)
        with self.otherwise(none):
            self.store(y, result)

    @contextmanager
    def silence(self) -> Iterator[None]:
        """No floating-point warnings, but for the ops that do without this (``core.quiet``)."""
        token = self.variable("ptr", "null")
        level = self.byte(self.facts, LOUD)
        few = self.both(self.test("slt", self.inputs, 3), self.test("eq", self.bare, 0))
        loud = self.either(self.test("eq", level, 2), self.both(self.test("eq", level, 1), few))
        with self.otherwise(loud):
            made = self.call("PyContextVar_Set", self.known("warnings"), self.known("silent"))
            self.store(made, token)
            self.leave_if(self.test("eq", made, NULL), "fail")
        yield
        held = self.load(token)
        with self.when(self.test("ne", held, NULL)):
            words = self.stack(3)
            parts = [self.at(words, 8 * k) for k in range(3)]
            self.call("PyErr_Fetch", *parts, kind="void")
            self.call("PyContextVar_Reset", self.known("warnings"), held, kind="i32")
            self.drop(held)
            self.call("PyErr_Restore", *(self.load(part) for part in parts), kind="void")

    def take(self, i: LLVMValue, given: LLVMValue, limit: LLVMValue) -> None:
        """One input: its array, or None or a number as it is."""
        x = self.input(i)
        tensor = self.is_tensor(x)
        bit = self.value("i64", f"lshr i64 {self.byte(self.facts, MASK)}, {i}")
        near = self.test("slt", i, 8)
        chosen = self.both(near, self.test("ne", self.arithmetic("and", bit, 1), 0))
        chosen = self.either(chosen, self.fact(ALL))
        with self.when(tensor):
            a = self.load(x, self.tensor["_a"])
            self.leave_if(self.test("eq", a, NULL), "decline")
            self.leave_unless(self.is_a(a, "ndarray"), "decline")
            self.put(self.hold(a), given, i)
            with self.when(chosen):
                self.check_type(a)
            with self.otherwise(self.test("slt", self.elements(a), limit)):
                self.store(LLVMValue("true", "i1"), self.large)
            with self.otherwise(self.is_contiguous(a)):
                self.store(LLVMValue("false", "i1"), self.in_rows)
        with self.otherwise(tensor):
            none = self.is_a(x, "NoneType")
            with self.when(none):
                self.leave_unless(self.fact(NONES), "decline")
            with self.otherwise(none):
                self.leave_unless(self.is_a(x, "int", "float"), "decline")
                with self.when(chosen):
                    allowed = self.byte(self.facts, NUMBERS)
                    second = self.both(self.test("eq", i, 1), self.test("eq", self.inputs, 2))
                    pair = self.both(second, self.test("eq", allowed, 1))
                    any_one = self.test("eq", allowed, 2)
                    self.leave_unless(self.either(pair, any_one), "decline")
                    self.check_number(x, pair)
                    self.store(LLVMValue("true", "i1"), self.number)
            self.put(self.hold(x), given, i)

    def check_number(self, x: LLVMValue, pair: LLVMValue) -> None:
        """Whether a number leaves the type of the arrays as it is, and has a value in it."""
        common = self.load(self.common)
        floating = self.either(*(self.is_known(common, name) for name in FLOATS))
        with self.otherwise(floating):
            whole = self.both(self.is_known(common, "i64"), self.is_a(x, "int"))
            self.leave_unless(self.both(pair, whole), "decline")
            overflow = self.variable("i32", 0)
            self.call("PyLong_AsLongLongAndOverflow", x, overflow, kind="i64")
            self.leave_unless(self.test("eq", self.load(overflow, 0, "i32"), 0), "decline")

    def check_type(self, a: LLVMValue) -> None:
        """Whether an array has the type of those before it, or is the first and of a usual one."""
        kind, common = self.load(a, DESCR), self.load(self.common)
        first = self.test("eq", common, NULL)
        with self.when(first):
            allowed, usual = self.byte(self.facts, KINDS), []
            for bit, names in ((FLOATING, FLOATS), (INTEGRAL, ("i64",)), (BOOLEAN, ("b1",))):
                taken = self.test("ne", self.arithmetic("and", allowed, bit), 0)
                found = self.either(*(self.is_known(kind, name) for name in names))
                usual.append(self.both(taken, found))
            half = self.either(*(self.is_known(kind, name) for name in HALVES))
            usual.append(self.both(self.fact(HALF), half))
            self.leave_unless(self.either(*usual), "decline")
            self.store(kind, self.common)
        with self.otherwise(first):
            self.leave_unless(self.test("eq", kind, common), "decline")

    def try_entrys(self, places: LLVMValue, result: LLVMValue) -> None:
        """Native code for small arrays of one shape, for one with a number, for one with a row."""
        number = self.both(self.load(self.number, 0, "i1"), self.test("eq", self.inputs, 2))
        with self.when(number):
            self.try_entry("entry_with_number", places, result)
        with self.otherwise(number):
            self.try_entry("entry", places, result)
            unfound = self.test("eq", self.load(result), NULL)
            with self.when(self.both(unfound, self.test("eq", self.inputs, 2))):
                second = self.load(places, 8)
                with self.when(self.is_a(second, "ndarray")):
                    with self.when(self.test("eq", self.load(second, RANK, "i32"), 1)):
                        self.try_entry("entry_with_row", places, result)

    def try_entry(self, name: str, places: LLVMValue, result: LLVMValue) -> None:
        entry = self.attribute(name)
        with self.otherwise(self.is_known(entry, "None")):
            y = self.call("PyObject_Vectorcall", entry, places, self.inputs, NULL)
            self.store(y, result)
        self.drop(entry)
        y = self.load(result)
        failed = self.either(self.test("eq", y, NULL), self.is_known(y, "None"))
        with self.when(failed):
            self.store(NULL, result)
            self.drop(y)
            self.call("PyErr_Clear", kind="void")
        with self.otherwise(failed):  # it is in the order that arrays with gaps ask for, too
            self.store(LLVMValue("true", "i1"), self.in_rows)

    def stop_if_failed(self, y: LLVMValue) -> None:
        """The caller's code repeats what failed, and explains; nothing stops an interrupt."""
        with self.when(self.test("eq", y, NULL)):
            plain = self.call("PyErr_ExceptionMatches", self.known("Exception"), kind="i32")
            self.leave_if(self.test("eq", plain, 0), "fail")
            self.call("PyErr_Clear", kind="void")
            self.go("decline")
            self.here(self.label())

    def lay_out(self, given: LLVMValue, result: LLVMValue) -> None:
        """The result as an array, in the memory order that the op requires."""
        y = self.load(result)
        with self.otherwise(self.is_a(y, "ndarray")):
            words = self.stack(1)
            self.store(y, words)
            made = self.call(
                "PyObject_Vectorcall", self.known("asarray"), words, self.constant(1), NULL
            )
            self.store(made, result)
            self.drop(y)
            self.stop_if_failed(made)
            self.leave_unless(self.is_a(made, "ndarray"), "decline")
        layout = self.item(LLVMValue("%self"), LAYOUT)
        with self.otherwise(self.is_known(layout, "None")):
            y = self.load(result)
            rows = self.both(self.load(self.in_rows, 0, "i1"), self.is_contiguous(y))
            with self.otherwise(self.both(rows, self.fact(ROWS))):
                words = self.stack(2)
                self.store(y, words)
                self.store(given, words, 8)
                made = self.call("PyObject_Vectorcall", layout, words, self.constant(2), NULL)
                self.store(made, result)
                self.drop(y)
                self.stop_if_failed(made)

    # --- looking -----------------------------------------------------------------------

    def check_results(self) -> None:
        if not self.several:
            self.leave_unless(self.is_a(self.y, "ndarray"), "decline")
            if self.view:
                self.check_view(self.y)
            return
        self.leave_unless(self.is_a(self.y, "tuple"), "decline")
        self.count_out = self.size(self.y)
        shown = self.variable("i64", self.count_out)
        given = self.argument(self.first - 1)
        with self.otherwise(self.is_known(given, "None")):
            self.leave_unless(self.is_a(given, "int"), "decline")
            self.store(self.call("PyLong_AsLongLong", given, kind="i64"), shown)
        self.shown = self.load(shown, 0, "i64")
        own = LLVMValue("%self")
        known = self.arithmetic("sub", self.size(self.item(own, FACTS)), OUTPUTS)
        # Ops with any number of results have gradients for all of them.
        self.open_ended = self.test("eq", known, 0)
        fits = self.either(self.open_ended, self.test("eq", known, self.count_out))
        self.leave_unless(self.both(fits, self.test("sgt", self.count_out, 0)), "decline")
        with self.each(self.count_out) as k:
            y = self.item(self.y, k)
            self.leave_unless(self.is_a(y, "ndarray"), "decline")
            kind = self.load(y, DESCR)
            usual = (self.is_known(kind, name) for name in ("f32", "f64", "i64", "b1"))
            self.leave_unless(self.either(*usual), "decline")
            if self.view:
                self.check_view(y)
            if self.computes:  # ops with an order of memory for several results have it so
                laid = self.either(
                    self.is_known(self.item(own, LAYOUT), "None"), self.is_contiguous(y)
                )
                self.leave_unless(laid, "decline")

    def check_view(self, y: LLVMValue) -> None:
        """Whether a result shows the memory of the one input, or is plainly none of it."""
        x = self.input(0)
        self.leave_unless(self.test("eq", self.inputs, 1), "decline")
        self.leave_unless(self.is_tensor(x), "decline")
        a = self.load(x, self.tensor["_a"])
        self.leave_if(self.test("eq", a, NULL), "decline")
        self.leave_unless(self.is_a(a, "ndarray"), "decline")
        self.leave_if(self.test("eq", self.load(x, self.tensor["_view"]), NULL), "decline")
        with self.otherwise(self.shows(y)):
            # A copy, if it is plain whose memory both are.
            for array in (y, a):
                held = self.load(array, BASE)
                with self.otherwise(self.test("eq", held, NULL)):
                    self.leave_unless(self.is_a(held, "ndarray"), "decline")
                    self.leave_unless(self.test("eq", self.load(held, BASE), NULL), "decline")

    def shows(self, y: LLVMValue) -> LLVMValue:
        """Whether a result is known to be a view of the input's memory."""
        a, held = self.load(self.input(0), self.tensor["_a"]), self.load(y, BASE)
        same = self.either(self.test("eq", held, a), self.test("eq", held, self.load(a, BASE)))
        return self.both(self.test("ne", held, NULL), same)

    def check_inputs(self) -> None:
        """Which inputs are tensors and which need a gradient, as bits."""
        needs, tensors = self.variable("i64", 0), self.variable("i64", 0)
        bit = self.variable("i64", 1)
        with self.each(self.inputs) as i:
            x = self.input(i)
            tensor = self.is_tensor(x)
            with self.when(tensor):
                self.check_tensor(x, bit, needs, tensors)
            with self.otherwise(tensor):
                plain = self.is_a(x, "NoneType", "float", "int", "bool")
                self.leave_unless(plain, "decline")
            self.store(self.arithmetic("shl", self.load(bit, 0, "i64"), 1), bit)
        self.needs, self.tensors = (self.load(v, 0, "i64") for v in (needs, tensors))

    def check_tensor(
        self, x: LLVMValue, bit: LLVMValue, needs: LLVMValue, tensors: LLVMValue
    ) -> None:
        a, cell = self.load(x, self.tensor["_a"]), self.load(x, self.tensor["_vc"])
        node, base = self.load(x, self.tensor["_node"]), self.load(x, self.tensor["_base"])
        for value in (a, cell, node, base):
            self.leave_if(self.test("eq", value, NULL), "decline")
        self.leave_unless(self.is_a(a, "ndarray"), "decline")
        # Those of inference tensors are of another class.
        self.leave_unless(self.is_a(cell, "list"), "decline")
        self.leave_unless(self.test("sgt", self.size(cell), 0), "decline")
        self.mark(bit, tensors)
        with self.when(self.records):
            with self.otherwise(self.is_known(base, "None")):
                self.leave_if(self.is_known(node, "NOWHERE"), "decline")
                stamp, version = self.load(x, self.tensor["_stamp"]), self.version(cell)
                self.leave_if(self.test("eq", stamp, NULL), "decline")
                with self.when(self.test("ne", stamp, version)):
                    numbers = self.both(self.is_a(stamp, "int"), self.is_a(version, "int"))
                    self.leave_unless(numbers, "decline")
                    same = self.call(
                        "PyObject_RichCompareBool",
                        stamp,
                        version,
                        LLVMValue("2", "i32"),
                        kind="i32",
                    )
                    self.leave_unless(self.test("eq", same, 1), "decline")
            with self.otherwise(self.is_known(node, "None")):
                self.leave_if(self.is_known(node, "NOWHERE"), "decline")
                self.mark(bit, needs)

    def mark(self, bit: LLVMValue, bits: LLVMValue) -> None:
        both = self.arithmetic("or", self.load(bits, 0, "i64"), self.load(bit, 0, "i64"))
        self.store(both, bits)

    def find_plan(self) -> None:
        """The plan for this pattern, where something is recorded; else null."""
        plan = self.variable("ptr", "null")
        self.recipe = self.variable("ptr", "null")
        needed = self.both(self.records, self.test("ne", self.needs, 0))
        with self.when(needed):
            self.leave_unless(self.test("sle", self.inputs, MOST), "decline")
            if not self.several:
                self.leave_unless(self.is_float(self.y), "decline")
            key = self.call("PyLong_FromLongLong", self.pattern())
            self.leave_if(self.test("eq", key, NULL), "fail")
            found = self.call("PyDict_GetItem", self.plans, key)
            self.drop(key)
            self.leave_if(self.test("eq", found, NULL), "decline")
            self.leave_unless(self.is_a(found, "Plan"), "decline")
            recipe = self.load(found, self.plan["recipe"])
            self.leave_if(self.test("eq", recipe, NULL), "decline")
            self.leave_unless(self.is_a(recipe, "bytes"), "decline")
            self.store(found, plan)
            self.store(recipe, self.recipe)
        self.found = self.load(plan)
        self.recorded = self.test("ne", self.found, NULL)

    def pattern(self) -> LLVMValue:
        """The key of a plan: see ``Op.plan_for``. (No complex numbers come here.)"""
        count, sh, add = self.inputs, "shl", "or"
        variadic = self.fact(VARIADIC)
        bits = self.value("i64", f"shl i64 1, {count}")
        bits = self.arithmetic(sh, self.arithmetic(add, bits, self.needs), count)
        bits = self.arithmetic(sh, self.arithmetic(add, bits, self.tensors), 1)
        other = self.arithmetic("xor", self.arithmetic(sh, count, 1), -1)
        return self.value("i64", f"select i1 {variadic}, i64 {other}, i64 {bits}")

    # --- tensors -----------------------------------------------------------------------

    def make_results(self) -> None:
        if not self.several:
            t = self.make("Tensor")
            self.leave_if(self.test("eq", t, NULL), "fail")
            self.store(t, self.root)
            self.fill_tensor(t, self.y, self.constant(0))
            self.t = t
            return
        items = self.call("PyTuple_New", self.count_out)
        self.leave_if(self.test("eq", items, NULL), "fail")
        self.store(items, self.root)
        self.results = items
        with self.each(self.count_out) as k:
            t = self.make("Tensor")
            self.leave_if(self.test("eq", t, NULL), "fail")
            self.put(t, items, k)
            self.fill_tensor(t, self.item(self.y, k), k)

    def fill_tensor(self, t: LLVMValue, y: LLVMValue, k: LLVMValue) -> None:
        slots = self.tensor
        self.lend(y, t, slots["_a"])
        self.none_in(t, slots["_grad"], slots["_x"])
        if not self.view:
            self.fill_fresh(t)
            return
        shown = self.shows(y)
        with self.when(shown):
            self.link(t, k)
        with self.otherwise(shown):
            self.fill_fresh(t)

    def link(self, t: LLVMValue, k: LLVMValue) -> None:
        """Tie a view to its base, as ``link_view`` does."""
        slots, x = self.tensor, self.input(0)
        cell = self.load(x, slots["_vc"])
        self.lend(cell, t, slots["_vc"])
        self.lend(self.version(cell), t, slots["_stamp"])
        base = self.load(x, slots["_base"])
        bare = self.is_known(base, "None")
        root = self.value("ptr", f"select i1 {bare}, ptr {x}, ptr {base}")
        self.lend(root, t, slots["_base"])
        earlier = self.load(x, slots["_view"])
        # Whether it was made with recording on; a view of a view says so only if that does.
        visible = self.variable("ptr", self.known("False"))
        with self.when(self.is_plain):
            self.store(self.known("True"), visible)
            with self.otherwise(bare):
                long = self.both(
                    self.is_a(earlier, "tuple"), self.test("eq", self.size(earlier), 6)
                )
                with self.when(long):
                    self.store(self.item(earlier, 5), visible)
        seen, step = self.hold(self.load(visible)), self.hold(earlier)
        node = self.variable("ptr", self.known("None"))
        with self.otherwise(self.is_plain):
            behind = self.load(root, slots["_node"])
            with self.otherwise(self.is_known(behind, "None")):
                self.store(self.known("NOWHERE"), node)
        self.lend(self.load(node), t, slots["_node"])
        view = self.call("PyTuple_New", self.constant(6))
        with self.when(self.test("eq", view, NULL)):
            self.drop(seen)
            self.drop(step)
        self.own(view, t, slots["_view"])
        self.put(self.hold(self.op), view, 0)
        self.put(self.hold(self.known("()")), view, 1)
        self.put(self.hold(self.attrs), view, 2)
        self.put(step, view, 4)
        self.put(seen, view, 5)
        number = self.call("PyLong_FromLongLong", k)
        self.leave_if(self.test("eq", number, NULL), "fail")
        self.put(number, view, 3)

    # --- the node ----------------------------------------------------------------------

    def make_node(self) -> None:
        with self.when(self.recorded):
            n, slots = self.make("Node"), self.node
            if self.several:
                self.leave_if(self.test("eq", n, NULL), "fail")
                self.store(n, self.apart)
            else:
                self.leave_if(self.test("eq", n, NULL), "fail")
                before = self.load(self.t, self.tensor["_node"])
                self.store(n, self.t, self.tensor["_node"])
                self.drop(before)
            self.n = n
            self.lend(self.found, n, slots["plan"])
            self.lend(self.attrs, n, slots["attrs"])
            self.lend(self.load(self.now, self.state["scope"]), n, slots["scope"])
            self.none_in(n, slots["extras"])
            self.own(self.call("PyIter_Next", self.known("counter")), n, slots["seq"])
            self.save_edges(n)
            self.save_values(n)
            self.save_guard(n)
            self.save_position(n)
            if self.several:
                self.place_outputs(n)
            else:
                self.lend(self.load(self.y, DESCR), n, slots["dtype"])
                self.own(self.shape_tuple(self.y), n, slots["shape"])

    def save_edges(self, n: LLVMValue) -> None:
        edges = self.own(self.call("PyTuple_New", self.inputs), n, self.node["inputs"])
        with self.each(self.inputs) as i:
            x = self.input(i)
            edge = self.variable("ptr", x)
            with self.when(self.is_tensor(x)):
                node = self.load(x, self.tensor["_node"])
                free = self.is_known(node, "None")
                with self.otherwise(free):
                    self.store(node, edge)
                rank = self.load(self.load(x, self.tensor["_a"]), RANK, "i32")
                # A number in a tensor's clothes is held; others only as long as they live.
                with self.when(self.both(free, self.test("ne", rank, 0))):
                    weak = self.call("PyWeakref_NewRef", x, NULL)
                    self.leave_if(self.test("eq", weak, NULL), "fail")
                    self.put(weak, edges, i)
            with self.when(self.test("eq", self.item(edges, i), NULL)):
                self.put(self.hold(self.load(edge)), edges, i)

    def recipe_bytes(self) -> LLVMValue:
        return self.at(self.load(self.recipe), BYTES)

    def save_values(self, n: LLVMValue) -> None:
        recipe = self.recipe_bytes()
        count = self.byte(recipe, 0)
        saved = self.own(self.call("PyTuple_New", count), n, self.node["saved"])
        with self.each(count) as j:
            place = self.arithmetic("add", self.arithmetic("mul", j, 2), 2)
            kind, which = self.byte(recipe, place), self.byte(self.at(recipe, 1), place)
            for code, write in (
                (INPUT, self.saved_input),
                (OUTPUT, self.saved_output),
                (INPUT_SHAPE, self.saved_shape),
                (INPUT_DTYPE, self.saved_dtype),
                (SHAPES, self.saved_shapes),
                (REST, self.saved_rest),
            ):
                with self.when(self.test("eq", kind, code)):
                    value = write(which)
                    self.leave_if(self.test("eq", value, NULL), "fail")
                    self.put(value, saved, j)

    def array_of(self, i: LLVMValue) -> LLVMValue:
        return self.load(self.input(i), self.tensor["_a"])

    def saved_input(self, i: LLVMValue) -> LLVMValue:
        x = self.input(i)
        value = self.variable("ptr", x)
        with self.when(self.is_tensor(x)):
            self.store(self.load(x, self.tensor["_a"]), value)
        return self.hold(self.load(value))

    def saved_output(self, k: LLVMValue) -> LLVMValue:
        return self.hold(self.item(self.y, k) if self.several else self.y)

    def saved_shape(self, i: LLVMValue) -> LLVMValue:
        array = self.hold(self.array_of(i))
        shape = self.shape_tuple(array)
        self.drop(array)
        return shape

    def saved_dtype(self, i: LLVMValue) -> LLVMValue:
        return self.hold(self.load(self.array_of(i), DESCR))

    def saved_rest(self, first: LLVMValue) -> LLVMValue:
        """All inputs from one on, as a new tuple."""
        made = self.variable("ptr", "null")
        count = self.arithmetic("sub", self.inputs, first)
        items = self.call("PyTuple_New", count)
        with self.when(self.test("ne", items, NULL)):
            with self.each(count) as k:
                self.put(self.saved_input(self.arithmetic("add", k, first)), items, k)
            self.store(items, made)
        return self.load(made)

    def saved_shapes(self, _: LLVMValue) -> LLVMValue:
        made = self.variable("ptr", "null")
        done = self.label()
        items = self.call("PyTuple_New", self.inputs)
        self.leave_if(self.test("eq", items, NULL), done)
        with self.each(self.inputs) as i:
            shape = self.saved_shape(i)
            with self.when(self.test("eq", shape, NULL)):
                self.drop(items)
                self.go(done)
                self.here(self.label())
            self.put(shape, items, i)
        self.store(items, made)
        self.go(done)
        self.here(done)
        return self.load(made)

    def save_guard(self, n: LLVMValue) -> None:
        """The sum of the versions of what is saved, then their cells."""
        recipe = self.recipe_bytes()
        values, count = self.byte(recipe, 0), self.byte(recipe, 1)
        behind = self.arithmetic("add", self.arithmetic("mul", values, 2), 2)
        cells = self.at(recipe, behind)
        none = self.test("eq", count, 0)
        with self.when(none):
            self.none_in(n, self.node["guard"])
        with self.otherwise(none):
            wanted = self.arithmetic("add", count, 1)
            guard = self.own(self.call("PyTuple_New", wanted), n, self.node["guard"])
            total = self.variable("ptr", "null")
            with self.each(count) as j:
                place = self.arithmetic("mul", j, 2)
                kind, which = self.byte(cells, place), self.byte(self.at(cells, 1), place)
                cell = self.variable("ptr", "null")
                given = self.test("eq", kind, INPUT)
                with self.when(given):
                    self.store(self.load(self.input(which), self.tensor["_vc"]), cell)
                with self.otherwise(given):
                    t = self.item(self.results, which) if self.several else self.t
                    self.store(self.load(t, self.tensor["_vc"]), cell)
                held = self.hold(self.load(cell))
                self.put(held, guard, self.arithmetic("add", j, 1))
                version, so_far = self.version(held), self.load(total)
                first = self.test("eq", so_far, NULL)
                with self.when(first):
                    self.store(self.hold(version), total)
                with self.otherwise(first):
                    added = self.call("PyNumber_Add", so_far, version)
                    self.drop(so_far)
                    self.leave_if(self.test("eq", added, NULL), "fail")
                    self.store(added, total)
            self.put(self.load(total), guard, 0)

    def save_position(self, n: LLVMValue) -> None:
        """The user's frame: that at a depth if it is the last one again, else it is looked for."""
        known, done = self.label(), self.label()
        if self.frames is not None:
            unknown = self.label()
            depth = self.call("PyLong_AsLongLong", self.depth, kind="i64")
            code, at = self.user_frame(self.frames, depth, unknown)
            self.lend(code, n, self.node["code"])
            self.own(self.call("PyLong_FromLongLong", at), n, self.node["instruction"])
            self.go(done)
            self.here(unknown)
        words = self.stack(2)
        self.store(self.depth, words, 8)
        frame = self.variable("ptr", "null")
        flags = LLVMValue(str(1 - (1 << 63)), "i64")  # the place before the arguments may be used
        asked = self.call(
            "PyObject_Vectorcall", self.known("getframe"), self.at(words, 8), flags, NULL
        )
        self.store(asked, frame)
        lost = self.test("eq", asked, NULL)
        with self.when(lost):
            self.call("PyErr_Clear", kind="void")
            self.store(self.hold(self.known("None")), words, 8)
        with self.otherwise(lost):
            code = self.call("PyFrame_GetCode", asked)
            last = self.first_of(self.known("last_caller"))
            same = self.test("eq", code, last)
            with self.when(same):
                self.store(code, n, self.node["code"])
                self.go(known)
                self.here(self.label())
            self.drop(code)
            self.store(asked, words, 8)
        found = self.call(
            "PyObject_Vectorcall", self.known("caller"), self.at(words, 8), flags, NULL
        )
        self.drop(self.load(words, 8))
        self.leave_if(self.test("eq", found, NULL), "fail")
        self.store(found, frame)
        real = self.is_a(found, "frame")
        with self.when(real):
            self.own(self.call("PyFrame_GetCode", found), n, self.node["code"])
            self.go(known)
            self.here(self.label())
        self.drop(found)
        self.none_in(n, self.node["code"])
        self.lend(self.known("0"), n, self.node["instruction"])
        self.go(done)
        self.here(known)
        held = self.load(frame)
        at = self.call("PyFrame_GetLasti", held, kind="i32")
        self.drop(held)
        number = self.value("i64", f"sext i32 {at} to i64")
        self.own(self.call("PyLong_FromLongLong", number), n, self.node["instruction"])
        self.go(done)
        self.here(done)

    # --- several results ---------------------------------------------------------------

    def place_outputs(self, n: LLVMValue) -> None:
        slots = self.node
        shapes = self.own(self.call("PyTuple_New", self.count_out), n, slots["shape"])
        kinds = self.own(self.call("PyTuple_New", self.count_out), n, slots["dtype"])
        outs = self.own(self.call("PyDict_New"), n, slots["outs"])
        with self.each(self.count_out) as k:
            y = self.item(self.y, k)
            shape = self.shape_tuple(y)
            self.leave_if(self.test("eq", shape, NULL), "fail")
            self.put(shape, shapes, k)
            self.put(self.hold(self.load(y, DESCR)), kinds, k)
        with self.each(self.count_out) as k:
            wanted = self.variable("i1", "true")
            with self.otherwise(self.open_ended):
                fact = self.byte(self.at(self.facts, OUTPUTS), k)
                self.store(self.test("ne", fact, 0), wanted)
            y = self.item(self.y, k)
            shown = self.both(self.test("slt", k, self.shown), self.is_float(y))
            with self.when(self.both(shown, self.load(wanted, 0, "i1"))):
                self.place_output(n, outs, y, k, shapes)

    def place_output(
        self, n: LLVMValue, outs: LLVMValue, y: LLVMValue, k: LLVMValue, shapes: LLVMValue
    ) -> None:
        t, slots = self.item(self.results, k), self.output
        place = self.make("Output")
        self.leave_if(self.test("eq", place, NULL), "fail")
        before = self.load(t, self.tensor["_node"])
        self.store(place, t, self.tensor["_node"])
        self.drop(before)
        self.lend(n, place, slots["node"])
        self.lend(self.load(y, DESCR), place, slots["dtype"])
        self.lend(self.item(shapes, k), place, slots["shape"])
        self.none_in(place, slots["extras"])
        number = self.own(self.call("PyLong_FromLongLong", k), place, slots["index"])
        self.own(self.call("PyIter_Next", self.known("counter")), place, slots["seq"])
        weak = self.call("PyWeakref_NewRef", place, NULL)
        self.leave_if(self.test("eq", weak, NULL), "fail")
        put = self.call("PyDict_SetItem", outs, number, weak, kind="i32")
        self.drop(weak)
        self.leave_unless(self.test("eq", put, 0), "fail")

    def finish_results(self) -> None:
        self.release()
        self.give(self.load(self.root))


@dataclass(frozen=True)
class RecordLayout:
    """Where objects of the layer above keep what compiled code reads and writes."""

    tensor: Slots
    node: Slots
    output: Slots
    state: Slots
    plan: Slots
    frames: FrameLayout | None
    by_thread: bool  # whether the state of a thread is found by Python's thread-local objects

    @classmethod
    def of(cls, c: Classes) -> RecordLayout:
        """The layout of these classes, tried out on objects of them."""
        return cls(
            Slots(c.tensor, *TENSOR),
            Slots(c.node, *NODE),
            Slots(c.output, *OUTPUT_NODE),
            Slots(c.state, "mode", "scope"),
            Slots(c.plan, "recipe"),
            frame_layout(),
            isinstance(c.modes, _thread._local),
        )


class Records:
    """The compiled functions of a process, for the classes of the layer above.

    Each sort of function is compiled when an op first asks for it.
    """

    def __init__(self, classes: Classes) -> None:
        check_layouts()
        self.table = _AddressTable(classes)
        self.layout = RecordLayout.of(classes)
        self.recipe = emit.recipe((self.layout, self.table.places), *SOURCES)
        self.definitions: dict[tuple[bool, bool, bool], entry.MethodDefinition] = {}

    def definition(self, view: bool, several: bool, computes: bool) -> entry.MethodDefinition:
        """The compiled function of a sort."""
        sort = view, several, computes
        found = self.definitions.get(sort)
        if found is None:
            with LOCK:
                found = self.definitions.get(sort) or self._compiled(*sort)
                self.definitions[sort] = found
        return found

    def _compiled(self, view: bool, several: bool, computes: bool) -> entry.MethodDefinition:
        from weft.native.codegen import jit

        start = "call" if computes else "finish"
        name = f"{start}{'_view' * view}{'_several' * several}"

        def text() -> str:
            made = Finish(name, self.table.places, self.layout, view, several, computes)
            return LAST_STATE + made.text()

        source = text if self.recipe else text()
        (address,) = jit.engine().load(f"records_{name}", source, [name], self.recipe, jit.GLUE)
        return entry.definition(name, address)

    def function(
        self,
        op: Any,
        facts: Facts,
        plans: dict[Any, Any],
        view: bool,
        several: bool,
        computed_by: tuple[Any, Any] | None = None,
    ) -> Callable:
        """What finishes the calls of one op or, given its reference and layout, does them."""
        definition = self.definition(view, several, computed_by is not None)
        own = (self.table.content, op, plans, facts.content(), *(computed_by or ()))
        return entry.built_in(definition, own)
