"""Small building blocks that many models share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft import nn
from weft.core.tensor import Tensor

interpolate = nn.functional.interpolate


class FrozenBatchNorm2d(nn.Module):
    """Batch normalisation whose statistics and affine parameters are fixed buffers."""

    def __init__(self, num_features: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", weft.ones(num_features))
        self.register_buffer("bias", weft.zeros(num_features))
        self.register_buffer("running_mean", weft.zeros(num_features))
        self.register_buffer("running_var", weft.ones(num_features))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        state_dict.pop(prefix + "num_batches_tracked", None)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift each channel."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        shift = self.bias - self.running_mean * scale
        return x * scale.reshape(1, -1, 1, 1) + shift.reshape(1, -1, 1, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weight.shape[0]}, eps={self.eps})"


def _same(kernel_size: Any, dilation: Any, count: int) -> Any:
    """The padding that keeps sizes under stride 1."""
    if isinstance(kernel_size, int) and isinstance(dilation, int):
        return (kernel_size - 1) // 2 * dilation
    kernels = kernel_size if isinstance(kernel_size, Sequence) else (kernel_size,) * count
    dilations = dilation if isinstance(dilation, Sequence) else (dilation,) * count
    return tuple((k - 1) // 2 * d for k, d in zip(kernels, dilations, strict=True))


class ConvNormActivation(nn.Sequential):
    """A convolution, then a normalisation, then an activation, of which two can be left out."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 3,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm2d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: int | tuple[int, ...] = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
        conv_layer: Callable[..., nn.Module] = nn.Conv2d,
    ) -> None:
        if padding is None:
            padding = _same(kernel_size, dilation, 3 if conv_layer is nn.Conv3d else 2)
        layers = [
            conv_layer(
                in_channels,
                out_channels,
                kernel_size,
                stride,
                padding,
                dilation=dilation,
                groups=groups,
                bias=norm_layer is None if bias is None else bias,
            )
        ]
        if norm_layer is not None:
            layers.append(norm_layer(out_channels))
        if activation_layer is not None:
            layers.append(activation_layer(**({} if inplace is None else {"inplace": inplace})))
        super().__init__(*layers)
        self.out_channels = out_channels


class Conv2dNormActivation(ConvNormActivation):
    """A convolution of images with what follows it."""


class Conv3dNormActivation(ConvNormActivation):
    """A convolution of volumes with what follows it."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, ...] = 3,
        stride: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] | str | None = None,
        groups: int = 1,
        norm_layer: Callable[..., nn.Module] | None = nn.BatchNorm3d,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        dilation: int | tuple[int, ...] = 1,
        inplace: bool | None = True,
        bias: bool | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, groups,
            norm_layer, activation_layer, dilation, inplace, bias, nn.Conv3d,
        )  # fmt: skip


class SqueezeExcitation(nn.Module):
    """Scales each channel by a gate computed from the means of all channels."""

    def __init__(
        self,
        input_channels: int,
        squeeze_channels: int,
        activation: Callable[..., nn.Module] = nn.ReLU,
        scale_activation: Callable[..., nn.Module] = nn.Sigmoid,
    ) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(input_channels, squeeze_channels, 1)
        self.fc2 = nn.Conv2d(squeeze_channels, input_channels, 1)
        self.activation = activation()
        self.scale_activation = scale_activation()

    def forward(self, input: Tensor) -> Tensor:
        """Channels times their gates."""
        gate = self.fc2(self.activation(self.fc1(self.avgpool(input))))
        return self.scale_activation(gate) * input


class MLP(nn.Sequential):
    """Linear layers with a normalisation, an activation and dropout after each; none after the
    last but dropout."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: list[int],
        norm_layer: Callable[..., nn.Module] | None = None,
        activation_layer: Callable[..., nn.Module] | None = nn.ReLU,
        inplace: bool | None = None,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        options = {} if inplace is None else {"inplace": inplace}
        layers: list[nn.Module] = []
        width = in_channels
        for hidden in hidden_channels[:-1]:
            layers.append(nn.Linear(width, hidden, bias=bias))
            if norm_layer is not None:
                layers.append(norm_layer(hidden))
            if activation_layer is not None:
                layers.append(activation_layer(**options))
            layers.append(nn.Dropout(dropout, **options))
            width = hidden
        layers.append(nn.Linear(width, hidden_channels[-1], bias=bias))
        layers.append(nn.Dropout(dropout, **options))
        super().__init__(*layers)


class Permute(nn.Module):
    """Dimensions in another order."""

    def __init__(self, dims: list[int]) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        """Permute the dimensions."""
        return weft.permute(x, self.dims)
