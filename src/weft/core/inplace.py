"""Changing a tensor in place: the rules, the write, and the history that follows."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from weft.core import batching, errors, selection
from weft.core import dtype as dt
from weft.core.devices import address_of, write_into
from weft.core.dispatch import REGISTRY, Op, apply, as_array, edge_of, guarded, record
from weft.core.dual import (
    change_tangent,
    dual_level_of,
    keep_tangents,
    set_tangent,
    tangents_of,
)
from weft.core.frames import caller, last_caller
from weft.core.gate import LISTENERS, announce
from weft.core.inference import Untracked, check_change, entry
from weft.core.modes import MODES, SPECIAL
from weft.core.node import NOWHERE, AccumulateGrad, GraphNode
from weft.core.tensor import Tensor, refresh, wrap
from weft.core.viewing import (
    called,
    chain_of,
    closed,
    give_retained,
    has_several,
    refusal,
    root_of,
    take_retained,
    unhooked_node,
)
from weft.native.memory import layout

getframe, ndarray = sys._getframe, np.ndarray
tick = itertools.count().__next__  # which of several changes came last


def apply_inplace(op: Op, args: Any, attrs: dict[str, Any]) -> Tensor:
    """Run an op and write its result over its first input."""
    now = MODES.now
    if now.batches and (batching.highest(args) or batching.draws_batch(attrs)):
        return batching.change_batched(op, args, attrs)
    for recorder in now.recorders:
        instead = recorder.overwriting(op, args, attrs)
        if instead is not None:
            return instead
    target = args[0]
    if target._vc.__class__ is Untracked:
        check_change(target, f"{op.name}_")
    tracking = now.grad and op.differentiable
    if tracking:
        edges = [edge_of(x) for x in args if isinstance(x, Tensor)]
        tracking = any(e is not None for e in edges)
        check_writable(target, tracking, op.name)
    elif now.grad:
        check_writable(target, False, op.name)
    if not op.into_overlap:
        check_overlap(target, op.name)
    for x in args[1:]:
        if isinstance(x, Tensor) and x is not target and x._vc is target._vc:
            check_partial_overlap(target._a, x._a, op.name)
    changes: dict[int, Tensor | None] | None = None  # of the target's tangents, by level
    if now.mode is SPECIAL and now.dual_level >= 0 and op.differentiable:
        if dual_level_of(args) is not None:
            # The history of the tangent must not save what the write destroys.
            moving = [t for x in args for t in (tangents_of(x) or {}).values()]
            recorded = tracking or (now.grad and any(t._node is not None for t in moving))
            old = target.clone() if recorded else target
            before = tuple(old if x is target else x for x in args)
            changes = dict.fromkeys(tangents_of(target) or {})
            changes.update(tangents_of(apply(op, before, attrs)) or {})
            duals = [_with_old_tangents(x, target) if isinstance(x, Tensor) else x for x in args]
    arrays = [x._a if isinstance(x, Tensor) else x for x in args]
    if (
        len(args) == 1
        and now.mode is not SPECIAL
        and not LISTENERS  # which the other path tells, once all checks are behind it
        and selection.over(op, target._a, attrs, tracking)
    ):
        bump(target, op.name)
        if tracking:
            args = [wrap(target._a, unhooked_node(target))]
    else:
        result = guarded(op, arrays, attrs)
        for recorder in now.recorders:
            recorder.changing(op, args, attrs)
        if tracking:
            args, arrays = _keep_old(op, args, arrays)
        write(target, result, op.name)
    if tracking:
        _record_inplace(op, args, arrays, attrs, target)
    if changes is not None:
        for level, tangent in changes.items():
            change_tangent(target, level, tangent)
        if tracking:
            keep_tangents(op, duals, (target,))
    for recorder in now.recorders:
        recorder.changed(op, args, attrs)
    return target


def _with_old_tangents(x: Tensor, target: Tensor) -> Tensor:
    """A stand-in for an input that keeps its tangents when those of the target change."""
    found = tangents_of(x)
    dual = x.alias_of()
    for level, tangent in (found or {}).items():
        set_tangent(dual, level, tangent.clone() if x._vc is target._vc else tangent)
    return dual


def write(target: Tensor, result: Any, name: str) -> None:
    """Copy a finished result into a tensor: all checks come before the first byte."""
    if result.__class__ is not ndarray:
        result = as_array(result)
    if result.shape != target._a.shape:
        raise RuntimeError(
            f"{name}_: output with shape {list(target._a.shape)} doesn't match the broadcast "
            f"shape {list(result.shape)}. An in-place op can't grow its tensor; use the "
            f"out-of-place form\n  at {errors.here()}"
        )
    if result.dtype is not target._a.dtype and not dt.can_cast(
        source := dt.of_numpy(result.dtype), wanted := dt.of_numpy(target._a.dtype)
    ):
        raise RuntimeError(
            f"{name}_: result type {dt.TYPE_NAMES[source.name]} can't be cast to the desired "
            f"output type {dt.TYPE_NAMES[wanted.name]}; convert the tensor with "
            f".to({source!r}) first\n  at {errors.here()}"
        )
    now = MODES.now
    for recorder in now.recorders:
        recorder.writing(target, result)
    if LISTENERS:
        announce(target._a, target)
    if target._a.__class__ is ndarray and result.__class__ is ndarray:
        np.copyto(target._a, result, casting="unsafe")
    else:
        write_into(target._a, result)
    bump(target, name)


def written_over(target: Tensor, values: Any) -> bool:
    """Write an array of the same kind over a tensor, where there is nothing to check or record.

    False, with nothing changed, for all that ``apply_inplace`` has to look at. ``values`` must not
    share memory with the tensor; the caller notes the change (``bump``).
    """
    now = MODES.now
    if now.mode is SPECIAL:
        return False
    if now.grad and (target._node is not None or target._base is not None):
        return False
    a = target._a
    if a.__class__ is not ndarray or values.__class__ is not ndarray:
        return False
    flags = a.flags
    if not (
        a.dtype is values.dtype
        and a.shape == values.shape
        and flags.c_contiguous
        and flags.writeable
        and target._vc.__class__ is list
    ):
        return False
    if LISTENERS:
        announce(a, target)
    a[...] = values
    return True


def copied_over(target: Tensor, source: Tensor) -> bool:
    """The same with the values of another tensor, if that has no history either."""
    now = MODES.now
    if now.mode is SPECIAL or source._vc is target._vc:
        return False
    if now.grad and (source._node is not None or source._base is not None):
        return False
    return written_over(target, source._a)


# Every whole number up to here is one of float32, so that it does not matter how it is converted.
WHOLE = 1 << 24


def filled_over(target: Tensor, value: float) -> bool:
    """The same with one number that every float type can hold."""
    now = MODES.now
    if now.mode is SPECIAL or not -WHOLE <= value <= WHOLE:
        return False
    if now.grad and (target._node is not None or target._base is not None):
        return False
    a = target._a
    d = a.dtype
    if not (d is dt.F32 or d is dt.F64) or a.__class__ is not ndarray:
        return False
    if target._vc.__class__ is not list or not a.flags.writeable:
        return False
    if LISTENERS:
        announce(a, target)
    a.fill(value)
    return True


def bump(target: Tensor, name: str) -> None:
    """Note that a tensor's memory changed, by which op and on which line."""
    frame = getframe(2)  # the user's, if he called what called this
    code = frame.f_code
    if code is not last_caller[0]:
        frame = caller(frame)
        code = frame.f_code
    note_change(target._vc, name, code, frame.f_lasti)


def note_change(cell: list[Any], name: str, code: Any, instruction: int) -> None:
    """Count a change of memory in its version cell, which remembers the last few of them."""
    version = cell[0] = (cell[0] if cell.__class__ is list else entry(cell, 0)) + 1
    cell.append((version, name, code, instruction, tick()))
    if len(cell) > 9:
        del cell[1]


def note_changes(cells: list[list[Any]], name: str, code: Any, instruction: int) -> None:
    """Count one change of many tensors by one op, which is all that they remember of changes."""
    mark = ((0, name, code, instruction, tick()),)
    for cell in cells:
        cell[0] += 1
        cell[1:] = mark


def cells_of(tensors: Iterable[Tensor]) -> list[list[Any]]:
    """The version cells of tensors, but for those of inference mode, which have no versions."""
    return [x._vc for x in tensors if x._vc.__class__ is not Untracked]


def check_writable(target: Tensor, tracking: bool, name: str) -> None:
    """PyTorch's rules on which tensors may be changed in place while recording."""
    view = target._view
    base = root_of(target)
    if view is not None and base is not None:
        if base._node is not None or tracking:
            if not view[5]:
                raise refusal(target, name)
            if has_several(view):
                raise RuntimeError(
                    f"{name}_: Output {view[3]} of {called(view[0].grad_name)} is a view and "
                    "is being modified inplace. This view is the output of a function that "
                    "returns multiple views. Such functions do not allow the output views to be "
                    f"modified inplace. Use the out-of-place form\n  at {errors.here()}"
                )
            if isinstance(base._node, AccumulateGrad) or (
                base._node is None and target._node is not None
            ):
                raise RuntimeError(
                    f"{name}_: a view of a leaf Variable that requires grad is being used in an "
                    "in-place operation. Wrap it in torch.no_grad() if it should not be "
                    f"recorded, or clone() the leaf first\n  at {errors.here()}"
                )
    if isinstance(target._node, AccumulateGrad) and target._node is not NOWHERE:
        raise RuntimeError(
            f"{name}_: a leaf Variable that requires grad is being used in an in-place "
            "operation. Wrap it in torch.no_grad() if it should not be recorded, or use the "
            f"out-of-place form\n  at {errors.here()}"
        )


def check_overlap(target: Tensor, name: str) -> None:
    array = target._a
    if array.size and 0 in array.strides:
        if any(n > 1 and s == 0 for n, s in zip(array.shape, array.strides, strict=True)):
            raise RuntimeError(
                f"{name}_: unsupported operation: more than one element of the written-to "
                "tensor refers to a single memory location. Please clone() the tensor before "
                f"performing the operation\n  at {errors.here()}"
            )


def _keep_old(op: Op, args: Any, arrays: Any) -> tuple[list[Any], list[Any]]:
    """The inputs, with a copy of the target if backward needs what the write destroys.

    Another input on the same memory gets no copy; saving it is an error that backward reports.
    """
    target, edge = args[0], unhooked_node(args[0])
    needs = sum(1 << i for i, x in enumerate(args) if isinstance(x, Tensor) and x._node is not None)
    tensors = sum(1 << i for i, x in enumerate(args) if isinstance(x, Tensor))
    plan = op.plan_for(needs, tensors, len(args), target._a.dtype.kind == "c")
    for name, x in zip(op.names[1:], args[1:], strict=False):
        if isinstance(x, Tensor) and x._vc.__class__ is Untracked and name in plan.slots:
            x._vc[0]  # raises: it can't be saved
    args, arrays = list(args), list(arrays)
    arrays[0] = target._a.copy() if op.names and op.names[0] in plan.slots else target._a
    args[0] = wrap(arrays[0], edge)
    return args, arrays


def check_partial_overlap(target: np.ndarray, other: np.ndarray, name: str) -> None:
    """Refuse, as PyTorch does, to read from memory that is half the memory written to."""
    if not (target.size and other.size and is_dense(target) and is_dense(other)):
        return
    start, begin = address_of(target), address_of(other)
    end, stop = start + target.nbytes, begin + other.nbytes
    if start == begin and end == stop and target.strides == other.strides:
        return
    if start < stop and begin < end:
        raise RuntimeError(
            f"{name}_: unsupported operation: some elements of the input tensor and the "
            "written-to tensor refer to a single memory location. Please clone() the tensor "
            f"before performing the operation.\n  at {errors.here()}"
        )


def is_dense(array: np.ndarray) -> bool:
    """Whether an array fills a contiguous range of memory, each element once."""
    return layout.is_dense(array.shape, array.strides, array.itemsize)


def _record_inplace(op: Op, args: Any, arrays: Any, attrs: dict[str, Any], target: Tensor) -> None:
    # Record into a stand-in that has the memory and the version of the target. Inputs on the
    # same memory carry the version before the change, so that what they save counts as lost.
    result = wrap(target._a)
    result._vc = cell = target._vc
    earlier = [cell[0] - 1]
    old = []
    for x in args:
        if isinstance(x, Tensor) and x._vc is cell:
            x = wrap(x._a, x._node)
            x._vc = earlier
        old.append(x)
    node = record(op, old, arrays, attrs, [result])
    if node is None:
        return
    if node.guard and any(c is earlier for c in node.guard[1:]):
        node.guard = (node.guard[0], *(cell if c is earlier else c for c in node.guard[1:]))
    set_history(target, node)


def set_history(target: Tensor, node: GraphNode) -> None:
    """Make ``node`` the maker of a tensor that was changed in place, and of its base."""
    retained = take_retained(target)
    base = root_of(target)
    if base is None:
        target._node = node
    else:
        changed = wrap(target._a, node)
        whole = wrap(base._a, base._node)
        result = wrap(base._a)
        result._vc = [0]
        copy_slices = REGISTRY["copy_slices"]
        attrs = {"chain": closed(chain_of(target))}
        record(copy_slices, (whole, changed), (base._a, target._a), attrs, [result])
        base_retained = take_retained(base)
        base._node = result._node
        give_retained(base, base_retained)
        refresh(target)
    target._stamp = target._vc[0]
    give_retained(target, retained)
