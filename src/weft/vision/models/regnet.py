"""RegNet (Designing Network Design Spaces)."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models._utils import make_divisible
from weft.vision.ops.misc import Conv2dNormActivation, SqueezeExcitation

__all__ = [
    "RegNet",
    "regnet_x_1_6gf",
    "regnet_x_3_2gf",
    "regnet_x_8gf",
    "regnet_x_16gf",
    "regnet_x_32gf",
    "regnet_x_400mf",
    "regnet_x_800mf",
    "regnet_y_1_6gf",
    "regnet_y_3_2gf",
    "regnet_y_8gf",
    "regnet_y_16gf",
    "regnet_y_32gf",
    "regnet_y_128gf",
    "regnet_y_400mf",
    "regnet_y_800mf",
]  # fmt: skip

Layer = Callable[..., nn.Module]


class SimpleStemIN(Conv2dNormActivation):
    """A 3x3 convolution of stride 2."""

    def __init__(
        self, width_in: int, width_out: int, norm_layer: Layer, activation_layer: Layer
    ) -> None:
        options: dict[str, Any] = {"norm_layer": norm_layer}
        options["activation_layer"] = activation_layer
        super().__init__(width_in, width_out, kernel_size=3, stride=2, **options)


class BottleneckTransform(nn.Sequential):
    """1x1, grouped 3x3, an optional gate, 1x1."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layer,
        activation_layer: Layer,
        group_width: int,
        bottleneck_multiplier: float,
        se_ratio: float | None,
    ) -> None:
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        inner = round(width_out * bottleneck_multiplier)
        options: dict[str, Any] = {"norm_layer": norm_layer, "activation_layer": activation_layer}
        layers["a"] = Conv2dNormActivation(width_in, inner, kernel_size=1, stride=1, **options)
        layers["b"] = Conv2dNormActivation(
            inner, inner, kernel_size=3, stride=stride, groups=inner // group_width, **options
        )
        if se_ratio:
            # The gate narrows by what comes into the block.
            narrow = round(se_ratio * width_in)
            layers["se"] = SqueezeExcitation(inner, narrow, activation=activation_layer)
        options["activation_layer"] = None
        layers["c"] = Conv2dNormActivation(inner, width_out, kernel_size=1, stride=1, **options)
        super().__init__(layers)


class ResBottleneckBlock(nn.Module):
    """A bottleneck beside a shortcut."""

    def __init__(
        self,
        width_in: int,
        width_out: int,
        stride: int,
        norm_layer: Layer,
        activation_layer: Layer,
        group_width: int = 1,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
    ) -> None:
        super().__init__()
        self.proj = None
        if width_in != width_out or stride != 1:
            self.proj = Conv2dNormActivation(
                width_in,
                width_out,
                kernel_size=1,
                stride=stride,
                norm_layer=norm_layer,
                activation_layer=None,
            )
        shape = (group_width, bottleneck_multiplier, se_ratio)
        self.f = BottleneckTransform(
            width_in, width_out, stride, norm_layer, activation_layer, *shape
        )
        self.activation = activation_layer(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """The shortcut plus the branch."""
        return self.activation((x if self.proj is None else self.proj(x)) + self.f(x))


class BlockParams:
    """Depth, width, group width and stride of each stage."""

    def __init__(
        self,
        depths: list[int],
        widths: list[int],
        group_widths: list[int],
        bottleneck_multipliers: list[float],
        strides: list[int],
        se_ratio: float | None = None,
    ) -> None:
        self.depths, self.widths, self.group_widths = depths, widths, group_widths
        self.bottleneck_multipliers, self.strides = bottleneck_multipliers, strides
        self.se_ratio = se_ratio

    @classmethod
    def from_init_params(
        cls,
        depth: int,
        w_0: int,
        w_a: float,
        w_m: float,
        group_width: int,
        bottleneck_multiplier: float = 1.0,
        se_ratio: float | None = None,
        **kwargs: Any,
    ) -> BlockParams:
        """Stages from a linear rule for the width of each block, rounded to steps of ``w_m``."""
        if w_a < 0 or w_0 <= 0 or w_m <= 1 or w_0 % 8 != 0:
            raise ValueError("Invalid RegNet settings")
        wanted = weft.arange(depth) * w_a + w_0
        steps = weft.round(weft.log(wanted / w_0) / math.log(w_m))
        rounded = weft.round(weft.divide(w_0 * weft.pow(w_m, steps), 8)) * 8
        by_block = rounded.int().tolist()
        widths = sorted(set(by_block))
        depths = [by_block.count(width) for width in widths]
        multipliers = [bottleneck_multiplier] * len(widths)
        groups = [group_width] * len(widths)
        widths, groups = cls._compatible(widths, multipliers, groups)
        return cls(depths, widths, groups, multipliers, [2] * len(widths), se_ratio)

    @staticmethod
    def _compatible(
        widths: list[int], multipliers: list[float], groups: list[int]
    ) -> tuple[list[int], list[int]]:
        """Widths that groups divide."""
        inner = [int(w * b) for w, b in zip(widths, multipliers, strict=True)]
        groups = [min(g, w) for g, w in zip(groups, inner, strict=True)]
        inner = [make_divisible(w, g) for w, g in zip(inner, groups, strict=True)]
        return [int(w / b) for w, b in zip(inner, multipliers, strict=True)], groups


class RegNet(nn.Module):
    """A stem, and stages of bottlenecks."""

    def __init__(
        self,
        block_params: BlockParams,
        num_classes: int = 1000,
        stem_width: int = 32,
        stem_type: Layer | None = None,
        block_type: Layer | None = None,
        norm_layer: Layer | None = None,
        activation: Layer | None = None,
    ) -> None:
        super().__init__()
        stem, block = stem_type or SimpleStemIN, block_type or ResBottleneckBlock
        norm, activation = norm_layer or nn.BatchNorm2d, activation or nn.ReLU
        self.stem = stem(3, stem_width, norm, activation)
        stages: OrderedDict[str, nn.Module] = OrderedDict()
        width, p = stem_width, block_params
        rows = zip(
            p.widths, p.strides, p.depths, p.group_widths, p.bottleneck_multipliers, strict=True
        )
        for i, (out, stride, depth, group, multiplier) in enumerate(rows):
            blocks: OrderedDict[str, nn.Module] = OrderedDict()
            for j in range(depth):
                sizes = (width, out, stride) if j == 0 else (out, out, 1)
                shape = (group, multiplier, p.se_ratio)
                blocks[f"block{i + 1}-{j}"] = block(*sizes, norm, activation, *shape)
            stages[f"block{i + 1}"] = nn.Sequential(blocks)
            width = out
        self.trunk_output = nn.Sequential(stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(in_features=width, out_features=num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                fan_out = module.kernel_size[0] * module.kernel_size[1] * module.out_channels
                nn.init.normal_(module.weight, mean=0.0, std=math.sqrt(2.0 / fan_out))
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, mean=0.0, std=0.01)
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.fc(self.avgpool(self.trunk_output(self.stem(x))).flatten(start_dim=1))


# depth, w_0, w_a, w_m, group width; the y models have gates.
_SIZES = {
    "regnet_y_400mf": (16, 48, 27.89, 2.09, 8),
    "regnet_y_800mf": (14, 56, 38.84, 2.4, 16),
    "regnet_y_1_6gf": (27, 48, 20.71, 2.65, 24),
    "regnet_y_3_2gf": (21, 80, 42.63, 2.66, 24),
    "regnet_y_8gf": (17, 192, 76.82, 2.19, 56),
    "regnet_y_16gf": (18, 200, 106.23, 2.48, 112),
    "regnet_y_32gf": (20, 232, 115.89, 2.53, 232),
    "regnet_y_128gf": (27, 456, 160.83, 2.52, 264),
    "regnet_x_400mf": (22, 24, 24.48, 2.54, 16),
    "regnet_x_800mf": (16, 56, 35.73, 2.28, 16),
    "regnet_x_1_6gf": (18, 80, 34.01, 2.25, 24),
    "regnet_x_3_2gf": (25, 88, 26.31, 2.25, 48),
    "regnet_x_8gf": (23, 80, 49.56, 2.88, 120),
    "regnet_x_16gf": (22, 216, 55.59, 2.1, 128),
    "regnet_x_32gf": (23, 320, 69.86, 2.0, 168),
}


def _make(name: str) -> Callable[..., RegNet]:
    size = name.removeprefix("regnet_")

    def build(**kwargs: Any) -> RegNet:
        ratio = 0.25 if size.startswith("y") else None
        params = BlockParams.from_init_params(*_SIZES[name], se_ratio=ratio)
        kwargs.setdefault("norm_layer", partial(nn.BatchNorm2d, eps=1e-05, momentum=0.1))
        return RegNet(params, **kwargs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = f"RegNet {size.upper()}."
    return model(f"RegNet_{size.upper()}_Weights")(build)


regnet_y_400mf = _make("regnet_y_400mf")
regnet_y_800mf = _make("regnet_y_800mf")
regnet_y_1_6gf = _make("regnet_y_1_6gf")
regnet_y_3_2gf = _make("regnet_y_3_2gf")
regnet_y_8gf = _make("regnet_y_8gf")
regnet_y_16gf = _make("regnet_y_16gf")
regnet_y_32gf = _make("regnet_y_32gf")
regnet_y_128gf = _make("regnet_y_128gf")
regnet_x_400mf = _make("regnet_x_400mf")
regnet_x_800mf = _make("regnet_x_800mf")
regnet_x_1_6gf = _make("regnet_x_1_6gf")
regnet_x_3_2gf = _make("regnet_x_3_2gf")
regnet_x_8gf = _make("regnet_x_8gf")
regnet_x_16gf = _make("regnet_x_16gf")
regnet_x_32gf = _make("regnet_x_32gf")
