"""The loops of Winograd convolutions.

An input is cut into *tiles* of n by n that overlap; each gives m by m elements of the result.
Tiles and windows are transformed so that a convolution becomes n*n products of matrices, one for
each *point*. For m = 2 that is 16 multiplications with n = 4 (windows of 3x3) in place of 36, and 9
with n = 3 (2x2) in place of 16; for m = 4 it is 36 with n = 6 in place of 144, and 25 with n = 5 in
place of 64. Transforms are sums and differences of a few elements. With a line ``d`` of a tile, a
line ``w`` of a window and the result ``y``, the points of n = 3 are::

    (d0 - d1) w0,   d1 (w0 + w1),   (d1 - d2) w1;   y0 = p0 + p1,   y1 = p1 - p2

and those of n = 4::

    (d0 - d2) w0,   (d1 + d2) (w0 + w1 + w2) / 2,   (d2 - d1) (w0 - w1 + w2) / 2,   (d1 - d3) w2;
    y0 = p0 + p1 + p2,   y1 = p1 - p2 - p3

Those of m = 4 multiply polynomials at points p: the window at p, divided by the product of p's
distances to the other points; the tile by the polynomial that is zero at those; and the result is
the sum of the products times 1, p, p^2 and p^3. The last point is infinity. The others are 0, 5/8,
-5/8, 3/2 and -3/2 for n = 6, and 0, -1, 1/2 and 2 for n = 5: of those whose transforms are short,
these were measured to round least. Errors are three times and twice those of m = 2.

The gradient of the weight comes from the same products, with each transform turned around.

Images are copied with their channels innermost first, so that a transform is arithmetic on whole
vectors of channels. A column is what a tile is multiplied with in one product: a channel, in one
phase of the stride. Tiles are the rows of the left matrix of each product, and are transformed,
multiplied and transformed back piece by piece, in a cache. Results are transposed as they are
written. Sizes and steps come in a table of integers, in the order of the names below.
"""

from __future__ import annotations

from weft.native.codegen.compiler import Ptr, array, f32, fma, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import tile_by_columns, tile_by_rows, transpose

# Tiles of a line, lines of a sample and of all; the steps of lines and tiles in the copy of an
# image; of samples and lines in the result.
WIDE, HIGH, LINES = 0, 1, 2
IN_Y, IN_X = 3, 4
OUT_N, OUT_Y = 5, 6
SEEN_Y, SEEN_X = 7, 8  # places of the result, which may end inside of a tile
CHANNELS, PHASES = 9, 10  # of the source
ROWS, ROW_STEP = 11, 12  # of the result: its channels
FULL = 13  # rows in a panel, or channels for the gradient of a weight
# How the work is cut: tasks, pieces of panels; lines of tiles and panels in a piece; elements of
# working memory for a thread; lines that the gradient of a weight takes at a time.
TASKS, CUTS, SPAN, PART, SCRATCH, TOGETHER = 14, 15, 16, 17, 18, 19
# The lines and columns of an image; the elements of its padded copy and of a line of that, and the
# lines above the image; the padded line at which the first line of tiles begins, how many further
# the next does, and how many it sees.
HEIGHT, WIDTH, IMAGE, LINE, ABOVE = 20, 21, 22, 23, 24
TOP, STEP, REACH = 25, 26, 27
GROUP = 28  # panels that are multiplied before their products are transformed
SIZE = 29

NEAR = 8  # channels of which windows are transformed phase by phase
K_BLOCK = 256  # columns that are multiplied at a time, so that panels stay in the cache
GAP = (
    16  # elements between points: far apart by a power of two, they would share a set of the cache
)

# The points of n = 6, their squares and cubes, and what windows are multiplied by at them and at 0.
A, B = 0.625, 1.5
AA, BB, AAA, BBB = A * A, B * B, A * A * A, B * B * B
BY_A, BY_B, BY_NONE = 0.5 / (AA * (AA - BB)), 0.5 / (BB * (BB - AA)), 1.0 / (AA * BB)
BY_ODD_A, BY_ODD_B = BY_A * A, BY_B * B
# What windows are multiplied by at the points -1, 1/2 and 2 of n = 5.
BY_ONE, BY_HALF, BY_TWO = 2.0 / 9.0, -8.0 / 9.0, 1.0 / 9.0


@inline
def tile_line(x: Ptr[f32], at: Ptr[i64], by: i64, to: Ptr[f32], apart: i64, n: i64, lanes: i64):
    """A line of a tile, whose elements are vectors; ``at`` says where, in every ``by``-th entry."""
    last = n - 1
    d0 = x + at[0]
    d1 = x + at[by]
    d2 = x + at[2 * by]
    d3 = x + at[min(3, last) * by]
    d4 = x + at[min(4, last) * by]
    d5 = x + at[last * by]
    for j in range(lanes):
        if n == 3:
            to[j] = d0[j] - d1[j]
            to[apart + j] = d1[j]
            to[2 * apart + j] = d1[j] - d2[j]
        elif n == 4:
            to[j] = d0[j] - d2[j]
            to[apart + j] = d1[j] + d2[j]
            to[2 * apart + j] = d2[j] - d1[j]
            to[3 * apart + j] = d1[j] - d3[j]
        elif n == 5:
            to[j] = fma(-1.5, d1[j] + d2[j], d0[j] + d3[j])
            to[apart + j] = fma(-2.5, d2[j], d1[j] + d3[j])
            to[2 * apart + j] = fma(-2.0, d1[j], d3[j] - d2[j])
            to[3 * apart + j] = fma(0.5, d2[j] - d1[j], d3[j])
            to[4 * apart + j] = fma(-1.5, d2[j] + d3[j], d1[j] + d4[j])
        else:
            near = fma(-BB, d1[j], d3[j])
            even = fma(-BB, d2[j], d4[j])
            far = fma(-AA, d1[j], d3[j])
            other = fma(-AA, d2[j], d4[j])
            to[j] = fma(AA, fma(BB, d0[j], -d2[j]), even)
            to[apart + j] = fma(A, near, even)
            to[2 * apart + j] = fma(-A, near, even)
            to[3 * apart + j] = fma(B, far, other)
            to[4 * apart + j] = fma(-B, far, other)
            to[5 * apart + j] = fma(-AA, near, fma(-BB, d3[j], d5[j]))


@inline
def tile(x: Ptr[f32], taps: Ptr[i64], half: Ptr[f32], to: Ptr[f32], step: i64, n: i64, lanes: i64):
    # Tiles of which each element is a vector at its own place; points are `step` apart.
    side = array(i64, 6)
    for k in range(6):
        side[k] = k * lanes
    for j in range(n):
        tile_line(x, taps + j, n, half + j * lanes, n * lanes, n, lanes)
    for i in range(n):
        tile_line(half + i * n * lanes, side, 1, to + i * n * step, step, n, lanes)


@inline
def window_line(w: Ptr[f32], step: i64, to: Ptr[f32], apart: i64, n: i64, lanes: i64):
    for j in range(lanes):
        if n == 3:
            to[j] = w[j]
            to[apart + j] = w[j] + w[step + j]
            to[2 * apart + j] = w[step + j]
        elif n == 5:
            to[j] = w[j]
            to[apart + j] = BY_ONE * (w[step + j] - w[j])
            to[2 * apart + j] = BY_HALF * fma(0.5, w[step + j], w[j])
            to[3 * apart + j] = BY_TWO * fma(2.0, w[step + j], w[j])
            to[4 * apart + j] = w[step + j]
        elif n == 6:
            low = BY_A * fma(AA, w[2 * step + j], w[j])
            high = BY_B * fma(BB, w[2 * step + j], w[j])
            to[j] = BY_NONE * w[j]
            to[apart + j] = fma(BY_ODD_A, w[step + j], low)
            to[2 * apart + j] = fma(-BY_ODD_A, w[step + j], low)
            to[3 * apart + j] = fma(BY_ODD_B, w[step + j], high)
            to[4 * apart + j] = fma(-BY_ODD_B, w[step + j], high)
            to[5 * apart + j] = w[2 * step + j]
        else:
            outer = 0.5 * (w[j] + w[2 * step + j])
            middle = 0.5 * w[step + j]
            to[j] = w[j]
            to[apart + j] = outer + middle
            to[2 * apart + j] = outer - middle
            to[3 * apart + j] = w[2 * step + j]


@inline
def result_line(p: Ptr[f32], step: i64, to: Ptr[f32], apart: i64, n: i64, lanes: i64):
    for j in range(lanes):
        if n == 3:
            to[j] = p[j] + p[step + j]
            to[apart + j] = p[step + j] - p[2 * step + j]
        elif n == 5:
            one = p[step + j]
            half = p[2 * step + j]
            two = p[3 * step + j]
            to[j] = p[j] + one + half + two
            to[apart + j] = fma(2.0, two, fma(0.5, half, -one))
            to[2 * apart + j] = fma(4.0, two, fma(0.25, half, one))
            to[3 * apart + j] = fma(8.0, two, fma(0.125, half, p[4 * step + j] - one))
        elif n == 6:
            near = p[step + j] + p[2 * step + j]
            near_odd = p[step + j] - p[2 * step + j]
            far = p[3 * step + j] + p[4 * step + j]
            far_odd = p[3 * step + j] - p[4 * step + j]
            to[j] = p[j] + near + far
            to[apart + j] = fma(B, far_odd, A * near_odd)
            to[2 * apart + j] = fma(BB, far, AA * near)
            to[3 * apart + j] = fma(BBB, far_odd, fma(AAA, near_odd, p[5 * step + j]))
        else:
            to[j] = p[j] + p[step + j] + p[2 * step + j]
            to[apart + j] = p[step + j] - p[2 * step + j] - p[3 * step + j]


@inline
def result_grad_line(g: Ptr[f32], step: i64, to: Ptr[f32], apart: i64, n: i64, lanes: i64):
    for j in range(lanes):
        to[j] = g[j]
        if n < 5:
            to[apart + j] = g[j] + g[step + j]
            if n == 3:
                to[2 * apart + j] = 0.0 - g[step + j]
            else:
                to[2 * apart + j] = g[j] - g[step + j]
                to[3 * apart + j] = 0.0 - g[step + j]
        else:
            g0 = g[j]
            g1 = g[step + j]
            g2 = g[2 * step + j]
            g3 = g[3 * step + j]
            if n == 5:
                to[apart + j] = g0 - g1 + (g2 - g3)
                to[2 * apart + j] = fma(0.5, fma(0.5, fma(0.5, g3, g2), g1), g0)
                to[3 * apart + j] = fma(2.0, fma(2.0, fma(2.0, g3, g2), g1), g0)
                to[4 * apart + j] = g3
            else:
                near = fma(AA, g2, g0)
                near_odd = fma(AA, g3, g1)
                far = fma(BB, g2, g0)
                far_odd = fma(BB, g3, g1)
                to[apart + j] = fma(A, near_odd, near)
                to[2 * apart + j] = fma(-A, near_odd, near)
                to[3 * apart + j] = fma(B, far_odd, far)
                to[4 * apart + j] = fma(-B, far_odd, far)
                to[5 * apart + j] = g3


@inline
def window_grad_line(p: Ptr[f32], step: i64, to: Ptr[f32], apart: i64, n: i64, lanes: i64):
    for j in range(lanes):
        if n == 3:
            to[j] = p[j] + p[step + j]
            to[apart + j] = p[step + j] + p[2 * step + j]
        elif n == 5:
            one = BY_ONE * p[step + j]
            half = BY_HALF * p[2 * step + j]
            two = BY_TWO * p[3 * step + j]
            to[j] = p[j] + half + (two - one)
            to[apart + j] = fma(0.5, half, p[4 * step + j]) + fma(2.0, two, one)
        elif n == 6:
            near = BY_A * (p[step + j] + p[2 * step + j])
            near_odd = BY_ODD_A * (p[step + j] - p[2 * step + j])
            far = BY_B * (p[3 * step + j] + p[4 * step + j])
            far_odd = BY_ODD_B * (p[3 * step + j] - p[4 * step + j])
            to[j] = fma(BY_NONE, p[j], near + far)
            to[apart + j] = near_odd + far_odd
            to[2 * apart + j] = fma(AA, near, fma(BB, far, p[5 * step + j]))
        else:
            both = 0.5 * (p[step + j] + p[2 * step + j])
            to[j] = p[j] + both
            to[apart + j] = 0.5 * (p[step + j] - p[2 * step + j])
            to[2 * apart + j] = both + p[3 * step + j]


@inline
def copy_pixels(
    x: Ptr[f32], to: Ptr[f32], places: Ptr[i64], spare: Ptr[f32], first: i64, last: i64, size: i64,
    channels: i64, lanes: i64,
):  # fmt: skip
    """Some pixels of an image with their channels innermost; ``places`` says where each goes."""
    if channels >= lanes and size >= lanes:
        # The last vectors overlap those before.
        for c in range(0, channels, lanes):
            c0 = min(c, channels - lanes)
            for p in range(first, last, lanes):
                p0 = max(min(p, last - lanes), 0)
                transpose(x + (c0 * size + p0), size, spare, lanes)
                for i in range(lanes):
                    target = to + (places[p0 + i] + c0)
                    for j in range(lanes):
                        target[j] = spare[i * lanes + j]
    else:
        for p in range(first, last):
            for c in range(channels):
                to[places[p] + c] = x[c * size + p]


@inline
def copy_lines(
    x: Ptr[f32], to: Ptr[f32], places: Ptr[i64], info: Ptr[i64], spare: Ptr[f32], state: Ptr[i64],
    sample: i64, top: i64, bottom: i64, channels: i64, skipped: i64, some: i64, lanes: i64,
):  # fmt: skip
    """The padded lines of an image that tiles are about to see, but for those that are there.

    Of ``channels`` only ``some`` are copied. Lines that a task does not see are not touched.
    """
    if sample != state[0]:
        state[0] = sample
        state[1] = top
    if bottom > state[1]:
        first, last, wide = state[1] - info[ABOVE], bottom - info[ABOVE], info[WIDTH]
        line = to + state[1] * info[LINE]
        for i in range((bottom - state[1]) * info[LINE]):
            line[i] = 0.0
        size = info[HEIGHT] * wide
        image = x + (sample * channels + skipped) * size
        p0, p1 = max(first, 0) * wide, min(last, info[HEIGHT]) * wide
        copy_pixels(image, to + skipped, places, spare, p0, p1, size, some, lanes)
        state[1] = bottom


@inline
def windows_of(
    w: Ptr[f32], to: Ptr[f32], start: i64, row_step: i64, size: i64, seen: i64, window: i64,
    held: i64, lanes: i64,
):  # fmt: skip
    """A vector of rows for each element of a window, of which memory for ``held`` is there."""
    if seen == lanes and start + (lanes - 1) * row_step + held <= size:
        for e in range(0, held, lanes):
            transpose(w + (start + e), row_step, to + e * lanes, lanes)
    else:
        for i in range(window * lanes):
            to[i] = 0.0
        for r in range(seen):
            for e in range(window):
                to[e * lanes + r] = w[start + r * row_step + e]


@kernel
def windows(
    w: Ptr[f32], to: Ptr[f32], taps: Ptr[i64], size: i64, rows: i64, channels: i64, phases: i64,
    row_step: i64, channel_step: i64, phase_to: i64, point_to: i64, panel_to: i64, full: i64,
    window: i64, held: i64, n: i64, m: i64, lanes: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Transformed windows: for each point panels of `full` rows over all columns. The steps that
    # end in `to` are those of the result; the range is that of panels. Phases are done for some
    # channels together, so that they write a few lines of the cache at a time where they lie far
    # apart.
    k = n - m + 1
    all = array(f32, NEAR * held * lanes)
    raw = array(f32, n * n * lanes)
    half = array(f32, n * n * lanes)
    done = array(f32, n * n * lanes)
    for panel in range(lo, hi):
        for c0 in range(0, channels, NEAR):
            c1 = min(channels, c0 + NEAR)
            for r0 in range(panel * full, min(rows, panel * full + full), lanes):
                for c in range(c0, c1):
                    start = r0 * row_step + c * channel_step
                    here = all + (c - c0) * held * lanes
                    seen = min(lanes, rows - r0)
                    windows_of(w, here, start, row_step, size, seen, window, held, lanes)
                for phase in range(phases):
                    target = to + (panel * panel_to + r0 - panel * full + phase * phase_to)
                    for c in range(c0, c1):
                        here = all + (c - c0) * held * lanes
                        for t in range(k * k):
                            source = here + taps[phase * k * k + t] * lanes
                            for r in range(lanes):
                                raw[t * lanes + r] = source[r]
                        for j in range(k):
                            window_line(
                                raw + j * lanes, k * lanes, half + j * lanes, k * lanes, n, lanes
                            )
                        for i in range(n):
                            window_line(
                                half + i * k * lanes, lanes, done + i * n * lanes, lanes, n, lanes
                            )
                        for point in range(n * n):
                            for r in range(lanes):
                                target[point * point_to + c * width + r] = done[point * lanes + r]


@inline
def transformed(
    x: Ptr[f32], image: Ptr[f32], seen: Ptr[f32], places: Ptr[i64], taps: Ptr[i64], info: Ptr[i64],
    half: Ptr[f32], spare: Ptr[f32], state: Ptr[i64], first: i64, lines: i64, padded: i64,
    apart: i64, n: i64, lanes: i64,
):  # fmt: skip
    """The transforms of lines of tiles as rows; the last tile stands for those that are missing."""
    wide, high, channels = info[WIDE], info[HIGH], info[CHANNELS]
    between = padded * apart + GAP
    for line in range(lines):
        at = (first + line) % high
        top = info[TOP] + at * info[STEP]
        bottom = top + (min(lines - line, high - at) - 1) * info[STEP] + info[REACH]
        copy_lines(
            x, image, places, info, spare, state, (first + line) // high, top, bottom, channels,
            0, channels, lanes,
        )  # fmt: skip
        stop = wide if line < lines - 1 else padded - line * wide
        for t in range(stop):
            source = image + (at * info[IN_Y] + min(t, wide - 1) * info[IN_X])
            row = seen + (line * wide + t) * apart
            for phase in range(info[PHASES]):
                # What is beyond the channels is overwritten by the next phase, or not read.
                for c in range(0, channels, lanes):
                    target = row + (phase * channels + c)
                    tile(source + c, taps + phase * n * n, half, target, between, n, lanes)


@inline
def multiplied(
    seen: Ptr[f32], w: Ptr[f32], found: Ptr[f32], info: Ptr[i64], first: i64, last: i64,
    columns: i64, apart: i64, padded: i64, n: i64, lanes: i64, height: i64, width: i64,
):  # fmt: skip
    """The products of transformed tiles with panels of transformed windows, point by point."""
    rows, full = info[ROWS], info[FULL]
    panels = (rows + full - 1) // full
    sheet = columns * width + GAP
    for point in range(n * n):
        left = seen + point * (padded * apart + GAP)
        for panel in range(first, last):
            vectors = (min(full, rows - panel * full) + lanes - 1) // lanes
            right = w + (point * panels + panel) * sheet
            to = found + ((panel - first) * n * n + point) * (padded * full + GAP)
            for k0 in range(0, columns, K_BLOCK):
                length = min(K_BLOCK, columns - k0)
                adds = 1 if k0 > 0 else 0
                b = right + k0 * width
                for r in range(0, padded, height):
                    a = left + (r * apart + k0)
                    c = to + r * full
                    tile_by_rows(a, apart, b, c, full, c, full, length, adds, vectors)


@inline
def results(source: Ptr[f32], apart: i64, half: Ptr[f32], to: Ptr[f32], n: i64, m: i64, lanes: i64):
    """The m x m results of a tile from its products, point by point."""
    for j in range(n):
        result_line(source + j * apart, n * apart, half + j * lanes, n * lanes, n, lanes)
    for i in range(m):
        result_line(half + i * n * lanes, lanes, to + m * i * lanes, lanes, n, lanes)


@inline
def write_rows(
    source: Ptr[f32], to: Ptr[f32], count: i64, step: i64, some: i64, by: i64, lanes: i64
):
    """Places of some rows, from vectors of rows; places are ``by`` apart."""
    if by == 1 and some == lanes and count >= lanes:
        for p in range(0, count, lanes):
            p0 = min(p, count - lanes)
            transpose(source + p0 * lanes, lanes, to + p0, step)
    else:
        for r in range(some):
            line = to + r * step
            for p in range(count):
                line[p * by] = source[p * lanes + r]


@inline
def tile_line_results(
    found: Ptr[f32],
    between: i64,
    full: i64,
    bias: Ptr[f32],
    check: Ptr[f32],
    half: Ptr[f32],
    done: Ptr[f32],
    places: Ptr[f32],
    wide: i64,
    seen_y: i64,
    seen_x: i64,
    n: i64,
    m: i64,
    lanes: i64,
):
    """The results of a line of tiles, a vector of rows for each place."""
    for t in range(wide):
        results(found + t * full, between, half, done, n, m, lanes)
        for i in range(m * m):
            for j in range(lanes):
                value = done[i * lanes + j] + bias[j]
                done[i * lanes + j] = value
                check[j] = check[j] + value * 0.0
        here = min(m, seen_x - m * t)
        for i in range(seen_y):
            line = places + (i * seen_x + m * t) * lanes
            if here == m:
                for j in range(m * lanes):
                    line[j] = done[i * m * lanes + j]
            else:
                for j in range(here * lanes):
                    line[j] = done[i * m * lanes + j]


@kernel
def products(
    x: Ptr[f32], w: Ptr[f32], bias: Ptr[f32], y: Ptr[f32], places: Ptr[i64], taps: Ptr[i64],
    info: Ptr[i64], scratch: Ptr[f32], bad: Ptr[i64], workers: i64, biased: i64, n: i64, m: i64,
    by: i64, lanes: i64, height: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    # A task does SPAN lines of tiles and PART panels of rows: transforms the tiles, multiplies
    # point by point, transforms the products. `by` is the step between neighbours of the result;
    # `bad` says where a result was not finite.
    half = array(f32, n * n * lanes)
    done = array(f32, m * m * lanes)
    check = array(f32, lanes)
    added = array(f32, lanes)
    spare = array(f32, lanes * lanes)
    state = array(i64, 2)
    rows, step, tasks, full = info[ROWS], info[ROW_STEP], info[TASKS], info[FULL]
    cuts, span, part = info[CUTS], info[SPAN], info[PART]
    wide, high = info[WIDE], info[HIGH]
    columns = info[CHANNELS] * info[PHASES]
    apart = (columns + lanes - 1) // lanes * lanes
    panels = (rows + full - 1) // full
    group = info[GROUP]
    most = (span * wide + height - 1) // height * height
    for worker in range(lo, hi):
        image = scratch + worker * info[SCRATCH]
        seen = image + info[IMAGE]
        found = seen + n * n * (most * apart + GAP)
        line_of = found + group * n * n * (most * full + GAP)
        state[0] = -1
        for j in range(lanes):
            check[j] = 0.0
            added[j] = 0.0
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            first = task // cuts * span
            lines = min(span, info[LINES] - first)
            count = lines * wide
            padded = (count + height - 1) // height * height
            transformed(
                x, image, seen, places, taps, info, half, spare, state, first, lines, padded,
                apart, n, lanes,
            )  # fmt: skip
            between = padded * full + GAP
            p0 = task % cuts * part
            p1 = min(panels, p0 + part)
            for q0 in range(p0, p1, group):
                q1 = min(p1, q0 + group)
                multiplied(
                    seen, w, found, info, q0, q1, columns, apart, padded, n, lanes, height, width
                )
                for r in range(q0 * full, min(rows, q1 * full), lanes):
                    products_of = found + ((r // full - q0) * n * n * between + r % full)
                    some = min(lanes, rows - r)
                    if biased:
                        for j in range(some):
                            added[j] = bias[r + j]
                    for line in range(lines):
                        at = (first + line) % high
                        seen_y = min(m, info[SEEN_Y] - m * at)
                        tile_line_results(
                            products_of + line * wide * full, between, full, added, check,
                            half, done, line_of, wide, seen_y, info[SEEN_X], n, m, lanes,
                        )  # fmt: skip
                        to = y + (
                            (first + line) // high * info[OUT_N] + at * m * info[OUT_Y] + r * step
                        )
                        if by == 1:
                            write_rows(line_of, to, seen_y * info[SEEN_X], step, some, by, lanes)
                        else:
                            for i in range(seen_y):
                                write_rows(
                                    line_of + i * info[SEEN_X] * lanes, to + i * info[OUT_Y],
                                    info[SEEN_X], step, some, by, lanes,
                                )  # fmt: skip
        for j in range(lanes):
            if check[j] != 0.0:
                bad[worker] = 1


@inline
def grad_tile(
    g: Ptr[f32], taps: Ptr[i64], half: Ptr[f32], spare: Ptr[f32], to: Ptr[f32], step: i64, n: i64,
    m: i64, lanes: i64,
):  # fmt: skip
    """The transform of a tile of the result's gradient; points are ``step`` apart."""
    for j in range(m):
        for i in range(m):
            source = g + taps[m * i + j]
            for c in range(lanes):
                spare[i * lanes + c] = source[c]
        result_grad_line(spare, lanes, half + j * lanes, m * lanes, n, lanes)
    for i in range(n):
        result_grad_line(half + m * i * lanes, lanes, to + i * n * step, step, n, lanes)


@inline
def weight_points(
    left: Ptr[f32], right: Ptr[f32], to: Ptr[f32], info: Ptr[i64], p0: i64, p1: i64, length: i64,
    adds: i64, beside: i64, between: i64, apart: i64, columns: i64, blocks: i64, n: i64,
    lanes: i64, height: i64, width: i64,
):  # fmt: skip
    """The products of transformed gradients with panels of transformed tiles, point by point."""
    channels, full = info[CHANNELS], info[FULL]
    across = (channels + full - 1) // full
    for point in range(n * n):
        for p in range(p0, p1):
            vectors = (min(full, channels - p % across * full) + lanes - 1) // lanes
            b = right + (point * between + (p - p0) * length * width)
            for r in range(0, blocks, height):
                a = left + (point * beside + r)
                c = to + ((point * blocks + r) * columns + p * full)
                tile_by_columns(a, apart, b, c, columns, c, columns, length, adds, vectors)


@kernel
def weight_products(
    x: Ptr[f32], g: Ptr[f32], to: Ptr[f32], places: Ptr[i64], grad_places: Ptr[i64],
    taps: Ptr[i64], grad_taps: Ptr[i64], info: Ptr[i64], grad_info: Ptr[i64], scratch: Ptr[f32],
    workers: i64, n: i64, m: i64, lanes: i64, height: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Sums over tiles, point by point. A task does SPAN lines of tiles and PART panels of columns,
    # of which a phase of the stride has a whole number.
    half = array(f32, n * n * lanes)
    spare = array(f32, lanes * lanes)
    state = array(i64, 2)
    grad_state = array(i64, 2)
    rows, tasks, cuts, full = info[ROWS], info[TASKS], info[CUTS], info[FULL]
    span, part, most = info[SPAN], info[PART], info[TOGETHER]
    wide, high, channels = info[WIDE], info[HIGH], info[CHANNELS]
    across = (channels + full - 1) // full
    panels = across * info[PHASES]
    columns = panels * full
    apart = (rows + lanes - 1) // lanes * lanes
    blocks = (rows + height - 1) // height * height
    for worker in range(lo, hi):
        image = scratch + worker * info[SCRATCH]
        grads = image + info[IMAGE]
        left = grads + grad_info[IMAGE]
        right = left + n * n * (most * wide * apart + GAP)
        state[0] = -1
        grad_state[0] = -1
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            p0 = task % cuts * part
            p1 = min(panels, p0 + part)
            # Other channels of the image are not needed, unless phases take turns.
            before = p0 * full if info[PHASES] == 1 else 0
            some = min(channels, p1 * full) - before if info[PHASES] == 1 else channels
            if cuts > 1:
                state[0] = -1
            first = task // cuts * span
            last = min(info[LINES], first + span)
            result = to + task // cuts * n * n * blocks * columns
            for l0 in range(first, last, most):
                lines = min(most, last - l0)
                length = lines * wide
                beside = length * apart + GAP
                between = part * length * width + GAP
                for line in range(lines):
                    sample = (l0 + line) // high
                    at = (l0 + line) % high
                    below = min(lines - line, high - at) - 1
                    top = info[TOP] + at * info[STEP]
                    bottom = top + below * info[STEP] + info[REACH]
                    copy_lines(
                        x, image, places, info, spare, state, sample, top, bottom, channels,
                        before, some, lanes,
                    )  # fmt: skip
                    copy_lines(
                        g, grads, grad_places, grad_info, spare, grad_state, sample, m * at,
                        m * (at + below + 1), rows, 0, rows, lanes,
                    )  # fmt: skip
                    for t in range(wide):
                        source = grads + (at * grad_info[IN_Y] + t * grad_info[IN_X])
                        target = left + (line * wide + t) * apart
                        for r in range(0, rows, lanes):
                            grad_tile(
                                source + r, grad_taps, half, spare, target + r, beside, n, m, lanes
                            )
                        source = image + (at * info[IN_Y] + t * info[IN_X])
                        for p in range(p0, p1):
                            where = taps + p // across * n * n
                            c0 = p % across * full
                            target = right + ((p - p0) * length + line * wide + t) * width
                            for c in range(0, min(full, channels - c0), lanes):
                                place = source + (c0 + c)
                                tile(place, where, half, target + c, between, n, lanes)
                adds = 1 if l0 > first else 0
                weight_points(
                    left, right, result, info, p0, p1, length, adds, beside, between, apart,
                    columns, blocks, n, lanes, height, width,
                )  # fmt: skip


@kernel
def weight_results(
    parts: Ptr[f32],
    to: Ptr[f32],
    taps: Ptr[i64],
    bad: Ptr[i64],
    pieces: i64,
    channels: i64,
    phases: i64,
    size: i64,
    columns: i64,
    window: i64,
    n: i64,
    m: i64,
    lanes: i64,
    lo: i64,
    hi: i64,
):
    # The sum of the pieces, transformed into windows: element by element of the weight.
    k = n - m + 1
    total = array(f32, n * n * lanes)
    half = array(f32, n * n * lanes)
    done = array(f32, n * n * lanes)
    check = array(f32, lanes)
    for row in range(lo, hi):
        for c in range(lanes):
            check[c] = 0.0
        for phase in range(phases):
            where = taps + phase * k * k
            for c0 in range(0, channels, lanes):
                source = parts + (row * columns + phase * (columns // phases) + c0)
                for point in range(n * n):
                    for c in range(lanes):
                        total[point * lanes + c] = source[point * size + c]
                for piece in range(1, pieces):
                    more = source + piece * n * n * size
                    for point in range(n * n):
                        for c in range(lanes):
                            total[point * lanes + c] = (
                                total[point * lanes + c] + more[point * size + c]
                            )
                for j in range(n):
                    window_grad_line(
                        total + j * lanes, n * lanes, half + j * lanes, n * lanes, n, lanes
                    )
                for i in range(k):
                    window_grad_line(
                        half + i * n * lanes, lanes, done + i * k * lanes, lanes, n, lanes
                    )
                for c in range(min(lanes, channels - c0)):
                    target = to + (row * channels + c0 + c) * window
                    for t in range(k * k):
                        target[where[t]] = done[t * lanes + c]
                # Lanes beyond the channels hold anything.
                for t in range(k * k):
                    for c in range(min(lanes, channels - c0)):
                        check[c] = check[c] + done[t * lanes + c] * 0.0
        for c in range(lanes):
            if check[c] != 0.0:
                bad[0] = 1
