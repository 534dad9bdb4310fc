"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn._arguments import TUPLES, shown, single
from weft.nn.module import Module


class _Pool(Module):
    """A pooling layer is a function and its arguments."""

    _pool: Callable

    def _arguments(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def forward(self, input: Tensor) -> Any:
        """The pooled input, with the places of what was taken if they were asked for."""
        return self._pool(input, *self._arguments())


class _MaxPoolNd(_Pool):
    __constants__ = [
        *("kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode")
    ]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def _arguments(self) -> tuple[Any, ...]:
        return (
            *(self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode),
            self.return_indices,
        )

    def extra_repr(self) -> str:
        """The sizes and settings."""
        return shown(self, "kernel_size", "stride", "padding", "dilation", "ceil_mode")


class MaxPool1d(_MaxPoolNd):
    """The largest element of each window of signals."""

    _pool = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPoolNd):
    """The largest element of each window of images.

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> nn.MaxPool2d(2)(x)
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """

    _pool = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPoolNd):
    """The largest element of each window of volumes."""

    _pool = staticmethod(F.max_pool3d)


class _MaxUnpoolNd(Module):
    rank = 0

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        several = TUPLES[self.rank]
        self.kernel_size = several(kernel_size)
        self.stride = several(stride if stride is not None else kernel_size)
        self.padding = several(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        """The elements back at their places, zeros elsewhere."""
        unpool = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}[self.rank]
        return unpool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        """The sizes."""
        return shown(self, "kernel_size", "stride", "padding")


class MaxUnpool1d(_MaxUnpoolNd):
    """Undoes MaxPool1d, as far as it can be undone."""

    rank = 1


class MaxUnpool2d(_MaxUnpoolNd):
    """Undoes MaxPool2d, as far as it can be undone."""

    rank = 2


class MaxUnpool3d(_MaxUnpoolNd):
    """Undoes MaxPool3d, as far as it can be undone."""

    rank = 3


class _AvgPoolNd(_Pool):
    __constants__ = ["kernel_size", "stride", "padding", "ceil_mode", "count_include_pad"]

    def _arguments(self) -> tuple[Any, ...]:
        return (
            *(self.kernel_size, self.stride, self.padding, self.ceil_mode),
            self.count_include_pad,
        )

    def extra_repr(self) -> str:
        """The sizes."""
        return shown(self, "kernel_size", "stride", "padding")


class AvgPool1d(_AvgPoolNd):
    """The mean of each window of signals."""

    _pool = staticmethod(F.avg_pool1d)

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = single(kernel_size)
        self.stride = single(stride if stride is not None else kernel_size)
        self.padding = single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad


class _AvgPoolWithDivisor(_AvgPoolNd):
    __constants__ = [*_AvgPoolNd.__constants__, "divisor_override"]

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride if stride is not None else kernel_size
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def _arguments(self) -> tuple[Any, ...]:
        return (*super()._arguments(), self.divisor_override)


class AvgPool2d(_AvgPoolWithDivisor):
    """The mean of each window of images.

    >>> x = torch.arange(16.0).view(1, 1, 4, 4)
    >>> nn.AvgPool2d(2)(x)
    tensor([[[[ 2.5000,  4.5000],
              [10.5000, 12.5000]]]])
    """

    _pool = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolWithDivisor):
    """The mean of each window of volumes."""

    _pool = staticmethod(F.avg_pool3d)


class _FractionalMaxPool(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    rank = 0

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Any = None,
    ) -> None:
        super().__init__()
        several = TUPLES[self.rank]
        self.kernel_size = kernel_size if self.rank == 2 else several(kernel_size)
        if self.rank == 3 and any(k <= 0 for k in self.kernel_size):
            raise ValueError(
                f"kernel_size must greater than zero for all dimensions, but got {self.kernel_size}"
            )
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = several(output_size) if output_size is not None else None
        self.output_ratio = several(output_ratio) if output_ratio is not None else None
        if output_size is None and output_ratio is None:
            raise ValueError(
                f"{type(self).__name__} requires specifying either an output size, or a pooling "
                "ratio"
            )
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        """The largest elements of windows at random places."""
        pool = F.fractional_max_pool2d if self.rank == 2 else F.fractional_max_pool3d
        return pool(
            *(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices),
            _random_samples=self._random_samples,
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """Max pooling of images to a fraction of their size, with random windows."""

    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """Max pooling of volumes to a fraction of their size, with random windows."""

    rank = 3


class _LPPoolNd(_Pool):
    __constants__ = ["norm_type", "kernel_size", "stride", "ceil_mode"]

    def __init__(
        self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False
    ) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def _arguments(self) -> tuple[Any, ...]:
        return float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode

    def extra_repr(self) -> str:
        """The norm, sizes and settings."""
        return shown(self, "norm_type", "kernel_size", "stride", "ceil_mode")


class LPPool1d(_LPPoolNd):
    """The p-norm of each window of signals."""

    _pool = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPoolNd):
    """The p-norm of each window of images."""

    _pool = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """The p-norm of each window of volumes."""

    _pool = staticmethod(F.lp_pool3d)


class _AdaptivePoolNd(_Pool):
    __constants__ = ["output_size"]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def _arguments(self) -> tuple[Any, ...]:
        return (self.output_size,)

    def extra_repr(self) -> str:
        """The size of the result."""
        return f"output_size={self.output_size}"


class _AdaptiveMaxPoolNd(_AdaptivePoolNd):
    __constants__ = ["output_size", "return_indices"]

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def _arguments(self) -> tuple[Any, ...]:
        return self.output_size, self.return_indices


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Max pooling of signals to a given length."""

    _pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Max pooling of images to a given size."""

    _pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Max pooling of volumes to a given size."""

    _pool = staticmethod(F.adaptive_max_pool3d)


class _AdaptiveAvgPoolNd(_AdaptivePoolNd):
    """The means of windows that fit a given size."""


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Average pooling of signals to a given length."""

    _pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Average pooling of images to a given size.

    >>> nn.AdaptiveAvgPool2d(1)(torch.zeros(8, 64, 7, 5)).shape
    torch.Size([8, 64, 1, 1])
    """

    _pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Average pooling of volumes to a given size."""

    _pool = staticmethod(F.adaptive_avg_pool3d)
