"""From the arguments to the exit code."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence

from weft_command import exits, tree


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit code, unless a script that it runs exits by itself."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    chosen = next((word for word in given if not word.startswith("-")), None)
    command = chosen if chosen in tree.COMMANDS else None
    rest: list[str] = []
    if command == "run":
        from weft_command import running

        given, rest = running.split(given)
    else:
        _take_any_text()
    debug = "--debug" in given
    try:
        code = _run(given, rest, command)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        exits.hush()  # whoever reads has enough, as head does
        return exits.DONE
    except KeyboardInterrupt:
        if debug:
            raise
        exits.tell("interrupted", command)
        return exits.INTERRUPTED
    except Exception as error:
        if debug:
            raise
        exits.tell(exits.in_one_line(error), command)
        exits.hush()
        return exits.code_of(error)


def _take_any_text() -> None:
    """Names in files may have characters that the terminal has not; they are shown as numbers."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(given: list[str], rest: list[str], command: str | None) -> int:
    options = tree.parse(given, command)
    if options.version:
        from weft_command.version import version

        print(f"weft {version()}")
        return exits.DONE
    if options.command is None:
        tree.parser().print_help()
        return exits.DONE
    options.rest = rest
    return tree.load(options.command).run(options)
