"""Deformable convolutions: each tap of the window reads where an offset says."""

from __future__ import annotations

import math
from typing import Any

import weft
import weft.nn.functional as F
from weft import nn
from weft.core import errors
from weft.core.tensor import Tensor


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else tuple(value)


def _refuse(text: str) -> None:
    raise RuntimeError(f"deform_conv2d: {text}\n  at {errors.here()}")


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = (1, 1),
    padding: int | tuple[int, int] = (0, 0),
    dilation: int | tuple[int, int] = (1, 1),
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are moved by offsets (v1) and weighted by a mask (v2).

    Offsets have the shape (N, 2 * groups * KH * KW, OH, OW), vertical before horizontal.
    """
    (sh, sw), (ph, pw), (dh, dw) = _pair(stride), _pair(padding), _pair(dilation)
    kh, kw = weight.shape[-2:]
    n, channels, height, width = input.shape
    taps = kh * kw
    groups, weight_groups = offset.shape[1] // (2 * taps), channels // weight.shape[1]
    oh = (height + 2 * ph - (dh * (kh - 1) + 1)) // sh + 1
    ow = (width + 2 * pw - (dw * (kw - 1) + 1)) // sw + 1
    if groups == 0 or offset.shape[1] != 2 * groups * taps or channels % groups:
        _refuse(
            f"offset should have 2 * groups * {taps} channels, where groups divides the {channels} "
            f"channels of the input, got {list(offset.shape)}"
        )
    if tuple(offset.shape) != (n, offset.shape[1], oh, ow):
        _refuse(f"offset should be of shape ({n}, C, {oh}, {ow}), got {list(offset.shape)}")
    if mask is not None and tuple(mask.shape) != (n, groups * taps, oh, ow):
        _refuse(f"mask should be {[n, groups * taps, oh, ow]}, got {list(mask.shape)}")
    kind = {"dtype": input.dtype}
    tap_y = weft.arange(kh, **kind).mul(dh).repeat_interleave(kw).reshape(taps, 1, 1)
    tap_x = weft.arange(kw, **kind).mul(dw).repeat(kh).reshape(taps, 1, 1)
    rows = weft.arange(oh, **kind).mul(sh).sub(ph).reshape(1, oh, 1)
    columns = weft.arange(ow, **kind).mul(sw).sub(pw).reshape(1, 1, ow)
    moved = offset.reshape(n * groups, taps, 2, oh, ow)
    y = moved[:, :, 0] + (tap_y + rows)
    x = moved[:, :, 1] + (tap_x + columns)
    # Pixels count from the centre of the first one, as grid_sample does with align_corners.
    grid = weft.stack((x * (2 / max(width - 1, 1)) - 1, y * (2 / max(height - 1, 1)) - 1), dim=-1)
    images = input.reshape(n * groups, channels // groups, height, width)
    if width == 1 or height == 1:  # such an axis has no scale: it gets a second row of zeros
        images = F.pad(images, (0, int(width == 1), 0, int(height == 1)))
    flat = grid.reshape(n * groups, taps * oh, ow, 2)
    found = F.grid_sample(images, flat, "bilinear", "zeros", align_corners=True)
    found = found.reshape(n, groups, channels // groups, taps, oh * ow)
    if mask is not None:
        found = found * mask.reshape(n, groups, 1, taps, oh * ow)
    columns_of = found.reshape(n, weight_groups, weight.shape[1] * taps, oh * ow)
    matrix = weight.reshape(weight_groups, -1, weight.shape[1] * taps)
    result = weft.matmul(matrix, columns_of).reshape(n, weight.shape[0], oh, ow)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)


class DeformConv2d(nn.Module):
    """``deform_conv2d`` as a module; offsets and mask are inputs."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation, self.groups = _pair(padding), _pair(dilation), groups
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = nn.Parameter(weft.empty(shape))
        if bias:
            self.bias = nn.Parameter(weft.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as a convolution does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = nn.init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        """The convolution with moved taps."""
        options = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return deform_conv2d(input, offset, self.weight, self.bias, mask=mask, **options)

    def __repr__(self) -> str:
        text = (
            f"{type(self).__name__}({self.in_channels}, {self.out_channels}, "
            f"kernel_size={self.kernel_size}, stride={self.stride}"
        )
        text += f", padding={self.padding}" if self.padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False)" if self.bias is None else ")")
