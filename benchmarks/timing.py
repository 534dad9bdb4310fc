"""Timing two systems fairly on a noisy machine."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import exp, log


@dataclass
class Row:
    """One measured case: times in microseconds (or another unit, if the case says so)."""

    case: str
    weft: float
    torch: float
    limit: float | None = None
    unit: str = "us"

    @property
    def ratio(self) -> float:
        return self.weft / self.torch


def once(function: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        function()
    return (time.perf_counter() - start) / repeats * 1e6


UNITS = {"us": 1.0, "ms": 1e-3}


def compare(
    case: str,
    mine: Callable[[], object],
    theirs: Callable[[], object],
    repeats: int,
    rounds: int = 15,
    limit: float | None = None,
    unit: str = "us",
) -> Row:
    """The best time of each over several rounds in which they take turns."""
    for function in (mine, theirs):
        once(function, max(repeats // 5, 1))
    best = [float("inf"), float("inf")]
    gc.collect()
    for turn in range(rounds):
        pair = [(0, mine), (1, theirs)]
        for k, function in pair if turn % 2 == 0 else reversed(pair):
            best[k] = min(best[k], once(function, repeats))
    return Row(case, best[0] * UNITS[unit], best[1] * UNITS[unit], limit, unit)


def compare_within(
    seconds: float,
    case: str,
    mine: Callable[[], object],
    theirs: Callable[[], object],
    limit: float | None = None,
    unit: str = "us",
    rounds: int | None = None,
) -> Row:
    """The same, with as many repeats (and rounds, if not given) as fit into a time."""
    both = [min(once(function, 1) for _ in range(3)) / 1e6 for function in (mine, theirs)]
    repeats = max(int(seconds / 100 / max(both)), 1)
    if rounds is None:
        rounds = min(max(int(seconds / (repeats * sum(both))), 3), 50)
    return compare(case, mine, theirs, repeats, rounds, limit, unit)


def geometric_mean(numbers: Iterable[float]) -> float:
    """The mean in which a half and a double cancel out."""
    logarithms = [log(number) for number in numbers]
    return exp(sum(logarithms) / len(logarithms))


def mean_row(rows: list[Row], limit: float | None, case: str = "geometric mean") -> Row:
    """A row of the geometric means of others; its ratio is the mean of their ratios."""
    mine, theirs = (geometric_mean(getattr(r, side) for r in rows) for side in ("weft", "torch"))
    return Row(case, mine, theirs, limit, rows[0].unit)


def in_processes(
    case: str, mine: str, theirs: str, limit: float, unit: str, rounds: int = 5
) -> Row:
    """The smallest number that each of two programs prints, run in turns as processes."""
    # An installed package has its compiled files; a checkout gets them on the first run.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    best = [float("inf"), float("inf")]
    for _ in range(rounds):
        for k, program in enumerate((mine, theirs)):
            done = subprocess.run(
                [sys.executable, "-c", program],
                capture_output=True,
                text=True,
                check=True,
                env=environment,
            )
            best[k] = min(best[k], float(done.stdout.strip().splitlines()[-1]))
    return Row(case, best[0], best[1], limit, unit)


def report(title: str, rows: list[Row], path: str | None = None) -> bool:
    """Print a table of ratios; True if every limit holds."""
    width = max(len(r.case) for r in rows)
    print(f"\n{title}\n{'case':<{width}}  {'weft':>10}  {'torch':>10}       ratio  limit")
    for r in rows:
        bound = (
            "" if r.limit is None else f"{r.limit:5.2f}  {'ok' if r.ratio <= r.limit else 'over'}"
        )
        numbers = f"{r.weft:>10.2f}  {r.torch:>10.2f} {r.unit:<4}"
        print(f"{r.case:<{width}}  {numbers}  {r.ratio:5.2f}  {bound}")
    if path:
        save(rows, path)
    return all(r.limit is None or r.ratio <= r.limit for r in rows)


def save(rows: list[Row], path: str) -> None:
    """Write rows and their ratios as JSON."""
    with open(path, "w") as file:
        json.dump([{**asdict(r), "ratio": r.ratio} for r in rows], file, indent=2)
