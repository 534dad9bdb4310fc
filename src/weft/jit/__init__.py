"""TorchScript's entry points, for programs that go through them: everything runs as Python.

``script`` and ``trace`` give back what they were given. There are no TorchScript files here:
``save`` and ``load`` say what to use instead.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

from weft.core import errors
from weft.futures import Future
from weft.nn.module import Module

__all__ = [
    "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction", "ScriptModule",
    "TracerWarning", "annotate", "export", "fork", "freeze", "fuser", "ignore", "interface",
    "is_scripting", "is_tracing", "isinstance", "load", "optimize_for_inference",
    "optimized_execution", "save", "script", "script_if_tracing", "script_method",
    "set_fusion_strategy", "strict_fusion", "trace", "trace_module", "unused", "wait",
]  # fmt: skip


class Error(RuntimeError):
    """What scripted code raises in PyTorch; nothing raises it here."""


class TracerWarning(Warning):
    """What tracing warns with in PyTorch, where it freezes what it sees; nothing is frozen here."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """For programs that silence it."""


class ScriptModule(Module):
    """A base class of older programs; a module like any other."""


class RecursiveScriptModule(ScriptModule):
    """What scripting a module gives in PyTorch; here the module itself comes back."""


class ScriptFunction:
    """What scripting a function gives in PyTorch; here the function itself comes back."""


def script(obj: Any, *args: Any, **kwargs: Any) -> Any:
    """What was given: a function, a module or a class, run as Python.

    >>> layer = torch.jit.script(nn.Linear(2, 1))
    >>> layer(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    """
    return obj


def trace(func: Any = None, example_inputs: Any = None, *args: Any, **kwargs: Any) -> Any:
    """The function or module itself, which stays free to take other ways with other inputs."""
    if not callable(func):
        raise TypeError(
            f"torch.jit.trace takes a function or a module, not {type(func).__name__}\n"
            f"  at {errors.here()}"
        )
    return func


def trace_module(mod: Module, inputs: Any = None, *args: Any, **kwargs: Any) -> Module:
    """The module itself."""
    return mod


def freeze(mod: Module, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Module:
    """The module itself, which must be in evaluation mode as in PyTorch."""
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() "
            f"on your module before freezing.\n  at {errors.here()}"
        )
    return mod


def optimize_for_inference(mod: Module, other_methods: Any = None) -> Module:
    """The module itself."""
    return mod


def _same(fn: Any) -> Any:
    """What was given."""
    return fn


export = interface = script_method = script_if_tracing = _same


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; also as a decorator with arguments."""
    return drop if callable(drop) else _same


unused = _same


def is_scripting() -> bool:
    """Whether this runs as TorchScript: never."""
    return False


def is_tracing() -> bool:
    """Whether this is being traced: never."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's own ``isinstance``, which takes plain classes only."""
    return builtins.isinstance(obj, target_type)


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """The result of a call, which is made at once, as a future."""
    future: Future = Future()
    try:
        future.set_result(func(*args, **kwargs))
    except Exception as error:
        future.set_exception(error)
    return future


def wait(future: Future) -> Any:
    """The value of a future."""
    return future.wait()


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """A block in which nothing is different."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A block in which nothing is different."""
    yield


strict_fusion = functools.partial(fuser, "")


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """For programs that set one; there is nothing to fuse."""
    return []


def _refuse(name: str, instead: str) -> NoReturn:
    raise RuntimeError(
        f"torch.jit.{name}: weft has no TorchScript files. {instead}\n  at {errors.here()}"
    )


def save(m: Any, f: Any, _extra_files: Any = None) -> NoReturn:
    """Raises: there are no TorchScript files here."""
    _refuse("save", "Save the weights with torch.save(module.state_dict(), f)")


def load(f: Any, map_location: Any = None, _extra_files: Any = None, **kwargs: Any) -> NoReturn:
    """Raises: there are no TorchScript files here."""
    _refuse(
        "load",
        "Where PyTorch is installed, save the weights with torch.save(module.state_dict(), f), "
        "build the module from its Python class and load them",
    )


save.unavailable = load.unavailable = True  # type: ignore[attr-defined]
