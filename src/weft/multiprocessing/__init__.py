"""Python's ``multiprocessing``, with tensors that processes share instead of copying.

A tensor that goes through a queue or pipe, or to a process that is started, moves to memory that
both processes see; ``share_memory_`` moves it there at once.
"""

# ruff: noqa: F403 - it offers what multiprocessing offers

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import *

from weft.multiprocessing import reductions
from weft.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *multiprocessing.__all__,
    "ProcessContext", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
    "start_processes",
]  # fmt: skip

_STRATEGIES = {"file_descriptor", "file_system"} if sys.platform == "linux" else {"file_system"}
_strategy = "file_descriptor" if sys.platform == "linux" else "file_system"


def get_all_sharing_strategies() -> set[str]:
    """The names that ``set_sharing_strategy`` takes."""
    return set(_STRATEGIES)


def get_sharing_strategy() -> str:
    """The name that was set last."""
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Take note of a strategy; shared memory is a file without a name under either of them."""
    global _strategy
    if new_strategy not in _STRATEGIES:
        raise AssertionError(
            f"there is no sharing strategy {new_strategy!r}; there is {sorted(_STRATEGIES)}"
        )
    _strategy = new_strategy


def init_reductions() -> None:
    """Have tensors shared between processes; importing this module has done so."""
    reductions.register()


init_reductions()
