"""Layer norm and RMS norm over the last dimensions, and their gradients.

Sums are taken in float64. For small arrays layer norm has kernels that follow the steps of the
reference and are bit-exact with it.
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
    Shared,
    across,
    row_program,
    sqrt,
    total,
)
from weft.native.loops.reduce import SUM, step
from weft.native.loops.short_rows import SHORT
from weft.native.loops.sums import LEAF
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray

# Elements that are worth a thread.
GRAIN = 16384
MANY = 512  # short rows that are worth transposing


def _weighted(v: Any, weight: Any, bias: Any) -> Any:
    v = v if weight is None else v * weight
    return v if bias is None else v + bias


@row_program(together=MANY)
def _layer_norm(x: Along, weight: Shared, bias: Shared, eps: Number, n: Length) -> Any:
    mean = total(x) / n
    gap = x - mean
    squares = total(gap * gap)
    # NaN where the squares overflow, as in PyTorch.
    rstd = 1.0 / sqrt(squares / n + eps) + (squares - squares)
    return _weighted(gap * rstd, weight, bias), mean, rstd


@row_program(together=MANY)
def _rms_norm(x: Along, weight: Shared, eps: Number, n: Length) -> Any:
    rstd = 1.0 / sqrt(total(x * x) / n + eps)
    return _weighted(x * rstd, weight, None), rstd


def _slope(along: Any, rstd: Any, g_rstd: Any, n: Any) -> Any:
    """What goes off with the normalised row: through its deviation, and what comes to that."""
    whole = rstd * total(along)
    return (whole if g_rstd is None else whole + g_rstd * rstd * rstd) / n


@row_program
def _layer_norm_back(
    g: Along,
    x: Along,
    weight: Shared,
    mean: Each,
    rstd: Each,
    g_mean: Each,
    g_rstd: Each,
    n: Length,
) -> Any:
    normal = (x - mean) * rstd
    inner = _weighted(g, weight, None)
    shift = ((0.0 if g_mean is None else g_mean) - rstd * total(inner)) / n
    slope = _slope(inner * normal, rstd, g_rstd, n)
    return inner * rstd + shift - normal * slope, across(g * normal), across(g)


@row_program
def _rms_norm_back(g: Along, x: Along, weight: Shared, rstd: Each, g_rstd: Each, n: Length) -> Any:
    normal = x * rstd
    inner = _weighted(g, weight, None)
    slope = _slope(inner * normal, rstd, g_rstd, n)
    return inner * rstd - normal * slope, across(g * normal)


@functools.lru_cache(512)
def _sizes(shape: tuple[int, ...], rank: int) -> tuple[int, int, Any, Any]:
    """The length and number of rows, the shape of weights and that of statistics."""
    lead, last = shape[: len(shape) - rank], shape[len(shape) - rank :]
    return prod(last), prod(lead), last, lead + (1,) * rank


def _fits(part: Any, x: ndarray, shape: tuple[int, ...]) -> bool:
    """Whether a part is missing, or an array of a shape and of the type of x."""
    return part is None or (part.shape == shape and part.dtype == x.dtype)


@entry_points
def _last_rows() -> Any:
    """Layer norm over the last dimension, with weights, as one call."""
    return _layer_norm.whole.entry(_layer_norm.whole.rows, narrow=(SHORT, MANY))


@functools.lru_cache(512)
def _forward_plan(
    program: RowProgram, dtype: np.dtype, shape: tuple[int, ...], rank: int, absent: frozenset[str]
) -> Any:
    """What runs on arrays of a shape, and the shape of its statistics; None if nothing does."""
    if dtype not in FLOATS or not prod(shape):
        return None
    n, rows, last, few = _sizes(shape, rank)
    return program.variant(absent).runner(FLOATS[dtype], rows, n, 1), last, few


@functools.lru_cache(512)
def _backward_plan(
    program: RowProgram, dtype: np.dtype, shape: tuple[int, ...], rank: int, absent: frozenset[str],
    wanted: tuple[bool, ...],
) -> Any:  # fmt: skip
    """The same for gradients, with the shapes of those that are wanted."""
    if dtype not in FLOATS or not prod(shape):
        return None
    n, rows, last, few = _sizes(shape, rank)
    size = rows if rows * n <= GRAIN and rows <= 256 else 32 if rows >= 1024 else 8
    blocks, many = -(-rows // size), threads.how_many
    parts = last if blocks == 1 else (blocks, *last)
    shapes = [s for s, want in zip((shape, parts, parts), wanted, strict=False) if want]
    run = program.variant(absent, wanted).rows.get(FLOATS[dtype])
    if any(wanted[1:]):
        grain = -(-GRAIN // (size * n))
        call = lambda *given: run(*given, n, rows, size, blocks, many(blocks, grain))
    else:
        blocks, grain = 1, -(-GRAIN // n)
        call = lambda *given: run(*given, n, rows, many(rows, grain))
    return call, last, few, shapes, blocks


def _forward(
    program: RowProgram, x: ndarray, weights: tuple[Any, ...], rank: int, eps: float
) -> tuple[ndarray, ...] | None:
    absent = ABSENT[tuple(w is None for w in weights)]
    plan = _forward_plan(program, x.dtype, x.shape, rank, absent)
    if plan is None:
        return None
    run, last, few = plan
    given = [plain(x)]
    for w in weights:
        if not _fits(w, x, last):
            return None
        if w is not None:
            given.append(plain(w))
    made = [buffers.empty(x.shape, x.dtype)]
    made += [buffers.empty(few, x.dtype) for _ in weights]  # layer norm has two of both
    run(*given, *made, eps)
    return tuple(made)


# The names of missing weights.
ABSENT = {
    tuple(w in missing for w in names): frozenset(missing)
    for names in (("weight",), ("weight", "bias"))
    for missing in ((), ("weight",), ("bias",), ("weight", "bias"))
    if set(missing) <= set(names)
}


def _backward(
    program: RowProgram, gy: ndarray, x: ndarray, weight: Any, statistics: dict[str, Any],
    needs: Any, rank: int,
) -> tuple[Any, ...] | None:  # fmt: skip
    absent = frozenset(name for name, part in statistics.items() if part is None)
    absent = absent | {"weight"} if weight is None else absent
    wanted = tuple(map(bool, needs))
    if not any(wanted):
        return (None,) * len(wanted)
    plan = _backward_plan(program, x.dtype, x.shape, rank, absent, wanted)
    if plan is None:
        return None
    run, last, few, shapes, blocks = plan
    if not (_fits(gy, x, x.shape) and _fits(weight, x, last)):
        return None
    given = [gy, x] if weight is None else [gy, x, weight]
    for part in statistics.values():
        if not _fits(part, x, few):
            return None
        if part is not None:
            given.append(part)
    made = [buffers.empty(shape, x.dtype) for shape in shapes]
    run(*map(plain, given), *made)
    results = iter(made)
    found = [next(results) if want else None for want in wanted]
    return tuple(found) if blocks == 1 else (found[0], *map(_total, found[1:]))


def _total(parts: ndarray | None) -> ndarray | None:
    """The sum of the blocks' parts."""
    if parts is None:
        return None
    out = buffers.empty(parts.shape[1:], parts.dtype)
    step(SUM, FLOATS[parts.dtype], (1, len(parts), out.size))(parts, out, 1.0)
    return out


# --- small arrays ------------------------------------------------------------------------


@entry_points
def _few_rows(weighted: bool) -> tuple[Any, ...]:
    """Both passes over the last dimension, with weight and bias or without, as one call each."""
    absent = frozenset(() if weighted else ("weight", "bias"))
    forward = _layer_norm.variant(absent)
    back = _layer_norm_back.variant(absent, (True, True, False))
    return tuple(v.entry(v.reference, most=LEAF) for v in (forward, back))


def layer_norm_small(
    x: ndarray, weight: Any, bias: Any, rank: int, eps: float
) -> tuple[ndarray, ...] | None:
    """Layer norm of a small array, with the bits of the reference."""
    if rank != 1 or (weight is None) != (bias is None):
        return None
    run = _few_rows(weight is not None)[0]
    return run(x, eps) if weight is None else run(x, weight, bias, eps)


def layer_norm_small_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """Its gradients; those of weight and bias for each row."""
    if rank != 1:
        return None
    few = () if weight is None else (weight,)
    found = _few_rows(weight is not None)[1](g[0], x, *few, mean, rstd, *g[1:])
    if found is None:
        return None
    gx, gw = found
    return gx if needs[0] else None, gw if needs[1] else None, g[0] if needs[2] else None


# --- the ops -----------------------------------------------------------------------------


def layer_norm(
    x: ndarray, weight: Any, bias: Any, rank: int, eps: float
) -> tuple[ndarray, ...] | None:
    """The last dimensions with mean zero and variance one; the means and reciprocal deviations."""
    if rank == 1:
        out = _last_rows()(x, weight, bias, eps)
        if out is not None:
            return out
    return _forward(_layer_norm, x, (weight, bias), rank, eps)


def layer_norm_back(
    g: Any, x: ndarray, weight: Any, mean: ndarray, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """The gradients of layer norm, those of weight and bias in their own shapes."""
    statistics = {"mean": mean, "rstd": rstd, "g_mean": g[1], "g_rstd": g[2]}
    return _backward(_layer_norm_back, g[0], x, weight, statistics, needs, rank)


def rms_norm(x: ndarray, weight: Any, rank: int, eps: float) -> tuple[ndarray, ...] | None:
    """The last dimensions with mean square one, and the reciprocal roots."""
    return _forward(_rms_norm, x, (weight,), rank, eps)


def rms_norm_back(
    g: Any, x: ndarray, weight: Any, rstd: ndarray, needs: Any, rank: int
) -> tuple[Any, ...] | None:
    """The gradients of RMS norm, that of weight in its own shape."""
    statistics = {"rstd": rstd, "g_rstd": g[1]}
    return _backward(_rms_norm_back, g[0], x, weight, statistics, needs, rank)
