"""Questions about objects that stand in for tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft.core.tensor import Tensor


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or says how functions act on it."""
    return isinstance(inp, Tensor) or hasattr(type(inp), "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether an argument, other than a plain tensor, says how functions act on it."""
    return any(
        hasattr(type(a), "__torch_function__") and not isinstance(a, Tensor) for a in relevant_args
    )


def has_torch_function_unary(arg: Any) -> bool:
    """``has_torch_function`` of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """``has_torch_function`` of several arguments."""
    return has_torch_function(args)


def get_default_nowrap_functions() -> set[Callable]:
    """Functions whose results keep their own class."""
    return set()


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether a function belongs to the class of tensors."""
    return getattr(Tensor, getattr(func, "__name__", ""), None) is func
