"""``python -m benchmarks <name> [options]``; a name alone with ``--help`` lists its options."""

from __future__ import annotations

import importlib
import sys

NAMES = ("compile", "eager_overhead", "flat", "functions", "graph", "models", "ops", "small_ops")


def main() -> int:
    chosen = sys.argv[1] if len(sys.argv) > 1 else ""
    if chosen not in NAMES:
        print(f"usage: python -m benchmarks {{{','.join(NAMES)}}} [options]")
        return 2
    module = importlib.import_module(f"benchmarks.{chosen}")
    return 0 if module.run(*sys.argv[2:]) else 1


if __name__ == "__main__":
    sys.exit(main())
