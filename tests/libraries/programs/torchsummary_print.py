"""torchsummary: a summary of a network."""

from torch import nn
from torchsummary import summary

summary(
    nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)),
    (1, 8, 8),
    device="cpu",
)
