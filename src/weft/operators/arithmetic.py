"""Arithmetic and the operators of Python: the ops that the rest is built from."""

from __future__ import annotations

import inspect
import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors, foreign, quiet, selection
from weft.core.dispatch import NO_ATTRS, REGISTRY, Op, apply
from weft.core.gate import LISTENERS, announce
from weft.core.inplace import apply_inplace, bump
from weft.core.modes import MODES, OFF, PLAIN, SPECIAL
from weft.core.pending import reads_metadata
from weft.core.shapes import ShapeDtype
from weft.core.short import OPERANDS, fast_binary, fast_unary
from weft.core.tensor import Tensor, wrap
from weft.native.codegen.trace import multiply_add
from weft.operators import api, batch_rules, shape_rules
from weft.operators.build import Sample, constant, elementwise, general, is_number, refusing, zero
from weft.operators.outputs import put_into
from weft.references.select import choose


def _is_bool(x: Any) -> bool:
    return isinstance(x, bool) or getattr(getattr(x, "_a", x), "dtype", 0) == dt.BOOL


reads_metadata(_is_bool)


def _no_bool_subtract(args: Any) -> None:
    bools = [_is_bool(x) for x in args]
    if any(bools):
        which = "with a bool tensor is not supported. If you are trying to invert a mask, use the "
        which += "`~` or `logical_not()` operator instead."
        if all(bools):
            which = "with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            which += "operator instead."
        raise RuntimeError(f"Subtraction, the `-` operator, {which}")


add_op = elementwise("add", np.add, lambda t: t, lambda t: t, public=False)
sub_op = elementwise(
    "sub",
    np.subtract,
    lambda t: t,
    lambda t: -t,
    check=_no_bool_subtract,
    variant=lambda attrs, inputs: "RsubBackward1" if is_number(inputs[0]) else 0,
    public=False,
)
sub_op.edges = ("a?", "b")


def _mul_rule(t: Any, b: Any) -> Any:
    return mul_op(t, b) if b.__class__ is float and _is_half(t) else t * b


def _div_rule(t: Any, b: Any) -> Any:
    return div_op(t, b) if b.__class__ is float and _is_half(t) else t / b


def _is_half(t: Any) -> bool:
    """Whether NumPy would round a number to the half type of an array before it is used."""
    return t.__class__ is np.ndarray and t.dtype.itemsize == 2


mul_op = elementwise(
    "mul", np.multiply, _mul_rule, lambda t, a: _mul_rule(t, a), public=False, wide=(0, 1)
)
div_op = elementwise(
    "div",
    np.true_divide,
    _div_rule,
    lambda t, a, b: -t * ((a / b) / b),
    promote="float",
    wide=(1,),
    domain=((-2.0, 2.0), (0.5, 2.0)),
    public=False,
)

_add, _sub, _mul, _div = (fast_binary(op) for op in (add_op, sub_op, mul_op, div_op))


@api.both(out=True)
def add(input: Any, other: Any, *last: Any, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``.

    >>> torch.add(torch.tensor([1, 2]), torch.tensor([3, 4]), alpha=10)
    tensor([31, 42])
    """
    if last:
        other, alpha = _alpha_first("add", other, last)
    if not isinstance(input, Tensor):
        input, other = _operands(input, other)
    if alpha.__class__ is int and alpha == 1:
        return _add(input, other) if isinstance(input, Tensor) else _add(other, input)
    return _sum_with(input, other, number(alpha, "add", "alpha"))


@api.both(out=True)
def sub(input: Any, other: Any, *last: Any, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    if last:
        other, alpha = _alpha_first("sub", other, last)
    if not isinstance(input, Tensor):
        input, other = _operands(input, other)
    if alpha.__class__ is int and alpha == 1:
        if isinstance(input, Tensor):
            return _sub(input, other)
        return apply(sub_op, (input, other), NO_ATTRS)
    return _sum_with(input, other, number(alpha, "sub", "alpha"), -1)


@api.both(out=True)
def mul(input: Any, other: Any) -> Tensor:
    """``input * other``.

    >>> torch.tensor([1, 2]).mul(torch.tensor([[10], [20]]))
    tensor([[10, 20],
            [20, 40]])
    """
    if not isinstance(input, Tensor):
        input, other = _operands(input, other)
        if not isinstance(input, Tensor):
            return _mul(other, input)
    return _mul(input, other)


def _alpha_first(name: str, alpha: Any, last: tuple[Any, ...]) -> tuple[Any, Any]:
    """The arguments of the deprecated ``f(input, alpha, other)``, in today's order."""
    if isinstance(alpha, Tensor) and not alpha._a.ndim and alpha._node is None:
        alpha = alpha.item()
    if len(last) > 1 or not is_number(alpha):
        raise TypeError(
            f"{name}() takes 2 positional arguments but {2 + len(last)} were given\n"
            f"  at {errors.here()}"
        )
    errors.warn_once(
        f"This overload of {name} is deprecated:\n\t{name}(Tensor input, Number alpha, Tensor "
        f"other)\nConsider using one of the following signatures instead:\n"
        f"\t{name}(Tensor input, Tensor other, *, Number alpha = 1)"
    )
    return last[0], alpha


@api.both
def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``."""
    api.need_tensors("rsub", input=input)
    return _sum_with(other, input, alpha, -1)


def _sum_with(a: Any, b: Any, alpha: Any, sign: int = 1) -> Tensor:
    """``a + alpha * b``, or the difference."""
    if sign < 0:
        _no_bool_subtract((a, b))
    d = _sum_dtype(b, alpha, a)
    if alpha != 1 and (d in dt.HALF or d.kind in "fc"):
        # One node, and one rounding, where product and sum would have two.
        op = add_scaled_op if sign > 0 else sub_scaled_op
        return op(a, b, _factor(alpha, d))
    return apply(add_op if sign > 0 else sub_op, (a, _scaled(b, alpha, d)), NO_ATTRS)


def _factor(alpha: Any, d: np.dtype) -> Any:
    """The factor in the type of the sum, as a number of Python's."""
    return complex(alpha) if d.kind == "c" else float(d.type(alpha))


def _scaling(name: str, reference: Any, slope: Any, grad_name: str) -> Op:
    return elementwise(
        name,
        reference,
        lambda t: t,
        slope,
        None,
        names=("a", "b", "alpha"),
        promote_args=(0, 1),
        grad_name=grad_name,
        public=False,
        samples=lambda m: [Sample((m.real(2, 3), m.real(3), 1.5))],
    )


add_scaled_op = _scaling(
    "add_scaled",
    lambda a, b, alpha: multiply_add(b, alpha, a),
    lambda t, alpha: _mul_rule(t, alpha),
    "AddBackward",
)
sub_scaled_op = _scaling(
    "sub_scaled",
    lambda a, b, alpha: multiply_add(b, -alpha, a),
    lambda t, alpha: -_mul_rule(t, alpha),
    "SubBackward",
)


def _sum_dtype(value: Any, alpha: Any, other: Any) -> np.dtype:
    """The type of a sum with ``alpha * value``; alpha may not widen it."""
    if isinstance(value, Tensor) and isinstance(other, Tensor) and value.dtype is other.dtype:
        d = value.dtype.np
    else:
        d = dt.result_dtype(x._a if isinstance(x, Tensor) else x for x in (value, other))
    if isinstance(alpha, bool) and d != dt.BOOL:
        raise RuntimeError(
            "Boolean alpha only supported for Boolean results. The result here is of type "
            f"{dt.of_numpy(d)!r}\n  at {errors.here()}"
        )
    kind = dt.category(dt.scalar_dtype(alpha))
    fits(d, alpha)
    if kind > max(dt.category(d), dt.dtype.INTEGER):
        least, wider = "integral", "a floating point"
        if dt.category(d) == dt.dtype.FLOAT:
            least, wider = "non-complex", "a complex"
        raise RuntimeError(
            f"For {least} input tensors, argument alpha must not be {wider} number. It is "
            f"{alpha!r}\n  at {errors.here()}"
        )
    return d


def _scaled(value: Any, alpha: Any, d: np.dtype) -> Any:
    """``alpha * value`` in the type of the sum."""
    if alpha == 1 and alpha is not True:
        return value
    if not isinstance(value, Tensor):
        return bool(value * alpha) if d == dt.BOOL else value * alpha
    value = value.to(dt.of_numpy(d))
    return _mul(value, bool(alpha) if d == dt.BOOL else alpha)


def number(value: Any, function: str, argument: str) -> Any:
    """A number, for which a zero-dim tensor without a gradient may stand."""
    if not isinstance(value, Tensor):
        return value
    if value._a.ndim or value.requires_grad:
        raise TypeError(
            f"{function}(): argument '{argument}' must be Number, not Tensor; call .item() on it\n"
            f"  at {errors.here()}"
        )
    return value.item()


def fits_half(d: np.dtype, value: Any) -> None:
    """Refuse a number that a half type can't hold, where PyTorch does."""
    if isinstance(value, (int, float)) and math.isfinite(value):
        if abs(value) > dt.finfo(dt.of_numpy(d)).max:
            raise RuntimeError(
                f"value cannot be converted to type c10::{dt.TYPE_NAMES[d.name]} without overflow: "
                f"{value}\n  at {errors.here()}"
            )


def fits(d: np.dtype, value: Any) -> None:
    """Refuse a number that the type of a tensor can't hold, where it would wrap around."""
    if d in dt.HALF:
        fits_half(d, value)
    elif d.kind in "iu" and isinstance(value, int):
        limits = np.iinfo(d)
        # As in PyTorch: of unsigned types negative numbers wrap around.
        if not (-limits.max if d.kind == "u" else limits.min) <= value <= limits.max:
            raise RuntimeError(
                f"value cannot be converted to type {d.name}_t without overflow: {value}\n"
                f"  at {errors.here()}"
            )


def as_operand(value: Any, like: Any) -> Tensor:
    """A tensor for a number that is to be scaled first."""
    if isinstance(value, Tensor):
        return value
    return wrap(np.asarray(value, dtype=dt.scalar_dtype(value)))


@api.both(out=True)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; rounded to ``'floor'`` or ``'trunc'`` if asked.

    >>> torch.tensor([7.0, -7.0]).div(2)
    tensor([ 3.5000, -3.5000])
    >>> torch.tensor([7.0, -7.0]).div(2, rounding_mode="floor")
    tensor([ 3., -4.])
    """
    if rounding_mode is None:
        if isinstance(input, Tensor):
            return _div(input, other)
        return apply(div_op, _operands(input, other), NO_ATTRS)
    foreign.refuse(other)
    if rounding_mode == "floor":
        return div_floor_op(*_operands(input, other))
    if rounding_mode == "trunc":
        return trunc_divide_op(*_operands(input, other))
    raise RuntimeError(
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"'{rounding_mode}'\n  at {errors.here()}"
    )


def _operands(a: Any, b: Any) -> tuple[Any, Any]:
    return (a, b) if isinstance(a, Tensor) or isinstance(b, Tensor) else (as_operand(a, b), b)


def _need_one(function: str, input: Any, other: Any) -> None:
    """Refuse two numbers where one of them may be one."""
    if not isinstance(other, Tensor):
        api.need_tensors(function, input=input)


def _integer_guard(function: Any) -> Any:
    def guarded(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        foreign.refuse(b)
        if a.dtype.kind in "iu" and not np.all(b):
            raise RuntimeError("ZeroDivisionError: integer division by zero")
        return function(a, b)

    return guarded


def _floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype in dt.HALF:
        return _by_number(_floor_divide, a, b) if b.size == 1 else _floor_divide_floats(a, b)
    return _floor_divide_floats(a, b) if a.dtype.kind == "f" else np.floor_divide(a, b)


def _floor_divide_floats(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """PyTorch's steps, each of which is rounded to the type, half types too."""
    mod = np.fmod(a, b)
    quotient = (a - mod) / b
    below = (mod != 0) & ((b < 0) != (mod < 0))
    quotient = np.where(below, quotient - a.dtype.type(1), quotient)
    out = np.floor(quotient)
    out = np.where(quotient - out > a.dtype.type(0.5), out + a.dtype.type(1), out)
    exact = a / b
    out = np.where(quotient == 0, np.copysign(a.dtype.type(0), exact), out)
    return np.where(b == 0, exact, out)


def _trunc_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype in dt.HALF and b.size == 1:
        return _by_number(_trunc_divide, a, b)
    if a.dtype.kind in "fV":
        return np.trunc(a / b)
    quotient = np.floor_divide(a, b)
    return quotient + ((quotient < 0) & (quotient * b != a)).astype(quotient.dtype)


def _by_number(function: Any, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Half types divided by a single number: in float32, rounded once."""
    return function(a.astype(np.float32), b.astype(np.float32)).astype(a.dtype)


def _dividing(name: str, function: Any, *rules: Any, **more: Any) -> Op:
    return elementwise(
        name,
        _integer_guard(function),
        *rules,
        domain=((-2.0, 2.0), (0.5, 0.7)),
        public=False,
        refuses="bc",
        wide=(1,),
        narrow=True,
        **more,
    )


_no_floor = refusing("floor_divide", "Detach the tensor, or use torch.div with rounding_mode")
_DIV = {"grad_name": "DivBackward", "variant": lambda attrs, inputs: 2}
div_floor_op = _dividing("div_floor", _floor_divide, zero, zero, **_DIV)
trunc_divide_op = _dividing("trunc_divide", _trunc_divide, zero, zero, **_DIV)
floor_divide_op = _dividing(
    "floor_divide",
    _floor_divide,
    _no_floor,
    _no_floor,
    samples=lambda m: [],
)


@api.both(out=True)
def floor_divide(input: Any, other: Any) -> Tensor:
    """``floor(input / other)``, rounded towards minus infinity; it has no derivative."""
    foreign.refuse(other)
    return floor_divide_op(*_operands(input, other))


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "fV":
        out = np.fmod(a, b)
        return np.where((out != 0) & ((out < 0) != (b < 0)), out + b, out)
    return np.remainder(a, b)


remainder_op = elementwise(
    "remainder",
    _integer_guard(_remainder),
    lambda t: t,
    lambda t, a, b: -t * div_floor_op(a, b),
    domain=((-2.0, 2.0), (0.5, 0.7)),
    variant=lambda attrs, inputs: 0 if is_number(inputs[1]) else 1,
    refuses="bc",
    public=False,
)
fmod_op = elementwise(
    "fmod",
    _integer_guard(np.fmod),
    lambda t: t,
    lambda t, a, b: -t * trunc_divide_op(a, b),
    domain=((-2.0, 2.0), (0.5, 0.7)),
    variant=lambda attrs, inputs: 0 if is_number(inputs[1]) else 1,
    refuses="bc",
    public=False,
)


@api.both(out=True)
def remainder(input: Any, other: Any) -> Tensor:
    """The remainder with the sign of the divisor, as Python's ``%``."""
    _need_one("remainder", input, other)
    foreign.refuse(other)
    return remainder_op(*_operands(input, other))


@api.both(out=True)
def fmod(input: Any, other: Any) -> Tensor:
    """The remainder with the sign of the dividend, as C's ``fmod``."""
    api.need_tensors("fmod", input=input)
    foreign.refuse(other)
    return fmod_op(*_operands(input, other))


def _pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind in "iu" and a.dtype == b.dtype:
        return _integer_pow(a, b)
    if a.dtype.kind == "b":
        if not np.ndim(b):
            return np.where(b, a, True)
        raise NotImplementedError("\"pow\" not implemented for 'Bool'; convert with .long() first")
    by = POWERS.get(b) if b.__class__ in (int, float) and a.dtype.kind != "c" else None
    return np.power(a, b) if by is None else by(a)


# Exponents that PyTorch computes without a power, which takes ten times as long.
POWERS: dict[float, Any] = {
    1: lambda a: a * 1.0,
    2: lambda a: a * a,
    3: lambda a: a * a * a,
    0.5: np.sqrt,
    -0.5: lambda a: 1.0 / np.sqrt(a),
    -1: lambda a: 1.0 / a,
    -2: lambda a: 1.0 / (a * a),
}


def _integer_pow(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if not np.any(b < 0):
        return np.power(a, b)
    # In integers 1/x is 0 but for 1 and -1.
    out = np.power(a, np.maximum(b, 0))
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse, out).astype(a.dtype)


def _pow_rule_base(t: Any, a: Any, b: Any) -> Any:
    if isinstance(b, (int, float)):
        if b == 0:
            return zero(t)
        if b == 2:
            return t * (2.0 * a)
        if b == 0.5:
            return t * (0.5 / REGISTRY["sqrt"](a))
        if b == 1.5:
            return t * (1.5 * REGISTRY["sqrt"](a))
        return t * (b * (pow_op(a, b - 1) if _is_half(a) else a ** (b - 1)))
    return t * where_op(b == 0, 0.0, b * a ** (b - 1))


def _pow_rule_exponent(t: Any, a: Any, b: Any, y: Any) -> Any:
    flat = (a == 0) if _complex(a, b) else (a == 0) & (b >= 0)
    if _complex(b) and not _complex(a):
        a = a + 0j  # a negative real base has a logarithm here
    return t * where_op(flat, 0.0, y * _log_of(a))


def _log_of(a: Any) -> Any:
    if not isinstance(a, (int, float)):
        return REGISTRY["log"](a)
    # A number's in double precision, whatever the default dtype is.
    return math.log(a) if a > 0 else math.nan if a else -math.inf


def _complex(*values: Any) -> bool:
    return any(getattr(getattr(v, "_a", v), "dtype", dt.F32).kind == "c" for v in values)


where_op: Op = general(
    "where",
    lambda condition, a, b: choose(np.asarray(condition), a, b),
    None,
    lambda g, condition: where_op(condition, g, 0.0),
    lambda g, condition: where_op(condition, 0.0, g),
    names=("condition", "a", "b"),
    jvp=(
        None,
        lambda t, condition: where_op(condition, t, 0.0),
        lambda t, condition: where_op(condition, 0.0, t),
    ),
    promote="same",
    promote_args=(1, 2),
    lower=np.where,
    samples=lambda m: [Sample((m.mask(2, 3), m.real(2, 3), m.real(3)))],
)

pow_op = elementwise(
    "pow",
    _pow,
    _pow_rule_base,
    _pow_rule_exponent,
    domain=((0.5, 2.0), (-1.0, 3.0)),
    variant=lambda attrs, inputs: 0 if is_number(inputs[1]) else 2 if is_number(inputs[0]) else 1,
    bare_numbers=True,
    public=False,
)
pow_op.edges = ("a?", "b?")
pow_op.special = frozenset((*POWERS, 1.5))  # the gradient of the last is a root
_fast_pow = fast_binary(pow_op)


@api.both(out=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``.

    >>> x = torch.tensor([1.0, 2.0, 3.0])
    >>> x.pow(2)
    tensor([1., 4., 9.])
    >>> torch.pow(2, x)
    tensor([2., 4., 8.])
    """
    if isinstance(input, Tensor):
        if not isinstance(exponent, Tensor):
            _check_exponent(input, exponent)
        return _fast_pow(input, exponent)
    _need_one("pow", input, exponent)
    return apply(pow_op, (input, exponent), {})


def _check_exponent(input: Tensor, exponent: Any) -> None:
    d = input._a.dtype
    if d is dt.F32 or d is dt.F64:
        return
    if isinstance(exponent, int) and exponent < 0 and d.kind in "iub":
        raise RuntimeError(
            f"pow: Integers to negative integer powers are not allowed.\n  at {errors.here()}"
        )
    if d in dt.HALF:
        fits_half(d, exponent)
        if d == dt.F16 and isinstance(exponent, complex):
            raise NotImplementedError(
                f"\"pow\" not implemented for 'ComplexHalf'; use .float()\n  at {errors.here()}"
            )


@api.method
def pow_(self: Tensor, exponent: Any) -> Tensor:
    """The power in place."""
    if not isinstance(exponent, Tensor):
        _check_exponent(self, exponent)
    return apply_inplace(pow_op, (self, exponent), {})


def _no_bool(function: Any, name: str) -> Any:
    def checked(x: np.ndarray) -> np.ndarray:
        if x.dtype == bool:
            raise RuntimeError(
                f"{name}, the `-` operator, on a bool tensor is not supported. If you are trying "
                "to invert a mask, use the `~` or `logical_not()` operator instead."
            )
        return function(x)

    return checked


neg_op = elementwise("neg", _no_bool(np.negative, "Negative"), lambda t: -t, doc="``-input``.")
api.alias("neg", "negative")


@api.both
def positive(input: Tensor) -> Tensor:
    """``+input``: the tensor itself."""
    return input if input._a.dtype != bool else neg_op(input)


conj_op: Op = general(
    "conj",
    lambda x: np.conj(x) if x.dtype.kind == "c" else x,
    lambda g: conj_op(g),
    jvp=(lambda t: conj_op(t),),
    grad_name="ConjBackward",
    samples=lambda m: [Sample((m.real(3) + 1j * m.real(3),)), Sample((m.real(2),))],
    shape=lambda x: (
        shape_rules.preserved(x)
        if x.dtype.kind == "c"
        else ShapeDtype(x.shape, x.dtype, x.steps)  # which is the input itself
    ),
    batch=batch_rules.leading,
)
Op.conj = conj_op


@api.both
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors as they are."""
    return conj_op(input) if input.is_complex() else input


def _as_it_is(input: Tensor) -> Tensor:
    foreign.refuse(input)
    return input


# Conjugation and negation are done at once here, so there is nothing to resolve.
@api.both
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: conjugation is never pending here."""
    return _as_it_is(input)


@api.both
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: negation is never pending here."""
    return _as_it_is(input)


@api.both(out=True)
def conj_physical(input: Tensor) -> Tensor:
    """The complex conjugate in memory of its own; real tensors as they are."""
    return conj_op(input) if input._a.dtype.kind == "c" else input


api.inplace("conj_physical_", lambda input: conj_op(input))

# --- in place --------------------------------------------------------------------------


def _in_place(name: str, op: Op, ufunc: Any, doc: str) -> Any:
    """In-place arithmetic; where nothing is recorded one pass over the memory, no temporary.

    ``alpha`` is for sums.
    """
    slow_name = name + "_"

    def change(self: Tensor, other: Any, *last: Any, alpha: Any = 1) -> Tensor:
        if last:
            other, alpha = _alpha_first(slow_name, other, last)
        if other is None:  # mostly a gradient that is not there
            raise TypeError(
                f"{slow_name}(): argument 'other' (position 1) must be Tensor, not NoneType"
                f"\n  at {errors.here()}"
            )
        now = MODES.now
        mode = now.mode
        if alpha != 1:
            return _change_scaled(self, other, number(alpha, slow_name, "alpha"), op)
        if mode is SPECIAL:
            return apply_inplace(op, (self, other), {})
        x = self._a
        d = x.dtype
        quiet_enough = (d is dt.F32 or d is dt.F64) and (
            mode is OFF or (mode is PLAIN and self._node is None and self._base is None)
        )
        if isinstance(other, Tensor):
            y = other._a
            quiet_enough = (
                quiet_enough
                and y.dtype is d
                and (other._vc is not self._vc or other is self)
                and (mode is OFF or (other._node is None and other._base is None))
                and (y.shape == x.shape or _fits(y.shape, x.shape))
            )
        else:
            y = other
            quiet_enough = quiet_enough and y.__class__ in (int, float)
        # Inference tensors are left to the general path, which knows where they may be changed.
        tracked = self._vc.__class__ is list or now.inference
        if quiet_enough and tracked and (0 not in x.strides or x.size < 2):
            if LISTENERS:
                announce(x, self)
            if not selection.into(op, x, y):
                token = quiet.enter()
                try:
                    ufunc(x, y, out=x)
                finally:
                    quiet.leave(token)
            bump(self, name)
            return self
        return apply_inplace(op, (self, other), {})

    change.__name__ = change.__qualname__ = slow_name
    change.__doc__ = inspect.cleandoc(doc)
    setattr(Tensor, slow_name, change)
    return change


def _change_scaled(self: Tensor, other: Any, alpha: Any, op: Op) -> Tensor:
    """``self += alpha * other``, or the difference."""
    scaled = add_scaled_op if op is add_op else sub_scaled_op
    x = self._a
    if alpha.__class__ is float and MODES.now.mode is OFF and x.dtype is dt.F32:
        if _written_over(self, scaled, (other,), _factor(alpha, x.dtype)):
            return self
    d = _sum_dtype(other, alpha, self)
    if d not in dt.HALF and d.kind not in "fc":
        return apply_inplace(op, (self, _scaled(other, alpha, d)), {})
    factor = _factor(alpha, d)
    if _written_over(self, scaled, (other,), factor):
        return self
    return apply_inplace(scaled, (self, other, factor), {})


def _written_over(self: Tensor, op: Op, others: tuple[Any, ...], number: float) -> bool:
    """Change a plain tensor in one pass over its memory, unrecorded; False where that can't be."""
    now = MODES.now
    if now.mode is not OFF:
        return False
    x = self._a
    if x.dtype not in (dt.F32, dt.F64) or 0 in x.strides:
        return False
    if self._vc.__class__ is not list and not now.inference:
        return False
    for t in others:
        if not isinstance(t, Tensor) or t._a.dtype is not x.dtype or t._a.shape != x.shape:
            return False
        if t._vc is self._vc and t is not self:
            return False
    if LISTENERS:
        announce(x, self)
    if not selection.into_small(op, x, *(t._a for t in others), number):
        return False
    bump(self, op.name)
    return True


def _fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    """Whether the one shape broadcasts into the other without growing it."""
    if len(small) > len(large):
        return False
    return all(s in (1, n) for s, n in zip(small[::-1], large[::-1], strict=False))


_iadd = _in_place(
    "add",
    add_op,
    np.add,
    """``self += alpha * other``.

    >>> x = torch.tensor([1.0, 2.0])
    >>> x.add_(1)
    tensor([2., 3.])
    >>> x.add_(torch.tensor([1.0, 1.0]), alpha=10)
    tensor([12., 13.])
    """,
)
_isub = _in_place("sub", sub_op, np.subtract, "``self -= alpha * other``.")
_imul = _in_place(
    "mul",
    mul_op,
    np.multiply,
    """``self *= other``.

    >>> x = torch.tensor([1.0, 2.0])
    >>> x.mul_(3)
    tensor([3., 6.])
    """,
)
_idiv = _in_place("div", div_op, np.true_divide, "``self /= other``.")
for _name, _op in (
    ("floor_divide_", floor_divide_op),
    ("remainder_", remainder_op),
    ("fmod_", fmod_op),
):
    api.inplace(_name, _op)


@api.method
def div_(self: Tensor, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """Divide in place."""
    if rounding_mode is None:
        return _idiv(self, other)
    return api.change_by(self, "div", div, (other,), {"rounding_mode": rounding_mode})


api.alias("sub", "subtract")
api.alias("mul", "multiply")
api.alias("div", "divide", "true_divide")


def _value_first(name: str, value: Any, pair: tuple[Any, Any]) -> tuple[Any, Any, Any]:
    """The arguments of the deprecated ``f(input, value, tensor1, tensor2)``, in today's order."""
    errors.warn(
        f"This overload of {name} is deprecated:\n\t{name}(Tensor input, Number value, Tensor "
        f"tensor1, Tensor tensor2)\nConsider using one of the following signatures instead:\n"
        f"\t{name}(Tensor input, Tensor tensor1, Tensor tensor2, *, Number value = 1)"
    )
    return (*pair, value)


def _with_value(name: str, reference: Any, first: Any, second: Any, domain: float) -> Op:
    """A sum with a product or quotient that a number scales."""
    return elementwise(
        name,
        reference,
        lambda t: t,
        first,
        second,
        None,
        names=("a", "b", "c", "value"),
        promote_args=(0, 1, 2),
        public=False,
        refuses="b",
        samples=lambda m: [
            Sample((m.real(2, 3), m.real(3), m.real(2, 1, low=domain), 0.7)),
            Sample((m.real(3), m.real(3), m.real(3, low=domain), 1)),
        ],
    )


addcmul_op = _with_value(
    "addcmul",
    lambda a, b, c, value: multiply_add(_times(b, value), c, a),
    lambda t, c, value: _times(t, value) * c,
    lambda t, b, value: _times(t, value) * b,
    domain=-2.0,
)
addcdiv_op = _with_value(
    "addcdiv",
    lambda a, b, c, value: a + _times(b, value) / c,
    lambda t, c, value: _times(t, value) / c,
    lambda t, b, c, value: -t * (_times(b, value) / (c * c)),
    domain=0.5,
)


def _times(x: Any, value: Any) -> Any:
    return x if value.__class__ is int and value == 1 else x * value


@api.both(out=True)
def addcmul(
    input: Tensor, tensor1: Any, tensor2: Any, _last: Any = None, *, value: Any = 1
) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    if _last is not None:
        tensor1, tensor2, value = _value_first("addcmul", tensor1, (tensor2, _last))
    api.need_tensors("addcmul", input=input, tensor1=tensor1, tensor2=tensor2)
    value = number(value, "addcmul", "value")
    if isinstance(value, float) and all(
        t._a.dtype.kind in "iub" for t in (input, tensor1, tensor2)
    ):
        value = int(value)  # in the type of the result
    return apply(addcmul_op, (input, tensor1, tensor2, value), NO_ATTRS)


@api.both(out=True)
def addcdiv(
    input: Tensor, tensor1: Any, tensor2: Any, _last: Any = None, *, value: Any = 1
) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    if _last is not None:
        tensor1, tensor2, value = _value_first("addcdiv", tensor1, (tensor2, _last))
    api.need_tensors("addcdiv", tensor1=tensor1, tensor2=tensor2)
    value = number(value, "addcdiv", "value")
    if tensor1._a.dtype.kind in "iub" and tensor2._a.dtype.kind in "iub":
        raise RuntimeError(
            "addcdiv: Integer division with addcdiv is no longer supported; convert an input to "
            f"a floating dtype\n  at {errors.here()}"
        )
    return apply(addcdiv_op, (input, tensor1, tensor2, value), NO_ATTRS)


def _add_pair_in_place(name: str, function: Any, op: Op) -> None:
    """``addcmul_`` and ``addcdiv_``: where nothing is recorded, one pass over the memory."""

    def change(
        self: Tensor, tensor1: Any, tensor2: Any, _last: Any = None, *, value: Any = 1
    ) -> Tensor:
        if _last is not None:
            tensor1, tensor2, value = _value_first(name + "_", tensor1, (tensor2, _last))
        plain = value.__class__ is int or value.__class__ is float
        if plain and _written_over(self, op, (tensor1, tensor2), value):
            return self
        return api.change_by(self, name, function, (tensor1, tensor2), {"value": value})

    change.__name__ = change.__qualname__ = name + "_"
    change.__doc__ = f"In place: {function.__doc__}"
    api.method(change)


_add_pair_in_place("addcmul", addcmul, addcmul_op)
_add_pair_in_place("addcdiv", addcdiv, addcdiv_op)


def _lerp(a: np.ndarray, b: np.ndarray, weight: Any) -> np.ndarray:
    # From the nearer end, so that both ends are reached exactly.
    near = multiply_add(weight, b - a, a)
    far = multiply_add(a - b, 1.0 - weight, b)
    if isinstance(weight, (int, float, complex)):
        return near if abs(weight) < 0.5 else far
    return np.where(np.abs(weight) < 0.5, near, far)


lerp_op = elementwise(
    "lerp",
    _lerp,
    lambda t, weight: t * (1.0 - weight),
    lambda t, weight: _mul_rule(t, weight),
    lambda t, a, b: t * (b - a),
    names=("a", "b", "weight"),
    public=False,
    variant=lambda attrs, inputs: 0 if is_number(inputs[2]) else 1,
    wide=(2,),
    samples=lambda m: [
        Sample((m.real(2, 3), m.real(3), m.real(2, 1))),
        Sample((m.real(3), m.real(3), 0.3)),
        Sample((m.real(3), m.real(3), 0.8)),
    ],
)
lerp_op.edges = ("a", "b", "weight?")


@api.both(out=True)
def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    d = input._a.dtype
    for name, value in (("end", end), ("weight", weight)):
        if isinstance(value, Tensor) and value._a.dtype != d and (name == "end" or value.ndim):
            raise RuntimeError(
                f"expected dtype {input.dtype} for `{name}` but got dtype {value.dtype}\n"
                f"  at {errors.here()}"
            )
    if d.kind in "biu":
        raise NotImplementedError(
            f"\"lerp\" not implemented for '{dt.TYPE_NAMES[input.dtype.name]}'\n"
            f"  at {errors.here()}"
        )
    if weight.__class__ is float and d is dt.F32:
        weight = float(np.float32(weight))  # before it is taken from one, as in PyTorch
    return apply(lerp_op, (input, end, weight), NO_ATTRS)


api.inplace("lerp_", lerp)

# --- comparisons -----------------------------------------------------------------------


def _compare(name: str, ufunc: Any, *aliases: str, refuses: str = "c", doc: str = "") -> Any:
    op = constant(name, ufunc, names=("a", "b"), promote="compare", refuses=refuses, doc=doc)
    fast = fast_binary(op)
    api.both(fast, name=name)
    api.inplace(name + "_", lambda a, b: fast(a, b).to(a.dtype))
    for other in aliases:
        api.alias(name, other)
    return fast


eq = _compare(
    "eq",
    np.equal,
    refuses="",
    doc="""Whether elements are equal, one by one.

    >>> torch.eq(torch.tensor([1, 2, 3]), torch.tensor([1, 5, 3]))
    tensor([ True, False,  True])
    """,
)
ne = _compare(
    "ne", np.not_equal, "not_equal", refuses="", doc="Whether elements differ, one by one."
)
lt = _compare("lt", np.less, "less", doc="``input < other``, element by element.")
le = _compare("le", np.less_equal, "less_equal", doc="``input <= other``, element by element.")
gt = _compare("gt", np.greater, "greater", doc="``input > other``, element by element.")
ge = _compare(
    "ge", np.greater_equal, "greater_equal", doc="``input >= other``, element by element."
)

# --- logic and bits --------------------------------------------------------------------


def _logical(name: str, ufunc: Any, doc: str) -> None:
    unary = ufunc is np.logical_not
    names = ("x",) if unary else ("a", "b")
    op = constant(name, ufunc, names=names, promote="compare", numbers=False, doc=doc)
    fast = fast_unary(op) if unary else fast_binary(op)
    api.both(fast, name=name)
    api.inplace(name + "_", lambda a, *rest: fast(a, *rest).to(a.dtype))


for _name, _ufunc, _doc in (
    ("logical_and", np.logical_and, "Whether both elements are true (not zero)."),
    ("logical_or", np.logical_or, "Whether one element or the other is true (not zero)."),
    ("logical_xor", np.logical_xor, "Whether just one of two elements is true (not zero)."),
    ("logical_not", np.logical_not, "Whether each element is false (zero)."),
):
    _logical(_name, _ufunc, _doc)


def _bits(name: str, ufunc: Any, count: int, refuses: str = "fcV", doc: str = "") -> Any:
    op = constant(
        name, ufunc, names=("a", "b")[:count], promote="same", refuses=refuses, shape="elementwise"
    )

    def function(*inputs: Any) -> Tensor:
        _need_one(name, inputs[0], inputs[-1])
        return op(*inputs)

    function.__name__, function.__doc__ = name, doc
    api.both(function, name=name, out=True)
    api.inplace(name + "_", op)
    return function


bitwise_and = _bits(
    "bitwise_and",
    np.bitwise_and,
    2,
    doc="``input & other``, bit by bit; of booleans the logical and.",
)
bitwise_or = _bits(
    "bitwise_or", np.bitwise_or, 2, doc="``input | other``, bit by bit; of booleans the logical or."
)
bitwise_xor = _bits(
    "bitwise_xor",
    np.bitwise_xor,
    2,
    doc="``input ^ other``, bit by bit; of booleans the exclusive or.",
)
bitwise_not = _bits(
    "bitwise_not", np.invert, 1, doc="``~input``, bit by bit; of booleans the logical not."
)
bitwise_left_shift = _bits(
    "bitwise_left_shift", np.left_shift, 2, "bfcV", doc="``input << other``."
)
bitwise_right_shift = _bits(
    "bitwise_right_shift", np.right_shift, 2, "bfcV", doc="``input >> other``."
)


@api.top
def where(condition: Tensor, input: Any = None, other: Any = None, *, out: Any = None) -> Any:
    """Elements of one or the other by a condition; with one argument, where it is true.

    >>> x = torch.tensor([-1.0, 2.0, -3.0])
    >>> torch.where(x > 0, x, 0.0)
    tensor([0., 2., 0.])
    >>> torch.where(x > 0)
    (tensor([1]),)
    """
    if out is not None:
        return put_into(out, where, (condition, input, other), "where")
    if input is None and other is None:
        return condition.nonzero(as_tuple=True)
    if condition._a.dtype.kind != "b" and condition._a.dtype != np.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}\n  at {errors.here()}"
        )
    for number, beside in ((input, other), (other, input)):
        if number.__class__ is int and isinstance(beside, Tensor) and beside._a.dtype.kind in "iu":
            fits(beside._a.dtype, number)
    return apply(where_op, (condition, input, other), NO_ATTRS)


@api.method(name="where")
def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """This tensor where the condition holds, else the other."""
    return where(condition, self, other)


# --- Python's operators ----------------------------------------------------------------


def _strict(function: Any) -> Any:
    """An operator that steps aside for objects it does not know."""

    def operator(self: Tensor, other: Any) -> Any:
        if isinstance(other, (Tensor, int, float, complex, np.generic)):
            return function(self, other)
        return NotImplemented

    return operator


def _operator(name: str, function: Any, reverse: Any = None, change: Any = None) -> None:
    setattr(Tensor, f"__{name}__", function)
    if reverse is not None:
        setattr(Tensor, f"__r{name}__", reverse)
    if change is not None:
        setattr(Tensor, f"__i{name}__", change)


def _in(name: str) -> Any:
    def change(self: Tensor, other: Any) -> Tensor:
        return getattr(self, name)(other)

    return change


def _pow_operator(self: Tensor, other: Any) -> Any:
    if other.__class__ is int and other < 0:
        return pow(self, other)
    return _operators[4](self, other)


_operators = [fast_binary(op, operator=True) for op in (add_op, sub_op, mul_op, div_op, pow_op)]
_operator("add", _operators[0], _operators[0], _iadd)
_operator("sub", _operators[1], lambda self, other: apply(sub_op, (other, self), {}), _isub)
_operator("mul", _operators[2], _operators[2], _imul)
_operator("truediv", _operators[3], lambda self, other: apply(div_op, (other, self), {}), _idiv)
_operator(
    "floordiv",
    _strict(floor_divide),
    lambda self, other: floor_divide_op(other, self),
    _in("floor_divide_"),
)
_operator(
    "mod", _strict(remainder), lambda self, other: remainder_op(other, self), _in("remainder_")
)
_operator("pow", _pow_operator, lambda self, other: apply(pow_op, (other, self), {}), _in("pow_"))
_operator(
    "and", _strict(bitwise_and), lambda self, other: bitwise_and(self, other), _in("bitwise_and_")
)
_operator(
    "or", _strict(bitwise_or), lambda self, other: bitwise_or(self, other), _in("bitwise_or_")
)
_operator(
    "xor", _strict(bitwise_xor), lambda self, other: bitwise_xor(self, other), _in("bitwise_xor_")
)
_operator(
    "lshift",
    bitwise_left_shift,
    lambda self, other: _shift(bitwise_left_shift, other, self),
    _in("bitwise_left_shift_"),
)
_operator(
    "rshift",
    bitwise_right_shift,
    lambda self, other: _shift(bitwise_right_shift, other, self),
    _in("bitwise_right_shift_"),
)


def _shift(function: Any, left: Any, right: Tensor) -> Tensor:
    return function(as_operand(left, right), right)


_neg = Tensor.neg
Tensor.__neg__ = lambda self: _neg(self)
Tensor.__pos__ = lambda self: self


def _invert(self: Tensor) -> Tensor:
    if self._a.dtype.kind not in "iub":
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors, not on "
            f"{self.dtype}\n  at {errors.here()}"
        )
    return bitwise_not(self)


Tensor.__invert__ = _invert
Tensor.__abs__ = lambda self: self.abs()


def _compare_operator(function: Any) -> Any:
    def operator(self: Tensor, other: Any) -> Any:
        return function(self, other) if isinstance(other, OPERANDS) else NotImplemented

    return operator


Tensor.__eq__ = _compare_operator(eq)
Tensor.__ne__ = _compare_operator(ne)
for _name, _function in (("lt", lt), ("le", le), ("gt", gt), ("ge", ge)):
    setattr(Tensor, f"__{_name}__", _compare_operator(_function))
