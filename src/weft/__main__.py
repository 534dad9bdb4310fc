"""``python -m weft script.py`` does what ``weft run script.py`` does."""

from __future__ import annotations

import sys

from weft.cli import main

COMMANDS = ("run", "graph", "doctor", "torch", "check", "watch", "--version", "--help", "-h")

if __name__ == "__main__":
    given = sys.argv[1:]
    if given and given[0] not in COMMANDS:
        given = ["run", *given]
    sys.exit(main(given))
