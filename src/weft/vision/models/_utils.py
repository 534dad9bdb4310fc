"""What several models share."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from weft import nn


def make_divisible(v: float, divisor: int, min_value: int | None = None) -> int:
    """The nearest multiple of a divisor that is not below 90% of a number of channels."""
    nearest = max(min_value or divisor, int(v + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * v else nearest


def frozen_before(layers: nn.Sequential, stages: list[int], trained: int) -> None:
    """Freeze the layers that are before the last ``trained`` of some stages."""
    first = len(layers) if trained == 0 else stages[len(stages) - trained]
    for layer in layers[:first]:
        for parameter in layer.parameters():
            parameter.requires_grad_(False)


class IntermediateLayerGetter(nn.ModuleDict):
    """The first layers of a model, giving the results of those that are named.

    >>> from weft.vision.models import resnet18
    >>> layers = IntermediateLayerGetter(resnet18(), {"layer1": "feat1", "layer3": "feat2"})
    """

    _version = 2

    def __init__(self, model: nn.Module, return_layers: dict[str, str]) -> None:
        known = [name for name, _ in model.named_children()]
        if not set(return_layers).issubset(known):
            raise ValueError("return_layers are not present in model")
        self.return_layers = {str(k): str(v) for k, v in return_layers.items()}
        left = dict(self.return_layers)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for name, module in model.named_children():
            layers[name] = module
            left.pop(name, None)
            if not left:
                break
        returned = self.return_layers
        super().__init__(layers)
        self.return_layers = returned

    def forward(self, x: Any) -> OrderedDict[str, Any]:
        """The results of the named layers under their new names."""
        out = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out
