"""Row programs: functions of rows (softmax, norms, losses) that one generator compiles to loops.

A row program is a function of one row, in plain expressions::

    @row_program
    def softmax(x: Along) -> Any:
        e = kept(exp_flush(x - largest(x)))
        return e * (1.0 / total(e))

Annotations declare the kinds of parameters: ``Along`` has an element for each position of each row,
``Shared`` one for each position, ``Each`` one for each row, and ``One`` a single one; ``Number`` is
a setting and ``Length`` the number of positions. The function is run once on the tracer values of
``weft.native.codegen.trace``. A value is either along the row or one number for it; ``total``,
``product``, ``largest`` and ``first_largest``, which returns an index as well, reduce the first to
the second and so end a stage. Values along the row are recomputed in each stage that reads them,
unless they are ``kept``; row numbers are float64, and rounded where they are combined with
elements. The function returns the results: along the row, one for each row, or, as ``across``, one
for each position, summed over rows.

``RowProgram.variant`` is the program without some inputs or results. A variant is written for three
schedules, each a kernel of the kernel language:

* ``rows``: a thread takes whole rows; sums are taken in blocks of ``BLOCK``, joined in float64;
* ``columns``: strided rows, a tile of them at a time, side by side;
* ``short``: rows of few elements, which are transposed in cache and then are columns.

Single-pass programs, whose results are only numbers or only elements, also have schedules for parts
of long rows and columns, so that threads can share a row; the results of the parts are combined in
float64. Parts depend only on the shape, so results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen import row_schedules as schedules
from weft.native.codegen.compiler import KernelFunction
from weft.native.codegen.jit import Kernel
from weft.native.codegen.row_schedules import ROWS, TILE, WIDE
from weft.native.codegen.row_trace import (
    PLACES,
    Along,
    Each,
    Length,
    Number,
    One,
    RowTrace,
    Shared,
    across,
    at_least,
    exp_flush,
    first_largest,
    first_least,
    if_finite,
    kept,
    largest,
    least,
    log,
    product,
    root,
    rounded,
    running,
    running_largest,
    running_least,
    running_product,
    sqrt,
    total,
)
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.short_rows import SHORT, TOGETHER
from weft.native.memory import buffers
from weft.native.once import lazy

__all__ = [
    "Along", "Each", "Length", "Number", "One", "RowProgram", "Shared", "Variant", "across",
    "at_least", "exp_flush", "first_largest", "first_least", "if_finite", "kept", "largest",
    "least", "log", "product", "root", "rounded", "row_program", "running", "running_largest",
    "running_least", "running_product", "sqrt", "total",
]  # fmt: skip

GRAIN = 8192  # elements that are worth a thread
NEAR = 32768  # elements of a tile of columns that stay close
NEVER = 1 << 62
# Rows, or tiles of columns, that are enough for all threads, and the elements of a part of fewer.
ENOUGH = 16
CHUNK = 16384
# Most parts of columns, and the columns below which several lines are taken as one: no more than
# that, or what is read at a time is too far apart for the processor to fetch it ahead.
PARTS = 64
NARROW = 64
FEW = 8  # lines of columns that are kept in registers, by a kernel for each such number
NUMBERED = 256  # lines from which it is little work to find row numbers for each part
MANY = 16384  # elements from which that is worth a kernel


def _calling(run: Callable, sizes: tuple[int, ...], over: int, grain: int) -> Callable[..., None]:
    """A kernel with all but its arrays and numbers filled in."""
    if over // grain <= 1:
        end = (*sizes, over, 1)
        return lambda *at: run(*at, *end)
    many = threads.how_many
    return lambda *at: run(*at, *sizes, over, many(over, grain))


def _written(schedule: type[schedules.Schedule]) -> lazy[Kernel]:
    """A property that is the kernel of a schedule."""
    return lazy(lambda variant: variant.written(schedule))


class Variant:
    """A program without some of its inputs or results: its kernels for the schedules."""

    def __init__(self, program: RowProgram, absent: frozenset, wanted: Any) -> None:
        self.program, self.absent, self.wanted = program, absent, wanted

    @lazy
    def traced(self) -> RowTrace:
        with np.errstate(all="ignore"):
            return RowTrace(self.program.name, self.program.function, self.absent, self.wanted)

    def written(self, schedule: type[schedules.Schedule]) -> Kernel:
        made = Kernel(schedules.function_of(schedule(self.traced)))
        made.origin = self, schedule
        return made

    rows = _written(schedules.RowsSchedule)
    planes = _written(schedules.PlanesSchedule)
    cyclic = _written(schedules.CyclicSchedule)
    causal = _written(schedules.CausalSchedule)
    columns = _written(schedules.ColumnsSchedule)
    brief_columns = _written(schedules.BriefColumnsSchedule)
    few_lines = _written(schedules.FewLinesSchedule)
    short = _written(schedules.ShortSchedule)
    scan_rows = _written(schedules.ScanRowsSchedule)
    scan_columns = _written(schedules.ScanColumnsSchedule)
    parts = _written(schedules.PartsSchedule)
    column_parts = _written(schedules.ColumnPartsSchedule)
    joined = _written(schedules.JoinSchedule)
    # With the bits of NumPy: rows of up to ``LEAF`` elements, and columns.
    reference = _written(schedules.ReferenceRows)
    reference_columns = _written(schedules.ReferenceColumns)

    @lazy
    def inlined(self) -> KernelFunction:
        """One row, for other kernels to call: inputs, results, numbers and the length."""
        return schedules.function_of(schedules.InlineSchedule(self.traced))

    def scan(self, d: str, outer: int, n: int, k: int, back: bool) -> Callable[..., None]:
        """The same as ``runner``, for programs with running sums."""
        if k == 1:
            return _calling(self.scan_rows.get(d, back=back), (n,), outer, -(-GRAIN // n))
        tiles = -(-k // TILE)
        run = self.scan_columns.get(d, back=back)
        grain = -(-GRAIN // (n * min(k, TILE)))
        return _calling(run, (n, k, TILE, tiles), outer * tiles, grain)

    def runner(self, d: str, outer: int, n: int, k: int, tile: int = 0) -> Callable[..., None]:
        """What runs on arrays seen as (outer, n, k), along the middle dimension."""
        most, t = self.program.grain, self.traced
        made = self.in_parts(d, outer, n, k) if t.in_parts else None
        if made is not None:
            return made
        if k > 1:
            places = any(stage.firsts for stage in t.stages)
            few = t.to_numbers and n <= FEW and outer * n * k >= MANY
            brief = t.in_parts and not places and n <= ROWS
            near = min(TILE, max(32, NEAR // n // 16 * 16))
            tile = tile or (WIDE if few else TILE if places else WIDE if t.in_parts else near)
            tiles = -(-k // tile)
            over, grain = outer * tiles, -(-most // (n * min(k, tile)))
            if few:
                return _calling(self.few_lines.get(d, n=n), (k, tile, tiles), over, grain)
            wide = self.brief_columns if brief else self.columns
            return _calling(wide.get(d), (n, k, tile, tiles), over, grain)
        if self.program.together <= outer and 1 < n <= SHORT:
            over, grain = -(-outer // TOGETHER), -(-most // (n * TOGETHER))
            return _calling(self.short.get(d), (n, outer), over, grain)
        return _calling(self.rows.get(d), (n,), outer, -(-most // n))

    def in_parts(self, d: str, outer: int, n: int, k: int) -> Callable[..., None] | None:
        """The same for few long rows or columns, which threads share."""
        if k == 1:
            return self.row_parts(d, outer, n) if outer < ENOUGH and n >= 2 * CHUNK else None
        parts = self.lines_in_parts if self.traced.reductions else self.elements_in_parts
        if outer == 1 and k < NARROW and n >= 16 * NARROW:
            return parts(d, 1, n, k, -(-NARROW // k))
        least = 4 * ROWS if self.traced.reductions else NUMBERED + 1
        if outer * -(-k // WIDE) < ENOUGH and n >= least:
            return parts(d, outer, n, k, 1)
        return None

    def row_parts(self, d: str, outer: int, n: int) -> Callable[..., None]:
        """Parts of rows, and then what joins them."""
        parts = -(-n // CHUNK)
        over, grain = outer * parts, -(-self.program.grain // CHUNK)
        run, many = self.parts.get(d), threads.how_many
        if not self.traced.reductions:
            return _calling(run, (n, CHUNK, parts), over, grain)
        join, empty = self.joined.get(d, k=1), buffers.empty
        room, first, last = over * self.traced.slots, *self.bounds

        def both(*at: Any) -> None:
            given, made = at[:first], empty(room)
            run(*given, made, *at[last:], n, CHUNK, parts, over, many(over, grain))
            join(*given, made, *at[first:], n, parts, outer, 1)

        return both

    def lines_in_parts(
        self, d: str, outer: int, n: int, k: int, together: int
    ) -> Callable[..., None]:
        """The same for columns; several lines are taken as one, what is left over as a part."""
        lines, rest = divmod(n, together)
        size = -(-lines // PARTS // (2 * ROWS)) * 2 * ROWS
        run, sizes, over, grain = self.parts_of_lines(d, outer, lines, together * k, size, n, k)
        join, many, empty = self.joined.get(d), threads.how_many, buffers.empty
        total = -(-lines // size) * together + bool(rest)
        count, first, last = self.traced.slots, *self.bounds
        room, written = outer * total * k * count, (total - bool(rest)) * k * count

        def both(*at: Any) -> None:
            given, numbers, made = at[:first], at[last:], empty(room)
            run(*given, made, *numbers, *sizes, over, many(over, grain))
            if rest:
                tails = self.tails(given, lines * together * k)
                run(*tails, made[written:], *numbers, *self.tail_sizes(rest, k, n), 1, 1)
            join(*given, made, *at[first:], n, k, total, outer * k, many(outer * k, 4096))

        return both

    def elements_in_parts(
        self, d: str, outer: int, n: int, k: int, together: int
    ) -> Callable[..., None]:
        """The same for columns of elements alone, where there is nothing to join."""
        lines, rest = divmod(n, together)
        size = max(NUMBERED, -(-lines // PARTS))
        run, sizes, over, grain = self.parts_of_lines(d, outer, lines, together * k, size, n, k)
        if not rest:
            return _calling(run, sizes, over, grain)
        last, many = self.bounds[1], threads.how_many

        def both(*at: Any) -> None:
            run(*at, *sizes, over, many(over, grain))
            tails = self.tails(at[:last], lines * together * k)
            run(*tails, *at[last:], *self.tail_sizes(rest, k, n), 1, 1)

        return both

    def parts_of_lines(
        self, d: str, outer: int, lines: int, wide: int, size: int, n: int, k: int
    ) -> tuple[Callable, tuple[int, ...], int, int]:
        """The kernel for parts of ``size`` lines, its sizes, the parts in all and their grain."""
        parts, tiles = -(-lines // size), -(-wide // WIDE)
        grain = -(-self.program.grain // (size * min(wide, WIDE)))
        sizes = (lines, wide, WIDE, tiles, size, parts, k, n, 0)
        return self.column_parts.get(d), sizes, outer * parts * tiles, grain

    @staticmethod
    def tail_sizes(rest: int, k: int, n: int) -> tuple[int, ...]:
        """The sizes of the same kernel for one part, of the last lines."""
        return (rest, k, WIDE, 1, rest, 1, k, n, n - rest)

    def tails(self, arrays: tuple[Any, ...], done: int) -> list[Any]:
        """Arrays from an element on, and row numbers as they are."""
        each = [*self.each, *(False,) * len(arrays)]
        return [x if e else x.reshape(-1)[done:] for x, e in zip(arrays, each, strict=False)]

    def entry(
        self, kernel: Kernel, each: str = "kept", down: bool = False, back: Any = None, **most: Any
    ) -> Callable:
        """A kernel of this program as one call on plain float32 arrays: see ``EntrySpec``.

        Rows are those of the last dimension, or with ``down`` columns of matrices; ``each`` is the
        shape of results with a number for each, ``back`` the order of a scan.
        """
        t, each = self.traced, "rest" if down else each
        shapes = {"Along": "f32 like", "Shared": "f32 row", "Number": "number"}
        shapes["Each"] = "f32 row" if down else "f32 kept"
        takes = tuple(shapes[i.role] for i in t.inputs)
        gives = tuple(
            f"{'i64' if v.how in PLACES else 'f32'} {each if role == 'each' else 'like 0'}"
            for _, role, v in t.outputs
        )
        arrays, numbers = (
            [f"take {k}" for k, i in enumerate(t.inputs) if (i.role == "Number") is wanted]
            for wanted in (False, True)
        )
        results = tuple(range(len(gives)))
        passes = (*arrays, *(f"give {k}" for k in results), *numbers)
        passes += ("first", "last") if down else ("last",)
        over = ("last", "first") if down else ("lead", "last")
        spec = EntrySpec(takes, gives, passes, *over, returns=results, **most)
        return kernel.whole(spec, "f32", **({} if back is None else {"back": back}))

    @lazy
    def bounds(self) -> tuple[int, int]:
        """Where results begin among the arguments of a call, and where they end."""
        first = len(self.each)
        return first, first + len(self.traced.outputs)

    @lazy
    def each(self) -> list[bool]:
        """Which of the inputs that are arrays have no element for each place."""
        return [i.role in ("Each", "One") for i in self.traced.arrays()]


class RowProgram:
    """A function of rows, as kernels; from ``together`` on short rows are transposed.

    ``grain`` is the number of elements that are worth a thread.
    """

    def __init__(self, function: Callable, together: int = 16, grain: int = GRAIN) -> None:
        self.function, self.name = function, function.__name__.lstrip("_")
        self.together, self.grain = together, grain
        self.variant = functools.cache(self._variant)

    @lazy
    def parameters(self) -> dict[str, str]:
        """The names of the inputs, and what they are."""
        found = inspect.signature(self.function).parameters
        return {name: about.annotation for name, about in found.items()}

    def _variant(self, absent: frozenset = frozenset(), wanted: Any = None) -> Variant:
        return Variant(self, absent, wanted)

    @lazy
    def whole(self) -> Variant:
        """The program with all inputs and results."""
        return self.variant()

    def spliced(
        self, name: str, before: dict[str, Callable], after: Callable | None = None
    ) -> RowProgram:
        """The program with elementwise functions spliced into its first and last stages.

        ``before`` gives inputs as functions of others, ``after`` takes the first result and more.
        Parameters of these functions are annotated like those of programs; they become inputs
        called ``input_parameter`` and ``after_parameter``, instead of what they replace.
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
        return RowProgram(function, self.together, self.grain)


def row_program(function: Callable | None = None, *, together: int = 16, grain: int = GRAIN) -> Any:
    """Make a function of one row a program; it is traced and compiled when first called.

    So many short rows, or more, are transposed in cache and done side by side.
    """
    if function is None:
        return lambda f: row_program(f, together=together, grain=grain)
    return RowProgram(function, together, grain)
