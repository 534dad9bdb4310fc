"""Files for TensorBoard's projector: points, their labels and pictures, and a list of them."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import errors
from weft.io.atomic import replacing
from weft.utils.tensorboard import _pictures as pictures
from weft.utils.tensorboard._pictures import as_array


class Projector:
    """The embeddings of a log folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.entries: list[str] = []

    def add(
        self, mat: Any, metadata: Any, label_img: Any, step: int, tag: str, header: Any
    ) -> None:
        """Write the files of one embedding, then the list of all of them."""
        points, images = as_array(mat), None if label_img is None else as_array(label_img)
        _check(points, metadata, images, header)
        place = f"{str(step).zfill(5)}/{_encoded(tag)}"
        target = os.path.join(self.folder, place)
        if os.path.isdir(target):
            errors.warn(
                "Embedding dir exists, did you set global_step for add_embedding()? "
                f"{target!r} is written over"
            )
        elif os.path.exists(target):
            raise NotADirectoryError(f"Path: `{target}` exists, but is a file. Cannot proceed.")
        os.makedirs(target, exist_ok=True)
        entry = [("tensor_name", f"{tag}:{str(step).zfill(5)}")]
        if metadata is not None:
            _write(target, "metadata.tsv", _labels(metadata, header).encode())
            entry.append(("metadata_path", f"{place}/metadata.tsv"))
        sprite = ""
        if images is not None:
            _write(target, "sprite.png", _sprite(images))
            size = "".join(
                f"    single_image_dim: {n}\n" for n in (images.shape[3], images.shape[2])
            )
            sprite = f"  sprite {{\n    image_path: {_quoted(place + '/sprite.png')}\n{size}  }}\n"
        rows = "".join("\t".join(map(str, row)) + "\n" for row in points.tolist())
        _write(target, "tensors.tsv", rows.encode())
        lines = "".join(f"  {name}: {_quoted(value)}\n" for name, value in entry)
        lines += f"{sprite}  tensor_path: {_quoted(place + '/tensors.tsv')}\n"
        self.entries.append(f"embeddings {{\n{lines}}}\n")
        _write(self.folder, "projector_config.pbtxt", "".join(self.entries).encode())


def _check(points: np.ndarray, metadata: Any, images: Any, header: Any) -> None:
    """Everything that can be wrong, before anything is written."""
    problem = None
    if points.ndim != 2:
        problem = "mat should be 2D, where mat.size(0) is the number of data points; it has shape "
        problem += str(points.shape)
    elif metadata is not None and len(metadata) != len(points):
        problem = f"#labels should equal with #data points: {len(metadata)} and {len(points)}"
    elif images is not None and (images.ndim != 4 or len(images) != len(points)):
        problem = (
            "#images should equal with #data points: label_img is (N, C, H, W), and has shape "
        )
        problem += f"{images.shape} for {len(points)} points"
    elif header and any(len(row) != len(header) for row in metadata or ()):
        problem = "len of header must be equal to the number of columns in metadata"
    if problem:
        raise AssertionError(f"{problem}\n  at {errors.here()}")


def _labels(metadata: Sequence[Any], header: Sequence[str] | None) -> str:
    if not header:
        return "".join(f"{_cell(row)}\n" for row in metadata)
    rows = [header, *metadata]
    return "".join("\t".join(_cell(part) for part in row) + "\n" for row in rows)


def _cell(value: Any) -> str:
    """Text that can't end its cell."""
    return " ".join(str(value).replace("\t", " ").splitlines())


def _sprite(images: np.ndarray) -> bytes:
    """All images in one square picture."""
    laid = pictures.grid(images, columns=math.ceil(math.sqrt(len(images)))).transpose(1, 2, 0)
    square = np.zeros((max(laid.shape[0], laid.shape[1]), laid.shape[1], 3), np.uint8)
    square[: len(laid)] = pictures.as_bytes(laid)
    return pictures.png(square)


def _encoded(tag: str) -> str:
    """A tag as the name of a folder."""
    for char in "%/\\":
        tag = tag.replace(char, f"%{ord(char):02x}")
    return {".": "%2e", "..": "%2e%2e"}.get(tag, tag)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _write(folder: str, name: str, content: bytes) -> None:
    with replacing(os.path.join(folder, name)) as file:
        file.write(content)
