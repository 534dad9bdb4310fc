"""Losses: negative log likelihood, and elementwise losses of pairs (squared, absolute, Huber).

Sums are taken in blocks of fixed size and combined in float64; for small matrices in the order of
the references.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Ptr, T, U, array, f64, i64, inline
from weft.native.codegen.jit import KINDS, Kernel, entry_points, kernel
from weft.native.codegen.row_programs import Along, Each, Number, RowProgram, total
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.sums import LEAF, leaf
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS, plain

ndarray = np.ndarray
Ints = tuple[int, ...]

# Elements that are worth a thread, elements summed in their own type, and the fewest of a pair.
GRAIN = 16384
BLOCK = 1024
SMALL = 512
# Elements that are worth a thread where each is in a place of its own.
FAR = 8192


# --- negative log likelihood -------------------------------------------------------------


@inline
def _factor(weight: Ptr[T], place: i64, used: i64, weighted: i64) -> T:
    """What a target counts."""
    w = T(1.0)
    if weighted:
        w = weight[place]
    return w if used else T(0.0)


@kernel(reassociate=True)
def _nll(
    x: Ptr[T], target: Ptr[U], weight: Ptr[T], loss: Ptr[T], parts: Ptr[f64], count: i64,
    classes: i64, inner: i64, ignored: i64, weighted: i64, each: i64, picks: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    """Sums of losses, and of what targets count, by blocks; without ``picks`` the latter alone."""
    for block in range(lo, hi):
        total = f64(0.0)
        factors = f64(0.0)
        wrong = 0
        for j in range(block * BLOCK, min(count, (block + 1) * BLOCK)):
            t = target[j]
            inside = t >= 0 and t < classes
            used = t != ignored
            wrong += i64(used and not inside)
            place = t if inside else 0
            w = _factor(weight, place, used, weighted)
            factors += f64(w)
            if picks:
                v = -x[(j // inner * classes + place) * inner + j % inner] * w
                # A select, not only a product: what is ignored may be infinite.
                v = v if w != 0.0 else T(0.0)
                if each:
                    loss[j] = v
                total += f64(v)
        parts[3 * block] = total
        parts[3 * block + 1] = factors
        parts[3 * block + 2] = f64(wrong)


@kernel
def _nll_joined(
    parts: Ptr[f64], out: Ptr[T], by: Ptr[f64], bad: Ptr[i64], blocks: i64, mean: i64, lo: i64,
    hi: i64,
) -> None:  # fmt: skip
    """The loss, and what its gradient is divided by."""
    total = f64(0.0)
    factors = f64(0.0)
    wrong = f64(0.0)
    for block in range(blocks):
        total += parts[3 * block]
        factors += parts[3 * block + 1]
        wrong += parts[3 * block + 2]
    out[0] = T(total / factors if mean else total)
    by[0] = factors if mean and factors != 0.0 else f64(1.0)
    if wrong > 0.0:
        bad[0] = 1


@kernel
def _nll_back(
    g: Ptr[T], target: Ptr[U], weight: Ptr[T], out: Ptr[T], shared: Ptr[f64], classes: i64,
    inner: i64, ignored: i64, chunk: i64, weighted: i64, each: i64, lo: i64, hi: i64,
) -> None:  # fmt: skip
    by = T(shared[0])
    for first in range(lo, hi, chunk):
        last = min(hi, first + chunk)
        for i in range(first * classes * inner, last * classes * inner):
            out[i] = T(0.0)
        for j in range(first * inner, last * inner):
            t = target[j]
            used = t != ignored and t >= 0 and t < classes
            place = t if used else 0
            w = _factor(weight, place, used, weighted)
            v = -g[j if each else 0] * w / by
            at = (j // inner * classes + place) * inner + j % inner
            out[at] = v if w != 0.0 else out[at]


class _Classes:
    """What the negative log likelihood needs to know of shapes and types, computed once."""

    def __init__(self, shape: Ints, d: str, u: str, weighted: bool, reduction: str) -> None:
        self.each = reduction == "none"
        batched = len(shape) > 1
        self.rows, self.classes = shape[:2] if batched else (1, shape[0])
        inner, self.final = prod(shape[2:]), shape[:1] + shape[2:] if batched else ()
        self.count = self.rows * inner
        self.blocks = -(-self.count // BLOCK)
        # One position in a row is a case of its own, without divisions.
        consts: dict[str, Any] = {"inner": 1} if inner == 1 else {}
        consts |= {"weighted": weighted, "each": self.each}
        self.sizes = (self.classes,) if inner == 1 else (self.classes, inner)
        self.chunk = max(1, 4096 // (self.classes * inner))
        self.grain = -(-GRAIN // (self.classes * inner))
        self.forward = functools.cache(lambda picks: _nll.get(d, u, **consts, picks=picks))
        self.joined = functools.cache(lambda: _nll_joined.get(d, mean=reduction == "mean"))
        self.backward = functools.cache(lambda: _nll_back.get(d, u, **consts))

    def summed(
        self, x: ndarray, target: ndarray, weight: Any, loss: ndarray, ignored: int, picks: bool
    ) -> tuple[ndarray, ndarray] | None:
        """The loss and what its gradient is divided by; None if a target is not a class."""
        parts = buffers.empty((self.blocks, 3))
        many = threads.how_many(self.blocks, (FAR if picks else GRAIN) // BLOCK)
        sizes = (self.count, *self.sizes, ignored, self.blocks)
        self.forward(picks)(x, target, weight, loss, parts, *sizes, many)
        total, by = buffers.empty((), x.dtype), buffers.empty(1)
        bad = buffers.zeros(1, np.int64)
        self.joined()(parts, total, by, bad, self.blocks, 1, 1)
        return None if buffers.wrong(bad) else (total, by)


@functools.lru_cache(512)
def _classes(
    shape: Ints, dtype: np.dtype, kind: np.dtype, weighted: Any, reduction: str
) -> _Classes | None:
    if dtype not in FLOATS or kind.kind not in "iu" or kind not in KINDS or not prod(shape):
        return None
    if not shape or weighted not in (None, dtype):
        return None
    return _Classes(shape, FLOATS[dtype], KINDS[kind], weighted is not None, reduction)


def _fitting(
    shape: Ints, dtype: np.dtype, target: ndarray, weight: Any, reduction: str
) -> _Classes | None:
    """The plan for a shape, if targets and weights (one for each class) fit it."""
    plan = _classes(shape, dtype, target.dtype, None if weight is None else weight.dtype, reduction)
    if plan is None or target.size != plan.count:
        return None
    return plan if weight is None or weight.shape == (plan.classes,) else None


def nll_loss(
    x: ndarray, target: ndarray, weight: Any, reduction: str, ignore_index: int
) -> Any | None:
    """The negated entries of the right classes."""
    plan = _fitting(x.shape, x.dtype, target, weight, reduction)
    if plan is None:
        return None
    x, target = plain(x), plain(np.asarray(target))  # a scalar has no address
    loss = buffers.empty(plan.final, x.dtype) if plan.each else x
    weight = x if weight is None else plain(weight)
    found = plan.summed(x, target, weight, loss, ignore_index, True)
    if found is None:
        return None  # the reference says which one
    return loss if plan.each else found[0]


def nll_loss_back(
    x: ndarray, target: ndarray, weight: Any, shape: Ints, reduction: str, ignore_index: int
) -> ndarray | None:
    """The gradient of ``nll_loss``; x is that of its result."""
    plan = _fitting(tuple(shape), x.dtype, target, weight, reduction)
    if plan is None or x.size != (plan.count if plan.each else 1):
        return None
    target, g = plain(np.asarray(target)), plain(np.asarray(x))
    weight = g if weight is None else plain(weight)
    found = plan.summed(g, target, weight, g, ignore_index, False)
    if found is None:
        return None
    out = buffers.empty(shape, g.dtype)
    sizes = (*plan.sizes, ignore_index, plan.chunk, plan.rows)
    many = threads.how_many(plan.rows, plan.grain)
    plan.backward()(g, target, weight, out, found[1], *sizes, many)
    return out


@kernel
def _nll_few(
    x: Ptr[T], target: Ptr[i64], y: Ptr[T], bad: Ptr[i64], rows: i64, count: i64, classes: i64,
    by: T, lo: i64, hi: i64,
) -> None:  # fmt: skip
    picked = array(T, LEAF)
    wrong = i64(rows != count)
    for row in range(0 if wrong else rows):
        place = target[row]
        outside = place < 0 or place >= classes
        wrong = wrong | i64(outside)
        picked[row] = -x[row * classes + (0 if outside else place)]
    y[0] = (leaf(picked, rows) + 0.0) / by
    if wrong:
        bad[0] = 1


@kernel
def _nll_few_back(
    zeros: Ptr[T], target: Ptr[i64], g: Ptr[T], out: Ptr[T], bad: Ptr[i64], rows: i64, count: i64,
    classes: i64, by: T, lo: i64, hi: i64,
) -> None:  # fmt: skip
    share = -g[0] / by
    wrong = i64(rows != count)
    for i in range(rows * classes):
        out[i] = zeros[i]
    for row in range(0 if wrong else rows):
        place = target[row]
        if place >= 0 and place < classes:
            out[row * classes + place] = share
        else:
            wrong = 1
    if wrong:
        bad[0] = 1


@entry_points
def _few_classes(mean: bool) -> tuple[Any, Any]:
    """The mean or sum of a small matrix's losses and its gradient, as one call each."""
    sizes = ("flag", "lead", "count", "last", "count" if mean else "1")

    def entry(run: Kernel, takes: tuple[str, ...], gives: str) -> Callable:
        passes = (*(f"take {k}" for k in range(len(takes))), "give 0", *sizes)
        return run.whole(EntrySpec(takes, (gives,), passes, "1", "size", most=LEAF), "f32")

    return (
        entry(_nll_few, ("f32", "i64 any"), "f32 none"),
        entry(_nll_few_back, ("f32", "i64 any", "f32 any"), "f32 like 0"),
    )


def _counts_all(shape: Ints, weight: Any, reduction: str, ignore_index: int) -> bool:
    """Whether each row of a matrix counts alike, if its target is one of the classes."""
    few = len(shape) == 2 and weight is None and reduction != "none"
    return few and not 0 <= ignore_index < shape[1]


def nll_loss_small(
    x: ndarray, target: ndarray, weight: Any, reduction: str, ignore_index: int
) -> ndarray | None:
    """The same for a small matrix without weights, with the bits of the reference."""
    if not _counts_all(x.shape, weight, reduction, ignore_index):
        return None
    return _few_classes(reduction == "mean")[0](x, target)


def nll_loss_small_back(
    x: ndarray, target: ndarray, weight: Any, shape: Ints, reduction: str, ignore_index: int
) -> ndarray | None:
    """Its gradient."""
    if x.ndim or not _counts_all(shape, weight, reduction, ignore_index):
        return None
    return _few_classes(reduction == "mean")[1](buffers.zeros(shape, x.dtype), target, x)


# --- differences of pairs ----------------------------------------------------------------


class _DifferenceLoss:
    """A loss of differences, from its value and its slope, as programs over one long row.

    ``g`` is the gradient for each element, ``whole`` that of their sum.
    """

    def __init__(self, name: str, value: Callable, slope: Callable) -> None:
        def each(a: Along, b: Along, width: Number) -> Any:
            return value(a - b, width)

        def summed(a: Along, b: Along, width: Number, by: Number) -> Any:
            return total(value(a - b, width)) / by

        def back(g: Along, whole: Each, a: Along, b: Along, width: Number, factor: Number) -> Any:
            return (whole if g is None else g) * factor * slope(a - b, width)

        for function in (each, summed, back):
            function.__name__ = f"{name}_{function.__name__}"
        self.each, self.summed, self.back = (
            RowProgram(f, grain=GRAIN) for f in (each, summed, back)
        )


def _sign(d: Any) -> Any:
    return np.where(d > 0.0, 1.0, np.where(d < 0.0, -1.0, d * 0.0))


def _smooth(d: Any, width: Any) -> Any:
    return np.where(abs(d) < width, 0.5 * d * d / width, abs(d) - 0.5 * width)


def _huber(d: Any, width: Any) -> Any:
    return np.where(abs(d) <= width, 0.5 * d * d, width * (abs(d) - 0.5 * width))


MSE = _DifferenceLoss("mse", lambda d, width: d * d, lambda d, width: d + d)
L1 = _DifferenceLoss("l1", lambda d, width: abs(d), lambda d, width: _sign(d))
SMOOTH = _DifferenceLoss(
    "smooth", _smooth, lambda d, width: np.where(abs(d) < width, d / width, _sign(d))
)
HUBER = _DifferenceLoss(
    "huber", _huber, lambda d, width: np.where(abs(d) <= width, d, _sign(d) * width)
)


@functools.lru_cache(512)
def _over_all(program: RowProgram, d: str, n: int, absent: str = "") -> Callable[..., None]:
    """What runs on n elements as one row."""
    return program.variant(frozenset({absent})).runner(d, 1, n, 1)


def _is_pair(a: ndarray, b: ndarray) -> bool:
    alike = b.dtype == a.dtype and a.shape == b.shape
    return alike and a.dtype in FLOATS and a.size > 0 and not buffers.small(a.size, SMALL)


def _forward(
    pair: _DifferenceLoss, a: ndarray, b: ndarray, reduction: str, width: float
) -> Any | None:
    if not _is_pair(a, b):
        return None
    a, b, d, n = plain(a), plain(b), FLOATS[a.dtype], a.size
    if reduction == "none":
        out = buffers.empty(a.shape, a.dtype)
        _over_all(pair.each, d, n)(a, b, out, width)
        return out
    found = buffers.empty((), a.dtype)
    by = 1.0 if reduction == "sum" else float(n)
    _over_all(pair.summed, d, n)(a, b, found, width, by)
    return found


def _backward(
    pair: _DifferenceLoss, g: ndarray, a: ndarray, b: ndarray, reduction: str, width: float,
    sign: float,
) -> ndarray | None:  # fmt: skip
    each = reduction == "none"
    if not _is_pair(a, b) or g.dtype != a.dtype or g.size != (a.size if each else 1):
        return None
    g, a, b, n = plain(np.asarray(g)), plain(a), plain(b), a.size
    out = buffers.empty(a.shape, a.dtype)
    factor = sign / n if reduction == "mean" else sign
    run = _over_all(pair.back, FLOATS[a.dtype], n, "whole" if each else "g")
    run(g, a, b, out, width, factor)
    return out


def _ops(choose: Callable[[float], _DifferenceLoss]) -> tuple[Callable, Callable, Callable]:
    """A loss with its gradients by the first and by the second of the pair."""

    def forward(a: ndarray, b: ndarray, reduction: str, width: float) -> Any | None:
        return _forward(choose(width), a, b, reduction, width)

    def back_a(g: ndarray, a: ndarray, b: ndarray, reduction: str, width: float) -> ndarray | None:
        return _backward(choose(width), g, a, b, reduction, width, 1.0)

    def back_b(g: ndarray, a: ndarray, b: ndarray, reduction: str, width: float) -> ndarray | None:
        return _backward(choose(width), g, a, b, reduction, width, -1.0)

    return forward, back_a, back_b


# Squared differences; squared below a width and absolute above; half of squared up to a width.
mse_loss, mse_loss_back_a, mse_loss_back_b = _ops(lambda width: MSE)
smooth_l1_loss, smooth_l1_loss_back_a, smooth_l1_loss_back_b = _ops(
    lambda width: SMOOTH if width else L1
)
huber_loss, huber_loss_back_a, huber_loss_back_b = _ops(lambda width: HUBER)
