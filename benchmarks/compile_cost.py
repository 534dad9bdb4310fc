"""What compiling costs: the time until steps run at full speed, and the memory that they take."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks.timing import Row, in_processes

MEMORY_LIMITS = {"cnn": 0.7, "gpt": 0.7}  # of what eager torch takes
START_LIMITS = {"empty": 1 / 20, "warm": 1 / 80}  # of the time that torch.compile takes, empty
STEPS = 5  # after which both are at full speed
ROUNDS = 3


def memory_rows(names: list[str], threads: int) -> list[Row]:
    """The smallest of some peaks of fresh processes."""
    program = "from benchmarks.compile_cost import print_peak; print_peak({!r}, {!r}, {})"
    return [
        in_processes(
            *(name, program.format(name, "weft", threads), program.format(name, "torch", threads)),
            *(MEMORY_LIMITS[name], "MiB", ROUNDS),
        )
        for name in names
    ]


def print_peak(name: str, library: str, threads: int) -> None:
    """Run a few steps, compiled in weft, and print the most memory that the process has held."""
    lib = importlib.import_module(library)
    lib.set_num_threads(threads)
    step = _step(name, lib)
    if library == "weft":
        step = lib.compile(step)
    for _ in range(STEPS):
        step().item()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def start_rows(names: list[str], threads: int) -> bool:
    """Print the times until full speed; True if every limit holds."""
    fine = True
    print(
        f"{'case':<18}{'weft empty':>11}{'warm':>8}{'torch empty':>13}{'warm':>8}   of torch, empty"
    )
    for name in names:
        if name == "generation":
            continue
        mine, theirs = (_starts(name, library, threads) for library in ("weft", "torch"))
        shares = [mine[k] / theirs[0] for k in (0, 1)]
        fine = fine and shares[0] <= START_LIMITS["empty"] and shares[1] <= START_LIMITS["warm"]
        print(f"{name:<18}{mine[0]:>9.2f} s{mine[1]:>6.2f} s{theirs[0]:>11.2f} s{theirs[1]:>6.2f} s"
              f"   {shares[0]:.3f} and {shares[1]:.3f}")  # fmt: skip
    return fine


def _starts(name: str, library: str, threads: int) -> list[float]:
    """The seconds to full speed of a process with empty caches, and of one after it."""
    program = "from benchmarks.compile_cost import print_start; print_start({!r}, {!r}, {})"
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            **os.environ,
            "WEFT_CACHE": os.path.join(folder, "weft"),
            "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor"),
        }
        os.mkdir(os.path.join(folder, "weft"), 0o700)
        found = []
        for _ in range(2):
            command = [sys.executable, "-c", program.format(name, library, threads)]
            done = subprocess.run(
                command, capture_output=True, text=True, check=True, env=environment
            )
            found.append(json.loads(done.stdout.strip().splitlines()[-1]))
        return found


def print_start(name: str, library: str, threads: int) -> None:
    """Print how much longer the first steps take than as many later ones."""
    lib = importlib.import_module(library)
    lib.set_num_threads(threads)
    step = lib.compile(_step(name, lib))
    times = []
    for _ in range(3 * STEPS):
        start = time.perf_counter()
        step().item()
        times.append(time.perf_counter() - start)
    print(json.dumps(sum(times[:STEPS]) - STEPS * min(times[STEPS:])))


def _step(name: str, lib: Any) -> Any:
    from benchmarks.compile import steps

    return steps(name, lib).step(lambda function: function)
