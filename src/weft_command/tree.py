"""The tree of parsers: names and one line of help for all commands, arguments for one of them."""

from __future__ import annotations

import argparse
import difflib
import importlib
from types import ModuleType
from typing import Any, NamedTuple

from weft_command import exits


class Command(NamedTuple):
    """Where a command lives, and its line in the list."""

    module: str
    help: str


COMMANDS = {
    "run": Command("weft_command.running", "run a PyTorch script on weft"),
    "demo": Command("weft_command.demo", "train on handwritten digits and write a report"),
    "doctor": Command("weft_command.doctor", "say what works on this machine and what is missing"),
    "bench": Command("weft_command.bench", "measure speed, against PyTorch where it is installed"),
    "info": Command("weft_command.info", "say what is in a file, without running anything"),
    "convert": Command("weft_command.convert", "convert weights between .pt and safetensors"),
    "watch": Command("weft_command.watch", "show training logs in the browser"),
    "graph": Command("weft_command.graph", "look at saved graphs: show, diff, run, view"),
    "new": Command("weft_command.new", "start a project that trains and has a test"),
    "check": Command("weft_command.check", "list the names of torch that a package uses and "
                     "weft lacks"),
    "torch": Command("weft_command.torch_shim", "let pip and `import torch` find weft: install, "
                     "remove, status"),
    "completion": Command("weft_command.completion", "print completions for bash, zsh or fish"),
}  # fmt: skip

EXAMPLES = """\
examples:
  weft demo                          see what weft is about, in a minute
  weft run train.py --epochs 3       run a PyTorch script as it is
  weft info model.safetensors        what is in a file
  weft doctor                        what works on this machine

"""


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of descriptions and examples, and has room for long names."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, **{"max_help_position": 28, **more})


class Parser(argparse.ArgumentParser):
    """A parser that tells of wrong arguments in one line, with the way to the help."""

    def error(self, message: str) -> None:  # type: ignore[override]
        command = self.prog.partition(" ")[2]
        exits.tell(f"{message} (see {self.prog} --help)", command or None)
        raise SystemExit(exits.WRONG_USE)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As argparse does, but short, and with the word that was meant."""
        if action.choices is None or value in action.choices:
            return
        words = [str(choice) for choice in action.choices]
        what = action.metavar if isinstance(action.metavar, str) else action.dest
        meant = difflib.get_close_matches(str(value), words, 1)
        way_out = f"did you mean {meant[0]!r}?" if meant else f"it is one of {', '.join(words)}"
        self.error(f"unknown {what} {value!r}: {way_out}")


def parser(chosen: str | None = None, *, every: bool = False) -> Parser:
    """The tree, with the arguments of the chosen command, or of every one."""
    made = Parser(
        "weft",
        description="A deep-learning framework with PyTorch's API and a graph that you can hold.",
        epilog=EXAMPLES + exits.EXPLAINED,
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    made.add_argument("--version", action="store_true", help="say which weft this is")
    _add_debug(made, default=False)
    commands = made.add_subparsers(
        dest="command", metavar="command", title="commands", parser_class=Parser
    )
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.help,
            allow_abbrev=False,
            formatter_class=_Formatter,
        )
        _add_debug(sub, default=argparse.SUPPRESS)
        if every or name == chosen:
            load(name).configure(sub)
    return made


def parse(given: list[str], command: str | None) -> argparse.Namespace:
    """The options; what no parser takes is told of by the command that it was given to."""
    made = parser(command)
    options, unknown = made.parse_known_args(given)
    if unknown:
        if command is not None:
            made.prog = f"weft {command}"
        made.error(f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _add_debug(made: argparse.ArgumentParser, default: object) -> None:
    made.add_argument(
        "--debug", action="store_true", default=default, help="show the traceback of an error"
    )


def load(name: str) -> ModuleType:
    """The module of a command."""
    return importlib.import_module(COMMANDS[name].module)
