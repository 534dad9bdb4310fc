"""Gathering and scattering rows and elements by index.

An array is seen as (outer, n, inner) around the dimension that is indexed. Indices are checked
where they are used: an index out of range reads the first row, and the call returns None, so that
the reference raises the error. Sums are taken in the order of the indices whatever the number of
threads, since a thread has its own columns (or rows) of the result. The references take the sums of
repeated rows first; for small arrays there are kernels that do the same, with the same bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, array, i64, inline
from weft.native.codegen.jit import entry_points, kernel
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.movement import BY_SIZE
from weft.native.memory import buffers
from weft.native.memory.layout import plain

ndarray = np.ndarray
Ints = tuple[int, ...]
T = U = Any  # the types of the arrays in a call

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


@inline
def checked(v, n, wrap, wrong):
    v = row_of(v, n, wrap)
    outside = v < 0 or v >= n
    wrong[0] = wrong[0] | i64(outside)
    return 0 if outside else v


@kernel
def pick(
    x: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64, inner: i64,
    step: i64, wrap: i64, each: i64, single: i64, lines: i64, lo: i64, hi: i64,
):  # fmt: skip
    """Rows by an index, or (``each``) elements by one of their own; ``single`` ones are a case.

    The range is that of all indices, or of whole ``lines`` of them.
    """
    wrong = array(i64, 1)
    wrong[0] = 0
    width = 1 if single else inner
    for o in range(lo if lines else lo // count, hi if lines else (hi + count - 1) // count):
        source = x + o * n * width
        places = index + o * step
        to = out + o * count * width
        for j in range(
            0 if lines else max(lo - o * count, 0), count if lines else min(hi - o * count, count)
        ):
            if each:
                for i in range(inner):
                    v = checked(places[j * inner + i], n, wrap, wrong)
                    to[j * inner + i] = source[v * inner + i]
            else:
                v = checked(places[j], n, wrap, wrong)
                for i in range(width):
                    to[j * width + i] = source[v * width + i]
    if wrong[0]:
        bad[0] = 1


@inline
def put(to, value, scale, add):
    if add:
        to[0] += value * scale
    else:
        to[0] = value


def _place(
    base: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, step: i64, tiles: i64, skipped: i64, scale: T, wrap: i64, add: i64, based: i64,
    each: i64, single: i64, filled: i64, own: i64, ahead: i64, lo: i64, hi: i64,
):  # fmt: skip
    """The transpose of ``pick``: a thread has tiles of columns, or looks for its ``own`` rows."""
    wrong = array(i64, 1)
    wrong[0] = 0
    width = 1 if single else inner
    for o in range(lo // tiles, (hi + tiles - 1) // tiles):
        first = lo if own else 0
        last = hi if own else n
        start = 0 if own or single else max(lo - o * tiles, 0) * LINE
        stop = width if own or single else min(min(hi - o * tiles, tiles) * LINE, inner)
        whole = own or single or tiles == 1  # rows in one piece
        target = out + o * n * width
        for r in range(first, first + 1 if whole else last):
            for i in range(start, (last - first) * width if whole else stop):
                at = r * width + i
                if based:
                    target[at] = base[o * n * width + at]
                else:
                    target[at] = T(0.0)
        if ahead:
            for j in range(1 if whole else count):
                for i in range(start, count * width if whole else stop):
                    v = checked(index[(o * count + j) * width + i], n, wrap, wrong)
        for j in range(0 if ahead and wrong[0] else count):
            row = (o * count + j) * width
            if each:
                for i in range(start, stop):
                    v = index[row + i] if ahead else checked(index[row + i], n, wrap, wrong)
                    put(target + v * width + i, source[0 if filled else row + i], scale, add)
            else:
                if single and not own:
                    v = checked(index[o * step + j], n, wrap, wrong)
                    put(target + v, source[0 if filled else row], scale, add)
                else:
                    v = row_of(index[o * step + j], n, wrap)
                    if v >= first and v < last:
                        for i in range(start, start if v == skipped else stop):
                            put(
                                target + v * width + i, source[0 if filled else row + i], scale, add
                            )
                    else:
                        wrong[0] = wrong[0] | i64(v < 0 or v >= n)
    if wrong[0]:
        bad[0] = 1


place, place_singles = kernel(_place), kernel(_place, unswitched=True)


@kernel
def swap_rows(
    x: Ptr[T], rows: Ptr[T], index: Ptr[U], kept: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, tiles: i64, back: i64, lo: i64, hi: i64,
):  # fmt: skip
    inside = 1
    for j in range(count):
        inside = inside & i64(index[j] >= 0 and index[j] < n)
    for o in range(lo // tiles, (hi + tiles - 1) // tiles if inside else 0):
        start = max(lo - o * tiles, 0) * LINE
        length = min(min(hi - o * tiles, tiles) * LINE, inner) - start
        for k in range(count):
            # Back the last first, since one row may have been replaced several times.
            j = count - 1 - k if back else k
            row = x + (o * n + index[j]) * inner + start
            at = (o * count + j) * inner + start
            if not back:
                for i in range(length):
                    kept[at + i] = row[i]
            for i in range(length):
                row[i] = rows[at + i]
    if not (inside or back):
        bad[0] = 1


@kernel
def add_few(
    x: Ptr[T], index: Ptr[i64], source: Ptr[T], out: Ptr[T], bad: Ptr[i64], n: i64, count: i64,
    inner: i64, wrap: i64, lo: i64, hi: i64,
):  # fmt: skip
    rows = array(i64, FEW)
    for i in range(n * inner):
        out[i] = x[i]
    wrong = i64(count > FEW)
    for j in range(0 if wrong else count):
        v = row_of(index[j], n, wrap)
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


@kernel
def mark_classes(index: Ptr[i64], out: Ptr[i64], bad: Ptr[i64], n: i64, lo: i64, hi: i64):
    wrong = 0
    for u in range(lo, hi):
        v = index[u]
        wrong = wrong | i64(v < 0 or v >= n)
        for c in range(n):
            out[u * n + c] = i64(v == c)
    if wrong:
        bad[0] = 1


@kernel
def combine(
    x: Ptr[T], source: Ptr[T], index: Ptr[U], out: Ptr[T], counts: Ptr[i64], bad: Ptr[i64], n: i64,
    count: i64, inner: i64, start: T, sums: i64, product: i64, largest: i64, mean: i64, fresh: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    wrong = array(i64, 1)
    wrong[0] = 0
    for o in range(lo, hi):
        to = out + o * n * inner
        many = counts + o * n * inner
        for k in range(n * inner):
            to[k] = x[o * n * inner + k]
            if mean:
                many[k] = 1 - fresh
        for k in range(count * inner if fresh else 0):
            v = checked(index[o * count * inner + k], n, 0, wrong)
            to[v * inner + k % inner] = start
        for j in range(count):
            for i in range(inner):
                k = (o * count + j) * inner + i
                at = checked(index[k], n, 0, wrong) * inner + i
                a = to[at]
                b = source[k]
                if sums:
                    to[at] = a + b
                elif product:
                    to[at] = a * b
                elif largest:
                    to[at] = a if a >= b or a != a else b
                else:
                    to[at] = a if a <= b or a != a else b
                if mean:
                    many[at] += 1
        if mean:
            for k in range(n * inner):
                to[k] = to[k] / T(max(many[k], 1))
    if wrong[0]:
        bad[0] = 1


# --- how arrays are seen ---------------------------------------------------------------


def _words(x: ndarray, inner: int) -> tuple[str, int] | None:
    """The type by which elements are moved, and how many of it a row has."""
    size = x.itemsize
    if size == 16:
        return "f64", 2 * inner
    kind = BY_SIZE.get(size)
    return None if kind is None or x.dtype.hasobject or not x.dtype.isnative else (kind, inner)


def _around(shape: Ints, dim: int) -> tuple[int, int, int]:
    if not 0 <= dim < len(shape):
        raise IndexError(f"there is no dimension {dim} in the shape {list(shape)}")
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


def _shares(units: int, work: int) -> tuple[int, int]:
    return units, threads.how_many(units, max(1, GRAIN // max(work, 1)))


def _scattered(x: ndarray, taken: int) -> bool:
    """Whether a copy in one piece would be much more work than what is taken from an array."""
    return not x.flags.c_contiguous and x.size > 8 * taken


@functools.lru_cache(512)
def _picking(kind: str, index: str, *flags: bool) -> Callable:
    names = ("wrap", "each", "single", "lines")
    return pick.get(kind, index, **dict(zip(names, flags, strict=True)))


@functools.lru_cache(512)
def _placing(kind: str, index: str, *flags: bool) -> Callable:
    names = ("wrap", "add", "based", "each", "single", "filled", "own", "ahead")
    given = dict(zip(names, flags, strict=True))
    run = place_singles if given["single"] and not given["own"] else place
    return run.get(kind, index, **given)


def _taken(
    x: ndarray, index: ndarray, dim: int, shape: Ints, wrap: bool, step: int = 0, each: bool = False
) -> ndarray | None:
    """Rows along a dimension, by a vector of indices (or one for each outer place, or element)."""
    outer, n, inner = _around(x.shape, dim)
    words = _words(x, inner)
    count = index.shape[dim] if each else step or index.size
    moved = outer * count * inner
    least = SMALL if each or inner < LINE else SMALL_ROWS
    if words is None or not n or buffers.small(moved, least) or prod(shape) != moved:
        return None
    if index.dtype not in INDICES or _scattered(x, moved) or (each and words[1] != inner):
        return None
    out = buffers.empty(shape, x.dtype)
    sizes = outer, n, count, words[1]
    return picked(plain(x), plain(index), out, words[0], sizes, wrap, step, each)


def picked(
    x: ndarray, index: ndarray, out: ndarray, kind: str, sizes: Ints, wrap: bool, step: int,
    each: bool,
) -> ndarray | None:  # fmt: skip
    """What ``pick`` has read of plain arrays; None if an index is wrong."""
    outer, n, count, inner = sizes
    bad, single = buffers.zeros(1, np.int64), inner == 1
    lines = single and outer > 1
    run = _picking(kind, INDICES[index.dtype], wrap, each and not single, single, lines)
    step = count * inner if each else step
    shares = _shares(outer, count) if lines else _shares(outer * count, inner)
    run(x, index, out, bad, n, count, inner, step, *shares)
    return None if buffers.wrong(bad) else out


def _placed(
    base: ndarray | None, source: ndarray, index: ndarray, dim: int, shape: Ints, wrap: bool,
    add: bool = True, scale: Any = 1, skipped: int = -1, step: int = 0, each: bool = False,
) -> ndarray | None:  # fmt: skip
    """A copy of an array (or zeros) with rows, or elements, put or added by indices."""
    outer, n, inner = _around(shape, dim)
    count = index.shape[dim] if each else step or index.size
    size = outer * count * inner
    if not n or source.dtype not in SUMMED or buffers.small(size, SMALL_SUM):
        return None
    if index.dtype not in INDICES or source.size != (size if source.ndim else 1):
        return None
    if base is not None and (base.dtype != source.dtype or base.size != outer * n * inner):
        return None
    base = None if base is None else plain(base)
    arrays = base, plain(source), plain(index), buffers.empty(shape, source.dtype)
    return placed(*arrays, (outer, n, count, inner), wrap, add, scale, skipped, step, each)


def placed(
    base: ndarray | None, source: ndarray, index: ndarray, out: ndarray, sizes: Ints, wrap: bool,
    add: bool, scale: Any, skipped: int, step: int, each: bool, ahead: bool = False,
) -> ndarray | None:  # fmt: skip
    """The same for plain arrays, written to ``out``; None if an index is wrong."""
    outer, n, count, inner = sizes
    bad, single = buffers.zeros(1, np.int64), inner == 1
    own = outer == 1 and inner < 2 * LINE and not each
    kinds = SUMMED[source.dtype], INDICES[index.dtype]
    filled, ahead = not source.ndim, ahead and not single
    run = _placing(
        *kinds, wrap, add, base is not None, each and not single, single, filled, own, ahead
    )
    tiles = n if own else -(-inner // LINE)
    numbers = n, count, inner, count if each else step, tiles, skipped, scale
    if own:
        shares = _shares(n, max(1, (n + 4 * count) * inner // n))
    else:
        shares = _shares(outer * tiles, (n + count) * min(inner, LINE))
    run(base, source, index, out, bad, *numbers, *shares)
    return None if buffers.wrong(bad) else out


def _repeated(index: ndarray, dim: int) -> bool:
    """Whether an index is the same all along the dimensions behind ``dim``."""
    if dim == index.ndim - 1:
        return False
    behind = zip(index.shape[dim + 1 :], index.strides[dim + 1 :], strict=True)
    return all(n == 1 or not s for n, s in behind)


def _matches(index: ndarray, shape: Ints, dim: int) -> bool:
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


@entry_points
def _rows_taken() -> Any:
    """Rows of a small float32 array by an index of any shape, as one call."""
    spec = EntrySpec(
        ("f32", "i64 any"),
        ("f32 picked",),
        ("take 0", "take 1", "give 0", "flag", "first", "count", "rest", "0"),
        *("count", "rest"),
    )
    return pick.whole(spec, "f32", "i64", wrap=False, each=False, single=False, lines=False)


@entry_points
def _line_picked() -> Any:
    """Elements along the last dimension of a float32 array, as one call."""
    passes = ("take 0", "take 1", "give 0", "flag", "last", "width", "1", "width")
    spec = EntrySpec(("f32", "i64 lines"), ("f32 like 1",), passes, "lead", "width")
    return pick.whole(spec, "f32", "i64", wrap=False, each=False, single=True, lines=True)


@entry_points
def _few_added(wrap: bool) -> Any:
    """A small float32 array with rows added by an index of any shape, as one call."""
    passes = ("take 0", "take 1", "take 2", "give 0", "flag", "first", "count", "rest")
    spec = EntrySpec(
        ("f32", "i64 any", "f32 picked"), ("f32 like 0",), passes, "1", "size", most=SMALL_ROWS
    )
    return add_few.whole(spec, "f32", wrap=wrap)


@entry_points
def _line_added() -> Any:
    """A float32 array with elements added along its last dimension, as one call."""
    sizes = ("last", "width", "1", "width", "1", "-1", "1")
    passes = ("take 0", "take 2", "take 1", "give 0", "flag", *sizes)
    spec = EntrySpec(("f32", "i64 lines", "f32 like 1"), ("f32 like 0",), passes, "lead", "last")
    no, yes = (
        dict.fromkeys(("wrap", "each", "filled", "own", "ahead"), False),
        ("add", "based", "single"),
    )
    return place_singles.whole(spec, "f32", "i64", **no, **dict.fromkeys(yes, True))


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
    if index.size and not source.size:
        return None  # a bad index is refused even so
    if x.dtype.kind == "i" and not isinstance(alpha, int):
        return None
    return _placed(x, source, index, dim, x.shape, False, scale=alpha)


def index_add_small(
    x: ndarray, source: ndarray, index: ndarray, dim: int, alpha: Any
) -> ndarray | None:
    """The same for small arrays, along the first dimension."""
    return None if dim or alpha != 1 else _few_added(False)(x, index, source)


def index_copy(x: ndarray, source: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """A copy with slices replaced by those of a source."""
    if not x.ndim or source.ndim != x.ndim or (index.size and not source.size):
        return None
    return _placed(x, source, index, dim, x.shape, False, add=False)


def index_fill(x: ndarray, value: ndarray, index: ndarray, dim: int) -> ndarray | None:
    """A copy with slices filled with one value."""
    if not x.ndim or not x.size or index.ndim != 1 or value.ndim or value.dtype != x.dtype:
        return None
    return _placed(x, value, index, dim, x.shape, True, add=False)


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
    """Write rows into an array in place; returns the old ones. For plans only.

    Nothing is changed where an index is out of range, which sets a flag.
    """
    kinds, sizes, shares = _rows_in_place(x, source, index, dim)
    kept, bad = buffers.empty(source.shape, x.dtype), buffers.zeros(1, np.int64)
    source, index = plain(source), plain(index)
    swap_rows.get(*kinds, back=False)(x, source, index, kept, bad, *sizes, *shares)
    buffers.wrong(bad)
    return kept


def restore_rows(x: ndarray, kept: ndarray, index: ndarray, dim: int) -> None:
    """Undo ``exchange_rows``."""
    kinds, sizes, shares = _rows_in_place(x, kept, index, dim)
    swap_rows.get(*kinds, back=True)(x, kept, plain(index), None, None, *sizes, *shares)


# --- x[index] --------------------------------------------------------------------------


def _one_index(
    indices: tuple[ndarray, ...], shape: Ints, where: Ints
) -> tuple[ndarray, Ints, Ints] | None:
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


def index(x: ndarray, *indices: ndarray, where: Ints) -> ndarray | None:
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


def index_back(g: ndarray, *indices: ndarray, shape: Ints, where: Ints) -> ndarray | None:
    """The transpose of ``index``."""
    return _index_placed(None, g, indices, tuple(shape), where, True)


def index_back_small(g: ndarray, *indices: ndarray, shape: Ints, where: Ints) -> ndarray | None:
    """The same for small arrays, along the first dimension."""
    if where != (0,):
        return None
    return _few_added(True)(buffers.zeros(shape, g.dtype), indices[0], g)


def index_put(
    x: ndarray, values: Any, *indices: ndarray, where: Ints, accumulate: bool
) -> ndarray | None:
    """A copy of ``x`` with values put, or added, at the indices."""
    if not isinstance(values, ndarray) or values.dtype != x.dtype:
        return None
    return _index_placed(x, values, indices, x.shape, where, accumulate)


def _index_placed(
    base: ndarray | None, values: ndarray, indices: Any, shape: Ints, where: Any,
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
    if buffers.small(index.size, SMALL) or not _matches(index, x.shape, dim):
        return None
    if _repeated(index, dim):
        return _taken(x, _narrow(index, dim), dim, index.shape, wrap, index.shape[dim])
    return _taken(x, index, dim, index.shape, wrap, each=True)


def _put(
    base: ndarray | None, source: ndarray, index: ndarray, dim: int, shape: Ints, add: bool,
    wrap: bool = False,
) -> ndarray | None:  # fmt: skip
    single = not source.ndim
    if buffers.small(index.size, SMALL_SUM) or not _matches(index, shape, dim) or (single and add):
        return None
    if not single and source.shape != index.shape:
        source = source[tuple(slice(n) for n in index.shape)]
        if source.shape != index.shape:
            return None
    if not single and _repeated(index, dim):
        step = index.shape[dim]
        return _placed(base, source, _narrow(index, dim), dim, shape, wrap, add, step=step)
    return _placed(base, source, index, dim, shape, wrap, add, each=True)


def gather_back(g: ndarray, index: ndarray, shape: Ints, dim: int) -> ndarray | None:
    """The transpose of ``gather``."""
    return _put(None, g, index, dim, tuple(shape), True)


def gather_back_small(g: ndarray, index: ndarray, shape: Ints, dim: int) -> ndarray | None:
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


def scatter_reduce(
    x: ndarray, src: ndarray, index: ndarray, dim: int, reduce: str, include_self: bool,
    stepwise: bool = False,
) -> ndarray | None:  # fmt: skip
    """A copy with values combined along a dimension by index, in their order."""
    mean, dtype = reduce == "mean", x.dtype
    if dtype not in SUMMED or src.dtype != dtype or (mean and dtype.kind == "i"):
        return None
    if index.dtype not in INDICES or not _matches(index, x.shape, dim) or not index.size:
        return None
    source = src[tuple(slice(n) for n in index.shape)] if src.ndim == index.ndim else src
    if source.shape != index.shape or buffers.small(index.size, SMALL_SUM):
        return None
    outer, n, inner = _around(x.shape, dim)
    info: Any = np.iinfo(dtype) if dtype.kind == "i" else None
    ends = (-np.inf, np.inf) if info is None else (int(info.min), int(info.max))
    start = {"prod": 1, "amax": ends[0], "amin": ends[1]}.get(reduce, 0)
    flags = {"sums": mean or reduce == "sum", "product": reduce == "prod", "mean": mean}
    flags |= {"largest": reduce == "amax", "fresh": not include_self}
    run = combine.get(SUMMED[dtype], INDICES[index.dtype], **flags)
    out, bad = buffers.empty(x.shape, dtype), buffers.zeros(1, np.int64)
    counts = buffers.empty(x.size if mean else 1, np.int64)
    given = plain(x), plain(source), plain(index), out, counts, bad
    run(*given, n, index.shape[dim], inner, start, *_shares(outer, index.size // outer))
    return None if buffers.wrong(bad) else out


def one_hot(x: ndarray, num_classes: int) -> ndarray | None:
    """For each index a row of zeros with a one at the index."""
    if x.dtype != np.int64 or num_classes.__class__ is not int or num_classes < 1:
        return None
    if buffers.small(x.size * num_classes, SMALL):
        return None
    out, bad = buffers.empty((*x.shape, num_classes), np.int64), buffers.zeros(1, np.int64)
    grain = max(1, GRAIN // num_classes)
    mark_classes(plain(x), out, bad, num_classes, over=x.size, grain=grain)
    return None if buffers.wrong(bad) else out


def take_along(x: ndarray, index: ndarray, dim: int, unique: bool) -> ndarray | None:
    """NumPy's ``take_along_axis`` for an index of the array's shape."""
    return gather(x, index, dim % max(x.ndim, 1), True)


def put_along(x: ndarray, index: ndarray, dim: int, shape: Ints, unique: bool) -> ndarray | None:
    """The transpose of ``take_along``."""
    if x.shape != index.shape:
        return None
    return _put(None, x, index, dim % max(len(shape), 1), tuple(shape), True, True)
