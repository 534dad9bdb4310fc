"""The command ``weft``."""

from __future__ import annotations

import argparse
import linecache
import os
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

from weft import _cpu

if TYPE_CHECKING:
    from weft.compat.scan import Use

_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_WRONG_USE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit code, unless the script itself exits."""
    all_given = list(sys.argv[1:] if arguments is None else arguments)
    if all_given[:1] == ["graph"]:
        from weft.graph.cli import main as graph

        return graph(all_given[1:])
    if all_given[:1] == ["watch"]:
        from weft.watching import main as watch

        return watch(all_given[1:])
    given: list[str] = all_given
    rest: list[str] = []
    if all_given[:1] == ["run"]:
        given, rest = _split(_on_processor(all_given))
    options = _parser().parse_args(given)
    if options.version:
        from weft.version import weft as own_version

        print(f"weft {own_version}")
        return 0
    if options.command is None:
        _parser().print_help()
        return 0
    if options.command == "doctor":
        from weft.doctor import main as doctor

        return doctor()
    if options.command == "torch":
        from weft.compat.distribution import main as distribution

        return distribution(options.action)
    if options.command == "check":
        from weft.compat.check import main as check

        return check(options.target, as_json=options.json)
    return _run(options, rest)


def _on_processor(given: list[str]) -> list[str]:
    """Take ``--cpu`` out of the arguments; its wish is for a process that has loaded nothing."""
    for i, word in enumerate(given[1:], 1):
        if not word.startswith("-"):
            return given
        if word == "--cpu" or word.startswith("--cpu="):
            level = word.partition("=")[2] if "=" in word else "".join(given[i + 1 : i + 2])
            if level not in (*_cpu.LEVELS, "native"):
                print(f"weft run --cpu: one of native, {', '.join(_cpu.LEVELS)}", file=sys.stderr)
                raise SystemExit(_WRONG_USE)
            rest = given[:i] + given[i + (1 if "=" in word else 2) :]
            os.environ["WEFT_CPU"] = level
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, "-m", "weft", *rest])
    return given


def _split(given: list[str]) -> tuple[list[str], list[str]]:
    """What is for us, up to the script's name, and what is for the script."""
    for i in range(1, len(given)):
        if not given[i].startswith("-"):
            return given[: i + 1], given[i + 1 :]
    return given, []


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "weft", description="PyTorch programs on weft.", allow_abbrev=False
    )
    parser.add_argument("--version", action="store_true", help="say which weft this is")
    commands = parser.add_subparsers(dest="command", metavar="command")
    run = commands.add_parser(
        "run",
        help="run a script in which torch means weft",
        usage="weft run [--no-check] [--cpu level] (script.py | -m module) [arguments ...]",
        description="Run a Python script as it is, with `import torch` and torch's submodules "
        "resolved to weft, also in worker processes. Names of torch that weft does not have are "
        "reported, all at once and with their lines, before anything runs (exit code 2).",
        allow_abbrev=False,
    )
    run.add_argument("--no-check", action="store_true", help="run without looking for such names")
    run.add_argument(
        "--cpu", metavar="level", help=f"use instructions up to {', '.join(reversed(_cpu.LEVELS))}"
    )
    run.add_argument("-m", dest="module", action="store_true", help="run a module by its name")
    run.add_argument("script", help="the script, or with -m the module")
    commands.add_parser("graph", help="look at saved graphs: show, diff, run, view", add_help=False)
    commands.add_parser("watch", help="show training logs in the browser", add_help=False)
    commands.add_parser("doctor", help="say what works on this machine and what is missing")
    check = commands.add_parser(
        "check",
        help="say which names of torch a package uses that weft lacks",
        description="Read the source of an installed package, a folder or a file, without running "
        "it, and list the names of torch in it that weft lacks or that raise when they are called. "
        "The exit code is 1 if a name is missing that the code does not ask for first.",
        allow_abbrev=False,
    )
    check.add_argument("--json", action="store_true", help="print JSON instead of a table")
    check.add_argument("target", help="the name of an installed package, a folder, or a file")
    shim = commands.add_parser(
        "torch",
        help="let pip and plain `import torch` find weft: install, remove, status",
        description="Put a distribution named torch into this environment, which satisfies "
        "libraries that depend on PyTorch and hands `import torch` over to weft; take it out "
        "again; or say which torch is there (exit code 0 if it is weft).",
        allow_abbrev=False,
    )
    shim.add_argument("action", choices=("install", "remove", "status"))
    return parser


def _run(options: argparse.Namespace, arguments: list[str]) -> int:
    from weft import compat
    from weft.compat import main as program

    try:
        compat.install()
    except RuntimeError as error:
        return _refuse(str(error))
    path = _source_of_module(options.script) if options.module else options.script
    if path is None:
        return _refuse(f"no module named {options.script}")
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        return _refuse(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}")
    if not options.no_check and _report_missing(path, _again(options)):
        return _WRONG_USE
    start = program.run_module if options.module else program.run
    try:
        start(options.script, arguments)
    except SystemExit:
        raise
    except BaseException as error:
        return _show(error)
    return 0


def _refuse(message: str) -> int:
    print(f"weft: {message}", file=sys.stderr)
    return _WRONG_USE


def _again(options: argparse.Namespace) -> str:
    return f"weft run --no-check {'-m ' if options.module else ''}{options.script}"


def _source_of_module(name: str) -> str | None:
    import importlib.util

    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{name}.__main__")
    except ModuleNotFoundError:
        return None
    return None if spec is None else spec.origin


def _report_missing(path: str, again: str) -> bool:
    """Say which names are missing; whether any of them is sure to be needed."""
    from weft.compat import scan

    uses = scan.missing_names(path)
    sure = _by_name(use for use in uses if not use.guarded)
    for name, places in _by_name(use for use in uses if use.guarded).items():
        where = f"{places[0].path}:{places[0].line}"
        print(f"weft: warning: {where}: no {name}, in code that may not run", file=sys.stderr)
    if not sure:
        return False
    print(
        f"weft: {path} needs {len(sure)} name{'s' * (len(sure) > 1)} that weft does not have:",
        *(_describe(name, places) for name, places in sure.items()),
        f"Nothing was run. {again} runs it up to the first of these.",
        sep="\n",
        file=sys.stderr,
    )
    return True


def _by_name(uses: Iterable[Use]) -> dict[str, list[Use]]:
    found: dict[str, list[Use]] = {}
    for use in uses:
        found.setdefault(use.name, []).append(use)
    return found


def _describe(name: str, uses: list[Use]) -> str:
    first, *others = uses
    also = ", ".join(str(u.line) for u in others if u.path == first.path)
    text = linecache.getline(first.path, first.line).strip()
    head = f"  {first.path}:{first.line}: {name}" + (f" (also line {also})" if also else "")
    reason = f"\n    ({first.reason})" if first.reason else ""
    return f"{head}\n    {text}{reason}"


def _show(error: BaseException) -> int:
    """Print a traceback that starts at the script, as Python's does; the exit code."""
    error = error.with_traceback(_from_the_script(error.__traceback__))
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if isinstance(error, ModuleNotFoundError) and f"{error.name}.".startswith("torch."):
        error.add_note(f"weft does not have {error.name} yet")
    sys.excepthook(type(error), error, error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def _from_the_script(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((_OWN, "<frozen")):
            break
        trace = trace.tb_next
    return trace


if __name__ == "__main__":
    sys.exit(main())
