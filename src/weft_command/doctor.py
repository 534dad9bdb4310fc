"""``weft doctor``: what works on this machine, what is missing, and what that costs."""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  weft doctor                 everything, with a speed check of about two seconds
  weft doctor --no-speed      without it

The exit code is 1 if native kernels do not work here; weft then runs on NumPy.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Say which platform and processor weft sees, which native parts work, what is missing and "
        "what\nthat costs, and how fast the machine is."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("--no-speed", action="store_true", help="leave the speed check out")


def run(options: argparse.Namespace) -> int:
    """Print the report."""
    from weft.doctor import main

    return main(speed=not options.no_speed)
