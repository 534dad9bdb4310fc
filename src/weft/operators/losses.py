"""Losses of real targets: by distance, by margin, by likelihood."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import foreign
from weft.core.batching import BatchedCall, each
from weft.core.devices import host, taken
from weft.core.meta import lacks_values
from weft.core.modes import no_grad
from weft.core.pending import model_of
from weft.core.tensor import Tensor, beside
from weft.operators import api, shape_rules
from weft.operators.arguments import need_float, refuse, scalar_name
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, general

# --- reductions ------------------------------------------------------------------------


def reduction_of(
    reduction: str, size_average: bool | None = None, reduce: bool | None = None
) -> str:
    """The reduction that the arguments ask for, old ones among them."""
    if size_average is not None or reduce is not None:
        average = size_average is None or size_average
        reduction = "none" if reduce is False else ("mean" if average else "sum")
        warnings.warn(
            "size_average and reduce args will be deprecated, please use "
            f"reduction='{reduction}' instead.",
            stacklevel=3,
        )
    if reduction not in ("none", "mean", "sum"):
        refuse(f"{reduction} is not a valid value for reduction", ValueError)
    return reduction


def reduced(loss: Tensor, reduction: str, weight: Tensor | None = None) -> Tensor:
    """A loss for each element, weighted and brought to its reduction."""
    if weight is not None:
        loss = loss * weight
        if reduction == "mean":
            return loss.sum() / weight.expand(loss._a.shape).sum()
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


def reduce_array(values: np.ndarray, reduction: str) -> Any:
    """The same for arrays, inside references."""
    if reduction == "none":
        return values
    total = np.add.reduce(values, axis=None)
    return total if reduction == "sum" else total / np.asarray(values.size, values.dtype)


def same_shape(input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in their common shape, with PyTorch's warning if they had two."""
    if input._a.shape == target._a.shape:
        return input, target
    warnings.warn(
        f"Using a target size ({target.shape!r}) that is different to the input size "
        f"({input.shape!r}). This will likely lead to incorrect results due to broadcasting. "
        "Please ensure they have the same size.",
        stacklevel=3,
    )
    input, target = together(input, target)
    return input, target


def together(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
    shapes = [t._a.shape for t in tensors]
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        refuse(f"The shapes {', '.join(str(list(s)) for s in shapes)} do not broadcast")
    return tuple(t if t._a.shape == shape else t.expand(shape) for t in tensors)


# --- distances of pairs ----------------------------------------------------------------


def _pair_loss_batch(b: BatchedCall) -> Any:
    """Losses that are summed up or averaged over an example, and not over the batch."""
    reduction = b.attrs["reduction"]
    ranks = {x._a.ndim for x in b.logical if isinstance(x, Tensor)}
    if len(ranks) > 1 or reduction not in ("none", "mean", "sum"):
        return each(b)
    y = b.run(*b.leads(), **{**b.attrs, "reduction": "none"})
    if reduction == "none":
        return y
    dims = tuple(range(1, y._a.ndim))
    if not dims:
        return y
    return y.mean(dims) if reduction == "mean" else y.sum(dims)


def _pair_loss(name: str, value: Callable, slope: Callable, samples: list[dict]) -> Any:
    """A loss of the difference of two equal shapes, reduced in the same op."""

    def reference(a: np.ndarray, b: np.ndarray, reduction: str, width: float) -> Any:
        return reduce_array(value(a - b, width), reduction)

    def rule(g: Any, a: Any, b: Any, reduction: str, width: float) -> Any:
        if reduction == "mean":
            g = g / max(math.prod(a.shape), 1)
        return g * slope(a - b, width)

    def tangent(t: Any, a: Any, b: Any, reduction: str, width: float) -> Any:
        moved = t * slope(a - b, width)
        if reduction == "none":
            return moved
        return moved.sum() if reduction == "sum" else moved.mean()

    return general(
        name,
        reference,
        rule,
        lambda g, a, b, reduction, width: -rule(g, a, b, reduction, width),
        names=("a", "b"),
        jvp=(tangent, lambda t, a, b, reduction, width: -tangent(t, a, b, reduction, width)),
        promote="same",
        samples=lambda m: [Sample((m.real(2, 3), m.real(2, 3)), attrs) for attrs in samples],
        shape=shape_rules.difference,
        batch=_pair_loss_batch,
    )


def _reductions(*widths: float) -> list[dict]:
    return [{"reduction": r, "width": w} for r in ("none", "mean", "sum") for w in widths]


def _sign(x: Any) -> Any:
    return where_op(x > 0, 1.0, where_op(x < 0, -1.0, 0.0 * x))


def _smooth_value(d: np.ndarray, width: float) -> np.ndarray:
    size = np.abs(d)
    if width == 0:
        return size
    return np.where(size < width, 0.5 * d * d / width, size - 0.5 * width)


def _smooth_slope(d: Any, width: float) -> Any:
    if width == 0:
        return _sign(d)
    return where_op((d < width) & (d > -width), d / width, _sign(d))


def _huber_value(d: np.ndarray, width: float) -> np.ndarray:
    size = np.abs(d)
    return np.where(size <= width, 0.5 * d * d, width * (size - 0.5 * width))


mse_loss_op = _pair_loss(
    "mse_loss", lambda d, width: d * d, lambda d, width: 2.0 * d, _reductions(0.0)
)
smooth_l1_loss_op = _pair_loss(
    "smooth_l1_loss", _smooth_value, _smooth_slope, _reductions(1.0, 0.5)
)
huber_loss_op = _pair_loss(
    "huber_loss",
    _huber_value,
    lambda d, width: where_op((d <= width) & (d >= -width), d, _sign(d) * width),
    _reductions(1.0, 0.5),
)


@api.under("nn.functional")
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The squared differences, averaged by default.

    >>> F.mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    tensor(2.)
    >>> F.mse_loss(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]), reduction="sum")
    tensor(4.)
    """
    reduction = reduction_of(reduction, size_average, reduce)
    input, target = same_shape(input, target)
    if input._a.dtype.kind in "iub" and target._a.dtype.kind not in "iub":
        input = input.to(target.dtype)
    need_float(input, "mse_cpu")
    if weight is None:
        return mse_loss_op(input, target, reduction=reduction, width=0.0)
    return reduced(mse_loss_op(input, target, reduction="none", width=0.0), reduction, weight)


@api.under("nn.functional")
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """The absolute differences, averaged by default."""
    reduction = reduction_of(reduction, size_average, reduce)
    input, target = same_shape(input, target)
    return reduced((input - target).abs(), reduction, weight)


@api.under("nn.functional")
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """Squared differences below ``beta``, absolute ones above, averaged by default."""
    reduction = reduction_of(reduction, size_average, reduce)
    input, target = same_shape(input, target)
    if not beta >= 0:
        refuse("smooth_l1_loss does not support negative values for beta.")
    if not input.is_floating_point() and target.is_floating_point():
        input = input.to(target.dtype)
    need_float(input, "smooth_l1_cpu")
    return smooth_l1_loss_op(input, target, reduction=reduction, width=beta)


@api.under("nn.functional")
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: Tensor | None = None,
) -> Tensor:
    """Squared differences up to ``delta``, ``delta`` times absolute ones above."""
    reduction = reduction_of(reduction)
    input, target = same_shape(input, target)
    if not delta > 0:
        refuse("huber_loss does not support non-positive values for delta.")
    need_float(input, "huber_cpu")
    if target._a.dtype != input._a.dtype:
        # In the type of both, then rounded to that of the input.
        if target.is_complex():
            refuse(
                f"result type ComplexFloat can't be cast to the desired output type "
                f"{dt.TYPE_NAMES[input.dtype.name]}"
            )
        loss = huber_loss_op(input, target, reduction="none", width=delta).to(input.dtype)
        return reduced(loss, reduction, weight)
    if weight is None:
        return huber_loss_op(input, target, reduction=reduction, width=delta)
    return reduced(huber_loss_op(input, target, reduction="none", width=delta), reduction, weight)


# --- angles and distances --------------------------------------------------------------


@api.top
@api.under("nn.functional")
def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between two vectors along a dimension."""
    x1, x2 = together(x1, x2)
    common = dt.of_numpy(dt.result_dtype((model_of(x1), model_of(x2))))
    if not common.is_floating_point:
        refuse(
            "expected common dtype to be floating point, yet common dtype is "
            f"{dt.TYPE_NAMES[common.name]}"
        )
    x1, x2 = x1.to(common), x2.to(common)
    first = x1.norm(2, dim, keepdim=True).clamp_min(eps)
    second = x2.norm(2, dim, keepdim=True).clamp_min(eps)
    return ((x1 / first) * (x2 / second)).sum(dim)


@api.top
@api.under("nn.functional")
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of the differences of the vectors in the last dimension."""
    x1, x2 = together(x1, x2)
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


# --- margins ---------------------------------------------------------------------------


def _above(x: Tensor, bound: float = 0.0) -> Tensor:
    return x.clamp_min(bound)


def _positive(x: Tensor) -> Tensor:
    """The same above zero, but zero for NaN, as a comparison in PyTorch's loops gives it."""
    return where_op(x > 0, x, 0.0)


@api.top
@api.under("nn.functional")
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The input where the target is 1, what is missing to the margin where it is -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    foreign.refuse(target)
    # In the input's own type, which for half types is PyTorch's rounding.
    missing = where_op(target != 1, _above(api.as_tensor_like(margin, input) - input, 0), 0)
    return reduced(missing + where_op(target != -1, input, 0), reduction)


@api.top
@api.under("nn.functional")
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """One minus the cosine where the target is 1, the cosine above a margin where it is -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    if target.ndim not in (0, 1):
        refuse(
            "0D or 1D target tensor expected, multi-target not supported; got a target of size "
            f"{list(target._a.shape)}"
        )
    if target.ndim == 1 and (input1.ndim != 2 or input2.ndim != 2):
        refuse(
            "1D target tensor expects 2D input tensors, but found inputs with sizes "
            f"{list(input1._a.shape)} and {list(input2._a.shape)}"
        )
    if target.ndim == 0 and (input1.ndim != 1 or input2.ndim != 1):
        refuse(
            "0D target tensor expects 1D input tensors, but found inputs with sizes "
            f"{list(input1._a.shape)} and {list(input2._a.shape)}"
        )
    dim = target.ndim
    product = (input1 * input2).sum(dim)
    first = (input1 * input1).sum(dim) + 1e-12
    second = (input2 * input2).sum(dim) + 1e-12
    cosine = product / (first * second).sqrt()
    loss = where_op(target == 1, 1.0 - cosine, 0.0)
    return reduced(loss + where_op(target == -1, _above(cosine - margin), 0.0), reduction)


@api.top
@api.under("nn.functional")
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What the one input lacks to exceed the other, as the target's sign says, by a margin."""
    reduction = reduction_of(reduction, size_average, reduce)
    if not input1.ndim == input2.ndim == target.ndim:
        refuse(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.shape!r}, input2: {input2.shape!r}, target: {target.shape!r} "
        )
    return reduced(_above(-target * (input1 - input2) + margin), reduction)


@api.under("nn.functional")
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The logistic loss of targets 1 and -1."""
    reduction = reduction_of(reduction, size_average, reduce)
    shape = together(input, target)[0]._a.shape
    if shape != input._a.shape:
        refuse(
            f"output with shape {list(input._a.shape)} doesn't match the broadcast shape "
            f"{list(shape)} of input and target"
        )
    if target.is_complex() > input.is_complex() or not (
        input.is_floating_point() or input.is_complex()
    ):
        found = target if target.is_complex() else input
        refuse(
            f"result type {'ComplexFloat' if found is target else 'Float'} can't be cast to the "
            f"desired output type {dt.TYPE_NAMES[input.dtype.name]}"
        )
    return reduced((-target.to(input.dtype) * input).exp().log1p(), reduction)


def _check_labels(input: Tensor, target: Tensor) -> None:
    if target._a.dtype != np.int64:
        refuse(f"expected scalar type Long but found {scalar_name(target.dtype)}")
    if input.ndim > 2 or target._a.shape != input._a.shape:
        refuse(
            f"inconsistent target size: {list(target._a.shape)} for input of size: "
            f"{list(input._a.shape)}"
        )


@api.under("nn.functional")
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What each class lacks to stay below the right one by a margin."""
    from weft.operators.entropy import nll_loss_op

    reduction = reduction_of(reduction, size_average, reduce)
    if p not in (1, 2):
        refuse("only p == 1 and p == 2 supported", ValueError)
    api.need_tensors("multi_margin_loss", target=target)
    need_float(input, "multi_margin_loss")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    labels = target.reshape(-1)
    if rows._a.shape[0] != labels._a.size:
        refuse(
            f"inconsistent target size, expected {rows._a.shape[0]} but got {list(target._a.shape)}"
        )
    if not rows._a.shape[1]:
        refuse(
            "Expected non-empty vector or matrix with optional 0-dim batch size, but got: "
            f"{list(input._a.shape)}"
        )
    if weight is not None and weight._a.ndim != 1:
        refuse(f"weight must be one-dimensional, not {list(weight._a.shape)}", ValueError)
    if weight is not None and weight._a.size != rows._a.shape[1]:
        refuse(
            f"inconsistent weight size, expected {rows._a.shape[1]} but got {list(weight._a.shape)}"
        )
    if labels._a.dtype != np.int64:
        refuse(f"multi_margin_loss: expected scalar type Long but found {labels.dtype}")
    right = -nll_loss_op(rows, labels, None, reduction="none", ignore_index=-100)
    lack = _positive(margin - right.unsqueeze(1) + rows)
    loss = lack if p == 1 else lack * lack
    if weight is not None:
        loss = loss * weight[labels].unsqueeze(1)
    classes = rows._a.shape[1]
    others = beside(labels, np.arange(classes)) != labels.unsqueeze(1)
    loss = where_op(others, loss, 0.0).sum(1) / classes
    # One sample has a loss without a dimension, unless its target has one.
    alone = input.ndim < 2 and not target.ndim
    return reduced(loss.squeeze(0) if alone else loss, reduction)


@api.under("nn.functional")
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What each wrong class lacks to stay below each right one by a margin of one."""
    reduction = reduction_of(reduction, size_average, reduce)
    _check_labels(input, target)
    need_float(input, "multilabel_margin_loss")
    rows = input.reshape(-1, input._a.shape[-1] if input.ndim else 1)
    if target.is_meta:
        return reduced((rows * 1.0).sum(1) if input.ndim == 2 else rows.sum(), reduction)
    labels = taken(target).reshape(rows._a.shape)
    if labels.size and (labels.min() < -1 or labels.max() >= labels.shape[1]):
        refuse(
            f"argument #2 'target' is out of range: labels are from 0 to {labels.shape[1] - 1}, "
            "and -1 ends them"
        )
    # The list of right classes ends at the first negative number.
    valid = np.logical_and.accumulate(labels >= 0, axis=1)
    places = np.where(valid, labels, 0)
    wrong = np.ones(labels.shape, bool)
    sample, column = np.nonzero(valid)
    wrong[sample, labels[sample, column]] = False
    right = rows.gather(1, beside(rows, places)).unsqueeze(2)
    counted = beside(rows, valid[:, :, None] & wrong[:, None, :])
    lack = where_op(counted, _positive(1.0 - right + rows.unsqueeze(1)), 0.0)
    loss = lack.sum((1, 2)) / max(labels.shape[1], 1)
    return reduced(loss if input.ndim == 2 else loss.squeeze(0), reduction)


@api.top
@api.under("nn.functional")
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """What the negative lacks to be farther from the anchor than the positive, by a margin."""
    reduction = reduction_of(reduction, size_average, reduce)
    if margin <= 0:
        refuse(f"margin must be greater than 0, got {margin}", ValueError)
    return _triplet(
        anchor,
        positive,
        negative,
        lambda a, b: pairwise_distance(a, b, p, eps),
        margin,
        swap,
        reduction,
    )


@api.under("nn.functional")
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """The triplet loss with a distance of one's own."""
    reduction_of(reduction)
    if margin <= 0:
        refuse(f"margin must be greater than 0, got {margin}", ValueError)
    distance = pairwise_distance if distance_function is None else distance_function
    return _triplet(anchor, positive, negative, distance, margin, swap, reduction)


def _triplet(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    distance: Callable,
    margin: float,
    swap: bool,
    reduction: str,
) -> Tensor:
    if not anchor.ndim == positive.ndim == negative.ndim:
        refuse(
            "The anchor, positive, and negative tensors are expected to have the same number of "
            f"dimensions, but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative "
            f"{negative.ndim}D inputs"
        )
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = far.minimum(distance(positive, negative))
    return reduced(_above(margin + near - far), reduction)


# --- likelihoods -----------------------------------------------------------------------


@api.top
@api.under("nn.functional")
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of Poisson counts."""
    reduction = reduction_of(reduction, size_average, reduce)
    loss = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        stirling = target * target.log() - target + 0.5 * (2.0 * math.pi * target).log()
        loss = loss + where_op(target <= 1, 0.0, stirling)
    return reduced(loss, reduction)


@api.under("nn.functional")
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """The negative log likelihood of normal values of a given variance."""
    if not lacks_values(var) and np.any((host(var) if isinstance(var, Tensor) else var) < 0):
        refuse("var has negative entry/entries", ValueError)
    shape = input._a.shape
    given = var if isinstance(var, Tensor) else beside(input, np.full(shape, var, input.dtype.np))
    if given._a.shape != shape:
        if shape[:-1] == given._a.shape:
            given = given.unsqueeze(-1)
        elif len(shape) != given._a.ndim or [
            one for n, one in zip(shape, given._a.shape, strict=True) if n != one
        ] != [1]:
            refuse("var is of incorrect size", ValueError)
    reduction_of(reduction)
    variance = given.clone()
    with no_grad():
        variance.clamp_(min=eps)
    loss = 0.5 * (variance.log() + (input - target) ** 2 / variance)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return reduced(loss, reduction)
