"""Recurrent layers step by step, in terms of other ops.

The layers in ``recurrent`` run as one op each. This is what they mean, and what serves where that
op does not: derivatives of its derivative, and precision chosen op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.core.tensor import Tensor
from weft.operators import api


def _f(name: str) -> Callable[..., Any]:
    return api.FUNCTIONS[name]


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return api.NAMESPACES["nn.functional"]["linear"](input, weight, bias)


# --- one step --------------------------------------------------------------------------
#
# A step takes the input's share of the gates, which was computed for all steps at once, the
# state, and the recurrent weight as (in, out). The state is a tuple: (h,) or (h, c).


def _simple_step(activation: str) -> Callable[..., tuple[Tensor, ...]]:
    def step(
        gates: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Any, projection: Any
    ) -> tuple[Tensor, ...]:
        return (_f(activation)(_f("addmm")(gates, state[0], weight)),)

    return step


def _lstm_step(
    gates: Tensor, state: tuple[Tensor, ...], weight: Tensor, bias: Any, projection: Any
) -> tuple[Tensor, ...]:
    h, c = state
    i, f, g, o = _f("addmm")(gates, h, weight).chunk(4, 1)
    c = _f("addcmul")(f.sigmoid() * c, i.sigmoid(), g.tanh())
    h = o.sigmoid() * c.tanh()
    return (h if projection is None else h @ projection), c


def _gru_step(
    gates: tuple[Tensor, Tensor],
    state: tuple[Tensor, ...],
    weight: Tensor,
    bias: Any,
    projection: Any,
) -> tuple[Tensor, ...]:
    (h,) = state
    size = h.shape[1]
    recurrent = h @ weight if bias is None else _f("addmm")(bias, h, weight)
    own, new = recurrent.split((2 * size, size), 1)
    reset, update = (gates[0] + own).sigmoid().chunk(2, 1)
    candidate = _f("addcmul")(gates[1], reset, new).tanh()
    return (_f("addcmul")(candidate, update, h - candidate),)


STEPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "RNN_TANH": _simple_step("tanh"),
    "RNN_RELU": _simple_step("relu"),
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


def _input_gates(mode: str, input: Tensor, weight: Tensor, b_ih: Any, b_hh: Any) -> Any:
    """What the input gives to the gates; for GRU in two parts, as its step needs them."""
    if mode == "GRU":
        gates = _linear(input, weight, b_ih)
        size = weight.shape[0] // 3
        return gates.narrow(-1, 0, 2 * size), gates.narrow(-1, 2 * size, size)
    return _linear(input, weight, b_hh if b_ih is None else b_ih if b_hh is None else b_ih + b_hh)


# --- one layer in one direction --------------------------------------------------------


def run_steps(
    mode: str,
    input: Tensor,
    sizes: Sequence[int] | None,
    state: tuple[Tensor, ...],
    weights: Sequence[Any],
    reverse: bool,
) -> tuple[Tensor, ...]:
    """Outputs and last state over (steps, batch, features), or packed data with its ``sizes``.

    With packed data the batch gets smaller from step to step: sequences that have ended leave it
    (forwards), or those that begin later join it (backwards). ``weights`` are w_ih, w_hh, b_ih,
    b_hh and w_hr, None where there is none.
    """
    w_ih, w_hh, b_ih, b_hh, w_hr = weights
    gates = _input_gates(mode, input, w_ih, b_ih, b_hh)
    parts = gates if isinstance(gates, tuple) else (gates,)
    by_step = [p.unbind(0) if sizes is None else p.split(list(sizes), 0) for p in parts]
    steps: list[Any] = list(zip(*by_step, strict=True)) if mode == "GRU" else list(by_step[0])
    step, recurrent = STEPS[mode], w_hh.t()
    projection = None if w_hr is None else w_hr.t()
    order = range(len(steps))[::-1] if reverse else range(len(steps))
    batch = _Batch(state, sizes, reverse)
    outputs: list[Any] = [None] * len(steps)
    for t in order:
        current = step(steps[t], batch.at(t), recurrent, b_hh, projection)
        batch.state = current
        outputs[t] = current[0]
    joined = _f("stack")(outputs) if sizes is None else _f("cat")(outputs)
    return joined, *batch.final()


class _Batch:
    """The state of those sequences of a batch that are running."""

    def __init__(
        self, state: tuple[Tensor, ...], sizes: Sequence[int] | None, reverse: bool
    ) -> None:
        self.start, self.state, self.sizes = state, state, sizes
        self.done: list[tuple[Tensor, ...]] = []
        if sizes is not None:
            self.state = tuple(s[: sizes[-1 if reverse else 0]] for s in state)

    def at(self, t: int) -> tuple[Tensor, ...]:
        if self.sizes is None:
            return self.state
        running, wanted = self.state[0].shape[0], self.sizes[t]
        if wanted < running:
            self.done.append(tuple(s[wanted:] for s in self.state))
            self.state = tuple(s[:wanted] for s in self.state)
        elif wanted > running:
            joining = (s[running:wanted] for s in self.start)
            self.state = tuple(_f("cat")([s, j]) for s, j in zip(self.state, joining, strict=True))
        return self.state

    def final(self) -> tuple[Tensor, ...]:
        if not self.done:
            return self.state
        pieces = [self.state, *reversed(self.done)]
        return tuple(_f("cat")(list(p)) for p in zip(*pieces, strict=True))
