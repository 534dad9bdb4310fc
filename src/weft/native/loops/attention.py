"""The loops of fused attention: all steps of a matrix in cache, one after the other.

A task is one matrix of queries with its keys and values. Blocks of rows are multiplied by the keys,
become weights, and are multiplied by the values; backward in the same order. Where queries see
only what comes before them (a causal mask), the rest is left out of the products.

Sizes and steps come in a table of integers, in the order of the names below.
"""

from __future__ import annotations

from weft.native.codegen.compiler import Ptr, f32, fma, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.gemm.blocks import by_columns
from weft.native.gemm.packed import ALONG, TRANSPOSED, panels
from weft.native.loops.rows import rows32
from weft.native.loops.softmax import scaled, scaled_back

# Queries, keys; elements of a query and of a value; steps between rows of the four arrays; keys
# and elements in whole panels; working memory of a task.
QUERIES, KEYS, K_SIZE, WIDE = 0, 1, 2, 3
STEP_Q, STEP_K, STEP_V, STEP_Y = 4, 5, 6, 7
PADDED, SCRATCH = 8, 9
SIZE = 10

STRETCH = 256  # products that are summed at a time

# From a row of scores to its weights, and from the gradient of weights to that of scores.
weights_of, scores_of = scaled.whole.inlined, scaled_back.whole.inlined


@inline
def columns_of(x: Ptr[f32], to: Ptr[f32], rows: i64, columns: i64, step: i64, width: i64):
    """A matrix in panels of its columns."""
    count = (columns + width - 1) // width
    panels(x, to, columns, rows, 1, step, width // 2, width, ALONG, 0, count)


@inline
def rows_of(x: Ptr[f32], to: Ptr[f32], rows: i64, columns: i64, step: i64, width: i64):
    """The transpose of a matrix in panels of its columns: the rows of x."""
    count = (rows + width - 1) // width
    panels(x, to, rows, columns, step, 1, width // 2, width, TRANSPOSED, 0, count)


@inline
def product(
    a: Ptr[f32], b: Ptr[f32], c: Ptr[f32], apart: i64, step: i64, k_size: i64, full: i64,
    columns: i64, rows: i64, width: i64,
):  # fmt: skip
    """A few rows, unpacked, times the first columns of a matrix in panels of ``full`` rows."""
    for c0 in range(0, columns, width):
        for k0 in range(0, k_size, STRETCH):
            part = min(STRETCH, k_size - k0)
            more = 1 if k0 > 0 else 0
            right = b + (c0 * full + k0 * width)
            rows32(a + k0, right, c + c0, apart, step, part, more, rows)


@inline
def seen_product(
    a: Ptr[f32], b: Ptr[f32], c: Ptr[f32], apart: i64, step: i64, limit: i64, full: i64,
    columns: i64, rows: i64, first: i64, causal: i64, width: i64,
):  # fmt: skip
    """The same for rows of weights, of which row ``first + r`` sees no more than so many of b.

    What a row does not see has weight zero, but is left out all the same: it may be infinite.
    """
    shared = min(limit, first + 1) if causal else limit
    product(a, b, c, apart, step, shared, full, columns, rows, width)
    for i in range(shared, limit):
        for r in range(i - first, rows):
            weight = a[r * apart + i]
            for c0 in range(0, columns, width):
                panel = b + (c0 * full + i * width)
                to = c + (r * step + c0)
                for j in range(width):
                    to[j] = fma(weight, panel[j], to[j])


@inline(outlined=True)
def by_transpose(
    a: Ptr[f32], b: Ptr[f32], to: Ptr[f32], spare: Ptr[f32], apart: i64, step: i64, rows: i64,
    columns: i64, k_size: i64, causal: i64, height: i64, width: i64,
):  # fmt: skip
    """The transpose of a matrix of ``k_size`` rows times one in panels, row block by row block."""
    for r0 in range(0, rows, height):
        some = min(height, rows - r0)
        # All of these rows of the result are met by the rows from the last one's own on.
        first = min(r0 + some - 1, k_size) if causal else 0
        for c0 in range(0, columns, width):
            if first == k_size:
                for i in range(height * width):
                    spare[i] = 0.0
            for k0 in range(first, k_size, STRETCH):
                part = min(STRETCH, k_size - k0)
                more = 1 if k0 > first else 0
                left = a + (k0 * apart + r0)
                right = b + (c0 * k_size + k0 * width)
                by_columns(left, apart, right, spare, width, spare, width, part, more)
            if causal:
                for k in range(min(r0, k_size), first):
                    panel = b + (c0 * k_size + k * width)
                    for r in range(k - r0 + 1):
                        weight = a[k * apart + r0 + r]
                        row = spare + r * width
                        for c in range(width):
                            row[c] = fma(weight, panel[c], row[c])
            wanted = min(width, columns - c0)
            for r in range(some):
                for c in range(wanted):
                    to[(r0 + r) * step + c0 + c] = spare[r * width + c]


@kernel
def forward(
    q: Ptr[f32], k: Ptr[f32], v: Ptr[f32], y: Ptr[f32], weights: Ptr[f32], at_q: Ptr[i64],
    at_k: Ptr[i64], at_v: Ptr[i64], at_y: Ptr[i64], info: Ptr[i64], scratch: Ptr[f32], scale: f32,
    tasks: i64, workers: i64, causal: i64, height: i64, width: i64, lo: i64, hi: i64,
):  # fmt: skip
    queries, keys, k_size, wide = info[QUERIES], info[KEYS], info[K_SIZE], info[WIDE]
    padded = info[PADDED]
    across = (wide + width - 1) // width * width
    for worker in range(lo, hi):
        seen = scratch + worker * info[SCRATCH]
        values = seen + padded * k_size
        scores = values + across * keys
        sums = scores + height * padded
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            rows_of(k + at_k[task], seen, keys, k_size, info[STEP_K], width)
            columns_of(v + at_v[task], values, keys, wide, info[STEP_V], width)
            shares = weights + task * queries * keys
            for r0 in range(0, queries, height):
                some = min(height, queries - r0)
                limit = min(keys, r0 + some) if causal else keys
                rows = q + (at_q[task] + r0 * info[STEP_Q])
                product(
                    rows, seen, scores, info[STEP_Q], padded, k_size, k_size, limit, some, width
                )
                for r in range(some):
                    row = scores + r * padded
                    share = shares + (r0 + r) * keys
                    count = min(keys, r0 + r + 1) if causal else keys
                    weights_of(row, share, scale, count)
                    for i in range(count):
                        row[i] = share[i]
                    for i in range(count, limit):
                        row[i] = 0.0
                    for i in range(count, keys):
                        share[i] = 0.0
                seen_product(
                    scores, values, sums, padded, across, limit, keys, wide, some, r0, causal, width
                )
                for r in range(some):
                    to = y + (at_y[task] + (r0 + r) * info[STEP_Y])
                    for c in range(wide):
                        to[c] = sums[r * across + c]


@kernel
def backward(
    g: Ptr[f32], q: Ptr[f32], k: Ptr[f32], v: Ptr[f32], weights: Ptr[f32], gq: Ptr[f32],
    gk: Ptr[f32], gv: Ptr[f32], at_g: Ptr[i64], at_q: Ptr[i64], at_k: Ptr[i64], at_v: Ptr[i64],
    to_q: Ptr[i64], to_k: Ptr[i64], to_v: Ptr[i64], steps: Ptr[i64], info: Ptr[i64],
    scratch: Ptr[f32], scale: f32, tasks: i64, workers: i64, causal: i64, height: i64, tall: i64,
    width: i64, lo: i64, hi: i64,
):  # fmt: skip
    # `info` is that of forward, with g in the place of y; `steps` are those of rows of gq, gk, gv.
    queries, keys, k_size, wide = info[QUERIES], info[KEYS], info[K_SIZE], info[WIDE]
    padded, step_g = info[PADDED], info[STEP_Y]
    across = (wide + width - 1) // width * width
    down = (k_size + width - 1) // width * width
    for worker in range(lo, hi):
        values = scratch + worker * info[SCRATCH]
        seen = values + padded * wide
        asked = seen + down * keys
        given = asked + down * queries
        scores = given + across * queries
        shares = scores + (queries * padded + tall)
        sums = shares + (queries * padded + tall)
        spare = sums + height * down
        for task in range(worker * tasks // workers, (worker + 1) * tasks // workers):
            rows_of(v + at_v[task], values, keys, wide, info[STEP_V], width)
            columns_of(k + at_k[task], seen, keys, k_size, info[STEP_K], width)
            columns_of(q + at_q[task], asked, queries, k_size, info[STEP_Q], width)
            columns_of(g + at_g[task], given, queries, wide, step_g, width)
            for r0 in range(0, queries, height):
                some = min(height, queries - r0)
                limit = min(keys, r0 + some) if causal else keys
                rows = g + (at_g[task] + r0 * step_g)
                block = scores + r0 * padded
                product(rows, values, block, step_g, padded, wide, wide, limit, some, width)
                for r in range(some):
                    row = block + r * padded
                    copy = shares + (r0 + r) * padded
                    share = weights + (task * queries + r0 + r) * keys
                    count = min(keys, r0 + r + 1) if causal else keys
                    scores_of(row, share, row, scale, count)
                    for i in range(count):
                        copy[i] = share[i]
                    for i in range(count, padded):
                        row[i] = 0.0
                        copy[i] = 0.0
                seen_product(
                    block, seen, sums, padded, down, limit, keys, k_size, some, r0, causal, width
                )
                for r in range(some):
                    to = gq + (to_q[task] + (r0 + r) * steps[0])
                    for c in range(k_size):
                        to[c] = sums[r * down + c]
            by_transpose(
                scores, asked, gk + to_k[task], spare, padded, steps[1],
                keys, k_size, queries, causal, tall, width,
            )  # fmt: skip
            by_transpose(
                shares, given, gv + to_v[task], spare, padded, steps[2],
                keys, wide, queries, causal, tall, width,
            )  # fmt: skip
