"""What programs ask of the engine by way of ``torch._C``: the pass that is running, odd nodes."""

from __future__ import annotations

import weakref
from typing import Any

from weft.autograd.engine import edges_of
from weft.autograd.function import Function
from weft.autograd.graph import Node, hooks_allowed
from weft.core import errors
from weft.core.modes import MODES, is_grad_enabled
from weft.core.node import AccumulateGrad, GraphNode, OpNode, Output
from weft.core.saved import SavedTensor
from weft.core.tensor import Tensor

has_lapack = has_spectral = True  # NumPy and SciPy bring them
has_openmp = True


def _current_graph_task_id() -> int:
    """The number of the backward pass that is running in this thread, or -1."""
    running = MODES.now.backward
    return -1 if running is None else running.number


def _running(name: str) -> Any:
    running = MODES.now.backward
    if running is None:
        raise RuntimeError(
            f"{name} should only be called during the backward pass: call it from a hook\n"
            f"  at {errors.here()}"
        )
    return running


def _get_current_graph_task_keep_graph() -> bool:
    """Whether the pass that is running keeps the graph; True if there is none."""
    running = MODES.now.backward
    return True if running is None else running.keep


def _current_autograd_node() -> Any:
    """The node that the engine is at, or None."""
    running = MODES.now.backward
    at = None if running is None else running.at
    at = at.node if isinstance(at, Output) else at
    return at.named() if isinstance(at, OpNode) else at


def _will_engine_execute_node(node: Any) -> bool:
    """Whether the pass that is running will come to a node, or has."""
    if not isinstance(node, GraphNode):
        raise RuntimeError(
            f"_will_engine_execute_node expects an grad_fn, but got {type(node).__name__}\n"
            f"  at {errors.here()}"
        )
    running = _running("_will_engine_execute_node")
    if running.targets is not None:
        if not running.sink and isinstance(node, AccumulateGrad) and node in running.targets:
            raise RuntimeError(
                "A leaf node was passed to _will_engine_execute_node but we are currently running "
                f"autograd.grad(). This is currently not supported.\n  at {errors.here()}"
            )
        return bool(running.leads_on(node))
    seen = set(running.roots)
    stack = list(seen)
    while stack:
        here = stack.pop()
        for edge in () if isinstance(here, AccumulateGrad) else edges_of(here):
            if edge not in seen:
                seen.add(edge)
                stack.append(edge)
    return node in seen


def _current_graph_task_execution_order() -> list[Any]:
    """The nodes that the pass that is running has before it, in order."""
    running = _running("_current_graph_task_execution_order")
    if MODES.now.multithreading:
        raise RuntimeError(
            "_current_graph_task_execution_order expects the current backward to be executed with "
            "multithreading disabled, e.g. by running torch.autograd.backward() under "
            f"torch.autograd.set_multithreading_enabled(False)\n  at {errors.here()}"
        )
    order, waiting = [], dict(running.pending)
    for node in (running.at, *running.still_ahead()):
        if not isinstance(node, Output):
            order.append(node.named() if isinstance(node, OpNode) else node)
        for edge in () if isinstance(node, AccumulateGrad) else edges_of(node):
            asked = running.useful is None or edge in running.useful
            if isinstance(edge, AccumulateGrad) and asked:
                waiting[edge] = waiting.get(edge, 1) - 1
                if not waiting[edge]:
                    order.append(edge)
    return order


class _WeakTensorRef:
    """A weak reference to a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self._ref = weakref.ref(tensor)

    def expired(self) -> bool:
        """Whether the tensor is gone."""
        return self._ref() is None


class _Delayed(Function):
    @staticmethod
    def forward(ctx: Any, message: str, *tensors: Tensor) -> Any:
        ctx.message = message
        return tuple(t.view_as(t) for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError(ctx.message)


class DelayedError:
    """Passes tensors on; backward through them is an error with a message."""

    def __init__(self, message: str, num_inputs: int) -> None:
        self.message, self.count = message, num_inputs

    def __call__(self, *tensors: Tensor) -> Any:
        outs = _Delayed.apply(self.message, *tensors)
        return outs[0] if len(outs) == 1 else outs


class _Undefined(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Any:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return None


class UndefinedGrad:
    """Passes a tensor on; no gradient comes back through it."""

    def __call__(self, tensor: Tensor) -> Any:
        return _Undefined.apply(tensor)


Node.register(DelayedError)
Node.register(UndefinedGrad)

__all__ = ["AccumulateGrad", "SavedTensor", "hooks_allowed", "is_grad_enabled"]
