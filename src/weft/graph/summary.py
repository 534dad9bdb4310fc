"""What each module costs: parameters, arithmetic, memory and time, as a table or as data."""

from __future__ import annotations

import functools
import html
import math
from typing import TYPE_CHECKING, Any

from weft.core import errors
from weft.graph import cost
from weft.graph.categories import category
from weft.graph.spec import FORWARD, INPUT, LEAVES, PARAMETER, Ref, dtype_name, show_kind
from weft.graph.table import human, laid_out, room, seconds

if TYPE_CHECKING:
    from weft.graph.graph import Graph

_FITS = 40  # rows up to which modules are unfolded
_ALIKE = 3  # siblings from which on equal ones share a row
_FIRST_TO_GO = ("result", "backward", "share", "forward")  # where the terminal is narrow
_NUMBERS = ("parameters", "FLOPs", "bytes", "forward", "backward", "share")


class ModuleTotals:
    """The sums of one module, with all that is in it."""

    def __init__(self, path: str, cls: str) -> None:
        self.path, self.cls = path, cls
        self.result = ""  # the kind of its last forward result
        self.parameters = 0  # elements
        self.flops = self.bytes = 0  # of the forward pass
        self.forward: float | None = None  # seconds
        self.backward: float | None = None  # seconds, with the optimizer's
        self.children: list[ModuleTotals] = []

    @property
    def time(self) -> float | None:
        """Seconds of all passes, if they were taken."""
        known = [t for t in (self.forward, self.backward) if t is not None]
        return sum(known) if known else None

    @functools.cached_property
    def alike(self) -> Any:
        """What two modules have in common that are drawn as one."""
        inner = tuple(child.alike for child in self.children)
        return (self.cls, self.result, self.parameters, self.flops, self.bytes, inner)

    def row(self) -> dict[str, Any]:
        """The sums as plain data."""
        return {
            "module": self.path,
            "class": self.cls,
            "result": self.result,
            "parameters": self.parameters,
            "flops": self.flops,
            "bytes": self.bytes,
            "forward": self.forward,
            "backward": self.backward,
        }


class Summary:
    """A graph by module. Printing gives a table; ``rows`` and ``to_pandas()`` give the numbers."""

    def __init__(self, graph: Graph, depth: int | None = None) -> None:
        graph._check_whole()
        self.total = _tree(graph)
        self.depth = depth

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One dict for each module, outer ones first; the first is the whole."""
        return [module.row() for module, _ in _walk(self.total, self.depth)]

    def to_pandas(self) -> Any:
        """The same as a pandas ``DataFrame``, indexed by module."""
        return frame(self.rows, "Summary.to_pandas").set_index("module")

    def text(self, width: int | None = None) -> str:
        """The table; as wide as the terminal, or ``width`` (0 for no limit)."""
        head = ("module", "class", "result", *_NUMBERS)
        lines = laid_out([head, *self._lines()], _NUMBERS, room(width), _FIRST_TO_GO)
        whole = self.total
        parts = [f"{whole.parameters:,} parameters", f"{number(whole.flops)} FLOPs forward"]
        parts += [f"{seconds(whole.time)} in all"] if whole.time is not None else []
        return "\n".join([*lines, ", ".join(parts)])

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        head = ("module", "class", "result", *_NUMBERS)
        used = [k for k in range(len(head)) if k < 2 or any(row[k] for row in self._lines())]
        cells = lambda row, tag: "".join(f"<{tag}{_side(head[k])}>{_cell(row[k])}</{tag}>"
                                         for k in used)  # fmt: skip
        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self._lines())
        return f"<table><thead><tr>{cells(head, 'th')}</tr></thead><tbody>{body}</tbody></table>"

    def _lines(self) -> list[tuple[str, ...]]:
        depth = self.depth
        if depth is None:
            deepest = max((level for _, level in _walk(self.total)), default=0)
            fits = (d for d in range(deepest, 0, -1) if len(_shown([self.total], d)) <= _FITS)
            depth = next(fits, 1)
        spent = self.total.time
        return [_line(*each, spent) for each in _shown([self.total], depth)]


def _tree(graph: Graph) -> ModuleTotals:
    """All modules that nodes ran in, with sums over what is inside."""
    modules: dict[str, ModuleTotals] = {"": ModuleTotals("", graph.modules.get("", ""))}

    def at(path: str) -> ModuleTotals:
        found = modules.get(path)
        if found is None:
            found = modules[path] = ModuleTotals(path, graph.modules.get(path, ""))
            at(path.rpartition(".")[0]).children.append(found)
        return found

    for spec in graph._specs.values():
        module: ModuleTotals | None = at(spec.scope)
        while module is not None:
            _count(module, spec, graph)
            path = module.path
            module = modules[path.rpartition(".")[0]] if path else None
    return modules[""]


def _count(module: ModuleTotals, spec: Any, graph: Graph) -> None:
    if spec.kind == PARAMETER:
        module.parameters += 0 if spec.shape is None else math.prod(spec.shape)
    elif spec.kind == FORWARD:
        module.flops += cost.flops(spec, graph._specs)
        module.bytes += spec.nbytes()
        module.result = show_kind(*spec.kinds()[0])
        if spec.time is not None:
            module.forward = (module.forward or 0.0) + spec.time
    elif spec.kind not in LEAVES and spec.time is not None:
        module.backward = (module.backward or 0.0) + spec.time


def _walk(
    module: ModuleTotals, depth: int | None = None, level: int = 0
) -> list[tuple[ModuleTotals, int]]:
    found = [(module, level)]
    if depth is None or level < depth:
        for child in module.children:
            found += _walk(child, depth, level + 1)
    return found


def _shown(
    alike: list[ModuleTotals], depth: int, level: int = 0
) -> list[tuple[list[ModuleTotals], int]]:
    """Modules in the order of the table; equal siblings that follow one another together."""
    found = [(alike, level)] if level or alike[0].cls else []
    if level >= depth:
        return found
    # Equal modules have equal children: one row stands for the same child of each.
    children = [list(same) for same in zip(*(module.children for module in alike), strict=True)]
    i = 0
    while i < len(children):
        end = i + 1
        while end < len(children) and children[end][0].alike == children[i][0].alike:
            end += 1
        if end - i < _ALIKE or not children[i][0].cls:
            end = i + 1
        together = [module for same in children[i:end] for module in same]
        found += _shown(together, depth, level + 1)
        i = end
    return found


def _line(modules: list[ModuleTotals], level: int, spent: float | None) -> tuple[str, ...]:
    first = modules[0]
    parent = first.path.rpartition(".")[0]
    siblings = [m for m in modules if m.path.rpartition(".")[0] == parent]
    name = first.path.rpartition(".")[2] or "(all)"
    if len(siblings) > 1:
        name = f"{name} \u2026 {siblings[-1].path.rpartition('.')[2]}"
    cls = f"{first.cls} \u00d7{len(modules)}".strip() if len(modules) > 1 else first.cls
    times = [m.time for m in modules if m.time is not None]
    sums = lambda key: sum(getattr(m, key) or 0 for m in modules)
    took = lambda key: seconds(sums(key)) if getattr(first, key) is not None else ""
    return (
        f"{'  ' * max(0, level - 1)}{name}",
        cls,
        first.result,
        f"{sums('parameters'):,}" if sums("parameters") else "",
        number(sums("flops")),
        human(sums("bytes")),
        took("forward"),
        took("backward"),
        f"{100 * sum(times) / spent:.0f} %" if times and spent else "",
    )


def number(value: int) -> str:
    """A count for people: ``1.5 M``."""
    size = float(value)
    for unit in ("", " k", " M", " G", " T"):
        if size < 1000 or unit == " T":
            return (f"{size:.0f}" if not unit else f"{size:.1f}") + unit if value else ""
        size /= 1000
    return ""


def _side(head: str) -> str:
    return f' style="text-align:{"right" if head in _NUMBERS else "left"}"'


def _cell(text: str) -> str:
    indent = len(text) - len(text.lstrip(" "))
    return "&nbsp;" * (2 * indent) + html.escape(text.lstrip(" "))


def node_rows(graph: Graph) -> list[dict[str, Any]]:
    """Every node as a dict of plain values: the rows of ``Graph.to_pandas``."""
    names, specs = graph._names(), graph._specs
    found = []
    for spec in specs.values():
        shapes = tuple(None if s is None else tuple(s) for s, _ in spec.kinds())
        dtypes = tuple(dtype_name(d) for _, d in spec.kinds())
        read = [names[x.node] for x in spec.args if x.__class__ is Ref and x.node in names]
        found.append(
            {
                "name": names[spec.id],
                "op": spec.op_name,
                "category": category(spec, specs) or (INPUT if spec.kind == INPUT else spec.kind),
                "kind": spec.kind,
                "module": spec.scope,
                "class": graph.modules.get(spec.scope, ""),
                "shape": shapes if spec.several else shapes[0],
                "dtype": ", ".join(dict.fromkeys(dtypes)),
                "bytes": spec.nbytes(),
                "flops": cost.flops(spec, specs),
                "time": spec.time,
                "inputs": read,
                "source": spec.position() or "",
            }
        )
    return found


def frame(rows: list[dict[str, Any]], asked: str) -> Any:
    """Rows as a ``DataFrame``; a clear error where there is no pandas."""
    try:
        import pandas
    except ImportError:
        raise ImportError(
            f"{asked} needs pandas, which is not installed: pip install pandas"
            f"\n  at {errors.here()}"
        ) from None
    return pandas.DataFrame(rows)
