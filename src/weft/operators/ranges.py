"""Evenly spaced values, the identity matrix and triangles of indices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import LAYOUT, Tensor
from weft.operators import api
from weft.operators.creation import build, finish, number_type


def _number(value: Any, name: str = "arange") -> Any:
    if isinstance(value, Tensor):
        return value.item()
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, (int, float, complex)):
        raise TypeError(
            f"{name}(): arguments must be numbers, not {type(value).__name__}\n  at {errors.here()}"
        )
    return value


def _bounds(start: Any, end: Any, step: Any) -> None:
    if step == 0:
        raise RuntimeError(f"step must be nonzero\n  at {errors.here()}")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}\n  at {errors.here()}")
    if (step > 0) != (end >= start) and start != end:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign\n  at {errors.here()}"
        )


@api.top
def arange(
    *args: Any, start: Any = None, end: Any = None, step: Any = None, out: Any = None,
    dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Values from ``start`` (0) up to but not including ``end``, ``step`` (1) apart.

    >>> torch.arange(4)
    tensor([0, 1, 2, 3])
    >>> torch.arange(1, 2, 0.25)
    tensor([1.0000, 1.2500, 1.5000, 1.7500])
    """
    if len(args) == 1 and end is None:
        end = args[0]
    elif args:
        given = dict(zip(("start", "end", "step"), args, strict=False))
        start, end = given.get("start", start), given.get("end", end)
        step = given.get("step", step)
    if end is None or len(args) > 3:
        raise TypeError(f"arange() takes (end), (start, end) or (start, end, step)\n"
                        f"  at {errors.here()}")  # fmt: skip
    if type(end) is int and start is None and dtype is None and out is None and end >= 0:
        return finish(build(_up_to, (end,), dt.I64, device), device, requires_grad)
    start, end = _number(0 if start is None else start), _number(end)
    step = _number(1 if step is None else step)
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    if dtype is not None or out is not None:
        d = number_type(dtype, out)
    else:
        d = dt.I64 if whole else dt.get_default_dtype().np
    _bounds(start, end, step)
    if d == dt.BOOL:
        raise NotImplementedError(
            f"\"arange_cpu\" not implemented for 'Bool'\n  at {errors.here()}"
        )
    if d.kind in "iu":
        start, end, step = int(start), int(end), int(step)
        if not step:
            raise ValueError(f"step must be nonzero as a whole number\n  at {errors.here()}")
        run = lambda _, d: np.arange(start, end, step).astype(d, copy=False)
        array = build(run, (max(0, -((start - end) // step)),), d, device)
    else:
        count = math.ceil((end - start) / step)
        if count >= 2**63:
            raise RuntimeError(
                f"invalid size, possible overflow? {start} to {end} by {step} is {count} values\n"
                f"  at {errors.here()}"
            )
        make = lambda _, d: _spaced(start, step, count).astype(d, copy=False)
        array = build(make, (count,), d, device)
    made = finish(array, device, requires_grad)
    return made if out is None else api.into(out, made, "arange")


def _up_to(shape: tuple[int, ...], d: np.dtype) -> np.ndarray:
    return np.arange(*shape, dtype=d)


def _spaced(start: Any, step: Any, count: int) -> np.ndarray:
    values = np.arange(count, dtype=np.float64)
    values *= step
    values += start
    return values


@api.top
def range(
    start: Any = 0, end: Any = None, step: Any = 1, *, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Values from ``start`` up to and including ``end``; of the default dtype."""
    errors.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior "
        "is inconsistent with Python's range builtin. Instead, use torch.arange, which produces "
        "values in [start, end)."
    )
    if end is None:
        start, end = 0, start
    start, end, step = (_number(v, "range") for v in (start, end, step))
    _bounds(start, end, step)
    count = int((end - start) / step) + 1
    array = _spaced(start, step, count).astype(number_type(dtype, out))
    made = finish(array, device, requires_grad)
    return made if out is None else api.into(out, made, "range")


def _end(value: Any, name: str, which: str) -> Any:
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(
            f"{name} only supports 0-dimensional start and end tensors, but got {which} with "
            f"{value.ndim} dimension(s).\n  at {errors.here()}"
        )
    if isinstance(value, Tensor) and value.is_meta:
        return 0j if value.is_complex() else 0.0
    return _number(value, name)


def _device_of(ends: tuple[Any, Any], device: Any) -> Any:
    """The device asked for, or that of an end without a value."""
    lacking = any(isinstance(e, Tensor) and e.is_meta for e in ends)
    return "meta" if lacking and device is None else device


def _line(start: Any, end: Any, steps: int, d: np.dtype) -> np.ndarray:
    """Evenly spaced values, computed from whichever end is nearer."""
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative\n  at {errors.here()}")
    if steps < 2:
        return np.full(steps, start)
    if d.kind in "iu":
        start, end, wide = int(start), int(end), dt.F64
    else:
        wide = dt.F32 if d in dt.HALF else d
    kind = wide.type
    first, last = kind(start), kind(end)
    step = (last - first) / kind(steps - 1)
    places = np.arange(steps).astype(wide)
    values = places * step
    values += first
    half = steps // 2
    values[half:] = last - step * places[: steps - half][::-1]
    return values


def _line_type(start: Any, end: Any, dtype: Any, out: Any, name: str) -> np.dtype:
    d = number_type(dtype, out)
    if isinstance(start, complex) or isinstance(end, complex):
        inferred = dt.get_default_dtype().to_complex()
        if dtype is None and out is None:
            return inferred.np
        if d.kind != "c":
            wanted = dt.TYPE_NAMES[dt.of_numpy(d).name]
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {inferred.name} can't be safely cast to passed "
                f"dtype {wanted}\n  at {errors.here()}"
            )
    if d == dt.BOOL:
        raise NotImplementedError(
            f"\"{name}_cpu\" not implemented for 'Bool'\n  at {errors.here()}"
        )
    return d


def _steps(steps: Any, name: str) -> int:
    if isinstance(steps, (bool, float)):
        raise TypeError(
            f"{name}(): argument 'steps' must be int, not {type(steps).__name__}\n"
            f"  at {errors.here()}"
        )
    return int(steps)


def _truncated(values: np.ndarray, d: np.dtype) -> np.ndarray:
    if d.kind in "iub" and values.dtype.kind == "f":
        return np.trunc(values).astype(np.int64).astype(d)
    return values.astype(d, copy=False)


@api.top
def linspace(
    start: Any, end: Any, steps: int, *, out: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``steps`` evenly spaced values from ``start`` to ``end``, both included.

    >>> torch.linspace(0, 1, steps=5)
    tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000])
    """
    device = _device_of((start, end), device)
    start, end = _end(start, "linspace", "start"), _end(end, "linspace", "end")
    d = _line_type(start, end, dtype, out, "linspace")
    array = _truncated(_line(start, end, _steps(steps, "linspace"), d), d)
    made = finish(array, device, requires_grad)
    return made if out is None else api.into(out, made, "linspace")


@api.top
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """``base`` to the power of ``steps`` evenly spaced exponents."""
    device = _device_of((start, end), device)
    start, end = _end(start, "logspace", "start"), _end(end, "logspace", "end")
    d = _line_type(start, end, dtype, out, "logspace")
    wide = d if d.kind in "fc" and d not in dt.HALF else dt.F64 if d.kind in "iu" else dt.F32
    exponents = _line(start, end, _steps(steps, "logspace"), d)
    kind = np.complex128 if wide.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        values = np.power(kind(base), exponents.astype(kind)).astype(wide)
    made = finish(_truncated(values, d), device, requires_grad)
    return made if out is None else api.into(out, made, "logspace")


@api.top
def eye(
    n: int, m: int | None = None, *, out: Any = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A matrix with ones on the diagonal and zeros elsewhere.

    >>> torch.eye(3)
    tensor([[1., 0., 0.],
            [0., 1., 0.],
            [0., 0., 1.]])
    """
    for name, value in (("n", n), ("m", m)):
        if value is not None and value < 0:
            raise RuntimeError(
                f"{name} must be greater or equal to 0, got {value}\n  at {errors.here()}"
            )
    d = number_type(dtype, out)
    made = finish(
        build(lambda shape, d: np.eye(*shape, dtype=d), (n, n if m is None else m), d, device),
        device,
        requires_grad,
    )
    return made if out is None else api.into(out, made, "eye")


def _triangle(name: str, pick: Any) -> None:
    def indices(
        row: int, col: int, offset: int = 0, *, dtype: Any = dt.int64, device: Any = None,
        layout: Any = LAYOUT,
    ) -> Tensor:  # fmt: skip
        row, col = api.whole(row, name, "row"), api.whole(col, name, "col")
        offset = api.whole(offset, name, "offset")
        if row < 0 or col < 0:
            raise RuntimeError(
                f"{name}: row and col must be non-negative, got {row} and {col}\n"
                f"  at {errors.here()}"
            )
        found = np.stack(pick(row, offset, col)).astype(dt.as_numpy(dtype))
        return finish(found, device)

    indices.__name__ = indices.__qualname__ = name
    indices.__doc__ = "Row and column indices of a triangle of a matrix, as a tensor of two rows."
    api.top(indices)


_triangle("tril_indices", np.tril_indices)
_triangle("triu_indices", np.triu_indices)
