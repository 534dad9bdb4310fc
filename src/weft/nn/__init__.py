"""Networks."""

from weft.core.tensor import Parameter
from weft.nn import functional

__all__ = ["Parameter", "functional"]
