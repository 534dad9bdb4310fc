"""Padding layers."""

from __future__ import annotations

from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn._arguments import ntuple
from weft.nn.module import Module


class _Pad(Module):
    __constants__ = ["padding"]
    rank = 0
    mode = "constant"

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = ntuple(2 * self.rank)(padding)

    def forward(self, input: Tensor) -> Tensor:
        """The input with a border."""
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        """The input with a border of one value."""
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        """The widths and the value."""
        return f"padding={self.padding}, value={self.value}"


class ConstantPad1d(_ConstantPadNd):
    """A border of one value around signals."""

    rank = 1


class ConstantPad2d(_ConstantPadNd):
    """A border of one value around images."""

    rank = 2


class ConstantPad3d(_ConstantPadNd):
    """A border of one value around volumes."""

    rank = 3


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        """The widths."""
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """A border of zeros around signals."""


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """A border of zeros around images."""


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """A border of zeros around volumes."""


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """A border that mirrors signals."""

    rank = 1


class ReflectionPad2d(_ReflectionPadNd):
    """A border that mirrors images."""

    rank = 2


class ReflectionPad3d(_ReflectionPadNd):
    """A border that mirrors volumes."""

    rank = 3


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """A border that repeats the edge of signals."""

    rank = 1


class ReplicationPad2d(_ReplicationPadNd):
    """A border that repeats the edge of images."""

    rank = 2


class ReplicationPad3d(_ReplicationPadNd):
    """A border that repeats the edge of volumes."""

    rank = 3


class _CircularPadNd(_Pad):
    mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        """The input with a border from its other end."""
        if input.ndim not in (self.rank + 1, self.rank + 2):
            raise ValueError(
                f"expected {self.rank + 1}D or {self.rank + 2}D input (got {input.ndim}D input)"
            )
        return F.pad(input, self.padding, self.mode)


class CircularPad1d(_CircularPadNd):
    """A border that goes round signals."""

    rank = 1


class CircularPad2d(_CircularPadNd):
    """A border that goes round images."""

    rank = 2


class CircularPad3d(_CircularPadNd):
    """A border that goes round volumes."""

    rank = 3
