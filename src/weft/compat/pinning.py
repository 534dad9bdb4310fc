"""Keeps pip from replacing weft's torch by another version of PyTorch.

Some libraries ask for the one version of torch that they were compiled against; the newest
torchvision does. pip would take weft's torch out for it and pull PyTorch. In an environment of its
own it is told to keep the version, and then chooses the torchvision that goes with it.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from pathlib import Path

from weft.io.atomic import replacing

_BEGIN, _END = "# put here by weft torch install", "# weft torch remove takes it out"


def settings() -> Path:
    """pip's settings for this environment alone."""
    return Path(sys.prefix) / ("pip.ini" if os.name == "nt" else "pip.conf")


def constraints() -> Path:
    """The file that holds the version that pip is to keep.

    It is not part of the distribution: ``pip uninstall torch`` would take it out with that, and
    then refuse to work for want of it.
    """
    return Path(sys.prefix) / "weft-torch.txt"


def pin(version: str) -> str:
    """Have pip keep torch at a version; says so, or nothing where that can't be done."""
    if sys.prefix == sys.base_prefix:
        return ""  # pip's settings there are those of all environments
    try:
        text = settings().read_text() if settings().exists() else ""
        known = configparser.RawConfigParser(strict=False)
        known.read_string(text)
        taken = any(known.has_option(s, "constraint") for s in ("global", "install"))
        if taken and _BEGIN not in text:
            return f"; {settings()} has constraints of its own: add torch=={version} to them"
        _write(constraints(), f"torch=={version}\n")
        _write(settings(), _with_line(_without(text)))
    except (OSError, UnicodeDecodeError, configparser.Error):
        return ""
    return f"; pip keeps it at {version} here ({settings()})"


def unpin() -> None:
    """Take out what ``pin`` put in."""
    try:
        text = settings().read_text()
        if _BEGIN in text:
            left = _without(text)
            if left.strip():
                _write(settings(), left)
            else:
                settings().unlink()
        constraints().unlink(missing_ok=True)
    except (OSError, UnicodeDecodeError):
        return


def _with_line(text: str) -> str:
    # As a URL, since pip splits the value at blanks.
    line = f"{_BEGIN}\nconstraint = {constraints().as_uri()}\n{_END}\n"
    header = re.search(r"^\[install\][^\n]*\n", text, re.MULTILINE)
    if header is not None:
        return text[: header.end()] + line + text[header.end() :]
    own = line.replace("constraint", "[install]\nconstraint", 1)
    return text + ("" if not text or text.endswith("\n") else "\n") + own


def _without(text: str) -> str:
    return re.sub(rf"{_BEGIN}\n.*?{_END}\n", "", text, flags=re.DOTALL)


def _write(path: Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())
