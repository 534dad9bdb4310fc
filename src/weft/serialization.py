"""Saving and loading: PyTorch's own ``.pt`` files, both ways, and safetensors.

>>> import io, weft
>>> file = io.BytesIO()
>>> weft.save({"weight": weft.ones(2)}, file)
>>> _ = file.seek(0)
>>> weft.load(file)
{'weight': tensor([1., 1.])}
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from weft.io import archive, atomic, loading, pickling
from weft.io.safetensors import load_safetensors, safetensors_metadata, save_safetensors
from weft.io.unpickle import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "add_safe_globals", "clear_safe_globals", "get_crc32_options", "get_safe_globals", "load",
    "load_safetensors", "safe_globals", "safetensors_metadata", "save", "save_safetensors",
    "set_crc32_options",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
_FORMAT_VERSION, _ARCHIVE_VERSION = b"1", b"3\n"
_with_crc = True


def get_crc32_options() -> bool:
    """Whether ``save`` writes checksums."""
    return _with_crc


def set_crc32_options(compute_crc32: bool) -> None:
    """Say whether ``save`` writes checksums, by which ``load`` notices damage."""
    global _with_crc
    _with_crc = bool(compute_crc32)


def save(
    obj: object,
    f: str | os.PathLike[str] | BinaryIO,
    pickle_module: Any = pickle,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Save an object to a file that both weft and PyTorch can load.

    A file given by its path is replaced as a whole: if saving fails, or the process is killed,
    the old file is still there.
    """
    if pickle_module is not pickle and not hasattr(pickle_module, "_Pickler"):
        raise ValueError("save works with Python's own pickle only; leave out pickle_module")
    memories = pickling.Memories()
    write: Callable[[Any, str], None]
    if _use_new_zipfile_serialization:
        data = pickling.dumps(obj, pickle_protocol, memories)
        order = None if _disable_byteorder_record else sys.byteorder.encode()
        write = lambda file, name: _write_archive(file, name, data, order, memories)
    else:
        data = pickling.dumps(obj, pickle_protocol, memories, legacy=True)
        write = lambda file, name: _write_legacy(file, data, pickle_protocol, memories)
    if isinstance(f, (str, os.PathLike)):
        name = os.path.splitext(os.path.basename(os.fspath(f)))[0]
        with atomic.replacing(f) as file:
            write(file, name or "archive")
    elif hasattr(f, "write"):
        write(f, "archive")
    else:
        raise AttributeError(
            f"expected 'f' to be string, path, or a file-like object with a 'write' attribute, "
            f"not {type(f).__name__}"
        )


def _write_archive(
    file: Any, name: str, data: bytes, order: bytes | None, memories: pickling.Memories
) -> None:
    writer = archive.Writer(file, name.replace("\\", "_").strip(".") or "archive", _with_crc)
    writer.add("data.pkl", data)
    writer.add(".format_version", _FORMAT_VERSION)
    writer.add(".storage_alignment", str(archive.ALIGNMENT).encode())
    if order is not None:
        writer.add("byteorder", order)
    for number, memory in enumerate(memories.bytes):
        writer.add(f"data/{number}", memory.data)
    writer.add("version", _ARCHIVE_VERSION)
    writer.close()


def _write_legacy(file: Any, data: bytes, protocol: int, memories: pickling.Memories) -> None:
    system = {
        "protocol_version": loading.PROTOCOL_VERSION,
        "little_endian": sys.byteorder == "little",
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    # The magic number is told by its bytes, so its pickle is always of the same protocol.
    file.write(pickle.dumps(loading.MAGIC, DEFAULT_PROTOCOL))
    file.write(pickle.dumps(loading.PROTOCOL_VERSION, protocol))
    file.write(pickle.dumps(system, protocol))
    file.write(data)
    file.write(pickle.dumps([str(n) for n in range(len(memories.bytes))], protocol))
    for memory, width in zip(memories.bytes, memories.widths(), strict=True):
        file.write((memory.size // width).to_bytes(8, "little"))
        file.write(memory.data)


def load(
    f: str | os.PathLike[str] | BinaryIO,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Load an object that ``save`` of weft or PyTorch has written.

    Only data is loaded: tensors, containers, numbers, text. No code from the file runs unless
    you ask for it with ``weights_only=False``, which is for files that you trust.
    """
    if weights_only is None:
        weights_only = pickle_module is None
    if weights_only:
        if pickle_module is not None:
            raise RuntimeError(
                "Can not safely load weights when explicit pickle_module is specified"
            )
        run: loading.Run = loading.run_safely
    else:
        run = loading.trusting(pickle_module or pickle, {"encoding": "utf-8", **pickle_load_args})
    with _opened(f) as file:
        if mmap and file is f:
            raise ValueError("f must be a file path in order to use the mmap argument")
        mapped = os.fspath(f) if mmap else None  # type: ignore[arg-type]
        return loading.read(archive.Source(file), map_location, run, mapped)


@contextlib.contextmanager
def _opened(f: Any) -> Iterator[BinaryIO]:
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            yield file
    elif all(hasattr(f, name) for name in ("read", "seek", "tell")):
        yield f
    else:
        raise AttributeError(
            "torch.load takes a path or a file object that has read, seek and tell, not "
            f"{type(f).__name__}. You can only torch.load from a file that is seekable: load the "
            "data into an io.BytesIO first"
        )
