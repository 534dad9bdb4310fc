"""What Python's own pickles hold of tensors where ``import torch`` means weft.

They hold PyTorch's names, so that PyTorch reads them, and weft reads those of PyTorch's.
"""

from __future__ import annotations

import io
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from weft.core import dtype as dt
from weft.core.device import device as Device
from weft.core.devices import address_of
from weft.core.storage import STORAGE_NAMES, TypedStorage, UntypedStorage, untyped_of
from weft.core.tensor import Layout, Parameter, Tensor, values_of_slots
from weft.io import rebuild
from weft.operators.casting import contiguous_format, memory_format
from weft.operators.random import Generator


def _load_from_bytes(b: bytes) -> Any:
    """A storage from its bytes, read as a file whose names are not trusted."""
    import weft

    return weft.load(io.BytesIO(b), weights_only=True)


def _rebuild_tensor(storage: Any, storage_offset: Any, size: Any, stride: Any) -> Tensor:
    """A tensor on a storage."""
    return rebuild.rebuild_tensor(storage, storage_offset, size, stride)


def _rebuild_tensor_v2(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any,
    backward_hooks: Any, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor on a storage of its dtype."""
    return rebuild.rebuild_tensor_v2(
        storage, storage_offset, size, stride, requires_grad, backward_hooks, metadata
    )


def _rebuild_tensor_v3(
    storage: Any, storage_offset: Any, size: Any, stride: Any, requires_grad: Any,
    backward_hooks: Any, dtype: Any, metadata: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor on a storage of bytes."""
    return rebuild.rebuild_tensor_v3(
        storage, storage_offset, size, stride, requires_grad, backward_hooks, dtype, metadata
    )


def _rebuild_parameter(data: Any, requires_grad: Any, backward_hooks: Any) -> Any:
    """A parameter of a tensor."""
    return rebuild.rebuild_parameter(data, requires_grad, backward_hooks)


def _rebuild_parameter_with_state(
    data: Any, requires_grad: Any, backward_hooks: Any, state: Any
) -> Any:
    """A parameter of a tensor, with attributes of its own."""
    return rebuild.rebuild_parameter_with_state(data, requires_grad, backward_hooks, state)


def _rebuild_from_type_v2(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    """A tensor of a class of the program's, with attributes of its own."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if "__setstate__" in vars(new_type):
        made.__setstate__(state)
        return made
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    for name, value in {**(attributes or {}), **slots}.items():
        object.__setattr__(made, name, value)
    return made


def _get_layout(name: str) -> Layout:
    """The layout of a name."""
    return rebuild.get_layout(name)


# ------------------------------------------------------------------ the other way

_typed: weakref.WeakValueDictionary[tuple[int, str], Any] = weakref.WeakValueDictionary()


def _storage_of(tensor: Tensor, kind: dt.dtype) -> Any:
    """The storage of a tensor; the same object for tensors that share it."""
    untyped = untyped_of(tensor)
    if kind.name not in STORAGE_NAMES:
        return untyped
    found = _typed.get((id(untyped), kind.name))
    if found is None:
        found = TypedStorage(wrap_storage=untyped, dtype=kind)
        _typed[id(untyped), kind.name] = found
    return found


def reduce_tensor(self: Tensor, protocol: Any) -> tuple[Any, ...]:
    """A tensor in the form that PyTorch gives it."""
    kind, state = type(self), dict(self.__dict__)
    slots = values_of_slots(self)
    whole: Any = (state, slots) if slots else state
    if kind is Parameter:
        arguments: tuple[Any, ...] = (self.data, self.requires_grad, OrderedDict())
        if not state:
            return _rebuild_parameter, arguments
        return _rebuild_parameter_with_state, (*arguments, state)
    function, arguments = _parts(self)
    if kind is Tensor and not state:
        return function, arguments
    return _rebuild_from_type_v2, (function, kind, arguments, whole)


def _parts(self: Tensor) -> tuple[Any, tuple[Any, ...]]:
    array, dtype = self._a, self.dtype
    tensor, width = self, array.itemsize
    if any(s < 0 or s % width for s in array.strides):
        tensor = self.detach().as_subclass(Tensor).clone(memory_format=contiguous_format)
        array = tensor._a
    storage = _storage_of(tensor, dtype)
    memory = storage._bytes()
    start = address_of(array) - address_of(memory) if array.size else 0
    place = (storage, start // width, tuple(array.shape), tuple(tensor.stride()))
    if dtype.name in STORAGE_NAMES:
        return _rebuild_tensor_v2, (*place, self.requires_grad, OrderedDict())
    return _rebuild_tensor_v3, (*place, self.requires_grad, OrderedDict(), dtype)


def reduce_storage(self: Any) -> tuple[Any, ...]:
    """A storage as the bytes of a file that holds it."""
    import weft

    buffer = io.BytesIO()
    weft.save(self, buffer, _use_new_zipfile_serialization=False)
    return _load_from_bytes, (buffer.getvalue(),)


def reduce_generator(self: Generator) -> tuple[Any, ...]:
    """A generator as its device, and its seed and state."""
    return type(self), (self.device,), (self.initial_seed(), None, self.get_state())


def restore_generator(self: Generator, state: tuple[Any, Any, Tensor]) -> None:
    """Take over the state of another generator."""
    self.set_state(state[2])


def methods() -> Iterator[tuple[type, str, Any]]:
    """The methods that classes have instead of weft's own while ``import torch`` means weft."""
    yield Tensor, "__reduce_ex__", reduce_tensor
    yield UntypedStorage, "__reduce__", reduce_storage
    yield TypedStorage, "__reduce__", reduce_storage
    yield dt.dtype, "__reduce__", lambda self: self.name
    yield (
        Device,
        "__reduce__",
        lambda self: ((Device, (self.type,) if self.index is None else (self.type, self.index))),
    )
    yield Layout, "__reduce__", lambda self: (_get_layout, (repr(self),))
    yield memory_format, "__reduce__", lambda self: self.name
    yield Generator, "__reduce__", reduce_generator
    yield Generator, "__setstate__", restore_generator
