"""Products of a few rows, which are read in place, with a matrix that is packed into panels.

This is what a step of a recurrent layer needs: the same matrix is multiplied with different rows in
each step, so packing it pays, and packing the rows does not. A panel holds some columns, row after
row. Results are bit-identical for any number of rows: each element is summed separately, in order.
"""

from __future__ import annotations

import numpy as np

from weft.native import threads
from weft.native.codegen.compiler import Assembly, Ptr, T, i64, inline
from weft.native.codegen.jit import KINDS, kernel
from weft.native.gemm.blocks import Block, block, choosing
from weft.native.gemm.packed import K_BLOCK, ceil_div
from weft.native.memory import buffers

Array = np.ndarray
NEAR = 16  # elements of a column that are copied at a time
GRAIN = 1 << 15  # elements whose copying is worth a thread
LOW = (
    "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %apart, i64 %step, i64 %k_size, i64 %more"
)


def height(kind: str) -> int:
    """How many rows the innermost loop takes at most: what registers are there for."""
    return 6 if block(kind)[1] == 6 else 8


def _rows(name: str, kind: str) -> str:
    """LLVM IR of ``c = a @ b`` or ``c += a @ b`` for one panel and a few rows, as they come."""
    cases = range(1, height(kind) + 1)
    lines = [Block(kind, "%apart", 1).declared()]
    for rows in cases:
        lines.append(Block(kind, "%apart", 1, rows).onto_itself(f"{name}.{rows}", LOW))
    return "\n".join([*lines, *choosing(name, LOW, "rows", cases)])


GIVEN = ("ptr", "ptr", "ptr", "i64", "i64", "i64", "i64", "i64")
rows64 = Assembly("rows64", GIVEN, lambda: _rows("rows64", "f64"))
rows32 = Assembly("rows32", GIVEN, lambda: _rows("rows32", "f32"), rows64)


@kernel
def pack_panels(
    x: Ptr[T], to: Ptr[T], k_size: i64, groups: i64, size: i64, down: i64, across: i64, width: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    # Panel p holds columns of group p % groups, so that those of one place are adjacent.
    for p in range(lo, hi):
        first = (p // groups) * width
        some = min(width, size - first)
        source = x + ((p % groups) * size + first) * across
        target = to + p * width * k_size
        if across == 1:
            for k in range(k_size):
                for j in range(some):
                    target[k * width + j] = source[k * down + j]
                for j in range(some, width):
                    target[k * width + j] = 0.0
        else:
            for k0 in range(0, k_size, NEAR):
                k1 = min(k0 + NEAR, k_size)
                for j in range(some):
                    for k in range(k0, k1):
                        target[k * width + j] = source[k * down + j * across]
                for j in range(some, width):
                    for k in range(k0, k1):
                        target[k * width + j] = 0.0


def packed(x: Array, groups: int = 1) -> Array:
    """A matrix in panels; its columns are so many groups of one size, each padded with zeros."""
    (k_size, columns), kind = x.shape, KINDS[x.dtype]
    size, width = columns // groups, block(kind)[2]
    panels = groups * ceil_div(size, width)
    to = buffers.empty(panels * width * k_size, x.dtype)
    down, across = (s // x.itemsize for s in x.strides)
    count = threads.how_many(panels * width * k_size, GRAIN)
    pack_panels.get(kind, width=width)(x, to, k_size, groups, size, down, across, panels, count)
    return to


@inline
def rows_by_panel(
    a: Ptr[T], panel: Ptr[T], c: Ptr[T], apart: i64, step: i64, k_size: i64, width: i64, more: i64,
    low: i64, high: i64, blocks: i64, batch: i64, size: i64,
):  # fmt: skip
    """The product of blocks of rows, of the first ``size`` rows, with one panel."""
    for k0 in range(0, k_size, K_BLOCK):
        part = min(K_BLOCK, k_size - k0)
        adds = more if k0 == 0 else 1
        for b in range(low, high):
            first = b * batch // blocks
            count = min((b + 1) * batch // blocks, size) - first
            left = a + (first * apart + k0)
            right = panel + k0 * width
            place = c + first * step
            rows32(left, right, place, apart, step, part, adds, count)
