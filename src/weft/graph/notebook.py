"""How notebooks show things: tensors with a small picture, modules, graphs and differences."""

from __future__ import annotations

import base64
import html
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core.devices import visible
from weft.core.meta import MetaArray
from weft.core.tensor import Tensor
from weft.graph.spec import show_kind
from weft.graph.stats import describe

if TYPE_CHECKING:
    from weft.graph.comparing import Diff
    from weft.graph.graph import Graph

SIDE = 96  # pixels of an array that are drawn, along each side
PLANES = 6  # matrices of a larger array that are drawn
DRAWN = 4000  # nodes up to which a notebook holds the drawing; above, the table
_LINES = 400  # modules that are listed
_TOLD = 40  # differences of a sort
_TEXT = "font-size:12px;line-height:1.45"
_SOFT = "opacity:.72"


def tensor_html(tensor: Tensor) -> str:
    """A tensor as it prints, and beside it what its values look like."""
    style = f"margin:0;max-height:260px;max-width:620px;overflow:auto;{_TEXT}"
    text = f'<pre style="{style}">{html.escape(repr(tensor))}</pre>'
    # On meta and inside vmap there are no values.
    picture = "" if isinstance(tensor._a, MetaArray) else _picture(visible(tensor))
    if not picture:
        return text
    words = f"{show_kind(tensor._a.shape, tensor._a.dtype)}, {describe(tensor._a)}"
    return (
        f'<div style="display:flex;flex-wrap:wrap;gap:16px;align-items:flex-start">{text}'
        f'<figure style="margin:0;flex:1;min-width:200px">{picture}'
        f'<figcaption style="{_TEXT};{_SOFT};max-width:34em">'
        f"{html.escape(words)}</figcaption></figure></div>"
    )


def _picture(array: np.ndarray) -> str:
    if array.size < 4 or array.ndim == 0 or array.dtype.kind not in "fiubcV":
        return ""
    values = np.abs(array) if array.dtype.kind == "c" else array
    values = np.asarray(values, np.float32)
    values = values.reshape([n for n in values.shape if n != 1] or [1])
    if values.ndim == 1:
        return _curve(values)
    if values.ndim == 3 and values.shape[0] == 3 and _like_pixels(array):
        return _image(_channels(_thinned(values), array.dtype == np.uint8))
    planes = values.reshape(-1, *values.shape[-2:])[:PLANES]
    return "".join(_image(_heat(_thinned(plane[None])[0], planes)) for plane in planes)


def _like_pixels(array: np.ndarray) -> bool:
    """Whether three planes are red, green and blue: bytes, or numbers from 0 to 1."""
    if array.dtype == np.uint8:
        return True
    return array.dtype.kind in "fV" and bool((array >= 0).all() and (array <= 1).all())


def _thinned(planes: np.ndarray) -> np.ndarray:
    """At most so many rows and columns, evenly chosen."""
    picks = [np.linspace(0, n - 1, min(n, SIDE)).round().astype(int) for n in planes.shape[1:]]
    return planes[:, picks[0]][:, :, picks[1]]


def _channels(planes: np.ndarray, bytes_: bool) -> np.ndarray:
    scaled = planes if bytes_ else planes * 255
    return np.ascontiguousarray(scaled.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))


def _heat(plane: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Blue below zero, white at zero, red above; what is not finite is grey."""
    finite = np.abs(whole[np.isfinite(whole)])
    most = float(finite.max()) if finite.size else 0.0
    good = np.isfinite(plane)
    level = np.where(good, plane, 0) / (most or 1.0)
    ends = np.where(level[..., None] < 0, (33.0, 96.0, 176.0), (190.0, 44.0, 36.0))
    pixels = 250 + (ends - 250) * np.abs(level)[..., None]
    pixels[~good] = 110
    return pixels.clip(0, 255).astype(np.uint8)


def _image(pixels: np.ndarray) -> str:
    height, width = pixels.shape[:2]
    data = importlib.import_module("weft.utils.tensorboard._pictures").png(pixels)
    grow = max(1, min(14, 168 // max(height, width)))
    return (
        f'<img alt="values as a picture" width="{width * grow}" height="{height * grow}" '
        'style="image-rendering:pixelated;margin:0 6px 4px 0;border:1px solid #8886" '
        f'src="data:image/png;base64,{base64.b64encode(data).decode()}">'
    )


def _curve(values: np.ndarray) -> str:
    """A line from the first element to the last."""
    if len(values) > 4 * SIDE:
        values = values[np.linspace(0, len(values) - 1, 4 * SIDE).round().astype(int)]
    finite = values[np.isfinite(values)]
    if not finite.size:
        return ""
    low, high = float(finite.min()), float(finite.max())
    xs = np.linspace(2, 238, len(values))
    ys = 60 - 56 * (values - low) / ((high - low) or 1.0)
    points, pen = [], False
    for x, y in zip(xs, ys, strict=True):
        if np.isfinite(y):
            points.append(f"{'L' if pen else 'M'}{x:.1f} {y:.1f}")
        pen = bool(np.isfinite(y))
    return (
        '<svg width="240" height="64" viewBox="0 0 240 64" role="img" aria-label="values in order">'
        f'<path d="{"".join(points)}" fill="none" stroke="#5b6ee1" stroke-width="1.5"/></svg>'
    )


# --- modules ---


def module_html(module: Any) -> str:
    """A module's parts as a tree that opens, with the number of their parameters."""
    left = [_LINES]
    tree = _module(module, "", left, 0)
    more = f'<div style="{_SOFT}">and more modules</div>' if left[0] <= 0 else ""
    return f'<div style="font-family:monospace;{_TEXT}">{tree}{more}</div>'


def _module(module: Any, name: str, left: list[int], level: int) -> str:
    left[0] -= 1
    if left[0] <= 0:
        return ""
    count = sum(p.numel() for p in module.parameters())
    label = f"<b>{html.escape(name)}</b> " if name else ""
    extra = html.escape(" ".join(module.extra_repr().split()))
    words = f"{label}{html.escape(type(module).__name__)}" + (f"({extra})" if extra else "")
    words += f' <span style="{_SOFT}">{count:,} parameters</span>' if count else ""
    if not module._modules:
        return f'<div style="padding-left:14px">{words}</div>'
    inner = "".join(
        _module(child, names, left, level + 1)
        for names, child in _runs(module._modules)
        if child is not None
    )
    opened = " open" if level < 1 or len(module._modules) < 4 else ""
    return (
        f"<details{opened}><summary>{words}</summary>"
        f'<div style="padding-left:14px">{inner}</div></details>'
    )


def _runs(children: dict[str, Any]) -> list[tuple[str, Any]]:
    """Children, with those that print alike one after another under one name: ``0 … 11 ×12``."""
    found: list[tuple[str, str, int, str, Any]] = []
    for name, child in children.items():
        text = repr(child)
        if found and found[-1][3] == text:
            first, _, count, _, kept = found[-1]
            found[-1] = (first, name, count + 1, text, kept)
        else:
            found.append((name, name, 1, text, child))
    shown = []
    for first, last, count, _, child in found:
        if count > 2:
            shown.append((f"{first} \u2026 {last} \u00d7{count}", child))
        else:
            shown += [(n, c) for n, c in children.items() if n in (first, last)]
    return shown


# --- graphs and differences ---


def graph_html(graph: Graph) -> str:
    """The drawing, in a frame of its own; of very large graphs the sums by module."""
    if not graph._specs or len(graph._specs) > DRAWN:
        return f'<pre style="{_TEXT}">{html.escape(repr(graph))}</pre>' if not graph._specs else (
            f"<p>{len(graph):,} nodes: <code>weft.graph.show(g)</code> draws them</p>"
            + graph.summary()._repr_html_()
        )  # fmt: skip
    return (
        '<iframe title="weft graph" sandbox="allow-scripts allow-downloads" '
        'style="width:100%;height:640px;border:1px solid #8886;border-radius:8px" '
        f'srcdoc="{html.escape(graph.to_html())}"></iframe>'
    )


def diff_html(diff: Diff) -> str:
    """The differences, coloured by sort; the first of them stands out."""
    lines = repr(diff).splitlines()
    colours = {"+": "#18804b", "-": "#c62828", "~": "#b25e00"}
    shown, counts = [], dict.fromkeys(colours, 0)
    for line in lines:
        sort = line[:1] if line[1:2] == " " and line[:1] in colours else ""
        if sort:
            counts[sort] += 1
            if counts[sort] > _TOLD:
                continue
        style = f"border-left:3px solid {colours[sort]}" if sort else "font-weight:600"
        shown.append(f'<div style="{style};padding:1px 8px">{html.escape(line)}</div>')
    hidden = sum(max(0, n - _TOLD) for n in counts.values())
    if hidden:
        shown.insert(-1, f'<div style="padding:1px 8px">... and {hidden} more differences</div>')
    return f'<div style="font-family:monospace;{_TEXT};overflow-x:auto">{"".join(shown)}</div>'
