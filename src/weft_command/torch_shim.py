"""``weft torch``: let pip and plain ``import torch`` find weft."""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  weft torch install      from now on `import torch` means weft in this environment
  weft torch status       which torch is there (exit code 0 if it is weft)
  weft torch remove       take it out again
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Put a distribution named torch into this environment, which satisfies libraries that "
        "depend\non PyTorch and hands `import torch` over to weft; take it out again; or say which "
        "torch is there."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("action", choices=("install", "remove", "status"))


def run(options: argparse.Namespace) -> int:
    """Put it in, take it out, or say what is there."""
    from weft.compat.distribution import main

    return main(options.action)
