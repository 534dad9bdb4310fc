"""PyTorch's module tree where it differs from weft's, made from the table when it is asked for.

A module of the table is built when it is imported, and a name in it when it is first used, so the
table costs nothing to programs that need none of it.
"""

from __future__ import annotations

import abc
import enum
import functools
import importlib
import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NoReturn

from weft.compat import table
from weft.core import errors
from weft.core.absent import METHODS


@dataclass(frozen=True)
class TableName:
    """One name of the table: where it is found, or why it is only a name."""

    name: str
    source: str = ""  # a module of weft's, or of PyTorch's as weft has it
    attribute: str = ""
    reason: str = ""  # a key of table.REASONS
    members: tuple[str, ...] = ()  # of an enumeration

    @property
    def is_home(self) -> bool:
        """Whether PyTorch says of this thing that it is defined here."""
        return self.source.startswith("weft") and self.attribute == self.name


@dataclass
class _Parsed:
    modules: dict[str, dict[str, TableName]] = field(default_factory=dict)
    # What is defined in a file of weft's and has its home in another module of PyTorch's.
    homes: dict[str, dict[str, str]] = field(default_factory=dict)


@functools.cache
def parsed() -> _Parsed:
    """The table as modules of entries."""
    result = _Parsed()
    here: dict[str, TableName] = {}
    for module, source, names in _rows(table.TABLE):
        here = result.modules.setdefault(module, {})
        for word in names:
            entry = _entry(source, word)
            here[entry.name] = entry
            if entry.is_home:
                result.homes.setdefault(source, {}).setdefault(entry.attribute, module)
    for module in list(result.modules):
        while "." in module:
            module = module.rpartition(".")[0]
            result.modules.setdefault(module, {})
    return result


def _rows(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """The rows of the table; a line that begins with blanks goes on with the line before."""
    rows: list[str] = []
    for line in text.splitlines():
        if line.startswith(" "):
            rows[-1] += line
        elif line and not line.startswith("#"):
            rows.append(line)
    module = ""
    for row in rows:
        if row.startswith("["):
            module = row[1:-1]
            yield module, "", []
        else:
            source, _, names = row.partition(":")
            yield module, source, names.split()


def _entry(source: str, word: str) -> TableName:
    if source.startswith("!"):
        name, _, members = word.partition("=")
        listed = tuple(members.split(",")) if members else ()
        return TableName(name, reason=source[1:], members=listed)
    name, _, attribute = word.partition("=")
    return TableName(name, source, attribute or name)


def has_module(name: str) -> bool:
    """Whether the table has a module, such as ``torch.fx.node``."""
    return name in parsed().modules


def children(name: str) -> list[str]:
    """The last parts of the modules right below one."""
    start = name + "."
    below = (m.removeprefix(start) for m in parsed().modules if m.startswith(start))
    return [part for part in below if "." not in part]


class _Module(ModuleType):
    """A module of the table, whose names are found when they are first used."""

    def __getattr__(self, name: str) -> Any:
        if name == "__file__":
            return _file(self.__name__)
        found = member(self.__name__, name)
        if not self._holds_state(name, found):
            self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # Programs bind such names again, and what uses them is to see it.
        if name not in self.__dict__ and self._holds_state(name, getattr(self, name, None)):
            entry = parsed().modules[self.__name__][name]
            setattr(importlib.import_module(entry.source), entry.attribute, value)
        else:
            super().__setattr__(name, value)

    def _holds_state(self, name: str, found: Any) -> bool:
        """Whether a name is a variable of one of weft's modules, and no class or function."""
        entry = parsed().modules.get(self.__name__, {}).get(name)
        return entry is not None and entry.is_home and not callable(found)

    def __dir__(self) -> list[str]:
        known = {*parsed().modules[self.__name__], *children(self.__name__)}
        return sorted({*super().__dir__(), *known})


_made: dict[str, ModuleType] = {}


def is_made(module: ModuleType) -> bool:
    """Whether a module is one of the table's."""
    return isinstance(module, _Module)


def module(name: str) -> ModuleType:
    """A module of the table, the same each time."""
    if name not in _made:
        made = _Module(name, _summary(name))
        made.__path__ = []
        public = [n for n in parsed().modules[name] if not n.startswith("_")]
        made.__all__ = public  # type: ignore[attr-defined]
        _made[name] = made
    return _made[name]


def _summary(name: str) -> str:
    entries = parsed().modules[name].values()
    if entries and all(e.reason for e in entries):
        return f"The names of {name}; weft does not have what they stand for."
    return f"{name} as PyTorch divides it; what is in it is defined elsewhere in weft."


def _file(name: str) -> str:
    """The file that most of a module comes from, for tools that look for source code."""
    for entry in parsed().modules[name].values():
        if entry.is_home:
            spec = importlib.util.find_spec(entry.source)
            if spec is not None and spec.origin is not None:
                return spec.origin
    raise AttributeError("__file__")


def member(owner: str, name: str) -> Any:
    """What the table has under a name in a module; raises AttributeError."""
    entry = parsed().modules.get(owner, {}).get(name)
    if entry is not None:
        return _resolve(owner, entry)
    if has_module(f"{owner}.{name}"):
        return find_module(f"{owner}.{name}")
    others = parsed().modules.get(owner, {}).get("*")
    if others is not None:
        return _resolve(owner, others)(name)
    raise AttributeError(
        f"module {owner!r} has no attribute {name!r}: weft does not have {owner}.{name}"
    )


def find_module(name: str) -> ModuleType:
    """A module by PyTorch's name: weft's own if there is one, or else the table's."""
    own = own_module(name)
    if own is not None:
        return importlib.import_module(own)
    if has_module(name):
        return module(name)
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@functools.cache
def own_module(name: str) -> str | None:
    """weft's own module of a name of PyTorch's, unless it stands for a module of the table."""
    own = "weft" + name.removeprefix("torch")
    try:
        spec = importlib.util.find_spec(own)
    except (ModuleNotFoundError, ValueError):
        return None
    if spec is None or (spec.name != own and has_module(name)):
        return None
    return own


def _resolve(owner: str, entry: TableName) -> Any:
    if entry.reason:
        return _honest(owner, entry)
    if entry.source.startswith("torch"):
        source: Any = find_module(entry.source)
        if entry.attribute == "*":
            return source
        try:
            return getattr(source, entry.attribute)
        except AttributeError:
            return member(entry.source, entry.attribute)
    source = importlib.import_module(entry.source)
    for part in entry.attribute.split("."):
        source = getattr(source, part)
    return source


# ------------------------------------------------------------------ names only


class _NameOnly(abc.ABCMeta):
    """The type of classes that no object belongs to and that make none."""

    def __instancecheck__(cls, instance: Any) -> bool:
        # Programs derive from such classes; what those make is theirs.
        return cls.__dict__.get("unavailable") is None and super().__instancecheck__(instance)

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        _refuse(cls.__torch_name__, cls.__reason__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse_attribute(f"{cls.__torch_name__}.{name}", cls.__reason__)

    __torch_name__: str
    __reason__: str


def _sentence(name: str, reason: str) -> str:
    missing, instead = table.REASONS[reason]
    return f"{name}: {missing}. {instead}"


@functools.cache
def _absent_methods() -> dict[str, str]:
    return {name: why for why, names in METHODS.items() for name in names.split()}


def why_missing(name: str) -> str:
    """The reason why weft lacks a name such as ``Tensor.to_sparse``, if there is one."""
    reason = _absent_methods().get(name.removeprefix("Tensor."), "")
    entry = parsed().modules["torch"].get(name)
    if not name.startswith("Tensor.") and (entry is None or not (reason := entry.reason)):
        return ""
    return ". ".join(_capital(part) for part in table.REASONS[reason]) if reason else ""


def _capital(text: str) -> str:
    return text if text.startswith(("weft", "torch")) else text[:1].upper() + text[1:]


def _refuse(name: str, reason: str) -> NoReturn:
    raise RuntimeError(f"{_sentence(name, reason)}\n  at {errors.here()}")


def _refuse_attribute(name: str, reason: str) -> NoReturn:
    # An AttributeError, which is what hasattr and getattr with a default catch.
    raise AttributeError(f"{_sentence(name, reason)}\n  at {errors.here()}")


def _honest(owner: str, entry: TableName) -> Any:
    """A class that nothing is an instance of, or a function that refuses."""
    is_class = bool(entry.members) or entry.name.lstrip("_")[:1].isupper()
    # A class is the same in all modules that offer it.
    key = (entry.reason, entry.name) if is_class else (owner, entry.name)
    if key not in _honest_names:
        _honest_names[key] = _make_honest(owner, entry, is_class)
    return _honest_names[key]


_honest_names: dict[tuple[str, str], Any] = {}


def _make_honest(owner: str, entry: TableName, is_class: bool) -> Any:
    full = f"{owner}.{entry.name}"
    text = _sentence(full, entry.reason)
    if entry.members:
        # Programs name the members in signatures and dictionaries long before they use them.
        members = enum.Enum(entry.name, list(entry.members), module=owner)  # type: ignore[misc]
        members.unavailable = True  # type: ignore[attr-defined]
        return members
    if not is_class:
        return _function(owner, entry, text)
    common = {"__module__": owner, "__doc__": text, "unavailable": True}
    errors_only = owner.endswith((".exc", ".errors"))
    if errors_only or entry.name.endswith(("Error", "Exception", "Warning")):
        base = Warning if entry.name.endswith("Warning") else RuntimeError
        return type(entry.name, (base,), {**common, "unavailable": False})
    common.update(__torch_name__=full, __reason__=entry.reason, __class_getitem__=_itself)
    return _NameOnly(entry.name, (), common)


@classmethod  # type: ignore[misc]
def _itself(cls: type, item: Any) -> type:
    return cls


def _function(owner: str, entry: TableName, text: str) -> Any:
    full = f"{owner}.{entry.name}"

    def function(*args: Any, **kwargs: Any) -> NoReturn:
        _refuse(full, entry.reason)

    function.__name__ = function.__qualname__ = entry.name
    function.__module__, function.__doc__ = owner, text
    function.unavailable = True  # type: ignore[attr-defined]
    return function
