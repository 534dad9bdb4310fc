"""Region proposals (Faster R-CNN: Towards Real-Time Object Detection)."""

from __future__ import annotations

from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection.anchor_utils import AnchorGenerator
from weft.vision.models.detection.image_list import ImageList
from weft.vision.ops import boxes as box_ops
from weft.vision.ops.misc import Conv2dNormActivation


class RPNHead(nn.Module):
    """For each anchor whether there is an object, and where."""

    _version = 2

    def __init__(self, in_channels: int, num_anchors: int, conv_depth: int = 1) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            *(
                Conv2dNormActivation(in_channels, in_channels, kernel_size=3, norm_layer=None)
                for _ in range(conv_depth)
            )
        )
        self.cls_logits = nn.Conv2d(in_channels, num_anchors, kernel_size=1, stride=1)
        self.bbox_pred = nn.Conv2d(in_channels, num_anchors * 4, kernel_size=1, stride=1)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.normal_(layer.weight, std=0.01)
                if layer.bias is not None:
                    nn.init.constant_(layer.bias, 0)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if (local_metadata.get("version", None) or 1) < 2:
            for kind in ("weight", "bias"):
                if f"{prefix}conv.{kind}" in state_dict:
                    state_dict[f"{prefix}conv.0.0.{kind}"] = state_dict.pop(f"{prefix}conv.{kind}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def forward(self, x: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Logits and codes for each feature map."""
        features = [self.conv(feature) for feature in x]
        return [self.cls_logits(f) for f in features], [self.bbox_pred(f) for f in features]


def _by_anchor(layer: Tensor, width: int) -> Tensor:
    """(N, A * width, H, W) as (N, H * W * A, width)."""
    n, _, height, columns = layer.shape
    parts = layer.view(n, -1, width, height, columns).permute(0, 3, 4, 1, 2)
    return parts.reshape(n, -1, width)


class RegionProposalNetwork(nn.Module):
    """Boxes that may hold an object, and the losses that teach to find them."""

    def __init__(
        self,
        anchor_generator: AnchorGenerator,
        head: nn.Module,
        fg_iou_thresh: float,
        bg_iou_thresh: float,
        batch_size_per_image: int,
        positive_fraction: float,
        pre_nms_top_n: dict[str, int],
        post_nms_top_n: dict[str, int],
        nms_thresh: float,
        score_thresh: float = 0.0,
    ) -> None:
        super().__init__()
        self.anchor_generator = anchor_generator
        self.head = head
        self.box_coder = det.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self.box_similarity = box_ops.box_iou
        self.proposal_matcher = det.Matcher(
            fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True
        )
        self.fg_bg_sampler = det.BalancedPositiveNegativeSampler(
            batch_size_per_image, positive_fraction
        )
        self._pre_nms_top_n, self._post_nms_top_n = pre_nms_top_n, post_nms_top_n
        self.nms_thresh, self.score_thresh, self.min_size = nms_thresh, score_thresh, 1e-3

    def pre_nms_top_n(self) -> int:
        """How many proposals of a level go into the suppression."""
        return self._pre_nms_top_n["training" if self.training else "testing"]

    def post_nms_top_n(self) -> int:
        """How many proposals come out of it."""
        return self._post_nms_top_n["training" if self.training else "testing"]

    def assign_targets_to_anchors(
        self, anchors: list[Tensor], targets: list[dict[str, Tensor]]
    ) -> tuple[list[Tensor], list[Tensor]]:
        """For each anchor 1, 0 or -1 (neither), and the box that it belongs to."""
        labels, matched = [], []
        for boxes, target in zip(anchors, targets, strict=True):
            truth = target["boxes"]
            if truth.numel() == 0:
                matched.append(weft.zeros(boxes.shape, dtype=weft.float32))
                labels.append(weft.zeros((boxes.shape[0],), dtype=weft.float32))
                continue
            found = self.proposal_matcher(self.box_similarity(truth, boxes))
            matched.append(truth[found.clamp(min=0)])
            label = (found >= 0).to(weft.float32)
            label[found == self.proposal_matcher.BELOW_LOW_THRESHOLD] = 0.0
            label[found == self.proposal_matcher.BETWEEN_THRESHOLDS] = -1.0
            labels.append(label)
        return labels, matched

    def _best_of_levels(self, objectness: Tensor, counts: list[int]) -> Tensor:
        places, offset = [], 0
        for level in objectness.split(counts, 1):
            most = min(self.pre_nms_top_n(), level.shape[1])
            places.append(level.topk(most, dim=1)[1] + offset)
            offset += level.shape[1]
        return weft.cat(places, dim=1)

    def filter_proposals(
        self,
        proposals: Tensor,
        objectness: Tensor,
        image_shapes: list[tuple[int, int]],
        num_anchors_per_level: list[int],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The best proposals of each image, without those that overlap better ones."""
        count = proposals.shape[0]
        objectness = objectness.detach().reshape(count, -1)
        levels = [weft.full((n,), i) for i, n in enumerate(num_anchors_per_level)]
        level_of = weft.cat(levels, 0).reshape(1, -1).expand_as(objectness)
        places = self._best_of_levels(objectness, num_anchors_per_level)
        batch = weft.arange(count)[:, None]
        scores = weft.sigmoid(objectness[batch, places])
        level_of, proposals = level_of[batch, places], proposals[batch, places]
        final_boxes, final_scores = [], []
        for boxes, score, level, shape in zip(
            proposals, scores, level_of, image_shapes, strict=True
        ):
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            keep = box_ops.remove_small_boxes(boxes, self.min_size)
            boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = weft.where(score >= self.score_thresh)[0]
            boxes, score, level = boxes[keep], score[keep], level[keep]
            keep = box_ops.batched_nms(boxes, score, level, self.nms_thresh)
            keep = keep[: self.post_nms_top_n()]
            final_boxes.append(boxes[keep])
            final_scores.append(score[keep])
        return final_boxes, final_scores

    def compute_loss(
        self,
        objectness: Tensor,
        pred_bbox_deltas: Tensor,
        labels: list[Tensor],
        regression_targets: list[Tensor],
    ) -> tuple[Tensor, Tensor]:
        """The losses of objectness and of boxes, over sampled anchors."""
        masks = self.fg_bg_sampler(labels)
        positive, negative = (weft.where(weft.cat(mask, dim=0))[0] for mask in masks)
        sampled = weft.cat([positive, negative], dim=0)
        objectness, flat = objectness.flatten(), weft.cat(labels, dim=0)
        targets = weft.cat(regression_targets, dim=0)
        box_loss = F.smooth_l1_loss(
            pred_bbox_deltas[positive], targets[positive], beta=1 / 9, reduction="sum"
        ) / (sampled.numel())
        entropy = F.binary_cross_entropy_with_logits(objectness[sampled], flat[sampled])
        return entropy, box_loss

    def forward(
        self, images: ImageList, features: dict[str, Tensor], targets: Any = None
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Proposals for each image, and the losses in training."""
        maps = list(features.values())
        logits, codes = self.head(maps)
        anchors = self.anchor_generator(images, maps)
        counts = [int(o[0].numel()) for o in logits]
        objectness = weft.cat([_by_anchor(o, 1) for o in logits], dim=1).flatten(0, -2)
        deltas = weft.cat([_by_anchor(c, 4) for c in codes], dim=1).reshape(-1, 4)
        proposals = self.box_coder.decode(deltas.detach(), anchors).view(len(anchors), -1, 4)
        boxes, _ = self.filter_proposals(proposals, objectness, images.image_sizes, counts)
        if not self.training:
            return boxes, {}
        if targets is None:
            raise ValueError("targets should not be None")
        labels, matched = self.assign_targets_to_anchors(anchors, targets)
        regression = list(self.box_coder.encode(matched, anchors))
        objectness_loss, box_loss = self.compute_loss(objectness, deltas, labels, regression)
        return boxes, {"loss_objectness": objectness_loss, "loss_rpn_box_reg": box_loss}
