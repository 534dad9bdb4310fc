"""Products of float32 matrices in panels, for any processor that LLVM knows.

The right matrix is packed into panels in the order in which the microkernel reads them, so its
layout does not matter: by all threads in advance, or, if it is the larger one, in parts by the
thread that is about to use them. A few rows of the left matrix at a time are multiplied with all
panels of a block, from the L1 cache, and each row of the result is written at once. They are read
in place; a left matrix without contiguous rows is packed as well. Threads take blocks of the result
from a shared queue, so that a delayed thread does not hold up the others; the bits of the result do
not depend on how the work is divided.
"""

from __future__ import annotations

import functools

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, array, f32, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import take, tile, tile_by_panels, tile_by_rows, transpose
from weft.native.memory import buffers

Array = np.ndarray
F32 = np.dtype(np.float32)
K_BLOCK = (
    256  # what convolutions do of the inner dimension at a time, so that it stays in the cache
)
K_LIMIT = 320  # the same for products, at most: in equal parts, none of them short
ROWS = 128  # of the left matrix, that are copied at a time
PIECE = 256  # rows of the result in a piece: each piece reads all panels of the right matrix
LOW = 64  # the same at least, where there would be fewer pieces than threads have use for
COLUMNS = 512  # of the result in a piece
NARROW = 128  # the same where the right matrix is copied piece by piece
TOGETHER = 8  # panels that are copied at a time
WORTH = 1 << 20  # multiplications from which packing pays
LEAST = 1 << 20  # multiplications that are worth a separate task
# How columns get into panels: they are there, rows in one piece, columns in one piece, any other
# way. The left matrix is the transpose of one whose columns get into panels, or is read IN_PLACE.
READY, ALONG, TRANSPOSED, ANY, IN_PLACE = 0, 1, 2, 3, 4


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
            done = k_size - k_size % lanes if packing == TRANSPOSED else 0
            for k in range(0, done, lanes):
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
def tile_product(
    a: Ptr[f32],
    apart: i64,
    b: Ptr[f32],
    o: Ptr[f32],
    under: i64,
    c: Ptr[f32],
    step: i64,
    part: i64,
    adds: i64,
    vectors: i64,
    left: i64,
):
    if left == IN_PLACE:
        tile_by_rows(a, apart, b, o, under, c, step, part, adds, vectors)
    else:
        tile_by_panels(a, apart, b, o, under, c, step, part, adds, vectors)


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
    skip: i64,
    rows: i64,
    columns: i64,
    spare: Ptr[f32],
    lanes: i64,
    height: i64,
    width: i64,
    left: i64,
):
    """A block of the result from row ``skip`` of a on; some rows and columns may be beyond its end.

    Those are computed in scratch memory, so nothing beyond the result is touched.
    """
    some = min(columns, width)
    vectors = (some + lanes - 1) // lanes
    if skip == 0 and rows >= height and some == vectors * lanes:
        tile_product(a, apart, b, o, under, c, step, part, adds, vectors, left)
    else:
        tile_product(a, apart, b, spare, width, spare, width, part, 0, vectors, left)
        for r in range(min(rows, height)):
            own = spare + (r + skip) * width
            for s in range(some):
                if adds == 0:
                    c[r * step + s] = own[s]
                else:
                    c[r * step + s] = o[r * under + s] + own[s]


@inline
def panel_products(
    k0: i64,
    a: Ptr[f32],
    apart: i64,
    b: Ptr[f32],
    o: Ptr[f32],
    under: i64,
    c: Ptr[f32],
    step: i64,
    j0: i64,
    j1: i64,
    between: i64,
    part: i64,
    more: i64,
    skip: i64,
    rows: i64,
    n: i64,
    spare: Ptr[f32],
    lanes: i64,
    height: i64,
    width: i64,
    left: i64,
):
    """One panel of the left matrix, which stays in the nearest cache, times those of the right.

    The first part starts from the value to accumulate into, the others continue.
    """
    for j in range(j0, j1):
        at = j * width
        panel = b + (j - j0) * between
        to = c + at
        if k0 == 0:
            product(
                a, apart, panel, o + at, under, to, step, part, more, skip, rows, n - at, spare,
                lanes, height, width, left,
            )  # fmt: skip
        else:
            product(
                a, apart, panel, to, step, to, step, part, 1, skip, rows, n - at, spare, lanes,
                height, width, left,
            )  # fmt: skip


@kernel
def tiles(
    a: Ptr[f32], b: Ptr[f32], c: Ptr[f32], o: Ptr[f32], at_a: Ptr[i64], at_b: Ptr[i64],
    scratch: Ptr[f32], tasks: Ptr[i64], m: i64, n: i64, k_size: i64, length: i64, apart: i64,
    along: i64, across: i64, below: i64, step: i64, under: i64, more: i64, tall: i64, down: i64,
    wide: i64, total: i64, scratch_each: i64, lanes: i64, height: i64, width: i64, left: i64,
    right: i64, lo: i64, hi: i64,
):  # fmt: skip
    mine = array(i64, 1)
    spare = array(f32, height * width)
    copy_b = scratch + lo * scratch_each
    copy_a = copy_b + (scratch_each - tall * height * K_LIMIT)
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
                if (left != READY) & (left != IN_PLACE):
                    source = first + (i0 * height * apart + k0 * along)
                    size = m - i0 * height
                    panels(source, copy_a, size, part, apart, along, lanes, height, left, 0,
                           i1 - i0)  # fmt: skip
                for ip in range(i0, i1):
                    row = ip * height
                    skip = 0
                    if left == IN_PLACE:
                        # The last rows are read together with some before them.
                        skip = max(row + height - m, 0)
                        ap = first + ((row - skip) * apart + k0)
                    elif left == READY:
                        ap = first + (row * k_size + k0 * height)
                    else:
                        ap = copy_a + (ip - i0) * part * height
                    if right == READY:
                        bp = second + (j0 * k_size + k0) * width
                        between = k_size * width
                    else:
                        bp = copy_b
                        between = part * width
                    panel_products(
                        k0, ap, apart, bp, o + row * under, under, result + row * step, step, j0,
                        j1, between, part, more, skip, m - row, n, spare, lanes, height, width,
                        left,
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
    return TRANSPOSED if down == 4 and not width % tile()[0] else ANY


def _reading(a: Array, height: int) -> int:
    """How a left matrix is read: where it is, if its rows are in one piece, or from panels."""
    return IN_PLACE if a.strides[1] == 4 and len(a) >= height else _packing(a.T, height)


def _packed(x: Array, width: int) -> Array:
    """The columns of x, ``width`` together, row after row."""
    k_size, size = x.shape
    down, step = (s // 4 for s in x.strides)
    count = ceil_div(size, width)
    to = buffers.empty(count * width * k_size, F32)
    code = pack.get(lanes=tile()[0], width=width, packing=_packing(x, width))
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
    _, height, width = tile()
    left, right = _reading(a, height), READY
    pieces = max(1, m * n * k_size // LEAST)
    if n > m:
        shares = min(threads.count(), ceil_div(n, width))
        right, down, wide = _packing(b, width), 1, min(pieces, max(ceil_div(n, NARROW), shares))
        if left == ALONG:
            left = READY
    else:
        down = max(ceil_div(m, PIECE), min(ceil_div(m, LOW), 2 * threads.count()))
        down, wide = min(pieces, down), ceil_div(n, COLUMNS)
    one, other = _packed(a.T, height) if left == READY else a, b if right else _packed(b, width)
    old, under = (bias, 0) if bias is not None else (out, out.strides[0] // 4)
    more = int(add or bias is not None)
    where, cut, steps = (_ZERO, _ZERO), (1, down, wide), (*_steps(a), *_steps(b.T))
    _run((one, other, out, old), where, (m, n, k_size), steps, under, more, cut, left, right)
    return out


def stacked(a: Array, b: Array, out: Array) -> Array:
    """``out = a @ b`` for stacks of matrices, which broadcast; out is plain memory."""
    (m, k_size), n, stack = a.shape[-2:], b.shape[-1], out.shape[:-2]
    if not k_size or not out.size:
        out[...] = 0.0
        return out
    _, height, width = tile()
    one, other = _one(a), _one(b)
    left, right = _reading(one, height), _packing(other, width)
    count = out.size // (m * n)
    # Matrices are cut if there are not enough of them for all threads.
    pieces = max(ceil_div(8 * threads.count(), count), ceil_div(n, 2 * NARROW))
    wide = max(1, min(pieces, ceil_div(n, width), m * n * k_size // LEAST))
    where = places(a.shape, a.strides, stack), places(b.shape, b.strides, stack)
    sizes, cut, steps = (m, n, k_size), (count, 1, wide), (*_steps(one), *_steps(other.T))
    _run((a, b, out, out), where, sizes, steps, 0, 0, cut, left, right)
    return out


def _steps(x: Array) -> tuple[int, int]:
    """How far apart rows are, and the elements of a row."""
    down, across = x.strides
    return down // 4, across // 4


def _one(x: Array) -> Array:
    """The first matrix of a stack."""
    return x[(0,) * (x.ndim - 2)]


@functools.lru_cache(512)
def places(shape: tuple[int, ...], strides: tuple[int, ...], stack: tuple[int, ...]) -> Array:
    """The offsets of the matrices of a stack, in elements from the first one."""
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
    """Run some products on all threads, each divided by rows and columns into tasks."""
    lanes, height, width = tile()
    (_, n, k_size), (count, down, wide) = sizes, cut
    tall, columns = ceil_div(ROWS, height), ceil_div(ceil_div(n, width), wide) * width
    length = ceil_div(k_size, ceil_div(k_size, K_LIMIT))
    scratch_each = tall * height * K_LIMIT + (columns * K_LIMIT if right else 0)
    total = count * down * wide
    workers = min(threads.count(), total)
    tiles.get(lanes=lanes, height=height, width=width, left=left, right=right)(
        *(*arrays, *where, buffers.empty(workers * scratch_each, F32), buffers.zeros(1, np.int64)),
        *(*sizes, length, *steps, arrays[2].strides[-2] // 4, under, more),
        *(tall, down, wide, total, scratch_each, workers, workers),
    )


_ZERO = np.zeros(1, np.int64)


def takes(a: Array, b: Array) -> bool:
    """Whether packed products support this: float32, not small, strides of whole elements."""
    if a.dtype is not F32 or b.dtype is not F32 or buffers.small(a.size * b.shape[-1], WORTH):
        return False
    return not any(s & 3 for s in (*a.strides, *b.strides))
