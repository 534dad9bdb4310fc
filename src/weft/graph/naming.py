"""What the program calls a tensor: its name in a module, or of a variable."""

from __future__ import annotations

from inspect import CO_VARARGS
from typing import Any, NamedTuple

from weft.core.errors import is_own
from weft.core.modes import MODES
from weft.core.tensor import Parameter, Tensor
from weft.graph.frames import locals_of


class Name(NamedTuple):
    """A name, whose it is (``module``, ``variable``, ``local`` or nobody's), and its tensor."""

    text: str
    kind: str
    tensor: Tensor


def name_of(t: Tensor, frame: Any, home: Any = None) -> Name:
    """A name for a tensor that is just being read.

    Modules that are running are asked first, then the frame at home, then the callers. A tensor
    that only shares its array with one that has a name, as after ``detach()``, gives that one.
    """
    path: Any = MODES.now.scope
    start, asked, outermost = frame, None, (None, "")
    while frame is not None:
        code = frame.f_code
        if code.co_varnames[:1] == ("self",):
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
    for name, value in held.items():
        if value is t:
            return name, t
        if isinstance(value, Tensor) and value._a is array and not name.startswith("_"):
            other = other or (name, value)
    return other


def _in_variables(t: Tensor, frame: Any, home: Any) -> Name:
    frames = [] if home is None else [home]
    while frame is not None:
        code = frame.f_code
        rule = code.co_name == "<lambda>" and code.co_filename == "<string>"
        if not rule and not is_own(code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    for frame in frames:
        found = _in(locals_of(frame), t)
        if found is not None:
            return Name(found[0], _kind(frame, found[0], home), found[1])
    for frame in frames:
        for name, value in locals_of(frame).items():
            if value.__class__ in (list, tuple) and len(value) < 100:
                for i, item in enumerate(value):
                    if item is t:
                        return Name(f"{name}[{i}]", _kind(frame, name, home), t)
    return Name("", "", t)


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
