"""LR-ASPP (Searching for MobileNetV3): segmentation for small machines."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models._utils import IntermediateLayerGetter
from weft.vision.models.mobilenetv3 import mobilenet_v3_large
from weft.vision.models.segmentation._utils import stages_of


class LRASPPHead(nn.Module):
    """Gated deep features, added to a classifier of early ones."""

    def __init__(
        self, low_channels: int, high_channels: int, num_classes: int, inter_channels: int
    ) -> None:
        super().__init__()
        self.cbr = nn.Sequential(
            nn.Conv2d(high_channels, inter_channels, 1, bias=False),
            nn.BatchNorm2d(inter_channels),
            nn.ReLU(inplace=True),
        )
        self.scale = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(high_channels, inter_channels, 1, bias=False),
            nn.Sigmoid(),
        )
        self.low_classifier = nn.Conv2d(low_channels, num_classes, 1)
        self.high_classifier = nn.Conv2d(inter_channels, num_classes, 1)

    def forward(self, input: dict[str, Tensor]) -> Tensor:
        """Scores at the resolution of the early features."""
        low, high = input["low"], input["high"]
        x = self.cbr(high) * self.scale(high)
        x = F.interpolate(x, size=low.shape[-2:], mode="bilinear", align_corners=False)
        return self.low_classifier(low) + self.high_classifier(x)


class LRASPP(nn.Module):
    """A backbone of two resolutions with a light head."""

    def __init__(
        self,
        backbone: nn.Module,
        low_channels: int,
        high_channels: int,
        num_classes: int,
        inter_channels: int = 128,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.classifier = LRASPPHead(low_channels, high_channels, num_classes, inter_channels)

    def forward(self, input: Tensor) -> dict[str, Tensor]:
        """``out``: scores of the classes for each pixel."""
        scores = self.classifier(self.backbone(input))
        size = input.shape[-2:]
        resized = F.interpolate(scores, size=size, mode="bilinear", align_corners=False)
        return OrderedDict(out=resized)


@model("LRASPP_MobileNet_V3_Large_Weights")
def lraspp_mobilenet_v3_large(
    *, num_classes: int | None = None, weights_backbone: Any = None, **kwargs: Any
) -> LRASPP:
    """LR-ASPP on a MobileNet v3."""
    if kwargs.pop("aux_loss", False):
        raise NotImplementedError("This model does not use auxiliary loss")
    weights = backbone_weights(weights_backbone, "MobileNet_V3_Large_Weights")
    backbone = mobilenet_v3_large(weights=weights, dilated=True).features
    stages = stages_of(backbone)
    early, last = stages[-4], stages[-1]
    widths = backbone[early].out_channels, backbone[last].out_channels
    layers = IntermediateLayerGetter(backbone, {str(early): "low", str(last): "high"})
    return LRASPP(layers, *widths, 21 if num_classes is None else num_classes, **kwargs)
