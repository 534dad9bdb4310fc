"""Linear regression: find the weights behind noisy measurements."""

import argparse

import torch
from torch import nn

STEPS, GOAL = 100, 0.05


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    truth = torch.tensor([[2.0, -3.0, 0.5]])
    x = torch.randn(200, 3)
    y = x @ truth.t() + 1.5 + 0.1 * torch.randn(200, 1)

    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, steps + 1):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")
    print("weights", model.weight.data, "bias", model.bias.data)
    error = (model.weight.detach() - truth).abs().max().item()
    print(f"result: {error:.3f} is the largest error of a weight (goal below {GOAL})")
    if steps >= STEPS and error >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
