"""Reductions over any dimensions.

An array is seen as (outer, reduced, inner). With ``inner == 1`` each row is summed in blocks of
fixed size, whose sums are added in float64; otherwise blocks of rows are added into one another.
Blocks depend on the shape alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import (
    Function,
    Ptr,
    T,
    U,
    array,
    f64,
    i64,
    inline,
    maximum,
    minimum,
    sqrt,
)
from weft.native.codegen.jit import Kernel, kernel
from weft.native.codegen.whole import EntrySpec
from weft.native.loops import sums
from weft.native.loops.movement import to_copy
from weft.native.loops.turning import SHORT, TOGETHER, turn
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray
b1 = Any  # a mask, for annotations

# Elements that are worth a thread, and below which NumPy is as fast.
GRAIN = 32768
SMALL = 8192
# Elements summed in their own type, elements of a part of a long row.
BLOCK = 1024
CHUNK = 16384
# Rows that are added into one another, and columns at a time.
ROWS = 256
TILE = 1024
PICK_TILE = PICK_BLOCK = 256
# Variances of float32 below this may have lost squares to underflow.
FAINT = 1e-30
# Fewer columns than this are taken several rows at a time.
NARROW = 64


# --- what is done to elements ------------------------------------------------------------


@inline(reassociate=True)
def _add(a: T, b: T) -> T:
    return a + b


@inline
def _larger(a: T, b: T) -> T:
    return maximum(a, b)


@inline
def _smaller(a: T, b: T) -> T:
    return minimum(a, b)


@inline
def _above(a: T, b: T) -> T:
    return a > b or (a != a and b == b)


@inline
def _under(a: T, b: T) -> T:
    return a < b or (a != a and b == b)


@inline
def _same(v: T, centre: T) -> T:
    return v


@inline(reassociate=True)
def _square(v: T, centre: T) -> T:
    return v * v


@inline
def gap(v: T, centre: T) -> T:
    return v - centre  # on its own, so that no sum is taken before the difference


@inline(reassociate=True)
def _deviation(v: T, centre: T) -> T:
    d = gap(v, centre)
    return d * d


@inline
def _size(v: T, centre: T) -> T:
    return abs(v)


@inline
def _true(v: T, centre: T) -> T:
    return T(1.0) if v != 0.0 else T(0.0)


@inline
def _false(v: T, centre: T) -> T:
    return T(1.0) if v == 0.0 else T(0.0)


join, term, beats, START = (
    _add,
    _same,
    _above,
    0.0,
)  # what the kernels below are made with, unless told


# --- kernels -----------------------------------------------------------------------------


@kernel(reassociate=True)
def _rows(
    x: Ptr[T],
    centre: Ptr[T],
    y: Ptr[U],
    n: i64,
    size: i64,
    chunks: i64,
    by: f64,
    lo: i64,
    hi: i64,
) -> None:
    for item in range(lo, hi):
        row = item // chunks
        first = (item % chunks) * size
        count = min(size, n - first)
        p = x + (row * n + first)
        c = centre[row]
        total = f64(START)
        for b in range(0, count, BLOCK):
            q = p + b
            part = T(START)
            for i in range(min(BLOCK, count - b)):
                part = join(part, term(q[i], c))
            total = join(total, f64(part))
        y[item] = total / by


@kernel(reassociate=True)
def _columns(
    x: Ptr[T],
    centre: Ptr[T],
    y: Ptr[T],
    r: i64,
    k: i64,
    blocks: i64,
    tiles: i64,
    by: T,
    lo: i64,
    hi: i64,
) -> None:
    for item in range(lo, hi):
        rest = item // tiles
        left = (item % tiles) * TILE
        width = min(TILE, k - left)
        outer = rest // blocks
        top = (rest % blocks) * ROWS
        count = min(ROWS, r - top)
        p = x + ((outer * r + top) * k + left)
        m = centre + (outer * k + left)
        q = y + (rest * k + left)
        for c in range(width):
            q[c] = term(p[c], m[c])
        i = 1
        while i + 4 <= count:
            p0 = p + i * k
            p1 = p0 + k
            p2 = p1 + k
            p3 = p2 + k
            for c in range(width):
                above = join(term(p0[c], m[c]), term(p1[c], m[c]))
                below = join(term(p2[c], m[c]), term(p3[c], m[c]))
                q[c] = join(q[c], join(above, below))
            i += 4
        while i < count:
            p0 = p + i * k
            for c in range(width):
                q[c] = join(q[c], term(p0[c], m[c]))
            i += 1
        if by != 1.0:
            for c in range(width):
                q[c] = q[c] / by


@kernel(reassociate=True)
def _row_deviations(x: Ptr[T], y: Ptr[T], n: i64, freedom: f64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        c = T(sum_of(p, n) / f64(n))
        # What the rounding of the mean added to the squares is taken off again.
        gap = gaps_of(p, c, n)
        total = squares_of(p, c, n) - gap * gap / f64(n)
        total = 0.0 if total < 0.0 else total
        y[row] = total / freedom


@kernel
def _pick_rows(x: Ptr[T], values: Ptr[T], places: Ptr[i64], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        p = x + row * n
        i = 0
        best = T(START)
        for b in range(0, n, PICK_BLOCK):
            q = p + b
            part = T(START)
            for j in range(min(PICK_BLOCK, n - b)):
                part = join(part, q[j])
            if beats(part, best):
                best = part
                i = b
        while p[i] != best and p[i] == p[i]:
            i += 1
        values[row] = p[i]
        places[row] = i


@inline
def _pick_over(p: Ptr[T], q: Ptr[T], w: Ptr[i64], r: i64, k: i64, width: i64) -> None:
    """The chosen elements of columns and their places."""
    for c in range(width):
        q[c] = p[c]
        w[c] = 0
    for i in range(1, r):
        p0 = p + i * k
        for c in range(width):
            take = beats(p0[c], q[c])
            q[c] = p0[c] if take else q[c]
            w[c] = i if take else w[c]


@kernel
def _pick_short(
    x: Ptr[T], values: Ptr[T], places: Ptr[i64], n: i64, rows: i64, lo: i64, hi: i64
) -> None:
    columns = array(T, SHORT * TOGETHER)
    for item in range(lo, hi):
        first = item * TOGETHER
        count = min(TOGETHER, rows - first)
        turn(x + first * n, columns, n, count)
        _pick_over(columns, values + first, places + first, n, TOGETHER, count)


@kernel
def _pick_columns(
    x: Ptr[T],
    values: Ptr[T],
    places: Ptr[i64],
    r: i64,
    k: i64,
    tiles: i64,
    lo: i64,
    hi: i64,
) -> None:
    for item in range(lo, hi):
        outer = item // tiles
        left = (item % tiles) * PICK_TILE
        width = min(PICK_TILE, k - left)
        at = outer * k + left
        _pick_over(x + (outer * r * k + left), values + at, places + at, r, k, width)


@inline(reassociate=True)
def sum_of(x: Ptr[T], n: i64) -> f64:
    """The sum of n elements."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        q = x + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            part += q[i]
        total += f64(part)
    return total


@inline(reassociate=True)
def gaps_of(x: Ptr[T], centre: T, n: i64) -> f64:
    """The sum of the distances of n elements from a centre, with their signs."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        q = x + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            part += gap(q[i], centre)
        total += f64(part)
    return total


@inline(reassociate=True)
def squares_of(x: Ptr[T], centre: T, n: i64) -> f64:
    """The sum of the squared distances of n elements from a centre."""
    total = f64(0.0)
    for b in range(0, n, BLOCK):
        q = x + b
        part = T(0.0)
        for i in range(min(BLOCK, n - b)):
            part += _deviation(q[i], centre)
        total += f64(part)
    return total


def _renamed(function: Function, names: dict[str, Any]) -> Function:
    """A function like another, with other meanings of names in it."""
    function = copy.copy(function)
    function.scope = {**function.scope, **names}
    return function


def made(template: Kernel, **names: Any) -> Kernel:
    """A kernel like another, with other functions under the names in it."""
    return Kernel(_renamed(template.function, names))


class _Kind:
    """A kind of reduction: its kernels for the first step over the data and for later ones."""

    def __init__(self, join: Any, term: Any = _same, start: float = 0.0) -> None:
        later = {"join": join, "START": start}
        self.rows = made(_rows, term=term, **later)
        self.columns = made(_columns, term=term, **later)
        self.later = self if term is _same else _Kind(join, start=start)


SUM = _Kind(_add)
SQUARES = _Kind(_add, _square)
GAPS = _Kind(_add, gap)
DEVIATIONS = _Kind(_add, _deviation)
SIZES = _Kind(_add, _size)
TRUE, FALSE = _Kind(_add, _true), _Kind(_add, _false)
LARGEST = _Kind(_larger, start=-np.inf)
SMALLEST = _Kind(_smaller, start=np.inf)


class _Pick:
    """A kind of choice of one element: by the largest or by the smallest value."""

    def __init__(self, kind: _Kind, join: Any, beats: Any, start: float, name: str) -> None:
        over = _renamed(_pick_over, {"beats": beats})
        names = {"join": join, "beats": beats, "START": start, "_pick_over": over}
        self.kind, self.place_of = kind, getattr(np, name)
        self.rows, self.columns = made(_pick_rows, **names), made(_pick_columns, **names)
        self.short = made(_pick_short, **names)


PICK_LARGEST = _Pick(LARGEST, _larger, _above, -np.inf, "argmax")
PICK_SMALLEST = _Pick(SMALLEST, _smaller, _under, np.inf, "argmin")


@kernel
def _above_zero(x: Ptr[T], y: Ptr[b1], negated: i64, lo: i64, hi: i64) -> None:
    for i in range(lo, hi):
        y[i] = x[i] == 0.0 if negated else x[i] > 0.0


@kernel
def _roots(x: Ptr[T], lo: i64, hi: i64) -> None:
    for i in range(lo, hi):
        x[i] = sqrt(x[i])


@kernel
def _less_gaps(x: Ptr[T], gap: Ptr[T], n: f64, freedom: f64, lo: i64, hi: i64) -> None:
    for i in range(lo, hi):
        total = f64(x[i]) - n * (f64(gap[i]) * f64(gap[i]))
        total = 0.0 if total < 0.0 else total
        x[i] = total / freedom


def _flat(kernel: Kernel, x: ndarray, *more: Any, **consts: Any) -> None:
    """Run over all elements of an array in one piece."""
    many = threads.how_many(x.size, GRAIN)
    kernel.get(FLOATS[x.dtype], **consts)(x, *more, x.size, many)


# --- shapes ------------------------------------------------------------------------------


@functools.lru_cache(512)
def steps(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    """The shapes (outer, reduced, inner) of the steps of a reduction, first step first."""
    groups: list[list[int]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        reduced = int(axis in axes)
        if groups and groups[-1][1] == reduced:
            groups[-1][0] *= size
        else:
            groups.append([size, reduced])
    found, inner = [], 1
    for at in range(len(groups) - 1, -1, -1):
        size, reduced = groups[at]
        if reduced:
            found.append((prod(g[0] for g in groups[:at]), size, inner))
        else:
            inner *= size
    return tuple(found)


@functools.lru_cache(512)
def result_shape(shape: tuple[int, ...], axes: tuple[int, ...], keepdims: bool) -> tuple[int, ...]:
    """The shape of a reduced array."""
    if keepdims:
        return tuple(1 if d in axes else n for d, n in enumerate(shape))
    return tuple(n for d, n in enumerate(shape) if d not in axes)


def valid(axes: tuple[int, ...], rank: int) -> bool:
    """Whether axes are different dimensions of an array of a rank, none counted from the end."""
    return all(0 <= a < rank for a in axes) and len(set(axes)) == len(axes)


def in_memory_order(x: ndarray, axes: tuple[int, ...]) -> tuple[ndarray, tuple[int, ...], Any]:
    """An array without gaps as its memory lies, its axes there, and how to turn results back."""
    if x.flags.c_contiguous and x.flags.aligned:
        return x, axes, None
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]) if x.shape[d] > 1 else 0)
    transposed = x.transpose(order)
    if not (transposed.flags.c_contiguous and x.flags.aligned):
        return plain(x), axes, None
    place = {axis: k for k, axis in enumerate(order)}
    return transposed, tuple(sorted(place[a] for a in axes)), tuple(place[d] for d in range(x.ndim))


# --- running -----------------------------------------------------------------------------

# A step is a function of the array, of what to compare it with, and of an array to fill, flat.
Step = Callable[[ndarray, ndarray, ndarray], None]


def _rows_step(kind: _Kind, d: str, rows: int, n: int, by: float) -> Step:
    many, grain = threads.how_many, max(1, GRAIN // n)
    if rows < 16 and n >= 2 * CHUNK:
        return _long_rows_step(kind, d, rows, n, by)
    if by == 1.0:
        plainly = kind.rows.get(d, d, chunks=1, by=1.0)
        return lambda x, centre, out: plainly(x, centre, out, n, n, rows, many(rows, grain))
    run = kind.rows.get(d, d, chunks=1)
    return lambda x, centre, out: run(x, centre, out, n, n, by, rows, many(rows, grain))


def _long_rows_step(kind: _Kind, d: str, rows: int, n: int, by: float) -> Step:
    """Few long rows: parts of them, whose results are rows to reduce again."""
    chunks = -(-n // CHUNK)
    over = rows * chunks
    first, second = kind.rows.get(d, "f64", by=1.0), kind.later.rows.get("f64", d, chunks=1)

    def run(x: ndarray, centre: ndarray, out: ndarray) -> None:
        parts = buffers.empty(over, np.float64)
        first(x, centre, parts, n, CHUNK, chunks, over, threads.how_many(over, GRAIN // CHUNK))
        second(parts, parts, out, chunks, chunks, by, rows, 1)

    return run


def _columns_step(kind: _Kind, d: str, outer: int, r: int, k: int, by: float) -> Step:
    if outer == 1 and k < NARROW and r >= 16 * NARROW:
        return _narrow_step(kind, d, r, k, by)
    blocks, tiles = -(-r // ROWS), -(-k // TILE)
    over, grain = outer * blocks * tiles, max(1, GRAIN // (min(r, ROWS) * min(k, TILE)))
    divisor = by if blocks == 1 else 1.0
    native, many = kind.columns.get(d), threads.how_many

    def run(x: ndarray, centre: ndarray, out: ndarray) -> None:
        native(x, centre, out, r, k, blocks, tiles, divisor, over, many(over, grain))

    if blocks == 1:
        return run
    second = _columns_step(kind.later, d, outer, blocks, k, by)

    def run_both(x: ndarray, centre: ndarray, out: ndarray) -> None:
        parts = buffers.empty(outer * blocks * k, x.dtype)
        run(x, centre, parts)
        second(parts, parts, out)

    return run_both


def _narrow_step(kind: _Kind, d: str, r: int, k: int, by: float) -> Step:
    """Few columns: several rows are taken as one, and their parts added in the end."""
    together = 4 * NARROW // k
    groups, rest = divmod(r, together)
    main = _columns_step(kind, d, 1, groups, together * k, 1.0)
    tail = _columns_step(kind, d, 1, rest, k, 1.0) if rest else None
    last = _columns_step(kind.later, d, 1, together + bool(rest), k, by)

    def run(x: ndarray, centre: ndarray, out: ndarray) -> None:
        alone = centre is x
        x = x.reshape(-1)
        parts = buffers.empty((together + bool(rest)) * k, x.dtype)
        main(x, x if alone else np.tile(centre.reshape(-1), together), parts)
        if tail is not None:
            over = x[(r - rest) * k :]
            tail(over, over if alone else centre, parts[together * k :])
        last(parts, parts, out)

    return run


@functools.lru_cache(512)
def step(kind: _Kind, d: str, shape: tuple[int, int, int], by: float = 1.0) -> Step:
    """The way to reduce (outer, reduced, inner) to (outer, inner)."""
    outer, r, k = shape
    if k == 1:
        return _rows_step(kind, d, outer, r, by)
    return _columns_step(kind, d, outer, r, k, by)


@functools.lru_cache(512)
def _plan(
    kind: _Kind,
    dtype: np.dtype,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    keepdims: bool,
    mean: bool,
) -> Callable[[ndarray], ndarray] | None:
    """The way to reduce arrays of a shape that lie in row-major order."""
    found, d = steps(shape, axes), FLOATS.get(dtype)
    if not found or d is None or not prod(shape) or not valid(axes, len(shape)):
        return None
    by = float(prod(s[1] for s in found)) if mean else 1.0
    made, final = [], result_shape(shape, axes, keepdims)
    for number, sizes in enumerate(found):
        last = number == len(found) - 1
        made.append(step(kind if number == 0 else kind.later, d, sizes, by if last else 1.0))
    if len(made) == 1:
        only, empty = made[0], buffers.empty

        def run(x: ndarray) -> ndarray:
            out = empty(final, dtype)
            only(x, x, out)
            return out

        return run

    def run_all(x: ndarray) -> ndarray:
        for one, (outer, _, k) in zip(made, found, strict=True):
            out = buffers.empty(outer * k, dtype)
            one(x, x, out)
            x = out
        return x.reshape(final)

    return run_all


def _reduced(
    kind: _Kind, x: ndarray, axes: tuple[int, ...], keepdims: bool, mean: bool = False
) -> ndarray | None:
    """A reduction of a float array, or None where NumPy is as good."""
    if buffers.small(x.size, SMALL):
        return None
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        plan = _plan(kind, x.dtype, x.shape, axes, keepdims, mean)
        return None if plan is None else plan(x)
    if x.dtype not in FLOATS or not valid(axes, x.ndim):
        return None
    if repeats(x):
        return _sum_of_repeated(x, axes, keepdims, mean) if kind is SUM else None
    transposed, places, back = in_memory_order(x, axes)
    plan = _plan(kind, transposed.dtype, transposed.shape, places, True, mean)
    if plan is None:
        return None
    out = plan(transposed)
    return (out if back is None else out.transpose(back)).reshape(
        result_shape(x.shape, axes, keepdims)
    )


def repeats(x: ndarray) -> bool:
    """Whether elements stand for many, so that a copy would take more memory than the array."""
    return 0 in x.strides and any(s == 0 and n > 1 for s, n in zip(x.strides, x.shape, strict=True))


def _sum_of_repeated(
    x: ndarray, axes: tuple[int, ...], keepdims: bool, mean: bool
) -> ndarray | None:
    """A sum in which what is repeated is multiplied."""
    index = [slice(1) if x.strides[d] == 0 and d in axes else slice(None) for d in range(x.ndim)]
    once = x[tuple(index)]
    if repeats(once):
        return None
    total = _reduced(SUM, once, axes, keepdims, mean)
    if total is None:
        total = np.asarray(np.add.reduce(once, axis=axes, keepdims=keepdims))
        total = total / x.dtype.type(prod(once.shape[d] for d in axes)) if mean else total
    return total if mean else np.asarray(total * x.dtype.type(x.size // once.size))


# --- the ops -----------------------------------------------------------------------------


@kernel
def _integer_rows(x: Ptr[i64], y: Ptr[i64], n: i64, lo: i64, hi: i64) -> None:
    for row in range(lo, hi):
        total = i64(0)
        for i in range(n):
            total += x[row * n + i]
        y[row] = total


def _integer_sum(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray:
    """The same of whole numbers, for plans: NumPy is as fast."""
    rows = plain(x.transpose(*(d for d in range(x.ndim) if d not in dim), *dim))
    out = buffers.empty(result_shape(x.shape, dim, keepdim), x.dtype)
    n = x.size // max(out.size, 1)
    _integer_rows.get()(rows, out, n, out.size, threads.how_many(out.size, max(1, GRAIN // n)))
    return out


def sum_over(x: ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> ndarray | None:
    """The sum over some dimensions."""
    if buffers.PLANNERS and buffers.planner() is not None and x.dtype == np.int64:
        return _integer_sum(x, dim, keepdim) if x.size and valid(dim, x.ndim) else None
    if buffers.small(x.size, SMALL):
        return None if keepdim else sums.small(x, dim, False)
    return _reduced(SUM, x, dim, keepdim)


def sum_to(x: ndarray, shape: tuple[int, ...]) -> ndarray | None:
    """The sum over the dimensions along which a shape was repeated to that of an array."""
    lead = x.ndim - len(shape)
    dim = (*range(lead), *(lead + i for i, n in enumerate(shape) if n == 1 != x.shape[lead + i]))
    out = _reduced(SUM, x, dim, True)
    return None if out is None else out.reshape(shape)


def mean_over(x: ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> ndarray | None:
    """The mean over some dimensions."""
    if buffers.small(x.size, SMALL):
        return None if keepdim else sums.small(x, dim, True)
    return _reduced(SUM, x, dim, keepdim, mean=True)


def amax(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The maximum over some dimensions; NaN wins."""
    return _reduced(LARGEST, x, dim, keepdim)


def amin(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The minimum over some dimensions; NaN wins."""
    return _reduced(SMALLEST, x, dim, keepdim)


def max_of_all(x: ndarray) -> ndarray | None:
    """The largest of all elements; NaN wins."""
    return _reduced(LARGEST, x, tuple(range(x.ndim)), False)


def min_of_all(x: ndarray) -> ndarray | None:
    """The smallest of all elements; NaN wins."""
    return _reduced(SMALLEST, x, tuple(range(x.ndim)), False)


def any_over(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """Whether any element over some dimensions is not zero."""
    found = _reduced(TRUE, x, dim, keepdim)
    return None if found is None else _as_mask(found, 0)


def all_over(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """Whether all elements over some dimensions are not zero."""
    found = _reduced(FALSE, x, dim, keepdim)
    return None if found is None else _as_mask(found, 1)


def _as_mask(count: ndarray, negated: int) -> ndarray:
    """Whether a count is above zero, or whether it is zero."""
    count, mask = plain(count), buffers.empty(count.shape, np.bool_)
    _flat(_above_zero, count, mask, negated=negated)
    return mask


def vector_norm(x: ndarray, p: float, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The 2-norm or 1-norm over some dimensions."""
    single = valid(dim, x.ndim) and prod(x.shape[d] for d in dim) == 1  # its square may overflow
    if p == 2 and not single:
        squares = _reduced(SQUARES, x, dim, keepdim)
        if squares is not None:
            squares = plain(squares)
            _flat(_roots, squares)
        return squares
    return _reduced(SIZES, x, dim, keepdim) if p == 1 or (p and single) else None


# --- spread ------------------------------------------------------------------------------


def one_step(x: ndarray, dim: tuple[int, ...]) -> tuple[ndarray, tuple[int, int, int], Any]:
    """An array whose reduction takes one step, its shape for that, and how to turn results back."""
    transposed, places, back = in_memory_order(x, dim)
    found = steps(transposed.shape, places)
    if len(found) > 1:
        others = [d for d in range(x.ndim) if d not in dim]
        transposed, back = plain(x.transpose(*others, *dim)), None
        n = prod(x.shape[d] for d in dim)
        found = ((x.size // n, n, 1),)
    return transposed, found[0] if found else (x.size, 1, 1), back


def put_back(
    out: ndarray, shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool, back: Any
) -> ndarray:
    """The flat result of one step in its shape, turned back from the order in memory."""
    final = result_shape(shape, dim, keepdim)
    if back is None:
        return out.reshape(final)
    ordered = [1] * len(shape)
    for d, place in enumerate(back):
        ordered[place] = 1 if d in dim else shape[d]
    return out.reshape(ordered).transpose(back).reshape(final)


def var(x: ndarray, dim: tuple[int, ...], keepdim: bool, correction: float) -> ndarray | None:
    """The variance over some dimensions."""
    if (
        buffers.small(x.size, SMALL)
        or x.dtype not in FLOATS
        or repeats(x)
        or not valid(dim, x.ndim)
    ):
        return None
    if x.dtype == np.float32 and buffers.planner() is not None:
        # A plan can't look for squares that overflow or vanish; in double precision none do.
        wide = to_copy(x, np.dtype(np.float64))
        found = None if wide is None else var(wide, dim, keepdim, correction)
        return None if found is None else to_copy(found, x.dtype)
    transposed, (outer, n, k), back = one_step(x, dim)
    if n == 1:
        return None
    d, freedom = FLOATS[x.dtype], max(n - correction, 0)
    out = buffers.empty(outer * k, x.dtype)
    if k == 1 and (outer >= 16 or n < 2 * CHUNK):
        many = threads.how_many(outer, max(1, GRAIN // n))
        _row_deviations.get(d)(transposed, out, n, freedom, outer, many)
    else:
        centre, gap = buffers.empty_like(out), buffers.empty_like(out)
        step(SUM, d, (outer, n, k), float(n))(transposed, transposed, centre)
        step(GAPS, d, (outer, n, k), float(n))(transposed, centre, gap)
        step(DEVIATIONS, d, (outer, n, k))(transposed, centre, out)
        _flat(_less_gaps, out, gap, float(n), float(freedom))
    if buffers.planner() is not None:
        return put_back(out, x.shape, dim, keepdim, back)
    if x.dtype == np.float32 and not np.all((out > FAINT) & (out < np.inf)) and np.ptp(x):
        return None  # squares that overflowed or vanished: the reference has double precision
    return put_back(out, x.shape, dim, keepdim, back)


def std(x: ndarray, dim: tuple[int, ...], keepdim: bool, correction: float) -> ndarray | None:
    """The standard deviation over some dimensions."""
    out = var(x, dim, keepdim, correction)
    if out is not None:
        out = plain(out)
        _flat(_roots, out)
    return out


# --- places ------------------------------------------------------------------------------


@functools.cache
def _small_pick(pick: _Pick) -> Callable:
    """The choice along the last dimension of a small array as one call."""
    passes = ("take 0", "give 0", "give 1", "last")
    spec = EntrySpec(("f32",), ("f32 lead", "i64 lead"), passes, "lead", "last", returns=(0, 1))
    return pick.rows.whole(spec, "f32")


def _picked(pick: _Pick, x: ndarray, dim: int, keepdim: bool) -> tuple[ndarray, ndarray] | None:
    """The chosen element of each row and its place, or None where NumPy is as good."""
    if buffers.small(x.size, SMALL):
        small = not keepdim and dim == x.ndim - 1
        return _small_pick(pick)(x) if small else None
    d = FLOATS.get(x.dtype)
    if d is None or repeats(x) or not 0 <= dim < x.ndim:
        return None
    x, shape = plain(x), result_shape(x.shape, (dim,), keepdim)
    outer, n, k = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    values, places = buffers.empty(shape, x.dtype), buffers.empty(shape, np.int64)
    if k > 1:
        tiles = -(-k // PICK_TILE)
        many = threads.how_many(outer * tiles, -(-GRAIN // (n * min(k, PICK_TILE))))
        pick.columns.get(d)(x, values, places, n, k, tiles, outer * tiles, many)
    elif outer < 16 and n >= 2 * CHUNK:
        _pick_long_rows(pick, x.reshape(outer, n), values.reshape(-1), places.reshape(-1))
    elif n <= SHORT:
        over = -(-outer // TOGETHER)
        pick.short.get(d)(
            x, values, places, n, outer, over, threads.how_many(over, GRAIN // n // 64)
        )
    else:
        many = threads.how_many(outer, max(1, GRAIN // n))
        pick.rows.get(d)(x, values, places, n, outer, many)
    return values, places


def _pick_long_rows(pick: _Pick, x: ndarray, values: ndarray, places: ndarray) -> None:
    """Few long rows: the first part that has the chosen value, and the place in it."""
    rows, n = x.shape
    chunks = -(-n // CHUNK)
    parts = buffers.empty((rows, chunks))
    many = threads.how_many(rows * chunks, GRAIN // CHUNK)
    run = pick.kind.rows.get(FLOATS[x.dtype], "f64", by=1.0)
    run(x, x, parts, n, CHUNK, chunks, rows * chunks, many)
    for row in range(rows):
        start = int(pick.place_of(parts[row])) * CHUNK
        place = start + int(pick.place_of(x[row, start : start + CHUNK]))
        places[row], values[row] = place, x[row, place]


def _place(pick: _Pick, x: ndarray, dim: int | None, keepdim: bool) -> ndarray | None:
    if dim is not None:
        found = _picked(pick, x, dim, keepdim)
        return None if found is None else found[1]
    found = _picked(pick, x.reshape(-1), 0, False) if x.flags.c_contiguous else None
    return None if found is None else found[1].reshape((1,) * x.ndim if keepdim else ())


def argmax(x: ndarray, dim: int | None, keepdim: bool) -> ndarray | None:
    """The place of the maximum: the first one, or the first NaN."""
    return _place(PICK_LARGEST, x, dim, keepdim)


def argmin(x: ndarray, dim: int | None, keepdim: bool) -> ndarray | None:
    """The place of the minimum: the first one, or the first NaN."""
    return _place(PICK_SMALLEST, x, dim, keepdim)


def max_dim(x: ndarray, dim: int, keepdim: bool) -> tuple[ndarray, ndarray] | None:
    """The maxima along a dimension and their places."""
    return _picked(PICK_LARGEST, x, dim, keepdim)


def min_dim(x: ndarray, dim: int, keepdim: bool) -> tuple[ndarray, ndarray] | None:
    """The minima along a dimension and their places."""
    return _picked(PICK_SMALLEST, x, dim, keepdim)
