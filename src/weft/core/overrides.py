"""``__torch_function__``: types that override how functions act on them.

A program that has no such type and no mode pays nothing for this: public functions
are plain until ``redirect`` gives them other code. That happens when the first subclass of Tensor
is defined, the first mode is entered, or a function first meets a foreign type
(``weft.operators.overriding``). A function keeps its identity, so names that were imported before,
and tables with functions as keys, go on working.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.device import device
from weft.core.errors import here
from weft.core.size import Size
from weft.native.once import LOCK


class _State(threading.local):
    """What is switched on in this thread."""

    types = True  # whether type overrides are enabled
    modes: tuple[Any, ...] = ()  # the active modes, the innermost last
    hidden: tuple[Any, ...] = ()  # those that ``DisableTorchFunction`` keeps from being asked
    disabled = 0  # how many of those blocks there are
    skip = False  # whether the next question of a function of the user's own gets a no


STATE = _State()

# Types that never have a say; looking for them first keeps calls with usual arguments short.
PLAIN: set[type] = {
    *(bool, int, float, complex, str, bytes, slice, type(None), type(Ellipsis), type),
    *(np.ndarray, dt.dtype, device, Size),
}

# The public name of every function that can be handed over, by function, and what fills it in.
NAMES: dict[Any, str] = {}
PUBLIC_NAMES: list[Callable[[], dict[Any, str]]] = []


def disabled_torch_function(
    func: Callable, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
) -> Any:
    """What a class has as ``__torch_function__`` so that it is treated as a plain tensor."""
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


disabled_torch_function.__name__ = "_disabled_torch_function_impl"


class DisableTorchFunctionSubclass:
    """A block in which types are not asked how to run a function."""

    def __enter__(self) -> None:
        self.before = STATE.types
        STATE.types = False

    def __exit__(self, *exc: object) -> None:
        STATE.types = self.before


class DisableTorchFunction:
    """A block in which neither types nor modes override functions."""

    def __enter__(self) -> None:
        self.before = STATE.types
        STATE.types = False
        if not STATE.disabled:
            STATE.hidden, STATE.modes = STATE.modes, ()
        STATE.disabled += 1

    def __exit__(self, *exc: object) -> None:
        STATE.types = self.before
        STATE.disabled -= 1
        if not STATE.disabled:
            STATE.modes, STATE.hidden = STATE.hidden, ()


class EnableTorchFunction:
    """A block in which types and modes override functions, even inside blocks that disable this."""

    def __enter__(self) -> None:
        self.before = STATE.types, STATE.modes, STATE.hidden, STATE.disabled
        STATE.types, STATE.modes = True, STATE.modes or STATE.hidden
        STATE.hidden, STATE.disabled = (), 0

    def __exit__(self, *exc: object) -> None:
        STATE.types, STATE.modes, STATE.hidden, STATE.disabled = self.before


def enter_mode(mode: Any) -> None:
    """Push a mode, which then takes precedence."""
    if STATE.disabled:
        STATE.hidden = (*STATE.hidden, mode)
    else:
        STATE.modes = (*STATE.modes, mode)


def leave_mode() -> Any:
    """Take away the innermost mode."""
    if STATE.disabled:
        STATE.hidden, mode = STATE.hidden[:-1], STATE.hidden[-1]
    else:
        STATE.modes, mode = STATE.modes[:-1], STATE.modes[-1]
    return mode


def types_asked() -> bool:
    """Whether type overrides are enabled in this thread."""
    return STATE.types


def nobody_asked() -> bool:
    """Whether neither type nor mode overrides are enabled in this thread."""
    return bool(STATE.disabled)


def count_modes() -> int:
    """How many modes are on in this thread."""
    return len(STATE.modes) + len(STATE.hidden)


def has_say(kind: type) -> bool:
    """Whether a type says how functions act on it."""
    if kind in PLAIN:
        return False
    handler = getattr(kind, "__torch_function__", None)
    return handler is not None and handler is not disabled_torch_function


def overloaded(values: Iterable[Any]) -> list[Any]:
    """One argument of each overriding type, in order of precedence.

    Subclasses come before their superclasses, and otherwise what stands further left.
    """
    found: list[Any] = []
    kinds: list[type] = []
    for value in values:
        kind = value.__class__
        if kind in PLAIN or kind in kinds or not has_say(kind):
            continue
        place = next((i for i, k in enumerate(kinds) if issubclass(kind, k)), len(kinds))
        found.insert(place, value)
        kinds.insert(place, kind)
    return found


def relevant(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterable[Any]:
    """The arguments of a call that may have a say, also those that stand in a list."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, (list, tuple)) and value.__class__ is not Size:
            yield from value
        yield value


def hand_over(function: Any, original: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call that modes or types may take; the function itself if there are none."""
    found = overloaded(relevant(args, kwargs)) if STATE.types else []
    if not found and not STATE.modes:
        return original(*args, **kwargs)
    return ask(function, found, args, kwargs)


def hand_over_operator(function: Any, original: Callable, args: Any, kwargs: dict) -> Any:
    """The same for an operator, where Python asks the other operand next."""
    found = overloaded(args) if STATE.types else []
    if not found and not STATE.modes:
        return original(*args, **kwargs)
    try:
        return ask(function, found, args, kwargs)
    except TypeError:
        return NotImplemented


def hand_to_modes(function: Any, original: Callable, args: Any, kwargs: dict) -> Any:
    """A call of a function that makes tensors: its arguments' types are not asked."""
    if STATE.modes:
        return ask(function, [], args, kwargs)
    with DisableTorchFunctionSubclass():
        return original(*args, **kwargs)


def ask(function: Any, found: list[Any], args: Any, kwargs: dict[str, Any], name: str = "") -> Any:
    """Ask the innermost mode and then the types, until one of them gives a result."""
    types = tuple(map(type, found))
    asked = []
    if STATE.modes:
        mode = leave_mode()
        try:
            handler = mode.__torch_function__
            if getattr(handler, "__self__", mode) is not mode:
                raise RuntimeError(
                    "Defining your mode's `__torch_function__` as a classmethod is not supported, "
                    f"please make it a plain method\n  at {here()}"
                )
            result = handler(function, types, args, kwargs)
        finally:
            enter_mode(mode)
        if result is not NotImplemented:
            return result
        asked.append(f"mode object {mode!r}")
    for value in found:
        handler = value.__torch_function__
        if getattr(handler, "__self__", None) is value:
            warnings.warn(
                "Defining your `__torch_function__` as a plain method is deprecated and will be an "
                "error in future, please define it as a classmethod.",
                stacklevel=4,
            )
        result = handler(function, types, args, kwargs)
        if result is not NotImplemented:
            return result
        asked.append(f"tensor subclass {type(value)!r}")
    raise TypeError(_refusal(name or name_of(function), types, asked, bool(name)))


def _refusal(name: str, types: tuple[type, ...], asked: list[str], python: bool) -> str:
    if python or name.startswith("torch.nn.functional."):
        return (
            f"no implementation found for '{name}' on types that implement __torch_function__: "
            f"{list(types)}\n  at {here()}"
        )
    lines = "".join(f"\n\n  - {one}" for one in asked)
    return (
        f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned "
        f"NotImplemented:{lines}\n\n  at {here()}"
    )


def name_of(function: Any) -> str:
    """The public name of a function, as far as it is known."""
    found = PUBLIC_NAMES[0]().get(function)
    if found is not None:
        return found
    module = getattr(function, "__module__", None)
    return f"{module}.{getattr(function, '__name__', repr(function))}"


# --- Functions with other code ---------------------------------------------------------
#
# The templates are never called. Their code, with the constant in the first line replaced by
# what is particular to a function, becomes the code of public functions.


def _checked(*args: Any, **kwargs: Any) -> Any:
    held: Any = "held"
    original, function, state, plain, hand_on = held
    if not state.modes:
        if not state.types:
            return original(*args, **kwargs)
        for value in args:
            if value.__class__ not in plain:
                break
        else:
            if not kwargs:
                return original(*args)
    return hand_on(function, original, args, kwargs)


def exchange(function: FunctionType, template: Any, *held: Any) -> FunctionType:
    """Give a function the code of a template, whose first constant becomes the function that does
    what it did before, and ``held``. Names and tables that hold the function go on working.
    """
    original, code = twin(function), template.__code__
    values = (original, *held)
    function.__code__ = code.replace(
        co_consts=tuple(values if c == "held" else c for c in code.co_consts),
        co_freevars=function.__code__.co_freevars,  # function and code must agree on how many
        co_name=function.__code__.co_name,
        co_qualname=function.__code__.co_qualname,
    )
    # inspect.signature finds the signature where functools.wraps puts it.
    function.__wrapped__ = original  # type: ignore[attr-defined]
    return original


def twin(function: FunctionType, name: str | None = None) -> FunctionType:
    """Another function object that does the same."""
    copied = FunctionType(
        function.__code__,
        function.__globals__,
        name or function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    copied.__qualname__, copied.__module__ = function.__qualname__, function.__module__
    copied.__doc__ = function.__doc__
    copied.__annotations__ = function.__annotations__
    copied.__dict__.update(function.__dict__)
    return copied


# What was redirected, with the function that does what it did before.
REDIRECTED: dict[FunctionType, FunctionType] = {}


def redirect(function: FunctionType, shown: Any, hand_on: Callable = hand_over) -> None:
    """Let a function look at its arguments first, and hand the call on as a call of ``shown``."""
    if function not in REDIRECTED:
        REDIRECTED[function] = exchange(function, _checked, shown, STATE, PLAIN, hand_on)


# Redirects all that takes part; the layer that knows the public functions puts it here.
SWITCH: list[Callable[[], None]] = []
ON: list[bool] = []


def switch_on() -> None:
    """From now on public functions look whether an argument's type or a mode has a say."""
    if ON:
        return
    with LOCK:
        if not ON:
            for switch in SWITCH:
                switch()
            ON.append(True)


def met(*values: Any) -> bool:
    """Whether a function that failed is to be called again, since a type among its arguments
    has a say: the first of the program, so that everything is switched on by it.
    """
    if ON or not any(has_say(value.__class__) for value in relevant(values, {})):
        return False
    switch_on()
    return True


def mentioned() -> bool:
    """Whether the code that is running now names ``__torch_function__``, so that it will be used.

    Asked when weft is imported: the importing file may define a type that is not a tensor.
    """
    frame: Any = sys._getframe(1)
    while frame is not None:
        if _names(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _names(code: Any) -> bool:
    if "__torch_function__" in code.co_names:
        return True
    return any(_names(inner) for inner in code.co_consts if hasattr(inner, "co_names"))
