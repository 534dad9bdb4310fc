"""ConvNeXt (A ConvNet for the 2020s)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.ops.dropping import StochasticDepth
from weft.vision.ops.misc import Conv2dNormActivation, Permute

__all__ = ["ConvNeXt", "convnext_base", "convnext_large", "convnext_small", "convnext_tiny"]

Layer = Callable[..., nn.Module]


class LayerNorm2d(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """The normalised pixels."""
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        return x.permute(0, 3, 1, 2)


class CNBlock(nn.Module):
    """A 7x7 filter for each channel, then two linear layers, beside a shortcut."""

    def __init__(
        self,
        dim: int,
        layer_scale: float,
        stochastic_depth_prob: float,
        norm_layer: Layer | None = None,
    ) -> None:
        super().__init__()
        norm = norm_layer or partial(nn.LayerNorm, eps=1e-6)
        self.block = nn.Sequential(
            nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim, bias=True),
            Permute([0, 2, 3, 1]),
            norm(dim),
            nn.Linear(in_features=dim, out_features=4 * dim, bias=True),
            nn.GELU(),
            nn.Linear(in_features=4 * dim, out_features=dim, bias=True),
            Permute([0, 3, 1, 2]),
        )
        self.layer_scale = nn.Parameter(weft.ones(dim, 1, 1) * layer_scale)
        self.stochastic_depth = StochasticDepth(stochastic_depth_prob, "row")

    def forward(self, input: Tensor) -> Tensor:
        """The shortcut plus the scaled branch."""
        return self.stochastic_depth(self.layer_scale * self.block(input)) + input


class CNBlockConfig:
    """A stage: channels, channels of the next one, blocks."""

    def __init__(self, input_channels: int, out_channels: int | None, num_layers: int) -> None:
        self.input_channels, self.out_channels = input_channels, out_channels
        self.num_layers = num_layers


class ConvNeXt(nn.Module):
    """Four stages of blocks."""

    def __init__(
        self,
        block_setting: list[CNBlockConfig],
        stochastic_depth_prob: float = 0.0,
        layer_scale: float = 1e-6,
        num_classes: int = 1000,
        block: Layer | None = None,
        norm_layer: Layer | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if not block_setting:
            raise ValueError("The block_setting should not be empty")
        block, norm = block or CNBlock, norm_layer or partial(LayerNorm2d, eps=1e-6)
        first = block_setting[0].input_channels
        layers: list[nn.Module] = [
            Conv2dNormActivation(
                3, first, 4, 4, padding=0, norm_layer=norm, activation_layer=None, bias=True
            )
        ]
        total = sum(setting.num_layers for setting in block_setting)
        done = 0
        for setting in block_setting:
            stage = []
            for _ in range(setting.num_layers):
                rate = stochastic_depth_prob * done / (total - 1.0)
                stage.append(block(setting.input_channels, layer_scale, rate))
                done += 1
            layers.append(nn.Sequential(*stage))
            if setting.out_channels is not None:
                layers.append(
                    nn.Sequential(
                        norm(setting.input_channels),
                        nn.Conv2d(setting.input_channels, setting.out_channels, 2, 2),
                    )
                )
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        last = block_setting[-1]
        width = last.out_channels if last.out_channels is not None else last.input_channels
        self.classifier = nn.Sequential(norm(width), nn.Flatten(1), nn.Linear(width, num_classes))
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(self.avgpool(self.features(x)))


def _build(kwargs: dict[str, Any], widths: tuple[int, ...], depth: int, rate: float) -> ConvNeXt:
    following = (*widths[1:], None)
    depths = (3, 3, depth, 3)
    stages = [CNBlockConfig(*row) for row in zip(widths, following, depths, strict=True)]
    return ConvNeXt(stages, kwargs.pop("stochastic_depth_prob", rate), **kwargs)


@model("ConvNeXt_Tiny_Weights")
def convnext_tiny(**kwargs: Any) -> ConvNeXt:
    """ConvNeXt tiny."""
    return _build(kwargs, (96, 192, 384, 768), 9, 0.1)


@model("ConvNeXt_Small_Weights")
def convnext_small(**kwargs: Any) -> ConvNeXt:
    """ConvNeXt small."""
    return _build(kwargs, (96, 192, 384, 768), 27, 0.4)


@model("ConvNeXt_Base_Weights")
def convnext_base(**kwargs: Any) -> ConvNeXt:
    """ConvNeXt base."""
    return _build(kwargs, (128, 256, 512, 1024), 27, 0.5)


@model("ConvNeXt_Large_Weights")
def convnext_large(**kwargs: Any) -> ConvNeXt:
    """ConvNeXt large."""
    return _build(kwargs, (192, 384, 768, 1536), 27, 0.5)
