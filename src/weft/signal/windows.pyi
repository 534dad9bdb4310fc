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

def bartlett(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The Bartlett (triangular) window."""
def blackman(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The Blackman window."""
def cosine(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """Half a period of a sine."""
def exponential(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """Exponential decay to both sides of the centre."""
def gaussian(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """A Gaussian of the given width around the centre."""
def general_cosine(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """A weighted sum of cosines of rising frequency."""
def general_hamming(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """A raised cosine with weight ``alpha``."""
def hamming(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The Hamming window."""
def hann(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The Hann window."""
def kaiser(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The Kaiser window of shape ``beta``."""
def nuttall(M: _int, *args: Any, sym: _bool = True, dtype: _Dtype | None = None, layout: Any = None, device: _Device | None = None, requires_grad: _bool = False, **settings: Any) -> Tensor:
    """The minimum four-term Blackman-Harris window by Nuttall."""
