"""Logs for TensorBoard: not there yet, and it says what to use meanwhile."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    # An ImportError, which is what programs that can do without it catch.
    raise ImportError(
        f"weft does not write TensorBoard logs yet, so there is no torch.utils.tensorboard.{name}. "
        "The package tensorboardX writes them from plain numbers and arrays "
        "(pip install tensorboardX)"
    )
