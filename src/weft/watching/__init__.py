"""A training in the browser, with nothing to install: live, or from its logs.

``weft.watch(model)`` follows the training of this thread; ``weft.watch("runs")``, or ``weft watch
runs`` from the shell, compares the runs below a log folder as they grow.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from weft.core import errors
from weft.graph.serving import Served, serve
from weft.nn import Module

__all__ = ["page", "watch"]


def watch(
    *what: Any, port: int = 0, open: bool = False, title: str = "", values: bool = False
) -> Served:
    """Show a training in a browser on this machine.

    Without arguments, or with the model, the page follows this thread: its losses, learning rates,
    gradient norms and update ratios by layer, speed, memory, and the graph of its steps. The
    program calls nothing; ``served.source.log(accuracy=0.9)`` and ``.sample(name, image)`` add
    to it. With folders, their runs are shown and compared.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, watch(folder) as served:
    ...     served.url.startswith("http://127.0.0.1:")
    True
    """
    if what and all(isinstance(each, (str, os.PathLike)) for each in what):
        return serve(_folders(what, title), port, open)
    if len(what) > 1 or (what and not isinstance(what[0], Module)):
        raise TypeError(
            "weft.watch takes a model, or the folders of logs, not "
            f"{', '.join(type(each).__name__ for each in what)}\n  at {errors.here()}"
        )
    from weft.watching.live import LiveTraining

    model = what[0] if what else None
    return serve(LiveTraining(model, title or "Training", values), port, open)


def page(*folders: str | os.PathLike[str], path: str | os.PathLike[str], title: str = "") -> str:
    """Write the runs of folders as a page of its own, which can be kept and sent; its path."""
    from weft.graph.page import html

    Path(path).write_text(html(_folders(folders, title).document()), encoding="utf-8")
    return os.fspath(path)


def _folders(folders: tuple[Any, ...], title: str) -> Any:
    from weft.watching.folders import Folders

    missing = [str(folder) for folder in folders if not os.path.isdir(folder)]
    if missing:
        raise NotADirectoryError(f"{', '.join(missing)} is not a folder\n  at {errors.here()}")
    return Folders(*folders, title=title or ", ".join(Path(f).name or str(f) for f in folders))
