"""Graphs as a page in the browser, written to a file that needs nothing else."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

from weft.core import errors
from weft.core.tensor import Tensor
from weft.graph.build import of
from weft.graph.export import document
from weft.graph.graph import Graph

__all__ = ["show"]


def show(
    *graphs: Any,
    title: str = "weft graph",
    path: str | os.PathLike[str] | None = None,
    open: bool = True,
) -> str:
    """Draw graphs, or what is behind tensors, one step each; the path of the page.

    The page is a file of its own: it can be kept, and sent to others.

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
    found = [of(g) if isinstance(g, Tensor) else g for g in graphs]
    text = page.html(document(found, title=title))
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
