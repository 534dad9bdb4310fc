"""The one pool of threads: OpenMP's, shared with oneDNN."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
from collections.abc import Callable
from typing import Any

from weft.native.once import LOCK, once

_count, _asked = [0], [0]
MOST = 1024  # threads; OpenMP aborts the process if it can't create as many as requested
CELL = ctypes.c_int64(1)  # the same number, for compiled code
# Callbacks that drop cached state when the number of threads changes.
ON_CHANGE: list[Callable[[], None]] = []


def cores() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


@once
def library() -> Any:
    """libgomp, or None if it is missing: then everything runs in one thread."""
    if os.environ.get("WEFT_OPENMP") == "off":
        return None
    for name in ("libgomp.so.1", ctypes.util.find_library("gomp")):
        if name:
            try:
                # Never unloaded: its waiting threads would crash.
                return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL | getattr(os, "RTLD_NODELETE", 0))
            except OSError:
                continue
    return None


def available() -> bool:
    """Whether kernels run on several threads."""
    return library() is not None


def symbols() -> dict[str, int]:
    """The functions of the library that compiled code calls, by address."""
    if library() is None:
        return {}
    names = ("GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads")
    return {n: ctypes.cast(getattr(library(), n), ctypes.c_void_p).value or 0 for n in names}


def count() -> int:
    """How many threads a kernel uses at most."""
    if not _count[0]:
        with LOCK:
            if not _count[0]:
                asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
                CELL.value = int(asked) if asked.isdigit() and int(asked) > 0 else cores()
                _count[0] = CELL.value
    return _count[0]


def asked() -> int:
    """The requested number of threads, which may exceed the useful one."""
    return max(_asked[0], count())


def set_count(number: int) -> None:
    """Use so many threads from now on."""
    if number < 1:
        raise ValueError(f"set_num_threads expects a positive integer, but got {number}")
    _asked[0], number = number, min(number, MOST)
    if number != count():
        for forget in ON_CHANGE:
            forget()
    _count[0] = CELL.value = number
    if library() is not None:
        library().omp_set_num_threads(ctypes.c_int(number))
    found = blas()
    if found is not None and found[0]() > 1:
        found[1](number)


@once
def blas() -> Any:
    """The thread functions of NumPy's BLAS as (get, set), or None where they can't be reached."""
    import glob

    import numpy as np

    beside = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(beside, "*openblas*")):
        found = ctypes.CDLL(path)
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                get = getattr(found, f"{prefix}_get_num_threads{suffix}", None)
                put = getattr(found, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    return get, put
    return None


@once
def dgemm() -> int:
    """The address of BLAS's product of float64 matrices with 64-bit sizes, or 0."""
    import glob

    import numpy as np

    beside = os.path.join(os.path.dirname(os.path.dirname(np.__file__)), "numpy.libs")
    for path in glob.glob(os.path.join(beside, "*openblas64*")):
        found = getattr(ctypes.CDLL(path), "scipy_cblas_dgemm64_", None)
        if found is not None:
            return ctypes.cast(found, ctypes.c_void_p).value or 0
    return 0


def quiet_blas() -> None:
    """Keep BLAS to one thread: its others would spin on after a product and disturb OpenMP's."""
    found = blas()
    if found is not None:
        found[1](1)


class wide_blas:
    """All threads for BLAS within the block: for products that no other library has."""

    def __enter__(self) -> None:
        found = blas()
        if found is not None:
            found[1](count())

    def __exit__(self, *_: Any) -> None:
        quiet_blas()


def how_many(over: int, grain: int) -> int:
    """The threads for a range of which ``grain`` is worth one."""
    most = _count[0] or count()
    wanted = over // grain
    return most if wanted >= most else wanted


def _in_child() -> None:
    # The pool's threads don't exist in the child; a team of one needs none.
    for forget in ON_CHANGE:
        forget()
    _count[0] = CELL.value = _asked[0] = 1
    if library.cache_info().currsize and library() is not None:
        library().omp_set_num_threads(ctypes.c_int(1))


os.register_at_fork(after_in_child=_in_child)
