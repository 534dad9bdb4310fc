"""A file is replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

_BUFFER = 1 << 20


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that takes the place of ``path`` when the block ends well.

    Until then the old file stays as it is. Where the system can, the new file has no name while
    it is written, so that not even a killed process leaves anything behind.
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
    number = _open_nameless(folder)
    if number is None:
        temporary = _free_name(target)
        try:
            number = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _O_BINARY, 0o666)
        except OSError as error:
            error.filename = os.fspath(path)  # the passing name would say nothing to the user
            raise
    else:
        temporary = None
    try:
        with os.fdopen(number, "w+b", _BUFFER) as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(number, stat.S_IMODE(mode))
            yield file
            file.flush()
            os.fsync(number)
            nameless = temporary is None
            if temporary is None:
                temporary = _give_name(file, target)
                os.replace(temporary, target)  # at once, while the passing name is microseconds old
        if not nameless:
            os.replace(temporary, target)
    except BaseException:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise
    _sync_folder(folder)


def flush(file: Any) -> None:
    """Let those who read a file by its name see what was written to this file object."""
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


def _free_name(target: str) -> str:
    folder, name = os.path.split(target)
    return os.path.join(folder, f".{name[:200]}.{secrets.token_hex(8)}.tmp")


def _give_name(file: BinaryIO, target: str) -> str:
    name = _free_name(target)
    # A link can't take the place of a file, so the name is a passing one.
    folder = os.open(os.path.dirname(name), os.O_RDONLY)
    try:
        # Only with a folder given does Python ask the system to follow the link in /proc.
        source = f"/proc/self/fd/{file.fileno()}"
        os.link(source, os.path.basename(name), dst_dir_fd=folder, follow_symlinks=True)
    except OSError:
        _copy_out(file, name)
    finally:
        os.close(folder)
    return name


def _copy_out(file: BinaryIO, name: str) -> None:
    try:
        with open(name, "xb") as copy:
            file.seek(0)
            shutil.copyfileobj(file, copy, _BUFFER)
            copy.flush()
            os.fsync(copy.fileno())
            os.fchmod(copy.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode))
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _sync_folder(folder: str) -> None:
    # Without this the new name may be lost in a power cut. Not every system can do it.
    with contextlib.suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
