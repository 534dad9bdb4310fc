"""Libraries around PyTorch on weft: small programs whose numbers are compared with torch's.

``python -m libraries`` runs them; see ``__main__``.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NUMBERS = HERE / "torch_numbers.json"
TOLERANCE = 1e-4
_SECONDS = 600
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|inf|nan)\Z")
# Numbers below this share of a line's largest are rounding.
_SMALL = 1e-3

# Programs that do not give PyTorch's numbers, and why.
KNOWN: dict[str, str] = {}


@dataclass(frozen=True)
class Program:
    """A small program, and the libraries that it uses."""

    path: Path
    needs: tuple[str, ...]
    about: str

    @property
    def name(self) -> str:
        return self.path.stem

    def versions(self) -> dict[str, str]:
        """The libraries with their versions here; raises PackageNotFoundError."""
        return {name: importlib.metadata.version(name) for name in self.needs}


def programs() -> list[Program]:
    """All programs; the first line of each says which libraries it uses and what it does."""
    found = []
    for path in sorted((HERE / "programs").glob("*.py")):
        title = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n")[0]
        needs, _, about = title.partition(": ")
        found.append(Program(path, tuple(needs.split(", ")), about))
    return found


def run(program: Program, *command: str) -> tuple[int, str, str]:
    """Run a program by a command, or this Python; exit code, output and errors."""
    quiet = {
        "HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "TOKENIZERS_PARALLELISM": "false",
        "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        try:
            done = subprocess.run(
                [*(command or (sys.executable,)), str(program.path)], capture_output=True,
                text=True, timeout=_SECONDS, env={**os.environ, **quiet}, cwd=folder,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return -1, "", f"took more than {_SECONDS} s"
    return done.returncode, done.stdout, done.stderr


def stored() -> dict[str, dict]:
    """What torch printed, by program, with the versions that made it."""
    return json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}


def difference(ours: str, theirs: str) -> tuple[float, str]:
    """The largest relative difference between two outputs, and the first line that differs."""
    worst, first = 0.0, ""
    a, b = ours.splitlines(), theirs.splitlines()
    if len(a) != len(b):
        return math.inf, f"{len(a)} lines instead of {len(b)}"
    for mine, other in zip(a, b, strict=True):
        found = _between_lines(mine.split(), other.split())
        worst = max(worst, found)
        if found > TOLERANCE and not first:
            first = f"{mine[:80]} instead of {other[:80]}"
    return worst, first


def _between_lines(mine: list[str], other: list[str]) -> float:
    if len(mine) != len(other):
        return math.inf
    sizes = [abs(float(w)) for w in other if _NUMBER.match(w) and math.isfinite(float(w))]
    least = _SMALL * max(sizes, default=0.0)
    worst = 0.0
    for x, y in zip(mine, other, strict=True):
        if x == y:
            continue
        if not (_NUMBER.match(x) and _NUMBER.match(y)):
            return math.inf
        p, q = float(x), float(y)
        if not (math.isfinite(p) and math.isfinite(q)):
            return math.inf
        worst = max(worst, abs(p - q) / max(abs(q), least))
    return worst
