"""The names of tensors and models in the program: in a module, or of a variable."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from inspect import CO_VARARGS
from types import SimpleNamespace
from typing import Any, NamedTuple

from weft.core import scopes
from weft.core.errors import is_own
from weft.core.modes import MODES
from weft.core.tensor import Parameter, Tensor
from weft.graph.frames import locals_of

_MOST = 100  # items of a container that are looked at
_DEEPEST = 2  # containers inside one another
_HERE = os.path.dirname(__file__) + os.sep  # a recorder's own methods have a self as well


class Name(NamedTuple):
    """A name, its origin (``module``, ``variable``, ``local`` or none), and its tensor."""

    text: str
    kind: str
    tensor: Tensor


def name_of(t: Tensor, frame: Any, home: Any = None) -> Name:
    """A name for a tensor that is just being read.

    Running modules are searched first, then the block's own frame, then the callers. A tensor that
    only shares its array with a named one, as after ``detach()``, gets that name.
    """
    path: Any = MODES.now.scope
    start, asked, outermost = frame, None, (None, "")
    while frame is not None:
        code = frame.f_code
        if code.co_varnames[:1] == ("self",) and not code.co_filename.startswith(_HERE):
            locals = locals_of(frame)
            owner: Any = locals.get("self")
            if owner is not asked and hasattr(owner, "_parameters"):
                asked, outermost = owner, (owner, path)
                for held in (owner._parameters, owner._buffers):
                    found = _in(held, t)
                    if found is not None:
                        return Name(f"{path}.{found[0]}" if path else found[0], "module", found[1])
            if code.co_name == "__call__" and "outer" in locals:
                path = locals["outer"]
        frame = frame.f_back
    if isinstance(t, Parameter) and outermost[0] is not None:
        # Read by a module that it does not belong to: somewhere in the tree, then.
        for name, value in outermost[0].named_parameters(prefix=outermost[1]):
            if value is t:
                return Name(name, "module", value)
    return _in_variables(t, start, home)


def _in(held: Any, t: Tensor) -> tuple[str, Tensor] | None:
    """The name of a tensor in a dict, or of another on the same array."""
    other, array = None, t._a
    for name, value in list(held.items()):  # other threads may add to it
        if value is t:
            return name, t
        if isinstance(value, Tensor) and value._a is array and not name.startswith("_"):
            other = other or (name, value)
    return other


def _in_variables(t: Tensor, frame: Any, home: Any) -> Name:
    frames = ([] if home is None else [home]) + list(user_frames(frame))
    for frame in frames:
        found = _in(locals_of(frame), t)
        if found is not None:
            return Name(found[0], _kind(frame, found[0], home), found[1])
    for frame in frames:
        for variable, value in list(locals_of(frame).items()):
            for name, item in parts_of(variable, value):
                if item is t:
                    return Name(name, _kind(frame, variable, home), t)
    return Name("", "", t)


def user_frames(frame: Any) -> Iterator[Any]:
    """The frames of the program at and below a frame, innermost first."""
    while frame is not None:
        code = frame.f_code
        rule = code.co_name == "<lambda>" and code.co_filename == "<string>"
        if not rule and not is_own(code.co_filename):
            yield frame
        frame = frame.f_back


def parts_of(name: str, value: Any, depth: int = _DEEPEST) -> Iterator[tuple[str, Any]]:
    """What a batch holds, as the program writes it: ``batch['x']``, ``pair[0]``, ``batch.x``."""
    pairs: Iterable[tuple[str, Any]] = ()
    if isinstance(value, (list, tuple)):
        fields = getattr(value, "_fields", None)
        named = [f".{f}" for f in fields] if fields else [f"[{i}]" for i in range(len(value))]
        pairs = zip(named, value, strict=False) if len(value) < _MOST else ()
    elif isinstance(value, Mapping):
        pairs = [(f"[{k!r}]", v) for k, v in list(value.items())] if len(value) < _MOST else ()
    elif isinstance(value, SimpleNamespace) or (
        dataclasses.is_dataclass(value) and not isinstance(value, type)
    ):
        pairs = [(f".{k}", v) for k, v in list(getattr(value, "__dict__", {}).items())]
    for key, item in pairs:
        if isinstance(item, Tensor):
            yield name + key, item
        elif depth > 1:
            yield from parts_of(name + key, item, depth - 1)


def variables(frame: Any) -> dict[int, str]:
    """What the caller calls its tensors; a variable before a place in a container."""
    found: dict[int, str] = {}
    inner: dict[int, str] = {}
    for name, value in list(locals_of(frame).items()):
        if isinstance(value, Tensor):
            found[id(value)] = name
        else:
            for part, item in parts_of(name, value):
                inner.setdefault(id(item), part)
    return {**inner, **found}


def in_modules(frame: Any) -> dict[int, str]:
    """What the caller's modules call their tensors."""
    found: dict[int, str] = {}
    for value in list(locals_of(frame).values()):
        if hasattr(value, "_parameters") and hasattr(value, "named_parameters"):
            for named in (value.named_buffers, value.named_parameters):
                found.update((id(t), name) for name, t in named())
    return found


def _kind(frame: Any, name: str, home: Any) -> str:
    """Inputs are what the block's own function has, or what a function is given."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & CO_VARARGS)
    if frame is home or code.co_name == "<module>" or name in code.co_varnames[:count]:
        return "variable"
    return "local"


def class_of_scope(frame: Any, scope: str, found: dict[str, str]) -> None:
    """Note the classes of the modules that are running, by their paths."""
    path: Any = scope
    while frame is not None and path:
        if frame.f_code.co_name == "__call__" and "outer" in frame.f_code.co_varnames:
            locals = locals_of(frame)
            found.setdefault(path, type(locals["self"]).__name__)
            path = locals["outer"]
        frame = frame.f_back


# --- models ----------------------------------------------------------------------------


class Models:
    """The models whose modules ran: by their numbers, with a name for each.

    Paths carry no name while there is one model, as in ``0.weight``; with several each path
    begins with its model's: ``G.0.weight``.
    """

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def meet(self, scope: str, frame: Any, home: Any = None) -> str:
        """Note the model that a path begins at, when it is running; its number, if any."""
        tag = scopes.split(scope)[0]
        if tag and tag not in self.names:
            self.names[tag] = self._name(scopes.MODELS.get(tag), frame, home)
        return tag

    def _name(self, model: Any, frame: Any, home: Any) -> str:
        taken = set(self.names.values())
        if model is not None:
            frames = ([] if home is None else [home]) + list(user_frames(frame))
            for found in _variables_that_hold(model, frames):
                if found not in taken:
                    return found
        base = "model" if model is None else type(model).__name__
        name, count = base, 1
        while name in taken:
            count += 1
            name = f"{base}_{count}"
        return name

    def full(self, text: str) -> str:
        """A path or name with its model's name in front."""
        tag, path = scopes.split(text)
        return ".".join(filter(None, (self.names.get(tag, ""), path)))

    def shown(self, text: str) -> str:
        """A path or name as a graph of all these models has it."""
        if text[:1] != scopes.MARK:
            return text
        return self.full(text) if len(self.names) > 1 else scopes.path_of(text)

    def parts(self) -> tuple[dict[int, str], dict[str, str]]:
        """The names of all parameters and buffers by the tensor's id, and classes by path."""
        names: dict[int, str] = {}
        classes: dict[str, str] = {}
        for tag in self.names:
            model = scopes.MODELS.get(tag)
            if model is not None:
                parameters: dict[int, str] = {}
                _walk(model, self.shown(tag), parameters, names, classes)
                names.update(parameters)
        return names, classes


def _walk(
    model: Any, prefix: str, parameters: dict[int, str], buffers: dict[int, str],
    classes: dict[str, str],
) -> None:  # fmt: skip
    """Note what a model and all below it call their tensors, and their classes; each once.

    The same as ``named_parameters`` and similar methods return, in one traversal: a model may have
    many modules.
    """
    seen = set()
    stack = [(prefix, model)]
    while stack:
        path, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        start = path
        if path:
            classes[path], start = type(module).__name__, f"{path}."
        own = module.__dict__
        for name, t in own["_parameters"].items():
            if t is not None and id(t) not in parameters:
                parameters[id(t)] = start + name
        for name, t in own["_buffers"].items():
            if t is not None and id(t) not in buffers:
                buffers[id(t)] = start + name
        if own["_modules"]:
            for name, child in reversed(own["_modules"].items()):
                if child is not None:
                    stack.append((start + name, child))


def _variables_that_hold(model: Any, frames: list[Any]) -> Iterator[str]:
    """What the program calls a model: by a variable, or as an attribute of an object."""
    for frame in frames:
        held = locals_of(frame)
        yield from (k for k, v in list(held.items()) if v is model and k != "self")
        owner = getattr(held.get("self"), "__dict__", None)
        if isinstance(owner, dict):
            yield from (k for k, v in list(owner.items()) if v is model)
    for frame in frames:
        yield from (k for k, v in list(frame.f_globals.items()) if v is model)
