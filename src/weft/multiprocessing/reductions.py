"""How tensors travel between processes: by the memory they lie in, not by a copy."""

from __future__ import annotations

import os
from multiprocessing import reduction
from typing import Any

import numpy as np

from weft.core import errors
from weft.core.devices import DeviceArray, cpu_array
from weft.core.tensor import Parameter, Tensor, wrap
from weft.multiprocessing import shared

_SMALL = 1 << 16

__all__ = ["rebuild_tensor", "reduce_tensor", "register"]


def reduce_tensor(tensor: Any) -> tuple[Any, ...]:
    """What a process needs to have the same tensor, on the same memory."""
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries. If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
        )
    if isinstance(tensor._a, DeviceArray):
        raise RuntimeError(
            f"a tensor on {tensor.device} can't be sent to another process, which can't see the "
            f"device's memory: send tensor.cpu() and move it there\n  at {errors.here()}"
        )
    if os.name != "posix" or not tensor._a.size or tensor._a.dtype.hasobject or tensor.is_meta:
        return tensor.__reduce_ex__(2)
    shared.share_memory_(tensor)
    array = cpu_array(tensor)
    memory = shared.memory_behind(array)
    assert memory is not None
    form = shared.form_of(array, shared.all_of(memory))
    handle = reduction.DupFd(memory.number)
    # A small tensor carries its numbers along, for a receiver that reads after the sender has
    # ended.
    data = bytes(memory) if len(memory) <= _SMALL else None
    size = len(memory)
    return rebuild_tensor, (type(tensor), handle, size, form, tensor.requires_grad, data)


def rebuild_tensor(
    kind: type, handle: Any, size: int, form: Any, requires_grad: bool, data: bytes | None
) -> Any:
    """The tensor on memory that another process shares."""
    try:
        memory = shared.all_of(shared.map_file(handle.detach(), size))
    except (EOFError, OSError) as error:
        if data is None:
            raise RuntimeError(
                "a tensor can't be received: the process that sent it has ended. Let it wait until "
                "the tensor was taken, or send tensor.numpy(), which is copied"
            ) from error
        memory = np.frombuffer(bytearray(data), np.uint8)
    tensor = wrap(shared.placed(memory, form))
    if issubclass(kind, Parameter):
        return kind(tensor, requires_grad)
    return tensor.requires_grad_() if requires_grad else tensor


def register() -> None:
    """Have Python's queues, pipes and processes pass tensors in this way."""
    for kind in (Tensor, Parameter):
        reduction.ForkingPickler.register(kind, reduce_tensor)
