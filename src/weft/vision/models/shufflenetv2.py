"""ShuffleNet v2 (Practical Guidelines for Efficient CNN Architecture Design)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model

__all__ = [
    "ShuffleNetV2", "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5",
    "shufflenet_v2_x2_0",
]  # fmt: skip


def channel_shuffle(x: Tensor, groups: int) -> Tensor:
    """Channels of groups in turn."""
    n, channels, height, width = x.size()
    x = x.view(n, groups, channels // groups, height, width)
    return weft.transpose(x, 1, 2).contiguous().view(n, channels, height, width)


def _depthwise(channels: int, stride: int) -> nn.Conv2d:
    options: dict[str, Any] = {"padding": 1, "bias": False, "groups": channels}
    return nn.Conv2d(channels, channels, 3, stride, **options)


def _pointwise(inp: int, out: int) -> nn.Conv2d:
    return nn.Conv2d(inp, out, kernel_size=1, stride=1, padding=0, bias=False)


class InvertedResidual(nn.Module):
    """Half of the channels pass, half go through a branch; then they are shuffled."""

    def __init__(self, inp: int, oup: int, stride: int) -> None:
        super().__init__()
        if not (1 <= stride <= 3):
            raise ValueError("illegal stride value")
        self.stride = stride
        half = oup // 2
        if stride == 1 and inp != half << 1:
            raise ValueError(
                f"Invalid combination of stride {stride}, inp {inp} and oup {oup} values. "
                "If stride == 1 then inp should be equal to oup // 2 << 1."
            )
        self.branch1 = nn.Sequential()
        if stride > 1:
            self.branch1 = nn.Sequential(
                _depthwise(inp, stride), nn.BatchNorm2d(inp), _pointwise(inp, half),
                nn.BatchNorm2d(half), nn.ReLU(inplace=True),
            )  # fmt: skip
        self.branch2 = nn.Sequential(
            _pointwise(inp if stride > 1 else half, half), nn.BatchNorm2d(half),
            nn.ReLU(inplace=True), _depthwise(half, stride), nn.BatchNorm2d(half),
            _pointwise(half, half), nn.BatchNorm2d(half), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Both halves, shuffled."""
        if self.stride == 1:
            left, right = x.chunk(2, dim=1)
        else:
            left, right = self.branch1(x), x
        return channel_shuffle(weft.cat((left, self.branch2(right)), dim=1), 2)


class ShuffleNetV2(nn.Module):
    """Three stages of shuffled blocks."""

    def __init__(
        self,
        stages_repeats: list[int],
        stages_out_channels: list[int],
        num_classes: int = 1000,
        inverted_residual: Callable[..., nn.Module] = InvertedResidual,
    ) -> None:
        super().__init__()
        if len(stages_repeats) != 3:
            raise ValueError("expected stages_repeats as list of 3 positive ints")
        if len(stages_out_channels) != 5:
            raise ValueError("expected stages_out_channels as list of 5 positive ints")
        first, *widths, last = stages_out_channels
        self.conv1 = nn.Sequential(
            nn.Conv2d(3, first, 3, 2, 1, bias=False), nn.BatchNorm2d(first), nn.ReLU(inplace=True)
        )
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        width = first
        for i, (repeats, out) in enumerate(zip(stages_repeats, widths, strict=True), 2):
            blocks = [inverted_residual(width, out, 2)]
            blocks += [inverted_residual(out, out, 1) for _ in range(repeats - 1)]
            setattr(self, f"stage{i}", nn.Sequential(*blocks))
            width = out
        self.conv5 = nn.Sequential(
            nn.Conv2d(width, last, 1, 1, 0, bias=False), nn.BatchNorm2d(last), nn.ReLU(inplace=True)
        )
        self.fc = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.maxpool(self.conv1(x))
        x = self.conv5(self.stage4(self.stage3(self.stage2(x))))
        return self.fc(x.mean([2, 3]))


def _build(kwargs: dict[str, Any], *channels: int) -> ShuffleNetV2:
    return ShuffleNetV2([4, 8, 4], list(channels), **kwargs)


@model("ShuffleNet_V2_X0_5_Weights")
def shufflenet_v2_x0_5(**kwargs: Any) -> ShuffleNetV2:
    """ShuffleNet v2 of half the width."""
    return _build(kwargs, 24, 48, 96, 192, 1024)


@model("ShuffleNet_V2_X1_0_Weights")
def shufflenet_v2_x1_0(**kwargs: Any) -> ShuffleNetV2:
    """ShuffleNet v2."""
    return _build(kwargs, 24, 116, 232, 464, 1024)


@model("ShuffleNet_V2_X1_5_Weights")
def shufflenet_v2_x1_5(**kwargs: Any) -> ShuffleNetV2:
    """ShuffleNet v2 of 1.5 times the width."""
    return _build(kwargs, 24, 176, 352, 704, 1024)


@model("ShuffleNet_V2_X2_0_Weights")
def shufflenet_v2_x2_0(**kwargs: Any) -> ShuffleNetV2:
    """ShuffleNet v2 of twice the width."""
    return _build(kwargs, 24, 244, 488, 976, 2048)
