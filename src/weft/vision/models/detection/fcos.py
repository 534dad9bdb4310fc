"""FCOS (A Simple and Strong Anchor-Free Object Detector)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection.anchor_utils import AnchorGenerator
from weft.vision.models.detection.backbone_utils import resnet_fpn
from weft.vision.models.detection.retinanet import OnPyramid
from weft.vision.models.detection.rpn import _by_anchor
from weft.vision.models.detection.transform import GeneralizedRCNNTransform
from weft.vision.models.resnet import resnet50
from weft.vision.ops import boxes as box_ops
from weft.vision.ops.feature_pyramid_network import LastLevelP6P7
from weft.vision.ops.losses import generalized_box_iou_loss, sigmoid_focal_loss
from weft.vision.ops.misc import FrozenBatchNorm2d

Norm = Callable[..., nn.Module] | None


def _tower(channels: int, count: int, norm: Norm) -> nn.Sequential:
    layers: list[nn.Module] = []
    for _ in range(count):
        layers.append(nn.Conv2d(channels, channels, 3, stride=1, padding=1))
        layers += [norm(channels) if norm else nn.GroupNorm(32, channels), nn.ReLU()]
    return nn.Sequential(*layers)


def _small(*layers: nn.Module) -> None:
    for layer in layers:
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)


class FCOSClassificationHead(nn.Module):
    """The class of each place."""

    def __init__(
        self,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        num_convs: int = 4,
        prior_probability: float = 0.01,
        norm_layer: Norm = None,
    ) -> None:
        super().__init__()
        self.num_classes, self.num_anchors = num_classes, num_anchors
        self.conv = _tower(in_channels, num_convs, norm_layer)
        _small(*self.conv)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, 3, padding=1)
        nn.init.normal_(self.cls_logits.weight, std=0.01)
        rare = -math.log((1 - prior_probability) / prior_probability)
        nn.init.constant_(self.cls_logits.bias, rare)

    def forward(self, x: list[Tensor]) -> Tensor:
        """Logits (N, places, classes)."""
        found = [_by_anchor(self.cls_logits(self.conv(f)), self.num_classes) for f in x]
        return weft.cat(found, dim=1)


class FCOSRegressionHead(nn.Module):
    """The box around each place, and how near its centre the place is."""

    def __init__(
        self, in_channels: int, num_anchors: int, num_convs: int = 4, norm_layer: Norm = None
    ) -> None:
        super().__init__()
        self.conv = _tower(in_channels, num_convs, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, 3, padding=1)
        self.bbox_ctrness = nn.Conv2d(in_channels, num_anchors, 3, padding=1)
        _small(self.bbox_reg, self.bbox_ctrness, *self.conv)

    def forward(self, x: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Distances (N, places, 4) and logits of centredness (N, places, 1)."""
        features = [self.conv(f) for f in x]
        boxes = [_by_anchor(F.relu(self.bbox_reg(f)), 4) for f in features]
        centred = [_by_anchor(self.bbox_ctrness(f), 1) for f in features]
        return weft.cat(boxes, dim=1), weft.cat(centred, dim=1)


def _centredness(codes: Tensor) -> Tensor:
    """1 at the centre of a box, 0 at its sides."""
    sides = codes.unflatten(-1, (2, 2))  # left and top, right and bottom
    ratios = sides.min(dim=-2)[0] / sides.max(dim=-2)[0]
    return weft.sqrt(ratios[..., 0] * ratios[..., 1])


class FCOSHead(nn.Module):
    """Classes, boxes and centredness."""

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, num_convs: int = 4
    ) -> None:
        super().__init__()
        self.box_coder = det.BoxLinearCoder(normalize_by_size=True)
        self.classification_head = FCOSClassificationHead(
            in_channels, num_anchors, num_classes, num_convs
        )
        self.regression_head = FCOSRegressionHead(in_channels, num_anchors, num_convs)

    def _wanted(self, target: dict[str, Tensor], found: Tensor) -> tuple[Tensor, Tensor]:
        """The class (-1: none) and the box for each place of an image."""
        labels, boxes = target["labels"], target["boxes"]
        if len(labels) == 0:
            classes, truth = labels.new_zeros((len(found),)), boxes.new_zeros((len(found), 4))
        else:
            places = found.clamp(min=0)
            classes, truth = labels[places], boxes[places]
        classes[found < 0] = -1
        return classes, truth

    def compute_loss(
        self,
        targets: Any,
        head_outputs: dict[str, Tensor],
        anchors: list[Tensor],
        matched_idxs: list[Tensor],
    ) -> dict[str, Tensor]:
        """The losses of classes, boxes and centredness, by the number of places in objects."""
        rows = [self._wanted(*row) for row in zip(targets, matched_idxs, strict=True)]
        classes, truth = (weft.stack(part) for part in zip(*rows, strict=True))
        boxes = weft.stack(anchors)
        objects = classes >= 0
        count = max(1, int(objects.sum()))
        logits = head_outputs["cls_logits"]
        wanted = weft.zeros_like(logits)
        wanted[objects, classes[objects]] = 1.0
        predicted = self.box_coder.decode(head_outputs["bbox_regression"], boxes)
        centred = head_outputs["bbox_ctrness"].squeeze(dim=2)
        centres = _centredness(self.box_coder.encode(boxes, truth))
        losses = {
            "classification": sigmoid_focal_loss(logits, wanted, reduction="sum"),
            "bbox_regression": generalized_box_iou_loss(
                predicted[objects], truth[objects], reduction="sum"
            ),
            "bbox_ctrness": F.binary_cross_entropy_with_logits(
                centred[objects], centres[objects], reduction="sum"
            ),
        }
        return {name: loss / count for name, loss in losses.items()}

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Logits, distances and centredness."""
        boxes, centred = self.regression_head(x)
        return {
            "cls_logits": self.classification_head(x),
            "bbox_regression": boxes,
            "bbox_ctrness": centred,
        }


class FCOS(OnPyramid):
    """A detector of one stage without anchors: each place of a map tells the box around it."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int,
        min_size: int = 800,
        max_size: int = 1333,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        anchor_generator: AnchorGenerator | None = None,
        head: nn.Module | None = None,
        center_sampling_radius: float = 1.5,
        score_thresh: float = 0.2,
        nms_thresh: float = 0.6,
        detections_per_img: int = 100,
        topk_candidates: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        sizes = ((8,), (16,), (32,), (64,), (128,))  # the strides of the maps
        generator = anchor_generator or AnchorGenerator(sizes, ((1.0,),) * len(sizes))
        self.anchor_generator = generator
        each = generator.num_anchors_per_location()[0]
        if each != 1:
            raise ValueError(
                f"anchor_generator.num_anchors_per_location()[0] should be 1 instead of {each}"
            )
        self.head = head or FCOSHead(backbone.out_channels, each, num_classes)
        self.box_coder = det.BoxLinearCoder(normalize_by_size=True)
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        self.transform = GeneralizedRCNNTransform(min_size, max_size, mean, std, **kwargs)
        self.center_sampling_radius = center_sampling_radius
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def _matched(self, boxes: Tensor, truth: Tensor, counts: list[int]) -> Tensor:
        """The smallest object that each place is in, near its centre and of the level's scale."""
        centres, sizes = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2] - boxes[:, 0]
        middles = (truth[:, :2] + truth[:, 2:]) / 2
        far = (centres[:, None] - middles[None]).abs().max(dim=2).values
        near = far < self.center_sampling_radius * sizes[:, None]
        before, after = centres[:, None] - truth[:, :2], truth[:, 2:] - centres[:, None]
        sides = weft.cat([before, after], dim=2)
        lower, upper = sizes * 4, sizes * 8
        lower[: counts[0]] = 0
        upper[-counts[-1] :] = float("inf")
        reach = sides.max(dim=2).values
        fits = (reach > lower[:, None]) & (reach < upper[:, None])
        match = near & (sides.min(dim=2).values > 0) & fits
        areas = (truth[:, 2] - truth[:, 0]) * (truth[:, 3] - truth[:, 1])
        best, place = (match.to(weft.float32) * (1e8 - areas[None])).max(dim=1)
        place[best < 1e-5] = -1
        return place

    def compute_loss(
        self,
        targets: Any,
        head_outputs: dict[str, Tensor],
        anchors: list[Tensor],
        num_anchors_per_level: list[int],
    ) -> dict[str, Tensor]:
        """The losses of classes, boxes and centredness."""
        matched = []
        for boxes, target in zip(anchors, targets, strict=True):
            if target["boxes"].numel() == 0:
                matched.append(weft.full((boxes.size(0),), -1, dtype=weft.int64))
            else:
                matched.append(self._matched(boxes, target["boxes"], num_anchors_per_level))
        return self.head.compute_loss(targets, head_outputs, anchors, matched)

    def _losses(
        self, targets: Any, outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        return self.compute_loss(targets, outputs, anchors, counts)

    def _level(
        self, outputs: dict[str, Tensor], anchors: Tensor, shape: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits, centred = outputs["cls_logits"], outputs["bbox_ctrness"]
        classes = logits.shape[-1]
        scores = weft.sqrt(weft.sigmoid(logits) * weft.sigmoid(centred)).flatten()
        scores, places = self._best(scores, self.score_thresh)
        rows = weft.div(places, classes, rounding_mode="floor")
        boxes = self.box_coder.decode(outputs["bbox_regression"][rows], anchors[rows])
        return box_ops.clip_boxes_to_image(boxes, shape), scores, places % classes


@model("FCOS_ResNet50_FPN_Weights", given={"pretrained_": True})
def fcos_resnet50_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> FCOS:
    """FCOS on a ResNet-50."""
    weights = backbone_weights(weights_backbone, "ResNet50_Weights")
    known = pretrained_ or weights is not None
    count = det.trainable_layers(known, trainable_backbone_layers, 5, 3)
    norm = FrozenBatchNorm2d if known else nn.BatchNorm2d
    body = resnet50(weights=weights, norm_layer=norm)
    backbone = resnet_fpn(body, count, [2, 3, 4], LastLevelP6P7(256, 256))
    return FCOS(backbone, num_classes or 91, **kwargs)
