"""The arithmetic behind random numbers, rounded step by step as PyTorch's CPU kernels round it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # loading numpy.typing takes as long as loading all of this package
    from numpy.typing import NDArray

    Array = NDArray[Any]

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_TWO_PI = 2.0 * math.pi


def remainder32(words: Array, span: int) -> Array:
    """Return words % span; dividing by a scalar is faster in NumPy than its remainder."""
    if span & (span - 1) == 0:
        return words & np.uint32(span - 1)
    divisor = np.uint32(span)
    out = words // divisor
    out *= divisor
    return np.subtract(words, out, out=out)


def multiply_add(x: Array, scale: Any, shift: Any) -> Array:
    """Return x * scale + shift with one rounding, in the dtype of x."""
    if scale == 1:
        return x + x.dtype.type(shift)
    if shift == 0:
        return x * x.dtype.type(scale)
    if x.dtype == _F32:
        # The product of two float32 is exact in float64.
        return (x.astype(_F64) * float(scale) + float(shift)).astype(_F32)
    product = x * scale
    total = product + shift
    if not abs(scale) < 1e290 or not abs(shift) < 1e290:
        return total
    # Add back what the product and the sum lost (the error-free steps of Dekker and Knuth).
    high, low = _split(x)
    scale_high, scale_low = _split(np.float64(scale))
    lost = ((high * scale_high - product) + high * scale_low + low * scale_high) + low * scale_low
    part = total - product
    lost += (product - (total - part)) + (shift - part)
    return total + lost


def _split(x: Any) -> tuple[Any, Any]:
    wide = x * 134217729.0  # 2**27 + 1
    high = wide - (wide - x)
    return high, x - high


def box_muller_64(values: Array) -> Array:
    """Normals from uniform values, which come as blocks of eight and eight."""
    pairs = values.reshape(-1, 2, 8)
    radius = np.sqrt(-2.0 * np.log(1.0 - pairs[:, 0]))
    theta = _TWO_PI * pairs[:, 1]
    out = np.empty_like(pairs)
    np.multiply(radius, np.cos(theta), out=out[:, 0])
    np.multiply(radius, np.sin(theta), out=out[:, 1])
    return out.reshape(-1)


def box_muller_32(values: Array) -> Array:
    """The same in float32, equal to PyTorch's in every bit."""
    pairs = values.reshape(-1, 2, 8)
    radius = _log_32(_ONE - pairs[:, 0])
    radius *= _MINUS_TWO
    np.sqrt(radius, radius)
    waves = _cos_sin_32(pairs[:, 1] * _TWO_PI_32)
    out = np.empty_like(pairs)
    np.multiply(waves, radius, out.transpose(1, 0, 2))
    return out.reshape(-1)


def _f32(value: float) -> Array:
    return np.array(value, np.float32)


def _f32_wide(*values: float) -> Array:
    """Round to float32, keep as float64; several values become rows over blocks of lanes."""
    out = np.array(values, np.float32).astype(np.float64)
    return out.reshape(-1, 1, 1) if len(values) > 1 else out.reshape(())


# PyTorch's vector kernels use the single-precision polynomials of the Cephes library, with each
# multiply-and-add rounded once. That is repeated here step by step, so that float32 normals agree
# in every bit: a step is done in float64 (the product is exact) and rounded to float32.
_ONE, _HALF, _MINUS_TWO, _TWO_PI_32 = _f32(1.0), _f32(0.5), _f32(-2.0), _f32(_TWO_PI)
_LOG = [
    _f32_wide(c)
    for c in (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    )
]  # fmt: skip
_LN2_HIGH, _LN2_LOW = _f32(0.693359375), _f32(-2.12194440e-4)
_SQRT_HALF_BITS = np.array(0x3F3504F3, np.int32)
_MANTISSA_BITS = np.array(23, np.int32)
# Row 0 is for the cosine, row 1 for the sine; both run together as one array.
_COS_SIN = [
    _f32_wide(2.443315711809948e-5, -1.9515295891e-4),
    _f32_wide(-1.388731625493765e-3, 8.3321608736e-3),
    _f32_wide(4.166664568298827e-2, -1.6666654611e-1),
]
_FOUR_OVER_PI = _f32(1.27323954473516)
_PI_4_HIGH, _PI_4_MID = _f32(0.78515625), _f32(2.4187564849853515625e-4)
_PI_4_LOW = _f32_wide(3.77489497744594108e-8)
_MINUS_HALF = np.array(-0.5)
_I1, _I2, _I4, _EVEN = (np.array(i, np.int32) for i in (1, 2, 4, -2))
_SIGN_TURN = np.array([2, 0], np.int32).reshape(2, 1, 1)
_TO_SIGN_BIT = np.array(29, np.int32)


def _horner_32(coefficients: list[Array], x: Array) -> Array:
    """Return x * polynomial(x) with float32 rounding per step; all arrays are float64."""
    y = x * coefficients[0]
    single = np.empty(y.shape, _F32)
    for c in coefficients[1:]:
        y += c
        single[...] = y
        y[...] = single
        y *= x
    single[...] = y
    y[...] = single
    return y


def _log_32(u: Array) -> Array:
    bits = u.view(np.int32)
    exponent = bits - _SQRT_HALF_BITS
    exponent >>= _MANTISSA_BITS
    x = (bits - (exponent << _MANTISSA_BITS)).view(_F32)
    x -= _ONE
    e = exponent.astype(_F32)
    z = x * x
    y = _horner_32(_LOG, x.astype(_F64))
    y *= z.astype(_F64)
    y += (e * _LN2_LOW).astype(_F64)
    out = y.astype(_F32)
    z *= _HALF
    out -= z
    out += x
    e *= _LN2_HIGH
    out += e
    return out


def _cos_sin_32(theta: Array) -> Array:
    """Return cosine and sine as two rows, for angles in [0, 2 pi]; theta is used up."""
    octant = (theta * _FOUR_OVER_PI).astype(np.int32)
    octant += _I1
    octant &= _EVEN
    turns = octant.astype(_F32)
    # The first two products are exact, so plain float32 steps do what a fused step does.
    theta -= turns * _PI_4_HIGH
    theta -= turns * _PI_4_MID
    wide = octant.astype(_F64)
    wide *= _PI_4_LOW
    x = np.subtract(theta.astype(_F64), wide, wide).astype(_F32)
    factors = np.empty((2, *x.shape), _F64)
    factors[...] = x * x
    y = _horner_32(_COS_SIN, factors)
    factors[1] = x
    y *= factors
    factors[0] *= _MINUS_HALF
    y += factors
    out = y.astype(_F32)
    out[0] += _ONE
    out = np.where(octant & _I2, out[::-1], out)
    flips = octant + _SIGN_TURN
    flips &= _I4
    flips <<= _TO_SIGN_BIT
    signs = out.view(np.int32)
    signs ^= flips
    return out


# --- permutations ----------------------------------------------------------------------


def shuffle_small(picks: Array) -> Array:
    """Apply the swaps (i, picks[i]) to 0 .. n-1, one after the other."""
    values = list(range(picks.size + 1))
    for i, j in enumerate(picks.tolist()):
        values[i], values[j] = values[j], values[i]
    return np.array(values, np.int64)


def shuffle(picks: Array) -> Array:
    """Apply the swaps (i, picks[i]) for i = 0, 1, ... to 0 .. n-1 without a loop over i.

    Step i puts into place p = picks[i] what stood at i, and no later step reads i again. So the
    value at any place p is held[k], where k is the last step before now that picked p, and p
    itself if there is none; held[k] is what stood at k when step k came.
    """
    n = picks.size + 1
    steps = np.arange(n - 1)
    held = np.arange(n)
    moved = picks != steps
    # A repeated index keeps the last value written: the last step that picked the place.
    held[picks[moved]] = steps[moved]
    while True:
        further = held.take(held)
        if np.array_equal(further, held):
            break
        held = further
    # Sorting by (place, step) puts next to each step the one before it with the same place.
    order = np.sort((picks << 32) | steps)
    place, step = order >> 32, order & 0xFFFFFFFF
    same = place[1:] == place[:-1]
    out = np.empty(n, np.int64)
    out[step[:1]] = place[:1]
    out[step[1:]] = np.where(same, held.take(step[:-1]), place[1:])
    out[n - 1] = held[n - 1]
    return out
