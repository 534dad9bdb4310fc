"""Tensors from Python data, from NumPy, and filled with values."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import errors
from weft.core.tensor import LATE, Tensor, wrap
from weft.ops import api


def finish(array: np.ndarray, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new leaf around an array."""
    if device is not None:
        dev.present(device)
    made = wrap(array)
    return made.requires_grad_() if requires_grad else made


def _plain(data: Any) -> Any:
    """Nested sequences with the tensors in them turned into arrays."""
    if isinstance(data, Tensor):
        return data._a
    if isinstance(data, (list, tuple)):
        return [_plain(d) for d in data]
    return data


def _first(data: Any) -> Any:
    while isinstance(data, (list, tuple)) and len(data):
        data = data[0]
    return data


def array_of(data: Any, dtype: Any = None) -> np.ndarray:
    """A new array with the dtype PyTorch would choose for the data."""
    if isinstance(data, (Tensor, np.ndarray, np.generic)):
        array = np.array(data._a if isinstance(data, Tensor) else data)
        dt.of_numpy(array.dtype)
        return array if dtype is None else array.astype(dt.as_numpy(dtype))
    try:
        array = np.array(_plain(data))
    except ValueError:
        raise ValueError(
            f"tensor: expected sequences of equal length; the data is ragged\n"
            f"  at {errors.here()}"
        ) from None
    if array.dtype == object or array.dtype.kind in "US":
        kind = type(_first(data)).__name__
        raise (TypeError if kind == "str" else RuntimeError)(
            f"tensor: could not infer dtype of {kind}\n  at {errors.here()}"
        )
    if dtype is not None:
        return array.astype(dt.as_numpy(dtype))
    if isinstance(_first(data), (np.generic, np.ndarray, Tensor)):
        return array
    if array.dtype.kind == "f" or array.size == 0:
        return array.astype(dt.get_default_dtype().np)
    if array.dtype.kind == "c":
        return array.astype(dt.get_default_dtype().to_complex().np)
    return array.astype(np.int64) if array.dtype.kind in "iu" else array


@api.top
def tensor(
    data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor with a copy of the data.

    >>> import weft
    >>> weft.tensor([[1, 2], [3, 4]])
    tensor([[1, 2],
            [3, 4]])
    """
    return finish(array_of(data, dtype), device, requires_grad)


@api.top
def from_numpy(ndarray: np.ndarray) -> Tensor:
    """A tensor on an array's own memory."""
    if not isinstance(ndarray, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})\n  at {errors.here()}")
    dt.of_numpy(ndarray.dtype)
    if any(s < 0 for s in ndarray.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            f"strides are not currently supported; use array.copy()\n  at {errors.here()}"
        )
    return wrap(ndarray)


def _filler(name: str, make: Any) -> Any:
    def create(
        *size: Any, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None,
        names: Any = None,
    ) -> Tensor:
        d = dt.get_default_dtype().np if dtype is None else dt.as_numpy(dtype)
        made = finish(make(api.shape_argument(size), d), device, requires_grad)
        return made if out is None else api.into(out, made, name)

    create.__name__ = create.__qualname__ = name
    create.__doc__ = f"A tensor made by ``{name}(*size)``."
    return api.top(create)


zeros = _filler("zeros", np.zeros)
ones = _filler("ones", np.ones)
empty = _filler("empty", np.empty)


def construct(*args: Any, dtype: Any = None, device: Any = None, **kwargs: Any) -> Tensor:
    """What calling ``torch.Tensor(...)`` makes: sizes, or data as the default dtype."""
    d = dt.get_default_dtype() if dtype is None else dtype
    if not args:
        return wrap(np.empty(0, d.np))
    if all(isinstance(a, (int, np.integer)) for a in args):
        return wrap(np.zeros(tuple(int(a) for a in args), d.np))
    data = args[0]
    if isinstance(data, Tensor):
        return data.detach() if data.dtype is d else wrap(data._a.astype(d.np))
    if type(data).__name__ == "Size":
        return wrap(np.zeros(tuple(data), d.np))
    return wrap(array_of(data, d))


LATE.construct = construct
