"""Code that other threads compile: the same code, and no trace of them beside the time it takes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from weft.native import contract
from weft.native.codegen import ahead, cache, jit
from weft.native.codegen.ahead import CompileQueue
from weft.native.codegen.compiler import Ptr, T, i64
from weft.native.codegen.jit import kernel
from weft.native.memory import buffers

HERE = Path(__file__).resolve().parents[1]
native = pytest.mark.skipif(
    jit.INTERPRETED or jit.why_not() is not None, reason="needs compiled kernels"
)


def settled(queue: CompileQueue) -> None:
    """Wait until the threads of a queue have ended."""
    for _ in range(1000):
        if not queue.count:
            return
        time.sleep(0.01)
    raise AssertionError("threads that do not end")


# --- the queue ---------------------------------------------------------------------------


def test_another_thread_compiles_once() -> None:
    queue, ran = CompileQueue(1), []

    def work() -> bytes:
        ran.append(threading.current_thread())
        return b"code"

    queue.submit(b"k", work)
    settled(queue)
    queue.submit(b"k", work)  # is there already
    assert queue.take(b"k") == b"code"
    assert len(ran) == 1 and ran[0] is not threading.current_thread()
    assert queue.take(b"k") is None and queue.take(b"unknown") is None


def test_what_waits_is_for_the_one_who_needs_it() -> None:
    queue = CompileQueue(0)
    queue.submit(b"k", lambda: b"code")
    assert queue.take(b"k") is None  # to be compiled in place
    assert not queue.waiting


def test_who_waits_for_one_compiles_others() -> None:
    queue, begun, go, names = CompileQueue(1), threading.Event(), threading.Event(), []

    def slow() -> bytes:
        begun.set()
        assert go.wait(60)
        return b"slow"

    def other() -> bytes:
        names.append(threading.current_thread().name)
        go.set()
        return b"other"

    queue.submit(b"slow", slow)
    assert begun.wait(60)
    queue.submit(b"other", other)
    assert queue.take(b"slow") == b"slow"
    assert names == [threading.current_thread().name]
    assert queue.take(b"other") == b"other"


def test_what_fails_is_left_to_the_one_who_needs_it() -> None:
    queue = CompileQueue(1)

    def fails() -> bytes:
        raise RuntimeError("no code")

    queue.submit(b"bad", fails)
    queue.submit(b"good", lambda: b"good")
    settled(queue)
    assert queue.take(b"bad") is None and queue.take(b"good") == b"good"


def test_a_fork_waits_for_what_is_being_compiled() -> None:
    queue, begun, done = CompileQueue(1), threading.Event(), []

    def slow() -> bytes:
        begun.set()
        time.sleep(0.2)
        done.append("first")
        return b"slow"

    queue.submit(b"slow", slow)
    assert begun.wait(60)
    queue.submit(b"next", lambda: done.append("next") or b"next")  # type: ignore[func-returns-value]
    queue.pause()
    try:
        assert done == ["first"]
        time.sleep(0.1)
        assert done == ["first"]  # and nothing begins
    finally:
        queue.resume()
    settled(queue)
    assert done == ["first", "next"]


def test_a_child_has_no_threads() -> None:
    queue = CompileQueue(1)
    queue.submit(b"done", lambda: b"code")
    settled(queue)
    queue.most = 0
    queue.submit(b"waits", lambda: b"never")
    queue.most = 1
    queue.pause()
    queue.resume_in_child()
    queue.submit(b"more", lambda: b"never")
    assert queue.most == queue.count == 0
    assert queue.take(b"waits") is queue.take(b"more") is None
    assert queue.take(b"done") == b"code"


# --- kernels -----------------------------------------------------------------------------


@pytest.fixture
def cold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileQueue]:
    """An empty cache, and one thread that compiles."""
    folder, queue = tmp_path / "cache", CompileQueue(1)
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(cache, "place", lambda: cache.CacheFolder(folder))
    monkeypatch.setattr(ahead, "QUEUE", queue)
    monkeypatch.setattr(jit, "SYMBOLS", {})
    yield queue
    settled(queue)


def scaled() -> Any:
    """A kernel of a process's own, not compiled yet."""

    @kernel
    def scaled(x: Ptr[T], y: Ptr[T], by: T, lo: i64, hi: i64):
        for i in range(lo, hi):
            y[i] = x[i] * by

    return scaled


def run_scaled(made: Any) -> Any:
    def run(x: np.ndarray) -> np.ndarray:
        y = buffers.empty(x.shape, x.dtype)
        held.append(made.get("f32"))
        held[-1](x, y, 3.0, x.size, 1)
        return y

    held: list[Any] = []
    run.held = held  # type: ignore[attr-defined]
    return run


@native
def test_plans_name_kernels_that_are_being_compiled(cold: CompileQueue) -> None:
    gate = threading.Event()
    cold.submit(b"first", lambda: b"x" if gate.wait(60) else b"")  # keeps the thread busy
    run, x = run_scaled(scaled()), np.arange(5, dtype=np.float32)
    job = contract.plan(run, (x,))
    (planned,) = run.held
    assert isinstance(planned, jit.PlannedKernel) and len(cold.waiting) == 1
    gate.set()
    np.testing.assert_array_equal(job(x), 3 * x)
    # The kernel itself, and what a plan got in its place, are the same from now on.
    np.testing.assert_array_equal(run(x), 3 * x)
    assert not isinstance(run.held[-1], jit.PlannedKernel)
    y = np.zeros_like(x)
    planned(x, y, 2.0, 5, 1)
    np.testing.assert_array_equal(y, 2 * x)
    job = contract.plan(lambda a: (planned(a, a, 2.0, 5, 1), a)[1], (x,))
    assert [call.name for call in job.calls] == ["scaled"]


@native
def test_both_give_the_same_code(cold: CompileQueue) -> None:
    unit = scaled()._symbol(("f32",), {})[1].code
    assert unit.submit()
    settled(cold)
    code = cold.take(unit.key)
    assert code == unit._made(unit.text) == cache.read(unit.name, unit.key)
    assert not unit.submit()  # it is on disk


@native
def test_a_thread_that_fails_changes_nothing(
    cold: CompileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = jit._CodeEngine.compile

    def compile(self: Any, *given: Any) -> bytes:
        if threading.current_thread() is not threading.main_thread():
            raise MemoryError
        return right(self, *given)

    monkeypatch.setattr(jit._CodeEngine, "compile", compile)
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(contract.plan(run_scaled(scaled()), (x,))(x), 3 * x)


@native
def test_errors_are_raised_where_code_is_needed(
    cold: CompileQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile(self: Any, *given: Any) -> bytes:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(jit._CodeEngine, "compile", compile)
    x, run = np.arange(5, dtype=np.float32), run_scaled(scaled())
    job = contract.plan(run, (x,))
    with pytest.raises(RuntimeError, match="no such instruction"):
        job(x)
    with pytest.raises(RuntimeError, match="no such instruction"):
        run(x)


# --- whole programs ----------------------------------------------------------------------

STEP = """
import sys, threading, weft
from weft import nn

weft.manual_seed(0)
weft.set_num_threads(1)
model = nn.Sequential(
    nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(392, 10)
)
descent = weft.optim.Adam(model.parameters())
x, y = weft.randn(64, 3, 16, 16), weft.randint(0, 10, (64,))

@weft.compile
def step():
    descent.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    descent.step()
    return loss
"""
LOSSES = STEP + "print([step().item().hex() for _ in range(4)])\n"
QUIET = """
from weft.native.codegen import ahead
assert not ahead.QUEUE.done and threading.active_count() == 1
"""
WARM = LOSSES + QUIET + "assert 'llvmlite' not in sys.modules\n"
# A child is forked at every moment of the first steps, and runs steps of its own.
FORKS = """
import os, signal, time
steps = threading.Thread(target=lambda: [step() for _ in range(3)])
steps.start()
children = []
while steps.is_alive():
    pid = os.fork()
    if not pid:
        signal.alarm(120)
        own = nn.Linear(64, 64)
        for _ in range(2):
            own(weft.randn(200, 64)).tanh().sum().backward()
        os._exit(0)
    children.append(pid)
    time.sleep(0.25)
assert children and not any(os.waitpid(pid, 0)[1] for pid in children)
"""
# More is submitted than could be compiled before the program ends.
ENDS = """
import time
from weft.native.codegen import ahead, jit
weft.rand(20_000).exp()
step()
for k in range(500):
    text = "define void @f{}() {{ ret void }}\\n" * 1
    code = "".join(text.format(f"{k}_{i}") for i in range(200))
    jit.engine().ahead(f"many_{k}", code, [f"f{k}_0"])
assert len(ahead.QUEUE.waiting) > 300
print(time.time(), flush=True)
"""


def run(program: str, folder: Path, threads: int = 2) -> str:
    folder.mkdir(mode=0o700, exist_ok=True)
    places = os.pathsep.join((str(Path(weft.__file__).parents[1]), str(HERE)))
    given = {
        "WEFT_KERNELS": "native",
        "PYTHONPATH": places,
        "WEFT_CACHE": str(folder),
        "WEFT_COMPILE_THREADS": str(threads),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", program],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]
    return done.stdout


@native
def test_the_same_bits_and_the_same_files(tmp_path: Path) -> None:
    alone, helped = tmp_path / "alone", tmp_path / "helped"
    losses = run(LOSSES + QUIET, alone, 0)
    assert run(LOSSES, helped, 2) == losses
    files = {file.name: file.read_bytes() for file in alone.iterdir()}
    assert len(files) > 10
    for name, code in files.items():
        assert (helped / name).read_bytes() == code, name
    # With what was compiled there is nothing to do.
    assert run(WARM, helped, 2) == losses == run(WARM, alone, 2)


@native
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX's")
def test_forks_at_any_time(tmp_path: Path) -> None:
    run(STEP + FORKS, tmp_path / "cache")


@native
@pytest.mark.parametrize("end", ["", "sys.exit(0)", "import os; os._exit(0)"])
def test_a_program_that_ends_does_not_wait_for_what_nobody_needs(end: str, tmp_path: Path) -> None:
    said = run(STEP + ENDS + end, tmp_path / "cache")
    assert time.time() - float(said) < 20
