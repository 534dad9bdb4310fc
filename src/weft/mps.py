"""MPS devices, which are not there."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    """Whether such a device can be used: never."""
    return False


def device_count() -> int:
    """The number of such devices: none."""
    return 0


def manual_seed(seed: int) -> None:
    """No effect: there is no generator on such a device."""


def seed() -> None:
    """No effect: there is no generator on such a device."""


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "there is no MPS device: weft runs on the CPU. Guard the call with torch.mps.is_available()"
    )


synchronize = empty_cache = get_rng_state = set_rng_state = set_per_process_memory_fraction = (
    _absent
)
current_allocated_memory = driver_allocated_memory = recommended_max_memory = _absent
compile_shader = set_per_process_memory_fraction = _absent
