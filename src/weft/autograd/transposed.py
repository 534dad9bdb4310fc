"""Forward mode for ops without a rule of their own: the transpose of their backward."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from weft.autograd.engine import grad
from weft.core.batching import batched, is_batched, level_of, physical_of
from weft.core.devices import zeros_like
from weft.core.dispatch import Op
from weft.core.dual import JVP_ENGINE, set_tangent, tangents_of
from weft.core.modes import MODES, enable_grad
from weft.core.node import NOWHERE, AccumulateGrad
from weft.core.tensor import Tensor, wrap

# The variables of passes and transforms that are over: a history that only leads to them leads
# nowhere.
CLOSED: weakref.WeakSet[AccumulateGrad] = weakref.WeakSet()


def _variable(x: Tensor) -> Tensor:
    """A tensor without history as a variable of this module's own."""
    CLOSED.add(x.requires_grad_()._node)
    return x


def without_history(x: Tensor) -> Tensor:
    """A tensor without its history, and with its tangents: a batch has those of all examples."""
    if is_batched(x):
        return batched(without_history(physical_of(x)), level_of(x))
    alone = x.detach()
    for level, tangent in (tangents_of(x) or {}).items():
        set_tangent(alone, level, tangent)
    return alone


def _recorded(x: Any) -> bool:
    """Whether a tensor has a place in the graph; a view made in ``no_grad`` has none."""
    return isinstance(x, Tensor) and x.requires_grad and x._node is not NOWHERE


def _with_tangents(tensors: Any) -> Iterator[Any]:
    """Tensors, their tangents, and those of their tangents."""
    for x in tensors:
        yield x
        yield from _with_tangents((tangents_of(x) or {}).values())


def _wholly_without_history(x: Tensor) -> Tensor:
    """A tensor and its tangents without their history."""
    alone = without_history(x)
    for level, tangent in (tangents_of(alone) or {}).items():
        set_tangent(alone, level, _wholly_without_history(tangent))
    return alone


def transposed_jvp(op: Op, primals: Any, tangents: Any, outs: Any, attrs: Any) -> list[Any]:
    """jvp(t) as the derivative of v -> vjp(v), which is linear, in the direction t.

    Tangents of other levels stay on all that takes part, so levels nest.
    """
    outward = any(map(_recorded, (*primals, *tangents)))
    anywhere = any(map(_recorded, _with_tangents((*primals, *tangents))))
    recording = MODES.now.grad
    # One input may lead to another, or be the same: each needs a place of its own in the graph.
    several = sum(t is not None for t in tangents) > 1
    with enable_grad():
        inputs = []
        for x, t in zip(primals, tangents, strict=True):
            if t is None or not isinstance(x, Tensor):
                inputs.append(without_history(x) if isinstance(x, Tensor) else x)
            elif _recorded(x):
                inputs.append(x.view_as(x) if several else x)
            else:
                inputs.append(_variable(without_history(x)))
        out = op(*inputs, **attrs)
        results = list(out) if op.multiple else [out]
        live = [r for r in results if r._node is not None]
        probes = [_variable(wrap(zeros_like(r._a))) for r in live]
        moved = [(x, t) for x, t in zip(inputs, tangents, strict=True) if t is not None]
        back = grad(live, [x for x, _ in moved], probes, create_graph=True, allow_unused=True)
        pairs = [
            (b, t)
            for b, (_, t) in zip(back, moved, strict=True)
            if b is not None and b._node is not None
        ]
        if not pairs:
            found: list[Any] = [None] * len(probes)
        else:
            found = list(
                grad(
                    [b for b, _ in pairs],
                    probes,
                    [t for _, t in pairs],
                    create_graph=True,
                    allow_unused=True,
                )
            )
    if not (recording and outward):
        cut = without_history if recording and anywhere else _wholly_without_history
        found = [None if f is None else cut(f) for f in found]
    by_result = dict(zip(map(id, live), found, strict=True))
    return [by_result.get(id(r)) for r in results]


JVP_ENGINE.append(transposed_jvp)
