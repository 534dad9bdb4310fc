"""The replacement that a rule gives for an op: checked, and put where the op's result would go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import copy_of
from weft.core.dispatch import Op, edge_of
from weft.core.inplace import apply_inplace
from weft.core.modes import MODES
from weft.core.node import OpNode, next_sequence
from weft.core.tensor import Tensor, storage_array, wrap
from weft.graph.run import GraphError
from weft.operators import api
from weft.operators.casting import copy_op


def given_out(call: Callable, op: Op, args: Any) -> Any:
    """What stands in for an op that makes a new tensor; the program may write to it as well."""
    out = _checked(call(*args), op)
    memory = {id(storage_array(x._a)) for x in args if isinstance(x, Tensor) and not op.view}
    if op.multiple:
        return tuple(_apart(t, memory) for t in out)
    return _apart(out, memory)


def _apart(out: Tensor, memory: set[int]) -> Tensor:
    """A result that can be overwritten: not an input, and nothing that backward needs."""
    if id(storage_array(out._a)) in memory:
        return out.clone()
    guard = out._node.guard if isinstance(out._node, OpNode) else None
    if guard and any(cell is out._vc for cell in guard[1:]):
        return wrap(copy_of(out._a), out._node)
    return out


def written(call: Callable, op: Op, args: Any, target: Tensor) -> Tensor:
    """What stands in for an in-place op, written into its tensor as that op would do it."""
    # What was there before is read from a copy: backward may need it after the write.
    now = MODES.now
    old = wrap(copy_of(target._a), edge_of(target) if now.grad else target._node)
    old._x = target._x
    began = next_sequence()
    out = _checked(call(*(old if x is target else x for x in args)), op)
    if out is old:
        return target
    _check_fit(out, op, target)
    node = out._node
    fresh = node is not None and node.seq > began
    plain = node is None and (target._node is None or not now.grad)
    if now.dual_level < 0 and (fresh or plain):
        return api.change_by(target, op.name, lambda _, value: value, (out,), {})
    # A history that others share, or none where there was one, or tangents to move.
    return apply_inplace(copy_op, (target, out), {})


def _checked(out: Any, op: Op) -> Any:
    if not op.multiple:
        if isinstance(out, Tensor):
            return out
        found, wanted = f"a {type(out).__name__}", "a tensor"
    else:
        several = isinstance(out, tuple) and all(isinstance(t, Tensor) for t in out)
        if several and len(op.outputs) in (1, len(out)):
            return out
        count = len(op.outputs)
        found = f"{len(out)} values" if isinstance(out, tuple) else f"a {type(out).__name__}"
        wanted = f"{count} tensors" if count > 1 else "a tuple of tensors"
    raise GraphError(
        f"a rule returned {found} instead of {op.name}, whose users need {wanted}"
        f"\n  at {errors.here()}"
    )


def _check_fit(out: Tensor, op: Op, target: Tensor) -> None:
    if out._a.shape != target._a.shape or not dt.can_cast(out.dtype, target.dtype):
        raise GraphError(
            f"a rule gave {errors.describe(out)} instead of {op.name}_, which writes into "
            f"{errors.describe(target)}; give a result of that shape, of a type that can be "
            f"cast to it\n  at {errors.here()}"
        )
