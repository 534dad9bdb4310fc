"""The pool behind large arrays: right values, true statistics, bounds, threads, fork."""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
from weft.native.memory.pool import HUGE, MAPPED, SMALL, pool

pytestmark = pytest.mark.skipif(pool() is None, reason="no pool on this platform")


@pytest.fixture(autouse=True)
def entered() -> object:
    found = pool()
    assert found is not None
    found.enter()
    yield
    found.set_limit(1 << 33)


def used() -> int:
    gc.collect()
    return weft.memory.stats()["used_bytes"]


def test_blocks_are_counted_and_given_back() -> None:
    before = used()
    x = np.empty(1_000_000, np.float32)
    # Sizes are rounded up by an eighth at most, and a kept block may be larger by half.
    assert 4_000_000 <= used() - before <= 4_000_000 * 9 / 8 * 3 / 2
    del x
    assert used() == before


def test_a_freed_block_is_used_again() -> None:
    hits = weft.memory.stats()["hits"]
    where = np.empty(300_000).ctypes.data
    assert np.empty(300_000).ctypes.data == where
    assert weft.memory.stats()["hits"] > hits


def flags_of(array: np.ndarray) -> set[str]:
    """What the system knows of the mapping that an array is in."""
    inside = False
    with open("/proc/self/smaps") as file:
        for line in file:
            head = re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line)
            if head:
                inside = int(head[1], 16) <= array.ctypes.data < int(head[2], 16)
            elif inside and line.startswith("VmFlags:"):
                return set(line.split()[1:])
    raise AssertionError("an array outside of all mappings")


@pytest.mark.skipif(
    not os.path.exists("/sys/kernel/mm/transparent_hugepage/enabled"), reason="no huge pages"
)
def test_large_blocks_ask_for_huge_pages() -> None:
    weft.memory.empty_cache()
    large, small = np.empty(2 * HUGE, np.uint8), np.empty(2 * MAPPED, np.uint8)
    assert "hg" in flags_of(large)
    assert "hg" not in flags_of(small)


def test_zeros_are_zeros() -> None:
    for _ in range(5):
        x = np.zeros(100_000)
        assert not x.any()
        x[:] = np.nan


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 40_000, 1 << 20])
def test_any_size_and_any_growth(size: int) -> None:
    before = used()
    x = np.arange(size, dtype=np.uint8)
    y = x.copy()
    for larger in (size + 1, size * 2 + 10, 5, size + 70_000):
        keep = min(len(x), larger)
        x.resize(larger, refcheck=False)
        y = np.concatenate([y, np.zeros(larger, np.uint8)])[:larger]
        assert (x[:keep] == y[:keep]).all()
        y = x.copy()
    del x, y
    assert used() == before


def test_alignment() -> None:
    for n in (5000, 10_001, 123_456):
        x = np.empty(n // 2)
        x.resize(n, refcheck=False)  # the system may move it to any address
        del x
    assert all(np.empty(n).ctypes.data % 64 == 0 for n in (5000, 10_001, 123_456))


def test_the_cache_can_be_emptied_and_bounded() -> None:
    blocks = [np.ones(200_000) for _ in range(8)]
    del blocks
    assert weft.memory.stats()["kept_bytes"] >= 8 * 1_600_000
    assert weft.memory.empty_cache() >= 8 * 1_600_000
    assert weft.memory.stats()["kept_bytes"] == 0
    weft.memory.set_limit(4_000_000)
    blocks = [np.ones(200_000) for _ in range(8)]
    del blocks
    assert weft.memory.stats()["kept_bytes"] <= 4_000_000
    with pytest.raises(ValueError, match="number of bytes"):
        weft.memory.set_limit(-1)


def test_varying_sizes_do_not_pile_up() -> None:
    rng = np.random.default_rng(0)
    weft.memory.empty_cache()
    live: list[np.ndarray] = []
    for _ in range(3000):
        live.append(np.empty(int(2 ** rng.uniform(12, 21)), np.uint8))
        if len(live) > 20:
            live.pop(int(rng.integers(len(live))))
    stats = weft.memory.stats()
    assert stats["kept_bytes"] + stats["used_bytes"] <= stats["peak_used_bytes"] + (80 << 20)


HEAP = """
import ctypes, random, numpy as np
from weft.native.memory.pool import pool

names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
Info = type("Info", (ctypes.Structure,), {"_fields_": [(n, ctypes.c_size_t) for n in names]})
ask = getattr(ctypes.CDLL(None), "mallinfo2", None)
if ask is None:
    raise SystemExit  # another C library
ask.restype = Info
pool().enter()
random.seed(0)
before, kept, live = ask().arena, [], []
for _ in range(2000):
    live.append(np.empty(random.randint(140_000, 900_000), np.uint8))
    kept.append(bytes(4000))
    if len(live) > 8:
        del live[random.randrange(8)]
grown = ask().arena - before
assert grown < 1.5 * sum(map(len, kept)), grown
"""


def test_blocks_leave_no_gaps_among_small_things_that_stay() -> None:
    subprocess.run([sys.executable, "-c", HEAP], timeout=60, check=True)


@pytest.mark.parametrize("size", [SMALL, MAPPED - 1, MAPPED, 3 * MAPPED])
def test_arrays_that_change_size_stay_right_among_others(size: int) -> None:
    before, rng = used(), np.random.default_rng(size)
    live = [np.full(size, k, np.uint8) for k in range(12)]
    for _ in range(200):
        k = int(rng.integers(12))
        old = live[k].size
        live[k].resize(int(size * rng.uniform(0.2, 3)), refcheck=False)
        live[k][old:] = k  # NumPy fills with zeros
        assert all((x == j).all() for j, x in enumerate(live))
    del live
    assert used() == before


def test_random_use_keeps_every_value() -> None:
    rng = np.random.default_rng(1)
    live: list[tuple[np.ndarray, int]] = []
    for k in range(4000):
        x = (np.empty, np.zeros)[k % 2](int(2 ** rng.uniform(10, 19)), np.uint8)
        x[...] = k % 251
        live.append((x, k % 251))
        if len(live) > 60:
            y, value = live.pop(int(rng.integers(len(live))))
            assert (y == value).all()


def test_threads_allocate_and_free_for_one_another() -> None:
    weft.randn(300, 300).tanh()
    wrong, shared = [], []

    def work(k: int) -> None:
        weft.randn(300, 300).tanh()
        for i in range(200):
            x = np.full(40_000 + 1000 * i, k, np.uint8)
            shared.append((x, k))
            y, value = shared.pop(0)
            if not (y == value).all():
                wrong.append(k)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_memory_that_cannot_be_had_is_an_error() -> None:
    with pytest.raises(MemoryError):
        np.empty(1 << 46, np.uint8)
    assert np.ones(100_000).sum() == 100_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_a_working_pool() -> None:
    code = (
        "import os, numpy as np, weft\n"
        "x = weft.randn(500, 500).tanh()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    y = np.full(200_000, 3.0); del x\n"
        "    os._exit(0 if y.sum() == 600_000 and weft.ones(400, 400).exp().sum() > 0 else 3)\n"
        "assert os.waitpid(pid, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_it_can_be_switched_off() -> None:
    code = (
        "import weft\n"
        "weft.randn(500, 500).tanh()\n"
        "assert weft.memory.stats()['used_bytes'] == 0 == weft.memory.empty_cache()\n"
    )
    env = {**os.environ, "WEFT_POOL": "off"}
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True, env=env)


LATE = """
import os
held = []
os.register_at_fork(after_in_child=lambda: held)  # let go of after the pool's own registration
import weft
held.extend(weft.relu(weft.ones(1 << 16)) * 2 for _ in range(3))
assert weft.memory.stats()["used_bytes"] > 0
"""


def test_arrays_that_outlive_the_module_are_freed_at_exit() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", LATE], env=env, timeout=120, capture_output=True)
    assert done.returncode == 0, done.stderr
