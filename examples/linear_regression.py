"""Linear regression: find the weights behind noisy measurements."""

import argparse

import torch
from torch import nn


def main(steps: int) -> None:
    torch.manual_seed(0)
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    main(parser.parse_args().steps)
