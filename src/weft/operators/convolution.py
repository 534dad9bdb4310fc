"""Convolutions and their transposes, and the sums over windows behind them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.core.batching import BatchedCall, each
from weft.core.dispatch import Op
from weft.core.symbols import product
from weft.core.tensor import Tensor
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arguments import ints, refuse, scalar_name
from weft.operators.arithmetic import conj_op
from weft.operators.build import Sample, general, linear
from weft.operators.reductions import sum_op
from weft.operators.views import place_op, reshape_op
from weft.references import convolution as kernels

Ints = tuple[int, ...]

# Three ops, each of which is linear in both of its arrays, are each other's derivatives:
# T(g, x, w) = sum(g * convolution(x, w)) differentiated by g, by x and by w.


def _with_bias(y: np.ndarray, bias: Any) -> np.ndarray:
    kernels.check_bias(bias, y.shape[1])
    if bias is not None:
        y += bias.reshape((-1,) + (1,) * (y.ndim - 2))
    return y


def _convolution(
    x: Any,
    w: Any,
    bias: Any,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    extent: Ints | None = None,
) -> np.ndarray:
    y = kernels.convolution(x, w, stride, padding, dilation, groups)
    if extent is not None and y.shape[2:] != extent:
        # The transpose may be cropped.
        corner: Any = (..., *(slice(n) for n in extent))
        y = np.ascontiguousarray(y[corner])
    return _with_bias(y, bias)


def _transposed(
    x: Any,
    w: Any,
    bias: Any,
    shape: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> np.ndarray:
    y = kernels.convolution_input_grad(x, w, shape, stride, padding, dilation, groups)
    return _with_bias(y, bias)


def _bias_rule(g: Any) -> Any:
    return sum_op(g, dim=(0, *range(2, len(g.shape))), keepdim=False)


def _bias_tangent(t: Any, x_shape: Ints) -> Any:
    return reshape_op(t, shape=(1, t.shape[0]) + (1,) * (len(x_shape) - 2))


def _input_rule(
    g: Any, w: Any, x_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return conv_transpose_op(
        g,
        conj_op(w),
        None,
        shape=x_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


def _weight_rule(
    g: Any, x: Any, w_shape: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Any:
    return conv_weight_op(
        g,
        conj_op(x),
        shape=w_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )


def _attrs(
    stride: Ints, padding: Ints, dilation: Ints = (1,), groups: int = 1, **more: Any
) -> dict[str, Any]:
    count = len(stride)
    dilation = dilation * count if len(dilation) == 1 else dilation
    return {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, **more}


def _convolution_batch(b: BatchedCall) -> Any:
    """With weights of their own the examples are groups of one convolution."""
    x, w, bias = b.args
    if not b.on[1] and not b.on[2]:
        return batch_rules.folded(b)
    if not b.size:
        return each(b)
    x, w = b.lead(0), b.lead(1)
    shape, count = x._a.shape, w._a.shape[1]
    x = x.transpose(0, 1).reshape(shape[1], b.size * shape[2], *shape[3:])
    bias = None if bias is None else b.lead(2).reshape(b.size * count)
    attrs = {**b.attrs, "groups": b.size * b.attrs["groups"]}
    y = b.run(x, b.fold(w), bias, **attrs)
    return y.reshape(shape[1], b.size, count, *y._a.shape[2:]).transpose(0, 1)


convolution_op: Op = general(
    "convolution",
    _convolution,
    _input_rule,
    _weight_rule,
    _bias_rule,
    names=("x", "w", "bias"),
    jvp=(
        lambda t, w, stride, padding, dilation, groups: convolution_op(
            t, w, None, stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
        lambda t, x, stride, padding, dilation, groups: convolution_op(
            x, t, None, stride=stride, padding=padding, dilation=dilation, groups=groups
        ),
        _bias_tangent,
    ),
    promote="same",
    layout="images",
    samples=lambda m: [
        Sample((m.real(2, 2, 5), m.real(3, 2, 3), m.real(3)), _attrs((1,), (1,))),
        Sample(
            (m.real(1, 2, 4, 5), m.real(4, 1, 2, 3), m.real(4)), _attrs((2, 1), (0, 1), (1, 2), 2)
        ),
        Sample((m.real(2, 2, 3, 3), m.real(3, 2, 1, 1), None), _attrs((1, 1), (0, 0))),
        Sample((m.real(1, 1, 3, 3, 3), m.real(1, 1, 2, 2, 2), None), _attrs((1,) * 3, (0,) * 3)),
    ],
    shape=shape_rules.convolved,
    batch=_convolution_batch,
)
conv_transpose_op: Op = general(
    "conv_transpose",
    _transposed,
    lambda g, w, x_shape, stride, padding, dilation, groups: convolution_op(
        g,
        conj_op(w),
        None,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        extent=tuple(x_shape[2:]),
    ),
    lambda g, x, w_shape, stride, padding, dilation, groups: conv_weight_op(
        conj_op(x),
        g,
        shape=w_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    ),
    _bias_rule,
    names=("x", "w", "bias"),
    jvp=(
        lambda t, w, shape, stride, padding, dilation, groups: conv_transpose_op(
            t,
            w,
            None,
            shape=shape,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        ),
        lambda t, x, shape, stride, padding, dilation, groups: conv_transpose_op(
            x,
            t,
            None,
            shape=shape,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
        ),
        _bias_tangent,
    ),
    promote="same",
    layout="images",
    grad_name="ConvolutionBackward",
    samples=lambda m: [
        Sample((m.real(2, 3, 4), m.real(3, 2, 3), m.real(2)), _attrs((2,), (1,), shape=(2, 2, 7))),
        Sample(
            (m.real(1, 4, 2, 2), m.real(4, 1, 2, 3), None),
            _attrs((1, 2), (0, 1), (2, 1), 2, shape=(1, 2, 4, 4)),
        ),
    ],
    shape=shape_rules.shape_attribute,
    batch=lambda b: each(b) if any(b.on[1:]) else batch_rules.folded(b),
)


def _conv_weight_batch(b: BatchedCall) -> Any:
    """Weights of every example: the examples are groups of one convolution."""
    if not b.size:
        return each(b)
    g, x = (
        t.transpose(0, 1).reshape(t._a.shape[1], b.size * t._a.shape[2], *t._a.shape[3:])
        for t in b.leads()
    )
    shape, groups = b.attrs["shape"], b.attrs["groups"]
    attrs = {**b.attrs, "shape": (b.size * shape[0], *shape[1:]), "groups": b.size * groups}
    return b.unfold(b.run(g, x, **attrs), shape[0])


conv_weight_op: Op = linear(
    "conv_weight",
    lambda g, x, shape, stride, padding, dilation, groups: kernels.convolution_weight_grad(
        g, x, shape, stride, padding, dilation, groups
    ),
    lambda g, x, g_in_shape, stride, padding, dilation, groups: convolution_op(
        conj_op(x),
        g,
        None,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        extent=tuple(g_in_shape[2:]),
    ),
    lambda g, g_in, x_shape, stride, padding, dilation, groups: conv_transpose_op(
        conj_op(g_in),
        g,
        None,
        shape=x_shape,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    ),
    names=("g_in", "x"),
    promote="same",
    grad_name="ConvolutionBackwardBackward",
    samples=lambda m: [
        Sample((m.real(2, 3, 5), m.real(2, 2, 5)), _attrs((1,), (1,), shape=(3, 2, 3))),
    ],
    shape=shape_rules.shape_attribute,
    batch=_conv_weight_batch,
)

# --- arguments -------------------------------------------------------------------------


def _check_types(input: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    if input._a.dtype != weight._a.dtype:
        refuse(
            f"expected scalar type {scalar_name(input.dtype)} but found "
            f"{scalar_name(weight.dtype)}: input and weight of a convolution must have one dtype; "
            f"convert the input with .to({weight.dtype})"
        )
    if bias is not None and bias._a.dtype != input._a.dtype:
        refuse(
            f"Input type ({scalar_name(input.dtype).lower()}) and bias type "
            f"({scalar_name(bias.dtype).lower()}) should be the same"
        )
    if input._a.dtype.kind == "b":
        refuse("\"convolution\" not implemented for 'Bool'", NotImplementedError)


def _check_shapes(
    input: Tensor, weight: Tensor, bias: Tensor | None, groups: int, transposed: bool
) -> None:
    shape, wanted = list(input._a.shape), list(weight._a.shape)
    if groups <= 0:
        refuse("non-positive groups is not supported")
    if wanted[0] % groups or wanted[0] < groups:
        refuse(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, "
            f"but got weight of size {wanted} instead"
        )
    channels = wanted[0] if transposed else wanted[1] * groups
    if shape[1] != channels:
        start = "transposed=1" if transposed else f"groups={groups}"
        refuse(
            f"Given {start}, weight of size {wanted}, expected input{shape} to have {channels} "
            f"channels, but got {shape[1]} channels instead"
        )
    if 0 in shape[2:] and shape[0] and shape[1]:
        refuse(
            f"Only zero batch or zero channel inputs are supported, but got input shape: {shape}"
        )
    made = wanted[1] * groups if transposed else wanted[0]
    if bias is not None and bias._a.shape != (made,):
        start = "transposed=1, " if transposed else ""
        refuse(
            f"Given {start}weight of size {wanted}, expected bias to be 1-dimensional with {made} "
            f"elements, but got bias of size {list(bias._a.shape)} instead"
        )


def _check_numbers(stride: Ints, padding: Ints, dilation: Ints) -> None:
    if min(padding) < 0:
        refuse("negative padding is not supported")
    if min(stride) <= 0:
        refuse("non-positive stride is not supported")
    if min(dilation) <= 0:
        refuse("dilation should be greater than zero")


def _batched(input: Tensor, count: int, name: str) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether it came with one."""
    if input.ndim == count + 2:
        return input, True
    if input.ndim != count + 1:
        refuse(
            f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {name}, but "
            f"got input of size: {list(input._a.shape)}"
        )
    return input.unsqueeze(0), False


def _same_padding(input: Tensor, kernel: Ints, stride: Ints, dilation: Ints) -> tuple[Tensor, Ints]:
    """The symmetric part of the padding, with what is left over put at the ends."""
    if any(s != 1 for s in stride):
        refuse("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    if any(total % 2 for total in totals):
        shape = list(input._a.shape)
        index = tuple(slice(n) for n in shape)
        for axis, total in enumerate(totals):
            shape[axis + 2] += total % 2
        input = place_op(input, shape=tuple(shape), index=index)
    return input, tuple(total // 2 for total in totals)


def _conv(
    count: int,
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Tensor:
    name = f"conv{count}d"
    if not (isinstance(input, Tensor) and isinstance(weight, Tensor)):
        api.need_tensors(name, input=input, weight=weight)
    if weight.ndim != count + 2:
        refuse(
            f"{name} expects a weight of {count + 2} dimensions, but got one of size "
            f"{list(weight._a.shape)}"
        )
    x, batched = _batched(input, count, name)
    _check_types(x, weight, bias)
    _check_shapes(x, weight, bias, groups, transposed=False)
    stride, dilation = ints(stride, count, "stride"), ints(dilation, count, "dilation")
    if padding == "same":
        x, padding = _same_padding(x, weight._a.shape[2:], stride, dilation)
    elif padding == "valid":
        padding = (0,) * count
    elif isinstance(padding, str):
        refuse(f"Invalid padding string: '{padding}'; it should be 'same' or 'valid'")
    else:
        padding = ints(padding, count, "padding")
    _check_numbers(stride, padding, dilation)
    y = convolution_op(
        x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups
    )
    return y if batched else y.squeeze(0)


def _conv_transpose(
    count: int,
    input: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{count}d"
    x, batched = _batched(input, count, name)
    if bias is not None and x._a.dtype == np.float64 and count < 3 and bias._a.dtype.kind != "c":
        bias = bias.to(x.dtype)  # PyTorch's kernel for these writes it where the result will be
    _check_types(x, weight, bias)
    _check_shapes(x, weight, bias, groups, transposed=True)
    stride, dilation = ints(stride, count, "stride"), ints(dilation, count, "dilation")
    padding, extra = ints(padding, count, "padding"), ints(output_padding, count, "output_padding")
    _check_numbers(stride, padding, dilation)
    if min(extra) < 0:
        refuse("negative output_padding is not supported")
    if any(e >= s and e >= d for e, s, d in zip(extra, stride, dilation, strict=True)):
        refuse(
            "output padding must be smaller than either stride or dilation, but got "
            f"output_padding: {list(extra)} stride: {list(stride)} dilation: {list(dilation)}"
        )
    kernel = weight._a.shape[2:]
    spatial = kernels.transposed_extent(x._a.shape[2:], kernel, stride, padding, dilation, extra)
    y = conv_transpose_op(
        x,
        weight,
        bias,
        shape=(x._a.shape[0], weight._a.shape[1] * groups, *spatial),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
    )
    return y if batched else y.squeeze(0)


# --- public functions ------------------------------------------------------------------


@api.top
@api.under("nn.functional")
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve sequences (N, C, L) with (O, C / groups, K)."""
    return _conv(1, input, weight, bias, stride, padding, dilation, groups)


@api.top
@api.under("nn.functional")
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve images (N, C, H, W) with (O, C / groups, K, K)."""
    return _conv(2, input, weight, bias, stride, padding, dilation, groups)


@api.top
@api.under("nn.functional")
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve volumes (N, C, D, H, W) with (O, C / groups, K, K, K)."""
    return _conv(3, input, weight, bias, stride, padding, dilation, groups)


@api.top
@api.under("nn.functional")
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Apply the transpose of a convolution of sequences."""
    return _conv_transpose(
        1, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@api.top
@api.under("nn.functional")
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Apply the transpose of a convolution of images."""
    return _conv_transpose(
        2, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@api.top
@api.under("nn.functional")
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """Apply the transpose of a convolution of volumes."""
    return _conv_transpose(
        3, input, weight, bias, stride, padding, output_padding, groups, dilation
    )


@api.top(name="convolution")
def _top_convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """A convolution, or its transpose, of as many dimensions as the weight has."""
    count = weight.ndim - 2
    if transposed:
        return _conv_transpose(
            count, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return _conv(count, input, weight, bias, stride, padding, dilation, groups)


# --- windows as columns ----------------------------------------------------------------


def _unfolded_shape(x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    places = shape_rules.pooled(x, kernel, stride, padding, False, dilation)[2:]
    return (x.shape[0], x.shape[1] * prod(kernel), product(places))


im2col_op = linear(
    "im2col",
    lambda x, kernel, dilation, padding, stride: kernels.unfold(
        x, kernel, dilation, padding, stride
    ),
    lambda g, x_shape, kernel, dilation, padding, stride: col2im_op(
        g,
        size=tuple(x_shape[2:]),
        kernel=kernel,
        dilation=dilation,
        padding=padding,
        stride=stride,
    ),
    samples=lambda m: [
        Sample(
            (m.real(1, 2, 4, 3),),
            {"kernel": (2, 2), "dilation": (1, 1), "padding": (1, 0), "stride": (2, 1)},
        )
    ],
    shape=_unfolded_shape,
    batch=batch_rules.images,
)
col2im_op: Op = linear(
    "col2im",
    lambda x, size, kernel, dilation, padding, stride: kernels.fold(
        x, size, kernel, dilation, padding, stride
    ),
    lambda g, kernel, dilation, padding, stride: im2col_op(
        g, kernel=kernel, dilation=dilation, padding=padding, stride=stride
    ),
    promote="same",
    samples=lambda m: [
        Sample(
            (m.real(1, 8, 6),),
            {
                "size": (4, 3),
                "kernel": (2, 2),
                "dilation": (1, 1),
                "padding": (1, 0),
                "stride": (2, 1),
            },
        )
    ],
    shape=lambda x, size, kernel: (x.shape[0], x.shape[1] // prod(kernel), *size),
    batch=batch_rules.images,
)


def _window_arguments(
    kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> dict[str, Ints]:
    found = {
        "kernel": ints(kernel_size, 2, "kernel_size"),
        "dilation": ints(dilation, 2, "dilation"),
        "padding": ints(padding, 2, "padding"),
        "stride": ints(stride, 2, "stride"),
    }
    for name in ("kernel", "dilation", "stride"):
        if min(found[name]) <= 0:
            refuse(f"{name} size should be greater than zero, but got {list(found[name])}")
    if min(found["padding"]) < 0:
        refuse(f"padding should be non-negative, but got {list(found['padding'])}")
    return found


@api.under("nn.functional")
def unfold(
    input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """The windows of images as columns: (N, C * window, windows)."""
    where = _window_arguments(kernel_size, dilation, padding, stride)
    if input.ndim not in (3, 4):
        refuse(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input._a.shape)}"
        )
    if input.ndim == 3:
        return im2col_op(input.unsqueeze(0), **where).squeeze(0)
    return im2col_op(input, **where)


@api.under("nn.functional")
def fold(
    input: Tensor,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Tensor:
    """Sum columns of windows back into images."""
    where = _window_arguments(kernel_size, dilation, padding, stride)
    size = ints(output_size, 2, "output_size")
    if input.ndim not in (2, 3):
        refuse(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and "
            f"non-zero dimensions for input, but got: {list(input._a.shape)}"
        )
    depth, count = input._a.shape[-2:]
    if depth % prod(where["kernel"]):
        refuse(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
            f"but got input.size(1)={depth} and kernel_size={where['kernel']}."
        )
    blocks = kernels.output_extent(
        size, where["kernel"], where["stride"], where["padding"], where["dilation"]
    )
    if prod(blocks) != count:
        refuse(
            f"Given output_size={size}, kernel_size={where['kernel']}, "
            f"dilation={where['dilation']}, padding={where['padding']}, "
            f"stride={where['stride']}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {' * '.join(map(str, blocks))} = "
            f"{prod(blocks)}, but got input.size(2)={count}."
        )
    if input.ndim == 2:
        return col2im_op(input.unsqueeze(0), size=size, **where).squeeze(0)
    return col2im_op(input, size=size, **where)


@api.top
@api.under("nn.functional")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """Convolve sequences laid out as (time, batch, channel)."""
    y = conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return y.permute(2, 0, 1)
