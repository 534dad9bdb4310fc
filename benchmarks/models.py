"""Training steps of usual models, eager weft against eager torch, and the memory they take."""

from __future__ import annotations

import argparse
import importlib
import resource
from typing import Any

from benchmarks.timing import Row, compare_within, in_processes, mean_row, report
from benchmarks.workloads import WORKLOADS, Workload

LIMITS = {
    "mlp": 0.8,
    "cnn": 0.6,
    "resnet18": 0.9,
    "lstm": 1.0,
    "gpt": 0.95,
    "dcgan": 0.9,
    "dqn": 0.8,
    "cell": 0.9,
    "tree": 0.7,
}
MEAN_LIMIT = 0.8
MEMORY_LIMIT = 1.0
STEPS = 4  # of which losses are compared, and before memory is read
# A step of this one multiplies rounding errors a hundredfold, in torch against itself as well.
UNSTABLE = {"dcgan": 2}
AGREEMENT = 5e-4  # of losses, as a share of the first one: three digits


def run(*arguments: str) -> bool:
    """Measure the rows asked for; True if every limit holds and all losses agree."""
    options = parse(arguments)
    names = options.rows.split(",")
    if options.memory:
        rows = [memory_row(name, options.rounds or 3, options.threads) for name in names]
        return report("peak memory of training steps, weft against torch", rows, options.json)
    found = [time_row(name, options) for name in names]
    rows = [row for row, _ in found]
    if len(rows) > 1:
        rows.append(mean_row(rows, MEAN_LIMIT))
    fine = report("training steps, weft against torch", rows, options.json)
    wrong = [message for _, message in found if message]
    print("\n".join(wrong) or "losses of both agree in every row")
    return fine and not wrong


def parse(arguments: tuple[str, ...]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks models", description=__doc__)
    parser.add_argument("--rows", default=",".join(LIMITS), help="names with commas between")
    parser.add_argument("--json", metavar="FILE", help="also write the rows there")
    parser.add_argument("--seconds", type=float, default=8.0, help="for each row")
    parser.add_argument("--rounds", type=int, help="turns of each, in place of a time")
    parser.add_argument("--threads", type=int, default=2, help="of each library")
    parser.add_argument("--memory", action="store_true", help="peak memory in fresh processes")
    options = parser.parse_args(arguments)
    unknown = set(options.rows.split(",")) - set(LIMITS)
    if unknown:
        parser.error(f"no such rows: {', '.join(sorted(unknown))}; there are {', '.join(LIMITS)}")
    return options


def time_row(name: str, options: argparse.Namespace) -> tuple[Row, str]:
    """Both libraries on the same data from the same weights, in turns; and what is wrong."""
    import torch

    import weft

    torch.set_num_threads(options.threads)
    weft.set_num_threads(options.threads)
    mine, theirs = pair(name, weft, torch)
    wrong = disagreement(name, mine, theirs)
    row = compare_within(
        *(options.seconds, name, mine.step, theirs.step),
        limit=LIMITS[name],
        unit="ms",
        rounds=options.rounds,
    )
    return row, wrong


def pair(name: str, weft: Any, torch: Any) -> tuple[Workload, Workload]:
    """One workload in both libraries, with torch's starting weights in both."""
    torch.manual_seed(0)
    mine, theirs = WORKLOADS[name](weft), WORKLOADS[name](torch)
    for own, other in zip(mine.modules, theirs.modules, strict=True):
        # Copied, since weights that share memory would be trained twice.
        state = {k: weft.from_numpy(v.numpy().copy()) for k, v in other.state_dict().items()}
        own.load_state_dict(state)
    return mine, theirs


def disagreement(name: str, mine: Workload, theirs: Workload) -> str:
    """What is wrong with the losses of the first steps: wrong numbers are worth no timing."""
    scale = 0.0
    for step in range(1, UNSTABLE.get(name, STEPS) + 1):
        a, b = mine.step().item(), theirs.step().item()
        scale = scale or abs(b)
        if not abs(a - b) <= AGREEMENT * scale:
            return f"{name}: losses differ after {step} steps: {a} and {b}"
    return ""


def memory_row(name: str, rounds: int, threads: int) -> Row:
    """The smallest of some peaks of fresh processes that run a few steps."""
    program = "from benchmarks.models import print_peak; print_peak({!r}, {!r}, {})"
    programs = (program.format(name, library, threads) for library in ("weft", "torch"))
    return in_processes(name, *programs, MEMORY_LIMIT, "MiB", rounds)


def print_peak(name: str, library: str, threads: int) -> None:
    """Run a few steps in this process and print the most memory that it has held."""
    lib = importlib.import_module(library)
    lib.set_num_threads(threads)
    workload = WORKLOADS[name](lib)
    for _ in range(STEPS):
        workload.step().item()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
