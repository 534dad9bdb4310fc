"""The signature of an op as PyTorch writes it: ``ns::op(Tensor x, float k=1.0) -> Tensor``."""

from __future__ import annotations

import ast
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import weft
from weft.core import errors
from weft.core.tensor import Tensor

_EMPTY = inspect.Parameter.empty
# What Python calls a type, and what schemas call it.
_KINDS: dict[Any, str] = {
    Tensor: "Tensor", int: "SymInt", float: "float", bool: "bool", str: "str",
    complex: "complex", weft.dtype: "ScalarType", weft.device: "Device",
    int | float | bool: "Scalar",
}  # fmt: skip
_SHOWN = {"SymInt": "int", "ScalarType": "int", "Scalar": "number"}
# PyTorch's numbers of dtypes, which stand for them as default values.
_NUMBERS = {
    weft.uint8: 0, weft.int8: 1, weft.int16: 2, weft.int32: 3, weft.int64: 4, weft.float16: 5,
    weft.float32: 6, weft.float64: 7, weft.complex64: 9, weft.complex128: 10, weft.bool: 11,
    weft.bfloat16: 15,
}  # fmt: skip


_ARITHMETIC = {"int", "SymInt", "float", "bool", "complex", "Scalar"}


def _has_dims(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim > 0


@dataclass(frozen=True)
class Argument:
    """One argument of a schema, or one result."""

    name: str
    kind: str  # as it is written, such as "Tensor(a!)?"
    default_value: Any = None
    text: str = ""  # the default as it is written
    kwarg_only: bool = False

    @property
    def type(self) -> str:
        """The type, by PyTorch's long names: ``Optional[List[int]]``."""
        return _long(re.sub(r"\(.*?\)", "", self.kind))

    @property
    def is_write(self) -> bool:
        """Whether the op changes it."""
        return "!" in self.kind

    def has_default_value(self) -> bool:
        """Whether calls may leave it out."""
        return bool(self.text)

    def __str__(self) -> str:
        written = f"{self.kind} {self.name}".strip()
        return f"{written}={self.text}" if self.text else written


def _long(kind: str) -> str:
    if kind.endswith("?"):
        return f"Optional[{_long(kind[:-1])}]"
    if found := re.fullmatch(r"(.*)\[\d*\]", kind):
        return f"List[{_long(found[1])}]"
    return _SHOWN.get(kind, kind)


@dataclass(frozen=True)
class Schema:
    """An op's name, its arguments and what it gives."""

    name: str
    overload_name: str
    arguments: tuple[Argument, ...]
    returns: tuple[Argument, ...]
    many: bool = False  # results in parentheses

    def __str__(self) -> str:
        named = f"{self.name}.{self.overload_name}" if self.overload_name else self.name
        parts = [str(a) for a in self.arguments]
        keywords = [a.kwarg_only for a in self.arguments]
        if True in keywords:
            parts.insert(keywords.index(True), "*")
        results = ", ".join(str(r) for r in self.returns)
        return f"{named}({', '.join(parts)}) -> {f'({results})' if self.many else results}"

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[list, dict[str, Any]]:
        """The arguments of a call in their order, those by keyword only apart; checked."""
        given = list(args)
        named: dict[str, Any] = {}
        left = dict(kwargs)
        places = sum(not a.kwarg_only for a in self.arguments)
        if len(args) + len(kwargs) > len(self.arguments):
            self._refuse(
                f"expected at most {len(self.arguments)} argument(s) but received "
                f"{len(args) + len(kwargs)} argument(s)."
            )
        if len(args) > places:
            self._refuse(f"takes {places} positional argument(s) but {len(args)} was/were given. ")
        for place, argument in enumerate(self.arguments):
            if place < len(args):
                value = given[place]
            elif argument.name in left:
                value = left.pop(argument.name)
            elif argument.text:
                value = argument.default_value
            else:
                self._refuse(f"is missing value for argument '{argument.name}'.")
            self._check(place, argument, value)
            if argument.kwarg_only:
                named[argument.name] = value
            elif place >= len(args):
                given.append(value)
        for name in left:
            known = any(a.name == name for a in self.arguments)
            what = (
                f"Argument '{name}' specified both as positional and keyword argument."
                if known
                else f"Unknown keyword argument '{name}' for operator '{self.name}'."
            )
            raise RuntimeError(f"{what} Schema: {self}\n  at {errors.here()}")
        return given, named

    def _check(self, place: int, argument: Argument, value: Any) -> None:
        kind = re.sub(r"\(.*?\)", "", argument.kind)
        if kind.endswith("?"):
            if value is None:
                return
            kind = kind[:-1]
        wanted, values = kind, (value,)
        if found := re.fullmatch(r"(.*)\[(\d*)\]", kind):
            if not isinstance(value, (list, tuple)):
                if found[2] and not isinstance(value, Tensor):
                    return  # one number stands for as many
                values, wanted = (value,), ""
            else:
                values, wanted = tuple(value), found[1]
        right: Any = {"Tensor": Tensor, "Tensor?": (Tensor, type(None)), "str": str, "": ()}
        if wanted in _ARITHMETIC:
            fits = not any(isinstance(v, (str, list, tuple)) or _has_dims(v) for v in values)
        else:
            fits = all(isinstance(v, right.get(wanted, object)) for v in values)
        if fits:
            return
        self._refuse(
            f"Expected a value of type '{argument.type}' for argument '{argument.name}' but "
            f"instead found type '{type(value).__name__}'.\nPosition: {place}\nValue: {value}\n"
        )

    def _refuse(self, what: str) -> typing.NoReturn:
        gap = "" if what.endswith("\n") else " "
        raise RuntimeError(f"{self.name}() {what}{gap}Declaration: {self}\n  at {errors.here()}")


# ------------------------------------------------------------------ from text


def parse(text: str, name: str = "", overload: str = "") -> Schema:
    """A schema as it is written, with or without the name.

    >>> print(parse("f(Tensor x, int n=1) -> Tensor", "mine::f"))
    mine::f(Tensor x, int n=1) -> Tensor
    """
    found = re.fullmatch(r"\s*[\w:.]*\s*\((.*)\)\s*->\s*(.*?)\s*", text, re.DOTALL)
    if found is None:
        raise RuntimeError(
            f"a schema is like 'f(Tensor x, int n=1) -> Tensor', got {text!r}\n  at {errors.here()}"
        )
    arguments: list[Argument] = []
    keywords = False
    for part in _split(found[1]):
        if part == "*":
            keywords = True
        else:
            arguments.append(_argument(part, keywords))
    results = found[2]
    many = results.startswith("(") and results.endswith(")")
    returns = []
    for part in _split(results[1:-1] if many else results):
        kind, _, named = part.partition(" ")
        returns.append(Argument(named, kind))
    return Schema(name, overload, tuple(arguments), tuple(returns), many)


def _split(text: str) -> list[str]:
    """The parts between commas that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        else:
            depth += (c in "([") - (c in ")]")
        if c == "," and not depth and not quote:
            parts.append("")
        else:
            parts[-1] += c
    return [stripped for part in parts if (stripped := part.strip())]


def _argument(text: str, keyword: bool) -> Argument:
    found = re.fullmatch(r"(.+?)\s+(\w+)\s*(?:=\s*(.+))?", text, re.DOTALL)
    if found is None:
        raise RuntimeError(
            f"an argument of a schema is like 'int n=1', got {text!r}\n  at {errors.here()}"
        )
    kind, name, written = found.groups()
    value: Any = None
    if written:
        try:
            value = ast.literal_eval(written)
        except (ValueError, SyntaxError):
            value = written  # such as Mean
    return Argument(name, kind, value, written or "", keyword)


# ------------------------------------------------------------------ from a function


def infer(function: Callable, mutates_args: str | Iterable[str], name: str = "") -> Schema:
    """The schema that a function's annotations say; that of a named op has numbers for dtypes."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError:
        signature = inspect.signature(function)
    changed = mutates_args if mutates_args == "unknown" else set(mutates_args)
    arguments: list[Argument] = []
    for p in signature.parameters.values():
        arguments.append(_of_parameter(p, changed, len(arguments), bool(name), signature))
    if isinstance(changed, set) and (unknown := changed - set(signature.parameters)):
        _refuse(
            f"{unknown} in mutates_args were not found in the custom op's signature. mutates_args "
            "should contain the names of all args that the custom op mutates, or just the string "
            "'unknown' if you don't know.",
            signature,
        )
    kinds = _results(signature)
    many = len(kinds) != 1
    returns = tuple(Argument("", kind) for kind in kinds)
    return Schema(name, "", tuple(arguments), returns, many)


def _of_parameter(
    p: inspect.Parameter, changed: Any, place: int, numbered: bool, signature: inspect.Signature
) -> Argument:
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        _refuse("We do not support positional-only args, varargs, or varkwargs.", signature)
    if p.annotation is _EMPTY:
        _refuse(f"Parameter {p.name} must have a type annotation.", signature)
    kind = _kind(p.annotation)
    if kind is None:
        _refuse(
            f"Parameter {p.name} has unsupported type {p.annotation}. The valid types are: Tensor, "
            "int, float, bool, str, complex, dtype, device, and Optional and Sequence of these.",
            signature,
        )
    writes = changed == "unknown" or p.name in changed
    if writes and kind.startswith("Tensor"):
        kind = f"Tensor(a{place}!){kind.removeprefix('Tensor')}"
    elif writes and changed != "unknown":
        _refuse(
            f"Parameter {p.name} is in mutable_args but only Tensors or collections of Tensors "
            "can be mutated",
            signature,
        )
    by_keyword = p.kind is p.KEYWORD_ONLY
    if p.default is _EMPTY:
        return Argument(p.name, kind, kwarg_only=by_keyword)
    return Argument(p.name, kind, p.default, _written(p, numbered, signature), by_keyword)


def _kind(annotation: Any) -> str | None:
    if annotation in _KINDS:
        return _KINDS[annotation]
    inner = typing.get_args(annotation)
    origin = typing.get_origin(annotation)
    if origin in (typing.Union, types.UnionType):
        rest = [a for a in inner if a is not type(None)]
        whole = rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]
        kind = _KINDS.get(whole) if len(rest) > 1 else _kind(whole)
        return f"{kind}?" if kind and len(rest) < len(inner) else kind
    if origin in (list, Sequence) and len(inner) == 1:
        kind = _kind(inner[0])
        return None if kind is None else f"{kind}[]"
    return None


def _written(p: inspect.Parameter, numbered: bool, signature: inspect.Signature) -> str:
    value = p.default
    if value is None or isinstance(value, (int, float, bool)):
        return str(value)
    if isinstance(value, (str, weft.device)):
        return f'"{value}"'
    if isinstance(value, weft.dtype) and not numbered:
        return str(value).rpartition(".")[2]
    if value not in _NUMBERS:
        _refuse(f"Parameter {p.name} has an unsupported default value {value}.", signature)
    return str(_NUMBERS[value])


def _results(signature: inspect.Signature) -> list[str]:
    annotation = signature.return_annotation
    if annotation is _EMPTY:
        _refuse("No return type annotation was provided. Please add one.", signature)
    if annotation is None or annotation is type(None):
        return []
    parts = typing.get_args(annotation) if typing.get_origin(annotation) is tuple else (annotation,)
    kinds = [_kind(part) for part in parts]
    if None in kinds:
        _refuse(f"Return has unsupported type {annotation}.", signature)
    return typing.cast(list[str], kinds)


def _refuse(what: str, signature: inspect.Signature) -> typing.NoReturn:
    raise ValueError(
        f"infer_schema(func): {what} Got func with signature {signature})\n  at {errors.here()}"
    )
