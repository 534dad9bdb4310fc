"""Process-wide settings: threads, matmul precision, deterministic algorithms."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from weft.native import threads


class _CoreSettings:
    interop = 1
    precision = "highest"
    deterministic = False
    warn_only = False
    fill_uninitialized = True


def _positive(name: str, number: int) -> int:
    """A number of threads as C's int holds it."""
    number = operator.index(number)
    if number > 0x7FFF_FFFF:
        raise ValueError(f"{name}: Overflow when unpacking long: {number} threads")
    if number <= 0:
        raise RuntimeError(f"{name} expects a positive integer, but got {number}")
    return number


def get_num_threads() -> int:
    """The number of threads that a kernel may use."""
    return threads.asked()


def set_num_threads(number: int) -> None:
    """Set the number of threads that a kernel may use."""
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(f"set_num_threads expects an int, but got {type(number).__name__}")
    threads.set_count(_positive("set_num_threads", number))


def get_num_interop_threads() -> int:
    """The number of threads between ops: ops run one after another, so this is only kept."""
    return _CoreSettings.interop


def set_num_interop_threads(number: int) -> None:
    """Keep a number for ``get_num_interop_threads``."""
    _CoreSettings.interop = _positive("set_num_interop_threads", number)


def get_float32_matmul_precision() -> str:
    """The precision asked for; products are always done in full float32."""
    return _CoreSettings.precision


def set_float32_matmul_precision(precision: str) -> None:
    """Ask for a precision; full float32 satisfies every choice."""
    if precision in ("highest", "high", "medium"):
        _CoreSettings.precision = precision


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms; all of weft's are.

    >>> torch.use_deterministic_algorithms(True)
    >>> torch.are_deterministic_algorithms_enabled()
    True
    >>> torch.use_deterministic_algorithms(False)
    """
    for name, value in (("mode' (position 1)", mode), ("warn_only'", warn_only)):
        if not isinstance(value, bool):
            raise TypeError(
                f"_set_deterministic_algorithms(): argument '{name} must be bool, not "
                f"{type(value).__name__}"
            )
    _CoreSettings.deterministic, _CoreSettings.warn_only = mode, warn_only


def fills_memory() -> bool:
    """Whether deterministic algorithms fill uninitialised memory."""
    return _CoreSettings.fill_uninitialized


def fill_memory(mode: bool) -> None:
    """Set whether deterministic algorithms fill uninitialised memory."""
    if not isinstance(mode, bool):
        raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
    _CoreSettings.fill_uninitialized = mode


def undefined(array: np.ndarray) -> np.ndarray:
    """New memory, uninitialised; with deterministic algorithms, filled with NaN or the largest
    value.
    """
    if _CoreSettings.deterministic and _CoreSettings.fill_uninitialized:
        kind = array.dtype.kind
        array.fill(np.iinfo(array.dtype).max if kind in "iu" else True if kind == "b" else np.nan)
    return array


def undefine(tensor: Any) -> None:
    """The same for a new tensor of the CPU."""
    if _CoreSettings.deterministic:
        undefined(tensor._a)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether deterministic algorithms were asked for."""
    return _CoreSettings.deterministic


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether only a warning was asked for where none is deterministic."""
    return _CoreSettings.warn_only


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Ask for deterministic algorithms by level: default, warn or error."""
    levels = {"default": 0, "warn": 1, "error": 2}
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    level = levels.get(debug_mode, -1) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        named = "one of `default`, `warn`, `error`"
        expected = named if isinstance(debug_mode, str) else "0, 1, or 2"
        raise RuntimeError(
            f"invalid value of debug_mode, expected {expected}, but got {debug_mode}"
        )
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """The level of ``set_deterministic_debug_mode``."""
    return (1 if _CoreSettings.warn_only else 2) if _CoreSettings.deterministic else 0


def set_flush_denormal(mode: bool) -> bool:
    """Ask for flushing of denormal numbers; not possible from Python, so always False."""
    return False
