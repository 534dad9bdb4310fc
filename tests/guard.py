"""Arrays beside memory that nobody may touch.

``before(x)`` is a copy of an array whose last byte lies right before an unreadable page, and
``after(x)`` one whose first byte lies right behind one. A kernel that reads or writes beyond such
an array ends the process with a segmentation fault, so what uses these runs in a process of its
own.
"""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def _room(size: int, at_end: bool) -> np.ndarray:
    """So many bytes between two unreadable pages, touching the second or the first of them."""
    whole = max(1, -(-size // PAGE)) * PAGE
    mapped = mmap.mmap(-1, whole + 2 * PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
    for page in (start, start + PAGE + whole):
        if _mprotect(page, PAGE, 0):
            raise OSError(ctypes.get_errno(), "mprotect failed")
    # The array holds the mapping, which is closed with it.
    offset = PAGE + (whole - size if at_end else 0)
    return np.frombuffer(mapped, np.uint8, size, offset)


def _extent(x: np.ndarray) -> tuple[int, int]:
    """Bytes before and behind the first element that an array's elements take."""
    low, high = 0, x.itemsize
    for size, stride in zip(x.shape, x.strides, strict=True):
        step = (size - 1) * stride
        low, high = low + min(step, 0), high + max(step, 0)
    return -low, high


def _moved(x: np.ndarray, at_end: bool) -> np.ndarray:
    if not x.size:
        return np.ndarray(x.shape, x.dtype, _room(0, at_end), strides=x.strides)
    low, high = _extent(x)
    made = np.ndarray(x.shape, x.dtype, _room(low + high, at_end), low, x.strides)
    made[...] = x
    return made


def before(x: np.ndarray) -> np.ndarray:
    """A copy with the same strides that ends at an unreadable page."""
    return _moved(np.asarray(x), True)


def after(x: np.ndarray) -> np.ndarray:
    """A copy with the same strides that begins right behind an unreadable page."""
    return _moved(np.asarray(x), False)


def everywhere(value: Any, at_end: bool = True) -> Any:
    """The same for all arrays in tuples, lists and dicts; other values stay."""
    if isinstance(value, np.ndarray):
        return _moved(value, at_end)
    if isinstance(value, (tuple, list)):
        return type(value)(everywhere(v, at_end) for v in value)
    if isinstance(value, dict):
        return {key: everywhere(v, at_end) for key, v in value.items()}
    return value
