"""Line charts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.viz import svg

COLOURS = 6  # that the style has for series
LEFT, RIGHT, TOP, BOTTOM = 62.0, 18.0, 46.0, 46.0


class _Axes:
    """From values to places."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], size: tuple[float, float], log: bool
    ) -> None:
        self.x_range, self.y_range, self.log = x, y, log
        self.width, self.height = size
        self.right, self.bottom = self.width - RIGHT, self.height - BOTTOM

    def x(self, value: float) -> float:
        low, high = self.x_range
        return LEFT + (value - low) / (high - low) * (self.right - LEFT)

    def y(self, value: float) -> float:
        low, high = self.y_range
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.bottom - (value - low) / (high - low) * (self.bottom - TOP)


def line_chart(
    series: Mapping[str, Any],
    *,
    x: Any = None,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    log_y: bool = False,
    marks: Mapping[float, str] | None = None,
    y_range: tuple[float | None, float | None] = (None, None),
    width: float = 560,
    height: float = 320,
) -> str:
    """Lines over a common axis, as an SVG element.

    ``series`` gives the values of each line by name: a list of numbers, or a pair of lists ``(x,
    y)``. Values that are not finite leave a gap. ``marks`` draws labelled vertical lines.
    """
    lines = {name: _line(name, values, x) for name, values in series.items()}
    axes = _axes(list(lines.values()), log_y, y_range, (width, height))
    parts = [*_frame(axes, title, x_label, y_label), *_marks(axes, marks or {})]
    for k, (name, (xs, ys)) in enumerate(lines.items()):
        parts.append(_drawn(axes, name, xs, ys, k % COLOURS + 1))
    parts.append(_legend(list(lines), width))
    return svg.picture(width, height, title or ", ".join(lines), *parts)


def _line(name: str, values: Any, x: Any) -> tuple[np.ndarray, np.ndarray]:
    pair = isinstance(values, tuple) and len(values) == 2 and np.ndim(values[0]) == 1
    ys = svg.numbers(values[1] if pair else values).reshape(-1)
    given = values[0] if pair else x
    xs = np.arange(len(ys), dtype=np.float64) if given is None else svg.numbers(given).reshape(-1)
    if len(xs) != len(ys):
        raise ValueError(f"line_chart: {name!r} has {len(ys)} values for {len(xs)} places")
    return xs, ys


def _axes(
    lines: list[tuple[np.ndarray, np.ndarray]],
    log: bool,
    y_range: tuple[float | None, float | None],
    size: tuple[float, float],
) -> _Axes:
    xs = np.concatenate([x for x, _ in lines]) if lines else np.zeros(0)
    ys = np.concatenate([y for _, y in lines]) if lines else np.zeros(0)
    good = np.isfinite(xs) & np.isfinite(ys) & ((ys > 0) if log else True)
    xs, ys = xs[good], ys[good]
    left, right = (float(xs.min()), float(xs.max())) if xs.size else (0.0, 1.0)
    low, high = (float(ys.min()), float(ys.max())) if ys.size else (0.1 if log else 0.0, 1.0)
    if log:
        low, high = low / 1.15, high * 1.15
    else:
        margin = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        low, high = (low if low == 0 else low - margin), high + margin
    low = low if y_range[0] is None else y_range[0]
    high = high if y_range[1] is None else y_range[1]
    if not high > low:
        high = low + (abs(low) or 1.0)
    return _Axes((left, right if right > left else left + 1.0), (low, high), size, log)


def _frame(axes: _Axes, title: str, x_label: str, y_label: str) -> list[str]:
    parts = [svg.text(title, LEFT - 46, 18, class_="title")] if title else []
    steps = svg.powers(*axes.y_range) if axes.log else svg.ticks(*axes.y_range)
    for value in steps:
        y = axes.y(value)
        parts.append(svg.element("line", class_="grid", x1=LEFT, x2=axes.right, y1=y, y2=y))
        shown = svg.label(float(f"{value:.3g}"))
        parts.append(svg.text(shown, LEFT - 8, y + 4, class_="tick", text_anchor="end"))
    for value in svg.ticks(*axes.x_range, count=8):
        x = axes.x(value)
        parts.append(
            svg.element("line", class_="axis", x1=x, x2=x, y1=axes.bottom, y2=axes.bottom + 4)
        )
        parts.append(
            svg.text(svg.label(value), x, axes.bottom + 18, class_="tick", text_anchor="middle")
        )
    parts.append(
        svg.element("line", class_="axis", x1=LEFT, x2=axes.right, y1=axes.bottom, y2=axes.bottom)
    )
    middle = (LEFT + axes.right) / 2
    if x_label:
        parts.append(
            svg.text(x_label, middle, axes.height - 8, class_="name", text_anchor="middle")
        )
    if y_label:
        across = (TOP + axes.bottom) / 2
        parts.append(
            svg.text(
                y_label, 0, 0, class_="name", text_anchor="middle",
                transform=f"translate(14 {svg.number(across)}) rotate(-90)",
            )
        )  # fmt: skip
    return parts


def _marks(axes: _Axes, marks: Mapping[float, str]) -> list[str]:
    parts = []
    low, high = axes.x_range
    for k, (place, words) in enumerate(sorted(marks.items())):
        if not low <= place <= high:
            continue
        x, late = axes.x(place), place > (low + high) / 2
        parts.append(svg.element("line", class_="mark", x1=x, x2=x, y1=TOP, y2=axes.bottom))
        parts.append(
            svg.text(
                words, x + (-5 if late else 5), TOP - 6 - 13 * (k % 2), class_="note",
                text_anchor="end" if late else "start",
            )
        )  # fmt: skip
    return parts


def _drawn(axes: _Axes, name: str, xs: np.ndarray, ys: np.ndarray, colour: int) -> str:
    low, high = axes.y_range
    pieces: list[list[tuple[float, float]]] = [[]]
    dots = []
    for x, y in zip(xs.tolist(), ys.tolist(), strict=True):
        if not math.isfinite(x) or not math.isfinite(y) or (axes.log and y <= 0):
            pieces.append([])
            continue
        place = axes.x(x), axes.y(min(max(y, low), high))
        pieces[-1].append(place)
        if len(xs) <= 60:
            said = svg.tip(f"{name}: {y:.4g} at {svg.label(x)}")
            dots.append(svg.element("circle", said, class_="dot", cx=place[0], cy=place[1], r=3))
    path = " ".join(
        f"M{' L'.join(f'{svg.number(x)} {svg.number(y)}' for x, y in piece)}"
        for piece in pieces
        if piece
    )
    line = svg.element("path", class_="line", d=path) if path else ""
    return svg.element("g", line, *dots, class_=f"series s{colour}")


def _legend(names: Sequence[str], width: float) -> str:
    parts = []
    x = width - RIGHT
    for k, name in reversed(list(enumerate(names))):
        x -= 7.2 * len(name) + 30
        parts.append(
            svg.element(
                "g",
                svg.element("line", class_="line", x1=x, x2=x + 16, y1=14, y2=14),
                svg.text(name, x + 21, 18, class_="legend"),
                class_=f"series s{k % COLOURS + 1}",
            )
        )
    return "".join(parts)
