"""Losses of classes and probabilities."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.batching import BatchedCall, each
from weft.core.devices import host, taken
from weft.core.dispatch import I64, Op, apply, apply_one
from weft.core.meta import no_values, plain
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, shape_rules
from weft.operators.activations import log_sigmoid_op
from weft.operators.along import counters, dropped_shape
from weft.operators.arguments import need_float, refuse, scalar_name
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, elementwise, general, linear
from weft.operators.gather import outside
from weft.operators.losses import reduced, reduction_of
from weft.operators.pointwise import log_op, sigmoid_op
from weft.operators.softmax import log_softmax_op
from weft.references import sequence as kernels

# --- class numbers ---------------------------------------------------------------------


def _places(
    shape: Any, target: np.ndarray, weight: Any, ignore_index: int, d: np.dtype
) -> tuple[tuple[Any, ...], np.ndarray | None]:
    """Where the targets' entries stand, and their weights unless all count alike."""
    axis = 1 if len(shape) > 1 else 0
    classes, rows = shape[axis], dropped_shape(shape, axis)
    place = target.reshape(rows).astype(np.int64, copy=False)
    used = None
    if 0 <= ignore_index < classes or outside(place, classes):
        used = place != ignore_index
        place = np.where(used, place, 0)
        if outside(place, classes):
            wrong = place[(place < 0) | (place >= classes)]
            raise IndexError(
                f"Target {wrong.flat[0]} is out of bounds. There are {classes} classes, so labels "
                f"go from 0 to {classes - 1}; ignore_index={ignore_index} is left out"
            )
    factor = None
    if weight is not None:
        factor = weight[place] if used is None else np.where(used, weight[place], 0)
        factor = factor.astype(d, copy=False)
    elif used is not None:
        factor = used.astype(d)
    others = counters(rows)
    return (*others[:axis], place, *others[axis:]), factor


def _nll(x: Any, target: Any, weight: Any, reduction: str, ignore_index: int) -> Any:
    index, factor = _places(x.shape, target, weight, ignore_index, x.dtype)
    loss = -x[index]
    if factor is not None:
        # A select, not only a product: what is ignored may be infinite.
        loss = np.where(factor != 0, loss * factor, 0).astype(x.dtype)
    if reduction == "none":
        return loss
    total = np.add.reduce(loss, axis=None)
    return total if reduction == "sum" else total / _total(factor, target, x.dtype)


def _total(factor: np.ndarray | None, target: np.ndarray, d: np.dtype) -> Any:
    return d.type(target.size) if factor is None else np.add.reduce(factor, axis=None)


def _nll_back(
    x: Any, target: Any, weight: Any, shape: Any, reduction: str, ignore_index: int
) -> np.ndarray:
    index, factor = _places(shape, target, weight, ignore_index, x.dtype)
    share = -x if factor is None else np.where(factor != 0, -x * factor, 0)
    if reduction == "mean":
        total = _total(factor, target, x.dtype)
        share = share / (total if total else 1)
    out = np.zeros(shape, x.dtype)
    out[index] = share
    return out


def _nll_samples(m: Any, back: bool = False) -> list[Sample]:
    found = []
    for shape, reduction in (((3, 4), "mean"), ((2, 3, 2), "sum"), ((2, 3, 2), "none")):
        target = m.integers(shape[0], *shape[2:], high=3)
        target[0] = -100
        x = m.real(*(target.shape if reduction == "none" else ())) if back else m.real(*shape)
        attrs = {"reduction": reduction, "ignore_index": -100}
        weight = np.linspace(0.5, 1.5, shape[1])
        found.append(Sample((x, target, weight), attrs | ({"shape": shape} if back else {})))
    return found


def _nll_loss_batch(b: BatchedCall) -> Any:
    """nll_loss: the examples are so many more rows; then each has a sum or a mean of its own."""
    if b.on[2] or not b.size:
        return each(b)
    x, target, reduction = b.lead(0), b.lead(1), b.attrs["reduction"]
    loss = _of_rows(b, x, target)
    if reduction == "none":
        return loss
    dims = tuple(range(1, loss._a.ndim))
    total = loss.sum(dims) if dims else loss
    return total if reduction == "sum" else total / _share(b, target, x._a.shape)


def _nll_loss_backward_batch(b: BatchedCall) -> Any:
    if b.on[2] or not b.size:
        return each(b)
    g, target, shape = b.lead(0), b.lead(1), (b.size, *b.attrs["shape"])
    if b.attrs["reduction"] != "none":
        if b.attrs["reduction"] == "mean":
            total = _share(b, target, shape)
            g = g / total.masked_fill(total == 0, 1)
        g = g.reshape(b.size, *(1,) * (target._a.ndim - 1)).expand(target._a.shape)
    return _of_rows(b, g, target, shape)


def _of_rows(b: BatchedCall, x: Tensor, target: Tensor, shape: Any = None) -> Any:
    """The op without a reduction, on the rows of all examples."""
    alone = target._a.ndim == 1  # an example is one row
    attrs = {**b.attrs, "reduction": "none"}
    if shape is not None:
        attrs["shape"] = shape if alone else (shape[0] * shape[1], *shape[2:])
    if alone:
        return b.run(x, target, b.args[2], **attrs)
    y = b.run(b.fold(x), b.fold(target), b.args[2], **attrs)
    return b.unfold(y, target._a.shape[1])


def _share(b: BatchedCall, target: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What the mean of each example divides by: the weights of the labels that count."""
    kind = b.logical[0]._a.dtype
    ones = BatchedCall.of(nll_loss_op, b, b.args, b.on)
    ones.attrs = {"ignore_index": b.attrs["ignore_index"]}
    used = _of_rows(ones, wrap(np.broadcast_to(np.array(-1, plain(kind)), shape)), target)
    dims = tuple(range(1, used._a.ndim))
    return used.sum(dims) if dims else used


nll_loss_op = linear(
    "nll_loss",
    _nll,
    lambda g, target, weight, x_shape, reduction, ignore_index: nll_loss_back_op(
        g, target, weight, shape=x_shape, reduction=reduction, ignore_index=ignore_index
    ),
    names=("x", "target", "weight"),
    promote="same",
    promote_args=(0, 2),
    samples=_nll_samples,
    rows=True,
    shape=lambda x, target, reduction: shape_rules.by_reduction(x, target.shape, reduction),
    batch=_nll_loss_batch,
    ties=True,
)
nll_loss_back_op: Op = linear(
    "nll_loss_backward",
    _nll_back,
    lambda g, target, weight, reduction, ignore_index: nll_loss_op(
        g, target, weight, reduction=reduction, ignore_index=ignore_index
    ),
    names=("x", "target", "weight"),
    promote="same",
    promote_args=(0, 2),
    samples=lambda m: _nll_samples(m, back=True),
    shape=shape_rules.shape_attribute,
    batch=_nll_loss_backward_batch,
)


def _check_classes(input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    shape, wanted = input._a.shape, target._a.shape
    if not shape:
        refuse("Expected 1 or more dimensions (got 0)", ValueError)
    if len(shape) == 1:
        if target.ndim == 1 and wanted[0] != 1:
            refuse(
                f"For 1D input, 1D target must have size 1, but got target size: {wanted[0]}",
                ValueError,
            )
    elif not wanted or shape[0] != wanted[0]:
        refuse(
            f"Expected input batch_size ({shape[0]}) to match target batch_size "
            f"({wanted[0] if wanted else 1}).",
            ValueError,
        )
    elif shape[:1] + shape[2:] != wanted:
        refuse(f"Expected target size {list(shape[:1] + shape[2:])}, got {list(wanted)}")
    if target._a.dtype is not I64 and target._a.dtype not in (np.int64, np.uint8):
        refuse(
            f"expected target dtype to be Long or Byte, but got {scalar_name(target.dtype)}: "
            "labels are whole numbers (target.long()); class probabilities need the shape of the "
            f"input, {list(shape)}"
        )
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and weight._a.shape != (classes,):
        refuse(
            f"weight tensor should be defined either for all {classes} classes or no classes but "
            f"got weight tensor of shape: {list(weight._a.shape)}"
        )


@api.under("nn.functional")
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negated log probabilities of the right classes, averaged by default.

    >>> log_probs = F.log_softmax(torch.tensor([[2.0, 0.5], [0.1, 3.0]]), dim=1)
    >>> F.nll_loss(log_probs, torch.tensor([0, 1]))
    tensor(0.1275)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    _check_classes(input, target, weight)
    need_float(input, "nll_loss_out_frame")
    attrs = {"reduction": reduction, "ignore_index": ignore_index}
    return apply(nll_loss_op, (input, target, weight), attrs)


@api.under("nn.functional")
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """The loss of scores against class numbers, or against probabilities of classes.

    >>> scores = torch.tensor([[2.0, 0.5], [0.1, 3.0]])
    >>> F.cross_entropy(scores, torch.tensor([0, 1]))
    tensor(0.1275)
    >>> F.cross_entropy(scores, torch.tensor([0, 1]), reduction="none")
    tensor([0.2014, 0.0536])
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if not 0.0 <= label_smoothing <= 1.0:
        refuse(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    need_float(input, "log_softmax_lastdim_kernel_impl")
    dim = 1 if input._a.ndim > 1 else 0
    if input._a.shape == target._a.shape:
        return _soft_targets(input, target, weight, ignore_index, reduction, label_smoothing, dim)
    _check_classes(input, target, weight)
    logs = apply_one(log_softmax_op, input, {"dim": dim})
    attrs = {"reduction": reduction, "ignore_index": ignore_index}
    loss = apply(nll_loss_op, (logs, target, weight), attrs)
    if label_smoothing == 0.0:
        return loss
    smooth = _smooth(logs, target, weight, ignore_index, reduction, dim)
    share = label_smoothing / input._a.shape[dim]
    return loss * (1.0 - label_smoothing) + smooth * share


def _over_classes(weight: Tensor, rank: int, dim: int) -> Tensor:
    return weight.reshape((1,) * dim + (-1,) + (1,) * (rank - dim - 1))


def _smooth(
    logs: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    dim: int,
) -> Tensor:
    """The loss against the uniform distribution."""
    weighted = logs if weight is None else logs * _over_classes(weight, logs.ndim, dim)
    loss = -weighted.sum(dim)
    used = target.reshape(loss._a.shape) != ignore_index
    loss = where_op(used, loss, 0.0)
    if reduction != "mean":
        return reduced(loss, reduction)
    if weight is None:
        return loss.sum() / used.sum()
    picked = weight[where_op(used, target.reshape(loss._a.shape), 0)]
    return loss.sum() / where_op(used, picked, 0.0).sum()


def _soft_targets(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
    smoothing: float,
    dim: int,
) -> Tensor:
    if target._a.dtype.kind in "iub":
        refuse(
            "Expected floating point type for target with class probabilities, got "
            f"{scalar_name(target.dtype)}"
        )
    if ignore_index >= 0:
        refuse("ignore_index is not supported for floating point target")
    classes = input._a.shape[dim]
    if weight is not None and weight._a.shape != (classes,):
        refuse(
            f"cross_entropy: weight tensor should be defined either for all {classes} classes or "
            f"no classes but got weight tensor of shape: {list(weight._a.shape)}"
        )
    if smoothing > 0.0:
        target = target * (1.0 - smoothing) + smoothing / classes
    logs = log_softmax_op(input, dim=dim) * target
    if weight is not None:
        logs = logs * _over_classes(weight, logs.ndim, dim)
    if reduction == "none":
        return -logs.sum(dim)
    total = -logs.sum()
    return total if reduction == "sum" else total / (input._a.size / max(classes, 1))


# --- two classes -----------------------------------------------------------------------


def _bce(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    for name, x in (("input", a), ("target", b)):
        if not ((x >= 0) & (x <= 1)).all():  # nor may it be NaN
            raise RuntimeError(f"all elements of {name} should be between 0 and 1")
    low = np.asarray(-100, a.dtype)
    return (b - 1) * np.maximum(np.log1p(-a), low) - b * np.maximum(np.log(a), low)


def _bounded_log(x: Any) -> Any:
    found = log_op(x)
    return where_op(found < -100.0, -100.0, found)


def _bce_rule(t: Any, a: Any, b: Any) -> Any:
    spread = (1.0 - a) * a
    return t * ((a - b) / where_op(spread < 1e-12, 1e-12, spread))


binary_cross_entropy_op = elementwise(
    "binary_cross_entropy",
    _bce,
    _bce_rule,
    lambda t, a: t * (_bounded_log(1.0 - a) - _bounded_log(a)),
    domain=(0.1, 0.9),
    public=False,
)


def _bce_logits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # Infinite logits must not meet in a difference.
    return (1 - b) * a - (np.minimum(a, 0) - np.log1p(np.exp(-np.abs(a))))


bce_with_logits_op = elementwise(
    "binary_cross_entropy_with_logits",
    _bce_logits,
    lambda t, a, b: t * (sigmoid_op(a) - b),
    lambda t, a: t * -a,
    public=False,
    refuses="biuc",
)


@api.under("nn.functional")
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The loss of probabilities against targets between 0 and 1.

    >>> F.binary_cross_entropy(torch.tensor([0.9, 0.2]), torch.tensor([1.0, 0.0]))
    tensor(0.1643)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target._a.shape != input._a.shape:
        refuse(
            f"Using a target size ({target.shape!r}) that is different to the input size "
            f"({input.shape!r}) is deprecated. Please ensure they have the same size.",
            ValueError,
        )
    need_float(input, "binary_cross_entropy")
    if target._a.dtype != input._a.dtype:
        found, wanted = scalar_name(target.dtype), scalar_name(input.dtype)
        refuse(f"Found dtype {found} but expected {wanted}; convert the target with .to()")
    loss = binary_cross_entropy_op(input, target)
    # Here, unlike in other losses, weights do not change the divisor of the mean.
    return reduced(loss if weight is None else loss * weight, reduction)


@api.under("nn.functional")
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """The loss of scores, through a sigmoid, against targets between 0 and 1.

    >>> scores, targets = torch.tensor([2.0, -1.0]), torch.tensor([1.0, 0.0])
    >>> F.binary_cross_entropy_with_logits(scores, targets)
    tensor(0.2201)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    if target._a.shape != input._a.shape:
        refuse(
            f"Target size ({target.shape!r}) must be the same as input size ({input.shape!r})",
            ValueError,
        )
    if not target.is_floating_point():
        refuse(
            "binary_cross_entropy_with_logits: result type "
            f"{scalar_name(input.dtype)} can't be cast to the desired output type "
            f"{scalar_name(target.dtype)}: the target must be floating point; write target.float()"
        )
    if pos_weight is None:
        loss = bce_with_logits_op(input, target)
    else:
        scale = (pos_weight - 1.0) * target + 1.0
        loss = (1.0 - target) * input + scale * bce_with_logits_op(input, 1.0)
    loss = loss if weight is None else loss * weight
    # PyTorch computes in the target's memory, so the loss has the target's type.
    return reduced(loss.to(target.dtype), reduction)


@api.top(name="binary_cross_entropy_with_logits")
def _top_bce_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """The same with the reduction as a number."""
    return binary_cross_entropy_with_logits(
        input, target, weight, reduction=("none", "mean", "sum")[reduction], pos_weight=pos_weight
    )


@api.under("nn.functional")
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The logistic loss of each class, averaged over the classes."""
    reduction = reduction_of(reduction, size_average, reduce)
    if target._a.dtype == input._a.dtype:
        loss = bce_with_logits_op(input, target)
    else:
        loss = -(target * log_sigmoid_op(input) + (1 - target) * log_sigmoid_op(-input))
    if weight is not None:
        loss = loss * weight
    classes = input.ndim - 1  # the target may have more dimensions
    return reduced(loss.sum(classes) / input._a.shape[classes], reduction)


@api.under("nn.functional")
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """The divergence of log probabilities from target probabilities."""
    batch = reduction == "batchmean"
    if size_average is not None or reduce is not None:
        reduction, batch = reduction_of(reduction, size_average, reduce), False
    elif reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support "
            "size.'batchmean' divides only by the batch size, and aligns with the KL div math "
            "definition.'mean' will be changed to behave the same as 'batchmean' in the next "
            "major release.",
            stacklevel=2,
        )
    for given in (input, target):
        kind = {"c": "Complex", "i": "Integral", "u": "Integral", "b": "Integral"}.get(
            given._a.dtype.kind
        )
        if kind:
            refuse(f"kl_div: {kind} inputs not supported.")
    if not batch:
        reduction_of(reduction)
    if log_target:
        loss = target.exp() * (target - input)
    else:
        loss = target.xlogy(target) - target * input
    if batch:
        return loss.sum() / input._a.shape[0] if input.ndim else loss.sum()
    return reduced(loss, reduction)


# --- sequences -------------------------------------------------------------------------


def _ctc_again(g: Any, needs: Any) -> Any:
    raise NotImplementedError("the second derivative of ctc_loss is not implemented")


# Without samples: the gradient is that for probabilities, so differences can't check it.
ctc_loss_op = general(
    "ctc_loss",
    lambda x, targets, inputs, labels, blank, zero_infinity: kernels.ctc_loss(
        x, targets, inputs, labels, blank, zero_infinity
    ),
    lambda g, x, targets, inputs, labels, alpha, blank, zero_infinity: ctc_loss_back_op(
        g[0], x, targets, inputs, labels, alpha, blank=blank, zero_infinity=zero_infinity
    ),
    names=("x", "targets", "inputs", "labels"),
    outputs=("y", "alpha"),
    constant_outputs=(1,),
    samples=None,
)
ctc_loss_back_op: Op = general(
    "ctc_loss_backward",
    lambda g_in, x, targets, inputs, labels, alpha, blank, zero_infinity: kernels.ctc_loss_grad(
        g_in, x, targets, inputs, labels, alpha, blank, zero_infinity
    ),
    joint=_ctc_again,
    names=("g_in", "x", "targets", "inputs", "labels", "alpha"),
    samples=None,
)


def _lengths(value: Any, count: int, name: str, like: Tensor) -> Tensor:
    array = taken(value) if isinstance(value, Tensor) else np.asarray(value, np.int64)
    if array.dtype.kind not in "iu":
        refuse(f"{name} must be integral")
    if array.size != count:
        refuse(f"{name} must be of size batch_size: got {array.size}, expected {count}")
    return beside(like, array.reshape(-1).astype(np.int64))


@api.under("nn.functional")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """The loss of writing target sequences somewhere within longer input sequences."""
    reduction = reduction_of(reduction)
    need_float(log_probs, "ctc_loss_cpu")
    batched = log_probs.ndim == 3
    x = log_probs if batched else log_probs.unsqueeze(1)
    steps, count, classes = x._a.shape
    if not 0 <= blank < classes:
        refuse("blank must be in label range")
    if log_probs.is_meta:
        raise no_values("ctc_loss")
    inputs = _lengths(input_lengths, count, "input_lengths", x)
    labels = _lengths(target_lengths, count, "target_lengths", x)
    for name, given in (("input_lengths", inputs), ("target_lengths", labels)):
        if host(given).min(initial=0) < 0:
            refuse(f"Expected {name} to have value at least 0, but got value {host(given).min()}")
    if host(inputs).max(initial=0) > steps:
        refuse(
            f"Expected input_lengths to have value at most {steps}, but got value "
            f"{host(inputs).max()}"
        )
    places = targets if batched or targets.ndim == 1 else targets.reshape(1, -1)
    if places.ndim == 2 and host(labels).max(initial=0) > places._a.shape[1]:
        refuse(
            f"Expected tensor to have size at least {host(labels).max()} at dimension 1, but got "
            f"size {list(places._a.shape)} for argument #2 'targets'"
        )
    if places.ndim == 1 and places._a.size != host(labels).sum():
        refuse(
            f"Expected tensor to have size {host(labels).sum()} at dimension 0, but got size "
            f"{places._a.size} for argument #2 'targets': the sum of target_lengths"
        )
    loss = ctc_loss_op(x, places, inputs, labels, blank=blank, zero_infinity=zero_infinity)[0]
    if reduction == "mean":
        return (loss / labels.clamp_min(1).to(loss.dtype)).mean()
    return reduced(loss if batched else loss.squeeze(0), reduction)


@api.top(name="ctc_loss")
def _top_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """The same with the reduction as a number."""
    return ctc_loss(
        log_probs,
        targets,
        input_lengths,
        target_lengths,
        blank,
        ("none", "mean", "sum")[reduction],
        zero_infinity,
    )


@api.under("nn.functional")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """Cross entropy of the scores that a linear layer makes of the input."""
    if input._a.ndim not in (1, 2):
        raise RuntimeError(
            "linear_cross_entropy: expected input with dimensionality 1 or 2, got "
            f"{input._a.ndim}\n  at {errors.here()}"
        )
    if input._a.ndim == 1 and linear_weight._a.ndim > 2:
        raise RuntimeError(
            "linear_cross_entropy: K-dimensional loss defined by linear_weight shape "
            f"{linear_weight._a.shape} requires batched input (N, {linear_weight._a.shape[-1]}), "
            f"got {input._a.shape}\n  at {errors.here()}"
        )
    # A weight of (C, d1, ..., features) makes scores for a K-dimensional loss.
    table = linear_weight.reshape(-1, linear_weight._a.shape[-1])
    shift = None if linear_bias is None else linear_bias.reshape(-1)
    scores = api.NAMESPACES["nn.functional"]["linear"](input, table, shift)
    scores = scores.reshape(*input._a.shape[:-1], *linear_weight._a.shape[:-1])
    place = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        scores,
        target,
        weight,
        ignore_index=place,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )
