"""Forward mode: tangents that tensors carry by level, and how ops propagate them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import dtype as dt
from weft.core.arrays import ARRAYS
from weft.core.modes import MODES
from weft.core.node import GraphNode, OpNode, Output
from weft.core.plan import parameters
from weft.core.tensor import Tensor, storage_array, wrap
from weft.core.viewing import chain_of, follow, root_of

if TYPE_CHECKING:
    from weft.core.dispatch import Op

ndarray, asarray = np.ndarray, np.asarray


def tangents_of(x: Any) -> dict[int, Tensor] | None:
    """The tangents of a tensor by level; a view has those of its base."""
    now = MODES.now
    if not isinstance(x, Tensor) or not now.forward_grad:
        return None
    found, chain = None if x._x is None else x._x.get("tangents"), None
    if found is None and (base := root_of(x)) is not None:
        found = None if base._x is None else base._x.get("tangents")
        chain = chain_of(x) if found else None
    if found and now.dual_ceiling is not None:
        found = {level: t for level, t in found.items() if level < now.dual_ceiling}
    if chain is not None and found:
        return {level: follow(t, chain) for level, t in found.items()}
    return found


def dual_level_of(args: Any) -> int | None:
    levels = [max(found) for found in map(tangents_of, args) if found]
    return max(levels) if levels else None


def without_tangent(x: Any, level: int) -> Any:
    """The same tensor, with its tangent at one level left out."""
    found = tangents_of(x)
    if not found or level not in found:
        return x
    primal = x.alias_of()
    # Also without other levels it must not look to its base for the tangent that was left out.
    primal._x = {"tangents": {}}
    for other, tangent in found.items():
        if other != level:
            set_tangent(primal, other, tangent)
    return primal


def set_tangent(x: Tensor, level: int, tangent: Tensor) -> None:
    x._x = dict(x._x or {})
    x._x["tangents"] = {**(x._x.get("tangents") or {}), level: tangent}
    MODES.now.carriers.setdefault(level, {})[id(x)] = weakref.ref(x)


def forget_tangents(level: int) -> None:
    """A level is closed: tangents at it are gone, also where the tensor lives on."""
    held = [ref() for ref in MODES.now.carriers.pop(level, {}).values()]
    for x in held:
        if isinstance(x, Tensor) and x._x is not None and "tangents" in x._x:
            x._x["tangents"].pop(level, None)
    for node in held:
        if isinstance(node, OpNode) and isinstance(node.saved, tuple):
            node.saved = tuple(map(_without_tangents, node.saved))


def _without_tangents(saved: Any) -> Any:
    """What a node saved: a bare array again, if no tangents are left on it."""
    marked = isinstance(saved, Tensor) and saved._x is not None and "tangents" in saved._x
    return saved._a if marked and not saved._x["tangents"] else saved


def change_tangent(target: Tensor, level: int, tangent: Tensor | None) -> None:
    """A tensor was changed in place: so is its tangent, seen by all views of the same memory."""
    held = (tangents_of(target) or {}).get(level)
    if held is None:
        held = _new_tangent(target, level)
    if tangent is None:
        held.zero_()
    else:
        held.copy_(tangent)


def _new_tangent(target: Tensor, level: int) -> Tensor:
    base = root_of(target)
    own = target._x is not None and "tangents" in target._x
    if base is None or own:
        whole = wrap(np.zeros_like(target._a))
        set_tangent(target, level, whole)
        return whole
    # What the view does not cover has not moved.
    whole = zeros_in_layout(base._a)
    set_tangent(base, level, whole)
    return follow(whole, chain_of(target))


def zeros_in_layout(array: np.ndarray, d: np.dtype | None = None) -> Tensor:
    """Zeros in the memory layout of an array: every view of the one is a view of the other."""
    d = array.dtype if d is None else d
    if not array.size:
        return wrap(np.zeros(array.shape, d))
    owner = storage_array(array)
    start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    memory = np.zeros(owner.nbytes // array.itemsize, d)
    steps = tuple(s // array.itemsize * d.itemsize for s in array.strides)
    return wrap(np.ndarray(array.shape, d, memory, start // array.itemsize * d.itemsize, steps))


def in_layout(tangent: Tensor, array: np.ndarray) -> Tensor:
    """A tangent in the memory layout of its primal, of which views can be taken alike."""
    own = tangent._a
    if not own.size or 0 in array.strides:
        return tangent
    for n, s, t in zip(array.shape, array.strides, own.strides, strict=True):
        if n != 1 and s // array.itemsize != t // own.itemsize:
            break
    else:
        sizes = [storage_array(x).nbytes // x.itemsize for x in (array, own)]
        if sizes[0] == sizes[1]:
            return tangent
    made = zeros_in_layout(array, own.dtype)
    made.copy_(tangent)
    return made


def keep_tangents(op: Op, args: Any, outs: Any) -> None:
    """Put the tangents of an op's inputs and outputs on what its node saved of them.

    A backward run at the same level then moves tangents too.
    """
    place = next((o._node for o in outs if o._node is not None), None)
    node = place.node if isinstance(place, Output) else place
    if not isinstance(node, OpNode) or not node.saved:
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
        if isinstance(value, Tensor) and value._x is not None and "tangents" in value._x:
            value = value._a  # a lower level has been here: all levels are set again
        if found and isinstance(value, ARRAYS):
            saved[k] = wrap(value, edge)
            for level, tangent in found.items():
                set_tangent(saved[k], level, tangent)
                MODES.now.carriers[level][id(node)] = weakref.ref(node)
    node.saved = tuple(saved)


def jvp(
    op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any], level: int
) -> list[Any]:
    """Tangents of the outputs at a level from those of the inputs.

    Rules work on primals, of which a view may lie on a base that still has the tangent that they
    have lost: meanwhile tangents of this level are invisible.
    """
    now = MODES.now
    ceiling, now.dual_ceiling = now.dual_ceiling, level
    try:
        moved = _moved(op, primals, tangents, outs, attrs)
        return _shaped(op, primals, tangents, outs, moved)
    finally:
        now.dual_ceiling = ceiling


def _moved(op: Op, primals: Any, tangents: Any, outs: Any, attrs: dict[str, Any]) -> list[Any]:
    """Tangents of the outputs by the op's own rule."""
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
    return moved


def _shaped(op: Op, primals: Any, tangents: Any, outs: Any, moved: Any) -> list[Any]:
    """Tangents in the shape, dtype and memory layout of the results."""
    shaped = []
    own_dtype = _own_dtypes(primals, tangents)
    for result, tangent in zip(outs, moved, strict=True):
        if tangent is not None and not isinstance(tangent, Tensor):
            tangent = wrap(asarray(tangent))
        if tangent is not None and tangent._a.shape != result._a.shape:
            tangent = tangent.expand(result._a.shape)
        if tangent is not None and own_dtype and op.diagonal:
            tangent = tangent.to(dt.of_numpy(dt.promote(tangent._a.dtype, result._a.dtype)))
        elif tangent is not None and not own_dtype and tangent._a.dtype != result._a.dtype:
            tangent = tangent.to(dt.of_numpy(result._a.dtype))
        if tangent is not None and not op.view:
            tangent = in_layout(tangent, result._a)
            if _shared(tangent, tangents):
                # A later change in place of one tensor must not reach the tangent of another.
                tangent = tangent.clone()
        shaped.append(tangent)
    return shaped


def _own_dtypes(primals: Any, tangents: Any) -> bool:
    """Whether a tangent has another dtype than its primal; then those of results have too."""
    return any(
        isinstance(t, Tensor) and isinstance(p, Tensor) and t._a.dtype != p._a.dtype
        for p, t in zip(primals, tangents, strict=False)
    )


def _shared(tangent: Tensor, others: Any) -> bool:
    return any(t is not None and np.may_share_memory(tangent._a, t._a) for t in others)


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
    # Linear in each input: replace one input at a time by its tangent.
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
