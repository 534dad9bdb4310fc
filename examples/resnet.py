"""A residual network that names the shape in a coloured picture."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 200, 0.97


def shapes(count: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Discs, squares, crosses and rings of random colour and place."""
    label = torch.randint(4, (count,))
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    centre = torch.randint(5, size - 5, (2, count, 1, 1))
    dx, dy = (x - centre[0]).float(), (y - centre[1]).float()
    far = torch.sqrt(dx**2 + dy**2)
    box = torch.maximum(dx.abs(), dy.abs())
    disc, square, ring = far < 4.2, box < 4, (far < 5) & (far > 2.5)
    cross = (box < 5) & (torch.minimum(dx.abs(), dy.abs()) < 1.5)
    every = torch.stack((disc, square, cross, ring), dim=1)
    mask = every[torch.arange(count), label].unsqueeze(1).float()
    colour = 0.4 + 0.6 * torch.rand(count, 3, 1, 1)
    return mask * colour + 0.2 * torch.randn(count, 3, size, size), label


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += self.shortcut(x)
        return F.relu(out)


class ResNet(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(
            Residual(width, width),
            Residual(width, 2 * width, stride=2),
            Residual(2 * width, 4 * width, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(4 * width, 4)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(F.relu(self.bn(self.stem(x))))
        return self.fc(torch.flatten(self.pool(x), 1))


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = ResNet()
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(1, steps + 1):
        x, y = shapes(32)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    with torch.no_grad():
        x, y = shapes(200)
        correct = (model(x).max(1)[1] == y).float().mean().item()
    print(f"result: {correct:.1%} of new pictures right (goal {GOAL:.0%})")
    if steps >= STEPS and correct < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
