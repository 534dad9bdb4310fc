"""Products of small float32 matrices: without packing, without another library's threads, in one
call.

A block of the result stays in registers, as in ``blocks``, but the right matrix is read in place,
row by row, and the last columns through a mask. So there is no packing, which for small matrices
takes longer than the product. A right matrix with contiguous columns (the weight of a layer) is
transposed first. The last block of rows overlaps the one before it: rows that are computed twice
give the same result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from weft.native import threads
from weft.native.codegen import jit
from weft.native.codegen.compiler import (
    UNROLLED,
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
from weft.native.gemm.blocks import VectorCode, block, masking, transposing
from weft.native.memory import buffers

Array = np.ndarray
F32 = np.dtype(np.float32)
GRAIN = 1 << 18  # multiplications that are worth a thread
READ = 1 << 15  # the same for elements that are read, if each is used for only a few products
FEW = 4  # rows or columns of the result that make dot products the fastest
DOT_HEIGHTS = (1, 4)  # rows that a block of dot products can have
CHAINS = 8  # sums at a time that keep the multipliers busy
MASKED = ("+avx2", "+avx512f")  # instruction sets that read and write through masks


class _Outer(VectorCode):
    """Writes a function that computes rows of ``a @ b``, one or two vectors wide.

    Element (r, k) of a is ``r * apart + k * along`` from its first one; row k of b is ``k * down``
    from its first one, and its second vector ``over`` behind the first. The last vector has
    ``last`` lanes where it is masked. Few rows take several k at a time, each with its own sums.
    """

    def __init__(self, rows: int, vectors: int, masked: bool) -> None:
        super().__init__()
        self.rows, self.vectors, self.partial = rows, vectors, masked
        self.ways = max(1, CHAINS // (rows * vectors))
        self.maximum = f"@llvm.maximum.v{self.lanes}f32"  # a NaN stays one
        self.stored = f"@llvm.masked.store.v{self.lanes}f32.p0"
        # Rows any distance apart are reached from every third: addresses can double an index.
        self.bases = range(0, rows, 3)
        self.cells = [(r, h) for r in range(rows) for h in range(vectors)]

    def write(self, name: str) -> str:
        """The whole function, with what it calls."""
        vector, mask = self.vector, self.mask
        given = (
            "ptr noalias %a, i64 %apart, i64 %along, ptr noalias %b, i64 %down, i64 %over, "
            "ptr noalias %c, i64 %step, i64 %k_size, ptr noalias %bias, i64 %biased, "
            "i64 %rectified, i64 %last"
        )
        self.begin(
            name,
            given,
            f"declare {vector} {self.maximum}({vector}, {vector})",
            f"declare void {self.stored}({vector}, ptr, i32, {mask})",
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

    def pointers(self) -> list[str]:
        return [*(f"a{g}" for g in self.bases), *(f"b{h}" for h in range(self.vectors))]

    def start(self) -> None:
        """Where rows begin, and the mask."""
        for i in (1, 2):
            self.put(f"  %r{i}.m = mul i64 %apart, {i}")
            # LLVM must not derive it from another value, which would cost an addition each time.
            self.put(f'  %r{i} = call i64 asm "", "=r,0"(i64 %r{i}.m)')
        for g in self.bases:
            self.put(f"  %first.a{g}.m = mul i64 %apart, {g}")
            self.move(f"%first.a{g}.p", "%a", f"%first.a{g}.m")
            self.put(f'  %first.a{g} = call ptr asm "", "=r,0"(ptr %first.a{g}.p)')
        for h in range(self.vectors):
            self.move(f"%first.b{h}", "%b", "%over" if h else 0)
        self.put(
            *masking("%last", self.lanes),
            f"  %rest = srem i64 %k_size, {self.ways}",
            "  %whole = sub i64 %k_size, %rest",
            "  %long = icmp sgt i64 %whole, 0",
            "  br i1 %long, label %many, label %middle",
        )

    def read(self, to: str, base: str, h: int, by: int = 0) -> None:
        """Load a vector of a row of b or of the bias."""
        if self.partial and h == self.vectors - 1:
            self.load_masked(to, base, by, "%mask")
        else:
            self.load(to, base, by)

    def loop(self, loop: str, ways: int, before: str, after: str, end: str, begin: str) -> None:
        """A loop over the inner dimension, ``ways`` at a time."""
        self.put(f"{loop}:")
        self.phi(f"%{loop}.i", "i64", **{before: begin, loop: f"%{loop}.n"})
        origin = "first" if before == "entry" else "mid"
        for name in self.pointers():
            here = f"%{loop}.{name}"
            self.phi(here, "ptr", **{before: f"%{origin}.{name}", loop: f"{here}.n"})
        for u in range(ways):
            for r, h in self.cells:
                first = "zeroinitializer" if before == "entry" else f"%mid.s{r}.{h}"
                end_of_loop = f"%{loop}.t{u}.{r}.{h}"
                self.phi(f"%{loop}.s{u}.{r}.{h}", **{before: first, loop: end_of_loop})
        for u in range(ways):
            self.multiply(loop, u)
        for name in self.pointers():
            by = "%along" if name[0] == "a" else "%down"
            last = f"%{loop}.{name}" if ways == 1 else f"%{loop}.{name}.{ways - 1}"
            self.move(f"%{loop}.{name}.n", last, by)
        self.repeat(loop, ways, end, after, UNROLLED if loop == "each" else "")

    def multiply(self, loop: str, u: int) -> None:
        """One column of a times one row of b, added to the sums."""
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
                self.move(f"{x}.r", base, f"%r{r % 3}")
                base = f"{x}.r"
            self.load_splat(x, base, 0)
            for h in range(self.vectors):
                sums = f"%{loop}.s{u}.{r}.{h}"
                self.fma(f"%{loop}.t{u}.{r}.{h}", x, f"%{loop}.y{u}.{h}", sums)

    def join(self, name: str, loop: str, ways: int, before: str) -> None:
        """After the first loop, or if it was skipped: combine all its sums."""
        self.put("middle:")
        self.phi(f"%{name}.k", "i64", **{before: "0", loop: "%whole"})
        for at in self.pointers():
            self.phi(f"%{name}.{at}", "ptr", **{before: f"%first.{at}", loop: f"%{loop}.{at}.n"})
        for u in range(ways):
            for r, h in self.cells:
                to = f"%{name}.s{r}.{h}" if ways == 1 else f"%{name}.p{u}.{r}.{h}"
                self.phi(to, **{before: "zeroinitializer", loop: f"%{loop}.t{u}.{r}.{h}"})
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
            rest = {"each": f"%each.t0.{r}.{h}"} if self.ways > 1 else {}
            self.phi(f"%t{r}.{h}", middle=f"%mid.s{r}.{h}", **rest)
        self.put(
            "  %adds = icmp ne i64 %biased, 0", "  br i1 %adds, label %add, label %sum", "add:"
        )
        for h in range(self.vectors):
            self.read(f"%bias{h}", "%bias", h, h * self.lanes)
        for r, h in self.cells:
            self.put(f"  %u{r}.{h} = fadd {self.vector} %t{r}.{h}, %bias{h}")
        self.put("  br label %sum", "sum:")
        for r, h in self.cells:
            self.phi(f"%v{r}.{h}", done=f"%t{r}.{h}", add=f"%u{r}.{h}")
        self.put(
            "  %cuts = icmp ne i64 %rectified, 0", "  br i1 %cuts, label %cut, label %set", "cut:"
        )
        for r, h in self.cells:
            given = f"{self.vector} %v{r}.{h}, {self.vector} zeroinitializer"
            self.put(f"  %x{r}.{h} = call {self.vector} {self.maximum}({given})")
        self.put("  br label %set", "set:")
        for r, h in self.cells:
            self.phi(f"%w{r}.{h}", sum=f"%v{r}.{h}", cut=f"%x{r}.{h}")
        for r, h in self.cells:
            at, value = f"%to{r}.{h}", f"{self.vector} %w{r}.{h}"
            self.put(
                f"  {at}.i = mul i64 %step, {r}", f"  {at}.j = add i64 {at}.i, {h * self.lanes}"
            )
            self.move(at, "%c", f"{at}.j")
            if self.partial and h == self.vectors - 1:
                given = f"{value}, ptr {at}, i32 4, {self.mask} %mask"
                self.put(f"  call void {self.stored}({given})")
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
    code = VectorCode()
    given = "ptr noalias %x, i64 %step, ptr noalias %to, i64 %count, i64 %last"
    code.begin(name, given, "declare i64 @llvm.smin.i64(i64, i64)")
    code.put(*masking("%last", code.lanes), "  %end = sub i64 %count, 1")
    for r in range(code.lanes):
        code.put(
            f"  %m{r} = call i64 @llvm.smin.i64(i64 %end, i64 {r})",
            f"  %i{r} = mul i64 %step, %m{r}",
        )
        code.load_masked(f"%v0.{r}", "%x", f"%i{r}", "%mask")
    exchanges, names = transposing([f"%v0.{r}" for r in range(code.lanes)])
    code.put(*exchanges)
    for r in range(code.lanes):
        code.store(names[r], "%to", r * code.lanes)
    return code.text()


def _dots(name: str, rows: int) -> str:
    """The products of rows of a matrix with one other row, each summed up."""
    code = VectorCode()
    total = f"@llvm.vector.reduce.fadd.v{code.lanes}f32"
    given = "ptr noalias %a, i64 %apart, ptr noalias %b, ptr noalias %sums, i64 %k_size"
    code.begin(name, given, f"declare float {total}(float, {code.vector})")
    for r in range(rows):
        code.put(f"  %i{r} = mul i64 %apart, {r}")
        code.move(f"%a{r}", "%a", f"%i{r}")
    lines, noughts = [f"%a{r}" for r in range(rows)], ["zeroinitializer"] * rows
    for r, found in enumerate(code.products("%b", lines, noughts, "%k_size")):
        code.put(f"  %f{r} = call reassoc float {total}(float 0.0, {code.vector} {found})")
        code.move(f"%to{r}", "%sums", r)
        code.put(f"  store float %f{r}, ptr %to{r}, align 4")
    return code.text()


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
    """The multiplications up to which reading the right matrix in place is as fast as packing."""
    return 1 << 21 if block()[0] == 16 else 1 << 19


def heights() -> tuple[int, ...]:
    """The rows that a block can have.

    Eight keep the multipliers as busy as twelve, and more often divide what a thread computes.
    """
    return (1, 4, 8) if block()[1] == 12 else (1, 4, 6)


def height_for(m: int) -> int:
    """The rows of a block for a result of so many, which minimise redundant and idle work."""
    fitting = [h for h in heights() if h <= m]
    # A block of few rows reuses each loaded vector less.
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
