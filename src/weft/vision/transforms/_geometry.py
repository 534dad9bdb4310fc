"""The arithmetic of affine and perspective maps, shared by tensors, Pillow images and boxes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np


def inverse_affine(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    inverted: bool = True,
) -> list[float]:
    """Six numbers of the map from result to input (or back) of a rotation, shear, scale, shift.

    The map is T C RSS C^-1: to the centre, rotate, shear and scale, back, translate.
    """
    rotation = math.radians(angle)
    sx, sy = math.radians(shear[0]), math.radians(shear[1])
    cx, cy = center
    tx, ty = translate
    a = math.cos(rotation - sy) / math.cos(sy)
    b = -math.cos(rotation - sy) * math.tan(sx) / math.cos(sy) - math.sin(rotation)
    c = math.sin(rotation - sy) / math.cos(sy)
    d = -math.sin(rotation - sy) * math.tan(sx) / math.cos(sy) + math.cos(rotation)
    if inverted:
        matrix = [x / scale for x in (d, -b, 0.0, -c, a, 0.0)]
        matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty)
        matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty)
        matrix[2] += cx
        matrix[5] += cy
        return matrix
    matrix = [x * scale for x in (a, b, 0.0, c, d, 0.0)]
    matrix[2] += matrix[0] * (-cx) + matrix[1] * (-cy) + cx + tx
    matrix[5] += matrix[3] * (-cx) + matrix[4] * (-cy) + cy + ty
    return matrix


def perspective_coefficients(
    startpoints: Sequence[Sequence[float]], endpoints: Sequence[Sequence[float]]
) -> list[float]:
    """Eight numbers of the map that takes four end points to four start points."""
    if len(startpoints) != 4 or len(endpoints) != 4:
        raise ValueError(
            f"Please provide exactly four corners, got {len(startpoints)} startpoints and "
            f"{len(endpoints)} endpoints."
        )
    matrix = np.zeros((8, 8))
    for i, (p1, p2) in enumerate(zip(endpoints, startpoints, strict=True)):
        x, y = p1
        matrix[2 * i] = [x, y, 1, 0, 0, 0, -p2[0] * x, -p2[0] * y]
        matrix[2 * i + 1] = [0, 0, 0, x, y, 1, -p2[1] * x, -p2[1] * y]
    wanted = np.array(startpoints, np.float64).reshape(8)
    found = np.linalg.lstsq(matrix, wanted, rcond=None)[0]
    return found.astype(np.float32).astype(np.float64).tolist()


def crop_corners(size: tuple[int, int], crop: tuple[int, int]) -> tuple[int, int]:
    """Top and left of a crop in the middle of an image of (height, width)."""
    top = round((size[0] - crop[0]) / 2.0)
    left = round((size[1] - crop[1]) / 2.0)
    return top, left


def resized_size(
    size: tuple[int, int], wanted: Any, max_size: int | None = None, larger: bool = False
) -> tuple[int, int]:
    """(height, width) after resizing; a single number is for the shorter (or longer) side."""
    height, width = size
    if wanted is None:
        if not isinstance(max_size, int):
            raise ValueError(f"max_size must be an integer when size is None, but got {max_size}")
        short, long = min(height, width), max(height, width)
        new_long, new_short = max_size, int(max_size * short / long)
        return (new_short, new_long) if height <= width else (new_long, new_short)
    if len(wanted) == 2:
        return int(wanted[0]), int(wanted[1])
    side = wanted[0]
    short, long = (width, height) if width <= height else (height, width)
    new_short, new_long = side, int(side * long / short)
    if max_size is not None:
        if max_size <= side:
            raise ValueError(
                f"max_size = {max_size} must be strictly greater than the requested size for the "
                f"smaller edge size = {wanted}"
            )
        if new_long > max_size:
            new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_long, new_short) if width <= height else (new_short, new_long)


def sides(padding: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom from one, two or four numbers."""
    if isinstance(padding, (int, float)):
        return (int(padding),) * 4
    if len(padding) == 1:
        return (int(padding[0]),) * 4
    if len(padding) == 2:
        return (int(padding[0]), int(padding[1])) * 2
    if len(padding) == 4:
        left, top, right, bottom = (int(p) for p in padding)
        return left, top, right, bottom
    raise ValueError(
        f"Padding must be an int or a 1, 2, or 4 element tuple, not a {len(padding)} element tuple"
    )
