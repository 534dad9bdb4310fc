"""The microkernels of matrix products, written in LLVM IR.

A block of the result stays in registers while its terms are accumulated: six rows of two vectors,
or twelve where there are 32 registers. Such a loop is limited by the number of instructions besides
the multiplications, so all addresses are one register and a number, or two registers.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

from weft.native.codegen import jit
from weft.native.codegen.compiler import FLOATS, SIZES, UNROLLED, UNROLLED_NODES, Assembly


@functools.cache
def block(kind: str = "f32") -> tuple[int, int, int]:
    """The lanes of a vector, and the rows and columns of a block of the result."""
    features = jit.engine().features
    size = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    lanes = size // SIZES[kind]
    return lanes, 12 if size == 64 else 6, 2 * lanes


@functools.cache
def has_fma() -> bool:
    """Whether an instruction multiplies and adds; where none does, ``fma`` calls a function."""
    return bool({"+fma", "+avx512f"}.intersection(jit.engine().features.split(",")))


def tile() -> tuple[int, int, int]:
    """The same for products of two packed float32 matrices.

    Where there are 32 registers, eight rows of three vectors: as many accumulators as twelve of
    two, with fewer loads for each multiplication and longer segments of the result's rows.
    """
    lanes, rows, columns = block()
    return (lanes, 8, 3 * lanes) if rows == 12 else (lanes, rows, columns)


class VectorCode:
    """Writes a function of LLVM IR on whole vectors.

    A value that is loaded as ``%x`` comes from the address ``%x.p``.
    """

    def __init__(self, kind: str = "f32") -> None:
        self.lanes = block(kind)[0]
        self.scalar, self.align = FLOATS[kind], SIZES[kind]
        self.vector, self.mask = f"<{self.lanes} x {self.scalar}>", f"<{self.lanes} x i1>"
        self.fused = f"@llvm.fmuladd.v{self.lanes}{kind}"
        self.masked = f"@llvm.masked.load.v{self.lanes}{kind}.p0"
        self.lines: list[str] = []

    def put(self, *lines: str) -> None:
        self.lines += lines

    def begin(self, name: str, given: str, *declared: str) -> None:
        """The head of a function that multiplies and adds."""
        self.put(
            UNROLLED_NODES,
            f"declare {self.vector} {self.fused}({', '.join([self.vector] * 3)})",
            f"declare {self.vector} {self.masked}(ptr, i32, {self.mask}, {self.vector})",
            *declared,
            f"define private void @{name}({given}) noinline nounwind {{",
            "entry:",
        )

    def text(self) -> str:
        """The text of the whole function."""
        return "\n".join([*self.lines, "  ret void", "}"])

    def move(self, to: str, base: str, by: int | str, kind: str | None = None) -> None:
        self.put(f"  {to} = getelementptr {kind or self.scalar}, ptr {base}, i64 {by}")

    def load(self, to: str, base: str, by: int | str) -> None:
        """A vector at an offset in elements from an address."""
        self.move(f"{to}.p", base, by)
        self.put(f"  {to} = load {self.vector}, ptr {to}.p, align {self.align}")

    def load_masked(self, to: str, base: str, by: int | str, mask: str) -> None:
        """The same, with zeros for elements that a mask leaves out."""
        self.move(f"{to}.p", base, by)
        given = f"i32 {self.align}, {self.mask} {mask}, {self.vector} zeroinitializer"
        self.put(f"  {to} = call {self.vector} {self.masked}(ptr {to}.p, {given})")

    def load_number(self, to: str, base: str, by: int | str) -> None:
        """An i64 of a table."""
        self.move(f"{to}.p", base, by, "i64")
        self.put(f"  {to} = load i64, ptr {to}.p, align 8")

    def store(self, value: str, base: str, by: int | str) -> None:
        self.move(f"{value}.to", base, by)
        self.put(f"  store {self.vector} {value}, ptr {value}.to, align {self.align}")

    def splat(self, to: str, value: str, kind: str | None = None) -> None:
        """A vector of one value."""
        kind = kind or self.scalar
        vector, nought = f"<{self.lanes} x {kind}>", f"<{self.lanes} x i32> zeroinitializer"
        self.put(
            f"  {to}.i = insertelement {vector} poison, {kind} {value}, i64 0",
            f"  {to} = shufflevector {vector} {to}.i, {vector} poison, {nought}",
        )

    def load_splat(self, to: str, base: str, by: int | str) -> None:
        """A vector of one element."""
        self.move(f"{to}.p", base, by)
        self.put(f"  {to}.s = load {self.scalar}, ptr {to}.p, align {self.align}")
        self.splat(to, f"{to}.s")

    def fma(self, to: str, a: str, b: str, c: str) -> None:
        given = f"{self.vector} {a}, {self.vector} {b}, {self.vector} {c}"
        self.put(f"  {to} = call {self.vector} {self.fused}({given})")

    def phi(self, to: str, kind: str = "", **incoming: str) -> None:
        """One of several values, by the block that control comes from."""
        pairs = ", ".join(f"[ {value}, %{label} ]" for label, value in incoming.items())
        self.put(f"  {to} = phi {kind or self.vector} {pairs}")

    def repeat(self, loop: str, by: int, end: str, after: str, how: str = UNROLLED) -> None:
        """The end of a loop with counter ``.i`` up to ``end``."""
        self.put(
            f"  %{loop}.n = add i64 %{loop}.i, {by}",
            f"  %{loop}.again = icmp slt i64 %{loop}.n, {end}",
            f"  br i1 %{loop}.again, label %{loop}, label %{after}{how}",
        )

    def products(
        self, line: str, others: Sequence[str], firsts: Sequence[str], count: str
    ) -> list[str]:
        """The products of a line with others, in lanes, added to first values: the names of these.

        The code is that from the block ``entry`` on, up to the beginning of the block ``done``.
        """
        every = range(len(others))
        self.put(
            f"  %even = and i64 {count}, {-self.lanes}",
            "  %some = icmp sgt i64 %even, 0",
            "  br i1 %some, label %loop, label %rest",
            "loop:",  # whole vectors
        )
        self.phi("%loop.i", "i64", entry="0", loop="%loop.n")
        for j in every:
            self.phi(f"%l{j}", entry=firsts[j], loop=f"%t{j}")
        self.load("%here", line, "%loop.i")
        for j in every:
            self.load(f"%here{j}", others[j], "%loop.i")
            self.fma(f"%t{j}", "%here", f"%here{j}", f"%l{j}")
        self.repeat("loop", self.lanes, "%even", "rest", how="")
        self.put("rest:")
        for j in every:
            self.phi(f"%r{j}", entry=firsts[j], loop=f"%t{j}")
        self.put(
            f"  %left = sub i64 {count}, %even",
            "  %none = icmp eq i64 %left, 0",
            "  br i1 %none, label %done, label %last",
            "last:",  # less than a vector
            *masking("%left", self.lanes),
        )
        self.load_masked("%end", line, "%even", "%mask")
        for j in every:
            self.load_masked(f"%end{j}", others[j], "%even", "%mask")
            self.fma(f"%u{j}", "%end", f"%end{j}", f"%r{j}")
        self.put("  br label %done", "done:")
        for j in every:
            self.phi(f"%e{j}", rest=f"%r{j}", last=f"%u{j}")
        return [f"%e{j}" for j in every]


class Block(VectorCode):
    """Writes a function that computes a block of ``a @ b``, where b is a panel.

    Rows of a are ``across`` elements apart and its columns ``along``: numbers, or arguments of the
    function, of which one is 1. With ``more`` the block is added to what is at ``o``. Of the panel,
    whose rows have ``columns``, the first ``vectors`` are used.
    """

    def __init__(
        self,
        kind: str,
        across: int | str,
        along: int | str,
        rows: int | None = None,
        unroll: int = 4,
        columns: int | None = None,
        vectors: int = 2,
    ) -> None:
        super().__init__(kind)
        _, most, both = block(kind)
        self.rows = most if rows is None else rows
        self.columns, self.vectors = columns or both, vectors
        self.across, self.along, self.unroll = across, along, unroll
        self.cells = [(r, h) for r in range(self.rows) for h in range(vectors)]
        # Rows any distance apart are reached from every third: addresses can double an index.
        self.bases = range(0, self.rows, 3) if isinstance(across, str) else range(1)

    def declared(self) -> str:
        """What the function calls."""
        given = ", ".join([self.vector] * 3)
        return f"{UNROLLED_NODES}\ndeclare {self.vector} {self.fused}({given})"

    def write(self, name: str, given: str) -> str:
        """The whole function."""
        self.put(f"define private void @{name}({given}) noinline nounwind {{", "entry:")
        self.start()
        noughts = dict.fromkeys(self.cells, "zeroinitializer")
        firsts = {"b": "%b", **{f"a{g}": f"%a{g}" for g in self.bases}}
        self.loop("many", self.unroll, "entry", "middle", "%whole", "0", firsts, noughts)
        self.between(firsts)
        now = {"b": "%mid.b", **{f"a{g}": f"%mid.a{g}" for g in self.bases}}
        sums = {(r, h): f"%mid.s{r}.{h}" for r, h in self.cells}
        self.loop("each", 1, "middle", "done", "%k_size", "%mid.k", now, sums)
        self.finish()
        return "\n".join([*self.lines, "}"])

    def onto_itself(self, name: str, given: str) -> str:
        """The whole function, which accumulates into the result itself."""
        return self.write(name, given).replace("ptr %o,", "ptr %c,").replace("%under", "%step")

    def hide(self, to: str, kind: str, value: str) -> None:
        """A value that LLVM can't derive from another one, which would cost an addition."""
        self.put(f'  {to} = call {kind} asm "", "=r,0"({kind} {value})')

    def start(self) -> None:
        for name, step, most in (("r", self.across, 3), ("l", self.along, self.unroll)):
            if isinstance(step, str):
                for i in range(1, most):
                    self.put(f"  %{name}{i}.m = mul i64 {step}, {i}")
                    self.hide(f"%{name}{i}", "i64", f"%{name}{i}.m")
        for g in self.bases:
            self.put(f"  %a{g}.m = mul i64 {self.across}, {g}")
            self.move(f"%a{g}.p", "%a", f"%a{g}.m")
            self.hide(f"%a{g}", "ptr", f"%a{g}.p")
        self.put(
            f"  %whole = and i64 %k_size, {-self.unroll}",
            "  %long = icmp sgt i64 %whole, 0",
            "  br i1 %long, label %many, label %middle",
        )

    def loop(
        self,
        loop: str,
        times: int,
        before: str,
        after: str,
        end: str,
        begin: str,
        pointers: dict[str, str],
        sums: dict[tuple[int, int], str],
    ) -> None:
        """A loop over the inner dimension, so many elements at a time."""
        self.put(
            f"{loop}:", f"  %{loop}.k = phi i64 [ {begin}, %{before} ], [ %{loop}.n, %{loop} ]"
        )
        for name, first in pointers.items():
            here = f"%{loop}.{name}"
            self.put(f"  {here} = phi ptr [ {first}, %{before} ], [ {here}.n, %{loop} ]")
        state = {}
        for (r, h), first in sums.items():
            last = f"%{loop}.t{times - 1}.{r}.{h}"
            state[r, h] = f"%{loop}.s{r}.{h}"
            self.put(
                f"  {state[r, h]} = phi {self.vector} [ {first}, %{before} ], [ {last}, %{loop} ]"
            )
        for u in range(times):
            state = self.multiply(loop, u, state)
        self.move(f"%{loop}.b.n", f"%{loop}.b", times * self.columns)
        for g in self.bases:
            by = f"%{loop}.far" if isinstance(self.along, str) else times * self.along
            if isinstance(by, str) and g == self.bases[0]:
                self.put(f"  {by} = mul i64 {self.along}, {times}")
            self.move(f"%{loop}.a{g}.n", f"%{loop}.a{g}", by)
        self.put(
            f"  %{loop}.n = add i64 %{loop}.k, {times}",
            f"  %{loop}.again = icmp slt i64 %{loop}.n, {end}",
            f"  br i1 %{loop}.again, label %{loop}, label %{after}{UNROLLED}",
        )

    def multiply(
        self, loop: str, u: int, state: dict[tuple[int, int], str]
    ) -> dict[tuple[int, int], str]:
        """One column of a times one row of b, added to the sums."""
        for h in range(self.vectors):
            self.load(f"%{loop}.b{u}.{h}", f"%{loop}.b", u * self.columns + h * self.lanes)
        after = {}
        for r in range(self.rows):
            x = f"%{loop}.x{u}.{r}"
            self.element(x, loop, r, u)
            self.put(f"  {x} = load {self.scalar}, ptr {x}.p, align {self.align}")
            self.splat(f"{x}.v", x)
            for h in range(self.vectors):
                after[r, h] = f"%{loop}.t{u}.{r}.{h}"
                self.fma(after[r, h], f"{x}.v", f"%{loop}.b{u}.{h}", state[r, h])
        return after

    def element(self, x: str, loop: str, r: int, u: int) -> None:
        """The address of an element of a."""
        base, fixed = f"%{loop}.a0", 0
        if isinstance(self.across, str):
            base = f"%{loop}.a{r - r % 3}"
            if r % 3:
                self.move(f"{x}.r", base, f"%r{r % 3}")
                base = f"{x}.r"
        else:
            fixed += r * self.across
        if isinstance(self.along, str):
            if u:
                self.move(f"{x}.l", base, f"%l{u}")
                base = f"{x}.l"
        else:
            fixed += u * self.along
        self.move(f"{x}.p", base, fixed)

    def between(self, firsts: dict[str, str]) -> None:
        self.put("middle:", "  %mid.k = phi i64 [ 0, %entry ], [ %whole, %many ]")
        for name, first in firsts.items():
            self.put(f"  %mid.{name} = phi ptr [ {first}, %entry ], [ %many.{name}.n, %many ]")
        for r, h in self.cells:
            incoming = f"[ zeroinitializer, %entry ], [ %many.t{self.unroll - 1}.{r}.{h}, %many ]"
            self.put(f"  %mid.s{r}.{h} = phi {self.vector} {incoming}")
        self.put(
            "  %some = icmp slt i64 %mid.k, %k_size",
            "  br i1 %some, label %each, label %done",
        )

    def finish(self) -> None:
        """Write the sums, over what is there or not."""
        self.put("done:")
        for r, h in self.cells:
            incoming = f"[ %mid.s{r}.{h}, %middle ], [ %each.t0.{r}.{h}, %each ]"
            self.put(f"  %t{r}.{h} = phi {self.vector} {incoming}")
        self.put("  %adds = icmp ne i64 %more, 0", "  br i1 %adds, label %add, label %set")
        for mode in ("add", "set"):
            self.put(f"{mode}:")
            for r, h in self.cells:
                at, value = f"%{mode}{r}.{h}", f"%t{r}.{h}"
                if mode == "add":
                    self.place(f"{at}.q", "%o", "%under", r, h)
                    self.put(
                        f"  {at}.o = load {self.vector}, ptr {at}.q, align {self.align}",
                        f"  {at}.n = fadd {self.vector} {at}.o, {value}",
                    )
                    value = f"{at}.n"
                self.place(f"{at}.p", "%c", "%step", r, h)
                self.put(f"  store {self.vector} {value}, ptr {at}.p, align {self.align}")
            self.put("  ret void")

    def place(self, to: str, base: str, step: str, r: int, h: int) -> None:
        self.put(f"  {to}.i = mul i64 {step}, {r}", f"  {to}.j = add i64 {to}.i, {h * self.lanes}")
        self.move(to, base, f"{to}.j")


def _micro(name: str, kind: str) -> str:
    """``c = a @ b`` or ``c += a @ b`` for a block and two panels."""
    made = Block(kind, 1, block(kind)[1])
    given = "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %step, i64 %k_size, i64 %more"
    return f"{made.declared()}\n{made.onto_itself(name, given)}"


_SUMMED = "ptr noalias %b, ptr %o, i64 %under, ptr %c, i64 %step, i64 %k_size, i64 %more"


def _by_columns(name: str) -> str:
    """``c = o + a @ b`` for a matrix whose columns are in one piece, and a panel."""
    made = Block("f32", 1, "%apart")
    return f"{made.declared()}\n{made.write(name, f'ptr noalias %a, i64 %apart, {_SUMMED}')}"


def _tile(name: str, across: int | str, along: int | str) -> str:
    """``c = o + a @ b`` for a tile: so many ``vectors`` of a panel's columns, all or fewer."""
    lanes, height, width = tile()
    given = f"ptr noalias %a, i64 %apart, {_SUMMED}"
    made = {
        v: Block("f32", across, along, height, 4 if v * lanes == width else 2, width, v)
        for v in range(width // lanes, 0, -1)
    }
    lines = [made[1].declared()]
    lines += [one.write(f"{name}.{v}", given) for v, one in made.items()]
    return "\n".join([*lines, *choosing(name, given, "vectors", made)])


def choosing(name: str, given: str, by: str, cases: Iterable[int]) -> list[str]:
    """LLVM IR that calls one of several functions, which have a number behind their name."""
    jumps = " ".join(f"i64 {n}, label %n{n}" for n in cases)
    lines = [
        f"define private void @{name}({given}, i64 %{by}) nounwind {{",
        f"  switch i64 %{by}, label %none [ {jumps} ]",
        "none:",
        "  ret void",
    ]
    passed = given.replace("noalias ", "")
    for n in cases:
        lines += [f"n{n}:", f"  call void @{name}.{n}({passed})", "  ret void"]
    return [*lines, "}"]


def transposing(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """LLVM IR that transposes a square of as many vectors as they have lanes, and its results."""
    lanes, names, lines, apart = len(names), list(names), [], 1
    vector = f"<{lanes} x float>"
    while apart < lanes:  # swap the off-diagonal blocks in squares of twice this size
        for r in (r for r in range(lanes) if not r & apart):
            pair = f"{vector} {names[r]}, {vector} {names[r + apart]}"
            above = [e + lanes - apart if e & apart else e for e in range(lanes)]
            below = [e + lanes if e & apart else e + apart for e in range(lanes)]
            for at, mask in ((r, above), (r + apart, below)):
                names[at] = f"%v{apart}.{at}"
                text = ", ".join(f"i32 {e}" for e in mask)
                lines.append(f"  {names[at]} = shufflevector {pair}, <{lanes} x i32> <{text}>")
        apart *= 2
    return lines, names


def masking(count: str, lanes: int) -> list[str]:
    """LLVM IR of ``%mask``: which lanes are among the first ``count``."""
    kind, every = f"<{lanes} x i32>", ", ".join(f"i32 {i}" for i in range(lanes))
    return [
        f"  %few = trunc i64 {count} to i32",
        f"  %few.i = insertelement {kind} poison, i32 %few, i64 0",
        f"  %few.v = shufflevector {kind} %few.i, {kind} poison, {kind} zeroinitializer",
        f"  %mask = icmp slt {kind} <{every}>, %few.v",
    ]


def _transpose(name: str) -> str:
    """The transpose of as many rows of a vector as a vector has lanes."""
    lanes = block()[0]
    vector = f"<{lanes} x float>"
    given = "ptr noalias %x, i64 %step, ptr noalias %to, i64 %width"
    lines = [f"define private void @{name}({given}) alwaysinline nounwind {{", "entry:"]
    for r in range(lanes):
        lines += [
            f"  %i{r} = mul i64 %step, {r}",
            f"  %p{r} = getelementptr float, ptr %x, i64 %i{r}",
            f"  %v0.{r} = load {vector}, ptr %p{r}, align 4",
        ]
    exchanges, names = transposing([f"%v0.{r}" for r in range(lanes)])
    lines += exchanges
    for r in range(lanes):
        lines += [
            f"  %j{r} = mul i64 %width, {r}",
            f"  %q{r} = getelementptr float, ptr %to, i64 %j{r}",
            f"  store {vector} {names[r]}, ptr %q{r}, align 4",
        ]
    return "\n".join([*lines, "  ret void", "}"])


def _take() -> str:
    """The next number of a counter that several threads share."""
    return """define private void @take(ptr %counter, ptr noalias %to) alwaysinline nounwind {
  %now = atomicrmw add ptr %counter, i64 1 monotonic
  store i64 %now, ptr %to
  ret void
}"""


_PANELS = ("ptr", "ptr", "ptr", "i64", "i64", "i64")
_SUMS = ("ptr", "ptr", "i64", "ptr", "i64", "i64", "i64")
micro64 = Assembly("micro64", _PANELS, lambda: _micro("micro64", "f64"))
micro = Assembly("micro", _PANELS, lambda: _micro("micro", "f32"), micro64)
by_columns = Assembly("by_columns", ("ptr", "i64", *_SUMS), lambda: _by_columns("by_columns"))
# Tiles by how a is read: rows in one piece, ``apart``; panels; columns in one piece, ``apart``.
_TILE = ("ptr", "i64", *_SUMS, "i64")
tile_by_rows = Assembly("tile_by_rows", _TILE, lambda: _tile("tile_by_rows", "%apart", 1))
tile_by_panels = Assembly("tile_by_panels", _TILE, lambda: _tile("tile_by_panels", 1, tile()[1]))
tile_by_columns = Assembly("tile_by_columns", _TILE, lambda: _tile("tile_by_columns", 1, "%apart"))
transpose = Assembly("transpose", ("ptr", "i64", "ptr", "i64"), lambda: _transpose("transpose"))
take = Assembly("take", ("ptr", "ptr"), _take)
