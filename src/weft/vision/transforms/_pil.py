"""Transforms of Pillow images."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from weft.vision._pillow import pillow
from weft.vision.transforms import _geometry
from weft.vision.transforms._modes import PILLOW

# Pillow's numbers of its geometric methods.
_FLIP_LEFT_RIGHT, _FLIP_TOP_BOTTOM = 0, 1
_AFFINE, _PERSPECTIVE = 0, 2


def channels(img: Any) -> int:
    """The number of channels."""
    return len(img.getbands())


def _fill(fill: Any, img: Any, name: str = "fillcolor") -> dict[str, Any]:
    """The colour for places outside the image, as Pillow takes it."""
    bands = channels(img)
    if fill is None:
        fill = 0
    if isinstance(fill, (int, float)) and bands > 1:
        fill = (fill,) * bands
    if isinstance(fill, (list, tuple)):
        if len(fill) == 1:
            fill = tuple(fill) * bands
        elif len(fill) != bands:
            raise ValueError(
                "The number of elements in 'fill' does not match the number of channels of the "
                f"image ({len(fill)} != {bands})"
            )
        fill = tuple(fill)
    if img.mode != "F":
        if isinstance(fill, (list, tuple)):
            fill = tuple(int(x) for x in fill)
        else:
            fill = int(fill)
    return {name: fill[0] if isinstance(fill, tuple) and bands == 1 else fill}


def hflip(img: Any) -> Any:
    """Left and right exchanged."""
    return img.transpose(_FLIP_LEFT_RIGHT)


def vflip(img: Any) -> Any:
    """Top and bottom exchanged."""
    return img.transpose(_FLIP_TOP_BOTTOM)


def crop(img: Any, top: int, left: int, height: int, width: int) -> Any:
    """A part of an image; pixels outside it are zero."""
    return img.crop((left, top, left + width, top + height))


def resize(img: Any, size: tuple[int, int], mode: str) -> Any:
    """An image of another size."""
    return img.resize(tuple(size[::-1]), PILLOW[mode])


def pad(img: Any, padding: Any, fill: Any = 0, padding_mode: str = "constant") -> Any:
    """Pixels added at the left, top, right and bottom."""
    if not isinstance(padding, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate padding arg")
    if fill is not None and not isinstance(fill, (numbers.Number, tuple, list)):
        raise TypeError("Got inappropriate fill arg")
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError("Padding mode should be either constant, edge, reflect or symmetric")
    image = pillow()
    left, top, right, bottom = _geometry.sides(padding)
    if padding_mode == "constant":
        colour = _fill(fill, img, "fill")["fill"]
        made = image.new(img.mode, (img.width + left + right, img.height + top + bottom), colour)
        if img.mode == "P":
            made.putpalette(img.getpalette())
        made.paste(img, (left, top))
        return made
    if min(left, top, right, bottom) < 0:
        edges = (
            -min(left, 0),
            -min(top, 0),
            img.width + min(right, 0),
            img.height + min(bottom, 0),
        )
        img = img.crop(edges)
        left, top, right, bottom = (max(n, 0) for n in (left, top, right, bottom))
    palette = img.getpalette() if img.mode == "P" else None
    array = np.asarray(img)
    around = ((top, bottom), (left, right)) + ((0, 0),) * (array.ndim - 2)
    made = image.fromarray(np.pad(array, around, mode=padding_mode))  # type: ignore[call-overload]
    if palette is not None:
        made.putpalette(palette)
    return made


def affine(img: Any, matrix: list[float], mode: str, fill: Any) -> Any:
    """An affine map, given from result to input."""
    return img.transform(img.size, _AFFINE, matrix, PILLOW[mode], **_fill(fill, img))


def rotate(img: Any, angle: float, mode: str, expand: bool, center: Any, fill: Any) -> Any:
    """A rotation against the clock."""
    return img.rotate(angle, PILLOW[mode], expand, center, **_fill(fill, img))


def perspective(img: Any, coefficients: list[float], mode: str, fill: Any) -> Any:
    """A perspective map, given by eight numbers from result to input."""
    return img.transform(img.size, _PERSPECTIVE, coefficients, PILLOW[mode], **_fill(fill, img))


def to_grayscale(img: Any, num_output_channels: int) -> Any:
    """Luminance, in one channel or three equal ones."""
    if num_output_channels == 1:
        return img.convert("L")
    if num_output_channels == 3:
        gray = img.convert("L")
        return pillow().merge("RGB", (gray, gray, gray))
    raise ValueError("num_output_channels should be either 1 or 3")


def _enhanced(img: Any, kind: str, factor: float) -> Any:
    return getattr(pillow("ImageEnhance"), kind)(img).enhance(factor)


def adjust_brightness(img: Any, brightness_factor: float) -> Any:
    """Pixels times a factor."""
    return _enhanced(img, "Brightness", brightness_factor)


def adjust_contrast(img: Any, contrast_factor: float) -> Any:
    """Pixels farther from or nearer to the mean luminance."""
    return _enhanced(img, "Contrast", contrast_factor)


def adjust_saturation(img: Any, saturation_factor: float) -> Any:
    """Pixels farther from or nearer to their luminance."""
    return _enhanced(img, "Color", saturation_factor)


def adjust_sharpness(img: Any, sharpness_factor: float) -> Any:
    """An image farther from or nearer to a slightly blurred one."""
    return _enhanced(img, "Sharpness", sharpness_factor)


def adjust_hue(img: Any, hue_factor: float) -> Any:
    """Colours turned around the circle of hues."""
    if not (-0.5 <= hue_factor <= 0.5):
        raise ValueError(f"hue_factor ({hue_factor}) is not in [-0.5, 0.5].")
    if img.mode in ("L", "1", "I", "F"):
        return img
    h, s, v = img.convert("HSV").split()
    turned = (np.asarray(h).astype(np.int64) + int(hue_factor * 255)) % 256
    image = pillow()
    plane = image.fromarray(turned.astype(np.uint8))
    return image.merge("HSV", (plane, s, v)).convert(img.mode)


def adjust_gamma(img: Any, gamma: float, gain: float = 1) -> Any:
    """Pixels to a power."""
    if gamma < 0:
        raise ValueError("Gamma should be a non-negative real number")
    table = [int((255 + 1 - 1e-3) * gain * pow(x / 255.0, gamma)) for x in range(256)] * 3
    mode = img.mode
    return img.convert("RGB").point(table).convert(mode)


def invert(img: Any) -> Any:
    """The negative."""
    return pillow("ImageOps").invert(img)


def posterize(img: Any, bits: int) -> Any:
    """The upper bits of each byte."""
    return pillow("ImageOps").posterize(img, bits)


def solarize(img: Any, threshold: float) -> Any:
    """The negative where pixels reach a threshold."""
    return pillow("ImageOps").solarize(img, threshold)


def autocontrast(img: Any) -> Any:
    """Each channel stretched over the whole range."""
    return pillow("ImageOps").autocontrast(img)


def equalize(img: Any) -> Any:
    """Each channel with an even histogram."""
    return pillow("ImageOps").equalize(img)
