"""Arrays as PNG images."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np

from weft.viz import svg

_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}  # channels: PNG's number for grey, grey-alpha, RGB, RGBA


def png(image: Any) -> bytes:
    """A PNG file of an image of shape (height, width) or (height, width, channels).

    Floats are from 0 to 1, whole numbers from 0 to 255; channels are 1 (grey), 2 (grey and
    opacity), 3 (RGB) or 4 (RGBA).

    >>> png([[0.0, 1.0]])[:4]
    b'\\x89PNG'
    """
    array = np.asarray(image.detach().numpy() if hasattr(image, "detach") else image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in _KINDS or 0 in array.shape:
        raise ValueError(
            "png: an image is (height, width) or (height, width, 1 to 4 channels), "
            f"not {list(array.shape)}"
        )
    if array.dtype.kind == "f":
        array = np.nan_to_num(svg.numbers(array)).clip(0, 1) * 255 + 0.5
    array = array.clip(0, 255).astype(np.uint8)
    height, width, channels = array.shape
    head = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    rows = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, -1)], axis=1)
    data = zlib.compress(rows.tobytes(), 9)
    chunks = (b"IHDR", head), (b"IDAT", data), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*c) for c in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    check = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", check)


def data_url(image: Any) -> str:
    """A PNG image as an address that holds all of it."""
    return f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"
