"""Storages: the memory behind tensors, as bytes or as elements of one type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from weft.core import device as dev
from weft.core import dtype as dt
from weft.core.tensor import Tensor, storage_array


def memory_of(array: np.ndarray) -> np.ndarray:
    """All bytes of the memory that an array lies in, without a copy."""
    owner = storage_array(array)
    order = sorted(range(owner.ndim), key=lambda i: -abs(owner.strides[i]))
    rows = owner.transpose(order)
    if rows.flags.c_contiguous:
        return rows.reshape(-1).view(np.uint8)
    # Memory lent by another library may have gaps; the bytes between belong to it all the same.
    span = sum((n - 1) * s for n, s in zip(owner.shape, owner.strides, strict=True))
    whole = np.lib.stride_tricks.as_strided(owner, (1,), (owner.itemsize,)).view(np.uint8)
    return np.lib.stride_tricks.as_strided(whole, (span + owner.itemsize,), (1,))


class UntypedStorage:
    """The bytes behind one or more tensors."""

    def __init__(self, *args: Any, device: Any = None) -> None:
        if device is not None:
            dev.present(device)
        first = args[0] if args else 0
        if isinstance(first, int):
            self._memory = np.empty(first, np.uint8)
        else:
            self._memory = np.array([int(v) & 255 for v in first], np.uint8)

    @classmethod
    def _over(cls, memory: np.ndarray) -> Any:
        made = object.__new__(cls)
        made._memory = memory
        return made

    def _bytes(self) -> np.ndarray:
        return self._memory

    @property
    def device(self) -> dev.device:
        """Where the memory is."""
        return dev.CPU

    is_cuda = is_hpu = is_sparse = False

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
        """The address of the first byte."""
        return self._memory.__array_interface__["data"][0] if self._memory.size else 0

    def tolist(self) -> list[int]:
        """The bytes as a list of ints."""
        return self._memory.tolist()

    def __iter__(self) -> Iterator[int]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        found = self._memory[index]
        return type(self)._over(found) if isinstance(index, slice) else int(found)

    def __setitem__(self, index: Any, value: Any) -> None:
        self._memory[index] = value

    def fill_(self, value: int) -> UntypedStorage:
        """Set every byte."""
        self._memory[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> UntypedStorage:
        """Overwrite with another storage's bytes."""
        self._memory[...] = source._bytes()
        return self

    def clone(self) -> UntypedStorage:
        """A copy with memory of its own."""
        return type(self)._over(self._memory.copy())

    def cpu(self) -> UntypedStorage:
        """The storage on the CPU, where it is."""
        return self

    def resize_(self, size: int) -> UntypedStorage:
        """Another length; tensors on the old memory keep it."""
        grown = np.empty(size, np.uint8)
        kept = min(size, self._memory.size)
        grown[:kept] = self._memory[:kept]
        self._memory = grown
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
        rows = "\n".join(f" {v}" for v in self.tolist())
        return f"{rows}\n[torch.storage.UntypedStorage(device=cpu) of size {self.size()}]"


class TypedStorage:
    """The memory behind a tensor as elements of its dtype."""

    def __init__(
        self, *args: Any, wrap_storage: UntypedStorage | None = None, dtype: Any = None,
        device: Any = None, _internal: bool = False,
    ) -> None:  # fmt: skip
        self.dtype: dt.dtype = dtype or dt.get_default_dtype()
        if wrap_storage is not None:
            self._untyped_storage = wrap_storage
            return
        first = args[0] if args else 0
        values = np.empty(first, self.dtype.np) if isinstance(first, int) else (
            np.array(list(first), self.dtype.np)
        )  # fmt: skip
        self._untyped_storage = UntypedStorage._over(values.view(np.uint8))

    def _bytes(self) -> np.ndarray:
        return self._untyped_storage._bytes()

    def _values(self) -> np.ndarray:
        return self._bytes().view(self.dtype.np)

    def untyped(self) -> UntypedStorage:
        """The same memory as bytes."""
        return self._untyped_storage

    @property
    def device(self) -> dev.device:
        """Where the memory is."""
        return dev.CPU

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
        values = self._values()
        return (values.astype(np.float32) if values.dtype.kind == "V" else values).tolist()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __getitem__(self, index: Any) -> Any:
        return self._values()[index].item()

    def __setitem__(self, index: Any, value: Any) -> None:
        self._values()[index] = value

    def fill_(self, value: Any) -> TypedStorage:
        """Set every element."""
        self._values()[...] = value
        return self

    def copy_(self, source: Any, non_blocking: bool = False) -> TypedStorage:
        """Overwrite with another storage's elements."""
        self._values()[...] = source._values()
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
        return self

    def is_shared(self) -> bool:
        """Whether other processes share the memory: never."""
        return False

    def pickle_storage_type(self) -> str:
        """The legacy name of a storage of this dtype."""
        return STORAGE_NAMES[self.dtype.name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedStorage) and self.data_ptr() == other.data_ptr()

    def __hash__(self) -> int:
        return hash(self.data_ptr())

    def __repr__(self) -> str:
        rows = "\n".join(f" {v}" for v in self.tolist())
        return (
            f"{rows}\n[torch.storage.TypedStorage(dtype={self.dtype!r}, device=cpu) of size "
            f"{self.size()}]"
        )


STORAGE_NAMES = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage", "uint8": "ByteStorage", "int8": "CharStorage",
    "int16": "ShortStorage", "int32": "IntStorage", "int64": "LongStorage",
    "bool": "BoolStorage", "complex64": "ComplexFloatStorage",
    "complex128": "ComplexDoubleStorage",
}  # fmt: skip


def _legacy(name: str, dtype: dt.dtype) -> type[TypedStorage]:
    def create(cls: type, *args: Any, **kwargs: Any) -> TypedStorage:
        return TypedStorage(*args, dtype=dtype, **kwargs)

    return type(name, (TypedStorage,), {"__new__": create, "dtype": dtype, "__module__": "torch"})


LEGACY = {name: _legacy(name, dt.BY_NAME[d]) for d, name in STORAGE_NAMES.items()}


def untyped_of(tensor: Tensor) -> UntypedStorage:
    """The bytes behind a tensor."""
    return UntypedStorage._over(memory_of(tensor._a))
