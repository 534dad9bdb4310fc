"""Tracing of elementwise functions into one compiled loop.

A function written for arrays (the NumPy reference of an op, its derivative rule, an optimizer's
update) is run once on tracer values that record what is done to an element; that becomes the body
of a kernel, one pass over memory on all threads. If a function reads values or does anything but
arithmetic, it can't be traced, and the caller falls back to NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.native import fma, threads
from weft.native.codegen import jit
from weft.native.codegen.compiler import INTRINSICS, KernelError, KernelFunction
from weft.native.codegen.whole import EntrySpec
from weft.native.memory import buffers
from weft.native.memory.layout import geometry, strides_of_result
from weft.native.once import LOCK, module

ndarray = np.ndarray
DTYPES: dict[str, np.dtype] = {
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "b1": np.dtype(np.bool_),
    "i64": np.dtype(np.int64),
}
KINDS = {d: k for k, d in DTYPES.items() if k != "i64"}  # what loops compute with by default
HALVES = {"float16": "f16", "bfloat16": "bf16"}  # kept in two bytes, computed in float32
GRAIN = 16384  # elements that are worth a thread
EXACT = ("fmod",)  # functions of the kernel language that give NumPy's bits
SPREADS = 256  # layouts of arguments that one function remembers


class NotTraceableError(TypeError):
    """A function that does more than arithmetic on elements."""


class Tape:
    """What a traced function did: one line for each operation."""

    def __init__(self, kind: str) -> None:
        self.kind, self.lines = kind, list[str]()
        self.exact = True  # whether NumPy would have given the same bits

    def put(self, text: str, kind: str) -> Element:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Element(self, name, kind)


def _text(tape: Tape, value: Any) -> str:
    if isinstance(value, Element):
        return value.text
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    if isinstance(value, int):
        return repr(value if tape.kind == "i64" else float(value))
    if isinstance(value, float) and not isinstance(value, np.floating):
        return repr(value)
    if isinstance(value, (np.generic, ndarray)) and value.size == 1:
        if value.dtype == DTYPES[tape.kind]:
            return repr(value.item())
        if value.dtype == np.bool_:
            return str(int(value))
    raise NotTraceableError(f"{type(value).__name__} among traced values")


class Element:
    """Stands for one element of an array."""

    __slots__ = ("kind", "tape", "text")
    __array_priority__ = 1e9
    size, ndim, shape = 1, 0, ()

    def __init__(self, tape: Tape, text: str, kind: str) -> None:
        self.tape, self.text, self.kind = tape, text, kind

    @property
    def dtype(self) -> np.dtype:
        return DTYPES[self.kind]

    def __bool__(self) -> bool:
        raise NotTraceableError("a branch on a value")

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        out = options.pop("out", None)
        if "dtype" in options and options["dtype"] == self.dtype:
            del options["dtype"]  # asked by name: to NumPy a missing one equals float64
        handler = UFUNCS.get(ufunc)
        if method != "__call__" or handler is None or options:
            raise NotTraceableError(f"np.{ufunc.__name__}")
        result = handler(self.tape, *args)
        if out is None:
            return result
        (target,) = out
        if not isinstance(target, Element):
            raise NotTraceableError("a result written to an array")
        target.set(result)
        return target

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function is np.where and len(args) == 3:
            return choose(self.tape, *args)
        if function is np.clip and len(args) == 3 and not options:
            value, low, high = args
            value = value if low is None else UFUNCS[np.maximum](self.tape, value, low)
            return value if high is None else UFUNCS[np.minimum](self.tape, value, high)
        if function is np.copyto:
            target, source = args
            where = options.get("where", True)
            target.set(source if where is True else choose(self.tape, where, source, target))
            return None
        raise NotTraceableError(f"np.{function.__name__}")

    def set(self, value: Any) -> None:
        """Take on another value, as an array that is written to."""
        if isinstance(value, Element) and value.kind == self.kind:
            self.text = value.text
        else:
            self.text = self.tape.put(f"T({_text(self.tape, value)})", self.kind).text


class Setting(Element):
    """Stands for a number that is the same for all elements, such as a slope.

    Python computes with numbers in double precision, and arrays take them rounded to their own
    type. So does the loop, which hence gives the bits that it would with the number itself.
    """

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *args: Any, **options: Any) -> Any:
        if not any(a.__class__ is Element for a in args):
            raise NotTraceableError(f"np.{ufunc.__name__} of numbers")
        return super().__array_ufunc__(ufunc, method, *args, **options)


def _only_numbers(values: Any) -> bool:
    """Whether a calculation is between numbers, of which some stand for others."""
    kinds = [v.__class__ for v in values]
    return Setting in kinds and not set(kinds) - {Setting, int, float}


def choose(tape: Tape, condition: Any, a: Any, b: Any) -> Element:
    kind = _common(tape, a, b)
    test = _text(tape, condition)
    return tape.put(f"T({_text(tape, a)}) if {test} else T({_text(tape, b)})", kind)


def _common(tape: Tape, *values: Any) -> str:
    for value in values:
        if isinstance(value, Element) and value.kind != "b1":
            return value.kind
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return tape.kind
        if isinstance(value, (np.generic, ndarray)) and value.dtype != np.bool_:
            return tape.kind
    return "b1"


def _infix(symbol: str) -> Callable:
    def put(tape: Tape, a: Any, b: Any) -> Element:
        if _only_numbers((a, b)):
            made = tape.put(f"f64({_text(tape, a)}) {symbol} f64({_text(tape, b)})", tape.kind)
            return Setting(tape, made.text, tape.kind)
        if _common(tape, a, b) == "b1":
            raise NotTraceableError("arithmetic on booleans")
        # Booleans count as numbers here.
        return tape.put(f"T({_text(tape, a)}) {symbol} T({_text(tape, b)})", tape.kind)

    return put


def _compared(symbol: str) -> Callable:
    def put(tape: Tape, a: Any, b: Any) -> Element:
        if _only_numbers((a, b)):
            raise NotTraceableError("a branch on a number")
        return tape.put(f"T({_text(tape, a)}) {symbol} T({_text(tape, b)})", "b1")

    return put


def _logical(symbol: str) -> Callable:
    def put(tape: Tape, *values: Any) -> Element:
        for value in values:
            if not (isinstance(value, Element) and value.kind == "b1"):
                raise NotTraceableError("bitwise operations on numbers")
        texts = [_text(tape, v) for v in values]
        return tape.put(f" {symbol} ".join(texts) if len(texts) > 1 else f"~{texts[0]}", "b1")

    return put


def _are_whole(tape: Tape, values: Any) -> bool:
    """Whether the elements among some values are whole numbers, as everything else is then."""
    elements = [v for v in values if isinstance(v, Element)]
    return tape.kind == "i64" and all(v.kind == "i64" for v in elements) and bool(elements)


def _bitwise(symbol: str) -> Callable:
    """Of whole numbers bit by bit, of booleans logical."""
    logical = _logical(symbol)

    def put(tape: Tape, *values: Any) -> Element:
        if not _are_whole(tape, values):
            return logical(tape, *values)
        texts = [f"T({_text(tape, v)})" for v in values]
        return tape.put(f" {symbol} ".join(texts) if len(texts) > 1 else f"-1 - {texts[0]}", "i64")

    return put


def _extreme(name: str, symbol: str) -> Callable:
    called = _called(name, 2)

    def put(tape: Tape, *values: Any) -> Element:
        if not _are_whole(tape, values):
            return called(tape, *values)
        a, b = (f"T({_text(tape, v)})" for v in values)
        return tape.put(f"{a} if {a} {symbol} {b} else {b}", "i64")

    return put


def _divided(name: str) -> Callable:
    """Whole quotients and remainders, as NumPy has them; of floats only what is a function."""
    called = _called(name, 2)

    def put(tape: Tape, *values: Any) -> Element:
        if not _are_whole(tape, values):
            if name != "fmod":
                raise NotTraceableError(f"np.{name} of floats")
            return called(tape, *values)
        whole = lambda text: tape.put(text, "i64").text
        a, b = (whole(f"T({_text(tape, v)})") for v in values)
        # Processors trap on a division by zero, which ops refuse, and of the least number by -1.
        by = whole(f"1 if ({b} == 0) | ({b} == -1) else {b}")
        quotient = whole(f"{a} // {by}")
        rest = whole(f"{a} - {quotient} * {by}")
        # Correct for quotients that are rounded down, and for those that are rounded to zero.
        if name == "fmod":
            other = f"({rest} != 0) & (({rest} < 0) != ({a} < 0))"
            return tape.put(f"{rest} - {by} if {other} else {rest}", "i64")
        other = f"({rest} != 0) & (({rest} < 0) != ({by} < 0))"
        if name == "remainder":
            return tape.put(f"{rest} + {by} if {other} else {rest}", "i64")
        down = whole(f"{quotient} - 1 if {other} else {quotient}")
        return tape.put(f"0 - {a} if {b} == -1 else {down}", "i64")

    return put


def _logical_not(tape: Tape, x: Any) -> Element:
    if isinstance(x, Element) and x.kind != "b1" and x.__class__ is not Setting:
        return tape.put(f"{x.text} == T(0)", "b1")
    return _logical("~")(tape, x)


def _called(name: str, count: int = 1) -> Callable:
    def put(tape: Tape, *values: Any) -> Element:
        if _common(tape, *values) == "b1" or len(values) != count or _only_numbers(values):
            raise NotTraceableError(name)
        given = ", ".join(f"T({_text(tape, v)})" for v in values)
        tape.exact = tape.exact and (name in INTRINSICS or name in EXACT)
        return tape.put(f"{name}({given})", tape.kind)

    return put


def _formula(text: str, kind: str = "") -> Callable:
    def put(tape: Tape, x: Any) -> Element:
        if x.__class__ is Setting:
            if text != "-x":
                raise NotTraceableError(f"{text} of a number")
            return Setting(tape, tape.put(f"-f64({x.text})", tape.kind).text, tape.kind)
        return tape.put(text.replace("x", f"T({_text(tape, x)})"), kind or tape.kind)

    return put


def _power(tape: Tape, x: Any, y: Any) -> Element:
    if Setting in (x.__class__, y.__class__):
        raise NotTraceableError("a power with a traced exponent")
    if isinstance(y, (int, float)) and not isinstance(x, (int, float)):
        if y == 2:
            return _infix("*")(tape, x, x)
        if y == 1:
            return x
        tape.exact = False
        if y == 3:
            return _infix("*")(tape, _infix("*")(tape, x, x), x)
        if y == 0.5:
            return _called("sqrt")(tape, x)
        if y == -1:
            return _infix("/")(tape, 1.0, x)
        if y == -0.5:
            return _infix("/")(tape, 1.0, _called("sqrt")(tape, x))
    return _called("pow", 2)(tape, x, y)


UFUNCS: dict[Any, Callable] = {
    np.add: _infix("+"),
    np.subtract: _infix("-"),
    np.multiply: _infix("*"),
    np.divide: _infix("/"),
    np.negative: _formula("-x"),
    np.positive: _formula("x"),
    np.absolute: _called("abs"),
    np.square: _formula("x * x"),
    np.reciprocal: _formula("1.0 / x"),
    np.sqrt: _called("sqrt"),
    np.maximum: _extreme("maximum", ">"),
    np.minimum: _extreme("minimum", "<"),
    np.floor: _called("floor"),
    np.ceil: _called("ceil"),
    np.trunc: _called("trunc"),
    np.rint: _called("rint"),
    np.copysign: _called("copysign", 2),
    np.power: _power,
    np.sign: _formula("x if x != x else (T(x > 0.0) - T(x < 0.0))"),
    np.isnan: _formula("x != x", "b1"),
    np.isfinite: _formula("abs(x) < inf", "b1"),
    np.isinf: _formula("abs(x) == inf", "b1"),
    np.signbit: _formula("copysign(1.0, x) < 0.0", "b1"),
    np.greater: _compared(">"),
    np.greater_equal: _compared(">="),
    np.less: _compared("<"),
    np.less_equal: _compared("<="),
    np.equal: _compared("=="),
    np.not_equal: _compared("!="),
    np.logical_and: _logical("&"),
    np.bitwise_and: _bitwise("&"),
    np.logical_or: _logical("|"),
    np.bitwise_or: _bitwise("|"),
    np.bitwise_xor: _bitwise("^"),
    np.logical_xor: _logical("^"),
    np.logical_not: _logical_not,
    np.invert: _bitwise("~"),
    np.remainder: _divided("remainder"),
    np.floor_divide: _divided("floor_divide"),
}
for _name in ("exp", "expm1", "exp2", "log", "log1p", "log2", "tanh"):
    UFUNCS[getattr(np, _name)] = _called(_name)
UFUNCS[np.arctan] = _called("atan")
UFUNCS[np.fmod] = _divided("fmod")


def _operator(ufunc: Any, flipped: bool = False) -> Callable:
    def method(self: Element, other: Any) -> Any:
        pair = (other, self) if flipped else (self, other)
        return UFUNCS[ufunc](self.tape, *pair)

    return method


OPERATORS: dict[str, Any] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "pow": np.power,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
COMPARISONS: dict[str, Any] = {
    "gt": np.greater,
    "ge": np.greater_equal,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
for _symbol, _ufunc in {**OPERATORS, **COMPARISONS}.items():
    setattr(Element, f"__{_symbol}__", _operator(_ufunc))
for _symbol, _ufunc in OPERATORS.items():
    setattr(Element, f"__r{_symbol}__", _operator(_ufunc, flipped=True))
for _symbol, _ufunc in (("neg", np.negative), ("abs", np.absolute), ("invert", np.invert)):
    setattr(Element, f"__{_symbol}__", lambda self, u=_ufunc: UFUNCS[u](self.tape, self))
Element.__hash__ = None  # type: ignore[assignment]


def multiply_add(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c``, rounded once in single and double precision: on arrays, or traced."""
    tape = next((x.tape for x in (a, b, c) if isinstance(x, Element)), None)
    if tape is None:
        return fma.multiply_add(a, b, c)
    if tape.kind not in ("f32", "f64"):
        return a * b + c
    return _called("fma", 3)(tape, a, b, c)


def lowered(lower: str | Callable, args: Any, attrs: Any) -> Element:
    """An op by its lowering: a function of the kernel language, or one that can be traced."""
    if not isinstance(lower, str):
        return lower(*args, **attrs)
    name = lower
    tape = next(a.tape for a in args if isinstance(a, Element))
    return _called(name, len(args))(tape, *args)


def scope() -> dict[str, Any]:
    """What kernels made here can call."""
    found = dict(vars(module("weft.native.loops.math")))
    found["inf"], found["nan"] = math.inf, math.nan
    return found


class Loop:
    """One function of elements, with the compiled loops for the kinds of arguments it met.

    ``least`` is the size from which it may differ from NumPy in the last bit. Smaller arrays it
    takes if it gives the same bits, so that results don't depend on when it was compiled.
    """

    def __init__(
        self,
        name: str,
        function: Callable,
        least: int = 0,
        grain: int = GRAIN,
        kinds: Any = KINDS,
        settings: int = 0,
    ) -> None:
        self.name, self.function, self.least, self.grain = name, function, least, grain
        self.kinds = kinds
        self.settings = settings  # of the arguments, how many at the end are settings
        self.made: dict[Any, Any] = {}
        self.spreads: dict[Any, Any] = {}
        self.partial: dict[Any, Loop] = {}  # by the arguments that are None
        # For plain arrays of one shape, made so far: with a new result, or over the first of them.
        self.entries: list[Callable] = []
        self.over_entries: list[Callable] = []

    def __call__(self, *args: Any) -> ndarray | None:
        """The result in a new array, or None if this is not for a compiled loop."""
        for entry in self.entries:
            out = entry(*args)
            if out is not None:
                return out
        key: list[Any] = []
        first: Any = None
        even = True
        for a in args:
            if a.__class__ is ndarray:
                key.append(a.dtype)
                if first is None:
                    first = a
                flags = a.flags
                if even and (a.shape != first.shape or not (flags.c_contiguous and flags.aligned)):
                    even = False
            elif a.__class__ is float or a.__class__ is int:
                key.append(float)
            elif a is None:
                return self.without(args)
            else:
                return None
        if not even:
            return self.spread(args)
        found = self.made.get(tuple(key))
        if found is None:
            found = self.make(args, key, ("unit",) * len(args), 0)
        if found is False:
            return None
        code, dtype, late = found
        if late is not None and late.entry is None:
            late.count()
        out = buffers.empty(first.shape, dtype)
        size = first.size
        if buffers.PLANNERS:
            like = [a for a in args if a.__class__ is ndarray and a.dtype == dtype]
            buffers.may_alias([out] * len(like), like)
        code(*args, out, size, threads.how_many(size, self.grain))
        return out

    def without(self, args: Any) -> ndarray | None:
        """The same where some arguments are None, which a function may branch on."""
        absent = tuple(k for k, a in enumerate(args) if a is None)
        found = self.partial.get(absent)
        if found is None:

            def function(*given: Any) -> Any:
                rest = iter(given)
                return self.function(*(None if k in absent else next(rest) for k in range(count)))

            count, name = len(args), f"{self.name}_{'_'.join(map(str, absent))}"
            made = Loop(name, function, self.least, self.grain, self.kinds, self.settings)
            found = self.partial.setdefault(absent, made)
        return found(*(a for a in args if a is not None))

    def entry(self, args: Any) -> Callable | None:
        """The built-in function for plain arrays of one shape, of the types of these."""
        key = [a.dtype if a.__class__ is ndarray else float for a in args]
        found = self.made.get(tuple(key))
        if found is None:
            found = self.make(args, key, ("unit",) * len(args), 0)
        return found[2].open() if found and found[2] else None

    def row_entry(self, args: Any) -> Callable | None:
        """The same for a plain array and a row that is repeated along it."""
        whole = len(args) == 2 and args[1].ndim == 1 and args[0].shape[-1:] == args[1].shape
        if not whole or args[0].ndim < 2 or not args[0].dtype == args[1].dtype == np.float32:
            return None
        sizes = ("last", "last", "0", "last")  # the length of rows, and the steps between them
        traced = self.traced("f32", args, ("unit", "unit"), 1)
        if traced is None:
            return None
        made, tape, result = traced
        spec = EntrySpec(
            ("f32", "f32 row"),
            (f"{result.kind} like 0",),
            ("take 0", "take 1", "give 0", *sizes),
            *("lead", "last", self.grain),
            least=0 if tape.exact else self.least,
        )
        return made.whole(spec, "f32")

    def into(self, x: ndarray, *args: Any) -> bool:
        """Write the result for ``x`` and the rest over ``x``; False if it can't."""
        tried = 0
        for over in self.over_entries:
            if over(x, *args) is not None:
                return True
            tried += 1
        key = [a.dtype if a.__class__ is ndarray else float for a in (x, *args)]
        found = self.made.get(tuple(key))
        if found is None:
            found = self.make((x, *args), key, ("unit",) * len(key), 0)
        if found and found[2].entry is None:
            found[2].open()
        # This may have been made by another thread meanwhile.
        return any(over(x, *args) is not None for over in self.over_entries[tried:])

    def spread(self, args: Any) -> ndarray | None:
        """The same for arrays of different shapes or orders."""
        key = tuple(
            (a.shape, a.strides, a.dtype) if a.__class__ is ndarray else float for a in args
        )
        found = self.spreads.get(key)
        if found is None:
            if len(self.spreads) >= SPREADS:
                self.spreads.clear()
            found = self.spreads[key] = self.lay_out(args)
        if found is False:
            return None
        code, dtype, model, numbers, over, grain = found
        # Not a call with the model as an argument, which tools that show arguments would misread.
        out = buffers.known(np.empty_like(model, dtype))
        code(*args, out, *numbers, over, threads.how_many(over, grain))
        return out

    def lay_out(self, args: Any) -> Any:
        """How to walk through arrays of these shapes and strides; False where a loop can't."""
        arrays = [a for a in args if a.__class__ is ndarray]
        shape = np.broadcast(*arrays).shape
        if 0 in shape:
            return False
        steps = strides_of_result(shape, tuple(map(geometry, arrays)))
        # Never read: only its strides are looked at, and ``np.empty_like`` keeps their order.
        model = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), shape, steps)
        order = np.argsort([-s for s in steps], kind="stable")
        strides: list[Any] = []
        for a in arrays:
            if any(s % a.itemsize for s in a.strides):
                return False
            lead = (0,) * (len(shape) - a.ndim)
            own = tuple(
                0 if n == 1 else s // a.itemsize for n, s in zip(a.shape, a.strides, strict=True)
            )
            strides.append(lead + own)
        extent = [shape[i] for i in order]
        strides = [tuple(s[i] for i in order) for s in strides]
        extent, all_strides = collapse(extent, [*strides, _row_major(extent)])
        if len(extent) > 4:
            return False
        inner = [s[-1] for s in all_strides[:-1]]
        patterns = iter("unit" if s == 1 else "one" if s == 0 else "step" for s in inner)
        pattern = tuple(next(patterns) if a.__class__ is ndarray else "unit" for a in args)
        depth = len(extent) - 1
        key = [a.dtype if a.__class__ is ndarray else float for a in args]
        name = (*key, pattern, depth)
        found = self.made.get(name)
        if found is None:
            found = self.make(args, key, pattern, depth, name)
        if found is False:
            return False
        inner_steps = [s for s, p in zip(inner, _kinds(args, pattern), strict=True) if p == "step"]
        length = extent[-1]
        if depth == 0:
            return *found[:2], model, inner_steps, length, self.grain
        numbers = [length, *extent[1:-1]]
        for s in all_strides:
            numbers += s[:-1]
        rows = math.prod(extent[:-1])
        numbers += inner_steps
        return *found[:2], model, numbers, rows, max(1, self.grain // max(length, 1))

    def make(
        self, args: Any, key: list[Any], pattern: tuple[str, ...], depth: int, name: Any = None
    ) -> Any:
        """Trace and compile; False where that can't be."""
        name = tuple(key) if name is None else name
        with LOCK:
            found = self.made.get(name)
            if found is None:
                found = self.made[name] = self._make(args, pattern, depth)
            return found

    def _make(self, args: Any, pattern: tuple[str, ...], depth: int) -> Any:
        arrays = [a for a in args if a.__class__ is ndarray and a.dtype != np.bool_]
        if jit.why_not() is not None:
            return False
        if not arrays and self.kinds is not KINDS:
            return self.compile("f32", args, pattern, depth)  # masks alone: numbers don't matter
        if arrays and all(a.dtype is arrays[0].dtype for a in arrays):
            dtype = arrays[0].dtype
            if dtype in self.kinds:
                return self.compile(self.kinds[dtype], args, pattern, depth)
            if stored(dtype):
                return self.compile_half(dtype, args, pattern, depth)
        return False

    def traced(
        self, kind: str, args: Any, pattern: tuple[str, ...], depth: int, storage: str = "T"
    ) -> tuple[jit.Kernel, Tape, Element] | None:
        """The kernel for arguments of these kinds, with what was noted and what came of it."""
        tape = Tape(kind)
        parameters: list[Any] = []
        stand_ins: list[Element] = []
        for k, a in enumerate(args):
            if k >= len(args) - self.settings:
                parameters.append((f"e{k}", "f64", ""))
                stand_ins.append(Setting(tape, f"e{k}", kind))
            elif a.__class__ is ndarray:
                mask = a.dtype == np.bool_
                parameters.append((f"a{k}", f"Ptr[{'b1' if mask else storage}]", pattern[k]))
                stand_ins.append(Element(tape, f"e{k}", "b1" if mask else kind))
            else:
                parameters.append((f"e{k}", "T", ""))
                stand_ins.append(Element(tape, f"e{k}", kind))
        try:
            result = self.function(*stand_ins)
            if not isinstance(result, Element) or not tape.lines:
                return None  # nothing to compute
            source = write(self.name, parameters, tape, result, depth, storage)
            function = KernelFunction(source, scope())
            function.widest = not tape.exact
            return jit.Kernel(function), tape, result
        except UNFIT:
            return None

    def compile(self, kind: str, args: Any, pattern: tuple[str, ...], depth: int) -> Any:
        found = self.traced(kind, args, pattern, depth)
        if found is None:
            return False
        made, tape, result = found
        try:
            code = made.get(kind)
        except UNFIT:
            return False
        if depth or "one" in pattern or "step" in pattern:
            return code, DTYPES[result.kind], None
        least = 0 if tape.exact else self.least
        return code, DTYPES[result.kind], LateEntries(self, made, kind, result.kind, least)

    def compile_half(self, dtype: np.dtype, args: Any, pattern: tuple[str, ...], depth: int) -> Any:
        """The same for half types, which are widened when read and rounded once when written."""
        storage = stored(dtype)
        found = self.traced("f32", args, pattern, depth, storage)
        if found is None:
            return False
        made, tape, result = found
        floating = result.kind == "f32"
        try:
            code = made.get("f32")
        except UNFIT:
            return False
        given = dtype if floating else DTYPES[result.kind]
        if depth or "one" in pattern or "step" in pattern:
            return code, given, None
        least = 0 if tape.exact else self.least
        kind = storage if floating else result.kind
        return code, given, LateEntries(self, made, "f32", kind, least, listed=False)


class LateEntries:
    """The entry points of a loop, which are compiled when it has been called often."""

    def __init__(
        self, loop: Loop, made: jit.Kernel, kind: str, result: str, least: int, listed: bool = True
    ) -> None:
        self.loop, self.made, self.listed = loop, made, listed
        self.given = kind, result, loop.grain, least
        self.calls = 0
        self.entry: Callable | None = None

    def count(self) -> None:
        self.calls += 1  # other threads count too
        if self.calls >= jit.ENTRY_USES and buffers.planner() is None:
            self.open()

    def open(self) -> Callable:
        """The one that makes its result; from here on the loop tries them first."""
        with LOCK:
            if self.entry is None:
                self.entry, *over = self.made.loop(*self.given)
                if self.listed:
                    self.loop.entries.append(self.entry)
                    self.loop.over_entries += over
            return self.entry


def stored(dtype: np.dtype) -> str:
    """The storage type of a half type, in the kernel language; nothing where it can't be read."""
    storage = HALVES.get(dtype.name, "")
    return "" if storage == "f16" and not jit.reads_half() else storage


# What a function raises that can't be traced, or does what the language has not.
UNFIT = (NotTraceableError, KernelError, TypeError, AttributeError, KeyError, ValueError)


def _kinds(args: Any, pattern: tuple[str, ...]) -> list[str]:
    return [p for a, p in zip(args, pattern, strict=True) if a.__class__ is ndarray]


def _row_major(extent: list[int]) -> tuple[int, ...]:
    steps = [1]
    for n in reversed(extent[1:]):
        steps.append(steps[-1] * n)
    return tuple(reversed(steps)) if extent else ()


def collapse(extent: list[int], strides: list[Any]) -> tuple[list[int], list[Any]]:
    """Join neighbouring dimensions that all arrays walk through as one."""
    sizes: list[int] = []
    joined: list[list[int]] = [[] for _ in strides]
    for k, n in enumerate(extent):
        if n == 1:
            continue
        if sizes and all(j[-1] == s[k] * n for j, s in zip(joined, strides, strict=True)):
            sizes[-1] *= n
            for j, s in zip(joined, strides, strict=True):
                j[-1] = s[k]
        else:
            sizes.append(n)
            for j, s in zip(joined, strides, strict=True):
                j.append(s[k])
    if not sizes:
        return [1], [[0] for _ in strides[:-1]] + [[1]]
    return sizes, joined


def write(
    name: str, parameters: list[Any], tape: Tape, result: Element, depth: int, storage: str
) -> str:
    """The kernel around the traced lines, for rows of ``depth`` outer dimensions."""
    arrays = [(n, p) for n, _, p in parameters if p]
    head = [f"{n}: {kind}" for n, kind, _ in parameters]
    head.append(f"out: Ptr[{'b1' if result.kind == 'b1' else storage}]")
    lines = []
    pad = " " * 4
    steps = [f"{n}_step" for n, p in arrays if p == "step"]
    if depth:
        head.append("length: i64")
        head += [f"d{k}: i64" for k in range(1, depth)]
        head += [f"{n}_s{k}: i64" for n, _ in [*arrays, ("out", "")] for k in range(depth)]
        lines += [f"{pad}for row in range(lo, hi):", f"{pad}    rest0 = row"]
        pad = " " * 8
        for k in range(depth - 1, 0, -1):
            lines.append(f"{pad}i{k} = rest{depth - 1 - k} % d{k}")
            lines.append(f"{pad}rest{depth - k} = rest{depth - 1 - k} // d{k}")
        lines.append(f"{pad}i0 = rest{depth - 1}")
        for n, _ in [*arrays, ("out", "")]:
            place = " + ".join(f"i{k} * {n}_s{k}" for k in range(depth))
            lines.append(f"{pad}{n}_row = {n} + ({place})")
        start, stop = "0", "length"
    else:
        start, stop = "lo", "hi"
    head += [f"{s}: i64" for s in steps]
    base = "{}_row" if depth else "{}"
    lines.append(f"{pad}for i in range({start}, {stop}):")
    pad += "    "
    for n, p in arrays:
        at = {"unit": "i", "one": "0", "step": f"i * {n}_step"}[p]
        lines.append(f"{pad}e{n[1:]} = {base.format(n)}[{at}]")
    lines += [pad + line for line in tape.lines]
    lines.append(f"{pad}{base.format('out')}[i] = {result.text}")
    return f"def {name}({', '.join(head)}, lo: i64, hi: i64):\n" + "\n".join(lines) + "\n"
