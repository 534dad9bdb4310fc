"""Functions of rows (softmax, norms, losses) as stages that one generator turns into loops.

A row program is a function of one row, in plain expressions::

    @row_program
    def softmax(x: Along) -> Any:
        e = kept(exp_flush(x - largest(x)))
        return e * (1.0 / total(e))

Parameters say by their annotation what they are: ``Along`` has an element for each place of each
row, ``Shared`` one for each place, ``Each`` one for each row; ``Number`` is a setting and
``Length`` the number of places. The function is run once on the stand-ins of
``weft.native.codegen.trace``. A value is either along the row or one number for it; ``total`` and
``largest`` lead from the first to the second and so end a stage. Values along the row
are computed anew in each stage that reads them, unless they are ``kept``; row numbers are float64,
and rounded where they meet elements. What comes back are the results: along the row, one for each
row, or, as ``across``, one for each place, summed over rows.

``Program.variant`` is the program without some inputs or results. A variant is written for three
schedules, each a kernel of the kernel language:

* ``rows``: a thread takes whole rows; sums are taken in blocks of ``BLOCK``, joined in float64;
* ``columns``: rows that lie across memory, a tile of them at a time, side by side;
* ``short``: rows of few elements, which are transposed in cache and then are columns.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from weft.native import threads
from weft.native.codegen import trace
from weft.native.codegen.compiler import Function, Ptr, T, i64, inline
from weft.native.codegen.jit import Kernel
from weft.native.codegen.trace import Element, Setting, Tape
from weft.native.loops.sums import LEAF, leaf
from weft.native.once import lazy

Along = Shared = Each = Number = Length = Any  # what parameters are, for annotations

# Elements that are worth a thread.
GRAIN = 8192
NEVER = 1 << 62
# Elements of a row summed in their own type.
BLOCK = 1024
# Most columns at a time, elements of a tile that stay close, rows summed in their own type.
TILE = 256
NEAR = 32768
ROWS = 128
# Rows of up to so many elements are taken as columns, so many at a time.
SHORT = 32
TOGETHER = 64
NAMES = re.compile(r"\b[ev]\d+\b")
LOWEST = "-inf"


# --- what a program may say ----------------------------------------------------------------


class Value:
    """One value of a program: how it is computed and when it can be."""

    __slots__ = ("along", "how", "name", "stage", "text", "uses")

    def __init__(
        self, name: str, text: str, uses: tuple[Value, ...], how: str = "", along: bool = False
    ) -> None:
        self.name, self.text, self.uses, self.how = name, text, uses, how
        reduced = how in ("total", "largest")
        self.along = not reduced and (along or any(u.along for u in uses))
        # Loops of this number and later can read it: a reduction is done when its loop is.
        self.stage = max((u.stage for u in uses), default=0) + reduced


class RowTape(Tape):
    """What a program does, as values that know from which others they are made."""

    def __init__(self) -> None:
        super().__init__("f32")
        self.values: dict[str, Value] = {}

    def add(self, text: str, how: str = "") -> Value:
        name = f"v{len(self.values)}"
        uses = tuple(self.values[n] for n in dict.fromkeys(NAMES.findall(text)))
        found = self.values[name] = Value(name, text, uses, how)
        return found

    def put(self, text: str, kind: str) -> Element:
        found = self.add(text)
        made = Element if found.along or kind == "b1" else Setting
        return made(self, found.name, kind)

    def number(self, text: str, how: str = "") -> Setting:
        return Setting(self, self.add(text, how).name, self.kind)


def total(x: Any) -> Setting:
    """The sum of a row."""
    return x.tape.number(x.text, "total")


def largest(x: Any) -> Setting:
    """The largest element of a row; NaN wins."""
    return x.tape.number(x.text, "largest")


def kept(x: Any) -> Element:
    """The same row, to be kept in the memory of the first result rather than computed anew.

    It is for one value; where the result is written before the value was last read, and for
    further values, it changes nothing.
    """
    return Element(x.tape, x.tape.add(f"T({x.text})", "kept").name, x.kind)


class Across(NamedTuple):
    """A result with one element for each place: the sum over rows."""

    value: Any


def across(x: Any) -> Across:
    return Across(x)


def _function(name: str) -> Callable[[Any], Any]:
    """A function of the kernel language, of elements or of a row number (in the array's type)."""

    def call(x: Any) -> Any:
        if x.__class__ is Setting:
            return x.tape.number(f"{name}(T({x.text}))")
        return x.tape.put(f"{name}(T({x.text}))", x.kind)

    return call


exp_flush, log = _function("exp_flush"), _function("log")


def sqrt(x: Setting) -> Setting:
    """The root of a row number."""
    return x.tape.number(f"sqrt(f64({x.text}))")  # type: ignore[attr-defined]


def if_finite(test: Setting, x: Setting, other: Setting) -> Setting:
    """One of two row numbers: the first where ``test`` is neither infinite nor NaN."""
    text = f"f64({x.text}) if {test.text} - {test.text} == 0.0 else f64({other.text})"
    return test.tape.number(text)  # type: ignore[attr-defined]


@inline(reassociate=True)
def _plus(a: T, b: T) -> T:
    return a + b


@inline
def turn(x: Ptr[T], columns: Ptr[T], n: i64, count: i64) -> None:
    """Short rows of n elements as columns."""
    for j in range(count):
        for i in range(n):
            columns[i * TOGETHER + j] = x[j * n + i]


@inline
def turn_back(columns: Ptr[T], y: Ptr[T], n: i64, count: i64) -> None:
    for j in range(count):
        for i in range(n):
            y[j * n + i] = columns[i * TOGETHER + j]


# --- the traced program ----------------------------------------------------------------------


class Input(NamedTuple):
    """A parameter: its name in the code, and what it is."""

    name: str
    role: str


class Stage(NamedTuple):
    """One pass over the row: row numbers to work out before it, then what is done in it."""

    numbers: list[Value]
    sums: list[Value]
    tops: list[Value]
    stores: list[tuple[str, Value]]  # memory, and what is written there
    across: list[tuple[str, Value]]

    @property
    def targets(self) -> list[Value]:
        reduced = [u for r in (*self.sums, *self.tops) for u in r.uses]
        return [*reduced, *(v for _, v in (*self.stores, *self.across))]


class Traced:
    """A program's values in stages, and its results."""

    def __init__(self, name: str, function: Callable, absent: frozenset, wanted: Any) -> None:
        self.name, self.tape = name, RowTape()
        self.kept: Value | None = None
        self.inputs: list[Input] = []
        given = {}
        for k, (parameter, about) in enumerate(inspect.signature(function).parameters.items()):
            given[parameter] = None if parameter in absent else self._input(k, about.annotation)
        found = function(**given)
        found = found if found.__class__ is tuple else (found,)
        if wanted is not None:
            found = tuple(v for v, w in zip(found, wanted, strict=True) if w)
        values = self.tape.values
        # Results along the row, across rows, and one for each row, with their memory.
        self.outputs: list[tuple[str, str, Value]] = []
        for k, result in enumerate(found):
            inner = result.value if result.__class__ is Across else result
            value = values[inner.text]
            role = "across" if inner is not result else "along" if value.along else "each"
            self.outputs.append((f"o{k}", role, value))
        self.stages = self._stages()

    def _input(self, k: int, role: str) -> Any:
        tape, name = self.tape, f"e{k}"
        along = role in ("Along", "Shared")
        text = "f64(n)" if role == "Length" else name
        tape.values[name] = Value(name, text, (), "" if role == "Length" else "given", along)
        if role != "Length":
            self.inputs.append(Input(name, role))
        return (Element if along else Setting)(tape, name, tape.kind)

    def of(self, *roles: str) -> list[str]:
        """The inputs of some roles."""
        return [i.name for i in self.inputs if i.role in roles]

    def memory(self, *roles: str) -> list[str]:
        """The results of some roles."""
        return [name for name, role, _ in self.outputs if role in roles]

    def _needed(self) -> list[Value]:
        """The values behind the results, in order."""
        seen: set[str] = set()
        todo = [value for *_, value in self.outputs]
        while todo:
            value = todo.pop()
            if value.name not in seen:
                seen.add(value.name)
                todo += value.uses
        return [v for v in self.tape.values.values() if v.name in seen]

    def _stages(self) -> list[Stage]:
        needed = self._needed()
        made = [Stage([], [], [], [], []) for _ in range(1 + max(v.stage for v in needed))]
        for v in needed:
            if v.how in ("total", "largest"):
                stage = made[v.stage - 1]
                (stage.sums if v.how == "total" else stage.tops).append(v)
            elif not v.along and v.how != "given":
                made[v.stage].numbers.append(v)
        for name, role, value in self.outputs:
            if role == "along":
                made[value.stage].stores.append((name, value))
            elif role == "across":
                made[value.stage].across.append((name, value))
        self.kept = None
        for v in needed:
            if v.how == "kept" and self.kept is None and self._lasts(v, made):
                self.kept = v
                made[v.stage].stores.insert(0, (self.memory("along")[0], v))
        return made

    def _lasts(self, value: Value, stages: list[Stage]) -> bool:
        """Whether a value can be kept in the first result's memory until it was last read."""
        last = next((v.stage for _, role, v in self.outputs if role == "along"), -1)
        later = range(max(last, value.stage) + 1, len(stages))
        return last > value.stage and not any(
            value in self.lines(stages[number], number)[0] for number in later
        )

    def lines(self, stage: Stage, number: int) -> tuple[list[Value], list[Value]]:
        """What a pass computes along the row, in order, and the row numbers that it reads."""
        seen: dict[str, Value] = {}
        todo = list(stage.targets)
        while todo:
            value = todo.pop()
            if value.name not in seen:
                seen[value.name] = value
                if value.along and not self.stored(value, number):
                    todo += value.uses
        ordered = sorted(seen.values(), key=list(self.tape.values.values()).index)
        return [v for v in ordered if v.along], [v for v in ordered if not v.along]

    def stored(self, value: Value, number: int) -> bool:
        """Whether a value was kept by an earlier pass."""
        return value is self.kept and value.stage < number


# --- writing ---------------------------------------------------------------------------------


class Writer:
    """Indented lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1

    def __call__(self, *lines: str) -> None:
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def loop(self, text: str) -> Iterator[None]:
        self(f"for {text}:")
        self.depth += 1
        yield
        self.depth -= 1


class Schedule:
    """Writes the loops of a traced program."""

    name = ""
    sizes = "n: i64"
    flags = "contract "  # a product and a sum may be one instruction

    def __init__(self, traced: Traced) -> None:
        self.traced, self.put = traced, Writer()
        self.write()

    def source(self) -> str:
        t = self.traced
        head = [f"{name}: Ptr[T]" for name in t.of("Along", "Shared", "Each")]
        head += [f"{name}: Ptr[T]" for name, *_ in t.outputs]
        head += [f"{name}_given: f64" for name in t.of("Number")]
        head = [f"p_{h}" if "Ptr" in h else h for h in head]
        head += [self.sizes, "lo: i64, hi: i64"]
        body = "\n".join(self.put.lines)
        return f"def {t.name}_{self.name}({', '.join(head)}) -> None:\n{body}\n"

    def write(self) -> None:
        raise NotImplementedError

    def element(self, value: Value, number: int, pointer: str, place: str) -> list[str]:
        """The lines of one element's value."""
        t = self.traced
        if value.how == "given":
            shared = value.name in t.of("Shared")
            where = f"p_{value.name}[{self.along}]" if shared else f"{pointer.format(value.name)}"
            return [f"{value.name} = {where if shared else f'{where}[{place}]'}"]
        if t.stored(value, number):
            return [f"{value.name} = {pointer.format(t.memory('along')[0])}[{place}]"]
        return [f"{value.name} = {value.text}"]


class RowsSchedule(Schedule):
    """Row after row."""

    name, along = "rows", "i"

    def __init__(self, traced: Traced) -> None:
        if traced.memory("across"):
            self.sizes = "n: i64, rows: i64, size: i64"
        super().__init__(traced)

    def write(self) -> None:
        put, sums = self.put, self.traced.memory("across")
        if not sums:
            with put.loop("row in range(lo, hi)"):
                self.row()
            return
        # Blocks of rows have sums of their own, so that results don't depend on threads.
        with put.loop("block in range(lo, hi)"):
            put(*(f"a_{name} = p_{name} + block * n" for name in sums))
            with put.loop("i in range(n)"):
                put(*(f"a_{name}[i] = T(0.0)" for name in sums))
            with put.loop("row in range(block * size, min(rows, (block + 1) * size))"):
                self.row()

    def row(self) -> None:
        put, t = self.put, self.traced
        moving = [*t.of("Along"), *t.memory("along")]
        put(*(f"r_{name} = p_{name} + row * n" for name in moving))
        put(*(f"{name} = p_{name}[row]" for name in t.of("Each")))
        put(*(f"{name} = {name}_given" for name in t.of("Number")))
        self.passes("n")
        put(*(f"p_{o}[row] = {v.name}" for o, role, v in t.outputs if role == "each"))

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        for number, stage in enumerate(t.stages):
            put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            if not stage.targets:
                continue
            put(*(f"{v.name} = f64(0.0)" for v in stage.sums))
            put(*(f"{v.name} = T({LOWEST})" for v in stage.tops))
            if not stage.sums:
                with put.loop(f"i in range({n})"):
                    self.body(stage, number, "i", "i")
                continue
            with put.loop(f"b in range(0, {n}, {BLOCK})"):
                put(*(f"part_{v.name} = T(0.0)" for v in stage.sums))
                with put.loop(f"j in range(min({BLOCK}, {n} - b))"):
                    self.body(stage, number, "(b + j)", "b + j")
                put(*(f"{v.name} = {v.name} + f64(part_{v.name})" for v in stage.sums))

    def body(self, stage: Stage, number: int, place: str, along: str) -> None:
        put, t = self.put, self.traced
        self.along = along
        for value in t.lines(stage, number)[0]:
            put(*self.element(value, number, "r_{}", place))
        put(*(f"r_{memory}[{place}] = {v.name}" for memory, v in stage.stores))
        put(*(f"a_{o}[{place}] = a_{o}[{place}] + {v.name}" for o, v in stage.across))
        self.accumulate(stage, place)

    def accumulate(self, stage: Stage, place: str) -> None:
        """Take an element into the reductions of a pass."""
        put = self.put
        put(*(f"part_{v.name} = plus(part_{v.name}, {v.text})" for v in stage.sums))
        put(*(f"{v.name} = maximum({v.name}, {v.text})" for v in stage.tops))


class ReferenceRows(RowsSchedule):
    """Short rows with the bits of NumPy: in the array's own type, sums in NumPy's order.

    What is summed over rows elsewhere is left as it is here, a row for each.
    """

    name, flags = "reference", ""

    def __init__(self, traced: Traced) -> None:
        traced = copy.copy(traced)
        traced.outputs = [(o, "along" if r == "across" else r, v) for o, r, v in traced.outputs]
        traced.stages = traced._stages()
        super().__init__(traced)
        self.put.lines = [line.replace("f64(", "T(") for line in self.put.lines]

    def write(self) -> None:
        summed = [v for stage in self.traced.stages for v in self.held(stage)]
        self.put(*(f"m_{v.name} = array(T, {LEAF})" for v in summed))
        super().write()

    def held(self, stage: Stage) -> list[Value]:
        """What a pass has to write down in order to sum it: all but inputs."""
        found = {v.uses[0].name: v.uses[0] for v in stage.sums}
        return [v for v in found.values() if v.how != "given"]

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        for number, stage in enumerate(t.stages):
            put(*(f"{v.name} = {v.text}" for v in stage.numbers))
            put(*(f"{v.name} = T({LOWEST})" for v in stage.tops))
            if not stage.targets:
                continue
            if self.held(stage) or stage.tops or stage.stores:
                with put.loop(f"i in range({n})"):
                    self.body(stage, number, "i", "i")
            for v in stage.sums:
                (source,) = v.uses
                where = f"r_{source.name}" if source.how == "given" else f"m_{source.name}"
                put(f"{v.name} = leaf({where}, {n}) + 0.0")

    def accumulate(self, stage: Stage, place: str) -> None:
        self.put(*(f"m_{v.name}[{place}] = {v.name}" for v in self.held(stage)))
        super().accumulate(stage._replace(sums=[]), place)


class CausalSchedule(RowsSchedule):
    """Row after row, each up to the diagonal of its matrix; what lies beyond is zero."""

    name = "causal_rows"
    sizes = "n: i64, height: i64, causal: i64"

    def passes(self, n: str) -> None:
        put, t = self.put, self.traced
        put("count = min(n, row % height + 1) if causal else n")
        super().passes("count")
        with put.loop("i in range(count, n)"):
            put(*(f"r_{o}[i] = T(0.0)" for o in t.memory("along")))


class InlineSchedule(RowsSchedule):
    """One row, as a function that other kernels call."""

    name = "row"

    def source(self) -> str:
        return super().source().replace(", lo: i64, hi: i64", "")

    def write(self) -> None:
        put, t = self.put, self.traced
        put(*(f"r_{name} = p_{name} + 0" for name in [*t.of("Along"), *t.memory("along")]))
        put(*(f"{name} = {name}_given" for name in t.of("Number")))
        self.passes("n")


class ColumnsSchedule(Schedule):
    """Rows that lie across memory, a tile of them side by side."""

    name, along = "columns", "i"
    sizes = "n: i64, k: i64, tile: i64, tiles: i64"
    step, width = "k", "width"

    def write(self) -> None:
        put, t = self.put, self.traced
        self.arrays()
        with put.loop("item in range(lo, hi)"):
            put("left = (item % tiles) * tile", "width = min(tile, k - left)")
            put("base = item // tiles * n * k + left", "place = item // tiles * k + left")
            moving = [*t.of("Along"), *t.memory("along")]
            put(*(f"r_{name} = p_{name} + base" for name in moving))
            self.passes()

    def arrays(self) -> None:
        """Memory for row numbers: as sums, as parts of sums, and as what elements meet."""
        put, t = self.put, self.traced
        for stage in t.stages:
            for v in stage.sums:
                put(f"s_{v.name} = array(f64, {TILE})", f"q_{v.name} = array(T, {TILE})")
            put(*(f"s_{v.name} = array(T, {TILE})" for v in stage.tops))
        for name in self.met():
            put(f"t_{name} = array(T, {TILE})")

    def met(self) -> list[str]:
        """The row numbers that elements read, other than numbers of the whole call."""
        t = self.traced
        found: dict[str, None] = {}
        for number, stage in enumerate(t.stages):
            found |= dict.fromkeys(v.name for v in t.lines(stage, number)[1])
        return [n for n in found if n not in t.of("Number")]

    def numbers(self, number: int) -> None:
        """Row numbers up to a stage: those that elements of this stage meet, and results."""
        put, t = self.put, self.traced
        stage, last = t.stages[number], number == len(t.stages) - 1
        met = [v for v in t.lines(stage, number)[1] if v.name not in t.of("Number")]
        results = [(o, v) for o, role, v in t.outputs if role == "each"] if last else []
        before = {v.name for k in range(number) for v in t.lines(t.stages[k], k)[1]}
        fresh = [v for v in met if v.name not in before]
        if not (fresh or results or stage.sums or stage.tops):
            return
        with put.loop(f"c in range({self.width})"):
            for v in self.behind([*fresh, *(v for _, v in results)]):
                put(f"{v.name} = {self.number(v)}")
            put(*(f"t_{v.name}[c] = T({v.name})" for v in fresh))
            put(*(f"p_{o}[place + c] = {v.name}" for o, v in results))
            put(*(f"s_{v.name}[c] = 0.0" for v in stage.sums))
            put(*(f"s_{v.name}[c] = T({LOWEST})" for v in stage.tops))

    def behind(self, values: list[Value]) -> list[Value]:
        """Row numbers with those that they are made from, in order."""
        seen: set[str] = set()
        todo = list(values)
        while todo:
            value = todo.pop()
            if value.name not in seen:
                seen.add(value.name)
                todo += () if value.how in ("total", "largest") else value.uses
        return [v for v in self.traced.tape.values.values() if v.name in seen]

    def number(self, value: Value) -> str:
        if value.how == "given":
            number = value.name in self.traced.of("Number")
            return f"{value.name}_given" if number else f"p_{value.name}[place + c]"
        return f"s_{value.name}[c]" if value.how in ("total", "largest") else value.text

    def passes(self) -> None:
        put, t = self.put, self.traced
        for number, stage in enumerate(t.stages):
            self.numbers(number)
            if not stage.targets:
                continue
            if not stage.sums:
                self.lines_of(stage, number, "0", "n")
                continue
            with put.loop(f"b in range(0, n, {ROWS})"):
                with put.loop(f"c in range({self.width})"):
                    put(*(f"q_{v.name}[c] = T(0.0)" for v in stage.sums))
                self.lines_of(stage, number, "b", f"min(b + {ROWS}, n)")
                with put.loop(f"c in range({self.width})"):
                    put(
                        *(f"s_{v.name}[c] = s_{v.name}[c] + f64(q_{v.name}[c])" for v in stage.sums)
                    )

    def lines_of(self, stage: Stage, number: int, first: str, last: str) -> None:
        put, t = self.put, self.traced
        along, numbers = t.lines(stage, number)
        moving = {v.name for v in along if v.how == "given"} - set(t.of("Shared"))
        moving |= {memory for memory, _ in stage.stores}
        moving |= {t.memory("along")[0] for v in along if t.stored(v, number)}
        with put.loop(f"i in range({first}, {last})"):
            put(*(f"l_{name} = r_{name} + i * {self.step}" for name in sorted(moving)))
            with put.loop(f"c in range({self.width})"):
                for v in numbers:
                    given = v.name in t.of("Number")
                    put(f"{v.name} = {f'{v.name}_given' if given else f't_{v.name}[c]'}")
                for v in along:
                    put(*self.element(v, number, "l_{}", "c"))
                put(*(f"l_{memory}[c] = {v.name}" for memory, v in stage.stores))
                put(*(f"q_{v.name}[c] = q_{v.name}[c] + {v.text}" for v in stage.sums))
                put(*(f"s_{v.name}[c] = maximum(s_{v.name}[c], {v.text})" for v in stage.tops))


class ShortSchedule(ColumnsSchedule):
    """Short rows, transposed in cache."""

    name, step, width = "short", str(TOGETHER), "width"
    sizes = "n: i64, rows: i64"

    def write(self) -> None:
        put, t = self.put, self.traced
        self.arrays()
        moving = [*t.of("Along"), *t.memory("along")]
        put(*(f"r_{name} = array(T, {SHORT * TOGETHER})" for name in moving))
        with put.loop("item in range(lo, hi)"):
            put(f"place = item * {TOGETHER}", f"width = min({TOGETHER}, rows - place)")
            for name in t.of("Along"):
                put(f"turn(p_{name} + place * n, r_{name}, n, width)")
            self.passes()
            for name in t.memory("along"):
                put(f"turn_back(r_{name}, p_{name} + place * n, n, width)")


def scope() -> dict[str, Any]:
    """What the loops of row programs can call."""
    return {**trace.scope(), "plus": _plus, "turn": turn, "turn_back": turn_back, "leaf": leaf}


def _function_of(schedule: Schedule) -> Function:
    made = Function(schedule.source(), scope())
    made.flags = schedule.flags
    return made


# --- programs ----------------------------------------------------------------------------------


class Variant:
    """A program without some of its inputs or results: its kernels for the schedules."""

    def __init__(self, program: Program, absent: frozenset, wanted: Any) -> None:
        self.program, self.absent, self.wanted = program, absent, wanted

    @lazy
    def traced(self) -> Traced:
        with np.errstate(all="ignore"):
            return Traced(self.program.name, self.program.function, self.absent, self.wanted)

    def written(self, schedule: type[Schedule]) -> Kernel:
        return Kernel(_function_of(schedule(self.traced)))

    @lazy
    def rows(self) -> Kernel:
        return self.written(RowsSchedule)

    @lazy
    def reference(self) -> Kernel:
        """Rows of up to ``LEAF`` elements with the bits of NumPy."""
        return self.written(ReferenceRows)

    @lazy
    def causal(self) -> Kernel:
        return self.written(CausalSchedule)

    @lazy
    def inlined(self) -> Function:
        """One row, for other kernels to call: inputs, results, numbers and the length."""
        return _function_of(InlineSchedule(self.traced))

    @lazy
    def columns(self) -> Kernel:
        return self.written(ColumnsSchedule)

    @lazy
    def short(self) -> Kernel:
        return self.written(ShortSchedule)

    def runner(self, d: str, outer: int, n: int, k: int) -> Callable[..., None]:
        """What runs on arrays seen as (outer, n, k), along the middle dimension."""
        many = threads.how_many
        if k > 1:
            tile = min(TILE, max(32, NEAR // n // 16 * 16))
            tiles = -(-k // tile)
            over, grain = outer * tiles, -(-GRAIN // (n * min(k, tile)))
            wide = self.columns.get(d)
            return lambda *at: wide(*at, n, k, tile, tiles, over, many(over, grain))
        if self.program.together <= outer and 1 < n <= SHORT:
            over, grain = -(-outer // TOGETHER), -(-GRAIN // (n * TOGETHER))
            few = self.short.get(d)
            return lambda *at: few(*at, n, outer, over, many(over, grain))
        grain, plainly = -(-GRAIN // n), self.rows.get(d)
        return lambda *at: plainly(*at, n, outer, many(outer, grain))


class Program:
    """A function of rows, as kernels; from ``together`` on short rows are transposed."""

    def __init__(self, function: Callable, together: int) -> None:
        self.function, self.name = function, function.__name__.lstrip("_")
        self.together = together
        self.variant = functools.cache(self._variant)

    def _variant(self, absent: frozenset = frozenset(), wanted: Any = None) -> Variant:
        return Variant(self, absent, wanted)

    @lazy
    def whole(self) -> Variant:
        """The program with all inputs and results."""
        return self.variant()

    def spliced(
        self, name: str, before: dict[str, Callable], after: Callable | None = None
    ) -> Program:
        """The program with elementwise functions spliced into its first and last stages.

        ``before`` gives inputs as functions of others, ``after`` takes the first result and more.
        Parameters of these functions are annotated like those of programs; they become inputs
        called ``input_parameter`` and ``after_parameter``, in the place of what they replace.
        """
        own = inspect.signature(self.function).parameters
        inner = {k: inspect.signature(f).parameters for k, f in before.items()}
        more = list(inspect.signature(after).parameters.values())[1:] if after else []
        taken: list[inspect.Parameter] = []
        for k, parameter in own.items():
            found = inner[k].values() if k in inner else ()
            taken += [p.replace(name=f"{k}_{p.name}") for p in found] or [parameter]
        taken += [p.replace(name=f"after_{p.name}") for p in more]

        def function(**given: Any) -> Any:
            made = {
                k: before[k](*(given[f"{k}_{p}"] for p in inner[k])) if k in inner else given[k]
                for k in own
            }
            results = self.function(**made)
            if after is None:
                return results
            first, *rest = results if results.__class__ is tuple else (results,)
            first = after(first, *(given[f"after_{p.name}"] for p in more))
            return (first, *rest) if rest else first

        function.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        function.__name__ = name
        return Program(function, self.together)


def row_program(function: Callable | None = None, *, together: int = 16) -> Any:
    """Make a function of one row a program; it is traced and compiled when first called.

    So many short rows, or more, are transposed in cache and done side by side.
    """
    if function is None:
        return lambda f: row_program(f, together=together)
    return Program(function, together)
