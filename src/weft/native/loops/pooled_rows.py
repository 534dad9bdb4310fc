"""The loop of a convolution fused with 2x2 max pooling, for few channels.

Two lines of some rows of the result stay in registers while their terms are accumulated, from a
source that ``loops.spread`` has copied: each element of a window is at the address of the window's
position plus a fixed offset. Then the maximum of each square is written, and its index.
"""

from __future__ import annotations

import functools

from weft.native.codegen import jit
from weft.native.codegen.compiler import Assembly, KernelFunction, Ptr, f32, i64
from weft.native.loops.squares import VECTORS, Squares

_GIVEN = ("ptr", "ptr", "ptr", "ptr", "i64", "i64", "ptr", "ptr", "i64", "i64", "i64", "i64", "i64")


class _Rows(Squares):
    """Writes a function for so many rows: channels of the result, rectified or not."""

    def __init__(self, rows: int, rectified: bool) -> None:
        super().__init__(rectified)
        self.rows = rows
        self.cells = [(r, i, v) for r in range(rows) for i in (0, 1) for v in range(VECTORS)]

    def write(self, name: str) -> str:
        given = (
            "ptr noalias %x, ptr noalias %w, ptr noalias %taps, ptr noalias %bias, i64 %k_size, "
            "i64 %line, ptr noalias %y, ptr noalias %to, i64 %step, i64 %first, i64 %across, "
            "i64 %count, i64 %seen"
        )
        self.begin(name, given, *self.stores())
        for r in range(self.rows):
            self.load_splat(f"%b{r}", "%bias", r)
        self.sum()
        self.put("done:")
        self.places()
        for r in range(self.rows):
            self.put(
                f"  %r{r}.in = icmp sgt i64 %seen, {r}",
                f"  %r{r}.m = select i1 %r{r}.in, {self.mask} %mask, {self.mask} zeroinitializer",
                f"  %r{r}.i = mul i64 %step, {r}",
            )
            self.move(f"%r{r}.y", "%y", f"%r{r}.i")
            self.move(f"%r{r}.to", "%to", f"%r{r}.i", "i64")
            sums = [f"%t{r}.{i}.{v}" for i in (0, 1) for v in range(VECTORS)]
            self.largest(f"%l{r}", sums, f"%r{r}.m", f"%r{r}.y", f"%r{r}.to")
        return self.text()

    def sum(self) -> None:
        """The sums of all products."""
        self.put("  br label %loop", "loop:")
        self.phi("%loop.i", "i64", entry="0", loop="%loop.n")
        for r, i, v in self.cells:
            self.phi(f"%s{r}.{i}.{v}", entry=f"%b{r}", loop=f"%t{r}.{i}.{v}")
        self.load_number("%o", "%taps", "%loop.i")
        self.move("%x0", "%x", "%o")
        self.move("%x1", "%x0", "%line")
        self.put(f"  %wk.i = mul i64 %loop.i, {self.rows}")
        self.move("%wk", "%w", "%wk.i")
        for i in (0, 1):
            for v in range(VECTORS):
                self.load(f"%x{i}.{v}", f"%x{i}", v * self.lanes)
        for r in range(self.rows):
            self.load_splat(f"%w{r}", "%wk", r)
            for i in (0, 1):
                for v in range(VECTORS):
                    self.fma(f"%t{r}.{i}.{v}", f"%w{r}", f"%x{i}.{v}", f"%s{r}.{i}.{v}")
        self.repeat("loop", 1, "%k_size", "done")


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
