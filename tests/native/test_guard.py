"""Arrays beside unreadable pages: the helper itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import guard
import guarded
import weft

LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "stepped": lambda x: x[:, ::2],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "empty": lambda x: x[:0],
    "single": lambda x: x[0, 0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bool", "complex128", "float16"])
def test_copies_keep_values_and_strides(layout: str, dtype: str) -> None:
    x = np.asarray(LAYOUTS[layout]((np.arange(35).reshape(5, 7) % 3).astype(dtype)))
    for moved in (guard.before(x), guard.after(x)):
        assert moved.dtype == x.dtype
        assert moved.strides == x.strides
        assert np.array_equal(moved, x)


def test_one_byte_further_is_the_end() -> None:
    """Reading the neighbour of either kind of array ends the process by SIGSEGV (or SIGBUS)."""
    for text in (
        "ctypes.string_at(x.ctypes.data + x.nbytes, 1)",
        "ctypes.string_at(y.ctypes.data - 1, 1)",
    ):
        code = (
            "import ctypes, numpy as np, guard\n"
            "x, y = guard.before(np.arange(3.0)), guard.after(np.arange(3.0))\n"
            "ctypes.string_at(x.ctypes.data, x.nbytes), ctypes.string_at(y.ctypes.data, y.nbytes)\n"
            "print('so far', flush=True)\n" + text
        )
        here = str(Path(__file__).resolve().parents[1])
        run = subprocess.run([sys.executable, "-c", code], cwd=here, capture_output=True, text=True)
        assert run.stdout == "so far\n"
        assert run.returncode < 0


def test_native_kernels_stay_inside_of_their_arrays() -> None:
    """A sample; ``python -m guarded N`` goes on for as long as one likes."""
    source = os.pathsep.join(
        (str(Path(weft.__file__).parents[1]), str(Path(__file__).resolve().parents[1]))
    )
    env = {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, "-m", "guarded", "60"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
@pytest.mark.parametrize("block", range(20))
def test_ten_thousand_guarded_calls(block: int) -> None:
    assert guarded.run(500, 500 * block) == []
