"""``weft new``: a small project that trains and has a test."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from importlib import resources

from weft_command import exits

EXAMPLES = """\
examples:
  weft new spirals               make a folder spirals with a model, a training and a test
  cd spirals && python train.py && python -m pytest
"""
FILES = ("README.md", "pyproject.toml", "gitignore", "data.py", "model.py", "train.py",
         "tests/test_training.py")  # fmt: skip
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.description = (
        "Make a folder with a small project: data, a model, a training with checkpoints and "
        "curves,\nand tests. It is meant to be changed."
    )
    parser.epilog = EXAMPLES
    parser.add_argument("name", help="the name of the project, and of its folder")


def run(options: argparse.Namespace) -> int:
    """Write the files, all of them or none."""
    folder, name = os.path.split(options.name.rstrip("/\\"))
    if not _NAME.fullmatch(name):
        raise exits.Refusal(
            f"{name!r} can't be a project's name: letters, digits, - and _, beginning with a letter"
        )
    target = os.path.join(folder, name)
    if os.path.lexists(target):
        raise exits.Refusal(f"{target} is there already; choose another name, or remove it first")
    made = tempfile.mkdtemp(prefix=f".{name}-", dir=folder or ".")
    try:
        os.chmod(made, 0o755)
        for path in FILES:
            _write(path, made, name)
        os.rename(made, target)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    print(f"{target}: a project that trains\n  cd {target}")
    print("  python train.py          # trains; Ctrl-C stops it, --resume continues")
    print("  weft watch runs --open   # its curves\n  python -m pytest         # its tests")
    return exits.DONE


def _write(path: str, folder: str, name: str) -> None:
    source = resources.files("weft_command").joinpath("skeleton")
    for part in path.split("/"):
        source = source.joinpath(part)
    words = source.read_text(encoding="utf-8").replace("PROJECT_NAME", name)
    target = os.path.join(folder, ".gitignore" if path == "gitignore" else path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(words)
