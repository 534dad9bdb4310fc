"""The command ``weft``.

This package stands beside ``weft`` and imports it only where a command needs it, so that ``weft
--help`` and the like answer at once. ``COMMANDS`` names the module of each command, which has

* ``configure(parser)``: adds the arguments to a parser, and examples as its epilogue,
* ``run(options)``: does the work and gives the exit code.
"""

from __future__ import annotations

from weft_command.main import main
from weft_command.tree import COMMANDS

__all__ = ["COMMANDS", "main"]
