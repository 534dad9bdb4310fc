"""Whole calls of weft's own modules: comparing a module's state.

Besides its arguments a module's ``forward`` reads attributes, parameters, buffers and the modules
inside. CPython up to 3.12 gives each state of a dictionary a number that no other state of any
dictionary has, and each state of a class one that no other state of any class has. Where these
numbers are those of the last time, nothing was set or deleted since, and what was reached then is
still there.
Attributes that can change without being set (lists, say) are refused.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from types import FunctionType
from typing import Any

from weft.core import device
from weft.core import dtype as dt
from weft.core.tensor import Tensor
from weft.native.codegen.records import Unsupported
from weft.nn import functional
from weft.nn._hooks import EVERYWHERE
from weft.nn.module import _HOOK_DICTS, Module

# What is compared: an object's class, the state of an object's attributes, of a dictionary, of a
# class. Each comparison may rely on those before it.
CLASS_OF, ATTRIBUTES, DICTIONARY, CLASS = range(4)

MANAGED = -24  # offset of the pointer to an object's attributes
DICT_VERSION, CLASS_VERSION = 24, 384
TABLES = ("_parameters", "_buffers", "_modules")
UNREAD = frozenset((*_HOOK_DICTS, "_non_persistent_buffers_set", "_scope_places"))  # by forward
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None), dt.dtype, device.device))

word = ctypes.c_size_t.from_address
half = ctypes.c_uint32.from_address


class Unknown(Exception):
    """A module whose state can't be compared."""


@functools.cache
def classes() -> set[type]:
    """The classes of weft's own modules."""
    found: set[type] = set()
    for name, home in list(sys.modules.items()):
        if name == "weft.nn" or name.startswith("weft.nn."):
            found.update(
                x for x in vars(home).values() if isinstance(x, type) and x.__module__ == name
            )
    return {cls for cls in found if issubclass(cls, Module)}


def forwards() -> list[FunctionType]:
    """The ``forward`` functions of these modules."""
    own = (vars(cls).get("forward") for cls in classes())
    return [function for function in own if isinstance(function, FunctionType)]


def dict_version(table: dict[Any, Any]) -> int:
    return word(id(table) + DICT_VERSION).value


def class_version(cls: type) -> int:
    found = half(id(cls) + CLASS_VERSION).value
    if not found:
        raise Unknown("a class that was just modified")
    return found


class ModuleState:
    """The state that a module's forward may read: comparisons that hold while it is unmodified."""

    def __init__(self, module: Module, hooks: bool = False) -> None:
        # Hooks of the module itself run around its forward; ``hooks`` says whether they matter.
        self.outermost = None if hooks else module
        self.guards: list[tuple[int, int, int]] = []
        self.tensors: list[Tensor] = []
        self.globals: list[
            dict[str, Any]
        ] = []  # kept alive, so that their addresses are not reused
        self.seen: set[int] = set()
        if EVERYWHERE.active:
            raise Unknown("hooks on all modules")
        self.add_class(EVERYWHERE)
        self.add_class(Tensor)
        self.add_globals(vars(functional))
        self.add_module(module)

    def add_module(self, module: Module) -> None:
        if id(module) in self.seen:
            return
        self.seen.add(id(module))
        cls, own = type(module), module.__dict__
        if cls not in classes():
            raise Unknown("a module that is not one of weft's")
        if module._hooked and module is not self.outermost:
            raise Unknown("hooks")
        if word(id(module) + MANAGED).value != id(own):
            raise Unknown("attributes that are not stored in __dict__")
        self.guards.append((CLASS_OF, id(module), id(cls)))
        self.add_class(cls)
        self.add_globals(cls.forward.__globals__)
        self.guards.append((ATTRIBUTES, id(module), dict_version(own)))
        for name, value in own.items():
            if name in TABLES:
                if value.__class__ is not dict:
                    raise Unknown("parameters, buffers or submodules in an unsupported container")
                self.guards.append((DICTIONARY, id(value), dict_version(value)))
            elif name not in UNREAD and not is_plain(value):
                raise Unknown("an attribute that may change without being set")
        parts = [x for name in TABLES for x in own[name].values() if x is not None]
        for part in parts:
            if isinstance(part, Module):
                self.add_module(part)
            else:
                self.tensors.append(part)

    def add_class(self, cls: type) -> None:
        if id(cls) not in self.seen:
            self.seen.add(id(cls))
            self.guards.append((CLASS, id(cls), class_version(cls)))

    def add_globals(self, names: dict[str, Any]) -> None:
        if id(names) not in self.seen:
            self.seen.add(id(names))
            self.globals.append(names)
            self.guards.append((DICTIONARY, id(names), dict_version(names)))


def is_plain(value: Any) -> bool:
    """Whether a value is immutable."""
    if value.__class__ is tuple:
        return all(map(is_plain, value))
    return value.__class__ in PLAIN


@functools.cache
def are_compared() -> bool:
    """Whether this Python has the numbers that modules are compared by.

    Python 3.13 does not: what objects keep instead of a dictionary changes without a new number.
    """
    try:
        probe()
    except Unsupported:
        return False
    return True


def probe() -> None:
    """Verify where dictionaries and classes store their version tags."""

    class Tried:
        attribute = 0

    made = Tried()
    made.first = 1  # type: ignore[attr-defined]
    own = made.__dict__
    if not (3, 11) <= sys.version_info[:2] <= (3, 13) or word(id(made) + MANAGED).value != id(own):
        raise Unsupported("unsupported object layout: __dict__ is elsewhere")
    states = [dict_version(own)]
    for change in (
        lambda: setattr(made, "first", 2), lambda: own.update(second=1), lambda: own.pop("second"),
        own.clear, lambda: own.setdefault("third", 3),
    ):  # fmt: skip
        change()
        states.append(dict_version(own))
    if states != sorted(set(states)):
        raise Unsupported("dictionaries have no version tags")
    first, second = {"a": 1}, {"b": 1}
    first["a"] = 2
    if not states[-1] < dict_version(second) < dict_version(first):
        raise Unsupported("dictionaries have no version tags")
    versions = []
    for k in range(2):
        if made.attribute != k:
            raise Unsupported("unsupported class layout")
        versions.append(class_version(Tried))
        Tried.attribute = k + 1
        if half(id(Tried) + CLASS_VERSION).value:
            raise Unsupported("classes have no version tags")
    if not 0 < versions[0] < versions[1] < 1 << 31:
        raise Unsupported("classes have no version tags")
