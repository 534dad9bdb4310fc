"""``weft graph``: graph files from the shell."""

from __future__ import annotations

import argparse

EXAMPLES = """\
examples:
  weft graph show step.weft                   the table of a saved graph
  weft graph show step.weft --as mermaid      for other programs: json, mermaid, dot
  weft graph diff a.weft b.weft               the differences; exit code 1 if there are any
  weft graph run step.weft --input x=x.npy    the outputs
  weft graph view step.weft --open            a page that draws it
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    from weft.graph import cli

    parser.description = "Look at graphs that were saved."
    parser.epilog = EXAMPLES
    cli.configure(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                lines = [x for x in EXAMPLES.splitlines() if f" graph {name} " in x]
                sub.epilog = "\n".join(["examples:", *lines])
                sub.formatter_class = argparse.RawDescriptionHelpFormatter


def run(options: argparse.Namespace) -> int:
    """Do what is asked of a graph."""
    return options.act(options)
