"""Recipes: what a kernel's code is generated from, determined without generating it.

Generating the LLVM IR of a kernel takes 0.5 to 15 ms; determining its recipe takes 0.1. So the
cache keeps, for each recipe, the digest of the IR, by which the machine code is found: a process
with a warm cache generates no LLVM IR.

A recipe has the function and everything that it names: inlined functions, constants, hand-written
parts. The code generators are part of it as the sources of this package, identified by size and
modification time, as in Python's bytecode cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any

from weft.native.codegen import cache
from weft.native.codegen.compiler import Assembly, KernelFunction

PLAIN = (bool, int, float, str, type(None))
PACKAGE = Path(__file__).parents[1]
_words = re.compile(r"[A-Za-z_]\w*").findall


class NoRecipe(Exception):
    """Something that a recipe can't tell."""


def _sources() -> str:
    """The sources of this package, by size and time; nothing where they are no files."""
    found = []
    try:
        for folder, _, names in os.walk(PACKAGE):
            for name in names:
                if name.endswith(".py"):
                    about = os.stat(os.path.join(folder, name))
                    found.append((folder, name, about.st_size, about.st_mtime_ns))
    except OSError:
        return ""
    return repr((sys.version, sorted(found))) if found else ""


SOURCES = _sources()  # as they were when this process began to use them


class _Recipe:
    """The parts of one recipe; a function that several others name is told once."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.known: dict[int, int] = {}

    def value(self, x: Any) -> None:
        """Something that a function names."""
        if x.__class__ in PLAIN:
            self.parts.append(repr(x))
        elif x.__class__ is tuple:
            self.parts.append(len(x))
            for item in x:
                self.value(item)
        elif isinstance(x, KernelFunction):
            if self.begins(x):
                self.function(x)
        elif isinstance(x, Assembly):
            if self.begins(x):
                self.parts.append((x.name, x.kinds))
                self.python(x.write)
                self.value(x.wide)
        else:  # nothing that code is written from: a module, a class, a function of Python's
            self.parts.append(type(x).__name__)

    def begins(self, x: Any) -> bool:
        """Whether something is met for the first time; its number is noted."""
        new = id(x) not in self.known
        self.parts.append(self.known.setdefault(id(x), len(self.known)))
        return new

    def function(self, x: KernelFunction) -> None:
        """A function of the language."""
        self.parts.append((x.flags, x.unswitched, x.outlined, x.strided, x.widest))
        self.value(x.wide)
        if isinstance(x.text, str):
            self.parts.append(x.text)
            names = _words(x.text)
        else:
            names = self.position(x.text)
        self.names(names, x.scope)

    def position(self, function: Any) -> list[str]:
        """Where a function of Python's stands, in a source of this package; the names in it."""
        code = function.__code__
        if not code.co_filename.startswith(str(PACKAGE)):
            raise NoRecipe
        self.parts.append((code.co_filename, code.co_firstlineno, code.co_name))
        return [*code.co_names, *_words(" ".join(map(str, function.__annotations__.values())))]

    def names(self, names: list[str], scope: dict[str, Any]) -> None:
        for name in sorted(set(names)):
            if name in scope:
                self.parts.append(name)
                self.value(scope[name])

    def python(self, write: Any) -> None:
        """What writes a part by hand: a function with what it encloses."""
        if not isinstance(write, FunctionType):
            raise NoRecipe
        self.names(self.position(write), write.__globals__)
        for name, cell in zip(write.__code__.co_freevars, write.__closure__ or (), strict=True):
            if cell.cell_contents.__class__ not in PLAIN:
                raise NoRecipe
            self.parts.append((name, cell.cell_contents))


def recipe(function: KernelFunction, *given: Any) -> bytes | None:
    """The digest of everything that a function's code is generated from; None if that can't be
    determined.
    """
    if not SOURCES:
        return None
    made = _Recipe()
    try:
        made.function(function)
    except (NoRecipe, AttributeError, ValueError):
        return None
    return hashlib.sha256(repr((SOURCES, given, made.parts)).encode()).digest()


def digest(text: str) -> str:
    """What tells code from other code."""
    return hashlib.sha256(text.encode()).hexdigest()


def written(
    name: str, key: bytes | None, write: Callable[[], str]
) -> tuple[str, Callable[[], str]]:
    """The digest of the code that ``write`` writes, and what gives the code.

    ``key`` is the recipe. Where the cache knows it, nothing is written.
    """
    known = None if key is None else cache.read(f"{name}.text", key)
    if known is not None:
        return known.decode(), write
    text = write()
    found = digest(text)
    if key is not None and _sources() == SOURCES:  # else the package was edited since
        cache.write(f"{name}.text", key, found.encode())
    return found, lambda: text
