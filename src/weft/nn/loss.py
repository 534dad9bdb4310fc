"""Losses as modules."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn.distance import PairwiseDistance
from weft.nn.linear import Linear
from weft.nn.module import Module


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """How to reduce, out of the old pair of switches if one was given."""
    if size_average is None and reduce is None:
        return reduction
    chosen = "none"
    if reduce is None or reduce:
        chosen = "mean" if size_average is None or size_average else "sum"
    warnings.warn(
        f"size_average and reduce args will be deprecated, please use reduction='{chosen}' "
        "instead.",
        stacklevel=5,
    )
    return chosen


class _Loss(Module):
    """A loss is a function, and the settings that it is called with."""

    _function: Callable
    _settings: tuple[str, ...] = ("reduction",)

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = _reduction(size_average, reduce, reduction)

    def _called(self, *inputs: Any) -> Tensor:
        """The function of these inputs and of the module's settings."""
        return self._function(*inputs, **{name: getattr(self, name) for name in self._settings})

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return self._called(input, target)


class _WeightedLoss(_Loss):
    """A loss with a weight for each class, or for each element."""

    _settings: tuple[str, ...] = ("weight", "reduction")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)


class L1Loss(_Loss):
    """The absolute difference."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.l1_loss)


class MSELoss(_Loss):
    """The squared difference.

    >>> nn.MSELoss()(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0]))
    tensor(2.)
    """

    __constants__ = ["reduction"]
    _function = staticmethod(F.mse_loss)


class SmoothL1Loss(_Loss):
    """Squared for small differences, absolute for large ones."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.smooth_l1_loss)
    _settings = ("reduction", "beta")

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta


class HuberLoss(_Loss):
    """Squared for small differences, linear for large ones."""

    __constants__ = ["reduction", "delta"]
    _function = staticmethod(F.huber_loss)
    _settings = ("reduction", "delta")

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        if not isinstance(delta, (float, int)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        super().__init__(reduction=reduction)
        self.delta = delta


class NLLLoss(_WeightedLoss):
    """The negative log-likelihood of the right classes.

    >>> log_probs = nn.LogSoftmax(dim=1)(torch.tensor([[2.0, 0.5], [0.1, 3.0]]))
    >>> nn.NLLLoss()(log_probs, torch.tensor([0, 1]))
    tensor(0.1275)
    """

    __constants__ = ["ignore_index", "reduction"]
    _function = staticmethod(F.nll_loss)
    _settings = ("weight", "ignore_index", "reduction")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index


class NLLLoss2d(NLLLoss):
    """The old name of NLLLoss for images."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`NLLLoss2d` has been deprecated. Please use `NLLLoss` instead as a drop-in "
            "replacement.",
            FutureWarning,
            stacklevel=2,
        )
        super().__init__(*args, **kwargs)


class CrossEntropyLoss(_WeightedLoss):
    """The cross entropy between scores and classes (or class probabilities).

    >>> loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    >>> scores = torch.tensor([[2.0, 0.5, 0.1]])
    >>> loss(scores, torch.tensor([0]))
    tensor(0.4301)
    """

    __constants__ = ["ignore_index", "reduction", "label_smoothing"]
    _function = staticmethod(F.cross_entropy)
    _settings = ("weight", "ignore_index", "reduction", "label_smoothing")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing


class LinearCrossEntropyOptions:
    """How a fused linear layer and cross entropy would be computed; kept, but not used here."""

    def __init__(
        self,
        allow_retain_graph: bool = False,
        batch_chunk_size: int | None = None,
        chunking_method: str | None = "auto",
        acc_policy: str = "auto",
        acc_dtype: Any = None,
    ) -> None:
        self.allow_retain_graph = allow_retain_graph
        self.batch_chunk_size = batch_chunk_size
        self.chunking_method = chunking_method
        self.acc_policy = acc_policy
        self.acc_dtype = acc_dtype

    def __repr__(self) -> str:
        settings = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items())
        return f"{type(self).__name__}({settings})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinearCrossEntropyOptions) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]


class LinearCrossEntropyLoss(_WeightedLoss):
    """A linear layer and the cross entropy of its scores."""

    __constants__ = [
        *("num_classes", "out_features", "reduction", "ignore_index", "label_smoothing")
    ]

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        if weight is not None and weight.shape != (num_classes,):
            raise RuntimeError(
                f"expected weight shape to be {(num_classes,)}, got {tuple(weight.shape)}"
            )
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(
                f"expected label_smoothing to be in range [0, 1], got {label_smoothing}"
            )
        super().__init__(weight, reduction=reduction)
        count = num_classes
        for n in out_features:
            count *= n
        self.linear = Linear(in_features, count, bias, device, dtype)
        self.num_classes = num_classes
        self.out_features = out_features
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        weight, bias = self.linear.weight, self.linear.bias
        if self.out_features:
            weight = weight.unflatten(0, (self.num_classes, *self.out_features))
            if bias is not None:
                bias = bias.unflatten(0, (self.num_classes, *self.out_features))
        return F.linear_cross_entropy(
            *(input, weight, target),
            linear_bias=bias,
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        """The sizes and settings."""
        return (
            f"in_features={self.linear.in_features}, num_classes={self.num_classes}, "
            f"out_features={self.out_features}, bias={self.linear.bias is not None}, "
            f"reduction={self.reduction}, ignore_index={self.ignore_index}, "
            f"label_smoothing={self.label_smoothing}, options={self.options}"
        )


class PoissonNLLLoss(_Loss):
    """The negative log-likelihood of counts."""

    __constants__ = ["log_input", "full", "eps", "reduction"]
    _function = staticmethod(F.poisson_nll_loss)
    _settings = ("log_input", "full", "eps", "reduction")

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: Any = None,
        eps: float = 1e-8,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        """The loss."""
        return self._called(log_input, target)


class GaussianNLLLoss(_Loss):
    """The negative log-likelihood of normal variables with a predicted variance."""

    __constants__ = ["full", "eps", "reduction"]
    _function = staticmethod(F.gaussian_nll_loss)
    _settings = ("full", "eps", "reduction")

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full = full
        self.eps = eps

    def forward(  # type: ignore[override]
        self, input: Tensor, target: Tensor, var: Any
    ) -> Tensor:
        """The loss."""
        return self._called(input, target, var)


class KLDivLoss(_Loss):
    """The Kullback-Leibler divergence."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.kl_div)
    _settings = ("reduction", "log_target")

    def __init__(
        self,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target


class BCELoss(_WeightedLoss):
    """The cross entropy of probabilities of two classes.

    >>> nn.BCELoss()(torch.tensor([0.9, 0.2]), torch.tensor([1.0, 0.0]))
    tensor(0.1643)
    """

    __constants__ = ["reduction"]
    _function = staticmethod(F.binary_cross_entropy)


class BCEWithLogitsLoss(_Loss):
    """The cross entropy of scores of two classes."""

    _function = staticmethod(F.binary_cross_entropy_with_logits)
    _settings = ("weight", "pos_weight", "reduction")

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)


class HingeEmbeddingLoss(_Loss):
    """A distance where the target is 1, a margin below it where it is -1."""

    __constants__ = ["margin", "reduction"]
    _function = staticmethod(F.hinge_embedding_loss)
    _settings = ("margin", "reduction")

    def __init__(
        self,
        margin: float = 1.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MultiLabelMarginLoss(_Loss):
    """A margin between the right classes and the others, for several right classes."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.multilabel_margin_loss)


class SoftMarginLoss(_Loss):
    """The logistic loss of two classes."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.soft_margin_loss)


class _PairLoss(_Loss):
    """A loss of two inputs with a margin between them."""

    __constants__ = ["margin", "reduction"]
    _settings = ("margin", "reduction")

    def __init__(
        self,
        margin: float = 0.0,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin

    def forward(  # type: ignore[override]
        self, input1: Tensor, input2: Tensor, target: Tensor
    ) -> Tensor:
        """The loss."""
        return self._called(input1, input2, target)


class CosineEmbeddingLoss(_PairLoss):
    """The cosine distance where the target is 1, a margin below it where it is -1."""

    _function = staticmethod(F.cosine_embedding_loss)


class MarginRankingLoss(_PairLoss):
    """A margin by which one input should be above the other."""

    _function = staticmethod(F.margin_ranking_loss)


class MultiLabelSoftMarginLoss(_WeightedLoss):
    """The logistic loss of several labels at once."""

    __constants__ = ["reduction"]
    _function = staticmethod(F.multilabel_soft_margin_loss)


class MultiMarginLoss(_WeightedLoss):
    """A margin between the right class and the others."""

    __constants__ = ["p", "margin", "reduction"]
    _function = staticmethod(F.multi_margin_loss)
    _settings = ("p", "margin", "weight", "reduction")

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(
                "MultiMarginLoss: expected weight to be None or 1D tensor, got "
                f"{weight.ndim}D instead"
            )
        self.p = p
        self.margin = margin


class TripletMarginLoss(_Loss):
    """The anchor should be nearer to the positive than to the negative, by a margin."""

    __constants__ = ["margin", "p", "eps", "swap", "reduction"]
    _function = staticmethod(F.triplet_margin_loss)
    _settings = ("margin", "p", "eps", "swap", "reduction")

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: Any = None,
        reduce: Any = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        _check_margin(self, margin)
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(  # type: ignore[override]
        self, anchor: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        """The loss."""
        return self._called(anchor, positive, negative)


def _check_margin(module: Module, margin: float) -> None:
    if margin <= 0:
        raise ValueError(
            f"{type(module).__name__}: expected margin to be greater than 0, got {margin} instead"
        )


class TripletMarginWithDistanceLoss(_Loss):
    """The triplet loss with a distance of one's own."""

    __constants__ = ["margin", "swap", "reduction"]
    _function = staticmethod(F.triplet_margin_with_distance_loss)
    _settings = ("distance_function", "margin", "swap", "reduction")

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        _check_margin(self, margin)
        self.distance_function: Any = (
            distance_function if distance_function is not None else PairwiseDistance()
        )
        self.margin = margin
        self.swap = swap

    def forward(  # type: ignore[override]
        self, anchor: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        """The loss."""
        return self._called(anchor, positive, negative)


class CTCLoss(_Loss):
    """The loss of sequences whose alignment to the input is not known."""

    __constants__ = ["blank", "reduction"]
    _function = staticmethod(F.ctc_loss)
    _settings = ("blank", "reduction", "zero_infinity")

    def __init__(
        self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False
    ) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(  # type: ignore[override]
        self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any
    ) -> Tensor:
        """The loss."""
        return self._called(log_probs, targets, input_lengths, target_lengths)
