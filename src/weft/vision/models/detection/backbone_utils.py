"""Backbones of detectors: networks for classification with a pyramid on top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models import mobilenetv3, resnet
from weft.vision.models._utils import IntermediateLayerGetter, frozen_before
from weft.vision.models.segmentation._utils import stages_of
from weft.vision.ops.feature_pyramid_network import (
    ExtraFPNBlock,
    FeaturePyramidNetwork,
    LastLevelMaxPool,
)
from weft.vision.ops.misc import FrozenBatchNorm2d


class BackboneWithFPN(nn.Module):
    """Some layers of a network, made into a pyramid."""

    def __init__(
        self,
        backbone: nn.Module,
        return_layers: dict[str, str],
        in_channels_list: list[int],
        out_channels: int,
        extra_blocks: ExtraFPNBlock | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.body = IntermediateLayerGetter(backbone, return_layers=return_layers)
        self.fpn = FeaturePyramidNetwork(
            in_channels_list, out_channels, extra_blocks or LastLevelMaxPool(), norm_layer
        )
        self.out_channels = out_channels

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The maps of the pyramid."""
        return self.fpn(self.body(x))


def _freeze_resnet(backbone: nn.Module, trainable_layers: int) -> None:
    if trainable_layers < 0 or trainable_layers > 5:
        raise ValueError(f"Trainable layers should be in the range [0,5], got {trainable_layers}")
    trained = ["layer4", "layer3", "layer2", "layer1", "conv1"][:trainable_layers]
    if trainable_layers == 5:
        trained.append("bn1")
    for name, parameter in backbone.named_parameters():
        if all(not name.startswith(layer) for layer in trained):
            parameter.requires_grad_(False)


def resnet_fpn(
    backbone: resnet.ResNet,
    trainable_layers: int,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
    norm_layer: Callable[..., nn.Module] | None = None,
) -> BackboneWithFPN:
    """A pyramid of 256 channels on the stages of a ResNet."""
    _freeze_resnet(backbone, trainable_layers)
    returned = returned_layers or [1, 2, 3, 4]
    if min(returned) <= 0 or max(returned) >= 5:
        raise ValueError(f"Each returned layer should be in the range [1,4]. Got {returned}")
    layers = {f"layer{k}": str(v) for v, k in enumerate(returned)}
    widths = [backbone.inplanes // 8 * 2 ** (i - 1) for i in returned]
    return BackboneWithFPN(backbone, layers, widths, 256, extra_blocks, norm_layer)


def resnet_fpn_backbone(
    *,
    backbone_name: str,
    weights: Any = None,
    norm_layer: Callable[..., nn.Module] = FrozenBatchNorm2d,
    trainable_layers: int = 3,
    returned_layers: list[int] | None = None,
    extra_blocks: ExtraFPNBlock | None = None,
) -> BackboneWithFPN:
    """A pyramid on a ResNet by its name."""
    made = getattr(resnet, backbone_name)(weights=weights, norm_layer=norm_layer)
    return resnet_fpn(made, trainable_layers, returned_layers, extra_blocks)


def mobilenet_fpn(
    backbone: mobilenetv3.MobileNetV3,
    trainable_layers: int,
    fpn: bool = True,
    returned_layers: list[int] | None = None,
) -> nn.Module:
    """A pyramid of 256 channels on the stages of a MobileNet."""
    features = backbone.features
    stages = stages_of(features)
    frozen_before(features, stages, trainable_layers)
    if not fpn:
        made = nn.Sequential(features, nn.Conv2d(features[-1].out_channels, 256, 1))
        made.out_channels = 256
        return made
    returned = returned_layers or [len(stages) - 2, len(stages) - 1]
    layers = {str(stages[k]): str(v) for v, k in enumerate(returned)}
    widths = [features[stages[i]].out_channels for i in returned]
    return BackboneWithFPN(features, layers, widths, 256)
