"""The backward of a node as an op: what the derivative rules of its op make of gradients.

A ``Gradient`` reads the gradients that reach the results of a forward node, and of the values
around that node just those which its rules name. So a backward pass is a graph like any other: it
can be run again with the engine's own bits, derived again after an edit, saved, and looked into.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from weft.autograd import engine
from weft.core.devices import bare
from weft.core.dispatch import Op
from weft.core.plan import Plan
from weft.core.tensor import Tensor
from weft.graph.spec import OPTIMIZER, Call, Ref, Spec, pair_ref

ACCUMULATE = "AccumulateGrad"
ONES = 1.0  # instead of a gradient: the one that a scalar loss starts with
FLOATS = "fcV"


class Gradient:
    """The derivative rules of an op for one pattern of inputs, or the backward of a function.

    ``sources`` says where the values that the rules name come from: ``(kind, number)`` with the
    kinds ``input``, ``output``, ``shape``, ``dtype``, ``shapes`` and ``rest``. Shapes and dtypes
    are those of the forward node's inputs when it ran last.
    """

    multiple = view = False
    names: tuple[str, ...] = ()

    def __init__(self, op: Any, plan: Plan | None, needs: tuple[bool, ...], name: str) -> None:
        self.op, self.plan, self.needs, self.name = op, plan, needs, name
        # The inputs that get a gradient, and where the values come from that the rules name.
        self.targets, self.sources = _wiring(op, plan, needs)
        # Hooks of the node: on the gradients that come to it, and on those it gives.
        self.before: tuple[Any, ...] = ()
        self.post: tuple[Any, ...] = ()

    def saved(self, forward: Spec) -> list[Any]:
        """The values around the forward node that it reads besides gradients."""
        found: list[Any] = []
        for kind, k in self.sources:
            if kind == "input":
                found.append(forward.args[k])
            elif kind == "output":
                found.append(pair_ref((forward.id, k)))
            elif kind == "rest":
                found += forward.args[k:]
        return found

    def values(
        self, saved: list[Any], inputs: list[Any], on_arrays: bool = True
    ) -> tuple[Any, ...]:
        """What the rules get: from what was read, and the shapes and dtypes of the inputs."""
        left = iter(map(bare, saved) if on_arrays else saved)
        found: list[Any] = []
        for kind, k in self.sources:
            if kind in ("input", "output"):
                found.append(next(left))
            elif kind == "rest":
                found.append(tuple(left))
            elif kind == "shapes":
                found.append(tuple(shape for shape, _ in inputs))
            else:
                found.append(inputs[k][0 if kind == "shape" else 1])
        return tuple(found)

    def __repr__(self) -> str:
        return f"<{self.name} of {self.op.name}>"


@lru_cache(maxsize=4096)
def _wiring(
    op: Any, plan: Plan | None, needs: tuple[bool, ...]
) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
    given = range(len(needs)) if plan is None else plan.targets
    slots = () if plan is None else plan.slots
    return tuple(i for i in given if needs[i]), tuple(_source(op, slot) for slot in slots)


def _source(op: Op, slot: str) -> tuple[str, int]:
    if slot in op.names:
        return "input", op.names.index(slot)
    if slot in op.outputs:
        return "output", op.outputs.index(slot)
    if slot == "shapes":
        return "shapes", 0
    if slot == "rest":
        return "rest", len(op.names)
    base, _, kind = slot.rpartition("_")
    return kind, op.names.index(base)


def gradient_of(forward: Spec, wants: Iterable[bool]) -> Gradient | None:
    """The backward of a forward node for those inputs that want a gradient; None if it has none."""
    needs = tuple(wants)
    op = forward.op
    if forward.leaf is not None or not isinstance(op, (Op, Call)) or not any(needs):
        return None
    if isinstance(op, Call):
        if op.cuts or op.is_leaf:
            return None
        return Gradient(op, None, needs, f"{op.name}Backward")
    bits = tensors = 0
    for i, x in enumerate(forward.args):
        bits |= needs[i] << i
        tensors |= (x.__class__ is Ref or isinstance(x, Tensor)) << i
    conj = any(d is not None and d.kind == "c" for _, d in forward.kinds())
    plan = op.plan_for(bits, tensors, len(needs), conj)
    made = Gradient(op, plan, needs, _name(forward))
    return made if made.targets else None


def _name(forward: Spec) -> str:
    """What PyTorch would call the node, such as ``MulBackward0``."""
    return forward.op.node_type_for(forward.attrs, forward.args).__name__


def kinds_of(
    op: Gradient | Call, forward: Spec, outs: tuple[int, ...], specs: Any
) -> tuple[Any, Any]:
    """Shapes and dtypes of the results of a backward node, as a ``Spec`` holds them."""
    if isinstance(op, Call):
        return forward.kind_of(outs[0])
    refs = [forward.args[i] for i in op.targets]
    kinds = [specs[r.node].kind_of(r.index) for r in refs]
    if len(kinds) == 1:
        return kinds[0]
    shapes, dtypes = zip(*kinds, strict=True)
    return shapes, dtypes


def flows_through(spec: Spec, flows: set[Ref]) -> list[Ref]:
    """The results of a node that a gradient can reach, given the values that came before."""
    if spec.leaf is not None:
        return [pair_ref((spec.id, 0))] if spec.leaf.grad else []
    op = spec.op
    if op.__class__ is Gradient:
        return []
    if spec.kind == OPTIMIZER:  # the parameter is the same leaf, with a new value
        return [pair_ref((spec.id, 0))] if spec.args[0] in flows else []
    if not isinstance(op, (Op, Call)) or not spec.grad:
        return []
    passes = not flows.isdisjoint(spec.refs())
    if isinstance(op, Call):
        passes, constant = op.is_leaf or (passes and not op.cuts), op.constant
    else:
        passes, constant = passes and op.differentiable, op.constant_outputs
    if not passes:
        return []
    return [
        pair_ref((spec.id, k))
        for k, (_, dtype) in enumerate(spec.kinds())
        if k not in constant and dtype is not None and dtype.kind in FLOATS
    ]


def all_flows(specs: Iterable[Spec]) -> set[Ref]:
    """All values of a graph, whose nodes are given in order, that a gradient can reach."""
    found: set[Ref] = set()
    for spec in specs:
        found.update(flows_through(spec, found))
    return found


def added(terms: Iterable[Any]) -> Any:
    """The sum of gradients in the order of their arrival; None if there is none."""
    total = None
    for g in terms:
        if g is not None:
            total = g if total is None else total + g
    return total


def receiving(op: Any, kinds: Any) -> list[int]:
    """Which results of a node its hooks see the gradients of."""
    if not isinstance(op, Op):
        return list(range(len(kinds)))
    hidden = op.constant_outputs | op.inner_outputs if op.multiple else ()
    return [k for k, (_, d) in enumerate(kinds) if k not in hidden and d.kind in FLOATS]


def shown_before(gradient: Gradient, grads: list[Any], kinds: Any) -> list[Any]:
    """The gradients that come to a node, as its hooks leave them."""
    seen = receiving(gradient.op, kinds)
    given = tuple(engine.as_tensor(grads[k]) for k in seen)
    for hook in gradient.before:
        given = hook(given) or given
    changed = list(grads)
    for k, g in zip(seen, given, strict=True):
        changed[k] = bare(g)
    return changed


def shown_after(gradient: Gradient, found: dict[int, Any], count: int, arrived: Any) -> Any:
    """The gradients that a node gives to its inputs, as its hooks leave them."""
    grads = tuple(engine.as_tensor(found.get(i)) for i in range(count))
    outputs = tuple(engine.as_tensor(g) for g in arrived)
    for hook in gradient.post:
        grads = hook(grads, outputs) or grads
    return {i: bare(grads[i]) for i in found}


def moved(
    gradient: Gradient, g: Any, saved: Any, attrs: dict[str, Any], kinds: list[Any], arrived: Any
) -> list:
    """The gradients of the targets, in their shapes and dtypes, from that of the results."""
    plan = gradient.plan
    assert plan is not None
    needs = None
    if plan.joint:
        needs = tuple(i in gradient.targets for i in range(len(kinds)))
    elif 0 < len(gradient.targets) < len(plan.targets) and not plan.op.variadic:
        plan, saved = plan.part(tuple(gradient.targets), saved)
    results = engine.rules(plan, g, saved, attrs, needs)
    found = dict(zip(plan.targets, results, strict=True))
    if gradient.post:
        found = shown_after(gradient, found, len(kinds), arrived)
    return [_fitted(found[i], *kinds[i]) for i in gradient.targets]


def _fitted(g: Any, shape: Any, dtype: Any) -> Any:
    if g is None:
        return None
    if not isinstance(g, Tensor):
        g = np.asanyarray(g)
    if g.shape != shape:
        g = engine.unbroadcast(g, shape)
    return engine.cast(g, dtype)
