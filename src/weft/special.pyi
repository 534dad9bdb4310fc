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

def airy_ai(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Airy function Ai."""
def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the first kind, order 0."""
def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the first kind, order 1."""
def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the second kind, order 0."""
def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The Bessel function of the second kind, order 1."""
def chebyshev_polynomial_t(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The chebyshev polynomial t of degree n."""
def chebyshev_polynomial_u(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The chebyshev polynomial u of degree n."""
def chebyshev_polynomial_v(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The chebyshev polynomial v of degree n."""
def chebyshev_polynomial_w(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The chebyshev polynomial w of degree n."""
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``-x * log(x)``, the term of an entropy; zero at zero."""
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The error function."""
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 - erf(x)``, exact for large x."""
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(x**2) * erfc(x)``."""
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``erf``."""
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Two to the power of each element."""
def expit(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``1 / (1 + exp(-x))``: any number brought between 0 and 1."""
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(x) - 1``, exact near zero."""
def gammainc(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularised lower incomplete gamma function P(input, other)."""
def gammaincc(input: Tensor | _complex, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """The regularised upper incomplete gamma function Q(input, other)."""
def gammaln(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the absolute value of the gamma function."""
def hermite_polynomial_h(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The hermite polynomial h of degree n."""
def hermite_polynomial_he(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The hermite polynomial he of degree n."""
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, order 0."""
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(-abs(x)) * i0(x)``."""
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, order 1."""
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(-abs(x)) * i1(x)``."""
def laguerre_polynomial_l(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The laguerre polynomial l of degree n."""
def legendre_polynomial_p(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The legendre polynomial p of degree n."""
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``log(1 + x)``, exact near zero."""
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of ``ndtr``, exact far below zero."""
@overload
def log_softmax(input: Tensor, dim: _int, dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
@overload
def log_softmax(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """The logarithm of softmax, computed without overflow."""
def logit(input: Tensor, eps: _float | None = None, *, out: Tensor | None = None) -> Tensor:
    """The inverse of the sigmoid: ``log(x / (1 - x))``, with x kept ``eps`` away from 0 and 1."""
@overload
def logsumexp(input: Tensor, dim: _Ints, keepdim: _bool = False, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
@overload
def logsumexp(input: Tensor, *, axis: _Ints, keepdims: _bool = False, out: Tensor | None = None) -> Tensor:
    """The logarithm of the sum of exponentials, without overflow."""
def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, order 0."""
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind, order 1."""
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, order 0."""
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the second kind, order 1."""
def multigammaln(input: Tensor, p: _int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The standard normal distribution's share below x."""
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of ``ndtr``."""
def polygamma(n: _int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of the digamma function."""
def psi(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of the logarithm of the gamma function."""
def round(input: Tensor, *, decimals: _int = 0, out: Tensor | None = None) -> Tensor:
    """The nearest whole number (or decimal), with halves going to the even one."""
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(x) * modified_bessel_k0(x)``."""
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``exp(x) * modified_bessel_k1(x)``."""
def shifted_chebyshev_polynomial_t(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The shifted chebyshev polynomial t of degree n."""
def shifted_chebyshev_polynomial_u(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The shifted chebyshev polynomial u of degree n."""
def shifted_chebyshev_polynomial_v(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The shifted chebyshev polynomial v of degree n."""
def shifted_chebyshev_polynomial_w(input: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """The shifted chebyshev polynomial w of degree n."""
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """``sin(pi x) / (pi x)``, and 1 at zero."""
@overload
def softmax(input: Tensor, dim: _int, dtype: _Dtype | None = None, *, out: Tensor | None = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one."""
@overload
def softmax(input: Tensor, *, axis: _int, dtype: _Dtype | None = None, out: Tensor | None = None) -> Tensor:
    """Exponentials along a dimension, scaled to sum to one."""
def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The spherical Bessel function of the first kind, order 0: ``sin(x) / x``."""
def xlog1py(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * log1p(other)``, and 0 where the input is 0."""
def xlogy(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """``input * log(other)``, and 0 where the input is 0."""
def zeta(input: Any, other: _Operand, *, out: Tensor | None = None) -> Tensor:
    """Hurwitz's zeta function."""
