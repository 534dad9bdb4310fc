"""The namespaces of devices that weft does not have, such as ``torch.cuda``, as one table.

Questions get honest answers. A request has no effect where a program may make it on any machine
(``manual_seed_all``, ``empty_cache``), and is an error where only a device could fulfil it.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from weft.core.device import device as _any_device

# namespace -> what its functions do -> their names
TABLE: dict[str, dict[str, str]] = {
    "cuda": {
        "false": "is_available is_bf16_supported is_initialized",
        "zero": "device_count max_memory_allocated max_memory_cached max_memory_reserved"
        " memory_allocated memory_cached memory_reserved",
        "empty": "get_arch_list get_rng_state_all",
        "statistics": "memory_stats",
        "ignored": "empty_cache ipc_collect manual_seed manual_seed_all"
        " reset_accumulated_memory_stats reset_max_memory_allocated reset_max_memory_cached"
        " reset_peak_memory_stats seed seed_all set_per_process_memory_fraction"
        " set_rng_state_all synchronize",
        "refused": "can_device_access_peer current_blas_handle cudart current_device"
        " current_stream default_stream get_allocator_backend get_device_capability get_device_name"
        " get_device_properties get_rng_state init initial_seed mem_get_info set_rng_state"
        " set_stream temperature utilization",
    },
    "xpu": {
        "false": "is_available is_bf16_supported is_initialized is_tf32_supported",
        "zero": "device_count max_memory_allocated max_memory_reserved memory_allocated"
        " memory_reserved",
        "empty": "get_arch_list get_rng_state_all",
        "statistics": "memory_stats",
        "ignored": "empty_cache manual_seed manual_seed_all reset_accumulated_memory_stats"
        " reset_peak_memory_stats seed seed_all set_rng_state_all",
        "refused": "current_device current_stream get_device_capability get_device_name"
        " get_device_properties get_rng_state init initial_seed mem_get_info set_device"
        " set_rng_state set_stream synchronize",
    },
    "mps": {
        "false": "is_available",
        "zero": "device_count",
        "ignored": "manual_seed seed",
        "refused": "compile_shader current_allocated_memory driver_allocated_memory empty_cache"
        " get_rng_state recommended_max_memory set_per_process_memory_fraction set_rng_state"
        " synchronize",
    },
    "accelerator": {
        "false": "is_available",
        "zero": "device_count max_memory_allocated max_memory_reserved memory_allocated"
        " memory_reserved",
        "none": "current_accelerator",
        "ignored": "empty_cache reset_peak_memory_stats",
        "refused": "current_device_idx current_device_index current_stream get_device_capability"
        " get_memory_info set_device_idx set_device_index set_stream synchronize",
    },
}
# As PyTorch raises them without such a device.
ERRORS: dict[str, tuple[type[Exception], str]] = {
    "cuda": (AssertionError, "Torch not compiled with CUDA enabled: weft runs on the CPU"),
    "xpu": (AssertionError, "Torch not compiled with XPU enabled: weft runs on the CPU"),
    "mps": (RuntimeError, "there is no MPS device: weft runs on the CPU"),
    "accelerator": (RuntimeError, "Cannot access accelerator device when none is available"),
}
MEANING = {
    "false": "False: there is no such device.",
    "zero": "0: there is no such device.",
    "empty": "An empty list: there is no such device.",
    "statistics": "An empty dict: there is no such device.",
    "none": "None: there is no such device.",
    "ignored": "No effect: there is no such device.",
    "refused": "An error: there is no such device.",
}
EXAMPLES = {
    "cuda.is_available": """
    >>> torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device(type='cpu')
    """,
    "cuda.device_count": """
    >>> torch.cuda.device_count()
    0
    """,
    "cuda.synchronize": """
    >>> if torch.cuda.is_available():
    ...     torch.cuda.synchronize()
    """,
    "cuda.empty_cache": """
    >>> torch.cuda.empty_cache()
    """,
    "cuda.manual_seed": """
    >>> torch.cuda.manual_seed(0)
    """,
    "cuda.manual_seed_all": """
    >>> torch.cuda.manual_seed_all(0)
    """,
    "cuda.max_memory_allocated": """
    >>> torch.cuda.max_memory_allocated()
    0
    """,
    "accelerator.is_available": """
    >>> "gpu" if torch.accelerator.is_available() else "cpu"
    'cpu'
    """,
    "accelerator.current_accelerator": """
    >>> torch.accelerator.current_accelerator() or torch.device("cpu")
    device(type='cpu')
    """,
}


def refusal(namespace: str) -> Exception:
    """The error for a request that needs the device."""
    kind, text = ERRORS[namespace]
    return kind(f"{text}. Guard the call with torch.{namespace}.is_available()")


def functions(namespace: str) -> dict[str, Callable[..., Any]]:
    """The functions that the table has for a namespace."""
    answers: dict[str, Callable[[], Any]] = {
        "false": lambda: False,
        "zero": lambda: 0,
        "empty": list,
        "statistics": OrderedDict,
        "none": lambda: None,
        "ignored": lambda: None,
        "refused": lambda: _refuse(namespace),
    }
    return {
        name: _function(namespace, name, MEANING[kind], answers[kind])
        for kind, names in TABLE[namespace].items()
        for name in names.split()
    }


def _refuse(namespace: str) -> None:
    raise refusal(namespace)


def _function(namespace: str, name: str, doc: str, answer: Callable[[], Any]) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return answer()

    function.__name__ = function.__qualname__ = name
    function.__module__ = f"weft.{namespace}"
    example = EXAMPLES.get(f"{namespace}.{name}", "")
    function.__doc__ = f"{doc}\n{example}" if example else doc
    return function


class absent_device(contextlib.AbstractContextManager):
    """A ``with`` block on a device; without one only for a negative number or None."""

    namespace = ""

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> absent_device:
        if self.idx is not None and not (isinstance(self.idx, int) and self.idx < 0):
            raise refusal(self.namespace)
        return self

    def __exit__(self, *exc: object) -> None:
        return None


def choose(namespace: str, device: Any) -> None:
    """What ``set_device`` does: only a negative number, which means none, can be chosen."""
    number = device if isinstance(device, int) else _any_device(device).index
    if number is None or number >= 0:
        raise refusal(namespace)
