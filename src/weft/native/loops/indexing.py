"""Rows and elements picked and placed by index.

An array is seen as (outer, n, inner) around the dimension that is indexed. Indices are checked
where they are used: an index out of range reads the first row, and the call returns None, so that
the reference says what is wrong. Sums are taken in the order of the indices whatever the number of
threads, since a thread has its own columns (or rows) of the result. The references take the sums of
repeated rows first; for small arrays there are kernels that do the same, with the same bits.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, array, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.codegen.whole import EntrySpec
from weft.native.memory import buffers
from weft.native.memory.layout import plain

ndarray = np.ndarray
T = U = Any  # the types of the arrays in a call

# Elements are only moved, so that the size says it all.
BY_SIZE = {1: "u8", 2: "u16", 4: "f32", 8: "f64"}
INDICES = {np.dtype(np.int64): "i64", np.dtype(np.int32): "i32"}
SUMMED = {np.dtype(np.float32): "f32", np.dtype(np.float64): "f64", np.dtype(np.int64): "i64"}
# Below so many elements NumPy's own indexing is as fast: single ones read, whole rows, and sums.
SMALL = 512
SMALL_ROWS = 65536
SMALL_SUM = 64
# Elements that are worth a thread.
GRAIN = 16384
# Indices up to which it doesn't pay to sort them, and repeats of a row that NumPy sums in turn.
FEW = 64
IN_TURN = 8
# Columns that a thread takes at least: a line of the cache.
LINE = 16


@inline
def row_of(v, n, wrap):
    # A negative index counts from the end where that is the rule.
    return v + n if wrap and v < 0 else v


@kernel
def take_rows(
    x: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64, inner: i64,
    step: i64, wrap: i64, single: i64, lo: i64, hi: i64,
):  # fmt: skip
    o = lo // count
    j = lo % count
    wrong = 0
    for u in range(lo, hi):
        v = row_of(index[o * step + j], n, wrap)
        outside = v < 0 or v >= n
        wrong = wrong | i64(outside)
        v = 0 if outside else v
        if single:
            out[u] = x[o * n + v]
        else:
            source = x + (o * n + v) * inner
            to = out + u * inner
            for i in range(inner):
                to[i] = source[i]
        j += 1
        if j == count:
            j = 0
            o += 1
    if wrong:
        bad[0] = 1


@inline
def added(to, source, scale, length):
    for i in range(length):
        to[i] += source[i] * scale


@inline
def replaced(to, source, length):
    for i in range(length):
        to[i] = source[i]


@kernel
def place_columns(
    base: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, step: i64, tiles: i64, skipped: i64, scale: T, wrap: i64, add: i64, based: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    wrong = 0
    for o in range(lo // tiles, (hi + tiles - 1) // tiles):
        start = max(lo - o * tiles, 0) * LINE
        stop = min(min(hi - o * tiles, tiles) * LINE, inner)
        length = stop - start
        target = out + o * n * inner + start
        for r in range(n):
            for i in range(length):
                if based:
                    target[r * inner + i] = base[(o * n + r) * inner + start + i]
                else:
                    target[r * inner + i] = T(0.0)
        for j in range(count):
            v = row_of(index[o * step + j], n, wrap)
            if v != skipped or skipped < 0:
                outside = v < 0 or v >= n
                wrong = wrong | i64(outside)
                v = 0 if outside else v
                row = source + (o * count + j) * inner + start
                if add:
                    added(target + v * inner, row, scale, length)
                else:
                    replaced(target + v * inner, row, length)
    if wrong:
        bad[0] = 1


@inline
def all_within(index, count, n):
    inside = 1
    for j in range(count):
        v = row_of(index[j], n, 1)
        inside = inside & i64(v >= 0 and v < n)
    return inside


@kernel
def swap_rows(
    x: Ptr[T], source: Ptr[T], index: Ptr[U], kept: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, tiles: i64, lo: i64, hi: i64,
):  # fmt: skip
    if all_within(index, count, n):
        for o in range(lo // tiles, (hi + tiles - 1) // tiles):
            start = max(lo - o * tiles, 0) * LINE
            length = min(min(hi - o * tiles, tiles) * LINE, inner) - start
            for j in range(count):
                row = x + (o * n + row_of(index[j], n, 1)) * inner + start
                new = source + (o * count + j) * inner + start
                old = kept + (o * count + j) * inner + start
                for i in range(length):
                    old[i] = row[i]
                for i in range(length):
                    row[i] = new[i]
    else:
        bad[0] = 1


@kernel
def put_back_rows(
    x: Ptr[T], kept: Ptr[T], index: Ptr[U], n: i64, count: i64, inner: i64, tiles: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    # The last first, since one row may have been replaced several times.
    if all_within(index, count, n):
        for o in range(lo // tiles, (hi + tiles - 1) // tiles):
            start = max(lo - o * tiles, 0) * LINE
            length = min(min(hi - o * tiles, tiles) * LINE, inner) - start
            for k in range(count):
                j = count - 1 - k
                row = x + (o * n + row_of(index[j], n, 1)) * inner + start
                old = kept + (o * count + j) * inner + start
                for i in range(length):
                    row[i] = old[i]


@kernel
def place_rows(
    base: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, skipped: i64, scale: T, wrap: i64, add: i64, based: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Each thread looks at all indices and takes those of its own rows.
    for i in range(lo * inner, hi * inner):
        if based:
            out[i] = base[i]
        else:
            out[i] = T(0.0)
    wrong = 0
    for j in range(count):
        v = row_of(index[j], n, wrap)
        if v != skipped or skipped < 0:
            wrong = wrong | i64(v < 0 or v >= n)
            if v >= lo and v < hi:
                if add:
                    added(out + v * inner, source + j * inner, scale, inner)
                else:
                    replaced(out + v * inner, source + j * inner, inner)
    if wrong:
        bad[0] = 1


@kernel
def add_few(
    x: Ptr[T], index: Ptr[i64], source: Ptr[T], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, lo: i64, hi: i64,
):  # fmt: skip
    rows = array(i64, FEW)
    for i in range(n * inner):
        out[i] = x[i]
    wrong = i64(count > FEW)
    for j in range(0 if wrong else count):
        v = row_of(index[j], n, 1)
        wrong = wrong | i64(v < 0 or v >= n)
        rows[j] = v
    for j in range(0 if wrong else count):
        v = rows[j]
        earlier = 0
        later = 0
        for k in range(0 if inner == 1 else count):
            if rows[k] == v:
                earlier += i64(k < j)
                later += i64(k > j)
        wrong = wrong | i64(later >= IN_TURN)
        for i in range(0 if earlier else inner):
            total = source[j * inner + i]
            if later:
                rest = T(-0.0)  # as NumPy begins: the sign of zeros stays
                for k in range(j + 1, count):
                    if rows[k] == v:
                        rest = rest + source[k * inner + i]
                total = total + rest
            out[v * inner + i] = out[v * inner + i] + total
    if wrong:
        bad[0] = 1


@kernel
def divide_rows(out: Ptr[T], counts: Ptr[i64], inner: i64, lo: i64, hi: i64):
    for r in range(lo, hi):
        if counts[r] > 1:
            row = out + r * inner
            for i in range(inner):
                row[i] = row[i] / T(counts[r])


@kernel
def pick(
    x: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64, inner: i64,
    wrap: i64, lo: i64, hi: i64,
):  # fmt: skip
    wrong = 0
    for u in range(lo, hi):
        source = x + u // count * n * inner
        places = index + u * inner
        to = out + u * inner
        for i in range(inner):
            v = row_of(places[i], n, wrap)
            outside = v < 0 or v >= n
            wrong = wrong | i64(outside)
            v = 0 if outside else v
            to[i] = source[v * inner + i]
    if wrong:
        bad[0] = 1


@kernel
def pick_lines(
    x: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64, step: i64,
    wrap: i64, lo: i64, hi: i64,
):  # fmt: skip
    wrong = 0
    for u in range(lo, hi):
        source = x + u * n
        places = index + u * step
        to = out + u * count
        for i in range(count):
            v = row_of(places[i], n, wrap)
            outside = v < 0 or v >= n
            wrong = wrong | i64(outside)
            v = 0 if outside else v
            to[i] = source[v]
    if wrong:
        bad[0] = 1


@kernel
def put(
    base: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, tiles: i64, wrap: i64, add: i64, based: i64, single: i64, lo: i64, hi: i64,
):  # fmt: skip
    wrong = 0
    for o in range(lo // tiles, (hi + tiles - 1) // tiles):
        start = max(lo - o * tiles, 0) * LINE
        stop = min(min(hi - o * tiles, tiles) * LINE, inner)
        target = out + o * n * inner
        for r in range(n):
            for i in range(start, stop):
                if based:
                    target[r * inner + i] = base[(o * n + r) * inner + i]
                else:
                    target[r * inner + i] = T(0.0)
        for j in range(count):
            at = (o * count + j) * inner
            for i in range(start, stop):
                v = row_of(index[at + i], n, wrap)
                outside = v < 0 or v >= n
                wrong = wrong | i64(outside)
                v = 0 if outside else v
                if add:
                    target[v * inner + i] += source[at + i]
                else:
                    if single:
                        target[v * inner + i] = source[0]
                    else:
                        target[v * inner + i] = source[at + i]
    if wrong:
        bad[0] = 1


@kernel(unswitched=True)
def put_lines(
    base: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    wrap: i64, add: i64, based: i64, single: i64, lo: i64, hi: i64,
):  # fmt: skip
    wrong = 0
    for u in range(lo, hi):
        target = out + u * n
        places = index + u * count
        values = source + u * count
        for i in range(n):
            if based:
                target[i] = base[u * n + i]
            else:
                target[i] = T(0.0)
        for j in range(count):
            v = row_of(places[j], n, wrap)
            outside = v < 0 or v >= n
            wrong = wrong | i64(outside)
            v = 0 if outside else v
            if add:
                target[v] += values[j]
            else:
                if single:
                    target[v] = source[0]
                else:
                    target[v] = values[j]
    if wrong:
        bad[0] = 1


@kernel
def join_pairs(
    first: Ptr[T], second: Ptr[U], out: Ptr[i64], bad: Ptr[i64], n: i64, m: i64, lo: i64, hi: i64
):
    wrong = 0
    for u in range(lo, hi):
        a = row_of(first[u], n, 1)
        b = row_of(second[u], m, 1)
        wrong = wrong | i64(a < 0 or a >= n or b < 0 or b >= m)
        out[u] = a * m + b
    if wrong:
        bad[0] = 1


# --- how arrays are seen ---------------------------------------------------------------


def _words(x: ndarray, inner: int) -> tuple[str, int] | None:
    """The type by which elements are moved, and how many of it a row has."""
    size = x.itemsize
    if size == 16:
        return "f64", 2 * inner
    kind = BY_SIZE.get(size)
    return None if kind is None or x.dtype.hasobject or not x.dtype.isnative else (kind, inner)


def _around(shape: tuple[int, ...], dim: int) -> tuple[int, int, int]:
    if not 0 <= dim < len(shape):
        raise IndexError(f"there is no dimension {dim} in the shape {list(shape)}")
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


def _shares(units: int, work: int) -> tuple[int, int]:
    return units, threads.how_many(units, max(1, GRAIN // max(work, 1)))


def _scattered(x: ndarray, taken: int) -> bool:
    """Whether a copy in one piece would be much more work than what is taken from an array."""
    return not x.flags.c_contiguous and x.size > 8 * taken


def _taken(
    x: ndarray, index: ndarray, dim: int, shape: tuple[int, ...], wrap: bool, step: int = 0
) -> ndarray | None:
    """Rows along a dimension, by a vector of indices (or one for each outer place)."""
    outer, n, inner = _around(x.shape, dim)
    count = step or index.size
    kind = INDICES.get(index.dtype)
    words = _words(x, inner)
    least = SMALL if inner < LINE else SMALL_ROWS
    moved = outer * count * inner
    if (
        kind is None
        or words is None
        or not n
        or buffers.small(moved, least)
        or prod(shape) != moved
    ):
        return None
    if _scattered(x, moved):
        return None
    x, index = plain(x), plain(index)
    out = buffers.empty(shape, x.dtype)
    bad = buffers.zeros(1, np.int64)
    if words[1] == 1 and outer > 1:
        pick_lines.get(words[0], kind, wrap=wrap)(
            *(x, index, out, bad, n, count, step),
            *_shares(outer, count),
        )
        return None if buffers.wrong(bad) else out
    take_rows.get(words[0], kind, wrap=wrap, single=words[1] == 1)(
        *(x, index, out, bad, n, count, words[1], step),
        *_shares(outer * count, inner),
    )
    return None if buffers.wrong(bad) else out


def _placed(
    base: ndarray | None, source: ndarray, index: ndarray, dim: int, shape: tuple[int, ...],
    wrap: bool, add: bool = True, scale: Any = 1, skipped: int = -1, step: int = 0,
) -> ndarray | None:  # fmt: skip
    """A copy of an array (or zeros) with rows put or added, by a vector of indices."""
    outer, n, inner = _around(shape, dim)
    count = step or index.size
    moved = SUMMED.get(source.dtype)
    kind = INDICES.get(index.dtype)
    size = outer * count * inner
    if (
        kind is None
        or moved is None
        or not n
        or buffers.small(size, SMALL_SUM)
        or source.size != size
    ):
        return None
    if base is not None and (base.dtype != source.dtype or base.size != outer * n * inner):
        return None
    base = None if base is None else plain(base)
    source, index = plain(source), plain(index)
    out = buffers.empty(shape, source.dtype)
    bad = buffers.zeros(1, np.int64)
    flags = {"wrap": wrap, "add": add, "based": base is not None}
    arrays = base, source, index, out, bad
    if outer == 1 and inner < 2 * LINE:
        place_rows.get(moved, kind, **flags)(
            *(*arrays, n, count, inner, skipped, scale),
            *_shares(n, max(1, (n + 4 * count) * inner // n)),
        )
    else:
        tiles = -(-inner // LINE)
        place_columns.get(moved, kind, **flags)(
            *(*arrays, n, count, inner, step, tiles, skipped, scale),
            *_shares(outer * tiles, (n + count) * min(inner, LINE)),
        )
    return None if buffers.wrong(bad) else out


def _repeated(index: ndarray, dim: int) -> bool:
    """Whether an index is the same all along the dimensions behind ``dim``."""
    behind = zip(index.shape[dim + 1 :], index.strides[dim + 1 :], strict=True)
    return all(n == 1 or not s for n, s in behind)


def _matches(index: ndarray, shape: tuple[int, ...], dim: int) -> bool:
    """Whether an index has an array's shape except along a dimension."""
    return (
        len(shape) == index.ndim > dim >= 0
        and shape[dim] > 0
        and index.shape[:dim] == shape[:dim]
        and index.shape[dim + 1 :] == shape[dim + 1 :]
    )


def _narrow(index: ndarray, dim: int) -> ndarray:
    """A repeated index without the dimensions behind ``dim``."""
    return index[(slice(None),) * (dim + 1) + (0,) * (index.ndim - dim - 1)]


# --- embedding -------------------------------------------------------------------------


@functools.cache
def _rows_taken() -> Any:
    """Rows of a small float32 array by an index of any shape, as one call."""
    spec = EntrySpec(
        ("f32", "i64 any"),
        ("f32 picked",),
        ("take 0", "take 1", "give 0", "flag", "first", "count", "rest", "0"),
        *("count", "rest"),
    )
    return take_rows.whole(spec, "f32", "i64", wrap=False, single=False)


@functools.cache
def _line_picked() -> Any:
    """Elements along the last dimension of a float32 array, as one call."""
    passes = ("take 0", "take 1", "give 0", "flag", "last", "width", "width")
    spec = EntrySpec(("f32", "i64 lines"), ("f32 like 1",), passes, "lead", "width")
    return pick_lines.whole(spec, "f32", "i64", wrap=False)


@functools.cache
def _few_added() -> Any:
    """A small float32 array with rows added by an index of any shape, as one call."""
    passes = ("take 0", "take 1", "take 2", "give 0", "flag", "first", "count", "rest")
    spec = EntrySpec(
        ("f32", "i64 any", "f32 picked"), ("f32 like 0",), passes, "1", "size", most=SMALL_ROWS
    )
    return add_few.whole(spec, "f32")


@functools.cache
def _line_added() -> Any:
    """A float32 array with elements added along its last dimension, as one call."""
    passes = ("take 0", "take 2", "take 1", "give 0", "flag", "last", "width")
    spec = EntrySpec(("f32", "i64 lines", "f32 like 1"), ("f32 like 0",), passes, "lead", "last")
    flags = {"wrap": False, "add": True, "based": True, "single": False}
    return put_lines.whole(spec, "f32", "i64", **flags)


def embedding(weight: ndarray, indices: ndarray, padding_idx: int, by_freq: bool) -> ndarray | None:
    """The rows of a table that the indices name."""
    out = _rows_taken()(weight, indices)
    if out is not None:
        return out
    if not weight.ndim:
        return None
    return _taken(weight, indices, 0, (*indices.shape, *weight.shape[1:]), False)


def embedding_back(
    x: ndarray, indices: ndarray, count: int, padding_idx: int, by_freq: bool
) -> ndarray | None:
    """The transpose of ``embedding``: rows added up by their index."""
    if x.shape[: indices.ndim] != indices.shape:
        return None
    shape = (count, *x.shape[indices.ndim :])
    if by_freq and buffers.planner() is not None:
        return None  # counts are values
    out = _placed(None, x, indices, 0, shape, False, skipped=padding_idx)
    if out is None or not by_freq:
        return out
    if out.dtype.kind != "f":
        return None
    counts = np.bincount(indices.reshape(-1), minlength=count)
    inner = prod(shape[1:])
    divide_rows(out, counts, inner, over=count, grain=max(1, GRAIN // inner))
    return out


# --- slices by a vector ----------------------------------------------------------------


def index_select(x: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """Slices along a dimension, by a vector of indices."""
    if not x.ndim or index.ndim != 1:
        return None
    if not dim:
        out = _rows_taken()(x, index)
        if out is not None:
            return out
    return _taken(x, index, dim, (*x.shape[:dim], index.size, *x.shape[dim + 1 :]), False)


def index_add(x: ndarray, source: ndarray, index: ndarray, dim: int, alpha: Any) -> ndarray | None:
    """A copy with slices of a source added by a vector of indices."""
    if not x.ndim or x.ndim != source.ndim or isinstance(alpha, complex):
        return None
    if x.dtype.kind == "i" and not isinstance(alpha, int):
        return None
    return _placed(x, source, index, dim, x.shape, True, scale=alpha)


def index_add_small(
    x: ndarray, source: ndarray, index: ndarray, dim: int, alpha: Any
) -> ndarray | None:
    """The same for small arrays, along the first dimension."""
    return None if dim or alpha != 1 else _few_added()(x, index, source)


def index_copy(x: ndarray, source: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """A copy with slices replaced by those of a source."""
    if not x.ndim or source.ndim != x.ndim:
        return None
    return _placed(x, source, index, dim, x.shape, True, add=False)


def _rows_in_place(
    x: ndarray, rows: ndarray, index: ndarray, dim: int
) -> tuple[list[str], list[int], tuple[int, int]]:
    """What kernels on rows of an array in its place take: types, sizes, and how work is shared."""
    outer, n, inner = _around(x.shape, dim)
    kind, words = INDICES.get(index.dtype), _words(x, inner)
    if kind is None or words is None or not x.flags.c_contiguous or x.dtype != rows.dtype:
        raise buffers.Unplannable("rows that can't be exchanged in their place")
    if index.ndim != 1 or rows.size != outer * index.size * inner:
        raise buffers.Unplannable("another number of rows than of indices")
    moved, length = words
    tiles = -(-length // LINE)
    sizes = [n, index.size, length, tiles]
    return [moved, kind], sizes, _shares(outer * tiles, index.size * min(length, LINE))


def exchange_rows(x: ndarray, source: ndarray, index: ndarray, dim: int) -> ndarray:
    """Put rows into an array, in its place; gives those that were there. For plans alone.

    Nothing is changed where an index is out of range, which sets a flag.
    """
    kinds, sizes, shares = _rows_in_place(x, source, index, dim)
    kept, bad = buffers.empty(source.shape, x.dtype), buffers.zeros(1, np.int64)
    source, index = plain(source), plain(index)
    swap_rows.get(*kinds)(x, source, index, kept, bad, *sizes, *shares)
    buffers.wrong(bad)
    return kept


def restore_rows(x: ndarray, kept: ndarray, index: ndarray, dim: int) -> None:
    """Undo ``exchange_rows``."""
    kinds, sizes, shares = _rows_in_place(x, kept, index, dim)
    put_back_rows.get(*kinds)(x, kept, plain(index), *sizes, *shares)


# --- x[index] --------------------------------------------------------------------------


def _one_index(
    indices: tuple[ndarray, ...], shape: tuple[int, ...], where: tuple[int, ...]
) -> tuple[ndarray, tuple[int, ...], tuple[int, ...]] | None:
    """One index for one dimension: the array's shape then, and the index's own.

    Two indices of neighbouring dimensions become one for both together.
    """
    if len(where) == 1:
        return indices[0], shape, indices[0].shape
    if len(where) != 2 or where[1] != where[0] + 1:
        return None
    first, second = np.broadcast_arrays(*indices)
    if (
        first.dtype not in INDICES
        or second.dtype not in INDICES
        or buffers.small(first.size, SMALL)
    ):
        return None
    dim = where[0]
    joined = buffers.empty(first.shape, np.int64)
    bad = buffers.zeros(1, np.int64)
    n, m = shape[dim : dim + 2]
    join_pairs(plain(first), plain(second), joined, bad, n, m, over=joined.size, grain=GRAIN)
    if buffers.wrong(bad):
        return None
    return joined, (*shape[:dim], n * m, *shape[dim + 2 :]), joined.shape


def index(x: ndarray, *indices: ndarray, where: tuple[int, ...]) -> ndarray | None:
    """``x[index]`` for one index array, or for two at neighbouring dimensions."""
    found = _one_index(indices, x.shape, where) if where else None
    if found is None:
        return None
    one, shape, given = found
    dim = where[0]
    result = (*shape[:dim], *given, *shape[dim + 1 :])
    if shape != x.shape:
        if _scattered(x, prod(result)):
            return None
        x = plain(x).reshape(shape)
    return _taken(x, one, dim, result, True)


def index_back(
    g: ndarray, *indices: ndarray, shape: tuple[int, ...], where: tuple[int, ...]
) -> ndarray | None:
    """The transpose of ``index``."""
    return _index_placed(None, g, indices, tuple(shape), where, True)


def index_back_small(
    g: ndarray, *indices: ndarray, shape: tuple[int, ...], where: tuple[int, ...]
) -> ndarray | None:
    """The same for small arrays, along the first dimension."""
    return _few_added()(buffers.zeros(shape, g.dtype), indices[0], g) if where == (0,) else None


def index_put(
    x: ndarray, values: Any, *indices: ndarray, where: tuple[int, ...], accumulate: bool
) -> ndarray | None:
    """A copy of ``x`` with values put, or added, at the indices."""
    if not isinstance(values, ndarray) or values.dtype != x.dtype:
        return None
    return _index_placed(x, values, indices, x.shape, where, accumulate)


def _index_placed(
    base: ndarray | None, values: ndarray, indices: Any, shape: tuple[int, ...], where: Any,
    add: bool,
) -> ndarray | None:  # fmt: skip
    found = _one_index(indices, shape, where) if where else None
    if found is None:
        return None
    one, seen, given = found
    dim = where[0]
    full = (*seen[:dim], *given, *seen[dim + 1 :])
    if values.shape != full:
        values = np.broadcast_to(values, full)
    base = None if base is None else plain(base).reshape(seen)
    out = _placed(base, values, one, dim, seen, True, add=add)
    return None if out is None else out.reshape(shape)


# --- an index for each element ---------------------------------------------------------


def gather(x: ndarray, index: ndarray, dim: int, wrap: bool = False) -> ndarray | None:
    """Elements along a dimension, by an index for each element of the result."""
    if dim == x.ndim - 1 and not wrap:
        out = _line_picked()(x, index)
        if out is not None:
            return out
    kind, words = INDICES.get(index.dtype), BY_SIZE.get(x.itemsize)
    if (
        kind is None
        or words is None
        or buffers.small(index.size, SMALL)
        or not _matches(index, x.shape, dim)
    ):
        return None
    if x.dtype.hasobject or not x.dtype.isnative or _scattered(x, index.size):
        return None
    outer, n, inner = _around(x.shape, dim)
    count = index.shape[dim]
    if inner > 1 and _repeated(index, dim):
        return _taken(x, _narrow(index, dim), dim, index.shape, wrap, count)
    x, index = plain(x), plain(index)
    out = buffers.empty(index.shape, x.dtype)
    bad = buffers.zeros(1, np.int64)
    arrays = x, index, out, bad
    if inner == 1:
        run = pick_lines.get(words, kind, wrap=wrap)
        run(*arrays, n, count, count, *_shares(outer, count))
    else:
        run = pick.get(words, kind, wrap=wrap)
        run(*arrays, n, count, inner, *_shares(outer * count, inner))
    return None if buffers.wrong(bad) else out


def _put(
    base: ndarray | None, source: ndarray, index: ndarray, dim: int, shape: tuple[int, ...],
    add: bool, wrap: bool = False,
) -> ndarray | None:  # fmt: skip
    kind, moved = INDICES.get(index.dtype), SUMMED.get(source.dtype)
    if (
        kind is None
        or moved is None
        or buffers.small(index.size, SMALL_SUM)
        or not _matches(index, shape, dim)
    ):
        return None
    if base is not None and (base.dtype != source.dtype or base.shape != shape):
        return None
    single = not source.ndim
    if single and add:
        return None
    if not single and source.shape != index.shape:
        source = source[tuple(slice(n) for n in index.shape)]
        if source.shape != index.shape:
            return None
    outer, n, inner = _around(shape, dim)
    count = index.shape[dim]
    if not single and _repeated(index, dim) and inner > 1:
        return _placed(base, source, _narrow(index, dim), dim, shape, wrap, add, step=count)
    base = None if base is None else plain(base)
    source, index = plain(source), plain(index)
    out = buffers.empty(shape, source.dtype)
    bad = buffers.zeros(1, np.int64)
    flags = {"wrap": wrap, "add": add, "based": base is not None, "single": single}
    arrays = base, source, index, out, bad
    if inner == 1:
        put_lines.get(moved, kind, **flags)(*arrays, n, count, *_shares(outer, n + count))
    else:
        tiles = -(-inner // LINE)
        put.get(moved, kind, **flags)(
            *(*arrays, n, count, inner, tiles),
            *_shares(outer * tiles, (n + count) * min(inner, LINE)),
        )
    return None if buffers.wrong(bad) else out


def gather_back(g: ndarray, index: ndarray, shape: tuple[int, ...], dim: int) -> ndarray | None:
    """The transpose of ``gather``."""
    return _put(None, g, index, dim, tuple(shape), True)


def gather_back_small(
    g: ndarray, index: ndarray, shape: tuple[int, ...], dim: int
) -> ndarray | None:
    """The same for small arrays, along the last dimension."""
    last = dim == len(shape) - 1
    return _line_added()(buffers.zeros(shape, g.dtype), index, g) if last else None


def scatter(x: ndarray, src: Any, index: ndarray, dim: int) -> ndarray | None:
    """A copy with values (or one value) put along a dimension by index."""
    if not isinstance(src, ndarray):
        return None
    return _put(x, src, index, dim, x.shape, False)


def scatter_add(x: ndarray, src: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """A copy with values added along a dimension by index."""
    return _put(x, src, index, dim, x.shape, True)


def scatter_add_small(x: ndarray, src: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """The same for small arrays, along the last dimension."""
    return _line_added()(x, index, src) if dim == x.ndim - 1 else None


def take_along(x: ndarray, index: ndarray, dim: int, unique: bool) -> ndarray | None:
    """NumPy's ``take_along_axis`` for an index of the array's shape."""
    return gather(x, index, dim % max(x.ndim, 1), True)


def put_along(
    x: ndarray, index: ndarray, dim: int, shape: tuple[int, ...], unique: bool
) -> ndarray | None:
    """The transpose of ``take_along``."""
    if x.shape != index.shape:
        return None
    return _put(None, x, index, dim % max(len(shape), 1), tuple(shape), True, True)
