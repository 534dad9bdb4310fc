"""The machine's accelerator: there is none."""

from __future__ import annotations

from typing import Any, NoReturn


def is_available() -> bool:
    """Whether there is an accelerator: no.

    >>> "gpu" if torch.accelerator.is_available() else "cpu"
    'cpu'
    """
    return False


def device_count() -> int:
    """The number of accelerators: none."""
    return 0


def current_accelerator(check_available: bool = False) -> None:
    """The accelerator's device: None.

    >>> torch.accelerator.current_accelerator() or torch.device("cpu")
    device(type='cpu')
    """


def _absent(*args: Any, **kwargs: Any) -> NoReturn:
    raise RuntimeError(
        "Cannot access accelerator device when none is available. Guard the call with "
        "torch.accelerator.is_available()"
    )


current_device_index = current_device_idx = set_device_index = set_device_idx = _absent
current_stream = set_stream = synchronize = get_device_capability = get_memory_info = _absent


def empty_cache() -> None:
    """No effect: nothing is cached."""


def memory_allocated(device_index: Any = None) -> int:
    """Nothing is allocated on a device that is not there."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def reset_peak_memory_stats(device_index: Any = None) -> None:
    """No effect: there are no numbers."""
