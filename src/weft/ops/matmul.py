"""Products of matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import errors
from weft.core.tensor import Tensor
from weft.ops import api
from weft.ops.arithmetic import conj_op
from weft.ops.build import Sample, linear
from weft.ops.views import transpose_op


def adjoint(x: Any) -> Any:
    """The conjugate transpose of the last two dimensions, on arrays and tensors."""
    rank = len(x.shape)
    turned = transpose_op(x, dim0=rank - 2, dim1=rank - 1)
    array = x._a if isinstance(x, Tensor) else x
    return conj_op(turned) if array.dtype.kind == "c" else turned


mm_op = linear(
    "mm",
    np.matmul,
    lambda g, b: mm_op(g, adjoint(b)),
    lambda g, a: mm_op(adjoint(a), g),
    names=("a", "b"),
    promote="same",
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(3, 4))),
        Sample((m.real(2, 0), m.real(0, 4))),
    ],
)


@api.both(out=True)
def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    if input.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError(
            f"mm: self and mat2 must be matrices, got {list(input.shape)} and {list(mat2.shape)}; "
            f"use matmul() for other ranks\n  at {errors.here()}"
        )
    return mm_op(input, mat2)


@api.both(out=True)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """The matrix product with PyTorch's rules for vectors and batches."""
    return mm(input, other)


Tensor.__matmul__ = lambda self, other: matmul(self, other)  # type: ignore[attr-defined]
