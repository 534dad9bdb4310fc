"""The page attached to a running program: look at each step, pause it, edit it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from weft.core import errors
from weft.core.dispatch import REGISTRY

if TYPE_CHECKING:
    from weft.graph.page.server import Server

__all__ = ["Served", "Source", "serve"]


@runtime_checkable
class Source(Protocol):
    """What can be served. The methods are called from other threads than the program's.

    A step that was shown does not change any more; a new one gets a new number.
    """

    def document(self) -> dict[str, Any]:
        """What the page draws, as ``weft.graph.document`` gives it."""

    def version(self) -> int:
        """A number that grows when the document changes; asked for often, so it must be quick."""

    def edit(self, request: dict[str, Any]) -> dict[str, Any]:
        """Act on an edit: ``{"ok": True}``, or ``{"error": reason}``."""


class Shown:
    """A document that stays as it is."""

    def __init__(self, document: dict[str, Any]) -> None:
        self._document = document

    def document(self) -> dict[str, Any]:
        return self._document

    def version(self) -> int:
        return 1

    def edit(self, request: dict[str, Any]) -> dict[str, Any]:
        return {"error": "this graph is not attached to a running program"}


class Served:
    """A page that is being served: its address, its source, and how to end it."""

    def __init__(self, source: Any, server: Server) -> None:
        self.source = source
        self._server = server
        _SERVED.add(self)

    @property
    def url(self) -> str:
        """The address; anyone who has it can see and edit, so keep it private."""
        return self._server.url

    @property
    def closed(self) -> bool:
        """Whether the page is no longer served."""
        return self._server.closed.is_set()

    def close(self) -> None:
        """Stop serving, and detach from the program."""
        self._server.close()
        close = getattr(self.source, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<graph {'no longer ' if self.closed else ''}served at {self.url}>"


_SERVED: weakref.WeakSet[Served] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for served in list(_SERVED):
        served.close()


def _forget_all() -> None:
    """In a forked child: the page belongs to the parent, and so does the pause button."""
    for served in list(_SERVED):
        served._server.abandon()
        leave = getattr(served.source, "abandon", None)
        if leave is not None:
            leave()
    _SERVED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def serve(
    source: Any = None,
    port: int = 0,
    open: bool = False,
    title: str = "",
    values: bool = False,
) -> Served:
    """Show a graph, or this thread's training as it runs, in a browser on this machine.

    Without a source the page follows the steps of this thread: each call of an optimizer's
    ``step`` ends one. The program calls nothing; it can be paused and edited from the page.
    ``values`` adds statistics of all results and gradients, which are kept for a step for that.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.graph.serve(weft.graph.of((x * x).sum())) as served:
    ...     served.url.startswith("http://127.0.0.1:")
    True
    """
    from weft.graph.page.server import Server

    found = _as_source(source, title, values)
    try:
        server = Server(found, port, registered)
    except OSError as error:
        raise OSError(
            f"graph.serve: port {port} is not available ({error.strerror}); port=0 takes a free one"
            f"\n  at {errors.here()}"
        ) from None
    served = Served(found, server)
    start = getattr(found, "start", None)
    if start is not None:
        start()
        print(f"weft graph: {served.url}", file=sys.stderr)
    if open:
        import webbrowser

        threading.Thread(target=webbrowser.open, args=(served.url,), daemon=True).start()
    return served


def registered() -> list[str]:
    """The names that an edit may use."""
    return sorted(REGISTRY)


def _as_source(source: Any, title: str, values: bool) -> Any:
    if source is None:
        from weft.graph.live import Live

        return Live(title or "Training", values)
    if isinstance(source, dict):
        return Shown(source)
    if isinstance(source, Source):
        return source
    from weft.graph.export import document
    from weft.graph.graph import Graph

    graphs = source if isinstance(source, (list, tuple)) else [source]
    if not graphs or not all(isinstance(graph, Graph) for graph in graphs):
        raise TypeError(
            "graph.serve: source is a graph, a list of graphs, a document, or an object with "
            f"document(), version() and edit(); this is a {type(source).__name__}"
            f"\n  at {errors.here()}"
        )
    return Shown(document(list(graphs), title or "weft graph"))
