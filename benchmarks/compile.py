"""Whole training steps, compiled weft against eager torch; with --others against compilers too.

The step (zero_grad, forward, backward, optimizer) is one function, compiled by ``weft.compile``; in
the rows called static Python is skipped, by ``static=True``. The rows called products compare such
a step with the time that its matrix products and convolutions take in it (``torch`` in the table;
attention, recurrent layers and convolutions under pooling are kernels with products inside, and
count as products).
With --others: against ``torch.compile``, of the model and of the whole step, and ``jax.jit``; the
fastest of them has the limit.
With --start: from the first call to full speed, in fresh processes, with empty and with warm
caches. With --memory: the most memory that fresh processes hold. With --sizes: what the first calls
at a new size cost, where others are known.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks import compile_page
from benchmarks.compile_cost import MEMORY_LIMITS, memory_rows, start_rows
from benchmarks.compile_generation import generating, generation
from benchmarks.compile_sizes import print_sizes
from benchmarks.timing import Row, compare_within, once, report
from benchmarks.workloads import WORKLOADS

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
    "cell": 0.3,
    "tree": 0.15,
}
# The same of the fastest other compiler's.
OTHERS = {
    "mlp 2-10-1": 0.7,
    "mlp 32-64-64-10": 0.5,
    "mlp": 0.65,
    "cnn": 0.7,
    "resnet18": 0.8,
    "lstm": 0.8,
    "gpt": 0.8,
    "dqn": 0.5,
    "generation": 0.8,
    "cell": 0.8,
    "tree": 0.8,
}
PRODUCTS_RUNS = 31
PRODUCTS_LIMIT = 1.2  # of a step, as a multiple of its products and convolutions
PRODUCTS = (
    *("mm:", "bmm:", "linear", "convolution:", "conv_transpose:", "conv_weight:", "addmm"),
    *("convolution+", "plane_scatter+conv"),
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
    parser.add_argument("--page", metavar="FILE", help="put a table into docs/compile.md")
    parser.add_argument("--seconds", type=float, default=6.0, help="for each row")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--others", action="store_true", help="torch.compile and jax.jit as well")
    parser.add_argument("--start", action="store_true", help="time until full speed")
    parser.add_argument("--memory", action="store_true", help="peak memory in fresh processes")
    parser.add_argument("--sizes", action="store_true", help="calls at sizes that are new")
    options = parser.parse_args(arguments)
    names = options.rows.split(",")
    if options.memory:
        rows = memory_rows([n for n in names if n in MEMORY_LIMITS], options.threads)
        return report("peak memory of compiled training steps", rows, options.json)
    if options.sizes:
        print_sizes(options.threads)
        return True
    if options.start:
        return start_rows(names, options.threads)
    rows: list[Row] = []
    wrong: list[str] = []
    for name in options.rows.split(","):
        rows += time_rows(name, options, wrong)
    fine = report("compiled training steps against eager torch", rows, options.json)
    if options.page:
        compile_page.write(options.page, rows, options.threads)
    print("\n".join(wrong) or "losses of both agree in every row")
    return fine and not wrong


def time_rows(name: str, options: argparse.Namespace, wrong: list[str]) -> list[Row]:
    import torch

    import weft

    torch.set_num_threads(options.threads)
    weft.set_num_threads(options.threads)
    mine, theirs = steps(name, weft), steps(name, torch)
    share_weights(mine, theirs)
    eager = theirs.step(_as_is)
    compiled = mine.step(weft.compile)
    start = time.perf_counter()
    losses = [(compiled().item(), eager().item()) for _ in range(STEPS)]
    first = time.perf_counter() - start
    check(name, losses, wrong)
    limit, seconds = LIMITS[name], options.seconds
    rows = [compare_within(seconds, name, compiled, eager, limit=limit, unit="ms")]
    made: list[Any] = []

    def compile_static(what: Any) -> Any:
        made.append(weft.compile(what, static=True))
        return made[0]

    static = steps(name, weft).step(compile_static)
    for _ in range(STEPS):
        static()
    rows.append(compare_within(seconds, f"{name}, static", static, eager, limit=limit, unit="ms"))
    rows.append(products_row(name, made[0], static))
    print(f"{name}: the first {STEPS} steps of both took {first:.2f} s")
    if options.others:
        rows += other_rows(name, compiled, options.seconds, [b for _, b in losses], wrong)
    return rows


def check(name: str, losses: list[tuple[float, float]], wrong: list[str]) -> None:
    """Note where pairs of losses differ."""
    if not all(abs(a - b) <= AGREEMENT * abs(losses[0][1]) for a, b in losses):
        wrong.append(f"{name}: losses differ: {losses}")


def other_rows(
    name: str, compiled: Callable, seconds: float, losses: list[float], wrong: list[str]
) -> list[Row]:
    """The compiled step against other compilers' steps, which must have torch's losses."""
    rows = []
    for other, made in others(name).items():
        step = made()
        found = [float(step()) for _ in losses]
        check(f"{name}, {other}", list(zip(found, losses, strict=True)), wrong)
        for _ in range(STEPS):
            step()
        rows.append(compare_within(seconds, f"{name}, {other}", compiled, step, unit="ms"))
    min(rows, key=lambda row: row.torch).limit = OTHERS[name]
    return rows


def others(name: str) -> dict[str, Callable[[], Callable]]:
    """What makes the steps of other compilers, by their names."""
    import torch

    def whole() -> Callable:
        torch._dynamo.reset()
        return steps(name, torch).step(torch.compile)

    def model() -> Callable:
        torch._dynamo.reset()
        made = steps(name, torch)
        for module in made.modules:
            module.compile()
        return made.step(_as_is)

    def jitted() -> Callable:
        from benchmarks import compile_jax

        made = steps(name, torch)
        if name in SMALL:
            return compile_jax.small(*made.modules, *made.data)
        return compile_jax.jitted(name, made.modules)

    found = {"torch.compile, step": whole, "torch.compile, model": model}
    if name == "tree":  # whose Python functions are not part of a module
        del found["torch.compile, model"]
    if importlib.util.find_spec("jax") is not None and name not in ("cell", "tree"):
        found["jax.jit"] = jitted
    return found


def products_row(name: str, static: Any, step: Callable) -> Row:
    """A step's time beside that of the products and convolutions in it: medians of runs in turns.

    A sum of the best times of single calls would be below that of any run, the more so the noisier
    the machine is.
    """
    whole, alone = [], []
    for _ in range(PRODUCTS_RUNS):
        whole.append(once(step, 1) * 1e-3)
        with static.timing() as runs:
            step()
        products = sum(seconds for title, seconds in runs[0] if title.startswith(PRODUCTS))
        alone.append(products * 1e3)
    return Row(f"{name}, products", median(whole), median(alone), PRODUCTS_LIMIT, "ms")


@dataclass
class Step:
    """Modules, and a step as a function of what compiles it; data that a library drew."""

    modules: list[Any]
    step: Callable[[Callable], Callable]
    data: tuple[Any, ...] = ()


def _as_is(function: Callable) -> Callable:
    return function


def steps(name: str, lib: Any) -> Step:
    """The step of a row in a library, which draws weights and data from the same seed."""
    lib.manual_seed(0)
    if name == "generation":
        model = generation(lib)
        return Step([model], lambda compile: generating(lib, model, compile(model)))
    if name in SMALL:
        return small(lib, *SMALL[name])
    made = WORKLOADS[name](lib)
    return Step(made.modules, lambda compile: compile(made.step))


def share_weights(mine: Step, theirs: Step) -> None:
    """Give both the weights of the second, whatever they drew."""
    for a, b in zip(mine.modules, theirs.modules, strict=True):
        a.load_state_dict({k: from_torch(v) for k, v in b.state_dict().items()})


def from_torch(tensor: Any) -> Any:
    import weft

    return weft.from_numpy(tensor.numpy().copy())


def small(lib: Any, sizes: tuple[int, ...], batch: int) -> Step:
    """A step of a small network with Adam and mean squared error."""
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

    return Step([model], lambda compile: compile(step), (x, y))
