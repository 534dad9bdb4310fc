"""The network."""

from __future__ import annotations

from weft import Tensor, nn


class Model(nn.Module):
    """A classifier of points into two classes."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 2),
        )

    def forward(self, points: Tensor) -> Tensor:
        return self.layers(points)
