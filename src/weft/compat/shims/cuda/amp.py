"""Mixed precision on CUDA by its older names: without a device it switches itself off."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import weft
from weft import amp

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]


def _deprecated(name: str) -> None:
    warnings.warn(
        f"`torch.cuda.amp.{name}(args...)` is deprecated. Please use "
        f"`torch.amp.{name}('cuda', args...)` instead.",
        FutureWarning,
        stacklevel=3,
    )


class autocast(amp.autocast):
    """The older form of ``torch.amp.autocast("cuda", ...)``."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        _deprecated("autocast")
        dtype = weft.float16 if dtype is None else dtype
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(amp.GradScaler):
    """The older form of ``torch.amp.GradScaler("cuda", ...)``.

    >>> scaler = torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())
    >>> scaler.is_enabled()
    False
    """

    def __init__(
        self,
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        _deprecated("GradScaler")
        super().__init__(
            "cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled
        )


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: Any = None) -> Callable:
    """The older form of ``torch.amp.custom_fwd``."""
    _deprecated("custom_fwd")
    if fwd is None:
        return functools.partial(amp.custom_fwd, device_type="cuda", cast_inputs=cast_inputs)
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable) -> Callable:
    """The older form of ``torch.amp.custom_bwd``."""
    _deprecated("custom_bwd")
    return amp.custom_bwd(bwd, device_type="cuda")
