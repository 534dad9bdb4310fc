"""The element of a rank in each row, and its index: the k-th smallest, and medians."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, T, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.loops.reduce import result_shape
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray
WHOLE = {"int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8"}
KINDS = {**FLOATS, **{np.dtype(name): kind for name, kind in WHOLE.items()}}
# What is looked for: the element of rank k, the median, and the median of what is not NaN.
KTH, MEDIAN, PRESENT = range(3)
GRAIN = 2048  # elements that are worth a thread
PARTS = 64  # of rows, each with scratch for one row
SMALL = 1024


@inline
def after(a: T, b: T) -> i64:
    """Whether a belongs behind b: NaN does."""
    return (a != a and b == b) or a > b


@inline
def swap(row: Ptr[T], places: Ptr[i64], i: i64, j: i64) -> None:
    value = row[i]
    row[i] = row[j]
    row[j] = value
    place = places[i]
    places[i] = places[j]
    places[j] = place


@inline
def put_in_order(row: Ptr[T], places: Ptr[i64], i: i64, j: i64) -> None:
    if after(row[i], row[j]):
        swap(row, places, i, j)


@inline
def selected(row: Ptr[T], places: Ptr[i64], n: i64, k: i64) -> i64:
    """The index of the element of rank k, by Hoare's partitions about medians of three.

    Which of equal elements that is follows from the steps, which are PyTorch's.
    """
    for i in range(n):
        places[i] = i
    low = 0
    high = n - 1
    while high > low + 1:
        swap(row, places, low + (high - low) // 2, low + 1)
        put_in_order(row, places, low + 1, high)
        put_in_order(row, places, low, high)
        put_in_order(row, places, low + 1, low)
        pivot = row[low]
        left = low + 1
        right = high
        apart = 1
        while apart == 1:
            left = left + 1
            while after(pivot, row[left]):
                left = left + 1
            right = right - 1
            while after(row[right], pivot):
                right = right - 1
            if right < left:
                apart = 0
            else:
                swap(row, places, left, right)
        swap(row, places, low, right)
        low = left if right <= k else low
        high = right - 1 if right >= k else high
    if high == low + 1:
        put_in_order(row, places, low, high)
    return places[k]


@inline
def in_stable_order(x: Ptr[T], n: i64, rank: i64, chosen: i64) -> i64:
    """The place that a stable sort leaves at a rank, where some place of that value is known."""
    value = x[chosen]
    before = rank
    for i in range(n):
        before = before - (1 if after(value, x[i]) else 0)
    found = chosen
    for i in range(n):
        equal = x[i] == value
        found = i if equal and before == 0 else found
        before = before - (1 if equal else 0)
    return found


@kernel
def rank_rows(
    x: Ptr[T], y: Ptr[T], where: Ptr[i64], row: Ptr[T], places: Ptr[i64], n: i64, k: i64,
    how: i64, rows: i64, parts: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    for part in range(lo, hi):
        for u in range(part * rows // parts, (part + 1) * rows // parts):
            p = x + u * n
            missing = 0
            first = n
            for i in range(n):
                row[part * n + i] = p[i]
                missing = missing + (1 if p[i] != p[i] else 0)
                first = min(first, i if p[i] != p[i] else n)
            rank = max(n - missing - 1, 0) // 2 if how == PRESENT else k
            if how != KTH and missing > 0 and (how == MEDIAN or missing == n):
                found = first
            else:
                found = selected(row + part * n, places + part * n, n, rank)
                if how != KTH:
                    found = in_stable_order(p, n, rank, found)
            where[u] = found
            y[u] = p[found]


def _ranked(how: int, x: ndarray, dim: int, keepdim: bool, k: int = 1) -> Any:
    """The element of rank k, from one on, or a median, of each row, and its place."""
    kind = KINDS.get(x.dtype)
    if kind is None or not 0 <= dim < x.ndim or not x.size or buffers.small(x.size, SMALL):
        return None
    n = x.shape[dim]
    k = (n + 1) // 2 - 1 if how == MEDIAN else k - 1
    if not 0 <= k < n:
        return None
    shape = result_shape(x.shape, (dim,), keepdim)
    y, where = buffers.empty(shape, x.dtype), buffers.empty(shape, np.int64)
    x = plain(np.moveaxis(x, dim, -1))
    rows = x.size // n
    parts = min(PARTS, rows)
    row, places = buffers.empty(parts * n, x.dtype), buffers.empty(parts * n, np.int64)
    sizes = n, k, rows, parts, parts, threads.how_many(parts, max(1, GRAIN * parts // x.size))
    rank_rows.get(kind, how=how)(x, y, where, row, places, *sizes)
    return y, where


# The k-th smallest; the lower median, or the first NaN; the lower median of what is not NaN.
kthvalue, median, nanmedian = (partial(_ranked, how) for how in (KTH, MEDIAN, PRESENT))
