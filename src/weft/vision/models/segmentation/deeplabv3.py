"""DeepLab v3 (Rethinking Atrous Convolution for Semantic Image Segmentation)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import backbone_weights, model
from weft.vision.models._utils import IntermediateLayerGetter
from weft.vision.models.mobilenetv3 import mobilenet_v3_large
from weft.vision.models.resnet import resnet50, resnet101
from weft.vision.models.segmentation._utils import SimpleSegmentationModel, stages_of
from weft.vision.models.segmentation.fcn import FCNHead, dilated_resnet, resnet_parts


class DeepLabV3(SimpleSegmentationModel):
    """A backbone read at several dilations."""


class ASPPConv(nn.Sequential):
    """A dilated 3x3 convolution."""

    def __init__(self, in_channels: int, out_channels: int, dilation: int) -> None:
        conv = nn.Conv2d(
            in_channels, out_channels, 3, padding=dilation, dilation=dilation, bias=False
        )
        super().__init__(conv, nn.BatchNorm2d(out_channels), nn.ReLU())


class ASPPPooling(nn.Sequential):
    """The mean of the whole image, at every pixel."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(in_channels, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The mean, spread over the image."""
        size = x.shape[-2:]
        for layer in self:
            x = layer(x)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


class ASPP(nn.Module):
    """Convolutions of several dilations and the image's mean, side by side."""

    def __init__(
        self, in_channels: int, atrous_rates: Sequence[int], out_channels: int = 256
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, bias=False),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(),
            )
        ]
        layers += [ASPPConv(in_channels, out_channels, rate) for rate in atrous_rates]
        layers.append(ASPPPooling(in_channels, out_channels))
        self.convs = nn.ModuleList(layers)
        self.project = nn.Sequential(
            nn.Conv2d(len(layers) * out_channels, out_channels, 1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            nn.Dropout(0.5),
        )

    def forward(self, x: Tensor) -> Tensor:
        """All of them, mixed."""
        return self.project(weft.cat([layer(x) for layer in self.convs], dim=1))


class DeepLabHead(nn.Sequential):
    """ASPP, a 3x3 convolution and a classifier of pixels."""

    def __init__(
        self, in_channels: int, num_classes: int, atrous_rates: Sequence[int] = (12, 24, 36)
    ) -> None:
        super().__init__(
            ASPP(in_channels, atrous_rates),
            nn.Conv2d(256, 256, 3, padding=1, bias=False),
            nn.BatchNorm2d(256),
            nn.ReLU(),
            nn.Conv2d(256, num_classes, 1),
        )


_GIVEN = {"aux_loss": True}


def _on_resnet(
    make: Any, kind: str, weights: Any, classes: int | None, aux: bool | None
) -> DeepLabV3:
    classes = 21 if classes is None else classes
    layers, second = resnet_parts(dilated_resnet(make, weights, kind), classes, aux)
    return DeepLabV3(layers, DeepLabHead(2048, classes), second)


@model("DeepLabV3_ResNet50_Weights", given=_GIVEN)
def deeplabv3_resnet50(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> DeepLabV3:
    """DeepLab v3 on a ResNet-50."""
    return _on_resnet(resnet50, "ResNet50_Weights", weights_backbone, num_classes, aux_loss)


@model("DeepLabV3_ResNet101_Weights", given=_GIVEN)
def deeplabv3_resnet101(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> DeepLabV3:
    """DeepLab v3 on a ResNet-101."""
    return _on_resnet(resnet101, "ResNet101_Weights", weights_backbone, num_classes, aux_loss)


@model("DeepLabV3_MobileNet_V3_Large_Weights", given=_GIVEN)
def deeplabv3_mobilenet_v3_large(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> DeepLabV3:
    """DeepLab v3 on a MobileNet v3."""
    weights = backbone_weights(weights_backbone, "MobileNet_V3_Large_Weights")
    backbone = mobilenet_v3_large(weights=weights, dilated=True).features
    classes = 21 if num_classes is None else num_classes
    stages = stages_of(backbone)
    last, early = stages[-1], stages[-4]
    layers = {str(last): "out", **({str(early): "aux"} if aux_loss else {})}
    second = FCNHead(backbone[early].out_channels, classes) if aux_loss else None
    head = DeepLabHead(backbone[last].out_channels, classes)
    return DeepLabV3(IntermediateLayerGetter(backbone, layers), head, second)
