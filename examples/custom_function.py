"""Custom autograd functions: a network whose weights are all +1 or -1 reads handwritten digits.

``Sign`` has no useful derivative, so its backward is written by hand: the gradient passes straight
through where the weight is small. ``Swish`` shows the other use, a derivative from what forward
saved; ``gradcheck`` compares it with finite differences.
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

STEPS, GOAL = 800, 0.93


class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(weight)
        return torch.where(weight >= 0, 1.0, -1.0)

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        (weight,) = ctx.saved_tensors
        return grad * (weight.abs() <= 1)


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        gate = torch.sigmoid(x)
        ctx.save_for_backward(x, gate)
        return x * gate

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        x, gate = ctx.saved_tensors
        return grad * gate * (1 + x * (1 - gate))


class BinaryLinear(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, Sign.apply(self.weight)) / self.in_features**0.5 + self.bias


class Network(nn.Module):
    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.first, self.last = BinaryLinear(64, hidden), BinaryLinear(hidden, 10)
        self.norm = nn.BatchNorm1d(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Swish.apply(self.norm(self.first(x))))


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    point = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(Swish.apply, (point,))

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[360:], order[:360]
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        chosen = train[torch.randint(len(train), (64,))]
        loss = F.cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    model.eval()
    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).float().mean().item()
    print(f"result: {accuracy:.1%} of test digits right with one-bit weights (goal {GOAL:.0%})")
    if steps >= STEPS and accuracy < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
