"""Products of float32 matrices in panels, for any processor that LLVM knows.

Both matrices are copied into panels as the innermost loop reads them, so that it does not matter
how they lie in memory: one of them by all threads before, the larger one in parts by the thread
that is about to use them. Threads take pieces of the result from a common list, so that one that
is disturbed holds up nobody; the bits of the result do not depend on how the list is cut.
"""

from __future__ import annotations

import functools

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, array, f32, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import block, by_columns, by_rows, take, transpose, transpose_rows
from weft.native.memory import buffers
from weft.native.memory.layout import plain

Array = np.ndarray
F32 = np.dtype(np.float32)
K_BLOCK = (
    256  # what convolutions do of the inner dimension at a time, so that it stays in the cache
)
K_LIMIT = 320  # what products do of it at most: in equal stretches, none of them short
ROWS = 132  # of the left matrix, that are copied at a time
COLUMNS = 512  # of the result in a piece
NARROW = 128  # the same where the right matrix is copied piece by piece
TOGETHER = 8  # panels that are copied at a time
WORTH = 1 << 20  # multiplications from which copying into panels pays
LEAST = 1 << 20  # multiplications that are worth being a piece
# How columns get into panels: they are there, rows in one piece, columns in one piece, any other
# way; LEANING is for columns in one piece and narrow panels, and writes a little beyond the last.
READY, ALONG, TRANSPOSED, ANY, LEANING = 0, 1, 2, 3, 4
# How the left matrix is read: where it lies, or from a copy.
BY_ROWS, BY_COLUMNS, ROWS_COPIED, COLUMNS_COPIED = 0, 1, 2, 3


@inline
def part_panel(
    x: Ptr[f32], to: Ptr[f32], whole: i64, width: i64, k_size: i64, step: i64, down: i64
):
    """The last columns as a panel that ends in zeros."""
    for i in range(width * k_size):
        to[i] = 0.0
    for k in range(k_size):
        for j in range(whole):
            to[k * width + j] = x[k * down + j * step]


@inline(outlined=True)
def panels(
    x: Ptr[f32],
    to: Ptr[f32],
    size: i64,
    k_size: i64,
    step: i64,
    down: i64,
    lanes: i64,
    width: i64,
    packing: i64,
    lo: i64,
    hi: i64,
):
    """Columns of x, ``width`` together, row after row."""
    full = max(lo, min(hi, size // width))
    if packing == ALONG:
        # Several panels at a time, so that whole lines of the cache are read.
        for p0 in range(lo, full, TOGETHER):
            for k in range(k_size):
                for panel in range(p0, min(p0 + TOGETHER, full)):
                    source = x + (k * down + panel * width)
                    target = to + (panel * k_size + k) * width
                    for j in range(width):
                        target[j] = source[j]
    else:
        for panel in range(lo, full):
            source = x + panel * width * step
            target = to + panel * width * k_size
            done = k_size - k_size % lanes if (packing == TRANSPOSED) | (packing == LEANING) else 0
            for k in range(0, done, lanes):
                if packing == LEANING:
                    transpose_rows(source + k, step, target + k * width, width)
                else:
                    for j in range(0, width, lanes):
                        transpose(source + (j * step + k), step, target + (k * width + j), width)
            for k in range(done, k_size):
                for j in range(width):
                    target[k * width + j] = source[k * down + j * step]
    for panel in range(full, hi):
        first = panel * width
        part_panel(x + first * step, to + first * k_size, size - first, width, k_size, step, down)


@kernel
def pack(
    x: Ptr[f32],
    to: Ptr[f32],
    size: i64,
    k_size: i64,
    step: i64,
    down: i64,
    lanes: i64,
    width: i64,
    packing: i64,
    lo: i64,
    hi: i64,
):
    panels(x, to, size, k_size, step, down, lanes, width, packing, lo, hi)


@inline
def product(
    a: Ptr[f32],
    apart: i64,
    b: Ptr[f32],
    o: Ptr[f32],
    under: i64,
    c: Ptr[f32],
    step: i64,
    part: i64,
    adds: i64,
    rows: i64,
    columns: i64,
    spare: Ptr[f32],
    height: i64,
    width: i64,
    left: i64,
):
    """A block of the result, of which some rows and columns may be beyond its end."""
    if rows >= height and columns >= width:
        if left == BY_ROWS:
            by_rows(a, apart, b, o, under, c, step, part, adds)
        else:
            by_columns(a, apart, b, o, under, c, step, part, adds)
    else:
        if left == BY_ROWS:
            by_rows(a, apart, b, spare, width, spare, width, part, 0)
        else:
            by_columns(a, apart, b, spare, width, spare, width, part, 0)
        for r in range(min(rows, height)):
            for s in range(min(columns, width)):
                if adds == 0:
                    c[r * step + s] = spare[r * width + s]
                else:
                    c[r * step + s] = o[r * under + s] + spare[r * width + s]


@inline
def piece(
    k0: i64,
    a: Ptr[f32],
    apart: i64,
    b: Ptr[f32],
    o: Ptr[f32],
    under: i64,
    c: Ptr[f32],
    step: i64,
    part: i64,
    more: i64,
    rows: i64,
    columns: i64,
    spare: Ptr[f32],
    height: i64,
    width: i64,
    left: i64,
):
    """The first stretch begins with what the result is added to, the others go on."""
    if k0 == 0:
        product(
            a, apart, b, o, under, c, step, part, more, rows, columns, spare, height, width, left
        )
    else:
        product(a, apart, b, c, step, c, step, part, 1, rows, columns, spare, height, width, left)


@inline
def pack_left(
    a: Ptr[f32],
    copy: Ptr[f32],
    edge: Ptr[f32],
    i0: i64,
    i1: i64,
    k0: i64,
    part: i64,
    m: i64,
    panel: i64,
    apart: i64,
    lanes: i64,
    height: i64,
    left: i64,
):
    """The panels i0 to i1 of the left matrix; of those that are read in place only a short last."""
    rest = m - (i1 - 1) * height
    size = m - i0 * height
    if left == ROWS_COPIED:
        source = a + (i0 * panel + k0)
        packing = LEANING if height <= lanes else ANY
        panels(source, copy, size, part, apart, 1, lanes, height, packing, 0, i1 - i0)
    elif left == COLUMNS_COPIED:
        source = a + (i0 * panel + k0 * apart)
        panels(source, copy, size, part, 1, apart, lanes, height, ALONG, 0, i1 - i0)
    elif rest < height:
        if left == BY_ROWS:
            source = a + ((i1 - 1) * panel + k0)
            part_panel(source, edge, rest, height, part, apart, 1)
        else:
            source = a + ((i1 - 1) * panel + k0 * apart)
            part_panel(source, edge, rest, height, part, 1, apart)


@inline
def panel_products(
    k0: i64,
    a: Ptr[f32],
    copy: Ptr[f32],
    edge: Ptr[f32],
    b: Ptr[f32],
    o: Ptr[f32],
    under: i64,
    c: Ptr[f32],
    step: i64,
    i0: i64,
    i1: i64,
    part: i64,
    more: i64,
    m: i64,
    columns: i64,
    panel: i64,
    apart: i64,
    spare: Ptr[f32],
    height: i64,
    width: i64,
    left: i64,
):
    """The panels i0 to i1 of the left matrix times one of the right."""
    for i in range(i0, i1):
        rows = m - i * height
        to = c + i * height * step
        old = o + i * height * under
        if left >= ROWS_COPIED:
            source = copy + (i - i0) * part * height
            piece(
                k0, source, height, b, old, under, to, step, part,
                more, rows, columns, spare, height, width, BY_COLUMNS,
            )  # fmt: skip
        elif rows < height:
            piece(
                k0, edge, height, b, old, under, to, step, part,
                more, rows, columns, spare, height, width, BY_COLUMNS,
            )  # fmt: skip
        else:
            source = a + (i * panel + (k0 if left == BY_ROWS else k0 * apart))
            piece(
                k0, source, apart, b, old, under, to, step, part,
                more, rows, columns, spare, height, width, left,
            )  # fmt: skip


@kernel
def tiles(
    a: Ptr[f32],
    b: Ptr[f32],
    c: Ptr[f32],
    o: Ptr[f32],
    at_a: Ptr[i64],
    at_b: Ptr[i64],
    scratch: Ptr[f32],
    tasks: Ptr[i64],
    m: i64,
    n: i64,
    k_size: i64,
    length: i64,
    panel: i64,
    apart: i64,
    across: i64,
    below: i64,
    step: i64,
    under: i64,
    more: i64,
    tall: i64,
    down: i64,
    wide: i64,
    total: i64,
    scratch_each: i64,
    lanes: i64,
    height: i64,
    width: i64,
    left: i64,
    right: i64,
    lo: i64,
    hi: i64,
):
    mine = array(i64, 1)
    spare = array(f32, height * width)
    edge = array(f32, height * K_LIMIT)
    copy_b = scratch + lo * scratch_each
    copy_a = copy_b + (scratch_each - (tall * height * K_LIMIT + lanes))
    high = (m + height - 1) // height
    long = (n + width - 1) // width
    take(tasks, mine)
    while mine[0] < total:
        which = mine[0] // (down * wide)
        i = mine[0] % down
        j = mine[0] // down % wide
        first = a + at_a[which]
        second = b + at_b[which]
        result = c + which * m * step
        j0 = long * j // wide
        j1 = long * (j + 1) // wide
        stop = high * (i + 1) // down
        for k0 in range(0, k_size, length):
            part = min(length, k_size - k0)
            if right != READY:
                source = second + (k0 * below + j0 * width * across)
                size = n - j0 * width
                panels(source, copy_b, size, part, across, below, lanes, width, right, 0, j1 - j0)
            for i0 in range(high * i // down, stop, tall):
                i1 = min(i0 + tall, stop)
                pack_left(
                    first, copy_a, edge, i0, i1, k0, part, m, panel, apart, lanes, height, left
                )
                for jp in range(j0, j1):
                    if right == READY:
                        bp = second + (jp * k_size + k0) * width
                    else:
                        bp = copy_b + (jp - j0) * part * width
                    at = jp * width
                    panel_products(
                        k0, first, copy_a, edge, bp, o + at, under, result + at, step, i0, i1,
                        part, more, m, n - at, panel, apart, spare, height, width, left,
                    )  # fmt: skip
        take(tasks, mine)


def ceil_div(a: int, b: int) -> int:
    """The least number of pieces of size b that hold a."""
    return -(-a // b)


def _packing(x: Array, width: int) -> int:
    """How the columns of a matrix get into panels."""
    down, step = x.strides
    if step == 4:
        return ALONG
    return TRANSPOSED if down == 4 and not width % block()[0] else ANY


def _packed(x: Array, width: int) -> Array:
    """The columns of x, ``width`` together, row after row."""
    k_size, size = x.shape
    down, step = (s // 4 for s in x.strides)
    count = ceil_div(size, width)
    to = buffers.empty(count * width * k_size, F32)
    code = pack.get(lanes=block()[0], width=width, packing=_packing(x, width))
    few = threads.how_many(count, max(1, 65536 // (width * k_size)))
    code(x, to, size, k_size, step, down, count, few)
    return to


def matmul(a: Array, b: Array, out: Array, add: bool = False, bias: Array | None = None) -> Array:
    """``out = a @ b + bias`` or, with ``add``, ``out += a @ b``; out has its rows in one piece."""
    (m, k_size), n = a.shape, b.shape[1]
    if not k_size:
        if not add:
            out[...] = 0.0 if bias is None else bias
        return out
    _, height, width = block()
    a, left, steps = _left(a, height)
    pieces = max(1, m * n * k_size // LEAST)
    right, apart = READY, (b.strides[1] // 4, b.strides[0] // 4)
    if n > m:
        right, down, wide = _packing(b, width), 1, min(pieces, ceil_div(n, NARROW))
        if left == COLUMNS_COPIED:
            a, left, steps = _packed(a.T, height), BY_COLUMNS, (height * k_size, height)
    else:
        b, down, wide = _packed(b, width), min(pieces, ceil_div(m, ROWS)), ceil_div(n, COLUMNS)
    old, under = (bias, 0) if bias is not None else (out, out.strides[0] // 4)
    more = int(add or bias is not None)
    where, cut = (_ZERO, _ZERO), (1, down, wide)
    _run((a, b, out, old), where, (m, n, k_size), (*steps, *apart), under, more, cut, left, right)
    return out


def stacked(a: Array, b: Array, out: Array) -> Array:
    """``out = a @ b`` for stacks of matrices, which broadcast; out is plain memory."""
    (m, k_size), n, stack = a.shape[-2:], b.shape[-1], out.shape[:-2]
    if not k_size or not out.size:
        out[...] = 0.0
        return out
    _, height, width = block()
    one, other = _one(a), _one(b)
    if 4 not in one.strides:
        a = plain(a)
        one = _one(a)
    _, left, steps = _left(one, height)
    if n <= NARROW:  # too few to pay for a copy
        left = BY_ROWS if left == ROWS_COPIED else BY_COLUMNS
    count = out.size // (m * n)
    # Matrices are cut if there are not enough of them for all threads.
    pieces = max(ceil_div(8 * threads.count(), count), ceil_div(n, 2 * NARROW))
    wide = max(1, min(pieces, ceil_div(n, width), m * n * k_size // LEAST))
    where = places(a.shape, a.strides, stack), places(b.shape, b.strides, stack)
    apart = other.strides[1] // 4, other.strides[0] // 4
    sizes, cut, right = (m, n, k_size), (count, 1, wide), _packing(other, width)
    _run((a, b, out, out), where, sizes, (*steps, *apart), 0, 0, cut, left, right)
    return out


def _left(a: Array, height: int) -> tuple[Array, int, tuple[int, int]]:
    """A left matrix, how it is copied, and how far apart its panels and its rows or columns are."""
    if 4 not in a.strides:
        a = plain(a)
    down, across = (s // 4 for s in a.strides)
    if across == 1:
        return a, ROWS_COPIED, (height * down, down)
    return a, COLUMNS_COPIED, (height, across)


def _one(x: Array) -> Array:
    """The first matrix of a stack."""
    return x[(0,) * (x.ndim - 2)]


@functools.lru_cache(512)
def places(shape: tuple[int, ...], strides: tuple[int, ...], stack: tuple[int, ...]) -> Array:
    """Where the matrices of a stack begin, in elements from the first one."""
    places = np.zeros(stack, np.int64)
    behind = len(stack) - len(shape) + 2
    for k, (size, step) in enumerate(zip(shape[:-2], strides[:-2], strict=True)):
        if size > 1:
            along = [1] * len(stack)
            along[behind + k] = size
            places += (np.arange(size) * (step // 4)).reshape(along)
    return places.reshape(-1)


def _run(
    arrays: tuple[Array, Array, Array, Array],
    where: tuple[Array, Array],
    sizes: tuple[int, int, int],
    steps: tuple[int, int, int, int],
    under: int,
    more: int,
    cut: tuple[int, int, int],
    left: int,
    right: int,
) -> None:
    """Let all threads work on some products, each cut down and across into pieces."""
    lanes, height, width = block()
    (_, n, k_size), (count, down, wide) = sizes, cut
    tall, columns = ceil_div(ROWS, height), ceil_div(ceil_div(n, width), wide) * width
    length = ceil_div(k_size, ceil_div(k_size, K_LIMIT))
    scratch_each = tall * height * K_LIMIT + lanes + (columns * K_LIMIT if right else 0)
    total = count * down * wide
    workers = min(threads.count(), total)
    tiles.get(lanes=lanes, height=height, width=width, left=left, right=right)(
        *(*arrays, *where, buffers.empty(workers * scratch_each, F32), buffers.zeros(1, np.int64)),
        *(*sizes, length, *steps, arrays[2].strides[-2] // 4, under, more),
        *(tall, down, wide, total, scratch_each, workers, workers),
    )


_ZERO = np.zeros(1, np.int64)


def takes(a: Array, b: Array) -> bool:
    """Whether packed products take this: float32, not small, steps of whole elements."""
    if a.dtype is not F32 or b.dtype is not F32 or buffers.small(a.size * b.shape[-1], WORTH):
        return False
    return not any(s & 3 for s in (*a.strides, *b.strides))
