"""``weft check``: which names of torch a package uses that weft lacks."""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  weft check transformers            an installed package
  weft check my_project/             a folder; a file works too
  weft check --json train.py         as JSON
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Read the source of an installed package, a folder or a file, without running it, and list "
        "the\nnames of torch in it that weft lacks or that raise when they are called. The exit "
        "code is 1 if\na name is missing that the code does not ask for first."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("target", help="the name of an installed package, a folder, or a file")


def run(options: argparse.Namespace) -> int:
    """Look through the source."""
    from weft.compat.check import main

    return main(options.target, as_json=options.json)
