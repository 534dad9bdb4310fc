"""Running the nodes of a plan one after the other, by NumPy references and derivative rules.

It does what a compiled program does, and is the reference that tests compare with. It is also used
where native code is not available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.core import quiet
from weft.core.dispatch import Op
from weft.core.gate import announce
from weft.graph.gradient import ACCUMULATE, Gradient, added, moved
from weft.graph.spec import Ref, Spec
from weft.graph.steps import Step

ndarray = np.ndarray


class Interpreted:
    """A program with the interface of ``weft.compiler.program.Program``."""

    arena_bytes = 0
    is_native = False

    def __init__(
        self,
        specs: Sequence[Spec],
        leaves: Mapping[int, Any],
        wanted: Sequence[Ref],
        writes: Mapping[int, Ref],
        numbers: Sequence[tuple[int, int]],
    ) -> None:
        self.specs = {spec.id: spec for spec in specs}
        self.leaves = tuple(leaves)
        self.wanted, self.writes, self.numbers = tuple(wanted), dict(writes), tuple(numbers)
        self.order = self._needed()

    def explain(self) -> list[str]:
        """A note that nothing is native here."""
        return [f"{len(self.order)} nodes, run one by one"]

    def _needed(self) -> list[Spec]:
        """The nodes that requested values depend on, in order."""
        needed = {r.node for r in (*self.wanted, *self.writes.values())}
        for spec in reversed(self.specs.values()):
            if spec.id in needed and spec.id not in self.leaves:
                needed.update(r.node for r in spec.refs())
        self.leaves = tuple(k for k in self.leaves if k in needed or k in self.writes)
        return [s for s in self.specs.values() if s.id in needed and s.id not in self.leaves]

    kept = None

    def rescued(self) -> None:
        """No results: this runs all writes last."""

    def run(
        self, arrays: Sequence[ndarray], numbers: Sequence[float] = (), announced: bool = False,
        keep: bool = False,
    ) -> list[ndarray] | None:  # fmt: skip
        """The requested values, in new memory."""
        values: dict[Ref, Any] = {Ref(k): a for k, a in zip(self.leaves, arrays, strict=True)}
        given = dict(zip(self.numbers, numbers, strict=True))
        token = quiet.enter()
        try:
            for spec in self.order:
                self._run(spec, values, given)
        finally:
            quiet.leave(token)
        found = [np.array(values[r], order="K") for r in self.wanted]
        for leaf, r in self.writes.items():
            announce(values[Ref(leaf)])
            values[Ref(leaf)][...] = values[r]
        return found

    def _run(self, spec: Spec, values: dict[Ref, Any], given: dict[tuple[int, int], float]) -> None:
        args = [
            values[x] if x.__class__ is Ref else given.get((spec.id, i), x)
            for i, x in enumerate(spec.args)
        ]
        if isinstance(spec.op, Op):
            out = spec.op.compute(args, spec.attrs)
            if spec.op.layout is not None:
                outs = out if spec.op.multiple else (out,)
                out = tuple(spec.op.layout(np.asanyarray(o), args) for o in outs)
                out = out if spec.op.multiple else out[0]
            results = out if spec.op.multiple else (out,)
        elif spec.op == ACCUMULATE:
            shape, dtype = spec.kinds()[0]
            results = (
                added(np.full(shape, g, dtype) if isinstance(g, float) else g for g in args),
            )
        elif isinstance(spec.op, Step):
            states = len(args) - 2 - len(spec.op.rule._scalars)
            results = tuple(spec.op.run(args, states, spec.attrs))
        else:
            results = self._go_back(spec, args, given)
        for k, value in enumerate(results):
            values[Ref(spec.id, k)] = None if value is None else np.asanyarray(value)

    def _go_back(self, spec: Spec, args: list[Any], given: dict[tuple[int, int], float]) -> Any:
        gradient: Gradient = spec.op
        forward = self.specs[spec.forward]  # type: ignore[index]
        at = len(spec.attrs["outs"])
        for kind, k in gradient.sources:
            if kind == "input" and (forward.id, k) in given:
                args[at] = given[forward.id, k]
            at += kind in ("input", "output")
        outs, kinds = spec.attrs["outs"], forward.kinds()
        terms: list[list[Any]] = [[] for _ in kinds]
        for term, k in zip(args, outs, strict=False):
            terms[k].append(
                np.full(kinds[k][0], term, kinds[k][1]) if isinstance(term, float) else term
            )
        grads = [added(t) for t in terms]
        if all(g is None for g in grads):
            return (None,) * len(gradient.targets)
        g: Any = grads[0]
        if gradient.op.multiple:
            g = tuple(grads)
            if not gradient.op.takes_none:
                shapes, dtypes = zip(*kinds, strict=True)
                g = engine.with_zeros(grads, shapes, dtypes, gradient.op.constant_outputs)
        inputs = [
            self.specs[x.node].kind_of(x.index) if x.__class__ is Ref else (np.shape(x), None)
            for x in forward.args
        ]
        saved = gradient.values(args[len(outs) :], inputs)
        return moved(gradient, g, saved, forward.attrs, inputs, ())
