"""Grow a network while it trains: wider, then deeper, and what it computes stays the same."""

from __future__ import annotations

import weft
import weft.nn.functional as F
from weft import nn


def main() -> None:
    weft.manual_seed(0)
    x = weft.rand(512, 2) * 6 - 3
    y = (x[:, :1].sin() * x[:, 1:].cos()).detach()
    net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = weft.optim.Adam(net.parameters(), lr=0.02)

    def train(steps: int) -> float:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = F.mse_loss(net(x), y)
            loss.backward()
            optimizer.step()
        return loss.item()

    print(f"4 units: loss {train(150):.4f}")
    print(weft.graph.resize(net, "0", width=32, example=x, optimizer=optimizer))
    print(f"32 units: loss {train(150):.4f}")
    layers = {2: nn.Linear(32, 32), 3: nn.ReLU()}
    print(weft.graph.resize(net, "", insert=layers, example=x, optimizer=optimizer))
    print(f"one layer more: loss {train(150):.4f}")
    print(net)


if __name__ == "__main__":
    main()
