"""The old name of a tensor that takes part in differentiation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.modes import MODES
from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor


class _Engine:
    """What PyTorch lets Python code ask of the engine."""

    @staticmethod
    def queue_callback(callback: Callable[[], None]) -> None:
        """Call a function when the backward pass that is running has ended."""
        running = MODES.now.backward
        if running is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        running.callbacks.append(callback)


class _VariableMeta(type):
    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(x, requires_grad=...)`` gives a tensor on the memory of ``x``."""

    _execution_engine = _Engine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Tensor:
        if data is None:
            data = Tensor()
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        made = data.detach()
        if requires_grad:
            made.requires_grad_()
            assert isinstance(made._node, AccumulateGrad)
        return made
