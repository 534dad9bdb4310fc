"""The first use of native code is safe from many threads at once, and across a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import weft

HERE = Path(__file__).resolve().parents[1]

EXP = """
import threading, weft
threads = [threading.Thread(target=lambda: weft.randn(5000).exp()) for _ in range(8)]
for t in threads: t.start()
for t in threads: t.join()
"""

# The fork comes while the other thread compiles: with an empty cache that takes a while.
FORK = """
import os, signal, threading, time, weft
busy = threading.Thread(target=lambda: weft.rand(5000).exp().log().tanh().softmax(0))
busy.start()
time.sleep({delay})
pid = os.fork()
if not pid:
    signal.alarm(60)
    weft.randn(5000).exp()
    weft.rand(64, 128) @ weft.rand(128, 64)
    os._exit(0)
busy.join()
assert os.waitpid(pid, 0)[1] == 0
"""


# A child that is forked while another thread draws from the generator that it draws from, too.
DRAWING = """
import os, signal, threading, weft
own, stop = weft.Generator(), False

def draw():
    while not stop:
        weft.rand(700)
        weft.rand(700, generator=own)

busy = threading.Thread(target=draw)
busy.start()
try:
    for _ in range(100):
        pid = os.fork()
        if not pid:
            signal.alarm(20)
            weft.rand(700)
            weft.rand(700, generator=own)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
finally:
    stop = True
    busy.join()
"""


def run(*arguments: str, cache: Path | None = None) -> None:
    places = os.pathsep.join((str(Path(weft.__file__).parents[1]), str(HERE)))
    given = {"WEFT_KERNELS": "native", "PYTHONPATH": places}
    if cache is not None:
        given["WEFT_CACHE"] = str(cache)
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_fork_while_another_thread_draws(tmp_path: Path) -> None:
    run("-c", DRAWING, cache=tmp_path)


def test_one_op_in_eight_threads(tmp_path: Path) -> None:
    for _ in range(3):  # the first finds an empty cache
        run("-c", EXP, cache=tmp_path)


@pytest.mark.parametrize("kind", ["mixed", "same", "fork"])
def test_many_ops(kind: str) -> None:
    run("-m", "first_uses", kind)


@pytest.mark.parametrize("delay", [0.05, 0.2])
def test_fork_while_another_thread_compiles(delay: float, tmp_path: Path) -> None:
    run("-c", FORK.format(delay=delay), cache=tmp_path)


@pytest.mark.deep
@pytest.mark.parametrize("kind", ["mixed", "same", "fork"])
@pytest.mark.parametrize("cold", [False, True])
def test_many_ops_many_times(kind: str, cold: bool, tmp_path: Path) -> None:
    for k in range(50):
        run("-m", "first_uses", kind, cache=tmp_path / str(k if cold else 0))
