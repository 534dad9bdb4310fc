"""``weft run``: a script in which torch means weft."""

from __future__ import annotations

import argparse
import linecache
import os
import sys
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING

from weft_command import exits

if TYPE_CHECKING:
    from weft.compat.scan import NameUse

LEVELS = ("native", "avx512", "avx2", "avx", "sse4", "baseline")

EXAMPLES = """\
examples:
  weft run train.py --epochs 3       a script with its own arguments
  weft run -m package.train          a module by its name
  weft run --compile train.py        repeating segments become native calls
  weft run --cpu avx2 train.py       with fewer of the processor's instructions

The exit code is the script's own, 1 if it failed, or 2 if weft lacks a name that it needs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = (
        "weft run [--no-check] [--compile] [--cpu level] (script.py | -m module) [arguments ...]"
    )
    parser.description = (
        "Run a Python script as it is, with `import torch` and torch's submodules resolved to "
        "weft,\nalso in worker processes. Names of torch that weft does not have are reported, all "
        "at once\nand with their lines, before anything runs (exit code 2)."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--no-check", action="store_true", help="run without looking for such names"
    )
    parser.add_argument(
        "--compile", action="store_true", help="compile repeating segments of the script as it runs"
    )
    parser.add_argument(
        "--cpu", metavar="level", type=_level,
        help=f"use instructions up to this level: {', '.join(LEVELS)}",
    )  # fmt: skip
    parser.add_argument("-m", dest="module", action="store_true", help="run a module by its name")
    parser.add_argument("script", help="the script, or with -m the module")


def _level(word: str) -> str:
    if word not in LEVELS:
        raise argparse.ArgumentTypeError(f"one of {', '.join(LEVELS)}")
    return word


def split(given: list[str]) -> tuple[list[str], list[str]]:
    """What is for us, up to the script's name, and what is for the script."""
    start = given.index("run")
    takes_value = False
    for i in range(start + 1, len(given)):
        if takes_value or given[i].startswith("-"):
            takes_value = not takes_value and given[i] == "--cpu"
            continue
        return given[: i + 1], given[i + 1 :]
    return given, []


def run(options: argparse.Namespace) -> int:
    """Run the script in this process."""
    if options.cpu is not None:
        _again_on(options)
    if options.debug:
        _show_all_frames()
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
        return exits.WRONG_USE
    start = program.run_module if options.module else program.run
    if options.compile:
        from weft import compiler

        compiler.auto()
    try:
        start(options.script, options.rest)
    except SystemExit:
        raise
    except BaseException as error:
        return _show(error)
    return exits.DONE


def _again_on(options: argparse.Namespace) -> None:
    """Start again with WEFT_CPU set: its wish is for a process that has loaded nothing."""
    words = ["run"]
    words += ["--debug"] * options.debug + ["--no-check"] * options.no_check
    words += ["--compile"] * options.compile
    words += ["-m"] * options.module + [options.script, *options.rest]
    os.environ["WEFT_CPU"] = options.cpu
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "weft", *words])


def _show_all_frames() -> None:
    """Leave weft's own frames in tracebacks, here and in worker processes."""
    os.environ["WEFT_TRACEBACK"] = "full"
    import weft

    weft.set_traceback_filtering("off")


def _refuse(message: str) -> int:
    print(f"weft: {message}", file=sys.stderr)
    return exits.WRONG_USE


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


def _by_name(uses: Iterable[NameUse]) -> dict[str, list[NameUse]]:
    found: dict[str, list[NameUse]] = {}
    for use in uses:
        found.setdefault(use.name, []).append(use)
    return found


def _describe(name: str, uses: list[NameUse]) -> str:
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
    return exits.INTERRUPTED if isinstance(error, KeyboardInterrupt) else exits.NO


def _from_the_script(trace: TracebackType | None) -> TracebackType | None:
    import weft

    own = tuple(os.path.join(os.path.dirname(f), "") for f in (__file__, str(weft.__file__)))
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith((*own, "<frozen")):
            break
        trace = trace.tb_next
    return trace
