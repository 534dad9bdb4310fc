"""A second device, which exists in tests only: ``mirror``.

Its arrays are not NumPy's and can't be read as such: they keep their memory to themselves. An op
runs by its NumPy reference on that memory. So whatever reads a tensor's array anywhere but through
an op, or through the functions in ``core.devices`` for what Python needs to see, fails here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.core import devices, quiet
from weft.core.meta import plain
from weft.core.tensor import storage_array

ndarray = np.ndarray


class MirrorArray(devices.DeviceArray):
    """An array of the device: its memory is under a name that no code outside of here knows."""

    __slots__ = ("__memory",)

    def __init__(self, memory: ndarray, base: Any = None) -> None:
        address = memory.__array_interface__["data"][0]
        super().__init__(memory.shape, memory.strides, memory.dtype, base, address)
        self.__memory = memory

    @staticmethod
    def reveal(array: MirrorArray) -> ndarray:
        """The memory, for the device alone."""
        return array.__memory


class Mirror(devices.Device):
    """The device."""

    name, array = "mirror", MirrorArray

    def put(self, array: ndarray) -> MirrorArray:
        return MirrorArray(np.array(array, dtype=plain(array.dtype), order="K"))

    def get(self, array: Any) -> ndarray:
        return np.array(MirrorArray.reveal(array), order="K")

    def view(self, array: Any, dtype: Any, shape: Any, strides: Any, start: int) -> MirrorArray:
        owner = array if array.base is None else array.base
        memory = MirrorArray.reveal(owner)
        if 0 in shape or not memory.size:
            return MirrorArray(np.ndarray(shape, plain(dtype), strides=strides), owner)
        rows = memory.transpose(np.argsort([-abs(s) for s in memory.strides], kind="stable"))
        whole = rows.reshape(-1).view(np.uint8)
        assert np.shares_memory(whole, memory)
        return MirrorArray(np.ndarray(shape, plain(dtype), whole, start, strides), owner)

    def write(self, target: Any, source: Any, where: ndarray | None = None) -> None:
        source = MirrorArray.reveal(source) if isinstance(source, MirrorArray) else source
        chosen = True if where is None else where
        np.copyto(MirrorArray.reveal(target), source, casting="unsafe", where=chosen)

    def run(self, op: Any, args: tuple[Any, ...], attrs: dict[str, Any]) -> Any:
        memories = [MirrorArray.reveal(x) if isinstance(x, MirrorArray) else x for x in args]
        attrs = {
            k: MirrorArray.reveal(v) if isinstance(v, MirrorArray) else v for k, v in attrs.items()
        }
        token = quiet.enter()
        try:
            out = op.compute(memories, attrs)
        finally:
            quiet.leave(token)
        outs = [np.asarray(o) for o in (out if op.multiple else (out,))]
        if op.layout is not None:
            outs = [op.layout(o, memories) for o in outs]
        made = [self._placed(o, args, memories) for o in outs]
        return tuple(made) if op.multiple else made[0]

    def _placed(self, out: ndarray, args: tuple[Any, ...], memories: list[Any]) -> MirrorArray:
        """A result as an array of the device: new, or a view of an input's memory."""
        for x, memory in zip(args, memories, strict=True):
            if isinstance(x, MirrorArray) and storage_array(out) is storage_array(memory):
                return x if out is memory else MirrorArray(out, x if x.base is None else x.base)
        return MirrorArray(out)


MIRROR = Mirror()
