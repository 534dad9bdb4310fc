"""Functions of one number, applied to every element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.dispatch import Op
from weft.core.inplace import apply_inplace
from weft.core.pending import reads_metadata
from weft.core.tensor import Tensor
from weft.native.codegen.trace import NotTraceableError
from weft.operators import api
from weft.operators.arithmetic import conj_op, where_op
from weft.operators.build import Sample, constant, elementwise, general, publish, zero
from weft.operators.views import imag_op, real_op
from weft.references.select import keep


def is_complex(value: Any) -> bool:
    """Whether an array or tensor holds complex numbers."""
    return getattr(getattr(value, "_a", value), "dtype", dt.F32).kind == "c"


reads_metadata(is_complex)


def real_part(value: Any) -> Any:
    """The real part of an array or tensor; itself if it is real."""
    return real_op(value) if is_complex(value) else value


def offer_in_place(*names: str) -> None:
    """Offer in-place methods as functions too: ``torch.exp_(x)``."""
    for name in names:
        api.top(Tensor.__dict__[name + "_"], name=name + "_")


# The gradient of what is flat in places: a select, not a product, since an infinite gradient
# must not become NaN where the function is flat.
keep_op: Op = general(
    "keep",
    lambda x, mask: keep(np.asarray(x), np.asarray(mask)),
    lambda g, mask: keep_op(g, mask),
    None,
    names=("x", "mask"),
    jvp=(lambda t, mask: keep_op(t, mask), None),
    lower=lambda x, mask: np.where(mask, x, 0.0),
    samples=lambda m: [Sample((m.real(2, 3), m.mask(2, 3))), Sample((m.real(3), m.mask(2, 1)))],
)

# --- powers, exponentials, logarithms --------------------------------------------------


def _square(x: np.ndarray) -> np.ndarray:
    return np.multiply(x, x, dtype=np.int64 if x.dtype == bool else x.dtype)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.reciprocal(np.sqrt(x))


_LN2, _LN10 = math.log(2.0), math.log(10.0)

exp_op = elementwise(
    "exp",
    np.exp,
    lambda t, y: t * y,
    promote="float",
    doc="""e to the power of each element.

    >>> torch.exp(torch.tensor([0.0, 1.0]))
    tensor([1.0000, 2.7183])
    """,
)
exp2_op = elementwise(
    "exp2",
    np.exp2,
    lambda t, y: t * y * _LN2,
    promote="float",
    doc="Two to the power of each element.",
)
expm1_op = elementwise(
    "expm1",
    np.expm1,
    lambda t, y: t * (y + 1.0),
    promote="float",
    doc="``exp(x) - 1``, exact near zero.",
)
log_op = elementwise(
    "log",
    np.log,
    lambda t, x: t / x,
    promote="float",
    domain=(0.1, 3.0),
    doc="""The natural logarithm.

    >>> torch.log(torch.tensor([1.0, 10.0]))
    tensor([0.0000, 2.3026])
    """,
)
log2_op = elementwise(
    "log2",
    np.log2,
    lambda t, x: t / (x * _LN2),
    promote="float",
    domain=(0.1, 3.0),
    doc="The logarithm to base 2.",
)
log10_op = elementwise(
    "log10",
    np.log10,
    lambda t, x: t / (x * _LN10),
    promote="float",
    domain=(0.1, 3.0),
    doc="The logarithm to base 10.",
)


def log1p(x: np.ndarray) -> np.ndarray:
    """``log(1 + x)``, exact near 0 for complex numbers too."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    a, b = x.real, x.imag
    square = a * (a + 2) + b * b  # what the square of |1 + x| is beyond 1
    near = np.where(square == 0, a, 0.5 * np.log1p(square))
    out = np.empty_like(x)
    out.real = np.where(np.abs(x) < 0.5, near, np.log(np.hypot(a + 1, b)))
    out.imag = np.arctan2(b, a + 1)
    return out


log1p_op = elementwise(
    "log1p",
    log1p,
    lambda t, x: t / (x + 1.0),
    promote="float",
    domain=(-0.9, 3.0),
    doc="``log(1 + x)``, exact near zero.",
)
sqrt_op = elementwise(
    "sqrt",
    np.sqrt,
    lambda t, y: t / (2.0 * y),
    promote="float",
    domain=(0.1, 3.0),
    doc="""The square root.

    >>> torch.sqrt(torch.tensor([1.0, 4.0, 9.0]))
    tensor([1., 2., 3.])
    """,
)
rsqrt_op = elementwise(
    "rsqrt",
    _rsqrt,
    lambda t, y: t * (-0.5 * (y * y * y)),
    promote="float",
    domain=(0.2, 3.0),
    doc="One over the square root.",
)
square_op = elementwise(
    "square",
    _square,
    lambda t, x: t * (2.0 * x),
    grad_name="PowBackward",
    lower=lambda x: x * x,
    doc="""Each element times itself.

    >>> torch.square(torch.tensor([1.0, -3.0]))
    tensor([1., 9.])
    """,
)
reciprocal_op = elementwise(
    "reciprocal",
    np.reciprocal,
    lambda t, y: -t * (y * y),
    promote="float",
    domain=(0.3, 2.0),
    doc="``1 / x``.",
)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    y = np.negative(x, out=np.empty_like(x))
    np.exp(y, out=y)
    y += 1
    return np.reciprocal(y, out=y)


sigmoid_op = elementwise(
    "sigmoid",
    _sigmoid,
    lambda t, y: t * ((1.0 - y) * y),
    promote="float",
    lower="sigmoid",
    wide_rules=True,
    doc="""``1 / (1 + exp(-x))``: any number brought between 0 and 1.

    >>> torch.sigmoid(torch.tensor([-2.0, 0.0, 2.0]))
    tensor([0.1192, 0.5000, 0.8808])
    """,
)


def _logit(x: np.ndarray, eps: float | None) -> np.ndarray:
    if eps is not None and eps >= 0:
        x = np.clip(x, x.dtype.type(eps), x.dtype.type(1.0 - eps))
    return np.log(x / (1.0 - x))


def _logit_rule(t: Any, x: Any, eps: float | None) -> Any:
    low, high, beyond = (0.0, 1.0, math.nan)
    if eps is not None and eps >= 0:
        low, high, beyond = eps, 1.0 - eps, 0.0
    return where_op((x < low) | (x > high), beyond, t / (x * (1.0 - x)))


logit_op = elementwise(
    "logit",
    _logit,
    _logit_rule,
    promote="float",
    refuses="c",
    public=False,
    samples=lambda m: [
        Sample((m.real(2, 3, low=0.05, high=0.95),), {"eps": None}),
        Sample((m.real(5, low=-0.4, high=1.4),), {"eps": 0.1}),
    ],
    wide_rules=True,
)


@api.both(out=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """The inverse of the sigmoid: ``log(x / (1 - x))``, with x kept ``eps`` away from 0 and 1."""
    return logit_op(input, eps=eps)


@api.method
def logit_(self: Tensor, eps: float | None = None) -> Tensor:
    """The inverse of the sigmoid, in place."""
    return apply_inplace(logit_op, (self,), {"eps": eps})


# --- trigonometry ----------------------------------------------------------------------

sin_op = elementwise(
    "sin",
    np.sin,
    lambda t, x: t * cos_op(x),
    promote="float",
    doc="""The sine of an angle in radians.

    >>> torch.sin(torch.tensor([0.0, torch.pi / 2]))
    tensor([0., 1.])
    """,
)
cos_op: Op = elementwise(
    "cos",
    np.cos,
    lambda t, x: -t * sin_op(x),
    promote="float",
    doc="""The cosine of an angle in radians.

    >>> torch.cos(torch.tensor([0.0, torch.pi]))
    tensor([ 1., -1.])
    """,
)


# How loops compute functions that the kernel language lacks, from those that it has. The order of
# the steps keeps small values exact and large ones finite.

FAR, LOG_2 = 1e8, math.log(2.0)  # where 1 is lost beside a square


def _in_single(steps: Callable) -> Callable:
    """Steps for float32 alone, where what they call are vectors; NumPy is faster in float64."""

    def of_single(x: Any) -> Any:
        if x.dtype != np.float32:
            raise NotTraceableError(f"{steps.__name__} of {x.dtype}")
        return steps(x)

    return of_single


@_in_single
def _sinh_steps(x: Any) -> Any:
    m = np.expm1(np.abs(x) * 0.5)
    r = 1.0 / (m + 1.0)
    return np.copysign((0.5 * m) * (1.0 + r) * (m + 1.0 + r), x)


def _cosh_steps(x: Any) -> Any:
    e = np.exp(np.abs(x) * 0.5)
    return (0.5 * e) * e + (0.5 / e) / e


@_in_single
def _asin_steps(x: Any) -> Any:
    return np.arctan(x / np.sqrt((1.0 - x) * (1.0 + x)))


@_in_single
def _acos_steps(x: Any) -> Any:
    return 2.0 * np.arctan(np.sqrt((1.0 - x) / (1.0 + x)))


@_in_single
def _asinh_steps(x: Any) -> Any:
    a = np.abs(x)
    r = 1.0 / a
    near = np.log1p(a + a / (r + np.sqrt(1.0 + r * r)))
    return np.copysign(np.where(a > FAR, np.log(a) + LOG_2, near), x)


@_in_single
def _acosh_steps(x: Any) -> Any:
    t = x - 1.0
    return np.where(x > FAR, np.log(x) + LOG_2, np.log1p(t + np.sqrt(t) * np.sqrt(t + 2.0)))


@_in_single
def _atanh_steps(x: Any) -> Any:
    a = np.abs(x)
    return np.copysign(0.5 * np.log1p(2.0 * a / (1.0 - a)), x)


tan_op = elementwise(
    "tan",
    np.tan,
    lambda t, y: t * (1.0 + y * y),
    promote="float",
    domain=(-1.2, 1.2),
    doc="The tangent of an angle in radians.",
)
sinh_op = elementwise(
    "sinh",
    np.sinh,
    lambda t, x: t * cosh_op(x),
    promote="float",
    lower=_sinh_steps,
    doc="The hyperbolic sine.",
)
cosh_op: Op = elementwise(
    "cosh",
    np.cosh,
    lambda t, x: t * sinh_op(x),
    promote="float",
    lower=_cosh_steps,
    doc="The hyperbolic cosine.",
)
tanh_op = elementwise(
    "tanh",
    np.tanh,
    lambda t, y: t * (1.0 - y * y),
    promote="float",
    wide_rules=True,
    doc="""The hyperbolic tangent: any number brought between -1 and 1.

    >>> torch.tanh(torch.tensor([-1.0, 0.0, 1.0]))
    tensor([-0.7616,  0.0000,  0.7616])
    """,
)
asin_op = elementwise(
    "asin",
    np.arcsin,
    lambda t, x: t * rsqrt_op(1.0 - x * x),
    promote="float",
    domain=(-0.8, 0.8),
    lower=_asin_steps,
    doc="The angle, in radians, whose sine is given.",
)
acos_op = elementwise(
    "acos",
    np.arccos,
    lambda t, x: -t * rsqrt_op(1.0 - x * x),
    promote="float",
    domain=(-0.8, 0.8),
    lower=_acos_steps,
    doc="The angle, in radians, whose cosine is given.",
)
atan_op = elementwise(
    "atan",
    np.arctan,
    lambda t, x: t / (x * x + 1.0),
    promote="float",
    doc="The angle, in radians, whose tangent is given.",
)
asinh_op = elementwise(
    "asinh",
    np.arcsinh,
    lambda t, x: t * rsqrt_op(x * x + 1.0),
    promote="float",
    lower=_asinh_steps,
    doc="The inverse of ``sinh``.",
)
acosh_op = elementwise(
    "acosh",
    np.arccosh,
    # Of complex numbers two roots: that of the product takes the wrong branch in half of the plane.
    lambda t, x: (
        t * (rsqrt_op(x - 1.0) * rsqrt_op(x + 1.0)) if is_complex(x) else t * rsqrt_op(x * x - 1.0)
    ),
    promote="float",
    domain=(1.2, 3.0),
    lower=_acosh_steps,
    doc="The inverse of ``cosh``.",
)
atanh_op = elementwise(
    "atanh",
    np.arctanh,
    lambda t, x: t / (1.0 - x * x),
    promote="float",
    domain=(-0.8, 0.8),
    lower=_atanh_steps,
    doc="The inverse of ``tanh``.",
)
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    if "a" + _name in api.FUNCTIONS:
        api.alias("a" + _name, "arc" + _name)


def _sinc(x: np.ndarray) -> np.ndarray:
    angle = x * math.pi
    return np.where(x == 0, x.dtype.type(1), np.sin(angle) / angle)


def _sinc_rule(t: Any, x: Any) -> Any:
    angle = x * math.pi
    square = angle * x  # underflows to 0 near 0, where the slope does too
    slope = t * ((angle * cos_op(angle) - sin_op(angle)) / square)
    return where_op(square == 0, 0.0, slope)


sinc_op = elementwise(
    "sinc", _sinc, _sinc_rule, promote="float", doc="``sin(pi x) / (pi x)``, and 1 at zero."
)


def _scaling(name: str, factor: float, doc: str) -> Op:
    return elementwise(
        name, lambda x: x * factor, lambda t: t * factor, promote="float", refuses="c", doc=doc
    )


deg2rad_op = _scaling("deg2rad", math.pi / 180.0, doc="Degrees as radians.")
rad2deg_op = _scaling("rad2deg", 180.0 / math.pi, doc="Radians as degrees.")

# --- signs and complex numbers ---------------------------------------------------------


def _sign(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "cb":
        return np.sign(x) if x.dtype.kind == "c" else x.copy()
    return np.subtract(x > 0, x < 0, dtype=x.dtype)  # 0 for NaN, unlike NumPy's


def _sgn_rule(g: Any, x: Any, y: Any) -> Any:
    """The part of the gradient across the direction of x, shrunk by its length."""
    if not is_complex(x):
        return zero(g)
    across = g - real_part(g * conj_op(y)) * y
    return where_op(x == 0, 0.0, across / abs_op(x))


def _complex_samples(m: Any) -> list[Sample]:
    return [
        Sample((m.real(2, 3, low=0.2),)),
        Sample((m.real(4) + 1j * m.real(4),)),
        Sample((m.real(0, 2),)),
    ]


sign_op = elementwise(
    "sign",
    _sign,
    zero,
    domain=(0.1, 2.0),
    refuses="c",
    lower=lambda x: np.where(x > 0, 1.0, 0.0) - np.where(x < 0, 1.0, 0.0),
    doc="-1, 0 or 1 by the sign.",
)
sgn_op = general(
    "sgn",
    _sign,
    _sgn_rule,
    jvp=(_sgn_rule,),
    promote="same",
    samples=_complex_samples,
    shape="elementwise",
    doc="The sign; of a complex number ``x / abs(x)``.",
)
publish(sgn_op)

abs_op = general(
    "abs",
    np.abs,
    lambda g, x: g * sgn_op(x),
    jvp=(lambda t, x: real_part(t * conj_op(sgn_op(x))),),
    promote="same",
    refuses="b",
    samples=_complex_samples,
    doc="""The absolute value.

    >>> torch.abs(torch.tensor([-1.5, 2.0]))
    tensor([1.5000, 2.0000])
    """,
)
publish(abs_op, in_place=False)


@api.method
def abs_(self: Tensor) -> Tensor:
    """The absolute value, in place."""
    if self.is_complex():
        raise RuntimeError(
            f"In-place abs is not supported for complex tensors.\n  at {errors.here()}"
        )
    return apply_inplace(abs_op, (self,), {})


api.alias("abs", "absolute")


def _angle(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind == "c":
        return np.arctan2(x.imag, x.real)
    flat = np.where(x < 0, x.dtype.type(math.pi), x.dtype.type(0))
    return np.where(np.isnan(x), x, flat)


def _angle_rule(g: Any, x: Any) -> Any:
    if not is_complex(x):
        return zero(g)
    return g * where_op(x == 0, 0.0, x * 1j / real_part(x * conj_op(x)))


def _angle_jvp(t: Any, x: Any) -> Any:
    if not is_complex(x):
        return zero(t)
    slope = imag_op(conj_op(x) * t) / real_part(x * conj_op(x))
    return where_op(x == 0, 0.0, slope)


angle_op = general(
    "angle",
    _angle,
    _angle_rule,
    jvp=(_angle_jvp,),
    promote="float",
    samples=_complex_samples,
    shape="elementwise",
    doc="The angle of a complex number; 0 or pi for a real one.",
)
publish(angle_op, in_place=False)

# --- rounding --------------------------------------------------------------------------


def _whole(name: str, ufunc: Any) -> Any:
    """A rounding that leaves integers as they are and refuses booleans."""

    def rounded(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "f":
            return ufunc(x)
        if x.dtype.kind in "bc":
            kind = dt.of_numpy(x.dtype).name
            raise NotImplementedError(f"\"{name}\" not implemented for '{kind}'")
        return x.copy()

    return rounded


def _rounding(name: str, ufunc: Any, doc: str) -> Op:
    return elementwise(name, _whole(name, ufunc), zero, domain=(0.1, 0.4), doc=doc)


ceil_op = _rounding("ceil", np.ceil, doc="The nearest whole number that is not smaller.")
floor_op = _rounding("floor", np.floor, doc="The nearest whole number that is not greater.")
trunc_op = _rounding("trunc", np.trunc, doc="The whole number without the fraction.")
api.alias("trunc", "fix")


def _round(x: np.ndarray, decimals: int) -> np.ndarray:
    if decimals == 0 or x.dtype.kind != "f":
        if decimals and x.dtype.kind != "f":
            raise NotImplementedError("round with decimals takes floating tensors only")
        return _whole("round", np.rint)(x)
    return np.round(x, decimals)


round_op = elementwise(
    "round",
    _round,
    zero,
    variant=lambda attrs, inputs: int(attrs["decimals"] != 0),
    public=False,
    samples=lambda m: [
        Sample((m.real(2, 3, low=0.1, high=0.4),), {"decimals": 0}),
        Sample((m.real(3, low=0.11, high=0.14),), {"decimals": 1}),
    ],
)


@api.both(out=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """The nearest whole number (or decimal), with halves going to the even one."""
    return round_op(input, decimals=decimals)


api.inplace("round_", round)
frac_op = elementwise(
    "frac",
    lambda x: x - np.trunc(x),
    lambda t: t,
    domain=(0.1, 0.9),
    refuses="biu",
    doc="The fraction, with the sign of the number.",
)

# --- what kind of number it is ---------------------------------------------------------


def _question(name: str, reference: Any, **more: Any) -> Op:
    op = constant(name, reference, promote="compare", **more, shape="elementwise")
    publish(op, in_place=False)
    return op


def _infinite(name: str, infinity: float) -> Any:
    def found(x: np.ndarray) -> np.ndarray:
        if x.dtype.kind == "c":
            raise RuntimeError(f"{name} does not support complex inputs.")
        return x == infinity if x.dtype.kind == "f" else np.zeros(x.shape, bool)

    return found


isnan_op = _question("isnan", np.isnan, doc="Whether each element is NaN.")
isinf_op = _question("isinf", np.isinf, doc="Whether each element is infinite.")
isfinite_op = _question(
    "isfinite", np.isfinite, doc="Whether each element is neither infinite nor NaN."
)
isposinf_op = _question(
    "isposinf", _infinite("isposinf", math.inf), doc="Whether each element is positive infinity."
)
isneginf_op = _question(
    "isneginf", _infinite("isneginf", -math.inf), doc="Whether each element is negative infinity."
)
isreal_op = _question(
    "isreal",
    lambda x: x.imag == 0 if x.dtype.kind == "c" else np.ones(x.shape, bool),
    doc="Whether each element has no imaginary part.",
)
signbit_op = _question(
    "signbit",
    lambda x: np.signbit(x) if x.dtype.kind == "f" else x < 0,
    refuses="c",
    doc="Whether each element has its sign bit set; so has -0.0.",
)


def _nan_to_num(x: np.ndarray, nan: float, posinf: float, neginf: float) -> np.ndarray:
    if x.dtype.kind not in "fc":
        return x.copy()
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


def _traced_nan_to_num(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    ends = np.where(x == np.inf, posinf, np.where(x == -np.inf, neginf, x))
    return np.where(np.isnan(x), nan, ends)


nan_to_num_op = elementwise(
    "nan_to_num",
    _nan_to_num,
    lambda t, x: keep_op(t, isfinite_op(x)),
    public=False,
    lower=_traced_nan_to_num,
    samples=lambda m: [Sample((m.real(2, 3),), {"nan": 0.0, "posinf": 1.0, "neginf": -1.0})],
)


@api.both(out=True)
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """NaN and infinities replaced by numbers: 0 and the largest finite ones unless given."""
    limit = dt.finfo(input.dtype).max if input._a.dtype.kind in "fcV" else 0.0
    return nan_to_num_op(
        input,
        nan=0.0 if nan is None else nan,
        posinf=limit if posinf is None else posinf,
        neginf=-limit if neginf is None else neginf,
    )


api.inplace("nan_to_num_", nan_to_num)

# What torch offers in place as functions, of the files before this one too.
offer_in_place(
    *("abs", "acos", "acosh", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh"),
    *("asin", "asinh", "atan", "atanh", "ceil", "conj_physical", "cos", "cosh", "deg2rad"),
    *("exp2", "exp", "expm1", "fix", "floor", "frac", "log10", "log1p", "log2", "log", "logit"),
    *("nan_to_num", "neg", "negative", "rad2deg", "reciprocal", "round", "rsqrt", "sigmoid"),
    *("sin", "sinc", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
)
