"""Measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.utils.benchmark.measurement import Measurement, select_unit, trim_sigfig


class Compare:
    """A table of measurements: a row for each piece of code, a column for each description."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = False
        self._highlight = False

    def __str__(self) -> str:
        groups: dict[Any, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.label, []).append(m)
        return "\n".join(self._table(label, ms) for label, ms in groups.items())

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        results = list(results)
        for r in results:
            if not isinstance(r, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(r)} instead.")
        self._results.extend(results)

    def trim_significant_figures(self) -> None:
        """Show only the digits that can be trusted."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Mark the best of each row with a star; terminals differ, and texts go to files."""
        self._highlight = True

    def highlight_warnings(self) -> None:
        """Mark measurements that spread too far with an exclamation mark; they always are."""

    def print(self) -> None:
        """Print the table."""
        print(str(self))

    def _table(self, label: str | None, measured: list[Measurement]) -> str:
        columns = list(dict.fromkeys(m.description or "" for m in measured))
        rows = list(dict.fromkeys((m.num_threads, m.env, m.as_row_name) for m in measured))
        place = {((m.num_threads, m.env, m.as_row_name), m.description or ""): m for m in measured}
        unit, size = select_unit(min(m.median for m in measured))
        cells: list[list[str]] = [["", *columns]]
        threads = None
        for row in rows:
            if row[0] != threads:
                threads = row[0]
                cells.append([f"{threads} thread{'s' * (threads > 1)}:", *([""] * len(columns))])
            found = [place.get((row, c)) for c in columns]
            best = min(m.median for m in found if m is not None)
            env = f" ({row[1]})" if row[1] else ""
            cells.append([f"  {row[2]}{env}", *(self._cell(m, size, best) for m in found)])
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns) + 1)]
        lines = [
            "  |  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
            for line in cells
        ]
        head = f"[ {label or 'measurements'} ]".center(len(lines[0]), "-")
        return "\n".join([head, *lines, "", f"Times are in {unit}.", ""])

    def _cell(self, m: Measurement | None, size: float, best: float) -> str:
        if m is None:
            return ""
        value = m.median / size
        shown = f"{trim_sigfig(value, m.significant_figures):g}" if self._trim else f"{value:.1f}"
        marks = ("!" if m.has_warnings else "") + ("*" * (self._highlight and m.median == best))
        return shown + (f" {marks}" if marks else "")
