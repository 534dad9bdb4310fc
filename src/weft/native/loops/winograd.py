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

A column is what a tile is multiplied with in one product: a channel, in one phase of the stride.
Sizes and steps come in a table of integers, as those of ``loops.convolve`` do.
"""

from __future__ import annotations

from weft.native.codegen.compiler import Ptr, array, f32, fma, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import micro
from weft.native.loops import convolve
from weft.native.loops.convolve import (
    COUNT,
    CUTS,
    HIGH,
    OUT_Y,
    PART,
    ROW_STEP,
    ROWS,
    SCRATCH,
    SPAN,
    TASKS,
    WIDE,
    walk,
)

# Places are tiles here, CUTS and PART pieces of rows, or of columns for the gradient of a weight.
# Behind the table of a convolution stand: places of the result, which may end inside of a tile;
# channels and their step in the source; phases of the stride.
SEEN_Y, SEEN_X = convolve.SIZE, convolve.SIZE + 1
CHANNELS, CHANNEL, PHASES = convolve.SIZE + 2, convolve.SIZE + 3, convolve.SIZE + 4
SIZE = convolve.SIZE + 5

K_BLOCK = 256  # columns that are multiplied at a time, so that panels stay in the cache
STRIP = 72  # rows that stay in the cache while panels pass by
PANELS = 4  # of tiles in a piece at most
SHORT = 8  # tiles up to which lines of them are gathered by shorter vectors
GAP = (
    16  # elements between points: far apart by a power of two, they would share a set of the cache
)
TOGETHER = 128  # tiles that the gradient of a weight takes at a time

# The points of n = 6, their squares and cubes, and what windows are multiplied by at them and at 0.
A, B = 0.625, 1.5
AA, BB, AAA, BBB = A * A, B * B, A * A * A, B * B * B
BY_A, BY_B, BY_NONE = 0.5 / (AA * (AA - BB)), 0.5 / (BB * (BB - AA)), 1.0 / (AA * BB)
BY_ODD_A, BY_ODD_B = BY_A * A, BY_B * B
# What windows are multiplied by at the points -1, 1/2 and 2 of n = 5.
BY_ONE, BY_HALF, BY_TWO = 2.0 / 9.0, -8.0 / 9.0, 1.0 / 9.0


@inline
def tile_line(
    d0: Ptr[f32],
    d1: Ptr[f32],
    d2: Ptr[f32],
    d3: Ptr[f32],
    d4: Ptr[f32],
    d5: Ptr[f32],
    to: Ptr[f32],
    apart: i64,
    n: i64,
    lanes: i64,
):
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
    last = n - 1
    for j in range(n):
        d0 = x + taps[j]
        d1 = x + taps[n + j]
        d2 = x + taps[2 * n + j]
        d3 = x + taps[min(3, last) * n + j]
        d4 = x + taps[min(4, last) * n + j]
        d5 = x + taps[last * n + j]
        tile_line(d0, d1, d2, d3, d4, d5, half + j * lanes, n * lanes, n, lanes)
    for i in range(n):
        d = half + i * n * lanes
        d3 = d + min(3, last) * lanes
        d4 = d + min(4, last) * lanes
        d5 = d + last * lanes
        target = to + i * n * step
        tile_line(d, d + lanes, d + 2 * lanes, d3, d4, d5, target, step, n, lanes)


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


@kernel(unswitched=True)
def windows(
    w: Ptr[f32],
    to: Ptr[f32],
    taps: Ptr[i64],
    rows: i64,
    channels: i64,
    phases: i64,
    row_step: i64,
    channel_step: i64,
    phase_to: i64,
    channel_to: i64,
    sheet_to: i64,
    together: i64,
    n: i64,
    m: i64,
    height: i64,
    lanes: i64,
    lo: i64,
    hi: i64,
):
    # Transformed windows: for each point panels of `height` rows over all columns. The steps that
    # end in `to` are those of the result. Phases are done for some channels together, so that they
    # write a few lines of the cache at a time where they lie far apart.
    k = n - m + 1
    raw = array(f32, n * n * lanes)
    half = array(f32, n * n * lanes)
    done = array(f32, n * n * lanes)
    sheets = (rows + height - 1) // height
    for i in range(k * k * lanes):
        raw[i] = 0.0
    for sheet in range(lo, hi):
        first = sheet * height
        seen = min(height, rows - first)
        if seen < height:
            for i in range(k * k * lanes):
                raw[i] = 0.0
        for c0 in range(0, channels, together):
            for phase in range(phases):
                where = taps + phase * k * k
                for c in range(c0, min(channels, c0 + together)):
                    source = w + (first * row_step + c * channel_step)
                    if seen == height:
                        for r in range(height):
                            for t in range(k * k):
                                raw[t * lanes + r] = source[r * row_step + where[t]]
                    else:
                        for r in range(seen):
                            for t in range(k * k):
                                raw[t * lanes + r] = source[r * row_step + where[t]]
                    for j in range(k):
                        window_line(
                            raw + j * lanes, k * lanes, half + j * lanes, k * lanes, n, lanes
                        )
                    for i in range(n):
                        window_line(
                            half + i * k * lanes, lanes, done + i * n * lanes, lanes, n, lanes
                        )
                    place = to + (phase * phase_to + c * channel_to)
                    for point in range(n * n):
                        target = place + (point * sheets + sheet) * sheet_to
                        for r in range(height):
                            target[r] = done[point * lanes + r]


@inline
def gather(
    x: Ptr[f32],
    to: Ptr[f32],
    taps: Ptr[i64],
    ins: Ptr[i64],
    count: i64,
    starts: Ptr[i64],
    stretches: i64,
    wide: i64,
    n: i64,
    width: i64,
):
    # One channel of a panel of tiles: what each tile has at its n*n places. Stretches of
    # neighbours are copied as whole vectors: what is too much is overwritten by the next one.
    for t in range(n * n):
        line = x + taps[t]
        place = to + t * width
        if stretches == 0:
            for j in range(width):
                place[j] = 0.0
            for j in range(count):
                place[j] = line[ins[j]]
        elif wide <= SHORT:
            for s in range(stretches):
                j0 = starts[s]
                from_ = line + ins[j0]
                for j in range(SHORT):
                    place[j0 + j] = from_[j]
        else:
            for s in range(stretches):
                j0 = starts[s]
                from_ = line + ins[j0]
                for j in range(width):
                    place[j0 + j] = from_[j]


@inline
def transformed(
    x: Ptr[f32],
    seen: Ptr[f32],
    taps: Ptr[i64],
    gathered: Ptr[i64],
    ins: Ptr[i64],
    starts: Ptr[i64],
    raw: Ptr[f32],
    half: Ptr[f32],
    channels: i64,
    phases: i64,
    channel: i64,
    wide: i64,
    first: i64,
    count: i64,
    n: i64,
    width: i64,
):
    """The transforms of some tiles, a panel for each ``width`` of them."""
    columns = channels * phases
    step = columns * width + GAP
    for p in range((count + width - 1) // width):
        here = ins + p * width
        some = min(width, count - p * width)
        stretches = 0
        j = 0
        while j < width and some == width:
            starts[stretches] = j
            stretches += 1
            j += wide - (first + p * width + j) % wide
        for c in range(channels):
            source = x + c * channel
            for phase in range(phases):
                where = taps + phase * n * n
                target = seen + (p * n * n * step + (c * phases + phase) * width)
                if stretches == 1:
                    tile(source + here[0], where, half, target, step, n, width)
                else:
                    gather(source, raw, where, here, some, starts, stretches, wide, n, width)
                    tile(raw, gathered, half, target, step, n, width)


@inline
def multiplied(
    w: Ptr[f32],
    seen: Ptr[f32],
    found: Ptr[f32],
    columns: i64,
    sheets: i64,
    panels: i64,
    part: i64,
    r0: i64,
    r1: i64,
    n: i64,
    height: i64,
    width: i64,
):
    """The products of rows of transformed weights with transformed tiles, point by point."""
    step = columns * width + GAP
    sheet = columns * height + GAP
    for point in range(n * n):
        for k0 in range(0, columns, K_BLOCK):
            length = min(K_BLOCK, columns - k0)
            adds = 1 if k0 > 0 else 0
            for s0 in range(r0, r1, STRIP):
                s1 = min(r1, s0 + STRIP)
                for p in range(panels):
                    b = seen + ((p * n * n + point) * step + k0 * width)
                    c = found + ((point * panels + p) * part - r0) * width
                    for r in range(s0, s1, height):
                        a = w + ((point * sheets + r // height) * sheet + k0 * height)
                        micro(a, b, c + r * width, width, length, adds)


@inline
def results(source: Ptr[f32], apart: i64, half: Ptr[f32], to: Ptr[f32], n: i64, m: i64, width: i64):
    """The m x m results of a panel of tiles from their products, point by point."""
    for j in range(n):
        result_line(source + j * apart, n * apart, half + j * width, n * width, n, width)
    for i in range(m):
        result_line(half + i * n * width, width, to + m * i * width, width, n, width)


@inline
def result_stretch(
    row: Ptr[f32], place: Ptr[f32], count: i64, clipped: i64, by: i64, m: i64, width: i64
):
    """One line of the results of neighbouring tiles; the last of them may end outside."""
    whole = count - (1 if clipped > 0 else 0)
    for i in range(whole):
        for q in range(m):
            place[(m * i + q) * by] = row[q * width + i]
    if clipped > 0:
        for q in range(m - clipped):
            place[(m * whole + q) * by] = row[q * width + whole]


@inline
def written(
    found: Ptr[f32],
    line: Ptr[f32],
    here: Ptr[i64],
    info: Ptr[i64],
    first: i64,
    some: i64,
    by: i64,
    m: i64,
    width: i64,
):
    """The results of tiles in their places."""
    wide = info[WIDE]
    j = 0
    while j < some:
        # Tiles of one line, the last of which may end beyond the result.
        number = first + j
        stop = min(some, j + wide - number % wide)
        clipped = max(0, m * (number % wide + stop - j) - info[SEEN_X])
        place = line + here[j]
        seen = min(m, info[SEEN_Y] - m * (number // wide % info[HIGH]))
        for i in range(seen):
            below = place + i * (info[OUT_Y] // m)
            result_stretch(found + (j + m * i * width), below, stop - j, clipped, by, m, width)
        j = stop


@kernel
def products(
    x: Ptr[f32],
    w: Ptr[f32],
    bias: Ptr[f32],
    y: Ptr[f32],
    taps: Ptr[i64],
    info: Ptr[i64],
    scratch: Ptr[f32],
    bad: Ptr[i64],
    workers: i64,
    n: i64,
    m: i64,
    biased: i64,
    by: i64,
    height: i64,
    width: i64,
    lo: i64,
    hi: i64,
):
    # A task does SPAN tiles and PART rows: transforms the tiles, multiplies point by point,
    # transforms the products. `by` is the step between neighbours of the result; `bad` says where
    # a result was not finite.
    ins = array(i64, PANELS * width)
    outs = array(i64, PANELS * width)
    starts = array(i64, width)
    raw = array(f32, (n * n + 1) * width)
    half = array(f32, n * n * width)
    done = array(f32, m * m * width)
    check = array(f32, width)
    gathered = array(i64, n * n)
    for t in range(n * n):
        gathered[t] = t * width
    rows, tasks, step = info[ROWS], info[TASKS], info[ROW_STEP]
    cuts, span, part = info[CUTS], info[SPAN], info[PART]
    channels, phases, channel = info[CHANNELS], info[PHASES], info[CHANNEL]
    wide, columns = info[WIDE], channels * phases
    sheets = (rows + height - 1) // height
    for worker in range(lo, hi):
        seen = scratch + worker * info[SCRATCH]
        for j in range(width):
            check[j] = 0.0
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            r0 = (task % cuts) * part
            r1 = min(rows, r0 + part)
            first = (task // cuts) * span
            count = min(span, info[COUNT] - first)
            panels = (count + width - 1) // width
            walk(info, first, count, ins, outs)
            found = seen + n * n * panels * (columns * width + GAP)
            transformed(
                x, seen, taps, gathered, ins, starts, raw, half, channels, phases, channel,
                wide, first, count, n, width,
            )  # fmt: skip
            multiplied(w, seen, found, columns, sheets, panels, part, r0, r1, n, height, width)
            for r in range(r0, r1):
                for p in range(panels):
                    source = found + (p * part + r - r0) * width
                    results(source, panels * part * width, half, done, n, m, width)
                    if biased:
                        for j in range(m * m * width):
                            done[j] = done[j] + bias[r]
                    for i in range(m * m):
                        for j in range(width):
                            check[j] = check[j] + done[i * width + j] * 0.0
                    some = min(width, count - p * width)
                    here = outs + p * width
                    written(done, y + r * step, here, info, first + p * width, some, by, m, width)
        for j in range(width):
            if check[j] != 0.0:
                bad[worker] = 1


@kernel
def weight_products(
    x: Ptr[f32],
    g: Ptr[f32],
    to: Ptr[f32],
    taps: Ptr[i64],
    grads: Ptr[i64],
    info: Ptr[i64],
    scratch: Ptr[f32],
    workers: i64,
    n: i64,
    m: i64,
    height: i64,
    lanes: i64,
    width: i64,
    lo: i64,
    hi: i64,
):
    # Sums over tiles, point by point. Both arrays have their channels innermost; a task does SPAN
    # tiles and PART panels of columns, of which a phase of the stride has a whole number.
    ins = array(i64, TOGETHER)
    outs = array(i64, TOGETHER)
    half = array(f32, n * n * width)
    done = array(f32, n * n * width)
    rows, tasks, cuts = info[ROWS], info[TASKS], info[CUTS]
    span, part = info[SPAN], info[PART]
    across = (info[CHANNELS] + width - 1) // width
    panels = across * info[PHASES]
    sheets = (rows + height - 1) // height
    columns = panels * width
    size = sheets * height * columns
    for worker in range(lo, hi):
        left = scratch + worker * info[SCRATCH]
        right = left + n * n * (sheets * height * TOGETHER + GAP)
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            p0 = (task % cuts) * part
            p1 = min(panels, p0 + part)
            first = (task // cuts) * span
            last = min(info[COUNT], first + span)
            result = to + (task // cuts) * n * n * size
            for t0 in range(first, last, TOGETHER):
                length = min(TOGETHER, last - t0)
                walk(info, t0, length, ins, outs)
                beside = sheets * length * height + GAP
                apart = part * length * width + GAP
                for sheet in range(sheets):
                    for t in range(length):
                        source = g + (outs[t] + sheet * height)
                        for j in range(m):
                            for i in range(m):
                                line = source + grads[m * i + j]
                                for r in range(lanes):
                                    done[i * lanes + r] = line[r]
                            result_grad_line(done, lanes, half + j * lanes, m * lanes, n, lanes)
                        for i in range(n):
                            result_grad_line(
                                half + m * i * lanes, lanes, done + i * n * lanes, lanes, n, lanes
                            )
                        for point in range(n * n):
                            target = left + (point * beside + (sheet * length + t) * height)
                            for r in range(height):
                                target[r] = done[point * lanes + r]
                for p in range(p0, p1):
                    where = taps + (p // across) * n * n
                    source = x + (p % across) * width
                    target = right + (p - p0) * length * width
                    for t in range(length):
                        place = target + t * width
                        tile(source + ins[t], where, half, place, apart, n, width)
                adds = 1 if t0 > first else 0
                for point in range(n * n):
                    for s0 in range(0, sheets, STRIP // height):
                        for p in range(p0, p1):
                            b = right + (point * apart + (p - p0) * length * width)
                            for sheet in range(s0, min(sheets, s0 + STRIP // height)):
                                a = left + (point * beside + sheet * length * height)
                                c = result + (point * size + sheet * height * columns + p * width)
                                micro(a, b, c, columns, length, adds)


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
    width: i64,
    lo: i64,
    hi: i64,
):
    # The sum of the pieces, transformed into windows: element by element of the weight.
    k = n - m + 1
    total = array(f32, n * n * width)
    half = array(f32, n * n * width)
    done = array(f32, n * n * width)
    check = array(f32, width)
    across = (channels + width - 1) // width
    for row in range(lo, hi):
        for c in range(width):
            check[c] = 0.0
        for phase in range(phases):
            where = taps + phase * k * k
            for p in range(across):
                source = parts + (row * columns + (phase * across + p) * width)
                for point in range(n * n):
                    for c in range(width):
                        total[point * width + c] = source[point * size + c]
                for piece in range(1, pieces):
                    more = source + piece * n * n * size
                    for point in range(n * n):
                        for c in range(width):
                            total[point * width + c] = (
                                total[point * width + c] + more[point * size + c]
                            )
                for j in range(n):
                    window_grad_line(
                        total + j * width, n * width, half + j * width, n * width, n, width
                    )
                for i in range(k):
                    window_grad_line(
                        half + i * n * width, width, done + i * k * width, width, n, width
                    )
                for c in range(min(width, channels - p * width)):
                    target = to + (row * channels + p * width + c) * window
                    for t in range(k * k):
                        target[where[t]] = done[t * width + c]
                for t in range(k * k):
                    for c in range(width):
                        check[c] = check[c] + done[t * width + c] * 0.0
        for c in range(width):
            if check[c] != 0.0:
                bad[0] = 1
