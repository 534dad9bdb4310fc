"""The loops of a convolution on any processor.

The source is first copied by ``loops.spread``, so that each element of a window is at the address
of the window's position plus a fixed offset. Then

* ``dense`` packs the windows into panels for the block product of ``weft.native.gemm.packed``,
* ``dense_weights`` does so for the gradient of the weight, from channels that lie innermost,
* ``few`` and ``few_weights`` read the source in place, for groups with few channels.

Sizes and steps come in a table of integers, in the order of the names below.
"""

from __future__ import annotations

from weft.native.codegen.compiler import Assembly, Ptr, T, array, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import VectorCode, micro
from weft.native.gemm.packed import K_BLOCK

# Places: their numbers in three dimensions; the steps from one to the next in the source and in the
# result, where the first step is that of samples.
WIDE, HIGH, LONG = 0, 1, 2
IN_N, IN_Z, IN_Y, IN_X = 3, 4, 5, 6
OUT_N, OUT_Z, OUT_Y, OUT_X = 7, 8, 9, 10
COUNT = 11  # all places, of all samples
# Rows: of a group of the result; their number, the step between them; products in each element.
ROWS, ROW_STEP, TAPS = 12, 13, 14
GROUPS, GROUP_IN = 15, 16
READABLE, REACH = 17, 18  # elements that may be read in the source; the largest offset
# How the work is cut: tasks, pieces of places, pieces of rows; places and rows in a piece.
TASKS, BLOCKS, CUTS, SPAN, PART = 19, 20, 21, 22, 23
SCRATCH = 24  # elements of working memory for a thread
SIZE = 25

PANELS = 8  # of places in a piece at most
STRIP = 72  # rows that stay in the cache while the panels of a piece pass by
VECTORS = 8  # that `few` works out at a time
DOTS = 9  # taps of which `few_weights` takes the sums at a time


def _strip(name: str, kind: str) -> str:
    """LLVM IR of the sum over taps of ``w[k] * x[offset[k] + lane]``, for several vectors."""
    code = VectorCode(kind)
    given = "ptr noalias %x, ptr noalias %w, ptr noalias %offsets, ptr noalias %to, i64 %k_size"
    code.begin(name, given)
    code.put("  br label %loop", "loop:")
    code.phi("%loop.i", "i64", entry="0", loop="%loop.n")
    for v in range(VECTORS):
        code.phi(f"%s{v}", entry="zeroinitializer", loop=f"%t{v}")
    code.load_number("%offset", "%offsets", "%loop.i")
    code.move("%from", "%x", "%offset")
    code.load_splat("%tap", "%w", "%loop.i")
    for v in range(VECTORS):
        code.load(f"%x{v}", "%from", v * code.lanes)
        code.fma(f"%t{v}", "%tap", f"%x{v}", f"%s{v}")
    code.repeat("loop", 1, "%k_size", "done", how="")
    code.put("done:")
    for v in range(VECTORS):
        code.store(f"%t{v}", "%to", v * code.lanes)
    return code.text()


_GIVEN = ("ptr", "ptr", "ptr", "ptr", "i64")
strip64 = Assembly("strip64", _GIVEN, lambda: _strip("strip64", "f64"))
strip = Assembly("strip", _GIVEN, lambda: _strip("strip", "f32"), strip64)


def _dots(name: str, kind: str) -> str:
    """LLVM IR of ``sums[j] += a * b[offset[j]]`` over a line, in lanes, for several taps."""
    code, taps = VectorCode(kind), range(DOTS)
    given = "ptr noalias %a, ptr noalias %b, ptr noalias %offsets, ptr noalias %sums, i64 %wide"
    code.begin(name, given)
    for j in taps:
        code.load(f"%s{j}", "%sums", j * code.lanes)
        code.load_number(f"%offset{j}", "%offsets", j)
        code.move(f"%b{j}", "%b", f"%offset{j}")
    lines, sums = ([f"%{stem}{j}" for j in taps] for stem in "bs")
    found = code.products("%a", lines, sums, "%wide")
    for j in taps:
        code.put(f"  store {code.vector} {found[j]}, ptr %s{j}.p, align {code.align}")
    return code.text()


dots64 = Assembly("dots64", _GIVEN, lambda: _dots("dots64", "f64"))
dots = Assembly("dots", _GIVEN, lambda: _dots("dots", "f32"), dots64)


@kernel
def pack_rows(
    x: Ptr[T], to: Ptr[T], outer: Ptr[i64], inner: Ptr[i64], blocks: i64, run: i64, rows: i64,
    step: i64, group: i64, height: i64, lo: i64, hi: i64,
):  # fmt: skip
    # Rows that are `step` apart, `height` together; element k of a row is at outer[k // run] +
    # inner[k % run]. What is missing in the last panel of a group is zero.
    panels = (rows + height - 1) // height
    for task in range(lo, hi):
        b = task % blocks
        panel = task // blocks
        first = (panel % panels) * height
        source = x + ((panel // panels) * group + outer[b] + first * step)
        target = to + (panel * blocks + b) * run * height
        if first + height <= rows:
            for i in range(run):
                for r in range(height):
                    target[i * height + r] = source[inner[i] + r * step]
        else:
            for i in range(run):
                for r in range(height):
                    target[i * height + r] = 0.0
                for r in range(rows - first):
                    target[i * height + r] = source[inner[i] + r * step]


@inline
def walk(info: Ptr[i64], first: i64, count: i64, ins: Ptr[i64], outs: Ptr[i64]):
    wide, high, long = info[WIDE], info[HIGH], info[LONG]
    x = first % wide
    rest = first // wide
    y = rest % high
    rest = rest // high
    z = rest % long
    n = rest // long
    for i in range(count):
        ins[i] = n * info[IN_N] + z * info[IN_Z] + y * info[IN_Y] + x * info[IN_X]
        outs[i] = n * info[OUT_N] + z * info[OUT_Z] + y * info[OUT_Y] + x * info[OUT_X]
        x += 1
        if x == wide:
            x = 0
            y += 1
            if y == high:
                y = 0
                z += 1
                if z == long:
                    z = 0
                    n += 1


@inline
def pack_panel(
    x: Ptr[T], to: Ptr[T], down: Ptr[i64], k_size: i64, across: Ptr[i64], count: i64,
    starts: Ptr[i64], width: i64, limit: i64,
):  # fmt: skip
    # to[k, j] = x[down[k] + across[j]]. Stretches of neighbours are copied as whole vectors: what
    # is too much is overwritten by the next one, and at the end lies in columns that nobody reads.
    stretches = 0
    before = across[0] - 2
    far = 0
    for j in range(count):
        here = across[j]
        if here != before + 1:
            starts[stretches] = j
            stretches += 1
        before = here
        far = max(far, here)
    if far + width > limit:
        for k in range(k_size):
            for j in range(count):
                to[k * width + j] = x[down[k] + across[j]]
    else:
        if stretches == 1:
            source = x + across[0]
            for k in range(k_size):
                for j in range(width):
                    to[k * width + j] = source[down[k] + j]
        else:
            for k in range(k_size):
                line = x + down[k]
                for s in range(stretches):
                    j0 = starts[s]
                    from_ = line + across[j0]
                    place = to + (k * width + j0)
                    for j in range(width):
                        place[j] = from_[j]


@inline
def dense_block(
    a: Ptr[T], b: Ptr[T], result: Ptr[T], places: Ptr[i64], spare: Ptr[T], rows: i64, columns: i64,
    whole: i64, step: i64, length: i64, adds: i64, height: i64, width: i64,
):  # fmt: skip
    """A block of the result, in its place if that is in one piece, or element by element."""
    if whole and rows == height:
        micro(a, b, result + places[0], step, length, adds)
    else:
        micro(a, b, spare, width, length, 0)
        for i in range(rows):
            line = result + i * step
            for j in range(columns):
                if adds:
                    line[places[j]] = line[places[j]] + spare[i * width + j]
                else:
                    line[places[j]] = spare[i * width + j]


@inline
def dense_panels(
    x: Ptr[T], down: Ptr[i64], across: Ptr[i64], packed: Ptr[T], a: Ptr[T], result: Ptr[T],
    places: Ptr[i64], starts: Ptr[i64], spare: Ptr[T], length: i64, k_size: i64, count: i64,
    r0: i64, r1: i64, rows: i64, step: i64, adds: i64, limit: i64, height: i64, width: i64,
):  # fmt: skip
    """Some rows of a, which is in panels, times ``count`` columns of x, which are packed first."""
    panels = (count + width - 1) // width
    for p in range(panels):
        pack_panel(
            x, packed + p * length * width, down, length, across + p * width,
            min(width, count - p * width), starts, width, limit,
        )  # fmt: skip
    for s0 in range(r0, r1, STRIP):
        for p in range(panels):
            to = places + p * width
            seen = min(width, count - p * width)
            whole = seen == width and to[seen - 1] - to[0] == width - 1
            for r in range(s0, min(r1, s0 + STRIP), height):
                dense_block(
                    a + r * k_size, packed + p * length * width, result + r * step, to, spare,
                    min(height, rows - r), seen, i64(whole), step, length, adds, height, width,
                )  # fmt: skip


@kernel
def dense(
    x: Ptr[T], w: Ptr[T], bias: Ptr[T], y: Ptr[T], taps: Ptr[i64], info: Ptr[i64], scratch: Ptr[T],
    workers: i64, biased: i64, height: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    spare = array(T, height * width)
    ins = array(i64, PANELS * width)
    outs = array(i64, PANELS * width)
    starts = array(i64, width)
    rows, k_size, step, tasks = info[ROWS], info[TAPS], info[ROW_STEP], info[TASKS]
    cuts, blocks, span, part = info[CUTS], info[BLOCKS], info[SPAN], info[PART]
    sheets = (rows + height - 1) // height
    limit = info[READABLE] - info[REACH]
    for worker in range(lo, hi):
        packed = scratch + worker * info[SCRATCH]
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            r0 = (task % cuts) * part
            r1 = min(rows, r0 + part)
            first = (task // cuts % blocks) * span
            group = task // (cuts * blocks)
            count = min(span, info[COUNT] - first)
            walk(info, first, count, ins, outs)
            source = x + group * info[GROUP_IN]
            weights = w + group * sheets * height * k_size
            result = y + group * rows * step
            if biased:
                for r in range(r0, r1):
                    for j in range(count):
                        result[r * step + outs[j]] = bias[group * rows + r]
            for k0 in range(0, k_size, K_BLOCK):
                length = min(K_BLOCK, k_size - k0)
                adds = 1 if k0 > 0 else biased
                dense_panels(
                    source, taps + k0, ins, packed, weights + k0 * height, result, outs, starts,
                    spare, length, k_size, count, r0, r1, rows, step, adds,
                    limit - group * info[GROUP_IN], height, width,
                )  # fmt: skip


@kernel
def dense_weights(
    x: Ptr[T], g: Ptr[T], to: Ptr[T], taps: Ptr[i64], info: Ptr[i64], scratch: Ptr[T], workers: i64,
    height: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The places are now the products of an element, and what a window sees its column: a task does
    # SPAN columns and all rows, over PART of the places.
    spare = array(T, height * width)
    ins = array(i64, K_BLOCK)
    outs = array(i64, K_BLOCK)
    starts = array(i64, width)
    line = array(i64, PANELS * width)
    for j in range(PANELS * width):
        line[j] = j
    rows, columns, tasks, places = info[ROWS], info[TAPS], info[TASKS], info[COUNT]
    blocks, span, part = info[BLOCKS], info[SPAN], info[PART]
    sheets = (rows + height - 1) // height
    for worker in range(lo, hi):
        packed = scratch + worker * info[SCRATCH]
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            first = (task % blocks) * span
            group = task // blocks % info[GROUPS]
            cut = task // (blocks * info[GROUPS])
            count = min(span, columns - first)
            source = x + group * info[GROUP_IN]
            left = g + group * sheets * height * places
            result = to + ((cut * info[GROUPS] + group) * rows * columns + first)
            for k0 in range(cut * part, min(places, (cut + 1) * part), K_BLOCK):
                length = min(K_BLOCK, min(places, (cut + 1) * part) - k0)
                walk(info, k0, length, ins, outs)
                adds = 1 if k0 > cut * part else 0
                dense_panels(
                    source, ins, taps + first, packed, left + k0 * height, result, line, starts,
                    spare, length, places, count, 0, rows, rows, columns, adds, info[READABLE],
                    height, width,
                )  # fmt: skip


@kernel(unswitched=True)
def gather_weights(
    parts: Ptr[T], to: Ptr[T], cuts: i64, size: i64, channels: i64, taps: i64, lo: i64, hi: i64
):
    # The sum of the parts, and (row, tap, channel) to (row, channel, tap).
    for row in range(lo, hi):
        source = parts + row * channels * taps
        target = to + row * channels * taps
        for c in range(channels):
            for t in range(taps):
                total = source[t * channels + c]
                for cut in range(1, cuts):
                    total += source[cut * size + t * channels + c]
                target[c * taps + t] = total


@kernel
def few(
    x: Ptr[T], w: Ptr[T], bias: Ptr[T], y: Ptr[T], taps: Ptr[i64], info: Ptr[i64], scratch: Ptr[T],
    biased: i64, block: i64, lo: i64, hi: i64,
):  # fmt: skip
    # The places of a sample as one line, with those between the rows, whose results are left out.
    spare = array(T, block)
    rows, k_size, step, span = info[ROWS], info[TAPS], info[ROW_STEP], info[SPAN]
    wide, high, line, plane = info[WIDE], info[HIGH], info[IN_Y], info[IN_Z]
    apart = info[OUT_X]
    length = (info[LONG] - 1) * plane + (high - 1) * line + wide
    for task in range(lo, hi):
        q0 = (task % info[BLOCKS]) * span
        group = task // info[BLOCKS] % info[GROUPS]
        n = task // (info[BLOCKS] * info[GROUPS])
        source = x + (n * info[IN_N] + group * info[GROUP_IN])
        x0 = q0 % plane % line
        y0 = q0 % plane // line
        z0 = q0 // plane
        for q in range(q0, min(length, q0 + span), block):
            count = min(block, length - q)
            xi, yi, zi = x0, y0, z0
            for r in range(rows):
                row = group * rows + r
                strip(source + q, w + row * k_size, taps, spare, k_size)
                if biased:
                    for i in range(block):
                        spare[i] = spare[i] + bias[row]
                result = y + (n * info[OUT_N] + row * step)
                xi, yi, zi = x0, y0, z0
                at = 0
                while at < count:
                    taken = min(line - xi, count - at)
                    seen = min(wide - xi, taken) if yi < high else 0
                    to = result + (zi * info[OUT_Z] + yi * info[OUT_Y] + xi * apart)
                    have = spare + at
                    if apart == 1:
                        for i in range(seen):
                            to[i] = have[i]
                    else:
                        for i in range(seen):
                            to[i * apart] = have[i]
                    at += taken
                    xi += taken
                    if xi == line:
                        xi = 0
                        yi += 1
                        if yi * line == plane:
                            yi = 0
                            zi += 1
            x0, y0, z0 = xi, yi, zi


@kernel
def few_weights(
    x: Ptr[T], g: Ptr[T], to: Ptr[T], taps: Ptr[i64], info: Ptr[i64], samples: i64, lanes: i64,
    lo: i64, hi: i64,
):  # fmt: skip
    # An element is a sum over all places: in lanes for a sample, then over the samples.
    sums = array(T, DOTS * lanes)
    totals = array(T, DOTS)
    columns, rows = info[TAPS], info[ROWS]
    bunches = (columns + DOTS - 1) // DOTS
    for task in range(lo, hi):
        row = task // bunches
        first = (task % bunches) * DOTS
        for j in range(DOTS):
            totals[j] = 0.0
        for n in range(samples):
            for j in range(DOTS * lanes):
                sums[j] = 0.0
            here = g + (n * info[OUT_N] + row * info[ROW_STEP])
            source = x + (n * info[IN_N] + row // rows * info[GROUP_IN])
            for z in range(info[LONG]):
                for y in range(info[HIGH]):
                    a = here + (z * info[OUT_Z] + y * info[OUT_Y])
                    b = source + (z * info[IN_Z] + y * info[IN_Y])
                    dots(a, b, taps + first, sums, info[WIDE])
            for j in range(DOTS):
                total = sums[j * lanes]
                for lane in range(1, lanes):
                    total += sums[j * lanes + lane]
                totals[j] = totals[j] + total
        for j in range(min(DOTS, columns - first)):
            to[row * columns + first + j] = totals[j]


@kernel(reassociate=True)
def find_not_finite(x: Ptr[T], bad: Ptr[i64], lo: i64, hi: i64):
    """Whether some element is infinite or NaN: zero times that is NaN."""
    total = T(0.0)
    for i in range(lo, hi):
        total += x[i] * T(0.0)
    if total != T(0.0):
        bad[0] = 1
