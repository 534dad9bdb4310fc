"""``weft demo``: a network that learns to read digits, and a report of it."""

from __future__ import annotations

import argparse
import pathlib

from weft_command import exits

EXAMPLES = """\
examples:
  weft demo                    train, and write a report to weft-demo/
  weft demo --open             the same, and open the report
  weft demo --live             follow the training in the browser, pause it, edit it
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Train a convolutional network on scikit-learn's handwritten digits; edit it in\n"
        "mid-training, explain a NaN, compare two runs; write a report that works offline."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "--output", "-o", type=pathlib.Path, default=pathlib.Path("weft-demo"), metavar="FOLDER",
        help="where the report goes (default: weft-demo)",
    )  # fmt: skip
    parser.add_argument("--epochs", type=_count, default=16, help="passes over the data")
    parser.add_argument("--seed", type=int, default=0, help="of all random numbers")
    parser.add_argument("--open", action="store_true", help="open the pages in the browser")
    parser.add_argument("--live", action="store_true", help="follow the training in the browser")
    parser.add_argument(
        "--wait", type=float, default=30.0, metavar="SECONDS",
        help="with --live: how long to wait for the page to be opened (default: 30)",
    )  # fmt: skip


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Run the demo."""
    import importlib.util

    if importlib.util.find_spec("sklearn") is None:
        raise exits.Refusal(
            "the demo needs scikit-learn, which has the digits: pip install 'weft[demo]'"
        )
    if options.output.exists() and not options.output.is_dir():
        raise NotADirectoryError(20, "Not a folder", str(options.output))
    options.output.mkdir(parents=True, exist_ok=True)  # a folder that can't be made is no surprise
    from weft.demo.program import Settings, run

    run(
        Settings(
            output=options.output, epochs=options.epochs, seed=options.seed, live=options.live,
            open=options.open or options.live, wait=options.wait,
        )
    )  # fmt: skip
    return exits.DONE
