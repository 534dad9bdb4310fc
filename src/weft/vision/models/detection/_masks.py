"""Masks of detected objects: the targets of a mask head, and masks in the pixels of an image."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft.core.tensor import Tensor
from weft.vision.ops.pooling import roi_align


def project_masks_on_boxes(gt_masks: Tensor, boxes: Tensor, matched_idxs: Tensor, M: int) -> Tensor:
    """The part of its object's mask that each box covers, as M x M values."""
    rois = weft.cat([matched_idxs.to(boxes.dtype)[:, None], boxes], dim=1)
    return roi_align(gt_masks[:, None].to(rois.dtype), rois, (M, M), 1.0)[:, 0]


def maskrcnn_loss(
    mask_logits: Tensor,
    proposals: list[Tensor],
    gt_masks: list[Tensor],
    gt_labels: list[Tensor],
    mask_matched_idxs: list[Tensor],
) -> Tensor:
    """The loss of the mask of each proposal's true class."""
    size = mask_logits.shape[-1]
    rows = zip(gt_masks, proposals, mask_matched_idxs, strict=True)
    targets = weft.cat([project_masks_on_boxes(*row, size) for row in rows], dim=0)
    pairs = zip(gt_labels, mask_matched_idxs, strict=True)
    labels = weft.cat([label[places] for label, places in pairs], dim=0)
    if targets.numel() == 0:  # the mean of nothing would be NaN
        return mask_logits.sum() * 0
    chosen = mask_logits[weft.arange(labels.shape[0]), labels]
    return F.binary_cross_entropy_with_logits(chosen, targets)


def maskrcnn_inference(x: Tensor, labels: list[Tensor]) -> Any:
    """For each image the probabilities (N, 1, M, M) of the masks of the detected classes."""
    chosen = x.sigmoid()[weft.arange(x.shape[0]), weft.cat(labels)][:, None]
    return chosen.split([len(label) for label in labels], dim=0)


def expand_boxes(boxes: Tensor, scale: float) -> Tensor:
    """Boxes of another size around the same centres."""
    half = (boxes[:, 2:] - boxes[:, :2]) * 0.5 * scale
    centres = (boxes[:, 2:] + boxes[:, :2]) * 0.5
    return weft.cat([centres - half, centres + half], dim=1)


def expand_masks(mask: Tensor, padding: int) -> tuple[Tensor, float]:
    """Masks with a border of zeros, and by how much they have grown."""
    size = mask.shape[-1]
    return F.pad(mask, (padding,) * 4), float(size + 2 * padding) / size


def paste_mask_in_image(mask: Tensor, box: Tensor, im_h: int, im_w: int) -> Tensor:
    """One mask (M, M), resized to its box of whole pixels, in an image of zeros."""
    left, top, right, bottom = (int(n) for n in box.tolist())
    size = max(bottom - top + 1, 1), max(right - left + 1, 1)
    mask = F.interpolate(mask[None, None], size=size, mode="bilinear", align_corners=False)[0, 0]
    image = weft.zeros((im_h, im_w), dtype=mask.dtype)
    x0, x1 = max(left, 0), min(right + 1, im_w)
    y0, y1 = max(top, 0), min(bottom + 1, im_h)
    image[y0:y1, x0:x1] = mask[y0 - top : y1 - top, x0 - left : x1 - left]
    return image


def paste_masks_in_image(
    masks: Tensor, boxes: Tensor, img_shape: tuple[int, int], padding: int = 1
) -> Tensor:
    """Masks (N, 1, M, M) of boxes as masks (N, 1, H, W) of the image."""
    masks, scale = expand_masks(masks, padding)
    whole = expand_boxes(boxes, scale).to(weft.int64)
    height, width = img_shape
    found = [paste_mask_in_image(m[0], b, height, width) for m, b in zip(masks, whole, strict=True)]
    return weft.stack(found)[:, None] if found else masks.new_empty((0, 1, height, width))
