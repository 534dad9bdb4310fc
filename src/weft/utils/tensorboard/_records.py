"""Event files: records with checksums, appended one by one and read back as far as they are whole.

A record goes to the system in one call, before the call that logs it returns, so a process that
is killed leaves every event that it has logged. A record that could not be written whole, because
the disk is full, is taken back: what follows stays readable.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

from weft.core import errors
from weft.utils.tensorboard import _wire as wire
from weft.utils.tensorboard._crc import masked

_HEADER, _CHECK = struct.Struct("<Q"), struct.Struct("<I")
_LARGEST = 1 << 31  # more than this no reader takes
_numbers = itertools.count()


def frame(content: bytes) -> bytes:
    """A record: its length and its bytes, each with a checksum."""
    length = _HEADER.pack(len(content))
    return b"".join((length, _CHECK.pack(masked(length)), content, _CHECK.pack(masked(content))))


def read(path: str | os.PathLike[str], start: int = 0) -> Iterator[tuple[bytes, int]]:
    """The records of a file from a place on, each with the place after it.

    It ends before a record that is not whole: one that is being written, or was when the process
    died. A later call can go on from the last place that was given.
    """
    with open(path, "rb") as file:
        file.seek(start)
        while True:
            head = file.read(12)
            if len(head) < 12 or _CHECK.unpack(head[8:])[0] != masked(head[:8]):
                return
            length = _HEADER.unpack(head[:8])[0]
            if length > _LARGEST:
                return
            body = file.read(length + 4)
            content = body[:length]
            if len(body) < length + 4 or _CHECK.unpack(body[length:])[0] != masked(content):
                return
            start += length + 16
            yield content, start


class EventFile:
    """An event file that is being written, by any number of threads."""

    def __init__(self, folder: str, flush_secs: float = 120, suffix: str = "") -> None:
        self.folder, self.flush_secs, self.suffix = folder, flush_secs, suffix
        self._lock = threading.Lock()
        self._number: int | None = None
        self._open()

    def _open(self) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}."
        name += f"{os.getpid()}.{next(_numbers)}{self.suffix}"
        self.path = os.path.join(self.folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        try:
            os.makedirs(self.folder, exist_ok=True)
            self._number = os.open(self.path, flags, 0o666)
        except OSError as error:
            raise self._failed(error) from None
        self._synced = time.monotonic()
        version = wire.double(1, time.time()) + wire.data(3, "brain.Event:2")
        self.write(version + wire.message(10, wire.data(1, "weft.utils.tensorboard")))

    def write(self, event: bytes) -> None:
        """Append an event; it is in the file when this returns."""
        record = frame(event)
        with self._lock:
            if self._number is None:
                raise ValueError(
                    f"the event file {self.path!r} is closed; make a new writer, or reopen() it"
                    f"\n  at {errors.here()}"
                )
            self._append(self._number, record)
            if time.monotonic() - self._synced >= self.flush_secs:
                self._sync()

    def _append(self, number: int, record: bytes) -> None:
        written = 0
        try:
            while written < len(record):
                written += os.write(number, record[written:])
        except BaseException as error:
            if written:  # a part of a record would hide everything behind it
                with contextlib.suppress(OSError):
                    os.ftruncate(number, os.fstat(number).st_size - written)
            if isinstance(error, OSError):
                raise self._failed(error) from None
            raise

    def flush(self) -> None:
        """See to it that everything survives even the machine's failure."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        if self._number is not None:
            try:
                os.fsync(self._number)
            except OSError as error:
                raise self._failed(error) from None
        self._synced = time.monotonic()

    def close(self) -> None:
        """Flush and let go of the file; doing so twice is harmless."""
        with self._lock:
            number, self._number = self._number, None
            if number is not None:
                with contextlib.suppress(OSError):
                    os.fsync(number)
                os.close(number)

    def __del__(self) -> None:
        if getattr(self, "_number", None) is not None:
            self.close()

    def reopen(self) -> None:
        """Go on after ``close``, in a new file; nothing to do if it is open."""
        if self._number is None:
            self._open()

    def _failed(self, error: OSError) -> OSError:
        return OSError(
            error.errno,
            f"the event file can't be written ({error.strerror}); give the writer a log_dir on a "
            f"disk that has room and that you may write to\n  at {errors.here()}\n ",
            getattr(self, "path", self.folder),
        )
