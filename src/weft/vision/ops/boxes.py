"""Boxes as (x1, y1, x2, y2): areas, overlaps, conversions and suppression."""

from __future__ import annotations

import math
from typing import Any

import weft
from weft.core import errors
from weft.core.tensor import Tensor
from weft.operators.regions import nms_op

_FORMATS = ("xyxy", "xywh", "cxcywh")
_ROTATED = ("xywhr", "cxcywhr", "xyxyxyxy")


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Places of the boxes that no kept box of a higher score overlaps by more than a threshold."""
    if boxes.ndim != 2 or boxes.shape[1] != 4 or tuple(scores.shape) != (len(boxes),):
        raise RuntimeError(
            f"nms: boxes should be of shape (N, 4) and scores of shape (N,), got "
            f"{list(boxes.shape)} and {list(scores.shape)}\n  at {errors.here()}"
        )
    return nms_op(boxes.detach(), scores.detach(), iou_threshold=float(iou_threshold))


def batched_nms(boxes: Tensor, scores: Tensor, idxs: Tensor, iou_threshold: float) -> Tensor:
    """``nms`` within each category; places come by falling score."""
    if boxes.numel() > 4000:
        keep = weft.zeros_like(scores, dtype=weft.bool)
        for category in weft.unique(idxs):
            places = weft.where(idxs == category)[0]
            keep[places[nms(boxes[places], scores[places], iou_threshold)]] = True
        kept = weft.where(keep)[0]
        return kept[scores[kept].sort(descending=True)[1]]
    if boxes.numel() == 0:
        return weft.empty((0,), dtype=weft.int64)
    # Boxes of different categories are moved so far apart that they don't meet.
    apart = idxs.to(boxes) * (boxes.max() + weft.tensor(1).to(boxes))
    return nms(boxes + apart[:, None], scores, iou_threshold)


def remove_small_boxes(boxes: Tensor, min_size: float) -> Tensor:
    """Places of boxes with both sides at least ``min_size``."""
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    return weft.where((width >= min_size) & (height >= min_size))[0]


def clip_boxes_to_image(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Boxes cut off at the edges of an image of (height, width)."""
    height, width = size
    xs, ys = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return weft.stack((xs, ys), dim=boxes.dim()).reshape(boxes.shape)


def box_convert(boxes: Tensor, in_fmt: str, out_fmt: str) -> Tensor:
    """Boxes in another format: xyxy, xywh, cxcywh, or with a rotation xywhr, cxcywhr, xyxyxyxy."""
    known = _FORMATS + _ROTATED
    if in_fmt not in known or out_fmt not in known:
        raise ValueError(
            f"box_convert: unsupported formats {in_fmt!r} and {out_fmt!r}; there are {known}"
        )
    if in_fmt == out_fmt:
        return boxes.clone()
    if (in_fmt in _ROTATED) != (out_fmt in _ROTATED):
        raise ValueError(f"box_convert: no conversion between {in_fmt!r} and {out_fmt!r}")
    if in_fmt in _ROTATED:
        return _FROM_ROTATED[out_fmt](_TO_ROTATED[in_fmt](boxes))
    return _FROM_CORNERS[out_fmt](_TO_CORNERS[in_fmt](boxes))


def _parts(boxes: Tensor) -> Any:
    return boxes.unbind(-1)


def _from_sides(boxes: Tensor) -> Tensor:
    x, y, w, h = _parts(boxes)
    return weft.stack((x, y, x + w, y + h), dim=-1)


def _to_sides(boxes: Tensor) -> Tensor:
    x1, y1, x2, y2 = _parts(boxes)
    return weft.stack((x1, y1, x2 - x1, y2 - y1), dim=-1)


def _from_centre(boxes: Tensor) -> Tensor:
    cx, cy, w, h = _parts(boxes)
    half_w, half_h = 0.5 * w, 0.5 * h
    return weft.stack((cx - half_w, cy - half_h, cx + half_w, cy + half_h), dim=-1)


def _to_centre(boxes: Tensor) -> Tensor:
    x1, y1, x2, y2 = _parts(boxes)
    return weft.stack(((x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1), dim=-1)


_TO_CORNERS = {"xyxy": lambda boxes: boxes, "xywh": _from_sides, "cxcywh": _from_centre}
_FROM_CORNERS = {"xyxy": lambda boxes: boxes, "xywh": _to_sides, "cxcywh": _to_centre}


def _turn(degrees: Tensor) -> tuple[Tensor, Tensor]:
    angle = degrees * math.pi / 180
    return angle.cos(), angle.sin()


def _centre_of_sides(boxes: Tensor) -> Tensor:
    x1, y1, w, h, degrees = _parts(boxes)
    cos, sin = _turn(degrees)
    cx = x1 + w / 2 * cos + h / 2 * sin
    cy = y1 - w / 2 * sin + h / 2 * cos
    return weft.stack((cx, cy, w, h, degrees), dim=-1)


def _sides_of_centre(boxes: Tensor) -> Tensor:
    cx, cy, w, h, degrees = _parts(boxes)
    cos, sin = _turn(degrees)
    x1 = cx - w / 2 * cos - h / 2 * sin
    y1 = cy - h / 2 * cos + w / 2 * sin
    return weft.stack((x1, y1, w, h, degrees), dim=-1)


def _corners_of_centre(boxes: Tensor) -> Tensor:
    x1, y1, w, h, degrees = _parts(_sides_of_centre(boxes))
    cos, sin = _turn(degrees)
    x2, y2 = x1 + w * cos, y1 - w * sin
    x3, y3 = x2 + h * sin, y2 + h * cos
    x4, y4 = x1 + h * sin, y1 + h * cos
    return weft.stack((x1, y1, x2, y2, x3, y3, x4, y4), dim=-1)


def _centre_of_corners(boxes: Tensor) -> Tensor:
    x1, y1, x2, y2, x3, y3, _, _ = _parts(boxes)
    degrees = weft.atan2(y1 - y2, x2 - x1) * 180 / math.pi
    w = ((x2 - x1) ** 2 + (y1 - y2) ** 2).sqrt()
    h = ((x3 - x2) ** 2 + (y3 - y2) ** 2).sqrt()
    return _centre_of_sides(weft.stack((x1, y1, w, h, degrees), dim=-1))


_TO_ROTATED = {
    "xywhr": _centre_of_sides,
    "cxcywhr": lambda boxes: boxes,
    "xyxyxyxy": _centre_of_corners,
}
_FROM_ROTATED = {
    "xywhr": _sides_of_centre,
    "cxcywhr": lambda boxes: boxes,
    "xyxyxyxy": _corners_of_centre,
}


def _widened(x: Tensor) -> Tensor:
    """A type in which areas of boxes can be held."""
    if x.is_floating_point():
        return x.float() if x.dtype in (weft.float16, weft.bfloat16) else x
    return x if x.dtype in (weft.int32, weft.int64) else x.int()


def box_area(boxes: Tensor, fmt: str = "xyxy") -> Tensor:
    """The areas of boxes."""
    boxes = _widened(boxes)
    if fmt == "xyxy":
        return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    if fmt in ("xywh", "cxcywh"):
        return boxes[..., 2] * boxes[..., 3]
    raise ValueError(f"box_area: unsupported format {fmt!r}; there are {_FORMATS}")


def _shared(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> tuple[Tensor, Tensor]:
    """Areas of intersection and union of each box with each."""
    area1, area2 = box_area(boxes1, fmt), box_area(boxes2, fmt)
    boxes1, boxes2 = _TO_CORNERS[fmt](boxes1), _TO_CORNERS[fmt](boxes2)
    top_left = weft.max(boxes1[..., None, :2], boxes2[..., None, :, :2])
    bottom_right = weft.min(boxes1[..., None, 2:], boxes2[..., None, :, 2:])
    sides = _widened(bottom_right - top_left).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    return inter, area1[..., None] + area2[..., None, :] - inter


def box_iou(boxes1: Tensor, boxes2: Tensor, fmt: str = "xyxy") -> Tensor:
    """Intersection over union of each box with each."""
    if fmt not in _FORMATS:
        raise ValueError(f"box_iou: unsupported format {fmt!r}; there are {_FORMATS}")
    inter, union = _shared(boxes1, boxes2, fmt)
    return inter / union


def _hull(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """Sides of the smallest boxes around each box with each."""
    top_left = weft.min(boxes1[:, None, :2], boxes2[:, :2])
    bottom_right = weft.max(boxes1[:, None, 2:], boxes2[:, 2:])
    return _widened(bottom_right - top_left).clamp(min=0)


def generalized_box_iou(boxes1: Tensor, boxes2: Tensor) -> Tensor:
    """IoU less the share of the hull that neither covers, of each box with each."""
    inter, union = _shared(boxes1, boxes2)
    sides = _hull(boxes1, boxes2)
    hull = sides[:, :, 0] * sides[:, :, 1]
    return inter / union - (hull - union) / hull


def _distance_iou(boxes1: Tensor, boxes2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    iou = box_iou(boxes1, boxes2)
    sides = _hull(boxes1, boxes2)
    diagonal = sides[:, :, 0] ** 2 + sides[:, :, 1] ** 2 + eps
    x1, y1 = (boxes1[:, 0] + boxes1[:, 2]) / 2, (boxes1[:, 1] + boxes1[:, 3]) / 2
    x2, y2 = (boxes2[:, 0] + boxes2[:, 2]) / 2, (boxes2[:, 1] + boxes2[:, 3]) / 2
    between = _widened(x1[:, None] - x2[None]) ** 2 + _widened(y1[:, None] - y2[None]) ** 2
    return iou - between / diagonal, iou


def distance_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """IoU less the squared distance of centres by the hull's diagonal, of each box with each."""
    return _distance_iou(_widened(boxes1), _widened(boxes2), eps)[0]


def complete_box_iou(boxes1: Tensor, boxes2: Tensor, eps: float = 1e-7) -> Tensor:
    """Distance IoU less a term for unequal aspect ratios, of each box with each."""
    boxes1, boxes2 = _widened(boxes1), _widened(boxes2)
    distance, iou = _distance_iou(boxes1, boxes2, eps)
    angle1 = weft.atan((boxes1[:, 2] - boxes1[:, 0]) / (boxes1[:, 3] - boxes1[:, 1]))
    angle2 = weft.atan((boxes2[:, 2] - boxes2[:, 0]) / (boxes2[:, 3] - boxes2[:, 1]))
    v = 4 / math.pi**2 * (angle1[:, None] - angle2[None]) ** 2
    with weft.no_grad():
        alpha = v / (1 - iou + v + eps)
    return distance - alpha * v


def masks_to_boxes(masks: Tensor) -> Tensor:
    """The smallest boxes around the non-zero pixels of masks (N, H, W)."""
    if masks.numel() == 0:
        return weft.zeros((0, 4), dtype=weft.float)
    found = weft.zeros((masks.shape[0], 4), dtype=weft.float)
    for i, mask in enumerate(masks):
        ys, xs = weft.where(mask != 0)
        if len(xs):
            corners = [xs.min().item(), ys.min().item(), xs.max().item(), ys.max().item()]
            found[i] = weft.tensor(corners, dtype=weft.float)
    return found
