"""Switches and questions about the libraries behind PyTorch; code that sets them still runs."""

from __future__ import annotations

from weft.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, native, openmp, opt_einsum

# What programs set for all libraries at once; nothing reads it.
fp32_precision = "none"

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "native", "openmp", "opt_einsum"]
