"""Image classification: Fashion-MNIST from a local folder, in two passes over its 60,000 pictures.

    python examples/fashion_mnist.py --data FOLDER [--download]

FOLDER holds FashionMNIST/raw with the original files (Debian has them as the package
dataset-fashion-mnist).
"""

from __future__ import annotations

import argparse

import weft as torch
from weft import nn
from weft.nn import functional as F
from weft.vision import datasets

STEPS, GOAL, BATCH = 938, 0.88, 128


def prepared(data: datasets.FashionMNIST) -> tuple[torch.Tensor, torch.Tensor]:
    """All images as one float tensor; reading them one by one would take longer than training."""
    return (data.data[:, None].float() / 255 - 0.286) / 0.353, data.targets


def network() -> nn.Sequential:
    first = nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    second = nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
    last = nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10)
    return nn.Sequential(*first, nn.MaxPool2d(2), *second, nn.MaxPool2d(2), *last)


def accuracy(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> float:
    net.eval()
    with torch.no_grad():
        parts = [net(part).argmax(dim=1) for part in images.split(500)]
    return float((torch.cat(parts) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    fashion = datasets.FashionMNIST
    images, labels = prepared(fashion(options.data, train=True, download=options.download))
    net = network()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, total_steps=max(STEPS, options.steps)
    )
    order = torch.randperm(len(images))
    for step in range(1, options.steps + 1):
        chosen = order[torch.arange(step * BATCH, (step + 1) * BATCH) % len(order)]
        loss = F.cross_entropy(net(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, options.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    result = accuracy(net, *prepared(fashion(options.data, train=False)))
    print(f"result: {result:.1%} of the test pictures right (goal {GOAL:.0%})")
    if options.steps >= STEPS and result < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
