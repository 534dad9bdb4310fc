"""Normalisation over features, batches, groups and channels."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.batching import BatchedCall
from weft.core.dispatch import NO_ATTRS, apply
from weft.core.modes import MODES, no_grad
from weft.core.pending import model_of
from weft.core.shapes import broadcast
from weft.core.short import fast_over
from weft.core.tensor import Tensor
from weft.native.memory.layout import channels_wanted
from weft.operators import api, shape_rules
from weft.operators.arguments import need_float, refuse, scalar_name
from weft.operators.build import Sample, constant, elementwise, general
from weft.operators.casting import as_image
from weft.operators.reductions import sum_op
from weft.operators.views import reshape_op

# --- over the last dimensions ----------------------------------------------------------


def _last(x: Any, rank: int) -> tuple[int, ...]:
    return tuple(range(len(x.shape) - rank, len(x.shape)))


def _reciprocal_root(total: np.ndarray, count: int, eps: float) -> np.ndarray:
    """One over the root of a mean, given its total, which is overwritten."""
    total /= count
    total += eps
    np.sqrt(total, total)
    return np.divide(1.0, total, total)


def _layer_norm(x: Any, weight: Any, bias: Any, rank: int, eps: float) -> tuple[np.ndarray, ...]:
    axes = _last(x, rank)
    count = prod(x.shape[-rank:])
    mean = np.add.reduce(x, axes, keepdims=True)
    mean /= count
    y = x - mean
    squares = np.add.reduce(y * y, axes, keepdims=True)
    overflow = squares - squares  # NaN where the squares overflow, as in PyTorch, else zero
    rstd = _reciprocal_root(squares, count, eps)
    rstd += overflow
    y *= rstd
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return y, mean, rstd


def _layer_norm_rule(
    g: Any, x: Any, weight: Any, mean: Any, rstd: Any, needs: Any, rank: int
) -> tuple[Any, ...]:
    """The statistics are outputs of their own, so their gradients make any order exact."""
    gy, g_mean, g_rstd = g
    normal = (x - mean) * rstd
    gx = None
    if needs[0]:
        dims, count = _last(x, rank), prod(x.shape[-rank:])
        inner = gy if weight is None else gy * weight
        shift = (g_mean - rstd * sum_op(inner, dim=dims, keepdim=True)) / count
        along = rstd * sum_op(inner * normal, dim=dims, keepdim=True) + g_rstd * rstd * rstd
        gx = inner * rstd + shift - normal * (along / count)
    return gx, gy * normal if needs[1] else None, gy if needs[2] else None


def _norm_batch(b: BatchedCall) -> Any:
    """Weights that differ from example to example are applied behind the norm."""
    x, weights = b.lead(0), b.args[1:]
    if not any(b.on[1:]):
        return b.run(x, *weights, **b.attrs)
    out = b.run(x, *(None for _ in weights), **b.attrs)
    y, rank = out[0], b.attrs["rank"]
    between = (1,) * (x._a.ndim - 1 - rank)
    for k, name in enumerate(b.op.names[1:], 1):
        if b.args[k] is None:
            continue
        part = b.lead(k)
        part = part.reshape(b.size, *between, *part._a.shape[1:])
        y = y * part if name == "weight" else y + part
    return (y, *out[1:])


layer_norm_op = general(
    "native_layer_norm",
    _layer_norm,
    joint=_layer_norm_rule,
    names=("x", "weight", "bias"),
    outputs=("y", "mean", "rstd"),
    inner_outputs=(1, 2),
    promote="same",
    samples=lambda m: [
        Sample((m.real(3, 4), m.real(4), m.real(4)), {"rank": 1, "eps": 1e-5}),
        Sample((m.real(2, 2, 3), m.real(2, 3), m.real(2, 3)), {"rank": 2, "eps": 1e-3}),
        Sample((m.real(2, 3), None, None), {"rank": 1, "eps": 1e-5}),
    ],
    layout="rows or last",
    shape=lambda x, rank: [shape_rules.in_rows(x), *[(*x.shape[:-rank], *(1,) * rank)] * 2],
    batch=_norm_batch,
    wide_rules=True,
)


def _check_shape(
    input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None = None
) -> tuple[int, ...]:
    shape = api.shape_argument((normalized_shape,))
    if (
        (weight is None or weight._a.shape == shape)
        and (bias is None or bias._a.shape == shape)
        and input._a.shape[-len(shape) :] == shape != ()
    ):
        return shape
    if not shape:
        refuse("Expected normalized_shape to be at least 1-dimensional, but got an empty one")
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part._a.shape != shape:
            refuse(
                f"Expected {name} to be of same shape as normalized_shape, but got {name} of "
                f"shape {list(part._a.shape)} and normalized_shape = {list(shape)}"
            )
    if input._a.shape[-len(shape) :] != shape:
        refuse(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*, {', '.join(map(str, shape))}], but got input of size{list(input._a.shape)}"
        )
    return shape


@api.top
def native_layer_norm(
    input: Tensor, normalized_shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[Tensor, ...]:
    """Layer norm with the means and reciprocal deviations that it used."""
    need_float(input, "LayerNormKernelImpl")
    shape = _check_shape(input, normalized_shape, weight, bias)
    _check_types(input, weight, bias)
    attrs = {"rank": len(shape), "eps": eps}
    y, mean, rstd = apply(layer_norm_op, (input, weight, bias), attrs, shown=1)
    return _like_input(y, input), mean.detach(), rstd.detach()


def _check_types(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Refuse parameters of another dtype, except float32 ones of half inputs."""
    d = input._a.dtype
    if (weight is None or weight._a.dtype == d) and (bias is None or bias._a.dtype == d):
        return
    first, second = (bias, None) if weight is None else (weight, bias)
    assert first is not None
    if MODES.now.autocast is not None:
        return
    if first._a.dtype == d:
        assert second is not None
        refuse(
            f"expected scalar type {scalar_name(input.dtype)} but found "
            f"{scalar_name(second.dtype)}: weight and bias of a norm must have one dtype"
        )
    if first._a.dtype != np.float32 or (second is not None and second._a.dtype != np.float32):
        refuse(
            "mixed dtype (CPU): expect parameter to have scalar type of Float, or that of the "
            f"input, {scalar_name(input.dtype)}; convert the parameters with .to({input.dtype!r})"
        )
    if d not in dt.HALF:
        refuse(
            "mixed dtype (CPU): all inputs must share same datatype. The input is "
            f"{scalar_name(input.dtype)} and its parameters are {scalar_name(first.dtype)}; "
            f"convert them with .to({input.dtype!r})"
        )


def _like_input(y: Tensor, input: Tensor) -> Tensor:
    """A result in the dtype of the input: half values may come with float32 parameters."""
    return y.to(input.dtype) if y._a.dtype != input._a.dtype else y


@api.under("nn.functional")
def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Shift and scale the last dimensions to mean zero and variance one."""
    need_float(input, "LayerNormKernelImpl")
    shape = _check_shape(input, normalized_shape, weight, bias)
    _check_types(input, weight, bias)
    attrs = {"rank": len(shape), "eps": eps}
    return _like_input(apply(layer_norm_op, (input, weight, bias), attrs, shown=1)[0], input)


@api.top(name="layer_norm")
def _top_layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """Shift and scale the last dimensions to mean zero and variance one."""
    return layer_norm(input, normalized_shape, weight, bias, eps)


def _rms_norm(x: np.ndarray, weight: Any, rank: int, eps: float) -> tuple[np.ndarray, np.ndarray]:
    axes = _last(x, rank)
    square = x * x
    total = np.add.reduce(square, axes, keepdims=True)
    rstd = _reciprocal_root(total, prod(x.shape[-rank:]), eps)
    y = np.multiply(x, rstd, out=square)
    if weight is not None:
        y *= weight
    return y, rstd


def _rms_norm_rule(g: Any, x: Any, weight: Any, rstd: Any, needs: Any, rank: int) -> Any:
    gy, g_rstd = g
    if isinstance(rstd, Tensor) and not x.requires_grad:
        rstd = rstd.detach()  # it hangs on x alone, whatever else the node has for inputs
    normal = x * rstd
    gx = None
    if needs[0]:
        inner = gy if weight is None else gy * weight
        along = rstd * sum_op(inner * normal, dim=_last(x, rank), keepdim=True)
        gx = inner * rstd - normal * ((along + g_rstd * rstd * rstd) / prod(x.shape[-rank:]))
    return gx, gy * normal if needs[1] else None


rms_norm_op = general(
    "fused_rms_norm",
    _rms_norm,
    joint=_rms_norm_rule,
    names=("x", "weight"),
    outputs=("y", "rstd"),
    inner_outputs=(1,),
    promote="same",
    samples=lambda m: [
        Sample((m.real(3, 4), m.real(4)), {"rank": 1, "eps": 1e-5}),
        Sample((m.real(2, 2, 3), None), {"rank": 2, "eps": 1e-3}),
    ],
    layout="rows or last",
    shape=lambda x, rank: [x.of(x.dtype), (*x.shape[:-rank], *(1,) * rank)],
    batch=_norm_batch,
    wide_rules=True,
)


@api.top
@api.under("nn.functional")
def rms_norm(
    input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Divide by the root of the mean square over the last dimensions."""
    shape = _check_shape(input, normalized_shape, weight)
    if eps is None:
        wide = dt.float32 if input._a.dtype in dt.HALF else input.dtype
        eps = dt.finfo(wide).eps
    if input._a.dtype.kind != "c":
        need_float(input, "rms_norm")
        attrs = {"rank": len(shape), "eps": eps}
        return _like_input(apply(rms_norm_op, (input, weight), attrs, shown=1)[0], input)
    # Complex numbers are squared without their conjugate, so all is analytic.
    input = input.contiguous()
    y = input * ((input * input).mean(_last(input, len(shape)), keepdim=True) + eps).rsqrt()
    return y if weight is None else _like_input(y * weight, input)


# --- over batches ----------------------------------------------------------------------


def _other_dims(x: Any) -> tuple[int, ...]:
    return (0, *range(2, len(x.shape)))


def _along_channels(value: Any, rank: int) -> Any:
    """A value for each channel, shaped to broadcast over ``rank`` dimensions."""
    return reshape_op(value, shape=(1, value.shape[0]) + (1,) * (rank - 2))


def _affine(y: np.ndarray, weight: Any, bias: Any) -> np.ndarray:
    # A vector of channels broadcasts over the rows of a matrix as it is.
    if weight is not None:
        y *= weight if y.ndim == 2 else _along_channels(weight, y.ndim)
    if bias is not None:
        y += bias if y.ndim == 2 else _along_channels(bias, y.ndim)
    return y


def _batch_norm(x: Any, weight: Any, bias: Any, eps: float) -> tuple[np.ndarray, ...]:
    axes = _other_dims(x)
    count = x.size // max(x.shape[1], 1)
    mean = np.add.reduce(x, axes, keepdims=True)
    mean /= count
    y = x - mean
    var = np.add.reduce(y * y, axes, keepdims=True)
    var /= count
    y *= 1.0 / np.sqrt(var + eps)
    return _affine(y, weight, bias), mean.reshape(-1), var.reshape(-1)


def _batch_norm_rule(
    g: Any, x: Any, weight: Any, mean: Any, var: Any, needs: Any, eps: float
) -> tuple[Any, ...]:
    """The statistics are outputs of their own, so their gradients make any order exact."""
    gy, g_mean, g_var = g
    rank, dims = len(x.shape), _other_dims(x)
    rstd = (var + eps) ** -0.5
    centred = x - _along_channels(mean, rank)
    along = sum_op(gy * centred, dim=dims, keepdim=False) * rstd
    total = sum_op(gy, dim=dims, keepdim=False)
    gx = None
    if needs[0]:
        count = max(prod(x.shape[i] for i in dims), 1)
        scale = rstd if weight is None else rstd * weight
        shift = (g_mean - scale * total) / count
        slope = (2.0 * g_var - scale * rstd * along) / count
        gx = (
            gy * _along_channels(scale, rank)
            + centred * _along_channels(slope, rank)
            + _along_channels(shift, rank)
        )
    return gx, along if needs[1] else None, total if needs[2] else None


batch_norm_op = general(
    "native_batch_norm",
    _batch_norm,
    joint=_batch_norm_rule,
    names=("x", "weight", "bias"),
    outputs=("y", "mean", "var"),
    inner_outputs=(1, 2),
    promote="same",
    samples=lambda m: [
        Sample((m.real(4, 2), m.real(2), m.real(2)), {"eps": 1e-5}),
        Sample((m.real(2, 3, 2, 2), m.real(3), m.real(3)), {"eps": 1e-3}),
        Sample((m.real(3, 2, 2), None, None), {"eps": 1e-5}),
    ],
    layout="rows or last",
    shape=lambda x: [x.of(x.dtype), x.shape[1:2], x.shape[1:2]],
    wide_rules=True,
)


def _batch_norm_fixed(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, eps: float
) -> np.ndarray:
    y = x - _along_channels(mean, x.ndim)
    y *= _along_channels(1.0 / np.sqrt(var + eps), x.ndim)
    return _affine(y, weight, bias)


def _batch_norm_fixed_rule(
    g: Any, x: Any, weight: Any, mean: Any, var: Any, needs: Any, eps: float
) -> tuple[Any, ...]:
    rank, dims = len(g.shape), _other_dims(g)
    rstd = (var + eps) ** -0.5
    scale = rstd if weight is None else rstd * weight
    gx = gw = gm = gv = None
    if needs[0]:
        gx = g * _along_channels(scale, rank)
    total = sum_op(g, dim=dims, keepdim=False)
    if needs[1] or needs[4]:
        along = sum_op(g * (x - _along_channels(mean, rank)), dim=dims, keepdim=False)
        gw = along * rstd
        gv = along * scale * rstd * rstd * -0.5
    if needs[3]:
        gm = total * -scale
    return gx, gw, total, gm, gv


batch_norm_fixed_op = general(
    "batch_norm_fixed",
    _batch_norm_fixed,
    joint=_batch_norm_fixed_rule,
    names=("x", "weight", "bias", "mean", "var"),
    promote="same",
    grad_name="NativeBatchNormBackward",
    samples=lambda m: [
        Sample((m.real(2, 3, 2), m.real(3), m.real(3), np.ones(3), np.ones(3)), {"eps": 1e-5}),
    ],
    layout="rows or last",
    shape=shape_rules.same,
)
batch_norm_fixed_op.edges = ("x", "weight", "bias")


def _check_channels(channels: int, **parts: Any) -> None:
    for name, part in parts.items():
        if part is not None and part._a.size != channels:
            refuse(f"{name} should contain {channels} elements not {part._a.size}")


def _check_running(running: Tensor, input: Tensor, parameter: Tensor | None) -> None:
    """Refuse running statistics that are not a vector, or of another dtype than the parameters."""
    if running._a.ndim != 1:
        refuse(f"running statistics are vectors, but one has {running._a.ndim} dimensions")
    d = running._a.dtype
    like = input if parameter is None else parameter
    half = parameter is None and input._a.dtype in dt.HALF and d == np.float32
    if d != like._a.dtype and not half and MODES.now.autocast is None:
        refuse(
            f"expected scalar type {scalar_name(like.dtype)} but found "
            f"{scalar_name(running.dtype)}: the dtype of running statistics is that of weight "
            "and bias, or that of the input"
        )


def _running_step(running: Any, value: Any, keep: float, share: float) -> Any:
    return running * keep + value * share


# A step of a running statistic towards the batch's, which is not differentiable. How far it goes
# are operands, since they may be others in each call.
running_step_op = constant(
    "running_step",
    _running_step,
    names=("running", "value", "keep", "share"),
    promote="same",
    lower=_running_step,
    shape=lambda running, value: broadcast(running.shape, value.shape),
)


_step_over = fast_over(running_step_op)


def _move(running: Tensor, value: Tensor, momentum: float, scale: float = 1.0) -> None:
    _step_over(running, value, keep=1.0 - momentum, share=momentum * scale)


def _normalize_batch(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The result, and in training the mean and the variance of the batch."""
    if input._a.size:
        need_float(input, "batch_norm")
    else:
        # Nothing to compute statistics of, so the running ones are unchanged; the graph continues
        # as in PyTorch.
        y = input.clone()
        y = y if weight is None else y * weight[0]
        return y if bias is None else y + bias[0], None, None
    if input.ndim < 2:
        refuse(f"batch_norm expects an input of at least 2 dimensions, got {input.ndim}")
    channels = input._a.shape[1]
    for part in (running_mean, running_var, weight, bias):
        if part is not None and part._a.size != channels:
            _check_channels(
                channels,
                running_mean=running_mean,
                running_var=running_var,
                weight=weight,
                bias=bias,
            )
    _check_types(input, weight, bias)
    for running in (running_mean, running_var):
        if running is not None:
            _check_running(running, input, bias if weight is None else weight)
    weight, bias = (p if p is None or p._a.ndim == 1 else p.reshape(-1) for p in (weight, bias))
    if not training:
        if running_mean is None or running_var is None:
            name = "running_mean" if running_mean is None else "running_var"
            refuse(f"{name} must be defined in evaluation mode")
        y = batch_norm_fixed_op(
            input, weight, bias, running_mean.detach(), running_var.detach(), eps=eps
        )
        return y, None, None
    y, mean, var = apply(batch_norm_op, (input, weight, bias), {"eps": eps}, shown=1)
    if running_mean is not None:
        _move(running_mean, mean, momentum)
    if running_var is not None:
        count = input._a.size // max(input._a.shape[1], 1)
        _move(running_var, var, momentum, count / max(count - 1, 1))
    return y, mean, var


@api.under("nn.functional")
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel by the batch's statistics or by the running ones."""
    if training:
        shape = input._a.shape
        if prod(shape[:1] + shape[2:]) == 1:
            refuse(
                "Expected more than 1 value per channel when training, got input size "
                f"{input.shape!r}",
                ValueError,
            )
        if eps <= 0:
            refuse(f"batch_norm eps must be positive during training, but got {eps}", ValueError)
    y = _normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)[0]
    return _like_input(y, input)


@api.top(name="batch_norm")
def _top_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalise each channel by the batch's statistics or by the running ones."""
    return _normalize_batch(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )[0]


@api.top
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm with the means and reciprocal deviations that it used."""
    y, mean, var = _normalize_batch(
        input, running_mean, running_var, weight, bias, training, momentum, eps
    )
    if not input._a.size:
        refuse(
            "input tensor must have at least one element, but got input_sizes = "
            f"{list(input._a.shape)}"
        )
    if mean is None or var is None:
        empty = input.detach().reshape(-1)[:0]
        return _like_input(y, input), empty, empty
    return _like_input(y, input), mean.detach(), (var.detach() + eps) ** -0.5


# --- over groups and instances ---------------------------------------------------------


scale_shift_op = elementwise(
    "scale_shift",
    lambda a, b, c: a * b + c,
    lambda t, b: t * b,
    lambda t, a: t * a,
    lambda t: t,
    public=False,
)


@api.top
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm with the means and reciprocal deviations that it used."""
    need_float(input, "GroupNormKernelImpl")
    _check_types(input, weight, bias)
    if input._a.dtype in dt.HALF:
        # Computed in float32 and rounded once, and so are the gradients.
        parts = [None if p is None else p.to(dt.float32) for p in (input, weight, bias)]
        y, mean, rstd = native_group_norm(*parts, N, C, HxW, group, eps)  # type: ignore[arg-type]
        d = input.dtype if weight is None else weight.dtype
        return y.to(input.dtype), mean.to(d), rstd.to(d)
    rows = input.reshape(N, group, C // group * HxW)
    y, mean, rstd = layer_norm_op(rows, None, None, rank=1, eps=eps)
    y = api.apart(y.reshape(input._a.shape))  # to its users it is not a view of those rows
    if weight is not None and bias is not None:
        # One node: a backward that finds its values used up has given the bias nothing either.
        scale, shift = (_along_channels(p, input.ndim) for p in (weight, bias))
        y = apply(scale_shift_op, (y, scale, shift), NO_ATTRS)
    elif weight is not None:
        y = y * _along_channels(weight, input.ndim)
    elif bias is not None:
        y = y + _along_channels(bias, input.ndim)
    return y, api.apart(mean.reshape(N, group)), api.apart(rstd.reshape(N, group))


@api.under("nn.functional")
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise groups of channels of each sample."""
    shape = input._a.shape
    if len(shape) >= 2:
        sizes = [shape[0] * shape[1] // num_groups, num_groups, *shape[2:]]
        if sizes[0] * prod(shape[2:]) == 1:
            refuse(
                f"Expected more than 1 value per channel when training, got input size {sizes}",
                ValueError,
            )
    return _top_group_norm(input, num_groups, weight, bias, eps)


@api.top(name="group_norm")
def _top_group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalise groups of channels of each sample."""
    shape = input._a.shape
    if len(shape) < 2:
        refuse(f"Expected at least 2 dimensions for input tensor but received {len(shape)}")
    if shape[1] % num_groups:
        refuse(
            "Expected number of channels in input to be divisible by num_groups, but got input "
            f"of shape {list(shape)} and num_groups={num_groups}"
        )
    for name, part in (("weight", weight), ("bias", bias)):
        if part is not None and part._a.shape != (shape[1],):
            refuse(
                f"Expected {name} to be a vector of size equal to the number of channels in "
                f"input, but got {name} of shape {list(part._a.shape)} and input of shape "
                f"{list(shape)}"
            )
    count = prod(shape[2:])
    half = input._a.dtype in dt.HALF
    mixed = half and any(p is not None and p._a.dtype == dt.F32 for p in (weight, bias))
    # Parameters in float32 ask for that precision; only the result is rounded.
    x = input.float() if mixed else input
    if not channels_wanted(model_of(x)):
        x = x.contiguous()  # of anything else a copy is kept, as in PyTorch
    y = native_group_norm(x, weight, bias, shape[0], shape[1], count, num_groups, eps)[0]
    return as_image(_like_input(y, input), input)


@api.under("nn.functional")
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Normalise each channel of each sample."""
    shape = input._a.shape
    if use_input_stats and prod(shape[2:]) == 1:
        refuse(
            f"Expected more than 1 spatial element when training, got input size {input.shape!r}",
            ValueError,
        )
    samples, channels = shape[:2]

    def repeated(name: str, part: Tensor | None) -> Any:
        if part is None:
            return None
        if part._a.shape != (channels,):
            refuse(
                f"{name} should contain {samples * channels} elements, {channels} for each sample: "
                f"its shape is {list(part._a.shape)}, not [{channels}]"
            )
        return part.expand(samples, channels).reshape(-1)

    # Every channel of every sample is a channel of one large sample.
    with no_grad():
        mean, var = (
            None if r is None else repeated("running statistics", r).clone()
            for r in (running_mean, running_var)
        )
        # Only a variance beside parameters has to be of their dtype, unless the input is half.
        parameter = bias if weight is None else weight
        like = input if parameter is None or input._a.dtype not in dt.HALF else parameter
        mean = None if mean is None else mean.to(like.dtype)
        if var is not None and (parameter is None or like is parameter):
            var = var.to(like.dtype)
    y = _normalize_batch(
        input.reshape(1, samples * channels, *shape[2:]),
        mean,
        var,
        repeated("weight", weight),
        repeated("bias", bias),
        use_input_stats,
        momentum,
        eps,
    )[0]
    if use_input_stats:
        with no_grad():
            for running, moved in ((running_mean, mean), (running_var, var)):
                if running is not None and moved is not None:
                    running.copy_(moved.reshape(samples, channels).mean(0))
    return _like_input(y.reshape(shape), input)


@api.top(name="instance_norm")
def _top_instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    """Normalise each channel of each sample."""
    return instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


# --- by neighbours and by length -------------------------------------------------------


@api.under("nn.functional")
def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """Divide each channel by a power of the mean square of its neighbours."""
    from weft.operators.pooling import avg_pool_op
    from weft.operators.views import place_op

    if input.ndim < 3:
        refuse(
            f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)", ValueError
        )
    if not input._a.size:
        return input
    shape = input._a.shape
    samples, channels, rest = shape[0], shape[1], prod(shape[2:])
    square = (input * input).reshape(samples, 1, channels, rest)
    before = size // 2
    wide = (samples, 1, channels + size - 1, rest)
    at = (slice(None), slice(None), slice(before, before + channels))
    square = place_op(square, shape=wide, index=at)
    mean = avg_pool_op(
        square,
        kernel=(size, 1),
        stride=(1, 1),
        padding=(0, 0),
        ceil_mode=False,
        count_include_pad=True,
        divisor_override=None,
    )
    return input / (mean.reshape(shape) * alpha + k) ** beta


@api.under("nn.functional")
def normalize(
    input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Any = None
) -> Tensor:
    """Divide by the p-norm along a dimension.

    >>> F.normalize(torch.tensor([[3.0, 4.0]]), dim=1)
    tensor([[0.6000, 0.8000]])
    """
    denominator = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    result = input / denominator
    return result if out is None else api.into(out, result, "normalize", input)
