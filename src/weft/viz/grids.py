"""Heat maps, confusion matrices, and grids of small images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.viz import svg
from weft.viz.images import data_url

DARK_FROM = 0.75  # share of the strongest colour from which light words contrast more than dark
LEFT, TOP = 58.0, 66.0


def heat_map(
    values: Any,
    *,
    rows: Sequence[Any] | None = None,
    columns: Sequence[Any] | None = None,
    title: str = "",
    row_label: str = "",
    column_label: str = "",
    form: str = "{:.3g}",
    cell: float = 34,
) -> str:
    """A matrix as coloured cells with their numbers, as an SVG element."""
    array = svg.numbers(values)
    if array.ndim != 2:
        raise ValueError(f"heat_map: values are a matrix, not {array.ndim}-dimensional")
    finite = array[np.isfinite(array)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    shares = (array - min(low, 0.0)) / ((high - min(low, 0.0)) or 1.0)
    kinds = np.full(array.shape, "heat")
    words = [[form.format(v) for v in row] for row in array.tolist()]
    names = (rows, columns, row_label, column_label)
    return _cells(shares, kinds, words, names, title, cell)


def confusion_matrix(
    counts: Any,
    *,
    labels: Sequence[Any] | None = None,
    title: str = "",
    row_label: str = "true class",
    column_label: str = "predicted class",
    cell: float = 34,
) -> str:
    """How often each class was taken for each other one; hits and errors have their own colours."""
    array = svg.numbers(counts)
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise ValueError(f"confusion_matrix: counts are a square matrix, not {list(array.shape)}")
    right = np.eye(len(array), dtype=bool)
    hits = array / max(array[right].max(initial=0), 1)
    errors = array / max(array[~right].max(initial=0), 1)
    # A single error shall be seen, so its colour starts well above nothing.
    shares = np.where(right, hits, np.where(array > 0, 0.25 + 0.75 * errors, 0.0))
    kinds = np.where(right, "heat", "wrong")
    words = [[f"{int(v)}" if v else "·" for v in row] for row in array.tolist()]
    names = (labels, labels, row_label, column_label)
    return _cells(shares, kinds, words, names, title, cell)


def _cells(
    shares: np.ndarray, kinds: np.ndarray, words: list[list[str]], names: Any, title: str,
    cell: float,
) -> str:  # fmt: skip
    rows, columns, row_label, column_label = names
    height, width = shares.shape
    parts = [svg.text(title, 12, 18, class_="title")] if title else []
    if column_label:
        middle = LEFT + width * cell / 2
        parts.append(svg.text(column_label, middle, 42, class_="name", text_anchor="middle"))
    if row_label:
        place = f"translate(16 {svg.number(TOP + height * cell / 2)}) rotate(-90)"
        parts.append(
            svg.text(row_label, 0, 0, class_="name", text_anchor="middle", transform=place)
        )
    for j in range(width):
        shown = j if columns is None else columns[j]
        x = LEFT + (j + 0.5) * cell
        parts.append(svg.text(shown, x, TOP - 8, class_="tick", text_anchor="middle"))
    for i in range(height):
        shown = i if rows is None else rows[i]
        y = TOP + (i + 0.5) * cell + 4
        parts.append(svg.text(shown, LEFT - 10, y, class_="tick", text_anchor="end"))
        for j in range(width):
            parts.append(_cell(i, j, float(shares[i, j]), str(kinds[i, j]), words[i][j], cell))
    return svg.picture(LEFT + width * cell + 14, TOP + height * cell + 14, title, *parts)


def _cell(i: int, j: int, share: float, kind: str, word: str, cell: float) -> str:
    x, y = LEFT + j * cell, TOP + i * cell
    share = min(max(share, 0.0), 1.0) if share == share else 0.0
    box = {"x": x + 1, "y": y + 1, "width": cell - 2, "height": cell - 2, "rx": 4}
    strong = "strong" if share >= DARK_FROM else "weak" if share else "none"
    return svg.element(
        "g",
        svg.element("rect", class_="cell", **box),
        svg.element("rect", class_=kind, fill_opacity=share, **box) if share else "",
        svg.text(word, x + cell / 2, y + cell / 2 + 4, class_=strong, text_anchor="middle"),
    )


def image_grid(
    images: Sequence[Any],
    *,
    captions: Sequence[str] | None = None,
    title: str = "",
    columns: int = 8,
    size: float = 72,
    ink: bool = False,
) -> str:
    """Small images side by side with words below, as an SVG element.

    An image is what ``weft.viz.png`` takes, or a list of such, one over the other. With ``ink`` a
    grey image is drawn in the colour of the text, where it is not zero, on nothing.
    """
    if captions is not None and len(captions) != len(images):
        raise ValueError(f"image_grid: {len(captions)} captions for {len(images)} images")
    lines = max((len(c.split("\n")) for c in captions or ()), default=0)
    top, gap = (34.0 if title else 6.0), 12.0
    step = size + gap + 15 * lines
    parts = [svg.text(title, 6, 18, class_="title")] if title else []
    for k, image in enumerate(images):
        x, y = 6 + k % columns * (size + gap), top + k // columns * step
        parts.append(svg.element("rect", class_="tile", x=x, y=y, width=size, height=size, rx=6))
        for layer in image if isinstance(image, list) else [image]:
            array = svg.numbers(layer)
            flat = ink and array.ndim == 2
            if flat:
                array = np.stack([np.zeros_like(array), array], axis=-1)
            parts.append(
                svg.element(
                    "image", href=data_url(array), class_="ink" if flat else "pixels",
                    x=x + 3, y=y + 3, width=size - 6, height=size - 6,
                )
            )  # fmt: skip
        for n, words in enumerate(captions[k].split("\n") if captions else ()):
            parts.append(
                svg.text(
                    words, x + size / 2, y + size + 15 + 15 * n, text_anchor="middle",
                    class_="caption" if n == 0 else "note",
                )
            )  # fmt: skip
    count = max(min(columns, len(images)), 1)
    height = top + -(-len(images) // columns) * step
    return svg.picture(12 + count * (size + gap) - gap, height, title or "images", *parts)
