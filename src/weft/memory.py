"""The memory behind tensors: how much is in use, how much is kept for reuse.

Arrays of more than 32 kB come from a pool as soon as native kernels are in use; the pool keeps
freed blocks, because fresh memory is slow. ``weft.memory.owners()`` shows what keeps memory alive.
"""

from __future__ import annotations

from typing import Any

from weft.native.memory import pool as _pool

__all__ = ["empty_cache", "set_limit", "stats"]


def stats() -> dict[str, int]:
    """Bytes in use and kept, the most ever in use, and how often a kept block was at hand.

    All zero as long as no native kernel has run.
    """
    return _pool.any_stats()


def empty_cache() -> int:
    """Give all kept blocks back to the system; how many bytes that were."""
    found = _pool.current()
    return 0 if found is None else found.trim()


def set_limit(most: int | None) -> None:
    """Keep at most so many bytes for reuse; None for the default, half of the machine's memory."""
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 0):
        raise ValueError(f"set_limit takes a number of bytes or None, not {most!r}")
    found = _pool.pool()
    if found is not None:
        found.set_limit(_pool.memory_limit() if most is None else most)


def __getattr__(name: str) -> Any:
    if name == "owners":
        from weft.graph.owners import owners

        return owners
    raise AttributeError(f"module 'weft.memory' has no attribute {name!r}")
