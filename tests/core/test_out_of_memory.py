"""What is asked for and can't be had: memory, sizes beyond all addresses, too many threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from weft.core import errors, selection
from weft.native import threads

HUGE = 1 << 45  # elements: more than any machine has addresses for

ASKED: dict[str, Callable[[Any], Any]] = {
    "empty": lambda lib: lib.empty(HUGE),
    "zeros": lambda lib: lib.zeros(2, HUGE // 2),
    "full": lambda lib: lib.full((HUGE,), 2.5),
    "new_ones": lambda lib: lib.ones(1).new_ones(HUGE),
    "clone": lambda lib: lib.ones(1).expand(HUGE).clone(),
    "add": lambda lib: lib.ones(1).expand(HUGE) + lib.ones(1),
    "exp": lambda lib: lib.ones(1).expand(HUGE).exp(),
    "arange": lambda lib: lib.arange(HUGE),
    "arange_floats": lambda lib: lib.arange(0.0, HUGE, 1.0),
    "rand": lambda lib: lib.rand(HUGE),
    "randn": lambda lib: lib.randn(HUGE),
}


@pytest.mark.parametrize("name", ASKED)
def test_memory_that_is_not_there(name: str) -> None:
    selection.ready()
    with pytest.raises(
        RuntimeError, match="can't allocate memory: you tried to allocate"
    ) as caught:
        ASKED[name](weft)
    said = str(caught.value)
    assert " TiB, " in said and "test_out_of_memory.py" in said
    if name not in ("arange_floats", "rand"):  # those ask for what they work with
        size = 8 if name == "arange" else 4
        assert f"allocate {size * HUGE} bytes (" in said
    if selection.ready():
        assert "in use" in said


@pytest.mark.parametrize("name", ASKED)
def test_the_same_kind_of_error_as_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="parity tests need torch==2.13.0")
    with pytest.raises(RuntimeError, match="can't allocate memory: you tried to allocate"):
        ASKED[name](torch)


@pytest.mark.parametrize("shape", [(1 << 62,), (1 << 40, 1 << 40), (3, 1 << 61)])
def test_sizes_beyond_all_addresses(shape: tuple[int, ...]) -> None:
    for make in (weft.empty, weft.zeros, weft.ones):
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed with sizes="):
            make(*shape)


def test_a_length_beyond_64_bits() -> None:
    with pytest.raises(TypeError, match="Overflow when unpacking long long"):
        weft.empty(1 << 63)


@pytest.mark.skipif(not selection.ready(), reason="the pool needs native code")
def test_what_could_not_be_had_is_not_counted() -> None:
    selection.start()
    before = weft.memory.stats()
    for _ in range(3):
        with pytest.raises(RuntimeError):
            weft.empty(HUGE)
    after = weft.memory.stats()
    assert after["peak_used_bytes"] == before["peak_used_bytes"]
    assert after["used_bytes"] == before["used_bytes"]


def test_bytes_for_people() -> None:
    given = (0, 1023, 1024, 1536 << 20, 1 << 47, 1 << 64)
    wanted = ["0 bytes", "1023 bytes", "1 KiB", "1.5 GiB", "128 TiB", "16 EiB"]
    assert [errors.in_bytes(n) for n in given] == wanted


@pytest.mark.parametrize("number", [1 << 31, (1 << 63) - 1, 1 << 64])
def test_more_threads_than_an_int_holds(number: int) -> None:
    for setter in (weft.set_num_threads, weft.set_num_interop_threads):
        with pytest.raises(ValueError, match="Overflow when unpacking long"):
            setter(number)


def test_more_threads_than_can_be_made() -> None:
    """As many as torch takes; a kernel does with fewer, and the process lives."""
    before = weft.get_num_threads()
    try:
        weft.set_num_threads((1 << 31) - 1)
        assert weft.get_num_threads() == (1 << 31) - 1
        assert threads.count() == threads.MOST
        x = np.linspace(0, 1, 1 << 16, dtype=np.float32)
        np.testing.assert_allclose(weft.from_numpy(x).exp().numpy(), np.exp(x), rtol=1e-6)
    finally:
        weft.set_num_threads(before)
    assert weft.get_num_threads() == before
