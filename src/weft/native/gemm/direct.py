"""Products of small float32 matrices: no panels, no threads of another library, one call.

A block of the result stays in registers, as in ``blocks``, but the right matrix is read where it
lies, row by row, and the last columns through a mask. So there is nothing to prepare, which for
small matrices takes longer than the product. A right matrix whose columns are in one piece (the
weight of a layer) is transposed first. The last block of rows overlaps the one before it: rows that
are computed twice are the same twice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from weft.native import threads
from weft.native.codegen import jit
from weft.native.codegen.compiler import (
    UNROLLED,
    UNROLLED_NODES,
    Assembly,
    KernelFunction,
    Ptr,
    array,
    f32,
    i64,
    inline,
    maximum,
)
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import block, masking, transposing
from weft.native.memory import buffers

Array = np.ndarray
F32 = np.dtype(np.float32)
GRAIN = 1 << 18  # multiplications that are worth a thread
READ = 1 << 15  # elements whose reading is, where each is used for a few products only
FEW = 4  # rows or columns of the result that make dot products the fastest
DOT_HEIGHTS = (1, 4)  # rows that a block of dot products can have
CHAINS = 8  # sums at a time that keep the multipliers busy
MASKED = ("+avx2", "+avx512f")  # instruction sets that read and write through masks


class _Outer:
    """Writes a function that computes rows of ``a @ b``, one or two vectors wide.

    Element (r, k) of a is ``r * apart + k * along`` from its first one; row k of b is ``k * down``
    from its first one, and its second vector ``over`` behind the first. The last vector has
    ``last`` lanes where it is masked. Few rows take several k at a time, each with its own sums.
    """

    def __init__(self, rows: int, vectors: int, masked: bool) -> None:
        self.lanes = block()[0]
        self.rows, self.vectors, self.masked = rows, vectors, masked
        self.ways = max(1, CHAINS // (rows * vectors))
        self.vector, self.mask = f"<{self.lanes} x float>", f"<{self.lanes} x i1>"
        self.fused = f"@llvm.fmuladd.v{self.lanes}f32"
        self.maximum = f"@llvm.maximum.v{self.lanes}f32"  # a NaN stays one
        self.load = f"@llvm.masked.load.v{self.lanes}f32.p0"
        self.store = f"@llvm.masked.store.v{self.lanes}f32.p0"
        # Rows any distance apart are reached from every third: addresses can double an index.
        self.bases = range(0, rows, 3)
        self.cells = [(r, h) for r in range(rows) for h in range(vectors)]
        self.lines: list[str] = []

    def write(self, name: str) -> str:
        """The whole function, with what it calls."""
        vector, mask = self.vector, self.mask
        given = (
            "ptr noalias %a, i64 %apart, i64 %along, ptr noalias %b, i64 %down, i64 %over, "
            "ptr noalias %c, i64 %step, i64 %k_size, ptr noalias %bias, i64 %biased, "
            "i64 %rectified, i64 %last"
        )
        self.put(
            UNROLLED_NODES,
            f"declare {vector} {self.fused}({vector}, {vector}, {vector})",
            f"declare {vector} {self.maximum}({vector}, {vector})",
            f"declare {vector} {self.load}(ptr, i32, {mask}, {vector})",
            f"declare void {self.store}({vector}, ptr, i32, {mask})",
            f"define private void @{name}({given}) noinline nounwind {{",
            "entry:",
        )
        self.start()
        self.loop("many", self.ways, "entry", "middle", "%whole", "0")
        self.join("mid", "many", self.ways, "entry")
        if self.ways > 1:
            self.put(
                "  %some = icmp slt i64 %mid.k, %k_size",
                "  br i1 %some, label %each, label %done",
            )
            self.loop("each", 1, "middle", "done", "%k_size", "%mid.k")
        else:
            self.put("  br label %done")  # nothing is left
        self.finish()
        return "\n".join([*self.lines, "}"])

    def put(self, *lines: str) -> None:
        self.lines += lines

    def move(self, to: str, base: str, by: int | str) -> None:
        self.put(f"  {to} = getelementptr float, ptr {base}, i64 {by}")

    def pointers(self) -> list[str]:
        return [*(f"a{g}" for g in self.bases), *(f"b{h}" for h in range(self.vectors))]

    def start(self) -> None:
        """Where rows begin, and the mask."""
        for i in (1, 2):
            self.put(f"  %r{i}.m = mul i64 %apart, {i}")
            # Nobody may derive it from another value, which would cost an addition each time.
            self.put(f'  %r{i} = call i64 asm "", "=r,0"(i64 %r{i}.m)')
        for g in self.bases:
            self.put(f"  %first.a{g}.m = mul i64 %apart, {g}")
            self.move(f"%first.a{g}.p", "%a", f"%first.a{g}.m")
            self.put(f'  %first.a{g} = call ptr asm "", "=r,0"(ptr %first.a{g}.p)')
        for h in range(self.vectors):
            self.move(f"%first.b{h}", "%b", "%over" if h else 0)
        lanes, every = self.lanes, ", ".join(f"i32 {i}" for i in range(self.lanes))
        kind = f"<{lanes} x i32>"
        self.put(
            "  %few = trunc i64 %last to i32",
            f"  %few.i = insertelement {kind} poison, i32 %few, i64 0",
            f"  %few.v = shufflevector {kind} %few.i, {kind} poison, {kind} zeroinitializer",
            f"  %mask = icmp slt {kind} <{every}>, %few.v",
            f"  %rest = srem i64 %k_size, {self.ways}",
            "  %whole = sub i64 %k_size, %rest",
            "  %long = icmp sgt i64 %whole, 0",
            "  br i1 %long, label %many, label %middle",
        )

    def read(self, to: str, at: str, h: int) -> None:
        """Load a vector of a row of b or of the bias."""
        if self.masked and h == self.vectors - 1:
            given = f"ptr {at}, i32 4, {self.mask} %mask, {self.vector} zeroinitializer"
            self.put(f"  {to} = call {self.vector} {self.load}({given})")
        else:
            self.put(f"  {to} = load {self.vector}, ptr {at}, align 4")

    def loop(self, loop: str, ways: int, before: str, after: str, end: str, begin: str) -> None:
        """A loop over the inner dimension, ``ways`` at a time."""
        self.put(
            f"{loop}:", f"  %{loop}.k = phi i64 [ {begin}, %{before} ], [ %{loop}.n, %{loop} ]"
        )
        origin = "first" if before == "entry" else "mid"
        for name in self.pointers():
            here = f"%{loop}.{name}"
            self.put(f"  {here} = phi ptr [ %{origin}.{name}, %{before} ], [ {here}.n, %{loop} ]")
        for u in range(ways):
            for r, h in self.cells:
                first = "zeroinitializer" if before == "entry" else f"%mid.s{r}.{h}"
                last = f"%{loop}.t{u}.{r}.{h}"
                incoming = f"[ {first}, %{before} ], [ {last}, %{loop} ]"
                self.put(f"  %{loop}.s{u}.{r}.{h} = phi {self.vector} {incoming}")
        for u in range(ways):
            self.multiply(loop, u)
        for name in self.pointers():
            by = "%along" if name[0] == "a" else "%down"
            last = f"%{loop}.{name}" if ways == 1 else f"%{loop}.{name}.{ways - 1}"
            self.move(f"%{loop}.{name}.n", last, by)
        self.put(
            f"  %{loop}.n = add i64 %{loop}.k, {ways}",
            f"  %{loop}.again = icmp slt i64 %{loop}.n, {end}",
            f"  br i1 %{loop}.again, label %{loop}, label %{after}"
            + (UNROLLED if loop == "each" else ""),
        )

    def multiply(self, loop: str, u: int) -> None:
        """One column of a times one row of b, added to the sums."""
        vector, nought = self.vector, f"<{self.lanes} x i32> zeroinitializer"
        at = {name: f"%{loop}.{name}" for name in self.pointers()}
        if u:
            for name, here in at.items():
                before = here if u == 1 else f"{here}.{u - 1}"
                at[name] = f"{here}.{u}"
                self.move(at[name], before, "%along" if name[0] == "a" else "%down")
        for h in range(self.vectors):
            self.read(f"%{loop}.y{u}.{h}", at[f"b{h}"], h)
        for r in range(self.rows):
            x, base = f"%{loop}.x{u}.{r}", at[f"a{r - r % 3}"]
            if r % 3:
                self.move(f"{x}.p", base, f"%r{r % 3}")
                base = f"{x}.p"
            self.put(
                f"  {x} = load float, ptr {base}, align 4",
                f"  {x}.i = insertelement {vector} poison, float {x}, i64 0",
                f"  {x}.v = shufflevector {vector} {x}.i, {vector} poison, {nought}",
            )
            for h in range(self.vectors):
                sums = f"{vector} %{loop}.s{u}.{r}.{h}"
                given = f"{vector} {x}.v, {vector} %{loop}.y{u}.{h}, {sums}"
                self.put(f"  %{loop}.t{u}.{r}.{h} = call {vector} {self.fused}({given})")

    def join(self, name: str, loop: str, ways: int, before: str) -> None:
        """Where the first loop has ended, or was left out: all its sums as one."""
        self.put("middle:", f"  %{name}.k = phi i64 [ 0, %{before} ], [ %whole, %{loop} ]")
        for at in self.pointers():
            incoming = f"[ %first.{at}, %{before} ], [ %{loop}.{at}.n, %{loop} ]"
            self.put(f"  %{name}.{at} = phi ptr {incoming}")
        for u in range(ways):
            for r, h in self.cells:
                incoming = f"[ zeroinitializer, %{before} ], [ %{loop}.t{u}.{r}.{h}, %{loop} ]"
                to = f"%{name}.s{r}.{h}" if ways == 1 else f"%{name}.p{u}.{r}.{h}"
                self.put(f"  {to} = phi {self.vector} {incoming}")
        for r, h in self.cells if ways > 1 else ():
            total = f"%{name}.p0.{r}.{h}"
            for u in range(1, ways):
                to = f"%{name}.s{r}.{h}" if u == ways - 1 else f"%{name}.q{u}.{r}.{h}"
                self.put(f"  {to} = fadd {self.vector} {total}, %{name}.p{u}.{r}.{h}")
                total = to

    def finish(self) -> None:
        """Add the bias, rectify the sums, and write the block."""
        self.put("done:")
        for r, h in self.cells:
            incoming = f"[ %mid.s{r}.{h}, %middle ]"
            if self.ways > 1:
                incoming += f", [ %each.t0.{r}.{h}, %each ]"
            self.put(f"  %t{r}.{h} = phi {self.vector} {incoming}")
        self.put(
            "  %adds = icmp ne i64 %biased, 0", "  br i1 %adds, label %add, label %sum", "add:"
        )
        for h in range(self.vectors):
            self.move(f"%bias{h}.p", "%bias", h * self.lanes)
            self.read(f"%bias{h}", f"%bias{h}.p", h)
        for r, h in self.cells:
            self.put(f"  %u{r}.{h} = fadd {self.vector} %t{r}.{h}, %bias{h}")
        self.put("  br label %sum", "sum:")
        for r, h in self.cells:
            incoming = f"[ %t{r}.{h}, %done ], [ %u{r}.{h}, %add ]"
            self.put(f"  %v{r}.{h} = phi {self.vector} {incoming}")
        self.put(
            "  %cuts = icmp ne i64 %rectified, 0", "  br i1 %cuts, label %cut, label %set", "cut:"
        )
        for r, h in self.cells:
            given = f"{self.vector} %v{r}.{h}, {self.vector} zeroinitializer"
            self.put(f"  %x{r}.{h} = call {self.vector} {self.maximum}({given})")
        self.put("  br label %set", "set:")
        for r, h in self.cells:
            incoming = f"[ %v{r}.{h}, %sum ], [ %x{r}.{h}, %cut ]"
            self.put(f"  %w{r}.{h} = phi {self.vector} {incoming}")
        for r, h in self.cells:
            at, value = f"%to{r}.{h}", f"{self.vector} %w{r}.{h}"
            self.put(
                f"  {at}.i = mul i64 %step, {r}", f"  {at}.j = add i64 {at}.i, {h * self.lanes}"
            )
            self.move(at, "%c", f"{at}.j")
            if self.masked and h == self.vectors - 1:
                given = f"{value}, ptr {at}, i32 4, {self.mask} %mask"
                self.put(f"  call void {self.store}({given})")
            else:
                self.put(f"  store {value}, ptr {at}, align 4")
        self.put("  ret void")


_GIVEN = (
    *("ptr", "i64", "i64", "ptr", "i64", "i64", "ptr", "i64", "i64", "ptr", "i64", "i64", "i64"),
)


def _outer(name: str, rows: int, vectors: int, masked: bool) -> Assembly:
    return Assembly(name, _GIVEN, lambda: _Outer(rows, vectors, masked).write(name))


@inline
def columns(
    a: Ptr[f32],
    b: Ptr[f32],
    c: Ptr[f32],
    bias: Ptr[f32],
    width: i64,
    k_size: i64,
    apart: i64,
    along: i64,
    down: i64,
    panel: i64,
    step: i64,
    biased: i64,
    rectified: i64,
    lanes: i64,
):
    """A block of the result, of two vectors or of what is left of them."""
    if width >= 2 * lanes:
        both(a, apart, along, b, down, panel, c, step, k_size, bias, biased, rectified, lanes)  # noqa: F821
    elif width > lanes:
        rest = width - lanes
        half(a, apart, along, b, down, panel, c, step, k_size, bias, biased, rectified, rest)  # noqa: F821
    else:
        one(a, apart, along, b, down, panel, c, step, k_size, bias, biased, rectified, width)  # noqa: F821


def direct(
    a: Ptr[f32],
    b: Ptr[f32],
    c: Ptr[f32],
    bias: Ptr[f32],
    m: i64,
    n: i64,
    k_size: i64,
    apart: i64,
    along: i64,
    down: i64,
    panel: i64,
    step: i64,
    column: i64,
    biased: i64,
    rectified: i64,
    height: i64,
    lanes: i64,
    lo: i64,
    hi: i64,
):
    # Vector j of the rows of b begins at j * panel. If ``column`` is not 1 the result is written
    # element by element.
    spare = array(f32, height * lanes * 2)
    wide = 2 * lanes
    for j in range(0, n, wide):
        right = b + (j // lanes) * panel
        add = bias + j * biased
        left = n - j
        for task in range(lo, hi):
            i = min(task * height, m - height)
            rows = a + i * apart
            if column == 1:
                to = c + (i * step + j)
                columns(rows, right, to, add, left, k_size, apart, along, down, panel, step, biased,
                        rectified, lanes)  # fmt: skip
            else:
                columns(rows, right, spare, add, left, k_size, apart, along, down, panel, wide,
                        biased, rectified, lanes)  # fmt: skip
                for s in range(min(left, wide)):
                    for r in range(height):
                        c[(i + r) * step + (j + s) * column] = spare[r * wide + s]


def _square(name: str) -> str:
    """A square of columns as rows; what is beyond ``count`` columns repeats the last of them, what
    is beyond ``last`` elements is zero.
    """
    lanes = block()[0]
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    load = f"@llvm.masked.load.v{lanes}f32.p0"
    given = "ptr noalias %x, i64 %step, ptr noalias %to, i64 %count, i64 %last"
    lines = [
        f"declare {vector} {load}(ptr, i32, {mask}, {vector})",
        "declare i64 @llvm.smin.i64(i64, i64)",
        f"define private void @{name}({given}) noinline nounwind {{",
        *masking("%last", lanes),
        "  %end = sub i64 %count, 1",
    ]
    for r in range(lanes):
        lines += [
            f"  %m{r} = call i64 @llvm.smin.i64(i64 %end, i64 {r})",
            f"  %i{r} = mul i64 %step, %m{r}",
            f"  %p{r} = getelementptr float, ptr %x, i64 %i{r}",
            (
                f"  %v0.{r} = call {vector} {load}(ptr %p{r}, i32 4, {mask} %mask, "
                f"{vector} zeroinitializer)"
            ),
        ]
    exchanges, names = transposing([f"%v0.{r}" for r in range(lanes)])
    lines += exchanges
    for r in range(lanes):
        lines += [
            f"  %q{r} = getelementptr float, ptr %to, i64 {r * lanes}",
            f"  store {vector} {names[r]}, ptr %q{r}, align 4",
        ]
    return "\n".join([*lines, "  ret void", "}"])


def _dots(name: str, rows: int) -> str:
    """The products of rows of a matrix with one other row, each summed up."""
    lanes = block()[0]
    vector, mask = f"<{lanes} x float>", f"<{lanes} x i1>"
    fused, load = f"@llvm.fmuladd.v{lanes}f32", f"@llvm.masked.load.v{lanes}f32.p0"
    total = f"@llvm.vector.reduce.fadd.v{lanes}f32"
    given = "ptr noalias %a, i64 %apart, ptr noalias %b, ptr noalias %sums, i64 %k_size"
    lines = [
        f"declare {vector} {fused}({vector}, {vector}, {vector})",
        f"declare {vector} {load}(ptr, i32, {mask}, {vector})",
        f"declare float {total}(float, {vector})",
        f"define private void @{name}({given}) noinline nounwind {{",
        "entry:",
    ]
    for r in range(rows):
        lines += [
            f"  %i{r} = mul i64 %apart, {r}",
            f"  %a{r} = getelementptr float, ptr %a, i64 %i{r}",
        ]
    lines += [
        f"  %rest = srem i64 %k_size, {lanes}",
        "  %whole = sub i64 %k_size, %rest",
        "  %long = icmp sgt i64 %whole, 0",
        "  br i1 %long, label %loop, label %middle",
        "loop:",
        "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]",
        *(
            f"  %s{r} = phi {vector} [ zeroinitializer, %entry ], [ %t{r}, %loop ]"
            for r in range(rows)
        ),
        "  %pb = getelementptr float, ptr %b, i64 %k",
        f"  %y = load {vector}, ptr %pb, align 4",
    ]
    for r in range(rows):
        lines += [
            f"  %p{r} = getelementptr float, ptr %a{r}, i64 %k",
            f"  %x{r} = load {vector}, ptr %p{r}, align 4",
            f"  %t{r} = call {vector} {fused}({vector} %x{r}, {vector} %y, {vector} %s{r})",
        ]
    lines += [
        f"  %k1 = add i64 %k, {lanes}",
        "  %again = icmp slt i64 %k1, %whole",
        "  br i1 %again, label %loop, label %middle",
        "middle:",
        *(
            f"  %m{r} = phi {vector} [ zeroinitializer, %entry ], [ %t{r}, %loop ]"
            for r in range(rows)
        ),
        "  %some = icmp sgt i64 %rest, 0",
        "  br i1 %some, label %end, label %done",
        "end:",
        *masking("%rest", lanes),
        "  %qb = getelementptr float, ptr %b, i64 %whole",
        (f"  %z = call {vector} {load}(ptr %qb, i32 4, {mask} %mask, {vector} zeroinitializer)"),
    ]
    for r in range(rows):
        lines += [
            f"  %q{r} = getelementptr float, ptr %a{r}, i64 %whole",
            (
                f"  %w{r} = call {vector} {load}(ptr %q{r}, i32 4, {mask} %mask, "
                f"{vector} zeroinitializer)"
            ),
            f"  %u{r} = call {vector} {fused}({vector} %w{r}, {vector} %z, {vector} %m{r})",
        ]
    lines += [
        "  br label %done",
        "done:",
        *(f"  %e{r} = phi {vector} [ %m{r}, %middle ], [ %u{r}, %end ]" for r in range(rows)),
    ]
    for r in range(rows):
        lines += [
            f"  %f{r} = call reassoc float {total}(float 0.0, {vector} %e{r})",
            f"  %to{r} = getelementptr float, ptr %sums, i64 {r}",
            f"  store float %f{r}, ptr %to{r}, align 4",
        ]
    return "\n".join([*lines, "  ret void", "}"])


def by_dots(
    a: Ptr[f32],
    b: Ptr[f32],
    c: Ptr[f32],
    bias: Ptr[f32],
    m: i64,
    n: i64,
    k_size: i64,
    apart: i64,
    across: i64,
    step: i64,
    column: i64,
    down: i64,
    over: i64,
    biased: i64,
    rectified: i64,
    height: i64,
    lo: i64,
    hi: i64,
):
    # Rows of a times the few rows of b; the bias goes ``down`` or ``over`` the result.
    sums = array(f32, height)
    for task in range(lo, hi):
        i = min(task * height, m - height)
        for j in range(n):
            dots(a + i * apart, apart, b + j * across, sums, k_size)  # noqa: F821
            for r in range(height):
                value = sums[r]
                if biased != 0:
                    value = value + bias[(i + r) * down + j * over]
                if rectified != 0:
                    value = maximum(value, 0.0)
                c[(i + r) * step + j * column] = value


square = Assembly("square", ("ptr", "i64", "ptr", "i64", "i64"), lambda: _square("square"))


@kernel
def transpose_columns(
    x: Ptr[f32],
    to: Ptr[f32],
    n: i64,
    k_size: i64,
    step: i64,
    padded: i64,
    lanes: i64,
    lo: i64,
    hi: i64,
):
    for p in range(lo, hi):
        source = x + p * lanes * step
        target = to + p * lanes * padded
        for k in range(0, k_size, lanes):
            square(source + k, step, target + k * lanes, n - p * lanes, min(lanes, k_size - k))


def _transposed(b: Array) -> Array:
    """The rows of a matrix whose columns are in one piece, a vector of each after the other."""
    (k, n), lanes = b.shape, block()[0]
    panels, padded = -(-n // lanes), -(-k // lanes) * lanes
    to = buffers.empty(panels * padded * lanes, F32)
    code = transpose_columns.get(lanes=lanes)
    code(b, to, n, k, b.strides[1] // 4, padded, panels, 1)
    return to


@functools.cache
def _kernel(height: int) -> jit.Kernel:
    """The loop over blocks of so many rows."""
    parts = {
        "both": _outer("both", height, 2, False),
        "half": _outer("half", height, 2, True),
        "one": _outer("one", height, 1, True),
    }
    inner = KernelFunction(columns.origin, {**globals(), **parts})
    return jit.Kernel(KernelFunction(direct, {**globals(), "columns": inner}))


@functools.cache
def _dots_kernel(height: int) -> jit.Kernel:
    """The loop over blocks of so many rows, by dot products."""
    dots = Assembly("dots", ("ptr", "i64", "ptr", "ptr", "i64"), lambda: _dots("dots", height))
    return jit.Kernel(KernelFunction(by_dots, {**globals(), "dots": dots}))


@functools.cache
def _loaded(single: bool) -> dict[int, Callable]:
    """The loops for single rows, or for all other heights of blocks at once: a batch of another
    size compiles nothing.
    """
    lanes = block()[0]
    wanted = [h for h in heights() if (h == 1) is single]
    return {h: _kernel(h).get(height=h, lanes=lanes) for h in wanted}


@functools.cache
def available() -> bool:
    """Whether the processor reads and writes through masks."""
    return any(f in jit.engine().features for f in MASKED)


def most() -> int:
    """The multiplications up to which reading the right matrix in place is as fast as panels."""
    return 1 << 21 if block()[0] == 16 else 1 << 19


def heights() -> tuple[int, ...]:
    """The rows that a block can have."""
    return (1, 4, 12) if block()[1] == 12 else (1, 4, 6)


def height_for(m: int) -> int:
    """The rows of a block for a result of so many: what is computed twice or idle costs least."""
    fitting = [h for h in heights() if h <= m]
    # A low block makes less of each vector that is read.
    return min(fitting, key=lambda h: -(-m // h) * (h + 2))


def takes(a: Array, b: Array) -> bool:
    """Whether this product is for matrices of float32 in whole elements."""
    if a.dtype is not F32 or b.dtype is not F32 or not available():
        return False
    return bool(a.size and b.size) and not any(s & 3 for s in (*a.strides, *b.strides))


def matmul(
    a: Array, b: Array, out: Array, bias: Array | None = None, rectified: bool = False
) -> Array:
    """``out = a @ b + bias`` for matrices, or relu of it; out has its rows in one piece."""
    (m, k), n = a.shape, b.shape[1]
    lanes = block()[0]
    if min(m, n) <= FEW and k >= lanes and a.strides[1] == b.strides[0] == 4:
        return _by_dots(a, b.T, out, bias, rectified)
    step, column = n, 1
    if n < lanes < m and bias is None and a.strides[0] == 4 and m > n:
        # Vectors along the rows of the result would be short: they go down its columns.
        a, b, m, n, step, column = b.T, a.T, n, m, 1, n
    if b.strides[1] != 4 and n > 1 and b.strides[0] != 4:
        b = buffers.copied(b)
    if b.strides[1] == 4 or n == 1:
        right, down, panel = b, b.strides[0] // 4, lanes
    else:
        right, down, panel = _transposed(b), lanes, lanes * -(-k // lanes) * lanes
    height = height_for(m)
    code = _loaded(height == 1)[height]
    tasks = -(-m // height)
    code(
        *(a, right, out, out if bias is None else bias, m, n, k),
        *(a.strides[0] // 4, a.strides[1] // 4, down, panel, step, column),
        *(int(bias is not None), int(rectified), tasks),
        threads.how_many(tasks, max(1, GRAIN * tasks // (m * n * k))),
    )
    return out


def _by_dots(a: Array, b: Array, out: Array, bias: Array | None, rectified: bool) -> Array:
    """The same with ``b.T`` for rows in one piece, where one of the matrices has few of them."""
    (m, k), n = a.shape, len(b)
    step, column, down, over = n, 1, 0, 1
    if m < n:
        a, b, m, n, step, column, down, over = b, a, n, m, 1, n, 1, 0
    height = max(h for h in DOT_HEIGHTS if h <= m)
    tasks = -(-m // height)
    _dots_kernel(height).get(height=height)(
        *(a, b, out, out if bias is None else bias, m, n, k, a.strides[0] // 4, b.strides[0] // 4),
        *(step, column, down, over, int(bias is not None), int(rectified)),
        *(tasks, threads.how_many(tasks, max(1, READ * tasks // (m * k)))),
    )
    return out
