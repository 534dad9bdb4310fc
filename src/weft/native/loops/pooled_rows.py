"""The loop of a convolution under max pooling of two by two, for few channels.

Two lines of some rows of the result stay in registers while all that adds to them is read, from a
source that ``loops.spread`` has copied: what a window sees lies at the address of its place plus an
offset of its own. Then the largest of each square is written, and its place.
"""

from __future__ import annotations

import functools

from weft.native.codegen import jit
from weft.native.codegen.compiler import (
    UNROLLED,
    UNROLLED_NODES,
    Assembly,
    KernelFunction,
    Ptr,
    f32,
    i64,
)
from weft.native.loops.squares import VECTORS, Squares

_GIVEN = ("ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "ptr", "i64", "i64", "i64", "i64", "i64")


class _Rows(Squares):
    """Writes a function for so many rows: channels of the result, rectified or not."""

    def __init__(self, rows: int, rectified: bool) -> None:
        super().__init__(rectified)
        self.rows = rows
        self.cells = [(r, i, v) for r in range(rows) for i in (0, 1) for v in range(VECTORS)]

    def write(self, name: str) -> str:
        lanes, vector = self.lanes, self.vector
        given = (
            "ptr noalias %x, ptr noalias %w, ptr noalias %taps, ptr noalias %bias, i64 %k_size, "
            "i64 %line, ptr noalias %y, ptr noalias %to, i64 %step, i64 %first, i64 %across, "
            "i64 %count, i64 %seen"
        )
        self.put(
            UNROLLED_NODES,
            f"declare {vector} @llvm.fmuladd.v{lanes}f32({vector}, {vector}, {vector})",
            *self.stores(),
            f"define private void @{name}({given}) noinline nounwind {{",
            "entry:",
        )
        for r in range(self.rows):
            self.put(
                f"  %b{r}.p = getelementptr float, ptr %bias, i64 {r}",
                f"  %b{r}.s = load float, ptr %b{r}.p, align 4",
            )
            self.splat(f"%b{r}", "float", f"%b{r}.s")
        self.sum()
        self.put("done:")
        self.places()
        for r in range(self.rows):
            self.put(
                f"  %r{r}.in = icmp sgt i64 %seen, {r}",
                f"  %r{r}.m = select i1 %r{r}.in, {self.mask} %mask, {self.mask} zeroinitializer",
                f"  %r{r}.i = mul i64 %step, {r}",
                f"  %r{r}.y = getelementptr float, ptr %y, i64 %r{r}.i",
                f"  %r{r}.to = getelementptr i64, ptr %to, i64 %r{r}.i",
            )
            sums = [f"%t{r}.{i}.{v}" for i in (0, 1) for v in range(VECTORS)]
            self.largest(f"%l{r}", sums, f"%r{r}.m", f"%r{r}.y", f"%r{r}.to")
        return "\n".join([*self.lines, "  ret void", "}"])

    def sum(self) -> None:
        """The sums of all products."""
        vector = self.vector
        self.put("  br label %loop", "loop:", "  %k = phi i64 [ 0, %entry ], [ %k1, %loop ]")
        for r, i, v in self.cells:
            incoming = f"[ %b{r}, %entry ], [ %t{r}.{i}.{v}, %loop ]"
            self.put(f"  %s{r}.{i}.{v} = phi {vector} {incoming}")
        self.put(
            "  %po = getelementptr i64, ptr %taps, i64 %k",
            "  %o = load i64, ptr %po, align 8",
            "  %x0 = getelementptr float, ptr %x, i64 %o",
            "  %x1 = getelementptr float, ptr %x0, i64 %line",
            f"  %wk.i = mul i64 %k, {self.rows}",
            "  %wk = getelementptr float, ptr %w, i64 %wk.i",
        )
        for i in (0, 1):
            for v in range(VECTORS):
                self.put(
                    f"  %x{i}.{v}.p = getelementptr float, ptr %x{i}, i64 {v * self.lanes}",
                    f"  %x{i}.{v} = load {vector}, ptr %x{i}.{v}.p, align 4",
                )
        for r in range(self.rows):
            self.put(
                f"  %w{r}.p = getelementptr float, ptr %wk, i64 {r}",
                f"  %w{r}.s = load float, ptr %w{r}.p, align 4",
            )
            self.splat(f"%w{r}", "float", f"%w{r}.s")
            for i in (0, 1):
                for v in range(VECTORS):
                    given = f"{vector} %w{r}, {vector} %x{i}.{v}, {vector} %s{r}.{i}.{v}"
                    self.put(
                        f"  %t{r}.{i}.{v} = call {vector} @llvm.fmuladd.v{self.lanes}f32({given})"
                    )
        self.put(
            "  %k1 = add i64 %k, 1",
            "  %again = icmp slt i64 %k1, %k_size",
            f"  br i1 %again, label %loop, label %done{UNROLLED}",
        )


def pooled_rows(
    x: Ptr[f32], w: Ptr[f32], bias: Ptr[f32], y: Ptr[f32], places: Ptr[i64], taps: Ptr[i64],
    sample: i64, line: i64, k_size: i64, rows: i64, high: i64, wide: i64, across: i64,
    height: i64, lanes: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The range is that of lines of the pooled result, of which a plane has `high`, `wide` long;
    # those of the convolution's result are `across` long.
    plane = high * wide
    for u in range(lo, hi):
        n = u // high
        r = u % high
        source = x + (n * sample + 2 * r * line)
        for row in range(0, rows, height):
            start = (n * rows + row) * plane + r * wide
            for first in range(0, wide, lanes):
                squares(  # noqa: F821
                    source + 2 * first, w + row * k_size, taps, bias + row, k_size, line,
                    y + (start + first), places + (start + first), plane,
                    2 * r * across + 2 * first, across, wide - first, rows - row,
                )  # fmt: skip


@functools.cache
def pooled_rows_kernel(height: int, rectified: bool) -> jit.Kernel:
    """The loop for so many rows at a time."""
    squares = Assembly("squares", _GIVEN, lambda: _Rows(height, rectified).write("squares"))
    return jit.Kernel(KernelFunction(pooled_rows, {**globals(), "squares": squares}))
