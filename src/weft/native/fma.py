"""``a * b + c`` rounded once, on NumPy's arrays: what processors do in one instruction.

NumPy has no such function. In single precision the product is exact in double precision, and its
sum with ``c`` is rounded to odd there, so that the second rounding can't go wrong. In double
precision product and sum are taken as pairs of numbers that are exact together (Dekker, Knuth),
and the small parts are added by a sum that is rounded to odd (Boldo and Melquiond).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

F32, F64 = np.dtype(np.float32), np.dtype(np.float64)
_SPLIT = 134217729.0  # 2**27 + 1: halves the digits of a factor
# Between these no part of a pair can overflow or lose digits below the smallest number.
_LEAST, _MOST = 2.0**-450, 2.0**450


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once in single and double precision; numbers take the arrays' type."""
    given = [x for x in (a, b, c) if x.__class__ not in (int, float, complex)]
    if not all(isinstance(x, (np.ndarray, np.generic)) for x in given):
        raise TypeError("multiply_add takes arrays and numbers")  # None would be NaN to NumPy
    dtype = np.result_type(*given) if given else F64
    if dtype not in (F32, F64) or complex in map(type, (a, b, c)):
        return a * b + c
    with np.errstate(all="ignore"):
        a, b, c = (np.asarray(x, dtype).astype(F64, copy=False) for x in (a, b, c))
        if dtype == F32:
            return _odd_sum(a * b, c).astype(F32)
        return _double(*np.broadcast_arrays(a, b, c))


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded sum, and what it lacks."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Any, b: Any) -> tuple[Any, Any]:
    """The rounded product, and what it lacks."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    rest = a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low
    return product, rest


def _halves(x: Any) -> tuple[Any, Any]:
    scaled = x * _SPLIT
    high = scaled - (scaled - x)
    return high, x - high


def _odd_sum(a: Any, b: Any) -> Any:
    """The sum; where it is not exact, the neighbour of the true value whose last bit is set."""
    total, lacks = _two_sum(a, b)
    even = np.asarray(total).view(np.int64) & 1 == 0
    inexact = np.abs(lacks) > 0  # not NaN, which it is for infinities
    return np.where(even & inexact, np.nextafter(total, np.copysign(np.inf, lacks)), total)


def _double(a: Any, b: Any, c: Any) -> Any:
    high, low = _two_product(a, b)
    middle, rest = _two_sum(c, low)
    top, below = _two_sum(high, middle)
    result, plain = top + _odd_sum(rest, below), a * b + c
    sizes = [np.abs(x) for x in (a, b, c)]
    usual = np.logical_and.reduce([(s == 0) | (s >= _LEAST) & (s <= _MOST) for s in sizes])
    factors, finite = np.isfinite(a) & np.isfinite(b), np.isfinite(c)
    plain = np.where(factors & ~finite, c, plain)  # though the product may overflow
    finite &= factors
    # A zero has the sign that the plain sum gives it.
    result = np.where(finite & (result != 0), result, plain)
    for place in map(tuple, np.argwhere(finite & ~usual)):
        result[place] = _exact(*(float(x[place]) for x in (a, b, c)))
    return result


def _exact(a: float, b: float, c: float) -> float:
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if not value:
        return a * b + c
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
