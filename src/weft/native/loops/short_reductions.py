"""Extremes, truth values and sums of integers over small arrays, each as one call.

They have NumPy's bits. Which of two zeros, or which NaN, NumPy gives depends on the processor, so
extremes that are one of these are left to it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.native.codegen.compiler import Ptr, T, i64
from weft.native.codegen.jit import entry_points, kernel
from weft.native.codegen.whole import EntrySpec

ndarray = np.ndarray
b1 = Any  # a mask, for annotations
MOST = 1024  # elements; of more NumPy takes several at a time
BOOL = np.dtype(np.bool_)


@kernel
def _extreme_rows(
    x: Ptr[T], y: Ptr[T], unclear: Ptr[i64], n: i64, least: i64, lo: i64, hi: i64
) -> None:
    for row in range(lo, hi):
        p = x + row * n
        best = p[0]
        for i in range(n):
            if p[i] != p[i]:
                unclear[0] = 1
            if p[i] < best if least else p[i] > best:
                best = p[i]
        if best == 0.0:
            unclear[0] = 1
        y[row] = best


@kernel
def _truth_rows(x: Ptr[T], y: Ptr[b1], n: i64, every: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        zeros = i64(0)
        for i in range(n):
            zeros += i64(x[row * n + i] == 0)
        y[row] = zeros == 0 if every else zeros < n


@kernel
def integer_rows(x: Ptr[i64], y: Ptr[i64], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        total = i64(0)
        for i in range(n):
            total += x[row * n + i]
        y[row] = total


greatest_rows, least_rows = (
    functools.partial(_extreme_rows.whole, least=flag) for flag in (False, True)
)
_any, _all = (functools.partial(_truth_rows.whole, every=flag) for flag in (False, True))
_integers = integer_rows.whole


@entry_points
def entry(rows: Callable, given: str, result: str, every: bool) -> Callable:
    """A reduction over all dimensions, or over the last, as one call."""
    shape, size, over = ("none", "size", "1") if every else ("lead", "last", "lead")
    flag = ("flag",) if result == "f32" else ()
    passes = ("take 0", "give 0", *flag, size)
    return rows(EntrySpec((given,), (f"{result} {shape}",), passes, over, size, most=MOST), given)


def _over(
    x: ndarray, dim: tuple[int, ...], rows: Callable, given: str, result: str
) -> ndarray | None:
    every = len(dim) == x.ndim
    if not every and (len(dim) != 1 or dim[0] != x.ndim - 1):
        return None
    return entry(rows, given, result, every)(x)


def extreme(x: ndarray, dim: tuple[int, ...], least: bool) -> ndarray | None:
    """The greatest or least over all dimensions or the last; NaN and zero are left to NumPy."""
    return _over(x, dim, least_rows if least else greatest_rows, "f32", "f32")


def truth(x: ndarray, dim: tuple[int, ...], every: bool) -> ndarray | None:
    """Whether all elements, or any, are not zero."""
    given = "b1" if x.dtype is BOOL else "f32"
    return _over(x, dim, _all if every else _any, given, "b1")


def integers(x: ndarray, dim: tuple[int, ...]) -> ndarray | None:
    """The sum of integers."""
    return _over(x, dim, _integers, "i64", "i64")
