"""Loops in a small subset of Python, compiled to LLVM IR.

A kernel is an ordinary function over pointers and numbers::

    @kernel
    def scale(x: Ptr[T], y: Ptr[T], by: T, lo: i64, hi: i64):
        for i in range(lo, hi):
            y[i] = x[i] * by

``Ptr[T]`` is an array given by its first element; ``T`` and ``U`` stand for the dtypes of the
arrays in a call. The last two parameters, ``lo`` and ``hi``, are the part of the work that one
thread does. What the language has:

* ``for`` over ``range``, or over a tuple of constants, for each of which it has code of its own;
  ``while``, ``if``, assignments, ``x[i]`` on pointers;
* arithmetic, comparisons, ``and``/``or``/``not``, ``a if c else b`` (all sides are evaluated);
* the functions of ``INTRINSICS``, other functions marked ``@inline``, which may return several
  values (``a, b = f(x)``), ``array(T, n)`` for a few values on the stack, ``at(T, address)`` for an
  array whose address is a number, ``horner(x, ...)`` for a polynomial by its coefficients, highest
  first, with an fma for each;
* integers are i64 (``//`` and ``%`` want operands that are not negative); float literals take the
  type of what they meet.

A parameter of an inlined function that is annotated ``constexpr`` may be given a constant or
another function of the language. Then the function is compiled for just that: branches on it
vanish, and one generic function serves several kernels. Other arguments are values, known or not.

Two pointers of a kernel never overlap, unless they are the same array read and written at the same
index. ``@kernel(reassociate=True)`` allows sums to be reassociated, which makes them fast;
``exactly(x)`` is an expression that is exempt from this. ``@kernel(unswitched=True)`` is for inner
loops that branch on loop-invariant conditions, or that are fast only if heavily unrolled: they get
a copy for each outcome, which takes several times as long to compile. ``@kernel(strided=True)`` is
for loops that multiply indices by steps, which LLVM's strength reduction turns into additions.
"""

from __future__ import annotations

import ast
import linecache
import struct
import textwrap
from collections.abc import Callable
from typing import Any

from weft.native.once import lazy

FLOATS = {"f32": "float", "f64": "double"}
INTEGERS = {"i1": "i1", "i32": "i32", "i64": "i64"}
LLVM = {**FLOATS, **INTEGERS}
# Storage dtypes and how they become values: storage type, value type, widening.
STORED = {
    "f32": ("float", "f32", ""),
    "f64": ("double", "f64", ""),
    "i64": ("i64", "i64", ""),
    "i32": ("i32", "i64", "sext"),
    "i16": ("i16", "i64", "sext"),
    "i8": ("i8", "i64", "sext"),
    "u8": ("i8", "i64", "zext"),
    "u16": ("i16", "i64", "zext"),
    "u32": ("i32", "i64", "zext"),
    "b1": ("i8", "i1", "bool"),
    "f16": ("half", "f32", "fpext"),
    "bf16": ("i16", "f32", "bfloat"),
}
SIZES = {"f32": 4, "f64": 8, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "u16": 2, "u32": 4}
SIZES["b1"], SIZES["f16"], SIZES["bf16"] = 1, 2, 2

COMPARE = {
    ast.Lt: ("olt", "slt"),
    ast.LtE: ("ole", "sle"),
    ast.Gt: ("ogt", "sgt"),
    ast.GtE: ("oge", "sge"),
    ast.Eq: ("oeq", "eq"),
    ast.NotEq: ("une", "ne"),
}
FLOAT_OPS = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
INT_OPS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "sdiv",
    ast.Mod: "srem",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "shl",
    ast.RShift: "ashr",
}

# Functions that LLVM knows, by name and number of float arguments.
INTRINSICS = {
    "sqrt": ("llvm.sqrt", 1),
    "abs": ("llvm.fabs", 1),
    "floor": ("llvm.floor", 1),
    "ceil": ("llvm.ceil", 1),
    "trunc": ("llvm.trunc", 1),
    "rint": ("llvm.rint", 1),
    "fma": ("llvm.fma", 3),
    "maximum": ("llvm.maximum", 2),  # a NaN on either side is the result
    "minimum": ("llvm.minimum", 2),
    "copysign": ("llvm.copysign", 2),
}

Value = tuple[str, str]  # the text of a value and its type; "int" and "float" are literals


class KernelError(TypeError):
    """A function uses something outside the language."""


class NotPythonError(Exception):
    """A kernel that calls LLVM IR, and so can't be run in Python."""


class Ptr:
    """``Ptr[T]``: the first element of an array."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls


# Names for annotations and calls in kernels; the compiler reads them as text.
i64 = i32 = f32 = f64 = T = U = constexpr = Any
sqrt: Any = None
floor = ceil = trunc = rint = fma = maximum = minimum = copysign = sqrt
bits = from_bits = bits_wide = from_bits_wide = array = at = horner = sqrt


def constant(value: float, kind: str) -> str:
    """A literal as LLVM writes it."""
    if kind in FLOATS:
        value = float(value)
        if kind == "f32":
            try:
                value = struct.unpack("f", struct.pack("f", value))[0]
            except OverflowError:
                value = float("inf") if value > 0 else -float("inf")
        return f"0x{struct.unpack('>Q', struct.pack('>d', value))[0]:016X}"
    return str(int(value))


def source_of(function: Callable) -> tuple[str, int]:
    """The source of a function without its decorators, and the number of its first line.

    ``inspect.getsource`` reads it word by word to find its end, which for the functions that a
    first kernel calls takes longer than all else; here the indentation tells.
    """
    code = function.__code__
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("def "))
    edge = len(lines[start]) - len(lines[start].lstrip())
    for end in range(start + 1, len(lines)):
        line = lines[end].lstrip()
        if line and len(lines[end]) - len(line) <= edge and not line.startswith((")", "#")):
            return "".join(lines[start:end]), code.co_firstlineno + start
    return "".join(lines[start:]), code.co_firstlineno + start


class _Syntax:
    """The syntax tree of a function, parsed on request: most are never compiled."""

    def __init__(self, source: str | Callable) -> None:
        self.source = source

    @lazy
    def tree(self) -> ast.FunctionDef:
        source = self.source
        if not isinstance(source, str):
            source, _ = source_of(source)
        found = ast.parse(textwrap.dedent(source)).body[0]
        assert isinstance(found, ast.FunctionDef)
        return found

    @lazy
    def parameters(self) -> list[tuple[str, str]]:
        source = self.source
        # Where annotations are not kept as text (PEP 563), only the source has them.
        if isinstance(source, str) or not all(
            isinstance(k, str) for k in source.__annotations__.values()
        ):
            return [(a.arg, _annotation(a.annotation)) for a in self.tree.args.args]
        code, kinds = source.__code__, source.__annotations__
        return [(n, _pointed(kinds.get(n, ""))) for n in code.co_varnames[: code.co_argcount]]


class KernelFunction:
    """A function of the language: its syntax tree, not yet bound to types."""

    def __init__(
        self,
        source: str | Callable,
        scope: dict[str, Any],
        reassociate: bool = False,
        wide: Any = None,
        unswitched: bool = False,
        outlined: bool = False,
        strided: bool = False,
    ) -> None:
        self._syntax, self.scope = _Syntax(source), scope
        self.flags = "reassoc contract " if reassociate else ""
        self.wide = wide  # what stands for it on float64: a function, or the name of libm's
        self.unswitched, self.outlined, self.strided = unswitched, outlined, strided
        # For loops that compute much and read little: vectors as wide as the processor has. LLVM
        # takes 256 bits on processors that slow down for 512, which costs more than it saves here.
        self.widest = False
        # The Python function that it was read from.
        self.origin = None if isinstance(source, str) else source
        self.name: str = self.tree.name if isinstance(source, str) else source.__name__

    @property
    def text(self) -> str | Callable:
        """What it was read from: a text, or a Python function."""
        return self._syntax.source

    @property
    def tree(self) -> ast.FunctionDef:
        return self._syntax.tree

    @property
    def parameters(self) -> list[tuple[str, str]]:
        """The names and the types of the parameters."""
        return self._syntax.parameters


class Assembly:
    """A function given as LLVM IR, for what the language can't express; it returns nothing."""

    def __init__(
        self,
        name: str,
        kinds: tuple[str, ...],
        write: Callable[[], str],
        wide: Assembly | None = None,
    ) -> None:
        self.name, self.kinds, self.write = name, kinds, write
        self.wide = wide  # what stands for it where its first array is of float64


def _annotation(node: ast.expr | None) -> str:
    if isinstance(node, ast.Subscript):
        return f"{ast.unparse(node.slice)}*"
    return "" if node is None else ast.unparse(node)


def _pointed(annotation: str) -> str:
    """The same for an annotation as Python keeps it."""
    outer, bracket, inner = annotation.partition("[")
    return f"{inner[:-1]}*" if bracket else outer


# For the branch that ends a loop of hand-written LLVM IR: it is unrolled as far as it should be.
UNROLLED = ", !llvm.loop !910"
UNROLLED_NODES = '!910 = distinct !{!910, !911}\n!911 = !{!"llvm.loop.unroll.disable"}'


# Sums in any order are taken in this one: so many lanes, twice. LLVM would choose by what else the
# loop computes, so that a sum had other bits where its elements are computed inside its loop.
SUM_WIDTH, SUM_COUNT = 16, 2
SUM_NODES = (
    f'!912 = !{{!"llvm.loop.vectorize.width", i32 {SUM_WIDTH}}}\n'
    f'!913 = !{{!"llvm.loop.interleave.count", i32 {SUM_COUNT}}}'
)


class LLVMUnit:
    """One piece of LLVM IR: a kernel with all that it calls, for one choice of types."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.declared: dict[str, str] = {}
        self.made: dict[Any, tuple[str, str]] = {}
        self.sums = 0  # loops that take one
        self.assemblies: list[Assembly] = []

    def declare(self, text: str) -> None:
        """Take declarations and functions in; what several functions declare stands once."""
        lines = text.split("\n")
        for line in lines:
            if line.startswith(("declare ", "!")):
                self.declared[line] = line
        rest = "\n".join(line for line in lines if not line.startswith(("declare ", "!")))
        if rest:
            self.declared[rest] = rest

    def inline(
        self, function: KernelFunction, kinds: tuple[str, ...], consts: dict[str, Any]
    ) -> tuple[str, str]:
        """The name and result type of an inlined function for given argument types and constants.

        ``kinds`` are those of the other parameters.
        """
        key = (id(function), kinds, *consts.items())
        if key not in self.made:
            name = f"{function.name}.{'.'.join(kinds).replace('*', 'p')}.{len(self.made)}"
            known = dict.fromkeys(consts, "")
            rest = [p for p in function.parameters if p[0] not in consts]
            for (parameter, text), kind in zip(rest, kinds, strict=True):
                known[parameter] = kind
                if text.rstrip("*") in ("T", "U"):  # the names mean in it what they mean outside
                    known[f"<{text.rstrip('*')}>"] = kind.rstrip("*")
            body = Body(self, function, known, consts)
            kept = "noinline" if function.outlined else "alwaysinline"
            self.made[key] = name, body.define(name, "private", kept)
        return self.made[key]

    def sum_loop(self) -> str:
        """What the branch that ends the loop of a sum says of the order of the sum."""
        number = 1000 + self.sums
        self.sums += 1
        self.declare(f"{SUM_NODES}\n!{number} = distinct !{{!{number}, !912, !913}}")
        return f", !llvm.loop !{number}"

    def text(self) -> str:
        return "\n".join([*self.declared, *self.parts])


class Body:
    """Writes one function."""

    def __init__(
        self,
        unit: LLVMUnit,
        function: KernelFunction,
        kinds: dict[str, str],
        consts: dict[str, Any],
    ) -> None:
        self.unit, self.function, self.kinds = unit, function, kinds
        self.consts, self.flags = consts, function.flags
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.variables: dict[str, Value] = {}  # name -> (address, type)
        self.pointers: dict[str, Value] = {}  # name -> (pointer, element type)
        self.count = 0
        self.result: Value | None = None  # of several values, separated by commas

    # --- small things

    def fail(self, node: ast.AST, why: str) -> KernelError:
        text = ast.unparse(node)
        return KernelError(f"{self.function.name}: {why}: {text}")

    def new(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def put(self, text: str) -> str:
        name = f"%{self.new()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def say(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    # --- the whole function

    def define(self, name: str, linkage: str = "", attributes: str = "") -> str:
        """Write the function and give its result type."""
        arguments = []
        for parameter, _ in self.function.parameters:
            kind = self.kinds[parameter]
            if parameter in self.consts:
                continue
            if kind.endswith("*"):
                arguments.append(f"ptr noalias %{parameter}")
                self.pointers[parameter] = (f"%{parameter}", kind[:-1])
            else:
                arguments.append(f"{LLVM[kind]} %{parameter}")
                self.store_variable(parameter, (f"%{parameter}", kind))
        self.block(self.function.tree.body)
        kind = "void"
        if self.result is not None:
            value, kind = self.result
            self.say(f"ret {result_type(kind)} {value}")
        else:
            self.say("ret void")
        head = f"define {linkage} {result_type(kind)} @{name}({', '.join(arguments)})"
        body = "\n".join(["entry:", *self.entry, *self.lines])
        self.unit.parts.append(f"{head} {attributes} nounwind {{\n{body}\n}}")
        return kind

    # --- variables

    def store_variable(self, name: str, value: Value) -> None:
        if name in self.consts:
            raise KernelError(f"{self.function.name}: {name} is a constant and can't be assigned")
        known = self.variables.get(name)
        if known is None:
            kind = {"int": "i64", "float": "f32"}.get(value[1], value[1])
            address = f"%{name}.{self.new('a')}"
            self.entry.append(f"  {address} = alloca {LLVM[kind]}")
            known = self.variables[name] = (address, kind)
        address, kind = known
        self.say(f"store {LLVM[kind]} {self.convert(value, kind)}, ptr {address}")

    # --- statements

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        method = getattr(self, f"do_{type(node).__name__}", None)
        if method is None or self.result is not None:
            raise self.fail(node, "not in the language")
        method(node)

    def do_Pass(self, node: ast.Pass) -> None:
        pass

    def do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.expression(node.value)

    def do_Return(self, node: ast.Return) -> None:
        if node.value is None:
            return
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        values = [self.expression(part) for part in parts]
        if any(kind == "float" for _, kind in values):
            raise self.fail(node, "a bare literal has no type")
        kinds = ["i64" if kind == "int" else kind for _, kind in values]
        text = values[0][0]
        if len(values) > 1:
            text, whole = "poison", result_type(",".join(kinds))
            for i, ((value, _), kind) in enumerate(zip(values, kinds, strict=True)):
                text = self.put(f"insertvalue {whole} {text}, {LLVM[kind]} {value}, {i}")
        self.result = text, ",".join(kinds)

    def do_Assign(self, node: ast.Assign) -> None:
        (target,) = node.targets
        if isinstance(target, ast.Tuple):
            values = self.several(node.value)
            for part, value in zip(target.elts, values, strict=True):
                self.assign(part, value)
            return
        call = node.value
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "array":
            self.make_array(target, call)
            return
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "at":
            self.pointer_at(target, call)
            return
        if self.is_pointer(call):
            assert isinstance(target, ast.Name)
            self.pointers[target.id] = self.pointer(call)
            return
        self.assign(target, self.expression(call))

    def several(self, node: ast.expr) -> list[Value]:
        """The values of a tuple, or of a function that returns several."""
        if isinstance(node, ast.Tuple):
            return [self.expression(v) for v in node.elts]
        text, kinds = self.expression(node)
        whole = result_type(kinds)
        return [
            (self.put(f"extractvalue {whole} {text}, {i}"), kind)
            for i, kind in enumerate(kinds.split(","))
        ]

    def make_array(self, target: ast.expr, call: ast.Call) -> None:
        assert isinstance(target, ast.Name)
        kind = self.type_name(ast.unparse(call.args[0]))
        size = self.expression(call.args[1])[0]
        address = f"%{target.id}.{self.new('a')}"
        self.entry.append(f"  {address} = alloca [{size} x {STORED[kind][0]}], align 64")
        self.pointers[target.id] = (address, kind)

    def pointer_at(self, target: ast.expr, call: ast.Call) -> None:
        assert isinstance(target, ast.Name)
        kind = self.type_name(ast.unparse(call.args[0]))
        address = self.convert(self.expression(call.args[1]), "i64")
        self.pointers[target.id] = (self.put(f"inttoptr i64 {address} to ptr"), kind)

    def type_name(self, text: str) -> str:
        return self.kinds.get(f"<{text}>", text)

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.store_variable(target.id, value)
        elif isinstance(target, ast.Subscript):
            address, kind = self.address(target)
            stored, held, _ = STORED[kind]
            text = self.convert(value, held)
            if kind == "bf16":
                text = self.bfloat(text)
            elif stored != LLVM[held]:
                how = "zext" if kind == "b1" else "fptrunc" if held in FLOATS else "trunc"
                text = self.put(f"{how} {LLVM[held]} {text} to {stored}")
            self.say(f"store {stored} {text}, ptr {address}, align {SIZES[kind]}")
        else:
            raise self.fail(target, "can't assign to this")

    def bfloat(self, text: str) -> str:
        """A float32 as a bfloat16: the nearest, the even one of two; a quiet NaN."""
        word = self.put(f"bitcast float {text} to i32")
        high = self.put(f"lshr i32 {word}, 16")
        odd = self.put(f"and i32 {high}, 1")
        up = self.put(f"add i32 {self.put(f'add i32 {word}, 32767')}, {odd}")
        near = self.put(f"lshr i32 {up}, 16")
        quiet = self.put(f"or i32 {self.put(f'and i32 {high}, 32768')}, 32704")
        number = self.put(f"fcmp ord float {text}, {text}")
        chosen = self.put(f"select i1 {number}, i32 {near}, i32 {quiet}")
        return self.put(f"trunc i32 {chosen} to i16")

    def do_AugAssign(self, node: ast.AugAssign) -> None:
        old = self.expression(node.target)
        self.assign(node.target, self.binary(node, node.op, old, self.expression(node.value)))

    def do_AnnAssign(self, node: ast.AnnAssign) -> None:
        assert isinstance(node.target, ast.Name) and node.value is not None
        kind = self.type_name(ast.unparse(node.annotation))
        value = self.expression(node.value)
        self.store_variable(node.target.id, (self.convert(value, kind), kind))

    def do_If(self, node: ast.If) -> None:
        condition = self.condition(node.test)
        if condition in ("true", "false"):
            self.block(node.body if condition == "true" else node.orelse)
            return
        then, other, after = self.new("then"), self.new("else"), self.new("after")
        self.say(f"br i1 {condition}, label %{then}, label %{other}")
        self.label(then)
        self.block(node.body)
        self.say(f"br label %{after}")
        self.label(other)
        self.block(node.orelse)
        self.say(f"br label %{after}")
        self.label(after)

    def do_While(self, node: ast.While) -> None:
        head, body, after = self.new("while"), self.new("body"), self.new("after")
        self.say(f"br label %{head}")
        self.label(head)
        self.say(f"br i1 {self.condition(node.test)}, label %{body}, label %{after}")
        self.label(body)
        self.block(node.body)
        self.say(f"br label %{head}")
        self.label(after)

    def do_For(self, node: ast.For) -> None:
        assert isinstance(node.target, ast.Name)
        over = node.iter
        if isinstance(over, ast.IfExp):
            over = over.body if self.condition(over.test) == "true" else over.orelse
        if isinstance(over, ast.Tuple):
            self.unrolled(node, [self.expression(a) for a in over.elts])
            return
        if not (isinstance(over, ast.Call) and ast.unparse(over.func) == "range"):
            raise self.fail(node.iter, "for goes over range, or a tuple of constants")
        values = [self.expression(a) for a in over.args]
        if all(kind == "int" for _, kind in values):
            rounds = range(*(int(text) for text, _ in values))
            if len(rounds) < 2 and not self.assigns(node):
                self.unrolled(node, [(str(i), "int") for i in rounds])
                return
        bounds = [self.convert(value, "i64") for value in values]
        start, stop = ("0", bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else "1"
        head, body, after = self.new("for"), self.new("body"), self.new("after")
        counter = f"%{self.new('count')}"
        self.entry.append(f"  {counter} = alloca i64")
        self.say(f"store i64 {start}, ptr {counter}")
        self.say(f"br label %{head}")
        self.label(head)
        now = self.put(f"load i64, ptr {counter}")
        sign = "sgt" if step.startswith("-") else "slt"
        more = self.put(f"icmp {sign} i64 {now}, {stop}")
        self.say(f"br i1 {more}, label %{body}, label %{after}")
        self.label(body)
        self.store_variable(node.target.id, (now, "i64"))
        self.block(node.body)
        # The counter is the loop's own, so that the body can't lose it.
        again = self.put(f"load i64, ptr {counter}")
        following = self.put(f"add nsw i64 {again}, {step}")
        self.say(f"store i64 {following}, ptr {counter}")
        order = self.unit.sum_loop() if self.is_sum(node) else ""
        self.say(f"br label %{head}{order}")
        self.label(after)

    def assigns(self, loop: ast.For) -> bool:
        """Whether a loop's body changes the counter."""
        assert isinstance(loop.target, ast.Name)
        names = (x for statement in loop.body for x in ast.walk(statement))
        return any(
            isinstance(x, ast.Name) and x.id == loop.target.id and isinstance(x.ctx, ast.Store)
            for x in names
        )

    def unrolled(self, node: ast.For, rounds: list[Value]) -> None:
        """A loop of which each round is code of its own, in which the counter is a constant."""
        assert isinstance(node.target, ast.Name)
        if any(kind != "int" for _, kind in rounds):
            raise self.fail(node.iter, "not a tuple of constants")
        for value in rounds:
            self.store_variable(node.target.id, value)
            before, self.consts = self.consts, {**self.consts, node.target.id: _number(value)}
            self.block(node.body)
            self.consts = before

    def is_sum(self, loop: ast.For) -> bool:
        """Whether a loop without others inside calls a function whose sums have any order."""
        inside = [x for statement in loop.body for x in ast.walk(statement)]
        if any(isinstance(x, ast.For) for x in inside):
            return False
        called = [x.func.id for x in inside if isinstance(x, ast.Call) and type(x.func) is ast.Name]
        known = map(self.meaning, called)
        return any(isinstance(f, KernelFunction) and f.flags for f in known)

    def meaning(self, name: str) -> Any:
        """What a name that is no variable stands for."""
        return self.consts[name] if name in self.consts else self.function.scope.get(name)

    def function_named(self, node: ast.expr) -> KernelFunction | Assembly | None:
        """The function that an argument names, if it names one."""
        if not isinstance(node, ast.Name) or node.id in self.variables:
            return None
        found = self.meaning(node.id)
        return found if isinstance(found, (KernelFunction, Assembly)) else None

    # --- expressions

    def convert(self, value: Value, kind: str) -> str:
        text, held = value
        if held == kind:
            return text
        if held in ("int", "float"):
            return constant(float(text) if kind in FLOATS else int(float(text)), kind)
        if held in FLOATS and kind in FLOATS:
            how = "fpext" if kind == "f64" else "fptrunc"
        elif held in INTEGERS and kind in FLOATS:
            how = "uitofp" if held == "i1" else "sitofp"
        elif held in FLOATS:
            if kind == "i1":
                return self.put(f"fcmp une {LLVM[held]} {text}, {constant(0.0, held)}")
            how = "fptosi"
        elif held == "i1":
            how = "zext"
        elif kind == "i1":
            return self.put(f"icmp ne {LLVM[held]} {text}, 0")
        else:
            how = "sext" if kind == "i64" else "trunc"
        return self.put(f"{how} {LLVM[held]} {text} to {LLVM[kind]}")

    def common(self, *values: Value) -> str:
        kinds = [k for _, k in values]
        for kind in ("f64", "f32"):
            if kind in kinds:
                return kind
        if "float" in kinds:
            return "float"
        for kind in ("i64", "i32", "i1"):
            if kind in kinds:
                return kind if not (kind == "i1" and "int" in kinds) else "i64"
        return "int"

    def condition(self, node: ast.expr) -> str:
        text, kind = self.expression(node)
        if kind in ("int", "float"):
            return "true" if float(text) else "false"
        return self.convert((text, kind), "i1")

    def expression(self, node: ast.expr) -> Value:
        method = getattr(self, f"get_{type(node).__name__}", None)
        if method is None:
            raise self.fail(node, "not in the language")
        return method(node)

    def get_Constant(self, node: ast.Constant) -> Value:
        return self.literal(node.value, node)

    def literal(self, value: Any, node: ast.AST) -> Value:
        if isinstance(value, (bool, int)):
            return (str(int(value)), "int")
        if isinstance(value, float):
            return (repr(value), "float")
        raise self.fail(node, f"a constant of type {type(value).__name__}")

    def get_Name(self, node: ast.Name) -> Value:
        name = node.id
        if name in self.consts:
            return self.literal(self.consts[name], node)
        if name in self.variables:
            address, kind = self.variables[name]
            return self.put(f"load {LLVM[kind]}, ptr {address}"), kind
        if name in self.function.scope:
            return self.literal(self.function.scope[name], node)
        raise self.fail(node, "an unknown name")

    def is_pointer(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.pointers
        return isinstance(node, ast.BinOp) and self.is_pointer(node.left)

    def pointer(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Name):
            return self.pointers[node.id]
        assert isinstance(node, ast.BinOp)
        if not isinstance(node.op, ast.Add):
            raise self.fail(node, "only + moves a pointer")
        base, kind = self.pointer(node.left)
        offset = self.convert(self.expression(node.right), "i64")
        return self.put(f"getelementptr {STORED[kind][0]}, ptr {base}, i64 {offset}"), kind

    def address(self, node: ast.Subscript) -> Value:
        if not self.is_pointer(node.value):
            raise self.fail(node, "not a pointer")
        base, kind = self.pointer(node.value)
        at = self.convert(self.expression(node.slice), "i64")
        return self.put(f"getelementptr {STORED[kind][0]}, ptr {base}, i64 {at}"), kind

    def get_Subscript(self, node: ast.Subscript) -> Value:
        address, kind = self.address(node)
        stored, held, how = STORED[kind]
        text = self.put(f"load {stored}, ptr {address}, align {SIZES[kind]}")
        if how == "bool":
            return self.put(f"icmp ne i8 {text}, 0"), "i1"
        if how == "bfloat":
            wide = self.put(f"zext i16 {text} to i32")
            return self.put(f"bitcast i32 {self.put(f'shl i32 {wide}, 16')} to float"), held
        if how:
            text = self.put(f"{how} {stored} {text} to {LLVM[held]}")
        return text, held

    def get_BinOp(self, node: ast.BinOp) -> Value:
        left, right = self.expression(node.left), self.expression(node.right)
        return self.binary(node, node.op, left, right)

    def binary(self, node: ast.AST, op: ast.operator, left: Value, right: Value) -> Value:
        if left[1] in ("int", "float") and right[1] in ("int", "float"):
            value = eval(  # two literals
                compile(
                    ast.Expression(
                        ast.fix_missing_locations(
                            ast.BinOp(ast.Constant(_number(left)), op, ast.Constant(_number(right)))
                        )
                    ),
                    "<literals>",
                    "eval",
                )
            )
            return self.literal(value, node)
        if isinstance(op, ast.Pow):
            return self.power(node, left, right)
        kind = self.common(left, right)
        if kind == "float" or (isinstance(op, ast.Div) and kind not in FLOATS):
            raise self.fail(node, "convert the integers with float(...) first")
        if kind == "i1" and not isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor)):
            kind = "i64"
        a, b = self.convert(left, kind), self.convert(right, kind)
        if kind in FLOATS:
            name = FLOAT_OPS.get(type(op))
            if name is None:
                raise self.fail(node, "operation not supported on floats")
            return self.put(f"{name} {self.flags}{LLVM[kind]} {a}, {b}"), kind
        name = INT_OPS.get(type(op))
        if name is None:
            raise self.fail(node, "operation not supported on integers")
        exact = "nsw " if name in ("add", "sub", "mul") and kind == "i64" else ""
        return self.put(f"{name} {exact}{LLVM[kind]} {a}, {b}"), kind

    def power(self, node: ast.AST, left: Value, right: Value) -> Value:
        if right[1] != "int" or int(right[0]) not in (2, 3):
            raise self.fail(node, "only powers 2 and 3")
        square = self.binary(node, ast.Mult(), left, left)
        return square if right[0] == "2" else self.binary(node, ast.Mult(), square, left)

    def get_UnaryOp(self, node: ast.UnaryOp) -> Value:
        text, kind = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            return self.put(f"xor i1 {self.convert((text, kind), 'i1')}, true"), "i1"
        if isinstance(node.op, ast.Invert):
            if kind == "int":
                return str(~int(text)), kind
            mask = "true" if kind == "i1" else "-1"
            return self.put(f"xor {LLVM[kind]} {text}, {mask}"), kind
        if kind in ("int", "float"):
            return self.literal(-_number((text, kind)), node)
        if kind in FLOATS:
            return self.put(f"fneg {LLVM[kind]} {text}"), kind
        return self.put(f"sub {LLVM[kind]} 0, {text}"), kind

    def get_Compare(self, node: ast.Compare) -> Value:
        if len(node.ops) > 1:
            raise self.fail(node, "one comparison at a time")
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        if left[1] in ("int", "float") and right[1] in ("int", "float"):
            operator = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<="}.get(
                type(node.ops[0]), ">" if isinstance(node.ops[0], ast.Gt) else ">="
            )
            return self.literal(eval(f"{left[0]} {operator} {right[0]}"), node)
        kind = self.common(left, right)
        a, b = self.convert(left, kind), self.convert(right, kind)
        floats, ints = COMPARE[type(node.ops[0])]
        if kind in FLOATS:
            return self.put(f"fcmp {floats} {LLVM[kind]} {a}, {b}"), "i1"
        return self.put(f"icmp {ints} {LLVM[kind]} {a}, {b}"), "i1"

    def get_BoolOp(self, node: ast.BoolOp) -> Value:
        word = "and" if isinstance(node.op, ast.And) else "or"
        text = self.condition(node.values[0])
        for value in node.values[1:]:
            text = self.put(f"{word} i1 {text}, {self.condition(value)}")
        return text, "i1"

    def get_IfExp(self, node: ast.IfExp) -> Value:
        condition = self.condition(node.test)
        if condition in ("true", "false"):
            return self.expression(node.body if condition == "true" else node.orelse)
        left, right = self.expression(node.body), self.expression(node.orelse)
        kind = self.common(left, right)
        kind = {"int": "i64", "float": "f32"}.get(kind, kind)
        a, b = self.convert(left, kind), self.convert(right, kind)
        return self.put(f"select i1 {condition}, {LLVM[kind]} {a}, {LLVM[kind]} {b}"), kind

    def get_Call(self, node: ast.Call) -> Value:
        name = ast.unparse(node.func)
        if name in INTRINSICS:
            return self.intrinsic(node, name)
        if name in ("i64", "i32", "f32", "f64", "T", "U"):
            kind = self.type_name(name)
            return self.convert(self.expression(node.args[0]), kind), kind
        if name == "exactly":
            before, self.flags = self.flags, ""
            found = self.expression(node.args[0])
            self.flags = before
            return found
        if name == "horner":
            x, total, *coefficients = node.args
            for coefficient in coefficients:
                total = ast.Call(ast.Name("fma"), [total, x, coefficient], [])
            return self.expression(total)
        if name == "bits":  # the bits of a float32 as an integer
            text = self.convert(self.expression(node.args[0]), "f32")
            return self.put(f"bitcast float {text} to i32"), "i32"
        if name == "from_bits":
            text = self.convert(self.expression(node.args[0]), "i32")
            return self.put(f"bitcast i32 {text} to float"), "f32"
        if name == "bits_wide":  # the same of float64
            text = self.convert(self.expression(node.args[0]), "f64")
            return self.put(f"bitcast double {text} to i64"), "i64"
        if name == "from_bits_wide":
            text = self.convert(self.expression(node.args[0]), "i64")
            return self.put(f"bitcast i64 {text} to double"), "f64"
        if name in ("min", "max"):
            left, right = (self.expression(a) for a in node.args)
            kind = self.common(left, right)
            if kind == "int":
                chosen = min if name == "min" else max
                return str(chosen(int(left[0]), int(right[0]))), kind
            a, b = self.convert(left, kind), self.convert(right, kind)
            if kind in FLOATS:
                raise self.fail(node, "use minimum or maximum, which keep NaN")
            sign = "slt" if name == "min" else "sgt"
            smaller = self.put(f"icmp {sign} {LLVM[kind]} {a}, {b}")
            return self.put(f"select i1 {smaller}, {LLVM[kind]} {a}, {LLVM[kind]} {b}"), kind
        function = self.meaning(name)
        if isinstance(function, KernelFunction):
            return self.call(node, function)
        if isinstance(function, Assembly):
            return self.call_assembly(node, function)
        raise self.fail(node, "an unknown function")

    def call_assembly(self, node: ast.Call, function: Assembly) -> Value:
        if function.wide is not None:
            first = function.kinds.index("ptr")
            if self.pointer(node.args[first])[1] == "f64":
                function = function.wide
        if function not in self.unit.assemblies:
            self.unit.assemblies.append(function)
            self.unit.declare(function.write())
        given = []
        for argument, kind in zip(node.args, function.kinds, strict=True):
            if kind == "ptr":
                given.append(f"ptr {self.pointer(argument)[0]}")
            else:
                given.append(f"{LLVM[kind]} {self.convert(self.expression(argument), kind)}")
        self.say(f"call void @{function.name}({', '.join(given)})")
        return "0", "int"

    def intrinsic(self, node: ast.Call, name: str) -> Value:
        symbol, count = INTRINSICS[name]
        values = [self.expression(a) for a in node.args]
        kind = self.common(*values)
        if len(values) != count or kind not in FLOATS:
            if name == "abs" and kind in INTEGERS:
                text = values[0][0]
                self.unit.declare(f"declare {LLVM[kind]} @llvm.abs.{kind}({LLVM[kind]}, i1)")
                inner = f"{LLVM[kind]} {text}, i1 false"
                return self.put(f"call {LLVM[kind]} @llvm.abs.{kind}({inner})"), kind
            raise self.fail(node, f"{name} takes {count} float(s)")
        ll, full = LLVM[kind], f"@{symbol}.{kind}"
        self.unit.declare(f"declare {ll} {full}({', '.join([ll] * count)})")
        given = ", ".join(f"{ll} {self.convert(v, kind)}" for v in values)
        return self.put(f"call {ll} {full}({given})"), kind

    def call(self, node: ast.Call, function: KernelFunction) -> Value:
        arguments: list[tuple[ast.expr, Value | None]] = []
        consts: dict[str, Any] = {}
        for argument, (parameter, text) in zip(node.args, function.parameters, strict=True):
            if self.is_pointer(argument):
                arguments.append((argument, None))
                continue
            passed = self.function_named(argument) if text == "constexpr" else None
            if passed is not None:
                consts[parameter] = passed
                continue
            found = self.expression(argument)
            if text == "constexpr" and found[1] in ("int", "float"):
                consts[parameter] = _number(found)
            else:
                arguments.append((argument, found))
        fixed = [v for _, v in arguments if v is not None]
        common = self.common(*fixed) if fixed else "i64"
        if common == "f64" and function.wide is not None:
            if isinstance(function.wide, str):
                return self.library(function.wide, fixed)
            function = function.wide
        kinds, given = [], []
        for argument, value in arguments:
            if value is None:
                text, kind = self.pointer(argument)
                kinds.append(f"{kind}*")
                given.append(f"ptr {text}")
                continue
            kind = value[1]
            if kind in ("int", "float"):
                kind = common if common in LLVM else ("i64" if kind == "int" else "f32")
            kinds.append(kind)
            given.append(f"{LLVM[kind]} {self.convert(value, kind)}")
        name, kind = self.unit.inline(function, tuple(kinds), consts)
        call = f"call {result_type(kind)} @{name}({', '.join(given)})"
        if kind == "void":
            self.say(call)
            return "0", "int"
        return self.put(call), kind

    def library(self, name: str, values: list[Value]) -> Value:
        """A call of a function of the C library on float64."""
        kinds = ", ".join(["double"] * len(values))
        self.unit.declare(f"declare double @{name}({kinds}) nounwind memory(none)")
        given = ", ".join(f"double {self.convert(v, 'f64')}" for v in values)
        return self.put(f"call double @{name}({given})"), "f64"


def result_type(kind: str) -> str:
    """The LLVM type of a function's result; of several values, a structure."""
    if "," in kind:
        return f"{{{', '.join(LLVM[k] for k in kind.split(','))}}}"
    return LLVM.get(kind, kind)


def _number(value: Value) -> float | int:
    return int(value[0]) if value[1] == "int" else float(value[0])


OPENMP = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
"""
# A thread's part of the range, on arguments that stand in memory, one word each.
PART = """
define private void @{name}.part(ptr %args, i64 %lo, i64 %hi) nounwind {{
{loads}
  call void @{name}.body({taken}i64 %lo, i64 %hi)
  ret void
}}
"""
WORKER = """
define private void @{name}.worker(ptr %args) nounwind {{
  %nptr = getelementptr i64, ptr %args, i64 {count}
  %n = load i64, ptr %nptr
  %id = call i32 @omp_get_thread_num()
  %all = call i32 @omp_get_num_threads()
  %t = sext i32 %id to i64
  %k = sext i32 %all to i64
  %lo0 = mul i64 %t, %n
  %lo = sdiv i64 %lo0, %k
  %t1 = add i64 %t, 1
  %hi0 = mul i64 %t1, %n
  %hi = sdiv i64 %hi0, %k
  call void @{name}.part(ptr %args, i64 %lo, i64 %hi)
  ret void
}}
"""
# The kernel on such arguments, of which the last two are the size of the range and the number of
# threads.
PACKED = """
define void @{name}.packed(ptr %args) nounwind {{
  %nptr = getelementptr i64, ptr %args, i64 {count}
  %n = load i64, ptr %nptr
  %tptr = getelementptr i64, ptr %nptr, i64 1
  %threads = load i64, ptr %tptr
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
alone:
  call void @{name}.part(ptr %args, i64 0, i64 %n)
  ret void
parallel:
  %few = trunc i64 %threads to i32
  call void @GOMP_parallel(ptr @{name}.worker, ptr %args, i32 %few, i32 0)
  ret void
}}
"""
PACKED_ALONE = """
define void @{name}.packed(ptr %args) nounwind {{
  %nptr = getelementptr i64, ptr %args, i64 {count}
  %n = load i64, ptr %nptr
  call void @{name}.part(ptr %args, i64 0, i64 %n)
  ret void
}}
"""
# The kernel on arguments as they are, for entry points.
PLAIN = """
define private void @{name}({taken}i64 %n, i64 %threads) nounwind {{
entry:
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %parallel, label %alone
alone:
  call void @{name}.body({taken}i64 0, i64 %n)
  ret void
parallel:
  %args = alloca [{size} x i64]
{stores}
  %nptr = getelementptr i64, ptr %args, i64 {count}
  store i64 %n, ptr %nptr
  %few = trunc i64 %threads to i32
  call void @GOMP_parallel(ptr @{name}.worker, ptr %args, i32 %few, i32 0)
  ret void
}}
"""
PLAIN_ALONE = """
define private void @{name}({taken}i64 %n, i64 %threads) nounwind {{
entry:
  call void @{name}.body({taken}i64 0, i64 %n)
  ret void
}}
"""
# By whether there are threads, and whether the arguments are packed.
AROUND = {
    (True, True): OPENMP + PART + WORKER + PACKED,
    (True, False): OPENMP + PART + WORKER + PLAIN,
    (False, True): PART + PACKED_ALONE,
    (False, False): PLAIN_ALONE,
}


def build(
    function: KernelFunction,
    bound: dict[str, str],
    consts: dict[str, Any],
    parallel: bool,
    packed: bool = True,
) -> str:
    """LLVM IR of a kernel with its threads around it.

    ``bound`` says which dtypes the type names stand for, ``consts`` gives parameters that are
    known numbers. It is called ``name.packed`` and takes the arguments from consecutive words, or
    else is for code behind it in the same unit: ``name``, which takes them as they are.
    """
    unit, given = LLVMUnit(), argument_kinds(function, bound, consts)
    kinds = {f"<{k}>": v for k, v in bound.items()}
    kinds |= argument_kinds(function, bound, {})
    if [n for n, _ in function.parameters[-2:]] != ["lo", "hi"]:
        raise KernelError(f"{function.name}: the last parameters of a kernel are lo and hi")
    name = function.name
    attributes = 'noinline "prefer-vector-width"="512"' if function.widest else "noinline"
    Body(unit, function, kinds, consts).define(f"{name}.body", "private", attributes)
    types = ["ptr" if k.endswith("*") else LLVM[k] for k in list(given.values())[:-2]]
    taken = "".join(f"{t} %a{i}, " for i, t in enumerate(types))
    loads, stores = [], []
    for i, t in enumerate(types):
        loads.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}")
        loads.append(f"  %a{i} = load {t}, ptr %p{i}")
        stores.append(f"  %p{i} = getelementptr i64, ptr %args, i64 {i}")
        stores.append(f"  store {t} %a{i}, ptr %p{i}")
    unit.parts.append(
        AROUND[parallel, packed].format(
            name=name,
            taken=taken,
            count=len(types),
            size=len(types) + 1,
            loads="\n".join(loads),
            stores="\n".join(stores),
        )
    )
    return unit.text()


def argument_kinds(
    function: KernelFunction, bound: dict[str, str], consts: dict[str, Any]
) -> dict[str, str]:
    """The types of a kernel's parameters, but of those that are known numbers."""
    bases = {name: (text.rstrip("*"), text) for name, text in function.parameters}
    return {
        name: bound.get(base, base) + ("*" if text.endswith("*") else "")
        for name, (base, text) in bases.items()
        if name not in consts
    }


def read(
    fn: Callable,
    reassociate: bool = False,
    wide: Any = None,
    unswitched: bool = False,
    outlined: bool = False,
    strided: bool = False,
) -> KernelFunction:
    """A Python function as a function of the language."""
    return KernelFunction(fn, fn.__globals__, reassociate, wide, unswitched, outlined, strided)


def inline(
    fn: Callable | None = None,
    *,
    reassociate: bool = False,
    f64: Any = None,
    outlined: bool = False,
) -> Any:
    """Mark a function that kernels may call; it becomes part of them.

    ``f64`` is what takes its place on float64: another such function, or a name of the C library.
    One that is ``outlined`` is in a kernel once, and called from all places in it: for large
    functions, since LLVM takes its time for every copy. Arguments that are the same constant at all
    places stay constants inside.
    """
    if fn is None:
        return lambda f: inline(f, reassociate=reassociate, f64=f64, outlined=outlined)
    return read(fn, reassociate, f64, outlined=outlined)
