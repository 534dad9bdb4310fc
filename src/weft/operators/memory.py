"""The memory behind tensors: storages, another geometry in place, element-wise Python functions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft.core import errors, meta
from weft.core.devices import host, host_of, over_bytes, put_like, write_into
from weft.core.gate import announce, exchange
from weft.core.inference import check_change
from weft.core.inplace import bump, check_overlap, check_writable
from weft.core.meta import plain
from weft.core.modes import MODES
from weft.core.node import NOWHERE, AccumulateGrad
from weft.core.settings import undefined
from weft.core.storage import (
    LEGACY,
    STORAGE_NAMES,
    TypedStorage,
    UntypedStorage,
    memory_of,
    untyped_of,
)
from weft.core.tensor import Tensor, storage_array
from weft.native.memory.layout import channels_wanted, last_of, rows_of
from weft.operators import api, casting
from weft.operators.casting import (
    channels_last,
    channels_last_3d,
    check_format,
    contiguous_format,
    preserve_format,
    type_name,
)
from weft.operators.creation import build, sizes

api.FUNCTIONS.update(LEGACY)
api.FUNCTIONS["Storage"] = LEGACY["FloatStorage"]
api.FUNCTIONS.update({"TypedStorage": TypedStorage, "UntypedStorage": UntypedStorage})


@api.method
def untyped_storage(self: Tensor) -> UntypedStorage:
    """The bytes behind this tensor."""
    return untyped_of(self)


@api.method
def storage(self: Tensor) -> TypedStorage:
    """The memory behind this tensor as elements of its dtype."""
    return TypedStorage(wrap_storage=untyped_of(self), dtype=self.dtype)


api.method(storage, name="_typed_storage")


@api.method
def storage_type(self: Tensor) -> type:
    """The legacy class of this tensor's storage."""
    return LEGACY[STORAGE_NAMES[self.dtype.name]]


def _over(memory: np.ndarray, d: np.dtype, shape: Any, stride: Any, offset: int) -> np.ndarray:
    """An array with the given geometry on bytes; they must be long enough."""
    if 0 in shape:
        return over_bytes(memory, d, shape, tuple(s * d.itemsize for s in stride), 0)
    last = offset + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
    if (last + 1) * d.itemsize > memory.size:
        raise RuntimeError(
            f"setStorage: sizes {list(shape)}, strides {list(stride)}, storage offset {offset}, "
            f"and itemsize {d.itemsize} requiring a storage size of {(last + 1) * d.itemsize} are "
            f"out of bounds for storage of size {memory.size}\n  at {errors.here()}"
        )
    steps = tuple(s * d.itemsize for s in stride)
    return over_bytes(memory, d, shape, steps, offset * d.itemsize)


def _check_geometry(shape: Any, stride: Any, offset: int) -> None:
    """Before anything is changed: no lengths, steps or places below zero."""
    if len(shape) != len(stride):
        fault = f"unequal size length ({len(shape)}) and stride length ({len(stride)})"
    elif offset < 0:
        fault = f"Tensor: invalid storage offset {offset}"
    elif min(shape, default=0) < 0 or min(stride, default=0) < 0:
        fault = (
            f"Storage size calculation overflowed with sizes={list(shape)} and "
            f"strides={list(stride)}: none of them may be negative"
        )
    else:
        return
    raise RuntimeError(f"set_: {fault}\n  at {errors.here()}")


@api.method
def set_(
    self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None
) -> Tensor:
    """Take over another tensor's or storage's memory."""
    check_change(self, "set_")
    if MODES.now.grad:
        check_writable(self, self._node is not None, "set")
    _take_over(self, source, storage_offset, size, stride)
    leaf = self._node
    if isinstance(leaf, AccumulateGrad) and leaf is not NOWHERE:
        # What was computed from the old memory has no part in the gradient of the new one.
        self._node = AccumulateGrad(self)
        self._node.extras, self._node.post_accumulate = leaf.extras, leaf.post_accumulate
    return self


def _take_over(self: Tensor, source: Any, storage_offset: int, size: Any, stride: Any) -> None:
    if source is not None and source.device.type != self.device.type:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{self.device}" to a storage on '
            f'different device "{source.device}".  This is no longer allowed; the devices must '
            f"match.\n  at {errors.here()}"
        )
    if source is None:
        bump(self, "set")
        exchange(self, meta.filled(np.empty, (0,), self._a.dtype))
    elif getattr(source, "dtype", self.dtype) is not self.dtype:
        raise RuntimeError(
            f"Could not set {'tensor' if isinstance(source, Tensor) else 'storage'} of type "
            f"{source.dtype!r} to a tensor of type {self.dtype!r}: expected a Storage of type "
            f"{self.dtype!r} or an UntypedStorage\n  at {errors.here()}"
        )
    elif isinstance(source, Tensor) and size is None:
        bump(self, "set")
        exchange(self, source._a)
        self._vc = source._vc
    else:
        memory = memory_of(source._a) if isinstance(source, Tensor) else source._bytes()
        d = self._a.dtype
        shape = (memory.size // d.itemsize - storage_offset,) if size is None else sizes(
            (size,), "set_"
        )  # fmt: skip
        steps = rows_of(shape) if stride is None else tuple(stride)
        _check_geometry(shape, steps, storage_offset)
        last = sum((n - 1) * s for n, s in zip(shape, steps, strict=True))
        needed = 0 if 0 in shape else (storage_offset + last + 1) * d.itemsize
        if needed > memory.size and not isinstance(source, Tensor):
            source.untyped().resize_(needed)  # as in PyTorch, a storage grows to fit
            memory = source._bytes()
        bump(self, "set")
        exchange(self, _over(memory, d, shape, steps, storage_offset))
        if isinstance(source, Tensor):
            self._vc = source._vc


@api.method
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both share the same memory with the same geometry."""
    a, b = self._a, tensor._a
    same = a.shape == b.shape and self.stride() == tensor.stride()
    placed = self.data_ptr() == tensor.data_ptr() and storage_array(a) is storage_array(b)
    return same and placed and self.storage_offset() == tensor.storage_offset()


@api.method
def resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Another shape in place; memory is kept if it is large enough, its values in any case."""
    if self.requires_grad and not MODES.now.inference:
        raise RuntimeError(f"cannot resize variables that require grad\n  at {errors.here()}")
    shape = sizes(size, "resize_")
    if any(n < 0 for n in shape):
        raise RuntimeError(
            f"Trying to create tensor with negative dimension {min(shape)}: {list(shape)}\n"
            f"  at {errors.here()}"
        )
    last = memory_format in (channels_last, channels_last_3d)
    if last:
        check_format(shape, memory_format)
    if shape == self._a.shape and memory_format is None:
        return self
    check_change(self, "resize_")
    d, offset = self._a.dtype, self.storage_offset()
    memory = memory_of(self._a)
    needed = (offset + math.prod(shape)) * d.itemsize
    if needed > memory.size:
        if self.is_meta:
            grown: Any = meta.empty((needed,), meta.BYTES)
        else:
            grown = build(lambda *_: np.empty(needed, np.uint8), shape, d)
            grown[: memory.size] = host_of(memory)
            undefined(grown.view(plain(d))[-(-memory.size // d.itemsize) :])
            grown = put_like(memory, grown)
        memory = grown
    strides = (last_of if last else rows_of)(shape)
    made = build(lambda *_: _over(memory, d, shape, strides, offset), shape, d)
    changed = shape != self._a.shape
    exchange(self, made)
    if changed:
        bump(self, "resize")
    return self


@api.both
def resize_as_(self: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Another tensor's shape, in place."""
    template = the_template._a
    if memory_format is preserve_format:
        memory_format = contiguous_format
        if channels_wanted(template):
            memory_format = channels_last if template.ndim == 4 else channels_last_3d
    return resize_(self, tuple(template.shape), memory_format=memory_format)


@api.method
def resize(self: Tensor, *size: Any) -> Tensor:
    """This tensor in another shape of as many elements (an old name of reshape).

    >>> torch.arange(6).resize_(2, 3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    return self.reshape(*size)


def _check_plain(self: Tensor, name: str, written: bool = True) -> None:
    if self.requires_grad:
        raise RuntimeError(
            f"{name}: can't call it on a Variable that requires grad. Use "
            f"var.detach().{name}()\n  at {errors.here()}"
        )
    if written:
        check_change(self, name)
        check_overlap(self, name[:-1])


def _call_each(self: Tensor, name: str, function: Callable, *others: Tensor) -> Tensor:
    if self.is_meta:
        return self
    _check_plain(self, name)
    for i, other in enumerate(others):
        _check_plain(other, name, written=False)
        if other.dtype is not self.dtype:
            raise TypeError(
                f"{name}: expected torch.{type_name(self)} for argument {i + 1} (got "
                f"torch.{type_name(other)})\n  at {errors.here()}"
            )
    others = tuple(t.expand(self.shape) for t in others)
    columns = [host(t).ravel().tolist() for t in (self, *others)]
    values = [function(*row) for row in zip(*columns, strict=True)]
    for value in values:
        if isinstance(value, (str, bytes)):
            raise TypeError(
                f"{name}: the function must give a number, not {type(value).__name__}\n"
                f"  at {errors.here()}"
            )
    announce(self._a, self)
    write_into(self._a, np.array(values, self.dtype.np).reshape(self._a.shape))
    bump(self, name[:-1])
    return self


@api.method
def apply_(self: Tensor, callable: Callable) -> Tensor:
    """Replace each element by a Python function's value for it."""
    return _call_each(self, "apply_", callable)


@api.method
def map_(self: Tensor, tensor: Tensor, callable: Callable) -> Tensor:
    """Replace each element by ``callable(own, other)``."""
    return _call_each(self, "map_", callable, tensor)


@api.method
def map2_(self: Tensor, x: Tensor, y: Tensor, callable: Callable) -> Tensor:
    """Replace each element by ``callable(own, x, y)``."""
    return _call_each(self, "map2_", callable, x.expand(self.shape), y.expand(self.shape))


# --- small questions and functions that are also methods -------------------------------


@api.method
def resize_as(self: Tensor, tensor: Tensor) -> Tensor:
    """This tensor in another's shape of as many elements (an old name of reshape_as)."""
    return self.reshape(tensor.shape)


@api.method
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions in memory order, outermost first.

    With ``ambiguity_check`` an order that is not the only one is refused; a list names memory
    formats, exactly one of which the tensor may be in all the same.
    """
    listed = isinstance(ambiguity_check, list)
    if not isinstance(ambiguity_check, bool) and not (
        listed and all(isinstance(f, casting.memory_format) for f in ambiguity_check)
    ):
        raise TypeError(
            "The ambiguity_check argument must be a bool or a list of memory formats\n"
            f"  at {errors.here()}"
        )
    shape, strides = self._a.shape, self.stride()
    if listed or ambiguity_check:
        formats = ambiguity_check if listed else []
        several = 1 in shape or any(a == b for a, b in itertools.pairwise(strides))
        mapped = sum(self.is_contiguous(memory_format=f) for f in formats) == 1
        rows, last = (
            self.is_contiguous(memory_format=f) for f in (contiguous_format, channels_last)
        )
        alike = rows is last and (
            0 in strides or len(set(zip(shape, strides, strict=True))) < len(shape)
        )
        if alike or (several and not mapped):
            raise RuntimeError(
                "The tensor does not have unique dim order, or cannot map to exact one of the "
                f"given memory formats: shape {list(shape)}, strides {strides}\n"
                f"  at {errors.here()}"
            )
    return tuple(sorted(range(len(shape)), key=lambda i: (-strides[i], i)))


@api.both
def is_distributed(input: Tensor) -> bool:
    """Whether a tensor is spread over processes: never."""
    return False


@api.top
def get_device(input: Tensor) -> int:
    """The number of a tensor's device; -1 for the CPU."""
    return input.get_device()


@api.top
def typename(obj: Any) -> str:
    """The name of an object's type, with its module; for tensors the legacy name."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


for _name in ("detach", "detach_", "fill_", "zero_"):
    api.top(getattr(Tensor, _name), name=_name)
