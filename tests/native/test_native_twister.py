"""Random words and dropout's noise from compiled loops: the same stream as NumPy's engine gives."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import weft
import weft.nn.functional as F
from weft.backends import native
from weft.core.generator import ArrayGenerator
from weft.native.codegen import jit
from weft.native.loops import twister
from weft.references.random import box_muller_32, multiply_add

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))


def engine(seed: int) -> np.random.MT19937:
    made = np.random.MT19937(0)
    made._legacy_seeding(seed)
    return made


def key_of(made: np.random.MT19937) -> np.ndarray:
    return made.state["state"]["key"]


@pytest.mark.parametrize("seed", [0, 1, 1234, 2**32 - 1])
def test_words_are_those_of_numpy(seed: int) -> None:
    theirs = engine(seed)
    ours = twister.Engine(key_of(theirs))
    for blocks in (1, 2, 7, 100):
        words = ours.random_raw(blocks * 624)
        assert words.dtype == np.uint32
        assert np.array_equal(words, theirs.random_raw(blocks * 624))
        assert np.array_equal(ours.state["state"]["key"], key_of(theirs))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("p", [0.0, 1e-12, 0.1, 0.5, 0.7, 1.0 - 2.0**-53, 1.0])
def test_a_draw_is_below_p(dtype: str, p: float) -> None:
    words = engine(5).random_raw(20000).astype(np.uint32)
    words[:8] = [0, 0, 2**32 - 1, 2**32 - 1, 0, 1, 2**20, 0]  # the least, the most, near 0, a half
    draws = ((words[0::2] & 0x1FFFFF) * 2.0**32 + words[1::2]) * 2.0**-53
    to = np.empty(10000, dtype)
    twister.bernoulli(words, p, to, 1.25)
    assert np.array_equal(to, np.where(draws < p, 1.25, 0.0))


def program(generator: ArrayGenerator) -> list[np.ndarray]:
    """Draws of many kinds and sizes, so that the native engine starts in the midst of a block."""
    return [
        generator.uniform((5,)),
        generator.uniform((100001,)),
        generator.bernoulli(0.3, (70001,)),
        generator.normal((33333,)),
        generator.bernoulli(0.3, (16384,), np.float64, 2.0),
        generator.uniform((50000,), np.float64),
        generator.bernoulli(0.6, (40000,), np.float16),
        generator.randint((70000,), 0, 1000),
        generator.uniform((3,)),
    ]


@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (0.3, 0.0), (1.0, 2.5), (-0.7, 1e-3)])
def test_normals_have_the_bits_of_the_reference(scale: float, shift: float) -> None:
    words = np.random.default_rng(0).integers(0, 2**32, 1 << 18, dtype=np.uint32)
    words[:64], words[64:96] = 0, 2**32 - 1
    values = (words & np.uint32(0xFFFFFF)).astype(np.float32) * np.float32(2.0**-24)
    wanted = multiply_add(box_muller_32(values), np.float32(scale), np.float32(shift))
    got = np.empty(words.size, np.float32)
    twister.box_muller(words, got, float(np.float32(scale)), float(np.float32(shift)))
    np.testing.assert_array_equal(got.view(np.int32), wanted.view(np.int32))


@pytest.mark.parametrize("n", [16383, 16384, 16399, 100_003])
def test_large_normals_are_those_of_torch(n: int) -> None:
    for lib in (torch, weft):
        lib.manual_seed(3)
    for mean, std in ((0.0, 1.0), (1.5, 0.3)):
        theirs, mine = (lib.empty(n).normal_(mean, std).numpy() for lib in (torch, weft))
        np.testing.assert_array_equal(mine, theirs)
    assert weft.rand(()).item() == torch.rand(()).item()


def test_the_stream_is_the_same_without_native_code() -> None:
    found, source = program(ArrayGenerator().manual_seed(3)), ArrayGenerator().manual_seed(3)
    native.set("numpy")
    try:
        wanted = program(source)
        assert not source._native
    finally:
        native.set("native")
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_a_state_outlives_the_change_of_engines() -> None:
    source = ArrayGenerator().manual_seed(11)
    source.uniform((100,))
    state = source.get_state()
    first = program(source)
    assert source._native
    later = source.get_state()
    rest = source.uniform((2000,))
    copies = [
        ArrayGenerator().set_state(later),
        source.clone_state().set_state(later),
        pickle.loads(pickle.dumps(ArrayGenerator().set_state(later))),
    ]
    for copy in copies:
        assert np.array_equal(copy.uniform((2000,)), rest)
    again = program(source.set_state(state))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
    source.manual_seed(11)
    source.uniform((100,))
    assert np.array_equal(source.get_state(), state)


def test_states_are_those_of_torch() -> None:
    ours, theirs = ArrayGenerator().manual_seed(2), torch.Generator().manual_seed(2)
    found = ours.uniform((123457,))
    assert np.array_equal(found, torch.rand(123457, generator=theirs).numpy())
    assert np.array_equal(ours.get_state(), theirs.get_state().numpy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("p", [0.1, 0.5, 0.77])
def test_dropout_of_large_arrays_is_that_of_torch(dtype: str, p: float) -> None:
    if (
        not torch.empty(4)
        .bernoulli_(0.5, generator=torch.Generator().manual_seed(0))
        .eq(torch.from_numpy(ArrayGenerator().manual_seed(0).bernoulli(0.5, (4,))))
        .all()
    ):
        pytest.skip("this build draws bernoulli_(p) from a vendor library")
    x = weft.ones(40, 50, 35, dtype=getattr(weft, dtype), requires_grad=True)
    tx = torch.ones(40, 50, 35, dtype=getattr(torch, dtype), requires_grad=True)
    weft.manual_seed(7)
    torch.manual_seed(7)
    for a, b in ((x, tx), (x.transpose(0, 2), tx.transpose(0, 2))):
        y, ty = F.dropout(a, p), torch.nn.functional.dropout(b, p)
        y.float().sum().backward()
        ty.float().sum().backward()
        assert np.array_equal(y.detach().float().numpy(), ty.detach().float().numpy())
        assert np.array_equal(x.grad.float().numpy(), tx.grad.float().numpy())
    assert weft.rand(3).tolist() == torch.rand(3).tolist()


def test_dropout_of_integers_is_refused() -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        F.dropout(weft.ones(3, dtype=weft.int64), 0.5)


def test_threads_that_draw_at_once_do_not_break_the_engine() -> None:
    source = ArrayGenerator().manual_seed(1)
    source.uniform((50000,))
    seen: list[np.ndarray] = []

    def draw() -> None:
        for _ in range(20):
            seen.append(source._engine.random_raw(624 * 30))

    workers = [threading.Thread(target=draw) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    # Each run of words is one of the stream, though two threads may have got the same.
    whole = ArrayGenerator().manual_seed(1)
    whole.uniform((50000,))
    stream = whole._engine.random_raw(624 * 30 * 80).reshape(80, -1)
    known = {row.tobytes() for row in stream}
    assert all(words.tobytes() in known for words in seen)


def test_a_small_draw_loads_nothing() -> None:
    code = (
        "import sys, weft\n"
        "weft.nn.functional.dropout(weft.randn(50, 50), 0.5); weft.rand(9000)\n"
        "assert 'llvmlite' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], timeout=120, check=True, env=dict(os.environ))
