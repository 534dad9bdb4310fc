"""Arrays without values: what a tensor on the ``meta`` device holds.

A ``MetaArray`` is an ndarray over addresses that are not backed by memory (a read-only mapping that
is never read), so its shape, strides, views, offsets and aliasing are an ordinary array's, and the
code for views serves both. Everything that would read or write elements is overridden: writing does
nothing, reading raises. Its dtype equals the ordinary one but is a different object, so the fast
paths through dispatch, which check ``dtype is F32``, decline it without an extra check.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, NoReturn

import numpy as np

from weft.core import dtype as dt
from weft.core.arrays import ForeignArray
from weft.native.memory.layout import dense_steps, geometry, rows_of

ndarray = np.ndarray
NO_DATA = "Cannot copy out of meta tensor; no data!"
BY_VALUE = (
    "the result depends on the values of a meta tensor, which has none. Make the tensor on the "
    "CPU, or call this outside of torch.device('meta')"
)
NO_ITEM = "Tensor.item() cannot be called on meta tensors"

# The dtypes of meta arrays, by the ordinary ones that they equal.
MARKED = {d: np.dtype(d, metadata={"device": "meta"}) for d in dt.OF_NUMPY}  # type: ignore[call-overload]
BYTES = np.dtype(np.uint8)

# Which address ranges are in use: dispatch looks for meta arrays only while there are any.
LIVE: set[int] = set()

# How a host array is copied to another device, by the device's name: see ``core.devices``.
ELSEWHERE: dict[str, Any] = {}


class Reservation(mmap.mmap):
    """A range of addresses without memory, kept for as long as an array uses it."""

    def __del__(self) -> None:
        LIVE.discard(id(self))


def reserve(count: int) -> Any:
    """A reserved range of so many addresses."""
    try:
        # Read-only pages need neither memory nor swap space.
        made = Reservation(-1, max(count, 1), flags=_PRIVATE, prot=mmap.PROT_READ)
    except (OSError, OverflowError, ValueError) as error:
        raise MemoryError(f"can't reserve {count} bytes of address space: {error}") from None
    LIVE.add(id(made))
    return made


_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def plain(d: np.dtype) -> np.dtype:
    """The ordinary dtype that a marked one equals."""
    return dt.OF_NUMPY[d].np


class NoValues(NotImplementedError):
    """The operation depends on values, and there are none."""


def no_values(name: str) -> NoValues:
    """The error for operations that need values."""
    return NoValues(f"{name}: {BY_VALUE}")


def lacks_values(x: Any) -> bool:
    """Whether a tensor or array is a meta one, or stands for a batch."""
    return isinstance(getattr(x, "_a", x), MetaArray)


class MetaArray(np.ndarray):
    """An array of which only shape, strides and dtype are known."""

    def __new__(
        cls, shape: Any, dtype: Any, buffer: Any = None, offset: int = 0, strides: Any = None
    ) -> Any:
        d = MARKED[np.dtype(dtype)]
        if buffer is None:
            # Every array in one range of addresses is a view of its bytes.
            count = _span(shape, d.itemsize, strides)
            buffer = ndarray.__new__(cls, (count,), MARKED[BYTES], reserve(count))
        elif isinstance(buffer, ndarray) and buffer.dtype.kind == "V":
            buffer = ndarray.view(buffer.reshape(-1), BYTES)  # such types offer no buffer
        return ndarray.__new__(cls, shape, d, buffer, offset, strides)

    def __array_finalize__(self, source: Any) -> None:
        if self.dtype.metadata is None and source is not None:
            ndarray.dtype.__set__(self, MARKED[self.dtype])  # type: ignore[attr-defined]

    # --- what needs no values ---

    is_batch = False  # whether this stands for the examples of a batch: see ``core.batching``

    def detached(self) -> Any:
        """The array of a tensor that is cut off from the graph."""
        return self

    def copy(self, order: Any = "C") -> Any:
        steps = dense_steps(self) if order in ("K", "A") else None
        return empty(self.shape, self.dtype, steps)

    __copy__ = copy

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy("K")

    def astype(self, dtype: Any, order: Any = "K", *_: Any, copy: Any = True, **more: Any) -> Any:  # type: ignore[override]
        if not copy and self.dtype == dtype:
            return self
        return empty(self.shape, np.dtype(dtype), dense_steps(self) if order == "K" else None)

    def view(self, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], np.dtype):
            return ndarray.view(self, MARKED[args[0]])
        return ndarray.view(self, *args, **kwargs)

    def reshape(self, *shape: Any, order: Any = "C", copy: Any = None) -> Any:
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        try:
            return ndarray.reshape(self, shape, copy=False)
        except ValueError:
            known = math.prod(n for n in shape if n != -1)
            if -1 in shape and known:
                shape = tuple(self.size // known if n == -1 else n for n in shape)
            if math.prod(shape) != self.size or copy is False:
                raise
            return empty(shape, self.dtype)

    def ravel(self, order: Any = "C") -> Any:
        return self.reshape(-1)

    def flatten(self, order: Any = "C") -> Any:
        return empty((self.size,), self.dtype)

    @property
    def real(self) -> Any:
        return ndarray.real.__get__(self)  # type: ignore[attr-defined]

    @property
    def imag(self) -> Any:
        return ndarray.imag.__get__(self)  # type: ignore[attr-defined]

    def conj(self) -> Any:
        return self.copy("K") if self.dtype.kind == "c" else self

    def fill(self, value: Any) -> None:
        pass

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        if any(isinstance(p, (ndarray, list, bool, np.bool_)) for p in parts):
            raise no_values("indexing by an array")
        if not any(p is Ellipsis for p in parts):
            parts = (*parts, ...)  # a view of one element and not the element
        return ndarray.__getitem__(self, parts)

    def __setitem__(self, key: Any, value: Any) -> None:
        if any(isinstance(p, (ndarray, list)) for p in (key if isinstance(key, tuple) else (key,))):
            return
        shape = self[key].shape
        given = getattr(value, "shape", ())
        if given != shape and np.broadcast_shapes(given, shape) != shape:
            raise ValueError(f"could not broadcast input array from shape {given} into {shape}")

    def __reduce__(self) -> Any:
        return _rebuilt, (self.shape, plain(self.dtype), geometry(self)[1])

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> NoReturn:
        raise no_values(ufunc.__name__)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        own = _FUNCTIONS.get(func)
        if own is not None:
            return own(*args, **kwargs)
        if func not in _SHAPES_ONLY:
            raise no_values(func.__name__)
        return ndarray.__array_function__(self, func, types, args, kwargs)

    # --- what does ---

    def item(self, *args: Any) -> NoReturn:
        raise NoValues(NO_ITEM)

    __bool__ = __int__ = __float__ = __complex__ = __index__ = item

    def tolist(self) -> NoReturn:
        raise NoValues(NO_DATA)

    tobytes = tofile = dump = dumps = __iter__ = tolist  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MetaArray({plain(self.dtype)}{list(self.shape)})"

    __str__ = __repr__


def _needs_values(name: str) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
        raise no_values(name)

    return method


for _name in (
    *("all", "any", "argmax", "argmin", "argpartition", "argsort", "byteswap", "choose", "clip"),
    *("compress", "cumprod", "cumsum", "dot", "max", "mean", "min", "nonzero", "partition", "prod"),
    *("put", "repeat", "round", "searchsorted", "sort", "std", "sum", "take", "trace", "var"),
):
    setattr(MetaArray, _name, _needs_values(_name))


def _span(shape: Any, size: int, strides: Any) -> int:
    """The bytes from the first element to the last of an array."""
    shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if any(n < 0 for n in shape):
        raise ValueError("negative dimensions are not allowed")
    count = math.prod(shape)
    if strides is not None and count:
        count = 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True)) // size
    if count * size >= 1 << 63 or math.prod(n or 1 for n in shape) * size >= 1 << 63:
        raise ValueError("array is too big")
    return count * size


def empty(shape: Any, d: np.dtype, steps: Any = None) -> MetaArray:
    """A meta array of a shape and dtype; with the given strides in elements, or in rows."""
    shape = tuple(shape)
    if steps is None or tuple(steps) == rows_of(shape):
        return MetaArray(shape, d)
    return MetaArray(shape, d, strides=tuple(s * d.itemsize for s in steps))


def like(x: np.ndarray) -> MetaArray:
    """A meta array of the geometry of another array."""
    shape, steps = geometry(x)
    return empty(shape, x.dtype, steps if x.size else None)


def filled(make: Any, shape: Any, d: np.dtype) -> np.ndarray:
    """``make(shape, d)``, or a meta array if the dtype is one of those."""
    if d.metadata is None:
        return make(shape, d)
    where = d.metadata["device"]
    if where == "meta":
        return empty(shape, d)
    made = make(shape, plain(d))
    return ELSEWHERE[where](made) if where in ELSEWHERE else made  # else: of a batch


def constant(x: Any, array: np.ndarray) -> np.ndarray:
    """A constant of a formula: unchanged, or without values if it is combined with a meta array."""
    held = getattr(x, "_a", x)
    if held.__class__ is MetaArray:
        return like(array)
    if isinstance(held, ForeignArray):
        return ELSEWHERE[held.dtype.metadata["device"]](array)  # type: ignore[index]
    return array


def any_meta(args: Any) -> bool:
    """Whether some of the values are meta arrays."""
    return any(isinstance(x, MetaArray) for x in args)


def _rebuilt(shape: Any, d: np.dtype, steps: Any) -> MetaArray:
    return empty(shape, d, steps)


# --- NumPy's functions -----------------------------------------------------------------


def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if np.broadcast_shapes(array.shape, shape) != shape:
        raise ValueError(
            "operands could not be broadcast together with remapped shapes [original->remapped]: "
            f"{array.shape} and requested shape {shape}"
        )
    lead = len(shape) - array.ndim
    strides = [0] * lead + [
        0 if n == 1 and m != 1 else s
        for n, m, s in zip(array.shape, shape[lead:], array.strides, strict=True)
    ]
    return over(array, shape, tuple(strides))


def over(array: MetaArray, shape: Any, strides: Any, shift: int = 0) -> MetaArray:
    """A view of a meta array's addresses by shape and byte strides, from its first element on."""
    owner: Any = array
    while isinstance(owner.base, ndarray):
        owner = owner.base
    start = array.__array_interface__["data"][0] - owner.__array_interface__["data"][0] + shift
    return ndarray.__new__(
        MetaArray, shape, array.dtype, owner, 0 if 0 in shape else start, strides
    )


def _copyto(dst: Any, src: Any, casting: Any = None, where: Any = True) -> None:
    if dst.__class__ is not MetaArray:
        raise NoValues(NO_DATA)
    if np.broadcast_shapes(np.shape(src), dst.shape) != dst.shape:
        raise ValueError(f"could not broadcast from shape {np.shape(src)} into {dst.shape}")


def _new_like(a: Any, dtype: Any = None, order: Any = "K", subok: Any = True, shape: Any = None,
              **more: Any) -> Any:  # fmt: skip
    d = a.dtype if dtype is None else np.dtype(dtype)
    if shape is not None:
        return empty((shape,) if isinstance(shape, int) else shape, d)
    return empty(a.shape, d, dense_steps(a) if order == "K" else None)


_FUNCTIONS: dict[Any, Any] = {
    np.broadcast_to: _broadcast_to,
    np.copyto: _copyto,
    np.empty_like: _new_like,
    np.zeros_like: _new_like,
    np.ones_like: _new_like,
    np.full_like: lambda a, value, *args, **kwargs: _new_like(a, *args, **kwargs),
    np.copy: lambda a, order="K", subok=False: a.copy(order),
}
_SHAPES_ONLY = frozenset(
    (
        *(np.moveaxis, np.swapaxes, np.expand_dims, np.squeeze, np.transpose, np.rollaxis),
        *(np.shape, np.ndim, np.size, np.diagonal, np.reshape, np.ravel, np.real, np.imag),
        *(np.may_share_memory, np.shares_memory, np.result_type, np.can_cast, np.iscomplexobj),
        *(np.split, np.array_split, np.isrealobj, np.atleast_1d, np.flip),
    )
)
