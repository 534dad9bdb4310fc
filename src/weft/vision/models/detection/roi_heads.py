"""The second stage of Faster R-CNN and related models: classes, boxes, masks, keypoints of
proposals.
"""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection._keypoints import (
    heatmaps_to_keypoints,
    keypointrcnn_inference,
    keypointrcnn_loss,
    keypoints_to_heatmap,
)
from weft.vision.models.detection._masks import (
    expand_boxes,
    expand_masks,
    maskrcnn_inference,
    maskrcnn_loss,
    paste_mask_in_image,
    paste_masks_in_image,
    project_masks_on_boxes,
)
from weft.vision.ops import boxes as box_ops

__all__ = [
    "RoIHeads", "expand_boxes", "expand_masks", "fastrcnn_loss", "heatmaps_to_keypoints",
    "keypointrcnn_inference", "keypointrcnn_loss", "keypoints_to_heatmap", "maskrcnn_inference",
    "maskrcnn_loss", "paste_mask_in_image", "paste_masks_in_image", "project_masks_on_boxes",
]  # fmt: skip


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
        mask_roi_pool: nn.Module | None = None,
        mask_head: nn.Module | None = None,
        mask_predictor: nn.Module | None = None,
        keypoint_roi_pool: nn.Module | None = None,
        keypoint_head: nn.Module | None = None,
        keypoint_predictor: nn.Module | None = None,
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
        self.mask_roi_pool = mask_roi_pool
        self.mask_head = mask_head
        self.mask_predictor = mask_predictor
        self.keypoint_roi_pool = keypoint_roi_pool
        self.keypoint_head = keypoint_head
        self.keypoint_predictor = keypoint_predictor

    def has_mask(self) -> bool:
        """Whether there is all that masks need."""
        return None not in (self.mask_roi_pool, self.mask_head, self.mask_predictor)

    def has_keypoint(self) -> bool:
        """Whether there is all that keypoints need."""
        parts = (self.keypoint_roi_pool, self.keypoint_head, self.keypoint_predictor)
        return None not in parts

    def check_targets(self, targets: Any) -> None:
        """Refuse targets that lack what is to be learned, or have it in another type."""
        if targets is None:
            raise ValueError("targets should not be None")
        wanted = ["boxes", "labels"]
        wanted += ["masks"] * self.has_mask() + ["keypoints"] * self.has_keypoint()
        for name in wanted:
            if not all(name in target for target in targets):
                raise ValueError(f"Every element of targets should have a {name} key")

    def check_types(self, targets: Any) -> None:
        """Refuse targets of other types than the losses need."""
        floats = (weft.float32, weft.float64, weft.float16)
        for target in targets or ():
            if target["boxes"].dtype not in floats:
                kind = target["boxes"].dtype
                raise TypeError(f"target boxes must of float type, instead got {kind}")
            if target["labels"].dtype != weft.int64:
                kind = target["labels"].dtype
                raise TypeError(f"target labels must of int64 type, instead got {kind}")
            if self.has_keypoint() and target["keypoints"].dtype != weft.float32:
                kind = target["keypoints"].dtype
                raise TypeError(f"target keypoints must of float type, instead got {kind}")

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
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]:
        """Sampled proposals with their objects, classes and codes.

        The true boxes are proposals too.
        """
        self.check_targets(targets)
        kind = proposals[0].dtype
        truths = [target["boxes"].to(kind) for target in targets]
        classes = [target["labels"] for target in targets]
        proposals = [weft.cat(pair) for pair in zip(proposals, truths, strict=True)]
        rows = [self._assigned(*row) for row in zip(proposals, truths, classes, strict=True)]
        positives, negatives = self.fg_bg_sampler([labels for _, labels in rows])
        chosen, labels, objects, matched = [], [], [], []
        for i, (places, label) in enumerate(rows):
            keep = weft.where(positives[i] | negatives[i])[0]
            chosen.append(proposals[i][keep])
            labels.append(label[keep])
            objects.append(places[keep])
            truth = truths[i] if truths[i].numel() else weft.zeros((1, 4), dtype=kind)
            matched.append(truth[places[keep]])
        return chosen, objects, labels, list(self.box_coder.encode(matched, chosen))

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
        self.check_types(targets)
        if self.training:
            proposals, objects, labels, codes = self.select_training_samples(proposals, targets)
        pooled = self.box_roi_pool(features, proposals, image_shapes)
        logits, regression = self.box_predictor(self.box_head(pooled))
        if not self.training:
            found = self.postprocess_detections(logits, regression, proposals, image_shapes)
            self._add_to(found, features, image_shapes)
            return found, {}
        class_loss, box_loss = fastrcnn_loss(logits, regression, labels, codes)
        losses = {"loss_classifier": class_loss, "loss_box_reg": box_loss}
        # Masks and keypoints are learned from the proposals that are objects.
        of_objects = [weft.where(label > 0)[0] for label in labels]
        boxes = [p[keep] for p, keep in zip(proposals, of_objects, strict=True)]
        places = [o[keep] for o, keep in zip(objects, of_objects, strict=True)]
        if self.has_mask():
            masks = self._mask_logits(features, boxes, image_shapes)
            truth, classes = ([t[key] for t in targets] for key in ("masks", "labels"))
            losses["loss_mask"] = maskrcnn_loss(masks, boxes, truth, classes, places)
        if self.has_keypoint():
            heat = self._keypoint_logits(features, boxes, image_shapes)
            truth = [t["keypoints"] for t in targets]
            losses["loss_keypoint"] = keypointrcnn_loss(heat, boxes, truth, places)
        return [], losses

    def _mask_logits(self, features: Any, boxes: list[Tensor], shapes: Any) -> Tensor:
        return self.mask_predictor(self.mask_head(self.mask_roi_pool(features, boxes, shapes)))

    def _keypoint_logits(self, features: Any, boxes: list[Tensor], shapes: Any) -> Tensor:
        pooled = self.keypoint_roi_pool(features, boxes, shapes)
        return self.keypoint_predictor(self.keypoint_head(pooled))

    def _add_to(self, found: list[dict[str, Tensor]], features: Any, shapes: Any) -> None:
        """Masks and keypoints of detections."""
        boxes = [one["boxes"] for one in found]
        if self.has_mask():
            logits = self._mask_logits(features, boxes, shapes)
            masks = maskrcnn_inference(logits, [one["labels"] for one in found])
            for one, mask in zip(found, masks, strict=True):
                one["masks"] = mask
        if self.has_keypoint():
            heat = self._keypoint_logits(features, boxes, shapes)
            for one, places, scores in zip(
                found, *keypointrcnn_inference(heat, boxes), strict=True
            ):
                one["keypoints"], one["keypoints_scores"] = places, scores
