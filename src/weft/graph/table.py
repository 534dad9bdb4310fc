"""The table that printing a graph gives: folded where it would be long, as wide as the terminal."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

from weft.graph.gradient import ACCUMULATE
from weft.graph.spec import (
    CONSTANT,
    FORWARD,
    LEAVES,
    OPTIMIZER,
    STATE,
    Ref,
    Spec,
    show_kind,
    show_value,
)

if TYPE_CHECKING:
    from weft.graph.graph import Graph

ROLLED = 24  # rows from which on repetitions are folded
LONG = 60  # rows from which on modules are folded, deepest first
MOST = 100  # rows that printing a graph gives
WIDTH = 120  # of a table that is printed to no terminal
_INPUTS = 8  # of a node that are shown
_PERIOD = 24  # nodes that may repeat as a whole
_REPEATS = 3  # from which on a repetition is folded
_HEAD = ("name", "op", "result", "bytes", "time", "from", "module", "line")
_NARROWEST = 18  # that a column of text becomes before others are left out
_LEAST = 8  # and after that
_FIRST_TO_GO = ("module", "from", "line")  # where even that is too wide


class RepeatedRows(NamedTuple):
    """Rows that repeat: ``norm`` 144 times, ``mul`` and ``add`` by turns, 12 layers."""

    items: list[Any]
    period: int

    @property
    def specs(self) -> list[Spec]:
        """All nodes of it."""
        return [s for item in self.items for s in (item[2] if item.__class__ is tuple else (item,))]


def render(
    graph: Graph,
    depth: int | None = None,
    backward: bool = True,
    most: int | None = None,
    width: int | None = None,
) -> str:
    """The graph as text.

    Of more than ``most`` rows the first and the last are shown, and repetitions are folded.
    Lines are as long as the terminal is wide; ``width`` says otherwise, and 0 sets no limit.
    """
    if not graph._specs:
        return "<a released graph>" if graph._released else "<an empty graph>"
    specs = [s for s in graph._specs.values() if backward or s.kind in (*LEAVES, FORWARD)]
    homes = _homes(graph, specs)
    rolled = most is not None and depth is None and len(specs) > ROLLED
    if depth is None and len(specs) > LONG:
        depth = _depth_that_fits(specs, homes, rolled)
    items = _items(specs, homes, depth, rolled)
    if rolled and len(items) > LONG:
        items = _rolled(items, modules=True)
    cut = 0 if most is None else max(0, len(items) - most)
    middle = (len(items) - cut) // 2
    names = graph._names()
    rows = [_row_of(item, names) for item in (*items[:middle], *items[middle + cut :])]
    numbers, ends = ("bytes", "time"), ("name", "module")
    lines = laid_out([_HEAD, *rows], numbers, room(width), _FIRST_TO_GO, ends)
    if cut:
        lines.insert(middle + 1, f"... {cut} more rows: print(g.table())")
    notes = [f"{len(specs)} nodes"]
    shown = [
        x for item in items for x in (item.items if item.__class__ is RepeatedRows else (item,))
    ]
    if any(item.__class__ is tuple for item in shown):
        notes.append(f"modules folded below depth {depth}: g.table(depth=...)")
    if any(item.__class__ is RepeatedRows for item in items):
        notes.append("repetitions folded: g.table()")
    return "\n".join([*lines, ", ".join(notes)])


def room(width: int | None) -> int | None:
    """How long lines may be; None for as long as they like."""
    if width is None:
        return shutil.get_terminal_size((WIDTH, 24)).columns
    return width or None


def laid_out(
    rows: list[tuple[str, ...]],
    numbers: tuple[str, ...],
    limit: int | None,
    to_go: tuple[str, ...],
    ends: tuple[str, ...] = (),
) -> list[str]:
    """Rows, the first of them heads, as lines of equal columns that fit into a width.

    Columns that are empty but for their head are left out, and of those of ``to_go`` the first
    ones where there is no room. Those of ``ends`` are cut at the front.
    """
    heads = rows[0]
    keep = [k for k in range(len(heads)) if k < 2 or any(row[k] for row in rows[1:])]
    widths = {k: max(len(row[k]) for row in rows) for k in keep}
    if limit is not None:
        _narrow(widths, heads, numbers, limit, to_go)
    return [
        "  ".join(
            row[k].rjust(size)
            if heads[k] in numbers
            else _clipped(row[k], size, heads[k] in ends).ljust(size)
            for k, size in widths.items()
        ).rstrip()
        for row in rows
    ]


def _narrow(
    widths: dict[int, int],
    heads: tuple[str, ...],
    numbers: tuple[str, ...],
    limit: int,
    to_go: tuple[str, ...],
) -> None:
    """Leave out columns that there is no room for, then take from the widest columns of text."""
    least = lambda k: widths[k] if heads[k] in numbers else min(widths[k], _NARROWEST)
    for name in to_go:
        if sum(least(k) + 2 for k in widths) - 2 > limit and name in heads:
            widths.pop(heads.index(name), None)
    while (over := sum(size + 2 for size in widths.values()) - 2 - limit) > 0:
        *others, widest = sorted(
            (k for k in widths if heads[k] not in numbers), key=lambda k: widths[k]
        )
        if widths[widest] <= _LEAST:
            return
        next_to = max((widths[k] for k in others), default=0)
        floor = max(_LEAST, min(widths[widest] - 1, next_to))
        widths[widest] = max(floor, widths[widest] - over)


def _clipped(text: str, size: int, at_front: bool) -> str:
    if len(text) <= size:
        return text
    return f"\u2026{text[len(text) - size + 1 :]}" if at_front else f"{text[: size - 1]}\u2026"


def _homes(graph: Graph, specs: list[Spec]) -> dict[int, str]:
    """The module that each node is shown in: for a leaf of nobody's, the one that reads it."""
    users, all_specs = graph._users(), graph._specs
    found = {}
    for spec in specs:
        readers = users.get(spec.id, ()) if spec.kind == CONSTANT and not spec.scope else ()
        scopes = {all_specs[k].scope for k in readers}
        found[spec.id] = scopes.pop() if len(scopes) == 1 else spec.scope
    return found


def _depth_that_fits(specs: list[Spec], homes: dict[int, str], rolled: bool) -> int | None:
    deepest = max((scope.count(".") + 1 for scope in homes.values() if scope), default=0)
    for depth in range(deepest, 1, -1):
        if len(_items(specs, homes, depth, rolled)) <= LONG:
            return depth
    return 1 if deepest else None


def _items(
    specs: list[Spec], homes: dict[int, str], depth: int | None, rolled: bool
) -> list[Spec | RepeatedRows | tuple[str, str, list[Spec]]]:
    """What gets a row each: nodes, folded modules, repetitions."""
    items = list(_folded(specs, homes, depth))
    return _rolled(items) if rolled else items


def _rolled(items: list[Any], modules: bool = False) -> list[Any]:
    """Nodes that repeat one after another, or folded modules, each repetition as one item."""
    numbers: dict[Any, int] = {}
    keys = [numbers.setdefault(_likeness(item, modules), len(numbers)) for item in items]
    found: list[Any] = []
    i = 0
    while i < len(items):
        for period in range(1, _PERIOD + 1):
            if keys[i : i + 1] != keys[i + period : i + period + 1]:
                continue
            end = i + period
            while end < len(items) and keys[end] == keys[end - period]:
                end += 1
            count = (end - i) // period
            if count >= _REPEATS and count * period > 2 * _REPEATS - 2:
                found.append(RepeatedRows(items[i : i + count * period], period))
                i += count * period
                break
        else:
            found.append(items[i])
            i += 1
    return found


def _likeness(item: Any, modules: bool) -> Any:
    """What rows have in common that repeat each other; a leaf of a name is like no other."""
    if item.__class__ is RepeatedRows:
        return id(item)
    if item.__class__ is tuple:
        return (item[1], tuple([s.op_name for s in item[2]])) if modules else id(item)
    if item.kind in LEAVES:
        return item.id if item.label else (item.kind, item.shape)
    return item.kind, item.op_name, item.scope


def _folded(specs: list[Spec], homes: dict[int, str], depth: int | None) -> Any:
    """Nodes, and where modules lie deeper than the depth, (path, kind, nodes) in their place."""
    if depth is None:
        yield from specs
        return
    group: tuple[str, str, list[Spec]] | None = None
    for spec in specs:
        parts = homes[spec.id].split(".") if homes[spec.id] else []
        path = ".".join(parts[:depth])
        kind = FORWARD if spec.kind in LEAVES else spec.kind
        kind = OPTIMIZER if spec.kind == STATE else kind
        if group is not None and len(parts) >= depth and group[:2] == (path, kind):
            group[2].append(spec)
            continue
        if group is not None:
            yield group
        group = (path, kind, [spec]) if path and len(parts) >= depth else None
        if group is None:
            yield spec
    if group is not None:
        yield group


def _row_of(item: Any, names: dict[int, str]) -> tuple[str, ...]:
    if item.__class__ is RepeatedRows:
        return _run_row(item, names)
    return _row(item, names) if isinstance(item, Spec) else _fold_row(*item)


def _run_row(run: RepeatedRows, names: dict[int, str]) -> tuple[str, ...]:
    specs = run.specs
    first, last = (
        f"{item[0]}.*" if item.__class__ is tuple else names[item.id]
        for item in (run.items[0], run.items[-1])
    )
    once = ", ".join(_run_part(item) for item in run.items[: run.period])
    times = [s.time for s in specs if s.time is not None]
    kinds = {show_kind(*s.kinds()[0]) for s in specs}
    return (
        f"{first} \u2026 {last}",
        f"{len(run.items) // run.period} \u00d7 {once}",
        kinds.pop() if len(kinds) == 1 else "",
        human(sum(s.nbytes() for s in specs if s.kind not in LEAVES)),
        seconds(sum(times)) if times else "",
        *("", _shared([s.scope for s in specs]), _shared([_line(s) for s in specs])),
    )


def _run_part(item: Any) -> str:
    """What is done once in every round of a repetition."""
    if item.__class__ is not tuple:
        return str(item.op_name)
    inner = [s.op_name for s in item[2] if s.kind not in LEAVES]
    return inner[0] if len(inner) == 1 else f"{len(inner)} {item[1]}"


def _shared(texts: list[str]) -> str:
    return texts[0] if len(set(texts)) == 1 else ""


def _row(spec: Spec, names: dict[int, str]) -> tuple[str, ...]:
    read = [
        (names.get(x.node, "?") + (f"[{x.index}]" if x.index else ""))
        if x.__class__ is Ref
        else show_value(x, 20)
        for x in spec.args[:_INPUTS]
    ]
    if len(spec.args) > _INPUTS:
        read.append(f"... {len(spec.args) - _INPUTS} more")
    kinds = ", ".join(show_kind(s, d) for s, d in spec.kinds())
    scope = spec.scope if spec.kind not in LEAVES else ""
    return (
        *(names[spec.id], spec.op_name, kinds, human(spec.nbytes()), seconds(spec.time)),
        *(", ".join(read), scope, _line(spec)),
    )


def _fold_row(path: str, kind: str, specs: list[Spec]) -> tuple[str, ...]:
    inner = [s for s in specs if s.kind not in LEAVES]
    if all(s.op == ACCUMULATE for s in inner):
        kind = "gradients"
    leaves = len(specs) - len(inner)
    counts = [f"{len(inner)} {kind}"] if inner else []
    counts += [f"{leaves} lea{'ves' if leaves > 1 else 'f'}"] if leaves else []
    what = ", ".join(counts)
    size = human(sum(s.nbytes() for s in inner))
    times = [s.time for s in inner if s.time is not None]
    spent = seconds(sum(times)) if times else ""
    return (f"{path}.*", what, show_kind(*specs[-1].kinds()[0]), size, spent, "", path, "")


def _line(spec: Spec) -> str:
    """``model.py:12: text of the line``, without the folder."""
    place, sign, text = spec.line().partition(": ")
    return f"{os.path.basename(place)}{sign}{text}"


def seconds(time: float | None) -> str:
    """A time for people: ``1.5 ms``."""
    if time is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if time >= size:
            return f"{time / size:.1f} {unit}"
    return f"{time * 1e6:.1f} us"


def human(size: int) -> str:
    """Bytes for people: ``1.5 MB``."""
    if not size:
        return ""
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000 or unit == "GB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return ""
