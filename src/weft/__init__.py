"""weft: PyTorch's freedom, with a graph that you can hold in your hand."""

from __future__ import annotations

from typing import Any, NoReturn

from weft import autograd
from weft.core import dtype as _dt
from weft.core.device import device, get_default_device, set_default_device
from weft.core.dtype import dtype, finfo, get_default_dtype, iinfo, set_default_dtype
from weft.core.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from weft.core.size import Size
from weft.core.tensor import LATE as _LATE
from weft.core.tensor import Tensor
from weft.ops import api as _api
from weft.ops import load as _load

__version__ = "0.1.0"

_load.everything()

from weft import fft, linalg, nn, special  # noqa: E402


def _missing(name: str) -> NoReturn:
    raise AttributeError(
        f"weft does not have torch.{name} yet. See ROADMAP.md for what is planned"
    )


_LATE.missing = _missing


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _missing(name)


globals().update({d.name: d for d in _dt.ALL})
globals().update(_dt.ALIASES)
globals().update(_api.FUNCTIONS)
