"""Points on two spirals, and on which spiral each of them is."""

from __future__ import annotations

import math

import weft as torch
from weft.utils.data import DataLoader, TensorDataset, random_split


def spirals(count: int, noise: float = 0.05) -> TensorDataset:
    """``count`` points on each of two spirals."""
    turn = torch.linspace(0.25, 1.75, count).repeat(2) * 2 * math.pi
    label = torch.arange(2).repeat_interleave(count)
    angle = turn + label * math.pi
    points = torch.stack((turn * angle.cos(), turn * angle.sin()), dim=1) / 8
    return TensorDataset(points + noise * torch.randn(2 * count, 2), label)


def loaders(count: int = 400, batch_size: int = 64) -> tuple[DataLoader, DataLoader]:
    """Batches to learn from, in a random order, and batches to be tested with."""
    data = spirals(count)
    train, test = random_split(data, [len(data) - len(data) // 5, len(data) // 5])
    return DataLoader(train, batch_size, shuffle=True), DataLoader(test, batch_size)
