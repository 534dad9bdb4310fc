"""Whole training steps, compiled weft against eager torch; with --others against torch.compile too.

The step (zero_grad, forward, backward, optimizer) is one function, compiled by ``weft.compile``; in
the rows called static Python is skipped, by ``static=True``. The rows called products compare such
a step with the time that its matrix products and convolutions take in it (``torch`` in the table;
attention and recurrent layers are kernels with products inside, and count as products).
With --start: from the first call to full speed, in fresh processes, with empty and with warm
caches. With --memory: the most memory that fresh processes hold.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any

from benchmarks.compile_cost import MEMORY_LIMITS, memory_rows, start_rows
from benchmarks.compile_generation import generating, generation
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
    "generation": 0.3,
}
PRODUCTS_LIMIT = 1.2  # of a step, as a multiple of its products and convolutions
PRODUCTS = (
    *("mm:", "bmm:", "linear", "convolution:", "conv_transpose:", "conv_weight:", "addmm"),
    *("scaled_dot_product_attention", "ScaledDotProductAttention", "lstm", "Lstm", "LSTM"),
)

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
    parser.add_argument("--start", action="store_true", help="time until full speed")
    parser.add_argument("--memory", action="store_true", help="peak memory in fresh processes")
    options = parser.parse_args(arguments)
    names = options.rows.split(",")
    if options.memory:
        rows = memory_rows([n for n in names if n in MEMORY_LIMITS], options.threads)
        return report("peak memory of compiled training steps", rows, options.json)
    if options.start:
        return start_rows(names, options.threads)
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
    compiled = mine(weft.compile)
    start = time.perf_counter()
    losses = [(compiled().item(), theirs().item()) for _ in range(STEPS)]
    first = time.perf_counter() - start
    scale = abs(losses[0][1])
    if not all(abs(a - b) <= AGREEMENT * scale for a, b in losses):
        wrong.append(f"{name}: losses differ: {losses}")
    limit, seconds = LIMITS[name], options.seconds
    rows = [compare_within(seconds, name, compiled, theirs, limit=limit, unit="ms")]
    made: list[Any] = []

    def compile_static(what: Any) -> Any:
        made.append(weft.compile(what, static=True))
        return made[0]

    static = steps(name, weft, torch)[0](compile_static)
    for _ in range(STEPS):
        static()
    rows.append(compare_within(seconds, f"{name}, static", static, theirs, limit=limit, unit="ms"))
    rows.append(products_row(name, rows[-1].weft, made[0], static))
    print(f"{name}: the first {STEPS} steps of both took {first:.2f} s")
    if options.others:
        other = again(torch.compile)
        for _ in range(3):
            other()
        rows.append(compare_within(options.seconds, f"{name}, torch.compile", compiled, other,
                                   limit=0.8, unit="ms"))  # fmt: skip
    return rows


def products_row(name: str, whole: float, static: Any, step: Callable) -> Row:
    """A step's time beside that of the products and convolutions in it, each at its best."""
    with static.timing() as runs:
        for _ in range(15):
            step()
    best = [min(times) for times in zip(*([t for _, t in run] for run in runs), strict=True)]
    titles = [title for title, _ in runs[0]]
    alone = sum(t for title, t in zip(titles, best, strict=True) if title.startswith(PRODUCTS))
    return Row(f"{name}, products", whole, alone * 1e3, PRODUCTS_LIMIT, "ms")


def steps(name: str, weft: Any, torch: Any) -> tuple[Callable, Callable, Callable]:
    """The step in weft, in torch, and in torch again; but for the second as functions of what
    compiles it.
    """
    if name == "generation":
        return generations(weft, torch)
    if name in SMALL:
        mine, theirs, again = (small(lib, *SMALL[name]) for lib in (weft, torch, torch))
    else:
        first, second = pair(name, weft, torch), pair(name, weft, torch)
        mine, theirs, again = first[0].step, first[1].step, second[1].step
    return lambda compile: compile(mine), theirs, lambda compile: compile(again)


def generations(weft: Any, torch: Any) -> tuple[Callable, Callable, Callable]:
    """The same for a model that generates: Python feeds it its own tokens."""
    mine, theirs, again = (generation(lib) for lib in (weft, torch, torch))
    state = {k: weft.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    mine.load_state_dict(state)
    return (
        lambda compile: generating(weft, mine, compile(mine)),
        generating(torch, theirs, theirs),
        lambda compile: generating(torch, again, compile(again)),
    )


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
