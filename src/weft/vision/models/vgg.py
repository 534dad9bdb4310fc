"""VGG (Very Deep Convolutional Networks for Large-Scale Image Recognition)."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model

__all__ = [
    "VGG", "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn",
]  # fmt: skip

# Channels of the convolutions between poolings.
_STAGES: dict[str, tuple[tuple[int, ...], ...]] = {
    "A": ((64,), (128,), (256,) * 2, (512,) * 2, (512,) * 2),
    "B": ((64,) * 2, (128,) * 2, (256,) * 2, (512,) * 2, (512,) * 2),
    "D": ((64,) * 2, (128,) * 2, (256,) * 3, (512,) * 3, (512,) * 3),
    "E": ((64,) * 2, (128,) * 2, (256,) * 4, (512,) * 4, (512,) * 4),
}


class VGG(nn.Module):
    """Convolutions of 3x3 in stages, and three linear layers."""

    def __init__(
        self,
        features: nn.Module,
        num_classes: int = 1000,
        init_weights: bool = True,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, num_classes),
        )
        if init_weights:
            for module in self.modules():
                _initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(weft.flatten(self.avgpool(self.features(x)), 1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        if module.bias is not None:
            nn.init.constant_(module.bias, 0)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.constant_(module.weight, 1)
        nn.init.constant_(module.bias, 0)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
        nn.init.constant_(module.bias, 0)


def _features(kind: str, batch_norm: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for stage in _STAGES[kind]:
        for width in stage:
            layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
            if batch_norm:
                layers.append(nn.BatchNorm2d(width))
            layers.append(nn.ReLU(inplace=True))
            channels = width
        layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
    return nn.Sequential(*layers)


_GIVEN = {"init_weights": False}


@model("VGG11_Weights", given=_GIVEN)
def vgg11(**kwargs: Any) -> VGG:
    """VGG-11."""
    return VGG(_features("A", False), **kwargs)


@model("VGG11_BN_Weights", given=_GIVEN)
def vgg11_bn(**kwargs: Any) -> VGG:
    """VGG-11 with batch normalisation."""
    return VGG(_features("A", True), **kwargs)


@model("VGG13_Weights", given=_GIVEN)
def vgg13(**kwargs: Any) -> VGG:
    """VGG-13."""
    return VGG(_features("B", False), **kwargs)


@model("VGG13_BN_Weights", given=_GIVEN)
def vgg13_bn(**kwargs: Any) -> VGG:
    """VGG-13 with batch normalisation."""
    return VGG(_features("B", True), **kwargs)


@model("VGG16_Weights", given=_GIVEN)
def vgg16(**kwargs: Any) -> VGG:
    """VGG-16."""
    return VGG(_features("D", False), **kwargs)


@model("VGG16_BN_Weights", given=_GIVEN)
def vgg16_bn(**kwargs: Any) -> VGG:
    """VGG-16 with batch normalisation."""
    return VGG(_features("D", True), **kwargs)


@model("VGG19_Weights", given=_GIVEN)
def vgg19(**kwargs: Any) -> VGG:
    """VGG-19."""
    return VGG(_features("E", False), **kwargs)


@model("VGG19_BN_Weights", given=_GIVEN)
def vgg19_bn(**kwargs: Any) -> VGG:
    """VGG-19 with batch normalisation."""
    return VGG(_features("E", True), **kwargs)
