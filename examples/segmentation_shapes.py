"""Segmentation: a U-Net learns which pixels of made pictures belong to discs and squares.

    python examples/segmentation_shapes.py

All have one brightness, so that only their outlines tell them apart. The net finds the shapes at
once, but takes some hundred steps to see which is which: after 300 the mean intersection over union
of both is above 0.95.
"""

from __future__ import annotations

import argparse

import weft as torch
from weft.nn import functional as F
from weft.vision.models.segmentation import UNet

SIDE, STEPS, GOAL = 48, 300, 0.95


def pictures(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy pictures of a disc and a square that do not touch, and the class of every pixel."""
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    images, masks = [], []
    for _ in range(count):
        mask = torch.zeros(SIDE, SIDE, dtype=torch.long)
        size = torch.randint(5, 10, (2,), generator=generator).tolist()
        while True:
            place = torch.randint(9, SIDE - 9, (4,), generator=generator).tolist()
            if max(abs(place[0] - place[2]), abs(place[1] - place[3])) > sum(size):
                break
        mask[(rows - place[0]) ** 2 + (columns - place[1]) ** 2 < size[0] ** 2] = 1
        mask[((rows - place[2]).abs() < size[1]) & ((columns - place[3]).abs() < size[1])] = 2
        noise = 0.3 * torch.randn(SIDE, SIDE, generator=generator)
        images.append((mask > 0).float() + noise)
        masks.append(mask)
    return torch.stack(images)[:, None], torch.stack(masks)


def overlap(net: UNet, images: torch.Tensor, masks: torch.Tensor) -> float:
    """The mean intersection over union of discs and squares."""
    net.eval()
    with torch.no_grad():
        found = net(images).argmax(dim=1)
    net.train()
    shares = []
    for shape in (1, 2):
        both = ((found == shape) & (masks == shape)).sum()
        shares.append(float(both / ((found == shape) | (masks == shape)).sum()))
    return sum(shares) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    steps = options.steps
    torch.manual_seed(options.seed)
    generator = torch.Generator().manual_seed(1 + options.seed)
    net = UNet(num_classes=3, in_channels=1, base=12, depth=3)
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        images, masks = pictures(8, generator)
        loss = F.cross_entropy(net(images), masks)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    result = overlap(net, *pictures(40, torch.Generator().manual_seed(1000)))
    print(f"result: {result:.3f} mean intersection over union (goal {GOAL})")
    if steps >= STEPS and result < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
