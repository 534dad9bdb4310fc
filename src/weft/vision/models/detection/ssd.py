"""SSD (Single Shot MultiBox Detector)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models._utils import frozen_before
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection.anchor_utils import DefaultBoxGenerator
from weft.vision.models.detection.generalized_rcnn import check_degenerate, check_targets
from weft.vision.models.detection.retinanet import _matches
from weft.vision.models.detection.rpn import _by_anchor
from weft.vision.models.detection.transform import GeneralizedRCNNTransform
from weft.vision.models.vgg import vgg16
from weft.vision.ops import boxes as box_ops


def _xavier(layers: nn.Module) -> None:
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.0)


class _ScoringHead(nn.Module):
    def __init__(
        self,
        layers: Sequence[nn.Module],
        columns: int,
        initialise: Callable[[nn.Module], None] = _xavier,
    ) -> None:
        super().__init__()
        self.module_list = nn.ModuleList(layers)
        initialise(self.module_list)
        self.num_columns = columns

    def forward(self, x: list[Tensor]) -> Tensor:
        pairs = zip(x, self.module_list, strict=True)
        return weft.cat([_by_anchor(layer(f), self.num_columns) for f, layer in pairs], dim=1)


class SSDClassificationHead(_ScoringHead):
    """The class of each default box."""

    def __init__(self, in_channels: list[int], num_anchors: list[int], num_classes: int) -> None:
        pairs = zip(in_channels, num_anchors, strict=True)
        layers = [nn.Conv2d(c, num_classes * a, 3, padding=1) for c, a in pairs]
        super().__init__(layers, num_classes)


class SSDRegressionHead(_ScoringHead):
    """The box of each default box."""

    def __init__(self, in_channels: list[int], num_anchors: list[int]) -> None:
        pairs = zip(in_channels, num_anchors, strict=True)
        super().__init__([nn.Conv2d(c, 4 * a, 3, padding=1) for c, a in pairs], 4)


class SSDHead(nn.Module):
    """Classes and boxes of default boxes."""

    def __init__(self, in_channels: list[int], num_anchors: list[int], num_classes: int) -> None:
        super().__init__()
        self.classification_head = SSDClassificationHead(in_channels, num_anchors, num_classes)
        self.regression_head = SSDRegressionHead(in_channels, num_anchors)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Codes and logits."""
        return {
            "bbox_regression": self.regression_head(x),
            "cls_logits": self.classification_head(x),
        }


def _out_channels(backbone: nn.Module, size: tuple[int, int]) -> list[int]:
    """The channels of a backbone's maps, found by running it."""
    training = backbone.training
    backbone.eval()
    with weft.no_grad():
        found = backbone(weft.zeros((1, 3, size[1], size[0])))
    backbone.train(training)
    maps = [found] if isinstance(found, Tensor) else list(found.values())
    return [int(m.size(1)) for m in maps]


class SSD(nn.Module):
    """A detector of one stage with default boxes on several maps."""

    def __init__(
        self,
        backbone: nn.Module,
        anchor_generator: DefaultBoxGenerator,
        size: tuple[int, int],
        num_classes: int,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        head: nn.Module | None = None,
        score_thresh: float = 0.01,
        nms_thresh: float = 0.45,
        detections_per_img: int = 200,
        iou_thresh: float = 0.5,
        topk_candidates: int = 400,
        positive_fraction: float = 0.25,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.anchor_generator = anchor_generator
        self.box_coder = det.BoxCoder(weights=(10.0, 10.0, 5.0, 5.0))
        if head is None:
            widths = getattr(backbone, "out_channels", None) or _out_channels(backbone, size)
            head = SSDHead(widths, anchor_generator.num_anchors_per_location(), num_classes)
        self.head = head
        self.proposal_matcher = det.SSDMatcher(iou_thresh)
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        sides = min(size), max(size)
        self.transform = GeneralizedRCNNTransform(
            *sides, mean, std, size_divisible=1, fixed_size=size, **kwargs
        )
        self.score_thresh, self.nms_thresh = score_thresh, nms_thresh
        self.detections_per_img, self.topk_candidates = detections_per_img, topk_candidates
        self.neg_to_pos_ratio = (1.0 - positive_fraction) / positive_fraction

    def compute_loss(
        self,
        targets: Any,
        head_outputs: dict[str, Tensor],
        anchors: list[Tensor],
        matched_idxs: list[Tensor],
    ) -> dict[str, Tensor]:
        """The losses of boxes and classes; of background the hardest, three for each object."""
        logits, codes = head_outputs["cls_logits"], head_outputs["bbox_regression"]
        box_losses, wanted, objects_found = [], [], 0
        for i, (target, found) in enumerate(zip(targets, matched_idxs, strict=True)):
            objects = weft.where(found >= 0)[0]
            places = found[objects]
            objects_found += places.numel()
            truth = self.box_coder.encode_single(target["boxes"][places], anchors[i][objects])
            box_losses.append(F.smooth_l1_loss(codes[i][objects], truth, reduction="sum"))
            classes = weft.zeros((logits.size(1),), dtype=target["labels"].dtype)
            classes[objects] = target["labels"][places]
            wanted.append(classes)
        box_loss = weft.stack(box_losses)
        classes = weft.stack(wanted)
        entropy = F.cross_entropy(
            logits.view(-1, logits.size(-1)), classes.view(-1), reduction="none"
        ).view(classes.size())
        objects = classes > 0
        count = self.neg_to_pos_ratio * objects.sum(1, keepdim=True)
        hardest = entropy.detach().clone()
        hardest[objects] = -float("inf")
        order = hardest.sort(1, descending=True)[1]
        background = order.sort(1)[1] < count
        total = max(1, objects_found)
        return {
            "bbox_regression": box_loss.sum() / total,
            "classification": (entropy[objects].sum() + entropy[background].sum()) / total,
        }

    def _class_of(self, k: int, boxes: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        score = scores[:, k]
        keep = score > self.score_thresh
        score, boxes = score[keep], boxes[keep]
        score, order = score.topk(min(len(score), self.topk_candidates))
        return boxes[order], score, weft.full_like(score, k, dtype=weft.int64)

    def postprocess_detections(
        self, head_outputs: dict[str, Tensor], image_anchors: list[Tensor], shapes: Any
    ) -> list[dict[str, Tensor]]:
        """Boxes, scores and classes of each image, best first."""
        codes = head_outputs["bbox_regression"]
        all_scores = F.softmax(head_outputs["cls_logits"], dim=-1)
        found = []
        for code, scores, anchors, shape in zip(
            codes, all_scores, image_anchors, shapes, strict=True
        ):
            boxes = self.box_coder.decode_single(code, anchors)
            boxes = box_ops.clip_boxes_to_image(boxes, shape)
            rows = [self._class_of(k, boxes, scores) for k in range(1, scores.size(-1))]
            boxes, score, labels = (weft.cat(part, dim=0) for part in zip(*rows, strict=True))
            keep = box_ops.batched_nms(boxes, score, labels, self.nms_thresh)
            keep = keep[: self.detections_per_img]
            found.append({"boxes": boxes[keep], "scores": score[keep], "labels": labels[keep]})
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
        if self.training:
            matched = _matches(self.proposal_matcher, anchors, targets)
            return self.compute_loss(targets, outputs, anchors, matched)
        found = self.postprocess_detections(outputs, anchors, batch.image_sizes)
        return self.transform.postprocess(found, batch.image_sizes, sizes)


def _further(channels: int, inner: int, out: int, **how: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(channels, inner, kernel_size=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(inner, out, kernel_size=3, **how),
        nn.ReLU(inplace=True),
    )


class SSDFeatureExtractorVGG(nn.Module):
    """The maps of a VGG and of further layers behind it."""

    def __init__(self, backbone: nn.Sequential) -> None:
        super().__init__()
        pools = [i for i, layer in enumerate(backbone) if isinstance(layer, nn.MaxPool2d)]
        backbone[pools[2]].ceil_mode = True
        self.scale_weight = nn.Parameter(weft.ones(512) * 20)
        self.features = nn.Sequential(*backbone[: pools[3]])
        halving = {"padding": 1, "stride": 2}
        extra = nn.ModuleList(
            [
                _further(1024, 256, 512, **halving),
                _further(512, 128, 256, **halving),
                _further(256, 128, 256),
                _further(256, 128, 256),
            ]
        )
        _xavier(extra)
        fc = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=False),
            nn.Conv2d(512, 1024, kernel_size=3, padding=6, dilation=6),
            nn.ReLU(inplace=True),
            nn.Conv2d(1024, 1024, kernel_size=1),
            nn.ReLU(inplace=True),
        )
        _xavier(fc)
        extra.insert(0, nn.Sequential(*backbone[pools[3] : -1], fc))
        self.extra = extra

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Six maps."""
        x = self.features(x)
        found = [self.scale_weight.view(1, -1, 1, 1) * F.normalize(x)]
        for block in self.extra:
            x = block(x)
            found.append(x)
        return OrderedDict((str(i), value) for i, value in enumerate(found))


@model("SSD300_VGG16_Weights", given={"pretrained_": True})
def ssd300_vgg16(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> SSD:
    """SSD for images of 300x300 on a VGG-16."""
    weights = backbone_weights(weights_backbone, "VGG16_Weights")
    known = pretrained_ or weights is not None
    count = det.trainable_layers(known, trainable_backbone_layers, 5, 4)
    features = vgg16(weights=weights).features
    pools = [i for i, layer in enumerate(features) if isinstance(layer, nn.MaxPool2d)]
    stages = [0, *(i + 1 for i in pools[:-1])]
    frozen_before(features, stages, count)
    boxes = DefaultBoxGenerator(
        [[2], [2, 3], [2, 3], [2, 3], [2], [2]],
        scales=[0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05],
        steps=[8, 16, 32, 64, 100, 300],
    )
    norms = {"image_mean": [0.48235, 0.45882, 0.40784], "image_std": [1.0 / 255.0] * 3}
    return SSD(
        SSDFeatureExtractorVGG(features), boxes, (300, 300), num_classes or 91, **norms | kwargs
    )
