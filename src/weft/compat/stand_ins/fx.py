"""Around ``torch.fx``: marks, and questions about sizes and stand-ins that weft does not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compatibility(is_backward_compatible: bool) -> Callable:
    """A decorator that says how stable a function is."""
    return lambda fn: fn


def get_proxy_mode() -> None:
    """The tracing that is going on: none."""


def statically_known_true(x: Any) -> bool:
    """Whether a condition on sizes holds; sizes are numbers here."""
    return bool(x)


guard_or_false = guard_or_true = statically_known_true


def free_symbols(val: Any) -> set[Any]:
    """The unknowns in a size: none."""
    return set()


free_unbacked_symbols = free_symbols


def is_fake(x: Any) -> bool:
    """Whether a tensor is one of graph capture's, without values: never."""
    return False


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """Whether a tensor wraps others and says how to take it apart."""
    kind = type(t)
    return hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def register_pytree_flatten_spec(cls: type, flatten_fn_spec: Any, exact: Any = None) -> None:
    """Say how tracing takes a container apart; nothing is traced."""
