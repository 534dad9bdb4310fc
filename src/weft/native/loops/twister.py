"""Words of the Mersenne Twister (MT19937), and zeros and ones made of them."""

from __future__ import annotations

import math

import numpy as np

from weft.native import threads
from weft.native.compiler import Ptr, T, U, i32, i64, inline
from weft.native.jit import kernel, pointer
from weft.native.layout import FLOATS

Array = np.ndarray
BLOCK = 624  # words that are made at a time
GRAIN = 16384  # draws that are worth a thread


@inline
def mixed(a: i32, b: i32):
    # The top bit of one word and the rest of the next, shifted, with the constant 0x9908b0df
    y = (a & -2147483648) | (b & 2147483647)
    return ((y >> 1) & 2147483647) ^ ((0 - (b & 1)) & -1727483681)


@kernel
def twist(key: Ptr[i32], other: Ptr[i32], to: Ptr[i32], lo: i64, hi: i64):
    # A word needs the one 397 places on, which from place 227 is a word of the new block.
    for block in range(lo, hi):
        for i in range(227):
            other[i] = i32(key[i + 397]) ^ mixed(i32(key[i]), i32(key[i + 1]))
        for i in range(227, 454):
            other[i] = i32(other[i - 227]) ^ mixed(i32(key[i]), i32(key[i + 1]))
        for i in range(454, 623):
            other[i] = i32(other[i - 227]) ^ mixed(i32(key[i]), i32(key[i + 1]))
        other[623] = i32(other[396]) ^ mixed(i32(key[623]), i32(other[0]))
        for i in range(624):
            to[block * 624 + i] = tempered(i32(other[i]))
        for i in range(624):
            key[i] = other[i]


@inline
def tempered(y: i32):
    a = y ^ ((y >> 11) & 2097151)
    b = a ^ ((a << 7) & -1658038656)
    c = b ^ ((b << 15) & -272236544)
    return c ^ ((c >> 18) & 16383)


@kernel
def choose(words: Ptr[U], to: Ptr[T], level: i64, one: T, lo: i64, hi: i64):
    for i in range(lo, hi):
        drawn = ((words[2 * i] & 2097151) << 32) | words[2 * i + 1]
        to[i] = one if drawn < level else 0.0


class Engine:
    """Stands in for NumPy's engine where words are wanted in whole blocks."""

    def __init__(self, key: Array) -> None:
        self.key = np.array(key, np.uint32)

    @property
    def state(self) -> dict[str, dict[str, Array]]:
        """The words that the next block is made of."""
        return {"state": {"key": self.key}}

    def random_raw(self, count: int) -> Array:
        """The words of the next blocks."""
        # A copy: two threads that draw at once may get the same words, but never broken ones.
        key, other = self.key.copy(), np.empty(BLOCK, np.uint32)
        to = np.empty(count, np.uint32)
        twist.get()(pointer(key), pointer(other), pointer(to), count // BLOCK, 1)
        self.key = key
        return to


def bernoulli(words: Array, p: float, to: Array, one: float) -> None:
    """Fill with ``one`` where 53 bits, of two words each, are below p, and 0 elsewhere."""
    # A draw is m / 2**53, so the comparison is one of integers.
    level = math.ceil(p * 2.0**53)
    count = threads.how_many(to.size, GRAIN)
    code = choose.get(FLOATS[to.dtype], "u32")
    code(pointer(words), pointer(to), level, one, to.size, count)
