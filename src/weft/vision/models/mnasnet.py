"""MNASNet (Platform-Aware Neural Architecture Search for Mobile)."""

from __future__ import annotations

from typing import Any

from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model
from weft.vision.models._utils import make_divisible

__all__ = ["MNASNet", "mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"]

_MOMENTUM = 1 - 0.9997  # 0.9997 in TensorFlow's sense


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, momentum=_MOMENTUM)


class _InvertedResidual(nn.Module):
    def __init__(
        self, in_ch: int, out_ch: int, kernel_size: int, stride: int, expansion_factor: int
    ) -> None:
        super().__init__()
        mid = in_ch * expansion_factor
        self.apply_residual = in_ch == out_ch and stride == 1
        filter_ = nn.Conv2d
        self.layers = nn.Sequential(
            filter_(in_ch, mid, 1, bias=False), _norm(mid), nn.ReLU(inplace=True),
            filter_(mid, mid, kernel_size, stride, kernel_size // 2, groups=mid, bias=False),
            _norm(mid), nn.ReLU(inplace=True),
            filter_(mid, out_ch, 1, bias=False), _norm(out_ch),
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        result = self.layers(input)
        return result + input if self.apply_residual else result


def _stack(
    in_ch: int, out_ch: int, kernel_size: int, stride: int, factor: int, repeats: int
) -> nn.Sequential:
    first = _InvertedResidual(in_ch, out_ch, kernel_size, stride, factor)
    rest = [_InvertedResidual(out_ch, out_ch, kernel_size, 1, factor) for _ in range(1, repeats)]
    return nn.Sequential(first, *rest)


class MNASNet(nn.Module):
    """Six stages of inverted residuals, of a width given by ``alpha``."""

    _version = 2

    def __init__(self, alpha: float, num_classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        if alpha <= 0.0:
            raise ValueError(f"alpha should be greater than 0.0 instead of {alpha}")
        self.alpha, self.num_classes = alpha, num_classes
        widths = [make_divisible(n * alpha, 8) for n in (32, 16, 24, 40, 80, 96, 192, 320)]
        a, b, c, d, e, f, g, h = widths
        self.layers = nn.Sequential(
            nn.Conv2d(3, a, 3, padding=1, stride=2, bias=False), _norm(a), nn.ReLU(inplace=True),
            nn.Conv2d(a, a, 3, padding=1, stride=1, groups=a, bias=False), _norm(a),
            nn.ReLU(inplace=True),
            nn.Conv2d(a, b, 1, padding=0, stride=1, bias=False), _norm(b),
            _stack(b, c, 3, 2, 3, 3),
            _stack(c, d, 5, 2, 3, 3),
            _stack(d, e, 5, 2, 6, 3),
            _stack(e, f, 3, 1, 6, 2),
            _stack(f, g, 5, 2, 6, 4),
            _stack(g, h, 3, 1, 6, 1),
            nn.Conv2d(h, 1280, 1, padding=0, stride=1, bias=False), _norm(1280),
            nn.ReLU(inplace=True),
        )  # fmt: skip
        self.classifier = nn.Sequential(
            nn.Dropout(p=dropout, inplace=True), nn.Linear(1280, num_classes)
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.BatchNorm2d):
                nn.init.ones_(module.weight)
                nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Linear):
                nn.init.kaiming_uniform_(module.weight, mode="fan_out", nonlinearity="sigmoid")
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        return self.classifier(self.layers(x).mean([2, 3]))


@model("MNASNet0_5_Weights")
def mnasnet0_5(**kwargs: Any) -> MNASNet:
    """MNASNet of half the width."""
    return MNASNet(0.5, **kwargs)


@model("MNASNet0_75_Weights")
def mnasnet0_75(**kwargs: Any) -> MNASNet:
    """MNASNet of three quarters of the width."""
    return MNASNet(0.75, **kwargs)


@model("MNASNet1_0_Weights")
def mnasnet1_0(**kwargs: Any) -> MNASNet:
    """MNASNet."""
    return MNASNet(1.0, **kwargs)


@model("MNASNet1_3_Weights")
def mnasnet1_3(**kwargs: Any) -> MNASNet:
    """MNASNet of 1.3 times the width."""
    return MNASNet(1.3, **kwargs)
