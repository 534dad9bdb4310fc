"""Meta-learning (MAML): weights from which five steps are enough to learn a new wave.

A task is a sine of its own height and shift, seen at ten points. The outer loss is that after one
inner step, so its gradient goes through the inner gradient: a second derivative. All tasks of a
batch are computed at once, each with weights of its own.
"""

import argparse
import itertools
import math

import torch
from torch import nn

STEPS, GOAL = 1200, 0.15
RATE, POINTS, TASKS = 0.1, 10, 16


def waves(tasks: int):
    """A function that draws points of some waves."""
    height = 0.5 + 1.5 * torch.rand(tasks, 1, 1)
    shift = math.pi * torch.rand(tasks, 1, 1)

    def draw(points: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = 6 * torch.rand(tasks, points, 1) - 3
        return x, height * torch.sin(x + shift)

    return draw


def weights(*sizes: int) -> list[nn.Parameter]:
    made = []
    for inner, outer in itertools.pairwise(sizes):
        for shape in ((1, inner, outer), (1, 1, outer)):
            made.append(nn.Parameter((2 * torch.rand(shape) - 1) / math.sqrt(inner)))
    return made


def apply(parameters: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    *hidden, (last, bias) = zip(parameters[::2], parameters[1::2], strict=True)
    for weight, shift in hidden:
        x = torch.relu(x @ weight + shift)
    return x @ last + bias


def error(parameters: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The mean square error of each task."""
    return (apply(parameters, x) - y).square().mean((1, 2))


def adapted(parameters, x, y, steps: int, create_graph: bool) -> list[torch.Tensor]:
    """Weights for each task, after some steps on its points."""
    own = [p.expand(len(x), -1, -1) for p in parameters]
    for _ in range(steps):
        # Tasks do not share weights, so the gradient of the sum holds that of each.
        slopes = torch.autograd.grad(error(own, x, y).sum(), own, create_graph=create_graph)
        own = [p - RATE * slope for p, slope in zip(own, slopes, strict=True)]
    return own


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    parameters = weights(1, 40, 40, 1)
    optimizer = torch.optim.Adam(parameters, lr=5e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    for step in range(1, steps + 1):
        draw = waves(TASKS)
        own = adapted(parameters, *draw(POINTS), steps=1, create_graph=True)
        loss = error(own, *draw(POINTS)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    torch.manual_seed(1000)
    draw = waves(200)
    seen, unseen = draw(POINTS), draw(100)
    for count in (0, 1, 5):
        left = error(adapted(parameters, *seen, steps=count, create_graph=False), *unseen)
        print(f"after {count} steps on a new wave: error {left.mean().item():.3f}")
    result = left.mean().item()
    print(f"result: {result:.3f} is the squared error after five steps (goal below {GOAL})")
    if steps >= STEPS and result >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
