"""RetinaNet (Focal Loss for Dense Object Detection)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection.anchor_utils import AnchorGenerator
from weft.vision.models.detection.backbone_utils import resnet_fpn
from weft.vision.models.detection.generalized_rcnn import check_degenerate, check_targets
from weft.vision.models.detection.rpn import _by_anchor
from weft.vision.models.detection.transform import GeneralizedRCNNTransform
from weft.vision.models.resnet import resnet50
from weft.vision.ops import boxes as box_ops
from weft.vision.ops.feature_pyramid_network import LastLevelP6P7
from weft.vision.ops.losses import sigmoid_focal_loss
from weft.vision.ops.misc import Conv2dNormActivation, FrozenBatchNorm2d

Norm = Callable[..., nn.Module] | None


def _default_anchorgen() -> AnchorGenerator:
    sides = [32, 64, 128, 256, 512]
    sizes = tuple((x, int(x * 2 ** (1.0 / 3)), int(x * 2 ** (2.0 / 3))) for x in sides)
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


def _four(channels: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        *(Conv2dNormActivation(channels, channels, norm_layer=norm) for _ in range(4))
    )


def _initialise(layers: nn.Module) -> None:
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, std=0.01)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0)


class _Head(nn.Module):
    _version = 2

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        if (local_metadata.get("version", None) or 1) < 2:
            for i in range(4):  # older files have a convolution and a ReLU in one row
                for kind in ("weight", "bias"):
                    old = f"{prefix}conv.{2 * i}.{kind}"
                    if old in state_dict:
                        state_dict[f"{prefix}conv.{i}.0.{kind}"] = state_dict.pop(old)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class RetinaNetClassificationHead(_Head):
    """The class of each anchor."""

    def __init__(
        self,
        in_channels: int,
        num_anchors: int,
        num_classes: int,
        prior_probability: float = 0.01,
        norm_layer: Norm = None,
    ) -> None:
        super().__init__()
        self.conv = _four(in_channels, norm_layer)
        _initialise(self.conv)
        self.cls_logits = nn.Conv2d(in_channels, num_anchors * num_classes, 3, 1, 1)
        nn.init.normal_(self.cls_logits.weight, std=0.01)
        rare = -math.log((1 - prior_probability) / prior_probability)
        nn.init.constant_(self.cls_logits.bias, rare)
        self.num_classes, self.num_anchors = num_classes, num_anchors

    def compute_loss(self, targets: Any, logits: Tensor, matched: list[Tensor]) -> Tensor:
        """Focal loss, by the number of objects."""
        losses = []
        for target, scores, found in zip(targets, logits, matched, strict=True):
            objects = found >= 0
            wanted = weft.zeros_like(scores)
            wanted[objects, target["labels"][found[objects]]] = 1.0
            valid = found != det.Matcher.BETWEEN_THRESHOLDS
            loss = sigmoid_focal_loss(scores[valid], wanted[valid], reduction="sum")
            losses.append(loss / max(1, int(objects.sum())))
        return sum(losses[1:], losses[0]) / len(targets)

    def forward(self, x: list[Tensor]) -> Tensor:
        """Logits (N, anchors, classes)."""
        found = [_by_anchor(self.cls_logits(self.conv(f)), self.num_classes) for f in x]
        return weft.cat(found, dim=1)


class RetinaNetRegressionHead(_Head):
    """The box of each anchor."""

    def __init__(self, in_channels: int, num_anchors: int, norm_layer: Norm = None) -> None:
        super().__init__()
        self.conv = _four(in_channels, norm_layer)
        self.bbox_reg = nn.Conv2d(in_channels, num_anchors * 4, 3, 1, 1)
        nn.init.normal_(self.bbox_reg.weight, std=0.01)
        nn.init.zeros_(self.bbox_reg.bias)
        _initialise(self.conv)
        self.box_coder = det.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        self._loss_type = "l1"

    def compute_loss(
        self, targets: Any, codes: Tensor, anchors: list[Tensor], matched: list[Tensor]
    ) -> Tensor:
        """The loss of the boxes of objects."""
        losses = []
        for target, code, boxes, found in zip(targets, codes, anchors, matched, strict=True):
            objects = weft.where(found >= 0)[0]
            truth = target["boxes"][found[objects]]
            loss = det.box_loss(
                self._loss_type, self.box_coder, boxes[objects], truth, code[objects]
            )
            losses.append(loss / max(1, objects.numel()))
        return sum(losses[1:], losses[0]) / max(1, len(targets))

    def forward(self, x: list[Tensor]) -> Tensor:
        """Codes (N, anchors, 4)."""
        return weft.cat([_by_anchor(self.bbox_reg(self.conv(f)), 4) for f in x], dim=1)


class RetinaNetHead(nn.Module):
    """Classes and boxes of anchors."""

    def __init__(
        self, in_channels: int, num_anchors: int, num_classes: int, norm_layer: Norm = None
    ) -> None:
        super().__init__()
        self.classification_head = RetinaNetClassificationHead(
            in_channels, num_anchors, num_classes, norm_layer=norm_layer
        )
        self.regression_head = RetinaNetRegressionHead(in_channels, num_anchors, norm_layer)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Logits and codes."""
        return {
            "cls_logits": self.classification_head(x),
            "bbox_regression": self.regression_head(x),
        }


def _matches(matcher: Any, anchors: list[Tensor], targets: Any) -> list[Tensor]:
    found = []
    for boxes, target in zip(anchors, targets, strict=True):
        if target["boxes"].numel() == 0:
            found.append(weft.full((boxes.size(0),), -1, dtype=weft.int64))
        else:
            found.append(matcher(box_ops.box_iou(target["boxes"], boxes)))
    return found


class OnPyramid(nn.Module):
    """What detectors of one stage on a pyramid share."""

    nms_thresh: float
    detections_per_img: int
    topk_candidates: int

    def _losses(
        self, targets: Any, outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        raise NotImplementedError

    def _level(
        self, outputs: dict[str, Tensor], anchors: Tensor, shape: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The best boxes of one level of one image, with scores and classes."""
        raise NotImplementedError

    def _best(self, scores: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
        """Scores above a threshold, best first and not too many, and their places."""
        places = weft.where(scores > threshold)[0]
        scores, order = scores[places].topk(min(len(places), self.topk_candidates))
        return scores, places[order]

    def postprocess_detections(
        self, outputs: dict[str, list[Tensor]], anchors: list[Any], shapes: Any
    ) -> list[dict[str, Tensor]]:
        """Boxes, scores and classes of each image, best first."""
        found = []
        for i, shape in enumerate(shapes):
            levels = [
                self._level({name: parts[k][i] for name, parts in outputs.items()}, boxes, shape)
                for k, boxes in enumerate(anchors[i])
            ]
            boxes, scores, labels = (weft.cat(part) for part in zip(*levels, strict=True))
            keep = box_ops.batched_nms(boxes, scores, labels, self.nms_thresh)
            keep = keep[: self.detections_per_img]
            found.append({"boxes": boxes[keep], "scores": scores[keep], "labels": labels[keep]})
        return found

    def forward(self, images: list[Tensor], targets: Any = None) -> Any:
        """Losses by name in training; else boxes, labels and scores of each image."""
        if self.training:
            check_targets(targets)
        sizes = [tuple(int(n) for n in image.shape[-2:]) for image in images]
        batch, targets = self.transform(images, targets)
        check_degenerate(targets)
        features = self.backbone(batch.tensors)
        if isinstance(features, Tensor):
            features = OrderedDict([("0", features)])
        maps = list(features.values())
        outputs = self.head(maps)
        anchors = self.anchor_generator(batch, maps)
        pixels = [f.size(2) * f.size(3) for f in maps]
        each = outputs["cls_logits"].size(1) // sum(pixels)
        counts = [n * each for n in pixels]
        if self.training:
            return self._losses(targets, outputs, anchors, counts)
        split = {name: list(value.split(counts, dim=1)) for name, value in outputs.items()}
        by_level = [list(boxes.split(counts)) for boxes in anchors]
        found = self.postprocess_detections(split, by_level, batch.image_sizes)
        return self.transform.postprocess(found, batch.image_sizes, sizes)


class RetinaNet(OnPyramid):
    """A detector of one stage on a pyramid."""

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
        proposal_matcher: Any = None,
        score_thresh: float = 0.05,
        nms_thresh: float = 0.5,
        detections_per_img: int = 300,
        fg_iou_thresh: float = 0.5,
        bg_iou_thresh: float = 0.4,
        topk_candidates: int = 1000,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.anchor_generator = anchor_generator or _default_anchorgen()
        count = self.anchor_generator.num_anchors_per_location()[0]
        self.head = head or RetinaNetHead(backbone.out_channels, count, num_classes)
        self.proposal_matcher = proposal_matcher or det.Matcher(
            fg_iou_thresh, bg_iou_thresh, allow_low_quality_matches=True
        )
        self.box_coder = det.BoxCoder(weights=(1.0, 1.0, 1.0, 1.0))
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        self.transform = GeneralizedRCNNTransform(min_size, max_size, mean, std, **kwargs)
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates

    def compute_loss(
        self, targets: Any, head_outputs: dict[str, Tensor], anchors: list[Tensor]
    ) -> dict[str, Tensor]:
        """The losses of classes and boxes."""
        matched = _matches(self.proposal_matcher, anchors, targets)
        logits, codes = head_outputs["cls_logits"], head_outputs["bbox_regression"]
        return {
            "classification": self.head.classification_head.compute_loss(targets, logits, matched),
            "bbox_regression": self.head.regression_head.compute_loss(
                targets, codes, anchors, matched
            ),
        }

    def _losses(
        self, targets: Any, outputs: dict[str, Tensor], anchors: list[Tensor], counts: list[int]
    ) -> dict[str, Tensor]:
        return self.compute_loss(targets, outputs, anchors)

    def _level(
        self, outputs: dict[str, Tensor], anchors: Tensor, shape: tuple[int, int]
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits, codes = outputs["cls_logits"], outputs["bbox_regression"]
        classes = logits.shape[-1]
        scores, places = self._best(weft.sigmoid(logits).flatten(), self.score_thresh)
        rows = weft.div(places, classes, rounding_mode="floor")
        boxes = self.box_coder.decode_single(codes[rows], anchors[rows])
        return box_ops.clip_boxes_to_image(boxes, shape), scores, places % classes


def _frozen_eps(made: nn.Module, asked: Any) -> None:
    det.overwrite_eps(made, 0.0)


@model("RetinaNet_ResNet50_FPN_Weights", given={"pretrained_": True}, after=_frozen_eps)
def retinanet_resnet50_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> RetinaNet:
    """RetinaNet on a ResNet-50."""
    weights = backbone_weights(weights_backbone, "ResNet50_Weights")
    known = pretrained_ or weights is not None
    count = det.trainable_layers(known, trainable_backbone_layers, 5, 3)
    norm = FrozenBatchNorm2d if known else nn.BatchNorm2d
    body = resnet50(weights=weights, norm_layer=norm)
    backbone = resnet_fpn(body, count, [2, 3, 4], LastLevelP6P7(256, 256))
    return RetinaNet(backbone, num_classes or 91, **kwargs)


@model("RetinaNet_ResNet50_FPN_V2_Weights", given={"pretrained_": True})
def retinanet_resnet50_fpn_v2(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> RetinaNet:
    """RetinaNet on a ResNet-50, with group normalisation and GIoU."""
    weights = backbone_weights(weights_backbone, "ResNet50_Weights")
    known = pretrained_ or weights is not None
    count = det.trainable_layers(known, trainable_backbone_layers, 5, 3)
    body = resnet50(weights=weights)
    backbone = resnet_fpn(body, count, [2, 3, 4], LastLevelP6P7(2048, 256))
    anchors, classes = _default_anchorgen(), num_classes or 91
    each = anchors.num_anchors_per_location()[0]
    norm = partial(nn.GroupNorm, 32)
    head = RetinaNetHead(backbone.out_channels, each, classes, norm_layer=norm)
    head.regression_head._loss_type = "giou"
    return RetinaNet(backbone, classes, anchor_generator=anchors, head=head, **kwargs)
