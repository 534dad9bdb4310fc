"""Memory layouts of arrays, as required by loops."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from weft.native.memory import buffers

ndarray = np.ndarray
FLOATS = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


def plain(x: ndarray) -> ndarray:
    """The array in row-major order at aligned addresses: itself, or a copy."""
    flags = x.flags
    # NumPy's scalars have flags, shapes and dtypes too, but are not arrays to native code.
    if flags.c_contiguous and flags.aligned and isinstance(x, ndarray):
        return x
    return buffers.copied(x)


@functools.cache
def _to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


@functools.cache
def _to_second(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(x: ndarray) -> ndarray:
    """(N, C, ...) seen as (N, ..., C)."""
    return x.transpose(_to_last(x.ndim))


def channels_second(x: ndarray) -> ndarray:
    """(N, ..., C) seen as (N, C, ...)."""
    return x.transpose(_to_second(x.ndim))


def in_rows(shape: Any, strides: Any, itemsize: int) -> bool:
    """Whether elements follow one another in row-major order, as NumPy's flag has it."""
    step = itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if s != step and n:
                return 0 in shape
            step *= n
    return True


def in_channels_last(x: Any) -> bool:
    """Whether the elements of an (N, C, ...) array follow one another, channels innermost."""
    order = (0, *range(2, x.ndim), 1)
    return in_rows([x.shape[i] for i in order], [x.strides[i] for i in order], x.itemsize)


def is_last(x: ndarray) -> bool:
    """Whether an (N, C, ...) array has its channels innermost, and is not plain anyway."""
    flags = x.flags
    if flags.c_contiguous or x.ndim < 3 or not flags.aligned:
        return False
    return channels_last(x).flags.c_contiguous


def made_like(
    x: ndarray, shape: tuple[int, ...], last: bool, dtype: np.dtype | None = None
) -> ndarray:
    """A new (N, C, ...) array of a shape, with the channels innermost or not."""
    if not last:
        return buffers.empty(shape, dtype or x.dtype)
    return channels_second(buffers.empty((shape[0], *shape[2:], shape[1]), dtype or x.dtype))


def in_layout(x: ndarray, last: bool) -> ndarray:
    """An (N, C, ...) array with the channels innermost or not: itself, or a copy."""
    return channels_second(plain(channels_last(x))) if last else plain(x)


def rows_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements; an empty dimension counts as one element."""
    found, step = [], 1
    for n in reversed(shape):
        found.append(step)
        step *= n or 1
    return tuple(reversed(found))


def last_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides in elements of an (N, C, ...) array with the channels innermost."""
    steps = rows_of((shape[0], *shape[2:], shape[1]))
    return (steps[0], steps[-1], *steps[1:-1])


def suggests_last(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether strides ask for results with the channels innermost: of images or of volumes.

    Where the sizes leave it open, as with one channel, the strides of dimensions of one element
    decide. With no strides to tell, as for (N, 1, 1, 1), the answer is no.
    """
    rank = len(shape)
    if rank not in (4, 5) or not strides[1]:
        return False
    least = 0
    for d in (1, *range(rank - 1, 1, -1), 0):
        if not shape[d] or strides[d] < least or (d == 0 and least == strides[1]):
            return False
        least = strides[d] * max(shape[d], 1)
    return True


def channels_wanted(x: ndarray) -> bool:
    """Whether results for ``x`` have the channels innermost."""
    if x.ndim not in (4, 5):
        return False
    strides = x.strides
    return strides[1] <= strides[-1] and suggests_last(x.shape, strides)


def order_of(shape: tuple[int, ...], strides: tuple[tuple[int, ...], ...]) -> list[int]:
    """The dimensions of an elementwise result from the outermost to the innermost.

    ``strides`` are those of the operands, broadcast to the shape of the result. The first operand
    that tells two dimensions apart decides; a repeated dimension tells nothing.
    """
    order = list(range(len(shape)))[::-1]
    for i in range(1, len(order)):
        at = i
        for k in range(i - 1, -1, -1):
            told = _compared(order[k], order[at], shape, strides)
            if told > 0:
                order[k], order[at] = order[at], order[k]
                at = k
            elif told < 0:
                break
    return order[::-1]


def _compared(inner: int, outer: int, shape: tuple[int, ...], strides: Any) -> int:
    for steps in strides:
        a, b = steps[inner], steps[outer]
        if not a or not b:
            continue
        if a != b:
            return -1 if a < b else 1
        if shape[inner] > shape[outer]:
            return 1
    return 0


def in_order(shape: tuple[int, ...], order: list[int]) -> tuple[int, ...]:
    """The strides in elements of a dense array, for its dimensions from outermost to innermost."""
    found, step = [0] * len(shape), 1
    for d in reversed(order):
        found[d] = step
        step *= shape[d] or 1
    return tuple(found)


def is_dense(shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> bool:
    """Whether elements of ``size`` bytes fill a block of memory without gaps or overlaps."""
    step = size
    for s, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if s != step:
            return False
        step *= n
    return True


@functools.lru_cache(4096)
def strides_of_result(shape: tuple[int, ...], operands: Any) -> tuple[int, ...]:
    """The strides in elements that an elementwise result of ``shape`` has.

    ``operands`` are pairs of shape and strides in elements.
    """
    if all(s == shape for s, _ in operands):
        rows = rows_of(shape)
        if all(_alike(shape, t, rows) for _, t in operands):
            return rows
        if len(shape) == 4:
            last = last_of(shape)
            if all(_alike(shape, t, last) for _, t in operands):
                return last
        first = operands[0][1]
        if all(t == first for _, t in operands) and is_dense(shape, first, 1):
            return first
    spread = tuple(
        (0,) * (len(shape) - len(s))
        + tuple(
            0 if n == 1 and m != 1 else t
            for n, m, t in zip(s, shape[len(shape) - len(s) :], steps, strict=True)
        )
        for s, steps in operands
    )
    return in_order(shape, order_of(shape, spread))


def _alike(shape: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether strides differ at most where there is but one element."""
    return all(n == 1 or s == t for n, s, t in zip(shape, a, b, strict=True))


def with_strides(y: ndarray, steps: tuple[int, ...]) -> ndarray:
    """The array with the given dense strides, in elements: itself, a view of it, or a copy."""
    wanted = tuple(s * y.itemsize for s in steps)
    if y.strides == wanted:
        return y
    if _alike(y.shape, y.strides, wanted):
        return np.lib.stride_tricks.as_strided(y, y.shape, wanted)
    out = empty_with(y.shape, y.dtype, steps)
    buffers.move(out, y)
    return out


def empty_with(shape: tuple[int, ...], dtype: np.dtype, steps: tuple[int, ...]) -> ndarray:
    """A new array with the given dense strides, in elements."""
    size = dtype.itemsize
    # Bytes, since half types that NumPy does not know offer no buffer.
    memory = buffers.empty(math.prod(shape) * size, np.uint8)
    return np.ndarray(shape, dtype, memory, 0, tuple([s * size for s in steps]))


def dense_steps(x: ndarray) -> tuple[int, ...]:
    """Strides in elements without gaps, for dimensions in the order of those of an array."""
    shape, steps = geometry(x)
    return steps if is_dense(shape, steps, 1) else in_order(shape, order_of(shape, (steps,)))


def empty_like_dense(x: ndarray, d: np.dtype) -> ndarray:
    """A new array without gaps, its dimensions in the order of those of another."""
    return empty_with(x.shape, d, dense_steps(x))


def like_operands(y: ndarray, arrays: Any) -> ndarray:
    """An elementwise result in the memory order that its operands ask for."""
    if y.__class__ is not ndarray or y.ndim < 2:
        return y
    for a in arrays:
        if a.__class__ is ndarray and not a.flags.c_contiguous:
            break
    else:
        if y.flags.c_contiguous:
            return y
    given = [a for a in arrays if a.__class__ is ndarray]
    first = given[0]
    if first is y or (first.shape == y.shape and first.strides == y.strides) or not y.size:
        return y
    return with_strides(y, strides_of_result(y.shape, tuple(map(geometry, given))))


def geometry(x: ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape, and the strides in elements."""
    size = x.itemsize
    return x.shape, tuple([s // size for s in x.strides])


def like_image(y: ndarray, last: bool) -> ndarray:
    """A result of (N, C, ...) with the channels innermost or in rows."""
    if not y.size or (not last and y.flags.c_contiguous):
        return y
    return with_strides(y, (last_of if last else rows_of)(y.shape))
