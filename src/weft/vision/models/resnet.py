"""ResNet, ResNeXt and Wide ResNet (Deep Residual Learning for Image Recognition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model

__all__ = [
    "ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152", "resnext50_32x4d",
    "resnext101_32x8d", "resnext101_64x4d", "wide_resnet50_2", "wide_resnet101_2",
]  # fmt: skip

Norm = Callable[..., nn.Module]


def conv3x3(
    in_planes: int, out_planes: int, stride: int = 1, groups: int = 1, dilation: int = 1
) -> nn.Conv2d:
    """A convolution of 3x3 that keeps sizes."""
    options: dict[str, Any] = {
        "padding": dilation,
        "groups": groups,
        "bias": False,
        "dilation": dilation,
    }
    return nn.Conv2d(in_planes, out_planes, kernel_size=3, stride=stride, **options)


def conv1x1(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of single pixels."""
    return nn.Conv2d(in_planes, out_planes, kernel_size=1, stride=stride, bias=False)


class BasicBlock(nn.Module):
    """Two convolutions of 3x3 beside a shortcut."""

    expansion = 1

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        if groups != 1 or base_width != 64:
            raise ValueError("BasicBlock only supports groups=1 and base_width=64")
        if dilation > 1:
            raise NotImplementedError("Dilation > 1 not supported in BasicBlock")
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut plus the branch."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + shortcut)


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the stride is in the 3x3 (ResNet 1.5)."""

    expansion = 4

    def __init__(
        self,
        inplanes: int,
        planes: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        groups: int = 1,
        base_width: int = 64,
        dilation: int = 1,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        norm_layer = norm_layer or nn.BatchNorm2d
        width = int(planes * (base_width / 64.0)) * groups
        self.conv1 = conv1x1(inplanes, width)
        self.bn1 = norm_layer(width)
        self.conv2 = conv3x3(width, width, stride, groups, dilation)
        self.bn2 = norm_layer(width)
        self.conv3 = conv1x1(width, planes * self.expansion)
        self.bn3 = norm_layer(planes * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut plus the branch."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + shortcut)


class ResNet(nn.Module):
    """Four stages of residual blocks."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        layers: list[int],
        num_classes: int = 1000,
        zero_init_residual: bool = False,
        groups: int = 1,
        width_per_group: int = 64,
        replace_stride_with_dilation: list[bool] | None = None,
        norm_layer: Norm | None = None,
    ) -> None:
        super().__init__()
        self._norm_layer = norm_layer or nn.BatchNorm2d
        self.inplanes = 64
        self.dilation = 1
        dilate = replace_stride_with_dilation or [False, False, False]
        if len(dilate) != 3:
            raise ValueError(
                "replace_stride_with_dilation should be None or a 3-element tuple, got "
                f"{replace_stride_with_dilation}"
            )
        self.groups = groups
        self.base_width = width_per_group
        self.conv1 = nn.Conv2d(3, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = self._norm_layer(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._make_layer(block, 64, layers[0])
        self.layer2 = self._make_layer(block, 128, layers[1], 2, dilate[0])
        self.layer3 = self._make_layer(block, 256, layers[2], 2, dilate[1])
        self.layer4 = self._make_layer(block, 512, layers[3], 2, dilate[2])
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, num_classes)
        self._initialise(zero_init_residual)

    def _initialise(self, zero_init_residual: bool) -> None:
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
        if zero_init_residual:  # each block begins as its shortcut
            for module in self.modules():
                last = {Bottleneck: "bn3", BasicBlock: "bn2"}.get(type(module))
                if last is not None and getattr(module, last).weight is not None:
                    nn.init.constant_(getattr(module, last).weight, 0)

    def _make_layer(
        self,
        block: type[BasicBlock | Bottleneck],
        planes: int,
        blocks: int,
        stride: int = 1,
        dilate: bool = False,
    ) -> nn.Sequential:
        before = self.dilation
        if dilate:
            self.dilation *= stride
            stride = 1
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                conv1x1(self.inplanes, planes * block.expansion, stride),
                self._norm_layer(planes * block.expansion),
            )
        shape = self.groups, self.base_width
        first = block(self.inplanes, planes, stride, downsample, *shape, before, self._norm_layer)
        self.inplanes = planes * block.expansion
        rest = [
            block(self.inplanes, planes, 1, None, *shape, self.dilation, self._norm_layer)
            for _ in range(1, blocks)
        ]
        return nn.Sequential(first, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(weft.flatten(self.avgpool(x), 1))


@model("ResNet18_Weights")
def resnet18(**kwargs: Any) -> ResNet:
    """ResNet-18."""
    return ResNet(BasicBlock, [2, 2, 2, 2], **kwargs)


@model("ResNet34_Weights")
def resnet34(**kwargs: Any) -> ResNet:
    """ResNet-34."""
    return ResNet(BasicBlock, [3, 4, 6, 3], **kwargs)


@model("ResNet50_Weights")
def resnet50(**kwargs: Any) -> ResNet:
    """ResNet-50."""
    return ResNet(Bottleneck, [3, 4, 6, 3], **kwargs)


@model("ResNet101_Weights")
def resnet101(**kwargs: Any) -> ResNet:
    """ResNet-101."""
    return ResNet(Bottleneck, [3, 4, 23, 3], **kwargs)


@model("ResNet152_Weights")
def resnet152(**kwargs: Any) -> ResNet:
    """ResNet-152."""
    return ResNet(Bottleneck, [3, 8, 36, 3], **kwargs)


@model("ResNeXt50_32X4D_Weights")
def resnext50_32x4d(**kwargs: Any) -> ResNet:
    """ResNeXt-50 of 32 groups."""
    return ResNet(Bottleneck, [3, 4, 6, 3], **{"groups": 32, "width_per_group": 4, **kwargs})


@model("ResNeXt101_32X8D_Weights")
def resnext101_32x8d(**kwargs: Any) -> ResNet:
    """ResNeXt-101 of 32 groups."""
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"groups": 32, "width_per_group": 8, **kwargs})


@model("ResNeXt101_64X4D_Weights")
def resnext101_64x4d(**kwargs: Any) -> ResNet:
    """ResNeXt-101 of 64 groups."""
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"groups": 64, "width_per_group": 4, **kwargs})


@model("Wide_ResNet50_2_Weights")
def wide_resnet50_2(**kwargs: Any) -> ResNet:
    """ResNet-50 with twice the width inside its blocks."""
    return ResNet(Bottleneck, [3, 4, 6, 3], **{"width_per_group": 128, **kwargs})


@model("Wide_ResNet101_2_Weights")
def wide_resnet101_2(**kwargs: Any) -> ResNet:
    """ResNet-101 with twice the width inside its blocks."""
    return ResNet(Bottleneck, [3, 4, 23, 3], **{"width_per_group": 128, **kwargs})
