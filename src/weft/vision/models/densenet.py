"""DenseNet (Densely Connected Convolutional Networks)."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core.tensor import Tensor
from weft.utils.checkpoint import checkpoint
from weft.vision.models._api import model

__all__ = ["DenseNet", "densenet121", "densenet161", "densenet169", "densenet201"]

_OLD_NAME = re.compile(
    r"^(.*denselayer\d+\.(?:norm|relu|conv))\."
    r"((?:[12])\.(?:weight|bias|running_mean|running_var))$"
)


class _DenseLayer(nn.Module):
    def __init__(
        self,
        num_input_features: int,
        growth_rate: int,
        bn_size: int,
        drop_rate: float,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        width = bn_size * growth_rate
        self.norm1 = nn.BatchNorm2d(num_input_features)
        self.relu1 = nn.ReLU(inplace=True)
        self.conv1 = nn.Conv2d(num_input_features, width, kernel_size=1, stride=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.relu2 = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(width, growth_rate, kernel_size=3, stride=1, padding=1, bias=False)
        self.drop_rate = float(drop_rate)
        self.memory_efficient = memory_efficient

    def _squeeze(self, *inputs: Tensor) -> Tensor:
        return self.conv1(self.relu1(self.norm1(weft.cat(inputs, 1))))

    def forward(self, input: Tensor | list[Tensor]) -> Tensor:
        before = [input] if isinstance(input, Tensor) else input
        if self.memory_efficient and any(x.requires_grad for x in before):
            narrow = checkpoint(self._squeeze, *before, use_reentrant=False)
        else:
            narrow = self._squeeze(*before)
        new = self.conv2(self.relu2(self.norm2(narrow)))
        if self.drop_rate > 0:
            new = F.dropout(new, p=self.drop_rate, training=self.training)
        return new


class _DenseBlock(nn.ModuleDict):
    def __init__(
        self,
        num_layers: int,
        num_input_features: int,
        bn_size: int,
        growth_rate: int,
        drop_rate: float,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        for i in range(num_layers):
            self.add_module(
                f"denselayer{i + 1}",
                _DenseLayer(
                    num_input_features + i * growth_rate,
                    growth_rate,
                    bn_size,
                    drop_rate,
                    memory_efficient,
                ),
            )

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(layer(features))
        return weft.cat(features, 1)


class _Transition(nn.Sequential):
    def __init__(self, num_input_features: int, num_output_features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(num_input_features)
        self.relu = nn.ReLU(inplace=True)
        self.conv = nn.Conv2d(num_input_features, num_output_features, kernel_size=1, bias=False)
        self.pool = nn.AvgPool2d(kernel_size=2, stride=2)


class DenseNet(nn.Module):
    """Blocks of layers that each read all layers before them."""

    def __init__(
        self,
        growth_rate: int = 32,
        block_config: tuple[int, ...] = (6, 12, 24, 16),
        num_init_features: int = 64,
        bn_size: int = 4,
        drop_rate: float = 0,
        num_classes: int = 1000,
        memory_efficient: bool = False,
    ) -> None:
        super().__init__()
        first = nn.Conv2d(3, num_init_features, kernel_size=7, stride=2, padding=3, bias=False)
        layers: list[tuple[str, nn.Module]] = [
            ("conv0", first),
            ("norm0", nn.BatchNorm2d(num_init_features)),
            ("relu0", nn.ReLU(inplace=True)),
            ("pool0", nn.MaxPool2d(kernel_size=3, stride=2, padding=1)),
        ]
        self.features = nn.Sequential(OrderedDict(layers))
        width = num_init_features
        for i, count in enumerate(block_config, 1):
            sizes = (count, width, bn_size, growth_rate, drop_rate, memory_efficient)
            self.features.add_module(f"denseblock{i}", _DenseBlock(*sizes))
            width += count * growth_rate
            if i != len(block_config):
                self.features.add_module(f"transition{i}", _Transition(width, width // 2))
                width //= 2
        self.features.add_module("norm5", nn.BatchNorm2d(width))
        self.classifier = nn.Linear(width, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.constant_(module.weight, 1)
                nn.init.constant_(module.bias, 0)
            elif isinstance(module, nn.Linear):
                nn.init.constant_(module.bias, 0)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in list(state_dict):  # published files have "norm.1.weight" for "norm1.weight"
            old = _OLD_NAME.match(name)
            if old:
                state_dict[old[1] + old[2]] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = F.relu(self.features(x), inplace=True)
        return self.classifier(weft.flatten(F.adaptive_avg_pool2d(x, (1, 1)), 1))


@model("DenseNet121_Weights")
def densenet121(**kwargs: Any) -> DenseNet:
    """DenseNet-121."""
    return DenseNet(32, (6, 12, 24, 16), 64, **kwargs)


@model("DenseNet161_Weights")
def densenet161(**kwargs: Any) -> DenseNet:
    """DenseNet-161."""
    return DenseNet(48, (6, 12, 36, 24), 96, **kwargs)


@model("DenseNet169_Weights")
def densenet169(**kwargs: Any) -> DenseNet:
    """DenseNet-169."""
    return DenseNet(32, (6, 12, 32, 32), 64, **kwargs)


@model("DenseNet201_Weights")
def densenet201(**kwargs: Any) -> DenseNet:
    """DenseNet-201."""
    return DenseNet(32, (6, 12, 48, 32), 64, **kwargs)
