"""The table that printing a graph gives, folded by module where it would be long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.graph.spec import LEAVES, Ref, Spec, show_kind, show_value

if TYPE_CHECKING:
    from weft.graph.graph import Graph

LONG = 60  # rows from which on modules are folded, deepest first


def render(graph: Graph, depth: int | None = None, backward: bool = True) -> str:
    """The graph as text."""
    if not graph._specs:
        return "<a released graph>" if graph._released else "<an empty graph>"
    specs = [s for s in graph._specs.values() if backward or s.kind in (*LEAVES, "forward")]
    if depth is None and len(specs) > LONG:
        depth = _depth_that_fits(specs)
    rows: list[tuple[str, ...]] = [("name", "op", "result", "bytes", "from", "module", "line")]
    names = graph._names()
    items = list(_folded(specs, depth))
    for item in items:
        rows.append(_row(item, names) if isinstance(item, Spec) else _fold_row(*item))
    keep = [k for k in range(7) if k < 2 or any(row[k] for row in rows[1:])]
    chosen = [[row[k] for k in keep] for row in rows]
    widths = [max(len(row[k]) for row in chosen) for k in range(len(keep))]
    right = keep.index(3) if 3 in keep else -1
    lines = [
        "  ".join(
            c.rjust(w) if k == right else c.ljust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in chosen
    ]
    folded = not all(isinstance(item, Spec) for item in items)
    hidden = f", modules folded below depth {depth}: table(depth=...)" if folded else ""
    return "\n".join([*lines, f"{len(specs)} nodes{hidden}"])


def _depth_that_fits(specs: list[Spec]) -> int | None:
    deepest = max((s.scope.count(".") + 1 for s in specs if s.scope), default=0)
    if not deepest:
        return None
    for depth in range(deepest, 0, -1):
        if len(list(_folded(specs, depth))) <= LONG:
            return depth
    return 1


def _folded(specs: list[Spec], depth: int | None) -> Any:
    """Nodes, and where modules lie deeper than the depth, (path, kind, nodes) in their place."""
    if depth is None:
        yield from specs
        return
    group: tuple[str, str, list[Spec]] | None = None
    for spec in specs:
        parts = spec.scope.split(".") if spec.scope else []
        path = ".".join(parts[:depth])
        if len(parts) < depth or not path:
            if group is not None:
                yield group
                group = None
            yield spec
        elif (group is not None and group[:2] == (path, spec.kind)) or (
            spec.kind in LEAVES and group is not None and group[0] == path
        ):
            group[2].append(spec)
        else:
            if group is not None:
                yield group
            group = (path, spec.kind if spec.kind not in LEAVES else "forward", [spec])
    if group is not None:
        yield group


def _row(spec: Spec, names: dict[int, str]) -> tuple[str, ...]:
    read = [
        (names.get(x.node, "?") + (f"[{x.index}]" if x.index else ""))
        if x.__class__ is Ref
        else show_value(x, 20)
        for x in spec.args
    ]
    kinds = ", ".join(show_kind(s, d) for s, d in spec.kinds())
    size = human(spec.nbytes())
    scope = spec.scope if spec.kind not in LEAVES else ""
    return (names[spec.id], spec.op_name, kinds, size, ", ".join(read), scope, spec.line())


def _fold_row(path: str, kind: str, specs: list[Spec]) -> tuple[str, ...]:
    count = sum(s.kind not in LEAVES for s in specs)
    leaves = len(specs) - count
    what = f"{count} {kind}" + (f", {leaves} leaves" if leaves else "")
    last = specs[-1]
    kinds = ", ".join(show_kind(s, d) for s, d in last.kinds())
    size = human(sum(s.nbytes() for s in specs if s.kind not in LEAVES))
    return (f"{path}.*", what, kinds, size, "", path, "")


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
