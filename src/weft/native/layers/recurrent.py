"""Recurrent layers whose steps are compiled.

All steps of a layer are one call, in which the recurrent weight is packed. Where there are so
few rows in all that copying it would not pay, each step is a product and a loop for the cell.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from weft.native import onednn, threads
from weft.native.codegen.jit import KINDS, Kernel, pointer
from weft.native.codegen.trace import Loop
from weft.native.gemm import products
from weft.native.gemm.blocks import block
from weft.native.gemm.packed import ceil_div
from weft.native.loops import recurrent as loops
from weft.native.loops import reduce
from weft.native.loops.recurrent import GRU, LSTM, RELU, TANH
from weft.native.loops.rows import height, packed
from weft.native.memory import buffers
from weft.native.memory.layout import plain
from weft.native.once import once
from weft.references import recurrent as layers

Array = np.ndarray
F32 = np.dtype(np.float32)
FLOATS = (F32, np.dtype(np.float64))
GRAIN = 2048  # units of the state that are worth a thread
SMALL = 1 << 18  # multiplications up to which NumPy's product is as fast as any
WIDE = 1 << 21  # from which several threads of BLAS pay
COPY = 1 << 15  # elements whose copying is worth a thread
JOINT = 1 << 17  # elements of both weights up to which a step does the input's product as well
FEW = 16  # rows of all steps up to which the weight is not copied into panels
SHARE = 1 << 19  # multiplications of all steps that are worth a thread
STEP = 1 << 16  # those of one step that are worth waiting for other threads


# --- products --------------------------------------------------------------------------


def gemm(a: Array, b: Array, out: Array) -> None:
    """The product of two matrices, by whatever is fastest here."""
    work = a.size * b.shape[1]
    if buffers.planner() is not None:
        products.into(a, b, out)
    elif buffers.small(work, SMALL + 1) or not onednn.available():
        np.matmul(a, b, out)
    elif a.dtype == F32 and onednn.matmul(a, b, out) is not None:
        return
    elif work >= WIDE:
        with threads.wide_blas():
            np.matmul(a, b, out)
    else:
        np.matmul(a, b, out)


def copy(source: Array, target: Array) -> None:
    """Rows of one matrix to another; the elements of a row are contiguous."""
    rows, columns = source.shape
    apart, step = (a.strides[0] // a.itemsize for a in (source, target))
    count = max(threads.how_many(rows * columns, COPY), 1)
    loops.copy_rows.get(KINDS[source.dtype])(source, target, columns, apart, step, rows, count)


def add(target: Array, source: Array) -> None:
    """Add an array to another, in place."""
    if buffers.planner() is None:
        np.add(target, source, out=target)
    else:
        buffers.move(target, _sum()(target, source))


def in_rows(a: Array, dtype: Any = None) -> Array:
    """An array in row-major order; native layers are of one dtype."""
    return plain(a)


@once
def _sum() -> Loop:
    return Loop("recurrent_add", np.add)


# --- cells -----------------------------------------------------------------------------


@functools.cache
def _cell(loop: Kernel, dtype: np.dtype, kind: int, parts: int) -> Callable[..., None]:
    return loop.get(KINDS[dtype], kind=kind, parts=parts)


def _forward(
    kind: int, parts: int, gates: Array, recurrent: Array, bias: Array, h: Array,
    before: Any = None, c: Any = None, kept: Any = None,
) -> None:  # fmt: skip
    """One step of a cell, which changes its gates in place."""
    rows, size = h.shape
    code = _cell(loops.forward_rows, h.dtype, kind, parts)
    code(gates, recurrent, bias, before, c, h, kept, size, rows, _threads(rows, size))


def _backward(
    kind: int, parts: int, dh: Array, kept: Array, dgates: Array, gates: Any = None,
    before: Any = None, dc: Any = None, dshares: Any = None,
) -> None:  # fmt: skip
    """Its gradients; rows of those of gates may be strided."""
    (rows, size), apart = dh.shape, dgates.strides[0] // dgates.itemsize
    code = _cell(loops.backward_rows, dh.dtype, kind, parts)
    arrays = dh, gates, before, kept, dc, dgates, dshares
    code(*arrays, size, apart, rows, _threads(rows, size))


def lstm_forward(
    gates: Array, recurrent: Array, bias: Array, before: Array, c: Array, h: Array, tanh_c: Array
) -> None:
    """One step of an LSTM."""
    _forward(LSTM, 4, gates, recurrent, bias, h, before, c, tanh_c)


def lstm_backward(
    dh: Array, gates: Array, before: Array, tanh_c: Array, dc: Array, dgates: Array
) -> None:
    """One step of an LSTM back."""
    _backward(LSTM, 4, dh, tanh_c, dgates, gates, before, dc)


def gru_forward(
    gates: Array, recurrent: Array, bias: Array, before: Array, h: Array, inner: Array
) -> None:
    """One step of a GRU."""
    _forward(GRU, 3, gates, recurrent, bias, h, before, None, inner)


def gru_backward(
    dh: Array, gates: Array, before: Array, inner: Array, dgates: Array, drecurrent: Array
) -> None:
    """One step of a GRU back."""
    _backward(GRU, 3, dh, inner, dgates, gates, before, None, drecurrent)


def _threads(rows: int, size: int) -> int:
    return max(min(threads.how_many(rows * size, GRAIN), rows), 1)


# --- all steps -------------------------------------------------------------------------


class Cut(NamedTuple):
    """How a step is divided: blocks of rows, and the parts of rows and of units."""

    blocks: int
    row_parts: int
    unit_parts: int


def _cut(batch: int, even: bool, panels: int, kind: str, work: int, steps: int) -> Cut:
    """Blocks depend on the batch alone; parts are for the threads that so much work is worth.

    If sequences end early, only units can be divided evenly.
    """
    blocks = ceil_div(batch, height(kind))
    blocks += blocks > 1 and blocks % 2  # so that two threads get as many
    count = max(threads.how_many(work, SHARE), 1)
    patient = work >= count * steps * STEP
    best, found = (blocks * panels, 1), Cut(blocks, 1, 1)
    for rows in range(1, min(count, blocks) + 1 if even else 2):
        units = min(count // rows, panels) if patient else 1
        cost = ceil_div(blocks, rows) * ceil_div(panels, units), units
        if cost < best:
            best, found = cost, Cut(blocks, rows, units)
    return found


class LayerSteps:
    """What both directions need to know of a layer's steps."""

    def __init__(
        self,
        table: layers.Cells,
        steps: layers.SequenceSteps,
        w_hh: Array,
        w_hr: Array | None,
        parts: int,
    ) -> None:
        self.gemm = table["gemm"]
        self.steps, self.dtype, self.parts = steps, w_hh.dtype, parts
        self.kind = KINDS[w_hh.dtype]
        self.width = block(self.kind)[2]
        self.batch = max(steps.sizes)
        self.size, self.out = w_hh.shape[0] // parts, w_hh.shape[1]
        self.panels = ceil_div(self.size, self.width)
        # Rows of the state hold whole panels, and are not a power of two apart.
        self.apart = ceil_div(self.out, self.width) * self.width + self.width
        work = steps.starts[-1] * w_hh.size
        even = min(steps.sizes) == self.batch
        self.cut = _cut(self.batch, even, self.panels, self.kind, work, steps.count)
        self.tasks = self.cut.row_parts * self.cut.unit_parts
        self.starts = np.array(steps.starts, np.int64)
        self.projects = int(w_hr is not None)

    def shares(self, parts: int) -> tuple[Array, int]:
        """Scratch for what a task computes of a step, and how much of it is one task's."""
        units = ceil_div(self.panels, self.cut.unit_parts) * self.width
        share_size = self.batch * (parts * units + 2 * self.width)
        return buffers.empty(self.tasks * share_size, self.dtype), share_size

    def sizes(self, *steps: int) -> tuple[int, ...]:
        """Numbers that both kernels take, from the number of steps on."""
        first = (self.steps.count, int(self.steps.reverse), self.batch, self.size, self.out)
        return *first, *steps, *self.cut

    def code(self, loop: Kernel, cell: int, **more: int) -> Callable[..., None]:
        return loop.get(
            self.kind,
            kind=cell,
            parts=self.parts,
            projects=self.projects,
            **more,
            width=self.width,
            wide=int(self.kind == "f64"),
            shared=int(threads.available()),
        )

    def forward(
        self,
        cell: int,
        data: Array,
        w_ih: Array,
        gates: Array,
        bias: Array,
        h0: Array,
        w_hh: Array,
        y: Array,
        c0: Array | None = None,
        w_hr: Array | None = None,
        full: Array | None = None,
        states: Array | None = None,
        kept: Array | None = None,
    ) -> None:
        now = buffers.empty((2, self.batch, self.apart), self.dtype)
        buffers.move(now[:, :, : self.out], h0[: self.batch])
        running = None if c0 is None else buffers.copied(c0[: self.batch])
        weight, joint = packed(w_hh.T, self.parts), 0 < w_ih.size <= JOINT - w_hh.size
        weight_in = packed(w_ih.T, self.parts) if joint else None
        if not joint:
            self.gemm(data, w_ih.T, gates)
        project = None if w_hr is None else packed(w_hr.T)
        shares, share_size = self.shares(2 * self.parts)
        self.code(loops.forward_steps, cell, joint=int(joint))(
            *(data, weight_in, data.shape[1]),
            *(gates, bias, weight, project, shares, running, states, kept),
            *(pointer(y if full is None else full), y, pointer(now), self.starts),
            *(*self.sizes(self.apart), share_size, self.tasks, self.tasks),
        )

    def backward(
        self,
        cell: int,
        dy: Array,
        dh: Array,
        w_hh: Array,
        gates: Array | None,
        kept: Array,
        start: Array | None,
        states: Array | None,
        drecurrent: Array,
        last: bool,
        dc: Array | None = None,
        dinput: Array | None = None,
        w_hr: Array | None = None,
        dprojected: Array | None = None,
    ) -> Array:
        dy = plain(dy)
        running = buffers.empty((self.batch, self.apart), self.dtype)
        buffers.move(running[:, : self.out], dh[: self.batch])
        weight = packed(w_hh)
        project = None if w_hr is None else packed(w_hr)
        if w_hr is not None and dprojected is None:
            dprojected = buffers.empty(dy.shape, self.dtype)
        shares, share_size = self.shares(1)
        sums = buffers.zeros(
            (self.cut.blocks, (4 if cell == GRU else self.parts) * self.size), dy.dtype
        )
        apart = drecurrent.strides[0] // drecurrent.itemsize
        addresses = [0 if a is None else pointer(a) for a in (start, states, dprojected)]
        self.code(loops.backward_steps, cell)(
            *(dy, running, dc, gates, kept, *addresses[:2], weight, project, shares),
            *(dinput, pointer(drecurrent), addresses[2], sums, self.starts),
            *(*self.sizes(self.apart, apart), share_size, int(last), self.tasks, self.tasks),
        )
        buffers.move(dh[: self.batch], running[:, : self.out])
        if buffers.planner() is None:
            return sums.sum(0)
        total = reduce.sum_over(sums, (0,), False) if len(sums) > 1 else sums
        return total.reshape(-1)  # type: ignore[union-attr]


def _few(steps: layers.SequenceSteps) -> bool:
    if buffers.planner() is None:
        return steps.starts[-1] <= FEW
    if not steps.starts[-1]:
        raise buffers.Unplannable("a recurrent layer without rows")
    return False


def lstm_forward_steps(
    cells: layers.Cells,
    steps: layers.SequenceSteps,
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
    kept = (y, full, states, tanh_c)
    if _few(steps):
        return layers.lstm_forward_steps(
            cells, steps, data, w_ih, gates, bias, h0, c0, w_hh, w_hr, *kept
        )
    return LayerSteps(cells, steps, w_hh, w_hr, 4).forward(
        LSTM, data, w_ih, gates, bias, h0, w_hh, y, c0, w_hr, full, states, tanh_c
    )


def lstm_backward_steps(
    table: layers.Cells,
    steps: layers.SequenceSteps,
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
    """All steps of an LSTM back."""
    if _few(steps):
        kept = (gates, states, tanh_c, c0, w_hh, w_hr)
        grads = (dgates, dprojected, last)
        return layers.lstm_backward_steps(table, steps, dy, dh, dc, *kept, *grads)
    return LayerSteps(table, steps, w_hh, w_hr, 4).backward(
        *(LSTM, dy, dh, w_hh, gates, tanh_c, c0, states, dgates, last, dc),
        w_hr=w_hr,
        dprojected=dprojected,
    )


def gru_forward_steps(
    cells: layers.Cells,
    steps: layers.SequenceSteps,
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
    if _few(steps):
        return layers.gru_forward_steps(cells, steps, data, w_ih, gates, bias, h0, w_hh, y, inner)
    return LayerSteps(cells, steps, w_hh, None, 3).forward(
        GRU, data, w_ih, gates, bias, h0, w_hh, y, kept=inner
    )


def gru_backward_steps(
    table: layers.Cells,
    steps: layers.SequenceSteps,
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
    """All steps of a GRU back."""
    if _few(steps):
        kept = (gates, out, inner, h0, w_hh)
        return layers.gru_backward_steps(table, steps, dy, dh, *kept, dgates, drecurrent, last)
    kept = (w_hh, gates, inner, h0, out)
    return LayerSteps(table, steps, w_hh, None, 3).backward(
        GRU, dy, dh, *kept, drecurrent, last, dinput=dgates
    )


def rnn_forward_steps(
    cells: layers.Cells,
    steps: layers.SequenceSteps,
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
    if _few(steps):
        return layers.rnn_forward_steps(
            cells, steps, activation, data, w_ih, gates, bias, h0, w_hh, y
        )
    return LayerSteps(cells, steps, w_hh, None, 1).forward(
        PLAIN[activation], data, w_ih, gates, bias, h0, w_hh, y
    )


def rnn_backward_steps(
    table: layers.Cells,
    steps: layers.SequenceSteps,
    activation: str,
    dy: Array,
    dh: Array,
    out: Array,
    w_hh: Array,
    dgates: Array,
    last: bool,
) -> Array | None:
    """All steps of a plain network back."""
    if _few(steps):
        return layers.rnn_backward_steps(table, steps, activation, dy, dh, out, w_hh, dgates, last)
    kept = (w_hh, None, out, None, None)
    return LayerSteps(table, steps, w_hh, None, 1).backward(
        PLAIN[activation], dy, dh, *kept, dgates, last
    )


PLAIN = {"tanh": TANH, "relu": RELU}
CELLS: dict[str, Callable[..., Any]] = {
    "gemm": gemm,
    "copy": copy,
    "empty": buffers.empty,
    "zeros": buffers.zeros,
    "put": buffers.move,
    "add": add,
    "in_rows": in_rows,
    "copied": lambda a, dtype=None: buffers.copied(a),
    "column_sums": layers.column_sums,
    "lstm_forward": lstm_forward,
    "lstm_backward": lstm_backward,
    "gru_forward": gru_forward,
    "gru_backward": gru_backward,
    "tanh_forward": functools.partial(_forward, TANH, 1),
    "tanh_backward": functools.partial(_backward, TANH, 1),
    "relu_forward": functools.partial(_forward, RELU, 1),
    "relu_backward": functools.partial(_backward, RELU, 1),
    "lstm_forward_steps": lstm_forward_steps,
    "lstm_backward_steps": lstm_backward_steps,
    "gru_forward_steps": gru_forward_steps,
    "gru_backward_steps": gru_backward_steps,
    "rnn_forward_steps": rnn_forward_steps,
    "rnn_backward_steps": rnn_backward_steps,
}


# --- layers ----------------------------------------------------------------------------


def lstm(x: Array, *rest: Any, **attrs: Any) -> Any:
    """An LSTM layer over all steps."""
    return layers.lstm(x, *rest, **attrs, cells=CELLS) if x.dtype in FLOATS else None


def gru(x: Array, *rest: Any, **attrs: Any) -> Any:
    """A GRU layer over all steps."""
    return layers.gru(x, *rest, **attrs, cells=CELLS) if x.dtype in FLOATS else None


def rnn(x: Array, *rest: Any, **attrs: Any) -> Any:
    """A plain layer over all steps."""
    return layers.rnn(x, *rest, **attrs, cells=CELLS) if x.dtype in FLOATS else None


def lstm_rule(b_ih: Any, b_hh: Any, **given: Any) -> Any:
    """The gradients of an LSTM layer."""
    return layers.lstm_rule(**_in_rows(given), table=CELLS) if _plain(given) else None


def gru_rule(b_ih: Any, b_hh: Any, **given: Any) -> Any:
    """The gradients of a GRU layer."""
    return layers.gru_rule(**_in_rows(given), table=CELLS) if _plain(given) else None


def rnn_rule(b_ih: Any, b_hh: Any, **given: Any) -> Any:
    """The gradients of a plain layer."""
    return layers.rnn_rule(**_in_rows(given), table=CELLS) if _plain(given) else None


def _in_rows(given: dict[str, Any]) -> dict[str, Any]:
    """The same with data of all steps in rows, one step after another."""
    first, *rest = given["g"]
    return {**given, "x": plain(given["x"]), "y": plain(given["y"]), "g": (plain(first), *rest)}


def _plain(given: dict[str, Any]) -> bool:
    """Whether all values are arrays: under forward mode some are tensors, which carry more."""
    kinds = (Array, tuple, bool, str, type(None))
    return all(isinstance(v, kinds) for v in (*given.values(), *given["g"]))
