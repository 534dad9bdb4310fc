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
import enum
import mmap as mmap_module
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np

from weft.core import device as dev
from weft.io import archive, atomic, loading, pickling, unpickle
from weft.io.loading import SourceChangeWarning
from weft.io.safetensors import (
    SafetensorError,
    load_safetensors,
    safetensors_metadata,
    save_safetensors,
)
from weft.io.unpickle import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)

__all__ = [
    "LoadEndianness", "SafetensorError", "SourceChangeWarning", "add_safe_globals",
    "clear_safe_globals", "get_crc32_options", "get_default_load_endianness",
    "get_default_mmap_options", "get_safe_globals", "get_unsafe_globals_in_checkpoint", "load",
    "load_safetensors", "safe_globals", "safetensors_metadata", "save", "save_safetensors",
    "set_crc32_options", "set_default_load_endianness", "set_default_mmap_options", "skip_data",
]  # fmt: skip

DEFAULT_PROTOCOL = 2
_FORMAT_VERSION, _ARCHIVE_VERSION = b"1", b"3\n"
_TRUE = ("1", "y", "yes", "true")
_PRIVATE, _SHARED = (
    getattr(mmap_module, "MAP_PRIVATE", None),
    getattr(mmap_module, "MAP_SHARED", None),
)
_with_crc = True
_mmap_flags = _PRIVATE


class LoadEndianness(enum.Enum):
    """The byte order of files that do not say which they have."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_load_order: LoadEndianness | None = None


def get_default_load_endianness() -> LoadEndianness | None:
    """The byte order that files without a mark are read in; None means this machine's."""
    return _load_order


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say in which byte order files without a mark are read."""
    global _load_order
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError(
            "Invalid argument type in function set_default_load_endianness: expected a "
            f"LoadEndianness, got {type(endianness).__name__}"
        )
    _load_order = endianness


class _Skipping(threading.local):
    data = False


_skipping = _Skipping()


class skip_data:
    """Within a ``with`` block ``save`` and ``load`` leave out the values of tensors.

    The file is as long as usual, with zeros for the values; what is loaded has zeros as well.

    >>> import io, weft
    >>> file = io.BytesIO()
    >>> with weft.serialization.skip_data():
    ...     weft.save(weft.ones(2), file)
    >>> _ = file.seek(0)
    >>> weft.load(file)
    tensor([0., 0.])
    """

    def __init__(self, materialize_fake_tensors: bool = False) -> None:
        self.materialize_fake_tensors = materialize_fake_tensors

    def __enter__(self) -> None:
        self.before, _skipping.data = _skipping.data, True

    def __exit__(self, *exc: object) -> None:
        _skipping.data = self.before


def get_unsafe_globals_in_checkpoint(f: str | os.PathLike[str] | BinaryIO) -> list[str]:
    """The classes and functions that a file names and ``load`` would refuse; runs none of them."""
    with _opened(f) as file:
        if not _is_zipfile(file):
            raise ValueError("Expected input to be a checkpoint returned by torch.save")
        data = archive.Reader(archive.RandomAccessFile(file)).read("data.pkl")
    return sorted(name for name in unpickle.named_globals(data) if not unpickle.is_known(name))


def _is_zipfile(file: BinaryIO) -> bool:
    start = file.tell()
    found = file.read(4)
    file.seek(start)
    return found == b"PK\3\4"


class set_default_mmap_options:
    """Say how ``load`` with ``mmap=True`` maps a file, from now on or within a ``with`` block.

    With ``mmap.MAP_PRIVATE``, the default, changes stay in memory; with ``mmap.MAP_SHARED`` they
    go to the file.
    """

    def __init__(self, flags: int) -> None:
        global _mmap_flags
        if _SHARED is None:
            raise RuntimeError(
                "Changing the default mmap options is currently not supported for Windows"
            )
        if flags not in (_PRIVATE, _SHARED):
            raise ValueError(
                "Invalid argument in function set_default_mmap_options, expected mmap.MAP_PRIVATE "
                f"or mmap.MAP_SHARED, but got {flags}"
            )
        self.before, _mmap_flags = _mmap_flags, flags

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        global _mmap_flags
        _mmap_flags = self.before


def get_default_mmap_options() -> int | None:
    """How ``load`` with ``mmap=True`` maps a file."""
    return _mmap_flags


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

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.pt")
    >>> torch.save({"epoch": 3, "weight": torch.zeros(2)}, path)
    >>> torch.load(path)["epoch"]
    3
    """
    if pickle_module is not pickle and not hasattr(pickle_module, "_Pickler"):
        raise ValueError("save works with Python's own pickle only; leave out pickle_module")
    if _skipping.data and not _use_new_zipfile_serialization:
        raise RuntimeError("Cannot use skip_data=True with _use_new_zipfile_serialization=False")
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
        atomic.flush(f)
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
        values = np.zeros_like(memory) if _skipping.data else memory
        writer.add(f"data/{number}", values.data)
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

    >>> import io
    >>> file = io.BytesIO()
    >>> torch.save({"weight": torch.ones(2)}, file)
    >>> _ = file.seek(0)
    >>> torch.load(file)
    {'weight': tensor([1., 1.])}
    """
    if isinstance(f, (str, os.PathLike)) and os.fsdecode(f).endswith(".safetensors"):
        if map_location is not None and not isinstance(map_location, (str, dev.device)):
            raise RuntimeError(
                "Loading safetensors file with a dict or callable map_location is not supported. "
                "Use a device string or torch.device instead."
            )
        return load_safetensors(f, "cpu" if map_location is None else map_location)
    weights_only = _weights_only(weights_only, pickle_module)
    if weights_only:
        if pickle_module is not None:
            raise RuntimeError(
                "Can not safely load weights when explicit pickle_module is specified"
            )
        run = loading.safely(pickle_load_args.get("encoding", "utf-8"))
    else:
        run = loading.trusting(pickle_module or pickle, {"encoding": "utf-8", **pickle_load_args})
    with _opened(f) as file:
        if mmap and file is f:
            raise ValueError("f must be a file path in order to use the mmap argument")
        mapped = None
        if mmap and os.fstat(file.fileno()).st_size:
            mapped = loading.Mapping(file, f, shared=_mmap_flags == _SHARED)
        order = "big" if _load_order is LoadEndianness.BIG else (
            "little" if _load_order is LoadEndianness.LITTLE else sys.byteorder
        )  # fmt: skip
        return loading.read(
            archive.RandomAccessFile(file), map_location, run, mapped, order, not _skipping.data
        )


def _weights_only(asked: bool | None, pickle_module: Any) -> bool:
    """Whether only data is loaded: as asked, or else by the environment, or else yes."""
    safe, unsafe = (
        os.environ.get(f"TORCH_FORCE_{name}WEIGHTS_ONLY_LOAD", "0").lower() in _TRUE
        for name in ("", "NO_")
    )
    if safe and unsafe:
        raise RuntimeError(
            "Only one of `TORCH_FORCE_WEIGHTS_ONLY_LOAD` or `TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD` "
            "should be set, but both were set."
        )
    if safe:
        return True
    if asked is None and unsafe:
        warnings.warn(
            "Environment variable TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD detected, since the "
            "`weights_only` argument was not explicitly passed to `torch.load`, forcing "
            "weights_only=False.",
            UserWarning,
            stacklevel=3,
        )
        return False
    return pickle_module is None if asked is None else bool(asked)


@contextlib.contextmanager
def _open_file_like(name_or_buffer: Any, mode: str) -> Iterator[Any]:
    if isinstance(name_or_buffer, (str, os.PathLike)):
        with open(name_or_buffer, mode) as file:
            yield file
        return
    if "w" not in mode and "r" not in mode:
        raise RuntimeError(f"Expected 'r' or 'w' in mode but got {mode}")
    yield name_or_buffer
    if "w" in mode:
        atomic.flush(name_or_buffer)


class _Records:
    """The records of an archive, as PyTorch's own reader shows them."""

    def __init__(self, file: BinaryIO) -> None:
        self.reader = archive.Reader(archive.RandomAccessFile(file))

    def has_record(self, name: str) -> bool:
        return name in self.reader

    def get_record(self, name: str) -> bytes:
        return self.reader.read(name)

    def get_all_records(self) -> list[str]:
        return list(self.reader.entries)

    def get_record_offset(self, name: str) -> int:
        return self.reader.find(name)[0]


@contextlib.contextmanager
def _open_zipfile_reader(name_or_buffer: Any) -> Iterator[_Records]:
    with _open_file_like(name_or_buffer, "rb") as file:
        yield _Records(file)


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
