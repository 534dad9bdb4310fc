"""Pruning: take nine of ten weights out of a network that reads digits, and keep its accuracy.

The smallest weights go, in five rounds with some training after each. Taking the same share out at
once, without training, shows what the rounds are for.
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import prune

STEPS, GOAL, SHARE, ROUNDS = 400, 0.95, 0.9, 5


def digits():
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return x[order[360:]], y[order[360:]], x[order[:360]], y[order[:360]]


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, steps: int, shown: bool) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        at = torch.randint(len(x), (64,))
        loss = F.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if shown and step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")


def cut(model: nn.Module, share: float) -> None:
    """Take that share of the weights that are left, whichever layers they are in."""
    weights = [(m, "weight") for m in model.modules() if isinstance(m, nn.Linear)]
    prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=share)


@torch.no_grad()
def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    return (model(x).argmax(1) == y).float().mean().item()


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    x, y, *test = digits()
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    train(model, x, y, steps, shown=True)
    print(f"all weights: {accuracy(model, *test):.1%}")
    at_once = copy.deepcopy(model)
    cut(at_once, SHARE)
    print(f"{1 - SHARE:.0%} of them, taken at once: {accuracy(at_once, *test):.1%}")

    for round in range(1, ROUNDS + 1):
        cut(model, 1 - (1 - SHARE) ** (1 / ROUNDS))
        train(model, x, y, steps // 2, shown=False)
        kept = (1 - SHARE) ** (round / ROUNDS)
        print(f"{kept:.0%} of them, after round {round}: {accuracy(model, *test):.1%}")
    layers = [m for m in model if isinstance(m, nn.Linear)]
    for layer in layers:
        prune.remove(layer, "weight")
    left = sum(int((m.weight != 0).sum()) for m in layers) / sum(m.weight.numel() for m in layers)
    result = accuracy(model, *test)
    print(f"result: {result:.1%} of test digits right with {left:.0%} of weights (goal {GOAL:.0%})")
    if steps >= STEPS and result < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
