"""Looking at the graph and stepping in: edges, hooks on saved tensors, hooks on many gradients."""

from __future__ import annotations

import abc
import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np

from weft.autograd.function import FunctionCtx
from weft.core import errors
from weft.core.devices import address_of, copy_of
from weft.core.dispatch import edge_of
from weft.core.gate import LISTENERS
from weft.core.inplace import bump
from weft.core.modes import MODES, _Switch
from weft.core.node import AccumulateGrad, GraphNode, OpNode, Output, RemovableHandle, output_of
from weft.core.tensor import Tensor, wrap


class Node(abc.ABC):  # noqa: B024 - nothing derives from it
    """The base class of graph nodes: ``isinstance(y.grad_fn, Node)``."""


Node.register(GraphNode)
Node.register(FunctionCtx)

# --- saved tensors ---------------------------------------------------------------------


class _Forbidden(threading.local):
    message: str | None = None


_forbidden = _Forbidden()


def hooks_allowed() -> bool:
    """Whether saved-tensor hooks may be used: see ``disable_saved_tensors_hooks``."""
    return _forbidden.message is None


class saved_tensors_hooks(_Switch):
    """A block in which values saved for backward go through ``pack`` and come back by ``unpack``.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.autograd.graph.saved_tensors_hooks(lambda t: t.numpy(force=True), weft.tensor):
    ...     y = (x * x).sum()
    >>> y.backward()
    """

    def __init__(
        self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]
    ) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def _enter(self) -> None:
        if _forbidden.message is not None:
            raise RuntimeError(_forbidden.message)
        MODES.now.saved_hooks = (*MODES.now.saved_hooks, (self.pack_hook, self.unpack_hook))
        MODES.now.update()

    def _exit(self) -> None:
        MODES.now.saved_hooks = MODES.now.saved_hooks[:-1]
        MODES.now.update()

    def _again(self) -> saved_tensors_hooks:
        return self


class save_on_cpu(saved_tensors_hooks):
    """Keep saved tensors in main memory, which is where weft's tensors are."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: tensor, lambda packed: packed)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which using saved-tensor hooks is an error with this message."""
    previous = _forbidden.message
    if MODES.now.saved_hooks:
        raise RuntimeError(error_message)
    _forbidden.message = error_message
    try:
        yield
    finally:
        _forbidden.message = previous


class _SavedHandle:
    """Stands for a saved tensor in the nodes that saved it; what it stands for dies with it."""

    __slots__ = ("__weakref__", "version")

    def __init__(self, version: int) -> None:
        self.version = version


class _SavedAndChanged:
    """The tensors saved in a block whose saved tensors may be changed, and the copies made."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.original: MutableMapping[_SavedHandle, Tensor] = WeakKeyDictionary()
        self.cloned: MutableMapping[_SavedHandle, Tensor] = WeakKeyDictionary()
        # Handles by what they stand for, and that by the memory it is in.
        self.tid_to_weakhandle: MutableMapping[Any, _SavedHandle] = WeakValueDictionary()
        self.sid_to_tid: defaultdict[int, set[Any]] = defaultdict(set)

    def pack(self, tensor: Tensor) -> _SavedHandle:
        """Note that a tensor is saved; the same one saved again has the same handle."""
        array, cell = tensor._a, tensor._vc
        place = address_of(array)
        tid = (id(cell), cell[0], place, array.shape, array.strides, array.dtype)
        handle = self.tid_to_weakhandle.get(tid)
        if handle is None:
            handle = self.tid_to_weakhandle[tid] = _SavedHandle(cell[0])
            self.original[handle] = tensor
            self.sid_to_tid[id(cell)].add(tid)
        return handle

    def unpack(self, handle: _SavedHandle) -> Tensor:
        """The tensor as it was when it was saved."""
        copy = self.cloned.get(handle)
        if copy is not None:
            return copy
        tensor = self.original.get(handle)
        if tensor is None or _open_here() is not self:
            raise AssertionError(
                "Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in "
                "which the graph was originally recorded."
            )
        if tensor._vc[0] != handle.version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                f"inplace operation: a tensor of shape {list(tensor.shape)} is at version "
                f"{tensor._vc[0]}; expected version {handle.version} instead. clone() it before "
                "changing it."
            )
        return tensor

    def copy_before_write(self, array: Any, target: Tensor | None) -> None:
        """Memory is about to change: copy what was saved of it."""
        if target is None or self.thread != threading.get_ident():
            return
        for tid in self.sid_to_tid.pop(id(target._vc), ()):
            # Other memory may get the same address once nothing but the copy is left.
            handle = self.tid_to_weakhandle.pop(tid, None)
            if handle is not None:
                tensor = self.original.pop(handle)
                self.cloned[handle] = wrap(copy_of(tensor._a))

    def clear(self) -> None:
        """Release all tensors."""
        for held in (self.original, self.cloned, self.tid_to_weakhandle, self.sid_to_tid):
            held.clear()


@contextlib.contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_SavedAndChanged]:
    """A block whose saved tensors may be changed in place later: those that are get copied first.

    Backward must be inside the block too.

    >>> import weft
    >>> x = weft.ones(2, requires_grad=True)
    >>> with weft.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = (y**2).sum()
    ...     _ = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([2., 2.])
    """
    if _open_here() is not None:
        raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
    saved = _SavedAndChanged()
    with saved_tensors_hooks(saved.pack, saved.unpack):
        LISTENERS.append(saved.copy_before_write)
        try:
            yield saved
        finally:
            LISTENERS.remove(saved.copy_before_write)
            saved.clear()


def _open_here() -> _SavedAndChanged | None:
    """The block of this thread whose saved tensors may be changed, if there is one."""
    for listener in LISTENERS:
        block = getattr(listener, "__self__", None)
        if isinstance(block, _SavedAndChanged) and block.thread == threading.get_ident():
            return block
    return None


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Increment a tensor's version, for changes that autograd did not see."""
    for x in (tensor,) if isinstance(tensor, Tensor) else tensor:
        bump(x, "increment_version")


# --- edges -----------------------------------------------------------------------------


class GradientEdge(NamedTuple):
    """A place in the graph where a gradient can be asked for: a node and its output's number."""

    node: Any
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge of the graph that a tensor's gradient flows through."""
    edge = edge_of(tensor)
    if edge is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            f"gradients\n  at {errors.here()}"
        )
    if isinstance(edge, Output):
        return GradientEdge(edge.node.named(), edge.index, edge)
    return GradientEdge(edge.named() if isinstance(edge, OpNode) else edge, 0, tensor)


def tensor_at(edge: Any) -> Any:
    """A tensor that represents an edge; anything else is returned unchanged."""
    if not isinstance(edge, GradientEdge):
        return edge
    node: Any = edge.node
    if isinstance(node, OpNode) and node.op.multiple:
        node = output_of(node, edge.output_nr)
    if isinstance(node, AccumulateGrad):
        leaf = node.variable
        # A leaf that has been given other memory since has another node.
        return leaf if leaf is None or leaf._node is node else wrap(leaf._a, node)
    return wrap(np.broadcast_to(np.zeros((), node.dtype), node.shape), node)


# --- hooks on several gradients --------------------------------------------------------


class _Handles(RemovableHandle):
    def __init__(self, handles: list[RemovableHandle]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable, *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` once in each backward: with all gradients, or with the first (``"any"``)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    state = _Collected(tensors)

    def on_gradient(i: int, grad: Tensor) -> None:
        run = _running()
        if not state.begin(run):
            return
        if mode == "any":
            state.done = True
            fn(grad)
            return
        state.grads[i] = grad
        state.left.discard(i)
        if not state.left:
            state.done = True
            fn(list(state.grads))

    return _Handles(
        [t.register_hook(lambda grad, i=i: on_gradient(i, grad)) for i, t in enumerate(tensors)]
    )


class _Collected:
    """What a hook on many gradients has seen of the backward that is running."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.edges = [edge_of(t) for t in tensors]
        self.run: Any = None
        self.done = True
        self.grads: list[Any] = []
        self.left: set[int] = set()

    def begin(self, run: Any) -> bool:
        """Start afresh with a new backward; False when this one has had its call."""
        work, ahead = run
        if work is not self.run or (work is None and self.done):
            self.run, self.done = work, False
            self.grads = [None] * len(self.edges)
            self.left = {i for i, e in enumerate(self.edges) if ahead is None or e in ahead}
        return not self.done


def _running() -> tuple[Any, set[Any] | None]:
    """The backward that is calling a hook, and the nodes it still has before it (and this one)."""
    work = MODES.now.backward
    if work is None:
        return None, None
    waiting = (leaf for leaf, left in work.pending.items() if left)
    return work, {work.at, *work.still_ahead(), *waiting, *work.grads}


def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> None:
    """There are no streams here; accepted and ignored."""


__all__ = [
    *("GradientEdge", "Node", "allow_mutation_on_saved_tensors", "disable_saved_tensors_hooks"),
    *("get_gradient_edge", "increment_version", "register_multi_grad_hook", "save_on_cpu"),
    "saved_tensors_hooks",
]
