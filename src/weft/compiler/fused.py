"""Elementwise work as one loop: several ops, with several results, in one pass over memory.

The ops are run one after another on the tracer values of ``weft.native.codegen.trace``, so that
intermediate values stay in registers. Operands may be broadcast and have any dimension order; a
result has the layout that the separate op would give it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from weft.compiler.ir import Value, Work, WorkNode
from weft.compiler.ops import OpWork
from weft.core import planning
from weft.core.dispatch import REGISTRY
from weft.native import threads
from weft.native.codegen import jit
from weft.native.codegen.compiler import KernelFunction
from weft.native.codegen.trace import GRAIN, KINDS, UNFIT, Element, Tape, collapse, scope
from weft.native.memory import buffers
from weft.native.memory.buffers import Unplannable
from weft.native.memory.layout import empty_with, geometry, strides_of_result
from weft.native.once import LOCK

ndarray = np.ndarray
BOOL = np.dtype(np.bool_)
FLOATS = {np.dtype(np.float32), np.dtype(np.float64)}
TO_COPY, POW = REGISTRY["to_copy"], REGISTRY["pow"]
DEPTH = 4  # dimensions that remain after collapsing
MOST = 2048  # loops that a process compiles at most; then ops run one by one
_made: dict[Any, Any] = {}


def is_elementwise(node: WorkNode) -> bool:
    """Whether a node is elementwise, in one float dtype, possibly with masks and numbers."""
    work = node.work
    if not isinstance(work, OpWork) or len(node.results) != 1:
        return False
    op = work.op
    if op is TO_COPY:
        return _converts(node)
    if not op.traced or op.multiple or op.layout_rule not in ("", "operands"):
        return False
    arrays = [x for x in node.args if isinstance(x, Value)]
    numbers = (x is None or isinstance(x, (int, float, Value)) for x in node.args)
    kinds = {x.dtype for x in (*arrays, *node.results)} - {BOOL}
    return bool(arrays) and all(numbers) and len(kinds) <= 1 and kinds <= FLOATS


def _converts(node: WorkNode) -> bool:
    """Whether a conversion is from a mask, or the identity."""
    (source, *_), (result,) = node.args, node.results
    if set(node.work.attrs) != {"dtype"} or not isinstance(source, Value):  # type: ignore[attr-defined]
        return False
    return source.dtype in (BOOL, result.dtype) and result.dtype in FLOATS


def kind_of(node: WorkNode) -> np.dtype | None:
    """The float dtype of an elementwise node; None if it has only masks."""
    found = [x.dtype for x in (*node.inputs(), *node.results) if x.dtype != BOOL]
    return found[0] if found else None


class FusedWork(Work):
    """Nodes of one shape in one loop; ``results`` are the values that are used outside it."""

    def __init__(
        self, members: Sequence[WorkNode], inputs: list[Value], results: list[Value]
    ) -> None:
        self.members: list[WorkNode] = list(members)
        self.inputs, self.results = inputs, results
        self.name = "+".join(node.work.name for node in members)

    def key(self, sizes: bool = True) -> Any:
        number: dict[Value, Any] = {v: (k, v.dtype) for k, v in enumerate(self.inputs)}
        found = []
        for node in self.members:
            found.append(node.key(number))
            for r in node.results:
                number[r] = len(number), r.dtype, r.shape if sizes else None
        return None if None in found else (*found, tuple(number[v] for v in self.results))

    def parts(self) -> Sequence[WorkNode]:
        return self.members

    def layouts(self, given: Iterable[tuple[Any, Any]]) -> dict[Value, tuple[Any, Any]]:
        """Shapes and strides (in elements) of all values, from those of the inputs."""
        lies = dict(zip(self.inputs, given, strict=True))
        for node in self.members:
            (result,) = node.results
            around = tuple(lies[x] for x in node.args if isinstance(x, Value))
            lies[result] = result.shape, strides_of_result(result.shape, around)
        return lies

    def native(self, *args: Any) -> Any:
        arrays = [planning.bare(a) for a in args]
        lies = self.layouts(map(geometry, arrays))
        shape = self.results[0].shape
        steps = [_spread(*lies[v], shape) for v in (*self.inputs, *self.results)]
        return _called(self, arrays, [lies[v][1] for v in self.results], shape, steps)


def _spread(shape: Any, steps: Any, wanted: Any) -> tuple[int, ...]:
    """Strides in elements of an array that is broadcast to a shape."""
    lead = (0,) * (len(wanted) - len(shape))
    return lead + tuple(0 if n == 1 else s for n, s in zip(shape, steps, strict=True))


def _called(
    work: FusedWork, arrays: list[ndarray], wanted: list[Any], shape: Any, steps: list[Any]
) -> Any:
    """Allocate the results with the required strides and call the loop; a plan records this."""
    count = len(arrays)
    if any(s % a.itemsize for a in arrays for s in a.strides):
        raise Unplannable("elements that are not aligned")
    first = steps[count]
    order = sorted(range(len(shape)), key=lambda d: (-first[d], d))
    extent = [shape[d] for d in order]
    sizes, strides = collapse(extent, [[s[d] for d in order] for s in steps])
    if len(sizes) > DEPTH:
        raise Unplannable("too many dimensions that can't be collapsed")
    inner = [s[-1] for s in strides]
    patterns = tuple("unit" if s == 1 else "one" if s == 0 else "step" for s in inner)
    if sizes == [1]:
        patterns = ("one",) * len(patterns)
    code, numbers, depends = _loop(work, patterns, len(sizes) - 1)
    made = [empty_with(v.shape, v.dtype, w) for v, w in zip(work.results, wanted, strict=True)]
    for k, result in enumerate(made):
        like = [a for i, a in enumerate(arrays) if i in depends[k] and _same(a, result)]
        buffers.may_alias([result] * len(like), like)
    words: list[Any] = [*arrays, *made, *numbers]
    over, grain = sizes[-1], GRAIN
    if len(sizes) > 1:
        words += [sizes[-1], *sizes[1:-1]]
        words += [s for each in strides for s in each[:-1]]
        over, grain = math.prod(sizes[:-1]), max(1, GRAIN // max(sizes[-1], 1))
    words += [s for s, p in zip(inner, patterns, strict=True) if p == "step"]
    code(*words, over, threads.how_many(over, grain))
    return tuple(made)


def _same(a: ndarray, b: ndarray) -> bool:
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


# Compiled loops by work; they do not depend on sizes.
LOOPS: dict[Any, Any] = {}
MOST_LOOPS = 4096


def _loop(work: FusedWork, patterns: Any, depth: int) -> Any:
    """The compiled loop, the numbers it takes, and which inputs each result depends on."""
    key = work.key(sizes=False)
    if key is None:
        return _new_loop(work, patterns, depth)
    key = key, patterns, depth
    found = LOOPS.get(key)
    if found is None:
        found = _new_loop(work, patterns, depth)
        if len(LOOPS) >= MOST_LOOPS:
            LOOPS.clear()
        LOOPS[key] = found
    return found


def _new_loop(work: FusedWork, patterns: Any, depth: int) -> Any:
    kinds = [KINDS[x.dtype] for x in work.inputs if x.dtype != BOOL]
    kinds += [KINDS[x.dtype] for node in work.members for x in node.results if x.dtype != BOOL]
    kind = kinds[0] if kinds else "f32"
    tape = Tape(kind)
    stand_ins: dict[Value, Any] = {}
    for k, v in enumerate(work.inputs):
        stand_ins[v] = Element(tape, f"e{k}", "b1" if v.dtype == BOOL else kind)
    numbers: list[float] = []

    def number(value: float) -> Element:
        numbers.append(value)
        return Element(tape, f"c{len(numbers) - 1}", kind)

    try:
        for node in work.members:
            stand_ins[node.results[0]] = traced(node, stand_ins, number)
        results = [stand_ins[v] for v in work.results]
        for result, value in zip(results, work.results, strict=True):
            if KINDS[value.dtype] != result.kind:
                raise Unplannable(f"{work.name}: a result of a different dtype")
        source = _written(work, tape, results, patterns, depth, len(numbers))
        return _compiled(source, kind), numbers, _dependences(tape, results)
    except UNFIT as error:
        raise Unplannable(f"{type(error).__name__}: {error}") from error


def is_number(op: Any, x: Any) -> bool:
    """Whether a constant is an argument of the loop; it is part of the code if that depends on its
    value, as for an exponent.
    """
    return op is not POW and x is not None and not isinstance(x, bool)


def traced(node: WorkNode, known: dict[Value, Any], number: Callable[[float], Element]) -> Element:
    """The traced result of a node; ``number`` returns the tracer value of a constant."""
    op = node.work.op  # type: ignore[attr-defined]
    args: list[Any] = []
    for x in node.args:
        if isinstance(x, Value):
            args.append(known[x])
        else:
            args.append(number(float(x)) if is_number(op, x) else x)
    if op is TO_COPY:
        tape = args[0].tape
        found: Any = tape.put(f"T({args[0].text})", tape.kind)
    else:
        found = op(*args, **node.work.attrs)  # type: ignore[attr-defined]
    if not isinstance(found, Element):
        raise Unplannable(f"{op.name} returns a constant")
    # Where the separate ops would have stored a value, later changes of it must not be visible.
    return Element(found.tape, found.text, found.kind)


def _dependences(tape: Tape, results: list[Element]) -> list[set[int]]:
    """For each result the inputs that it is computed from."""
    seen: dict[str, set[int]] = {}

    def of(text: str) -> set[int]:
        found = {int(n) for n in re.findall(r"\be(\d+)\b", text)}
        for name in re.findall(r"\bv\d+\b", text):
            found |= seen[name]
        return found

    for line in tape.lines:
        name, text = line.split(" = ", 1)
        seen[name] = of(text)
    return [of(r.text) for r in results]


def _written(
    work: FusedWork, tape: Tape, results: list[Element], patterns: Any, depth: int, numbers: int
) -> str:
    """The loop around the traced lines, in the kernel language."""
    count = len(work.inputs)
    names = [f"a{k}" for k in range(count)] + [f"y{k}" for k in range(len(results))]
    kinds = ["b1" if v.dtype == BOOL else "T" for v in (*work.inputs, *work.results)]
    head = [f"{n}: Ptr[{k}]" for n, k in zip(names, kinds, strict=True)]
    head += [f"c{k}: T" for k in range(numbers)]
    lines, pad = [], " " * 4
    start, stop, base = "lo", "hi", ""
    if depth:
        head.append("length: i64")
        head += [f"d{k}: i64" for k in range(1, depth)]
        head += [f"{n}_s{k}: i64" for n in names for k in range(depth)]
        lines += [f"{pad}for row in range(lo, hi):", f"{pad}    rest0 = row"]
        pad = " " * 8
        for k in range(depth - 1, 0, -1):
            lines.append(f"{pad}i{k} = rest{depth - 1 - k} % d{k}")
            lines.append(f"{pad}rest{depth - k} = rest{depth - 1 - k} // d{k}")
        lines.append(f"{pad}i0 = rest{depth - 1}")
        for n in names:
            place = " + ".join(f"i{k} * {n}_s{k}" for k in range(depth))
            lines.append(f"{pad}{n}_row = {n} + ({place})")
        start, stop, base = "0", "length", "_row"
    head += [f"{n}_step: i64" for n, p in zip(names, patterns, strict=True) if p == "step"]
    lines.append(f"{pad}for i in range({start}, {stop}):")
    pad += "    "
    at = {
        n: {"unit": "i", "one": "0", "step": f"i * {n}_step"}[p]
        for n, p in zip(names, patterns, strict=True)
    }
    lines += [f"{pad}e{k} = a{k}{base}[{at[f'a{k}']}]" for k in range(count)]
    lines += [pad + line for line in tape.lines]
    for k, result in enumerate(results):
        lines.append(f"{pad}y{k}{base}[{at[f'y{k}']}] = {result.text}")
    return f"def fused({', '.join(head)}, lo: i64, hi: i64):\n" + "\n".join(lines) + "\n"


def _compiled(source: str, kind: str) -> Any:
    found = _made.get((source, kind))
    if found is None:
        with LOCK:
            found = _made.get((source, kind))
            if found is None:
                if len(_made) >= MOST:
                    raise Unplannable("too many different loops")
                found = _made[source, kind] = jit.Kernel(KernelFunction(source, scope())).get(kind)
    return found
