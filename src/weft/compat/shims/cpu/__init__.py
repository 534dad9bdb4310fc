"""The CPU as a device: the one that is there."""

from __future__ import annotations

import contextlib
from typing import Any

from weft.cpu import amp  # noqa: F401


def is_available() -> bool:
    """Whether the CPU can be used: always."""
    return True


def is_initialized() -> bool:
    """Whether the CPU is ready: always."""
    return True


def device_count() -> int:
    """The number of CPU devices: one."""
    return 1


def current_device() -> str:
    """The name of the device."""
    return "cpu"


def set_device(device: Any) -> None:
    """No effect: there is no other."""


def synchronize(device: Any = None) -> None:
    """No effect: ops are done when they return."""


def stream(stream: Any) -> contextlib.AbstractContextManager:
    """A ``with`` block that changes nothing."""
    return contextlib.nullcontext()
