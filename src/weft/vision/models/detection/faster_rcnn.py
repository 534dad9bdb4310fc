"""Faster R-CNN (Towards Real-Time Object Detection with Region Proposal Networks)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models.detection._utils import overwrite_eps, trainable_layers
from weft.vision.models.detection.anchor_utils import AnchorGenerator
from weft.vision.models.detection.backbone_utils import mobilenet_fpn, resnet_fpn
from weft.vision.models.detection.generalized_rcnn import GeneralizedRCNN
from weft.vision.models.detection.roi_heads import RoIHeads
from weft.vision.models.detection.rpn import RegionProposalNetwork, RPNHead
from weft.vision.models.detection.transform import GeneralizedRCNNTransform
from weft.vision.models.mobilenetv3 import mobilenet_v3_large
from weft.vision.models.resnet import resnet50
from weft.vision.ops.misc import Conv2dNormActivation, FrozenBatchNorm2d
from weft.vision.ops.pooling import MultiScaleRoIAlign


class TwoMLPHead(nn.Module):
    """Two linear layers on pooled features."""

    def __init__(self, in_channels: int, representation_size: int) -> None:
        super().__init__()
        self.fc6 = nn.Linear(in_channels, representation_size)
        self.fc7 = nn.Linear(representation_size, representation_size)

    def forward(self, x: Tensor) -> Tensor:
        """Features of each box."""
        return F.relu(self.fc7(F.relu(self.fc6(x.flatten(start_dim=1)))))


class FastRCNNConvFCHead(nn.Sequential):
    """Convolutions and linear layers on pooled features."""

    def __init__(
        self,
        input_size: tuple[int, int, int],
        conv_layers: list[int],
        fc_layers: list[int],
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        channels, height, width = input_size
        blocks: list[nn.Module] = []
        for out in conv_layers:
            blocks.append(Conv2dNormActivation(channels, out, norm_layer=norm_layer))
            channels = out
        blocks.append(nn.Flatten())
        size = channels * height * width
        for out in fc_layers:
            blocks += [nn.Linear(size, out), nn.ReLU(inplace=True)]
            size = out
        super().__init__(*blocks)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)


class FastRCNNPredictor(nn.Module):
    """Logits of the classes, and a box for each."""

    def __init__(self, in_channels: int, num_classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(in_channels, num_classes)
        self.bbox_pred = nn.Linear(in_channels, num_classes * 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and codes."""
        x = x.flatten(start_dim=1)
        return self.cls_score(x), self.bbox_pred(x)


def _default_anchorgen() -> AnchorGenerator:
    sizes = ((32,), (64,), (128,), (256,), (512,))
    return AnchorGenerator(sizes, ((0.5, 1.0, 2.0),) * len(sizes))


class FasterRCNN(GeneralizedRCNN):
    """Faster R-CNN on any backbone that has ``out_channels``."""

    def __init__(
        self,
        backbone: nn.Module,
        num_classes: int | None = None,
        min_size: Any = 800,
        max_size: int = 1333,
        image_mean: list[float] | None = None,
        image_std: list[float] | None = None,
        rpn_anchor_generator: AnchorGenerator | None = None,
        rpn_head: nn.Module | None = None,
        rpn_pre_nms_top_n_train: int = 2000,
        rpn_pre_nms_top_n_test: int = 1000,
        rpn_post_nms_top_n_train: int = 2000,
        rpn_post_nms_top_n_test: int = 1000,
        rpn_nms_thresh: float = 0.7,
        rpn_fg_iou_thresh: float = 0.7,
        rpn_bg_iou_thresh: float = 0.3,
        rpn_batch_size_per_image: int = 256,
        rpn_positive_fraction: float = 0.5,
        rpn_score_thresh: float = 0.0,
        box_roi_pool: nn.Module | None = None,
        box_head: nn.Module | None = None,
        box_predictor: nn.Module | None = None,
        box_score_thresh: float = 0.05,
        box_nms_thresh: float = 0.5,
        box_detections_per_img: int = 100,
        box_fg_iou_thresh: float = 0.5,
        box_bg_iou_thresh: float = 0.5,
        box_batch_size_per_image: int = 512,
        box_positive_fraction: float = 0.25,
        bbox_reg_weights: Any = None,
        **kwargs: Any,
    ) -> None:
        if not hasattr(backbone, "out_channels"):
            raise ValueError(
                "backbone should contain an attribute out_channels specifying the number of output "
                "channels (assumed to be the same for all the levels)"
            )
        if (num_classes is None) == (box_predictor is None):
            raise ValueError("either num_classes or box_predictor should be given, and not both")
        width = backbone.out_channels
        anchors = rpn_anchor_generator or _default_anchorgen()
        head = rpn_head or RPNHead(width, anchors.num_anchors_per_location()[0])
        rpn = RegionProposalNetwork(
            anchors, head, rpn_fg_iou_thresh, rpn_bg_iou_thresh, rpn_batch_size_per_image,
            rpn_positive_fraction,
            {"training": rpn_pre_nms_top_n_train, "testing": rpn_pre_nms_top_n_test},
            {"training": rpn_post_nms_top_n_train, "testing": rpn_post_nms_top_n_test},
            rpn_nms_thresh, score_thresh=rpn_score_thresh,
        )  # fmt: skip
        pool = box_roi_pool or MultiScaleRoIAlign(["0", "1", "2", "3"], 7, sampling_ratio=2)
        if box_head is None:
            box_head = TwoMLPHead(width * pool.output_size[0] ** 2, 1024)
        if box_predictor is None:
            assert num_classes is not None
            box_predictor = FastRCNNPredictor(1024, num_classes)
        heads = RoIHeads(
            pool, box_head, box_predictor, box_fg_iou_thresh, box_bg_iou_thresh,
            box_batch_size_per_image, box_positive_fraction, bbox_reg_weights, box_score_thresh,
            box_nms_thresh, box_detections_per_img,
        )  # fmt: skip
        mean, std = image_mean or [0.485, 0.456, 0.406], image_std or [0.229, 0.224, 0.225]
        transform = GeneralizedRCNNTransform(min_size, max_size, mean, std, **kwargs)
        super().__init__(backbone, rpn, heads, transform)


def _frozen_eps(made: nn.Module, asked: Mapping[str, Any]) -> None:
    if asked["weights"].name != "COCO_LEGACY":
        overwrite_eps(made, 0.0)


def resnet50_pyramid(weights: Any, layers: int | None, pretrained: bool) -> nn.Module:
    """A ResNet-50 with a pyramid; its norms are frozen where it has been trained before."""
    weights = backbone_weights(weights, "ResNet50_Weights")
    known = pretrained or weights is not None
    count = trainable_layers(known, layers, 5, 3)
    backbone = resnet50(weights=weights, norm_layer=FrozenBatchNorm2d if known else nn.BatchNorm2d)
    return resnet_fpn(backbone, count)


def deeper_parts(weights: Any, layers: int | None, pretrained: bool) -> dict[str, Any]:
    """The backbone and the deeper heads of the second versions."""
    weights = backbone_weights(weights, "ResNet50_Weights")
    count = trainable_layers(pretrained or weights is not None, layers, 5, 3)
    backbone = resnet_fpn(resnet50(weights=weights), count, norm_layer=nn.BatchNorm2d)
    anchors = _default_anchorgen()
    width = backbone.out_channels
    return {
        "backbone": backbone,
        "rpn_anchor_generator": anchors,
        "rpn_head": RPNHead(width, anchors.num_anchors_per_location()[0], conv_depth=2),
        "box_head": FastRCNNConvFCHead(
            (width, 7, 7), [256, 256, 256, 256], [1024], norm_layer=nn.BatchNorm2d
        ),
    }


@model("FasterRCNN_ResNet50_FPN_Weights", given={"pretrained_": True}, after=_frozen_eps)
def fasterrcnn_resnet50_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> FasterRCNN:
    """Faster R-CNN on a ResNet-50 with a pyramid."""
    backbone = resnet50_pyramid(weights_backbone, trainable_backbone_layers, pretrained_)
    return FasterRCNN(backbone, num_classes or 91, **kwargs)


@model("FasterRCNN_ResNet50_FPN_V2_Weights", given={"pretrained_": True})
def fasterrcnn_resnet50_fpn_v2(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> FasterRCNN:
    """Faster R-CNN on a ResNet-50 with a pyramid and deeper heads."""
    parts = deeper_parts(weights_backbone, trainable_backbone_layers, pretrained_)
    return FasterRCNN(parts.pop("backbone"), num_classes or 91, **parts, **kwargs)


def _on_mobilenet(
    classes: int | None, weights: Any, layers: int | None, pretrained: bool, options: dict[str, Any]
) -> FasterRCNN:
    weights = backbone_weights(weights, "MobileNet_V3_Large_Weights")
    known = pretrained or weights is not None
    count = trainable_layers(known, layers, 6, 3)
    norm = FrozenBatchNorm2d if known else nn.BatchNorm2d
    backbone = mobilenet_fpn(mobilenet_v3_large(weights=weights, norm_layer=norm), count)
    anchors = AnchorGenerator(((32, 64, 128, 256, 512),) * 3, ((0.5, 1.0, 2.0),) * 3)
    options = {"rpn_score_thresh": 0.05, "rpn_anchor_generator": anchors, **options}
    return FasterRCNN(backbone, classes or 91, **options)


@model("FasterRCNN_MobileNet_V3_Large_FPN_Weights", given={"pretrained_": True})
def fasterrcnn_mobilenet_v3_large_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> FasterRCNN:
    """Faster R-CNN on a MobileNet v3 with a pyramid."""
    layers = trainable_backbone_layers
    return _on_mobilenet(num_classes, weights_backbone, layers, pretrained_, kwargs)


@model("FasterRCNN_MobileNet_V3_Large_320_FPN_Weights", given={"pretrained_": True})
def fasterrcnn_mobilenet_v3_large_320_fpn(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> FasterRCNN:
    """Faster R-CNN on a MobileNet v3 with a pyramid, for images of 320 pixels."""
    options = {"min_size": 320, "max_size": 640, "rpn_pre_nms_top_n_test": 150}
    options |= {"rpn_post_nms_top_n_test": 150, **kwargs}
    layers = trainable_backbone_layers
    return _on_mobilenet(num_classes, weights_backbone, layers, pretrained_, options)
