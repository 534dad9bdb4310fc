"""Ready-made parametrizations: orthogonal, weight norm, spectral norm."""

from __future__ import annotations

from typing import Any

from weft.core.modes import no_grad
from weft.core.tensor import Tensor
from weft.nn import functional as F
from weft.nn.module import Module
from weft.nn.utils import parametrize
from weft.nn.utils.spectral_norm import as_matrix, default_dim
from weft.nn.utils.weight_norm import norm_except_dim
from weft.operators import api

_MAPS = ("matrix_exp", "cayley", "householder")


def _f(name: str) -> Any:
    return api.FUNCTIONS[name]


def _linalg(name: str) -> Any:
    return api.NAMESPACES["linalg"][name]


def _make_orthogonal(a: Tensor) -> Tensor:
    """The orthogonal factor of a matrix, with signs that make it unique."""
    q, r = _linalg("qr")(a)
    return q * r.diagonal(0, -2, -1).sgn().unsqueeze(-2)


def _is_orthogonal(q: Tensor, eps: float | None = None) -> bool:
    n, k = q.size(-2), q.size(-1)
    one = _f("eye")(k, dtype=q.dtype)
    eps = 10.0 * n * _finfo(q) if eps is None else eps
    return bool(_f("allclose")(q.mT.conj() @ q, one, atol=eps))


def _finfo(x: Tensor) -> float:
    from weft.core.dtype import finfo

    return finfo(x.dtype).eps


class _Orthogonal(Module):
    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.size(-2), X.size(-1)
        transposed = n < k
        if transposed:
            X, n, k = X.mT, k, n
        if self.orthogonal_map == "householder":
            below = X.tril(-1)
            tau = 2.0 / (1.0 + (below * below.conj()).sum(-2))
            Q = _linalg("householder_product")(below, tau)
            # The diagonal holds signs only.
            Q = Q * X.diagonal(0, -2, -1).int().unsqueeze(-2)
        else:
            Q = self._from_skew(X.tril(), n, k)
        if "base" in self._buffers:
            Q = self.base @ Q
        return Q.mT if transposed else Q

    def _from_skew(self, X: Tensor, n: int, k: int) -> Tensor:
        if n != k:
            X = _f("cat")([X, X.new_zeros((n, n - k)).expand(*X.shape[:-2], -1, -1)], -1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = _f("matrix_exp")(A)
        else:
            one = _f("eye")(n, dtype=A.dtype)
            Q = _linalg("solve")(one - 0.5 * A, one + 0.5 * A)
        return Q[..., :k] if n != k else Q

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of "
                f"shape {Q.shape}."
            )
        Q_init = Q
        n, k = Q.size(-2), Q.size(-1)
        transposed = n < k
        if transposed:
            Q, n, k = Q.mT, k, n
        if "base" not in self._buffers:
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley "
                    "parametrizations when use_trivialization=False."
                )
            A, tau = _f("geqrf")(Q)
            diagonal = A.diagonal(0, -2, -1)
            # LAPACK says by an exact zero that it leaves a reflection out.
            diagonal.copy_(diagonal.sign() * (1.0 - 2.0 * (tau == 0.0)))
            return A.mT if transposed else A
        if n == k:
            Q = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
        else:
            noise = _f("randn")(*Q.shape[:-2], n, n - k, dtype=Q.dtype)
            Q = _make_orthogonal(_f("cat")([Q, noise], -1))
        self.base = Q
        negative = _f("zeros_like")(Q_init)
        negative.diagonal(0, -2, -1).fill_(-1.0)
        return negative


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix (or each of a batch) orthogonal."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(
            f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions."
        )
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1) or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
            f"Got: {orthogonal_map}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_except_dim(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int = 0) -> Module:
    """Train a weight as length (``original0``) and direction (``original1``)."""
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def take_old_names(state_dict: Any, prefix: str, *rest: Any) -> None:
        for i, part in enumerate("gv"):
            old = f"{prefix}{name}_{part}"
            if old in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(old)

    module._register_load_state_dict_pre_hook(take_old_names)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(
        self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12
    ) -> None:
        super().__init__()
        if dim >= weight.ndim or dim < -weight.ndim:
            raise IndexError(
                "Dimension out of range (expected to be in range of "
                f"[-{weight.ndim}, {weight.ndim - 1}] but got {dim})"
            )
        if n_power_iterations <= 0:
            raise ValueError(
                "Expected n_power_iterations to be positive, but got "
                f"n_power_iterations={n_power_iterations}"
            )
        self.dim = dim if dim >= 0 else dim + weight.ndim
        self.eps = eps
        if weight.ndim > 1:
            self.n_power_iterations = n_power_iterations
            with no_grad():
                matrix = as_matrix(weight, self.dim)
                rows, columns = matrix.size()
                u = matrix.new_empty(rows).normal_(0, 1)
                v = matrix.new_empty(columns).normal_(0, 1)
                self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
                self._power_method(matrix, 15)

    def _power_method(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(F.normalize(matrix.mv(self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(matrix.H.mv(self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            self._power_method(matrix.detach(), self.n_power_iterations)
        # Later calls change the buffers, and backward needs this call's values.
        u, v = self._u.clone(), self._v.clone()
        return weight / _f("vdot")(u, matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by an estimate of its largest singular value."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    dim = default_dim(module) if dim is None else dim
    made = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, made)


__all__ = ["orthogonal", "spectral_norm", "weight_norm"]
