"""Thread- and fork-safe lazy initialization of everything native.

One lock is held while anything native is set up: a kernel compiled or linked, a library loaded, a
oneDNN primitive made. Finished things are looked up without it. Being one lock it can't be taken
in two orders, and a fork waits for it, so that a child never finds half of something made by a
thread that does not exist there.
"""

from __future__ import annotations

import functools
import importlib
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Generic, TypeVar, overload

R = TypeVar("R")
LOCK = threading.RLock()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=LOCK.acquire,
        after_in_parent=LOCK.release,
        # The child's one thread is the one that forked, and so the holder.
        after_in_child=LOCK.release,
    )


def once(function: Callable[..., R]) -> functools._lru_cache_wrapper[R]:
    """A function whose result is worked out once for each set of arguments, under the lock."""
    made: dict[tuple[Any, ...], R] = {}

    @functools.cache
    @functools.wraps(function)
    def found(*args: Any) -> R:
        with LOCK:
            if args not in made:
                made[args] = function(*args)
            return made[args]

    return found


class lazy(Generic[R]):
    """A property that is worked out once for each object, under the lock.

    (``functools.cached_property`` has its own lock in Python 3.11, which another thread may hold at
    a fork.)
    """

    def __init__(self, function: Callable[[Any], R]) -> None:
        self.function, self.__doc__ = function, function.__doc__

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: Any) -> lazy[R]: ...

    @overload
    def __get__(self, instance: Any, owner: Any) -> R: ...

    def __get__(self, instance: Any, owner: Any) -> Any:
        if instance is None:
            return self
        with LOCK:
            known = instance.__dict__  # which takes precedence from the second access on
            if self.name not in known:
                known[self.name] = self.function(instance)
            return known[self.name]


def module(name: str) -> ModuleType:
    """Import a module under the lock: a child that is forked meanwhile could never import it."""
    with LOCK:
        return importlib.import_module(name)
