"""Train a small network on two spirals, with a progress line, then show the graph behind its loss.

Change the import to ``import torch`` and the losses stay the same.
"""

from __future__ import annotations

import itertools
import math
import sys

import weft as torch


def spirals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Points on two interleaved spirals, and which spiral each is on."""
    turn = torch.linspace(0.25, 2.0, count).repeat(2) * 2 * math.pi
    which = torch.arange(2).repeat_interleave(count)
    angle = turn + which * math.pi
    points = torch.stack((turn * torch.cos(angle), turn * torch.sin(angle)), dim=1) / 8
    return points + 0.02 * torch.randn(2 * count, 2), which.float().unsqueeze(1)


def main() -> None:
    torch.manual_seed(0)
    x, y = spirals(200)
    sizes = (2, 32, 32, 1)
    weights = [
        (torch.randn(n, m) * math.sqrt(2 / m)).requires_grad_()
        for m, n in itertools.pairwise(sizes)
    ]
    biases = [torch.zeros(n, requires_grad=True) for n in sizes[1:]]
    parameters = weights + biases
    means = [torch.zeros_like(p) for p in parameters]
    squares = [torch.zeros_like(p) for p in parameters]

    def forward(h: torch.Tensor) -> torch.Tensor:
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            h = torch.relu(h @ w.t() + b)
        return h @ weights[-1].t() + biases[-1]

    steps = 600
    for step in range(1, steps + 1):
        logits = forward(x)
        loss = (logits.clamp(min=0) - logits * y + torch.log1p(torch.exp(-logits.abs()))).mean()
        loss.backward()
        with torch.no_grad():
            for p, m, v in zip(parameters, means, squares, strict=True):
                m.mul_(0.9).add_(p.grad, alpha=0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.addcdiv_(m, v.sqrt() + 1e-8, value=-0.01 * math.sqrt(1 - 0.99**step))
                p.grad = None
        if step % 20 == 0 or step == steps:
            right = ((logits > 0) == (y > 0.5)).float().mean()
            done = "#" * (step * 30 // steps)
            line = f"\rstep {step:4d}  [{done:<30}]  loss {loss.item():.4f}  correct {right:.1%}"
            print(line, end="", flush=True, file=sys.stdout)
    print("\n\nThe graph behind the loss of the last step:\n")
    print(torch.graph.of(loss))


if __name__ == "__main__":
    main()
