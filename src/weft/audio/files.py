"""WAV files: integers of 8, 16, 24 and 32 bits, and floats of 32 and 64."""

from __future__ import annotations

import dataclasses
import os
import struct
from typing import Any, BinaryIO

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.io import atomic

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
# How samples are stored, by format and bits; those of 24 bits have no dtype.
_STORED = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_ENCODINGS = {"PCM_S": _PCM, "PCM_U": _PCM, "PCM_F": _FLOAT}


class WavError(RuntimeError):
    """The file is not a WAV file that can be read."""


@dataclasses.dataclass
class AudioMetaData:
    """What a file holds."""

    sample_rate: int
    num_frames: int
    num_channels: int
    bits_per_sample: int
    encoding: str


@dataclasses.dataclass
class _Header:
    kind: int
    channels: int
    rate: int
    bits: int
    start: int
    size: int

    @property
    def frames(self) -> int:
        return self.size // (self.channels * self.bits // 8)

    @property
    def encoding(self) -> str:
        return "PCM_F" if self.kind == _FLOAT else "PCM_U" if self.bits == 8 else "PCM_S"


def _header(file: BinaryIO, name: str) -> _Header:
    """Where the samples are and how they are stored."""
    file.seek(0, os.SEEK_END)
    end = file.tell()
    file.seek(0)
    start = file.read(12)
    if len(start) < 12 or start[:4] != b"RIFF" or start[8:] != b"WAVE":
        raise WavError(f"{name} is not a WAV file, the only kind that weft.audio reads")
    stated: tuple[int, int, int, int] | None = None
    while len(chunk := file.read(8)) == 8:
        tag, size = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        at = file.tell()
        if tag == b"fmt ":
            stated = _format(file.read(min(size, 40)), name)
        elif tag == b"data":
            if stated is None:
                raise WavError(f"{name}: samples come before their format")
            kind, channels, rate, bits = stated
            # A stream that was not closed states too much; what is there counts.
            return _Header(kind, channels, rate, bits, at, min(size, end - at))
        file.seek(at + size + size % 2)
    raise WavError(f"{name}: the file holds no samples (truncated?)")


def _format(data: bytes, name: str) -> tuple[int, int, int, int]:
    if len(data) < 16:
        raise WavError(f"{name}: the format is cut off")
    kind, channels, rate, _, _, bits = struct.unpack("<HHIIHH", data[:16])
    if kind == _EXTENSIBLE and len(data) >= 26:
        kind = struct.unpack("<H", data[24:26])[0]
    if channels < 1 or rate < 1 or (kind, bits) not in _STORED:
        raise WavError(
            f"{name}: unsupported: format {kind}, {bits} bits, {channels} channels, {rate} Hz; "
            "integers of 8, 16, 24, 32 bits and floats of 32, 64 are read"
        )
    return kind, channels, rate, bits


def _opened(source: Any) -> tuple[BinaryIO, str, bool]:
    if isinstance(source, (str, os.PathLike)):
        return open(source, "rb"), repr(os.fspath(source)), True
    return source, "the file", False


def info(uri: Any, format: str | None = None, backend: str | None = None) -> AudioMetaData:
    """The sample rate, length, channels and encoding of a WAV file."""
    file, name, ours = _opened(uri)
    try:
        head = _header(file, name)
    finally:
        if ours:
            file.close()
    return AudioMetaData(head.rate, head.frames, head.channels, head.bits, head.encoding)


def load(
    uri: Any,
    frame_offset: int = 0,
    num_frames: int = -1,
    normalize: bool = True,
    channels_first: bool = True,
    format: str | None = None,
    buffer_size: int = 4096,
    backend: str | None = None,
) -> tuple[Tensor, int]:
    """The samples of a WAV file, (channels, time) from -1 to 1, and its sample rate.

    With ``normalize=False`` integers stay integers (those of 24 bits as the high bits of int32).
    """
    if frame_offset < 0 or num_frames < -1:
        raise ValueError(f"frame_offset {frame_offset} and num_frames {num_frames} are too low")
    file, name, ours = _opened(uri)
    try:
        head = _header(file, name)
        width = head.channels * head.bits // 8
        first = min(frame_offset, head.frames)
        count = head.frames - first if num_frames == -1 else min(num_frames, head.frames - first)
        file.seek(head.start + first * width)
        data = file.read(count * width)
    finally:
        if ours:
            file.close()
    samples = _decoded(data, head).reshape(-1, head.channels)
    if normalize:
        samples = _normalized(samples)
    elif samples.dtype == np.float64:
        samples = samples.astype(np.float32)
    made = samples.T if channels_first else samples
    return weft.from_numpy(np.ascontiguousarray(made)), head.rate


def _decoded(data: bytes, head: _Header) -> np.ndarray:
    stored = _STORED[head.kind, head.bits]
    data = data[: len(data) // (head.channels * head.bits // 8) * (head.channels * head.bits // 8)]
    if stored:
        found = np.frombuffer(data, stored)
        return found.astype(found.dtype.newbyteorder("="))
    wide = np.zeros((len(data) // 3, 4), np.uint8)
    wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
    return wide.view("<i4")[:, 0].astype(np.int32)


def _normalized(samples: np.ndarray) -> np.ndarray:
    """Samples as float32 from -1 to 1."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    if samples.dtype == np.uint8:
        return (samples.astype(np.float32) - 128) / 128
    return (samples / np.float64(2 ** (8 * samples.dtype.itemsize - 1))).astype(np.float32)


def save(
    uri: Any,
    src: Tensor,
    sample_rate: int,
    channels_first: bool = True,
    format: str | None = None,
    encoding: str | None = None,
    bits_per_sample: int | None = None,
    buffer_size: int = 4096,
    backend: str | None = None,
    compression: Any = None,
) -> None:
    """Write samples (channels, time) to a WAV file, as floats or as integers.

    Unless ``encoding`` (``"PCM_S"``, ``"PCM_U"``, ``"PCM_F"``) and ``bits_per_sample`` say more,
    the dtype decides. Floats are cut off at -1 and 1 when they become integers.
    """
    if format not in (None, "wav"):
        raise ValueError(f"weft.audio writes 'wav' only, not {format!r}")
    if src.ndim not in (1, 2):
        raise ValueError(f"samples are of shape (channels, time), not {tuple(src.shape)}")
    samples = src.detach().cpu().numpy()
    samples = samples[:, None] if src.ndim == 1 else samples.T if channels_first else samples
    kind, bits = _wanted(samples.dtype, encoding, bits_per_sample)
    data = _encoded(samples, kind, bits).tobytes()
    channels = samples.shape[1]
    width = channels * bits // 8
    head = struct.pack("<HHIIHH", kind, channels, sample_rate, sample_rate * width, width, bits)
    if kind == _FLOAT:
        head += struct.pack("<H", 0)
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head
    if kind == _FLOAT:
        body += b"fact" + struct.pack("<II", 4, len(samples))
    whole = len(body) + 8 + len(data) + len(data) % 2
    if whole >= 1 << 32:
        raise ValueError(f"a WAV file holds less than 4 GiB, not {whole} bytes")
    body += b"data" + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)
    body = b"RIFF" + struct.pack("<I", len(body)) + body
    if isinstance(uri, (str, os.PathLike)):
        with atomic.replacing(uri) as file:
            file.write(body)
    else:
        uri.write(body)


def _wanted(dtype: np.dtype, encoding: str | None, bits: int | None) -> tuple[int, int]:
    """Format and bits of a file."""
    if encoding not in (None, *_ENCODINGS):
        raise ValueError(f"encoding is one of {', '.join(_ENCODINGS)}, not {encoding!r}")
    usual = {"float32": 32, "float64": 64, "int32": 32, "int16": 16, "uint8": 8}
    if dtype.name not in usual:
        raise ValueError(f"samples are float32, float64, int32, int16 or uint8, not {dtype.name}")
    kind = _FLOAT if dtype.kind == "f" else _PCM
    if encoding is not None:
        kind = _ENCODINGS[encoding]
        default = 8 if encoding == "PCM_U" else 32 if kind == _FLOAT else 16
    else:
        if bits is not None and bits < 32:
            kind = _PCM
        default = usual[dtype.name]
    bits = default if bits is None else bits
    signed_8 = bits == 8 and encoding == "PCM_S"
    if (kind, bits) not in _STORED or signed_8 or (encoding == "PCM_U" and bits != 8):
        raise ValueError(f"a WAV file holds no {encoding or 'samples'} of {bits} bits")
    return kind, bits


def _encoded(samples: np.ndarray, kind: int, bits: int) -> np.ndarray:
    if kind == _FLOAT:
        return np.ascontiguousarray(
            samples if samples.dtype.kind == "f" else _normalized(samples), _STORED[kind, bits]
        )
    if samples.dtype.itemsize * 8 == bits and samples.dtype.kind != "f":
        return np.ascontiguousarray(samples, _STORED[kind, bits])
    values = samples if samples.dtype.kind == "f" else _normalized(samples)
    top = 2 ** (bits - 1)
    whole = np.clip(np.rint(values.astype(np.float64) * top), -top, top - 1).astype(np.int64)
    if bits == 8:
        return (whole + 128).astype(np.uint8)
    if bits == 24:
        return np.ascontiguousarray(whole.astype("<i4")).view(np.uint8).reshape(-1, 4)[:, :3].copy()
    return whole.astype(_STORED[kind, bits])
