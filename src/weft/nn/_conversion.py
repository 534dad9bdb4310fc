"""How modules change their parameters, where PyTorch means to do otherwise in time."""

from __future__ import annotations


class _Choices:
    overwrite = False
    swap = False


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Whether ``module.to`` and its like make new parameters, and leave the old as they are."""
    _Choices.overwrite = value


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether ``module.to`` and its like make new parameters."""
    return _Choices.overwrite


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Whether conversions and ``load_state_dict`` swap each parameter with a new tensor."""
    _Choices.swap = value


def get_swap_module_params_on_conversion() -> bool:
    """Whether conversions and ``load_state_dict`` swap each parameter with a new tensor."""
    return _Choices.swap
