"""mkl is not used by weft; NumPy may bring a BLAS of its own."""

from __future__ import annotations


def is_available() -> bool:
    """Whether weft uses it: no."""
    return False
