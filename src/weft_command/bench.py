"""``weft bench``: the project's benchmarks."""

from __future__ import annotations

import argparse
import importlib
import pathlib
import sys

from weft_command import exits

SUITES = ("models", "compile", "ops", "functions", "small_ops", "eager_overhead", "graph", "flat")

EXAMPLES = """\
examples:
  weft bench                          training steps of usual models
  weft bench models --rows mlp,cnn    some of them
  weft bench models --memory          their peak memory
  weft bench ops --help               what another suite takes

Numbers are those of weft over those of PyTorch, run in turns in one process: below 1, weft is
faster. Where PyTorch is not installed, the times of weft's training steps are printed alone.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.usage = "weft bench [suite] [options of the suite ...]"
    parser.description = "Measure speed and memory, against PyTorch where it is installed."
    parser.epilog = EXAMPLES
    parser.add_argument(
        "suite",
        nargs="?",
        choices=SUITES,
        default="models",
        metavar="suite",
        help=f"one of {', '.join(SUITES)} (default: models)",
    )
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of the suite")


def run(options: argparse.Namespace) -> int:
    """Run a suite."""
    place = _place()
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    if _pytorch() or "--help" in options.options:
        suite = importlib.import_module(f"benchmarks.{options.suite}")
        return exits.DONE if suite.run(*options.options) else exits.NO
    if options.suite != "models" or options.options:
        raise exits.Refusal(
            f"the suite {options.suite!r} compares with PyTorch, which is not installed: "
            "pip install torch==2.13.0"
        )
    return _alone()


def _place() -> pathlib.Path:
    """The folder that holds the benchmarks: beside an installed weft, or in a checkout."""
    import weft

    package = pathlib.Path(str(weft.__file__)).resolve().parent
    for folder in (package / "_bench", package.parent.parent):
        if (folder / "benchmarks" / "__main__.py").is_file():
            return folder
    raise exits.Refusal("the benchmarks are not part of this installation")


def _pytorch() -> bool:
    from weft.compat import distribution

    return distribution.active().kind == "pytorch"


def _alone() -> int:
    """The times of weft's own training steps."""
    import weft

    timing = importlib.import_module("benchmarks.timing")
    workloads = importlib.import_module("benchmarks.workloads").WORKLOADS
    print("training steps, weft alone (PyTorch is not installed, so there are no ratios)")
    for name, make in workloads.items():
        weft.manual_seed(0)
        step = make(weft).step
        first = timing.once(step, 3)
        repeats = max(int(2e5 / first), 1)
        best = min(timing.once(step, repeats) for _ in range(5))
        print(f"{name:<10} {best / 1e3:10.2f} ms", flush=True)
    return exits.DONE
