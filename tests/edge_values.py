"""Functions at extreme values, in every dtype, size and layout, against PyTorch.

``python -m edge_values --all`` (with ``PYTHONPATH=tests``) runs the whole sweep and reports by
expression; ``-k part`` keeps the expressions that contain a text, ``-v`` shows more elements.
``test_edge_values.py`` runs a part of it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import torch

import weft

FLOATS = ("float32", "float64", "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64", "bool")
DTYPES = (*FLOATS, *COMPLEX, *INTEGERS)

# Relative differences that are rounding: a few units in the last place for functions that both
# libraries approximate, one for half types, which are rounded once from float32.
ROUNDING = {
    "float64": 3e-14,
    "float32": 4e-6,
    "float16": 1e-3,
    "bfloat16": 8e-3,
    "complex64": 1e-5,
    "complex128": 1e-13,
}
LARGE = 33000  # elements: above the limits of all native loops
LAYOUTS = ("small", "large", "strided")


class Case(NamedTuple):
    """An expression of ``x`` and ``y``, the inputs' dtype and layout, and whether a gradient."""

    expression: str
    dtype: str
    layout: str
    grad: bool

    def __str__(self) -> str:
        return f"{self.expression} [{self.dtype} {self.layout}{' grad' if self.grad else ''}]"


def words(text: str) -> list[str]:
    return text.split()


# --- expressions -----------------------------------------------------------------------

UNARY = words(
    """
    abs acos acosh angle asin asinh atan atanh ceil conj_physical cos cosh deg2rad digamma erf
    erfc erfinv exp exp2 expm1 floor frac i0 isfinite isinf isnan isneginf isposinf isreal
    lgamma log log10 log1p log2 logical_not logit neg rad2deg reciprocal round rsqrt sgn
    sigmoid sign signbit sin sinc sinh sqrt square tan tanh trunc relu nan_to_num positive
    bitwise_not
    """
)
SPECIAL = words(
    """
    bessel_j0 bessel_j1 bessel_y0 bessel_y1 entr erfcx i0e i1 i1e log_ndtr ndtr ndtri
    modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 modified_bessel_k1
    scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai
    """
)
ACTIVATIONS = words(
    """
    celu elu gelu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 selu silu
    softplus softsign softshrink hardshrink tanhshrink
    """
)
BINARY = words(
    """
    add sub mul div floor_divide remainder fmod pow atan2 hypot copysign nextafter logaddexp
    logaddexp2 xlogy maximum minimum fmax fmin eq ne lt le gt ge logical_and logical_or
    logical_xor bitwise_and bitwise_or bitwise_xor heaviside float_power true_divide ldexp gcd
    lcm bitwise_left_shift bitwise_right_shift isclose
    """
)
BINARY_MORE = (
    *("torch.div(x, y, rounding_mode='floor')", "torch.div(x, y, rounding_mode='trunc')"),
    *("torch.lerp(x, y, 0.3)", "torch.lerp(x, y, 0.7)", "torch.lerp(x, y, 1.0)"),
    *("torch.lerp(x, y, x)", "torch.where(x > y, x, y)", "torch.special.xlog1py(x, y)"),
    *("torch.add(x, y, alpha=3)", "torch.sub(x, y, alpha=3)", "torch.clamp(x, min=y)"),
    *("torch.clamp(x, max=y)", "torch.addcmul(x, x, y, value=2)", "torch.rsub(x, y)"),
    *("torch.addcdiv(x, x, y, value=2)", "torch.nn.functional.mse_loss(x, y, reduction='none')"),
    *("torch.nn.functional.l1_loss(x, y, reduction='none')", "torch.special.zeta(x, y)"),
    *("torch.nn.functional.smooth_l1_loss(x, y, reduction='none')", "torch.igamma(x, y)"),
    *("torch.nn.functional.huber_loss(x, y, reduction='none')", "torch.igammac(x, y)"),
    "torch.nn.functional.soft_margin_loss(x, y, reduction='none')",
    "torch.nn.functional.kl_div(x, y, reduction='none')",
    "torch.nn.functional.kl_div(x, y, reduction='none', log_target=True)",
    "torch.nn.functional.binary_cross_entropy_with_logits(x, y, reduction='none')",
    "torch.nn.functional.poisson_nll_loss(x, y, reduction='none')",
    "torch.nn.functional.prelu(x.flatten(), y.flatten()[:1])",
    "torch.complex(x, y)",
    "torch.polar(x, y)",
)
NUMBERS = ("0", "1", "2", "3", "-1", "-2", "0.5", "0.1", "0.3", "-0.3", "0.001", "1e-8", "70000.0")
NUMBERS_MORE = ("math.inf", "-math.inf", "math.nan", "True")
WITH_NUMBER = (
    *("x + {}", "x - {}", "{} - x", "x * {}", "x / {}", "{} / x", "x // {}", "x % {}", "x ** {}"),
    *("{} ** x", "torch.fmod(x, {})", "torch.div(x, {}, rounding_mode='trunc')", "x == {}"),
    *("{} // x", "{} % x", "x < {}", "x >= {}", "torch.clamp(x, min={})", "torch.clamp(x, max={})"),
    *("torch.clamp(x, {}, 1)", "torch.copysign(x, {})", "torch.xlogy(x, {})", "torch.xlogy({}, x)"),
    *("torch.float_power(x, {})", "torch.add(x, x, alpha={})", "torch.lerp(x, x * 2, {})"),
    *("torch.addcmul(x, x, x, value={})", "torch.addcdiv(x, x, x, value={})", "torch.rsub(x, {})"),
    *("torch.where(x > 0, x, {})", "torch.masked_fill(x, x > 0, {})", "torch.fill(x, {})"),
    *("torch.nn.functional.threshold(x, {}, 20)", "torch.nn.functional.threshold(x, 0.1, {})"),
    *("torch.nn.functional.elu(x, {})", "torch.nn.functional.celu(x, {})", "torch.logit(x, {})"),
    *("torch.nn.functional.leaky_relu(x, {})", "torch.nn.functional.hardshrink(x, {})"),
    *("torch.nn.functional.softshrink(x, {})", "torch.nn.functional.softplus(x, {})"),
    *("torch.nn.functional.softplus(x, 1, {})", "torch.nn.functional.hardtanh(x, -1, {})"),
    *("torch.nan_to_num(x, {})", "torch.nan_to_num(x, 0, {}, -3)", "torch.isclose(x, x + {})"),
    *("torch.special.xlog1py(x, {})", "torch.special.xlog1py({}, x)", "torch.ldexp(x, {})"),
    *("x.clone().add_({})", "x.clone().mul_({})", "x.clone().div_({})", "x.clone().pow_({})"),
    *("torch.mul(x, torch.tensor({}))", "torch.add(x, torch.tensor({}))"),
    *("torch.div(x, torch.tensor({}))", "torch.pow(x, torch.tensor({}))"),
    "torch.nn.functional.smooth_l1_loss(x, x * 2, reduction='none', beta={})",
    "torch.nn.functional.huber_loss(x, x * 2, reduction='none', delta={})",
)
UNARY_MORE = (
    *("torch.round(x, decimals=1)", "torch.round(x, decimals=-2)", "torch.round(x, decimals=3)"),
    *("torch.polygamma(1, x)", "torch.polygamma(2, x)", "torch.mvlgamma(x, 2)", "torch.frexp(x)"),
    *("torch.nn.functional.gelu(x, approximate='tanh')", "torch.logit(x, 1e-3)"),
    *("x.bool()", "x.clone().sqrt_()", "x.clone().exp_()", "x.clone().sigmoid_()"),
    *("x ** 0.5", "x ** -0.5", "x ** 1.5", "x.real", "torch.view_as_real(x)"),
    *(f"torch.special.{name}_polynomial_{k}(x, {n})" for name, k in (
        *(("chebyshev", k) for k in "tuvw"), ("hermite", "h"), ("hermite", "he"),
        ("laguerre", "l"), ("legendre", "p")) for n in (0, 1, 5, 8)),
)  # fmt: skip
ALONG = (
    *("x.sum(1)", "x.mean(1)", "x.prod(1)", "x.amax(1)", "x.amin(1)", "x.max(1)", "x.min(1)"),
    *("x.argmax(1)", "x.argmin(1)", "x.var(1)", "x.std(1)", "x.logsumexp(1)", "x.softmax(1)"),
    *("x.log_softmax(1)", "x.cumsum(1)", "x.cumprod(1)", "x.cummax(1)", "x.cummin(1)", "x.all(1)"),
    *("x.logcumsumexp(1)", "x.median(1)", "x.nanmedian(1)", "x.kthvalue(2, 1)", "x.any(1)"),
    *("torch.sort(x, dim=1, stable=True)", "x.sort(1)[0]", "x.topk(2, 1)[0]", "x.nansum(1)"),
    *("x.sort(1, descending=True)[0]", "x.nanmean(1)", "x.count_nonzero(1)", "x.mode(1)[0]"),
    *("x.norm(2, 1)", "x.norm(1, 1)", "x.norm(0, 1)", "x.norm(3, 1)", "x.norm(0.5, 1)"),
    *("x.norm(math.inf, 1)", "x.norm(-math.inf, 1)", "x.norm(-1, 1)", "x.norm(1.5, 1)"),
    *("torch.linalg.vector_norm(x, 2, 1)", "torch.aminmax(x, dim=1)", "x.quantile(0.3, 1)"),
    *("torch.var_mean(x, 1)", "torch.std_mean(x, 1)", "x.var(1, correction=0)", "x.diff(dim=1)"),
    *("torch.trapezoid(x)", "x.argsort(1, stable=True)", "x.nanquantile(0.3, 1)"),
    *("torch.nn.functional.normalize(x)", "torch.nn.functional.layer_norm(x, x.shape[1:])"),
    *("torch.nn.functional.softmin(x, 1)", "torch.renorm(x, 2, 0, 1.0)", "x.sum(0)", "x.amax(0)"),
    *("x.sum(1, dtype=torch.float64)", "torch.nn.functional.rms_norm(x, x.shape[1:])"),
    *("x.argmax(0)", "x.max(0)", "x.var(0)", "x.norm(2, 0)", "x.prod(0)", "x.median(0)"),
    *("torch.nn.functional.cosine_similarity(x, x.flip(0), 1)", "x.softmax(0)", "x.logsumexp(0)"),
    *("torch.nn.functional.pairwise_distance(x, x.flip(0))", "torch.gradient(x, dim=1)[0]"),
)  # fmt: skip
WHOLE = (
    *("x.sum()", "x.mean()", "x.prod()", "x.amax()", "x.amin()", "x.max()", "x.min()", "x.norm()"),
    *("x.argmax()", "x.argmin()", "x.var()", "x.std()", "x.median()", "x.nanmedian()", "x.all()"),
    *("x.any()", "x.nansum()", "x.nanmean()", "x.count_nonzero()", "torch.aminmax(x)"),
    *("torch.unique(x)", "torch.histc(x, 4)", "torch.isclose(x, x)", "torch.equal(x, x)"),
)


def elementwise() -> list[str]:
    """Expressions of ``x`` alone."""
    found = [f"torch.{n}(x)" for n in UNARY]
    found += [f"torch.special.{n}(x)" for n in SPECIAL]
    found += [f"torch.nn.functional.{n}(x)" for n in ACTIVATIONS]
    return [*found, *UNARY_MORE]


def of_two() -> list[str]:
    """Expressions of ``x`` and ``y``."""
    return [f"torch.{n}(x, y)" for n in BINARY] + list(BINARY_MORE)


def of_numbers(numbers: Any = (*NUMBERS, *NUMBERS_MORE)) -> list[str]:
    """Expressions of ``x`` and a Python number."""
    return [text.format(n) for text in WITH_NUMBER for n in numbers]


# --- values ----------------------------------------------------------------------------


def edges(dtype: str, few: bool = False) -> list[Any]:
    """The values at which functions of a dtype go wrong."""
    if dtype == "bool":
        return [False, True]
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        values = [0, 1, 2, 3, 7, 100, info.max - 1, info.max, info.min, info.min + 1]
        if info.min < 0:
            values += [-1, -2, -3, -100]
        return values
    if dtype in COMPLEX:
        parts = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1e-10, 100.0, math.inf, -math.inf, math.nan]
        if few:  # without infinities: C's products of those differ from one library to another
            parts = [0.0, 1.0, -1.0, 0.5, -2.5, 100.0]
        return [complex(a, b) for a, b in itertools.product(parts, parts)]
    info = ml_dtypes.finfo(dtype)
    tiny, top, least = (float(v) for v in (info.tiny, info.max, info.smallest_subnormal))
    values = [0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, math.inf, -math.inf, math.nan, top, -top]
    values += [tiny, -least, 0.3, -0.3]
    if few:
        return values
    values += [least, -tiny, float(info.eps), 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3, 1e-5, 0.1, 0.999]
    values += [10.0, 20.0, 100.0, -100.0, 88.0, -104.0, 709.0, 1000.0, math.pi, -math.pi / 2]
    return [*values, math.sqrt(top), math.sqrt(tiny), top / 2, -10.5, 6.0, -6.0, 0.25, -20.0]


# PyTorch divides integers by a machine instruction that traps on the least one over -1.
TRAPS = ("divide", "remainder", "fmod", "rounding_mode", "gcd", "lcm", "//", "%")


def values_for(case: Case, few: bool) -> np.ndarray:
    """The edge values of a case's dtype that its expression can be given."""
    values = edges(case.dtype, few)
    if case.dtype in INTEGERS and any(word in case.expression for word in TRAPS):
        values = [v for v in values if v is False or v is True or v != np.iinfo(case.dtype).min]
    return np.array(values).astype(to_numpy_dtype(case.dtype))


def to_numpy_dtype(dtype: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def inputs(case: Case) -> list[np.ndarray]:
    """The arrays of a case, as values before they are laid out."""
    d = to_numpy_dtype(case.dtype)
    expression = case.expression
    if expression in ALONG or expression in WHOLE:
        values = values_for(case, few=True)
        if case.dtype in COMPLEX:
            values = values[:: max(1, len(values) // 9)]
        if expression in WHOLE:
            return [
                values[np.isfinite(values.astype(np.complex128))]
                if "histc" in expression
                else values
            ]
        length = 3 if len(values) > 4 else 4
        picked = values if len(values) < 17 else values[:16]
        return [np.array(list(itertools.product(picked, repeat=length)), d)]
    if "y" in names(expression):
        values = values_for(case, few=case.dtype in COMPLEX)
        x, y = np.meshgrid(values, values)
        return [np.ascontiguousarray(x.ravel()), np.ascontiguousarray(y.ravel())]
    return [values_for(case, few=False)]


def names(expression: str) -> set[str]:
    return set(compile(expression, "", "eval").co_names)


def laid_out(x: np.ndarray, case: Case) -> np.ndarray:
    """The values in the case's layout: as they are, many times over, or with gaps."""
    if case.layout == "small":
        return x
    if case.layout == "large":
        if case.expression in WHOLE:
            return np.concatenate([np.zeros(LARGE, x.dtype), x])
        return np.concatenate([x] * (LARGE // max(1, x.size) + 1))
    wide = np.zeros((*x.shape[:-1], x.shape[-1] * 2), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


# --- running ---------------------------------------------------------------------------


def tensor(system: Any, x: np.ndarray, grad: bool) -> Any:
    """A tensor on a copy of the array, with its strides."""
    if x.dtype == ml_dtypes.bfloat16:
        t = system.from_numpy(x.view(np.int16) if x.base is None else _strided(x))
        t = t.view(system.bfloat16)
    else:
        t = system.from_numpy(x)
    return t.clone(memory_format=system.preserve_format).requires_grad_() if grad else t


def _strided(x: np.ndarray) -> np.ndarray:
    return np.lib.stride_tricks.as_strided(
        np.ndarray(x.shape, np.int16, x.base if x.base is not None else x, strides=x.strides)
        if x.flags.c_contiguous
        else x.base.view(np.int16)[..., ::2]
    )


def run(case: Case, system: Any, arrays: list[np.ndarray]) -> Any:
    """The results as arrays, or the error's class."""
    x = [tensor(system, a, case.grad) for a in arrays]
    scope = {"torch": system, "math": math, "x": x[0], "y": x[-1]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            out = eval(compile(case.expression, "<expression>", "eval"), scope)
            outs = list(out) if isinstance(out, (tuple, list)) else [out]
            outs = [o for o in outs if hasattr(o, "dtype")]
            if not case.grad:
                return [array(o, system) for o in outs]
            first = outs[0]
            if not first.requires_grad:
                return "no gradient"
            first.backward(system.ones_like(first))
            return [None if v.grad is None else array(v.grad, system) for v in x]
        except (RuntimeError, NotImplementedError, TypeError, ValueError, IndexError) as error:
            return "error", error
        except Exception as error:
            return "strange error", error


def array(t: Any, system: Any) -> np.ndarray:
    t = t.detach()
    if system is torch:
        t = t.resolve_conj().resolve_neg()
    if str(t.dtype).endswith("bfloat16"):
        return np.array(t.contiguous().view(system.int16).numpy()).view(ml_dtypes.bfloat16)
    return np.array(t.contiguous().numpy())


# Of two zeros the sign is the vector instruction's choice: maxima, and sums that start with 0.
UNSIGNED = words(
    """
    maximum minimum fmax fmin clamp relu hardtanh amax amin aminmax cumsum logcumsumexp lerp
    kthvalue mode median sort topk layer_norm quantile softshrink addcmul nextafter chebyshev
    hermite laguerre legendre
    """
)
# Products and sums that PyTorch's compiler fuses: what cancels is as exact as the operands are.
FUSED = ("alpha=", "addcmul", "addcdiv", "lerp", "kl_div", "soft_margin", "poisson")


def differences(case: Case, arrays: list[np.ndarray], ours: Any, theirs: Any) -> np.ndarray:
    """Where two results differ by more than rounding."""
    if ours.dtype.kind in "iub":
        return ours != theirs
    scale = np.zeros(())
    if any(word in case.expression for word in FUSED):
        if arrays[0].shape == ours.shape:
            scale = np.max([_finite(a) for a in arrays], axis=0)
    if case.expression in ALONG or case.expression in WHOLE:
        axis = -1 if ours.ndim > 1 else None
        rows = _finite(theirs)
        scale = np.max(rows, axis=axis, keepdims=True, initial=1.0 if case.grad else 0.0)
    signed = not case.grad and not any(word in case.expression for word in UNSIGNED)
    if ours.dtype.kind != "c":
        return _differs(ours, theirs, scale, ours.dtype, signed)
    size = np.maximum(scale, _finite(theirs))
    parts = [_differs(a, b, size, ours.dtype, False) for a, b in
             ((ours.real, theirs.real), (ours.imag, theirs.imag))]  # fmt: skip
    return parts[0] | parts[1]


def _finite(x: np.ndarray) -> np.ndarray:
    size = np.abs(x.astype(np.complex128))
    return np.where(np.isfinite(size), size, 0.0)


def _differs(a: Any, b: Any, scale: Any, dtype: np.dtype, signed: bool) -> np.ndarray:
    a, b = a.astype(np.float64), b.astype(np.float64)
    real = ml_dtypes.finfo(np.zeros(0, dtype).real.dtype)
    with np.errstate(all="ignore"):
        limit = ROUNDING[dtype.name] * np.maximum(scale, np.maximum(np.abs(a), np.abs(b)))
        near = np.abs(a - b) <= np.maximum(limit, 2 * float(real.smallest_subnormal))
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    zeros = (a == 0) & (b == 0) & (np.signbit(a) != np.signbit(b)) & signed
    return ~(same | near) | zeros


def said(result: Any) -> str:
    """A result, or an error, in a few words."""
    if isinstance(result, tuple):
        return f"{type(result[1]).__name__}: {str(result[1]).splitlines()[0][:110]}"
    if isinstance(result, str):
        return result
    return "a result of " + ", ".join(str(v.dtype) for v in result if v is not None)


def compare(case: Case, verbose: int = 3) -> str | None:
    """What differs, as text."""
    arrays = [laid_out(a, case) for a in inputs(case)]
    theirs, ours = run(case, torch, arrays), run(case, weft, arrays)
    kinds = [
        r if isinstance(r, str) else r[0] if isinstance(r, tuple) else "" for r in (ours, theirs)
    ]
    if kinds[0] or kinds[1]:
        return None if kinds[0] == kinds[1] else f"weft: {said(ours)}; torch: {said(theirs)}"
    notes = []
    for k, (a, b) in enumerate(itertools.zip_longest(ours, theirs)):
        if a is None or b is None:
            if a is not b:
                notes.append(f"result {k} of one only: weft {a is not None}, torch {b is not None}")
        elif a.dtype != b.dtype or a.shape != b.shape:
            notes.append(f"result {k}: {a.dtype}{a.shape} for {b.dtype}{b.shape}")
        else:
            wrong = differences(case, arrays, a, b)
            if case.grad and a.shape == arrays[0].shape and not isinstance(wrong, bool):
                wrong = wrong & ~at_nan(case, arrays)
            if case.dtype in COMPLEX and wrong.shape[:1] == arrays[0].shape[:1]:
                wrong = wrong & ordinary(arrays).reshape(-1, *(1,) * (wrong.ndim - 1))
            if wrong.any():
                notes.append(f"result {k}: {shown(case, arrays, a, b, wrong, verbose)}")
    return " | ".join(notes) or None


# What PyTorch's kernels do with a NaN depends on whether it is in a full vector.
NAN_BY_VECTOR = words(
    """
    celu elu selu hardswish hardtanh relu6 softshrink hardshrink
    """
)


def at_nan(case: Case, arrays: list[np.ndarray]) -> Any:
    """Elements whose gradient is not compared."""
    if any(f"functional.{name}(" in case.expression for name in NAN_BY_VECTOR):
        return np.isnan(arrays[0].astype(np.float64))
    return False


def ordinary(arrays: list[np.ndarray]) -> np.ndarray:
    """Which rows have neither infinities, NaN nor zeros: C's complex arithmetic is its own there.

    What one of those makes of the other part of a number depends on how a product is written.
    """
    with np.errstate(all="ignore"):
        fine = [np.isfinite(a) & (a.real != 0) & (a.imag != 0) for a in arrays]
    return np.all([f if f.ndim == 1 else f.all(-1) for f in fine], axis=0)


def shown(case: Case, arrays: Any, a: Any, b: Any, wrong: np.ndarray, count: int) -> str:
    """The first differences, with what they are the results of."""
    at = np.argwhere(wrong)
    texts = []
    for place in at[:count]:
        where = tuple(int(p) for p in place)
        if a.shape == arrays[0].shape and arrays[0].ndim == 1:
            given = ", ".join(str(v[where]) for v in arrays)
        elif arrays[0].ndim == 2 and len(a) == len(arrays[0]):
            given = f"{arrays[0][where[0]].tolist()}{list(where[1:])}"
        else:
            given = str(where)
        texts.append(f"({given}) {a[where]} for {b[where]}")
    return f"{len(at)} of {a.size}: " + "; ".join(texts)


# --- the sweep -------------------------------------------------------------------------


def cases(layouts: Any = LAYOUTS, dtypes: Any = DTYPES) -> Iterator[Case]:
    """All cases, without gradients of what has none."""
    for expression in [*elementwise(), *of_two(), *of_numbers(), *ALONG, *WHOLE]:
        for dtype in dtypes:
            for layout in layouts:
                if expression in ALONG and layout == "large" and dtype not in FLOATS:
                    continue
                yield Case(expression, dtype, layout, False)
                if dtype in (*FLOATS, *COMPLEX):
                    yield Case(expression, dtype, layout, True)


# What differs for a reason: where in PyTorch the result depends on the vector instructions of the
# build or on an order of steps that costs digits, and where weft gives more. By parts of a case.
KNOWN = {
    "PyTorch's special functions lose digits, or give NaN, far out": (
        *("special.", "digamma", "lgamma", "polygamma", "igamma", "gelu", "tanh(x)"),
        *("logsigmoid(x) [float32", "mish(x) [float32", "softplus(", "tanhshrink"),
    ),
    "Sleef's remainders give NaN where the quotient overflows": (
        "fmod",
        "remainder",
        "% ",
        "logit",
    ),
    "PyTorch divides a number by a tensor as a product with the reciprocal": (" / x",),
    "a root only of numbers, and of those by another kernel in large arrays": (
        *("** 0.5", "** -0.5", "** 1.5", "pow_(0.5", "float_power(x, 0.5", "torch.tensor(0.5)"),
        *("1e-8 ", "** 1e-8", "pow_(1e-8", "tensor(1e-8", "torch.pow(x, torch.tensor(True"),
    ),
    "half types: numbers that PyTorch refuses": ("70000.0",),
    "fused multiply-add": ("alpha=3",),
    "PyTorch has no derivative here": (
        *("True ** x", "soft_margin_loss", "norm(0, 1)", "torch.sgn(x)", "unique(x)", "heaviside"),
        *("// ",),
    ),
    "infinities and NaN within a row that is scanned": (
        *("cumprod(1)", "logcumsumexp(1)", "nanmean(1)", "_mean(x, 1)", "renorm", "x.prod("),
        *("layer_norm", "rms_norm", "x.sort(1", "x.topk", "argsort", "histc"),
    ),
    "settings that are not finite": ("math.nan", "math.inf"),
    "PyTorch's factor is float32": ("hardsigmoid(x) [float64", "celu("),
    "the least denormal numbers": (
        "sigmoid(x) [float32",
        "silu(x) [float32",
        "sigmoid_() [float32",
    ),
    "frexp": ("frexp(x) [",),
    "single cases": (
        "logaddexp2",
        "polar(x, y)",
        "huber_loss",
        "smooth_l1_loss",
        "threshold(",
        "clamp(",
    ),
}


# The same by patterns.
KNOWN_PATTERNS = {
    "half types: steps of a derivative that PyTorch rounds one by one": r"float16 \w+ grad",
    "half types: steps that PyTorch rounds one by one": (
        r"(erf\(|mse_loss|kl_div|cross_entropy|1e-8\)).*float16 "
    ),
    "PyTorch has no derivative for complex numbers here": (
        r"(nan_to_num|silu)\(.*complex\d+ \w+ grad|tensor\(True\)\).*complex"
    ),
    "PyTorch takes a number's logarithm in float32": r"(\*\* x|ldexp\(x, y\)) \[complex",
    "PyTorch loses digits near one, or overflows within": (
        r"acos\(x\) \[complex128|logaddexp\(x, y\) \[complex64"
    ),
}


def known(case: Case) -> str | None:
    """Why a case may differ, if it may."""
    text = str(case)
    for reason, pattern in KNOWN_PATTERNS.items():
        if re.search(pattern, text):
            return reason
    for reason, parts in KNOWN.items():
        if any(part in text for part in parts):
            return reason
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="known differences too")
    parser.add_argument("-k", nargs="*", default=[""])
    parser.add_argument("-d", nargs="*", default=DTYPES)
    parser.add_argument("-l", nargs="*", default=LAYOUTS)
    parser.add_argument("-v", type=int, default=3)
    options = parser.parse_args()
    ran = wrong = expected = 0
    for case in cases(options.l, options.d):
        if not any(part in str(case) for part in options.k):
            continue
        ran += 1
        found = compare(case, options.v)
        if found and known(case) and not options.all:
            expected += 1
        elif found:
            wrong += 1
            print(f"{case}: {found}", flush=True)
    print(f"{ran} cases, {wrong} differ, {expected} more as known")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
