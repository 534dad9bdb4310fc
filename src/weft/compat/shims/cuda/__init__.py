"""CUDA, which is not there: questions get honest answers, and requests an error or no effect.

Most of it is a row of ``weft.compat.absent``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NoReturn

from weft.compat import absent
from weft.cuda import amp
from weft.operators.questions import OutOfMemoryError as OutOfMemoryError

__all__ = ["amp", "device_count", "empty_cache", "is_available", "manual_seed", "manual_seed_all"]

has_half = has_magma = False
default_generators: tuple[Any, ...] = ()
globals().update(absent.functions("cuda"))
if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def memory_summary(device: Any = None, abbreviated: bool = False) -> str:
    """A text that says that there is nothing to sum up."""
    return "no CUDA device: nothing allocated"


def set_device(device: Any) -> None:
    """Choose a device; only a negative number, which means none, can be chosen.

    >>> if torch.cuda.is_available():
    ...     torch.cuda.set_device(0)
    """
    absent.choose("cuda", device)


class device(absent.absent_device):
    """A ``with`` block on a CUDA device; without one only for a negative number or None."""

    namespace = "cuda"


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
