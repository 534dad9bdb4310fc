"""What is inside a node that stands for several ops: a step of a backward pass, or an optimizer's.

Derivative rules and update rules are written in ops. Run on stand-ins while a recorder listens,
they give the graph of those ops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.autograd.engine import cast, unbroadcast, with_zeros
from weft.core import errors
from weft.core.dispatch import Op
from weft.core.modes import no_grad
from weft.core.tensor import Tensor, wrap
from weft.graph.edit import stand_in
from weft.graph.gradient import Gradient
from weft.graph.run import GraphError
from weft.graph.spec import INPUT, Ref, Spec, listening
from weft.graph.steps import Step

if TYPE_CHECKING:
    from weft.graph.graph import Graph


def opened(graph: Graph, spec: Spec) -> Graph:
    """The ops that a node does, as a graph of its own, with its inputs under their names."""
    if isinstance(spec.op, Gradient) and spec.op.plan is not None:
        work: Callable[[list[Any]], list[Any]] = lambda read: _rules(graph, spec, read)
    elif isinstance(spec.op, Step) and hasattr(spec.op.rule, "rule"):
        work = lambda read: _update(spec, read)
    elif isinstance(spec.op, Op):
        raise GraphError(
            f"{graph._names()[spec.id]!r} is one op, {spec.op.name}: it has no inner ops"
            f"\n  at {errors.here()}"
        )
    else:
        raise GraphError(
            f"{graph._names()[spec.id]!r} ({spec.op_name}) does not consist of ops"
            f"\n  at {errors.here()}"
        )
    return _recorded(graph, spec, work)


def _recorded(graph: Graph, spec: Spec, work: Callable[[list[Any]], list[Any]]) -> Graph:
    from weft.graph.recording import Recorder

    names = graph._names()
    recorder = Recorder(values=False, profile=False, home=sys._getframe(3))
    with listening(), no_grad(), recorder:
        read: list[Any] = []
        held: dict[Ref, Tensor] = {}
        for x in spec.args:
            if x.__class__ is Ref:
                kind = graph._specs[x.node].kind_of(x.index)
                if x not in held:
                    held[x] = wrap(stand_in(*kind))
                    leaf = recorder.specs[recorder.ref(held[x]).node]
                    leaf.kind = leaf.op = INPUT
                    leaf.label = names[x.node] + (f"[{x.index}]" if x.index else "")
                read.append(held[x])
            else:
                read.append(x)
        outs = [recorder.ref(t) for t in work(read) if t is not None]
    found = recorder.graph
    found._outputs = tuple(outs)
    return found


def _rules(graph: Graph, spec: Spec, read: list[Any]) -> list[Any]:
    """The derivative rules on tensors."""
    gradient: Gradient = spec.op
    plan = gradient.plan
    assert plan is not None
    forward = graph._specs[spec.forward]  # type: ignore[index]
    kinds = [
        graph._specs[x.node].kind_of(x.index) if x.__class__ is Ref else ((), None)
        for x in forward.args
    ]
    outs = spec.attrs["outs"]
    results = forward.kinds()
    grads: list[Any] = [None] * len(results)
    for x, k in zip(read, outs, strict=False):
        term = wrap(np.full(results[k][0], x, results[k][1])) if isinstance(x, float) else x
        grads[k] = term if grads[k] is None else grads[k] + term
    g: Any = grads[0]
    if gradient.op.multiple:
        g = tuple(grads)
        if not gradient.op.takes_none:
            shapes, dtypes = zip(*results, strict=True)
            g = with_zeros(grads, shapes, dtypes, gradient.op.constant_outputs)
    saved = gradient.values(read[len(outs) :], kinds, on_arrays=False)
    needs = None
    if plan.joint:
        needs = tuple(i in gradient.targets for i in range(len(kinds)))
    elif 0 < len(gradient.targets) < len(plan.targets) and not plan.op.variadic:
        plan, saved = plan.part(tuple(gradient.targets), tuple(saved))
    found = dict(zip(plan.targets, plan.vjp(g, saved, forward.attrs, needs), strict=True))
    return [_fitted(found[i], *kinds[i]) for i in gradient.targets]


def _fitted(g: Any, shape: Any, dtype: Any) -> Any:
    if g is None:
        return None
    return cast(g if tuple(g.shape) == shape else unbroadcast(g, shape), dtype)


def _update(spec: Spec, read: list[Any]) -> list[Any]:
    """The rule of an optimizer on tensors, with the coefficients of its next step."""
    rule = spec.op.rule
    p, g, *rest = read
    states = tuple(rest[: len(rest) - len(rule._scalars)])
    group = spec.attrs if spec.op.group is None else spec.op.group
    flags, c = rule.coefficients(group)
    new, changed = rule.rule(p, g, states, c, flags)
    return [new, *changed]
