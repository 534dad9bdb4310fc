"""Keypoints of detected objects, as places in the heatmaps of a keypoint head."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft.core.tensor import Tensor


def keypoints_to_heatmap(
    keypoints: Tensor, rois: Tensor, heatmap_size: int
) -> tuple[Tensor, Tensor]:
    """The cell of a box's heatmap that each keypoint is in, and whether it is in it and visible."""
    cells = []
    for axis in (0, 1):
        at, low, high = keypoints[..., axis], rois[:, axis][:, None], rois[:, axis + 2][:, None]
        cell = ((at - low) * (heatmap_size / (high - low))).floor().long()
        cell[at == high] = heatmap_size - 1
        cells.append(cell)
    x, y = cells
    inside = (x >= 0) & (y >= 0) & (x < heatmap_size) & (y < heatmap_size)
    valid = (inside & (keypoints[..., 2] > 0)).long()
    return (y * heatmap_size + x) * valid, valid


def keypointrcnn_loss(
    keypoint_logits: Tensor,
    proposals: list[Tensor],
    gt_keypoints: list[Tensor],
    keypoint_matched_idxs: list[Tensor],
) -> Tensor:
    """The entropy of the cells of each visible keypoint's heatmap."""
    count, kinds, height, width = keypoint_logits.shape
    if height != width:
        raise ValueError(
            "keypoint_logits height and width (last two elements of shape) should be equal. "
            f"Instead got H = {height} and W = {width}"
        )
    rows = zip(proposals, gt_keypoints, keypoint_matched_idxs, strict=True)
    pairs = [keypoints_to_heatmap(points[places], boxes, height) for boxes, points, places in rows]
    targets, valid = (weft.cat([p.view(-1) for p in part]) for part in zip(*pairs, strict=True))
    seen = weft.where(valid)[0]
    if targets.numel() == 0 or len(seen) == 0:  # the mean of nothing would be NaN
        return keypoint_logits.sum() * 0
    flat = keypoint_logits.view(count * kinds, height * width)
    return F.cross_entropy(flat[seen], targets[seen])


def _one_box(maps: Tensor, roi: Tensor) -> tuple[Tensor, Tensor]:
    """Places (3, keypoints) and scores of the maxima of a box's heatmaps."""
    size = (roi[2:] - roi[:2]).clamp(min=1)
    width, height = (int(n) for n in size.ceil().tolist())
    wide = F.interpolate(maps[:, None], size=(height, width), mode="bicubic", align_corners=False)
    wide = wide[:, 0]
    place = wide.reshape(len(wide), -1).argmax(dim=1)
    column = place % width
    row = weft.div(place - column, width, rounding_mode="floor")
    x = (column.float() + 0.5) * (size[0] / width) + roi[0]
    y = (row.float() + 0.5) * (size[1] / height) + roi[1]
    scores = wide[weft.arange(len(wide)), row, column]
    return weft.stack([x, y, weft.ones_like(x)]).float(), scores.float()


def heatmaps_to_keypoints(maps: Tensor, rois: Tensor) -> tuple[Tensor, Tensor]:
    """The places (boxes, keypoints, 3) where heatmaps are largest, and how large."""
    if len(rois) == 0:
        kinds = maps.shape[1]
        return weft.zeros((0, 3, kinds)).permute(0, 2, 1), weft.zeros((0, kinds))
    found = [_one_box(one, roi) for one, roi in zip(maps, rois, strict=True)]
    places, scores = (weft.stack(part) for part in zip(*found, strict=True))
    return places.permute(0, 2, 1), scores


def keypointrcnn_inference(x: Tensor, boxes: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Keypoints and their scores for each image."""
    parts = x.split([len(box) for box in boxes], dim=0)
    found = [heatmaps_to_keypoints(*pair) for pair in zip(parts, boxes, strict=True)]
    return [places for places, _ in found], [scores for _, scores in found]


def resize_keypoints(keypoints: Tensor, original_size: Any, new_size: Any) -> Tensor:
    """Keypoints of an image that is resized."""
    y, x = (
        weft.tensor(new, dtype=weft.float32) / weft.tensor(old, dtype=weft.float32)
        for new, old in zip(new_size, original_size, strict=True)
    )
    return keypoints * weft.stack((x, y, weft.ones_like(x))).to(keypoints.dtype)
