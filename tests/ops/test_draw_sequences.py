"""Random sequences of draws, of all kinds and sizes, are PyTorch's to the bit, and so is the state.

Short draws are taken by compiled code from numbers that the generator has made ahead; whatever came
before, and wherever in a block of words a draw begins, that must not show.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import weft  # noqa: E402
from weft.core import making, selection  # noqa: E402

COUNTS = [
    0,
    1,
    2,
    3,
    4,
    8,
    15,
    16,
    16,
    16,
    17,
    31,
    32,
    48,
    64,
    100,
    112,
    127,
    128,
    129,
    130,
    300,
    700,
]
FLOATS = ["float32", "float32", "float32", "float64", "float16", "bfloat16"]
SPANS = [
    (0, 10),
    (0, 2),
    (-5, 5),
    (3, 2**28 + 2),
    (0, 2**28),
    (-(2**40), 2**40),
    (0, 2**62),
    (7, 8),
]
# (kind, elements, dtype, bounds) as a call on either system.
KINDS: dict[str, Callable[[Any, Any, int, Any, tuple[int, int]], Any]] = {
    "rand": lambda t, g, n, d, s: t.rand(n, generator=g),
    "rand of": lambda t, g, n, d, s: t.rand(n, dtype=d, generator=g),
    "rand rows": lambda t, g, n, d, s: t.rand((2, n), generator=g),
    "randn": lambda t, g, n, d, s: t.randn(n, generator=g),
    "randn of": lambda t, g, n, d, s: t.randn(n, 1, dtype=d, generator=g),
    "randn rows": lambda t, g, n, d, s: t.randn(4, n, generator=g),
    "uniform": lambda t, g, n, d, s: t.empty(n).uniform_(generator=g),
    "uniform of": lambda t, g, n, d, s: t.empty(n, dtype=d).uniform_(generator=g),
    "uniform in": lambda t, g, n, d, s: t.empty(n).uniform_(-2, 3, generator=g),
    "normal": lambda t, g, n, d, s: t.empty(n).normal_(generator=g),
    "normal of": lambda t, g, n, d, s: t.empty(n, dtype=d).normal_(generator=g),
    "normal with": lambda t, g, n, d, s: t.empty(n).normal_(2, 3, generator=g),
    "normal steps": lambda t, g, n, d, s: t.zeros(n, 2)[:, 0].normal_(generator=g),
    "uniform turned": lambda t, g, n, d, s: t.zeros(3, n).t().uniform_(generator=g),
    "randint": lambda t, g, n, d, s: t.randint(*s, (n,), generator=g),
    "randint high": lambda t, g, n, d, s: t.randint(9, (2, n), generator=g),
    "randint of": lambda t, g, n, d, s: t.randint(0, 100, (n,), dtype=d, generator=g),
    "random": lambda t, g, n, d, s: t.empty(n, dtype=t.int64).random_(*s, generator=g),
    "whole": lambda t, g, n, d, s: t.empty(n, dtype=t.int64).random_(generator=g),
    "bernoulli": lambda t, g, n, d, s: t.empty(n).bernoulli_(0.3, generator=g),
    "exponential": lambda t, g, n, d, s: t.empty(n).exponential_(generator=g),
    "permutation": lambda t, g, n, d, s: t.randperm(n, generator=g),
}  # fmt: skip
# Logarithms of another library: the last bit may differ, as it may in normals of float64.
ROUNDED = ("exponential",)
CACHED = slice(
    5024, 5032
)  # a state's second normal of a pair, in float64, for which that holds too


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled draws from the first call on."""
    if selection.ready():
        for name, function in zip(("overwrite", "create"), making._short_functions(), strict=True):
            monkeypatch.setattr(making, name, function)


def bits(x: Any) -> bytes:
    x = x.detach().contiguous()
    if "bfloat16" in str(x.dtype):
        x = x.float()
    return x.numpy().tobytes()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_sequences_of_draws_are_pytorch_s(seed: int, default: bool) -> None:
    order = np.random.default_rng(seed)
    few = order.choice(list(KINDS), 5) if seed % 2 else list(KINDS)  # a few kinds meet more often
    mine, theirs = (None, None) if default else (weft.Generator(), torch.Generator())
    whose = [(weft, mine or weft.default_generator), (torch, theirs or torch.default_generator)]
    before = torch.get_rng_state()
    try:
        for _, g in whose:
            g.manual_seed(seed)
        saved: list[Any] = []
        for _ in range(150):
            kind, n = str(order.choice(few)), int(order.choice(COUNTS))
            d, span = str(order.choice(FLOATS)), SPANS[order.integers(len(SPANS))]
            other = order.random()
            found = [
                KINDS[kind](t, g if given is not None else None, n, getattr(t, d), span)
                for (t, g), given in zip(whose, (mine, theirs), strict=True)
            ]
            if kind in ROUNDED or (kind in ("randn of", "normal of") and d == "float64"):
                arrays = (x.double().numpy() for x in found)
                np.testing.assert_allclose(*arrays, rtol=1e-6 if kind in ROUNDED else 1e-13)
            else:
                assert bits(found[0]) == bits(found[1]), (kind, n, d, span)
            states = [bytes(g.get_state().tolist()) for _, g in whose]
            kept = [np.frombuffer(state[CACHED], "<f8") for state in states]
            np.testing.assert_allclose(*kept, rtol=1e-15)
            mine_rest, their_rest = (s[: CACHED.start] + s[CACHED.stop :] for s in states)
            assert mine_rest == their_rest, (kind, n)
            if other < 0.05:
                saved = [g.get_state() for _, g in whose]
            elif other < 0.1 and saved:
                for (_, g), state in zip(whose, saved, strict=True):
                    g.set_state(state)
            elif other < 0.12:
                for _, g in whose:
                    g.manual_seed(seed + 100)
    finally:
        torch.set_rng_state(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes to fork")
def test_a_fork_goes_on_where_its_parent_was() -> None:
    weft.manual_seed(5)
    weft.randn(16), weft.rand(4), weft.randint(9, (3,))
    read, write = os.pipe()
    child = os.fork()
    draw = lambda: bits(weft.cat([weft.randn(16), weft.rand(7), weft.randint(9, (3,)).float()]))
    if child == 0:
        os.write(write, draw())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1000) == draw()
    os.close(read), os.close(write)
