"""Values saved for backward: packed by hooks, read by name, restored into the graph."""

from __future__ import annotations

import ast
import math
import re
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.arrays import ARRAYS
from weft.core.modes import MODES
from weft.core.node import FREED, SAVED, AccumulateGrad, GraphNode, OpNode, output_of
from weft.core.tensor import Tensor, wrap


class Packed:
    """A saved value that a saved-tensor hook holds in its own form."""

    __slots__ = ("unpack_hook", "value")

    def __init__(self, value: Any, unpack_hook: Callable) -> None:
        self.value, self.unpack_hook = value, unpack_hook

    def unpack(self) -> Tensor:
        """Get the value from the hook."""
        return unpack_by(self.unpack_hook, self.value)


class PackedGuard(tuple):
    """The guard of a node some of whose values are held by hooks."""


PACKED = PackedGuard()


class PartialGuard(tuple):
    """The guard of what a plain backward reads.

    ``history`` is the guard of the values in ``slots``, which only a differentiable one reads.
    """

    history: tuple[Any, ...]
    slots: tuple[str, ...]


class LayeredGuard(tuple):
    """The guard of a node for several calls: a pass checks only the values that it reads."""


def guard_apart(node: OpNode, slots: tuple[str, ...]) -> None:
    """Exempt some saved values from the check of a plain backward pass."""
    guard = node.guard
    if guard is None or guard.__class__ is PackedGuard:
        return
    cells = {node.plan.slots[k]: cell for k, cell in _cells(node).items() if cell is not None}
    read = [cell for slot, cell in cells.items() if slot not in slots]
    made = PartialGuard((sum(cell[0] for cell in read), *read))
    others = [cell for slot, cell in cells.items() if slot in slots]
    made.history, made.slots = (sum(cell[0] for cell in others), *others), slots
    node.guard = made


def pack_by(hook: Callable, tensor: Tensor) -> Any:
    """What a hook makes of a saved tensor; it must leave the tensor itself alone."""
    now = MODES.now
    version = tensor._version
    hooks, now.saved_hooks = now.saved_hooks, ()
    enabled, now.grad = now.grad, False
    now.update()
    try:
        made = hook(tensor)
    finally:
        now.saved_hooks, now.grad = hooks, enabled
        now.update()
    if tensor._version != version:
        raise RuntimeError(
            "A saved tensor pack hook is modifying its input in place. Tensors provided as input "
            "to pack hook can not be modified by in-place operations as this can lead to "
            f"unexpected side-effects: clone() it first\n  at {errors.here()}"
        )
    return made


def unpack_by(hook: Callable, value: Any) -> Tensor:
    found = hook(value)
    if not isinstance(found, Tensor):
        raise TypeError(
            "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
            f"{type(found).__name__}"
        )
    return found


def check_hooks(value: Any, pack: Any, unpack: Any) -> None:
    """PyTorch's rules for registering hooks on a saved value."""
    if not (callable(pack) and callable(unpack)):
        raise TypeError(
            "register_hooks(): incompatible function arguments: expected two functions, got "
            f"{type(pack).__name__} and {type(unpack).__name__}"
        )
    if value is None:
        raise RuntimeError("Calling register_hooks on a saved tensor with value None is forbidden")
    if isinstance(value, Packed):
        raise RuntimeError(
            "Calling register_hooks on a saved tensor whose hooks have already been set. "
            "Hint: only one pair of hooks is allowed at a time."
        )


class SavedTensor:
    """A handle on a value that a node keeps for backward: ``grad_fn._raw_saved_self``."""

    __slots__ = ("_set_hooks",)
    _set_hooks: Callable[[Any, Any], None]

    def __init__(self) -> None:
        raise RuntimeError(
            "Trying to create a SavedTensor object from Python is forbidden: read it from a node, "
            "as in y.grad_fn._raw_saved_self"
        )

    def register_hooks(self, *hooks: Any) -> None:
        """Pass the value to ``pack_hook`` now; ``unpack_hook`` returns it when needed."""
        if len(hooks) != 2:
            raise TypeError(
                "register_hooks(): incompatible function arguments: expected pack_hook and "
                f"unpack_hook, got {len(hooks)} argument(s)"
            )
        self._set_hooks(*hooks)


def handle(set_hooks: Callable[[Any, Any], None]) -> SavedTensor:
    """A handle for registering hooks."""
    made = SavedTensor.__new__(SavedTensor)
    made._set_hooks = set_hooks
    return made


# --- the values of a node ----------------------------------------------------------------


def _cells(node: OpNode) -> dict[int, Any]:
    """The version cells of a node's saved values, by their number."""
    op, cells, found = node.op, iter((node.guard or (0,))[1:]), {}
    apart = node.guard.slots if isinstance(node.guard, PartialGuard) else ()
    history = iter(_history_guard(node)[1:])
    for k, slot in enumerate(node.plan.slots):
        if slot in op.names:
            entry = node.inputs[op.names.index(slot)]
            if isinstance(entry, (GraphNode, Tensor, weakref.ref)):
                found[k] = next(history if slot in apart else cells, None)
        elif slot in op.outputs:
            found[k] = next(cells, None)
        elif slot == "rest":
            for entry in node.inputs[len(op.names) :]:
                if isinstance(entry, (GraphNode, Tensor, weakref.ref)):
                    next(cells, None)
    return found


def place_of(node: OpNode, slot: str) -> GraphNode | None:
    """Where in the graph a saved value belongs."""
    op = node.op
    if slot in op.names:
        edge = node.inputs[op.names.index(slot)]
        return edge if isinstance(edge, GraphNode) else None
    if not op.multiple:
        return node
    k = op.outputs.index(slot)
    return None if k in op.constant_outputs else output_of(node, k)


def _as_tensor(node: OpNode, k: int, value: Any, place: GraphNode | None, cell: Any) -> Tensor:
    """A saved array as a tensor: the very tensor that was saved, where that is known."""
    slot = node.plan.slots[k]
    entry: Any = place
    if slot in node.op.names:
        entry = node.inputs[node.op.names.index(slot)]
        known = entry.variable if isinstance(entry, AccumulateGrad) else entry
        known = known() if isinstance(known, weakref.ref) else known
        if isinstance(known, Tensor) and known._a is value:
            return known
    tensor = wrap(value, place)
    if cell is not None:
        tensor._vc = cell
    return tensor


def pack_values(node: OpNode, pack: Callable, unpack: Callable) -> None:
    """Pass all tensors that a new node saves to a saved-tensor hook."""
    op, values, cells = node.op, [], _cells(node)
    for k, (slot, value) in enumerate(zip(node.plan.slots, node.saved, strict=True)):
        if isinstance(value, ARRAYS) and (slot in op.names or slot in op.outputs):
            # A node that held a tensor of its own would be a cycle.
            place = place_of(node, slot) if slot in op.names else None
            tensor = _as_tensor(node, k, value, place, cells.get(k))
            value = Packed(pack_by(pack, tensor), unpack)
        values.append(value)
    node.saved, node.guard = tuple(values), PACKED
    node._extras()  # keeps the engine off the fast path, which supports only arrays


def _pack_one(node: OpNode, k: int, pack: Any, unpack: Any) -> None:
    """Pass one value that a node saves to hooks."""
    if node.saved is FREED:
        raise RuntimeError(
            "Calling register_hooks on a saved tensor after it has been freed. Saved intermediate "
            "values of the graph are freed when you call .backward() or autograd.grad(). Specify "
            "retain_graph=True if you need to backward through the graph a second time or if you "
            "need to access saved variables after calling backward."
        )
    value = node.saved[k]
    check_hooks(value, pack, unpack)
    check_versions(node)
    check_history(node)
    cells = _cells(node)
    slot = node.plan.slots[k]
    place = place_of(node, slot) if slot in node.op.names else None
    made = pack_by(pack, _as_tensor(node, k, value, place, cells.get(k)))
    node.saved = (*node.saved[:k], Packed(made, unpack), *node.saved[k + 1 :])
    mine = cells.get(k)
    left = [*(node.guard or (0,))[1:], *_history_guard(node)[1:]]
    if mine is not None:
        left.pop(next(i for i, c in enumerate(left) if c is mine))
    node.guard = PackedGuard((sum(c[0] for c in left), *left) if left else ())
    node._extras()


def check_versions(node: OpNode) -> None:
    """Raise if values were overwritten since they were saved."""
    if node.guard and _is_stale(node.guard):
        raise overwritten(node)


def check_history(node: OpNode) -> None:
    """The same for the values that only a differentiable backward reads."""
    guard = _history_guard(node)
    if _is_stale(guard):
        raise overwritten(node, guard)


def is_intact(node: OpNode) -> bool:
    """Whether every value that a node saved is unchanged."""
    return not (_is_stale(node.guard or (0,)) or _is_stale(_history_guard(node)))


def _history_guard(node: OpNode) -> tuple[Any, ...]:
    return node.guard.history if isinstance(node.guard, PartialGuard) else (0,)


def _is_stale(guard: tuple[Any, ...]) -> bool:
    return guard[0] != sum(cell[0] for cell in guard[1:])


def unpacked(saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved values, with those held by hooks unpacked."""
    return tuple(v.unpack()._a if isinstance(v, Packed) else v for v in saved)


def as_history(node: OpNode, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved values as tensors in their place in the graph, for a differentiable backward."""
    op, values = node.op, []
    check_history(node)
    for slot, value in zip(node.plan.slots, saved, strict=False):
        if isinstance(value, Packed):
            value = value.unpack()._a
        if isinstance(value, ARRAYS) and (slot in op.names or slot in op.outputs):
            value = wrap(value, _place_now(node, slot))
        values.append(value)
    return tuple(values)


def _place_now(node: OpNode, slot: str) -> GraphNode | None:
    """Where a saved value belongs by now: a leaf may have been frozen since, or become one."""
    if slot in node.op.names:
        entry: Any = node.inputs[node.op.names.index(slot)]
        if entry.__class__ is AccumulateGrad:
            entry = entry.ref
        tensor = entry() if isinstance(entry, weakref.ref) else None
        if isinstance(tensor, Tensor):
            return tensor._node
    return place_of(node, slot)


# --- values by name ----------------------------------------------------------------------

# PyTorch's names of saved values, where they don't follow from the derivative rules: filled by
# ``weft.operators.saved_names``, which describes the entries.
NAMES: dict[str, str] = {}
COMPUTED: dict[str, Callable[[OpNode, str], Any]] = {}

_CALL = re.compile(r"(\w+)\((\w*)\)")
_MEASURE = re.compile(r"_sym_(sizes|strides|numel|argsize_(?:minus_)?\d)$")
# Integers that PyTorch's nodes return as unsigned.
_UNSIGNED = re.compile(
    r"dims?\d?|dimension|diagonal|end|divisor_override|ignore_index|index|offset|pad|padding_idx"
    r"|shifts|start|storage_offset"
)


def names_of(node: OpNode) -> dict[str, str]:
    """PyTorch's names of a node's saved values, each with the source of its value."""
    kind, op = node.name(), node.op
    for key in (f"{op.name} {kind}", op.name, kind):
        if key in NAMES:
            return {part.partition("=")[0]: part.partition("=")[2] for part in NAMES[key].split()}
    found = {}
    for slot in (*node.plan.slots, *node.attrs):
        own = slot.removesuffix("_shape")
        name = own
        if own in op.outputs and not op.multiple:
            name = "result"
        elif own in ("a", "b", "x") and own in op.names[:2]:
            name = "self" if own == op.names[0] else "other"
        found[name + "_sym_sizes" * slot.endswith("_shape")] = own
    return found


def saved_names(node: OpNode) -> list[str]:
    """The names of a node's saved values, for ``dir``."""
    return [f"_saved_{name}" for name in names_of(node)]


def saved_value(node: OpNode, name: str, raw: bool) -> Any:
    """A value kept for backward, by PyTorch's name for it: ``grad_fn._saved_self``."""
    known = names_of(node)
    measure = _MEASURE.search(name)
    source = known.get(name) or _own_name(node, name[: measure.start()] if measure else name)
    call = _CALL.fullmatch(source)
    kept = source.rstrip("!@") in (*node.op.names, *node.op.outputs) and not measure
    if name not in known or (raw and not kept):
        prefix = "_raw_saved_" if raw else "_saved_"
        shown = ", ".join(known) or "nothing"
        raise AttributeError(
            f"{node.name()!r} object has no attribute {prefix + name!r}: it keeps {shown}"
        )
    if raw:
        return _raw(node, source.rstrip("!@"))
    if call:
        found = COMPUTED[call[1]](node, call[2])
    elif measure:
        found = _measured(node, source, measure[1])
    else:
        found = find_saved(node, source)
    return _unsigned(found) if _UNSIGNED.fullmatch(name) else found


def _own_name(node: OpNode, name: str) -> str:
    """The op block's name of a value for which the table has only PyTorch's name."""
    op = node.op
    if name in (*node.attrs, *op.names, *op.outputs):
        return name
    if name in ("self", "input", "other"):
        return op.names[name == "other"] if len(op.names) > (name == "other") else name
    return op.outputs[0] if name == "result" else name


def _unsigned(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_unsigned(v) for v in value)
    return value + (1 << 64) if type(value) is int and value < 0 else value


def _raw(node: OpNode, own: str) -> SavedTensor:
    if own not in node.plan.slots:
        return handle(lambda pack, unpack: check_hooks(None, pack, unpack))
    k = node.plan.slots.index(own)
    return handle(lambda pack, unpack: _pack_one(node, k, pack, unpack))


def find_saved(node: OpNode, source: str) -> Any:
    """The value of an operand, a result or an attribute; None if the node did not keep it."""
    op, slots, own = node.op, node.plan.slots, source.rstrip("!@")
    if own in slots:
        if node.saved is FREED:
            raise used_up(*node.keeper())
        k = slots.index(own)
        value = node.saved[k]
        if isinstance(value, Packed):
            found, place = value.unpack(), place_of(node, own)
            return found if found._node is place else wrap(found._a, place)
        if isinstance(value, ARRAYS):
            return _as_tensor(node, k, value, place_of(node, own), _cells(node).get(k))
        number = source.endswith("@") and isinstance(value, (int, float, complex))
        return wrap(np.asarray(value)) if number else value
    if own in node.attrs:
        return node.attrs[own]
    if own in op.names:
        given = _given(node, own)
        number = isinstance(given, (bool, int, float, complex))
        return given if number or (source.endswith("!") and isinstance(given, Tensor)) else None
    return None if own in op.outputs else ast.literal_eval(own)


def _given(node: OpNode, own: str) -> Any:
    """An input as it was passed, if that is still known: its tensor, its node or a number."""
    i = node.op.names.index(own)
    entry = node.inputs[i] if i < len(node.inputs) else None
    if isinstance(entry, AccumulateGrad):
        return entry.variable
    return entry() if isinstance(entry, weakref.ref) else entry


def needs_gradient(node: OpNode, own: str) -> bool:
    """Whether a gradient flows to an operand."""
    return isinstance(node.inputs[node.op.names.index(own)], GraphNode)


def shape_of_input(node: OpNode, own: str) -> tuple[int, ...] | None:
    """The shape of an operand or a result, saved or not."""
    slots = node.plan.slots
    if f"{own}_shape" in slots and node.saved is not FREED:
        return tuple(node.saved[slots.index(f"{own}_shape")])
    known = find_saved(node, own)
    known = _given(node, own) if known is None and own in node.op.names else known
    return None if known is None else tuple(getattr(known, "shape", ()))


def _measured(node: OpNode, own: str, what: str) -> Any:
    """Sizes, strides, the number of elements or one size of an operand or a result."""
    if what == "strides":
        known = find_saved(node, own + "!") if needs_gradient(node, own) else ()
        return known.stride() if isinstance(known, Tensor) else known
    sizes = shape_of_input(node, own)
    if what == "sizes" or sizes is None:
        return sizes
    if what == "numel":
        return math.prod(sizes)
    at = int(what[-1])
    return sizes[-at if "minus" in what else at]


SAVED += [saved_value, saved_names]


# --- errors ------------------------------------------------------------------------------


def overwritten(node: OpNode, guard: tuple[Any, ...] | None = None) -> RuntimeError:
    """The error for an overwritten value: the op that saved it, the op that overwrote it, and both
    lines.
    """
    guard = node.guard if guard is None else guard
    assert guard is not None
    return lost(f"{node.op.name} ({node.name()})", node.source, guard)


def lost(name: str, source: str, guard: tuple[Any, ...]) -> RuntimeError:
    """The values that an op has saved, at some line, were overwritten."""
    total = guard[0]
    changes = []
    for cell in guard[1:]:
        total -= cell[0]
        changes += cell[1:]
    last = max(changes, key=lambda change: change[4], default=None)
    who = "an op that weft did not see"
    if last is not None:
        who = f"{last[1]}_ at {errors.describe_position(last[2], last[3])}"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {name} saved a value at {source}, and it was "
        f"overwritten by {who} ({-total} version(s) later). Use the out-of-place form there, or "
        "clone() the tensor before changing it."
    )


def used_up(name: str, source: str) -> RuntimeError:
    """The values that an op has saved, at some line, were used up by a backward pass."""
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        f"after they have already been freed): the values that {name} saved at "
        f"{source} are gone. Specify retain_graph=True if you need to backward through the "
        "graph a second time."
    )
