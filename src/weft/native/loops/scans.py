"""Running sums, products and extremes, top-k and variances of small rows, as exact as NumPy's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.native.codegen.compiler import Ptr, T, array, f64, i64, sqrt
from weft.native.codegen.jit import entry_points, kernel
from weft.native.codegen.row_programs import (
    Along,
    RowProgram,
    row_program,
    running,
    running_largest,
    running_least,
    running_product,
)
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.short_rows import above
from weft.native.loops.sums import leaf
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS

ndarray = np.ndarray
MOST = 4096  # elements that one call takes
ROW = 128  # elements of a row
F32 = np.dtype(np.float32)


# --- running sums, products and extremes -------------------------------------------------


@row_program
def _sums(x: Along) -> Any:
    return running(x)


@row_program
def _products(x: Along) -> Any:
    return running_product(x)


@row_program
def _greatest_so_far(x: Along) -> Any:
    return running_largest(x)


@row_program
def _least_so_far(x: Along) -> Any:
    return running_least(x)


@entry_points
def _small_scan(program: RowProgram, back: bool) -> Callable:
    """Along the last dimension of a small array, from its start or from its end, as one call."""
    made = program.whole
    return made.entry(made.scan_rows, back=back, most=MOST)


@functools.lru_cache(512)
def _scan(
    program: RowProgram, dtype: np.dtype, shape: tuple[int, ...], dim: int, back: bool
) -> Callable[..., None]:
    sizes = prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])
    return program.whole.scan(FLOATS[dtype], *sizes, back)


def _scanned(program: RowProgram, x: ndarray, dim: int, reverse: bool = False) -> Any:
    """A running function along a dimension of a row-major array, with indices if it has any."""
    back = bool(reverse)
    if dim == x.ndim - 1:
        found = _small_scan(program, back)(x)
        if found is not None:
            return found
    flags = x.flags
    if not (x.dtype in FLOATS and x.size and 0 <= dim < x.ndim):
        return None
    if not (flags.c_contiguous and flags.aligned):
        return None
    out = buffers.empty(x.shape, x.dtype)
    scan = _scan(program, x.dtype, x.shape, dim, back)
    if program in (_sums, _products):
        scan(x, out)
        return out
    where = buffers.empty(x.shape, np.int64)
    scan(x, out, where)
    return out, where


# Sums and products of all elements up to each, formed in float64; the greatest and least element so
# far, and the place where it was last.
cumsum, cumprod, cummax, cummin = (
    functools.partial(_scanned, program)
    for program in (_sums, _products, _greatest_so_far, _least_so_far)
)


# --- the greatest few --------------------------------------------------------------------


@kernel
def _greatest(
    x: Ptr[T], values: Ptr[T], places: Ptr[i64], ties: Ptr[i64],
    n: i64, k: i64, least: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    taken = array(i64, ROW)
    if k > n or n > ROW:
        ties[0] = 1
        hi = lo
    for row in range(lo, hi):
        p = x + row * n
        for i in range(n):
            taken[i] = 0
        for j in range(k):
            best = -1
            equal = 0
            for i in range(n):
                if taken[i] == 0:
                    if best < 0:
                        best = i
                    else:
                        a = p[i]
                        b = p[best]
                        # NaN is the greatest.
                        if above(b, a) if least else above(a, b):
                            best = i
                            equal = 0
                        if (a == b) or (a != a and b != b):
                            equal = 1
            if equal:
                ties[0] = 1
            taken[best] = 1
            values[row * k + j] = p[best]
            places[row * k + j] = best


@entry_points
def _few_greatest() -> Callable:
    """The greatest few of each row as one call; None where the order of ties is PyTorch's own."""
    passes = ("take 0", "give 0", "give 1", "flag", "last", "take 1", "take 2")
    takes, gives = ("f32", "number", "number"), ("f32 last 1", "i64 last 1")
    return _greatest.whole(
        EntrySpec(takes, gives, passes, "lead", "last", most=MOST, returns=(0, 1)), "f32"
    )


def topk(
    x: ndarray, k: int, dim: int, largest: bool, sorted: bool
) -> tuple[ndarray, ndarray] | None:
    """The greatest or smallest few of short rows in the last dimension, in order."""
    if dim != x.ndim - 1 or x.dtype is not F32 or x.size > MOST or not x.flags.c_contiguous:
        return None
    n = x.shape[-1]
    # Of longer rows NumPy's partition decides which of equal elements are taken.
    if not 0 < n <= ROW or not 0 < k <= n or k * 8 < n:
        return None
    if not buffers.PLANNERS:
        found = _few_greatest()(x, k, 0 if largest else 1)
        if found is not None:
            return found
    shape = (*x.shape[:-1], k)
    values, places = buffers.empty(shape, F32), buffers.empty(shape, np.int64)
    ties = buffers.zeros(1, np.int64)
    _greatest.get("f32")(x, values, places, ties, n, k, not largest, x.size // n, 1)
    return None if buffers.wrong(ties) else (values, places)  # whose order is PyTorch's own


# --- variances ---------------------------------------------------------------------------


@kernel
def _spread(x: Ptr[T], y: Ptr[T], n: i64, correction: f64, root: i64, lo: i64, hi: i64) -> None:
    wide = array(f64, ROW)
    for row in range(lo, hi):
        p = x + row * n
        for i in range(n):
            wide[i] = f64(p[i])
        mean = leaf(wide, n) / f64(n)
        for i in range(n):
            gap = wide[i] - mean
            wide[i] = gap * gap
        freedom = f64(n) - correction
        if freedom < 0.0:
            freedom = 0.0
        found = leaf(wide, n) / freedom
        y[row] = T(sqrt(found)) if root else T(found)


@entry_points
def _spread_entry(every: bool, root: bool) -> Callable:
    shape, size, over = ("none", "size", "1") if every else ("lead", "last", "lead")
    passes = ("take 0", "give 0", size, "take 1", str(int(root)))
    takes = ("f32", "number")
    return _spread.whole(EntrySpec(takes, (f"f32 {shape}",), passes, over, size, most=ROW), "f32")


def _small(root: bool, x: ndarray, dim: tuple[int, ...], keepdim: bool, correction: float) -> Any:
    """The variance of a few elements, or its root: of all, or over the last dimension."""
    if keepdim or not x.ndim or x.size > ROW:
        return None
    if len(dim) == x.ndim:
        return _spread_entry(True, root)(x, correction)
    return _spread_entry(False, root)(x, correction) if dim == (x.ndim - 1,) else None


var_small, std_small = functools.partial(_small, False), functools.partial(_small, True)
