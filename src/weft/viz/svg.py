"""Elements of an SVG picture as text, safely escaped."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np


def element(tag: str, *inside: str, **attributes: Any) -> str:
    """``<tag name="value">inside</tag>``; names may end in ``_`` and hold ``_`` for ``-``."""
    parts = [tag]
    for name, value in attributes.items():
        if value is None:
            continue
        shown = number(value) if isinstance(value, (int, float)) else str(value)
        parts.append(f'{name.rstrip("_").replace("_", "-")}="{html.escape(shown)}"')
    if not inside:
        return f"<{' '.join(parts)}/>"
    return f"<{' '.join(parts)}>{''.join(inside)}</{tag}>"


def text(words: Any, x: float, y: float, **attributes: Any) -> str:
    """Words at a place."""
    return element("text", html.escape(str(words)), x=x, y=y, **attributes)


def tip(words: Any) -> str:
    """What a browser shows when the pointer rests on the element around it."""
    return element("title", html.escape(str(words)))


def picture(width: float, height: float, label: str, *inside: str) -> str:
    """The outermost element; it takes the width that it is given, and scales."""
    return element(
        "svg", tip(label), *inside,
        xmlns="http://www.w3.org/2000/svg", class_="weft-viz", role="img",
        viewBox=f"0 0 {number(width)} {number(height)}", width=width, height=height,
    )  # fmt: skip


def number(value: float) -> str:
    """A coordinate, as short as it can be."""
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"viz: {value} is not a place in a picture")
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def label(value: float) -> str:
    """A number beside an axis."""
    if value and not 1e-4 <= abs(value) < 1e6:
        mantissa, _, exponent = f"{value:.4g}".partition("e")
        return f"{mantissa}e{int(exponent)}" if exponent else mantissa
    return f"{value:.6g}"


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers that cover a range."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    rough = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [k * step for k in range(first, last + 1)]


def powers(low: float, high: float) -> list[float]:
    """Powers of ten in a range, or a few numbers where there are none."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max((last - first) // 6, 1)
    found = [10.0**k for k in range(first, last + 1, step)]
    if len(found) < 3:
        found = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
    return [v for v in found if low <= v <= high] or [low, high]


def numbers(values: Any) -> np.ndarray:
    """Anything like a list, an array or a tensor, as float64."""
    detach = getattr(values, "detach", None)
    array = np.asarray(detach().numpy() if detach is not None else values)
    if array.dtype.kind not in "fiub":
        array = array.astype(np.float64)
    return array.astype(np.float64)
