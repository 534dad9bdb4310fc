"""Super-resolution: a network doubles the size of pictures, sharper than bicubic interpolation.

It computes four values for each pixel and lays them out as 2x2 pixels (``PixelShuffle``); they are
what is to be added to the bicubic picture. The pictures are made: soft-edged discs and bars.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 600, 3.0


def pictures(count: int, size: int = 32) -> torch.Tensor:
    """Pictures of three discs and three bars each, one over the other."""
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    image = torch.zeros(count, size, size)
    for _ in range(3):
        place = size * torch.rand(2, count, 1, 1)
        radius = 3 + 7 * torch.rand(count, 1, 1)
        dx, dy = x - place[0], y - place[1]
        disc = torch.sigmoid(3 * (radius - torch.sqrt(dx**2 + dy**2)))
        angle = math.pi * torch.rand(count, 1, 1)
        bar = torch.sigmoid(3 * (2 - (dx * torch.cos(angle) + dy * torch.sin(angle)).abs()))
        for shape in (disc, bar):
            image = image + shape * (torch.rand(count, 1, 1) - image)
    return image.unsqueeze(1)


class Doubler(nn.Module):
    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.details = nn.Sequential(
            nn.Conv2d(1, width, 5, padding=2),
            nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.PReLU(),
            nn.Conv2d(width, 4, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, small: torch.Tensor) -> torch.Tensor:
        return bicubic(small) + self.details(small)


def bicubic(small: torch.Tensor) -> torch.Tensor:
    return F.interpolate(small, scale_factor=2, mode="bicubic", align_corners=False)


def psnr(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The peak signal-to-noise ratio in decibels."""
    return -10 * math.log10(F.mse_loss(found, truth).item())


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = Doubler()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        large = pictures(16)
        loss = F.l1_loss(model(F.avg_pool2d(large, 2)), large)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    torch.manual_seed(1000)
    large = pictures(64)
    small = F.avg_pool2d(large, 2)
    with torch.no_grad():
        ours, plain = psnr(model(small), large), psnr(bicubic(small), large)
    print(f"peak signal-to-noise ratio: {ours:.1f} dB, bicubic {plain:.1f} dB")
    print(f"result: {ours - plain:.1f} dB better than bicubic (goal {GOAL})")
    if steps >= STEPS and ours - plain < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
