"""SSDlite (MobileNetV2, MobileNetV3)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

from weft import nn
from weft.core.errors import warn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models._utils import frozen_before
from weft.vision.models.detection import _utils as det
from weft.vision.models.detection.anchor_utils import DefaultBoxGenerator
from weft.vision.models.detection.ssd import SSD, _out_channels, _ScoringHead
from weft.vision.models.mobilenetv3 import mobilenet_v3_large
from weft.vision.models.segmentation._utils import stages_of
from weft.vision.ops.misc import Conv2dNormActivation

Norm = Callable[..., nn.Module]


def _initialise(layers: nn.Module) -> None:
    for layer in layers.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.normal_(layer.weight, mean=0.0, std=0.03)
            if layer.bias is not None:
                nn.init.constant_(layer.bias, 0.0)


def _prediction(channels: int, out: int, norm: Norm) -> nn.Sequential:
    return nn.Sequential(
        Conv2dNormActivation(
            channels, channels, 3, groups=channels, norm_layer=norm, activation_layer=nn.ReLU6
        ),
        nn.Conv2d(channels, out, 1),
    )


def _extra(channels: int, out: int, norm: Norm) -> nn.Sequential:
    inner = out // 2
    how: dict[str, Any] = {"norm_layer": norm, "activation_layer": nn.ReLU6}
    return nn.Sequential(
        Conv2dNormActivation(channels, inner, kernel_size=1, **how),
        Conv2dNormActivation(inner, inner, kernel_size=3, stride=2, groups=inner, **how),
        Conv2dNormActivation(inner, out, kernel_size=1, **how),
    )


def _predictions(
    widths: list[int], counts: list[int], columns: int, norm: Norm
) -> list[nn.Sequential]:
    pairs = zip(widths, counts, strict=True)
    return [_prediction(width, columns * count, norm) for width, count in pairs]


class SSDLiteClassificationHead(_ScoringHead):
    """The class of each default box."""

    def __init__(
        self, in_channels: list[int], num_anchors: list[int], num_classes: int, norm_layer: Norm
    ) -> None:
        layers = _predictions(in_channels, num_anchors, num_classes, norm_layer)
        super().__init__(layers, num_classes, _initialise)


class SSDLiteRegressionHead(_ScoringHead):
    """The box of each default box."""

    def __init__(self, in_channels: list[int], num_anchors: list[int], norm_layer: Norm) -> None:
        layers = _predictions(in_channels, num_anchors, 4, norm_layer)
        super().__init__(layers, 4, _initialise)


class SSDLiteHead(nn.Module):
    """Classes and boxes of default boxes, by separable convolutions."""

    def __init__(
        self, in_channels: list[int], num_anchors: list[int], num_classes: int, norm_layer: Norm
    ) -> None:
        super().__init__()
        self.classification_head = SSDLiteClassificationHead(
            in_channels, num_anchors, num_classes, norm_layer
        )
        self.regression_head = SSDLiteRegressionHead(in_channels, num_anchors, norm_layer)

    def forward(self, x: list[Tensor]) -> dict[str, Tensor]:
        """Codes and logits."""
        return {
            "bbox_regression": self.regression_head(x),
            "cls_logits": self.classification_head(x),
        }


class SSDLiteFeatureExtractorMobileNet(nn.Module):
    """The maps of a MobileNet and of further layers behind it."""

    def __init__(
        self,
        backbone: nn.Sequential,
        c4_pos: int,
        norm_layer: Norm,
        width_mult: float = 1.0,
        min_depth: int = 16,
    ) -> None:
        super().__init__()
        if backbone[c4_pos].use_res_connect:
            raise ValueError("backbone[c4_pos].use_res_connect should be False")
        # The first map is that of the widened block, the second that of the last layer.
        self.features = nn.Sequential(
            nn.Sequential(*backbone[:c4_pos], backbone[c4_pos].block[0]),
            nn.Sequential(backbone[c4_pos].block[1:], *backbone[c4_pos + 1 :]),
        )
        widths = [max(min_depth, int(d * width_mult)) for d in (512, 256, 256, 128)]
        pairs = zip([backbone[-1].out_channels, *widths], widths, strict=False)
        self.extra = nn.ModuleList([_extra(a, b, norm_layer) for a, b in pairs])
        _initialise(self.extra)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """Six maps."""
        found = []
        for block in (*self.features, *self.extra):
            x = block(x)
            found.append(x)
        return OrderedDict((str(i), value) for i, value in enumerate(found))


@model("SSDLite320_MobileNet_V3_Large_Weights", given={"pretrained_": True})
def ssdlite320_mobilenet_v3_large(
    *,
    num_classes: int | None = None,
    weights_backbone: Any = None,
    trainable_backbone_layers: int | None = None,
    norm_layer: Norm | None = None,
    pretrained_: bool = False,
    **kwargs: Any,
) -> SSD:
    """SSDlite for images of 320x320 on a MobileNet v3."""
    if "size" in kwargs:
        warn("The size of the model is already fixed; ignoring the parameter.")
        kwargs.pop("size")
    weights = backbone_weights(weights_backbone, "MobileNet_V3_Large_Weights")
    known = pretrained_ or weights is not None
    count = det.trainable_layers(known, trainable_backbone_layers, 6, 6)
    norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.03)
    body = mobilenet_v3_large(weights=weights, norm_layer=norm, reduced_tail=weights is None)
    if weights is None:
        _initialise(body)
    stages = stages_of(body.features)
    frozen_before(body.features, stages, count)
    backbone = SSDLiteFeatureExtractorMobileNet(body.features, stages[-2], norm)
    size = (320, 320)
    boxes = DefaultBoxGenerator([[2, 3] for _ in range(6)], min_ratio=0.2, max_ratio=0.95)
    classes = num_classes or 91
    head = SSDLiteHead(
        _out_channels(backbone, size), boxes.num_anchors_per_location(), classes, norm
    )
    defaults: dict[str, Any] = {"score_thresh": 0.001, "nms_thresh": 0.55}
    defaults |= {"detections_per_img": 300, "topk_candidates": 300}
    defaults |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
    return SSD(backbone, boxes, size, classes, head=head, **{**defaults, **kwargs})
