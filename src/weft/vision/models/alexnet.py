"""AlexNet (One weird trick for parallelizing convolutional neural networks) and LeNet-5."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model

__all__ = ["AlexNet", "LeNet", "alexnet", "lenet"]


class AlexNet(nn.Module):
    """Five convolutions and three linear layers."""

    def __init__(self, num_classes: int = 1000, dropout: float = 0.5) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(64, 192, kernel_size=5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
            nn.Conv2d(192, 384, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, kernel_size=3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout),
            nn.Linear(256 * 6 * 6, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(p=dropout),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Linear(4096, num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(weft.flatten(self.avgpool(self.features(x)), 1))


@model("AlexNet_Weights")
def alexnet(**kwargs: Any) -> AlexNet:
    """AlexNet."""
    return AlexNet(**kwargs)


class LeNet(nn.Module):
    """LeNet-5 for 28x28 or 32x32 images, with ReLU and max pooling."""

    def __init__(self, num_classes: int = 10, in_channels: int = 1, size: int = 28) -> None:
        super().__init__()
        padding = 2 if size == 28 else 0
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, 6, 5, padding=padding),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Linear(16 * 5 * 5, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, num_classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(weft.flatten(self.features(x), 1))


@model(None)
def lenet(**kwargs: Any) -> LeNet:
    """LeNet-5."""
    return LeNet(**kwargs)
