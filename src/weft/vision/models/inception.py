"""Inception v3 (Rethinking the Inception Architecture for Computer Vision)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models.googlenet import BasicConv2d, from_imagenet, wants_init

__all__ = ["Inception3", "InceptionOutputs", "_InceptionOutputs", "inception_v3"]

InceptionOutputs = namedtuple("InceptionOutputs", ["logits", "aux_logits"])
_InceptionOutputs = InceptionOutputs

_WIDE = {"kernel_size": (1, 7), "padding": (0, 3)}
_TALL = {"kernel_size": (7, 1), "padding": (3, 0)}


class InceptionA(nn.Module):
    """1x1, 5x5, double 3x3 and pooling."""

    def __init__(self, in_channels: int, pool_features: int, conv_block: Any = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch1x1 = conv(in_channels, 64, kernel_size=1)
        self.branch5x5_1 = conv(in_channels, 48, kernel_size=1)
        self.branch5x5_2 = conv(48, 64, kernel_size=5, padding=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, padding=1)
        self.branch_pool = conv(in_channels, pool_features, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        five = self.branch5x5_2(self.branch5x5_1(x))
        three = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        pool = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return weft.cat([self.branch1x1(x), five, three, pool], 1)


class InceptionB(nn.Module):
    """Halves the resolution by 3x3, double 3x3 and pooling."""

    def __init__(self, in_channels: int, conv_block: Any = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3 = conv(in_channels, 384, kernel_size=3, stride=2)
        self.branch3x3dbl_1 = conv(in_channels, 64, kernel_size=1)
        self.branch3x3dbl_2 = conv(64, 96, kernel_size=3, padding=1)
        self.branch3x3dbl_3 = conv(96, 96, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        double = self.branch3x3dbl_3(self.branch3x3dbl_2(self.branch3x3dbl_1(x)))
        return weft.cat([self.branch3x3(x), double, F.max_pool2d(x, kernel_size=3, stride=2)], 1)


class InceptionC(nn.Module):
    """1x1, 7x7 and double 7x7 as rows and columns, and pooling."""

    def __init__(self, in_channels: int, channels_7x7: int, conv_block: Any = None) -> None:
        super().__init__()
        conv, c7 = conv_block or BasicConv2d, channels_7x7
        self.branch1x1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7_1 = conv(in_channels, c7, kernel_size=1)
        self.branch7x7_2 = conv(c7, c7, **_WIDE)
        self.branch7x7_3 = conv(c7, 192, **_TALL)
        self.branch7x7dbl_1 = conv(in_channels, c7, kernel_size=1)
        self.branch7x7dbl_2 = conv(c7, c7, **_TALL)
        self.branch7x7dbl_3 = conv(c7, c7, **_WIDE)
        self.branch7x7dbl_4 = conv(c7, c7, **_TALL)
        self.branch7x7dbl_5 = conv(c7, 192, **_WIDE)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        seven = self.branch7x7_3(self.branch7x7_2(self.branch7x7_1(x)))
        double = self.branch7x7dbl_3(self.branch7x7dbl_2(self.branch7x7dbl_1(x)))
        double = self.branch7x7dbl_5(self.branch7x7dbl_4(double))
        pool = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        return weft.cat([self.branch1x1(x), seven, double, pool], 1)


class InceptionD(nn.Module):
    """Halves the resolution by 3x3, 7x7 with 3x3, and pooling."""

    def __init__(self, in_channels: int, conv_block: Any = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.branch3x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch3x3_2 = conv(192, 320, kernel_size=3, stride=2)
        self.branch7x7x3_1 = conv(in_channels, 192, kernel_size=1)
        self.branch7x7x3_2 = conv(192, 192, **_WIDE)
        self.branch7x7x3_3 = conv(192, 192, **_TALL)
        self.branch7x7x3_4 = conv(192, 192, kernel_size=3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        three = self.branch3x3_2(self.branch3x3_1(x))
        seven = self.branch7x7x3_3(self.branch7x7x3_2(self.branch7x7x3_1(x)))
        pool = F.max_pool2d(x, kernel_size=3, stride=2)
        return weft.cat([three, self.branch7x7x3_4(seven), pool], 1)


class InceptionE(nn.Module):
    """1x1, 3x3 and double 3x3 as rows beside columns, and pooling."""

    def __init__(self, in_channels: int, conv_block: Any = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        row = {"kernel_size": (1, 3), "padding": (0, 1)}
        column = {"kernel_size": (3, 1), "padding": (1, 0)}
        self.branch1x1 = conv(in_channels, 320, kernel_size=1)
        self.branch3x3_1 = conv(in_channels, 384, kernel_size=1)
        self.branch3x3_2a = conv(384, 384, **row)
        self.branch3x3_2b = conv(384, 384, **column)
        self.branch3x3dbl_1 = conv(in_channels, 448, kernel_size=1)
        self.branch3x3dbl_2 = conv(448, 384, kernel_size=3, padding=1)
        self.branch3x3dbl_3a = conv(384, 384, **row)
        self.branch3x3dbl_3b = conv(384, 384, **column)
        self.branch_pool = conv(in_channels, 192, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        """The channels of all branches."""
        three = self.branch3x3_1(x)
        double = self.branch3x3dbl_2(self.branch3x3dbl_1(x))
        pool = self.branch_pool(F.avg_pool2d(x, kernel_size=3, stride=1, padding=1))
        parts = [self.branch1x1(x), self.branch3x3_2a(three), self.branch3x3_2b(three)]
        parts += [self.branch3x3dbl_3a(double), self.branch3x3dbl_3b(double), pool]
        return weft.cat(parts, 1)


class InceptionAux(nn.Module):
    """A classifier on an inner layer, used in training."""

    def __init__(self, in_channels: int, num_classes: int, conv_block: Any = None) -> None:
        super().__init__()
        conv = conv_block or BasicConv2d
        self.conv0 = conv(in_channels, 128, kernel_size=1)
        self.conv1 = conv(128, 768, kernel_size=5)
        self.conv1.stddev = 0.01
        self.fc = nn.Linear(768, num_classes)
        self.fc.stddev = 0.001

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.conv1(self.conv0(F.avg_pool2d(x, kernel_size=5, stride=3)))
        return self.fc(weft.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


_BLOCKS = (
    *(BasicConv2d, InceptionA, InceptionB, InceptionC, InceptionD, InceptionE, InceptionAux),
)


class Inception3(nn.Module):
    """Eleven inception blocks for images of 299x299, with a further classifier for training."""

    def __init__(
        self,
        num_classes: int = 1000,
        aux_logits: bool = True,
        transform_input: bool = False,
        inception_blocks: list[Any] | None = None,
        init_weights: bool | None = None,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        conv, a, b, c, d, e, aux = inception_blocks or _BLOCKS
        init_weights = wants_init(init_weights, "inception_v3")
        self.aux_logits, self.transform_input = aux_logits, transform_input
        self.Conv2d_1a_3x3 = conv(3, 32, kernel_size=3, stride=2)
        self.Conv2d_2a_3x3 = conv(32, 32, kernel_size=3)
        self.Conv2d_2b_3x3 = conv(32, 64, kernel_size=3, padding=1)
        self.maxpool1 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Conv2d_3b_1x1 = conv(64, 80, kernel_size=1)
        self.Conv2d_4a_3x3 = conv(80, 192, kernel_size=3)
        self.maxpool2 = nn.MaxPool2d(kernel_size=3, stride=2)
        self.Mixed_5b = a(192, pool_features=32)
        self.Mixed_5c = a(256, pool_features=64)
        self.Mixed_5d = a(288, pool_features=64)
        self.Mixed_6a = b(288)
        self.Mixed_6b = c(768, channels_7x7=128)
        self.Mixed_6c = c(768, channels_7x7=160)
        self.Mixed_6d = c(768, channels_7x7=160)
        self.Mixed_6e = c(768, channels_7x7=192)
        self.AuxLogits = aux(768, num_classes) if aux_logits else None
        self.Mixed_7a = d(768)
        self.Mixed_7b = e(1280)
        self.Mixed_7c = e(2048)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(p=dropout)
        self.fc = nn.Linear(2048, num_classes)
        if init_weights:
            for module in self.modules():
                if isinstance(module, (nn.Conv2d, nn.Linear)):
                    deviation = float(getattr(module, "stddev", 0.1))
                    nn.init.trunc_normal_(module.weight, mean=0.0, std=deviation, a=-2, b=2)
                elif isinstance(module, nn.BatchNorm2d):
                    nn.init.constant_(module.weight, 1)
                    nn.init.constant_(module.bias, 0)

    def forward(self, x: Tensor) -> Any:
        """Scores of the classes; in training those of both classifiers."""
        if self.transform_input:
            x = from_imagenet(x)
        x = self.Conv2d_2b_3x3(self.Conv2d_2a_3x3(self.Conv2d_1a_3x3(x)))
        x = self.Conv2d_4a_3x3(self.Conv2d_3b_1x1(self.maxpool1(x)))
        x = self.Mixed_5d(self.Mixed_5c(self.Mixed_5b(self.maxpool2(x))))
        x = self.Mixed_6c(self.Mixed_6b(self.Mixed_6a(x)))
        x = self.Mixed_6e(self.Mixed_6d(x))
        further = self.training and self.aux_logits
        aux = self.AuxLogits(x) if further and self.AuxLogits is not None else None
        x = self.Mixed_7c(self.Mixed_7b(self.Mixed_7a(x)))
        x = self.fc(weft.flatten(self.dropout(self.avgpool(x)), 1))
        return InceptionOutputs(x, aux) if further else x


def _drop_aux(made: nn.Module, asked: Mapping[str, Any]) -> None:
    if not asked.get("aux_logits", True):
        made.aux_logits, made.AuxLogits = False, None


_GIVEN = {"transform_input": True, "aux_logits": True, "init_weights": False}


@model("Inception_V3_Weights", given=_GIVEN, after=_drop_aux)
def inception_v3(**kwargs: Any) -> Inception3:
    """Inception v3."""
    return Inception3(**kwargs)
