"""What functions along dimensions share: elements by index, names of results and arguments."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.dispatch import Op
from weft.core.tensor import Tensor
from weft.operators import batch_rules, shape_rules
from weft.operators.arguments import scalar_name
from weft.operators.build import Sample, linear
from weft.operators.views import reshape_op

# The types of results with several named parts; torch.return_types offers them.
RESULT_TYPES: dict[str, Any] = {}


def result_type(name: str, *fields: str) -> Any:
    """The type of a result with several named parts, such as ``(values, indices)``."""
    base = namedtuple(name, fields)

    def show(self: Any) -> str:
        parts = ",\n".join(f"{f}={v!r}" for f, v in zip(fields, self, strict=True))
        return f"torch.return_types.{name}(\n{parts})"

    methods = {"__slots__": (), "__repr__": show, "__module__": "weft.return_types"}
    made = RESULT_TYPES[name] = type(name, (base,), methods)
    return made


def numpy_names(function: Callable) -> Callable:
    """Let ``axis`` and ``keepdims`` stand for ``dim`` and ``keepdim``, as PyTorch does."""

    @functools.wraps(function)
    def public(*args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            return function(*args)
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        if "keepdims" in kwargs:
            kwargs["keepdim"] = kwargs.pop("keepdims")
        return function(*args, **kwargs)

    return public


def kept_shape(shape: tuple[int, ...], dim: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with the reduced dimensions kept at length one."""
    return tuple(1 if i in dim else n for i, n in enumerate(shape))


def kept(g: Any, shape: tuple[int, ...], dim: tuple[int, ...], keepdim: bool) -> Any:
    """A reduced value with its dimensions of length one, which broadcasts to ``shape``."""
    return g if keepdim else reshape_op(g, shape=kept_shape(shape, dim))


def dropped_shape(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    """A shape without one of its dimensions."""
    return shape[:dim] + shape[dim + 1 :]


def refuse(kinds: str, input: Tensor, name: str) -> None:
    """Raise for the kinds of dtype (as NumPy's letters) that a function does not support."""
    if input._a.dtype.kind in kinds:
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{scalar_name(input.dtype)}'; convert the tensor to "
            f"another dtype first\n  at {errors.here()}"
        )


# --- elements by their index along a dimension -----------------------------------------


@functools.lru_cache(256)
def counters(shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """The indices along each dimension, shaped to broadcast to ``shape``."""
    rank = len(shape)
    return tuple(
        np.arange(n).reshape((1,) * d + (n,) + (1,) * (rank - d - 1)) for d, n in enumerate(shape)
    )


def places(index: np.ndarray, dim: int, shape: tuple[int, ...]) -> tuple[np.ndarray, ...]:
    """What picks by ``index`` along one dimension of an array of a shape, by position in others."""
    others, dim = counters(shape), dim % len(shape)
    return (*others[:dim], index, *others[dim + 1 :])


def taken(x: np.ndarray, index: np.ndarray, dim: int) -> np.ndarray:
    """NumPy's ``take_along_axis``, without its slow checks."""
    return x[places(index, dim, x.shape)]


def _take_along(x: np.ndarray, index: np.ndarray, dim: int, unique: bool) -> np.ndarray:
    return taken(x, index, dim) if x.ndim else x.copy()


def _put_along(
    x: np.ndarray, index: np.ndarray, dim: int, shape: tuple[int, ...], unique: bool
) -> np.ndarray:
    if not shape:
        return x.reshape(())
    out = np.zeros(shape, x.dtype)
    if unique:
        out[places(index, dim, shape)] = x
        return out
    np.add.at(out, places(index, dim, index.shape), x)
    return out


# ``unique`` says that no index occurs twice in its row, which makes the transpose cheap.
take_along_op = linear(
    "take_along",
    _take_along,
    lambda g, x_shape, index, dim, unique: put_along_op(
        g, index, dim=dim, shape=x_shape, unique=unique
    ),
    None,
    names=("x", "index"),
    grad_name="GatherBackward",
    samples=lambda m: [
        Sample((m.real(2, 3), m.integers(2, 4, high=3)), {"dim": 1, "unique": False}),
        Sample((m.real(3, 2), np.array([[0, 2], [1, 0]])), {"dim": 0, "unique": True}),
        Sample((m.real(), np.array(0)), {"dim": 0, "unique": True}),
    ],
    shape=lambda x, index, dim: shape_rules.replaced(
        x.shape, dim, index.shape[dim] if index.shape else 1
    ),
    batch=batch_rules.along,
)
put_along_op: Op = linear(
    "put_along",
    _put_along,
    lambda g, index, dim, unique: take_along_op(g, index, dim=dim, unique=unique),
    None,
    names=("x", "index"),
    promote="same",
    promote_args=(0,),
    grad_name="ScatterAddBackward",
    samples=lambda m: [
        Sample(
            (m.real(2, 4), m.integers(2, 4, high=3)), {"dim": 1, "shape": (2, 3), "unique": False}
        ),
        Sample(
            (m.real(2, 2), np.array([[0, 2], [1, 0]])),
            {"dim": 0, "shape": (3, 2), "unique": True},
        ),
    ],
    shape=shape_rules.shape_attribute,
    batch=batch_rules.along,
)
