"""What the distributions share: broadcasting of parameters, probabilities and logits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from numbers import Number
from typing import Any, NoReturn

import weft
import weft.nn.functional as F
from weft.core import errors
from weft.core.tensor import Tensor

euler_constant = 0.57721566490153286060

__all__ = [
    "broadcast_all",
    "clamp_probs",
    "lazy_property",
    "logits_to_probs",
    "probs_to_logits",
    "tril_matrix_to_vec",
    "vec_to_tril_matrix",
]


def refuse(message: str, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise an error that names the user's line."""
    raise kind(f"{message}\n  at {errors.here()}")


def broadcast_all(*values: Any) -> tuple[Tensor, ...]:
    """Numbers and tensors as tensors of one shape; numbers take the dtype of the tensors."""
    if not all(isinstance(v, (Tensor, Number)) for v in values):
        refuse(
            "Input arguments must all be instances of Number, torch.Tensor or objects "
            "implementing __torch_function__."
        )
    if not all(isinstance(v, Tensor) for v in values):
        first = next((v for v in values if isinstance(v, Tensor)), None)
        dtype = weft.get_default_dtype() if first is None else first.dtype
        device = None if first is None else first.device
        values = tuple(
            v if isinstance(v, Tensor) else weft.tensor(v, dtype=dtype, device=device)
            for v in values
        )
    shape = weft.broadcast_shapes(*(v.shape for v in values))
    # A parameter that has the shape already stays the user's own tensor, with its gradient.
    return tuple(v if v.shape == shape else v.expand(shape) for v in values)


def unit_normal(shape: Any, like: Tensor) -> Tensor:
    """Draws of the standard normal law in a tensor's dtype."""
    zeros = weft.zeros(shape, dtype=like.dtype, device=like.device)
    return weft.normal(zeros, weft.ones(shape, dtype=like.dtype, device=like.device))


def uniform(shape: Any, like: Tensor) -> Tensor:
    """Draws from [0, 1) in a tensor's dtype."""
    return weft.rand(shape, dtype=like.dtype, device=like.device)


def sum_rightmost(value: Any, count: int) -> Any:
    """The sum over the last dimensions."""
    if count == 0:
        return value
    return value.reshape((*value.shape[:-count], -1)).sum(-1)


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities from log-odds, or from unnormalised log-probabilities."""
    return weft.sigmoid(logits) if is_binary else F.softmax(logits, dim=-1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities kept off 0 and 1, so that their logarithms are finite."""
    eps = weft.finfo(probs.dtype).eps
    return probs.clamp(min=eps, max=1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Log-odds, or log-probabilities, from probabilities."""
    clamped = clamp_probs(probs)
    return clamped.log() - (-clamped).log1p() if is_binary else clamped.log()


class lazy_property:
    """A property that is computed when first asked for, and kept."""

    def __init__(self, wrapped: Callable) -> None:
        self.wrapped = wrapped
        functools.update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        # What is kept must carry its history also when it was first asked for in no_grad.
        with weft.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def one_of_probs_and_logits(probs: Any, logits: Any) -> None:
    """Refuse both and neither."""
    if (probs is None) == (logits is None):
        refuse("Either `probs` or `logits` must be specified, but not both.")


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The lower triangle of matrices as vectors, row by row."""
    n = mat.shape[-1]
    if diag < -n or diag >= n:
        refuse(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = weft.tril_indices(n, n, offset=diag)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """Vectors as the lower triangles of matrices, row by row."""
    # A triangle that ends at diagonal d of an n x n matrix has (n + d)(n + d + 1) / 2 places.
    length = vec.shape[-1]
    n = -(1 + 2 * diag) + math.sqrt((1 + 2 * diag) ** 2 + 8 * length + 4 * abs(diag) * (diag + 1))
    n /= 2
    if not math.isclose(round(n), n, abs_tol=1e-8):
        refuse(
            f"The size of last dimension is {length} which cannot be expressed as "
            "the lower triangular part of a square D x D matrix."
        )
    size = round(n)
    rows, columns = weft.tril_indices(size, size, offset=diag)
    mat = weft.zeros((*vec.shape[:-1], size, size), dtype=vec.dtype)
    mat[..., rows, columns] = vec
    return mat
