"""``torch.compile`` and its companions, for programs that ask for compilation.

Nothing is compiled yet: what is given comes back as it is, with the same numbers and at the same
speed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from weft.core import errors

__all__ = [
    "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin", "disable",
    "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset", "set_stance",
]  # fmt: skip


def compile(
    model: Callable | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable = "inductor",
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """The function or module itself: the same numbers, and no speed-up yet.

    >>> import weft as torch
    >>> @torch.compile
    ... def double(x):
    ...     return 2 * x
    >>> double(torch.ones(2))
    tensor([2., 2.])
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same "
            f"time.\n  at {errors.here()}"
        )
    if model is None:
        return _unchanged
    return _unchanged(model)


def _unchanged(model: Callable) -> Callable:
    if not callable(model):
        raise TypeError(
            f"torch.compile takes a function or a module, not {type(model).__name__}\n"
            f"  at {errors.here()}"
        )
    return model


def disable(
    fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """The function itself, as it is never compiled; also as a decorator with arguments."""
    return _unchanged if fn is None else _unchanged(fn)


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def is_compiling() -> bool:
    """Whether this code is being compiled: it never is."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Forget what was compiled: nothing was."""


def cudagraph_mark_step_begin() -> None:
    """For programs that mark their steps; nothing depends on it."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """What could compile: nothing yet."""
    return []


@contextlib.contextmanager
def _stance() -> Iterator[None]:
    yield


def set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None
) -> Any:
    """Say when to compile; functions run as they are under any stance."""
    known = ("default", "eager_then_compile", "aot_eager_then_compile", "force_eager",
             "eager_on_recompile", "fail_on_recompile")  # fmt: skip
    if stance not in known:
        raise RuntimeError(f"invalid stance {stance!r}; there is {known}\n  at {errors.here()}")
    return _stance()
