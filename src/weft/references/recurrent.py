"""Whole recurrent layers in one direction: LSTM, GRU and the plain one, and their gradients.

Data of all steps lies in rows, one step after another; ``sizes`` says how many rows each step has,
which in packed sequences gets smaller from step to step. The input's share of the gates is one
product for all steps; each step adds the product with the state before it and the cell, which works
in place. The gradients of weights are one product each, after all steps.

``CELLS`` names the functions that do the work of a step, those that go through all steps, and those
that allocate and move memory; layers take another table with faster ones. All arrays are row-major,
except that ``gemm`` gets transposed ones too, and that rows of the gradients of gates may lie
apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np

Array = np.ndarray
Cells = Mapping[str, Callable[..., Any]]


# --- the work of one step --------------------------------------------------------------


def gemm(a: Array, b: Array, out: Array) -> None:
    """The product of two matrices, written to ``out``."""
    np.matmul(a, b, out=out)


def copy(source: Array, target: Array) -> None:
    """Rows of one matrix to another of the same size."""
    np.copyto(target, source)


def put(target: Array, source: Array) -> None:
    """Write an array over another, with broadcasting."""
    target[...] = source


def add(target: Array, source: Array) -> None:
    """Add an array to another, in place."""
    np.add(target, source, out=target)


def in_rows(a: Array, dtype: Any = None) -> Array:
    """An array in row-major order, and in a dtype if one is given: itself, or a copy."""
    return np.ascontiguousarray(a, dtype=dtype)


def copied(a: Array, dtype: Any = None) -> Array:
    """A copy in row-major order."""
    return np.array(a, dtype, order="C")


def column_sums(a: Array) -> Array:
    """The sums over rows."""
    return a.sum(0)


def _sigmoid(x: Array) -> None:
    np.multiply(x, -1, out=x)  # NumPy's negative, in place, goes wrong on one column of several
    np.exp(x, out=x)
    np.add(x, 1, out=x)
    np.reciprocal(x, out=x)


def _sigmoid_slope(d: Array, y: Array, work: Array) -> None:
    """Multiply by the slope of a sigmoid whose value is ``y``."""
    np.subtract(1, y, out=work)
    np.multiply(d, y, out=d)
    np.multiply(d, work, out=d)


def _tanh_slope(d: Array, y: Array, work: Array) -> None:
    """Multiply by the slope of a tanh whose value is ``y``."""
    np.multiply(y, y, out=work)
    np.subtract(1, work, out=work)
    np.multiply(d, work, out=d)


def lstm_forward_cell(
    gates: Array, recurrent: Array, bias: Array, before: Array, c: Array, h: Array, tanh_c: Array
) -> None:
    """Gates (input, forget, candidate, output) from their shares, then the state."""
    size = c.shape[1]
    np.add(recurrent, bias, out=recurrent)
    np.add(gates, recurrent, out=gates)
    first, last, candidate = gates[:, : 2 * size], gates[:, 3 * size :], _part(gates, 2, size)
    _sigmoid(first)
    _sigmoid(last)
    np.tanh(candidate, out=candidate)
    np.multiply(_part(gates, 0, size), candidate, out=h)
    np.multiply(_part(gates, 1, size), before, out=c)
    np.add(c, h, out=c)
    np.tanh(c, out=tanh_c)
    np.multiply(last, tanh_c, out=h)


def lstm_backward_cell(
    dh: Array, gates: Array, before: Array, tanh_c: Array, dc: Array, dgates: Array
) -> None:
    """The gradient of the gates; that of the cell state moves one step back, in place."""
    size = dc.shape[1]
    i, f, g, o = (_part(gates, k, size) for k in range(4))
    di, df, dg, do = (_part(dgates, k, size) for k in range(4))
    work, through = np.empty_like(dc), np.empty_like(dc)
    np.multiply(dh, o, out=through)
    _tanh_slope(through, tanh_c, work)
    np.add(dc, through, out=dc)
    np.multiply(dh, tanh_c, out=do)
    _sigmoid_slope(do, o, work)
    np.multiply(dc, g, out=di)
    _sigmoid_slope(di, i, work)
    np.multiply(dc, before, out=df)
    _sigmoid_slope(df, f, work)
    np.multiply(dc, i, out=dg)
    _tanh_slope(dg, g, work)
    np.multiply(dc, f, out=dc)


def gru_forward_cell(
    gates: Array, recurrent: Array, bias: Array, before: Array, h: Array, inner: Array
) -> None:
    """Gates (reset, update, candidate) from their shares, then the state.

    ``bias`` has four parts, since the candidate has one on each side of the reset gate;
    ``inner`` receives what the reset gate multiplies.
    """
    size = h.shape[1]
    both, candidate = gates[:, : 2 * size], gates[:, 2 * size :]
    np.add(recurrent[:, 2 * size :], bias[3 * size :], out=inner)
    np.add(both, recurrent[:, : 2 * size], out=both)
    np.add(gates, bias[: 3 * size], out=gates)
    _sigmoid(both)
    np.multiply(_part(gates, 0, size), inner, out=h)
    np.add(candidate, h, out=candidate)
    np.tanh(candidate, out=candidate)
    np.subtract(before, candidate, out=h)
    np.multiply(h, _part(gates, 1, size), out=h)
    np.add(h, candidate, out=h)


def gru_backward_cell(
    dh: Array, gates: Array, before: Array, inner: Array, dgates: Array, drecurrent: Array
) -> None:
    """The gradients of both shares of the gates; ``dh`` keeps what goes straight back."""
    size = dh.shape[1]
    r, z, n = (_part(gates, k, size) for k in range(3))
    dr, dz, dn = (_part(dgates, k, size) for k in range(3))
    work = np.empty_like(dh)
    np.subtract(before, n, out=dz)
    np.multiply(dz, dh, out=dz)
    _sigmoid_slope(dz, z, work)
    np.subtract(1, z, out=dn)
    np.multiply(dn, dh, out=dn)
    _tanh_slope(dn, n, work)
    np.multiply(dn, inner, out=dr)
    _sigmoid_slope(dr, r, work)
    drecurrent[:, : 2 * size] = dgates[:, : 2 * size]
    np.multiply(dn, r, out=drecurrent[:, 2 * size :])
    np.multiply(dh, z, out=dh)


def tanh_forward_cell(gates: Array, recurrent: Array, bias: Array, h: Array) -> None:
    """The next state of a plain network."""
    np.add(recurrent, bias, out=recurrent)
    np.add(gates, recurrent, out=h)
    np.tanh(h, out=h)


def tanh_backward_cell(dh: Array, h: Array, dgates: Array) -> None:
    """The gradient of what tanh was taken of."""
    np.multiply(h, h, out=dgates)
    np.subtract(1, dgates, out=dgates)
    np.multiply(dgates, dh, out=dgates)


def relu_forward_cell(gates: Array, recurrent: Array, bias: Array, h: Array) -> None:
    """The next state of a plain network with ReLU."""
    np.add(recurrent, bias, out=recurrent)
    np.add(gates, recurrent, out=h)
    np.maximum(h, 0, out=h)


def relu_backward_cell(dh: Array, h: Array, dgates: Array) -> None:
    """The gradient of what ReLU was taken of; a NaN lets it through."""
    np.copyto(dgates, dh)
    dgates[h <= 0] = 0


def _part(gates: Array, k: int, size: int) -> Array:
    return gates[:, k * size : (k + 1) * size]


# --- the way through the steps ---------------------------------------------------------


class SequenceSteps:
    """The rows of each step, and the state before it."""

    def __init__(self, sizes: Sequence[int], reverse: bool) -> None:
        self.sizes, self.reverse, self.count = sizes, reverse, len(sizes)
        self.starts = [0]
        for size in sizes:
            self.starts.append(self.starts[-1] + size)
        self.order = range(self.count)[::-1] if reverse else range(self.count)

    def rows(self, t: int) -> slice:
        """The rows of a step in the data of all."""
        return slice(self.starts[t], self.starts[t + 1])

    def before(self, t: int, start: Array, states: Array) -> Array:
        """The state before a step: rows of the step that ran before, of the first state, or both.

        Backwards, sequences that are shorter join in later, from the first state.
        """
        size, earlier = self.sizes[t], t + 1 if self.reverse else t - 1
        if not 0 <= earlier < self.count:
            return start[:size]
        held, first = self.sizes[earlier], self.starts[earlier]
        if held >= size:
            return states[first : first + size]
        return np.concatenate([states[first : first + held], start[held:size]])

    def all_before(
        self, start: Array, states: Array, out: Array, copy: Callable[..., None]
    ) -> None:
        """Write the states before all steps to ``out``, in rows as the data."""
        size, rows = max(self.sizes), self.starts[-1]
        if min(self.sizes) < size:
            for t in range(self.count):
                copy(self.before(t, start, states), out[self.rows(t)])
        elif self.reverse:
            copy(states[size:], out[: rows - size])
            copy(start[:size], out[rows - size :])
        else:
            copy(start[:size], out[:size])
            copy(states[: rows - size], out[size:])

    def last(self, states: Array, table: Cells) -> Array:
        """Each sequence's state after its last step."""
        if self.reverse:
            return table["copied"](states[: self.sizes[0]])
        found, ended = table["empty"]((self.sizes[0], states.shape[1]), states.dtype), 0
        for t in reversed(self.order):
            size = self.sizes[t]
            if size > ended:
                table["put"](found[ended:size], states[self.starts[t] + ended : self.starts[t + 1]])
                ended = size
        return found


def lstm_forward_steps(
    cells: Cells,
    steps: SequenceSteps,
    data: Array,
    w_ih: Array,
    gates: Array,
    bias: Array,
    h0: Array,
    c0: Array,
    w_hh: Array,
    w_hr: Array | None,
    y: Array,
    full: Array,
    states: Array,
    tanh_c: Array,
) -> None:
    """All steps of an LSTM."""
    gemm, cell = cells["gemm"], cells["lstm_forward"]
    gemm(data, w_ih.T, gates)
    recurrent = np.empty((max(steps.sizes), gates.shape[1]), gates.dtype)
    for t in steps.order:
        at, own = steps.rows(t), recurrent[: steps.sizes[t]]
        gemm(steps.before(t, h0, y), w_hh.T, own)
        before = steps.before(t, c0, states)
        cell(gates[at], own, bias, before, states[at], full[at], tanh_c[at])
        if w_hr is not None:
            gemm(full[at], w_hr.T, y[at])


def lstm_backward_steps(
    table: Cells,
    steps: SequenceSteps,
    dy: Array,
    dh: Array,
    dc: Array,
    gates: Array,
    states: Array,
    tanh_c: Array,
    c0: Array,
    w_hh: Array,
    w_hr: Array | None,
    dgates: Array,
    dprojected: Array | None,
    last: bool,
) -> Array | None:
    """All steps back; ``dh`` and ``dc`` become the gradients of the first state, dh if ``last``.

    This and its like return the sums of the gradients of gates over rows, or None for: not known.
    """
    gemm, cell, inner = table["gemm"], table["lstm_backward"], np.empty_like(dc)
    for t in reversed(steps.order):
        size, at = steps.sizes[t], steps.rows(t)
        d = through = dh[:size]
        np.add(d, dy[at], out=d)
        if w_hr is not None:
            through = inner[:size]
            gemm(d, w_hr, through)
        if dprojected is not None:
            dprojected[at] = d
        before = steps.before(t, c0, states)
        cell(through, gates[at], before, tanh_c[at], dc[:size], dgates[at])
        if t != steps.order[0] or last:
            gemm(dgates[at], w_hh, d)
    return None


def gru_forward_steps(
    cells: Cells,
    steps: SequenceSteps,
    data: Array,
    w_ih: Array,
    gates: Array,
    bias: Array,
    h0: Array,
    w_hh: Array,
    y: Array,
    inner: Array,
) -> None:
    """All steps of a GRU."""
    gemm, cell = cells["gemm"], cells["gru_forward"]
    gemm(data, w_ih.T, gates)
    recurrent = np.empty((max(steps.sizes), gates.shape[1]), gates.dtype)
    for t in steps.order:
        at, own = steps.rows(t), recurrent[: steps.sizes[t]]
        before = steps.before(t, h0, y)
        gemm(before, w_hh.T, own)
        cell(gates[at], own, bias, before, y[at], inner[at])


def gru_backward_steps(
    table: Cells,
    steps: SequenceSteps,
    dy: Array,
    dh: Array,
    gates: Array,
    out: Array,
    inner: Array,
    h0: Array,
    w_hh: Array,
    dgates: Array,
    drecurrent: Array,
    last: bool,
) -> Array | None:
    """All steps back; the sums have four parts, as the bias of the cell."""
    gemm, cell, back = table["gemm"], table["gru_backward"], np.empty_like(dh)
    for t in reversed(steps.order):
        size, at = steps.sizes[t], steps.rows(t)
        d = dh[:size]
        np.add(d, dy[at], out=d)
        before = steps.before(t, h0, out)
        cell(d, gates[at], before, inner[at], dgates[at], drecurrent[at])
        if t != steps.order[0] or last:
            gemm(drecurrent[at], w_hh, back[:size])
            np.add(d, back[:size], out=d)
    return None


def rnn_forward_steps(
    cells: Cells,
    steps: SequenceSteps,
    activation: str,
    data: Array,
    w_ih: Array,
    gates: Array,
    bias: Array,
    h0: Array,
    w_hh: Array,
    y: Array,
) -> None:
    """All steps of a plain network."""
    gemm, cell = cells["gemm"], cells[f"{activation}_forward"]
    gemm(data, w_ih.T, gates)
    recurrent = np.empty((max(steps.sizes), gates.shape[1]), gates.dtype)
    for t in steps.order:
        at, own = steps.rows(t), recurrent[: steps.sizes[t]]
        gemm(steps.before(t, h0, y), w_hh.T, own)
        cell(gates[at], own, bias, y[at])


def rnn_backward_steps(
    table: Cells,
    steps: SequenceSteps,
    activation: str,
    dy: Array,
    dh: Array,
    out: Array,
    w_hh: Array,
    dgates: Array,
    last: bool,
) -> Array | None:
    """All steps back."""
    gemm, cell = table["gemm"], table[f"{activation}_backward"]
    for t in reversed(steps.order):
        size, at = steps.sizes[t], steps.rows(t)
        d = dh[:size]
        np.add(d, dy[at], out=d)
        cell(d, out[at], dgates[at])
        if t != steps.order[0] or last:
            gemm(dgates[at], w_hh, d)
    return None


CELLS: dict[str, Callable[..., Any]] = {
    "gemm": gemm,
    "copy": copy,
    "empty": np.empty,
    "zeros": np.zeros,
    "put": put,
    "add": add,
    "in_rows": in_rows,
    "copied": copied,
    "column_sums": column_sums,
    "lstm_forward": lstm_forward_cell,
    "lstm_backward": lstm_backward_cell,
    "gru_forward": gru_forward_cell,
    "gru_backward": gru_backward_cell,
    "tanh_forward": tanh_forward_cell,
    "tanh_backward": tanh_backward_cell,
    "relu_forward": relu_forward_cell,
    "relu_backward": relu_backward_cell,
    "lstm_forward_steps": lstm_forward_steps,
    "lstm_backward_steps": lstm_backward_steps,
    "gru_forward_steps": gru_forward_steps,
    "gru_backward_steps": gru_backward_steps,
    "rnn_forward_steps": rnn_forward_steps,
    "rnn_backward_steps": rnn_backward_steps,
}


# --- what all layers share -------------------------------------------------------------


def _sizes(x: Array, sizes: Sequence[int] | None) -> Sequence[int]:
    """The number of rows of each step: given for packed data, else that of the batch."""
    return (x.shape[1],) * x.shape[0] if sizes is None else sizes


def _check(
    parts: int,
    x: Array,
    sizes: Sequence[int] | None,
    w_hh: Array,
    *,
    h0: Array,
    w_ih: Array,
    c0: Array | None = None,
    w_hr: Array | None = None,
    **more: Array | None,
) -> None:
    """Raise unless a layer's arrays fit together.

    Those of ``more`` are vectors of all gates (``b_...``), or hold rows of all steps: of a state,
    of a projected one (``y``), or of all gates.
    """
    if x.ndim != (3 if sizes is None else 2) or w_hh.ndim != 2:
        raise RuntimeError(f"input must have {3 if sizes is None else 2} dimensions, got {x.ndim}")
    if sizes is None:
        batch, rows = x.shape[1], x.shape[0] * x.shape[1]
    else:
        batch, rows = sizes[0] if len(sizes) else 0, len(x)
        falling = all(a >= b >= 0 for a, b in itertools.pairwise(sizes))
        if not falling or not len(sizes) or batch < 0 or sum(map(index, sizes)) != rows:
            raise RuntimeError(f"{rows} rows are not those of steps with {sizes} sequences")
    width = len(w_hh)
    size, out = width // parts, w_hh.shape[1]
    wanted: list[tuple[str, Array | None, tuple[int, ...]]] = [
        ("w_hh", w_hh, (parts * size, size if w_hr is None else len(w_hr))),
        ("w_ih", w_ih, (width, x.shape[-1])),
        ("w_hr", w_hr, (out, size)),
        ("h0", h0, (batch, out)),
        ("c0", c0, (batch, size)),
    ]
    for name, a in more.items():
        if name.startswith("b_"):
            shape: tuple[int, ...] = (width,)
        else:
            shape = (rows, {"gates": width, "y": out}.get(name, size))
        wanted.append((name, a, shape))
    for name, a, shape in wanted:
        if a is not None and a.shape != shape:
            raise RuntimeError(f"expected {name} of size {list(shape)}, got {list(a.shape)}")


def _check_gradients(g: Sequence[Array], *like: Array) -> None:
    for given, a in zip(g, like, strict=False):
        if given.shape != a.shape:
            raise RuntimeError(
                f"expected a gradient of size {list(a.shape)}, got {list(given.shape)}"
            )


def _rows(x: Array) -> Array:
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _laid_out(table: Cells, arrays: Sequence[Any], common: Any = None) -> list[Any]:
    """Arrays in row-major order, and in one dtype if one is given."""
    return [None if a is None else table["in_rows"](a, common) for a in arrays]


def _working_dtype(y: Array) -> np.dtype:
    return np.dtype(np.float32) if y.dtype.itemsize < 4 else y.dtype


def _like(y: Array, x: Array) -> Array:
    """Rows in the shape that the input has in front."""
    return y.reshape(*x.shape[:-1], y.shape[-1])


def _product(table: Cells, a: Array, b: Array) -> Array:
    out: Array = table["empty"]((a.shape[0], b.shape[1]), a.dtype)
    table["gemm"](a, b, out)
    return out


def _summed_bias(table: Cells, b_ih: Array | None, b_hh: Array | None, like: Array) -> Array:
    bias: Array = table["zeros"](like.shape[1], like.dtype)
    for part in (b_ih, b_hh):
        if part is not None:
            table["add"](bias, part)
    return bias


def _gate_gradients(table: Cells, gates: Array) -> Array:
    """Memory for the gradients of gates.

    The weights' gradients read it by columns. Rows that are a power of two apart would all fall on
    the same few places of the cache.
    """
    rows, columns = gates.shape
    apart = columns + 64 // gates.itemsize if columns * gates.itemsize % 1024 == 0 else columns
    made: Array = table["empty"]((rows, apart), gates.dtype)
    return made[:, :columns]


def _weight_gradients(
    table: Cells,
    dgates: Array,
    data: Array,
    start: Array,
    states: Array,
    steps: SequenceSteps,
    needs: Sequence[bool],
) -> tuple[Array | None, Array | None]:
    """Gradients of both weights, where they are wanted; both in one product, which is faster."""
    copy, empty = table["copy"], table["empty"]
    if not all(needs):
        dw_ih = _product(table, dgates.T, data) if needs[0] else None
        return dw_ih, _state_gradient(table, dgates, start, states, steps) if needs[1] else None
    features, width = data.shape[1], states.shape[1]
    joined = empty((len(data), features + width), data.dtype)
    copy(data, joined[:, :features])
    steps.all_before(start, states, joined[:, features:], copy)
    both = _product(table, dgates.T, joined)
    parts = [empty((len(both), size), both.dtype) for size in (features, width)]
    copy(both[:, :features], parts[0])
    copy(both[:, features:], parts[1])
    return parts[0], parts[1]


def _state_gradient(
    table: Cells, dgates: Array, start: Array, states: Array, steps: SequenceSteps
) -> Array:
    """The gradient of the recurrent weight."""
    before = table["empty"](states.shape, states.dtype)
    steps.all_before(start, states, before, table["copy"])
    return _product(table, dgates.T, before)


def _bias_gradients(
    table: Cells,
    dgates: Array,
    needs: Sequence[bool],
    sums: Array | None,
    drecurrent: Array | None = None,
) -> tuple[Array | None, Array | None]:
    """Gradients of both biases, where they are wanted; they differ if ``drecurrent`` is given."""
    if sums is None:
        total, second = table["column_sums"], dgates if drecurrent is None else drecurrent
        return total(dgates) if needs[0] else None, total(second) if needs[1] else None
    width = dgates.shape[1]
    both = [table["copied"](sums[:width]) if need else None for need in needs]
    if both[1] is not None and drecurrent is not None:
        table["put"](both[1][width // 3 * 2 :], sums[width:])
    return both[0], both[1]


# --- LSTM ------------------------------------------------------------------------------


def lstm(
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    w_hr: Array | None,
    sizes: Sequence[int] | None,
    reverse: bool,
    cells: Cells = CELLS,
) -> tuple[Array, ...]:
    """Return outputs, last h, last c, and for backward: gates, cell states, their tanh, and h
    before its projection (empty without one)."""
    given: dict[str, Any] = {
        "h0": h0,
        "w_ih": w_ih,
        "c0": c0,
        "w_hr": w_hr,
        "b_ih": b_ih,
        "b_hh": b_hh,
    }
    _check(4, x, sizes, w_hh, **given)
    h0, c0, w_ih, w_hh, w_hr, x = _laid_out(cells, (h0, c0, w_ih, w_hh, w_hr, x))
    data, sizes, empty = _rows(x), _sizes(x, sizes), cells["empty"]
    steps, count, width = SequenceSteps(sizes, reverse), len(data), w_hh.shape[0] // 4
    gates = empty((len(data), len(w_ih)), data.dtype)
    bias = _summed_bias(cells, b_ih, b_hh, gates)
    states, tanh_c, full = (empty((count, width), gates.dtype) for _ in range(3))
    y = full if w_hr is None else empty((count, w_hr.shape[0]), gates.dtype)
    go = cells["lstm_forward_steps"]
    go(cells, steps, data, w_ih, gates, bias, h0, c0, w_hh, w_hr, y, full, states, tanh_c)
    hidden = full if w_hr is not None else empty((0, width), gates.dtype)
    last = (steps.last(y, cells), steps.last(states, cells))
    return _like(y, x), *last, gates, states, tanh_c, hidden


def lstm_rule(
    g: Sequence[Array],
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    w_hr: Array | None,
    y: Array,
    gates: Array,
    cells: Array,
    tanh_c: Array,
    full: Array,
    needs: Sequence[bool],
    sizes: Sequence[int] | None,
    reverse: bool,
    table: Cells = CELLS,
) -> tuple[Array | None, ...]:
    """Return the gradients of x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, where wanted."""
    working = _working_dtype(y)
    kept: dict[str, Any] = {"y": _rows(y), "gates": gates, "cells": cells, "tanh_c": tanh_c}
    kept["full"] = None if w_hr is None else full
    _check(4, x, sizes, w_hh, h0=h0, w_ih=w_ih, c0=c0, w_hr=w_hr, **kept)
    _check_gradients(g, y, h0, c0)
    given = (_rows(x), h0, c0, w_ih, w_hh, w_hr)
    data, h0, c0, w_ih, w_hh, w_hr = _laid_out(table, given, working)
    left = (_rows(y), gates, cells, tanh_c, full)
    out, gates, states, tanh_c, full = _laid_out(table, left, working)
    dy, dh, dc = _rows(g[0]), *(table["copied"](part, working) for part in g[1:3])
    steps = SequenceSteps(_sizes(x, sizes), reverse)
    go = table["lstm_backward_steps"]
    dgates = _gate_gradients(table, gates)
    dprojected = table["empty"](out.shape, working) if needs[7] else None
    read = (gates, states, tanh_c, c0, w_hh, w_hr)
    sums = go(table, steps, dy, dh, dc, *read, dgates, dprojected, needs[1])
    weights = _weight_gradients(table, dgates, data, h0, out, steps, (needs[3], needs[4]))
    biases = _bias_gradients(table, dgates, (needs[5], needs[6]), sums)
    dw_hr = None if dprojected is None else _product(table, dprojected.T, full)
    dx = _product(table, dgates, w_ih).reshape(x.shape) if needs[0] else None
    starts = (d if need else None for d, need in zip((dh, dc), needs[1:3], strict=True))
    return dx, *starts, *weights, *biases, dw_hr


# --- GRU -------------------------------------------------------------------------------


def gru(
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    sizes: Sequence[int] | None,
    reverse: bool,
    cells: Cells = CELLS,
) -> tuple[Array, ...]:
    """Return outputs, last h, and for backward: gates and what the reset gate multiplied."""
    _check(3, x, sizes, w_hh, h0=h0, w_ih=w_ih, b_ih=b_ih, b_hh=b_hh)
    h0, w_ih, w_hh, x = _laid_out(cells, (h0, w_ih, w_hh, x))
    data, sizes, empty = _rows(x), _sizes(x, sizes), cells["empty"]
    steps, width = SequenceSteps(sizes, reverse), w_hh.shape[1]
    gates = empty((len(data), len(w_ih)), data.dtype)
    bias = cells["zeros"](4 * width, gates.dtype)
    if b_ih is not None:
        cells["put"](bias[: 3 * width], b_ih)
    if b_hh is not None:
        cells["add"](bias[: 2 * width], b_hh[: 2 * width])
        cells["put"](bias[3 * width :], b_hh[2 * width :])
    y, inner = (empty((len(data), width), gates.dtype) for _ in range(2))
    cells["gru_forward_steps"](cells, steps, data, w_ih, gates, bias, h0, w_hh, y, inner)
    return _like(y, x), steps.last(y, cells), gates, inner


def gru_rule(
    g: Sequence[Array],
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    y: Array,
    gates: Array,
    inner: Array,
    needs: Sequence[bool],
    sizes: Sequence[int] | None,
    reverse: bool,
    table: Cells = CELLS,
) -> tuple[Array | None, ...]:
    """Return the gradients of x, h0, w_ih, w_hh, b_ih, b_hh, where wanted."""
    working = _working_dtype(y)
    _check(3, x, sizes, w_hh, h0=h0, w_ih=w_ih, y=_rows(y), gates=gates, inner=inner)
    _check_gradients(g, y, h0)
    data, h0, w_ih, w_hh = _laid_out(table, (_rows(x), h0, w_ih, w_hh), working)
    out, gates, inner = _laid_out(table, (_rows(y), gates, inner), working)
    dy, dh = _rows(g[0]), table["copied"](g[1], working)
    steps = SequenceSteps(_sizes(x, sizes), reverse)
    go = table["gru_backward_steps"]
    dgates, drecurrent = _gate_gradients(table, gates), _gate_gradients(table, gates)
    sums = go(table, steps, dy, dh, gates, out, inner, h0, w_hh, dgates, drecurrent, needs[1])
    dw_ih = _product(table, dgates.T, data) if needs[2] else None
    dw_hh = _state_gradient(table, drecurrent, h0, out, steps) if needs[3] else None
    biases = _bias_gradients(table, dgates, (needs[4], needs[5]), sums, drecurrent)
    dx = _product(table, dgates, w_ih).reshape(x.shape) if needs[0] else None
    return dx, dh if needs[1] else None, dw_ih, dw_hh, *biases


# --- the plain network -----------------------------------------------------------------


def rnn(
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    activation: str,
    sizes: Sequence[int] | None,
    reverse: bool,
    cells: Cells = CELLS,
) -> tuple[Array, Array]:
    """Return outputs and last h."""
    _check(1, x, sizes, w_hh, h0=h0, w_ih=w_ih, b_ih=b_ih, b_hh=b_hh)
    h0, w_ih, w_hh, x = _laid_out(cells, (h0, w_ih, w_hh, x))
    data, sizes = _rows(x), _sizes(x, sizes)
    steps = SequenceSteps(sizes, reverse)
    gates, y = (cells["empty"]((len(data), len(w_ih)), data.dtype) for _ in range(2))
    bias = _summed_bias(cells, b_ih, b_hh, gates)
    cells["rnn_forward_steps"](cells, steps, activation, data, w_ih, gates, bias, h0, w_hh, y)
    return _like(y, x), steps.last(y, cells)


def rnn_rule(
    g: Sequence[Array],
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    y: Array,
    needs: Sequence[bool],
    activation: str,
    sizes: Sequence[int] | None,
    reverse: bool,
    table: Cells = CELLS,
) -> tuple[Array | None, ...]:
    """Return the gradients of x, h0, w_ih, w_hh, b_ih, b_hh, where wanted."""
    working = _working_dtype(y)
    _check(1, x, sizes, w_hh, h0=h0, w_ih=w_ih, y=_rows(y))
    _check_gradients(g, y, h0)
    given = (_rows(x), h0, w_ih, w_hh, _rows(y))
    data, h0, w_ih, w_hh, out = _laid_out(table, given, working)
    dy, dh = _rows(g[0]), table["copied"](g[1], working)
    steps = SequenceSteps(_sizes(x, sizes), reverse)
    go = table["rnn_backward_steps"]
    dgates = _gate_gradients(table, out)
    sums = go(table, steps, activation, dy, dh, out, w_hh, dgates, needs[1])
    weights = _weight_gradients(table, dgates, data, h0, out, steps, (needs[2], needs[3]))
    biases = _bias_gradients(table, dgates, (needs[4], needs[5]), sums)
    dx = _product(table, dgates, w_ih).reshape(x.shape) if needs[0] else None
    return dx, dh if needs[1] else None, *weights, *biases
