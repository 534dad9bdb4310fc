"""Pickles written by hand, instruction by instruction, and the archives around them."""

from __future__ import annotations

import io
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

TENSOR_V2 = ("torch._utils", "_rebuild_tensor_v2")
TENSOR_V3 = ("torch._utils", "_rebuild_tensor_v3")
PARAMETER = ("torch._utils", "_rebuild_parameter")
PARAMETER_WITH_STATE = ("torch._utils", "_rebuild_parameter_with_state")
TYPED = ("torch._tensor", "_rebuild_from_type_v2")
ORDERED = ("collections", "OrderedDict")


class Raw(bytes):
    """Instructions that push one value."""


def name(module: str, attribute: str) -> Raw:
    return Raw(f"c{module}\n{attribute}\n".encode())


def push(value: Any) -> bytes:
    """Instructions that push a value: data, a name as a pair in ``name``, or ``Raw`` ones."""
    if isinstance(value, Raw):
        return value
    if value is None or isinstance(value, bool):
        return {None: b"N", True: b"\x88", False: b"\x89"}[value]
    if isinstance(value, int):
        size = value.bit_length() // 8 + 1
        head = b"\x8a" + bytes([size]) if size < 256 else b"\x8b" + struct.pack("<i", size)
        return head + value.to_bytes(size, "little", signed=True)
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"B" + struct.pack("<I", len(value)) + value
    if isinstance(value, tuple):
        return b"(" + b"".join(map(push, value)) + b"t"
    if isinstance(value, list):
        return b"](" + b"".join(map(push, value)) + b"e"
    if isinstance(value, dict):
        return b"}(" + b"".join(push(k) + push(v) for k, v in value.items()) + b"u"
    if isinstance(value, set):
        return b"\x8f(" + b"".join(map(push, value)) + b"\x90"
    raise TypeError(f"no instructions for {value!r}")


def call(function: tuple[str, str], *arguments: Any) -> Raw:
    """Instructions that call a function by its name."""
    return Raw(name(*function) + push(arguments) + b"R")


def build(target: Any, state: Any) -> Raw:
    """Instructions that set the state of what was pushed."""
    return Raw(push(target) + push(state) + b"b")


def storage(count: int = 2, key: str = "0", kind: str = "FloatStorage", *more: Any) -> Raw:
    """Instructions that push a storage of the file."""
    module = "torch.storage" if kind == "UntypedStorage" else "torch"
    found = ("storage", name(module, kind), key, "cpu", count, *more)
    return Raw(push(found) + b"Q")


def tensor(
    shape: Any = (2,),
    stride: Any = (1,),
    offset: Any = 0,
    on: Raw | None = None,
    metadata: Any = None,
    requires_grad: Any = False,
) -> Raw:
    """Instructions that push a tensor."""
    where = storage() if on is None else on
    more = () if metadata is None else (metadata,)
    return call(TENSOR_V2, where, offset, shape, stride, requires_grad, call(ORDERED), *more)


def stop(value: Any) -> bytes:
    """A whole pickle of one value."""
    return b"\x80\x02" + push(value) + b"."


def archive_of(records: dict[str, bytes], folder: str = "archive", method: int = 0) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for label, content in records.items():
            # With a fixed date, so that the same records are the same bytes at any time.
            entry = zipfile.ZipInfo(f"{folder}/{label}")
            entry.compress_type = method
            archive.writestr(entry, content)
    return file.getvalue()


def file_of(value: Any, **storages: bytes) -> bytes:
    """A file with this value in it; ``s0=...`` are the bytes of storage 0."""
    data = {f"data/{label[1:]}": content for label, content in storages.items()}
    code = stop(value)
    return archive_of({"data.pkl": code, "byteorder": b"little", "version": b"3\n", **data})


HEADS = (
    b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
    stop(1001),
    stop({"protocol_version": 1001, "little_endian": True, "type_sizes": {}}),
)


def old_file_of(value: Any, **storages: tuple[int, bytes]) -> bytes:
    """The same in the older format; ``s0=(elements, bytes)``."""
    parts = [*HEADS, stop(value), stop([label[1:] for label in storages])]
    for count, content in storages.values():
        parts += [struct.pack("<q", count), content]
    return b"".join(parts)


class limited_memory:
    """At most this many bytes more than now; 1 GiB unless told."""

    def __init__(self, more: int = 1 << 30) -> None:
        self.more = more

    def __enter__(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_AS)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        size = pages * resource.getpagesize() + self.more
        resource.setrlimit(resource.RLIMIT_AS, (size, self.before[1]))

    def __exit__(self, *exc: object) -> None:
        resource.setrlimit(resource.RLIMIT_AS, self.before)
