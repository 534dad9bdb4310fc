"""Mixed precision on CUDA: without a device it switches itself off, as in PyTorch."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


class autocast:
    """A ``with`` block or decorator that would lower precision on CUDA; here it does nothing."""

    def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True) -> None:
        if enabled:
            warnings.warn(
                "User provided device_type of 'cuda', but CUDA is not available. Disabling",
                UserWarning,
                stacklevel=2,
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def unchanged(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return unchanged


class GradScaler:
    """A scaler of losses for float16 gradients; without CUDA it passes everything through."""

    def __init__(
        self, init_scale: float = 65536.0, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        if enabled:
            warnings.warn(
                "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                UserWarning,
                stacklevel=2,
            )

    def is_enabled(self) -> bool:
        """Whether scaling takes place: never."""
        return False

    def scale(self, outputs: Any) -> Any:
        """The outputs as they are."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing was scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's own step."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """There is no scale to update."""

    def get_scale(self) -> float:
        """The scale: one."""
        return 1.0

    def state_dict(self) -> dict[str, Any]:
        """Nothing to keep."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing to take over."""


def custom_fwd(fwd: Callable | None = None, *, cast_inputs: Any = None) -> Callable:
    """The function as it is."""
    return fwd if fwd is not None else lambda function: function


def custom_bwd(bwd: Callable) -> Callable:
    """The function as it is."""
    return bwd
