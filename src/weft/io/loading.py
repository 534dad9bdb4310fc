"""From the bytes of a PyTorch file to objects: zip archives and the older plain format."""

from __future__ import annotations

import importlib
import inspect
import io
import mmap
import os
import pickle
import struct
import sys
import warnings
from collections.abc import Callable
from typing import Any, BinaryIO

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import meta
from weft.core.devices import DEVICES, DeviceArray, write_into
from weft.core.storage import TypedStorage, UntypedStorage, swap_bytes
from weft.io import rebuild
from weft.io.archive import RandomAccessFile, Reader, damaged, only_bools
from weft.io.unpickle import Machine

MAGIC, PROTOCOL_VERSION = 0x1950A86A20F9469CFC6C, 1001
_MAGIC_START = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
_VERSIONS = frozenset(str(n).encode() for n in range(1, 11))
_ALIGNED = 16  # the widest element; a mapping of records at other places would be slow or worse
Run = Callable[[bytes, Callable[[Any], Any], int], tuple[Any, int]]


class EmptyFileError(RuntimeError, EOFError):
    """There is nothing in the file."""


class SourceChangeWarning(Warning):
    """The class of a module is not the one that it was saved with."""


class Mapping:
    """A file in memory without having been read; changes go to it only if ``shared``."""

    def __init__(self, file: BinaryIO, path: Any, shared: bool) -> None:
        if not shared:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            return
        with open(path, "r+b") as again:
            if not os.path.samestat(os.fstat(again.fileno()), os.fstat(file.fileno())):
                raise RuntimeError(f"{path} was replaced while it was loaded")
            self.map = mmap.mmap(again.fileno(), 0, access=mmap.ACCESS_WRITE)

    def array(self, start: int, size: int) -> np.ndarray:
        """These bytes of the file."""
        if start + size > len(self.map):
            raise damaged("it became shorter while it was read")
        return np.frombuffer(self.map, np.uint8, size, start)


def read(
    source: RandomAccessFile, map_location: Any, run: Run, mapped: Mapping | None = None,
    order: str = sys.byteorder, with_data: bool = True,
) -> Any:  # fmt: skip
    """The object in a file; ``run`` is what executes pickles, ``order`` that of unmarked bytes."""
    if not source.size:
        raise EmptyFileError("the file is empty (Ran out of input)")
    start = source.read(0, min(source.size, len(_MAGIC_START)))
    try:
        if start[:4] == b"PK\3\4":
            return _read_archive(Reader(source), map_location, run, mapped, order, with_data)
        if start == _MAGIC_START:
            if mapped is not None:
                raise RuntimeError(
                    "mmap can only be used with files saved in the zip format, which torch.save "
                    "writes since version 1.6; load this one without mmap=True and save it again"
                )
            return _read_legacy(source, map_location, run)
    except struct.error as error:
        raise damaged(str(error)) from error
    if len(start) >= 4 and start[:2] == b"PK":
        raise damaged("it does not begin with a record")
    raise pickle.UnpicklingError(
        f"this is not a file that torch.save wrote: it begins with {start!r}, and neither with the "
        "mark of a zip archive nor with that of the older format"
    )


# ------------------------------------------------------------------ where storages go


def placer(map_location: Any) -> Callable[[UntypedStorage, str], UntypedStorage]:
    """A function that puts a storage where it belongs, or says that there is no such place."""
    if map_location is None:
        return lambda storage, location: _restore(storage, location)
    if isinstance(map_location, dict):
        return lambda storage, location: _restore(storage, map_location.get(location, location))
    if isinstance(map_location, (str, dev.device)):
        return lambda storage, location: _restore(storage, str(map_location))

    def by_function(storage: UntypedStorage, location: str) -> UntypedStorage:
        found = map_location(storage, location)
        return _restore(storage, location) if found is None else found.untyped()

    return by_function


def _restore(storage: UntypedStorage, location: Any) -> UntypedStorage:
    name = str(location)
    if name == "cpu" or name.startswith("cpu:"):
        return storage
    if name == "meta" or name.startswith("meta:"):
        held = storage._bytes()
        if held.__class__ is meta.MetaArray:
            return storage
        return UntypedStorage._unknown(meta.empty(held.shape, held.dtype))
    if name.partition(":")[0] in DEVICES:
        return storage.to(device=name)
    raise RuntimeError(
        f"Attempting to deserialize object on device {name!r}, but weft runs on the CPU "
        "(torch.cuda.is_available() is False). Please use torch.load with "
        "map_location=torch.device('cpu') to map your storages to the CPU."
    )


def _parse_id(found: Any, length: int) -> tuple[dt.dtype | None, str, str, int]:
    """What a persistent id says: dtype (None for bytes), key, location and number of bytes."""
    if not (isinstance(found, tuple) and len(found) == length and _is_text(found[0], "storage")):
        raise damaged(f"it refers to what is not a storage: {rebuild.shown(found)}")
    kind, key, location, count = found[1], _text(found[2]), _text(found[3]), found[4]
    if not isinstance(key, str) or not isinstance(location, str):
        raise damaged(f"a storage has {rebuild.shown(key)} as its key")
    dtype = rebuild.storage_dtype(kind)
    (count,) = rebuild.integers((count,), "storage size")
    return dtype, key, location, count * (1 if dtype is None else dtype.itemsize)


def _typed(storage: UntypedStorage, dtype: dt.dtype | None) -> Any:
    return storage if dtype is None else TypedStorage(wrap_storage=storage, dtype=dtype)


def _swap(memory: np.ndarray, dtype: dt.dtype | None) -> None:
    if dtype is None:
        raise RuntimeError("bytes of unknown dtype from a machine of the opposite byte order")
    if memory.size % dtype.itemsize:
        raise damaged(f"a storage of {memory.size} bytes can't hold elements of {dtype}")
    swap_bytes(memory, dtype)


# ------------------------------------------------------------------ zip archives


def _read_archive(
    reader: Reader, map_location: Any, run: Run, mapped: Mapping | None, unmarked: str,
    with_data: bool,
) -> Any:  # fmt: skip
    version = reader.read("version") if "version" in reader else b"3"
    if version.strip() not in _VERSIONS:
        raise damaged(f"its version is {version!r:.50}")
    if "constants.pkl" in reader:
        raise RuntimeError("this is a TorchScript archive (torch.jit.save), which weft can't run")
    order = reader.read("byteorder") if "byteorder" in reader else unmarked.encode()
    if order not in (b"little", b"big"):
        raise damaged(f"its byte order is {order!r:.50}")
    place = placer(map_location)
    held: dict[str, tuple[UntypedStorage, dt.dtype | None]] = {}
    to_meta = isinstance(map_location, (str, dev.device)) and str(map_location)[:4] == "meta"

    def memory_of(key: str, size: int) -> np.ndarray:
        start, entry = reader.find(f"data/{key}")
        if entry.size != size:
            raise damaged(f"storage {key} has {entry.size} bytes instead of {size}")
        if to_meta:
            return meta.empty((size,), np.dtype(np.uint8))
        if not with_data:
            return np.zeros(size, np.uint8)
        if mapped is not None and size and start % _ALIGNED == 0:
            return mapped.array(start, size)
        return reader.array(f"data/{key}")

    def persistent_load(found: Any) -> Any:
        dtype, key, location, size = _parse_id(found, 5)
        if key not in held:
            memory = memory_of(key, size)
            if not to_meta:
                if order.decode() != sys.byteorder:
                    _swap(memory, dtype)
                only_bools(memory, dtype)
            storage = place(UntypedStorage._unknown(memory), location)
            storage._pending = None
            held[key] = (storage, dtype)
        storage, first = held[key]
        if first is not dtype or storage.size() < size:
            raise damaged(f"storage {key} has two types or sizes")
        return _typed(storage, dtype)

    data = reader.read("data.pkl")
    found, end = run(data, persistent_load, 0)
    if end != len(data):
        raise damaged("there are trailing bytes after its pickle")
    return found


# ------------------------------------------------------------------ the older format


def _read_legacy(source: RandomAccessFile, map_location: Any, run: Run) -> Any:
    data = source.read(0, source.size)
    place = placer(map_location)
    held: dict[str, tuple[UntypedStorage, dt.dtype | None]] = {}
    views: dict[str, UntypedStorage] = {}
    left = len(data)

    def persistent_load(found: Any) -> Any:
        nonlocal left
        if isinstance(found, tuple) and len(found) > 1 and _is_text(found[0], "module"):
            _compare_source(*found[1:])
            return found[1]
        dtype, key, location, size = _parse_id(found, 6)
        if key not in held:
            left -= size
            if left < 0:
                raise damaged(f"storage {key} has {size} bytes, more than the file")
            # The bytes come after the pickle, into what map_location makes of the storage.
            storage = place(UntypedStorage._unknown(np.empty(size, np.uint8)), location)
            if storage.size() != size:
                raise RuntimeError(f"map_location made {storage.size()} bytes of {size}")
            storage._pending = None
            held[key] = (storage, dtype)
        storage, first = held[key]
        if first is not dtype:
            raise damaged(f"storage {key} has two types")
        if found[5] is None:
            return _typed(storage, dtype)
        if not isinstance(found[5], (tuple, list)) or len(found[5]) != 3:
            raise damaged(f"a view of a storage is {rebuild.shown(found[5])}")
        view_key, offset, count = _text(found[5][0]), found[5][1], found[5][2]
        start, length = rebuild.integers((offset, count), "view of a storage")
        width = 1 if dtype is None else dtype.itemsize
        if type(view_key) is not str:
            raise damaged("a view of a storage has no key")
        if view_key not in views:
            views[view_key] = storage[start * width : (start + length) * width]
        return _typed(views[view_key], dtype)

    at = 0
    heads = []
    for _ in range(3):
        head, at = run(data, _nothing_outside, at)
        heads.append(head)
    magic, version, system = heads
    if magic != MAGIC or version != PROTOCOL_VERSION or not isinstance(system, dict):
        raise damaged(
            "its magic number or protocol version is wrong "
            f"({rebuild.shown(magic)}, {rebuild.shown(version)})"
        )
    if system.get("little_endian", True) is not (sys.byteorder == "little"):
        raise RuntimeError(
            "the file is in the older format, from a machine of the opposite byte order"
        )
    found, at = run(data, persistent_load, at)
    keys, at = run(data, _nothing_outside, at)
    keys = list(map(_text, keys)) if isinstance(keys, list) else keys
    texts = isinstance(keys, list) and all(type(k) is str for k in keys)
    if not texts or set(keys) != set(held) or len(keys) != len(held):
        raise damaged("its list of storages is not that of its tensors")
    for key in keys:
        storage, dtype = held[key]
        memory = storage._bytes()
        if isinstance(memory, DeviceArray):
            values = np.empty(memory.shape, np.uint8)
            at = _fill(data, at, key, values, dtype)
            write_into(memory, values)
        else:
            at = _fill(data, at, key, memory, dtype)
        if storage._pending is not None:
            storage._pending.fill()
    source.file.seek(source.base + at)  # other things may follow
    return found


def _compare_source(kind: Any, file: Any = None, source: Any = None, *more: Any) -> None:
    """Warn if the class of a module has been changed since it was saved."""
    if not isinstance(kind, type) or type(source) is not str or not source:
        return
    if kind.__module__.partition(".")[0] == "weft":
        return  # a file of PyTorch's has the source of another class of that name
    try:
        now = inspect.getsource(kind)
    except (OSError, TypeError):
        return
    if now != source:
        warnings.warn(
            f"source code of class '{kind.__module__}.{kind.__qualname__}' has changed since the "
            "file was saved; loading takes the class as it is now",
            SourceChangeWarning,
            stacklevel=2,
        )


def _text(value: Any) -> Any:
    """What PyTorch itself writes is text, also where strings of Python 2 are loaded as bytes."""
    return value.decode("ascii", "replace") if type(value) is bytes else value


def _is_text(value: Any, text: str) -> bool:
    return type(value) in (str, bytes) and _text(value) == text


def _nothing_outside(found: Any) -> Any:
    raise damaged("there is a reference to a storage where none is allowed")


def _fill(data: bytes, at: int, key: str, memory: np.ndarray, dtype: dt.dtype | None) -> int:
    """Fill a storage from the bytes behind the pickles; where those of the next begin."""
    if at + 8 > len(data):
        raise damaged("it is cut off before its storages")
    (count,) = struct.unpack_from("<q", data, at)
    at += 8
    end = at + memory.size
    if count * (1 if dtype is None else dtype.itemsize) != memory.size or end > len(data):
        raise damaged(f"storage {key} is cut off")
    memory[...] = np.frombuffer(data, np.uint8, memory.size, at)
    only_bools(memory, dtype)
    return end


# ------------------------------------------------------------------ who runs the pickles


def safely(encoding: str = "utf-8") -> Run:
    """What runs a pickle that can make data only."""
    return lambda data, persistent_load, at: Machine(data, persistent_load, at, encoding).run()


def trusting(pickle_module: Any, options: dict[str, Any]) -> Run:
    """What runs a pickle with all that is in it, by the user's explicit wish."""

    class Trusting(pickle_module.Unpickler):  # type: ignore[misc]
        def find_class(self, module: str, name: str) -> Any:
            return _find_any(module, name, super().find_class)

    def run(data: bytes, persistent_load: Callable[[Any], Any], at: int) -> tuple[Any, int]:
        stream = io.BytesIO(data)
        stream.seek(at)
        machine = Trusting(stream, **options)
        machine.persistent_load = persistent_load
        return machine.load(), stream.tell()

    return run


def _find_any(module: str, name: str, otherwise: Callable[[str, str], Any]) -> Any:
    """PyTorch's names stand for weft's own things, all others for themselves."""
    full = f"{module}.{name}"
    if full in rebuild.NAMES:
        return rebuild.NAMES[full]
    if module != "torch" and not module.startswith("torch."):
        return otherwise(module, name)
    own = f"weft{module[5:]}"
    for place in (own, own.rpartition(".")[0], "weft.nn", "weft.nn.functional"):
        try:
            found = importlib.import_module(place) if place else None
            for part in name.split("."):
                found = getattr(found, part)
            return found
        except (ImportError, AttributeError):
            continue
    raise pickle.UnpicklingError(f"the file asks for {full}, which weft does not have")
