# Made by tools/stubs.py (`make stubs`) from the functions themselves: do not edit.
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from weft import return_types as _return_types
from weft.core.tensor import Tensor
from weft.core.device import device as _device
from weft.core.dtype import dtype as _dtype
from weft.core.size import Size as _Size
from weft.core.storage import TypedStorage as _TypedStorage
from weft.core.storage import UntypedStorage as _UntypedStorage
from weft.operators.casting import memory_format as _memory_format
from weft.operators.random import Generator as _Generator

# Methods and dtypes have these names too.
_bool = builtins.bool
_bytes = builtins.bytes
_complex = builtins.complex
_float = builtins.float
_int = builtins.int
_str = builtins.str
_type = builtins.type
_Operand = Tensor | _complex | np.generic | np.ndarray
_Device = _device | _str | _int
_Dtype = _dtype | _type
_Ints = SupportsIndex | Sequence[SupportsIndex]

from weft.operators.factorizations import LinAlgError as LinAlgError
def cholesky(input: Tensor, *, upper: _bool = False, out: Tensor | None = None) -> Tensor:
    """The triangular ``L`` with ``L L^H = input``, for positive definite matrices."""
def cholesky_ex(input: Tensor, *, upper: _bool = False, check_errors: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_cholesky_ex:
    """The Cholesky factor, and for each matrix whether there is one."""
def cond(A: Tensor, p: Any = None, *, out: Tensor | None = None) -> Tensor:
    """How much a matrix amplifies relative errors."""
@overload
def cross(input: Tensor, other: Tensor, *, dim: _int = -1, out: Tensor | None = None) -> Tensor:
    """The cross products of three-vectors along a dimension."""
@overload
def cross(input: Tensor, other: Tensor, *, axis: _int, out: Tensor | None = None) -> Tensor:
    """The cross products of three-vectors along a dimension."""
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The determinants of square matrices."""
def diagonal(A: Tensor, *, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor:
    """A diagonal of each matrix, as a view."""
def eig(A: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_eig:
    """Eigenvalues and eigenvectors of square matrices, complex in general."""
def eigh(A: Tensor, UPLO: _str = 'L', *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_eigh:
    """Eigenvalues, ascending, and eigenvectors of symmetric or Hermitian matrices."""
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Eigenvalues of square matrices, complex in general."""
def eigvalsh(A: Tensor, UPLO: _str = 'L', *, out: Tensor | None = None) -> Tensor:
    """Eigenvalues, ascending, of symmetric or Hermitian matrices."""
def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first columns of a product of Householder reflections."""
def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of square matrices."""
def inv_ex(A: Tensor, *, check_errors: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_inv_ex:
    """The inverse, and for each matrix whether there is one."""
def ldl_factor(A: Tensor, *, hermitian: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_ldl_factor:
    """The LDL factorisation of symmetric matrices in compact form."""
def ldl_factor_ex(A: Tensor, *, hermitian: _bool = False, check_errors: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_ldl_factor_ex:
    """The LDL factorisation of symmetric matrices in compact form."""
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: _bool = False, out: Tensor | None = None) -> Tensor:
    """The solution of a symmetric system from its LDL factorisation."""
def lstsq(A: Tensor, B: Tensor, rcond: _float | None = None, *, driver: _str | None = None, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_lstsq:
    """The ``X`` for which ``A X`` comes nearest to ``B``."""
def lu(A: Tensor, *, pivot: _bool = True, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_lu:
    """A permutation, a unit lower and an upper triangle whose product is ``A``."""
def lu_factor(A: Tensor, *, pivot: _bool = True, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_lu_factor:
    """LU in compact form, with the exchanges of rows."""
def lu_factor_ex(A: Tensor, *, pivot: _bool = True, check_errors: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_lu_factor_ex:
    """LU in compact form, with the exchanges of rows and what went wrong."""
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: _bool = True, adjoint: _bool = False, out: Tensor | None = None) -> Tensor:
    """The solution of ``A X = B`` (or with ``A^H``, or ``X A = B``) from LU's compact form."""
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product with PyTorch's rules for vectors and batches."""
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
@overload
def matrix_norm(A: Tensor, ord: Any = 'fro', dim: _Ints | None = (-2, -1), keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """A norm of matrices: Frobenius, nuclear, or by rows, columns or singular values."""
@overload
def matrix_norm(A: Tensor, ord: Any = 'fro', *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """A norm of matrices: Frobenius, nuclear, or by rows, columns or singular values."""
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor:
    """A square matrix multiplied ``n`` times; the inverse if ``n`` is negative."""
def matrix_rank(A: Tensor, tol: Any = None, hermitian: _bool = False, *, atol: Any = None, rtol: Any = None, out: Tensor | None = None) -> Tensor:
    """The number of singular values that count as more than zero."""
def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, multiplied in the cheapest order."""
@overload
def norm(A: Tensor, ord: Any = None, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """A norm of vectors or of matrices, by the number of dimensions given."""
@overload
def norm(A: Tensor, ord: Any = None, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """A norm of vectors or of matrices, by the number of dimensions given."""
def pinv(A: Tensor, rcond: Any = None, hermitian: _bool = False, *, atol: Any = None, rtol: Any = None, out: Tensor | None = None) -> Tensor:
    """The pseudoinverse: small singular values count as zero."""
def qr(A: Tensor, mode: _str = 'reduced', *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_qr:
    """An orthonormal ``Q`` and a triangular ``R`` with ``Q R = A``."""
def slogdet(A: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_slogdet:
    """The sign of the determinant and the logarithm of its magnitude."""
def solve(A: Tensor, B: Tensor, *, left: _bool = True, out: Tensor | None = None) -> Tensor:
    """The solution of ``A X = B`` (or ``X A = B``) for square ``A``."""
def solve_ex(A: Tensor, B: Tensor, *, left: _bool = True, check_errors: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_solve_ex:
    """The solution of ``A X = B``, and for each matrix whether there is one."""
def solve_triangular(A: Tensor, B: Tensor, *, upper: _bool, left: _bool = True, unitriangular: _bool = False, out: Tensor | None = None) -> Tensor:
    """The solution of ``A X = B`` (or ``X A = B``) for a triangular ``A``, in its dtype."""
def svd(A: Tensor, full_matrices: _bool = True, *, driver: _str | None = None, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.linalg_svd:
    """``U``, the singular values, and ``V^H``, whose product is ``A``."""
def svdvals(A: Tensor, *, driver: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The singular values, descending."""
def tensorinv(A: Tensor, ind: _int = 2, *, out: Tensor | None = None) -> Tensor:
    """The inverse with respect to ``tensordot`` over ``ind`` dimensions."""
def tensorsolve(A: Tensor, B: Tensor, dims: _Ints | Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """The solution ``X`` of ``tensordot(A, X, X.ndim) = B``."""
def vander(x: Tensor, *, N: _int | None = None) -> Tensor:
    """The matrix of a vector's powers from the lowest, for each vector of a batch."""
@overload
def vecdot(x: Tensor, y: Tensor, *, dim: _int = -1, out: Tensor | None = None) -> Tensor:
    """The dot products of vectors along a dimension, the first ones conjugated."""
@overload
def vecdot(x: Tensor, y: Tensor, *, axis: _int, out: Tensor | None = None) -> Tensor:
    """The dot products of vectors along a dimension, the first ones conjugated."""
@overload
def vector_norm(x: Tensor, ord: Any = 2, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The p-norm over all elements or over some dimensions."""
@overload
def vector_norm(x: Tensor, ord: Any = 2, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The p-norm over all elements or over some dimensions."""
