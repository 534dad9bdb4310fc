"""Products, convolutions and attention in the block sizes of other processors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.native.codegen import jit

pytestmark = pytest.mark.skipif(jit.why_not() is not None, reason=str(jit.why_not()))

PROGRAM = """
import sys
import numpy as np
from weft.core import selection
from weft.native.gemm import blocks

size = int(sys.argv[1])
rows = 12 if size == 64 else 6
blocks.block = lambda kind="f32": (
    size // blocks.SIZES[kind], rows, 2 * size // blocks.SIZES[kind]
)
selection.start()
from weft.native.gemm import packed
assert packed.tile()[0] == size // 4
from weft.references import convolution as reference
from weft.native.conv import windowed, winograd
from weft.native.layers import attention

rng = np.random.default_rng(0)


def made(dtype, *shape):
    return rng.standard_normal(shape).astype(dtype)


def close(found, want, dtype):
    limit = 2e-5 if dtype == "f4" else 1e-12
    assert np.abs(found - want).max() <= limit * np.abs(want).max(), (dtype, found.shape)


for m, k, n in ((130, 300, 70), (64, 257, 96), (200, 64, 33)):
    a, b = made("f4", m, k), made("f4", k, n)
    assert packed.takes(a, b) or a.size * n < packed.WORTH
    close(packed.matmul(a, b, np.empty((m, n), "f4")), a.astype("f8") @ b.astype("f8"), "f4")
for dtype in ("f4", "f8"):
    for groups in (1, 4):
        for by in (1, 2):
            x, w = made(dtype, 2, 20, 13, 18), made(dtype, 28, 20 // groups, 3, 3)
            rest = ((by, by), (1, 1), (1, 1), groups)
            wide = x.astype("f8"), w.astype("f8")
            want = reference.convolution(*wide, *rest)
            close(windowed.convolution(x, w, None, *rest), want, dtype)
            g = made(dtype, *want.shape)
            want = reference.convolution_input_grad(g.astype("f8"), wide[1], x.shape, *rest)
            close(windowed.transposed(g, w, None, x.shape, *rest), want, dtype)
            want = reference.convolution_weight_grad(g.astype("f8"), wide[0], w.shape, *rest)
            close(windowed.weight_grad(g, x, w.shape, *rest), want, dtype)
for side, by in ((3, 1), (4, 2)):
    x, w = made("f4", 3, 37, 15, 22), made("f4", 29, 37, side, side)
    window = (by, by), (1, 1)
    wide = x.astype("f8"), w.astype("f8")
    want = reference.convolution(*wide, *window, (1, 1), 1)
    close(winograd.convolution(x, w, None, *window, None), want, "f4")
    g = made("f4", *want.shape)
    want = reference.convolution_input_grad(g.astype("f8"), wide[1], x.shape, *window, (1, 1), 1)
    close(winograd.transposed(g, w, None, x.shape, *window), want, "f4")
    want = reference.convolution_weight_grad(g.astype("f8"), wide[0], w.shape, *window, (1, 1), 1)
    close(winograd.weight_grad(g, x, w.shape, *window), want, "f4")
for queries, keys, causal in ((37, 51, False), (51, 37, True)):
    q, k, v = (made("f4", 2, 9, n, d) for n, d in ((queries, 19), (keys, 19), (keys, 23)))
    y, w = attention.attention(q, k, v, 0.3, causal)
    scores = np.matmul(q.astype("f8"), k.swapaxes(2, 3)) * 0.3
    if causal:
        scores[:, :, ~np.tri(queries, keys, dtype=bool)] = -np.inf
    e = np.exp(scores - scores.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    close(y, e @ v, "f4")
    g = made("f4", *y.shape)
    gw = g @ v.swapaxes(2, 3).astype("f8")
    gs = e * (gw - (gw * e).sum(-1, keepdims=True)) * 0.3
    found = attention.attention_back((g, None), q, k, v, w, (True,) * 3, 0.3, causal)
    wanted = gs @ k, gs.swapaxes(2, 3) @ q, e.swapaxes(2, 3) @ g
    for a, b in zip(found, wanted):
        close(a, b, "f4")
# What a query does not see may be infinite or no number: none of it reaches the query's results.
for row in (51, 57, 58, 60, 63):
    for which in range(4):
        clean = [made("f4", 4, 2, n, d) for n, d in ((64, 19), (64, 19), (64, 23), (64, 23))]
        given = [x.copy() for x in clean]
        given[which][1, 1, row] = np.inf if row % 2 else np.nan
        results = []
        for q, k, v, g in (clean, given):
            y, w = attention.attention(q, k, v, 0.3, True)
            back = attention.attention_back((g, None), q, k, v, w, (True,) * 3, 0.3, True)
            results.append((y, w, *back))
        for name, a, b in zip(("y", "w", "gq", "gk", "gv"), *results):
            same = np.ones((4, 2), bool)
            same[1, 1] = False
            assert (a[same] == b[same]).all()  # other heads
            a, b = a[1, 1], b[1, 1]
            if name in ("y", "w", "gq") and which != 3:  # earlier queries, keys or values
                assert (a[:row] == b[:row]).all(), (name, which, row)
            if name in ("gk", "gv") and which in (0, 3):  # keys after the query
                assert (a[row + 1 :] == b[row + 1 :]).all(), (name, which, row)
            if which in (0, 3) and name in ("y", "w", "gq"):
                others = np.delete(np.arange(64), row)
                assert (a[others] == b[others]).all(), (name, which, row)
print("fine")
"""


@pytest.mark.parametrize("size", [16, 64])
def test_blocks_of_other_vectors(size: int) -> None:
    """With vectors of 16 bytes (no AVX) and of 64 (AVX-512)."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(size)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "fine", done.stderr
