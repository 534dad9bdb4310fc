"""Sums and other reductions over dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.tensor import Tensor
from weft.ops import api
from weft.ops.build import Sample, linear
from weft.ops.views import expand_op, reshape_op


def kept_shape(shape: tuple[int, ...], dim: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the reduced dimensions kept at length one."""
    return tuple(1 if i in dim else n for i, n in enumerate(shape))


def spread(g: Any, shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced value repeated over the dimensions that were reduced."""
    if not keepdim:
        g = reshape_op(g, shape=kept_shape(shape, dim))
    return expand_op(g, shape=shape)


def _sum(x: np.ndarray, dim: tuple[int, ...], keepdim: bool, variant: int = 0) -> np.ndarray:
    return np.add.reduce(x, axis=dim, keepdims=keepdim) if x.ndim else x.copy()


sum_op = linear(
    "sum",
    _sum,
    lambda g, x_shape, dim, keepdim: spread(g, x_shape, dim, keepdim),
    promote="same",
    variant=lambda attrs: attrs.get("variant", 0),
    samples=lambda m: [
        Sample((m.real(2, 3, 4),), {"dim": (0, 2), "keepdim": False}),
        Sample((m.real(2, 3),), {"dim": (1,), "keepdim": True}),
        Sample((m.real(0, 3),), {"dim": (0,), "keepdim": False}),
        Sample((m.real(),), {"dim": (), "keepdim": False}),
    ],
)


@api.both(out=True)
def sum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over all elements or over some dimensions."""
    if dtype is not None:
        input = input.to(dtype)
    elif input._a.dtype.kind in "iub":
        input = input.to(dt.int64)
    if dim is None or dim == () or dim == []:
        return sum_op(input, dim=tuple(range(input._a.ndim)), keepdim=keepdim)
    return sum_op(input, dim=api.dims(dim, input._a.ndim), keepdim=keepdim, variant=1)
