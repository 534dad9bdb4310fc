"""What types and modes need that take over calls of functions.

A class with ``__torch_function__`` is asked by every public function that gets an object of it; a
``TorchFunctionMode`` is asked about every call in its block.

>>> import weft
>>> class Counting(weft.overrides.TorchFunctionMode):
...     calls = 0
...
...     def __torch_function__(self, func, types, args=(), kwargs=None):
...         self.calls += 1
...         return func(*args, **(kwargs or {}))
>>> with Counting() as mode:
...     _ = weft.ones(2) + 1
>>> mode.calls
2
"""

from __future__ import annotations

import functools
import inspect
import types as _types
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

from weft.core import overrides as _core
from weft.core.tensor import Tensor, keep_class
from weft.operators import api as _api
from weft.operators import overriding as _overriding

__all__ = [
    *("BaseTorchFunctionMode", "TorchFunctionMode", "enable_reentrant_dispatch"),
    *("get_default_nowrap_functions", "get_ignored_functions", "get_overridable_functions"),
    *("get_testing_overrides", "handle_torch_function", "has_torch_function", "is_tensor_like"),
    *("has_torch_function_unary", "has_torch_function_variadic", "is_tensor_method_or_property"),
    *("redispatch_function", "resolve_name", "wrap_torch_function"),
]


class TorchFunctionMode:
    """A block in which every call of a public function goes to ``__torch_function__`` first.

    Inside that method the mode is off, so that it can call functions itself; modes around it,
    and types, are asked when it does.
    """

    def __torch_function__(
        self, func: Callable, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        _core.switch_on()
        _core.enter_mode(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _core.leave_mode()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        """An old name of making a mode and entering it."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that runs every function as it is."""

    def __torch_function__(
        self, func: Callable, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


@contextmanager
def enable_reentrant_dispatch() -> Any:
    """A block inside ``__torch_dispatch__`` in which functions are asked about again.

    weft has no such level, so there is nothing to change.
    """
    yield


def is_tensor_like(inp: Any) -> bool:
    """Whether an object is a tensor or says how functions act on it."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode, or an argument other than a plain tensor, takes over a call."""
    if _core.STATE.skip:
        _core.STATE.skip = False
        return False
    if _core.STATE.modes:
        return True
    return _core.STATE.types and any(_core.has_say(a.__class__) for a in relevant_args)


def has_torch_function_unary(arg: Any) -> bool:
    """``has_torch_function`` of one argument."""
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    """``has_torch_function`` of several arguments."""
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Hand a call of a function of one's own to the types of its arguments."""
    found = _core.overloaded(relevant_args) if _core.STATE.types else []
    name = f"{public_api.__module__}.{public_api.__name__}"
    return _core.ask(public_api, found, args, kwargs, name)


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """Decorator: let types take over a function; ``dispatcher`` gives the arguments that count."""

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def redispatch_function(func: Callable, types: Any, args: Any, kwargs: Any = None) -> Any:
    """Run a function itself, from inside ``__torch_function__``.

    In a function of one's own, which asks ``has_torch_function``, the calls inside are handed over
    again; a function of weft's runs as a whole.
    """
    if func in _overriding.names():
        with _core.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
    _core.STATE.skip = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        _core.STATE.skip = False


def _get_current_function_mode() -> Any:
    """The innermost mode of this thread, or None."""
    modes = _get_current_function_mode_stack()
    return modes[-1] if modes else None


def _get_current_function_mode_stack() -> list[Any]:
    """The modes of this thread, the innermost last."""
    return [*_core.STATE.hidden, *_core.STATE.modes]


@contextmanager
def _enable_torch_function() -> Any:
    """A block in which types and modes are asked, also where that is switched off."""
    with _core.EnableTorchFunction():
        yield


def get_default_nowrap_functions() -> set[Callable]:
    """Functions whose results keep their own class."""
    return set(keep_class())


def resolve_name(f: Any) -> str | None:
    """The public name of a function that can be taken over."""
    if isinstance(f, (str,)):
        return str(f)
    return _overriding.names().get(f)


def is_tensor_method_or_property(func: Callable) -> bool:
    """Whether a function is a method of Tensor, or gets or sets a property of it."""
    return func in _of_tensors() or getattr(func, "__name__", None) == "__get__"


@functools.cache
def _of_tensors() -> frozenset[Any]:
    names = _overriding.names()
    return frozenset(f for f, name in names.items() if name.startswith("torch.Tensor."))


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable]]:
    """The functions that can be taken over, by the module or class that has them."""
    import weft

    found: dict[Any, list[Callable]] = defaultdict(list)
    for home, name, function in _overriding.functions():
        if name not in _overriding.MAKING and not home.startswith("torch.signal"):
            found[_home(weft, home)].append(function)
    for _name, function in _overriding.methods():
        found[Tensor].append(function)
    for _name, held in _overriding.properties():
        found[Tensor].append(held.__get__)
        if held.fset is not None:
            found[Tensor].append(held.__set__)
    return found


def _home(root: Any, path: str) -> Any:
    for part in path.split(".")[1:]:
        root = getattr(root, part)
    return root


@functools.cache
def get_ignored_functions() -> set[Callable]:
    """Public functions that no type is asked about."""
    found: set[Callable] = set()
    for names in _overriding.homes().values():
        for name, function in names.items():
            if name in _overriding.MAKING or name in _overriding.APART:
                found.add(function)
    for name in _overriding.DIRECT:
        found.add(getattr(Tensor, name, None))  # type: ignore[arg-type]
    return {f for f in found if callable(f)}


@functools.cache
def get_testing_overrides() -> dict[Callable, Callable]:
    """For every function that can be taken over one of the same signature, which returns -1."""
    return {
        function: _constant(function)
        for functions in get_overridable_functions().values()
        for function in functions
    }


def _constant(function: Callable) -> Callable:
    def minus_one(*args: Any, **kwargs: Any) -> int:
        return -1

    try:
        if isinstance(function, _types.FunctionType):
            minus_one.__signature__ = inspect.signature(function)  # type: ignore[attr-defined]
        else:  # the getter or setter of a property
            one = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
            minus_one.__signature__ = inspect.Signature([one])  # type: ignore[attr-defined]
    except ValueError:
        pass
    return minus_one


def __getattr__(name: str) -> Any:
    return _api.missing("overrides", name)


_core.switch_on()  # a program that imports this is about to define such a type
