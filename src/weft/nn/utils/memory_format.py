"""Weights of convolutions in another order of memory."""

from __future__ import annotations

from typing import Any


def _convert(module: Any, memory_format: Any, names: tuple[str, ...]) -> Any:
    for child in module.modules():
        if any(c.__name__ in names for c in type(child).__mro__):
            child.weight.data = child.weight.detach().clone(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Put the weights of all 2-d convolutions in this order."""
    return _convert(module, memory_format, ("Conv2d", "ConvTranspose2d"))


def convert_conv3d_weight_memory_format(module: Any, memory_format: Any) -> Any:
    """Put the weights of all 3-d convolutions in this order."""
    return _convert(module, memory_format, ("Conv3d", "ConvTranspose3d"))
