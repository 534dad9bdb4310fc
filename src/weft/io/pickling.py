"""Pickles with PyTorch's names in them, written without PyTorch."""

from __future__ import annotations

import inspect
import io
import pickle
from collections import OrderedDict
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.devices import DeviceArray, address_of, host_of
from weft.core.meta import plain
from weft.core.size import Size
from weft.core.storage import STORAGE_NAMES, TypedStorage, UntypedStorage, memory_of
from weft.core.tensor import Layout, Parameter, Tensor, storage_array, values_of_slots


class Named:
    """Something that is in a file by its name alone."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} is a name for files only")


_UTILS = "torch._utils"
_TENSOR_V2 = Named(_UTILS, "_rebuild_tensor_v2")
_TENSOR_V3 = Named(_UTILS, "_rebuild_tensor_v3")
_META_TENSOR = Named(_UTILS, "_rebuild_meta_tensor_no_storage")
_PARAMETER = Named(_UTILS, "_rebuild_parameter")
_PARAMETER_WITH_STATE = Named(_UTILS, "_rebuild_parameter_with_state")
_TYPED = Named("torch._tensor", "_rebuild_from_type_v2")
_LAYOUT = Named("torch.serialization", "_get_layout")
_DEVICE, _SIZE = Named("torch", "device"), Named("torch", "Size")
_UNTYPED = Named("torch.storage", "UntypedStorage")
_STORAGES = {d: Named("torch", name) for d, name in STORAGE_NAMES.items()}
_DTYPES = {d: Named("torch", d.name) for d in dt.ALL}
_CLASSES = {
    Tensor: Named("torch", "Tensor"),
    Parameter: Named("torch.nn.parameter", "Parameter"),
    Size: _SIZE,
    dev.device: _DEVICE,
    dt.dtype: Named("torch", "dtype"),
}


_PLAIN = frozenset({int, float, bool, type(None)})
_LIST_START = b"]q\x00"  # an empty list, remembered as number 0


class Memories:
    """The pieces of memory behind all tensors of a file, each once, numbered as they come."""

    def __init__(self) -> None:
        self.by_address: dict[tuple[int, int], int] = {}
        self.bytes: list[np.ndarray] = []
        self.types: list[str] = []
        self.copies: dict[int, tuple[Any, np.ndarray]] = {}  # of the memory of other devices

    def on_host(self, array: Any) -> np.ndarray:
        """An array in the host's memory; what shares memory on a device shares it there too."""
        if not isinstance(array, DeviceArray):
            return array
        owner = storage_array(array)
        if id(owner) not in self.copies:
            self.copies[id(owner)] = owner, memory_of(host_of(owner))
        memory = self.copies[id(owner)][1]
        start = address_of(array) - address_of(owner) if array.size else 0
        return np.ndarray(array.shape, plain(array.dtype), memory, start, array.strides)

    def place(self, array: np.ndarray) -> tuple[int, int, tuple[int, ...]]:
        """The number of an array's memory, and its offset and strides there in elements."""
        width = array.itemsize
        memory, strides = _memory(array), array.strides
        regular = all(s >= 0 and s % width == 0 for s in strides)
        start = _address(array) - _address(memory)
        if not array.size or not regular or memory.size % width or start % width:
            array = _contiguous(array)
            memory, strides, start = memory_of(array), array.strides, 0
        number = self.number(memory, dt.OF_NUMPY[array.dtype].name)
        if not array.size:
            return number, 0, _usual_strides(array.shape)
        return number, start // width, tuple(s // width for s in strides)

    def widths(self) -> list[int]:
        """Bytes of the unit in which each memory is counted: of an element, or one."""
        return [dt.BY_NAME[n].itemsize if n in STORAGE_NAMES else 1 for n in self.types]

    def number(self, memory: np.ndarray, type_name: str) -> int:
        """The number of a piece of memory, which is new or has been seen with the same type."""
        key = (_address(memory), memory.size)
        number = self.by_address.get(key) if memory.size else None
        if number is None:
            number = len(self.bytes)
            self.bytes.append(memory)
            self.types.append(type_name)
            self.by_address[key] = number
        elif self.types[number] != type_name:
            raise RuntimeError(
                "Cannot save multiple tensors or storages that view the same data as different "
                f"types: here {self.types[number]} and {type_name}. Clone one of them first"
            )
        return number


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _memory(array: np.ndarray) -> np.ndarray:
    # NumPy's as_strided puts an object of its own between a view and its owner.
    while array.base is not None:
        base = array.base
        if not isinstance(base, np.ndarray):
            base = getattr(base, "base", None)
            if not isinstance(base, np.ndarray):
                break
        array = base
    return memory_of(array)


def _contiguous(array: np.ndarray) -> np.ndarray:
    return np.array(array, order="C", copy=True)


def _usual_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= max(length, 1)
    return tuple(reversed(strides))


class TorchPickler(pickle._Pickler):  # type: ignore[name-defined]
    """Python's own pickler in Python: the faster one insists that it can import every name."""

    dispatch: dict[type, Any] = dict(pickle._Pickler.dispatch)  # type: ignore[attr-defined]

    def __init__(self, file: Any, protocol: int, memories: Memories, legacy: bool = False) -> None:
        super().__init__(file, protocol)
        self.memories, self.legacy = memories, legacy
        self.with_source: set[type] = set()

    def persistent_id(self, obj: Any) -> Any:
        """Storages are not part of the pickle; it holds their numbers."""
        if self.legacy and isinstance(obj, type):
            return self._module_id(obj)
        if isinstance(obj, _Stored):
            number, name, size = obj.number, obj.type_name, obj.size
        elif isinstance(obj, (UntypedStorage, TypedStorage)):
            name = obj.dtype.name if isinstance(obj, TypedStorage) else ""
            memory = self.memories.on_host(obj._bytes())
            number, size = self.memories.number(memory, name or "uint8"), obj.size()
        else:
            return None
        kind = _STORAGES.get(name, _UNTYPED)
        if kind is _UNTYPED and name:
            size *= dt.BY_NAME[name].itemsize
        found = ("storage", kind, str(number), str(obj.device), size)
        return (*found, None) if self.legacy else found

    def _module_id(self, kind: type) -> Any:
        """In the older format the class of a module is there with its source, once."""
        from weft.nn.module import Module

        if kind in self.with_source or not issubclass(kind, Module):
            return None
        self.with_source.add(kind)
        try:
            return "module", kind, inspect.getsourcefile(kind), inspect.getsource(kind)
        except (OSError, TypeError):
            return "module", kind, None, None  # made where there is no file

    def reducer_override(self, obj: Any) -> Any:
        """How weft's own objects look in PyTorch's files."""
        if isinstance(obj, Tensor):
            return self._reduce_tensor(obj)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        if isinstance(obj, dev.device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, Layout):
            return _LAYOUT, (repr(obj),)
        return NotImplemented

    def _reduce_tensor(self, obj: Tensor) -> tuple[Any, ...]:
        if obj.is_sparse:
            return obj.__reduce_ex__(self.proto)  # which refuses
        kind, state = type(obj), dict(obj.__dict__)
        slots = values_of_slots(obj)
        if kind is Parameter:
            arguments: tuple[Any, ...] = (obj.data, obj.requires_grad, OrderedDict())
            if state:
                return _PARAMETER_WITH_STATE, (*arguments, state)
            return _PARAMETER, arguments
        if obj.is_meta:
            arguments = (_DTYPES[obj.dtype], tuple(obj._a.shape), obj.stride(), obj.requires_grad)
            if kind is Tensor and not state:
                return _META_TENSOR, arguments
            return _TYPED, (_META_TENSOR, kind, arguments, (state, slots) if slots else state)
        number, offset, strides = self.memories.place(self.memories.on_host(obj._a))
        name = obj.dtype.name
        size = self.memories.bytes[number].size // obj.itemsize
        stored = _Stored(number, name, size, obj.device)
        arguments = (stored, offset, tuple(obj._a.shape), strides, obj.requires_grad, OrderedDict())
        function = _TENSOR_V2
        if name not in _STORAGES:
            function, arguments = _TENSOR_V3, (*arguments, _DTYPES[obj.dtype])
        if kind is Tensor and not state:
            return function, arguments
        return _TYPED, (function, kind, arguments, (state, slots) if slots else state)

    def save_named(self, obj: Named) -> None:
        """Write a name."""
        if self.proto >= 4:
            self.save(obj.module)
            self.save(obj.name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    def save_dtype(self, obj: dt.dtype) -> None:
        """Write a dtype by its name."""
        self.save(_DTYPES[obj])

    def save_type(self, obj: type) -> None:
        """Write a class by its name, and weft's by PyTorch's."""
        if obj in _CLASSES:
            self.save(_CLASSES[obj])
        else:
            super().save_type(obj)

    def save_list(self, obj: list[Any]) -> None:
        """Write a list; one of numbers only is left to the fast pickler, which numbers nothing."""
        if self.proto >= 4 or len(obj) < 2 or not _PLAIN.issuperset(map(type, obj)):
            super().save_list(obj)
            return
        body = pickle.dumps(obj, self.proto)
        self.write(pickle.EMPTY_LIST)
        self.memoize(obj)
        self.write(body[body.index(_LIST_START) + len(_LIST_START) : -1])

    dispatch[list] = save_list
    dispatch[Named] = save_named
    dispatch[dt.dtype] = save_dtype
    dispatch[type] = save_type
    dispatch[type(Tensor)] = save_type


class _Stored:
    """The storage of a tensor while it is written."""

    def __init__(self, number: int, type_name: str, size: int, device: dev.device) -> None:
        self.number, self.type_name, self.size, self.device = number, type_name, size, device


def dumps(obj: Any, protocol: int, memories: Memories, legacy: bool = False) -> bytes:
    """An object as a pickle; the memory behind its tensors is gathered in ``memories``."""
    buffer = io.BytesIO()
    TorchPickler(buffer, protocol, memories, legacy).dump(obj)
    return buffer.getvalue()
