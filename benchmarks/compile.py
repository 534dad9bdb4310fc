"""Whole training steps, compiled weft against eager torch; with --others against torch.compile too.

The step (zero_grad, forward, backward, optimizer) is one function, compiled by ``weft.compile``; in
the rows called static Python is skipped, by ``static=True``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.models import pair
from benchmarks.timing import Row, compare_within, report

# What is aimed at, as a share of eager torch's time.
LIMITS = {
    "mlp 2-10-1": 0.06,
    "mlp 32-64-64-10": 0.10,
    "mlp": 0.40,
    "cnn": 0.35,
    "resnet18": 0.70,
    "lstm": 0.85,
    "gpt": 0.78,
    "dqn": 0.22,
}
STEPS = 4  # of which losses are compared
AGREEMENT = 5e-4  # of losses, as a share of the first one
SMALL = {"mlp 2-10-1": ((2, 10, 1), 100), "mlp 32-64-64-10": ((32, 64, 64, 10), 16)}


def run(*arguments: str) -> bool:
    """Measure the rows asked for; True if every limit holds and all losses agree."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks compile", description=__doc__)
    parser.add_argument("--rows", default=",".join(LIMITS), help="names with commas between")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--others", action="store_true", help="torch.compile as well")
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    wrong: list[str] = []
    for name in options.rows.split(","):
        rows += time_rows(name, options, wrong)
    fine = report("compiled training steps against eager torch", rows, options.json)
    print("\n".join(wrong) or "losses of both agree in every row")
    return fine and not wrong


def time_rows(name: str, options: argparse.Namespace, wrong: list[str]) -> list[Row]:
    import torch

    import weft

    torch.set_num_threads(options.threads)
    weft.set_num_threads(options.threads)
    mine, theirs, again = steps(name, weft, torch)
    compiled = weft.compile(mine)
    start = time.perf_counter()
    losses = [(compiled().item(), theirs().item()) for _ in range(STEPS)]
    first = time.perf_counter() - start
    scale = abs(losses[0][1])
    if not all(abs(a - b) <= AGREEMENT * scale for a, b in losses):
        wrong.append(f"{name}: losses differ: {losses}")
    rows = [compare_within(options.seconds, name, compiled, theirs, limit=LIMITS[name], unit="ms")]
    static = weft.compile(steps(name, weft, torch)[0], static=True)
    for _ in range(STEPS):
        static()
    limit = LIMITS[name]
    rows.append(compare_within(options.seconds, f"{name}, static", static, theirs, limit=limit,
                               unit="ms"))  # fmt: skip
    print(f"{name}: the first {STEPS} steps of both took {first:.2f} s")
    if options.others:
        other = torch.compile(again)
        for _ in range(3):
            other()
        rows.append(compare_within(options.seconds, f"{name}, torch.compile", compiled, other,
                                   limit=0.8, unit="ms"))  # fmt: skip
    return rows


def steps(name: str, weft: Any, torch: Any) -> tuple[Callable, Callable, Callable]:
    """The step in weft, and twice in torch."""
    if name not in SMALL:
        (mine, theirs), (_, again) = pair(name, weft, torch), pair(name, weft, torch)
        return mine.step, theirs.step, again.step
    return tuple(small(lib, *SMALL[name]) for lib in (weft, torch, torch))  # type: ignore[return-value]


def small(lib: Any, sizes: tuple[int, ...], batch: int) -> Callable:
    """A step of a small network with Adam and mean squared error."""
    lib.manual_seed(0)
    nn = lib.nn
    layers: list[Any] = []
    for k, (n, m) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.ReLU()] * (k > 0) + [nn.Linear(n, m)]
    model = nn.Sequential(*layers)
    optimizer = lib.optim.Adam(model.parameters())
    x, y = lib.randn(batch, sizes[0]), lib.randn(batch, sizes[-1])

    def step() -> Any:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step
