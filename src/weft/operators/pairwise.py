"""Functions of two or three numbers, element by element with broadcasting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, foreign
from weft.core.dispatch import NO_ATTRS, Op, apply
from weft.core.inplace import apply_inplace
from weft.core.pending import model_of
from weft.core.shapes import ShapeDtype, broadcast
from weft.core.short import fast_binary
from weft.core.tensor import Tensor, wrap
from weft.operators import api, batch_rules, shape_rules
from weft.operators.along import result_type
from weft.operators.arithmetic import conj_op, fits, pow, where_op
from weft.operators.build import Sample, constant, elementwise, general, is_number, refusing, zero
from weft.operators.casting import convert
from weft.operators.pointwise import (
    exp2_op,
    exp_op,
    isnan_op,
    keep_op,
    log1p,
    log_op,
    offer_in_place,
    sgn_op,
)
from weft.operators.views import imag_op, real_op


def number_as_tensor(value: Any, other: Any) -> Any:
    """A number as a zero-dim tensor, in the precision of the tensor it meets."""
    if isinstance(value, Tensor):
        return value
    foreign.refuse(value)
    floating = isinstance(other, Tensor) and other._a.dtype.kind in "fcV"
    if floating and not isinstance(value, complex):
        return wrap(np.asarray(value, other._a.dtype))
    return wrap(np.asarray(value, dt.number_dtype(value)))


def pair(a: Any, b: Any) -> tuple[Any, Any]:
    """Two operands of which one may be a number, as tensors."""
    if not isinstance(a, Tensor) and not isinstance(b, Tensor):
        raise TypeError(
            f"one of the operands must be Tensor, not {type(a).__name__} and {type(b).__name__}\n"
            f"  at {errors.here()}"
        )
    return number_as_tensor(a, b), number_as_tensor(b, a)


# --- the larger and the smaller --------------------------------------------------------


def _winner(loses: Any) -> Any:
    """The rule of an extremum: a tie is shared by halves, NaN passes the gradient on to both."""
    return lambda t, a, b: where_op(loses(a, b), 0.0, where_op(a == b, t / 2.0, t))


def _extremum(name: str, ufunc: Any, first_loses: Any, second_loses: Any, doc: str) -> Op:
    return elementwise(
        name, ufunc, _winner(first_loses), _winner(second_loses),
        refuses="c", numbers=False, in_place=False, doc=doc,
    )  # fmt: skip


maximum_op = _extremum(
    "maximum",
    np.maximum,
    lambda a, b: a < b,
    lambda a, b: a > b,
    doc="The greater of two elements; NaN if one is NaN.",
)
minimum_op = _extremum(
    "minimum",
    np.minimum,
    lambda a, b: a > b,
    lambda a, b: a < b,
    doc="The smaller of two elements; NaN if one is NaN.",
)

fmax_op = elementwise(
    "fmax",
    np.fmax,
    lambda t, a, b: keep_op(t, (a >= b) | isnan_op(b)),
    lambda t, a, b: keep_op(t, ~((a >= b) | isnan_op(b))),
    refuses="c",
    numbers=False,
    in_place=False,
    doc="The greater of two elements; of a number and NaN the number.",
)
fmin_op = elementwise(
    "fmin",
    np.fmin,
    lambda t, a, b: keep_op(t, (a <= b) | isnan_op(b)),
    lambda t, a, b: keep_op(t, ~((a <= b) | isnan_op(b))),
    refuses="c",
    numbers=False,
    in_place=False,
    doc="The smaller of two elements; of a number and NaN the number.",
)


def _clamp(x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    if low is not None:
        x = np.maximum(x, low)
    return x if high is None else np.minimum(x, high)


def _clamp_rule(t: Any, x: Any, low: Any, high: Any) -> Any:
    if low is None:
        return keep_op(t, x <= high)
    if high is None:
        return keep_op(t, x >= low)
    return keep_op(t, (x >= low) & (x <= high))


def _clamp_low_rule(t: Any, x: Any, low: Any, high: Any) -> Any:
    return keep_op(t, x < low if high is None else (x < low) & (low < high))


def _clamp_high_rule(t: Any, x: Any, low: Any, high: Any) -> Any:
    return keep_op(t, x > high if low is None else (x > high) | (high < low))


clamp_op = elementwise(
    "clamp",
    _clamp,
    _clamp_rule,
    _clamp_low_rule,
    _clamp_high_rule,
    names=("x", "low", "high"),
    variant=lambda attrs, inputs: int(all(is_number(limit) for limit in inputs[1:])),
    refuses="c",
    bare_numbers=True,
    public=False,
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(3, high=-0.5), m.real(2, 1, low=0.5))),
        Sample((m.real(4), -0.5, None)),
        Sample((m.real(4), None, m.real(4))),
        Sample((m.real(4), 0.5, -0.5)),
    ],
)
clamp_op.edges = ("x", "low?", "high?")


def _limits(input: Tensor, low: Any, high: Any) -> tuple[Any, Any]:
    if low is None and high is None:
        raise RuntimeError(
            f"torch.clamp: At least one of 'min' or 'max' must not be None\n  at {errors.here()}"
        )
    d = input._a.dtype
    if d.kind in "iu" or d in dt.HALF:
        fits(d, low)
        fits(d, high)
    return low, high


@api.both(out=True)
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Values below ``min`` raised to it, values above ``max`` lowered to it.

    >>> x = torch.tensor([-2.0, 0.5, 3.0])
    >>> torch.clamp(x, min=-1, max=1)
    tensor([-1.0000,  0.5000,  1.0000])
    >>> x.clamp(min=0)
    tensor([0.0000, 0.5000, 3.0000])
    """
    return apply(clamp_op, (input, *_limits(input, min, max)), NO_ATTRS)


@api.both(out=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """Values below ``min`` raised to it."""
    api.need_tensors("clamp_min", input=input)
    foreign.refuse(min)
    return clamp_op(input, *_limits(input, min, None))


@api.both(out=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """Values above ``max`` lowered to it."""
    api.need_tensors("clamp_max", input=input)
    foreign.refuse(max)
    return clamp_op(input, *_limits(input, None, max))


@api.method
def clamp_(self: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Clamp in place."""
    return apply_inplace(clamp_op, (self, *_limits(self, min, max)), {})


@api.method
def clamp_min_(self: Tensor, min: Any) -> Tensor:
    """Raise what is below ``min``, in place."""
    return apply_inplace(clamp_op, (self, *_limits(self, min, None)), {})


@api.method
def clamp_max_(self: Tensor, max: Any) -> Tensor:
    """Lower what is above ``max``, in place."""
    return apply_inplace(clamp_op, (self, *_limits(self, None, max)), {})


api.alias("clamp", "clip")

# --- geometry, exponents ---------------------------------------------------------------


def _atan2_slope(t: Any, numerator: Any, a: Any, b: Any) -> Any:
    square = a * a + b * b
    return t * where_op(square == 0, 0.0, numerator / square)


atan2_op = elementwise(
    "atan2",
    np.arctan2,
    lambda t, a, b: _atan2_slope(t, b, a, b),
    lambda t, a, b: _atan2_slope(t, -a, a, b),
    promote="float",
    domain=(0.3, 2.0),
    refuses="c",
    numbers=False,
    doc="The angle of the point (other, input), in radians from -pi to pi.",
)
api.alias("atan2", "arctan2")
hypot_op = elementwise(
    "hypot",
    np.hypot,
    lambda t, a, y: t * (a / y),
    lambda t, b, y: t * (b / y),
    promote="same",
    lower="hypot",
    domain=(0.3, 2.0),
    refuses="biuc",
    numbers=False,
    doc="``sqrt(input**2 + other**2)`` without overflow.",
)


def _logaddexp(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return complex_logaddexp(a, b) if a.dtype.kind == "c" else np.logaddexp(a, b)


def complex_logaddexp(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """log(exp(a) + exp(b)) of complex numbers, scaled by the greater."""
    first = a.real >= b.real
    greater, smaller = np.where(first, a, b), np.where(first, b, a)
    out = greater + log1p(np.exp(smaller - greater))
    # Of two equal infinities the difference would be NaN.
    same = (greater.real == smaller.real) & np.isinf(greater.real)
    out = np.where(same, np.where(greater.real < 0, smaller, np.log(np.exp(a) + np.exp(b))), out)
    return np.where(np.isnan(a) | np.isnan(b), complex(np.nan, np.nan), out).astype(a.dtype)


def _traced_logaddexp(a: Any, b: Any) -> Any:
    # Of two equal infinities the difference would be NaN.
    return np.where(a == b, a + math.log(2), np.maximum(a, b) + np.log1p(np.exp(-abs(a - b))))


logaddexp_op = elementwise(
    "logaddexp",
    _logaddexp,
    lambda t, a, b: t / (1.0 + exp_op(b - a)),
    lambda t, a, b: t / (1.0 + exp_op(a - b)),
    promote="same",
    lower=_traced_logaddexp,
    in_place=False,
    refuses="biu",
    numbers=False,
    doc="``log(exp(input) + exp(other))`` without overflow.",
)
logaddexp2_op = elementwise(
    "logaddexp2",
    np.logaddexp2,
    lambda t, a, b: t / (1.0 + exp2_op(b - a)),
    lambda t, a, b: t / (1.0 + exp2_op(a - b)),
    promote="same",
    in_place=False,
    refuses="biu",
    numbers=False,
    doc="``log2(2**input + 2**other)`` without overflow.",
)


def _xlogy(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where((a == 0) & ~np.isnan(b), a.dtype.type(0), a * np.log(b))


xlogy_op = elementwise(
    "xlogy",
    _xlogy,
    lambda t, a, b: where_op((a == 0) & (b <= 0), 0.0, t * log_op(b)),
    lambda t, a, b: t * (a / b),
    promote="float",
    domain=((-2.0, 2.0), (0.2, 2.0)),
    public=False,
    refuses="c",
    numbers=False,  # the logarithm of a number would be taken in float64
)


@api.both(out=True)
def xlogy(input: Any, other: Any) -> Tensor:
    """``input * log(other)``, and 0 where the input is 0."""
    return xlogy_op(*pair(input, other))


@api.method
def xlogy_(self: Tensor, other: Any) -> Tensor:
    """``self * log(other)`` in place."""
    return apply_inplace(xlogy_op, (self, number_as_tensor(other, self)), {})


api.under("special", api.FUNCTIONS["xlogy"], name="xlogy")


@api.both(out=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2 ** other``."""
    api.need_tensors("ldexp", input=input, other=other)
    if input._a.dtype.kind in "fV" and other._a.dtype.kind in "iu":
        if input._a.dtype in dt.HALF:
            # The power alone may be too large for a half type.
            return (input.to(dt.float32) * pow(2.0, other.to(dt.float32))).to(input.dtype)
        other = other.to(input.dtype)  # or integers would make the power a float32
    return input * pow(2.0, other)


api.inplace("ldexp_", ldexp)

_frexp_result = result_type("frexp", "mantissa", "exponent")


def _frexp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if x.dtype.kind != "f":
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    mantissa, exponent = np.frexp(x)
    return mantissa, exponent.astype(np.int32, copy=False)


frexp_op = general(
    "frexp",
    _frexp,
    lambda g, exponent, x_dtype: g[0] / exp2_op(exponent + x_dtype.type(0)),
    outputs=("mantissa", "exponent"),
    constant_outputs=(1,),
    promote="same",
    samples=lambda m: [Sample((m.real(2, 3, low=0.3, high=5.0),)), Sample((m.real(0, 2),))],
    shape="elementwise",
)


@api.both
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """Mantissas in [0.5, 1) and exponents of two."""
    result = _frexp_result(*frexp_op(input))
    return result if out is None else api.into(out, result, "frexp", input)


@api.both(out=True)
def float_power(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent`` in double precision."""
    if not isinstance(exponent, Tensor):
        api.need_tensors("float_power", input=input)
    operands = (input, exponent)
    many = any(
        isinstance(v, complex) or (isinstance(v, Tensor) and v.is_complex()) for v in operands
    )
    d = dt.C128 if many else dt.F64
    return pow(*(convert(v, d) if isinstance(v, Tensor) else v for v in operands))


@api.method
def float_power_(self: Tensor, exponent: Any) -> Tensor:
    """The power in place, for double precision only."""
    many = any(
        isinstance(v, complex) or (isinstance(v, Tensor) and v.is_complex())
        for v in (self, exponent)
    )
    wanted = dt.complex128 if many else dt.float64
    if self.dtype is not wanted:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {dt.TYPE_NAMES[self.dtype.name]} but the "
            f"operation's result requires dtype {dt.TYPE_NAMES[wanted.name]}. Convert it with "
            f".to({wanted!r}) first\n  at {errors.here()}"
        )
    return api.change_by(self, "float_power", float_power, (exponent,), {})


# --- floating-point bits ---------------------------------------------------------------

copysign_op = elementwise(
    "copysign",
    np.copysign,
    lambda t, a, y: t * where_op(a == 0, 0.0, y / a),
    zero,
    promote="float",
    domain=((0.2, 2.0), (0.2, 2.0)),
    refuses="c",
    doc="The magnitude of ``input`` with the sign of ``other``.",
)

_nextafter_rules = (lambda t, a, b: keep_op(t, a != b), zero)
nextafter_op = general(
    "nextafter",
    np.nextafter,
    *_nextafter_rules,
    names=("a", "b"),
    layout="operands",
    jvp=_nextafter_rules,
    samples=lambda m: [Sample((m.real(2, 3), m.real(3)))],
    shape="elementwise",
)


@api.both(out=True)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """The next number of the type from one value towards another."""
    api.need_tensors("nextafter", input=input, other=other)
    common = dt.result_dtype((model_of(input), model_of(other)))
    if common.kind in "biuc":
        raise NotImplementedError(
            f"nextafter: not implemented for {dt.of_numpy(common)}\n  at {errors.here()}"
        )
    return nextafter_op(convert(input, common), convert(other, common))


api.inplace("nextafter_", nextafter)


def _heaviside(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(a == 0, b, (a > 0).astype(a.dtype))


heaviside_op = general(
    "heaviside",
    _heaviside,
    refusing("heaviside"),
    refusing("heaviside"),
    names=("a", "b"),
    promote="same",
    refuses="c",
    layout="operands",
    samples=None,
    shape="elementwise",
)


@api.both(out=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 for negative and 1 for positive numbers, the given values at 0."""
    api.need_tensors("heaviside", input=input, values=values)
    if input.is_complex() or values.is_complex():
        raise RuntimeError(
            f"heaviside is not yet implemented for complex tensors.\n  at {errors.here()}"
        )
    if input._a.dtype != values._a.dtype:
        raise RuntimeError(
            "heaviside is not yet implemented for tensors with different dtypes. They are "
            f"{input.dtype} and {values.dtype}\n  at {errors.here()}"
        )
    return heaviside_op(input, values)


api.inplace("heaviside_", heaviside)


def _integers_only(name: str, ufunc: Any, doc: str) -> Op:
    op = constant(
        name,
        ufunc,
        names=("a", "b"),
        promote="same",
        refuses="bfcV",
        numbers=False,
        layout="operands",
        shape="elementwise",
        doc=doc,
    )
    api.both(fast_binary(op), name=name)
    api.inplace(name + "_", op)
    return op


gcd_op = _integers_only("gcd", np.gcd, doc="The greatest common divisor of integers.")
lcm_op = _integers_only("lcm", np.lcm, doc="The least common multiple of integers.")

# --- comparing within a tolerance ------------------------------------------------------


def _isclose(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> np.ndarray:
    close = a == b
    if equal_nan:
        close |= np.isnan(a) & np.isnan(b)
    if rtol == 0 and atol == 0:
        return close
    if a.dtype.kind in "iub":
        a, b = a.astype(np.float64), b.astype(np.float64)
    error = np.abs(a - b)
    return close | (np.isfinite(error) & (error <= atol + np.abs(rtol * b)))


isclose_op = constant(
    "isclose", _isclose, names=("a", "b"), promote="compare", layout="operands", shape="elementwise"
)


@api.both
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> Tensor:
    """Where ``|input - other| <= atol + rtol * |other|``."""
    api.need_tensors("isclose", input=input, other=other)
    _same_dtype(input, other)
    for name, value in (("rtol", rtol), ("atol", atol)):
        if isinstance(value, Tensor) and (value._a.ndim or value._node is not None):
            raise TypeError(
                f"isclose(): argument '{name}' must be float, not Tensor\n  at {errors.here()}"
            )
    if not (rtol >= 0 and atol >= 0):  # NaN is refused too
        which, value = ("atol", atol) if rtol >= 0 else ("rtol", rtol)
        raise RuntimeError(
            f"{which} must be greater than or equal to zero, but got {value}\n  at {errors.here()}"
        )
    return isclose_op(input, other, rtol=rtol, atol=atol, equal_nan=equal_nan)


def _same_dtype(input: Tensor, other: Tensor) -> None:
    if input._a.dtype != other._a.dtype:
        names = [dt.TYPE_NAMES[d.name] for d in (input.dtype, other.dtype)]
        raise RuntimeError(
            f"{names[0]} did not match {names[1]}; convert one with .to()\n  at {errors.here()}"
        )


@api.both
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether all elements are close.

    >>> x = torch.tensor([1.0, 2.0])
    >>> torch.allclose(x, x + 1e-9)
    True
    >>> torch.allclose(x, x + 1e-3)
    False
    """
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@api.both
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and the same elements.

    >>> torch.equal(torch.tensor([1, 2]), torch.tensor([1, 2]))
    True
    >>> torch.equal(torch.tensor([1, 2]), torch.tensor([[1, 2]]))
    False
    """
    api.need_tensors("equal", input=input, other=other)
    if input.shape != other.shape:
        return False
    return bool(input.eq(other).all())


# --- complex numbers from two real ones ------------------------------------------------


def _complex(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype != b.dtype or a.dtype not in (dt.F32, dt.F64):
        raise RuntimeError(
            "Expected both inputs to be Float or Double tensors of one dtype but got "
            f"{a.dtype} and {b.dtype}"
        )
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), dt.of_numpy(a.dtype).to_complex().np)
    out.real, out.imag = a, b
    return out


complex_op = general(
    "complex",
    _complex,
    lambda g: real_op(g),
    lambda g: imag_op(g),
    names=("a", "b"),
    layout="operands",
    jvp=(lambda t: t * (1.0 + 0.0j), lambda t: t * 1j),
    samples=lambda m: [Sample((m.real(2, 3), m.real(3))), Sample((m.real(), m.real()))],
    shape="elementwise",
)


def _check_parts(first: Tensor, second: Tensor) -> None:
    names = [dt.TYPE_NAMES[t.dtype.name] for t in (first, second)]
    if not {first.dtype, second.dtype} <= {dt.float16, dt.float32, dt.float64}:
        raise RuntimeError(
            "Expected both inputs to be Half, Float or Double tensors but got "
            f"{names[0]} and {names[1]}\n  at {errors.here()}"
        )
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {names[0]} but got scalar type {names[1]} for second "
            f"argument\n  at {errors.here()}"
        )


@api.top(name="complex", out=True)
def from_parts(real: Tensor, imag: Tensor) -> Tensor:
    """Complex numbers from their real and imaginary parts."""
    api.need_tensors("complex", real=real, imag=imag)
    _check_parts(real, imag)
    return complex_op(real, imag)


@api.top(out=True)
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers from their lengths and angles."""
    api.need_tensors("polar", abs=abs, angle=angle)
    _check_parts(abs, angle)
    return polar_op(abs, angle)


def _polar(abs: np.ndarray, angle: np.ndarray) -> np.ndarray:
    return _complex(abs * np.cos(angle), abs * np.sin(angle))


def _polar_check(args: Any) -> None:
    kinds = [x.dtype for x in args]
    if kinds[0] != kinds[1] or kinds[0] not in (dt.F32, dt.F64):
        raise RuntimeError(
            "Expected both inputs to be Float or Double tensors of one dtype but got "
            f"{kinds[0]} and {kinds[1]}"
        )


# The direction that a length scales is that of the result: none where the length is 0.
polar_op = general(
    "polar",
    _polar,
    lambda g, y: real_op(g * conj_op(sgn_op(y))),
    lambda g, y: real_op(g * conj_op(y * 1j)),
    names=("abs", "angle"),
    jvp=(lambda t, y: t * sgn_op(y), lambda t, y: t * (y * 1j)),
    promote="same",
    check=_polar_check,
    samples=lambda m: [Sample((m.real(2, 3, low=0.3), m.real(2, 3)))],
    shape=lambda abs, angle: ShapeDtype(
        broadcast(abs.shape, angle.shape), shape_rules.complex_of(abs.dtype)
    ),
    batch=batch_rules.elementwise,
)


offer_in_place("clamp", "clamp_max", "clamp_min", "clip", "gcd", "lcm", "ldexp", "xlogy")
