"""Edit a network in the middle of its training: look, replace, go on."""

from __future__ import annotations

import weft
import weft.nn.functional as F
from weft import nn


def main() -> None:
    weft.manual_seed(0)
    x = weft.rand(256, 2) * 4 - 2
    y = (x[:, :1] * x[:, 1:]).sin()
    net = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = weft.optim.Adam(net.parameters(), lr=0.01)

    with weft.graph.record() as graph:
        loss = F.mse_loss(net(x), y)
    print(graph)

    def train(run, steps: int) -> float:
        for _ in range(steps):
            optimizer.zero_grad()
            loss = run()
            loss.backward()
            optimizer.step()
        return loss.item()

    print(f"after 50 steps with relu: {train(graph.run, 50):.4f}")

    # A new graph each time; the old one stays as it was.
    smooth = graph.replace("1.relu", F.silu).replace("3.relu", F.silu)
    print("edits:", "; ".join(smooth.history))
    print(f"after 50 more with silu:  {train(smooth.run, 50):.4f}")

    # The same edit for a program that runs as it is written, step by step.
    with weft.graph.rules().replace(F.silu, op="relu"):
        print(f"after 50 more by a rule:  {train(lambda: F.mse_loss(net(x), y), 50):.4f}")
    assert loss.item() > train(smooth.run, 1)


if __name__ == "__main__":
    main()
