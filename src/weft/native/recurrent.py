"""Recurrent layers whose steps are compiled: one loop for the cell, one product for the state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.kernels import recurrent as layers
from weft.native import onednn, threads
from weft.native.jit import KINDS, Kernel, pointer
from weft.native.loops import recurrent as loops

Array = np.ndarray
F32 = np.dtype(np.float32)
FLOATS = (F32, np.dtype(np.float64))
GRAIN = 2048  # units of the state that are worth a thread
SMALL = 1 << 18  # multiplications up to which NumPy's product is as fast as any
WIDE = 1 << 21  # from which several threads of BLAS pay


# --- products --------------------------------------------------------------------------


def gemm(a: Array, b: Array, out: Array) -> None:
    """The product of two matrices, by whatever is fastest here."""
    work = a.size * b.shape[1]
    if work <= SMALL or not onednn.available():
        np.matmul(a, b, out)
    elif a.dtype == F32 and onednn.matmul(a, b, out) is not None:
        return
    elif work >= WIDE:
        with threads.wide_blas():
            np.matmul(a, b, out)
    else:
        np.matmul(a, b, out)


# --- cells -----------------------------------------------------------------------------


def _forward(loop: Kernel, gates: int) -> Callable[..., None]:
    """A loop as a cell; its gates, which it changes in place, come as one array for each."""

    def run(first: Array, *others: Array) -> None:
        rows, size = others[-1].shape
        part, start = size * first.itemsize, pointer(first)
        parts = [start + k * part for k in range(gates)]
        code = loop.get(KINDS[first.dtype])
        code(*parts, *others, size, rows, _threads(rows, size))

    return run


def _backward(loop: Kernel) -> Callable[..., None]:
    """A loop as a cell whose last array is a gradient of gates, with rows that may lie apart."""

    def run(*arrays: Array) -> None:
        (rows, size), last = arrays[0].shape, arrays[-1]
        apart = last.strides[0] // last.itemsize
        code = loop.get(KINDS[last.dtype])
        code(*arrays, size, apart, rows, _threads(rows, size))

    return run


def _threads(rows: int, size: int) -> int:
    return max(min(threads.how_many(rows * size, GRAIN), rows), 1)


CELLS: dict[str, Callable[..., None]] = {
    "gemm": gemm,
    "lstm_forward": _forward(loops.lstm_forward_rows, 4),
    "lstm_backward": _backward(loops.lstm_backward_rows),
    "gru_forward": _forward(loops.gru_forward_rows, 3),
    "gru_backward": _backward(loops.gru_backward_rows),
    "tanh_forward": _forward(loops.tanh_forward_rows, 1),
    "tanh_backward": _backward(loops.tanh_backward_rows),
    "relu_forward": _forward(loops.relu_forward_rows, 1),
    "relu_backward": _backward(loops.relu_backward_rows),
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
    return layers.lstm_rule(**given, table=CELLS) if _plain(given) else None


def gru_rule(b_ih: Any, b_hh: Any, **given: Any) -> Any:
    """The gradients of a GRU layer."""
    return layers.gru_rule(**given, table=CELLS) if _plain(given) else None


def rnn_rule(b_ih: Any, b_hh: Any, **given: Any) -> Any:
    """The gradients of a plain layer."""
    return layers.rnn_rule(**given, table=CELLS) if _plain(given) else None


def _plain(given: dict[str, Any]) -> bool:
    """Whether all values are arrays: under forward mode some are tensors, which carry more."""
    kinds = (Array, tuple, bool, str, type(None))
    return all(isinstance(v, kinds) for v in (*given.values(), *given["g"]))
