"""What was timed, and what came out."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.core.settings import get_num_threads, set_num_threads

# Below these a median says little, and the text of a measurement warns of it.
_MOST_SPREAD, _GREAT_SPREAD = 0.1, 0.25
_UNITS = {"ns": (1e-9, "nanosecond"), "us": (1e-6, "microsecond"),
          "ms": (1e-3, "millisecond"), "s": (1.0, "second")}  # fmt: skip


def select_unit(t: float) -> tuple[str, float]:
    """The unit that suits a time in seconds, and how many seconds it has."""
    for name, (size, _) in reversed(_UNITS.items()):
        if t >= size:
            return name, size
    return "ns", 1e-9


def unit_to_english(u: str) -> str:
    """The unit as a word."""
    return _UNITS[u][1]


def trim_sigfig(x: float, n: int) -> float:
    """A number rounded to so many significant digits."""
    if not math.isfinite(x) or not x:
        return x
    return round(x, n - math.ceil(math.log10(abs(x))))


@contextlib.contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """A block in which ops use so many threads."""
    before = get_num_threads()
    try:
        set_num_threads(n)
        yield
    finally:
        set_num_threads(before)


@dataclass(frozen=True)
class TaskSpec:
    """A piece of code to be timed, and how it is to be named."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or else the code."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt if "\n" not in self.stmt else self.stmt.strip() + "\n"

    def setup_str(self) -> str:
        """The setup for a text, if there is any."""
        if self.setup in ("", "pass") or not self.setup:
            return ""
        lines = self.setup.strip().splitlines()
        return f"setup: {lines[0]}" if len(lines) == 1 else "setup:\n  " + "\n  ".join(lines)

    def summarize(self) -> str:
        """What was timed, in words."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(part for part in parts if part)


@dataclass(init=True, repr=False)
class Measurement:
    """The times of one or more runs of the same code."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None
    _warned: bool = field(default=False, repr=False)

    @property
    def times(self) -> list[float]:
        """Seconds for one execution, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    def _percentile(self, q: float) -> float:
        return float(np.percentile(self.times, q)) if self.raw_times else math.nan

    @property
    def median(self) -> float:
        """The middle of the times, which a few slow runs don't move."""
        return self._percentile(50)

    @property
    def mean(self) -> float:
        """The mean of the times."""
        return float(np.mean(self.times)) if self.raw_times else math.nan

    @property
    def iqr(self) -> float:
        """The interquartile range of the times."""
        return self._percentile(75) - self._percentile(25)

    @property
    def significant_figures(self) -> int:
        """How many digits of the median can be trusted, judged by the spread of the times."""
        times, middle = self.times, self.median
        if len(times) < 2 or not self.iqr:
            return 2 if len(times) < 2 else 4
        error = 1.645 * (self.iqr / 1.349) / math.sqrt(len(times))
        digits = -math.log10(max(error / middle, 1e-4)) if middle else 1
        return max(1, min(4, int(digits) + 1))

    @property
    def has_warnings(self) -> bool:
        """Whether the times spread too far for the median to say much."""
        return bool(self.raw_times) and self.iqr / (self.median or 1) > _MOST_SPREAD

    def meets_confidence(self, threshold: float = _MOST_SPREAD) -> bool:
        """Whether the spread is below a part of the median."""
        return bool(self.raw_times) and self.iqr / (self.median or 1) < threshold

    title = property(lambda self: self.task_spec.title)
    env = property(lambda self: self.task_spec.env or "")
    description = property(lambda self: self.task_spec.description)
    label = property(lambda self: self.task_spec.label)
    sub_label = property(lambda self: self.task_spec.sub_label)
    num_threads = property(lambda self: self.task_spec.num_threads)
    stmt = property(lambda self: self.task_spec.stmt)

    @property
    def as_row_name(self) -> str:
        """What stands at the start of its row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count = len(self.raw_times)
        head = f"<{type(self).__module__}.{type(self).__name__} object at {id(self):#x}>"
        lines = [head, self.task_spec.summarize()]
        if count:
            unit, size = select_unit(self.median)
            digits = self.significant_figures

            def show(t: float) -> str:
                return f"{trim_sigfig(t / size, digits):.{max(2, digits - 1)}f} {unit}"

            if count == 1:
                lines.append(f"  {show(self.median)}")
            else:
                quarters = f"{show(self._percentile(25))} to {show(self._percentile(75))}"
                lines += [
                    f"  Median: {show(self.median)}",
                    f"  IQR:    {show(self.iqr)} ({quarters})",
                ]
        runs = f"{self.number_per_run} run{'s' * (self.number_per_run != 1)} per measurement, "
        lines.append(
            f"  {count} measurement{'s' * (count != 1)}, {runs if count > 1 else ''}"
            f"{'' if count > 1 else f'{self.number_per_run} runs, '}"
            f"{self.num_threads} thread{'s' * (self.num_threads > 1)}"
        )
        if count > 1 and self.has_warnings:
            far = self.iqr / (self.median or 1)
            strong = "could indicate system fluctuation" if far > _GREAT_SPREAD else "is high"
            lines.append(
                f"  WARNING: Interquartile range is {far:.1%} of the median, which {strong}"
            )
        return "\n".join(line for line in lines if line)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Measurements of the same code with as many executions in a run, put together."""
        groups: dict[Any, list[Measurement]] = {}
        for m in measurements:
            groups.setdefault((m.task_spec, m.number_per_run), []).append(m)
        return [
            Measurement(number, [t for m in ms for t in m.raw_times], spec)
            for (spec, number), ms in groups.items()
        ]
