"""Random programs for the tests of graphs, and the same programs with an edit, as plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import weft

# Every value of a program is 3 x 3, so that every edit that keeps the shape is a valid one.
UNARY: dict[str, Any] = {
    "relu": lambda a: a.relu(),
    "sin": lambda a: a.sin(),
    "tanh": lambda a: a.tanh(),
    "scale": lambda a: a * 0.5,
    "shift": lambda a: 1.5 - a,
    "softmax": lambda a: a.softmax(1),
    "turn": lambda a: a.t(),
    "centre": lambda a: a - a.mean(0, keepdim=True),
    "stop": lambda a: a.detach() + 0.0,
    "total": lambda a: a.sum().expand(3, 3) * 1.0,
    "rows": lambda a: weft.cat([a[1:], a[:1]]),
    "joined": lambda a: weft.stack(a.unbind(1), 0),
}
BINARY: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "mm": lambda a, b: a @ b,
    "max": lambda a, b: weft.maximum(a, b),
    "where": lambda a, b: weft.where(a > 0, a, b),
}


def _add_(a: Any, b: Any) -> Any:
    return a.add_(b)


def _row_(a: Any, b: Any) -> Any:
    a[1] = b[0]
    return a


def _column_(a: Any, b: Any) -> Any:
    a.t()[2].mul_(b[:, 0])
    return a


def _mask_(a: Any, b: Any) -> Any:
    a[b > 0] = 0.25
    return a


WRITES: dict[str, Any] = {"add_": _add_, "row_": _row_, "column_": _column_, "mask_": _mask_}

Step = tuple[str, int, int]


def same(a: Any, b: Any) -> bool:
    """Whether two tensors are equal bit for bit, in shape and dtype as well."""
    first, second = (t.detach().numpy() for t in (a, b))
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind == "V":
        return first.tobytes() == second.tobytes()
    return np.array_equal(first, second, equal_nan=True)


@st.composite
def programs(draw: Any, writes: bool = False, longest: int = 8) -> list[Step]:
    """Steps (op, input, input); inputs are numbers of values, the first two are given."""
    names = [*UNARY, *BINARY, *(WRITES if writes else ())]
    steps = []
    for k in range(draw(st.integers(1, longest))):
        a, b = (draw(st.integers(0, k + 1)) for _ in range(2))
        steps.append((draw(st.sampled_from(names)), a, b))
    return steps


def act(step: Step, values: list[Any]) -> Any:
    """Run one step."""
    name, i, j = step
    if name in UNARY:
        return UNARY[name](values[i])
    if name in BINARY:
        return BINARY[name](values[i], values[j])
    return WRITES[name](values[i], values[j] * 1.0)


def begin(x: Any, w: Any) -> list[Any]:
    """The values that a program starts with: its own, since it may write to them."""
    return [x * 1.0, w * 1.0]


def play(steps: list[Step], x: Any, w: Any, edits: dict[int, Any] | None = None) -> Any:
    """Run a program; an edit gives the value of a step from the step, all values, its inputs."""
    values = begin(x, w)
    for k, step in enumerate(steps):
        inputs = [values[step[1]], values[step[2]]]
        instead = (edits or {}).get(k)
        values.append(act(step, values) if instead is None else instead(step, values, inputs))
    return values[-1]
