"""The second stage of Faster R-CNN: classes and boxes of proposals."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models.detection import _utils as det
from weft.vision.ops import boxes as box_ops


def fastrcnn_loss(
    class_logits: Tensor, box_regression: Tensor, labels: list[Tensor], targets: list[Tensor]
) -> tuple[Tensor, Tensor]:
    """The losses of classes, and of the boxes of objects."""
    flat, wanted = weft.cat(labels, dim=0), weft.cat(targets, dim=0)
    class_loss = F.cross_entropy(class_logits, flat)
    objects = weft.where(flat > 0)[0]
    codes = box_regression.reshape(class_logits.shape[0], -1, 4)
    box_loss = F.smooth_l1_loss(
        codes[objects, flat[objects]], wanted[objects], beta=1 / 9, reduction="sum"
    )
    return class_loss, box_loss / flat.numel()


class RoIHeads(nn.Module):
    """Pools the features of proposals, classifies them and moves their boxes."""

    def __init__(
        self,
        box_roi_pool: nn.Module,
        box_head: nn.Module,
        box_predictor: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        bbox_reg_weights: Any,
        score_thresh: float,
        nms_thresh: float,
        detections_per_img: int,
    ) -> None:
        super().__init__()
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = det.Matcher(fg_iou_thresh, bg_iou_thresh)
        self.fg_bg_sampler = det.BalancedPositiveNegativeSampler(
            batch_size_per_image, positive_fraction
        )
        self.box_coder = det.BoxCoder(bbox_reg_weights or (10.0, 10.0, 5.0, 5.0))
        self.box_roi_pool = box_roi_pool
        self.box_head = box_head
        self.box_predictor = box_predictor
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img = detections_per_img

    def _assigned(self, proposals: Tensor, truth: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """The object that each proposal belongs to, and its class (0: none, -1: ignored)."""
        if truth.numel() == 0:
            none = weft.zeros((proposals.shape[0],), dtype=weft.int64)
            return none, none.clone()
        found = self.proposal_matcher(self.box_similarity(truth, proposals))
        places = found.clamp(min=0)
        labels = classes[places].to(weft.int64)
        labels[found == self.proposal_matcher.BELOW_LOW_THRESHOLD] = 0
        labels[found == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1
        return places, labels

    def select_training_samples(
        self, proposals: list[Tensor], targets: list[dict[str, Tensor]]
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Sampled proposals with their classes and codes; the true boxes are proposals too."""
        kind = proposals[0].dtype
        truths = [target["boxes"].to(kind) for target in targets]
        classes = [target["labels"] for target in targets]
        proposals = [weft.cat(pair) for pair in zip(proposals, truths, strict=True)]
        rows = [self._assigned(*row) for row in zip(proposals, truths, classes, strict=True)]
        positives, negatives = self.fg_bg_sampler([labels for _, labels in rows])
        chosen, labels, matched = [], [], []
        for i, (places, label) in enumerate(rows):
            keep = weft.where(positives[i] | negatives[i])[0]
            chosen.append(proposals[i][keep])
            labels.append(label[keep])
            truth = truths[i] if truths[i].numel() else weft.zeros((1, 4), dtype=kind)
            matched.append(truth[places[keep]])
        return chosen, labels, list(self.box_coder.encode(matched, chosen))

    def postprocess_detections(
        self,
        class_logits: Tensor,
        box_regression: Tensor,
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
    ) -> list[dict[str, Tensor]]:
        """Boxes, classes and scores of each image, best first."""
        counts = [len(boxes) for boxes in proposals]
        all_boxes = self.box_coder.decode(box_regression, proposals).split(counts, 0)
        all_scores = F.softmax(class_logits, -1).split(counts, 0)
        found = []
        for boxes, scores, shape in zip(all_boxes, all_scores, image_shapes, strict=True):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            labels = weft.arange(class_logits.shape[-1]).view(1, -1).expand_as(scores)
            boxes, scores, labels = boxes[:, 1:], scores[:, 1:], labels[:, 1:]
            boxes, scores, labels = boxes.reshape(-1, 4), scores.reshape(-1), labels.reshape(-1)
            keep = weft.where(scores > self.score_thresh)[0]
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
            keep = box_ops.remove_small_boxes(boxes, min_size=1e-2)
            boxes, scores, labels = boxes[keep], scores[keep], labels[keep]
            keep = box_ops.batched_nms(boxes, scores, labels, self.nms_thresh)
            keep = keep[: self.detections_per_img]
            found.append({"boxes": boxes[keep], "labels": labels[keep], "scores": scores[keep]})
        return found

    def forward(
        self,
        features: dict[str, Tensor],
        proposals: list[Tensor],
        image_shapes: list[tuple[int, int]],
        targets: Any = None,
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        """Detections for each image, or the losses in training."""
        if self.training:
            proposals, labels, codes = self.select_training_samples(proposals, targets)
        pooled = self.box_roi_pool(features, proposals, image_shapes)
        logits, regression = self.box_predictor(self.box_head(pooled))
        if self.training:
            class_loss, box_loss = fastrcnn_loss(logits, regression, labels, codes)
            return [], {"loss_classifier": class_loss, "loss_box_reg": box_loss}
        return self.postprocess_detections(logits, regression, proposals, image_shapes), {}
