"""Whether memory stays flat over many training steps whose shapes keep changing."""

from __future__ import annotations

import argparse
import random
from typing import Any

LIMIT = 1.03  # of memory at the end against memory early on


def network(lib: Any) -> Any:
    """A convolution over sequences, then an MLP on its mean."""
    nn = lib.nn

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv1d(8, 16, 3, padding=1)
            self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

        def forward(self, x: Any) -> Any:
            return self.head(self.conv(x).relu().mean(2))

    return Model()


def resident() -> float:
    """The memory that this process holds now, in MiB."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024


def run(*arguments: str) -> bool:
    """Train on batches and lengths that vary; True if memory has not grown since early on."""
    import weft

    parser = argparse.ArgumentParser(prog="python -m benchmarks flat", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--early", type=int, default=1_000, help="the step to compare with")
    options = parser.parse_args(arguments)
    weft.manual_seed(0)
    random.seed(0)
    model = network(weft)
    optimizer = weft.optim.Adam(model.parameters(), lr=1e-3)
    early = 0.0
    for step in range(1, options.steps + 1):
        batch, length = random.randint(1, 64), random.randint(4, 256)
        x, y = weft.randn(batch, 8, length), weft.randint(0, 4, (batch,))
        optimizer.zero_grad()
        weft.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if step == min(options.early, options.steps):
            early = resident()
    end = resident()
    print(f"MiB after {options.early} steps: {early:.1f}, after {options.steps}: {end:.1f}")
    print(f"ratio {end / early:.3f}, limit {LIMIT:.2f}")
    return end <= LIMIT * early
