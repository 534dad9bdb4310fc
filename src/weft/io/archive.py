"""The zip archives of ``.pt`` files: nothing compressed, every record at a multiple of 64 bytes.

The reader trusts no number in the file: each size and place is checked against the real length of
the file before anything is read or allocated.
"""

from __future__ import annotations

import struct
import zlib
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from weft.core import dtype as dt

ALIGNMENT = 64
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR64 = struct.Struct("<4sLQL")
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF
_UTF8, _ENCRYPTED = 0x800, 0x1
_ZIP64_VERSION = 45
_SMALL = 4096
_DOS_DATE = 0x21  # the first day that the format can name


class Writer:
    """Writes an archive from its first byte to its last, without seeking."""

    def __init__(self, file: Any, folder: str, with_crc: bool = True) -> None:
        self.file, self.folder, self.with_crc = file, folder, with_crc
        self.at = 0
        self.directory: list[tuple[bytes, int, int, int]] = []

    def _write(self, data: Any) -> None:
        self.file.write(data)
        self.at += len(data)

    def add(self, name: str, data: bytes | memoryview) -> None:
        """Write one record."""
        label = f"{self.folder}/{name}".encode()
        size, crc = len(data), zlib.crc32(data) if self.with_crc else 0
        extra = struct.pack("<2H2Q", 1, 16, size, size) if size >= _FULL32 else b""
        head = self.at + _LOCAL.size + len(label) + len(extra) + 4
        padding = -head % ALIGNMENT
        extra += struct.pack("<2s", b"FB") + struct.pack("<H", padding) + b"Z" * padding
        shown = min(size, _FULL32)
        version = _ZIP64_VERSION if size >= _FULL32 else 0
        self.directory.append((label, self.at, size, crc))
        self._write(
            _LOCAL.pack(
                b"PK\3\4", version, _UTF8, 0, 0, _DOS_DATE, crc, shown, shown, len(label),
                len(extra),
            ) + label + extra
        )  # fmt: skip
        self._write(data)

    def close(self) -> None:
        """Write the directory; the archive is whole after that."""
        start = self.at
        for label, place, size, crc in self.directory:
            large = [n for n in (size, size, place) if n >= _FULL32]
            extra = struct.pack(f"<2H{len(large)}Q", 1, 8 * len(large), *large) if large else b""
            version = _ZIP64_VERSION if large else 0
            shown = min(size, _FULL32)
            self._write(
                _CENTRAL.pack(
                    b"PK\1\2", version, version, _UTF8, 0, 0, _DOS_DATE, crc, shown, shown,
                    len(label), len(extra), 0, 0, 0, 0, min(place, _FULL32),
                ) + label + extra
            )  # fmt: skip
        length, count = self.at - start, len(self.directory)
        if count >= _FULL16 or start >= _FULL32 or length >= _FULL32:
            end = self.at
            self._write(
                _END64.pack(b"PK\6\6", _END64.size - 12, 45, 45, 0, 0, count, count, length, start)
            )
            self._write(_LOCATOR64.pack(b"PK\6\7", 0, end, 1))
        few = min(count, _FULL16)
        self._write(
            _END.pack(
                b"PK\5\6", 0, 0, few, few, min(length, _FULL32), min(start, _FULL32), 0
            )
        )  # fmt: skip


class RandomAccessFile:
    """Random access to a file or file object, from where it stands to its end."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.base = file.tell()
        file.seek(0, 2)
        self.size = file.tell() - self.base

    def read(self, at: int, size: int) -> bytes:
        """Exactly these bytes; short files are refused before memory is taken."""
        if at < 0 or size < 0 or at + size > self.size:
            raise damaged(f"it ends at byte {self.size}, before byte {at + size} that it refers to")
        self.file.seek(self.base + at)
        data = self.file.read(size)
        if len(data) != size:
            raise damaged("it became shorter while it was read")
        return data

    def array(self, at: int, size: int) -> np.ndarray:
        """These bytes in memory of their own."""
        if at < 0 or size < 0 or at + size > self.size:
            raise damaged(f"it ends at byte {self.size}, before byte {at + size} that it refers to")
        memory = np.empty(size, np.uint8)
        into = getattr(self.file, "readinto", None)
        if into is None:
            memory[...] = np.frombuffer(self.read(at, size), np.uint8)
            return memory
        self.file.seek(self.base + at)
        view, done = memory.data, 0
        while done < size:
            count = into(view[done:])
            if not count:
                raise damaged("it became shorter while it was read")
            done += count
        return memory


def only_bools(memory: np.ndarray, dtype: dt.dtype | None) -> None:
    """Make true bools of all bytes: code that takes them for 0 or 1 would count wrongly."""
    if dtype is dt.bool_ and memory.max(initial=0) > 1:
        np.minimum(memory, 1, out=memory)


def damaged(why: str) -> RuntimeError:
    """The error for a file that can't be what it claims to be."""
    return RuntimeError(
        f"this file is damaged or not a PyTorch file: {why}. There is a high likelihood that your "
        "checkpoint file is corrupted: it was not saved to its end, not transferred whole, or "
        "changed afterwards"
    )


class RecordEntry(NamedTuple):
    """What the directory says of a record, and where the next one begins."""

    label: bytes
    place: int
    size: int
    crc: int
    limit: int


class Reader:
    """The records of an archive, by name."""

    def __init__(self, source: RandomAccessFile) -> None:
        self.source = source
        start, length, count = self._find_directory()
        self.entries = self._parse(source.read(start, length), count, start)
        # PyTorch can omit checksums; it writes zeros then.
        self.with_crc = any(e.crc for e in self.entries.values())
        for name in self.entries:
            if name.startswith("data/"):
                self.find(name)
            elif name != "data.pkl":
                self.read(
                    name
                )  # small ones that describe the file, which are not checked elsewhere

    def _find_directory(self) -> tuple[int, int, int]:
        source = self.source
        tail = min(source.size, _END.size + _FULL16)
        data = source.read(source.size - tail, tail)
        found = data.rfind(b"PK\5\6")
        if found < 0 or len(data) - found < _END.size:
            raise damaged("failed finding central directory; the file may be cut off at its end")
        end = source.size - tail + found
        _, disk, first, here, count, length, start, comment = _END.unpack_from(data, found)
        if found + _END.size + comment != len(data):
            raise damaged("there are trailing bytes after its end")
        if end >= _LOCATOR64.size:
            locator = source.read(end - _LOCATOR64.size, _LOCATOR64.size)
            if locator[:4] == b"PK\6\7":
                place = _LOCATOR64.unpack(locator)[2]
                record = _END64.unpack(source.read(place, _END64.size))
                if record[0] != b"PK\6\6":
                    raise damaged("its 64-bit end record is not where it should be")
                _, _, _, _, disk, first, here, count, length, start = record
                end = place
        if disk or first or here != count:
            raise damaged("it is one part of an archive in several parts")
        if start + length != end:
            raise damaged("its directory does not end where its end record begins")
        if count * _CENTRAL.size > length:
            raise damaged(f"a directory of {length} bytes can't hold {count} records")
        return start, length, count

    def _parse(self, data: bytes, count: int, end: int) -> dict[str, RecordEntry]:
        found: list[tuple[int, int, int, bytes]] = []
        at = 0
        for _ in range(count):
            if at + _CENTRAL.size > len(data):
                raise damaged("its directory is cut off")
            head = _CENTRAL.unpack_from(data, at)
            signature, _, _, flags, method, _, _, crc, packed, size, n_label, n_extra, n_note = (
                head[:13]
            )
            place = head[16]
            at += _CENTRAL.size
            label, extra = data[at : at + n_label], data[at + n_label : at + n_label + n_extra]
            at += n_label + n_extra + n_note
            if signature != b"PK\1\2" or at > len(data):
                raise damaged("its central directory is malformed")
            size, packed, place = _large_sizes(extra, size, packed, place)
            if flags & _ENCRYPTED:
                raise damaged(f"record {label!r} is encrypted")
            if method or packed != size:
                raise damaged(
                    f"record {label!r} is compressed, which PyTorch never does; unpack the archive "
                    "and pack it again without compression if you trust it"
                )
            found.append((place, size, crc, label))
        if at != len(data):
            raise damaged("its directory has bytes that belong to no record")
        found.sort()
        limits = [place for place, _, _, _ in found[1:]] + [end]
        return _by_name(
            [
                RecordEntry(label, place, size, crc, limit)
                for (place, size, crc, label), limit in zip(found, limits, strict=True)
            ]
        )

    def __contains__(self, name: str) -> bool:
        return name in self.entries

    def find(self, name: str) -> tuple[int, RecordEntry]:
        """Where the bytes of a record begin, and what is known of it."""
        entry = self.entries.get(name)
        if entry is None:
            raise damaged(f"record {name!r} is missing")
        head = _LOCAL.unpack(self.source.read(entry.place, _LOCAL.size))
        n_label, n_extra = head[9:]
        label = self.source.read(entry.place + _LOCAL.size, n_label)
        if head[0] != b"PK\3\4" or head[3] or label != entry.label:
            raise damaged(f"record {name!r} is not where the directory says")
        start = entry.place + _LOCAL.size + n_label + n_extra
        if start + entry.size > entry.limit:
            raise damaged(f"record {name!r} overlaps the next record")
        return start, entry

    def read(self, name: str) -> bytes:
        """The bytes of a record."""
        start, entry = self.find(name)
        data = self.source.read(start, entry.size)
        self._check(name, data, entry)
        return data

    def array(self, name: str) -> np.ndarray:
        """The bytes of a record in memory of their own, as an array."""
        start, entry = self.find(name)
        memory = self.source.array(start, entry.size)
        self._check(name, memory, entry)
        return memory

    def _check(self, name: str, data: Any, entry: RecordEntry) -> None:
        if self.with_crc and zlib.crc32(data) != entry.crc:
            raise damaged(f"the checksum (CRC-32) of record {name!r} is wrong")


def _large_sizes(extra: bytes, size: int, packed: int, place: int) -> tuple[int, int, int]:
    """The three numbers with those that need 64 bits taken from the extra field."""
    values = [size, packed, place]
    if _FULL32 not in values:
        return size, packed, place
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 1:
            wide = iter(struct.unpack_from(f"<{length // 8}Q", extra, at))
            values = [next(wide, v) if v == _FULL32 else v for v in values]
            break
        at += length
    return values[0], values[1], values[2]


def _by_name(entries: list[RecordEntry]) -> dict[str, RecordEntry]:
    """Records by name within the one folder that all of them are in."""
    named: dict[str, RecordEntry] = {}
    folders: set[str] = set()
    for entry in entries:
        if entry.place + _LOCAL.size + len(entry.label) + entry.size > entry.limit:
            raise damaged(f"record {entry.label!r} overlaps another")
        try:
            label = entry.label.decode()
        except UnicodeDecodeError:
            raise damaged(f"{entry.label!r} is not a name in UTF-8") from None
        folder, slash, name = label.partition("/")
        parts = label.split("/")
        if not slash or ".." in parts or "" in parts or "\\" in label or "\0" in label:
            raise damaged(f"{label!r} is not a name that a record may have")
        folders.add(folder)
        if name in named:
            raise damaged(f"record {name!r} is there twice")
        named[name] = entry
    if len(folders) != 1:
        raise damaged(f"its records are in {len(folders)} folders instead of one")
    return named
