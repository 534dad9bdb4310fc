"""Which of equal elements is chosen: the steps of the C++ library that PyTorch is built with.

``std::nth_element``, ``std::sort`` and ``std::partial_sort`` are not stable, so where ties stand
follows from their steps alone. Here they work on the numbers of elements; ``before`` compares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Before = Callable[[int, int], bool]
FEW = 16  # elements that are sorted by insertion


def top(row: np.ndarray, k: int, largest: bool) -> list[int]:
    """The indices of the ``k`` greatest or smallest elements, in order; NaN is greatest."""
    row = row if row.dtype.kind in "iuf" else row.astype(np.float32)
    ranks = np.unique(row, return_inverse=True)[1].reshape(-1)
    key: list[int] = (-ranks if largest else ranks).tolist()
    places = list(range(len(key)))

    def before(a: int, b: int) -> bool:
        return key[a] < key[b]

    if k * 64 <= len(key):
        _heap_select(places, 0, k, len(key), before)
        _sort_heap(places, 0, k, before)
    else:
        _nth_element(places, k - 1, before)
        _sort(places, k - 1, before)
    return places[:k]


def _depth(size: int) -> int:
    return 2 * (size.bit_length() - 1)


def _nth_element(a: list[int], nth: int, before: Before) -> None:
    first, last, depth = 0, len(a), _depth(len(a))
    while last - first > 3:
        if not depth:
            _heap_select(a, first, nth + 1, last, before)
            a[first], a[nth] = a[nth], a[first]
            return
        depth -= 1
        cut = _partition(a, first, last, before)
        first, last = (cut, last) if cut <= nth else (first, cut)
    _insert(a, first, last, before)


def _sort(a: list[int], last: int, before: Before) -> None:
    if not last:
        return
    stretches = [(0, last, _depth(last))]
    while stretches:
        first, stop, depth = stretches.pop()
        while stop - first > FEW:
            if not depth:
                _heap_select(a, first, stop, stop, before)
                _sort_heap(a, first, stop, before)
                break
            depth -= 1
            cut = _partition(a, first, stop, before)
            stretches.append((cut, stop, depth))
            stop = cut
    _insert(a, 0, last, before)


def _partition(a: list[int], first: int, last: int, before: Before) -> int:
    """Hoare's partition about the median of three, which is put in front."""
    x, y, z = first + 1, first + (last - first) // 2, last - 1
    if before(a[x], a[y]):
        middle = y if before(a[y], a[z]) else z if before(a[x], a[z]) else x
    else:
        middle = x if before(a[x], a[z]) else z if before(a[y], a[z]) else y
    a[first], a[middle] = a[middle], a[first]
    pivot, low, high = a[first], first + 1, last
    while True:
        while before(a[low], pivot):
            low += 1
        high -= 1
        while before(pivot, a[high]):
            high -= 1
        if low >= high:
            return low
        a[low], a[high] = a[high], a[low]
        low += 1


def _insert(a: list[int], first: int, last: int, before: Before) -> None:
    """Insertion sort."""
    for i in range(first + 1, last):
        value, hole = a[i], i
        while hole > first and before(value, a[hole - 1]):
            a[hole] = a[hole - 1]
            hole -= 1
        a[hole] = value


def _heap_select(a: list[int], first: int, middle: int, last: int, before: Before) -> None:
    """The first elements in order as a heap in front, the last of them on top."""
    size = middle - first
    for parent in range((size - 2) // 2, -1, -1) if size > 1 else ():
        _sift(a, first, parent, size, a[first + parent], before)
    for i in range(middle, last):
        if before(a[i], a[first]):
            value, a[i] = a[i], a[first]
            _sift(a, first, 0, size, value, before)


def _sort_heap(a: list[int], first: int, last: int, before: Before) -> None:
    while last - first > 1:
        last -= 1
        value, a[last] = a[last], a[first]
        _sift(a, first, 0, last - first, value, before)


def _sift(a: list[int], first: int, hole: int, size: int, value: int, before: Before) -> None:
    """Move a hole down to a leaf, then the value up from there."""
    top_of, child = hole, hole
    while child < (size - 1) // 2:
        child = 2 * (child + 1)
        if before(a[first + child], a[first + child - 1]):
            child -= 1
        a[first + hole] = a[first + child]
        hole = child
    if size % 2 == 0 and child == (size - 2) // 2:
        child = 2 * (child + 1)
        a[first + hole] = a[first + child - 1]
        hole = child - 1
    parent = (hole - 1) // 2
    while hole > top_of and before(a[first + parent], value):
        a[first + hole] = a[first + parent]
        hole, parent = parent, (parent - 1) // 2
    a[first + hole] = value


def tied(x: np.ndarray, chosen: np.ndarray, axis: int) -> Any:
    """Which rows have equal elements among the chosen ones (in order), or left one out."""
    same = lambda a, b: (a == b) | ((a != a) & (b != b))
    chosen, x = np.moveaxis(chosen, axis, -1), np.moveaxis(x, axis, -1)
    last = chosen[..., -1:]
    inside = same(chosen[..., 1:], chosen[..., :-1]).any(-1)
    return inside | (same(x, last).sum(-1) > same(chosen, last).sum(-1))
