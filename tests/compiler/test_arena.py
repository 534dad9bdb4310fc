"""Places in the arena: what lives at the same time lies apart."""

from __future__ import annotations

import numpy as np
import pytest

import weft as torch
from weft.compiler.arena import ALIGN, Lifetime, Memory, plan
from weft.compiler.trace import walk
from weft.native.codegen.jit import pointer


@pytest.mark.parametrize("seed", range(40))
def test_no_two_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pieces = []
    for _ in range(int(rng.integers(1, 80))):
        first = int(rng.integers(0, 50))
        pieces.append(Lifetime(int(rng.integers(0, 5000)), first, first + int(rng.integers(0, 30))))
    offsets, total = plan(pieces)
    for k, (a, at) in enumerate(zip(pieces, offsets, strict=True)):
        assert at % ALIGN == 0 and at + a.size <= total
        for b, other in zip(pieces[:k], offsets[:k], strict=True):
            together = a.first <= b.last and b.first <= a.last
            apart = at + a.size <= other or other + b.size <= at
            assert apart or not together or not (a.size and b.size)


def test_memory_is_used_again() -> None:
    pieces = [Lifetime(1000, k, k + 1) for k in range(100)]
    assert plan(pieces)[1] == 2 * 1024


def test_no_more_than_what_lives_at_once_where_sizes_are_equal() -> None:
    rng = np.random.default_rng(0)
    starts = rng.integers(0, 40, 60)
    pieces = [Lifetime(ALIGN, int(s), int(s) + int(rng.integers(0, 10))) for s in starts]
    most = max(sum(p.first <= t <= p.last for p in pieces) for t in range(60))
    assert plan(pieces)[1] <= 2 * most * ALIGN


def test_memory_is_shared_while_it_is_large_enough() -> None:
    memory = Memory()
    block, base = memory.room(1000)
    assert base % ALIGN == 0 and base + 1000 <= pointer(block) + block.size
    assert memory.room(1000)[0] is memory.room(10)[0] is block
    larger, _ = memory.room(block.size + 1)
    assert larger is not block and memory.room(2 * block.size - ALIGN)[0] is larger


def test_programs_of_one_function_share_memory_and_run_in_turn() -> None:
    compiled = torch.compile(lambda x: (x * 2 + 1).relu().sum(1) * x.sum())
    batches = [torch.rand(n, 64) for n in (40, 32, 24, 16)]
    for x in 3 * batches:
        expected = (x * 2 + 1).relu().sum(1) * x.sum()
        assert torch.allclose(compiled(x), expected)
    points = [p for root in compiled.learned.roots.values() for p in walk(root)]
    programs = [plan.program for p in points for plan in p.plans.values()]
    assert len(programs) == len(batches)
    assert len({id(program._memory) for program in programs}) == 1
    assert len({id(program._turn) for program in programs}) == 1
