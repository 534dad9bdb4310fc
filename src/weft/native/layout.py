"""How arrays lie in memory, as loops ask for it."""

from __future__ import annotations

import functools

import numpy as np

ndarray = np.ndarray
FLOATS = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64"}


def plain(x: ndarray) -> ndarray:
    """The array in row-major order at aligned addresses: itself, or a copy."""
    flags = x.flags
    return x if flags.c_contiguous and flags.aligned else np.array(x, order="C")


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
        return np.empty(shape, dtype or x.dtype)
    return channels_second(np.empty((shape[0], *shape[2:], shape[1]), dtype or x.dtype))


def in_layout(x: ndarray, last: bool) -> ndarray:
    """An (N, C, ...) array with the channels innermost or not: itself, or a copy."""
    return channels_second(plain(channels_last(x))) if last else plain(x)
