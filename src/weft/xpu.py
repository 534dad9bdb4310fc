"""XPU devices, which are not there: questions get honest answers, and requests an error."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NoReturn

from weft import cuda


def is_available() -> bool:
    """Whether such a device can be used: never."""
    return False


def is_initialized() -> bool:
    """Whether XPU has been started: never."""
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether such a device computes in bfloat16: there is none."""
    return False


is_tf32_supported = is_initialized


def device_count() -> int:
    """The number of such devices: none."""
    return 0


def _nothing(*args: Any, **kwargs: Any) -> None:
    """No effect: there is no device that it could have one on."""


manual_seed = manual_seed_all = seed = seed_all = empty_cache = set_rng_state_all = _nothing
reset_peak_memory_stats = reset_accumulated_memory_stats = _nothing


def memory_allocated(device: Any = None) -> int:
    """Nothing is allocated on a device that is not there."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> OrderedDict[str, Any]:
    """No device, no numbers."""
    return OrderedDict()


def get_rng_state_all() -> list[Any]:
    """The states of all devices' generators: none."""
    return []


def get_arch_list() -> list[str]:
    """The architectures that were compiled for: none."""
    return []


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise AssertionError(
        "Torch not compiled with XPU enabled: weft runs on the CPU. Guard the call with "
        "torch.xpu.is_available()"
    )


synchronize = current_device = get_rng_state = set_rng_state = set_device = init = _absent
get_device_name = get_device_capability = get_device_properties = mem_get_info = _absent
current_stream = set_stream = initial_seed = _absent


class device(cuda.device):
    """A ``with`` block on an XPU device; without one only for a negative number or None."""


stream = cuda.stream
