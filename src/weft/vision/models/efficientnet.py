"""EfficientNet (Rethinking Model Scaling) and v2 (Smaller Models and Faster Training)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models._utils import make_divisible
from weft.vision.ops.dropping import StochasticDepth
from weft.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation

__all__ = [
    "EfficientNet",
    "efficientnet_b0",
    "efficientnet_b1",
    "efficientnet_b2",
    "efficientnet_b3",
    "efficientnet_b4",
    "efficientnet_b5",
    "efficientnet_b6",
    "efficientnet_b7",
    "efficientnet_v2_l",
    "efficientnet_v2_m",
    "efficientnet_v2_s",
]  # fmt: skip


@dataclass
class _MBConvConfig:
    expand_ratio: float
    kernel: int
    stride: int
    input_channels: int
    out_channels: int
    num_layers: int
    block: Callable[..., nn.Module]

    @staticmethod
    def adjust_channels(channels: int, width_mult: float, min_value: int | None = None) -> int:
        """Channels of a wider or narrower network."""
        return make_divisible(channels * width_mult, 8, min_value)


class MBConvConfig(_MBConvConfig):
    """A stage of ``MBConv`` blocks, scaled in width and depth."""

    def __init__(
        self,
        expand_ratio: float,
        kernel: int,
        stride: int,
        input_channels: int,
        out_channels: int,
        num_layers: int,
        width_mult: float = 1.0,
        depth_mult: float = 1.0,
        block: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__(
            expand_ratio,
            kernel,
            stride,
            self.adjust_channels(input_channels, width_mult),
            self.adjust_channels(out_channels, width_mult),
            math.ceil(num_layers * depth_mult),
            block or MBConv,
        )


class FusedMBConvConfig(_MBConvConfig):
    """A stage of ``FusedMBConv`` blocks."""

    def __init__(
        self,
        expand_ratio: float,
        kernel: int,
        stride: int,
        input_channels: int,
        out_channels: int,
        num_layers: int,
        block: Callable[..., nn.Module] | None = None,
    ) -> None:
        sizes = (expand_ratio, kernel, stride, input_channels, out_channels, num_layers)
        super().__init__(*sizes, block or FusedMBConv)


class _Residual(nn.Module):
    """Layers with a shortcut where the shape stays; in training they are left out at random."""

    def __init__(
        self, cnf: _MBConvConfig, layers: list[nn.Module], stochastic_depth_prob: float
    ) -> None:
        super().__init__()
        if not (1 <= cnf.stride <= 2):
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        self.block = nn.Sequential(*layers)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")
        self.out_channels = cnf.out_channels

    def forward(self, input: Tensor) -> Tensor:
        """The branch, and the shortcut if there is one."""
        result = self.block(input)
        return self.stochastic_depth(result) + input if self.use_res_connect else result


class MBConv(_Residual):
    """Widens, filters each channel, gates, narrows."""

    def __init__(
        self,
        cnf: MBConvConfig,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = SqueezeExcitation,
    ) -> None:
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        layers: list[nn.Module] = []
        if wide != cnf.input_channels:
            layers.append(conv(cnf.input_channels, wide, kernel_size=1))
        layers.append(conv(wide, wide, kernel_size=cnf.kernel, stride=cnf.stride, groups=wide))
        narrow = max(1, cnf.input_channels // 4)
        layers.append(se_layer(wide, narrow, activation=partial(nn.SiLU, inplace=True)))
        layers.append(conv(wide, cnf.out_channels, kernel_size=1, activation_layer=None))
        super().__init__(cnf, layers, stochastic_depth_prob)


class FusedMBConv(_Residual):
    """Widens and filters in one convolution, narrows."""

    def __init__(
        self,
        cnf: FusedMBConvConfig,
        stochastic_depth_prob: float,
        norm_layer: Callable[..., nn.Module],
    ) -> None:
        conv = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=nn.SiLU)
        wide = cnf.adjust_channels(cnf.input_channels, cnf.expand_ratio)
        window: dict[str, Any] = {"kernel_size": cnf.kernel, "stride": cnf.stride}
        if wide != cnf.input_channels:
            layers: list[nn.Module] = [
                conv(cnf.input_channels, wide, **window),
                conv(wide, cnf.out_channels, kernel_size=1, activation_layer=None),
            ]
        else:
            layers = [conv(cnf.input_channels, cnf.out_channels, **window)]
        super().__init__(cnf, layers, stochastic_depth_prob)


class EfficientNet(nn.Module):
    """Stages of blocks as a list of configurations says."""

    def __init__(
        self,
        inverted_residual_setting: Sequence[MBConvConfig | FusedMBConvConfig],
        dropout: float,
        stochastic_depth_prob: float = 0.2,
        num_classes: int = 1000,
        norm_layer: Callable[..., nn.Module] | None = None,
        last_channel: int | None = None,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        norm = norm_layer or nn.BatchNorm2d
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": nn.SiLU}
        first = inverted_residual_setting[0].input_channels
        layers: list[nn.Module] = [Conv2dNormActivation(3, first, 3, 2, **options)]
        total = sum(cnf.num_layers for cnf in inverted_residual_setting)
        done = 0
        for cnf in inverted_residual_setting:
            stage: list[nn.Module] = []
            for _ in range(cnf.num_layers):
                block = copy.copy(cnf)
                if stage:
                    block.input_channels, block.stride = block.out_channels, 1
                stage.append(cnf.block(block, stochastic_depth_prob * done / total, norm))
                done += 1
            layers.append(nn.Sequential(*stage))
        width = inverted_residual_setting[-1].out_channels
        last = last_channel if last_channel is not None else 4 * width
        layers.append(Conv2dNormActivation(width, last, kernel_size=1, **options))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout, inplace=True), nn.Linear(last, num_classes)
        )
        for module in self.modules():
            _initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(weft.flatten(self.avgpool(self.features(x)), 1))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        bound = 1.0 / math.sqrt(module.out_features)
        nn.init.uniform_(module.weight, -bound, bound)
        nn.init.zeros_(module.bias)


_B_STAGES = (
    *((1, 3, 1, 32, 16, 1), (6, 3, 2, 16, 24, 2), (6, 5, 2, 24, 40, 2), (6, 3, 2, 40, 80, 3)),
    *((6, 5, 1, 80, 112, 3), (6, 5, 2, 112, 192, 4), (6, 3, 1, 192, 320, 1)),
)
# Fused stages and plain ones.
_V2_STAGES = {
    "s": (
        ((1, 3, 1, 24, 24, 2), (4, 3, 2, 24, 48, 4), (4, 3, 2, 48, 64, 4)),
        ((4, 3, 2, 64, 128, 6), (6, 3, 1, 128, 160, 9), (6, 3, 2, 160, 256, 15)),
    ),
    "m": (
        ((1, 3, 1, 24, 24, 3), (4, 3, 2, 24, 48, 5), (4, 3, 2, 48, 80, 5)),
        (
            *((4, 3, 2, 80, 160, 7), (6, 3, 1, 160, 176, 14)),
            *((6, 3, 2, 176, 304, 18), (6, 3, 1, 304, 512, 5)),
        ),
    ),
    "l": (
        ((1, 3, 1, 32, 32, 4), (4, 3, 2, 32, 64, 7), (4, 3, 2, 64, 96, 7)),
        (
            *((4, 3, 2, 96, 192, 10), (6, 3, 1, 192, 224, 19)),
            *((6, 3, 2, 224, 384, 25), (6, 3, 1, 384, 640, 7)),
        ),
    ),
}


def _scaled(kwargs: dict[str, Any], width: float, depth: float, dropout: float) -> EfficientNet:
    stages = [MBConvConfig(*row, width_mult=width, depth_mult=depth) for row in _B_STAGES]
    return EfficientNet(stages, kwargs.pop("dropout", dropout), **kwargs)


def _second(kwargs: dict[str, Any], size: str, dropout: float) -> EfficientNet:
    fused, plain = _V2_STAGES[size]
    stages = [FusedMBConvConfig(*row) for row in fused] + [MBConvConfig(*row) for row in plain]
    kwargs = {"norm_layer": partial(nn.BatchNorm2d, eps=1e-03), "last_channel": 1280, **kwargs}
    return EfficientNet(stages, kwargs.pop("dropout", dropout), **kwargs)


_TIGHT = {"norm_layer": partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)}


@model("EfficientNet_B0_Weights")
def efficientnet_b0(**kwargs: Any) -> EfficientNet:
    """EfficientNet B0."""
    return _scaled(kwargs, 1.0, 1.0, 0.2)


@model("EfficientNet_B1_Weights")
def efficientnet_b1(**kwargs: Any) -> EfficientNet:
    """EfficientNet B1."""
    return _scaled(kwargs, 1.0, 1.1, 0.2)


@model("EfficientNet_B2_Weights")
def efficientnet_b2(**kwargs: Any) -> EfficientNet:
    """EfficientNet B2."""
    return _scaled(kwargs, 1.1, 1.2, 0.3)


@model("EfficientNet_B3_Weights")
def efficientnet_b3(**kwargs: Any) -> EfficientNet:
    """EfficientNet B3."""
    return _scaled(kwargs, 1.2, 1.4, 0.3)


@model("EfficientNet_B4_Weights")
def efficientnet_b4(**kwargs: Any) -> EfficientNet:
    """EfficientNet B4."""
    return _scaled(kwargs, 1.4, 1.8, 0.4)


@model("EfficientNet_B5_Weights")
def efficientnet_b5(**kwargs: Any) -> EfficientNet:
    """EfficientNet B5."""
    return _scaled({**_TIGHT, **kwargs}, 1.6, 2.2, 0.4)


@model("EfficientNet_B6_Weights")
def efficientnet_b6(**kwargs: Any) -> EfficientNet:
    """EfficientNet B6."""
    return _scaled({**_TIGHT, **kwargs}, 1.8, 2.6, 0.5)


@model("EfficientNet_B7_Weights")
def efficientnet_b7(**kwargs: Any) -> EfficientNet:
    """EfficientNet B7."""
    return _scaled({**_TIGHT, **kwargs}, 2.0, 3.1, 0.5)


@model("EfficientNet_V2_S_Weights")
def efficientnet_v2_s(**kwargs: Any) -> EfficientNet:
    """EfficientNet v2, small."""
    return _second(kwargs, "s", 0.2)


@model("EfficientNet_V2_M_Weights")
def efficientnet_v2_m(**kwargs: Any) -> EfficientNet:
    """EfficientNet v2, medium."""
    return _second(kwargs, "m", 0.3)


@model("EfficientNet_V2_L_Weights")
def efficientnet_v2_l(**kwargs: Any) -> EfficientNet:
    """EfficientNet v2, large."""
    return _second(kwargs, "l", 0.4)
