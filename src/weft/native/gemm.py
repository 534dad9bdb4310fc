"""Products of float32 matrices in packed panels, for any processor that LLVM knows.

Both matrices are copied into panels as the innermost loop reads them, so that it does not matter
how they lie in memory. That loop keeps a block of the result in registers: six rows of two vectors,
or twelve where there are 32 registers.
"""

from __future__ import annotations

import functools

import numpy as np

from weft.native import jit, threads
from weft.native.compiler import FLOATS, SIZES, Assembly, Ptr, array, f32, i64
from weft.native.jit import kernel

Array = np.ndarray
F32 = np.dtype(np.float32)
DEEP = 256  # what of the inner dimension is done at a time, so that panels stay in the cache
ROWS = 72  # of the result, that a thread takes at a time
TOGETHER = 8  # panels that are copied at a time
WORTH = 1 << 20  # multiplications from which copying into panels pays


@functools.cache
def block(kind: str = "f32") -> tuple[int, int, int]:
    """The lanes of a vector, and the rows and columns of a block of the result."""
    features = jit.engine().features
    size = 64 if "+avx512f" in features else 32 if "+avx" in features else 16
    lanes = size // SIZES[kind]
    return lanes, 12 if size == 64 else 6, 2 * lanes


def _micro(name: str, kind: str) -> str:
    """LLVM code of ``c = a @ b`` or ``c += a @ b`` for one block and a stretch of panels."""
    lanes, rows, columns = block(kind)
    scalar, align = FLOATS[kind], SIZES[kind]
    vector, nought = f"<{lanes} x {scalar}>", f"<{lanes} x i32> zeroinitializer"
    fused = f"@llvm.fmuladd.v{lanes}{kind}"
    given = "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %step, i64 %deep, i64 %more"
    cells = [(r, h) for r in range(rows) for h in (0, 1)]
    lines = [
        f"declare {vector} {fused}({vector}, {vector}, {vector})",
        f"define private void @{name}({given}) noinline nounwind {{",
        "entry:",
        "  br label %loop",
        "loop:",
        "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]",
    ]
    for r, h in cells:
        start = "[ zeroinitializer, %entry ]"
        lines.append(f"  %s{r}.{h} = phi {vector} {start}, [ %t{r}.{h}, %loop ]")
    lines += [
        f"  %ka = mul i64 %k, {rows}",
        f"  %kb = mul i64 %k, {columns}",
        f"  %pb0 = getelementptr {scalar}, ptr %b, i64 %kb",
        f"  %b0 = load {vector}, ptr %pb0, align {align}",
        f"  %pb1 = getelementptr {scalar}, ptr %pb0, i64 {lanes}",
        f"  %b1 = load {vector}, ptr %pb1, align {align}",
        f"  %pa0 = getelementptr {scalar}, ptr %a, i64 %ka",
    ]
    for r in range(rows):
        if r:
            lines.append(f"  %pa{r} = getelementptr {scalar}, ptr %pa0, i64 {r}")
        lines += [
            f"  %x{r} = load {scalar}, ptr %pa{r}, align {align}",
            f"  %y{r} = insertelement {vector} poison, {scalar} %x{r}, i64 0",
            f"  %a{r} = shufflevector {vector} %y{r}, {vector} poison, {nought}",
        ]
        for h in (0, 1):
            lines.append(
                f"  %t{r}.{h} = call {vector} {fused}"
                f"({vector} %a{r}, {vector} %b{h}, {vector} %s{r}.{h})"
            )
    lines += [
        "  %k1 = add i64 %k, 1",
        "  %again = icmp slt i64 %k1, %deep",
        "  br i1 %again, label %loop, label %done",
        "done:",
        "  %adds = icmp ne i64 %more, 0",
        "  br i1 %adds, label %add, label %set",
    ]
    for way in ("add", "set"):
        lines.append(f"{way}:")
        for r, h in cells:
            at = f"%{way}{r}.{h}"
            lines += [
                f"  {at}.i = mul i64 %step, {r}",
                f"  {at}.j = add i64 {at}.i, {h * lanes}",
                f"  {at}.p = getelementptr {scalar}, ptr %c, i64 {at}.j",
            ]
            value = f"%t{r}.{h}"
            if way == "add":
                lines += [
                    f"  {at}.o = load {vector}, ptr {at}.p, align {align}",
                    f"  {at}.n = fadd {vector} {at}.o, {value}",
                ]
                value = f"{at}.n"
            lines.append(f"  store {vector} {value}, ptr {at}.p, align {align}")
        lines.append("  ret void")
    lines.append("}")
    return "\n".join(lines)


GIVEN = ("ptr", "ptr", "ptr", "i64", "i64", "i64")
micro = Assembly("micro", GIVEN, lambda: _micro("micro", "f32"))
micro64 = Assembly("micro64", GIVEN, lambda: _micro("micro64", "f64"))


@kernel
def pack(
    x: Ptr[f32],
    to: Ptr[f32],
    size: i64,
    deep: i64,
    step: i64,
    down: i64,
    width: i64,
    along: i64,
    lo: i64,
    hi: i64,
):
    start = lo
    if along:
        # Several panels at a time, so that whole lines of the cache are read.
        start = max(lo, min(hi, size // width))
        for p0 in range(lo, start, TOGETHER):
            p1 = min(p0 + TOGETHER, start)
            for k in range(deep):
                for panel in range(p0, p1):
                    source = x + (k * down + panel * width)
                    target = to + (panel * deep + k) * width
                    for j in range(width):
                        target[j] = source[j]
    for panel in range(start, hi):
        first = panel * width
        whole = min(width, size - first)
        source = x + first * step
        target = to + panel * width * deep
        if whole < width:
            for i in range(width * deep):
                target[i] = 0.0
            for k in range(deep):
                for j in range(whole):
                    target[k * width + j] = source[k * down + j * step]
        else:
            for k0 in range(0, deep, 16):
                k1 = min(k0 + 16, deep)
                for j in range(width):
                    for k in range(k0, k1):
                        target[k * width + j] = source[k * down + j * step]


@kernel
def tiles(
    a: Ptr[f32],
    b: Ptr[f32],
    c: Ptr[f32],
    m: i64,
    n: i64,
    deep: i64,
    step: i64,
    rows: i64,
    columns: i64,
    down: i64,
    more: i64,
    height: i64,
    width: i64,
    lo: i64,
    hi: i64,
):
    spare = array(f32, height * width)
    for task in range(lo, hi):
        i0 = (task % down) * rows
        j0 = (task // down) * columns
        i1 = min(m, i0 + rows)
        j1 = min(n, j0 + columns)
        k0 = 0
        while k0 < deep:
            part = min(DEEP, deep - k0)
            adds = more if k0 == 0 else 1
            for jp in range(j0 // width, (j1 + width - 1) // width):
                bp = b + (jp * deep + k0) * width
                for ip in range(i0 // height, (i1 + height - 1) // height):
                    ap = a + (ip * deep + k0) * height
                    if ip * height + height <= m and jp * width + width <= n:
                        micro(ap, bp, c + (ip * height * step + jp * width), step, part, adds)
                    else:
                        micro(ap, bp, spare, width, part, 0)
                        for r in range(min(height, m - ip * height)):
                            place = c + ((ip * height + r) * step + jp * width)
                            for s in range(min(width, n - jp * width)):
                                if adds == 0:
                                    place[s] = spare[r * width + s]
                                else:
                                    place[s] = place[s] + spare[r * width + s]
            k0 += part


def ceil_div(a: int, b: int) -> int:
    """The least number of pieces of size b that hold a."""
    return -(-a // b)


def _packed(x: Array, width: int) -> Array:
    """The columns of x, ``width`` together, row after row."""
    deep, size = x.shape
    down, step = (s // 4 for s in x.strides)
    panels = ceil_div(size, width)
    to = np.empty(panels * width * deep, F32)
    code = pack.get(width=width, along=int(step == 1))
    count = threads.how_many(panels, max(1, 65536 // (width * deep)))
    code(x, to, size, deep, step, down, panels, count)
    return to


def matmul(a: Array, b: Array, out: Array, add: bool = False) -> Array:
    """``out = a @ b`` or, with ``add``, ``out += a @ b``; out has its rows in one piece."""
    (m, deep), n = a.shape, b.shape[1]
    _, height, width = block()
    left, right = _packed(a.T, height), _packed(b, width)
    count = threads.count()
    # As many pieces of about ROWS as can be shared out evenly, cut across if there are too few.
    pieces = max(1, ceil_div(m, count * ROWS)) * count
    rows = ceil_div(ceil_div(m, pieces), height) * height
    down = ceil_div(m, rows)
    across = 1 if down >= count else ceil_div(count, down)
    columns = ceil_div(ceil_div(n, across), width) * width
    across = ceil_div(n, columns)
    tiles.get(height=height, width=width)(
        *(left, right, out),
        *(m, n, deep, out.strides[0] // 4, rows, columns, down, int(add)),
        down * across,
        min(count, down * across),
    )
    return out


def takes(a: Array, b: Array) -> bool:
    """Whether a product is for this way: float32, not small, steps of whole elements."""
    if a.dtype is not F32 or b.dtype is not F32 or a.size * b.shape[1] < WORTH:
        return False
    return not any(s & 3 for s in (*a.strides, *b.strides))
