"""``torch._foreach_*``: one op on each of a list of tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import weft
from weft.core import errors
from weft.core.tensor import Tensor

_ONE = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor"),
    *("frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt"),
    *("sigmoid", "sign", "sin", "sinh", "sqrt", "tan", "tanh", "trunc", "zero"),
)
_TWO = ("add", "sub", "mul", "div", "pow", "clamp_min", "clamp_max", "maximum", "minimum", "copy")
_THREE = ("addcdiv", "addcmul", "lerp")


def _spread(value: Any, count: int, name: str) -> Sequence[Any]:
    """A value for each tensor: a list has one for each, anything else is meant for all."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise RuntimeError(
                "Tensor lists must have the same number of tensors, got "
                f"{count} and {len(value)} (torch.{name})\n  at {errors.here()}"
            )
        return value
    return [value] * count


def _unpacked(value: Any) -> Any:
    # A tensor of numbers, one for each tensor of the list.
    return value.tolist() if isinstance(value, Tensor) and value.ndim == 1 else value


def _apply(tensor: Tensor, operation: str, *others: Any, **kwargs: Any) -> Tensor:
    if operation.startswith(("maximum", "minimum")) and not isinstance(others[0], Tensor):
        least = "clamp_min" if operation.startswith("maximum") else "clamp_max"
        operation = least + ("_" if operation.endswith("_") else "")
    elif operation in ("maximum_", "minimum_"):
        return tensor.copy_(getattr(tensor, operation[:-1])(*others))
    return getattr(tensor, operation)(*others, **kwargs)


def _make(operation: str, count: int) -> Callable:
    name = f"_foreach_{operation}"
    in_place = operation.endswith("_")

    def function(self: Sequence[Tensor], *args: Any, **kwargs: Any) -> Sequence[Tensor]:
        given = [*args[: count - 1]]
        for key in ("other", "tensor1", "tensors1", "tensor2", "tensors2", "exponent", "weight"):
            if len(given) < count - 1 and key in kwargs:
                given.append(kwargs.pop(key))
        columns = [_spread(value, len(self), name) for value in given]
        extra = args[count - 1 :]
        if extra and operation.startswith(("addc", "add", "sub")):
            # The scale comes last: one number, or one for each tensor.
            key = "value" if operation.startswith("addc") else "alpha"
            kwargs[key] = extra[0]
        scale = kwargs.pop("value", kwargs.pop("scalars", None))
        scales = _spread(_unpacked(scale), len(self), name)
        results = []
        for i, tensor in enumerate(self):
            options = {**kwargs} if scale is None else {**kwargs, "value": scales[i]}
            results.append(_apply(tensor, operation, *(c[i] for c in columns), **options))
        return list(self) if in_place else tuple(results)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``{operation}`` on each tensor of a list."
    return function


for _names, _count in ((_ONE, 1), (_TWO, 2), (_THREE, 3)):
    for _name in _names:
        globals()[f"_foreach_{_name}_"] = _make(f"{_name}_", _count)
        if _name not in ("zero", "copy"):
            globals()[f"_foreach_{_name}"] = _make(_name, _count)


def _foreach_norm(self: Sequence[Tensor], ord: Any = 2, dtype: Any = None) -> Sequence[Tensor]:
    """The norm of each tensor of a list."""
    return tuple(weft.linalg.vector_norm(t, ord, dtype=dtype) for t in self)


def _foreach_max(self: Sequence[Tensor]) -> Sequence[Tensor]:
    """The largest element of each tensor of a list."""
    return tuple(t.max() for t in self)
