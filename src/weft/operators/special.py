"""Special functions: error, gamma, zeta and Bessel functions, orthogonal polynomials."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.dispatch import Op
from weft.core.short import fast_unary
from weft.core.tensor import Tensor
from weft.operators import api
from weft.operators.arithmetic import where_op
from weft.operators.build import Sample, constant, elementwise, refusing
from weft.operators.pairwise import pair
from weft.operators.pointwise import (
    abs_op,
    cos_op,
    exp_op,
    log1p_op,
    log_op,
    offer_in_place,
    sgn_op,
    sin_op,
)


@functools.cache
def _scipy(name: str) -> Callable:
    # Imported at the first use: it takes longer than all of weft.
    import scipy.special

    return getattr(scipy.special, name)


def _lazy(name: str) -> Callable:
    def call(*arrays: Any) -> Any:
        function = _scipy(name)
        # To a ufunc one more array would be a place for the result.
        if len(arrays) != getattr(function, "nin", len(arrays)):
            raise TypeError(f"{name}: expected {function.nin} operands, got {len(arrays)}")
        return function(*arrays)

    return call


def _special(
    name: str, reference: Callable | str, *rules: Callable, refuses: str = "hc", **more: Any
) -> Op:
    """An elementwise op of one input that stands only in ``torch.special``."""
    reference = _lazy(reference) if isinstance(reference, str) else reference
    more = {"promote": "float", "public": False, "refuses": refuses, **more}
    op = elementwise(f"special_{name}", reference, *rules, **more)
    api.under("special", fast_unary(op), name=name)
    return op


def _in_special(*names: str, **renamed: str) -> None:
    for name in names:
        api.under("special", api.FUNCTIONS[name], name=name)
    for name, existing in renamed.items():
        api.under("special", api.FUNCTIONS[existing], name=name)


# --- the error function and the normal distribution ------------------------------------

_ROOT_PI = math.sqrt(math.pi)
_ROOT_2PI = math.sqrt(2.0 * math.pi)

erf_op = elementwise(
    "erf",
    _lazy("erf"),
    lambda t, x: t * (exp_op(-x * x) * (2.0 / _ROOT_PI)),
    promote="float",
    lower="erf",
    refuses="c",
    doc="The error function.",
)
erfc_op = elementwise(
    "erfc",
    _lazy("erfc"),
    lambda t, x: t * (exp_op(-x * x) * (-2.0 / _ROOT_PI)),
    promote="float",
    refuses="c",
    doc="``1 - erf(x)``, exact for large x.",
)
erfinv_op = elementwise(
    "erfinv",
    lambda x: np.where(x == 0, x, _scipy("erfinv")(x)),  # keeps the sign of 0
    lambda t, y: t * (exp_op(y * y) * (_ROOT_PI / 2.0)),
    promote="float",
    lower="erfinv",
    domain=(-0.8, 0.8),
    doc="The inverse of ``erf``.",
)
erfcx_op = _special(
    "erfcx",
    "erfcx",
    lambda t, x, y: t * (2.0 * x * y - 2.0 / _ROOT_PI),
    doc="``exp(x**2) * erfc(x)``.",
)
ndtr_op = _special(
    "ndtr",
    "ndtr",
    lambda t, x: t * (exp_op(-0.5 * x * x) / _ROOT_2PI),
    refuses="c",
    doc="The standard normal distribution's share below x.",
)
ndtri_op = _special(
    "ndtri",
    "ndtri",
    lambda t, y: t * (exp_op(0.5 * y * y) * _ROOT_2PI),
    domain=(0.1, 0.9),
    doc="The inverse of ``ndtr``.",
)


def _mills(x: np.ndarray) -> np.ndarray:
    factor = x.dtype.type(math.sqrt(2.0 / math.pi))
    return factor / _scipy("erfcx")(x * x.dtype.type(-math.sqrt(0.5)))


def _mills_rule(t: Any, x: Any, y: Any) -> Any:
    # Far below zero the sum of x and y is all rounding; a series in 1/x**2 is exact there.
    far = x < -50.0
    z = 1.0 / where_op(far, x, -50.0) ** 2
    series = 1.0 - z * (1.0 - z * (6.0 - z * (50.0 - z * 518.0)))
    return -t * where_op(far, series, y * (x + y))


# The density of the normal distribution over its share below x.
mills_op = elementwise(
    "mills_ratio", _mills, _mills_rule, promote="float", public=False, refuses="hc"
)
log_ndtr_op = _special(
    "log_ndtr",
    "log_ndtr",
    lambda t, x: t * mills_op(x),
    doc="The logarithm of ``ndtr``, exact far below zero.",
)
entr_op = _special(
    "entr",
    "entr",
    lambda t, x: t * (-1.0 - log_op(x)),
    domain=(0.1, 2.0),
    refuses="c",
    doc="``-x * log(x)``, the term of an entropy; zero at zero.",
)

# --- gamma functions -------------------------------------------------------------------


def _lgamma(x: np.ndarray) -> np.ndarray:
    return np.where(x == -np.inf, x.dtype.type(np.inf), _scipy("gammaln")(x))


def _polygamma(x: np.ndarray, n: int) -> np.ndarray:
    if n == 0:
        return _scipy("psi")(x)
    # Larger factorials are beyond all floats, and slow.
    factor = (math.inf if n > 170 else float(math.factorial(n))) * (-1.0) ** (n + 1)
    return x.dtype.type(factor) * _scipy("zeta")(x.dtype.type(n + 1), x)


lgamma_op = elementwise(
    "lgamma",
    _lgamma,
    lambda t, x: t * digamma_op(x),
    promote="float",
    domain=(0.3, 3.0),
    doc="The logarithm of the absolute value of the gamma function.",
)
digamma_op: Op = elementwise(
    "digamma",
    _lazy("psi"),
    lambda t, x: t * polygamma_op(x, n=1),
    promote="float",
    domain=(0.4, 3.0),
    refuses="c",
    doc="The derivative of the logarithm of the gamma function.",
)
polygamma_op: Op = elementwise(
    "polygamma",
    _polygamma,
    lambda t, x, n: t * polygamma_op(x, n=n + 1),
    promote="float",
    public=False,
    samples=lambda m: [
        Sample((m.real(2, 3, low=0.6, high=2.0),), {"n": 0}),
        Sample((m.real(3, low=0.6, high=2.0),), {"n": 2}),
    ],
)


@api.top(out=True)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of the digamma function."""
    if not isinstance(n, (int, np.integer)) or isinstance(n, bool):
        raise TypeError(
            f"polygamma(): argument 'n' (position 1) must be int, not {type(n).__name__}\n"
            f"  at {errors.here()}"
        )
    if n < 0:
        raise RuntimeError(
            f"polygamma(n, x) does not support negative n, which is {n}\n  at {errors.here()}"
        )
    return polygamma_op(input, n=n)


@api.method(name="polygamma")
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of the digamma function."""
    return polygamma(n, self)


api.inplace("polygamma_", _polygamma_method)


@api.both(out=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of p dimensions."""
    if input._a.dtype == np.bool_:
        raise RuntimeError(f"The input tensor may not be a boolean tensor.\n  at {errors.here()}")
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1\n  at {errors.here()}")
    total = lgamma_op(input)
    for i in range(1, p):
        total = total + lgamma_op(input - 0.5 * i)
    return total + 0.25 * p * (p - 1) * math.log(math.pi)


api.inplace("mvlgamma_", mvlgamma)


def _gamma_density(t: Any, a: Any, b: Any) -> Any:
    return t * exp_op((a - 1.0) * log_op(b) - b - lgamma_op(a))


def _numbers_first(*numbers: float) -> Callable:
    return lambda m: [Sample((a, m.real(2, 3, low=0.5, high=3.0))) for a in numbers]


igamma_op = elementwise(
    "igamma",
    _lazy("gammainc"),
    refusing("igamma: input"),
    _gamma_density,
    numbers=False,
    samples=_numbers_first(0.7, 2.5),
    refuses="biuc",
    doc="The regularised lower incomplete gamma function P(input, other).",
)
igammac_op = elementwise(
    "igammac",
    _lazy("gammaincc"),
    refusing("igammac: input"),
    lambda t, a, b: -_gamma_density(t, a, b),
    numbers=False,
    samples=_numbers_first(0.7, 2.5),
    refuses="biuc",
    doc="The regularised upper incomplete gamma function Q(input, other).",
)


def _zeta(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _scipy("zeta")(a, b)


zeta_op: Op = elementwise(
    "special_zeta",
    _zeta,
    refusing("special_zeta: input"),
    lambda t, a, b: t * (-a * zeta_op(a + 1.0, b)),
    promote="float",
    public=False,
    samples=_numbers_first(2.0, 3.5),
    refuses="hc",
)


@api.under("special", out=True)
def zeta(input: Any, other: Any) -> Tensor:
    """Hurwitz's zeta function."""
    return zeta_op(*pair(input, other))


xlog1py_op = elementwise(
    "special_xlog1py",
    _lazy("xlog1py"),
    lambda t, a, b: where_op((a == 0) & (b <= -1), 0.0, t * log1p_op(b)),
    lambda t, a, b: t * (a / (b + 1.0)),
    promote="float",
    domain=((-2.0, 2.0), (-0.5, 2.0)),
    public=False,
    refuses="c",
    numbers=False,  # the logarithm of a number would be taken in float64
)


@api.under("special", out=True)
def xlog1py(input: Any, other: Any) -> Tensor:
    """``input * log1p(other)``, and 0 where the input is 0."""
    return xlog1py_op(*pair(input, other))


# --- Bessel functions ------------------------------------------------------------------


def _over(y: Any, x: Any, limit: float) -> Any:
    """``y / x`` with its limit at 0, where its own derivative is taken to be 0."""
    zero = x == 0
    return where_op(zero, limit, y / where_op(zero, 1.0, x))


def _past_zero(slope: Callable[[Any], Any], x: Any) -> Any:
    """The slope of an odd Bessel function; 1/2 near 0, where its formula loses all digits.

    The formula divides by its argument, which is never 0: a second derivative that is NaN times 0
    would be NaN.
    """
    array = x._a if isinstance(x, Tensor) else x
    eps = float(np.finfo(array.dtype).eps) if array.dtype.kind == "f" else 0.0
    far = abs_op(x) > eps
    return where_op(far, slope(where_op(far, x, 1.0)), 0.5)


i0_op = elementwise(
    "i0",
    _lazy("i0"),
    lambda t, x: t * i1_op(x),
    promote="float",
    doc="The modified Bessel function of the first kind, order 0.",
)
i1_op: Op = _special(
    "i1",
    "i1",
    lambda t, x, y: t * _past_zero(lambda z: i0_op(x) - y / z, x),
    refuses="c",
    doc="The modified Bessel function of the first kind, order 1.",
)
i0e_op = _special(
    "i0e",
    "i0e",
    lambda t, x, y: t * (i1e_op(x) - sgn_op(x) * y),
    refuses="c",
    doc="``exp(-abs(x)) * i0(x)``.",
)
i1e_op: Op = _special(
    "i1e",
    "i1e",
    lambda t, x, y: t * _past_zero(lambda z: i0e_op(x) - y * (sgn_op(x) + 1.0 / z), x),
    refuses="c",
    doc="``exp(-abs(x)) * i1(x)``.",
)
_in_special("i0")
_in_special(modified_bessel_i0="i0")
api.under("special", api.NAMESPACES["special"]["i1"], name="modified_bessel_i1")

_POSITIVE = (0.5, 3.0)
j0_op = _special(
    "bessel_j0",
    "j0",
    lambda t, x: -t * j1_op(x),
    doc="The Bessel function of the first kind, order 0.",
)
j1_op: Op = _special(
    "bessel_j1",
    "j1",
    lambda t, x, y: t * (j0_op(x) - _over(y, x, 0.5)),
    doc="The Bessel function of the first kind, order 1.",
)
y0_op = _special(
    "bessel_y0",
    "y0",
    lambda t, x: -t * y1_op(x),
    domain=_POSITIVE,
    doc="The Bessel function of the second kind, order 0.",
)
y1_op: Op = _special(
    "bessel_y1",
    "y1",
    lambda t, x, y: t * (y0_op(x) - y / x),
    domain=_POSITIVE,
    doc="The Bessel function of the second kind, order 1.",
)
k0_op = _special(
    "modified_bessel_k0",
    "k0",
    lambda t, x: -t * k1_op(x),
    domain=_POSITIVE,
    doc="The modified Bessel function of the second kind, order 0.",
)
k1_op: Op = _special(
    "modified_bessel_k1",
    "k1",
    lambda t, x, y: -t * (k0_op(x) + y / x),
    domain=_POSITIVE,
    doc="The modified Bessel function of the second kind, order 1.",
)
k0e_op = _special(
    "scaled_modified_bessel_k0",
    "k0e",
    lambda t, x, y: t * (y - k1e_op(x)),
    domain=_POSITIVE,
    doc="``exp(x) * modified_bessel_k0(x)``.",
)
k1e_op: Op = _special(
    "scaled_modified_bessel_k1",
    "k1e",
    lambda t, x, y: t * (y - k0e_op(x) - y / x),
    domain=_POSITIVE,
    doc="``exp(x) * modified_bessel_k1(x)``.",
)


def _spherical_j0(x: np.ndarray) -> np.ndarray:
    y = np.where(x == 0, x.dtype.type(1), np.sin(x) / x)
    return np.where(np.isinf(x), x.dtype.type(0), y)


spherical_j0_op = _special(
    "spherical_bessel_j0",
    _spherical_j0,
    lambda t, x: t * _over(x * cos_op(x) - sin_op(x), x * x, 0.0),
    doc="The spherical Bessel function of the first kind, order 0: ``sin(x) / x``.",
)


def _airy_ai(x: np.ndarray) -> np.ndarray:
    # Beyond 200 the result underflows, and SciPy gives up at last.
    return np.where(x > 200, x.dtype.type(0), _scipy("airy")(x)[0])


airy_ai_op = _special(
    "airy_ai", _airy_ai, lambda t, x: t * airy_ai_slope_op(x), doc="The Airy function Ai."
)
airy_ai_slope_op: Op = elementwise(
    "special_airy_ai_slope",
    lambda x: _scipy("airy")(x)[1],
    lambda t, x: t * (x * airy_ai_op(x)),
    promote="float",
    public=False,
    refuses="hc",
)

# --- orthogonal polynomials ------------------------------------------------------------


def _evaluated(name: str) -> Callable:
    return lambda x, n: _scipy(f"eval_{name}")(n, x)


def _chebyshev_third(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    u = _scipy("eval_chebyu")
    return u(n, x) - np.where(n > 0, u(np.maximum(n - 1, 0), x), 0.0)


def _chebyshev_fourth(x: np.ndarray, n: np.ndarray) -> np.ndarray:
    u = _scipy("eval_chebyu")
    return u(n, x) + np.where(n > 0, u(np.maximum(n - 1, 0), x), 0.0)


def _polynomial(name: str, evaluate: Callable, *, shifted: bool = False) -> None:
    """A family of polynomials: elements of degree n at x; 0 for a negative degree."""

    def reference(x: np.ndarray, n: np.ndarray) -> np.ndarray:
        # To PyTorch, numbers that are not whole are negative ones, by its processor's cast.
        degree = np.trunc(np.where(np.isfinite(n), n, -1)).astype(np.int64)
        at = x.astype(np.float64) * 2.0 - 1.0 if shifted else x.astype(np.float64)
        y = evaluate(at, np.maximum(degree, 0))
        return np.where(degree < 0, 0.0, y).astype(x.dtype)

    op = constant(
        f"special_{name}",
        reference,
        names=("x", "n"),
        promote="float",
        layout="operands",
        refuses="h",
        shape="elementwise",
    )

    def function(input: Any, n: Any) -> Tensor:
        return op(*pair(input, n))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The {name.replace('_', ' ')} of degree n."
    api.under("special", function, out=True)


for _name, _evaluate in (
    ("chebyshev_polynomial_t", _evaluated("chebyt")),
    ("chebyshev_polynomial_u", _evaluated("chebyu")),
    ("chebyshev_polynomial_v", _chebyshev_third),
    ("chebyshev_polynomial_w", _chebyshev_fourth),
):
    _polynomial(_name, _evaluate)
    _polynomial("shifted_" + _name, _evaluate, shifted=True)
_polynomial("hermite_polynomial_h", _evaluated("hermite"))
_polynomial("hermite_polynomial_he", _evaluated("hermitenorm"))
_polynomial("laguerre_polynomial_l", _evaluated("laguerre"))
_polynomial("legendre_polynomial_p", _evaluated("legendre"))

# --- further names ---------------------------------------------------------------------

_in_special("digamma", "erf", "erfc", "erfinv", "exp2", "expm1", "log1p", "logit", "polygamma")
_in_special("round", "sinc")
_in_special(expit="sigmoid", psi="digamma", gammaln="lgamma", multigammaln="mvlgamma")
_in_special(gammainc="igamma", gammaincc="igammac")
offer_in_place("erf", "erfc", "i0")
