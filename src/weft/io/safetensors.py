"""The safetensors format: a length, a JSON header, and the bytes of the tensors."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.devices import host
from weft.core.tensor import Tensor, wrap
from weft.io import atomic
from weft.io.archive import RandomAccessFile, only_bools

_LARGEST_HEADER = 100_000_000
_NAMES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}  # fmt: skip
_TYPES = {code: dt.BY_NAME[name] for name, code in _NAMES.items()}
_METADATA = "__metadata__"


class SafetensorError(RuntimeError):
    """The file does not follow the safetensors format."""


def save_safetensors(
    tensors: Mapping[str, Tensor],
    f: str | os.PathLike[str] | BinaryIO,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Save tensors by name in the safetensors format; a file is replaced as a whole."""
    arrays = _arrays(tensors)
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(v, str) for pair in metadata.items() for v in pair):
            raise TypeError("metadata of safetensors is from str to str")
        header[_METADATA] = dict(metadata)
    at = 0
    for name, array in arrays:
        header[name] = {
            "dtype": _NAMES[dt.OF_NUMPY[array.dtype].name],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if isinstance(f, (str, os.PathLike)):
        with atomic.replacing(f) as file:
            _write(file, text, arrays)
    else:
        _write(f, text, arrays)
        atomic.flush(f)


def _arrays(tensors: Mapping[str, Tensor]) -> list[tuple[str, np.ndarray]]:
    found = []
    seen: dict[int, str] = {}
    for name, tensor in tensors.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise ValueError(f"safetensors holds tensors by name, not {name!r}: {type(tensor)}")
        if name == _METADATA or tensor.dtype.name not in _NAMES:
            raise ValueError(f"safetensors can't hold {name!r} of dtype {tensor.dtype}")
        first = seen.setdefault(tensor.data_ptr(), name) if tensor.numel() else name
        if first != name:
            raise RuntimeError(
                f"{first!r} and {name!r} share memory, which safetensors can't express: leave one "
                "out or clone() it"
            )
        found.append((name, np.ascontiguousarray(host(tensor)).reshape(tensor._a.shape)))
    # The widest types first keeps every tensor aligned without gaps.
    return sorted(found, key=lambda pair: (-pair[1].itemsize, pair[0]))


def _write(file: Any, text: bytes, arrays: list[tuple[str, np.ndarray]]) -> None:
    file.write(len(text).to_bytes(8, "little"))
    file.write(text)
    for _, array in arrays:
        file.write(array.reshape(-1).view(np.uint8).data)


def load_safetensors(
    f: str | os.PathLike[str] | BinaryIO, device: Any = "cpu"
) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    dev.present(device)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return load_safetensors(file, device)
    source = RandomAccessFile(f)
    header, start = _read_header(source)
    header.pop(_METADATA, None)
    found = {}
    for name, (kind, shape, begin, end) in _checked(header, source.size - start).items():
        memory = source.array(start + begin, end - begin)
        only_bools(memory, kind)
        found[name] = wrap(_shaped(memory, shape, kind, name))
    return found


def _shaped(memory: np.ndarray, shape: list[int], kind: dt.dtype, name: str) -> np.ndarray:
    try:
        return np.ndarray(shape, kind.np, memory)
    except (ValueError, OverflowError):  # no elements, but one of the lengths is too large
        raise SafetensorError(
            f"{name!r:.80} has shape {shape!r:.80}, which is too large for a tensor"
        ) from None


def safetensors_metadata(f: str | os.PathLike[str] | BinaryIO) -> dict[str, str]:
    """The metadata of a safetensors file."""
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return safetensors_metadata(file)
    return _read_header(RandomAccessFile(f))[0].get(_METADATA, {})


def _read_header(source: RandomAccessFile) -> tuple[dict[str, Any], int]:
    if source.size < 8:
        raise SafetensorError("not a safetensors file: it has no header")
    length = int.from_bytes(source.read(0, 8), "little")
    if length > _LARGEST_HEADER or 8 + length > source.size:
        raise SafetensorError(
            f"not a safetensors file, or cut off: it states a header of {length} bytes, and "
            f"{source.size - 8} bytes follow"
        )
    text = source.read(8, length)
    if text[:1] != b"{":
        raise SafetensorError("not a safetensors file: the header is not a JSON object")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        raise SafetensorError(f"the safetensors header is damaged: {error}") from None
    notes = header.get(_METADATA, {})
    if not isinstance(notes, dict) or not all(isinstance(v, str) for v in notes.values()):
        raise SafetensorError("the safetensors metadata is not from str to str")
    return header, 8 + length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _checked(header: dict[str, Any], size: int) -> dict[str, tuple[dt.dtype, list[int], int, int]]:
    """The tensors of a header, if their places fill the file exactly."""
    found = {}
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise SafetensorError(f"the safetensors entry of {name!r} is damaged")
        kind, shape, place = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(kind, str) or kind not in _TYPES:
            raise SafetensorError(f"{name!r} has the unknown dtype {kind!r}")
        if not _whole(shape) or len(shape) > 64 or not _whole(place) or len(place) != 2:
            raise SafetensorError(f"{name!r} has shape {shape!r:.80} and place {place!r:.80}")
        begin, end = place
        dtype = _TYPES[kind]
        if begin > end or math.prod(shape) * dtype.itemsize != end - begin:
            raise SafetensorError(
                f"{name!r:.80} of shape {shape!r:.80} has {end - begin!r:.80} bytes"
            )
        found[name] = (dtype, shape, begin, end)
    at = 0
    for begin, end in sorted((begin, end) for _, _, begin, end in found.values()):
        if begin != at:
            raise SafetensorError("the tensors of the safetensors file overlap or leave gaps")
        at = end
    if at != size:
        raise SafetensorError(f"the safetensors file has {size} bytes of data instead of {at}")
    return found


def _whole(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and v >= 0 for v in values)
