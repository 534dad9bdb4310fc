"""The cells of recurrent layers, and the loops through all steps of a layer.

Each cell computes the same as the one of the same name in ``weft.references.recurrent``. Here a
cell does ``count`` units of one row, which is a sample. The parts of its gates are ``size`` apart,
those of the recurrent share ``span``. Gates that a cell modifies are passed as separate pointers,
so that the compiler knows that they do not alias. A kernel ``..._rows`` does one step.

``forward_steps`` and ``backward_steps`` do all steps in one call. A step is cut into ``row_parts``
times ``unit_parts`` tasks, and a thread keeps its tasks over all steps. It needs the whole state of
its rows, so where units are divided, threads wait for each other in every step. The rows of a task
are whole blocks of the batch, which do not depend on the number of threads; so what is summed over
a block does not either. Data written by other threads is passed by address, so that the compiler
makes no assumptions about it.
"""

from __future__ import annotations

from weft.native.codegen.compiler import Assembly, Ptr, T, at, i64, inline
from weft.native.codegen.jit import kernel
from weft.native.loops.math import sigmoid, tanh
from weft.native.loops.rows import rows_by_panel

LSTM, GRU, TANH, RELU = range(4)
wait = Assembly("GOMP_barrier", (), lambda: "declare void @GOMP_barrier()")


# --- cells -----------------------------------------------------------------------------


@inline
def lstm_forward(
    gate_i: Ptr[T], gate_f: Ptr[T], gate_g: Ptr[T], gate_o: Ptr[T], share: Ptr[T], bias: Ptr[T],
    before: Ptr[T], c: Ptr[T], h: Ptr[T], tanh_c: Ptr[T], count: i64, size: i64, span: i64,
):  # fmt: skip
    for j in range(count):
        gi = sigmoid(gate_i[j] + share[j] + bias[j])
        gf = sigmoid(gate_f[j] + share[j + span] + bias[j + size])
        gg = tanh(gate_g[j] + share[j + 2 * span] + bias[j + 2 * size])
        go = sigmoid(gate_o[j] + share[j + 3 * span] + bias[j + 3 * size])
        cell = gf * before[j] + gi * gg
        bounded = tanh(cell)
        gate_i[j] = gi
        gate_f[j] = gf
        gate_g[j] = gg
        gate_o[j] = go
        c[j] = cell
        tanh_c[j] = bounded
        h[j] = go * bounded


@inline
def lstm_backward(
    dh: Ptr[T], gate: Ptr[T], before: Ptr[T], tanh_c: Ptr[T], dc: Ptr[T], out: Ptr[T], count: i64,
    size: i64,
):  # fmt: skip
    for j in range(count):
        gi = gate[j]
        gf = gate[j + size]
        gg = gate[j + 2 * size]
        go = gate[j + 3 * size]
        bounded = tanh_c[j]
        d = dh[j]
        dcell = dc[j] + d * go * (1.0 - bounded * bounded)
        out[j] = dcell * gg * gi * (1.0 - gi)
        out[j + size] = dcell * before[j] * gf * (1.0 - gf)
        out[j + 2 * size] = dcell * gi * (1.0 - gg * gg)
        out[j + 3 * size] = d * bounded * go * (1.0 - go)
        dc[j] = dcell * gf


@inline
def gru_forward(
    gate_r: Ptr[T], gate_z: Ptr[T], gate_n: Ptr[T], share: Ptr[T], bias: Ptr[T], before: Ptr[T],
    h: Ptr[T], inner: Ptr[T], count: i64, size: i64, span: i64,
):  # fmt: skip
    for j in range(count):
        own = share[j + 2 * span] + bias[j + 3 * size]
        reset = sigmoid(gate_r[j] + share[j] + bias[j])
        update = sigmoid(gate_z[j] + share[j + span] + bias[j + size])
        candidate = tanh(gate_n[j] + bias[j + 2 * size] + reset * own)
        gate_r[j] = reset
        gate_z[j] = update
        gate_n[j] = candidate
        inner[j] = own
        h[j] = candidate + update * (before[j] - candidate)


@inline
def gru_backward(
    dh: Ptr[T], gate: Ptr[T], before: Ptr[T], inner: Ptr[T], out: Ptr[T], share: Ptr[T],
    count: i64, size: i64,
):  # fmt: skip
    for j in range(count):
        reset = gate[j]
        update = gate[j + size]
        candidate = gate[j + 2 * size]
        d = dh[j]
        dupdate = d * (before[j] - candidate) * update * (1.0 - update)
        dcandidate = d * (1.0 - update) * (1.0 - candidate * candidate)
        dreset = dcandidate * inner[j] * reset * (1.0 - reset)
        out[j] = dreset
        out[j + size] = dupdate
        out[j + 2 * size] = dcandidate
        share[j] = dreset
        share[j + size] = dupdate
        share[j + 2 * size] = dcandidate * reset
        dh[j] = d * update


@inline
def tanh_forward(gate: Ptr[T], share: Ptr[T], bias: Ptr[T], h: Ptr[T], count: i64):
    for j in range(count):
        h[j] = tanh(gate[j] + share[j] + bias[j])


@inline
def tanh_backward(dh: Ptr[T], h: Ptr[T], out: Ptr[T], count: i64):
    for j in range(count):
        out[j] = dh[j] * (1.0 - h[j] * h[j])


@inline
def relu_forward(gate: Ptr[T], share: Ptr[T], bias: Ptr[T], h: Ptr[T], count: i64):
    for j in range(count):
        y = gate[j] + share[j] + bias[j]
        h[j] = 0.0 if y <= 0.0 else y


@inline
def relu_backward(dh: Ptr[T], h: Ptr[T], out: Ptr[T], count: i64):
    for j in range(count):
        out[j] = 0.0 if h[j] <= 0.0 else dh[j]


# --- one step --------------------------------------------------------------------------


@inline
def cell(
    gate: Ptr[T], share: Ptr[T], bias: Ptr[T], before: Ptr[T], c: Ptr[T], h: Ptr[T], kept: Ptr[T],
    count: i64, size: i64, span: i64, kind: i64,
):  # fmt: skip
    """From products to the new state of some units of one sample.

    ``before`` is the state that the cell reads: c of an LSTM, h of a GRU. ``kept`` is what is
    computed on the way and needed again for the gradient.
    """
    if kind == LSTM:
        lstm_forward(
            gate, gate + size, gate + 2 * size, gate + 3 * size, share, bias, before, c, h, kept,
            count, size, span,
        )  # fmt: skip
    elif kind == GRU:
        gru_forward(
            gate, gate + size, gate + 2 * size, share, bias, before, h, kept, count, size, span
        )
    elif kind == TANH:
        tanh_forward(gate, share, bias, h, count)
    else:
        relu_forward(gate, share, bias, h, count)


@inline
def cell_backward(
    dh: Ptr[T], gate: Ptr[T], before: Ptr[T], kept: Ptr[T], dc: Ptr[T], dgate: Ptr[T],
    dshare: Ptr[T], count: i64, size: i64, kind: i64,
):  # fmt: skip
    """The gradients of a row's gates; of a GRU's also those of the recurrent share."""
    if kind == LSTM:
        lstm_backward(dh, gate, before, kept, dc, dgate, count, size)
    elif kind == GRU:
        gru_backward(dh, gate, before, kept, dgate, dshare, count, size)
    elif kind == TANH:
        tanh_backward(dh, kept, dgate, count)
    else:
        relu_backward(dh, kept, dgate, count)


@kernel
def forward_rows(
    gates: Ptr[T], recurrent: Ptr[T], bias: Ptr[T], before: Ptr[T], c: Ptr[T], h: Ptr[T],
    kept: Ptr[T], size: i64, kind: i64, parts: i64, lo: i64, hi: i64,
):  # fmt: skip
    for r in range(lo, hi):
        row = r * parts * size
        start = r * size
        cell(
            gates + row, recurrent + row, bias, before + start, c + start, h + start, kept + start,
            size, size, size, kind,
        )  # fmt: skip


@kernel
def backward_rows(
    dh: Ptr[T], gates: Ptr[T], before: Ptr[T], kept: Ptr[T], dc: Ptr[T], dgates: Ptr[T],
    dshares: Ptr[T], size: i64, apart: i64, kind: i64, parts: i64, lo: i64, hi: i64,
):  # fmt: skip
    for r in range(lo, hi):
        start = r * size
        place = r * apart
        cell_backward(
            dh + start, gates + parts * start, before + start, kept + start, dc + start,
            dgates + place, dshares + place, size, size, kind,
        )  # fmt: skip


# --- all steps -------------------------------------------------------------------------


@inline
def copy(x: Ptr[T], y: Ptr[T], count: i64):
    for j in range(count):
        y[j] = x[j]


@kernel
def copy_rows(x: Ptr[T], y: Ptr[T], count: i64, apart: i64, step: i64, lo: i64, hi: i64):
    for r in range(lo, hi):
        copy(x + r * apart, y + r * step, count)


@inline
def add(x: Ptr[T], y: Ptr[T], count: i64):
    for j in range(count):
        y[j] = y[j] + x[j]


@inline
def share_of(task, row_parts, unit_parts, blocks, panels):
    """The blocks of rows and the panels that a task does: from the first two up to the others."""
    row = task // unit_parts
    unit = task % unit_parts
    b0, b1 = row * blocks // row_parts, (row + 1) * blocks // row_parts
    return b0, b1, unit * panels // unit_parts, (unit + 1) * panels // unit_parts


@inline
def panel_products(
    x: Ptr[T], panels: Ptr[T], to: Ptr[T], parts: i64, span: i64, apart: i64, step: i64,
    k_size: i64, width: i64, more: i64, u0: i64, u1: i64, b0: i64, b1: i64, blocks: i64, batch: i64,
    n: i64,
):  # fmt: skip
    """The products of blocks of rows with the panels of some units, side by side.

    Of units that have several ``parts`` (gates), each part is ``span`` behind the one before.
    """
    for p in range(u0 * parts, u1 * parts):
        place = to + ((p % parts) * span + (p // parts - u0) * width)
        rows_by_panel(
            x, panels + p * width * k_size, place, apart, step, k_size, width, more, b0, b1, blocks,
            batch, n,
        )  # fmt: skip


@inline
def projected(
    whole: Ptr[T], project: Ptr[T], new: Ptr[T], y: Ptr[T], size: i64, apart: i64, out: i64,
    width: i64, u0: i64, u1: i64, b0: i64, b1: i64, blocks: i64, batch: i64, n: i64,
):  # fmt: skip
    """Hidden states multiplied by some panels of the projection, also as results."""
    panel_products(
        whole, project, new + u0 * width, 1, 0, size, apart, size, width, 0, u0, u1, b0, b1,
        blocks, batch, n,
    )  # fmt: skip
    j0 = u0 * width
    count = min(u1 * width, out) - j0
    for r in range(b0 * batch // blocks, min(b1 * batch // blocks, n)):
        copy(new + (r * apart + j0), y + (r * out + j0), count)


@kernel
def forward_steps(
    data: Ptr[T], weight_in: Ptr[T], features: i64, gates: Ptr[T], bias: Ptr[T], weight: Ptr[T],
    project: Ptr[T], shares: Ptr[T], running: Ptr[T], c: Ptr[T], kept: Ptr[T], full: i64,
    y: Ptr[T], now: i64, starts: Ptr[i64], steps: i64, reverse: i64, batch: i64,
    size: i64, out: i64, apart: i64, blocks: i64, row_parts: i64, unit_parts: i64, share_size: i64,
    kind: i64, parts: i64, projects: i64, joint: i64, width: i64, wide: i64, shared: i64, lo: i64,
    hi: i64,
):  # fmt: skip
    bytes = 8 if wide else 4
    panels = (size + width - 1) // width
    out_panels = (out + width - 1) // width
    whole = at(T, full)
    for s in range(steps):
        t = steps - 1 - s if reverse else s
        begin = starts[t]
        n = starts[t + 1] - begin
        old = at(T, now + (s % 2) * batch * apart * bytes)
        new = at(T, now + (1 - s % 2) * batch * apart * bytes)
        for task in range(lo, hi):
            b0, b1, u0, u1 = share_of(task, row_parts, unit_parts, blocks, panels)
            j0 = u0 * width
            count = min(u1 * width, size) - j0
            span = (u1 - u0) * width
            step = parts * span + width  # not a power of two
            share = shares + task * share_size
            panel_products(
                old, weight, share, parts, span, apart, step, out, width, 0, u0, u1, b0, b1,
                blocks, batch, n,
            )  # fmt: skip
            if joint:
                panel_products(
                    data + begin * features, weight_in, share + share_size // 2, parts, span,
                    features, step, features, width, 0, u0, u1, b0, b1, blocks, batch, n,
                )  # fmt: skip
            for r in range(b0 * batch // blocks, min(b1 * batch // blocks, n)):
                row = (begin + r) * size + j0
                gate = gates + ((begin + r) * parts * size + j0)
                own = share + r * step
                if joint:
                    for g in range(parts):
                        copy(own + (share_size // 2 + g * span), gate + g * size, count)
                before = old + (r * apart + j0)
                if kind == LSTM:
                    before = running + (r * size + j0)
                cell(
                    gate, own, bias + j0, before, c + row, whole + row, kept + row, count, size,
                    span, kind,
                )  # fmt: skip
                if kind == LSTM:
                    copy(c + row, before, count)
                if projects == 0:
                    copy(whole + row, new + (r * apart + j0), count)
        if projects:
            if shared:
                if unit_parts > 1:
                    wait()
            for task in range(lo, hi):
                b0, b1, u0, u1 = share_of(task, row_parts, unit_parts, blocks, out_panels)
                projected(
                    whole + begin * size, project, new, y + begin * out, size, apart, out, width,
                    u0, u1, b0, b1, blocks, batch, n,
                )  # fmt: skip
        if shared:
            if unit_parts > 1:
                wait()


@inline
def add_given(
    dy: Ptr[T], dh: Ptr[T], given: Ptr[T], begin: i64, first: i64, last: i64, j0: i64, count: i64,
    step: i64, out: i64,
):  # fmt: skip
    """The gradients of results added to those of the states of some rows, and the sums kept."""
    for r in range(first, last):
        row = (begin + r) * out + j0
        add(dy + row, dh + (r * step + j0), count)
        copy(dh + (r * step + j0), given + row, count)


@kernel
def backward_steps(
    dy: Ptr[T], dh: Ptr[T], dc: Ptr[T], gates: Ptr[T], kept: Ptr[T], start: i64, states: i64,
    weight: Ptr[T], project: Ptr[T], shares: Ptr[T], dinput: Ptr[T], drecurrent: i64,
    dprojected: i64, sums: Ptr[T], starts: Ptr[i64], steps: i64, reverse: i64, batch: i64,
    size: i64, out: i64, step: i64, apart: i64, blocks: i64, row_parts: i64, unit_parts: i64,
    share_size: i64, last: i64, kind: i64, parts: i64, projects: i64, width: i64, wide: i64,
    shared: i64, lo: i64, hi: i64,
):  # fmt: skip
    bytes = 8 if wide else 4
    panels = (size + width - 1) // width
    out_panels = (out + width - 1) // width
    k_size = parts * size
    given = at(T, dprojected)
    for s0 in range(steps):
        s = steps - 1 - s0
        t = s0 if reverse else s
        begin = starts[t]
        n = starts[t + 1] - begin
        # The rows of the previous step and their offset; other rows come from the first state.
        earlier = max(min(t + 1 if reverse else t - 1, steps - 1), 0)
        held_at = starts[earlier]
        held = starts[earlier + 1] - held_at if s > 0 else 0
        if projects:
            for task in range(lo, hi):
                b0, b1, u0, u1 = share_of(task, row_parts, unit_parts, blocks, out_panels)
                j0 = u0 * width
                count = min(u1 * width, out) - j0
                stop = min(b1 * batch // blocks, n)
                add_given(dy, dh, given, begin, b0 * batch // blocks, stop, j0, count, step, out)
            if shared:
                if unit_parts > 1:
                    wait()
        for task in range(lo, hi):
            b0, b1, u0, u1 = share_of(task, row_parts, unit_parts, blocks, panels)
            j0 = u0 * width
            count = min(u1 * width, size) - j0
            span = (u1 - u0) * width
            share = shares + task * share_size
            if projects:
                panel_products(
                    given + begin * out, project, share, 1, 0, out, span, out, width, 0, u0, u1, b0,
                    b1, blocks, batch, n,
                )  # fmt: skip
            for b in range(b0, b1):
                total = sums + (b * (4 if kind == GRU else parts) * size + j0)
                for r in range(b * batch // blocks, min((b + 1) * batch // blocks, n)):
                    row = (begin + r) * size + j0
                    place = (begin + r) * apart + j0
                    dshare = at(T, drecurrent + place * bytes)
                    held_row = states + ((held_at + r) * size + j0) * bytes
                    start_row = start + (r * size + j0) * bytes
                    before = at(T, held_row if r < held else start_row)
                    d = dh + (r * step + j0)
                    if projects:
                        d = share + r * span
                    else:
                        add(dy + row, d, count)
                    dgate = dshare
                    if kind == GRU:
                        dgate = dinput + place
                    cell_backward(
                        d, gates + ((begin + r) * k_size + j0), before, kept + row,
                        dc + (r * size + j0), dgate, dshare, count, size, kind,
                    )  # fmt: skip
                    for g in range(parts):
                        add(dgate + g * size, total + g * size, count)
                    if kind == GRU:
                        add(dshare + 2 * size, total + 3 * size, count)
        if s > 0 or last:
            if shared:
                if unit_parts > 1:
                    wait()
            for task in range(lo, hi):
                b0, b1, u0, u1 = share_of(task, row_parts, unit_parts, blocks, out_panels)
                left = at(T, drecurrent + begin * apart * bytes)
                panel_products(
                    left, weight, dh + u0 * width, 1, 0, apart, step, k_size, width,
                    1 if kind == GRU else 0, u0, u1, b0, b1, blocks, batch, n,
                )  # fmt: skip
