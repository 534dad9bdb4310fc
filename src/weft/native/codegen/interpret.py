"""Kernels run as plain Python functions, for reading and debugging.

With ``WEFT_KERNELS=python`` every kernel of the loop language runs line by line in Python: a
breakpoint in a kernel stops there, and its variables are numbers. It is thousands of times slower
than compiled code, and means the same but for the order of sums in kernels marked ``reassociate``.
What is given as LLVM IR (microkernels of matrix products) is not Python and can't be run so; the
NumPy reference takes its place.
"""

from __future__ import annotations

import ast
import copy
import ctypes
import functools
import inspect
import linecache
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from weft.native.codegen.compiler import (
    SIZES,
    STORED,
    Assembly,
    KernelFunction,
    NotPythonError,
    source_of,
)
from weft.native.fma import multiply_add

ndarray = np.ndarray


class Pointer:
    """An array by the address of an element, as kernels see it: ``p[i]``, ``p + n``."""

    __slots__ = ("address", "kind")

    def __init__(self, address: int, kind: str) -> None:
        self.address, self.kind = address, kind

    def __add__(self, elements: int) -> Pointer:
        return Pointer(self.address + int(elements) * SIZES[self.kind], self.kind)

    def __getitem__(self, index: int) -> Any:
        read, _ = ACCESS[self.kind]
        return read(self.address + int(index) * SIZES[self.kind])

    def __setitem__(self, index: int, value: Any) -> None:
        _, write = ACCESS[self.kind]
        write(self.address + int(index) * SIZES[self.kind], value)

    def __repr__(self) -> str:
        return f"<{self.kind} at {self.address:#x}>"


def _numbers(stored: Any, value: Callable, held: Callable | None = None) -> tuple[Any, Any]:
    """How numbers of a C type are read and written."""
    into = held or value

    def read(address: int) -> Any:
        return value(stored.from_address(address).value)

    def write(address: int, number: Any) -> None:
        stored.from_address(address).value = into(number)

    return read, write


def _words(dtype: Any) -> tuple[Any, Any]:
    """The same for a type that C lacks, via NumPy."""

    def at(address: int) -> ndarray:
        held: Any = (ctypes.c_uint16 * 1).from_address(address)
        return np.frombuffer(held, np.uint16).view(dtype)

    def write(address: int, number: Any) -> None:
        at(address)[0] = dtype(np.float32(number))

    return (lambda address: np.float32(at(address)[0])), write


def _bfloat() -> tuple[Any, Any]:
    from ml_dtypes import bfloat16

    return _words(bfloat16)


ACCESS: dict[str, tuple[Callable[[int], Any], Callable[[int, Any], None]]] = {
    "f32": _numbers(ctypes.c_float, np.float32, float),
    "f64": _numbers(ctypes.c_double, np.float64, float),
    "i64": _numbers(ctypes.c_int64, int),
    "i32": _numbers(ctypes.c_int32, int),
    "i16": _numbers(ctypes.c_int16, int),
    "i8": _numbers(ctypes.c_int8, int),
    "u8": _numbers(ctypes.c_uint8, int),
    "u16": _numbers(ctypes.c_uint16, int),
    "u32": _numbers(ctypes.c_uint32, int),
    "b1": _numbers(ctypes.c_uint8, bool, int),
    "f16": _words(np.float16),
    "bf16": _bfloat(),
}
CASTS: dict[str, Callable[[Any], Any]] = {
    "f32": np.float32,
    "f64": np.float64,
    "i64": int,
    "i32": lambda x: ctypes.c_int32(int(x)).value,
}


def _made(arrays: list[Any], cast: Any, size: int) -> Pointer:
    """``array(T, n)``: memory that lives as long as the call of the kernel."""
    kind = cast if isinstance(cast, str) else next(k for k, c in CASTS.items() if c is cast)
    held = (ctypes.c_char * (int(size) * SIZES[kind] + 64))()
    arrays.append(held)
    return Pointer(-(-ctypes.addressof(held) // 64) * 64, kind)


def _same_kind(function: Callable) -> Callable:
    """A function of NumPy's on the kernel's own numbers."""
    return lambda *values: np.result_type(*values).type(function(*values))


def _horner(x: Any, *coefficients: Any) -> Any:
    return functools.reduce(lambda total, c: INTRINSICS["fma"](total, x, c), coefficients)


INTRINSICS: dict[str, Callable] = {
    **{n: _same_kind(getattr(np, n)) for n in ("sqrt", "floor", "ceil", "trunc", "rint")},
    **{n: _same_kind(getattr(np, n)) for n in ("maximum", "minimum", "copysign")},
    "abs": abs,
    "fma": _same_kind(multiply_add),
    "horner": _horner,
    "bits": lambda x: int(np.float32(x).view(np.int32)),
    "from_bits": lambda x: np.int32(ctypes.c_int32(int(x)).value).view(np.float32),
    "bits_wide": lambda x: int(np.float64(x).view(np.int64)),
    "from_bits_wide": lambda x: np.int64(ctypes.c_int64(int(x)).value).view(np.float64),
    "exactly": lambda x: x,
    "min": min,
    "max": max,
    "range": range,
}


class KernelInterpreter:
    """One call of a kernel: what it calls is run in Python too."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []
        self.made: dict[Any, Callable] = {}

    def bound(self, function: KernelFunction, kinds: dict[str, str]) -> Callable:
        """A function of the language as a Python function, for dtypes of ``T`` and ``U``."""
        key = (id(function), *kinds.items())
        if key not in self.made:
            self.made[key] = self._bind(function, kinds)
        return self.made[key]

    def _bind(self, function: KernelFunction, kinds: dict[str, str]) -> Callable:
        tree = copy.deepcopy(function.tree)
        tree.decorator_list, tree.returns = [], None
        for argument in tree.args.args:
            argument.annotation = None
        file = inspect.getsourcefile(function.origin) if function.origin else None
        if function.origin is not None:
            ast.increment_lineno(tree, source_of(function.origin)[1] - 1)
        else:
            file = _shown(function)
        code = compile(ast.Module([tree], []), file or f"<{function.name}>", "exec")
        inner = next(c for c in code.co_consts if hasattr(c, "co_names"))
        scope = {name: self.meaning(name, function, kinds) for name in inner.co_names}
        return FunctionType(inner, {"__builtins__": {}, **scope}, function.name)

    def meaning(self, name: str, function: KernelFunction, kinds: dict[str, str]) -> Any:
        """What a name stands for in a kernel."""
        if name in kinds:
            return CASTS.get(STORED[kinds[name]][1], kinds[name])
        if name in CASTS:
            return CASTS[name]
        if name == "array":
            return lambda cast, size: _made(self.arrays, cast, size)
        if name == "at":
            return lambda cast, address: Pointer(
                int(address), next(k for k, c in CASTS.items() if c is cast)
            )
        found = function.scope.get(name)
        if isinstance(found, KernelFunction):
            return lambda *args: self.call(found, args)
        if isinstance(found, Assembly):
            raise NotPythonError(f"{function.name} calls {name}, which is LLVM code")
        return INTRINSICS.get(name, found)

    def call(self, function: KernelFunction, args: tuple[Any, ...]) -> Any:
        """A call of an inlined function: its type names mean what its arguments are."""
        if function.wide is not None and any(isinstance(a, np.float64) for a in args):
            if isinstance(function.wide, str):
                return np.float64(_library(function.wide)(*map(float, args)))
            function = function.wide
        kinds: dict[str, str] = {}
        for (_, text), value in zip(function.parameters, args, strict=True):
            if text.rstrip("*") in ("T", "U"):
                kinds[text.rstrip("*")] = _kind_of(value)
        cast = lambda text, v: CASTS[kinds[text]](v) if text in kinds else v
        given = [cast(t, v) for (_, t), v in zip(function.parameters, args, strict=True)]
        return self.bound(function, kinds)(*given)


def _shown(function: KernelFunction) -> str:
    """A name under which debuggers find the text of a generated kernel."""
    text, name = str(function.text), f"<{function.name}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    return name


def _kind_of(value: Any) -> str:
    if isinstance(value, Pointer):
        return value.kind
    if isinstance(value, np.float64):
        return "f64"
    return "f32" if isinstance(value, (float, np.float32)) else "i64"


def _library(name: str) -> Callable:
    """A function of the C library, which raises nothing."""
    found = getattr(np, {"pow": "power", "atan": "arctan"}.get(name, name), None)
    return found if found is not None else np.vectorize(getattr(math, name))


def runner(function: KernelFunction, bound: dict[str, str], consts: dict[str, Any]) -> Callable:
    """What ``Kernel.get`` gives, in Python: it takes arrays, addresses or None, and numbers."""
    check = KernelInterpreter()
    check.bound(function, bound)  # raises for code that is not Python

    def run(*args: Any) -> None:
        *given, size, _threads = args
        values = iter(given)
        arguments: list[Any] = []
        for name, text in function.parameters[:-2]:
            if name in consts:
                arguments.append(consts[name])
                continue
            value, base = next(values), text.rstrip("*")
            kind = bound.get(base, base)
            if text.endswith("*"):
                address = value.ctypes.data if isinstance(value, ndarray) else int(value or 0)
                arguments.append(Pointer(address, kind))
            else:
                arguments.append(CASTS[kind](value))
        interpreter = KernelInterpreter()
        with np.errstate(all="ignore"):
            interpreter.bound(function, bound)(*arguments, 0, int(size))

    return run
