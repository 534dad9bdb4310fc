"""``a * b + c`` rounded once: NumPy's code against fractions, loops and PyTorch."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import weft
from side_by_side import needs_torch, torch
from weft.native.fma import multiply_add

TYPES = (np.float32, np.float64)


def exact(a: float, b: float, c: float, dtype: type) -> float:
    """By fractions: the quotient of two integers is rounded once."""
    if not all(map(math.isfinite, (a, b, c))):
        return c if math.isfinite(a) and math.isfinite(b) else a * b + c
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if not value:
        return a * b + c
    info = np.finfo(dtype)
    least = Fraction(float(info.smallest_subnormal))
    digits = info.nmant + 1
    power = abs(value).numerator.bit_length() - value.denominator.bit_length()
    power -= Fraction(2) ** power > abs(value)
    unit = max(Fraction(2) ** (power + 1 - digits), least)
    rounded = round(value / unit) * unit  # to the even one of two that are as near
    if abs(rounded) > Fraction(float(info.max)):
        return math.inf if value > 0 else -math.inf
    return float(rounded) if rounded or value > 0 else -0.0


def odd_numbers(rng: np.random.Generator, dtype: type, size: int) -> np.ndarray:
    """Any bits, small integers, powers of two with a last digit or two, and extremes."""
    info = np.finfo(dtype)
    unsigned = np.uint32 if dtype is np.float32 else np.uint64
    bits = rng.integers(0, np.iinfo(unsigned).max, size, unsigned, endpoint=True).view(dtype)
    powers = np.ldexp(1 + rng.integers(0, 4, size) * float(info.eps), rng.integers(-60, 60, size))
    extremes = [0.0, -0.0, 1.0, math.inf, -math.inf, math.nan]
    extremes += [float(x) for x in (info.tiny, info.max, -info.max, info.smallest_subnormal)]
    kinds = [bits, rng.integers(-5, 5, size), rng.standard_normal(size), powers]
    kinds.append(rng.choice(extremes, size))
    return np.choose(rng.integers(0, len(kinds), size), [k.astype(dtype) for k in kinds])


@pytest.mark.parametrize("dtype", TYPES)
def test_one_rounding(dtype: type) -> None:
    rng = np.random.default_rng(5)
    with np.errstate(all="ignore"):
        a, b, c = (odd_numbers(rng, dtype, 6000) for _ in range(3))
        c[:2000] = -(a[:2000] * b[:2000])  # of which only what the product lacks is left
    expected = np.array([exact(*map(float, v), dtype) for v in zip(a, b, c, strict=True)], dtype)
    found = multiply_add(a, b, c)
    same = (found == expected) & (np.signbit(found) == np.signbit(expected))
    wrong = ~(same | np.isnan(found) & np.isnan(expected))
    assert not wrong.any(), [(a[i], b[i], c[i]) for i in np.argwhere(wrong)[:3, 0]]


def test_only_arrays_and_numbers() -> None:
    with pytest.raises(TypeError):
        multiply_add(np.ones(2), 2.0, None)
    with pytest.raises(TypeError, match="input"):
        weft.addcmul(None, weft.ones(2), weft.ones(2))


CALLS = {
    "add": lambda t, x, y, z: t.add(x, y, alpha=0.3),
    "sub": lambda t, x, y, z: t.sub(x, y, alpha=0.3),
    "add a number": lambda t, x, y, z: t.add(x[..., :1], y[..., :1], alpha=7),
    "rsub": lambda t, x, y, z: t.rsub(x, 1.7, alpha=0.3),
    "addcmul": lambda t, x, y, z: t.addcmul(x, y, z, value=0.3),
    "lerp": lambda t, x, y, z: t.lerp(x, y, 0.3),
    "lerp from the end": lambda t, x, y, z: t.lerp(x, y, 0.7),
    "lerp by tensors": lambda t, x, y, z: t.lerp(x, y, z),
    "add_": lambda t, x, y, z: x.clone().add_(y, alpha=0.3),
    "sub_": lambda t, x, y, z: x.clone().sub_(y, alpha=0.3),
    "add_ to itself": lambda t, x, y, z: (lambda v: v.add_(v, alpha=0.3))(x.clone()),
    "addcmul_": lambda t, x, y, z: x.clone().addcmul_(y, z, value=0.3),
    "addcdiv_": lambda t, x, y, z: x.clone().addcdiv_(y, z, value=0.3),
    "lerp_": lambda t, x, y, z: x.clone().lerp_(y, 0.3),
}


def layouts(dtype: type, size: int) -> list[list[np.ndarray]]:
    rng = np.random.default_rng(size)
    plain = [rng.standard_normal((2, size)).astype(dtype) for _ in range(3)]
    strided = [rng.standard_normal((2, 2 * size)).astype(dtype)[:, ::2] for _ in range(3)]
    return [plain, strided, [plain[0], rng.standard_normal((size, 2)).astype(dtype).T, plain[2]]]


@needs_torch
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("recording", [True, False])
def test_bits_are_those_of_torch(call: str, dtype: type, recording: bool) -> None:
    for size in (1, 5, 33, 9001):
        for arrays in layouts(dtype, size):
            theirs = CALLS[call](torch, *map(torch.from_numpy, arrays)).numpy()
            with weft.set_grad_enabled(recording):
                ours = CALLS[call](weft, *map(weft.from_numpy, arrays)).numpy()
            assert np.array_equal(ours, theirs), (size, arrays[0].strides)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("call", CALLS)
def test_loops_and_references_give_the_same_bits(call: str, dtype: type) -> None:
    for size in (5, 9001):
        for arrays in layouts(dtype, size):
            found = []
            for kernels in ("native", "numpy"):
                weft.backends.native.set(kernels)
                try:
                    found.append(CALLS[call](weft, *map(weft.from_numpy, arrays)).numpy())
                finally:
                    weft.backends.native.set("native")
            assert np.array_equal(*found)


@pytest.mark.parametrize("n", (1, 3, 20, 1000, 20_000))
def test_scaled_changes_in_place_have_the_bits_of_the_ops(n: int) -> None:
    """From the first call on, and when a loop has taken over."""
    rng = np.random.default_rng(n)
    a, b, c = (weft.from_numpy(rng.standard_normal(n).astype(np.float32)) for _ in range(3))
    changes = (
        (lambda x: x.add_(b, alpha=0.1), lambda x: weft.add(x, b, alpha=0.1)),
        (lambda x: x.sub_(b, alpha=0.3), lambda x: weft.sub(x, b, alpha=0.3)),
        (lambda x: x.add_(x, alpha=0.7), lambda x: weft.add(x, x, alpha=0.7)),
        (lambda x: x.addcmul_(b, c, value=0.1), lambda x: weft.addcmul(x, b, c, value=0.1)),
        (lambda x: x.addcdiv_(b, c, value=-0.2), lambda x: weft.addcdiv(x, b, c, value=-0.2)),
    )
    with weft.no_grad():
        for k in range(300):
            for change, op in changes:
                expected, found = op(a), a.clone()
                version = found._version
                assert change(found) is found, k
                assert found.equal(expected), k
                assert found._version == version + 1
