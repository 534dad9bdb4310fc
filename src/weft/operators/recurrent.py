"""Recurrent layers: each direction of an LSTM, GRU or plain layer is one op over all steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np

from weft.core.dispatch import Op, apply
from weft.core.dtype import float32
from weft.core.modes import MODES
from weft.core.node import GraphNode, Output
from weft.core.pending import region_of
from weft.core.saved import guard_apart
from weft.core.shapes import ShapeDtype
from weft.core.symbols import product
from weft.core.tensor import LATE, Tensor, wrap
from weft.operators import api
from weft.operators.arguments import refuse, scalar_name
from weft.operators.build import Make, Sample, general
from weft.operators.dropout import dropout as drop
from weft.operators.recurrent_steps import run_steps
from weft.references import recurrent as kernels

# How many gates a layer of each kind has.
GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


# --- derivative rules ------------------------------------------------------------------


def _lstm_rule(
    g: Any,
    x: Any,
    h0: Any,
    c0: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    y: Any,
    gates: Any,
    cells: Any,
    tanh_c: Any,
    full: Any,
    needs: Any,
    sizes: Any,
    reverse: bool,
) -> Sequence[Any]:
    inputs = (x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr)
    if _are_tensors(*g, *inputs, y):
        return _through_steps("LSTM", g[:3], inputs, needs, sizes, reverse)
    kept = (y, gates, cells, tanh_c, full)
    return kernels.lstm_rule(g, x, h0, c0, w_ih, w_hh, w_hr, *kept, needs, sizes, reverse)


def _gru_rule(
    g: Any,
    x: Any,
    h0: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    y: Any,
    gates: Any,
    inner: Any,
    needs: Any,
    sizes: Any,
    reverse: bool,
) -> Sequence[Any]:
    inputs = (x, h0, w_ih, w_hh, b_ih, b_hh)
    if _are_tensors(*g, *inputs, y):
        return _through_steps("GRU", g[:2], inputs, needs, sizes, reverse)
    return kernels.gru_rule(g, x, h0, w_ih, w_hh, y, gates, inner, needs, sizes, reverse)


def _rnn_rule(
    g: Any,
    x: Any,
    h0: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    y: Any,
    needs: Any,
    activation: str,
    sizes: Any,
    reverse: bool,
) -> Sequence[Any]:
    inputs = (x, h0, w_ih, w_hh, b_ih, b_hh)
    if _are_tensors(*g, *inputs, y):
        mode = f"RNN_{activation.upper()}"
        return _through_steps(mode, g, inputs, needs, sizes, reverse)
    return kernels.rnn_rule(g, x, h0, w_ih, w_hh, y, needs, activation, sizes, reverse)


# --- derivatives of the derivative -----------------------------------------------------


def _are_tensors(*values: Any) -> bool:
    return any(isinstance(v, Tensor) for v in values)


def _through_steps(
    mode: str, g: Sequence[Any], inputs: Sequence[Any], needs: Any, sizes: Any, reverse: bool
) -> Sequence[Any]:
    """Gradients that can be differentiated again: run the layer step by step, and back."""
    count = len(g) - 1  # of tensors in the state
    with _recording():
        held = [_named(x, need) for x, need in zip(inputs, needs, strict=True)]
        x, state, weights = held[0], tuple(held[1 : 1 + count]), held[1 + count :]
        weights = weights if mode == "LSTM" else [*weights, None]
        results = run_steps(mode, x, sizes, state, weights, reverse)
        wanted = [h for h, need in zip(held, needs, strict=True) if need]
        LATE.backward(results, [_tensor(part) for part in g], create_graph=True, inputs=wanted)
    return [h._grad if need else None for h, need in zip(held, needs, strict=True)]


def _tensor(value: Any) -> Any:
    return wrap(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic)) else value


def _named(value: Any, wanted: bool) -> Any:
    """An input as a tensor with a place of its own in the graph, where its gradient stops."""
    tensor = _tensor(value)
    if tensor is None or not wanted:
        return tensor
    source = tensor if tensor._node is not None else tensor.detach().requires_grad_()
    return source.view(source.shape)


@contextmanager
def _recording() -> Iterator[None]:
    """Record, without casts, whatever is on outside."""
    now = MODES.now
    outside = now.grad, now.autocast
    now.grad, now.autocast = True, None
    now.update()
    try:
        yield
    finally:
        now.grad, now.autocast = outside
        now.update()


# --- the blocks ------------------------------------------------------------------------


def _samples(gates: int, cell: bool, *more: dict[str, Any]) -> Callable[[Make], list[Sample]]:
    """Steps in both directions, without biases, packed, and one step of an empty batch."""
    size, features = 2, 3

    def arguments(m: Make, x: Any, batch: int, bias: bool, projection: int = 0) -> tuple[Any, ...]:
        out = projection or size
        state = (m.real(batch, out), m.real(batch, size))[: 1 + cell]
        weights = m.real(gates * size, features), m.real(gates * size, out)
        biases = tuple(m.real(gates * size) if bias else None for _ in range(2))
        last = (m.real(projection, size) if projection else None,) if cell else ()
        return x, *state, *weights, *biases, *last

    def samples(m: Make) -> list[Sample]:
        found = []
        for extra in more or ({},):
            plain, back = {"sizes": None, "reverse": False}, {"sizes": None, "reverse": True}
            packed = {"sizes": (2, 2, 1), "reverse": False}
            found += [
                Sample(arguments(m, m.real(3, 2, features), 2, True), {**plain, **extra}),
                Sample(arguments(m, m.real(2, 2, features), 2, False), {**back, **extra}),
                Sample(arguments(m, m.real(5, features), 2, True), {**packed, **extra}),
                Sample(
                    arguments(m, m.real(5, features), 2, False),
                    {**packed, "reverse": True, **extra},
                ),
                Sample(arguments(m, m.real(1, 0, features), 0, True), {**plain, **extra}),
            ]
        if cell:
            found += [
                Sample(arguments(m, m.real(2, 2, features), 2, True, 1), plain),
                Sample(arguments(m, m.real(5, features), 2, False, 1), {**packed, "reverse": True}),
            ]
        return found

    return samples


def _steps_of(x: ShapeDtype, sizes: Any) -> tuple[Any, Any]:
    """How many steps of samples there are in all, and the shape of outputs without features."""
    lead = x.shape[:-1] if sizes is None else x.shape[:1]
    return product(lead), lead


def _lstm_shape(
    x: ShapeDtype, h0: ShapeDtype, c0: ShapeDtype, w_ih: ShapeDtype, w_hr: Any, sizes: Any
) -> list[Any]:
    count, lead = _steps_of(x, sizes)
    width = c0.shape[-1]
    inner = [(count, w_ih.shape[0]), (count, width), (count, width)]
    full = (0 if w_hr is None else count, width)
    return [(*lead, h0.shape[-1]), h0.of(x.dtype), c0.of(x.dtype), *inner, full]


def _gru_shape(x: ShapeDtype, h0: ShapeDtype, w_ih: ShapeDtype, sizes: Any) -> list[Any]:
    count, lead = _steps_of(x, sizes)
    width = h0.shape[-1]
    return [(*lead, width), h0.of(x.dtype), (count, w_ih.shape[0]), (count, width)]


def _rnn_shape(x: ShapeDtype, h0: ShapeDtype, sizes: Any) -> list[Any]:
    return [(*_steps_of(x, sizes)[1], h0.shape[-1]), h0.of(x.dtype)]


lstm_layer_op = general(
    "lstm_layer",
    kernels.lstm,
    joint=_lstm_rule,
    names=("x", "h0", "c0", "w_ih", "w_hh", "b_ih", "b_hh", "w_hr"),
    outputs=("y", "hn", "cn", "gates", "cells", "tanh_c", "full"),
    constant_outputs=(3, 4, 5, 6),
    promote="same",
    samples=_samples(4, True),
    shape=_lstm_shape,
)

gru_layer_op = general(
    "gru_layer",
    kernels.gru,
    joint=_gru_rule,
    names=("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh"),
    outputs=("y", "hn", "gates", "inner"),
    constant_outputs=(2, 3),
    promote="same",
    samples=_samples(3, False),
    shape=_gru_shape,
)

rnn_layer_op = general(
    "rnn_layer",
    kernels.rnn,
    joint=_rnn_rule,
    names=("x", "h0", "w_ih", "w_hh", "b_ih", "b_hh"),
    outputs=("y", "hn"),
    promote="same",
    samples=_samples(1, False, {"activation": "tanh"}, {"activation": "relu"}),
    shape=_rnn_shape,
)


# --- one direction of one layer --------------------------------------------------------

LAYERS: dict[str, tuple[Op, dict[str, Any]]] = {
    "LSTM": (lstm_layer_op, {}),
    "GRU": (gru_layer_op, {}),
    "RNN_TANH": (rnn_layer_op, {"activation": "tanh"}),
    "RNN_RELU": (rnn_layer_op, {"activation": "relu"}),
}


def run_layer(
    mode: str,
    input: Tensor,
    sizes: tuple[int, ...] | None,
    state: tuple[Tensor, ...],
    weights: Sequence[Any],
    reverse: bool = False,
) -> tuple[Tensor, ...]:
    """Outputs and last state of one layer in one direction; the state is (h,) or (h, c).

    ``weights`` are w_ih, w_hh, b_ih, b_hh and w_hr, None where there is none.
    """
    if MODES.now.autocast is not None and not (
        # PyTorch lowers this layer as a whole, and the others op by op.
        mode == "LSTM" and weights[4] is None and sizes is None
    ):
        return run_steps(mode, input, sizes, state, weights, reverse)
    op, attrs = LAYERS[mode]
    weights = weights if mode == "LSTM" else weights[:4]
    shown = 1 + len(state)
    attrs = {**attrs, "sizes": sizes, "reverse": reverse}
    results = apply(op, (input, *state, *weights), attrs, shown)[:shown]
    if region_of(results[0]) is None and isinstance(results[0]._node, Output):
        _let_change(results[0]._node.node)
    return results


def _let_change(node: Any) -> None:
    """Biases, and each of input and weight if the other needs no gradient, may be overwritten: a
    plain backward reads none of their values, which are there to run the layer again.
    """
    given = dict(zip(node.op.names, node.inputs, strict=False))
    pairs = (("x", "w_ih"), ("w_ih", "x"))
    unread = [one for one, other in pairs if not isinstance(given[other], GraphNode)]
    guard_apart(node, (*unread, "b_ih", "b_hh"))


# --- layers and directions -------------------------------------------------------------


def run_layers(
    mode: str,
    input: Tensor,
    sizes: Sequence[int] | None,
    state: tuple[Tensor, ...],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool = False,
) -> tuple[Tensor, ...]:
    """Outputs of the last layer, and the last state of all layers and directions."""
    directions = 2 if bidirectional else 1
    each = _by_direction(mode, params, has_biases, num_layers * directions, state)
    transposed = batch_first and sizes is None
    data = (input.transpose(0, 1) if transposed else input).contiguous()
    steps = None if sizes is None else tuple(sizes)
    _check(mode, data, steps, state, params)
    starts = list(zip(*(s.unbind(0) for s in state), strict=True))
    finals: list[tuple[Tensor, ...]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(directions):
            i = layer * directions + direction
            output, *last = run_layer(mode, data, steps, starts[i], each[i], direction == 1)
            outputs.append(output)
            finals.append(tuple(last))
        data = outputs[0] if directions == 1 else api.FUNCTIONS["cat"](outputs, -1)
        if dropout and train and layer < num_layers - 1:
            data = drop(data, dropout)
    ends = tuple(api.FUNCTIONS["stack"](list(f)) for f in zip(*finals, strict=True))
    if directions == 1 and data.requires_grad and not _saves_output(mode, data, steps, each):
        data = data.clone()
    return data.transpose(0, 1) if transposed else data, *ends


def _saves_output(mode: str, data: Tensor, sizes: Any, weights: Sequence[Any]) -> bool:
    """Whether the very tensor that the program gets is needed for backward, as PyTorch's kernel
    for LSTMs has it. Elsewhere PyTorch keeps the states of the steps, and the output is a copy
    that the program may change.
    """
    return mode == "LSTM" and sizes is None and data.dtype is float32 and weights[0][4] is None


def _by_direction(
    mode: str, params: Sequence[Tensor], has_biases: bool, count: int, state: tuple[Tensor, ...]
) -> list[tuple[Any, ...]]:
    """w_ih, w_hh, b_ih, b_hh, w_hr of each layer and direction."""
    projected = mode == "LSTM" and state[0].shape[-1] != state[1].shape[-1]
    each = 2 + 2 * bool(has_biases) + projected
    if len(params) != each * count:
        refuse(
            f"{mode.lower()}: {count} layers and directions "
            f"{'with' if has_biases else 'without'} biases take {each} weights each, "
            f"{each * count} in all, but {len(params)} were given"
        )
    if state[0].shape[0] != count:
        refuse(
            f"{mode.lower()}: the state holds {state[0].shape[0]} layers and directions, and "
            f"the weights {count}"
        )
    found = []
    for i in range(0, each * count, each):
        own = list(params[i : i + each])
        projection = own.pop() if projected else None
        found.append((*own[:2], *(own[2:] or (None, None)), projection))
    return found


def _check(
    mode: str,
    data: Tensor,
    sizes: tuple[int, ...] | None,
    state: tuple[Tensor, ...],
    params: Sequence[Tensor],
) -> None:
    """Refuse shapes and dtypes that don't fit together."""
    name, rank = mode.lower(), 3 if sizes is None else 2
    if data.ndim != rank:
        refuse(f"{name}: input must have {rank} dimensions, got {data.ndim}")
    if sizes is None and not data.shape[0]:
        refuse("Expected sequence length to be larger than 0 in RNN")
    if sizes is not None:
        _check_sizes(name, data, sizes)
    batch = data.shape[1] if sizes is None else sizes[0]
    for s in state:
        if s.ndim != 3 or s.shape[1] != batch:
            refuse(
                f"{name}: for a batch of {batch} the state must have the shape (layers and "
                f"directions, {batch}, features), but it has {list(s.shape)}"
            )
    if data.shape[-1] != params[0].shape[-1]:
        refuse(
            f"{name}: input has {data.shape[-1]} features, and the weights expect "
            f"{params[0].shape[-1]}"
        )
    if MODES.now.autocast is None:
        _check_dtypes(name, data, *state, *params)


def _check_sizes(name: str, data: Tensor, sizes: tuple[int, ...]) -> None:
    falling = all(a >= b for a, b in pairwise(sizes))
    if not sizes or sizes[-1] < 1 or not falling or sum(sizes) != data.shape[0]:
        refuse(
            f"{name}: batch_sizes must be positive, never grow, and add up to the "
            f"{data.shape[0]} rows of data, but they are {list(sizes)}"
        )


def _check_dtypes(name: str, input: Tensor, *others: Tensor) -> None:
    for other in others:
        if other._a.dtype != input._a.dtype:
            refuse(
                f"{name}: input, state and weights must have the same dtype, but got "
                f"{scalar_name(input.dtype)} and {scalar_name(other.dtype)}. Convert one of them "
                "with .to(dtype)"
            )


# --- torch.lstm and its kin ------------------------------------------------------------

_LAST = ("params", "has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED = ("input", "hx", *_LAST, "batch_first")
_PACKED = ("data", "batch_sizes", "hx", *_LAST)


def _bound(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], packed: bool) -> list[Any]:
    """Arguments in the order of the form that the call has."""
    names = _PACKED if packed else _PADDED
    found = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(args) > len(names) or set(found) != set(names):
        refuse(f"{name}(): expected the arguments ({', '.join(names)})", TypeError)
    return [found[n] for n in names]


def _call(mode: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # The state of an LSTM is a list, so that a second tensor can only be batch sizes.
    place = 1 if mode == "LSTM" else 2
    packed = "batch_sizes" in kwargs or (len(args) > place and isinstance(args[place], Tensor))
    if packed:
        data, batch_sizes, hx, *rest = _bound(name, args, kwargs, True)
        sizes: Any = tuple(int(n) for n in batch_sizes.tolist())
    else:
        (data, hx, *rest), sizes = _bound(name, args, kwargs, False), None
    if mode != "LSTM":
        hx = (hx,)
    elif len(hx) != 2:
        refuse("lstm expects two hidden states")
    return run_layers(mode, data, sizes, tuple(hx), *rest)


@api.top
def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All layers of an LSTM: outputs, last h, last c.

    Called as ``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)``, or for packed data ``lstm(data, batch_sizes, hx, params, ...)``.
    """
    return _call("LSTM", "lstm", args, kwargs)


@api.top
def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a GRU: outputs and last h; called as ``lstm``, with one state."""
    return _call("GRU", "gru", args, kwargs)


@api.top
def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a plain network with tanh; called as ``gru``."""
    return _call("RNN_TANH", "rnn_tanh", args, kwargs)


@api.top
def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a plain network with ReLU; called as ``gru``."""
    return _call("RNN_RELU", "rnn_relu", args, kwargs)


# --- cells -----------------------------------------------------------------------------


def run_cell(
    mode: str,
    input: Tensor,
    state: tuple[Tensor, ...],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, ...]:
    """One step of (batch, features): a layer over packed data of a single step."""
    name = f"{mode.lower()}_cell"
    given = [w for w in (w_ih, w_hh, b_ih, b_hh) if w is not None]
    if input.ndim != 2:
        refuse(f"{name}: input must be (batch, features), but it has {input.ndim} dimensions")
    if input.shape[1] != w_ih.shape[1]:
        refuse(
            f"{name} input has inconsistent input_size: got {input.shape[1]} expected "
            f"{w_ih.shape[1]}"
        )
    for i, s in enumerate(state):
        if s.shape[0] != input.shape[0]:
            refuse(
                f"Input batch size {input.shape[0]} doesn't match hidden{i} batch size {s.shape[0]}"
            )
        if s.ndim != 2 or s.shape[1] != w_hh.shape[1]:
            refuse(
                f"{name} hidden{i} has inconsistent hidden_size: got {s.shape[-1]}, expected "
                f"{w_hh.shape[1]}"
            )
    if MODES.now.autocast is None:
        _check_dtypes(name, input, *state, *given)
    weights = (w_ih, w_hh, b_ih, b_hh, None)
    return run_layer(mode, input, (input.shape[0],), state, weights)[1:]


@api.top
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The next hidden state and cell state of an LSTM."""
    if len(hx) != 2:
        refuse("lstm_cell expects two hidden states")
    h, c = run_cell("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)
    return h, c


def _cell_function(mode: str, name: str, what: str) -> None:
    def cell(
        input: Tensor,
        hx: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:
        return run_cell(mode, input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = f"The next state of {what}."
    api.top(cell)


_cell_function("GRU", "gru_cell", "a GRU")
_cell_function("RNN_TANH", "rnn_tanh_cell", "a plain network with tanh")
_cell_function("RNN_RELU", "rnn_relu_cell", "a plain network with ReLU")
