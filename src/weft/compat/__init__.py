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
from types import CodeType, ModuleType
from typing import Any

from weft.compat import companions, naming, tree

__all__ = ["install", "installed", "uninstall"]

# Tells a worker process which main program to load, as "path:..." or "name:...".
MAIN = "WEFT_MAIN"


class _TorchFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Maps ``torch.x.y`` to the very module object that is ``weft.x.y``, or to one of the table."""

    def find_spec(
        self, fullname: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.startswith("weft."):
            return self._own_spec(fullname, path)
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        own = tree.own_module(fullname)
        found = None if own is None else importlib.util.find_spec(own)
        if found is None and not tree.has_module(fullname):
            # Python goes on to look beside weft's own files, where there is nothing either.
            return None
        package = found is None or found.submodule_search_locations is not None
        origin = None if found is None else found.origin
        return importlib.machinery.ModuleSpec(fullname, self, origin=origin, is_package=package)

    def _own_spec(self, fullname: str, path: Any) -> importlib.machinery.ModuleSpec | None:
        """weft's own file, which is given PyTorch's names when it has run."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader_state = spec.loader
            spec.loader = _Naming()
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = tree.find_module(spec.name)
        spec.loader_state = module.__spec__
        return module

    def get_code(self, fullname: str) -> CodeType | None:
        """What ``python -m torch.x.y`` runs."""
        own = tree.own_module(fullname)
        spec = None if own is None else importlib.util.find_spec(own)
        if spec is None:
            return None
        loader: Any = spec.loader_state if isinstance(spec.loader, _Naming) else spec.loader
        return loader.get_code(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        # The module has run under its own name; only what import changed is put back.
        if module.__spec__ is not None and module.__spec__.loader is self:
            if module.__spec__.loader_state is not None:
                module.__spec__ = module.__spec__.loader_state
        # Importing a submodule rebinds its name in the package, where weft may have put a function
        # of that name (``autograd.gradcheck``). Those loaded by now need no import any more.
        own = module.__spec__.name if module.__spec__ is not None else ""
        for name in [n for n in sys.modules if n.startswith(own + ".")]:
            spec = sys.modules[name].__spec__
            if name.startswith("weft.") and not naming.is_own(name) and spec and spec.name == name:
                sys.modules.setdefault(naming.torch_name(name), sys.modules[name])


class _Naming(importlib.abc.Loader):
    """Loads a file of weft's as it is loaded otherwise, and gives it PyTorch's names."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return spec.loader_state.create_module(spec)  # type: ignore[union-attr]

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        loader: Any = spec.loader_state
        spec.loader = module.__loader__ = loader
        spec.loader_state = None
        loader.exec_module(module)
        naming.rename(module)


_FINDER = _TorchFinder()


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
    companions.install()
    naming.rename_all()
    naming.act_as_torch()
    _hand_on_to_workers()


def uninstall() -> None:
    """Let ``import torch`` mean what it meant before; modules imported so far stay usable."""
    if not installed():
        return
    sys.meta_path.remove(_FINDER)
    companions.uninstall()
    naming.put_back()
    names = [n for n in sys.modules if n == "torch" or n.startswith("torch.")]
    modules = {name: sys.modules.pop(name) for name in names}
    for name, module in modules.items():
        # Import has bound the modules of the table in weft's packages.
        owner, _, last = name.rpartition(".")
        if tree.is_made(module) and vars(modules.get(owner, module)).get(last) is module:
            delattr(modules[owner], last)
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
