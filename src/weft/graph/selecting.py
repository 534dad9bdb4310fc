"""Selectors: which nodes of a graph, or ops of a running program, are meant."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

from weft.graph.spec import FORWARD, title_of


class Select:
    """Decides whether a node is selected. ``&``, ``|`` and ``~`` combine selectors.

    >>> import weft
    >>> x = weft.ones(2)
    >>> with weft.graph.record() as g:
    ...     y = x.relu().exp().sum()
    >>> picked = weft.graph.select(op="relu") | weft.graph.select(op="exp")
    >>> [node.name for node in g.find(picked)], [node.name for node in g.find(~picked)]
    (['relu', 'exp'], ['x', 'sum'])
    """

    def __init__(self, fits: Callable[[Any], bool], text: str) -> None:
        self.fits, self.text = fits, text

    def __call__(self, node: Any) -> bool:
        return bool(self.fits(node))

    def __and__(self, other: Select) -> Select:
        return Select(lambda n: self(n) and other(n), f"({self.text} & {_checked(other).text})")

    def __or__(self, other: Select) -> Select:
        return Select(lambda n: self(n) or other(n), f"({self.text} | {_checked(other).text})")

    def __invert__(self) -> Select:
        return Select(lambda n: not self(n), f"~{self.text}")

    def __repr__(self) -> str:
        return self.text


def _checked(other: Any) -> Select:
    if not isinstance(other, Select):
        raise TypeError(f"a selector combines with selectors, not with {type(other).__name__}")
    return other


def select(
    op: str | None = None,
    module: str | None = None,
    name: str | None = None,
    kind: str | None = None,
    where: Callable[[Any], bool] | None = None,
) -> Select:
    """The nodes that match all given criteria; ``*`` matches anything in names.

    A selector goes wherever nodes are chosen: ``g.find(selector)``, ``record(values=selector)``,
    and ``where=selector`` of rules.
    """
    given = {"op": op, "module": module, "name": name, "kind": kind, "where": where}
    text = ", ".join(f"{k}={v!r}" for k, v in given.items() if v is not None)

    def fits(node: Any) -> bool:
        if kind is not None and getattr(node, "kind", FORWARD) != kind:
            return False
        if op is not None and not any(
            fnmatch.fnmatchcase(n, op) for n in (node.op, title_of(node.op))
        ):
            return False
        if module is not None and not in_module(node.module, module):
            return False
        if name is not None and not fnmatch.fnmatchcase(node.name, name):
            return False
        return where is None or bool(where(node))

    return Select(fits, f"select({text})")


def in_module(scope: str, module: str) -> bool:
    """Whether a path lies in a module; the module may have stars."""
    if fnmatch.fnmatchcase(scope, module):
        return True
    return fnmatch.fnmatchcase(scope, module + ".*") if module else not scope


def as_select(given: Any) -> Select:
    """A selector, or a pattern of names as one."""
    if isinstance(given, Select):
        return given
    if isinstance(given, str):
        return select(name=given)
    if isinstance(given, (list, tuple)) and given:
        chosen = as_select(given[0])
        for more in given[1:]:
            chosen = chosen | as_select(more)
        return chosen
    raise TypeError(
        f"nodes are chosen by a name such as '*.relu', a list of names, or weft.graph.select(...), "
        f"not by {type(given).__name__}"
    )
