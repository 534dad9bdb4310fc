"""What the tests of native loops share: layouts, thread counts, errors in units of eps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.native import threads


def channels_last(x: np.ndarray) -> np.ndarray:
    """The same (N, C, ...) values with the channels innermost in memory."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(x, 1, -1)), -1, 1)


def unaligned(x: np.ndarray) -> np.ndarray:
    """The same values at addresses that are no multiples of the element's size."""
    room = np.empty(x.nbytes + 1, np.uint8)
    moved = room[1:].view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def layouts(x: np.ndarray) -> Iterator[np.ndarray]:
    """The same (N, C, ...) values lying in memory in several ways."""
    yield x
    yield unaligned(x)
    yield np.repeat(x, 2, axis=-1)[..., ::2]
    if x.ndim > 2:
        yield channels_last(x)


def over_threads(call: Any) -> Any:
    """A call's result, which must be the same bits for any number of threads."""
    before = threads.count()
    results = []
    try:
        for count in (1, 2, 3, 5):
            threads.set_count(count)
            results.append(call())
    finally:
        threads.set_count(before)
    first = results[0] if isinstance(results[0], tuple) else (results[0],)
    for other in results[1:]:
        for a, b in zip(first, other if isinstance(other, tuple) else (other,), strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.strides == b.strides
                assert a.tobytes() == b.tobytes()
    return results[0]


def close(a: np.ndarray, wanted: np.ndarray, scale: Any, units: float) -> None:
    """Each error is at most ``units`` times the type's eps times ``scale``."""
    assert a.shape == wanted.shape
    limit = units * np.finfo(a.dtype).eps * scale
    assert (np.abs(a - wanted) <= limit).all(), np.max(np.abs(a - wanted) / limit) * units
