"""oneDNN on NumPy arrays: float32 convolution and matrix products on all cores.

Importing this package costs nothing: the library is looked for when one of its functions is first
used. Each function returns None for inputs that it declines, and where the library is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.native.once import LOCK, module

if TYPE_CHECKING:
    from weft.native.onednn.binding import (
        available,
        version,
        why_not,
    )
    from weft.native.onednn.conv import (
        convolution,
        convolution_input_grad,
        convolution_weight_grad,
    )
    from weft.native.onednn.gemm import linear, matmul

__all__ = [
    "available",
    "convolution",
    "convolution_input_grad",
    "convolution_weight_grad",
    "linear",
    "matmul",
    "version",
    "why_not",
]

_HOMES = {
    "convolution": "conv",
    "convolution_input_grad": "conv",
    "convolution_weight_grad": "conv",
    "linear": "gemm",
    "matmul": "gemm",
}


def _nothing(*_: Any, **__: Any) -> None:
    """Stands in for every function where the library is missing."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "binding")
    with LOCK:
        binding = module(f"{__name__}.binding")
        if home != "binding" and not binding.available():
            found: Any = _nothing
        else:
            found = getattr(module(f"{__name__}.{home}"), name)
        globals()[name] = found  # the next use goes straight to it
    return found
