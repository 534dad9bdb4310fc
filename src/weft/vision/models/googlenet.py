"""GoogLeNet (Going Deeper with Convolutions)."""

from __future__ import annotations

import warnings
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model

__all__ = ["GoogLeNet", "GoogLeNetOutputs", "_GoogLeNetOutputs", "googlenet"]

GoogLeNetOutputs = namedtuple("GoogLeNetOutputs", ["logits", "aux_logits2", "aux_logits1"])
_GoogLeNetOutputs = GoogLeNetOutputs


class BasicConv2d(nn.Module):
    """A convolution, batch normalisation and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, **kwargs: Any) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, bias=False, **kwargs)
        self.bn = nn.BatchNorm2d(out_channels, eps=0.001)

    def forward(self, x: Tensor) -> Tensor:
        """The activations."""
        return F.relu(self.bn(self.conv(x)), inplace=True)


class Inception(nn.Module):
    """Four branches side by side."""

    def __init__(
        self,
        in_channels: int,
        ch1x1: int,
        ch3x3red: int,
        ch3x3: int,
        ch5x5red: int,
        ch5x5: int,
        pool_proj: int,
    ) -> None:
        super().__init__()
        conv = BasicConv2d
        self.branch1 = conv(in_channels, ch1x1, kernel_size=1)
        self.branch2 = nn.Sequential(
            conv(in_channels, ch3x3red, kernel_size=1),
            conv(ch3x3red, ch3x3, kernel_size=3, padding=1),
        )
        # The published weights have 3x3 here where the paper has 5x5.
        self.branch3 = nn.Sequential(
            conv(in_channels, ch5x5red, kernel_size=1),
            conv(ch5x5red, ch5x5, kernel_size=3, padding=1),
        )
        self.branch4 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=True),
            conv(in_channels, pool_proj, kernel_size=1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        return weft.cat([self.branch1(x), self.branch2(x), self.branch3(x), self.branch4(x)], 1)


class InceptionAux(nn.Module):
    """A classifier on an inner layer, used in training."""

    def __init__(self, in_channels: int, num_classes: int, dropout: float = 0.7) -> None:
        super().__init__()
        self.conv = BasicConv2d(in_channels, 128, kernel_size=1)
        self.fc1 = nn.Linear(2048, 1024)
        self.fc2 = nn.Linear(1024, num_classes)
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = weft.flatten(self.conv(F.adaptive_avg_pool2d(x, (4, 4))), 1)
        return self.fc2(self.dropout(F.relu(self.fc1(x), inplace=True)))


def from_imagenet(x: Tensor) -> Tensor:
    """Images normalised by ImageNet's means, normalised to [-1, 1] instead."""
    means, deviations = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    channels = [x[:, i : i + 1] * (deviations[i] / 0.5) + (means[i] - 0.5) / 0.5 for i in range(3)]
    return weft.cat(channels, 1)


def wants_init(init_weights: bool | None, name: str) -> bool:
    """Whether to reinitialise weights, with a warning if the caller has not specified it."""
    if init_weights is None:
        warnings.warn(
            f"The default weight initialization of {name} will be changed in future releases of "
            "torchvision. If you wish to keep the old behavior (which leads to long "
            "initialization times due to scipy/scipy#11299), please set init_weights=True.",
            FutureWarning,
            stacklevel=4,
        )
        return True
    return init_weights


class GoogLeNet(nn.Module):
    """Nine inception blocks, with two further classifiers for training."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        init_weights: bool | None = None,
        blocks: list[Any] | None = None,
        dropout: float = 0.2,
        dropout_aux: float = 0.7,
    ) -> None:
        super().__init__()
        conv, block, aux = blocks or (BasicConv2d, Inception, InceptionAux)
        init_weights = wants_init(init_weights, "GoogleNet")
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.conv1 = conv(3, 64, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.conv2 = conv(64, 64, kernel_size=1)
        self.conv3 = conv(64, 192, kernel_size=3, padding=1)
        self.maxpool2 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = block(192, 64, 96, 128, 16, 32, 32)
        self.inception3b = block(256, 128, 128, 192, 32, 96, 64)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = block(480, 192, 96, 208, 16, 48, 64)
        self.inception4b = block(512, 160, 112, 224, 24, 64, 64)
        self.inception4c = block(512, 128, 128, 256, 24, 64, 64)
        self.inception4d = block(512, 112, 144, 288, 32, 64, 64)
        self.inception4e = block(528, 256, 160, 320, 32, 128, 128)
        self.maxpool4 = nn.MaxPool2d(2, stride=2, ceil_mode=True)
        self.inception5a = block(832, 256, 160, 320, 32, 128, 128)
        self.inception5b = block(832, 384, 192, 384, 48, 128, 128)
        self.aux1 = aux(512, num_classes, dropout=dropout_aux) if aux_logits else None
        self.aux2 = aux(528, num_classes, dropout=dropout_aux) if aux_logits else None
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(1024, num_classes)
        if init_weights:
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    nn.init.trunc_normal_(module.weight, mean=0.0, std=0.01, a=-2, b=2)
                elif isinstance(module, nn.BatchNorm2d):
                    nn.init.constant_(module.weight, 1)
                    nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Any:
        """Scores of the classes; in training those of all three classifiers."""
        if self.transform_input:
            x = from_imagenet(x)
        further = self.training and self.aux_logits
        x = self.conv3(self.conv2(self.maxpool1(self.conv1(x))))
        x = self.inception3b(self.inception3a(self.maxpool2(x)))
        x = self.inception4a(self.maxpool3(x))
        aux1 = self.aux1(x) if further and self.aux1 is not None else None
        x = self.inception4d(self.inception4c(self.inception4b(x)))
        aux2 = self.aux2(x) if further and self.aux2 is not None else None
        x = self.maxpool4(self.inception4e(x))
        x = self.inception5b(self.inception5a(x))
        x = self.fc(self.dropout(weft.flatten(self.avgpool(x), 1)))
        return GoogLeNetOutputs(x, aux2, aux1) if further else x


def _drop_aux(made: nn.Module, asked: Mapping[str, Any]) -> None:
    if not asked.get("aux_logits", False):
        made.aux_logits, made.aux1, made.aux2 = False, None, None
    else:
        warnings.warn(
            "auxiliary heads in the pretrained googlenet model are NOT pretrained, so make sure "
            "to train them",
            stacklevel=3,
        )


_GIVEN = {"transform_input": True, "aux_logits": True, "init_weights": False}


@model("GoogLeNet_Weights", given=_GIVEN, after=_drop_aux)
def googlenet(**kwargs: Any) -> GoogLeNet:
    """GoogLeNet (Inception v1)."""
    return GoogLeNet(**kwargs)
