"""What the living graph costs: recording, looking, comparing, watching."""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

from benchmarks.timing import Row, compare_within, in_processes, save

RECORD_LIMIT = 1.10
WATCH_LIMIT = 1.02
MEMORY_LIMIT = 1.02
OF_LIMIT = 50.0  # milliseconds
DIFF_LIMIT = 1000.0
NODES = 10_000


def run(*arguments: str) -> bool:
    """Measure the rows; True if every limit holds."""
    options = parse(arguments)
    import weft
    from benchmarks.workloads import WORKLOADS

    rows: list[Row] = []
    for name in options.models.split(","):
        step = WORKLOADS[name](weft).step
        watch = weft.graph.watch()
        for case, limit, inside in (
            ("record", RECORD_LIMIT, recorded(weft, step)),
            ("watch", WATCH_LIMIT, watched(watch, step)),
        ):
            row = compare_within(options.seconds, f"{case}, {name}", inside, step, limit)
            rows.append(in_milliseconds(row))
    if not options.no_memory:
        followed, bare = (
            MEMORY.format(block=block) for block in ("weft.graph.watch()", "nullcontext()")
        )
        case = "peak memory with watch, gpt"
        rows.append(in_processes(case, followed, bare, MEMORY_LIMIT, "MB", rounds=3))
    long = chain(weft, NODES)
    a, b = (weft.graph.of(chain(weft, NODES, every)) for every in (None, 1000))
    fixed = [
        ("of, 10,000 nodes", best(lambda: weft.graph.of(long)), OF_LIMIT),
        ("diff, 10,000 nodes", best(lambda: weft.graph.diff(a, b)), DIFF_LIMIT),
    ]
    fine = show(rows, fixed)
    if options.json:
        save(rows, options.json)
    return fine


def show(rows: list[Row], fixed: list[tuple[str, float, float]]) -> bool:
    """Print what was found; True if every limit holds."""
    print(f"\n{'a step':<28}{'inside':>10}{'bare':>10}       ratio  limit")
    for r in rows:
        numbers = f"{r.weft:>10.2f}{r.torch:>10.2f} {r.unit}"
        print(f"{r.case:<28}{numbers}  {r.ratio:8.3f}  {r.limit:.2f}  {verdict(r.ratio, r.limit)}")
    for case, found, limit in fixed:
        print(f"{case:<28}{found:>10.2f}{'':>10} ms  {'':8}  {limit:.0f}  {verdict(found, limit)}")
    return all(
        verdict(found, limit) == "ok"
        for found, limit in (*((r.ratio, r.limit) for r in rows), *((f, n) for _, f, n in fixed))
    )


def verdict(found: float, limit: float | None) -> str:
    return "ok" if limit is None or found <= limit else "over"


def in_milliseconds(row: Row) -> Row:
    return Row(row.case, row.weft / 1000, row.torch / 1000, row.limit, "ms")


def recorded(lib: Any, step: Callable[[], Any]) -> Callable[[], None]:
    """The step inside a record, as a user writes it."""

    def inside() -> None:
        with lib.graph.record():
            step()

    return inside


def watched(watch: Any, step: Callable[[], Any]) -> Callable[[], None]:
    """The step followed by one watch for the whole run, as in a training."""

    def inside() -> None:
        with watch:
            step()

    return inside


def chain(lib: Any, count: int, every: int | None = None) -> Any:
    """A loss behind so many nodes, now and then another one between them."""
    x = y = lib.ones(4, requires_grad=True)
    for k in range(count):
        y = y * 1.0001
        if every and k % every == 0:
            y = y.sin()
    return (x + y).sum()


def best(function: Callable[[], object], rounds: int = 7) -> float:
    """The best time of several, in milliseconds."""
    times = []
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times) * 1000


MEMORY = """
import resource
from contextlib import nullcontext
import weft
from benchmarks.workloads import WORKLOADS
step = WORKLOADS["gpt"](weft).step
with {block}:
    for _ in range(3):
        step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000)
"""


def parse(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks graph", description=__doc__)
    parser.add_argument("--models", default="gpt,resnet18", help="names with commas between")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each row")
    parser.add_argument("--no-memory", action="store_true", help="leave out the memory row")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    return parser.parse_args(arguments)
