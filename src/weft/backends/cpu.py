"""The CPU's instruction sets are NumPy's concern."""

from __future__ import annotations


def get_cpu_capability() -> str:
    """The instruction set of weft's own kernels: none in particular."""
    return "DEFAULT"
