"""Automatic differentiation."""

from __future__ import annotations

import sys
from typing import Any

from weft.autograd import anomaly as anomaly_mode
from weft.autograd import forward_ad, function, functional, graph
from weft.autograd import transposed as _transposed  # noqa: F401  # core asks it for tangents
from weft.autograd.anomaly import detect_anomaly, set_detect_anomaly
from weft.autograd.entry import backward, grad
from weft.autograd.function import Function
from weft.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck
from weft.autograd.variable import Variable
from weft.core import modes as grad_mode
from weft.core.modes import (
    enable_grad,
    inference_mode,
    is_multithreading_enabled,
    is_view_replay_enabled,
    no_grad,
    set_grad_enabled,
    set_multithreading_enabled,
)
from weft.core.modes import force_original_view_tracking as _force_original_view_tracking  # noqa: F401
from weft.core.saved import SavedTensor

__all__ = [
    "Function",
    "GradcheckError",
    "SavedTensor",
    "Variable",
    "anomaly_mode",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "forward_ad",
    "function",
    "functional",
    "grad",
    "grad_mode",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "is_view_replay_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def __getattr__(name: str) -> Any:
    if name == "torch":  # PyTorch's module has imported its own package
        return sys.modules["weft"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
