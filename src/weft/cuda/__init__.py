"""CUDA, which is not there: questions get honest answers, and requests an error or no effect."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from typing import Any, NoReturn

from weft.core.device import device as _any_device
from weft.cuda import amp
from weft.operators.questions import OutOfMemoryError as OutOfMemoryError

__all__ = ["amp", "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all"]

has_half = has_magma = False
default_generators: tuple[Any, ...] = ()


def is_available() -> bool:
    """Whether a CUDA device can be used: never.

    >>> torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device(type='cpu')
    """
    return False


def is_initialized() -> bool:
    """Whether CUDA has been started: never."""
    return False


def device_count() -> int:
    """The number of CUDA devices: none.

    >>> torch.cuda.device_count()
    0
    """
    return 0


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether a CUDA device computes in bfloat16: there is none."""
    return False


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError(
        "Torch not compiled with CUDA enabled: weft runs on the CPU. Guard the call with "
        "torch.cuda.is_available()"
    )


current_device = get_device_name = get_device_capability = get_device_properties = _absent
current_stream = default_stream = set_stream = get_rng_state = set_rng_state = _absent
initial_seed = mem_get_info = utilization = temperature = init = current_blas_handle = _absent
get_allocator_backend = can_device_access_peer = _absent


def _nothing(*args: Any, **kwargs: Any) -> None:
    """No effect: there is no device that it could have one on.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.synchronize()
    """


manual_seed = manual_seed_all = seed = seed_all = empty_cache = synchronize = _nothing
reset_peak_memory_stats = reset_max_memory_allocated = reset_max_memory_cached = _nothing
reset_accumulated_memory_stats = ipc_collect = set_rng_state_all = _nothing
set_per_process_memory_fraction = _nothing


def _zero(device: Any = None) -> int:
    """Nothing is allocated on a device that is not there.

    >>> torch.cuda.max_memory_allocated()
    0
    """
    return 0


memory_allocated = max_memory_allocated = memory_reserved = max_memory_reserved = _zero
memory_cached = max_memory_cached = _zero


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """No device, no numbers."""
    return OrderedDict()


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A text that says that there is nothing to sum up."""
    return "no CUDA device: nothing allocated"


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators: none."""
    return []


def get_arch_list() -> list[str]:
    """The architectures that were compiled for: none."""
    return []


def set_device(device: Any) -> None:
    """Choose a device; only a negative number, which means none, can be chosen.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_device(0)
    """
    number = device if isinstance(device, int) else _any_device(device).index
    if number is None or number >= 0:
        _absent()


class device(contextlib.AbstractContextManager):
    """A ``with`` block on a CUDA device; without one only for a negative number or None."""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> device:
        if self.idx is not None and not (isinstance(self.idx, int) and self.idx < 0):
            _absent()
        return self

    def __exit__(self, *exc: object) -> None:
        return None


class Stream:
    """A CUDA stream, which can't be made here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch.cuda.Stream requires CUDA support; weft runs on the CPU")


class Event:
    """A CUDA event, which can't be made here; time CPU code with time.perf_counter()."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("torch.cuda.Event requires CUDA support; weft runs on the CPU")


def stream(stream: Any) -> contextlib.AbstractContextManager:
    """A ``with`` block on a stream: None is the only one there can be."""
    return contextlib.nullcontext()


class _Absent(type):
    """The class of CUDA's classes of tensors; tensors can be asked about them, none can be made."""

    is_cuda, is_sparse = True, False

    def __new__(cls, name: str) -> _Absent:
        return super().__new__(cls, name, (), {"__module__": __name__})

    def __init__(cls, name: str) -> None:
        super().__init__(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(f"type torch.cuda.{cls.__name__} not available. weft runs on the CPU")

    @property
    def dtype(cls) -> NoReturn:
        return cls()

    def __instancecheck__(cls, instance: Any) -> bool:
        return False

    def __repr__(cls) -> str:
        return f"<class 'torch.cuda.{cls.__name__}'>"


for _name in (
    "Float",
    "Double",
    "Half",
    "BFloat16",
    "Byte",
    "Char",
    "Short",
    "Int",
    "Long",
    "Bool",
):
    globals()[f"{_name}Tensor"] = _Absent(f"{_name}Tensor")
