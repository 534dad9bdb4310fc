"""Creating and overwriting small tensors without recording, by compiled code.

``overwrite(target, name, source[, first, block])`` does what ``core/inplace.py`` does for
``copy_``, ``fill_``, ``zero_`` and random fills where there is nothing to check or record: it
writes, and notes the change in the version cell. ``create(sizes, dtype, source[, first, block])``
makes a new tensor. A source is a number; a tensor (of ``overwrite``); None for memory as it is (of
``create``); or a row of numbers that a generator has made ahead, of which those from ``first`` on
are taken, in whole blocks: values in float32, or words, which become whole numbers by
``create(sizes, dtype, words, first, span, base)``.

Both return None for calls that they decline, before anything has changed, and the Python code,
which is the specification, does the work. ``overwrite`` returns how many elements it wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from weft.native.codegen import emit, entry, jit, records
from weft.native.codegen.emit import LIST_ITEMS, NULL, LLVMValue
from weft.native.codegen.entry import DATA, DESCR, FLAGS, PLAIN, RANK, SHAPE, WRITEABLE
from weft.native.codegen.records import RecordLayout, Records, TensorEmitter, Unsupported

_FUNCTIONS = (
    *("Py_IncRef", "Py_DecRef", "PyTuple_New", "PyList_New", "PyList_SetItem", "PyList_Append"),
    *("PyList_SetSlice", "PyLong_FromLongLong", "PyLong_AsLongLongAndOverflow", "PyDict_GetItem"),
    *("PyDict_Size", "PyFloat_AsDouble", "PyIter_Next", "PyNumber_Add", "PyObject_GetAttr"),
    *("PyThreadState_Get", "PyThreadState_GetID", "PyType_GenericAlloc"),
)
MOST = 1024  # elements up to which this pays; more are NumPy's
FEW = 128  # random numbers that are taken of those made ahead
MOST_DIMS = 8
CHANGES = 9  # entries that a version cell may have: its version and the last few changes
# Numbers up to these are the same however they are converted: those of a fill, and those of a new
# tensor, which may be infinite too.
WHOLE = float(1 << 24)
LARGEST = float(np.finfo(np.float32).max)
EXACT = float(1 << 53)
INFINITE = "0x7FF0000000000000"

# By dtype, what an element is to LLVM.
ELEMENTS = {"f32": "float", "f64": "double", "i64": "i64", "b1": "i8", "f16": "i16", "bf16": "i16"}
SIZES = {"f32": 4, "f64": 8, "i64": 8, "b1": 1, "f16": 2, "bf16": 2}


class WriteEmitter(TensorEmitter):
    """What both functions do: numbers and rows of numbers put into memory."""

    def close(self) -> None:
        """The ends of the function."""
        self.here("decline")
        self.drop(self.load(self.root))
        self.release()
        self.give(self.hold(self.known("None")))
        self.here("fail")
        self.drop(self.load(self.root))
        self.release()
        self.give(NULL)

    def flag(self, value: str = "false") -> LLVMValue:
        return self.variable("i1", value)

    def set(self, flag: LLVMValue) -> None:
        self.store(LLVMValue("true", "i1"), flag)

    def is_set(self, flag: LLVMValue) -> LLVMValue:
        return self.load(flag, 0, "i1")

    def compare(self, what: str, a: LLVMValue, b: str | LLVMValue) -> LLVMValue:
        return self.value("i1", f"fcmp {what} double {a}, {b}")

    def whole(self, x: LLVMValue) -> LLVMValue:
        """An int object as a machine word; declines those that are too large."""
        overflow = self.variable("i32", 0)
        number = self.call("PyLong_AsLongLongAndOverflow", x, overflow, kind="i64")
        self.leave_unless(self.test("eq", self.load(overflow, 0, "i32"), 0), "decline")
        return number

    @contextmanager
    def elements_of(self, count: LLVMValue, data: LLVMValue, size: int) -> Iterator[Any]:
        """A loop over memory: the number of an element, and its address."""
        with self.each(count) as i:
            yield i, self.at(data, self.arithmetic("mul", i, size))

    def put_number(
        self, x: LLVMValue, kind: LLVMValue, data: LLVMValue, count: LLVMValue, creates: bool
    ) -> None:
        """Fill with an int, float or bool; declines what the dtype has no exact rule for."""
        done = self.flag()
        is_int, is_float = self.is_a(x, "int"), self.is_a(x, "float")
        as_int, as_double = self.variable("i64", 0), self.variable("double", "0.0")
        with self.when(is_int):
            number = self.whole(x)
            self.store(number, as_int)
            self.store(self.value("double", f"sitofp i64 {number} to double"), as_double)
        with self.when(is_float):
            self.store(self.call("PyFloat_AsDouble", x, kind="double"), as_double)
        wide = self.load(as_double, 0, "double")
        size = self.value("double", f"call double @llvm.fabs.f64(double {wide})")
        fits = self.compare("ole", size, f"{LARGEST if creates else WHOLE!r}")
        if creates:
            whole = self.compare("ole", size, repr(EXACT))
            fits = self.either(fits, self.compare("oeq", size, INFINITE))
            fits = self.both(fits, self.either(is_float, whole))
        number = self.both(self.either(is_int, is_float), fits)
        for name in ("f32", "f64"):
            with self.when(self.both(self.is_known(kind, name), number)):
                value = wide
                if name == "f32":
                    value = self.value("float", f"fptrunc double {wide} to float")
                with self.elements_of(count, data, SIZES[name]) as (_, at):
                    self.store(value, at)
                self.set(done)
        with self.when(self.both(self.is_known(kind, "i64"), is_int)):
            value = self.load(as_int, 0, "i64")
            with self.elements_of(count, data, 8) as (_, at):
                self.store(value, at)
            self.set(done)
        half = self.either(self.is_known(kind, "f16"), self.is_known(kind, "bf16"))
        zero = self.both(is_int, self.test("eq", self.load(as_int, 0, "i64"), 0))
        with self.when(self.both(half, zero)):
            with self.elements_of(count, data, 2) as (_, at):
                self.store(LLVMValue("0", "i16"), at)
            self.set(done)
        yes = self.either(self.is_known(x, "True"), self.test("eq", self.load(as_int, 0, "i64"), 1))
        truth = self.either(yes, zero, self.is_known(x, "False"))
        with self.when(self.both(self.is_known(kind, "b1"), truth)):
            value = self.value("i8", f"zext i1 {yes} to i8")
            with self.elements_of(count, data, 1) as (_, at):
                self.store(value, at)
            self.set(done)
        self.leave_unless(self.is_set(done), "decline")

    def row_from(self, row: LLVMValue, first: LLVMValue, count: LLVMValue, name: str) -> LLVMValue:
        """Where numbers made ahead begin that are to be taken; declines if they are too few."""
        self.leave_unless(self.is_a(row, "ndarray"), "decline")
        self.leave_unless(self.is_known(self.load(row, DESCR), name), "decline")
        self.leave_unless(self.test("eq", self.load(row, RANK, "i32"), 1), "decline")
        self.leave_unless(self.is_contiguous(row), "decline")
        self.leave_unless(self.is_a(first, "int"), "decline")
        start = self.whole(first)
        self.leave_if(self.test("slt", start, 0), "decline")
        self.leave_unless(self.test("sle", count, FEW), "decline")
        held = self.load(self.load(row, SHAPE), 0, "i64")
        end = self.arithmetic("add", start, count)
        self.leave_unless(self.test("sle", end, held), "decline")
        return self.at(self.load(row, DATA), self.arithmetic("mul", start, 4))

    def put_row(self, row: LLVMValue, first: int, data: LLVMValue, count: LLVMValue) -> None:
        source = self.row_from(row, self.argument(first), count, "f32")
        block = self.argument(first + 1)
        self.leave_unless(self.is_a(block, "int"), "decline")
        length = self.whole(block)
        self.leave_unless(self.test("sgt", length, 0), "decline")
        rest = self.arithmetic("srem", count, length)
        self.leave_unless(self.test("eq", rest, 0), "decline")
        with self.elements_of(count, data, 4) as (i, at):
            value = self.load(source, self.arithmetic("mul", i, 4), "float")
            # As by scaling and shifting with 1 and 0: a zero loses its sign.
            self.store(self.value("float", f"fadd float {value}, 0.0"), at)


class Overwrite(WriteEmitter):
    """``overwrite(target, name, source[, first, block])``."""

    def __init__(self, name: str, places: dict[str, int], layout: RecordLayout) -> None:
        super().__init__(name, places, layout)
        if layout.frames is None:
            raise Unsupported("unsupported frame layout")
        drawn = self.test("eq", self.length, 5)
        self.leave_unless(self.either(drawn, self.test("eq", self.length, 3)), "decline")
        target, label, source = (self.argument(i) for i in range(3))
        # What can run other code (an allocation may collect garbage) comes before all checks.
        mark = self.call("PyTuple_New", self.constant(5))
        self.leave_if(self.test("eq", mark, NULL), "fail")
        self.store(mark, self.root)
        recorded = self.is_idle(self.state_of_thread())
        code, instruction = self.user_frame(layout.frames, self.constant(1), "decline")
        self.put(self.hold(label), mark, 1)
        self.put(self.hold(code), mark, 2)
        a, cell = self.checked(target, recorded)
        self.describe(mark, cell, instruction)
        count, data, kind = self.elements(a), self.load(a, DATA), self.load(a, DESCR)
        self.leave_unless(self.test("sle", count, MOST), "decline")
        with self.when(drawn):
            self.leave_unless(self.is_known(kind, "f32"), "decline")
            self.put_row(source, 3, data, count)
        with self.otherwise(drawn):
            tensor = self.is_tensor(source)
            with self.when(tensor):
                self.copy(source, a, cell, recorded, count)
            with self.otherwise(tensor):
                self.put_number(source, kind, data, count, creates=False)
        self.note(mark, cell)
        self.release()
        self.give(self.call("PyLong_FromLongLong", count))
        self.close()

    def plain_array(self, x: LLVMValue, recorded: LLVMValue) -> LLVMValue:
        """The array of a tensor without a history, in rows."""
        a, base = self.load(x, self.tensor["_a"]), self.load(x, self.tensor["_base"])
        node = self.load(x, self.tensor["_node"])
        for value in (a, base, node):
            self.leave_if(self.test("eq", value, NULL), "decline")
        self.leave_unless(self.is_a(a, "ndarray"), "decline")
        with self.when(recorded):
            free = self.both(self.is_known(node, "None"), self.is_known(base, "None"))
            self.leave_unless(free, "decline")
        return a

    def has_flags(self, a: LLVMValue, wanted: int) -> LLVMValue:
        kept = self.arithmetic("and", self.load(a, FLAGS, "i32"), wanted)
        return self.test("eq", kept, wanted)

    def checked(self, target: LLVMValue, recorded: LLVMValue) -> tuple[LLVMValue, ...]:
        """The array and the version cell of what is to be written to."""
        self.leave_unless(self.is_tensor(target), "decline")
        self.leave_unless(self.test("eq", self.size(self.known("listeners")), 0), "decline")
        a, cell = self.plain_array(target, recorded), self.load(target, self.tensor["_vc"])
        self.leave_if(self.test("eq", cell, NULL), "decline")
        self.leave_unless(self.is_a(cell, "list"), "decline")
        self.leave_unless(self.test("sgt", self.size(cell), 0), "decline")
        self.leave_unless(self.has_flags(a, PLAIN | WRITEABLE), "decline")
        for value in (a, cell):
            self.store(self.hold(value), self.owner())
        return a, cell

    def copy(
        self,
        source: LLVMValue,
        a: LLVMValue,
        cell: LLVMValue,
        recorded: LLVMValue,
        count: LLVMValue,
    ) -> None:
        """Another tensor's elements, of the same dtype and shape and in other memory."""
        b = self.plain_array(source, recorded)
        self.leave_if(self.test("eq", self.load(source, self.tensor["_vc"]), cell), "decline")
        self.leave_unless(self.has_flags(b, PLAIN), "decline")
        kind, rank = self.load(a, DESCR), self.load(a, RANK, "i32")
        self.leave_unless(self.test("eq", self.load(b, DESCR), kind), "decline")
        self.leave_unless(self.test("eq", self.load(b, RANK, "i32"), rank), "decline")
        ours, theirs = self.load(a, SHAPE), self.load(b, SHAPE)
        with self.each(self.value("i64", f"sext i32 {rank} to i64")) as d:
            at = self.scaled(d)
            sizes = (self.load(shape, at, "i64") for shape in (ours, theirs))
            self.leave_unless(self.test("eq", *sizes), "decline")
        to, of = self.load(a, DATA), self.load(b, DATA)
        done = self.flag()
        for name, element in ELEMENTS.items():
            with self.when(self.is_known(kind, name)):
                size = SIZES[name]
                length = self.arithmetic("mul", count, size)
                apart = [
                    self.value("i1", f"icmp ule ptr {self.at(x, length)}, {y}")
                    for x, y in ((to, of), (of, to))
                ]
                self.leave_unless(self.either(*apart), "decline")
                with self.elements_of(count, to, size) as (i, at):
                    self.store(self.load(of, self.arithmetic("mul", i, size), element), at)
                self.set(done)
        self.leave_unless(self.is_set(done), "decline")

    def describe(self, mark: LLVMValue, cell: LLVMValue, instruction: LLVMValue) -> None:
        """The entry of the change in the version cell, made before a byte is written."""
        version = self.call("PyNumber_Add", self.version(cell), self.known("1"))
        self.leave_if(self.test("eq", version, NULL), "fail")
        self.put(version, mark, 0)
        for k, value in (
            (3, self.call("PyLong_FromLongLong", instruction)),
            (4, self.call("PyIter_Next", self.known("ticks"))),
        ):
            self.leave_if(self.test("eq", value, NULL), "fail")
            self.put(value, mark, k)

    def note(self, mark: LLVMValue, cell: LLVMValue) -> None:
        """Count the change in the version cell, which remembers the last few: ``note_change``."""
        zero = self.constant(0)
        self.call("PyList_SetItem", cell, zero, self.hold(self.item(mark, 0)), kind="i32")
        added = self.call("PyList_Append", cell, mark, kind="i32")
        self.leave_unless(self.test("eq", added, 0), "fail")
        with self.when(self.test("sgt", self.size(cell), CHANGES)):
            span = self.constant(1), self.constant(2)
            self.call("PyList_SetSlice", cell, *span, NULL, kind="i32")
        self.drop(mark)


class Create(WriteEmitter):
    """``create(sizes, dtype, source[, first, block])``, or with ``first, span, base``.

    The sizes may be those of an array.
    """

    def __init__(self, name: str, places: dict[str, int], layout: RecordLayout) -> None:
        super().__init__(name, places, layout)
        drawn, whole = self.test("eq", self.length, 5), self.test("eq", self.length, 6)
        few = self.test("eq", self.length, 3)
        self.leave_unless(self.either(drawn, whole, few), "decline")
        given, kind, source = (self.argument(i) for i in range(3))
        self.is_idle(self.state_of_thread())
        none = self.call("PyDict_Size", self.known("devices"), kind="i64")
        self.leave_unless(self.test("eq", none, 0), "decline")
        usual = (self.is_known(kind, name) for name in ELEMENTS)
        self.leave_unless(self.either(*usual), "decline")
        rank, sizes, count = self.read_sizes(given)
        a = self.new_array(kind, rank, sizes)
        data = self.load(a, DATA)
        with self.when(self.both(few, self.negated(self.is_known(source, "None")))):
            self.put_number(source, kind, data, count, creates=True)
        with self.when(drawn):
            self.leave_unless(self.is_known(kind, "f32"), "decline")
            self.put_row(source, 3, data, count)
        with self.when(whole):
            self.put_whole(source, kind, data, count)
        t = self.make("Tensor")
        self.leave_if(self.test("eq", t, NULL), "fail")
        self.store(t, self.root)
        self.lend(a, t, self.tensor["_a"])
        self.none_in(t, self.tensor["_grad"], self.tensor["_x"])
        self.fill_fresh(t)
        self.release()
        self.give(t)
        self.close()

    def new_array(self, kind: LLVMValue, rank: LLVMValue, sizes: LLVMValue) -> LLVMValue:
        self.hold(kind)  # which the function takes over
        no, zero = LLVMValue("0", "i32"), self.value("i32", f"trunc i64 {rank} to i32")
        given = (self.known("ndarray"), kind, zero, sizes, NULL, NULL, no, NULL)
        a, mine = self.call("NewFromDescr", *given), self.owner()
        self.leave_if(self.test("eq", a, NULL), "fail")
        self.store(a, mine)
        return a

    def read_sizes(self, given: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
        """Rank, sizes in memory, and the number of elements; declines what is not plain."""
        sizes, count = self.stack(MOST_DIMS), self.variable("i64", 1)
        rank, items = self.variable("i64", 0), self.variable("ptr", "null")
        like = self.is_a(given, "ndarray")
        with self.when(like):
            # An image with one channel can be in rows and have strides that say otherwise.
            few = self.test("slt", self.load(given, RANK, "i32"), 4)
            self.leave_unless(self.both(few, self.is_contiguous(given)), "decline")
            self.store(self.value("i64", f"sext i32 {self.load(given, RANK, 'i32')} to i64"), rank)
        with self.otherwise(like):
            self.leave_unless(self.is_a(given, "tuple", "Size"), "decline")
            self.store(given, items)
            with self.when(self.test("eq", self.size(given), 1)):
                inner = self.item(given, 0)
                with self.when(self.is_a(inner, "tuple", "Size", "list")):
                    self.store(inner, items)
            self.store(self.size(self.load(items)), rank)
        length = self.load(rank, 0, "i64")
        self.leave_unless(self.test("sle", length, MOST_DIMS), "decline")
        start = self.variable("ptr", "null")
        with self.otherwise(like):
            found = self.load(items)
            is_list = self.is_a(found, "list")
            with self.when(is_list):
                self.store(self.load(found, LIST_ITEMS), start)
            with self.otherwise(is_list):
                self.store(self.at(found, entry.TUPLE), start)
        with self.each(length) as d:
            size = self.variable("i64", 0)
            with self.when(like):
                self.store(self.load(self.load(given, SHAPE), self.scaled(d), "i64"), size)
            with self.otherwise(like):
                item = self.load(self.load(start), self.scaled(d))
                self.leave_unless(self.is_a(item, "int"), "decline")
                self.store(self.whole(item), size)
            n = self.load(size, 0, "i64")
            small = self.both(self.test("sge", n, 0), self.test("sle", n, MOST))
            self.leave_unless(small, "decline")
            total = self.arithmetic("mul", self.load(count, 0, "i64"), n)
            self.leave_unless(self.test("sle", total, MOST), "decline")
            self.store(total, count)
            self.store(n, sizes, self.scaled(d))
        return length, sizes, self.load(count, 0, "i64")

    def put_whole(
        self, words: LLVMValue, kind: LLVMValue, data: LLVMValue, count: LLVMValue
    ) -> None:
        """What words leave divided by ``span``, from ``base`` on."""
        self.leave_unless(self.is_known(kind, "i64"), "decline")
        source = self.row_from(words, self.argument(3), count, "u32")
        span, base = (self.argument(i) for i in (4, 5))
        self.leave_unless(self.both(self.is_a(span, "int"), self.is_a(base, "int")), "decline")
        width, least = self.whole(span), self.whole(base)
        # A wider range takes two words a number.
        fits = self.both(self.test("sgt", width, 0), self.test("slt", width, 1 << 28))
        for low, high in ((self.constant(-(1 << 62)), least), (least, self.constant(1 << 62))):
            fits = self.both(fits, self.test("slt", low, high))
        self.leave_unless(fits, "decline")
        with self.elements_of(count, data, 8) as (i, at):
            word = self.load(source, self.arithmetic("mul", i, 4), "i32")
            wide = self.value("i64", f"zext i32 {word} to i64")
            rest = self.value("i64", f"urem i64 {wide}, {width}")
            self.store(self.arithmetic("add", rest, least), at)


def functions(
    records_: Records, size: type, listeners: list[Any], devices: dict[Any, Any], ticks: Any
) -> tuple[Callable, Callable]:
    """``overwrite`` and ``create``; raises ``Unsupported`` where frames are not what is known."""
    objects = {
        **records_.table.held,
        "Size": size,
        "listeners": listeners,
        "devices": devices,
        "ticks": ticks,
        "u32": np.dtype(np.uint32),
        "1": 1,
    }
    numpy = {"NewFromDescr": entry.new_from_descr()}
    table, places = emit.address_table(objects, _FUNCTIONS, numpy)
    layout = records_.layout

    def text() -> str:
        head = f"{records.LAST_STATE}declare double @llvm.fabs.f64(double)\n"
        both = Overwrite("overwrite", places, layout), Create("create", places, layout)
        return head + "\n".join(made.text() for made in both)

    if layout.frames is None:
        raise Unsupported("unsupported frame layout")
    recipe = emit.recipe((layout, places), __file__, *records.SOURCES)
    names = ["overwrite", "create"]
    addresses = jit.engine().load("writes", text if recipe else text(), names, recipe, jit.GLUE)
    held = tuple(objects.values())  # beside their addresses
    made = (
        entry.bound(name, address, (table, held))
        for name, address in zip(names, addresses, strict=True)
    )
    return tuple(made)  # type: ignore[return-value]
