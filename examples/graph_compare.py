"""Compare two runs node by node, and follow a training for changes of structure."""

from __future__ import annotations

import weft
from weft import nn


def model(dropout: bool) -> nn.Sequential:
    weft.manual_seed(0)
    layers = [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1)]
    if dropout:
        layers.insert(2, nn.Dropout(0.5))
    return nn.Sequential(*layers)


def main() -> None:
    x = weft.randn(8, 4)
    graphs = []
    for dropout in (False, True):
        net = model(dropout)
        with weft.graph.record(values=True) as graph:
            net(x)
        graphs.append(graph)
    print(weft.graph.diff(*graphs))

    print()
    net = model(False)
    optimizer = weft.optim.SGD(net.parameters(), lr=0.1)
    with weft.graph.watch(tell=print) as watch:
        for step in range(6):
            optimizer.zero_grad()
            out = net(x)
            loss = out.abs().mean() if step == 3 else (out**2).mean()
            loss.backward()
            optimizer.step()
    print(f"{watch.steps} steps, changes at {[change.step for change in watch.changes]}")


if __name__ == "__main__":
    main()
