"""Reductions over any dimensions.

An array is seen as (outer, reduced, inner) and reduced along the middle by a row program; where
reduced dimensions have others between them, in several steps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, T, i64
from weft.native.codegen.jit import entry_points, kernel
from weft.native.codegen.row_programs import (
    Along,
    Each,
    Length,
    Number,
    RowProgram,
    at_least,
    first_largest,
    first_least,
    largest,
    least,
    product,
    root,
    rounded,
    row_program,
    total,
)
from weft.native.loops import short_reductions, sums
from weft.native.loops.movement import to_copy
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray
b1 = Any  # a mask, for annotations

# Elements that are worth a thread, and below which NumPy is as fast.
GRAIN = 32768
SMALL = 8192
INTEGERS = np.dtype(np.int64)
# Variances of float32 below this may have lost squares to underflow.
FAINT = 1e-30


# --- programs ----------------------------------------------------------------------------


class Reduction:
    """A kind of reduction, of a function of elements, and what becomes of the result in the end.

    ``by`` is a number for that end. Over several steps only the first has the one, and only the
    last the other.
    """

    def __init__(
        self,
        name: str,
        reduce: Callable[[Any], Any],
        term: Callable[[Any], Any] = lambda x: x,
        finish: Callable[[Any, Any], Any] = lambda found, by: found,
    ) -> None:
        self.name, self.reduce, self.term, self.finish = name, reduce, term, finish
        self.program = functools.cache(self._program)

    def _program(self, first: bool, last: bool) -> RowProgram:
        def function(x: Along, by: Number) -> Any:
            found = self.reduce(self.term(x) if first else x)
            return self.finish(found, by) if last else found

        function.__name__ = self.name
        return RowProgram(function, grain=GRAIN)


SUM = Reduction("sum", total)
MEAN = Reduction("mean", total, finish=lambda found, by: found / by)
NORM = Reduction("norm", total, lambda x: x * x, lambda found, by: root(found))
SIZES = Reduction("sizes", total, abs)
LARGEST, SMALLEST = Reduction("largest", largest), Reduction("least", least)
PRODUCT = Reduction("product", product)
# Above zero where any element is not zero, or none is.
ANY = Reduction("any", total, lambda x: np.where(x != 0.0, 1.0, 0.0))
ALL = Reduction("all", total, lambda x: np.where(x == 0.0, 1.0, 0.0), lambda zeros, by: 1.0 - zeros)


@row_program(grain=GRAIN)
def _spread(x: Along, centre: Each, freedom: Number, n: Length) -> Any:
    centre = rounded(total(x) / n) if centre is None else centre
    gap = x - centre
    # What the rounding of the mean added to the squares is taken off again.
    rest = total(gap)
    var = at_least(total(gap * gap) - rest * rest / n, 0.0) / freedom
    return var, root(var)


@row_program(grain=GRAIN)
def _largest_with_place(x: Along) -> Any:
    return first_largest(x)


@row_program(grain=GRAIN)
def _least_with_place(x: Along) -> Any:
    return first_least(x)


@kernel
def _above_zero(x: Ptr[T], y: Ptr[b1], lo: i64, hi: i64) -> None:
    for i in range(lo, hi):
        y[i] = x[i] > 0.0


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
    """A dense array in memory order, its axes there, and the permutation that restores results."""
    if x.flags.c_contiguous and x.flags.aligned:
        return x, axes, None
    order = sorted(range(x.ndim), key=lambda d: -abs(x.strides[d]) if x.shape[d] > 1 else 0)
    transposed = x.transpose(order)
    if not (transposed.flags.c_contiguous and x.flags.aligned):
        return plain(x), axes, None
    place = {axis: k for k, axis in enumerate(order)}
    return transposed, tuple(sorted(place[a] for a in axes)), tuple(place[d] for d in range(x.ndim))


# --- running -----------------------------------------------------------------------------


@functools.lru_cache(512)
def step(
    kind: Reduction, d: str, shape: tuple[int, int, int], first: bool = True, last: bool = True
) -> Callable[[ndarray, ndarray, float], None]:
    """What reduces (outer, reduced, inner) to (outer, inner)."""
    return kind.program(first, last).whole.runner(d, *shape)


@functools.lru_cache(512)
def _plan(
    kind: Reduction,
    dtype: np.dtype,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    keepdims: bool,
) -> Callable[[ndarray], ndarray] | None:
    """What reduces row-major arrays of a shape."""
    found, d = steps(shape, axes), FLOATS.get(dtype)
    if not found or d is None or not prod(shape) or not valid(axes, len(shape)):
        return None
    by, final = float(prod(s[1] for s in found)), result_shape(shape, axes, keepdims)
    ends = range(len(found))
    made = [step(kind, d, s, i == 0, i == ends[-1]) for i, s in zip(ends, found, strict=True)]
    if len(made) == 1:
        only, empty = made[0], buffers.empty

        def run(x: ndarray) -> ndarray:
            out = empty(final, dtype)
            only(x, out, by)
            return out

        return run

    def run_all(x: ndarray) -> ndarray:
        for one, (outer, _, k) in zip(made, found, strict=True):
            out = buffers.empty(outer * k, dtype)
            one(x, out, by)
            x = out
        return x.reshape(final)

    return run_all


def _reduced(kind: Reduction, x: ndarray, axes: tuple[int, ...], keepdims: bool) -> ndarray | None:
    """A reduction of a float array, or None where NumPy is as good."""
    if buffers.small(x.size, SMALL):
        return None
    flags = x.flags
    if flags.c_contiguous and flags.aligned:
        plan = _plan(kind, x.dtype, x.shape, axes, keepdims)
        return None if plan is None else plan(x)
    if x.dtype not in FLOATS or not valid(axes, x.ndim):
        return None
    if repeats(x):
        if buffers.PLANNERS and buffers.planner() is not None:  # NumPy's products have no values
            return _reduced(kind, buffers.copied(x), axes, keepdims)
        return _sum_of_repeated(kind, x, axes, keepdims) if kind in (SUM, MEAN) else None
    transposed, places, back = in_memory_order(x, axes)
    plan = _plan(kind, transposed.dtype, transposed.shape, places, True)
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
    kind: Reduction, x: ndarray, axes: tuple[int, ...], keepdims: bool
) -> ndarray | None:
    """A sum in which what is repeated is multiplied."""
    index = [slice(1) if x.strides[d] == 0 and d in axes else slice(None) for d in range(x.ndim)]
    once = x[tuple(index)]
    if repeats(once):
        return None
    total, mean = _reduced(kind, once, axes, keepdims), kind is MEAN
    if total is None:
        total = np.asarray(np.add.reduce(once, axis=axes, keepdims=keepdims))
        total = total / x.dtype.type(prod(once.shape[d] for d in axes)) if mean else total
    return total if mean else np.asarray(total * x.dtype.type(x.size // once.size))


# --- the ops -----------------------------------------------------------------------------


def _integer_sum(x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray:
    """The same of whole numbers, for plans: NumPy is as fast."""
    rows = plain(x.transpose(*(d for d in range(x.ndim) if d not in dim), *dim))
    out = buffers.empty(result_shape(x.shape, dim, keepdim), x.dtype)
    n = x.size // max(out.size, 1)
    short_reductions.integer_rows.get()(
        rows, out, n, out.size, threads.how_many(out.size, max(1, GRAIN // n))
    )
    return out


def sum_over(x: ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> ndarray | None:
    """The sum over some dimensions."""
    if buffers.PLANNERS and buffers.planner() is not None and x.dtype == np.int64:
        return _integer_sum(x, dim, keepdim) if x.size and valid(dim, x.ndim) else None
    if buffers.small(x.size, SMALL):
        if keepdim:
            return None
        whole = x.dtype is INTEGERS
        return short_reductions.integers(x, dim) if whole else sums.small(x, dim, False)
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
    return _reduced(MEAN, x, dim, keepdim)


def product_over(
    x: ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0
) -> ndarray | None:
    """The product over one dimension or all."""
    # Over several steps, what is between them may be beyond the type where the product is not.
    if len(dim) not in (1, x.ndim):
        return None
    return _reduced(PRODUCT, x, dim, keepdim)


def _extreme(kind: Reduction, x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    if buffers.small(x.size, SMALL):
        return None if keepdim else short_reductions.extreme(x, dim, kind is SMALLEST)
    return _reduced(kind, x, dim, keepdim)


def _extreme_of_all(kind: Reduction, x: ndarray) -> ndarray | None:
    if buffers.small(x.size, SMALL):
        rows = short_reductions.least_rows if kind is SMALLEST else short_reductions.greatest_rows
        return short_reductions.entry(rows, "f32", "f32", True)(x)
    return _reduced(kind, x, tuple(range(x.ndim)), False)


# The greatest or least over some dimensions, or of all elements; NaN wins.
amax, amin = partial(_extreme, LARGEST), partial(_extreme, SMALLEST)
max_of_all, min_of_all = partial(_extreme_of_all, LARGEST), partial(_extreme_of_all, SMALLEST)


def _truth(kind: Reduction, x: ndarray, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    if buffers.small(x.size, SMALL):
        return None if keepdim else short_reductions.truth(x, dim, kind is ALL)
    return _as_mask(_reduced(kind, x, dim, keepdim))


# Whether any element over some dimensions is not zero, or none is zero.
any_over, all_over = partial(_truth, ANY), partial(_truth, ALL)


def _as_mask(found: ndarray | None) -> ndarray | None:
    """Whether numbers are above zero."""
    if found is None:
        return None
    found, mask = plain(found), buffers.empty(found.shape, np.bool_)
    many = threads.how_many(mask.size, GRAIN)
    _above_zero.get(FLOATS[found.dtype])(found, mask, mask.size, many)
    return mask


def vector_norm(x: ndarray, p: float, dim: tuple[int, ...], keepdim: bool) -> ndarray | None:
    """The 2-norm or 1-norm over some dimensions."""
    single = valid(dim, x.ndim) and prod(x.shape[d] for d in dim) == 1  # its square may overflow
    if p == 2 and not single:
        return _reduced(NORM, x, dim, keepdim)
    return _reduced(SIZES, x, dim, keepdim) if p == 1 or (p and single) else None


# --- spread ------------------------------------------------------------------------------


def one_step(x: ndarray, dim: tuple[int, ...]) -> tuple[ndarray, tuple[int, int, int], Any]:
    """An array reduced in one step, its shape for that, and the order that restores results."""
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
    """The flat result of one step in its shape, permuted back from memory order."""
    final = result_shape(shape, dim, keepdim)
    if back is None:
        return out.reshape(final)
    ordered = [1] * len(shape)
    for d, place in enumerate(back):
        ordered[place] = 1 if d in dim else shape[d]
    return out.reshape(ordered).transpose(back).reshape(final)


@functools.lru_cache(512)
def _spread_step(
    d: str, shape: tuple[int, int, int], root: bool
) -> Callable[[ndarray, ndarray, float], None]:
    """Variances, or their roots, along the middle of (outer, reduced, inner)."""
    wanted = (not root, root)
    about = _spread.variant(wanted=wanted).in_parts(d, *shape)
    if about is None:
        return _spread.variant(frozenset({"centre"}), wanted).runner(d, *shape)
    mean, count = step(MEAN, d, shape), float(shape[1])

    def run(x: ndarray, out: ndarray, freedom: float) -> None:
        centre = buffers.empty_like(out)
        mean(x, centre, count)
        about(x, centre, out, freedom)

    return run


def _deviations(
    root: bool, x: ndarray, dim: tuple[int, ...], keepdim: bool, correction: float
) -> ndarray | None:
    if buffers.small(x.size, SMALL) or x.dtype not in FLOATS:
        return None
    if repeats(x) or not valid(dim, x.ndim):
        return None
    if x.dtype == np.float32 and buffers.planner() is not None:
        # A plan can't look for squares that overflow or vanish; in double precision none do.
        wide = to_copy(x, np.dtype(np.float64))
        found = None if wide is None else _deviations(root, wide, dim, keepdim, correction)
        return None if found is None else to_copy(found, x.dtype)
    transposed, sizes, back = one_step(x, dim)
    outer, n, k = sizes
    if n == 1:
        return None
    out = buffers.empty(outer * k, x.dtype)
    _spread_step(FLOATS[x.dtype], sizes, root)(transposed, out, float(max(n - correction, 0)))
    faint = FAINT**0.5 if root else FAINT
    if x.dtype == np.float32 and not np.all((out > faint) & (out < np.inf)) and np.ptp(x):
        return None  # squares that overflowed or vanished: the reference has double precision
    return put_back(out, x.shape, dim, keepdim, back)


var, std = partial(_deviations, False), partial(_deviations, True)


# --- places ------------------------------------------------------------------------------


BOTH, PLACE = (True, True), (False, True)  # which results of a choice are wanted


@entry_points
def _small_pick(program: RowProgram, wanted: tuple[bool, bool]) -> Callable:
    """The choice along the last dimension of a small array as one call."""
    variant = program.variant(wanted=wanted)
    return variant.entry(variant.rows, "lead")


@functools.lru_cache(512)
def _pick_step(
    program: RowProgram, wanted: tuple[bool, bool], d: str, outer: int, n: int, k: int
) -> Callable[..., None]:
    return program.variant(wanted=wanted).runner(d, outer, n, k)


def _picked(
    program: RowProgram, x: ndarray, dim: int, keepdim: bool, wanted: tuple[bool, bool] = BOTH
) -> Any:
    """The selected element of each row and its index, or None where NumPy is as fast."""
    if buffers.small(x.size, SMALL):
        small = not keepdim and dim == x.ndim - 1
        return _small_pick(program, wanted)(x) if small else None
    d = FLOATS.get(x.dtype)
    if d is None or repeats(x) or not x.size or not 0 <= dim < x.ndim:
        return None
    if x.shape[dim] >= 1 << 31:
        return None  # kernels store the indices of columns in 32 bits
    x, shape = plain(x), result_shape(x.shape, (dim,), keepdim)
    outer, n, k = prod(x.shape[:dim]), x.shape[dim], prod(x.shape[dim + 1 :])
    places = buffers.empty(shape, np.int64)
    out = (buffers.empty(shape, x.dtype), places) if wanted[0] else (places,)
    _pick_step(program, wanted, d, outer, n, k)(x, *out)
    return out if wanted[0] else places


def _place(program: RowProgram, x: ndarray, dim: int | None, keepdim: bool) -> ndarray | None:
    if dim is not None:
        return _picked(program, x, dim, keepdim, PLACE)
    found = _picked(program, x.reshape(-1), 0, False, PLACE) if x.flags.c_contiguous else None
    return None if found is None else found.reshape((1,) * x.ndim if keepdim else ())


# The place of the greatest or least: the first one, or the first NaN; and both along a dimension.
argmax, argmin = partial(_place, _largest_with_place), partial(_place, _least_with_place)
max_dim, min_dim = partial(_picked, _largest_with_place), partial(_picked, _least_with_place)
