"""Backward: walk the graph from the roots, newest node first, and move gradients along.

In a plain backward the gradients are bare arrays and nothing is recorded. With
``create_graph`` they are tensors, and the same rules, run on tensors, record themselves.
"""

from __future__ import annotations

import copy
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from weft.autograd import batched
from weft.autograd.anomaly import AnomalyChecker, note_place, warn_of_error
from weft.autograd.hooks import replacement
from weft.autograd.reentrant import DEEPEST, on_own_stack
from weft.autograd.steps import STEPS
from weft.core import dtype as dt
from weft.core import errors, meta, quiet, selection
from weft.core.devices import DEVICES, DeviceArray, bare, zeros_like
from weft.core.dispatch import REGISTRY, Op
from weft.core.gate import LISTENERS, announce
from weft.core.inplace import is_dense
from weft.core.modes import MODES
from weft.core.node import (
    CALL,
    FREED,
    NOWHERE,
    AccumulateGrad,
    GraphNode,
    OpNode,
    Output,
)
from weft.core.saved import (
    LayeredGuard,
    PackedGuard,
    as_history,
    check_versions,
    overwritten,
    unpacked,
    used_up,
)
from weft.core.tensor import LATE, Tensor, wrap

ndarray = np.ndarray
getrefcount = sys.getrefcount
by_age = attrgetter("seq")
# What is told of every backward, of any thread: see ``weft.graph.watch``.
WATCHERS: list[Any] = []
_accumulating = threading.Lock()
_numbers = itertools.count()  # of backward passes

# The gradient that a scalar loss starts with. Nobody writes to an incoming gradient.
ONES = {d: np.ones((), d) for d in (dt.F32, dt.F64)}
for _one in ONES.values():
    _one.flags.writeable = False


def _count_alone() -> int:
    held = object()
    return getrefcount(held)


# The count of an object that one name of a function holds and nobody else.
ALONE = _count_alone()


def arrays_of(tensors: Iterable[Tensor | None]) -> tuple[Any, ...]:
    """Some tensors as rules compute with them; None stays None."""
    return tuple([bare(t) for t in tensors])


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the dimensions along which its input was repeated."""
    lead = len(g.shape) - len(shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(shape) if n == 1 and g.shape[i + lead] != 1
    )
    if not dims:
        raise RuntimeError(
            f"invalid gradient: got {list(g.shape)} but expected shape compatible with "
            f"{list(shape)}. Was the tensor given another shape in place inside no_grad()?"
        )
    if isinstance(g, Tensor):
        return g.sum(dims).reshape(shape)
    if g.size >= selection.BEGIN:
        total = selection.sum_to(g, shape)
        if total is not None:
            return total
    if g.dtype in dt.HALF:
        wide = selection.cast(g, dt.F32)
        return np.add.reduce(wide, dims, keepdims=True).astype(g.dtype).reshape(shape)
    return np.add.reduce(g, dims).reshape(shape)


def cast(g: Any, wanted: np.dtype | None) -> Any:
    """A gradient in its input's type; the real part where the input is real."""
    if wanted is None:
        return g  # a leaf that takes any: see ``Tensor.grad_dtype``
    if isinstance(g, Tensor):
        if g._a.dtype == wanted:
            return g
        if g._a.dtype.kind == "c" and wanted.kind != "c":
            g = g.real
        return g.to(dt.of_numpy(wanted))
    if g.dtype.kind == "c" and wanted.kind != "c":
        g = g.real
    return g if g.dtype == wanted else selection.cast(g, wanted)


def edges_of(node: Any) -> Any:
    """The nodes that a node's gradients go to."""
    if node.__class__ is Output:
        return (node.node,)
    inputs, plan = node.inputs, node.plan
    if plan.single >= 0:
        return (inputs[plan.single],)
    if plan.joint:
        return [e for e in inputs if isinstance(e, GraphNode)]
    return [inputs[i] for i in plan.targets]


def ends_in_view(node: GraphNode) -> bool:
    """Whether PyTorch has a view behind such a node, which alone runs for the result's gradient."""
    own = getattr(node.op, "own_rank", None) if isinstance(node, OpNode) else None
    if own is None or len(node.shape) == own:  # type: ignore[attr-defined]
        return False
    return node.extras is None or not (node.extras.before or node.extras.post)


class _Run:
    """One backward pass."""

    def __init__(self, keep: bool, create: bool, targets: set[GraphNode] | None, sink: bool):
        self.keep, self.create = keep, create
        self.records = create  # not if rules run on tensors for want of values: see ``run``
        self.sink = sink  # whether leaves' .grad is filled
        self.ends_step = sink  # a pass inside another one is a part of it
        self.targets = targets
        self.useful: set[GraphNode] | None = None
        self.through: set[GraphNode] = set()  # useful nodes that lead on to another
        self.ends: set[GraphNode] = set()  # nodes that run though nothing behind them was asked for
        self.roots: set[GraphNode] = set()
        self.captured: dict[GraphNode, Any] = {}
        self.grads: dict[GraphNode, Any] = {}
        self.owned: set[GraphNode] = set()
        self.pending: dict[AccumulateGrad, int] = {}
        self.watch = AnomalyChecker() if MODES.now.anomaly else None
        self.seen = False  # whether a recorder looks at every step
        self.ahead: Iterator[Any] = iter(())  # the nodes still to come
        self.at: GraphNode | None = None  # the node whose hooks are running
        self.depth = 1  # of passes inside passes
        self.callbacks: list[Callable[[], None]] = []  # for the end of the pass
        self.number = next(_numbers)
        self.passing: Any = None  # the gradient handed to ``step``, which alone may hold it
        self.tensors: Sequence[Tensor] = ()  # where it begins, if anybody watches

    def collect(self, roots: Sequence[GraphNode]) -> list[Any]:
        """All nodes behind the roots that matter, newest first."""
        seen: set[Any] = set(roots)
        stack: list[Any] = [r for r in seen if r.__class__ is not AccumulateGrad]
        order = list(stack)
        pending = self.pending
        push, pop, keep, add = stack.append, stack.pop, order.append, seen.add
        while stack:
            node = pop()
            while node.__class__ is OpNode and node.plan.single >= 0:
                # A stretch of the graph without forks needs no stack.
                edge = node.inputs[node.plan.single]
                if edge.__class__ is AccumulateGrad or edge in seen:
                    break
                add(edge)
                keep(edge)
                node = edge
            for edge in edges_of(node):
                if edge.__class__ is AccumulateGrad:
                    pending[edge] = pending.get(edge, 0) + 1
                elif edge not in seen:
                    add(edge)
                    push(edge)
                    keep(edge)
        order.sort(key=by_age, reverse=True)
        self.roots = set(roots)
        return order if self.targets is None else self._towards_targets(order)

    def _towards_targets(self, order: list[Any]) -> list[Any]:
        useful: set[GraphNode] = set(self.targets or ())
        shared = {t.node for t in useful if t.__class__ is Output}
        if shared:
            # As in PyTorch: a request for one output of a node waits for all its gradients.
            useful.update(n for n in order if n.__class__ is Output and n.node in shared)
        for node in reversed(order):
            if any(edge in useful for edge in edges_of(node)):
                useful.add(node)
                self.through.add(node)
        useful |= shared  # which tell their other outputs' hooks, though they need not run
        if self.sink:
            # As in PyTorch: ``backward`` runs the nodes of its inputs too, and uses them up.
            ends = {*(self.targets or ()), *shared}
            useful |= ends
            self.ends = {node for node in ends if not ends_in_view(node)}
        self.useful = useful
        # As in PyTorch: a root that leads nowhere has its hooks run only if it is alone.
        alone = self.roots if len(self.roots) == 1 else ()
        order = [n for n in order if n in useful or n in alone]
        self.pending.clear()
        for node in order:
            for edge in edges_of(node) if node in useful else ():
                if edge.__class__ is AccumulateGrad and edge in useful:
                    self.pending[edge] = self.pending.get(edge, 0) + 1
        return order

    def add(self, edge: GraphNode, g: Any) -> None:
        grads = self.grads
        held = grads.get(edge)
        if held is None:
            grads[edge] = g
        elif edge in self.owned:
            add_into(held, g)
        else:
            large = g.__class__ is ndarray and g.size >= selection.LARGE
            total = REGISTRY["add"](held, g) if large else held + g
            grads[edge] = total
            if total.__class__ is ndarray and total.dtype == held.dtype:
                self.owned.add(edge)

    def arrive(self, leaf: AccumulateGrad) -> None:
        """A leaf has received all it will get; hooks are told even if that is nothing."""
        g = self.grads.pop(leaf, None)
        if leaf.extras is None and g is None and not leaf.post_accumulate:
            return
        asked = self.targets is None or leaf in self.targets
        if g is None and not asked:
            return
        self.at = leaf
        if leaf.extras is not None and leaf.extras.pre and not is_result(leaf):
            g = self.call_hooks(leaf.extras.pre, (g,))[0]
        if g is not None and self.targets is not None and leaf in self.targets:
            self.captured[leaf] = g
        if self.sink and asked:
            if leaf.extras is not None and leaf.extras.before:
                g = self.call_hooks(leaf.extras.before, (g,))[0]
            alone = getrefcount(g) == ALONE
            self.accumulate(leaf, g, alone)
            if leaf.extras is not None and leaf.extras.post:
                # As in PyTorch: a gradient that became ``.grad`` is shown as what it is by now.
                given = as_tensor(changeable(g))
                for hook in tuple(leaf.extras.post.values()):
                    replaced = hook((), (given,))
                    if replaced is not None:
                        replacement(hook, replaced, (), leaf)

    def accumulate(self, leaf: AccumulateGrad, g: Any, alone: bool) -> None:
        """Add a gradient to its leaf's ``.grad``; one that nobody else holds may become it."""
        tensor = leaf.ref()
        if tensor is None:
            return
        if g is not None and is_result(leaf):
            raise RuntimeError(
                "leaf variable has been moved into the graph interior: a leaf of this graph was "
                "changed in place after requires_grad_(False), and is a result by now. clone() "
                "it before changing it"
            )
        with _accumulating:
            held = tensor._grad
            if g is None:
                pass
            elif tensor._node is None or (tensor._node is NOWHERE and not tensor.requires_grad):
                pass  # it wants no gradient any more
            elif isinstance(g, Tensor):
                if held is not None and not self.records and isinstance(held._a, DeviceArray):
                    held.add_(g)  # type: ignore[attr-defined]
                else:
                    tensor._grad = copied(g, tensor._a) if held is None else held + g
            elif held is None:
                tensor._grad = wrap(own(g, alone, tensor._a))
            else:
                if LISTENERS:
                    announce(held._a, held)
                add_into(held._a, g)
                held._vc[0] += 1
        if leaf.post_accumulate:
            for hook in tuple(leaf.post_accumulate.values()):
                if hook(tensor) is not None:
                    raise RuntimeError("Tensor post accumulate grad hooks should return None.")

    def call_hooks(self, hooks: dict[int, Any], grads: tuple[Any, ...]) -> tuple[Any, ...]:
        """Run hooks on the incoming gradients of the node ``at``; they see tensors."""
        given = tuple(as_tensor(changeable(g)) for g in grads)
        for hook in tuple(hooks.values()):
            replaced = hook(given)
            if replaced is not None:
                given = replacement(hook, replaced, given, self.at)  # type: ignore[arg-type]
        if self.create:
            return given
        return arrays_of(given)

    def notice(self, node: GraphNode, g: Any) -> Any:
        """Hooks, kept gradients and captures, in PyTorch's order."""
        self.at = node
        extras = node.extras
        asked = self.targets is not None and node in self.targets
        if asked and node in self.through:
            # As in PyTorch: hooks change what leads on, but not what is given back of it.
            self.captured[node] = g
            asked = False
        if extras is not None:
            if extras.pre:
                g = self.hooked(extras.pre, g)
            for held in extras.retained:
                tensor = held()
                if tensor is not None:
                    kept = g.clone() if isinstance(g, Tensor) else wrap(np.array(g))
                    tensor._grad = kept if tensor._grad is None else tensor._grad + kept
        if asked:
            self.captured[node] = g
        if extras is not None and extras.before and self.leads_on(node):
            g = self.hooked(extras.before, g)
        return g

    def hooked(self, hooks: dict[int, Any], g: Any) -> Any:
        """What hooks make of a gradient, or of a list of them."""
        if not isinstance(g, list):
            return self.call_hooks(hooks, (g,))[0]
        seen, changed = receiving(self.at), list(g)
        replaced = self.call_hooks(hooks, tuple(g[k] for k in seen))
        for k, new in zip(seen, replaced, strict=True):
            changed[k] = new
        return changed

    def run(self, roots: Sequence[tuple[GraphNode, Any]]) -> None:
        order = self.collect([node for node, _ in roots])
        if DEVICES and not self.create and any(map(_leads_away, order)):
            self.create, roots = True, [(node, as_tensor(g)) for node, g in roots]
        for node, g in roots:
            self.add(node, g)
        grads, keep = self.grads, self.keep
        pop = grads.pop
        plain = not (self.create or self.watch or self.seen) and self.targets is None
        self.ahead = iter(order)
        for node in self.ahead:
            g = pop(node, None)
            if g is None:
                self.unreached(node)
                continue
            # The common case, inlined: one gradient through an ordinary node.
            plan = node.plan
            if plain and plan.simple and node.extras is None:
                guard = node.guard
                saved = node.saved
                if (
                    guard is None or (plan.cells == 1 and guard[0] == guard[1][0])
                ) and saved is not FREED:
                    entry, gi = plan.entry, None
                    large = g.size >= selection.LARGE
                    # A gradient that only this pass holds can be written over.
                    if large and getrefcount(g) == ALONE and g.base is None and plan.over(g, saved):
                        gi = g
                    elif entry is not None:
                        gi = entry(g, *saved)
                    if gi is None:
                        if plan.large is not None and (
                            g.size >= plan.op.limit
                            or (plan.op.native_rules and selection.large(saved, plan.op.limit))
                        ):
                            gi = plan.large(g, saved, node.attrs, None)[0]
                        elif plan.widens and half(g):
                            gi = plan.vjp_single(widened(g), widened_all(saved), node.attrs)
                        elif plan.direct is not None:
                            gi = plan.direct(g, saved[0])
                        else:
                            gi = plan.vjp_single(g, saved, node.attrs)
                    if plan.holds and not keep:
                        node.saved = FREED
                    if gi is None:
                        self.pass_over(node)
                        continue
                    edge = node.inputs[plan.single]
                    if edge.__class__ is not AccumulateGrad:
                        if gi.shape != edge.shape:
                            gi = unbroadcast(gi, edge.shape)
                        if gi.dtype is not edge.dtype:
                            gi = cast(gi, edge.dtype)
                        if edge in grads:
                            self.add(edge, gi)
                        else:
                            grads[edge] = gi
                        continue
                    g = saved = None
                    self.deliver(edge, gi)
                    gi = None
                    self.settle(edge)
                    continue
            gi = None  # the node before may have left this very gradient here
            g = self.notice(node, g)
            if self.useful is not None and node not in self.useful:
                pass  # a root that leads to none of the inputs: only its hooks have a say
            elif node.__class__ is Output and g is not None and self.awaits(node.node):
                self.gather(node, g)
            elif g is None or not self.leads_on(node):
                if g.__class__ is list:
                    self.tell_missing(node, g)
                self.pass_over(node)
            else:
                self.passing, g = g, None
                self.step(node)
        for leaf in [n for n in grads if n.__class__ is AccumulateGrad]:
            self.arrive(leaf)

    def still_ahead(self) -> Iterator[Any]:
        """The nodes after the one whose hooks are running, newest first."""
        return copy.copy(self.ahead)

    def leads_on(self, node: Any) -> bool:
        """Whether a node runs: one whose gradient was asked for need not, but for ``backward``."""
        return self.targets is None or node in self.through or node in self.ends

    def awaits(self, node: Any) -> bool:
        """Whether a node with several outputs has its turn, be it only for hooks of its outputs."""
        return self.useful is None or node in self.useful

    def unreached(self, node: Any) -> None:
        """No gradient came to a node. As in PyTorch it runs all the same, and so do its hooks."""
        if node.__class__ is Output:
            return
        self.at = node
        several, extras, runs = node.op.multiple, node.extras, self.leads_on(node)
        nothing = [None] * len(node.shape) if several else None
        if extras is not None:
            if extras.pre and not several:
                self.call_hooks(extras.pre, (None,))
            if extras.before and runs:
                self.hooked(extras.before, nothing)
        if not runs:
            if several:
                self.tell_missing(node, [None] * len(node.shape))
            self.pass_over(node)
        elif getattr(node.plan, "takes_none", False):
            self.passing = nothing
            self.step(node)
        else:
            self.run_empty(node)

    def run_empty(self, node: OpNode) -> None:
        """Run a node without a gradient: it reads what it saved and gives that up, as any does."""
        if node.op.multiple:
            self.tell_missing(node, [None] * len(node.shape))
        if node.saved is FREED:
            raise used_up(*node.keeper())
        check_versions(node)
        if node.guard.__class__ is PackedGuard:
            unpacked(node.saved)
        if node.plan.holds and not self.keep:
            node.saved = FREED
        if node.extras is not None and node.extras.post:
            arrived = [None] * (len(receiving(node)) if node.op.multiple else 1)
            self.post_hooks(node, tuple(arrived), [None] * len(node.plan.targets))
        self.pass_over(node)

    def pass_over(self, node: Any) -> None:
        """A node that no gradient reached; its leaves need not wait for it."""
        for edge in edges_of(node):
            if edge.__class__ is AccumulateGrad:
                self.settle(edge)

    def deliver(self, edge: GraphNode, g: Any) -> None:
        """Bring a gradient to its input's shape and type, and add it there."""
        if edge.__class__ is AccumulateGrad:
            if edge is NOWHERE:
                return  # views of any shapes, whose gradients have no sum
            leaf = edge.ref()  # type: ignore[attr-defined]
            if leaf is not None and leaf._x is None:
                array = leaf._a
                if g.shape == array.shape and g.dtype is array.dtype:
                    self.add(edge, g)
                    return
        shape = edge.shape
        if shape is not None:
            if g.shape != shape:
                g = unbroadcast(g, shape)
            if g.dtype is not edge.dtype:
                g = cast(g, edge.dtype)
        self.add(edge, g)

    def gather(self, output: Output, g: Any) -> None:
        """A gradient for one of several outputs waits until their node's turn."""
        slots = self.grads.get(output.node)
        if slots is None:
            slots = self.grads[output.node] = [None] * len(output.node.shape)
        held = slots[output.index]
        slots[output.index] = g if held is None else held + g

    def settle(self, leaf: AccumulateGrad) -> None:
        """One of a leaf's users is done; when all are, the leaf's gradient is complete."""
        left = self.pending.get(leaf, 1) - 1
        self.pending[leaf] = left
        if not left:
            self.arrive(leaf)

    def step(self, node: OpNode) -> None:
        """Move a gradient through one node: the general case."""
        g, self.passing = self.passing, None
        plan, inputs, saved, guard = node.plan, node.inputs, node.saved, node.guard
        if saved is FREED:
            raise used_up(*node.keeper())
        if guard:
            total = guard[0]
            for cell in guard[1:]:
                total -= cell[0]
            if total and guard.__class__ is not LayeredGuard:
                raise overwritten(node)
        arrived = None
        if g.__class__ is list:
            self.tell_missing(node, g)
            if node.extras is not None and node.extras.post:
                arrived = tuple(g[k] for k in receiving(node))
            g = fill_missing(node, g)
        if self.create:
            saved = as_history(node, saved)
        elif guard.__class__ is PackedGuard:
            saved = unpacked(saved)
        useful = self.useful
        needs, asked, whole = None, plan.targets, plan
        if plan.joint:
            needs = tuple(
                [isinstance(e, GraphNode) and (useful is None or e in useful) for e in inputs]
            )
        elif useful is not None and len(asked) > 1 and not plan.op.variadic:
            asked = tuple(i for i in asked if inputs[i] in useful)
            if 0 < len(asked) < len(plan.targets):
                plan, saved = plan.part(asked, saved)
        wide = plan.widens and not self.create and half(g)
        try:
            if self.create:
                results = plan.vjp(g, saved, node.attrs, needs)
            else:
                results = vjp(plan, g, saved, node.attrs, needs)
            if self.create and not self.records and not MODES.now.carriers:
                results = [r.detach() if isinstance(r, Tensor) else r for r in results]
        except meta.NoValues:
            if self.records or plan.op.name not in REGISTRY or MODES.now.batches:
                raise
            results, plan = like_inputs(node), whole
        except (ValueError, IndexError) as error:
            if plan.op.name not in REGISTRY:
                raise  # the user's own backward
            raise RuntimeError(
                f"backward of {node.op.name}: {error}\n  recorded at {node.source}"
            ) from error
        if plan is not whole:
            results, plan = in_places(results, plan.targets, whole.targets), whole
        if self.records and plan.op.ties and plan.op.ties(node.attrs):
            edges = [inputs[i] for i in plan.targets]
            results = [tied(r, e) for r, e in zip(results, edges, strict=True)]
        if wide and (self.watch is not None or (node.extras is not None and node.extras.post)):
            edges = [inputs[i] for i in plan.targets]
            results = [
                r if r is None or not isinstance(e, GraphNode) else cast(r, e.dtype)
                for r, e in zip(results, edges, strict=True)
            ]
        if self.watch is not None:
            self.watch.look(node, g, results, self.keep)
        elif plan.holds and not self.keep:
            node.saved = FREED
        if node.extras is not None and node.extras.post:
            results = self.post_hooks(node, arrived or (g,), results)
        del saved, g, arrived
        results = list(results)
        for k, i in enumerate(plan.targets):
            gi, results[k] = results[k], None
            edge = inputs[i]
            if needs is not None and not isinstance(edge, GraphNode):
                continue
            if gi is not None and (useful is None or edge in useful):
                self.deliver(edge, gi)
            if edge.__class__ is AccumulateGrad:
                gi = None  # nothing here may hold the gradient that a leaf takes over
                self.settle(edge)

    def tell_missing(self, node: OpNode, grads: list[Any]) -> None:
        """Hooks of outputs that no gradient reached get None."""
        for k, held in node.outs.items():
            output = held() if grads[k] is None else None
            if output is not None and output.extras is not None and output.extras.pre:
                self.call_hooks(output.extras.pre, (None,))

    def post_hooks(self, node: OpNode, arrived: tuple[Any, ...], results: Any) -> Any:
        """Run the hooks that see a node's gradients on both sides, and may replace them."""
        targets = tuple(node.plan.targets)
        grads: list[Any] = [None] * len(node.inputs)
        outputs = tuple(as_tensor(changeable(x)) for x in arrived)
        shared = {id(x): output for x, output in zip(arrived, outputs, strict=True)}
        for i, gi in zip(targets, results, strict=True):
            grads[i] = shared[id(gi)] if id(gi) in shared else as_tensor(changeable(gi))
        # Of a user's function hooks see a place for each tensor, and none for other arguments.
        whole = isinstance(node.plan.op, Op)
        seen = [i for i, x in enumerate(node.inputs) if whole or x is not None]
        for hook in tuple(node.extras.post.values()):  # type: ignore[union-attr]
            given = tuple(grads[i] for i in seen)
            replaced = hook(given, outputs)
            if replaced is not None:
                for i, new in zip(seen, replacement(hook, replaced, given, node), strict=True):
                    grads[i] = new
            del given
        chosen = [grads[i] for i in targets]
        return chosen if self.create else list(arrays_of(chosen))


def vjp(plan: Any, g: Any, saved: Any, attrs: dict[str, Any], needs: Any) -> Any:
    """What the rules of an op make of gradients, on bare arrays: native code where there is."""
    if plan.large is not None:
        gradients = g if g.__class__ is tuple else (g,)
        if selection.large((*gradients, *saved), plan.op.limit):
            return plan.large(g, saved, attrs, needs)
    if plan.widens and half(g):
        wide = widened_all(g) if g.__class__ is tuple else widened(g)
        return plan.vjp(wide, widened_all(saved), attrs, needs)
    return plan.vjp(g, saved, attrs, needs)


def rules(plan: Any, g: Any, saved: Any, attrs: dict[str, Any], needs: Any) -> Any:
    """The same outside a backward pass; on tensors, unrecorded, where those are elsewhere."""
    values = (*(g if g.__class__ is tuple else (g,)), *saved)
    if not any(isinstance(x, Tensor) for x in values):
        return vjp(plan, g, saved, attrs, needs)
    now = MODES.now
    before = now.grad, now.backward
    now.grad, now.backward = False, _Run(True, True, None, False)
    now.update()
    try:
        return plan.vjp(g, saved, attrs, needs)
    finally:
        now.grad, now.backward = before
        now.update()


def in_places(results: Any, targets: tuple[int, ...], all_targets: tuple[int, ...]) -> list[Any]:
    """The gradients of some targets as those of all, with None for the others."""
    found = dict(zip(targets, results, strict=True))
    return [found.get(i) for i in all_targets]


def tied(g: Any, edge: Any) -> Any:
    """A gradient that counts as a function of its input, with a derivative of zero."""
    if g is None or g._node is not None or not isinstance(edge, GraphNode) or edge is NOWHERE:
        return g
    shape, dtype = edge.shape, edge.dtype
    if shape is None:  # a leaf that nobody holds has forgotten it
        shape, dtype = g._a.shape, g._a.dtype
    stand_in = wrap(np.broadcast_to(np.zeros((), dtype), shape), edge)
    return REGISTRY["where"](wrap(np.ones((), bool)), g, stand_in)


def like_inputs(node: OpNode) -> list[Any]:
    """Gradients without values, where a rule would look at them: they are like their inputs."""
    edges = [node.inputs[i] for i in node.plan.targets]
    return [
        wrap(meta.empty(e.shape, e.dtype))
        if isinstance(e, GraphNode) and e.shape is not None
        else None
        for e in edges
    ]


def add_into(total: np.ndarray, g: np.ndarray) -> None:
    """``total += g``, on all threads if they are large."""
    if total.size >= selection.OVER and (
        (g.base is None and total.base is None) or not np.may_share_memory(total, g)
    ):
        if selection.into(REGISTRY["add"], total, g):
            return
    np.add(total, g, out=total)  # which copies first what overlaps


def is_result(leaf: AccumulateGrad) -> bool:
    """Whether the tensor of a leaf has been changed in place and is the result of an op by now."""
    tensor = leaf.ref()
    return tensor is not None and tensor._node is not leaf and tensor.grad_fn is not None


def own(g: Any, alone: bool, like: np.ndarray) -> np.ndarray:
    """A gradient as memory of its own, laid out as its leaf: itself if nobody else holds it.

    ``alone`` is the caller's word that one name of one function is the only holder of ``g``.
    """
    rows = like.flags.c_contiguous or not is_dense(like)
    if isinstance(g, meta.MetaArray) and g.is_batch:
        return g
    if g.__class__ is meta.MetaArray:
        return g.copy() if rows else np.empty_like(like, g.dtype)
    if alone and g.__class__ is ndarray and g.base is None and g.flags.writeable:
        if g.flags.c_contiguous if rows else g.strides == like.strides:
            return g
    if rows:
        return np.array(g, order="C")
    owned = np.empty_like(like, g.dtype)
    np.copyto(owned, g)
    return owned


def copied(g: Tensor, like: np.ndarray) -> Tensor:
    """A gradient that is part of a graph, as memory of its own, laid out as its leaf."""
    if isinstance(like, DeviceArray):
        g = g.detach()
        return (g.contiguous() if like.flags.c_contiguous else g).clone()  # type: ignore[attr-defined]
    if not is_dense(like):
        return g.clone()
    return wrap(np.empty_like(like, g._a.dtype)).copy_(g)


def changeable(g: Any) -> Any:
    """A gradient that users may write to: the constant that a loss starts with is copied."""
    if g.__class__ is ndarray and not g.flags.writeable:
        return g.copy()
    return g


def half(g: Any) -> bool:
    """Whether a gradient, or the first of several that there is, has a half type."""
    if g.__class__ is tuple:
        g = next((x for x in g if x is not None), None)
    return g.__class__ is np.ndarray and g.itemsize < 4 and g.dtype in dt.HALF


def widened(x: Any) -> Any:
    """An array of a half type in float32; all else as it is."""
    if x.__class__ is np.ndarray and x.itemsize < 4 and x.dtype in dt.HALF:
        return selection.cast(x, dt.F32)
    return x


def widened_all(values: Any) -> tuple[Any, ...]:
    return tuple([widened(x) for x in values])


def as_tensor(g: Any) -> Any:
    return g if g is None or isinstance(g, Tensor) else wrap(np.asanyarray(g))


def receiving(node: Any) -> list[int]:
    """Which outputs of a node with several a gradient can reach, as far as its users can see."""
    op, count = node.op, len(node.shape)
    if not isinstance(op, Op):
        return list(range(count))  # the user's own: its backward gets something for each
    no = op.constant_outputs | op.inner_outputs
    return [k for k in range(count) if k not in no and node.dtype[k].kind in "fcV"]


def fill_missing(node: Any, grads: list[Any]) -> tuple[Any, ...]:
    """Zeros for outputs that got no gradient; None stays for those that can have none."""
    if node.op.takes_none:
        return tuple(grads)
    return with_zeros(grads, node.shape, node.dtype, node.op.constant_outputs)


def with_zeros(grads: list[Any], shapes: Any, dtypes: Any, constant: Any) -> tuple[Any, ...]:
    """Gradients of several outputs, with zeros where none came and one could have come."""
    filled, tensors = [], any(isinstance(x, Tensor) for x in grads)
    for k, g in enumerate(grads):
        if g is None and k not in constant and dtypes[k].kind in "fcV":
            g = meta.filled(np.zeros, shapes[k], dtypes[k])
            if tensors:
                g = wrap(g)
        filled.append(g)
    return tuple(filled)


def call(node: Any, grads: tuple[Any, ...]) -> Any:
    """Run one node by itself: ``y.grad_fn(gradient)``."""
    several = isinstance(node, OpNode) and node.op.multiple
    seen = receiving(node) if several else [0]
    if several and len(grads) == len(node.shape):
        grads = tuple(grads[k] for k in seen)
    count = len(seen)
    if len(grads) != count:
        raise TypeError(
            f"{node.name()}: expected {count} arguments, got {len(grads)} instead\n"
            f"  at {errors.here()}"
        )
    for g in grads:
        if g is not None and not isinstance(g, Tensor):
            raise TypeError(
                f"{node.name()}: expected a Variable argument, but got {type(g).__name__}\n"
                f"  at {errors.here()}"
            )
    create = MODES.now.grad or any(isinstance(g, Tensor) for g in arrays_of(grads))
    given = grads if create else arrays_of(grads)
    if isinstance(node, AccumulateGrad):
        if given[0] is not None:
            _Run(True, create, None, True).accumulate(node, given[0], False)
        return ()
    if node.saved is FREED:
        raise used_up(*node.keeper())
    check_versions(node)
    found: list[Any] = [None] * len(node.inputs)
    if all(g is None for g in given) and not node.op.takes_none:
        return found[0] if len(found) == 1 else tuple(found)
    saved = as_history(node, node.saved) if create else unpacked(node.saved)
    needs = tuple(isinstance(e, GraphNode) for e in node.inputs) if node.plan.joint else None
    g = given[0]
    if several:
        slots: list[Any] = [None] * len(node.shape)
        for k, arrived in zip(seen, given, strict=True):
            slots[k] = arrived
        g = fill_missing(node, slots)
    for i, gi in zip(node.plan.targets, node.plan.vjp(g, saved, node.attrs, needs), strict=True):
        edge = node.inputs[i]
        if gi is not None and isinstance(edge, GraphNode):
            shape = edge.shape
            if shape is not None:
                gi = cast(unbroadcast(gi, shape) if gi.shape != shape else gi, edge.dtype)
            found[i] = as_tensor(gi)
    return found[0] if len(found) == 1 else tuple(found)


CALL.append(call)


# --- entry points ----------------------------------------------------------------------


def _root(tensor: Tensor, gradient: Any, k: int, create: bool) -> tuple[GraphNode, Any]:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"expected Tensor as root {k} of backward, got {type(tensor).__name__}")
    if not tensor.requires_grad or tensor._node is NOWHERE:
        raise RuntimeError(
            f"element {k} of tensors does not require grad and does not have a grad_fn: none of "
            "the tensors it was computed from has requires_grad=True, or it was computed inside "
            f"no_grad() or detached\n  at {errors.here()}"
        )
    shape = tensor._a.shape
    if gradient is None:
        if tensor._a.size != 1:
            raise RuntimeError(
                "grad can be implicitly created only for scalar outputs; this one has shape "
                f"{list(shape)}. Reduce it first (loss.mean()), or give backward(gradient=...)\n"
                f"  at {errors.here()}"
            )
        if tensor._a.dtype.kind == "c":
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{tensor.dtype!r}; take .abs() or .real first\n  at {errors.here()}"
            )
        plain = not shape and not create and not (meta.LIVE and not tensor.is_cpu)
        one = ONES.get(tensor._a.dtype) if plain else None
        made = meta.filled(np.ones, shape, tensor._a.dtype) if one is None else one
        return tensor._node, wrap(made)
    if not isinstance(gradient, Tensor):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(gradient).__name__}\n"
            f"  at {errors.here()}"
        )
    if gradient._a.shape != shape:
        error = RuntimeError(
            f"Mismatch in shape: grad_output[{k}] has a shape of "
            f"{gradient.shape} and output[{k}] has a shape of {tensor.shape}."
        )
        error.add_note(f"  at {errors.here()}")  # programs compare the message as a whole
        raise error
    if (gradient._a.dtype.kind == "c") != (tensor._a.dtype.kind == "c"):
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the "
            f"same dtype. Mismatch in dtype: grad_output[{k}] has a dtype of {gradient.dtype!r} "
            f"and output[{k}] has a dtype of {tensor.dtype!r}.\n  at {errors.here()}"
        )
    return tensor._node, gradient


def _targets(inputs: Sequence[Any], sink: bool) -> set[GraphNode]:
    """The nodes whose gradients were asked for; ``backward`` fills the ``.grad`` of all inputs."""
    for k, tensor in enumerate(inputs):
        if not isinstance(tensor, Tensor):
            raise RuntimeError(
                "all inputs have to be Tensors or GradientEdges, but got "
                f"{type(tensor).__name__} (input {k})\n  at {errors.here()}"
            )
        if sink and not isinstance(tensor._node, AccumulateGrad):
            tensor.retain_grad()
    return {t._node for t in inputs if t.requires_grad and t._node is not NOWHERE}


def _sequence(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Tensor) or value is None:
        return (value,)
    return tuple(value)


def run(
    tensors: Any, gradients: Any, keep: bool | None, create: bool, inputs: Any, sink: bool
) -> _Run:
    """Run backward from several roots at once."""
    tensors = _sequence(tensors)
    gradients = (None,) * len(tensors) if gradients is None else _sequence(gradients)
    if len(gradients) < len(tensors):
        raise RuntimeError(
            f"got {len(tensors)} tensors and {len(gradients)} gradients\n  at {errors.here()}"
        )
    gradient = g = None
    seeded = []
    for k, (tensor, gradient) in enumerate(zip(tensors, gradients, strict=False)):
        node, g = _root(tensor, gradient, k, create)
        seeded.append((node, g))
    # Away from the CPU nothing is computed on bare arrays, and tangents are on tensors only: rules
    # run on those, unrecorded.
    on_tensors = (
        create or bool(MODES.now.carriers) or (bool(meta.LIVE) and any(map(_elsewhere, seeded)))
    )
    if not on_tensors:
        seeded = [(node, bare(g)) for node, g in seeded]
    del gradients, gradient, g
    targets = None
    if inputs is not None:
        targets = _targets(inputs, sink)
    now = MODES.now
    work = _Run(create if keep is None else keep, on_tensors, targets, sink)
    work.records = create
    enabled, now.grad = now.grad, create
    outer, now.backward = now.backward, work
    hooks = now.saved_hooks
    work.ends_step = sink and outer is None
    if outer is not None:
        work.depth = outer.depth + 1
    now.update()
    if WATCHERS:
        work.tensors = tensors
    try:
        for listener in (*WATCHERS, *now.recorders):
            listener.goes_back(work, seeded)
        token = quiet.enter()
        try:
            if work.depth % DEEPEST:
                work.run(seeded)
            else:
                on_own_stack(lambda: work.run(seeded))
        finally:
            quiet.leave(token)
        for callback in work.callbacks:  # one may add others
            callback()
    except Exception as error:
        note_place(error)
        if work.watch is not None and work.at is not None:
            warn_of_error(work.at)
        raise
    finally:
        now.grad, now.backward, now.saved_hooks = enabled, outer, hooks
        now.update()
        if work.watch is not None:
            work.watch.release()
    if work.ends_step:
        STEPS.end()
    for listener in (*WATCHERS, *now.recorders):
        listener.went_back(work, seeded)
    return work


def _leads_away(node: Any) -> bool:
    """Whether a node's gradients go to a device other than the CPU."""
    kinds = [edge.dtype for edge in edges_of(node)]
    return any(
        d is not None and d.metadata is not None and d.metadata["device"] in DEVICES
        for kind in kinds
        for d in (kind if isinstance(kind, tuple) else (kind,))
    )


def _elsewhere(seed: tuple[Any, Tensor]) -> bool:
    """Whether a root's gradient is not an array of the CPU's."""
    return isinstance(seed[1]._a, (DeviceArray, meta.MetaArray))


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Accumulate the gradients of ``tensors`` into the ``.grad`` of their leaves."""
    wanted = None if inputs is None else _sequence(inputs)
    if wanted is not None and not wanted:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if MODES.now.batches and batched.levels_of(_sequence(tensors)):
        raise RuntimeError(
            "You are calling backward() on a tensor inside vmap, where its gradients could not "
            "tell the examples apart. Use torch.func.grad or torch.autograd.grad instead\n"
            f"  at {errors.here()}"
        )
    for recorder in MODES.now.recorders:
        if recorder.backs(tensors, grad_tensors, (retain_graph, create_graph, wanted)):
            return
    run(tensors, grad_tensors, retain_graph, create_graph, wanted, sink=True)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of ``outputs`` with respect to ``inputs``, as a tuple.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> weft.autograd.grad(x ** 2, x)
    (tensor(6.),)
    """
    wanted = _sequence(inputs)
    if MODES.now.batches:
        roots, seeds = _sequence(outputs), _sequence(grad_outputs)
        levels = batched.levels_of((*roots, *wanted))
        if levels:
            more = (retain_graph, create_graph, only_inputs, allow_unused, materialize_grads)
            return batched.grad(grad, roots, wanted, seeds, levels, more)
    for k, tensor in enumerate(wanted):
        if isinstance(tensor, Tensor) and not tensor.requires_grad:
            raise RuntimeError(
                f"One of the differentiated Tensors does not require grad: input {k} of grad(). "
                f"Call requires_grad_() on it before using it\n  at {errors.here()}"
            )
    work = run(outputs, grad_outputs, retain_graph, create_graph, wanted, sink=False)
    if allow_unused is None:
        allow_unused = materialize_grads
    results: list[Any] = []
    found: dict[Any, Tensor] = {}  # an input may be asked for twice
    for k, tensor in enumerate(wanted):
        node = tensor._node
        g = None if node is NOWHERE else work.captured.pop(node, None)
        if g is None and node in found:
            g = found[node] if create_graph or MODES.now.batches else bare(found[node])
        if g is None and not allow_unused:
            raise RuntimeError(
                f"The differentiated Tensor at index {k} appears to not have been used in the "
                "graph. Set allow_unused=True if this is the desired behavior.\n"
                f"  at {errors.here()}"
            )
        if g is None and materialize_grads:
            g = zeros_like(tensor._a)
            results.append(wrap(g).requires_grad_(create_graph))
            continue
        if not work.records and isinstance(g, Tensor):
            if g.is_meta:
                g = bare(g)
            elif isinstance(g._a, DeviceArray):
                g = copied(g, tensor._a)
        if g is not None and not isinstance(g, Tensor):
            alone = getrefcount(g) == ALONE
            g = wrap(own(g, alone, tensor._a))
        if g is not None:
            found[node] = g
        results.append(g)
    for recorder in MODES.now.recorders:
        recorder.gave(wanted, results)
    return tuple(results)


LATE.backward = backward
