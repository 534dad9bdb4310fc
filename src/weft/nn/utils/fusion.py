"""Batch normalisation folded into the layer before it, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from weft.core.tensor import Parameter, Tensor
from weft.operators import api


def _zeros_or(tensor: Tensor | None, like: Tensor, value: float) -> Tensor:
    return like.new_full(like.shape, value) if tensor is None else tensor


def fuse_conv_bn_weights(
    conv_w: Tensor,
    conv_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor | None,
    bn_b: Tensor | None,
    transpose: bool = False,
) -> tuple[Parameter, Parameter]:
    """The weight and bias that do a convolution's and a normalisation's work at once."""
    bias_type = conv_w.dtype if conv_b is None else conv_b.dtype
    conv_b = _zeros_or(conv_b, bn_rm, 0.0)
    bn_w, bn_b = _zeros_or(bn_w, bn_rm, 1.0), _zeros_or(bn_b, bn_rm, 0.0)
    scale = api.FUNCTIONS["rsqrt"](bn_rv + bn_eps)
    shape = [1, -1] if transpose else [-1, 1]
    shape += [1] * (conv_w.ndim - 2)
    weight = (conv_w * (bn_w * scale).reshape(shape)).to(conv_w.dtype)
    bias = ((conv_b - bn_rm) * scale * bn_w + bn_b).to(bias_type)
    return (
        Parameter(weight.detach(), conv_w.requires_grad),
        Parameter(bias.detach(), conv_b.requires_grad),
    )


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that also does the work of the normalisation after it."""
    if conv.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        *(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight),
        *(bn.bias, transpose),
    )
    return fused


def fuse_linear_bn_weights(
    linear_w: Tensor,
    linear_b: Tensor | None,
    bn_rm: Tensor,
    bn_rv: Tensor,
    bn_eps: float,
    bn_w: Tensor,
    bn_b: Tensor,
) -> tuple[Parameter, Parameter]:
    """The weight and bias that do a linear layer's and a normalisation's work at once."""
    bias_type = linear_w.dtype if linear_b is None else linear_b.dtype
    linear_b = _zeros_or(linear_b, bn_rm, 0.0)
    scale = bn_w * api.FUNCTIONS["rsqrt"](bn_rv + bn_eps)
    weight = linear_w * scale.unsqueeze(-1).to(linear_w.dtype)
    bias = ((linear_b - bn_rm) * scale + bn_b).to(bias_type)
    return (
        Parameter(weight.detach(), linear_w.requires_grad),
        Parameter(bias.detach(), linear_b.requires_grad),
    )


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that also does the work of the normalisation after it."""
    if linear.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    if linear.out_features != bn.num_features and bn.num_features != 1:
        raise AssertionError(
            "To fuse, linear.out_features == bn.num_features or bn.num_features == 1"
        )
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        *(fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    )
    return fused
