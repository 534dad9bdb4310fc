"""An inception network: several filter sizes side by side, joined along the channels."""

import argparse

import torch
from torch import nn

STEPS, GOAL = 80, 0.95


def blobs(count: int, size: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of soft spots; the label says whether they are small, medium or large."""
    label = torch.randint(3, (count,))
    width = torch.tensor([1.0, 2.0, 4.0])[label].view(-1, 1, 1, 1)
    place = size * torch.rand(count, 3, 2)
    grid = torch.arange(size, dtype=torch.float32)
    dy = (grid.view(1, 1, -1, 1) - place[..., 0, None, None]).square()
    dx = (grid.view(1, 1, 1, -1) - place[..., 1, None, None]).square()
    image = torch.exp(-(dy + dx) / (2 * width**2)).sum(1, keepdim=True)
    return image + 0.3 * torch.randn(count, 1, size, size), label


class ConvBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, **settings: object) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, bias=False, **settings)
        self.norm = nn.BatchNorm2d(outputs, eps=0.001)
        self.active = nn.LeakyReLU(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.active(self.norm(self.conv(x)))


class Inception(nn.Module):
    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.branches = nn.ModuleDict(
            {
                "one": ConvBlock(inputs, 8, kernel_size=1),
                "three": nn.Sequential(
                    ConvBlock(inputs, 6, kernel_size=1),
                    ConvBlock(6, 12, kernel_size=3, padding="same"),
                ),
                "five": nn.Sequential(
                    ConvBlock(inputs, 4, kernel_size=1),
                    ConvBlock(4, 8, kernel_size=(1, 5), padding=(0, 2)),
                    ConvBlock(8, 8, kernel_size=(5, 1), padding=(2, 0)),
                ),
                "pool": nn.Sequential(
                    nn.AvgPool2d(3, stride=1, padding=1), ConvBlock(inputs, 4, kernel_size=1)
                ),
            }
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch in self.branches.values()], dim=1)


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(
        ConvBlock(1, 8, kernel_size=3, stride=2),
        Inception(8),
        nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
        Inception(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(p=0.2),
        nn.Linear(32, 3),
    )
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    for step in range(1, steps + 1):
        x, y = blobs(24)
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    model.eval()
    with torch.no_grad():
        x, y = blobs(200)
        correct = (model(x).argmax(1) == y).float().mean().item()
    print(f"result: {correct:.1%} of new pictures right (goal {GOAL:.0%})")
    if steps >= STEPS and correct < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
