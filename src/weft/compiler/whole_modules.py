"""Whole calls of weft's own modules: comparing a module's state.

Besides its arguments a module's ``forward`` reads attributes, parameters, buffers and the modules
inside. CPython gives each state of a dictionary a number that no other state of any dictionary
has, and each state of a class one that no other state of any class has. Where these numbers are
those of the last time, nothing was set or deleted since, and what was reached then is still there.
Python 3.13 no longer does so for the attributes of objects, which are compared one by one there.
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
# class, a word in memory. Each comparison may rely on those before it.
CLASS_OF, ATTRIBUTES, DICTIONARY, CLASS, WORD = range(5)

MANAGED = -24  # offset of the pointer to an object's attributes
# Offsets in a dictionary: its length, its version tag, its keys, the values of an object's
# attributes if these are kept apart.
USED, DICT_VERSION, KEYS, VALUES = 16, 24, 32, 40
CLASS_VERSION = 384
NUMBERED = sys.version_info < (3, 13)  # whether attributes of objects have version tags
TABLES = ("_parameters", "_buffers", "_modules")
UNREAD = frozenset((*_HOOK_DICTS, "_non_persistent_buffers_set", "_scope_places"))  # by forward
PLAIN = frozenset((int, float, complex, bool, str, bytes, type(None), dt.dtype, device.device))

word = ctypes.c_size_t.from_address
half = ctypes.c_uint32.from_address
byte = ctypes.c_uint8.from_address


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
        self.kept: list[Any] = []  # alive, so that their addresses are not reused
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
        if NUMBERED:
            self.guards.append((ATTRIBUTES, id(module), dict_version(own)))
        else:
            self.guards += ((WORD, *at) for at in attribute_words(module, UNREAD))
            self.kept += (x for n, x in own.items() if n not in UNREAD and n not in TABLES)
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
            self.kept.append(names)
            self.guards.append((DICTIONARY, id(names), dict_version(names)))


def is_plain(value: Any) -> bool:
    """Whether a value is immutable."""
    if value.__class__ is tuple:
        return all(map(is_plain, value))
    return value.__class__ in PLAIN


@functools.cache
def are_compared() -> bool:
    """Whether this Python has what modules are compared by."""
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
    if not NUMBERED:
        probe_attributes(Tried)
        own = {"first": 1}
    states = [dict_version(own)]
    for change in (
        lambda: setattr(made, "first", 2) if NUMBERED else own.update(first=2),
        lambda: own.update(second=1), lambda: own.pop("second"), own.clear,
        lambda: own.setdefault("third", 3),
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


def attribute_words(thing: Any, apart: frozenset[str]) -> list[tuple[int, int]]:
    """Where an object's attributes are, but for those with some names: addresses and contents.

    They are in slots of the object, in an order that all objects of its class share, behind a word
    that begins with their number.
    """
    own = thing.__dict__
    values = word(id(own) + VALUES).value
    count = byte(values).value if values else 0
    slots = [(at, word(at).value) for at in range(values + 8, values + 8 + 8 * count, 8)]
    if sorted(x for _, x in slots if x) != sorted(map(id, own.values())):
        raise Unknown("attributes that are not stored in the object")
    read = {id(x) for name, x in own.items() if name not in apart}
    found = [(id(thing) + MANAGED, id(own))]
    found += ((id(own) + k, word(id(own) + k).value) for k in (USED, DICT_VERSION, KEYS, VALUES))
    return found + [(at, x) for at, x in slots if not x or x in read]


def probe_attributes(kind: Any) -> None:
    """Verify that every change of an object's attributes changes what they are compared by."""
    for change in (
        lambda x: setattr(x, "first", 3), lambda x: setattr(x, "third", 3),
        lambda x: delattr(x, "second"), lambda x: vars(x).update(first=3),
        lambda x: vars(x).update(third=3), lambda x: vars(x).pop("first"),
        lambda x: vars(x).clear(), lambda x: setattr(x, "__dict__", {"first": 1, "second": 2}),
    ):  # fmt: skip
        made = kind()
        made.first, made.second = object(), object()
        try:
            words = attribute_words(made, frozenset())
        except Unknown as error:
            raise Unsupported(str(error)) from None
        if any(word(at).value != content for at, content in words):
            raise Unsupported("attributes move")
        change(made)
        if all(word(at).value == content for at, content in words):
            raise Unsupported("attributes change unseen")
