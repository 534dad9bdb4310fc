"""Recording all that a block does: forward, backward and optimizer."""

from __future__ import annotations

import sys
import time
import weakref
from typing import Any

import numpy as np

from weft.autograd.engine import edges_of
from weft.core.dispatch import Op
from weft.core.frames import caller
from weft.core.inference import version_of
from weft.core.modes import MODES
from weft.core.node import AccumulateGrad, GraphNode, Output
from weft.core.tensor import Tensor, shares, wrap
from weft.graph.graph import Graph, Pass
from weft.graph.listen import Listener
from weft.graph.results import held_outside, new_since, variables
from weft.graph.spec import BACKWARD, FORWARD, OPTIMIZER, PARAMETER, Call, Ref
from weft.graph.values import Place, Root, Values

getframe, ref = sys._getframe, weakref.ref


class Recorder(Values, Listener):
    """Turns what it hears into the records of a graph."""

    def __init__(self, *, values: bool, profile: bool, home: Any) -> None:
        super().__init__(home)
        self.graph = Graph()
        self.values, self.profile = values, profile
        self.grads: dict[int, Any] = {}
        self.passes: list[Pass] = []
        self.pending: tuple[Any, Ref] | None = None
        self.clock = 0.0
        self.steps_taken: list[Any] = []
        self.calls_made: list[tuple[Any, ...]] = []
        self.given: set[Ref] = set()  # gradients that autograd.grad handed out
        self.watched: dict[int, tuple[Any, float]] = {}
        self.before_it: dict[int, Any] = {}  # the variables at home when the block began

    def __enter__(self) -> Graph:
        super().__enter__()
        self.before_it = variables(self.home)
        return self.graph

    def __exit__(self, *exc: object) -> None:
        super().__exit__()
        outputs = self._outputs()
        self.home = None
        self.graph._fill(
            {spec.id: spec for spec in self.specs},
            outputs,
            live=tuple(node for node, value in self.nodes.values() if value in outputs),
            kept=self.kept,
            grads=self.grads,
            passes=tuple(self.passes),
            updates=self.updates,
            modules=self.modules,
        )
        self.places, self.nodes, self.watched, self.before_it = {}, {}, {}, {}

    def _outputs(self) -> tuple[Ref, ...]:
        """What the block was for: where backward began, and the ends that the program holds.

        A result is what an op of the block made, or wrote into a tensor that is new since the
        block began. It is held if the program can still reach it when the block ends: by a
        variable, in a list, as an attribute. References from weft itself (a view to its whole,
        autograd's nodes, kept values) do not count. A held result is an end, and an output,
        if nothing else that is held or that backward began at was computed from it: the loss,
        not the logits. If all of that gives nothing, the output is what the last op gave.
        """
        roots = [r for p in self.passes if p.fills for r, _ in p.roots if r is not None]
        results = self._results()
        # A view of a tensor that was written is derived anew, and takes nothing from its whole.
        later = [r for r in results if r.node not in self.implied]
        behind = self._behind([*roots, *later])
        ends = [r for r in results if r not in behind]
        if not ends and not roots:
            ends = self._last()
        return tuple(dict.fromkeys((*roots, *ends)))

    def _results(self) -> list[Ref]:
        """The values of the tensors that the program holds, oldest first."""
        alive = [node for held, _ in self.nodes.values() if (node := held()) is not None]
        tensors = [t for place in self.places.values() for t in place.tensors]
        held = held_outside(tensors, {id(getattr(n, "node", n)): n for n in alive}.values())
        new = new_since(self.before_it, self.home)
        found = set()
        for place in list(self.places.values()):
            mine = {id(t()) for t in place.tensors} & held
            leaf = place.root.leaf
            if leaf is not None and not place.chain and not self._is_result(leaf, mine & new):
                continue
            if mine:
                found.add(self._value_at_end(place))
        return sorted(r for r in found if self.specs[r.node].kind == FORWARD or r in self.given)

    def _is_result(self, leaf: int, new: set[int]) -> bool:
        """Whether a tensor that no op made, but ops wrote to, is the program's new variable."""
        spec = self.specs[leaf]
        return bool(new) and spec.kind != PARAMETER and "state" not in spec.attrs

    def _value_at_end(self, place: Place) -> Ref:
        root = place.root
        if place.version == root.version:
            return place.value
        known = len(self.specs)
        value = self._update(place)
        self.implied.update(range(known, len(self.specs)))
        return value

    def _behind(self, roots: list[Ref]) -> set[Ref]:
        """All values that some others were computed from."""
        seen: set[Ref] = set()
        stack = [r for root in roots for r in self.specs[root.node].refs()]
        while stack:
            r = stack.pop()
            if r not in seen:
                seen.add(r)
                stack.extend(self.specs[r.node].refs())
        return seen

    def _last(self) -> list[Ref]:
        """What the last op gave, of those that nobody read and that wrote to nothing older."""
        read = {r.node for s in self.specs if s.kind == FORWARD for r in s.refs()}
        read |= {r.node for r in self.updates.values()} | self.implied
        ends = (s for s in reversed(self.specs) if s.kind == FORWARD and s.id not in read)
        last = next(ends, None)
        # Further results may be such that the program never saw, as a norm's statistics.
        return [] if last is None else [Ref(last.id)]

    # --- what is heard: ops ------------------------------------------------------------

    def before(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        if self.profile:
            self.clock = time.perf_counter()

    def saw(self, op: Op, args: Any, attrs: dict[str, Any], results: list[Tensor]) -> None:
        spent = time.perf_counter() - self.clock if self.profile else None
        refs = tuple([self.ref(x) if isinstance(x, Tensor) else x for x in args])
        kind = FORWARD if MODES.now.backward is None else BACKWARD
        if op.multiple:
            shape: Any = tuple([r._a.shape for r in results])
            dtype: Any = tuple([r._a.dtype for r in results])
        else:
            shape, dtype = results[0]._a.shape, results[0]._a.dtype
        spec = self._add(kind, op, refs, attrs, shape, dtype)
        spec.time = spent
        source = self.places[id(args[0]._a)] if op.view else None
        for k, t in enumerate(results):
            value = Ref(spec.id, k)
            if source is not None and shares(t._a, args[0]._a):
                chain = (*source.chain, (op, args[1:], attrs, k))
                place = self._put(t, source.root, chain, value)
            else:
                place = self._put(t, Root(value, t), (), value)
            if t._node is not None:
                self._meet(t._node, place)
            if self.values:
                place.root.kept.append(value)
        if self.values:
            self.kept[spec.id] = tuple(map(_alias, results))

    def calling(self, function: Any, args: tuple[Any, ...]) -> None:
        # Before the call, since it may write to what it is given.
        refs = tuple([self.ref(x) if isinstance(x, Tensor) else x for x in args])
        self.calls_made.append(refs)

    def called(self, function: Any, args: tuple[Any, ...], out: Any) -> None:
        many = isinstance(out, tuple)
        outs = out if many else (out,)
        refs = self.calls_made.pop()
        shapes = tuple(x._a.shape if isinstance(x, Tensor) else None for x in outs)
        dtypes = tuple(x._a.dtype if isinstance(x, Tensor) else None for x in outs)
        dirty = [k for k, x in enumerate(args) if any(x is o for o in outs)]
        call = Call(function.__name__, _on_copies(function.apply, dirty), many)
        kind = (shapes, dtypes) if many else (shapes[0], dtypes[0])
        spec = self._add(FORWARD, call, refs, {}, *kind)
        for k, t in enumerate(outs):
            if not isinstance(t, Tensor):
                continue
            value = Ref(spec.id, k)
            if any(t is x for x in args):
                place = self.places[id(t._a)]
                place.root.count = version_of(t)
                self._written(place, value, t)
            else:
                self._put(t, Root(value, t), (), value)
            if t._node is not None:
                self._meet(t._node, self._place(t))
        if self.values:
            self.kept[spec.id] = tuple(map(_alias, outs))

    # --- what is heard: writes ---------------------------------------------------------

    def overwriting(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        self.before(op, args, attrs)

    def changing(self, op: Op, args: Any, attrs: dict[str, Any]) -> None:
        spent = time.perf_counter() - self.clock if self.profile else None
        refs = tuple([self.ref(x) if isinstance(x, Tensor) else x for x in args])
        target = args[0]
        # The shape and dtype of the result are known when it is written.
        kind = FORWARD if MODES.now.backward is None else BACKWARD
        spec = self._add(kind, op, refs, attrs, target._a.shape, target._a.dtype)
        spec.time = spent
        self.pending = (target, Ref(spec.id))

    def writing(self, target: Tensor, result: Any) -> None:
        place = self._place(target)
        pending, self.pending = self.pending, None
        if pending is not None and pending[0] is target:
            value = pending[1]
            self.specs[value.node].shape = result.shape
            self.specs[value.node].dtype = result.dtype
            if self.values:
                self.kept[value.node] = (wrap(result.copy()),)
        else:
            held = self._held(result)
            value = self._leaf(wrap(result)).value if held is None else self._update(held)
        self._preserve(place.root)
        self._written(place, self._cast(value, target), target)
        place.root.count = max(place.root.count, version_of(target) + 1)

    # --- what is heard: backward -------------------------------------------------------

    def goes_back(self, work: Any, roots: Any) -> None:
        if (self.profile or self.values) and not work.create:
            work.seen, step = True, work.step

            def seen(node: Any) -> None:
                if self.values:
                    self._keep_gradient(node, work.passing)
                start = time.perf_counter()
                step(node)
                if self.profile:
                    self.watched[id(node)] = (node, time.perf_counter() - start)

            work.step = seen

    def _keep_gradient(self, node: Any, g: Any) -> None:
        value = self._of_node(node)
        if value is not None and g.__class__ is np.ndarray:
            held = self.grads.get(value.node)
            self.grads[value.node] = wrap(g if held is None else held._a + g)

    def went_back(self, work: Any, roots: Any) -> None:
        number = len(self.passes)
        seeded = [(self._of_node(node), _seed(g)) for node, g in roots]
        self.passes.append(Pass(tuple(seeded), work.sink))
        if work.create:
            return
        incoming = self._back_through(work, [node for node, _ in roots])
        for leaf, refs in incoming.items():
            tensor = leaf.ref() if leaf.__class__ is AccumulateGrad else None
            if tensor is None or not work.sink or tensor._grad is None:
                continue
            self._grad_arrives(leaf, tensor, tensor._grad, refs, number)
        self.watched = {}

    def _grad_arrives(
        self, place: Any, tensor: Tensor, grad: Tensor, refs: list[Ref], number: int
    ) -> None:
        """A gradient that the program can read is a value like any other."""
        target = self._of_node(place) or self.ref(tensor)
        held = self._held(grad._a)
        if held is not None:
            refs = [*refs, held.value]  # what was there before is part of the sum
        attrs = {"pass": number, "of": target.node}
        spec = self._add(
            BACKWARD, "AccumulateGrad", tuple(refs), attrs, grad._a.shape, grad._a.dtype
        )
        spec.forward, spec.scope = target.node, self.specs[target.node].scope
        value = Ref(spec.id)
        if held is not None:
            root = held.root
            root.value, root.version, root.count = value, root.version + 1, version_of(grad)
            held.value, held.version = value, root.version
        else:
            self._put(grad, Root(value, grad), (), value)

    def gave(self, wanted: Any, results: Any) -> None:
        """``autograd.grad`` has answered with gradients."""
        for tensor, grad in zip(wanted, results, strict=True):
            if grad is not None and grad._node is None and self._held(grad._a) is None:
                self._grad_arrives(tensor._node, tensor, grad, [], len(self.passes) - 1)
                self.given.add(self.places[id(grad._a)].value)

    def _back_through(self, work: Any, roots: list[Any]) -> dict[Any, list[Ref]]:
        """Add a node for each node that a gradient passed; what each place received."""
        useful = work.useful
        seen = set(roots)
        stack = list(seen)
        while stack:
            node = stack.pop()
            if node.__class__ is AccumulateGrad:
                continue
            for edge in edges_of(node):
                if edge not in seen and (useful is None or edge in useful):
                    seen.add(edge)
                    stack.append(edge)
        incoming: dict[Any, list[Ref]] = {node: [] for node in roots}
        for node in sorted(seen, key=lambda n: n.seq, reverse=True):
            if node.__class__ is AccumulateGrad or node not in incoming:
                continue
            refs = incoming[node]
            if node.__class__ is Output:
                incoming.setdefault(node.node, []).extend(refs)
                continue
            targets = [
                node.inputs[i] for i in node.plan.targets if isinstance(node.inputs[i], GraphNode)
            ]
            shapes = tuple(e.shape for e in targets)
            dtypes = tuple(e.dtype for e in targets)
            kind = (shapes[0], dtypes[0]) if len(targets) == 1 else (shapes, dtypes)
            spec = self._add(BACKWARD, node.name(), tuple(refs), {}, *kind)
            made = self._of_node(node) or self._of_outputs(node)
            spec.forward = None if made is None else made.node
            spec.code, spec.instruction, spec.scope = node.code, node.instruction, node.scope
            spec.time = self.watched[id(node)][1] if id(node) in self.watched else None
            for k, edge in enumerate(targets):
                if useful is None or edge in useful:
                    incoming.setdefault(edge, []).append(Ref(spec.id, k))
        return incoming

    def _of_outputs(self, node: Any) -> Ref | None:
        for held in getattr(node, "outs", {}).values():
            found = self._of_node(held())
            if found is not None:
                return found
        return None

    # --- what is heard: the optimizer --------------------------------------------------

    def step_begins(self, optimizer: Any) -> None:
        every = [(p, group) for group in optimizer.param_groups for p in group["params"]]
        moving = [(p, group) for p, group in every if p._grad is not None] or every
        self.steps_taken.append([(p, g, self.ref(p), version_of(p)) for p, g in moving])

    def step_ended(self, optimizer: Any) -> None:
        for p, group, value, version in self.steps_taken.pop():
            if version_of(p) == version:
                continue
            grad = () if p._grad is None else (self.ref(p._grad),)
            settings = {k: v for k, v in group.items() if k not in ("params", "param_names") and v}
            spec = self._add(
                OPTIMIZER, type(optimizer).__name__, (value, *grad), settings,
                p._a.shape, p._a.dtype,
            )  # fmt: skip
            place = self.places[id(p._a)]
            leaf = place.root.leaf
            spec.forward = value.node if leaf is None else leaf
            spec.scope = self.specs[spec.forward].scope
            root = place.root
            root.value, root.version, root.count = Ref(spec.id), root.version + 1, version_of(p)
            place.value, place.version = root.value, root.version
            if p._node is not None:
                self._meet(p._node, place)


def _alias(x: Any) -> Any:
    """Another tensor on the same array: one that is kept must not seem to be the program's."""
    if not isinstance(x, Tensor):
        return x
    made = wrap(x._a, x._node)
    made._vc = x._vc
    return made


def _on_copies(apply: Any, which: list[int]) -> Any:
    """A function that writes to some arguments, made to write to copies of them."""
    if not which:
        return apply

    def run(*args: Any) -> Any:
        given = [
            x.clone() if k in which and isinstance(x, Tensor) else x for k, x in enumerate(args)
        ]
        return apply(*given)

    return run


def _seed(g: Any) -> Any:
    """The gradient that a pass began with; None for the one of a scalar loss."""
    array = g._a if isinstance(g, Tensor) else g
    return None if not array.ndim and array == 1 else np.array(array)


def record(*, values: bool = False, profile: bool = False) -> Recorder:
    """A block whose work becomes a graph, also without gradients, with backward and optimizer.

    ``values`` keeps every result and gradient; ``profile`` takes the time of every op.

    >>> import weft
    >>> x = weft.tensor([1.0, -2.0])
    >>> with weft.graph.record() as g:
    ...     y = (x.relu() * 3).sum()
    >>> [node.name for node in g]
    ['x', 'relu', 'mul', 'sum']
    """
    return Recorder(values=values, profile=profile, home=caller(getframe(1)))


__all__ = ["Recorder", "record"]
