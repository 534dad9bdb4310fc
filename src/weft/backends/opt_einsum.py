"""opt_einsum is not used; NumPy finds the order of products."""

from __future__ import annotations

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """Whether opt_einsum is used: no."""
    return False
