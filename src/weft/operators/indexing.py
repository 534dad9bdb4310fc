"""Indexing: ``x[...]`` and ``x[...] = v`` for ints, slices, None, masks and index tensors."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import BatchedCall, aligned, each, is_batched
from weft.core.devices import host, taken
from weft.core.dispatch import REGISTRY, Op, apply, apply_view, edge_of
from weft.core.gate import LISTENERS, announce
from weft.core.inference import check_change
from weft.core.inplace import apply_inplace, bump, check_overlap, check_writable
from weft.core.meta import lacks_values, no_values, plain
from weft.core.modes import MODES, OFF, SPECIAL
from weft.core.pending import make_views, region_of, same_memory
from weft.core.tensor import Tensor, beside, wrap
from weft.operators import api, shape_rules
from weft.operators.build import Sample, linear
from weft.operators.casting import cast, copy_op, fill_op, number_for, type_name
from weft.operators.outputs import check_shared, warn_expanded
from weft.operators.views import select_op, slice_op, zeros_of

FULL = slice(None)
WRITABLE = (dt.float32, dt.float64)


# --- adding at positions that may repeat -----------------------------------------------


def add_rows(out: np.ndarray, rows: np.ndarray, values: np.ndarray) -> None:
    """``out[rows[i]] += values[i]`` for each i in turn; rows may repeat."""
    if not values.size:
        return
    if out.dtype in dt.HALF:
        wide = out.astype(dt.F32)
        add_rows(wide, rows, values.astype(dt.F32))
        out[...] = wide
        return
    if out.ndim == 1 or out.size == out.shape[0]:
        np.add.at(out.reshape(-1), rows, values.reshape(-1))
        return
    # ufunc.at is slow beyond one dimension: sum runs of equal rows, then add each once.
    order = rows.argsort(kind="stable")
    ordered = rows[order]
    first = np.empty(len(rows), bool)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = first.nonzero()[0]
    if len(starts) == len(rows):
        out[rows] += values
        return
    out[ordered[starts]] += np.add.reduceat(values[order], starts, axis=0, dtype=out.dtype)


def _tuple_of(indices: Any, where: tuple[int, ...]) -> tuple[Any, ...]:
    """Index arrays at their dimensions, full slices elsewhere."""
    if where == (0,):
        return (indices[0],)
    places: list[Any] = [FULL] * ((where[-1] + 1) if where else 0)
    for dim, index in zip(where, indices, strict=True):
        places[dim] = index
    return tuple(places)


def _add_at(x: np.ndarray, values: np.ndarray, indices: Any, where: Any) -> np.ndarray:
    """A copy of ``x`` with values added at the indices, row by row."""
    rank = x.ndim
    rest = [d for d in range(rank) if d not in where]
    order = [*where, *rest]
    sizes = [x.shape[d] for d in where]
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    rows = np.zeros(shape, np.int64)
    for size, index in zip(sizes, indices, strict=True):
        _check_bounds(index, size)
        rows = rows * size + np.where(index < 0, index + size, index)
    # The dimensions of the result of indexing: together in place, or else in front.
    together = all(b == a + 1 for a, b in itertools.pairwise(where))
    at = where[0] if together else 0
    kept = [x.shape[d] for d in rest]
    full = (*kept[:at], *shape, *kept[at:])
    values = np.broadcast_to(values, full)
    values = np.moveaxis(values, range(at, at + len(shape)), range(len(shape)))
    count = 1
    for n in kept:
        count *= n
    out = np.array(x.transpose(order), order="C")
    flat = out.reshape(-1, count) if out.size else out.reshape(int(np.prod(sizes)), count)
    add_rows(flat, rows.reshape(-1), values.reshape(rows.size, count))
    return np.ascontiguousarray(out.transpose(np.argsort(order)))


def _check_bounds(index: np.ndarray, size: int) -> None:
    known = index.size and not lacks_values(index)
    if known and (int(index.max()) >= size or int(index.min()) < -size):
        bad = index[(index >= size) | (index < -size)].reshape(-1)[0]
        raise IndexError(f"index {bad} is out of bounds for dimension with size {size}")


def _index_put(
    x: np.ndarray, values: np.ndarray, *indices: np.ndarray, where: Any, accumulate: bool
) -> np.ndarray:
    values = np.asarray(values).astype(x.dtype, copy=False)
    if accumulate:
        return _add_at(x, values, indices, where)
    out = np.array(x)
    out[_tuple_of(indices, where)] = values
    return out


def _index(x: np.ndarray, *indices: np.ndarray, where: tuple[int, ...]) -> np.ndarray:
    if not where or not where[0]:
        return x[_tuple_of(indices, where)]
    # NumPy would put the indexed dimensions outermost in memory, and then views fail.
    if len(where) == 1:
        return x.take(indices[0], where[0])
    return np.ascontiguousarray(x[_tuple_of(indices, where)])


def _index_batch(b: BatchedCall) -> Any:
    """Rows by index arrays: of each example by its own indices, or by those of all."""
    where = b.attrs["where"]
    at, together = where[0], all(d == where[0] + k for k, d in enumerate(where))
    if not together:
        return each(b)
    if not any(b.on[1:]):
        return b.run(*b.args, where=tuple(d + 1 for d in where))
    rank = max(x._a.ndim for x in b.logical[1:])
    indices = [b.aligned(k, rank) for k in range(1, len(b.args))]
    if not b.on[0]:
        return b.run(b.args[0], *indices, where=where).movedim(at, 0)
    rows = wrap(np.arange(b.size).reshape(b.size, *(1,) * rank))
    out = b.run(b.args[0], rows, *indices, where=(0, *(d + 1 for d in where)))
    if not at or not rank:
        return out
    return out.movedim(tuple(range(1, 1 + rank)), tuple(range(1 + at, 1 + at + rank)))


def _index_put_batch(b: BatchedCall) -> Any:
    """Values written or added at index arrays, which are each example's own or those of all."""
    where, indices = b.attrs["where"], b.logical[2:]
    at, together = where[0], all(d == where[0] + k for k, d in enumerate(where))
    if not together or not b.size or any(i._a.dtype.kind == "b" for i in indices):
        return each(b)
    shape = np.broadcast_shapes(*(i._a.shape for i in indices))
    own, rank = b.logical[0]._a.shape, len(shape)
    values = b.lead(1)
    wanted = (*own[:at], *shape, *own[at + len(where) :])
    missing = (1,) * (len(wanted) + 1 - values._a.ndim)
    values = values.reshape(b.size, *missing, *values._a.shape[1:])
    behind = tuple(d + 1 for d in where)
    if not any(b.on[2:]):
        return b.run(b.lead(0), values, *b.args[2:], **{**b.attrs, "where": behind})
    # With the number of the example before them the index arrays stand apart, and so what
    # they choose stands in front.
    values = values.expand(b.size, *wanted)
    if at and rank:
        values = values.movedim(tuple(range(1 + at, 1 + at + rank)), tuple(range(1, 1 + rank)))
    rows = wrap(np.arange(b.size).reshape(b.size, *(1,) * rank))
    chosen = [aligned(b.lead(k), rank) for k in range(2, len(b.args))]
    return b.run(b.lead(0), values, rows, *chosen, **{**b.attrs, "where": (0, *behind)})


def _index_backward_batch(b: BatchedCall) -> Any:
    """The backward of an index: its gradient is added into zeros."""
    zeros = wrap(np.zeros((b.size, *b.attrs["shape"]), plain(b.logical[0]._a.dtype)))
    put = BatchedCall.of(index_put_op, b, (zeros, *b.args), (True, *b.on))
    put.attrs = {"where": b.attrs["where"], "accumulate": True}
    return _index_put_batch(put)


# Index arrays stand at the dimensions in ``where``; the others are taken whole.
index_op = linear(
    "index",
    _index,
    lambda g, x_shape, rest, where: index_back_op(g, *rest, shape=x_shape, where=where),
    samples=lambda m: [
        Sample((m.real(4, 3), m.integers(5, high=4)), {"where": (0,)}),
        Sample((m.real(4, 3), m.integers(2, 2, low=-3, high=3)), {"where": (1,)}),
        Sample((m.real(4, 3, 2), m.integers(2, high=4), m.integers(2, high=2)), {"where": (0, 2)}),
        Sample((m.real(2, 4, 3), m.integers(2, high=4), m.integers(2, high=3)), {"where": (1, 2)}),
    ],
    shape=shape_rules.indexed,
    batch=_index_batch,
)
index_back_op: Op = linear(
    "index_backward",
    lambda g, *indices, shape, where: _add_at(np.zeros(shape, g.dtype), g, indices, where),
    lambda g, rest, where: index_op(g, *rest, where=where),
    samples=lambda m: [
        Sample((m.real(5, 3), m.integers(5, high=4)), {"shape": (4, 3), "where": (0,)})
    ],
    shape=shape_rules.shape_attribute,
    batch=_index_backward_batch,
)


def _index_put_self(g: Any, rest: Any, where: Any, accumulate: bool) -> Any:
    if accumulate:
        return g
    return index_put_op(g, zeros_of(g, ()), *rest, where=where, accumulate=False)


index_put_op = linear(
    "index_put",
    _index_put,
    _index_put_self,
    lambda g, rest, where: index_op(g, *rest, where=where),
    names=("x", "values"),
    together=True,
    layout="first",
    samples=lambda m: [
        Sample(
            (m.real(4, 3), m.real(2, 3), np.array([2, 0])), {"where": (0,), "accumulate": False}
        ),
        Sample((m.real(4, 3), m.real(2, 3), np.array([2, 2])), {"where": (0,), "accumulate": True}),
        Sample((m.real(4, 3), m.real(), np.array([2, 0])), {"where": (1,), "accumulate": False}),
    ],
    shape=shape_rules.indexed_put,
    batch=_index_put_batch,
)


# --- reading an index expression -------------------------------------------------------


def _plain_slice(part: slice) -> slice:
    """A slice of Python ints, refused if it would run backwards."""
    start, stop, step = (
        None if e is None else operator.index(e) for e in (part.start, part.stop, part.step)
    )
    if step is not None and step <= 0:
        what = "slice step cannot be zero" if not step else "step must be greater than zero"
        raise ValueError(f"{what}, got {step}; use flip()\n  at {errors.here()}")
    return slice(start, stop, step)


def _simple(key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """A key of ints, slices, None and Ellipsis as NumPy takes it; None for other keys."""
    dots = False
    for part in key:
        kind = part.__class__
        if kind is slice:
            for end in (part.start, part.stop):
                if end is not None and end.__class__ is not int:
                    return None
            step = part.step
            if step is not None and (step.__class__ is not int or step <= 0):
                return None
        elif part is Ellipsis:
            if dots:
                return None
            dots = True
        elif kind is not int and part is not None:
            return None
    return key if dots else (*key, ...)


def parse(x: Tensor, key: Any) -> tuple[tuple[Any, ...], list[Any], tuple[int, ...]]:
    """An index as a basic part, then index tensors and the dimensions they apply to.

    Ints, slices, None and Ellipsis act first, as views. Tensors (masks turned into
    positions) then index the dimensions that are left.
    """
    shape = x._a.shape
    parts = _spread_dots([_normal(p) for p in _parts(key)], len(shape), shape)
    basic: list[Any] = []
    indices: list[Any] = []
    where: list[int] = []
    dim = source = 0
    for part in parts:
        if part is None:
            basic.append(None)
            dim += 1
        elif part.__class__ is int:
            _check_range(part, source, shape)
            basic.append(part)
            source += 1
        elif part.__class__ is slice:
            basic.append(part)
            dim, source = dim + 1, source + 1
        elif not _is_mask(part):
            basic.append(FULL)
            indices.append(part)
            where.append(dim)
            dim, source = dim + 1, source + 1
        else:
            mask = host(part) != 0
            _check_mask(mask, source, shape)
            found = mask.nonzero() if mask.ndim else (np.zeros(int(mask), np.int64),)
            positions = [beside(part, index) for index in found]
            if MODES.now.recorders and mask.ndim:
                # As an op, so that a replay with other values finds other positions.
                positions = list(REGISTRY["nonzero"](part).unbind(1))
            for index in positions:
                basic.append(FULL if mask.ndim else None)
                indices.append(index)
                where.append(dim)
                dim += 1
            source += mask.ndim
    return tuple(basic), indices, tuple(where)


def _parts(key: Any) -> Sequence[Any]:
    if isinstance(key, tuple):
        return key
    if isinstance(key, list) and len(key) < 32:
        nested = (Tensor, np.ndarray, list, tuple, slice)
        if any(isinstance(p, nested) or p is None or p is Ellipsis for p in key):
            warnings.warn(
                "Using a non-tuple sequence for multidimensional indexing is deprecated; use "
                "x[tuple(seq)] instead of x[seq]",
                UserWarning,
                stacklevel=4,
            )
            return key
    return (key,)


def _spread_dots(parts: list[Any], rank: int, shape: Any) -> list[Any]:
    used = sum(_consumes(p) for p in parts)
    if used > rank:
        if not rank and parts[0].__class__ is int:
            raise IndexError(
                "invalid index of a 0-dim tensor. Use `tensor.item()` to convert a 0-dim tensor "
                f"to a Python number\n  at {errors.here()}"
            )
        raise IndexError(
            f"too many indices for tensor of dimension {rank}: {used} given for shape "
            f"{list(shape)}\n  at {errors.here()}"
        )
    spread: list[Any] = []
    for part in parts:
        if part is Ellipsis:
            spread += [FULL] * (rank - used)
            used = rank
        else:
            spread.append(part)
    return spread


def _normal(part: Any) -> Any:
    kind = part.__class__
    if kind is int or part is None or part is Ellipsis:
        return part
    if kind is slice:
        return _plain_slice(part)
    if kind is bool:
        return wrap(np.asarray(part))
    if isinstance(part, Tensor):
        return _index_tensor(part)
    if isinstance(part, np.ndarray):
        return _index_tensor(wrap(part))
    if isinstance(part, (list, tuple, range)):
        return _index_tensor(wrap(_array_of_list(part)))
    if isinstance(part, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{kind.__name__}'\n  at {errors.here()}")
    if hasattr(part, "__index__") and not isinstance(part, np.bool_):
        return part.__index__()
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {kind.__name__})\n  at {errors.here()}"
    )


def _array_of_list(values: Any) -> np.ndarray:
    if any(lacks_values(v) for v in values):
        raise no_values("indexing by a list of tensors")
    array = np.asarray([host(v) if isinstance(v, Tensor) else v for v in values])
    if array.dtype.kind not in "iubf":
        raise TypeError(
            f"an index list must hold ints or bools, not {array.dtype}\n  at {errors.here()}"
        )
    return array if array.dtype.kind == "b" else array.astype(np.int64)


def _index_tensor(part: Tensor) -> Any:
    d = part._a.dtype
    if d is dt.I64 or d == np.int64 or d == np.int32:
        return part if part._a.ndim or is_batched(part) else int(taken(part))
    if d.kind == "b":
        return part
    if d == np.uint8:
        if part._a.ndim:
            errors.warn(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                "instead."
            )
        return part
    if d.kind in "iu" and not part._a.ndim:
        return int(taken(part))
    raise IndexError(
        "tensors used as indices must be long, int, byte or bool tensors, not "
        f"{d.name}; convert it with .long()\n  at {errors.here()}"
    )


def _is_mask(part: Tensor) -> bool:
    return part._a.dtype.kind == "b" or part._a.dtype == np.uint8


def _is_one_mask(key: Any) -> bool:
    """Whether all that an index has of tensors is one mask."""
    parts = key if key.__class__ in (tuple, list) else (key,)
    found = [p for p in parts if isinstance(p, (Tensor, np.ndarray, list))]
    if len(found) != 1 or isinstance(found[0], list):
        return False
    return found[0].dtype == np.bool_ if isinstance(found[0], np.ndarray) else _is_mask(found[0])


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis:
        return 0
    return part._a.ndim if isinstance(part, Tensor) and _is_mask(part) else 1


def _check_range(index: int, dim: int, shape: tuple[int, ...]) -> None:
    size = shape[dim]
    if not -size <= index < size:
        if not -(2**63) <= index < 2**63:
            raise ValueError(f"index {index} does not fit in 64 bits\n  at {errors.here()}")
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


# --- reading ---------------------------------------------------------------------------


@api.method(name="__getitem__")
def getitem(self: Tensor, key: Any) -> Tensor:
    """``x[key]``."""
    kind = key.__class__
    if kind is int:
        shape = self._a.shape
        if shape and -shape[0] <= key < shape[0]:
            index = key if key >= 0 else key + shape[0]
            return apply_view(select_op, self, {"dim": 0, "index": index})
    elif kind is tuple or kind is slice or key is None or key is Ellipsis:
        simple = _simple(key if kind is tuple else (key,))
        if simple is not None:
            return apply_view(slice_op, self, {"index": simple})
    elif kind is Tensor and key._a.dtype is dt.I64 and key._a.ndim and self._a.ndim:
        return apply(index_op, (self, key), {"where": (0,)})
    basic, indices, where = parse(self, key)
    if not indices:
        return slice_op(self, index=(*basic, ...))
    return index_op(_seen(self, basic), *indices, where=where)


def _seen(x: Tensor, basic: tuple[Any, ...]) -> Tensor:
    """The view that the basic part of an index makes; the tensor itself if it takes all."""
    for part in basic:
        if part.__class__ is not slice or part != FULL:
            return slice_op(x, index=(*basic, ...))
    return x


def _chooses(key: Any) -> bool:
    """Whether a mask without values is part of an index."""
    parts = key if isinstance(key, tuple) else (key,)
    return any(isinstance(p, Tensor) and p.is_meta and _is_mask(p) for p in parts)


# --- writing ---------------------------------------------------------------------------


@api.method(name="__setitem__")
def setitem(self: Tensor, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    kind = key.__class__
    simple = _simple(key if kind is tuple else (key,))
    if simple is None:
        if self.is_meta and _chooses(key):
            # Which elements are written is not known, and not needed either.
            number = value if isinstance(value, Tensor) and not value.ndim else 0
            apply_inplace(fill_op, (self, number), {})
            return
        basic, indices, where = parse(self, key)
    else:
        basic, indices, where = simple, [], ()
    if not isinstance(value, Tensor):
        if not isinstance(value, (int, float, complex, np.number, np.bool_)):
            raise TypeError(
                f"can't assign a {type(value).__name__} to a torch.{type_name(self)}; make a "
                f"tensor of it with torch.as_tensor(...)\n  at {errors.here()}"
            )
        if indices or self._a.dtype in dt.HALF:
            value = wrap(_number(value, self._a.dtype))
    if indices:
        _check_put_dtype(self, value, key)
        value = _read_once(self, _without_lead(value), key)
        _put(_seen(self, basic), value, indices, where, accumulate=False)
        return
    index = basic if simple is not None else (*basic, ...)
    if _write_plainly(self, index, value) or _write_rows(self, index, value):
        return
    # ``x[...] = value`` changes x itself, as in PyTorch, and no view of it.
    target = self if takes_all(self._a.shape, index) else slice_op(self, index=index)
    if isinstance(value, Tensor):
        if value._a.shape != target._a.shape:
            value = _without_lead(value)
            make_views(value, target)
            if value._vc is target._vc:
                value = value.expand(target.shape)  # one element may be written over its like
        apply_inplace(copy_op, (target, value), {})
    else:
        check_overlap(target, "setitem")
        apply_inplace(fill_op, (target, value), {})


def takes_all(shape: tuple[int, ...], index: tuple[Any, ...]) -> bool:
    """Whether an index with one Ellipsis takes every dimension whole, and in a way that shows."""
    at = index.index(Ellipsis)
    later = index[at + 1 :]
    if len(index) - 1 > len(shape):
        return False
    sizes = (*shape[:at], *shape[len(shape) - len(later) :])
    for part, size in zip((*index[:at], *later), sizes, strict=True):
        if part.__class__ is not slice or part.start or part.step not in (None, 1):
            return False
        if part.stop is not None and part.stop < size:
            return False
    return True


def _write_plainly(x: Tensor, index: tuple[Any, ...], value: Any) -> bool:
    """Write into a part when nothing is recorded and nothing can go wrong; else say no."""
    now = MODES.now
    if now.mode is SPECIAL or (
        now.mode is not OFF and (x._node is not None or x._base is not None)
    ):
        return False
    array = x._a
    if 0 in array.strides or not (x._vc.__class__ is list or now.inference):
        return False
    kind = value.__class__
    if kind is int or kind is float:
        if array.dtype is not dt.F32 and array.dtype is not dt.F64:
            return False
        if not -3e38 < value < 3e38:
            return False  # may not fit
        new: Any = value
    elif kind is Tensor and value._vc is not x._vc and (now.mode is OFF or value._node is None):
        new = value._a
        if new.dtype is not array.dtype or value._base is not None or not x.is_cpu:
            return False
    else:
        return False
    try:
        part = array[index]
    except IndexError:
        return False
    if kind is Tensor and new.shape != part.shape:
        return False
    if LISTENERS:
        announce(array, x)
    part[...] = new
    bump(x, "fill" if kind is not Tensor else "copy")
    return True


MOST_BYTES = 1 << 20  # of a tensor that is recomputed for a write of some rows


def _write_rows(x: Tensor, index: tuple[Any, ...], value: Any) -> bool:
    """Write along one dimension for a compiled region, if all is plain; else say no.

    It makes one new value of the whole tensor, at places that are a tensor: where they change from
    call to call, the region need not learn a different path.
    """
    now = MODES.now
    if len(now.recorders) != 1 or not now.recorders[0].follows:
        return False
    found = _rows_of(x.shape, index)
    kind = value.__class__
    if found is None or not _may_be_renewed(x) or (kind is Tensor and not _fits(value, x)):
        return False
    dim, rows, alone = found
    name = "copy"
    if kind is not Tensor:
        if kind not in (int, float) or not -3e38 < value < 3e38:
            return False
        name, value = "fill", wrap(np.array(value, x._a.dtype))
    shape = [len(rows) if k == dim else n for k, n in enumerate(x.shape)]
    part = [n for k, n in enumerate(shape) if not alone or k != dim]
    if len(value.shape) > len(part) or any(
        n not in (1, m) for n, m in zip(value.shape[::-1], part[::-1], strict=False)
    ):
        return False
    source = value.expand(part).unsqueeze(dim) if alone else value.expand(part)
    places = wrap(np.array(rows))
    api.change_by(x, name, lambda x: apply(REGISTRY["index_copy"], (x, source, places),
                                           {"dim": dim}), (), {})  # fmt: skip
    return True


def _rows_of(shape: tuple[int, ...], index: tuple[Any, ...]) -> tuple[int, range, bool] | None:
    """The dimension along which an index takes a part, which part, and whether that is an int."""
    if None in index or len(index) - 1 > len(shape):
        return None
    at = index.index(Ellipsis)
    parts = [*index[:at], *[FULL] * (len(shape) - len(index) + 1), *index[at + 1 :]]
    found = None
    for dim, (part, size) in enumerate(zip(parts, shape, strict=True)):
        alone = part.__class__ is int
        rows = range(size)[part : part + 1 or None] if alone else range(*part.indices(size))
        if not rows or (alone and not -size <= part < size):
            return None
        if alone or len(rows) < size:
            if found is not None:
                return None
            found = dim, rows, alone
    return found


def _may_be_renewed(x: Tensor) -> bool:
    """Whether a tensor is small, no view, and without a history."""
    if x.requires_grad or x.nbytes > MOST_BYTES or 0 in x.stride() or x.dtype not in WRITABLE:
        return False
    region = region_of(x)
    return x._base is None if region is None else region.owns(x)


def _fits(value: Tensor, x: Tensor) -> bool:
    """Whether a value can be written as it is, and has no memory of the tensor."""
    plain = value.dtype is x.dtype and not (MODES.now.grad and value.requires_grad)
    return plain and value.is_cpu and not same_memory(value, x)


def _number(value: Any, dtype: np.dtype) -> np.ndarray:
    # What is beyond the range of a half type becomes infinite here, and only here.
    if dtype in dt.HALF and not isinstance(value, complex):
        return cast(np.array(value, np.float64), dtype)
    return number_for(value, dtype)


def _check_put_dtype(target: Tensor, value: Tensor, key: Any = None) -> None:
    if value._a.dtype == target._a.dtype:
        return
    if value._a.size == 1 and _is_one_mask(key):
        return  # as masked_fill: a single value may be of any type
    raise RuntimeError(
        "Index put requires the source and destination dtypes match, got "
        f"{target.dtype.name} for the destination and {value.dtype.name} for the source.\n"
        f"  at {errors.here()}"
    )


def _read_once(target: Tensor, value: Tensor, key: Any) -> Tensor:
    """A value to put; as in masked_fill, a single one may be an element of the tensor itself."""
    single = value._vc is target._vc and value._a.size == 1 and _is_one_mask(key)
    return value.clone() if single else value


def _without_lead(value: Tensor) -> Tensor:
    """Without leading dimensions of length one: PyTorch lets a value have more of them."""
    shape = value._a.shape
    extra = 0
    while extra < len(shape) and shape[extra] == 1:
        extra += 1
    return value.reshape(shape[extra:]) if extra else value


def _put(target: Tensor, value: Tensor, indices: Any, where: Any, accumulate: bool) -> Tensor:
    """``index_put_``; straight into the memory when there is nothing to record."""
    mode = MODES.now.mode
    if value._a.dtype != target._a.dtype:
        value = value.to(target.dtype)
    make_views(target, value, *indices)
    for x in (value, *indices):
        if x._vc is target._vc:
            check_shared(target._a, x._a, "index_put_", at_all=True)
    free = mode is OFF or (
        mode is not SPECIAL and edge_of(target) is None and edge_of(value) is None
    )
    if accumulate or not free or not target.is_cpu:
        attrs = {"where": where, "accumulate": accumulate}
        return apply_inplace(index_put_op, (target, value, *indices), attrs)
    check_change(target, "index_put_")
    if mode is not OFF:
        check_writable(target, False, "index_put")
    if 0 in target._a.strides:
        warn_expanded(target, "index_put")
    arrays = [i._a for i in indices]
    source = value._a
    if np.may_share_memory(source, target._a):
        source = source.copy()
    announce(target._a, target)
    try:
        # NumPy checks all indices and the shapes before it writes.
        target._a[_tuple_of(arrays, where)] = source
    except (IndexError, ValueError) as error:
        raise errors.explain(error, "index_put", [target._a, source, *arrays], {}) from None
    bump(target, "index_put")
    return target


def _put_arguments(input: Tensor, indices: Any, values: Any) -> tuple[Any, Any]:
    if isinstance(indices, Tensor) or not isinstance(indices, (tuple, list)):
        raise TypeError(
            "index_put(): argument 'indices' must be tuple of Tensors, not "
            f"{type(indices).__name__}\n  at {errors.here()}"
        )
    if not isinstance(values, Tensor):
        raise TypeError(
            f"index_put(): argument 'values' must be Tensor, not {type(values).__name__}\n"
            f"  at {errors.here()}"
        )
    if not indices:
        raise RuntimeError(
            f"index_put(): no index was given, so there is no place for a value of shape "
            f"{list(values._a.shape)}; use copy_ or fill_\n  at {errors.here()}"
        )
    parts = []
    for k, index in enumerate(indices):
        if index is not None and not isinstance(index, Tensor):
            raise TypeError(
                f"expected Tensor as element {k} in argument 0, but got {type(index).__name__}\n"
                f"  at {errors.here()}"
            )
        # A zero-dim index stays an index here: it is not a select.
        zero_dim = index is not None and not index._a.ndim and index._a.dtype.kind == "i"
        parts.append(FULL if index is None else index.reshape(1) if zero_dim else index)
    _check_put_dtype(input, values, indices)
    _, found, where = parse(input, tuple(parts))
    if found:
        rank = input._a.ndim - len(found) + max(i._a.ndim for i in found)
        if values._a.ndim > rank:
            raise RuntimeError(
                f"shape mismatch: value tensor of shape {list(values._a.shape)} cannot be "
                f"broadcast to indexing result of {rank} dimensions\n  at {errors.here()}"
            )
    return found, where


@api.both
def index_put(input: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """A copy with values put (or added) at the indices."""
    found, where = _put_arguments(input, indices, values)
    if not found:
        return input.clone()
    return index_put_op(input, values, *found, where=where, accumulate=bool(accumulate))


@api.method
def index_put_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    """Put (or add) values at the indices, in place."""
    found, where = _put_arguments(self, indices, values)
    if not accumulate:
        values = _read_once(self, values, indices)
    return _put(self, values, found, where, bool(accumulate)) if found else self


api.top(index_put_)
