"""cuDNN is not used. Its switches can be set and read, and change nothing.

>>> torch.backends.cudnn.deterministic = True
>>> torch.backends.cudnn.benchmark = False
>>> torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
(True, False)
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """Whether cuDNN is there: never."""
    return False


def version() -> int | None:
    """The version of cuDNN: None."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """Whether cuDNN could work on a tensor: never."""
    return False


@contextlib.contextmanager
def flags(**switches: Any) -> Iterator[None]:
    """Set switches for the length of a ``with`` block."""
    before = {name: globals()[name] for name in switches}
    globals().update(switches)
    try:
        yield
    finally:
        globals().update(before)
