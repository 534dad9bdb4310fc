# Made by tools/stubs.py (`make stubs`) from the functions themselves: do not edit.
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from weft import return_types as _return_types
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
_Operand = "Tensor" | _complex | np.generic | np.ndarray
_Device = _device | _str | _int
_Dtype = _dtype | _type
_Ints = SupportsIndex | Sequence[SupportsIndex]

class Tensor:
    """An array with elements of one dtype, which remembers how it was made."""
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    @property
    def H(self) -> Tensor:
        """A matrix transposed and conjugated."""
    @property
    def T(self) -> Tensor:
        """The dimensions in reverse order: a matrix transposed."""
    def __abs__(self) -> Tensor: ...
    def __add__(self, other: _Operand) -> Tensor: ...
    def __and__(self, other: _Operand) -> Tensor: ...
    def __array__(self, dtype: _Dtype | None = None, copy: _bool | None = None) -> np.ndarray: ...
    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: _bool = False) -> Tensor: ...
    def __bool__(self) -> _bool: ...
    def __complex__(self) -> _complex: ...
    def __contains__(self, element: Any) -> _bool: ...
    def __dlpack__(self, **options: Any) -> Any: ...
    def __dlpack_device__(self) -> tuple[_int, _int]: ...
    def __eq__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __float__(self) -> _float: ...
    def __floordiv__(self, other: _Operand) -> Tensor: ...
    def __format__(self, spec: _str) -> _str: ...
    def __ge__(self, other: _Operand) -> Tensor: ...
    def __getitem__(self, key: Any) -> Tensor: ...
    def __gt__(self, other: _Operand) -> Tensor: ...
    def __hash__(self) -> _int: ...
    def __iadd__(self, other: _Operand) -> Tensor: ...
    def __iand__(self, other: _Operand) -> Tensor: ...
    def __ifloordiv__(self, other: _Operand) -> Tensor: ...
    def __ilshift__(self, other: _Operand) -> Tensor: ...
    def __imatmul__(self, other: _Operand) -> Tensor: ...
    def __imod__(self, other: _Operand) -> Tensor: ...
    def __imul__(self, other: _Operand) -> Tensor: ...
    def __index__(self) -> _int: ...
    def __int__(self) -> _int: ...
    def __invert__(self) -> Tensor: ...
    def __ior__(self, other: _Operand) -> Tensor: ...
    def __ipow__(self, other: _Operand) -> Tensor: ...
    def __irshift__(self, other: _Operand) -> Tensor: ...
    def __isub__(self, other: _Operand) -> Tensor: ...
    def __iter__(self) -> Iterator[Tensor]: ...
    def __itruediv__(self, other: _Operand) -> Tensor: ...
    def __ixor__(self, other: _Operand) -> Tensor: ...
    def __le__(self, other: _Operand) -> Tensor: ...
    def __len__(self) -> _int: ...
    def __lshift__(self, other: _Operand) -> Tensor: ...
    def __lt__(self, other: _Operand) -> Tensor: ...
    def __matmul__(self, other: _Operand) -> Tensor: ...
    def __mod__(self, other: _Operand) -> Tensor: ...
    def __mul__(self, other: _Operand) -> Tensor: ...
    def __ne__(self, other: Any) -> Tensor: ...  # type: ignore[override]
    def __neg__(self) -> Tensor: ...
    def __or__(self, other: _Operand) -> Tensor: ...
    def __pos__(self) -> Tensor: ...
    def __pow__(self, other: _Operand) -> Tensor: ...
    def __radd__(self, other: _Operand) -> Tensor: ...
    def __rand__(self, other: _Operand) -> Tensor: ...
    def __reversed__(self) -> Tensor: ...
    def __rfloordiv__(self, other: _Operand) -> Tensor: ...
    def __rlshift__(self, other: _Operand) -> Tensor: ...
    def __rmatmul__(self, other: _Operand) -> Tensor: ...
    def __rmod__(self, other: _Operand) -> Tensor: ...
    def __rmul__(self, other: _Operand) -> Tensor: ...
    def __ror__(self, other: _Operand) -> Tensor: ...
    def __rpow__(self, other: _Operand) -> Tensor: ...
    def __rrshift__(self, other: _Operand) -> Tensor: ...
    def __rshift__(self, other: _Operand) -> Tensor: ...
    def __rsub__(self, other: _Operand) -> Tensor: ...
    def __rtruediv__(self, other: _Operand) -> Tensor: ...
    def __rxor__(self, other: _Operand) -> Tensor: ...
    def __setitem__(self, key: Any, value: Any) -> None: ...
    def __sub__(self, other: _Operand) -> Tensor: ...
    def __truediv__(self, other: _Operand) -> Tensor: ...
    def __xor__(self, other: _Operand) -> Tensor: ...
    def abs(self) -> Tensor:
        """The absolute value."""
    def abs_(self) -> Tensor:
        """The absolute value, in place."""
    def absolute(self) -> Tensor:
        """The absolute value."""
    def absolute_(self) -> Tensor:
        """The absolute value, in place."""
    def acos(self) -> Tensor:
        """The angle, in radians, whose cosine is given."""
    def acos_(self) -> Tensor:
        """In place: The angle, in radians, whose cosine is given."""
    def acosh(self) -> Tensor:
        """The inverse of ``cosh``."""
    def acosh_(self) -> Tensor:
        """In place: The inverse of ``cosh``."""
    def add(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``input + alpha * other``."""
    def add_(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``self += alpha * other``."""
    def addbmm(self, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """``beta * input + alpha * (sum of batch1 @ batch2 over the batch)``."""
    def addbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """In place: ``beta * input + alpha * (sum of batch1 @ batch2 over the batch)``."""
    def addcdiv(self, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor:
        """``input + value * tensor1 / tensor2``."""
    def addcdiv_(self, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor:
        """In place: ``input + value * tensor1 / tensor2``."""
    def addcmul(self, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor:
        """``input + value * tensor1 * tensor2``."""
    def addcmul_(self, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor:
        """In place: ``input + value * tensor1 * tensor2``."""
    def addmm(self, mat1: Tensor, mat2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """``beta * input + alpha * (mat1 @ mat2)``."""
    def addmm_(self, mat1: Tensor, mat2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """In place: ``beta * input + alpha * (mat1 @ mat2)``."""
    def addmv(self, mat: Tensor, vec: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """``beta * input + alpha * (mat @ vec)``."""
    def addmv_(self, mat: Tensor, vec: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """In place: ``beta * input + alpha * (mat @ vec)``."""
    def addr(self, vec1: Tensor, vec2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """``beta * input + alpha * outer(vec1, vec2)``, in the common type."""
    def addr_(self, vec1: Tensor, vec2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1) -> Tensor:
        """In place: ``beta * input + alpha * outer(vec1, vec2)``, in the common type."""
    def adjoint(self) -> Tensor:
        """Matrices transposed and conjugated."""
    @overload
    def all(self, dim: _Ints | None = None, keepdim: _bool = False) -> Tensor:
        """Whether all elements are true (not zero)."""
    @overload
    def all(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """Whether all elements are true (not zero)."""
    def allclose(self, other: Tensor, rtol: _float = 1e-05, atol: _float = 1e-08, equal_nan: _bool = False) -> _bool:
        """Whether all elements are close."""
    @overload
    def amax(self, dim: _Ints | None = (), keepdim: _bool = False) -> Tensor:
        """The maximum over dimensions; ties share its gradient evenly."""
    @overload
    def amax(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """The maximum over dimensions; ties share its gradient evenly."""
    @overload
    def amin(self, dim: _Ints | None = (), keepdim: _bool = False) -> Tensor:
        """The minimum over dimensions; ties share its gradient evenly."""
    @overload
    def amin(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """The minimum over dimensions; ties share its gradient evenly."""
    @overload
    def aminmax(self, *, dim: _Ints | None = None, keepdim: _bool = False) -> _return_types.aminmax:
        """Minimum and maximum at once."""
    @overload
    def aminmax(self, *, axis: _Ints | None, keepdims: _bool = False) -> _return_types.aminmax:
        """Minimum and maximum at once."""
    def angle(self) -> Tensor:
        """The angle of a complex number; 0 or pi for a real one."""
    @overload
    def any(self, dim: _Ints | None = None, keepdim: _bool = False) -> Tensor:
        """Whether any element is true (not zero)."""
    @overload
    def any(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """Whether any element is true (not zero)."""
    def apply_(self, callable: Callable[..., Any]) -> Tensor:
        """Replace each element by a Python function's value for it."""
    def arccos(self) -> Tensor:
        """The angle, in radians, whose cosine is given."""
    def arccos_(self) -> Tensor:
        """In place: The angle, in radians, whose cosine is given."""
    def arccosh(self) -> Tensor:
        """The inverse of ``cosh``."""
    def arccosh_(self) -> Tensor:
        """In place: The inverse of ``cosh``."""
    def arcsin(self) -> Tensor:
        """The angle, in radians, whose sine is given."""
    def arcsin_(self) -> Tensor:
        """In place: The angle, in radians, whose sine is given."""
    def arcsinh(self) -> Tensor:
        """The inverse of ``sinh``."""
    def arcsinh_(self) -> Tensor:
        """In place: The inverse of ``sinh``."""
    def arctan(self) -> Tensor:
        """The angle, in radians, whose tangent is given."""
    def arctan2(self, other: _Operand) -> Tensor:
        """The angle of the point (other, input), in radians from -pi to pi."""
    def arctan2_(self, other: _Operand) -> Tensor:
        """In place: The angle of the point (other, input), in radians from -pi to pi."""
    def arctan_(self) -> Tensor:
        """In place: The angle, in radians, whose tangent is given."""
    def arctanh(self) -> Tensor:
        """The inverse of ``tanh``."""
    def arctanh_(self) -> Tensor:
        """In place: The inverse of ``tanh``."""
    @overload
    def argmax(self, dim: _Ints | None = None, keepdim: _bool = False) -> Tensor:
        """The index of the maximum, of all elements or along a dimension."""
    @overload
    def argmax(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """The index of the maximum, of all elements or along a dimension."""
    @overload
    def argmin(self, dim: _Ints | None = None, keepdim: _bool = False) -> Tensor:
        """The index of the minimum, of all elements or along a dimension."""
    @overload
    def argmin(self, *, axis: _Ints | None, keepdims: _bool = False) -> Tensor:
        """The index of the minimum, of all elements or along a dimension."""
    @overload
    def argsort(self, dim: _int = -1, descending: _bool = False, *, stable: _bool = False) -> Tensor:
        """The indices that sort rows."""
    @overload
    def argsort(self, *, axis: _int, descending: _bool = False, stable: _bool = False) -> Tensor:
        """The indices that sort rows."""
    def argwhere(self) -> Tensor:
        """The positions of elements that are not zero, as rows of indices."""
    def as_strided(self, size: _Ints, stride: _Ints, storage_offset: _int | None = None) -> Tensor:
        """A view by explicit sizes and strides into the storage."""
    def as_strided_(self, size: _Ints, stride: _Ints, storage_offset: _int | None = None) -> Tensor:
        """``as_strided`` of the tensor itself, which keeps its memory."""
    def as_strided_scatter(self, src: Tensor, size: _Ints, stride: _Ints, storage_offset: _int | None = None) -> Tensor:
        """A copy with the elements of a strided view replaced."""
    def as_subclass(self, cls: _type) -> Any:
        """The same values and memory as an object of a subclass of Tensor; recorded as a view."""
    def asin(self) -> Tensor:
        """The angle, in radians, whose sine is given."""
    def asin_(self) -> Tensor:
        """In place: The angle, in radians, whose sine is given."""
    def asinh(self) -> Tensor:
        """The inverse of ``sinh``."""
    def asinh_(self) -> Tensor:
        """In place: The inverse of ``sinh``."""
    def atan(self) -> Tensor:
        """The angle, in radians, whose tangent is given."""
    def atan2(self, other: _Operand) -> Tensor:
        """The angle of the point (other, input), in radians from -pi to pi."""
    def atan2_(self, other: _Operand) -> Tensor:
        """In place: The angle of the point (other, input), in radians from -pi to pi."""
    def atan_(self) -> Tensor:
        """In place: The angle, in radians, whose tangent is given."""
    def atanh(self) -> Tensor:
        """The inverse of ``tanh``."""
    def atanh_(self) -> Tensor:
        """In place: The inverse of ``tanh``."""
    def backward(self, gradient: Any = None, retain_graph: _bool | None = None, create_graph: _bool = False, inputs: Any = None) -> None:
        """Compute the gradient of this tensor with respect to its leaves."""
    def baddbmm(self, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out_dtype: _Dtype | None = None) -> Tensor:
        """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    def baddbmm_(self, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out_dtype: _Dtype | None = None) -> Tensor:
        """In place: ``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
    def bernoulli(self, p: _float | None = None, *, generator: _Generator | None = None) -> Tensor:
        """0 or 1 for each element, which is the probability of 1 (unless ``p`` is given)."""
    def bernoulli_(self, p: Any = 0.5, *, generator: _Generator | None = None) -> Tensor:
        """Fill with 0 and 1, where 1 has the probability ``p`` (a number or a tensor)."""
    def bfloat16(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as bfloat16."""
    def bincount(self, weights: Any = None, minlength: _int = 0) -> Tensor:
        """How often each non-negative integer occurs, or the sum of its weights."""
    def bitwise_and(self, *inputs: Any) -> Tensor:
        """``input & other``, bit by bit; of booleans the logical and."""
    def bitwise_and_(self, *inputs: Any) -> Tensor:
        """``bitwise_and`` in place."""
    def bitwise_left_shift(self, *inputs: Any) -> Tensor:
        """``input << other``."""
    def bitwise_left_shift_(self, *inputs: Any) -> Tensor:
        """``bitwise_left_shift`` in place."""
    def bitwise_not(self, *inputs: Any) -> Tensor:
        """``~input``, bit by bit; of booleans the logical not."""
    def bitwise_not_(self, *inputs: Any) -> Tensor:
        """``bitwise_not`` in place."""
    def bitwise_or(self, *inputs: Any) -> Tensor:
        """``input | other``, bit by bit; of booleans the logical or."""
    def bitwise_or_(self, *inputs: Any) -> Tensor:
        """``bitwise_or`` in place."""
    def bitwise_right_shift(self, *inputs: Any) -> Tensor:
        """``input >> other``."""
    def bitwise_right_shift_(self, *inputs: Any) -> Tensor:
        """``bitwise_right_shift`` in place."""
    def bitwise_xor(self, *inputs: Any) -> Tensor:
        """``input ^ other``, bit by bit; of booleans the exclusive or."""
    def bitwise_xor_(self, *inputs: Any) -> Tensor:
        """``bitwise_xor`` in place."""
    def bmm(self, mat2: Tensor, out_dtype: _Dtype | None = None) -> Tensor:
        """The products of the matrices in two batches."""
    def bool(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as bool."""
    def broadcast_to(self, *size: _Ints) -> Tensor:
        """Repeat to a shape, without copying."""
    def byte(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as uint8."""
    def cauchy_(self, *args: Any, generator: _Generator | None = None, **named: Any) -> Tensor:
        """Fill with draws from the cauchy law."""
    def cdouble(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as complex128."""
    def ceil(self) -> Tensor:
        """The nearest whole number that is not smaller."""
    def ceil_(self) -> Tensor:
        """In place: The nearest whole number that is not smaller."""
    def cfloat(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as complex64."""
    def char(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as int8."""
    def cholesky(self, upper: _bool = False) -> Tensor:
        """The triangular ``L`` with ``L L^H = input``, for positive definite matrices."""
    def cholesky_inverse(self, upper: _bool = False) -> Tensor:
        """The inverse of a matrix from its Cholesky factor."""
    def cholesky_solve(self, L: Tensor, upper: _bool = False) -> Tensor:
        """The solution of ``A X = B`` from the Cholesky factor of ``A``."""
    def chunk(self, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """At most so many parts of equal size along a dimension."""
    def clamp(self, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
        """Values below ``min`` raised to it, values above ``max`` lowered to it."""
    def clamp_(self, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
        """Clamp in place."""
    def clamp_max(self, max: _Operand) -> Tensor:
        """Values above ``max`` lowered to it."""
    def clamp_max_(self, max: _Operand) -> Tensor:
        """Lower what is above ``max``, in place."""
    def clamp_min(self, min: _Operand) -> Tensor:
        """Values below ``min`` raised to it."""
    def clamp_min_(self, min: _Operand) -> Tensor:
        """Raise what is below ``min``, in place."""
    def clip(self, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
        """Values below ``min`` raised to it, values above ``max`` lowered to it."""
    def clip_(self, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
        """Clamp in place."""
    def clone(self, *, memory_format: _memory_format | None = None) -> Tensor:
        """A copy with memory of its own."""
    def combinations(self, r: _int = 2, with_replacement: _bool = False) -> Tensor:
        """All choices of r elements of a vector, one in each row."""
    def conj(self) -> Tensor:
        """The complex conjugate; real tensors as they are."""
    def conj_physical(self) -> Tensor:
        """The complex conjugate in memory of its own; real tensors as they are."""
    def conj_physical_(self) -> Tensor:
        """``conj_physical`` in place."""
    def const_data_ptr(self) -> _int:
        """The address of the first element; 0 where there is none."""
    def contiguous(self, memory_format: _memory_format | None = ...) -> Tensor:
        """This tensor in row-major order (or in the order given): itself, or a copy."""
    def copy_(self, src: Any, non_blocking: _bool = False) -> Tensor:
        """Overwrite this tensor with another's values."""
    def copysign(self, other: _Operand) -> Tensor:
        """The magnitude of ``input`` with the sign of ``other``."""
    def copysign_(self, other: _Operand) -> Tensor:
        """In place: The magnitude of ``input`` with the sign of ``other``."""
    def corrcoef(self) -> Tensor:
        """The correlation matrix of variables in rows, observed in columns."""
    def cos(self) -> Tensor:
        """The cosine of an angle in radians."""
    def cos_(self) -> Tensor:
        """In place: The cosine of an angle in radians."""
    def cosh(self) -> Tensor:
        """The hyperbolic cosine."""
    def cosh_(self) -> Tensor:
        """In place: The hyperbolic cosine."""
    @overload
    def count_nonzero(self, dim: _Ints | None = None) -> Tensor:
        """The number of elements that are not zero."""
    @overload
    def count_nonzero(self, *, axis: _Ints | None) -> Tensor:
        """The number of elements that are not zero."""
    def cov(self, *, correction: _int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
        """The covariance matrix of variables in rows, observed in columns."""
    def cpu(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor on the CPU, where it is unless it has no values."""
    def cross(self, other: Tensor, dim: _int | None = None) -> Tensor:
        """The cross products along a dimension: by default the first that has length three."""
    def cuda(self, device: _Device | None = None, non_blocking: _bool = False) -> Tensor:
        """Always an error: there is no such device here."""
    @overload
    def cummax(self, dim: _int) -> _return_types.cummax:
        """The greatest element so far along a dimension, and its index."""
    @overload
    def cummax(self, *, axis: _int) -> _return_types.cummax:
        """The greatest element so far along a dimension, and its index."""
    @overload
    def cummin(self, dim: _int) -> _return_types.cummin:
        """The smallest element so far along a dimension, and its index."""
    @overload
    def cummin(self, *, axis: _int) -> _return_types.cummin:
        """The smallest element so far along a dimension, and its index."""
    @overload
    def cumprod(self, dim: _int, *, dtype: _Dtype | None = None) -> Tensor:
        """Running products along a dimension."""
    @overload
    def cumprod(self, *, axis: _int, dtype: _Dtype | None = None) -> Tensor:
        """Running products along a dimension."""
    @overload
    def cumprod_(self, dim: _int, *, dtype: _Dtype | None = None) -> Tensor:
        """In place: Running products along a dimension."""
    @overload
    def cumprod_(self, *, axis: _int, dtype: _Dtype | None = None) -> Tensor:
        """In place: Running products along a dimension."""
    @overload
    def cumsum(self, dim: _int, *, dtype: _Dtype | None = None) -> Tensor:
        """Running sums along a dimension."""
    @overload
    def cumsum(self, *, axis: _int, dtype: _Dtype | None = None) -> Tensor:
        """Running sums along a dimension."""
    @overload
    def cumsum_(self, dim: _int, *, dtype: _Dtype | None = None) -> Tensor:
        """In place: Running sums along a dimension."""
    @overload
    def cumsum_(self, *, axis: _int, dtype: _Dtype | None = None) -> Tensor:
        """In place: Running sums along a dimension."""
    @property
    def data(self) -> Tensor:
        """The same values and memory, unseen by autograd."""
    @data.setter
    def data(self, value: Tensor) -> None: ...
    def data_ptr(self) -> _int:
        """The address of the first element; 0 where there is none."""
    def deg2rad(self) -> Tensor:
        """Degrees as radians."""
    def deg2rad_(self) -> Tensor:
        """In place: Degrees as radians."""
    def dense_dim(self) -> _int:
        """The number of dense dimensions: all."""
    def dequantize(self) -> Tensor:
        """The tensor as float32, which is what a tensor without quantisation stands for."""
    def det(self) -> Tensor:
        """The determinants of square matrices."""
    def detach(self) -> Tensor:
        """The same values, cut off from the graph; memory is shared."""
    def detach_(self) -> Tensor:
        """Cut this very tensor off from the graph."""
    @property
    def device(self) -> _device:
        """Where the tensor lives."""
    def diag(self, diagonal: _int = 0) -> Tensor:
        """A matrix with a vector on its diagonal, or the diagonal of a matrix."""
    def diag_embed(self, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor:
        """The last dimension spread over a diagonal of two new ones."""
    def diagflat(self, offset: _int = 0) -> Tensor:
        """A matrix with the flattened tensor on its diagonal."""
    def diagonal(self, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
        """A diagonal of the matrices in two dimensions, as a last dimension."""
    def diagonal_scatter(self, src: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
        """A copy with a diagonal replaced."""
    @overload
    def diff(self, n: _int = 1, dim: _int = -1, prepend: Any = None, append: Any = None) -> Tensor:
        """Differences of neighbours along a dimension, ``n`` times over."""
    @overload
    def diff(self, n: _int = 1, *, axis: _int, prepend: Any = None, append: Any = None) -> Tensor:
        """Differences of neighbours along a dimension, ``n`` times over."""
    def digamma(self) -> Tensor:
        """The derivative of the logarithm of the gamma function."""
    def digamma_(self) -> Tensor:
        """In place: The derivative of the logarithm of the gamma function."""
    def dim(self) -> _int:
        """The number of dimensions."""
    def dim_order(self, *, ambiguity_check: Any = False) -> tuple[_int, ...]:
        """The dimensions in memory order, outermost first."""
    def dist(self, other: Tensor, p: Any = 2) -> Tensor:
        """The p-norm of the difference."""
    def div(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
    def div_(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """Divide in place."""
    def divide(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
    def divide_(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """Divide in place."""
    def dot(self, tensor: Tensor) -> Tensor:
        """The sum of the products of two vectors' elements."""
    def double(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as float64."""
    def dsplit(self, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
        """Parts along a dimension, as ``dsplit`` does in NumPy."""
    @property
    def dtype(self) -> _dtype:
        """The type of the elements."""
    def element_size(self) -> _int:
        """Bytes of one element."""
    def eq(self, other: _Operand) -> Tensor:
        """Whether elements are equal, one by one."""
    def eq_(self, other: _Operand) -> Tensor:
        """``eq`` in place."""
    def equal(self, other: Tensor) -> _bool:
        """Whether two tensors have the same shape and the same elements."""
    def erf(self) -> Tensor:
        """The error function."""
    def erf_(self) -> Tensor:
        """In place: The error function."""
    def erfc(self) -> Tensor:
        """``1 - erf(x)``, exact for large x."""
    def erfc_(self) -> Tensor:
        """In place: ``1 - erf(x)``, exact for large x."""
    def erfinv(self) -> Tensor:
        """The inverse of ``erf``."""
    def erfinv_(self) -> Tensor:
        """In place: The inverse of ``erf``."""
    def exp(self) -> Tensor:
        """e to the power of each element."""
    def exp2(self) -> Tensor:
        """Two to the power of each element."""
    def exp2_(self) -> Tensor:
        """In place: Two to the power of each element."""
    def exp_(self) -> Tensor:
        """In place: e to the power of each element."""
    def expand(self, *sizes: _Ints, size: _Ints | None = None) -> Tensor:
        """Repeat along dimensions of length one, without copying."""
    def expand_as(self, other: Tensor) -> Tensor:
        """Repeat to the other's shape, without copying."""
    def expm1(self) -> Tensor:
        """``exp(x) - 1``, exact near zero."""
    def expm1_(self) -> Tensor:
        """In place: ``exp(x) - 1``, exact near zero."""
    def exponential_(self, *args: Any, generator: _Generator | None = None, **named: Any) -> Tensor:
        """Fill with draws from the exponential law."""
    def fill_(self, value: _Operand) -> Tensor:
        """Overwrite every element with one value."""
    def fill_diagonal_(self, fill_value: _Operand, wrap: _bool = False) -> Tensor:
        """Overwrite the main diagonal, for tall matrices again and again with ``wrap``."""
    def fix(self) -> Tensor:
        """The whole number without the fraction."""
    def fix_(self) -> Tensor:
        """In place: The whole number without the fraction."""
    def flatten(self, start_dim: _int = 0, end_dim: _int = -1) -> Tensor:
        """Several neighbouring dimensions as one."""
    def flip(self, *axes: _Ints | Tensor, dims: _Ints | Tensor | None = None) -> Tensor:
        """The order of elements reversed along some dimensions."""
    def fliplr(self) -> Tensor:
        """Columns in reverse order."""
    def flipud(self) -> Tensor:
        """Rows in reverse order."""
    def float(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as float32."""
    def float_power(self, exponent: _Operand) -> Tensor:
        """``input ** exponent`` in double precision."""
    def float_power_(self, exponent: _Operand) -> Tensor:
        """The power in place, for double precision only."""
    def floor(self) -> Tensor:
        """The nearest whole number that is not greater."""
    def floor_(self) -> Tensor:
        """In place: The nearest whole number that is not greater."""
    def floor_divide(self, other: _Operand) -> Tensor:
        """``floor(input / other)``, rounded towards minus infinity; it has no derivative."""
    def floor_divide_(self, other: _Operand) -> Tensor:
        """``floor_divide`` in place."""
    def fmax(self, other: _Operand) -> Tensor:
        """The greater of two elements; of a number and NaN the number."""
    def fmin(self, other: _Operand) -> Tensor:
        """The smaller of two elements; of a number and NaN the number."""
    def fmod(self, other: _Operand) -> Tensor:
        """The remainder with the sign of the dividend, as C's ``fmod``."""
    def fmod_(self, other: _Operand) -> Tensor:
        """``fmod`` in place."""
    def frac(self) -> Tensor:
        """The fraction, with the sign of the number."""
    def frac_(self) -> Tensor:
        """In place: The fraction, with the sign of the number."""
    def frexp(self) -> _return_types.frexp:
        """Mantissas in [0.5, 1) and exponents of two."""
    def gather(self, dim: _int, index: Tensor, *, sparse_grad: _bool = False) -> Tensor:
        """Elements along a dimension, by an index for each element of the result."""
    def gcd(self, other: _Operand) -> Tensor:
        """The greatest common divisor of integers."""
    def gcd_(self, other: _Operand) -> Tensor:
        """In place: The greatest common divisor of integers."""
    def ge(self, other: _Operand) -> Tensor:
        """``input >= other``, element by element."""
    def ge_(self, other: _Operand) -> Tensor:
        """``ge`` in place."""
    def geometric_(self, *args: Any, generator: _Generator | None = None, **named: Any) -> Tensor:
        """Fill with draws from the geometric law."""
    def geqrf(self) -> _return_types.geqrf:
        """QR in LAPACK's compact form: reflectors below the diagonal, and their factors."""
    def ger(self, vec2: Tensor) -> Tensor:
        """The product of each element of one vector with each of another."""
    def get_device(self) -> _int:
        """The number of the device; -1 for the CPU."""
    @property
    def grad(self) -> Tensor | None:
        """The gradient that backward has summed up for this tensor, or None."""
    @grad.setter
    def grad(self, value: Tensor | None) -> None: ...
    @property
    def grad_dtype(self) -> _dtype | None:
        """The dtype that a leaf's gradient is summed up in; None takes any."""
    @grad_dtype.setter
    def grad_dtype(self, value: _dtype | None) -> None: ...
    @property
    def grad_fn(self) -> Any:
        """The node that made this tensor, or None for leaves."""
    def greater(self, other: _Operand) -> Tensor:
        """``input > other``, element by element."""
    def greater_(self, other: _Operand) -> Tensor:
        """``gt`` in place."""
    def greater_equal(self, other: _Operand) -> Tensor:
        """``input >= other``, element by element."""
    def greater_equal_(self, other: _Operand) -> Tensor:
        """``ge`` in place."""
    def gt(self, other: _Operand) -> Tensor:
        """``input > other``, element by element."""
    def gt_(self, other: _Operand) -> Tensor:
        """``gt`` in place."""
    def half(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as float16."""
    def hardshrink(self, lambd: _float = 0.5) -> Tensor:
        """0 within ``lambd`` of 0, else the input."""
    @overload
    def hash_tensor(self, dim: _Ints | None = (), keepdim: _bool = False, mode: _int = 0) -> Tensor:
        """One number for the bits of all elements, or along dimensions: their exclusive or."""
    @overload
    def hash_tensor(self, *, axis: _Ints | None, keepdims: _bool = False, mode: _int = 0) -> Tensor:
        """One number for the bits of all elements, or along dimensions: their exclusive or."""
    def heaviside(self, values: Tensor) -> Tensor:
        """0 for negative and 1 for positive numbers, the given values at 0."""
    def heaviside_(self, values: Tensor) -> Tensor:
        """In place: 0 for negative and 1 for positive numbers, the given values at 0."""
    def histc(self, bins: _int = 100, min: _Operand | None = 0, max: _Operand | None = 0) -> Tensor:
        """Counts in bins of equal width between two limits."""
    def histogram(self, bins: Any = 100, *, range: Any = None, weight: Any = None, density: _bool = False) -> _return_types.histogram:
        """Counts of all elements in bins, and the bins' boundaries."""
    def hsplit(self, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
        """Parts along a dimension, as ``hsplit`` does in NumPy."""
    def hypot(self, other: _Operand) -> Tensor:
        """``sqrt(input**2 + other**2)`` without overflow."""
    def hypot_(self, other: _Operand) -> Tensor:
        """In place: ``sqrt(input**2 + other**2)`` without overflow."""
    def i0(self) -> Tensor:
        """The modified Bessel function of the first kind, order 0."""
    def i0_(self) -> Tensor:
        """In place: The modified Bessel function of the first kind, order 0."""
    def igamma(self, other: _Operand) -> Tensor:
        """The regularised lower incomplete gamma function P(input, other)."""
    def igamma_(self, other: _Operand) -> Tensor:
        """In place: The regularised lower incomplete gamma function P(input, other)."""
    def igammac(self, other: _Operand) -> Tensor:
        """The regularised upper incomplete gamma function Q(input, other)."""
    def igammac_(self, other: _Operand) -> Tensor:
        """In place: The regularised upper incomplete gamma function Q(input, other)."""
    @property
    def imag(self) -> Tensor:
        """The imaginary part, as a view."""
    @imag.setter
    def imag(self, value: Tensor) -> None: ...
    def index_add(self, dim: _int, index: Tensor, source: Tensor, *, alpha: _Operand = 1) -> Tensor:
        """A copy with slices of a source added by a vector of indices."""
    def index_add_(self, dim: _int, index: Tensor, source: Tensor, *, alpha: _Operand = 1) -> Tensor:
        """In place: A copy with slices of a source added by a vector of indices."""
    def index_copy(self, dim: _int, index: Tensor, source: Tensor) -> Tensor:
        """A copy with slices replaced by those of a source."""
    def index_copy_(self, dim: _int, index: Tensor, source: Tensor) -> Tensor:
        """In place: A copy with slices replaced by those of a source."""
    def index_fill(self, dim: _int, index: Tensor, value: _Operand) -> Tensor:
        """A copy with slices filled with one value."""
    def index_fill_(self, dim: _int, index: Tensor, value: _Operand) -> Tensor:
        """In place: A copy with slices filled with one value."""
    def index_put(self, indices: Any, values: Tensor, accumulate: _bool = False) -> Tensor:
        """A copy with values put (or added) at the indices."""
    def index_put_(self, indices: Any, values: Tensor, accumulate: _bool = False) -> Tensor:
        """Put (or add) values at the indices, in place."""
    def index_reduce(self, dim: _int, index: Tensor, source: Tensor, reduce: _str, *, include_self: _bool = True) -> Tensor:
        """A copy with slices of a source combined by index: prod, mean, amax, amin."""
    def index_reduce_(self, dim: _int, index: Tensor, source: Tensor, reduce: _str, *, include_self: _bool = True) -> Tensor:
        """In place: A copy with slices of a source combined by index: prod, mean, amax, amin."""
    def index_select(self, dim: _int, index: Tensor) -> Tensor:
        """Slices along a dimension, by a vector of indices."""
    def inner(self, other: Tensor) -> Tensor:
        """The dot products of all vectors in the last dimensions."""
    def int(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as int32."""
    def inverse(self) -> Tensor:
        """The inverse of square matrices."""
    def is_complex(self) -> _bool:
        """Whether the dtype is a complex one."""
    def is_conj(self) -> _bool:
        """Conjugation is done at once here, so there is no pending one."""
    def is_contiguous(self, memory_format: _memory_format | None = None) -> _bool:
        """Whether elements follow one another in memory in row-major order."""
    @property
    def is_cpu(self) -> _bool:
        """Whether it has values in the memory of the processor."""
    @property
    def is_cuda(self) -> _bool:
        """Whether it is a tensor of the kind ``cuda``: never."""
    def is_distributed(self) -> _bool:
        """Whether a tensor is spread over processes: never."""
    def is_floating_point(self) -> _bool:
        """Whether the dtype is a floating one."""
    def is_inference(self) -> _bool:
        """Whether it was made in inference mode, or is a view of what was."""
    @property
    def is_ipu(self) -> _bool:
        """Whether it is a tensor of the kind ``ipu``: never."""
    @property
    def is_leaf(self) -> _bool:
        """Whether no recorded op made this tensor."""
    @property
    def is_maia(self) -> _bool:
        """Whether it is a tensor of the kind ``maia``: never."""
    @property
    def is_meta(self) -> _bool:
        """Whether it has a shape and a dtype but no values."""
    @property
    def is_mkldnn(self) -> _bool:
        """Whether it is a tensor of the kind ``mkldnn``: never."""
    @property
    def is_mps(self) -> _bool:
        """Whether it is a tensor of the kind ``mps``: never."""
    @property
    def is_mtia(self) -> _bool:
        """Whether it is a tensor of the kind ``mtia``: never."""
    def is_neg(self) -> _bool:
        """Conjugation is done at once here, so there is no pending one."""
    @property
    def is_nested(self) -> _bool:
        """Whether it is a tensor of the kind ``nested``: never."""
    def is_nonzero(self) -> _bool:
        """Whether the one value of a tensor is not zero."""
    def is_pinned(self) -> _bool:
        """Conjugation is done at once here, so there is no pending one."""
    @property
    def is_quantized(self) -> _bool:
        """Whether it is a tensor of the kind ``quantized``: never."""
    def is_same_size(self, other: Tensor) -> _bool:
        """Whether two tensors have the same shape."""
    def is_set_to(self, tensor: Tensor) -> _bool:
        """Whether both share the same memory with the same geometry."""
    def is_shared(self) -> Any:
        """Whether other processes can see this tensor's memory."""
    def is_signed(self) -> _bool:
        """Whether the dtype can hold negative values."""
    @property
    def is_sparse(self) -> _bool:
        """Whether it is a tensor of the kind ``sparse``: never."""
    @property
    def is_sparse_csr(self) -> _bool:
        """Whether it is a tensor of the kind ``sparse_csr``: never."""
    @property
    def is_vulkan(self) -> _bool:
        """Whether it is a tensor of the kind ``vulkan``: never."""
    @property
    def is_xla(self) -> _bool:
        """Whether it is a tensor of the kind ``xla``: never."""
    @property
    def is_xpu(self) -> _bool:
        """Whether it is a tensor of the kind ``xpu``: never."""
    def isclose(self, other: Tensor, rtol: _float = 1e-05, atol: _float = 1e-08, equal_nan: _bool = False) -> Tensor:
        """Where ``|input - other| <= atol + rtol * |other|``."""
    def isfinite(self) -> Tensor:
        """Whether each element is neither infinite nor NaN."""
    def isinf(self) -> Tensor:
        """Whether each element is infinite."""
    def isnan(self) -> Tensor:
        """Whether each element is NaN."""
    def isneginf(self) -> Tensor:
        """Whether each element is negative infinity."""
    def isposinf(self) -> Tensor:
        """Whether each element is positive infinity."""
    def isreal(self) -> Tensor:
        """Whether each element has no imaginary part."""
    def istft(self, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, normalized: _bool = False, onesided: _bool | None = None, length: _int | None = None, return_complex: _bool = False) -> Tensor:
        """The signal whose ``stft`` is given, by the least squares of overlapping windows."""
    def item(self) -> Any:
        """The one value of a one-element tensor, as a Python number."""
    @property
    def itemsize(self) -> _int:
        """Bytes of one element."""
    def kron(self, other: Tensor) -> Tensor:
        """The Kronecker product."""
    @overload
    def kthvalue(self, k: _int, dim: _int = -1, keepdim: _bool = False) -> _return_types.kthvalue:
        """The ``k``-th smallest element of each row, and its index."""
    @overload
    def kthvalue(self, k: _int, *, axis: _int, keepdims: _bool = False) -> _return_types.kthvalue:
        """The ``k``-th smallest element of each row, and its index."""
    @property
    def layout(self) -> "Layout":
        """How elements are laid out; always dense here."""
    def lcm(self, other: _Operand) -> Tensor:
        """The least common multiple of integers."""
    def lcm_(self, other: _Operand) -> Tensor:
        """In place: The least common multiple of integers."""
    def ldexp(self, other: Tensor) -> Tensor:
        """``input * 2 ** other``."""
    def ldexp_(self, other: Tensor) -> Tensor:
        """In place: ``input * 2 ** other``."""
    def le(self, other: _Operand) -> Tensor:
        """``input <= other``, element by element."""
    def le_(self, other: _Operand) -> Tensor:
        """``le`` in place."""
    def lerp(self, end: Tensor, weight: Any) -> Tensor:
        """``input + weight * (end - input)``."""
    def lerp_(self, end: Tensor, weight: Any) -> Tensor:
        """In place: ``input + weight * (end - input)``."""
    def less(self, other: _Operand) -> Tensor:
        """``input < other``, element by element."""
    def less_(self, other: _Operand) -> Tensor:
        """``lt`` in place."""
    def less_equal(self, other: _Operand) -> Tensor:
        """``input <= other``, element by element."""
    def less_equal_(self, other: _Operand) -> Tensor:
        """``le`` in place."""
    def lgamma(self) -> Tensor:
        """The logarithm of the absolute value of the gamma function."""
    def lgamma_(self) -> Tensor:
        """In place: The logarithm of the absolute value of the gamma function."""
    def log(self) -> Tensor:
        """The natural logarithm."""
    def log10(self) -> Tensor:
        """The logarithm to base 10."""
    def log10_(self) -> Tensor:
        """In place: The logarithm to base 10."""
    def log1p(self) -> Tensor:
        """``log(1 + x)``, exact near zero."""
    def log1p_(self) -> Tensor:
        """In place: ``log(1 + x)``, exact near zero."""
    def log2(self) -> Tensor:
        """The logarithm to base 2."""
    def log2_(self) -> Tensor:
        """In place: The logarithm to base 2."""
    def log_(self) -> Tensor:
        """In place: The natural logarithm."""
    def log_normal_(self, *args: Any, generator: _Generator | None = None, **named: Any) -> Tensor:
        """Fill with draws from the log-normal law."""
    def log_softmax(self, dim: _int, dtype: _Dtype | None = None) -> Tensor:
        """The logarithm of softmax, computed without overflow."""
    def logaddexp(self, other: _Operand) -> Tensor:
        """``log(exp(input) + exp(other))`` without overflow."""
    def logaddexp2(self, other: _Operand) -> Tensor:
        """``log2(2**input + 2**other)`` without overflow."""
    @overload
    def logcumsumexp(self, dim: _int) -> Tensor:
        """The logarithm of running sums of exponentials along a dimension."""
    @overload
    def logcumsumexp(self, *, axis: _int) -> Tensor:
        """The logarithm of running sums of exponentials along a dimension."""
    def logdet(self) -> Tensor:
        """The logarithm of the determinant; NaN where it is negative."""
    def logical_and(self, other: _Operand) -> Tensor:
        """Whether both elements are true (not zero)."""
    def logical_and_(self, other: _Operand) -> Tensor:
        """``logical_and`` in place."""
    def logical_not(self) -> Tensor:
        """Whether each element is false (zero)."""
    def logical_not_(self) -> Tensor:
        """``logical_not`` in place."""
    def logical_or(self, other: _Operand) -> Tensor:
        """Whether one element or the other is true (not zero)."""
    def logical_or_(self, other: _Operand) -> Tensor:
        """``logical_or`` in place."""
    def logical_xor(self, other: _Operand) -> Tensor:
        """Whether just one of two elements is true (not zero)."""
    def logical_xor_(self, other: _Operand) -> Tensor:
        """``logical_xor`` in place."""
    def logit(self, eps: _float | None = None) -> Tensor:
        """The inverse of the sigmoid: ``log(x / (1 - x))``, with x kept ``eps`` away from 0 and 1."""
    def logit_(self, eps: _float | None = None) -> Tensor:
        """The inverse of the sigmoid, in place."""
    @overload
    def logsumexp(self, dim: _Ints, keepdim: _bool = False) -> Tensor:
        """The logarithm of the sum of exponentials, without overflow."""
    @overload
    def logsumexp(self, *, axis: _Ints, keepdims: _bool = False) -> Tensor:
        """The logarithm of the sum of exponentials, without overflow."""
    def long(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as int64."""
    def lt(self, other: _Operand) -> Tensor:
        """``input < other``, element by element."""
    def lt_(self, other: _Operand) -> Tensor:
        """``lt`` in place."""
    def lu(self, pivot: _bool = True, get_infos: _bool = False) -> Any:
        """LU by its old name."""
    def lu_solve(self, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
        """The solution of ``A X = b`` from LU's compact form, by its old name."""
    @property
    def mH(self) -> Tensor:
        """Each matrix of a batch transposed and conjugated."""
    @property
    def mT(self) -> Tensor:
        """The last two dimensions exchanged: each matrix of a batch transposed."""
    def map2_(self, x: Tensor, y: Tensor, callable: Callable[..., Any]) -> Tensor:
        """Replace each element by ``callable(own, x, y)``."""
    def map_(self, tensor: Tensor, callable: Callable[..., Any]) -> Tensor:
        """Replace each element by ``callable(own, other)``."""
    def masked_fill(self, mask: Tensor, value: _Operand) -> Tensor:
        """A copy with one value where the mask is true."""
    def masked_fill_(self, mask: Tensor, value: _Operand) -> Tensor:
        """In place: A copy with one value where the mask is true."""
    def masked_scatter(self, mask: Tensor, source: Tensor) -> Tensor:
        """A copy with the elements where the mask is true taken from a source, in order."""
    def masked_scatter_(self, mask: Tensor, source: Tensor) -> Tensor:
        """In place: A copy with the elements where the mask is true taken from a source, in order."""
    def masked_select(self, mask: Tensor) -> Tensor:
        """The elements where the mask is true, as a vector."""
    def matmul(self, other: Tensor) -> Tensor:
        """The matrix product with PyTorch's rules for vectors and batches."""
    def matrix_exp(self) -> Tensor:
        """The exponential of square matrices."""
    def matrix_power(self, n: _int) -> Tensor:
        """A square matrix multiplied ``n`` times; the inverse if ``n`` is negative."""
    @overload
    def max(self) -> Tensor:
        """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def max(self, other: Tensor) -> Tensor:
        """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def max(self, dim: _int, keepdim: _bool = False) -> _return_types.max:
        """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def max(self, *, axis: _int, keepdims: _bool = False) -> _return_types.max:
        """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    def maximum(self, other: _Operand) -> Tensor:
        """The greater of two elements; NaN if one is NaN."""
    @overload
    def mean(self, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None) -> Tensor:
        """The mean over all elements or over some dimensions."""
    @overload
    def mean(self, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The mean over all elements or over some dimensions."""
    @overload
    def median(self) -> Tensor:
        """The lower median of all elements, or of each row."""
    @overload
    def median(self, dim: _int, keepdim: _bool = False) -> _return_types.median:
        """The lower median of all elements, or of each row."""
    @overload
    def min(self) -> Tensor:
        """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def min(self, other: Tensor) -> Tensor:
        """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def min(self, dim: _int, keepdim: _bool = False) -> _return_types.min:
        """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    @overload
    def min(self, *, axis: _int, keepdims: _bool = False) -> _return_types.min:
        """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
    def minimum(self, other: _Operand) -> Tensor:
        """The smaller of two elements; NaN if one is NaN."""
    def mm(self, mat2: Tensor, out_dtype: _Dtype | None = None) -> Tensor:
        """The product of two matrices."""
    @overload
    def mode(self, dim: _int = -1, keepdim: _bool = False) -> _return_types.mode:
        """The most frequent value of each row (the least of several), and an index of it."""
    @overload
    def mode(self, *, axis: _int, keepdims: _bool = False) -> _return_types.mode:
        """The most frequent value of each row (the least of several), and an index of it."""
    def module_load(self, other: Tensor, assign: _bool = False) -> Tensor:
        """What a parameter becomes when a state with ``other`` in its place is loaded."""
    def moveaxis(self, source: Any, destination: Any) -> Tensor:
        """Move dimensions to other places, keeping the order of the rest."""
    def movedim(self, source: Any, destination: Any) -> Tensor:
        """Move dimensions to other places, keeping the order of the rest."""
    def msort(self) -> Tensor:
        """Sorted along the first dimension."""
    def mul(self, other: _Operand) -> Tensor:
        """``input * other``."""
    def mul_(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``self *= other``."""
    def multinomial(self, num_samples: _int, replacement: _bool = False, *, generator: _Generator | None = None) -> Tensor:
        """Indices drawn in proportion to weights, from one row or from each row."""
    def multiply(self, other: _Operand) -> Tensor:
        """``input * other``."""
    def multiply_(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``self *= other``."""
    def mv(self, vec: Tensor) -> Tensor:
        """The product of a matrix and a vector."""
    def mvlgamma(self, p: _int) -> Tensor:
        """The logarithm of the gamma function of p dimensions."""
    def mvlgamma_(self, p: _int) -> Tensor:
        """In place: The logarithm of the gamma function of p dimensions."""
    @property
    def name(self) -> _str | None:
        """A name that PyTorch's Caffe2 once had: None."""
    def nan_to_num(self, nan: _float | None = None, posinf: _float | None = None, neginf: _float | None = None) -> Tensor:
        """NaN and infinities replaced by numbers: 0 and the largest finite ones unless given."""
    def nan_to_num_(self, nan: _float | None = None, posinf: _float | None = None, neginf: _float | None = None) -> Tensor:
        """In place: NaN and infinities replaced by numbers: 0 and the largest finite ones unless given."""
    @overload
    def nanmean(self, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None) -> Tensor:
        """The mean of what is not NaN."""
    @overload
    def nanmean(self, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The mean of what is not NaN."""
    @overload
    def nanmedian(self) -> Tensor:
        """The lower median of what is not NaN."""
    @overload
    def nanmedian(self, dim: _int, keepdim: _bool = False) -> _return_types.nanmedian:
        """The lower median of what is not NaN."""
    @overload
    def nanquantile(self, q: Any, dim: _Ints | None = None, keepdim: _bool = False, *, interpolation: _str = 'linear') -> Tensor:
        """The ``q``-th quantile of each row, ignoring NaN."""
    @overload
    def nanquantile(self, q: Any, *, axis: _Ints | None, keepdims: _bool = False, interpolation: _str = 'linear') -> Tensor:
        """The ``q``-th quantile of each row, ignoring NaN."""
    @overload
    def nansum(self, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None) -> Tensor:
        """The sum, with NaN counted as zero."""
    @overload
    def nansum(self, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The sum, with NaN counted as zero."""
    def narrow(self, dim: _int, start: Any, length: _int) -> Tensor:
        """A range along a dimension, as a view."""
    def narrow_copy(self, dim: _int, start: _int, length: _int) -> Tensor:
        """``narrow``, as a copy."""
    @property
    def nbytes(self) -> _int:
        """Bytes of all elements."""
    @property
    def ndim(self) -> _int:
        """The number of dimensions."""
    def ndimension(self) -> _int:
        """The number of dimensions."""
    def ne(self, other: _Operand) -> Tensor:
        """Whether elements differ, one by one."""
    def ne_(self, other: _Operand) -> Tensor:
        """``ne`` in place."""
    def neg(self) -> Tensor:
        """``-input``."""
    def neg_(self) -> Tensor:
        """In place: ``-input``."""
    def negative(self) -> Tensor:
        """``-input``."""
    def negative_(self) -> Tensor:
        """In place: ``-input``."""
    def nelement(self) -> _int:
        """The number of elements."""
    def new(self, *args: Any, **kwargs: Any) -> Tensor:
        """A tensor of this tensor's dtype by the rules of ``torch.Tensor(...)``."""
    def new_empty(self, *args: Any, size: _Ints | None = None, dtype: _Dtype | None = None, device: _Device | None = None, requires_grad: _bool = False, layout: Any = None, pin_memory: _bool = False) -> Tensor:
        """A tensor of the given shape and this tensor's dtype, not filled."""
    def new_empty_strided(self, size: _Ints, stride: _Ints, **options: Any) -> Tensor:
        """A new tensor of this tensor's dtype with undefined values and the given strides."""
    def new_full(self, size: _Ints, fill_value: _Operand, *, dtype: _Dtype | None = None, **more: Any) -> Tensor:
        """A new tensor of this tensor's dtype with one value everywhere."""
    def new_ones(self, *args: Any, size: _Ints | None = None, dtype: _Dtype | None = None, device: _Device | None = None, requires_grad: _bool = False, layout: Any = None, pin_memory: _bool = False) -> Tensor:
        """Ones of the given shape, in this tensor's dtype."""
    def new_tensor(self, data: Any, *, dtype: _Dtype | None = None, device: _Device | None = None, requires_grad: _bool = False, layout: Any = None, pin_memory: _bool = False) -> Tensor:
        """A tensor of this tensor's dtype with a copy of the data."""
    def new_zeros(self, *args: Any, size: _Ints | None = None, dtype: _Dtype | None = None, device: _Device | None = None, requires_grad: _bool = False, layout: Any = None, pin_memory: _bool = False) -> Tensor:
        """Zeros of the given shape, in this tensor's dtype."""
    def nextafter(self, other: Tensor) -> Tensor:
        """The next number of the type from one value towards another."""
    def nextafter_(self, other: Tensor) -> Tensor:
        """In place: The next number of the type from one value towards another."""
    @overload
    def nonzero(self, *, as_tuple: Literal[False] = False) -> Tensor:
        """The positions of elements that are not zero: rows of indices, or one tensor per dim."""
    @overload
    def nonzero(self, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]:
        """The positions of elements that are not zero: rows of indices, or one tensor per dim."""
    def nonzero_static(self, *, size: _int, fill_value: _int = -1) -> Tensor:
        """The first ``size`` positions of elements that are not zero, filled up if there are fewer."""
    @overload
    def norm(self, p: Any = 'fro', dim: _Ints | None = None, keepdim: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The p-norm of all elements, or over some dimensions; ``'nuc'`` of matrices."""
    @overload
    def norm(self, p: Any = 'fro', *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The p-norm of all elements, or over some dimensions; ``'nuc'`` of matrices."""
    def normal_(self, mean: _float = 0.0, std: _float = 1.0, *, generator: _Generator | None = None) -> Tensor:
        """Fill with normally distributed values."""
    def not_equal(self, other: _Operand) -> Tensor:
        """Whether elements differ, one by one."""
    def not_equal_(self, other: _Operand) -> Tensor:
        """``ne`` in place."""
    def numel(self) -> _int:
        """The number of elements."""
    def numpy(self, *, force: _bool = False) -> np.ndarray:
        """The values as a NumPy array on the same memory."""
    def orgqr(self, tau: Tensor) -> Tensor:
        """The first columns of a product of Householder reflections."""
    def ormqr(self, tau: Tensor, other: Tensor, left: _bool = True, transpose: _bool = False) -> Tensor:
        """A matrix multiplied by the Q of a QR in compact form."""
    def outer(self, vec2: Tensor) -> Tensor:
        """The product of each element of one vector with each of another."""
    @property
    def output_nr(self) -> _int:
        """Which output of its node this tensor is."""
    def permute(self, *dims: _Ints | Tensor) -> Tensor:
        """The dimensions in another order."""
    def pin_memory(self, device: _Device | None = None) -> Tensor:
        """Nothing to pin without a GPU; the tensor itself, as if pinned."""
    def pinverse(self, rcond: _float = 1e-15) -> Tensor:
        """The pseudoinverse by its old name."""
    def polygamma(self, n: _int) -> Tensor:
        """The n-th derivative of the digamma function."""
    def polygamma_(self, n: _int) -> Tensor:
        """In place: The n-th derivative of the digamma function."""
    def positive(self) -> Tensor:
        """``+input``: the tensor itself."""
    def pow(self, exponent: _Operand) -> Tensor:
        """``input ** exponent``."""
    def pow_(self, exponent: _Operand) -> Tensor:
        """The power in place."""
    def prelu(self, weight: Tensor) -> Tensor:
        """``x`` where it is positive, else ``weight * x``, with a weight for each channel or one."""
    @overload
    def prod(self, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None) -> Tensor:
        """The product of all elements or along a dimension."""
    @overload
    def prod(self, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The product of all elements or along a dimension."""
    def put(self, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor:
        """A copy with elements replaced (or added to) at flat positions."""
    def put_(self, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor:
        """In place: A copy with elements replaced (or added to) at flat positions."""
    def qr(self, some: _bool = True) -> _return_types.qr:
        """QR by its old name."""
    @overload
    def quantile(self, q: Any, dim: _Ints | None = None, keepdim: _bool = False, *, interpolation: _str = 'linear') -> Tensor:
        """The ``q``-th quantile of each row, ``q`` between 0 and 1."""
    @overload
    def quantile(self, q: Any, *, axis: _Ints | None, keepdims: _bool = False, interpolation: _str = 'linear') -> Tensor:
        """The ``q``-th quantile of each row, ``q`` between 0 and 1."""
    def rad2deg(self) -> Tensor:
        """Radians as degrees."""
    def rad2deg_(self) -> Tensor:
        """In place: Radians as degrees."""
    def random_(self, *bounds: Any, generator: _Generator | None = None, **named: Any) -> Tensor:
        """Fill with whole numbers: ``random_()``, ``random_(to)`` or ``random_(from, to)``."""
    def ravel(self) -> Tensor:
        """All elements in one dimension, one after another in memory."""
    @property
    def real(self) -> Tensor:
        """The real part, as a view."""
    @real.setter
    def real(self, value: Tensor) -> None: ...
    def reciprocal(self) -> Tensor:
        """``1 / x``."""
    def reciprocal_(self) -> Tensor:
        """In place: ``1 / x``."""
    def register_hook(self, hook: Callable[..., Any]) -> Any:
        """Call ``hook(grad)`` when this tensor's gradient is known; it may return another."""
    def register_post_accumulate_grad_hook(self, hook: Callable[..., Any]) -> Any:
        """Call ``hook(tensor)`` after ``.grad`` of this leaf has been updated."""
    def relu(self) -> Tensor:
        """``x`` where it is positive, else zero."""
    def relu_(self) -> Tensor:
        """In place: ``x`` where it is positive, else zero."""
    def remainder(self, other: _Operand) -> Tensor:
        """The remainder with the sign of the divisor, as Python's ``%``."""
    def remainder_(self, other: _Operand) -> Tensor:
        """``remainder`` in place."""
    def renorm(self, p: Any, dim: _int, maxnorm: _Operand) -> Tensor:
        """Slices along a dimension scaled down where their norm exceeds ``maxnorm``."""
    def renorm_(self, p: Any, dim: _int, maxnorm: _Operand) -> Tensor:
        """In place: Slices along a dimension scaled down where their norm exceeds ``maxnorm``."""
    def repeat(self, *repeats: _Ints | Tensor) -> Tensor:
        """Copies side by side, so many along each dimension."""
    def repeat_interleave(self, repeats: _Ints | Tensor | None = None, dim: _int | None = None, *, output_size: _int | None = None) -> Tensor:
        """Each element (or slice along a dimension) repeated in place."""
    @property
    def requires_grad(self) -> _bool:
        """Whether a gradient is wanted for this tensor."""
    @requires_grad.setter
    def requires_grad(self, value: _bool) -> None: ...
    def requires_grad_(self, requires_grad: _bool = True) -> Tensor:
        """Set whether a gradient is required; only leaves can be changed."""
    def reshape(self, *sizes: _Ints, shape: _Ints | None = None) -> Tensor:
        """The same elements in another shape; a view where the layout allows it."""
    def reshape_as(self, other: Tensor) -> Tensor:
        """This tensor in the other's shape, copied if need be."""
    def resize(self, *size: _Ints) -> Tensor:
        """This tensor in another shape of as many elements (an old name of reshape)."""
    def resize_(self, *size: _Ints, memory_format: _memory_format | None = None) -> Tensor:
        """Another shape in place; memory is kept if it is large enough, its values in any case."""
    def resize_as(self, tensor: Tensor) -> Tensor:
        """This tensor in another's shape of as many elements (an old name of reshape_as)."""
    def resize_as_(self, the_template: Tensor, memory_format: _memory_format | None = None) -> Tensor:
        """Another tensor's shape, in place."""
    def resolve_conj(self) -> Tensor:
        """The tensor itself: conjugation is never pending here."""
    def resolve_neg(self) -> Tensor:
        """The tensor itself: negation is never pending here."""
    def retain_grad(self) -> None:
        """Keep ``.grad`` for this tensor although it is not a leaf."""
    @property
    def retains_grad(self) -> _bool:
        """Whether a non-leaf keeps its ``.grad``."""
    def roll(self, shifts: _Ints | Tensor, dims: _Ints | Tensor | None = None) -> Tensor:
        """Elements moved along dimensions; those that leave at one end enter at the other."""
    def rot90(self, k: _int = 1, dims: _Ints | Tensor | None = (0, 1)) -> Tensor:
        """Quarter turns in the plane of two dimensions."""
    def round(self, *, decimals: _int = 0) -> Tensor:
        """The nearest whole number (or decimal), with halves going to the even one."""
    def round_(self, *, decimals: _int = 0) -> Tensor:
        """In place: The nearest whole number (or decimal), with halves going to the even one."""
    def rsqrt(self) -> Tensor:
        """One over the square root."""
    def rsqrt_(self) -> Tensor:
        """In place: One over the square root."""
    def rsub(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``other - alpha * input``."""
    def scatter(self, dim: _int, index: Tensor, src: Any = None, *, value: _Operand | None = None, reduce: _str | None = None) -> Tensor:
        """A copy with values (or one value) placed along a dimension by index."""
    def scatter_(self, dim: _int, index: Tensor, src: Any = None, *, value: _Operand | None = None, reduce: _str | None = None) -> Tensor:
        """In place: A copy with values (or one value) placed along a dimension by index."""
    def scatter_add(self, dim: _int, index: Tensor, src: Tensor) -> Tensor:
        """A copy with values added along a dimension by index; repeated places add up."""
    def scatter_add_(self, dim: _int, index: Tensor, src: Tensor) -> Tensor:
        """In place: A copy with values added along a dimension by index; repeated places add up."""
    def scatter_reduce(self, dim: _int, index: Tensor, src: Tensor, reduce: _str, *, include_self: _bool = True) -> Tensor:
        """A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
    def scatter_reduce_(self, dim: _int, index: Tensor, src: Tensor, reduce: _str, *, include_self: _bool = True) -> Tensor:
        """In place: A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
    def select(self, dim: _int, index: _int) -> Tensor:
        """One slice along a dimension."""
    def select_scatter(self, src: Tensor, dim: _int, index: _int) -> Tensor:
        """A copy with one slice along a dimension replaced."""
    def set_(self, source: Any = None, storage_offset: _int = 0, size: _Ints | None = None, stride: _Ints | None = None) -> Tensor:
        """Take over another tensor's or storage's memory."""
    def sgn(self) -> Tensor:
        """The sign; of a complex number ``x / abs(x)``."""
    def sgn_(self) -> Tensor:
        """In place: The sign; of a complex number ``x / abs(x)``."""
    @property
    def shape(self) -> _Size:
        """The length of each dimension."""
    def share_memory_(self) -> Tensor:
        """Move this tensor to memory that other processes can see."""
    def short(self, memory_format: _memory_format | None = None) -> Tensor:
        """This tensor as int16."""
    def sigmoid(self) -> Tensor:
        """``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
    def sigmoid_(self) -> Tensor:
        """In place: ``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
    def sign(self) -> Tensor:
        """-1, 0 or 1 by the sign."""
    def sign_(self) -> Tensor:
        """In place: -1, 0 or 1 by the sign."""
    def signbit(self) -> Tensor:
        """Whether each element has its sign bit set; so has -0.0."""
    def sin(self) -> Tensor:
        """The sine of an angle in radians."""
    def sin_(self) -> Tensor:
        """In place: The sine of an angle in radians."""
    def sinc(self) -> Tensor:
        """``sin(pi x) / (pi x)``, and 1 at zero."""
    def sinc_(self) -> Tensor:
        """In place: ``sin(pi x) / (pi x)``, and 1 at zero."""
    def sinh(self) -> Tensor:
        """The hyperbolic sine."""
    def sinh_(self) -> Tensor:
        """In place: The hyperbolic sine."""
    @overload
    def size(self) -> _Size:
        """The shape, or the length of one dimension."""
    @overload
    def size(self, dim: _int) -> _int:
        """The shape, or the length of one dimension."""
    def slice_scatter(self, src: Tensor, dim: _int = 0, start: _int | None = None, end: _int | None = None, step: _int = 1) -> Tensor:
        """A copy with a slice along a dimension replaced."""
    def slogdet(self) -> Any:
        """The sign of the determinant and the logarithm of its magnitude."""
    def softmax(self, dim: _int, dtype: _Dtype | None = None) -> Tensor:
        """Exponentials along a dimension, scaled to sum to one."""
    @overload
    def sort(self, dim: _int = -1, descending: _bool = False, stable: _bool | None = None) -> _return_types.sort:
        """Sorted rows, and where their elements were. Always stable; NaN counts as greatest."""
    @overload
    def sort(self, *, axis: _int, descending: _bool = False, stable: _bool | None = None) -> _return_types.sort:
        """Sorted rows, and where their elements were. Always stable; NaN counts as greatest."""
    def sparse_dim(self) -> _int:
        """The number of sparse dimensions: none."""
    def split(self, split_size: _int | Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
        """Parts along a dimension: of one size, or of the sizes given."""
    def split_with_sizes(self, split_sizes: Any, dim: _int = 0) -> tuple[Tensor, ...]:
        """Parts of the sizes given."""
    def sqrt(self) -> Tensor:
        """The square root."""
    def sqrt_(self) -> Tensor:
        """In place: The square root."""
    def square(self) -> Tensor:
        """Each element times itself."""
    def square_(self) -> Tensor:
        """In place: Each element times itself."""
    def squeeze(self, dim: _Ints | None = None, *, axis: _Ints | None = None) -> Tensor:
        """Without the dimensions of length one."""
    def squeeze_(self, dim: _Ints | None = None, *, axis: _Ints | None = None) -> Tensor:
        """``squeeze`` of the tensor itself, which keeps its memory."""
    @overload
    def std(self, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None) -> Tensor:
        """The standard deviation, by default with Bessel's correction (``correction=1``)."""
    @overload
    def std(self, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None) -> Tensor:
        """The standard deviation, by default with Bessel's correction (``correction=1``)."""
    def stft(self, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, pad_mode: _str = 'reflect', normalized: _bool = False, onesided: _bool | None = None, return_complex: _bool | None = None, align_to_window: _bool | None = None) -> Tensor:
        """The Fourier transforms of windows that move over a signal."""
    def storage(self) -> _TypedStorage:
        """The memory behind this tensor as elements of its dtype."""
    def storage_offset(self) -> _int:
        """Where the first element stands in the storage, in elements."""
    def storage_type(self) -> _type:
        """The legacy class of this tensor's storage."""
    @overload
    def stride(self) -> tuple[_int, ...]:
        """Steps between neighbours, in elements."""
    @overload
    def stride(self, dim: _int) -> _int:
        """Steps between neighbours, in elements."""
    def sub(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``input - alpha * other``."""
    def sub_(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``self -= alpha * other``."""
    def subtract(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``input - alpha * other``."""
    def subtract_(self, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
        """``self -= alpha * other``."""
    @overload
    def sum(self, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None) -> Tensor:
        """The sum over all elements or over some dimensions."""
    @overload
    def sum(self, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None) -> Tensor:
        """The sum over all elements or over some dimensions."""
    def sum_to_size(self, *size: _Ints) -> Tensor:
        """Summed over what broadcasting had repeated, so that the given shape is left."""
    def svd(self, some: _bool = True, compute_uv: _bool = True) -> _return_types.svd:
        """The singular value decomposition by its old name, with ``V`` instead of ``V^H``."""
    def swapaxes(self, axis0: _int, axis1: _int) -> Tensor:
        """Two dimensions exchanged, by NumPy's names."""
    def swapaxes_(self, axis0: _int, axis1: _int) -> Tensor:
        """``swapaxes`` of the tensor itself, which keeps its memory."""
    def swapdims(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions exchanged."""
    def swapdims_(self, dim0: _int, dim1: _int) -> Tensor:
        """``swapdims`` of the tensor itself, which keeps its memory."""
    def t(self) -> Tensor:
        """A matrix transposed; vectors and scalars as they are."""
    def t_(self) -> Tensor:
        """``t`` of the tensor itself, which keeps its memory."""
    def take(self, index: Tensor) -> Tensor:
        """Elements by their positions in the flattened tensor."""
    def take_along_dim(self, indices: Tensor, dim: _int | None = None) -> Tensor:
        """Elements along a dimension by indices of the same rank, which broadcast."""
    def tan(self) -> Tensor:
        """The tangent of an angle in radians."""
    def tan_(self) -> Tensor:
        """In place: The tangent of an angle in radians."""
    def tanh(self) -> Tensor:
        """The hyperbolic tangent: any number brought between -1 and 1."""
    def tanh_(self) -> Tensor:
        """In place: The hyperbolic tangent: any number brought between -1 and 1."""
    def tensor_split(self, indices_or_sections: Any = None, dim: _int = 0, *, sections: Any = None, indices: Any = None, tensor_indices_or_sections: Any = None) -> tuple[Tensor, ...]:
        """Parts along a dimension: so many, or cut at the indices given."""
    def tile(self, *dims: _Ints | Tensor) -> Tensor:
        """Copies side by side; missing counts in front are one."""
    @overload
    def to(self, dtype: _Dtype, non_blocking: _bool = False, copy: _bool = False, *, memory_format: _memory_format | None = None) -> Tensor:
        """Another dtype or device: ``to(dtype)``, ``to(device, dtype)``, ``to(other)``."""
    @overload
    def to(self, device: _Device | None = None, dtype: _Dtype | None = None, non_blocking: _bool = False, copy: _bool = False, *, memory_format: _memory_format | None = None) -> Tensor:
        """Another dtype or device: ``to(dtype)``, ``to(device, dtype)``, ``to(other)``."""
    @overload
    def to(self, other: Tensor, non_blocking: _bool = False, copy: _bool = False, *, memory_format: _memory_format | None = None) -> Tensor:
        """Another dtype or device: ``to(dtype)``, ``to(device, dtype)``, ``to(other)``."""
    def to_dense(self, dtype: _Dtype | None = None, *, masked_grad: _bool | None = None) -> Tensor:
        """The tensor itself: it is dense; in another dtype if one is given."""
    def to_sparse(self, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: _int | None = None) -> Tensor:
        """The entries that are not zero, as a sparse tensor in coordinate format."""
    def to_sparse_coo(self) -> Tensor:
        """The entries that are not zero, as a sparse tensor in coordinate format."""
    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
    @overload
    def topk(self, k: _int, dim: _int = -1, largest: _bool = True, sorted: _bool = True) -> _return_types.topk:
        """The ``k`` greatest (or smallest) elements of each row, and their indices."""
    @overload
    def topk(self, k: _int, *, axis: _int, largest: _bool = True, sorted: _bool = True) -> _return_types.topk:
        """The ``k`` greatest (or smallest) elements of each row, and their indices."""
    def trace(self) -> Tensor:
        """The sum of a matrix's diagonal."""
    def transpose(self, dim0: _int, dim1: _int) -> Tensor:
        """Two dimensions exchanged."""
    def transpose_(self, dim0: _int, dim1: _int) -> Tensor:
        """``transpose`` of the tensor itself, which keeps its memory."""
    def triangular_solve(self, A: Tensor, upper: _bool = True, transpose: _bool = False, unitriangular: _bool = False) -> _return_types.triangular_solve:
        """The solution of a triangular system, by its old name."""
    def tril(self, diagonal: _int = 0) -> Tensor:
        """The lower triangle; zeros elsewhere."""
    def tril_(self, diagonal: _int = 0) -> Tensor:
        """In place: The lower triangle; zeros elsewhere."""
    def triu(self, diagonal: _int = 0) -> Tensor:
        """The upper triangle; zeros elsewhere."""
    def triu_(self, diagonal: _int = 0) -> Tensor:
        """In place: The upper triangle; zeros elsewhere."""
    def true_divide(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
    def true_divide_(self, other: _Operand, *, rounding_mode: _str | None = None) -> Tensor:
        """Divide in place."""
    def trunc(self) -> Tensor:
        """The whole number without the fraction."""
    def trunc_(self) -> Tensor:
        """In place: The whole number without the fraction."""
    @overload
    def type(self) -> _str:
        """The name of the tensor's type, or the tensor in another type."""
    @overload
    def type(self, dtype: _Dtype | _str, non_blocking: _bool = False) -> Tensor:
        """The name of the tensor's type, or the tensor in another type."""
    def type_as(self, other: Tensor) -> Tensor:
        """This tensor in the other's dtype, on the other's device."""
    def unbind(self, dim: _int = 0, *, axis: _int | None = None) -> tuple[Tensor, ...]:
        """All slices along a dimension."""
    def unflatten(self, dim: _int, sizes: _Ints) -> Tensor:
        """One dimension as several."""
    def unfold(self, dimension: _int, size: _int, step: _int) -> Tensor:
        """Windows along a dimension, as a last dimension; overlapping ones share memory."""
    def uniform_(self, from_: _float = 0.0, to: _float = 1.0, *, generator: _Generator | None = None, **named: _float) -> Tensor:
        """Fill with values from [from, to)."""
    @overload
    def unique(self, sorted: _bool = True, return_inverse: _bool = False, return_counts: _bool = False, dim: _Ints | None = None) -> Any:
        """The distinct elements in order, or the distinct slices along a dimension."""
    @overload
    def unique(self, sorted: _bool = True, return_inverse: _bool = False, return_counts: _bool = False, *, axis: _Ints | None) -> Any:
        """The distinct elements in order, or the distinct slices along a dimension."""
    @overload
    def unique_consecutive(self, return_inverse: _bool = False, return_counts: _bool = False, dim: _Ints | None = None) -> Any:
        """The first of each run of equal elements, or of equal slices along a dimension."""
    @overload
    def unique_consecutive(self, return_inverse: _bool = False, return_counts: _bool = False, *, axis: _Ints | None) -> Any:
        """The first of each run of equal elements, or of equal slices along a dimension."""
    def unsafe_chunk(self, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """As ``chunk``, with parts that may be changed in place."""
    def unsafe_split(self, split_size: _int, dim: _int = 0) -> tuple[Tensor, ...]:
        """As ``split``, with parts that may be changed in place: here they are copies."""
    def unsafe_split_with_sizes(self, split_sizes: Any, dim: _int = 0) -> tuple[Tensor, ...]:
        """As ``split_with_sizes``, with parts that may be changed in place."""
    def unsqueeze(self, dim: _int) -> Tensor:
        """A new dimension of length one."""
    def unsqueeze_(self, dim: _int) -> Tensor:
        """``unsqueeze`` of the tensor itself, which keeps its memory."""
    def untyped_storage(self) -> _UntypedStorage:
        """The bytes behind this tensor."""
    @overload
    def var(self, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None) -> Tensor:
        """The variance, by default with Bessel's correction (``correction=1``)."""
    @overload
    def var(self, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None) -> Tensor:
        """The variance, by default with Bessel's correction (``correction=1``)."""
    def vdot(self, other: Tensor) -> Tensor:
        """The dot product with the first vector conjugated."""
    @overload
    def view(self, *shape: _Ints, size: _Ints | None = None) -> Tensor:
        """The same memory in another shape, or as another dtype."""
    @overload
    def view(self, dtype: _dtype) -> Tensor:
        """The same memory in another shape, or as another dtype."""
    def view_as(self, other: Tensor) -> Tensor:
        """This tensor in the other's shape."""
    @property
    def volatile(self) -> _bool:
        """Always False; replaced by ``no_grad``."""
    def vsplit(self, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
        """Parts along a dimension, as ``vsplit`` does in NumPy."""
    def where(self, condition: Tensor, other: _Operand) -> Tensor:
        """This tensor where the condition holds, else the other."""
    def xlogy(self, other: _Operand) -> Tensor:
        """``input * log(other)``, and 0 where the input is 0."""
    def xlogy_(self, other: _Operand) -> Tensor:
        """``self * log(other)`` in place."""
    def zero_(self) -> Tensor:
        """Overwrite every element with zero."""

class Parameter(Tensor):
    """A tensor that a module owns and an optimizer changes."""
    def __init__(
        self, data: Tensor | None = None, requires_grad: _bool = True
    ) -> None: ...

class Layout:
    """How a tensor's elements are laid out."""
    name: _str
    def __init__(self, name: _str) -> None: ...

LATE: Any
LAYOUT: Layout
new: Any
def _check_subclass(cls: Any) -> None: ...
def _converted(result: Any, cls: _type) -> Any: ...
def _grad_dtype(x: Tensor) -> _dtype | None: ...
def _is_parameter(cls: _type, instance: Any) -> _bool: ...
def _layout_named(name: _str) -> Any: ...
def _marked_parameter(data: Tensor, requires_grad: _bool) -> Any: ...
def _of_class(made: Tensor, cls: _type) -> Any: ...
def _rebuild(cls: type[Tensor], owner: np.ndarray, place: tuple[Any, ...], requires_grad: _bool) -> Tensor: ...
def beside(other: Tensor, array: np.ndarray) -> Tensor: ...
def copy_sharing(array: np.ndarray, memory: dict[_int, np.ndarray]) -> np.ndarray: ...
def dense(owner: np.ndarray) -> np.ndarray | None: ...
def enable_pending_tensors() -> None: ...
def over(owner: np.ndarray, d: Any, shape: _Ints, strides: Any, start: _int) -> np.ndarray: ...
def read_unset(self: Tensor, name: _str) -> Any: ...
def refresh(x: Tensor) -> None: ...
def shares(result: np.ndarray, source: np.ndarray) -> _bool: ...
def slots_of(kind: _type) -> list[_str]: ...
def storage_array(array: Any) -> Any: ...
def strided(x: np.ndarray, shape: tuple[_int, ...], strides: tuple[_int, ...], shift: _int = 0) -> np.ndarray: ...
def tell_of_cut(tensor: Tensor) -> None: ...
def tell_of_relinking(tensor: Tensor) -> None: ...
def values_of_slots(x: Tensor) -> dict[_str, Any]: ...
def wrap(array: Any, node: Any = None) -> Tensor: ...
