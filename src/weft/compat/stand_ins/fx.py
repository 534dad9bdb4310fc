"""What of ``torch.fx`` works without tracing: marks, and questions about sizes."""

from __future__ import annotations

import functools  # noqa: F401 - libraries take it from here
from collections.abc import Callable
from types import FunctionType  # noqa: F401
from typing import Any

Target = Callable[..., Any] | str
Argument = Any


def wrap(fn_or_name: Any) -> Any:
    """Mark a function as one that tracing keeps whole."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name"
        )
    return fn_or_name


def compatibility(is_backward_compatible: bool) -> Callable:
    """A decorator that says how stable a function is."""
    return lambda fn: fn


def is_fx_tracing() -> bool:
    """Whether a function is being traced: never."""
    return False


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


class immutable_list(list):
    """A list that refuses to be changed."""

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"'{type(self).__name__}' object does not support mutation. If you are attempting to "
            "modify the kwargs or args of a torch.fx.Node object, create a new one instead"
        )

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))


class immutable_dict(dict):
    """A dictionary that refuses to be changed."""

    clear = pop = popitem = setdefault = update = immutable_list._refuse
    __setitem__ = __delitem__ = __ior__ = immutable_list._refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))
