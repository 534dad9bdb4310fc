"""One curve on logarithmic x, as a picture."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT, _EDGE = 640, 360, 56


def curve(
    xs: Sequence[float], ys: Sequence[float], across: str, up: str, mark: float | None = None
) -> str:
    """An SVG file with ``ys`` over ``xs``, and a dot at the x that is marked."""
    logs = [math.log10(x) for x in xs]
    low, high, bottom, top = min(logs), max(logs), min(ys), max(ys)
    place_x = lambda v: _EDGE + (v - low) / ((high - low) or 1) * (_WIDTH - 2 * _EDGE)
    place_y = lambda v: (
        _HEIGHT - _EDGE - (v - bottom) / ((top - bottom) or 1) * (_HEIGHT - 2 * _EDGE)
    )
    points = " ".join(f"{place_x(x):.1f},{place_y(y):.1f}" for x, y in zip(logs, ys, strict=True))
    space = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    parts = [
        f'<svg {space} font-family="sans-serif" font-size="12" fill="#555">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        f'<polyline points="{points}" fill="none" stroke="#3c4fd0" stroke-width="2"/>',
    ]
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = place_x(power)
        parts.append(
            f'<path d="M{x:.1f} {_EDGE}V{_HEIGHT - _EDGE}" stroke="#ddd"/>'
            f'<text x="{x:.1f}" y="{_HEIGHT - _EDGE + 18}" text-anchor="middle">1e{power}</text>'
        )
    for value in (bottom, top):
        y = place_y(value) + 4
        parts.append(f'<text x="{_EDGE - 6}" y="{y:.1f}" text-anchor="end">{value:.3g}</text>')
    if mark is not None:
        nearest = min(range(len(xs)), key=lambda k: abs(xs[k] - mark))
        x, y = place_x(logs[nearest]), place_y(ys[nearest])
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#c77700"/>'
            f'<text x="{x + 9:.1f}" y="{y - 7:.1f}">{mark:.1e}</text>'
        )
    words = html.escape(across), html.escape(up)
    parts.append(
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{words[0]}</text>'
    )
    parts.append(f'<text x="{_EDGE}" y="{_EDGE - 16}">{words[1]}</text></svg>')
    return "\n".join(parts) + "\n"
