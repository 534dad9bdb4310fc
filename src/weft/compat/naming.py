"""Where ``import torch`` means weft, modules, classes and functions say that they are torch's.

Programs look at ``__module__`` and ``__name__``, and a pickle holds them: what is pickled here is
then found by PyTorch, and the other way round.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from types import FunctionType, ModuleType
from typing import Any

from weft.compat import tree
from weft.core.tensor import Tensor
from weft.operators import api

# Parts of weft that PyTorch has no like of keep their names.
_OWN = (
    *("weft.cli", "weft.compat", "weft.core", "weft.demo", "weft.doctor", "weft.graph", "weft.io"),
    *("weft.memory", "weft.native", "weft.operators", "weft.references", "weft._checks"),
    *("weft.backends.native", "weft.nn.resize", "weft.utils.checkpointing", "weft.viz"),
    *("weft._cpu", "weft.train", "weft.vision", "weft.watching", "weft.__main__"),
)
# What was changed, with what it was before.
_changed: list[tuple[Any, str, Any]] = []
_ABSENT = object()


def is_own(name: str) -> bool:
    """Whether a module of weft's has no counterpart in PyTorch."""
    return any(name == own or name.startswith(own + ".") for own in _OWN)


def torch_name(name: str) -> str:
    """PyTorch's name for a module of weft's."""
    return "torch" + name.removeprefix("weft")


def rename(module: ModuleType) -> None:
    """Let a module that has run, and what is defined in it, have PyTorch's names."""
    name = module.__spec__.name if module.__spec__ is not None else module.__name__
    homes = tree.parsed().homes.get(name, {})
    own = is_own(name)
    for key, value in list(vars(module).items()):
        if isinstance(value, (type, FunctionType)) and value.__module__ == name:
            home = homes.get(key) or (None if own else torch_name(name))
            if home is not None:
                if isinstance(value, type) and home != torch_name(name):
                    _evaluate_annotations(value, vars(module))
                _set(value, "__module__", home)
    known = torch_name(name)
    if own:
        return
    _set(module, "__name__", known)
    sys.modules.setdefault(known, module)
    if name == "weft" or name == "weft.nn.functional":
        _name_functions(name)
    if tree.has_module(known):
        _extend(module, known)


def _evaluate_annotations(kind: type, names: dict[str, Any]) -> None:
    """Let ``typing.get_type_hints`` do without the names of the file a class is defined in."""
    for key, text in inspect.get_annotations(kind).items():
        if isinstance(text, str):
            with contextlib.suppress(NameError):  # of what is imported for type checkers only
                kind.__annotations__[key] = eval(text, names)


def _name_functions(home: str) -> None:
    functions = api.FUNCTIONS if home == "weft" else api.NAMESPACES["nn.functional"]
    for name, function in functions.items():
        if isinstance(function, FunctionType) and function.__module__.startswith("weft"):
            found = home == "weft" and api.NAMESPACES["nn.functional"].get(name) is function
            _set(function, "__module__", "torch.nn.functional" if found else torch_name(home))
            if function.__qualname__ != name and "." not in function.__qualname__:
                _set(function, "__qualname__", name)


def _extend(module: ModuleType, known: str) -> None:
    """Let a module have the table's names beside its own."""
    plain = vars(module).get("__getattr__", _ABSENT)

    def __getattr__(name: str) -> Any:
        try:
            return tree.member(known, name)
        except AttributeError:
            if plain is _ABSENT:
                raise AttributeError(
                    f"module {known!r} has no attribute {name!r}: weft does not have {known}.{name}"
                ) from None
        return plain(name)

    _set(module, "__getattr__", __getattr__)
    if not hasattr(module, "__path__"):
        _set(module, "__path__", [])
    for child in tree.children(known):
        full = f"{known}.{child}"
        if child in vars(module) and tree.own_module(full) is None:
            # Importing a submodule would replace a function that the package has under its name.
            sys.modules[full] = tree.module(full)
            if isinstance(vars(module)[child], ModuleType):
                _set(module, child, sys.modules[full])


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, ModuleType):
        known = vars(owner)
    else:
        found = getattr(owner, name, _ABSENT)
        known = {} if found is _ABSENT else {name: found}
    _changed.append((owner, name, known.get(name, _ABSENT)))
    setattr(owner, name, value)


def rename_all() -> None:
    """Rename what is loaded by now."""
    for name in sorted(n for n in sys.modules if n == "weft" or n.startswith("weft.")):
        module = sys.modules[name]
        if module.__spec__ is None or module.__spec__.name == name:
            rename(module)


def act_as_torch() -> None:
    """Let pickles of tensors hold PyTorch's names, and tensors lack what PyTorch's lack."""
    from weft.compat.stand_ins import pickles  # which asks for all of weft

    for kind, name, function in pickles.methods():
        _set(kind, name, function)
    # Libraries that find it take tensors for arrays of a library that they don't know.
    _changed.append((Tensor, "__array_namespace__", Tensor.__array_namespace__))
    del Tensor.__array_namespace__


def put_back() -> None:
    """Let everything have weft's names again."""
    for owner, name, before in reversed(_changed):
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)
    _changed.clear()
