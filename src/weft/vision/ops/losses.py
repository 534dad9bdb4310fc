"""Losses of detectors: focal loss, and what boxes lack in overlap."""

from __future__ import annotations

import math

import weft
import weft.nn.functional as F
from weft.core.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def _reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean() if loss.numel() > 0 else 0.0 * loss.sum()
    if reduction == "sum":
        return loss.sum()
    if reduction != "none":
        raise ValueError(
            f"Invalid Value for arg 'reduction': '{reduction}' \n Supported reduction modes: "
            "'none', 'mean', 'sum'"
        )
    return loss


def sigmoid_focal_loss(
    inputs: Tensor, targets: Tensor, alpha: float = 0.25, gamma: float = 2, reduction: str = "none"
) -> Tensor:
    """Cross entropy of logits in which examples count less the surer the network is of them."""
    if not (0 <= alpha <= 1) and alpha != -1:
        raise ValueError(f"Invalid alpha value: {alpha}. alpha must be in the range [0,1] or -1.")
    p = weft.sigmoid(inputs)
    entropy = F.binary_cross_entropy_with_logits(inputs, targets, reduction="none")
    likely = p * targets + (1 - p) * (1 - targets)
    loss = entropy * ((1 - likely) ** gamma)
    if alpha >= 0:
        loss = (alpha * targets + (1 - alpha) * (1 - targets)) * loss
    if reduction not in _REDUCTIONS:
        return _reduced(loss, reduction)
    return loss.mean() if reduction == "mean" else _reduced(loss, reduction)


def _as_float(x: Tensor) -> Tensor:
    return x if x.dtype in (weft.float32, weft.float64) else x.float()


def _pairs(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Areas of intersection and union of boxes in pairs."""
    x1, y1, x2, y2 = boxes1.unbind(dim=-1)
    u1, v1, u2, v2 = boxes2.unbind(dim=-1)
    left, top = weft.max(x1, u1), weft.max(y1, v1)
    right, bottom = weft.min(x2, u2), weft.min(y2, v2)
    meet = (bottom > top) & (right > left)
    inter = weft.where(meet, (right - left) * (bottom - top), weft.zeros_like(x1))
    return inter, (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - inter


def _hull(boxes1: Tensor, boxes2: Tensor) -> tuple[Tensor, Tensor]:
    """Width and height of the boxes around boxes in pairs."""
    low = weft.min(boxes1[..., :2], boxes2[..., :2])
    high = weft.max(boxes1[..., 2:], boxes2[..., 2:])
    return (high - low).unbind(dim=-1)


def generalized_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """One less the generalized IoU of boxes in pairs."""
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    inter, union = _pairs(boxes1, boxes2)
    width, height = _hull(boxes1, boxes2)
    hull = width * height
    loss = 1 - (inter / (union + eps) - (hull - union) / (hull + eps))
    return _reduced(loss, reduction)


def _distance(boxes1: Tensor, boxes2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    inter, union = _pairs(boxes1, boxes2)
    iou = inter / (union + eps)
    width, height = _hull(boxes1, boxes2)
    diagonal = width**2 + height**2 + eps
    centre1 = (boxes1[..., :2] + boxes1[..., 2:]) / 2
    centre2 = (boxes2[..., :2] + boxes2[..., 2:]) / 2
    between = (centre1 - centre2) ** 2
    return 1 - iou + (between[..., 0] + between[..., 1]) / diagonal, iou


def distance_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """One less the distance IoU of boxes in pairs."""
    return _reduced(_distance(_as_float(boxes1), _as_float(boxes2), eps)[0], reduction)


def complete_box_iou_loss(
    boxes1: Tensor, boxes2: Tensor, reduction: str = "none", eps: float = 1e-7
) -> Tensor:
    """One less the complete IoU of boxes in pairs."""
    boxes1, boxes2 = _as_float(boxes1), _as_float(boxes2)
    loss, iou = _distance(boxes1, boxes2, eps)
    angle1 = weft.atan((boxes1[..., 2] - boxes1[..., 0]) / (boxes1[..., 3] - boxes1[..., 1]))
    angle2 = weft.atan((boxes2[..., 2] - boxes2[..., 0]) / (boxes2[..., 3] - boxes2[..., 1]))
    v = (4 / math.pi**2) * (angle2 - angle1) ** 2
    with weft.no_grad():
        alpha = v / (1 - iou + v + eps)
    return _reduced(loss + alpha * v, reduction)
