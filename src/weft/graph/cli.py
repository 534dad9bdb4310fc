"""``weft graph show | diff | run | view``: graph files from the shell."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import numpy as np

from weft.core.devices import host, visible
from weft.core.tensor import wrap
from weft.graph.comparing import diff
from weft.graph.files import load
from weft.graph.graph import Graph
from weft.graph.run import GraphError
from weft.graph.spec import show_kind
from weft.graph.stats import describe


def configure(made: argparse.ArgumentParser) -> None:
    """Add what the command understands to a parser."""
    commands = made.add_subparsers(dest="action", required=True, metavar="command")
    show = commands.add_parser("show", help="print a graph as a table")
    show.add_argument("file")
    show.add_argument("--depth", type=int, help="fold modules deeper than this")
    show.add_argument("--forward", action="store_true", help="leave out backward and optimizer")
    forms = ("table", "json", "mermaid", "dot")
    show.add_argument("--as", dest="form", choices=forms, default="table")
    show.set_defaults(act=_show)
    compare = commands.add_parser("diff", help="tell how two graphs differ (exit code 1 if so)")
    compare.add_argument("first")
    compare.add_argument("second")
    compare.add_argument("--values", action="store_true", help="compute values where none are kept")
    compare.add_argument("--rtol", type=float, default=1e-5)
    compare.add_argument("--atol", type=float, default=1e-8)
    compare.set_defaults(act=_diff)
    run = commands.add_parser("run", help="compute a graph's outputs")
    run.add_argument("file")
    run.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy",
        help="a value for a leaf or node, in place of the saved one",
    )  # fmt: skip
    run.add_argument("--output", metavar="FILE.npz", help="write the outputs there")
    run.set_defaults(act=_run)
    view = commands.add_parser("view", help="write a page that draws graphs, one step each")
    view.add_argument("files", nargs="+")
    view.add_argument("-o", "--output", metavar="FILE.html", help="default: beside the first file")
    view.add_argument("--open", action="store_true", help="open it in the browser")
    view.set_defaults(act=_view)


def _show(options: argparse.Namespace) -> int:
    graph = load(options.file)
    if options.form == "table":
        print(graph.table(options.depth, backward=not options.forward))
    elif options.form == "json":
        print(graph.to_json(title=options.file, indent=1))
    else:
        write = graph.to_mermaid if options.form == "mermaid" else graph.to_dot
        print(write(backward=not options.forward))
    return 0


def _diff(options: argparse.Namespace) -> int:
    found = diff(
        load(options.first),
        load(options.second),
        rtol=options.rtol,
        atol=options.atol,
        values=True if options.values else None,
    )
    print(found)
    return 1 if found else 0


def _run(options: argparse.Namespace) -> int:
    graph = load(options.file)
    given = {}
    for pair in options.input:
        name, sign, path = pair.partition("=")
        if not sign:
            raise GraphError(f"--input is NAME=FILE.npy, not {pair!r}")
        given[name] = wrap(_array(path))
    found = graph.run(given)
    outs: dict[str, Any] = {}
    results = found if isinstance(found, tuple) else (found,)
    for r, tensor in zip(graph._outputs, results, strict=True):
        name = graph._names()[r.node] + (f"[{r.index}]" if r.index else "")
        outs[name] = host(tensor)
        print(f"{name}: {show_kind(tensor._a.shape, tensor._a.dtype)}, {describe(visible(tensor))}")
        if tensor._a.size <= 10:
            print(f"  {tensor.tolist()}")
    if options.output:
        np.savez(options.output, allow_pickle=False, **outs)
    return 0


def _array(path: str) -> np.ndarray:
    try:
        found = np.load(path, allow_pickle=False)
    except (ValueError, EOFError):
        found = None
    if not isinstance(found, np.ndarray):
        raise GraphError(f"{path!r} is not a .npy file of numbers")
    return found


def _view(options: argparse.Namespace) -> int:
    from weft.graph.showing import show

    graphs: list[Graph] = [load(path) for path in options.files]
    path = options.output or pathlib.Path(options.files[0]).with_suffix(".html")
    print(show(*graphs, title=options.files[0], path=path, open=options.open))
    return 0
