"""Boxes against anchors: coding, matching, sampling."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.ops.losses import (
    complete_box_iou_loss,
    distance_box_iou_loss,
    generalized_box_iou_loss,
)
from weft.vision.ops.misc import FrozenBatchNorm2d


class BalancedPositiveNegativeSampler:
    """Picks a share of positive and the rest of negative samples at random."""

    def __init__(self, batch_size_per_image: int, positive_fraction: float) -> None:
        self.batch_size_per_image = batch_size_per_image
        self.positive_fraction = positive_fraction

    def __call__(self, matched_idxs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Masks of the picked ones; 0 is negative, 1 and above positive, -1 neither."""
        positives: list[Tensor] = []
        negatives: list[Tensor] = []
        for matched in matched_idxs:
            positive, negative = (weft.where(m)[0] for m in (matched >= 1, matched == 0))
            wanted = min(positive.numel(), int(self.batch_size_per_image * self.positive_fraction))
            others = min(negative.numel(), self.batch_size_per_image - wanted)
            for found, count, masks in (
                (positive, wanted, positives),
                (negative, others, negatives),
            ):
                chosen = found[weft.randperm(found.numel())[:count]]
                mask = weft.zeros_like(matched, dtype=weft.uint8)
                mask[chosen] = 1
                masks.append(mask)
        return positives, negatives


class BoxCoder:
    """Boxes as shifts and log scales against other boxes."""

    def __init__(
        self,
        weights: tuple[float, float, float, float],
        bbox_xform_clip: float = math.log(1000.0 / 16),
    ) -> None:
        self.weights, self.bbox_xform_clip = weights, bbox_xform_clip

    @staticmethod
    def _centres(boxes: Tensor) -> tuple[Tensor, ...]:
        width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
        return boxes[:, 0] + 0.5 * width, boxes[:, 1] + 0.5 * height, width, height

    def encode(self, reference_boxes: list[Tensor], proposals: list[Tensor]) -> Any:
        """Targets that take proposals to reference boxes, for each image."""
        counts = [len(boxes) for boxes in reference_boxes]
        coded = self.encode_single(weft.cat(reference_boxes), weft.cat(proposals))
        return coded.split(counts, 0)

    def encode_single(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        """Targets that take proposals to reference boxes."""
        x, y, w, h = self._centres(proposals)
        u, v, s, t = self._centres(reference_boxes)
        wx, wy, ww, wh = self.weights
        parts = (
            wx * (u - x) / w, wy * (v - y) / h, ww * weft.log(s / w), wh * weft.log(t / h)
        )  # fmt: skip
        return weft.stack(parts, dim=1)

    def decode(self, rel_codes: Tensor, boxes: list[Tensor]) -> Tensor:
        """The boxes that codes mean, (boxes, classes, 4)."""
        all_boxes = weft.cat(boxes, dim=0)
        total = sum(len(b) for b in boxes)
        if total > 0:
            rel_codes = rel_codes.reshape(total, -1)
        found = self.decode_single(rel_codes, all_boxes)
        return found.reshape(total, -1, 4) if total > 0 else found

    def decode_single(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        """The boxes that codes mean."""
        x, y, w, h = (part[:, None] for part in self._centres(boxes.to(rel_codes.dtype)))
        wx, wy, ww, wh = self.weights
        dw = (rel_codes[:, 2::4] / ww).clamp(max=self.bbox_xform_clip)
        dh = (rel_codes[:, 3::4] / wh).clamp(max=self.bbox_xform_clip)
        cx, cy = rel_codes[:, 0::4] / wx * w + x, rel_codes[:, 1::4] / wy * h + y
        half_w, half_h = 0.5 * weft.exp(dw) * w, 0.5 * weft.exp(dh) * h
        corners = (cx - half_w, cy - half_h, cx + half_w, cy + half_h)
        return weft.stack(corners, dim=2).flatten(1)


class BoxLinearCoder:
    """Boxes as distances of their sides from the centres of other boxes."""

    def __init__(self, normalize_by_size: bool = True) -> None:
        self.normalize_by_size = normalize_by_size

    @staticmethod
    def _centres(boxes: Tensor) -> Tensor:
        return 0.5 * (boxes[..., :2] + boxes[..., 2:])

    @staticmethod
    def _sizes(boxes: Tensor) -> Tensor:
        size = boxes[..., 2:] - boxes[..., :2]
        return weft.cat((size, size), dim=-1)

    def encode(self, reference_boxes: Tensor, proposals: Tensor) -> Tensor:
        """Distances from the centres of reference boxes to the sides of proposals."""
        centres = self._centres(reference_boxes)
        codes = weft.cat((centres - proposals[..., :2], proposals[..., 2:] - centres), dim=-1)
        return codes / self._sizes(reference_boxes) if self.normalize_by_size else codes

    def decode(self, rel_codes: Tensor, boxes: Tensor) -> Tensor:
        """The boxes that distances mean."""
        boxes = boxes.to(rel_codes.dtype)
        centres = self._centres(boxes)
        codes = rel_codes * self._sizes(boxes) if self.normalize_by_size else rel_codes
        return weft.cat((centres - codes[..., :2], centres + codes[..., 2:]), dim=-1)


class Matcher:
    """The ground truth for each prediction: -1 is below the lower threshold, -2 between both."""

    BELOW_LOW_THRESHOLD = -1
    BETWEEN_THRESHOLDS = -2

    def __init__(
        self, high_threshold: float, low_threshold: float, allow_low_quality_matches: bool = False
    ) -> None:
        if low_threshold > high_threshold:
            raise ValueError("low_threshold should be <= high_threshold")
        self.high_threshold, self.low_threshold = high_threshold, low_threshold
        self.allow_low_quality_matches = allow_low_quality_matches

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        """The best ground truth (a row) for each prediction (a column)."""
        if match_quality_matrix.numel() == 0:
            empty = "ground-truth" if match_quality_matrix.shape[0] == 0 else "proposal"
            raise ValueError(f"No {empty} boxes available for one of the images during training")
        values, matches = match_quality_matrix.max(dim=0)
        best = matches.clone()
        below = values < self.low_threshold
        matches[below] = self.BELOW_LOW_THRESHOLD
        matches[(values >= self.low_threshold) & (values < self.high_threshold)] = (
            self.BETWEEN_THRESHOLDS
        )
        if self.allow_low_quality_matches:
            self._keep_best(matches, best, match_quality_matrix)
        return matches

    def _keep_best(self, matches: Tensor, best: Tensor, quality: Tensor) -> None:
        """Every ground truth keeps the predictions that it fits best, however badly."""
        highest = quality.max(dim=1)[0]
        _, columns = weft.where(quality == highest[:, None])
        matches[columns] = best[columns]


class SSDMatcher(Matcher):
    """Every ground truth gets the prediction that it fits best."""

    def __init__(self, threshold: float) -> None:
        super().__init__(threshold, threshold, allow_low_quality_matches=False)

    def __call__(self, match_quality_matrix: Tensor) -> Tensor:
        """The best ground truth (a row) for each prediction (a column)."""
        matches = super().__call__(match_quality_matrix)
        best = match_quality_matrix.max(dim=1)[1]
        matches[best] = weft.arange(best.size(0), dtype=weft.int64)
        return matches


def box_loss(
    type: str,
    box_coder: BoxCoder,
    anchors: Tensor,
    matched: Tensor,
    regression: Tensor,
    cnf: dict[str, float] | None = None,
) -> Tensor:
    """The loss of codes against boxes: l1, smooth_l1, ciou, diou or giou, summed."""
    if type in ("l1", "smooth_l1"):
        target = box_coder.encode_single(matched, anchors)
        if type == "l1":
            return F.l1_loss(regression, target, reduction="sum")
        beta = (cnf or {}).get("beta", 1.0)
        return F.smooth_l1_loss(regression, target, reduction="sum", beta=beta)
    losses = {
        "ciou": complete_box_iou_loss,
        "diou": distance_box_iou_loss,
        "giou": generalized_box_iou_loss,
    }
    if type not in losses:
        raise ValueError(f"Unsupported loss: {type}")
    predicted = box_coder.decode_single(regression, anchors)
    return losses[type](predicted, matched, reduction="sum", eps=(cnf or {}).get("eps", 1e-7))


def overwrite_eps(model: nn.Module, eps: float) -> None:
    """Another epsilon for frozen normalisations, which published weights were trained with."""
    for module in model.modules():
        if isinstance(module, FrozenBatchNorm2d):
            module.eps = eps


def trainable_layers(
    pretrained: bool, wanted: int | None, most: int, default: int, what: str = ""
) -> int:
    """How many layers of a backbone are trained: all where there are no weights."""
    if not pretrained:
        return most
    count = default if wanted is None else wanted
    if count < 0 or count > most:
        raise ValueError(
            f"Trainable backbone layers should be in the range [0,{most}], got {count} {what}"
        )
    return count
