# Made by tools/stubs.py (`make stubs`) from the functions themselves: do not edit.
import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, overload

import numpy as np

from weft import return_types as _return_types
from weft.core.tensor import Tensor as Tensor
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

from weft import autograd as autograd
from weft.core.device import device as device
from weft.core.device import get_default_device as get_default_device
from weft.core.device import set_default_device as set_default_device
from weft.core.dtype import dtype as dtype
from weft.core.dtype import finfo as finfo
from weft.core.dtype import get_default_dtype as get_default_dtype
from weft.core.dtype import iinfo as iinfo
from weft.core.dtype import set_default_dtype as set_default_dtype
from weft.core.modes import enable_grad as enable_grad
from weft.core.modes import inference_mode as inference_mode
from weft.core.modes import is_grad_enabled as is_grad_enabled
from weft.core.modes import is_inference_mode_enabled as is_inference_mode_enabled
from weft.core.modes import no_grad as no_grad
from weft.core.modes import set_grad_enabled as set_grad_enabled
from weft.core.printing import get_printoptions as get_printoptions
from weft.core.printing import printoptions as printoptions
from weft.core.printing import set_printoptions as set_printoptions
from weft.core.settings import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from weft.core.settings import get_deterministic_debug_mode as get_deterministic_debug_mode
from weft.core.settings import get_float32_matmul_precision as get_float32_matmul_precision
from weft.core.settings import get_num_interop_threads as get_num_interop_threads
from weft.core.settings import get_num_threads as get_num_threads
from weft.core.settings import is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled
from weft.core.settings import set_deterministic_debug_mode as set_deterministic_debug_mode
from weft.core.settings import set_float32_matmul_precision as set_float32_matmul_precision
from weft.core.settings import set_flush_denormal as set_flush_denormal
from weft.core.settings import set_num_interop_threads as set_num_interop_threads
from weft.core.settings import set_num_threads as set_num_threads
from weft.core.settings import use_deterministic_algorithms as use_deterministic_algorithms
from weft.core.size import Size as Size
from weft.core.tensor import LAYOUT as strided
from weft.core.tensor import Layout as layout
from weft.core.tensor import Tensor as Tensor
from weft.core.tracebacks import get_traceback_filtering as get_traceback_filtering
from weft.core.tracebacks import set_traceback_filtering as set_traceback_filtering
from weft import fft as fft
from weft import linalg as linalg
from weft import special as special
from weft.func import vmap as vmap
from weft.operators.casting import channels_last as channels_last
from weft.operators.casting import channels_last_3d as channels_last_3d
from weft.operators.casting import contiguous_format as contiguous_format
from weft.operators.casting import memory_format as memory_format
from weft.operators.casting import preserve_format as preserve_format
from weft.core.tensor import Layout as Layout
from weft import amp as amp
from weft import audio as audio
from weft import autograd as autograd
from weft import backends as backends
from weft import compat as compat
from weft import compiler as compiler
from weft import demo as demo
from weft import distributed as distributed
from weft import distributions as distributions
from weft import fft as fft
from weft import func as func
from weft import futures as futures
from weft import fx as fx
from weft import graph as graph
from weft import hub as hub
from weft import io as io
from weft import jit as jit
from weft import library as library
from weft import linalg as linalg
from weft import masked as masked
from weft import memory as memory
from weft import multiprocessing as multiprocessing
from weft import nn as nn
from weft import optim as optim
from weft import overrides as overrides
from weft import profiler as profiler
from weft import quasirandom as quasirandom
from weft import random as random
from weft import return_types as return_types
from weft import serialization as serialization
from weft import signal as signal
from weft import sparse as sparse
from weft import special as special
from weft import testing as testing
from weft import text as text
from weft import torch_version as torch_version
from weft import train as train
from weft import utils as utils
from weft import version as version
from weft import vision as vision
from weft import viz as viz
from weft import watching as watching
from weft.compat.shims import accelerator as accelerator
from weft.compat.shims import cpu as cpu
from weft.compat.shims import cuda as cuda
from weft.compat.shims import mps as mps
from weft.compat.shims import ops as ops
from weft.compat.shims import storage as storage
from weft.compat.shims import xpu as xpu
from weft.serialization import load as load
from weft.serialization import save as save
from weft.futures import Future as Future
from weft.jit import ScriptFunction as ScriptFunction
from weft.jit import ScriptModule as ScriptModule
from weft._checks import cond as cond
from weft._checks import _check as _check
from weft._checks import _check_index as _check_index
from weft._checks import _check_is_size as _check_is_size
from weft._checks import _check_type as _check_type
from weft._checks import _check_value as _check_value
from weft._checks import _check_with as _check_with
from weft._checks import _check_not_implemented as _check_not_implemented
from weft._checks import _check_tensor_all as _check_tensor_all
from weft._checks import _check_tensor_all_with as _check_tensor_all_with
from weft.amp import GradScaler as GradScaler
from weft.compiler import compile as compile
from weft.sparse import sparse_coo_tensor as sparse_coo_tensor
from weft.watching import watch as watch
from weft.amp.autocast_mode import autocast as autocast
from weft.amp.autocast_mode import autocast_decrement_nesting as autocast_decrement_nesting
from weft.amp.autocast_mode import autocast_increment_nesting as autocast_increment_nesting
from weft.amp.autocast_mode import clear_autocast_cache as clear_autocast_cache
get_autocast_cpu_dtype: Callable[..., Any]
from weft.amp.autocast_mode import get_autocast_dtype as get_autocast_dtype
get_autocast_gpu_dtype: Callable[..., Any]
get_autocast_ipu_dtype: Callable[..., Any]
get_autocast_xla_dtype: Callable[..., Any]
from weft.amp.autocast_mode import is_autocast_cache_enabled as is_autocast_cache_enabled
is_autocast_cpu_enabled: Callable[..., Any]
from weft.amp.autocast_mode import is_autocast_enabled as is_autocast_enabled
is_autocast_ipu_enabled: Callable[..., Any]
is_autocast_xla_enabled: Callable[..., Any]
from weft.amp.autocast_mode import set_autocast_cache_enabled as set_autocast_cache_enabled
set_autocast_cpu_dtype: Callable[..., Any]
set_autocast_cpu_enabled: Callable[..., Any]
from weft.amp.autocast_mode import set_autocast_dtype as set_autocast_dtype
from weft.amp.autocast_mode import set_autocast_enabled as set_autocast_enabled
set_autocast_gpu_dtype: Callable[..., Any]
set_autocast_ipu_dtype: Callable[..., Any]
set_autocast_ipu_enabled: Callable[..., Any]
set_autocast_xla_dtype: Callable[..., Any]
set_autocast_xla_enabled: Callable[..., Any]
from weft.torch_version import __version__ as __version__
e: _float
inf: _float
nan: _float
pi: _float
newaxis: None
bfloat16: _dtype
bool: _dtype
cdouble: _dtype
cfloat: _dtype
complex128: _dtype
complex64: _dtype
double: _dtype
float: _dtype
float16: _dtype
float32: _dtype
float64: _dtype
float8_e4m3fn: _dtype
float8_e4m3fnuz: _dtype
float8_e5m2: _dtype
float8_e5m2fnuz: _dtype
float8_e8m0fnu: _dtype
half: _dtype
int: _dtype
int16: _dtype
int32: _dtype
int64: _dtype
int8: _dtype
long: _dtype
short: _dtype
uint16: _dtype
uint32: _dtype
uint64: _dtype
uint8: _dtype
AcceleratorError: Callable[..., Any]
BFloat16Storage: Callable[..., Any]
class BFloat16Tensor(Tensor): ...
BoolStorage: Callable[..., Any]
class BoolTensor(Tensor): ...
ByteStorage: Callable[..., Any]
class ByteTensor(Tensor): ...
CharStorage: Callable[..., Any]
class CharTensor(Tensor): ...
ComplexDoubleStorage: Callable[..., Any]
class ComplexDoubleTensor(Tensor): ...
ComplexFloatStorage: Callable[..., Any]
class ComplexFloatTensor(Tensor): ...
DoubleStorage: Callable[..., Any]
class DoubleTensor(Tensor): ...
FloatStorage: Callable[..., Any]
class FloatTensor(Tensor): ...
from weft.operators.random import Generator as Generator
HalfStorage: Callable[..., Any]
class HalfTensor(Tensor): ...
IntStorage: Callable[..., Any]
class IntTensor(Tensor): ...
LongStorage: Callable[..., Any]
class LongTensor(Tensor): ...
OutOfMemoryError: Callable[..., Any]
ShortStorage: Callable[..., Any]
class ShortTensor(Tensor): ...
Storage: Callable[..., Any]
from weft.core.storage import TypedStorage as TypedStorage
from weft.core.storage import UntypedStorage as UntypedStorage
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """The derivative of Beta(alpha, total - alpha) draws with respect to alpha, over 1 - x."""
def _sample_dirichlet(input: Tensor, generator: _Generator | None = None) -> Tensor:
    """A point of the simplex for each vector of concentrations, differentiable by it."""
def _standard_gamma(input: Tensor, generator: _Generator | None = None) -> Tensor:
    """A draw of the gamma law with rate 1 for each concentration, differentiable by it."""
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """The derivative of draws of ``_standard_gamma`` with respect to their concentrations."""
def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The absolute value."""
def abs_(self: Tensor) -> Tensor:
    """The absolute value, in place."""
def absolute(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The absolute value."""
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose cosine is given."""
def acos_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose cosine is given."""
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``cosh``."""
def acosh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``cosh``."""
def adaptive_avg_pool1d(input: Tensor, output_size: SupportsIndex | Sequence[Any]) -> Tensor:
    """The means of as many even windows as asked for."""
def adaptive_max_pool1d(input: Tensor, output_size: SupportsIndex | Sequence[Any], return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest values of as many even windows as asked for, and their places."""
def add(input: Any, other: _Operand, *, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``input + alpha * other``."""
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``beta * input + alpha * (sum of batch1 @ batch2 over the batch)``."""
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)``."""
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``beta * input + alpha * (mat @ vec)``."""
def addmv_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place: ``beta * input + alpha * (mat @ vec)``."""
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``beta * input + alpha * outer(vec1, vec2)``, in the common type."""
def adjoint(input: Tensor) -> Tensor:
    """Matrices transposed and conjugated."""
def affine_grid_generator(theta: Tensor, size: _Ints, align_corners: _bool) -> Tensor:
    """``affine_grid`` by its older name."""
def alias_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``alias``, as a copy."""
@overload
def all(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether all elements are true (not zero)."""
@overload
def all(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """Whether all elements are true (not zero)."""
def allclose(input: Tensor, other: Tensor, rtol: _float = 1e-05, atol: _float = 1e-08, equal_nan: _bool = False) -> _bool:
    """Whether all elements are close."""
def alpha_dropout(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """Zero random elements in training and scale the others."""
def alpha_dropout_(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """``alpha_dropout`` in place."""
@overload
def amax(input: Tensor, dim: _Ints | None = (), keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The maximum over dimensions; ties share its gradient evenly."""
@overload
def amax(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The maximum over dimensions; ties share its gradient evenly."""
@overload
def amin(input: Tensor, dim: _Ints | None = (), keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The minimum over dimensions; ties share its gradient evenly."""
@overload
def amin(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The minimum over dimensions; ties share its gradient evenly."""
@overload
def aminmax(input: Tensor, *, dim: _Ints | None = None, keepdim: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.aminmax:
    """Minimum and maximum at once."""
@overload
def aminmax(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.aminmax:
    """Minimum and maximum at once."""
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle of a complex number; 0 or pi for a real one."""
@overload
def any(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """Whether any element is true (not zero)."""
@overload
def any(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """Whether any element is true (not zero)."""
def arange(*args: Any, start: Any = None, end: _Operand | None = None, step: Any = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """Values from ``start`` (0) up to but not including ``end``, ``step`` (1) apart."""
def arccos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose cosine is given."""
def arccos_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose cosine is given."""
def arccosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``cosh``."""
def arccosh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``cosh``."""
def arcsin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose sine is given."""
def arcsin_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose sine is given."""
def arcsinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``sinh``."""
def arcsinh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``sinh``."""
def arctan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose tangent is given."""
def arctan2(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (other, input), in radians from -pi to pi."""
def arctan_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose tangent is given."""
def arctanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``tanh``."""
def arctanh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``tanh``."""
@overload
def argmax(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index of the maximum, of all elements or along a dimension."""
@overload
def argmax(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The index of the maximum, of all elements or along a dimension."""
@overload
def argmin(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The index of the minimum, of all elements or along a dimension."""
@overload
def argmin(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The index of the minimum, of all elements or along a dimension."""
@overload
def argsort(input: Tensor, dim: _int = -1, descending: _bool = False, *, stable: _bool = False) -> Tensor:
    """The indices that sort rows."""
@overload
def argsort(input: Tensor, *, axis: _int, descending: _bool = False, stable: _bool = False) -> Tensor:
    """The indices that sort rows."""
def argwhere(input: Tensor) -> Tensor:
    """The positions of elements that are not zero, as rows of indices."""
def as_strided(input: Tensor, size: _Ints, stride: _Ints, storage_offset: _int | None = None) -> Tensor:
    """A view by explicit sizes and strides into the storage."""
def as_strided_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``as_strided`` of the tensor itself, which keeps its memory."""
def as_strided_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``as_strided``, as a copy."""
def as_strided_scatter(input: Tensor, src: Tensor, size: _Ints, stride: _Ints, storage_offset: _int | None = None) -> Tensor:
    """A copy with the elements of a strided view replaced."""
def as_tensor(data: Any, dtype: _Dtype | None = None, device: _Device | None = None) -> Tensor:
    """The data as a tensor, on its own memory where that is possible."""
def asarray(obj: Any, *, dtype: _Dtype | None = None, device: _Device | None = None, copy: _bool | None = None, requires_grad: _bool | None = None) -> Tensor:
    """The object as a tensor; ``copy`` says whether memory must or must not be copied."""
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose sine is given."""
def asin_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose sine is given."""
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``sinh``."""
def asinh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``sinh``."""
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The angle, in radians, whose tangent is given."""
def atan2(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The angle of the point (other, input), in radians from -pi to pi."""
def atan_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The angle, in radians, whose tangent is given."""
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``tanh``."""
def atanh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The inverse of ``tanh``."""
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with dimensions of length one added up to 1d."""
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with dimensions of length one added up to 2d."""
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with dimensions of length one added up to 3d."""
def avg_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, ceil_mode: _bool = False, count_include_pad: _bool = True, divisor_override: _int | None = None) -> Tensor:
    """The mean of each window."""
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: _Operand = 1, alpha: _Operand = 1, out_dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """``beta * input + alpha * (batch1 @ batch2)``, matrix by matrix."""
def bartlett_window(window_length: _int, periodic: _bool = True, *values: _float, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: _float) -> Tensor:
    """A bartlett window; periodic unless told otherwise."""
def batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: _bool, momentum: _float, eps: _float, cudnn_enabled: _bool = True) -> Tensor:
    """Normalise each channel by the batch's statistics or by the running ones."""
def bernoulli(input: Tensor, p: _float | None = None, *, generator: _Generator | None = None, out: Tensor | None = None) -> Tensor:
    """0 or 1 for each element, which is the probability of 1 (unless ``p`` is given)."""
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input1 @ weight[k] @ input2 + bias[k]`` for each output ``k``."""
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None, pos_weight: Tensor | None = None, reduction: _int = 1) -> Tensor:
    """The same with the reduction as a number."""
def bincount(input: Tensor, weights: Any = None, minlength: _int = 0) -> Tensor:
    """How often each non-negative integer occurs, or the sum of its weights."""
def binomial(count: Tensor, prob: Tensor, generator: _Generator | None = None) -> Tensor:
    """The number of successes in ``count`` trials of probability ``prob``."""
def bitwise_and(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``input & other``, bit by bit; of booleans the logical and."""
def bitwise_left_shift(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``input << other``."""
def bitwise_not(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``~input``, bit by bit; of booleans the logical not."""
def bitwise_or(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``input | other``, bit by bit; of booleans the logical or."""
def bitwise_right_shift(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``input >> other``."""
def bitwise_xor(*inputs: Any, out: Tensor | None = None) -> Tensor:
    """``input ^ other``, bit by bit; of booleans the exclusive or."""
def blackman_window(window_length: _int, periodic: _bool = True, *values: _float, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: _float) -> Tensor:
    """A blackman window; periodic unless told otherwise."""
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one."""
def bmm(input: Tensor, mat2: Tensor, out_dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """The products of the matrices in two batches."""
def broadcast_shapes(*shapes: Any) -> _Size:
    """The shape that some shapes broadcast to."""
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Tensors expanded to their common shape."""
def broadcast_to(input: Tensor, *size: _Ints) -> Tensor:
    """Repeat to a shape, without copying."""
def bucketize(input: Any, boundaries: Tensor, *, out_int32: _bool = False, right: _bool = False, out: Tensor | None = None) -> Tensor:
    """The number of the bucket of each value, by the buckets' boundaries."""
def can_cast(from_: _dtype, to: _dtype) -> _bool:
    """Whether a result of one dtype may be written into a tensor of the other."""
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of the elements of some vectors, one in each row."""
def cat(tensors: Sequence[Tensor], dim: _int = 0, *, axis: _int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors joined along a dimension that they have."""
def cdist(x1: Tensor, x2: Tensor, p: _float = 2.0, compute_mode: _str | None = 'use_mm_for_euclid_dist_if_necessary') -> Tensor:
    """The p-norm distances between all pairs of points of two sets."""
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The nearest whole number that is not smaller."""
def ceil_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The nearest whole number that is not smaller."""
def celu(input: Tensor, alpha: _float = 1.0) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""
def celu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function celu in place."""
def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """The product of several matrices, multiplied in the cheapest order."""
def channel_shuffle(input: Tensor, groups: _int) -> Tensor:
    """Channels of several groups dealt out in turn."""
def cholesky(input: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The triangular ``L`` with ``L L^H = input``, for positive definite matrices."""
def cholesky_inverse(L: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a matrix from its Cholesky factor."""
def cholesky_solve(B: Tensor, L: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The solution of ``A X = B`` from the Cholesky factor of ``A``."""
def chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
    """At most so many parts of equal size along a dimension."""
def clamp(input: Tensor, min: _Operand | None = None, max: _Operand | None = None, *, out: Tensor | None = None) -> Tensor:
    """Values below ``min`` raised to it, values above ``max`` lowered to it."""
def clamp_(self: Tensor, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
    """Clamp in place."""
def clamp_max(input: Tensor, max: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Values above ``max`` lowered to it."""
def clamp_max_(self: Tensor, max: _Operand) -> Tensor:
    """Lower what is above ``max``, in place."""
def clamp_min(input: Tensor, min: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Values below ``min`` raised to it."""
def clamp_min_(self: Tensor, min: _Operand) -> Tensor:
    """Raise what is below ``min``, in place."""
def clip(input: Tensor, min: _Operand | None = None, max: _Operand | None = None, *, out: Tensor | None = None) -> Tensor:
    """Values below ``min`` raised to it, values above ``max`` lowered to it."""
def clip_(self: Tensor, min: _Operand | None = None, max: _Operand | None = None) -> Tensor:
    """Clamp in place."""
def clone(input: Tensor, *, memory_format: _memory_format | None = None) -> Tensor:
    """A copy with memory of its own."""
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Tensors joined as ``column_stack`` does in NumPy."""
def combinations(input: Tensor, r: _int = 2, with_replacement: _bool = False) -> Tensor:
    """All choices of r elements of a vector, one in each row."""
def compiled_with_cxx11_abi() -> _bool:
    """Which C++ interface the library was built for; there is no C++ here."""
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their real and imaginary parts."""
def concat(tensors: Sequence[Tensor], dim: _int = 0, *, axis: _int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors joined along a dimension that they have."""
def concatenate(tensors: Sequence[Tensor], dim: _int = 0, *, axis: _int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors joined along a dimension that they have."""
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors as they are."""
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The complex conjugate in memory of its own; real tensors as they are."""
def conj_physical_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """``conj_physical`` in place."""
def constant_pad_nd(input: Tensor, pad: Any, value: _Operand = 0) -> Tensor:
    """Room around a tensor, last dimension first, filled with a value."""
def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve sequences (N, C, L) with (O, C / groups, K)."""
def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve images (N, C, H, W) with (O, C / groups, K, K)."""
def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, dilation: _Ints | None = 1, groups: _int = 1) -> Tensor:
    """Convolve volumes (N, C, D, H, W) with (O, C / groups, K, K, K)."""
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: _int = 0) -> Tensor:
    """Convolve sequences laid out as (time, batch, channel)."""
def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of sequences."""
def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of images."""
def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: _Ints | None = 1, padding: Any = 0, output_padding: Any = 0, groups: _int = 1, dilation: _Ints | None = 1) -> Tensor:
    """Apply the transpose of a convolution of volumes."""
def convolution(input: Tensor, weight: Tensor, bias: Tensor | None, stride: _Ints, padding: Any, dilation: _Ints, transposed: _bool, output_padding: Any, groups: _int) -> Tensor:
    """A convolution, or its transpose, of as many dimensions as the weight has."""
def copysign(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The magnitude of ``input`` with the sign of ``other``."""
def corrcoef(input: Tensor) -> Tensor:
    """The correlation matrix of variables in rows, observed in columns."""
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The cosine of an angle in radians."""
def cos_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The cosine of an angle in radians."""
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic cosine."""
def cosh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The hyperbolic cosine."""
def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """One minus the cosine where the target is 1, the cosine above a margin where it is -1."""
def cosine_similarity(x1: Tensor, x2: Tensor, dim: _int = 1, eps: _float = 1e-08) -> Tensor:
    """The cosine of the angle between two vectors along a dimension."""
@overload
def count_nonzero(input: Tensor, dim: _Ints | None = None) -> Tensor:
    """The number of elements that are not zero."""
@overload
def count_nonzero(input: Tensor, *, axis: _Ints | None) -> Tensor:
    """The number of elements that are not zero."""
def cov(input: Tensor, *, correction: _int = 1, fweights: Any = None, aweights: Any = None) -> Tensor:
    """The covariance matrix of variables in rows, observed in columns."""
@overload
def cross(input: Tensor, other: Tensor, dim: _int | None = None, *, out: Tensor | None = None) -> Tensor:
    """The cross products along a dimension: by default the first that has length three."""
@overload
def cross(input: Tensor, other: Tensor, *, axis: _int | None, out: Tensor | None = None) -> Tensor:
    """The cross products along a dimension: by default the first that has length three."""
def ctc_loss(log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: _int = 0, reduction: _int = 1, zero_infinity: _bool = False) -> Tensor:
    """The same with the reduction as a number."""
@overload
def cummax(input: Tensor, dim: _int, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.cummax:
    """The greatest element so far along a dimension, and its index."""
@overload
def cummax(input: Tensor, *, axis: _int, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.cummax:
    """The greatest element so far along a dimension, and its index."""
@overload
def cummin(input: Tensor, dim: _int, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.cummin:
    """The smallest element so far along a dimension, and its index."""
@overload
def cummin(input: Tensor, *, axis: _int, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.cummin:
    """The smallest element so far along a dimension, and its index."""
@overload
def cumprod(input: Tensor, dim: _int, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Running products along a dimension."""
@overload
def cumprod(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Running products along a dimension."""
@overload
def cumsum(input: Tensor, dim: _int, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Running sums along a dimension."""
@overload
def cumsum(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Running sums along a dimension."""
@overload
def cumulative_trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: _int = -1) -> Tensor:
    """The running integral of samples along a dimension, by the trapezoid rule."""
@overload
def cumulative_trapezoid(y: Tensor, x: Any = None, dx: Any = None, *, axis: _int) -> Tensor:
    """The running integral of samples along a dimension, by the trapezoid rule."""
default_generator: _Generator
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Degrees as radians."""
def deg2rad_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: Degrees as radians."""
def dequantize(input: Tensor) -> Tensor:
    """The tensor as float32, which is what a tensor without quantisation stands for."""
def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The determinants of square matrices."""
def detach(self: Any) -> Tensor:
    """The same values, cut off from the graph; memory is shared."""
def detach_(self: Any) -> Tensor:
    """Cut this very tensor off from the graph."""
def detach_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``detach``, as a copy."""
def diag(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor:
    """A matrix with a vector on its diagonal, or the diagonal of a matrix."""
def diag_embed(input: Tensor, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor:
    """The last dimension spread over a diagonal of two new ones."""
def diagflat(input: Tensor, offset: _int = 0) -> Tensor:
    """A matrix with the flattened tensor on its diagonal."""
def diagonal(input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
    """A diagonal of the matrices in two dimensions, as a last dimension."""
def diagonal_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``diagonal``, as a copy."""
def diagonal_scatter(input: Tensor, src: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor:
    """A copy with a diagonal replaced."""
@overload
def diff(input: Tensor, n: _int = 1, dim: _int = -1, prepend: Any = None, append: Any = None, *, out: Tensor | None = None) -> Tensor:
    """Differences of neighbours along a dimension, ``n`` times over."""
@overload
def diff(input: Tensor, n: _int = 1, *, axis: _int, prepend: Any = None, append: Any = None, out: Tensor | None = None) -> Tensor:
    """Differences of neighbours along a dimension, ``n`` times over."""
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def dist(input: Tensor, other: Tensor, p: Any = 2, *, out: Tensor | None = None) -> Tensor:
    """The p-norm of the difference."""
def div(input: Any, other: _Operand, *, rounding_mode: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
def divide(input: Any, other: _Operand, *, rounding_mode: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of the products of two vectors' elements."""
def dropout(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """Zero random elements in training and scale the others."""
def dropout_(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """``dropout`` in place."""
def dsplit(input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
    """Parts along a dimension, as ``dsplit`` does in NumPy."""
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Tensors joined as ``dstack`` does in NumPy."""
def einsum(*args: Any) -> Tensor:
    """Products of tensors, summed over the labels that the output lacks."""
def embedding(weight: Tensor, indices: Tensor, padding_idx: _int = -1, scale_grad_by_freq: _bool = False, sparse: _bool = False) -> Tensor:
    """The rows of ``weight`` that ``indices`` names."""
def embedding_bag(weight: Tensor, indices: Tensor, offsets: Tensor, scale_grad_by_freq: _bool = False, mode: _int = 0, sparse: _bool = False, per_sample_weights: Tensor | None = None, include_last_offset: _bool = False, padding_idx: _int | None = None) -> tuple[Tensor, ...]:
    """Bags of rows, with the bag of each number, the bags' sizes and the largest rows."""
def embedding_renorm_(weight: Tensor, indices: Tensor, max_norm: _float, norm_type: _float = 2.0) -> Tensor:
    """Shrink, in place, the rows named by ``indices`` to a largest norm."""
def empty(*args: Any, size: _Ints | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None, names: Any = None) -> Tensor:
    """A tensor of the given shape whose values are whatever was in memory."""
def empty_like(input: Tensor, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None) -> Tensor:
    """A tensor of another's shape, dtype and device, with whatever was in memory."""
def empty_permuted(size: _Ints, physical_layout: Any, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """A dense tensor with undefined values, its dimensions in the given memory order."""
def empty_strided(size: _Ints, stride: _Ints, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """A tensor with undefined values and the given strides."""
def eq(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether elements are equal, one by one."""
def equal(input: Tensor, other: Tensor) -> _bool:
    """Whether two tensors have the same shape and the same elements."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""
def erf_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The error function."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 - erf(x)``, exact for large x."""
def erfc_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``1 - erf(x)``, exact for large x."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``erf``."""
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """e to the power of each element."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two to the power of each element."""
def exp2_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: Two to the power of each element."""
def exp_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: e to the power of each element."""
def expand_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``expand``, as a copy."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(x) - 1``, exact near zero."""
def expm1_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``exp(x) - 1``, exact near zero."""
def eye(n: _int, m: _int | None = None, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """A matrix with ones on the diagonal and zeros elsewhere."""
def feature_alpha_dropout(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """Zero random elements in training and scale the others."""
def feature_alpha_dropout_(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """``feature_alpha_dropout`` in place."""
def feature_dropout(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """Zero random elements in training and scale the others."""
def feature_dropout_(input: Tensor, p: _float = 0.5, train: _bool = False) -> Tensor:
    """``feature_dropout`` in place."""
def fill(input: Tensor, value: _Operand) -> Tensor:
    """A tensor of the same shape with one value everywhere."""
def fill_(self: Tensor, value: _Operand) -> Tensor:
    """Overwrite every element with one value."""
def fix(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The whole number without the fraction."""
def fix_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The whole number without the fraction."""
def flatten(input: Tensor, start_dim: _int = 0, end_dim: _int = -1) -> Tensor:
    """Several neighbouring dimensions as one."""
def flip(input: Tensor, dims: _Ints | Tensor) -> Tensor:
    """The order of elements reversed along some dimensions."""
def fliplr(input: Tensor) -> Tensor:
    """Columns in reverse order."""
def flipud(input: Tensor) -> Tensor:
    """Rows in reverse order."""
def float_power(input: Any, exponent: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input ** exponent`` in double precision."""
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The nearest whole number that is not greater."""
def floor_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The nearest whole number that is not greater."""
def floor_divide(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``floor(input / other)``, rounded towards minus infinity; it has no derivative."""
def fmax(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The greater of two elements; of a number and NaN the number."""
def fmin(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The smaller of two elements; of a number and NaN the number."""
def fmod(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The remainder with the sign of the dividend, as C's ``fmod``."""
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The fraction, with the sign of the number."""
def frac_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The fraction, with the sign of the number."""
def frexp(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.frexp:
    """Mantissas in [0.5, 1) and exponents of two."""
def frobenius_norm(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False) -> Tensor:
    """The root of the sum of squares."""
def from_dlpack(ext_tensor: Any, *, device: _Device | None = None, copy: _bool | None = None) -> Tensor:
    """A tensor on the memory of another library's array, by the DLPack protocol."""
def from_file(filename: _str, shared: _bool | None = None, size: _int = 0, *, dtype: _Dtype | None = None, **rest: Any) -> Tensor:
    """A tensor on a file's memory; changes reach the file only if it is shared."""
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on an array's own memory."""
def frombuffer(buffer: Any, *, dtype: _Dtype, count: _int = -1, offset: _int = 0, requires_grad: _bool = False) -> Tensor:
    """A one-dimensional tensor on the memory of a Python buffer."""
def full(size: _Ints, fill_value: _Operand, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, names: Any = None) -> Tensor:
    """A tensor with one value everywhere."""
def full_like(input: Tensor, fill_value: _Operand, **options: Any) -> Tensor:
    """A tensor of another's shape and dtype with one value everywhere."""
@overload
def gather(input: Tensor, dim: _int, index: Tensor, *, sparse_grad: _bool = False, out: Tensor | None = None) -> Tensor:
    """Elements along a dimension, by an index for each element of the result."""
@overload
def gather(input: Tensor, *, axis: _int, index: Tensor, sparse_grad: _bool = False, out: Tensor | None = None) -> Tensor:
    """Elements along a dimension, by an index for each element of the result."""
def gcd(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The greatest common divisor of integers."""
def gcd_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The greatest common divisor of integers."""
def ge(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input >= other``, element by element."""
def geqrf(input: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.geqrf:
    """QR in LAPACK's compact form: reflectors below the diagonal, and their factors."""
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of each element of one vector with each of another."""
def get_device(input: Tensor) -> _int:
    """The number of a tensor's device; -1 for the CPU."""
def get_rng_state() -> Tensor:
    """The default generator's state as a tensor of bytes."""
@overload
def gradient(input: Tensor, *, spacing: Any = None, dim: _Ints | None = None, edge_order: _int = 1) -> tuple[Tensor, ...]:
    """Estimates of the partial derivatives of a function given by its samples."""
@overload
def gradient(input: Tensor, spacing: Any = None, *, axis: _Ints | None, edge_order: _int = 1) -> tuple[Tensor, ...]:
    """Estimates of the partial derivatives of a function given by its samples."""
def greater(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input > other``, element by element."""
def greater_equal(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input >= other``, element by element."""
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool) -> Tensor:
    """``grid_sample`` with its modes as numbers."""
def grid_sampler_2d(input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool) -> Tensor:
    """``grid_sample`` with its modes as numbers."""
def grid_sampler_3d(input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool) -> Tensor:
    """``grid_sample`` with its modes as numbers."""
def group_norm(input: Tensor, num_groups: _int, weight: Tensor | None = None, bias: Tensor | None = None, eps: _float = 1e-05, cudnn_enabled: _bool = True) -> Tensor:
    """Normalise groups of channels of each sample."""
def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a GRU: outputs and last h; called as ``lstm``, with one state."""
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """The next state of a GRU."""
def gt(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input > other``, element by element."""
def hamming_window(window_length: _int, periodic: _bool = True, *values: _float, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: _float) -> Tensor:
    """A hamming window; periodic unless told otherwise."""
def hann_window(window_length: _int, periodic: _bool = True, *values: _float, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: _float) -> Tensor:
    """A hann window; periodic unless told otherwise."""
def hardshrink(input: Tensor, lambd: _float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """0 within ``lambd`` of 0, else the input."""
has_lapack: _bool
has_mkl: _bool
has_openmp: _bool
has_spectral: _bool
@overload
def hash_tensor(input: Tensor, dim: _Ints | None = (), keepdim: _bool = False, mode: _int = 0, *, out: Tensor | None = None) -> Tensor:
    """One number for the bits of all elements, or along dimensions: their exclusive or."""
@overload
def hash_tensor(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, mode: _int = 0, out: Tensor | None = None) -> Tensor:
    """One number for the bits of all elements, or along dimensions: their exclusive or."""
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor:
    """0 for negative and 1 for positive numbers, the given values at 0."""
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: _float = 1.0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The input where the target is 1, what is missing to the margin where it is -1."""
def histc(input: Tensor, bins: _int = 100, min: _Operand | None = 0, max: _Operand | None = 0, *, out: Tensor | None = None) -> Tensor:
    """Counts in bins of equal width between two limits."""
def histogram(input: Tensor, bins: Any = 100, *, range: Any = None, weight: Any = None, density: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.histogram:
    """Counts of all elements in bins, and the bins' boundaries."""
def histogramdd(input: Tensor, bins: Any, *, range: Any = None, weight: Any = None, density: _bool = False) -> _return_types.histogramdd:
    """Counts of points (the last dimension) in a grid of bins, and the bins' boundaries."""
def hsplit(input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
    """Parts along a dimension, as ``hsplit`` does in NumPy."""
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Tensors joined as ``hstack`` does in NumPy."""
def hypot(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``sqrt(input**2 + other**2)`` without overflow."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, order 0."""
def i0_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The modified Bessel function of the first kind, order 0."""
def igamma(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularised lower incomplete gamma function P(input, other)."""
def igammac(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularised upper incomplete gamma function Q(input, other)."""
def imag(input: Tensor) -> Tensor:
    """The imaginary part, as a view."""
@overload
def index_add(input: Tensor, dim: _int, index: Tensor, source: Tensor, *, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """A copy with slices of a source added by a vector of indices."""
@overload
def index_add(input: Tensor, *, axis: _int, index: Tensor, source: Tensor, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """A copy with slices of a source added by a vector of indices."""
@overload
def index_copy(input: Tensor, dim: _int, index: Tensor, source: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy with slices replaced by those of a source."""
@overload
def index_copy(input: Tensor, *, axis: _int, index: Tensor, source: Tensor, out: Tensor | None = None) -> Tensor:
    """A copy with slices replaced by those of a source."""
def index_fill(input: Tensor, dim: _int, index: Tensor, value: _Operand) -> Tensor:
    """A copy with slices filled with one value."""
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: _bool = False) -> Tensor:
    """A copy with values put (or added) at the indices."""
def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: _bool = False) -> Tensor:
    """Put (or add) values at the indices, in place."""
@overload
def index_reduce(input: Tensor, dim: _int, index: Tensor, source: Tensor, reduce: _str, *, include_self: _bool = True, out: Tensor | None = None) -> Tensor:
    """A copy with slices of a source combined by index: prod, mean, amax, amin."""
@overload
def index_reduce(input: Tensor, *, axis: _int, index: Tensor, source: Tensor, reduce: _str, include_self: _bool = True, out: Tensor | None = None) -> Tensor:
    """A copy with slices of a source combined by index: prod, mean, amax, amin."""
@overload
def index_select(input: Tensor, dim: _int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Slices along a dimension, by a vector of indices."""
@overload
def index_select(input: Tensor, *, axis: _int, index: Tensor, out: Tensor | None = None) -> Tensor:
    """Slices along a dimension, by a vector of indices."""
def initial_seed() -> _int:
    """The last seed of the default generator."""
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The dot products of all vectors in the last dimensions."""
def instance_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, use_input_stats: _bool, momentum: _float, eps: _float, cudnn_enabled: _bool = True) -> Tensor:
    """Normalise each channel of each sample."""
def inverse(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of square matrices."""
def is_anomaly_check_nan_enabled() -> _bool:
    """Whether anomaly mode stops at NaN."""
def is_anomaly_enabled() -> _bool:
    """Whether anomaly mode is on in this thread."""
def is_complex(input: Tensor) -> _bool:
    """Whether the dtype is a complex one."""
def is_conj(input: Tensor) -> _bool:
    """Conjugation is done at once here, so there is no pending one."""
def is_distributed(input: Tensor) -> _bool:
    """Whether a tensor is spread over processes: never."""
def is_floating_point(input: Tensor) -> _bool:
    """Whether the dtype is a floating one."""
def is_inference(input: Tensor) -> _bool:
    """Whether a tensor was made in inference mode."""
def is_neg(input: Tensor) -> _bool:
    """Conjugation is done at once here, so there is no pending one."""
def is_nonzero(input: Tensor) -> _bool:
    """Whether the one value of a tensor is not zero."""
def is_same_size(input: Tensor, other: Tensor) -> _bool:
    """Whether two tensors have the same shape."""
def is_signed(input: Tensor) -> _bool:
    """Whether the dtype can hold negative values."""
def is_storage(obj: Any) -> _bool:
    """Whether an object is a storage."""
def is_tensor(obj: Any) -> _bool:
    """Whether an object is a tensor."""
def is_vulkan_available() -> _bool:
    """Whether there is such a device: no."""
def is_warn_always_enabled() -> _bool:
    """The setting of ``set_warn_always``."""
def isclose(input: Tensor, other: Tensor, rtol: _float = 1e-05, atol: _float = 1e-08, equal_nan: _bool = False) -> Tensor:
    """Where ``|input - other| <= atol + rtol * |other|``."""
def isfinite(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is neither infinite nor NaN."""
def isin(elements: Any, test_elements: Any, *, assume_unique: _bool = False, invert: _bool = False, out: Tensor | None = None) -> Tensor:
    """For each element, whether it is among the test elements."""
def isinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is infinite."""
def isnan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is NaN."""
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is negative infinity."""
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is positive infinity."""
def isreal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element has no imaginary part."""
def istft(input: Tensor, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, normalized: _bool = False, onesided: _bool | None = None, length: _int | None = None, return_complex: _bool = False) -> Tensor:
    """The signal whose ``stft`` is given, by the least squares of overlapping windows."""
jagged: Layout
def kaiser_window(window_length: _int, periodic: _bool = True, *values: _float, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: _float) -> Tensor:
    """A kaiser window; periodic unless told otherwise."""
def kl_div(input: Tensor, target: Tensor, reduction: _int = 0, *, log_target: _bool = False) -> Tensor:
    """``nn.functional.kl_div`` with the reduction as a number: none, mean, sum."""
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Kronecker product."""
@overload
def kthvalue(input: Tensor, k: _int, dim: _int = -1, keepdim: _bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.kthvalue:
    """The ``k``-th smallest element of each row, and its index."""
@overload
def kthvalue(input: Tensor, k: _int, *, axis: _int, keepdims: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.kthvalue:
    """The ``k``-th smallest element of each row, and its index."""
def layer_norm(input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None, bias: Tensor | None = None, eps: _float = 1e-05, cudnn_enable: _bool = True) -> Tensor:
    """Shift and scale the last dimensions to mean zero and variance one."""
def lcm(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The least common multiple of integers."""
def lcm_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The least common multiple of integers."""
def ldexp(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``input * 2 ** other``."""
def ldexp_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place: ``input * 2 ** other``."""
def le(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input <= other``, element by element."""
legacy_contiguous_format: _memory_format
def lerp(input: Tensor, end: Tensor, weight: Any, *, out: Tensor | None = None) -> Tensor:
    """``input + weight * (end - input)``."""
def less(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input < other``, element by element."""
def less_equal(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input <= other``, element by element."""
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function."""
def linspace(start: Any, end: _Operand, steps: _int, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """``steps`` evenly spaced values from ``start`` to ``end``, both included."""
def lobpcg(A: Tensor, k: _int | None = None, B: Tensor | None = None, X: Tensor | None = None, n: _int | None = None, iK: Any = None, niter: _int | None = None, tol: _float | None = None, largest: _bool | None = None, method: _str | None = None, tracker: Any = None, ortho_iparams: Any = None, ortho_fparams: Any = None, ortho_bparams: Any = None) -> tuple[Tensor, Tensor]:
    """The extreme eigenvalues of ``A x = e B x``; found by a full decomposition here."""
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The natural logarithm."""
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 10."""
def log10_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The logarithm to base 10."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(1 + x)``, exact near zero."""
def log1p_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``log(1 + x)``, exact near zero."""
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm to base 2."""
def log2_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The logarithm to base 2."""
def log_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The natural logarithm."""
@overload
def log_softmax(input: Tensor, dim: _int, dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
@overload
def log_softmax(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
def logaddexp(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``log(exp(input) + exp(other))`` without overflow."""
def logaddexp2(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``log2(2**input + 2**other)`` without overflow."""
@overload
def logcumsumexp(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of running sums of exponentials along a dimension."""
@overload
def logcumsumexp(input: Tensor, *, axis: _int, out: Tensor | None = None) -> Tensor:
    """The logarithm of running sums of exponentials along a dimension."""
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant; NaN where it is negative."""
def logical_and(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether both elements are true (not zero)."""
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element is false (zero)."""
def logical_or(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether one element or the other is true (not zero)."""
def logical_xor(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether just one of two elements is true (not zero)."""
def logit(input: Tensor, eps: _float | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the sigmoid: ``log(x / (1 - x))``, with x kept ``eps`` away from 0 and 1."""
def logit_(self: Tensor, eps: _float | None = None) -> Tensor:
    """The inverse of the sigmoid, in place."""
def logspace(start: Any, end: _Operand, steps: _int, base: _float = 10.0, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """``base`` to the power of ``steps`` evenly spaced exponents."""
@overload
def logsumexp(input: Tensor, dim: _Ints, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
@overload
def logsumexp(input: Tensor, *, axis: _Ints, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """All layers of an LSTM: outputs, last h, last c."""
def lstm_cell(input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The next hidden state and cell state of an LSTM."""
def lt(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input < other``, element by element."""
def lu(A: Tensor, pivot: _bool = True, get_infos: _bool = False) -> Any:
    """LU by its old name."""
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The solution of ``A X = b`` from LU's compact form, by its old name."""
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: _bool = True, unpack_pivots: _bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.lu_unpack:
    """``P``, ``L`` and ``U`` from the compact form."""
def manual_seed(seed: Any) -> _Generator:
    """Seed the default generator; the same seed gives the same numbers as in PyTorch."""
def margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What the one input lacks to exceed the other, as the target's sign says, by a margin."""
def masked_fill(input: Tensor, mask: Tensor, value: _Operand) -> Tensor:
    """A copy with one value where the mask is true."""
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """A copy with the elements where the mask is true taken from a source, in order."""
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where the mask is true, as a vector."""
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The matrix product with PyTorch's rules for vectors and batches."""
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of square matrices."""
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor:
    """A square matrix multiplied ``n`` times; the inverse if ``n`` is negative."""
@overload
def max(input: Tensor) -> Tensor:
    """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def max(input: Tensor, other: Tensor) -> Tensor:
    """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def max(input: Tensor, dim: _int, keepdim: _bool = False) -> _return_types.max:
    """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def max(input: Tensor, *, axis: _int, keepdims: _bool = False) -> _return_types.max:
    """The maximum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def max_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool1d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
def max_pool1d_with_indices(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, return_indices: _bool = True) -> tuple[Tensor, ...]:
    """The largest value of each window and its place."""
@overload
def max_pool2d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool2d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool3d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False) -> Tensor:
    """The largest value of each window; with its place if asked."""
@overload
def max_pool3d(input: Tensor, kernel_size: _Ints, stride: _Ints | None = None, padding: Any = 0, dilation: _Ints | None = 1, ceil_mode: _bool = False, *, return_indices: _bool) -> Any:
    """The largest value of each window; with its place if asked."""
def maximum(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The greater of two elements; NaN if one is NaN."""
@overload
def mean(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The mean over all elements or over some dimensions."""
@overload
def mean(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The mean over all elements or over some dimensions."""
@overload
def median(input: Tensor) -> Tensor:
    """The lower median of all elements, or of each row."""
@overload
def median(input: Tensor, dim: _int, keepdim: _bool = False) -> _return_types.median:
    """The lower median of all elements, or of each row."""
def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: _str | None = None) -> tuple[Tensor, ...]:
    """Coordinates of all combinations of the elements of some vectors."""
@overload
def min(input: Tensor) -> Tensor:
    """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def min(input: Tensor, other: Tensor) -> Tensor:
    """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def min(input: Tensor, dim: _int, keepdim: _bool = False) -> _return_types.min:
    """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
@overload
def min(input: Tensor, *, axis: _int, keepdims: _bool = False) -> _return_types.min:
    """The minimum of all elements, along a dimension (values and indices), or of two tensors element by element."""
def minimum(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The smaller of two elements; NaN if one is NaN."""
def mm(input: Tensor, mat2: Tensor, out_dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices."""
@overload
def mode(input: Tensor, dim: _int = -1, keepdim: _bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.mode:
    """The most frequent value of each row (the least of several), and an index of it."""
@overload
def mode(input: Tensor, *, axis: _int, keepdims: _bool = False, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.mode:
    """The most frequent value of each row (the least of several), and an index of it."""
def moveaxis(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move dimensions to other places, keeping the order of the rest."""
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Move dimensions to other places, keeping the order of the rest."""
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sorted along the first dimension."""
def mul(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * other``."""
def multinomial(input: Tensor, num_samples: _int, replacement: _bool = False, *, generator: _Generator | None = None, out: Tensor | None = None) -> Tensor:
    """Indices drawn in proportion to weights, from one row or from each row."""
def multiply(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * other``."""
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of a matrix and a vector."""
def mvlgamma(input: Tensor, p: _int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
def nan_to_num(input: Tensor, nan: _float | None = None, posinf: _float | None = None, neginf: _float | None = None, *, out: Tensor | None = None) -> Tensor:
    """NaN and infinities replaced by numbers: 0 and the largest finite ones unless given."""
def nan_to_num_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place: NaN and infinities replaced by numbers: 0 and the largest finite ones unless given."""
@overload
def nanmean(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The mean of what is not NaN."""
@overload
def nanmean(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The mean of what is not NaN."""
@overload
def nanmedian(input: Tensor) -> Tensor:
    """The lower median of what is not NaN."""
@overload
def nanmedian(input: Tensor, dim: _int, keepdim: _bool = False) -> _return_types.nanmedian:
    """The lower median of what is not NaN."""
@overload
def nanquantile(input: Tensor, q: Any, dim: _Ints | None = None, keepdim: _bool = False, *, interpolation: _str = 'linear', out: Tensor | None = None) -> Tensor:
    """The ``q``-th quantile of each row, ignoring NaN."""
@overload
def nanquantile(input: Tensor, q: Any, *, axis: _Ints | None, keepdims: _bool = False, interpolation: _str = 'linear', out: Tensor | None = None) -> Tensor:
    """The ``q``-th quantile of each row, ignoring NaN."""
@overload
def nansum(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The sum, with NaN counted as zero."""
@overload
def nansum(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The sum, with NaN counted as zero."""
def narrow(input: Tensor, dim: _int, start: Any, length: _int) -> Tensor:
    """A range along a dimension, as a view."""
@overload
def narrow_copy(input: Tensor, dim: _int, start: _int, length: _int, *, out: Tensor | None = None) -> Tensor:
    """``narrow``, as a copy."""
@overload
def narrow_copy(input: Tensor, *, axis: _int, start: _int, length: _int, out: Tensor | None = None) -> Tensor:
    """``narrow``, as a copy."""
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None, running_var: Tensor | None, training: _bool, momentum: _float, eps: _float) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm with the means and reciprocal deviations that it used."""
def native_channel_shuffle(input: Tensor, groups: _int) -> Tensor:
    """Channels of several groups dealt out in turn."""
def native_dropout(input: Tensor, p: _float, train: _bool | None) -> tuple[Tensor, Tensor]:
    """Dropout, and the mask of what was kept."""
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: _int, C: _int, HxW: _int, group: _int, eps: _float) -> tuple[Tensor, Tensor, Tensor]:
    """Group norm with the means and reciprocal deviations that it used."""
def native_layer_norm(input: Tensor, normalized_shape: _Ints, weight: Any, bias: Any, eps: _float) -> tuple[Tensor, ...]:
    """Layer norm with the means and reciprocal deviations that it used."""
def ne(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether elements differ, one by one."""
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``-input``."""
def neg_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``-input``."""
def negative(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``-input``."""
def negative_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``-input``."""
def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The next number of the type from one value towards another."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor:
    """The positions of elements that are not zero: rows of indices, or one tensor per dim."""
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]:
    """The positions of elements that are not zero: rows of indices, or one tensor per dim."""
def nonzero_static(input: Tensor, *, size: _int, fill_value: _int = -1, out: Tensor | None = None) -> Tensor:
    """The first ``size`` positions of elements that are not zero, filled up if there are fewer."""
@overload
def norm(input: Tensor, p: Any = 'fro', dim: _Ints | None = None, keepdim: _bool = False, out: Tensor | None = None, dtype: _Dtype | None = None) -> Tensor:
    """The p-norm of all elements, or over some dimensions; ``'nuc'`` of matrices."""
@overload
def norm(input: Tensor, p: Any = 'fro', *, axis: _Ints | None, keepdims: _bool = False, out: Tensor | None = None, dtype: _Dtype | None = None) -> Tensor:
    """The p-norm of all elements, or over some dimensions; ``'nuc'`` of matrices."""
def norm_except_dim(v: Tensor, pow: _int = 2, dim: _int = 0) -> Tensor:
    """The norm over all dimensions but one."""
def normal(mean: Any, std: Any = 1.0, size: _Ints | None = None, *, generator: _Generator | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """Normal values with means and deviations as tensors, or as numbers with a size."""
def not_equal(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Whether elements differ, one by one."""
def nuclear_norm(input: Tensor, dim: _Ints | None = (-2, -1), keepdim: _bool = False) -> Tensor:
    """The sum of singular values."""
def numel(input: Tensor) -> _int:
    """The number of elements."""
def ones(*args: Any, size: _Ints | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None, names: Any = None) -> Tensor:
    """A tensor of the given shape, full of ones."""
def ones_like(input: Tensor, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None) -> Tensor:
    """Ones in another tensor's shape, dtype and device."""
def orgqr(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first columns of a product of Householder reflections."""
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: _bool = True, transpose: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """A matrix multiplied by the Q of a QR in compact form."""
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of each element of one vector with each of another."""
def pairwise_distance(x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False) -> Tensor:
    """The p-norm of the differences of the vectors in the last dimension."""
def pca_lowrank(A: Tensor, q: _int | None = None, center: _bool = True, niter: _int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Principal components of a matrix whose rows are observations."""
def pdist(input: Tensor, p: _float = 2.0) -> Tensor:
    """The p-norm distances between all pairs of rows, each pair once."""
def permute(input: Tensor, *dims: _Ints | Tensor) -> Tensor:
    """The dimensions in another order."""
def permute_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``permute``, as a copy."""
def pinverse(input: Tensor, rcond: _float = 1e-15) -> Tensor:
    """The pseudoinverse by its old name."""
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor:
    """Channels rearranged into a finer grid of pixels."""
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor:
    """A grid of pixels rearranged into channels of a coarser one."""
def poisson(input: Tensor, generator: _Generator | None = None) -> Tensor:
    """A Poisson count for each rate."""
def poisson_nll_loss(input: Tensor, target: Tensor, log_input: _bool = True, full: _bool = False, size_average: _bool | None = None, eps: _float = 1e-08, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """The negative log likelihood of Poisson counts."""
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Complex numbers from their lengths and angles."""
def polygamma(n: _int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of the digamma function."""
def positive(input: Tensor) -> Tensor:
    """``+input``: the tensor itself."""
def pow(input: Any, exponent: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input ** exponent``."""
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where it is positive, else ``weight * x``, with a weight for each channel or one."""
@overload
def prod(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The product of all elements or along a dimension."""
@overload
def prod(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The product of all elements or along a dimension."""
def promote_types(type1: _dtype, type2: _dtype) -> _dtype:
    """The smallest dtype of no lower kind than either."""
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor:
    """A copy with elements replaced (or added to) at flat positions."""
def qr(input: Tensor, some: _bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.qr:
    """QR by its old name."""
@overload
def quantile(input: Tensor, q: Any, dim: _Ints | None = None, keepdim: _bool = False, *, interpolation: _str = 'linear', out: Tensor | None = None) -> Tensor:
    """The ``q``-th quantile of each row, ``q`` between 0 and 1."""
@overload
def quantile(input: Tensor, q: Any, *, axis: _Ints | None, keepdims: _bool = False, interpolation: _str = 'linear', out: Tensor | None = None) -> Tensor:
    """The ``q``-th quantile of each row, ``q`` between 0 and 1."""
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Radians as degrees."""
def rad2deg_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: Radians as degrees."""
def rand(*args: Any, size: _Ints | None = None, generator: _Generator | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, names: Any = None) -> Tensor:
    """Values from [0, 1)."""
def rand_like(input: Tensor, *args: Any, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, memory_format: _memory_format | None = None, generator: _Generator | None = None, pin_memory: _bool = False, **named: Any) -> Tensor:
    """Values from [0, 1) in another tensor's shape and dtype."""
def randint(*args: Any, generator: _Generator | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, **named: Any) -> Tensor:
    """Whole numbers from [low, high): ``randint(high, size)`` or ``randint(low, high, size)``."""
def randint_like(input: Tensor, *args: Any, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, memory_format: _memory_format | None = None, generator: _Generator | None = None, pin_memory: _bool = False, **named: Any) -> Tensor:
    """Whole numbers in another tensor's shape and dtype."""
def randn(*args: Any, size: _Ints | None = None, generator: _Generator | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, names: Any = None) -> Tensor:
    """Values of the standard normal law."""
def randn_like(input: Tensor, *args: Any, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, memory_format: _memory_format | None = None, generator: _Generator | None = None, pin_memory: _bool = False, **named: Any) -> Tensor:
    """Values of the standard normal law in another tensor's shape and dtype."""
def randperm(n: _int, *, generator: _Generator | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """The numbers 0 .. n-1 in random order."""
def range(start: Any = 0, end: _Operand | None = None, step: Any = 1, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False) -> Tensor:
    """Values from ``start`` up to and including ``end``; of the default dtype."""
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension, one after another in memory."""
def real(input: Tensor) -> Tensor:
    """The real part, as a view."""
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 / x``."""
def reciprocal_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``1 / x``."""
def relu(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``x`` where it is positive, else zero."""
def relu_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``x`` where it is positive, else zero."""
def remainder(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The remainder with the sign of the divisor, as Python's ``%``."""
@overload
def renorm(input: Tensor, p: Any, dim: _int, maxnorm: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Slices along a dimension scaled down where their norm exceeds ``maxnorm``."""
@overload
def renorm(input: Tensor, p: Any, *, axis: _int, maxnorm: _Operand, out: Tensor | None = None) -> Tensor:
    """Slices along a dimension scaled down where their norm exceeds ``maxnorm``."""
def repeat_interleave(input: Any, repeats: _Ints | Tensor | None = None, dim: _int | None = None, *, output_size: _int | None = None) -> Tensor:
    """Each element (or slice along a dimension) repeated in place."""
def reshape(input: Tensor, *sizes: _Ints, shape: _Ints | None = None) -> Tensor:
    """The same elements in another shape; a view where the layout allows it."""
def resize_as_(self: Tensor, the_template: Tensor, memory_format: _memory_format | None = None) -> Tensor:
    """Another tensor's shape, in place."""
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugation is never pending here."""
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negation is never pending here."""
def result_type(tensor1: Tensor, tensor2: Tensor) -> _dtype:
    """The dtype of an operation on two values."""
def rms_norm(input: Tensor, normalized_shape: _Ints, weight: Tensor | None = None, eps: _float | None = None) -> Tensor:
    """Divide by the root of the mean square over the last dimensions."""
def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a plain network with ReLU; called as ``gru``."""
def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """The next state of a plain network with ReLU."""
def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """All layers of a plain network with tanh; called as ``gru``."""
def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None) -> Tensor:
    """The next state of a plain network with tanh."""
def roll(input: Tensor, shifts: _Ints | Tensor, dims: _Ints | Tensor | None = None) -> Tensor:
    """Elements moved along dimensions; those that leave at one end enter at the other."""
def rot90(input: Tensor, k: _int = 1, dims: _Ints | Tensor | None = (0, 1)) -> Tensor:
    """Quarter turns in the plane of two dimensions."""
def round(input: Tensor, *, decimals: _int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest whole number (or decimal), with halves going to the even one."""
def round_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """In place: The nearest whole number (or decimal), with halves going to the even one."""
def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Tensors joined as ``vstack`` does in NumPy."""
def rrelu(input: Tensor, lower: _float = 0.125, upper: _float = 0.3333333333333333, training: _bool = False, generator: _Generator | None = None) -> Tensor:
    """A leaky rectifier whose slopes are drawn at random in training."""
def rrelu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function rrelu in place."""
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """One over the square root."""
def rsqrt_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: One over the square root."""
def rsub(input: Tensor, other: _Operand, *, alpha: _Operand = 1) -> Tensor:
    """``other - alpha * input``."""
def scalar_tensor(s: Any, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """A tensor of no dimension; of the default dtype whatever the number is."""
@overload
def scatter(input: Tensor, dim: _int, index: Tensor, src: Any = None, *, value: _Operand | None = None, reduce: _str | None = None, out: Tensor | None = None) -> Tensor:
    """A copy with values (or one value) placed along a dimension by index."""
@overload
def scatter(input: Tensor, *, axis: _int, index: Tensor, src: Any = None, value: _Operand | None = None, reduce: _str | None = None, out: Tensor | None = None) -> Tensor:
    """A copy with values (or one value) placed along a dimension by index."""
@overload
def scatter_add(input: Tensor, dim: _int, index: Tensor, src: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy with values added along a dimension by index; repeated places add up."""
@overload
def scatter_add(input: Tensor, *, axis: _int, index: Tensor, src: Tensor, out: Tensor | None = None) -> Tensor:
    """A copy with values added along a dimension by index; repeated places add up."""
@overload
def scatter_reduce(input: Tensor, dim: _int, index: Tensor, src: Tensor, reduce: _str, *, include_self: _bool = True, out: Tensor | None = None) -> Tensor:
    """A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
@overload
def scatter_reduce(input: Tensor, *, axis: _int, index: Tensor, src: Tensor, reduce: _str, include_self: _bool = True, out: Tensor | None = None) -> Tensor:
    """A copy with values combined along a dimension by index: sum, prod, mean, amax, amin."""
def searchsorted(sorted_sequence: Tensor, input: Any, *, out_int32: _bool = False, right: _bool = False, side: _str | None = None, sorter: Any = None, out: Tensor | None = None) -> Tensor:
    """Where values would go in sorted rows so that these stay sorted."""
def seed() -> _int:
    """Seed the default generator from the system's entropy, and return the seed."""
def select(input: Tensor, dim: _int, index: _int) -> Tensor:
    """One slice along a dimension."""
def select_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``select``, as a copy."""
def select_scatter(input: Tensor, src: Tensor, dim: _int, index: _int) -> Tensor:
    """A copy with one slice along a dimension replaced."""
def selu(input: Tensor) -> Tensor:
    """The scaled exponential unit, whose constants keep mean 0 and variance 1."""
def selu_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function selu in place."""
def set_default_tensor_type(t: Any) -> None:
    """Set the default floating dtype by a legacy type or its name."""
def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator into a state."""
def set_warn_always(b: _bool) -> None:
    """Whether a warning that is usually given once is given each time."""
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sign; of a complex number ``x / abs(x)``."""
def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
def sigmoid_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1 by the sign."""
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Whether each element has its sign bit set; so has -0.0."""
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sine of an angle in radians."""
def sin_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The sine of an angle in radians."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``sin(pi x) / (pi x)``, and 1 at zero."""
def sinc_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: ``sin(pi x) / (pi x)``, and 1 at zero."""
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic sine."""
def sinh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The hyperbolic sine."""
def slice_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``slice``, as a copy."""
@overload
def slice_scatter(input: Tensor, src: Tensor, dim: _int = 0, start: _int | None = None, end: _int | None = None, step: _int = 1, *, out: Tensor | None = None) -> Tensor:
    """A copy with a slice along a dimension replaced."""
@overload
def slice_scatter(input: Tensor, src: Tensor, *, axis: _int, start: _int | None = None, end: _int | None = None, step: _int = 1, out: Tensor | None = None) -> Tensor:
    """A copy with a slice along a dimension replaced."""
def slogdet(A: Tensor, *, out: Tensor | Sequence[Tensor] | None = None) -> Any:
    """The sign of the determinant and the logarithm of its magnitude."""
@overload
def softmax(input: Tensor, dim: _int, dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one."""
@overload
def softmax(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one."""
@overload
def sort(input: Tensor, dim: _int = -1, descending: _bool = False, stable: _bool | None = None, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.sort:
    """Sorted rows, and where their elements were. Always stable; NaN counts as greatest."""
@overload
def sort(input: Tensor, *, axis: _int, descending: _bool = False, stable: _bool | None = None, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.sort:
    """Sorted rows, and where their elements were. Always stable; NaN counts as greatest."""
sparse_bsc: Layout
sparse_bsr: Layout
sparse_coo: Layout
sparse_csc: Layout
sparse_csr: Layout
def split(input: Tensor, split_size: _int | Sequence[_int], dim: _int = 0) -> tuple[Tensor, ...]:
    """Parts along a dimension: of one size, or of the sizes given."""
@overload
def split_copy(input: Tensor, split_size: Any, dim: _int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``split``, as copies."""
@overload
def split_copy(input: Tensor, split_size: Any, *, axis: _int, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``split``, as copies."""
def split_with_sizes(input: Tensor, split_sizes: Any, dim: _int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given."""
@overload
def split_with_sizes_copy(input: Tensor, split_sizes: Any, dim: _int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``split_with_sizes``, as copies."""
@overload
def split_with_sizes_copy(input: Tensor, split_sizes: Any, *, axis: _int, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``split_with_sizes``, as copies."""
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The square root."""
def sqrt_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The square root."""
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Each element times itself."""
def square_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: Each element times itself."""
def squeeze(input: Tensor, dim: _Ints | None = None, *, axis: _Ints | None = None) -> Tensor:
    """Without the dimensions of length one."""
def squeeze_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``squeeze``, as a copy."""
def stack(tensors: Sequence[Tensor], dim: _int = 0, *, axis: _int | None = None, out: Tensor | None = None) -> Tensor:
    """Tensors of one shape joined along a new dimension."""
@overload
def std(input: Tensor, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None, out: Tensor | None = None) -> Tensor:
    """The standard deviation, by default with Bessel's correction (``correction=1``)."""
@overload
def std(input: Tensor, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None, out: Tensor | None = None) -> Tensor:
    """The standard deviation, by default with Bessel's correction (``correction=1``)."""
@overload
def std_mean(input: Tensor, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
@overload
def std_mean(input: Tensor, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None) -> tuple[Tensor, Tensor]:
    """Standard deviation and mean."""
def stft(input: Tensor, n_fft: _int, hop_length: _int | None = None, win_length: _int | None = None, window: Tensor | None = None, center: _bool = True, pad_mode: _str = 'reflect', normalized: _bool = False, onesided: _bool | None = None, return_complex: _bool | None = None, align_to_window: _bool | None = None) -> Tensor:
    """The Fourier transforms of windows that move over a signal."""
def sub(input: Any, other: _Operand, *, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``."""
def subtract(input: Any, other: _Operand, *, alpha: _Operand = 1, out: Tensor | None = None) -> Tensor:
    """``input - alpha * other``."""
@overload
def sum(input: Tensor, dim: _Ints | None = None, keepdim: _bool = False, *, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The sum over all elements or over some dimensions."""
@overload
def sum(input: Tensor, *, axis: _Ints | None, keepdims: _bool = False, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The sum over all elements or over some dimensions."""
def svd(input: Tensor, some: _bool = True, compute_uv: _bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.svd:
    """The singular value decomposition by its old name, with ``V`` instead of ``V^H``."""
def svd_lowrank(A: Tensor, q: _int | None = 6, niter: _int | None = 2, M: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """The largest singular values of a matrix of low rank, by random projection."""
def swapaxes(input: Tensor, axis0: _int, axis1: _int) -> Tensor:
    """Two dimensions exchanged, by NumPy's names."""
def swapdims(input: Tensor, dim0: _int, dim1: _int) -> Tensor:
    """Two dimensions exchanged."""
sym_float: Callable[..., Any]
sym_int: Callable[..., Any]
def sym_ite(b: Any, t: Any, f: Any) -> Any: ...
def sym_max(a: Any, b: Any) -> Any: ...
def sym_min(a: Any, b: Any) -> Any: ...
def sym_not(a: Any) -> Any: ...
sym_sqrt: Callable[..., Any]
sym_sum: Callable[..., Any]
def t(input: Tensor) -> Tensor:
    """A matrix transposed; vectors and scalars as they are."""
def t_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``t``, as a copy."""
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements by their positions in the flattened tensor."""
@overload
def take_along_dim(input: Tensor, indices: Tensor, dim: _int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Elements along a dimension by indices of the same rank, which broadcast."""
@overload
def take_along_dim(input: Tensor, indices: Tensor, *, axis: _int | None, out: Tensor | None = None) -> Tensor:
    """Elements along a dimension by indices of the same rank, which broadcast."""
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The tangent of an angle in radians."""
def tan_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The tangent of an angle in radians."""
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The hyperbolic tangent: any number brought between -1 and 1."""
def tanh_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The hyperbolic tangent: any number brought between -1 and 1."""
def tensor(data: Any, *, dtype: _Dtype | None = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, names: Any = None) -> Tensor:
    """A tensor with a copy of the data."""
def tensor_split(input: Tensor, indices_or_sections: Any = None, dim: _int = 0, *, sections: Any = None, indices: Any = None, tensor_indices_or_sections: Any = None) -> tuple[Tensor, ...]:
    """Parts along a dimension: so many, or cut at the indices given."""
def tensordot(a: Tensor, b: Tensor, dims: _Ints | Tensor | None = 2, *, out: Tensor | None = None) -> Tensor:
    """Products summed over several dimensions of two tensors at once."""
def threshold(input: Tensor, threshold: _float, value: _float, *, out: Tensor | None = None) -> Tensor:
    """The input where it is above a threshold, else a value."""
def threshold_(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The function threshold in place."""
def tile(input: Tensor, dims: _Ints | Tensor) -> Tensor:
    """Copies side by side; missing counts in front are one."""
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule with the tensor's memory."""
@overload
def topk(input: Tensor, k: _int, dim: _int = -1, largest: _bool = True, sorted: _bool = True, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.topk:
    """The ``k`` greatest (or smallest) elements of each row, and their indices."""
@overload
def topk(input: Tensor, k: _int, *, axis: _int, largest: _bool = True, sorted: _bool = True, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.topk:
    """The ``k`` greatest (or smallest) elements of each row, and their indices."""
def trace(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The sum of a matrix's diagonal."""
def transpose(input: Tensor, dim0: _int, dim1: _int) -> Tensor:
    """Two dimensions exchanged."""
def transpose_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``transpose``, as a copy."""
@overload
def trapezoid(y: Tensor, x: Any = None, *, dx: Any = None, dim: _int = -1) -> Tensor:
    """The integral of samples along a dimension, by the trapezoid rule."""
@overload
def trapezoid(y: Tensor, x: Any = None, dx: Any = None, *, axis: _int) -> Tensor:
    """The integral of samples along a dimension, by the trapezoid rule."""
@overload
def trapz(y: Tensor, x: Any = None, *, dx: Any = None, dim: _int = -1) -> Tensor:
    """The integral of samples along a dimension, by the trapezoid rule."""
@overload
def trapz(y: Tensor, x: Any = None, dx: Any = None, *, axis: _int) -> Tensor:
    """The integral of samples along a dimension, by the trapezoid rule."""
def triangular_solve(b: Tensor, A: Tensor, upper: _bool = True, transpose: _bool = False, unitriangular: _bool = False, *, out: Tensor | Sequence[Tensor] | None = None) -> _return_types.triangular_solve:
    """The solution of a triangular system, by its old name."""
def tril(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor:
    """The lower triangle; zeros elsewhere."""
def tril_indices(row: _int, col: _int, offset: _int = 0, *, dtype: _Dtype | None = ..., device: _Device | None = None, layout: Any = ...) -> Tensor:
    """Row and column indices of a triangle of a matrix, as a tensor of two rows."""
def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: _float = 1.0, p: _float = 2, eps: _float = 1e-06, swap: _bool = False, size_average: _bool | None = None, reduce: _bool | None = None, reduction: _str = 'mean') -> Tensor:
    """What the negative lacks to be farther from the anchor than the positive, by a margin."""
def triu(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor:
    """The upper triangle; zeros elsewhere."""
def triu_indices(row: _int, col: _int, offset: _int = 0, *, dtype: _Dtype | None = ..., device: _Device | None = None, layout: Any = ...) -> Tensor:
    """Row and column indices of a triangle of a matrix, as a tensor of two rows."""
def true_divide(input: Any, other: _Operand, *, rounding_mode: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked."""
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The whole number without the fraction."""
def trunc_(self: Tensor, *args: Any, **attrs: Any) -> Tensor:
    """In place: The whole number without the fraction."""
def typename(obj: Any) -> _str:
    """The name of an object's type, with its module; for tensors the legacy name."""
def unbind(input: Tensor, dim: _int = 0, *, axis: _int | None = None) -> tuple[Tensor, ...]:
    """All slices along a dimension."""
@overload
def unbind_copy(input: Tensor, dim: _int = 0, *, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``unbind``, as copies."""
@overload
def unbind_copy(input: Tensor, *, axis: _int, out: Tensor | Sequence[Tensor] | None = None) -> tuple[Tensor, ...]:
    """``unbind``, as copies."""
def unflatten(input: Tensor, dim: _int, sizes: _Ints) -> Tensor:
    """One dimension as several."""
def unfold_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``unfold``, as a copy."""
@overload
def unique(input: Tensor, sorted: _bool = True, return_inverse: _bool = False, return_counts: _bool = False, dim: _Ints | None = None) -> Any:
    """The distinct elements in order, or the distinct slices along a dimension."""
@overload
def unique(input: Tensor, sorted: _bool = True, return_inverse: _bool = False, return_counts: _bool = False, *, axis: _Ints | None) -> Any:
    """The distinct elements in order, or the distinct slices along a dimension."""
@overload
def unique_consecutive(input: Tensor, return_inverse: _bool = False, return_counts: _bool = False, dim: _Ints | None = None) -> Any:
    """The first of each run of equal elements, or of equal slices along a dimension."""
@overload
def unique_consecutive(input: Tensor, return_inverse: _bool = False, return_counts: _bool = False, *, axis: _Ints | None) -> Any:
    """The first of each run of equal elements, or of equal slices along a dimension."""
def unravel_index(indices: Tensor, shape: _Ints) -> tuple[Tensor, ...]:
    """Flat positions as one index for each dimension of a shape."""
def unsafe_chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]:
    """As ``chunk``, with parts that may be changed in place."""
def unsafe_split(tensor: Tensor, split_size: _int, dim: _int = 0) -> tuple[Tensor, ...]:
    """As ``split``, with parts that may be changed in place: here they are copies."""
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: _int = 0) -> tuple[Tensor, ...]:
    """As ``split_with_sizes``, with parts that may be changed in place."""
def unsqueeze(input: Tensor, dim: _int) -> Tensor:
    """A new dimension of length one."""
def unsqueeze_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``unsqueeze``, as a copy."""
def vander(x: Tensor, N: _int | None = None, increasing: _bool = False) -> Tensor:
    """The matrix of a vector's powers, by default from the highest."""
@overload
def var(input: Tensor, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None, out: Tensor | None = None) -> Tensor:
    """The variance, by default with Bessel's correction (``correction=1``)."""
@overload
def var(input: Tensor, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None, out: Tensor | None = None) -> Tensor:
    """The variance, by default with Bessel's correction (``correction=1``)."""
@overload
def var_mean(input: Tensor, dim: _Ints | None = None, unbiased: Any = None, keepdim: _bool = False, *, correction: Any = None) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
@overload
def var_mean(input: Tensor, *, axis: _Ints | None, unbiased: Any = None, keepdims: _bool = False, correction: Any = None) -> tuple[Tensor, Tensor]:
    """Variance and mean."""
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The dot product with the first vector conjugated."""
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of real numbers, in the last dimension, as complex ones."""
def view_as_complex_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``view_as_complex``, as a copy."""
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers, in a last dimension."""
def view_as_real_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``view_as_real``, as a copy."""
def view_copy(input: Tensor, *args: Any, out: Tensor | Sequence[Tensor] | None = None, **kwargs: Any) -> Any:
    """``view``, as a copy."""
def vsplit(input: Tensor, indices_or_sections: Any = None, *, indices: Any = None, sections: Any = None) -> tuple[Tensor, ...]:
    """Parts along a dimension, as ``vsplit`` does in NumPy."""
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Tensors joined as ``vstack`` does in NumPy."""
@overload
def where(condition: Tensor) -> tuple[Tensor, ...]:
    """Elements of one or the other by a condition; with one argument, where it is true."""
@overload
def where(condition: Tensor, input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Elements of one or the other by a condition; with one argument, where it is true."""
def xlogy(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * log(other)``, and 0 where the input is 0."""
def xlogy_(self: Tensor, other: _Operand) -> Tensor:
    """``self * log(other)`` in place."""
def zero_(self: Tensor) -> Tensor:
    """Overwrite every element with zero."""
def zeros(*args: Any, size: _Ints | None = None, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None, names: Any = None) -> Tensor:
    """A tensor of the given shape, full of zeros."""
def zeros_like(input: Tensor, *, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False, memory_format: _memory_format | None = None) -> Tensor:
    """Zeros in another tensor's shape, dtype and device."""
