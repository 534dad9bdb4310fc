"""How modules change their parameters, where PyTorch means to do otherwise in time."""

from __future__ import annotations

from weft.nn._conversion import (
    get_overwrite_module_params_on_conversion,
    get_swap_module_params_on_conversion,
    set_overwrite_module_params_on_conversion,
    set_swap_module_params_on_conversion,
)

__all__ = [
    "get_overwrite_module_params_on_conversion",
    "get_swap_module_params_on_conversion",
    "set_overwrite_module_params_on_conversion",
    "set_swap_module_params_on_conversion",
]
