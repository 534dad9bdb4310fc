"""What nodes keep for backward: values packed by hooks, read by name, put back in their place."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from weft.core import errors
from weft.core.arrays import ARRAYS
from weft.core.modes import MODES
from weft.core.node import FREED, SAVED, AccumulateGrad, GraphNode, Node, output_of
from weft.core.tensor import Tensor, wrap

# What PyTorch calls operands that have other names here, by their number.
OPERANDS = {"self": 0, "input": 0, "other": 1, "exponent": 1, "mat2": 1}


class Packed:
    """A saved value that a saved-tensor hook holds in its own form."""

    __slots__ = ("unpack_hook", "value")

    def __init__(self, value: Any, unpack_hook: Callable) -> None:
        self.value, self.unpack_hook = value, unpack_hook

    def unpack(self) -> Tensor:
        """Ask the hook for the value."""
        return unpack_by(self.unpack_hook, self.value)


class PackedGuard(tuple):
    """The guard of a node some of whose values are in the hands of hooks."""


PACKED = PackedGuard()


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
    """PyTorch's rules on who may put hooks on a saved value."""
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
        """Let ``pack_hook`` take the value over now; ``unpack_hook`` gives it back when needed."""
        if len(hooks) != 2:
            raise TypeError(
                "register_hooks(): incompatible function arguments: expected pack_hook and "
                f"unpack_hook, got {len(hooks)} argument(s)"
            )
        self._set_hooks(*hooks)


def handle(set_hooks: Callable[[Any, Any], None]) -> SavedTensor:
    """A handle that hooks are given to."""
    made = SavedTensor.__new__(SavedTensor)
    made._set_hooks = set_hooks
    return made


# --- the values of a node ----------------------------------------------------------------


def _cells(node: Node) -> dict[int, Any]:
    """The version cells of a node's saved values, by their number."""
    op, cells, found = node.op, iter((node.guard or (0,))[1:]), {}
    for k, slot in enumerate(node.plan.slots):
        if slot in op.names:
            entry = node.inputs[op.names.index(slot)]
            if isinstance(entry, (GraphNode, Tensor, weakref.ref)):
                found[k] = next(cells, None)
        elif slot in op.outputs:
            found[k] = next(cells, None)
        elif slot == "rest":
            for entry in node.inputs[len(op.names) :]:
                if isinstance(entry, (GraphNode, Tensor, weakref.ref)):
                    next(cells, None)
    return found


def place_of(node: Node, slot: str) -> GraphNode | None:
    """Where in the graph a saved value belongs."""
    op = node.op
    if slot in op.names:
        edge = node.inputs[op.names.index(slot)]
        return edge if isinstance(edge, GraphNode) else None
    if not op.multiple:
        return node
    k = op.outputs.index(slot)
    return None if k in op.constant_outputs else output_of(node, k)


def _as_tensor(node: Node, k: int, value: Any, place: GraphNode | None, cell: Any) -> Tensor:
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


def pack_values(node: Node, pack: Callable, unpack: Callable) -> None:
    """Hand all tensors that a new node keeps to a saved-tensor hook."""
    op, values, cells = node.op, [], _cells(node)
    for k, (slot, value) in enumerate(zip(node.plan.slots, node.saved, strict=True)):
        if isinstance(value, ARRAYS) and (slot in op.names or slot in op.outputs):
            # A node that held a tensor of its own would be a cycle.
            place = place_of(node, slot) if slot in op.names else None
            tensor = _as_tensor(node, k, value, place, cells.get(k))
            value = Packed(pack_by(pack, tensor), unpack)
        values.append(value)
    node.saved, node.guard = tuple(values), PACKED
    node._extras()  # keeps the engine from the short way, which knows arrays only


def _pack_one(node: Node, k: int, pack: Any, unpack: Any) -> None:
    """Hand one value that a node keeps to hooks."""
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
    cells = _cells(node)
    slot = node.plan.slots[k]
    place = place_of(node, slot) if slot in node.op.names else None
    made = pack_by(pack, _as_tensor(node, k, value, place, cells.get(k)))
    node.saved = (*node.saved[:k], Packed(made, unpack), *node.saved[k + 1 :])
    mine = cells.get(k)
    left = list((node.guard or (0,))[1:])
    if mine is not None:
        left.pop(next(i for i, c in enumerate(left) if c is mine))
    node.guard = PackedGuard((sum(c[0] for c in left), *left) if left else ())
    node._extras()


def check_versions(node: Node) -> None:
    """Refuse values that were overwritten since they were saved."""
    if node.guard and node.guard[0] != sum(cell[0] for cell in node.guard[1:]):
        raise overwritten(node)


def unpacked(saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved values, with those that hooks hold asked back."""
    return tuple(v.unpack()._a if isinstance(v, Packed) else v for v in saved)


def as_history(node: Node, saved: tuple[Any, ...]) -> tuple[Any, ...]:
    """Saved values as tensors in their place in the graph, for a differentiable backward."""
    op, values = node.op, []
    for slot, value in zip(node.plan.slots, saved, strict=False):
        if isinstance(value, Packed):
            value = value.unpack()._a
        if isinstance(value, ARRAYS) and (slot in op.names or slot in op.outputs):
            value = wrap(value, place_of(node, slot))
        values.append(value)
    return tuple(values)


# What PyTorch calls values that the op blocks have under other names, where the first operands'
# and a single result's names (``self``, ``other``, ``result``) don't say it.
_TORCH_NAMES = {
    "avg_pool": {"kernel": "kernel_size"},
    "clamp": {"low": "min", "high": "max"},
    "conv_transpose": {"x": "input", "w": "weight"},
    "convolution": {"x": "input", "w": "weight"},
    "dot": {"b": "tensor"},
    "embedding": {"by_freq": "scale_grad_by_freq"},
    "index": {"rest": "indices"},
    "linalg_cholesky_ex": {"y": "L"},
    "linalg_eigh": {"values": "eigenvalues", "vectors": "eigenvectors"},
    "linalg_inv_ex": {"y": "inverse"},
    "linalg_qr": {"q": "Q", "r": "R"},
    "linalg_svd": {"u": "U", "s": "S", "vh": "Vh"},
    "linear": {"x": "self", "weight": "mat2"},
    "linear_with_bias": {"x": "mat1", "weight": "mat2"},
    "max_pool_with_indices": {"indices": "result1", "kernel": "kernel_size"},
    "mse_loss": {"b": "target"},
    "native_batch_norm": {"x": "input", "mean": "result1"},
    "smooth_l1_loss": {"b": "target"},
    "native_layer_norm": {"x": "input", "mean": "result1", "rstd": "result2"},
    "upsample": {"size": "output_size"},
}
# Details of weft's rules that PyTorch's nodes don't show.
_UNSHOWN = {"variant", "width", "where", "shapes", "reverse", "rank", "antialias"}
# Products, of which an operand is kept for the gradient of the other one only. PyTorch's nodes have
# its name all the same, with None.
_PRODUCTS = frozenset(("mul", "div", "mm", "bmm", "dot", "linear", "linear_with_bias"))
_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


def saved_value(node: Node, name: str, raw: bool) -> Any:
    """A value kept for backward, by PyTorch's name for it: ``grad_fn._saved_self``."""
    base = name.removesuffix("_sym_sizes")
    for own, known in _TORCH_NAMES.get(node.op.name, {}).items():
        if known == base:
            found = _find_saved(node, own + name[len(base) :], raw)
            # PyTorch multiplies by the transposed weight, and keeps that.
            turned = known == "mat2" and isinstance(found, Tensor) and found.ndim == 2
            found = found.t() if turned else found
            # Indices stand beside slices, as arrays.
            if known == "indices" and isinstance(found, tuple):
                found = tuple(wrap(v) if isinstance(v, ARRAYS) else v for v in found)
            return found
    found = _find_saved(node, name, raw)
    return _REDUCTIONS.get(found, found) if name == "reduction" else found


def _find_saved(node: Node, name: str, raw: bool) -> Any:
    op, slots = node.op, node.plan.slots
    wanted = name
    if name == "result" and not op.multiple:
        wanted = op.outputs[0]
    elif name not in (*slots, *node.attrs):
        base = name.removesuffix("_sym_sizes")
        if OPERANDS.get(base, 9) < len(op.names):
            wanted = op.names[OPERANDS[base]]
        else:
            wanted = base
        wanted = f"{wanted}_shape" if base != name else wanted
    if wanted in slots:
        k = slots.index(wanted)
        if raw:
            return handle(lambda pack, unpack: _pack_one(node, k, pack, unpack))
        if node.saved is FREED:
            raise used_up(node)
        value = node.saved[k]
        if isinstance(value, Packed):
            found, place = value.unpack(), place_of(node, wanted)
            return found if found._node is place else wrap(found._a, place)
        if isinstance(value, ARRAYS):
            return _as_tensor(node, k, value, place_of(node, wanted), _cells(node).get(k))
        return value
    if wanted in node.attrs and not raw:
        return node.attrs[wanted]
    if wanted in op.names[:2] and op.name in _PRODUCTS and not raw:
        return None
    prefix = "_raw_saved_" if raw else "_saved_"
    raise AttributeError(
        f"{node.name()!r} object has no attribute {prefix + name!r}: it keeps "
        f"{', '.join((*slots, *node.attrs)) or 'nothing'}"
    )


_SECOND = {"pow": "exponent", "mm": "mat2", "bmm": "mat2"}


def saved_names(node: Node) -> list[str]:
    """The names under which a node gives what it kept, for ``dir``."""
    op, found = node.op, []
    known = _TORCH_NAMES.get(op.name, {})
    for slot in (*node.plan.slots, *node.attrs):
        base = slot.removesuffix("_shape")
        if slot in _UNSHOWN:
            continue
        if base in known:
            base = known[base]
        elif base in op.outputs and not op.multiple:
            base = "result"
        elif base in ("a", "b", "x") and base in op.names[:2]:
            base = "self" if base == op.names[0] else _SECOND.get(op.name, "other")
        found.append(f"_saved_{base}" + "_sym_sizes" * slot.endswith("_shape"))
    if op.name in _PRODUCTS:
        second = known.get(op.names[1]) or _SECOND.get(op.name, "other")
        both = (f"_saved_{known.get(op.names[0], 'self')}", f"_saved_{second}")
        found += [name for name in both if name not in found]
    return found


SAVED += [saved_value, saved_names]


# --- errors ------------------------------------------------------------------------------


def overwritten(node: Node) -> RuntimeError:
    """What was saved, what overwrote it, and where both stand."""
    assert node.guard is not None
    total = node.guard[0]
    changes = []
    for cell in node.guard[1:]:
        total -= cell[0]
        changes += cell[1:]
    last = changes[-1] if changes else None
    who = "an op that weft did not see"
    if last is not None:
        who = f"{last[1]}_ at {errors.describe_position(last[2], last[3])}"
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {node.op.name} ({node.name()}) saved a value at {node.source}, and it was "
        f"overwritten by {who} ({-total} version(s) later). Use the out-of-place form there, or "
        "clone() the tensor before changing it."
    )


def used_up(node: Node) -> RuntimeError:
    return RuntimeError(
        "Trying to backward through the graph a second time (or directly access saved tensors "
        f"after they have already been freed): the values that {node.op.name} saved at "
        f"{node.source} are gone. Specify retain_graph=True if you need to backward through the "
        "graph a second time."
    )
