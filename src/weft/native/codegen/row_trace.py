"""Tracing of row programs: the values of a function of one row, in stages.

See ``weft.native.codegen.row_programs`` for the language of programs.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from weft.native.codegen.trace import Element, Setting, Tape

Along = Shared = Each = Number = One = Length = Any  # what parameters are, for annotations
NAMES = re.compile(r"\b[ev]\d+\b")  # of values in their texts
# Reductions from a row to one number; the last two find the index of that number as well.
REDUCED = ("total", "product", "largest", "least", "first_largest", "first_least")
# Running functions along a row, and the index of a running extreme.
RUNNING = ("running", "running_product", "running_largest", "running_least")
PLACES = ("place", "running_place")


# --- what a program may say ----------------------------------------------------------------


class RowValue:
    """One value of a program: how it is computed and when it can be."""

    __slots__ = ("along", "how", "name", "stage", "text", "uses")
    along: bool
    stage: int

    def __init__(
        self, name: str, text: str, uses: tuple[RowValue, ...], how: str = "", along: bool = False
    ) -> None:
        self.name, self.text, self.uses, self.how = name, text, uses, how
        reduced = how in REDUCED
        self.along = not reduced and (along or any(u.along for u in uses))
        # Loops of this number and later can read it: a reduction is done when its loop is.
        self.stage = max((u.stage for u in uses), default=0) + reduced


class RowTape(Tape):
    """What a program does, as values that know from which others they are made."""

    def __init__(self) -> None:
        super().__init__("f32")
        self.values: dict[str, RowValue] = {}
        self.exactly = False  # whether products keep the rounding that they have alone

    def add(self, text: str, how: str = "") -> RowValue:
        name = f"v{len(self.values)}"
        uses = tuple(self.values[n] for n in dict.fromkeys(NAMES.findall(text)))
        text = f"exactly({text})" if self.exactly else text
        found = self.values[name] = RowValue(name, text, uses, how)
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


def product(x: Any) -> Setting:
    """The product of a row, formed in float64."""
    return x.tape.number(x.text, "product")


def largest(x: Any) -> Setting:
    """The largest element of a row; NaN wins."""
    return x.tape.number(x.text, "largest")


def least(x: Any) -> Setting:
    """The smallest element of a row; NaN wins."""
    return x.tape.number(x.text, "least")


def first_largest(x: Any) -> tuple[Setting, Setting]:
    """The largest element of a row and the place where it is first; NaN wins."""
    return _with_place(x, "first_largest")


def first_least(x: Any) -> tuple[Setting, Setting]:
    """The same with the smallest element."""
    return _with_place(x, "first_least")


def _with_place(x: Any, how: str) -> tuple[Setting, Setting]:
    tape, value = x.tape, x.tape.number(x.text, how)
    name = f"v{len(tape.values)}"
    tape.values[name] = RowValue(name, f"w_{value.text}", (tape.values[value.text],), "place")
    return value, Setting(tape, name, tape.kind)


def kept(x: Any) -> Element:
    """The same row, to be kept in the memory of the first result rather than recomputed.

    It is for one value; where the result is written before the value was last read, and for
    further values, it changes nothing.
    """
    return Element(x.tape, x.tape.add(f"T({x.text})", "kept").name, x.kind)


def running(x: Any) -> Element:
    """The sum of a row up to each of its elements, formed in order and in float64.

    It is for the schedules of scans, and for passes without reductions.
    """
    return Element(x.tape, x.tape.add(x.text, "running").name, x.kind)


def running_product(x: Any) -> Element:
    """The same with products."""
    return Element(x.tape, x.tape.add(x.text, "running_product").name, x.kind)


def running_largest(x: Any) -> tuple[Element, Element]:
    """The largest element so far and the place where it was last; NaN wins, a later one too."""
    return _running_extreme(x, "running_largest")


def running_least(x: Any) -> tuple[Element, Element]:
    """The same with the smallest element."""
    return _running_extreme(x, "running_least")


def _running_extreme(x: Any, how: str) -> tuple[Element, Element]:
    value = x.tape.add(x.text, how)
    place = x.tape.add(value.name, "running_place")
    return Element(x.tape, value.name, x.kind), Element(x.tape, place.name, x.kind)


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


exp_flush, log, root = _function("exp_flush"), _function("log"), _function("sqrt")


def rounded(x: Setting) -> Setting:
    """A row number as elements meet it: in the array's type."""
    return x.tape.number(f"T({x.text})")  # type: ignore[attr-defined]


def sqrt(x: Setting) -> Setting:
    """The root of a row number, in float64."""
    return x.tape.number(f"sqrt(f64({x.text}))")  # type: ignore[attr-defined]


def at_least(x: Setting, low: float) -> Setting:
    """A row number, or a lower limit of it; NaN stays."""
    return x.tape.number(f"maximum(f64({x.text}), f64({low!r}))")  # type: ignore[attr-defined]


def if_finite(test: Setting, x: Setting, other: Setting) -> Setting:
    """One of two row numbers: the first where ``test`` is neither infinite nor NaN."""
    text = f"f64({x.text}) if {test.text} - {test.text} == 0.0 else f64({other.text})"
    return test.tape.number(text)  # type: ignore[attr-defined]


# --- the traced program ----------------------------------------------------------------------


class Input(NamedTuple):
    """A parameter: its name in the code, and what it is."""

    name: str
    role: str


class Stage(NamedTuple):
    """One pass over the row: row numbers to work out before it, then what is done in it."""

    numbers: list[RowValue]
    sums: list[RowValue]
    tops: list[RowValue]
    firsts: list[RowValue]  # the extremes of which the place is found as well
    stores: list[tuple[str, RowValue]]  # memory, and what is written there
    across: list[tuple[str, RowValue]]

    @property
    def reduced(self) -> list[RowValue]:
        return [*self.sums, *self.tops, *self.firsts]

    @property
    def targets(self) -> list[RowValue]:
        reduced = [u for r in self.reduced for u in r.uses]
        return [*reduced, *(v for _, v in (*self.stores, *self.across))]


class RowTrace:
    """A program's values in stages, and its results."""

    def __init__(self, name: str, function: Callable, absent: frozenset, wanted: Any) -> None:
        self.name, self.tape = name, RowTape()
        self.kept: RowValue | None = None
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
        self.outputs: list[tuple[str, str, RowValue]] = []
        for k, result in enumerate(found):
            inner = result.value if result.__class__ is Across else result
            value = values[inner.text]
            role = "across" if inner is not result else "along" if value.along else "each"
            self.outputs.append((f"o{k}", role, value))
        self.stages = self._stages()
        # What the first pass reduces, and whether all results are one for each row.
        self.reductions = self.stages[0].reduced
        # How many numbers are made of each part: a place has one of its own.
        self.slots = len(self.reductions) + len(self.stages[0].firsts)
        self.to_numbers = all(role == "each" for _, role, _ in self.outputs)
        self.in_parts = self._in_parts()

    def _in_parts(self) -> bool:
        """Whether parts of rows can be done apart: one pass, to numbers or to elements alone."""
        one_pass = not any(stage.targets for stage in self.stages[1:])
        elements = all(role == "along" for _, role, _ in self.outputs)
        alone = self.to_numbers if self.reductions else elements
        return one_pass and alone and not self.of("Shared")

    def _input(self, k: int, role: str) -> Any:
        tape, name = self.tape, f"e{k}"
        along = role in ("Along", "Shared")
        text = "f64(length)" if role == "Length" else name
        tape.values[name] = RowValue(name, text, (), "" if role == "Length" else "given", along)
        if role != "Length":
            self.inputs.append(Input(name, role))
        return (Element if along else Setting)(tape, name, tape.kind)

    def of(self, *roles: str) -> list[str]:
        """The inputs of some roles."""
        return [i.name for i in self.inputs if i.role in roles]

    def arrays(self) -> list[Input]:
        """The inputs that are arrays, in the order in which kernels take them."""
        return [i for i in self.inputs if i.role != "Number"]

    def numbers(self) -> list[str]:
        """The inputs that are one number for the whole call."""
        return self.of("Number", "One")

    def passes_over(self, name: str) -> int:
        """How many passes read an input."""
        return sum(
            any(v.name == name for v in self.lines(stage, number)[0])
            for number, stage in enumerate(self.stages)
        )

    def memory(self, *roles: str) -> list[str]:
        """The results of some roles."""
        return [name for name, role, _ in self.outputs if role in roles]

    def _needed(self) -> list[RowValue]:
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
        made = [Stage([], [], [], [], [], []) for _ in range(1 + max(v.stage for v in needed))]
        for v in needed:
            if v.how in REDUCED:
                sums, tops, firsts = made[v.stage - 1][1:4]
                kinds = {"total": sums, "product": tops, "largest": tops, "least": tops}
                kinds.get(v.how, firsts).append(v)
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

    def _lasts(self, value: RowValue, stages: list[Stage]) -> bool:
        """Whether a value can be kept in the first result's memory until it was last read."""
        last = next((v.stage for _, role, v in self.outputs if role == "along"), -1)
        later = range(max(last, value.stage) + 1, len(stages))
        return last > value.stage and not any(
            value in self.lines(stages[number], number)[0] for number in later
        )

    def lines(self, stage: Stage, number: int) -> tuple[list[RowValue], list[RowValue]]:
        """What a pass computes along the row, in order, and the row numbers that it reads."""
        seen: dict[str, RowValue] = {}
        todo = list(stage.targets)
        while todo:
            value = todo.pop()
            if value.name not in seen:
                seen[value.name] = value
                if value.along and not self.stored(value, number):
                    todo += value.uses
        ordered = sorted(seen.values(), key=list(self.tape.values.values()).index)
        return [v for v in ordered if v.along], [v for v in ordered if not v.along]

    def stored(self, value: RowValue, number: int) -> bool:
        """Whether a value was kept by an earlier pass."""
        return value is self.kept and value.stage < number
