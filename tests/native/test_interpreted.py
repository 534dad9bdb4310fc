"""Kernels as the Python functions they are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))
TESTS = Path(__file__).parent.parent


def run(*command: str) -> str:
    found = dict(os.environ, WEFT_KERNELS="python")
    found["PYTHONPATH"] = os.pathsep.join([str(TESTS), found.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, *command], env=found, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_kernel_means_the_same_in_python() -> None:
    last = run("-m", "interpreted_kernels").strip().splitlines()[-1]
    found = re.fullmatch(r"(\d+) ops and types, (\d+) samples, (\d+) wrong", last)
    assert found is not None, last
    ops, samples, wrong = map(int, found.groups())
    assert ops > 200 and samples > 600 and wrong == 0


STEPPED = """
import linecache
import sys

import numpy as np

import weft
from weft.native.memory import buffers

buffers.ANY_SIZE.append(True)
seen = []


def trace(frame, event, argument):
    code, line = frame.f_code, frame.f_lineno
    if code.co_name in ("softmax_rows", "exp_flush", "_greatest"):
        text = linecache.getline(code.co_filename, line).strip()
        seen.append((code.co_name, text, frame.f_locals.get("row")))
        assert event != "call" or text.startswith(f"def {code.co_name}("), text
    return trace


x = weft.randn(3, 40)
sys.settrace(trace)
y = x.softmax(1)
x.topk(5)
sys.settrace(None)
assert {name for name, _, _ in seen} == {"softmax_rows", "exp_flush", "_greatest"}, seen[:3]
# The lines of generated kernels, of what they call, and of kernels in a file.
lines = {(name, text) for name, text, _ in seen}
assert ("softmax_rows", "for row in range(lo, hi):") in lines
assert ("_greatest", "p = x + row * n") in lines
for kernel in ("softmax_rows", "_greatest"):
    assert {row for name, _, row in seen if name == kernel} >= {0, 1, 2}
np.testing.assert_allclose(y.sum(1), 1, rtol=1e-6)
"""


def test_a_debugger_sees_lines_and_variables(tmp_path: Path) -> None:
    program = tmp_path / "stepped.py"
    program.write_text(STEPPED)
    run(str(program))


def test_training_in_python_agrees(tmp_path: Path) -> None:
    program = tmp_path / "training.py"
    program.write_text(
        "import weft as torch\n"
        "torch.manual_seed(0)\n"
        "nn = torch.nn\n"
        "net = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 3))\n"
        "x, y = torch.randn(12, 8), torch.randint(3, (12,))\n"
        "optimizer = torch.optim.Adam(net.parameters(), 1e-2)\n"
        "for _ in range(3):\n"
        "    optimizer.zero_grad()\n"
        "    loss = torch.nn.functional.cross_entropy(net(x), y)\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "print(loss.item())\n"
    )
    plain = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, check=True
    )
    assert float(run(str(program))) == pytest.approx(float(plain.stdout), rel=1e-5)
