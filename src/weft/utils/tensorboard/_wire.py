"""Protocol buffers on the wire: the few kinds of fields that event files have, both ways.

A message is bytes; a field is its number and kind, followed by its value. Fields of a message are
joined by adding their bytes. A field of the value zero is left out, as protocol buffers do, unless
it is one of several alternatives, where being there is what it says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_MOST_VARINT_BYTES = 10


def varint(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first; negative ones in 64 bits."""
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def integer(number: int, value: int, always: bool = False) -> bytes:
    """A field with an integer, a boolean or an enumerated value."""
    return varint(number << 3 | _VARINT) + varint(int(value)) if value or always else b""


def double(number: int, value: float, always: bool = False) -> bytes:
    """A field with a float64."""
    return varint(number << 3 | _EIGHT) + struct.pack("<d", value) if value or always else b""


def single(number: int, value: float, always: bool = False) -> bytes:
    """A field with a float32; what is too large for one is an infinity."""
    if not value and not always:
        return b""
    with np.errstate(over="ignore"):
        return varint(number << 3 | _FOUR) + np.float32(value).astype("<f4").tobytes()


def data(number: int, value: bytes | str, always: bool = False) -> bytes:
    """A field with bytes, text or another message."""
    content = value.encode("utf-8", "replace") if isinstance(value, str) else value
    if not content and not always:
        return b""
    return varint(number << 3 | _BYTES) + varint(len(content)) + content


def message(number: int, *fields: bytes) -> bytes:
    """A field with another message, made of these fields; it is there even if it is empty."""
    return data(number, b"".join(fields), always=True)


def array(number: int, values: Any, dtype: str) -> bytes:
    """A field with many numbers of one fixed size, such as ``<f8``."""
    with np.errstate(over="ignore"):
        return data(number, np.asarray(values).astype(dtype).tobytes())


def integers(number: int, values: Iterable[int]) -> bytes:
    """A field with many integers."""
    return data(number, b"".join(varint(int(v)) for v in values))


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers and values; bytes that are not a message raise."""
    at, end = 0, len(content)
    while at < end:
        key, at = _read_varint(content, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(content, at)
            yield number, value
            continue
        size, at = (8 if kind == _EIGHT else 4, at) if kind != _BYTES else _read_varint(content, at)
        if kind not in (_EIGHT, _FOUR, _BYTES) or at + size > end:
            raise ValueError("not a protocol buffer")
        part = content[at : at + size]
        at += size
        if kind == _BYTES:
            yield number, part
        else:
            yield number, struct.unpack("<d" if kind == _EIGHT else "<f", part)[0]


def signed(value: int) -> int:
    """A 64-bit integer as it was before it was written without a sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(_MOST_VARINT_BYTES):
        if at >= len(content):
            raise ValueError("not a protocol buffer")
        part = content[at]
        at += 1
        value |= (part & 127) << 7 * shift
        if part < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("not a protocol buffer")
