"""Dtypes: which one a result has, which fits into which, and what they say of themselves."""

# ruff: noqa: E501 - a case of a table is one line

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import weft
from side_by_side import agree, lines, needs_torch, torch

FULL = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
# Types for storage and conversion, for which PyTorch has few kernels.
BARE = (
    *("uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"),
    *("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"),
)
EVERY = (*FULL, *BARE)

# --- literals --------------------------------------------------------------------------

# The common type of two tensors with dimensions; rows and columns as in FULL.
TABLE = """
    b1 u1 i1 i2 i4 i8 f2 bf f4 f8 c8 c16
b1  b1 u1 i1 i2 i4 i8 f2 bf f4 f8 c8 c16
u1  u1 u1 i2 i2 i4 i8 f2 bf f4 f8 c8 c16
i1  i1 i2 i1 i2 i4 i8 f2 bf f4 f8 c8 c16
i2  i2 i2 i2 i2 i4 i8 f2 bf f4 f8 c8 c16
i4  i4 i4 i4 i4 i4 i8 f2 bf f4 f8 c8 c16
i8  i8 i8 i8 i8 i8 i8 f2 bf f4 f8 c8 c16
f2  f2 f2 f2 f2 f2 f2 f2 f4 f4 f8 c8 c16
bf  bf bf bf bf bf bf f4 bf f4 f8 c8 c16
f4  f4 f4 f4 f4 f4 f4 f4 f4 f4 f8 c8 c16
f8  f8 f8 f8 f8 f8 f8 f8 f8 f8 f8 c16 c16
c8  c8 c8 c8 c8 c8 c8 c8 c8 c8 c16 c8 c16
c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16 c16
"""
ROWS = [row.split() for row in lines(TABLE)]
SHORT = dict(zip(ROWS[0], FULL, strict=True))


@pytest.mark.parametrize("row", ROWS[1:], ids=lambda row: SHORT[row[0]])
def test_table_of_common_types(row: list[str]) -> None:
    first = getattr(weft, SHORT[row[0]])
    for column, expected in zip(ROWS[0], row[1:], strict=True):
        second, common = getattr(weft, SHORT[column]), getattr(weft, SHORT[expected])
        assert weft.promote_types(first, second) is common
        assert weft.result_type(weft.ones(1, dtype=first), weft.ones(1, dtype=second)) is common
        assert (weft.ones(1, dtype=first) * weft.ones(1, dtype=second)).dtype is common


@pytest.mark.parametrize("name", FULL)
def test_numbers_widen_only_to_a_higher_kind(name: str) -> None:
    d = getattr(weft, name)
    x = weft.ones(2, dtype=d)
    assert (x * True).dtype is d
    assert (x * 2).dtype is (weft.int64 if d is weft.bool else d)
    assert (x * 2.5).dtype is (d if d.is_floating_point or d.is_complex else weft.float32)
    wide = {weft.float64: weft.complex128, weft.complex128: weft.complex128}
    assert (x * 2j).dtype is wide.get(d, weft.complex64)


@pytest.mark.parametrize("name", FULL)
def test_zero_dim_tensors_widen_only_to_a_higher_kind(name: str) -> None:
    d = getattr(weft, name)
    x = weft.ones(2, dtype=d)
    kinds = [("int64", weft.bool), ("float64", weft.int64), ("complex128", weft.float64)]
    kind = 0 if d is weft.bool else 3 if d.is_complex else 2 if d.is_floating_point else 1
    for place, (other, _) in enumerate(kinds, 1):
        found = (x * weft.ones((), dtype=getattr(weft, other))).dtype
        if place <= kind:
            assert found is d
        elif (kind, place) == (2, 3):  # complex numbers in the precision of the floats
            assert found is (weft.complex128 if d is weft.float64 else weft.complex64)
        else:
            assert found is getattr(weft, other)


def test_division_and_roots_of_integers_are_of_the_default_type() -> None:
    x = weft.arange(1, 4)
    assert (x / 2).dtype is (x / x).dtype is x.sqrt().dtype is weft.float32
    with default_dtype(weft, "float64"):
        assert (x / 2).dtype is (x / x).dtype is x.sqrt().dtype is weft.float64
        assert (x * 1.5).dtype is weft.tensor(0.5).dtype is weft.zeros(2).dtype is weft.float64
        assert weft.tensor(1j).dtype is weft.complex128
    assert weft.get_default_dtype() is weft.float32


def test_limits() -> None:
    assert weft.finfo(weft.float32).eps == 2.0**-23
    assert weft.finfo(weft.float16).max == 65504.0
    assert weft.finfo(weft.bfloat16).eps == 0.0078125
    assert weft.finfo().bits == 32
    assert weft.iinfo(weft.int8).min == -128
    assert weft.iinfo(weft.uint8).max == 255
    with pytest.raises(TypeError):
        weft.finfo(weft.int32)
    with pytest.raises(TypeError):
        weft.iinfo(weft.float32)


def test_results_do_not_fit_into_lower_kinds() -> None:
    x = weft.arange(3)
    with pytest.raises(RuntimeError, match=r"result type Float can't be cast.* Long"):
        x += 0.5
    with pytest.raises(RuntimeError, match="can't be cast"):
        x /= 2
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.logical_not().add_(1)
    assert x.tolist() == [0, 1, 2]


@contextlib.contextmanager
def default_dtype(system: Any, name: str) -> Iterator[None]:
    system.set_default_dtype(getattr(system, name))
    try:
        yield
    finally:
        system.set_default_dtype(system.float32)


# --- against PyTorch -------------------------------------------------------------------

# Each with a tensor ``a`` of two elements and ``b``: such a tensor, a zero-dim one, or a number.
BINARY = """
a + b
b + a
a - b
b - a
a * b
b * a
a / b
b / a
a // b
b // a
a % b
b % a
a ** b
b ** a
a == b
a != b
a < b
b >= a
a & b
b & a
a | b
a ^ b
a << b
a >> b
b << a
torch.add(a, b, alpha=2)
torch.rsub(a, b)
torch.div(a, b, rounding_mode='trunc')
torch.div(a, b, rounding_mode='floor')
torch.fmod(a, b)
torch.float_power(a, b)
torch.where(c, a, b)
torch.where(c, b, a)
torch.cat([a, b])
torch.stack([a, b])
torch.maximum(a, b)
torch.fmin(a, b)
torch.clamp(a, b)
torch.clamp(a, max=b)
torch.atan2(a, b)
torch.hypot(a, b)
torch.copysign(a, b)
torch.logaddexp(a, b)
torch.xlogy(a, b)
torch.nextafter(a, b)
torch.heaviside(a, b)
torch.gcd(a, b)
torch.logical_and(a, b)
torch.isclose(a, b)
torch.equal(a, b)
torch.isin(a, b)
torch.masked_fill(a, c, b)
torch.full_like(a, b)
torch.addcmul(a, a, b)
torch.outer(a, b)
torch.dot(a, b)
torch.result_type(a, b)
torch.index_fill(a, 0, torch.tensor([1]), b)
a.add_(b)
a.sub_(b)
a.mul_(b)
a.div_(b)
a.floor_divide_(b)
a.remainder_(b)
a.pow_(b)
a.eq_(b)
a.lt_(b)
a.copy_(b)
a.fill_(b)
a.logical_and_(b)
a.__iand__(b)
a.__ilshift__(b)
a.__setitem__(0, b)
"""

# complex32 does not exist in weft: where PyTorch gives it, weft gives complex64.
HALF_COMPLEX = ("torch.complex32", "torch.complex64")


def operands(system: Any) -> Iterator[tuple[str, str, Any, Any]]:
    for first in FULL:
        for second in FULL:
            for shape in ((2,), ()):
                made = system.ones(shape).to(getattr(system, second))
                yield first, f"{second}{list(shape)}", shape, made
        for number in (True, 1, 1.0, 1j):
            yield first, repr(number), None, number


def result_of(system: Any, code: Any, first: str, other: Any) -> tuple[str, Any]:
    scope = {
        "torch": system,
        "a": system.ones(2).to(getattr(system, first)),
        "b": other,
        "c": system.tensor([True, False]),
    }
    try:
        found = eval(code, scope)
    except RuntimeError as error:
        missing = isinstance(error, NotImplementedError) or "not implemented" in str(error)
        return ("RuntimeError", "missing" if missing else None)
    except Exception as error:
        return (type(error).__name__, None)
    if hasattr(found, "dtype"):
        return (str(found.dtype), tuple(found.shape))
    return (str(found), None)


def compare_table(text: str) -> None:
    code = compile(text, "<table>", "eval")
    wrong = []
    for (first, label, _, theirs), (_, _, _, ours) in zip(
        operands(torch), operands(weft), strict=True
    ):
        expected, found = (
            result_of(system, code, first, other)
            for system, other in ((torch, theirs), (weft, ours))
        )
        if expected[1] == "missing" and found[0] != "RuntimeError":
            # weft may compute what PyTorch has no kernel for, but not in these cases.
            if "complex" not in first + label or "float16" in first + label:
                continue
        if (expected[0], found[0]) == HALF_COMPLEX or ("float16" in first and "j" in label):
            continue
        if found[0] != expected[0] or (found[1] != expected[1] and "Error" not in found[0]):
            wrong.append(f"{first} with {label}: {found} where torch has {expected}")
    assert not wrong, f"{text}: {len(wrong)} differ\n" + "\n".join(wrong[:20])


@needs_torch
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("text", lines(BINARY))
def test_type_of_every_pair(text: str) -> None:
    compare_table(text)


@needs_torch
@pytest.mark.parametrize(
    "text", ["a + b", "a / b", "a ** b", "torch.where(c, a, b)", "torch.atan2(a, b)", "a.mul_(b)"]
)
def test_type_of_every_pair_with_another_default(text: str) -> None:
    for name in ("float64", "bfloat16"):
        with default_dtype(torch, name), default_dtype(weft, name):
            compare_table(text)


@needs_torch
@pytest.mark.parametrize("function", ["promote_types", "can_cast"])
def test_types_by_pairs(function: str) -> None:
    for first in EVERY:
        for second in EVERY:
            agree(f"torch.{function}(torch.{first}, torch.{second})")


UNARY = [
    "x.sum()",
    "x.mean()",
    "x.prod()",
    "x.cumsum(0)",
    "x.cumprod(0)",
    "x.max()",
    "x.argmax()",
    "x.any()",
    "x.all()",
    "x.abs()",
    "x.sqrt()",
    "x.exp()",
    "x.log()",
    "x.sin()",
    "x.tanh()",
    "x.sigmoid()",
    "x.relu()",
    "x.floor()",
    "x.round()",
    "x.sign()",
    "x.neg()",
    "x.square()",
    "x.reciprocal()",
    "x.rsqrt()",
    "x.isnan()",
    "x.isfinite()",
    "x.logical_not()",
    "x.bitwise_not()",
    "x.angle()",
    "x.real",
    "x.conj()",
    "x.erf()",
    "x.var()",
    "x.std()",
    "x.norm()",
    "x.softmax(0)",
    "x.log_softmax(0)",
    "x.logsumexp(0)",
    "x.nansum()",
    "x.median()",
    "x.sort()[0]",
    "x.topk(1)[0]",
    "x.unique()",
    "x.count_nonzero()",
    "x.nonzero()",
    "x.trunc()",
    "x.frac()",
    "x.sgn()",
    "x.positive()",
    "x.diff()",
    "x.flip(0)",
    "x.tril(0)",
    "x.cummax(0)[0]",
    "x.logcumsumexp(0)",
    "x.amax()",
    "x.aminmax()[0]",
    "x.argsort()",
    "x.expm1()",
    "x.bincount()",
    "x.histc()",
    "x.multinomial(1)",
    "x.bernoulli()",
    "x.softplus()",
    "x.lgamma()",
    "x.digamma()",
    "x.logit()",
    "x.sinc()",
    "x.deg2rad()",
    "x.i0()",
    "x.nan_to_num()",
    "x.signbit()",
    "x.ceil()",
    "x.clamp(0)",
    "x.pow(2)",
    "x.pow(0.5)",
    "x.pow(-1)",
]


@needs_torch
@pytest.mark.parametrize("text", UNARY)
def test_type_of_every_function_of_one(text: str) -> None:
    code = compile(text.replace("x", "a", 1), "<table>", "eval")
    wrong = []
    for name in FULL:
        expected, found = (result_of(system, code, name, None) for system in (torch, weft))
        if expected[1] == "missing" or expected[0] == "AttributeError":
            continue  # weft may compute what PyTorch has no kernel for
        if found[0] != expected[0]:
            wrong.append(f"{name}: {found} where torch has {expected}")
    assert not wrong, f"{text}\n" + "\n".join(wrong)


OF_DTYPES = """
[(d.is_floating_point, d.is_complex, d.is_signed, d.itemsize) for d in D]
[repr(d) for d in D]
[str(d) for d in D]
[f'{d}' for d in D]
[pickle.loads(pickle.dumps(d)) is d for d in D]
[copy.deepcopy(d) is d for d in D]
[hash(d) == hash(pickle.loads(pickle.dumps(d))) for d in D]
len(set(D))
[d.to_complex() for d in D if d.is_floating_point and d.itemsize > 2]
[d.to_real() for d in D if d.is_complex]
[torch.ones(1).to(d).element_size() for d in D]
torch.float is torch.float32, torch.double is torch.float64, torch.half is torch.float16
torch.long is torch.int64, torch.int is torch.int32, torch.short is torch.int16
torch.cfloat is torch.complex64, torch.cdouble is torch.complex128
torch.float32 == torch.float64, torch.float32 != torch.float64, torch.float32 == 'float32'
isinstance(torch.float32, torch.dtype)
torch.dtype()
torch.finfo(torch.int8)
torch.iinfo(torch.float32)
torch.iinfo(torch.bool)
[str(torch.finfo(d)) for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)]
[str(torch.finfo(d)) for d in (torch.complex64, torch.complex128)]
[str(torch.iinfo(d)) for d in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)]
[[getattr(torch.finfo(d), n) for n in 'bits eps max min tiny smallest_normal resolution dtype'.split()] for d in D if d.is_floating_point]
[[getattr(torch.iinfo(d), n) for n in 'bits max min dtype'.split()] for d in D[1:6]]
torch.finfo().dtype
torch.set_default_dtype(torch.int64)
torch.set_default_dtype('float32')
torch.tensor([1, 2], dtype=float).dtype, torch.zeros(1, dtype=int).dtype, torch.ones(1, dtype=bool).dtype
torch.tensor([1], dtype='float32')
torch.tensor([1], dtype=np.float32)
torch.result_type(1, 1.5)
torch.result_type(torch.tensor(1), 1.5)
torch.result_type(torch.tensor([1]), torch.tensor(1.5))
torch.result_type(1, torch.tensor([True]))
torch.is_floating_point(torch.ones(1)), torch.is_complex(torch.ones(1))
torch.ones(2).type(), torch.ones(2).int().type(), torch.ones(2).bfloat16().type()
torch.ones(2).type(torch.int8), torch.ones(2).type('torch.DoubleTensor')
torch.ones(2).type(torch.LongTensor)
torch.ones(2).type('nothing')
torch.tensor([300, -1, 70000]).to(torch.uint8), torch.tensor([300, -200]).to(torch.int8)
torch.tensor([1.9, -1.9, 0.5]).to(torch.int64), torch.tensor([0.0, 0.3, -2.0]).to(torch.bool)
torch.tensor([1 + 2j]).real.dtype, torch.tensor([1 + 2j]).abs().dtype
torch.tensor([1e5, 1e-9]).half(), torch.tensor([1e5, 1e-9, 1.00390625]).bfloat16()
torch.tensor([1.0, 500.0]).to(torch.float8_e4m3fn).float(), torch.tensor([1.1]).to(torch.float8_e5m2).float()
[torch.tensor([240.0, 248.0, -0.0, 1e6, float('-inf'), 1e-9, 0.3]).to(d).float() for d in D[-3:-1]]
torch.tensor([1.0, 3.0, 5.0, -2.0, 0.0, -0.0, 1e38, 3.4e38, 1e-40, float('inf')]).to(D[-1]).float()
[torch.tensor([3, 5, -5, 0]).to(D[-1]).float(), torch.tensor([0.0, -3.0, 500.0], dtype=D[-1]).float()]
[str(torch.arange(8, dtype=torch.uint8).view(d)) for d in D[-3:]], str(torch.zeros(2, dtype=D[-1]))
[torch.zeros_like(torch.ones(2, dtype=D[-1])).double(), torch.ones(2, dtype=D[-1]).zero_().double()]
torch.tensor([500.0, float('inf')], dtype=torch.float8_e4m3fn), torch.tensor(np.array([5e3]), dtype=D[-5])
torch.set_default_dtype(torch.float8_e5m2)
[torch.full((2,), v) for v in (np.float64(2), np.float32(2), np.float16(2), np.int8(3), np.int64(3))]
[torch.full((2,), v) for v in (np.complex128(2), np.uint8(3), np.mean([1, 2]))]
[torch.xlogy(torch.tensor([2, 3]), v) for v in (np.float64(2), np.float16(2), np.int8(3))]
torch.full((2,), 1e9, dtype=torch.float16)
torch.full((2,), 65510, dtype=torch.float16)
torch.full((2,), 1e39, dtype=torch.bfloat16)
torch.full((2,), float('inf'), dtype=torch.float8_e4m3fn)
torch.full((2,), 0.0, dtype=torch.float8_e8m0fnu)
[torch.full((2,), float(v), dtype=torch.float16) for v in ('inf', '-inf', 'nan', '65504')]
torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), -1e9)
torch.zeros(2, dtype=torch.float16).masked_fill(torch.tensor([True, False]), torch.tensor(-1e9))
torch.zeros(2, dtype=torch.float16).fill_(1e9)
torch.zeros(2, dtype=torch.int8).index_fill(0, torch.tensor([0]), torch.tensor(300))
x = torch.zeros(3, dtype=torch.float16); x[0] = 1e9; x[torch.tensor([1])] = -1e9; x
"""


@needs_torch
@pytest.mark.parametrize("code", lines(OF_DTYPES))
def test_what_dtypes_say(code: str) -> None:
    agree(f"D = [getattr(torch, n) for n in {EVERY}]\n{code}")
