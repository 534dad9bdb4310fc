"""The old name of a tensor that takes part in differentiation."""

from __future__ import annotations

from typing import Any

from weft.core.node import AccumulateGrad
from weft.core.tensor import Tensor


class _VariableMeta(type):
    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=_VariableMeta):
    """``Variable(x, requires_grad=...)`` gives a tensor on the memory of ``x``."""

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
