"""The tool for mutation testing finds faults to put in, and tells which of them tests notice."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "tools" / "mutate.py"


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("mutate", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutate"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


SOURCE = b'''"""Text."""


def clamp(value: int = 3, *, low=0) -> int:
    """Text."""
    if value < low and not value:
        raise ValueError(f"{value + 1} is too small", "x")
    state.seen = value
    return value + 1 if value in (1, 2) else -low
'''


def test_the_faults_that_are_put_in() -> None:
    mutate = tool()
    found = mutate.mutants_of(SOURCE)
    lines = {m.applied(SOURCE).decode().splitlines()[m.line - 1].strip() for m in found}
    expected = {
        "if (value <= low) and not value:", "if (value >= low) and not value:",
        "if (value < low or not value):", "if (value < low):", "if (not value):",
        "if (not (value < low and (not value))):", "if value < low and (value):",
        "def clamp(value: int = (4), *, low=0) -> int:",
        "def clamp(value: int = (2), *, low=0) -> int:",
        "def clamp(value: int = 3, *, low=(1)) -> int:",
        "def clamp(value: int = 3, *, low=(-1)) -> int:",
        "pass", "return None", "return (value - 1) if value in (1, 2) else -low",
        "return value + 1 if (value not in (1, 2)) else -low",
        "return value + 1 if value in ((1,)) else -low",
        "return value + 1 if value in ((2,)) else -low",
        "return value + 1 if value in (1, 2) else (low)",
    }  # fmt: skip
    assert expected <= lines
    assert not any("too small" in line for line in lines)  # the wording of errors stays
    assert [m.number for m in found] == [m.number for m in mutate.mutants_of(SOURCE)]


CODE = """
def sign(value):
    if value < 0:
        return -1
    return 1
"""
TESTS = """
from small.code import sign
assert sign(-5) == -1 and sign(5) == 1
"""


ZERO = """
from small.code import sign
assert sign(0) == 1
"""
FORKED = """
from small.code import sign

def test_sign():
    assert sign(-5) == -1 and sign(5) == 1
"""


def run_tool(tmp_path: Path, tool: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a tool on a small package."""
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "code.py").write_text(CODE)
    for name, text in (("check.py", TESTS), ("zero.py", ZERO), ("test_code.py", FORKED)):
        (tmp_path / name).write_text(text)
    paths = os.pathsep.join((str(tmp_path), str(tool.parent)))
    done = subprocess.run(
        [sys.executable, str(tool), str(package / "code.py"), *words],
        env=os.environ | {"PYTHONSAFEPATH": "1", "PYTHONPATH": paths},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (package / "code.py").read_text() == CODE
    return done


def test_killed_and_surviving_mutants(tmp_path: Path) -> None:
    run = run_tool(tmp_path, PATH, "-j", "2", "--minimum", "100", "--", str(tmp_path / "check.py"))
    assert run.returncode == 1 and not run.stderr
    # Nothing tells on which side zero is, or how far the limit is from it.
    assert "(value <= 0)" in run.stdout and "value < (1)" in run.stdout
    assert "(value >= 0)" not in run.stdout and "return None" not in run.stdout
    assert "3 survived" in run.stdout


def test_what_survives_one_stage_goes_on_to_the_next(tmp_path: Path) -> None:
    run = run_tool(
        tmp_path, PATH, "--", str(tmp_path / "check.py"), "--", str(tmp_path / "zero.py")
    )
    assert run.returncode == 0 and not run.stderr
    assert "value < (-1)" in run.stdout and "1 survived" in run.stdout
    assert run.stdout.splitlines()[-1].endswith(" 2")  # the second stage killed those two


def test_mutants_in_forks(tmp_path: Path) -> None:
    run = run_tool(tmp_path, PATH.with_name("mutate_forks.py"), "--", "test_code.py")
    fates = run.stdout.splitlines()
    assert sum(" killed by test_code.py::test_sign" in line for line in fates) == 8, run.stderr
    assert sum(" survived 1 of 1 tests" in line for line in fates) == 3
    assert any("value < (1)" in line for line in fates)
