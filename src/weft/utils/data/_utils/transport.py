"""Objects between processes: small ones through the pipe, arrays in memory that both can see.

That memory is a file without a name, so a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import mmap
import os
import pickle
import tempfile
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

_BY_PIPE = 32768  # below this many bytes a copy is cheaper than new memory
_ALIGNMENT = 64
_CAN_SHARE = os.name == "posix"


def send(connection: Connection, obj: Any) -> None:
    """Send an object; nothing is sent if it can't be pickled."""
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
    views = [b.raw() for b in buffers]
    total = sum(v.nbytes for v in views)
    shared = _CAN_SHARE and total >= _BY_PIPE
    head = pickle.dumps((shared, [v.nbytes for v in views]))
    number = _shared_file(views) if shared else None
    try:
        connection.send_bytes(head)
        connection.send_bytes(data)
        if number is None:
            for view in views:
                if view.nbytes:
                    connection.send_bytes(view)
        else:
            reduction.send_handle(connection, number, None)
    finally:
        if number is not None:
            os.close(number)


def receive(connection: Connection) -> Any:
    """The next object, its arrays in memory that belongs to this process alone from now on."""
    shared, sizes = pickle.loads(connection.recv_bytes())
    data = connection.recv_bytes()
    if not shared:
        parts = [bytearray(connection.recv_bytes() if n else b"") for n in sizes]
        return pickle.loads(data, buffers=parts)
    number = reduction.recv_handle(connection)
    try:
        memory = memoryview(mmap.mmap(number, os.fstat(number).st_size))
    finally:
        os.close(number)
    views, at = [], 0
    for size in sizes:
        views.append(memory[at : at + size])
        at += _padded(size)
    return pickle.loads(data, buffers=views)


def _padded(size: int) -> int:
    return size + -size % _ALIGNMENT


def _shared_file(views: list[memoryview]) -> int:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("weft-batch", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    try:
        os.ftruncate(number, sum(_padded(v.nbytes) for v in views))
        at = 0
        for view in views:
            done = 0
            while done < view.nbytes:
                done += os.pwrite(number, view[done:], at + done)
            at += _padded(view.nbytes)
    except BaseException:
        os.close(number)
        raise
    return number
