"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_BUFFER = 1 << 20


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` when the block ends well.

    Until then the old file stays as it is. Where the system can, the new file has no name while
    it is written, so that a killed process leaves nothing behind but, between its last two system
    calls, a whole file under a passing name; the next save to ``path`` removes that.
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.")
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with open(target, "wb") as device:  # a pipe or a terminal can't be replaced
            yield device
        return
    _remove_left(target)
    number, temporary = _open_nameless(folder), None
    if number is None:
        try:
            number, temporary = _open_named(target)
        except OSError as error:
            error.filename = os.fspath(path)  # the passing name would say nothing to the user
            raise
    try:
        with os.fdopen(number, "w+b", _BUFFER) as file, contextlib.ExitStack() as held:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(number, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(number)
            if temporary is None:
                _lock(number)
                temporary = _give_name(file, target, held)
            if fcntl is not None:
                os.replace(temporary, target)  # while the lock is held by another save
        if fcntl is None:
            os.replace(temporary, target)  # this system replaces no open file
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    _sync_folder(folder)


def flush(file: Any) -> None:
    """Make the data written to this file object visible to readers of the file's path."""
    own = getattr(file, "flush", None)
    if own is not None:
        own()


_O_BINARY = getattr(os, "O_BINARY", 0)


def _mode(target: str) -> int | None:
    try:
        return os.stat(target).st_mode
    except FileNotFoundError:
        return None


def _open_nameless(folder: str) -> int | None:
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666)
    except OSError:
        return None  # this file system has no nameless files


def _open_named(target: str) -> tuple[int, str]:
    """A new file under a passing name, locked."""
    while True:
        name = _free_name(target)
        number = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _O_BINARY, 0o666)
        _lock(number)
        if fcntl is None or os.path.exists(name):
            return number, name
        os.close(number)  # another save took it for one that was left, before it was locked


def _free_name(target: str) -> str:
    return f"{_passing(target)}{secrets.token_hex(8)}.tmp"


def _passing(target: str) -> str:
    """How the passing names of a target begin."""
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:200]}.")


def _give_name(file: BinaryIO, target: str, held: contextlib.ExitStack) -> str:
    name = _free_name(target)
    # A link can't take the place of a file, so the name is a passing one.
    folder = os.open(os.path.dirname(name), os.O_RDONLY)
    try:
        # Only with a folder given does Python ask the system to follow the link in /proc.
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, os.path.basename(name), dst_dir_fd=folder, follow_symlinks=True)
    except OSError:
        return _copy_out(file, target, held)
    finally:
        os.close(folder)
    return name


def _copy_out(file: BinaryIO, target: str, held: contextlib.ExitStack) -> str:
    number, name = _open_named(target)
    try:
        copy = held.enter_context(os.fdopen(number, "wb"))
        file.seek(0)
        shutil.copyfileobj(file, copy, _BUFFER)
        copy.flush()
        os.fsync(number)
        os.fchmod(number, stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
    return name


def _lock(number: int) -> None:
    """Mark a file as being written; the mark goes when the process does, however it ends."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(number, fcntl.LOCK_EX)


def _remove_left(target: str) -> None:
    """Remove temporary files left by killed saves to the same target, if they are no longer being
    written.
    """
    if fcntl is None:
        return
    start = os.path.basename(_passing(target))
    ours = re.compile(re.escape(start) + r"[0-9a-f]{16}\.tmp")
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(target)) as entries:
        for name in [e.path for e in entries if e.name[0] == "." and ours.fullmatch(e.name)]:
            with contextlib.suppress(OSError):
                _remove_unlocked(name)


def _remove_unlocked(name: str) -> None:
    number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        facts = os.fstat(number)
        if stat.S_ISREG(facts.st_mode) and facts.st_uid == os.geteuid():
            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if it is being written
            os.unlink(name)
    finally:
        os.close(number)


def _sync_folder(folder: str) -> None:
    # Without this the new name may be lost in a power cut. Not every system can do it.
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
