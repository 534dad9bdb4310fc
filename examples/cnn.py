"""A convolutional network that tells the direction of stripes from noisy pictures."""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 100, 0.97


def stripes(count: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of waves that run in one of four directions, and which direction it is."""
    which = torch.randint(4, (count,))
    angle = which * math.pi / 4
    y, x = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = x * torch.cos(angle)[:, None, None] + y * torch.sin(angle)[:, None, None]
    phase = 2 * math.pi * torch.rand(count, 1, 1)
    image = torch.sin(along + phase) + 0.8 * torch.randn(count, size, size)
    return image.unsqueeze(1), which


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3)
        self.bn2 = nn.BatchNorm2d(16)
        self.drop = nn.Dropout2d(0.1)
        self.fc = nn.Linear(16 * 3 * 3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = self.drop(x)
        return F.log_softmax(self.fc(x.view(x.size(0), -1)), dim=1)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.5)
    model.train()
    for step in range(1, steps + 1):
        x, y = stripes(32)
        optimizer.zero_grad()
        loss = F.nll_loss(model(x), y)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    with torch.no_grad():
        x, y = stripes(256)
        correct = model(x).argmax(dim=1).eq(y).float().mean().item()
    print(f"result: {correct:.1%} of new pictures right (goal {GOAL:.0%})")
    if steps >= STEPS and correct < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
