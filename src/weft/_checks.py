"""Checks that raise with a message of the caller's, and a choice between two functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import Tensor

__all__ = [
    "_check", "_check_index", "_check_is_size", "_check_not_implemented", "_check_tensor_all",
    "_check_tensor_all_with", "_check_type", "_check_value", "_check_with", "cond",
]  # fmt: skip


def _check_with(
    error_type: type[Exception], cond: bool, message: Callable[[], Any] | None = None
) -> None:
    """Raise an error of this kind unless a condition holds."""
    if not isinstance(cond, bool):
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        text = "Expected cond to be True, but got False. (Could this error message be improved?)"
    elif not callable(message):
        raise TypeError("message must be a callable")
    else:
        text = str(message())
    raise error_type(text)


def _check(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise RuntimeError unless a condition holds."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise IndexError unless a condition holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise ValueError unless a condition holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise TypeError unless a condition holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: bool, message: Callable[[], Any] | None = None) -> None:
    """Raise NotImplementedError unless a condition holds."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(
    i: int, message: Callable[[], Any] | None = None, *, max: int | None = None
) -> None:
    """Raise RuntimeError unless a number can be a size."""
    _check(i >= 0 and (max is None or i <= max), message)


def _check_tensor_all(cond: Tensor, message: Callable[[], Any] | None = None) -> None:
    """Raise RuntimeError unless a condition holds everywhere in a tensor of bools."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Tensor, message: Callable[[], Any] | None = None
) -> None:
    """Raise an error of this kind unless a condition holds everywhere in a tensor of bools."""
    if not isinstance(cond, Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}\n  at {errors.here()}")
    if cond.dtype is not dt.bool_:
        raise TypeError(
            f"cond tensor must have dtype torch.bool, but got {cond.dtype!r}\n  at {errors.here()}"
        )
    _check_with(error_type, bool(cond.all()), message)


def cond(pred: Any, true_fn: Callable, false_fn: Callable, operands: Sequence[Any] = ()) -> Any:
    """What one of two functions gives: the first if ``pred`` holds, else the second."""
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(
            f"Expected pred to be bool or single-element tensor, but got a tensor of shape "
            f"{tuple(pred.shape)}\n  at {errors.here()}"
        )
    return (true_fn if bool(pred) else false_fn)(*operands)
