"""Graphs as a page in the browser, written to a file that needs nothing else."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.graph.build import of
from weft.graph.export import document_text
from weft.graph.frames import locals_of
from weft.graph.graph import Graph

__all__ = ["show"]


def show(
    *graphs: Any,
    title: str = "weft graph",
    path: str | os.PathLike[str] | None = None,
    open: bool = True,
    model: Any = None,
) -> str:
    """Draw graphs, or what is behind tensors, one step each; the path of the page.

    The page is a file of its own: it can be kept, and sent to others. Of a tensor's graph, the
    classes of modules are those of ``model``, or of a model that the caller has in a variable.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> weft.graph.show((x * x).sum(), open=False).endswith(".html")
    True
    """
    from weft.graph import page

    if not graphs or not all(isinstance(g, (Tensor, Graph)) for g in graphs):
        raise TypeError(
            f"graph.show takes tensors and graphs, not {[type(g).__name__ for g in graphs]}"
            f"\n  at {errors.here()}"
        )
    found = [of(g, model=model) if isinstance(g, Tensor) else g for g in graphs]
    for graph, given in zip(found, graphs, strict=True):
        if isinstance(given, Tensor) and model is None:
            graph.modules = _classes(graph, sys._getframe(1))
    text = page.wrapped(document_text(found, title), title)
    if path is None:
        handle, name = tempfile.mkstemp(prefix="weft-graph-", suffix=".html")
        os.close(handle)
        path = name
    target = pathlib.Path(path)
    target.write_text(text, encoding="utf-8")
    if open:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    return str(path)


def _classes(graph: Graph, frame: Any) -> dict[str, str]:
    """The classes of the modules that a graph ran in, from the models that its caller can name."""
    leaves = (spec.leaf.tensor for spec in graph._specs.values() if spec.leaf is not None)
    mine = {id(tensor) for tensor in leaves if tensor is not None}
    scopes = {spec.scope for spec in graph._specs.values() if spec.scope}
    found: dict[str, str] = {}
    for root in _models(frame):
        paths = {name: type(module).__name__ for name, module in root.named_modules() if name}
        owns = any(id(p) in mine for p in root.parameters())
        # Another model may have parts of the same names: this one's parameters are in the graph.
        if owns and any(scope in paths for scope in scopes):
            found = {**paths, **found}
    return found


def _models(frame: Any) -> Iterator[Any]:
    """What has modules among the variables of the caller and of those who called it."""
    is_model = lambda value: callable(getattr(type(value), "named_modules", None))
    while frame is not None:
        if not errors.is_own(frame.f_code.co_filename):
            values = list(locals_of(frame).values())
            yield from (value for value in values if is_model(value))
            # A trainer has its model as an attribute.
            own = getattr(locals_of(frame).get("self"), "__dict__", {})
            yield from (value for value in own.values() if is_model(value))
        frame = frame.f_back
