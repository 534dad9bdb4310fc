"""Numbers over steps, kept short enough for a page."""

from __future__ import annotations

import base64
import math
from typing import Any

MOST_POINTS = 600  # of a curve on the page, which is no wider than that
MOST_KEPT = 200_000  # of a curve in memory
MOST_TAGS = 500
MOST_IMAGES = 24
LARGEST_IMAGE = 2 << 20

Point = tuple[float, float, float]  # step, value, wall time


class Series:
    """The curves and pictures of one run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.curves: dict[str, list[Point]] = {}
        self.images: dict[str, tuple[int, bytes]] = {}

    def add(self, tag: str, step: float, value: float, when: float) -> None:
        """A number of a step; a step that comes again takes the place of the one before."""
        curve = self.curves.get(tag)
        if curve is None:
            if len(self.curves) >= MOST_TAGS:
                return
            curve = self.curves[tag] = []
        if curve and step <= curve[-1][0]:
            while curve and curve[-1][0] >= step:
                curve.pop()
        curve.append((step, value, when))
        if len(curve) > MOST_KEPT:
            del curve[::2]

    def add_image(self, tag: str, step: int, picture: bytes) -> None:
        """A PNG picture; of each tag the last one stays."""
        if tag not in self.images and len(self.images) >= MOST_IMAGES:
            return
        if picture.startswith(b"\x89PNG") and len(picture) <= LARGEST_IMAGE:
            self.images[tag] = (step, picture)

    def drop_from(self, step: int) -> None:
        """Forget a step and what came after it: the training went back there."""
        for curve in self.curves.values():
            while curve and curve[-1][0] >= step:
                curve.pop()

    def document(self) -> dict[str, Any]:
        """What the page draws."""
        return {
            "name": self.name,
            "series": {tag: thinned(curve) for tag, curve in self.curves.items() if curve},
            "images": [
                {"tag": tag, "step": step, "data": base64.b64encode(picture).decode()}
                for tag, (step, picture) in self.images.items()
            ],
        }


def thinned(curve: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """The curve with at most so many points: the ends, and of each piece its extremes."""
    if len(curve) <= most:
        return list(curve)
    pieces = most // 2 - 1
    found = [curve[0]]
    inner = len(curve) - 2
    for k in range(pieces):
        piece = curve[1 + k * inner // pieces : 1 + (k + 1) * inner // pieces]
        finite = [p for p in piece if math.isfinite(p[1])]
        if not finite:
            found.append(piece[0])
            continue
        ends = {min(finite, key=lambda p: p[1]), max(finite, key=lambda p: p[1])}
        found += sorted(ends)
    return [*found, curve[-1]]
