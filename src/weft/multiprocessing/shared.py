"""Memory that several processes see: files without a name, mapped by each of them."""

from __future__ import annotations

import mmap
import os
import tempfile
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import DeviceArray, cpu_array
from weft.core.gate import exchange
from weft.core.storage import memory_of
from weft.core.tensor import Tensor


class SharedMemory(mmap.mmap):
    """Mapped memory that knows the file behind it, so that it can be handed on."""

    number: int

    def __del__(self) -> None:
        os.close(self.number)


def map_file(number: int, size: int) -> SharedMemory:
    """Map a file of which the descriptor now belongs to the memory."""
    made = SharedMemory(number, size)
    made.number = number
    return made


def _new(size: int) -> SharedMemory:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("weft-tensor", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            number = os.dup(file.fileno())
    os.ftruncate(number, size)
    return map_file(number, size)


def memory_behind(array: np.ndarray) -> SharedMemory | None:
    """The shared memory that an array lies in, if it does."""
    owner: Any = array
    while owner is not None and not isinstance(owner, SharedMemory):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner


def is_shared(self: Tensor) -> bool:
    """Whether other processes can see this tensor's memory."""
    return not isinstance(self._a, DeviceArray) and memory_behind(cpu_array(self)) is not None


def share_memory_(self: Tensor) -> Tensor:
    """Move this tensor, and what it is a view of, to memory that other processes can see.

    Processes forked from here on, and those it is sent to, read and write the same numbers.
    """
    if not self.is_cpu:
        held = "a meta tensor has no memory"
        if not self.is_meta:
            held = f"memory of {self.device} is its own. Share tensor.cpu() and copy it back"
        raise RuntimeError(f"share_memory_: only available on CPU; {held}\n  at {errors.here()}")
    if is_shared(self) or not self._a.size:
        return self
    old = memory_of(self._a)
    new = all_of(_new(old.size))
    new[...] = old
    for tensor in (self, self._base):
        if tensor is not None:
            exchange(tensor, placed(new, form_of(cpu_array(tensor), old)))
    return self


def all_of(memory: SharedMemory) -> np.ndarray:
    """The bytes of a shared memory, for all arrays in it to be views of."""
    return np.frombuffer(memory, np.uint8)


def form_of(array: np.ndarray, memory: np.ndarray) -> tuple[Any, ...]:
    """What an array looks like, and where in a memory it begins."""
    offset = _address(array) - _address(memory)
    return array.shape, array.dtype, offset, array.strides


def placed(memory: np.ndarray, form: tuple[Any, ...]) -> np.ndarray:
    """An array of this form in a memory."""
    shape, dtype, offset, strides = form
    return np.ndarray(shape, dtype, memory, offset, strides)  # type: ignore[arg-type]


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
