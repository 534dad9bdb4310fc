"""``assert_close``: are two values equal up to rounding, and if not, where do they differ?"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core.devices import visible
from weft.core.size import Size
from weft.core.tensor import Tensor

# The default tolerances (rtol, atol) by dtype; integers and booleans must be equal.
TOLERANCES = {
    "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7), "complex64": (1.3e-6, 1e-5), "complex128": (1e-7, 1e-7),
}  # fmt: skip
_NUMBERS = (int, float, complex, np.number)


class _Mismatch(Exception):
    """Why two values differ, and at which item of a container."""

    def __init__(self, message: str, path: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.message, self.path = message, path


class _Rules:
    """What counts as close."""

    def __init__(
        self, rtol: float | None, atol: float | None, equal_nan: bool, check_dtype: bool,
        check_stride: bool, allow_subclasses: bool,
    ) -> None:  # fmt: skip
        if (rtol is None) != (atol is None):
            lacking = "rtol" if rtol is None else "atol"
            raise ValueError(
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {lacking}."
            )
        self.tolerance = None if rtol is None or atol is None else (float(rtol), float(atol))
        self.equal_nan, self.check_dtype, self.check_stride = equal_nan, check_dtype, check_stride
        self.allow_subclasses = allow_subclasses

    def tolerance_for(self, *dtypes: dt.dtype) -> tuple[float, float]:
        if self.tolerance is not None:
            return self.tolerance
        pairs = [TOLERANCES.get(d.name, (0.0, 0.0)) for d in dtypes]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """Raise an AssertionError unless ``actual`` is close to ``expected``.

    Tensors, arrays, numbers, and sequences and mappings of them can be compared. Two values
    are close if ``abs(actual - expected) <= atol + rtol * abs(expected)``.

    >>> x = torch.tensor([1.0, 2.0])
    >>> torch.testing.assert_close(x, x + 1e-8)
    >>> try:
    ...     torch.testing.assert_close(x, x + torch.tensor([0.0, 1.0]))
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    Tensor-likes are not close!
    """
    rules = _Rules(rtol, atol, equal_nan, check_dtype, check_stride, allow_subclasses)
    try:
        _compare(actual, expected, rules, ())
    except _Mismatch as found:
        message = found.message
        if found.path:
            where = "".join(f"[{key!r}]" for key in found.path)
            message += f"\n\nThe failure occurred for item {where}"
        if msg is not None:
            message = msg(message) if callable(msg) else msg
        raise AssertionError(message) from None


def _compare(actual: Any, expected: Any, rules: _Rules, path: tuple[Any, ...]) -> None:
    if _is_list(actual) and _is_list(expected):
        if len(actual) != len(expected):
            raise _Mismatch(
                f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path
            )
        for k, (a, b) in enumerate(zip(actual, expected, strict=True)):
            _compare(a, b, rules, (*path, k))
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        _compare_keys(actual, expected, path)
        for key in sorted(actual, key=repr):
            _compare(actual[key], expected[key], rules, (*path, key))
    elif actual is None or expected is None:
        if actual is not expected:
            raise _Mismatch(f"None mismatch: {actual} is not {expected}", path)
    elif _is_bool(actual) and _is_bool(expected):
        if actual != expected:
            raise _Mismatch(f"Booleans mismatch: {actual} is not {expected}", path)
    elif isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
        _compare_numbers(actual, expected, rules, path)
    else:
        _compare_tensors(actual, expected, rules, path)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_))


def _compare_keys(actual: Mapping, expected: Mapping, path: tuple[Any, ...]) -> None:
    missing = sorted(set(expected) - set(actual), key=repr)
    additional = sorted(set(actual) - set(expected), key=repr)
    if missing or additional:
        raise _Mismatch(
            "The keys of the mappings do not match:\n"
            f"Missing keys in the actual mapping: {missing}\n"
            f"Additional keys in the actual mapping: {additional}",
            path,
        )


def _compare_numbers(actual: Any, expected: Any, rules: _Rules, path: tuple[Any, ...]) -> None:
    kinds = [dt.of_numpy(np.asarray(v).dtype) for v in (actual, expected)]
    if rules.check_dtype and type(actual) is not type(expected):
        raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
    rtol, atol = rules.tolerance_for(*kinds)
    _compare_scalars(actual, expected, rtol, atol, rules.equal_nan, path)


def _compare_scalars(
    actual: Any, expected: Any, rtol: float, atol: float, equal_nan: bool, path: tuple[Any, ...]
) -> None:
    if actual == expected or (equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return
    difference = abs(actual - expected)
    if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return
    relative = difference / abs(expected) if expected != 0 else float("inf")
    exact = rtol == atol == 0
    allowed = ("", "") if exact else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    raise _Mismatch(
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got "
        f"{actual}.\nAbsolute difference: {difference}{allowed[0]}\n"
        f"Relative difference: {relative}{allowed[1]}",
        path,
    )


def _arrays(actual: Any, expected: Any, rules: _Rules) -> list[np.ndarray]:
    usable = (Tensor, np.ndarray, np.generic)
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if not related or not isinstance(actual, usable):
        raise TypeError(
            "No comparison pair was able to handle inputs of type "
            f"{type(actual)} and {type(expected)}."
        )
    if not rules.allow_subclasses and type(actual) is not type(expected):
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(actual)} and "
            f"{type(expected)}: allow_subclasses is off."
        )
    return [visible(v) if isinstance(v, Tensor) else np.asarray(v) for v in (actual, expected)]


def _compare_tensors(actual: Any, expected: Any, rules: _Rules, path: tuple[Any, ...]) -> None:
    a, b = _arrays(actual, expected, rules)
    kinds = [dt.of_numpy(v.dtype) for v in (a, b)]
    for name, left, right in (
        ("shape", Size(a.shape), Size(b.shape)),
        ("dtype", kinds[0], kinds[1]) if rules.check_dtype else ("dtype", None, None),
        ("stride()", a.strides, b.strides) if rules.check_stride else ("stride()", None, None),
    ):
        if left != right:
            raise _Mismatch(
                f"The values for attribute '{name}' do not match: {left} != {right}.", path
            )
    rtol, atol = rules.tolerance_for(*kinds)
    wide = dt.promote(a.dtype, b.dtype)
    compared = np.dtype(np.complex128) if wide.kind == "c" else (
        np.dtype(np.int64) if wide.kind in "iub" else np.dtype(np.float64)
    )  # fmt: skip
    x, y = a.astype(compared), b.astype(compared)
    with np.errstate(all="ignore"):
        difference = np.abs(x - y)
        close = (x == y) | (np.isfinite(difference) & (difference <= atol + rtol * np.abs(y)))
        if rules.equal_nan:
            close |= np.isnan(x) & np.isnan(y)
    if not np.all(close):
        if a.ndim == 0 and isinstance(actual, (Tensor, np.ndarray)):
            _compare_scalars(_item(a), _item(b), rtol, atol, rules.equal_nan, path)
        raise _Mismatch(_report(close, difference, y, wide, rtol, atol), path)


def _item(array: np.ndarray) -> Any:
    return float(array) if array.dtype.kind == "V" else array.item()


def _report(
    close: np.ndarray, difference: np.ndarray, expected: np.ndarray, kind: np.dtype, rtol: float,
    atol: float,
) -> str:  # fmt: skip
    """Say how many elements differ, and where most."""
    exact = rtol == atol == 0
    with np.errstate(all="ignore"):
        relative = difference / np.abs(expected)
    wrong = int((~close).sum())
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n",
        f"Mismatched elements: {wrong} / {close.size} ({wrong / close.size:.1%})",
    ]
    precise = kind in (np.dtype(np.float64), np.dtype(np.complex128))
    for name, values, allowed in (
        ("absolute", difference, atol),
        ("relative", relative, rtol),
    ):
        values = np.where(close, 0, values)
        place = np.unravel_index(int(np.argmax(values)), values.shape)
        worst = values[place].item()
        if not precise and isinstance(worst, float):
            worst = float(np.float32(worst))
        index = tuple(int(i) for i in place)
        limit = "" if exact else f" (up to {allowed} allowed)"
        lines.append(f"Greatest {name} difference: {worst} at index {index}{limit}")
    return "\n".join(lines)
