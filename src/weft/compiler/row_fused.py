"""Row fusion: elementwise work inside of the loops of the row program that reads its result.

The row program (a reduction, softmax, a norm) is planned on an array that is never made. In the
kernels that would read it, which ``weft.native.codegen.row_programs`` has written, the elements are
computed from other arrays instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.compiler.fused import FusedWork, is_number, traced
from weft.compiler.ir import Value, Work, WorkNode
from weft.core.dispatch import REGISTRY
from weft.native import contract
from weft.native.codegen import jit
from weft.native.codegen.row_programs import Variant
from weft.native.codegen.trace import UNFIT
from weft.native.contract import Address, Job, NativeCall
from weft.native.memory.buffers import Unplannable

# What may be done anew in each pass over a row. Everything may be where there is one pass.
CHEAP = {REGISTRY[name] for name in ("add", "sub", "mul", "div", "neg", "abs", "relu", "to_copy")}


class RowFusedWork(Work):
    """A loop with one result, and the only node that reads it, whose kernel is a row program."""

    def __init__(self, loop: FusedWork, row: WorkNode) -> None:
        self.loop, self.row = loop, row
        (self.value,) = loop.results
        self.members = [*loop.members, row]
        self.name = f"{loop.name}+{row.work.name}"

    def inputs(self) -> list[Value]:
        """What is read from memory."""
        rest = [v for v in self.row.inputs() if v is not self.value]
        return list(dict.fromkeys((*self.loop.inputs, *rest)))

    def parts(self) -> Sequence[WorkNode]:
        loop = WorkNode(self.loop, self.loop.inputs, self.loop.results, self.loop.members[-1].spec)
        return loop, self.row

    def key(self) -> Any:
        number: dict[Value, Any] = {v: k for k, v in enumerate(self.inputs())}
        number[self.value] = "value"
        found = self.loop.key(), self.row.key(number), tuple(number[v] for v in self.loop.inputs)
        return None if None in found else found

    def strides(self, places: dict[Value, Any]) -> tuple[int, ...]:
        """The strides (in elements) that the value would have: those of all arrays behind it."""
        own = self.value
        if any(v.dtype != own.dtype for v in self.loop.inputs):
            raise Unplannable("a row program over arrays of different dtypes")
        size = own.dtype.itemsize
        lies = [places[v] for v in self.loop.inputs]
        given = [(x.shape, tuple(s // size for s in x.strides)) for x in lies]
        found: tuple[int, ...] = self.loop.layouts(given)[own][1]
        if any(shape and (shape, steps) != (own.shape, found) for shape, steps in given):
            raise Unplannable("a row program over arrays of different layouts")
        return found

    def spliced(self, job: Job, given: list[Value], inputs: list[Value]) -> Job:
        """The job of the row program alone, with the value computed where it would be read."""
        moved = [-1 if v is self.value else inputs.index(v) for v in given]
        hidden = given.index(self.value)

        def at(word: Any) -> Any:
            if not isinstance(word, Address):
                return word
            if word.buffer < job.inputs:
                return word._replace(buffer=moved[word.buffer])
            return word._replace(buffer=word.buffer - job.inputs + len(inputs))

        calls = []
        for call in job.calls:
            if any(isinstance(w, Address) and w.buffer == hidden for w in call.words):
                calls.append(self._call(call, hidden, at, inputs))
            else:
                calls.append(NativeCall(call.name, call.address, [at(w) for w in call.words]))
        if any(view is not None and view.place.buffer == hidden for view in job.outputs):
            raise Unplannable("a result that is a view of a value inside a loop")
        outputs = tuple(v and v._replace(place=at(v.place)) for v in job.outputs)
        # An input of the loop may be read in other passes than the one that was asked about.
        apart = {k for k, v in enumerate(given) if v is not self.value} - {
            given.index(v) for v in self.loop.inputs if v in given
        }
        aliases = tuple((output, moved[k]) for output, k in job.aliases if k in apart)
        flags = tuple(at(f) for f in job.flags)
        return Job(
            *(len(inputs), job.results, job.scratch, outputs, job.single, calls),
            *(flags, aliases, job.keep),
        )

    def _call(self, call: NativeCall, hidden: int, at: Any, inputs: list[Value]) -> NativeCall:
        """A call of a kernel that reads the value, as a call of one that computes it."""
        symbol = call.address
        if not isinstance(symbol, jit.Symbol) or symbol.kernel.origin is None:
            raise Unplannable("a kernel that is not a row program")
        kernel, (types, consts) = symbol.kernel, symbol.choice
        variant, schedule = kernel.origin
        arrays = variant.traced.arrays()
        pointers = sum(kind.endswith("*") for _, kind in kernel.parameters)
        places = [
            k
            for k, word in enumerate(call.words[:pointers])
            if isinstance(word, Address) and word.buffer == hidden
        ]
        if len(places) != 1 or places[0] >= len(arrays) or arrays[places[0]].role != "Along":
            raise Unplannable("a row program that does not read a value row by row")
        (place,) = places
        fused = _fused(variant, arrays[place].name, self.loop)
        made = fused.variant.written(schedule).symbol(*types, **consts)
        offset = call.words[place].offset  # type: ignore[union-attr]
        read = [Address(inputs.index(v), offset if v.shape else 0) for v in self.loop.inputs]
        numbers = [i.name for i in variant.traced.inputs if i.role == "Number"]
        before = sum(_index(n) < _index(arrays[place].name) for n in numbers)
        middle = pointers + before
        words = [
            *(at(w) for w in call.words[:place]),
            *read,
            *(at(w) for w in call.words[place + 1 : middle]),
            *(contract.word("f64", c) for c in fused.constants),
            *(at(w) for w in call.words[middle:]),
        ]
        return NativeCall(made.name, made, words)


def _index(name: str) -> int:
    """Which parameter of a program an input is: see ``RowTrace``."""
    return int(name[1:])


class _Fused(NamedTuple):
    """A row program with elementwise work inside, and the constants of that work."""

    variant: Variant
    constants: list[float]


FUSED: dict[Any, _Fused] = {}
MOST = 1024


def _fused(variant: Variant, name: str, loop: FusedWork) -> _Fused:
    """The variant of a program that computes one of its inputs."""
    key: Any = loop.key(sizes=False)
    ones = tuple(not v.shape for v in loop.inputs)
    key = None if key is None else (variant, name, key, ones)
    found = FUSED.get(key)
    if found is None:
        found = _new_fused(variant, name, loop)
        if len(FUSED) >= MOST:
            FUSED.clear()
        if key is not None:
            FUSED[key] = found
    return found


def _new_fused(variant: Variant, name: str, loop: FusedWork) -> _Fused:
    if variant.traced.passes_over(name) > 1:
        if any(node.work.op not in CHEAP for node in loop.members):  # type: ignore[attr-defined]
            raise Unplannable("ops that are too expensive to recompute in each pass")
    constants = _constants(loop)

    def element(*given: Any) -> Any:
        known = dict(zip(loop.inputs, given, strict=False))
        rest = iter(given[len(loop.inputs) :])
        tape = given[0].tape
        tape.exactly = True  # so that fusion changes no bit
        for node in loop.members:
            known[node.results[0]] = traced(node, known, lambda value: next(rest))
        tape.exactly = False
        return known[loop.results[0]]

    parameters = [
        inspect.Parameter(f"a{k}", KIND, annotation="Along" if v.shape else "One")
        for k, v in enumerate(loop.inputs)
    ]
    parameters += [
        inspect.Parameter(f"c{k}", KIND, annotation="Number") for k in range(len(constants))
    ]
    element.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    program = variant.program
    parameter = list(program.parameters)[_index(name)]
    fused = program.spliced(f"{program.name}_fused", {parameter: element})
    made = _Fused(fused.variant(variant.absent, variant.wanted), constants)
    try:
        made.variant.traced.stages  # noqa: B018 - it is traced when it is first asked for
    except UNFIT as error:
        raise Unplannable(f"{type(error).__name__}: {error}") from error
    return made


KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _constants(loop: FusedWork) -> list[float]:
    """The constants that the work takes, in the order in which tracing asks for them."""
    return [
        float(x)
        for node in loop.members
        for x in node.args
        if not isinstance(x, Value) and is_number(node.work.op, x)  # type: ignore[attr-defined]
    ]
