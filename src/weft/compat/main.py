"""Running a program as its interpreter would: ``__main__``, ``sys.argv``, ``sys.path``."""

from __future__ import annotations

import builtins
import importlib.machinery
import os
import runpy
import sys
from types import CodeType, ModuleType
from typing import Any

from weft import compat


def run(path: str, arguments: list[str]) -> None:
    """Run a script as ``python path arguments`` would, in this process."""
    with open(path, "rb") as file:
        source = file.read()
    script = os.path.join(os.getcwd(), path)  # as Python does, "./" and all
    module = ModuleType("__main__")
    module.__dict__.update(_main_names(script))
    sys.argv = [path, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    sys.modules["__main__"] = module
    exec(_compile(source, script), module.__dict__)


def run_module(name: str, arguments: list[str]) -> None:
    """Run a module as ``python -m name arguments`` would."""
    sys.argv = [name, *arguments]
    if not sys.flags.safe_path:
        sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def load_in_worker(scope: dict[str, Any]) -> None:
    """Load the main program of the process that started this one, without its main part."""
    kind, _, value = os.environ.get(compat.MAIN, "").partition(":")
    compat.install()
    if kind == "name" and value.rpartition(".")[2] != "__main__":
        scope.update(runpy.run_module(value, run_name="__mp_main__", alter_sys=True))
    elif kind == "path":
        sys.argv[0] = value
        with open(value, "rb") as file:
            code = _compile(file.read(), value)
        scope.update(_main_names(value), __name__="__mp_main__", __doc__=None)
        exec(code, scope)


def _compile(source: bytes, path: str) -> CodeType:
    return compile(source, path, "exec", dont_inherit=True)


def _main_names(path: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "__file__": path,
        "__loader__": importlib.machinery.SourceFileLoader("__main__", path),
        "__builtins__": builtins,
        "__spec__": None,
        "__package__": None,
    }
    if sys.version_info < (3, 14):
        names["__annotations__"] = {}
    if sys.version_info < (3, 15):
        names["__cached__"] = None
    return names
