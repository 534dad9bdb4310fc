"""Batch norm of small matrices, in the steps of the reference and bit-exact with it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from weft.native.codegen.row_programs import (
    Along,
    Each,
    Length,
    Number,
    row_program,
    sqrt,
    total,
)
from weft.native.codegen.whole import EntrySpec
from weft.native.loops.batchnorm import norm_back

ndarray = np.ndarray
MOST = 511  # elements; from there on the kernels of ``batchnorm`` take over


@row_program
def _norm_few(x: Along, weight: Each, bias: Each, eps: Number, n: Length) -> Any:
    mean = total(x) / n
    gap = x - mean
    var = total(gap * gap) / n
    y = gap * (1.0 / sqrt(var + eps))
    return y if weight is None else y * weight + bias, mean, var


@functools.cache
def _entries(weighted: bool) -> tuple[Any, Any]:
    """Both passes, with weight and bias or without, as one call each."""
    absent = frozenset(() if weighted else ("weight", "bias"))
    row, gives = ("f32 row",) * weighted, ("f32 like 0", "f32 rest", "f32 rest")
    made, sizes = ("give 0", "give 1", "give 2"), ("first", "last")
    forward = EntrySpec(
        ("f32", *row, *row, "number"),
        gives,
        (
            *(f"take {k}" for k in range(1 + 2 * weighted)),
            *(*made, f"take {1 + 2 * weighted}", *sizes),
        ),
        *("last", "first"),
        most=MOST,
        returns=(0, 1, 2),
    )
    backward = EntrySpec(
        ("f32", "f32 like", *row, *("f32 row",) * 4),
        gives,
        (*(f"take {k}" for k in range(6 + weighted)), *made, *sizes),
        *("last", "first"),
        most=MOST,
        returns=(0, 1, 2),
    )
    given = absent - {"bias"} | {"var", "eps", "along", "whole"}
    return (
        _norm_few.variant(absent).reference_columns.whole(forward, "f32"),
        norm_back.variant(given).reference_columns.whole(backward, "f32"),
    )


def _is_matrix(x: ndarray) -> bool:
    """Whether NumPy sums an array's columns row by row: a single column is a row to it."""
    return x.ndim == 2 and x.shape[1] > 1


def batch_norm(x: ndarray, weight: Any, bias: Any, eps: float) -> tuple[ndarray, ...] | None:
    """Each column shifted and scaled by its own mean and variance; and these."""
    if not _is_matrix(x) or (weight is None) != (bias is None):
        return None
    run = _entries(weight is not None)[0]
    return run(x, eps) if weight is None else run(x, weight, bias, eps)


def batch_norm_back(
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
