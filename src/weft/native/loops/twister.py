"""Words of the Mersenne Twister (MT19937), and Bernoulli and normal samples computed from them."""

from __future__ import annotations

import math

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import (
    Ptr,
    T,
    U,
    bits,
    f32,
    fma,
    from_bits,
    horner,
    i32,
    i64,
    inline,
    sqrt,
)
from weft.native.codegen.jit import kernel
from weft.native.memory.layout import FLOATS

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
        for i in range(227, 623):
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
        twist.get()(key, other, to, count // BLOCK, 1)
        self.key = key
        return to


def bernoulli(words: Array, p: float, to: Array, one: float) -> None:
    """Fill with ``one`` where 53 bits, of two words each, are below p, and 0 elsewhere."""
    # A draw is m / 2**53, so the comparison is one of integers.
    level = math.ceil(p * 2.0**53)
    count = threads.how_many(to.size, GRAIN)
    code = choose.get(FLOATS[to.dtype], "u32")
    code(words, to, level, one, to.size, count)


# --- normals: the steps of ``weft.references.random.box_muller_32``, each rounded once ------


@inline
def log_of(u: f32) -> f32:
    exponent = (bits(u) - 1060439283) >> 23
    x = from_bits(bits(u) - (exponent << 23)) - 1.0
    e = f32(exponent)
    z = x * x
    y = horner(
        x, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1,
    )  # fmt: skip
    y = fma(y, x, 3.3333331174e-1) * x
    y = fma(y, z, e * -2.12194440e-4)
    return y - 0.5 * z + x + e * 0.693359375


@kernel
def normals(words: Ptr[T], to: Ptr[f32], scale: f32, shift: f32, lo: i64, hi: i64):
    # Blocks of sixteen: the first eight give the radius, the last eight the angle.
    for block in range(lo, hi):
        given = words + block * 16
        out = to + block * 16
        for j in range(8):
            low = f32(given[j] & 16777215) * 5.9604644775390625e-08
            radius = sqrt(log_of(1.0 - low) * -2.0)
            theta = f32(given[j + 8] & 16777215) * 5.9604644775390625e-08 * 6.283185307179586
            octant = (i32(theta * 1.27323954473516) + i32(1)) & i32(-2)
            turns = f32(octant)
            x = theta - turns * 0.78515625 - turns * 2.4187564849853515625e-4
            x = fma(turns, -3.77489497744594108e-8, x)
            z = x * x
            c = fma(z, 2.443315711809948e-5, -1.388731625493765e-3)
            c = fma(c, z, 4.166664568298827e-2) * z
            c = fma(c, z, -0.5 * z) + 1.0
            s = fma(z, -1.9515295891e-4, 8.3321608736e-3)
            s = fma(s, z, -1.6666654611e-1) * z
            s = fma(s, x, x)
            swap = (octant & i32(2)) != 0
            cosine = s if swap else c
            sine = c if swap else s
            cosine = -cosine if ((octant + i32(2)) & i32(4)) != 0 else cosine
            sine = -sine if (octant & i32(4)) != 0 else sine
            out[j] = fma(radius * cosine, scale, shift)
            out[j + 8] = fma(radius * sine, scale, shift)


def box_muller(words: Array, to: Array, scale: float = 1.0, shift: float = 0.0) -> None:
    """Fill with scaled normals of float32 from as many words, whole blocks of sixteen."""
    blocks = to.size // 16
    if scale != 1 and not shift:
        shift = -0.0  # leaves a zero its sign
    normals.get("u32")(words, to, scale, shift, blocks, threads.how_many(blocks, GRAIN // 16))


@kernel
def swaps(picks: Ptr[i64], to: Ptr[i64], n: i64, lo: i64, hi: i64):
    for i in range(n):
        to[i] = i
    for i in range(n - 1):
        k = picks[i]
        a = to[i]
        to[i] = to[k]
        to[k] = a


def shuffled(picks: Array) -> Array:
    """0 .. n-1, each exchanged in turn with the place that was picked for it."""
    out = np.empty(picks.size + 1, np.int64)
    swaps.get()(picks, out, out.size, 1, 1)
    return out
