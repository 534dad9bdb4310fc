"""Arrays as pictures: PNG, animated PNG, grids of images, figures, boxes."""

from __future__ import annotations

import fractions
import math
import struct
import zlib
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import host
from weft.core.tensor import Tensor

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}  # grey, grey and alpha, RGB, RGBA
_LEVEL = 4  # of compression: pictures are written in the middle of a training


def as_array(value: Any) -> np.ndarray:
    """A number, an array or a tensor as an array; bfloat16 as float32, which all readers know."""
    if isinstance(value, Tensor):
        value = host(value)
    if isinstance(value, np.ndarray):
        return value.astype(np.float32) if value.dtype.kind == "V" else value
    if np.isscalar(value):
        return np.array([value])
    numpy = getattr(value, "numpy", None)  # another library's tensor
    if callable(numpy):
        return np.asarray(numpy())
    raise NotImplementedError(
        f"Got {type(value)}, but a number, numpy array or tensor is expected\n  at {errors.here()}"
    )


def as_bytes(pixels: np.ndarray) -> np.ndarray:
    """Pixels as uint8; floats and other numbers are taken to go from 0 to 1."""
    if pixels.dtype == np.uint8:
        return pixels
    scaled = np.nan_to_num(pixels.astype(np.float32), posinf=1.0, neginf=0.0) * 255
    return scaled.clip(0, 255).astype(np.uint8)


def png(pixels: np.ndarray) -> bytes:
    """An array of uint8, height by width by 1 to 4 channels, as a PNG file."""
    return _SIGNATURE + _header(pixels) + _chunk(b"IDAT", _packed(pixels)) + _chunk(b"IEND", b"")


def animated_png(frames: np.ndarray, fps: float) -> bytes:
    """Frames of uint8 as an animated PNG, which browsers play and lose nothing of."""
    delay = fractions.Fraction(1 / fps).limit_denominator(1000)
    top, bottom = max(1, min(delay.numerator, 65535)), delay.denominator
    height, width = frames.shape[1:3]
    parts = [_SIGNATURE, _header(frames[0]), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    number = 0
    for k, frame in enumerate(frames):
        control = struct.pack(">IIIIIHHBB", number, width, height, 0, 0, top, bottom, 0, 0)
        parts.append(_chunk(b"fcTL", control))
        number += 1
        if k == 0:
            parts.append(_chunk(b"IDAT", _packed(frame)))
        else:
            parts.append(_chunk(b"fdAT", struct.pack(">I", number) + _packed(frame)))
            number += 1
    return b"".join([*parts, _chunk(b"IEND", b"")])


def _header(pixels: np.ndarray) -> bytes:
    height, width, channels = pixels.shape
    if channels not in _COLOUR_TYPES or not height or not width:
        raise ValueError(
            f"a picture has 1 to 4 channels and at least one pixel, not shape {pixels.shape} "
            f"(height, width, channels)\n  at {errors.here()}"
        )
    settings = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[channels], 0, 0, 0)
    return _chunk(b"IHDR", settings)


def _packed(pixels: np.ndarray) -> bytes:
    """The rows, each as its difference from the one above, compressed."""
    rows = pixels.reshape(len(pixels), -1)
    lines = np.empty((len(rows), rows.shape[1] + 1), np.uint8)
    lines[:, 0] = 2
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])
    return zlib.compress(lines.tobytes(), _LEVEL)


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)


# --- arrangements ------------------------------------------------------------------------


def grid(images: np.ndarray, columns: int = 8) -> np.ndarray:
    """Images (N, C, H, W) side by side as one (3, H, W); grey ones become RGB."""
    if images.ndim != 4 or images.shape[1] not in (1, 3) or not len(images):
        raise ValueError(
            f"a grid takes images of 1 or 3 channels as (N, C, H, W), not shape {images.shape}"
            f"\n  at {errors.here()}"
        )
    count, _, height, width = images.shape
    columns = min(count, columns)
    rows = math.ceil(count / columns)
    canvas = np.zeros((3, rows * height, columns * width), images.dtype)
    for k, image in enumerate(images):
        y, x = k // columns * height, k % columns * width
        canvas[:, y : y + height, x : x + width] = image
    return canvas


def as_hwc(array: np.ndarray, layout: str) -> np.ndarray:
    """An image, or a batch of them as a grid, with its channels last."""
    named = layout.upper()
    if sorted(named) not in (["H", "W"], ["C", "H", "W"], ["C", "H", "N", "W"]):
        raise ValueError(
            f"dataformats is the letters HW, CHW or NCHW in the order of the dimensions, "
            f"not {layout!r}\n  at {errors.here()}"
        )
    if array.ndim != len(named):
        raise ValueError(
            f"size of input tensor and input format are different: shape {array.shape} has "
            f"{array.ndim} dimensions and dataformats={layout!r} names {len(named)}"
            f"\n  at {errors.here()}"
        )
    if len(named) == 4:
        return grid(array.transpose([named.find(c) for c in "NCHW"])).transpose(1, 2, 0)
    if len(named) == 2:
        return np.stack([array.transpose([named.find(c) for c in "HW"])] * 3, 2)
    image = array.transpose([named.find(c) for c in "HWC"])
    return np.concatenate([image] * 3, 2) if image.shape[2] == 1 else image


def video_frames(video: np.ndarray) -> np.ndarray:
    """Videos (N, T, C, H, W) side by side as frames (T, H, W, C)."""
    if video.ndim != 5:
        raise ValueError(
            f"a video is (N, T, C, H, W), not shape {video.shape}\n  at {errors.here()}"
        )
    pixels = as_bytes(video)
    count, times, channels, height, width = pixels.shape
    # As PyTorch: the next power of two, in about as many rows as columns.
    full = count if count & (count - 1) == 0 else 1 << count.bit_length()
    missing = np.zeros((full - count, *pixels.shape[1:]), np.uint8)
    rows = 1 << (count.bit_length() - 1) // 2
    columns = full // rows
    laid = np.concatenate([pixels, missing]).reshape(rows, columns, times, channels, height, width)
    laid = laid.transpose(2, 0, 4, 1, 5, 3)
    return np.ascontiguousarray(laid).reshape(times, rows * height, columns * width, channels)


def figure_pixels(figures: Any, close: bool = True) -> np.ndarray:
    """Matplotlib's figures as arrays: (3, H, W), or (N, 3, H, W) of a list of figures."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    def draw(figure: Any) -> np.ndarray:
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
        if close:
            import matplotlib.pyplot

            matplotlib.pyplot.close(figure)
        return np.moveaxis(pixels, 2, 0)

    if isinstance(figures, (list, tuple)):
        return np.stack([draw(figure) for figure in figures])
    return draw(figures)


def with_boxes(
    pixels: np.ndarray, boxes: np.ndarray, labels: list[str] | None, rescale: float
) -> np.ndarray:
    """The image with red boxes (left, top, right, bottom) and their labels, drawn by Pillow."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise ImportError(
            "add_image_with_boxes draws with Pillow, which is not installed: "
            "pip install 'weft[train]'"
        ) from None
    image = Image.fromarray(np.ascontiguousarray(pixels))
    draw, font = ImageDraw.Draw(image), ImageFont.load_default()
    for k, (left, top, right, bottom) in enumerate(boxes.tolist()):
        corners = [(left, top), (left, bottom), (right, bottom), (right, top), (left, top)]
        draw.line(corners, width=2, fill="Red")
        if labels is not None and labels[k]:
            x0, y0, x1, y1 = font.getbbox(labels[k])
            margin = math.ceil(0.05 * (y1 - y0))
            above = bottom - (y1 - y0) - margin
            draw.rectangle([(left, above - margin), (left + x1 - x0, bottom)], fill="Red")
            draw.text((left + margin, above), labels[k], fill="black", font=font)
    size = int(image.width * rescale), int(image.height * rescale)
    return np.asarray(image.resize(size, Image.Resampling.LANCZOS))
