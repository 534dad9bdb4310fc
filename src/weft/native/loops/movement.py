"""Data movement: copies, conversions, concatenation, padding and selection.

Copies go by the size of the elements alone. Dimensions that are contiguous with each other are
merged first, which leaves at most four of them in all but odd cases.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, array, i32, i64, inline
from weft.native.codegen.jit import kernel, pointer, reads_half
from weft.native.memory import buffers
from weft.native.memory.layout import (
    FLOATS,
    channels_last,
    channels_second,
    channels_wanted,
    is_last,
    plain,
)

ndarray = np.ndarray
Ints = tuple[int, ...]
T = U = b1 = Any  # types of arrays, for annotations

BY_SIZE = {1: "u8", 2: "u16", 4: "f32", 8: "f64"}
# The same as integers, for loops that write zeros: all bits of every type's zero are zero.
INTEGERS = {"u8": "u8", "u16": "u16", "f32": "i32", "f64": "i64"}
# Below so many elements NumPy's own copies are as fast; the rest pays earlier.
SMALL = 65536
SMALL_CHOICE = 8192
# Elements that are worth a thread.
GRAIN = 32768
# The sides of the squares in which matrices are transposed.
SIDE = 16
# How elements are converted: as they are, to a mask, from a float to integers of 64 or 32 bits.
PLAIN, MASK, WIDE, SHORT = range(4)
LEAST = -(1 << 63)
LEAST_32 = -(1 << 31)

# --- copies ----------------------------------------------------------------------------


@inline
def begin(at, u, b, c):
    """The place of row u in three dimensions, the last two of b and c."""
    at[0] = u // (b * c)
    at[1] = u // c % b
    at[2] = u % c


@inline
def advance(at, b, c):
    at[2] += 1
    if at[2] == c:
        at[2] = 0
        at[1] += 1
        if at[1] == b:
            at[1] = 0
            at[0] += 1


@inline
def offset_of(at, sa, sb, sc):
    return at[0] * sa + at[1] * sb + at[2] * sc


@kernel
def copy_rows(
    x: Ptr[T], y: Ptr[T], b: i64, c: i64, d: i64, sa: i64, sb: i64, sc: i64, sd: i64, ta: i64,
    tb: i64, tc: i64, td: i64, near: i64, dense: i64, one: i64, lo: i64, hi: i64,
):  # fmt: skip
    """Rows of d elements by the steps of both arrays; those of x are ``near``, of y ``dense``.

    Rows of x that are ``near`` 2 are one element each. Where rows have ``one`` dimension, their
    offsets are multiples.
    """
    at = array(i64, 3)
    begin(at, lo, b, c)
    for u in range(lo, hi):
        source = x + (u * sc if one else offset_of(at, sa, sb, sc))
        to = y + (u * tc if one else offset_of(at, ta, tb, tc))
        for i in range(d):
            to[i if dense else i * td] = source[0 if near == 2 else i if near else i * sd]
        if not one:
            advance(at, b, c)


@inline
def transpose_part(source, to, r0, r1, l0, l1, step, width):
    for r in range(r0, r1):
        for i in range(l0, l1):
            to[r * width + i] = source[r + i * step]


@kernel(strided=True)
def copy_transposed(
    x: Ptr[T], y: Ptr[T], rows: i64, length: i64, step: i64, width: i64, b: i64, sa: i64,
    sb: i64, ta: i64, tb: i64, bands: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Neighbours in x are rows apart in y: a band of SIDE rows, then squares along it.
    for u in range(lo, hi):
        outer = u // bands
        r0 = u % bands * SIDE
        r1 = min(r0 + SIDE, rows)
        source = x + (outer // b * sa + outer % b * sb)
        to = y + (outer // b * ta + outer % b * tb)
        for l0 in range(0, length, SIDE):
            if r1 - r0 == SIDE and l0 + SIDE <= length:
                transpose_part(source + r0, to + r0 * width, 0, SIDE, l0, l0 + SIDE, step, width)
            else:
                transpose_part(source, to, r0, r1, l0, min(l0 + SIDE, length), step, width)


def _shares(units: int, work: int) -> tuple[int, int]:
    return units, threads.how_many(units, max(1, GRAIN // max(work, 1)))


def _word(dtype: np.dtype) -> str | None:
    """The type by which elements are moved."""
    kind = BY_SIZE.get(dtype.itemsize)
    return None if dtype.hasobject else kind


def _merged(shape: Ints, *steps: Ints) -> tuple[list[int], list[list[int]]]:
    """Shape and strides with dimensions taken together that are one in all arrays."""
    sizes: list[int] = []
    found: list[list[int]] = [[] for _ in steps]
    for k, n in enumerate(shape):
        if n == 1:
            continue
        own = [s[k] for s in steps]
        if sizes and all(f[-1] == s * n for f, s in zip(found, own, strict=True)):
            sizes[-1] *= n
            for f, s in zip(found, own, strict=True):
                f[-1] = s
        else:
            sizes.append(n)
            for f, s in zip(found, own, strict=True):
                f.append(s)
    return sizes, found


def _four(values: list[int], fill: int) -> list[int]:
    return [fill] * (4 - len(values)) + values


@functools.lru_cache(512)
def _plan(shape: Ints, strides: Ints, dtype: np.dtype) -> tuple[Any, Ints, int, int] | None:
    """How to copy an array: the loop, its numbers, the range to divide and the work in it."""
    kind, size = _word(dtype), dtype.itemsize
    if kind is None or any(s % size for s in strides):
        return None
    sizes, (steps,) = _merged(shape, tuple(s // size for s in strides))
    if len(sizes) > 4:
        return None
    if len(sizes) <= 1 and (not steps or steps[0] == 1):
        return convert.get(kind, kind, to=PLAIN), (), prod(shape), 1
    if steps[-1] not in (0, 1) and 1 in steps:
        return _transposing(kind, sizes, steps)
    _, b, c, d = _four(sizes, 1)
    near = {0: 2, 1: 1}.get(steps[-1], 0)
    run = copy_rows.get(kind, near=near, dense=True, one=len(sizes) < 3)
    return run, (b, c, d, *_four(steps, 0), b * c * d, c * d, d, 1), prod(shape) // d, d


def _transposing(kind: str, sizes: list[int], steps: list[int]) -> tuple[Any, Ints, int, int]:
    """The plan where the last dimension of the result is not the one with unit stride."""
    targets = [prod(sizes[k + 1 :]) for k in range(len(sizes))]
    near = len(steps) - 1 - steps[::-1].index(1)
    rest = [k for k in range(len(sizes) - 1) if k != near]
    outer, (sa, sb), (ta, tb) = (
        [fill] * (2 - len(rest)) + [of[k] for k in rest]
        for of, fill in ((sizes, 1), (steps, 0), (targets, 0))
    )
    bands = -(-sizes[near] // SIDE)
    numbers = (sizes[near], sizes[-1], steps[-1], targets[near], outer[1], sa, sb, ta, tb, bands)
    return copy_transposed.get(kind), numbers, prod(outer) * bands, SIDE * sizes[-1]


def copied(x: ndarray) -> ndarray | None:
    """A row-major copy of an array of any strides."""
    if buffers.small(x.size, SMALL) or not x.flags.aligned:
        return None
    plan = _plan(x.shape, x.strides, x.dtype)
    if plan is None:
        return None
    run, numbers, units, work = plan
    y = buffers.empty(x.shape, x.dtype)
    run(x, y, *numbers, *_shares(units, work))
    return y


def assign(to: ndarray, source: Any) -> bool:
    """Write an array or a number over an array of any strides; False where a loop can't."""
    if not isinstance(source, ndarray):
        source = np.full(1, source, to.dtype)
        buffers.constant(source)
    kind, size = _word(to.dtype), to.itemsize
    if kind is None or source.dtype != to.dtype:
        return False
    spread = np.broadcast_to(source, to.shape)
    if any(s % size for s in (*spread.strides, *to.strides)):
        return False
    steps = [tuple(s // size for s in a.strides) for a in (spread, to)]
    sizes, (sources, targets) = _merged(to.shape, *steps)
    if len(sizes) > 4:
        return False
    if to.size:
        _, b, c, d = _four(sizes, 1)
        numbers = (b, c, d, *_four(sources, 0), *_four(targets, 0))
        run = copy_rows.get(kind, near=False, dense=False, one=False)
        run(source, to, *numbers, *_shares(to.size // d, d))
    return True


def _memory_order(x: ndarray) -> Ints:
    """The dimensions from the outermost to the innermost in memory."""
    return tuple(sorted(range(x.ndim), key=lambda k: (-abs(x.strides[k]), k)))


@functools.cache
def _inverse(order: Ints) -> Ints:
    return tuple(order.index(k) for k in range(len(order)))


def clone(x: ndarray, memory_format: Any = None) -> ndarray | None:
    """A copy in a memory format, which is a thing with a name."""
    name = getattr(memory_format, "name", "preserve_format")
    if name == "contiguous_format":
        return copied(x)
    if name.startswith("channels_last"):
        if x.ndim != (4 if name == "channels_last" else 5):
            return None
        order: Ints = (0, *range(2, x.ndim), 1)
    elif 0 in x.strides and not x.flags.c_contiguous:
        return None  # the reference decides where repeated dimensions go
    else:
        order = _memory_order(x)
    y = copied(x.transpose(order))
    return None if y is None else y.transpose(_inverse(order))


def reshape(x: ndarray, shape: Ints) -> ndarray | None:
    """Another shape of an array whose elements have to be moved for it."""
    if x.flags.c_contiguous or buffers.small(x.size, SMALL):
        return None
    try:
        return x.reshape(shape, copy=False)
    except ValueError:  # it can't be a view
        y = copied(x)
        return None if y is None else y.reshape(shape)


def cat(*parts: ndarray, dim: int) -> ndarray | None:
    """Arrays of one type joined along a dimension."""
    first = parts[0]
    kind = _word(first.dtype)
    total = sum(p.size for p in parts)
    if (
        kind is None
        or buffers.small(total, max(SMALL, 4096 * len(parts)))
        or not 0 <= dim < first.ndim
    ):
        return None
    shape = first.shape
    for p in parts:
        same = p.ndim == first.ndim and p.dtype == first.dtype
        if not same or p.shape[:dim] + p.shape[dim + 1 :] != shape[:dim] + shape[dim + 1 :]:
            return None
    if all(map(channels_wanted, parts)):  # what all have in common, the result has too
        dim = 0 if not dim else first.ndim - 1 if dim == 1 else dim - 1
        return channels_second(_joined([channels_last(p) for p in parts], dim, kind))
    return _joined(parts, dim, kind)


def _joined(parts: Any, dim: int, kind: str) -> ndarray:
    first = parts[0]
    shape = first.shape
    out = buffers.empty(
        (*shape[:dim], sum(p.shape[dim] for p in parts), *shape[dim + 1 :]), first.dtype
    )
    outer, inner = prod(shape[:dim]), prod(shape[dim + 1 :])
    width, at = out.shape[dim] * inner, pointer(out)
    for p in parts:
        length = p.shape[dim] * inner
        if not p.size:
            continue
        if not p.flags.carray:
            dense = copied(p)
            p = plain(p) if dense is None else dense
        if outer == 1:
            convert.get(kind, kind, to=PLAIN)(p, at, *_shares(length, 1))
        else:
            steps = (0, 0, length, 1, 0, 0, width, 1)
            run = copy_rows.get(kind, near=True, dense=True, one=True)
            run(p, at, 1, outer, length, *steps, *_shares(outer, length))
        at += length * p.itemsize
    return out


def stack(*parts: ndarray, dim: int) -> ndarray | None:
    """Arrays of one shape joined along a new dimension."""
    shape = parts[0].shape
    if any(p.shape != shape for p in parts) or not 0 <= dim <= len(shape):
        return None
    if dim == len(shape):
        longer = (*shape, 1)
        return cat(*(plain(p).reshape(longer) for p in parts), dim=dim)
    joined = cat(*parts, dim=dim)
    return None if joined is None else joined.reshape(*shape[:dim], len(parts), *shape[dim:])


# --- conversions -----------------------------------------------------------------------


@kernel
def convert(x: Ptr[T], y: Ptr[U], to: i64, lo: i64, hi: i64):
    for i in range(lo, hi):
        v = x[i]
        # What does not fit becomes the lowest number, as the processor has it.
        if to == WIDE:
            y[i] = i64(v) if abs(v) < 9223372036854775808.0 else LEAST
        elif to == SHORT:
            y[i] = i32(v) if v > -2147483649.0 and v < 2147483648.0 else i32(LEAST_32)
        elif to == MASK:
            y[i] = v != 0
        else:
            y[i] = v


NAMES = {
    "float32": "f32",
    "float64": "f64",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "bool": "b1",
    "float16": "f16",
    "bfloat16": "bf16",
}
# A mask or a whole number becomes any number that holds it, a float another float.
WHOLE = ("i64", "i32", "i16", "i8", "u8", "b1")


@functools.cache
def _converter(source: np.dtype, target: np.dtype) -> Any:
    """The loop that converts, or None."""
    a, b = NAMES.get(source.name), NAMES.get(target.name)
    if a is None or b is None or a == b or not (source.isnative and target.isnative):
        return None
    to = PLAIN
    if "bf16" in (a, b):
        known = "f32" in (a, b)
    elif "f16" in (a, b):
        known = (a, b) in (("f32", "f16"), ("f16", "f32"), ("f16", "f64")) and reads_half()
    elif b in ("b1", "f32", "f64") or a not in ("f32", "f64"):
        known, to = True, MASK if b == "b1" else PLAIN
    else:
        known, to = b in ("i64", "i32"), WIDE if b == "i64" else SHORT
    return convert.get(a, b, to=to) if known else None


def to_copy(x: ndarray, dtype: np.dtype) -> ndarray | None:
    """An array in another type, in its own layout."""
    if buffers.small(x.size, SMALL_CHOICE) or not x.flags.aligned:
        return None
    run = _converter(x.dtype, dtype)
    if run is None:
        return None
    if x.flags.c_contiguous:
        y = buffers.empty(x.shape, dtype)
        run(x, y, *_shares(x.size, 1))
        return y
    order = _memory_order(x)
    ordered = x.transpose(order)
    if not ordered.flags.c_contiguous:
        return None
    return to_copy(ordered, dtype).transpose(_inverse(order))  # type: ignore[union-attr]


# --- choices ---------------------------------------------------------------------------


@kernel
def choose_rows(
    mask: Ptr[b1], a: Ptr[T], b: Ptr[T], y: Ptr[T], m: i64, n: i64, d: i64, sa: i64, sb: i64,
    sc: i64, sd: i64, near: i64, one_a: i64, one_b: i64, lo: i64, hi: i64,
):  # fmt: skip
    first = a[0]
    second = b[0]
    place = array(i64, 3)
    begin(place, lo, m, n)
    for u in range(lo, hi):
        row = mask + offset_of(place, sa, sb, sc)
        x = a + u * d
        z = b + u * d
        to = y + u * d
        for i in range(d):
            taken = row[i if near else i * sd]
            if one_a:
                to[i] = first if taken else z[i]
            else:
                to[i] = x[i] if taken else (second if one_b else z[i])
        advance(place, m, n)


def where(condition: Any, a: Any, b: Any) -> ndarray | None:
    """``a`` where a mask is true, else ``b``; each a single value or of the result's shape."""
    if not all(isinstance(v, ndarray) for v in (condition, a, b)):
        return None
    kind = _word(a.dtype)
    one_a, one_b = not a.ndim, not b.ndim
    full = b if one_a else a
    if (
        kind is None
        or a.dtype != b.dtype
        or condition.dtype != np.bool_
        or (one_a and one_b)
        or not (one_a or one_b or a.shape == b.shape)
        or buffers.small(full.size, SMALL_CHOICE)
        or condition.ndim > full.ndim
    ):
        return None
    shape = full.shape
    plan = _choice(shape, condition.shape, condition.strides)
    if plan is None:
        return None
    if not full.flags.c_contiguous:
        return _where_last(condition, a, b, full)
    sizes, steps = plan
    a, b = plain(a), plain(b)
    y = buffers.empty(shape, a.dtype)
    _, m, n, d = sizes
    choose_rows.get(kind, near=steps[-1] == 1, one_a=one_a, one_b=one_b)(
        *(condition, a, b, y, m, n, d, *steps),
        *_shares(y.size // d, d),
    )
    return y


def _where_last(condition: ndarray, a: ndarray, b: ndarray, full: ndarray) -> ndarray | None:
    """A choice between arrays with their channels innermost, which the result has too."""
    if any(v.ndim and not is_last(v) for v in (a, b)):
        return None
    mask = channels_last(np.broadcast_to(condition, full.shape))
    y = where(mask, *(channels_last(v) if v.ndim else v for v in (a, b)))
    return None if y is None else channels_second(y)


@functools.lru_cache(512)
def _choice(shape: Ints, given: Ints, strides: Ints) -> tuple[list[int], list[int]] | None:
    """Four sizes of a result, and the steps of a mask that is repeated to its shape."""
    lead = len(shape) - len(given)
    if any(n not in (1, size) for n, size in zip(given, shape[lead:], strict=True)):
        return None
    steps = (0,) * lead + tuple(
        0 if n == 1 else step for n, step in zip(given, strides, strict=True)
    )
    dense = tuple(prod(shape[k + 1 :]) for k in range(len(shape)))
    sizes, (_, found) = _merged(shape, dense, steps)
    return None if len(sizes) > 4 else (_four(sizes, 1), _four(found, 0))


def masked_fill(x: ndarray, value: Any, mask: ndarray) -> ndarray | None:
    """A copy with one value where a mask is true."""
    if not x.ndim or not isinstance(value, ndarray) or value.ndim:
        return None
    return where(mask, value, x)


@kernel
def triangle_rows(
    x: Ptr[T], y: Ptr[T], rows: i64, width: i64, diagonal: i64, lower: i64, lo: i64, hi: i64
):
    for u in range(lo, hi):
        source = x + u * width
        to = y + u * width
        edge = min(max(u % rows + diagonal + (1 if lower else 0), 0), width)
        for i in range(edge):
            to[i] = source[i] if lower else 0
        for i in range(edge, width):
            to[i] = 0 if lower else source[i]


def _triangle(lower: bool, x: ndarray, diagonal: int) -> ndarray | None:
    kind = INTEGERS.get(_word(x.dtype) or "")
    if kind is None or x.ndim < 2 or buffers.small(x.size, SMALL_CHOICE):
        return None
    x = plain(x)
    y = buffers.empty(x.shape, x.dtype)
    rows, width = x.shape[-2:]
    # Beyond the matrix a diagonal makes no more difference.
    diagonal = min(max(diagonal, -rows - 1), width + 1)
    triangle_rows.get(kind, lower=lower)(
        *(x, y, rows, width, diagonal), *_shares(x.size // width, width)
    )
    return y


# The lower and upper triangles of matrices; zeros elsewhere.
tril, triu = functools.partial(_triangle, True), functools.partial(_triangle, False)


# --- padding -----------------------------------------------------------------------


@kernel
def pad_rows(
    x: Ptr[T], y: Ptr[T], value: T, a: i64, b: i64, c: i64, d: i64, pa: i64, pb: i64, pc: i64,
    pd: i64, ob: i64, oc: i64, od: i64, lo: i64, hi: i64,
):  # fmt: skip
    for u in range(lo, hi):
        i = u // (ob * oc) - pa
        j = u // oc % ob - pb
        k = u % oc - pc
        to = y + u * od
        inside = i >= 0 and i < a and j >= 0 and j < b and k >= 0 and k < c
        if inside:
            source = x + ((i * b + j) * c + k) * d
            for t in range(pd):
                to[t] = value
            for t in range(d):
                to[pd + t] = source[t]
            for t in range(pd + d, od):
                to[t] = value
        else:
            for t in range(od):
                to[t] = value


def pad(x: ndarray, pads: Any, value: Any) -> ndarray | None:
    """Padding around an array, filled with a value; negative padding cuts off."""
    kind = FLOATS.get(x.dtype)
    if kind is None or not x.ndim or isinstance(value, complex):
        return None
    if abs(value) > 3.4e38 and abs(value) != np.inf:
        return None  # may not fit
    plan = _padding(x.shape, tuple(pads))
    if plan is None:
        return None
    cut, shape, numbers, units, width = plan
    if buffers.small(prod(shape), SMALL_CHOICE):
        return None
    x = x[cut]
    if not numbers:
        return copied(x)
    x = _in_rows(x)
    y = buffers.empty(shape, x.dtype)
    pad_rows.get(kind)(x, y, value, *numbers, *_shares(units, width))
    return y


@functools.lru_cache(512)
def _padding(shape: Ints, pads: tuple[Ints, ...]) -> tuple[Any, Ints, Ints, int, int] | None:
    """How to pad: the part that is kept, the new shape, the loop's numbers, rows and width."""
    cut = tuple(
        slice(max(-before, 0), n - max(-after, 0))
        for n, (before, after) in zip(shape, pads, strict=True)
    )
    kept = [n + min(p, 0) + min(q, 0) for n, (p, q) in zip(shape, pads, strict=True)]
    padding = [(max(before, 0), max(after, 0)) for before, after in pads]
    full = tuple(n + p + q for n, (p, q) in zip(kept, padding, strict=True))
    if min(kept) < 1:
        return None
    if not any(p or q for p, q in padding):
        return cut, full, (), 0, 0
    sizes, padding = _joined_padding(kept, padding)
    if len(sizes) > 4:
        return None
    sizes, padding = _four(sizes, 1), [(0, 0)] * (4 - len(padding)) + padding
    out = [n + p + q for n, (p, q) in zip(sizes, padding, strict=True)]
    return cut, full, (*sizes, *(p for p, _ in padding), *out[1:]), prod(out[:-1]), out[-1]


def _joined_padding(sizes: list[int], padding: list[Any]) -> tuple[list[int], list[Any]]:
    """Dimensions without padding taken together with those before them."""
    none = (0, 0)
    joined, around = sizes[:1], padding[:1]
    for n, r in zip(sizes[1:], padding[1:], strict=True):
        if r == none:  # whole slices: the padding before them is that many times as wide
            joined[-1] *= n
            around[-1] = (around[-1][0] * n, around[-1][1] * n)
        else:
            joined.append(n)
            around.append(r)
    return joined, around


def _in_rows(x: ndarray) -> ndarray:
    """The array in row-major order, copied by all threads if it has to be."""
    if x.flags.c_contiguous and x.flags.aligned:
        return x
    made = copied(x)
    return plain(x) if made is None else made
