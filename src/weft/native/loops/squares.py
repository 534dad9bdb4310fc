"""The maxima of adjacent 2x2 squares, written in LLVM IR."""

from __future__ import annotations

from collections.abc import Sequence

from weft.native.codegen.compiler import Assembly
from weft.native.gemm.blocks import VectorCode, masking

VECTORS = 2  # of a line of a plane: as many squares as a vector has lanes


class Squares(VectorCode):
    """Writes code that takes the largest values of a vector of squares, and may rectify them."""

    def __init__(self, rectified: bool = False) -> None:
        super().__init__()
        self.rectified = rectified
        self.whole, self.wide = f"<{self.lanes} x i32>", f"<{self.lanes} x i64>"

    def stores(self) -> list[str]:
        """Declarations of what ``largest`` calls."""
        begin, pair = f"declare void @llvm.masked.store.v{self.lanes}", ", ".join([self.vector] * 2)
        return [
            f"declare {self.vector} @llvm.maximum.v{self.lanes}f32({pair})",
            f"{begin}f32.p0({self.vector}, ptr, i32, {self.mask})",
            f"{begin}i64.p0({self.wide}, ptr, i32, {self.mask})",
        ]

    def places(self) -> None:
        """What all squares of a line need, of which there are ``%count``.

        The first is at place ``%first`` of a plane whose lines are ``%across`` long.
        """
        twos = ", ".join(f"i64 {2 * j}" for j in range(self.lanes))
        self.put(*masking("%count", self.lanes))
        self.put("  %across.n = trunc i64 %across to i32", "  %next.n = add i32 %across.n, 1")
        self.splat("%below", "%across.n", "i32")
        self.splat("%beside", "%next.n", "i32")
        self.splat("%start", "%first", "i64")
        self.put(f"  %at = add {self.wide} %start, <{twos}>")

    def largest(self, name: str, values: Sequence[str], mask: str, y: str, to: str) -> None:
        """Write the largest value of each square, and where in the plane it is.

        The first of equal ones, and the last that is no number. ``values`` are two vectors of a
        line and two of the next one.
        """
        lanes, vector = self.lanes, self.vector
        for i in (0, 1):
            pair = f"{vector} {values[2 * i]}, {vector} {values[2 * i + 1]}"
            for odd in (0, 1):
                picked = ", ".join(f"i32 {2 * j + odd}" for j in range(lanes))
                self.put(f"  {name}.{i}{odd} = shufflevector {pair}, {self.whole} <{picked}>")
        ones = ", ".join(["i32 1"] * lanes)
        best, place = f"{name}.00", "zeroinitializer"
        for which, other in (("01", f"<{ones}>"), ("10", "%below"), ("11", "%beside")):
            value, here = f"{name}.{which}", f"{name}.m{which}"
            places = f"{self.whole} {other}, {self.whole} {place}"
            self.put(
                f"  {here}.g = fcmp ogt {vector} {value}, {best}",
                f"  {here}.u = fcmp uno {vector} {value}, zeroinitializer",
                f"  {here}.c = or {self.mask} {here}.g, {here}.u",
                f"  {here}.v = select {self.mask} {here}.c, {vector} {value}, {vector} {best}",
                f"  {here}.p = select {self.mask} {here}.c, {places}",
            )
            best, place = f"{here}.v", f"{here}.p"
        if self.rectified:
            given = f"{vector} {best}, {vector} zeroinitializer"
            self.put(f"  {name}.r = call {vector} @llvm.maximum.v{lanes}f32({given})")
            best = f"{name}.r"
        store = f"  call void @llvm.masked.store.v{lanes}"
        self.put(
            f"  {name}.wide = sext {self.whole} {place} to {self.wide}",
            f"  {name}.at = add {self.wide} {name}.wide, %at",
            f"{store}f32.p0({vector} {best}, ptr {y}, i32 4, {self.mask} {mask})",
            f"{store}i64.p0({self.wide} {name}.at, ptr {to}, i32 8, {self.mask} {mask})",
        )

    def line(self, name: str) -> str:
        """A function for ``%count`` squares of a plane, or as many as a vector has lanes."""
        lanes, vector = self.lanes, self.vector
        given = "ptr noalias %x, ptr noalias %y, ptr noalias %to, i64 %across, i64 %first"
        self.put(
            *self.stores(),
            f"declare {vector} {self.masked}(ptr, i32, {self.mask}, {vector})",
            f"define private void @{name}({given}, i64 %count) alwaysinline nounwind {{",
            "  %q = getelementptr float, ptr %x, i64 %across",
            "  %both = shl i64 %count, 1",
            "  %both.n = trunc i64 %both to i32",
        )
        self.places()
        self.splat("%both.v", "%both.n", "i32")
        for v in range(VECTORS):
            here = ", ".join(f"i32 {v * lanes + j}" for j in range(lanes))
            self.put(f"  %in{v} = icmp slt {self.whole} <{here}>, %both.v")
            for i, base in enumerate(("%x", "%q")):
                self.load_masked(f"%v{i}.{v}", base, v * lanes, f"%in{v}")
        values = [f"%v{i}.{v}" for i in (0, 1) for v in range(VECTORS)]
        self.largest("%l", values, "%mask", "%y", "%to")
        return self.text()


square_line = Assembly(
    "square_line",
    ("ptr", "ptr", "ptr", "i64", "i64", "i64"),
    lambda: Squares().line("square_line"),
)
