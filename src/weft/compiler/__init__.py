"""``torch.compile`` and its companions, for programs that ask for compilation.

Nothing is compiled yet: what is given comes back as it is, with the same numbers and at the same
speed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from weft.compiler.region import Learned, Region
from weft.core import errors
from weft.core.modes import MODES

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
    """A function or module whose repeating stretches run as native calls, with the same results.

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
        return functools.partial(
            compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
            options=options, disable=disable,
        )  # fmt: skip
    if not callable(model):
        raise TypeError(
            f"torch.compile takes a function or a module, not {type(model).__name__}\n"
            f"  at {errors.here()}"
        )
    if disable:
        return model
    return Compiled(model, fullgraph)


class Compiled:
    """A compiled function."""

    def __init__(self, function: Callable, fullgraph: bool = False) -> None:
        self.function = function
        self.learned = Learned(getattr(function, "__name__", type(function).__name__), fullgraph)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        now = MODES.now
        if now.unusual or now.recorders or not self.learned.lock.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            return self._follow(args, kwargs)
        finally:
            self.learned.lock.release()

    def _follow(self, args: Any, kwargs: Any) -> Any:
        self.learned.calls += 1
        region = Region(self.learned)
        with region:
            try:
                out = self.function(*args, **kwargs)
            except BaseException:
                region.reify()
                raise
            region.finish()
        return out

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def disable(
    fn: Callable | None = None, recursive: bool = True, *, reason: str | None = None
) -> Any:
    """The function itself, as it is never compiled; also as a decorator with arguments."""
    return allow_in_graph if fn is None else allow_in_graph(fn)


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
