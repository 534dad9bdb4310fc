"""Multi-tensor optimizer updates: the rule of an optimizer, traced and compiled into one call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.native import threads
from weft.native.codegen import jit
from weft.native.codegen.compiler import KernelFunction
from weft.native.codegen.trace import UNFIT, Element, Tape, scope
from weft.native.memory import buffers
from weft.native.memory.layout import FLOATS
from weft.native.once import LOCK

GRAIN = 16384  # elements that are worth a thread
CHUNK = 4096  # elements that a thread takes at a time: the last threads wait for at most one
_made: dict[Any, Any] = {}


class Table:
    """The parameters of one call: addresses of value, gradient and states, and how to divide them.

    ``arrays`` holds for each parameter its value and its states, as flat arrays in one piece.
    """

    def __init__(self, arrays: list[tuple[np.ndarray, ...]]) -> None:
        self.width = len(arrays[0]) + 1
        self.dtype = arrays[0][0].dtype
        self.addresses = np.zeros((len(arrays), self.width), np.int64)
        for row, parts in zip(self.addresses, arrays, strict=True):
            row[0] = jit.pointer(parts[0])
            row[2:] = [jit.pointer(a) for a in parts[1:]]
        sizes = [parts[0].size for parts in arrays]
        self.sizes = np.array(sizes, np.int64)
        pieces = [(k, start) for k, n in enumerate(sizes) for start in range(0, n, CHUNK)]
        self.which = np.array([k for k, _ in pieces], np.int64)
        self.start = np.array([s for _, s in pieces], np.int64)
        self.grain = max(1, len(pieces) * 16384 // max(sum(sizes), 1))

    def run(self, rule: Callable, flags: Any, coefficients: Any, grads: list[np.ndarray]) -> bool:
        """Update by gradients in the same order; False if the rule can't be compiled."""
        code = _compiled(rule, flags, self.width - 2, len(coefficients), FLOATS.get(self.dtype))
        if code is None:
            return False
        self.addresses[:, 1] = [jit.pointer(g) for g in grads]
        code(
            *(self.addresses, self.sizes, self.which, self.start),
            *[float(c) for c in coefficients],
            len(self.which),
            threads.how_many(len(self.which), self.grain),
        )
        return True


def updated(
    rule: Callable, flags: Any, coefficients: np.ndarray, arrays: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, ...] | None:
    """The results of a rule for parameter, gradient and states: the new parameter and states.

    The arrays are plain and of one shape and type, and so are the coefficients, which are read
    when the kernel runs: one plan serves all steps. A result may alias its input.
    """
    value, dtype = arrays[0], arrays[0].dtype
    fit = all(a.shape == value.shape and a.dtype == dtype and a.flags.carray for a in arrays)
    if not fit or dtype not in FLOATS or coefficients.dtype != dtype:
        return None
    given = (rule, flags, len(arrays) - 2, coefficients.size, FLOATS[dtype])
    code = _compiled(*given, _write_one)
    if code is None:
        return None
    made = tuple(buffers.empty(value.shape, dtype) for _ in arrays[1:])
    buffers.may_alias(made, (value, *arrays[2:]))
    code(*arrays, coefficients, *made, value.size, threads.how_many(value.size, GRAIN))
    return made


def _compiled(
    rule: Callable, flags: Any, states: int, count: int, kind: str | None, write: Any = None
) -> Any:
    write = write or _write
    key = (rule, flags, states, kind, write)
    if key not in _made:
        with LOCK:
            if key not in _made:
                made = None
                if kind is not None:
                    made = _compile(rule, flags, states, count, kind, write)
                _made[key] = made
    return _made[key]


def _compile(
    rule: Callable, flags: Any, states: int, count: int, kind: str, write: Callable[..., str]
) -> Any:
    tape = Tape(kind)
    value, gradient, *kept = (Element(tape, f"e{k}", kind) for k in range(states + 2))
    coefficients = tuple(Element(tape, f"c{k}", kind) for k in range(count))
    try:
        new, states_after = rule(value, gradient, tuple(kept), coefficients, flags)
        source = write(rule.__name__, tape, new, states_after, count)
        return jit.Kernel(KernelFunction(source, scope())).get(kind)
    except UNFIT:
        return None


def _write(name: str, tape: Tape, value: Element, kept: tuple[Element, ...], count: int) -> str:
    width = len(kept) + 2
    head = ["table: Ptr[i64]", "sizes: Ptr[i64]", "which: Ptr[i64]", "start: Ptr[i64]"]
    head += [f"c{k}: T" for k in range(count)]
    lines = [
        "    for piece in range(lo, hi):",
        "        w = which[piece]",
        "        first = start[piece]",
        f"        last = min(first + {CHUNK}, sizes[w])",
    ]
    lines += [f"        a{k} = at(T, table[w * {width} + {k}])" for k in range(width)]
    lines.append("        for i in range(first, last):")
    lines += [f"            e{k} = a{k}[i]" for k in range(width)]
    lines += [f"            {line}" for line in tape.lines]
    lines.append(f"            a0[i] = {value.text}")
    lines += [f"            a{k + 2}[i] = {state.text}" for k, state in enumerate(kept)]
    return f"def {name}({', '.join(head)}, lo: i64, hi: i64):\n" + "\n".join(lines) + "\n"


def _write_one(name: str, tape: Tape, value: Element, kept: tuple[Element, ...], count: int) -> str:
    """The kernel of one parameter, with results apart from what it reads."""
    width, results = len(kept) + 2, (value, *kept)
    head = [f"a{k}: Ptr[T]" for k in range(width)] + ["coefficients: Ptr[T]"]
    head += [f"y{k}: Ptr[T]" for k in range(len(results))]
    lines = [f"    c{k} = coefficients[{k}]" for k in range(count)]
    lines.append("    for i in range(lo, hi):")
    lines += [f"        e{k} = a{k}[i]" for k in range(width)]
    lines += [f"        {line}" for line in tape.lines]
    lines += [f"        y{k}[i] = {result.text}" for k, result in enumerate(results)]
    return f"def {name}_one({', '.join(head)}, lo: i64, hi: i64):\n" + "\n".join(lines) + "\n"
