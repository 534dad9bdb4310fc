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

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen import row_schedules as schedules
from weft.native.codegen.compiler import Function
from weft.native.codegen.jit import Kernel
from weft.native.codegen.row_schedules import TILE
from weft.native.codegen.row_trace import (
    Along,
    Each,
    Length,
    Number,
    Shared,
    Traced,
    across,
    exp_flush,
    if_finite,
    kept,
    largest,
    log,
    rounded,
    sqrt,
    total,
)
from weft.native.loops.turning import SHORT, TOGETHER
from weft.native.once import lazy

__all__ = [
    "Along", "Each", "Length", "Number", "Program", "Shared", "Variant", "across", "exp_flush",
    "if_finite", "kept", "largest", "log", "rounded", "row_program", "sqrt", "total",
]  # fmt: skip

GRAIN = 8192  # elements that are worth a thread
NEAR = 32768  # elements of a tile of columns that stay close
NEVER = 1 << 62


class Variant:
    """A program without some of its inputs or results: its kernels for the schedules."""

    def __init__(self, program: Program, absent: frozenset, wanted: Any) -> None:
        self.program, self.absent, self.wanted = program, absent, wanted

    @lazy
    def traced(self) -> Traced:
        with np.errstate(all="ignore"):
            return Traced(self.program.name, self.program.function, self.absent, self.wanted)

    def written(self, schedule: type[schedules.Schedule]) -> Kernel:
        return Kernel(schedules.function_of(schedule(self.traced)))

    @lazy
    def rows(self) -> Kernel:
        return self.written(schedules.RowsSchedule)

    @lazy
    def reference(self) -> Kernel:
        """Rows of up to ``LEAF`` elements with the bits of NumPy."""
        return self.written(schedules.ReferenceRows)

    @lazy
    def reference_columns(self) -> Kernel:
        """Columns with the bits of NumPy."""
        return self.written(schedules.ReferenceColumns)

    @lazy
    def planes(self) -> Kernel:
        return self.written(schedules.PlanesSchedule)

    @lazy
    def cyclic(self) -> Kernel:
        return self.written(schedules.CyclicSchedule)

    @lazy
    def causal(self) -> Kernel:
        return self.written(schedules.CausalSchedule)

    @lazy
    def inlined(self) -> Function:
        """One row, for other kernels to call: inputs, results, numbers and the length."""
        return schedules.function_of(schedules.InlineSchedule(self.traced))

    @lazy
    def columns(self) -> Kernel:
        return self.written(schedules.ColumnsSchedule)

    @lazy
    def short(self) -> Kernel:
        return self.written(schedules.ShortSchedule)

    def runner(self, d: str, outer: int, n: int, k: int, tile: int = 0) -> Callable[..., None]:
        """What runs on arrays seen as (outer, n, k), along the middle dimension."""
        many = threads.how_many
        if k > 1:
            tile = tile or min(TILE, max(32, NEAR // n // 16 * 16))
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
