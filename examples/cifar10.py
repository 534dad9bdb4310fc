"""Image classification: CIFAR-10 from a local folder, with augmentation.

    python examples/cifar10.py --data FOLDER [--download] [--steps 400]

FOLDER holds cifar-10-batches-py. A small ResNet is trained on random crops and flips.
"""

from __future__ import annotations

import argparse

import weft as torch
from weft import nn
from weft.nn import functional as F
from weft.utils.data import DataLoader
from weft.vision import datasets, transforms
from weft.vision.models.resnet import BasicBlock, ResNet

NORM = transforms.Normalize((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))


def network() -> ResNet:
    """A ResNet whose first layer keeps the 32x32 pixels."""
    net = ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net


def accuracy(net: ResNet, data: datasets.CIFAR10) -> float:
    net.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(data, batch_size=250):
            right += int((net(images).argmax(dim=1) == labels).sum())
    net.train()
    return right / len(data)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="data")
    parser.add_argument("--download", action="store_true")
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    torch.manual_seed(0)
    crops = [transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip()]
    augment = transforms.Compose([*crops, transforms.ToTensor(), NORM])
    train = datasets.CIFAR10(options.data, transform=augment, download=options.download)
    loader = DataLoader(train, batch_size=64, shuffle=True)
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    step = 0
    while step < options.steps:
        for images, labels in loader:
            loss = F.cross_entropy(net(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"step {step} loss {loss.item():.5f}")
            if step == options.steps:
                break
    plain = transforms.Compose([transforms.ToTensor(), NORM])
    result = accuracy(net, datasets.CIFAR10(options.data, train=False, transform=plain))
    print(f"test accuracy {result:.4f}")


if __name__ == "__main__":
    main()
