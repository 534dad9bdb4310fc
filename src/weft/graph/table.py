"""The table that printing a graph gives, folded by module where it would be long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.graph.run import ACCUMULATE
from weft.graph.spec import CONSTANT, FORWARD, LEAVES, Ref, Spec, show_kind, show_value

if TYPE_CHECKING:
    from weft.graph.graph import Graph

LONG = 60  # rows from which on modules are folded, deepest first
_INPUTS = 8  # of a node that are shown
MOST = 400  # rows that printing a graph gives


def render(
    graph: Graph, depth: int | None = None, backward: bool = True, most: int | None = None
) -> str:
    """The graph as text; of more than ``most`` rows the first and the last."""
    if not graph._specs:
        return "<a released graph>" if graph._released else "<an empty graph>"
    specs = [s for s in graph._specs.values() if backward or s.kind in (*LEAVES, FORWARD)]
    homes = _homes(graph, specs)
    if depth is None and len(specs) > LONG:
        depth = _depth_that_fits(specs, homes)
    items = list(_folded(specs, homes, depth))
    cut = 0 if most is None else max(0, len(items) - most)
    middle = (len(items) - cut) // 2
    names = graph._names()
    rows = [
        _row(item, names) if isinstance(item, Spec) else _fold_row(*item)
        for item in (*items[:middle], *items[middle + cut :])
    ]
    lines = _laid_out([("name", "op", "result", "bytes", "time", "from", "module", "line"), *rows])
    if cut:
        lines.insert(middle + 1, f"... {cut} more rows: print(g.table())")
    folded = not all(isinstance(item, Spec) for item in items)
    hidden = f", modules folded below depth {depth}: table(depth=...)" if folded else ""
    return "\n".join([*lines, f"{len(specs)} nodes{hidden}"])


def _laid_out(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines of equal columns; columns that are empty but for their head are left out."""
    keep = [k for k in range(len(rows[0])) if k < 2 or any(row[k] for row in rows[1:])]
    widths = {k: max(len(row[k]) for row in rows) for k in keep}
    return [
        "  ".join(
            row[k].rjust(widths[k]) if rows[0][k] in ("bytes", "time") else row[k].ljust(widths[k])
            for k in keep
        ).rstrip()
        for row in rows
    ]


def _homes(graph: Graph, specs: list[Spec]) -> dict[int, str]:
    """The module that each node is shown in: for a leaf of nobody's, the one that reads it."""
    users, all_specs = graph._users(), graph._specs
    found = {}
    for spec in specs:
        readers = users.get(spec.id, ()) if spec.kind == CONSTANT and not spec.scope else ()
        scopes = {all_specs[k].scope for k in readers}
        found[spec.id] = scopes.pop() if len(scopes) == 1 else spec.scope
    return found


def _depth_that_fits(specs: list[Spec], homes: dict[int, str]) -> int | None:
    deepest = max((scope.count(".") + 1 for scope in homes.values() if scope), default=0)
    for depth in range(deepest, 1, -1):
        if sum(1 for _ in _folded(specs, homes, depth)) <= LONG:
            return depth
    return 1 if deepest else None


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
        *(", ".join(read), scope, spec.line()),
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
