"""Convolution layers."""

from __future__ import annotations

import inspect
import math
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn import init
from weft.nn._arguments import TUPLES, parameter
from weft.nn.lazy import LazyModuleMixin
from weft.nn.module import Module
from weft.nn.parameter import UninitializedParameter

# By name: what stands in ``F`` may be replaced, as autocast does.
_CONVOLUTIONS = {1: "conv1d", 2: "conv2d", 3: "conv3d"}
_TRANSPOSED = {1: "conv_transpose1d", 2: "conv_transpose2d", 3: "conv_transpose3d"}


class _ConvNd(Module):
    """What all convolutions share."""

    __constants__ = [
        *("stride", "padding", "dilation", "groups", "padding_mode", "output_padding"),
        *("in_channels", "out_channels", "kernel_size"),
    ]
    rank = 0

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        transposed: bool,
        output_padding: Any,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check(in_channels, out_channels, stride, padding, groups, padding_mode)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._pad_argument()
        channels = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        shape = (channels[0], channels[1] // groups, *kernel_size)
        self.weight = parameter(shape, device, dtype)
        if bias:
            self.bias = parameter((out_channels,), device, dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _pad_argument(self) -> list[int]:
        """The padding as ``F.pad`` wants it: last dim first, both sides of each."""
        if not isinstance(self.padding, str):
            return [n for n in reversed(self.padding) for _ in range(2)]
        found = [0, 0] * len(self.kernel_size)
        if self.padding == "same":
            sizes = zip(self.dilation, self.kernel_size, range(len(found) // 2)[::-1], strict=False)
            for step, size, dim in sizes:
                total = step * (size - 1)
                found[2 * dim] = total // 2
                found[2 * dim + 1] = total - total // 2
        return found

    def reset_parameters(self) -> None:
        """Draw the starting values."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        """The sizes, and what differs from the defaults."""
        text = (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("padding_mode", "zeros")


def _check(
    in_channels: int, out_channels: int, stride: Any, padding: Any, groups: int, mode: str
) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(
                f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}"
            )
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    modes = ("zeros", "reflect", "circular", "replicate")
    if mode not in modes:
        listed = ", ".join(repr(m) for m in modes)
        raise ValueError(f"padding_mode must be one of {{{listed}}}, but got padding_mode='{mode}'")


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        several = TUPLES[self.rank]
        super().__init__(
            in_channels,
            out_channels,
            several(kernel_size),
            several(stride),
            padding if isinstance(padding, str) else several(padding),
            several(dilation),
            False,
            several(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        convolve = getattr(F, _CONVOLUTIONS[self.rank])
        if self.padding_mode == "zeros":
            return convolve(
                input, weight, bias, self.stride, self.padding, self.dilation, self.groups
            )
        padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
        return convolve(padded, weight, bias, self.stride, 0, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of the input with the weight, plus the bias."""
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Convolution over signals: (batch, channels, length).

    >>> nn.Conv1d(4, 8, kernel_size=5)(torch.zeros(2, 4, 100)).shape
    torch.Size([2, 8, 96])
    """

    rank = 1


class Conv2d(_Conv):
    """Convolution over images: (batch, channels, height, width).

    >>> layer = nn.Conv2d(3, 16, kernel_size=3, stride=2, padding=1)
    >>> layer(torch.zeros(8, 3, 32, 32)).shape
    torch.Size([8, 16, 16, 16])
    >>> layer.weight.shape
    torch.Size([16, 3, 3, 3])
    """

    rank = 2


class Conv3d(_Conv):
    """Convolution over volumes: (batch, channels, depth, height, width)."""

    rank = 3


class _ConvTransposeNd(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        several = TUPLES[self.rank]
        super().__init__(
            in_channels,
            out_channels,
            several(kernel_size),
            several(stride),
            several(padding),
            several(dilation),
            True,
            several(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(self, input: Tensor, output_size: Any) -> tuple[int, ...]:
        """How much to add on one side to reach the size that the caller wants."""
        if output_size is None:
            return TUPLES[self.rank](self.output_padding)
        rank = self.rank
        wanted = list(output_size)
        lead = input.ndim - rank
        if len(wanted) == lead + rank:
            wanted = wanted[lead:]
        if len(wanted) != rank:
            raise ValueError(
                f"ConvTranspose{rank}D: for {input.ndim}D input, output_size must have {rank} or "
                f"{lead + rank} elements (got {len(wanted)})"
            )
        least = [
            (input.size(d + lead) - 1) * self.stride[d]
            - 2 * self.padding[d]
            + self.dilation[d] * (self.kernel_size[d] - 1)
            + 1
            for d in range(rank)
        ]
        most = [least[d] + self.stride[d] - 1 for d in range(rank)]
        if any(not low <= n <= high for n, low, high in zip(wanted, least, most, strict=True)):
            raise ValueError(
                f"requested an output size of {wanted}, but valid sizes range from {least} to "
                f"{most} (for an input of {input.size()[lead:]})"
            )
        return tuple(n - low for n, low in zip(wanted, least, strict=True))

    def forward(self, input: Tensor, output_size: Any = None) -> Tensor:
        """The transposed convolution; ``output_size`` settles which of several sizes is meant."""
        return getattr(F, _TRANSPOSED[self.rank])(
            *(input, self.weight, self.bias, self.stride, self.padding),
            *(self._output_padding(input, output_size), self.groups, self.dilation),
        )


class ConvTranspose1d(_ConvTransposeNd):
    """The transpose of Conv1d."""

    rank = 1


class ConvTranspose2d(_ConvTransposeNd):
    """The transpose of Conv2d.

    >>> layer = nn.ConvTranspose2d(16, 3, kernel_size=4, stride=2, padding=1)
    >>> layer(torch.zeros(8, 16, 14, 14)).shape
    torch.Size([8, 3, 28, 28])
    """

    rank = 2


class ConvTranspose3d(_ConvTransposeNd):
    """The transpose of Conv3d."""

    rank = 3


class _LazyConvXdMixin(LazyModuleMixin):
    """A convolution that learns ``in_channels`` from its first input."""

    groups: int
    transposed: bool
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    weight: Any
    bias: Any
    rank: int
    __signature__: inspect.Signature

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # It is made with the arguments of what it becomes, without the first.
        made = inspect.signature(cls.cls_to_become)  # type: ignore[arg-type]
        rest = [p for name, p in made.parameters.items() if name != "in_channels"]
        cls.__signature__ = made.replace(parameters=rest)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = type(self).__signature__.bind(*args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        out_channels, bias = arguments.pop("out_channels"), arguments.pop("bias")
        super().__init__(0, 0, bias=False, **arguments)
        factory = {name: arguments[name] for name in ("device", "dtype")}
        self.weight = UninitializedParameter(**factory)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(**factory)

    def reset_parameters(self) -> None:
        """Draw the starting values, once the shape is known."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Take the number of channels from the first input."""
        if not self.has_uninitialized_params():
            return
        spatial = self.rank
        if input.ndim not in (spatial + 1, spatial + 2):
            raise RuntimeError(
                f"Expected {spatial + 1}D (unbatched) or {spatial + 2}D (batched) input to "
                f"{type(self).__name__}, but got input of size: {input.shape}"
            )
        self.in_channels = input.shape[-spatial - 1]
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()


class LazyConv1d(_LazyConvXdMixin, Conv1d):
    """Conv1d that learns ``in_channels`` from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyConvXdMixin, Conv2d):
    """Conv2d that learns ``in_channels`` from its first input.

    >>> layer = nn.LazyConv2d(8, kernel_size=3)
    >>> layer(torch.zeros(2, 3, 9, 9)).shape
    torch.Size([2, 8, 7, 7])
    >>> layer
    Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))
    """

    cls_to_become = Conv2d


class LazyConv3d(_LazyConvXdMixin, Conv3d):
    """Conv3d that learns ``in_channels`` from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyConvXdMixin, ConvTranspose1d):
    """ConvTranspose1d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyConvXdMixin, ConvTranspose2d):
    """ConvTranspose2d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyConvXdMixin, ConvTranspose3d):
    """ConvTranspose3d that learns ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
