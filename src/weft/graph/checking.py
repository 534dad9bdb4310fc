"""A structural check for a program's own tests: is the graph the one that was written down?"""

from __future__ import annotations

import difflib
import os
import pathlib
from typing import Any

from weft.core import errors
from weft.graph.graph import Graph
from weft.graph.spec import INNER, Ref, Spec, show_kind, show_value

UPDATE = "WEFT_UPDATE_GRAPHS"
_SHOWN = 60  # lines of a difference


def described(graph: Graph) -> str:
    """A graph's structure as text, a line for each node: no values, and no lines of source."""
    names = graph._names()
    lines = [_line(spec, names) for spec in graph._specs.values()]
    outputs = ", ".join(_shown(r, names) for r in graph._outputs)
    return "\n".join([*lines, f"outputs: {outputs}", ""])


def _line(spec: Spec, names: dict[int, str]) -> str:
    read = [_shown(x, names) for x in spec.args]
    read += [f"{k}={show_value(v)}" for k, v in spec.attrs.items() if k not in INNER]
    kinds = ", ".join(show_kind(*kind) for kind in spec.kinds())
    return f"{names[spec.id]}: {spec.op_name}({', '.join(read)}) -> {kinds}"


def _shown(x: Any, names: dict[int, str]) -> str:
    if x.__class__ is not Ref:
        return show_value(x)
    return names.get(x.node, "?") + (f"[{x.index}]" if x.index else "")


def assert_unchanged(
    graph: Graph, path: str | os.PathLike[str], *, update: bool | None = None
) -> None:
    """Fail if a graph's structure is not the one in a file: ops, wiring, shapes, dtypes, settings.

    The file is text, to be kept beside the tests. It is written with ``update=True``, or if the
    environment variable ``WEFT_UPDATE_GRAPHS`` is set to 1.
    """
    if not isinstance(graph, Graph):
        raise TypeError(
            f"assert_unchanged takes a graph, not {type(graph).__name__}; weft.graph.of(tensor) "
            f"and weft.graph.record() give one\n  at {errors.here()}"
        )
    graph._check_whole()
    place, now = pathlib.Path(path), described(graph)
    if update is None:
        update = os.environ.get(UPDATE, "") not in ("", "0")
    if update:
        unfinished = place.with_name(f"{place.name}.{os.getpid()}.part")
        unfinished.write_text(now, encoding="utf-8")
        os.replace(unfinished, place)
        return
    way = f"update=True or {UPDATE}=1 writes it"
    if not place.exists():
        raise AssertionError(f"there is no graph in {os.fspath(path)!r} to compare with; {way}")
    before = place.read_text(encoding="utf-8")
    if before == now:
        return
    changes = list(
        difflib.unified_diff(
            before.splitlines(), now.splitlines(), "written down", "now", lineterm="", n=1
        )
    )
    more = [f"... and {len(changes) - _SHOWN} more lines"] if len(changes) > _SHOWN else []
    told = "\n".join([*changes[:_SHOWN], *more])
    raise AssertionError(
        f"the graph is not the one in {os.fspath(path)!r}:\n{told}\nif that is meant, {way}"
    )
