"""Online learning on a stream that drifts: each sample is answered first, and learned from after.

What separates the two classes turns slowly all the time and jumps once in the middle. Beside the
network that goes on learning runs a copy that stopped after the first fifth of the stream.
"""

import argparse
import copy
import math

import torch
import torch.nn.functional as F
from torch import nn

STEPS, GOAL = 3000, 0.9
FEATURES, BATCH = 8, 8


def stream(steps: int):
    """Batches of points and their classes; what the classes are depends on the time."""
    first, second = torch.linalg.qr(torch.randn(FEATURES, 2))[0].T
    for step in range(steps):
        angle = math.pi * step / STEPS + (math.pi / 2 if step >= STEPS // 2 else 0.0)
        direction = math.cos(angle) * first + math.sin(angle) * second
        x = torch.randn(BATCH, FEATURES)
        yield x, ((x @ direction).tanh() + 0.1 * x[:, 0] * x[:, 1] > 0).float()


def right(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return ((model(x).squeeze(1) > 0) == (y > 0)).float().mean().item()


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    stopped, scores = model, {"going on": [], "stopped": []}
    for step, (x, y) in enumerate(stream(steps), 1):
        scores["going on"].append(right(model, x, y))
        scores["stopped"].append(right(stopped, x, y))
        loss = F.binary_cross_entropy_with_logits(model(x).squeeze(1), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step == STEPS // 5:
            stopped = copy.deepcopy(model)
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
            for name, found in scores.items():
                latest = found[-max(1, steps // 10) :]
                print(f"  {name}: {sum(latest) / len(latest):.1%} answered right")

    last = {name: found[-steps // 4 :] for name, found in scores.items()}
    share = {name: sum(found) / len(found) for name, found in last.items()}
    print(f"the copy that stopped answers {share['stopped']:.1%} of the last quarter right")
    print(f"result: {share['going on']:.1%} of the last quarter right (goal {GOAL:.0%})")
    if steps >= STEPS and share["going on"] < GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
