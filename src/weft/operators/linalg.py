"""Linear systems, inverses, determinants and functions of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import host
from weft.core.meta import lacks_values
from weft.core.shapes import ShapeDtype, broadcast
from weft.core.tensor import Tensor, beside
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import result_type
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, constant, general, zeros_of
from weft.operators.factorizations import (
    LinAlgError,
    check_info,
    check_matrix,
    check_sides,
    check_square,
    check_types,
    cholesky,
    converged,
    each,
    lapack,
    qr,
    refuse,
    solve_triangular,
)
from weft.operators.matmul import adjoint, column, conjugate, is_complex, matmul, row, transposed
from weft.operators.reductions import prod_op
from weft.operators.spectral import eigh, linalg_svd_op, svd
from weft.operators.views import cat_op, imag_op

api.NAMESPACES.setdefault("linalg", {})["LinAlgError"] = LinAlgError

# --- linear systems --------------------------------------------------------------------


def _failures(x: np.ndarray) -> np.ndarray:
    """For each matrix the place of its first zero pivot, or zero."""

    def one(a: np.ndarray) -> tuple[np.int32]:
        return (np.int32(lapack("getrf", a.dtype)(a)[2] if a.size else 0),)

    return each(one, x)[0]


def _solve(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    try:
        return np.linalg.solve(a, b), np.zeros(lead, np.int32)
    except np.linalg.LinAlgError:
        info = np.broadcast_to(_failures(a), lead).copy()
    # The good matrices of the batch still get their solutions.
    safe = np.where(info[..., None, None] > 0, np.eye(a.shape[-1], dtype=a.dtype), a)
    out = np.linalg.solve(safe, b)
    out[info > 0] = np.nan
    return out, info


def _solve_rule(g: Any, needs: Any, a: Any, y: Any) -> tuple[Any, Any]:
    gb = solve_op(adjoint(a), g[0])[0]
    return -(gb @ adjoint(y)) if needs[0] else None, gb if needs[1] else None


solve_op = general(
    "linalg_solve_ex",
    _solve,
    joint=_solve_rule,
    names=("a", "b"),
    outputs=("y", "info"),
    constant_outputs=(1,),
    samples=lambda m: [
        Sample((m.real(3, 3) + 3 * np.eye(3), m.real(3, 2))),
        Sample((m.real(2, 2, 2) + 3 * np.eye(2), m.real(2, 1))),
        Sample((m.real(0, 2, 2), m.real(0, 2, 1))),
    ],
    shape=lambda a, b: [
        shape_rules.solved(a, b),
        ShapeDtype(broadcast(a.shape[:-2], b.shape[:-2]), np.int32),
    ],
    batch=batch_rules.leading,
)
solve_ex_result = result_type("linalg_solve_ex", "result", "info")


def is_vector(A: Tensor, B: Tensor) -> bool:
    """PyTorch's rule: B is one vector, or a batch of vectors just like A's batch."""
    a, b = A._a.shape, B._a.shape
    return len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])


def _solve_ex(name: str, A: Tensor, B: Tensor, left: bool) -> tuple[Tensor, Tensor]:
    check_square(name, A)
    check_types(name, A, B)
    vector = is_vector(A, B)
    if vector and not left:
        raise refuse(
            f"{name}: Vector broadcasting of the left hand side is not supported for "
            "left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
        )
    side = column(B) if vector else B
    check_sides(name, A, side, left)
    if left:
        result, info = solve_op(A, side)
    else:
        result, info = solve_op(transposed(A), transposed(side))
        result = transposed(result)
    return api.apart(result.reshape(result._a.shape[:-1]) if vector else result, A, B), info


@api.under("linalg", out=True)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> Any:
    """The solution of ``A X = B``, and for each matrix whether there is one."""
    result, info = _solve_ex("linalg.solve", A, B, left)
    if check_errors:
        _check_solved("torch.linalg.solve_ex", info)
    return solve_ex_result(result, info)


def _check_solved(name: str, info: Tensor) -> None:
    check_info(name, info, lambda k: "The solver failed because the input matrix is singular.")


@api.under("linalg", out=True)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """The solution of ``A X = B`` (or ``X A = B``) for square ``A``."""
    result, info = _solve_ex("linalg.solve", A, B, left)
    _check_solved("torch.linalg.solve", info)
    return result


def _inverse(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    try:
        return np.linalg.inv(x), np.zeros(x.shape[:-2], np.int32)
    except np.linalg.LinAlgError:
        return _solve(x, np.eye(x.shape[-1], dtype=x.dtype))


inverse_op = general(
    "linalg_inv_ex",
    _inverse,
    lambda g, y: -(adjoint(y) @ (g[0] @ adjoint(y))),
    outputs=("y", "info"),
    constant_outputs=(1,),
    samples=lambda m: [
        Sample((m.real(3, 3) + 3 * np.eye(3),)),
        Sample((m.real(2, 2, 2) + 3 * np.eye(2),)),
        Sample((m.real(2, 0, 0),)),
    ],
    shape=shape_rules.with_info,
    batch=batch_rules.leading,
)
inv_ex_result = result_type("linalg_inv_ex", "inverse", "info")


@api.under("linalg", out=True)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> Any:
    """The inverse, and for each matrix whether there is one."""
    check_square("linalg.inv", A)
    inverse, info = inverse_op(A)
    if check_errors:
        _check_inverse("torch.linalg.inv_ex", info)
    return inv_ex_result(inverse, info)


def _check_inverse(name: str, info: Tensor) -> None:
    check_info(
        name,
        info,
        lambda k: (
            f"The diagonal element {k} is zero, the inversion could not be completed "
            "because the input matrix is singular."
        ),
    )


@api.under("linalg", out=True)
def inv(A: Tensor) -> Tensor:
    """The inverse of square matrices."""
    check_square("linalg.inv", A)
    inverse, info = inverse_op(A)
    _check_inverse("linalg.inv", info)
    return inverse


api.both(inv, name="inverse", out=True)


@api.under("linalg", out=True)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse with respect to ``tensordot`` over ``ind`` dimensions."""
    if ind <= 0:
        raise refuse("Expected a strictly positive integer for 'ind'")
    if ind > A._a.ndim:
        raise refuse(f"'ind' is {ind}, but the tensor has {A._a.ndim} dimensions")
    first, rest = A._a.shape[:ind], A._a.shape[ind:]
    rows, columns = math.prod(first), math.prod(rest)
    if rows != columns:
        raise refuse(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {columns} != {rows}"
        )
    return inv(A.reshape(rows, columns)).reshape(*rest, *first)


@api.under("linalg", out=True)
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """The solution ``X`` of ``tensordot(A, X, X.ndim) = B``."""
    if dims is not None:
        moved = api.dims(dims, A._a.ndim)
        kept = [d for d in range(A._a.ndim) if d not in moved]
        A = A.permute(*kept, *moved)
    shape = A._a.shape[B._a.ndim :]
    columns = math.prod(shape)
    if columns != B._a.size:
        raise refuse(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {columns} != {B._a.size}"
        )
    return solve(A.reshape(B._a.size, columns), B.reshape(B._a.size)).reshape(shape)


# --- determinants ----------------------------------------------------------------------


def _det_rule(g: Any, x: Any, y: Any) -> Any:
    if x.shape[-1] < 2:  # the element itself: a gradient that does not depend on it
        return column(column(g)) if x.shape[-1] else zeros_of(g, x.shape)
    inverse, info = inverse_op(x)
    if not lacks_values(x) and not host(info).any():
        return column(column(g * conjugate(y))) * adjoint(inverse)
    # Through singular values the cofactors are sound for singular matrices too.
    u, s, vh = linalg_svd_op(x, full_matrices=False)
    n = s.shape[-1]
    others = where_op(np.eye(n, dtype=bool), 1.0, row(s))
    products = prod_op(others, dim=(len(others.shape) - 1,), keepdim=False)
    phase = conjugate(det_op(u) * det_op(vh))
    return column(column(g * phase)) * ((u * row(products)) @ vh)


det_op = general(
    "linalg_det",
    lambda x: np.asarray(np.linalg.det(x), x.dtype),
    _det_rule,
    samples=lambda m: [
        Sample((m.real(3, 3),)),
        Sample((m.real(2, 2, 2),)),
        Sample((m.real(2, 0, 0),)),
    ],
    shape=shape_rules.batch,
    batch=batch_rules.leading,
)


def _substituted(x: np.ndarray) -> np.ndarray:
    """What substitution gives for the inverse of a singular matrix: infinities and NaN."""
    factors, pivots, _ = lapack("getrf", x.dtype)(x.T)
    y = np.eye(len(x), dtype=x.dtype)
    for i, other in enumerate(pivots):
        y[[i, other]] = y[[other, i]]
    for i in range(len(x)):
        y[i + 1 :] -= np.outer(factors[i + 1 :, i], y[i])
    for i in reversed(range(len(x))):
        y[i] /= factors[i, i]
        y[:i] -= np.outer(factors[:i, i], y[i])
    return y.T


def _inverse_for_slogdet(x: Any) -> Any:
    inverse, info = inverse_op(x)
    if not isinstance(info, Tensor) and info.any() and not is_complex(x):
        inverse = inverse.copy()
        for place in map(tuple, np.argwhere(info)):
            inverse[place] = _substituted(x[place])
    return inverse


def _slogdet_rule(g: Any, x: Any, sign: Any) -> Any:
    factor = g[1]
    if is_complex(x):
        # The phase turns with the imaginary part of the logarithm of the determinant.
        factor = factor - imag_op(conjugate(g[0]) * sign) * 1j
    return column(column(factor)) * adjoint(_inverse_for_slogdet(x))


def _slogdet(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    sign, size = (np.asarray(r) for r in np.linalg.slogdet(x))
    if x.dtype.kind == "f":
        sign = np.where(np.isnan(size), sign.dtype.type(0), sign)  # NaN has none
    return sign, size


slogdet_op = general(
    "linalg_slogdet",
    _slogdet,
    _slogdet_rule,
    outputs=("sign", "logabsdet"),
    samples=lambda m: [Sample((m.real(3, 3),)), Sample((m.real(2, 2, 2),))],
    shape=lambda x: [x.shape[:-2], ShapeDtype(x.shape[:-2], shape_rules.real(x.dtype))],
    batch=batch_rules.leading,
)
slogdet_result = result_type("linalg_slogdet", "sign", "logabsdet")


@api.under("linalg", out=True)
def det(A: Tensor) -> Tensor:
    """The determinants of square matrices."""
    check_square("linalg.det", A)
    return det_op(A)


@api.under("linalg", out=True)
def slogdet(A: Tensor) -> Any:
    """The sign of the determinant and the logarithm of its magnitude."""
    check_square("linalg.slogdet", A)
    return slogdet_result(*slogdet_op(A))


api.both(det, out=True)
api.both(slogdet, out=True)


@api.both
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
    sign, logabsdet = slogdet(input)
    if input.is_complex():
        return sign.log() + logabsdet
    return where_op(sign == -1.0, math.nan, logabsdet)


# --- least squares and the pseudoinverse -----------------------------------------------


def _pinv(x: np.ndarray, rtol: np.ndarray, atol: np.ndarray, hermitian: bool) -> np.ndarray:
    rtol, atol = np.asarray(rtol)[..., None], np.asarray(atol)[..., None]
    if hermitian:
        values, vectors = converged("linalg.eigh", np.linalg.eigh, x)
        size = np.abs(values)
        left, right = vectors, vectors.swapaxes(-2, -1).conj()
    else:
        u, values, vh = converged("linalg.svd", np.linalg.svd, x, False)
        size = values
        left, right = vh.swapaxes(-2, -1).conj(), u.swapaxes(-2, -1).conj()
    limit = np.maximum(atol, rtol * size.max(-1, keepdims=True, initial=0))
    good = size > limit
    reciprocals = np.where(good, 1, 0) / np.where(good, values, 1)
    return ((left * reciprocals[..., None, :]) @ right).astype(x.dtype)


def _pinv_rule(g: Any, x: Any, y: Any) -> Any:
    back, g_adjoint = adjoint(y), adjoint(g)
    first = (g_adjoint @ y) @ back
    second = back @ (y @ g_adjoint)
    return (first - x @ (y @ first)) + (second - (second @ y) @ x) - back @ (g @ back)


pinv_op = general(
    "linalg_pinv",
    _pinv,
    _pinv_rule,
    samples=lambda m: [
        Sample((m.real(3, 2),), {"rtol": 1e-8, "atol": 0.0, "hermitian": False}),
        Sample((m.real(2, 2, 3),), {"rtol": 1e-8, "atol": 0.0, "hermitian": False}),
    ],
    shape=lambda x: (*x.shape[:-2], x.shape[-1], x.shape[-2]),
    batch=batch_rules.leading,
)


def _value(x: Any) -> Any:
    return host(x) if isinstance(x, Tensor) else x


def _tolerances(A: Tensor, rtol: Any, atol: Any) -> tuple[Any, Any]:
    """PyTorch's defaults: relative to the precision, unless only an absolute one is given."""
    eps = float(np.finfo(A._a.dtype).eps)
    usual = eps * max(A._a.shape[-2:])
    absolute = 0.0 if atol is None else _value(atol)
    if rtol is None:
        relative = usual if atol is None else np.where(np.asarray(absolute) > 0, 0.0, usual)
    else:
        relative = _value(rtol)
    return relative, absolute


@api.under("linalg", out=True)
def pinv(
    A: Tensor, rcond: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The pseudoinverse: small singular values count as zero."""
    check_matrix("linalg.pinv", A)
    relative, absolute = _tolerances(A, rcond if rtol is None else rtol, atol)
    if not A._a.size:
        return A.new_zeros((*A._a.shape[:-2], *A._a.shape[:-3:-1])) + A.sum() * 0
    return pinv_op(A, rtol=relative, atol=absolute, hermitian=hermitian)


@api.both
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudoinverse by its old name."""
    return pinv(input, rcond)


def _rank(x: np.ndarray, rtol: np.ndarray, atol: np.ndarray, hermitian: bool) -> np.ndarray:
    if hermitian:
        size = np.abs(converged("linalg.eigvalsh", np.linalg.eigvalsh, x))
    else:
        size = converged("linalg.svdvals", np.linalg.svd, x, compute_uv=False)
    rtol, atol = np.asarray(rtol)[..., None], np.asarray(atol)[..., None]
    limit = np.maximum(atol, rtol * size.max(-1, keepdims=True, initial=0))
    return np.asarray((size > limit).sum(-1), np.int64)


matrix_rank_op = constant(
    "linalg_matrix_rank",
    _rank,
    shape=lambda x, rtol, atol: ShapeDtype(
        broadcast(x.shape[:-2], np.shape(rtol), np.shape(atol)), np.int64
    ),
)


@api.under("linalg", out=True)
def matrix_rank(
    A: Tensor, tol: Any = None, hermitian: bool = False, *, atol: Any = None, rtol: Any = None
) -> Tensor:
    """The number of singular values that count as more than zero."""
    check_matrix("linalg.matrix_rank", A)
    relative, absolute = _tolerances(A, rtol, atol)
    if tol is not None:
        relative, absolute = 0.0, _value(tol)
    return matrix_rank_op(A, rtol=relative, atol=absolute, hermitian=hermitian)


def _lstsq(
    a: np.ndarray, b: np.ndarray, rcond: float, truncate: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not a.size:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        k = min(a.shape[-2:])
        empty = np.zeros((*a.shape[:-2], k), a.real.dtype)
        zeros = np.zeros((*lead, a.shape[-1], b.shape[-1]), a.dtype)
        return zeros, np.zeros(a.shape[:-2], np.int64), empty
    u, s, vh = converged("linalg.lstsq", np.linalg.svd, a, False)
    limit = (rcond if truncate else 0.0) * s.max(-1, keepdims=True, initial=0)
    good = s > limit
    scale = np.where(good, 1, 0) / np.where(good, s, 1)
    coordinates = scale[..., :, None] * (u.swapaxes(-2, -1).conj() @ b)
    x = vh.swapaxes(-2, -1).conj() @ coordinates
    return x.astype(b.dtype), np.asarray(good.sum(-1), np.int64), s


def _lstsq_rule(g: Any, needs: Any, a: Any, b: Any, rcond: float) -> tuple[Any, Any]:
    inverse = pinv_op(a, rtol=rcond, atol=0.0, hermitian=False)
    ga = _pinv_rule(g[0] @ adjoint(b), a, inverse) if needs[0] else None
    return ga, adjoint(inverse) @ g[0] if needs[1] else None


def _lstsq_shape(a: ShapeDtype, b: ShapeDtype) -> list[Any]:
    lead = broadcast(a.shape[:-2], b.shape[:-2])
    rank = shape_rules.smaller(*a.shape[-2:])
    return [
        (*lead, a.shape[-1], b.shape[-1]),
        ShapeDtype(a.shape[:-2], np.int64),
        ShapeDtype((*a.shape[:-2], rank), shape_rules.real(a.dtype)),
    ]


lstsq_op = general(
    "linalg_lstsq",
    _lstsq,
    joint=_lstsq_rule,
    names=("a", "b"),
    outputs=("y", "rank", "values"),
    constant_outputs=(1, 2),
    samples=lambda m: [
        Sample((m.real(4, 2), m.real(4, 1)), {"rcond": 1e-10, "truncate": True}),
        Sample((m.real(2, 3), m.real(2, 2)), {"rcond": 1e-10, "truncate": True}),
    ],
    shape=_lstsq_shape,
)
lstsq_result = result_type("linalg_lstsq", "solution", "residuals", "rank", "singular_values")


@api.under("linalg", out=True)
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The ``X`` for which ``A X`` comes nearest to ``B``."""
    name = "torch.linalg.lstsq"
    check_matrix(name, A, "input")
    check_types(name, A, B)
    driver = "gelsy" if driver is None else driver
    if driver not in ("gels", "gelsy", "gelsd", "gelss"):
        raise refuse(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")
    m, n = A._a.shape[-2:]
    vector = B._a.ndim == 1 or (A._a.ndim - 1 == B._a.ndim and B._a.shape == A._a.shape[:-1])
    side = column(B) if vector else B
    if side._a.shape[-2] != m:
        raise refuse(f"{name}: input.size(-2) should match other.size(-{1 if vector else 2})")
    limit = float(np.finfo(A._a.dtype).eps) * max(m, n) if rcond is None else float(rcond)
    x, rank, values = lstsq_op(A, side, rcond=limit, truncate=driver != "gels")
    none = A.dtype.to_real().np
    residuals = A.reshape(-1)[:0]  # empty, but part of the graph as PyTorch's is
    residuals = residuals.real if A.is_complex() else residuals
    full = driver == "gels" or A.is_meta or bool((host(rank) == n).all())
    if m > n and driver != "gelsy" and full:
        gap = matmul(A, x) - side
        residuals = (gap.abs() ** 2).sum(-2)
    return lstsq_result(
        x.reshape(x._a.shape[:-1]) if vector else x,
        residuals,
        beside(A, np.empty(0, np.int64)) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else beside(A, np.empty(0, none)),
    )


# --- functions of matrices -------------------------------------------------------------


# Taylor's series up to the 18th power is exact to rounding for matrices of such norms (Bader,
# Blanes and Casas, 2019). Its terms do not cancel where entries are positive, as Pade's do.
_REACH = {"float32": 3.010066362817634, "float64": 1.090863719290036}
_POWERS = 6
_BLOCKS = [
    [1 / math.factorial(start + k) for k in range(_POWERS)] for start in range(0, 18, _POWERS)
]
_LAST = 1 / math.factorial(18)


def _matrix_exp(x: np.ndarray) -> np.ndarray:
    if not x.size:
        return x.copy()
    if x.dtype in dt.HALF:
        return _matrix_exp(x.astype(np.float32)).astype(x.dtype)
    flat = x.reshape(-1, *x.shape[-2:])
    sizes = np.abs(flat).sum(-2).max(-1)
    ratio = sizes / _REACH[np.empty(0, x.dtype).real.dtype.name]
    finite = np.isfinite(ratio)
    halvings = np.ceil(np.log2(np.maximum(np.where(finite, ratio, 1), 1))).astype(np.int64)
    found = _series(flat * np.ldexp(1.0, -halvings)[:, None, None].astype(sizes.dtype))
    for k in range(halvings.max()):
        squared = halvings > k
        found[squared] = found[squared] @ found[squared]
    return found.reshape(x.shape)


def _series(x: np.ndarray) -> np.ndarray:
    """The exponential of small matrices, in seven products."""
    powers = [np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape), x]
    while len(powers) <= _POWERS:
        powers.append(powers[-1] @ x)
    total: Any = x.dtype.type(_LAST) * powers[0]
    for block in reversed(_BLOCKS):
        total = total @ powers[_POWERS]
        for factor, power in zip(block, powers, strict=False):
            total = total + x.dtype.type(factor) * power
    return total


def _matrix_exp_rule(g: Any, x: Any) -> Any:
    # exp [[A^H, g], [0, A^H]] holds the derivative in its corner.
    n = x.shape[-1]
    back, last = adjoint(x), len(x.shape) - 1
    upper = cat_op(back, g, dim=last)
    lower = cat_op(back * 0.0, back, dim=last)
    return matrix_exp_op(cat_op(upper, lower, dim=last - 1))[..., :n, n:]


matrix_exp_op = general(
    "linalg_matrix_exp",
    _matrix_exp,
    _matrix_exp_rule,
    samples=lambda m: [
        Sample((m.real(3, 3),)),
        Sample((m.real(2, 2, 2),)),
        Sample((m.real(2, 0, 0),)),
    ],
    shape=shape_rules.same,
    batch=batch_rules.leading,
)


@api.both
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
    name = "linalg.matrix_exp"
    low = input._a.dtype.kind in "fV" and input._a.dtype.itemsize == 2
    check_square(name, input.float() if low else input)
    if low:
        return matrix_exp_op(input.float()).to(input.dtype)
    return matrix_exp_op(input)


api.under("linalg", matrix_exp)


@api.under("linalg")
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A diagonal of each matrix, as a view."""
    return A.diagonal(offset, dim1, dim2)


# --- few singular values of large matrices ---------------------------------------------


def _basis(A: Tensor, q: int, niter: int, M: Tensor | None) -> Tensor:
    """An orthonormal basis that nearly spans the range, by random projection."""
    randn = api.FUNCTIONS["randn"]
    centred = A if M is None else A - M
    drawn = randn(A._a.shape[-1], q, dtype=A.dtype, device=A.device)
    found = qr(matmul(centred, drawn)).Q
    for _ in range(niter):
        found = qr(matmul(adjoint(centred), found)).Q
        found = qr(matmul(centred, found)).Q
    return found


@api.top
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The largest singular values of a matrix of low rank, by random projection."""
    check_matrix("svd_lowrank", A)
    q, niter = 6 if q is None else q, 2 if niter is None else niter
    m, n = A._a.shape[-2:]
    if M is not None:
        M = M.expand(A._a.shape)
    wide = m < n
    work, mean = (adjoint(A), None if M is None else adjoint(M)) if wide else (A, M)
    basis = _basis(work, q, niter, mean)
    centred = work if mean is None else work - mean
    u, s, vh = svd(matmul(adjoint(basis), centred), full_matrices=False)
    u, v = matmul(basis, u), adjoint(vh)
    return (v, s, u) if wide else (u, s, v)


@api.top
def pca_lowrank(
    A: Tensor, q: int | None = None, center: bool = True, niter: int = 2
) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of a matrix whose rows are observations."""
    check_matrix("pca_lowrank", A)
    m, n = A._a.shape[-2:]
    if q is None:
        q = min(6, m, n)
    elif not 0 <= q <= min(m, n):
        raise ValueError(
            f"q(={q}) must be non-negative integer and not greater than min(m, n)={min(m, n)}\n"
            f"  at {errors.here()}"
        )
    if center:
        A = A - A.mean(-2, keepdim=True)
    return svd_lowrank(A, q, niter)


@api.top
def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Any = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The extreme eigenvalues of ``A x = e B x``; found by a full decomposition here."""
    check_square("lobpcg", A)
    count = (1 if X is None else X._a.shape[-1]) if k is None else k
    matrix, factor = A, None
    if B is not None:
        check_types("lobpcg", A, B)
        factor = cholesky(B)
        half = solve_triangular(factor, A, upper=False)
        matrix = adjoint(solve_triangular(factor, adjoint(half), upper=False))
    # PyTorch's iterations see the symmetric part of a matrix, eigh one triangle.
    values, vectors = eigh((matrix + adjoint(matrix)) / 2)
    if largest is None or largest:
        values, vectors = values.flip(-1), vectors.flip(-1)
    values, vectors = values[..., :count], vectors[..., :count]
    if factor is not None:
        vectors = solve_triangular(adjoint(factor), vectors, upper=True)
    return values, vectors
