"""Data types, their limits, and PyTorch's rules for mixing them."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from weft.core.arrays import ARRAYS


class dtype:
    """The type of a tensor's elements, such as ``weft.float32``.

    >>> torch.ones(2, dtype=torch.float16)
    tensor([1., 1.], dtype=torch.float16)
    >>> torch.float64.is_floating_point, torch.float64.itemsize
    (True, 8)
    >>> torch.float is torch.float32, torch.long is torch.int64
    (True, True)
    """

    __slots__ = (
        *("category", "is_complex", "is_floating_point", "is_signed"),
        *("itemsize", "name", "np"),
    )

    # Categories decide promotion: a value widens a tensor only if its category is higher.
    BOOL, INTEGER, FLOAT, COMPLEX = range(4)

    def __init__(self, name: str, numpy_type: Any, category: int) -> None:
        self.name = name
        self.np = np.dtype(numpy_type)
        self.category = category
        self.itemsize = self.np.itemsize
        self.is_complex = category == self.COMPLEX
        self.is_floating_point = category == self.FLOAT
        exponents_only = name == "float8_e8m0fnu"
        self.is_signed = (category >= self.FLOAT or self.np.kind == "i") and not exponents_only

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        return (_by_name, (self.name,))

    def to_complex(self) -> dtype:
        """The complex type whose parts have this precision."""
        return complex128 if self.name in ("float64", "complex128") else complex64

    def to_real(self) -> dtype:
        """The real type of this type's parts."""
        return {"complex64": float32, "complex128": float64}.get(self.name, self)


def _by_name(name: str) -> dtype:
    return BY_NAME[name]


bool_ = dtype("bool", np.bool_, dtype.BOOL)
uint8 = dtype("uint8", np.uint8, dtype.INTEGER)
uint16 = dtype("uint16", np.uint16, dtype.INTEGER)
uint32 = dtype("uint32", np.uint32, dtype.INTEGER)
uint64 = dtype("uint64", np.uint64, dtype.INTEGER)
int8 = dtype("int8", np.int8, dtype.INTEGER)
int16 = dtype("int16", np.int16, dtype.INTEGER)
int32 = dtype("int32", np.int32, dtype.INTEGER)
int64 = dtype("int64", np.int64, dtype.INTEGER)
float8_e4m3fn = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, dtype.FLOAT)
float8_e5m2 = dtype("float8_e5m2", ml_dtypes.float8_e5m2, dtype.FLOAT)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, dtype.FLOAT)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, dtype.FLOAT)
float8_e8m0fnu = dtype("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, dtype.FLOAT)
float16 = dtype("float16", np.float16, dtype.FLOAT)
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, dtype.FLOAT)
float32 = dtype("float32", np.float32, dtype.FLOAT)
float64 = dtype("float64", np.float64, dtype.FLOAT)
complex64 = dtype("complex64", np.complex64, dtype.COMPLEX)
complex128 = dtype("complex128", np.complex128, dtype.COMPLEX)

FLOAT8 = (float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0fnu)
ALL = (
    *(bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64),
    *(*FLOAT8, float16, bfloat16, float32, float64, complex64, complex128),
)
BY_NAME = {d.name: d for d in ALL}
# What PyTorch's messages and legacy tensor classes call the types.
TYPE_NAMES = {
    "float32": "Float",
    "float64": "Double",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "bool": "Bool",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
    **{d.name: d.name.capitalize() for d in FLOAT8},
}
ALIASES = {
    "float": float32,
    "double": float64,
    "half": float16,
    "cfloat": complex64,
    "cdouble": complex128,
    "short": int16,
    "int": int32,
    "long": int64,
}
OF_NUMPY = {d.np: d for d in ALL}
WIDE_UNSIGNED = (uint16, uint32, uint64)
HALF = frozenset(d.np for d in (float16, bfloat16, *FLOAT8))

# NumPy's dtype objects, under names of their own for the engine's identity tests.
F32, F64, I64, BOOL = float32.np, float64.np, int64.np, bool_.np
C64, C128, F16, BF16 = complex64.np, complex128.np, float16.np, bfloat16.np

_default = float32


def get_default_dtype() -> dtype:
    """The floating type that new tensors get from Python numbers.

    >>> torch.get_default_dtype()
    torch.float32
    """
    return _default


def set_default_dtype(d: dtype) -> None:
    """Set the floating type that new tensors get from Python numbers."""
    global _default
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError(
            f"set_default_dtype takes a floating dtype such as torch.float64, not {d!r}"
        )
    if d in FLOAT8:
        raise TypeError(
            f"couldn't find storage object {TYPE_NAMES[d.name]}Storage: {d!r} can't be the default "
            "dtype, since it has no arithmetic; set torch.float32, bfloat16 or float16"
        )
    _default = d


def of_numpy(d: np.dtype) -> dtype:
    """The weft dtype of a NumPy one; a TypeError names what has no counterpart."""
    found = OF_NUMPY.get(d)
    if found is None:
        found = OF_NUMPY.get(d.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"can't convert np.ndarray of type {d}. The only supported types are: "
            + ", ".join(x.name for x in ALL)
        )
    return found


def as_numpy(d: dtype | type | np.dtype) -> np.dtype:
    """The NumPy dtype of what a user may give as a dtype."""
    if isinstance(d, dtype):
        return d.np
    if d is float:
        return F64
    if d is int:
        return I64
    if d is bool:
        return BOOL
    if d is complex:
        return C128
    raise TypeError(f"dtype must be a torch.dtype such as torch.float32, not {d!r}")


def category(d: np.dtype) -> int:
    return OF_NUMPY[d].category


@cache
def promote(a: np.dtype, b: np.dtype) -> np.dtype:
    """The type of the result of mixing two tensors of equal rank class."""
    if a == b:
        return OF_NUMPY[a].np  # dtypes can be equal and differ: see ``core.meta``
    low, high = sorted((OF_NUMPY[a], OF_NUMPY[b]), key=lambda d: (d.category, d.itemsize))
    _check_mixable(OF_NUMPY[a], OF_NUMPY[b])
    if low.category == dtype.BOOL:
        return high.np
    if high.category == dtype.COMPLEX:
        double = F64 in (a, b) or C128 in (a, b)
        return C128 if double else C64
    if high.category == dtype.FLOAT:
        if low.category == dtype.INTEGER or low.itemsize < high.itemsize:
            return high.np
        return F32  # float16 with bfloat16: neither holds the other
    return np.promote_types(a, b)


def _check_mixable(a: dtype, b: dtype) -> None:
    """Refuse to mix the types that PyTorch has for storage and conversion only."""
    for limited, kind in (
        (FLOAT8, "Float8 Types"),
        (WIDE_UNSIGNED, "uint16, uint32, uint64 types"),
    ):
        if a in limited or b in limited:
            # A floating type takes any integer.
            if limited is WIDE_UNSIGNED and dtype.FLOAT in (a.category, b.category):
                continue
            raise RuntimeError(
                f"Promotion for {kind} is not supported, attempted to promote "
                f"{TYPE_NAMES[a.name]} and {TYPE_NAMES[b.name]}; convert one with .to() first"
            )


def scalar_dtype(value: Any) -> np.dtype:
    """The type a Python number has as a tensor of its own."""
    kind = type(value)
    if kind is bool or kind is np.bool_:
        return BOOL
    if isinstance(value, np.generic):
        return value.dtype
    if isinstance(value, int):
        return I64
    if isinstance(value, float):
        return _default.np
    if isinstance(value, complex):
        return _default.to_complex().np
    raise TypeError(f"expected a number, got {type(value).__name__}")


def number_dtype(value: Any) -> np.dtype:
    """The type of a tensor made of a number: a number of NumPy's counts as one of Python's."""
    return scalar_dtype(value.item() if isinstance(value, np.generic) else value)


def result_dtype(values: Any) -> np.dtype:
    """PyTorch's promotion over arrays and Python numbers.

    Arrays with dimensions decide; zero-dim arrays, then numbers, widen the result only
    when they are of a higher category (int to float, float to complex).
    """
    dimensioned = zero_dim = number = None
    for value in values:
        if isinstance(value, ARRAYS):
            if value.ndim:
                found = value.dtype
                dimensioned = found if dimensioned is None else promote(dimensioned, found)
            else:
                zero_dim = value.dtype if zero_dim is None else promote(zero_dim, value.dtype)
        elif value is not None:
            found = scalar_dtype(value)
            if isinstance(value, np.generic):
                found = number_default(category(found))
            number = found if number is None else promote(number, found)
    result = dimensioned
    for lower in (zero_dim, number):
        if lower is None:
            continue
        if result is None:
            result = lower
        elif category(lower) > category(result):
            # A complex value keeps the precision of the floats that it meets.
            floating = category(result) == dtype.FLOAT
            result = OF_NUMPY[result].to_complex().np if floating else promote(result, lower)
    if result is None:
        raise TypeError("no tensor and no number to take a dtype from")
    return result


def number_default(kind: int) -> np.dtype:
    """The type of a bare number of a category."""
    if kind == dtype.BOOL:
        return BOOL
    if kind == dtype.INTEGER:
        return I64
    return _default.np if kind == dtype.FLOAT else _default.to_complex().np


def can_cast(source: dtype, target: dtype) -> bool:
    """Whether PyTorch lets a result of one type be written into a tensor of the other."""
    if source.category > target.category:
        return False
    return not (source.category != dtype.BOOL and target.category == dtype.BOOL)


class finfo:
    """Limits of a floating type: ``eps``, ``max``, ``min``, ``tiny``, ``bits``.

    >>> torch.finfo(torch.float32).eps
    1.1920928955078125e-07
    >>> torch.finfo(torch.float16).max
    65504.0
    """

    def __init__(self, type: dtype | None = None) -> None:
        d = type or _default
        if d.category < dtype.FLOAT:
            raise TypeError(f"torch.finfo() takes a floating dtype, not {d!r}; use torch.iinfo")
        info = ml_dtypes.finfo(d.to_real().np)
        self.bits = d.to_real().itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        if d is float8_e5m2fnuz:
            self.eps = 0.125  # what PyTorch says, which is half of the distance from 1 to 1.25
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        # The decimal digits that every number of the type keeps.
        self.resolution = float(f"1e-{int(-math.log10(self.eps))}")
        self.dtype = d.to_real().name

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, "
            f"eps={self.eps:g}, smallest_normal={self.tiny:g}, tiny={self.tiny:g}, "
            f"dtype={self.dtype})"
        )


class iinfo:
    """Limits of an integer type: ``max``, ``min``, ``bits``."""

    def __init__(self, type: dtype) -> None:
        if type.category != dtype.INTEGER:
            raise TypeError(f"torch.iinfo() takes an integer dtype, not {type!r}; use torch.finfo")
        info = np.iinfo(type.np)
        self.bits, self.max, self.min, self.dtype = info.bits, info.max, info.min, type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"
