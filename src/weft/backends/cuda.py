"""CUDA is not used. Its switches can be set and read, and change nothing."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

matmul = SimpleNamespace(
    allow_tf32=False,
    allow_fp16_reduced_precision_reduction=True,
    allow_bf16_reduced_precision_reduction=True,
    allow_fp16_accumulation=False,
    fp32_precision="none",
)
cufft_plan_cache = SimpleNamespace(size=0, max_size=0, clear=lambda: None)


def is_built() -> bool:
    """Whether CUDA was compiled in: no."""
    return False


class _Kernels:
    """Which kernels attention may use; only plain arithmetic is there."""

    flash = mem_efficient = math = cudnn = True


def flash_sdp_enabled() -> bool:
    """Whether flash attention is allowed."""
    return _Kernels.flash


def enable_flash_sdp(enabled: bool) -> None:
    """Allow or forbid flash attention (it is not there)."""
    _Kernels.flash = enabled


def mem_efficient_sdp_enabled() -> bool:
    """Whether memory-efficient attention is allowed."""
    return _Kernels.mem_efficient


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Allow or forbid memory-efficient attention (it is not there)."""
    _Kernels.mem_efficient = enabled


def math_sdp_enabled() -> bool:
    """Whether plain attention is allowed."""
    return _Kernels.math


def enable_math_sdp(enabled: bool) -> None:
    """Allow or forbid plain attention (it is used all the same)."""
    _Kernels.math = enabled


def cudnn_sdp_enabled() -> bool:
    """Whether cuDNN's attention is allowed."""
    return _Kernels.cudnn


def enable_cudnn_sdp(enabled: bool) -> None:
    """Allow or forbid cuDNN's attention (it is not there)."""
    _Kernels.cudnn = enabled


def sdp_kernel(**choices: Any) -> contextlib.AbstractContextManager:
    """A ``with`` block that would choose a kernel; there is one only."""
    return contextlib.nullcontext()
