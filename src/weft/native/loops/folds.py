"""Padding with an array's own elements, by an index table for each padded dimension."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.native.codegen.compiler import Ptr, T, array, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.loops.movement import _in_rows, _shares, _word
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS

ndarray = np.ndarray
SMALL = 1024


@inline
def longest_run(places: Ptr[i64], n: i64, run: Ptr[i64]) -> None:
    """Where neighbours in the result are neighbours in the input: the middle, as a rule.

    Its begin, its end, and how far away the input's are.
    """
    run[0] = 0
    run[1] = 0
    start = 0
    for i in range(n):
        if i > 0 and places[i] != places[max(i - 1, 0)] + 1:
            start = i
        if i + 1 - start > run[1] - run[0]:
            run[0] = start
            run[1] = i + 1
    run[2] = places[run[0]] - run[0]


@kernel
def fold_rows(
    x: Ptr[T], y: Ptr[T], at_a: Ptr[i64], at_b: Ptr[i64], at_c: Ptr[i64], a: i64, b: i64, c: i64,
    na: i64, nb: i64, nc: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    run = array(i64, 3)
    longest_run(at_c, nc, run)
    begin, end, shift = run[0], run[1], run[2]
    for u in range(lo, hi):
        source = x + ((u // (na * nb) * a + at_a[u // nb % na]) * b + at_b[u % nb]) * c
        to = y + u * nc
        for i in range(begin):
            to[i] = source[at_c[i]]
        for i in range(begin, end):
            to[i] = source[i + shift]
        for i in range(end, nc):
            to[i] = source[at_c[i]]


@kernel
def unfold_planes(
    g: Ptr[T], y: Ptr[T], at_a: Ptr[i64], at_b: Ptr[i64], at_c: Ptr[i64], a: i64, b: i64, c: i64,
    na: i64, nb: i64, nc: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    """The transpose: what was read in several places is the sum of these, in order."""
    run = array(i64, 3)
    longest_run(at_c, nc, run)
    begin, end, shift = run[0], run[1], run[2]
    for plane in range(lo, hi):
        whole = y + plane * a * b * c
        for i in range(a * b * c):
            whole[i] = 0.0
        for u in range(na * nb):
            to = whole + (at_a[u // nb] * b + at_b[u % nb]) * c
            source = g + (plane * na * nb + u) * nc
            for i in range(begin):
                to[at_c[i]] = to[at_c[i]] + source[i]
            for i in range(begin, end):
                to[i + shift] = to[i + shift] + source[i]
            for i in range(end, nc):
                to[at_c[i]] = to[at_c[i]] + source[i]


def _tables(shape: tuple[int, ...], maps: Any) -> list[ndarray] | None:
    """Tables of places for each of the last three dimensions; None for others, or bad places."""
    lead = max(3 - len(shape), 0)
    found: list[Any] = [None] * 3
    for dim, index in maps:
        k = dim + lead - max(len(shape) - 3, 0)
        fits = 0 <= dim < len(shape) and 0 <= k < 3 and found[k] is None
        if not (fits and isinstance(index, ndarray) and index.ndim == 1 and index.size):
            return None
        if index.dtype != np.int64 or index.min() < 0 or index.max() >= shape[dim]:
            return None
        found[k] = np.ascontiguousarray(index)
    sizes = (1,) * lead + tuple(shape[-3:])
    made = [np.arange(n) if at is None else at for n, at in zip(sizes, found, strict=True)]
    buffers.constant(*made)
    return made


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1,) * (3 - len(shape)) + tuple(shape[-3:])


def pad_by(x: ndarray, maps: Any, circular: bool = False) -> ndarray | None:
    """An array with the elements of other places around it."""
    kind, tables = _word(x.dtype), _tables(x.shape, maps)
    if kind is None or tables is None or buffers.small(x.size, SMALL):
        return None
    longer = {dim: len(index) for dim, index in maps}
    shape = tuple(longer.get(d, n) for d, n in enumerate(x.shape))
    y, (na, nb, nc) = buffers.empty(shape, x.dtype), _sizes(shape)
    run, sizes = fold_rows.get(kind), (*_sizes(x.shape), na, nb, nc)
    run(_in_rows(x), y, *tables, *sizes, *_shares(prod(shape) // nc, nc))
    return y


def pad_by_back(g: ndarray, shape: Any, maps: Any) -> ndarray | None:
    """The transpose of ``pad_by``, for an input of a shape."""
    kind = FLOATS.get(g.dtype)
    if kind is None or len(shape) != g.ndim or buffers.small(g.size, SMALL):
        return None
    longer, tables = {dim: len(index) for dim, index in maps}, _tables(tuple(shape), maps)
    wanted = tuple(longer.get(d, n) for d, n in enumerate(shape))
    if tables is None or g.shape != wanted or not prod(shape):
        return None
    y, (na, nb, nc) = buffers.empty(tuple(shape), g.dtype), _sizes(g.shape)
    run, sizes = unfold_planes.get(kind), (*_sizes(shape), na, nb, nc)
    plane = na * nb * nc
    run(_in_rows(g), y, *tables, *sizes, *_shares(g.size // plane, plane))
    return y
