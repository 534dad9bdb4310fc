"""The ``grad_fn`` of a compiled region's results: one node, whose backward is one program."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weft.autograd import engine
from weft.compiler.trace import CONSTANT, LEAF, NUMBER, Kind, Root, Token
from weft.core import errors
from weft.core.modes import MODES, enable_grad
from weft.core.node import FREED, OpNode, Output, next_sequence
from weft.core.saved import LayeredGuard, lost, used_up
from weft.core.tensor import LATE, Tensor, wrap
from weft.graph.gradient import Gradient
from weft.graph.spec import BACKWARD as BACK
from weft.graph.spec import INPUT, Ref, Spec

if TYPE_CHECKING:
    from weft.compiler.following import Region
    from weft.compiler.plan import Builder

ndarray = np.ndarray


class CompiledFunctionBackward(OpNode):
    """The node of a compiled region's results."""

    __slots__ = ()

    def named(self) -> OpNode:
        """Itself: it has its name from the start."""
        return self

    def keeper(self) -> tuple[str, str]:
        """The call whose freed values a pass through this node would report first, as in eager
        mode.
        """
        token = self.plan.keeper  # type: ignore[attr-defined]
        return super().keeper() if token is None else described(token)


def described(token: Token) -> tuple[str, str]:
    """A description of a call, with its line."""
    return token.name, errors.describe_position(token.code, token.instruction)


def node_name(token: Token) -> str:
    """The name of the node that a call has in eager mode."""
    inputs = [
        what() if kind == NUMBER else what if kind == CONSTANT else token  # instead of a tensor
        for kind, what in token.slots
    ]
    return token.op.node_type_for(token.attrs, inputs).__name__


class _RegionOp:
    """The engine's interface to an op, implemented for a region."""

    name = "compiled_region"
    rules = jvp = variant = promote = None
    takes_none = ties = False
    joint, diagonal, view, variadic, differentiable = True, False, False, False, True
    names: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    edges: tuple[str, ...] = ()
    constant_outputs: frozenset[int] = frozenset()
    inner_outputs: frozenset[int] = frozenset()
    multiple = False
    node_types = (CompiledFunctionBackward,) * 3


class _RegionPlan:
    """How the engine calls the backward program of a region."""

    joint, simple, single, vjp_single, pack, large = True, False, -1, None, None, None
    # A pass frees the saved values of the calls in the node, not its own: see ``SavedRun.use``.
    takes_none, widens, holds = False, False, False
    slots: tuple[str, ...] = ()
    op = _RegionOp

    def __init__(self, inputs: int, keeper: Token | None) -> None:
        self.targets = range(inputs)
        self.keeper = keeper  # the newest call that saves values for its derivative

    def vjp(self, g: Any, saved: Any, at: dict[str, Any], needs: Any) -> list[Any]:
        """The gradients of the leaves, from those of the results."""
        held: SavedRun = at["held"]
        held.use(needs, MODES.now.backward)
        if not any(needs):  # only the node's own gradient was requested, nothing beyond it
            return [None] * len(self.targets)
        found = None
        if not isinstance(g, Tensor):
            found = held.tape.run(g, held.arrays, held.run.numbers)
        if found is None:
            return held.again(g)
        held.release()
        return found


class RegionRun:
    """The record of one run of a region, shared by all nodes that it creates."""

    def __init__(self, region: Region, leaves: Collection[int]) -> None:
        self.path = tuple(region.path)
        self.leaves = [
            wrap(a, n) if k in leaves else None
            for k, (a, n) in enumerate(zip(region.arrays, region.nodes, strict=True))
        ]
        self.numbers, self.default = tuple(region.numbers), region.default
        self.ends: dict[int, Any] = {}  # results with a node, as tensors
        # Calls whose saved values a backward pass has freed, with its number. Several nodes may
        # pass through one call, which is one node in eager mode.
        self.freed: dict[Token, int] = {}


class SavedRun:
    """The values saved by one run of a region for the backward pass of one of its results.

    ``cells`` has the version cell of each value that a program could change, and its version, by
    the key of the value in ``arrays``.
    """

    def __init__(
        self,
        tape: ResultBackward,
        run: RegionRun,
        arrays: dict[Any, ndarray],
        cells: dict[Any, tuple[Any, int]],
    ) -> None:
        self.tape, self.run, self.arrays, self.cells = tape, run, arrays, cells

    def use(self, needs: Sequence[bool], running: Any) -> None:
        """Record the calls that a pass goes through.

        It is an error if another pass has freed their values, or if these were overwritten. The
        call that computed the result is run even by a pass that requests nothing beyond it.
        """
        freed: dict[Token, Any] = self.run.freed
        number = None if running is None else running.number
        wanted = sum(1 << k for k, need in enumerate(needs) if need)
        own = self.tape.token
        passed = [c for c in self.tape.calls if c.leads & wanted or c.token is own]
        for call in passed:
            if call.holds and freed.get(call.token, number) != number:
                raise used_up(*described(call.token))
            self._check_versions(call)
        if running is not None and not running.keep:
            freed.update((call.token, number) for call in passed if call.holds)

    def _check_versions(self, call: PassedCall) -> None:
        """Raise if values were overwritten since a call read or computed them."""
        read = [self.cells[key] for key in call.reads if key in self.cells]
        if any(cell[0] != version for cell, version in read):
            guard = sum(version for _, version in read), *(cell for cell, _ in read)
            name, source = described(call.token)
            raise lost(f"{name} ({node_name(call.token)})", source, guard)

    def release(self) -> None:
        """Release saved values that no further pass can read."""
        holding = [call.token for call in self.tape.calls if call.holds]
        if holding and all(token in self.run.freed for token in holding):
            self.arrays = {}

    def again(self, g: Any) -> list[Any]:
        """The same by ordinary ops: for differentiable gradients, and for errors."""
        from weft.compiler.eager_fallback import ordinary, rerun

        tape, run = self.tape, self.run
        create = isinstance(g, Tensor)
        leaves = list(run.leaves)
        with ordinary(run.default), enable_grad():
            # As new tensors, whose gradients no hook sees.
            ends = {k: LATE.alias(run.ends[k]) for k in tape.ends}
            for k in tape.leaves:
                leaves[k] = LATE.alias(leaves[k])
            root = rerun(run.path, leaves, run.numbers, ends, tape.number, self.arrays)
        sources = [leaves[k] for k in tape.leaves] + list(ends.values())
        seed = g if create else wrap(g)
        found = engine.grad([root], sources, [seed], create_graph=create, allow_unused=True)
        if create:  # where its derivative reads the result, that is the one the program has
            reroute(found, root._node, run.ends[tape.number]._node)
        return list(found if create else engine.arrays_of(found))


def reroute(tensors: Iterable[Any], old: Any, new: Any) -> None:
    """Redirect edges recorded since a node was created to another node."""
    first = old.node.seq if isinstance(old, Output) else old.seq
    left = [t._node for t in tensors if t is not None]
    known = set()
    while left:
        node = left.pop()
        node = node.node if isinstance(node, Output) else node
        if not isinstance(node, OpNode) or node in known or node.seq <= first:
            continue
        known.add(node)
        node.inputs = tuple([new if edge is old else edge for edge in node.inputs])
        left += node.inputs


class PassedCall(NamedTuple):
    """A call that the backward pass of a result goes through."""

    token: Token
    leads: int  # the set of inputs of the node that gradients go to from here
    holds: bool  # whether a pass frees what it has saved
    reads: list[int]  # the saved values that its derivative reads: results, and ``~`` leaves


class ResultBackward:
    """The backward pass of one result: to the leaves, and to other results with a node."""

    def __init__(self, built: Builder, number: int, kind: Kind) -> None:
        self.built, self.number, self.kind = built, number, kind
        root = built.values[number]
        self.first = len(built.specs)  # nodes from here on are the backward pass
        self.seed = built.leaf(kind.shape, kind.dtype, False)
        arrived = built.derive([(root, self.seed)])
        # The receivers of gradients: leaves by number, then results, and the gradients.
        self.leaves = [k for k, ref in sorted(built.leaves.items()) if ref in arrived]
        inner = {k: ref for ref, k in built.inner.items() if ref in arrived}
        self.ends = list(inner)
        reached = [built.leaves[k] for k in self.leaves] + list(inner.values())
        self.grads = [built.accumulated(ref, arrived) for ref in reached]
        leaf_of = {ref: k for k, ref in built.leaves.items()}
        # The values that it reads of the forward pass: results by number, and leaves.
        self.saved: dict[int, list[Ref]] = {}
        self.held_leaves: dict[int, Ref] = {}
        for spec in built.specs[self.first :]:
            for r in spec.refs() if spec.kind == BACK else ():
                if r in leaf_of:
                    self.held_leaves[leaf_of[r]] = r
                elif r.node < self.first:
                    self.saved.setdefault(built.number_of[r], []).append(r)
        self.program: Any = None
        self.token = next(t for t in built.made if 0 <= number - t.first < len(t.kinds))
        self.calls = self._calls(reached, leaf_of)
        keeper = next((call.token for call in self.calls if call.holds), None)
        self.plan = _RegionPlan(len(self.grads), keeper)

    def _calls(self, reached: list[Ref], leaf_of: dict[Ref, int]) -> list[PassedCall]:
        """The calls with values for their derivative, newest first."""
        built = self.built
        leads = {ref.node: 1 << k for k, ref in enumerate(reached)}
        for spec in built.specs[: self.first]:
            found = leads.get(spec.id, 0)
            for ref in spec.refs():
                found |= leads[ref.node] if ref in built.flows else 0
            leads[spec.id] = found
        token_of = {id: token for token, id in built.made.items()}
        calls: list[PassedCall] = []
        for spec in built.specs[self.first :]:
            if not isinstance(spec.op, Gradient) or spec.forward not in token_of:
                continue
            holds = spec.op.plan is not None and spec.op.plan.holds
            refs = [r for r in spec.refs() if r in leaf_of or r.node < self.first]
            reads = [~leaf_of[r] if r in leaf_of else built.number_of[r] for r in refs]
            if holds or reads:
                token, leading = token_of[spec.forward], leads[spec.forward]
                calls.append(PassedCall(token, leading, holds, reads))
        return calls

    def attach(
        self,
        region: Region,
        values: dict[int, ndarray],
        seen: Collection[int],
        roots: Sequence[Root],
        run: RegionRun,
    ) -> None:
        """Attach its node to a result of a run. Those that it was computed from already have
        theirs.

        ``seen`` are the results with memory that the program could change; ``roots`` says whose
        memory each result uses.
        """
        handle = region.handles[self.number]
        if handle is None:
            return
        arrays: dict[Any, ndarray] = {}
        cells: dict[Any, Any] = {}
        for k in self.held_leaves:
            arrays[~k] = region.arrays[k]
            cells[~k] = region.leaves[k]._vc
        for k in self.saved:
            arrays[k] = values[k]
            where, number = roots[k]  # whose memory eager mode would have saved
            if where == LEAF:
                cells[k] = region.leaves[number]._vc
            elif number in seen and region.handles[number] is not None:
                cells[k] = region.handles[number]._vc
        versions = {key: (cell, cell[0]) for key, cell in cells.items()}
        each = cells.values()
        guard = LayeredGuard((sum(cell[0] for cell in each), *each)) if cells else None
        edges = [region.nodes[k] for k in self.leaves] + [run.ends[k]._node for k in self.ends]
        token, kind = self.token, self.kind
        held = SavedRun(self, run, arrays, versions)
        node = CompiledFunctionBackward(
            self.plan, tuple(edges), (), guard, {"held": held},  # type: ignore[arg-type]
            kind.shape, kind.dtype, next_sequence(), token.code, token.instruction, token.scope,
        )  # fmt: skip
        handle._node = node

    def run(self, g: ndarray, arrays: dict[Any, ndarray], numbers: Any) -> list[Any] | None:
        """The gradients, in the order of the node's inputs."""
        if self.program is None:
            self._make(np.asarray(g, order="C"), arrays, numbers)
        if self.program is False:
            return None
        if not g.flags.c_contiguous:  # gradients arrive in any layout; the program supports one
            g = np.array(g, order="C")
        try:
            return self.program.run([g if k is None else arrays[k] for k in self.order], numbers)
        except (ArithmeticError, AttributeError, IndexError, RuntimeError, TypeError, ValueError):
            return None  # ordinary ops raise the same error, with its line

    def _make(self, g: ndarray, arrays: dict[Any, ndarray], numbers: Any) -> None:
        """The program: saved values are its leaves."""
        from weft.compiler.plan import Impossible, lower, with_numbers

        built = self.built
        moved: dict[Ref, Ref] = {}
        inputs: list[Spec] = []
        examples: dict[int, Any] = {self.seed.node: g}
        keys: dict[int, Any] = {self.seed.node: None}
        read: dict[int, list[Ref]] = {
            **self.saved,
            **{~k: [r] for k, r in self.held_leaves.items()},
        }
        for k, refs in read.items():
            array = arrays[k]
            spec = Spec(
                len(built.specs) + len(inputs), INPUT, INPUT, (), {}, array.shape, array.dtype
            )
            spec.leaf = built.specs[self.seed.node].leaf
            inputs.append(spec)
            moved.update(dict.fromkeys(refs, Ref(spec.id)))
            examples[spec.id] = array
            keys[spec.id] = k
        specs = [
            s.but(args=tuple(moved.get(x, x) if x.__class__ is Ref else x for x in s.args))
            if s.id >= self.first
            else s
            for s in built.specs
        ]
        specs = with_numbers(built.without_cuts(specs), built.numbers, numbers)
        try:
            program = lower([*inputs, *specs], examples, self.grads, {}, built.numbers)
        except Impossible:
            self.program = False
            return
        self.order = [keys[k] for k in program.leaves]
        self.program = program


def freed_plan(edges: int, keeper: Token) -> Any:
    """The derivative of a result whose graph a backward pass has freed."""
    return _RegionPlan(edges, keeper)


def attach_freed(region: Region, number: int, leaves: Sequence[int], plan: Any, kind: Kind) -> None:
    """Attach to a result whose graph a backward pass has freed a node that says so."""
    token = plan.keeper
    edges = tuple(map(region.nodes.__getitem__, leaves))
    region.handles[number]._node = CompiledFunctionBackward(
        plan, edges, FREED, None, {},
        kind.shape, kind.dtype, next_sequence(), token.code, token.instruction, token.scope,
    )  # fmt: skip
