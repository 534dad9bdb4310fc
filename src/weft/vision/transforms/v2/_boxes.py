"""What geometric transforms do to boxes and points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import weft
from weft.core.tensor import Tensor
from weft.vision.ops.boxes import box_convert
from weft.vision.transforms import _geometry, _tensor
from weft.vision.tv_tensors import BoundingBoxes, KeyPoints, is_rotated_bounding_format, wrap

Size = tuple[int, int]
Move = Callable[[Tensor], Tensor]  # of points (N, 2)


def convert(boxes: Tensor, old: Any, new: Any) -> Tensor:
    """Boxes in another format; integers stay integers."""
    if old == new:
        return boxes
    result = box_convert(
        boxes if boxes.is_floating_point() else boxes.float(), old.value.lower(), new.value.lower()
    )
    return result.to(boxes.dtype)


def _corners(boxes: Any) -> Tensor:
    if is_rotated_bounding_format(boxes.format):
        raise NotImplementedError(
            f"transforms of rotated boxes ({boxes.format.name}) are not implemented; convert them "
            "to XYXY boxes around them first"
        )
    plain = boxes.as_subclass(Tensor)
    plain = plain if plain.is_floating_point() else plain.float()
    return box_convert(plain, boxes.format.value.lower(), "xyxy")


def clamped(corners: Tensor, canvas: Size, mode: str | None) -> Tensor:
    """Corners inside the canvas, unless the mode is None."""
    if mode is None:
        return corners
    xs, ys = corners[..., 0::2].clamp(0, canvas[1]), corners[..., 1::2].clamp(0, canvas[0])
    return weft.stack((xs, ys), -1).flatten(-2)


def moved(boxes: Any, move: Move, canvas: Size, clamp: bool) -> Any:
    """Boxes around the moved corners of boxes, on a new canvas."""
    corners = _corners(boxes)
    if corners.numel():
        points = corners[:, [[0, 1], [2, 1], [2, 3], [0, 3]]].reshape(-1, 2)
        points = move(points).reshape(-1, 4, 2)
        corners = weft.cat([points.amin(dim=1), points.amax(dim=1)], dim=1)
    if clamp:
        corners = clamped(corners, canvas, boxes.clamping_mode)
    result = box_convert(corners, "xyxy", boxes.format.value.lower()).to(boxes.dtype)
    return wrap(result, like=boxes, canvas_size=canvas)


def moved_points(points: Any, move: Move, canvas: Size) -> Any:
    """Moved points, on a new canvas."""
    plain = points.as_subclass(Tensor)
    kind = plain.dtype if plain.is_floating_point() else weft.float32
    result = move(plain.to(kind).reshape(-1, 2)).reshape(plain.shape).to(plain.dtype)
    return wrap(result, like=points, canvas_size=canvas)


def clamp_bounding_boxes(
    inpt: Any, format: Any = None, canvas_size: Any = None, clamping_mode: str | None = "auto"
) -> Any:
    """Boxes cut off at the edges of their canvas."""
    if not isinstance(inpt, BoundingBoxes):
        if format is None or canvas_size is None:
            raise ValueError(
                "For pure tensor inputs, `format` and `canvas_size` have to be passed."
            )
        boxes = BoundingBoxes(inpt, format=format, canvas_size=canvas_size)
        return clamp_bounding_boxes(boxes, clamping_mode=clamping_mode).as_subclass(Tensor)
    mode = inpt.clamping_mode if clamping_mode == "auto" else clamping_mode
    corners = clamped(_corners(inpt), inpt.canvas_size, mode)
    result = box_convert(corners, "xyxy", inpt.format.value.lower()).to(inpt.dtype)
    return wrap(result, like=inpt)


def clamp_keypoints(inpt: Any, canvas_size: Any = None) -> Any:
    """Points moved to the nearest pixel of their canvas."""
    height, width = canvas_size if canvas_size is not None else inpt.canvas_size
    plain = inpt.as_subclass(Tensor)
    xs, ys = plain[..., 0].clamp(0, width - 1), plain[..., 1].clamp(0, height - 1)
    result = weft.stack((xs, ys), -1).to(plain.dtype)
    return wrap(result, like=inpt) if isinstance(inpt, KeyPoints) else result


# --- the moves -------------------------------------------------------------------------------


def flip(canvas: Size, horizontal: bool, edge: int = 0) -> Move:
    """A mirror image; pixels count from their centres with ``edge=1``."""
    place, size = (0, canvas[1]) if horizontal else (1, canvas[0])

    def move(points: Tensor) -> Tensor:
        result = points.clone()
        result[:, place] = (size - edge) - points[:, place]
        return result

    return move


def shift(x: float, y: float) -> Move:
    """A translation."""
    return lambda points: points + weft.tensor([x, y], dtype=points.dtype)


def scale(old: Size, new: Size) -> Move:
    """A change of size."""
    ratios = [new[1] / old[1], new[0] / old[0]]
    return lambda points: points * weft.tensor(ratios, dtype=points.dtype)


def linear(matrix: list[float]) -> Move:
    """An affine map from input to result."""

    def move(points: Tensor) -> Tensor:
        theta = weft.tensor(matrix, dtype=points.dtype).reshape(2, 3)
        ones = weft.ones((len(points), 1), dtype=points.dtype)
        return weft.matmul(weft.cat([points, ones], dim=-1), theta.T)

    return move


def expanded(canvas: Size, matrix: list[float], inverse: list[float]) -> tuple[Size, Move]:
    """The canvas that a rotation needs, and the move onto it."""
    height, width = canvas
    corners = weft.tensor([[0.0, 0.0], [0.0, height], [width, height], [width, 0.0]])
    low = linear(matrix)(corners).amin(dim=0)
    size = _tensor._expanded_size(inverse, height, width)
    turn = linear(matrix)
    return size, lambda points: turn(points) - low.to(points.dtype)


def perspective(coefficients: list[float]) -> Move:
    """A perspective map from input to result, by coefficients from result to input."""
    matrix = np.array([*coefficients, 1.0]).reshape(3, 3)
    if matrix[0, 0] * matrix[1, 1] == matrix[0, 1] * matrix[1, 0]:
        raise RuntimeError(
            f"Provided perspective_coeffs {coefficients} can not be inverted to transform "
            "bounding boxes."
        )
    inverse = np.linalg.inv(matrix)
    inverse /= inverse[2, 2]

    def move(points: Tensor) -> Tensor:
        ones = weft.ones((len(points), 1), dtype=points.dtype)
        flat = weft.matmul(
            weft.cat([points, ones], dim=-1), weft.tensor(inverse.T, dtype=points.dtype)
        )
        return flat[:, :2] / flat[:, 2:]

    return move


def elastic(canvas: Size, displacement: Tensor, up: bool = True) -> Move:
    """The opposite of a displacement, read at the pixels where points lie."""
    height, width = canvas

    def move(points: Tensor) -> Tensor:
        field = displacement.to(points.dtype)[0]
        rows = weft.linspace((-height + 1) / height, (height - 1) / height, height)
        columns = weft.linspace((-width + 1) / width, (width - 1) / width, width)
        y, x = weft.meshgrid(rows, columns, indexing="ij")
        grid = weft.stack([x, y], -1).to(points.dtype) - field
        places = (points.ceil() if up else points).long()
        found = grid[places[:, 1].clamp(0, height - 1), places[:, 0].clamp(0, width - 1)]
        return (found + 1) * (0.5 * weft.tensor([width, height], dtype=points.dtype)) - 0.5

    return move


def pads(padding: Any) -> tuple[int, int, int, int]:
    """Left, top, right, bottom."""
    return _geometry.sides(padding)
