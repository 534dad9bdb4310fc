"""Forward mode: tangents that tensors carry by level, and how an op moves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import dtype as dt
from weft.core.node import GraphNode, Node, Output
from weft.core.plan import parameters
from weft.core.tensor import Tensor, wrap

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray, asarray = np.ndarray, np.asarray


def tangents_of(x: Any) -> dict[int, Tensor] | None:
    extra = x._x if isinstance(x, Tensor) else None
    return None if extra is None else extra.get("tangents")


def dual_level_of(args: Any) -> int | None:
    levels = [max(found) for found in map(tangents_of, args) if found]
    return max(levels) if levels else None


def without_tangent(x: Any, level: int) -> Any:
    """The same tensor, with its tangent at one level left out."""
    found = tangents_of(x)
    if not found or level not in found:
        return x
    primal = x.alias_of()
    rest = {k: t for k, t in found.items() if k != level}
    if rest:
        primal._x = {"tangents": rest}
    return primal


def set_tangent(x: Tensor, level: int, tangent: Tensor) -> None:
    x._x = dict(x._x or {})
    x._x["tangents"] = {**(x._x.get("tangents") or {}), level: tangent}


def keep_tangents(op: Op, args: Any, outs: Any) -> None:
    """Put the tangents of an op's inputs and outputs on what its node saved of them.

    A backward run at the same level then moves tangents too.
    """
    place = next((o._node for o in outs if o._node is not None), None)
    node = place.node if isinstance(place, Output) else place
    if not isinstance(node, Node) or not node.saved:
        return
    saved = list(node.saved)
    for k, (slot, value) in enumerate(zip(node.plan.slots, saved, strict=True)):
        if slot in op.names:
            i = op.names.index(slot)
            source, edge = args[i], node.inputs[i]
            edge = edge if isinstance(edge, GraphNode) else None
        elif slot in op.outputs:
            i = op.outputs.index(slot)
            source, edge = outs[i], outs[i]._node
        else:
            continue
        found = tangents_of(source)
        if found and isinstance(value, ndarray):
            saved[k] = wrap(value, edge)
            saved[k]._x = {"tangents": dict(found)}
    node.saved = tuple(saved)


def jvp(op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any]) -> list[Any]:
    """Tangents of the outputs from those of the inputs, by the op's own rule."""
    if op.jvp in ("linear", "together"):
        out = _linear_jvp(op, primals, tangents, attrs)
        moved = list(out) if op.multiple else [out]
    elif callable(op.jvp) and "tangents" in parameters(op.jvp):
        out = _call_rule(op.jvp, op, primals, outs, attrs, tangents=tangents)
        moved = list(out) if op.multiple else [out]
    elif op.jvp is not None or op.diagonal:
        rules: Any = op.rules if op.diagonal else op.jvp
        rules = rules if isinstance(rules, tuple) else (rules,)
        total = None
        for rule, tangent in zip(rules, tangents, strict=False):
            if rule is None or tangent is None:
                continue
            part = _call_rule(rule, op, primals, outs, attrs, linear=tangent)
            total = part if total is None else _add(total, part)
        moved = list(total) if op.multiple and total is not None else [total]
        if op.multiple and total is None:
            moved = [None] * len(outs)
    else:
        moved = _jvp_by_transposition(op, primals, tangents, outs, attrs)
    shaped = []
    for result, tangent in zip(outs, moved, strict=True):
        if tangent is not None and not isinstance(tangent, Tensor):
            tangent = wrap(asarray(tangent))
        if tangent is not None and tangent._a.shape != result._a.shape:
            tangent = tangent.expand(result._a.shape)
        if tangent is not None and tangent._a.dtype != result._a.dtype:
            tangent = tangent.to(dt.of_numpy(result._a.dtype))
        shaped.append(tangent)
    return shaped


def _add(a: Any, b: Any) -> Any:
    if isinstance(a, tuple):
        return tuple(x + y for x, y in zip(a, b, strict=True))
    return a + b


def _call_rule(
    rule: Callable,
    op: Op,
    primals: Any,
    outs: Any,
    attrs: dict[str, Any],
    linear: Any = None,
    tangents: Any = None,
) -> Any:
    values = []
    for name in parameters(rule):
        base = name.removesuffix("_shape").removesuffix("_dtype")
        if name in ("g", "t"):
            values.append(linear)
        elif name == "tangents":
            values.append(tangents)
        elif name == "inputs":
            values.append(primals)
        elif name == "rest":
            values.append(primals[len(op.names) :])
        elif name == "shapes":
            values.append(tuple(p._a.shape for p in primals))
        elif name in op.names:
            values.append(primals[op.names.index(name)])
        elif name in op.outputs:
            values.append(outs[op.outputs.index(name)])
        elif base != name and base in op.names:
            x = primals[op.names.index(base)]
            array = x._a if isinstance(x, Tensor) else asarray(x)
            values.append(array.shape if name.endswith("_shape") else array.dtype)
        else:
            values.append(attrs[name])
    return rule(*values)


def _linear_jvp(op: Op, primals: Any, tangents: Any, attrs: dict[str, Any]) -> Any:
    if op.jvp == "together" or op.variadic:
        # Linear in all inputs at once: the op on the tangents, zeros where there is none.
        filled = list(primals)
        for i, (x, t) in enumerate(zip(primals, tangents, strict=True)):
            if t is not None:
                filled[i] = t
            elif isinstance(x, Tensor) and (op.variadic or i < len(op.names)):
                if x._a.dtype.kind in "fcV":  # an index or a mask stays what it is
                    filled[i] = wrap(np.zeros_like(x._a))
        return op(*filled, **attrs)
    # Linear in each input: put a tangent in the place of one input at a time.
    total = None
    for i, tangent in enumerate(tangents):
        if tangent is not None:
            part = op(*primals[:i], tangent, *primals[i + 1 :], **attrs)
            total = part if total is None else _add(total, part)
    return total


def _jvp_by_transposition(
    op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any]
) -> list[Any]:
    """The jvp as the transpose of the vjp, which is linear in the gradient given to it."""
    engine = JVP_ENGINE[0]
    return engine(op, primals, tangents, outs, attrs)


# autograd sits above this module and puts its function here.
JVP_ENGINE: list[Callable] = []
