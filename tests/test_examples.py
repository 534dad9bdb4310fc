"""The examples run unchanged on weft, and print the losses that they print on PyTorch."""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import pytest

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "examples"
NAMES = sorted(p.stem for p in FOLDER.glob("*.py") if "import torch" in p.read_text().splitlines())
STEPS = 6
LINE = re.compile(r"^step (\d+) loss (\S+)$", re.M)

# Importing torch takes longer than most examples do, so one process runs all of them.
ALL_ON_TORCH = """
import contextlib, io, json, runpy, sys
printed = {}
_, steps, *paths = sys.argv
for path in paths:
    sys.argv = [path, "--steps", steps]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(path, run_name="__main__")
    printed[path] = out.getvalue()
print(json.dumps(printed))
"""


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=FOLDER,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def losses(printed: str) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in LINE.findall(printed)}


@functools.cache
def on_torch() -> dict[str, str]:
    return json.loads(run("-c", ALL_ON_TORCH, str(STEPS), *(f"{name}.py" for name in NAMES)))


def test_there_are_examples() -> None:
    assert len(NAMES) >= 16


@pytest.mark.parametrize("name", NAMES)
def test_an_example_prints_the_same_losses_on_both(name: str) -> None:
    ours = losses(run("-m", "weft", "run", f"{name}.py", "--steps", str(STEPS)))
    assert list(ours) == list(range(1, STEPS + 1))
    assert all(map(math.isfinite, ours.values()))
    if importlib.util.find_spec("torch") is None:
        pytest.skip("ran on weft; torch is not installed, so there is nothing to compare with")
    expected = losses(on_torch()[f"{name}.py"])
    assert ours == pytest.approx(expected, rel=1e-4), "losses differ in the fourth digit"
