"""Modes of interpolation."""

from __future__ import annotations

from enum import Enum
from typing import Any


class InterpolationMode(Enum):
    """How pixels between pixels are found; box, hamming and lanczos are for Pillow images."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


# Pillow's own numbers of its filters.
PILLOW = {"nearest": 0, "nearest-exact": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}
PILLOW.update(box=4, hamming=5)
_FROM_PILLOW = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


def mode_of(interpolation: Any) -> InterpolationMode:
    """A mode from a mode, its name or Pillow's number."""
    if isinstance(interpolation, InterpolationMode):
        return interpolation
    if isinstance(interpolation, str):
        return InterpolationMode(interpolation)
    if isinstance(interpolation, int) and int(interpolation) in _FROM_PILLOW:
        return InterpolationMode(_FROM_PILLOW[int(interpolation)])
    raise TypeError(
        "Argument interpolation should be a InterpolationMode or a corresponding Pillow integer "
        f"constant, got {interpolation!r}"
    )
