"""OpenMP: the threads of weft's kernels."""

from __future__ import annotations

from weft.native import threads as _threads


def is_available() -> bool:
    """Whether kernels run on several threads."""
    return _threads.available()
