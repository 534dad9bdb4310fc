"""Images from and to files, by Pillow."""

from __future__ import annotations

import os
from enum import Enum
from io import BytesIO
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.io.atomic import replacing
from weft.vision._pillow import pillow

__all__ = [
    "ImageReadMode", "decode_gif", "decode_image", "decode_jpeg", "decode_png", "decode_webp",
    "encode_jpeg", "encode_png", "read_file", "read_image", "write_file", "write_jpeg",
    "write_png",
]  # fmt: skip


class ImageReadMode(Enum):
    """Into which channels an image is converted."""

    UNCHANGED = 0
    GRAY = 1
    GRAY_ALPHA = 2
    RGB = 3
    RGB_ALPHA = 4


_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}


def read_file(path: str) -> Tensor:
    """The bytes of a file."""
    with open(path, "rb") as file:
        return weft.from_numpy(np.frombuffer(file.read(), np.uint8).copy())


def write_file(filename: str, data: Tensor) -> None:
    """Write bytes into a file; the old one is there until the new one is whole."""
    if data.dtype != weft.uint8 or data.ndim != 1:
        raise RuntimeError(f"write_file takes one-dimensional bytes, got {data.dtype} {data.shape}")
    with replacing(filename) as file:
        file.write(data.numpy().tobytes())


def _chosen(mode: Any) -> ImageReadMode:
    return ImageReadMode[mode.upper()] if isinstance(mode, str) else ImageReadMode(mode)


def decode_image(
    input: Tensor | str | os.PathLike[str],
    mode: Any = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> Tensor:
    """An image (C, H, W) of bytes from the bytes of a file, or from its path."""
    data = read_file(os.fspath(input)) if not isinstance(input, Tensor) else input
    image = pillow().open(BytesIO(data.numpy().tobytes()))
    if apply_exif_orientation:
        image = pillow("ImageOps").exif_transpose(image)
    wanted = _chosen(mode)
    if wanted is not ImageReadMode.UNCHANGED:
        image = image.convert(_MODES[wanted.value])
    elif image.mode not in (*_MODES.values(), "I;16"):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB")
    array = np.asarray(image)
    array = array[None] if array.ndim == 2 else array.transpose(2, 0, 1)
    return weft.from_numpy(np.array(array, order="C"))


def decode_jpeg(input: Any, mode: Any = ImageReadMode.UNCHANGED, **kwargs: Any) -> Any:
    """A JPEG image, or a list of them."""
    if isinstance(input, list):
        return [decode_image(part, mode) for part in input]
    return decode_image(input, mode, bool(kwargs.get("apply_exif_orientation", False)))


def decode_png(
    input: Tensor, mode: Any = ImageReadMode.UNCHANGED, apply_exif_orientation: bool = False
) -> Tensor:
    """A PNG image."""
    return decode_image(input, mode, apply_exif_orientation)


def decode_webp(input: Tensor, mode: Any = ImageReadMode.UNCHANGED) -> Tensor:
    """A WebP image."""
    return decode_image(input, mode)


def decode_gif(input: Tensor) -> Tensor:
    """A GIF image (3, H, W), or all images (N, 3, H, W) of one that moves."""
    image = pillow().open(BytesIO(input.numpy().tobytes()))
    frames = []
    for i in range(getattr(image, "n_frames", 1)):
        image.seek(i)
        frames.append(np.asarray(image.convert("RGB")).transpose(2, 0, 1))
    found = weft.from_numpy(np.stack(frames))
    return found[0] if len(frames) == 1 else found


def read_image(
    path: str | os.PathLike[str],
    mode: Any = ImageReadMode.UNCHANGED,
    apply_exif_orientation: bool = False,
) -> Tensor:
    """An image (C, H, W) of bytes from a file."""
    return decode_image(os.fspath(path), mode, apply_exif_orientation)


def _encoded(input: Tensor, kind: str, **options: Any) -> Tensor:
    if input.dtype != weft.uint8 or input.ndim != 3 or input.shape[0] not in (1, 3):
        raise RuntimeError(
            f"encode_{kind.lower()} takes bytes (1 or 3, H, W), got {input.dtype} "
            f"{tuple(input.shape)}"
        )
    array = np.ascontiguousarray(input.numpy().transpose(1, 2, 0))
    size = array.shape[1], array.shape[0]
    image = pillow().frombytes(_MODES[array.shape[2]], size, array.tobytes())
    file = BytesIO()
    image.save(file, format=kind, **options)
    return weft.from_numpy(np.frombuffer(file.getvalue(), np.uint8).copy())


def encode_jpeg(input: Any, quality: int = 75) -> Any:
    """The bytes of a JPEG file, or a list of them."""
    if isinstance(input, list):
        return [encode_jpeg(part, quality) for part in input]
    if not 1 <= quality <= 100:
        raise ValueError(f"Image quality should be a positive number between 1 and 100: {quality}")
    return _encoded(input, "JPEG", quality=quality)


def encode_png(input: Tensor, compression_level: int = 6) -> Tensor:
    """The bytes of a PNG file."""
    return _encoded(input, "PNG", compress_level=compression_level)


def write_jpeg(input: Tensor, filename: str, quality: int = 75) -> None:
    """Write a JPEG file."""
    write_file(filename, encode_jpeg(input, quality))


def write_png(input: Tensor, filename: str, compression_level: int = 6) -> None:
    """Write a PNG file."""
    write_file(filename, encode_png(input, compression_level))
