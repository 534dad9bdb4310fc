"""What a profile holds: events, sums over events of one name, and their tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.profiler import _exports

_OUTSIDE = "(no module)"

# Fields of which there is only zero without a GPU, which programs sort by all the same.
_NO_DEVICE = ("device_time", "device_time_total", "self_device_time_total")
_OTHER_NAMES = {
    **{name.replace("device", "cuda"): name for name in _NO_DEVICE},
    "cpu_memory_usage": "cpu_memory_usage",
    "self_cpu_memory_usage": "cpu_memory_usage",
}


def in_words(microseconds: float, unit: str | None = None) -> str:
    """A time with the unit that suits it, or with this one."""
    if unit == "s" or (unit is None and microseconds >= 1e6):
        return f"{microseconds / 1e6:.3f}s"
    if unit == "ms" or (unit is None and microseconds >= 1e3):
        return f"{microseconds / 1e3:.3f}ms"
    return f"{microseconds:.3f}us"


def _bytes(count: float) -> str:
    for size, unit in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} B"


class Interval:
    """When something began and ended, in microseconds."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """How long it took."""
        return self.end - self.start


class FunctionEvent:
    """One op, one backward node, one optimizer step or one ``record_function`` block."""

    device_time = device_time_total = self_device_time_total = 0.0

    def __init__(
        self,
        id: int = 0,
        name: str = "",
        thread: int = 0,
        start_us: float = 0.0,
        end_us: float = 0.0,
        *,
        input_shapes: Sequence[Any] = (),
        stack: Sequence[str] = (),
        scope: Any = "",
        cpu_memory_usage: int = 0,
        is_async: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        parent: FunctionEvent | None = None,
    ) -> None:
        self.id, self.node_id, self.sequence_nr = id, node_id, sequence_nr
        self.name = self.key = name
        self.thread, self.cpu_parent = thread, parent
        self.cpu_children: list[FunctionEvent] = []
        self.time_range = Interval(start_us, end_us)
        self.input_shapes: list[Any] = list(input_shapes)
        self.stack: list[str] = list(stack)
        self.scope = scope
        self.cpu_memory_usage, self.flops = cpu_memory_usage, 0
        self.count, self.is_async = 1, is_async

    @property
    def cpu_time_total(self) -> float:
        """Microseconds from beginning to end."""
        return self.time_range.elapsed_us()

    cpu_time = cpu_time_total

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds that no event inside it accounts for."""
        return self.cpu_time_total - sum(c.cpu_time_total for c in self.cpu_children)

    def __repr__(self) -> str:
        return f"<FunctionEvent {self.name} {in_words(self.cpu_time_total)}>"


class FunctionEventAvg:
    """All events of one name together."""

    device_time = device_time_total = self_device_time_total = 0.0

    def __init__(self, key: str | None = None) -> None:
        self.key = key  # else that of the first event
        self.count = 0
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.cpu_memory_usage = self.flops = 0
        self.input_shapes: Any = None
        self.stack: list[str] = []

    def add(self, other: Any) -> FunctionEventAvg:
        """Count another event, or another sum, in."""
        if self.key is None:
            self.key = other.key
        self.count += other.count
        # An event inside one of its own kind is in that one's total already.
        self.cpu_time_total += 0.0 if _within_itself(other) else other.cpu_time_total
        self.self_cpu_time_total += other.self_cpu_time_total
        self.cpu_memory_usage += other.cpu_memory_usage
        self.flops += other.flops
        return self

    @property
    def cpu_time(self) -> float:
        """Microseconds on average."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def cpu_time_str(self) -> str:
        """The average time with its unit."""
        return in_words(self.cpu_time)

    @property
    def cpu_time_total_str(self) -> str:
        """The time with its unit."""
        return in_words(self.cpu_time_total)

    @property
    def self_cpu_time_total_str(self) -> str:
        """The time of its own with its unit."""
        return in_words(self.self_cpu_time_total)

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} input_shapes={self.input_shapes}>"
        )


def _within_itself(event: Any) -> bool:
    parent = getattr(event, "cpu_parent", None)
    while parent is not None:
        if parent.name == event.name:
            return True
        parent = parent.cpu_parent
    return False


class EventList(list):
    """Events, or sums of events, with a table of them."""

    def __init__(self, events: Iterable[Any] = (), profile_memory: bool = False) -> None:
        super().__init__(events)
        self.profile_memory = profile_memory

    def _populate_cpu_children(self) -> None:
        """Find out from times which event ran inside which other of its thread."""
        open_now: dict[int, list[FunctionEvent]] = {}
        order = [e for e in self if not e.is_async]
        for event in sorted(order, key=lambda e: (e.time_range.start, -e.time_range.end)):
            around = open_now.setdefault(event.thread, [])
            start, end = event.time_range.start, event.time_range.end
            while around and (
                start >= around[-1].time_range.end or end > around[-1].time_range.end
            ):
                around.pop()
            if around:
                event.cpu_parent = around[-1]
                around[-1].cpu_children.append(event)
            around.append(event)

    @property
    def self_cpu_time_total(self) -> float:
        """Microseconds of all events, each counted once."""
        return sum(e.self_cpu_time_total for e in self)

    def total_average(self) -> FunctionEventAvg:
        """All of them as one sum."""
        total = FunctionEventAvg("Total")
        for event in self:
            total.add(event)
        total.cpu_time_total = total.self_cpu_time_total
        return total

    def key_averages(
        self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, **more: Any
    ) -> EventList:
        """Events of one name (and shapes, and lines, if wanted) summed up."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else None
            stack = tuple(event.stack[:group_by_stack_n])
            key = (event.name, shapes, stack)
            if key not in found:
                found[key] = made = FunctionEventAvg(event.name)
                made.input_shapes = event.input_shapes if group_by_input_shapes else None
                made.stack = list(stack)
            found[key].add(event)
        return EventList(found.values(), self.profile_memory)

    def by_module(self) -> EventList:
        """Events summed up by the module that they ran in, forward and backward together."""
        return self._summed(lambda e: e.scope or _OUTSIDE)

    def by_line(self) -> EventList:
        """Events summed up by the line of the program that called them."""
        if any(not e.stack for e in self):
            raise RuntimeError("by_line() needs the profile to be made with with_stack=True")
        return self._summed(lambda e: e.stack[0])

    def _summed(self, key: Callable[[FunctionEvent], str]) -> EventList:
        """Sums of what events took by themselves: what is inside them counts where it stands."""
        found: dict[str, FunctionEventAvg] = {}
        for event in self:
            total = found.setdefault(key(event), FunctionEventAvg(key(event)))
            total.count += 1
            total.self_cpu_time_total += event.self_cpu_time_total
            total.cpu_time_total += event.self_cpu_time_total
            total.cpu_memory_usage += event.cpu_memory_usage
            total.flops += event.flops
        rows = sorted(found.values(), key=lambda row: -row.self_cpu_time_total)
        return EventList(rows, self.profile_memory)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as text, the largest first if sorted."""
        rows = list(self)
        if top_level_events_only:
            rows = [e for e in rows if getattr(e, "cpu_parent", None) is None]
        if sort_by is not None:
            field = _OTHER_NAMES.get(sort_by, sort_by)
            rows.sort(key=lambda e: getattr(e, field), reverse=True)
        columns = self._columns(
            time_unit, max_name_column_width, max_shapes_column_width, max_src_column_width
        )
        lines = [[title for title, _, _ in columns]]
        lines += [[show(e) for _, _, show in columns] for e in rows[: max(row_limit, 0)]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        rule = "  ".join("-" * w for w in widths)
        text = [
            "  ".join(
                cell.ljust(w) if left else cell.rjust(w)
                for cell, w, (_, left, _) in zip(line, widths, columns, strict=True)
            ).rstrip()
            for line in lines
        ]
        total = in_words(self.self_cpu_time_total, time_unit)
        parts = [rule, text[0], rule, *text[1:], rule, f"Self CPU time total: {total}", ""]
        return "\n".join(([header] if header else []) + parts)

    def _columns(
        self, unit: str | None, names: int, shapes: int, lines: int
    ) -> list[tuple[str, bool, Callable]]:
        total = self.self_cpu_time_total or 1.0

        def share(part: float) -> str:
            return f"{100 * part / total:.2f}%"

        columns: list[tuple[str, bool, Callable]] = [
            ("Name", False, lambda e: _cut(e.key, names)),
            ("Self CPU %", False, lambda e: share(e.self_cpu_time_total)),
            ("Self CPU", False, lambda e: in_words(e.self_cpu_time_total, unit)),
            ("CPU total %", False, lambda e: share(e.cpu_time_total)),
            ("CPU total", False, lambda e: in_words(e.cpu_time_total, unit)),
            ("CPU time avg", False, lambda e: in_words(e.cpu_time, unit)),
        ]
        if self.profile_memory:
            columns.append(("CPU Mem", False, lambda e: _bytes(e.cpu_memory_usage)))
        columns.append(("# of Calls", False, lambda e: str(e.count)))
        if any(e.flops for e in self):
            columns.append(("Total FLOPs", False, lambda e: f"{e.flops:,}" if e.flops else "--"))
        if any(e.input_shapes for e in self):
            columns.append(("Input Shapes", False, lambda e: _cut(str(e.input_shapes), shapes)))
        if any(e.stack for e in self):
            columns.append(("Source Location", True, lambda e: _cut("; ".join(e.stack), lines)))
        return columns

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as a file for the trace viewers of browsers."""
        _exports.chrome_trace(self, path)

    def export_speedscope(self, path: str | os.PathLike[str], name: str = "weft") -> None:
        """Write the events as a file for the flame graphs of speedscope."""
        _exports.speedscope(self, path, name)


def _cut(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: max(width - 3, 0)] + "..."
