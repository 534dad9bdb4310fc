"""The cells of recurrent layers.

A thread does some rows, which are samples. What each cell computes is said by the one of the same
name in ``weft.kernels.recurrent``. Gates that a cell changes come as one pointer for each, so that
the compiler knows them to lie apart; the rows of gradients of gates are ``apart`` elements apart.
"""

from __future__ import annotations

from weft.native.compiler import Ptr, T, i64
from weft.native.jit import kernel
from weft.native.loops.math import sigmoid, tanh


@kernel
def lstm_forward_rows(
    gate_i: Ptr[T],
    gate_f: Ptr[T],
    gate_g: Ptr[T],
    gate_o: Ptr[T],
    recurrent: Ptr[T],
    bias: Ptr[T],
    before: Ptr[T],
    c: Ptr[T],
    h: Ptr[T],
    tanh_c: Ptr[T],
    size: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        share = recurrent + r * 4 * size
        row = r * 4 * size
        start = r * size
        for j in range(size):
            f = j + size
            g = f + size
            o = g + size
            gi = sigmoid(gate_i[row + j] + share[j] + bias[j])
            gf = sigmoid(gate_f[row + j] + share[f] + bias[f])
            gg = tanh(gate_g[row + j] + share[g] + bias[g])
            go = sigmoid(gate_o[row + j] + share[o] + bias[o])
            cell = gf * before[start + j] + gi * gg
            bounded = tanh(cell)
            gate_i[row + j] = gi
            gate_f[row + j] = gf
            gate_g[row + j] = gg
            gate_o[row + j] = go
            c[start + j] = cell
            tanh_c[start + j] = bounded
            h[start + j] = go * bounded


@kernel
def lstm_backward_rows(
    dh: Ptr[T],
    gates: Ptr[T],
    before: Ptr[T],
    tanh_c: Ptr[T],
    dc: Ptr[T],
    dgates: Ptr[T],
    size: i64,
    apart: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        gate = gates + r * 4 * size
        out = dgates + r * apart
        start = r * size
        for j in range(size):
            gi = gate[j]
            gf = gate[j + size]
            gg = gate[j + 2 * size]
            go = gate[j + 3 * size]
            bounded = tanh_c[start + j]
            d = dh[start + j]
            dcell = dc[start + j] + d * go * (1.0 - bounded * bounded)
            out[j] = dcell * gg * gi * (1.0 - gi)
            out[j + size] = dcell * before[start + j] * gf * (1.0 - gf)
            out[j + 2 * size] = dcell * gi * (1.0 - gg * gg)
            out[j + 3 * size] = d * bounded * go * (1.0 - go)
            dc[start + j] = dcell * gf


@kernel
def gru_forward_rows(
    gate_r: Ptr[T],
    gate_z: Ptr[T],
    gate_n: Ptr[T],
    recurrent: Ptr[T],
    bias: Ptr[T],
    before: Ptr[T],
    h: Ptr[T],
    inner: Ptr[T],
    size: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        share = recurrent + r * 3 * size
        row = r * 3 * size
        start = r * size
        for j in range(size):
            z = j + size
            n = z + size
            own = share[n] + bias[n + size]
            reset = sigmoid(gate_r[row + j] + share[j] + bias[j])
            update = sigmoid(gate_z[row + j] + share[z] + bias[z])
            candidate = tanh(gate_n[row + j] + bias[n] + reset * own)
            gate_r[row + j] = reset
            gate_z[row + j] = update
            gate_n[row + j] = candidate
            inner[start + j] = own
            h[start + j] = candidate + update * (before[start + j] - candidate)


@kernel
def gru_backward_rows(
    dh: Ptr[T],
    gates: Ptr[T],
    before: Ptr[T],
    inner: Ptr[T],
    dgates: Ptr[T],
    drecurrent: Ptr[T],
    size: i64,
    apart: i64,
    lo: i64,
    hi: i64,
):
    for r in range(lo, hi):
        gate = gates + r * 3 * size
        out = dgates + r * apart
        share = drecurrent + r * apart
        start = r * size
        for j in range(size):
            reset = gate[j]
            update = gate[j + size]
            candidate = gate[j + 2 * size]
            d = dh[start + j]
            dupdate = d * (before[start + j] - candidate) * update * (1.0 - update)
            dcandidate = d * (1.0 - update) * (1.0 - candidate * candidate)
            dreset = dcandidate * inner[start + j] * reset * (1.0 - reset)
            out[j] = dreset
            out[j + size] = dupdate
            out[j + 2 * size] = dcandidate
            share[j] = dreset
            share[j + size] = dupdate
            share[j + 2 * size] = dcandidate * reset
            dh[start + j] = d * update


@kernel
def tanh_forward_rows(
    gates: Ptr[T], recurrent: Ptr[T], bias: Ptr[T], h: Ptr[T], size: i64, lo: i64, hi: i64
):
    for r in range(lo, hi):
        start = r * size
        for j in range(size):
            h[start + j] = tanh(gates[start + j] + recurrent[start + j] + bias[j])


@kernel
def tanh_backward_rows(
    dh: Ptr[T], h: Ptr[T], dgates: Ptr[T], size: i64, apart: i64, lo: i64, hi: i64
):
    for r in range(lo, hi):
        out = dgates + r * apart
        start = r * size
        for j in range(size):
            y = h[start + j]
            out[j] = dh[start + j] * (1.0 - y * y)


@kernel
def relu_forward_rows(
    gates: Ptr[T], recurrent: Ptr[T], bias: Ptr[T], h: Ptr[T], size: i64, lo: i64, hi: i64
):
    for r in range(lo, hi):
        start = r * size
        for j in range(size):
            y = gates[start + j] + recurrent[start + j] + bias[j]
            h[start + j] = 0.0 if y <= 0.0 else y


@kernel
def relu_backward_rows(
    dh: Ptr[T], h: Ptr[T], dgates: Ptr[T], size: i64, apart: i64, lo: i64, hi: i64
):
    for r in range(lo, hi):
        out = dgates + r * apart
        start = r * size
        for j in range(size):
            out[j] = 0.0 if h[start + j] <= 0.0 else dh[start + j]
