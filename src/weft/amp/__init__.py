"""Mixed precision: ops in the precision that suits them, and losses scaled for float16."""

from __future__ import annotations

from weft.amp import autocast_mode, grad_scaler
from weft.amp.autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from weft.amp.grad_scaler import GradScaler

__all__ = [
    "GradScaler",
    "autocast",
    "autocast_mode",
    "custom_bwd",
    "custom_fwd",
    "grad_scaler",
    "is_autocast_available",
]
