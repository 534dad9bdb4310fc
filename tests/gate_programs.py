"""Random programs that are watched for writes which nobody announced.

    python -m gate_programs 10000 [--seed S]

The programs are those of ``programs``. After every statement the bytes of all memory that the
program can reach are compared with what they were before it: memory may only have changed if
that was announced to ``core.gate`` in between. A program that shows such a write is cut down and
printed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import traceback
import warnings

import opdb
import programs
import weft
from programs import Session, Step
from watched_memory import Watch


def unannounced(steps: list[Step]) -> tuple[int, str] | None:
    """The first statement of a program that writes unannounced, and what it changes."""
    session = Session(weft)
    with Watch() as watch:
        for k, step in enumerate(steps):
            with contextlib.suppress(Exception):  # programs fail too, and write or do not
                exec(programs.compiled(step.code), session.scope)
            found = watch.look(session.scope, session.log)
            if found is not None:
                return k, found
    return None


def check(seed: int, theme: str | None = None) -> str | None:
    """The report on a seed's program, if it writes unannounced."""
    from program_steps import program

    with warnings.catch_warnings(), opdb.time_limit(120):
        warnings.simplefilter("ignore")
        try:
            steps, _, _ = program(seed, theme, False)
            found = unannounced(steps)
            if found is None:
                return None
            steps = programs.smallest(steps[: found[0] + 1], lambda fewer: bool(unannounced(fewer)))
        except opdb.Slow:
            return f"seed {seed}: took too long"
        except Exception:
            return f"seed {seed}: {traceback.format_exc()}"
    body = "\n".join(step.code for step in steps)
    return f"seed {seed}: {found[1]}\n{body}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=1000)
    parser.add_argument("--seed", type=int, default=700_000_000)
    parser.add_argument("--theme")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.seed, options.seed + options.count):
        report = check(seed, options.theme)
        if report is not None:
            wrong += 1
            print(report, flush=True)
    print(f"{options.count} programs, {wrong} write unannounced")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
