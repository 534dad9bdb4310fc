"""Image classification: CIFAR-10 from a local folder, with random crops and flips.

    python examples/cifar10.py --data FOLDER [--download]

FOLDER holds cifar-10-batches-py with the original files. The network is a small ResNet; the goal
is for a part of the training set of 10,000 pictures as well as for all 50,000.
"""

from __future__ import annotations

import argparse
import itertools

import weft as torch
from weft import nn
from weft.nn import functional as F
from weft.utils.data import DataLoader
from weft.vision import datasets, transforms

STEPS, GOAL = 1500, 0.6
NORM = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))


class Block(nn.Module):
    """Two convolutions beside a shortcut; the first may halve the picture."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outer),
            nn.ReLU(),
            nn.Conv2d(outer, outer, 3, padding=1, bias=False),
            nn.BatchNorm2d(outer),
        )
        self.shortcut = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.path(x) + self.shortcut(x))


def network() -> nn.Sequential:
    stem = nn.Conv2d(3, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()
    blocks = Block(32, 48, 2), Block(48, 96, 2), Block(96, 192, 2)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(192, 10))


def accuracy(net: nn.Module, data: datasets.CIFAR10) -> float:
    net.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(data, batch_size=250):
            right += int((net(images).argmax(dim=1) == labels).sum())
    return right / len(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    crops = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    augment = transforms.Compose([*crops, transforms.ToTensor(), NORM])
    train = datasets.CIFAR10(options.data, transform=augment, download=options.download)
    loader = DataLoader(train, batch_size=32, shuffle=True)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.1, total_steps=max(STEPS, options.steps)
    )
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (images, labels) in enumerate(itertools.islice(batches, options.steps), 1):
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, options.steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    plain = transforms.Compose([transforms.ToTensor(), NORM])
    result = accuracy(net, datasets.CIFAR10(options.data, train=False, transform=plain))
    print(f"result: {result:.1%} of the test pictures right (goal {GOAL:.0%})")
    if options.steps >= STEPS and result < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    main()
