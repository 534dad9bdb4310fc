"""Eigenvalues and singular values."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core.batching import values_of
from weft.core.devices import host
from weft.core.meta import filled, lacks_values
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import result_type
from weft.operators.build import Sample, general
from weft.operators.factorizations import (
    check_matrix,
    check_square,
    converged,
    diagonal_matrix,
    diagonal_of,
    refuse,
    with_diagonal,
)
from weft.operators.matmul import adjoint, column, conjugate, is_complex, row
from weft.operators.views import imag_op, real_op

# --- eigenvalues -----------------------------------------------------------------------


def _idle(g: Any) -> bool:
    """Whether a gradient is zero and stays so: its part of a formula can be left out."""
    if lacks_values(g):
        return False
    return getattr(g, "_node", None) is None and not host(g).any()


def _gaps(values: Any) -> Any:
    """``values[j] - values[i]``, with ones on the diagonal."""
    return with_diagonal(row(values) - column(values), 1.0)


def _check_gauge(diagonal: Any, name: str) -> None:
    """The phase of complex vectors is arbitrary: a loss that depends on it is not a function."""
    if is_complex(diagonal) and not lacks_values(diagonal) and (array := host(diagonal)).size:
        if not np.allclose(array.imag, 0.0, atol=1e-2 * max(1.0, float(np.abs(array).max()))):
            raise RuntimeError(
                f"{name}: The vectors in the complex case are specified up to multiplication by "
                "e^{i phi}. The specified loss function depends on this phase term, making it "
                "ill-defined."
            )


def _eigh_rule(g: Any, values: Any, vectors: Any) -> Any:
    gl, gv = g
    back = adjoint(vectors)
    core = diagonal_matrix(gl)
    if not _idle(gv):
        rotated = back @ gv
        _check_gauge(diagonal_of(rotated), "linalg_eigh_backward")
        core = with_diagonal(rotated / _gaps(values), core)
        return vectors @ (core @ back)
    return (vectors * row(gl)) @ back


# As for Cholesky, the gradient is for symmetric changes only: nothing to sample freely.
linalg_eigh_op = general(
    "linalg_eigh",
    lambda x, uplo: tuple(converged("linalg.eigh", np.linalg.eigh, x, uplo)),
    _eigh_rule,
    outputs=("values", "vectors"),
    samples=lambda m: [Sample((m.real(2, 0, 0),), {"uplo": "L"})],
    shape=lambda x: [ShapeDtype(x.shape[:-1], shape_rules.real(x.dtype)), x.of(x.dtype)],
    batch=batch_rules.leading,
)
eigvalsh_op = general(
    "linalg_eigvalsh",
    lambda x, uplo: converged("linalg.eigvalsh", np.linalg.eigvalsh, x, uplo),
    lambda g, x, uplo: _eigvalsh_rule(g, x, uplo),
    samples=lambda m: [Sample((m.real(2, 0, 0),), {"uplo": "L"})],
    shape=lambda x: ShapeDtype(x.shape[:-1], shape_rules.real(x.dtype)),
    batch=batch_rules.leading,
)


def _eigvalsh_rule(g: Any, x: Any, uplo: str) -> Any:
    vectors = linalg_eigh_op(x, uplo=uplo)[1]
    return (vectors * row(g)) @ adjoint(vectors)


eigh_result = result_type("linalg_eigh", "eigenvalues", "eigenvectors")
eig_result = result_type("linalg_eig", "eigenvalues", "eigenvectors")


def _uplo(name: str, UPLO: str) -> str:
    if UPLO.upper() not in ("L", "U"):
        raise refuse(f"{name}: Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper()


@api.under("linalg", out=True)
def eigh(A: Tensor, UPLO: str = "L") -> Any:
    """Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices."""
    check_square("linalg.eigh", A)
    return eigh_result(*linalg_eigh_op(A, uplo=_uplo("linalg.eigh", UPLO)))


@api.under("linalg", out=True)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices."""
    check_square("linalg.eigvalsh", A)
    return eigvalsh_op(A, uplo=_uplo("linalg.eigvalsh", UPLO))


def _as_complex(x: np.ndarray) -> np.ndarray:
    return x if x.dtype.kind == "c" else x.astype(np.result_type(x.dtype, np.complex64))


def _eig(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, vectors = converged("linalg.eig", np.linalg.eig, x)
    return _as_complex(values), _as_complex(vectors)


def _eig_rule(g: Any, values: Any, vectors: Any) -> Any:
    from weft.operators.linalg import solve_op

    gl, gv = g
    back = adjoint(vectors)
    core = diagonal_matrix(gl)
    if not _idle(gv):
        rotated = back @ gv
        diagonal = diagonal_of(rotated)
        _check_gauge(diagonal, "linalg_eig_backward")
        # Vectors keep length one: what would change it is taken out.
        rotated = rotated - back @ (vectors * row(real_op(diagonal)))
        core = with_diagonal(rotated / conjugate(_gaps(values)), core)
    return solve_op(back, core @ back)[0]


def _eig_shape(x: ShapeDtype) -> list[ShapeDtype]:
    wide = shape_rules.complex_of(x.dtype)
    return [ShapeDtype(x.shape[:-1], wide), ShapeDtype(x.shape, wide)]


linalg_eig_op = general(
    "linalg_eig",
    _eig,
    _eig_rule,
    outputs=("values", "vectors"),
    samples=lambda m: [],
    shape=_eig_shape,
    batch=batch_rules.leading,
)
eigvals_op = general(
    "linalg_eigvals",
    lambda x: _as_complex(converged("linalg.eigvals", np.linalg.eigvals, x)),
    lambda g, x: _eigvals_rule(g, x),
    samples=lambda m: [],
    shape=lambda x: _eig_shape(x)[0],
    batch=batch_rules.leading,
)


def _eigvals_rule(g: Any, x: Any) -> Any:
    from weft.operators.linalg import solve_op

    back = adjoint(linalg_eig_op(x)[1])
    return solve_op(back, column(g) * back)[0]


def _check_finite(name: str, A: Tensor) -> None:
    array = values_of(A)
    if not lacks_values(array) and not np.isfinite(array).all():
        raise refuse(f"{name}: input tensor should not contain infs or NaNs.")


@api.under("linalg", out=True)
def eig(A: Tensor) -> Any:
    """Eigenvalues and eigenvectors of square matrices, complex in general."""
    check_square("linalg.eig", A)
    _check_finite("torch.linalg.eig", A)
    return eig_result(*linalg_eig_op(A))


@api.under("linalg", out=True)
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of square matrices, complex in general."""
    check_square("linalg.eigvals", A)
    _check_finite("torch.linalg.eigvals", A)
    return eigvals_op(A)


# --- singular values -------------------------------------------------------------------


def _svd(x: np.ndarray, full_matrices: bool) -> tuple[np.ndarray, ...]:
    return tuple(converged("linalg.svd", np.linalg.svd, x, full_matrices))


def _skew(x: Any) -> Any:
    return x - adjoint(x)


def _svd_rule(g: Any, u: Any, s: Any, vh: Any) -> Any:
    k = s.shape[-1]
    u, vh, gu, gs, gvh = u[..., :k], vh[..., :k, :], g[0][..., :k], g[1], g[2][..., :k, :]
    if _idle(gu) and _idle(gvh):
        return (u * row(gs)) @ vh
    v = adjoint(vh)
    rotated_u, rotated_v = adjoint(u) @ gu, vh @ adjoint(gvh)
    _check_gauge(diagonal_of(rotated_u) + diagonal_of(rotated_v), "svd_backward")
    gaps = with_diagonal((row(s) - column(s)) * (row(s) + column(s)), 1.0)
    core = (_skew(rotated_u) / gaps) * row(s) + column(s) * (_skew(rotated_v) / gaps)
    inner = gs
    if is_complex(u):
        inner = inner + imag_op(diagonal_of(rotated_u)) / s * 1j
    core = with_diagonal(core, diagonal_matrix(inner))
    out = u @ (core @ vh)
    if u.shape[-2] > k:
        out = out + ((gu - u @ rotated_u) / row(s)) @ vh
    if vh.shape[-1] > k:
        out = out + u @ ((gvh - (gvh @ v) @ vh) / column(s))
    return out


linalg_svd_op = general(
    "linalg_svd",
    _svd,
    _svd_rule,
    outputs=("u", "s", "vh"),
    samples=lambda m: [
        Sample((m.real(3, 2),), {"full_matrices": False}),
        Sample((m.real(2, 2, 3),), {"full_matrices": False}),
        Sample((m.real(2, 0, 3),), {"full_matrices": False}),
    ],
    shape=shape_rules.svd,
    batch=batch_rules.leading,
)


def _svdvals_rule(g: Any, x: Any) -> Any:
    u, _, vh = linalg_svd_op(x, full_matrices=False)
    return (u * row(g)) @ vh


svdvals_op = general(
    "linalg_svdvals",
    lambda x: converged("linalg.svdvals", np.linalg.svd, x, compute_uv=False),
    _svdvals_rule,
    samples=lambda m: [Sample((m.real(3, 2),)), Sample((m.real(2, 2, 3),))],
    shape=lambda x: shape_rules.svd(x, False)[1],
    batch=batch_rules.leading,
)
linalg_svd_result = result_type("linalg_svd", "U", "S", "Vh")
svd_result = result_type("svd", "U", "S", "V")


@api.under("linalg", out=True)
def svd(A: Tensor, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    """``U``, the singular values, and ``V^H``, whose product is ``A``."""
    _check_driver("linalg.svd", driver)
    check_matrix("linalg.svd", A)
    return linalg_svd_result(*linalg_svd_op(A, full_matrices=full_matrices))


def _check_driver(name: str, driver: str | None) -> None:
    if driver is not None:
        raise refuse(f"{name}: keyword argument `driver=` is only supported on CUDA inputs")


@api.under("linalg", out=True)
def svdvals(A: Tensor, *, driver: str | None = None) -> Tensor:
    """The singular values, descending."""
    _check_driver("linalg.svdvals", driver)
    check_matrix("linalg.svdvals", A)
    return svdvals_op(A)


@api.both(name="svd", out=True)
def old_svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> Any:
    """The singular value decomposition by its old name, with ``V`` instead of ``V^H``."""
    check_matrix("linalg.svd", input)
    if not compute_uv:
        m, n = input._a.shape[-2:]
        lead, d = input._a.shape[:-2], input._a.dtype
        none = (wrap(filled(np.zeros, (*lead, k, k), d)) for k in (m, n))
        u, v = none
        return svd_result(u, svdvals_op(input), v)
    u, s, vh = linalg_svd_op(input, full_matrices=not some)
    return svd_result(u, s, adjoint(vh))
