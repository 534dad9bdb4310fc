"""The arena of a program: one block of memory for temporaries, planned by lifetime."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from weft.native.codegen.jit import pointer
from weft.native.memory import pool
from weft.native.memory.pool import HUGE

ALIGN = 64  # a cache line


class Memory:
    """Memory for the arenas of programs that don't run concurrently, as those of one path at many
    sizes.

    A new size reuses pages that other sizes have touched before.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.block = np.empty(0, np.uint8)

    def room(self, size: int) -> tuple[np.ndarray, int]:
        """A block of at least so many bytes, and an aligned address in it."""
        if self.block.size < size + ALIGN:
            # Untouched pages cost nothing, and leave space for a larger size.
            self.block = np.empty(max(size + ALIGN, 2 * self.block.size), np.uint8)
            if size >= HUGE and (kept := pool.current()) is not None:
                kept.give_back(size)  # left behind by eager steps, which programs replace
        return self.block, -(-pointer(self.block) // ALIGN) * ALIGN


class Lifetime(NamedTuple):
    """A piece of memory: its size in bytes, and its first and last step in a program."""

    size: int
    first: int
    last: int


def plan(pieces: Sequence[Lifetime]) -> tuple[list[int], int]:
    """An offset for each piece such that no two overlap while both live, and the total size.

    Largest first: each goes into the tightest gap between those that live at the same time.
    """
    offsets = [0] * len(pieces)
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; by offset
    total = 0
    order = sorted(range(len(pieces)), key=lambda k: (-pieces[k].size, pieces[k].first))
    for k in order:
        size, first, last = pieces[k]
        size = -(-max(size, 1) // ALIGN) * ALIGN
        best, tightest, end = -1, 0, 0
        for offset, stop in [(o, s) for o, s, f, t in placed if f <= last and t >= first]:
            gap = offset - end
            if gap >= size and (best < 0 or gap < tightest):
                best, tightest = end, gap
            if stop > end:
                end = stop
        at = end if best < 0 else best
        offsets[k] = at
        total = max(total, at + size)
        _insert(placed, (at, at + size, first, last))
    return offsets, total


def _insert(placed: list[tuple[int, int, int, int]], item: tuple[int, int, int, int]) -> None:
    from bisect import insort

    insort(placed, item)
