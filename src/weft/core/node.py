"""The graph: one node for each recorded op, and the leaves where gradients arrive."""

from __future__ import annotations

import itertools
import weakref
from collections import OrderedDict
from collections.abc import Callable
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.core import errors
from weft.core.modes import MODES

if TYPE_CHECKING:
    from weft.core.dispatch import Op, Plan
    from weft.core.tensor import Tensor

# Creation order is a topological order: a node is always made after its inputs.
next_sequence = itertools.count(1).__next__


class _Freed(tuple):
    """Stands in for saved values that backward has used up."""


FREED = _Freed()


class RemovableHandle:
    """Removes a hook when asked to, or at the end of a ``with`` block.

    >>> x = torch.ones(2, requires_grad=True)
    >>> handle = x.register_hook(lambda grad: grad * 10)
    >>> handle.remove()
    >>> x.sum().backward()
    >>> x.grad
    tensor([1., 1.])
    """

    _next = itertools.count().__next__

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        self.id = RemovableHandle._next()

    def remove(self) -> None:
        """Take the hook off; doing so twice is harmless."""
        hooks = self.hooks_dict_ref()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class Extras:
    """What few nodes have: hooks, metadata, the tensors that want their gradient kept."""

    __slots__ = ("before", "kind", "metadata", "parent", "post", "pre", "retained", "trace")

    def __init__(self) -> None:
        self.pre: OrderedDict[int, Callable] = OrderedDict()  # of the tensor
        self.before: OrderedDict[int, Callable] = OrderedDict()  # of the node
        self.post: OrderedDict[int, Callable] = OrderedDict()
        self.retained: list[weakref.ref[Tensor]] = []
        self.metadata: dict[Any, Any] = {}
        self.trace: str | None = None  # of the call that made it, in anomaly mode
        self.parent: GraphNode | None = None  # in whose backward it was made, then
        self.kind: tuple[Any, Any] = (None, None)  # shape and dtype of a leaf


class GraphNode:
    """What all kinds of node share."""

    __slots__ = ("__weakref__", "extras")
    extras: Extras | None

    def _extras(self) -> Extras:
        if self.extras is None:
            self.extras = Extras()
        return self.extras

    def name(self) -> str:
        """The name PyTorch would print, such as ``MulBackward0``."""
        return type(self).__name__

    @property
    def metadata(self) -> dict[Any, Any]:
        """A dict for the user's own notes on this node."""
        return self._extras().metadata

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before this node's backward; it may return new ones."""
        return add_hook(self._extras().before, hook)

    def register_hook(self, hook: Callable) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after this node's backward."""
        return add_hook(self._extras().post, hook)

    def __call__(self, *grads: Any) -> Any:
        """The gradients of the inputs for some gradients of the outputs."""
        return CALL[0](self, grads)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at 0x{id(self):x}>"


# autograd and ``weft.core.saved`` sit above this module and put their functions here.
CALL: list[Callable] = []
SAVED: list[Callable] = []


def add_hook(hooks: dict[int, Any], hook: Callable) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class OpNode(GraphNode):
    """One recorded op: what it was, what it read, what backward needs, and where it stood.

    ``inputs`` holds one entry for each input: the node that made it (or its leaf) where a
    gradient flows, else the constant itself: a number, or a weak reference to a tensor.
    """

    __slots__ = (
        *("attrs", "code", "dtype", "guard", "inputs", "instruction", "plan", "saved"),
        *("outs", "scope", "seq", "shape"),
    )
    outs: dict[int, weakref.ref[Output]]  # only of nodes with several results

    def __init__(
        self,
        plan: Plan,
        inputs: tuple[Any, ...],
        saved: tuple[Any, ...],
        guard: tuple[Any, ...] | None,
        attrs: dict[str, Any],
        shape: Any,
        dtype: Any,
        seq: int,
        code: CodeType | None,
        instruction: int,
        scope: str,
    ) -> None:
        self.plan = plan
        self.inputs = inputs
        self.saved = saved
        self.guard = guard
        self.attrs = attrs
        self.shape = shape
        self.dtype = dtype
        self.seq = seq
        self.code = code
        self.instruction = instruction
        self.scope = scope
        self.extras = None

    def __repr__(self) -> str:
        self.named()
        return super().__repr__()

    def named(self) -> OpNode:
        """This node with the class that carries its name (``MulBackward0``).

        All nodes are made as one class, since making objects of one class is fast; a node gets the
        class of its op when it is inspected.
        """
        if self.__class__ is OpNode:
            self.__class__ = self.plan.op.node_type_for(self.attrs, self.inputs)
        return self

    def name(self) -> str:
        """The name PyTorch would print, such as ``MulBackward0``."""
        return type(self.named()).__name__

    @property
    def op(self) -> Op:
        """The op that this node is a use of."""
        return self.plan.op

    @property
    def source(self) -> str:
        """The user's line that made this node."""
        return errors.describe_position(self.code, self.instruction)

    def keeper(self) -> tuple[str, str]:
        """The op that has saved the node's values, and its line: for errors."""
        return self.plan.op.name, self.source

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        """The nodes that gradients go to, with the number of their output, as in PyTorch."""
        op = self.plan.op
        if not op.edges:
            # An input that never gets a gradient, such as an index, has no edge.
            rules = op.rules or (True,) * len(self.inputs)
            return tuple(_as_edge(i) for i, r in zip(self.inputs, rules, strict=False) if r)
        return tuple(edge for part in op.edges if (edge := self._edge_to(part)) is not None)

    def _takes_numbers(self) -> bool:
        """Whether this is the variant of an op whose optional operands are numbers."""
        names, parts = self.plan.op.names, self.plan.op.edges
        places = [names.index(part.rstrip("?")) for part in parts if part.endswith("?")]
        return not any(isinstance(self.inputs[i], (GraphNode, weakref.ref)) for i in places)

    def _edge_to(self, part: str) -> tuple[GraphNode | None, int] | None:
        """The edge to an input; ``x?`` leaves out numbers, ``x.t`` goes through a transpose."""
        name = part.rstrip("?").removesuffix(".t")
        entry = self.inputs[self.plan.op.names.index(name)]
        if part.endswith("?") and (
            isinstance(entry, (int, float, complex)) or (entry is None and self._takes_numbers())
        ):
            return None
        node, index = _as_edge(entry)
        if part.endswith(".t") and node is not None:
            return _TURNED.setdefault(self, TBackward0(node, index)), 0
        return node, index

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *SAVED[1](self)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_saved_", "_raw_saved_")):
            raw, _, wanted = name.partition("_saved_")
            return SAVED[0](self, wanted, bool(raw))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def note_origin(node: GraphNode, frame: Any) -> None:
    """In anomaly mode: the calls that made a node, and in whose backward they were made."""
    import traceback

    extras = node._extras()
    extras.trace = "".join(traceback.format_stack(frame))
    running = MODES.now.backward
    extras.parent = None if running is None else running.at


def _as_edge(entry: Any) -> tuple[GraphNode | None, int]:
    if isinstance(entry, Output):
        return entry.node.named(), entry.index
    if isinstance(entry, OpNode):
        return entry.named(), 0
    leads_on = isinstance(entry, GraphNode) and entry is not NOWHERE
    return (entry, 0) if leads_on else (None, 0)


class TBackward0(GraphNode):
    """Stands between a linear layer and its weight, where PyTorch transposes the weight.

    weft multiplies by the weight without transposing it, so no gradient passes here; those who
    walk along ``next_functions`` find what they find in PyTorch.
    """

    __slots__ = ("next_functions",)

    def __init__(self, node: GraphNode, index: int) -> None:
        self.next_functions = ((node, index),)
        self.extras = None

    def __call__(self, *grads: Any) -> Any:
        """The gradient of the transposed weight."""
        return grads[0].t()

    def register_prehook(self, hook: Callable) -> RemovableHandle:
        """Refused, since it would never be called."""
        raise RuntimeError(
            "weft multiplies by a linear layer's weight untransposed, so no gradient passes its "
            f"TBackward0. Use weight.register_hook() instead\n  at {errors.here()}"
        )

    register_hook = register_prehook


_TURNED: weakref.WeakKeyDictionary[OpNode, TBackward0] = weakref.WeakKeyDictionary()


class _NoPlan:
    """The plan of nodes that do not come from an op; the engine asks before it looks further."""

    simple = joint = False
    single = -1
    targets = ()


class Output(GraphNode):
    """One result of a node that has several."""

    plan = _NoPlan

    __slots__ = ("dtype", "index", "node", "seq", "shape")

    def __init__(self, node: OpNode, index: int, shape: Any, dtype: Any) -> None:
        self.node = node
        self.index = index
        self.shape = shape
        self.dtype = dtype
        self.seq = next_sequence()
        self.extras = None

    @property
    def inputs(self) -> tuple[OpNode]:
        return (self.node,)


def output_of(node: OpNode, index: int) -> Output:
    """The one object that stands for an output of a node with several."""
    outs = getattr(node, "outs", None)
    if outs is None:
        outs = node.outs = {}
    held = outs.get(index)
    found = None if held is None else held()
    if found is None:
        found = Output(node, index, node.shape[index], node.dtype[index])
        outs[index] = weakref.ref(found)
    return found


def _nobody() -> None:
    return None


class AccumulateGrad(GraphNode):
    """A leaf that wants its gradient. It does not keep its tensor alive."""

    __slots__ = ("post_accumulate", "ref")
    seq = -1
    inputs = ()
    next_functions = ()

    def __init__(self, tensor: Tensor | None) -> None:
        self.ref: Callable[[], Tensor | None] = _nobody if tensor is None else weakref.ref(tensor)
        self.extras = None
        self.post_accumulate: OrderedDict[int, Callable] | None = None

    def name(self) -> str:
        """The name PyTorch gives it, which is not that of its class."""
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self) -> Tensor | None:
        """The leaf tensor, while it lives."""
        return self.ref()

    def _extras(self) -> Extras:
        made = super()._extras()
        tensor = self.ref()
        if tensor is not None:  # hooks may outlive it, and see gradients of its kind
            made.kind = tensor._a.shape, tensor._a.dtype
        return made

    @property
    def shape(self) -> Any:
        tensor = self.ref()
        if tensor is None:
            return None if self.extras is None else self.extras.kind[0]
        return tensor._a.shape

    @property
    def dtype(self) -> np.dtype | None:
        """What gradients are cast to on arrival; None leaves them as they come."""
        tensor = self.ref()
        if tensor is None:
            return None if self.extras is None else self.extras.kind[1]
        if tensor._x is not None and "grad_dtype" in tensor._x:
            wanted = tensor._x["grad_dtype"]
            return None if wanted is None else wanted.np
        return tensor._a.dtype


# The sink for views made in no_grad: they require a gradient, which goes nowhere.
NOWHERE = AccumulateGrad(None)
