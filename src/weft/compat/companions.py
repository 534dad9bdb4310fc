"""Packages beside torch that weft stands in for where they are not installed.

``import torchvision`` finds the installed package, if there is one; else it is ``weft.vision``, and
its submodules are the very module objects below it. So it is with torchtext and torchaudio.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from types import ModuleType
from typing import Any

OWN = {"torchaudio": "weft.audio", "torchtext": "weft.text", "torchvision": "weft.vision"}


def own_name(name: str) -> str | None:
    """weft's own module for a companion's, such as ``weft.vision.ops`` for ``torchvision.ops``."""
    first, dot, rest = name.partition(".")
    return OWN[first] + dot + rest if first in OWN else None


class _CompanionFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder of all, so that installed packages come first."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = own_name(fullname)
        if own is None:
            return None
        try:
            found = importlib.util.find_spec(own)
        except ModuleNotFoundError:
            return None
        if found is None:
            return None
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=found.origin, is_package=package
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        own = own_name(spec.name)
        assert own is not None
        module = importlib.import_module(own)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module has run under its own name; only what import changed is put back.
        made = module.__spec__
        if made is not None and made.loader is self:
            module.__spec__ = made.loader_state
            own = str(own_name(made.name))
            # Those loaded by now need no import any more, which would bind a module's name in its
            # package again, where there may be a function of that name (``models.googlenet``).
            for name in [n for n in sys.modules if n == own or n.startswith(own + ".")]:
                companion = made.name + name[len(own) :]
                sys.modules.setdefault(companion, sys.modules[name])


_FINDER = _CompanionFinder()


def install() -> None:
    """Let the names be found from here on."""
    if _FINDER not in sys.meta_path:
        sys.meta_path.append(_FINDER)


def uninstall() -> None:
    """Let the names mean what they meant before."""
    if _FINDER not in sys.meta_path:
        return
    sys.meta_path.remove(_FINDER)
    for name in [n for n in sys.modules if n.partition(".")[0] in OWN]:
        spec = sys.modules[name].__spec__
        if spec is not None and spec.name == own_name(name):
            del sys.modules[name]


def look_up(name: str) -> Any:
    """What a dotted name of a companion stands for; raises LookupError with the part missing."""
    parts = name.split(".")
    found: Any = importlib.import_module(OWN[parts[0]])
    for i, part in enumerate(parts[1:], 2):
        if not isinstance(found, (ModuleType, type)):
            return found
        own = own_name(".".join(parts[:i]))
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(str(own))
            except ModuleNotFoundError:
                raise LookupError(".".join(parts[:i])) from None
    return found
