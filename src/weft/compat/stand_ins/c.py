"""What libraries reach for in ``torch._C``, PyTorch's compiled half."""

from __future__ import annotations

import contextlib
import enum
from typing import Any

import weft
from weft.core.device import device as Device
from weft.core.dtype import dtype as Dtype
from weft.core.tensor import Tensor

_TensorMeta = type(Tensor)


def _log_api_usage_once(event: str) -> None:
    """For PyTorch's own count of which features are used; nothing is counted here."""


class DispatchKey(enum.Enum):
    """The layers through which PyTorch sends a call; weft has none, so they can only be named."""

    Undefined = 0
    CPU, CUDA, Meta, XPU, AutogradCPU, AutogradCUDA, Autograd = range(1, 8)
    AutocastCPU, AutocastCUDA, AutocastXPU, ADInplaceOrView, Python, BackendSelect = range(8, 14)
    CompositeExplicitAutograd, CompositeImplicitAutograd = range(14, 16)


class DispatchKeySet:
    """A set of such layers."""

    def __init__(self, keys: Any) -> None:
        self._keys = frozenset([keys] if isinstance(keys, DispatchKey) else keys)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def add(self, key: DispatchKey) -> DispatchKeySet:
        """The set with one more layer."""
        return DispatchKeySet(self._keys | {key})

    def remove(self, key: DispatchKey) -> DispatchKeySet:
        """The set without a layer."""
        return DispatchKeySet(self._keys - {key})

    def has(self, key: DispatchKey) -> bool:
        """Whether a layer is in the set."""
        return key in self._keys


class _ExcludeDispatchKeyGuard(contextlib.nullcontext):
    """A block without some of PyTorch's dispatch keys, of which there are none here."""


def _get_tracing_state() -> None:
    """What TorchScript is tracing: nothing."""


def _false(*args: Any, **kwargs: Any) -> bool:
    """Whether something is on that weft does not have: never."""
    return False


def _nothing(*args: Any, **kwargs: Any) -> None:
    """A switch of something that weft does not have."""


def _get_cudnn_enabled() -> bool:
    """Whether cuDNN may be used, for programs that put the switch back as it was."""
    return bool(weft.backends.cudnn.enabled)


def _get_default_device() -> str:
    """The kind of the default device."""
    return weft.get_default_device().type


def _get_accelerator() -> Device:
    """The device that computations are meant for: the CPU."""
    return weft.device("cpu")


def _get_privateuse1_backend_name() -> str:
    """The name of the device that an extension may have registered."""
    return "privateuseone"


def _of_layers(name: str) -> Any:
    """A function of ``torch._C._nn``, most of which are those of ``torch.nn.functional``."""
    return getattr(weft.nn.functional, name)


class _ByName(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(weft, name)


class _VariableFunctionsClass(metaclass=_ByName):
    """Has the functions of tensors: pickles that PyTorch makes name them as its attributes."""


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """The arguments of ``Tensor.to`` as device, dtype, non_blocking and memory format."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    wait, form = bool(kwargs.get("non_blocking", False)), kwargs.get("memory_format")
    for position, value in enumerate(args):
        if isinstance(value, Tensor):
            device, dtype = value.device, value.dtype
        elif isinstance(value, Dtype):
            dtype = value
        elif isinstance(value, bool):
            wait = wait or (value and position < 3)
        elif value is not None:
            device = value
    return (None if device is None else weft.device(device)), dtype, wait, form
