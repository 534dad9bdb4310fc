"""Views by explicit strides, and complex numbers as pairs."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import dtype as dt
from weft.core import errors
from weft.core.batching import BatchedCall, each
from weft.core.dispatch import Op
from weft.core.shapes import ShapeDtype
from weft.core.tensor import Tensor, dense, storage_array, strided
from weft.operators import api, batch_rules, shape_rules
from weft.operators.build import Sample, linear
from weft.operators.views import BY_PLACE, in_place_view, stack_op

# --- explicit strides ------------------------------------------------------------------


def _as_strided(x: np.ndarray, size: Any, stride: Any, storage_offset: int | None) -> np.ndarray:
    owner, width = storage_array(x), x.itemsize
    start = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    if storage_offset is not None:
        start = storage_offset * width
    last = start + sum((n - 1) * s * width for n, s in zip(size, stride, strict=True))
    if 0 not in size and last + width > owner.nbytes:
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset "
            f"{start // width}, and itemsize {width} requiring a storage size of {last + width} "
            f"are out of bounds for storage of size {owner.nbytes}"
        )
    steps = tuple(s * width for s in stride)
    if 0 in size and x.__class__ is np.ndarray:
        return np.lib.stride_tricks.as_strided(x, size, steps)
    rows = dense(owner)  # memory is the same in any order of its dimensions
    if rows is None:
        rows = owner
    return rows.__class__(size, x.dtype, rows, 0 if 0 in size else start, steps)


def strided_places(size: Any, stride: Any, offset: int) -> np.ndarray:
    """For each element of a strided view, its place in memory."""
    places = np.full(size, offset, np.int64)
    for dim, (n, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * s).reshape((n,) + (1,) * (len(size) - dim - 1))
    return places


def _common_places(
    shape: Any, layout: Any, size: Any, stride: Any, offset: int
) -> tuple[np.ndarray, np.ndarray]:
    """The places of a view and of its input, counted from the lower of their starts."""
    start = min(offset, 0)
    return strided_places(size, stride, offset - start), strided_places(shape, layout, -start)


def _as_strided_back(
    g: np.ndarray, shape: Any, layout: Any, size: Any, stride: Any, offset: int
) -> np.ndarray:
    places, own = _common_places(shape, layout, size, stride, offset)
    span = int(max(places.max(initial=-1), own.max(initial=-1))) + 1
    memory = np.zeros(span, g.dtype)
    np.add.at(memory, places.ravel(), g.ravel())
    # An input that itself overlaps shares each place's gradient among its elements.
    counts = np.zeros(span, np.int64)
    np.add.at(counts, own.ravel(), 1)
    return (memory[own] / counts[own]).astype(g.dtype) if own.size else np.zeros(shape, g.dtype)


def _as_strided_batch(b: BatchedCall) -> Any:
    """Places in memory: every example has its own."""
    b.args[0] = b.args[0].contiguous()
    rows = [b.run(b.args[0].select(0, i).clone(), **b.attrs) for i in range(b.size)]
    return stack_op(*rows, dim=0) if rows else each(b)


as_strided_op = linear(
    "as_strided",
    lambda x, size, stride, storage_offset, layout: _as_strided(x, size, stride, storage_offset),
    lambda g, x_shape, size, stride, storage_offset, layout: as_strided_back_op(
        g,
        shape=x_shape,
        layout=layout[0],
        size=size,
        stride=stride,
        offset=(layout[1] if storage_offset is None else storage_offset) - layout[1],
    ),
    view=True,
    samples=lambda m: [
        Sample(
            (m.real(4, 3),),
            {"size": (2, 2), "stride": (3, 2), "storage_offset": 1, "layout": ((3, 1), 0)},
        )
    ],
    shape=lambda size: tuple(size),
    batch=_as_strided_batch,
)


def _as_strided_again(g: Any, shape: Any, layout: Any, size: Any, stride: Any, offset: int) -> Any:
    places, own = _common_places(shape, layout, size, stride, offset)
    span = int(max(places.max(initial=-1), own.max(initial=-1))) + 1
    flat = np.full(span, -1, np.int64)
    flat[own.ravel()] = np.arange(own.size)
    return take_flat_op(g, places=flat[places])


as_strided_back_op: Op = linear(
    "as_strided_backward",
    _as_strided_back,
    _as_strided_again,
    samples=lambda m: [
        Sample(
            (m.real(2, 2),),
            {"shape": (4, 3), "layout": (3, 1), "size": (2, 2), "stride": (3, 2), "offset": 1},
        )
    ],
    shape=shape_rules.shape_attribute,
)


def _shown_by_place(x: Any, size: Any, stride: Any, storage_offset: int | None, layout: Any) -> Any:
    steps, start = layout
    offset = 0 if storage_offset is None else storage_offset - start
    return _as_strided_again(x, tuple(x.shape), steps, size, stride, offset)


BY_PLACE["as_strided"] = _shown_by_place


def _take_flat(x: np.ndarray, places: np.ndarray) -> np.ndarray:
    taken = x.reshape(-1)[places]
    return np.where(places < 0, np.zeros((), x.dtype), taken)


def _put_flat(g: np.ndarray, shape: Any, places: np.ndarray) -> np.ndarray:
    out = np.zeros(int(np.prod(shape)), g.dtype)
    seen = places >= 0
    np.add.at(out, places[seen], g[seen])
    return out.reshape(shape)


take_flat_op = linear(
    "take_flat",
    _take_flat,
    lambda g, x_shape, places: put_flat_op(g, shape=x_shape, places=places),
    grad_name="TakeBackward",
    samples=lambda m: [Sample((m.real(2, 3),), {"places": np.array([[0, 5], [-1, 5]])})],
    shape=lambda places: places.shape,
)
put_flat_op: Op = linear(
    "put_flat",
    _put_flat,
    lambda g, places: take_flat_op(g, places=places),
    grad_name="PutBackward",
    samples=lambda m: [
        Sample((m.real(2, 2),), {"shape": (2, 3), "places": np.array([[0, 5], [-1, 5]])})
    ],
    shape=shape_rules.shape_attribute,
)


@api.both
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view by explicit sizes and strides into the storage."""
    sizes, strides = api.shape_argument((size,)), api.shape_argument((stride,))
    if len(sizes) != len(strides):
        raise RuntimeError(
            f"mismatch in length of strides and shape: {strides} and {sizes}\n  at {errors.here()}"
        )
    if any(s < 0 for s in strides):
        raise RuntimeError(
            "as_strided: Negative strides are not supported at the moment, got strides: "
            f"{list(strides)}\n  at {errors.here()}"
        )
    layout = (input.stride(), input.storage_offset())
    return as_strided_op(
        input, size=sizes, stride=strides, storage_offset=storage_offset, layout=layout
    )


in_place_view("as_strided_", as_strided)

# --- complex numbers as pairs ----------------------------------------------------------


def _view_as_real(x: np.ndarray) -> np.ndarray:
    part = x.real
    if not x.ndim:
        return x.reshape(1).view(part.dtype)
    if x.flags.c_contiguous:  # a single element's real part alone would look contiguous as well
        return x.__class__((*x.shape, 2), part.dtype, x, 0, (*x.strides, part.itemsize))
    return strided(part, (*x.shape, 2), (*x.strides, part.itemsize))


def _view_as_complex(x: np.ndarray) -> np.ndarray:
    wide = 2 * x.itemsize
    if x.strides[-1] != x.itemsize or any(s % wide for s in x.strides[:-1]):
        x = x.copy()  # a gradient, whose layout does not matter
    kind = dt.C64 if x.dtype == np.float32 else dt.C128
    if not x.size:
        return x.__class__(x.shape[:-1], kind, x)
    return x.view(kind)[..., 0]


view_as_real_op = linear(
    "view_as_real",
    _view_as_real,
    lambda g: view_as_complex_op(g),
    view=True,
    samples=lambda m: [
        Sample((m.real(3) + 1j * m.real(3),)),
        Sample(((m.real(2, 3) + 1j * m.real(2, 3)).T,)),
    ],
    shape=lambda x: ShapeDtype((*x.shape, 2), shape_rules.real(x.dtype)),
    batch=batch_rules.leading,
)
view_as_complex_op: Op = linear(
    "view_as_complex",
    _view_as_complex,
    lambda g: view_as_real_op(g),
    view=True,
    samples=lambda m: [Sample((m.real(3, 2),))],
    shape=lambda x: ShapeDtype(x.shape[:-1], shape_rules.complex_of(x.dtype)),
    batch=batch_rules.leading,
)


@api.top
def view_as_real(input: Tensor) -> Tensor:
    """A complex tensor as pairs of real numbers, in a last dimension."""
    if not input.is_complex():
        raise RuntimeError(
            f"view_as_real is only supported for complex tensors, not {input.dtype}\n"
            f"  at {errors.here()}"
        )
    return view_as_real_op(input)


@api.top
def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of real numbers, in the last dimension, as complex ones."""
    array = input._a
    if array.dtype not in (np.float32, np.float64):
        raise RuntimeError(
            "view_as_complex is only supported for float and double tensors, but got a tensor of "
            f"scalar type: {input.dtype.name}\n  at {errors.here()}"
        )
    strides = input.stride()
    if not array.ndim:
        wrong = "Input tensor must have one or more dimensions"
    elif array.shape[-1] != 2:
        wrong = "Tensor must have a last dimension of size 2"
    elif strides[-1] != 1:
        wrong = "Tensor must have a last dimension with stride 1"
    elif any(s % 2 for s in strides[:-1]):
        wrong = "Tensor must have a stride divisible by 2 for all but last dimension"
    elif input.storage_offset() % 2:
        wrong = "Tensor must have a storage_offset divisible by 2"
    else:
        return view_as_complex_op(input)
    raise RuntimeError(f"{wrong}; call contiguous() first\n  at {errors.here()}")
