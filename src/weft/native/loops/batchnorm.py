"""Batch norm, with the statistics of each channel or with given ones.

Arrays come as planes, (N, C, S) with a plane of S elements for each channel of a sample, or as
rows, (R, C) with the channels innermost. All of it is row programs, a channel being a row. With too
few channels for all threads, blocks of a channel have separate statistics, which are then combined;
blocks depend only on the shape, so results don't depend on the number of threads.
"""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.jit import entry_points
from weft.native.codegen.row_programs import (
    Along,
    Each,
    Length,
    Number,
    RowProgram,
    if_finite,
    rounded,
    row_program,
    sqrt,
    total,
)
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, in_layout, is_last, made_like, plain

ndarray = np.ndarray

# Elements of one channel that are summed in the array's own type, or that are worth a part.
BLOCK = 8192
# Elements of a block of rows, which is read twice and should stay in the cache.
ROW_BLOCK = 16384
# With so few channels the planes are divided, not the channels.
FEW = 8
# Channels that are done at a time where they are innermost; of fewer, several rows.
TILE = 64
# Rows of at most so many elements in all are done in one call, channels divided.
ONE_PASS = 131072
# Elements that are worth a thread, and the parts that are enough for all threads.
GRAIN = 16384
ENOUGH = 16
FEW_IN_ALL = 511  # elements, up to which matrices are done in the order of the reference

# --- programs: one channel is a row --------------------------------------------------------


def _moments_of(x: Any, n: Any) -> tuple[Any, Any, Any]:
    """The rounded mean, what it is off by, and the variance."""
    rough = rounded(total(x) / n)
    gap = x - rough
    # What the rounded mean is off by is in the sum of the distances from it.
    rest = total(gap) / n
    return rough, rest, rounded(total(gap * gap) / n - rest * rest)


@row_program
def _norm(x: Along, weight: Each, bias: Each, eps: Number, n: Length) -> Any:
    rough, rest, var = _moments_of(x, n)
    mean = if_finite(rest, rough + rest, rough)
    scale = rounded(1.0 / sqrt(var + eps))
    scale = scale if weight is None else scale * weight
    y = (x - mean) * scale
    return y if bias is None else y + bias, mean, var


@row_program
def _moments(x: Along, n: Length) -> Any:
    return _moments_of(x, n)


@row_program
def _joined(
    rough: Along, rest: Along, var: Along, last_rough: Each, last_rest: Each, last_var: Each,
    share: Number, last_share: Number,
) -> Any:  # fmt: skip
    """Mean and variance from the moments of blocks of one size, and of a last one of another."""
    first = total(rough) * share
    common = rounded(first if last_rough is None else first + last_rough * last_share)
    gap = (rough - common) + rest
    off, spread = total(gap) * share, total(var + gap * gap) * share
    if last_rough is not None:
        last = last_rough - common + last_rest
        off = off + last * last_share
        spread = spread + (last_var + last * last) * last_share
    return if_finite(off, common + off, common), rounded(spread - off * off)


@row_program
def _fixed(x: Along, weight: Each, bias: Each, mean: Each, var: Each, eps: Number) -> Any:
    scale = rounded(1.0 / sqrt(var + eps))
    y = (x - mean) * (scale if weight is None else scale * weight)
    return y if bias is None else y + bias


@row_program
def norm_back(
    g: Along, x: Along, weight: Each, mean: Each, var: Each, rstd: Each, g_mean: Each, g_var: Each,
    along: Each, whole: Each, eps: Number, n: Length,
) -> Any:  # fmt: skip
    gap = x - mean
    rstd = 1.0 / sqrt(var + eps) if rstd is None else rstd
    along = total(g * gap) * rstd if along is None else along
    whole = total(g) if whole is None else whole
    scale = rstd if weight is None else rstd * weight
    shift = ((0.0 if g_mean is None else g_mean) - scale * whole) / n
    slope = ((0.0 if g_var is None else 2.0 * g_var) - scale * rstd * along) / n
    return g * scale + gap * slope + shift, along, whole


@row_program
def _fixed_back(g: Along, x: Along, weight: Each, mean: Each, var: Each, eps: Number) -> Any:
    rstd = 1.0 / sqrt(var + eps)
    scale = rstd if weight is None else rstd * weight
    return g * scale, total(g * (x - mean)), total(g)


# --- calls -----------------------------------------------------------------------------


class _Form:
    """The geometry of one kind of call: planes or rows, and how they are cut into blocks."""

    __slots__ = ("at_once", "blocks", "c", "n", "planes", "rows", "s", "together")

    def __init__(self, shape: tuple[int, ...], last: bool) -> None:
        n, c, s = shape[0], shape[1], prod(shape[2:])
        self.planes = not last and s > 1
        if not self.planes:
            n, s = n * s, 1
        self.n, self.c, self.s = n, c, s
        self.together = max(1, TILE // c)  # rows that are taken as one
        if self.planes:
            self.at_once = c >= FEW or n * s <= BLOCK
            self.blocks = 1  # of a plane
            while n * c * self.blocks < ENOUGH and not s % (2 * self.blocks):
                self.blocks *= 2
            self.rows = s // self.blocks
        else:
            # Few rows: one thread does all for its channels.
            self.at_once = n <= 2048 and (n * c <= ONE_PASS or c >= FEW * TILE)
            lines = n // self.together
            most = min(max(128, ROW_BLOCK // (c * self.together)), 512)
            self.blocks = -(-lines // most)
            self.rows = lines // max(self.blocks, 1)

    def seen(self, *arrays: Any) -> list[ndarray]:
        """The arrays that are there as loops see them: planes, matrices of rows, vectors."""
        found = [a for a in arrays if a is not None]
        return found if self.planes else [a if a.ndim == 1 else self.matrix(a) for a in found]

    def matrix(self, x: ndarray) -> ndarray:
        if x.ndim == 2:
            return x
        return x.transpose(0, *range(2, x.ndim), 1).reshape(self.n, self.c)


_form = functools.lru_cache(512)(_Form)


@functools.lru_cache(512)
def _runner(
    program: RowProgram, f: _Form, kind: str, there: tuple[bool, ...], wanted: Any = None
) -> Any:
    """What runs a program on arrays of a form, a channel being a row.

    ``there`` says which of the inputs with a number for each channel are there.
    """
    names = [p for p, about in program.parameters.items() if about == "Each"]
    absent = [name for name, here in zip(names, there, strict=True) if not here]
    variant = program.variant(frozenset(absent), wanted)
    if not f.planes:
        return variant.runner(kind, 1, f.n, f.c, 0 if variant.traced.in_parts else TILE)
    if program is _fixed:
        run, over, grain = variant.cyclic.get(kind), f.n * f.c, max(1, GRAIN // f.s)
        return lambda *given: run(*given, f.s, f.c, over, threads.how_many(over, grain))
    run, grain = variant.planes.get(kind), max(1, GRAIN // (f.n * f.s))
    chunk = min(f.s, BLOCK)
    sizes = (f.n, f.c, f.s, max(1, BLOCK // chunk), chunk, f.c)
    return lambda *given: run(*given, *sizes, threads.how_many(f.c, grain))


@functools.lru_cache(512)
def _block_runner(kind: str, outer: int, n: int, k: int) -> Any:
    return _moments.whole.runner(kind, outer, n, k)


def _kind(x: ndarray, *vectors: Any) -> str | None:
    """The type of an array and of vectors with a number for each of its channels.

    None if there are no loops for it, or if a vector does not fit.
    """
    kind = FLOATS.get(x.dtype)
    if kind is None or x.ndim < 2 or not x.size:
        return None
    channels = x.shape[1:2]
    for v in vectors:
        if v is not None and (v.dtype != x.dtype or v.shape != channels):
            return None
    return kind


def _alike(g: ndarray, x: ndarray) -> bool:
    return g.dtype == x.dtype and g.shape == x.shape


def _vectors(*vectors: ndarray | None) -> list[Any]:
    return [None if v is None else plain(v) for v in vectors]


def batch_norm(
    x: ndarray, weight: Any, bias: Any, eps: float
) -> tuple[ndarray, ndarray, ndarray] | None:
    """Each channel shifted and scaled by its own mean and variance; and these."""
    kind = _kind(x, weight, bias)
    if kind is None:
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    weight, bias = _vectors(weight, bias)
    y = made_like(x, x.shape, last)
    mean, var = buffers.empty(f.c, x.dtype), buffers.empty(f.c, x.dtype)
    there = (weight is not None, bias is not None)
    if f.at_once:
        _runner(_norm, f, kind, there)(*f.seen(x, weight, bias, y, mean, var), eps)
    else:
        _statistics(f, kind, x, mean, var)
        run = _runner(_fixed, f, kind, (*there, True, True))
        run(*f.seen(x, weight, bias, mean, var, y), eps)
    return y, mean, var


def _statistics(f: _Form, kind: str, x: ndarray, mean: ndarray, var: ndarray) -> None:
    """The moments of blocks, which threads share, and from them the statistics of channels."""
    blocks, rows, c = f.blocks, f.rows, f.c
    if f.planes:
        count = f.n * c * blocks
        made = buffers.empty((3, count), x.dtype)
        _block_runner(kind, count, rows, 1)(x, *made)
        join = _runner(_joined, _form((f.n, c, blocks), False), kind, (False,) * 3)
        join(*made, mean, var, 1.0 / (f.n * blocks), 0.0)
        return
    (x,) = f.seen(x)
    parts = blocks * f.together
    done = parts * rows
    made = buffers.empty((3, parts + 1, c), x.dtype)
    _block_runner(kind, blocks, rows, c * f.together)(x, *made)
    last = list(made[:, parts]) if done < f.n else []
    if last:
        _block_runner(kind, 1, f.n - done, c)(x[done:], *last)
    join = _runner(_joined, _form((parts, c), False), kind, (bool(last),) * 3)
    join(*made, *last, mean, var, rows / f.n, 1.0 - done / f.n)


def batch_norm_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, Any, Any] | None:
    """The gradients of ``batch_norm`` for its input, weight and bias, as needed."""
    gy, g_mean, g_var = g
    kind = _kind(x, weight, mean, var, g_mean, g_var)
    if kind is None or gy is None or not _alike(gy, x):
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    gy, mean, var = in_layout(gy, last), plain(mean), plain(var)
    weight, g_mean, g_var = _vectors(weight, g_mean, g_var)
    gx = made_like(x, x.shape, last) if needs[0] else None
    along, whole = buffers.empty(f.c, x.dtype), buffers.empty(f.c, x.dtype)
    given = (gy, x, weight, mean, var, g_mean, g_var)
    there = (weight is not None, True, True, False, g_mean is not None, g_var is not None)
    if f.planes or f.at_once or gx is None:
        run = _runner(norm_back, f, kind, (*there, False, False), (gx is not None, True, True))
        run(*f.seen(*given, gx, along, whole), eps)
    else:  # sums first, which threads share
        run = _runner(norm_back, f, kind, (*there, False, False), (False, True, True))
        run(*f.seen(*given, along, whole), eps)
        run = _runner(norm_back, f, kind, (*there, True, True), (True, False, False))
        run(*f.seen(*given, along, whole, gx), eps)
    return gx, along if needs[1] else None, whole if needs[2] else None


def batch_norm_fixed(
    x: ndarray, weight: Any, bias: Any, mean: ndarray, var: ndarray, eps: float
) -> ndarray | None:
    """Each channel shifted and scaled by a given mean and variance."""
    kind = _kind(x, weight, bias, mean, var)
    if kind is None:
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    y = made_like(x, x.shape, last)
    weight, bias = _vectors(weight, bias)
    run = _runner(_fixed, f, kind, (weight is not None, bias is not None, True, True))
    run(*f.seen(x, weight, bias, plain(mean), plain(var), y), eps)
    return y


def batch_norm_fixed_back(
    g: ndarray, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, ...] | None:
    """The gradients of ``batch_norm_fixed`` for all its inputs, as needed."""
    kind = _kind(x, weight, mean, var)
    if kind is None or not _alike(g, x):
        return None
    last = is_last(x)
    x, f = in_layout(x, last), _form(x.shape, last)
    g, mean, var = in_layout(g, last), plain(mean), plain(var)
    (weight,) = _vectors(weight)
    gx = made_like(x, x.shape, last) if needs[0] else None
    along, whole = buffers.empty(f.c, x.dtype), buffers.empty(f.c, x.dtype)
    want = bool(needs[1] or needs[4])
    given, there = f.seen(g, x, weight, mean, var), (weight is not None, True, True)
    wanted = [(gx is not None, want, True)]
    if not f.planes and gx is not None:  # sums apart, which threads share
        wanted = [(False, want, True), (True, False, False)]
    for needed in wanted:
        results = [a for a, need in zip((gx, along, whole), needed, strict=True) if need]
        _runner(_fixed_back, f, kind, there, needed)(*given, *f.seen(*results), eps)
    rstd = (var + eps) ** -0.5
    scale = rstd if weight is None else rstd * weight
    gw = gv = gm = None
    if want:
        gw = along * rstd
        gv = along * scale * rstd * rstd * -0.5
    if needs[3]:
        gm = whole * -scale
    return gx, gw, whole, gm, gv


# --- small matrices, in the steps of the reference and bit-exact with it -------------------


@row_program
def _norm_few(x: Along, weight: Each, bias: Each, eps: Number, n: Length) -> Any:
    mean = total(x) / n
    gap = x - mean
    var = total(gap * gap) / n
    y = gap * (1.0 / sqrt(var + eps))
    return y if weight is None else y * weight + bias, mean, var


@entry_points
def _entries(weighted: bool) -> tuple[Any, ...]:
    """Both passes, with weight and bias or without, as one call each."""
    absent = frozenset(() if weighted else ("weight", "bias"))
    given = absent - {"bias"} | {"var", "eps", "along", "whole"}
    both = _norm_few.variant(absent), norm_back.variant(given)
    return tuple(v.entry(v.reference_columns, down=True, most=FEW_IN_ALL) for v in both)


def _is_matrix(x: ndarray) -> bool:
    """Whether NumPy sums an array's columns row by row: a single column is a row to it."""
    return x.ndim == 2 and x.shape[1] > 1


def batch_norm_small(x: ndarray, weight: Any, bias: Any, eps: float) -> tuple[ndarray, ...] | None:
    """Each column shifted and scaled by its own mean and variance; and these."""
    if not _is_matrix(x) or (weight is None) != (bias is None):
        return None
    run = _entries(weight is not None)[0]
    return run(x, eps) if weight is None else run(x, weight, bias, eps)


def batch_norm_small_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, var: ndarray, needs: Any, eps: float
) -> tuple[Any, ...] | None:
    """The gradients of ``batch_norm``, as needed."""
    if not _is_matrix(x):
        return None
    rstd = (var + eps) ** -0.5  # by NumPy, whose power has bits of its own
    few = () if weight is None else (weight,)
    found = _entries(weight is not None)[1](g[0], x, *few, mean, rstd, *g[1:])
    if found is None:
        return None
    return tuple(part if need else None for part, need in zip(found, needs, strict=True))
