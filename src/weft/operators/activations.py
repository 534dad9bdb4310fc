"""Activation functions of networks.

Where PyTorch's in-place form keeps its result for backward but the out-of-place form its
input, there are two ops with one reference: the names of the former end in ``_result``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import host
from weft.core.dispatch import Op
from weft.core.inplace import apply_inplace
from weft.core.short import fast_binary, fast_unary
from weft.core.tensor import Tensor, beside
from weft.operators import api, random
from weft.operators.arithmetic import fits_half, where_op
from weft.operators.build import Sample, elementwise
from weft.operators.pointwise import exp_op, keep_op, offer_in_place, sigmoid_op, tanh_op
from weft.operators.special import erf_op
from weft.references.select import choose

F = "nn.functional"


def _run(op: Op, input: Tensor, inplace: bool, in_place_op: Op | None = None, **attrs: Any) -> Any:
    if inplace:
        return apply_inplace(in_place_op or op, (input,), attrs)
    return op(input, **attrs)


def _plain(op: Op) -> Callable:
    """The function of an activation that has no settings but ``inplace``."""
    fast = fast_unary(op)

    def function(input: Tensor, inplace: bool = False) -> Tensor:
        return apply_inplace(op, (input,), {}) if inplace else fast(input)

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = op.doc.replace(f"torch.{op.name}(", f"F.{op.name}(")
    return function


def _with_settings(*settings: dict[str, Any]) -> Callable:
    return lambda m: (
        [Sample((m.real(2, 3),), s) for s in settings] + [Sample((m.real(0, 2),), settings[0])]
    )


for _name in ("sigmoid", "tanh"):
    api.under(F, api.FUNCTIONS[_name], name=_name)

# --- rectifiers ------------------------------------------------------------------------

_ZEROS = {d.np: np.zeros((), d.np) for d in dt.ALL}


def _relu(x: np.ndarray) -> np.ndarray:
    if x.dtype == bool:
        raise RuntimeError("Boolean inputs not supported for relu")
    return np.maximum(x, _ZEROS[x.dtype])


# NaN passes the gradient on.
relu_op = elementwise(
    "relu",
    _relu,
    lambda t, y: keep_op(t, ~(y <= 0)),
    refuses="c",
    doc="""``x`` where it is positive, else zero.

    >>> torch.relu(torch.tensor([-1.0, 0.0, 2.0]))
    tensor([0., 0., 2.])
    """,
    ties=True,
)
api.under(F, _plain(relu_op))


def _leaky_relu(x: np.ndarray, negative_slope: float) -> np.ndarray:
    low = x * negative_slope
    # At slope 0 infinity would become NaN.
    return np.maximum(x, low) if 0 < negative_slope <= 1 else choose(x > 0, x, low)


_SLOPES = _with_settings({"negative_slope": 0.01}, {"negative_slope": 0.0})
leaky_relu_op = elementwise(
    "leaky_relu",
    _leaky_relu,
    lambda t, x, negative_slope: where_op(x > 0, t, t * negative_slope),
    public=False,
    samples=_SLOPES,
    refuses="biuc",
    wide_rules=True,
    ties=True,
)
leaky_relu_result_op = elementwise(
    "leaky_relu_result",
    _leaky_relu,
    lambda t, y, negative_slope: where_op(y > 0, t, t * negative_slope),
    public=False,
    samples=_SLOPES,
    grad_name="LeakyReluBackward",
    refuses="biuc",
)


@api.under(F)
def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """``x`` where it is positive, else ``negative_slope * x``.

    >>> F.leaky_relu(torch.tensor([-1.0, 0.0, 2.0]), 0.1)
    tensor([-0.1000,  0.0000,  2.0000])
    """
    # With a negative slope the sign of the result says nothing about the input.
    twin = leaky_relu_result_op if negative_slope >= 0 else None
    return _run(leaky_relu_op, input, inplace, twin, negative_slope=negative_slope)


prelu_op = elementwise(
    "prelu",
    lambda a, b: choose(a > 0, a, a * b),
    lambda t, a, b: where_op(a > 0, t, t * b),
    lambda t, a, b: keep_op(t * a, ~(a > 0)),
    public=False,
    grad_name="PreluKernelBackward",
    refuses="biuc",
    ties=True,
)


@api.both
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """``x`` where it is positive, else ``weight * x``, with a weight for each channel or one."""
    if weight._a.size == 1 or input.ndim < 2:
        if weight._a.size != 1:
            _refuse(f"a weight of {weight._a.size} values doesn't fit an input without channels")
        return prelu_op(input, weight.reshape(()))
    if weight.ndim != 1 or len(weight) != input.shape[1]:
        _refuse(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = "
            f"{weight._a.size} and channel size = {input.shape[1]}."
        )
    return prelu_op(input, weight.reshape((-1,) + (1,) * (input.ndim - 2)))


api.under(F, prelu)


def _refuse(message: str) -> None:
    raise RuntimeError(f"{message}\n  at {errors.here()}")


def _random_slopes(input: Tensor, lower: float, upper: float, generator: Any) -> Tensor:
    """Slopes for what is not positive, drawn one after the other as PyTorch does; else 1."""
    if input.is_meta:
        return input.clone()
    below = host(input) <= 0
    slopes = np.ones(below.shape, input.dtype.np)
    drawn = random.source(generator).uniform((int(below.sum()),), np.float64)
    slopes[below] = (drawn * (upper - lower) + lower).astype(slopes.dtype)
    return beside(input, slopes)


def _rrelu(
    input: Tensor, lower: float, upper: float, training: bool, inplace: bool, generator: Any = None
) -> Tensor:
    if lower > upper:
        _refuse(f"Lower bound should be less than or equal to the upper bound: {lower}, {upper}")
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slopes = _random_slopes(input, lower, upper, generator)
    return input.mul_(slopes) if inplace else input * slopes


@api.under(F)
def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """A leaky rectifier whose slopes are drawn at random in training."""
    return _rrelu(input, lower, upper, training, inplace)


@api.top(name="rrelu")
def _rrelu_function(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    generator: Any = None,
) -> Tensor:
    """A leaky rectifier whose slopes are drawn at random in training."""
    return _rrelu(input, lower, upper, training, False, generator)


def _within(t: Any, value: Any, low: float, high: float) -> Any:
    """A gradient where a value is between its limits, or NaN."""
    return keep_op(t, ~((value <= low) | (value >= high)))


def _hardtanh(x: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.clip(x, x.dtype.type(low), x.dtype.type(high))


_LIMITS = _with_settings({"low": -1.0, "high": 1.0}, {"low": 0.0, "high": 6.0})
hardtanh_op = elementwise(
    "hardtanh",
    _hardtanh,
    lambda t, x, low, high: _within(t, x, low, high),
    public=False,
    samples=_LIMITS,
    refuses="bc",
    wide_rules=True,
    ties=True,
)
hardtanh_result_op = elementwise(
    "hardtanh_result",
    _hardtanh,
    lambda t, y, low, high: _within(t, y, low, high),
    public=False,
    samples=_LIMITS,
    grad_name="HardtanhBackward",
    refuses="bc",
)


@api.under(F)
def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """The input kept between two values."""
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val\n  at {errors.here()}")
    return _run(hardtanh_op, input, inplace, hardtanh_result_op, low=min_val, high=max_val)


@api.under(F)
def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """The input kept between 0 and 6."""
    return _run(hardtanh_op, input, inplace, hardtanh_result_op, low=0.0, high=6.0)


threshold_op = elementwise(
    "threshold",
    lambda x, threshold, value: choose(x <= threshold, x.dtype.type(value), x),
    lambda t, x, threshold: keep_op(t, ~(x <= threshold)),
    public=False,
    samples=_with_settings({"threshold": 0.1, "value": 20.0}),
    refuses="bc",
    wide_rules=True,
    ties=True,
)


@api.under(F)
def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """The input where it is above a threshold, else a value."""
    if input._a.dtype.kind in "iu":
        threshold = int(threshold)
    return _run(threshold_op, input, inplace, threshold=threshold, value=value)


@api.top(name="threshold", out=True)
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """The input where it is above a threshold, else a value."""
    if input._a.dtype.kind in "iu":
        threshold = int(threshold)
    return threshold_op(input, threshold=threshold, value=value)


# --- exponential rectifiers ------------------------------------------------------------


def _elu(x: np.ndarray, alpha: float, scale: float, input_scale: float) -> np.ndarray:
    return choose(x < 0, np.expm1(x * input_scale) * (alpha * scale), x * scale)


def _elu_rule(t: Any, x: Any, alpha: float, scale: float, input_scale: float) -> Any:
    # Not of large values: their power is infinite, and its share in a second derivative NaN.
    slope = exp_op(where_op(x < 0, x, 0.0) * input_scale) * (input_scale * alpha * scale)
    return t * where_op(x <= 0, slope, scale)


def _elu_result_rule(t: Any, y: Any, alpha: float, scale: float, input_scale: float) -> Any:
    return t * where_op(y <= 0, (y + alpha * scale) * input_scale, scale)


_EXPONENTIAL = _with_settings(
    {"alpha": 1.0, "scale": 1.0, "input_scale": 1.0},
    {"alpha": 1.7, "scale": 1.05, "input_scale": 0.6},
)
elu_op = elementwise(
    "elu",
    _elu,
    _elu_rule,
    public=False,
    samples=_EXPONENTIAL,
    refuses="biuc",
    wide_rules=True,
)
elu_result_op = elementwise(
    "elu_result",
    _elu,
    _elu_result_rule,
    public=False,
    samples=_EXPONENTIAL,
    grad_name="EluBackward",
    refuses="biuc",
    wide_rules=True,
)
_SELU = {"alpha": 1.6732632423543772848170429916717, "scale": 1.0507009873554804934193349852946}


def _run_elu(input: Tensor, inplace: bool, alpha: float, scale: float, input_scale: float) -> Any:
    twin = elu_result_op if alpha >= 0 else None
    settings = {"alpha": alpha, "scale": scale, "input_scale": input_scale}
    return _run(elu_op, input, inplace, twin, **settings)


@api.under(F)
def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x) - 1)``."""
    return _run_elu(input, inplace, alpha, 1.0, 1.0)


@api.under(F)
def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The exponential unit whose constants keep mean and variance of layers."""
    return _run_elu(input, inplace, input_scale=1.0, **_SELU)


@api.under(F)
def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""
    if alpha == 0:
        _refuse("ZeroDivisionError: alpha cannot be 0 for CELU")
    return _run_elu(input, inplace, alpha, 1.0, 1.0 / alpha)


# --- smooth gates ----------------------------------------------------------------------


def _silu_rule(t: Any, x: Any) -> Any:
    gate = sigmoid_op(x)
    return t * (gate * (1.0 + x * (1.0 - gate)))


silu_op = elementwise(
    "silu",
    lambda x: x * sigmoid_op.reference(x),
    _silu_rule,
    public=False,
    lower="silu",
    refuses="biu",
    wide_rules=True,
    doc="``x`` times its sigmoid.",
)
api.under(F, _plain(silu_op))


def _softplus(x: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    z = x * beta
    return choose(z > threshold, x, np.log1p(np.exp(np.minimum(z, threshold))) / beta)


softplus_op = elementwise(
    "softplus",
    _softplus,
    lambda t, x, beta, threshold: t * where_op(x * beta > threshold, 1.0, sigmoid_op(x * beta)),
    public=False,
    samples=_with_settings({"beta": 1.0, "threshold": 20.0}, {"beta": 2.0, "threshold": 1.0}),
    refuses="biuc",
    wide_rules=True,
)


@api.under(F, out=True)
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above the threshold."""
    return softplus_op(input, beta=beta, threshold=threshold)


def _log_sigmoid(x: np.ndarray) -> np.ndarray:
    return np.minimum(x, _ZEROS[x.dtype]) - np.log1p(np.exp(-np.abs(x)))


log_sigmoid_op = elementwise(
    "log_sigmoid",
    _log_sigmoid,
    lambda t, x: t * sigmoid_op(-x),
    public=False,
    rows=True,
    refuses="biuc",
    wide_rules=True,
    doc="The logarithm of the sigmoid.",
)
api.under(F, fast_unary(log_sigmoid_op), name="logsigmoid")


def _mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(_softplus(x, 1.0, 20.0))


def _mish_rule(t: Any, x: Any) -> Any:
    gate = tanh_op(softplus_op(x, beta=1.0, threshold=20.0))
    return t * (gate + x * sigmoid_op(x) * (1.0 - gate * gate))


mish_op = elementwise(
    "mish",
    _mish,
    _mish_rule,
    public=False,
    refuses="biuc",
    wide_rules=True,
    doc="``x * tanh(softplus(x))``.",
)
api.under(F, _plain(mish_op))

_ROOT_HALF, _ROOT_2_OVER_PI = math.sqrt(0.5), math.sqrt(2.0 / math.pi)
_CUBIC = 0.044715


def _gelu(x: np.ndarray) -> np.ndarray:
    y = erf_op.reference(x * _ROOT_HALF)
    y = (y + 1) * x
    return y * 0.5


def _gelu_slope(x: np.ndarray) -> np.ndarray:
    below = (erf_op.reference(x * _ROOT_HALF) + 1.0) * 0.5
    return below + x * (np.exp(x * x * -0.5) * (0.5 * _ROOT_2_OVER_PI))


gelu_slope_op = elementwise(
    "gelu_slope",
    _gelu_slope,
    lambda t, x: t * (exp_op(x * x * -0.5) * (2.0 - x * x) * (0.5 * _ROOT_2_OVER_PI)),
    public=False,
    lower="gelu_slope",
    refuses="biuc",
    wide_rules=True,
)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = (x + x * x * x * _CUBIC) * _ROOT_2_OVER_PI
    return x * (np.tanh(inner) + 1) * 0.5


def _gelu_tanh_slope(x: np.ndarray) -> np.ndarray:
    double = (x + x * x * x * _CUBIC) * (2.0 * _ROOT_2_OVER_PI)
    share, rest = sigmoid_op.reference(double), sigmoid_op.reference(-double)
    return share + x * (share * rest) * ((x * x * (3.0 * _CUBIC) + 1.0) * (2.0 * _ROOT_2_OVER_PI))


def _gelu_tanh_slope_rule(t: Any, x: Any) -> Any:
    square = x * x
    double = (x + x * square * _CUBIC) * (2.0 * _ROOT_2_OVER_PI)
    share, rest = sigmoid_op(double), sigmoid_op(-double)
    inner_slope = (square * (3.0 * _CUBIC) + 1.0) * _ROOT_2_OVER_PI
    bend = square * (3.0 * _CUBIC * _ROOT_2_OVER_PI)
    bend = bend + inner_slope * (1.0 - x * (share - rest) * inner_slope)
    return t * (share * rest * 4.0 * bend)


gelu_tanh_slope_op = elementwise(
    "gelu_tanh_slope",
    _gelu_tanh_slope,
    _gelu_tanh_slope_rule,
    public=False,
    lower="gelu_tanh_slope",
    refuses="biuc",
    wide_rules=True,
)


gelu_op = elementwise(
    "gelu",
    _gelu,
    lambda t, x: t * gelu_slope_op(x),
    public=False,
    lower="gelu",
    refuses="biuc",
    wide_rules=True,
)
gelu_tanh_op = elementwise(
    "gelu_tanh",
    _gelu_tanh,
    lambda t, x: t * gelu_tanh_slope_op(x),
    public=False,
    grad_name="GeluBackward",
    lower="gelu_tanh",
    refuses="biuc",
    wide_rules=True,
)
_fast_gelu, _fast_gelu_tanh = fast_unary(gelu_op), fast_unary(gelu_tanh_op)


@api.under(F, out=True)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """``x`` times the normal distribution at x, or a fast form of it by ``tanh``."""
    if approximate == "none":
        return _fast_gelu(input)
    if approximate != "tanh":
        _refuse(f"approximate argument must be either none or tanh, not {approximate!r}")
    return _fast_gelu_tanh(input)


def _glu_gate_rule(t: Any, a: Any, b: Any) -> Any:
    gate = sigmoid_op(b)
    return t * a * ((1.0 - gate) * gate)


# One op, so that backward takes the gate from the input as it is by then, as PyTorch's does.
glu_op = elementwise(
    "glu",
    lambda a, b: a * sigmoid_op.reference(b),
    lambda t, b: t * sigmoid_op(b),
    _glu_gate_rule,
    public=False,
    lower=lambda a, b: a * sigmoid_op(b),
    refuses="biuc",
    wide_rules=True,
    numbers=False,
)
_fast_glu = fast_binary(glu_op)


@api.under(F, out=True)
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along a dimension, gated by the sigmoid of the second."""
    if input.ndim == 0:
        _refuse("glu does not support 0-dimensional tensors")
    dim = api.wrap_dim(dim, input.ndim)
    size = input.shape[dim]
    if size % 2:
        _refuse(f"Halving dimension must be even, but dimension {dim} is size {size}")
    values, gates = input.split(size // 2, dim) if size else (input, input)
    return _fast_glu(values, gates)


@api.under(F)
def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    return input / (input.abs() + 1)


# --- gates in pieces -------------------------------------------------------------------


def _hardsigmoid(x: np.ndarray) -> np.ndarray:
    return np.clip(x + 3, 0, 6) / 6


hardsigmoid_op = elementwise(
    "hardsigmoid",
    _hardsigmoid,
    lambda t, x: keep_op(t / 6.0, (x > -3.0) & (x < 3.0)),
    public=False,
    domain=(-4.0, 4.0),
    refuses="biuc",
    wide_rules=True,
    doc="``relu6(x + 3) / 6``: a sigmoid of straight lines.",
    ties=True,
)
api.under(F, _plain(hardsigmoid_op))


def _hardswish_rule(t: Any, x: Any) -> Any:
    return t * where_op(x <= -3.0, 0.0, where_op(x < 3.0, x / 3.0 + 0.5, 1.0))


hardswish_op = elementwise(
    "hardswish",
    lambda x: x * _hardsigmoid(x),
    _hardswish_rule,
    public=False,
    domain=(-4.0, 4.0),
    refuses="biuc",
    wide_rules=True,
    doc="``x * relu6(x + 3) / 6``.",
)
api.under(F, _plain(hardswish_op))


def _shrink_rule(t: Any, x: Any, lambd: float) -> Any:
    return keep_op(t, ~((x >= -lambd) & (x <= lambd)))


def _hardshrink(x: np.ndarray, lambd: float) -> np.ndarray:
    return choose((x >= -lambd) & (x <= lambd), _ZEROS[x.dtype], x)


def _softshrink(x: np.ndarray, lambd: float) -> np.ndarray:
    return choose(np.abs(x) <= lambd, _ZEROS[x.dtype], x - np.copysign(lambd, x, dtype=x.dtype))


_LAMBDAS = _with_settings({"lambd": 0.5}, {"lambd": 0.0})
hardshrink_op = elementwise(
    "hardshrink",
    _hardshrink,
    _shrink_rule,
    public=False,
    samples=_LAMBDAS,
    refuses="biuc",
    ties=True,
)
softshrink_op = elementwise(
    "softshrink",
    _softshrink,
    _shrink_rule,
    public=False,
    samples=_LAMBDAS,
    refuses="biuc",
    ties=True,
)


@api.both(out=True)
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """0 within ``lambd`` of 0, else the input."""
    if input._a.dtype in dt.HALF:
        fits_half(input._a.dtype, lambd)
        lambd = float(input._a.dtype.type(lambd))  # PyTorch compares in the half type
    return hardshrink_op(input, lambd=lambd)


api.under(F, hardshrink)


@api.under(F, out=True)
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """The input moved towards 0 by ``lambd``, and 0 within that distance."""
    top = dt.finfo(input.dtype).max if input._a.dtype.kind in "fV" else math.inf
    if not 0 <= lambd <= top or lambd == math.inf:
        _refuse(f"lambda must be in range [0, {top:g}] for {input.dtype}, but found {lambd}")
    return softshrink_op(input, lambd=lambd)


@api.under(F)
def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return input - input.tanh()


# --- in-place forms and further places -------------------------------------------------


def _in_place(name: str, function: Callable) -> None:
    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return function(input, *args, inplace=True, **kwargs)

    change.__name__ = change.__qualname__ = name
    change.__doc__ = f"The function {name[:-1]} in place."
    api.under(F, change)
    if name[:-1] in ("selu", "celu", "rrelu", "threshold"):
        api.top(change)


for _function in (elu, selu, celu, leaky_relu, hardtanh, rrelu, threshold):
    _in_place(_function.__name__ + "_", _function)
offer_in_place("relu")
api.under(F, Tensor.__dict__["relu_"], name="relu_")


@api.top(name="selu")
def _selu(input: Tensor) -> Tensor:
    """The scaled exponential unit, whose constants keep mean 0 and variance 1."""
    return selu(input)


@api.top(name="celu")
def _celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """``x`` where it is positive, else ``alpha * (exp(x / alpha) - 1)``."""
    return celu(input, alpha)
