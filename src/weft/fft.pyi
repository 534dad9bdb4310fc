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

@overload
def fft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform along one dimension."""
@overload
def fft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The Fourier transform along one dimension."""
@overload
def fft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``fftn`` over the last two dimensions."""
@overload
def fft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``fftn`` over the last two dimensions."""
def fftfreq(n: _int, d: _float = 1.0, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """The frequencies that a transform of ``n`` points ``d`` apart stands for."""
@overload
def fftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The Fourier transform along several dimensions."""
@overload
def fftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The Fourier transform along several dimensions."""
def fftshift(input: Tensor, dim: _Ints | None = None) -> Tensor:
    """Frequency zero to the middle, or back to the front."""
@overload
def hfft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
@overload
def hfft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
@overload
def hfft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``hfftn`` over the last two dimensions."""
@overload
def hfft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``hfftn`` over the last two dimensions."""
@overload
def hfftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
@overload
def hfftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The transform, which is real, of a signal symmetric up to conjugation."""
@overload
def ifft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform along one dimension."""
@overload
def ifft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform along one dimension."""
@overload
def ifft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``ifftn`` over the last two dimensions."""
@overload
def ifft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``ifftn`` over the last two dimensions."""
@overload
def ifftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform along several dimensions."""
@overload
def ifftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The inverse Fourier transform along several dimensions."""
def ifftshift(input: Tensor, dim: _Ints | None = None) -> Tensor:
    """Frequency zero to the middle, or back to the front."""
@overload
def ihfft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``hfft``: half of a signal with a real transform."""
@overload
def ihfft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The inverse of ``hfft``: half of a signal with a real transform."""
@overload
def ihfft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``ihfftn`` over the last two dimensions."""
@overload
def ihfft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``ihfftn`` over the last two dimensions."""
@overload
def ihfftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``hfftn``: half of a signal with a real transform."""
@overload
def ihfftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The inverse of ``hfftn``: half of a signal with a real transform."""
@overload
def irfft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real signal whose ``rfft`` is given."""
@overload
def irfft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The real signal whose ``rfft`` is given."""
@overload
def irfft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``irfftn`` over the last two dimensions."""
@overload
def irfft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``irfftn`` over the last two dimensions."""
@overload
def irfftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The real signal whose ``rfftn`` is given."""
@overload
def irfftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The real signal whose ``rfftn`` is given."""
@overload
def rfft(input: Tensor, n: _int | None = None, dim: _int = -1, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The non-negative frequencies of a real input."""
@overload
def rfft(input: Tensor, n: _int | None = None, *, axis: _int, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The non-negative frequencies of a real input."""
@overload
def rfft2(input: Tensor, s: Any = None, dim: _Ints | None = (-2, -1), norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """``rfftn`` over the last two dimensions."""
@overload
def rfft2(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """``rfftn`` over the last two dimensions."""
def rfftfreq(n: _int, d: _float = 1.0, *, out: Tensor | None = None, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, pin_memory: _bool = False) -> Tensor:
    """The frequencies that a transform of ``n`` points ``d`` apart stands for."""
@overload
def rfftn(input: Tensor, s: Any = None, dim: _Ints | None = None, norm: _str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The transform of a real input; half of the last dimension's frequencies."""
@overload
def rfftn(input: Tensor, s: Any = None, *, axis: _Ints | None, norm: _str | None = None, out: Tensor | None = None) -> Tensor:
    """The transform of a real input; half of the last dimension's frequencies."""
