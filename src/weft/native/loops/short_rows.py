"""Shared code of loops over rows: transposing short rows, and sums and products in any order."""

from __future__ import annotations

from weft.native.codegen.compiler import Ptr, T, f64, i64, inline

# Rows of up to so many elements are taken as columns, so many at a time.
SHORT = 32
TOGETHER = 64


@inline(reassociate=True)
def plus(a: T, b: T) -> T:
    return a + b


@inline(reassociate=True)
def times(a: f64, b: f64) -> f64:
    return a * b


@inline
def above(a: T, b: T) -> T:
    """Whether a is chosen before b as the largest: NaN is, and of equals the one that was first."""
    return a > b or (a != a and b == b)


@inline
def below(a: T, b: T) -> T:
    """The same as the smallest."""
    return a < b or (a != a and b == b)


@inline
def to_columns(x: Ptr[T], columns: Ptr[T], n: i64, count: i64) -> None:
    """Short rows of n elements as columns."""
    for j in range(count):
        for i in range(n):
            columns[i * TOGETHER + j] = x[j * n + i]


@inline
def to_rows(columns: Ptr[T], y: Ptr[T], n: i64, count: i64) -> None:
    for j in range(count):
        for i in range(n):
            y[j * n + i] = columns[i * TOGETHER + j]
