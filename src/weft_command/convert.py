"""``weft convert``: weights between ``.pt`` and safetensors."""

from __future__ import annotations

import argparse

from weft_command import exits

EXAMPLES = """\
examples:
  weft convert model.pt model.safetensors
  weft convert model.safetensors model.pt
  weft convert checkpoint.pt model.safetensors --key state_dict     one part of a checkpoint

Tensors that share all of their memory (tied weights) are written once, with a note in the file's
metadata by which the way back ties them again. What the other format can't hold is refused.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Convert weights between PyTorch's .pt files and safetensors, both ways. The new file is "
        "there\nwhole or not at all. No code in the files is run."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("source", help="the file to read; its kind is told by its content")
    parser.add_argument("target", help="the file to write: .safetensors, .pt, .pth or .bin")
    parser.add_argument("--key", metavar="NAME", help="convert this part of a checkpoint alone")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument(
        "--copy-shared", action="store_true",
        help="give tensors that share a part of their memory copies of their own",
    )  # fmt: skip
    parser.add_argument(
        "--drop-metadata", action="store_true",
        help="leave out metadata that a .pt file has no place for",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Convert."""
    from weft.io.converting import convert

    told = convert(
        options.source, options.target, key=options.key, force=options.force,
        copy_shared=options.copy_shared, drop_metadata=options.drop_metadata,
    )  # fmt: skip
    print(told)
    return exits.DONE
