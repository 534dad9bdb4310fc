"""The loops of a convolution's gradients, from those of the elements that a max pooling selected.

Most elements of the gradient of a convolution before max pooling are zero. The others arrive as the
pooling returns them: values, and the index of each in its plane. A value belongs to one window of
the image. With the channels innermost a row of that window is contiguous, so each value is
multiplied with whole vectors: accumulated in registers for the gradient of the weight, in the
image's own gradient in the L1 cache for the other.

A window is cut into blocks of ``rows`` rows of ``vectors`` vectors. Sizes and steps come in a table
of integers, in the order of the names below.
"""

from __future__ import annotations

import functools

from weft.native.codegen import jit
from weft.native.codegen.compiler import Assembly, KernelFunction, Ptr, array, f32, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import VectorCode, transpose
from weft.native.loops.winograd import copy_pixels

# Samples; the image's channels, places and elements of its copy; the step from line to line there.
SAMPLES, CHANNELS, PLANE, IMAGE, LINE = 0, 1, 2, 3, 4
# Channels of the gradient, values of one and how many are taken at a time.
ROWS, VALUES, SPAN = 5, 6, 7
# Blocks of a window: their number, and elements of all and of one.
BLOCKS, WINDOW, BLOCK = 8, 9, 10
PIECES, SCRATCH = 11, 12  # of the samples; elements of working memory for a thread
WIDE = 13  # pixels of a line
SIZE = 14

CHAINS = 8  # sums at a time that keep the multipliers busy
_GIVEN = ("ptr", "ptr", "ptr", "ptr", "i64", "ptr", "i64")


class _Values(VectorCode):
    """Writes a function that goes through values, of which each meets a block of a window.

    ``%x`` is the image (or its gradient), ``%at`` says where in it the window of a place begins,
    ``%places`` and ``%g`` are the values, and ``%w`` is the block of the weight.
    """

    def __init__(self, rows: int, vectors: int, ways: int) -> None:
        super().__init__()
        self.rows, self.vectors, self.ways = rows, vectors, ways
        self.cells = [(r, v) for r in range(rows) for v in range(vectors)]

    def start(self, name: str) -> None:
        given = "ptr noalias %x, ptr noalias %at, ptr noalias %places, ptr noalias %g, i64 %count"
        self.begin(name, f"{given}, ptr noalias %w, i64 %line")
        for r in range(1, self.rows):
            self.put(f"  %l{r} = mul i64 %line, {r}")
        for r, v in self.cells:
            self.load(f"%w{r}.{v}", "%w", (r * self.vectors + v) * self.lanes)

    def value(self, at: str, index: str) -> None:
        """A value in all lanes, and where the rows of its window are."""
        self.load_number(f"{at}.place", "%places", index)
        self.load_number(f"{at}.o", "%at", f"{at}.place")
        self.move(f"{at}.x0", "%x", f"{at}.o")
        self.load_splat(f"{at}.g", "%g", index)
        for r in range(1, self.rows):
            self.move(f"{at}.x{r}", f"{at}.x0", f"%l{r}")

    def multiply(self, at: str, r: int, v: int, other: str, added: str) -> str:
        """The value times a factor, added to something; either is ``x`` if it is not given."""
        here = f"{at}.{r}.{v}"
        self.load(here, f"{at}.x{r}", v * self.lanes)
        self.fma(f"{here}.t", f"{at}.g", other or here, added or here)
        return f"{here}.t"

    def sums(self, name: str) -> str:
        """``w += g * x`` over all values, several of them at a time, each with sums of its own."""
        self.start(name)
        self.put(
            f"  %whole = and i64 %count, {-self.ways}",
            "  %long = icmp sgt i64 %whole, 0",
            "  br i1 %long, label %many, label %middle",
            "many:",
        )
        self.phi("%many.i", "i64", entry="0", many="%many.n")
        firsts = {
            (u, r, v): "zeroinitializer" if u else f"%w{r}.{v}"
            for u in range(self.ways)
            for r, v in self.cells
        }
        for (u, r, v), first in firsts.items():
            self.phi(f"%s{u}.{r}.{v}", entry=first, many=f"%u{u}.{r}.{v}.t")
        for u in range(self.ways):
            self.put(f"  %u{u}.i = add i64 %many.i, {u}")
            self.value(f"%u{u}", f"%u{u}.i")
            for r, v in self.cells:
                self.multiply(f"%u{u}", r, v, "", f"%s{u}.{r}.{v}")
        self.repeat("many", self.ways, "%whole", "middle")
        self.put("middle:")
        self.phi("%mid.i", "i64", entry="0", many="%whole")
        for (u, r, v), first in firsts.items():
            self.phi(f"%m{u}.{r}.{v}", entry=first, many=f"%u{u}.{r}.{v}.t")
        joined = "%m0"
        for u in range(1, self.ways):
            for r, v in self.cells:
                added = f"{joined}.{r}.{v}, %m{u}.{r}.{v}"
                self.put(f"  %j{u}.{r}.{v} = fadd {self.vector} {added}")
            joined = f"%j{u}"
        self.put("  %some = icmp slt i64 %mid.i, %count", "  br i1 %some, label %each, label %done")
        self.put("each:")
        self.phi("%each.i", "i64", middle="%mid.i", each="%each.n")
        for r, v in self.cells:
            self.phi(f"%s.{r}.{v}", middle=f"{joined}.{r}.{v}", each=f"%e.{r}.{v}.t")
        self.value("%e", "%each.i")
        for r, v in self.cells:
            self.multiply("%e", r, v, "", f"%s.{r}.{v}")
        self.repeat("each", 1, "%count", "done")
        self.put("done:")
        for r, v in self.cells:
            self.phi(f"%d.{r}.{v}", middle=f"{joined}.{r}.{v}", each=f"%e.{r}.{v}.t")
        for r, v in self.cells:
            self.put(f"  store {self.vector} %d.{r}.{v}, ptr %w{r}.{v}.p, align 4")
        return self.text()

    def spread(self, name: str) -> str:
        """``x += g * w`` for each value in turn."""
        self.start(name)
        self.put("  %some = icmp sgt i64 %count, 0", "  br i1 %some, label %each, label %done")
        self.put("each:")
        self.phi("%each.i", "i64", entry="0", each="%each.n")
        self.value("%e", "%each.i")
        for r, v in self.cells:
            total = self.multiply("%e", r, v, f"%w{r}.{v}", "")
            self.put(f"  store {self.vector} {total}, ptr %e.{r}.{v}.p, align 4")
        self.repeat("each", 1, "%count", "done")
        self.put("done:")
        return self.text()


@inline
def copy_few(
    x: Ptr[f32], to: Ptr[f32], places: Ptr[i64], high: i64, wide: i64, size: i64, few: i64
):  # fmt: skip
    """The same as ``copy_pixels`` for a known number of channels, less than a vector."""
    for y in range(high):
        source = x + y * wide
        target = to + places[y * wide]
        for p in range(wide):
            for c in range(few):
                target[p * few + c] = source[c * size + p]


def _sums(
    x: Ptr[f32], g: Ptr[f32], places: Ptr[i64], at: Ptr[i64], pixels: Ptr[i64], starts: Ptr[i64],
    to: Ptr[f32], info: Ptr[i64], scratch: Ptr[f32], bad: Ptr[i64], workers: i64, few: i64,
    lanes: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Sums for each row of the weight and each piece of the samples. `pixels` says where in a copy
    # of an image its pixels go, `starts` where a block of a window begins in it.
    spare = array(f32, lanes * lanes)
    check = array(f32, lanes)
    channels, plane, size, line = info[CHANNELS], info[PLANE], info[IMAGE], info[LINE]
    rows, values, span = info[ROWS], info[VALUES], info[SPAN]
    blocks, window, part, pieces = info[BLOCKS], info[WINDOW], info[BLOCK], info[PIECES]
    samples, wide = info[SAMPLES], info[WIDE]
    for j in range(lanes):
        check[j] = 0.0
    for worker in range(lo, hi):
        image = scratch + worker * info[SCRATCH]
        for i in range(size):
            image[i] = 0.0
        for piece in range(worker * pieces // workers, (worker + 1) * pieces // workers):
            sums = to + piece * rows * window
            for i in range(rows * window):
                sums[i] = 0.0
            for n in range(piece * samples // pieces, (piece + 1) * samples // pieces):
                source = x + n * channels * plane
                if few:
                    copy_few(source, image, pixels, plane // wide, wide, plane, few)
                else:
                    copy_pixels(source, image, pixels, spare, 0, plane, plane, channels, lanes)
                for i in range(0, size, lanes):
                    for j in range(lanes):
                        check[j] = check[j] + image[i + j] * 0.0
                for first in range(0, values, span):
                    count = min(span, values - first)
                    for row in range(rows):
                        k = (n * rows + row) * values + first
                        for b in range(blocks):
                            meet(  # noqa: F821
                                image + starts[b], at, places + k, g + k, count,
                                sums + (row * window + b * part), line,
                            )  # fmt: skip
    for j in range(lanes):
        if check[j] != 0.0:
            bad[0] = 1


@kernel
def gather_sums(
    parts: Ptr[f32], to: Ptr[f32], elements: Ptr[i64], pieces: i64, rows: i64, window: i64,
    size: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The sums over all pieces, written over the first; then those elements of a window's blocks
    # that are elements of a row.
    for row in range(lo, hi):
        total = parts + row * window
        for piece in range(1, pieces):
            more = parts + (piece * rows + row) * window
            for i in range(window):
                total[i] = total[i] + more[i]
        for i in range(size):
            to[row * size + i] = total[elements[i]]


@kernel
def place_windows(
    w: Ptr[f32], to: Ptr[f32], elements: Ptr[i64], window: i64, size: i64, lo: i64, hi: i64
):
    # The rows of a weight as the blocks of windows; what is in no window has no effect, unless it
    # is slow to multiply.
    for row in range(lo, hi):
        target = to + row * window
        for i in range(window):
            target[i] = 0.0
        for i in range(size):
            target[elements[i]] = w[row * size + i]


@inline
def write_pixels(
    image: Ptr[f32], to: Ptr[f32], places: Ptr[i64], spare: Ptr[f32], size: i64, channels: i64,
    lanes: i64,
):  # fmt: skip
    """The planes of an image that has its channels innermost; ``places`` says where pixels are."""
    if channels >= lanes and size >= lanes:
        # The last vectors overlap those before.
        for c in range(0, channels, lanes):
            c0 = min(c, channels - lanes)
            for p in range(0, size, lanes):
                p0 = min(p, size - lanes)
                for i in range(lanes):
                    source = image + (places[p0 + i] + c0)
                    for j in range(lanes):
                        spare[i * lanes + j] = source[j]
                transpose(spare, lanes, to + (c0 * size + p0), size)
    else:
        for c in range(channels):
            for p in range(size):
                to[c * size + p] = image[places[p] + c]


def _spread(
    g: Ptr[f32], places: Ptr[i64], at: Ptr[i64], pixels: Ptr[i64], starts: Ptr[i64], w: Ptr[f32],
    to: Ptr[f32], info: Ptr[i64], scratch: Ptr[f32], workers: i64, lanes: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The gradient of each image, with the channels innermost, then as planes.
    spare = array(f32, lanes * lanes)
    channels, plane, size, line = info[CHANNELS], info[PLANE], info[IMAGE], info[LINE]
    rows, values = info[ROWS], info[VALUES]
    blocks, window, part, samples = info[BLOCKS], info[WINDOW], info[BLOCK], info[SAMPLES]
    for worker in range(lo, hi):
        image = scratch + worker * info[SCRATCH]
        for n in range(worker * samples // workers, (worker + 1) * samples // workers):
            for i in range(size):
                image[i] = 0.0
            for row in range(rows):
                k = (n * rows + row) * values
                for b in range(blocks):
                    meet(  # noqa: F821
                        image + starts[b], at, places + k, g + k, values,
                        w + (row * window + b * part), line,
                    )  # fmt: skip
            write_pixels(image, to + n * channels * plane, pixels, spare, plane, channels, lanes)


@functools.cache
def sums_kernel(rows: int, vectors: int) -> jit.Kernel:
    """The loop of a weight's gradient, for windows in such blocks."""
    ways = 1
    while ways * rows * vectors < CHAINS:
        ways *= 2
    meet = Assembly("meet", _GIVEN, lambda: _Values(rows, vectors, ways).sums("meet"))
    return jit.Kernel(KernelFunction(_sums, {**globals(), "meet": meet}))


@functools.cache
def spread_kernel(rows: int, vectors: int) -> jit.Kernel:
    """The loop of an image's gradient, for windows in such blocks."""
    meet = Assembly("meet", _GIVEN, lambda: _Values(rows, vectors, 1).spread("meet"))
    return jit.Kernel(KernelFunction(_spread, {**globals(), "meet": meet}))
