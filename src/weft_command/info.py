"""``weft info``: what is in a file, without running anything."""

from __future__ import annotations

import argparse
import json

from weft_command import exits

EXAMPLES = """\
examples:
  weft info model.safetensors        tensors with their types and shapes
  weft info checkpoint.pt            a checkpoint of PyTorch or weft, read without running its code
  weft info step.weft                a graph that was saved
  weft info model.onnx               an ONNX model
  weft info --json model.onnx        the same for other programs
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Say what is in a checkpoint (.pt, .pth, .bin), a safetensors file, a graph file or an "
        "ONNX\nmodel. The kind is told by the content. Nothing in the file is run."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("file")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--all", action="store_true", help="list every tensor, and not the first 40 alone"
    )


def run(options: argparse.Namespace) -> int:
    """Print what was found."""
    from weft.io.describing import describe

    found = describe(options.file)
    if options.json:
        print(json.dumps(found.as_json(), indent=2))
    else:
        for line in found.lines(None if options.all else 40):
            print(line)
    return exits.DONE
