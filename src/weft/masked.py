"""Reductions and normalizations that leave out the elements for which a mask is False."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as _dt
from weft.core import errors as _errors
from weft.core.tensor import Tensor
from weft.core.tensor import wrap as _wrap
from weft.operators import api as _api
from weft.operators.arithmetic import where_op as _where
from weft.operators.reductions import logsumexp_op as _logsumexp_op

__all__ = [
    *("amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp"),
    *("logsumexp", "mean", "median", "norm", "normalize", "prod", "softmax", "softmin", "std"),
    *("sum", "var"),
]


def _low(d: np.dtype) -> Any:
    """What no maximum takes notice of."""
    if d.kind == "b":
        return False
    return np.iinfo(d).min if d.kind in "iu" else -math.inf


def _high(d: np.dtype) -> Any:
    """What no minimum takes notice of."""
    if d.kind == "b":
        return True
    return np.iinfo(d).max if d.kind in "iu" else math.inf


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    """The input with a value instead of what the mask leaves out."""
    if mask is None:
        return input
    if mask._a.ndim > input._a.ndim:
        raise IndexError(
            "_input_mask expected broadcastable mask (got mask dimensionality higher than of the "
            f"input): {list(mask._a.shape)} and {list(input._a.shape)}\n  at {_errors.here()}"
        )
    return _where(mask, input, _wrap(np.asarray(value, input._a.dtype)))


def _typed(input: Tensor, dtype: Any, widen: bool = False) -> Tensor:
    if dtype is not None:
        return input.to(dtype)
    return input.to(_dt.int64) if widen and input._a.dtype.kind in "iub" else input


def _dims(input: Tensor, dim: Any) -> tuple[int, ...]:
    return tuple(sorted(_api.dims(None if dim == () else dim, input._a.ndim)))


def _count(input: Tensor, mask: Tensor | None, dims: tuple[int, ...]) -> Tensor:
    """How many elements each result is made of, with the dimensions kept."""
    if mask is None:
        mask = _wrap(np.ones(input._a.shape, bool))
    return mask.expand(input._a.shape).sum(dims, keepdim=True)


def _dropped(x: Tensor, dims: tuple[int, ...], keepdim: bool, input: Tensor) -> Tensor:
    return x if keepdim else _api.apart(x.squeeze(dims), input)


def sum(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The sum of what the mask leaves; zero of nothing."""
    x = _typed(input, dtype, widen=True)
    return _filled(x, mask, 0).sum(_dims(x, dim), keepdim=keepdim, dtype=dtype)


def prod(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The product of what the mask leaves; one of nothing."""
    x = _filled(_typed(input, dtype, widen=True), mask, 1)
    for d in reversed(_dims(x, dim)):
        x = x.prod(d, keepdim=keepdim)
    return x


def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running sums in which what is masked out counts as zero."""
    dtype = input.dtype if dtype is None else dtype
    return _filled(_typed(input, dtype), mask, 0).cumsum(dim, dtype=dtype)


def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Running products in which what is masked out counts as one."""
    dtype = input.dtype if dtype is None else dtype
    return _filled(_typed(input, dtype), mask, 1).cumprod(dim, dtype=dtype)


def amax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The maximum of what the mask leaves."""
    x = _typed(input, dtype)
    return _filled(x, mask, _low(x._a.dtype)).amax(_dims(x, dim), keepdim)


def amin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The minimum of what the mask leaves."""
    x = _typed(input, dtype)
    return _filled(x, mask, _high(x._a.dtype)).amin(_dims(x, dim), keepdim)


def argmax(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The index of the maximum of what the mask leaves, in the input's dtype."""
    x = _typed(input, dtype)
    return _filled(x, mask, _low(x._a.dtype)).argmax(dim, keepdim).to(x.dtype)


def argmin(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The index of the minimum of what the mask leaves, in the input's dtype."""
    x = _typed(input, dtype)
    return _filled(x, mask, _high(x._a.dtype)).argmin(dim, keepdim).to(x.dtype)


def mean(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The mean of what the mask leaves; NaN of nothing."""
    x = _typed(input, dtype)
    if x._a.dtype.kind in "iub":
        raise ValueError(
            "mean(): Could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {x.dtype}\n  at {_errors.here()}"
        )
    dims = _dims(x, dim)
    if mask is None:
        return x.mean(dims, keepdim)
    total = _filled(x, mask, 0).sum(dims, keepdim=True)
    return _dropped(total / _count(x, mask, dims), dims, keepdim, input)


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The lower median of what the mask leaves."""
    x = _typed(input, dtype)
    if mask is None:
        return x.median(dim, keepdim).values
    if x._a.dtype.kind in "iub":
        if not bool(mask.expand(x._a.shape).any(dim).all()):
            raise ValueError(
                "masked median expects no fully masked out rows if dtype is not floating point\n"
                f"  at {_errors.here()}"
            )
        found = _filled(x.double(), mask, math.nan).nanmedian(dim, keepdim).values
        return found.to(x.dtype)
    return _filled(x, mask, math.nan).nanmedian(dim, keepdim).values


def logsumexp(
    input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
) -> Tensor:
    """The logarithm of the sum of exponentials of what the mask leaves."""
    x = _typed(input, dtype)
    filled = _filled(x, mask, _low(x._a.dtype))
    return _logsumexp_op(filled, dim=_dims(x, dim), keepdim=keepdim).to(x.dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: Any = None,
    input_mask: Any = None,
    other_mask: Any = None,
) -> Tensor:
    """``log(exp(input) + exp(other))``, each with what its mask leaves."""
    a, b = _filled(input, input_mask, -math.inf), _filled(other, other_mask, -math.inf)
    return a.logaddexp(b).to(input.dtype if dtype is None else dtype)


def norm(
    input: Tensor,
    ord: Any = 2.0,
    dim: Any = None,
    *,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The vector norm of what the mask leaves."""
    x = _typed(input, dtype)
    neutral = math.inf if ord < 0 else 0
    return _filled(x, mask, neutral).norm(ord, _dims(x, dim), keepdim)


def _spread(
    input: Tensor,
    dim: Any,
    unbiased: Any,
    correction: Any,
    keepdim: bool,
    dtype: Any,
    mask: Any,
    root: bool,
) -> Tensor:
    x = _typed(input, dtype)
    if x._a.dtype.kind == "b":
        raise RuntimeError(
            "Subtraction, the `-` operator, with a bool tensor is not supported; convert it with "
            f".to(torch.float32) first\n  at {_errors.here()}"
        )
    if x._a.dtype.kind in "iu":
        x = x.to(_dt.get_default_dtype())
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    dims = _dims(x, dim)
    if mask is None:
        function = x.std if root else x.var
        return function(dims, correction=correction, keepdim=keepdim).to(x.dtype)
    count = _count(x, mask, dims)
    centred = x - _filled(x, mask, 0).sum(dims, keepdim=True) / count
    squares = centred * centred.conj()
    if squares.is_complex():
        squares = squares.real
    total = _filled(squares, mask, 0).sum(dims, keepdim=True)
    out = _dropped(total / (count - correction).clamp(min=0), dims, keepdim, input)
    return (out.sqrt() if root else out).to(x.dtype)


def var(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The variance of what the mask leaves."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, False)


def std(
    input: Tensor,
    dim: Any = None,
    unbiased: Any = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
    mask: Any = None,
) -> Tensor:
    """The standard deviation of what the mask leaves."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, True)


def softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Softmax over what the mask leaves; zero elsewhere."""
    return _filled(_typed(input, dtype), mask, -math.inf).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """The logarithm of the softmax over what the mask leaves."""
    return _filled(_typed(input, dtype), mask, -math.inf).log_softmax(dim)


def softmin(input: Tensor, dim: int, *, dtype: Any = None, mask: Any = None) -> Tensor:
    """Softmax of the negated input over what the mask leaves."""
    return (-_filled(_typed(input, dtype), mask, math.inf)).softmax(dim)


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: Any = None, mask: Any = None
) -> Tensor:
    """What the mask leaves divided by its norm, zero elsewhere."""
    x = _typed(input, dtype)
    size = norm(x, ord, dim, keepdim=True, mask=mask)
    return _filled(x, mask, 0) / size.clamp(min=eps)


def __getattr__(name: str) -> Any:
    return _api.missing("masked", name)
