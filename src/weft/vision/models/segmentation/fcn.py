"""FCN (Fully Convolutional Networks for Semantic Segmentation)."""

from __future__ import annotations

from typing import Any

from weft import nn
from weft.vision.models._api import backbone_weights, model
from weft.vision.models._utils import IntermediateLayerGetter
from weft.vision.models.resnet import ResNet, resnet50, resnet101
from weft.vision.models.segmentation._utils import SimpleSegmentationModel


class FCN(SimpleSegmentationModel):
    """A ResNet whose last layer is classified pixel by pixel."""


class FCNHead(nn.Sequential):
    """A 3x3 convolution and a classifier of pixels."""

    def __init__(self, in_channels: int, channels: int) -> None:
        inner = in_channels // 4
        super().__init__(
            nn.Conv2d(in_channels, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Dropout(0.1),
            nn.Conv2d(inner, channels, 1),
        )


def dilated_resnet(make: Any, weights: Any, kind: str) -> ResNet:
    """A ResNet that keeps an eighth of the resolution."""
    weights = backbone_weights(weights, kind)
    return make(weights=weights, replace_stride_with_dilation=[False, True, True])


def resnet_parts(backbone: ResNet, num_classes: int, aux: bool | None) -> tuple[Any, Any]:
    """The layers that are read, and the second classifier."""
    layers = {"layer4": "out", **({"layer3": "aux"} if aux else {})}
    head = FCNHead(1024, num_classes) if aux else None
    return IntermediateLayerGetter(backbone, layers), head


_GIVEN = {"aux_loss": True}


def _fcn(make: Any, kind: str, weights: Any, classes: int | None, aux: bool | None) -> FCN:
    classes = 21 if classes is None else classes
    layers, second = resnet_parts(dilated_resnet(make, weights, kind), classes, aux)
    return FCN(layers, FCNHead(2048, classes), second)


@model("FCN_ResNet50_Weights", given=_GIVEN)
def fcn_resnet50(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> FCN:
    """FCN on a ResNet-50."""
    return _fcn(resnet50, "ResNet50_Weights", weights_backbone, num_classes, aux_loss)


@model("FCN_ResNet101_Weights", given=_GIVEN)
def fcn_resnet101(
    *, num_classes: int | None = None, aux_loss: bool | None = None, weights_backbone: Any = None
) -> FCN:
    """FCN on a ResNet-101."""
    return _fcn(resnet101, "ResNet101_Weights", weights_backbone, num_classes, aux_loss)
