"""Factorisations of matrices: Cholesky, QR, LU, LDL."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.batching import values_of
from weft.core.devices import host
from weft.core.meta import constant as constant_for
from weft.core.meta import empty as meta_empty
from weft.core.meta import lacks_values, plain
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import result_type
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, general, refusing
from weft.operators.matmul import (
    adjoint,
    conjugate,
    is_complex,
    transposed,
    type_name,
)
from weft.operators.views import cat_op, diagonal_op, diagonal_place_op


class LinAlgError(RuntimeError):
    """A matrix has no factorisation, inverse or solution of the kind asked for."""


@functools.cache
def _lapack() -> Any:
    import scipy.linalg.lapack

    return scipy.linalg.lapack


def lapack(name: str, d: np.dtype) -> Callable:
    """The LAPACK routine for a type: ``getrf`` is ``dgetrf`` for float64."""
    letter = {"f": "s", "d": "d", "F": "c", "D": "z"}.get(d.char)
    if letter is None:
        raise TypeError(f"{name}: there is no such factorisation for {d}; convert with .float()")
    return getattr(_lapack(), letter + name)


# --- checks and small helpers ----------------------------------------------------------


def refuse(message: str) -> RuntimeError:
    """An error with the user's line."""
    return RuntimeError(f"{message}\n  at {errors.here()}")


def check_float(name: str, x: Tensor) -> None:
    """Only full-precision floating and complex tensors can be factorised."""
    if x._a.dtype.char in "fdFD":
        return
    if x._a.dtype.kind in "iub":
        raise refuse(
            f"{name}: Expected a floating point or complex tensor as input. Got {type_name(x)}; "
            "convert it with .float()"
        )
    raise refuse(
        f"{name}: Low precision dtypes not supported. Got {type_name(x)}; convert with .float()"
    )


def check_matrix(name: str, x: Tensor, what: str = "A") -> None:
    """At least two dimensions, of a type that can be factorised."""
    if x._a.ndim < 2:
        raise refuse(f"{name}: The input tensor {what} must have at least 2 dimensions.")
    check_float(name, x)


def check_square(name: str, x: Tensor, what: str = "A") -> None:
    """A batch of square matrices of a type that can be factorised."""
    check_matrix(name, x, what)
    m, n = x._a.shape[-2:]
    if m != n:
        raise refuse(
            f"{name}: {what} must be batches of square matrices, but they are {m} by {n} matrices"
        )


def check_info(name: str, info: Tensor, message: Callable[[int], str]) -> None:
    """Raise for the first matrix that a routine could not deal with."""
    found = values_of(info)
    if lacks_values(found) or not found.any():
        return
    place = int(np.argmax(found.reshape(-1) != 0))
    code = int(found.reshape(-1)[place])
    batch = f"(Batch element {place}): " if found.ndim else ""
    raise LinAlgError(f"{name}: {batch}{message(code)}\n  at {errors.here()}")


def lower_part(x: Any, offset: int = 0) -> Any:
    """The lower triangles, zeros elsewhere."""
    inside = np.tri(x.shape[-2], x.shape[-1], offset, dtype=bool)
    return where_op(constant_for(x, inside), x, 0.0)


def upper_part(x: Any, offset: int = 0) -> Any:
    """The upper triangles, zeros elsewhere."""
    outside = np.tri(x.shape[-2], x.shape[-1], offset - 1, dtype=bool)
    return where_op(constant_for(x, outside), 0.0, x)


def diagonal_of(x: Any) -> Any:
    """The main diagonals, as a last dimension."""
    rank = len(x.shape)
    return diagonal_op(x, offset=0, dim1=rank - 2, dim2=rank - 1)


def diagonal_matrix(d: Any) -> Any:
    """Square matrices with the given diagonals."""
    rank = len(d.shape)
    return diagonal_place_op(d, shape=(*d.shape, d.shape[-1]), offset=0, dim1=rank - 1, dim2=rank)


def with_diagonal(x: Any, value: Any) -> Any:
    """Square matrices with another main diagonal, given as a number or as matrices."""
    return where_op(constant_for(x, np.eye(x.shape[-1], dtype=bool)), value, x)


def each(function: Callable, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """A function of single matrices on every matrix of a batch."""
    lead = arrays[0].shape[:-2]
    if not lead:
        return tuple(np.asarray(r) for r in function(*arrays))
    count = math.prod(lead)
    if not all(a.size for a in arrays):
        made = function(*(np.zeros(a.shape[-2:], a.dtype) for a in arrays))
        return tuple(np.broadcast_to(np.asarray(r), (*lead, *np.shape(r))).copy() for r in made)
    flat = [a.reshape(-1, *a.shape[-2:]) for a in arrays]
    results = [function(*(f[i] for f in flat)) for i in range(count)]
    return tuple(
        np.stack([np.asarray(r[k]) for r in results]).reshape(*lead, *np.shape(results[0][k]))
        for k in range(len(results[0]))
    )


def converged(name: str, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """NumPy's routine, with PyTorch's error where it gives up."""
    try:
        return function(*args, **kwargs)
    except np.linalg.LinAlgError:
        raise LinAlgError(
            f"{name}: The algorithm failed to converge because the input matrix contained "
            "non-finite values or was ill-conditioned."
        ) from None


# --- triangular systems ----------------------------------------------------------------


def _solve_triangular(a: np.ndarray, b: np.ndarray, upper: bool, unitriangular: bool) -> np.ndarray:
    # Row by row over the whole batch; a zero pivot gives an infinity and no error.
    n = a.shape[-1]
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    x = np.empty((*lead, *b.shape[-2:]), b.dtype)
    order = range(n - 1, -1, -1) if upper else range(n)
    for i in order:
        done = slice(i + 1, n) if upper else slice(0, i)
        value = b[..., i, :]
        if done.stop > done.start:
            value = value - (a[..., i : i + 1, done] @ x[..., done, :])[..., 0, :]
        x[..., i, :] = value if unitriangular else value / a[..., i, i, None]
    return x


def _solve_triangular_rule(
    g: Any, needs: Any, a: Any, y: Any, upper: bool, unitriangular: bool
) -> tuple[Any, Any]:
    gb = solve_triangular_op(adjoint(a), g, upper=not upper, unitriangular=unitriangular)
    ga = None
    if needs[0]:
        ga = -(gb @ adjoint(y))
        offset = int(unitriangular)
        ga = upper_part(ga, offset) if upper else lower_part(ga, -offset)
    return ga, gb if needs[1] else None


def _triangular_samples(m: Any) -> list[Sample]:
    big = np.eye(3) * 3.0
    return [
        Sample((m.real(3, 3) + big, m.real(3, 2)), {"upper": True, "unitriangular": False}),
        Sample((m.real(3, 3) + big, m.real(2, 3, 1)), {"upper": False, "unitriangular": True}),
        Sample((m.real(2, 0, 0), m.real(2, 0, 3)), {"upper": False, "unitriangular": False}),
    ]


solve_triangular_op = general(
    "linalg_solve_triangular",
    _solve_triangular,
    joint=_solve_triangular_rule,
    names=("a", "b"),
    samples=_triangular_samples,
    shape=shape_rules.solved,
    batch=batch_rules.leading,
)


@api.under("linalg", out=True)
def solve_triangular(
    A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Tensor:
    """The solution of ``A X = B`` (or ``X A = B``) for a triangular ``A``, in its dtype."""
    name = "linalg.solve_triangular"
    check_square(name, A)
    if B._a.ndim < 2:
        raise refuse(f"{name}: The input tensor B must have at least 2 dimensions.")
    if is_complex(B) and not is_complex(A):
        check_types(name, A, B)  # raises: imaginary parts would be lost
    B = B.to(A.dtype)
    check_sides(name, A, B, left)
    if left:
        return solve_triangular_op(A, B, upper=upper, unitriangular=unitriangular)
    solved = solve_triangular_op(
        transposed(A), transposed(B), upper=not upper, unitriangular=unitriangular
    )
    return api.apart(transposed(solved), A, B)


def check_types(name: str, A: Tensor, B: Tensor) -> None:
    """Systems are not promoted: both sides must have one type."""
    if A._a.dtype != B._a.dtype:
        raise refuse(
            f"{name}: Expected A and B to have the same dtype, but found A of type "
            f"{type_name(A)} and B of type {type_name(B)} instead"
        )


def check_sides(name: str, A: Tensor, B: Tensor, left: bool) -> None:
    """The sides of a linear system must fit."""
    a, b = A._a.shape, B._a.shape
    if a[-1] != (b[-2] if left else b[-1]):
        equation = "AX = B" if left else "XA = B"
        raise refuse(
            f"{name}: Incompatible shapes of A and B for the equation {equation} "
            f"({a[-2]}x{a[-1]} and {b[-2]}x{b[-1]})"
        )


triangular_solve_result = result_type("triangular_solve", "solution", "cloned_coefficient")


@api.both(out=True)
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> Any:
    """The solution of a triangular system, by its old name."""
    check_square("triangular_solve", A)
    check_types("triangular_solve", A, b)
    matrix, side = (transposed(A), not upper) if transpose else (A, upper)
    solution = solve_triangular(matrix, b, upper=side, unitriangular=unitriangular)
    shape = (*solution._a.shape[:-2], *A._a.shape[-2:])
    return triangular_solve_result(solution, A.expand(shape).clone())


# --- Cholesky --------------------------------------------------------------------------


def _cholesky_by_columns(a: np.ndarray, upper: bool) -> tuple[np.ndarray, int]:
    """The factor of a matrix that is not finite, where libraries forget infinities and NaN."""
    made = np.tril(a.conj().T if upper else a)
    for j in range(len(a)):
        row = made[j, :j].conj()
        pivot = (made[j, j] - made[j, :j] @ row).real
        if not pivot > 0:
            return made.conj().T if upper else made, j + 1
        made[j, j] = np.sqrt(pivot)
        made[j + 1 :, j] = (made[j + 1 :, j] - made[j + 1 :, :j] @ row) / made[j, j]
    return made.conj().T if upper else made, 0


def _cholesky(x: np.ndarray, upper: bool) -> tuple[np.ndarray, np.ndarray]:
    lead = x.shape[:-2]
    try:
        factor = np.linalg.cholesky(x, upper=upper)
        if np.isfinite(np.diagonal(factor, 0, -2, -1)).all():
            return factor, np.zeros(lead, np.int32)
    except np.linalg.LinAlgError:
        pass

    def one(a: np.ndarray) -> tuple[np.ndarray, np.int32]:
        made, info = lapack("potrf", a.dtype)(a, lower=not upper, clean=True)
        if not info and not np.isfinite(np.diagonal(made)).all():
            made, info = _cholesky_by_columns(a, upper)
        return made.astype(a.dtype), np.int32(info)

    factor, info = each(one, x)
    return factor, info


def _cholesky_rule(g: Any, y: Any, upper: bool) -> Any:
    g, factor = (adjoint(g[0]), adjoint(y)) if upper else (g[0], y)
    back = adjoint(factor)
    inner = lower_part(back @ g)
    inner = with_diagonal(inner, inner * 0.5)
    # L^-H inner L^-1, then the Hermitian part, since only such changes are possible.
    half = solve_triangular_op(back, inner, upper=True, unitriangular=False)
    whole = adjoint(solve_triangular_op(back, adjoint(half), upper=True, unitriangular=False))
    return (whole + adjoint(whole)) * 0.5


# The gradient is for symmetric changes only, which differences of single elements are not.
cholesky_op = general(
    "linalg_cholesky_ex",
    _cholesky,
    _cholesky_rule,
    outputs=("y", "info"),
    constant_outputs=(1,),
    samples=lambda m: [
        Sample((np.zeros((2, 0, 0)),), {"upper": False}),
    ],
    shape=shape_rules.with_info,
    batch=batch_rules.leading,
)
cholesky_ex_result = result_type("linalg_cholesky_ex", "L", "info")


@api.under("linalg", out=True)
def cholesky_ex(input: Tensor, *, upper: bool = False, check_errors: bool = False) -> Any:
    """The Cholesky factor, and for each matrix whether there is one."""
    check_square("linalg.cholesky", input)
    factor, info = cholesky_op(input, upper=upper)
    if check_errors:
        _check_cholesky("linalg.cholesky_ex", info)
    return cholesky_ex_result(factor, info)


def _check_cholesky(name: str, info: Tensor) -> None:
    check_info(
        name,
        info,
        lambda k: (
            "The factorization could not be completed because the input is not "
            f"positive-definite (the leading minor of order {k} is not positive-definite)."
        ),
    )


def cholesky(input: Tensor, *, upper: bool = False) -> Tensor:
    """The triangular ``L`` with ``L L^H = input``, for positive definite matrices."""
    check_square("linalg.cholesky", input)
    factor, info = cholesky_op(input, upper=upper)
    _check_cholesky("linalg.cholesky", info)
    return factor


api.under("linalg", cholesky, out=True)


@api.both(name="cholesky", out=True)
def old_cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The triangular ``L`` with ``L L^H = input``, for positive definite matrices."""
    return cholesky(input, upper=upper)


@api.both(out=True)
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """The solution of ``A X = B`` from the Cholesky factor of ``A``."""
    check_square("cholesky_solve", L)
    check_types("cholesky_solve", L, B)
    factor = adjoint(L) if upper else L
    half = solve_triangular(factor, B, upper=False)
    return solve_triangular(adjoint(factor), half, upper=True)


@api.both(out=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of a matrix from its Cholesky factor."""
    check_square("cholesky_inverse", L)
    eye = np.broadcast_to(np.eye(L._a.shape[-1], dtype=L.dtype.np), L._a.shape)
    return cholesky_solve(beside(L, eye), L, upper)


# --- QR --------------------------------------------------------------------------------


def _qr(x: np.ndarray, mode: Any) -> tuple[np.ndarray, np.ndarray]:
    if mode == "r":
        return np.empty(0, x.dtype), np.asarray(np.linalg.qr(x, mode="r"))
    q, r = np.linalg.qr(x, mode=mode)
    return q, r


def _qr_rule(g: Any, q: Any, r: Any, mode: str) -> Any:
    if mode == "r":
        raise RuntimeError(
            "The derivative of linalg.qr is not implemented when mode='r'; use mode='reduced'"
        )
    gq, gr = g
    m, n = q.shape[-2], r.shape[-1]
    if mode == "complete" and m > n:
        raise RuntimeError(
            "The derivative of linalg.qr is not implemented when mode='complete' and "
            "nrows > ncols; use mode='reduced'"
        )
    if m >= n:
        return _tall_qr(gq, gr, q, r)
    # A = [A1 A2] and R = [R1 R2]: A1 = Q R1 is square, and R2 = Q^H A2.
    r1, r2, gr1, gr2 = r[..., :m], r[..., m:], gr[..., :m], gr[..., m:]
    right = q @ gr2
    left = _tall_qr(gq + (q @ r2) @ adjoint(gr2), gr1, q, r1)
    return _side_by_side(left, right)


def _side_by_side(left: Any, right: Any) -> Any:
    return cat_op(left, right, dim=len(left.shape) - 1)


def _tall_qr(gq: Any, gr: Any, q: Any, r: Any) -> Any:
    inner = upper_part(gr @ adjoint(r) - adjoint(q) @ gq)
    inner = inner + adjoint(inner)
    inner = with_diagonal(inner, inner * 0.5)
    whole = gq + q @ inner
    return adjoint(solve_triangular_op(r, adjoint(whole), upper=True, unitriangular=False))


linalg_qr_op = general(
    "linalg_qr",
    _qr,
    _qr_rule,
    outputs=("q", "r"),
    samples=lambda m: [
        Sample((m.real(4, 3),), {"mode": "reduced"}),
        Sample((m.real(2, 2, 4),), {"mode": "reduced"}),
        Sample((m.real(3, 3),), {"mode": "complete"}),
    ],
    shape=shape_rules.qr,
    batch=batch_rules.leading,
)
linalg_qr_result = result_type("linalg_qr", "Q", "R")
qr_result = result_type("qr", "Q", "R")


@api.under("linalg", out=True)
def qr(A: Tensor, mode: str = "reduced") -> Any:
    """An orthonormal ``Q`` and a triangular ``R`` with ``Q R = A``."""
    if mode not in ("reduced", "complete", "r"):
        raise refuse(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            "'r', or 'complete'"
        )
    check_matrix("linalg.qr", A)
    return linalg_qr_result(*linalg_qr_op(A, mode=mode))


@api.both(name="qr", out=True)
def old_qr(input: Tensor, some: bool = True) -> Any:
    """QR by its old name."""
    return qr_result(*qr(input, "reduced" if some else "complete"))


def _geqrf(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    h, tau = np.linalg.qr(x, mode="raw")
    return np.ascontiguousarray(h.swapaxes(-2, -1)), tau


geqrf_op = general(
    "geqrf",
    _geqrf,
    refusing("geqrf"),
    outputs=("a", "tau"),
    samples=None,
    shape=lambda x: [x.of(x.dtype), (*x.shape[:-2], shape_rules.smaller(*x.shape[-2:]))],
    batch=batch_rules.leading,
)
geqrf_result = result_type("geqrf", "a", "tau")


@api.both(out=True)
def geqrf(input: Tensor) -> Any:
    """QR in LAPACK's compact form: reflectors below the diagonal, and their factors."""
    check_matrix("torch.geqrf", input)
    return geqrf_result(*geqrf_op(input))


def _reflectors(A: Tensor, count: int) -> Tensor:
    m, n = A._a.shape[-2:]
    unit = beside(A, np.eye(m, n, dtype=A.dtype.np))
    return (lower_part(A, -1) + unit)[..., :count]


def _reflect(vectors: Tensor, tau: Tensor, x: Tensor, order: Any) -> Tensor:
    """``H_i x`` for each reflector ``H_i = 1 - tau v v^H`` in the given order."""
    for i in order:
        v = vectors[..., i : i + 1]
        x = x - (v * tau[..., i, None, None]) @ (adjoint(v) @ x)
    return x


@api.under("linalg", out=True)
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of a product of Householder reflections."""
    name = "torch.linalg.householder_product"
    check_matrix(name, A, "input")
    m, n = A._a.shape[-2:]
    count = tau._a.shape[-1]
    if m < n:
        raise refuse(f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]")
    if n < count:
        raise refuse(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    eye = beside(A, np.broadcast_to(np.eye(m, n, dtype=A.dtype.np), A._a.shape))
    if not count:
        return where_op(np.True_, eye, A)
    return _reflect(_reflectors(A, count), tau, eye, range(count - 1, -1, -1))


api.both(householder_product, name="orgqr", out=True)


@api.both(out=True)
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False
) -> Tensor:
    """A matrix multiplied by the Q of a QR in compact form."""
    check_matrix("torch.ormqr", input, "input")
    count = tau._a.shape[-1]
    vectors = _reflectors(input, count)
    if not left:
        other = adjoint(other)
    if transpose == left:
        out = _reflect(vectors, conjugate(tau), other, range(count))
    else:
        out = _reflect(vectors, tau, other, range(count - 1, -1, -1))
    return out if left else api.apart(adjoint(out), input, tau, other)


# --- LU --------------------------------------------------------------------------------


def _lu_one(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.int32]:
    if 0 in a.shape:
        return a.copy(), np.zeros(min(a.shape), np.int32), np.int32(0)
    made, pivots, info = lapack("getrf", a.dtype)(a)
    return made.astype(a.dtype), (pivots + 1).astype(np.int32), np.int32(info)


def _split_lu(x: Any) -> tuple[Any, Any]:
    """The two factors from their compact form."""
    m, n = x.shape[-2:]
    k = min(m, n)
    left = lower_part(x[..., :k], -1)
    return with_unit(left), upper_part(x[..., :k, :])


def with_unit(x: Any) -> Any:
    """Matrices with ones on the main diagonal."""
    return where_op(constant_for(x, np.eye(*x.shape[-2:], dtype=bool)), 1.0, x)


def permutation(pivots: np.ndarray, size: int) -> np.ndarray:
    """For each place of the factorised matrix, the row of the original that stands there."""
    order = np.broadcast_to(np.arange(size), (*pivots.shape[:-1], size)).copy()
    if not pivots.size:
        return order
    flat, steps = order.reshape(-1, size), pivots.reshape(-1, pivots.shape[-1])
    for lines, swaps in zip(flat, steps, strict=True):
        for i, j in enumerate(swaps):
            lines[i], lines[j - 1] = lines[j - 1], lines[i]
    return order


def _permutation_matrix(pivots: np.ndarray, size: int, d: np.dtype) -> np.ndarray:
    rows = permutation(pivots, size)
    return (np.arange(size)[:, None] == rows[..., None, :]).astype(d)


def _lu_rule(g: Any, y: Any, pivots: Any) -> Any:
    g = g[0]
    m, n = y.shape[-2:]
    left, right = _split_lu(y)
    k = min(m, n)
    gl, gu = lower_part(g[..., :k], -1), upper_part(g[..., :k, :])
    d = plain(getattr(y, "_a", y).dtype)
    p: Any = _permutation_matrix(host(pivots), m, d)
    p = beside(y, p) if isinstance(y, Tensor) else p
    l1, u1 = left[..., :k, :], right[..., :k]

    def by_u(x: Any) -> Any:  # x U^-H
        return adjoint(solve_triangular_op(u1, adjoint(x), upper=True, unitriangular=False))

    def by_l(x: Any) -> Any:  # L^-H x
        return solve_triangular_op(adjoint(l1), x, upper=True, unitriangular=True)

    gl1, gu1, rest = gl[..., :k, :], gu[..., :k], None
    if m > n:
        # The rows below: L2 = A2 U^-1.
        rest = by_u(gl[..., k:, :])
        gu1 = gu1 - adjoint(left[..., k:, :]) @ rest
    elif m < n:
        # The columns beyond: U2 = L^-1 A2.
        rest = by_l(gu[..., k:])
        gl1 = gl1 - rest @ adjoint(right[..., k:])
    core = by_u(by_l(lower_part(adjoint(l1) @ gl1, -1) + upper_part(gu1 @ adjoint(u1))))
    if rest is None:
        return p @ core
    return p @ cat_op(core, rest, dim=len(g.shape) - (2 if m > n else 1))


lu_factor_op = general(
    "linalg_lu_factor_ex",
    lambda x: each(_lu_one, x),
    _lu_rule,
    outputs=("y", "pivots", "info"),
    constant_outputs=(1, 2),
    samples=lambda m: [
        Sample((m.real(3, 3) + 3 * np.eye(3),)),
        Sample((m.real(2, 2, 3) + 3 * np.eye(2, 3),)),
        Sample((m.real(4, 2) + 3 * np.eye(4, 2),)),
    ],
    shape=shape_rules.pivoted,
    batch=batch_rules.leading,
)
lu_factor_result = result_type("linalg_lu_factor", "LU", "pivots")
lu_factor_ex_result = result_type("linalg_lu_factor_ex", "LU", "pivots", "info")
lu_result = result_type("linalg_lu", "P", "L", "U")
lu_unpack_result = result_type("lu_unpack", "P", "L", "U")


def _need_pivot(name: str, pivot: bool) -> None:
    if not pivot:
        raise refuse(f"{name}: LU without pivoting is not implemented on the CPU")


@api.under("linalg", out=True)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    """LU in compact form, with the exchanges of rows and what went wrong."""
    check_matrix("torch.lu_factor_ex", A)
    _need_pivot("linalg.lu_factor_ex", pivot)
    made = lu_factor_op(A)
    if check_errors:
        _check_lu("torch.linalg.lu_factor_ex", made[2])
    return lu_factor_ex_result(*made)


def _check_lu(name: str, info: Tensor) -> None:
    check_info(
        name,
        info,
        lambda k: (
            f"U[{k},{k}] is zero and using it on lu_solve would result in a division by "
            "zero. If you still want to perform the factorization, consider calling "
            "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)"
        ),
    )


@api.under("linalg", out=True)
def lu_factor(A: Tensor, *, pivot: bool = True) -> Any:
    """LU in compact form, with the exchanges of rows."""
    made = lu_factor_ex(A, pivot=pivot)
    _check_lu("torch.linalg.lu_factor", made.info)
    return lu_factor_result(made.LU, made.pivots)


@api.both(name="lu")
def old_lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> Any:
    """LU by its old name."""
    made = lu_factor_ex(A, pivot=pivot)
    if get_infos:
        return made
    _check_lu("torch.lu", made.info)
    return lu_factor_result(made.LU, made.pivots)


@api.under("linalg", out=True)
def lu(A: Tensor, *, pivot: bool = True) -> Any:
    """A permutation, a unit lower and an upper triangle whose product is ``A``."""
    made = lu_factor_ex(A, pivot=pivot)
    return lu_result(*lu_unpack(made.LU, made.pivots))


def _permutation(pivots: Tensor, size: int, d: np.dtype) -> Tensor:
    """The matrix that exchanges rows as pivots say."""
    if pivots.is_meta:
        return wrap(meta_empty((*pivots._a.shape[:-1], size, size), d))
    return beside(pivots, _permutation_matrix(host(pivots), size, plain(d)))


@api.top(out=True)
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    """``P``, ``L`` and ``U`` from the compact form."""
    d = LU_data._a.dtype
    none = beside(LU_data, np.empty(0, d))
    p, left, right = none, none, none
    if unpack_pivots:
        if LU_pivots._a.dtype != np.int32:
            raise refuse("lu_unpack: LU_pivots is expected to be a contiguous tensor of int32")
        p = _permutation(LU_pivots, LU_data._a.shape[-2], d)
    if unpack_data:
        left, right = _split_lu(LU_data)
    return lu_unpack_result(p, left, right)


@api.under("linalg", out=True)
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False
) -> Tensor:
    """The solution of ``A X = B`` (or with ``A^H``, or ``X A = B``) from LU's compact form."""
    check_square("torch.linalg.lu_solve", LU, "LU")
    check_types("linalg.lu_solve", LU, B)
    if not left:
        return api.apart(_adjoint(lu_solve(LU, pivots, _adjoint(B), adjoint=not adjoint)), LU, B)
    p = _permutation(pivots, LU._a.shape[-1], LU.dtype.np)
    if adjoint:
        adjoint_lu = _adjoint(LU)
        half = solve_triangular(adjoint_lu, B, upper=False)
        return p @ solve_triangular(adjoint_lu, half, upper=True, unitriangular=True)
    half = solve_triangular(LU, transposed(p) @ B, upper=False, unitriangular=True)
    return solve_triangular(LU, half, upper=True)


_adjoint = adjoint


@api.both(name="lu_solve", out=True)
def old_lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """The solution of ``A X = b`` from LU's compact form, by its old name."""
    return lu_solve(LU_data, LU_pivots, b)


# --- LDL -------------------------------------------------------------------------------


def _ldl(x: np.ndarray, hermitian: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"the matrices are not square: {list(x.shape)}")  # LAPACK does not look
    routine = "hetrf" if hermitian and x.dtype.kind == "c" else "sytrf"

    def one(a: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.int32]:
        if not a.size:
            return a.copy(), np.zeros(len(a), np.int32), np.int32(0)
        made, pivots, info = lapack(routine, a.dtype)(a, lower=1)
        return np.tril(made).astype(a.dtype), pivots.astype(np.int32), np.int32(info)

    return each(one, x)  # type: ignore[return-value]


def _ldl_solve(x: np.ndarray, pivots: np.ndarray, b: np.ndarray, hermitian: bool) -> np.ndarray:
    routine = "hetrs" if hermitian and x.dtype.kind == "c" else "sytrs"
    lead = np.broadcast_shapes(x.shape[:-2], b.shape[:-2])
    if not math.prod((*lead, *b.shape[-2:])):
        return np.zeros((*lead, *b.shape[-2:]), b.dtype)
    if pivots.min() < -x.shape[-1] or pivots.max() > x.shape[-1] or not pivots.all():
        # LAPACK would follow them out of the array.
        raise RuntimeError("pivots must be those that ldl_factor returned")

    def one(a: np.ndarray, order: np.ndarray, right: np.ndarray) -> tuple[np.ndarray]:
        return (lapack(routine, a.dtype)(a, order[0], right, lower=1)[0].astype(a.dtype),)

    x = np.broadcast_to(x, (*lead, *x.shape[-2:]))
    order = np.broadcast_to(pivots, (*lead, pivots.shape[-1]))[..., None, :]
    return each(one, x, order, np.broadcast_to(b, (*lead, *b.shape[-2:])))[0]


ldl_factor_op = general(
    "linalg_ldl_factor_ex",
    _ldl,
    refusing("linalg_ldl_factor_ex"),
    outputs=("y", "pivots", "info"),
    constant_outputs=(1, 2),
    samples=None,
    shape=lambda x: [x.of(x.dtype), *shape_rules.pivoted(x)[1:]],
)
ldl_solve_op = general(
    "linalg_ldl_solve",
    _ldl_solve,
    refusing("linalg_ldl_solve"),
    None,
    refusing("linalg_ldl_solve"),
    names=("x", "pivots", "b"),
    samples=None,
    shape=lambda x, b: shape_rules.columns(ShapeDtype(shape_rules.solved(x, b), b.dtype)),
)
ldl_factor_result = result_type("linalg_ldl_factor", "LD", "pivots")
ldl_factor_ex_result = result_type("linalg_ldl_factor_ex", "LD", "pivots", "info")


@api.under("linalg", out=True)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> Any:
    """The LDL factorisation of symmetric matrices in compact form."""
    check_square("torch.linalg.ldl_factor_ex", A)
    made = ldl_factor_op(A, hermitian=hermitian)
    if check_errors:
        _check_ldl("torch.linalg.ldl_factor_ex", made[2])
    return ldl_factor_ex_result(*made)


def _check_ldl(name: str, info: Tensor) -> None:
    check_info(
        name,
        info,
        lambda k: (
            f"D[{k},{k}] is zero; the factorization was completed, but using it to solve a "
            "system would divide by zero."
        ),
    )


@api.under("linalg", out=True)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> Any:
    """The LDL factorisation of symmetric matrices in compact form."""
    made = ldl_factor_ex(A, hermitian=hermitian)
    _check_ldl("torch.linalg.ldl_factor", made.info)
    return ldl_factor_result(made.LD, made.pivots)


@api.under("linalg", out=True)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """The solution of a symmetric system from its LDL factorisation."""
    check_square("torch.linalg.ldl_solve", LD, "LD")
    check_sides("torch.linalg.ldl_solve", LD, B, True)
    return ldl_solve_op(LD, pivots, B, hermitian=hermitian)
