"""U-Net (Convolutional Networks for Biomedical Image Segmentation), with padding."""

from __future__ import annotations

from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor
from weft.vision.models._api import model


def _double(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    """Halves the resolution ``depth`` times and comes back, with shortcuts at each level.

    >>> import weft
    >>> net = UNet(num_classes=3, in_channels=1, base=8, depth=2)
    >>> net(weft.zeros(1, 1, 20, 28)).shape
    torch.Size([1, 3, 20, 28])
    """

    def __init__(
        self, num_classes: int = 2, in_channels: int = 3, base: int = 64, depth: int = 4
    ) -> None:
        super().__init__()
        widths = [base * 2**i for i in range(depth + 1)]
        self.down = nn.ModuleList(
            _double(a, b) for a, b in zip([in_channels, *widths], widths, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
        self.merge = nn.ModuleList(_double(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(base, num_classes, 1)
        self.multiple = 2**depth

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes for each pixel."""
        height, width = x.shape[-2:]
        if height % self.multiple or width % self.multiple:
            more = (-width % self.multiple, -height % self.multiple)
            x = nn.functional.pad(x, (0, more[0], 0, more[1]), mode="replicate")
        kept = []
        for i, layers in enumerate(self.down):
            x = layers(x if i == 0 else self.pool(x))
            kept.append(x)
        kept.pop()
        for up, merge in zip(self.up, self.merge, strict=True):
            x = merge(weft.cat([kept.pop(), up(x)], dim=1))
        return self.head(x)[..., :height, :width]


@model(None)
def unet(**kwargs: Any) -> UNet:
    """U-Net."""
    return UNet(**kwargs)
