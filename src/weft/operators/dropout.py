"""Dropout in PyTorch's random stream."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np

from weft.core.meta import empty as meta_empty
from weft.core.meta import plain
from weft.core.pending import reads_metadata
from weft.core.short import fast_binary
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api
from weft.operators.arguments import generator, probability, refuse
from weft.operators.build import elementwise
from weft.operators.views import empty_in_layout

# The limit of selu for large negative inputs, which alpha dropout writes instead of a value.
_ALPHA = 1.7580993408473766


# A product, under a name of its own: a graph shows that it is dropout.
dropout_op = elementwise(
    "dropout", np.multiply, lambda t, noise: t * noise, lambda t, x: t * x, public=False,
    names=("x", "noise"), grad_name="MulBackward",
)  # fmt: skip
_drop = fast_binary(dropout_op)


def _noise(input: Tensor, shape: tuple[int, ...], keep: float, one: float = 1.0) -> Tensor:
    """Zeros and ones (or what stands for them) in the order of memory, as PyTorch draws them."""
    array = input._a
    if input.is_meta:
        return wrap(meta_empty(shape, array.dtype))
    if shape == array.shape and not array.flags.c_contiguous and _is_view(input):
        d = plain(array.dtype)
        out = empty_in_layout(shape, d, array.strides)
        order = sorted(range(out.ndim), key=lambda i: -out.strides[i])
        drawn = generator().bernoulli(keep, tuple(shape[i] for i in order), d, one)
        return beside(input, drawn).permute(*np.argsort(order).tolist())
    return beside(input, generator().bernoulli(keep, shape, plain(array.dtype), one))


def _is_view(x: Tensor) -> bool:
    return x._a.base is not None


reads_metadata(_is_view)


@functools.lru_cache(256)
def _raised(keep: float, dtype: np.dtype) -> float:
    """What a kept element is multiplied with, rounded as a division in its dtype is."""
    wide = dtype if dtype.itemsize >= 4 else np.dtype(np.float32)
    return (wide.type(1.0) / wide.type(keep)).astype(dtype).item()


def _dropped(input: Tensor, p: float, training: bool, feature: bool, alpha: bool) -> Tensor:
    probability(p)
    if not input._a.size or not training or p == 0:
        return input
    if feature and input._a.ndim < 2:
        refuse("Feature dropout requires at least 2 dimensions in the input")
    if p == 1:
        return input * wrap(np.zeros((), input.dtype.np))
    shape = input._a.shape
    if feature:
        shape = shape[:2] + (1,) * (len(shape) - 2)
    if not alpha and input.is_floating_point():
        return _drop(input, _noise(input, shape, 1.0 - p, _raised(1.0 - p, input._a.dtype)))
    noise = _noise(input, shape, 1.0 - p)
    if not alpha:
        return input * noise.div_(1.0 - p)
    scale = 1.0 / np.sqrt((_ALPHA**2 * p + 1.0) * (1.0 - p))
    shift = (noise - 1.0) * float(_ALPHA * scale) + float(_ALPHA * scale * p)
    return input * (noise * float(scale)) + shift


def _public(name: str, feature: bool, alpha: bool) -> None:
    """Offer ``torch.<name>(input, p, train)`` with its in-place form."""

    def function(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
        return _dropped(input, p, train, feature, alpha)

    function.__name__ = name
    function.__doc__ = "Zero random elements in training and scale the others."
    api.top(function)

    def in_place(input: Tensor, p: float = 0.5, train: bool = False) -> Tensor:
        return api.change_by(input, name, function, (p, train), {})

    in_place.__name__, in_place.__doc__ = name + "_", f"``{name}`` in place."
    api.top(in_place)


for _name, _feature, _alpha in (
    ("dropout", False, False),
    ("feature_dropout", True, False),
    ("alpha_dropout", False, True),
    ("feature_alpha_dropout", True, True),
):
    _public(_name, _feature, _alpha)


def _either(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, feature: bool, alpha: bool
) -> Tensor:
    if inplace:
        return api.change_by(input, name, _dropped, (p, training, feature, alpha), {})
    return _dropped(input, p, training, feature, alpha)


@api.under("nn.functional")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Zero random elements in training and scale the others.

    >>> _ = torch.manual_seed(0)
    >>> F.dropout(torch.ones(6), p=0.5)
    tensor([0., 0., 2., 0., 0., 0.])
    >>> F.dropout(torch.ones(6), p=0.5, training=False)
    tensor([1., 1., 1., 1., 1., 1.])
    """
    return _either("dropout", input, p, training, inplace, False, False)


@api.under("nn.functional")
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout that keeps the mean and variance of selu's outputs."""
    return _either("alpha_dropout", input, p, training, inplace, False, True)


@api.under("nn.functional")
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels."""
    return _either("feature_alpha_dropout", input, p, training, inplace, True, True)


def _warn_rank(name: str, input: Tensor, usual: tuple[int, ...]) -> None:
    if input.ndim not in usual:
        warnings.warn(
            f"{name}: Received a {input.ndim}-D input to {name}, which is deprecated and will "
            "result in an error in a future release. To retain the behavior and silence this "
            "warning, please use dropout instead.",
            stacklevel=3,
        )


@api.under("nn.functional")
def dropout1d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of sequences."""
    probability(p)
    if input.ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input. Note that "
            "dropout1d exists to provide channel-wise dropout on inputs with 1 spatial "
            "dimension, a channel dimension, and an optional batch dimension"
        )
    return _channels("dropout1d", input, p, training, inplace, batched=input.ndim == 3)


@api.under("nn.functional")
def dropout2d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of images."""
    probability(p)
    _warn_rank("dropout2d", input, (3, 4))
    if input.ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout "
            "behavior is desired - input is interpreted as shape (N, C, L), where C is the channel "
            "dim. This behavior will change in a future release to interpret the input as one "
            "without a batch dimension, i.e. shape (C, H, W). To maintain the 1D channel-wise "
            "dropout behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _channels("dropout2d", input, p, training, inplace, batched=True)


@api.under("nn.functional")
def dropout3d(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Dropout of whole channels of volumes."""
    probability(p)
    _warn_rank("dropout3d", input, (4, 5))
    return _channels("dropout3d", input, p, training, inplace, batched=input.ndim == 5)


def _channels(
    name: str, input: Tensor, p: float, training: bool, inplace: bool, batched: bool
) -> Tensor:
    def drop(x: Tensor) -> Any:
        if batched:
            return _dropped(x, p, training, True, False)
        return _dropped(x.unsqueeze(0), p, training, True, False).squeeze(0)

    return api.change_by(input, name, drop, (), {}) if inplace else drop(input)
