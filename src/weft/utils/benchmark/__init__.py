"""Timing pieces of code: repeated until the number can be trusted, and compared in a table.

>>> from weft.utils.benchmark import Timer
>>> measured = Timer("x.exp()", setup="import weft; x = weft.ones(8)").timeit(100)
>>> measured.number_per_run, measured.median > 0
(100, True)
"""

from __future__ import annotations

from weft.utils.benchmark.compare import Compare
from weft.utils.benchmark.measurement import (
    Measurement,
    TaskSpec,
    select_unit,
    set_torch_threads,
    trim_sigfig,
    unit_to_english,
)
from weft.utils.benchmark.timer import Language, Timer, timer

__all__ = [
    "Compare",
    "Language",
    "Measurement",
    "TaskSpec",
    "Timer",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]
