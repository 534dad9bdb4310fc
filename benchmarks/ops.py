"""Single ops from small to large, and how near products come to what the machine can do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from benchmarks.timing import Row, compare_within, geometric_mean
from benchmarks.workloads import data, labels

SIZES = tuple(10**k for k in range(2, 8))
LIMIT = 0.8
SECONDS = 0.4  # for each case


def cases(lib: Any, size: int) -> dict[str, Callable[[], Any]]:
    """Every op on a matrix of so many elements, nothing recorded."""
    f = lib.nn.functional
    columns = min(size // 10, 1000)
    rows = size // columns
    x, y = data(lib, rows, columns), data(lib, rows, columns, seed=1)
    row, mask, shape = data(lib, columns, seed=2), y > 0, (columns,)
    places, some = labels(lib, columns, rows, columns), labels(lib, rows, rows)
    return {
        "add": lambda: x + y,
        "add a row": lambda: x + row,
        "mul": lambda: x * y,
        "relu": lambda: lib.relu(x),
        "exp": lambda: lib.exp(x),
        "tanh": lambda: lib.tanh(x),
        "sigmoid": lambda: lib.sigmoid(x),
        "gelu": lambda: f.gelu(x),
        "where": lambda: lib.where(mask, x, y),
        "sum": lambda: x.sum(),
        "mean(-1)": lambda: x.mean(-1),
        "sum(0)": lambda: x.sum(0),
        "max(-1)": lambda: x.max(-1),
        "argmax": lambda: x.argmax(),
        "softmax": lambda: f.softmax(x, -1),
        "log_softmax": lambda: f.log_softmax(x, -1),
        "layer_norm": lambda: f.layer_norm(x, shape, row, row),
        "gather": lambda: x.gather(1, places),
        "index_select": lambda: x.index_select(0, some),
        "embedding": lambda: f.embedding(some, x),
    }


def products(lib: Any) -> dict[str, tuple[float, Callable[[], Any]]]:
    """Matrix products and convolutions, with the work of each in GFLOP."""
    f = lib.nn.functional
    found: dict[str, tuple[float, Callable[[], Any]]] = {}
    for n in (128, 512, 1024):
        a, b = data(lib, n, n), data(lib, n, n, seed=1)
        found[f"matmul {n}"] = (2e-9 * n**3, lambda a=a, b=b: a @ b)
    for before, after, side, kernel in ((3, 64, 32, 3), (64, 64, 32, 3), (256, 256, 8, 3)):
        x, w = data(lib, 32, before, side, side), data(lib, after, before, kernel, kernel)
        work = 2e-9 * 32 * before * after * side**2 * kernel**2
        name = f"conv {before}->{after}, {kernel}x{kernel} on {side}x{side}"
        found[name] = (work, lambda x=x, w=w: f.conv2d(x, w, padding=1))
    return found


def run(*arguments: str) -> bool:
    """Print ratios by op and size; True if their geometric mean is within its limit."""
    import torch

    import weft

    parser = argparse.ArgumentParser(prog="python -m benchmarks ops", description=__doc__)
    parser.add_argument("--json", metavar="FILE", help="also write all numbers there")
    parser.add_argument("--only", default="", help="parts of names of ops, with commas between")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each case")
    options = parser.parse_args(arguments)
    torch.set_num_threads(2)
    weft.set_num_threads(2)
    grid = measure(weft, torch, options.only.split(","), options.seconds)
    mean = show(grid)
    shares = [] if options.only else peak_shares(weft, torch, options.seconds)
    if options.json:
        rows = [{**asdict(r), "ratio": r.ratio} for line in grid.values() for r in line.values()]
        with open(options.json, "w") as file:
            json.dump({"mean": mean, "ops": rows, "peak": shares}, file, indent=2)
    return mean <= LIMIT


def measure(weft: Any, torch: Any, parts: list[str], seconds: float) -> dict[str, dict[int, Row]]:
    """A row for every op and size."""
    grid: dict[str, dict[int, Row]] = {}
    for size in SIZES:
        mine, theirs = cases(weft, size), cases(torch, size)
        for name in mine:
            if any(part in name for part in parts):
                row = compare_within(seconds, f"{name} {size}", mine[name], theirs[name])
                grid.setdefault(name, {})[size] = row
    return grid


def show(grid: dict[str, dict[int, Row]]) -> float:
    """Print the grid of ratios with its means; give the mean of all."""
    width = max(map(len, grid))
    print(f"\nratios by number of elements\n{'op':<{width}}", end="")
    print("".join(f"{f'1e{len(str(size)) - 1}':>8}" for size in SIZES) + "    mean")
    for name, line in grid.items():
        ratios = [line[size].ratio for size in SIZES]
        numbers = "".join(f"{ratio:8.2f}" for ratio in (*ratios, geometric_mean(ratios)))
        print(f"{name:<{width}}{numbers}")
    by_size = [geometric_mean(line[size].ratio for line in grid.values()) for size in SIZES]
    mean = geometric_mean(by_size)
    print(f"{'mean':<{width}}" + "".join(f"{ratio:8.2f}" for ratio in (*by_size, mean)))
    print(f"geometric mean {mean:.2f}, limit {LIMIT:.2f}, {'ok' if mean <= LIMIT else 'over'}")
    return mean


def peak_shares(weft: Any, torch: Any, seconds: float) -> list[dict[str, Any]]:
    """The speed of products as a share of the best that either library makes of a large one."""
    large = 2048
    best = compare_within(
        max(seconds, 3.0), "peak", *(_square(lib, large) for lib in (weft, torch))
    )
    peak = 2e-9 * large**3 / (min(best.weft, best.torch) * 1e-6)
    print(f"\npeak: {peak:.0f} GFLOP/s (product of {large}x{large})")
    found = []
    mine, theirs = products(weft), products(torch)
    width = max(map(len, mine))
    print(f"{'share of the peak':<{width}}    weft   torch")
    for name, (work, function) in mine.items():
        row = compare_within(seconds, name, function, theirs[name][1])
        shares = [work / (time * 1e-6) / peak for time in (row.weft, row.torch)]
        print(f"{name:<{width}}  {shares[0]:6.2f}  {shares[1]:6.2f}")
        found.append({"case": name, "weft": shares[0], "torch": shares[1], "peak": peak})
    return found


def _square(lib: Any, n: int) -> Callable[[], Any]:
    a, b = data(lib, n, n), data(lib, n, n, seed=1)
    return lambda: a @ b
