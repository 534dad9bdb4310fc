"""A GRU that forecasts a sum of two waves of unknown speed."""

import argparse

import torch
from torch import nn

STEPS, GOAL = 400, 0.1


def waves(count: int, length: int) -> torch.Tensor:
    time = torch.arange(length, dtype=torch.float32).expand(count, length)
    speed = 0.2 + 0.6 * torch.rand(count, 2)
    shift = 6.28 * torch.rand(count, 2)
    parts = torch.sin(speed.unsqueeze(2) * time.unsqueeze(1) + shift.unsqueeze(2))
    return parts.mean(dim=1).unsqueeze(2)


class Forecaster(nn.Module):
    def __init__(self, hidden: int = 32) -> None:
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, last = self.gru(x)
        assert last.shape == (1, x.shape[0], states.shape[-1])
        return self.out(self.norm(states))


def main(steps: int, seed: int) -> None:
    torch.manual_seed(seed)
    model = Forecaster()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
    criterion = nn.SmoothL1Loss()
    for step in range(1, steps + 1):
        series = waves(24, 40)
        loss = criterion(model(series[:, :-1]), series[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            print(f"step {step} loss {loss.item():.6g}")

    series = waves(200, 40)
    with torch.no_grad():
        forecast = model(series[:, :-1])
    # The second half, when it has seen enough to tell the speeds; against "as it was before".
    ours = (forecast - series[:, 1:])[:, 20:].square().mean()
    same = (series[:, :-1] - series[:, 1:])[:, 20:].square().mean()
    ratio = (ours / same).item()
    print(f"result: {ratio:.3f} of the squared error of no change (goal below {GOAL})")
    if steps >= STEPS and ratio >= GOAL:
        raise SystemExit("the goal was missed")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    main(options.steps, options.seed)
