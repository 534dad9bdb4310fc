"""Indexing: ``x[...]`` and ``x[...] = v`` for ints, slices, None, masks and index tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import errors
from weft.core.dispatch import apply_inplace
from weft.core.tensor import Tensor, wrap
from weft.ops import api
from weft.ops.build import Sample, linear
from weft.ops.casting import copy_, copy_op, fill_, fill_op
from weft.ops.views import slice_op

FULL = slice(None)


def _tuple_of(indices: Any, where: tuple[int, ...]) -> tuple[Any, ...]:
    """Index arrays at their dimensions, full slices elsewhere."""
    places: list[Any] = [FULL] * ((where[-1] + 1) if where else 0)
    for dim, index in zip(where, indices, strict=True):
        places[dim] = index
    return tuple(places)


def _accumulated(
    x: np.ndarray, values: np.ndarray, *indices: np.ndarray, where: Any, accumulate: bool
) -> np.ndarray:
    out = np.array(x)
    index = _tuple_of(indices, where)
    values = np.asarray(values).astype(x.dtype, copy=False)
    if accumulate:
        np.add.at(out, index, values)
    else:
        out[index] = values
    return out


# Index arrays stand at the dimensions in ``where``; the others are taken whole.
index_op = linear(
    "index",
    lambda x, *indices, where: x[_tuple_of(indices, where)],
    lambda g, x_shape, rest, where: index_back_op(g, *rest, shape=x_shape, where=where),
    samples=lambda m: [
        Sample((m.real(4, 3), m.integers(5, high=4)), {"where": (0,)}),
        Sample((m.real(4, 3, 2), m.integers(2, high=4), m.integers(2, high=2)), {"where": (0, 2)}),
    ],
)
index_back_op = linear(
    "index_backward",
    lambda g, *indices, shape, where: _accumulated(
        np.zeros(shape, g.dtype), g, *indices, where=where, accumulate=True
    ),
    lambda g, rest, where: index_op(g, *rest, where=where),
    samples=lambda m: [
        Sample((m.real(5, 3), m.integers(5, high=4)), {"shape": (4, 3), "where": (0,)})
    ],
)


def _index_put_self(g: Any, rest: Any, where: Any, accumulate: bool) -> Any:
    if accumulate:
        return g
    return index_put_op(g, _zero_like(g), *rest, where=where, accumulate=False)


def _zero_like(g: Any) -> Any:
    zero = np.zeros((), (g._a if isinstance(g, Tensor) else g).dtype)
    return wrap(zero) if isinstance(g, Tensor) else zero


index_put_op = linear(
    "index_put",
    _accumulated,
    _index_put_self,
    lambda g, rest, where: index_op(g, *rest, where=where),
    names=("x", "values"),
    samples=lambda m: [
        Sample(
            (m.real(4, 3), m.real(2, 3), np.array([2, 0])), {"where": (0,), "accumulate": False}
        ),
        Sample(
            (m.real(4, 3), m.real(2, 3), np.array([2, 2])), {"where": (0,), "accumulate": True}
        ),
    ],
)


# --- reading an index expression -------------------------------------------------------


def _plain_slice(part: slice) -> slice:
    step = None if part.step is None else int(part.step)
    if step is not None and step <= 0:
        raise ValueError(f"step must be greater than zero, not {step}; use flip()\n"
                         f"  at {errors.here()}")
    ends = (part.start, part.stop)
    start, stop = (None if e is None else e.__index__() if not isinstance(e, Tensor) else int(e)
                   for e in ends)
    return slice(start, stop, step)


def _is_basic(part: Any) -> bool:
    kind = part.__class__
    return kind is int or kind is slice or part is None or part is Ellipsis


def _as_index_tensor(part: Any) -> Tensor:
    if isinstance(part, Tensor):
        return part
    array = np.asarray(part)
    if array.size == 0 and array.dtype.kind == "f":
        array = array.astype(np.int64)
    if array.dtype.kind not in "iub":
        raise IndexError(
            "tensors used as indices must be long, int, byte or bool tensors, not "
            f"{array.dtype}\n  at {errors.here()}"
        )
    return wrap(array)


def parse(x: Tensor, key: Any) -> tuple[tuple[Any, ...], list[Any], tuple[int, ...]]:
    """An index as a basic part, then index tensors and the dimensions they apply to.

    Ints, slices, None and Ellipsis act first, as views. Tensors (masks turned into
    positions) then index the dimensions that are left.
    """
    parts = list(key) if isinstance(key, tuple) else [key]
    rank = x._a.ndim
    parts = [_normal(p) for p in parts]
    used = sum(_consumes(p) for p in parts)
    if used > rank:
        raise IndexError(
            f"too many indices for tensor of dimension {rank}: {used} given for shape "
            f"{list(x._a.shape)}\n  at {errors.here()}"
        )
    if sum(p is Ellipsis for p in parts) > 1:
        raise IndexError(f"an index can only have a single ellipsis ('...')\n  at {errors.here()}")
    if Ellipsis in [p for p in parts if not isinstance(p, Tensor)]:
        at = next(i for i, p in enumerate(parts) if p is Ellipsis)
        parts[at : at + 1] = [FULL] * (rank - used)
    basic: list[Any] = []
    indices: list[Any] = []
    where: list[int] = []
    dim = source = 0
    for part in parts:
        if part is None:
            basic.append(None)
            dim += 1
        elif part.__class__ is int:
            _check_range(part, source, x._a.shape)
            basic.append(part)
            source += 1
        elif part.__class__ is slice:
            basic.append(part)
            dim, source = dim + 1, source + 1
        elif part._a.dtype.kind == "b" or part._a.dtype == np.uint8:
            mask = part._a != 0
            _check_mask(mask, source, x._a.shape)
            if not mask.ndim:
                basic.append(None)
                indices.append(wrap(np.zeros(int(mask), np.int64)))
                where.append(dim)
                dim += 1
                continue
            for found in mask.nonzero():
                basic.append(FULL)
                indices.append(wrap(found))
                where.append(dim)
                dim, source = dim + 1, source + 1
        else:
            basic.append(FULL)
            indices.append(part)
            where.append(dim)
            dim, source = dim + 1, source + 1
    return tuple(basic), indices, tuple(where)


def _normal(part: Any) -> Any:
    if part.__class__ is bool:
        return wrap(np.asarray(part))
    if _is_basic(part):
        return _plain_slice(part) if part.__class__ is slice else part
    if isinstance(part, (np.integer,)):
        return int(part)
    if isinstance(part, Tensor):
        if part._a.dtype.kind not in "iub":
            raise IndexError(
                "tensors used as indices must be long, int, byte or bool tensors, not "
                f"{part.dtype}\n  at {errors.here()}"
            )
        if not part._a.ndim and part._a.dtype.kind == "i":
            return int(part._a)
        return part
    if isinstance(part, (list, tuple, range, np.ndarray)):
        return _as_index_tensor(part if not isinstance(part, range) else list(part))
    if hasattr(part, "__index__"):
        return part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(part).__name__})\n  at {errors.here()}"
    )


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    if isinstance(part, Tensor) and (part._a.dtype.kind == "b" or part._a.dtype == np.uint8):
        return part._a.ndim
    return 1


def _check_range(index: int, dim: int, shape: tuple[int, ...]) -> None:
    size = shape[dim]
    if not -size <= index < size:
        raise IndexError(
            f"index {index} is out of bounds for dimension {dim} with size {size} (shape "
            f"{list(shape)})\n  at {errors.here()}"
        )


def _check_mask(mask: np.ndarray, dim: int, shape: tuple[int, ...]) -> None:
    for i, size in enumerate(mask.shape):
        if size != shape[dim + i]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {i} does not match the shape "
                f"of the indexed tensor {list(shape)} at index {dim + i}\n  at {errors.here()}"
            )


@api.method(name="__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """``x[key]``."""
    kind = key.__class__
    if kind is int:
        if not self._a.ndim:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor "
                f"to a Python number\n  at {errors.here()}"
            )
        _check_range(key, 0, self._a.shape)
        return slice_op(self, index=(key,))
    basic, indices, where = parse(self, key)
    if not indices:
        return slice_op(self, index=basic)
    seen = self if all(b == FULL and b is not None for b in basic) else slice_op(self, index=basic)
    return index_op(seen, *indices, where=where)


@api.method(name="__setitem__")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    basic, indices, where = parse(self, key)
    whole = all(b == FULL and b is not None for b in basic)
    target = self if whole else slice_op(self, index=basic)
    if not isinstance(value, Tensor):
        if isinstance(value, (int, float, complex, bool, np.generic)):
            if not indices:
                apply_inplace(fill_op, (target, value), {})
                return
        value = wrap(np.asarray(value, dtype=None if hasattr(value, "dtype") else None))
    if not indices:
        apply_inplace(copy_op, (target, _without_lead(value, target._a.ndim)), {})
        return
    if value._a.dtype != target._a.dtype:
        value = value.to(target.dtype)
    apply_inplace(index_put_op, (target, value, *indices), {"where": where, "accumulate": False})


def _without_lead(value: Tensor, rank: int) -> Tensor:
    """Without leading dimensions of length one that the target does not have."""
    shape = value._a.shape
    extra = len(shape) - rank
    if extra > 0 and all(n == 1 for n in shape[:extra]):
        return value.reshape(shape[extra:])
    return value


@api.top
def index_put(
    input: Tensor, indices: Any, values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with values put (or added) at the indices."""
    _, found, where = parse(input, tuple(FULL if i is None else i for i in indices))
    return index_put_op(input, values, *found, where=where, accumulate=accumulate)


api.method(index_put)
api.inplace("index_put_", index_put)

__all__ = ["copy_", "fill_", "getitem", "setitem"]
