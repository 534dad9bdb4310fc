"""Which implementation runs depends on operands and settings, not on what ran before."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
SCRIPT = Path(__file__).parent.parent / "histories.py"


def run(history: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), history], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_bits_do_not_depend_on_history() -> None:
    first = run("forward")
    assert len(first) > 400
    for history in ("backward", "shuffled", "in place", "warm", "entry points"):
        other = run(history)
        differ = [name for name in first if first[name] != other[name]]
        assert not differ, f"{history}: {differ}"
