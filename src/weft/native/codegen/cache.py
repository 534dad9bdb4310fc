"""The on-disk cache of machine code, so that the second run compiles nothing.

Code from there is executed, so no other user may be able to write it: the folder and its files
belong to this user and are writable by no other, no parent folder lets others rename it, and links
are not followed. Otherwise a private folder of this process is used. A file is identified by the
digest of everything that its code was generated from; a file with different or incomplete content
counts as missing, and is rewritten.

The cache is bounded: beyond its limit the least recently used files are deleted.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from weft.native.once import once

MAGIC = b"weft-o2\n"
LIMIT = 256  # MB, unless WEFT_CACHE_LIMIT says otherwise
EVERY = 64  # files written by a process, between two looks at the size of the folder
LEFT_OVER = 3600  # seconds after which an unfinished file is considered abandoned
UNUSED = 86_400  # seconds between two notes that a file was used
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class CacheFolder(NamedTuple):
    """The folder of the code cache, and why the usual one was refused, if it was."""

    folder: Path
    refused: str = ""


def wanted_folder() -> Path:
    """``WEFT_CACHE``, or the user's cache folder."""
    given = os.environ.get("WEFT_CACHE")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft"


def why_unsafe(folder: Path) -> str:
    """Why code from a folder can't be trusted, or nothing."""
    if os.name != "posix":
        return ""
    found = folder.stat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder"
    if found.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if found.st_mode & _OTHERS_WRITE:
        return f"{folder} is writable by others: chmod go-w {folder}"
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"{parent} is writable by everybody and has no sticky bit"
    return ""


@once
def place() -> CacheFolder:
    """The folder of this process's code; made if need be."""
    try:
        folder = wanted_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        refused = why_unsafe(folder)
        if not refused:
            return CacheFolder(folder.resolve())
    except (OSError, RuntimeError) as error:  # Path.home() raises the latter
        refused = str(error)
    folder = Path(tempfile.mkdtemp(prefix="weft-"))
    owner = os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not a forked child's
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return CacheFolder(folder, refused)


def limit() -> int:
    """The most bytes that the cache may take."""
    given = os.environ.get("WEFT_CACHE_LIMIT", "")
    return int(given if given.isdecimal() else LIMIT) << 20


def path_of(name: str, key: bytes) -> Path:
    """The file of a kernel; ``key`` is the digest of all that its code is made from."""
    return place().folder / f"{name}-{key.hex()[:32]}.o"


def has(name: str, key: bytes) -> bool:
    """Whether there is a file for a key, which may turn out to hold something else."""
    return os.path.lexists(path_of(name, key))


def read(name: str, key: bytes) -> bytes | None:
    """The code for a key, if it is there, whole, ours, and of this key."""
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path_of(name, key), flags)
    except OSError:
        return None
    try:
        about = os.fstat(handle)
        if not _ours(about):
            return None
        code = _checked(os.read(handle, about.st_size + 1), key)
        if code is not None and time.time() - about.st_atime > UNUSED:
            if os.utime in os.supports_fd:  # many systems note uses once a day, or never
                os.utime(handle)
        return code
    except OSError:
        return None
    finally:
        os.close(handle)


def _ours(about: os.stat_result) -> bool:
    """Whether a file is a regular one that no other user can write to."""
    if not stat.S_ISREG(about.st_mode):
        return False
    if os.name != "posix":
        return True
    alone = about.st_uid == os.getuid() and about.st_nlink == 1
    return alone and not about.st_mode & _OTHERS_WRITE


def _checked(found: bytes, key: bytes) -> bytes | None:
    """The code in what a file holds, if that is whole and for this key."""
    start = len(MAGIC)
    code = found[start + 64 :]
    digest = hashlib.sha256(key + code).digest()
    return code if found[: start + 64] == MAGIC + key + digest else None


def write(name: str, key: bytes, code: bytes) -> None:
    """Keep code: write beside its place and move it there. A full disk is not an error."""
    target = path_of(name, key)
    try:
        handle, beside = tempfile.mkstemp(prefix=".new-", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + key + hashlib.sha256(key + code).digest() + code)
            os.replace(beside, target)
        except OSError:
            os.unlink(beside)
            raise
    except OSError:
        return
    if _written[0] % EVERY == 0:
        prune()
    _written[0] += 1


_written = [0]


def _files() -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place().folder) as found:
            return [f for f in found if f.name.endswith(".o") or f.name.startswith(".new-")]
    except OSError:
        return []


def size() -> tuple[int, int]:
    """How many files there are, and how many bytes they take."""
    sizes = []
    for file in _files():
        with contextlib.suppress(OSError):
            sizes.append(file.stat(follow_symlinks=False).st_size)
    return len(sizes), sum(sizes)


def prune() -> int:
    """Remove what was not used for the longest time if the cache is too large; bytes removed."""
    now, total, removed, aged = time.time(), 0, 0, []
    for file in _files():
        with contextlib.suppress(OSError):
            about = file.stat(follow_symlinks=False)
            if file.name.startswith(".new-"):
                if now - about.st_mtime > LEFT_OVER:
                    os.unlink(file.path)
                continue
            total += about.st_size
            aged.append((max(about.st_atime, about.st_mtime), about.st_size, file.path))
    most = limit()
    if total <= most:
        return 0
    for _, length, path in sorted(aged):
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += length
        if total - removed <= most * 4 // 5:  # so that the next look has nothing to do
            break
    return removed
