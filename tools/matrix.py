"""Run tests over processors, libraries and threads that this machine can stand in for.

    python tools/matrix.py [--list] [tests ...]

Each cell is a pytest run of its own: every instruction set that the processor has, with oneDNN and
without, in one thread and in several. Without arguments the whole suite runs in each.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time

LEVELS = ("native", "avx2", "sse4", "baseline")
ONEDNN = ("on", "off")
THREADS = ("1", "many")


def present() -> tuple[str, ...]:
    """The levels that differ here: one that the processor does not reach is the one below."""
    from weft import _cpu
    from weft.native.codegen import jit

    engine = jit.engine()
    host = engine.cpu, engine.features
    found, seen = [], set()
    for level in LEVELS:
        told = _cpu.keep_to("" if level == "native" else level, *host)
        if told not in seen:
            seen.add(told)
            found.append(level)
    return tuple(found)


def environment(level: str, onednn: str, threads: str) -> dict[str, str]:
    """What a cell's processes find set."""
    given = {k: v for k, v in os.environ.items() if k not in ("WEFT_CPU", "OMP_NUM_THREADS")}
    given["WEFT_CPU"] = level
    if onednn == "off":
        given["WEFT_ONEDNN"] = "off"
    given["OMP_NUM_THREADS"] = "1" if threads == "1" else str(max(2, os.cpu_count() or 2))
    return given


def main(arguments: list[str]) -> int:
    cells = list(itertools.product(present(), ONEDNN, THREADS))
    if "--list" in arguments:
        for cell in cells:
            print(*cell)
        return 0
    failed = []
    for level, onednn, threads in cells:
        name = f"{level}, oneDNN {onednn}, threads {threads}"
        print(f"--- {name}", flush=True)
        started = time.monotonic()
        command = [sys.executable, "-m", "pytest", "-q", *arguments]
        code = subprocess.run(command, env=environment(level, onednn, threads)).returncode
        print(f"--- {name}: {'fine' if not code else f'exit code {code}'}, "
              f"{time.monotonic() - started:.0f} s", flush=True)  # fmt: skip
        if code:
            failed.append(name)
    print(f"{len(cells) - len(failed)} of {len(cells)} fine" + "".join(f"\n  {f}" for f in failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
