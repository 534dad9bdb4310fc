"""Storages: the memory behind tensors, as bytes or as elements of one type."""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core import errors
from weft.core.devices import (
    DeviceArray,
    address_of,
    copy_of,
    device_of,
    host_of,
    moved,
    viewed_as,
    write_into,
)
from weft.core.gate import announce
from weft.core.meta import BYTES, NO_DATA, MetaArray, NoValues, empty
from weft.core.tensor import Tensor, copy_sharing, storage_array, wrap


def memory_of(array: Any) -> Any:
    """All bytes of the memory that an array is a view of, without a copy."""
    owner = storage_array(array)
    if isinstance(owner, DeviceArray):
        return owner.home.view(owner, BYTES, (owner.nbytes,), (1,), 0)
    order = sorted(range(owner.ndim), key=lambda i: -abs(owner.strides[i]))
    rows = owner.transpose(order)
    if rows.flags.c_contiguous:
        return rows.reshape(-1).view(BYTES)
    # Memory borrowed from another library may have gaps; the bytes in between belong to it
    # nevertheless.
    span = sum((n - 1) * s for n, s in zip(owner.shape, owner.strides, strict=True))
    whole = np.lib.stride_tricks.as_strided(owner, (1,), (owner.itemsize,)).view(np.uint8)
    return np.lib.stride_tricks.as_strided(whole, (span + owner.itemsize,), (1,))


class MappedFile(mmap.mmap):
    """A file in memory that knows its name if changes go to it."""

    path: str | None = None


def map_file(path: Any, shared: bool, size: int) -> np.ndarray:
    """The first bytes of a file without reading it; a shared file is made as long as needed."""
    name = os.fspath(path)
    mode = "read-write" if shared else "read-only"
    try:
        number = os.open(name, os.O_RDWR | os.O_CREAT if shared else os.O_RDONLY, 0o666)
    except OSError as error:
        raise RuntimeError(
            f"unable to open file <{name}> in {mode} mode: {error.strerror} ({error.errno})\n"
            f"  at {errors.here()}"
        ) from None
    with os.fdopen(number, "r+b" if shared else "rb") as file:
        there = os.fstat(file.fileno()).st_size
        if size < 0 or (size > there and not shared):
            raise RuntimeError(
                f"file <{name}> size <{there}> is smaller than the required mapping size <{size}>\n"
                f"  at {errors.here()}"
            )
        if size > there:
            file.truncate(size)
        if not size:
            return np.empty(0, np.uint8)
        access = mmap.ACCESS_WRITE if shared else mmap.ACCESS_COPY
        mapped = MappedFile(file.fileno(), size, access=access)
    mapped.path = os.fsdecode(name) if shared else None
    return np.frombuffer(mapped, np.uint8)


def file_behind(array: np.ndarray) -> MappedFile | None:
    """The memory-mapped file behind an array, if there is one."""
    owner: Any = array
    while owner is not None and not isinstance(owner, MappedFile):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def swap_bytes(memory: np.ndarray, dtype: dt.dtype) -> None:
    """Reverse the bytes of every element in place; for complex ones, of both parts."""
    width = dtype.itemsize // (2 if dtype.is_complex else 1)
    if memory.size % width:
        raise RuntimeError(
            f"the length of data is not a multiple of {width}: {memory.size} bytes of {dtype}\n"
            f"  at {errors.here()}"
        )
    if width > 1:
        rows = memory.reshape(-1, width)
        rows[...] = rows[:, ::-1].copy()


_set = object.__setattr__
# Storages by the array that owns their memory, so that a tensor gives the same one each time.
_LIVE: weakref.WeakValueDictionary[int, UntypedStorage] = weakref.WeakValueDictionary()

# What PyTorch's storage takes besides its memory, in ``sys.getsizeof``.
_OBJECT_SIZE = 32


class UntypedStorage:
    """The bytes behind one or more tensors."""

    # _memory   the bytes
    # _tensor   a weak reference to the tensor that was asked for this storage, or None
    # _pending  while a file is loaded, what else is made of the bytes
    __slots__ = ("__dict__", "__weakref__", "_memory", "_pending", "_tensor")
    _memory: np.ndarray
    _tensor: weakref.ref[Tensor] | None

    def __init__(self, *args: Any, device: Any = None) -> None:
        on_meta = device is not None and dev.present(device).type == "meta"
        first = args[0] if args else 0
        if isinstance(first, (int, np.integer)):
            if first < 0:
                raise RuntimeError(
                    f"torch.UntypedStorage(): there are no storages of negative size {first}\n"
                    f"  at {errors.here()}"
                )
            self._hold(empty((first,), BYTES) if on_meta else np.empty(first, np.uint8))
        elif on_meta:
            self._hold(empty((len(list(first)),), BYTES))
        else:
            self._hold(np.array([int(v) & 255 for v in first], np.uint8))

    @classmethod
    def _over(cls, memory: np.ndarray) -> Any:
        made = object.__new__(cls)
        made._hold(memory)
        return made

    @classmethod
    def _unknown(cls, memory: np.ndarray) -> Any:
        """A storage that tensors on its memory will not find, for code that creates thousands."""
        made = object.__new__(cls)
        _set(made, "_memory", memory)
        _set(made, "_tensor", None)
        return made

    def _hold(self, memory: np.ndarray) -> None:
        _set(self, "_memory", memory)
        _set(self, "_tensor", None)
        owner = storage_array(memory)
        if memory.nbytes == owner.nbytes:
            _LIVE[id(owner)] = self

    def __setattr__(self, name: str, value: Any) -> None:
        _set(self, name, value)
        if name not in UntypedStorage.__slots__ and self._tensor is not None:
            tensor = self._tensor()
            if tensor is not None:
                _keep(tensor, self)  # attributes last as long as the memory

    def _bytes(self) -> np.ndarray:
        return self._memory

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *,
        dtype: Any = None,
    ) -> Any:  # fmt: skip
        """A storage with a copy of the elements in a buffer, which are in the given byte order."""
        if not isinstance(dtype, dt.dtype):
            raise RuntimeError(f"argument 'dtype' cannot be None\n  at {errors.here()}")
        return cls._over(_copied(buffer, byte_order, count, offset, dtype))

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, nbytes: int = 0) -> Any:
        """A storage on a file's own bytes; changes reach the file only if it is shared."""
        return cls._over(map_file(filename, shared, nbytes))

    @property
    def filename(self) -> str | None:
        """The name of the file that the memory is shared with, if it is."""
        file = file_behind(self._memory)
        return None if file is None else file.path

    @property
    def _cdata(self) -> int:
        return id(storage_array(self._memory))

    def resizable(self) -> bool:
        """Whether the storage may be resized: not if another library or a file owns its memory."""
        return self._memory.__class__ is MetaArray or bool(
            storage_array(self._memory).flags.owndata
        )

    def byteswap(self, dtype: dt.dtype) -> None:
        """Reverse the bytes of all elements, interpreted as this dtype."""
        announce(self._memory)
        swap_bytes(self._memory, dtype)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of this kind of storage; another kind can't be asked for by name."""
        if dtype is None:
            return "torch.storage.UntypedStorage"
        raise RuntimeError(
            f"a storage of bytes can't be of type {dtype!r}; ask for .float() and the like\n"
            f"  at {errors.here()}"
        )

    def new(self) -> UntypedStorage:
        """An empty storage of the same kind."""
        return type(self)()

    def get_device(self) -> int | None:
        """The device index, which the CPU does not have."""
        return self.device.index

    def to(self, *, device: Any = "cpu", non_blocking: bool = False) -> UntypedStorage:
        """The storage on a device: the CPU, or meta, where it has a size and no bytes."""
        where = dev.present(device)
        if where.type == self.device.type:
            return self
        if where.type == "meta":
            return type(self)._over(empty((self.size(),), BYTES))
        _check_bytes(self)
        return type(self)._over(moved(self._memory, where.type))

    def __copy__(self) -> UntypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> UntypedStorage:
        if id(self) not in memo:
            memory = memo.setdefault("weft storages", {})  # type: ignore[call-overload]
            memo[id(self)] = type(self)._over(copy_sharing(self._memory, memory))
        return memo[id(self)]

    def __sizeof__(self) -> int:
        return _OBJECT_SIZE + self.size()

    @property
    def device(self) -> dev.device:
        """Where the memory is."""
        return device_of(self._memory)

    is_cuda = is_hpu = is_sparse = is_sparse_csr = False

    def untyped(self) -> UntypedStorage:
        """The storage itself."""
        return self

    def size(self) -> int:
        """The number of bytes."""
        return self._memory.size

    nbytes = __len__ = size

    def element_size(self) -> int:
        """Bytes of one element: one."""
        return 1

    def data_ptr(self) -> int:
        """The address of the first byte; 0 where there is none."""
        if not self._memory.size or self._memory.__class__ is MetaArray:
            return 0
        return address_of(self._memory)

    def tolist(self) -> list[int]:
        """The bytes as a list of ints."""
        _check_bytes(self)
        return host_of(self._memory).tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise RuntimeError(
                    f"Trying to slice with a step of {index.step}, but only a step of 1 is "
                    f"supported\n  at {errors.here()}"
                )
            part = self._memory[index]
            if type(part) is np.ndarray and part.size:
                # The part is a storage of its own: a tensor on it knows nothing of the whole.
                part = np.frombuffer(part.data, part.dtype)
            return type(self)._over(part)
        _check_bytes(self)
        return int(self._memory[_in_range(index, self.size())])

    def __setitem__(self, index: Any, value: Any) -> None:
        announce(self._memory)
        self._memory[index] = value

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        announce(self._memory)
        write_into(self._memory, np.asarray(value, np.uint8))
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Overwrite with another storage's bytes."""
        other = source._bytes()
        if other.size != self.size():
            raise RuntimeError(
                f"size does not match, self was {self.size()} bytes but src was {other.size} bytes"
                f"\n  at {errors.here()}"
            )
        announce(self._memory)
        write_into(self._memory, other)
        return self

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        return type(self)._over(copy_of(self._memory))

    def cpu(self) -> UntypedStorage:
        """The storage on the CPU, where it is."""
        return self.to(device="cpu")

    def resize_(self, size: int) -> UntypedStorage:
        """Another length; tensors on the old memory keep it."""
        if not self.resizable():
            raise RuntimeError(
                f"Trying to resize storage that is not resizable\n  at {errors.here()}"
            )
        if self._memory.__class__ is MetaArray:
            self._hold(empty((size,), BYTES))
            return self
        grown = np.empty(size, np.uint8)
        kept = min(size, self._memory.size)
        grown[:kept] = self._memory[:kept]
        self._hold(grown)
        return self

    def is_shared(self) -> bool:
        """Whether other processes share the memory: never."""
        return False

    is_pinned = is_shared

    def share_memory_(self) -> UntypedStorage:
        """The storage itself; worker processes get copies."""
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._memory is other._memory

    def __hash__(self) -> int:
        return id(self._memory)

    def __repr__(self) -> str:
        where = f"device={self.device}) of size {self.size()}]"
        return f"{_shown(self)}\n[torch.storage.UntypedStorage({where}"


def _check_bytes(storage: UntypedStorage | TypedStorage) -> None:
    if storage._bytes().__class__ is MetaArray:
        raise NoValues(f"Not available for 'meta' device type: {NO_DATA}\n  at {errors.here()}")


def _shown(storage: UntypedStorage | TypedStorage) -> str:
    if storage._bytes().__class__ is MetaArray:
        return "..."
    return "\n".join(f" {v}" for v in storage.tolist())


class TypedStorage:
    """The memory behind a tensor as elements of its dtype."""

    def __init__(
        self, *args: Any, wrap_storage: UntypedStorage | None = None, dtype: Any = None,
        device: Any = None, _internal: bool = False,
    ) -> None:  # fmt: skip
        self.dtype: dt.dtype = dtype or dt.get_default_dtype()
        on_meta = device is not None and dev.present(device).type == "meta"
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage
            return
        first = args[0] if args else 0
        if isinstance(first, np.integer):
            first = int(first)
        if not isinstance(first, int) and not hasattr(first, "__iter__"):
            raise TypeError(
                "TypedStorage.__init__ received an invalid combination of arguments: a size or a "
                f"sequence is needed, not {first!r}\n  at {errors.here()}"
            )
        if on_meta:
            count = first if isinstance(first, int) else len(list(first))
            values: np.ndarray = empty((count,), self.dtype.np)
        elif isinstance(first, int):
            values = np.empty(first, self.dtype.np)
        else:
            values = np.array(list(first), self.dtype.np)
        self._untyped_storage = UntypedStorage._over(values.view(BYTES))

    def _bytes(self) -> np.ndarray:
        return self._untyped_storage._bytes()

    def _values(self) -> np.ndarray:
        return viewed_as(self._bytes(), self.dtype.np)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    @classmethod
    def from_buffer(
        cls, buffer: Any, byte_order: str | None = None, count: int = -1, offset: int = 0, *,
        dtype: Any = None, device: Any = None,
    ) -> Any:  # fmt: skip
        """A storage with a copy of the elements in a buffer, which are in the given byte order."""
        own = cls._own_dtype
        if own is not None and dtype is not None:
            raise RuntimeError(
                "from_buffer: 'dtype' can only be specified in UntypedStorage.from_buffer and "
                f"TypedStorage.from_buffer\n  at {errors.here()}"
            )
        if device is not None:
            dev.present(device)
        chosen = own or dtype or dt.get_default_dtype()
        memory = _copied(buffer, byte_order, count, offset, chosen)
        return TypedStorage(wrap_storage=UntypedStorage._over(memory), dtype=chosen)

    _from_buffer = from_buffer

    @classmethod
    def from_file(cls, filename: Any, shared: bool = False, size: int = 0) -> Any:
        """A storage on a file's own elements; changes reach the file only if it is shared."""
        own = cls._own_dtype
        if own is None:
            raise RuntimeError(
                f"from_file can only be called on derived classes, such as torch.FloatStorage\n"
                f"  at {errors.here()}"
            )
        untyped = UntypedStorage.from_file(filename, shared, size * own.itemsize)
        return TypedStorage(wrap_storage=untyped, dtype=own)

    # The dtype of one of the legacy classes.
    _own_dtype: dt.dtype | None = None

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The legacy name of this storage's type; or its bytes as another type, if they fit."""
        if dtype is None:
            return f"torch.{STORAGE_NAMES.get(self.dtype.name, 'storage.TypedStorage')}"
        return self._untyped_storage.type(dtype)

    def resizable(self) -> bool:
        """Whether the storage may be resized: not if another library or a file owns its memory."""
        return self._untyped_storage.resizable()

    @property
    def filename(self) -> str | None:
        """The name of the file that the memory is shared with, if it is."""
        return self._untyped_storage.filename

    @property
    def _cdata(self) -> int:
        return self._untyped_storage._cdata

    def get_device(self) -> int | None:
        """The device index, which the CPU does not have."""
        return self.device.index

    def to(self, *, device: Any = "cpu", non_blocking: bool = False) -> TypedStorage:
        """The storage on a device: the CPU, or meta, where it has a size and no elements."""
        moved = self._untyped_storage.to(device=device)
        if moved is self._untyped_storage:
            return self
        return TypedStorage(wrap_storage=moved, dtype=self.dtype)

    def __copy__(self) -> TypedStorage:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> TypedStorage:
        untyped = self._untyped_storage.__deepcopy__(memo)
        return TypedStorage(wrap_storage=untyped, dtype=self.dtype)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes()

    @property
    def device(self) -> dev.device:
        """Where the memory is."""
        return self._untyped_storage.device

    is_cuda = is_sparse = False

    def size(self) -> int:
        """The number of elements."""
        return self._values().size

    __len__ = size

    def nbytes(self) -> int:
        """The number of bytes."""
        return self._untyped_storage.nbytes()

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._untyped_storage.data_ptr()

    def tolist(self) -> list[Any]:
        """The elements as a list of Python numbers."""
        _check_bytes(self)
        values = self._values()
        return (values.astype(np.float32) if values.dtype.kind == "V" else values).tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            raise RuntimeError(
                "slices are only supported in UntypedStorage.__getitem__; take .untyped() first\n"
                f"  at {errors.here()}"
            )
        _check_bytes(self)
        return self._values()[_in_range(index, self.size())].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        announce(self._bytes())
        self._values()[index] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element."""
        announce(self._bytes())
        self._values()[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """Overwrite with the bytes of a storage of the same length."""
        self._untyped_storage.copy_(source)
        return self

    def clone(self) -> TypedStorage:
        """A copy with memory of its own."""
        return TypedStorage(wrap_storage=self._untyped_storage.clone(), dtype=self.dtype)

    def resize_(self, size: int) -> TypedStorage:
        """Another length; tensors on the old memory keep it."""
        self._untyped_storage.resize_(size * self.dtype.itemsize)
        return self

    def cpu(self) -> TypedStorage:
        """The storage on the CPU, where it is."""
        return self.to(device="cpu")

    def is_shared(self) -> bool:
        """Whether other processes share the memory: never."""
        return False

    is_pinned = is_shared

    def share_memory_(self) -> TypedStorage:
        """The storage itself; worker processes get copies."""
        return self

    def pickle_storage_type(self) -> str:
        """The legacy name of a storage of this dtype."""
        return STORAGE_NAMES[self.dtype.name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        where = f"device={self.device}) of size {self.size()}]"
        return f"{_shown(self)}\n[torch.storage.TypedStorage(dtype={self.dtype!r}, {where}"


STORAGE_NAMES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage", "uint8": "ByteStorage", "int8": "CharStorage",
    "int16": "ShortStorage", "int32": "IntStorage", "int64": "LongStorage",
    "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip


class _LegacyMeta(type):
    """A storage is one of ``torch.FloatStorage`` if its elements are floats."""

    _own_dtype: dt.dtype

    def __instancecheck__(cls, instance: Any) -> bool:
        return type(instance) is TypedStorage and instance.dtype is cls._own_dtype


def _legacy(name: str, dtype: dt.dtype) -> type[TypedStorage]:
    def create(cls: type, *args: Any, **kwargs: Any) -> TypedStorage:
        if "dtype" in kwargs:
            raise RuntimeError(
                f"{cls!r}.__new__ received an invalid combination of arguments: its dtype is "
                f"{dtype!r}\n  at {errors.here()}"
            )
        return TypedStorage(*args, dtype=dtype, **kwargs)

    members = {"__new__": create, "dtype": dtype, "_own_dtype": dtype, "__module__": "torch"}
    return _LegacyMeta(name, (TypedStorage,), members)  # type: ignore[return-value]


LEGACY = {name: _legacy(name, dt.BY_NAME[d]) for d, name in STORAGE_NAMES.items()}

_CASTS = {
    "bool": "bool", "byte": "uint8", "char": "int8", "short": "int16", "int": "int32",
    "long": "int64", "half": "float16", "bfloat16": "bfloat16", "float": "float32",
    "double": "float64", "complex_float": "complex64", "complex_double": "complex128",
    "float8_e4m3fn": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
    "float8_e4m3fnuz": "float8_e4m3fnuz", "float8_e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip


def _cast_to(dtype: dt.dtype) -> Callable[[Any], TypedStorage]:
    def cast(self: Any) -> TypedStorage:
        values = wrap(self._values() if isinstance(self, TypedStorage) else self._bytes())
        memory = memory_of(values.to(dtype)._a.copy())
        return TypedStorage(wrap_storage=UntypedStorage._over(memory), dtype=dtype)

    cast.__doc__ = f"The elements converted to {dtype!r}."
    return cast


for _name, _dtype in _CASTS.items():
    for _kind in (UntypedStorage, TypedStorage):
        setattr(_kind, _name, _cast_to(dt.BY_NAME[_dtype]))


def _copied(
    buffer: Any, byte_order: str | None, count: int, offset: int, dtype: dt.dtype
) -> np.ndarray:
    """The bytes of a buffer in this machine's order, in memory of their own."""
    width = dtype.itemsize
    if byte_order is None and width > 1:
        raise RuntimeError(
            "from_buffer: function missing required argument 'byte_order' (pos 2): 'big', "
            f"'little' or 'native'\n  at {errors.here()}"
        )
    if byte_order not in (None, "big", "little", "native"):
        raise ValueError(
            f"invalid byte_order '{byte_order}' (expected 'big', 'little', or 'native')\n"
            f"  at {errors.here()}"
        )
    whole = memoryview(buffer).cast("B")
    if not 0 <= offset <= len(whole):
        raise ValueError(
            f"offset must be non-negative and no greater than buffer length ({len(whole)}), but "
            f"got {offset}\n  at {errors.here()}"
        )
    if count < 0:
        if (len(whole) - offset) % width:
            raise ValueError(
                f"buffer size ({len(whole) - offset}) must be a multiple of element size "
                f"({width})\n  at {errors.here()}"
            )
        count = (len(whole) - offset) // width
    if offset + count * width > len(whole):
        raise ValueError(
            f"buffer has only {len(whole) - offset} bytes after offset {offset}, but specified a "
            f"size of {count}\n  at {errors.here()}"
        )
    memory = np.frombuffer(whole[offset : offset + count * width], np.uint8).copy()
    if byte_order not in (None, "native", sys.byteorder):
        swap_bytes(memory, dtype)
    if dtype is dt.bool_:
        np.minimum(memory, 1, out=memory)
    return memory


def _in_range(index: Any, size: int) -> int:
    if not -size <= index < size:
        raise IndexError(
            f"index {index} out of range for storage of size {size}\n  at {errors.here()}"
        )
    return index


# ------------------------------------------------------------------ storages of tensors


def _keep(tensor: Tensor, storage: UntypedStorage) -> None:
    tensor._x = {**(tensor._x or {}), "storage": storage}


def untyped_of(tensor: Tensor) -> UntypedStorage:
    """The storage of a tensor; the same object as long as it is referenced."""
    owner = storage_array(tensor._a)
    found = _LIVE.get(id(owner))
    if found is None or storage_array(found._memory) is not owner:
        found = UntypedStorage._over(memory_of(tensor._a))
    found._tensor = weakref.ref(tensor)
    return found


def tensor_over(storage: Any, dtype: dt.dtype | None) -> Tensor:
    """A tensor on a storage's own memory; bytes can be taken as elements of any dtype."""
    own = storage.dtype if isinstance(storage, TypedStorage) else None
    if own is not None and dtype is not None and own is not dtype:
        raise RuntimeError(
            f"Expected a Storage of type {dtype!r} or an UntypedStorage, but got {own!r}\n"
            f"  at {errors.here()}"
        )
    chosen = dtype or own or dt.int64
    memory = storage._bytes()
    made = wrap(memory[: memory.size // chosen.itemsize * chosen.itemsize].view(chosen.np))
    untyped = storage.untyped()
    if type(untyped) is not UntypedStorage or untyped.__dict__:
        _keep(made, untyped)
    untyped._tensor = weakref.ref(made)
    return made
