"""Sums and means of small arrays in NumPy's summation order, bit-exact with it.

NumPy halves a row until 128 elements are left, which it sums in eight parts; over the first
dimension it adds row by row.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weft.native.codegen.compiler import Ptr, T, array, i64, inline
from weft.native.codegen.jit import entry_points, kernel
from weft.native.codegen.whole import EntrySpec

ndarray = np.ndarray
MOST = 8191  # elements; beyond, sums are taken in blocks by all threads
LEAF = 128


@inline
def leaf(x: Ptr[T], n: i64) -> T:
    total = T(0.0)
    if n < 8:
        for i in range(n):
            total = total + x[i]
    else:
        parts = array(T, 8)
        for k in range(8):
            parts[k] = x[k]
        whole = n - n % 8
        for i in range(8, whole, 8):
            for k in range(8):
                parts[k] = parts[k] + x[i + k]
        left = (parts[0] + parts[1]) + (parts[2] + parts[3])
        total = left + ((parts[4] + parts[5]) + (parts[6] + parts[7]))
        for i in range(whole, n):
            total = total + x[i]
    return total


@inline
def _pairwise(x: Ptr[T], n: i64) -> T:
    """The sum of a row: parts to do, and to join, on a stack."""
    starts = array(i64, 64)
    sizes = array(i64, 64)
    found = array(T, 64)
    starts[0] = 0
    sizes[0] = n
    todo = 1
    done = 0
    while todo > 0:
        todo -= 1
        start = starts[todo]
        size = sizes[todo]
        if size < 0:
            done -= 1
            found[done - 1] = found[done - 1] + found[done]
        else:
            if size <= LEAF:
                found[done] = leaf(x + start, size)
                done += 1
            else:
                half = size // 2
                half = half - half % 8
                sizes[todo] = -1
                starts[todo + 1] = start + half
                sizes[todo + 1] = size - half
                starts[todo + 2] = start
                sizes[todo + 2] = half
                todo += 3
    return found[0]


@kernel
def sum_rows(x: Ptr[T], y: Ptr[T], n: i64, by: T, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        total = leaf(p, n) if n <= LEAF else _pairwise(p, n)
        y[row] = (total + 0.0) / by


@kernel
def sum_down(x: Ptr[T], y: Ptr[T], r: i64, k: i64, by: T, lo: i64, hi: i64) -> None:
    for i in range(lo, hi):
        y[i] = x[i] + 0.0
    for row in range(1, r):
        p = x + row * k
        for i in range(lo, hi):
            y[i] = y[i] + p[i]
    for i in range(lo, hi):
        y[i] = y[i] / by


@entry_points
def _ways(mean: bool) -> tuple[Callable, Callable, Callable]:
    """Over all, over the last dimension, over the first: each as one call."""
    x, y = ("f32",), ("take 0", "give 0")
    every = EntrySpec(
        x, ("f32 none",), (*y, "size", "size" if mean else "1"), "1", "size", most=MOST
    )
    last = EntrySpec(
        x, ("f32 lead",), (*y, "last", "last" if mean else "1"), "lead", "last", most=MOST
    )
    passes = (*y, "first", "rest", "first" if mean else "1")
    first = EntrySpec(x, ("f32 rest",), passes, "rest", "first", most=MOST)
    rows = (sum_rows.whole(spec, "f32") for spec in (every, last))
    return (*rows, sum_down.whole(first, "f32"))


def small(x: ndarray, dim: tuple[int, ...], mean: bool) -> ndarray | None:
    """The sum or mean of a small array over all dimensions, the last or the first."""
    every, last, first = _ways(mean)
    if len(dim) == x.ndim:
        return every(x)
    if len(dim) != 1:
        return None
    if dim[0] == x.ndim - 1:
        return last(x)
    # A column is a row to NumPy.
    return first(x) if not dim[0] and x.shape[0] != x.size else None
