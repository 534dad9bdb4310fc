"""XPU devices, which are not there."""

from __future__ import annotations

from typing import Any


def is_available() -> bool:
    """Whether such a device can be used: never."""
    return False


def device_count() -> int:
    """The number of such devices: none."""
    return 0


def manual_seed(seed: int) -> None:
    """No effect: there is no generator on such a device."""


manual_seed_all = manual_seed


def _absent(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("there is no XPU device: weft runs on the CPU")


synchronize = empty_cache = current_device = get_rng_state = set_rng_state = _absent
