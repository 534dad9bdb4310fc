"""Exit codes, and how errors are told."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

DONE = 0
NO = 1  # it ran, and the answer is no: graphs differ, names are missing, the script failed
WRONG_USE = 2  # arguments or input that can't be used: no such file, a damaged file
SYSTEM = 3  # the system refused: no permission, no space, no memory
INTERRUPTED = 130

EXPLAINED = """\
exit codes:
  0    done
  1    it ran, and the answer is no: graphs differ, names are missing, a script failed
  2    wrong arguments, or a file that is missing, damaged or of another kind
  3    the system refused: no permission, no space left, out of memory
  130  interrupted by Ctrl-C
"""

_INPUT = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError)


class Refusal(Exception):
    """Says in one line why nothing was done."""


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, MemoryError):
        return SYSTEM
    if isinstance(error, OSError) and not isinstance(error, _INPUT):
        return SYSTEM
    return WRONG_USE


def in_one_line(error: BaseException) -> str:
    """What went wrong, for people, in one line."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        names = [os.fsdecode(n) for n in (error.filename, error.filename2) if n is not None]
        what = error.strerror
        return f"{' -> '.join(names)}: {what}" if names else _without_name(error, what)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, KeyError) and error.args:
        error = error.args[0]
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _without_name(error: OSError, what: str) -> str:
    return f"can't write: {what}" if error.errno in (errno.ENOSPC, errno.EDQUOT) else what


def tell(message: str, command: str | None = None) -> None:
    """Print an error, in one line, to where errors go."""
    with contextlib.suppress(OSError):  # where nobody hears it, the exit code says it too
        print(f"weft{f' {command}' if command else ''}: {message}", file=sys.stderr, flush=True)


def hush() -> None:
    """After a failed write to the output: Python shall not complain again at its end."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(nothing, stream.fileno())
    os.close(nothing)
