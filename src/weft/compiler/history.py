"""The history of what a compiled region has computed: one node, whose backward is one program."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autograd import engine
from weft.compiler.trace import Kind, Token
from weft.core.modes import MODES, enable_grad
from weft.core.node import FREED, Node, Output, next_sequence
from weft.core.tensor import Tensor, wrap
from weft.graph.spec import BACKWARD as BACK
from weft.graph.spec import Ref, Spec, listening

if TYPE_CHECKING:
    from weft.compiler.plan import Builder
    from weft.compiler.region import Region

ndarray = np.ndarray


class CompiledFunctionBackward(Node):
    """The node of what a compiled region has computed."""

    __slots__ = ()

    def named(self) -> Node:
        """Itself: it has its name from the beginning."""
        return self


class _RegionOp:
    """What the engine asks of an op, answered for a region."""

    name = "compiled_region"
    rules = jvp = variant = promote = None
    takes_none = True
    joint, diagonal, view, variadic, differentiable = True, False, False, False, True
    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    constant_outputs: frozenset[int] = frozenset()
    inner_outputs: frozenset[int] = frozenset()
    multiple = True
    node_types = (CompiledFunctionBackward,) * 3


class _RegionPlan:
    """How the engine calls the backward program of a region."""

    joint, simple, single, vjp_single, pack, large = True, False, -1, None, None, None
    takes_none, widens, holds = False, False, True
    slots: tuple[str, ...] = ()
    op = _RegionOp

    def __init__(self, inputs: int) -> None:
        self.targets = range(inputs)

    def vjp(self, g: Any, saved: Any, at: dict[str, Any], needs: Any) -> list[Any]:
        """The gradients of the leaves, from those of the results."""
        held: Held = at["held"]
        if any(isinstance(x, Tensor) for x in g):
            return held.again(g)
        found = held.tape.run(g, held.arrays)
        if found is None:
            return held.again(g)
        running = MODES.now.backward
        if running is not None and not running.keep:
            held.arrays = []
        return found


class Held:
    """What one run of a region has left for its backward pass."""

    def __init__(self, tape: Tape, region: Region, arrays: list[Any]) -> None:
        self.tape, self.arrays = tape, arrays
        self.path = tuple(region.path)
        self.leaves = [wrap(a, n) for a, n in zip(region.arrays, region.nodes, strict=True)]
        self.numbers = tuple(region.numbers)

    def again(self, g: Any) -> list[Any]:
        """The same by ordinary ops: for gradients that are to be differentiated, and errors."""
        from weft.compiler.region import rerun

        with listening(), enable_grad():
            values = rerun(self.path, self.leaves, self.numbers)
        outs = [values[k] for k in self.tape.live]
        pairs = [(o, x) for o, x in zip(outs, g, strict=True) if x is not None]
        create = any(isinstance(x, Tensor) for x in g)
        seeds = [x if isinstance(x, Tensor) else wrap(x) for _, x in pairs]
        sources = [self.leaves[k] for k in self.tape.sources]
        found = engine.grad(
            [o for o, _ in pairs], sources, seeds, create_graph=create, allow_unused=True
        )
        return [x if x is None or create else x._a for x in found]


class Tape:
    """The backward pass of the results of a plan that require a gradient."""

    def __init__(self, built: Builder, live: list[int], kinds: Sequence[Kind]) -> None:
        self.live = live
        self.first = len(built.specs)  # nodes from here on are not part of the forward program
        self.kinds = [kinds[k] for k in live]
        self.seeds = [built.leaf(k.shape, k.dtype, False) for k in self.kinds]
        roots = [(built.values[k], seed) for k, seed in zip(live, self.seeds, strict=True)]
        arrived = built.derive(roots)
        # The leaves that get a gradient, by number, and the gradients.
        self.sources = [k for k, ref in sorted(built.leaves.items()) if ref in arrived]
        self.grads = [built.accumulated(built.leaves[k], arrived) for k in self.sources]
        own = {ref for ref in built.leaves.values()}
        read: dict[Ref, None] = {}
        for spec in built.specs[self.first :]:
            if spec.kind == BACK:
                for r in spec.refs():
                    if r.node < self.first:
                        read[r] = None
        self.held_leaves = [r for r in read if r in own]
        self.saved = [r for r in read if r not in own]
        self.number_of = {ref: k for k, ref in built.leaves.items()}
        self.results = {built.values[k]: k for k in live}
        self.program: Any = None
        self.plan = _RegionPlan(len(self.sources))

    def finish(self, built: Builder, examples: Any, numbers: Any) -> None:
        """Keep what is needed to make the program when a backward pass first asks for it."""
        self.built, self.numbers = built, numbers

    def attach(self, region: Region, saved: list[ndarray], wanted: list[int]) -> None:
        """Give the results of a run their node."""
        arrays, cells = list(saved), []
        for r in self.held_leaves:
            number = self.number_of[r]
            arrays.append(region.arrays[number])
            cells.append(region.leaves[number]._vc)
        for k, r in enumerate(self.saved):
            number = self.results.get(r)
            handle = None if number is None else region.handles[number]
            if handle is not None:
                arrays[k] = handle._a  # the result itself, if the program leaves it as it is
                cells.append(handle._vc)
        held = Held(self, region, arrays)
        guard = (sum(cell[0] for cell in cells), *cells) if cells else None
        inputs = tuple(region.nodes[k] for k in self.sources)
        token = region.path[-1]
        node = CompiledFunctionBackward(
            self.plan, inputs, (), guard, {"held": held},  # type: ignore[arg-type]
            tuple(k.shape for k in self.kinds), tuple(k.dtype for k in self.kinds),
            next_sequence(), token.code, token.instruction, token.scope,
        )  # fmt: skip
        _place(node, region, self.live, self.kinds)

    def run(self, g: Any, arrays: list[Any]) -> list[Any] | None:
        """The gradients of the sources."""
        seeds = [
            np.zeros(kind.shape, kind.dtype) if x is None else x
            for x, kind in zip(g, self.kinds, strict=True)
        ]
        given = {}
        for r, a in zip((*self.saved, *self.held_leaves), arrays, strict=True):
            given[r] = a
        if self.program is None:
            self._make(seeds, given)
        # Gradients may arrive in any layout; programs are made for one.
        fitted = [
            x if x.strides == example else np.asarray(x, order="C")
            for x, example in zip(seeds, self.layouts, strict=True)
        ]
        leaves = {**{s: x for s, x in zip(self.seeds, fitted, strict=True)}, **given}
        return self.program.run([leaves[r] for r in self.order])

    def _make(self, seeds: list[ndarray], given: dict[Ref, ndarray]) -> None:
        """The program: saved values are its leaves."""
        from weft.compiler.plan import lower

        built = self.built
        specs = built.without_cuts(built.specs)
        count = len(built.specs)
        moved: dict[Ref, Ref] = {}
        inputs: list[Spec] = []
        seeds = [np.asarray(x, order="C") for x in seeds]
        self.layouts = [x.strides for x in seeds]
        examples: dict[int, Any] = {}
        order: list[Ref] = []
        for r, array in given.items():
            spec = Spec(count + len(inputs), "input", "input", (), {}, array.shape, array.dtype)
            spec.leaf = built.specs[self.seeds[0].node].leaf
            inputs.append(spec)
            moved[r] = Ref(spec.id)
            examples[spec.id] = array
            order.append(r)
        for r, array in zip(self.seeds, seeds, strict=True):
            examples[r.node] = array
            order.append(r)
        back = [
            s.but(args=tuple(moved.get(x, x) if x.__class__ is Ref else x for x in s.args))
            if s.id >= self.first
            else s
            for s in specs
        ]
        program = lower([*inputs, *back], examples, self.grads, {}, [])
        by_id = {**{moved[r].node: r for r in moved}, **{r.node: r for r in self.seeds}}
        self.order = [by_id[k] for k in program.leaves]
        self.program = program


def attach_freed(
    region: Region, live: list[int], kinds: Sequence[Kind], path: Sequence[Token]
) -> None:
    """Give results whose graph a backward pass has used up a node that says so."""
    mine = [kinds[k] for k in live]
    token = path[-1]
    node = CompiledFunctionBackward(
        _RegionPlan(0), (), FREED, None, {},  # type: ignore[arg-type]
        tuple(k.shape for k in mine), tuple(k.dtype for k in mine),
        next_sequence(), token.code, token.instruction, token.scope,
    )  # fmt: skip
    _place(node, region, live, mine)


def _place(node: Node, region: Region, live: Sequence[int], kinds: Sequence[Kind]) -> None:
    node.outs = {}
    for k, (number, kind) in enumerate(zip(live, kinds, strict=True)):
        handle = region.handles[number]
        if handle is not None:
            handle._node = place = Output(node, k, kind.shape, kind.dtype)
            node.outs[k] = weakref.ref(place)
