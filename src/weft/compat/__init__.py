"""Let ``import torch`` mean weft, in this process and in the workers that it starts.

>>> from weft import compat
>>> compat.install()  # doctest: +SKIP
>>> import torch.nn.functional as F  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["install", "installed", "uninstall"]

# Tells a worker process which main program to load, as "path:..." or "name:...".
MAIN = "WEFT_MAIN"


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Maps ``torch.x.y`` to the very module object that is ``weft.x.y``."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        found = _find(_own(fullname))
        if found is None:
            # Python goes on to look beside weft's own files, where there is nothing either.
            return None
        package = found.submodule_search_locations is not None
        return importlib.machinery.ModuleSpec(
            fullname, self, origin=found.origin, is_package=package
        )

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = importlib.import_module(_own(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module has run under its own name; only what import changed is put back.
        if module.__spec__ is not None and module.__spec__.loader is self:
            module.__spec__ = module.__spec__.loader_state
        # Importing a submodule rebinds its name in the package, where weft may have put a function
        # of that name (``autograd.gradcheck``). Those loaded by now need no import any more.
        for name in [n for n in sys.modules if n.startswith(module.__name__ + ".")]:
            sys.modules.setdefault("torch" + name.removeprefix("weft"), sys.modules[name])


def _own(name: str) -> str:
    return "weft" + name.removeprefix("torch")


def _find(name: str) -> importlib.machinery.ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:
        return None


_FINDER = _Finder()


def install() -> None:
    """Let ``import torch`` and its submodules mean weft from here on."""
    if installed():
        return
    present = sys.modules.get("torch")
    if present is not None:
        place = getattr(present, "__file__", None) or "an unknown place"
        raise RuntimeError(
            f"torch is already imported, from {place}, and weft does not replace it. Call "
            "weft.compat.install() before anything imports torch"
        )
    sys.meta_path.insert(0, _FINDER)
    _hand_on_to_workers()


def uninstall() -> None:
    """Let ``import torch`` mean what it meant before; modules imported so far stay usable."""
    if not installed():
        return
    sys.meta_path.remove(_FINDER)
    for name in [n for n in sys.modules if n == "torch" or n.startswith("torch.")]:
        if sys.modules[name] is sys.modules.get(_own(name)):
            del sys.modules[name]
    _stop_handing_on()


def installed() -> bool:
    """Whether ``import torch`` means weft in this process."""
    return _FINDER in sys.meta_path


# A forked worker inherits all of the above. One that is spawned starts afresh and loads the main
# program by what ``get_preparation_data`` says; that is made to name weft.compat.worker, which
# installs the finder first and then loads the main program.


def _hand_on_to_workers() -> None:
    from multiprocessing import spawn

    plain = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        data = plain(name)
        path = data.pop("init_main_from_path", None)
        module = data.get("init_main_from_name")
        os.environ[MAIN] = f"path:{path}" if path else f"name:{module}" if module else ""
        data["init_main_from_name"] = "weft.compat.worker"
        return data

    get_preparation_data.plain = plain  # type: ignore[attr-defined]
    spawn.get_preparation_data = get_preparation_data


def _stop_handing_on() -> None:
    from multiprocessing import spawn

    spawn.get_preparation_data = getattr(
        spawn.get_preparation_data, "plain", spawn.get_preparation_data
    )
    os.environ.pop(MAIN, None)
