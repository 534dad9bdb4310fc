"""Norms of vectors and matrices, and distances between points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.devices import host
from weft.core.shapes import broadcast
from weft.core.tensor import Tensor, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, general, zeros_of
from weft.operators.factorizations import check_float, refuse
from weft.operators.linalg import inv_ex
from weft.operators.matmul import column, transposed, type_name
from weft.operators.pointwise import abs_op, sgn_op
from weft.operators.reductions import count_of, kept_shape, sum_op
from weft.operators.spectral import svdvals
from weft.operators.views import reshape_op

# --- vectors ---------------------------------------------------------------------------


def _vector_norm(x: np.ndarray, p: float, dim: tuple[int, ...], keepdim: bool) -> np.ndarray:
    if not x.ndim:
        dim = ()
    if p and count_of(x.shape, dim) == 1:  # no power of a single element can overflow
        return np.add.reduce(np.abs(x), axis=dim, keepdims=keepdim)
    if p == 2 and x.dtype.kind != "c":
        if len(dim) == x.ndim and not keepdim and x.dtype.kind == "f":
            flat = x.ravel(order="K")
            return np.sqrt(np.asarray(flat.dot(flat)))
        return np.sqrt(np.add.reduce(x * x, axis=dim, keepdims=keepdim))
    size = np.abs(x)
    if p == math.inf:
        return np.maximum.reduce(size, axis=dim, keepdims=keepdim)
    if p == -math.inf:
        return np.minimum.reduce(size, axis=dim, keepdims=keepdim)
    if p == 0:
        return np.add.reduce((size != 0).astype(size.dtype), axis=dim, keepdims=keepdim)
    if p == 1:
        return np.add.reduce(size, axis=dim, keepdims=keepdim)
    if p == 2:
        return np.sqrt(np.add.reduce(size * size, axis=dim, keepdims=keepdim))
    return np.add.reduce(size**p, axis=dim, keepdims=keepdim) ** (1.0 / p)


def norm_rule(g: Any, x: Any, y: Any, p: float, dim: tuple[int, ...], keepdim: bool) -> Any:
    """The gradient of a norm; zero where PyTorch's subgradient is."""
    if not keepdim:
        shape = kept_shape(x.shape, dim)
        g, y = reshape_op(g, shape=shape), reshape_op(y, shape=shape)
    if p == 0:
        return None  # as in PyTorch: no gradient, rather than zeros
    if p == 1:
        return sgn_op(x) * g
    # Where the norm is zero, so is every element: the divisor there only must not be zero.
    safe = where_op(y == 0, 1.0, y)
    if p == 2:
        return g * (x / safe)  # g / y can overflow where x / y does not
    if math.isinf(p):
        hit = abs_op(x) == y
        hit = where_op(hit | ((y != y) & (x != x)), 1.0, 0.0)
        return sgn_op(x) * (hit * (g / sum_op(hit, dim=dim, keepdim=True)))
    if p < 1:
        steep = where_op(x == 0, 1.0, abs_op(x)) ** (p - 1.0)
        return sgn_op(x) * (steep * (g * y ** (1.0 - p)))
    if p < 2:
        return (sgn_op(x) * abs_op(x) ** (p - 1.0)) * (g / safe ** (p - 1.0))
    return (x * (abs_op(x) if p == 3 else abs_op(x) ** (p - 2.0))) * (g / safe ** (p - 1.0))


def _norm_samples(m: Any) -> list[Sample]:
    return [
        *(
            Sample((m.real(2, 3),), {"p": p, "dim": (1,), "keepdim": False})
            for p in (0.5, 1.0, 1.5, 2.0, 3.0, math.inf, -math.inf)
        ),
        Sample((m.real(2, 3, 2),), {"p": 2.0, "dim": (0, 2), "keepdim": True}),
        Sample((m.real(4),), {"p": 2.0, "dim": (0,), "keepdim": False}),
        Sample((m.real(0, 3),), {"p": 2.0, "dim": (0,), "keepdim": False}),
    ]


vector_norm_op = general(
    "linalg_vector_norm",
    _vector_norm,
    norm_rule,
    promote="same",
    rows=True,
    samples=_norm_samples,
    shape=shape_rules.absolute,
    batch=batch_rules.along,
)


def _in_type(name: str, x: Tensor, dtype: Any) -> Tensor:
    """The input in the type that a norm is to be computed in."""
    if x._a.dtype.kind in "iub":
        raise refuse(
            f"{name}: Expected a floating point or complex tensor as input. Got {type_name(x)}; "
            "convert it with .float()"
        )
    if dtype is None:
        return x
    if x.is_complex() != dtype.is_complex or dtype.category < dt.dtype.FLOAT:
        kind = "complex" if x.is_complex() else "real"
        raise refuse(
            f"{name}: dtype should be a {kind} floating type for such an input, but got {dtype}"
        )
    return x.to(dtype)


@api.under("linalg", out=True)
def vector_norm(
    x: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The p-norm over all elements or over some dimensions."""
    name = "linalg.vector_norm"
    x = _in_type(name, x, dtype)
    dims = api.dims(None if api.no_dims(dim) else dim, x._a.ndim)
    if not x._a.ndim:
        dims = ()
    p = float(ord)
    if (p < 0 or p == math.inf) and any(x._a.shape[d] == 0 for d in dims):
        raise refuse(
            f"{name} cannot compute the {p:g} norm on an empty tensor because the operation "
            "does not have an identity"
        )
    return vector_norm_op(x, p=p, dim=dims, keepdim=keepdim)


# --- matrices --------------------------------------------------------------------------


def _matrix_dims(name: str, A: Tensor, dim: Any) -> tuple[int, int]:
    if A._a.ndim < 2:
        raise refuse(f"{name}: The input tensor A must have at least 2 dimensions.")
    given = tuple(dim)
    if len(given) != 2:
        raise refuse(f"{name}: dim must be a 2-tuple. Got {list(given)}")
    first, second = (api.wrap_dim(d, A._a.ndim) for d in given)
    if first == second:
        raise refuse(f"{name}: dims must be different. Got {given}")
    return first, second


@api.under("linalg", out=True)
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of matrices: Frobenius, nuclear, or by rows, columns or singular values."""
    name = "linalg.matrix_norm"
    A = _in_type(name, A, dtype)
    first, second = _matrix_dims(name, A, dim)
    if ord == "fro":
        return vector_norm(A, 2, (first, second), keepdim)
    if ord in (1, math.inf, 2) and 0 in (A._a.shape[first], A._a.shape[second]):
        # PyTorch counts an empty maximum of norms as zero.
        return A.abs().sum((first, second), keepdim)
    if ord in ("nuc", 2, -2):
        check_float(name, A)
        values = svdvals(A.movedim((first, second), (-2, -1)))
        if ord == "nuc":
            out = values.sum(-1)
        else:
            out = values.amax(-1) if ord == 2 else values.amin(-1)
        return reshape_op(out, shape=kept_shape(A._a.shape, (first, second))) if keepdim else out
    if ord not in (1, -1, math.inf, -math.inf):
        raise refuse(f"{name}: Order {ord} not supported.")
    summed, over = (first, second) if abs(ord) == 1 else (second, first)
    if not keepdim and over > summed:
        over -= 1
    sums = vector_norm(A, 1, summed, keepdim)
    return sums.amax(over, keepdim) if ord > 0 else sums.amin(over, keepdim)


@api.under("linalg", out=True)
def norm(
    A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of vectors or of matrices, by the number of dimensions given."""
    if dim is not None and not isinstance(dim, int):
        dim = tuple(dim)
        if len(dim) not in (1, 2) and ord is not None:
            raise refuse(
                f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dim)}"
            )
    if ord is None:
        return vector_norm(A, 2, dim, keepdim, dtype=dtype)
    if dim is None and A._a.ndim not in (1, 2):
        raise refuse(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A._a.ndim}D."
        )
    pair = (isinstance(dim, tuple) and len(dim) == 2) or (dim is None and A._a.ndim == 2)
    if pair:
        return matrix_norm(A, ord, (0, 1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise refuse(f"linalg.norm: Order {ord} needs two dimensions")
    return vector_norm(A, ord, dim, keepdim, dtype=dtype)


@api.top
def nuclear_norm(input: Tensor, dim: Any = (-2, -1), keepdim: bool = False) -> Tensor:
    """The sum of singular values."""
    return matrix_norm(input, "nuc", dim, keepdim)


@api.top
def frobenius_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares."""
    return vector_norm(input, 2, dim, keepdim)


@api.under("linalg", out=True)
def cond(A: Tensor, p: Any = None) -> Tensor:
    """How much a matrix amplifies relative errors."""
    if A._a.ndim < 2:
        raise refuse("linalg.cond: The input tensor A must have at least 2 dimensions.")
    check_float("linalg.cond", A)
    if p in (None, 2, -2):
        values = svdvals(A)
        if not A._a.size and 0 in A._a.shape[-2:]:
            return values.sum(-1)
        big, small = values[..., 0], values[..., -1]
        return small / big if p == -2 else big / small
    if A._a.shape[-1] != A._a.shape[-2]:
        raise refuse(
            f"linalg.cond(ord={p}): A must be batches of square matrices, but they are "
            f"{A._a.shape[-2]} by {A._a.shape[-1]} matrices"
        )
    if not A._a.shape[-1]:
        return zeros_of(A.abs(), A._a.shape[:-2])
    inverse, info = inv_ex(A)
    out = matrix_norm(A, p) * matrix_norm(inverse, p)
    return out if info.is_meta or not host(info).any() else where_op(info > 0, math.inf, out)


# --- distances -------------------------------------------------------------------------


def _euclidean(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # In chunks of the first points, so that differences never fill the memory.
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    out = np.empty((*lead, a.shape[-2], b.shape[-2]), a.dtype)
    step = max(1, 2_000_000 // max(1, math.prod((*lead, *b.shape[-2:]))))
    for start in range(0, a.shape[-2], step):
        gap = a[..., start : start + step, None, :] - b[..., None, :, :]
        out[..., start : start + step, :] = np.sqrt(np.einsum("...k,...k->...", gap, gap))
    return out


def _euclidean_mm(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    square = (a * a).sum(-1)[..., :, None] + (b * b).sum(-1)[..., None, :]
    square -= 2 * (a @ b.swapaxes(-2, -1))
    return np.sqrt(np.maximum(square, 0, out=square))


def _euclidean_rule(g: Any, needs: Any, a: Any, b: Any, y: Any) -> tuple[Any, Any]:
    ratio = where_op(y == 0, 0.0, g / where_op(y == 0, 1.0, y))
    last = len(ratio.shape) - 1
    ga = gb = None
    if needs[0]:
        ga = a * column(sum_op(ratio, dim=(last,), keepdim=False)) - ratio @ b
    if needs[1]:
        gb = b * column(sum_op(ratio, dim=(last - 1,), keepdim=False)) - transposed(ratio) @ a
    return ga, gb


euclidean_op = general(
    "cdist",
    lambda a, b, by_product: _euclidean_mm(a, b) if by_product else _euclidean(a, b),
    joint=_euclidean_rule,
    names=("a", "b"),
    samples=lambda m: [
        Sample((m.real(3, 2), m.real(4, 2)), {"by_product": False}),
        Sample((m.real(2, 3, 2), m.real(2, 2)), {"by_product": True}),
        Sample((m.real(0, 2), m.real(3, 2)), {"by_product": False}),
    ],
    shape=lambda a, b: (*broadcast(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]),
)


def _count_of(gap: Tensor) -> Tensor:
    """How many coordinates differ; NaN where one of them is not known."""
    return gap.abs().ceil().clamp(max=1).sum(-1)


MM_MODES = (
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
)


@api.top
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor:
    """The p-norm distances between all pairs of points of two sets."""
    for k, x in ((1, x1), (2, x2)):
        if x._a.ndim < 2:
            raise refuse(f"cdist only supports at least 2D tensors, X{k} got: {x._a.ndim}D")
        if not x.dtype.is_floating_point:
            raise refuse(f"cdist only supports floating-point dtypes, X{k} got: {type_name(x)}")
    if x1._a.shape[-1] != x2._a.shape[-1]:
        raise refuse(
            "X1 and X2 must have the same number of columns. X1: "
            f"{x1._a.shape[-1]} X2: {x2._a.shape[-1]}"
        )
    if not p >= 0:
        raise refuse("cdist only supports non-negative p values")
    if x1._a.dtype != x2._a.dtype:
        raise refuse(f"expected scalar type {type_name(x1)} but found {type_name(x2)}")
    if compute_mode is not None and compute_mode not in MM_MODES:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    if x1._a.dtype in dt.HALF and x2._a.dtype == x1._a.dtype:
        return cdist(x1.float(), x2.float(), p, compute_mode).to(x1.dtype)
    if p == 2:
        many = x1._a.shape[-2] > 25 or x2._a.shape[-2] > 25
        by_product = compute_mode == MM_MODES[1] or (compute_mode in (None, MM_MODES[0]) and many)
        return euclidean_op(x1, x2, by_product=by_product)
    gap = x1.unsqueeze(-2) - x2.unsqueeze(-3)
    if p == 0:
        return _count_of(gap)
    return vector_norm_op(gap, p=float(p), dim=(gap._a.ndim - 1,), keepdim=False)


@api.top
def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances between all pairs of rows, each pair once."""
    if input._a.ndim != 2:
        raise refuse(f"pdist only supports 2D tensors, got: {input._a.ndim}D")
    if not input.is_floating_point():
        raise refuse("pdist only supports floating-point dtypes")
    if p < 0:
        raise refuse("pdist only supports non-negative p values")
    first, second = (wrap(k) for k in np.triu_indices(input._a.shape[0], 1))
    gap = input[first] - input[second]
    if p == 0:
        return _count_of(gap)
    return vector_norm_op(gap, p=float(p), dim=(1,), keepdim=False)


api.under("nn.functional", pdist)
