"""Image classification: Fashion-MNIST from a local folder.

    python examples/fashion_mnist.py --data FOLDER [--download]

FOLDER holds FashionMNIST/raw with the original files. One pass over the training set (938 steps)
reaches more than 80% of the test set.
"""

from __future__ import annotations

import argparse

import weft as torch
from weft.nn import functional as F
from weft.vision import datasets, models

GOAL = 0.8


def prepared(data: datasets.FashionMNIST) -> tuple[torch.Tensor, torch.Tensor]:
    """All images as one float tensor; reading them one by one would take longer than training."""
    return (data.data[:, None].float() / 255 - 0.286) / 0.353, data.targets


def accuracy(net: models.LeNet, images: torch.Tensor, labels: torch.Tensor) -> float:
    net.eval()
    with torch.no_grad():
        parts = [net(part).argmax(dim=1) for part in images.split(500)]
    net.train()
    return float((torch.cat(parts) == labels).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--steps", type=int, default=938)
    options = parser.parse_args()
    torch.manual_seed(0)
    fashion = datasets.FashionMNIST
    images, labels = prepared(fashion(options.data, train=True, download=options.download))
    net = models.lenet()
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    order = torch.randperm(len(images))
    for step in range(1, options.steps + 1):
        start = (step - 1) * 64 % len(images)
        chosen = order[start : start + 64]
        loss = F.cross_entropy(net(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step <= 6:
            print(f"step {step} loss {loss.item():.5f}")
    result = accuracy(net, *prepared(fashion(options.data, train=False)))
    print(f"test accuracy {result:.4f}")
    if options.steps >= 938 and result < GOAL:
        raise SystemExit(f"expected at least {GOAL}")


if __name__ == "__main__":
    main()
