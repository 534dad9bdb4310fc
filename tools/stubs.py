"""Writes the type stubs of what the op blocks put into weft, which no type checker could find.

    python tools/stubs.py            # write them
    python tools/stubs.py --check    # say which are out of date, and fail if any is

The public functions and the methods of Tensor are made while weft is imported. Their signatures
are read from the functions themselves; ``stub_types.py`` says what signatures do not: the types of
arguments that are checked at run time, and the functions whose result depends on an argument.
"""

from __future__ import annotations

import argparse
import ast
import collections.abc
import importlib
import inspect
import math
import pathlib
import pkgutil
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import stub_types as known

import weft
from weft.core.tensor import Layout, Parameter, Tensor
from weft.operators import api
from weft.operators.along import RESULT_TYPES

SOURCE = pathlib.Path(weft.__file__).parent
HEAD = """\
# Made by tools/stubs.py (`make stubs`) from the functions themselves: do not edit.
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from weft import return_types as _return_types
{tensor}from weft.core.device import device as _device
from weft.core.dtype import dtype as _dtype
from weft.core.size import Size as _Size
from weft.core.storage import TypedStorage as _TypedStorage
from weft.core.storage import UntypedStorage as _UntypedStorage
from weft.operators.casting import memory_format as _memory_format
from weft.operators.random import Generator as _Generator

# Methods and dtypes have these names too.
_bool = builtins.bool
_bytes = builtins.bytes
_complex = builtins.complex
_float = builtins.float
_int = builtins.int
_str = builtins.str
_type = builtins.type
_Operand = {quote}Tensor{quote} | _complex | np.generic | np.ndarray
_Device = _device | _str | _int
_Dtype = _dtype | _type
_Ints = SupportsIndex | Sequence[SupportsIndex]
"""
GENERIC = {
    collections.abc.Callable: "Callable",
    collections.abc.Iterator: "Iterator",
    collections.abc.Mapping: "Mapping",
    collections.abc.Sequence: "Sequence",
}
WEFT_TYPES = {
    Tensor: "Tensor",
    weft.device: "_device",
    weft.dtype: "_dtype",
    weft.Size: "_Size",
    weft.Generator: "_Generator",
    weft.memory_format: "_memory_format",
    weft.TypedStorage: "_TypedStorage",
    weft.UntypedStorage: "_UntypedStorage",
}


def rendered(kind: Any) -> str:
    """A type as a stub writes it; Any for what no stub can name."""
    if kind is None or kind is type(None):
        return "None"
    if isinstance(kind, list):  # the arguments of a Callable
        return f"[{', '.join(rendered(part) for part in kind)}]"
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        parts = [rendered(part) for part in typing.get_args(kind)]
        return "Any" if "Any" in parts else " | ".join(parts)
    origin = typing.get_origin(kind)
    if origin is not None:
        inner = ["..." if a is ... else rendered(a) for a in typing.get_args(kind)]
        return f"{GENERIC.get(origin) or origin.__name__}[{', '.join(inner)}]"
    if kind is collections.abc.Callable:
        return "Callable[..., Any]"
    if kind in WEFT_TYPES:
        return WEFT_TYPES[kind]
    if kind is np.ndarray:
        return "np.ndarray"
    if isinstance(kind, type) and kind.__module__ == "builtins":
        if kind in (tuple, list, dict, set):
            return {"tuple": "tuple[Any, ...]", "dict": "dict[Any, Any]"}.get(
                kind.__name__, f"{kind.__name__}[Any]"
            )
        alias = f"_{kind.__name__}"
        return alias if f"\n{alias} =" in HEAD else f"builtins.{kind.__name__}"
    return "Any"


def annotation(value: Any, scope: dict[str, Any]) -> str:
    """An annotation as it stands in the source, as a stub writes it."""
    if value is inspect.Parameter.empty:
        return "Any"
    if isinstance(value, str):
        try:
            value = eval(value, {**vars(typing), **vars(collections.abc), **scope})
        except (NameError, AttributeError, TypeError):
            return "Any"
    return rendered(value)


def default(value: Any) -> str:
    """A default value, if it can be written down."""
    if value is None or isinstance(value, (bool, int, str)):
        return repr(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else "..."
    if isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value):
        return repr(value)
    return "..."


class Parameters(list[str]):
    """The parameters of a function, ready to be joined; knows whether a star stands in it."""

    starred = False

    def add(self, text: str, kind: Any) -> None:
        if kind is inspect.Parameter.VAR_POSITIONAL:
            self.starred = True
        elif kind is inspect.Parameter.KEYWORD_ONLY and not self.starred:
            self.append("*")
            self.starred = True
        self.append(text)


def chain(function: Callable) -> Iterator[Any]:
    """A function and those that it wraps."""
    while function is not None:
        yield function
        function = getattr(function, "__wrapped__", None)  # type: ignore[assignment]


def takes_out(function: Callable) -> bool:
    """Whether one of the wrappers adds an ``out`` argument."""
    return any(
        "out" in f.__code__.co_varnames[: f.__code__.co_argcount + f.__code__.co_kwonlyargcount]
        for f in chain(function)
        if inspect.isfunction(f)
    )


def takes_numpy_names(function: Callable) -> bool:
    """Whether ``axis`` may stand for ``dim``."""
    return any(
        f.__code__.co_name == "public" and f.__code__.co_filename.endswith(("along.py", "api.py"))
        for f in chain(function)
        if inspect.isfunction(f)
    )


def result(function: Callable, name: str, home: str, returned: str) -> str:
    """The type of a result, where the signature says Any."""
    if returned != "Any":
        return returned
    if name in known.RESULTS:
        return known.RESULTS[name]
    inmost = list(chain(function))[-1]
    if inspect.isfunction(inmost) and inmost.__code__.co_name in ("unary", "binary"):
        return "Tensor"
    named = name if home == "" else f"{home}_{name}"
    return f"_return_types.{named}" if named in RESULT_TYPES else "Any"


def signatures(name: str, function: Callable, *, method: bool, home: str = "") -> list[str]:
    """What a function can be called with: one line, or several for overloads."""
    if not home and not method and name in known.FUNCTIONS:
        return known.FUNCTIONS[name]
    if not home and name in known.OVERLOADS:
        first = "self" if method else "input: Tensor"
        return [line.replace("self", first, 1) for line in known.OVERLOADS[name]]
    inmost = list(chain(function))[-1]
    signature = inspect.signature(inmost)
    parameters = list(signature.parameters.values())
    scope = getattr(inmost, "__globals__", {})
    found = Parameters()
    if method:
        parameters = parameters[1:] if parameters and parameters[0].kind < 2 else parameters
        found.append("self")
    pairwise = inspect.isfunction(inmost) and inmost.__code__.co_name in ("unary", "binary")
    for p in parameters:
        if p.name in known.DROPPED or (method and p.name == "out"):
            continue
        kind = annotation(p.annotation, scope)
        if pairwise and p.name == "input":
            kind = "Tensor | _complex" if "other" in signature.parameters else "Tensor"
        if kind == "Any":
            kind = known.argument(p, name)
        stars = "*" * max(0, (p.kind in (2, 4)) + (p.kind == 4))
        text = f"{stars}{p.name}: {kind}"
        if p.default is None and kind != "Any" and not kind.endswith("None"):
            text += " | None"
        if p.default is not inspect.Parameter.empty:
            text += f" = {default(p.default)}"
        found.add(text, p.kind)
    if not method and takes_out(function) and "out" not in signature.parameters:
        text = f"out: {known.OUT} = None"
        at = len(found) - (found[-1].startswith("**") if found else 0)
        rest = found[at:]
        del found[at:]
        found.add(text, inspect.Parameter.KEYWORD_ONLY)
        found.extend(rest)
    returned = annotation(signature.return_annotation, scope)
    returned = result(function, name, home, returned)
    if returned == "Tensor":
        found[:] = [p.replace(f"out: {known.OUT}", "out: Tensor | None") for p in found]
    return _variants(name, found, returned, takes_numpy_names(function))


def _variants(name: str, found: list[str], returned: str, numpy_names: bool) -> list[str]:
    line = lambda parameters, kind: f"({', '.join(parameters)}) -> {kind}"
    flag = "return_indices: _bool = False"
    if returned == "Any" and flag in found:
        without = [p for p in found if p != flag]
        asked = [p.split(" = ")[0] if p == flag else p for p in found]
        at = asked.index("return_indices: _bool")
        asked.insert(at, "*") if "*" not in asked[:at] else None
        return [line(without, "Tensor"), line(asked, "Any")]
    lines = [line(found, returned)]
    names = [p.split(":")[0] for p in found]
    if numpy_names and "dim" in names and "axis" not in names:
        # What stands after ``axis`` goes by keyword there, so that this differs from the first.
        before = [p for p in found[: names.index("dim")] if p != "*"]
        after = [p for p in found[names.index("dim") :] if p != "*"]
        after = [p.replace("keepdim:", "keepdims:", 1) for p in after]
        after[0] = after[0].replace("dim:", "axis:", 1).split(" = ")[0]
        lines.append(line([*before, "*", *after], returned))
    return lines


def definition(name: str, lines: list[str], doc: str | None, indent: str) -> str:
    """A function of a stub, with the first line of its documentation."""
    text = (doc or "").strip().split("\n")[0].replace("\\", "\\\\").replace('"""', "'''")
    if text.endswith('"'):
        text += " "
    body = f'\n{indent}    """{text}"""' if text else " ..."
    over = f"{indent}@overload\n" if len(lines) > 1 else ""
    if name in ("__eq__", "__ne__"):
        body += "  # type: ignore[override]"
    return "\n".join(f"{over}{indent}def {name}{line}:{body}" for line in lines)


def in_place(name: str, function: Callable) -> Callable:
    """The function whose parameters an in-place method has."""
    names = inspect.signature(function).parameters
    base = vars(Tensor).get(name[:-1])
    vague = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in names.values())
    if vague and base is not None and not name.endswith("__"):
        return base
    return function


def tensor_class() -> Iterator[str]:
    """The lines of the class Tensor."""
    yield "class Tensor:"
    yield f'    """{(Tensor.__doc__ or "").splitlines()[0]}"""'
    yield "    def __init__(self, *args: Any, **kwargs: Any) -> None: ..."
    for name, value in sorted(vars(Tensor).items()):
        if name in known.OPERATORS:
            yield definition(name, [known.OPERATORS[name]], None, "    ")
        elif name in known.SKIPPED or (name.startswith("_") and not name.startswith("__")):
            continue
        elif isinstance(value, property):
            yield from _property(name, value)
        elif inspect.isfunction(value):
            source = in_place(name, value) if name.endswith("_") else value
            lines = signatures(name, source, method=True)
            if source is not value:
                lines = [f"{line.rpartition(' -> ')[0]} -> Tensor" for line in lines]
            doc = value.__doc__ or (f"``{name[:-1]}`` in place." if name.endswith("_") else None)
            yield definition(name, lines, None if name.startswith("__") else doc, "    ")


def _property(name: str, value: property) -> Iterator[str]:
    getter: Any = value.fget
    kind = known.PROPERTIES.get(name)
    if kind is None:
        returned = getattr(getter, "__annotations__", {}).get("return", inspect.Parameter.empty)
        kind = annotation(returned, getattr(getter, "__globals__", {}))
    yield f"    @property\n    def {name}(self) -> {kind}:"
    yield f'        """{(value.__doc__ or known.asked(name)).splitlines()[0]}"""'
    if value.fset is not None:
        yield f"    @{name}.setter\n    def {name}(self, value: {kind}) -> None: ..."


def tensor_stub() -> str:
    """The stub of weft.core.tensor: Tensor, Parameter, and what weft itself takes from there."""
    module = importlib.import_module("weft.core.tensor")
    lines = [HEAD.format(tensor="", quote='"'), *tensor_class(), ""]
    lines += [
        "class Parameter(Tensor):",
        f'    """{(Parameter.__doc__ or "").splitlines()[0]}"""',
        "    def __init__(",
        "        self, data: Tensor | None = None, requires_grad: _bool = True",
        "    ) -> None: ...",
        "",
        "class Layout:",
        f'    """{(Layout.__doc__ or "").splitlines()[0]}"""',
        "    name: _str",
        "    def __init__(self, name: _str) -> None: ...",
        "",
        "LATE: Any",
        "LAYOUT: Layout",
        "new: Any",
    ]
    for name, value in sorted(vars(module).items()):
        if inspect.isfunction(value) and value.__module__ == module.__name__:
            lines.append(
                definition(name, signatures(name, value, method=False, home="-"), None, "")
            )
    return "\n".join(lines) + "\n"


def public_names(names: dict[str, Any], home: str) -> Iterator[str]:
    """The lines for the public functions of one namespace, and for values and classes there."""
    for name, value in sorted(names.items()):
        if inspect.isfunction(value):
            lines = signatures(name, value, method=False, home=home)
            yield definition(name, lines, value.__doc__, "")
        elif isinstance(value, type) and value.__module__ == "weft":  # FloatTensor and its kin
            yield f"class {name}(Tensor): ..."
        elif isinstance(value, type) and value.__module__.startswith("weft"):
            yield f"from {value.__module__} import {value.__qualname__} as {name}"
        elif callable(value):
            yield f"{name}: Callable[..., Any]"
        else:
            yield f"{name}: {WEFT_TYPES.get(type(value)) or _plain(value)}"


def _plain(value: Any) -> str:
    if isinstance(value, (bool, int, float, str)):
        return f"_{type(value).__name__}"
    return "Layout" if isinstance(value, Layout) else "Any"


def namespace_stub(path: str) -> str:
    """The stub of a module such as ``weft.linalg`` that shows functions of the op blocks."""
    module = importlib.import_module(f"weft.{path}")
    lines = [HEAD.format(tensor="from weft.core.tensor import Tensor\n", quote="")]
    home = path if path in ("linalg", "special", "fft") else "-"
    own = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("weft")
    }
    if path == "nn.functional":
        lines.append("from weft.nn import grad as grad")
    return "\n".join([*lines, *public_names(own, home)]) + "\n"


def return_types_stub() -> str:
    """The stub of weft.return_types: results with several named parts."""
    lines = [
        "# Made by tools/stubs.py (`make stubs`): do not edit.",
        "from typing import NamedTuple",
    ]
    lines += ["", "from weft.core.tensor import Tensor"]
    for name, kind in sorted(RESULT_TYPES.items()):
        lines += ["", f"class {name}(NamedTuple):"]
        lines += [f"    {field}: Tensor" for field in kind._fields]
    return "\n".join(lines) + "\n"


def imported() -> Iterator[str]:
    """What ``weft/__init__.py`` imports by name, offered again."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module != "__future__":
            for item in node.names:
                name = item.asname or item.name
                if not name.startswith("_") and node.module != "typing":
                    yield f"from {node.module} import {item.name} as {name}"


def package_stub() -> str:
    """The stub of weft itself."""
    tensor = "from weft.core.tensor import Tensor as Tensor\n"
    lines = [HEAD.format(tensor=tensor, quote=""), *imported()]
    lines.append("from weft.core.tensor import Layout as Layout")
    # Type checkers do not follow ``weft.__path__`` to the folder of shims.
    for home, folder in (("weft", SOURCE), ("weft.compat.shims", SOURCE / "compat/shims")):
        modules = [m.name for m in pkgutil.iter_modules([str(folder)])]
        public = [n for n in modules if not n.startswith("_") and n not in known.APART]
        lines += [f"from {home} import {name} as {name}" for name in public]
    for name, module in weft._ELSEWHERE.items():
        lines.append(f"from weft.{module} import {name} as {name}")
    casting = importlib.import_module("weft.amp.autocast_mode")
    for name in sorted(casting.TOP):
        written = getattr(casting, name).__name__ == name and "<locals>" not in str(
            getattr(casting, name).__qualname__
        )
        here = f"from {casting.__name__} import {name} as {name}"
        lines.append(here if written else f"{name}: Callable[..., Any]")
    lines.append("from weft.torch_version import __version__ as __version__")
    lines += [f"{name}: _float" for name in ("e", "inf", "nan", "pi")]
    lines.append("newaxis: None")
    dtypes = {n: v for n, v in vars(weft).items() if isinstance(v, weft.dtype)}
    lines += [f"{name}: _dtype" for name in sorted(dtypes)]
    offered = {n: v for n, v in api.FUNCTIONS.items() if n not in known.IMPORTED}
    return "\n".join([*lines, *public_names(offered, "")]) + "\n"


def stubs() -> dict[pathlib.Path, str]:
    """Every stub by its path."""
    made = {SOURCE / "__init__.pyi": package_stub(), SOURCE / "core/tensor.pyi": tensor_stub()}
    made[SOURCE / "return_types.pyi"] = return_types_stub()
    for path in api.NAMESPACES:
        module = importlib.import_module(f"weft.{path}")
        made[pathlib.Path(str(module.__file__)).with_suffix(".pyi")] = namespace_stub(path)
    return made


def main() -> int:
    """Write the stubs, or check them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if out of date")
    options = parser.parse_args()
    old = []
    for path, text in stubs().items():
        if not path.exists() or path.read_text() != text:
            old.append(path)
            if not options.check:
                path.write_text(text)
    for path in old:
        print(f"{'out of date' if options.check else 'written'}: {path.relative_to(SOURCE.parent)}")
    if old and options.check:
        print("run `make stubs`")
    return 1 if old and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
