"""MobileNet v3 (Searching for MobileNetV3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models._utils import make_divisible
from weft.vision.models.mobilenetv2 import initialise
from weft.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation


class InvertedResidualConfig:
    """One block: channels, window, squeeze-and-excitation, activation ("RE" or "HS"), stride."""

    def __init__(
        self,
        input_channels: int,
        kernel: int,
        expanded_channels: int,
        out_channels: int,
        use_se: bool,
        activation: str,
        stride: int,
        dilation: int,
        width_mult: float,
    ) -> None:
        self.input_channels = self.adjust_channels(input_channels, width_mult)
        self.kernel = kernel
        self.expanded_channels = self.adjust_channels(expanded_channels, width_mult)
        self.out_channels = self.adjust_channels(out_channels, width_mult)
        self.use_se = use_se
        self.use_hs = activation == "HS"
        self.stride = stride
        self.dilation = dilation

    @staticmethod
    def adjust_channels(channels: int, width_mult: float) -> int:
        """Channels of a wider or narrower network."""
        return make_divisible(channels * width_mult, 8)


class InvertedResidual(nn.Module):
    """Widens, filters each channel, gates, narrows; with a shortcut where the shape stays."""

    def __init__(
        self,
        cnf: InvertedResidualConfig,
        norm_layer: Callable[..., nn.Module],
        se_layer: Callable[..., nn.Module] = partial(
            SqueezeExcitation, scale_activation=nn.Hardsigmoid
        ),
    ) -> None:
        super().__init__()
        if not (1 <= cnf.stride <= 2):
            raise ValueError("illegal stride value")
        self.use_res_connect = cnf.stride == 1 and cnf.input_channels == cnf.out_channels
        wide = cnf.expanded_channels
        options: dict[str, Any] = {
            "norm_layer": norm_layer,
            "activation_layer": nn.Hardswish if cnf.use_hs else nn.ReLU,
        }
        layers: list[nn.Module] = []
        if wide != cnf.input_channels:
            layers.append(Conv2dNormActivation(cnf.input_channels, wide, 1, **options))
        layers.append(
            Conv2dNormActivation(
                wide,
                wide,
                kernel_size=cnf.kernel,
                stride=1 if cnf.dilation > 1 else cnf.stride,
                dilation=cnf.dilation,
                groups=wide,
                **options,
            )
        )
        if cnf.use_se:
            layers.append(se_layer(wide, make_divisible(wide // 4, 8)))
        options["activation_layer"] = None
        layers.append(Conv2dNormActivation(wide, cnf.out_channels, 1, **options))
        self.block = nn.Sequential(*layers)
        self.out_channels = cnf.out_channels
        self._is_cn = cnf.stride > 1

    def forward(self, input: Tensor) -> Tensor:
        """The branch, and the shortcut if there is one."""
        result = self.block(input)
        return result + input if self.use_res_connect else result


class MobileNetV3(nn.Module):
    """Blocks as a list of configurations says."""

    def __init__(
        self,
        inverted_residual_setting: list[InvertedResidualConfig],
        last_channel: int,
        num_classes: int = 1000,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not inverted_residual_setting:
            raise ValueError("The inverted_residual_setting should not be empty")
        block = block or InvertedResidual
        norm = norm_layer or partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": nn.Hardswish}
        first = inverted_residual_setting[0].input_channels
        layers: list[nn.Module] = [Conv2dNormActivation(3, first, 3, 2, **options)]
        layers += [block(setting, norm) for setting in inverted_residual_setting]
        width = inverted_residual_setting[-1].out_channels
        layers.append(Conv2dNormActivation(width, 6 * width, kernel_size=1, **options))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(
            nn.Linear(6 * width, last_channel),
            nn.Hardswish(inplace=True),
            nn.Dropout(p=dropout, inplace=True),
            nn.Linear(last_channel, num_classes),
        )
        for module in self.modules():
            initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(weft.flatten(self.avgpool(self.features(x)), 1))


def _settings(
    arch: str, width_mult: float = 1.0, reduced_tail: bool = False, dilated: bool = False
) -> tuple[list[InvertedResidualConfig], int]:
    less, far = (2 if reduced_tail else 1), (2 if dilated else 1)
    rows: list[tuple[Any, ...]]
    if arch == "mobilenet_v3_large":
        tail, wide, last = 160 // less, 960 // less, 1280
        rows = [
            (16, 3, 16, 16, False, "RE", 1, 1),
            (16, 3, 64, 24, False, "RE", 2, 1),
            (24, 3, 72, 24, False, "RE", 1, 1),
            (24, 5, 72, 40, True, "RE", 2, 1),
            (40, 5, 120, 40, True, "RE", 1, 1),
            (40, 5, 120, 40, True, "RE", 1, 1),
            (40, 3, 240, 80, False, "HS", 2, 1),
            (80, 3, 200, 80, False, "HS", 1, 1),
            (80, 3, 184, 80, False, "HS", 1, 1),
            (80, 3, 184, 80, False, "HS", 1, 1),
            (80, 3, 480, 112, True, "HS", 1, 1),
            (112, 3, 672, 112, True, "HS", 1, 1),
            (112, 5, 672, tail, True, "HS", 2, far),
            (tail, 5, wide, tail, True, "HS", 1, far),
            (tail, 5, wide, tail, True, "HS", 1, far),
        ]
    else:
        tail, wide, last = 96 // less, 576 // less, 1024
        rows = [
            (16, 3, 16, 16, True, "RE", 2, 1),
            (16, 3, 72, 24, False, "RE", 2, 1),
            (24, 3, 88, 24, False, "RE", 1, 1),
            (24, 5, 96, 40, True, "HS", 2, 1),
            (40, 5, 240, 40, True, "HS", 1, 1),
            (40, 5, 240, 40, True, "HS", 1, 1),
            (40, 5, 120, 48, True, "HS", 1, 1),
            (48, 5, 144, 48, True, "HS", 1, 1),
            (48, 5, 288, tail, True, "HS", 2, far),
            (tail, 5, wide, tail, True, "HS", 1, far),
            (tail, 5, wide, tail, True, "HS", 1, far),
        ]
    adjust = InvertedResidualConfig.adjust_channels
    made = [InvertedResidualConfig(*row, width_mult=width_mult) for row in rows]
    return made, adjust(last // less, width_mult)


def _build(arch: str, kwargs: dict[str, Any]) -> MobileNetV3:
    keys = ("width_mult", "reduced_tail", "dilated")
    shape = {key: kwargs.pop(key) for key in keys if key in kwargs}
    for key in ("_reduced_tail", "_dilated"):
        if key in kwargs:
            shape[key[1:]] = kwargs.pop(key)
    return MobileNetV3(*_settings(arch, **shape), **kwargs)


@model("MobileNet_V3_Large_Weights")
def mobilenet_v3_large(**kwargs: Any) -> MobileNetV3:
    """MobileNet v3, large."""
    return _build("mobilenet_v3_large", kwargs)


@model("MobileNet_V3_Small_Weights")
def mobilenet_v3_small(**kwargs: Any) -> MobileNetV3:
    """MobileNet v3, small."""
    return _build("mobilenet_v3_small", kwargs)
