"""Networks."""

from weft.core.tensor import Parameter
from weft.nn import functional
from weft.nn.module import Module
from weft.nn.parameter import Buffer, UninitializedBuffer, UninitializedParameter

__all__ = ["Parameter", "functional"]
