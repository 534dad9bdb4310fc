"""Fused attention: each matrix is computed by one thread in cache.

Tests hold the error of an element below 16 eps times the largest one; the number of threads does
not change a bit.
"""

from __future__ import annotations

from math import prod

import numpy as np

from weft.native import threads
from weft.native.gemm.blocks import block
from weft.native.gemm.packed import ceil_div, places
from weft.native.loops import attention as loops
from weft.native.loops.rows import height
from weft.native.memory import buffers
from weft.native.memory.layout import plain

Array = np.ndarray
F32 = np.dtype(np.float32)
MATRICES = 8  # that are worth being done one by one, each by one thread
WORK = 1 << 19  # multiplications of all of them that are
LONGEST = 1024  # queries or keys
K_LIMIT = 256  # elements of a query or a value


def attention(
    query: Array, key: Array, value: Array, scale: float, causal: bool
) -> tuple[Array, Array] | None:
    """Means of values and their weights, or None for unsupported inputs."""
    if not _takes(query, key, value):
        return None
    query, key, value = (_near(x) for x in (query, key, value))
    stack, queries, keys = query.shape[:-2], query.shape[-2], key.shape[-2]
    y = _like(query, (*query.shape[:-1], value.shape[-1]))
    weights = buffers.empty((*stack, queries, keys), F32)
    _, _, width = block()
    info, padded, across = _table(query, key, value, y, width)
    tall = height("f32")
    scratch_each = padded * query.shape[-1] + across * keys + tall * (padded + across)
    info[loops.SCRATCH] = scratch_each
    tasks, workers = _shares(stack)
    loops.forward.get(causal=int(causal), height=tall, width=width)(
        *(query, key, value, y, weights, *map(_where, (query, key, value, y))),
        *(
            info,
            buffers.empty(workers * scratch_each, F32),
            float(scale),
            tasks,
            workers,
            workers,
            workers,
        ),
    )
    return y, weights


def attention_back(
    g: tuple[Array, Array | None],
    query: Array,
    key: Array,
    value: Array,
    weights: Array,
    needs: tuple[bool, ...],
    scale: float,
    causal: bool,
) -> tuple[Array | None, ...] | None:
    """The gradients that are needed, or None."""
    given, other = g
    wanted = (*query.shape[:-1], value.shape[-1])
    if other is not None or not _takes(query, key, value) or given.dtype != F32:
        return None
    if given.shape != wanted or not weights.flags.c_contiguous:
        return None
    if weights.shape != (*query.shape[:-1], key.shape[-2]) or weights.dtype != F32:
        return None
    given, query, key, value = (_near(x) for x in (given, query, key, value))
    _, tall, width = block()
    low = height("f32")
    info, padded, across = _table(query, key, value, given, width)
    queries, k_size, wide = query.shape[-2], query.shape[-1], value.shape[-1]
    keys, down = key.shape[-2], ceil_div(k_size, width) * width
    scratch_each = padded * wide + down * (keys + queries) + across * queries
    scratch_each += 2 * (queries * padded + tall) + low * down + tall * width
    info[loops.SCRATCH] = scratch_each
    results = [_like(x, x.shape) for x in (query, key, value)]
    steps = np.array([x.strides[-2] // 4 for x in results], np.int64)
    tasks, workers = _shares(query.shape[:-2])
    loops.backward.get(causal=int(causal), height=low, tall=tall, width=width)(
        *(given, query, key, value, weights, *results),
        *map(_where, (given, query, key, value, *results)),
        *(steps, info, buffers.empty(workers * scratch_each, F32), float(scale)),
        *(tasks, workers, workers, workers),
    )
    return tuple(r if need else None for r, need in zip(results, needs, strict=True))


def _takes(query: Array, key: Array, value: Array) -> bool:
    """Whether these are many matrices that are small enough for the cache."""
    if not query.dtype is key.dtype is value.dtype is F32 or query.ndim < 3:
        return False
    stack, (queries, k_size), (keys, wide) = query.shape[:-2], query.shape[-2:], value.shape[-2:]
    if key.shape != (*stack, keys, k_size) or value.shape[:-2] != stack:
        return False
    if not 0 < queries <= LONGEST or not 0 < keys <= LONGEST:
        return False
    if not 0 < k_size <= K_LIMIT or not 0 < wide <= K_LIMIT:
        return False
    count = prod(stack)
    return count >= MATRICES and count * queries * keys * k_size >= WORK


def _near(x: Array) -> Array:
    """An array with contiguous, aligned rows: itself, or a copy."""
    whole = x.strides[-1] == 4 and x.flags.aligned and not any(s % 4 for s in x.strides)
    return x if whole else plain(x)


def _like(x: Array, shape: tuple[int, ...]) -> Array:
    """A new array whose dimensions have the memory order of another one's."""
    order = sorted(range(x.ndim - 1), key=lambda i: -abs(x.strides[i]))
    made = buffers.empty([*(shape[i] for i in order), shape[-1]], F32)
    return made.transpose([*np.argsort(order), x.ndim - 1])


def _where(x: Array) -> Array:
    return places(x.shape, x.strides, x.shape[:-2])


def _table(query: Array, key: Array, value: Array, y: Array, width: int) -> tuple[Array, int, int]:
    """The table of the loops, with the widths of keys and of values in whole panels."""
    info = np.zeros(loops.SIZE, np.int64)
    keys, wide = value.shape[-2:]
    padded, across = (ceil_div(n, width) * width for n in (keys, wide))
    info[: loops.WIDE + 1] = query.shape[-2], keys, query.shape[-1], wide
    info[loops.STEP_Q : loops.PADDED] = [x.strides[-2] // 4 for x in (query, key, value, y)]
    info[loops.PADDED] = padded
    return info, padded, across


def _shares(stack: tuple[int, ...]) -> tuple[int, int]:
    tasks = prod(stack)
    return tasks, min(threads.count(), tasks)
