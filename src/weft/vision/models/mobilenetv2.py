"""MobileNet v2 (Inverted Residuals and Linear Bottlenecks)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models._utils import make_divisible
from weft.vision.ops.misc import Conv2dNormActivation

# Expansion, channels, blocks, stride of the stages.
_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


class InvertedResidual(nn.Module):
    """Widens, filters each channel, narrows; with a shortcut where the shape stays."""

    def __init__(
        self,
        inp: int,
        oup: int,
        stride: int,
        expand_ratio: int,
        norm_layer: Callable[..., nn.Module] | None = None,
    ) -> None:
        super().__init__()
        if stride not in (1, 2):
            raise ValueError(f"stride should be 1 or 2 instead of {stride}")
        self.stride = stride
        norm = norm_layer or nn.BatchNorm2d
        hidden = round(inp * expand_ratio)
        self.use_res_connect = stride == 1 and inp == oup
        layers: list[nn.Module] = []
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": nn.ReLU6}
        if expand_ratio != 1:
            layers.append(Conv2dNormActivation(inp, hidden, kernel_size=1, **options))
        layers.append(Conv2dNormActivation(hidden, hidden, stride=stride, groups=hidden, **options))
        layers += [nn.Conv2d(hidden, oup, 1, 1, 0, bias=False), norm(oup)]
        self.conv = nn.Sequential(*layers)
        self.out_channels = oup
        self._is_cn = stride > 1

    def forward(self, x: Tensor) -> Tensor:
        """The branch, and the shortcut if there is one."""
        return x + self.conv(x) if self.use_res_connect else self.conv(x)


def initialise(module: nn.Module) -> None:
    """Draw the weights of a layer as MobileNets do."""
    if isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, (nn.BatchNorm2d, nn.GroupNorm)):
        nn.init.ones_(module.weight)
        nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, 0, 0.01)
        nn.init.zeros_(module.bias)


class MobileNetV2(nn.Module):
    """Seven stages of inverted residuals."""

    def __init__(
        self,
        num_classes: int = 1000,
        width_mult: float = 1.0,
        inverted_residual_setting: list[list[int]] | None = None,
        round_nearest: int = 8,
        block: Callable[..., nn.Module] | None = None,
        norm_layer: Callable[..., nn.Module] | None = None,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        block, norm = block or InvertedResidual, norm_layer or nn.BatchNorm2d
        stages: Any = inverted_residual_setting or _STAGES
        if len(stages) == 0 or any(len(stage) != 4 for stage in stages):
            raise ValueError(
                "inverted_residual_setting should be non-empty or a 4-element list, got "
                f"{inverted_residual_setting}"
            )
        width = make_divisible(32 * width_mult, round_nearest)
        self.last_channel = make_divisible(1280 * max(1.0, width_mult), round_nearest)
        options: dict[str, Any] = {"norm_layer": norm, "activation_layer": nn.ReLU6}
        features: list[nn.Module] = [Conv2dNormActivation(3, width, stride=2, **options)]
        for expansion, channels, count, stride in stages:
            out = make_divisible(channels * width_mult, round_nearest)
            for i in range(count):
                step = stride if i == 0 else 1
                features.append(block(width, out, step, expand_ratio=expansion, norm_layer=norm))
                width = out
        features.append(Conv2dNormActivation(width, self.last_channel, kernel_size=1, **options))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout), nn.Linear(self.last_channel, num_classes)
        )
        for module in self.modules():
            initialise(module)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = F.adaptive_avg_pool2d(self.features(x), (1, 1))
        return self.classifier(weft.flatten(x, 1))


@model("MobileNet_V2_Weights")
def mobilenet_v2(**kwargs: Any) -> MobileNetV2:
    """MobileNet v2."""
    return MobileNetV2(**kwargs)
