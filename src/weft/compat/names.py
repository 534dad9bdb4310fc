"""Which of PyTorch's names weft has."""

from __future__ import annotations

import importlib
import importlib.machinery
import pathlib
from types import ModuleType
from typing import Any

from weft.compat import companions, tree


class Missing(Exception):
    """Says the shortest part of a dotted name that weft lacks, and why if that is known."""

    def __init__(self, name: str, reason: str = "") -> None:
        super().__init__(name)
        self.reason = reason


class RefusedName(Missing):
    """A name that is there for programs to mention, and raises when it is called."""


# Packages beside torch whose names are looked up with torch's: in the installed package if there
# is one, else in weft's own.
COMPANIONS = tuple(companions.OWN)
# Those that can't be imported without their compiled half; torchvision can.
COMPILED = ("torchaudio", "torchtext")


def _has_compiled_code(spec: importlib.machinery.ModuleSpec) -> bool:
    folders = map(pathlib.Path, spec.submodule_search_locations or ())
    kinds = {".so", ".pyd", ".dylib", ".dll"}
    return any(path.suffix in kinds for folder in folders for path in folder.rglob("*.*"))


def look_up(name: str) -> Any:
    """What weft has under a name such as ``torch.nn.Linear``; raises Missing.

    >>> look_up("torch.nn.functional.relu").__name__
    'relu'
    """
    parts = name.split(".")
    if parts[0] in companions.OWN:
        spec = importlib.machinery.PathFinder.find_spec(parts[0])
        if spec is not None:  # the installed package is used
            if parts[0] in COMPILED and _has_compiled_code(spec):
                own = companions.OWN[parts[0]]
                raise Missing(
                    parts[0],
                    f"the installed {parts[0]} is compiled against PyTorch's own library; without "
                    f"it the name stands for {own}",
                )
            return None
        try:
            return companions.look_up(name)
        except LookupError as error:
            raise Missing(str(error.args[0])) from None
    found: Any = importlib.import_module("weft")
    for i in range(1, len(parts)):
        if not isinstance(found, (ModuleType, type)):
            # Attributes of values can't be determined without running the program.
            return found
        try:
            found = _member(found, ".".join(parts[:i]), parts[i])
        except ImportError as error:
            raise Missing(".".join(parts[: i + 1]), str(error)) from None
        if found is _ABSENT:
            full = ".".join(parts[: i + 1])
            why = tree.why_missing(full.removeprefix("torch."))
            raise RefusedName(full, why) if why else Missing(full)
        # A namespace of ops makes up what it is asked for.
        if not isinstance(found, ModuleType) and getattr(found, "unavailable", None) is True:
            raise RefusedName(".".join(parts[: i + 1]), getattr(found, "__reason__", ""))
    return found


_ABSENT = object()


def _member(owner: Any, known: str, name: str) -> Any:
    """What a module or class has under a name; ``known`` is what PyTorch calls it."""
    if isinstance(owner, ModuleType):
        try:
            return tree.member(known, name)
        except (AttributeError, ModuleNotFoundError):
            pass
    try:
        return getattr(owner, name)
    except AttributeError:
        pass
    if isinstance(owner, ModuleType):
        try:
            return tree.find_module(f"{known}.{name}")
        except ModuleNotFoundError:
            pass
    return _ABSENT
